//! Outputs of the daemon: effects in order, the baseline, events for people, and counters.

use litd_api::{Events, Totals};
use litd_units::Nanos;

use crate::baseline::Baseline;
use crate::core::Core;
use crate::event::Effect;
use crate::rate::Bucket;
use crate::record::{Note, Record};
use crate::store::Store;

/// How many refusals a second are logged; all are counted.
const REFUSALS_PER_SECOND: f64 = 5.0;

/// All outputs.
#[derive(Debug)]
pub(crate) struct Outbox {
    now: Nanos,
    effects: Vec<Effect>,
    record: Record,
    /// How often refusals are logged.
    refusals: Bucket,
    /// The baseline that was published last.
    baseline: Baseline,
    /// Writes that drivers have confirmed.
    writes: u64,
    /// Changes of a job's caps.
    adjustments: u64,
    /// Iterations whose times ranks have told.
    ticks: u64,
}

impl Outbox {
    /// No outputs yet; `now` and `unix_seconds` are the same moment.
    pub fn new(now: Nanos, unix_seconds: f64) -> Self {
        Self {
            now,
            effects: Vec::new(),
            record: Record::new(now, unix_seconds),
            refusals: Bucket::new(REFUSALS_PER_SECOND, now),
            baseline: Baseline::default(),
            writes: 0,
            adjustments: 0,
            ticks: 0,
        }
    }

    /// Further outputs happen at this moment, unless it has been later before.
    pub fn at(&mut self, now: Nanos) {
        self.now = self.now.max(now);
    }

    /// The moment of outputs.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The wall clock reads `unix_seconds` at `now`.
    pub fn set_clock(&mut self, now: Nanos, unix_seconds: f64) {
        self.record.set_clock(now, unix_seconds);
    }

    /// Seconds since 1970.
    pub fn unix_seconds(&self) -> f64 {
        self.record.unix_seconds(self.now)
    }

    /// Adds an effect after all earlier ones.
    pub fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Takes the effects, in order; the caller carries them out.
    pub fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The baseline that was published last.
    pub fn baseline(&self) -> &Baseline {
        &self.baseline
    }

    /// Publishes a new baseline, before any cap is written under it.
    pub fn publish(&mut self, baseline: Baseline) {
        self.baseline = baseline.clone();
        self.push(Effect::Baseline(baseline));
    }

    /// Records an event and has it logged.
    pub fn note(&mut self, note: Note) {
        let event = self.record.add(self.now, note);
        self.effects.push(Effect::Log(event));
    }

    /// Counts an error of a back end, or of the daemon's own disk and law (`backend` empty).
    pub fn error(&mut self, kind: &'static str, backend: &str) {
        self.record.error(kind, backend);
    }

    /// Counts a refusal.
    pub fn refuse(&mut self, reason: &'static str) {
        self.record.refuse(reason);
    }

    /// Counts a refusal, and logs it at a limited rate.
    pub fn refuse_noted(&mut self, reason: &'static str, note: impl FnOnce() -> Note) {
        self.record.refuse(reason);
        if self.refusals.take(self.now) {
            self.note(note());
        }
    }

    /// Events after a number.
    pub fn events(&self, after: u64) -> Events {
        self.record.after(after)
    }

    /// Counts a write that a driver has confirmed.
    pub fn count_write(&mut self) {
        self.writes += 1;
    }

    /// Counts a change of a job's caps.
    pub fn count_adjustment(&mut self) {
        self.adjustments += 1;
    }

    /// Counts an iteration whose time a rank has told.
    pub fn count_tick(&mut self) {
        self.ticks += 1;
    }

    /// All counters; `frames` have come from hooks.
    pub fn totals(&self, frames: u64) -> Totals {
        Totals {
            writes: self.writes,
            adjustments: self.adjustments,
            frames,
            ticks: self.ticks,
            errors: self.record.errors(),
            refused: self.record.refusals(),
        }
    }
}

impl<S: Store> Core<S> {
    /// The moment of the event that is being handled.
    pub(crate) fn now(&self) -> Nanos {
        self.out.now()
    }

    /// Records an event and has it logged. What is about a job was caused by its user, or its pod, unless the note says
    /// otherwise.
    pub(crate) fn note(&mut self, note: Note) {
        self.out.note(self.jobs.blame(note, &self.hooks));
    }
}

#[cfg(test)]
mod tests {
    use litd_api::EventKind;

    use super::*;
    use crate::baseline::Lower;

    fn second(count: i64) -> Nanos {
        Nanos(count * 1_000_000_000)
    }

    #[test]
    fn effects_leave_in_order_and_once() {
        let mut out = Outbox::new(second(0), 0.0);
        out.push(Effect::Alive);
        out.note(Note::info(EventKind::Daemon, "started"));
        let lower = Lower::ForBudget;
        let baseline = Baseline {
            lower,
            devices: Vec::new(),
        };
        out.publish(baseline.clone());
        let effects = out.take();
        assert!(
            matches!(&effects[..], [Effect::Alive, Effect::Log(_), Effect::Baseline(told)] if *told == baseline)
        );
        assert_eq!(*out.baseline(), baseline);
        assert!(out.take().is_empty());
        assert_eq!(out.events(0).events.len(), 1);
    }

    #[test]
    fn all_refusals_are_counted_and_a_few_a_second_are_logged() {
        let mut out = Outbox::new(second(0), 0.0);
        let flood = |out: &mut Outbox| {
            for _ in 0..100 {
                out.refuse_noted("busy", || Note::warning(EventKind::Job, "sent away"));
            }
            out.take().len() as f64
        };
        assert!(flood(&mut out) < 50.0);
        assert_eq!(flood(&mut out), 0.0);
        out.at(second(1));
        assert_eq!(flood(&mut out), REFUSALS_PER_SECOND);
        assert_eq!(out.totals(0).refused[0].count, 300);
    }

    #[test]
    fn each_counter_counts_its_own() {
        let mut out = Outbox::new(second(0), 0.0);
        out.count_write();
        out.count_adjustment();
        out.count_adjustment();
        for _ in 0..3 {
            out.count_tick();
        }
        out.error("journal", "");
        let told = out.totals(4);
        let counts = (told.writes, told.adjustments, told.ticks, told.frames);
        assert_eq!(counts, (1, 2, 3, 4));
        assert_eq!((told.errors.len(), told.refused.len()), (1, 0));
    }
}
