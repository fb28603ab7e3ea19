//! Traces on demand (`GET` and `POST /v1/trace`): of processes whose scripts know nothing of litd, by PyTorch's
//! on-demand client.

use serde::{Deserialize, Serialize};

/// The processes that can record a trace on demand: the answer to `GET /v1/trace`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Traceable {
    /// Whether litd answers PyTorch's on-demand client here (`attach.kineto`).
    pub on: bool,
    /// Why not, where it is to and can't, in words.
    #[serde(default)]
    pub troubles: Vec<String>,
    /// The processes that have asked of late.
    pub processes: Vec<TraceableProcess>,
    /// Datagrams since the daemon started, by what became of them.
    #[serde(default)]
    pub datagrams: Datagrams,
    /// The jobs that litd itself samples by such traces (`attach.kineto_samples`), or would.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sampled: Vec<SampledJob>,
    /// Where dynolog listens, if it answers the clients that know it by its name, and litd asks it (`attach.dynolog`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynolog: Option<String>,
    /// What is seen of rings of the plugin for NCCL and RCCL; absent where litd reads none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rings: Option<RingsSeen>,
}

/// The rings in which litd's plugin for NCCL and RCCL notes arrivals at collectives (`attach.nccl_directory`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RingsSeen {
    /// The rings' directory.
    pub directory: String,
    /// Why it can't be searched, in words.
    #[serde(default)]
    pub trouble: Option<String>,
    /// Rings that a process is known to write that uses a GPU.
    pub rings: u64,
    /// Files that are named as rings are, and that no process that uses a GPU has locked: such a process writes none of
    /// them. They are counted among the first 10,000 names of the directory.
    pub unclaimed: u64,
    /// Files that such a process has locked and that are not read, and why, in words.
    #[serde(default)]
    pub refused: Vec<String>,
    /// The jobs that litd samples by rings, or would.
    #[serde(default)]
    pub sampled: Vec<SampledJob>,
}

/// A job without a hook that litd samples by traces on demand or by rings, or would.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SampledJob {
    /// The name in `litctl status`, once the job is in there.
    pub job: Option<String>,
    /// The scheduler's job that its processes are in.
    #[serde(default)]
    pub home: Option<String>,
    /// The user.
    pub uid: u32,
    /// The processes that are its ranks.
    pub pids: Vec<u32>,
    /// How often it is to record a trace, or its rings are read, in seconds; 0 where that is not known yet.
    pub every_seconds: f64,
    /// How far that has come, in words.
    pub text: String,
}

impl Traceable {
    /// What is said where [`Self::on`] is false.
    pub const OFF: &str = "litd does not answer PyTorch's on-demand client here: set attach.kineto = true in litd.toml, \
                           and restart litd";
}

/// Datagrams to the sockets that clients know, by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Datagrams {
    /// Messages of processes that are who they say they are.
    pub answered: u64,
    /// Processes that were told to record a trace.
    pub told: u64,
    /// Datagrams that are no messages of a client; not answered.
    pub malformed: u64,
    /// Messages in another process's name: told that there is nothing to do.
    pub impostors: u64,
    /// Messages of processes that have just begun, or of which procfs tells nothing: told the same.
    #[serde(default)]
    pub unsure: u64,
    /// Messages of processes for which there is no place: told that there is nothing to do.
    pub crowded: u64,
    /// Datagrams from sockets that are not named as clients name theirs; not answered.
    pub foreign: u64,
    /// Messages that had waited until their clients listened no longer; not answered.
    pub late: u64,
}

/// A process that asks, every 5 s, whether it is to record a trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceableProcess {
    /// Process id, in the daemon's namespace.
    pub pid: u32,
    /// User id.
    pub uid: u32,
    /// The scheduler's job that the process is in, by its control groups.
    #[serde(default)]
    pub job: Option<String>,
    /// How far a trace of it is.
    pub stage: TraceStage,
}

/// How far a trace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceStage {
    /// No trace is wished for.
    Idle,
    /// The process is to record one, and learns of it within 5 s.
    Wanted,
    /// The process has been told.
    Told,
}

/// A wish for traces: the body of `POST /v1/trace`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceWish {
    /// Process ids, in the daemon's namespace.
    #[serde(default)]
    pub pids: Vec<u32>,
    /// All processes of a scheduler's job: `slurm-1234`, `pod-UID`.
    #[serde(default)]
    pub job: Option<String>,
    /// The number of iterations, where a process steps optimizers. All ranks begin at the same one.
    pub iterations: u32,
    /// The number of milliseconds, where a process steps none.
    pub milliseconds: u32,
    /// Whether calls of the host are recorded, too: operators, and the launches of kernels.
    #[serde(default)]
    pub host: bool,
}

/// The traces to be recorded: the answer to `POST /v1/trace`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WishedTraces {
    /// The traces.
    pub traces: Vec<WishedTrace>,
    /// The processes that will record none, and why, in words.
    #[serde(default)]
    pub refused: Vec<String>,
}

/// A trace that a process is to record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WishedTrace {
    /// Process id, in the daemon's namespace.
    pub pid: u32,
    /// User id, whose the file will be.
    pub uid: u32,
    /// When the process began, in ticks since boot: a later process with the same id began at another time.
    pub began: u64,
    /// The file, as the process's own mount namespace has it: `/proc/PID/root` goes before it.
    pub file: String,
}
