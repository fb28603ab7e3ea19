//! Devices with faults, driven by the core directly.
use litd_api::{Command, Done, Event as Told, Problem, Status};
use litd_core::{
    Appended, Config, Core, Device, DeviceId, Effect, Event, MemoryStore, Operation, Range, Reply,
    Store,
};
use litd_power::{CapRange, DeviceKind, Identity, PowerError, ReadBack, Reading, Sharing};
use litd_units::{Celsius, Hertz, Joules, Nanos, Watts};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

pub const MS: i64 = 1_000_000;
pub const S: i64 = 1_000 * MS;

pub const RANGE: CapRange = CapRange {
    lowest: Watts(200.0),
    highest: Watts(700.0),
    default: Watts(700.0),
    resolution: Watts(1.0),
};

#[derive(Clone)]
pub struct Dev {
    pub id: Identity,
    pub range: CapRange,
    pub cap: Watts,
    pub enforced: Option<Watts>,
    pub energy: f64,
    pub fail_reads: bool,
    pub no_range: bool,
    /// A write fails with a driver's error and lands after so many ns.
    pub fail_sets: Option<Option<i64>>,
    /// Answers nothing.
    pub hang: bool,
    /// A write lands and is answered after so long.
    pub set_takes: i64,
    pub power: Option<Watts>,
    pub round: f64,
    /// Writes are refused: 1 permission, 2 out of range.
    pub refuses: u8,
    /// Its driver remembers what it was told and says that; what it holds is `cap`.
    pub cached: bool,
    pub says: Option<Watts>,
}

#[derive(Debug, Default)]
pub struct Platter {
    pub mem: MemoryStore,
    pub mode: u32,
    pub lost: bool,
}
#[derive(Debug, Clone, Default)]
pub struct Disk(pub Rc<RefCell<Platter>>);
fn full() -> io::Error {
    io::Error::other("disk full")
}
impl Store for Disk {
    fn load_journal(&mut self) -> io::Result<Vec<u8>> {
        self.0.borrow_mut().lost = false;
        Ok(self.0.borrow().mem.journal.clone())
    }
    fn append_journal(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut p = self.0.borrow_mut();
        if p.lost {
            return Err(io::Error::new(io::ErrorKind::NotFound, "lost"));
        }
        if p.mode & 1 != 0 {
            let half = bytes.len() / 2;
            p.mem.journal.extend_from_slice(&bytes[..half]);
            return Err(full());
        }
        p.mem.journal.extend_from_slice(bytes);
        Ok(())
    }
    fn replace_journal(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut p = self.0.borrow_mut();
        if p.mode & 2 != 0 {
            return Err(full());
        }
        p.mem.journal = bytes.to_vec();
        if p.mode & 4 != 0 {
            return Err(full());
        }
        p.lost = false;
        Ok(())
    }
    fn load_learned(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.0.borrow().mem.learned.clone())
    }
    fn replace_learned(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.borrow_mut().mem.learned = bytes.to_vec();
        Ok(())
    }
    fn load_audit_tail(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.0.borrow().mem.audit.clone())
    }
    fn append_audit(&mut self, bytes: &[u8]) -> io::Result<Appended> {
        let mut p = self.0.borrow_mut();
        if p.mode & 8 != 0 {
            return Err(full());
        }
        if p.mem.audit.len() > 100_000 {
            p.mem.audit.clear();
        }
        p.mem.audit.extend_from_slice(bytes);
        Ok(Appended::After)
    }
    fn load_condition(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.0.borrow().mem.condition.clone())
    }
    fn replace_condition(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.0.borrow().mode & 2 != 0 {
            return Err(full());
        }
        self.0.borrow_mut().mem.condition = bytes.to_vec();
        Ok(())
    }
}

pub struct W {
    pub core: Option<Core<Disk>>,
    pub store: Disk,
    pub config: Config,
    pub devs: Vec<Dev>,
    pub now: i64,
    pub late: Vec<(i64, usize, Watts)>,
    pub answers: Vec<(i64, usize, Operation, u32)>,
    pub hung: Vec<(usize, Operation, u32)>,
    pub life: u32,
    pub log: Vec<String>,
    pub stopped: bool,
    pub most_sum: f64,
    pub opened: Vec<usize>,
    /// What is done late is done before what is asked for later.
    pub fifo: bool,
}

pub fn address(n: usize) -> String {
    format!("0000:{:02x}:00.0", n + 1)
}

pub fn dev(n: usize, kind: DeviceKind) -> Dev {
    Dev {
        id: Identity {
            kind,
            address: match kind {
                DeviceKind::Gpu => address(n),
                DeviceKind::Cpu => format!("cpu{n}"),
            },
            uuid: None,
            serial: None,
            model: "m".into(),
            driver: "d".into(),
            backend: "simulated".into(),
            sharing: Sharing::Whole,
            read_back: ReadBack::Device,
        },
        range: RANGE,
        cap: Watts(700.0),
        enforced: None,
        energy: 0.0,
        fail_reads: false,
        no_range: false,
        fail_sets: None,
        hang: false,
        set_takes: 0,
        power: None,
        round: 0.0,
        refuses: 0,
        cached: false,
        says: None,
    }
}

impl W {
    pub fn new(gpus: usize, config: Config) -> Self {
        let devs = (0..gpus).map(|n| dev(n, DeviceKind::Gpu)).collect();
        Self::with(devs, config)
    }
    pub fn with(devs: Vec<Dev>, config: Config) -> Self {
        let mut w = Self {
            core: None,
            store: Disk::default(),
            config,
            devs,
            now: S,
            late: vec![],
            answers: vec![],
            hung: vec![],
            life: 0,
            log: vec![],
            stopped: false,
            most_sum: 0.0,
            opened: vec![],
            fifo: std::env::var("ADV_FIFO").is_ok(),
        };
        w.start();
        w
    }
    fn inventory(&self) -> Vec<Device> {
        self.devs
            .iter()
            .map(|d| Device {
                identity: d.id.clone(),
                range: if d.no_range || d.hang {
                    Range::NEVER_TOLD
                } else {
                    d.range.into()
                },
                reading: (!d.fail_reads && !d.hang).then(|| reading(d)),
            })
            .collect()
    }
    pub fn start(&mut self) {
        self.life += 1;
        self.stopped = false;
        let core = Core::new(
            self.config.clone(),
            self.inventory(),
            self.store.clone(),
            "boot",
            Nanos(self.now),
            1e9 + self.now as f64 / 1e9,
        )
        .unwrap();
        self.core = Some(core);
        self.act();
    }
    /// kill -9
    pub fn kill(&mut self) {
        self.log.push("--- kill -9".into());
        self.core = None;
        self.answers.clear();
        self.hung.clear();
    }
    /// litd restore; returns whether it was done within 20 s.
    pub fn restore(&mut self) -> bool {
        self.log.push("--- litd restore".into());
        self.life += 1;
        self.stopped = false;
        let core = Core::restoring(
            self.config.clone(),
            self.inventory(),
            self.store.clone(),
            "boot",
            Nanos(self.now),
            1e9,
        )
        .unwrap();
        self.core = Some(core);
        self.act();
        let until = self.now + 20 * S;
        while !self.stopped && self.now < until {
            self.step();
        }
        let done = self.stopped;
        self.kill();
        done
    }
    pub fn stop(&mut self) -> bool {
        self.log.push("--- stop".into());
        self.event(Event::Stop);
        let until = self.now + 20 * S;
        while !self.stopped && self.now < until {
            self.step();
        }
        let done = self.stopped;
        self.core = None;
        self.answers.clear();
        self.hung.clear();
        done
    }
    pub fn event(&mut self, event: Event<'_>) {
        let now = Nanos(self.now);
        if let Some(core) = &mut self.core {
            core.handle(now, event);
        }
        self.act();
    }
    pub fn command(&mut self, command: Command) -> Result<Done, Problem> {
        let now = Nanos(self.now);
        let out = self.core.as_mut().unwrap().command(now, 0, command);
        self.log
            .push(format!("{:8.2} command -> {out:?}", self.now as f64 / 1e9));
        self.act();
        out
    }
    pub fn act(&mut self) {
        for _ in 0..1000 {
            let Some(core) = &mut self.core else { return };
            let effects = core.effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::Device {
                        device: DeviceId(d),
                        operation,
                    } => self.begin(d, operation),
                    Effect::Log(Told { text, device, .. }) => {
                        self.log.push(format!(
                            "{:8.2} {} {text}",
                            self.now as f64 / 1e9,
                            device.unwrap_or_default()
                        ));
                    }
                    Effect::Stopped => self.stopped = true,
                    _ => {}
                }
            }
        }
        for line in &self.log[self.log.len().saturating_sub(3000)..] {
            println!("{line}");
        }
        panic!("spins");
    }
    fn begin(&mut self, d: usize, op: Operation) {
        if let Operation::Set(cap) = op {
            self.log
                .push(format!("{:8.2} SET {d} {cap}", self.now as f64 / 1e9));
        }
        if self.devs[d].hang {
            self.hung.push((d, op, self.life));
            return;
        }
        let takes = if matches!(op, Operation::Set(_)) {
            self.devs[d].set_takes
        } else {
            0
        };
        if takes > 0 {
            self.answers.push((self.now + takes, d, op, self.life));
            return;
        }
        self.answer(d, op);
    }
    fn answer(&mut self, d: usize, op: Operation) {
        let reply = self.perform(d, op);
        let now = Nanos(self.now);
        if let Some(core) = &mut self.core {
            core.handle(
                now,
                Event::Device {
                    device: DeviceId(d),
                    reply,
                },
            );
        }
    }
    /// Hung operations are answered now.
    pub fn unhang(&mut self, d: usize) {
        self.devs[d].hang = false;
        let (mine, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.hung)
            .into_iter()
            .partition(|it| it.0 == d);
        self.hung = rest;
        for (d, op, life) in mine {
            if life == self.life {
                self.answer(d, op)
            } else if let Operation::Set(cap) = op {
                self.devs[d].cap = cap
            }
        }
        self.act();
    }
    pub fn perform(&mut self, d: usize, op: Operation) -> Reply {
        let dev = &mut self.devs[d];
        dev.energy += 1.0;
        let err = |action| PowerError::Driver {
            device: dev.id.address.clone(),
            action,
            cause: "made up".into(),
        };
        match op {
            Operation::Read if dev.fail_reads => Reply::Read(Err(err("reading"))),
            Operation::Read => Reply::Read(Ok(reading(dev))),
            Operation::Set(cap) => {
                match dev.refuses {
                    1 => {
                        return Reply::Set(Err(PowerError::Permission {
                            device: dev.id.address.clone(),
                            action: "setting the cap",
                            hint: "made up".into(),
                        }));
                    }
                    2 => {
                        return Reply::Set(Err(PowerError::OutOfRange {
                            device: dev.id.address.clone(),
                            asked: cap,
                            lowest: dev.range.lowest,
                            highest: dev.range.highest,
                        }));
                    }
                    _ => {}
                }
                if let Some(late) = dev.fail_sets {
                    let e = err("setting the cap");
                    if let Some(late) = late {
                        self.late.push((self.now + late, d, cap));
                    }
                    return Reply::Set(Err(e));
                }
                if cap < dev.range.lowest || cap > dev.range.highest {
                    return Reply::Set(Err(PowerError::OutOfRange {
                        device: dev.id.address.clone(),
                        asked: cap,
                        lowest: dev.range.lowest,
                        highest: dev.range.highest,
                    }));
                }
                if dev.cached {
                    dev.says = Some(cap);
                    return Reply::Set(Ok(cap));
                }
                dev.cap = if dev.round > 0.0 {
                    Watts((cap.0 / dev.round).floor() * dev.round)
                } else {
                    cap
                };
                let cap = dev.cap;
                self.measure();
                if self.fifo {
                    self.late.retain(|it| it.1 != d);
                }
                Reply::Set(Ok(cap))
            }
            Operation::Range => {
                if dev.no_range {
                    Reply::Range(Err(err("range")))
                } else {
                    Reply::Range(Ok(dev.range))
                }
            }
            Operation::Identify => {
                if dev.no_range || dev.fail_reads {
                    Reply::Identity(Err(err("range")))
                } else {
                    Reply::Identity(Ok((dev.id.clone(), dev.range)))
                }
            }
            Operation::Holders => Reply::Holders(Ok(vec![])),
            Operation::HighestClock => Reply::HighestClock(Ok(Hertz(2e9))),
            Operation::Clocks(_) => Reply::Clocks(Ok(())),
            Operation::Release => Reply::Released,
        }
    }
    pub fn sum(&self) -> f64 {
        self.devs
            .iter()
            .filter(|d| d.id.kind == DeviceKind::Gpu)
            .map(|d| d.cap.0)
            .sum()
    }
    pub fn measure(&mut self) {
        self.most_sum = self.most_sum.max(self.sum());
    }
    pub fn step(&mut self) {
        self.now += 100 * MS;
        let now = self.now;
        let (due, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.late)
            .into_iter()
            .partition(|it| it.0 <= now);
        self.late = rest;
        for (_, d, cap) in due {
            self.log
                .push(format!("{:8.2} LANDS LATE {d} {cap}", now as f64 / 1e9));
            self.devs[d].cap = cap;
        }
        let (due, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.answers)
            .into_iter()
            .partition(|it| it.0 <= now);
        self.answers = rest;
        for (_, d, op, life) in due {
            if life == self.life {
                self.answer(d, op)
            }
        }
        self.measure();
        let deadline = self.core.as_ref().map(|c| c.deadline().0);
        if deadline.is_some_and(|at| at <= now) {
            self.event(Event::Time);
        } else {
            self.act();
        }
        self.measure();
    }
    pub fn pass(&mut self, seconds: f64) {
        let until = self.now + (seconds * 1e9) as i64;
        while self.now < until {
            self.step();
        }
    }
    pub fn foreign(&mut self, d: usize, cap: f64) {
        self.log
            .push(format!("{:8.2} FOREIGN {d} {cap}", self.now as f64 / 1e9));
        self.devs[d].cap = Watts(cap);
        if self.fifo {
            self.late.retain(|it| it.1 != d);
        }
    }
    pub fn status(&self) -> Status {
        self.core.as_ref().unwrap().status()
    }
    pub fn caps(&self) -> Vec<f64> {
        self.devs.iter().map(|d| d.cap.0).collect()
    }
    pub fn show(&self) {
        for line in &self.log {
            println!("{line}");
        }
        println!(
            "caps {:?} sum {} most {}",
            self.caps(),
            self.sum(),
            self.most_sum
        );
        if let Some(core) = &self.core {
            let s = core.status();
            println!(
                "status: budget {} caps {} summary {:?}",
                s.node.budget, s.node.caps, s.node.summary
            );
            for d in &s.devices {
                println!(
                    "   {} {:?} found {:?} cap {:?} floor {} ceiling {}",
                    d.name, d.state, d.found, d.cap, d.floor, d.ceiling
                );
            }
        }
    }
}

pub fn reading(d: &Dev) -> Reading {
    Reading {
        cap: d.says.unwrap_or(d.cap),
        enforced: d.enforced,
        power: Some(d.power.unwrap_or(Watts(90.0))),
        energy: Some(Joules(d.energy)),
        temperature: Some(Celsius(60.0)),
        slowdown: Some(Celsius(95.0)),
        clock: Some(Hertz(1.5e9)),
        power_limited: Some(true),
        power_share: None,
        throttle: None,
    }
}
