//! The cost of measured iterations for a job's training, by its hooks' ticks, and the distance between them that
//! keeps it within a share of all time.
//!
//! Starting and stopping a profiler takes about as long whatever an iteration takes. On an H100 (torch 2.11, eight
//! small layers) that was 12 ms: nothing beside an iteration of a second, and as much again as one of 12 ms.

use std::collections::VecDeque;

use litd_units::Nanos;

/// How many iterations a median is taken over, so that it forgets what came before caps moved.
const KEPT: usize = 15;

/// With fewer iterations than this there is no median yet.
const ENOUGH: usize = 3;

/// The largest distance of measured iterations: a job that tells nonsense is still seen now and then.
const FURTHEST: u64 = 10_000;

/// Times of iterations, in seconds, and how much longer measured ones took.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overhead {
    plain: VecDeque<f64>,
    /// Compared with plain iterations of the same time, so that other causes of long iterations don't count.
    longer: VecDeque<f64>,
    /// By which share of a plain iteration a measured one takes longer; cached, because it is asked for at every
    /// event.
    of_one: Option<f64>,
    /// The newest measured iteration, and the most that any rank has told of it, because all ranks wait for the
    /// slowest.
    newest: Option<(u64, f64)>,
}

impl Overhead {
    /// Adds the time of an iteration that was not measured.
    pub fn plain(&mut self, duration: Nanos) {
        keep(&mut self.plain, duration.as_secs_f64());
    }

    /// Adds the time of a rank's measured iteration, and what measuring cost besides.
    pub fn measured(&mut self, iteration: u64, duration: Nanos, besides: Nanos) {
        let took = duration.as_secs_f64() + besides.as_secs_f64();
        match &mut self.newest {
            Some((newest, most)) if *newest == iteration => *most = most.max(took),
            Some((newest, _)) if *newest > iteration => {}
            newest => {
                let before = newest.replace((iteration, took));
                if let (Some((_, most)), Some(plain)) = (before, median(&self.plain)) {
                    keep(&mut self.longer, most - plain);
                    let longer = median(&self.longer).filter(|_| plain > 0.0);
                    self.of_one = longer.map(|longer| (longer / plain).max(0.0));
                }
            }
        }
    }

    /// By which share of a plain iteration a measured one takes longer; `None` before that is known.
    pub fn of_one(&self) -> Option<f64> {
        self.of_one
    }

    /// How far apart measured iterations are to be where they are wanted every `period`: a power of two times that, so
    /// that measuring takes `share` of all time at most.
    pub fn spaced(&self, period: u64, share: f64) -> u64 {
        let needed = self.of_one().map_or(0.0, |one| one / share);
        // A cast of what is no number, or too large, ends at a bound.
        let needed = (needed.ceil() as u64).min(FURTHEST);
        match period {
            0 => 0,
            period => period.saturating_mul(needed.div_ceil(period).max(1).next_power_of_two()),
        }
    }
}

fn keep(values: &mut VecDeque<f64>, value: f64) {
    values.push_back(value);
    if values.len() > KEPT {
        values.pop_front();
    }
}

fn median(values: &VecDeque<f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().collect();
    sorted.sort_by(f64::total_cmp);
    (sorted.len() >= ENOUGH).then(|| sorted[sorted.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: f64 = 0.01;

    fn millis(millis: f64) -> Nanos {
        Nanos((millis * 1e6) as i64)
    }

    /// A job of two ranks whose every tenth iteration is measured.
    fn job(iteration: f64, besides: f64) -> Overhead {
        let mut overhead = Overhead::default();
        for at in 0..100 {
            if at % 10 == 0 {
                overhead.measured(at, millis(iteration), millis(besides / 2.0));
                overhead.measured(at, millis(iteration), millis(besides));
            } else {
                overhead.plain(millis(iteration));
            }
        }
        overhead
    }

    #[test]
    fn a_profiler_as_long_as_an_iteration_runs_in_one_of_a_hundred_at_most() {
        assert_eq!(job(12.3, 11.6).spaced(10, SHARE), 160);
        assert_eq!(job(12.3, 11.6).spaced(1000, SHARE), 1000);
    }

    #[test]
    fn beside_a_long_iteration_it_changes_nothing() {
        assert_eq!(job(600.0, 11.6).spaced(10, SHARE), 10);
        assert_eq!(job(600.0, 0.0).spaced(1, SHARE), 1);
        assert_eq!(job(600.0, 0.0).spaced(0, SHARE), 0);
    }

    #[test]
    fn one_slow_iteration_is_no_measure_of_it() {
        let mut overhead = job(600.0, 1.0);
        overhead.measured(100, millis(60_000.0), millis(0.0));
        overhead.measured(110, millis(600.0), millis(1.0));
        assert_eq!(overhead.spaced(10, SHARE), 10);
    }

    #[test]
    fn iterations_that_become_shorter_are_no_overhead() {
        let mut overhead = job(600.0, 1.0);
        for _ in 0..15 {
            overhead.plain(millis(500.0));
        }
        assert_eq!(overhead.spaced(1, SHARE), 1);
    }

    #[test]
    fn before_three_were_measured_nothing_is_known() {
        let mut overhead = Overhead::default();
        overhead.plain(millis(10.0));
        for at in [0, 10, 20] {
            overhead.measured(at, millis(10.0), millis(10.0));
        }
        assert_eq!((overhead.of_one(), overhead.spaced(10, SHARE)), (None, 10));
    }

    #[test]
    fn what_a_job_tells_that_can_not_be_keeps_it_seen() {
        let extreme = Nanos(i64::MAX);
        let mut overhead = Overhead::default();
        for at in [5, 3, 9, u64::MAX - 1, u64::MAX] {
            overhead.plain(Nanos(1));
            overhead.measured(at, extreme, extreme);
        }
        assert!(overhead.spaced(10, SHARE) <= 2 * FURTHEST);
        assert!(overhead.spaced(u64::MAX, SHARE) == u64::MAX);
        let mut nothing = Overhead::default();
        for at in 0..9 {
            nothing.plain(Nanos(0));
            nothing.measured(at, Nanos(0), Nanos(0));
        }
        assert_eq!(nothing.spaced(10, SHARE), 10);
    }
}
