//! `litctl carbon advise`: what to run now, for those with a launcher of their own.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use jiff::Timestamp;
use litd_carbon::policy::{self, MpcError};
use litd_carbon::signal::Health;
use litd_carbon::{Configuration, Factor, Job, Known, Point, Profile, Start};
use litd_units::{Intensity, Seconds, Tokens, TokensPerSecond};
use serde::Serialize;

use super::clock;
use super::input;
use super::source::{self, Signal};
use crate::{Outcome, output};

/// Say which configuration to run now
///
/// Asks for the signal once and decides as model-predictive control does: the first window of the plan that
/// emits least if the forecast comes true and still meets the deadline. Without any signal all hours count
/// alike, so that the advice is the plan of the least energy in time.
#[derive(clap::Args)]
#[command(after_help = EXIT)]
pub struct Args {
    /// Power and throughput of each configuration
    #[arg(long, value_name = "FILE")]
    profile: PathBuf,
    /// What is still to be trained, such as 8e9
    #[arg(long, value_name = "N", value_parser = input::tokens)]
    tokens: Tokens,
    /// By when
    #[arg(long, value_name = "TIME", value_parser = input::moment)]
    deadline: Timestamp,
    /// What runs now [default: nothing]
    #[arg(long, value_name = "TP,PP,DP", value_parser = configuration)]
    running: Option<Configuration>,
    /// The length of a window
    #[arg(long, value_name = "W", default_value = "1", value_parser = input::hours)]
    window_hours: Seconds,
    /// K, what a switch takes [default: the profile's switch_s, or 0]
    #[arg(long, value_name = "K", value_parser = input::seconds)]
    switch_seconds: Option<Seconds>,
    #[command(flatten)]
    source: source::Source,
    #[command(flatten)]
    clock: clock::Pace,
}

const EXIT: &str = "\
Exit status:
  0    what runs now may run on
  2    the command line or a file is wrong
  10   another configuration is to run now: it is printed";
/// Another configuration is to run.
pub const SWITCH: u8 = 10;

/// Reads a configuration.
pub fn configuration(text: &str) -> Result<Configuration, &'static str> {
    let degrees: Vec<Option<u32>> = text.split(',').map(|it| it.trim().parse().ok()).collect();
    match degrees[..] {
        [Some(tp), Some(pp), Some(dp)] => Ok(Configuration { tp, pp, dp }),
        _ => Err("must be TP,PP,DP, such as 1,4,2"),
    }
}

/// That another configuration is to run: an exit status of its own.
#[derive(Debug)]
pub struct Switch(Configuration);

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is to run now", self.0)
    }
}

impl Error for Switch {}

/// What is decided, and on what grounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    pub configuration: Configuration,
    pub switch: bool,
    pub intensity_g_per_kwh: Option<f64>,
    /// Where the signal is a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_per_kwh: Option<f64>,
    /// What the signal counts.
    pub factor: Factor,
    pub stale: bool,
    pub reason: String,
    #[serde(skip)]
    pub number: usize,
}

/// What is to run, by its number in the profile, and how it stands.
pub struct Standing<'a> {
    pub points: &'a [Point],
    pub window: Seconds,
    pub switch: Seconds,
    /// What is left after the last checkpoint.
    pub tokens: Tokens,
    /// What is likely to be trained of it already: whoever runs on keeps it.
    pub unsaved: Tokens,
    pub running: Option<usize>,
    pub deadline: Timestamp,
    /// What it takes to launch the job where none runs.
    pub launch: Seconds,
    /// How much longer a switch may take that goes wrong: one that the deadline does not need must leave room for it.
    pub risk: Seconds,
}

/// Which configuration is to run now, by its number, and why.
pub type Choice = (usize, &'static str);

/// The share of a window by which a decision may come too late without costing plans a whole one.
const LATE_BY: f64 = 0.01;

const OPTIMUM: &str = "the first window of the plan that emits least in time";
const NO_ROOM: &str =
    "what runs now is in time, and a switch that goes wrong would leave too little of it";
const IN_TIME: &str = "less time is left than the whole windows that plans count: of the configurations that are in \
    time the one that needs least energy";
const TOO_LATE: &str =
    "the deadline can't be met any more: this configuration is the first to be done";

impl Standing<'_> {
    /// The windows that a plan from now on may use, to be asked what is known of them.
    ///
    /// # Errors
    /// One of the numbers can't be.
    pub fn job(&self, now: Timestamp) -> Result<Job, Box<dyn Error>> {
        let start = self.running.map_or(Start::Within(0), Start::Running);
        // Who decides a moment after a window has begun has not lost it: what is lost is looked at by itself.
        let late = self.window * LATE_BY;
        let left = Seconds(self.left(now).0.max(1.0)) + late;
        let job = Job::new(
            self.points,
            self.window,
            self.tokens,
            left,
            self.switch,
            start,
        );
        Ok(job?)
    }

    fn left(&self, now: Timestamp) -> Seconds {
        Seconds(self.deadline.duration_since(now).as_secs_f64())
    }

    /// How long it takes until a configuration trains.
    fn until_it_trains(&self, configuration: usize) -> Seconds {
        match self.running {
            Some(running) if running == configuration => Seconds::ZERO,
            Some(_) => self.switch,
            None => self.launch,
        }
    }

    /// How long a configuration needs from now on.
    fn needs(&self, configuration: usize) -> Seconds {
        let runs_on = self.running == Some(configuration);
        let kept = if runs_on { self.unsaved } else { Tokens::ZERO };
        self.until_it_trains(configuration) + (self.tokens - kept) / self.points[configuration].rate
    }

    /// Whether a configuration is in time that runs on, or that another one follows after this window.
    fn is_in_time(&self, configuration: usize, left: Seconds) -> bool {
        let training = (self.window - self.until_it_trains(configuration))
            .0
            .max(0.0);
        let rest = self.tokens - self.points[configuration].rate * Seconds(training);
        let after = |it: &Point| self.window + self.switch + rest / it.rate;
        self.needs(configuration) <= left || self.points.iter().any(|it| after(it) <= left)
    }

    /// Decides.
    ///
    /// # Errors
    /// What is known can't be, or was issued later than now.
    pub fn choose(
        &self,
        job: &Job,
        now: Timestamp,
        known: &[Known],
    ) -> Result<Choice, Box<dyn Error>> {
        match policy::decide(job, now, known) {
            Ok(number) => Ok(self.with_room(number, self.left(now))),
            Err(MpcError::Infeasible(_)) => Ok(self.without_plan(self.left(now))),
            Err(error) => Err(error.into()),
        }
    }

    /// The optimum, where it leaves enough time: plans do not count that a job must be launched, nor that a switch goes
    /// wrong.
    fn with_room(&self, optimum: usize, left: Seconds) -> Choice {
        let rates = self.points.iter().map(|it| it.rate.0);
        let fastest = TokensPerSecond(rates.fold(0.0, f64::max));
        let at_worst = self.switch + self.risk + self.tokens / fastest;
        match self.running {
            Some(running)
                if running != optimum && self.needs(running) <= left && at_worst > left =>
            {
                (running, NO_ROOM)
            }
            _ if self.is_in_time(optimum, left) => (optimum, OPTIMUM),
            _ => self.without_plan(left),
        }
    }

    /// Plans count whole windows and have none for what is left: whoever is in time all the same, or the first to be
    /// done.
    fn without_plan(&self, left: Seconds) -> Choice {
        let least = |among: &mut dyn Iterator<Item = usize>, cost: &dyn Fn(usize) -> f64| {
            among.min_by(|a, b| cost(*a).total_cmp(&cost(*b)))
        };
        let energy = |it: usize| self.points[it].power.0 * self.needs(it).0;
        let mut in_time = (0..self.points.len()).filter(|it| self.needs(*it) <= left);
        if let Some(number) = least(&mut in_time, &energy) {
            return (number, IN_TIME);
        }
        let first = least(&mut (0..self.points.len()), &|it| self.needs(it).0);
        (first.unwrap_or(0), TOO_LATE)
    }
}

/// Decides by a signal. Where the deadline can't be met any more, the configuration is advised that is done first.
pub fn advise(
    standing: &Standing,
    signal: &Signal,
    now: Timestamp,
) -> Result<Advice, Box<dyn Error>> {
    let job = standing.job(now)?;
    let known = signal.outlook(now, job.window(), job.windows());
    let (number, reason) = standing.choose(&job, now, &known)?;
    let current = signal.current(now);
    let mut reason = reason.to_owned();
    match &current {
        None => {
            let why = signal
                .trouble()
                .unwrap_or_else(|| "none was asked for".into());
            reason += &format!("; there is no signal, and all hours count alike ({why})");
        }
        Some(current) => {
            if let Health::Stale(why) = &current.health {
                reason += &format!("; the signal is stale, of {} ({why})", current.begin);
            }
        }
    }
    if let Some(why) = signal.kept_trouble() {
        reason += &format!("; the signal can't be kept ({why})");
    }
    let stale = current.as_ref().is_none_or(|it| it.health != Health::Fresh);
    let value = current.map(|it| it.intensity.0);
    let is_price = signal.factor() == Factor::Price;
    Ok(Advice {
        configuration: standing.points[number].configuration,
        switch: standing.running != Some(number),
        intensity_g_per_kwh: value.filter(|_| !is_price),
        price_per_kwh: value.filter(|_| is_price),
        factor: signal.factor(),
        stale,
        reason,
        number,
    })
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let profile: Profile = input::parse(&args.profile)?;
    let running = args.running.map(|it| number(&profile, it)).transpose()?;
    let mut signal = args.source.signal(None)?;
    let now = args.clock.clock().now();
    signal.poll(now);
    let standing = Standing {
        points: profile.points(),
        window: args.window_hours,
        switch: args
            .switch_seconds
            .or(profile.switch())
            .unwrap_or(Seconds::ZERO),
        tokens: args.tokens,
        unsaved: Tokens::ZERO,
        running,
        deadline: args.deadline,
        launch: Seconds::ZERO,
        risk: Seconds::ZERO,
    };
    let advice = advise(&standing, &signal, now)?;
    if json {
        output::json(&advice)?;
    } else {
        let value = advice.intensity_g_per_kwh.or(advice.price_per_kwh);
        let value = value.map_or_else(
            || "unknown".into(),
            |it| source::shown(Intensity(it), advice.factor),
        );
        output::text(&format!(
            "run      {}\nsignal   {value}\nreason   {}\n",
            advice.configuration, advice.reason
        ))?;
    }
    match advice.switch {
        true => Err(Box::new(Switch(advice.configuration))),
        false => Ok(()),
    }
}

/// A configuration's number in a profile.
pub fn number(profile: &Profile, wanted: Configuration) -> Result<usize, String> {
    let mut points = profile.points().iter();
    let found = points.position(|point| point.configuration == wanted);
    found.ok_or_else(|| format!("the profile has no {wanted}"))
}
