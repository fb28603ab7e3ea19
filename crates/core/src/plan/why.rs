//! Why a device is to hold what it is to hold.

/// The reason for an [`Aim`](super::Aim). Jobs are named by their place among the view's demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Why {
    /// It is left alone: devices that answer are still being read.
    #[default]
    LookingRound,
    /// It is left alone: it was not read since litd started, or began to stop, or its driver is asked anew what its
    /// cap may be.
    Unread,
    /// It is left alone: its cap is somebody else's.
    Theirs,
    /// It is left alone: it holds nothing of litd's, and is not to.
    NothingOwed,
    /// It is left alone: the others leave no room for it to rise.
    NoRoom,
    /// It is left alone: no cap may rise now.
    RisesStopped,
    /// What was found goes back.
    Found,
    /// An administrator asks for it by hand.
    ByHand,
    /// A job's loop asks for it.
    Loop(usize),
    /// A trial or a hold-out on a job compares with what was found.
    Trial(usize),
    /// It has no loop, and this is what the budget leaves it.
    Share,
    /// It makes room within the budget; the job's loop, if it has one, asks for more.
    Room(Option<usize>),
    /// It has failed, and gets no more than it has held since.
    HasFailed,
    /// It stays as it is: litd leaves it behind so.
    LeftBehind,
}

impl Why {
    /// What it is for a device that gets less than that for want of room.
    pub fn in_less_room(self) -> Self {
        match self {
            Self::Loop(job) | Self::Trial(job) => Self::Room(Some(job)),
            Self::Room(job) => Self::Room(job),
            _ => Self::Room(None),
        }
    }
}
