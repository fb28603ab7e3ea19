//! Devices that take their time.

use std::time::Duration;

use crate::fault::Fault;
use crate::hardware::{Hardware, SharedHardware};
use crate::lock;

/// Does something with the hardware when `device`'s fault lets it: later where that is slow, and
/// returning later where that blocks. Until then the caller waits, but for no longer than until
/// the device is mended or `stopped`; what ends the latter rings [`Hardware::ring`].
pub fn delayed<T>(
    hardware: &SharedHardware,
    device: Option<usize>,
    stopped: impl Fn() -> bool,
    act: impl FnOnce(&mut Hardware) -> T,
) -> T {
    let fault = device.and_then(|device| lock(hardware).fault(device));
    let wait = |time: Duration| {
        let locked = lock(hardware);
        let changed = locked.changed();
        let _ = changed.wait_timeout_while(locked, time, |hardware| {
            let now = device.and_then(|device| hardware.fault(device));
            now == fault && !stopped()
        });
    };
    if let Some(Fault::Slow(time)) = fault {
        wait(time);
    }
    let answer = act(&mut lock(hardware));
    if let Some(Fault::Block(time)) = fault {
        wait(time);
    }
    answer
}
