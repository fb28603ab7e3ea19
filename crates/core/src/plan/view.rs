//! The plain values that targets are computed from. They contain no clock: when something expires the view
//! changes.

use litd_policies::{CapVector, Limits};
use litd_units::Watts;

use super::why::Why;

/// The input of [`plan`](super::plan).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View {
    /// litd's present activity.
    pub doing: Doing,
    /// The budget of all GPUs together, where one was set.
    pub set_budget: Option<Watts>,
    /// The part of the GPUs' budget, set or found, for managed devices.
    pub managed_budget: Watts,
    /// Why no cap may rise, except to restore one; `None` if caps may rise.
    pub rises_stopped: Option<String>,
    /// Whether devices whose caps are restored still wait for others to be lowered.
    pub undo_waits: bool,
    /// Whether any job counts on CPU sockets' watts.
    pub sockets_lend: bool,
    /// All devices, in the node's order.
    pub devices: Vec<DeviceView>,
    /// Demands of all jobs, in the order of their names.
    pub demands: Vec<Demand>,
    /// All jobs, whether they are steered or not.
    pub jobs: Vec<JobView>,
}

/// litd's present activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    /// litd has just started, or has just begun to stop: devices that answer are still being read.
    LookingRound,
    /// litd restores caps found, and moves no cap otherwise.
    GivingBack,
    /// litd moves caps, for a policy or within a budget.
    Moving,
    /// litd leaves, and shares out the safe budget that it leaves behind.
    LeavingBehind,
}

/// A device in the account of writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Account {
    /// The cap that it holds, where known.
    pub held: Option<Watts>,
    /// The most that it may hold.
    pub most: Watts,
    /// The watts that it takes of the budget, which include what it may draw, or come to hold late.
    pub counts: Watts,
    /// Whether its last write failed, or it takes too long.
    pub has_failed: bool,
    /// Whether a write is under way.
    pub is_writing: bool,
}

/// The state of a device's range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RangeView {
    /// The driver has told the range.
    Told,
    /// The driver is asked anew: nothing is written meanwhile.
    Asked,
    /// The driver does not tell: the device counts with the most that it could hold.
    Untold(Watts),
}

impl RangeView {
    pub fn is_told(self) -> bool {
        self == Self::Told
    }

    fn unjudged(self) -> Option<Watts> {
        match self {
            Self::Untold(most) => Some(most),
            Self::Told | Self::Asked => None,
        }
    }
}

/// Whether a device holds the cap that it is to be left with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LeftView {
    /// The cap by a reading since litd began to stop, if it has, while nothing is written to it.
    pub held: Option<Watts>,
    /// The cap that it is to be left with.
    pub goal: LeftGoal,
}

/// The cap that a device is to be left with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LeftGoal {
    /// The target, which is within the safe budget.
    Target,
    /// The cap nearest to the one found that its driver takes. If the driver takes the cap found itself, the
    /// device leaves the journal instead.
    Nearest(Watts),
    /// No cap: the device leaves the journal.
    Nothing,
}

impl LeftView {
    /// Whether it holds that cap, if this is its target.
    pub fn is_left(self, target: Option<Watts>) -> bool {
        let goal = match self.goal {
            LeftGoal::Target => target,
            LeftGoal::Nearest(back) => Some(back),
            LeftGoal::Nothing => None,
        };
        let both = self.held.zip(goal);
        both.is_some_and(|(held, goal)| held.is_same_cap(goal))
    }
}

/// A released device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LetGoView {
    /// Whether its cap could not be restored and litd has stopped trying.
    pub given_up: bool,
    /// Whether all its handles are closed.
    pub is_closed: bool,
    /// Whether litd is off and has to keep it within the safe budget.
    pub is_held: bool,
    /// Whether it is in the undo journal.
    pub is_journaled: bool,
    /// Whether it may hold a failed override.
    pub owes_undo: bool,
    /// Whether litd may have locked its clocks.
    pub may_be_locked: bool,
    /// Whether a reading since the release shows its cap found, with no write under way.
    pub is_back: bool,
    /// The cap that it holds.
    pub held: Option<Watts>,
    /// Whether it holds the cap that it is to be left with.
    pub left: LeftView,
}

impl LetGoView {
    /// Whether it may be opened, if this is its target: only to restore something.
    pub fn may_open(self, target: Option<Watts>) -> bool {
        let is_left = self.left.is_left(target);
        let owes_cap = match self.is_held {
            true => !is_left,
            false => {
                let done = is_left || self.is_back_for_now(target);
                self.is_journaled && !done || self.owes_undo
            }
        };
        !self.given_up && (owes_cap || self.may_be_locked)
    }

    /// Whether its cap is restored, if this is its target.
    pub fn is_back_for_now(self, target: Option<Watts>) -> bool {
        self.is_back && (target.is_none() || target == self.held)
    }
}

/// A failed device that is not released.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FailedView {
    /// The highest cap that it has held since, while there is a budget.
    pub held: Option<Watts>,
    /// Whether it was not read for so long that it may have been reset, and has not been trusted since.
    pub was_unread: bool,
    /// Whether it answers again and takes writes.
    pub obeys_again: bool,
}

/// Whose a device's cap is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Owner {
    /// litd's, as far as the device can be judged.
    Ours,
    /// Somebody else's: the cap stays.
    Foreign,
    /// Somebody else's, and a late write of litd's has replaced it: it has to be restored.
    Overwritten,
    /// Nobody's: the device does not do what it is told.
    Faulty(FailedView),
    /// Its users': litd has released the device.
    Released(LetGoView),
}

/// What litd knows of a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct KnownView {
    /// Whether its cap found and its range are known.
    pub is_judged: bool,
    /// Whether it is no use to wait for those.
    pub is_beyond_judging: bool,
    pub range: RangeView,
    /// Whether it was read since litd started, and since litd began to stop.
    pub is_read: bool,
    /// Whether it was reset and its driver has yet to tell its present default.
    pub is_reset: bool,
    /// Whether it has not answered for too long.
    pub is_overdue: bool,
}

impl KnownView {
    /// Whether it can be told to hold a cap: its driver is not being asked for its range, and answers.
    fn is_writable(&self) -> bool {
        !self.is_overdue && self.range != RangeView::Asked
    }
}

/// What there is to undo on a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct UndoView {
    /// The cap to restore when litd ends.
    pub back: Option<Watts>,
    /// The override that was asked for and has not been reported yet.
    pub by_hand: Option<Watts>,
    /// Whether the device is in the undo journal.
    pub is_journaled: bool,
    /// Whether it may hold a failed override.
    pub owes_undo: bool,
}

impl UndoView {
    /// The cap that the device is to have while no loop moves it.
    pub fn base(&self) -> Option<Watts> {
        self.by_hand.or(self.back)
    }

    /// The reason for that cap.
    pub fn why_base(&self) -> Why {
        match self.by_hand {
            Some(_) => Why::ByHand,
            None => Why::Found,
        }
    }

    /// Whether litd has something to restore.
    pub fn is_owed(&self) -> bool {
        self.is_journaled || self.owes_undo
    }

    /// Whether this is the administrator's override.
    pub fn is_by_hand(&self, cap: Watts) -> bool {
        self.by_hand.is_some_and(|asked| asked.is_same_cap(cap))
    }
}

/// A device, as the plan sees it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DeviceView {
    pub is_gpu: bool,
    pub owner: Owner,
    pub known: KnownView,
    /// Limits of the caps that litd may set.
    pub limits: Limits,
    /// The lowest cap within those that planned clocks allow: no more than the GPU may hold now.
    pub planned_floor: Watts,
    pub undo: UndoView,
    pub account: Account,
    /// The watts with which it counts while it is not moved: the most that it may hold; for a foreign cap, the
    /// limit in force where its driver tells it.
    pub counts_with: Watts,
    /// The highest cap that the device may still come to hold where a budget was set: by a write that failed or got no
    /// answer, or because its driver sets its default cap once litd has closed it.
    pub late: Option<Watts>,
}

impl DeviceView {
    /// The cap found; where that could not be read, the most that the device may hold: it is not touched, and the
    /// others need not make room for it.
    pub fn came_with(&self) -> Watts {
        self.undo.base().unwrap_or(self.account.most)
    }

    /// The watts that it takes of the budget as a CPU socket.
    pub fn part(&self) -> Watts {
        let Account { counts, most, .. } = self.account;
        let UndoView { by_hand, back, .. } = self.undo;
        socket_part(by_hand, back, counts, most)
    }

    /// The watts that it takes of the budget where its cap found is at the floor or below.
    pub fn at_floor(&self, cap: Watts) -> Watts {
        self.known.range.unjudged().unwrap_or(cap)
    }

    /// The watts that it takes of a node without a budget: its own part or, while it isn't litd's to move, what it may
    /// hold if that is more. Others' caps are neither lowered for that, nor do they wait for it.
    pub fn without_budget(&self) -> Watts {
        let part = match self.is_gpu {
            true => self.came_with(),
            false => self.part(),
        };
        match self.is_ours() {
            true => part,
            false => part.max(self.account.counts),
        }
    }

    /// Whether litd has moved it and can't now: what it holds beyond its part is litd's own doing.
    pub fn is_stuck(&self) -> bool {
        let is_litds = matches!(self.owner, Owner::Ours | Owner::Faulty(_));
        is_litds && !self.is_ours() && self.undo.is_owed()
    }

    pub fn is_ours(&self) -> bool {
        self.owner == Owner::Ours && self.known.is_judged
    }

    /// Whether it holds a foreign cap that stays.
    pub fn is_theirs(&self) -> bool {
        self.owner == Owner::Foreign
    }

    /// The record of its failure, if it is faulty.
    pub fn failed(&self) -> Option<FailedView> {
        match self.owner {
            Owner::Faulty(failed) => Some(failed),
            _ => None,
        }
    }

    /// The record of its release, if it is released.
    pub fn let_go(&self) -> Option<LetGoView> {
        match self.owner {
            Owner::Released(let_go) => Some(let_go),
            _ => None,
        }
    }

    /// Whether its cap is restored although it is not litd's: of a released device, or in place of a late write.
    pub fn is_given_back(&self) -> bool {
        matches!(self.owner, Owner::Overwritten | Owner::Released(_))
    }

    /// Whether it was released only because litd is off, and is to stay within the safe budget.
    pub fn is_held_off(&self) -> bool {
        self.let_go().is_some_and(|it| it.is_held)
    }

    /// Whether litd may move its cap.
    pub fn may_move(&self) -> bool {
        self.is_ours() || self.is_held_off() && self.known.is_judged
    }

    /// Whether it may be opened, if this is its target.
    pub fn may_open(&self, target: Option<Watts>) -> bool {
        self.let_go().is_none_or(|it| it.may_open(target))
    }

    /// Whether its cap would rise to this; where its cap is not known, above the most that it may hold.
    pub fn would_rise(&self, target: Option<Watts>) -> bool {
        let held = self.account.held.unwrap_or(self.account.most);
        target > Some(held)
    }

    /// Whether it has failed and is lowered all the same for a budget: it may take writes again, and nobody else
    /// keeps the budget.
    pub fn is_enforced_on(&self, view: &View) -> bool {
        self.is_kept_down(view) && self.failed().is_some_and(|it| it.obeys_again)
    }

    /// Whether it has failed while there is a budget: until litd steers it again its cap does not rise.
    pub fn is_kept_down(&self, view: &View) -> bool {
        view.set_budget.is_some() && self.failed().is_some() && self.is_gpu
    }

    /// The device's target, if its cap may be moved and it takes writes.
    pub fn movable(&self, view: &View, target: Option<Watts>) -> Option<Watts> {
        let takes = self.known.range.is_told() && !self.account.has_failed;
        let target = match self.is_enforced_on(view) {
            // A target never exceeds what the device is meant to get.
            true => self.account.held.map(|held| target.unwrap_or(held)),
            false => target.filter(|_| self.may_move()),
        };
        target.filter(|_| takes)
    }

    /// The watts that the others have to leave to it while it is moved to this target of the plan's first part.
    pub fn moved_to(&self, target: Watts) -> Watts {
        match self.late {
            Some(late) => late.max(target),
            None => self.fixed_at(Some(target)),
        }
    }

    /// The watts that the others have to leave to it while it is not moved, also for restoring the cap of a
    /// released device.
    pub fn fixed_at(&self, target: Option<Watts>) -> Watts {
        let back = target.filter(|_| self.is_given_back());
        let most = [back, self.late];
        most.into_iter()
            .flatten()
            .fold(self.counts_with, Watts::max)
    }

    /// The most that it may hold where litd restores caps found.
    pub fn without_us(&self) -> Watts {
        let found = self.came_with();
        let Account { held, counts, .. } = self.account;
        // A foreign cap: litd neither moves nor restores it, and counts what it holds. An entry of a foreign cap
        // is about late writes, or could not be removed from the journal yet.
        let owed = self.undo.is_owed();
        let is_stuck = self.failed().is_some() || self.known.is_beyond_judging;
        let holds = match self.owner {
            Owner::Foreign | Owner::Overwritten => counts,
            // No undo of other devices waits for one that can't be judged or does not obey, unless it is about to
            // be lowered.
            _ if is_stuck && !(owed && self.is_falling(found)) => counts,
            _ if owed => found,
            // The device was reset, unless litd is just writing it.
            Owner::Ours => held.filter(|_| !self.account.is_writing).unwrap_or(found),
            _ => counts,
        };
        found.max(holds)
    }

    /// Whether it holds more than the cap to restore, and takes writes.
    fn is_falling(&self, back: Watts) -> bool {
        let writable = self.known.is_writable();
        let is_above = self.account.held.is_some_and(|held| held > back);
        writable && is_above && !self.account.has_failed
    }
}

/// The watts of a CPU socket: what was `asked` by hand, else its cap found, else the most that it may hold. While an
/// override lowers it, it `counts` with more until that is done, and the GPUs need not make room for the difference.
pub(crate) fn socket_part(
    asked: Option<Watts>,
    back: Option<Watts>,
    counts: Watts,
    most: Watts,
) -> Watts {
    match (asked, back) {
        (Some(asked), Some(back)) => asked.max(back.min(counts)),
        (one, other) => one.or(other).unwrap_or(most),
    }
}

/// The demands of one job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Demand {
    /// The job's name.
    pub job: String,
    /// Whether a trial, not the job's loop, decides what its devices hold.
    pub is_trial: bool,
    /// The job's GPUs, and the CPU sockets that its loop moves.
    pub devices: Vec<usize>,
    /// The job's share of the GPUs' budget.
    pub share: Watts,
    /// Caps found that are restored for a trial.
    pub back: Vec<(usize, Watts)>,
    /// Caps of its loop, or of a trial instead.
    pub caps: Vec<(usize, Watts)>,
}

impl Demand {
    /// The demands of a loop.
    pub fn steered(job: &str, devices: Vec<usize>, share: Watts, caps: &CapVector) -> Self {
        let caps = devices.iter().copied().zip(caps.to_watts()).collect();
        Self {
            job: job.to_owned(),
            is_trial: false,
            devices,
            share,
            back: Vec::new(),
            caps,
        }
    }
}

/// A job, as the plan sees it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobView {
    /// The job's name.
    pub name: String,
    /// Whose job it is: all jobs of a user, or of a pod, have one number.
    pub owner: usize,
    /// The job's GPUs.
    pub gpus: Vec<usize>,
    /// The most that those may hold together: the job's share of the GPUs' budget, and what its CPU sockets lend.
    pub most: Watts,
}
