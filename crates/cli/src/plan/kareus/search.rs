//! Searching partitions with a progress bar.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use litd_kareus::{Candidate, Job, Partition, Profiler, Results, Searched, explore};

use crate::plan::Fallible;

/// Searches every partition among these candidates and adds what was tried to `results`; a bar for each partition
/// counts measurements, unless it is to be quiet.
///
/// # Errors
/// The profiler's first.
pub fn searched(
    job: &Job,
    profiler: &mut dyn Profiler,
    candidates: impl Fn(&Partition) -> Vec<Candidate>,
    seed: u64,
    results: &mut Results,
    quiet: bool,
) -> Fallible<Vec<Searched>> {
    let bar = ProgressBar::new(0);
    if quiet {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar.set_style(
        ProgressStyle::with_template("{msg:22} {bar:40} {pos}/{len} {eta}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let progress = |partition: &Partition, most: usize| {
        if bar.message() != partition.name {
            bar.set_message(partition.name.clone());
            bar.set_position(0);
            bar.set_length(most as u64);
        }
        bar.inc(1);
    };
    let found = explore(job, profiler, candidates, seed, results, progress);
    bar.finish_and_clear();
    Ok(found?)
}
