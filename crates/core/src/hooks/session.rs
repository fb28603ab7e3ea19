//! A connected hook: its process, and how far its introduction has come.

use std::sync::Arc;

use litd_proto::Hello;
use litd_traces::NameId;
use litd_units::Nanos;

use super::crowd::Crowd;
use crate::event::Peer;
use crate::hooks::cgroup::Home;
use crate::rate::Bucket;
use crate::room::{Full, Room, Table};

/// How many frames above the rate are dropped before the connection is closed.
const PATIENCE: u32 = 10_000;

/// How many dropped frames are forgiven for each frame within the rate: a hook is closed only if it sends more
/// than ten times its rate.
const FORGIVEN: u32 = 9;

/// How many notices of one connection are logged.
const NOTICES: u32 = 8;

/// How far a hook's introduction has come.
#[derive(Debug, Clone)]
pub(crate) enum Stage {
    /// The hook has said nothing.
    New,
    /// The driver is being asked whether the hook's process holds the GPU that it names.
    Checking {
        /// The hook's hello.
        hello: Arc<Hello>,
        /// The GPU.
        device: usize,
        /// When the driver was asked.
        since: Nanos,
    },
    /// The hook is a rank of a job.
    Attached {
        /// The job.
        job: String,
        /// The rank.
        rank: u32,
    },
    /// The hook was refused; its connection is about to end.
    Refused,
}

/// What becomes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The frame is read.
    InTime,
    /// The frame is dropped: it came too soon after others.
    TooFast,
    /// So many came too soon that the connection is to be closed.
    Flood,
}

/// The kernel names that a rank has told, as its job knows them.
#[derive(Debug)]
pub(crate) struct Dictionary {
    names: Vec<NameId>,
    /// Bytes of their texts.
    bytes: usize,
    /// The room for them in the job's table.
    room: Room,
}

impl Dictionary {
    fn new(room: usize) -> Self {
        Self {
            names: Vec::new(),
            bytes: 0,
            room: Room::new(room),
        }
    }

    /// The names by the rank's own numbers.
    pub fn names(&self) -> &[NameId] {
        &self.names
    }

    /// The same, for a table that numbers its names anew.
    pub fn names_mut(&mut self) -> &mut Vec<NameId> {
        &mut self.names
    }

    /// How many names there would be with one more, and their bytes. The bytes count from now on.
    pub fn with(&mut self, name: &str) -> (usize, usize) {
        self.bytes = self.bytes.saturating_add(name.len());
        (self.names.len().saturating_add(1), self.bytes)
    }

    /// Takes so many bytes of the job's table.
    pub fn charge(&mut self, bytes: usize) -> Result<(), Full> {
        self.room.charge(bytes)
    }

    /// The job's table has the next name under this number.
    pub fn add(&mut self, name: NameId) {
        self.names.push(name);
    }
}

/// A connected hook.
#[derive(Debug)]
pub(crate) struct Session {
    peer: Peer,
    /// The job that a scheduler has put it into.
    home: Option<Home>,
    crowd: Crowd,
    stage: Stage,
    /// When it connected.
    since: Nanos,
    /// How often it may send.
    bucket: Bucket,
    /// Frames that came too fast, less those that were forgiven.
    too_fast: u32,
    dictionary: Dictionary,
    /// The stack that it would profile with.
    profiler: Option<String>,
    /// The protocol that both speak, once it is welcome.
    protocol: u32,
    /// Notices that were logged.
    notices: u32,
}

impl Session {
    pub fn new(
        peer: Peer,
        home: Option<Home>,
        crowd: Crowd,
        frames_per_second: f64,
        now: Nanos,
    ) -> Self {
        Self {
            crowd,
            peer,
            home,
            stage: Stage::New,
            since: now,
            bucket: Bucket::new(frames_per_second, now),
            too_fast: 0,
            dictionary: Dictionary::new(0),
            profiler: None,
            protocol: litd_proto::PROTOCOL,
            notices: 0,
        }
    }

    /// The process.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// The job that a scheduler has put it into.
    pub fn home(&self) -> Option<&Home> {
        self.home.as_ref()
    }

    /// The crowd with which it is counted.
    pub fn crowd(&self) -> &Crowd {
        &self.crowd
    }

    /// How far its introduction has come.
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// When it connected.
    pub fn since(&self) -> Nanos {
        self.since
    }

    /// The job and the rank that the hook is.
    pub fn attached(&self) -> Option<(&str, u32)> {
        match &self.stage {
            Stage::Attached { job, rank } => Some((job, *rank)),
            Stage::New | Stage::Checking { .. } | Stage::Refused => None,
        }
    }

    /// Whether it was refused.
    pub fn is_refused(&self) -> bool {
        matches!(self.stage, Stage::Refused)
    }

    /// Whether it has said nothing.
    pub fn is_silent(&self) -> bool {
        matches!(self.stage, Stage::New)
    }

    /// The driver is asked whether it holds the GPU that it names.
    pub fn is_checked(&mut self, hello: Hello, device: usize, now: Nanos) {
        self.stage = Stage::Checking {
            hello: Arc::new(hello),
            device,
            since: now,
        };
    }

    /// It is a rank of a job, and they speak that protocol.
    pub fn attaches(&mut self, job: String, rank: u32, protocol: u32, gpus: usize) {
        self.stage = Stage::Attached { job, rank };
        self.protocol = protocol;
        self.dictionary.room = Room::new(Table::Names.of_a_gpu(gpus));
    }

    /// It is refused. Returns how far its introduction had come.
    pub fn is_turned_away(&mut self) -> Stage {
        std::mem::replace(&mut self.stage, Stage::Refused)
    }

    /// What becomes of a frame that has come.
    pub fn frame(&mut self, now: Nanos) -> Pace {
        if self.bucket.take(now) {
            self.too_fast = self.too_fast.saturating_sub(FORGIVEN);
            return Pace::InTime;
        }
        self.too_fast += 1;
        match self.too_fast > PATIENCE {
            true => Pace::Flood,
            false => Pace::TooFast,
        }
    }

    /// Whether a notice is logged: only so many of a connection are.
    pub fn may_notice(&mut self) -> bool {
        let may = self.notices < NOTICES;
        self.notices += u32::from(may);
        may
    }

    /// The kernel names that it has told.
    pub fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    /// The same, to add some.
    pub fn dictionary_mut(&mut self) -> &mut Dictionary {
        &mut self.dictionary
    }

    /// The stack that it would profile with, and the protocol that both speak.
    pub fn profiler(&self) -> Option<(&str, u32)> {
        let software = self.profiler.as_deref()?;
        Some((software, self.protocol))
    }

    /// It would profile with this stack.
    pub fn would_profile_with(&mut self, software: String) {
        self.profiler = Some(software);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(frames_per_second: f64) -> Session {
        let peer = Peer { pid: 7, uid: 1000 };
        Session::new(peer, None, Crowd::from(1000), frames_per_second, Nanos(0))
    }

    #[test]
    fn a_hook_within_ten_times_its_rate_is_never_closed_and_a_flood_is() {
        let mut steady = session(10.0);
        let mut flood = session(10.0);
        for frame in 0..100_000 {
            assert_ne!(steady.frame(Nanos(frame * 11_000_000)), Pace::Flood);
        }
        let paces = (0..100_000).map(|frame| flood.frame(Nanos(frame * 1_000_000)));
        assert!(paces.into_iter().any(|pace| pace == Pace::Flood));
    }

    #[test]
    fn so_many_notices_of_a_connection_are_logged() {
        let mut session = session(1.0);
        let logged = (0..100).filter(|_| session.may_notice()).count();
        assert_eq!(logged, NOTICES as usize);
    }

    #[test]
    fn a_hook_that_was_refused_is_no_rank_any_more() {
        let mut session = session(1.0);
        session.attaches("job".to_owned(), 3, 1, 8);
        assert_eq!(session.attached(), Some(("job", 3)));
        assert!(matches!(
            session.is_turned_away(),
            Stage::Attached { rank: 3, .. }
        ));
        assert!(session.is_refused() && session.attached().is_none());
    }
}
