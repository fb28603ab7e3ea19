//! An iteration as a profiler would have recorded it: one [`Timeline`] per GPU.

use litd_traces::{Collective, CollectiveId, Iteration, Kernel, KernelClass, NonMax, Timeline};
use litd_units::{Millis, Nanos};

use crate::iteration::IterationResult;
use crate::workload::Workload;

/// When simulated time begins, so that times look like a profiler's: 2025-11-09, any day would do.
pub const EPOCH: Nanos = Nanos(1_762_646_400_000_000_000);

/// The stream of computation kernels.
const COMPUTATION: &str = "0";
/// The stream of collectives.
const COMMUNICATION: &str = "1";

/// The timelines of all GPUs, rank = GPU, for one iteration that began at `begin` and is number
/// `number` of its job.
#[must_use]
pub fn timelines(
    workload: &Workload,
    result: &IterationResult,
    begin: Nanos,
    number: u32,
) -> Vec<Timeline> {
    let gpus = result.start.len();
    (0..gpus)
        .map(|gpu| timeline(workload, result, gpu, begin, number))
        .collect()
}

fn timeline(
    workload: &Workload,
    result: &IterationResult,
    gpu: usize,
    begin: Nanos,
    number: u32,
) -> Timeline {
    let gpus = result.start.len();
    let rank = |gpu: usize| u32::try_from(gpu).unwrap_or(u32::MAX);
    let mut timeline = Timeline::new(rank(gpu), "simulated");
    timeline.simulated = true;
    timeline.world_size = Some(rank(gpus));
    let at = |time: Millis| begin + time.to_nanos();

    let stream = timeline.stream(COMPUTATION);
    let times = result.start[gpu].iter().zip(&result.duration[gpu]);
    for (k, (spec, (&start, &duration))) in workload.kernels.iter().zip(times).enumerate() {
        // Rounded to nanoseconds, a kernel could end after the next one's start by one.
        let next = result.start[gpu]
            .get(k + 1)
            .map_or(Nanos(i64::MAX), |&next| at(next));
        let kernel = Kernel {
            name: timeline.names.intern(&spec.name),
            stream,
            class: KernelClass::Computation,
            start: at(start),
            end: at(start + duration).min(next),
            collective: None,
            iteration: NonMax::new(number),
        };
        timeline.kernels.push(kernel);
    }

    let stream = timeline.stream(COMMUNICATION);
    let ends = result.collective_start[gpu]
        .iter()
        .zip(&result.collective_end[gpu]);
    for (j, (spec, (&start, &end))) in workload.collectives.iter().zip(ends).enumerate() {
        let (kernel_name, framework_name) = names_of(&spec.name);
        timeline.collectives.push(Collective {
            name: Some(framework_name.into()),
            group_size: timeline.world_size,
            process_group: Some("0".into()),
            ranks: (0..gpus).map(rank).collect(),
            sequence: u64::try_from(j).ok(),
            ..Collective::default()
        });
        let id = u32::try_from(j).ok().and_then(NonMax::new);
        let kernel = Kernel {
            name: timeline.names.intern(&kernel_name),
            stream,
            class: KernelClass::Communication,
            start: at(start),
            end: at(end),
            collective: id.map(CollectiveId),
            iteration: NonMax::new(number),
        };
        timeline.kernels.push(kernel);
    }
    timeline.iterations.push(Iteration {
        number,
        start: begin,
        end: at(result.length),
    });
    timeline.sort();
    timeline
}

/// The names that NCCL's kernel and PyTorch's metadata would have for a workload's collective.
fn names_of(collective: &str) -> (String, String) {
    let kind = collective.split('.').next().unwrap_or_default();
    let (device, framework) = match kind {
        "all_gather" => ("AllGather", "_allgather_base"),
        "reduce_scatter" => ("ReduceScatter", "_reduce_scatter_base"),
        "all_reduce" => ("AllReduce", "allreduce"),
        other => ("Generic", other),
    };
    (
        format!("ncclDevKernel_{device}({collective})"),
        framework.to_owned(),
    )
}
