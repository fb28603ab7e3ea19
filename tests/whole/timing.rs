//! Jobs whose hooks time modules: a piece is as long as what it waits for, and its start tells all the same who is
//! waited for.

use litd_api::JobState;
use litd_rig::{JobSpec, Rig, Timing};
use litd_sim::Scenario;

use crate::stand::{GPUS, SOON, Stand, quick};

/// How a job went.
#[derive(Debug)]
struct Went {
    /// By how much its iterations became shorter, a part.
    faster: f64,
    /// By how much the caps of its GPUs came down, a part.
    saved: f64,
    state: JobState,
    why: String,
}

fn went(seed: u64, policy: &str, timing: Timing) -> Went {
    let rig = Rig::new(&Scenario::builtin("default").unwrap(), seed).unwrap();
    let mut stand = Stand::on(rig, &quick(policy), true);
    stand.start();
    let spec = JobSpec::new("train", 0..GPUS).timed(timing);
    let mut job = stand.rig.attach(spec).unwrap();
    job.welcome(SOON).unwrap();
    stand.play(&mut job, 2);
    let mean = |stand: &Stand| stand.job_status("train").iteration_time.unwrap().0;
    let (before, found) = (mean(&stand), stand.sum());
    stand.play(&mut job, 150);
    let status = stand.job_status("train");
    let went = Went {
        faster: 1.0 - mean(&stand) / before,
        saved: 1.0 - stand.sum() / found,
        state: status.state,
        why: status.why,
    };
    stand.stop();
    went
}

#[test]
fn modules_level_a_node_as_kernels_do() {
    for seed in [1, 2] {
        for policy in ["gpu-red", "gpu-realloc"] {
            let kernels = went(seed, policy, Timing::Kernels);
            assert!(kernels.faster > 0.015, "{kernels:?}");
            assert!(!kernels.why.contains("modules"), "{kernels:?}");
            for timing in [Timing::Leaves, Timing::Blocks, Timing::Arrivals] {
                let pieces = went(seed, policy, timing);
                let text = format!("{policy}, {timing:?}: {pieces:?}; {kernels:?}");
                assert!(pieces.faster > kernels.faster - 0.005, "{text}");
                assert!(pieces.saved > kernels.saved * 2.0 / 3.0 - 0.001, "{text}");
                assert_eq!(pieces.state, JobState::Converged, "{text}");
                assert!(
                    pieces.why.contains("the law knows leads, but no pace"),
                    "{text}"
                );
            }
        }
    }
}
