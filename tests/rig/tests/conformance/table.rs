//! The back ends.

use litd_power::{DeviceKind, Source};
use litd_rig_sysfs::{Board, Cpus, MI210, Metrics};

use crate::stand::{Drivers, Library};

/// The rig's third GPU and second socket, so that a back end that mixes devices up is seen.
pub const GPU: usize = 2;
pub const CPU: usize = 9;

/// A back end, the device that is tried, and what it can tell of it.
#[derive(Debug, Clone)]
pub struct Row {
    /// The back end's name for itself.
    pub backend: &'static str,
    /// The source of devices among which it is looked for.
    pub source: Option<Source>,
    /// The drivers under it.
    pub drivers: Drivers,
    /// The number of the rig's device that is tried.
    pub device: usize,
    /// The unit of caps, in watts.
    pub resolution: f64,
    /// The abilities of the back end.
    pub tells: Tells,
    /// The kind of error of a locked device.
    pub locked: &'static str,
    /// Whether it waits for a slow driver, and works as soon as its device does. Else there is a
    /// deadline, and a process that is started anew.
    pub waits: bool,
}

/// The abilities of a back end, if its driver has them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tells {
    /// The lowest cap that the driver takes.
    pub lowest: bool,
    /// The highest cap that the vendor means; else the range ends where the register does.
    pub highest: bool,
    /// Power, without having to count energy.
    pub power: bool,
    /// Energy.
    pub energy: bool,
    /// Temperature.
    pub temperature: bool,
    /// Clock.
    pub clock: bool,
    /// Whether power limits it, and what else does.
    pub limiter: bool,
    /// A limit lower than the one that is set.
    pub enforced: bool,
    /// Reports that a device is gone, rather than an unknown error.
    pub gone: bool,
    /// Reports that a device is in reset, rather than an unknown error.
    pub reset: bool,
    /// The processes that hold it.
    pub holders: bool,
    /// Clocks that can be locked.
    pub locks: bool,
}

impl Row {
    pub fn kind(&self) -> DeviceKind {
        match self.device {
            0..8 => DeviceKind::Gpu,
            _ => DeviceKind::Cpu,
        }
    }

    /// The address that litd is to know it by.
    pub fn address(&self) -> String {
        match self.device.checked_sub(8) {
            None => litd_rig::gpu_address(self.device),
            Some(socket) => format!("cpu{socket}"),
        }
    }
}

/// litd's own stand-in behind a socket: what all others are compared with.
pub fn simulated_gpu() -> Row {
    Row {
        backend: "simulated",
        source: None,
        drivers: Drivers::Node,
        device: GPU,
        resolution: 1.0,
        tells: Tells {
            lowest: true,
            highest: true,
            power: true,
            energy: true,
            temperature: true,
            clock: true,
            limiter: true,
            enforced: true,
            gone: true,
            reset: true,
            holders: true,
            locks: true,
        },
        locked: "driver",
        waits: true,
    }
}

pub fn simulated_cpu() -> Row {
    Row {
        device: CPU,
        tells: Tells {
            locks: false,
            temperature: false,
            clock: false,
            limiter: false,
            ..simulated_gpu().tells
        },
        ..simulated_gpu()
    }
}

/// MI300X.
pub fn amdgpu() -> Row {
    Row {
        backend: "amdgpu",
        source: Some(Source::Amd),
        drivers: Drivers::Files(Board::default()),
        // A virtual function is refused like a value out of range.
        locked: "driver",
        tells: Tells {
            enforced: false,
            ..simulated_gpu().tells
        },
        ..simulated_gpu()
    }
}

/// MI200, whose table of metrics is another.
fn mi200() -> Board {
    Board {
        model: MI210,
        metrics: Metrics::V1_3,
        ..Board::default()
    }
}

pub fn amdgpu_mi200() -> Row {
    Row {
        drivers: Drivers::Files(mi200()),
        tells: Tells {
            locks: false,
            // Counted in a unit that its table does not name.
            energy: false,
            ..amdgpu().tells
        },
        ..amdgpu()
    }
}

/// An Intel socket.
pub fn powercap() -> Row {
    Row {
        backend: "powercap",
        source: Some(Source::Cpus),
        drivers: Drivers::Files(Board {
            amdgpu: false,
            cpus: Cpus::Powercap,
            ..Board::default()
        }),
        // Whole watts are whole units in all of the units that there are.
        resolution: 1.0,
        tells: Tells {
            lowest: false,
            energy: true,
            gone: true,
            ..Tells::default()
        },
        ..simulated_cpu()
    }
}

/// An EPYC socket on a newer kernel; powercap counts its energy.
pub fn hsmp_hwmon() -> Row {
    Row {
        backend: "hsmp",
        drivers: Drivers::Files(Board::default()),
        resolution: 1.0,
        tells: Tells {
            highest: true,
            power: true,
            energy: true,
            gone: true,
            reset: true,
            ..Tells::default()
        },
        ..powercap()
    }
}

/// An EPYC socket behind `/dev/hsmp`.
pub fn hsmp_device() -> Row {
    Row {
        drivers: Drivers::Files(Board {
            cpus: Cpus::HsmpDevice,
            ..Board::default()
        }),
        ..hsmp_hwmon()
    }
}

/// An NVIDIA GPU, behind a library that stands in for `libnvidia-ml`.
pub fn nvml() -> Row {
    Row {
        backend: "nvml",
        source: Some(Source::Nvidia),
        drivers: Drivers::Nvml,
        tells: Tells {
            // A GPU that wants a reset counts as gone until it has had it.
            reset: false,
            ..simulated_gpu().tells
        },
        ..simulated_gpu()
    }
}

/// The real `librocm_smi64` of Debian, in processes of their own: files that cover `/sys`.
pub fn rocm_smi() -> Row {
    Row {
        backend: "rocm_smi",
        drivers: Drivers::Library(Library::RocmSmi, mi200()),
        waits: false,
        tells: Tells {
            locks: false,
            // The library's structures differ between its versions: scalar calls alone.
            clock: false,
            limiter: false,
            enforced: false,
            // The GPU is not in the library's list then.
            gone: false,
            ..simulated_gpu().tells
        },
        ..amdgpu_mi200()
    }
}

/// ROCm SMI 6.1.
pub fn rocm_smi_of_trixie() -> Row {
    Row {
        drivers: Drivers::Library(Library::RocmSmiOf("amd-trixie"), mi200()),
        ..rocm_smi()
    }
}

/// ROCm SMI 6.4 and later, whose mutexes may be a process's own, on MI300X, whose metrics older ones don't know.
pub fn rocm_smi_of_sid() -> Row {
    Row {
        drivers: Drivers::Library(Library::RocmSmiOf("amd-sid"), Board::default()),
        ..rocm_smi()
    }
}

/// AMD SMI 27, on MI300X.
pub fn amd_smi_of_sid() -> Row {
    Row {
        backend: "amd_smi",
        drivers: Drivers::Library(Library::AmdSmiOf("amd-sid"), Board::default()),
        ..rocm_smi()
    }
}
