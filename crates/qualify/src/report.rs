//! The report: what was tried on each device, what it showed, and every write.

use litd_power::{CapRange, Identity};
use litd_units::{Celsius, Hertz, Seconds, Watts};
use serde::{Deserialize, Serialize};

use crate::sensors::Sensors;

/// The version of the schema. Readers of another version refuse the report.
pub const SCHEMA: u32 = 1;

/// The verdict of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The device does what litd needs.
    Shown,
    /// The run can't tell: the device is idle, or has no such sensor.
    NotShown,
    /// The check was not made, on purpose.
    NotTried,
    /// The device does not do what litd needs.
    Failed,
}

impl Verdict {
    /// The verdict for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Shown => "ok",
            Self::NotShown => "not shown",
            Self::NotTried => "not tried",
            Self::Failed => "FAILED",
        }
    }
}

/// The topic of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    /// The device answers, and its cap stays while nobody writes it.
    Reading,
    /// A lower cap is set, and read back.
    Lower,
    /// The cap found is set again, and read back.
    Back,
    /// Measured power follows the cap.
    Power,
    /// The period and the noise of the power sensor.
    Sensor,
    /// The energy counter agrees with the power sensor.
    Energy,
    /// Clocks are locked and freed.
    Clocks,
    /// The driver's behaviour once no program has the device open.
    Persistence,
}

impl Topic {
    /// The topic for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::Lower => "lower cap",
            Self::Back => "cap found",
            Self::Power => "power",
            Self::Sensor => "sensor",
            Self::Energy => "energy",
            Self::Clocks => "clocks",
            Self::Persistence => "persistence",
        }
    }
}

/// A check of a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The topic.
    pub topic: Topic,
    /// The verdict.
    pub verdict: Verdict,
    /// Why, in words.
    pub text: String,
}

/// The measurements of a device, for programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// How long setting the lower cap and reading it back took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_time: Option<Seconds>,
    /// How long setting the cap found and reading it back took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_time: Option<Seconds>,
    /// How long after the driver had answered the lower cap was read, where that was later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<Seconds>,
    /// How long after the write measured power was within the lower cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_time: Option<Seconds>,
    /// The sensors, before anything was written.
    pub sensors: Sensors,
    /// The temperature then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Celsius>,
    /// The highest clock that can be locked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest_clock: Option<Hertz>,
}

/// A device without its serial number and its unique name, which tell whose it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The short name: `gpu0`, or the address of a CPU socket.
    pub name: String,
    /// The address.
    pub address: String,
    /// The model.
    pub model: String,
    /// The back end.
    pub backend: String,
    /// The driver, with its version.
    pub driver: String,
    /// The firmware's version, where the kernel tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// A hash of the serial number that only this node can make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial_hash: Option<String>,
}

impl Part {
    /// The part with this identity; hashes and firmware are the shell's to add.
    #[must_use]
    pub fn new(name: String, identity: &Identity) -> Self {
        Self {
            name,
            address: identity.address.clone(),
            model: identity.model.clone(),
            backend: identity.backend.clone(),
            driver: identity.driver.clone(),
            firmware: None,
            serial_hash: None,
        }
    }
}

/// A device and what was found out about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// The device.
    #[serde(flatten)]
    pub part: Part,
    /// The range of its cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<CapRange>,
    /// The cap found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<Watts>,
    /// The cap that it is lowered to; absent where it is not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Watts>,
    /// The checks, in order.
    pub checks: Vec<Check>,
    /// The measurements.
    pub measured: Measured,
}

impl Device {
    /// Whether a check failed.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.checks.iter().any(|it| it.verdict == Verdict::Failed)
    }

    /// Whether a lower cap was set and taken back as it should be.
    #[must_use]
    pub fn is_qualified(&self) -> bool {
        let shown = |topic| {
            let of_it = |it: &&Check| it.topic == topic;
            let check = self.checks.iter().find(of_it);
            check.is_some_and(|it| it.verdict == Verdict::Shown)
        };
        !self.failed() && shown(Topic::Lower) && shown(Topic::Back)
    }
}

/// The purpose of a write.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Written {
    /// The cap.
    Cap(Watts),
    /// The clock.
    Clock(Hertz),
    /// The driver chooses clocks again.
    FreeClocks,
}

/// A write to a device. Every one is here, whatever became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Write {
    /// The device's short name.
    pub device: String,
    /// When it was asked for, since the run began.
    pub at: Seconds,
    /// The purpose.
    pub set: Written,
    /// How long the driver took; absent if it has not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<Seconds>,
    /// The cap that was read right after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Watts>,
    /// The error, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a run ended. Its exit status is [`Outcome::exit_status`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A dry run: nothing was written.
    Planned,
    /// Every device did what litd needs, as far as was tried.
    Qualified,
    /// The run was refused: nothing was written.
    Refused,
    /// A device failed.
    Failed,
    /// The run was stopped before its end.
    Stopped,
    /// A cap may not be as it was found.
    Owed,
}

impl Outcome {
    /// The exit status.
    #[must_use]
    pub const fn exit_status(self) -> u8 {
        match self {
            Self::Planned | Self::Qualified => 0,
            Self::Refused => 3,
            Self::Failed => 4,
            Self::Stopped => 5,
            Self::Owed => 6,
        }
    }
}

/// The report of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The version of the schema: [`SCHEMA`].
    pub schema: u32,
    /// litd's version.
    pub litd: String,
    /// Whether the devices are stand-ins: the report says nothing about hardware then.
    pub simulated: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it was refused, stopped, or what is left to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// When it began, in seconds since 1970.
    pub unix_seconds: f64,
    /// How long it took.
    pub seconds: Seconds,
    /// The kernel's release.
    pub kernel: String,
    /// The board's maker and name, where the firmware tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub board: Option<String>,
    /// The devices.
    pub devices: Vec<Device>,
    /// Every write, in order.
    pub writes: Vec<Write>,
}
