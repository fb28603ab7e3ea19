//! The ledger of writes as the daemon drives it, with devices that answer at once.

use litd_policies::{Actuator, CapVector};
use litd_units::Watts;

/// A ledger of devices that hold these caps, or an unknown one of at most 750 W.
pub fn ledger(held: &[Option<Watts>]) -> Actuator {
    let lines = Vec::from_iter(held.iter().map(|&cap| (cap, Watts(750.0))));
    Actuator::new(&lines, Watts::ZERO)
}

/// Aims at caps and makes every write that the ledger gives out; `write` answers what is read back, or nothing
/// where it fails. Whether all devices hold their caps in the end.
pub fn drive(
    ledger: &mut Actuator,
    caps: &CapVector,
    mut write: impl FnMut(usize, Watts) -> Option<Watts>,
) -> bool {
    let devices = Vec::from_iter(0..caps.len());
    ledger.set_budget(caps.budget());
    ledger.steer(&devices, caps);
    loop {
        let due = ledger.due(|_| true);
        if due.is_empty() {
            return devices.iter().all(|&device| ledger.is_settled(device));
        }
        for (device, wanted) in due {
            ledger.written(device, write(device, wanted));
        }
    }
}
