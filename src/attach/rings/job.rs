//! A job that is sampled by the rings of its ranks.

use litd_attach::Looks;
use litd_attach::ring::Tick as Unit;
use litd_units::Nanos;

use super::WAY;
use super::read::Failure;
use crate::attach::ranks::{Rank, Sample, Sampled, Told, is_wanted_still, tell_of_none};
use crate::hub::Hub;

/// After so many looks in a row without an iteration the job is left alone for a while, and measured in another way if
/// there is one.
const PATIENCE: u32 = 5;

/// A look that is being read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub errand: u64,
    /// Collectives since then are in it.
    since: Nanos,
    /// Whether caps had settled then, and the loop wanted samples.
    counts: bool,
}

/// A job that is sampled.
#[derive(Debug)]
pub(super) struct Listening {
    ranks: Vec<Rank>,
    told: Told,
    /// The looks; `None` until older collectives have been passed over.
    looks: Option<Looks>,
    /// Whether caps had settled when the look that is under way began.
    counts: bool,
    pub reading: Option<Look>,
    /// The unit of each rank's clock.
    pub units: Vec<Option<Unit>>,
    samples: u64,
    failed: u32,
    /// Why the last look gave none, in words.
    trouble: Option<String>,
}

impl Sampled for Listening {
    fn ranks(&self) -> &[Rank] {
        &self.ranks
    }

    fn parts(&mut self) -> (&mut Vec<Rank>, &mut Told) {
        (&mut self.ranks, &mut self.told)
    }

    fn words(&self) -> String {
        let trouble = self.trouble.as_ref();
        let trouble = trouble.map_or_else(String::new, |why| {
            format!("; the last look gave none: {why}")
        });
        format!("{} samples so far{trouble}", self.samples)
    }
}

impl Listening {
    pub fn new(ranks: Vec<Rank>, told: Told) -> Self {
        Self {
            units: vec![None; ranks.len()],
            ranks,
            told,
            looks: None,
            counts: false,
            reading: None,
            samples: 0,
            failed: 0,
            trouble: None,
        }
    }

    /// Whether its rings are to be read now.
    pub fn is_due(&self, now: Nanos) -> bool {
        self.reading.is_none() && self.looks.as_ref().is_none_or(|it| it.is_over(now))
    }

    /// Whether nothing was read yet, and so what is there is to be passed over.
    pub fn is_new(&self) -> bool {
        self.looks.is_none()
    }

    /// How long a look lasts.
    pub fn lasts(&self) -> Nanos {
        self.looks.as_ref().map_or(Nanos::ZERO, Looks::lasts)
    }

    /// An errand reads the look that is over: the next look begins.
    pub fn begins(&mut self, errand: u64, now: Nanos) {
        let looks = self.looks.get_or_insert_with(|| Looks::new(now));
        self.reading = Some(Look {
            errand,
            since: looks.since(),
            counts: self.counts,
        });
        looks.begin(now);
        self.counts = self.told.is_sample_wanted();
    }

    /// Older collectives were passed over.
    pub fn skipped(&mut self) {
        self.reading = None;
    }

    /// A look has shown no iteration; why, in words. Returns whether the job is to be left alone.
    pub fn fails(&mut self, hub: &mut Hub, now: Nanos, why: &Failure) -> bool {
        self.reading = None;
        let Failure::Nothing(why) = why else {
            // A job that waits, as for its data, does no harm.
            self.trouble = Some("its ranks have run no collectives of late".to_owned());
            return false;
        };
        self.failed += 1;
        if self.looks.as_mut().is_some_and(|it| it.fails(now)) {
            tell_of_none(hub, &self.ranks, WAY.name, why);
        }
        self.trouble = Some(why.clone());
        self.failed >= PATIENCE
    }

    /// Hands a look to the core, as hooks do: the iterations' times, and the arrivals of the last one if one of so many
    /// is wanted and caps have not moved since the look began.
    pub fn takes(&mut self, hub: &mut Hub, sample: Sample) {
        let (Some(look), Some(looks)) = (self.reading.take(), self.looks.as_mut()) else {
            return;
        };
        (self.failed, self.trouble) = (0, None);
        let last = looks.hear(sample.began, sample.took(), sample.iterations());
        let settled = look.counts && is_wanted_still(hub, &self.ranks, &self.told, look.since);
        let directive = self.told.directive;
        let is_sample = settled && looks.samples(last, directive.first, directive.period);
        // Rings are written all the time: no iteration is slower than others by that.
        sample.hand_over(hub, &mut self.ranks, last, false, is_sample);
        self.samples += u64::from(is_sample);
    }
}
