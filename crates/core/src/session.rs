//! A connected hook: its process, and how far its introduction has come.

use std::sync::Arc;

use litd_proto::Hello;
use litd_traces::NameId;
use litd_units::Nanos;

use crate::cgroup::Home;
use crate::event::Peer;
use crate::rate::Bucket;
use crate::room::Room;

/// Connections that are counted together, with the data left unread of them: those of a user, in one job. In pods
/// most processes are of user 0, and one tenant must not keep another out. Subordinate ids count as their owner's
/// ([`crate::Owners`]).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Crowd {
    uid: u32,
    job: Option<String>,
}

impl Crowd {
    /// The crowd of a hook of this user, whose id is nobody's subordinate id, by its control group.
    #[must_use]
    pub fn of(uid: u32, home: Option<&Home>) -> Self {
        let job = home.map(|home| home.outermost().to_owned());
        Self { uid, job }
    }
}

impl From<u32> for Crowd {
    /// The crowd of a user outside any job.
    fn from(uid: u32) -> Self {
        Self::of(uid, None)
    }
}

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

/// A connected hook.
#[derive(Debug)]
pub(crate) struct Session {
    /// The process.
    pub peer: Peer,
    /// The job that a scheduler has put it into.
    pub home: Option<Home>,
    /// The crowd with which it is counted.
    crowd: Crowd,
    /// How far its introduction has come.
    pub stage: Stage,
    /// When it connected.
    pub since: Nanos,
    /// How often it may send.
    pub bucket: Bucket,
    /// Frames that came too fast, less those that were forgiven.
    pub too_fast: u32,
    /// The rank's kernel names, as the job knows them.
    pub names: Vec<NameId>,
    /// Bytes of those names.
    pub name_bytes: usize,
    /// The room for those names in the job's table.
    pub name_room: Room,
    /// The software that it would profile with.
    pub profiler: Option<String>,
    /// The protocol that both speak, once it is welcome.
    pub protocol: u32,
    /// Notices that were logged.
    pub notices: u32,
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
            names: Vec::new(),
            name_bytes: 0,
            name_room: Room::new(0),
            profiler: None,
            protocol: litd_proto::PROTOCOL,
            notices: 0,
        }
    }

    /// The crowd with which it is counted.
    pub fn crowd(&self) -> &Crowd {
        &self.crowd
    }

    /// Whether the hook is not a rank of a job.
    pub fn is_stranger(&self) -> bool {
        !matches!(self.stage, Stage::Attached { .. })
    }
}
