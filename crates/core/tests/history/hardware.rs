//! Stand-in devices: what they hold, what they draw, and how they fail.

use litd_power::{
    CapRange, DeviceKind, Holder, Identity, Operation, PowerError, ReadBack, Reading, Sharing,
    Throttle,
};
use litd_units::{Celsius, Hertz, Joules, Nanos, Watts};

use crate::by_hand::Hand;
use crate::discovery::Odd;
use crate::inside::Trap;
use crate::jobs::Spared;
use crate::let_go::Hold;
use crate::matrix::{Subject, subjects};
use crate::rng::Rng;

/// The highest clock of a GPU, MHz.
pub const HIGHEST_CLOCK: u32 = 1410;

pub const SECOND: i64 = 1_000_000_000;
pub const MILLI: i64 = 1_000_000;

/// Caps are compared as whole microwatts.
pub fn micro(cap: Watts) -> i64 {
    (cap.0 * 1e6).round() as i64
}

pub fn whole(micro: i64) -> Watts {
    Watts(micro as f64 / 1e6)
}

/// Until when each misbehaviour lasts, in simulated time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moods {
    pub refuses: i64,
    pub lies: i64,
    pub overshoots: i64,
    pub flaky: i64,
    pub odd: i64,
    pub unsettled: i64,
    pub no_range: i64,
    /// The driver tells an odd range until then.
    pub odd_range: Option<(Odd, i64)>,
    /// The driver tells another device's values until then.
    pub anothers: Option<(Anothers, i64)>,
    /// The driver tells impossible holders until then.
    pub odd_holders: i64,
    pub no_holders: i64,
    pub hot: i64,
    /// The limiter then.
    pub throttle: Option<Throttle>,
    /// The next operation takes so long.
    pub block: i64,
    /// The device goes once it is written, for so long.
    pub leaves: Option<i64>,
    /// The next one about this does.
    pub slow: Option<(Subject, i64)>,
}

impl Moods {
    /// How long an operation takes, if something makes it slow.
    pub fn takes(&mut self, operation: Operation) -> Option<i64> {
        let subjects = subjects(operation);
        let meant = self.slow.filter(|(subject, _)| subjects.contains(subject));
        if let Some((_, takes)) = meant {
            self.slow = None;
            return Some(takes);
        }
        Some(std::mem::take(&mut self.block)).filter(|&block| block > 0)
    }
}

/// How a GPU tells its limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tells {
    /// Whether power does.
    Flag,
    /// For which share of the time power does.
    Share,
    /// By its power.
    Power,
    /// Not at all.
    Nothing,
}

const TELLS: [Tells; 8] = [
    Tells::Flag,
    Tells::Flag,
    Tells::Flag,
    Tells::Flag,
    Tells::Share,
    Tells::Share,
    Tells::Power,
    Tells::Nothing,
];

/// A value of another device's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Anothers {
    /// The address: in place of this device's, the one with this index.
    Address(usize),
    /// The cap.
    Cap(i64),
    /// The holders.
    Holders(usize),
    /// The kind of device.
    Kind,
}

/// An operation of a device for the living daemon.
#[derive(Debug, Clone, Copy)]
pub struct Op {
    pub operation: Operation,
    pub since: i64,
    pub serial: u64,
    /// The cap when the operation began.
    pub before: i64,
    /// The cap that the daemon's thread knew then.
    pub knew: Option<i64>,
    /// When a write looks, and when it lands.
    pub looks: i64,
    pub lands: i64,
}

/// A device.
#[derive(Debug, Clone)]
pub struct Hw {
    pub identity: Identity,
    pub range: CapRange,
    pub cap: i64,
    /// The cap that the daemon was told last.
    pub known: i64,
    /// When that reading of it was asked for.
    pub read_asked: i64,
    /// The most that it may hold since it has failed, whatever it was read to hold, until it is litd's again; 0:
    /// nothing else than that.
    pub failed_with: i64,
    /// How fast its silicon is.
    pub quality: f64,
    /// Every cap that was set by anybody but litd, the latest last.
    pub natural: Vec<i64>,
    /// Whether anybody but litd has ever set it.
    pub was_taken: bool,
    /// Foreign caps that a late write of litd's has replaced, or that equal such a write, so that nobody can tell
    /// the two apart; until they are restored.
    pub overwritten: Vec<i64>,
    /// Every cap that litd was told to set there, each once.
    pub asked: Vec<i64>,
    /// Whether litd was told to write it since somebody else did.
    pub touched: bool,
    /// The cap before it was lowered, until its power was seen to follow.
    pub owes: i64,
    /// When it was lowered, and its power then: power follows after a while.
    pub lowered: (i64, f64),
    /// The same by the daemon's clock.
    pub lowered_clock: i64,
    /// For so long: a reload since changes nothing in that.
    pub lowered_patience: i64,
    /// How long that takes.
    pub lag: i64,
    /// How it tells its limiter.
    pub tells: Tells,
    /// Whether it has told the daemon that lives what it draws.
    pub told: bool,
    /// The limiter that the daemon was told last.
    pub throttle_told: Option<Throttle>,
    /// The most that it has held while this daemon lives.
    pub most_held: i64,
    /// The daemon has been told twice of a foreign hand.
    pub foreign_known: bool,
    /// And that hand was counted.
    pub foreign_counted: bool,
    /// How it is shared, as the daemon was told.
    pub sharing_told: Sharing,
    pub loaded: bool,
    /// Processes that use it, and until when they do.
    pub holders: Vec<(Holder, i64)>,
    /// The driver has told of processes of several users.
    pub users_told: bool,
    /// An administrator has released the device: the daemon does not read it until it is resumed.
    pub let_go: bool,
    /// And that was asked for by name, so that the next daemon may know of it.
    pub let_go_for_good: bool,
    /// The clock that it is locked to, in MHz.
    pub clocks: Option<u32>,
    /// The daemon's life in which they were.
    pub clocks_epoch: u32,
    /// When a lock last failed that is done later.
    pub lock_failed_at: Option<i64>,
    /// When one was done after all.
    pub locked_after_all: Option<i64>,
    /// Whether its clocks can't be locked.
    pub is_clockless: bool,
    /// Whether a foreign program has unlocked its clocks.
    pub clocks_taken: bool,
    /// Every clock that its ranks have asked for.
    pub wishes: Vec<u32>,
    /// Whether the daemon has it open, and since when it is let go of.
    pub hold: Hold,
    pub gone: bool,
    pub moods: Moods,
    pub op: Option<Op>,
    /// Not to be counted on before then.
    pub trouble_until: i64,
    /// Until then its own watts are excused: see rule 25 (`ledger/excuse.rs`).
    pub excused_until: i64,
    /// When a write of it was called failed, or was not done, last: it may be done for a while.
    pub failed_at: Option<i64>,
    /// When the daemon was last told that a write of it has failed, or has left another cap than the one wanted.
    pub not_done_at: Option<i64>,
    /// Power that it drew when it stopped to follow its cap.
    stuck_power: f64,
    /// A foreign hand was there, when litd was in no write.
    pub foreign: bool,
    /// litd has seen that.
    pub foreign_seen: bool,
    /// Set if its job opted out.
    pub spared: Option<Spared>,
    /// The override.
    pub hand: Hand,
    /// The cap that the daemon's thread for this device has seen last.
    pub worker_saw: Option<i64>,
    /// The range that the daemon was told last, if any.
    pub range_told: Option<CapRange>,
    /// The highest cap that this daemon was ever told of, in µW.
    pub highest_told: i64,
    /// Since when the daemon does not know the range, if it does not.
    pub range_unknown_since: Option<i64>,
    /// When the daemon has asked for it again.
    pub asked_again: Option<i64>,
    /// Whether this daemon has read the same value twice: before that the cap found is open.
    pub looked_at: bool,
    /// Whether this daemon has ever known its cap and its range.
    pub was_judged: bool,
    /// The daemon does not know of it: its driver did not list it.
    pub absent: bool,
    /// Where the daemon has it in its list.
    pub place: usize,
    /// A foreign cap has to be reported until then.
    pub report_due: Option<i64>,
    /// A rival waits for litd to do something there.
    pub trap: Option<Trap>,
    /// Whether the driver's highest cap has shrunk.
    pub shrunk: bool,
}

impl Hw {
    pub fn gpu(rng: &mut Rng, at: usize, unit: Watts) -> Self {
        let default = f64::from(rng.pick(&[500_u32, 700, 750, 1000]));
        let highest = if rng.chance(0.3) {
            default * 1.2
        } else {
            default
        };
        let lowest: f64 = rng.pick(&[0.0, 100.0, 200.0, 250.0]);
        let found = match rng.below(10) {
            0 => default * 0.8,
            // Below litd's own floor, or above its ceiling.
            1 => (lowest + 20.0).max(100.0),
            2 => highest,
            3 => default * 0.5 + 0.5 * rng.unit(),
            _ => default,
        };
        let address = format!("0000:{:02x}:00.0", 5 + at * 16);
        let serial = rng.chance(0.7).then(|| format!("S{at:03}"));
        let uuid = rng.chance(0.5).then(|| format!("GPU-{at:08x}"));
        let range = CapRange {
            lowest: Watts(lowest),
            highest: Watts(highest),
            default: Watts(default),
            resolution: unit,
        };
        let quality = 1.0 - 0.06 * rng.unit();
        let mut gpu = Self::new(
            DeviceKind::Gpu,
            address,
            (serial, uuid),
            range,
            Watts(found),
            quality,
        );
        gpu.lag = rng.pick(&[0, 0, 700 * MILLI, 2 * SECOND]);
        gpu.tells = rng.pick(&TELLS);
        if rng.chance(0.2) {
            gpu.identity.read_back = ReadBack::MayBeCached;
        }
        gpu
    }

    pub fn cpu(rng: &mut Rng, at: usize) -> Self {
        let default = f64::from(rng.pick(&[250_u32, 350, 400]));
        let range = CapRange {
            lowest: Watts(rng.pick(&[0.0, 50.0, 120.0])),
            highest: Watts(default * 1.1),
            default: Watts(default),
            resolution: Watts(rng.pick(&[1.0, 0.125])),
        };
        let found = if rng.chance(0.8) {
            default
        } else {
            default * 0.9
        };
        // Not how litd would name it: where a socket is missing, the name is the next one's.
        let address = format!("socket{at}");
        Self::new(
            DeviceKind::Cpu,
            address,
            (None, None),
            range,
            Watts(found),
            1.0,
        )
    }

    fn new(
        kind: DeviceKind,
        address: String,
        (serial, uuid): (Option<String>, Option<String>),
        range: CapRange,
        found: Watts,
        quality: f64,
    ) -> Self {
        let cap = micro(found);
        Self {
            identity: Identity {
                kind,
                address,
                uuid,
                serial,
                model: "stand-in".to_owned(),
                driver: "none 1.0".to_owned(),
                backend: "simulated".to_owned(),
                sharing: Sharing::Whole,
                read_back: ReadBack::Device,
            },
            range,
            cap,
            known: cap,
            read_asked: 0,
            failed_with: 0,
            quality,
            natural: vec![cap],
            was_taken: false,
            overwritten: Vec::new(),
            asked: Vec::new(),
            touched: false,
            owes: 0,
            lowered: (i64::MIN / 2, 0.0),
            lowered_clock: i64::MIN / 2,
            lowered_patience: i64::MAX,
            lag: 0,
            tells: Tells::Flag,
            told: false,
            throttle_told: None,
            most_held: cap,
            foreign_known: false,
            foreign_counted: false,
            sharing_told: Sharing::Whole,
            loaded: false,
            holders: Vec::new(),
            users_told: false,
            let_go: false,
            let_go_for_good: false,
            clocks: None,
            clocks_epoch: u32::MAX,
            lock_failed_at: None,
            locked_after_all: None,
            clocks_taken: false,
            is_clockless: false,
            wishes: Vec::new(),
            hold: Hold::default(),
            gone: false,
            moods: Moods::default(),
            op: None,
            trouble_until: i64::MIN,
            excused_until: i64::MIN,
            failed_at: None,
            not_done_at: None,
            stuck_power: 0.0,
            foreign: false,
            foreign_seen: false,
            spared: None,
            hand: Hand::default(),
            worker_saw: None,
            range_told: None,
            highest_told: 0,
            range_unknown_since: None,
            asked_again: None,
            was_judged: false,
            absent: false,
            place: 0,
            report_due: None,
            trap: None,
            shrunk: false,
            looked_at: false,
        }
    }

    pub fn is_gpu(&self) -> bool {
        self.identity.kind == DeviceKind::Gpu
    }

    pub fn error(&self, action: &'static str, cause: &str) -> PowerError {
        let device = self.identity.address.clone();
        let cause = cause.to_owned();
        match self.gone {
            true => PowerError::Gone { device, cause },
            false => PowerError::Driver {
                device,
                action,
                cause,
            },
        }
    }

    /// The range that the driver tells.
    pub fn range(&self, now: i64) -> Result<CapRange, PowerError> {
        let odd = self.moods.odd_range.filter(|&(_, until)| now < until);
        let told = match odd {
            _ if self.gone || now < self.moods.no_range => None,
            Some((odd, _)) => odd.told(self),
            None => Some(self.range),
        };
        told.ok_or_else(|| self.error("reading the range", "no answer"))
    }

    /// A process comes to use it, for as long as it lives.
    pub fn hold(&mut self, holder: Holder) {
        self.hold_until(holder, i64::MAX);
    }

    pub fn hold_until(&mut self, holder: Holder, until: i64) {
        self.holders.push((holder, until));
    }

    /// The processes that use it now.
    pub fn alive(&self, now: i64) -> Vec<Holder> {
        let alive = self.holders.iter().filter(|(_, until)| now < *until);
        alive.map(|(holder, _)| holder.clone()).collect()
    }

    pub fn holders(&self, now: i64) -> Result<Vec<Holder>, PowerError> {
        match self.gone || now < self.moods.no_holders {
            true => Err(self.error("asking for holders", "not supported")),
            false => Ok(self.alive(now)),
        }
    }

    /// The cap after a write, if it has an effect.
    pub fn set(&self, now: i64, asked: i64, rng: &mut Rng) -> Result<i64, PowerError> {
        let (lowest, highest) = (micro(self.range.lowest), micro(self.range.highest));
        if self.gone || now < self.moods.refuses {
            return Err(self.error("setting the cap", "refused"));
        }
        if asked < lowest || asked > highest {
            return Err(PowerError::OutOfRange {
                device: self.identity.address.clone(),
                asked: whole(asked),
                lowest: self.range.lowest,
                highest: self.range.highest,
            });
        }
        if now < self.moods.lies {
            return Ok(self.cap);
        }
        if now < self.moods.overshoots {
            let off = rng.between(-20, 40) * 1_000_000;
            return Ok((asked + off).clamp(lowest, highest));
        }
        Ok(asked)
    }

    pub fn begin_unsettled(&mut self, until: i64) {
        self.stuck_power = self.draw().max(0.98 * self.cap as f64 / 1e6);
        self.moods.unsettled = until;
    }

    pub fn highest_clock(&self, now: i64) -> Result<Hertz, PowerError> {
        let device = self.identity.address.clone();
        match self.is_clockless {
            true => Err(PowerError::Unsupported {
                device,
                action: "reading the highest clock",
                cause: "too old".to_owned(),
            }),
            false if self.gone || now < self.moods.refuses => {
                Err(self.error("reading the highest clock", "no answer"))
            }
            false => Ok(Hertz(f64::from(HIGHEST_CLOCK) * 1e6)),
        }
    }

    /// The cap that its locked clock needs.
    pub fn needs(&self) -> Option<i64> {
        let clock = f64::from(self.clocks?) / f64::from(HIGHEST_CLOCK);
        Some((0.95 * micro(self.range.default) as f64 * clock.powf(1.5)) as i64)
    }

    /// The effective limit.
    fn in_force(&self) -> f64 {
        self.cap.min(self.needs().unwrap_or(i64::MAX)) as f64 / 1e6
    }

    fn draw(&self) -> f64 {
        let cap = self.cap as f64 / 1e6;
        if self.loaded {
            (cap * 0.98).min(self.in_force())
        } else {
            cap.min(90.0)
        }
    }

    pub fn power(&self, now: i64) -> f64 {
        let (since, before) = self.lowered;
        if now < self.moods.unsettled {
            self.stuck_power
        } else if now < since + self.lag {
            self.draw().max(before)
        } else {
            self.draw()
        }
    }

    /// The cap is about to be lowered. From this time of its clock on the daemon waits for the power to follow, if
    /// it spends the freed watts.
    pub fn lower(&mut self, now: i64, clock: Option<i64>) {
        self.lowered = (now, self.power(now));
        self.lowered_clock = clock.unwrap_or(self.lowered_clock);
    }

    /// How fast it computes.
    pub fn speed(&self) -> f64 {
        self.quality * (self.in_force() / self.range.default.0).max(0.05).powf(0.4)
    }

    fn clock(&self) -> Hertz {
        let short = |needs: i64| (self.cap as f64 / needs as f64).min(1.0).powf(0.4);
        match (self.clocks, self.needs()) {
            (Some(clock), Some(needs)) => Hertz(f64::from(clock) * 1e6 * short(needs)),
            _ => Hertz(2.0e9 * self.speed()),
        }
    }

    pub fn read(&self, now: i64, core_now: i64, rng: &mut Rng) -> Result<Reading, PowerError> {
        if self.gone || (now < self.moods.flaky && rng.chance(0.7)) {
            return Err(self.error("reading", "no answer"));
        }
        let power = self.power(now);
        let hot = now < self.moods.hot;
        let limited = self.loaded && self.needs().is_none_or(|needs| needs > self.cap);
        let mut reading = Reading {
            cap: whole(self.cap),
            enforced: None,
            power: Some(Watts(power)).filter(|_| self.tells != Tells::Nothing),
            energy: Some(Joules(Nanos(core_now).as_secs_f64() * 300.0)),
            temperature: Some(Celsius(if hot { 96.0 } else { 30.0 + power * 0.05 })),
            slowdown: Some(Celsius(97.0)),
            clock: Some(self.clock()),
            power_limited: (self.tells == Tells::Flag).then_some(limited),
            power_share: match self.tells {
                Tells::Share => Some(if limited { 0.9 } else { 0.1 }),
                _ => None,
            },
            throttle: self.moods.throttle.filter(|_| hot),
            forgetful: false,
        };
        if now < self.moods.odd {
            match rng.below(6) {
                0 => reading.power = Some(Watts(f64::NAN)),
                1 => reading.power = None,
                2 => reading.temperature = Some(Celsius(f64::INFINITY)),
                3 => reading.cap = Watts(f64::NAN),
                4 => reading.clock = Some(Hertz(-1.0)),
                _ => reading.power = Some(Watts(-40.0)),
            }
        }
        Ok(reading)
    }

    /// Whether any misbehaviour is on now.
    pub fn misbehaves(&self, now: i64) -> bool {
        let it = &self.moods;
        let slow = self.op.is_some_and(|op| now > op.since + 300 * MILLI);
        let until = [
            it.refuses,
            it.lies,
            it.overshoots,
            it.flaky,
            it.unsettled,
            it.no_range,
            it.odd_range.map_or(i64::MIN, |(_, until)| until),
            it.anothers.map_or(i64::MIN, |(_, until)| until),
        ];
        self.gone || slow || until.into_iter().chain([it.odd]).any(|until| now < until)
    }

    /// Whether nothing is wrong with it, nor was of late, nor is about to be.
    pub fn is_well(&self, now: i64) -> bool {
        !self.misbehaves(now) && self.moods.block == 0 && now >= self.trouble_until
    }

    /// Whether it takes no write: it refuses, or does what it began at `by` at the latest.
    pub fn takes_no_write(&self, now: i64, by: i64) -> bool {
        let hangs = self.op.is_some_and(|op| op.since <= by);
        hangs || self.gone || now < self.moods.refuses
    }

    /// The most that it may hold, for all that anybody can know who waits for its answer.
    pub fn most(&self) -> i64 {
        let Some(op) = self.op else { return self.cap };
        let asked = match op.operation {
            Operation::Set(cap) => micro(cap),
            _ => self.cap,
        };
        self.cap.max(op.before).max(asked)
    }

    /// Whether its power has to be seen to follow a lowered cap.
    pub fn is_measured(&self) -> bool {
        !self.is_gpu() || self.told || self.identity.read_back == ReadBack::MayBeCached
    }

    /// The watts with which it counts in the sum: a GPU that the daemon's driver does not list draws 0 W.
    pub fn counts(&self) -> i64 {
        if self.absent { 0 } else { self.cap }
    }

    /// A foreign program sets the cap.
    pub fn take_over(&mut self, cap: i64) {
        let before = std::mem::replace(&mut self.cap, cap);
        self.was_taken = true;
        let looks_late = self.asked.contains(&cap) && self.natural.contains(&before);
        self.overwritten = looks_late.then_some(before).into_iter().collect();
        self.natural.push(cap);
    }
}
