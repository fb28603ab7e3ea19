//! `litctl carbon run`: training with the configuration of the hour.

pub mod job;
mod machine;
mod print;
mod state;

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::Child as Handle;
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use litd_carbon::Profile;
use litd_units::{Seconds, Tokens};
use nix::sys::signal::Signal as Unix;

use self::job::Ask;
use self::machine::{Action, Child, Machine, Patience, Seen};
use self::state::{Process, State};
use super::advise::{Advice, Standing, advise, number};
use super::clock::{self, Clock};
use super::input;
use super::source::{self, Signal};
use crate::wait::Wait;
use crate::{Outcome, output};

/// Run a training job with the configuration of the hour, from checkpoint to checkpoint
///
/// At the end of each window the configuration is chosen as litctl carbon advise does. To change it, the job is
/// asked for a checkpoint (a file appears whose name is in $LITD_CARBON_CHECKPOINT and which
/// litd.checkpoint_due() looks for; or a signal comes); it writes one and ends, and is started again. The
/// command has LITD_TP, LITD_PP and LITD_DP in its environment, and {tp}, {pp} and {dp} in its words are filled
/// in. The job writes to --progress how many tokens its last checkpoint has. What a crash of litctl must not
/// forget is in --state; started again with the same command it goes on.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Power and throughput of each configuration
    #[arg(long, value_name = "FILE")]
    profile: PathBuf,
    /// What is to be trained in all, such as 8e9
    #[arg(long, value_name = "N", value_parser = input::tokens)]
    tokens: Tokens,
    /// By when, in hours after the first start
    #[arg(long, value_name = "D", value_parser = input::hours)]
    deadline_hours: Seconds,
    /// A file in which the job writes how many tokens its last checkpoint has
    #[arg(long, value_name = "FILE")]
    progress: PathBuf,
    /// A folder for what must outlast a crash; made if it is not there
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// How the job is asked for a checkpoint: file, or signal:NAME
    #[arg(long, value_name = "HOW", default_value = "file")]
    checkpoint: Ask,
    /// How many seconds a checkpoint may take until the job is told to end
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = input::seconds)]
    grace: Seconds,
    /// How often the job may fail without a new checkpoint in between
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    failures: u32,
    /// The length of a window
    #[arg(long, value_name = "W", default_value = "1", value_parser = input::hours)]
    window_hours: Seconds,
    /// K, what a switch takes [default: the profile's switch_s, or 0]
    #[arg(long, value_name = "K", value_parser = input::seconds)]
    switch_seconds: Option<Seconds>,
    /// Say what would be started now, and start nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    print: print::Print,
    #[command(flatten)]
    source: source::Source,
    #[command(flatten)]
    clock: clock::Pace,
    /// The job
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  litctl carbon run --profile P.csv --tokens 8e9 --deadline-hours 48 --progress ckpt/tokens --state run \\
      --provider uk -- torchrun --nproc-per-node 8 train.py --tp {tp} --pp {pp}
  litctl carbon run … --trace T.csv --from 2024-05-08T00:00:00Z --speed 3600 -- ./train.sh    (an hour a second)
  litctl carbon run … --print slurm --nodes 2 -- srun torchrun … train.py --tp {tp} --pp {pp} | sbatch
  litctl carbon run … --print kubernetes --image IMAGE --claim CLAIM -- torchrun … | kubectl apply -f -";

/// How often the runner looks.
const TICK: Duration = Duration::from_millis(100);

pub fn run(args: &Args) -> Outcome {
    let profile: Profile = input::parse(&args.profile)?;
    if let Some(under) = args.print.print {
        let words: Vec<String> = std::env::args().collect();
        let script = print::script(&args.print, under, profile.gpus(), args.grace, &words)?;
        return output::text(&script);
    }
    fs::create_dir_all(&args.state)
        .map_err(|error| format!("{}: {error}", args.state.display()))?;
    let folder = args.state.canonicalize();
    let folder = folder.map_err(|error| format!("{}: {error}", args.state.display()))?;
    let lock = folder.join("lock");
    let file = fs::File::create(&lock).map_err(|error| format!("{}: {error}", lock.display()))?;
    file.try_lock()
        .map_err(|error| format!("{}: {error}: another litctl runs this job", lock.display()))?;
    let mut runner = Runner::new(args, folder, &profile)?;
    if args.dry_run {
        return runner.dry_run();
    }
    runner.run()
}

struct Runner<'a> {
    args: &'a Args,
    /// For what must outlast a crash: absolute.
    folder: PathBuf,
    profile: &'a Profile,
    signal: Signal,
    clock: Clock,
    began: Instant,
    state: State,
    handle: Option<Handle>,
}

type Fallible<T> = Result<T, Box<dyn Error>>;

impl<'a> Runner<'a> {
    fn new(args: &'a Args, folder: PathBuf, profile: &'a Profile) -> Fallible<Self> {
        let clock = args.clock.clock();
        let now = clock.now();
        let signal = args.source.signal(Some(&folder))?;
        let hours = SignedDuration::try_from_secs_f64(args.deadline_hours.0)?;
        let state = match State::read(&folder)? {
            Some(state) if state.tokens != args.tokens.0 => {
                let path = State::path(&folder);
                return Err(format!(
                    "{} is of a job of {} tokens: give the same --tokens, or another --state",
                    path.display(),
                    state.tokens
                )
                .into());
            }
            Some(state) => state,
            None => State::new(now, now.saturating_add(hours)?, args.tokens.0),
        };
        Ok(Self {
            args,
            folder,
            profile,
            signal,
            clock: clock.since(state.now),
            began: Instant::now(),
            state,
            handle: None,
        })
    }

    /// Tokens of the last checkpoint; none where the job has written none yet.
    fn trained(&self) -> Fallible<f64> {
        let path = &self.args.progress;
        if !path.exists() {
            return Ok(0.0);
        }
        let text = litd_files::text(path, litd_files::LONGEST_STATE);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        let number = text.trim().parse().ok();
        let number = number.filter(|it: &f64| it.is_finite() && *it >= 0.0);
        let wrong = || {
            format!(
                "{}: {:?} must be a number of tokens",
                path.display(),
                text.trim()
            )
        };
        Ok(number.ok_or_else(wrong)?)
    }

    fn advice(&mut self, trained: f64) -> Fallible<Advice> {
        let now = self.clock.now();
        self.signal.poll(now);
        let running = self.state.running;
        let standing = Standing {
            points: self.profile.points(),
            window: self.args.window_hours,
            switch: self
                .args
                .switch_seconds
                .or(self.profile.switch())
                .unwrap_or(Seconds::ZERO),
            tokens: Tokens((self.args.tokens.0 - trained).max(1.0)),
            running: running.and_then(|it| number(self.profile, it).ok()),
            deadline: self.state.deadline,
        };
        advise(&standing, &self.signal, now)
    }

    fn dry_run(&mut self) -> Outcome {
        let trained = self.trained()?;
        let advice = self.advice(trained)?;
        let words = job::command(&self.args.command, advice.configuration);
        output::text(&format!(
            "now      {}\ntrained  {trained} of {} tokens; deadline {}\nrun      {}\nreason   {}\ncommand  {}\n",
            self.clock.now(),
            self.args.tokens.0,
            self.state.deadline,
            advice.configuration,
            advice.reason,
            words.join(" ")
        ))
    }

    fn run(&mut self) -> Outcome {
        let mut machine = Machine::new(Patience {
            checkpoint: Duration::from_secs_f64(self.args.grace.0.min(1e9)),
            window: self.args.window_hours.hours(),
            failures: self.args.failures,
        });
        if self.state.process.is_some_and(Process::is_alive) {
            output::note("a job of an earlier run is still there: it is asked for a checkpoint");
            let seen = self.see()?;
            let action = machine.adopt(&seen);
            self.act(action)?;
        }
        let mut wait = Wait::new(TICK)?;
        let mut saved = Instant::now();
        loop {
            let seen = self.see()?;
            if machine.has_stopped(&seen) {
                return Err(format!(
                    "stopped with {} tokens; started again, litctl goes on from there",
                    seen.tokens
                )
                .into());
            }
            let mut reason = String::new();
            let decide = || {
                let advice = self.advice(seen.tokens)?;
                reason = advice.reason;
                Ok::<_, Box<dyn Error>>(advice.number)
            };
            let action = machine.step(&seen, decide)?;
            if let Some(action) = action {
                let configuration = match action {
                    Action::Start(number) => Some(self.profile.points()[number].configuration),
                    _ => None,
                };
                if let Some(configuration) = configuration {
                    output::note(&format!(
                        "{}: {configuration} starts with {} tokens ({reason})",
                        self.clock.now(),
                        seen.tokens
                    ));
                }
                if self.act(action)? {
                    return self.outcome(action, seen.tokens);
                }
            }
            if saved.elapsed() >= Duration::from_secs(1) {
                self.state.now = self.clock.now();
                self.state.write(&self.folder)?;
                saved = Instant::now();
            }
            if wait.is_over() {
                output::note("told to stop: the job is asked for a checkpoint");
                machine.stop();
            }
        }
    }

    fn outcome(&self, action: Action, tokens: f64) -> Outcome {
        let (now, deadline) = (self.clock.now(), self.state.deadline);
        if action == Action::GiveUp {
            let failures = self.args.failures;
            return Err(format!(
                "the job failed {failures} times without a new checkpoint; it has {tokens} tokens. Started again, \
                 litctl goes on from there"
            )
            .into());
        }
        let late = if now > deadline {
            ", after the deadline"
        } else {
            ""
        };
        output::text(&format!(
            "{tokens} tokens trained at {now}{late} ({deadline}), {} switches\n",
            self.state.switches
        ))
    }

    fn see(&mut self) -> Fallible<Seen> {
        let child = match &mut self.handle {
            Some(handle) => match handle.try_wait()? {
                Some(status) => {
                    output::note(&format!("the job {}", job::ended(status)));
                    self.handle = None;
                    self.forget()?;
                    Child::Ended(status.success())
                }
                None => Child::Alive,
            },
            None => match self.state.process {
                Some(process) if process.is_alive() => Child::Alive,
                Some(_) => {
                    self.forget()?;
                    Child::Ended(false)
                }
                None => Child::Ended(true),
            },
        };
        let tokens = self.trained()?;
        let now = self.clock.now();
        Ok(Seen {
            hours: now.duration_since(self.state.begun).as_secs_f64() / 3600.0,
            real: self.began.elapsed(),
            child,
            is_complete: tokens >= self.args.tokens.0,
            tokens,
        })
    }

    fn forget(&mut self) -> Fallible<()> {
        if let Some(process) = self.state.process.take() {
            // Ranks that outlived the process that was started.
            job::tell_all(process, Unix::SIGKILL)?;
        }
        Ok(self.state.write(&self.folder)?)
    }

    /// Does it; whether that was the last.
    fn act(&mut self, action: Action) -> Fallible<bool> {
        match (action, self.state.process) {
            (Action::Start(number), _) => {
                let configuration = self.profile.points()[number].configuration;
                let started = job::start(&self.args.command, configuration, &self.folder)?;
                let (handle, process) = started;
                self.handle = Some(handle);
                let before = self.state.running.replace(configuration);
                self.state.switches += u32::from(before.is_some_and(|it| it != configuration));
                self.state.process = Some(process);
                self.state.write(&self.folder)?;
            }
            (Action::AskCheckpoint, Some(process)) => {
                job::ask(process, &self.args.checkpoint, &self.folder)?;
            }
            (Action::Terminate, Some(process)) => job::tell_all(process, Unix::SIGTERM)?,
            (Action::Kill, Some(process)) => job::tell_all(process, Unix::SIGKILL)?,
            (Action::Finish | Action::GiveUp, _) => {
                self.state.is_finished = action == Action::Finish;
                self.state.write(&self.folder)?;
                return Ok(true);
            }
            (_, None) => (),
        }
        Ok(false)
    }
}
