//! Outputs of the daemon: effects in order, events for people, and counters.

use litd_api::{Counter, Events};
use litd_units::Nanos;

use crate::event::Effect;
use crate::rate::Bucket;
use crate::record::{Note, Record};

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
}

impl Outbox {
    /// No outputs yet; `now` and `unix_seconds` are the same moment.
    pub fn new(now: Nanos, unix_seconds: f64) -> Self {
        Self {
            now,
            effects: Vec::new(),
            record: Record::new(now, unix_seconds),
            refusals: Bucket::new(REFUSALS_PER_SECOND, now),
        }
    }

    /// Further outputs happen at this moment.
    pub fn at(&mut self, now: Nanos) {
        self.now = now;
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

    /// Errors by kind and back end.
    pub fn errors(&self) -> Vec<Counter> {
        self.record.errors()
    }

    /// Refusals by reason.
    pub fn refused(&self) -> Vec<Counter> {
        self.record.refusals()
    }
}
