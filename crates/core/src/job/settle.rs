//! When samples count: once earlier changes of caps have taken effect, and not before.

use litd_units::Nanos;

use crate::config::{Cooling, Settle};
use crate::core::{Core, seconds};
use crate::job::Job;
use crate::store::Store;

/// The fitted time stays within these multiples of the configured one.
const BOUNDS: (f64, f64) = (0.25, 2.0);

impl Cooling {
    /// For how long a cap's effect is awaited, in seconds.
    fn usual(self) -> f64 {
        match self {
            Self::Air => 60.0,
            Self::Liquid => 20.0,
        }
    }
}

impl Settle {
    /// The configured time, in seconds.
    fn base(&self) -> f64 {
        self.seconds.unwrap_or_else(|| self.cooling.usual())
    }
}

/// When a job's caps moved last.
#[derive(Debug, Clone, Copy)]
struct Moved {
    /// When the caps will have taken effect.
    until: Nanos,
    /// The latest iteration that any rank had reported by then.
    iteration: u64,
}

/// Whether a job's last caps have taken effect.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Settling {
    /// When they moved; `None`: never.
    moved: Option<Moved>,
    /// Whether the job's hooks are told to profile nothing meanwhile.
    sleeps: bool,
}

impl Settling {
    /// Caps have moved, and the effect is there `until` then; `iteration` is the latest that any rank has reported.
    fn moved(&mut self, now: Nanos, until: Nanos, iteration: u64) {
        self.moved = Some(Moved { until, iteration });
        self.sleeps = until > now;
    }

    /// Whether hooks are told to profile nothing.
    pub fn sleeps(&self) -> bool {
        self.sleeps
    }

    /// Hooks may profile again if the caps have settled by now. Returns whether they had been told not to.
    fn wakes(&mut self, now: Nanos) -> bool {
        let wakes = self.sleeps && self.left(now).is_none();
        self.sleeps &= !wakes;
        wakes
    }

    /// Whether an iteration that ended at `at` and took `duration` was run wholly after the caps had settled.
    pub fn is_over(&self, config: &Settle, iteration: u64, at: Nanos, duration: Nanos) -> bool {
        let first = self.first(config.iterations);
        let began = at - duration;
        self.moved.is_none_or(|moved| began >= moved.until)
            && first.is_none_or(|first| iteration >= first)
    }

    /// For how long no sample counts yet.
    pub fn left(&self, now: Nanos) -> Option<Nanos> {
        let until = self.moved.map(|moved| moved.until);
        until.filter(|&until| until > now).map(|until| until - now)
    }

    /// The first iteration that counts, where so many after the move don't.
    pub fn first(&self, iterations: u64) -> Option<u64> {
        self.moved
            .map(|moved| moved.iteration.saturating_add(iterations))
    }
}

impl<S: Store> Core<S> {
    /// A device's cap has moved: the jobs that it affects wait for the effect.
    pub(crate) fn cap_settles(&mut self, device: usize) {
        for name in self.jobs.that(|job| job.devices().contains(&device)) {
            let Some(job) = self.jobs.get(&name) else {
                continue;
            };
            let until = self.now() + seconds(self.settle_seconds(job));
            let iteration = job.ranks.iteration();
            if let Some(job) = self.jobs.get_mut(&name) {
                job.settling.moved(self.out.now(), until, iteration);
            }
            self.tell_hooks(&name);
        }
    }

    /// How long the caps of a job take to have their effect: as its slowest GPU shows, within bounds.
    pub(crate) fn settle_seconds(&self, job: &Job) -> f64 {
        let config = &self.config.settle;
        let base = config.base();
        if !config.fit {
            return base;
        }
        let units = job.gpus().filter_map(|device| self.devices.get(device));
        let slowest = units
            .map(|unit| unit.readings.settles().unwrap_or(base))
            .fold(0.0, f64::max);
        slowest.clamp(base * BOUNDS.0, base * BOUNDS.1)
    }

    /// Jobs whose caps have settled are sampled again.
    pub(crate) fn check_settled(&mut self) {
        let now = self.now();
        let jobs = self.jobs.values_mut();
        let awake = jobs.filter_map(|job| job.settling.wakes(now).then(|| job.name.clone()));
        for name in awake.collect::<Vec<_>>() {
            self.tell_hooks(&name);
        }
    }
}
