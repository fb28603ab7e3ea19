//! The node's devices: a simulated plant, what a driver would tell of it, and the ledger.

use std::borrow::Cow;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use litd_power::simulated::{Answer, Listed, Outcome, Request};
use litd_power::{CapRange, DeviceKind, Identity, ReadBack, Reading, Sharing, Throttle};
use litd_sim::{CpuTelemetry, GpuTelemetry, Limiter, Plant, PlantError, Scenario};
use litd_units::{Hertz, Joules, Millis, Watts};

use crate::fault::Fault;
use crate::ledger::{Author, Change, Ledger};
use crate::nvidia::NvidiaDriver;
use crate::refused::Refused;
use crate::rules::Bounds;

/// The back end's name in every identity: nobody is to take these devices for real ones.
const BACKEND: &str = "simulated";

/// All devices of a node: GPUs first, then CPU sockets, counted from 0 over both.
#[derive(Debug)]
pub struct Hardware {
    plant: Plant,
    devices: Vec<Device>,
    ledger: Ledger,
    nvidia: NvidiaDriver,
    /// Rings when a fault comes or goes, for whoever waits because of one.
    changed: Arc<Condvar>,
    revision: u64,
}

#[derive(Debug)]
struct Device {
    identity: Identity,
    range: CapRange,
    holders: Holders,
    energy: Joules,
    fault: Option<Fault>,
    /// A requested cap that takes effect later.
    postponed: Option<Postponed>,
    /// The cap that the driver remembers to have written while it is [`Fault::Cached`].
    cached: Option<Watts>,
    /// How often it has come back after it was gone.
    generation: u64,
    residency: Residency,
    /// How often litd has read it.
    reads: u64,
    releases: u64,
}

/// The processes that use a device.
#[derive(Debug)]
enum Holders {
    Listed(Vec<u32>),
    /// All processes of the user who runs this one, those that start later included.
    OwnUser,
}

impl Holders {
    fn pids(&self) -> Cow<'_, [u32]> {
        match self {
            Self::Listed(pids) => pids.into(),
            Self::OwnUser => own_processes().into(),
        }
    }
}

/// The processes of the user who runs this one. Without procfs there are none.
fn own_processes() -> Vec<u32> {
    let user_of = |process: &Path| fs::metadata(process).map(|it| it.uid());
    let Ok(own) = user_of(Path::new("/proc/self")) else {
        return Vec::new();
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|process| user_of(&process.path()).is_ok_and(|uid| uid == own))
        .filter_map(|process| process.file_name().to_str()?.parse().ok())
        .collect()
}

/// For how much of a device's time which limiter held it back, since the node was switched on.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Residency {
    /// The whole time.
    pub total: Millis,
    /// Time held back by its cap.
    pub power: Millis,
    /// Time held back by its temperature.
    pub heat: Millis,
    /// The system's power brake.
    pub brake: Millis,
}

/// Hardware as the node's threads and the tests share it.
pub type SharedHardware = Arc<Mutex<Hardware>>;

impl Hardware {
    /// Switches a node on. GPUs are used by this process, CPU sockets by none.
    ///
    /// # Errors
    /// The scenario makes no sense.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<Self, PlantError> {
        let plant = Plant::new(scenario, seed)?;
        let gpus = (0..plant.gpu_count()).map(|index| Device {
            holders: Holders::Listed(vec![std::process::id()]),
            ..Device::new(gpu_identity(index), gpu_range(scenario))
        });
        let cpus = scenario.cpus.iter().enumerate().map(|(index, cpu)| {
            let range = CapRange {
                lowest: cpu.floor,
                highest: cpu.limit,
                default: cpu.limit,
                resolution: scenario.caps.resolution,
            };
            Device::new(cpu_identity(index), range)
        });
        let devices: Vec<Device> = gpus.chain(cpus).collect();
        let bounds = devices.iter().map(|device| Bounds {
            floor: device.range.lowest,
            ceiling: device.range.highest,
        });
        let ledger = Ledger::open(plant.gpu_count(), held(&plant), bounds.collect());
        Ok(Self {
            nvidia: NvidiaDriver::new(plant.gpu_count()),
            plant,
            devices,
            ledger,
            changed: Arc::default(),
            revision: 0,
        })
    }

    /// For [`crate::Node::start`].
    #[must_use]
    pub fn shared(self) -> SharedHardware {
        Arc::new(Mutex::new(self))
    }

    /// The simulated node. Its caps change through this type only.
    #[must_use]
    pub fn plant(&self) -> &Plant {
        &self.plant
    }

    /// The ledger.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.ledger.clone()
    }

    /// The NVIDIA driver, for whoever loads the stand-in library.
    #[must_use]
    pub fn nvidia(&self) -> &NvidiaDriver {
        &self.nvidia
    }

    /// The same, for tests to change.
    pub fn nvidia_mut(&mut self) -> &mut NvidiaDriver {
        &mut self.nvidia
    }

    /// Runs one training iteration on all GPUs.
    pub fn run_iteration(&mut self) {
        let length = self.plant.run_iteration().length;
        let gpus = self.plant.gpus().map(|gpu| (gpu.power, gpu.limiter));
        let cpus = self.plant.cpus().map(|cpu| (cpu.draw, Limiter::None));
        for (device, (power, limiter)) in self.devices.iter_mut().zip(gpus.chain(cpus)) {
            device.energy += Joules(power.0 * length.0 / 1e3);
            device.residency.total += length;
            let held_back = match (device.fault, limiter) {
                (Some(Fault::PowerBrake), _) => &mut device.residency.brake,
                (Some(Fault::Heat), _) | (_, Limiter::Thermal) => &mut device.residency.heat,
                (_, Limiter::Power) => &mut device.residency.power,
                (_, Limiter::None) => continue,
            };
            *held_back += length;
        }
    }

    /// The node's GPUs and workload are those of another scenario from now on; caps, locks and
    /// temperatures go on.
    ///
    /// # Errors
    /// The scenario makes no sense, or has another number of GPUs.
    pub fn change(&mut self, scenario: &Scenario) -> Result<(), PlantError> {
        self.plant.change(scenario)
    }

    /// Jumps to the thermal steady state of the present caps; no time passes.
    pub fn settle(&mut self) {
        self.plant.settle();
    }

    /// The device with this address.
    #[must_use]
    pub fn find(&self, address: &str) -> Option<usize> {
        self.devices
            .iter()
            .position(|device| device.identity.address == address)
    }

    /// A device's identity, for tests to change: another serial, another way of sharing.
    pub fn identity_mut(&mut self, device: usize) -> Option<&mut Identity> {
        self.revision += 1;
        self.devices
            .get_mut(device)
            .map(|device| &mut device.identity)
    }

    /// A device's cap range, for tests to change: drivers may report another one after a reset.
    pub fn range_mut(&mut self, device: usize) -> Option<&mut CapRange> {
        self.revision += 1;
        self.devices.get_mut(device).map(|device| &mut device.range)
    }

    /// A device's identity and cap range.
    #[must_use]
    pub fn listed(&self, device: usize) -> Option<Listed> {
        self.devices.get(device).map(Device::listed)
    }

    /// A device's cap and measurements now.
    #[must_use]
    pub fn reading(&self, device: usize) -> Option<Reading> {
        let state = self.devices.get(device)?;
        let gpus = self.plant.gpu_count();
        let mut reading = match device.checked_sub(gpus) {
            None => gpu_reading(&self.plant.gpu(device).ok()?),
            Some(cpu) => cpu_reading(&self.plant.cpus().nth(cpu)?),
        };
        reading.energy = Some(state.energy);
        state.distort(&mut reading);
        Some(reading)
    }

    /// The time for which each reason has held a device back so far.
    #[must_use]
    pub fn residency(&self, device: usize) -> Residency {
        self.devices
            .get(device)
            .map_or_else(Residency::default, |device| device.residency)
    }

    /// The processes that use a device.
    #[must_use]
    pub fn holders(&self, device: usize) -> Cow<'_, [u32]> {
        let device = self.devices.get(device);
        device.map_or_else(Cow::default, |device| device.holders.pids())
    }

    /// How many devices there are, GPUs and CPU sockets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.devices.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// How often anything has changed by hand: faults, identities, ranges, holders. What a
    /// stand-in has made of them is good for as long as this stays.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// How often a device has come back after [`Fault::Gone`]: handles from before are dead.
    #[must_use]
    pub fn generation(&self, device: usize) -> u64 {
        self.devices
            .get(device)
            .map_or(0, |device| device.generation)
    }

    /// Sets which processes use a device.
    pub fn set_holders(&mut self, device: usize, pids: Vec<u32>) {
        self.revision += 1;
        if let Some(device) = self.devices.get_mut(device) {
            device.holders = Holders::Listed(pids);
        }
    }

    /// From now on a device counts as used by every process of the user who runs this one.
    pub fn accept_any(&mut self, device: usize) {
        self.revision += 1;
        if let Some(device) = self.devices.get_mut(device) {
            device.holders = Holders::OwnUser;
        }
    }

    /// How often litd has let go of a device.
    #[must_use]
    pub fn releases(&self, device: usize) -> u64 {
        self.devices.get(device).map_or(0, |device| device.releases)
    }

    /// Breaks a device; a fault that it had is replaced.
    pub fn inject(&mut self, device: usize, fault: Fault) {
        self.set_fault(device, Some(fault));
    }

    /// Mends a device. Answers that a fault held back go out at once.
    pub fn heal(&mut self, device: usize) {
        self.set_fault(device, None);
    }

    fn set_fault(&mut self, device: usize, fault: Option<Fault>) {
        self.revision += 1;
        if let Some(device) = self.devices.get_mut(device) {
            let was_gone = device.fault == Some(Fault::Gone);
            device.generation += u64::from(was_gone && fault != Some(Fault::Gone));
            device.fault = fault;
            device.cached = None;
        }
        self.changed.notify_all();
    }

    /// The fault that a device has.
    #[must_use]
    pub fn fault(&self, device: usize) -> Option<Fault> {
        self.devices.get(device)?.fault
    }

    pub(crate) fn changed(&self) -> Arc<Condvar> {
        self.changed.clone()
    }

    /// Has whoever waits because of a fault look anew whether to go on: see [`crate::delayed`].
    pub fn ring(&self) {
        self.changed.notify_all();
    }

    /// A foreign writer on the node sets a cap, past litd and past the device's fault.
    ///
    /// # Errors
    ///
    /// No such device, or it refuses the cap.
    pub fn foreign_set(&mut self, device: usize, cap: Watts) -> Result<Watts, PlantError> {
        self.write(device, cap, Author::Foreign)
    }

    /// The job comes to ask for so much of a CPU socket's power.
    ///
    /// # Errors
    /// No such socket, or a power that is none.
    pub fn set_cpu_draw(&mut self, socket: usize, draw: Watts) -> Result<(), PlantError> {
        self.plant.set_cpu_draw(socket, draw)
    }

    /// The device is reset, or its driver loaded anew: the cap is the driver's default, and its energy counter
    /// begins anew.
    ///
    /// # Errors
    /// No such device.
    pub fn reset(&mut self, device: usize) -> Result<Watts, PlantError> {
        let default = match self.devices.get_mut(device) {
            Some(device) => {
                device.energy = Joules::ZERO;
                device.range.default
            }
            None => Watts::ZERO,
        };
        self.write(device, default, Author::Reset)
    }

    fn write(&mut self, device: usize, cap: Watts, author: Author) -> Result<Watts, PlantError> {
        let result = match device.checked_sub(self.plant.gpu_count()) {
            None => self.plant.set_gpu_cap(device, cap),
            Some(cpu) => self.plant.set_cpu_limit(cpu, cap),
        };
        self.record(device, cap, author, result.is_ok());
        result
    }

    fn record(&self, device: usize, asked: Watts, author: Author, accepted: bool) {
        self.ledger.record(&Change {
            device,
            author,
            asked,
            accepted,
            held: &held(&self.plant),
        });
    }

    /// Does what litd asks, as far as the device's fault lets it.
    pub(crate) fn answer(&mut self, request: &Request) -> Answer {
        let result = match request {
            Request::Inventory => Ok(Outcome::Devices(
                self.devices.iter().map(Device::listed).collect(),
            )),
            Request::Read { device } => self.on(device, |hardware, index| {
                hardware.devices[index].reads += 1;
                let reading = hardware.reading(index);
                reading.map(Outcome::Reading).ok_or(Refused::Unknown)
            }),
            Request::Range { device } => {
                self.on(device, |hardware, index| match hardware.fault(index) {
                    Some(Fault::NoRange) => Err(Refused::Reset),
                    _ => Ok(Outcome::Range(hardware.devices[index].range)),
                })
            }
            Request::Holders { device } => self.on(device, |hardware, index| {
                Ok(Outcome::Pids(hardware.holders(index).into_owned()))
            }),
            Request::HighestClock { device } => self.on(device, |hardware, index| {
                let clock = hardware.plant.gpu_highest_clock(index);
                clock
                    .map(Outcome::Clock)
                    .map_err(|error| Refused::Plant(error.to_string()))
            }),
            Request::Release { device } => self.on(device, |hardware, index| {
                hardware.devices[index].releases += 1;
                Ok(Outcome::Done(true))
            }),
            Request::Clocks { device, hertz } => self.on(device, |hardware, index| {
                let megahertz = |clock: Hertz| (clock.0 / 1e6).round() as u32;
                let range = hertz.map(|(low, high)| (megahertz(low), megahertz(high)));
                hardware.lock_clocks(index, range)?;
                Ok(Outcome::Done(true))
            }),
            Request::Set { device, watts } => self.on(device, |hardware, index| {
                hardware.set_cap(index, *watts)?;
                hardware.meddle(index)?;
                Ok(Outcome::Done(true))
            }),
        };
        match result {
            Ok(outcome) => Answer::Good(outcome),
            Err(refused) => Answer::Bad(refused.into()),
        }
    }

    /// A foreign writer that has waited for litd's write.
    fn meddle(&mut self, device: usize) -> Result<(), Refused> {
        let Some(Fault::Meddle(cap)) = self.fault(device) else {
            return Ok(());
        };
        self.heal(device);
        let meddled = self.foreign_set(device, cap);
        meddled.map_err(|error| Refused::Plant(error.to_string()))?;
        Ok(())
    }

    fn on(
        &mut self,
        address: &str,
        act: impl FnOnce(&mut Self, usize) -> Result<Outcome, Refused>,
    ) -> Result<Outcome, Refused> {
        let device = self.find(address).ok_or(Refused::Unknown)?;
        self.reachable(device)?;
        act(self, device)
    }

    /// Whether the driver answers for a device at all.
    ///
    /// # Errors
    /// [`Refused`]: there is no such device, or it is gone or being reset.
    pub fn reachable(&self, device: usize) -> Result<(), Refused> {
        match self.devices.get(device).ok_or(Refused::Unknown)?.fault {
            Some(Fault::Gone) => Err(Refused::Gone),
            Some(Fault::InReset) => Err(Refused::Reset),
            _ => Ok(()),
        }
    }

    /// Does with a requested cap what the driver does: cuts it off to whole units, as far as the device's fault
    /// lets it. Every request is in the ledger.
    ///
    /// # Errors
    ///
    /// [`Refused`]; the cap is as it was.
    pub fn set_cap(&mut self, device: usize, asked: Watts) -> Result<(), Refused> {
        let (state, cap) = match self.admit(device, asked) {
            Ok(admitted) => admitted,
            Err(refused) => {
                if self.fault(device) == Some(Fault::Postpone) {
                    self.devices[device].postponed = Some(Postponed::Cap(asked));
                }
                self.record(device, asked, Author::Litd, false);
                return Err(refused);
            }
        };
        match state.fault {
            Some(Fault::Lie) => {}
            Some(Fault::Cached) => state.cached = Some(cap),
            _ => {
                let written = self.write(device, cap, Author::Litd);
                return written
                    .map(|_| ())
                    .map_err(|error| Refused::Plant(error.to_string()));
            }
        }
        self.record(device, asked, Author::Litd, true);
        Ok(())
    }

    /// A device does the write that it has postponed, if there is one.
    ///
    /// # Errors
    /// As [`Self::set_cap`].
    pub fn land(&mut self, device: usize) -> Result<(), Refused> {
        self.heal(device);
        let state = self.devices.get_mut(device).ok_or(Refused::Unknown)?;
        match state.postponed.take() {
            Some(Postponed::Cap(asked)) => self.set_cap(device, asked),
            Some(Postponed::Clocks(range)) => self.lock_clocks(device, Some(range)),
            None => Ok(()),
        }
    }

    /// Locks the clocks of a GPU's multiprocessors, in MHz, or lets the driver choose them.
    ///
    /// # Errors
    /// [`Refused`]; they are as they were.
    pub fn lock_clocks(
        &mut self,
        device: usize,
        megahertz: Option<(u32, u32)>,
    ) -> Result<(), Refused> {
        self.reachable(device)?;
        match self.fault(device) {
            Some(Fault::NoPermission) => return Err(Refused::Permission),
            Some(Fault::Postpone) => {
                self.devices[device].postponed = megahertz.map(Postponed::Clocks);
                return Err(Refused::Firmware);
            }
            Some(Fault::Refuse) => return Err(Refused::Firmware),
            _ => {}
        }
        let clock = megahertz.map(|(_, highest)| Hertz(f64::from(highest) * 1e6));
        let gpu = self.nvidia.gpus.get_mut(device).ok_or(Refused::Unknown)?;
        let locked = self.plant.lock_gpu_clock(device, clock);
        locked.map_err(|error| Refused::Plant(error.to_string()))?;
        gpu.clocks = megahertz;
        gpu.locks.push(megahertz);
        Ok(())
    }

    /// The device, and the cap in whole units, where it takes that.
    fn admit(&mut self, device: usize, asked: Watts) -> Result<(&mut Device, Watts), Refused> {
        self.reachable(device)?;
        let state = self.devices.get_mut(device).ok_or(Refused::Unknown)?;
        let range = state.range;
        match state.fault {
            Some(Fault::Refuse | Fault::Postpone) => Err(Refused::Firmware),
            Some(Fault::NoPermission) => Err(Refused::Permission),
            Some(Fault::Locked) => Err(Refused::Locked),
            _ if !(asked >= range.lowest && asked <= range.highest) => {
                Err(Refused::Range { asked, range })
            }
            // The plant cuts GPU caps off to whole units itself, but takes any CPU limit.
            _ => Ok((state, asked.cut_to(range.resolution))),
        }
    }
}

/// A request that was said to have failed and takes effect later all the same.
#[derive(Debug, Clone, Copy)]
enum Postponed {
    Cap(Watts),
    /// The lowest and the highest clock, in MHz.
    Clocks((u32, u32)),
}

impl Device {
    fn new(identity: Identity, range: CapRange) -> Self {
        Self {
            identity,
            range,
            holders: Holders::Listed(Vec::new()),
            energy: Joules::ZERO,
            fault: None,
            postponed: None,
            cached: None,
            generation: 0,
            residency: Residency::default(),
            reads: 0,
            releases: 0,
        }
    }

    /// Changes a reading as the device's fault does.
    fn distort(&self, reading: &mut Reading) {
        match self.fault {
            Some(Fault::Overdraw) => reading.power = Some(self.range.highest),
            Some(Fault::Cached) => {
                reading.cap = self.cached.unwrap_or(reading.cap);
                reading.enforced = None;
            }
            Some(Fault::Fickle(more)) => reading.cap += more * (1 + self.reads % 2) as f64,
            Some(Fault::Heat) => reading.throttle = Some(Throttle::Heat),
            Some(Fault::PowerBrake) => reading.throttle = Some(Throttle::PowerBrake),
            Some(Fault::Enforced(most)) => {
                reading.enforced = Some(reading.cap.min(most));
                reading.power = reading.power.map(|power| power.min(most));
            }
            _ => {}
        }
        if reading.throttle.is_some() {
            reading.power_limited = reading.power_limited.map(|_| false);
        }
    }

    fn listed(&self) -> Listed {
        Listed {
            identity: self.identity.clone(),
            range: self.range,
        }
    }
}

fn held(plant: &Plant) -> Vec<Watts> {
    let gpus = plant.gpus().map(|gpu| gpu.cap);
    gpus.chain(plant.cpus().map(|cpu| cpu.limit)).collect()
}

/// The PCI address of a GPU of the simulated node.
#[must_use]
pub fn gpu_address(index: usize) -> String {
    // 05, 15 ... f5: 16 GPUs on one domain, and more on the next.
    format!("{:04x}:{:02x}:00.0", index / 16, 5 + 16 * (index % 16))
}

fn gpu_identity(index: usize) -> Identity {
    Identity {
        kind: DeviceKind::Gpu,
        address: gpu_address(index),
        uuid: Some(format!("GPU-simulated-{index}")),
        serial: Some(format!("SIM{index:05}")),
        model: "simulated GPU".to_owned(),
        driver: "simulated 1".to_owned(),
        backend: BACKEND.to_owned(),
        sharing: Sharing::Whole,
        read_back: ReadBack::Device,
    }
}

fn cpu_identity(index: usize) -> Identity {
    Identity {
        kind: DeviceKind::Cpu,
        address: format!("cpu{index}"),
        uuid: None,
        serial: None,
        model: "simulated CPU".to_owned(),
        ..gpu_identity(index)
    }
}

fn gpu_range(scenario: &Scenario) -> CapRange {
    let caps = &scenario.caps;
    CapRange {
        lowest: caps.floor,
        highest: caps.tdp,
        default: caps.tdp,
        resolution: caps.resolution,
    }
}

fn throttle(gpu: &GpuTelemetry) -> Option<Throttle> {
    if gpu.throttle.thermal {
        Some(Throttle::Heat)
    } else {
        gpu.throttle.hardware.then_some(Throttle::Hardware)
    }
}

fn gpu_reading(gpu: &GpuTelemetry) -> Reading {
    Reading {
        cap: gpu.cap,
        enforced: Some(gpu.cap),
        // The plant tells means over the last iteration, and a cap may have been lowered since:
        // firmware follows within milliseconds.
        power: Some(gpu.power.min(gpu.cap)),
        energy: None,
        temperature: Some(gpu.temperature),
        slowdown: Some(gpu.slowdown),
        clock: Some(gpu.clock),
        power_limited: Some(gpu.limiter == Limiter::Power),
        power_share: None,
        throttle: throttle(gpu),
        forgetful: false,
    }
}

fn cpu_reading(cpu: &CpuTelemetry) -> Reading {
    Reading {
        cap: cpu.limit,
        enforced: Some(cpu.limit),
        power: Some(cpu.draw),
        ..Reading::default()
    }
}
