//! Clocks that jobs ask for (Perseus, Table 2: controller.set_speed), and their undo.
//!
//! A rank's hook may ask litd to lock the clock of its own GPU; litd does so only in the mode on. If
//! a rank asks for another clock before its device has answered, only the latest is set. No driver
//! tells what clocks are locked to, so litd does not restore an earlier lock: it unlocks, and the
//! driver chooses again, once the rank's process, its job or the daemon ends. That a device may be
//! locked is in the journal before it is.
//!
//! litd need not do what a rank asks. A clock below the floor that the administrator has set is
//! refused, and so is any clock as long as the driver does not tell the highest one, of which the
//! floor is a share. If a rank asks more often than `[clocks]` allows, only its latest clock is set,
//! as soon as that is allowed. Neither a refused clock nor a delayed one is written to the journal,
//! and a device that is unlocked between two of them stays in the journal for two more seconds: no
//! rank can make litd write to the disk as often as it likes.
//!
//! A lock that its driver calls failed may be done all the same, half a minute later, and so may one that a litd had
//! under way when it died: until then the device stays in the journal, and then its clocks are unlocked once more, or
//! locked to the clock asked for by then. Once a lock is done the journal says so: after a crash nobody waits for it. A
//! device that is released, or whose job opts out, is unlocked once more at that moment, and then left alone: a later
//! lock may be its users'. It stays in the journal until litd takes it back, stops or starts anew.
//!
//! No cap is set below the power that the clocks of a plan need (see `planned`), unless the cap found is restored, or
//! the job has not the watts for that: other jobs' GPUs pay nothing for its clocks (`plan/clocks.rs`).

pub(crate) mod locking;
pub(crate) mod planned;

use std::collections::BTreeMap;

use litd_api::{EventKind, Mode, PlanStatus};
use litd_power::{ClockRange, Operation, PowerError};
use litd_units::{Hertz, Nanos, Watts};

use crate::clocks::locking::Locking;
use crate::clocks::planned::{Look, Needs, Planned};
use crate::config::Clocks as ClockLimits;
use crate::core::Core;
use crate::devices::Unit;
use crate::devices::identity::shared;
use crate::job::roster::Rank;
use crate::journal::{Lock as Journaled, Locked};
use crate::rate::Bucket;
use crate::record::Note;
use crate::store::Store;
use crate::trial::Lab;
use crate::undo::LATE;

/// A failed lock, or a failed unlock, is tried again after so long.
const RETRY: Nanos = Nanos(1_000_000_000);

/// After so many failures in a row the wish is given up. Unlocking is never given up.
const FAILURES: u32 = 3;

/// A device that a plan has unlocked stays in the journal for so long, because it is usually locked again soon.
const LINGERS: Nanos = Nanos(2_000_000_000);

/// The text about a lock that a predecessor has left.
const LOCKED: &str = "its clocks may be locked since before a crash: litd unlocks them";

/// The reason for which a rank's wishes are refused is logged once in so long; each refusal is counted.
const SAID_EVERY: Nanos = Nanos(60_000_000_000);

/// How often a device's clock may still be set: at the moment, and in the long run.
#[derive(Debug, Clone)]
struct Allowance {
    of: ClockLimits,
    moment: Bucket,
    minute: Bucket,
}

impl Allowance {
    fn new(of: &ClockLimits, now: Nanos) -> Self {
        Self {
            of: of.clone(),
            moment: Bucket::with_burst(of.per_second, of.per_second, now),
            minute: Bucket::with_burst(of.per_minute / 60.0, of.per_minute, now),
        }
    }

    /// When it may be set next.
    fn next(&mut self, now: Nanos) -> Nanos {
        self.moment.next(now).max(self.minute.next(now))
    }

    fn take(&mut self, now: Nanos) {
        self.moment.take(now);
        self.minute.take(now);
    }
}

/// The clocks of a device.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clocks {
    /// The process of the rank that asked for a clock, and the clock.
    asked: Option<(u32, Hertz)>,
    /// The GPU's highest clock, once the driver has told.
    highest: Option<Hertz>,
    /// How often the clock may be set; present once it was.
    allowance: Option<Allowance>,
    /// The wish came too fast after the last one and waits until then.
    waits_until: Option<Nanos>,
    /// When wishes were refused last, by the reasons that were logged.
    said: BTreeMap<&'static str, Nanos>,
    /// Whether they are locked.
    pub lock: Locking,
    /// Since when the clocks are locked to the plan's.
    since: Nanos,
    /// Measurements at the plan's clocks.
    planned: Planned,
    /// The last iteration in which the plan was followed.
    iteration: u64,
    /// Failures in a row, and when to try again.
    failures: u32,
    retry_at: Option<Nanos>,
    /// Whether the last operation was about clocks: others come first now.
    pub had_turn: bool,
}

impl Clocks {
    /// Another part may be in the device's place, so its highest clock is asked for anew.
    pub fn forget_highest(&mut self) {
        self.highest = None;
    }

    /// Whether this process has asked for a clock.
    pub fn are_asked_by(&self, pid: u32) -> bool {
        self.asked.is_some_and(|(by, _)| by == pid)
    }

    /// When clocks need attention: a wish that came too fast, or a lock that failed and may be done late.
    pub fn waits_until(&self) -> Option<Nanos> {
        [self.waits_until, self.lock.late()]
            .into_iter()
            .flatten()
            .min()
    }
}

impl<S: Store> Core<S> {
    /// A rank asks for a clock of its GPU; `None`: the driver is to choose.
    pub(crate) fn ask_clock(&mut self, name: &str, rank: u32, clock: Option<Hertz>) {
        if self.authority.mode(&self.config) != Mode::Steer {
            return self.out.refuse("clocks_observed");
        }
        let job = self.jobs.get(name);
        let Some(rank) = job.and_then(|job| job.ranks.get(rank)) else {
            return;
        };
        let (device, pid) = (rank.device(), rank.pid());
        let Some(unit) = self.devices.get(device) else {
            return;
        };
        if let (Some(clock), Some(highest)) = (clock, unit.clocks.highest)
            && clock < self.clock_floor(highest)
        {
            return self.refuse_low_clock(device, clock, highest);
        }
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let clocks = &mut unit.clocks;
        let asked = clock.map(|clock| (pid, clock));
        if asked == clocks.asked {
            return;
        }
        (clocks.asked, clocks.failures) = (asked, 0);
        if shared(unit).is_some() {
            let text = "its rank asks for a clock, but the GPU is shared: litd locks none";
            self.refuse_clock(device, "clocks_shared", text.to_owned());
        } else if unit
            .clocks
            .waits_until
            .is_some_and(|until| self.now() < until)
        {
            let limits = &self.config.clocks;
            let text = format!(
                "its rank asks for clocks more often than clocks.per_second = {} or clocks.per_minute = {} allow: \
                 litd takes only the latest one",
                limits.per_second, limits.per_minute
            );
            self.refuse_clock(device, "clocks_too_often", text);
        }
    }

    /// No clock is locked below this.
    fn clock_floor(&self, highest: Hertz) -> Hertz {
        Hertz(highest.0 * self.config.clocks.floor_share)
    }

    fn refuse_low_clock(&mut self, device: usize, clock: Hertz, highest: Hertz) {
        let megahertz = |clock: Hertz| clock.0 / 1e6;
        let text = format!(
            "its rank asks for {:.0} MHz, below the floor of {:.0} MHz (clocks.floor_share = {} of its highest, {:.0} \
             MHz): litd does not lock that clock",
            megahertz(clock),
            megahertz(self.clock_floor(highest)).ceil(),
            self.config.clocks.floor_share,
            megahertz(highest)
        );
        self.refuse_clock(device, "clocks_too_low", text);
    }

    /// A wish is refused or delayed: counted each time, logged now and then.
    fn refuse_clock(&mut self, device: usize, label: &'static str, text: String) {
        self.out.refuse(label);
        let now = self.now();
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let said = unit.clocks.said.get(label);
        if said.is_some_and(|&at| now < at + SAID_EVERY) {
            return;
        }
        unit.clocks.said.insert(label, now);
        let note = Note::warning(EventKind::Job, text).device(unit.address());
        let job = unit.usage.job().map(str::to_owned);
        self.note(match &job {
            Some(name) => note.job(name),
            None => note,
        });
    }

    /// A driver has told the highest clock of a device, or failed to.
    pub(crate) fn has_highest_clock(&mut self, device: usize, outcome: Result<Hertz, PowerError>) {
        let real = |clock: &Hertz| clock.0.is_finite() && clock.0 > 0.0;
        let highest = match outcome {
            Ok(highest) if real(&highest) => highest,
            Ok(highest) => {
                let Some(unit) = self.devices.get(device) else {
                    return;
                };
                let error = PowerError::Driver {
                    device: unit.address().to_owned(),
                    action: "reading the highest clock",
                    cause: format!("the driver reports {highest}, which is not possible"),
                };
                return self.clocks_failed(device, Operation::HighestClock, &error);
            }
            Err(error) => {
                return self.clocks_failed(device, Operation::HighestClock, &error);
            }
        };
        let floor = self.clock_floor(highest);
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        unit.clocks.highest = Some(highest);
        if let Some((_, clock)) = unit.clocks.asked.take_if(|(_, clock)| *clock < floor) {
            self.refuse_low_clock(device, clock, highest);
        }
    }

    /// Predecessors may have locked these devices' clocks.
    pub(crate) fn recover_clocks(&mut self) {
        for Locked { address, lock } in self.writer.clocks().to_vec() {
            let Some(device) = self.devices.called(&address) else {
                let text = "an earlier litd may have locked its clocks, which can't be unlocked: it was not found";
                self.note(Note::warning(EventKind::Restore, text).device(&address));
                continue;
            };
            let latest = self.predecessor.late_until();
            let (late, text) = match lock {
                Journaled::Late(until) if until > self.now() => (
                    Some(until.min(latest)),
                    "a lock of its clocks that failed, or got no answer, may be done by now: litd unlocks them",
                ),
                Journaled::Asked => (Some(latest), LOCKED),
                Journaled::Done | Journaled::Late(_) => (None, LOCKED),
            };
            if late.is_some() {
                self.predecessor.may_have_locked(&address);
            }
            if let Some(unit) = self.devices.get_mut(device) {
                let late = late.filter(|&late| late > self.out.now());
                unit.clocks.lock.recovers(late);
            }
            self.note(Note::warning(EventKind::Restore, text).device(&address));
        }
    }

    /// The clock that a device is to be locked to now.
    fn wanted_clock(&self, device: usize, unit: &Unit) -> Option<Hertz> {
        let (pid, clock) = unit.clocks.asked?;
        let ours = unit.standing.is_ours() || unit.standing.is_foreign();
        if self.authority.is_stopping()
            || self.authority.mode(&self.config) != Mode::Steer
            || !ours
            || unit.usage.has_opted_out()
        {
            return None;
        }
        // The floor may have been raised since the wish, and the GPU may be shared by now.
        let highest = unit.clocks.highest;
        let low = highest.is_some_and(|highest| clock < self.clock_floor(highest));
        if low || shared(unit).is_some() {
            return None;
        }
        let job = self.jobs.get(unit.usage.job()?)?;
        let is_there = job.ranks.on(device).is_some_and(|rank| rank.pid() == pid);
        (is_there && !job.hearing.is_stale()).then_some(clock)
    }

    /// Whether an unlocked device stays in the journal: it was unlocked a moment ago, and its rank is connected.
    fn lingers(&self, unit: &Unit) -> bool {
        let steers =
            !self.authority.is_stopping() && self.authority.mode(&self.config) == Mode::Steer;
        let ours = unit.standing.is_ours() && shared(unit).is_none();
        let here = unit.usage.job().is_some() && !unit.usage.has_opted_out();
        steers && ours && here && self.now() < unit.clocks.since + LINGERS
    }

    /// Removes devices from the journal whose clocks the driver chooses again.
    fn cross_out_clocks(&mut self) {
        for Locked { address, .. } in self.writer.clocks().to_vec() {
            let device = self.devices.called(&address);
            let unit = device.and_then(|device| self.devices.get(device));
            if unit.is_some_and(|unit| !self.lingers(unit))
                && let Some(device) = device
            {
                self.forget_clocks(device, &address);
            }
        }
    }

    /// Tells the journal which locks are done, so that nobody has to wait for late ones after a crash.
    fn confirm_locks(&mut self) {
        let now = self.now();
        let is_due = |unit: &Unit| {
            unit.clocks.lock.is_to_be_confirmed(now)
                && self.writer.lock(unit.address()) == Some(Journaled::Asked)
        };
        let due = self.devices.iter().filter(|(_, unit)| is_due(unit));
        for device in due.map(|(device, _)| device).collect::<Vec<_>>() {
            if let Some(unit) = self.devices.get_mut(device) {
                unit.clocks.lock.confirms(now);
                self.writer
                    .lock_became(unit.address(), Journaled::Done, &mut self.out);
            }
        }
    }

    /// Has devices that are not busy lock or unlock their clocks, as wanted by now.
    pub(crate) fn begin_clocks(&mut self) {
        let (now, stops) = (self.now(), self.authority.is_stopping());
        for (_, unit) in self.devices.iter_mut() {
            if unit.answering.is_free() && (stops || !unit.is_left_alone()) {
                unit.clocks.lock.look_again(now);
            }
        }
        for device in 0..self.devices.iter().count() {
            if let Some(operation) = self.next_for_clocks(device) {
                self.devices
                    .begin(device, operation, self.now(), &mut self.out);
                if let Some(unit) = self.devices.get_mut(device) {
                    (unit.clocks.had_turn, unit.clocks.retry_at) = (true, None);
                    if operation != Operation::HighestClock {
                        unit.clocks.lock.begins();
                    }
                }
            }
        }
        self.confirm_locks();
        self.cross_out_clocks();
    }

    /// The operation that a device's clocks need now, if any.
    fn next_for_clocks(&mut self, device: usize) -> Option<Operation> {
        let unit = self.devices.get(device)?;
        let clocks = &unit.clocks;
        let waits = clocks.retry_at.is_some_and(|at| self.now() < at);
        let others_first = clocks.had_turn && unit.answering.wants_anything();
        let given_up = unit.standing.let_go().is_some_and(|it| it.given_up);
        if !unit.answering.is_free() || waits || others_first || given_up {
            return None;
        }
        let wanted = self.wanted_clock(device, unit);
        let clock = match (wanted, clocks.lock.at()) {
            (Some(clock), Some(held)) if clock == held => {
                self.is_planned(device, clock);
                return None;
            }
            (Some(_), _) if clocks.highest.is_none() => return Some(Operation::HighestClock),
            (Some(clock), _) => clock,
            (None, _) if clocks.lock.is_free() => return None,
            // A lock of the predecessor's may still be on its way.
            (None, _) if !self.predecessor.has_landed(self.now()) => return None,
            (None, _) => return Some(Operation::Clocks(None)),
        };
        if !self.may_lock(device) || !self.journal_clocks(device) {
            return None;
        }
        self.is_planned(device, clock);
        Some(Operation::Clocks(Some(ClockRange {
            lowest: clock,
            highest: clock,
        })))
    }

    /// Whether a device's clock was not set too often of late; if it was, the wish waits.
    fn may_lock(&mut self, device: usize) -> bool {
        let (now, limits) = (self.now(), &self.config.clocks);
        let Some(unit) = self.devices.get_mut(device) else {
            return false;
        };
        let clocks = &mut unit.clocks;
        let known = clocks.allowance.take().filter(|it| it.of == *limits);
        let allowance = known.unwrap_or_else(|| Allowance::new(limits, now));
        let allowance = clocks.allowance.insert(allowance);
        let next = allowance.next(now);
        if next > now {
            clocks.waits_until = Some(next);
            return false;
        }
        allowance.take(now);
        clocks.waits_until = None;
        true
    }

    /// Tells the journal that a device's clocks may be locked from now on. Returns whether that is written.
    fn journal_clocks(&mut self, device: usize) -> bool {
        let Some(unit) = self.devices.get(device) else {
            return false;
        };
        let address = unit.address().to_owned();
        let failed = self.writer.lock_clocks(&address, &mut self.out);
        if failed && let Some(unit) = self.devices.get_mut(device) {
            unit.clocks.retry_at = Some(self.out.now() + RETRY);
        }
        !failed
    }

    /// A device has locked or unlocked its clocks, or failed to.
    pub(crate) fn clocks_done(
        &mut self,
        device: usize,
        asked: Option<ClockRange>,
        outcome: Result<(), PowerError>,
    ) {
        let now = self.now();
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let clocks = &mut unit.clocks;
        match outcome {
            Ok(()) => {
                (clocks.failures, clocks.since) = (0, now);
                clocks.lock.becomes(asked.map(|range| range.highest));
                self.journal_late_lock(device);
            }
            Err(error) => self.clocks_failed(device, Operation::Clocks(asked), &error),
        }
    }

    /// A device has failed to lock or unlock its clocks.
    fn clocks_failed(&mut self, device: usize, operation: Operation, error: &PowerError) {
        let now = self.now();
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let address = unit.address().to_owned();
        let clocks = &mut unit.clocks;
        clocks.failures += 1;
        clocks.retry_at = Some(now + RETRY);
        let failures = clocks.failures;
        let is_unsupported = matches!(error, PowerError::Unsupported { .. });
        let is_undo = operation == Operation::Clocks(None);
        if is_unsupported || !is_undo && failures >= FAILURES {
            clocks.asked = None;
        }
        if operation != Operation::HighestClock && error.refuses() {
            // A clock that was locked before is still locked, even if the driver now says that it does not support
            // locking.
            clocks.lock.refused();
            self.forget_clocks(device, &address);
        } else if matches!(operation, Operation::Clocks(Some(_))) {
            self.expect_late_lock(device, &address);
        }
        let kind = error.kind();
        let backend = self
            .devices
            .get(device)
            .map(|unit| unit.backend().to_owned());
        self.out.error(kind, &backend.unwrap_or_default());
        if failures == 1 {
            let note = Note::warning(EventKind::Fault, error.to_string());
            self.note(note.device(&address));
        }
    }

    /// Litd begins to stop: locks that were done late are removed.
    pub(crate) fn free_late_locks(&mut self) {
        for (_, unit) in self.devices.iter_mut() {
            unit.clocks.lock.free_once_more();
        }
    }

    /// A lock has failed, and may still be done late.
    fn expect_late_lock(&mut self, device: usize, address: &str) {
        let until = self.now() + LATE;
        if let Some(unit) = self.devices.get_mut(device) {
            unit.clocks.lock.fails(until);
        }
        self.writer
            .lock_became(address, Journaled::Late(until), &mut self.out);
    }

    /// Clocks are unlocked, and a lock may still be done late: the journal says until when, or every `litd
    /// restore` would wait for it anew.
    fn journal_late_lock(&mut self, device: usize) {
        let unit = self.devices.get(device);
        let unit = unit.filter(|unit| unit.clocks.lock.is_free_for_now());
        let until = unit.and_then(|unit| Some((unit.address(), unit.clocks.lock.late()?)));
        let late = until.map(|(address, until)| (address, Journaled::Late(until)));
        if let Some((address, late)) = late.filter(|it| self.writer.lock(it.0) != Some(it.1)) {
            self.writer.lock_became(address, late, &mut self.out);
        }
    }

    /// Removes a device from the journal once the driver chooses its clocks again.
    fn forget_clocks(&mut self, device: usize, address: &str) {
        let free = |unit: &Unit| unit.clocks.lock.is_free_for_good();
        if !self.devices.get(device).is_some_and(free) || self.writer.lock(address).is_none() {
            return;
        }
        let failed = self.writer.close_clocks(address, &mut self.out);
        if failed
            // If litd stops with the clocks unlocked and the journal can't be written, the next litd cleans it up.
            && !self.authority.is_stopping()
            && let Some(unit) = self.devices.get_mut(device)
        {
            // The clocks are unlocked once more, and then the journal is written again.
            unit.clocks.lock.free_anew();
            unit.clocks.retry_at = Some(self.out.now() + RETRY);
        }
    }

    /// The number of devices present whose clocks may still be locked. A device that only the journal calls
    /// locked, because the journal can't be written, does not count.
    pub(crate) fn locked_devices(&self) -> usize {
        let uncrossed = self.writer.journal_trouble().is_some();
        let locked = |(_, unit): &(usize, &Unit)| match uncrossed {
            true => !unit.clocks.lock.is_free(),
            false => self.writer.may_be_locked(unit),
        };
        self.devices.iter().filter(locked).count()
    }

    /// A clock is part of the plan: from now on the cap that it needs is kept.
    fn is_planned(&mut self, device: usize, clock: Hertz) {
        let now = self.now();
        if let Some(unit) = self.devices.get_mut(device) {
            unit.clocks.planned.lock(clock, now);
        }
    }

    /// A device was read: records what power its locked clock draws, and whether the device holds the clock.
    pub(crate) fn look_at_clocks(&mut self, device: usize, asked: Nanos) {
        let Some(unit) = self.devices.get(device) else {
            return;
        };
        let (Some(lock), Some(reading)) = (unit.clocks.lock.at(), unit.readings.last()) else {
            return;
        };
        let job = unit.usage.job().and_then(|name| self.jobs.get(name));
        let rank = job.and_then(|job| job.ranks.on(device));
        let iteration = rank.map_or(0, Rank::iteration);
        let limits = unit.limits(&self.config.caps);
        let look = Look {
            lock,
            since: unit.clocks.since,
            asked,
            reading,
            new_iteration: iteration != unit.clocks.iteration,
            at_ceiling: reading.cap >= limits.ceiling - limits.resolution,
        };
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        unit.clocks.iteration = iteration;
        if unit.clocks.planned.look(&look) {
            self.tell_degree(device);
        }
    }

    fn tell_degree(&mut self, device: usize) {
        let Some(unit) = self.devices.get(device) else {
            return;
        };
        let (address, degree) = (unit.address().to_owned(), unit.clocks.planned.degree());
        let held = self.writer.account().most_of(device);
        let note = match degree > 1.0 {
            true => Note::warning(
                EventKind::State,
                format!(
                    "can't hold its planned clocks: it is {degree:.2} times as slow as planned under a cap of {held}, \
                     and litd can give it no more, or more does not help"
                ),
            ),
            false => Note::info(
                EventKind::State,
                "holds its planned clocks, or has none, again",
            ),
        };
        let job = unit.usage.job();
        let note = job.into_iter().fold(note, Note::job);
        self.note(note.device(&address));
    }

    /// Forgets plans that have ended.
    pub(crate) fn check_clocks(&mut self) {
        let now = self.now();
        let over = |(_, unit): &(usize, &mut Unit)| {
            let clocks = &unit.clocks;
            let idle = clocks.lock.is_free() && clocks.planned.needs(now) == Needs::Nothing;
            unit.usage.job().is_none() || idle
        };
        let over = self.devices.iter_mut().filter(over);
        let told = over.filter_map(|(device, unit)| unit.clocks.planned.end().then_some(device));
        for device in told.collect::<Vec<_>>() {
            self.tell_degree(device);
        }
    }

    /// The lowest cap at which a device can hold its planned clocks, out of what it may hold now: a device that holds
    /// less already is not raised by this; only the law, or falling temperature, raises it. Where no loop moves its
    /// cap nothing above the cap found is kept. A job with missing ranks keeps nothing. Neither does one that opts
    /// out, or that rests: its GPU counts as an idle one.
    pub(crate) fn keeps(&self, device: usize, unit: &Unit) -> Watts {
        let own = unit.limits(&self.config.caps);
        let job = unit.usage.job().and_then(|name| self.jobs.get(name));
        let job = job.filter(|job| job.ranks.is_whole() && !unit.usage.has_opted_out());
        let job = job.filter(|job| !self.rests(job));
        let Some(job) = job else { return own.floor };
        let held = self.writer.account().most_of(device).min(own.ceiling);
        let is_found = !matches!(job.trial.lab, None | Some(Lab::Balanced));
        let follows_loop = self.steers() && job.control.ask().is_some() && !is_found;
        let held = match unit.base().filter(|_| !follows_loop) {
            Some(base) => held.min(base),
            None => held,
        };
        let cap = match unit.clocks.planned.needs(self.now()) {
            Needs::Cap(cap) => cap.min(held),
            Needs::Unknown => held,
            Needs::Nothing => own.floor,
        };
        // Down to one driver unit less, where the held cap is not a whole number of units.
        own.floor.max(cap.cut_to(own.resolution))
    }

    /// Measurements of the plan that a device follows.
    pub(crate) fn plan_status(&self, unit: &Unit) -> Option<PlanStatus> {
        let (clocks, planned) = (&unit.clocks, &unit.clocks.planned);
        let locked = clocks.lock.at();
        let needs = planned.needs(self.now());
        (locked.is_some() || needs != Needs::Nothing).then(|| PlanStatus {
            locked,
            needs: match needs {
                Needs::Cap(cap) => Some(cap),
                Needs::Nothing | Needs::Unknown => None,
            },
            degree: planned.degree(),
        })
    }
}
