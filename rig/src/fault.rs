//! What can be wrong with a simulated device.

use std::time::Duration;

/// A fault of one device, in force until it is healed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Every write is refused; reads work.
    Refuse,
    /// Every write is reported done and changes nothing.
    Lie,
    /// Everything is done at once, and the answer is held back for so long.
    Block(Duration),
    /// Everything is done, and answered, so much later.
    Slow(Duration),
    /// The device is not there.
    Gone,
    /// Caps are taken and power does not follow them: it reads as the highest cap.
    Overdraw,
}
