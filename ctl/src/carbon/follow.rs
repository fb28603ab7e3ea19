//! `litctl carbon follow`: the signal becomes the node's budget.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

use litd_api::{Command, Lease};
use litd_carbon::Factor;
use litd_carbon::signal::{Current, Health};
use litd_units::{Intensity, Watts};
use serde::{Deserialize, Serialize};

use super::clock;
use super::input;
use super::source::{self, Signal, replace};
use crate::control::{Client, Socket};
use crate::wait::Wait;
use crate::{Outcome, caps, output};

/// Let litd's budget follow the carbon intensity, within bounds
///
/// The budget is --highest at intensities up to --clean, --lowest from --dirty on, and linear
/// between. litd gets it as a lease that this command renews. While the signal is stale or lost the
/// lease has --fallback; without --fallback, and when this command ends, the lease ends: then the
/// budget is as without a lease: the least of the administrator's (`litctl budget`, else
/// caps.budget), caps.safe_budget, and the GPUs' part of the node's budget. The training job is not
/// changed, and litd itself opens no connection to the network. Runs until it is stopped.
/// It prints text alone: --json is refused.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The budget of dirty hours, in watts
    #[arg(long, value_name = "WATTS", value_parser = caps::watts)]
    lowest: Watts,
    /// The budget of clean hours, in watts
    #[arg(long, value_name = "WATTS", value_parser = caps::watts)]
    highest: Watts,
    /// Hours up to this intensity, in g/kWh, are clean (with prices: cheap)
    #[arg(long, value_name = "G", value_parser = intensity, allow_negative_numbers = true)]
    clean: Intensity,
    /// Hours from this intensity on, in g/kWh, are dirty (with prices: expensive). Between --clean
    /// and --dirty the budget is linear
    #[arg(long, value_name = "G", value_parser = intensity, allow_negative_numbers = true)]
    dirty: Intensity,
    /// The budget while the signal is stale or lost [default: none; the lease ends, and the
    /// budget is as without a lease]
    #[arg(long, value_name = "WATTS", value_parser = caps::watts)]
    fallback: Option<Watts>,
    /// Set the policy as well: gpu-red in dirty hours, gpu-realloc in clean ones; in between it stays
    /// as it was. While the signal is lost, and at the end, the earlier policy is restored
    #[arg(long)]
    set_policy: bool,
    /// With --set-policy: a file that keeps the earlier policy, so that it can be restored after a
    /// crash of this command [default: none; after a crash the policy that is set then counts as
    /// the earlier one]
    #[arg(long, value_name = "FILE", requires = "set_policy")]
    state: Option<PathBuf>,
    /// The lease's length in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    seconds: f64,
    /// The time between two renewals, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    every: f64,
    /// Write signal and budget into this file, for Prometheus's node exporter (textfile collector)
    #[arg(long, value_name = "FILE.prom")]
    metrics: Option<PathBuf>,
    #[command(flatten)]
    source: source::Source,
    #[command(flatten)]
    clock: clock::Pace,
    #[command(flatten)]
    socket: Socket,
}

const EXAMPLES: &str = "\
Examples:
  litctl carbon follow --provider uk --lowest 4200 --highest 5600 \\
      --clean 80 --dirty 220
  litctl carbon follow --trace SIGNAL.csv --lowest 4200 --highest 5600 \\
      --clean 60 --dirty 250 --fallback 4800";

/// A provider's first answer is waited for no longer: an earlier lease may end meanwhile.
const SOON: Duration = Duration::from_secs(2);

fn intensity(text: &str) -> Result<Intensity, &'static str> {
    let value = text.parse().ok();
    let value = value.filter(|it: &f64| it.is_finite());
    value
        .map(Intensity)
        .ok_or("must be a number of g/kWh, or a price per kWh")
}

fn seconds(text: &str) -> Result<f64, &'static str> {
    let value = text.parse().ok();
    value
        .filter(|it| (0.1..=86_400.0).contains(it))
        .ok_or("must be 0.1 to 86400 seconds")
}

/// The wanted state of the node.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Wanted {
    /// A budget, because of this intensity.
    Follow(Watts, Intensity),
    /// The signal is stale or lost.
    Fallback,
}

impl Args {
    fn wanted(&self, current: Option<&Current>) -> Wanted {
        match current {
            Some(current) if current.health == Health::Fresh => {
                Wanted::Follow(self.budget(current.intensity), current.intensity)
            }
            _ => Wanted::Fallback,
        }
    }

    /// Between the bounds, in proportion.
    fn budget(&self, intensity: Intensity) -> Watts {
        let share = (intensity - self.clean) / (self.dirty - self.clean);
        let share = share.clamp(0.0, 1.0);
        (self.highest + (self.lowest - self.highest) * share).cut_to(Watts(1.0))
    }

    fn policy(&self, intensity: Intensity) -> Option<&'static str> {
        match intensity {
            it if it >= self.dirty => Some("gpu-red"),
            it if it <= self.clean => Some("gpu-realloc"),
            _ => None,
        }
    }
}

pub fn run(args: &Args) -> Outcome {
    if args.lowest > args.highest {
        return Err("--lowest must not be above --highest".into());
    }
    if args.clean >= args.dirty {
        return Err("--clean must be below --dirty".into());
    }
    if args.every >= args.seconds {
        return Err("--every must be less than --seconds: the lease would end in between".into());
    }
    if args.fallback.is_some_and(|it| it > args.highest) {
        return Err(
            "--fallback must not be above --highest: it applies while the signal is lost, and the hour may be dirty"
                .into(),
        );
    }
    let mut signal = args.source.signal(None)?;
    let is_possible = signal.factor() == Factor::Price || args.clean >= Intensity::ZERO;
    if !is_possible {
        return Err("--clean must be 0 or more g/kWh; only prices can be negative".into());
    }
    check_floors(args)?;
    let clock = args.clock.clock();
    let mut wait = Wait::new(Duration::from_secs_f64(args.every))?;
    let mut policies = Policies::read(args.state.clone())?;
    let (mut last, mut unwritten) = (String::new(), None);
    // The first budget is the signal's where that is told soon: it need not be the fallback first.
    signal.poll_first(clock.now(), SOON);
    loop {
        let now = clock.now();
        signal.poll(now);
        let current = signal.current(now);
        let wanted = args.wanted(current.as_ref());
        let done = renew(args, wanted, &mut policies);
        let is_leased = matches!(done, Ok(Leased::Granted));
        let mut said = match wanted {
            Wanted::Follow(budget, intensity) => {
                let value = source::shown(intensity, signal.factor());
                format!("{value}: budget {} W", budget.0)
            }
            Wanted::Fallback => lost(args, &signal, current.as_ref()),
        };
        if let Err(error) = &done {
            said = format!("not renewed: {error}");
        }
        // Once, not every ten seconds.
        if said != last {
            output::note(&said);
        }
        last = said;
        if let Some(path) = &args.metrics {
            let text = metrics(args, wanted, &signal, current.as_ref(), is_leased);
            // The budget follows all the same where the disk is full.
            let error = replace(path, &text).err();
            if let Some(error) = error.as_ref().filter(|it| unwritten.as_ref() != Some(*it)) {
                output::note(error);
            }
            unwritten = error;
        }
        if wait.is_over() {
            return end(args, &mut policies);
        }
    }
}

/// litd takes no budget below the sum of its GPUs' floors: that is said now, and not in the first dirty hour. Where
/// litd does not answer yet, it says it then.
fn check_floors(args: &Args) -> Outcome {
    let Ok(status) = args.socket.client()?.status() else {
        return Ok(());
    };
    let gpus = status.devices.iter();
    let gpus = gpus.filter(|it| it.name.starts_with("gpu"));
    let floors: Watts = gpus.map(|it| it.floor).sum();
    let budgets = [
        ("--lowest", Some(args.lowest)),
        ("--fallback", args.fallback),
    ];
    for (name, budget) in budgets {
        if let Some(budget) = budget.filter(|it| *it < floors) {
            return Err(format!(
                "{name} {budget} can't be kept: the floors of litd's GPUs add up to {floors}; give that or more"
            )
            .into());
        }
    }
    Ok(())
}

/// Gives the policy back, and takes the metrics away: they tell of what is followed, and nothing is any more.
fn end(args: &Args, policies: &mut Policies) -> Outcome {
    if let Some(path) = &args.metrics {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                output::note(&format!("{}: {error}", path.display()));
            }
            _ => (),
        }
    }
    policies.give_back(&args.socket.client()?)
}

/// The state of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leased {
    Granted,
    /// No request was made: the lease ends.
    Left,
}

/// Grants the lease, and sets the policy where that changes.
fn renew(args: &Args, wanted: Wanted, policies: &mut Policies) -> Result<Leased, Box<dyn Error>> {
    let client = args.socket.client()?;
    let budget = match wanted {
        Wanted::Follow(budget, _) => Some(budget),
        // Without a fallback nothing is renewed, and the lease ends.
        Wanted::Fallback => args.fallback,
    };
    if let Some(budget) = budget {
        client.command(&Command::Lease(Lease {
            controller: "carbon".to_owned(),
            seconds: args.seconds,
            mode: None,
            budget: Some(budget),
        }))?;
    }
    match wanted {
        Wanted::Follow(_, intensity) if args.set_policy => {
            if let Some(next) = args.policy(intensity) {
                policies.set(&client, next)?;
            }
        }
        _ => policies.give_back(&client)?,
    }
    Ok(match budget {
        Some(_) => Leased::Granted,
        None => Leased::Left,
    })
}

/// The policy that was found, and the one that was set instead; kept in a file, if one is given.
struct Policies {
    changed: Option<Changed>,
    file: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Changed {
    found: String,
    set: String,
}

impl Policies {
    /// The policy that an earlier follow left in the file.
    fn read(file: Option<PathBuf>) -> Result<Self, String> {
        let Some(path) = &file else {
            return Ok(Self {
                changed: None,
                file,
            });
        };
        let text = input::text_if_there(path, litd_files::LONGEST_STATE)?;
        let changed = text.map(|text| serde_json::from_str(&text)).transpose();
        let changed = changed.map_err(|error| {
            let path = path.display();
            format!("{path}: {error}; set the policy that you want (`litctl policy`), and remove the file")
        })?;
        Ok(Self { changed, file })
    }

    /// Sets a policy, unless somebody else has set another one than this command did. litd that was started anew has
    /// the one of its configuration.
    fn set(&mut self, client: &Client, next: &'static str) -> Outcome {
        let now = client.status()?.node.policy;
        let found = match &self.changed {
            Some(it) if now == it.set || now == it.found => it.found.clone(),
            Some(it) if it.set == next => return Ok(()),
            _ => now.clone(),
        };
        let changed = Changed {
            found,
            set: next.to_owned(),
        };
        if self.changed.as_ref() != Some(&changed) {
            // First, so that a crash in between loses nothing.
            self.keep(Some(&changed))?;
        }
        if now != next {
            set_policy(client, next)?;
        }
        self.changed = Some(changed);
        Ok(())
    }

    /// Sets the policy that was found, where that which was set still rules.
    fn give_back(&mut self, client: &Client) -> Outcome {
        let Some(changed) = &self.changed else {
            return Ok(());
        };
        if client.status()?.node.policy == changed.set {
            set_policy(client, &changed.found)?;
        }
        self.keep(None)?;
        self.changed = None;
        Ok(())
    }

    fn keep(&self, changed: Option<&Changed>) -> Outcome {
        let Some(path) = &self.file else {
            return Ok(());
        };
        match changed {
            Some(changed) => replace(path, &(serde_json::to_string(changed)? + "\n"))?,
            None => match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(format!("{}: {error}", path.display()).into());
                }
                _ => (),
            },
        }
        Ok(())
    }
}

fn set_policy(client: &Client, policy: &str) -> Outcome {
    client.command(&Command::SetPolicy {
        policy: policy.to_owned(),
    })?;
    Ok(())
}

fn lost(args: &Args, signal: &Signal, current: Option<&Current>) -> String {
    let why = match current.map(|it| (&it.health, it.begin)) {
        Some((Health::Stale(why), begin)) => format!("the last value is of {begin}: {why}"),
        _ => signal
            .trouble()
            .unwrap_or_else(|| "there is no answer yet".to_owned()),
    };
    let then = match args.fallback {
        Some(budget) => format!("budget {} W", budget.0),
        None => "the lease is not renewed".to_owned(),
    };
    format!("signal lost, {then} ({why})")
}

/// Text of the exposition format.
fn metrics(
    args: &Args,
    wanted: Wanted,
    signal: &Signal,
    current: Option<&Current>,
    renewed: bool,
) -> String {
    let lost = wanted == Wanted::Fallback;
    let mut text = format!(
        "# HELP litd_carbon_signal_lost Whether the carbon signal is stale or lost, so that the fallback applies.\n\
         # TYPE litd_carbon_signal_lost gauge\nlitd_carbon_signal_lost {}\n\
         # HELP litd_carbon_lease_renewed Whether a lease was asked for and litd took it.\n\
         # TYPE litd_carbon_lease_renewed gauge\nlitd_carbon_lease_renewed {}\n",
        u8::from(lost),
        u8::from(renewed)
    );
    if let Some(current) = current {
        let (name, what) = match signal.factor() {
            Factor::Price => ("litd_carbon_price_per_kwh", "price of a kilowatt-hour"),
            _ => ("litd_carbon_intensity_g_per_kwh", "carbon intensity"),
        };
        text += &format!(
            "# HELP {name} The last good {what}.\n# TYPE {name} gauge\n{name} {}\n",
            current.intensity.0
        );
    }
    let budget = match wanted {
        Wanted::Follow(budget, _) => Some(budget),
        Wanted::Fallback => args.fallback,
    };
    if let Some(budget) = budget {
        text += &format!(
            "# HELP litd_carbon_budget_watts The budget that litd was asked for; litd_carbon_lease_renewed says whether it holds.\n\
             # TYPE litd_carbon_budget_watts gauge\nlitd_carbon_budget_watts {}\n",
            budget.0
        );
    }
    text
}
