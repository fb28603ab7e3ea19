//! Carries out the steps of examinations: one operation of one device at a time, each write on record before it is
//! made, and the end of the run on a signal, at the time limit, at a kill switch, or where a process begins to use a GPU.

use std::path::PathBuf;
use std::time::Duration;

use litd_core::journal::Found as Baseline;
use litd_core::{DeviceId, Operation, Records, Reply, Target};
use litd_power::DeviceKind;
use litd_qualify::report::{Device, Write, Written};
use litd_qualify::{Ending, Exam, Facts, Pace, Step, Stop};
use litd_units::{Nanos, Seconds, Watts};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Args, duration, nanos, pace};
use crate::clock::Clock;
use crate::config::Config;
use crate::devices::{Devices, Found, Report};
use crate::kill_switch;
use crate::logging;
use crate::signals::Signals;
use crate::state::FileStore;

/// How often is looked whether a process has begun to use the GPU that is examined, and whether a kill switch was thrown.
const LOOK: Nanos = Nanos(250_000_000);

/// The most that a device is waited for, however patient litd is with it later.
const LONGEST: Duration = Duration::from_secs(10);

/// The reasons that the audit log has for all writes.
const LOWERS: &str = "qualify: lowers the cap a little, to see whether the device does it";
const RAISES: &str = "qualify: sets the cap found again";

/// A run over all devices.
pub(super) struct Runner {
    devices: Devices,
    answers: UnboundedReceiver<Report>,
    kinds: Vec<DeviceKind>,
    /// Devices that have not answered: their threads hang, and nothing more is asked of them.
    hang: Vec<bool>,
    addresses: Vec<String>,
    patience: Duration,
    pace: Option<Pace>,
    load: Vec<u32>,
    /// Files that end the run once one of them is there (`rollout.kill_switches`).
    kill_switches: Vec<PathBuf>,
    records: Option<Records<FileStore>>,
    signals: Option<Signals>,
    begun: Nanos,
    until: Nanos,
    stopped: Option<String>,
    writes: Vec<Write>,
}

impl Runner {
    /// A run that only asks.
    pub fn reading(found: Found, config: &Config, load: Vec<u32>) -> Self {
        let now = Clock::Kernel.now();
        let patience = Duration::from_secs_f64(config.core.caps.answer_seconds);
        let of = |it: &litd_core::Device| it.identity.kind;
        Self {
            kinds: found.inventory.iter().map(of).collect(),
            hang: vec![false; found.inventory.len()],
            addresses: found.addresses().map(str::to_owned).collect(),
            devices: found.devices,
            answers: found.answers,
            patience: patience.min(LONGEST),
            pace: None,
            load,
            kill_switches: config.core.rollout.kill_switches.clone(),
            records: None,
            signals: None,
            begun: now,
            until: Nanos(i64::MAX),
            stopped: None,
            writes: Vec::new(),
        }
    }

    /// A run that writes.
    pub fn writing(
        found: Found,
        config: &Config,
        args: &Args,
        records: Records<FileStore>,
        signals: Signals,
    ) -> Self {
        let mut runner = Self::reading(found, config, args.load_pid.clone());
        runner.pace = Some(pace(config, args));
        runner.until = runner.begun + nanos(args.time_limit);
        (runner.records, runner.signals) = (Some(records), Some(signals));
        runner
    }

    /// The users of GPUs, a line for each GPU that is used.
    pub async fn uses(&mut self) -> Vec<String> {
        let mut uses = Vec::new();
        for index in 0..self.kinds.len() {
            match self.holders(index).await {
                Some(Ok(pids)) if !pids.is_empty() => uses.push(self.used(index, &pids)),
                // Such a device is left unwritten when its turn comes.
                _ => {}
            }
        }
        uses
    }

    /// Why a device may not be written: processes use it, or who uses it can't be told.
    pub async fn use_of(&mut self, index: usize) -> Option<String> {
        match self.holders(index).await {
            Some(Ok(pids)) if pids.is_empty() => None,
            Some(Ok(pids)) => Some(self.used(index, &pids)),
            Some(Err(why)) => Some(format!("the processes that use it are not known: {why}")),
            None => Some(
                "the processes that use it are not known: its driver does not answer".to_owned(),
            ),
        }
    }

    fn used(&self, index: usize, pids: &[u32]) -> String {
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let address = self.addresses.get(index).map_or("", String::as_str);
        format!(
            "{address} is used by process {}: drain the node (`scontrol update nodename=... state=drain`), or name \
             your own load with --load-pid",
            pids.join(", ")
        )
    }

    /// The processes that use a device, without the load's own; nothing if its driver does not answer.
    async fn holders(&mut self, index: usize) -> Option<Result<Vec<u32>, String>> {
        if self.kinds.get(index) != Some(&DeviceKind::Gpu) {
            return Some(Ok(Vec::new()));
        }
        let Reply::Holders(told) = self.ask(index, Operation::Holders).await? else {
            return None;
        };
        let own = std::process::id();
        let is_job = |pid: &u32| *pid != own && !self.load.contains(pid);
        Some(match told {
            Ok(holders) => Ok(holders.iter().map(|it| it.pid).filter(is_job).collect()),
            Err(error) => Err(error.to_string()),
        })
    }

    /// Has a device do something and waits for its reply; nothing if that does not come in time.
    async fn ask(&mut self, index: usize, operation: Operation) -> Option<Reply> {
        if self.hang.get(index).copied().unwrap_or(true) {
            return None;
        }
        self.devices.submit(DeviceId(index), operation);
        let deadline = Instant::now() + self.patience;
        loop {
            tokio::select! {
                report = self.answers.recv() => {
                    let (device, reply) = report?;
                    if self.devices.answered(device) && device == DeviceId(index) {
                        return Some(reply);
                    }
                }
                // A signal is obeyed once the device has answered: what it does then is known.
                why = signalled(&mut self.signals) => self.stop(why),
                () = sleep_until(deadline) => {
                    if let Some(hang) = self.hang.get_mut(index) {
                        *hang = true;
                    }
                    return None;
                }
            }
        }
    }

    async fn rest(&mut self, time: Nanos) {
        tokio::select! {
            () = sleep(duration(time)) => {}
            why = signalled(&mut self.signals) => self.stop(why),
        }
    }

    fn stop(&mut self, why: impl Into<String>) {
        self.stopped.get_or_insert_with(|| why.into());
    }

    /// Why the run has to end, if it has.
    /// Stops the run if a kill switch was thrown since it began.
    fn heed_kill_switches(&mut self) {
        if let Some(thrown) = kill_switch::thrown(&self.kill_switches) {
            self.stop(format!("{thrown}: a kill switch"));
        }
    }

    fn ended(&mut self) -> Option<String> {
        if Clock::Kernel.now() >= self.until {
            self.stop("the time limit is over (--time-limit)");
        }
        self.stopped.clone()
    }

    /// Examines a device from its first reading to the cap found.
    pub async fn examine(&mut self, index: usize, facts: Facts, device: &mut Device) {
        let Some(pace) = self.pace else {
            return;
        };
        let target = Target {
            device: index,
            name: device.part.name.clone(),
            found: Baseline {
                address: facts.identity.address.clone(),
                serial: facts.identity.serial.clone(),
                cap: device.found.unwrap_or_default(),
            },
        };
        log::info!("{}: {} is examined", target.name, target.found.address);
        let mut turn = Turn {
            exam: Exam::begin(facts, pace, Clock::Kernel.now()),
            held: target.found.cap,
            target,
            looked: Nanos::ZERO,
            told: 0,
            is_stopped: false,
            lock_is_done: false,
        };
        let ending = loop {
            self.look(&mut turn).await;
            let step = turn.exam.next(Clock::Kernel.now());
            self.expect_late(&mut turn);
            match step {
                Step::Rest(time) => self.rest(time).await,
                Step::End(ending) => break ending,
                Step::Do(operation) => self.perform(&mut turn, operation).await,
            }
            self.expect_late(&mut turn);
            self.log();
        };
        let (checks, measured) = turn.exam.outcome();
        device.checks.extend_from_slice(checks);
        device.measured = measured;
        self.settle(&turn, ending);
        if let Ending::Foreign(held) = ending {
            let address = &turn.target.found.address;
            self.stop(format!(
                "{address} holds {held}, which litd never set: while another program sets caps here, or devices are \
                 reset, nothing can be shown"
            ));
        }
        self.log();
    }

    /// Stops an examination where the run has to end, or where a process has begun to use the device.
    async fn look(&mut self, turn: &mut Turn) {
        if turn.is_stopped {
            return;
        }
        let now = Clock::Kernel.now();
        let is_first = turn.looked == Nanos::ZERO;
        if self.ended().is_none() && (is_first || now - turn.looked >= LOOK) {
            turn.looked = now;
            self.heed_kill_switches();
            let index = turn.target.device;
            match self.holders(index).await {
                Some(Ok(pids)) if pids.is_empty() => {}
                Some(Ok(pids)) => {
                    let used = self.used(index, &pids);
                    self.stop(format!("a process has begun to use a GPU: {used}"));
                }
                Some(Err(why)) => {
                    let why = format!("the processes that use it are not known: {why}");
                    turn.exam.stop(&Stop::Device(why));
                    turn.is_stopped = true;
                }
                None => {
                    turn.exam.silent(nanos(self.patience.as_secs_f64()));
                    turn.is_stopped = true;
                }
            }
        }
        if let Some(why) = self.ended()
            && !turn.is_stopped
        {
            turn.exam.stop(&Stop::Run(why));
            turn.is_stopped = true;
        }
    }

    /// Puts a write on record, makes it, and records what came of it.
    async fn perform(&mut self, turn: &mut Turn, operation: Operation) {
        let writes = match operation {
            Operation::Set(cap) => {
                let used = match cap.is_same_cap(turn.target.found.cap) {
                    true => None,
                    false => {
                        self.heed_kill_switches();
                        self.use_of(turn.target.device).await
                    }
                };
                if self.hang.get(turn.target.device) == Some(&true) {
                    turn.exam.silent(nanos(self.patience.as_secs_f64()));
                    return;
                }
                if let Some(used) = used {
                    self.stop(format!("a process has begun to use a GPU: {used}"));
                }
                let lowers = !cap.is_same_cap(turn.target.found.cap);
                if lowers && self.ended().is_some() {
                    // The next look tells the examination.
                    return;
                }
                Some(Written::Cap(cap))
            }
            Operation::Clocks(Some(range)) => Some(Written::Clock(range.highest)),
            Operation::Clocks(None) => Some(Written::FreeClocks),
            _ => None,
        };
        if let Err(why) = self.record(turn, operation) {
            turn.exam.stop(&Stop::Device(why));
            turn.is_stopped = true;
            return;
        }
        let asked = Clock::Kernel.now();
        let reply = self.ask(turn.target.device, operation).await;
        let now = Clock::Kernel.now();
        if let Some(set) = writes {
            self.writes
                .push(self.entry(turn, set, asked, now, reply.as_ref()));
        }
        match &reply {
            Some(reply) => {
                self.note_reply(turn, operation, now, reply);
                turn.exam.answered(asked, now, reply);
            }
            None => turn.exam.silent(now - asked),
        }
    }

    /// Writes down what is about to be written.
    fn record(&mut self, turn: &Turn, operation: Operation) -> Result<(), String> {
        let Some(records) = &mut self.records else {
            return Err("the undo journal is not open, so nothing may be written".to_owned());
        };
        records.at(Clock::Kernel.now());
        match operation {
            Operation::Set(cap) if cap.is_same_cap(turn.target.found.cap) => {
                records.undoes(&turn.target, turn.held, RAISES);
                Ok(())
            }
            Operation::Set(cap) => records.intend(&turn.target, turn.held, cap, LOWERS),
            Operation::Clocks(Some(_)) => records.lock_clocks(&turn.target),
            _ => Ok(()),
        }
    }

    fn note_reply(&mut self, turn: &mut Turn, operation: Operation, now: Nanos, reply: &Reply) {
        let Some(records) = &mut self.records else {
            return;
        };
        records.at(now);
        match (operation, reply) {
            (Operation::Set(cap), Reply::Set(outcome)) => {
                records.ended(&turn.target, outcome);
                if let Ok(held) = *outcome {
                    turn.held = held;
                    let known = [cap, turn.target.found.cap];
                    if known.iter().all(|it| !it.is_same_cap(held)) {
                        records.rounded(&turn.target, held);
                    }
                }
            }
            (Operation::Clocks(Some(_)), Reply::Clocks(outcome)) => {
                turn.lock_is_done = outcome.is_ok();
                records.lock_ended(&turn.target, outcome.is_ok());
                if outcome.as_ref().is_err_and(litd_power::PowerError::refuses) {
                    turn.lock_is_done = true;
                    self.freed(turn);
                }
            }
            (Operation::Clocks(None), Reply::Clocks(Ok(()))) => self.freed(turn),
            (_, Reply::Read(Ok(reading))) => turn.held = reading.cap,
            _ => {}
        }
    }

    /// The clocks are free, and no lock can come late: one that failed keeps the device in the journal.
    fn freed(&mut self, turn: &Turn) {
        if let Some(records) = self.records.as_mut().filter(|_| turn.lock_is_done)
            && let Err(why) = records.freed_clocks(&turn.target)
        {
            log::warn!("{}: {why}", turn.target.found.address);
        }
    }

    /// Caps that were asked for and not read may come late: the journal says so from now on.
    fn expect_late(&mut self, turn: &mut Turn) {
        let late = turn.exam.may_land();
        for cap in late.iter().skip(turn.told) {
            if let Some(records) = &mut self.records {
                records.at(Clock::Kernel.now());
                records.may_land(&turn.target, *cap);
            }
        }
        turn.told = late.len();
    }

    /// Removes a device from the journal that is as it was found. Every other one is left to the daemon's undo.
    fn settle(&mut self, turn: &Turn, ending: Ending) {
        let is_back = matches!(ending, Ending::Untouched | Ending::Returned);
        if !is_back || !turn.exam.may_land().is_empty() {
            return;
        }
        if let Some(records) = &mut self.records
            && let Err(why) = records.cross_out(&turn.target)
        {
            log::warn!("{}: {why}", turn.target.found.address);
        }
    }

    fn entry(
        &self,
        turn: &Turn,
        set: Written,
        asked: Nanos,
        now: Nanos,
        reply: Option<&Reply>,
    ) -> Write {
        let (held, error) = match reply {
            Some(Reply::Set(Ok(held))) => (Some(*held), None),
            Some(Reply::Set(Err(error))) => (None, Some(error.to_string())),
            Some(Reply::Clocks(Err(error))) => (None, Some(error.to_string())),
            _ => (None, None),
        };
        let seconds = |time: Nanos| Seconds(time.as_secs_f64());
        Write {
            device: turn.target.name.clone(),
            at: seconds(asked - self.begun),
            set,
            took: reply.map(|_| seconds(now - asked)),
            held,
            error,
        }
    }

    fn log(&mut self) {
        let events = self.records.as_mut().map(Records::take_events);
        for event in events.unwrap_or_default() {
            logging::event(&event);
        }
    }

    /// All writes, why the run was stopped, and whether the journal names any device.
    pub fn end(mut self) -> (Vec<Write>, Option<String>, bool) {
        self.log();
        let owes = self.records.is_some_and(|it| !it.named().is_empty());
        (self.writes, self.stopped, owes)
    }
}

/// A device's turn.
struct Turn {
    exam: Exam,
    target: Target,
    /// The cap that was read last.
    held: Watts,
    /// When its processes were last asked for.
    looked: Nanos,
    /// How many late caps are on record.
    told: usize,
    is_stopped: bool,
    /// Whether no lock of its clocks can come late.
    lock_is_done: bool,
}

/// A signal that ends the run.
async fn signalled(signals: &mut Option<Signals>) -> &'static str {
    match signals {
        Some(signals) => signals.ends().await,
        None => std::future::pending().await,
    }
}
