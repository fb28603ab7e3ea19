//! Trace files, read with a progress bar if that takes long.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use litd_traces::folder::{self, FolderError, Source};
use litd_traces::{Choice, Trace};

/// What takes less time than this needs no progress bar.
const PATIENCE: Duration = Duration::from_millis(500);

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
