//! A GPU and its driver, with what may be wrong with them.

use litd_core::{Device, Operation, Range, Reply};
use litd_power::{CapRange, DeviceKind, Handles, Identity, PowerError, ReadBack, Reading, Sharing};
use litd_units::{Celsius, Hertz, Joules, Watts};

pub const RANGE: CapRange = CapRange {
    lowest: Watts(200.0),
    highest: Watts(700.0),
    default: Watts(700.0),
    resolution: Watts(1.0),
};

/// The fate of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    Taken,
    Fail,
    /// Reported as failed, and done so many nanoseconds later.
    FailAndLand(i64),
    /// litd lacks the right to.
    Forbidden,
    OutOfRange,
    /// The driver remembers what it was told and says that; the GPU holds what it held.
    NotInForce,
    /// The driver counts in less than the unit that it tells: what it holds is a little less.
    Rounded,
    /// The same, which it tells with the next reading only.
    RoundedLater,
}

#[derive(Debug, Clone)]
pub struct Gpu {
    number: usize,
    pub identity: Identity,
    pub range: CapRange,
    /// The cap that it holds.
    pub cap: Watts,
    /// Begun anew by a reset.
    pub energy: f64,
    pub power: Watts,
    pub fails_reads: bool,
    /// Whether its driver does not tell its range.
    pub hides_range: bool,
    /// Nor which part it is.
    pub hides_serial: bool,
    pub writes: Writes,
    /// Nanoseconds until a write is done and answered.
    pub write_takes: i64,
    pub read_takes: i64,
    pub enforced: Option<Watts>,
    /// Whether its driver answers nothing.
    pub hangs: bool,
    /// Whether its driver has no persistence mode: closing it restores its default.
    pub forgets: bool,
    /// The cap that its driver tells instead of the real one.
    pub says: Option<Watts>,
}

/// GPUs that hold so much when litd starts.
pub fn found_at(gpus: usize, cap: f64) -> Vec<Gpu> {
    (0..gpus).map(|gpu| Gpu::new(gpu, cap)).collect()
}

impl Gpu {
    fn new(index: usize, cap: f64) -> Self {
        Self {
            number: index,
            identity: Identity {
                kind: DeviceKind::Gpu,
                address: format!("0000:{:02x}:00.0", index + 1),
                uuid: None,
                serial: Some(format!("S{index}")),
                model: "made up".to_owned(),
                driver: "made up".to_owned(),
                backend: "simulated".to_owned(),
                sharing: Sharing::Whole,
                read_back: ReadBack::Device,
            },
            range: RANGE,
            cap: Watts(cap),
            energy: 1e9,
            power: Watts(90.0),
            fails_reads: false,
            hides_range: false,
            hides_serial: false,
            writes: Writes::Taken,
            write_takes: 0,
            read_takes: 0,
            enforced: None,
            hangs: false,
            forgets: false,
            says: None,
        }
    }

    /// Comes up anew with its default cap, and its energy is counted from nothing.
    pub fn reset(&mut self) {
        self.cap = self.range.default;
        self.energy /= 10.0;
    }

    fn reading(&self) -> Reading {
        Reading {
            cap: self.says.unwrap_or(self.cap),
            enforced: self.enforced,
            power: Some(self.power),
            energy: Some(Joules(self.energy)),
            temperature: Some(Celsius(60.0)),
            slowdown: Some(Celsius(95.0)),
            clock: Some(Hertz(1.5e9)),
            power_limited: Some(true),
            power_share: None,
            throttle: None,
            forgetful: self.forgets,
        }
    }

    fn told_identity(&self) -> Identity {
        let serial = self.identity.serial.clone();
        Identity {
            serial: serial.filter(|_| !self.hides_serial),
            ..self.identity.clone()
        }
    }

    /// As a litd that starts now finds it.
    pub fn discovered(&self) -> Device {
        let range = match self.hides_range || self.hangs {
            true => Range::NEVER_TOLD,
            false => self.range.into(),
        };
        Device {
            number: self.number,
            identity: self.told_identity(),
            range,
            reading: (!self.fails_reads && !self.hangs).then(|| self.reading()),
        }
    }

    /// The driver's answer to an operation that is done now.
    pub fn perform(&mut self, operation: Operation) -> Reply {
        self.energy += 0.001;
        let unless = |fails, action| match fails {
            true => Err(self.error(action)),
            false => Ok(()),
        };
        match operation {
            Operation::Read => {
                Reply::Read(unless(self.fails_reads, "reading").map(|()| self.reading()))
            }
            Operation::Set(cap) => Reply::Set(self.set(cap)),
            Operation::Range => {
                Reply::Range(unless(self.hides_range, "range").map(|()| self.range))
            }
            Operation::Identify => {
                let known = unless(self.hides_range || self.fails_reads, "identity");
                Reply::Identity(known.map(|()| (self.told_identity(), self.range)))
            }
            Operation::Holders => Reply::Holders(Ok(Vec::new())),
            Operation::HighestClock => Reply::HighestClock(Ok(Hertz(2e9))),
            Operation::Clocks(_) => Reply::Clocks(Ok(())),
            Operation::Release => {
                if self.forgets {
                    self.cap = self.range.default;
                }
                Reply::Released(Handles::Closed)
            }
        }
    }

    fn set(&mut self, cap: Watts) -> Result<Watts, PowerError> {
        match self.writes {
            Writes::Fail | Writes::FailAndLand(_) => Err(self.error("setting the cap")),
            Writes::Forbidden => Err(PowerError::Permission {
                device: self.identity.address.clone(),
                action: "setting the cap",
                hint: "made up".to_owned(),
            }),
            Writes::OutOfRange => Err(self.out_of_range(cap)),
            _ if cap < self.range.lowest || cap > self.range.highest => Err(self.out_of_range(cap)),
            Writes::NotInForce => {
                self.says = Some(cap);
                Ok(cap)
            }
            Writes::Taken => {
                self.cap = cap;
                Ok(cap)
            }
            Writes::Rounded => {
                self.cap = self.rounded(cap);
                Ok(self.cap)
            }
            Writes::RoundedLater => {
                self.cap = self.rounded(cap);
                Ok(cap)
            }
        }
    }

    fn rounded(&self, cap: Watts) -> Watts {
        let unit = self.range.default.0 / 1024.0;
        Watts((cap.0 / unit).floor() * unit)
    }

    fn out_of_range(&self, asked: Watts) -> PowerError {
        PowerError::OutOfRange {
            device: self.identity.address.clone(),
            asked,
            lowest: self.range.lowest,
            highest: self.range.highest,
        }
    }

    fn error(&self, action: &'static str) -> PowerError {
        PowerError::Driver {
            device: self.identity.address.clone(),
            action,
            cause: "made up".to_owned(),
        }
    }
}
