//! The connection of the runner's decisions to processes, files and the clock.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::Child as Handle;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use litd_carbon::Profile;
use litd_carbon::signal::{Current, Health};
use litd_units::{Seconds, Tokens};
use nix::sys::signal::Signal as Unix;

use super::super::advise::{Advice, advise, number};
use super::super::clock::{Clock, Mark, Steps, passed};
use super::super::source::{FIRST, Signal};
use super::learned::{Learned, Told};
use super::machine::{Action, Child, Machine, Patience, Seen, TERMINATED};
use super::progress::{Reading, Settling};
use super::state::{Process, State};
use super::{Args, job, progress};
use crate::wait::Wait;
use crate::{Outcome, output};

type Fallible<T> = Result<T, Box<dyn Error>>;

/// How often the runner looks.
const TICK: Duration = Duration::from_millis(100);
/// How often it notes the time.
const SAVED: Duration = Duration::from_secs(1);
/// A progress file that is written in two steps has no number for a moment; one that has none for longer is said.
const TORN: Duration = Duration::from_secs(10);

/// The trouble of a job that writes no checkpoints.
const HANGS: &str = "hangs";

/// The exit status where the job has all its tokens after the deadline.
pub const LATE: u8 = 11;

/// The job was done after its deadline.
#[derive(Debug, thiserror::Error)]
#[error("the deadline of {deadline} was missed: the job was done at {now}")]
pub struct Late {
    now: Timestamp,
    deadline: Timestamp,
}

/// How long a checkpoint may take.
fn grace(args: &Args) -> Seconds {
    Seconds(args.grace.0.min(1e9))
}

pub struct Runner<'a> {
    args: &'a Args,
    /// For what must outlast a crash: absolute.
    folder: PathBuf,
    profile: &'a Profile,
    signal: Signal,
    clock: Clock,
    /// The wall clock, where that is the clock; a trace that is played has one of its own.
    steps: Option<Steps>,
    began: Instant,
    state: State,
    handle: Option<Handle>,
    /// A job of an earlier runner.
    is_adopted: bool,
    was_adopted: bool,
    has_started: bool,
    settling: Settling,
    learned: Learned,
    /// When the progress could be read last.
    read: Instant,
    /// Troubles by subject: reported once, until it is well again.
    troubles: BTreeMap<&'static str, String>,
}

impl<'a> Runner<'a> {
    pub fn new(args: &'a Args, folder: PathBuf, profile: &'a Profile) -> Fallible<Self> {
        let clock = args.clock.clock();
        let now = clock.now();
        let kept = folder.exists().then_some(folder.as_path());
        let signal = args.source.signal(kept)?;
        let hours = SignedDuration::try_from_secs_f64(args.deadline_hours.0)?;
        let mut state = match State::read(&folder)? {
            Some(state) if state.tokens != args.tokens.0 => {
                let path = State::path(&folder);
                return Err(format!(
                    "{} is of a job of {} tokens: give the same --tokens, or another --state",
                    path.display(),
                    state.tokens
                )
                .into());
            }
            Some(state) => {
                state.fits(&folder, profile)?;
                state.goes_by(&folder, clock.is_wall())?;
                state
            }
            None => State::new(now, now.saturating_add(hours)?, args.tokens.0),
        };
        let clock = clock.since(state.now);
        let now = clock.now();
        let mark = clock.is_wall().then(|| Mark::new(now)).flatten();
        let step = state.mark.as_ref().zip(mark.as_ref());
        if let Some(step) = step.and_then(|(before, now)| before.step(now)) {
            let seconds = step.as_secs();
            output::note(&format!(
                "the clock was moved by {seconds} s while litctl did not run"
            ));
            state.shift(step);
        } else if now < state.now {
            output::note("the clock was set back while litctl did not run");
            state.shift(now.duration_since(state.now));
        }
        let deadline = state.begun.saturating_add(hours)?;
        if deadline != state.deadline {
            let before = state.deadline;
            output::note(&format!("the deadline was {before}, and is {deadline} now"));
            state.deadline = deadline;
        }
        // Before the first checkpoint nothing else is known: a wrong file is told from one that a crash has left.
        match progress::read(&args.progress, state.trained, args.tokens.0) {
            Ok(_) => (),
            Err(error) if state.trained.is_some() && error.may_be_a_crash() => {
                output::note(&error.to_string());
            }
            Err(error) => return Err(error.to_string().into()),
        }
        let told = Told {
            points: profile.points().to_vec(),
            tokens: args.tokens,
            window: args.window_hours,
            switch: args.switch_seconds.or(profile.switch()),
            grace: grace(args),
            tick: Seconds(TICK.as_secs_f64() * clock.speed()),
            slowest: args.slowest,
            loading: args.longest_load,
        };
        let learned = Learned::new(told, state.costs.clone(), state.rates.clone());
        Ok(Self {
            args,
            folder,
            profile,
            signal,
            clock,
            steps: clock.is_wall().then(|| Steps::new(now, passed())),
            began: Instant::now(),
            state,
            handle: None,
            is_adopted: false,
            was_adopted: false,
            has_started: false,
            settling: Settling::default(),
            learned,
            read: Instant::now(),
            troubles: BTreeMap::new(),
        })
    }

    /// Says what is wrong, once; none: all is well again.
    fn trouble(&mut self, with: &'static str, what: Option<String>) {
        let Some(what) = what else {
            self.troubles.remove(with);
            return;
        };
        if self.troubles.get(with) != Some(&what) {
            output::note(&what);
            self.troubles.insert(with, what);
        }
    }

    /// Tokens of the last checkpoint. A file without a number leaves what was known.
    fn trained(&mut self, now: Timestamp, child: Child) -> f64 {
        let wanted = self.args.tokens.0;
        match progress::read(&self.args.progress, self.state.trained, wanted) {
            Ok(tokens) => {
                let reading = Reading {
                    tokens,
                    now,
                    real: self.began.elapsed(),
                    is_last: child != Child::Alive,
                };
                let tokens = self.settling.take(self.state.trained, reading, wanted);
                self.read = Instant::now();
                self.state.trained = Some(tokens);
                self.trouble("progress", None);
                tokens
            }
            Err(error) => {
                // No half of a file has too many tokens.
                let is_whole = matches!(error, progress::Unknown::TooMany { .. });
                if is_whole || self.read.elapsed() >= TORN {
                    self.trouble("progress", Some(error.to_string()));
                }
                self.state.trained.unwrap_or(0.0)
            }
        }
    }

    /// Notes the state. A disk that is full is no reason to leave the job alone: it is tried again.
    fn save(&mut self) {
        let now = self.clock.now();
        self.state.now = now;
        self.state.mark = self.steps.and_then(|_| Mark::new(now));
        self.state.costs = self.learned.costs.clone();
        self.state.rates = self.learned.rates.clone();
        // The folder may have been removed: the job goes on, and files that must outlast a crash
        // are written anew.
        let written = fs::create_dir_all(&self.folder);
        let written = written.map_err(|error| format!("{}: {error}", self.folder.display()));
        let written = written.and_then(|()| self.state.write(&self.folder));
        self.trouble("state", written.err());
    }

    fn advice(&mut self, trained: f64) -> Fallible<Advice> {
        let now = self.clock.now();
        self.signal.poll_first(now, FIRST);
        let is_up = self.handle.is_some() || self.is_adopted;
        let running = self.state.running.filter(|_| is_up);
        let running = running.and_then(|it| number(self.profile, it).ok());
        let (at, deadline) = (self.elapsed(now), self.state.deadline);
        let standing = self
            .learned
            .standing(at, Tokens(trained), running, deadline);
        advise(&standing, &self.signal, now)
    }

    /// The configuration to run, by its number, and why. Once the job has run, an undecidable
    /// choice leaves it as it is.
    fn decision(&mut self, trained: f64) -> Fallible<(usize, String)> {
        let running = self
            .state
            .running
            .and_then(|it| number(self.profile, it).ok());
        match (self.advice(trained), running) {
            (Ok(advice), _) => {
                self.trouble("advice", None);
                self.learned.decided(advice.number);
                self.tell_of_the_deadline(&advice);
                Ok((advice.number, advice.reason))
            }
            (Err(error), Some(running)) => {
                self.trouble("advice", Some(error.to_string()));
                Ok((running, "nothing could be decided".to_owned()))
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Says it once where the signal is stale or lost, and where it is back.
    fn tell_of_the_signal(&mut self) {
        const SIGNAL: &str = "signal";
        let is_told = self.troubles.contains_key(SIGNAL);
        // The same moment for both: a replayed trace may advance by hours in between.
        let now = self.clock.now();
        let is_fresh = |it: Current| it.health == Health::Fresh;
        // A trace that is played goes on by minutes with each look, and is asked only before it is said to be lost.
        if self.clock.is_wall() || !self.signal.current(now).is_some_and(is_fresh) {
            self.signal.poll(now);
        }
        let why = match self.signal.current(now) {
            Some(current) => match current.health {
                Health::Fresh if is_told => {
                    output::note("the carbon signal is back");
                    return self.trouble(SIGNAL, None);
                }
                Health::Fresh => return,
                Health::Stale(why) => format!("its last value is of {} ({why})", current.begin),
            },
            None => match self.signal.trouble() {
                Some(why) => format!("all hours count alike ({why})"),
                // The job has not been asked yet.
                None => return,
            },
        };
        if !is_told {
            self.trouble(SIGNAL, Some(format!("the carbon signal is lost: {why}")));
        }
    }

    /// Says it once where the job may hang.
    fn tell_of_a_job_that_hangs(&mut self, at: Seconds) {
        let is_up = self.handle.is_some();
        let silent = self.learned.hangs(at).filter(|_| is_up);
        if self.troubles.contains_key(HANGS) && silent.is_some() {
            return;
        }
        let what = silent.map(|silent| {
            let then = match self.args.hang_hours {
                Some(hours) => format!(
                    "it is started again after {:.2} h of the wall clock",
                    hours.hours()
                ),
                None => "if it hangs, end it, or give --hang-hours".to_owned(),
            };
            let progress = &self.args.progress;
            let place = match progress.exists() {
                true => String::new(),
                false => format!(" ({} is not there)", progress.display()),
            };
            format!(
                "the job has written no checkpoint for {:.2} h{place}, and whether it trains is not known: {then}",
                silent.hours()
            )
        });
        self.trouble(HANGS, what);
    }

    /// Says it once where the deadline can't be met any more, and where it can again.
    fn tell_of_the_deadline(&mut self, advice: &Advice) {
        const DEADLINE: &str = "deadline";
        match (advice.in_time, self.troubles.contains_key(DEADLINE)) {
            (false, false) => {
                let (deadline, end) = (self.state.deadline, advice.end);
                let what = format!(
                    "the deadline of {deadline} CAN'T BE MET ANY MORE by the checkpoints that were written and their rates: training ends \
                     about {end}, in the configuration that is done first. It goes on; litctl's exit status will be {LATE} \
                     unless the deadline is moved (start litctl again with more --deadline-hours)"
                );
                self.trouble(DEADLINE, Some(what));
            }
            (true, true) => {
                self.trouble(DEADLINE, None);
                output::note("the deadline can be met again");
            }
            _ => (),
        }
    }

    pub fn dry_run(&mut self) -> Outcome {
        let trained = self.trained(self.clock.now(), Child::Ended(true));
        if trained >= self.args.tokens.0 {
            return self.nothing_is_left(trained);
        }
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

    /// Runs until the job is done. Where litctl can't go on, it leaves no job without anybody to look after it.
    pub fn run(&mut self) -> Outcome {
        job::adopt_orphans();
        let outcome = self.look_after();
        if outcome.is_err() && !job::remains(&self.folder).is_empty() {
            output::note("litctl can't go on: the job is told to end");
            if let Err(error) = job::abandon(&self.folder, TERMINATED) {
                output::note(&error);
            }
        }
        outcome
    }

    fn look_after(&mut self) -> Outcome {
        let mut machine = Machine::new(Patience {
            checkpoint: Duration::from_secs_f64(grace(self.args).0),
            window: self.args.window_hours.hours(),
            failures: self.args.failures,
            hangs: self.args.hang_hours.map(|it| Duration::from_secs_f64(it.0)),
        });
        self.is_adopted = self.state.process.is_some_and(Process::is_alive)
            || !job::remains(&self.folder).is_empty();
        self.was_adopted = self.is_adopted;
        if self.is_adopted {
            output::note("a job of an earlier run is still there: it is asked for a checkpoint");
            let seen = self.see()?;
            let action = machine.adopt(&seen);
            self.act(action, &seen)?;
        }
        let mut wait = Wait::new(TICK)?;
        let mut saved = Instant::now();
        // Why the last decision was made: what is decided is started once the job has ended.
        let mut reason = String::new();
        loop {
            let seen = self.see()?;
            if machine.has_stopped(&seen) {
                let ended = job::end_remains(&self.folder);
                self.trouble("remains", ended.err());
                self.save();
                return Err(format!(
                    "stopped with {} tokens; started again, litctl goes on from there",
                    seen.tokens
                )
                .into());
            }
            let decide = || {
                let advice = self.decision(seen.tokens)?;
                reason = advice.1;
                Ok::<_, Box<dyn Error>>(advice.0)
            };
            let action = machine.step(&seen, decide)?;
            if let Some(action) = action {
                if let Action::Start(number) = action {
                    output::note(&format!(
                        "{}: {} starts with {} tokens ({reason})",
                        self.clock.now(),
                        self.profile.points()[number].configuration,
                        seen.tokens
                    ));
                }
                if self.act(action, &seen)? {
                    return self.outcome(action, seen.tokens);
                }
            }
            self.tell_of_the_signal();
            self.tell_of_a_job_that_hangs(Seconds::from_hours(seen.hours));
            if saved.elapsed() >= SAVED {
                self.save();
                saved = Instant::now();
            }
            if wait.is_over() {
                output::note("told to stop: the job is asked for a checkpoint");
                machine.stop();
            }
        }
    }

    fn outcome(&self, action: Action, tokens: f64) -> Outcome {
        let now = self.settling.complete().unwrap_or_else(|| self.clock.now());
        let deadline = self.state.deadline;
        if action == Action::GiveUp {
            let failures = output::count(u64::from(self.args.failures), "time");
            let progress = &self.args.progress;
            let hint = match progress::read(progress, None, self.args.tokens.0) {
                Err(error) => error.to_string(),
                Ok(_) => progress::missing(progress)
                    .unwrap_or_else(|| "Started again, litctl goes on from there".to_owned()),
            };
            return Err(format!(
                "the job failed {failures} without a new checkpoint; it has {tokens} tokens. {hint}"
            )
            .into());
        }
        if !self.has_started && !self.was_adopted {
            return self.nothing_is_left(tokens);
        }
        let is_late = now > deadline;
        let late = if is_late { ", after the deadline" } else { "" };
        output::text(&format!(
            "{tokens} tokens trained at {now}{late} (deadline {deadline}), {} switches\n",
            self.state.switches
        ))?;
        match is_late {
            true => Err(Box::new(Late { now, deadline })),
            false => Ok(()),
        }
    }

    fn nothing_is_left(&self, tokens: f64) -> Outcome {
        let path = self.args.progress.display();
        output::text(&format!(
            "{path}: {tokens} tokens are trained already, and nothing was started\n"
        ))
    }

    fn see(&mut self) -> Fallible<Seen> {
        let child = self.child()?;
        let now = self.clock.now();
        self.look_at_the_clock(now);
        let tokens = self.trained(now, child);
        let elapsed = self.elapsed(now);
        if self.learned.sees(elapsed, Tokens(tokens)) {
            self.save();
        }
        Ok(Seen {
            hours: elapsed.hours(),
            real: self.began.elapsed(),
            child,
            is_complete: tokens >= self.args.tokens.0,
            tokens,
            is_surprised: self.learned.is_surprised(),
        })
    }

    /// Since the first start.
    fn elapsed(&self, now: Timestamp) -> Seconds {
        Seconds(now.duration_since(self.state.begun).as_secs_f64())
    }

    /// The deadline is so many hours after the first start: it moves with the clock that is set.
    fn look_at_the_clock(&mut self, now: Timestamp) {
        let Some(step) = self.steps.as_mut().and_then(|it| it.look(now, passed())) else {
            return;
        };
        self.state.shift(step);
        self.settling.shift(step);
        let deadline = self.state.deadline;
        output::note(&format!(
            "the clock was moved by {} s: the deadline is {deadline} now",
            step.as_secs()
        ));
        self.save();
    }

    fn child(&mut self) -> Fallible<Child> {
        if let Some(handle) = &mut self.handle {
            let Some(status) = handle.try_wait()? else {
                return Ok(Child::Alive);
            };
            output::note(&format!("the job {}", job::ended(status)));
            self.trouble("no progress", progress::missing(&self.args.progress));
            self.handle = None;
            if let Some(process) = self.state.process.take() {
                // Ranks that outlived the process that was started.
                job::tell_all(process, Unix::SIGKILL)?;
            }
            self.save();
            return Ok(Child::Ended(status.success()));
        }
        if self.is_adopted {
            let is_there = self.state.process.is_some_and(Process::is_alive);
            if is_there || !job::remains(&self.folder).is_empty() {
                return Ok(Child::Alive);
            }
            self.is_adopted = false;
            self.state.process = None;
            self.save();
            return Ok(Child::Ended(false));
        }
        // A process that now has the id of an earlier runner's process is not ours.
        self.state.process = None;
        Ok(Child::Ended(true))
    }

    /// Does it; whether that was the last.
    fn act(&mut self, action: Action, seen: &Seen) -> Fallible<bool> {
        match action {
            Action::Start(number) => self.start(number, seen)?,
            Action::AskCheckpoint => {
                self.learned.asked();
                let asked = match self.process() {
                    Some(process) => job::ask(process, &self.args.checkpoint, &self.folder),
                    None => job::ask_remains(&self.args.checkpoint, &self.folder),
                };
                // A job that was not asked is told to end once its time is over.
                self.trouble("request", asked.err());
            }
            Action::Terminate => self.tell(Unix::SIGTERM)?,
            Action::Kill => self.tell(Unix::SIGKILL)?,
            Action::Finish | Action::GiveUp => {
                let ended = job::end_remains(&self.folder);
                self.trouble("remains", ended.err());
                self.state.is_finished = action == Action::Finish;
                self.save();
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The process that was started, as long as it is there: somebody else may have its number after it.
    fn process(&self) -> Option<Process> {
        let is_ours = |it: &Process| self.handle.is_some() || it.is_alive();
        self.state.process.filter(is_ours)
    }

    fn tell(&self, signal: Unix) -> Outcome {
        if let Some(process) = self.process() {
            job::tell_all(process, signal)?;
        }
        Ok(job::tell_remains(&self.folder, signal)?)
    }

    /// Starts a configuration. Where that fails the job has failed, and is tried again as after a crash; but what
    /// never ran is a wrong command.
    fn start(&mut self, number: usize, seen: &Seen) -> Outcome {
        let configuration = self.profile.points()[number].configuration;
        let (handle, process) = match job::start(&self.args.command, configuration, &self.folder) {
            Ok(started) => started,
            Err(error) if self.has_started => {
                self.trouble("start", Some(error));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        self.trouble("start", None);
        self.has_started = true;
        self.handle = Some(handle);
        let at = Seconds::from_hours(seen.hours);
        self.learned.started(at, Tokens(seen.tokens), number);
        let before = self.state.running.replace(configuration);
        self.state.switches += u32::from(before.is_some_and(|it| it != configuration));
        self.state.process = Some(process);
        self.save();
        Ok(())
    }
}
