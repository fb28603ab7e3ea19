//! The order of writes. Decreases come first, each read back; increases come after, and only
//! when every decrease was confirmed. So the sum of what the hardware holds is within the
//! budget after every single write, also when one of them fails or lies.

use litd_units::Watts;
use thiserror::Error;

use crate::envelope::CapVector;

/// Caps are whole microwatts: nearer than half of one is equal, and floats are that exact.
const SAME: Watts = Watts(0.4e-6);

/// What went wrong at one device. Whatever had to be withheld was withheld.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ActuationFailure<E> {
    /// The caps are for other devices than those held; nothing was written.
    #[error("the caps are for {caps} devices, and {held} are held")]
    Devices {
        /// Devices that the caps are for.
        caps: usize,
        /// Devices held.
        held: usize,
    },
    /// The device refused the write, or could not be read back.
    #[error("device {device}: setting {wanted} failed: {cause}")]
    Refused {
        /// Which device, counted from 0: GPUs first, then CPU sockets.
        device: usize,
        /// What it was told.
        wanted: Watts,
        /// The back end's own error.
        cause: E,
    },
    /// The write was reported as done, and the device holds something else.
    #[error("device {device} was set to {wanted} and holds {held}")]
    Ignored {
        /// Which device, counted from 0: GPUs first, then CPU sockets.
        device: usize,
        /// What it was told.
        wanted: Watts,
        /// What it holds.
        held: Watts,
    },
    /// A device that should rise stays as it is, because another did not come down.
    #[error(
        "device {device} stays at {held}: another did not come down, so {wanted} would risk the budget"
    )]
    Withheld {
        /// Which device, counted from 0: GPUs first, then CPU sockets.
        device: usize,
        /// What it should have become.
        wanted: Watts,
        /// What it holds.
        held: Watts,
    },
}

/// Brings the hardware from the caps it holds to `caps`. `write` sets one device's cap and
/// answers what the device holds afterwards, read back. `held` is what each device holds now
/// and is kept true; a device that refused is taken to hold the higher of old and new.
///
/// Returns every failure; none means that the hardware holds `caps`.
pub fn actuate<E>(
    caps: &CapVector,
    held: &mut [Watts],
    mut write: impl FnMut(usize, Watts) -> Result<Watts, E>,
) -> Vec<ActuationFailure<E>> {
    let mut failures = Vec::new();
    let targets = caps.to_watts();
    if targets.len() != held.len() {
        let (caps, held) = (targets.len(), held.len());
        return vec![ActuationFailure::Devices { caps, held }];
    }
    let devices = 0..held.len();
    for device in devices.clone() {
        // A held cap that is not a number counts as one to come down.
        let comes_down = !(held[device] <= targets[device] + SAME);
        if comes_down {
            set(device, targets[device], held, &mut write, &mut failures);
        }
    }
    let confirmed = failures.is_empty();
    for device in devices {
        let (wanted, holds) = (targets[device], held[device]);
        if !(holds < wanted - SAME) {
            continue;
        }
        // An increase that went wrong stops those after it as well.
        if confirmed && failures.is_empty() {
            set(device, wanted, held, &mut write, &mut failures);
        } else {
            failures.push(ActuationFailure::Withheld {
                device,
                wanted,
                held: holds,
            });
        }
    }
    failures
}

fn set<E>(
    device: usize,
    wanted: Watts,
    held: &mut [Watts],
    write: &mut impl FnMut(usize, Watts) -> Result<Watts, E>,
    failures: &mut Vec<ActuationFailure<E>>,
) {
    match write(device, wanted) {
        Ok(holds) => {
            held[device] = holds;
            if !((holds - wanted).abs() <= SAME) {
                failures.push(ActuationFailure::Ignored {
                    device,
                    wanted,
                    held: holds,
                });
            }
        }
        Err(cause) => {
            // What it holds now is the old or the new cap. A cap that is not known (NaN) stays
            // unknown: `max` would forget that, and the budget would be counted wrongly.
            if held[device].is_finite() {
                held[device] = held[device].max(wanted);
            }
            failures.push(ActuationFailure::Refused {
                device,
                wanted,
                cause,
            });
        }
    }
}
