//! A GPU: its files, and reading and writing them.

use std::path::{Path, PathBuf};

use litd_units::{Celsius, Hertz, Joules, Watts};
use nix::errno::Errno;

use super::address::Address;
use super::clients::Clients;
use super::clocks::{ClockError, Clocks};
use super::holders::Nodes;
use super::metrics::{self, Limiter, Metrics};
use crate::domain::{CapRange, ClockRange, Handles, Identity, PowerDomain, Reading, Throttle};
use crate::error::PowerError;
use crate::holder::Holder;
use crate::sysfs::{self, Attribute, FileError, Step};

/// The driver drops fractions of a watt.
const RESOLUTION: u64 = 1_000_000;

/// More temperatures than any GPU has.
const TEMPERATURES: u32 = 16;

/// The GPU's folder of sensors and its files, open as far as they have been used.
#[derive(Debug)]
pub(super) struct Files {
    cap: Attribute,
    lowest: Attribute,
    highest: Attribute,
    default: Attribute,
    power: Option<Attribute>,
    energy: Option<Attribute>,
    clock: Option<Attribute>,
    junction: Option<Sensor>,
    memory: Option<Sensor>,
    metrics: Attribute,
    /// Absent: they can't be locked.
    clocks: Option<Clocks>,
}

/// A temperature and where it slows the GPU down.
#[derive(Debug)]
struct Sensor {
    now: Attribute,
    slowdown: Option<Celsius>,
}

/// The folder of a GPU's sensors; its number changes when the driver is loaded anew.
pub(super) fn find_hwmon(device: &Path) -> Option<PathBuf> {
    let folders = sysfs::numbered(&device.join("hwmon"), "hwmon").into_iter();
    let mut named = folders
        .map(|(_, folder)| folder)
        .filter(|folder| sysfs::line(folder.join("name")).as_deref() == Some("amdgpu"));
    named.next()
}

impl Files {
    pub fn find(device: &Path, hwmon: &Path) -> Self {
        let file = |name: &str| Attribute::new(hwmon.join(name));
        let existing = |name: &str| Attribute::existing(hwmon.join(name));
        Self {
            cap: file(super::CAP),
            lowest: file("power1_cap_min"),
            highest: file("power1_cap_max"),
            default: file("power1_cap_default"),
            // A cap limits the average. MI300X has only the other, which its firmware filters.
            power: existing("power1_average").or_else(|| existing("power1_input")),
            energy: existing("energy1_input"),
            clock: existing("freq1_input"),
            junction: Sensor::find(hwmon, &["junction", "edge"]),
            memory: Sensor::find(hwmon, &["mem"]),
            metrics: Attribute::new(device.join("gpu_metrics")),
            clocks: Clocks::find(device),
        }
    }

    /// What its table of metrics is, if it is one that litd does not know.
    pub fn unknown_metrics(&mut self) -> Option<String> {
        let mut buffer = [0; sysfs::PAGE + 1];
        metrics::unknown(self.metrics.read(&mut buffer).ok()?)
    }

    pub fn cap(&mut self) -> &mut Attribute {
        &mut self.cap
    }
}

impl Sensor {
    /// The first of `labels` that exists.
    fn find(hwmon: &Path, labels: &[&str]) -> Option<Self> {
        let labelled = |wanted: &str| {
            (1..=TEMPERATURES).find(|n| {
                let label = sysfs::line(hwmon.join(format!("temp{n}_label")));
                label.as_deref() == Some(wanted)
            })
        };
        let n = labels.iter().find_map(|label| labelled(label))?;
        let limit = |kind: &str| {
            let file = hwmon.join(format!("temp{n}_{kind}"));
            sysfs::number(file).map(celsius).filter(|at| at.0 > 0.0)
        };
        Some(Self {
            now: Attribute::new(hwmon.join(format!("temp{n}_input"))),
            slowdown: limit("crit").or_else(|| limit("emergency")),
        })
    }

    fn read(&mut self) -> Option<Celsius> {
        self.now.number().ok().map(celsius)
    }
}

fn celsius(millidegrees: i64) -> Celsius {
    Celsius(millidegrees as f64 / 1e3)
}

/// An AMD GPU.
#[derive(Debug)]
pub(super) struct Gpu {
    identity: Identity,
    address: Address,
    device: PathBuf,
    sys: PathBuf,
    clients: Clients,
    /// Absent: closed, and to be looked for anew.
    files: Option<Files>,
    /// The last table, and the limiter then.
    metrics: (Metrics, Limiter),
}

impl Gpu {
    pub fn new(
        identity: Identity,
        address: Address,
        device: PathBuf,
        sys: PathBuf,
        clients: Clients,
    ) -> Self {
        Self {
            identity,
            address,
            device,
            sys,
            clients,
            files: None,
            metrics: <_>::default(),
        }
    }

    fn files(&mut self) -> Result<&mut Files, FileError> {
        let files = match self.files.take() {
            Some(files) => files,
            None => {
                let hwmon = find_hwmon(&self.device).ok_or_else(|| FileError {
                    path: self.device.join("hwmon"),
                    step: Step::Open,
                    error: Errno::ENODEV.into(),
                })?;
                Files::find(&self.device, &hwmon)
            }
        };
        Ok(self.files.insert(files))
    }

    fn failed(&mut self, error: FileError, action: &'static str) -> PowerError {
        let reset =
            error.step != Step::Open && matches!(error.errno(), Some(Errno::EPERM | Errno::EBUSY));
        if reset {
            // Older kernels return EPERM, newer ones EBUSY.
            return PowerError::Driver {
                device: self.identity.address.clone(),
                action,
                cause: format!("{error}: the GPU is in reset or suspended"),
            };
        }
        // A driver that was loaded anew may give the folder of sensors another number.
        let is_missing = error.errno() == Some(Errno::ENOENT);
        let error = error.of(
            &self.identity.address,
            action,
            &self.device,
            sysfs::PERMISSION,
        );
        if is_missing || matches!(error, PowerError::Gone { .. }) {
            self.files = None;
        }
        error
    }

    /// Reads, locks or frees clocks.
    fn clocks<T>(
        &mut self,
        action: &'static str,
        run: impl FnOnce(&mut Clocks) -> Result<T, ClockError>,
    ) -> Result<T, PowerError> {
        let outcome = match self.files() {
            Ok(files) => files.clocks.as_mut().map(run),
            Err(error) => Some(Err(error.into())),
        };
        match outcome {
            None => Err(self.no_clocks()),
            Some(Ok(answer)) => Ok(answer),
            Some(Err(ClockError::File(error))) => Err(self.failed(error, action)),
            Some(Err(ClockError::Foreign(cause))) => Err(PowerError::Unsupported {
                device: self.identity.address.clone(),
                action,
                cause,
            }),
        }
    }

    fn read_range(&mut self) -> Result<CapRange, FileError> {
        let files = self.files()?;
        let highest = files.highest.watts()?;
        if highest <= Watts::ZERO {
            return Err(files.highest.invalid(format!("says {highest}")));
        }
        Ok(CapRange {
            lowest: optional(files.lowest.watts())?.unwrap_or(Watts::ZERO),
            highest,
            // Older kernels don't tell; the highest is what most GPUs start with.
            default: optional(files.default.watts())?.unwrap_or(highest),
            resolution: sysfs::from_micro(RESOLUTION),
        })
    }

    /// The driver returned EINVAL for `asked`, or would interpret it differently.
    fn refused(&mut self, asked: Watts, action: &'static str) -> PowerError {
        let device = self.identity.address.clone();
        match self.read_range() {
            Ok(range) if (range.lowest..=range.highest).contains(&asked) && asked.0 >= 1.0 => {
                PowerError::Driver {
                    device,
                    action,
                    cause: format!(
                        "the driver refuses {asked} although it names {} to {} as its range; a \
                         virtual function's cap belongs to its host",
                        range.lowest, range.highest
                    ),
                }
            }
            Ok(range) => PowerError::OutOfRange {
                device,
                asked,
                lowest: range.lowest.max(sysfs::from_micro(RESOLUTION)),
                highest: range.highest,
            },
            Err(error) => self.failed(error, action),
        }
    }

    /// The present limiter. A table without news leaves the last one.
    fn limiter(&mut self) -> Limiter {
        let mut buffer = [0; sysfs::PAGE + 1];
        let table = match &mut self.files {
            Some(files) => files.metrics.read(&mut buffer).unwrap_or_default(),
            None => &[],
        };
        let now = Metrics::parse(table);
        let (before, known) = self.metrics;
        let limiter = match now.limiter(&before) {
            Some(limiter) => limiter,
            None => known,
        };
        self.metrics = (now, limiter);
        limiter
    }
}

/// A file that a kernel may not have yet.
fn optional<T>(result: Result<T, FileError>) -> Result<Option<T>, FileError> {
    match result {
        Err(error) if error.step == Step::Open && error.errno() == Some(Errno::ENOENT) => Ok(None),
        other => other.map(Some),
    }
}

impl PowerDomain for Gpu {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn identify(&mut self) -> Result<Identity, PowerError> {
        // A driver that was bound anew has other files.
        self.files = None;
        let Identity { driver, .. } = &self.identity;
        let unique_id = super::unique_id(&self.device);
        self.identity = super::identity(&self.device, self.address, unique_id, driver.clone());
        Ok(self.identity.clone())
    }

    fn range(&mut self) -> Result<CapRange, PowerError> {
        self.read_range()
            .map_err(|error| self.failed(error, "reading the range of caps"))?
            .checked(&self.identity.address)
    }

    fn cap(&mut self) -> Result<Watts, PowerError> {
        self.files()
            .and_then(|files| files.cap.watts())
            .map_err(|error| self.failed(error, "reading the cap"))
    }

    fn set_cap(&mut self, cap: Watts) -> Result<(), PowerError> {
        const ACTION: &str = "setting the cap";
        let watts = sysfs::to_micro(cap).map_or(0, |microwatts| microwatts / RESOLUTION);
        if watts == 0 {
            // The driver would take 0 for "leave it as it is" and report success.
            return Err(self.refused(cap, ACTION));
        }
        let microwatts = watts.saturating_mul(RESOLUTION);
        let result = self.files().and_then(|files| files.cap.write(microwatts));
        result.map_err(|error| match error.errno() {
            Some(Errno::EINVAL | Errno::ERANGE) if error.step == Step::Write => {
                self.refused(cap, ACTION)
            }
            _ => self.failed(error, ACTION),
        })
    }

    fn read(&mut self) -> Result<Reading, PowerError> {
        let cap = self.cap()?;
        let limiter = self.limiter();
        let counted = self.metrics.0.energy;
        let Some(files) = &mut self.files else {
            return Ok(Reading {
                cap,
                ..Reading::default()
            });
        };
        let number = |file: &mut Option<Attribute>| file.as_mut()?.number::<u64>().ok();
        let memory = files.memory.as_mut();
        let memory_is_hot = memory.is_some_and(|memory| match (memory.read(), memory.slowdown) {
            (Some(now), Some(slowdown)) => now >= slowdown,
            _ => false,
        });
        let energy = number(&mut files.energy).map(|micro| Joules(micro as f64 / 1e6));
        Ok(Reading {
            cap,
            enforced: None,
            power: number(&mut files.power).map(sysfs::from_micro),
            energy: energy.or(counted),
            temperature: files.junction.as_mut().and_then(Sensor::read),
            slowdown: files.junction.as_ref().and_then(|sensor| sensor.slowdown),
            clock: number(&mut files.clock).map(|hertz| Hertz(hertz as f64)),
            power_limited: limiter.power,
            power_share: limiter.power_share,
            throttle: limiter.other.or(memory_is_hot.then_some(Throttle::Memory)),
            forgetful: false,
        })
    }

    fn highest_clock(&mut self) -> Result<Hertz, PowerError> {
        self.clocks("reading the highest clock", Clocks::highest)
    }

    fn lock_clocks(&mut self, range: ClockRange) -> Result<(), PowerError> {
        self.clocks("locking clocks", |clocks| clocks.lock(range))
    }

    fn unlock_clocks(&mut self) -> Result<(), PowerError> {
        self.clocks("unlocking clocks", Clocks::unlock)
    }

    fn holders(&mut self) -> Result<Vec<Holder>, PowerError> {
        let nodes = Nodes::find(&self.sys, &self.device, &self.address);
        nodes
            .holders(&self.sys, &self.clients)
            .map_err(|error| PowerError::Driver {
                device: self.identity.address.clone(),
                action: "listing the processes",
                cause: error.to_string(),
            })
    }

    fn release(&mut self) -> Handles {
        self.files = None;
        Handles::Closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{DeviceKind, ReadBack, Sharing};

    #[test]
    fn a_gpu_in_reset_is_told_from_one_that_may_not_be_touched() {
        let folder = tempfile::tempdir().unwrap();
        let identity = Identity {
            kind: DeviceKind::Gpu,
            address: "0000:85:00.0".into(),
            uuid: None,
            serial: None,
            model: String::new(),
            driver: String::new(),
            backend: String::new(),
            sharing: Sharing::Whole,
            read_back: ReadBack::Device,
        };
        let path = folder.path().to_owned();
        let address = "0000:85:00.0".parse().unwrap();
        let mut gpu = Gpu::new(
            identity,
            address,
            path.clone(),
            path.clone(),
            Clients::new(&path),
        );
        let mut said = |step, errno: Errno| {
            let error = FileError {
                path: path.join("power1_cap"),
                step,
                error: errno.into(),
            };
            gpu.failed(error, "setting the cap").to_string()
        };
        for step in [Step::Read, Step::Write] {
            for errno in [Errno::EPERM, Errno::EBUSY] {
                let said = said(step, errno);
                assert!(said.contains("in reset or suspended"), "{said}");
            }
        }
        assert!(said(Step::Open, Errno::EPERM).contains("no permission"));
        assert!(said(Step::Write, Errno::EACCES).contains("no permission"));
        assert!(said(Step::Write, Errno::ENODEV).contains("gone"));
    }
}
