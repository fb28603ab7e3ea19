//! `litctl job`: what a scheduler says when jobs begin and end.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Subcommand;
use litd::announcements;
use litd_api::{Command, Done, STOPPING};

use crate::control::Socket;
use crate::{Outcome, output};

/// A scheduler waits for an answer for so long, whatever is wrong with the daemon, its socket, or whoever answers
/// for users and groups here: 2 s with the start of this program.
const PATIENCE: Duration = Duration::from_millis(1800);

/// An answer of the daemon's within that; it promises one within 1.2 s.
const ANSWER: Duration = Duration::from_millis(1700);

/// A litd that seems to be restarting is asked again for so long, and so often.
const RESTARTS: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(250);

/// If nothing was made or removed beside the control socket for so long, no litd is restarting there.
const RECENTLY: Duration = Duration::from_secs(60);

/// Tell litd that a scheduler's job begins or has ended
///
/// For Prolog and Epilog of Slurm, and other schedulers' scripts. Takes 2 s at most, or 7 s while litd seems to be
/// restarting. If litd does not answer and you are root, the command leaves a note in the folder "announced" beside
/// the control socket, and litd reads it once it runs again. Never fails a job: errors are lines on standard error,
/// and the exit status is 0 (with --strict: 1). It does no harm if one of the two commands comes twice or late. Root
/// and litd's admin group may do this.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// A job begins
    ///
    /// With --opt-out litd restores caps and unlocks clocks of the job's GPUs before the command
    /// returns, and leaves them alone until the job ends. A budget still applies to them.
    Begin {
        #[command(flatten)]
        which: Which,
        /// Do not steer the job's GPUs until it ends
        #[arg(long)]
        opt_out: bool,
    },
    /// A job has ended: restore its GPUs' caps and unlock their clocks before the command returns
    ///
    /// Health checks that run after the command see the node as it was without litd.
    End {
        #[command(flatten)]
        which: Which,
    },
}

#[derive(clap::Args)]
struct Which {
    /// The job's name: slurm-1234, pod-UID, or the number of a Slurm job [default:
    /// slurm-$SLURM_JOB_ID]
    #[arg(value_name = "JOB")]
    id: Option<String>,
    /// GPUs of the job: numbers, names, addresses or UUIDs [default: $SLURM_JOB_GPUS, if JOB is the
    /// one of $SLURM_JOB_ID]
    #[arg(long = "gpu", value_name = "GPU", value_delimiter = ',')]
    gpus: Vec<String>,
    /// Exit with status 1 if litd has not carried the command out
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    socket: Socket,
}

const EXAMPLES: &str = "\
Examples:
  litctl job begin                       in Slurm's Prolog
  litctl job begin --opt-out             the same; litd does not steer its GPUs
  litctl job end                         in Slurm's Epilog, before health checks
  litctl job end slurm-1234 --gpu 0,1
  litctl job begin pod-1b9f5d1e-3f0c-4a57-9a0e-0c9a1d5b7c11 --opt-out";

/// The exit status of --strict where a command was not carried out.
pub const NOT_DONE: u8 = 1;

/// What a scheduler said was not carried out.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotDone(String);

pub fn run(args: &Args, json: bool) -> Outcome {
    let which = match &args.action {
        Action::Begin { which, .. } | Action::End { which } => which,
    };
    let outcome = command(&args.action).and_then(|command| tell(&which.socket, &command));
    match outcome {
        Ok(done) if json => output::json(&done),
        Ok(done) => output::text(&format!("{}\n", done.message)),
        Err(why) if which.strict => Err(NotDone(why).into()),
        Err(why) => {
            output::note(&format!("warning: {why}"));
            Ok(())
        }
    }
    .or_else(|error| match which.strict {
        true => Err(error),
        // A failure of this message can't be reported.
        false => Ok(()),
    })
}

fn command(action: &Action) -> Result<Command, String> {
    let (job, gpus) = match action {
        Action::Begin { which, .. } | Action::End { which } => which.job()?,
    };
    Ok(match action {
        Action::Begin { opt_out, .. } => Command::BeginJob {
            job,
            gpus,
            opt_out: *opt_out,
        },
        Action::End { .. } => Command::EndJob { job, gpus },
    })
}

impl Which {
    fn job(&self) -> Result<(String, Vec<String>), String> {
        let slurm = |id: &str| format!("slurm-{id}");
        let ours = variable("SLURM_JOB_ID").map(|id| slurm(&id));
        let id = match &self.id {
            Some(id) if !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()) => slurm(id),
            Some(id) => id.clone(),
            None => ours
                .clone()
                .ok_or("no job is named, and $SLURM_JOB_ID is not set")?,
        };
        if id.is_empty() {
            return Err("a job's name must not be empty".to_owned());
        }
        let gpus = match self.gpus.is_empty() {
            false => numbers(&self.gpus.join(","))?,
            true if ours.as_deref() == Some(&id) => {
                numbers(&variable("SLURM_JOB_GPUS").unwrap_or_default())?
            }
            true => Vec::new(),
        };
        if gpus.is_empty() && !self.gpus.is_empty() {
            return Err("--gpu names no GPU: leave it out, or name the job's GPUs".to_owned());
        }
        Ok((id, gpus))
    }
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Lists as Slurm's: `0,2-3`. What is no number the daemon is asked about as it is.
fn numbers(list: &str) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let range = part.split_once('-');
        let ends = range
            .and_then(|(first, last)| Some((first.parse::<u8>().ok()?, last.parse::<u8>().ok()?)));
        match ends {
            Some((first, last)) if last < first => {
                return Err(format!(
                    "{part} is a range without a GPU: write {last}-{first}"
                ));
            }
            Some((first, last)) => all.extend((first..=last).map(|number| number.to_string())),
            None => all.push(part.to_owned()),
        }
    }
    Ok(all)
}

/// Tells litd. One that does not answer may be restarting, and is told again; one that stays away finds a note.
fn tell(socket: &Socket, command: &Command) -> Result<Done, String> {
    let begun = Instant::now();
    let mut waits = false;
    loop {
        let why = match send(socket, command.clone()) {
            Ok(done) => return Ok(done),
            Err((why, false)) => return Err(why),
            Err((why, true)) => why,
        };
        if begun.elapsed() >= RESTARTS || !may_be_restarting(socket.path()) {
            return Err(noted(socket.path(), command, &why));
        }
        if !waits {
            let most = RESTARTS.as_secs();
            output::note(&format!(
                "warning: {why}; it may be restarting: waiting for it, {most} s at most"
            ));
        }
        waits = true;
        thread::sleep(AGAIN);
    }
}

/// Whether litd may just be restarting: a socket is there, or was removed a short while ago.
fn may_be_restarting(socket: &Path) -> bool {
    let touched = || socket.parent()?.metadata().ok()?.modified().ok();
    let since = touched().and_then(|at| at.elapsed().ok());
    fs::symlink_metadata(socket).is_ok() || since.is_some_and(|since| since < RECENTLY)
}

/// Leaves a note for a litd that is not there, and says so.
fn noted(socket: &Path, command: &Command, why: &str) -> String {
    let folder = announcements::folder(socket);
    match (
        announcements::leave(&folder, command),
        announcements::elsewhere(socket),
    ) {
        (Ok(()), None) => format!(
            "{why}; litd is told once it runs again, by a note in {}",
            folder.display()
        ),
        (Ok(()), Some(pid)) => format!(
            "{why}; a note is left in {}, but process {pid} has devices of this node locked: if that is a litd with \
             another control socket, as in a Kubernetes pod, it does not look there: run `litctl job` where its \
             socket is (`kubectl exec`)",
            folder.display()
        ),
        (Err(error), _) => format!("{why}; and no note can be left for it: {error}"),
    }
}

/// Asks on a thread of its own: what a directory service or a file system does to it nobody waits for. An error says
/// whether litd is to be told again: it has not answered, or is stopping.
fn send(socket: &Socket, command: Command) -> Result<Done, (String, bool)> {
    let (answer, answered) = mpsc::channel();
    let socket = socket.clone();
    let asks = thread::Builder::new().spawn(move || {
        let outcome = socket
            .client_within(ANSWER)
            .and_then(|client| client.command(&command));
        // The caller may have given up.
        let _ = answer.send(outcome.map_err(|error| {
            let why = error.to_string();
            // Whoever has not answered may not have heard, or not have kept it: it does no harm to tell it twice.
            let passes = !error.is_refusal() || why == STOPPING;
            (why, passes)
        }));
    });
    asks.map_err(|error| (format!("can't ask litd: {error}"), true))?;
    answered.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let waited = PATIENCE.as_secs_f64();
        let why = format!("litd's control socket did not answer within {waited} s");
        Err((why, true))
    })
}

/// Whether a command line that can't be read was to be one of these, and is not to fail a job.
pub fn is_meant(mut arguments: impl Iterator<Item = OsString>) -> bool {
    let _program = arguments.next();
    let mut words = arguments.skip_while(|word| word == "--json");
    words.next().is_some_and(|word| word == "job") && !words.any(|word| word == "--strict")
}

/// Says what is wrong with such a command line, or prints the help that was asked for.
pub fn misunderstood(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurms_lists_are_read() {
        assert_eq!(numbers("0,2-4,7").unwrap(), ["0", "2", "3", "4", "7"]);
        assert_eq!(numbers("").unwrap(), [""; 0]);
        assert_eq!(numbers("GPU-1,x").unwrap(), ["GPU-1", "x"]);
        assert!(numbers("0,5-3").unwrap_err().contains("write 3-5"));
    }
}
