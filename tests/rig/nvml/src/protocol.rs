//! Requests of the library to the node: one request per line and one answer per line, both JSON, on the socket of
//! `litd_power::simulated`, whose requests have an `op` where these have an `nvml`.

use serde::{Deserialize, Serialize};

/// So many places for MIG instances a GPU has; one is taken where MIG is on.
pub const MIG_INSTANCES: u32 = 7;

/// A request. Devices go by their addresses, numbers are in NVML's units.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "nvml", rename_all = "snake_case")]
pub enum Request {
    /// A session begins.
    Init,
    /// Ends the session.
    Shutdown,
    /// A handle of a GPU is asked for, for the first time in a session.
    Open {
        /// The GPU's address.
        device: String,
    },
    /// Reads all that changes about one GPU.
    Read {
        /// The GPU's address.
        device: String,
    },
    /// `nvmlDeviceSetPowerManagementLimit`.
    SetLimit {
        /// The GPU's address.
        device: String,
        /// The limit.
        milliwatts: u32,
    },
    /// `nvmlDeviceSetPersistenceMode`.
    SetPersistence {
        /// The GPU's address.
        device: String,
        /// Whether it is to be on.
        on: bool,
    },
    /// `nvmlDeviceSetGpuLockedClocks`, in MHz; `None`: `nvmlDeviceResetGpuLockedClocks`.
    LockClocks {
        /// The GPU's address.
        device: String,
        /// The lowest and the highest.
        range: Option<(u32, u32)>,
        /// When the function was called, by the kernel's monotonic clock, ns.
        called: u64,
    },
    /// The same of the memory's clocks.
    LockMemory {
        /// The GPU's address.
        device: String,
        /// The lowest and the highest.
        range: Option<(u32, u32)>,
        /// When the function was called, by the kernel's monotonic clock, ns.
        called: u64,
    },
}

impl Request {
    /// The device that is asked.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        match self {
            Self::Init | Self::Shutdown => None,
            Self::Open { device }
            | Self::Read { device }
            | Self::SetLimit { device, .. }
            | Self::SetPersistence { device, .. }
            | Self::LockClocks { device, .. }
            | Self::LockMemory { device, .. } => Some(device),
        }
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The session has begun, over these GPUs.
    Boards(Vec<Board>),
    /// A GPU's sensors and settings.
    Sensors(Sensors),
    /// Done, according to the driver.
    Done,
    /// Refused with an `nvmlReturn_t`.
    Error(u32),
}

/// Properties of a GPU that never change while a session is open.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Board {
    /// As the kernel writes it: `0000:85:00.0`.
    pub address: String,
    /// `GPU-…`.
    pub uuid: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// Name of the product.
    pub name: String,
    /// Version of the driver.
    pub driver: String,
}

/// Values of a GPU that change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sensors {
    /// Power limit, mW.
    pub limit: u32,
    /// The limit in force, mW.
    pub enforced: u32,
    /// The limit after a reset, mW.
    pub default: u32,
    /// The lowest limit, mW.
    pub lowest: u32,
    /// The highest limit, mW.
    pub highest: u32,
    /// Power over the last second, mW.
    pub power: u32,
    /// Power now (field 186), mW, where the driver knows it.
    pub instant: Option<u32>,
    /// Energy, mJ.
    pub energy: u64,
    /// Temperature, °C.
    pub temperature: u32,
    /// Where it slows down, °C.
    pub slowdown: u32,
    /// Clock of the streaming multiprocessors, MHz.
    pub clock: u32,
    /// Clock event reasons (`nvmlClocksEventReason*`).
    pub reasons: u64,
    /// Persistence mode.
    pub persistence: bool,
    /// Whether MIG is on.
    pub mig: bool,
    /// Processes with a compute context.
    pub compute: Vec<u32>,
    /// Processes with a graphics context.
    pub graphics: Vec<u32>,
    /// Clients of the Multi-Process Service.
    pub mps: Vec<u32>,
}
