//! Things go wrong, and administrators do things.

use litd_api::{Command, Done, Mode, Problem};
use litd_core::config::OnExit;
use litd_core::event::Peer;
use litd_core::{Event, Home, SessionId};
use litd_policies::Policy;
use litd_power::{Holder, Sharing, Throttle};
use litd_proto::{FromHook, Tick};
use litd_units::{Nanos, Watts};

use crate::fault::Fault;
use crate::hardware::{MILLI, SECOND, micro};
use crate::hooks::{Flaw, Wrong};
use crate::jobs::{Put, holder};
use crate::setup;
use crate::world::{Ev, World};

impl Flaw {
    pub fn fault(self) -> Fault {
        match self {
            Self::OldIteration => Fault::OldIteration,
            Self::UnknownName => Fault::UnknownName,
            Self::Unaligned => Fault::Unaligned,
            Self::Garbage => Fault::Garbage,
            Self::Truncated => Fault::Truncated,
            Self::SecondHello => Fault::SecondHello,
        }
    }
}

impl World {
    pub fn inject(&mut self, fault: Fault) {
        self.note(|| format!("FAULT: {}", fault.text()));
        match fault {
            Fault::RefusedWrite
            | Fault::LandAfterAll
            | Fault::LockAfterAll
            | Fault::Lie
            | Fault::Overshoot
            | Fault::Block
            | Fault::Gone
            | Fault::Unsettled
            | Fault::OddSensor
            | Fault::FlakyReads
            | Fault::NoRange
            | Fault::NoHolders
            | Fault::Hot
            | Fault::Brake => self.mood(fault),
            Fault::Reset | Fault::Foreign | Fault::ForeignIdle => self.foreign_hand(fault),
            Fault::Rival => self.rival(),
            Fault::Partition => self.partition(),
            Fault::Aimed
            | Fault::HandInside
            | Fault::ReloadAny
            | Fault::OddRange
            | Fault::Shrunk
            | Fault::Replaced
            | Fault::AnothersTold => self.provoke(fault),
            Fault::UnwellAtStart
            | Fault::Unreadable
            | Fault::LateJoin
            | Fault::Clocks
            | Fault::ClocksLowered => {}
            Fault::Crash
            | Fault::CrashInRecovery
            | Fault::CrashTwice
            | Fault::CrashBeforeWrite
            | Fault::TornAppend
            | Fault::LateLanding
            | Fault::Reboot
            | Fault::PowerCut
            | Fault::ReadOnly
            | Fault::BitRot => self.death(fault),
            Fault::DiskFull | Fault::DiskStuck | Fault::AuditFull => self.disk_fails(fault),
            Fault::Garbage => self.flaw(Flaw::Garbage),
            Fault::Truncated => self.flaw(Flaw::Truncated),
            Fault::OldIteration => self.flaw(Flaw::OldIteration),
            Fault::SecondHello => self.flaw(Flaw::SecondHello),
            Fault::UnknownName => self.flaw(Flaw::UnknownName),
            Fault::Unaligned => self.flaw(Flaw::Unaligned),
            Fault::Flood
            | Fault::NeverComplete
            | Fault::Reconnect
            | Fault::RankCrash
            | Fault::Leave
            | Fault::JobCrash
            | Fault::StaleJob => self.hook(fault),
            Fault::UnknownGpu
            | Fault::TakenGpu
            | Fault::OtherUser
            | Fault::NotHolder
            | Fault::DuplicateRank
            | Fault::HandedOn
            | Fault::NoHello => self.stranger(fault),
            Fault::BudgetLowered
            | Fault::BudgetRaised
            | Fault::BudgetInvalid
            | Fault::BudgetCleared
            | Fault::PolicyChanged
            | Fault::Restore
            | Fault::Resume
            | Fault::Forget => self.administrator(fault),
            Fault::TrialBegun | Fault::TrialStopped => self.try_out(fault),
            Fault::ReloadAdjusting | Fault::ReloadLaw | Fault::ObserveMoved => self.reload(fault),
            Fault::Returned => self.device_returns(),
            Fault::KillSwitch => self.kill_switch(),
            Fault::Lease => self.lease(),
            Fault::JobBegins | Fault::JobEnds | Fault::OptOut => self.scheduler(fault),
            Fault::CapByHand => self.set_by_hand(),
            Fault::NodePower | Fault::NodeAlarm => self.node_power(fault),
            Fault::LoweredStuck => self.lowered_stuck(),
            Fault::ClockJump => self.clock_jump(),
            Fault::StopMoving | Fault::StopBlocked => self.stop_badly(fault),
        }
    }

    fn mood(&mut self, fault: Fault) {
        let device = self.rng.below(self.hw.len());
        let lasts = self.rng.pick(&[SECOND, 3 * SECOND, 12 * SECOND]);
        let until = self.now + lasts;
        let hw = &mut self.hw[device];
        match fault {
            Fault::RefusedWrite | Fault::LandAfterAll | Fault::LockAfterAll => {
                hw.moods.refuses = until
            }
            Fault::Lie => hw.moods.lies = until,
            Fault::Overshoot => hw.moods.overshoots = until,
            Fault::Block => hw.moods.block = self.rng.between(1, 31) * SECOND,
            Fault::Gone => {
                hw.gone = true;
                self.after(lasts, Ev::Back(device));
                self.seen.mark(fault);
            }
            Fault::Unsettled => {
                hw.begin_unsettled(until);
                self.seen.mark(fault);
            }
            Fault::OddSensor => {
                hw.moods.odd = until;
                self.seen.mark(fault);
            }
            Fault::FlakyReads => hw.moods.flaky = until,
            Fault::NoRange => {
                hw.moods.no_range = until;
                // The change takes effect at a reset only.
                self.reset(device);
            }
            Fault::NoHolders => {
                hw.moods.no_holders = until;
                if let Some(session) = self.any_session() {
                    self.hangup_now(session);
                }
            }
            _ => {
                hw.moods.hot = until;
                let kinds = [Throttle::Heat, Throttle::Memory, Throttle::Regulator];
                hw.moods.throttle = Some(match fault {
                    Fault::Brake => Throttle::PowerBrake,
                    _ => self.rng.pick(&kinds),
                });
                self.seen.mark(fault);
            }
        }
        if !matches!(fault, Fault::Block | Fault::Hot | Fault::Brake) {
            self.trouble(device, lasts);
        }
    }

    /// A foreign change, and another a few seconds later.
    fn rival(&mut self) {
        let before = self.ledger.hands;
        self.foreign_hand(Fault::Foreign);
        if self.ledger.hands > before {
            let soon = self.rng.between(4, 15) * SECOND;
            self.after(soon, Ev::Fault(Fault::Foreign));
            self.seen.mark(Fault::Rival);
        }
    }

    fn partition(&mut self) {
        let gpus = self.hw.iter().filter(|hw| hw.is_gpu()).count();
        let device = self.rng.below(gpus);
        let how = [Sharing::Partitioned, Sharing::Mig, Sharing::Whole];
        self.hw[device].identity.sharing = self.rng.pick(&how);
        self.reset(device);
        self.seen.mark(Fault::Partition);
    }

    pub fn reset(&mut self, device: usize) {
        let cap = micro(self.hw[device].range.default);
        self.foreign(device, cap);
        self.seen.mark(Fault::Reset);
    }

    fn foreign_hand(&mut self, fault: Fault) {
        let moved = |device: &usize| self.hw[*device].touched;
        let all: Vec<usize> = (0..self.hw.len()).collect();
        let (moved, idle): (Vec<usize>, Vec<usize>) = all.iter().partition(|it| moved(it));
        let from = match fault {
            Fault::Reset => &all,
            Fault::Foreign => &moved,
            _ => &idle,
        };
        if from.is_empty() {
            return;
        }
        let device = self.rng.pick(from);
        if fault == Fault::Reset {
            return self.reset(device);
        }
        let range = self.hw[device].range;
        let (low, high) = (micro(range.lowest).max(60_000_000), micro(range.highest));
        let unit = micro(range.resolution).max(1);
        let cap = self.rng.between(low, high + 1) / unit * unit;
        self.foreign(device, cap);
        self.seen.mark(fault);
    }

    fn death(&mut self, fault: Fault) {
        if self.core.is_none() {
            return;
        }
        match fault {
            Fault::ReadOnly if !self.leaves_something() => {
                if self.is_bound() && self.stop_sent.is_none() {
                    self.take_budgets_away();
                }
                return self.after(2 * SECOND, Ev::Fault(fault));
            }
            Fault::TornAppend | Fault::CrashBeforeWrite => {
                return self.disk.with(|disk| {
                    (disk.deadly, disk.torn, disk.landed) = (true, false, false);
                });
            }
            Fault::LateLanding => {
                let landing = |hw: &crate::hardware::Hw| {
                    hw.op
                        .is_some_and(|op| matches!(op.operation, litd_core::Operation::Set(_)))
                };
                if !self.hw.iter().any(landing) {
                    // The next write to come will do; a budget makes one.
                    self.administrator(Fault::BudgetLowered);
                }
                return self.crash(true);
            }
            _ => self.crash(false),
        }
        self.seen.mark(Fault::Crash);
        match fault {
            Fault::CrashInRecovery | Fault::CrashTwice => {
                let soon = self.rng.between(0, 4000) * MILLI;
                self.after(soon, Ev::Fault(Fault::Crash));
            }
            Fault::Reboot => self.reboot(false),
            Fault::PowerCut => self.reboot(true),
            Fault::BitRot => self.bit_rot(),
            Fault::ReadOnly => self.read_only(),
            _ => {}
        }
        let recovering = self.disk.with(|disk| !disk.journal.is_empty());
        let again = self.now - self.started;
        if recovering && again < SECOND && self.epoch > 1 {
            self.seen.mark(Fault::CrashInRecovery);
        }
        if again < 5 * SECOND && self.epoch > 1 {
            self.seen.mark(Fault::CrashTwice);
        }
    }

    fn reboot(&mut self, power_cut: bool) {
        self.boot += 1;
        // A device that was released is litd's again.
        self.hw.iter_mut().for_each(|hw| hw.let_go_for_good = false);
        self.recall_spared(true);
        self.seen.mark(Fault::Reboot);
        // A kernel that is started from a running one (kexec) need not reset the devices: their caps
        // stay, and what the kernel tells of itself can't say so.
        let resets = power_cut || !self.fates.chance(0.3);
        for device in 0..self.hw.len() {
            self.hw[device].clocks = None;
            if resets {
                let cap = micro(self.hw[device].range.default);
                self.foreign(device, cap);
            }
        }
        let mut rng = self.rng.clone();
        let cut = self.disk.with(|disk| {
            let tail = disk.journal.len().saturating_sub(disk.durable);
            let cut = if power_cut { rng.below(tail + 1) } else { 0 };
            let left = disk.journal.len() - cut;
            disk.journal_mut().truncate(left);
            cut
        });
        self.rng = rng;
        if cut > 0 {
            self.disk.with(|disk| disk.meddled = true);
            self.seen.mark(Fault::PowerCut);
        }
    }

    fn bit_rot(&mut self) {
        let mut rng = self.rng.clone();
        let rotten = self.disk.with(|disk| {
            let length = disk.journal.len();
            // The first line names the version, and a daemon that can't read it must not start.
            let line = disk.journal.iter().position(|&byte| byte == b'\n');
            let first = line.map_or(length, |at| at + 1);
            if first >= length {
                return false;
            }
            disk.journal_mut()[first + rng.below(length - first)] ^= 1 << rng.below(8);
            true
        });
        self.rng = rng;
        if rotten {
            self.ledger.rotten = true;
            self.seen.mark(Fault::BitRot);
        }
    }

    /// The next daemon can read what this one left, and write nothing down.
    fn read_only(&mut self) {
        self.disk
            .with(|disk| (disk.read_only, disk.audit_full) = (true, true));
        self.after(24 * SECOND, Ev::DiskBack);
        let epoch = self.epoch + 1;
        self.after(8 * SECOND, Ev::OnlyRead { epoch });
    }

    /// Whether a predecessor leaves anything that is to go back whatever is asked for: a budget
    /// keeps caps lowered, for what was found may be more.
    fn leaves_something(&self) -> bool {
        let moved = |hw: &crate::hardware::Hw| !hw.natural.contains(&hw.cap);
        self.hw.iter().any(moved) && !self.is_bound()
    }

    /// No budget keeps caps lowered from now on.
    fn take_budgets_away(&mut self) {
        let mut config = self.config.clone();
        (config.caps.budget, config.caps.safe_budget) = (None, None);
        config.caps.on_exit = OnExit::Restore;
        config.node.budget = None;
        self.command(Command::SetBudget { watts: None }, false);
        self.take_in(config);
    }

    fn is_bound(&self) -> bool {
        self.budget_set().is_some() || self.config.node.budget.is_some()
    }

    /// A daemon that could write nothing since it started has given back what it found left.
    pub fn check_only_read(&mut self, epoch: u32) {
        // `litd restore` may have been first.
        if !self.disk.with(|disk| disk.read_only) || self.epoch < epoch {
            return;
        }
        let Some(core) = self.core.as_ref().filter(|_| self.stop_sent.is_none()) else {
            return self.after(2 * SECOND, Ev::OnlyRead { epoch });
        };
        let early = self.now < self.started + 5 * SECOND;
        let sure = self.ledger.jumped < self.started && !self.ledger.rotten;
        // A device that does not answer is waited for until it is known not to.
        let waits = self.hw.iter().any(|hw| !hw.absent && !hw.is_well(self.now));
        if early {
            return self.after(2 * SECOND, Ev::OnlyRead { epoch });
        }
        if !sure || self.is_bound() {
            return;
        }
        let well = |hw: &crate::hardware::Hw| {
            hw.trouble_until < self.started && !hw.misbehaves(self.now) && !hw.let_go
        };
        let told = core.status().devices;
        let left = (0..self.hw.len()).find(|&device| {
            let hw = &self.hw[device];
            // A cap that was set by hand meanwhile is the cap found from then on.
            let told = told.get(hw.place).filter(|_| !hw.absent);
            let by_hand = told
                .and_then(|told| told.found)
                .is_some_and(|it| micro(it) == hw.cap);
            // A loop that can't write starts from what was found, in whole driver units.
            let unit = micro(hw.range.resolution).max(1);
            let back = hw
                .natural
                .iter()
                .any(|it| (it - unit + 1..=*it).contains(&hw.cap));
            // A configured ceiling below what was found holds for a GPU that a job is steered on.
            let ceiling = self.config.caps.gpu_ceiling.filter(|_| hw.is_gpu());
            let capped = ceiling.is_some_and(|it| micro(it) == hw.cap) && self.may_steer();
            told.is_some() && well(hw) && !back && !by_hand && !capped
        });
        if waits && left.is_some() {
            return self.after(2 * SECOND, Ev::OnlyRead { epoch });
        }
        self.seen.mark(Fault::ReadOnly);
        if let Some(device) = left {
            let text = format!("device {device} holds {} µW still", self.hw[device].cap);
            self.broke("17 undo only reads", text);
        }
    }

    fn disk_fails(&mut self, fault: Fault) {
        let lasts = self.rng.between(1, 15) * SECOND;
        self.disk.with(|disk| match fault {
            Fault::DiskFull => disk.full = true,
            Fault::AuditFull => disk.audit_full = true,
            _ => disk.stuck = true,
        });
        self.after(lasts, Ev::DiskBack);
    }

    fn any_session(&mut self) -> Option<u64> {
        let sessions: Vec<u64> = self.hooks.sessions.keys().copied().collect();
        (!sessions.is_empty()).then(|| self.rng.pick(&sessions))
    }

    fn hangup_now(&mut self, session: u64) {
        self.reconnect_later(session);
        self.tell(Event::Disconnected {
            session: SessionId(session),
        });
    }

    /// A rank that is attached.
    fn attached(&mut self) -> Option<usize> {
        let all = 0..self.hooks.ranks.len();
        let attached: Vec<usize> = all
            .filter(|&rank| self.hooks.ranks[rank].welcomed)
            .collect();
        (!attached.is_empty()).then(|| self.rng.pick(&attached))
    }

    fn flaw(&mut self, flaw: Flaw) {
        if let Some(rank) = self.attached() {
            self.hooks.ranks[rank].flaw = Some(flaw);
        }
    }

    fn hook(&mut self, fault: Fault) {
        let Some(rank) = self.attached() else { return };
        let Some(session) = self.hooks.ranks[rank].session else {
            return;
        };
        let job = self.hooks.ranks[rank].job;
        self.seen.mark(fault);
        match fault {
            Fault::Flood => self.flood(session),
            Fault::NeverComplete => self.hooks.ranks[rank].mute = true,
            Fault::Reconnect => self.hangup_now(session),
            Fault::RankCrash => {
                let pid = self.hooks.pid();
                let it = &mut self.hooks.ranks[rank];
                let old = std::mem::replace(&mut it.pid, pid);
                let device = it.device;
                self.hw[device]
                    .holders
                    .retain(|(holder, _)| holder.pid != old);
                let whose = self.hooks.jobs[job].holder(pid);
                self.hw[device].hold(whose);
                let back = self.rng.between(0, 50) as u64;
                let iteration = &mut self.hooks.jobs[job].iteration;
                *iteration = iteration.saturating_sub(back);
                self.hangup_now(session);
            }
            Fault::Leave => self.leave(rank),
            Fault::JobCrash => {
                for rank in self.hooks.jobs[job].ranks.clone() {
                    self.hooks.ranks[rank].left = true;
                    if let Some(session) = self.hooks.ranks[rank].session {
                        self.hangup_now(session);
                    }
                }
                self.hooks.jobs[job].ended = true;
            }
            _ => {
                let until = self.now + self.rng.between(6, 30) * SECOND;
                self.hooks.jobs[job].silent_until = until;
            }
        }
    }

    fn flood(&mut self, session: u64) {
        let bytes = FromHook::Tick(Tick {
            iteration: 1,
            duration: Nanos(1),
            profiled: false,
            overhead: Nanos::ZERO,
        })
        .encode();
        let count = if self.rng.chance(0.05) { 10_500 } else { 400 };
        for _ in 0..count {
            let session = SessionId(session);
            self.tell(Event::Frame {
                session,
                bytes: &bytes,
            });
        }
    }

    /// A hook that is not to be let in.
    fn stranger(&mut self, fault: Fault) {
        let anyone = self.hooks.ranks.len();
        if anyone == 0 || self.core.is_none() {
            return;
        }
        let rank = match fault {
            Fault::NotHolder | Fault::UnknownGpu | Fault::NoHello => self.rng.below(anyone),
            _ => match self.attached() {
                Some(rank) => rank,
                None => return,
            },
        };
        let it = self.hooks.ranks[rank].clone();
        let uid = self.hooks.jobs[it.job].uid;
        let pid = self.hooks.pid();
        let mut hello = self.hooks.hello(rank, &self.hw);
        let mut peer = Peer { pid, uid };
        let mut wrong = Wrong::WhileAttached { rank };
        let own = self.hooks.jobs[it.job].holder(pid);
        let mut home = Home::of(&own.cgroup);
        let gpus = self.hw.iter().filter(|hw| hw.is_gpu()).count();
        let other = self.rng.below(gpus);
        let patience = self.rng.between(1, 15) * SECOND;
        let until = self.now + patience;
        match fault {
            Fault::NotHolder | Fault::NoHello => wrong = Wrong::Always,
            Fault::UnknownGpu => {
                wrong = Wrong::Always;
                hello.gpu = "0000:ff:00.0".to_owned();
            }
            Fault::TakenGpu => {
                self.hw[it.device].hold_until(own, until);
                hello.job = "another".to_owned();
            }
            Fault::OtherUser => {
                // In a pod it is a user of the same number, in another pod.
                let is_pod = home.as_ref().is_some_and(Home::is_pod);
                let other = match is_pod {
                    true => holder(pid, uid, Some(&Put::in_pod(9))),
                    false => Holder { uid: 999, ..own },
                };
                peer.uid = other.uid;
                home = Home::of(&other.cgroup);
                self.hw[it.device].hold_until(other, until);
            }
            Fault::HandedOn => {
                // The connection is held by another process than the one whose id it tells, which is the rank's by
                // now.
                wrong = Wrong::Always;
                peer.pid = it.pid;
            }
            _ => {
                if other == it.device {
                    return;
                }
                self.hw[other].hold_until(own, until);
                hello.gpu.clone_from(&self.hw[other].identity.address);
            }
        }
        self.seen.mark(fault);
        let session = self.hooks.session(None, Some(wrong));
        if fault == Fault::HandedOn {
            self.hooks.handed_on.insert(session);
        }
        let says = (fault != Fault::NoHello).then(|| FromHook::Hello(hello).encode());
        self.meet(session, peer, home, says);
        let epoch = self.epoch;
        self.after(patience, Ev::Hangup { session, epoch });
    }

    fn administrator(&mut self, fault: Fault) {
        let Some(status) = self.status() else { return };
        let gpus = status
            .devices
            .iter()
            .filter(|it| it.name.starts_with("gpu"));
        let floors: Watts = gpus.map(|it| it.floor).sum();
        let lowest = self.least_kept(&status);
        let now = status.gpus.budget;
        let share = self.rng.unit();
        let device = self.rng.below(self.hw.len());
        let device = match self.rng.chance(0.7) {
            true => Some(self.hw[device].identity.address.clone()),
            false => None,
        };
        let command = match fault {
            Fault::BudgetLowered => {
                let watts = Some(floors + (now - floors).max(Watts::ZERO) * share);
                Command::SetBudget { watts }
            }
            Fault::BudgetRaised => {
                let watts = Some((now + Watts(200.0) * share).max(floors));
                Command::SetBudget { watts }
            }
            Fault::BudgetInvalid => {
                let bad = [f64::NAN, -1.0, f64::INFINITY, 0.0, lowest.0 * 0.99];
                let watts = Some(Watts(self.rng.pick(&bad)));
                Command::SetBudget { watts }
            }
            Fault::BudgetCleared => Command::SetBudget { watts: None },
            Fault::PolicyChanged => Command::SetPolicy {
                policy: setup::policy(&mut self.rng).name().to_owned(),
            },
            Fault::Restore => Command::Release { device },
            Fault::Resume => Command::Resume { device },
            _ => Command::Forget,
        };
        if fault == Fault::Restore && self.rng.chance(0.7) {
            let later = self.rng.between(1, 9) * SECOND;
            self.after(later, Ev::Fault(Fault::Resume));
        }
        self.seen.mark(fault);
        self.command(command, fault == Fault::BudgetInvalid);
    }

    /// A trial begins or ends; nothing is drawn from the stream that all else comes from.
    fn try_out(&mut self, fault: Fault) {
        let moment = u64::try_from(self.now).unwrap_or_default();
        let command = match fault {
            Fault::TrialBegun => Command::StartTrial {
                job: None,
                quads: Some(2 + (moment % 2) as u32),
                same: moment % 7 < 2,
                seed: Some(moment),
            },
            _ => Command::StopTrial,
        };
        self.seen.mark(fault);
        self.command(command, false);
    }

    /// A device refuses writes, or hangs in one, or in a read before it. Marked once the ledger
    /// could see what came of it.
    fn lowered_stuck(&mut self) {
        let steers = self.core.is_some() && self.policy() != Policy::Observe;
        let well = |hw: &crate::hardware::Hw| hw.absent || hw.is_well(self.now);
        let young = self.now < self.started + 5 * SECOND;
        if !steers || young || !self.hw.iter().all(well) {
            return self.after(SECOND / 2, Ev::Fault(Fault::LoweredStuck));
        }
        let device = self.rng.below(self.hw.len());
        let lasts = self.rng.between(3, 12) * SECOND;
        let delay = match self.rng.below(3) {
            0 => {
                self.hw[device].moods.refuses = self.now + lasts;
                self.trouble(device, lasts);
                0
            }
            1 => {
                self.hw[device].moods.block = lasts;
                0
            }
            _ => {
                self.hw[device].moods.block = lasts;
                self.rng.between(0, 1500) * MILLI
            }
        };
        self.after(delay, Ev::Fault(Fault::BudgetLowered));
    }

    /// Asks the daemon for something; what it wants done then is to be done by [`World::act`].
    pub fn ask(&mut self, command: &Command) -> Option<Result<Done, Problem>> {
        let clock = self.clock();
        self.note(|| format!("command {command:?}"));
        self.said.take();
        let core = self.core.as_mut()?;
        Some(core.command(clock, 0, command.clone()))
    }

    pub fn command(&mut self, command: Command, invalid: bool) {
        let before = self.limit();
        let stopping = self.stop_sent.is_some();
        let Some(outcome) = self.ask(&command) else {
            return;
        };
        if invalid && outcome.is_ok() {
            self.broke("budget", format!("{command:?} was accepted"));
        }
        if outcome.is_ok() && !stopping {
            self.obeyed(&command, before);
        }
        self.act();
    }

    fn reload(&mut self, fault: Fault) {
        if self.core.is_none() {
            return;
        }
        let mut config = self.config.clone();
        let moved = self.hw.iter().any(|hw| hw.natural.last() != Some(&hw.cap));
        match fault {
            Fault::ReloadLaw => setup::knobs(&mut self.rng, &mut config),
            Fault::ObserveMoved => {
                config.mode = Mode::Observe;
                if moved {
                    self.seen.mark(fault);
                }
                let later = self.rng.between(2, 15) * SECOND;
                self.after(later, Ev::Fault(Fault::ReloadAdjusting));
            }
            _ => {
                config.mode = Mode::Steer;
                config.policy = self.rng.pick(&Policy::STEERING);
                config.caps.gpu_floor = Watts(self.rng.pick(&[150.0, 200.0, 250.0]));
                config.caps.gpu_ceiling = self.rng.chance(0.3).then_some(Watts(480.0));
                config.caps.budget = match self.rng.chance(0.5) {
                    true => Some(setup::budget(&mut self.rng, &self.hw, &config)),
                    false => None,
                };
            }
        }
        if fault == Fault::ReloadLaw || (fault == Fault::ReloadAdjusting && moved) {
            self.seen.mark(fault);
        }
        self.take_in(config);
    }

    fn clock_jump(&mut self) {
        self.ledger.nothing_lowered();
        self.skew += self.rng.pick(&[3, 30, 700, 100_000]) * SECOND;
        self.seen.mark(Fault::ClockJump);
        self.ledger.jumped = self.now;
        // No write of a dead daemon survives that the node sleeps.
        self.drop_late_landings();
        // To the daemon all devices and hooks were silent for so long.
        for device in 0..self.hw.len() {
            if self.hw[device].op.is_some() {
                self.trouble(device, SECOND);
            }
        }
    }

    fn stop_badly(&mut self, fault: Fault) {
        if self.core.is_none() || self.stop_sent.is_some() {
            return;
        }
        let device = self.rng.below(self.hw.len());
        if fault == Fault::StopBlocked {
            let block = self.rng.between(2, 31) * SECOND;
            self.hw[device].moods.block = block;
            self.seen.mark(fault);
        } else {
            self.administrator(Fault::BudgetLowered);
        }
        let moving = |hw: &crate::hardware::Hw| {
            hw.op
                .is_some_and(|op| matches!(op.operation, litd_core::Operation::Set(_)))
        };
        if self.hw.iter().any(moving) {
            self.seen.mark(Fault::StopMoving);
        }
        self.stop();
    }
}
