//! A node whose GPUs have faults, with a litd that may be stopped, killed and started anew. Drivers
//! do writes in order, unless a test says otherwise: what is done late is not done once something later has been.

use litd_api::{Command, DeviceState, Done, Event as Told, Lease, Mode, Problem, Status};
use litd_core::journal::JournalError;
use litd_core::{
    Config, Core, Device, DeviceId, Effect, Event, NodeReading, Operation, Reply, Unclaimed,
};
use litd_units::{Nanos, Watts};

use crate::disk::Disk;
use crate::gpu::{Gpu, Writes, found_at};

pub const MS: i64 = 1_000_000;
pub const SECOND: i64 = 1_000 * MS;

/// Time goes on by so much.
pub const STEP: i64 = 100 * MS;

/// How long a stop is waited for.
const PATIENCE: i64 = 20 * SECOND;

/// Effects of one event come to an end.
const ROUNDS: usize = 1000;

/// Sums of floats.
pub const EPSILON: f64 = 0.001;

pub struct Node {
    pub gpus: Vec<Gpu>,
    pub disk: Disk,
    pub config: Config,
    pub now: i64,
    pub log: Vec<String>,
    /// `None` while litd does not run.
    core: Option<Core<Disk>>,
    /// Caps that a GPU takes at a time although their writes failed.
    late: Vec<(i64, usize, Watts)>,
    /// Operations that are answered at a time.
    /// By so many seconds the wall clock was set forward, for litds that start from now on.
    pub wall_ahead: f64,
    under_way: Vec<(i64, usize, Operation)>,
    /// Operations of GPUs that hang.
    hung: Vec<(usize, Operation)>,
    stopped: bool,
    /// Whether a late write may be done on top of a later one.
    pub out_of_order: bool,
    /// The most that the GPUs have held together since it was set.
    pub most: f64,
}

/// [`Core::new`] or [`Core::restoring`].
type Begin = fn(Config, Vec<Device>, Disk, &str, Nanos, f64) -> Result<Core<Disk>, JournalError>;

pub fn observing() -> Config {
    Config {
        mode: Mode::Observe,
        ..Config::default()
    }
}

pub fn budget(watts: f64) -> Command {
    let watts = Some(Watts(watts));
    Command::SetBudget { watts }
}

/// A fleet's controller lends a budget.
pub fn lease(watts: f64, seconds: f64) -> Command {
    Command::Lease(Lease {
        controller: "fleet".to_owned(),
        seconds,
        mode: None,
        budget: Some(Watts(watts)),
    })
}

pub fn release(gpu: usize) -> Command {
    let device = Some(format!("gpu{gpu}"));
    Command::Release { device }
}

impl Node {
    /// GPUs that hold their default, and litd without a budget.
    pub fn new(gpus: usize) -> Self {
        Self::with(found_at(gpus, 700.0), observing())
    }

    /// The same under a configured budget, ten seconds after the start.
    pub fn under(watts: f64, gpus: Vec<Gpu>) -> Self {
        let mut config = observing();
        config.caps.budget = Some(Watts(watts));
        let mut node = Self::with(gpus, config);
        node.pass(10.0);
        node.holds_at_most(watts);
        node
    }

    pub fn with(gpus: Vec<Gpu>, config: Config) -> Self {
        let mut node = Self {
            gpus,
            disk: Disk::default(),
            config,
            now: SECOND,
            log: Vec::new(),
            core: None,
            late: Vec::new(),
            wall_ahead: 0.0,
            under_way: Vec::new(),
            hung: Vec::new(),
            stopped: false,
            out_of_order: false,
            most: 0.0,
        };
        node.start();
        node
    }

    pub fn note(&mut self, text: &str) {
        let at = self.now as f64 / SECOND as f64;
        self.log.push(format!("{at:8.2} {text}"));
    }

    pub fn start(&mut self) {
        self.run(Core::new);
    }

    /// Runs `litd restore`; returns whether it ends in time.
    pub fn restore(&mut self) -> bool {
        self.note("--- litd restore");
        self.run(Core::restoring);
        self.until_stopped()
    }

    /// Runs `litd restore`, and after so long something happens; returns the GPUs to which writes may still be done
    /// when it has ended.
    pub fn restore_meanwhile(&mut self, seconds: f64, happens: fn(&mut Self)) -> Vec<String> {
        self.note("--- litd restore");
        self.run(Core::restoring);
        self.pass(seconds);
        happens(self);
        assert!(self.wait_for_the_stop(), "{:?}", self.log);
        let late = self.may_land_on_exit();
        self.gone();
        late
    }

    /// The same; returns the caps that nobody is known to have set.
    pub fn restore_unless_unclaimed(&mut self) -> Vec<Unclaimed> {
        self.run(Core::restoring);
        assert!(self.wait_for_the_stop(), "{:?}", self.log);
        let unclaimed = self.core.as_ref().unwrap().unclaimed().to_vec();
        self.gone();
        unclaimed
    }

    fn run(&mut self, begin: Begin) {
        let inventory = self.gpus.iter().map(Gpu::discovered).collect();
        let wall = 1e9 + self.wall_ahead + self.now as f64 / SECOND as f64;
        let (config, disk) = (self.config.clone(), self.disk.clone());
        let core = begin(config, inventory, disk, "boot", Nanos(self.now), wall);
        self.stopped = false;
        self.core = Some(core.unwrap());
        self.act();
    }

    /// An orderly stop; whether it comes to an end in time.
    pub fn stop(&mut self) -> bool {
        self.note("--- stop");
        self.event(Event::Stop);
        self.until_stopped()
    }

    /// litd stops in time, and says in the end that writes to these devices may still be done.
    pub fn stops_and_keeps(&mut self, devices: &[&str]) -> bool {
        self.note("--- stop");
        self.event(Event::Stop);
        let stopped = self.wait_for_the_stop();
        assert_eq!(self.may_land_on_exit(), devices);
        self.gone();
        stopped
    }

    /// litd stops, and says in the end that GPUs hold more than it is to leave behind, if it does.
    pub fn stops_above(&mut self) -> Option<String> {
        self.note("--- stop");
        self.event(Event::Stop);
        assert!(self.wait_for_the_stop(), "{:?}", self.log);
        let above = self.above_on_exit();
        self.gone();
        above
    }

    /// litd stops, and does not wait in vain for caps that it may not move.
    pub fn stops_at_once(&mut self) {
        let before = self.now;
        assert!(self.stop());
        assert!(self.now < before + 5 * SECOND, "{:?}", self.log);
    }

    fn until_stopped(&mut self) -> bool {
        let stopped = self.wait_for_the_stop();
        self.gone();
        stopped
    }

    fn wait_for_the_stop(&mut self) -> bool {
        let until = self.now + PATIENCE;
        while !self.stopped && self.now < until {
            self.step();
        }
        self.stopped
    }

    pub fn kill(&mut self) {
        self.note("--- kill -9");
        self.gone();
    }

    fn gone(&mut self) {
        self.core = None;
        self.under_way.clear();
        self.hung.clear();
    }

    pub fn event(&mut self, event: Event<'_>) {
        let now = Nanos(self.now);
        if let Some(core) = &mut self.core {
            core.handle(now, event);
        }
        self.act();
    }

    /// The BMC tells what the node draws, in watts, and the limit that it sets, if it sets one.
    pub fn told_by_bmc(&mut self, power: f64, cap: Option<f64>) {
        self.event(Event::NodePower(NodeReading {
            source: "redfish".to_owned(),
            power: Some(Watts(power)),
            cap: cap.map(Watts),
            ..NodeReading::default()
        }));
    }

    /// The BMC tells that the node is short of power.
    pub fn is_short_of_power(&mut self) {
        self.event(Event::NodePower(NodeReading {
            source: "redfish".to_owned(),
            alarm: Some("a power supply has failed".to_owned()),
            ..NodeReading::default()
        }));
    }

    pub fn command(&mut self, command: Command) -> Result<Done, Problem> {
        let now = Nanos(self.now);
        let done = self.core.as_mut().unwrap().command(now, 0, command);
        self.note(&format!("command: {done:?}"));
        self.act();
        done
    }

    /// A configuration is read anew, unless litd refuses it.
    pub fn reload(&mut self, config: Config) {
        if self.core.as_ref().unwrap().refuses(&config).is_none() {
            self.config = config.clone();
            self.event(Event::Reloaded(Box::new(config)));
        }
    }

    pub fn kill_switch(&mut self, on: bool) {
        self.event(Event::KillSwitch(on.then(|| "a file".to_owned())));
    }

    fn act(&mut self) {
        for _ in 0..ROUNDS {
            let Some(core) = &mut self.core else { return };
            let effects = core.effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::Device { device, operation } => self.begin(device.0, operation),
                    Effect::Log(Told { text, device, .. }) => {
                        self.note(&format!("{} {text}", device.unwrap_or_default()));
                    }
                    Effect::Stopped => self.stopped = true,
                    _ => {}
                }
            }
        }
        panic!("the core does not come to rest");
    }

    fn begin(&mut self, gpu: usize, operation: Operation) {
        let mut takes = 0;
        if let Operation::Set(cap) = operation {
            self.note(&format!("gpu{gpu}: {cap} is written"));
            takes = self.gpus[gpu].write_takes;
        }
        if operation == Operation::Read {
            takes = self.gpus[gpu].read_takes;
        }
        match takes {
            _ if self.gpus[gpu].hangs => self.hung.push((gpu, operation)),
            0 => self.answer(gpu, operation),
            takes => self.under_way.push((self.now + takes, gpu, operation)),
        }
    }

    fn answer(&mut self, gpu: usize, operation: Operation) {
        let reply = self.gpus[gpu].perform(operation);
        match (operation, self.gpus[gpu].writes) {
            (Operation::Set(cap), Writes::FailAndLand(after)) => {
                self.late.push((self.now + after, gpu, cap));
            }
            (Operation::Set(_), Writes::Taken) if matches!(reply, Reply::Set(Ok(_))) => {
                self.overtake(gpu);
            }
            _ => {}
        }
        self.measure();
        let now = Nanos(self.now);
        let device = DeviceId(gpu);
        if let Some(core) = &mut self.core {
            core.handle(now, Event::Device { device, reply });
        }
    }

    /// litd is stopped by SIGSTOP for so long.
    pub fn paused(&mut self, seconds: f64) {
        self.note(&format!("--- paused for {seconds} s"));
        let until = self.now + (seconds * SECOND as f64) as i64;
        while self.now < until {
            self.now += STEP;
            let now = self.now;
            for (_, gpu, cap) in due(&mut self.late, |it| it.0 <= now) {
                self.gpus[gpu].cap = cap;
            }
        }
    }

    /// A stop, or a restore, that is killed after so long.
    pub fn killed_in_the_end(&mut self, restores: bool, seconds: f64) {
        match restores {
            true => {
                self.kill();
                self.note("--- litd restore, and killed");
                self.run(Core::restoring);
            }
            false => {
                self.note("--- stop, and killed");
                self.event(Event::Stop);
            }
        }
        let until = self.now + (seconds * SECOND as f64) as i64;
        while !self.stopped && self.now < until {
            self.step();
        }
        self.kill();
    }

    pub fn forget_late(&mut self) {
        self.late.clear();
    }

    pub fn forget_late_of(&mut self, gpu: usize) {
        self.overtake(gpu);
    }

    pub fn give_up_by_hand(&mut self, name: &str) {
        let now = Nanos(self.now);
        if let Some(core) = &mut self.core {
            core.give_up_by_hand(now, name);
        }
        self.act();
    }

    pub fn above_on_exit(&self) -> Option<String> {
        let core = self.core.as_ref();
        core?.above_on_exit().map(|above| above.to_string())
    }

    pub fn may_land_on_exit(&self) -> Vec<String> {
        self.core.as_ref().unwrap().may_land_on_exit()
    }

    pub fn letting_go(&self, name: Option<&str>) -> litd_core::Progress {
        self.core.as_ref().unwrap().letting_go(name)
    }

    fn overtake(&mut self, gpu: usize) {
        let stays = self.out_of_order;
        self.late.retain(|it| stays || it.1 != gpu);
    }

    /// A GPU that hung answers all that it was asked.
    pub fn answers_again(&mut self, gpu: usize) {
        self.gpus[gpu].hangs = false;
        let hung = std::mem::take(&mut self.hung);
        let (mine, others) = hung.into_iter().partition(|it| it.0 == gpu);
        self.hung = others;
        let mine: Vec<_> = mine;
        for (gpu, operation) in mine {
            self.answer(gpu, operation);
        }
        self.act();
    }

    /// A foreign program sets a cap.
    pub fn by_others(&mut self, gpu: usize, cap: f64) {
        self.note(&format!("gpu{gpu}: somebody else sets {cap} W"));
        self.gpus[gpu].cap = Watts(cap);
        self.overtake(gpu);
    }

    pub fn is_reset(&mut self, gpu: usize) {
        self.note(&format!("gpu{gpu} is reset"));
        self.gpus[gpu].reset();
        self.overtake(gpu);
    }

    pub fn step(&mut self) {
        self.now += STEP;
        let now = self.now;
        for (_, gpu, cap) in due(&mut self.late, |it| it.0 <= now) {
            self.note(&format!("gpu{gpu}: {cap} of a failed write lands"));
            self.gpus[gpu].cap = cap;
        }
        for (_, gpu, operation) in due(&mut self.under_way, |it| it.0 <= now) {
            self.answer(gpu, operation);
        }
        self.measure();
        let deadline = self.core.as_ref().map(|core| core.deadline().0);
        match deadline.is_some_and(|at| at <= now) {
            true => self.event(Event::Time),
            false => self.act(),
        }
        self.measure();
    }

    pub fn pass(&mut self, seconds: f64) {
        let until = self.now + (seconds * SECOND as f64) as i64;
        while self.now < until {
            self.step();
        }
    }

    pub fn status(&self) -> Status {
        self.core.as_ref().unwrap().status()
    }

    pub fn may_start_anew(&self) -> bool {
        self.core.as_ref().unwrap().may_start_anew()
    }

    pub fn runs(&self) -> bool {
        self.core.is_some()
    }

    pub fn caps(&self) -> Vec<f64> {
        self.gpus.iter().map(|gpu| gpu.cap.0).collect()
    }

    pub fn sum(&self) -> f64 {
        self.caps().iter().sum()
    }

    /// How often a GPU was told to hold a cap.
    pub fn writes_to(&self, gpu: usize) -> usize {
        let begins = format!("gpu{gpu}: ");
        let is_write = |line: &&String| line.contains(&begins) && line.ends_with("is written");
        self.log.iter().filter(is_write).count()
    }

    /// Whether a write to a GPU that had failed was done later.
    pub fn has_landed(&self, gpu: usize) -> bool {
        let begins = format!("gpu{gpu}: ");
        let is_late =
            |line: &String| line.contains(&begins) && line.ends_with("of a failed write lands");
        self.log.iter().any(is_late)
    }

    fn measure(&mut self) {
        self.most = self.most.max(self.sum());
    }

    /// The least that litd can bring the GPUs to: a floor is rounded up to a whole watt, and what is
    /// not litd's stays.
    pub fn least(&self, status: &Status) -> f64 {
        let states = self.gpus.iter().zip(&status.devices);
        let least = states.map(|(gpu, it)| match it.state {
            DeviceState::Ours => gpu.cap.0.min(it.floor.0 + 1.0),
            _ => gpu.cap.0,
        });
        least.sum()
    }

    #[track_caller]
    pub fn holds_at_most(&self, watts: f64) {
        let caps = self.caps();
        let sum = self.sum();
        assert!(sum <= watts, "GPUs hold {sum} of {watts} W: {caps:?}");
    }

    #[track_caller]
    pub fn all_hold(&self, watts: f64) {
        let caps = self.caps();
        let all = caps.iter().all(|&cap| cap == watts);
        assert!(all, "caps are {caps:?} where {watts} W was found");
    }

    pub fn print_log(&self) {
        for line in &self.log {
            println!("{line}");
        }
    }
}

fn due<T>(all: &mut Vec<T>, is_due: impl Fn(&T) -> bool) -> Vec<T> {
    let (due, rest) = std::mem::take(all).into_iter().partition(is_due);
    *all = rest;
    due
}

/// A test that fails shows what happened.
impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_log();
        }
    }
}
