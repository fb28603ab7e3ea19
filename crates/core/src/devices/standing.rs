//! The owner of a device's cap. Each state has only the data that it needs, and the methods that change it are its
//! transitions.

use litd_api::DeviceState;
use litd_units::{Nanos, Watts};

use crate::devices::mending::Failed;
use crate::undo::release::LetGo;

/// The owner of a device's cap.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Standing {
    /// litd's to move, as far as the device can be judged.
    #[default]
    Ours,
    /// The cap is foreign.
    Foreign(Theirs),
    /// The device does not do what it is told, or does not answer.
    Faulty(Failed),
    /// litd has released the device to its users.
    Released(LetGo),
}

/// The state of a foreign cap.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Theirs {
    /// The cap is in force, and stays.
    Kept,
    /// A late write of litd's or a predecessor's has replaced it: the foreign cap has to be restored.
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

    /// Whether the device holds a foreign cap that stays.
    pub fn is_kept(&self) -> bool {
        matches!(self, Self::Foreign(Theirs::Kept))
    }

    /// Whether a late write has replaced the foreign cap.
    pub fn is_overwritten(&self) -> bool {
        matches!(self, Self::Foreign(Theirs::Overwritten))
    }

    pub fn is_faulty(&self) -> bool {
        matches!(self, Self::Faulty(_))
    }

    /// The record of a device's failure, while it counts as failed.
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

    /// The record of a released device, while it is released.
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

    /// The device has failed. Only a device that litd owns can fail; for others that does not matter.
    pub fn fails(&mut self, failed: Failed) -> bool {
        let can_fail = self.is_ours();
        if can_fail {
            *self = Self::Faulty(failed);
        }
        can_fail
    }

    /// A foreign cap was set. A released device stays released: it is its users' anyway.
    pub fn take(&mut self) {
        match self {
            Self::Ours | Self::Faulty(_) | Self::Foreign(_) => *self = Self::Foreign(Theirs::Kept),
            // The cap is foreign, and litd has nothing to keep there.
            Self::Released(let_go) => let_go.held = false,
        }
    }

    /// A late write of litd's or of a predecessor's has replaced a foreign cap. Returns whether the cap was
    /// foreign.
    pub fn overwrite(&mut self) -> bool {
        let was_kept = self.is_kept();
        if was_kept {
            *self = Self::Foreign(Theirs::Overwritten);
        }
        was_kept
    }

    /// The foreign cap is restored.
    pub fn give_back(&mut self) {
        if self.is_overwritten() {
            *self = Self::Foreign(Theirs::Kept);
        }
    }

    /// litd releases the device, whoever owned it.
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

    /// The device is litd's again, whatever was known of it before. Returns its former standing.
    pub fn take_back(&mut self) -> Self {
        std::mem::take(self)
    }

    /// The watts with which a faulty device counts because the cap that it reads was seen not to be in force.
    pub fn not_in_force(&self) -> Option<Watts> {
        self.failed()?.not_in_force
    }
}
