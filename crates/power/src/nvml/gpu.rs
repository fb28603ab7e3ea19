//! A GPU as a power domain.

use std::path::{Path, PathBuf};

use litd_units::{Celsius, Hertz, Joules, Watts};
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor, TemperatureThreshold};
use nvml_wrapper::enums::device::{GpuLockedClocksSetting, SampleValue};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_POWER_INSTANT;
use nvml_wrapper::{Device, Nvml};

use super::look::Looker;
use super::session::Client;
use super::{GPU_NOT_FOUND, in_words};
use crate::discovery::Search;
use crate::domain::{
    CapRange, ClockRange, Handles, Identity, PowerDomain, Reading, Sharing, Throttle,
};
use crate::error::PowerError;
use crate::holder::{Holder, Processes};
use crate::sysfs;

/// Fields from this number on were renumbered between releases of NVML's header: a driver may answer with another value
/// than was asked for. So none of them is asked for, unless the driver's version is known.
const RENUMBERED: u32 = 251;

/// The power of this moment.
const POWER: FieldId = field(NVML_FI_DEV_POWER_INSTANT);

/// A field that means the same to every driver. All fields that litd asks for are made here, when litd is compiled.
const fn field(number: u32) -> FieldId {
    assert!(number < RENUMBERED, "this field was renumbered");
    FieldId(number)
}

/// NVML takes milliwatts and does not tell how the firmware rounds them; `nvidia-smi` and its peers set whole
/// watts.
const RESOLUTION: Watts = Watts(1.0);

/// The kernel's shortened name of `nvidia-cuda-mps-server` (`/proc/PID/comm` has 15 bytes).
const MPS_SERVER: &str = "nvidia-cuda-mps";

/// How often to read a list of processes that grows meanwhile.
const TRIES: u32 = 3;

/// A lost GPU is looked for at least once in so many calls: litd makes one a second.
const SEEN_AGAIN: u32 = 16;

/// The error of a call that has stopped waiting.
pub(super) const OPENING: &str =
    "the NVIDIA driver takes long to open its library; litd goes on as soon as it is open";

pub(super) struct Gpu {
    identity: Identity,
    /// The address in NVML's notation: handles don't outlive a session.
    bus_id: String,
    client: Client,
    /// Looks for the GPU while it is lost.
    looker: Looker,
    /// Where procfs is mounted.
    proc: PathBuf,
    /// How many calls in a row found it lost.
    gone: u32,
    /// The value of `gone` at the last look.
    looked: u32,
}

impl Gpu {
    pub(super) fn new(
        identity: Identity,
        bus_id: String,
        mut client: Client,
        search: &Search,
    ) -> Self {
        let (program, library) = (search.own_program.clone(), search.nvml_library.clone());
        client.is_of(&bus_id);
        Self {
            identity,
            bus_id,
            client,
            looker: Looker::new(program, library),
            proc: search.proc.clone(),
            gone: 0,
            looked: 0,
        }
    }

    /// Makes a call of the driver.
    fn call<T>(
        &mut self,
        action: &'static str,
        run: impl FnOnce(&mut Device<'_>) -> Result<T, NvmlError>,
    ) -> Result<T, PowerError> {
        self.try_call(run)
            .map_err(|error| self.failed(action, &error))
    }

    fn try_call<T>(
        &mut self,
        run: impl FnOnce(&mut Device<'_>) -> Result<T, NvmlError>,
    ) -> Result<T, NvmlError> {
        let bus_id = self.bus_id.clone();
        self.try_open(|nvml| run(&mut nvml.device_by_pci_bus_id(bus_id.as_str())?))
    }

    fn try_open<T>(
        &mut self,
        run: impl FnOnce(&Nvml) -> Result<T, NvmlError>,
    ) -> Result<T, NvmlError> {
        self.look_for_it();
        let mut call = self.client.open()?;
        let result = run(call.nvml()?)?;
        call.has_answered();
        (self.gone, self.looked) = (0, 0);
        Ok(result)
    }

    /// Only a new session sees a lost GPU come back. Another process checks whether it has: less often the longer
    /// it is lost, but never much later than it is back.
    fn look_for_it(&mut self) {
        let is_time = self.gone.is_power_of_two() || self.gone.is_multiple_of(SEEN_AGAIN);
        if self.gone == 0 || self.gone == self.looked || !is_time {
            return;
        }
        self.looked = self.gone;
        if self.looker.is_worth_renewing(&self.bus_id) {
            self.client.renew();
        }
    }

    fn failed(&mut self, action: &'static str, error: &NvmlError) -> PowerError {
        let device = self.identity.address.clone();
        let cause = in_words(error);
        let permission = |hint: &str| PowerError::Permission {
            device: device.clone(),
            action,
            hint: hint.to_owned(),
        };
        match error {
            NvmlError::NoPermission => {
                permission("the NVIDIA driver wants root or CAP_SYS_ADMIN for it")
            }
            NvmlError::OperatingSystem => {
                permission("let litd open /dev/nvidia* (unit, cgroup, container)")
            }
            NvmlError::GpuLost
            | NvmlError::ResetRequired
            | NvmlError::Uninitialized
            | NvmlError::NotFound
            | NvmlError::UnexpectedVariant(GPU_NOT_FOUND)
            | NvmlError::DriverNotLoaded
            | NvmlError::LibRmVersionMismatch
            | NvmlError::LibloadingError(_) => {
                self.gone = self.gone.saturating_add(1);
                PowerError::Gone { device, cause }
            }
            NvmlError::Timeout => PowerError::Driver {
                device,
                action,
                cause: OPENING.to_owned(),
            },
            _ => PowerError::Driver {
                device,
                action,
                cause,
            },
        }
    }

    /// Has the driver lock, unlock or tell clocks, which GPUs before Volta can't.
    fn clocks<T>(
        &mut self,
        action: &'static str,
        run: impl FnOnce(&mut Device<'_>) -> Result<T, NvmlError>,
    ) -> Result<T, PowerError> {
        match self.try_call(run) {
            Err(error @ (NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_))) => {
                Err(PowerError::Unsupported {
                    device: self.identity.address.clone(),
                    action,
                    cause: in_words(&error),
                })
            }
            outcome => outcome.map_err(|error| self.failed(action, &error)),
        }
    }

    /// Why a cap is an invalid argument: usually because it is out of range.
    fn invalid(&mut self, action: &'static str, asked: Watts) -> PowerError {
        match self.range() {
            Ok(range) if asked >= range.lowest && asked <= range.highest => {
                self.failed(action, &NvmlError::InvalidArg)
            }
            Ok(CapRange {
                lowest, highest, ..
            }) => PowerError::OutOfRange {
                device: self.identity.address.clone(),
                asked,
                lowest,
                highest,
            },
            Err(error) => error,
        }
    }
}

impl PowerDomain for Gpu {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn identify(&mut self) -> Result<Identity, PowerError> {
        let proc = self.proc.clone();
        let bus_id = self.bus_id.clone();
        let known = self.try_open(|nvml| {
            let device = nvml.device_by_pci_bus_id(bus_id.as_str())?;
            super::identify(nvml, &device, &bus_id, &proc)
        });
        match known {
            Ok(identity) => {
                self.identity = identity;
                Ok(self.identity.clone())
            }
            Err(error) => Err(self.failed("reading its identity", &error)),
        }
    }

    fn range(&mut self) -> Result<CapRange, PowerError> {
        self.call("reading the range of caps", |device| {
            let constraints = device.power_management_limit_constraints()?;
            Ok(CapRange {
                lowest: watts(constraints.min_limit),
                highest: watts(constraints.max_limit),
                default: watts(device.power_management_limit_default()?),
                resolution: RESOLUTION,
            })
        })?
        .checked(&self.identity.address)
    }

    fn cap(&mut self) -> Result<Watts, PowerError> {
        self.call("reading the cap", |device| {
            device.power_management_limit().map(watts)
        })
    }

    fn set_cap(&mut self, cap: Watts) -> Result<(), PowerError> {
        const ACTION: &str = "setting the cap";
        if !cap.is_finite() {
            return Err(PowerError::Driver {
                device: self.identity.address.clone(),
                action: ACTION,
                cause: format!("a cap of {cap} is not possible"),
            });
        }
        // Never more than was asked for. The small addend keeps whole milliwatts whole, and numbers beyond 32 bits
        // are out of range anyway.
        let milliwatts = (cap.0 * 1e3 + 0.4e-3).floor() as u32;
        match self.try_call(|device| device.set_power_management_limit(milliwatts)) {
            Ok(()) => Ok(()),
            Err(NvmlError::InvalidArg) => Err(self.invalid(ACTION, cap)),
            Err(error) => Err(self.failed(ACTION, &error)),
        }
    }

    fn read(&mut self) -> Result<Reading, PowerError> {
        let (reading, persists) = self.call("reading the sensors", |device| {
            let cap = watts(device.power_management_limit()?);
            let reasons = device.current_throttle_reasons().ok();
            let megahertz = |clock| Hertz(f64::from(clock) * 1e6);
            let celsius = |degrees| Celsius(f64::from(degrees));
            let slowdown = device.temperature_threshold(TemperatureThreshold::Slowdown);
            let reading = Reading {
                cap,
                enforced: device.enforced_power_limit().ok().map(watts),
                power: power(device),
                energy: device
                    .total_energy_consumption()
                    .ok()
                    .map(|millijoules| Joules(millijoules as f64 / 1e3)),
                temperature: device.temperature(TemperatureSensor::Gpu).ok().map(celsius),
                slowdown: slowdown.ok().map(celsius),
                clock: device.clock_info(Clock::SM).ok().map(megahertz),
                // The flag is set for other limits as well, such as current's (lab/measured). Laws that believe it
                // do no harm by that; laws that doubt it where power is below the cap do (docs/laws-results.md).
                power_limited: reasons
                    .map(|reasons| reasons.contains(ThrottleReasons::SW_POWER_CAP)),
                power_share: None,
                throttle: reasons.and_then(throttle),
                forgetful: false,
            };
            Ok((reading, device.is_in_persistent_mode().ok()))
        })?;
        if let Some(persists) = persists {
            self.client.persists(persists);
        }
        let forgetful = !self.client.is_persistent();
        Ok(Reading {
            forgetful,
            ..reading
        })
    }

    /// NVML names processes by the host's ids, or by those of the caller's namespace, depending on the driver's
    /// age: both are the same only in the host's.
    fn holders(&mut self) -> Result<Vec<Holder>, PowerError> {
        const ACTION: &str = "listing the processes";
        let mig = self.identity.sharing == Sharing::Mig;
        let pids = self.call(ACTION, |device| {
            let mut pids = pids(device)?;
            if mig {
                for index in 0..device.mig_device_count().unwrap_or(0) {
                    // Most places for an instance are empty.
                    if let Ok(instance) = device.mig_device_by_index(index) {
                        pids.extend(self::pids(&instance)?);
                    }
                }
            }
            Ok(pids)
        })?;
        let holders = Processes::new(&self.proc).of_host(pids);
        holders.map_err(|error| PowerError::Driver {
            device: self.identity.address.clone(),
            action: ACTION,
            cause: error.to_string(),
        })
    }

    fn highest_clock(&mut self) -> Result<Hertz, PowerError> {
        self.clocks("reading the highest clock", |device| {
            let megahertz = device.max_clock_info(Clock::SM)?;
            Ok(Hertz(f64::from(megahertz) * 1e6))
        })
    }

    fn lock_clocks(&mut self, range: ClockRange) -> Result<(), PowerError> {
        let megahertz = |clock: Hertz| (clock.0 / 1e6).round() as u32;
        self.clocks("locking clocks", |device| {
            device.set_gpu_locked_clocks(GpuLockedClocksSetting::Numeric {
                min_clock_mhz: megahertz(range.lowest),
                max_clock_mhz: megahertz(range.highest),
            })
        })
    }

    fn unlock_clocks(&mut self) -> Result<(), PowerError> {
        self.clocks("unlocking clocks", |device| {
            device.reset_gpu_locked_clocks()
        })
    }

    fn release(&mut self) -> Handles {
        self.client.release()
    }
}

fn watts(milliwatts: u32) -> Watts {
    Watts(f64::from(milliwatts) / 1e3)
}

/// The present power where the driver tells it; else its usual value, which H100 averages over a second.
fn power(device: &Device<'_>) -> Option<Watts> {
    let fields = device.field_values_for(&[POWER]);
    let field = fields.ok().and_then(|mut fields| fields.pop()?.ok());
    match field.map(|field| field.value) {
        // A GPU that draws 0 W does not exist: an old driver has left the field alone.
        Some(Ok(SampleValue::U32(milliwatts))) if milliwatts > 0 => Some(watts(milliwatts)),
        _ => device.power_usage().ok().map(watts),
    }
}

/// Limiters besides power (`nvmlClocksEventReason*`).
fn throttle(reasons: ThrottleReasons) -> Option<Throttle> {
    let heat = ThrottleReasons::SW_THERMAL_SLOWDOWN | ThrottleReasons::HW_THERMAL_SLOWDOWN;
    if reasons.intersects(heat) {
        Some(Throttle::Heat)
    } else if reasons.contains(ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN) {
        Some(Throttle::PowerBrake)
    } else if reasons.contains(ThrottleReasons::HW_SLOWDOWN) {
        Some(Throttle::Hardware)
    } else {
        None
    }
}

/// The processes with a compute or graphics context, and the clients of MPS.
fn pids(device: &Device<'_>) -> Result<Vec<u32>, NvmlError> {
    let compute = list(|| device.running_compute_processes())?;
    let graphics = optional(list(|| device.running_graphics_processes()))?;
    let mps = optional(list(|| device.mps_running_compute_processes()))?;
    let all = compute.into_iter().chain(graphics).chain(mps);
    Ok(all.map(|process| process.pid).collect())
}

fn list(
    mut read: impl FnMut() -> Result<Vec<ProcessInfo>, NvmlError>,
) -> Result<Vec<ProcessInfo>, NvmlError> {
    for _ in 1..TRIES {
        match read() {
            Err(NvmlError::InsufficientSize(_)) => {}
            other => return other,
        }
    }
    read()
}

/// A list that this GPU or driver does not support counts as empty.
fn optional<T>(list: Result<Vec<T>, NvmlError>) -> Result<Vec<T>, NvmlError> {
    match list {
        Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => Ok(Vec::new()),
        other => other,
    }
}

/// Whether the GPU is used by the Multi-Process Service: its server, or its clients, hold it.
pub(super) fn has_mps(device: &Device<'_>, proc: &Path) -> bool {
    let clients = list(|| device.mps_running_compute_processes());
    let is_server = |pid: u32| {
        let name = sysfs::line(proc.join(pid.to_string()).join("comm"));
        name.is_some_and(|name| name == MPS_SERVER)
    };
    clients.is_ok_and(|clients| !clients.is_empty())
        || pids(device).is_ok_and(|pids| pids.into_iter().any(is_server))
}
