//! `litctl budget`: what all GPU caps of the node may add up to.

use std::str::FromStr;

use litd_api::{Command, Status};
use litd_units::Watts;
use serde_json::json;

use crate::control::{self, Socket};
use crate::{Outcome, caps, output};

/// Show or set the budget: the most that all GPU caps of the node may add up to
///
/// While CPU sockets lend watts (cpu-slosh), the sum of GPU caps may be higher by as many watts. With a lower budget
/// litd lowers caps within a second; with a higher one caps may rise from then on. A budget set here lasts until the
/// daemon stops or the node boots, or until the daemon reloads a configuration whose caps.budget is another than
/// before, and lower than this budget; after a crash it is in force again if it is not above caps.budget. Root and
/// litd's admin group may set it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Watts, or "default" for the configured budget [default: show it]
    #[arg(value_name = "WATTS|default")]
    budget: Option<Asked>,
    #[command(flatten)]
    socket: Socket,
}

const EXAMPLES: &str = "\
Examples:
  litctl budget            show it
  litctl budget 5600       from now on
  litctl budget default    back to the configuration's";

#[derive(Debug, Clone, Copy, PartialEq)]
enum Asked {
    Configured,
    Watts(Watts),
}

impl FromStr for Asked {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "default" {
            return Ok(Self::Configured);
        }
        caps::watts(text)
            .map(Self::Watts)
            .map_err(|_| "must be a number of watts above 0, or \"default\"")
    }
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let watts = match args.budget {
        None => return show(&args.socket.client()?.status()?, json),
        Some(Asked::Configured) => None,
        Some(Asked::Watts(watts)) => Some(watts),
    };
    control::change(&args.socket, json, &Command::SetBudget { watts })
}

fn show(status: &Status, json: bool) -> Outcome {
    let gpus = &status.gpus;
    if json {
        return output::json(&json!({ "budget": gpus.budget, "caps": gpus.caps }));
    }
    let mut text = format!(
        "budget {}, caps add up to {:.0}\n",
        gpus.allowance(),
        gpus.caps
    );
    for job in &status.jobs {
        text += &format!("  {}: {:.0}\n", job.name, job.budget);
    }
    output::text(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watts_are_numbers_above_zero() {
        for text in ["5600", "5600W", "5600 W", "5.6e3"] {
            assert_eq!(text.parse(), Ok(Asked::Watts(Watts(5600.0))), "{text}");
        }
        assert_eq!("default".parse(), Ok(Asked::Configured));
        for text in ["", "W", "0", "-5", "nan", "inf", "1e999", "5600 kW", "all"] {
            assert!(text.parse::<Asked>().is_err(), "{text}");
        }
    }
}
