//! `litctl audit`: every write of a cap, from the daemon's audit log. It reads files: no daemon need
//! be alive.

mod filter;
mod writes;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use litd_api::audit::{Line, Record};
use litd_client::audit::{Log, Read};

use crate::show::{DIM, WARNING};
use crate::{Outcome, output, show};
use filter::Filter;

use writes::{Write, Writes};

/// Print the log of all writes: who set which cap, why, and with which result
///
/// Each line is one write: time, device, cap before and after, the cap read back, the limit in
/// force if the driver tells it, actor and reason. The command reads the daemon's files, so litd need
/// not run. Root and members of the group litd can read them.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    filter: Filter,
    /// Only the last N writes
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "follow")]
    last: Option<usize>,
    /// Keep printing new writes until interrupted
    #[arg(short, long)]
    follow: bool,
    /// The log's folder [default: /var/log/litd, or /var/lib/litd/audit if only that exists]
    #[arg(long, value_name = "FOLDER", env = "LITD_AUDIT")]
    directory: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  litctl audit --since 1h --device gpu3
  litctl audit --failed
  litctl audit --json | jq -r 'select(.record == \"intent\") | .reason'

With --json the records are printed as they are in the log, one per line. The
field \"record\" is \"intent\" before a write, \"outcome\" after it, and \"enforced\"
once a later reading has shown the limit in force. The last two have the \"seq\"
of their intent in the field \"intent\". A line that was altered has
\"altered\": true.";

/// Where the log is, if nobody says otherwise: the first of them that is there.
const USUAL: [&str; 2] = ["/var/log/litd", "/var/lib/litd/audit"];

/// How often is looked for more.
const PERIOD: Duration = Duration::from_secs(1);

/// After this many seconds a write's result is known: the device is read once a second.
const SETTLES: f64 = 3.0;

pub fn run(args: &Args, json: bool) -> Outcome {
    let usual = || USUAL.map(PathBuf::from).into_iter().find(|it| it.is_dir());
    let directory = args.directory.clone().or_else(usual);
    let directory = directory.unwrap_or_else(|| USUAL[0].into());
    let mut log = Log::open(&directory)?;
    match finish(args, json, &mut log) {
        // The reader of our output has left.
        Err(error) if is_left(error.as_ref()) => Ok(()),
        other => other,
    }
}

fn is_left(error: &(dyn std::error::Error + 'static)) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

fn finish(args: &Args, json: bool, log: &mut Log) -> Outcome {
    let mut printer = Printer::new(&args.filter, json);
    let read = log.read()?;
    let all = printer.take(read, args.follow)?;
    let skip = args.last.map_or(0, |last| all.len().saturating_sub(last));
    printer.print(&all[skip..])?;
    if !args.follow {
        return Ok(());
    }
    loop {
        thread::sleep(PERIOD);
        let more = log.read()?;
        let lines = printer.take(more, true)?;
        printer.print(&lines)?;
    }
}

/// Turns what was read into lines of output.
struct Printer<'a> {
    filter: &'a Filter,
    json: bool,
    writes: Writes,
}

impl<'a> Printer<'a> {
    fn new(filter: &'a Filter, json: bool) -> Self {
        let writes = Writes::default();
        Self {
            filter,
            json,
            writes,
        }
    }

    /// The lines for what was read. While more may come, a write is shown once what became of it
    /// is known.
    fn take(&mut self, read: Read, more: bool) -> Result<Vec<String>, serde_json::Error> {
        for damage in &read.damage {
            output::note(damage);
        }
        for line in &read.lines {
            self.writes.add(line);
        }
        if self.json {
            let kept = read.lines.iter().filter(|line| self.is_meant(line));
            return kept.map(raw).collect();
        }
        let until = match more {
            true => now() - SETTLES,
            false => f64::INFINITY,
        };
        let writes = self.writes.take(until);
        let kept = writes.iter().filter(|write| self.filter.keeps(write));
        Ok(kept.map(|write| text(write)).collect())
    }

    /// Whether a record is of a write that is wanted. What belongs to no write always is.
    fn is_meant(&self, line: &Line) -> bool {
        let (Line::Intact(record) | Line::Altered(record)) = line else {
            return false;
        };
        match self.writes.of(record) {
            Some(write) => self.filter.keeps(write),
            None => self.filter.is_all(),
        }
    }

    fn print(&self, lines: &[String]) -> std::io::Result<()> {
        output::write(&lines.concat())
    }
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// The record as JSON.
fn raw(line: &Line) -> Result<String, serde_json::Error> {
    let (record, altered): (&Record, bool) = match line {
        Line::Intact(record) => (record, false),
        Line::Altered(record) => (record, true),
        Line::Unreadable => return Ok(String::new()),
    };
    let mut value = serde_json::to_value(record)?;
    if let (true, Some(object)) = (altered, value.as_object_mut()) {
        object.insert("altered".to_owned(), true.into());
    }
    Ok(serde_json::to_string(&value)? + "\n")
}

/// A write on a line of its own, so that grep finds all of it.
fn text(write: &Write) -> String {
    let intent = &write.intent;
    let watts = |watts: litd_units::Watts| format!("{watts}");
    let old = show::or_dash(intent.old_watts, watts);
    let what = format!("{old} -> {}", intent.new_watts);
    let became = write.became();
    let style = match write.is_failed() || write.altered {
        true => WARNING,
        false => anstyle::Style::new(),
    };
    let about = match (&intent.job, intent.sample) {
        (Some(job), Some(sample)) => format!("{} for {job} (sample {sample})", intent.actor),
        (Some(job), None) => format!("{} for {job}", intent.actor),
        (None, _) => intent.actor.clone(),
    };
    let altered = if write.altered { " [ALTERED]" } else { "" };
    format!(
        "{DIM}{}{DIM:#}  {:5} {what:16}  {style}{became}{altered}{style:#}  {about}: {}\n",
        show::moment(write.unix_seconds),
        intent.name,
        // A reason is one line here, whatever is in it.
        intent.reason.replace('\n', " ")
    )
}
