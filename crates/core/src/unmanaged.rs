//! GPUs that are on the bus and not litd's: their driver came up, or they came back, after litd had
//! looked for devices. Such a GPU is not read, so that within a budget that was set it counts with the
//! most that a GPU of this node could hold, until litd is started anew.

use std::collections::BTreeSet;

use litd_api::EventKind;
use litd_units::Watts;

use crate::core::Core;
use crate::record::Note;
use crate::store::Store;

/// No GPU of today takes more. One that litd does not read counts with it where no GPU of the node has told what its
/// cap may be.
const UNTOLD: Watts = Watts(1500.0);

impl<S: Store> Core<S> {
    /// These GPUs, by address, are on the bus and not litd's.
    pub(crate) fn unmanaged_now(&mut self, addresses: BTreeSet<String>) {
        let before = std::mem::replace(&mut self.unmanaged, addresses);
        let each = self.most_of_any_gpu();
        let new: Vec<String> = self.unmanaged.difference(&before).cloned().collect();
        for address in &new {
            let text = format!(
                "is on the bus since litd looked for devices, or its driver did not answer then: litd does not \
                 know its cap. Within a budget it counts with {each}; `systemctl restart litd` takes it in"
            );
            self.note(Note::warning(EventKind::Fault, text).device(address));
        }
    }

    /// GPUs, by address, that are on the bus and not litd's.
    #[must_use]
    pub fn unmanaged(&self) -> &BTreeSet<String> {
        &self.unmanaged
    }

    /// What those GPUs may hold of a budget that was set.
    pub(crate) fn unmanaged_hold(&self) -> Watts {
        match self.set_budget() {
            Some(_) => self.most_of_any_gpu() * self.unmanaged.len() as f64,
            None => Watts::ZERO,
        }
    }

    /// What is left of the GPUs' budget to those that are litd's.
    pub(crate) fn managed_budget(&self) -> Watts {
        (self.gpu_budget() - self.unmanaged_hold()).max(Watts::ZERO)
    }

    /// What each of them may hold.
    pub(crate) fn each_unmanaged(&self) -> impl Iterator<Item = Watts> {
        let each = self.most_of_any_gpu();
        self.unmanaged.iter().map(move |_| each)
    }

    fn most_of_any_gpu(&self) -> Watts {
        let ranges = self
            .devices
            .gpus()
            .map(|(_, unit)| unit.device.range.last());
        let highest = ranges.flatten().map(|range| range.highest);
        highest.reduce(Watts::max).unwrap_or(UNTOLD)
    }
}
