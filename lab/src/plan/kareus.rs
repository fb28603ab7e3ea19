//! SIMULATED results for `litlab plan kareus`.

use litd_cli::plan::Fallible;
use litd_cli::plan::kareus::{Explored, Source, searched};
use litd_kareus::{
    Candidate, Gpu, Job, Partition, Profiler, Results, Space, profile_nanobatching,
    profile_sequences,
};
use litd_overlap::Method;

/// What they are made from.
#[derive(clap::Args)]
pub struct Simulated {
    /// The seed of the search and of the simulator's noise
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The simulated A100, rested, with the paper's windows and cooldowns.
fn simulator(seed: u64) -> impl Profiler {
    litd_overlap::Simulated::new(litd_overlap::gpu::A100, Method::default(), seed)
}

impl Source for Simulated {
    const EXAMPLES: &'static str = "\
Example:
  litlab plan kareus --job JOB.json --pictures pictures";

    fn everything(&self, job: &Job, gpu: &Gpu) -> Fallible<(Results, bool)> {
        let mut profiler = simulator(self.seed);
        let mut results = Results::new(profiler.static_power());
        for partition in &job.partitions {
            for candidate in space(gpu, partition) {
                let measured = profiler.partition(partition, candidate)?;
                results.add_partition(&partition.name, candidate, measured);
            }
        }
        Ok((results, true))
    }

    fn explore(&self, job: &Job, gpu: &Gpu, library_sms: u32, quiet: bool) -> Fallible<Explored> {
        explored(job, gpu, library_sms, self.seed, quiet)
    }
}

/// Searches a job on the simulated GPU, and profiles the baselines.
pub fn explored(
    job: &Job,
    gpu: &Gpu,
    library_sms: u32,
    seed: u64,
    quiet: bool,
) -> Fallible<Explored> {
    let mut profiler = simulator(seed);
    let clocks = gpu.clocks(2);
    let mut results = Results::new(profiler.static_power());
    profile_sequences(job, &mut profiler, &clocks, &mut results)?;
    let mut baselines = results.clone();
    profile_nanobatching(job, &mut profiler, &clocks, library_sms, &mut baselines)?;
    let space = |it: &Partition| space(gpu, it);
    let searches = searched(job, &mut profiler, space, seed, &mut results, quiet)?;
    Ok(Explored {
        results,
        baselines,
        searches,
        simulated: true,
    })
}

fn space(gpu: &Gpu, partition: &Partition) -> Vec<Candidate> {
    Space::searched(gpu, partition).candidates().collect()
}
