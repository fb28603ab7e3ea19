//! Whose a device's cap is. Each state has what only it needs, and the methods that change it are its transitions.

use litd_api::DeviceState;
use litd_units::{Nanos, Watts};

use crate::mending::Failed;
use crate::release::LetGo;

/// Whose a device's cap is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Standing {
    /// litd's to move, as far as the device can be judged.
    #[default]
    Ours,
    /// Somebody else's.
    Foreign(Theirs),
    /// Nobody's: the device does not do what it is told.
    Faulty(Failed),
    /// Its users': litd has let go of it.
    Released(LetGo),
}

/// A cap of somebody else's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Theirs {
    /// It is in force, and stays.
    Kept,
    /// A write that litd or a predecessor had under way was done after it: what they had set goes back.
    Overwritten,
}

impl Standing {
    /// The same as others are told it.
    pub fn state(&self) -> DeviceState {
        match self {
            Self::Ours => DeviceState::Ours,
            Self::Foreign(_) => DeviceState::Foreign,
            Self::Faulty(_) => DeviceState::Faulty,
            Self::Released(_) => DeviceState::Released,
        }
    }

    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Ours)
    }

    pub fn is_foreign(&self) -> bool {
        matches!(self, Self::Foreign(_))
    }

    /// Whether it holds what somebody else has set, and that is to stay.
    pub fn is_kept(&self) -> bool {
        matches!(self, Self::Foreign(Theirs::Kept))
    }

    /// Whether a late write has taken the place of what somebody else had set.
    pub fn is_overwritten(&self) -> bool {
        matches!(self, Self::Foreign(Theirs::Overwritten))
    }

    pub fn is_faulty(&self) -> bool {
        matches!(self, Self::Faulty(_))
    }

    /// What is known of the device since it has failed, while it counts as failed.
    pub fn failed(&self) -> Option<Failed> {
        match self {
            Self::Faulty(failed) => Some(*failed),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub fn failed_mut(&mut self) -> Option<&mut Failed> {
        match self {
            Self::Faulty(failed) => Some(failed),
            _ => None,
        }
    }

    /// What litd knows of the device since it has let go of it, while it has.
    pub fn let_go(&self) -> Option<LetGo> {
        match self {
            Self::Released(let_go) => Some(*let_go),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub fn let_go_mut(&mut self) -> Option<&mut LetGo> {
        match self {
            Self::Released(let_go) => Some(let_go),
            _ => None,
        }
    }

    /// It does not do what it is told. Only a device that is litd's can fail; of another that is no matter.
    pub fn fails(&mut self, failed: Failed) -> bool {
        let can_fail = self.is_ours();
        if can_fail {
            *self = Self::Faulty(failed);
        }
        can_fail
    }

    /// Somebody else has set its cap. One that litd has let go of stays so: it is its users' anyway.
    pub fn take(&mut self) {
        match self {
            Self::Ours | Self::Faulty(_) | Self::Foreign(_) => *self = Self::Foreign(Theirs::Kept),
            // What it holds is others' doing, and litd has nothing to keep there.
            Self::Released(let_go) => let_go.held = false,
        }
    }

    /// A late write of litd's or of a predecessor's has taken the place of what somebody else had set. Returns
    /// whether it was theirs.
    pub fn overwrite(&mut self) -> bool {
        let was_kept = self.is_kept();
        if was_kept {
            *self = Self::Foreign(Theirs::Overwritten);
        }
        was_kept
    }

    /// What somebody else had set is back.
    pub fn give_back(&mut self) {
        if self.is_overwritten() {
            *self = Self::Foreign(Theirs::Kept);
        }
    }

    /// litd lets go of it, whosever it was.
    pub fn release(&mut self, since: Nanos, by_mode: bool) {
        let unseen_since = self.let_go().and_then(|it| it.unseen_since);
        let theirs = self.is_kept();
        *self = Self::Released(LetGo {
            since,
            looked: Nanos(i64::MIN),
            given_up: false,
            closed: None,
            unseen_since,
            by_mode,
            held: by_mode && !theirs,
        });
    }

    /// It is litd's, whatever was known of it before. Returns what it was.
    pub fn take_back(&mut self) -> Self {
        std::mem::take(self)
    }

    /// What it counts with because the cap that it reads was seen not to be in force, while it is faulty for that.
    pub fn not_in_force(&self) -> Option<Watts> {
        self.failed()?.not_in_force
    }
}
