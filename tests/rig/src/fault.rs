//! Faults of a simulated device.

use std::time::Duration;

use litd_units::Watts;

/// A fault of one device, in force until it is healed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// Every write is refused; reads work.
    Refuse,
    /// Every write is refused, and the last of them is done all the same once [`crate::Hardware::land`] says so.
    Postpone,
    /// Every write is reported done and changes nothing.
    Lie,
    /// Calls take effect at once, and the answer is held back for so long.
    Block(Duration),
    /// Calls take effect, and are answered, so much later.
    Slow(Duration),
    /// The device is not there.
    Gone,
    /// Caps are taken and power does not follow them: it reads as the highest cap.
    Overdraw,
    /// Writes are refused for lack of permission; reads work.
    NoPermission,
    /// The device is in reset: the driver neither writes nor reads until the reset is over.
    InReset,
    /// Writes are reported done and the cap reads as what was written last, from the driver's
    /// memory; the device keeps another.
    Cached,
    /// Firmware or BIOS has locked the cap: every write is refused, for as long as the node runs.
    Locked,
    /// The driver can't tell what its cap may be; all else works.
    NoRange,
    /// Readings tell so much more than the cap that it holds, and twice that, in turn.
    Fickle(Watts),
    /// A foreign writer sets this cap right after litd's next write, before litd reads it back.
    Meddle(Watts),
    /// The device is too hot, and therefore slower than its cap would allow.
    Heat,
    /// The system pulls the power brake.
    PowerBrake,
    /// Firmware or BMC limits it to so much, whatever the cap.
    Enforced(Watts),
}
