//! `litctl lease follow`: a lease that is renewed for as long as a file says what the fleet wants.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use litd::files;
use litd_api::{Command, Lease, Mode};
use litd_units::Watts;
use serde::Deserialize;

use crate::control::{Client, Socket};
use crate::{Outcome, output};

/// Renew a lease for as long as a file grants it
///
/// The file is TOML and read anew each time: a Kubernetes ConfigMap, or what a configuration
/// manager writes. It has mode, budget (watts) or both; [nodes.NAME] has what differs on a node.
/// After valid_until, when the file is gone or wrong, or when litctl ends, nothing is renewed: the
/// lease ends, and caps.safe_budget rules. Runs until it is stopped.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file
    file: PathBuf,
    /// Who rules
    #[arg(long, default_value = "fleet")]
    controller: String,
    /// This node's name in the file; without it $NODE_NAME, or the host's
    #[arg(long)]
    node: Option<String>,
    /// For how many seconds the lease is renewed
    #[arg(long, default_value_t = 60.0, value_parser = positive)]
    seconds: f64,
    /// How many seconds lie between two renewals
    #[arg(long, default_value_t = 10.0, value_parser = positive)]
    every: f64,
    #[command(flatten)]
    socket: Socket,
}

const EXAMPLES: &str = "\
Example, /etc/litd/fleet.toml:
  valid_until = 2026-12-01T00:00:00Z    # the controller writes it anew before
  mode = \"on\"
  budget = 4800
  [nodes.gpu-node-17]
  mode = \"off\"
Then:
  litctl lease follow /etc/litd/fleet.toml";

/// A lease that has no whole second left is none.
const SHORTEST: f64 = 1.0;

fn positive(text: &str) -> Result<f64, &'static str> {
    match text.parse::<f64>() {
        Ok(it) if (1.0..=86_400.0).contains(&it) => Ok(it),
        _ => Err("must be 1 to 86400 seconds"),
    }
}

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    valid_until: Option<toml::value::Datetime>,
    mode: Option<Mode>,
    budget: Option<f64>,
    #[serde(default)]
    nodes: BTreeMap<String, Terms>,
}

/// What is wanted of all nodes, or of one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Terms {
    mode: Option<Mode>,
    budget: Option<f64>,
}

/// What a file grants a node.
#[derive(Debug, PartialEq)]
struct Grant {
    terms: Terms,
    /// For how many seconds, at most.
    seconds: f64,
}

pub fn run(args: &Args) -> Outcome {
    if args.every >= args.seconds {
        return Err("--every must be less than --seconds: the lease would end in between".into());
    }
    let node = args.node.clone().unwrap_or_else(litd::hub::hostname);
    let mut last = String::new();
    loop {
        let said = match renew(args, &node) {
            Ok(said) => said,
            Err(error) => format!("not renewed: {error}"),
        };
        // Once, not every ten seconds.
        if said != last {
            output::note(&said);
        }
        last = said;
        thread::sleep(Duration::from_secs_f64(args.every));
    }
}

/// Renews the lease once. Answers with what litd says; that is the same until something changes.
fn renew(args: &Args, node: &str) -> Result<String, Box<dyn std::error::Error>> {
    let Grant { terms, seconds } = granted(&args.file, node, Timestamp::now(), args.seconds)?;
    let lease = Lease {
        controller: args.controller.clone(),
        seconds,
        mode: terms.mode,
        budget: terms.budget.map(Watts),
    };
    let done = Client::new(&args.socket)?.command(&Command::Lease(lease))?;
    // The seconds that remain of a file's time differ each time.
    let (_, said) = done.message.split_once("; ").unwrap_or(("", &done.message));
    let budget = terms
        .budget
        .map_or_else(String::new, |it| format!(", budget {it} W"));
    Ok(format!("renewed{budget}; {said}"))
}

fn granted(
    file: &Path,
    node: &str,
    now: Timestamp,
    seconds: f64,
) -> Result<Grant, Box<dyn std::error::Error>> {
    let shown = file.display();
    let text = files::text(file, files::LONGEST_CONFIG);
    let text = text.map_err(|error| format!("{shown}: {error}"))?;
    grant(&text, node, now, seconds).map_err(|error| format!("{shown}: {error}").into())
}

fn grant(text: &str, node: &str, now: Timestamp, seconds: f64) -> Result<Grant, String> {
    let document: Document = toml::from_str(text).map_err(|error| error.to_string())?;
    let own = document.nodes.get(node).copied().unwrap_or_default();
    let terms = Terms {
        mode: own.mode.or(document.mode),
        budget: own.budget.or(document.budget),
    };
    if terms == Terms::default() {
        // Half a file must not lift the safe budget.
        return Err(format!("neither mode nor budget for {node}"));
    }
    let Some(until) = document.valid_until else {
        return Ok(Grant { terms, seconds });
    };
    let until: Timestamp = until.to_string().parse().map_err(|_| {
        format!("valid_until = {until}: it has no time zone, as in 2026-12-01T00:00:00Z")
    })?;
    let left = (until - now).total(jiff::Unit::Second);
    let left = left.map_err(|error| error.to_string())?;
    if left < SHORTEST {
        return Err(format!("it was valid until {until}"));
    }
    Ok(Grant {
        terms,
        seconds: seconds.min(left),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-22T12:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_node_has_what_all_have_and_what_is_its_own() {
        let text = "mode = \"on\"\nbudget = 4800\n[nodes.n17]\nmode = \"off\"\n";
        let of = |node| grant(text, node, now(), 60.0).unwrap().terms;
        let budget = Some(4800.0);
        assert_eq!(
            (of("n1").mode, of("n1").budget),
            (Some(Mode::Steer), budget)
        );
        assert_eq!(
            (of("n17").mode, of("n17").budget),
            (Some(Mode::Off), budget)
        );
    }

    #[test]
    fn no_lease_lasts_longer_than_the_file_is_valid() {
        let until = |time: &str| {
            let text = format!("budget = 4800.5\nvalid_until = {time}\n");
            grant(&text, "n", now(), 60.0).map(|it| it.seconds)
        };
        assert_eq!(until("2026-11-22T13:00:00Z"), Ok(60.0));
        assert_eq!(until("2026-11-22T13:00:20+01:00"), Ok(20.0));
        assert!(
            until("2026-11-22T12:00:00Z")
                .unwrap_err()
                .contains("valid until")
        );
        assert!(
            until("2026-11-22T13:00:00")
                .unwrap_err()
                .contains("time zone")
        );
    }

    #[test]
    fn a_pipe_is_no_file_and_is_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("fleet.toml");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let error = granted(&pipe, "n", now(), 60.0).unwrap_err().to_string();
        let expected = format!(
            "{}: is a named pipe; it must be a regular file",
            pipe.display()
        );
        assert_eq!(error, expected);
    }

    #[test]
    fn half_a_file_grants_nothing() {
        let wrong = [
            "",
            "budget",
            "budget = 48\nbudgets = 1\n",
            "[nodes.n]\n",
            "[nodes.other]\nbudget = 4800\n",
            "budget = \"4800\"\n",
            "mode = \"of\"\n",
        ];
        for text in wrong {
            assert!(grant(text, "n", now(), 60.0).is_err(), "{text}");
        }
    }
}
