//! `litctl plan report`: what litd can't level is told to the planner.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use litd_api::{JobStatus, Status};

use super::planner::{Planner, Trouble, Url, id};
use crate::control::{Client, Socket};
use crate::wait::Wait;
use crate::{Outcome, output};

/// Report to the planner which GPUs can't hold their planned clocks, and when they can again
///
/// Runs beside litd on each node of a job that follows a plan. litd gives a late GPU more power as far as it can. A
/// GPU that stays late is reported as a straggler with its degree (how many times as long its computations take as
/// planned); then the job's other pipelines can run slower without a longer iteration. The report is withdrawn when
/// the GPU has recovered, when the job has ended, when the command ends (except with --once), and when litd is silent
/// for half a minute. With --json each line is the report on one rank, or the reason why there is none.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    socket: Socket,
    /// The address of the planner's server, litd-planner
    #[arg(long, value_name = "URL", env = "LITD_PLANNER")]
    planner: Url,
    /// The planner's id of the job: what it answered to /register_job
    #[arg(long, value_name = "ID", value_parser = id)]
    job_id: String,
    /// A file with the planner's token, if it needs one
    #[arg(long, value_name = "FILE", env = "LITD_PLANNER_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// The job's name in litd; needed if litd has several jobs
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// The rank in the whole job of this node's rank 0, if each node counts its ranks from 0
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    first_rank: u32,
    /// How often litd is asked, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = litd_cli::plan::positive)]
    interval: f64,
    /// Report the present state once, and end without withdrawing the reports
    #[arg(long)]
    once: bool,
}

const EXAMPLES: &str = "\
Examples:
  litctl plan report --planner http://planner:7787 \\
      --job-id 2026-01-02-03-04-05+dp2+pp4+tp8+Perseus
  litctl plan report --planner http://planner:7787 --job-id ID \\
      --job train --first-rank 8 --once";

/// Reports are withdrawn when litd has been silent for so long.
const SILENCE: f64 = 30.0;

pub fn run(args: &Args, json: bool) -> Outcome {
    let client = args.socket.client()?;
    let planner = Planner::new(&args.planner, &args.job_id, args.token_file.as_deref())?;
    let tell = |rank, degree| {
        let outcome = planner.set_straggler(rank, degree);
        show(json, rank, degree, &outcome);
        outcome
    };
    let host = planner.host();
    if args.once {
        return match look(&client, args)? {
            Look::Degrees(degrees) => Told::default().tell(&degrees, tell).outcome(host),
            Look::Missing(why) => Err(why.into()),
        };
    }
    follow(args, host, &client, tell)
}

/// Tells what is new, until it is ended or the planner wants nothing of it.
fn follow(
    args: &Args,
    host: &str,
    client: &Client,
    tell: impl Fn(u32, f64) -> Result<(), Trouble>,
) -> Outcome {
    let mut wait = Wait::new(Duration::try_from_secs_f64(args.interval)?)?;
    let (mut told, mut said, mut has_seen) = (Told::default(), String::new(), false);
    let mut silent = 0.0;
    loop {
        let outcome = match look(client, args) {
            Ok(Look::Degrees(degrees)) => {
                (silent, has_seen) = (0.0, true);
                let round = told.tell(&degrees, &tell);
                if round.is_hopeless(&told) {
                    return round.outcome(host);
                }
                round.outcome(host)
            }
            // The job has ended.
            Ok(Look::Missing(_)) if has_seen => told.take_back(&tell).outcome(host),
            Ok(Look::Missing(why)) => Err(why.into()),
            Err(error) => {
                silent += args.interval;
                if silent >= SILENCE {
                    told.take_back(&tell);
                }
                Err(error)
            }
        };
        let problem = outcome
            .err()
            .map_or(String::new(), |error| error.to_string());
        // Once is enough of each.
        if !problem.is_empty() && problem != said {
            output::note(&problem);
        }
        said = problem;
        if wait.is_over() {
            return told.take_back(&tell).outcome(host);
        }
    }
}

/// The job's state in litd.
enum Look {
    Degrees(BTreeMap<u32, f64>),
    /// There is no such job, in words.
    Missing(String),
}

fn look(client: &Client, args: &Args) -> Result<Look, Box<dyn std::error::Error>> {
    let status = client.status()?;
    let name = args.job.as_deref();
    Ok(match job(&status, name)? {
        Some(job) => Look::Degrees(degrees(&status, job, args.first_rank)),
        None => Look::Missing(missing(&status, name)),
    })
}

/// The job that is meant, if there is one.
fn job<'a>(status: &'a Status, name: Option<&str>) -> Result<Option<&'a JobStatus>, String> {
    let named = |job: &&JobStatus| name.is_none_or(|name| name == job.name);
    let jobs: Vec<&JobStatus> = status.jobs.iter().filter(named).collect();
    match jobs[..] {
        [one, other, ..] => Err(format!(
            "litd has several jobs ({}, {}): name one with --job",
            one.name, other.name
        )),
        _ => Ok(jobs.first().copied()),
    }
}

/// Says that there is no such job.
fn missing(status: &Status, name: Option<&str>) -> String {
    let names: Vec<&str> = status.jobs.iter().map(|job| job.name.as_str()).collect();
    match (name, names.is_empty()) {
        (Some(name), false) => format!("litd has no job {name:?}; it has {}", names.join(", ")),
        (Some(name), true) => format!("litd has no job {name:?}, nor any other"),
        (None, _) => "litd has no job".to_owned(),
    }
}

/// The degrees for the planner, by rank. A rank that follows no plan is not a straggler.
fn degrees(status: &Status, job: &JobStatus, first: u32) -> BTreeMap<u32, f64> {
    let degree = |address: &str| {
        let device = status.devices.iter().find(|it| it.address == address);
        device
            .and_then(|it| it.plan)
            .map_or(1.0, |plan| plan.degree)
    };
    let each = job
        .ranks
        .iter()
        .map(|rank| (rank.rank.saturating_add(first), degree(&rank.device)));
    each.collect()
}

/// Prints what a rank was told of, or in JSON why not.
fn show(json: bool, rank: u32, degree: f64, outcome: &Result<(), Trouble>) {
    let line = match outcome {
        _ if json => {
            let error = outcome.as_ref().err().map(Trouble::text);
            serde_json::json!({"rank": rank, "degree": degree, "error": error}).to_string()
        }
        Ok(()) if degree > 1.0 => {
            format!("rank {rank} is {degree:.2} times as slow as planned: the planner was told")
        }
        Ok(()) => format!("rank {rank} keeps up: the planner was told"),
        Err(_) => return,
    };
    // The reader may leave; the planner gets the report all the same.
    let _ = output::write(&(line + "\n"));
}

/// The reports that the planner has.
#[derive(Debug, Default)]
struct Told {
    taken: BTreeMap<u32, f64>,
    /// Refused reports, which are not repeated.
    refused: BTreeMap<u32, f64>,
}

/// The result of a report.
#[derive(Debug, Default)]
struct Round {
    told: usize,
    wanted: usize,
    refused: Vec<String>,
    away: Option<String>,
}

impl Told {
    /// Tells what the planner does not know yet. Who can't be reached once is not called for each
    /// rank.
    fn tell(
        &mut self,
        now: &BTreeMap<u32, f64>,
        tell: impl Fn(u32, f64) -> Result<(), Trouble>,
    ) -> Round {
        let gone = self
            .taken
            .iter()
            .filter(|(rank, _)| !now.contains_key(rank));
        let gone = gone.filter(|(_, degree)| **degree > 1.0);
        let gone: Vec<(u32, f64)> = gone.map(|(&rank, _)| (rank, 1.0)).collect();
        let all = now.iter().map(|(&rank, &degree)| (rank, degree));
        let known = |told: &BTreeMap<u32, f64>, rank, degree| told.get(&rank) == Some(&degree);
        let new = all.chain(gone).filter(|&(rank, degree)| {
            !known(&self.taken, rank, degree) && !known(&self.refused, rank, degree)
        });
        let new: Vec<(u32, f64)> = new.collect();
        let mut round = Round {
            wanted: new.len(),
            ..Round::default()
        };
        for (rank, degree) in new {
            match tell(rank, degree) {
                Ok(()) => {
                    round.told += 1;
                    self.refused.remove(&rank);
                    self.taken.insert(rank, degree);
                }
                Err(Trouble::Refused(why)) => {
                    self.refused.insert(rank, degree);
                    round.refused.push(format!("rank {rank}: {why}"));
                }
                Err(Trouble::Away(why)) => {
                    round.away = Some(why);
                    break;
                }
            }
        }
        round
    }

    fn take_back(&mut self, tell: impl Fn(u32, f64) -> Result<(), Trouble>) -> Round {
        self.taken.retain(|_, degree| *degree > 1.0);
        self.tell(&BTreeMap::new(), tell)
    }
}

impl Round {
    /// Whether the planner takes nothing of all this: the job id is wrong, or it is no planner.
    fn is_hopeless(&self, told: &Told) -> bool {
        !self.refused.is_empty() && told.taken.is_empty()
    }

    /// How many were told, unless it is all.
    fn outcome(self, host: &str) -> Outcome {
        let why = self.away.as_ref().or(self.refused.first());
        let Some(why) = why else {
            return Ok(());
        };
        let more = match self.refused.len().saturating_sub(1) {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let Self { told, wanted, .. } = self;
        Err(
            format!("planner at {host}: it was told of {told} of {wanted} ranks: {why}{more}")
                .into(),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::samples;

    /// A planner that answers so, and what it was told.
    struct Scripted<F> {
        answer: F,
        calls: RefCell<Vec<(u32, f64)>>,
    }

    impl<F: Fn(u32, usize) -> Result<(), Trouble>> Scripted<F> {
        fn new(answer: F) -> Self {
            let calls = RefCell::default();
            Self { answer, calls }
        }

        fn tell(&self, rank: u32, degree: f64) -> Result<(), Trouble> {
            let mut calls = self.calls.borrow_mut();
            calls.push((rank, degree));
            (self.answer)(rank, calls.len())
        }
    }

    fn now() -> BTreeMap<u32, f64> {
        let status = samples::status();
        let job = job(&status, None).unwrap().unwrap();
        degrees(&status, job, 8)
    }

    #[test]
    fn each_rank_is_told_once_and_what_could_not_be_told_again() {
        let now = now();
        assert_eq!((now.len(), now[&8], now[&15]), (8, 1.0, 1.08));
        let planner = Scripted::new(|rank, call| match (rank, call) {
            (15, 1..=8) => Err(Trouble::Away("gone".into())),
            _ => Ok(()),
        });
        let mut told = Told::default();
        let mut tell = || told.tell(&now, |rank, degree| planner.tell(rank, degree));
        let said = tell().outcome("here").unwrap_err().to_string();
        assert_eq!(said, "planner at here: it was told of 7 of 8 ranks: gone");
        assert!(tell().outcome("here").is_ok());
        assert_eq!(tell().wanted, 0);
        let back = told.take_back(|rank, degree| planner.tell(rank, degree));
        assert!(back.outcome("here").is_ok());
        assert_eq!(planner.calls.borrow()[8..], [(15, 1.08), (15, 1.0)]);
    }

    #[test]
    fn what_is_refused_is_not_told_again_until_it_is_something_else() {
        let mut now = now();
        let planner = Scripted::new(|rank, _| match rank {
            9 | 10 => Err(Trouble::Refused("not registered".into())),
            _ => Ok(()),
        });
        let mut told = Told::default();
        let mut tell = |now: &_| {
            let round = told.tell(now, |rank, degree| planner.tell(rank, degree));
            assert!(!round.is_hopeless(&told));
            round.outcome("here").err().map(|error| error.to_string())
        };
        let said = tell(&now).unwrap();
        assert!(
            said.contains("6 of 8 ranks: rank 9: not registered (and 1 more)"),
            "{said}"
        );
        assert_eq!(tell(&now), None);
        now.insert(9, 1.2);
        assert!(tell(&now).unwrap().contains("it was told of 0 of 1 ranks"));
        assert_eq!(planner.calls.borrow().len(), 9);
    }

    #[test]
    fn a_planner_that_refuses_all_is_the_wrong_one() {
        let mut told = Told::default();
        let round = told.tell(&now(), |_, _| Err(Trouble::Refused("no job".into())));
        assert!(round.is_hopeless(&told));
        let mut told = Told::default();
        let round = told.tell(&now(), |_, _| Err(Trouble::Away("gone".into())));
        assert!(!round.is_hopeless(&told) && round.wanted == 8);
    }

    #[test]
    fn one_job_must_be_meant() {
        let mut status = samples::status();
        let mut other = status.jobs[0].clone();
        other.name = "other".into();
        status.jobs.push(other);
        assert!(job(&status, None).is_err());
        assert_eq!(job(&status, Some("other")).unwrap().unwrap().name, "other");
        assert!(job(&status, Some("none")).unwrap().is_none());
        let said = missing(&status, Some("none"));
        assert!(
            said.contains("no job \"none\"; it has ") && said.ends_with("other"),
            "{said}"
        );
    }
}
