//! Traces on demand that an administrator requests (`litctl trace`).

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::PathBuf;

use litd_api::{
    Datagrams, JobStatus, Problem, SampledJob, TraceStage, TraceWish, Traceable, TraceableProcess,
    WishedTrace, WishedTraces,
};
use litd_attach::{Client, Counts, NoWish, Stage, Ticket, Trace, Window};

use super::ranks::say_how;
use super::through::Through;
use super::{Desks, now};

/// A file with a new random id at each reading.
const RANDOM_ID: &str = "/proc/sys/kernel/random/uuid";

/// The most processes of one wish.
const MOST: usize = 64;

/// Where all ranks of a job begin: the next iteration whose number is a multiple of so many traces' lengths. Ranks
/// learn of a wish within 5 s of each other.
const APART: u32 = 5;

/// Where traces are wished for.
#[derive(Debug)]
pub struct Wishes {
    desks: Desks,
    /// Where dynolog answers the clients that know it by its name.
    through: Option<Through>,
    /// Where processes write, as each one has it.
    folder: PathBuf,
    troubles: Vec<String>,
    /// Jobs that litd samples, as far as it has come with each.
    sampled: RefCell<Vec<SampledJob>>,
}

impl Wishes {
    pub(super) fn new(
        desks: Desks,
        through: Option<Through>,
        folder: PathBuf,
        troubles: Vec<String>,
    ) -> Self {
        Self {
            desks,
            through,
            folder,
            troubles,
            sampled: RefCell::default(),
        }
    }

    /// The processes that ask now.
    pub(super) fn clients(&self) -> Vec<Client> {
        let mut desk = self.desks.desk();
        desk.forget_gone(now());
        desk.clients().cloned().collect()
    }

    /// The way through dynolog, if there is one.
    pub(super) fn through(&self) -> Option<&Through> {
        self.through.as_ref()
    }

    /// Whether a process asks litd itself.
    pub(super) fn knows(&self, pid: u32) -> bool {
        self.desks.desk().get(pid).is_some()
    }

    /// Wishes for a trace of one process.
    ///
    /// # Errors
    /// The process can't be told now.
    pub(super) fn want(&self, pid: u32, trace: &Trace) -> Result<Ticket, NoWish> {
        self.desks.desk().want(now(), pid, trace)
    }

    /// These traces are wished for no more.
    pub(super) fn end(&self, tickets: impl IntoIterator<Item = (u32, Ticket)>) {
        let mut desk = self.desks.desk();
        for (pid, ticket) in tickets {
            desk.end(pid, ticket);
        }
    }

    /// From now on this is shown of the jobs that litd samples.
    pub(super) fn show(&self, sampled: Vec<SampledJob>) {
        self.sampled.replace(sampled);
    }

    /// Says in the status of jobs which of them are measured by traces on demand.
    pub fn add_to(&self, jobs: &mut [JobStatus]) {
        say_how(jobs, &self.sampled.borrow(), |it| {
            format!(
                "Kineto on demand, every {:.0} s; {}",
                it.every_seconds, it.text
            )
        });
    }

    /// The processes that can be asked.
    #[must_use]
    pub fn traceable(&self) -> Traceable {
        let mut desk = self.desks.desk();
        desk.forget_gone(now());
        Traceable {
            on: true,
            troubles: self.troubles.clone(),
            processes: desk.clients().map(process).collect(),
            datagrams: datagrams(desk.counts()),
            sampled: self.sampled.borrow().clone(),
            dynolog: self.through.as_ref().map(|it| it.address().to_string()),
            rings: None,
        }
    }

    /// Has processes record traces.
    ///
    /// # Errors
    /// No process can; why, in words.
    pub async fn wish(&self, wish: &TraceWish) -> Result<WishedTraces, Problem> {
        let problem = |error: String| Problem { error };
        let pids = self.meant(wish).map_err(problem)?;
        let window = Window {
            iterations: wish.iterations,
            roundup: wish.iterations.saturating_mul(APART).max(1),
            milliseconds: wish.milliseconds,
            start: None,
        };
        let (mut wished, mut through) = (WishedTraces::default(), Vec::new());
        for pid in pids {
            let file = self.file().map_err(|error| problem(error.to_string()))?;
            let trace = Trace {
                file,
                window,
                host: wish.host,
            };
            if self.through.is_some() && !self.knows(pid) {
                through.push((pid, trace));
                continue;
            }
            match self.ask(pid, &trace) {
                Ok(trace) => wished.traces.push(trace),
                Err(why) => wished.refused.push(format!("process {pid}: {why}")),
            }
        }
        if let Some(way) = self.through.as_ref().filter(|_| !through.is_empty()) {
            for told in way.wish(through).await {
                match told {
                    Ok(trace) => wished.traces.push(trace),
                    Err(why) => wished.refused.push(why),
                }
            }
        }
        match wished.traces.is_empty() {
            true => Err(problem(wished.refused.join("; "))),
            false => Ok(wished),
        }
    }

    /// The processes that are meant.
    fn meant(&self, wish: &TraceWish) -> Result<Vec<u32>, String> {
        let mut pids = wish.pids.clone();
        if let Some(job) = &wish.job {
            let desk = self.desks.desk();
            let of = |client: &&Client| {
                let home = client.looked.job.as_deref().unwrap_or_default();
                home == job || home.split('/').any(|part| part == job)
            };
            let before = pids.len();
            pids.extend(desk.clients().filter(of).map(|it| it.sender.pid));
            if pids.len() == before {
                return Err(match self.through {
                    Some(_) => format!(
                        "no process of job {job} asks litd for traces, and dynolog tells no jobs: name processes by \
                         their ids"
                    ),
                    None => format!(
                        "no process of job {job} asks for traces: `litctl trace` lists those that do"
                    ),
                });
            }
        }
        pids.sort_unstable();
        pids.dedup();
        match pids.len() {
            0 => Err("no process is named, and no job: name one of them".to_owned()),
            1..=MOST => Ok(pids),
            more => Err(format!("{more} processes are more than {MOST} at a time")),
        }
    }

    fn ask(&self, pid: u32, trace: &Trace) -> Result<WishedTrace, String> {
        let mut desk = self.desks.desk();
        desk.want(now(), pid, trace)
            .map_err(|why| why.to_string())?;
        let client = desk.get(pid).ok_or("it has just gone")?;
        Ok(WishedTrace {
            pid,
            uid: client.sender.uid,
            began: client.looked.began,
            file: trace.written(client.looked.own),
        })
    }

    /// A file that nobody knows beforehand, and so nobody has put anything there.
    pub(super) fn file(&self) -> io::Result<String> {
        let id = fs::read_to_string(RANDOM_ID)?;
        let folder = self.folder.display();
        Ok(format!("{folder}/litd-{}.json", id.trim()))
    }
}

fn datagrams(counts: Counts) -> Datagrams {
    let Counts {
        answered,
        told,
        malformed,
        impostors,
        unsure,
        crowded,
        foreign,
        late,
    } = counts;
    Datagrams {
        answered,
        told,
        malformed,
        impostors,
        unsure,
        crowded,
        foreign,
        late,
    }
}

fn process(client: &Client) -> TraceableProcess {
    TraceableProcess {
        pid: client.sender.pid,
        uid: client.sender.uid,
        job: client.looked.job.clone(),
        stage: match client.stage {
            Stage::Idle => TraceStage::Idle,
            Stage::Wanted { .. } => TraceStage::Wanted,
            Stage::Told { .. } => TraceStage::Told,
        },
    }
}
