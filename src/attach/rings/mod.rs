//! Jobs without a hook, sampled by the rings in which litd's plugin for NCCL and RCCL notes arrivals at collectives,
//! where the administrator has named their directory: litd finds them, checks which process writes each, reads them,
//! and hands the core the frames that hooks would send if they timed arrivals at collectives alone.
//!
//! - `search`: the rings that are there, and their writers;
//! - `refused`: the files that are not read;
//! - `read`: from a job's rings to arrivals in one iteration;
//! - `job`: one job that is sampled;
//! - `turns`: which job is read next.
//!
//! litd never locks a ring, never writes into one, and maps none: a process that shortens its ring does no more to
//! litd than an error. Searching and reading have threads of their own, and one job is read at a time, so that the
//! memory for that is bounded for the whole node.

mod job;
mod read;
mod refused;
mod search;
mod turns;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use litd_api::{JobStatus, RingsSeen};
use litd_attach::Owner;
use litd_core::{Event, Owners};
use litd_units::Nanos;
use tokio::time::sleep;

use super::errands::{Errands, Out};
use super::launcher::{Place, places};
use super::ranks::{
    Asked, Candidate, Key, Member, Sampled as _, Stage, Way, gathered, join, say_how, shown,
};
use crate::hub::{Hub, Shared};
use crate::process::{Process, Processes};
use job::Listening;
use read::{Failure, Open, Read, Reading};
use refused::Refused;
pub(super) use search::trouble;
use search::{Found, Refusal, Ring, Search, Writer};
use turns::Turns;

/// How often to look at what has come of searching and reading.
const LOOK: Duration = Duration::from_millis(250);

/// How often to search the directory.
const SEARCH: Duration = Duration::from_secs(2);

/// Reading takes some milliseconds: one that has not ended within this hangs.
const HANGS: Duration = Duration::from_secs(15);

/// A job whose rings show no iterations is left alone for so long, and for twice as long the next time.
const ALONE: Nanos = Nanos(120_000_000_000);
const DOUBLINGS: u32 = 5;

/// A trouble with the directory is told of once in so long.
const QUIET: Duration = Duration::from_secs(600);

/// Rings as a way to measure ranks.
const WAY: Way = Way {
    name: "arrivals at collectives",
    framework: "nccl",
    profiler: None,
    takes: "have a ring",
};

/// In whose files an errand is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    /// The administrator's directory.
    Directory,
    Of(Owner),
}

/// The outcome of an errand.
#[derive(Debug)]
enum Outcome {
    Found(Box<Found>),
    Places(Vec<Option<Place>>),
    Read(Read),
}

/// A job, and its number among guests.
#[derive(Debug, Default)]
struct Job {
    number: u64,
    stage: Stage<Listening>,
    /// How often it was left alone, because its rings showed no iterations.
    left_alone: u32,
}

/// The search of the directory.
#[derive(Debug, Default)]
struct Searching {
    /// Since when an errand is under way.
    since: Option<Instant>,
    last: Option<Instant>,
    /// When drivers were asked for the processes that may write files that nobody is known to write, by when the
    /// directory had changed last.
    asked: Asked<(i64, i64)>,
    changed: BTreeSet<(i64, i64)>,
    unclaimed: u64,
    /// The holders that were searched through.
    holders: BTreeSet<(u32, u32)>,
    /// Whether all are to be searched through again.
    again: bool,
    trouble: Option<String>,
    told: Option<(String, Instant)>,
}

impl Searching {
    /// Takes what is wrong with the directory. Returns it if it is to be told.
    fn takes(&mut self, trouble: Option<String>) -> Option<String> {
        self.trouble.clone_from(&trouble);
        let trouble = trouble?;
        if let Some((told, then)) = &self.told
            && *told == trouble
            && then.elapsed() < QUIET
        {
            return None;
        }
        self.told = Some((trouble.clone(), Instant::now()));
        Some(format!(
            "no rings of the plugin for NCCL are read: {trouble}"
        ))
    }
}

/// The state of all rings, for answers.
#[derive(Debug, Default)]
pub struct Shown(RefCell<RingsSeen>);

impl Shown {
    /// The same as an answer.
    #[must_use]
    pub fn seen(&self) -> RingsSeen {
        self.0.borrow().clone()
    }

    /// Says in the status of jobs which of them are measured by rings.
    pub fn add_to(&self, jobs: &mut [JobStatus]) {
        say_how(jobs, &self.0.borrow().sampled, |it| {
            format!(
                "arrivals at collectives, by litd's plugin for NCCL; {}",
                it.text
            )
        });
    }
}

/// Samples jobs by rings.
#[derive(Debug)]
pub(super) struct Rings {
    shown: Rc<Shown>,
    directory: PathBuf,
    proc: PathBuf,
    processes: Processes,
    owners: Owners,
    errands: Errands<Whose, Outcome>,
    outcomes: Receiver<(u64, Outcome)>,
    searching: Searching,
    refused: Refused,
    /// The ring that each process writes.
    rings: BTreeMap<u32, (Key, Ring)>,
    jobs: BTreeMap<Key, Job>,
    /// The last number of a job, or of an errand.
    last: u64,
    /// The errand that reads, and until when that is waited for.
    reading: Option<(u64, Instant)>,
    turns: Turns<Owner, Key>,
}

impl Rings {
    pub fn new(shown: Rc<Shown>, directory: &Path, proc: &Path, owners: Owners) -> Self {
        let (out, outcomes) = channel();
        shown.0.borrow_mut().directory = directory.display().to_string();
        Self {
            shown,
            directory: directory.to_owned(),
            proc: proc.to_owned(),
            processes: Processes::new(proc),
            owners,
            errands: Errands::new("nccl-read", out),
            outcomes,
            searching: Searching::default(),
            refused: Refused::default(),
            rings: BTreeMap::new(),
            jobs: BTreeMap::new(),
            last: 0,
            reading: None,
            turns: Turns::default(),
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
        self.search(hub, now);
        self.group(hub);
        for job in self.jobs.values_mut() {
            job.stage.hear(hub, now, Listening::new);
        }
        self.gather(hub);
        self.read(now);
        self.tell(hub);
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Searches the directory now and then. Who holds GPUs is asked for files that nobody is known to write.
    fn search(&mut self, hub: &mut Hub, now: Nanos) {
        let changed = self.searching.changed.clone();
        if self.searching.asked.is_time(now, changed) {
            hub.look_for_holders();
            self.searching.again = true;
        }
        let is_time = self.searching.last.is_none_or(|it| it.elapsed() >= SEARCH);
        if self.searching.since.is_some() || !is_time {
            return;
        }
        let holders: BTreeSet<(u32, u32)> =
            hub.known_holders().map(|it| (it.pid, it.uid)).collect();
        let is_news = !holders.is_subset(&self.searching.holders);
        let search = Search {
            proc: self.proc.clone(),
            directory: self.directory.clone(),
            owners: self.owners.clone(),
            known: self
                .rings
                .iter()
                .map(|(&pid, (_, ring))| (ring.id.clone(), pid))
                .collect(),
            refused: self.refused.ids(),
            holders: (is_news || self.searching.again).then(|| holders.clone()),
        };
        let number = self.number();
        let found = move |out: &Out<Outcome>| out.send(Outcome::Found(search.found().into()));
        if self.errands.start(number, Whose::Directory, found) {
            let now = Some(Instant::now());
            (self.searching.since, self.searching.last) = (now, now);
            self.searching.holders = holders;
            self.searching.again = false;
        }
    }

    fn take(&mut self, hub: &mut Hub, now: Nanos, number: u64, outcome: Outcome) {
        match outcome {
            Outcome::Found(found) => self.take_found(hub, now, *found),
            Outcome::Places(places) => self.take_places(hub, now, number, &places),
            Outcome::Read(read) => {
                if self.reading.is_some_and(|(reading, _)| reading == number) {
                    self.reading = None;
                }
                self.take_read(hub, now, number, read);
            }
        }
    }

    fn take_found(&mut self, hub: &mut Hub, now: Nanos, found: Found) {
        self.searching.since = None;
        if let Some(told) = self.searching.takes(found.trouble) {
            hub.handle(Event::Outside(&told));
        }
        if let Some(locked) = &found.locked {
            self.refused.keep(locked);
        }
        for refusal in found.refused {
            self.refuse(hub, now, refusal);
        }
        for (owner, writer) in found.overfull {
            let told = self.refused.overfull(owner, Instant::now());
            tell(hub, &writer, told);
        }
        self.searching.unclaimed = found.unclaimed;
        self.searching.changed = found.changed.into_iter().collect();
        let proc = &self.proc;
        self.rings.retain(|&pid, (_, ring)| {
            let began = ring.writer.process.began;
            Process::since(proc, pid, began).doubt().is_none()
        });
        for ring in found.rings {
            self.refused.forget(&ring.id);
            let pid = ring.writer.process.pid;
            if let Some((_, other)) = self.rings.get(&pid) {
                let why = format!("is the second one of process {pid}, besides {}", other.name);
                let refusal = refusal_of(&ring, why);
                self.refuse(hub, now, refusal);
            } else {
                let key = key_of(&ring.writer);
                self.rings.insert(pid, (key, ring));
            }
        }
    }

    /// A file is not read any more. It is one error, and a job that counts on it is measured no more.
    fn refuse(&mut self, hub: &mut Hub, now: Nanos, refusal: Refusal) {
        let known = self
            .rings
            .iter()
            .find(|(_, (_, ring))| ring.id == refusal.id);
        if let Some(pid) = known.map(|(&pid, _)| pid)
            && let Some((key, _)) = self.rings.remove(&pid)
            && let Some(job) = self.jobs.get_mut(&key)
        {
            let why = format!("the ring of process {pid} {}", refusal.why);
            job.stage.rest(hub, now, &why);
        }
        let writer = refusal.writer.clone();
        let told = self.refused.add(refusal, Instant::now());
        tell(hub, &writer, told);
    }

    /// Jobs of processes that write rings; those whose processes have ended are sampled no more.
    fn group(&mut self, hub: &mut Hub) {
        let mut there: BTreeMap<&Key, BTreeSet<(u32, u64)>> = BTreeMap::new();
        for (key, ring) in self.rings.values() {
            let Candidate { pid, began, .. } = ring.writer.process;
            there.entry(key).or_default().insert((pid, began));
        }
        for (key, job) in &mut self.jobs {
            let gone = |it: &&Member| {
                let process = (it.process.pid, it.process.began);
                there.get(key).is_none_or(|those| !those.contains(&process))
            };
            let members = job.stage.members();
            if let Some(pid) = members.into_iter().find(gone).map(Member::pid) {
                let why = format!("process {pid} has ended");
                job.stage.part(hub, &why);
            }
        }
        self.jobs.retain(|key, _| there.contains_key(key));
        // A job of one rank waits for nobody here.
        let new = there
            .into_iter()
            .filter(|(key, those)| those.len() > 1 && !self.jobs.contains_key(key));
        for key in new.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            let (number, stage) = (self.number(), Stage::default());
            let left_alone = 0;
            self.jobs.insert(
                key,
                Job {
                    number,
                    stage,
                    left_alone,
                },
            );
        }
    }

    /// `Gathers` -> `Places`, once at least two of a job's processes use one GPU each.
    fn gather(&mut self, hub: &mut Hub) {
        let mut found = Vec::new();
        for (key, job) in &mut self.jobs {
            let Stage::Gathers { why } = &mut job.stage else {
                continue;
            };
            let own = self.rings.values().filter(|(of, _)| of == key);
            match gathered(hub, own.map(|(_, ring)| ring.writer.process)) {
                Ok(members) => found.push((key.clone(), members)),
                Err(missing) => *why = missing.why,
            }
        }
        for (key, members) in found {
            let number = self.number();
            let pids: Vec<u32> = members.iter().map(Member::pid).collect();
            let proc = self.proc.clone();
            let read = move |out: &Out<Outcome>| out.send(Outcome::Places(places(&proc, &pids)));
            if self
                .errands
                .start(number, Whose::Of(key.owner.clone()), read)
                && let Some(job) = self.jobs.get_mut(&key)
            {
                let errand = number;
                job.stage = Stage::Places { errand, members };
            }
        }
    }

    fn take_places(&mut self, hub: &mut Hub, now: Nanos, number: u64, places: &[Option<Place>]) {
        let mut jobs = self.jobs.values_mut();
        let of_it = jobs.find_map(|job| Some((job.stage.take_members(number)?, job)));
        let Some((members, job)) = of_it else {
            return;
        };
        let job_of = (WAY, job.number);
        let joined = join(hub, &self.processes, &self.proc, job_of, members, places);
        job.stage.join(now, joined);
    }

    /// Has the rings of the next job read whose look is over.
    fn read(&mut self, now: Nanos) {
        if self.reading.is_some() {
            return;
        }
        let number = self.last + 1;
        self.turns
            .keep(self.jobs.keys().map(|key| (&key.owner, key)));
        let due = self.jobs.iter().filter(
            |(_, job)| matches!(&job.stage, Stage::Samples(listening) if listening.is_due(now)),
        );
        let due = due.map(|(key, _)| (key.owner.clone(), key.clone()));
        for (owner, key) in self.turns.in_turn(due.collect()) {
            let stage = self.jobs.get_mut(&key).map(|job| &mut job.stage);
            let Some(Stage::Samples(listening)) = stage else {
                continue;
            };
            let ranks = listening.ranks().iter().zip(&listening.units);
            let open = ranks.map(|(rank, &tick)| {
                let (_, ring) = self.rings.get(&rank.member.pid())?;
                Some(Open {
                    process: rank.member.process,
                    file: ring.file.clone(),
                    reader: ring.reader.clone(),
                    tick,
                })
            });
            // Else a process has just ended.
            let Some(rings) = open.collect::<Option<Vec<Open>>>() else {
                continue;
            };
            let skips = listening.is_new();
            let reading = Reading { rings, skips };
            let read = move |out: &Out<Outcome>| out.send(Outcome::Read(reading.read()));
            if self.errands.start(number, Whose::Of(owner.clone()), read) {
                listening.begins(number, now);
                self.turns.reads(&owner, &key);
                self.last = number;
                self.reading = Some((number, Instant::now() + HANGS));
                return;
            }
        }
    }

    fn take_read(&mut self, hub: &mut Hub, now: Nanos, number: u64, read: Read) {
        let Some(job) = of_errand(&mut self.jobs, number) else {
            return;
        };
        let Stage::Samples(listening) = &mut job.stage else {
            return;
        };
        listening.units = read.rings.iter().map(|it| it.tick).collect();
        for open in read.rings {
            if let Some((_, ring)) = self.rings.get_mut(&open.process.pid) {
                ring.reader = open.reader;
            }
        }
        match read.outcome {
            Ok(None) => listening.skipped(),
            Ok(Some(sample)) => listening.takes(hub, sample),
            Err(Failure::Ring(pid, why)) => {
                let refusal = self.rings.get(&pid).map(|(_, ring)| refusal_of(ring, why));
                if let Some(refusal) = refusal {
                    self.refuse(hub, now, refusal);
                }
            }
            Err(why) => {
                if listening.fails(hub, now, &why) {
                    let text = job.stage.words();
                    let time = Nanos(ALONE.0 << job.left_alone.min(DOUBLINGS));
                    job.left_alone = job.left_alone.saturating_add(1);
                    job.stage.rest_for(hub, now, time, &text);
                }
            }
        }
    }

    /// Reading that hangs is waited for no longer. A search that hangs is told of.
    fn give_up(&mut self, hub: &mut Hub, now: Nanos) {
        let since = self.searching.since;
        if since.is_some_and(|it| it.elapsed() > HANGS)
            && let Some(told) = self
                .searching
                .takes(Some("the search for rings hangs".to_owned()))
        {
            hub.handle(Event::Outside(&told));
        }
        if let Some((number, deadline)) = self.reading
            && Instant::now() > deadline
        {
            self.reading = None;
            if let Some(job) = of_errand(&mut self.jobs, number) {
                job.stage.rest(hub, now, "reading its rings takes too long");
            }
        }
    }

    /// Shows how far each job has come.
    fn tell(&self, hub: &Hub) {
        let told = self.jobs.iter().map(|(key, job)| {
            let every = match &job.stage {
                Stage::Samples(listening) => listening.lasts().as_secs_f64(),
                _ => 0.0,
            };
            shown(hub, key, &job.stage, every)
        });
        let mut seen = self.shown.0.borrow_mut();
        seen.sampled = told.collect();
        seen.rings = self.rings.len() as u64;
        seen.unclaimed = self.searching.unclaimed;
        seen.refused = self.refused.words();
        seen.trouble.clone_from(&self.searching.trouble);
    }
}

/// The job whose rings an errand reads.
fn of_errand(jobs: &mut BTreeMap<Key, Job>, number: u64) -> Option<&mut Job> {
    jobs.values_mut().find(|job| match &job.stage {
        Stage::Samples(it) => it.reading.is_some_and(|look| look.errand == number),
        _ => false,
    })
}

/// The job of a ring's process.
fn key_of(writer: &Writer) -> Key {
    Key {
        uid: writer.process.uid,
        owner: writer.owner.clone(),
        home: writer.home.as_ref().map(|home| home.as_str().to_owned()),
        parent: writer.parent,
    }
}

/// Has the log say something of a process's rings, as an event of its user's or its pod's.
fn tell(hub: &mut Hub, writer: &Writer, told: Option<String>) {
    if let Some(told) = told {
        hub.handle(Event::Theirs {
            uid: writer.process.uid,
            home: writer.home.as_ref(),
            what: &told,
        });
    }
}

fn refusal_of(ring: &Ring, why: String) -> Refusal {
    Refusal {
        id: ring.id.clone(),
        name: ring.name.clone(),
        writer: ring.writer.clone(),
        why,
        may_pass: false,
    }
}
