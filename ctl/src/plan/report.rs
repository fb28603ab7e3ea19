//! `litctl plan report`: what litd can't level is told to the planner.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use litd_api::{JobStatus, Status};
use tokio::signal::unix::{SignalKind, signal};

use crate::control::{Client, Socket};
use crate::{Outcome, output};

/// Tell the planner which GPUs can't hold their planned clocks, and when they can again
///
/// Runs beside litd on each node of a job that follows a plan. litd gives a GPU that is late what
/// power it can; one that is late all the same is a straggler by its degree (`litctl status`), and
/// the job's other pipelines can be slower for nothing until it has recovered. Ending it, or a
/// litd that is silent for half a minute, takes back what was told.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    socket: Socket,
    /// Where the planner listens
    #[arg(long, value_name = "URL", env = "LITD_PLANNER")]
    planner: Url,
    /// What the planner calls the job: its answer to /register_job
    #[arg(long, value_name = "ID", value_parser = id)]
    job_id: String,
    /// The job as litd calls it; needed where there are several
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// What to add to the ranks that litd knows, where each node counts them from 0
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    first_rank: u32,
    /// How often litd is asked, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = super::positive)]
    interval: f64,
    /// Tell how it is now, and leave it at that
    #[arg(long)]
    once: bool,
}

/// The planner, and litd's answers, are waited for no longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was told is taken back when litd has been silent for so long.
const SILENCE: f64 = 30.0;

/// The longest answer that is read.
const LONGEST: u64 = 64 << 10;

/// An address of HTTP, without a path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Url {
    /// Host and port.
    host: String,
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let host = text.strip_prefix("http://").unwrap_or(text);
        let host = host.strip_suffix('/').unwrap_or(host);
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]_".contains(c);
        let port = host
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse().ok());
        match port {
            Some(1_u16..) if host.chars().all(plain) => Ok(Self {
                host: host.to_owned(),
            }),
            _ => Err("must be http://HOST:PORT (litd-planner's port is 7787)".to_owned()),
        }
    }
}

fn id(text: &str) -> Result<String, String> {
    let odd = |c: char| c.is_whitespace() || c.is_control() || "/?#%".contains(c);
    match text.is_empty() || text.contains(odd) || !text.is_ascii() {
        true => Err("is no job id of the planner's".to_owned()),
        false => Ok(text.to_owned()),
    }
}

pub fn run(args: &Args, json: bool) -> Outcome {
    if json {
        return Err("report has no JSON: what it says is in `litctl --json status`".into());
    }
    let client = Client::new(&args.socket)?;
    let mut told = Told::default();
    if args.once {
        let degrees = degrees(&client.status()?, args.job.as_deref(), args.first_rank)?;
        return told.tell(&degrees, |rank, degree| args.tell(rank, degree));
    }
    let wait = Wait::new(args.interval)?;
    let mut silent = 0.0;
    loop {
        let status = client.status().map_err(Into::into);
        let now = status.and_then(|it| degrees(&it, args.job.as_deref(), args.first_rank));
        let outcome = match now {
            Ok(degrees) => {
                silent = 0.0;
                told.tell(&degrees, |rank, degree| args.tell(rank, degree))
            }
            Err(error) => {
                silent += args.interval;
                if silent >= SILENCE {
                    told.take_back(|rank, degree| args.tell(rank, degree))?;
                }
                Err(error)
            }
        };
        if let Err(error) = outcome {
            output::error(error.as_ref());
        }
        if wait.is_over() {
            return told.take_back(|rank, degree| args.tell(rank, degree));
        }
    }
}

/// What the planner is to know: each rank's degree. A job that follows no plan, or none, has no
/// straggler.
fn degrees(
    status: &Status,
    name: Option<&str>,
    first: u32,
) -> Result<BTreeMap<u32, f64>, Box<dyn std::error::Error>> {
    let named = |job: &&JobStatus| name.is_none_or(|name| name == job.name);
    let jobs: Vec<&JobStatus> = status.jobs.iter().filter(named).collect();
    if let [one, other, ..] = jobs[..] {
        let text = format!(
            "litd has several jobs ({}, {}): name one with --job",
            one.name, other.name
        );
        return Err(text.into());
    }
    let degree = |address: &str| {
        let device = status.devices.iter().find(|it| it.address == address);
        device
            .and_then(|it| it.plan)
            .map_or(1.0, |plan| plan.degree)
    };
    let ranks = jobs.into_iter().flat_map(|job| &job.ranks);
    let each = ranks.map(|rank| (rank.rank.saturating_add(first), degree(&rank.device)));
    Ok(each.collect())
}

/// What the planner was told.
#[derive(Debug, Default)]
struct Told(BTreeMap<u32, f64>);

impl Told {
    /// Tells what the planner does not know yet. What it refuses is tried again.
    fn tell(
        &mut self,
        now: &BTreeMap<u32, f64>,
        mut tell: impl FnMut(u32, f64) -> Outcome,
    ) -> Outcome {
        let gone = self.0.iter().filter(|(rank, _)| !now.contains_key(rank));
        let gone = gone.filter(|(_, degree)| **degree > 1.0);
        let gone: Vec<(u32, f64)> = gone.map(|(&rank, _)| (rank, 1.0)).collect();
        let all = now.iter().map(|(&rank, &degree)| (rank, degree));
        let mut outcome = Ok(());
        for (rank, degree) in all.chain(gone) {
            if self.0.get(&rank) == Some(&degree) {
                continue;
            }
            match tell(rank, degree) {
                Ok(()) => {
                    self.0.insert(rank, degree);
                }
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    fn take_back(&mut self, tell: impl FnMut(u32, f64) -> Outcome) -> Outcome {
        self.0.retain(|_, degree| *degree > 1.0);
        self.tell(&BTreeMap::new(), tell)
    }
}

impl Args {
    fn tell(&self, rank: u32, degree: f64) -> Outcome {
        let body = serde_json::json!({"id": rank, "delay": 0.0, "degree": degree}).to_string();
        let answer = self.post(&body);
        let answer =
            answer.map_err(|error| format!("planner at {}: {error}", self.planner.host))?;
        let (head, text) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let code = head.split(' ').nth(1).unwrap_or("no answer");
        if code != "200" {
            let said = format!(
                "planner at {}: rank {rank}: {code}: {text}",
                self.planner.host
            );
            return Err(said.into());
        }
        if degree > 1.0 {
            println!("rank {rank} is {degree:.2} times as slow as planned: told");
        } else {
            println!("rank {rank} keeps up: told");
        }
        Ok(())
    }

    fn post(&self, body: &str) -> std::io::Result<String> {
        let addresses: Vec<_> = self.planner.host.to_socket_addrs()?.collect();
        let mut last = std::io::ErrorKind::NotFound.into();
        for address in addresses {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => return self.exchange(stream, body),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn exchange(&self, mut stream: TcpStream, body: &str) -> std::io::Result<String> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        write!(
            stream,
            "POST /set_straggler/{} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.job_id,
            self.planner.host,
            body.len()
        )?;
        let mut bytes = Vec::new();
        stream.take(LONGEST).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The time between two looks, which a signal ends.
struct Wait {
    runtime: tokio::runtime::Runtime,
    interval: Duration,
}

impl Wait {
    fn new(seconds: f64) -> Result<Self, Box<dyn std::error::Error>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let interval = Duration::try_from_secs_f64(seconds)?;
        Ok(Self { runtime, interval })
    }

    /// Waits. Answers whether it was told to end.
    fn is_over(&self) -> bool {
        self.runtime.block_on(async {
            let Ok(mut terminate) = signal(SignalKind::terminate()) else {
                return true;
            };
            tokio::select! {
                () = tokio::time::sleep(self.interval) => false,
                _ = terminate.recv() => true,
                _ = tokio::signal::ctrl_c() => true,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn each_rank_is_told_once_and_what_failed_again() {
        let status = samples::status();
        let now = degrees(&status, None, 8).unwrap();
        assert_eq!(now.len(), status.jobs[0].ranks.len());
        assert_eq!((now[&8], now[&15]), (1.0, 1.08));
        let (mut told, mut calls) = (Told::default(), Vec::new());
        let mut tell = |rank, degree| {
            calls.push((rank, degree));
            match (rank, calls.len()) {
                (15, 1..=8) => Err("away".into()),
                _ => Ok(()),
            }
        };
        assert!(told.tell(&now, &mut tell).is_err());
        assert!(told.tell(&now, &mut tell).is_ok());
        assert!(told.tell(&now, &mut tell).is_ok());
        assert!(told.take_back(&mut tell).is_ok());
        assert_eq!(calls[8..], [(15, 1.08), (15, 1.0)]);
    }

    #[test]
    fn one_job_must_be_meant() {
        let mut status = samples::status();
        let mut other = status.jobs[0].clone();
        other.name = "other".into();
        status.jobs.push(other);
        assert!(degrees(&status, None, 0).is_err());
        assert!(degrees(&status, Some("other"), 0).is_ok());
        assert!(degrees(&status, Some("none"), 0).unwrap().is_empty());
    }

    #[test]
    fn addresses_and_ids_are_looked_at_first() {
        for good in ["http://planner:7787", "127.0.0.1:1/", "http://[::1]:7787"] {
            assert!(good.parse::<Url>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "planner",
            "https://planner:1",
            "http://a:0",
            "a:99999",
            "a b:1",
        ] {
            assert!(bad.parse::<Url>().is_err(), "{bad}");
        }
        assert!(id("2026-01-02-03-04-05+dp2+pp2+tp8+Perseus").is_ok());
        for bad in ["", "a b", "a/b", "a?b", "a\r\nHost: x"] {
            assert!(id(bad).is_err(), "{bad}");
        }
    }
}
