//! Answers of devices: caps written and read back, sensors, faults, and caps that others change.

use litd_api::EventKind;
use litd_policies::Written;
use litd_power::{CapRange, Operation, PowerError, Reading, Reply};
use litd_units::{Nanos, Watts};

use crate::core::{Core, seconds};
use crate::devices::Unit;
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
                let by_hand = matches!(operation, Operation::Set(cap) if self.devices.is_by_hand(device, cap));
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
                self.devices.count_error(device, &error, &mut self.out);
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
                self.writer
                    .journal_late(device, held, &self.devices, &mut self.out);
                self.write_failed(device, &format!("was set to {wanted} and holds {held}"));
            }
            Written::Failed => {
                if let Some(error) = error {
                    if !error.refuses() {
                        self.expect_late(device, wanted, true);
                    }
                    self.devices.count_error(device, &error, &mut self.out);
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
        let ours = self.writer.entry(unit.address());
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
            unit.readings.unbelieved.hears(seen, self.out.now());
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
            self.writer.entry(unit.address()),
        ) {
            (Some(held), _) => !held.is_same_cap(cap) && !self.is_rounded(device, cap),
            // A failed write has left the cap before it: nothing has moved.
            (None, Some(_)) if unit.was_read() && unit.reads(cap) => false,
            // Every undo goes to this cap, so it takes two readings before it is believed, and two before an undo
            // counts as done.
            (None, Some(entry)) => !matches!(entry.undo(cap), Undo::Write(_)) || !unit.was_read(),
            (None, None) => !unit.was_read() || unit.readings.unbelieved.is_suspect(),
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
        let entry = self.writer.entry(unit.address());
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

    /// Whether nobody can have set a cap: it is above the range that the driver told before cap and range contradicted
    /// each other, and is none of those that litd has found or set there. It counts, as anything that the device could
    /// hold, but the journal's entry stays: a cap that a driver in trouble tells for a while is no foreign one.
    fn is_nobodys(&self, device: usize, cap: Watts) -> bool {
        let Some(unit) = self.devices.get(device) else {
            return false;
        };
        let is_beyond = unit.device.range.is_beyond_last(cap);
        let entry = self.writer.entry(unit.address());
        let is_foreign = entry.is_some_and(|entry| entry.undo(cap) == Undo::Foreign);
        let known = self.writer.account().held(device);
        is_beyond && is_foreign && !known.is_some_and(|known| known.is_same_cap(cap))
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
        self.devices.count_error(device, error, &mut self.out);
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        unit.answering.has_failed_to_read();
        unit.has_failed_again();
        if unit.answering.failures() == FAILURES && unit.standing.is_ours() {
            self.fault(device, &error.to_string());
        }
    }

    fn has_read(&mut self, device: usize, asked: Nanos, reading: Reading) {
        self.note_brake(device, &reading);
        let is_nobodys = self.is_nobodys(device, reading.cap);
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        if is_nobodys {
            unit.readings.unbelieved.hears_beyond(Some(reading.cap));
            return self.read_impossible(device, reading.cap);
        }
        if !unit.device.range.admits(reading.cap) {
            let belies = unit.device.range.is_belied_by(reading.cap);
            unit.readings
                .unbelieved
                .hears_beyond(belies.then_some(reading.cap));
            return self.read_impossible(device, reading.cap);
        }
        let now = self.now();
        // A single reading that is unlike all that is known is taken twice.
        let moved = self.has_moved(device, reading.cap);
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let heard = unit.readings.unbelieved.hears(reading.cap, now);
        if moved && heard != Heard::Twice {
            return self.disbelieve(device, reading.cap, heard);
        }
        unit.readings.unbelieved.settle();
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
        let unsure = unsure.and_then(|address| self.writer.entry(address));
        let unsure = unsure.filter(|_| known.is_none()).map(Entry::most);
        let anew = last.is_some_and(|last| reading.counts_anew(&last));
        match known.or(last.map(|last| last.cap)) {
            Some(held) if moved && !first => self.cap_moved(device, held, reading.cap, anew),
            // The device holds the requested cap as its driver rounds it; that cap, too, has to be undone after a
            // crash.
            _ if self.is_rounded(device, reading.cap) => {
                self.writer
                    .journal_late(device, reading.cap, &self.devices, &mut self.out)
            }
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
        if let Some(name) = self.devices.job_of(device) {
            self.step(&name);
        }
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
