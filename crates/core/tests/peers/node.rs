//! A core with some GPUs whose drivers do as they are told, and hooks that say anything.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use litd_api::{Command, Done, Mode, Problem, Status};
use litd_core::{
    Config, Core, Device, DeviceId, Effect, Event, Home, MemoryStore, Operation, Peer, Reply,
    SessionId,
};
use litd_power::{
    CapRange, ClockRange, DeviceKind, Handles, Holder, Identity, PowerError, ReadBack, Reading,
    Sharing,
};
use litd_proto::{FromHook, Hello, PROTOCOL, SetClock};
use litd_units::{Celsius, Hertz, Joules, Nanos, Watts};

pub const SECOND: i64 = 1_000_000_000;

pub const RANGE: CapRange = CapRange {
    lowest: Watts(200.0),
    highest: Watts(750.0),
    default: Watts(700.0),
    resolution: Watts(1.0),
};

/// Tests of this process that run now: some look at the memory of the whole process.
static RUNNING: RwLock<()> = RwLock::new(());

/// For a test that looks at the memory: no other test runs beside it.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    RUNNING.write().unwrap_or_else(PoisonError::into_inner)
}

/// For any other test: others of that kind may run beside it.
pub fn beside() -> RwLockReadGuard<'static, ()> {
    RUNNING.read().unwrap_or_else(PoisonError::into_inner)
}

/// A driver's lie.
pub type Lie<'a> = &'a mut dyn FnMut(Reply) -> Reply;

pub struct Node {
    pub core: Core<MemoryStore>,
    pub now: Nanos,
    caps: Vec<Watts>,
    energy: f64,
    sessions: u64,
    gpus: usize,
    /// A device that takes what it is told to hold, and does not answer yet.
    pub slow: Option<usize>,
    /// The answer that is held back.
    unanswered: Option<Reply>,
    /// A device that answers nothing before it is told to.
    silent: Option<usize>,
    /// The operations that are held back.
    unheard: Vec<Operation>,
    /// A device that does not hold what it is told to.
    pub ignores: Option<usize>,
    /// A device whose cap can't be read.
    pub unreadable: Option<usize>,
    /// The power of each device, where that is not its cap.
    pub draws: Option<Watts>,
    /// The Slurm jobs whose processes use every GPU besides, by number.
    pub users: Vec<u32>,
    /// The users whose processes use the GPUs, by GPU, where that is not user 1000.
    pub uids: BTreeMap<usize, u32>,
    /// The clocks that were locked, or `None` for an unlock, in order.
    pub locks: Vec<Option<Hertz>>,
    /// How often litd did something that opens a device.
    pub opened: u64,
    /// The driver's behaviour about clocks.
    pub clock_driver: ClockDriver,
    /// The core has said that it has stopped.
    pub stopped: bool,
    /// Sessions that the core has closed.
    pub closed: Vec<SessionId>,
}

/// A driver's behaviour about clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockDriver {
    Does,
    /// Hangs without doing anything.
    Hangs,
    /// Does nothing for now, and reports a failure.
    Fails,
    /// Does nothing, and reports that it can't.
    CanNot,
    /// Does nothing, and reports that litd may not.
    Forbids,
}

pub fn address(gpu: usize) -> String {
    format!("0000:{:02x}:00.0", gpu + 1)
}

fn identity(device: usize, kind: DeviceKind) -> Identity {
    Identity {
        kind,
        address: address(device),
        uuid: None,
        serial: None,
        model: "made up".to_owned(),
        driver: "made up".to_owned(),
        backend: "simulated".to_owned(),
        sharing: Sharing::default(),
        read_back: ReadBack::default(),
    }
}

/// Devices that hold these caps, and of which one may be silent.
fn inventory(caps: &[Watts], gpus: usize, silent: Option<usize>) -> Vec<Device> {
    let device = |(device, &cap): (usize, &Watts)| Device {
        number: device.checked_sub(gpus).unwrap_or(device),
        identity: identity(device, kind(device, gpus)),
        range: RANGE.into(),
        reading: (silent != Some(device)).then(|| reading(cap, 0.0)),
    };
    caps.iter().enumerate().map(device).collect()
}

/// How a core begins.
type Start = fn(
    Config,
    Vec<Device>,
    MemoryStore,
    &str,
    Nanos,
    f64,
) -> Result<Core<MemoryStore>, litd_core::journal::JournalError>;

fn kind(device: usize, gpus: usize) -> DeviceKind {
    match device < gpus {
        true => DeviceKind::Gpu,
        false => DeviceKind::Cpu,
    }
}

/// Steers early and often.
pub fn config() -> Config {
    let mut config = Config {
        mode: Mode::Steer,
        ..Config::default()
    };
    config.law.calibration.sampling_period = 1;
    config.law.calibration.warm_up = 1;
    config.law.detection.window = 1;
    config.settle.seconds = Some(0.0);
    config.settle.iterations = 0;
    config.limits.connections_per_second = 1e6;
    config.limits.frames_per_second = 1e6;
    config
}

impl Node {
    pub fn new(gpus: usize, config: Config) -> Self {
        Self::with_cpus(gpus, 0, config)
    }

    /// CPU sockets come after the GPUs.
    pub fn with_cpus(gpus: usize, cpus: usize, config: Config) -> Self {
        Self::with_store(gpus, cpus, config, MemoryStore::default())
    }

    /// With what an earlier daemon has left.
    pub fn with_store(gpus: usize, cpus: usize, config: Config, store: MemoryStore) -> Self {
        Self::begin(gpus, cpus, config, store, None)
    }

    /// With one device that was not read when it was found, and is silent.
    pub fn with_silent(gpus: usize, cpus: usize, config: Config, silent: usize) -> Self {
        Self::begin(gpus, cpus, config, MemoryStore::default(), Some(silent))
    }

    /// With what an earlier daemon has left, and perhaps a silent device.
    pub fn begin(
        gpus: usize,
        cpus: usize,
        config: Config,
        store: MemoryStore,
        silent: Option<usize>,
    ) -> Self {
        let caps = vec![RANGE.default; gpus + cpus];
        let inventory = inventory(&caps, gpus, silent);
        let core = Core::new(config, inventory, store, "boot", Nanos(SECOND), 1e9).unwrap();
        Self::of(core, gpus, caps, silent, Nanos(SECOND))
    }

    /// GPUs that their owner has given these caps.
    pub fn found(caps: Vec<Watts>, config: Config) -> Self {
        let (gpus, store) = (caps.len(), MemoryStore::default());
        let inventory = inventory(&caps, gpus, None);
        let core = Core::new(config, inventory, store, "boot", Nanos(SECOND), 1e9).unwrap();
        Self::of(core, gpus, caps, None, Nanos(SECOND))
    }

    /// The next litd of the same boot, with the files of this one, which has died.
    pub fn restarted(&self, config: Config) -> Self {
        self.succeeded(config, Core::new)
    }

    /// `litd restore` with the files of this litd, which has died.
    pub fn restored(&self, config: Config) -> Self {
        self.succeeded(config, Core::restoring)
    }

    /// The same, where the next one has the journal and not the log.
    pub fn restarted_elsewhere(&mut self, config: Config) -> Self {
        let store = MemoryStore {
            audit: Vec::new(),
            ..self.core.store().clone()
        };
        self.succeeded_with(store, config, Core::new)
    }

    fn succeeded(&self, config: Config, start: Start) -> Self {
        self.succeeded_with(self.core.store().clone(), config, start)
    }

    fn succeeded_with(&self, left: MemoryStore, config: Config, start: Start) -> Self {
        let inventory = inventory(&self.caps, self.gpus, None);
        let core = start(config, inventory, left, "boot", self.now, 1e9).unwrap();
        let mut node = Self::of(core, self.gpus, self.caps.clone(), None, self.now);
        node.locks.clone_from(&self.locks);
        node
    }

    fn of(
        core: Core<MemoryStore>,
        gpus: usize,
        caps: Vec<Watts>,
        silent: Option<usize>,
        now: Nanos,
    ) -> Self {
        let mut node = Self {
            core,
            now,
            caps,
            energy: 0.0,
            sessions: 0,
            gpus,
            slow: None,
            unanswered: None,
            silent,
            unheard: Vec::new(),
            ignores: None,
            unreadable: None,
            draws: None,
            users: Vec::new(),
            uids: BTreeMap::new(),
            locks: Vec::new(),
            stopped: false,
            opened: 0,
            clock_driver: ClockDriver::Does,
            closed: Vec::new(),
        };
        node.settle(&mut |reply| reply);
        node
    }

    /// An event, and what follows from it.
    pub fn handle(&mut self, event: Event<'_>, lie: Lie<'_>) {
        self.core.handle(self.now, event);
        self.settle(lie);
    }

    /// The same with drivers that tell the truth.
    pub fn sound(&mut self, event: Event<'_>) {
        self.handle(event, &mut |reply| reply);
    }

    pub fn command(&mut self, command: Command, lie: Lie<'_>) -> Result<Done, Problem> {
        let outcome = self.core.command(self.now, 0, command);
        self.settle(lie);
        outcome
    }

    fn settle(&mut self, lie: Lie<'_>) {
        // A driver that always lies has the core ask for ever.
        for _ in 0..200 {
            let effects = self.core.effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::Device { device, operation } if self.silent == Some(device.0) => {
                        self.unheard.push(operation);
                    }
                    Effect::Device {
                        operation: Operation::Clocks(_),
                        ..
                    } if self.clock_driver == ClockDriver::Hangs => {}
                    Effect::Device { device, operation } => {
                        let reply = lie(self.perform(device.0, operation));
                        if matches!(reply, Reply::Set(_)) && self.slow == Some(device.0) {
                            self.unanswered = Some(reply);
                            continue;
                        }
                        self.core.handle(self.now, Event::Device { device, reply });
                    }
                    Effect::Stopped => self.stopped = true,
                    Effect::Close { session } => {
                        self.closed.push(session);
                        self.core.handle(self.now, Event::Disconnected { session });
                    }
                    _ => {}
                }
            }
        }
    }

    /// The slow device answers.
    pub fn answer(&mut self) {
        let device = DeviceId(self.slow.take().unwrap());
        let reply = self.unanswered.take().unwrap();
        self.sound(Event::Device { device, reply });
    }

    /// The silent device answers from now on, and holds this.
    pub fn speak(&mut self, cap: Watts) {
        let silent = self.silent.take().unwrap();
        self.caps[silent] = cap;
        for operation in std::mem::take(&mut self.unheard) {
            let reply = self.perform(silent, operation);
            let device = DeviceId(silent);
            self.sound(Event::Device { device, reply });
        }
    }

    /// Somebody else sets a device's cap.
    pub fn by_others(&mut self, device: usize, cap: Watts) {
        self.caps[device] = cap;
    }

    /// The cap of a device.
    pub fn cap(&self, device: usize) -> Watts {
        self.caps[device]
    }

    fn perform(&mut self, device: usize, operation: Operation) -> Reply {
        self.energy += 1.0;
        self.opened += u64::from(operation != Operation::Release);
        match operation {
            Operation::Read if self.unreadable == Some(device) => {
                Reply::Read(Err(PowerError::Driver {
                    device: address(device),
                    action: "reading the cap",
                    cause: "Input/output error".to_owned(),
                }))
            }
            Operation::Read => {
                let mut reading = reading(self.caps[device], self.energy);
                reading.power = self.draws.or(reading.power);
                Reply::Read(Ok(reading))
            }
            Operation::Set(cap) => {
                assert!(cap.is_finite(), "{cap}");
                if self.ignores != Some(device) {
                    self.caps[device] = cap;
                }
                Reply::Set(Ok(cap))
            }
            Operation::Range => Reply::Range(Ok(RANGE)),
            Operation::Identify => {
                Reply::Identity(Ok((identity(device, kind(device, self.gpus)), RANGE)))
            }
            Operation::Holders => {
                let uid = self.uids.get(&device).copied().unwrap_or(1000);
                let pid = pid(device);
                let of_job = |&job: &u32| Holder {
                    cgroup: format!("0::/system.slice/slurmstepd.scope/job_{job}/step_0/task_0\n"),
                    ..Holder::new(pid + job, uid)
                };
                let others = self.users.iter().map(of_job);
                let own = self.users.is_empty().then(|| Holder::new(pid, uid));
                Reply::Holders(Ok(own.into_iter().chain(others).collect()))
            }
            Operation::HighestClock => Reply::HighestClock(Ok(Hertz(2e9))),
            Operation::Clocks(range) => Reply::Clocks(self.set_clocks(device, range)),
            Operation::Release => Reply::Released(Handles::Closed),
        }
    }

    fn set_clocks(&mut self, device: usize, range: Option<ClockRange>) -> Result<(), PowerError> {
        let (device, action, cause) = (address(device), "setting clocks", "as told".to_owned());
        match self.clock_driver {
            ClockDriver::Does | ClockDriver::Hangs => {
                self.locks.push(range.map(|it| it.highest));
                Ok(())
            }
            ClockDriver::Fails => Err(PowerError::Driver {
                device,
                action,
                cause,
            }),
            ClockDriver::CanNot => Err(PowerError::Unsupported {
                device,
                action,
                cause,
            }),
            ClockDriver::Forbids => Err(PowerError::Permission {
                device,
                action,
                hint: cause,
            }),
        }
    }

    /// A rank asks for a clock, or for none, and some seconds pass.
    pub fn ask_clock(&mut self, session: SessionId, megahertz: Option<f64>) {
        let clock = megahertz.map(|it| Hertz(it * 1e6));
        self.say(session, &FromHook::SetClock(SetClock { clock }));
        self.wait(3);
    }

    /// So many seconds pass.
    pub fn wait(&mut self, seconds: u32) {
        (0..seconds).for_each(|_| self.pass(SECOND));
    }

    /// The GPU is locked, or not, by what was done about its clocks.
    pub fn is_locked(&self) -> bool {
        matches!(self.locks.last(), Some(Some(_)))
    }

    /// The devices whose clocks the journal says may be locked.
    pub fn journaled_clocks(&self) -> Vec<String> {
        let recovered = litd_core::journal::read(&self.core.store().journal).unwrap();
        let clocks = recovered.map_or_else(Vec::new, |it| it.clocks);
        clocks.into_iter().map(|it| it.address).collect()
    }

    /// A hook of the process that holds a GPU connects.
    pub fn connect(&mut self, gpu: usize) -> SessionId {
        self.connect_as(pid(gpu), 1000)
    }

    /// A hook of this process and user connects.
    pub fn connect_as(&mut self, pid: u32, uid: u32) -> SessionId {
        self.connect_from(pid, uid, None)
    }

    /// The same from a scheduler's job.
    pub fn connect_from(&mut self, pid: u32, uid: u32, home: Option<Home>) -> SessionId {
        self.sessions += 1;
        let session = SessionId(self.sessions);
        let peer = Peer { pid, uid };
        self.sound(Event::Connected {
            session,
            peer,
            home,
        });
        session
    }

    /// And introduces itself as one of so many ranks, of which each has the GPU of its number.
    pub fn attach(&mut self, gpu: usize, ranks: u32) -> SessionId {
        let session = self.connect(gpu);
        self.say(session, &FromHook::Hello(hello(gpu, ranks)));
        session
    }

    pub fn say(&mut self, session: SessionId, message: &FromHook) {
        self.frame(session, &message.encode());
    }

    pub fn frame(&mut self, session: SessionId, bytes: &[u8]) {
        self.sound(Event::Frame { session, bytes });
    }

    pub fn pass(&mut self, nanos: i64) {
        self.now += Nanos(nanos);
        self.sound(Event::Time);
    }

    pub fn status(&self) -> Status {
        self.core.status()
    }

    /// The texts of what litd has told.
    pub fn events(&self) -> Vec<String> {
        let told = self.core.events(0).events.into_iter();
        told.map(|event| event.text).collect()
    }

    pub fn counted(&self, label: &str) -> u64 {
        let refused = self.status().totals.refused;
        let of_kind = refused.iter().filter(|it| it.kind == label);
        of_kind.map(|it| it.count).sum()
    }

    pub fn is_closed(&self, session: SessionId) -> bool {
        self.closed.contains(&session)
    }
}

/// Of one of so many ranks, of which each has the GPU of its number.
pub fn hello(gpu: usize, ranks: u32) -> Hello {
    Hello {
        protocol: PROTOCOL,
        job: "job".to_owned(),
        rank: gpu as u32,
        local_rank: gpu as u32,
        world_size: ranks,
        local_world_size: ranks,
        gpu: address(gpu),
        framework: "made up".to_owned(),
        versions: Default::default(),
        group: String::new(),
    }
}

pub fn pid(device: usize) -> u32 {
    100 + device as u32
}

pub fn reading(cap: Watts, energy: f64) -> Reading {
    Reading {
        cap,
        enforced: None,
        power: Some(cap),
        energy: Some(Joules(energy)),
        temperature: Some(Celsius(60.0)),
        slowdown: Some(Celsius(95.0)),
        clock: Some(Hertz(1.5e9)),
        power_limited: Some(true),
        power_share: None,
        throttle: None,
        forgetful: false,
    }
}
