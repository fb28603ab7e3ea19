//! `litctl lease follow`: a lease that is renewed for as long as a file says what the fleet wants.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use litd_client::lease::Grant;

use crate::control::Socket;
use crate::{Outcome, output};

/// Renew a lease for as long as a file grants it
///
/// The file is TOML and is read before each renewal: a Kubernetes ConfigMap, or a file of a
/// configuration manager. It has mode, budget (watts) or both; [nodes.NAME] overrides them for one
/// node. The lease is no longer renewed, and so ends, once valid_until has passed, the file is gone
/// or wrong, or litctl ends. Then mode and budget are as without a lease (see `litctl lease --help`).
/// Runs until it is stopped.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file that grants the lease
    file: PathBuf,
    /// The controller's name
    #[arg(long, default_value = "fleet")]
    controller: String,
    /// The node's name in the file [default: $NODE_NAME, or the host's name]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// The lease's length in seconds, at each renewal
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = positive)]
    seconds: f64,
    /// The time between two renewals in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = positive)]
    every: f64,
    #[command(flatten)]
    socket: Socket,
}

const EXAMPLES: &str = "\
Example, /etc/litd/fleet.toml:
  # The lease ends then, unless the controller has written a later time.
  valid_until = 2026-12-01T00:00:00Z
  mode = \"on\"
  budget = 4800
  [nodes.gpu-node-17]
  mode = \"off\"
Then:
  litctl lease follow /etc/litd/fleet.toml";

fn positive(text: &str) -> Result<f64, &'static str> {
    match text.parse::<f64>() {
        Ok(it) if (1.0..=86_400.0).contains(&it) => Ok(it),
        _ => Err("must be 1 to 86400 seconds"),
    }
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
    let grant = Grant::read(&args.file, node, args.seconds)?;
    let done = grant.lease(&args.socket.client()?, &args.controller)?;
    // The seconds that remain of a file's time differ each time.
    let (_, said) = done.message.split_once("; ").unwrap_or(("", &done.message));
    let budget = grant
        .budget()
        .map_or_else(String::new, |it| format!(", budget {} W", it.0));
    Ok(format!("renewed{budget}; {said}"))
}
