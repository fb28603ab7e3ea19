//! Writing a cap vector in one go, for callers whose writes don't take long: the simulator and
//! the demo. The order is the [`Actuator`]'s, and stricter: one failure, and nothing rises.

use litd_units::Watts;
use thiserror::Error;

use crate::actuator::{Actuator, Written};
use crate::envelope::CapVector;

/// What a device may hold whose cap is not known.
const UNKNOWN: Watts = Watts(100_000.0);

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

/// Brings the hardware from the caps it holds to `caps`: decreases first, each read back, then
/// increases, if every decrease was confirmed. `write` sets one device's cap and answers what the
/// device holds afterwards, read back. `held` is what each device holds now and is kept true; a
/// device that refused is taken to hold the higher of old and new.
///
/// Returns every failure; none means that the hardware holds `caps`.
pub fn actuate<E>(
    caps: &CapVector,
    held: &mut [Watts],
    mut write: impl FnMut(usize, Watts) -> Result<Watts, E>,
) -> Vec<ActuationFailure<E>> {
    if caps.len() != held.len() {
        let (caps, held) = (caps.len(), held.len());
        return vec![ActuationFailure::Devices { caps, held }];
    }
    let devices: Vec<usize> = (0..held.len()).collect();
    let lines = held.iter().map(|&cap| (Some(cap), UNKNOWN));
    let mut actuator = Actuator::new(&lines.collect::<Vec<_>>(), caps.budget());
    actuator.steer(&devices, caps);
    let mut failures = Vec::new();
    loop {
        // One at a time: what goes wrong with one decides about the next.
        let next = devices.iter().find_map(|&device| {
            let falls = |at: usize| at == device && !(held[at] <= target(caps, at));
            actuator.due(falls).pop()
        });
        let next = next.or_else(|| match failures.is_empty() {
            true => devices
                .iter()
                .find_map(|&it| actuator.due(|at| at == it).pop()),
            false => None,
        });
        let Some((device, wanted)) = next else { break };
        let answer = write(device, wanted);
        let outcome = actuator.written(device, answer.as_ref().ok().copied());
        match (outcome, answer) {
            (Written::Ignored { wanted, held }, _) => failures.push(ActuationFailure::Ignored {
                device,
                wanted,
                held,
            }),
            (_, Ok(holds)) if !holds.is_finite() => failures.push(ActuationFailure::Ignored {
                device,
                wanted,
                held: holds,
            }),
            (_, Err(cause)) => failures.push(ActuationFailure::Refused {
                device,
                wanted,
                cause,
            }),
            _ => {}
        }
        // A cap that was not known and was not confirmed stays unknown.
        if actuator.held(device).is_some() || held[device].is_finite() {
            held[device] = actuator.most_of(device);
        }
    }
    for device in devices {
        let wanted = target(caps, device);
        if !actuator.is_settled(device) && !actuator.has_failed(device) {
            let held = held[device];
            failures.push(ActuationFailure::Withheld {
                device,
                wanted,
                held,
            });
        }
    }
    failures
}

fn target(caps: &CapVector, device: usize) -> Watts {
    caps.watts(device).unwrap_or(Watts::ZERO)
}
