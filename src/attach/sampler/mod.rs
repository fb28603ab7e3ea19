//! Jobs without a hook, sampled by traces on demand where the administrator has turned that on: litd has their processes
//! record, reads what they write, and hands the core the frames that their hooks would send.
//!
//! - `job`: one job that is sampled;
//! - `holders`: processes that ask dynolog, where litd asks it for traces;
//! - `turns`: whose job records next;
//! - `errand`: reading, on threads of its own.
//!
//! One job records at a time, so that the memory for traces is bounded for the whole node.

mod errand;
mod holders;
mod job;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use litd_attach::{Client, Owner, Rounds, Ticket, Trace};
use litd_units::Nanos;
use tokio::time::sleep;

use super::Wishes;
use super::errands::Errands;
use super::launcher::Place;
use super::ranks::{
    Asked, Candidate, Key, Member, Sample, Sampled as _, Stage, Way, gathered, join, shown,
};
use crate::clock::since_1970;
use crate::hub::{Hub, Shared};
use crate::process::{Process, Processes};
use errand::{Errand, Failure, Outcome, Request, Wished};
use holders::Holders;
use job::{Sampling, Wish};
use turns::{Due, HANGS, Turns};

/// How often to look.
const LOOK: Duration = Duration::from_millis(250);

/// Where there are no optimizer's steps, all processes begin so long after the wish: all of them know of it by then.
const START: Nanos = Nanos(9_000_000_000);

/// Traces on demand as a way to measure ranks.
const WAY: Way = Way {
    name: "Kineto on demand",
    framework: "pytorch",
    profiler: Some("Kineto on demand"),
    takes: "ask for traces",
};

/// The marks of a client's job.
fn key(client: &Client) -> Key {
    Key {
        uid: client.sender.uid,
        owner: client.looked.owner.clone(),
        home: client.looked.job.clone(),
        parent: client.looked.parent,
    }
}

fn candidate(client: &Client) -> Candidate {
    Candidate {
        pid: client.sender.pid,
        uid: client.sender.uid,
        began: client.looked.began,
        own: client.looked.own,
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
    stage: Stage<Sampling>,
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
    /// Used where litd asks dynolog.
    holders: Holders,
    proc: PathBuf,
    processes: Processes,
    errands: Errands<Owner, Outcome>,
    outcomes: Receiver<(u64, Outcome)>,
    jobs: BTreeMap<Key, Job>,
    /// The last number of a job, or of an errand.
    last: u64,
    recording: Option<Recording>,
    turns: Turns,
    asked: Asked<u32>,
}

impl Sampler {
    /// `stale`: a job that is not sampled for so long is not steered.
    pub fn new(wishes: Rc<Wishes>, proc: &Path, every: Nanos, stale: Nanos) -> Self {
        let (out, outcomes) = channel();
        Self {
            wishes,
            holders: Holders::default(),
            proc: proc.to_owned(),
            processes: Processes::new(proc),
            errands: Errands::new("kineto-read", out),
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
        self.find(hub, now);
        let there = self.there();
        self.group(hub, &there);
        let every = self.turns.every();
        for job in self.jobs.values_mut() {
            job.stage.hear(hub, now, |ranks, told| {
                Sampling::new(ranks, told, Rounds::new(every, now))
            });
        }
        self.hand_over(hub, now);
        self.gather(hub, now, &there);
        self.wish(now);
        self.tell(hub);
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Looks for processes that ask dynolog, where litd asks it.
    fn find(&mut self, hub: &mut Hub, now: Nanos) {
        let Some(through) = self.wishes.through() else {
            return;
        };
        if self.holders.is_time(now, self.turns.every()) {
            hub.look_for_holders();
        }
        let users: BTreeMap<u32, u32> = hub.known_holders().map(|it| (it.pid, it.uid)).collect();
        let there = users.keys().copied().collect();
        let mut new: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for pid in self.holders.keep(&self.proc, &there) {
            let uid = users.get(&pid).copied().unwrap_or_default();
            new.entry(uid).or_default().push(pid);
        }
        for (uid, pids) in new {
            self.last += 1;
            let (through, those) = (through.clone(), pids.clone());
            let errand = Errand::Clients {
                through,
                pids: those,
            };
            let run = errand::run(self.proc.clone(), errand);
            if self.errands.start(self.last, Owner::User(uid), run) {
                self.holders.begin(self.last, pids);
            }
        }
    }

    /// The processes that ask, by their jobs.
    fn there(&self) -> There {
        let mut there = There::new();
        let own = self.wishes.clients();
        let is_own = |it: &&Client| own.iter().any(|own| own.sender.pid == it.sender.pid);
        let dynologs = self.holders.clients().filter(|it| !is_own(it));
        for client in own.iter().chain(dynologs) {
            there.entry(key(client)).or_default().push(client.clone());
        }
        there
    }

    /// Jobs of processes that ask; jobs whose processes have gone are sampled no more.
    fn group(&mut self, hub: &mut Hub, there: &There) {
        let asking = |key: &Key| there.get(key).into_iter().flatten().filter(|it| it.traces);
        for (key, job) in &mut self.jobs {
            let asks = |of: &Member| {
                let same = |it: &Client| {
                    (it.sender.pid, it.looked.began) == (of.process.pid, of.process.began)
                };
                asking(key).any(same)
            };
            let members = job.stage.members();
            let Some(gone) = members.into_iter().find(|it| !asks(it)) else {
                continue;
            };
            let Candidate { pid, began, .. } = gone.process;
            let why = match Process::since(&self.proc, pid, began).doubt() {
                None => format!("process {pid} asks no more"),
                Some(_) => format!("process {pid} has ended"),
            };
            job.stage.part(hub, &why);
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

    /// `Samples` -> `Rests` of a job that is asked no more and has rings: its rings may be read instead.
    fn hand_over(&mut self, hub: &mut Hub, now: Nanos) {
        for job in self.jobs.values_mut() {
            let Stage::Samples(sampling) = &job.stage else {
                continue;
            };
            let mut pids = sampling.ranks.iter().map(|it| it.member.pid());
            if sampling.is_over() && pids.any(|it| hub.is_guest_found(it)) {
                let why = sampling.words();
                job.stage.rest(hub, now, &why);
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
            let clients = || there.get(key).into_iter().flatten();
            match gathered(hub, clients().map(candidate)) {
                Ok(members) => found.push((key.clone(), members)),
                Err(missing) => {
                    *why = missing.why;
                    if !missing.may_come {
                        continue;
                    }
                }
            }
            gathering.extend(clients().map(|it| it.sender.pid));
        }
        if self.asked.is_time(now, gathering) {
            hub.look_for_holders();
        }
        for (key, members) in found {
            let errand = self.number();
            let pids = members.iter().map(Member::pid).collect();
            let run = errand::run(self.proc.clone(), Errand::Places(pids));
            if self.errands.start(errand, key.owner.clone(), run)
                && let Some(job) = self.jobs.get_mut(&key)
            {
                job.stage = Stage::Places { errand, members };
            }
        }
    }

    fn take(&mut self, hub: &mut Hub, now: Nanos, number: u64, outcome: Outcome) {
        match outcome {
            Outcome::Clients(clients) => self.holders.take(number, clients),
            Outcome::Places(places) => self.take_places(hub, now, number, &places),
            Outcome::Traces(sample) => self.take_traces(hub, now, number, sample),
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

    fn take_traces(
        &mut self,
        hub: &mut Hub,
        now: Nanos,
        number: u64,
        sample: Result<Sample, Failure>,
    ) {
        if let Some(it) = self.recording.take_if(|it| it.errand == number) {
            self.turns.end(&it.owner, now - it.since);
        }
        let its = |it: &Sampling| it.wish.as_ref().is_some_and(|it| it.errand == number);
        let sampling = self.jobs.values_mut().find_map(|job| match &mut job.stage {
            Stage::Samples(sampling) if its(sampling) => Some(sampling),
            _ => None,
        });
        let Some(sampling) = sampling else {
            return;
        };
        let tickets = sampling.wish.iter().flat_map(|it| it.tickets.clone());
        self.wishes.end(tickets);
        match sample {
            Ok(sample) => sampling.takes(hub, now, sample),
            Err(why) => sampling.fails(hub, now, &why.text, why.too_short),
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
        let asked = ask(&self.wishes, &self.holders, sampling).and_then(|asking| {
            let Asking {
                files,
                tickets,
                through,
            } = asking;
            let traces = Errand::Traces {
                files,
                through,
                patience,
            };
            let run = errand::run(self.proc.clone(), traces);
            if self.errands.start(errand, owner.clone(), run) {
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
            counts: sampling.told.is_sample_wanted(),
        });
    }

    /// Shows how far each job has come.
    fn tell(&self, hub: &Hub) {
        let every = self.turns.every().as_secs_f64();
        let jobs = self.jobs.iter();
        let told = jobs.map(|(key, job)| shown(hub, key, &job.stage, every));
        self.wishes.show(told.collect());
    }
}

/// Traces of all ranks of a job.
#[derive(Default)]
struct Asking {
    files: Vec<Wished>,
    /// Of those that ask litd.
    tickets: Tickets,
    /// Of those that ask dynolog.
    through: Vec<Request>,
}

/// Asks all ranks of a job for a trace. `None`: one can't be asked, as somebody takes a trace by hand, or the process is
/// about to go.
fn ask(wishes: &Wishes, holders: &Holders, sampling: &Sampling) -> Option<Asking> {
    let start = u64::try_from((since_1970() + START).0 / 1_000_000).unwrap_or(0);
    let window = sampling.rounds.window(start);
    let mut asking = Asking::default();
    for rank in &sampling.ranks {
        let asked = wishes.file().ok().and_then(|file| {
            let trace = Trace {
                file,
                window,
                host: false,
            };
            let pid = rank.member.pid();
            match through_dynolog(wishes, holders, pid, &trace) {
                Some(request) => asking.through.push(request),
                None => asking.tickets.push((pid, wishes.want(pid, &trace).ok()?)),
            }
            Some(trace.written(rank.member.process.own))
        });
        let Some(file) = asked else {
            wishes.end(asking.tickets);
            return None;
        };
        asking.files.push(wished(&rank.member, file));
    }
    Some(asking)
}

/// The request for a trace of a process that asks dynolog.
fn through_dynolog(wishes: &Wishes, holders: &Holders, pid: u32, trace: &Trace) -> Option<Request> {
    let through = wishes.through().filter(|_| !wishes.knows(pid))?.clone();
    Some(Request {
        through,
        client: holders.client(pid)?.clone(),
        text: trace.text().ok()?,
    })
}

fn wished(member: &Member, file: String) -> Wished {
    let Candidate {
        pid, uid, began, ..
    } = member.process;
    Wished {
        pid,
        uid,
        began,
        file: file.into(),
    }
}
