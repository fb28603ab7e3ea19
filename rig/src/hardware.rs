//! The node's devices: a simulated plant, what a driver would tell of it, and the ledger.

use std::sync::{Arc, Condvar, Mutex};

use litd_power::simulated::{Answer, Cause, Listed, Outcome, Refusal, Request};
use litd_power::{CapRange, DeviceKind, Identity, Reading, Sharing, Throttle};
use litd_sim::{CpuTelemetry, GpuTelemetry, Limiter, Plant, PlantError, Scenario};
use litd_units::{Joules, Watts};

use crate::fault::Fault;
use crate::ledger::{Author, Change, Ledger};
use crate::rules::Bounds;

/// The back end's name in every identity: nobody is to take these devices for real ones.
const BACKEND: &str = "simulated";

/// All devices of a node: GPUs first, then CPU sockets, counted from 0 over both.
#[derive(Debug)]
pub struct Hardware {
    plant: Plant,
    devices: Vec<Device>,
    ledger: Ledger,
    /// Rings when a fault comes or goes, for whoever waits because of one.
    changed: Arc<Condvar>,
}

#[derive(Debug)]
struct Device {
    identity: Identity,
    range: CapRange,
    holders: Vec<u32>,
    energy: Joules,
    fault: Option<Fault>,
    releases: u64,
}

/// Hardware as the node's threads and the tests share it.
pub type SharedHardware = Arc<Mutex<Hardware>>;

impl Hardware {
    /// Switches a node on. GPUs are held by this process, CPU sockets by none.
    ///
    /// # Errors
    /// The scenario makes no sense.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<Self, PlantError> {
        let plant = Plant::new(scenario, seed)?;
        let gpus = (0..plant.gpu_count()).map(|index| Device {
            holders: vec![std::process::id()],
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
            plant,
            devices,
            ledger,
            changed: Arc::default(),
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

    /// Runs one training iteration on all GPUs.
    pub fn run_iteration(&mut self) {
        let seconds = self.plant.run_iteration().length.0 / 1e3;
        let gpus = self.plant.gpus().map(|gpu| gpu.power);
        let powers = gpus.chain(self.plant.cpus().map(|cpu| cpu.draw));
        for (device, power) in self.devices.iter_mut().zip(powers) {
            device.energy += Joules(power.0 * seconds);
        }
    }

    /// Jumps to the thermal steady state of the present caps; no time passes.
    pub fn settle(&mut self) {
        self.plant.settle();
    }

    /// Which device has this address.
    #[must_use]
    pub fn find(&self, address: &str) -> Option<usize> {
        self.devices
            .iter()
            .position(|device| device.identity.address == address)
    }

    /// What a device is, for tests to change: another serial, another way of sharing.
    pub fn identity_mut(&mut self, device: usize) -> Option<&mut Identity> {
        self.devices
            .get_mut(device)
            .map(|device| &mut device.identity)
    }

    /// What a device's cap may be, for tests to change: drivers have other ideas after a reset.
    pub fn range_mut(&mut self, device: usize) -> Option<&mut CapRange> {
        self.devices.get_mut(device).map(|device| &mut device.range)
    }

    /// What a device is, and what its cap may be.
    #[must_use]
    pub fn listed(&self, device: usize) -> Option<Listed> {
        self.devices.get(device).map(Device::listed)
    }

    /// What a device holds and measures now.
    #[must_use]
    pub fn reading(&self, device: usize) -> Option<Reading> {
        let state = self.devices.get(device)?;
        let gpus = self.plant.gpu_count();
        let mut reading = match device.checked_sub(gpus) {
            None => gpu_reading(&self.plant.gpu(device).ok()?),
            Some(cpu) => cpu_reading(&self.plant.cpus().nth(cpu)?),
        };
        reading.energy = Some(state.energy);
        if state.fault == Some(Fault::Overdraw) {
            reading.power = Some(state.range.highest);
        }
        Some(reading)
    }

    /// Sets which processes hold a device open.
    pub fn set_holders(&mut self, device: usize, pids: Vec<u32>) {
        if let Some(device) = self.devices.get_mut(device) {
            device.holders = pids;
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
        if let Some(device) = self.devices.get_mut(device) {
            device.fault = fault;
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

    /// Somebody else on the node sets a cap, past litd and past the device's fault.
    ///
    /// # Errors
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

    /// The device is reset, or its driver loaded anew: the cap is the driver's default.
    ///
    /// # Errors
    /// No such device.
    pub fn reset(&mut self, device: usize) -> Result<Watts, PlantError> {
        let default = match self.devices.get(device) {
            Some(device) => device.range.default,
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
                let reading = hardware.reading(index);
                reading.map(Outcome::Reading).ok_or_else(no_such_device)
            }),
            Request::Range { device } => self.on(device, |hardware, index| {
                Ok(Outcome::Range(hardware.devices[index].range))
            }),
            Request::Holders { device } => self.on(device, |hardware, index| {
                Ok(Outcome::Pids(hardware.devices[index].holders.clone()))
            }),
            Request::Release { device } => self.on(device, |hardware, index| {
                hardware.devices[index].releases += 1;
                Ok(Outcome::Done(true))
            }),
            Request::Set { device, watts } => {
                self.on(device, |hardware, index| hardware.set(index, *watts))
            }
        };
        match result {
            Ok(outcome) => Answer::Good(outcome),
            Err(refusal) => Answer::Bad(refusal),
        }
    }

    fn on(
        &mut self,
        address: &str,
        act: impl FnOnce(&mut Self, usize) -> Result<Outcome, Refusal>,
    ) -> Result<Outcome, Refusal> {
        let device = self.find(address).ok_or_else(no_such_device)?;
        if self.fault(device) == Some(Fault::Gone) {
            return Err(refusal(Cause::Gone, "it has fallen off the bus"));
        }
        act(self, device)
    }

    /// litd's own writes.
    fn set(&mut self, device: usize, asked: Watts) -> Result<Outcome, Refusal> {
        let CapRange {
            lowest,
            highest,
            resolution,
            ..
        } = self.devices[device].range;
        match self.fault(device) {
            Some(Fault::Refuse) => {
                self.record(device, asked, Author::Litd, false);
                return Err(refusal(Cause::Driver, "the firmware refuses (injected)"));
            }
            Some(Fault::Lie) => {
                self.record(device, asked, Author::Litd, true);
                return Ok(Outcome::Done(true));
            }
            _ => {}
        }
        if !(asked >= lowest && asked <= highest) {
            self.record(device, asked, Author::Litd, false);
            return Err(Refusal {
                range: Some(self.devices[device].range),
                ..refusal(
                    Cause::OutOfRange,
                    &format!("{asked} is not within {lowest} to {highest}"),
                )
            });
        }
        // The plant cuts GPU caps off to whole units itself, but takes any CPU limit. The hair
        // keeps whole units whole where the division doesn't come out even.
        let cap = resolution * (asked / resolution + 1e-9).floor();
        match self.write(device, cap, Author::Litd) {
            Ok(_) => Ok(Outcome::Done(true)),
            Err(error) => Err(refusal(Cause::Driver, &error.to_string())),
        }
    }
}

impl Device {
    fn new(identity: Identity, range: CapRange) -> Self {
        Self {
            identity,
            range,
            holders: Vec::new(),
            energy: Joules::ZERO,
            fault: None,
            releases: 0,
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

fn refusal(error: Cause, cause: &str) -> Refusal {
    Refusal {
        error,
        cause: cause.to_owned(),
        range: None,
    }
}

fn no_such_device() -> Refusal {
    refusal(Cause::Gone, "no device has this address")
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
        throttle: throttle(gpu),
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
