//! Jobs whose processes have no hook, from their processes to ranks that litd speaks for, in whatever way it measures
//! them.
//!
//! - `stage`: how far a job has come;
//! - `sample`: what was measured of its ranks, and its way into the core.

mod sample;
mod stage;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use litd_api::{JobStatus, SampledJob};
use litd_attach::Owner;
use litd_core::{DeviceId, Peer};
use litd_proto::{FromHook, Hello, PROTOCOL};
use litd_units::Nanos;

use super::guests::{GuestJob, Newcomer};
use super::launcher::Place;
use crate::hub::Hub;
use crate::process::{Process, Processes};
pub(crate) use sample::{Measured, Sample, is_wanted_still, tell_of_none};
pub(super) use stage::{Rank, Sampled, Stage, Told};

/// After this drivers are asked again who uses their GPUs, while a job's processes are not placed; and so often it is
/// after twice the time, while the same processes use none.
const HOLDERS: Nanos = Nanos(10_000_000_000);
const DOUBLINGS: u32 = 6;

/// Why a job with a hook is measured in no other way: each rank is measured in one.
const HOOKED: &str = "its processes have the hook, which shows more";

/// The marks that the processes of a job have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub uid: u32,
    /// The user or the pod with whose processes they are counted.
    pub owner: Owner,
    pub home: Option<String>,
    /// The process that started them.
    pub parent: i32,
}

/// When drivers were asked who uses their GPUs, and for whom.
#[derive(Debug)]
pub(super) struct Asked<T> {
    last: Option<Nanos>,
    whom: BTreeSet<T>,
    times: u32,
}

impl<T> Default for Asked<T> {
    fn default() -> Self {
        Self {
            last: None,
            whom: BTreeSet::new(),
            times: 0,
        }
    }
}

impl<T: Ord> Asked<T> {
    /// Whether they are to be asked now, for these.
    pub fn is_time(&mut self, now: Nanos, whom: BTreeSet<T>) -> bool {
        if !whom.is_subset(&self.whom) {
            self.times = 0;
        }
        let wait = Nanos(HOLDERS.0 << self.times.min(DOUBLINGS));
        let is_time = !whom.is_empty() && self.last.is_none_or(|then| now >= then + wait);
        if is_time {
            self.last = Some(now);
            self.times = self.times.saturating_add(1);
        }
        self.whom = whom;
        is_time
    }
}

/// A process that may be a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub pid: u32,
    pub uid: u32,
    /// When the process began, in ticks since boot.
    pub began: u64,
    /// The process's id in its own namespace.
    pub own: i32,
}

/// A process that uses a GPU, and may be a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub process: Candidate,
    /// The address of its GPU.
    pub gpu: String,
    pub device: DeviceId,
}

impl Member {
    pub fn pid(&self) -> u32 {
        self.process.pid
    }
}

/// Why the processes of a job are not its ranks, in words.
#[derive(Debug)]
pub(super) struct Missing {
    pub why: String,
    /// Whether drivers may know more when they are asked again.
    pub may_come: bool,
}

impl Missing {
    fn for_good(why: String) -> Self {
        let may_come = false;
        Self { why, may_come }
    }
}

/// The processes of a job that use one GPU each: at least two.
pub(super) fn gathered(
    hub: &mut Hub,
    candidates: impl IntoIterator<Item = Candidate>,
) -> Result<Vec<Member>, Missing> {
    let (mut members, mut several) = (Vec::new(), None);
    for process in candidates {
        let Candidate { pid, uid, .. } = process;
        if let Some(why) = taken(hub, pid) {
            return Err(Missing::for_good(why));
        }
        match hub.held_by(Peer { pid, uid }).as_slice() {
            [] => {}
            [(device, gpu)] => members.push(Member {
                process,
                gpu: gpu.clone(),
                device: *device,
            }),
            [..] => several = Some(pid),
        }
    }
    let why = match several {
        Some(pid) => format!("process {pid} uses several GPUs, and a rank has one"),
        None if members.len() < 2 => "less than two of its processes use GPUs".to_owned(),
        None => return Ok(members),
    };
    Err(Missing {
        why,
        may_come: true,
    })
}

/// Why a process is measured otherwise, if it is: each rank counts once, in the way that has come to it first.
fn taken(hub: &mut Hub, pid: u32) -> Option<String> {
    if hub.has_hook(pid) {
        return Some(HOOKED.to_owned());
    }
    let way = hub.find_guest(pid)?;
    Some(format!("its processes are measured by {way} already"))
}

/// A way to measure ranks without a hook.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    /// The way's name, in words.
    pub name: &'static str,
    /// The software that processes use, as hellos say it.
    pub framework: &'static str,
    /// The software that it is known by among profilers, if it can do harm (`litctl stacks`).
    pub profiler: Option<&'static str>,
    /// The condition, besides using a GPU, on which a process can be measured, in words.
    pub takes: &'static str,
}

/// A job for answers, which is measured every so often.
pub(super) fn shown<S: Sampled>(
    hub: &Hub,
    key: &Key,
    stage: &Stage<S>,
    every_seconds: f64,
) -> SampledJob {
    let mut sessions = stage.sessions().into_iter();
    let named = sessions.find_map(|it| hub.attached_as(it));
    SampledJob {
        job: named.map(|(job, _)| job.to_owned()),
        home: key.home.clone(),
        uid: key.uid,
        pids: stage.members().into_iter().map(Member::pid).collect(),
        every_seconds,
        text: stage.words(),
    }
}

/// Says in the status of jobs how those of them are measured that are sampled.
pub(super) fn say_how(
    jobs: &mut [JobStatus],
    sampled: &[SampledJob],
    how: impl Fn(&SampledJob) -> String,
) {
    for sampled in sampled {
        let of_it = |job: &&mut JobStatus| sampled.job.as_deref() == Some(&job.name);
        if let Some(job) = jobs.iter_mut().find(of_it) {
            job.measured = Some(how(sampled));
        }
    }
}

/// Has all ranks of a job say hello, if their launcher's variables agree.
pub(super) fn join(
    hub: &mut Hub,
    processes: &Processes,
    proc: &Path,
    (way, number): (Way, u64),
    members: Vec<Member>,
    places: &[Option<Place>],
) -> Result<Vec<Rank>, String> {
    let mut hellos = Vec::new();
    for (member, place) in members.iter().zip(places) {
        let Some(place) = place else {
            return Err(format!(
                "no launcher's variables (RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE and the like) tell the rank of \
                 process {}",
                member.pid()
            ));
        };
        hellos.push(hello(way, member, place));
    }
    let here = hellos.first().map_or(0, |it| it.local_world_size);
    if usize::try_from(here) != Ok(hellos.len()) {
        let (those, takes) = (hellos.len(), way.takes);
        return Err(format!(
            "{those} of its {here} ranks on this node use GPUs and {takes}"
        ));
    }
    let mut homes = Vec::new();
    for member in &members {
        let pid = member.pid();
        if let Some(why) = taken(hub, pid) {
            return Err(why);
        }
        let home = processes.home_since(pid, member.process.began);
        homes.push(home.ok_or_else(|| format!("process {pid} has ended"))?);
    }
    let mut ranks = Vec::new();
    for ((member, hello), home) in members.into_iter().zip(hellos).zip(homes) {
        let Candidate {
            pid, uid, began, ..
        } = member.process;
        let newcomer = Newcomer {
            pid,
            process: Process::since(proc, pid, began),
            job: GuestJob {
                way: way.name,
                number,
            },
        };
        let session = hub.guest_joins(newcomer, uid, home.clone());
        hub.guest_says(session, &FromHook::Hello(hello));
        ranks.push(Rank::new(member, session, home));
    }
    Ok(ranks)
}

fn hello(way: Way, member: &Member, place: &Place) -> Hello {
    let profiler = way
        .profiler
        .map(|it| ("profiler".to_owned(), it.to_owned()));
    Hello {
        protocol: PROTOCOL,
        job: place.job.clone(),
        rank: place.rank,
        local_rank: place.local_rank,
        world_size: place.world_size,
        local_world_size: place.local_world_size,
        gpu: member.gpu.clone(),
        framework: way.framework.to_owned(),
        versions: BTreeMap::from_iter(profiler),
        group: String::new(),
    }
}
