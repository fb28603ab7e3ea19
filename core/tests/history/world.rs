//! The world around the daemon: events in the order of their times, and what its effects do.

use std::collections::{BTreeMap, VecDeque};

use litd_core::event::Peer;
use litd_core::{Config, Core, Device, DeviceId, Effect, Event, Operation, Reply, SessionId};
use litd_power::{PowerError, ReadBack, Throttle};
use litd_proto::ToHook;
use litd_units::Nanos;

use crate::disk::{Disk, Platter};
use crate::fault::{Fault, Seen};
use crate::hardware::{Hw, MILLI, Op, SECOND, micro, whole};
use crate::hooks::{Hooks, Wrong};
use crate::ledger::Ledger;
use crate::rng::Rng;
use crate::rollout::Rule;
use crate::setup::Setup;

/// A sound device answers within so many milliseconds, and now and then within so many more.
const QUICK: i64 = 12;
const SLOW: i64 = 200;

/// No cap rises for so long after the power brake was seen.
const BRAKE: i64 = 60 * SECOND;

/// The longest that a sound device takes for anything.
pub const ANSWER: i64 = (QUICK + SLOW) * MILLI;

/// Something that happens at its time.
#[derive(Debug, Clone)]
pub enum Ev {
    /// The daemon starts.
    Start,
    /// A write reaches the device, whoever waits for it.
    Land {
        device: usize,
        serial: u64,
        cap: i64,
        boot: u32,
        epoch: u32,
    },
    /// Clocks are locked or freed, whoever waits for it.
    LandClocks {
        device: usize,
        serial: u64,
        clock: Option<u32>,
        boot: u32,
        epoch: u32,
    },
    /// An operation is done.
    Reply {
        device: usize,
        serial: u64,
        epoch: u32,
    },
    /// A rank connects.
    Connect(usize),
    /// A session says this.
    Say { session: u64, bytes: Vec<u8> },
    /// A session's end is noticed.
    Hangup { session: u64, epoch: u32 },
    /// A job ends an iteration.
    Iteration(usize),
    /// Something goes wrong.
    Fault(Fault),
    /// A device is itself again.
    Back(usize),
    /// The disk is itself again.
    DiskBack,
    /// The ledger looks at what time has brought.
    Look,
    /// The budget came down then: by now the others have made room for a device that is stuck.
    Room { lowered: i64 },
    /// Whoever had a device let go of then is to be answered now.
    LetGo { device: usize, since: i64 },
    /// A kill switch was there then.
    Killed { since: i64 },
    /// A lease may be over.
    LeaseEnds,
    /// The BMC tells something once more.
    NodeTells,
    /// Nobody waits any longer for a cap that was asked for by hand.
    HandPatience { device: usize, asked: i64 },
    /// No more faults from now on; jobs end.
    Calm,
    /// The daemon is to stop.
    Stop,
}

/// What has become of a history.
#[derive(Debug)]
pub struct Outcome {
    pub broken: Option<String>,
    pub seen: Seen,
    pub trace: VecDeque<String>,
    /// Adjustments, and whether any job converged, any sample counted.
    pub adjustments: u64,
    pub converged: bool,
    pub sampled: bool,
    pub steerable: bool,
    pub writes: u64,
    /// A trial measured a block of both arms; the hold-out compared; harm was declared.
    pub tried: [bool; 3],
}

pub struct World {
    pub rng: Rng,
    pub now: i64,
    /// The daemon's clock is ahead by so much.
    pub skew: i64,
    queue: BTreeMap<(i64, u64), Ev>,
    serial: u64,
    pub core: Option<Core<Disk>>,
    pub disk: Disk,
    pub config: Config,
    pub hw: Vec<Hw>,
    pub hooks: Hooks,
    pub ledger: Ledger,
    pub rule: Rule,
    pub seen: Seen,
    pub epoch: u32,
    pub boot: u32,
    pub calm: bool,
    pub jobs_end: bool,
    pub stop_sent: Option<i64>,
    pub stopped: bool,
    pub done: bool,
    last_alive: i64,
    pub started: i64,
    spins: u32,
    tracing: bool,
    trace: VecDeque<String>,
    pub results: BTreeMap<u64, Result<(), PowerError>>,
    adjustments: u64,
    converged: bool,
    sampled: bool,
    pub steerable: bool,
    pub writes: u64,
    tried: [bool; 3],
}

impl World {
    pub fn new(seed: u64, tracing: bool) -> Self {
        let mut rng = Rng::new(seed);
        let setup = Setup::draw(&mut rng);
        let mut hw = setup.devices;
        let hooks = Hooks::new(&setup.jobs, &mut hw, &mut rng);
        let clean = setup.faults.is_empty();
        let mut world = Self {
            skew: rng.between(0, 100) * SECOND,
            disk: Disk::new(Rng::new(rng.next())),
            now: 0,
            queue: BTreeMap::new(),
            serial: 0,
            core: None,
            config: setup.config,
            ledger: Ledger::default(),
            rule: Rule::default(),
            hooks,
            hw,
            seen: Seen::default(),
            epoch: 0,
            boot: 0,
            calm: false,
            jobs_end: setup.jobs_end,
            stop_sent: None,
            stopped: false,
            done: false,
            last_alive: 0,
            started: 0,
            spins: 0,
            tracing,
            trace: VecDeque::new(),
            results: BTreeMap::new(),
            adjustments: 0,
            converged: false,
            sampled: false,
            steerable: false,
            writes: 0,
            tried: [false; 3],
            rng,
        };
        world.steerable = clean && world.may_steer();
        world.at(0, Ev::Start);
        world.at(SECOND, Ev::Look);
        for job in 0..world.hooks.jobs.len() {
            world.begin_job(job);
        }
        for (at, fault) in setup.faults {
            world.at(at, Ev::Fault(fault));
        }
        world.at(setup.end, Ev::Calm);
        world
    }

    fn begin_job(&mut self, job: usize) {
        let start = self.rng.between(100, 3000) * MILLI;
        for rank in self.hooks.jobs[job].ranks.clone() {
            let mut at = start + self.rng.between(0, 300) * MILLI;
            if self.rng.chance(0.02) {
                at += self.rng.between(3, 9) * SECOND;
                self.seen.mark(Fault::LateJoin);
            }
            self.at(at, Ev::Connect(rank));
        }
        self.at(start + 500 * MILLI, Ev::Iteration(job));
    }

    pub fn at(&mut self, time: i64, event: Ev) {
        self.serial += 1;
        self.queue.insert((time, self.serial), event);
    }

    pub fn after(&mut self, delay: i64, event: Ev) {
        self.at(self.now + delay, event);
    }

    pub fn note(&mut self, text: impl FnOnce() -> String) {
        if self.tracing {
            let line = format!("{:10.3} {}", self.now as f64 / 1e9, text());
            self.trace.push_back(line);
        }
    }

    /// What the daemon's clock shows.
    pub fn clock(&self) -> Nanos {
        Nanos(self.now + self.skew)
    }

    pub fn run(mut self) -> Outcome {
        while !self.done && self.ledger.broken.is_none() {
            self.step();
        }
        let (appends, replacements) = self.disk.with(|disk| disk.failures);
        if appends > 0 {
            self.seen.mark(Fault::DiskFull);
        }
        if replacements > 0 {
            self.seen.mark(Fault::DiskStuck);
        }
        if self.disk.with(|disk| disk.audit_failures) > 0 {
            self.seen.mark(Fault::AuditFull);
        }
        Outcome {
            broken: self.ledger.broken.take(),
            seen: self.seen,
            trace: self.trace,
            adjustments: self.adjustments,
            converged: self.converged,
            sampled: self.sampled,
            steerable: self.steerable,
            writes: self.writes,
            tried: self.tried,
        }
    }

    fn step(&mut self) {
        let next = self.queue.first_key_value().map(|(&(at, _), _)| at);
        let wake = self.core.as_ref().filter(|_| !self.stopped);
        let wake = wake.map(|core| core.deadline().0 - self.skew);
        match (next, wake) {
            (Some(next), Some(wake)) if wake < next => self.wake(wake),
            (Some(_), _) => {
                let Some(((at, _), event)) = self.queue.pop_first() else {
                    return;
                };
                self.advance(at);
                self.happen(event);
            }
            (None, _) => self.broke("history", "nothing is left to happen".to_owned()),
        }
    }

    fn advance(&mut self, at: i64) {
        if at > self.now {
            (self.now, self.spins) = (at, 0);
        }
    }

    fn wake(&mut self, wake: i64) {
        self.spins += 1;
        if self.spins > 100 {
            return self.broke("11 progress", "its deadline does not move".to_owned());
        }
        let late = self.rng.between(0, 3) * MILLI;
        self.advance(wake.max(self.now) + late);
        self.tell(Event::Time);
        if self.core.is_some() && self.now - self.last_alive > 1_600 * MILLI {
            self.broke("11 alive", "no Alive for more than 1.6 s".to_owned());
        }
    }

    pub fn tell(&mut self, event: Event) {
        let now = self.clock();
        let Some(core) = &mut self.core else { return };
        core.handle(now, event);
        self.act();
    }

    /// Does what the daemon wants done.
    pub fn act(&mut self) {
        self.watch_hands();
        self.watch_node();
        self.lease_ends();
        self.watch_let_go();
        let Some(core) = &mut self.core else { return };
        let effects = core.effects();
        if self.disk.with(|disk| disk.dead) {
            return self.died_at_write();
        }
        if effects.len() > 500 {
            return self.broke("10 bounds", format!("{} effects at once", effects.len()));
        }
        for effect in effects {
            match effect {
                Effect::Device {
                    device: DeviceId(device),
                    operation,
                } => {
                    self.begin(device, operation);
                }
                Effect::Send { session, bytes } => self.received(session.0, &bytes),
                Effect::Close { session } => {
                    let epoch = self.epoch;
                    self.after(
                        MILLI,
                        Ev::Hangup {
                            session: session.0,
                            epoch,
                        },
                    );
                }
                Effect::Baseline(baseline) => self.ledger.baseline = baseline,
                Effect::Alive => self.last_alive = self.now,
                Effect::Stopped => self.stopped = true,
                Effect::Log(event) => {
                    self.note(|| format!("    log: {} {:?}", event.text, event.device));
                }
            }
        }
        if self.stopped && self.core.is_some() {
            self.has_stopped();
        }
    }

    fn happen(&mut self, event: Ev) {
        match event {
            Ev::Start => self.start(),
            Ev::Land {
                device,
                serial,
                cap,
                boot,
                epoch,
            } => {
                if boot == self.boot {
                    self.land(device, serial, cap, epoch);
                }
            }
            Ev::LandClocks {
                device,
                serial,
                clock,
                boot,
                epoch,
            } => {
                if boot == self.boot {
                    self.land_clocks(device, serial, clock, epoch);
                }
            }
            Ev::Reply {
                device,
                serial,
                epoch,
            } => self.reply(device, serial, epoch),
            Ev::Connect(rank) => self.connect(rank),
            Ev::Say { session, bytes } => {
                if self.hooks.sessions.contains_key(&session) {
                    let session = SessionId(session);
                    self.tell(Event::Frame {
                        session,
                        bytes: &bytes,
                    });
                }
            }
            Ev::Hangup { session, epoch } => {
                if epoch == self.epoch {
                    self.hangup(session);
                }
            }
            Ev::Iteration(job) => self.iteration(job),
            Ev::Fault(fault) => {
                if !self.calm {
                    self.inject(fault);
                }
            }
            Ev::Back(device) => {
                self.hw[device].gone = false;
                self.trouble(device, 0);
            }
            Ev::DiskBack => self.disk.with(Platter::heal),
            Ev::Look => {
                self.look();
                self.after(500 * MILLI, Ev::Look);
            }
            Ev::Room { lowered } => self.check_room(lowered),
            Ev::LetGo { device, since } => self.check_let_go(device, since),
            Ev::Killed { since } => self.check_killed(since),
            Ev::LeaseEnds => self.lease_ends(),
            Ev::NodeTells => self.bmc_goes_on(),
            Ev::HandPatience { device, asked } => self.hand_patience(device, asked),
            Ev::Calm => self.calm_down(),
            Ev::Stop => self.stop(),
        }
    }

    fn start(&mut self) {
        if self.core.is_some() || self.done {
            return;
        }
        self.epoch += 1;
        (self.stopped, self.stop_sent) = (false, None);
        self.disk.with(|disk| disk.dead = false);
        let (now, clock) = (self.now, self.clock());
        let mut inventory = Vec::new();
        for device in 0..self.hw.len() {
            let hw = &mut self.hw[device];
            hw.op = None;
            hw.foreign_seen = false;
            hw.foreign = false;
            hw.let_go = false;
            hw.hold.open = true;
            hw.owes = 0;
            (hw.told, hw.throttle_told, hw.foreign_known) = (false, None, false);
            (hw.most_held, hw.sharing_told) = (hw.cap, hw.identity.sharing);
            let unreadable = !self.calm && self.rng.chance(0.01);
            let reading = hw.read(now, clock.0, &mut self.rng).ok();
            let reading = reading.filter(|reading| reading.cap.is_finite() && !unreadable);
            hw.known = if reading.is_some() { hw.cap } else { i64::MIN };
            if reading.is_none() {
                self.seen.mark(Fault::Unreadable);
            }
            let (identity, range) = (hw.identity.clone(), hw.range);
            inventory.push(Device {
                identity,
                range,
                reading,
            });
        }
        self.before_start();
        self.started = now;
        self.last_alive = now;
        self.note(|| "daemon starts".to_owned());
        let boot = format!("boot-{}", self.boot);
        let unix = 1.7e9 + clock.as_secs_f64();
        let config = self.config.clone();
        match Core::new(config, inventory, self.disk.clone(), &boot, clock, unix) {
            Ok(core) => self.core = Some(core),
            Err(error) => return self.broke("start", error.to_string()),
        }
        self.act();
        self.tell(Event::Time);
    }

    /// The process is gone; the node goes on.
    pub fn crash(&mut self, late: bool) {
        self.remember_limit();
        self.hands_are_gone();
        let Some(core) = self.core.take() else { return };
        self.harvest(&core);
        let journal = self
            .disk
            .with(|disk| String::from_utf8_lossy(&disk.journal).into_owned());
        self.note(|| format!("daemon dies, journal:\n{journal}"));
        let sessions: Vec<u64> = self.hooks.sessions.keys().copied().collect();
        for session in sessions {
            self.reconnect_later(session);
        }
        self.bury(late);
        (self.stopped, self.stop_sent) = (false, None);
        let pause = self.rng.between(20, 2500) * MILLI;
        self.after(if late { 30 * MILLI } else { pause }, Ev::Start);
    }

    /// Writes under way when the daemon ends land soon, or never.
    fn bury(&mut self, late: bool) {
        self.audit_ends();
        let epoch = self.epoch;
        let landing = |(_, event): &(&(i64, u64), &Ev)| matches!(event, Ev::Land { epoch: of, .. } | Ev::LandClocks { epoch: of, .. } if *of == epoch);
        let keys: Vec<(i64, u64)> = self
            .queue
            .iter()
            .filter(landing)
            .map(|(&key, _)| key)
            .collect();
        for key in keys {
            let Some(event) = self.queue.remove(&key) else {
                continue;
            };
            if late || self.rng.chance(0.5) {
                let soon = self.land_soon(key.0);
                self.at(soon, event);
            }
        }
        for hw in &mut self.hw {
            hw.op = None;
        }
    }

    pub fn drop_late_landings(&mut self) {
        let now = self.epoch;
        let late = |event: &Ev| matches!(event, Ev::Land { epoch, .. } | Ev::LandClocks { epoch, .. } if *epoch != now);
        let alive = self.core.is_some();
        self.queue.retain(|_, event| !(alive && late(event)));
    }

    fn died_at_write(&mut self) {
        let (torn, landed) = self.disk.with(|disk| (disk.torn, disk.landed));
        if torn {
            self.seen.mark(Fault::TornAppend);
        }
        if landed {
            self.seen.mark(Fault::CrashBeforeWrite);
        }
        self.crash(false);
    }

    /// What a life of the daemon came to.
    pub fn harvest(&mut self, core: &Core<Disk>) {
        let status = core.status();
        self.adjustments += status.totals.adjustments;
    }

    /// Where the loops are.
    pub fn saw(&mut self, jobs: &[litd_api::JobStatus]) {
        self.sampled |= jobs.iter().any(|job| job.samples > 0);
        let converged = |job: &litd_api::JobStatus| job.state == litd_api::JobState::Converged;
        self.converged |= jobs.iter().any(converged);
    }

    /// What trials and hold-outs have come to.
    pub fn saw_trials(&mut self, trials: &litd_api::Trials) {
        let both = |it: &litd_trial::Report| it.found.blocks > 0 && it.balanced.blocks > 0;
        self.tried[0] |= trials.report.as_ref().is_some_and(both);
        self.tried[1] |= trials.hold_outs.iter().any(|it| it.comparisons > 0);
        self.tried[2] |= trials.harm.is_some();
    }

    /// A device begins what it was told.
    fn begin(&mut self, device: usize, operation: Operation) {
        if self.hw[device].op.is_some() {
            return self.broke("one at a time", format!("device {device}: {operation:?}"));
        }
        self.note(|| format!("    device {device}: {operation:?}"));
        self.opens(device, operation);
        if let Operation::Set(cap) = operation {
            self.writes += 1;
            self.issue(device, micro(cap));
        }
        let mut takes = self.rng.between(1, QUICK) * MILLI;
        if self.rng.chance(0.02) {
            takes += self.rng.between(10, SLOW) * MILLI;
        }
        let block = std::mem::take(&mut self.hw[device].moods.block);
        if block > 0 {
            takes = block;
            self.seen.mark(Fault::Block);
            self.trouble(device, block);
        }
        self.serial += 1;
        let (serial, since, epoch, boot) = (self.serial, self.now, self.epoch, self.boot);
        let before = self.hw[device].cap;
        self.hw[device].op = Some(Op {
            operation,
            since,
            serial,
            before,
        });
        self.begin_clocks(device, operation, takes, serial);
        let lands = (takes as f64 * self.rng.unit()) as i64;
        if let Operation::Set(cap) = operation {
            let cap = micro(cap);
            self.after(
                lands,
                Ev::Land {
                    device,
                    serial,
                    cap,
                    boot,
                    epoch,
                },
            );
        }
        self.after(
            takes,
            Ev::Reply {
                device,
                serial,
                epoch,
            },
        );
    }

    /// A write reaches its device.
    fn land(&mut self, device: usize, serial: u64, cap: i64, epoch: u32) {
        let now = self.now;
        let lying = now < self.hw[device].moods.lies && cap != self.hw[device].cap;
        let outcome = self.hw[device].set(now, cap, &mut self.rng);
        match outcome {
            Ok(holds) => {
                if lying {
                    self.seen.mark(Fault::Lie);
                } else if holds != cap {
                    self.seen.mark(Fault::Overshoot);
                }
                if epoch != self.epoch && self.core.is_some() {
                    self.seen.mark(Fault::LateLanding);
                }
                self.note(|| format!("    device {device} holds {} W", whole(holds).0));
                self.hand_landed(device, holds);
                self.hold(device, holds, cap, epoch != self.epoch);
                self.results.insert(serial, Ok(()));
            }
            Err(error) => {
                if now < self.hw[device].moods.refuses {
                    self.seen.mark(Fault::RefusedWrite);
                }
                self.results.insert(serial, Err(error));
            }
        }
    }

    fn reply(&mut self, device: usize, serial: u64, epoch: u32) {
        let Some(op) = self.hw[device].op.filter(|op| op.serial == serial) else {
            return;
        };
        if epoch != self.epoch || self.core.is_none() {
            return;
        }
        let (now, clock) = (self.now, self.clock().0);
        let lets_go = self.hw.iter().any(|hw| hw.is_gpu() && hw.let_go);
        let lets_go = lets_go && self.hw[device].is_gpu();
        let journaled = self.is_in_journal(device);
        let hw = &mut self.hw[device];
        hw.op = None;
        let reply = match op.operation {
            Operation::Read => {
                let read = hw.read(now, clock, &mut self.rng);
                let power = read.as_ref().ok().and_then(|read| read.power);
                // What a GPU's sensor can tell apart.
                let margin = match hw.identity.read_back {
                    ReadBack::MayBeCached => 1.001,
                    ReadBack::Device if hw.is_gpu() => 1.02,
                    ReadBack::Device => 1.0,
                };
                let most = hw.cap as f64 / 1e6 * margin;
                if power.is_some_and(|power| (0.0..=most).contains(&power.0)) {
                    hw.owes = 0;
                }
                // A reading of another cap than is known is looked at twice.
                let sure = read.as_ref().is_ok_and(|read| micro(read.cap) == hw.known);
                let tells = power.is_some_and(|power| power.0 > 0.0 && power.0.is_finite());
                hw.told |= sure && tells;
                if let Ok(read) = &read {
                    hw.throttle_told = read.throttle;
                    if hw.is_gpu() && read.throttle == Some(Throttle::PowerBrake) {
                        self.ledger.braked_until = clock + BRAKE;
                    }
                }
                if read.as_ref().is_ok_and(|read| read.cap.is_finite()) {
                    hw.known = hw.cap;
                    hw.read_asked = op.since;
                    // What litd held to be back is nobody's to steer: then it is found anew.
                    hw.foreign &= journaled || hw.foreign_known;
                    hw.foreign_known = hw.foreign && hw.foreign_seen;
                    hw.foreign_seen = hw.foreign;
                }
                if now < hw.moods.flaky && read.is_err() {
                    self.seen.mark(Fault::FlakyReads);
                }
                Reply::Read(read)
            }
            Operation::Set(_) => {
                let outcome = self.results.remove(&serial).unwrap_or(Ok(()));
                hw.known = if outcome.is_ok() { hw.cap } else { i64::MIN };
                // What is lowered by hand is given to nobody.
                let given = hw.hand.open.is_none_or(|(asked, _)| asked != hw.cap);
                if outcome.is_ok() && hw.is_measured() && hw.cap < op.before && given && !lets_go {
                    hw.owes = hw.owes.max(op.before);
                }
                Reply::Set(outcome.map(|()| whole(hw.cap)))
            }
            Operation::Range | Operation::Identify => {
                if now < hw.moods.no_range {
                    self.seen.mark(Fault::NoRange);
                }
                let range = hw.range(now);
                if range.is_ok() {
                    hw.sharing_told = hw.identity.sharing;
                }
                Reply::Identity(range.map(|range| (hw.identity.clone(), range)))
            }
            Operation::Holders => {
                if now < hw.moods.no_holders {
                    self.seen.mark(Fault::NoHolders);
                }
                Reply::Holders(hw.holders(now))
            }
            Operation::Clocks(_) => Reply::Clocks(self.results.remove(&serial).unwrap_or(Ok(()))),
            Operation::Release => {
                hw.hold.open = false;
                Reply::Released
            }
        };
        if !matches!(op.operation, Operation::Range | Operation::Holders) {
            self.hand_read(device);
        }
        self.note(|| format!("    device {device} answers {reply:?}"));
        let written = match &reply {
            Reply::Set(outcome) => Some((self.record_of(device), outcome.as_ref().ok().copied())),
            _ => None,
        };
        let device = DeviceId(device);
        self.tell(Event::Device { device, reply });
        if let Some((record, held)) = written {
            self.check_outcome(record, held.map(micro));
        }
    }

    fn connect(&mut self, rank: usize) {
        let it = &self.hooks.ranks[rank];
        let job = &self.hooks.jobs[it.job];
        if it.session.is_some() || it.left || job.ended || (self.calm && self.jobs_end) {
            return;
        }
        if self.core.is_none() {
            return self.after(SECOND, Ev::Connect(rank));
        }
        let peer = Peer {
            pid: it.pid,
            uid: job.uid,
        };
        let session = self.hooks.session(Some(rank), None);
        self.hooks.ranks[rank].session = Some(session);
        let hello = litd_proto::FromHook::Hello(self.hooks.hello(rank, &self.hw)).encode();
        self.meet(session, peer, Some(hello));
    }

    /// A hook connects and says something.
    pub fn meet(&mut self, session: u64, peer: Peer, says: Option<Vec<u8>>) {
        self.note(|| format!("session {session} of process {} connects", peer.pid));
        self.tell(Event::Connected {
            session: SessionId(session),
            peer,
        });
        if let Some(bytes) = says {
            self.after(MILLI, Ev::Say { session, bytes });
        }
    }

    fn hangup(&mut self, session: u64) {
        self.reconnect_later(session);
        self.tell(Event::Disconnected {
            session: SessionId(session),
        });
    }

    /// A rank whose session is over tries again.
    pub fn reconnect_later(&mut self, session: u64) {
        if let Some(rank) = self.hooks.cut(session) {
            let pause = self.rng.between(500, 5000) * MILLI;
            self.after(pause, Ev::Connect(rank));
        }
    }

    /// A hook hears from the daemon.
    fn received(&mut self, session: u64, bytes: &[u8]) {
        let Some(&it) = self.hooks.sessions.get(&session) else {
            return;
        };
        let message = ToHook::decode(bytes, &litd_proto::Limits::default());
        self.note(|| format!("    to session {session}: {message:?}"));
        let directive = match message {
            Ok(ToHook::Welcome(welcome)) => {
                self.welcomed(session, it.wrong);
                welcome.directive
            }
            Ok(ToHook::Directive(directive)) => directive,
            Ok(ToHook::Refusal(_) | ToHook::Unknown) => return,
            Err(error) => return self.broke("protocol", error.to_string()),
        };
        if let Some(rank) = it.rank {
            let rank = &mut self.hooks.ranks[rank];
            // One that says goodbye may be told something while it does.
            (rank.welcomed, rank.directive) = (!rank.left, directive);
        }
    }

    fn welcomed(&mut self, session: u64, wrong: Option<Wrong>) {
        let wrong = match wrong {
            None => false,
            Some(Wrong::Always) => true,
            Some(Wrong::WhileAttached { rank }) => self.hooks.ranks[rank].welcomed,
        };
        if wrong {
            self.broke("8 holders", format!("session {session} was welcomed"));
        }
        self.ledger.welcomed = true;
    }

    fn iteration(&mut self, job: usize) {
        if self.hooks.jobs[job].ended {
            return;
        }
        let duration = self.hooks.duration(job, &self.hw);
        self.after(duration, Ev::Iteration(job));
        if self.now < self.hooks.jobs[job].silent_until {
            return;
        }
        self.hooks.jobs[job].iteration += 1;
        for rank in self.hooks.jobs[job].ranks.clone() {
            let it = &self.hooks.ranks[rank];
            let Some(session) = it.session.filter(|_| it.welcomed && !it.left) else {
                continue;
            };
            let flaw = it.flaw;
            let mut frames = self.clock_frames(rank);
            frames.extend(self.hooks.frames(rank, duration, &self.hw, &mut self.rng));
            if let Some(flaw) = flaw.filter(|_| self.hooks.ranks[rank].flaw.is_none()) {
                self.seen.mark(flaw.fault());
            }
            let delay = self.rng.between(0, 10) * MILLI;
            for bytes in frames {
                self.after(delay, Ev::Say { session, bytes });
            }
        }
    }

    fn calm_down(&mut self) {
        self.note(|| "calm".to_owned());
        self.calm = true;
        self.disk.with(|disk| {
            disk.heal();
            disk.deadly = false;
        });
        for device in 0..self.hw.len() {
            let hw = &mut self.hw[device];
            hw.gone = false;
            hw.moods = Default::default();
        }
        if self.jobs_end {
            for rank in 0..self.hooks.ranks.len() {
                self.leave(rank);
            }
        }
        // Time for retries, and for a write that blocks for 30 s.
        let busy = self.hw.iter().any(|hw| hw.misbehaves(self.now));
        let calm = if busy { 45 } else { 14 } * SECOND;
        self.after(calm, Ev::Stop);
    }

    /// A rank says goodbye.
    pub fn leave(&mut self, rank: usize) {
        let it = &mut self.hooks.ranks[rank];
        if std::mem::replace(&mut it.left, true) {
            return;
        }
        it.welcomed = false;
        if let Some(session) = it.session.take() {
            let bytes = Hooks::bye();
            self.tell(Event::Frame {
                session: SessionId(session),
                bytes: &bytes,
            });
            let epoch = self.epoch;
            self.after(5 * MILLI, Ev::Hangup { session, epoch });
        }
    }

    /// Tells the daemon to stop.
    pub fn stop(&mut self) {
        if self.core.is_none() {
            if self.calm {
                // It is starting; the last thing in every history is an orderly stop.
                self.start();
                self.after(6 * SECOND, Ev::Stop);
            }
            return;
        }
        if self.stop_sent.is_some() {
            return;
        }
        if self.calm {
            self.check_quiet();
        }
        self.note(|| "stop".to_owned());
        self.before_stop();
        self.stop_sent = Some(self.now);
        self.tell(Event::Stop);
    }

    fn has_stopped(&mut self) {
        self.note(|| "stopped".to_owned());
        let Some(core) = self.core.take() else { return };
        self.harvest(&core);
        self.check_stopped(&core);
        let sessions: Vec<u64> = self.hooks.sessions.keys().copied().collect();
        for session in sessions {
            self.reconnect_later(session);
        }
        if self.calm {
            self.done = true;
        } else {
            self.after(SECOND, Ev::Start);
        }
        self.bury(false);
    }
}
