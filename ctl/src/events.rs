//! `litctl events`: what the daemon did, and why.

use std::io::ErrorKind;
use std::thread;
use std::time::Duration;

use litd_api::{DeviceStatus, Event};

use crate::control::{self, Client, Follow, News, Socket};
use crate::show::{DIM, WARNING};
use crate::{Outcome, output, show};

/// Print what litd did, and why
///
/// litd keeps the latest 1,000 events at most; its log has all of them (journalctl -u litd).
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Keep printing new events until interrupted; JSON is one event per line then
    #[arg(short, long)]
    follow: bool,
    /// Only events after the one with this number
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: u64,
    #[command(flatten)]
    socket: Socket,
}

const EXAMPLES: &str = "\
Examples:
  litctl events --follow
  litctl events --follow --json | jq -r 'select(.warning) | .text'
  litctl --json events --after 120 | jq .last";

/// How often litd is asked for news.
const PERIOD: Duration = Duration::from_secs(1);

pub fn run(args: &Args, json: bool) -> Outcome {
    let client = args.socket.client()?;
    if json && !args.follow {
        return output::json(&client.events(args.after)?);
    }
    let mut printer = Printer {
        json,
        from_start: args.after == 0,
        devices: Vec::new(),
    };
    let mut follow = Follow::new(args.after);
    if !json {
        printer.devices = client.status()?.devices;
    }
    let mut news = follow.poll(&client)?;
    loop {
        match printer.print(&news) {
            // The reader of our output has left.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            other => other?,
        }
        if !args.follow {
            return Ok(());
        }
        thread::sleep(PERIOD);
        news = next(&mut follow, &client)?;
    }
}

/// The next news. A daemon that was there and is not may be restarting: it is waited for.
fn next(follow: &mut Follow, client: &Client) -> Result<News, control::ControlError> {
    let mut waits = false;
    loop {
        match follow.poll(client) {
            Err(error) if error.may_pass() => {
                if !waits {
                    output::note(&format!("{error}; waiting for it"));
                }
                waits = true;
                thread::sleep(PERIOD);
            }
            other => {
                if waits && other.is_ok() {
                    output::note("litd answers again");
                }
                return other;
            }
        }
    }
}

struct Printer {
    json: bool,
    /// Whether nothing was printed so far and everything was asked for: what came before the
    /// oldest that is kept is of no surprise then.
    from_start: bool,
    devices: Vec<DeviceStatus>,
}

impl Printer {
    fn print(&mut self, news: &News) -> std::io::Result<()> {
        if news.restarted {
            output::note("litd has started anew; its events count from 1 again");
        }
        if news.lost > 0 {
            let (lost, from_start) = (news.lost, self.from_start);
            output::note(&match from_start {
                true => format!("{lost} older events are no longer kept (journalctl -u litd)"),
                false => format!("{lost} events were lost (journalctl -u litd has them)"),
            });
        }
        self.from_start = false;
        let mut text = String::new();
        for event in &news.events {
            match self.json {
                true => text += &(serde_json::to_string(event)? + "\n"),
                false => text += &line(event, &self.devices),
            }
        }
        output::write(&text)
    }
}

/// An event on a line of its own, so that grep finds all of it.
fn line(event: &Event, devices: &[DeviceStatus]) -> String {
    let device = event.device.as_deref();
    let device = device.map(|address| control::name_of(devices, address));
    let about: Vec<&str> = event.job.as_deref().into_iter().chain(device).collect();
    let about = match about.is_empty() {
        true => String::new(),
        false => about.join(" ") + ": ",
    };
    let style = match event.warning {
        true => WARNING,
        false => anstyle::Style::new(),
    };
    format!(
        "{DIM}{}{DIM:#}  {style}{:10}  {about}{}{style:#}\n",
        show::moment(event.unix_seconds),
        event.kind.name(),
        event.text
    )
}
