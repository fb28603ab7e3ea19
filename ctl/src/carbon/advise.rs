//! `litctl carbon advise`: what to run now, for those with a launcher of their own.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use litd_carbon::signal::Health;
use litd_carbon::{Configuration, Factor, Profile};
use litd_units::{Intensity, Seconds, Tokens};
use serde::Serialize;

use super::clock;
use super::input;
use super::source::{self, Signal};
use super::standing::{Belief, Reason, Standing};
use crate::{Outcome, output};

/// Print which configuration to run now
///
/// Asks for the signal once and decides by model-predictive control: it makes the plan that emits
/// least if the forecast comes true and that meets the deadline, and prints that plan's first
/// window. Without a signal all hours count equally, so the plan is the one with the least energy
/// that meets the deadline.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    /// Power and throughput of each configuration
    #[arg(long, value_name = "FILE")]
    profile: PathBuf,
    /// Tokens still to train, such as 8e9
    #[arg(long, value_name = "N", value_parser = input::tokens)]
    tokens: Tokens,
    /// The deadline, such as 2026-12-01T00:00:00Z
    #[arg(long, value_name = "TIME", value_parser = input::moment)]
    deadline: Timestamp,
    /// The configuration that runs now [default: none]
    #[arg(long, value_name = "TP,PP,DP", value_parser = configuration)]
    running: Option<Configuration>,
    /// The length of a window, in hours
    #[arg(long, value_name = "W", default_value = "1", value_parser = input::window)]
    window_hours: Seconds,
    /// K, the seconds that a switch takes [default: the profile's switch_s, or 0]
    #[arg(long, value_name = "K", value_parser = input::seconds)]
    switch_seconds: Option<Seconds>,
    #[command(flatten)]
    source: source::Source,
    #[command(flatten)]
    clock: clock::Pace,
}

const AFTER: &str = "\
Examples:
  litctl carbon advise --profile P.csv --tokens 5e9 --running 1,1,8 \\
      --deadline 2026-12-01T00:00:00Z \\
      --provider electricity-maps-v4 --zone DE --token-file TOKEN
  litctl carbon advise --profile P.csv --tokens 5e9 \\
      --deadline 2026-12-01T00:00:00Z --trace SIGNAL.csv --forecast F.csv

Exit status:
  0    the running configuration may go on
  2    the command line or a file is wrong
  10   another configuration should run now: it is printed

The status does not say whether the deadline can be met; the printed end does,
and in_time with --json.";
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

/// The advice that another configuration should run: an exit status of its own.
#[derive(Debug)]
pub struct Switch(Configuration);

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is to run now", self.0)
    }
}

impl Error for Switch {}

/// The decision and its grounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    pub configuration: Configuration,
    pub switch: bool,
    pub intensity_g_per_kwh: Option<f64>,
    /// Where the signal is a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_per_kwh: Option<f64>,
    /// The signal's factor.
    pub factor: Factor,
    pub stale: bool,
    pub reason: String,
    /// Whether a configuration may still meet the deadline.
    pub in_time: bool,
    /// When the job is done: if the configuration runs on, or, where that is too late, with a faster one that follows.
    pub end: Timestamp,
    #[serde(skip)]
    pub number: usize,
}

/// Decides by a signal. Where the deadline can't be met any more, the configuration is advised that is done first.
pub fn advise(
    standing: &Standing,
    signal: &Signal,
    now: Timestamp,
) -> Result<Advice, Box<dyn Error>> {
    let job = standing.job(now)?;
    let known = signal.outlook(now, job.window(), job.windows());
    let (number, why) = standing.choose(&job, now, &known)?;
    let current = signal.current(now);
    let mut reason = why.text().to_owned();
    match &current {
        None => {
            let why = signal
                .trouble()
                .unwrap_or_else(|| "there is no answer yet".into());
            reason += &format!("; there is no signal, and all hours count alike ({why})");
        }
        Some(current) => {
            if let Health::Stale(why) = &current.health {
                reason += &format!("; the signal is stale, of {} ({why})", current.begin);
            }
        }
    }
    if let Some(why) = signal.no_forecast() {
        reason += &format!("; there is no forecast ({why})");
    }
    if let Some(why) = signal.kept_trouble() {
        reason += &format!("; the signal can't be kept ({why})");
    }
    let needs = standing.ends_after(number, standing.left(now));
    let needs = SignedDuration::try_from_secs_f64(needs.0).ok();
    let end = needs.and_then(|it| now.checked_add(it).ok());
    let stale = current.as_ref().is_none_or(|it| it.health != Health::Fresh);
    let value = current.map(|it| it.intensity.0);
    let is_price = signal.factor() == Factor::Price;
    Ok(Advice {
        configuration: standing.beliefs[number].point.configuration,
        switch: standing.running != Some(number),
        intensity_g_per_kwh: value.filter(|_| !is_price),
        price_per_kwh: value.filter(|_| is_price),
        factor: signal.factor(),
        stale,
        reason,
        end: end.unwrap_or(Timestamp::MAX),
        in_time: why != Reason::TooLate,
        number,
    })
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let profile: Profile = input::parse(&args.profile)?;
    let running = args.running.map(|it| number(&profile, it)).transpose()?;
    let mut signal = args.source.signal(None)?;
    let now = args.clock.clock().now();
    signal.poll_first(now, source::FIRST);
    let standing = Standing {
        beliefs: profile.points().iter().copied().map(Belief::told).collect(),
        window: args.window_hours,
        switch: profile.planned_switch(args.switch_seconds),
        tokens: args.tokens,
        unsaved: Tokens::ZERO,
        running,
        deadline: args.deadline,
        launch: Seconds::ZERO,
        risk: Seconds::ZERO,
        loading: Seconds::ZERO,
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
        let when = match advice.in_time {
            true => "in time",
            false => "AFTER THE DEADLINE",
        };
        output::text(&format!(
            "run      {}\nsignal   {value}\nend      {:.0}, {when}\nreason   {}\n",
            advice.configuration, advice.end, advice.reason
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
