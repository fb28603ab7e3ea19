//! Answers of devices: caps written and read back, sensors, faults, and caps that others change.

use litd_api::EventKind;
use litd_policies::Written;
use litd_power::{CapRange, Operation, PowerError, Reading, Reply};
use litd_units::{Nanos, Watts};

use crate::core::{Core, seconds};
use crate::devices::Unit;
use crate::devices::resets::Reset;
use crate::devices::unbelieved::Heard;
use crate::journal::{Entry, Undo};
use crate::record::Note;
use crate::store::Store;

/// A failed write is tried again after so long.
const RETRY: Nanos = Nanos(1_000_000_000);

/// A device that fails for long is tried less often.
const RETRY_FAULTY: Nanos = Nanos(5_000_000_000);

/// After so long a device that has refused more than [`TIRELESS`] writes in a row is tried again: each attempt is
/// written to disk and to the log.
const RETRY_REFUSED: Nanos = Nanos(15_000_000_000);

/// See [`RETRY_REFUSED`].
const TIRELESS: u32 = 12;

/// So many failures in a row make a device faulty.
pub(crate) const FAILURES: u32 = 3;

impl<S: Store> Core<S> {
    pub(crate) fn replied(&mut self, device: usize, reply: Reply) {
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let Some(answer) = unit.answering.answered(&reply) else {
            return;
        };
        let (operation, asked) = (answer.operation, answer.asked);
        if answer.was_overdue {
            let note = Note::info(EventKind::Fault, "answers again").device(unit.address());
            self.note(note);
        }
        // A device whose write failed waits for its retry; a device that timed out was only no longer waited for.
        let waits = self.writer.account().is_writing(device) || self.waits_for_retry(device);
        if !waits && self.writer.account().has_failed(device) {
            self.writer.account_mut().retry(device);
        }
        match reply {
            Reply::Read(Ok(reading)) => self.has_read(device, asked, reading),
            Reply::Read(Err(error)) => self.read_failed(device, &error),
            Reply::Set(outcome) => {
                let by_hand =
                    matches!(operation, Operation::Set(cap) if self.is_by_hand(device, cap));
                if let Operation::Set(wanted) = operation {
                    self.has_written(device, wanted, outcome, by_hand);
                }
            }
            Reply::Identity(Ok((identity, range))) => self.has_identity(device, identity, range),
            // The next round asks again.
            Reply::Identity(Err(error)) | Reply::Range(Err(error)) => {
                self.range_refused(device, &error);
            }
            Reply::Range(Ok(_)) => {}
            Reply::Holders(Ok(holders)) => self.holders(device, asked, &holders),
            Reply::Holders(Err(error)) => {
                self.count_error(device, &error);
                self.holders_unknown(device, &error.to_string());
            }
            Reply::Clocks(outcome) => {
                if let Operation::Clocks(asked) = operation {
                    self.clocks_done(device, asked, outcome);
                }
            }
            Reply::HighestClock(outcome) => self.has_highest_clock(device, outcome),
            Reply::Released(handles) => self.closed(device, handles),
        }
    }

    fn waits_for_retry(&self, device: usize) -> bool {
        let unit = self.devices.get(device);
        unit.is_some_and(|unit| unit.answering.retry_at().is_some())
    }

    pub(crate) fn count_error(&mut self, device: usize, error: &PowerError) {
        if let Some(unit) = self.devices.get(device) {
            let backend = unit.backend().to_owned();
            self.out.error(error.kind(), &backend);
        }
    }

    /// A write has ended; `by_hand` if it was an administrator's override.
    fn has_written(
        &mut self,
        device: usize,
        wanted: Watts,
        outcome: Result<Watts, PowerError>,
        by_hand: bool,
    ) {
        let before = self.writer.account().held(device);
        if let Some(unit) = self.devices.get(device) {
            let called = (unit.address(), unit.name.as_str());
            self.writer
                .log_outcome(device, called, &outcome, &mut self.out);
        }
        let told = outcome.as_ref().copied().map_err(ToString::to_string);
        if let Err(PowerError::Changed { cap, .. }) = outcome {
            if by_hand {
                self.wrote_by_hand(device, told);
            }
            self.writer.account_mut().not_written(device);
            return self.look_again(device, cap);
        }
        if let Ok(held) = outcome
            && self.is_unexplained(device, wanted, before, held)
        {
            if by_hand {
                self.wrote_by_hand(device, told);
            }
            self.writer.account_mut().written(device, None);
            self.expect_late(device, wanted, false);
            self.tell_unexplained(device, wanted, held);
            return self.look_again(device, held);
        }
        let (held, error) = match outcome {
            Ok(held) => (Some(held), None),
            Err(error) => (None, Some(error)),
        };
        let most = self.writer.account().most_of(device);
        let written = self.writer.account_mut().written(device, held);
        self.doubt(device, most);
        match written {
            Written::Confirmed => self.confirmed(device, before, held),
            Written::Ignored { wanted, held } => {
                if let Some(unit) = self.devices.get(device) {
                    let backend = unit.backend().to_owned();
                    self.out.error("ignored", &backend);
                }
                self.expect_late(device, wanted, true);
                // The cap as its driver rounds it has to be undone after a crash, too.
                self.journal_late(device, held);
                self.write_failed(device, &format!("was set to {wanted} and holds {held}"));
            }
            Written::Failed => {
                if let Some(error) = error {
                    if !error.refuses() {
                        self.expect_late(device, wanted, true);
                    }
                    self.count_error(device, &error);
                    if matches!(error, PowerError::OutOfRange { .. }) {
                        self.devices.ask_anew(device);
                    }
                    self.write_failed(device, &error.to_string());
                }
            }
            Written::Stray => {}
        }
        if by_hand {
            self.wrote_by_hand(device, told);
        }
    }

    /// Whether a cap that was read back can only be somebody else's: it is neither the cap before nor the wanted
    /// one, nothing that litd ever wrote there, and nothing that the driver makes of the wanted one by rounding it
    /// or cutting it to its limits.
    fn is_unexplained(
        &self,
        device: usize,
        wanted: Watts,
        before: Option<Watts>,
        held: Watts,
    ) -> bool {
        let Some(unit) = self.devices.get(device) else {
            return false;
        };
        // A driver cuts to a limit only caps beyond that limit.
        let limit = |range: CapRange| {
            let lowest = held.is_same_cap(range.lowest) && wanted <= held;
            lowest || held.is_same_cap(range.highest) && wanted >= held
        };
        let by_driver = unit.rounds(wanted, held) || unit.device.range.last().is_some_and(limit);
        let was_there = before.is_some_and(|before| before.is_same_cap(held));
        let ours = self.entry(unit.address());
        let ours = ours.is_some_and(|entry| entry.undo(held) != Undo::Foreign);
        !(was_there || by_driver || ours)
    }

    /// An unexpected cap right after a write may also come from a driver that changes caps without saying so. The
    /// cap is left alone, and the administrator is told how to restore the old one by hand.
    fn tell_unexplained(&mut self, device: usize, wanted: Watts, held: Watts) {
        let Some((unit, found)) = self
            .devices
            .get(device)
            .and_then(|it| Some((it, it.found?)))
        else {
            return;
        };
        let text = format!(
            "was set to {wanted} and holds {held} right after: that is somebody else's cap, or its driver rounds \
             more than it says; {found} was found before"
        );
        let note = Note::warning(EventKind::Foreign, text).device(unit.address());
        self.note(note);
    }

    /// A foreign cap seems to be there: the device is read again before anything is decided, because a single
    /// reading may be wrong.
    fn look_again(&mut self, device: usize, seen: Watts) {
        if let Some(unit) = self.devices.get_mut(device) {
            unit.unbelieved.hears(seen, self.out.now());
            unit.answering.retries_at(self.out.now() + RETRY);
        }
        self.writer.account_mut().suspect(device, seen);
        self.devices.want_read(device);
    }

    /// A reading is unlike all that is known: the device is read again at once. A device whose readings contradict
    /// each other counts with the most that it could hold, and fails if they go on to do so.
    fn disbelieve(&mut self, device: usize, cap: Watts, heard: Heard) {
        self.writer.account_mut().suspect(device, cap);
        if let Heard::OtherwiseAgain(before) = heard {
            let cause = format!("it says {cap}, and said {before} just before");
            self.misread(device, cause);
        } else {
            self.devices.want_read(device);
        }
    }

    /// Whether a cap that was read is neither the known one nor any that can be there after a write, of litd's or
    /// its predecessor's, whose outcome is unknown.
    fn has_moved(&self, device: usize, cap: Watts) -> bool {
        let Some(unit) = self.devices.get(device) else {
            return false;
        };
        match (
            self.writer.account().held(device),
            self.entry(unit.address()),
        ) {
            (Some(held), _) => !held.is_same_cap(cap) && !self.is_rounded(device, cap),
            // A failed write has left the cap before it: nothing has moved.
            (None, Some(_)) if unit.was_read() && unit.reads(cap) => false,
            // Every undo goes to this cap, so it takes two readings before it is believed, and two before an undo
            // counts as done.
            (None, Some(entry)) => !matches!(entry.undo(cap), Undo::Write(_)) || !unit.was_read(),
            (None, None) => !unit.was_read() || unit.unbelieved.is_suspect(),
        }
    }

    /// Whether a cap is one of litd's as the driver rounds it: a driver tells the requested cap at first, and the
    /// rounded one later. A higher cap than asked for counts as it is, and is judged as any other.
    fn is_rounded(&self, device: usize, cap: Watts) -> bool {
        let unit = self
            .devices
            .get(device)
            .filter(|it| !it.standing.is_foreign());
        let Some((unit, held)) = unit.zip(self.writer.account().held(device)) else {
            return false;
        };
        let entry = self.entry(unit.address());
        let ours = entry.is_some_and(|entry| matches!(entry.undo(held), Undo::Write(_)));
        ours && cap < held && !held.is_same_cap(cap) && unit.rounds(held, cap)
    }

    fn confirmed(&mut self, device: usize, before: Option<Watts>, held: Option<Watts>) {
        self.out.count_write();
        let settle = seconds(self.config.caps.follow_seconds);
        let until = self.now() + settle;
        let has_landed = self.predecessor.has_landed(self.now());
        let (Some(unit), Some(held)) = (self.devices.get_mut(device), held) else {
            return;
        };
        let sure = has_landed && unit.landing.is_none();
        // A cap that a reset had left there has been replaced by litd's write.
        unit.resets.stop_waiting();
        unit.answering.has_written();
        unit.readings.holds(held);
        let lowered = before.is_none_or(|before| held < before);
        match unit.is_gpu() {
            true => unit.following.gpu_holds(held, lowered.then_some(until)),
            false if !lowered && !self.writer.account().is_doubted(device) => {
                unit.following.stop_awaiting();
            }
            false if !lowered => unit.following.socket_holds_more(held),
            false => {}
        }
        if sure {
            self.writer.confirmed(unit.address(), held);
        }
        if before.is_none_or(|before| !before.is_same_cap(held)) {
            self.cap_settles(device);
        }
    }

    fn write_failed(&mut self, device: usize, why: &str) {
        let now = self.now();
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        unit.answering.has_refused();
        unit.has_failed_again();
        let ours = unit.standing.is_ours();
        let pause = match unit.answering.refusals() {
            // No later time is left: litd stops.
            _ if ours || self.authority.is_stopping() => RETRY,
            _ if unit.standing.let_go().is_some() => RETRY_FAULTY,
            ..=TIRELESS => RETRY_FAULTY,
            _ => RETRY_REFUSED,
        };
        unit.answering.retries_at(now + pause);
        // The device's cap has to be known before it is written again.
        let (failures, refusals) = (unit.answering.failures(), unit.answering.refusals());
        let first = failures == 1 && refusals <= FAILURES;
        let address = unit.address().to_owned();
        self.devices.want_read(device);
        if ours && failures >= FAILURES {
            let text = format!("failed {failures} times in a row: {why}");
            self.fault(device, &text);
        } else if first {
            self.note(Note::warning(EventKind::Fault, why).device(&address));
        }
    }

    /// A device holds a cap outside the range that its driver tells. One of the two is wrong; after several times
    /// nobody can say which.
    fn read_impossible(&mut self, device: usize, cap: Watts) {
        let cause = format!("it says {cap}, which this device can't hold");
        let Some(error) = self.misread(device, cause) else {
            return;
        };
        let unit = self.devices.get(device);
        let failures = unit.map_or(0, |unit| unit.answering.failures());
        if failures >= FAILURES {
            self.range_refused(device, &error);
        }
    }

    /// A device has told a cap that can't be believed: that counts as a failed reading. Returns the error to
    /// report.
    fn misread(&mut self, device: usize, cause: String) -> Option<PowerError> {
        let error = PowerError::Driver {
            device: self.devices.get(device)?.address().to_owned(),
            action: "reading the cap",
            cause,
        };
        self.read_failed(device, &error);
        Some(error)
    }

    fn read_failed(&mut self, device: usize, error: &PowerError) {
        self.count_error(device, error);
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        unit.answering.has_failed_to_read();
        unit.has_failed_again();
        if unit.answering.failures() == FAILURES && unit.standing.is_ours() {
            self.fault(device, &error.to_string());
        }
    }

    /// A device does not do what it is told: its cap is restored as far as possible, and it is left alone until it
    /// recovers, is reset or an administrator resumes it. Only for a budget it is lowered meanwhile.
    pub(crate) fn fault(&mut self, device: usize, why: &str) {
        self.fault_counting(device, None, why);
    }

    /// The same; `not_in_force`: the watts that it counts with, because the cap that it reads does not limit it.
    pub(crate) fn fault_counting(&mut self, device: usize, not_in_force: Option<Watts>, why: &str) {
        let now = self.now();
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        unit.following.stop_awaiting();
        let address = unit.address().to_owned();
        // A device that was never read is not touched anyway, and joins once it answers.
        if unit.was_read() {
            unit.fails(now, not_in_force);
        }
        unit.has_failed_again();
        self.note(Note::warning(EventKind::Fault, why).device(&address));
        self.standing_changed(device);
    }

    /// The standing of a device has changed: its job can no longer be steered, or can again.
    pub(crate) fn standing_changed(&mut self, device: usize) {
        let unit = self.devices.get(device).filter(|unit| !unit.is_ours());
        if let Some(state) = unit.map(|unit| unit.standing.state().name()) {
            self.fail_by_hand(device, format!("it is {state} now"));
        }
        let job = self
            .devices
            .get(device)
            .and_then(|unit| unit.usage.job().map(str::to_owned));
        if let Some(name) = job {
            self.suspend_or_resume(&name);
        }
        // A CPU socket has no job of its own, but plans may count on it.
        self.plan_around(device);
    }

    fn has_read(&mut self, device: usize, asked: Nanos, reading: Reading) {
        self.note_brake(device, &reading);
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        if !unit.device.range.admits(reading.cap) {
            let belies = unit.device.range.is_belied_by(reading.cap);
            unit.unbelieved.hears_beyond(belies.then_some(reading.cap));
            return self.read_impossible(device, reading.cap);
        }
        let now = self.now();
        // A single reading that is unlike all that is known is taken twice.
        let moved = self.has_moved(device, reading.cap);
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let heard = unit.unbelieved.hears(reading.cap, now);
        if moved && heard != Heard::Twice {
            return self.disbelieve(device, reading.cap, heard);
        }
        unit.unbelieved.settle();
        if !self.writer.account().has_failed(device) {
            unit.answering.has_read();
        }
        let last = unit.readings.comes(reading, asked, now);
        let first = unit.found.is_none();
        let called = (unit.address(), unit.name.as_str());
        let enforced = (asked, reading.enforced);
        self.writer
            .log_reading(device, called, enforced, &mut self.out);
        let known = self.writer.account().held(device);
        // A failed write, or a predecessor's, was done after all: before it the device drew no more than the caps
        // that litd has found or written there.
        let unsure = self.devices.get(device).map(Unit::address);
        let unsure = unsure.and_then(|address| self.entry(address));
        let unsure = unsure.filter(|_| known.is_none()).map(Entry::most);
        let anew = last.is_some_and(|last| reading.counts_anew(&last));
        match known.or(last.map(|last| last.cap)) {
            Some(held) if moved && !first => self.cap_moved(device, held, reading.cap, anew),
            // The device holds the requested cap as its driver rounds it; that cap, too, has to be undone after a
            // crash.
            _ if self.is_rounded(device, reading.cap) => self.journal_late(device, reading.cap),
            _ => {
                self.writer.account_mut().observe(device, reading.cap);
                if anew && self.begin_anew(device) {
                    self.devices.ask_anew(device);
                }
            }
        }
        if let Some(most) = unsure {
            self.doubt(device, most);
        }
        self.forget_late(device, asked);
        if first || known.is_none() {
            self.found_late(device, reading.cap, last.is_none());
            // The watts of a CPU socket's limit found don't belong to the GPUs.
            self.bind();
        }
        self.note_limits(device);
        self.check_doubt(device);
        self.look_at_clocks(device, asked);
        self.check_settling(device);
        self.check_socket(device);
        let job = self
            .devices
            .get(device)
            .and_then(|unit| unit.usage.job().map(str::to_owned));
        if let Some(name) = job {
            self.step(&name);
        }
    }

    /// A device holds another cap than litd knows of. `anew`: its energy counter says that it was reset.
    fn cap_moved(&mut self, device: usize, held: Watts, cap: Watts, anew: bool) {
        let most = self.writer.account().most_of(device);
        self.writer.account_mut().observe(device, cap);
        self.cap_settles(device);
        // The present cap is judged from now on, not the one that an earlier reset had left.
        let unit = self.devices.get_mut(device);
        let before = unit.and_then(|unit| unit.resets.judged());
        let (held, anew) = before.map_or((held, anew), |reset| (reset.held, true));
        if self.landed_by_hand(device, cap) || self.is_leftover(device, cap) {
            if anew {
                // A late write does not reset an energy counter.
                self.devices.ask_anew(device);
                self.begin_anew(device);
            }
            self.overwrote(device, cap);
            // Power has yet to follow a cap that the device came to hold late, as with any other cap.
            self.doubt(device, most);
            return self.journal_late(device, cap);
        }
        if let Some(unit) = self.devices.get_mut(device)
            && anew
            && !unit.is_default(cap)
        {
            // The reset may have changed the device's default: its driver has to tell before the cap is judged.
            unit.resets.waits_for_driver(Reset { held, cap });
            return self.devices.ask_anew(device);
        }
        self.judge_moved(device, held, cap, anew);
    }

    /// A foreign cap was set, and stays; `found` was to be restored before. A failed write, or a predecessor's,
    /// may still be done on top of it: then the foreign cap is restored, so it enters the journal now.
    fn leave_to_them(&mut self, device: usize, found: Option<Watts>, theirs: Watts) {
        if let Some(unit) = self.devices.get_mut(device) {
            // The device that had failed answers again, with a cap that somebody set on purpose.
            unit.standing.take();
        }
        self.journal_over(device, found, theirs);
    }

    /// The journal has somebody else's cap as the one found from now on, and the late writes that may replace it.
    pub(crate) fn journal_over(&mut self, device: usize, found: Option<Watts>, theirs: Watts) {
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let address = unit.address().to_owned();
        self.forget_entry(&address);
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        unit.landing = unit.landing.take().and_then(|it| it.over(found));
        let Some(landing) = &unit.landing else {
            return;
        };
        let late = landing.caps().iter().filter(|cap| !cap.is_same_cap(theirs));
        let late: Vec<(usize, Watts)> = late.map(|&cap| (device, cap)).collect();
        unit.found = Some(theirs);
        for write in late {
            self.journal_writes(&[write]);
        }
    }

    /// A late write of litd's or a predecessor's was done. If it replaced somebody else's cap, that cap is
    /// restored.
    fn overwrote(&mut self, device: usize, cap: Watts) {
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        // Without a late write outstanding `found` is the cap before, not somebody else's.
        let theirs = unit.found.filter(|_| unit.landing.is_some());
        let theirs = theirs.filter(|theirs| !theirs.is_same_cap(cap));
        let Some(theirs) = theirs.filter(|_| unit.standing.overwrite()) else {
            return;
        };
        let text = format!(
            "a write of litd's that its driver had not done was done now, after somebody else had set {theirs}: that \
             goes back, and {cap} does not stay"
        );
        let note = Note::warning(EventKind::Restore, text).device(unit.address());
        self.note(note);
    }

    /// The driver has told the new default of a device that had been reset to another cap than its old default.
    pub(crate) fn judge_reset(&mut self, device: usize) {
        let unit = self.devices.get_mut(device);
        let reset = unit.and_then(|unit| unit.resets.judged());
        if let Some(Reset { held, cap }) = reset {
            self.judge_moved(device, held, cap, true);
        }
    }

    /// Decides whether a reset or somebody else has changed a device's cap.
    fn judge_moved(&mut self, device: usize, held: Watts, cap: Watts, anew: bool) {
        let now = self.now();
        let touched = self.is_journaled(device);
        let steered = self.jobs.values().any(|job| job.asks_for(device));
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let address = unit.address().to_owned();
        // The device was taken from litd before, and is moved again: its rival is still there.
        let (again, found) = (unit.standing.is_foreign(), unit.found);
        if again || !steered && !touched {
            // A foreign change: the new value becomes the cap found.
            unit.found = Some(cap);
            let at_default = unit.is_default(cap);
            if at_default {
                // After a reset, or with another part, nothing is written before the device has told its identity.
                self.devices.ask_anew(device);
            }
            let is_reset = anew && at_default;
            let whose = match is_reset {
                true => "a reset",
                false => "somebody else",
            };
            let text = format!("cap changed from {held} to {cap} by {whose}; it was not litd's");
            self.note(Note::info(EventKind::Foreign, text).device(&address));
            if is_reset {
                self.begin_anew(device);
            } else if again {
                self.leave_to_them(device, found, cap);
                self.foreign_change(device, cap);
            }
            return;
        }
        // A user can have his GPU reset as often as he likes: if it stayed at its default, its excess would be
        // taken from the others' GPUs.
        if unit.is_default(cap) && unit.resets.may_be_reset(anew, now) {
            self.devices.ask_anew(device);
            self.begin_anew(device);
            let text = format!(
                "cap went from {held} to the default of {cap}: the device was reset; identity and limits are read anew"
            );
            return self.note(Note::warning(EventKind::Foreign, text).device(&address));
        }
        unit.following.stop_awaiting();
        if unit.standing.let_go().is_some() {
            // The foreign cap stays, and becomes the cap found.
            unit.found = Some(cap);
        }
        let text = format!(
            "somebody else changed the cap from {held} to {cap}: left alone until `litctl resume {address}`"
        );
        self.note(Note::warning(EventKind::Foreign, text).device(&address));
        self.leave_to_them(device, found, cap);
        self.standing_changed(device);
        self.foreign_change(device, cap);
    }

    /// A failed device that was reset belongs to litd again, so that budgets are enforced on it. Returns whether
    /// it had failed.
    fn begin_anew(&mut self, device: usize) -> bool {
        let is_faulty = |unit: &&mut Unit| unit.standing.is_faulty();
        let Some(unit) = self.devices.get_mut(device).filter(is_faulty) else {
            return false;
        };
        unit.begins_anew();
        let address = unit.address().to_owned();
        self.writer.account_mut().retry(device);
        let text = "was reset after it had failed: it is litd's again";
        self.note(Note::info(EventKind::Fault, text).device(&address));
        self.standing_changed(device);
        true
    }

    /// Devices that take too long to answer.
    pub(crate) fn check_devices(&mut self) {
        let patience = seconds(self.config.caps.answer_seconds);
        let now = self.now();
        let mut silent = Vec::new();
        for (device, unit) in self.devices.iter_mut() {
            if unit.answering.becomes_overdue(now, patience) {
                silent.push((device, unit.backend().to_owned()));
            }
        }
        for (device, backend) in silent {
            self.out.error("timeout", &backend);
            let text = format!(
                "has not answered for {} s or more",
                self.config.caps.answer_seconds
            );
            self.fault(device, &text);
        }
    }
}
