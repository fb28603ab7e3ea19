//! The account of what every device of a node may hold, and the order of writes that follows from it.
//!
//! Writes take time and may fail, hang or lie. So a device counts with the *most* it may hold:
//! the cap read back last, or the one being written, whichever is higher; or what it may still
//! draw, where its power has yet to be seen to follow a lowered cap. Decreases go out at once; an increase goes out only when no decrease is open and the sum, with it, is within the
//! budget. The sum of what the hardware holds is then within the budget after every single
//! write, whatever becomes of the others.

use litd_units::Watts;

use crate::envelope::{CapVector, Microwatts, microwatts, watts};

/// No device holds more: sums of it are no overflow.
const MOST: Microwatts = Microwatts::MAX / 1024;

/// When a device may rise to its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rises {
    /// Once the budget has room: what is undone waits for no write that may never land.
    #[default]
    InBudget,
    /// Once the budget has room, and no failed write can take that any more.
    Surely,
    /// At any time: its part of the budget is its own, and others hold more than theirs and can't be lowered.
    Freely,
    /// The same, also while others are yet to be lowered: nothing bounds their sum, and they may never be.
    Regardless,
}

/// A device's line in the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Line {
    /// The cap read back last; `None` while it is not known.
    held: Option<Microwatts>,
    /// The most that it may hold now.
    most: Microwatts,
    /// The cap that the device has to hold; `None`: it is left alone.
    target: Option<Microwatts>,
    rises: Rises,
    /// The write under way.
    writing: Option<Microwatts>,
    /// Whether that write is a decrease.
    falling: bool,
    /// The cap that a predecessor's late write may leave at any moment.
    late: Option<Microwatts>,
    /// The cap that a failed write may still leave for a while, although a later reading showed less.
    straggling: Option<Microwatts>,
    /// The power that it may still draw, although its cap is lower: measured power has not followed yet.
    drawn: Option<Microwatts>,
    /// The most that it could hold, while nobody can judge what it holds.
    unjudged: Option<Microwatts>,
    /// A cap that was read and that nobody believes yet: no other cap rises into the difference.
    suspect: Option<Microwatts>,
    /// Whether its last write failed, or it is overdue: it is not written until [`Actuator::retry`].
    failed: bool,
}

impl Line {
    /// The most that it counts with, should it come to hold `cap`.
    fn with(&self, cap: Microwatts) -> Microwatts {
        let most = self.late.max(self.drawn).max(self.unjudged);
        most.map_or(cap, |most| most.max(cap))
    }

    /// The most that it may hold now.
    fn most(&self) -> Microwatts {
        self.unjudged
            .map_or(self.most, |unjudged| unjudged.max(self.most))
    }

    fn hold(&mut self, cap: Microwatts) {
        self.held = Some(cap);
        self.most = cap;
        self.suspect = None;
        // The device may draw no more than it may hold again.
        self.drawn = self.drawn.filter(|&drawn| drawn > cap);
    }

    /// The most that it may hold by all that was read, believed or not.
    fn seen(&self) -> Microwatts {
        self.with(self.suspect.map_or(self.most, |it| it.max(self.most)))
    }

    /// Whether it is being lowered.
    fn is_falling(&self) -> bool {
        self.writing.is_some() && self.falling && !self.failed
    }

    fn wants(&self) -> Option<Microwatts> {
        let idle = self.writing.is_none() && !self.failed;
        self.target
            .filter(|&target| idle && self.held != Some(target))
    }

    /// Where it is to go, if that cannot make the sum larger. Of a device whose cap is not known
    /// nobody can say that.
    fn descent(&self) -> Option<Microwatts> {
        let known = self.held.is_some();
        self.wants().filter(|&target| known && target <= self.most)
    }
}

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Written {
    /// The device holds what it was told.
    Confirmed,
    /// Reported as done, but the device holds another cap.
    Ignored {
        /// The requested cap.
        wanted: Watts,
        /// The cap that it holds.
        held: Watts,
    },
    /// The write failed; the device holds the old cap, or the new one.
    Failed,
    /// No write was under way: the answer is to nothing that was asked.
    Stray,
}

/// The account of a whole node. Devices are counted in the node's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actuator {
    lines: Vec<Line>,
    budget: Microwatts,
}

impl Actuator {
    /// An account of devices with the cap that each was found with (`None`: not readable) and the
    /// most that it can hold. Nothing is written until something is aimed at.
    #[must_use]
    pub fn new(devices: &[(Option<Watts>, Watts)], budget: Watts) -> Self {
        let line = |&(held, highest): &(Option<Watts>, Watts)| {
            let held = held.and_then(microwatts);
            Line {
                held,
                most: held.unwrap_or(microwatts(highest).unwrap_or(MOST).min(MOST)),
                target: None,
                rises: Rises::InBudget,
                writing: None,
                falling: false,
                late: None,
                straggling: None,
                drawn: None,
                unjudged: None,
                suspect: None,
                failed: false,
            }
        };
        Self {
            lines: devices.iter().map(line).collect(),
            budget: microwatts(budget).unwrap_or(0),
        }
    }

    /// The budget of all devices together from now on. The caller has to set lower targets if needed; increases
    /// are withheld at once.
    pub fn set_budget(&mut self, budget: Watts) {
        self.budget = microwatts(budget).unwrap_or(0);
    }

    /// The budget.
    #[must_use]
    pub fn budget(&self) -> Watts {
        watts(self.budget)
    }

    /// The most that all devices together may hold now.
    #[must_use]
    pub fn most(&self) -> Watts {
        watts(self.sum())
    }

    fn sum(&self) -> Microwatts {
        self.lines.iter().map(|line| line.with(line.most)).sum()
    }

    /// Aims `devices` at the caps of an envelope that their loop asks for, one each.
    pub fn steer(&mut self, devices: &[usize], caps: &CapVector) {
        for (&device, cap) in devices.iter().zip(caps.to_watts()) {
            self.rest(device, cap);
        }
    }

    /// Aims `devices` at what a budget leaves of what they were to hold.
    pub fn squeeze(&mut self, devices: &[usize], caps: &CapVector) {
        for (&device, cap) in devices.iter().zip(caps.to_watts()) {
            if let Some(line) = self.lines.get_mut(device) {
                line.target = microwatts(cap);
            }
        }
    }

    /// Aims a device at a cap.
    pub fn aim(&mut self, device: usize, cap: Watts, rises: Rises) {
        if let Some(line) = self.lines.get_mut(device) {
            (line.target, line.rises) = (microwatts(cap), rises);
        }
    }

    /// Aims a device at what it is to hold: without a loop, or as its loop asks.
    pub fn rest(&mut self, device: usize, cap: Watts) {
        self.aim(device, cap, Rises::Surely);
    }

    /// Aims a device at the cap that it was found with: undoing is the one thing that needs no
    /// envelope, and that waits for no write that may never land. The budget still decides when.
    pub fn give_back(&mut self, device: usize, found: Watts) {
        self.aim(device, found, Rises::InBudget);
    }

    /// Another cap on the way to the one that a device is aimed at.
    pub fn pace(&mut self, device: usize, cap: Watts) {
        if let Some(line) = self.lines.get_mut(device)
            && line.target.is_some()
        {
            line.target = microwatts(cap);
        }
    }

    /// Leaves a device alone.
    pub fn leave(&mut self, device: usize) {
        if let Some(line) = self.lines.get_mut(device) {
            line.target = None;
        }
    }

    /// All writes that may go out now to devices that are `free` to take one, in order. They
    /// count as under way.
    pub fn due(&mut self, free: impl Fn(usize) -> bool) -> Vec<(usize, Watts)> {
        let mut writes = Vec::new();
        let mut open = false;
        for (device, line) in self.lines.iter_mut().enumerate() {
            if let Some(target) = line.descent() {
                open = true;
                if free(device) {
                    (line.writing, line.falling) = (Some(target), true);
                    writes.push((device, watts(target)));
                }
            }
            open |= line.is_falling();
        }
        let in_turn = |line: &Line| !open || line.rises == Rises::Regardless;
        let mut sum: Microwatts = self.lines.iter().map(Line::seen).sum();
        let straggle = |line: &Line| (line.straggling.unwrap_or(0) - line.seen()).max(0);
        let straggling: Microwatts = self.lines.iter().map(straggle).sum();
        for (device, line) in self.lines.iter_mut().enumerate() {
            let Some(target) = line.wants().filter(|_| free(device) && in_turn(line)) else {
                continue;
            };
            let rise = line.with(target) - line.with(line.most);
            let fits = match line.rises {
                Rises::Surely => sum + straggling - straggle(line) + rise <= self.budget,
                Rises::InBudget => sum + rise <= self.budget,
                Rises::Freely | Rises::Regardless => true,
            };
            if fits {
                // Until it is confirmed it may hold what it held before, too.
                sum += rise.max(0);
                line.most = line.most.max(target);
                (line.writing, line.falling) = (Some(target), rise < 0);
                writes.push((device, watts(target)));
            }
        }
        writes
    }

    /// Whether a device could rise to its target now, but for others that hold too much or are yet to be lowered.
    #[must_use]
    pub fn is_held_up(&self, device: usize) -> bool {
        let is_open = |line: &Line| line.is_falling() || line.descent().is_some();
        let sum: Microwatts = self.lines.iter().map(Line::seen).sum();
        let Some(line) = self.lines.get(device).filter(|it| it.held.is_some()) else {
            return false;
        };
        line.wants().is_some_and(|target| {
            let rise = line.with(target) - line.with(line.most);
            rise > 0 && (sum + rise > self.budget || self.lines.iter().any(is_open))
        })
    }

    /// A cap was read that may be wrong: until it is known what the device holds, no other cap rises
    /// by what this one may have risen.
    pub fn suspect(&mut self, device: usize, cap: Watts) {
        if let Some(line) = self.lines.get_mut(device) {
            line.suspect = microwatts(cap);
        }
    }

    /// A suspect reading will not be repeated.
    pub fn suspect_no_more(&mut self, device: usize) {
        if let Some(line) = self.lines.get_mut(device) {
            line.suspect = None;
        }
    }

    /// A write that [`Actuator::due`] gave out will not be made.
    pub fn not_written(&mut self, device: usize) {
        if let Some(line) = self.lines.get_mut(device) {
            line.writing = None;
            line.most = line.held.unwrap_or(line.most);
            line.failed = true;
        }
    }

    /// A write has ended: with the cap read back, or failing.
    pub fn written(&mut self, device: usize, held: Option<Watts>) -> Written {
        let Some(line) = self.lines.get_mut(device) else {
            return Written::Stray;
        };
        let Some(wanted) = line.writing.take() else {
            return Written::Stray;
        };
        line.failed = false;
        let Some(held) = held.and_then(microwatts) else {
            line.most = line.most.max(wanted);
            line.held = None;
            line.failed = true;
            return Written::Failed;
        };
        line.hold(held);
        if held == wanted {
            return Written::Confirmed;
        }
        line.failed = true;
        Written::Ignored {
            wanted: watts(wanted),
            held: watts(held),
        }
    }

    /// A device takes too long, for a write or before it can take one: the others no longer wait
    /// for it, and it goes on counting with the most that it may hold.
    pub fn overdue(&mut self, device: usize) {
        if let Some(line) = self.lines.get_mut(device) {
            line.failed = true;
        }
    }

    /// A cap was read while no write was under way: that is what the device holds.
    pub fn observe(&mut self, device: usize, cap: Watts) {
        if let Some(line) = self.lines.get_mut(device)
            && let (None, Some(cap)) = (line.writing, microwatts(cap))
        {
            line.hold(cap);
        }
    }

    /// A device was not read for a while: its cap is unknown. A write under way goes on.
    pub fn forget(&mut self, device: usize) {
        if let Some(line) = self.lines.get_mut(device) {
            line.held = None;
        }
    }

    /// A predecessor may have a write under way that makes the device hold up to `cap`.
    pub fn expect(&mut self, device: usize, cap: Watts) {
        if let Some(line) = self.lines.get_mut(device) {
            line.late = microwatts(cap);
        }
    }

    /// A write failed that may make the device hold `cap` all the same in a while: until
    /// [`Actuator::straggles_no_more`] no other device rises into what that would take, unless it is undone.
    pub fn straggles(&mut self, device: usize, cap: Watts) {
        if let Some(line) = self.lines.get_mut(device) {
            line.straggling = line.straggling.max(microwatts(cap));
        }
    }

    /// No failed write of a device can land any more.
    pub fn straggles_no_more(&mut self, device: usize) {
        if let Some(line) = self.lines.get_mut(device) {
            line.straggling = None;
        }
    }

    /// All writes of a predecessor's are done, and the device was read since, or is not read any more. Returns
    /// whether that was news.
    pub fn expect_no_more(&mut self, device: usize) -> bool {
        let line = self.lines.get_mut(device);
        line.is_some_and(|line| line.late.take().is_some())
    }

    /// A device's cap was lowered, and its power has yet to be seen to follow: until then it counts
    /// with `most`, which it may still draw.
    pub fn doubt(&mut self, device: usize, most: Watts) {
        if let Some(line) = self.lines.get_mut(device) {
            line.drawn = line.drawn.max(microwatts(most));
        }
    }

    /// Whether a device counts with more than its cap, because its power has yet to follow.
    #[must_use]
    pub fn is_doubted(&self, device: usize) -> bool {
        self.lines
            .get(device)
            .is_some_and(|line| line.drawn.is_some())
    }

    /// A device's measured power is within its cap.
    pub fn believe(&mut self, device: usize) {
        if let Some(line) = self.lines.get_mut(device) {
            line.drawn = None;
        }
    }

    /// Lets a device whose write failed, or that was overdue, be written to again.
    pub fn retry(&mut self, device: usize) {
        if let Some(line) = self.lines.get_mut(device) {
            line.failed = false;
        }
    }

    /// The cap that a device holds, where it is known.
    #[must_use]
    pub fn held(&self, device: usize) -> Option<Watts> {
        self.lines.get(device)?.held.map(watts)
    }

    /// The most that a device may hold now.
    #[must_use]
    pub fn most_of(&self, device: usize) -> Watts {
        self.lines
            .get(device)
            .map_or(Watts::ZERO, |line| watts(line.most()))
    }

    /// The watts that a device takes up in the account: the most that it may hold, draw, or come to
    /// hold by a predecessor's write.
    #[must_use]
    pub fn counts(&self, device: usize) -> Watts {
        self.lines
            .get(device)
            .map_or(Watts::ZERO, |line| watts(line.with(line.most)))
    }

    /// The device counts, whatever its readings, with `most` at least, because it can't be judged; `None`: it can
    /// be judged again.
    pub fn judge(&mut self, device: usize, most: Option<Watts>) {
        if let Some(line) = self.lines.get_mut(device) {
            line.unjudged = most.map(|most| microwatts(most).unwrap_or(MOST).min(MOST));
        }
    }

    /// Whether any device may still hold more than it is to.
    #[must_use]
    pub fn is_lowering(&self) -> bool {
        let is_above = |line: &Line| line.target.is_some_and(|target| target < line.most);
        self.lines.iter().any(is_above)
    }

    /// The target of a device.
    #[must_use]
    pub fn target(&self, device: usize) -> Option<Watts> {
        self.lines.get(device)?.target.map(watts)
    }

    /// Whether a device's write is under way.
    #[must_use]
    pub fn is_writing(&self, device: usize) -> bool {
        self.lines
            .get(device)
            .is_some_and(|line| line.writing.is_some())
    }

    /// Whether a device's last write failed, or it is overdue.
    #[must_use]
    pub fn has_failed(&self, device: usize) -> bool {
        self.lines.get(device).is_some_and(|line| line.failed)
    }

    /// Whether a device holds what it is to hold, or is left alone.
    #[must_use]
    pub fn is_settled(&self, device: usize) -> bool {
        self.lines.get(device).is_none_or(|line| {
            line.writing.is_none() && (line.target.is_none() || line.target == line.held)
        })
    }
}
