//! The plain values that targets are worked out from. No clock stands in them: what expires makes another view.

use litd_api::DeviceState;
use litd_policies::{CapVector, Limits};
use litd_units::Watts;

use super::why::Why;

/// All that [`plan`](super::plan) goes by.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View {
    /// What litd is about.
    pub doing: Doing,
    /// The budget of all GPUs together, where one was set.
    pub set_budget: Option<Watts>,
    /// What the devices here may hold of the GPUs' budget, set or found.
    pub managed_budget: Watts,
    /// Why no cap may rise but for what goes back, while none may.
    pub rises_stopped: Option<String>,
    /// Whether any job counts on CPU sockets' watts.
    pub sockets_lend: bool,
    /// All devices, in the node's order.
    pub devices: Vec<DeviceView>,
    /// What jobs ask for, in the order of their names.
    pub demands: Vec<Demand>,
}

/// What litd is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It has just started, or has just begun to stop: devices that answer are still being read.
    LookingRound,
    /// It gives back what was found, and moves no cap otherwise.
    GivingBack,
    /// It moves caps: for a policy, or within a budget that was set.
    Moving,
    /// It leaves, and shares out the safe budget that it leaves behind.
    LeavingBehind,
}

/// What the ledger of caps knows of a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Account {
    /// The cap that it holds, where that is known.
    pub held: Option<Watts>,
    /// The most that it may hold.
    pub most: Watts,
    /// What it takes up of the budget: also what it may draw, or come to hold late.
    pub counts: Watts,
    /// Whether its last write failed, or it takes too long.
    pub has_failed: bool,
    /// Whether a write is under way.
    pub is_writing: bool,
}

/// What is known of a device's range of caps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RangeView {
    /// Its driver has told it.
    Told,
    /// Its driver is asked anew: nothing is written meanwhile.
    Asked,
    /// Its driver does not tell: the device counts with the most that it could hold.
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

/// Whether a device holds what it is to be left with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LeftView {
    /// What it was read to hold since litd began to stop, if it has begun to, while nothing is written to it.
    pub held: Option<Watts>,
    /// What that is to be.
    pub goal: LeftGoal,
}

/// What a device is to be left with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LeftGoal {
    /// Its target, which is within the safe budget.
    Target,
    /// As near to what was found as its driver takes. One whose driver takes what was found leaves the journal
    /// instead.
    Nearest(Watts),
    /// Nothing: it leaves the journal.
    Nothing,
}

impl LeftView {
    /// Whether it does, if this is its target.
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

/// A device that was let go of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LetGoView {
    /// Its cap could not be given back, and is no longer tried.
    pub given_up: bool,
    /// Nothing of it is open.
    pub is_closed: bool,
    /// litd is off, and what the device holds is litd's to keep within the safe budget.
    pub is_held: bool,
    /// Whether it stands in the undo journal.
    pub is_journaled: bool,
    /// Whether it may hold a cap that was answered as not set by hand.
    pub owes_undo: bool,
    /// Whether litd may have locked its clocks.
    pub may_be_locked: bool,
    /// Whether it was read since to hold what was found, and nothing else is under way to it.
    pub is_back: bool,
    /// What it holds.
    pub held: Option<Watts>,
    /// Whether it holds what it is to be left with.
    pub left: LeftView,
}

impl LetGoView {
    /// Whether it may be opened, if this is its target: only to give something back.
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

    /// Whether its cap is back, if this is its target.
    pub fn is_back_for_now(self, target: Option<Watts>) -> bool {
        self.is_back && (target.is_none() || target == self.held)
    }
}

/// A device that has failed and is not let go of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FailedView {
    /// The most that it has held since, while there is a budget.
    pub held: Option<Watts>,
    /// Whether it was not read for so long that it may have been reset, and has not been trusted since.
    pub was_unread: bool,
    /// Whether it answers again and takes writes.
    pub obeys_again: bool,
}

/// One device.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DeviceView {
    pub is_gpu: bool,
    /// Whose its cap is.
    pub standing: DeviceState,
    /// Whether a late write of litd's has taken the place of what somebody else had set: that goes back.
    pub is_overwritten: bool,
    /// Whether it is known what it came with and what its cap may be.
    pub is_judged: bool,
    /// Whether it is no use to wait for that.
    pub is_beyond_judging: bool,
    pub range: RangeView,
    /// What litd may set.
    pub limits: Limits,
    /// The least that planned clocks leave it, within those.
    pub planned_floor: Watts,
    /// What goes back to it when litd ends.
    pub back: Option<Watts>,
    /// What an administrator asks for by hand, and is not answered yet.
    pub by_hand: Option<Watts>,
    /// Whether it was read since litd started, and since litd began to stop.
    pub is_read: bool,
    /// Whether it was reset and its driver has yet to tell what its cap is now.
    pub is_reset: bool,
    /// Whether it has not answered for too long.
    pub is_overdue: bool,
    /// Whether it stands in the undo journal.
    pub is_journaled: bool,
    /// Whether it may hold a cap that was answered as not set by hand.
    pub owes_undo: bool,
    pub let_go: Option<LetGoView>,
    pub failed: Option<FailedView>,
    pub account: Account,
    /// What it counts with while it is not moved: the most that it may hold; one whose cap is somebody else's,
    /// the limit in force where its driver tells that.
    pub counts_with: Watts,
    /// The most that it may come to hold where a budget was set: by a write that was called failed, or got no answer,
    /// and may still be done; or because its driver sets its default cap once litd has closed it.
    pub late: Option<Watts>,
}

impl DeviceView {
    /// The cap that it is to have while no loop moves it.
    pub fn base(&self) -> Option<Watts> {
        self.by_hand.or(self.back)
    }

    /// Why it is to have that.
    pub fn why_base(&self) -> Why {
        match self.by_hand {
            Some(_) => Why::ByHand,
            None => Why::Found,
        }
    }

    /// The cap that it was found with; where that could not be read, the most that it may hold: it is not
    /// touched, and the others need not make room for it.
    pub fn came_with(&self) -> Watts {
        self.base().unwrap_or(self.account.most)
    }

    /// What it takes of the budget where it is found at its floor or below.
    pub fn at_floor(&self, cap: Watts) -> Watts {
        self.range.unjudged().unwrap_or(cap)
    }

    pub fn is_ours(&self) -> bool {
        self.standing == DeviceState::Ours && self.is_judged
    }

    /// Whether it holds what somebody else has set, and that stays.
    pub fn is_theirs(&self) -> bool {
        self.standing == DeviceState::Foreign && !self.is_overwritten
    }

    /// Whether it was let go of only because litd is off, and is to stay within the safe budget.
    pub fn is_held_off(&self) -> bool {
        self.let_go.is_some_and(|it| it.is_held)
    }

    /// Whether litd may move its cap.
    pub fn may_move(&self) -> bool {
        self.is_ours() || self.is_held_off() && self.is_judged
    }

    /// Whether it may be opened, if this is its target.
    pub fn may_open(&self, target: Option<Watts>) -> bool {
        self.let_go.is_none_or(|it| it.may_open(target))
    }

    /// Whether litd has something to give back to it.
    pub fn is_owed(&self) -> bool {
        self.is_journaled || self.owes_undo
    }

    /// Whether this is the cap that an administrator asks for.
    pub fn is_by_hand(&self, cap: Watts) -> bool {
        self.by_hand.is_some_and(|asked| asked.is_same_cap(cap))
    }

    /// Whether its cap would rise to this; where its cap is not known, above the most that it may hold.
    pub fn would_rise(&self, target: Option<Watts>) -> bool {
        let held = self.account.held.unwrap_or(self.account.most);
        target > Some(held)
    }

    /// Whether it has failed and is lowered all the same for a budget that was set: it may take writes again, and
    /// nobody else keeps the budget.
    pub fn is_enforced_on(&self, view: &View) -> bool {
        self.is_kept_down(view) && self.failed.is_some_and(|it| it.obeys_again)
    }

    /// Whether it has failed while there is a budget: until it is litd's again its cap does not rise.
    pub fn is_kept_down(&self, view: &View) -> bool {
        view.set_budget.is_some() && self.failed.is_some() && self.is_gpu
    }

    /// What it is to hold, if its cap may be moved and it takes writes.
    pub fn movable(&self, view: &View, target: Option<Watts>) -> Option<Watts> {
        let takes = self.range.is_told() && !self.account.has_failed;
        let target = match self.is_enforced_on(view) {
            // It is aimed at no more than it is to get.
            true => self.account.held.map(|held| target.unwrap_or(held)),
            false => target.filter(|_| self.may_move()),
        };
        target.filter(|_| takes)
    }

    /// What the others have to leave to it while it is moved to this, by this plan's first part.
    pub fn moved_to(&self, target: Watts) -> Watts {
        match self.late {
            Some(late) => late.max(target),
            None => self.fixed_at(Some(target)),
        }
    }

    /// What the others have to leave to it while it is not moved: also for the cap that goes back to one that is
    /// let go of.
    pub fn fixed_at(&self, target: Option<Watts>) -> Watts {
        let back = target.filter(|_| self.let_go.is_some() || self.is_overwritten);
        let most = [back, self.late];
        most.into_iter()
            .flatten()
            .fold(self.counts_with, Watts::max)
    }

    /// What it may hold where litd gives back what was found.
    pub fn without_us(&self) -> Watts {
        let found = self.came_with();
        let Account { held, counts, .. } = self.account;
        // Not litd's to move, and nothing of litd's to undo: what it holds is others' doing.
        // An entry of a foreign cap is about late writes, or could not be taken out of the journal yet.
        let owed = self.is_owed();
        let is_stuck = self.standing == DeviceState::Faulty || self.is_beyond_judging;
        let holds = match self.standing {
            DeviceState::Foreign => counts,
            // Nobody else's undo waits for one that can't be judged or does not obey, unless it is
            // about to go down.
            _ if is_stuck && !(owed && self.is_falling(found)) => counts,
            _ if owed => found,
            // It was reset, unless litd is just writing it.
            DeviceState::Ours => held.filter(|_| !self.account.is_writing).unwrap_or(found),
            _ => counts,
        };
        found.max(holds)
    }

    /// Whether it holds more than is to go back, and takes writes.
    fn is_falling(&self, back: Watts) -> bool {
        let writable = !self.is_overdue && self.range != RangeView::Asked;
        let is_above = self.account.held.is_some_and(|held| held > back);
        writable && is_above && !self.account.has_failed
    }
}

/// What one job asks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Demand {
    /// Its name.
    pub job: String,
    /// Whether a trial, and not its loop, says what its devices hold.
    pub is_trial: bool,
    /// Its GPUs, and the CPU sockets that its loop moves.
    pub devices: Vec<usize>,
    /// Its share of the GPUs' budget.
    pub share: Watts,
    /// Caps that go back for a trial's sake.
    pub back: Vec<(usize, Watts)>,
    /// Caps of its loop, or of a trial in its stead.
    pub caps: Vec<(usize, Watts)>,
}

impl Demand {
    /// What a loop asks for.
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
