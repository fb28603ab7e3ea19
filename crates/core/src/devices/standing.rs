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
    /// The same as others are told it. A device that is released only because litd is off is closed: no
    /// administrator has released it.
    pub fn told(&self) -> DeviceState {
        match self {
            Self::Released(it) if it.by_mode => DeviceState::Closed,
            standing => standing.state(),
        }
    }

    /// The same as plans go by it.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A state in short, for the table below.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum State {
        Ours,
        Kept,
        Overwritten,
        Faulty,
        /// Released by its users, or because litd is off; whether litd keeps it within a safe budget.
        Released {
            by_mode: bool,
            held: bool,
        },
    }

    use State::{Faulty, Kept, Ours, Overwritten, Released};

    const USERS: State = Released {
        by_mode: false,
        held: false,
    };
    const OFF: State = Released {
        by_mode: true,
        held: true,
    };
    const OFF_THEIRS: State = Released {
        by_mode: true,
        held: false,
    };

    const ALL: [State; 7] = [Ours, Kept, Overwritten, Faulty, USERS, OFF, OFF_THEIRS];

    const FAILED: Failed = Failed {
        held: None,
        answers_only: true,
        well_since: None,
        was_unread: false,
        not_in_force: Some(Watts(600.0)),
    };

    fn in_state(state: State) -> Standing {
        let mut standing = Standing::Ours;
        match state {
            Ours => {}
            Kept => standing.take(),
            Overwritten => {
                standing.take();
                standing.overwrite();
            }
            Faulty => {
                standing.fails(FAILED);
            }
            Released { by_mode, held } => {
                if by_mode && !held {
                    standing.take();
                }
                standing.release(Nanos(0), by_mode);
            }
        }
        standing
    }

    fn of(standing: &Standing) -> State {
        match standing {
            Standing::Ours => Ours,
            Standing::Foreign(Theirs::Kept) => Kept,
            Standing::Foreign(Theirs::Overwritten) => Overwritten,
            Standing::Faulty(_) => Faulty,
            Standing::Released(LetGo { by_mode, held, .. }) => {
                let (by_mode, held) = (*by_mode, *held);
                Released { by_mode, held }
            }
        }
    }

    /// The states in the order of [`ALL`] after a transition.
    fn after(transition: impl Fn(&mut Standing)) -> [State; 7] {
        ALL.map(|state| {
            let mut standing = in_state(state);
            assert_eq!(of(&standing), state);
            transition(&mut standing);
            of(&standing)
        })
    }

    #[test]
    fn every_transition_from_every_state() {
        // Only what litd owns can fail.
        let fails = [Faulty, Kept, Overwritten, Faulty, USERS, OFF, OFF_THEIRS];
        assert_eq!(after(|it| _ = it.fails(FAILED)), fails);
        // A released device stays released, and litd keeps nothing there.
        let take = [Kept, Kept, Kept, Kept, USERS, OFF_THEIRS, OFF_THEIRS];
        assert_eq!(after(Standing::take), take);
        let overwrite = [
            Ours,
            Overwritten,
            Overwritten,
            Faulty,
            USERS,
            OFF,
            OFF_THEIRS,
        ];
        assert_eq!(after(|it| _ = it.overwrite()), overwrite);
        let give_back = [Ours, Kept, Kept, Faulty, USERS, OFF, OFF_THEIRS];
        assert_eq!(after(Standing::give_back), give_back);
        assert_eq!(after(|it| it.release(Nanos(0), false)), [USERS; 7]);
        // A foreign cap that is in force is not litd's to hold; one that litd has overwritten is.
        let off = [OFF, OFF_THEIRS, OFF, OFF, OFF, OFF, OFF];
        assert_eq!(after(|it| it.release(Nanos(0), true)), off);
        assert_eq!(after(|it| _ = it.take_back()), [Ours; 7]);
    }

    #[test]
    fn transitions_tell_whether_they_were_any() {
        let fails = ALL.map(|state| in_state(state).fails(FAILED));
        assert_eq!(fails, [true, false, false, false, false, false, false]);
        let overwritten = ALL.map(|state| in_state(state).overwrite());
        assert_eq!(
            overwritten,
            [false, true, false, false, false, false, false]
        );
        let before = ALL.map(|state| of(&in_state(state).take_back()));
        assert_eq!(before, ALL);
    }

    #[test]
    fn each_state_has_its_own_data_and_no_others() {
        for state in ALL {
            let mut standing = in_state(state);
            let is_released = matches!(state, Released { .. });
            assert_eq!(standing.is_ours(), state == Ours, "{state:?}");
            assert_eq!(standing.is_kept(), state == Kept, "{state:?}");
            assert_eq!(standing.is_overwritten(), state == Overwritten, "{state:?}");
            let is_foreign = matches!(state, Kept | Overwritten);
            assert_eq!(standing.is_foreign(), is_foreign, "{state:?}");
            let is_faulty = state == Faulty;
            assert_eq!(standing.is_faulty(), is_faulty, "{state:?}");
            assert_eq!(standing.failed().is_some(), is_faulty, "{state:?}");
            assert_eq!(standing.failed_mut().is_some(), is_faulty, "{state:?}");
            assert_eq!(standing.not_in_force().is_some(), is_faulty, "{state:?}");
            assert_eq!(standing.let_go().is_some(), is_released, "{state:?}");
            assert_eq!(standing.let_go_mut().is_some(), is_released, "{state:?}");
            let (planned, told) = match state {
                Ours => (DeviceState::Ours, DeviceState::Ours),
                Kept | Overwritten => (DeviceState::Foreign, DeviceState::Foreign),
                Faulty => (DeviceState::Faulty, DeviceState::Faulty),
                Released { by_mode: false, .. } => (DeviceState::Released, DeviceState::Released),
                Released { by_mode: true, .. } => (DeviceState::Released, DeviceState::Closed),
            };
            assert_eq!(
                (standing.state(), standing.told()),
                (planned, told),
                "{state:?}"
            );
        }
    }

    #[test]
    fn a_device_that_is_released_anew_is_as_unseen_as_before() {
        let mut standing = in_state(USERS);
        if let Some(it) = standing.let_go_mut() {
            (it.unseen_since, it.given_up) = (Some(Nanos(5)), true);
        }
        standing.release(Nanos(9), true);
        let it = standing.let_go().unwrap();
        assert_eq!(
            (it.since, it.unseen_since, it.given_up),
            (Nanos(9), Some(Nanos(5)), false)
        );
    }
}
