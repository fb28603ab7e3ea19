//! Jobs without a hook, sampled by traces on demand where the administrator has turned that on: litd has their processes
//! record, reads what they write, and hands the core the frames that their hooks would send.
//!
//! - `job`: the stages of one job;
//! - `turns`: whose job records next;
//! - `errand`: reading, on threads of its own.
//!
//! One job records at a time, so that the memory for traces is bounded for the whole node.

mod errand;
mod job;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use litd_api::SampledJob;
use litd_attach::{Client, Owner, Ticket, Trace};
use litd_core::Peer;
use litd_proto::{FromHook, Hello, PROTOCOL};
use litd_units::Nanos;
use tokio::time::sleep;

use super::launcher::Place;
use super::{Newcomer, Wishes};
use crate::clock::since_1970;
use crate::hub::{Hub, Shared};
use crate::process::{Process, Processes};
use errand::{Errand, Errands, Outcome, Wished};
use job::{Member, Rank, Sampling, Stage, Wish};
use turns::{Due, HANGS, Turns};

/// How often to look.
const LOOK: Duration = Duration::from_millis(250);

/// After this drivers are asked again who uses their GPUs, while a job's processes are not placed; and so often it is
/// after twice the time, while the same processes use none.
const HOLDERS: Nanos = Nanos(10_000_000_000);
const DOUBLINGS: u32 = 6;

/// Where there are no optimizer's steps, all processes begin so long after the wish: all of them know of it by then.
const START: Nanos = Nanos(9_000_000_000);

/// Why a job with a hook is not asked for traces: each rank is measured in one way.
const HOOKED: &str = "its processes have the hook, which shows more";

/// The software that traces on demand are known by among profilers (`litctl stacks`).
const PROFILER: &str = "Kineto on demand";

/// What the processes of a job have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    uid: u32,
    /// The user or the pod with whose processes they are counted.
    owner: Owner,
    home: Option<String>,
    /// The process that started them.
    parent: i32,
}

impl Key {
    fn of(client: &Client) -> Self {
        Self {
            uid: client.sender.uid,
            owner: client.looked.owner.clone(),
            home: client.looked.job.clone(),
            parent: client.looked.parent,
        }
    }
}

/// The traces that processes were asked for.
type Tickets = Vec<(u32, Ticket)>;

/// The processes that ask for traces, by their jobs.
type There = BTreeMap<Key, Vec<Client>>;

/// A job, and its number among guests.
#[derive(Debug, Default)]
struct Job {
    number: u64,
    stage: Stage,
}

/// When drivers were asked who uses their GPUs.
#[derive(Debug, Default)]
struct Asked {
    last: Option<Nanos>,
    /// For these processes.
    pids: BTreeSet<u32>,
    times: u32,
}

impl Asked {
    /// Whether they are to be asked now, for these processes.
    fn is_time(&mut self, now: Nanos, pids: BTreeSet<u32>) -> bool {
        if !pids.is_subset(&self.pids) {
            self.times = 0;
        }
        let wait = Nanos(HOLDERS.0 << self.times.min(DOUBLINGS));
        let is_time = !pids.is_empty() && self.last.is_none_or(|then| now >= then + wait);
        if is_time {
            self.last = Some(now);
            self.times = self.times.saturating_add(1);
        }
        self.pids = pids;
        is_time
    }
}

/// The traces that are waited for.
#[derive(Debug)]
struct Recording {
    errand: u64,
    owner: Owner,
    since: Nanos,
    /// After this the errand hangs.
    until: Instant,
}

/// Samples jobs without a hook.
#[derive(Debug)]
pub(super) struct Sampler {
    wishes: Rc<Wishes>,
    proc: PathBuf,
    processes: Processes,
    every: Nanos,
    errands: Errands,
    outcomes: Receiver<(u64, Outcome)>,
    jobs: BTreeMap<Key, Job>,
    /// The last number of a job, or of an errand.
    last: u64,
    recording: Option<Recording>,
    turns: Turns,
    asked: Asked,
}

impl Sampler {
    /// `stale`: a job that is not sampled for so long is not steered.
    pub fn new(wishes: Rc<Wishes>, proc: &Path, every: Nanos, stale: Nanos) -> Self {
        let (out, outcomes) = channel();
        Self {
            wishes,
            proc: proc.to_owned(),
            processes: Processes::new(proc),
            every,
            errands: Errands::new(proc, out),
            outcomes,
            jobs: BTreeMap::new(),
            last: 0,
            recording: None,
            turns: Turns::new(every, stale),
            asked: Asked::default(),
        }
    }

    /// Samples for ever.
    pub async fn serve(mut self, hub: Shared) {
        loop {
            sleep(LOOK).await;
            self.look(&mut hub.borrow_mut());
        }
    }

    fn look(&mut self, hub: &mut Hub) {
        let now = hub.clock().now();
        if hub.is_stopping() {
            return;
        }
        while let Ok((number, outcome)) = self.outcomes.try_recv() {
            self.take(hub, now, number, outcome);
        }
        self.give_up(hub, now);
        let there = self.there();
        self.group(hub, now, &there);
        for job in self.jobs.values_mut() {
            job.stage.hear(hub, now, self.every);
        }
        self.gather(hub, now, &there);
        self.wish(now);
        self.tell(hub);
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The processes that ask, by their jobs.
    fn there(&self) -> There {
        let mut there = There::new();
        for client in self.wishes.clients() {
            there.entry(Key::of(&client)).or_default().push(client);
        }
        there
    }

    /// Jobs of processes that ask; jobs whose processes have gone are sampled no more.
    fn group(&mut self, hub: &mut Hub, now: Nanos, there: &There) {
        let asking = |key: &Key| there.get(key).into_iter().flatten().filter(|it| it.traces);
        for (key, job) in &mut self.jobs {
            let asks = |of: &Member| {
                let same = |it: &Client| (it.sender.pid, it.looked.began) == (of.pid, of.began);
                asking(key).any(same)
            };
            let members = job.stage.members();
            let Some(gone) = members.into_iter().find(|it| !asks(it)) else {
                continue;
            };
            let pid = gone.pid;
            let why = match Process::since(&self.proc, pid, gone.began).doubt() {
                None => format!("process {pid} asks no more"),
                Some(_) => format!("process {pid} has ended"),
            };
            job.stage.part(hub, now, &why, true);
        }
        self.jobs.retain(|key, _| asking(key).next().is_some());
        for key in there.keys() {
            // A job of one rank is observed at most: a trace of it would be for nothing.
            if asking(key).count() > 1 && !self.jobs.contains_key(key) {
                let number = self.number();
                let stage = Stage::default();
                self.jobs.insert(key.clone(), Job { number, stage });
            }
        }
    }

    /// `Gathers` -> `Places`, once at least two of a job's processes use one GPU each.
    fn gather(&mut self, hub: &mut Hub, now: Nanos, there: &There) {
        let mut gathering = BTreeSet::new();
        let mut found = Vec::new();
        for (key, job) in &mut self.jobs {
            let Stage::Gathers { why } = &mut job.stage else {
                continue;
            };
            let (mut members, mut several) = (Vec::new(), None);
            let (mut hooked, mut pids) = (false, BTreeSet::new());
            for client in there.get(key).into_iter().flatten() {
                let pid = client.sender.pid;
                hooked |= hub.has_hook(pid);
                pids.insert(pid);
                let peer = Peer {
                    pid,
                    uid: client.sender.uid,
                };
                match hub.held_by(peer).as_slice() {
                    [] => {}
                    [(device, gpu)] => members.push(Member {
                        pid,
                        uid: peer.uid,
                        began: client.looked.began,
                        own: client.looked.own,
                        gpu: gpu.clone(),
                        device: *device,
                    }),
                    [..] => several = Some(pid),
                }
            }
            if hooked {
                *why = HOOKED.to_owned();
                continue;
            }
            gathering.append(&mut pids);
            match several {
                Some(pid) => *why = format!("process {pid} uses several GPUs, and a rank has one"),
                None if members.len() < 2 => {
                    "less than two of its processes use GPUs".clone_into(why)
                }
                None => found.push((key.clone(), members)),
            }
        }
        if self.asked.is_time(now, gathering) {
            hub.look_for_holders();
        }
        for (key, members) in found {
            let errand = self.number();
            let pids = members.iter().map(|it| it.pid).collect();
            if self
                .errands
                .start(errand, key.owner.clone(), Errand::Places(pids))
                && let Some(job) = self.jobs.get_mut(&key)
            {
                job.stage = Stage::Places { errand, members };
            }
        }
    }

    fn take(&mut self, hub: &mut Hub, now: Nanos, number: u64, outcome: Outcome) {
        if let Some(it) = self.recording.take_if(|it| it.errand == number) {
            self.turns.end(&it.owner, now - it.since);
        }
        let of_it = |job: &&mut Job| match &job.stage {
            Stage::Places { errand, .. } => *errand == number,
            Stage::Samples(sampling) => {
                sampling.wish.as_ref().is_some_and(|it| it.errand == number)
            }
            _ => false,
        };
        let Some(job) = self.jobs.values_mut().find(of_it) else {
            return;
        };
        match outcome {
            Outcome::Places(places) => {
                let Stage::Places { members, .. } = &mut job.stage else {
                    return;
                };
                let members = std::mem::take(members);
                let joined = join(
                    hub,
                    &self.processes,
                    &self.proc,
                    job.number,
                    members,
                    &places,
                );
                job.stage.join(now, joined);
            }
            Outcome::Traces(sample) => {
                let Stage::Samples(sampling) = &mut job.stage else {
                    return;
                };
                let tickets = sampling.wish.iter().flat_map(|it| it.tickets.clone());
                self.wishes.end(tickets);
                match sample {
                    Ok(sample) => sampling.takes(hub, now, sample),
                    Err(why) => sampling.fails(hub, now, &why.text, why.too_short),
                }
            }
        }
    }

    /// An errand that hangs, as in a file system of the job's own, is waited for no longer.
    fn give_up(&mut self, hub: &mut Hub, now: Nanos) {
        if let Some(recording) = &self.recording
            && Instant::now() > recording.until
        {
            let hangs = "reading its traces takes too long: the file system may hang".to_owned();
            let errand = recording.errand;
            self.take(hub, now, errand, Outcome::Traces(Err(hangs.into())));
        }
    }

    /// Has the job record whose turn it is.
    fn wish(&mut self, now: Nanos) {
        if self.recording.is_some() {
            return;
        }
        let sampled = self.jobs.iter().filter_map(|(key, job)| match &job.stage {
            Stage::Samples(sampling) if sampling.is_asked() => Some((key, job.number, sampling)),
            _ => None,
        });
        let (mut owners, mut due) = (Vec::new(), Vec::new());
        for (Key { owner, .. }, job, sampling) in sampled {
            owners.push(owner.clone());
            due.extend(sampling.due(now).map(|since| Due {
                job,
                owner: owner.clone(),
                since,
                waits: sampling.rounds.waits(),
            }));
        }
        self.turns.keep(owners);
        let Some((number, most)) = self.turns.next(&due) else {
            return;
        };
        let errand = self.number();
        let next = self.jobs.iter_mut().find(|(_, job)| job.number == number);
        let Some((Key { owner, .. }, job)) = next else {
            return;
        };
        let Stage::Samples(sampling) = &mut job.stage else {
            return;
        };
        let duration = |it: Nanos| Duration::from_nanos(u64::try_from(it.0).unwrap_or(0));
        let patience = duration(most);
        let asked = ask(&self.wishes, sampling).and_then(|(files, tickets)| {
            let errands = &mut self.errands;
            if errands.start(errand, owner.clone(), Errand::Traces { files, patience }) {
                return Some(tickets);
            }
            self.wishes.end(tickets);
            None
        });
        let Some(tickets) = asked else {
            return sampling.rounds.put_off(now);
        };
        self.recording = Some(Recording {
            errand,
            owner: owner.clone(),
            since: now,
            until: Instant::now() + duration(most + HANGS),
        });
        sampling.rounds.begin(now);
        sampling.wish = Some(Wish {
            errand,
            tickets,
            since: now,
            counts: sampling.is_wanted(),
        });
    }

    /// Shows how far each job has come.
    fn tell(&self, hub: &Hub) {
        let told = self.jobs.iter().map(|(key, job)| {
            let named = job
                .stage
                .sessions()
                .into_iter()
                .find_map(|it| hub.attached_as(it));
            SampledJob {
                job: named.map(|(job, _)| job.to_owned()),
                home: key.home.clone(),
                uid: key.uid,
                pids: job.stage.members().iter().map(|it| it.pid).collect(),
                every_seconds: self.every.as_secs_f64(),
                text: job.stage.words(),
            }
        });
        self.wishes.show(told.collect());
    }
}

/// Asks all ranks of a job for a trace. `None`: one can't be asked, as somebody takes a trace by hand, or the process is
/// about to go.
fn ask(wishes: &Wishes, sampling: &Sampling) -> Option<(Vec<Wished>, Tickets)> {
    let start = u64::try_from((since_1970() + START).0 / 1_000_000).unwrap_or(0);
    let window = sampling.rounds.window(start);
    let (mut files, mut tickets) = (Vec::new(), Vec::new());
    for rank in &sampling.ranks {
        let asked = wishes.file().ok().and_then(|file| {
            let trace = Trace {
                file,
                window,
                host: false,
            };
            let ticket = wishes.want(rank.member.pid, &trace).ok()?;
            Some((trace.written(rank.member.own), ticket))
        });
        let Some((file, ticket)) = asked else {
            wishes.end(tickets);
            return None;
        };
        files.push(wished(&rank.member, file));
        tickets.push((rank.member.pid, ticket));
    }
    Some((files, tickets))
}

fn wished(member: &Member, file: String) -> Wished {
    Wished {
        pid: member.pid,
        uid: member.uid,
        began: member.began,
        file: file.into(),
    }
}

/// Has all ranks of a job say hello, if their launcher's variables agree.
fn join(
    hub: &mut Hub,
    processes: &Processes,
    proc: &Path,
    job: u64,
    members: Vec<Member>,
    places: &[Option<Place>],
) -> Result<Vec<Rank>, String> {
    let mut hellos = Vec::new();
    for (member, place) in members.iter().zip(places) {
        let Some(place) = place else {
            return Err(format!(
                "no launcher's variables (RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE and the like) tell the rank of \
                 process {}",
                member.pid
            ));
        };
        hellos.push(hello(member, place));
    }
    let here = hellos.first().map_or(0, |it| it.local_world_size);
    if usize::try_from(here) != Ok(hellos.len()) {
        let those = hellos.len();
        return Err(format!(
            "{those} of its {here} ranks on this node use GPUs and ask for traces"
        ));
    }
    let mut homes = Vec::new();
    for member in &members {
        if hub.has_hook(member.pid) {
            return Err(HOOKED.to_owned());
        }
        let home = processes.home_since(member.pid, member.began);
        homes.push(home.ok_or_else(|| format!("process {} has ended", member.pid))?);
    }
    let mut ranks = Vec::new();
    for ((member, hello), home) in members.into_iter().zip(hellos).zip(homes) {
        let newcomer = Newcomer {
            pid: member.pid,
            process: Process::since(proc, member.pid, member.began),
            job,
        };
        let session = hub.guest_joins(newcomer, member.uid, home);
        hub.guest_says(session, &FromHook::Hello(hello));
        ranks.push(Rank::new(member, session));
    }
    Ok(ranks)
}

fn hello(member: &Member, place: &Place) -> Hello {
    Hello {
        protocol: PROTOCOL,
        job: place.job.clone(),
        rank: place.rank,
        local_rank: place.local_rank,
        world_size: place.world_size,
        local_world_size: place.local_world_size,
        gpu: member.gpu.clone(),
        framework: "pytorch".to_owned(),
        versions: BTreeMap::from([("profiler".to_owned(), PROFILER.to_owned())]),
        group: String::new(),
    }
}
