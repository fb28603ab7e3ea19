//! Trace files, read with a progress bar if that takes long.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use litd_traces::folder::{self, FolderError, Source};
use litd_traces::{Choice, Timeline, Trace, join};

use crate::output::count;

/// Work that takes less time than this gets no progress bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// Recorded ranks that are to be played to a daemon.
#[derive(clap::Args)]
pub struct Recorded {
    /// Trace files, or folders whose traces are read (not those of subfolders)
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The ranks of the files, in the order of the files, if the files do not name them
    #[arg(long, value_delimiter = ',', value_name = "R,R,…", value_parser = crate::spaced::<u32>)]
    ranks: Vec<u32>,
    /// How many times the traces are replayed, one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub times: u32,
    /// The job's name
    #[arg(long, default_value = "replay")]
    pub job: String,
}

impl Recorded {
    /// The ranks' timelines.
    ///
    /// # Errors
    /// A file can't be read, or the files are no job's; in words, with its name.
    pub fn timelines(&self) -> Result<Vec<Timeline>, Box<dyn std::error::Error>> {
        let choice = Choice {
            ranks: &self.ranks,
            ..Choice::default()
        };
        let (traces, _) = read(&folder::files(&self.paths)?, choice)?;
        Ok(join(traces)?.0)
    }
}

/// A summary of a replay: the iterations that were reported on each rank, and how many of them the daemon has
/// asked for.
#[must_use]
pub fn played(iterations: u64, ranks: usize, sampled: u64) -> String {
    format!(
        "played {} of {}; the daemon asked for {sampled}\n",
        count(iterations, "iteration"),
        count(ranks, "rank"),
    )
}

/// Reads all files, and notes which were skipped.
///
/// # Errors
/// As [`folder::traces`].
pub fn read(
    files: &[Source],
    choice: Choice<'_>,
) -> Result<(Vec<Trace>, Vec<String>), FolderError> {
    let progress = Progress::new(files);
    let read = folder::traces(files, choice, &|bytes| progress.advance(bytes));
    progress.bar.finish_and_clear();
    read
}

struct Progress {
    bar: ProgressBar,
    since: Instant,
    shown: AtomicBool,
}

impl Progress {
    fn new(files: &[Source]) -> Self {
        let sizes = files
            .iter()
            .filter_map(|file| Some(fs::metadata(&file.path).ok()?.len()));
        let bar = ProgressBar::with_draw_target(Some(sizes.sum()), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("reading {wide_bar} {bytes}/{total_bytes}");
        Self {
            bar: style.map_or(bar.clone(), |style| bar.with_style(style)),
            since: Instant::now(),
            shown: AtomicBool::new(false),
        }
    }

    fn advance(&self, bytes: usize) {
        self.bar.inc(bytes as u64);
        if self.since.elapsed() > PATIENCE && !self.shown.swap(true, Ordering::Relaxed) {
            // Draws nothing unless stderr is a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}
