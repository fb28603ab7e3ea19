//! The daemon's state, and the one way in: [`Core::handle`].

use std::collections::BTreeSet;

use litd_api::{Command, Done, EventKind, Events, Problem, STOPPING};
use litd_policies::Policy;
use litd_units::Nanos;

use crate::authority::Authority;
use crate::authority::admin::problem;
use crate::condition::Condition;
use crate::config::{Config, OnExit};
use crate::devices::{Devices, Unit};
use crate::event::{Device, DeviceId, Effect, Event};
use crate::hooks::Hooks;
use crate::hooks::cgroup::Home;
use crate::job::Jobs;
use crate::journal::JournalError;
use crate::learned::Learned;
use crate::node::Node;
use crate::outbox::Outbox;
use crate::plan::Targets;
use crate::record::Note;
use crate::rounds::Rounds;
use crate::store::Store;
use crate::undo::predecessor::Predecessor;
use crate::writer::Writer;

/// A write, or the wait before it, that takes longer than this is not waited for any longer: the device counts
/// with the most that it may hold, and the others make room for it.
pub(crate) const SLOW: Nanos = Nanos(400_000_000);

pub(crate) fn seconds(seconds: f64) -> Nanos {
    // `as` saturates.
    Nanos((seconds * 1e9) as i64)
}

/// The daemon.
#[derive(Debug)]
pub struct Core<S> {
    pub(crate) config: Config,
    /// Who decides: commands, leases, kill switch, harm, the end of litd; and whether the budget is kept.
    pub(crate) authority: Authority,
    pub(crate) devices: Devices,
    /// The only way to a device: account of writes, journal, audit log.
    pub(crate) writer: Writer<S>,
    pub(crate) node: Node,
    pub(crate) hooks: Hooks,
    /// Jobs, the trial of one of them, and what was learned from jobs.
    pub(crate) jobs: Jobs,
    /// Effects, events and counters on their way out.
    pub(crate) out: Outbox,
    /// The litd that ended before this one was started.
    pub(crate) predecessor: Predecessor,
    /// What is done once a second.
    pub(crate) rounds: Rounds,
    /// The node's condition, which outlives litd.
    pub(crate) condition: Condition,
    /// The last plan, how fast caps rise to it, and whether restored caps wait for other devices.
    pub(crate) targets: Targets,
}

impl<S: Store> Core<S> {
    /// A daemon on these devices. Caps that a predecessor left changed, according to the journal in `store`, are
    /// restored first. `now` is monotonic time, `unix_seconds` the wall clock's.
    ///
    /// # Errors
    /// The journal can't be read, or is one of a newer version: nothing may be touched then.
    pub fn new(
        config: Config,
        inventory: Vec<Device>,
        store: S,
        boot_id: &str,
        now: Nanos,
        unix_seconds: f64,
    ) -> Result<Self, JournalError> {
        let mut core = Self::open(config, inventory, store, boot_id, now, unix_seconds)?;
        core.tell_orders();
        core.recall_limits();
        core.recall_silent();
        core.recall_all_not_in_force();
        core.look_again_at_all();
        core.recall_trial();
        // Runs after recovery, so that caps of a predecessor are not taken for caps found.
        core.follow_mode();
        core.say_hello();
        core.settle_up();
        Ok(core)
    }

    /// `litd restore`: as [`Core::new`], but stopping from the start, so that only a predecessor's changes are
    /// undone.
    ///
    /// # Errors
    /// As [`Core::new`].
    pub fn restoring(
        config: Config,
        inventory: Vec<Device>,
        store: S,
        boot_id: &str,
        now: Nanos,
        unix_seconds: f64,
    ) -> Result<Self, JournalError> {
        let mut core = Self::open(config, inventory, store, boot_id, now, unix_seconds)?;
        core.recall_all_let_go();
        core.look_again_at_all();
        core.stop();
        core.settle_up();
        Ok(core)
    }

    /// The state with a predecessor's leftovers; nothing is written yet.
    fn open(
        config: Config,
        inventory: Vec<Device>,
        store: S,
        boot_id: &str,
        now: Nanos,
        unix_seconds: f64,
    ) -> Result<Self, JournalError> {
        let addresses = inventory.iter().map(|it| it.identity.address.clone());
        let (mut writer, left) = Writer::open(store, boot_id, addresses.collect())?;
        let store = writer.store_mut();
        let devices = Devices::new(inventory);
        let (learned, flaw) = match store.load_learned() {
            Ok(bytes) => Learned::load(&bytes),
            Err(error) => (Learned::default(), Some(error.to_string())),
        };
        let (condition, unkept) = match store.load_condition() {
            Ok(bytes) => Condition::load(&bytes, boot_id),
            Err(error) => (Condition::default(), Some(error.to_string())),
        };
        let mut core = Self {
            config,
            authority: Authority::default(),
            devices,
            writer,
            node: Node::default(),
            hooks: Hooks::default(),
            jobs: Jobs::new(learned),
            out: Outbox::new(now, unix_seconds),
            predecessor: Predecessor::ended(now),
            rounds: Rounds::new(now),
            condition,
            targets: Targets::default(),
        };
        core.authority.recall(core.condition.orders, &core.config);
        if let Some(flaw) = flaw {
            let text = format!("some or all learned caps are lost: {flaw}");
            core.note(Note::warning(EventKind::Fault, text));
        }
        if let Some(flaw) = unkept {
            let text = format!(
                "the node's condition (opt-outs, and what `litctl budget`, `policy`, `release` and `resume` had set) \
                 is lost: {flaw}"
            );
            core.note(Note::warning(EventKind::Fault, text));
        }
        if let Some(recovered) = left.recovered {
            core.recover(recovered);
            core.recover_clocks();
        }
        core.expect_undone(left.undone);
        Ok(core)
    }

    /// Administrators' commands outlive a crash.
    fn tell_orders(&mut self) {
        if let Some(orders) = self.authority.orders().in_words() {
            let text =
                format!("in force again, because litd ended without being stopped: {orders}");
            self.note(Note::warning(EventKind::Command, text));
        }
    }

    /// A second reading of each device, at once: the shell has taken the first.
    fn look_again_at_all(&mut self) {
        self.read_all();
        self.judge_devices();
    }

    fn say_hello(&mut self) {
        let gpus = self.devices.gpus().count();
        let cpus = self.devices.cpus().count();
        let doing = match self.policy() {
            Policy::Observe => match self.set_budget() {
                Some(budget) => format!("measuring only, caps move to keep a budget of {budget}"),
                None => "measuring only, no cap is moved".to_owned(),
            },
            policy => match self.set_budget() {
                Some(budget) => format!("steering with {policy}, budget {budget}"),
                None => format!("steering with {policy} within the caps found"),
            },
        };
        let text = format!("started on {gpus} GPUs and {cpus} CPU sockets; {doing}");
        self.note(Note::info(EventKind::Daemon, text));
        self.say_all_untold();
    }

    /// The wall clock reads `unix_seconds` at `now`. Somebody may set the clock at any time, so the shell says
    /// this before each other event.
    pub fn wall_clock(&mut self, now: Nanos, unix_seconds: f64) {
        self.out.set_clock(now, unix_seconds);
    }

    /// An event has happened at `now`, which never goes back.
    pub fn handle(&mut self, now: Nanos, event: Event<'_>) {
        self.moves_on(now);
        match event {
            Event::Connected {
                session,
                peer,
                home,
            } => self.connected(session, peer, home),
            Event::Doubted { session, doubt } => self.doubted(session, doubt),
            Event::Frame { session, bytes } => self.frame(session, bytes),
            Event::NoFrame { session, why } => self.no_frame(session, why),
            Event::Disconnected { session } => self.disconnected(session),
            Event::Device {
                device: DeviceId(device),
                reply,
            } => self.replied(device, reply),
            Event::PredecessorHangs => self.predecessor_hangs(),
            Event::Unmanaged(addresses) => self.unmanaged_now(addresses),
            Event::KillSwitch(why) => self.kill(why),
            Event::Returned(device) => self.returned(device),
            Event::NodePower(reading) => self.node_read(reading),
            Event::Reloaded(config) => self.reload(*config),
            Event::ReloadRefused(why) => self.reload_refused(why),
            Event::Outside(what) => self.note(Note::warning(EventKind::Fault, what)),
            Event::Theirs { uid, home, what } => {
                let party = self.hooks.tenant(uid, home).party();
                self.note(Note::warning(EventKind::Fault, what).caused_by(Some(party)));
            }
            Event::Asked(what) => self.note(Note::info(EventKind::Command, what)),
            Event::Stop => {
                self.authority.forget_orders();
                self.forget_limits();
                self.stop();
            }
            Event::Time => {}
        }
        if self.rounds.begins(self.now()) {
            self.round();
        }
        self.settle_up();
    }

    /// Does what user `uid` asks for, who may. What follows from it is in [`Core::effects`].
    ///
    /// # Errors
    /// It can't be done; nothing has changed.
    pub fn command(&mut self, now: Nanos, uid: u32, command: Command) -> Result<Done, Problem> {
        self.moves_on(now);
        if self.authority.is_stopping() {
            return Err(problem(STOPPING));
        }
        let promise = self.promise(&command);
        let before = self.authority.decided();
        let message = self.obey(uid, command)?;
        self.settle_up();
        // The disk may have had room for the test entry, and none for all that is to be written.
        let unkept =
            promise.and_then(|promise| Some((self.why_unrecorded(promise.budget)?, promise)));
        let Some((why, promise)) = unkept else {
            return Ok(Done { message });
        };
        self.take_back_promise(before);
        self.settle_up();
        Err(self.refuse_promise(&promise, &why))
    }

    /// The client no longer waits for its override, which is given up so that it isn't set later, unseen.
    pub fn give_up_by_hand(&mut self, now: Nanos, name: &str) {
        self.moves_on(now);
        if self.gives_up_by_hand(name) {
            self.settle_up();
        }
    }

    /// Time moves on to `now`, unless it has been later before.
    pub(crate) fn moves_on(&mut self, now: Nanos) {
        self.out.at(now);
    }

    /// The effects so far, in order; the shell takes them after every call.
    pub fn effects(&mut self) -> Vec<Effect> {
        self.out.take()
    }

    /// When [`Event::Time`] is due at the latest.
    #[must_use]
    pub fn deadline(&self) -> Nanos {
        let retries = self
            .devices
            .iter()
            .filter_map(|(_, unit)| unit.answering.retry_at());
        let units = self.devices.iter();
        let slow = units.filter_map(|(device, unit)| self.overdue_at(device, unit));
        // Deadlines that have passed were dealt with, or the next round will try again.
        let clocks = self.devices.iter();
        let clocks = clocks.filter_map(|(_, unit)| unit.clocks.waits_until());
        let soonest = retries
            .chain(slow)
            .chain(clocks)
            .chain(self.targets.wait_until())
            .filter(|&at| at > self.now())
            .min();
        let round = self.rounds.next();
        soonest.map_or(round, |soonest| soonest.min(round))
    }

    /// How many GPUs the node has.
    #[must_use]
    pub fn gpus(&self) -> usize {
        self.devices.gpus().count()
    }

    /// The socket for metrics could not listen at its address, because of `why`: counted at each attempt, reported
    /// `at_first`. Another process that has the address may serve anything there.
    pub fn metrics_elsewhere(&mut self, address: &str, at_first: bool, why: &std::io::Error) {
        self.out.error("metrics", "");
        if at_first {
            let text = match why.kind() {
                std::io::ErrorKind::AddrInUse => format!(
                    "another process listens at {address}: metrics read there are not litd's. litd serves its own once \
                     that address is free: end that process (`ss -ltnp` names it), or change [metrics] listen"
                ),
                _ => format!("litd serves no metrics, because it can't listen at {address}: {why}"),
            };
            self.note(Note::warning(EventKind::Fault, text));
        }
    }

    /// Litd's metrics are at their address again.
    pub fn metrics_again(&mut self, address: &str) {
        let text = format!("litd serves its metrics at {address} from now on");
        self.note(Note::info(EventKind::Daemon, text));
    }

    /// A client of a socket was disconnected, because there are too many. Counted each time, logged at a limited
    /// rate.
    pub fn crowded_out(&mut self, uid: Option<u32>) {
        self.out.refuse_noted("busy", || {
            let who = client(uid);
            let text = format!("a client {who} was refused, because too many are connected");
            let party = uid.map(|uid| self.hooks.tenant(uid, None).party());
            Note::warning(EventKind::Daemon, text).caused_by(party)
        });
    }

    /// A client of a socket, in a scheduler's job as far as is known, was not answered, because too many answers wait
    /// to be read. Counted each time, logged at a limited rate.
    pub fn unanswered(&mut self, uid: Option<u32>, home: Option<&Home>) {
        self.out.refuse_noted("answers", || {
            let who = client(uid);
            let text = format!(
                "a client {who} got no answer: too many answers wait to be read, by it or by others"
            );
            let party = uid.map(|uid| self.hooks.tenant(uid, home).party());
            Note::warning(EventKind::Daemon, text).caused_by(party)
        });
    }

    /// Events after a number.
    #[must_use]
    pub fn events(&self, after: u64) -> Events {
        self.out.events(after)
    }

    /// The storage of all that has to outlive litd.
    pub fn store(&self) -> &S {
        self.writer.store()
    }

    /// Why the last write to the journal failed; `None` if it did not.
    #[must_use]
    pub fn journal_trouble(&self) -> Option<&str> {
        self.writer.journal_trouble()
    }

    /// Once a second: sensors, and all work that waits for time to pass.
    fn round(&mut self) {
        self.writer.crosses_out_anew();
        self.read_all();
        self.check_sessions();
        self.check_jobs();
        self.check_trials();
        self.check_holders();
        self.check_devices();
        self.check_failed();
        self.forget_late_of_closed();
        self.journal_overwritten();
        self.check_sockets();
        self.check_let_go();
        let is_waited_for = self.devices.waits_for_disk();
        self.writer.check_journal(is_waited_for, &mut self.out);
        self.writer.check_log(is_waited_for, &mut self.out);
        self.check_condition();
        self.condition.announced.forget_ended(self.now());
        self.check_settled();
        self.check_moves();
        self.check_needs();
        self.expire_doubts();
        self.check_lease();
        self.check_clocks();
        self.check_node();
        self.check_budget_kept();
        self.check_forgetful();
        self.give_up_stopping();
        self.out.push(Effect::Alive);
    }

    /// Brings targets, writes, reads and the journal in line with the current state.
    pub(crate) fn settle_up(&mut self) {
        self.retry_writes();
        self.tell_waits();
        self.settle_by_hand();
        self.follow_opt_outs();
        self.replan();
        // Each pass has one device fewer to wait for.
        while self.waits_no_longer() {
            self.replan();
        }
        if self.cancel_rises() {
            self.replan();
        }
        self.tell_baseline();
        self.write_caps();
        if self.cancel_unpaid_rises() {
            self.replan();
            self.write_caps();
        }
        let is_budget_set = self.set_budget().is_some();
        let (account, now) = (self.writer.account(), self.out.now());
        self.targets
            .look_at_waits(&self.devices, account, is_budget_set, now);
        self.begin_clocks();
        self.tidy_journal();
        // After the journal: what it no longer owes to a device opens that device no more.
        self.close_let_go();
        // Once litd has said that it stops no device is read any more: the final state has been reported.
        if !self.authority.stopping().is_over() {
            self.devices.begin_wanted(self.now(), &mut self.out);
        }
        self.keep_standings();
        self.finish_stopping();
    }

    /// Says that restored caps wait no longer.
    fn tell_waits(&mut self) {
        let (account, now) = (self.writer.account(), self.out.now());
        let told = self.targets.waited_in_vain(&self.devices, account, now);
        if let Some(text) = told {
            self.note(Note::warning(EventKind::Restore, text));
        }
    }

    /// Reads all devices except released ones, which a reading would open again.
    fn read_all(&mut self) {
        for device in 0..self.devices.iter().count() {
            if !self.may_open(device) {
                continue;
            }
            self.devices.want_read(device);
            if self.devices.get(device).is_some_and(Unit::is_to_tell) {
                self.devices.want_identity(device);
            }
        }
    }

    fn retry_writes(&mut self) {
        let now = self.now();
        for (device, unit) in self.devices.iter_mut() {
            if unit.answering.is_to_retry(now) {
                self.writer.account_mut().retry(device);
            }
        }
    }

    /// When the others stop waiting for a device that has another target and is busy, or whose readings contradict
    /// each other.
    fn overdue_at(&self, device: usize, unit: &Unit) -> Option<Nanos> {
        let suspect = unit.readings.unbelieved.since().filter(|_| unit.was_read());
        let busy = unit.answering.doing().map(|(_, since)| since);
        let since = suspect.or(busy)?;
        let account = self.writer.account();
        let waited_for = !account.is_settled(device) && !account.has_failed(device);
        waited_for.then_some(since + SLOW)
    }

    /// Stops waiting for overdue devices. Returns whether there were any.
    fn waits_no_longer(&mut self) -> bool {
        let units = self.devices.iter();
        let overdue = |(device, unit)| self.overdue_at(device, unit);
        let slow = units.filter(|&it| overdue(it).is_some_and(|at| at <= self.now()));
        let slow: Vec<usize> = slow.map(|(device, _)| device).collect();
        for &device in &slow {
            self.writer.account_mut().overdue(device);
        }
        !slow.is_empty()
    }

    /// Begins to stop: restores the caps found, or goes to the caps that the safe budget allows.
    pub(crate) fn stop(&mut self) {
        if !self.authority.stops(self.now()) {
            return;
        }
        let text = match self.config.caps.on_exit {
            OnExit::Restore => "stopping: caps are restored",
            OnExit::Hold => "stopping: caps go where the safe budget allows",
        };
        self.note(Note::info(EventKind::Daemon, text));
        self.save_condition();
        self.forget_by_hand();
        self.journal_what_may_come_back();
        self.devices.try_once_more();
        self.devices.try_refused(self.out.now());
        self.free_late_locks();
        for device in 0..self.devices.iter().count() {
            if self.may_open(device) {
                self.devices.want_read(device);
            }
        }
    }

    fn give_up_stopping(&mut self) {
        let stopping = self.authority.stopping();
        let until = stopping.until().filter(|_| stopping.is_under_way());
        if until.is_some_and(|until| self.now() >= until) {
            let held = self.held_on_exit();
            let caps = self.writer.entries().iter();
            let caps = caps.map(|entry| entry.address.as_str());
            let late = self.may_land_on_exit();
            let stays = |address: &&str| held.iter().chain(&late).any(|it| it == address);
            let caps = caps.filter(|address| !stays(address));
            let free_for_now = self.may_lock_on_exit();
            let clocks = self.writer.clocks().iter();
            let clocks = clocks.map(|it| &it.address);
            let clocks = clocks.filter(|it| !free_for_now.contains(it));
            let clocks = clocks.map(String::as_str);
            let left: BTreeSet<&str> = caps.chain(clocks).collect();
            let left: Vec<&str> = left.into_iter().collect();
            let left = match (left.is_empty(), self.above_on_exit()) {
                // Only late writes are left, and the journal has them.
                (true, None) if !late.is_empty() => return self.say_stopped(),
                (true, Some(above)) => above.to_string(),
                _ => format!(
                    "caps or clocks of {} could not be restored",
                    left.join(", ")
                ),
            };
            let text = format!(
                "stopping all the same: {left}; `litd restore` or the next start will try again"
            );
            self.note(Note::warning(EventKind::Restore, text));
            self.say_stopped();
        }
    }

    /// Stopped, once every cap is back.
    fn finish_stopping(&mut self) {
        if !self.authority.stopping().is_under_way() {
            return;
        }
        let busy = |(device, unit): (usize, &Unit)| {
            self.writer.account().is_writing(device) || self.writer.owes_undo(device, unit)
        };
        // While devices are still being read no cap has a target yet.
        let lowered =
            !self.authority.holds(&self.config) || !self.is_looking_round() && self.is_within();
        let undone = self.owed_entries() == 0 && self.locked_devices() == 0 && lowered;
        if undone && !self.devices.iter().any(busy) {
            self.say_stopped();
        }
    }

    fn say_stopped(&mut self) {
        self.authority.stop_ends();
        self.out.push(Effect::Stopped);
    }
}

/// The user of a socket's client, as far as known.
fn client(uid: Option<u32>) -> String {
    uid.map_or("of the metrics".to_owned(), |uid| format!("of user {uid}"))
}
