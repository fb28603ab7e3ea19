//! The node's NVIDIA driver: what a process is answered that has the stand-in `libnvidia-ml`.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use litd_power::{DeviceKind, Reading, Sharing, Throttle};
use litd_rig_nvml::{Answer, Board, Request, Sensors, code};
use litd_units::Watts;

use crate::fault::Fault;
use crate::hardware::Hardware;
use crate::refused::Refused;

/// How Cargo calls the stand-in.
const BUILT: &str = "liblitd_rig_nvml.so";

/// How NVIDIA calls its library, and so its clients do.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// Clock event reasons (`nvmlClocksEventReason*`).
mod reason {
    pub const SW_POWER_CAP: u64 = 0x4;
    pub const HW_SLOWDOWN: u64 = 0x8;
    pub const SW_THERMAL: u64 = 0x20;
    pub const HW_POWER_BRAKE: u64 = 0x80;
}

/// Puts a `libnvidia-ml.so.1` into `directory` that talks to the node at `socket`. Each directory
/// has a library of its own: one process may have many.
///
/// # Errors
/// The library has not been built, or can't be copied.
pub fn install_nvml(directory: &Path, socket: &Path) -> io::Result<PathBuf> {
    let library = directory.join(LIBRARY);
    fs::copy(built()?, &library)?;
    let mut note = library.clone().into_os_string();
    note.push(".socket");
    fs::write(note, socket.as_os_str().as_encoded_bytes())?;
    Ok(library)
}

/// Puts into `directory` what the PCI bus shows of these GPUs in `/sys` while the driver has them: files of the
/// bus's own, and none of the driver's.
///
/// # Errors
/// They can't be made.
pub fn install_nvidia_bus(
    directory: &Path,
    addresses: impl IntoIterator<Item = String>,
) -> io::Result<PathBuf> {
    let sys = directory.join("nvidia-sys");
    let driver = sys.join("bus/pci/drivers/nvidia");
    fs::create_dir_all(&driver)?;
    for address in addresses {
        let device = sys.join("bus/pci/devices").join(address);
        fs::create_dir_all(&device)?;
        for (name, text) in [
            ("vendor", "0x10de"),
            ("device", "0x2330"),
            ("class", "0x030200"),
        ] {
            fs::write(device.join(name), format!("{text}\n"))?;
        }
        symlink(&driver, device.join("driver"))?;
    }
    Ok(sys)
}

/// Cargo puts it beside the program that depends on this crate, or into `deps` there.
fn built() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    let places = program.ancestors().skip(1).take(2);
    let mut candidates =
        places.flat_map(|place| [place.join("deps").join(BUILT), place.join(BUILT)]);
    candidates.find(|path| path.exists()).ok_or_else(|| {
        let text = format!("{BUILT} is not beside {}", program.display());
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

/// The driver, as far as it is more than its devices.
#[derive(Debug, Default)]
pub struct NvidiaDriver {
    /// The error of `nvmlInit`, if it opens no session.
    pub refuses: Option<u32>,
    /// How long `nvmlInit` takes.
    pub init_takes: Duration,
    /// Settings of each GPU.
    pub gpus: Vec<NvidiaGpu>,
    sessions: u64,
    clients: u64,
}

/// Properties of an NVIDIA GPU that other devices do not have.
#[derive(Debug, Clone, PartialEq)]
pub struct NvidiaGpu {
    /// Persistence mode.
    pub persistence: bool,
    /// Clocks that the multiprocessors are locked to, MHz.
    pub clocks: Option<(u32, u32)>,
    /// The clock locks so far, in order; `None`: unlocked.
    pub locks: Vec<Option<(u32, u32)>>,
    /// When NVML's function for that was called last, by the kernel's monotonic clock, ns.
    pub locked_at: u64,
    /// Clocks that the memory is locked to, MHz.
    pub memory: Option<(u32, u32)>,
    /// The memory clock locks so far, in order; `None`: unlocked.
    pub memory_locks: Vec<Option<(u32, u32)>>,
    /// Clock event reasons, if not those of the plant.
    pub reasons: Option<u64>,
    /// Whether the driver tells the power of the moment (field 186).
    pub instant: bool,
    /// The power reported as the average of the last second, if different.
    pub average: Option<Watts>,
    /// Processes with a graphics context.
    pub graphics: Vec<u32>,
    /// How many NVML clients have it open: while there are any, it can't be reset.
    pub clients: u64,
}

impl Default for NvidiaGpu {
    fn default() -> Self {
        Self {
            persistence: true,
            clocks: None,
            locks: Vec::new(),
            locked_at: 0,
            memory: None,
            memory_locks: Vec::new(),
            reasons: None,
            instant: true,
            average: None,
            graphics: Vec::new(),
            clients: 0,
        }
    }
}

impl NvidiaDriver {
    pub(crate) fn new(gpus: usize) -> Self {
        Self {
            gpus: vec![NvidiaGpu::default(); gpus],
            ..Self::default()
        }
    }

    /// How many sessions there have been.
    #[must_use]
    pub fn sessions(&self) -> u64 {
        self.sessions
    }

    /// How many processes have a session now.
    #[must_use]
    pub fn clients(&self) -> u64 {
        self.clients
    }
}

impl Hardware {
    pub(crate) fn answer_nvml(&mut self, request: &Request) -> Answer {
        self.try_nvml(request).unwrap_or_else(Answer::Error)
    }

    /// A client has opened a GPU.
    pub(crate) fn attach(&mut self, address: &str) {
        if let Some(gpu) = self.gpu_at(address) {
            gpu.clients += 1;
        }
    }

    /// A client has closed the GPU. Without persistence mode the driver forgets the cap of a GPU that no program
    /// has open.
    pub(crate) fn detach(&mut self, address: &str) {
        let Some(gpu) = self.gpu_at(address) else {
            return;
        };
        gpu.clients = gpu.clients.saturating_sub(1);
        let forgets = gpu.clients == 0 && !gpu.persistence;
        if let Some(device) = self.find(address)
            && forgets
            && self.holders(device).is_empty()
        {
            let _ = self.reset(device);
        }
    }

    fn gpu_at(&mut self, address: &str) -> Option<&mut NvidiaGpu> {
        let gpu = self.find(address)?;
        self.nvidia_mut().gpus.get_mut(gpu)
    }

    fn try_nvml(&mut self, request: &Request) -> Result<Answer, u32> {
        let gpu = match request.device() {
            Some(address) => self.nvidia_gpu(address)?,
            None => 0,
        };
        match request {
            Request::Init => return self.begin(),
            Request::Open { .. } => {}
            Request::Shutdown => {
                let driver = self.nvidia_mut();
                driver.clients = driver.clients.saturating_sub(1);
            }
            Request::Read { .. } => return Ok(Answer::Sensors(self.sensors(gpu)?)),
            Request::SetLimit { milliwatts, .. } => {
                let cap = Watts(f64::from(*milliwatts) / 1e3);
                self.set_cap(gpu, cap)
                    .map_err(|refused| returned(&refused))?;
            }
            Request::SetPersistence { on, .. } => self.setting(gpu)?.persistence = *on,
            Request::LockClocks { range, called, .. } => {
                self.lock_clocks(gpu, *range)
                    .map_err(|refused| returned(&refused))?;
                self.setting(gpu)?.locked_at = *called;
            }
            Request::LockMemory { range, .. } => {
                let settings = self.setting(gpu)?;
                settings.memory = *range;
                settings.memory_locks.push(*range);
            }
        }
        Ok(Answer::Done)
    }

    fn begin(&mut self) -> Result<Answer, u32> {
        if let Some(code) = self.nvidia().refuses {
            return Err(code);
        }
        let driver = self.nvidia_mut();
        driver.sessions += 1;
        driver.clients += 1;
        let listed = (0..self.len()).filter_map(|device| self.listed(device));
        let boards = listed
            .map(|listed| listed.identity)
            .filter(|identity| identity.kind == DeviceKind::Gpu)
            .map(|identity| Board {
                address: identity.address,
                uuid: identity.uuid,
                serial: identity.serial,
                name: identity.model,
                driver: identity.driver,
            });
        Ok(Answer::Boards(boards.collect()))
    }

    fn nvidia_gpu(&self, address: &str) -> Result<usize, u32> {
        let gpu = self
            .find(address)
            .filter(|gpu| *gpu < self.nvidia().gpus.len());
        let gpu = gpu.ok_or(code::NOT_FOUND)?;
        self.reachable(gpu).map_err(|refused| returned(&refused))?;
        Ok(gpu)
    }

    /// The GPU of an administrator's call that changes a setting.
    fn setting(&mut self, gpu: usize) -> Result<&mut NvidiaGpu, u32> {
        match self.fault(gpu) {
            Some(Fault::NoPermission) => return Err(code::NO_PERMISSION),
            Some(Fault::Refuse) => return Err(code::UNKNOWN),
            _ => {}
        }
        self.nvidia_mut().gpus.get_mut(gpu).ok_or(code::NOT_FOUND)
    }

    fn sensors(&self, gpu: usize) -> Result<Sensors, u32> {
        let settings = self.nvidia().gpus.get(gpu).ok_or(code::NOT_FOUND)?;
        let listed = self.listed(gpu).ok_or(code::NOT_FOUND)?;
        let reading = self.reading(gpu).ok_or(code::NOT_FOUND)?;
        let sharing = listed.identity.sharing;
        let power = reading.power.unwrap_or_default();
        let holders = self.holders(gpu).into_owned();
        let (compute, mps) = match sharing {
            Sharing::Mps => (Vec::new(), holders),
            _ => (holders, Vec::new()),
        };
        Ok(Sensors {
            limit: milliwatts(reading.cap),
            enforced: milliwatts(reading.enforced.unwrap_or(reading.cap)),
            default: milliwatts(listed.range.default),
            lowest: milliwatts(listed.range.lowest),
            highest: milliwatts(listed.range.highest),
            power: milliwatts(settings.average.unwrap_or(power)),
            instant: settings.instant.then_some(milliwatts(power)),
            energy: (reading.energy.unwrap_or_default().0 * 1e3) as u64,
            temperature: reading.temperature.unwrap_or_default().0.round() as u32,
            slowdown: reading.slowdown.unwrap_or_default().0.round() as u32,
            clock: (reading.clock.unwrap_or_default().0 / 1e6).round() as u32,
            reasons: settings.reasons.unwrap_or_else(|| reasons(&reading)),
            persistence: settings.persistence,
            mig: sharing == Sharing::Mig,
            compute,
            graphics: settings.graphics.clone(),
            mps,
        })
    }
}

fn milliwatts(watts: Watts) -> u32 {
    (watts.0 * 1e3).round() as u32
}

fn reasons(reading: &Reading) -> u64 {
    let power = match reading.power_limited {
        Some(true) => reason::SW_POWER_CAP,
        _ => 0,
    };
    power
        | match reading.throttle {
            Some(Throttle::Heat) => reason::SW_THERMAL,
            Some(Throttle::PowerBrake) => reason::HW_SLOWDOWN | reason::HW_POWER_BRAKE,
            Some(Throttle::Hardware) => reason::HW_SLOWDOWN,
            _ => 0,
        }
}

/// The return code of a refusal.
fn returned(refused: &Refused) -> u32 {
    match refused {
        Refused::Unknown => code::NOT_FOUND,
        Refused::Gone => code::GPU_IS_LOST,
        Refused::Permission => code::NO_PERMISSION,
        Refused::Reset => code::RESET_REQUIRED,
        Refused::Locked => code::NOT_SUPPORTED,
        Refused::Range { .. } => code::INVALID_ARGUMENT,
        Refused::Firmware | Refused::Plant(_) => code::UNKNOWN,
    }
}
