//! `litctl analyze`: which GPU the others wait for, from the kernel traces of a job's ranks.

mod read;
mod text;

use std::path::PathBuf;

use clap::ValueEnum;
use litd_traces::{AlignOptions, AnalysisOptions, Selection, Timeline, analyse, join};
use litd_units::Aggregation;

use crate::{Outcome, output};

/// Find the GPU that the others wait for, in the kernel traces of a job's ranks
///
/// Reads the Kineto JSON of PyTorch's profiler, plain or gzip, one file per rank or several ranks
/// in one file. Prints for each rank its kernels, how busy its GPU was, how much of its
/// computation ran beside communication, and by how much it started matching kernels before the
/// rank that started them last (its lead).
///
/// The pace is how long a rank's kernels take against the median rank's: 1.05 is 5 % slower. It
/// tells a slow clock from a late host.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Trace files, or folders whose *.json and *.json.gz are read (not those of subfolders)
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Which kernels are matched across ranks; "all" is computation and communication
    #[arg(long, value_enum, default_value_t)]
    kernels: Kernels,
    /// How the leads of a rank's kernels become its lead, whose smallest names the straggler
    #[arg(long, value_enum, default_value_t)]
    aggregation: How,
    /// The ranks of the files, in the order of the files, where the files do not tell
    #[arg(long, value_delimiter = ',', value_name = "R,R,…", value_parser = crate::spaced::<u32>)]
    ranks: Vec<u32>,
    /// Refuse leads if less than this fraction of the kernels matches on all ranks
    #[arg(long, value_name = "FRACTION", default_value_t = 0.8, value_parser = fraction)]
    min_matched: f64,
    /// Look at one iteration only: the N of its ProfilerStep#N, or counted from 0 with --cut-at
    #[arg(long, value_name = "N")]
    iteration: Option<u32>,
    /// Let iterations begin wherever a kernel starts whose name contains NAME
    #[arg(long, value_name = "NAME")]
    cut_at: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  litctl analyze traces/                       all ranks of a job, a file each
  litctl analyze rank*.json.gz --kernels all   match collectives too
  litctl analyze traces/ --iteration 12        the kernels of ProfilerStep#12
  litctl analyze a.json b.json --ranks 0,1     where files tell no ranks
  litctl --json analyze traces/ | jq .straggler_rank";

#[derive(Clone, Copy, Default, ValueEnum)]
enum Kernels {
    #[default]
    Computation,
    All,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum How {
    /// The area under the lead curve
    #[default]
    Sum,
    /// The largest lead
    Max,
    /// The lead at the last kernel
    Last,
}

fn fraction(text: &str) -> Result<f64, String> {
    let fraction = text
        .parse::<f64>()
        .ok()
        .filter(|fraction| (0.0..=1.0).contains(fraction));
    fraction.ok_or_else(|| "must be a number from 0 to 1".into())
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let files = read::files(&args.paths)?;
    let (traces, mut notes) = read::traces(&files, &args.ranks)?;
    let (timelines, more) = join(traces)?;
    notes.extend(more);
    let timelines = chosen(timelines, args)?;
    let options = AnalysisOptions {
        align: AlignOptions {
            selection: match args.kernels {
                Kernels::Computation => Selection::Computation,
                Kernels::All => Selection::All,
            },
            min_matched: args.min_matched,
        },
        aggregation: match args.aggregation {
            How::Sum => Aggregation::Sum,
            How::Max => Aggregation::Max,
            How::Last => Aggregation::Last,
        },
    };
    let mut report = analyse(&timelines, &options)?;
    report.notes.splice(..0, notes);
    if json {
        output::json(&report)
    } else {
        output::text(&text::render(&report, options.aggregation))
    }
}

/// The part of the timelines that was asked for.
fn chosen(mut timelines: Vec<Timeline>, args: &Args) -> Result<Vec<Timeline>, String> {
    if let Some(name) = &args.cut_at {
        for timeline in &mut timelines {
            *timeline = timeline.marked_at(name);
            if timeline.kernels.is_empty() {
                let Timeline { source, rank, .. } = timeline;
                return Err(format!(
                    "{source}: rank {rank} has no kernel whose name contains {name:?}"
                ));
            }
        }
    }
    if let Some(number) = args.iteration {
        for timeline in &mut timelines {
            let iteration = timeline.iteration(number);
            if iteration.kernels.is_empty() {
                return Err(no_iteration(timeline, number));
            }
            *timeline = iteration;
        }
    }
    Ok(timelines)
}

fn no_iteration(timeline: &Timeline, number: u32) -> String {
    let Timeline { source, rank, .. } = timeline;
    let known = timeline.iteration_numbers();
    match (known.first(), known.last()) {
        (Some(only), _) if known.len() == 1 => format!(
            "{source}: rank {rank} has no kernels in iteration {number}; it has iteration {only} only"
        ),
        (Some(first), Some(last)) => format!(
            "{source}: rank {rank} has no kernels in iteration {number}; it has {} iterations from {first} to {last}",
            known.len()
        ),
        _ => format!(
            "{source}: rank {rank} marks no iterations (ProfilerStep); --cut-at NAME lets them begin at a kernel"
        ),
    }
}
