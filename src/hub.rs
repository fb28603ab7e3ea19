//! The hub: events go into the core, and its effects are carried out. Tasks share it on one thread and borrow it
//! only between two `await`s, so that there is no queue in front of the core: a hook whose frame is not taken yet
//! finds its socket full.

mod guests;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use litd_api::{Command, Done, Events, Problem, Stacks, Status, Trials};
use litd_core::baseline::Lower;
use litd_core::{
    AboveSafe, Core, Crowd, DeviceId, Effect, Event, Home, Operation, Owners, Peer, Progress,
    Reply, SessionId, Unclaimed,
};
use litd_units::{Nanos, Watts};
use nix::unistd::Uid;
use tokio::sync::Notify;

use crate::announcements::Notes;
use crate::attach::{Guests, Shown, Wishes};
use crate::baseline::BaselineFile;
use crate::clock::Clock;
use crate::config::Config;
use crate::devices::Devices;
use crate::hanging::Hanging;
use crate::hold::Note;
use crate::kill_switch;
use crate::logging;
use crate::node_power::NodePowerFile;
use crate::notify::Notifier;
use crate::presence::Presence;
use crate::session::Session;
use crate::state::FileStore;

/// The hub, as its tasks hold it.
pub type Shared = Rc<RefCell<Hub>>;

/// If the core's deadline has passed although it was told the time, it waits for something else; it is told again
/// after this.
const SHORTEST_WAIT: Duration = Duration::from_millis(5);

/// The core, and the means to carry out its effects.
#[derive(Debug)]
pub struct Hub {
    core: Core<FileStore>,
    clock: Clock,
    devices: Devices,
    sessions: HashMap<SessionId, Rc<Session>>,
    last_session: u64,
    frames: u64,
    notifier: Notifier,
    presence: Presence,
    baseline: Option<BaselineFile>,
    /// Whether caps are held when litd ends, for whoever comes after a crash.
    hold: Option<Note>,
    node_power: NodePowerFile,
    /// What schedulers have announced while litd was away.
    notes: Option<Notes>,
    /// Processes of earlier daemons that still wait for a driver.
    hanging: Vec<Hanging>,
    hostname: String,
    /// The hash of the configuration in force.
    configuration: String,
    stopped: bool,
    wishes: Option<Rc<Wishes>>,
    /// The state of all rings; `None` where litd reads none.
    rings: Option<Rc<Shown>>,
    /// Ranks without a hook; `None` where litd samples none.
    guests: Option<Guests>,
    /// When each device was told to hold another cap.
    told: HashMap<DeviceId, Nanos>,
    progress: Rc<Notify>,
    end: Rc<Notify>,
    changed: Rc<Notify>,
}

/// The node's name: the kernel's, or the one that a pod is told in `$NODE_NAME`, as exporters are.
#[must_use]
pub fn hostname() -> String {
    let told = std::env::var("NODE_NAME").ok();
    let told = told.filter(|name| !name.is_empty());
    let kernels = || std::fs::read_to_string("/proc/sys/kernel/hostname");
    let name = told.unwrap_or_else(|| kernels().unwrap_or_default());
    name.trim().to_owned()
}

impl Hub {
    /// A hub around a core, which publishes its baseline there. Call [`Hub::begin`] next.
    #[must_use]
    pub fn new(
        mut core: Core<FileStore>,
        clock: Clock,
        devices: Devices,
        presence: Presence,
        baseline: Option<BaselineFile>,
        node_power: NodePowerFile,
        configuration: String,
    ) -> Self {
        let hostname = hostname();
        core.set_host(&hostname);
        Self {
            core,
            clock,
            devices,
            sessions: HashMap::new(),
            last_session: 0,
            frames: 0,
            notifier: Notifier::from_environment(),
            presence,
            baseline,
            hold: None,
            node_power,
            notes: None,
            hanging: Vec::new(),
            hostname,
            configuration,
            stopped: false,
            wishes: None,
            rings: None,
            guests: None,
            told: HashMap::new(),
            progress: Rc::new(Notify::new()),
            end: Rc::new(Notify::new()),
            changed: Rc::new(Notify::new()),
        }
    }

    /// Keeps to the undo journal for as long as these processes of earlier daemons hang. Call it before [`Hub::begin`].
    pub fn wait_for(&mut self, hanging: Vec<Hanging>) {
        for process in &hanging {
            log::warn!(
                "process {} of an earlier litd was killed but hangs in a driver: its last write may still take effect, \
                 and litd undoes it then",
                process.pid
            );
        }
        self.hanging = hanging;
    }

    /// Notes from now on whether caps are held at the end. Call it before [`Hub::begin`].
    pub(crate) fn note_holds(&mut self, note: Note) {
        self.hold = Some(note);
    }

    /// Hears from now on what schedulers announce while litd is away. Call it before [`Hub::begin`].
    pub fn reads_notes(&mut self, notes: Notes) {
        self.notes = Some(notes);
    }

    /// Hears what schedulers have announced while litd was away. While litd stops that is left to the next one.
    pub fn hear_late(&mut self) {
        if !self.is_stopping() {
            let heard = self.notes.as_mut().map(Notes::take);
            self.carry_out_notes(heard.unwrap_or_default());
        }
    }

    fn carry_out_notes(&mut self, (said, wrong): (Vec<Command>, Vec<String>)) {
        let now = self.now();
        for command in said {
            // A refusal is an event.
            let _ = self.core.command(now, Uid::effective().as_raw(), command);
            self.carry_out();
        }
        for text in wrong {
            self.handle(Event::Outside(&text));
        }
    }

    /// Sends nothing to systemd: this core runs before or after the daemon's life.
    pub fn silence(&mut self) {
        self.notifier = Notifier::silent();
    }

    /// Why the journal can't be written; `None` if it can.
    #[must_use]
    pub fn journal_trouble(&self) -> Option<String> {
        self.core.journal_trouble().map(str::to_owned)
    }

    /// Carries out the effects of the core's creation.
    pub fn begin(&mut self) {
        self.carry_out();
        self.look_around();
        self.notifier.ready();
    }

    /// The time, after the core was told the wall clock's.
    fn now(&mut self) -> Nanos {
        let now = self.clock.now();
        self.core.wall_clock(now, self.clock.unix_seconds());
        now
    }

    /// Hands an event to the core, and carries out the effects.
    pub fn handle(&mut self, event: Event<'_>) {
        let now = self.now();
        self.core.handle(now, event);
        self.carry_out();
    }

    /// A hook connected. Each call needs one of [`Hub::leave`] later.
    pub fn join(&mut self, session: Rc<Session>, peer: Peer, home: Option<Home>) -> SessionId {
        let id = self.next_session();
        self.meet_hook(id, peer.pid);
        let doubt = session.doubt();
        self.sessions.insert(id, session);
        self.handle(Event::Connected {
            session: id,
            peer,
            home,
        });
        if let Some(doubt) = doubt {
            self.handle(Event::Doubted { session: id, doubt });
        }
        id
    }

    fn next_session(&mut self) -> SessionId {
        self.last_session += 1;
        SessionId(self.last_session)
    }

    /// A hook sent a frame.
    pub fn frame(&mut self, session: SessionId, bytes: &[u8]) {
        self.frames += 1;
        self.handle(Event::Frame { session, bytes });
    }

    /// Sets the owners of subordinate ids.
    pub fn set_owners(&mut self, owners: Owners) {
        self.core.set_owners(owners);
    }

    /// Sets where traces are wished for.
    pub fn set_wishes(&mut self, wishes: Option<Rc<Wishes>>) {
        self.wishes = wishes;
    }

    /// Where traces are wished for; `None` where that is off.
    #[must_use]
    pub fn wishes(&self) -> Option<Rc<Wishes>> {
        self.wishes.clone()
    }

    /// The crowd in which a process of this user is counted.
    #[must_use]
    pub fn crowd(&self, uid: u32, home: Option<&Home>) -> Crowd {
        self.core.crowd(uid, home)
    }

    /// Whether a hook has been let in as a rank.
    #[must_use]
    pub fn is_attached(&self, session: SessionId) -> bool {
        self.core.is_attached(session)
    }

    /// A hook announced a frame of an impossible length: why, in words.
    pub fn no_frame(&mut self, session: SessionId, why: &str) {
        self.frames += 1;
        self.handle(Event::NoFrame { session, why });
    }

    /// Whether a process may connect, because it has not connected far too often of late.
    pub fn may_knock(&mut self, peer: Peer) -> bool {
        let now = self.clock.now();
        self.core.may_knock(now, peer)
    }

    /// The metrics' address is not available.
    pub fn metrics_elsewhere(&mut self, address: &str, at_first: bool, why: &io::Error) {
        self.core.metrics_elsewhere(address, at_first, why);
        self.carry_out();
    }

    /// The metrics' address is litd's again.
    pub fn metrics_again(&mut self, address: &str) {
        self.core.metrics_again(address);
        self.carry_out();
    }

    /// A client was disconnected, because there are too many.
    pub fn crowded_out(&mut self, uid: Option<u32>) {
        self.core.crowded_out(uid);
        self.carry_out();
    }

    /// A client was not answered, because too many answers wait to be read.
    pub fn unanswered(&mut self, uid: Option<u32>, home: Option<&Home>) {
        self.core.unanswered(uid, home);
        self.carry_out();
    }

    /// How many GPUs the node has.
    #[must_use]
    pub fn gpus(&self) -> usize {
        self.core.gpus()
    }

    /// A hook's connection has ended.
    pub fn leave(&mut self, session: SessionId) {
        if self.sessions.remove(&session).is_some() {
            if let Some(guests) = &mut self.guests {
                guests.part_from_hook(session);
            }
            self.handle(Event::Disconnected { session });
        }
    }

    /// A device has answered.
    pub fn answered(&mut self, device: DeviceId, reply: Reply) {
        if self.devices.answered(device) {
            if let Reply::Holders(_) = reply {
                // A driver's word about a process id counts only if that process still lives.
                self.look_at_processes();
            }
            self.handle(Event::Device { device, reply });
        }
    }

    /// Tells the core which processes have ended, whoever has their connections now.
    fn look_at_processes(&mut self) {
        let sessions = self.sessions.iter();
        let doubted = sessions.filter_map(|(&id, session)| Some((id, session.doubt()?)));
        let guests = self.guests.iter().flat_map(Guests::doubts);
        for (session, doubt) in doubted.chain(guests).collect::<Vec<_>>() {
            self.handle(Event::Doubted { session, doubt });
        }
    }

    /// Restores everything; [`Hub::is_stopped`] says when that is done.
    pub fn stop(&mut self) {
        self.notifier.stopping();
        self.handle(Event::Stop);
    }

    /// The configuration, if the core takes it at a reload.
    ///
    /// # Errors
    /// The core's reason to refuse: nothing of it takes effect.
    pub fn accepts(&self, config: Config) -> Result<Config, String> {
        match self.core.refuses(&config.core) {
            Some(why) => Err(why),
            None => Ok(config),
        }
    }

    /// The configuration was read anew and accepted, or was not.
    pub fn reloaded(&mut self, config: Result<Config, String>) {
        self.notifier.reloading();
        match config {
            Ok(config) => {
                self.configuration = config.hash();
                self.handle(Event::Reloaded(Box::new(config.core)));
            }
            Err(why) => self.handle(Event::ReloadRefused(&why)),
        }
        self.notifier.ready();
    }

    /// An administrator's command.
    ///
    /// # Errors
    /// The core's reason to refuse.
    pub fn command(&mut self, uid: u32, command: Command) -> Result<Done, Problem> {
        if !self.is_stopping() {
            let heard = self.notes.as_mut().map(|it| it.take_before(&command));
            self.carry_out_notes(heard.unwrap_or_default());
        }
        let now = self.now();
        let outcome = self.core.command(now, uid, command);
        self.carry_out();
        outcome
    }

    /// Trials and the hold-out.
    #[must_use]
    pub fn trials(&self) -> Trials {
        self.core.trials()
    }

    /// The results of profilers on this node.
    #[must_use]
    pub fn stacks(&self) -> Stacks {
        self.core.stacks()
    }

    /// The state of everything.
    #[must_use]
    pub fn status(&self) -> Status {
        let mut status = self.core.status();
        status.hostname.clone_from(&self.hostname);
        status.build.configuration.clone_from(&self.configuration);
        if let Some(wishes) = &self.wishes {
            wishes.add_to(&mut status.jobs);
        }
        if let Some(rings) = &self.rings {
            rings.add_to(&mut status.jobs);
        }
        status
    }

    /// The events after event `after`.
    #[must_use]
    pub fn events(&self, after: u64) -> Events {
        self.core.events(after)
    }

    /// The devices that stay within the safe budget now that litd leaves, by address.
    #[must_use]
    pub fn held_on_exit(&self) -> Vec<String> {
        self.core.held_on_exit()
    }

    /// The devices that hold their caps found, and whose entries stay because a failed write may still be done
    /// late, by address.
    #[must_use]
    pub fn may_land_on_exit(&self) -> Vec<String> {
        self.core.may_land_on_exit()
    }

    /// See [`Core::unclaimed`].
    #[must_use]
    pub fn unclaimed(&self) -> &[Unclaimed] {
        self.core.unclaimed()
    }

    /// See [`Core::may_lock_on_exit`].
    pub fn may_lock_on_exit(&self) -> Vec<String> {
        self.core.may_lock_on_exit()
    }

    /// Whether GPUs may hold more than the safe budget that litd is to leave behind.
    #[must_use]
    pub fn above_on_exit(&self) -> Option<AboveSafe> {
        self.core.above_on_exit()
    }

    /// The devices for which litd is to start anew now, in words, if it may: they have come up, no device is asked for
    /// anything at this moment, and [the core agrees](Core::may_start_anew).
    #[must_use]
    pub fn may_start_anew(&self) -> Option<String> {
        let devices = self.presence.come_up()?;
        let may = !self.stopped && self.devices.waits_for_nothing() && self.core.may_start_anew();
        may.then_some(devices)
    }

    /// Whether a device, by the name of its lock's file, is one for which litd is to start anew.
    #[must_use]
    pub fn is_coming(&self, name: &str) -> bool {
        self.presence.is_coming(name)
    }

    /// The hash of the configuration in force.
    #[must_use]
    pub fn configuration(&self) -> &str {
        &self.configuration
    }

    /// Does not start anew for so long.
    pub fn put_off_anew(&mut self, time: Duration) {
        self.presence.put_off(time);
    }

    /// Whether litd stops: then it takes no command.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.core.is_stopping()
    }

    /// Whether everything is restored, and the process may end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// How many hooks are connected.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Where the time comes from.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// When the core wants to be told of the time.
    #[must_use]
    pub fn deadline(&self) -> Nanos {
        self.core.deadline()
    }

    /// How long to wait if no event comes.
    #[must_use]
    pub fn wait(&self) -> Duration {
        let left = self.core.deadline() - self.clock.now();
        let left = Duration::from_nanos(u64::try_from(left.0).unwrap_or(0));
        left.max(SHORTEST_WAIT)
    }

    /// Whether so many frames have come and no work is left at this moment: no operation is under way, and hooks
    /// have received all frames to them.
    #[must_use]
    pub fn is_quiet(&self, frames: u64) -> bool {
        self.frames >= frames
            && self.devices.is_idle()
            && self.sessions.values().all(|session| session.is_flushed())
    }

    /// Frames received so far.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Notified after each event.
    #[must_use]
    pub fn progress(&self) -> Rc<Notify> {
        self.progress.clone()
    }

    /// Notified when the outcome of a request may have changed.
    #[must_use]
    pub fn changed(&self) -> Rc<Notify> {
        self.changed.clone()
    }

    /// The outcome of an override; `None` while it is under way.
    #[must_use]
    pub fn outcome_by_hand(&self, device: &str) -> Option<Result<Watts, String>> {
        self.core.outcome_by_hand(device)
    }

    /// The client no longer waits for its override.
    pub fn give_up_by_hand(&mut self, device: &str) {
        let now = self.now();
        self.core.give_up_by_hand(now, device);
        self.carry_out();
    }

    /// The progress of releasing a device, or all of them.
    #[must_use]
    pub fn letting_go(&self, device: Option<&str>) -> Progress {
        self.core.letting_go(device)
    }

    /// The progress of restoring a job's devices.
    #[must_use]
    pub fn giving_back(&self, job: &str) -> Progress {
        self.core.giving_back(job)
    }

    /// Notified when everything is restored.
    #[must_use]
    pub fn end(&self) -> Rc<Notify> {
        self.end.clone()
    }

    fn carry_out(&mut self) {
        let mut round = false;
        for effect in self.core.effects() {
            match effect {
                Effect::Send { session: id, bytes } => {
                    if let Some(session) = self.sessions.get(&id)
                        && (session.is_refused_in_words() || self.core.is_attached(id))
                    {
                        session.send(&bytes);
                    } else if let Some(guests) = &mut self.guests {
                        guests.send(id, &bytes);
                    }
                }
                Effect::Close { session } => {
                    if let Some(session) = self.sessions.get(&session) {
                        session.close();
                    } else if let Some(guests) = &mut self.guests {
                        guests.close(session);
                    }
                }
                Effect::Device { device, operation } => {
                    if let Operation::Set(_) = operation {
                        self.told.insert(device, self.clock.now());
                    }
                    self.devices.submit(device, operation);
                }
                Effect::Baseline(baseline) => {
                    if let Some(note) = &mut self.hold {
                        note.follow(matches!(baseline.lower, Lower::ForGood(_)));
                    }
                    if let Some(file) = &mut self.baseline {
                        file.write(&baseline);
                    }
                }
                Effect::Log(event) => logging::event(&event),
                Effect::Alive => {
                    self.alive();
                    round = true;
                }
                Effect::Stopped => {
                    self.stopped = true;
                    self.end.notify_one();
                }
            }
        }
        self.progress.notify_one();
        self.changed.notify_waiters();
        if round {
            self.look_around();
        }
    }

    /// Once a second: checks files, sockets, the bus and the like.
    fn look_around(&mut self) {
        self.look_at_processes();
        self.hanging.retain(Hanging::still);
        if !self.hanging.is_empty() {
            self.handle(Event::PredecessorHangs);
        }
        self.core.store().keep_locks();
        if let Some(told) = logging::begins_to_drop() {
            self.handle(Event::Outside(told));
        }
        let killed = kill_switch::thrown(self.core.kill_switches());
        if killed.as_deref() != self.core.killed() {
            self.handle(Event::KillSwitch(killed));
        }
        if let Some(unmanaged) = self.presence.unmanaged()
            && unmanaged != *self.core.unmanaged()
        {
            self.handle(Event::Unmanaged(unmanaged));
        }
        for device in self.presence.returned(self.core.let_go_of_now()) {
            self.handle(Event::Returned(device));
        }
        if let Some(reading) = self.node_power.poll() {
            self.handle(Event::NodePower(reading));
        }
    }

    fn alive(&mut self) {
        self.notifier.alive();
        if let Some(file) = &mut self.baseline {
            file.alive();
        }
        if self.notifier.is_listening() {
            self.notifier.status(&self.core.status().node.summary);
        }
    }
}
