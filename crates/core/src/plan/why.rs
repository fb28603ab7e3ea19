//! Reasons for devices' targets.

/// The reason for an [`Aim`](super::Aim). Jobs are named by their place among the view's demands; for
/// `Clocks`, among its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Why {
    /// Left alone: devices that answer are still being read.
    #[default]
    LookingRound,
    /// Left alone: not read since litd started or began to stop, or its driver is being asked for its range.
    Unread,
    /// Left alone: its cap is foreign.
    Theirs,
    /// Left alone: nothing of litd's is there to undo.
    NothingOwed,
    /// Left alone: the others leave no room for a raise.
    NoRoom,
    /// Left alone: no cap may rise now.
    RisesStopped,
    /// The cap found is restored.
    Found,
    /// An administrator's override.
    ByHand,
    /// A job's loop asks for it.
    Loop(usize),
    /// A trial or a hold-out on a job compares with the cap found.
    Trial(usize),
    /// No loop moves the device, and the budget leaves it this.
    Share,
    /// A job's planned clocks need it.
    Clocks(usize),
    /// The device makes room within the budget; the job's loop, if there is one, asks for more.
    Room(Option<usize>),
    /// The device has failed, and gets no more than it has held since.
    HasFailed,
    /// The cap stays: litd leaves it behind.
    LeftBehind,
}

impl Why {
    /// The reason for a device that gets less than that for want of room.
    pub fn in_less_room(self) -> Self {
        match self {
            Self::Loop(job) | Self::Trial(job) => Self::Room(Some(job)),
            Self::Room(job) => Self::Room(job),
            _ => Self::Room(None),
        }
    }
}
