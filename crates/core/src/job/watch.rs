//! Whether a job's GPUs are as warm, and its iterations as long, as when its loop judged them: a job that has
//! converged is sampled seldom, and more closely for a while where that has changed.

use litd_units::{Celsius, Kelvins};

/// What is compared.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// How many samples are still taken at the short period although the job has converged.
    closer_looks: u32,
    /// Temperatures at convergence, per rank.
    converged: Vec<Option<Celsius>>,
    /// Temperatures when warm-up began, per rank.
    warm_up: Option<Vec<Option<Celsius>>>,
}

impl Watch {
    /// Forgets what was seen under other conditions.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Whether samples are taken at the short period although the job has converged.
    pub fn looks_closer(&self) -> bool {
        self.closer_looks > 0
    }

    /// A sample was taken.
    pub fn sampled(&mut self) {
        self.closer_looks = self.closer_looks.saturating_sub(1);
    }

    /// The job has converged, and its GPUs are that warm.
    pub fn converged(&mut self, heat: Vec<Option<Celsius>>) {
        self.converged = heat;
        self.closer_looks = 0;
    }

    /// So many samples are taken at the short period; the GPUs are that warm.
    pub fn look_closer(&mut self, heat: Vec<Option<Celsius>>, samples: u32) {
        self.converged = heat;
        self.closer_looks = samples;
    }

    /// The first rank whose GPU's temperature has changed by more than that since convergence.
    pub fn has_changed(&self, heat: &[Option<Celsius>], most: Kelvins) -> Option<usize> {
        moved(heat, &self.converged, most)
    }

    /// Whether a GPU's temperature has moved by more than that since warm-up began. The first time that is asked
    /// is when it begins.
    pub fn is_warming(&mut self, heat: &[Option<Celsius>], most: Kelvins) -> bool {
        match &self.warm_up {
            Some(then) => moved(heat, then, most).is_some(),
            None => {
                self.warm_up = Some(heat.to_vec());
                false
            }
        }
    }

    /// Warm-up begins again, with the GPUs that warm.
    pub fn warms_up_again(&mut self, heat: Vec<Option<Celsius>>) {
        self.warm_up = Some(heat);
    }
}

/// The first position at which both temperatures are known and differ by more than that.
fn moved(now: &[Option<Celsius>], then: &[Option<Celsius>], most: Kelvins) -> Option<usize> {
    let differs = |(now, then): (&Option<Celsius>, &Option<Celsius>)| match (now, then) {
        (Some(now), Some(then)) => (*now - *then).abs() > most,
        _ => false,
    };
    now.iter().zip(then).position(differs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heat(of: [f64; 2]) -> Vec<Option<Celsius>> {
        of.map(|of| (of >= 0.0).then_some(Celsius(of))).to_vec()
    }

    #[test]
    fn warm_up_begins_when_asked_first_and_again_when_told() {
        let mut watch = Watch::default();
        assert!(!watch.is_warming(&heat([40.0, 40.0]), Kelvins(2.0)));
        assert!(!watch.is_warming(&heat([42.0, 40.0]), Kelvins(2.0)));
        assert!(watch.is_warming(&heat([40.0, 42.5]), Kelvins(2.0)));
        watch.warms_up_again(heat([40.0, 42.5]));
        assert!(!watch.is_warming(&heat([40.0, 42.5]), Kelvins(2.0)));
    }

    #[test]
    fn a_temperature_that_is_not_known_has_not_changed() {
        let mut watch = Watch::default();
        watch.converged(heat([-1.0, 50.0]));
        assert_eq!(watch.has_changed(&heat([90.0, -1.0]), Kelvins(2.0)), None);
        assert_eq!(
            watch.has_changed(&heat([90.0, 55.0]), Kelvins(2.0)),
            Some(1)
        );
    }

    #[test]
    fn a_closer_look_ends_after_its_samples_and_at_convergence() {
        let mut watch = Watch::default();
        watch.look_closer(heat([50.0, 50.0]), 2);
        watch.sampled();
        assert!(watch.looks_closer());
        watch.sampled();
        assert!(!watch.looks_closer());
        watch.look_closer(heat([50.0, 50.0]), 2);
        watch.converged(heat([50.0, 50.0]));
        assert!(!watch.looks_closer());
    }
}
