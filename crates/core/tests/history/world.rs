//! The world around the daemon: events in the order of their times, and what its effects do.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use litd_api::Status;
use litd_core::{Config, Core, DeviceId, Effect, Event, SessionId};
use litd_power::{PowerError, Reading};
use litd_units::Nanos;

use crate::digest::Digest;
use crate::disk::{Disk, Platter};
use crate::fault::{Fault, Seen};
use crate::hardware::{Hw, MILLI, SECOND};
use crate::hooks::Hooks;
use crate::inside::Moment;
use crate::ledger::{Excused, Ledger};
use crate::matrix::{Met, Phase};
use crate::rng::Rng;
use crate::rollout::Rule;
use crate::setup::Setup;

/// A sound device answers within so many milliseconds, and now and then within so many more.
pub const QUICK: i64 = 12;
pub const SLOW: i64 = 200;

/// No cap rises for so long after the power brake was seen.
pub const BRAKE: i64 = 60 * SECOND;

/// No history lasts longer; operations that are never answered do.
const LONGEST: i64 = 900 * SECOND;

/// The calm at the end of a history is no longer, whatever would come to rest then.
const LONGEST_CALM: i64 = 60 * SECOND;

/// The longest that a sound device takes for anything.
pub const ANSWER: i64 = (QUICK + SLOW) * MILLI;

/// The constant for the fates' stream.
const FATES: u64 = 0x6661_7465_7321;

/// An event at its time.
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
    /// A write that was called failed is done all the same, if this daemon lives still.
    LandAfterAll {
        device: usize,
        cap: i64,
        asked: i64,
        boot: u32,
        epoch: u32,
    },
    /// A lock that was called failed is done all the same, if its daemon lives still.
    LockAfterAll {
        device: usize,
        clock: u32,
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
    /// A write looks first at what is there, or a reading at what it will tell.
    Glance {
        device: usize,
        serial: u64,
        epoch: u32,
    },
    /// A foreign change while the device does this.
    Hand {
        device: usize,
        serial: u64,
        moment: Moment,
    },
    /// `litd restore` runs.
    Restore,
    /// A stranger says hello in the name of a rank.
    Stranger { rank: usize },
    /// A fault is present by now, and litd has to do this.
    Then { device: usize, phase: Phase },
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
    /// A fault.
    Fault(Fault),
    /// A device is itself again.
    Back(usize),
    /// The disk is itself again.
    DiskBack,
    /// Leftovers are restored, although no file can be written, if this daemon still lives.
    OnlyRead { epoch: u32 },
    /// The ledger looks at what time has brought.
    Look,
    /// The budget came down then: by now the others have made room for a device that is stuck.
    Room { lowered: i64 },
    /// The release of then has to be answered now.
    LetGo { device: usize, since: i64 },
    /// A kill switch was there then.
    Killed { since: i64 },
    /// A lease may be over.
    LeaseEnds,
    /// The BMC tells something once more.
    NodeTells,
    /// A job's end was told a while ago: what is said to be back is.
    GivenBack { job: usize, epoch: u32 },
    /// The client of an override stops waiting.
    HandPatience { device: usize, asked: i64 },
    /// No more faults from now on; jobs end.
    Calm,
    /// The daemon is to stop.
    Stop,
}

/// The outcome of a history.
#[derive(Debug)]
pub struct Outcome {
    pub broken: Option<String>,
    /// Everything that the daemon did.
    pub digest: Digest,
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
    pub met: Met,
    /// How much of its time is excused, and whether the node came to rest.
    pub excused: Excused,
    pub rested: [bool; 3],
}

pub struct World {
    pub rng: Rng,
    pub digest: Digest,
    /// A stream of its own for what goes wrong in the ways of the matrix: what else happens is the
    /// same with it and without it.
    pub fates: Rng,
    /// Whether nothing is to go wrong.
    pub is_clean: bool,
    /// The beginning of this daemon's life.
    pub life: Phase,
    /// When the configuration was read anew last.
    pub reloaded: i64,
    pub met: Met,
    /// The file was changed while no daemon ran.
    pub configured_anew: bool,
    /// How often the disk had failed when that was looked at last.
    pub failed: (u32, u32),
    /// The devices that the daemon knows, in its order.
    pub here: Vec<usize>,
    pub now: i64,
    /// The daemon's clock is ahead by so much.
    pub skew: i64,
    pub queue: BTreeMap<(i64, u64), Ev>,
    pub serial: u64,
    pub core: Option<Core<Disk>>,
    /// The core's last status; `None` after each input.
    pub said: RefCell<Option<Rc<Status>>>,
    pub disk: Disk,
    pub config: Config,
    pub hw: Vec<Hw>,
    pub hooks: Hooks,
    pub ledger: Ledger,
    pub rule: Rule,
    /// Jobs that a scheduler has said to have ended, and not to have begun again.
    pub said_to_end: Vec<usize>,
    pub seen: Seen,
    pub epoch: u32,
    pub boot: u32,
    pub calm: bool,
    /// Since when it has been.
    pub calmed: i64,
    pub jobs_end: bool,
    pub stop_sent: Option<i64>,
    pub stopped: bool,
    pub done: bool,
    pub last_alive: i64,
    pub started: i64,
    spins: u32,
    tracing: bool,
    trace: VecDeque<String>,
    pub results: BTreeMap<u64, Result<(), PowerError>>,
    /// Readings under way, and the caps held then.
    pub sensed: BTreeMap<u64, (Result<Reading, PowerError>, i64)>,
    /// How often all was over.
    pub ends: u32,
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
        let clean = setup.faults.is_empty();
        // Loops have less to do where clocks are planned, and clean histories are to show what loops do.
        let planned = if clean { 0.0 } else { 0.5 };
        let hooks = Hooks::new(&setup.jobs, &mut hw, planned, &mut rng);
        let mut world = Self {
            digest: Digest::default(),
            fates: Rng::new(rng.clone().next() ^ FATES),
            is_clean: clean,
            life: Phase::Discovery,
            reloaded: i64::MIN / 2,
            met: Met::default(),
            configured_anew: false,
            failed: (0, 0),
            here: Vec::new(),
            skew: rng.between(0, 100) * SECOND,
            disk: Disk::new(Rng::new(rng.next())),
            now: 0,
            queue: BTreeMap::new(),
            serial: 0,
            core: None,
            said: RefCell::default(),
            config: setup.config,
            ledger: Ledger::default(),
            rule: Rule::default(),
            said_to_end: Vec::new(),
            hooks,
            hw,
            seen: Seen::default(),
            epoch: 0,
            boot: 0,
            calm: false,
            calmed: 0,
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
            sensed: BTreeMap::new(),
            ends: 0,
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

    /// The daemon's clock.
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
        let mut digest = self.digest;
        self.disk.with(|disk| {
            for file in [
                &disk.journal,
                &disk.learned,
                &disk.trial,
                &disk.audit,
                &disk.condition,
            ] {
                digest.bytes(file);
            }
        });
        Outcome {
            broken: self.ledger.broken.take(),
            digest,
            seen: self.seen,
            trace: self.trace,
            adjustments: self.adjustments,
            converged: self.converged,
            sampled: self.sampled,
            steerable: self.steerable,
            writes: self.writes,
            tried: self.tried,
            met: self.met,
            excused: self.ledger.excused,
            rested: self.ledger.rest.looked_at,
        }
    }

    fn step(&mut self) {
        let next = self.queue.first_key_value().map(|(&(at, _), _)| at);
        let wake = self.core.as_ref().filter(|_| !self.stopped);
        let wake = wake.map(|core| core.deadline().0 - self.skew);
        match (next, wake) {
            (Some(next), Some(wake)) if wake < next => self.wake(wake),
            (Some(at), _) if at > LONGEST => {
                self.broke("history", "it does not end".to_owned());
            }
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
        self.said.take();
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
        self.digest.effects(self.now, &effects);
        if self.disk.with(|disk| disk.dead) {
            return self.died_at_write();
        }
        if let Err(rule) = core.invariants() {
            return self.broke("22 invariants", rule);
        }
        if effects.len() > 500 {
            return self.broke("10 bounds", format!("{} effects at once", effects.len()));
        }
        for effect in effects {
            match effect {
                Effect::Device {
                    device: DeviceId(place),
                    operation,
                } => match self.here.get(place) {
                    Some(&device) => self.begin(device, operation),
                    None => self.broke("devices", format!("there is no device {place}")),
                },
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
                    self.heard(&event);
                    self.note(|| format!("    log: {} {:?}", event.text, event.device));
                }
            }
        }
        self.check_kept();
        self.meets_failures();
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
            Ev::LandAfterAll {
                device,
                cap,
                asked,
                boot,
                epoch,
            } => {
                if (boot, epoch) == (self.boot, self.epoch) && self.core.is_some() {
                    self.land_after_all(device, cap, asked);
                }
            }
            Ev::LockAfterAll {
                device,
                clock,
                boot,
                epoch,
            } => {
                if (boot, epoch) == (self.boot, self.epoch) && self.core.is_some() {
                    self.lock_after_all(device, clock);
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
            Ev::Glance {
                device,
                serial,
                epoch,
            } => self.glance(device, serial, epoch),
            Ev::Hand {
                device,
                serial,
                moment,
            } => self.hand_inside(device, serial, moment),
            Ev::Restore => self.restore(),
            Ev::Stranger { rank } => self.stranger_comes(rank),
            Ev::Then { device, phase } => self.then(device, phase),
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
            Ev::OnlyRead { epoch } => self.check_only_read(epoch),
            Ev::Look => {
                self.look();
                self.after(500 * MILLI, Ev::Look);
            }
            Ev::Room { lowered } => self.check_room(lowered),
            Ev::LetGo { device, since } => self.check_let_go(device, since),
            Ev::Killed { since } => self.check_killed(since),
            Ev::LeaseEnds => self.lease_ends(),
            Ev::NodeTells => self.bmc_goes_on(),
            Ev::GivenBack { job, epoch } if epoch == self.epoch => self.check_given_back(job),
            Ev::GivenBack { .. } => {}
            Ev::HandPatience { device, asked } => self.hand_patience(device, asked),
            Ev::Calm => self.calm_down(),
            Ev::Stop => self.stop(),
        }
    }

    /// The process is gone; the node goes on.
    pub fn crash(&mut self, late: bool) {
        if self.core.is_none() {
            return;
        }
        self.end_life(late);
        let pause = self.rng.between(20, 2500) * MILLI;
        let pause = if late { 30 * MILLI } else { pause };
        self.succeed(pause);
    }

    /// The daemon's status.
    pub fn status(&self) -> Option<Rc<Status>> {
        let core = self.core.as_ref()?;
        let mut said = self.said.borrow_mut();
        Some(said.get_or_insert_with(|| Rc::new(core.status())).clone())
    }

    /// The process is gone, and nothing follows it yet.
    pub fn end_life(&mut self, late: bool) {
        self.remember_limit();
        self.hands_are_gone();
        let Some(core) = self.core.take() else { return };
        self.said.take();
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
        self.ledger.died = Some(self.now);
        (self.stopped, self.stop_sent) = (false, None);
    }

    /// Writes under way when the daemon ends land soon, or never.
    fn bury(&mut self, late: bool) {
        self.forget_rises();
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
        // Nor is a lock that failed before that done later: litd counts the half minute by a clock that does not stop.
        let lock = |event: &Ev| matches!(event, Ev::LockAfterAll { .. });
        let alive = self.core.is_some();
        self.queue
            .retain(|_, event| !(alive && late(event) || lock(event)));
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

    /// Collects the outcome of a daemon's life.
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

    /// The outcomes of trials and hold-outs.
    pub fn saw_trials(&mut self, trials: &litd_api::Trials) {
        let both = |it: &litd_trial::Report| it.found.blocks > 0 && it.balanced.blocks > 0;
        self.tried[0] |= trials.report.as_ref().is_some_and(both);
        self.tried[1] |= trials.hold_outs.iter().any(|it| it.comparisons > 0);
        self.tried[2] |= trials.harm.is_some();
    }

    fn calm_down(&mut self) {
        self.note(|| "calm".to_owned());
        (self.calm, self.calmed) = (true, self.now);
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

    /// Tells the daemon to stop.
    pub fn stop(&mut self) {
        if self.core.is_none() {
            if self.calm {
                // The daemon starts; the last event of every history is an orderly stop.
                self.start();
                self.after(6 * SECOND, Ev::Stop);
            }
            return;
        }
        if self.stop_sent.is_some() {
            if self.calm {
                // The successor of a daemon that stops is stopped as well.
                self.after(SECOND, Ev::Stop);
            }
            return;
        }
        if self.calm {
            let rests_by = self.rests_by().filter(|&by| self.now < by);
            if let Some(by) = rests_by.filter(|&by| by < self.calmed + LONGEST_CALM) {
                // A node that would come to rest is looked at before the stop.
                return self.at(by, Ev::Stop);
            }
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
        self.said.take();
        self.harvest(&core);
        self.check_stopped(&core);
        let sessions: Vec<u64> = self.hooks.sessions.keys().copied().collect();
        for session in sessions {
            self.reconnect_later(session);
        }
        if !self.calm {
            self.succeed(SECOND);
        }
        self.bury(false);
        if self.calm {
            self.end();
        }
    }
}
