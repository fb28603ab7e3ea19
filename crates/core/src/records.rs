//! Records of writes that are made without the core's loop: `litd qualify` moves one cap at a time by a few watts,
//! in the same undo journal and the same audit log as the daemon. A write is made after it is on record in both, so
//! that the daemon's own undo (`litd restore`, the next start) takes it back, whenever the process dies.

use litd_api::Event;
use litd_api::audit::Intent;
use litd_power::PowerError;
use litd_units::{Nanos, Watts};

use crate::event::Effect;
use crate::journal::{Found, JournalError, Lock};
use crate::outbox::Outbox;
use crate::store::Store;
use crate::undo::LATE;
use crate::writer::Writer;

/// A device as its records name it.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// A number of its own.
    pub device: usize,
    /// The short name.
    pub name: String,
    /// The address, the serial number and the cap to restore.
    pub found: Found,
}

/// The journal and the log, and the disk that has them.
#[derive(Debug)]
pub struct Records<S> {
    writer: Writer<S>,
    out: Outbox,
}

impl<S: Store> Records<S> {
    /// Reads journal and log; nothing is written. `now` is the kernel's clock that starts with each boot, and
    /// `unix_seconds` the same moment.
    ///
    /// # Errors
    /// The journal can't be read, or is one of a newer version.
    pub fn open(
        store: S,
        boot_id: &str,
        now: Nanos,
        unix_seconds: f64,
    ) -> Result<Self, JournalError> {
        let (writer, _) = Writer::open(store, boot_id, Vec::new())?;
        let out = Outbox::new(now, unix_seconds);
        Ok(Self { writer, out })
    }

    /// What follows happens at this moment.
    pub fn at(&mut self, now: Nanos) {
        self.out.at(now);
    }

    /// The devices that the journal names, because of a cap or of a clock.
    #[must_use]
    pub fn named(&self) -> Vec<String> {
        let entries = self.writer.entries().iter().map(|it| &it.address);
        let clocks = self.writer.clocks().iter().map(|it| &it.address);
        let named = std::collections::BTreeSet::from_iter(entries.chain(clocks));
        named.into_iter().cloned().collect()
    }

    /// Records that a device's cap, which is `held` now, is about to be set, and why.
    ///
    /// # Errors
    /// The disk, in words: the caller writes nothing.
    pub fn intend(
        &mut self,
        target: &Target,
        held: Watts,
        cap: Watts,
        reason: &str,
    ) -> Result<(), String> {
        let found = &target.found;
        let begun = match self.writer.entry(&found.address) {
            Some(_) => Vec::new(),
            None => vec![found.clone()],
        };
        let intents = [(found.address.as_str(), cap)];
        if self.writer.journal(&begun, &intents, &mut self.out) {
            return Err(self.trouble());
        }
        match self.log(target, held, cap, reason) {
            true => Err(self.trouble()),
            false => Ok(()),
        }
    }

    /// Records as far as the disk allows that the cap found is about to be set: an undo does not depend on it.
    pub fn undoes(&mut self, target: &Target, held: Watts, reason: &str) {
        self.log(target, held, target.found.cap, reason);
    }

    fn log(&mut self, target: &Target, held: Watts, cap: Watts, reason: &str) -> bool {
        let intent = Intent {
            device: target.found.address.clone(),
            name: target.name.clone(),
            actor: self.writer.actor(target.device, false),
            reason: reason.to_owned(),
            job: None,
            sample: None,
            old_watts: Some(held),
            new_watts: cap,
            found_watts: Some(target.found.cap),
        };
        self.writer
            .log(vec![(target.device, intent)], &mut self.out)
    }

    /// A write to a device has ended so.
    pub fn ended(&mut self, target: &Target, outcome: &Result<Watts, PowerError>) {
        let called = (target.found.address.as_str(), target.name.as_str());
        let (device, out) = (target.device, &mut self.out);
        self.writer.log_outcome(device, called, outcome, out);
    }

    /// A device was read to hold a cap that its driver has made of litd's by rounding: from now on it is one of
    /// litd's, which an undo takes back.
    pub fn rounded(&mut self, target: &Target, held: Watts) {
        let intents = [(target.found.address.as_str(), held)];
        self.writer.journal(&[], &intents, &mut self.out);
    }

    /// A device may still take a cap that it was not read to hold: for as long as that can be its entry says so.
    pub fn may_land(&mut self, target: &Target, cap: Watts) {
        let until = self.out.now() + LATE;
        let address = &target.found.address;
        self.writer.expect(address, cap, until, &mut self.out);
    }

    /// Removes a device from the journal: it was read to hold its cap found, or holds a foreign one. A device that
    /// is not in it is ignored.
    ///
    /// # Errors
    /// The disk, in words.
    pub fn cross_out(&mut self, target: &Target) -> Result<(), String> {
        match self.writer.cross_out(&target.found.address, &mut self.out) {
            true => Ok(()),
            false => Err(self.trouble()),
        }
    }

    /// Records that a device's clocks are about to be locked.
    ///
    /// # Errors
    /// The disk, in words: the caller locks nothing.
    pub fn lock_clocks(&mut self, target: &Target) -> Result<(), String> {
        match self
            .writer
            .lock_clocks(&target.found.address, &mut self.out)
        {
            true => Err(self.trouble()),
            false => Ok(()),
        }
    }

    /// Records the outcome of a lock: one that failed may be done late.
    pub fn lock_ended(&mut self, target: &Target, is_done: bool) {
        let lock = match is_done {
            true => Lock::Done,
            false => Lock::Late(self.out.now() + LATE),
        };
        let address = &target.found.address;
        self.writer.lock_became(address, lock, &mut self.out);
    }

    /// Records that the driver chooses a device's clocks again.
    ///
    /// # Errors
    /// The disk, in words.
    pub fn freed_clocks(&mut self, target: &Target) -> Result<(), String> {
        match self
            .writer
            .freed_clocks(&target.found.address, &mut self.out)
        {
            true => Err(self.trouble()),
            false => Ok(()),
        }
    }

    /// The events for the log since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        let effects = self.out.take().into_iter();
        let events = effects.filter_map(|effect| match effect {
            Effect::Log(event) => Some(event),
            _ => None,
        });
        events.collect()
    }

    fn trouble(&self) -> String {
        let troubles = [self.writer.journal_trouble(), self.writer.log_trouble()];
        let trouble = troubles.into_iter().flatten().next();
        trouble
            .unwrap_or("its records could not be written")
            .to_owned()
    }
}
