//! What can be wrong with a simulated device.

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
    /// Everything is done at once, and the answer is held back for so long.
    Block(Duration),
    /// Everything is done, and answered, so much later.
    Slow(Duration),
    /// The device is not there.
    Gone,
    /// Caps are taken and power does not follow them: it reads as the highest cap.
    Overdraw,
    /// Nobody may write; reads work.
    NoPermission,
    /// It is being reset: the driver neither writes nor reads until that is over.
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
    /// Somebody else sets this cap right after litd's next write, before litd reads it back.
    Meddle(Watts),
    /// It is too hot, and slower for that than its cap would let it be.
    Heat,
    /// The system pulls the power brake.
    PowerBrake,
    /// Something else (firmware, BMC) holds it to so much, whatever the cap.
    Enforced(Watts),
}
