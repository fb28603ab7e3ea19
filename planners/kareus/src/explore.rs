//! Asking a profiler for all that a job's plan needs.

use litd_units::Hertz;
use serde::Serialize;

use crate::candidate::Candidate;
use crate::job::Job;
use crate::partition::Partition;
use crate::profile::{Profiler, ProfilerError};
use crate::results::Results;
use crate::search::{Found, Settings, search};

/// The search of one partition.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Searched {
    /// The partition's name.
    pub partition: String,
    /// How many candidates there were.
    pub candidates: usize,
    /// The results of the search.
    pub found: Found,
}

/// Searches every partition among these candidates, with the budget of its size (appendix C), and adds what was
/// tried to `results`. `progress` is told after each measurement whose it was, and how many it may be at most.
///
/// # Errors
/// The profiler's first; what was measured until then is in `results`.
pub fn explore(
    job: &Job,
    profiler: &mut dyn Profiler,
    candidates: impl Fn(&Partition) -> Vec<Candidate>,
    seed: u64,
    results: &mut Results,
    mut progress: impl FnMut(&Partition, usize),
) -> Result<Vec<Searched>, ProfilerError> {
    let power = results.static_power();
    let mut searches = Vec::with_capacity(job.partitions.len());
    for (place, partition) in job.partitions.iter().enumerate() {
        let candidates = candidates(partition);
        let settings = Settings::for_computations(partition.computations.len());
        let most = settings.initial + settings.batches * settings.batch;
        let most = most.min(candidates.len());
        let evaluate = |candidate, _| {
            let measured = profiler.partition(partition, candidate)?;
            results.add_partition(&partition.name, candidate, measured);
            progress(partition, most);
            Ok(measured)
        };
        let seed = Job::seed(seed, place);
        searches.push(Searched {
            partition: partition.name.clone(),
            candidates: candidates.len(),
            found: search(&candidates, power, &settings, seed, evaluate)?,
        });
    }
    Ok(searches)
}

/// Adds every sequence at each of these clocks to `results`.
///
/// # Errors
/// The profiler's first.
pub fn profile_sequences(
    job: &Job,
    profiler: &mut dyn Profiler,
    clocks: &[Hertz],
    results: &mut Results,
) -> Result<(), ProfilerError> {
    for sequence in &job.sequences {
        for &clock in clocks {
            let measured = profiler.sequence(sequence, clock)?;
            results.add_sequence(&sequence.name, clock, measured);
        }
    }
    Ok(())
}

/// Adds what nanobatching does at each of these clocks to `results`: the communication starts at once, with the
/// communication library's number of SMs.
///
/// # Errors
/// The profiler's first.
pub fn profile_nanobatching(
    job: &Job,
    profiler: &mut dyn Profiler,
    clocks: &[Hertz],
    sms: u32,
    results: &mut Results,
) -> Result<(), ProfilerError> {
    for partition in &job.partitions {
        for &clock in clocks {
            let launch = 0;
            let candidate = Candidate { clock, sms, launch };
            let measured = profiler.partition(partition, candidate)?;
            results.add_partition(&partition.name, candidate, measured);
        }
    }
    Ok(())
}
