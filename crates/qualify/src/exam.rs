//! The examination of one device: which operation comes next, and what each answer means.
//!
//! ```text
//! Watching ─> Lowering ─> Landing ─> Lowered ─> Raising ─> Rising ─> Asking ─> Locking ─> Freeing
//!     │           │          │          │          │         │         │          │         │
//!     └───────────┴──────────┴──────────┴──────────┴────> Ended <──────┴──────────┴─────────┘
//! ```
//!
//! `Landing` and `Rising` wait for a cap that the driver says is set and that is not read yet; clocks are locked
//! only on demand. From `Landing` on the way to `Ended` leads through a reading of the cap found, or of a cap that
//! somebody else has set, or ends as [`Ending::Owed`].

use litd_power::{ClockRange, DeviceKind, Operation, PowerError, Reading, Reply};
use litd_units::{Hertz, Nanos, Seconds, Watts};

use crate::report::{Check, Measured, Topic, Verdict};
use crate::sensors::{self, Sample};
use crate::target::{Facts, STEP, target};

/// How often the cap found is written before that is left to the undo journal.
const TRIES: u32 = 3;

/// A cap that is read right after a write and is no farther from what was written is what the driver has made of it.
const ROUNDING: Watts = Watts(50.0);

/// Power within the cap plus this much has followed.
const SLACK: Watts = Watts(2.0);

/// Readings and counters that differ by less than this share agree.
const AGREE: f64 = 0.2;

/// How long things take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// How long sensors are watched before anything is written.
    pub watch: Nanos,
    /// How long a lower cap is held at least.
    pub hold: Nanos,
    /// How long a cap may take to be read, and power to follow it.
    pub follow: Nanos,
    /// The pause between two readings.
    pub poll: Nanos,
    /// The share of the highest clock to lock; `None`: clocks are left alone, because a lock that somebody has set
    /// before can't be read, and would be lost.
    pub clock_share: Option<f64>,
}

/// The shell's next task.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Have the device do this, and hand its reply to [`Exam::answered`].
    Do(Operation),
    /// Wait.
    Rest(Nanos),
    /// The examination has ended.
    End(Ending),
}

/// How a device was left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ending {
    /// No cap was written.
    Untouched,
    /// The cap found was read after the last write, and no clock is locked.
    Returned,
    /// The device holds a cap that somebody else has set, which is left alone.
    Foreign(Watts),
    /// The device may hold another cap than the one found, or a locked clock: the undo journal has to be obeyed.
    Owed,
}

/// Why an examination is cut short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// A signal, the time limit, a job.
    Run(String),
    /// A fault of this very device: who uses it can't be told, or a write can't be put on record.
    Device(String),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Reads the sensors.
    Watching { until: Nanos },
    /// The lower cap is to be written.
    Lowering,
    /// The lower cap was written and is not read yet.
    Landing { since: Nanos },
    /// The device holds the lower cap.
    Lowered { since: Nanos },
    /// The cap found is to be written.
    Raising { tries: u32 },
    /// The cap found was written, or should be there, and is not read yet.
    Rising { since: Nanos, tries: u32 },
    /// The highest clock is to be asked for.
    Asking,
    /// The clock is to be locked.
    Locking { clock: Hertz },
    /// The clock is to be freed.
    Freeing { tries: u32 },
    /// The end.
    Ended(Ending),
}

/// The examination of one device.
#[derive(Debug, Clone)]
pub struct Exam {
    facts: Facts,
    pace: Pace,
    found: Watts,
    target: Watts,
    phase: Phase,
    /// Whether a pause comes first.
    rests: bool,
    samples: Vec<Sample>,
    checks: Vec<Check>,
    measured: Measured,
    /// Caps that were asked for and not read: the device may take them late.
    late: Vec<Watts>,
    /// The cap that the driver has made of the lower one, where that is another.
    made: Option<Watts>,
    stopped: bool,
}

impl Exam {
    /// Begins. A device that must not be written is only watched.
    #[must_use]
    pub fn begin(facts: Facts, pace: Pace, now: Nanos) -> Self {
        let found = facts.reading.map_or(Watts::ZERO, |it| it.cap);
        Self {
            found,
            target: target(&facts).unwrap_or(found),
            facts,
            pace,
            phase: Phase::Watching {
                until: now + pace.watch,
            },
            rests: false,
            samples: Vec::new(),
            checks: Vec::new(),
            measured: Measured::default(),
            late: Vec::new(),
            made: None,
            stopped: false,
        }
    }

    /// The checks so far, and the measurements.
    #[must_use]
    pub fn outcome(&self) -> (&[Check], Measured) {
        (&self.checks, self.measured)
    }

    /// Caps that the device may still take although they were not read: the undo journal has to keep its entry.
    #[must_use]
    pub fn may_land(&self) -> &[Watts] {
        &self.late
    }

    /// The next step.
    pub fn next(&mut self, now: Nanos) -> Step {
        if std::mem::take(&mut self.rests) {
            return Step::Rest(self.pace.poll);
        }
        self.pass(now);
        Step::Do(match self.phase {
            Phase::Watching { .. }
            | Phase::Landing { .. }
            | Phase::Lowered { .. }
            | Phase::Rising { .. } => Operation::Read,
            Phase::Lowering => Operation::Set(self.target),
            Phase::Raising { .. } => Operation::Set(self.found),
            Phase::Asking => Operation::HighestClock,
            Phase::Locking { clock } => Operation::Clocks(Some(ClockRange {
                lowest: clock,
                highest: clock,
            })),
            Phase::Freeing { .. } => Operation::Clocks(None),
            Phase::Ended(ending) => return Step::End(ending),
        })
    }

    /// Phases end by time alone here.
    fn pass(&mut self, now: Nanos) {
        match self.phase {
            // However slow a driver is, one reading is waited for.
            Phase::Watching { until } if now >= until && !self.samples.is_empty() => self.watched(),
            Phase::Landing { since } if now - since >= self.pace.follow => {
                self.late.push(self.target);
                let text = format!(
                    "the driver reported that {} is set, but its cap still read {} {:.1} s later",
                    self.target,
                    self.found,
                    (now - since).as_secs_f64()
                );
                self.note(Topic::Lower, Verdict::Failed, text);
                self.phase = Phase::Rising {
                    since: now,
                    tries: 0,
                };
            }
            Phase::Lowered { since } if self.is_held_enough(now, since) => {
                self.judge_power(now, since);
                self.phase = Phase::Raising { tries: 0 };
            }
            Phase::Rising { since, tries } if now - since >= self.pace.follow => {
                self.retry(tries);
            }
            _ => {}
        }
    }

    /// The reply to the operation that [`Exam::next`] asked for at `asked`.
    pub fn answered(&mut self, asked: Nanos, now: Nanos, reply: &Reply) {
        match (self.phase, reply) {
            (Phase::Ended(_), _) => {}
            (_, Reply::Read(Ok(reading))) => self.read(asked, now, reading),
            (_, Reply::Read(Err(error))) => self.unread(error),
            (Phase::Lowering, Reply::Set(outcome)) => self.lowered(asked, now, outcome),
            (_, Reply::Set(outcome)) => self.raised(asked, now, outcome),
            (_, Reply::HighestClock(outcome)) => self.told_clock(outcome),
            (Phase::Locking { clock }, Reply::Clocks(outcome)) => self.locked(clock, outcome),
            (_, Reply::Clocks(outcome)) => self.freed(outcome),
            _ => {}
        }
    }

    /// The device has not answered in time: its thread hangs in the driver, so nothing more can be asked.
    pub fn silent(&mut self, after: Nanos) {
        let text = format!(
            "its driver has not answered for {:.1} s",
            after.as_secs_f64()
        );
        self.note(self.topic(), Verdict::Failed, text);
        if self.phase == Phase::Lowering {
            self.late.push(self.target);
        }
        self.phase = Phase::Ended(match self.phase {
            Phase::Watching { .. } => Ending::Untouched,
            Phase::Asking => Ending::Returned,
            _ => Ending::Owed,
        });
    }

    /// Cuts the examination short: what was written is undone, and nothing else is written.
    pub fn stop(&mut self, why: &Stop) {
        self.stopped = true;
        self.rests = false;
        let (verdict, text) = match why {
            Stop::Run(text) => (Verdict::NotTried, text),
            Stop::Device(text) => (Verdict::Failed, text),
        };
        self.phase = match self.phase {
            Phase::Watching { .. } | Phase::Lowering => {
                self.note(Topic::Lower, verdict, format!("not written: {text}"));
                Phase::Ended(Ending::Untouched)
            }
            Phase::Landing { .. } => {
                self.late.push(self.target);
                self.note(Topic::Lower, Verdict::NotShown, text.clone());
                Phase::Raising { tries: 0 }
            }
            Phase::Lowered { .. } => Phase::Raising { tries: 0 },
            Phase::Asking | Phase::Locking { .. } => {
                self.note(Topic::Clocks, verdict, text.clone());
                Phase::Ended(Ending::Returned)
            }
            other => other,
        };
    }

    fn note(&mut self, topic: Topic, verdict: Verdict, text: impl Into<String>) {
        let text = text.into();
        self.checks.push(Check {
            topic,
            verdict,
            text,
        });
    }

    /// The topic of the present phase.
    fn topic(&self) -> Topic {
        match self.phase {
            Phase::Watching { .. } => Topic::Reading,
            Phase::Lowering | Phase::Landing { .. } | Phase::Lowered { .. } => Topic::Lower,
            Phase::Raising { .. } | Phase::Rising { .. } => Topic::Back,
            Phase::Asking | Phase::Locking { .. } | Phase::Freeing { .. } | Phase::Ended(_) => {
                Topic::Clocks
            }
        }
    }

    fn read(&mut self, asked: Nanos, now: Nanos, reading: &Reading) {
        self.rests = true;
        let cap = reading.cap;
        match self.phase {
            Phase::Watching { .. } if !cap.is_same_cap(self.found) => {
                let text = format!(
                    "its cap changed from {} to {cap} while litd wrote nothing, so litd does not write to it",
                    self.found
                );
                self.note(Topic::Reading, Verdict::Failed, text);
                self.phase = Phase::Ended(Ending::Untouched);
            }
            Phase::Watching { .. } => {
                let at = Nanos(asked.0.midpoint(now.0));
                let reading = *reading;
                self.samples.push(Sample { at, reading });
            }
            Phase::Landing { since } if cap.is_same_cap(self.target) => {
                self.measured.lag = Some(seconds(since, now));
                self.phase = Phase::Lowered { since };
            }
            Phase::Landing { .. } if cap.is_same_cap(self.found) => {}
            Phase::Landing { .. } => self.odd(cap),
            Phase::Lowered { since } if cap.is_same_cap(self.target) => {
                self.follow(now, since, reading)
            }
            Phase::Lowered { .. } => self.strayed(reading),
            Phase::Rising { since, .. } if cap.is_same_cap(self.found) => self.is_back(since, now),
            // The lower cap has come late. Where the cap found was written after it, that may be late as well.
            Phase::Rising { tries: 0, .. } if self.is_near(cap) => self.retry(0),
            Phase::Rising { .. } if self.is_near(cap) => {}
            Phase::Rising { .. } => self.foreign(cap),
            _ => {}
        }
    }

    fn unread(&mut self, error: &PowerError) {
        self.rests = true;
        match self.phase {
            Phase::Watching { .. } => {
                self.note(Topic::Reading, Verdict::Failed, error.to_string());
                self.phase = Phase::Ended(Ending::Untouched);
            }
            Phase::Rising { tries, .. } => self.retry(tries),
            _ => {
                self.note(self.topic(), Verdict::Failed, error.to_string());
                self.phase = Phase::Raising { tries: 0 };
            }
        }
    }

    /// The sensors were watched: their checks, and whether the device is written.
    fn watched(&mut self) {
        let sensors = sensors::judge(&self.samples);
        self.measured.sensors = sensors;
        let last = self.samples.last().map(|it| it.reading);
        self.measured.temperature = last.and_then(|it| it.temperature);
        self.check_reading(last);
        match (sensors.power, sensors.power_period) {
            (None, _) => self.note(Topic::Sensor, Verdict::NotShown, "it has no power sensor"),
            (Some(power), None) => {
                let text =
                    format!("power stays at {power:.1}: neither period nor noise can be seen");
                self.note(Topic::Sensor, Verdict::NotShown, text);
            }
            (Some(power), Some(period)) => {
                let noise = sensors.noise.unwrap_or_default();
                let text = format!(
                    "{power:.1}, a new value every {:.0} ms, noise {noise:.1}",
                    period.0 * 1e3
                );
                self.note(Topic::Sensor, Verdict::Shown, text);
            }
        }
        self.check_energy();
        self.check_persistence(last);
        self.phase = match target(&self.facts) {
            Ok(_) => Phase::Lowering,
            Err(why) => {
                let text = format!("not written: {why}");
                // A driver that does not tell fails; a device that has no room below its cap does not.
                let verdict = match self.facts.range.and(self.facts.reading) {
                    Some(_) => Verdict::NotTried,
                    None => Verdict::Failed,
                };
                self.note(Topic::Lower, verdict, text);
                Phase::Ended(Ending::Untouched)
            }
        };
    }

    fn check_reading(&mut self, last: Option<Reading>) {
        let Some(reading) = last else {
            self.note(Topic::Reading, Verdict::Failed, "no reading came in time");
            return;
        };
        let mut text = format!("its cap stays at {} while nobody writes it", self.found);
        if let Some(enforced) = reading.enforced.filter(|it| *it < self.found) {
            text = format!("{text}; {enforced} is in force, by firmware or BMC");
        }
        if let Some(throttle) = reading.throttle {
            text = format!("{text}; it slows itself down now ({throttle:?})");
        }
        if self.facts.identity.read_back == litd_power::ReadBack::MayBeCached {
            text = format!(
                "{text}; its driver may report the last cap asked for instead of the one in force; only measured power proves it"
            );
        }
        self.note(Topic::Reading, Verdict::Shown, text);
    }

    fn check_energy(&mut self) {
        let sensors = self.measured.sensors;
        let (Some(power), Some(counted)) = (sensors.power, sensors.counted) else {
            let text = "no energy counter moved while it was watched";
            return self.note(Topic::Energy, Verdict::NotShown, text);
        };
        let apart = (counted - power).abs();
        let verdict = match apart <= SLACK.max(power * AGREE) {
            true => Verdict::Shown,
            false => Verdict::Failed,
        };
        let text = format!("the counter shows {counted:.1}, the sensor {power:.1}");
        self.note(Topic::Energy, verdict, text);
    }

    fn check_persistence(&mut self, last: Option<Reading>) {
        let default = self.facts.range.map(|it| it.default);
        if let (Some(reading), Some(default)) = (last, default)
            && reading.forgetful
        {
            let text = format!(
                "persistence mode is off: by its driver, {default} is set once no program has it open; not tried"
            );
            self.note(Topic::Persistence, Verdict::NotTried, text);
        }
    }

    fn lowered(&mut self, asked: Nanos, now: Nanos, outcome: &Result<Watts, PowerError>) {
        match outcome {
            Ok(held) => {
                self.measured.lower_time = Some(seconds(asked, now));
                if held.is_same_cap(self.target) {
                    self.phase = Phase::Lowered { since: now };
                } else if held.is_same_cap(self.found) {
                    self.rests = true;
                    self.phase = Phase::Landing { since: now };
                } else {
                    // Between the write and this reading lie microseconds: a cap nearby is the driver's doing.
                    let is_rounded = (*held - self.target).abs() <= ROUNDING;
                    self.made = Some(*held).filter(|_| is_rounded);
                    self.odd(*held);
                }
            }
            Err(PowerError::Changed { cap, .. }) if !cap.is_same_cap(self.found) => {
                self.foreign(*cap)
            }
            Err(error) => {
                if !error.refuses() {
                    self.late.push(self.target);
                }
                self.note(Topic::Lower, Verdict::Failed, error.to_string());
                let (since, tries) = (now, 0);
                self.phase = Phase::Rising { since, tries };
            }
        }
    }

    /// The device holds neither what was written nor what was found.
    fn odd(&mut self, held: Watts) {
        if !self.is_near(held) {
            return self.foreign(held);
        }
        let text = format!(
            "{} was set, and it holds {held}: its driver rounds by more than the unit that it reports, or another \
             program has set that at this very moment",
            self.target
        );
        self.note(Topic::Lower, Verdict::Failed, text);
        self.phase = Phase::Raising { tries: 0 };
    }

    /// Whether a cap may be what a driver has made of the lower one.
    #[must_use]
    pub fn is_near(&self, cap: Watts) -> bool {
        let unit = self.facts.range.map_or(STEP, |it| it.resolution);
        let is_made = self.made.is_some_and(|made| made.is_same_cap(cap));
        let is_close = (cap - self.target).abs() <= STEP.max(unit) * 2.0;
        (is_made || is_close) && !cap.is_same_cap(self.found)
    }

    fn foreign(&mut self, held: Watts) {
        let text = format!(
            "it holds {held}, which litd never set: another program sets caps here, or it was reset; that cap is left \
             alone. Stop that program (`litctl doctor` names known ones) and qualify again"
        );
        self.note(self.topic(), Verdict::Failed, text);
        self.phase = Phase::Ended(Ending::Foreign(held));
    }

    /// The device has lost the lower cap by itself.
    fn strayed(&mut self, reading: &Reading) {
        let cap = reading.cap;
        if !cap.is_same_cap(self.found) {
            // The device held the lower cap already: a driver that is late to tell how it has rounded moves it by a unit.
            let unit = self.facts.range.map_or(Watts::ZERO, |it| it.resolution);
            return match (cap - self.target).abs() <= unit {
                true => self.odd(cap),
                false => self.foreign(cap),
            };
        }
        let before = self.samples.last().map(|it| it.reading);
        let why = match before.is_some_and(|before| reading.counts_anew(&before)) {
            true => "it was reset",
            false => "it was reset, or another program has set that",
        };
        let text = format!(
            "{} was set, and is {cap} again by itself: {why}",
            self.target
        );
        self.note(Topic::Lower, Verdict::Failed, text);
        self.phase = Phase::Ended(Ending::Returned);
    }

    /// Power that the device drew above the lower cap, if that can be told from noise.
    fn load(&self) -> Option<Watts> {
        let margin = self.margin();
        let power = self.measured.sensors.power;
        power.filter(|&power| power > self.target + margin)
    }

    fn margin(&self) -> Watts {
        SLACK.max(self.measured.sensors.noise.unwrap_or_default() * 3.0)
    }

    fn follow(&mut self, now: Nanos, since: Nanos, reading: &Reading) {
        let margin = self.margin();
        let within = reading.power.is_some_and(|it| it <= self.target + margin);
        if self.load().is_some() && within && self.measured.power_time.is_none() {
            self.measured.power_time = Some(seconds(since, now));
        }
    }

    fn is_held_enough(&self, now: Nanos, since: Nanos) -> bool {
        let waits = self.load().is_some() && self.measured.power_time.is_none();
        let longest = match waits {
            true => self.pace.follow.max(self.pace.hold),
            false => self.pace.hold,
        };
        now - since >= longest
    }

    fn judge_power(&mut self, now: Nanos, since: Nanos) {
        let time = self.measured.lower_time.unwrap_or_default().0 * 1e3;
        let mut text = format!("{} is set and read back within {time:.1} ms", self.target);
        if let Some(lag) = self.measured.lag {
            text = format!(
                "{} is read {:.2} s after the driver's answer",
                self.target, lag.0
            );
        }
        self.note(Topic::Lower, Verdict::Shown, text);
        let (verdict, text) = match (self.load(), self.measured.power_time) {
            (None, _) => {
                let power = self.measured.sensors.power;
                let power = power.map_or("no power sensor".to_owned(), |it| {
                    format!("it draws {it:.1}")
                });
                (
                    Verdict::NotShown,
                    format!("idle, or too near the cap: {power}"),
                )
            }
            (Some(before), Some(time)) => {
                let text = format!(
                    "from {before:.1} within the lower cap after {:.0} ms",
                    time.0 * 1e3
                );
                (Verdict::Shown, text)
            }
            (Some(before), None) => {
                let waited = (now - since).as_secs_f64();
                let text = format!(
                    "it drew {before:.1}, and was not within the lower cap {waited:.1} s after that was set: the cap \
                     does not bind"
                );
                (Verdict::Failed, text)
            }
        };
        self.note(Topic::Power, verdict, text);
    }

    fn raised(&mut self, asked: Nanos, now: Nanos, outcome: &Result<Watts, PowerError>) {
        let Phase::Raising { tries } = self.phase else {
            return;
        };
        self.rests = true;
        match outcome {
            Ok(held) if held.is_same_cap(self.found) => {
                self.rests = false;
                self.is_back(asked, now);
            }
            Ok(_) => {
                let (since, tries) = (now, tries + 1);
                self.phase = Phase::Rising { since, tries };
            }
            Err(PowerError::Changed { cap, .. }) if cap.is_same_cap(self.found) => {
                self.is_back(asked, now);
            }
            // Only a late write of the lower cap can do that.
            Err(PowerError::Changed { cap, .. }) if self.is_near(*cap) => self.retry(tries + 1),
            Err(PowerError::Changed { cap, .. }) => self.foreign(*cap),
            Err(error) => {
                if tries + 1 >= TRIES {
                    self.note(Topic::Back, Verdict::Failed, error.to_string());
                }
                self.retry(tries + 1);
            }
        }
    }

    /// Writes the cap found once more, after so many tries, or leaves it to the undo journal.
    fn retry(&mut self, tries: u32) {
        self.rests = true;
        self.phase = match tries < TRIES {
            true => Phase::Raising { tries },
            false => {
                let text = format!(
                    "{} could not be set again in {TRIES} tries: the undo journal has it",
                    self.found
                );
                self.note(Topic::Back, Verdict::Failed, text);
                Phase::Ended(Ending::Owed)
            }
        };
    }

    /// The cap found was read. Only a device that took the lower cap shows thereby that it takes this one.
    fn is_back(&mut self, since: Nanos, now: Nanos) {
        let was_lowered = self
            .checks
            .iter()
            .any(|it| it.topic == Topic::Lower && it.verdict == Verdict::Shown);
        if was_lowered {
            let time = seconds(since, now);
            self.measured.back_time = Some(time);
            let text = format!(
                "{} is set and read back within {:.1} ms",
                self.found,
                time.0 * 1e3
            );
            self.note(Topic::Back, Verdict::Shown, text);
        } else {
            let text = format!("it holds {}", self.found);
            self.note(Topic::Back, Verdict::NotShown, text);
        }
        let is_gpu = self.facts.identity.kind == DeviceKind::Gpu;
        self.phase = match self
            .pace
            .clock_share
            .filter(|_| was_lowered && is_gpu && !self.stopped)
        {
            Some(_) => Phase::Asking,
            None => Phase::Ended(Ending::Returned),
        };
    }

    fn told_clock(&mut self, outcome: &Result<Hertz, PowerError>) {
        self.phase = match (outcome, self.pace.clock_share) {
            (Ok(highest), Some(share)) if highest.is_finite() && *highest > Hertz::ZERO => {
                self.measured.highest_clock = Some(*highest);
                let clock = Hertz((highest.0 * share.clamp(0.0, 1.0) / 1e6).round() * 1e6);
                Phase::Locking { clock }
            }
            (Err(error @ PowerError::Unsupported { .. }), _) => {
                self.note(Topic::Clocks, Verdict::NotTried, error.to_string());
                Phase::Ended(Ending::Returned)
            }
            (Err(error), _) => {
                self.note(Topic::Clocks, Verdict::Failed, error.to_string());
                Phase::Ended(Ending::Returned)
            }
            (Ok(highest), _) => {
                let text = format!("its driver reports {highest} as the highest clock");
                self.note(Topic::Clocks, Verdict::Failed, text);
                Phase::Ended(Ending::Returned)
            }
        };
    }

    fn locked(&mut self, clock: Hertz, outcome: &Result<(), PowerError>) {
        if let Err(error) = outcome {
            self.note(Topic::Clocks, Verdict::Failed, error.to_string());
        } else {
            let text = format!("{:.0} MHz is locked and unlocked", clock.0 / 1e6);
            self.note(Topic::Clocks, Verdict::Shown, text);
        }
        let refused = outcome.as_ref().is_err_and(PowerError::refuses);
        self.phase = match refused {
            true => Phase::Ended(Ending::Returned),
            false => Phase::Freeing { tries: 0 },
        };
    }

    fn freed(&mut self, outcome: &Result<(), PowerError>) {
        let Phase::Freeing { tries } = self.phase else {
            return;
        };
        self.rests = true;
        self.phase = match outcome {
            Ok(()) => Phase::Ended(Ending::Returned),
            Err(_) if tries + 1 < TRIES => {
                let tries = tries + 1;
                Phase::Freeing { tries }
            }
            Err(error) => {
                let text = format!("the clock could not be unlocked: {error}");
                self.note(Topic::Clocks, Verdict::Failed, text);
                Phase::Ended(Ending::Owed)
            }
        };
    }
}

fn seconds(since: Nanos, now: Nanos) -> Seconds {
    Seconds((now - since).as_secs_f64())
}

#[cfg(test)]
#[path = "exam_tests.rs"]
mod tests;
