//! Caps that have moved without litd: by a late write of its own, by a reset, or by somebody else.

use litd_api::EventKind;
use litd_units::Watts;

use crate::core::Core;
use crate::devices::Unit;
use crate::devices::resets::Reset;
use crate::record::Note;
use crate::store::Store;

impl<S: Store> Core<S> {
    /// A device holds another cap than litd knows of. `anew`: its energy counter says that it was reset.
    pub(super) fn cap_moved(&mut self, device: usize, held: Watts, cap: Watts, anew: bool) {
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
            return self
                .writer
                .journal_late(device, cap, &self.devices, &mut self.out);
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

    /// The driver has told the new default of a device that had been reset to another cap than its old default.
    pub(super) fn judge_reset(&mut self, device: usize) {
        let unit = self.devices.get_mut(device);
        let reset = unit.and_then(|unit| unit.resets.judged());
        if let Some(Reset { held, cap }) = reset {
            self.judge_moved(device, held, cap, true);
        }
    }

    /// Decides whether a reset or somebody else has changed a device's cap.
    fn judge_moved(&mut self, device: usize, held: Watts, cap: Watts, anew: bool) {
        let now = self.now();
        let touched = self.writer.is_journaled(device);
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
            } else {
                self.found_under_late(device, cap);
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

    /// A foreign cap was set, and stays; `found` was to be restored before. A failed write, or a predecessor's,
    /// may still be done on top of it: then the foreign cap is restored, so it enters the journal now.
    fn leave_to_them(&mut self, device: usize, found: Option<Watts>, theirs: Watts) {
        if let Some(unit) = self.devices.get_mut(device) {
            // The device that had failed answers again, with a cap that somebody set on purpose.
            unit.standing.take();
        }
        self.journal_over(device, found, theirs);
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
            "a late write of litd's, {cap}, has replaced the foreign cap {theirs}: {theirs} is restored"
        );
        let note = Note::warning(EventKind::Restore, text).device(unit.address());
        self.note(note);
    }

    /// A failed device that was reset belongs to litd again, so that budgets are enforced on it. Returns whether
    /// it had failed.
    pub(super) fn begin_anew(&mut self, device: usize) -> bool {
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
}
