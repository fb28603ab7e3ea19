//! The power that a plan's clocks (Perseus, section 4) need of a GPU's cap, and whether the GPU holds the clocks.
//!
//! litd sees a plan only as the clocks that a rank asks for, instruction by instruction. The power at a clock is
//! learned from the GPU's readings under it: the most of the last readings, and 5 % more, because a sensor reports a
//! mean over some time, and a cap bounds power over shorter times. Until enough readings have come no cap is lowered.
//!
//! In each reading, the clock asked for divided by the clock read tells how late the GPU is. As long as litd can still
//! give it watts this is not reported; after that it is, for the planner (`degree` in the status).

use std::collections::VecDeque;

use litd_api::Limiter;
use litd_power::Reading;
use litd_units::{Hertz, Nanos, Watts};

use crate::devices::limits::limiter;

/// A clock that was not locked for so long is no longer part of the plan.
const KEEP: Nanos = Nanos(60_000_000_000);

/// How many clocks are kept apart; a plan has a few for each kind of computation.
const MOST: usize = 24;

/// How many readings, in iterations of their own, make a clock's power known.
const ENOUGH: u32 = 10;

/// How many readings are kept; older ones are forgotten, because the power at a clock follows the temperature.
const WINDOW: u32 = 60;

/// The margin of a cap above the most power that was measured.
const MARGIN: f64 = 0.05;

/// A cap that did not sustain a clock is too low by at least this.
const SHORT: f64 = 0.02;

/// A clock below the lock by less than this is a step of the driver's.
const STEP: f64 = 0.02;

/// How long a driver takes to change the clock that it reports.
const SETTLES: Nanos = Nanos(10_000_000);

/// How many readings say how late a GPU is.
const READINGS: usize = 10;

/// How many readings in a row a GPU that more watts might help has to be late before it counts as late.
const PATIENCE: u32 = 60;

/// A change of the degree by less is not reported.
const CHANGE: f64 = 0.02;

/// The readings under one clock.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Shown {
    /// Readings in iterations of their own, in which the clock was held.
    count: u32,
    /// The most power.
    power: Watts,
    /// The highest cap under which the clock was not held for want of power.
    short: Watts,
}

/// A clock of the plan.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Known {
    clock: Hertz,
    used: Nanos,
    before: Shown,
    now: Shown,
}

impl Known {
    /// The clock was held, at this power.
    fn held(&mut self, power: Watts, counts: bool) {
        if self.now.count >= WINDOW {
            (self.before, self.now) = (self.now, Shown::default());
        }
        self.now.count += u32::from(counts);
        self.now.power = self.now.power.max(power);
    }

    /// The clock was not held under this cap: the power that it needs is unknown again, above this cap.
    fn missed(&mut self, cap: Watts) {
        (self.before.count, self.now.count) = (0, 0);
        self.now.short = self.now.short.max(cap);
    }

    /// The cap that the clock needs, where known.
    fn needs(&self) -> Option<Watts> {
        let count = self.before.count + self.now.count;
        let power = self.before.power.max(self.now.power) * (1.0 + MARGIN);
        let short = self.before.short.max(self.now.short) * (1.0 + SHORT);
        (count >= ENOUGH).then_some(power.max(short))
    }
}

/// The caps that a plan's clocks need.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Needs {
    /// There is no plan.
    Nothing,
    /// Not measured yet: the cap must not be lowered.
    Unknown,
    /// At least this cap.
    Cap(Watts),
}

/// Whether a GPU holds its clocks.
#[derive(Debug, Clone, PartialEq)]
struct Pace {
    /// Lock divided by clock, of the last readings.
    ratios: VecDeque<f64>,
    /// For the same readings: whether more watts could not have helped.
    helpless: VecDeque<bool>,
    /// Readings in which the mean was late, in a row.
    late_for: u32,
    degree: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            ratios: VecDeque::new(),
            helpless: VecDeque::new(),
            late_for: 0,
            degree: 1.0,
        }
    }
}

/// A reading of a GPU whose clocks are locked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    /// The locked clock.
    pub lock: Hertz,
    /// When it was locked.
    pub since: Nanos,
    /// When the reading was asked for.
    pub asked: Nanos,
    /// The reading itself.
    pub reading: Reading,
    /// Whether the job is in another iteration than at the last reading.
    pub new_iteration: bool,
    /// Whether the GPU holds its highest permitted cap.
    pub at_ceiling: bool,
}

impl Look {
    /// Lock divided by clock: 1 for a GPU that holds it, `None` where that can't be said, as for an idle GPU.
    fn ratio(&self) -> Option<f64> {
        let clock = self.reading.clock.filter(|clock| clock.0 > 0.0)?;
        if self.asked < self.since + SETTLES {
            return None;
        }
        if clock.0 >= self.lock.0 * (1.0 - STEP) {
            return Some(1.0);
        }
        let late = self.is_power_limited() || self.reading.throttle.is_some();
        late.then_some(self.lock.0 / clock.0)
    }

    fn is_power_limited(&self) -> bool {
        matches!(limiter(&self.reading), Limiter::Power | Limiter::Enforced)
    }
}

/// Measurements of a plan's clocks on a GPU.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Planned {
    clocks: Vec<Known>,
    pace: Pace,
}

impl Planned {
    /// A clock is locked.
    pub fn lock(&mut self, clock: Hertz, now: Nanos) {
        self.clocks.retain(|known| now < known.used + KEEP);
        if let Some(known) = self.clocks.iter_mut().find(|known| known.clock == clock) {
            known.used = now;
            return;
        }
        if self.clocks.len() >= MOST {
            let oldest = (0..self.clocks.len()).min_by_key(|&at| self.clocks[at].used);
            oldest.map(|at| self.clocks.swap_remove(at));
        }
        self.clocks.push(Known {
            clock,
            used: now,
            before: Shown::default(),
            now: Shown::default(),
        });
    }

    /// A locked GPU was read. Answers whether its degree has changed.
    pub fn look(&mut self, look: &Look) -> bool {
        let (cap, ratio) = (look.reading.cap, look.ratio());
        let late = ratio.is_some_and(|ratio| ratio > 1.0);
        let hot = look.reading.throttle.is_some();
        if let Some(known) = self.clocks.iter_mut().find(|it| it.clock == look.lock) {
            known.used = known.used.max(look.asked);
            let real = |power: &Watts| power.is_finite() && *power > Watts::ZERO;
            match look.reading.power.filter(real) {
                _ if late && !hot && look.is_power_limited() && cap.is_finite() => {
                    known.missed(cap);
                }
                Some(power) if ratio == Some(1.0) => known.held(power, look.new_iteration),
                _ => {}
            }
        }
        match ratio {
            Some(ratio) => self.pace.add(ratio, hot || look.at_ceiling),
            None => false,
        }
    }

    /// No rank asks for clocks any more. Answers whether its degree has changed.
    pub fn end(&mut self) -> bool {
        let was = std::mem::take(self);
        was.pace.degree > 1.0
    }

    /// The caps that the clocks of the last minute need. A clock without measurements needs no more than a higher
    /// one with them.
    pub fn needs(&self, now: Nanos) -> Needs {
        let mut most = Needs::Nothing;
        for known in self.clocks.iter().filter(|known| now < known.used + KEEP) {
            let higher = self.clocks.iter().filter(|it| it.clock >= known.clock);
            let Some(least) = higher.filter_map(Known::needs).reduce(Watts::min) else {
                return Needs::Unknown;
            };
            most = match most {
                Needs::Cap(cap) => Needs::Cap(cap.max(least)),
                _ => Needs::Cap(least),
            };
        }
        most
    }

    /// By which factor the GPU is slower than its plan, in spite of all that litd can do; 1: not slower.
    pub fn degree(&self) -> f64 {
        self.pace.degree
    }
}

impl Pace {
    fn add(&mut self, ratio: f64, helpless: bool) -> bool {
        self.ratios.push_back(ratio);
        self.helpless.push_back(helpless);
        if self.ratios.len() > READINGS {
            self.ratios.pop_front();
            self.helpless.pop_front();
        }
        if self.ratios.len() < READINGS {
            return false;
        }
        let mean = self.ratios.iter().sum::<f64>() / READINGS as f64;
        let late = mean > 1.0 + CHANGE;
        self.late_for = if late { self.late_for + 1 } else { 0 };
        let blocked = self.helpless.iter().all(|&it| it) || self.late_for >= PATIENCE;
        let told = self.degree > 1.0;
        let before = self.degree;
        if late && (blocked || told) {
            // Whole hundredths: a planner's table has no finer ones.
            let new = (mean * 100.0).round() / 100.0;
            if (new - before).abs() >= CHANGE - 1e-9 {
                self.degree = new;
            }
        } else if self.ratios.iter().all(|&ratio| ratio <= 1.0) {
            self.degree = 1.0;
        }
        self.degree != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: Hertz = Hertz(1.2e9);

    fn look(second: i64, clock: f64, power: f64, cap: f64) -> Look {
        Look {
            lock: F,
            since: Nanos(0),
            asked: Nanos((second + 1) * 1_000_000_000),
            reading: Reading {
                cap: Watts(cap),
                power: Some(Watts(power)),
                clock: Some(Hertz(clock * 1e6)),
                power_limited: Some(power >= cap),
                ..Reading::default()
            },
            new_iteration: true,
            at_ceiling: false,
        }
    }

    fn locked() -> Planned {
        let mut planned = Planned::default();
        planned.lock(F, Nanos(0));
        planned
    }

    #[test]
    fn nothing_is_taken_from_a_clock_that_is_not_known() {
        let mut planned = locked();
        let now = Nanos(20_000_000_000);
        for second in 0..i64::from(ENOUGH) {
            assert_eq!(planned.needs(now), Needs::Unknown, "{second}");
            planned.look(&look(second, 1200.0, 400.0, 700.0));
        }
        assert_eq!(
            planned.needs(now),
            Needs::Cap(Watts(400.0) * (1.0 + MARGIN))
        );
        // A lower clock needs no more than a known one; a higher clock is unknown.
        planned.lock(Hertz(1.0e9), now);
        assert_eq!(
            planned.needs(now),
            Needs::Cap(Watts(400.0) * (1.0 + MARGIN))
        );
        planned.lock(Hertz(1.4e9), now);
        assert_eq!(planned.needs(now), Needs::Unknown);
        assert_eq!(planned.needs(Nanos(now.0 + KEEP.0)), Needs::Nothing);
    }

    #[test]
    fn readings_of_a_job_that_stands_still_prove_nothing() {
        let mut planned = locked();
        for second in 0..50 {
            let mut idle = look(second, 1200.0, 90.0, 700.0);
            idle.new_iteration = false;
            planned.look(&idle);
        }
        assert_eq!(planned.needs(Nanos(50_000_000_000)), Needs::Unknown);
    }

    #[test]
    fn a_cap_that_was_too_low_is_never_enough() {
        let mut planned = locked();
        for second in 0..20 {
            planned.look(&look(second, 1200.0, 400.0, 500.0));
        }
        let now = Nanos(20_000_000_000);
        assert_eq!(
            planned.needs(now),
            Needs::Cap(Watts(400.0) * (1.0 + MARGIN))
        );
        planned.look(&look(20, 1100.0, 500.0, 500.0));
        assert_eq!(planned.needs(now), Needs::Unknown);
        for second in 21..31 {
            planned.look(&look(second, 1200.0, 410.0, 520.0));
        }
        assert_eq!(planned.needs(now), Needs::Cap(Watts(500.0) * 1.02));
    }

    #[test]
    fn what_was_drawn_long_ago_is_forgotten() {
        let mut planned = locked();
        planned.look(&look(0, 1200.0, 600.0, 700.0));
        for second in 1..3 * i64::from(WINDOW) {
            planned.look(&look(second, 1200.0, 400.0, 700.0));
        }
        let now = Nanos(3 * i64::from(WINDOW) * 1_000_000_000);
        assert_eq!(
            planned.needs(now),
            Needs::Cap(Watts(400.0) * (1.0 + MARGIN))
        );
    }

    #[test]
    fn late_at_its_ceiling_it_is_reported_and_later_on_it_is_not() {
        let mut planned = locked();
        let at_ceiling = |second| Look {
            at_ceiling: true,
            ..look(second, 1000.0, 700.0, 700.0)
        };
        let changes: Vec<bool> = (0..20).map(|at| planned.look(&at_ceiling(at))).collect();
        assert_eq!(changes.iter().position(|&it| it), Some(READINGS - 1));
        assert_eq!(changes.iter().filter(|&&it| it).count(), 1);
        assert_eq!(planned.degree(), 1.2);
        for second in 20..40 {
            planned.look(&look(second, 1200.0, 500.0, 700.0));
        }
        assert_eq!(planned.degree(), 1.0);
    }

    #[test]
    fn one_that_watts_may_help_has_time_to_get_them() {
        let mut planned = locked();
        let mut told = (0..200).map(|at| planned.look(&look(at, 1000.0, 600.0, 600.0)));
        let first = told.position(|it| it);
        assert_eq!(first, Some(READINGS - 1 + PATIENCE as usize - 1));
    }

    #[test]
    fn an_idle_gpu_is_not_late() {
        let mut planned = locked();
        for second in 0..200 {
            assert!(!planned.look(&look(second, 300.0, 80.0, 700.0)));
        }
        assert_eq!(planned.degree(), 1.0);
    }

    #[test]
    fn odd_readings_change_nothing() {
        let mut planned = locked();
        for second in 0..100 {
            let mut odd = look(second, f64::NAN, f64::NAN, f64::NAN);
            odd.reading.power_limited = None;
            odd.at_ceiling = true;
            planned.look(&odd);
            odd.reading.clock = Some(Hertz(-1.0));
            planned.look(&odd);
        }
        assert_eq!(planned.needs(Nanos(100_000_000_000)), Needs::Unknown);
        assert_eq!(planned.degree(), 1.0);
    }
}
