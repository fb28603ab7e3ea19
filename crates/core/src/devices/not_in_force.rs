//! GPUs whose caps were seen not to be in force. That outlives litd: at the next start such a GPU's cap reads as low as
//! before, and while it draws little nothing shows that it could draw more.

use std::collections::BTreeMap;

use litd_api::EventKind;
use litd_units::Watts;
use serde::{Deserialize, Serialize};

use crate::core::Core;
use crate::devices::Unit;
use crate::record::Note;
use crate::store::Store;

/// What is known of a GPU whose cap is not in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Known {
    /// The part's serial number, as far as its driver told it: another part may come to the same address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serial: Option<String>,
    /// The watts that it counts with.
    counts: Watts,
}

/// The GPUs whose caps were seen not to be in force, by address.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct NotInForce(BTreeMap<String, Known>);

impl NotInForce {
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes in what another litd has seen of devices that this one has by now.
    pub fn adopt(&mut self, theirs: Self) {
        self.0.extend(theirs.0);
    }

    /// Forgets the GPUs for whose addresses this does not count.
    pub fn keep(&mut self, counts: impl Fn(&str) -> bool) {
        self.0.retain(|address, _| counts(address));
    }

    /// The watts with which a GPU counts because its cap was seen not to be in force.
    fn of(&self, unit: &Unit) -> Option<Watts> {
        let known = self.0.get(unit.address())?;
        let serials = known
            .serial
            .as_ref()
            .zip(unit.device.identity.serial.as_ref());
        let is_part = serials.is_none_or(|(known, told)| known == told);
        let counts = known.counts;
        (is_part && counts.is_finite() && counts > Watts::ZERO).then_some(counts)
    }

    /// A GPU's standing tells whether its cap is in force. Returns whether its entry has changed.
    pub fn follow(&mut self, unit: &Unit) -> bool {
        let Some(counts) = unit.standing.not_in_force() else {
            // Until it is read for the first time, nobody has looked.
            return unit.was_read() && self.0.remove(unit.address()).is_some();
        };
        let serial = unit.device.identity.serial.clone();
        let known = Known { serial, counts };
        let before = self.0.insert(unit.address().to_owned(), known.clone());
        before.as_ref() != Some(&known)
    }
}

impl<S: Store> Core<S> {
    /// At a start: what an earlier litd knew of the GPUs that were read, and what it may not have seen yet.
    pub(crate) fn recall_all_not_in_force(&mut self) {
        for device in 0..self.devices.iter().count() {
            self.recall_not_in_force(device);
        }
    }

    /// A GPU that holds a cap of an earlier litd, which saw that it is not in force, stays faulty and counts as it did.
    /// One that holds its cap found, or a cap of somebody else, is as any other. Where nothing was seen, power has to
    /// follow the cap from now on.
    pub(crate) fn recall_not_in_force(&mut self, device: usize) {
        let now = self.now();
        if self.authority.is_leaving() || !self.writer.is_journaled(device) {
            return;
        }
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let is_back = match (unit.found, unit.readings.cap()) {
            (Some(found), Some(cap)) => found.is_same_cap(cap),
            _ => true,
        };
        if is_back || !unit.is_ours() {
            return;
        }
        let Some(counts) = self.condition.not_in_force.of(unit) else {
            return self.await_recovered(device);
        };
        unit.fails(now, Some(counts));
        let address = unit.address();
        let text = format!(
            "an earlier litd saw that its cap is not in force: it counts with {counts} and stays faulty until it is \
             reset, or until `litctl resume {address}`"
        );
        let note = Note::warning(EventKind::Fault, text).device(address);
        self.note(note);
        self.standing_changed(device);
    }
}
