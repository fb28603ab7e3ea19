//! GPUs on the bus that litd does not manage: their driver came up, or they came back, after litd had looked for
//! devices. Such a GPU is not read, so in a budget it counts with the most that a GPU of this node could hold,
//! until litd has started anew.

use std::collections::BTreeSet;

use litd_api::EventKind;

use crate::core::Core;
use crate::devices::Unit;
use crate::record::Note;
use crate::store::Store;
use crate::undo::by_hand::ByHand;

impl<S: Store> Core<S> {
    /// The unmanaged GPUs, by address, have changed.
    pub(crate) fn unmanaged_now(&mut self, addresses: BTreeSet<String>) {
        let each = self.devices.most_of_any_gpu();
        for address in &self.devices.finds_unmanaged(addresses) {
            let text = format!(
                "is on the bus since litd looked for devices, or its driver did not answer then: litd does not \
                 know its cap. Within a budget it counts with {each}. If its driver has come up since, litd soon starts \
                 itself anew for it, and begins as after a crash; otherwise `systemctl restart litd` takes it in, once \
                 its driver answers"
            );
            self.note(Note::warning(EventKind::Fault, text).device(address));
        }
    }

    /// These GPUs were litd's since the node booted, by address: schedulers count those that are not there any more.
    pub fn gpus_were_here(&mut self, addresses: impl IntoIterator<Item = String>) {
        self.devices.were_here(addresses);
    }

    /// Whether litd may start itself anew, as after a crash, to take in GPUs: not while it stops, is off or has
    /// released a device (it would open those), not while the outcome of a write is unknown or somebody waits for
    /// one, and not while the node is short of power or what outlives litd is not on disk.
    #[must_use]
    pub fn may_start_anew(&self) -> bool {
        let is_at_rest = |(device, unit): (usize, &Unit)| {
            unit.standing.let_go().is_none()
                && unit.landing.is_none()
                && !matches!(unit.by_hand, ByHand::Asked(_))
                && self.writer.account().is_settled(device)
        };
        let authority = &self.authority;
        !authority.is_stopping()
            && !authority.is_off()
            && authority.killed().is_none()
            && self.writer.journal_trouble().is_none()
            && !self.condition.is_unkept()
            && self.node.supply.alarm(self.now()).is_none()
            && self.node.supply.braked(self.now()).is_none()
            && self.devices.iter().all(is_at_rest)
    }

    /// The unmanaged GPUs, by address.
    #[must_use]
    pub fn unmanaged(&self) -> &BTreeSet<String> {
        self.devices.unmanaged()
    }
}
