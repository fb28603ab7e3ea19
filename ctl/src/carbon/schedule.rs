//! `litctl carbon schedule`: the plan of one job on a recorded trace.

use std::error::Error;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use litd_carbon::solve::{Effort, Solution, solve};
use litd_carbon::{
    Configuration, Factor, Forecasts, Job, Plan, Problem, Profile, Series, Skill, Start, Trace,
    in_whole_windows, policy, slack_deadline,
};
use litd_units::{Intensity, Seconds, Tokens};
use serde::Serialize;

use super::asker;
use super::input;
use crate::{Outcome, output};

/// Plan which configuration runs in which window of a recorded trace
///
/// A window is the time for which a configuration is chosen. The plan counts whole windows at the
/// power of their configurations. A switch to another configuration takes K, which counts against
/// the deadline only (the paper's equations 1 to 4). Waiting draws no power, and a job that has
/// begun does not pause.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Power and throughput of each configuration: CSV with tp,pp,dp,power_w,tokens_per_s (of the whole
    /// job; switch_s may be there), or the same as JSON
    #[arg(long, value_name = "FILE")]
    profile: PathBuf,
    /// Carbon intensity: CSV with datetime_utc and ci_direct_g_per_kwh or ci_lifecycle_g_per_kwh
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Forecasts, for mpc: CSV with issued_utc,lead_h,forecast_g_per_kwh
    #[arg(long, value_name = "FILE", required_if_eq("policy", "mpc"))]
    forecast: Option<PathBuf>,
    /// Let mpc use forecasts as issued, without correcting them by their past errors
    #[arg(long, requires = "forecast")]
    as_issued: bool,
    /// When the job arrives, such as 2024-05-08T00:00:00Z
    #[arg(long, value_name = "TIME", value_parser = input::moment)]
    start: Timestamp,
    /// Tokens to train, such as 8e9
    #[arg(long, value_name = "N", value_parser = input::tokens)]
    tokens: Tokens,
    /// The deadline, in hours after the start [default: 1.25 times as long as the fastest
    /// configuration takes, rounded up to whole hours, but at least so long that this configuration
    /// fits in whole windows]
    #[arg(long, value_name = "D", value_parser = input::hours)]
    deadline_hours: Option<Seconds>,
    /// The policy that chooses configurations
    #[arg(long, value_enum)]
    policy: Policy,
    /// Which kind of carbon intensity counts
    #[arg(
        long,
        value_name = "direct|lifecycle|marginal",
        default_value = "direct"
    )]
    factor: Factor,
    /// The length of a window, in hours
    #[arg(long, value_name = "W", default_value = "1", value_parser = input::window)]
    window_hours: Seconds,
    /// How long shift and shift-static may wait at most, in hours [default: as long as the deadline lets them]
    #[arg(long, value_name = "S", value_parser = input::span)]
    shift_hours: Option<Seconds>,
    /// K, the seconds that a switch takes [default: the profile's switch_s, or 0]
    #[arg(long, value_name = "K", value_parser = input::seconds)]
    switch_seconds: Option<Seconds>,
}

const EXAMPLES: &str = "\
Policies:
  static        the one configuration that emits least, from the start on
                (knows the whole trace)
  greedy        a slower configuration if it saves more now than catching up
                later costs, at the mean intensity of the last day
  fixed         the optimum that begins at the start (knows the whole trace)
  shift         the optimum that may wait (knows the whole trace)
  shift-static  one configuration that may wait (knows the whole trace)
  mpc           the optimum over the newest forecast, decided again in every
                window; forecasts are corrected by their past errors, unless
                --as-issued is given

With --json: optimal says whether the plan is proven optimal for its policy;
bound_g: no plan of that policy can emit less (for greedy and mpc the bound of
fixed is given).

Example:
  litctl carbon schedule --profile P.csv --trace T.csv \\
      --start 2024-05-08T00:00:00Z --tokens 8e9 --deadline-hours 48 \\
      --policy fixed --switch-seconds 90";

const PRICE: &str = "--factor price: this command plans by emissions only; `advise`, `run` and `follow` can go by \
                     prices, and `litlab carbon study` counts what a plan costs";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Policy {
    Static,
    Greedy,
    Fixed,
    Shift,
    ShiftStatic,
    Mpc,
}

impl Policy {
    fn may_wait(self) -> bool {
        matches!(self, Self::Shift | Self::ShiftStatic)
    }

    fn name(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self);
        value.map_or_else(String::new, |it| it.get_name().to_owned())
    }
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let profile: Profile = input::parse(&args.profile)?;
    let trace: Trace = input::parse(&args.trace)?;
    let of = |error: &dyn Error| format!("{}: {error}", args.trace.display());
    if args.factor == Factor::Price {
        return Err(PRICE.into());
    }
    let series = trace.series(args.factor).map_err(|error| of(&error))?;
    let job = job(args, &profile)?;
    // If no configuration is fast enough, that is reported before anything about the trace.
    job.check()?;
    let windows = series.windows(args.start, job.window(), job.windows());
    let problem = Problem::new(job, &windows.map_err(|error| of(&error))?)?;
    let solution = choose(args, &problem, &trace, series)?;
    if json {
        return output::json(&Document::new(&problem, &solution));
    }
    output::text(&text(args, &trace, &problem, &solution))
}

fn job(args: &Args, profile: &Profile) -> Result<Job, Box<dyn Error>> {
    let window = args.window_hours;
    // Long windows may need more than the rule gives: the fastest configuration fits in whole ones.
    let slack = || {
        let rule = slack_deadline(profile.points(), args.tokens, 0.25);
        rule.max(in_whole_windows(profile.points(), args.tokens, window))
    };
    let deadline = args.deadline_hours.unwrap_or_else(slack);
    let latest = match (args.policy.may_wait(), args.shift_hours) {
        (false, _) => 0,
        (true, None) => usize::MAX,
        (true, Some(shift)) => (shift / window + 1e-9).floor() as usize,
    };
    Ok(Job::new(
        profile.points(),
        window,
        args.tokens,
        deadline,
        profile.planned_switch(args.switch_seconds),
        Start::Within(latest),
    )?)
}

/// A forecast counts until a newer one is issued, however old it is.
fn tell_of_an_old_forecast(forecasts: &Forecasts, start: Timestamp) {
    const OLD: SignedDuration = SignedDuration::from_hours(24);
    if let Some(newest) = forecasts.newest(start)
        && start.duration_since(newest.at) > OLD
    {
        output::note(&format!(
            "the newest forecast at the start was issued at {}, {:.0} h before",
            newest.at,
            start.duration_since(newest.at).as_secs_f64() / 3600.0
        ));
    }
}

fn choose(
    args: &Args,
    problem: &Problem,
    trace: &Trace,
    series: &Series,
) -> Result<Solution, Box<dyn Error>> {
    let effort = Effort::for_hours(problem.job().deadline().hours());
    Ok(match args.policy {
        Policy::Static | Policy::ShiftStatic => policy::best_static(problem)?,
        Policy::Fixed | Policy::Shift => solve(problem, effort)?,
        Policy::Greedy => {
            let (window, count) = (problem.job().window(), problem.intensities().len());
            let before = series.day_before(args.start, window);
            let begun = series.begun(args.start, window, count);
            let plan = policy::greedy(problem, &before, &begun)?;
            judge(problem, plan, effort)?
        }
        Policy::Mpc => {
            let path = args.forecast.as_ref();
            let path = path.ok_or("--forecast is missing: mpc decides with forecasts")?;
            let forecasts = asker::forecasts(path, trace, args.factor)?;
            tell_of_an_old_forecast(&forecasts, args.start);
            let plan = mpc(args, problem, series, &forecasts);
            judge(
                problem,
                plan.map_err(|error| format!("{}: {error}", path.display()))?,
                effort,
            )?
        }
    })
}

/// Replays the job with the newest forecast of each window, corrected by how much of the earlier
/// ones came true. Values that were observed or issued after a window's beginning are not used for
/// it.
fn mpc(
    args: &Args,
    problem: &Problem,
    series: &Series,
    forecasts: &Forecasts,
) -> Result<Plan, policy::MpcError> {
    let (job, start) = (problem.job(), args.start);
    let skill = match args.as_issued {
        true => Skill::default(),
        false => {
            let until = start.as_second().saturating_add(job.deadline().0 as i64);
            let until = Timestamp::from_second(until).unwrap_or(Timestamp::MAX);
            Skill::learn(series, Some(forecasts), start, until)
        }
    };
    policy::mpc(job, start, |now, count| {
        skill.outlook(series, forecasts, now, job.window(), count)
    })
}

/// A plan of a policy that proves nothing, with what the optimum proves.
fn judge(problem: &Problem, plan: Plan, effort: Effort) -> Result<Solution, Box<dyn Error>> {
    plan.check(problem)?;
    let optimum = solve(problem, effort)?;
    let carbon = plan.carbon(problem);
    Ok(Solution {
        plan,
        carbon,
        bound: optimum.bound.min(carbon),
        optimal: optimum.bound >= carbon * (1.0 - 1e-9),
    })
}

/// The output of `--json`.
#[derive(Serialize)]
struct Document {
    carbon_g: f64,
    energy_kwh: f64,
    completion_hours: Number,
    switches: usize,
    start_hours: Number,
    windows: Vec<Window>,
    optimal: bool,
    bound_g: f64,
}

#[derive(Serialize)]
struct Window {
    hour: Number,
    configuration: Option<Configuration>,
}

/// A number that is written without a fraction where it has none.
#[derive(Serialize)]
#[serde(untagged)]
enum Number {
    Whole(u64),
    Fraction(f64),
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        match number.fract() == 0.0 && (0.0..1e15).contains(&number) {
            true => Self::Whole(number as u64),
            false => Self::Fraction(number),
        }
    }
}

impl Document {
    fn new(problem: &Problem, solution: &Solution) -> Self {
        let (job, plan) = (problem.job(), &solution.plan);
        let hour = |window: usize| Number::from((job.window() * window as f64).hours());
        let waiting = (0..plan.start).map(|window| Window {
            hour: hour(window),
            configuration: None,
        });
        let running = plan.choices.iter().zip(plan.start..);
        let running = running.map(|(choice, window)| Window {
            hour: hour(window),
            configuration: Some(job.points()[*choice].configuration),
        });
        Self {
            carbon_g: solution.carbon.0,
            energy_kwh: plan.energy(problem).kilowatt_hours(),
            completion_hours: plan.completion(problem).hours().into(),
            switches: plan.switches(job.start()),
            start_hours: hour(plan.start),
            windows: waiting.chain(running).collect(),
            optimal: solution.optimal,
            bound_g: solution.bound.0,
        }
    }
}

fn text(args: &Args, trace: &Trace, problem: &Problem, solution: &Solution) -> String {
    let (job, plan) = (problem.job(), &solution.plan);
    let hours = |windows: usize| (job.window() * windows as f64).hours();
    let zone = trace.zone().map(|zone| format!(" of {zone}"));
    let mut text = format!(
        "policy   {}; {} carbon intensity{}; windows of {} h; a switch takes {:.0} s\n",
        args.policy.name(),
        args.factor,
        zone.unwrap_or_default(),
        hours(1),
        job.switch().0
    );
    let proven = match (solution.optimal, args.policy) {
        (true, Policy::Static) => "no other single configuration emits less".to_owned(),
        (true, Policy::ShiftStatic) => {
            "no other single configuration or start emits less".to_owned()
        }
        (true, _) => "no other plan emits less".to_owned(),
        (false, _) => format!(
            "no plan emits less than {:.3} kg: this one is at most {:.3} % above the least",
            solution.bound.0 / 1e3,
            solution.gap() * 100.0
        ),
    };
    text += &format!(
        "plan     {:.3} kg CO2e, {:.3} kWh, {}; complete after {:.2} h of {:.2} h\nproven   {proven}\n\n",
        solution.carbon.0 / 1e3,
        plan.energy(problem).kilowatt_hours(),
        output::count(plan.switches(job.start()) as u64, "switch").replace("switchs", "switches"),
        plan.completion(problem).hours(),
        job.deadline().hours(),
    );
    text += " from h    to h  configuration        mean g/kWh\n";
    let mut row = |from: usize, to: usize, what: &str| {
        let values = &problem.intensities()[from..to];
        let mean = values.iter().copied().sum::<Intensity>() / (to - from).max(1) as f64;
        text += &format!(
            "{:>7.1} {:>7.1}  {what:<20} {:>10.1}\n",
            hours(from),
            hours(to),
            mean.0
        );
    };
    if plan.start > 0 {
        row(0, plan.start, "waiting");
    }
    for run in plan.runs() {
        let configuration = job.points()[run.configuration].configuration;
        row(
            run.windows.start,
            run.windows.end,
            &configuration.to_string(),
        );
    }
    text
}
