//! The return codes that the stand-in knows (`nvmlReturn_t`).

/// Done.
pub const SUCCESS: u32 = 0;
/// No session is open.
pub const UNINITIALIZED: u32 = 1;
/// An argument is not valid, or a value is out of range.
pub const INVALID_ARGUMENT: u32 = 2;
/// The device knows no such thing.
pub const NOT_SUPPORTED: u32 = 3;
/// The user may not.
pub const NO_PERMISSION: u32 = 4;
/// There is no such object.
pub const NOT_FOUND: u32 = 6;
/// The caller's buffer is too small.
pub const INSUFFICIENT_SIZE: u32 = 7;
/// There is no driver.
pub const DRIVER_NOT_LOADED: u32 = 9;
/// The device has fallen off the bus.
pub const GPU_IS_LOST: u32 = 15;
/// The device must be reset, or is being reset.
pub const RESET_REQUIRED: u32 = 16;
/// The system or a cgroup denies it.
pub const OPERATING_SYSTEM: u32 = 17;
/// Library and driver are of different versions.
pub const LIB_RM_VERSION_MISMATCH: u32 = 18;
/// The device is in use.
pub const IN_USE: u32 = 19;
/// Unknown error.
pub const UNKNOWN: u32 = 999;
