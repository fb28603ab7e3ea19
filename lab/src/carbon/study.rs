//! `litlab carbon study`: Figures 3 to 5 for any profile, zone and month.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use litd_carbon::{Factor, Profile};
use litd_cli::{Outcome, output};
use litd_study::parallel;
use litd_units::{Prices, Seconds, Tokens};

use super::episode::{Episode, Policy, Workload};
use super::figures::{self, Line, Savings};
use super::profiles;
use super::summary::{self, Group};
use super::synthetic::Setup;
use super::zone::{Month, Zone};
use crate::study::bar;

/// Compare the policies over a month: savings, their intervals, costs, one episode
///
/// Jobs of each number of tokens arrive evenly spread over the month and run under each policy:
/// static, greedy, mpc (with forecasts), and the optima, which know the whole trace: no policy can
/// emit less. The deadline is 1.25 times the time of the fastest configuration. Writes tables
/// (Markdown and CSV) and pictures of the paper's Figures 3 to 5 into a folder. The jobs are
/// SIMULATED, the traces are as recorded.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Carbon intensity of a zone; may be given more than once
    #[arg(long, value_name = "FILE", required = true)]
    trace: Vec<PathBuf>,
    /// Forecasts of those zones, in the same order [default: none, and no mpc]
    #[arg(long, value_name = "FILE")]
    forecast: Vec<PathBuf>,
    /// A measured profile, as litctl carbon schedule reads it [default: a SIMULATED one]
    #[arg(long, value_name = "FILE", conflicts_with = "setup")]
    profile: Option<PathBuf>,
    /// A SIMULATED profile like those of the paper
    #[arg(long, value_enum, default_value = "gpt2")]
    setup: Setup,
    /// The month, such as 2024-05
    #[arg(long, value_name = "YEAR-MONTH")]
    month: Month,
    #[command(flatten)]
    scope: Scope,
}

/// How much is studied, and at which prices.
#[derive(Clone, clap::Args)]
pub struct Scope {
    /// Billions of tokens, separated by commas
    #[arg(long, value_name = "B,B,…", value_delimiter = ',', default_value = "1,2,3,4,5,6,7,8",
          value_parser = billions)]
    pub billions: Vec<f64>,
    /// Arrivals in the month for each number of tokens
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub arrivals: u64,
    /// Which kind of carbon intensity counts
    #[arg(
        long,
        value_name = "direct|lifecycle|marginal",
        default_value = "direct"
    )]
    pub factor: Factor,
    /// What a kilowatt-hour costs if the trace has no prices (price_per_kwh), in any currency
    #[arg(long, value_name = "PRICE", default_value_t = 0.1, value_parser = price)]
    pub energy_per_kwh: f64,
    /// What an hour of a GPU costs without its power, in the same currency
    #[arg(long, value_name = "PRICE", default_value_t = 2.0, value_parser = price)]
    pub gpu_hour: f64,
    /// The folder to write into; it is created if missing
    #[arg(long, value_name = "FOLDER", default_value = "carbon-study")]
    pub out: PathBuf,
}

/// A week in hours: the second one of the month is shown.
const WEEK: f64 = 168.0;

const EXAMPLES: &str = "\
Example:
  litlab carbon study --trace US-CAL-CISO_2024-05_06.csv \\
      --forecast US-CAL-CISO_2024-05_06_forecast96h.csv \\
      --month 2024-05 --billions 1,4,8";

pub fn billions(text: &str) -> Result<f64, &'static str> {
    match number(text) {
        Some(it) if it > 0.0 => Ok(it),
        _ => Err("must be a number above 0"),
    }
}

fn price(text: &str) -> Result<f64, &'static str> {
    number(text)
        .filter(|it| *it >= 0.0)
        .ok_or("must be a number that is not negative")
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|it: &f64| it.is_finite())
}

pub type Fallible<T> = Result<T, Box<dyn Error>>;

pub fn run(args: &Args) -> Outcome {
    if !args.forecast.is_empty() && args.forecast.len() != args.trace.len() {
        return Err("--forecast: give one for each --trace, in the same order, or none".into());
    }
    let profile = match &args.profile {
        Some(path) => profiles::named(path)?,
        None => args.setup.profile()?,
    };
    let files = args.trace.iter().enumerate();
    let zones = files.map(|(at, trace)| {
        let forecast = args.forecast.get(at).map(PathBuf::as_path);
        Zone::read(trace, forecast, args.scope.factor)
    });
    let zones = zones.collect::<Fallible<Vec<_>>>()?;
    let study = Study {
        profiles: vec![profile],
        zones,
        month: args.month,
        scope: args.scope.clone(),
    };
    let (text, _) = study.run()?;
    finish(&args.scope.out, &text)
}

/// Writes the tables and prints them.
pub fn finish(out: &Path, text: &str) -> Outcome {
    write(out, "study.md", text)?;
    output::text(text)?;
    output::text(&format!("\nTables and figures are in {}.\n", out.display()))
}

pub fn write(folder: &Path, name: &str, text: &str) -> Outcome {
    let file = folder.join(name);
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()).into())
}

/// What is studied.
pub struct Study {
    pub profiles: Vec<Profile>,
    pub zones: Vec<Zone>,
    pub month: Month,
    pub scope: Scope,
}

impl Study {
    /// Everything; the text of the tables and what is behind them.
    pub fn run(&self) -> Fallible<(String, Vec<Group>)> {
        if self.scope.factor == Factor::Price {
            return Err(
                "--factor: a study counts emissions; what they cost is in its tables".into(),
            );
        }
        let out = &self.scope.out;
        fs::create_dir_all(out).map_err(|error| format!("{}: {error}", out.display()))?;
        let mut text = format!(
            "# SIMULATED jobs on recorded carbon intensity ({} factor, of GPUs alone)\n\n\
             Deadline: 1.25 times what the fastest configuration needs, in whole hours. \"as run\": switches draw \
             half of the mean power and move the clock, the last window ends when all is trained. Cost per t: \
             what a tonne of avoided CO2e costs at {} per kWh and {} per GPU-hour, energy and time of training \
             together; waiting is free.\n",
            self.scope.factor, self.scope.energy_per_kwh, self.scope.gpu_hour
        );
        text += &self.signals()?;
        let groups = self.groups()?;
        for group in &groups {
            let heading = format!(
                "{}, {}, {}B tokens",
                group.setup, group.zone, group.billions
            );
            text += &format!("\n## {heading}\n\n{}", summary::table(group));
            text += &gap(group);
            if group.left_out > 0 {
                let (left, all) = (group.left_out, self.scope.arrivals);
                text += &format!(
                    "\n{left} of {all} arrivals are left out: a signal or a forecast that they need is missing.\n"
                );
            }
        }
        for (number, profile) in self.profiles.iter().enumerate() {
            let title = profile.title();
            let savings = self.zones.iter().map(|zone| {
                let of = |group: &&Group| group.setup == title && group.zone == zone.name;
                let own = groups.iter().filter(of);
                let bars = own.filter_map(|group| {
                    let saving = group.played_saving(Policy::Fixed, Policy::Static)?;
                    Some((group.billions, saving))
                });
                Savings {
                    name: zone.name.clone(),
                    bars: bars.collect(),
                }
            });
            let caption = format!("SIMULATED jobs, fixed start, as run: {title}");
            let svg = figures::savings(&caption, &savings.collect::<Vec<_>>())?;
            write(out, &format!("figure4-{}.svg", number + 1), &svg)?;
        }
        write(out, "episodes.csv", &summary::csv(&groups))?;
        self.example()?;
        Ok((text, groups))
    }

    /// The signals of a week, and how much they vary (Figure 3).
    fn signals(&self) -> Fallible<String> {
        let mut text = String::from("\n| zone | mean g/kWh | CV |\n|---|---|---|\n");
        let mut lines = Vec::new();
        for zone in &self.zones {
            let known = self.known(zone)?;
            let count = known.len() as f64;
            let mean = known.iter().map(|it| it.1).sum::<f64>() / count;
            let squares = known.iter().map(|it| (it.1 - mean).powi(2)).sum::<f64>();
            let deviation = (squares / count).sqrt();
            text += &format!("| {} | {mean:.1} | {:.2} |\n", zone.name, deviation / mean);
            let week = known.iter().filter(|it| (WEEK..2.0 * WEEK).contains(&it.0));
            lines.push(Line {
                name: zone.name.clone(),
                points: week.map(|(hour, value)| (hour - WEEK, *value)).collect(),
            });
        }
        let title = format!(
            "Carbon intensity, {} factor, from {}",
            self.scope.factor,
            self.month.begin + SignedDuration::from_hours(168)
        );
        write(
            &self.scope.out,
            "figure3.svg",
            &figures::signals(&title, &lines)?,
        )?;
        Ok(text)
    }

    /// The hours of the month for which a zone has a value, and that.
    fn known(&self, zone: &Zone) -> Fallible<Vec<(f64, f64)>> {
        let windows = |hour: i64, count| {
            let begin = self.month.begin + SignedDuration::from_hours(hour);
            zone.intensity.windows(begin, Seconds(3600.0), count)
        };
        let one = |hour| Some((hour as f64, windows(hour, 1).ok()?.first()?.0));
        let hours = self.month.hours();
        let known: Vec<_> = (0..i64::try_from(hours)?).filter_map(one).collect();
        if known.is_empty() {
            windows(0, usize::try_from(hours)?)
                .map_err(|error| format!("{}: {error}", zone.name))?;
        }
        Ok(known)
    }

    /// All episodes, by workload and zone.
    fn groups(&self) -> Fallible<Vec<Group>> {
        let prices = self.prices();
        let mut cases = Vec::new();
        for profile in &self.profiles {
            for zone in &self.zones {
                for &billions in &self.scope.billions {
                    let tokens = Tokens(billions * 1e9);
                    let workload = Workload::new(profile, tokens, prices);
                    cases.push((workload, zone, billions));
                }
            }
        }
        let mut jobs = Vec::new();
        for (case, (workload, zone, _)) in cases.iter().enumerate() {
            let arrivals = self.arrivals(workload, zone)?;
            jobs.extend(arrivals.into_iter().map(|arrival| (case, arrival)));
        }
        let bar = bar("episodes", jobs.len());
        let run = |&(case, arrival): &(usize, Timestamp)| {
            let (workload, zone, _) = &cases[case];
            let episode = Episode::run(workload, zone, arrival);
            episode.map_err(|error| error.to_string())
        };
        let done = parallel::map(&jobs, run, |count| bar.set_position(count as u64));
        bar.finish_and_clear();
        let mut groups: Vec<Group> = cases
            .iter()
            .map(|(workload, zone, billions)| Group {
                setup: workload.profile.title(),
                zone: zone.name.clone(),
                billions: *billions,
                episodes: Vec::new(),
                left_out: self.scope.arrivals as usize,
            })
            .collect();
        for ((case, _), episode) in jobs.iter().zip(done) {
            groups[*case].episodes.push(episode?);
            groups[*case].left_out -= 1;
        }
        Ok(groups)
    }

    /// The arrivals of a job for which all is known that it needs.
    fn arrivals(&self, workload: &Workload, zone: &Zone) -> Fallible<Vec<Timestamp>> {
        let mut arrivals = arrivals(self.month, workload.deadline, self.scope.arrivals)?;
        arrivals.retain(|arrival| zone.covers(*arrival, workload.deadline));
        match arrivals.is_empty() {
            true => Err(format!(
                "{}: no job of {:.0} h in the month has a signal without a gap, and a forecast where there are any",
                zone.name,
                workload.deadline.hours()
            )
            .into()),
            false => Ok(arrivals),
        }
    }

    fn prices(&self) -> Prices {
        Prices {
            energy_per_kwh: self.scope.energy_per_kwh,
            gpu_hour: self.scope.gpu_hour,
        }
    }

    /// One episode under every policy (Figure 5): the first profile and zone, the most tokens.
    fn example(&self) -> Outcome {
        let (Some(profile), Some(zone)) = (self.profiles.first(), self.zones.first()) else {
            return Ok(());
        };
        let most = self.scope.billions.iter().copied().fold(0.0, f64::max);
        let workload = Workload::new(profile, Tokens(most * 1e9), self.prices());
        let arrivals = self.arrivals(&workload, zone)?;
        let Some(&arrival) = arrivals.first() else {
            return Ok(());
        };
        let episode = Episode::run(&workload, zone, arrival)?;
        let title = format!(
            "SIMULATED: {}, {most}B tokens, from {arrival}",
            profile.title()
        );
        draw_episode(
            &self.scope.out,
            "figure5",
            &title,
            zone,
            &workload,
            &episode,
        )
    }
}

/// Draws an episode into a file.
pub fn draw_episode(
    out: &Path,
    name: &str,
    title: &str,
    zone: &Zone,
    workload: &Workload,
    episode: &Episode,
) -> Outcome {
    let hours = workload.deadline.hours().ceil() as usize;
    let windows = zone
        .intensity
        .windows(episode.arrival, Seconds(3600.0), hours)?;
    let values: Vec<f64> = windows.iter().map(|it| it.0).collect();
    let svg = figures::episode(title, &values, episode, workload.profile)?;
    write(out, &format!("{name}.svg"), &svg)
}

/// Moments spread evenly over a month, such that a job with this deadline ends in it.
fn arrivals(month: Month, deadline: Seconds, count: u64) -> Fallible<Vec<Timestamp>> {
    let needed = deadline.hours().ceil() as u64;
    let Some(room) = month.hours().checked_sub(needed) else {
        let hours = month.hours();
        return Err(format!("a job of {needed} h does not fit into a month of {hours} h").into());
    };
    let at = |number: u64| {
        let hours = i64::try_from(number * room / count).unwrap_or_default();
        month.begin + SignedDuration::from_hours(hours)
    };
    Ok((0..count).map(at).collect())
}

/// How far model-predictive control is from the optimum that knows the future, and what correcting forecasts brings.
fn gap(group: &Group) -> String {
    let Some(gap) = group.saving(Policy::Mpc, Policy::Fixed) else {
        return String::new();
    };
    let mut text = format!(
        "\nmpc emits {:.2} % more than the fixed-start oracle (95 %: {:.2} to {:.2}).\n",
        -gap.mean, -gap.high, -gap.low
    );
    if let Some(own) = group.saving(Policy::Mpc, Policy::MpcAsIssued) {
        let own = summary::interval(&own);
        text += &format!(
            "Correcting forecasts by their past saves {own} % against taking them as issued.\n"
        );
    }
    text
}
