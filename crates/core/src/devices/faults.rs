//! Devices that do not do what they are told, and what follows once the owner of a cap has changed.

use litd_api::EventKind;
use litd_units::Watts;

use crate::core::Core;
use crate::record::Note;
use crate::store::Store;

impl<S: Store> Core<S> {
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
        if let Some(state) = unit.map(|unit| unit.standing.told().name()) {
            self.fail_by_hand(device, format!("it is {state} now"));
        }
        if let Some(name) = self.devices.job_of(device) {
            self.suspend_or_resume(&name);
        }
        // A CPU socket has no job of its own, but plans may count on it.
        self.plan_around(device);
    }
}
