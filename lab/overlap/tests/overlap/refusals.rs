//! Requests that the GPU can't do are errors, and results are finite.

use litd_kareus::{Partition, Profiler, Sequence, Work};
use litd_overlap::paper;
use litd_units::Hertz;
use proptest::prelude::*;

use crate::{at, simulated};

fn refused(change: impl FnOnce(&mut Partition), candidate: litd_kareus::Candidate) -> String {
    let mut partition = paper::figure_3();
    change(&mut partition);
    let mut profiler = simulated(1.0, 1.0, 0);
    let measured = profiler.partition(&partition, candidate).unwrap_err();
    measured.to_string()
}

#[test]
fn what_the_gpu_cannot_do_is_refused_with_a_reason() {
    let fine = at(1410.0, 6, 0);
    let cases = [
        (refused(|_| (), at(1411.0, 6, 0)), "1411 MHz"),
        (refused(|_| (), at(195.0, 6, 0)), "210 to 1410 MHz"),
        (refused(|_| (), at(f64::NAN, 6, 0)), "NaN MHz"),
        (refused(|_| (), at(1410.0, 0, 0)), "0 SMs"),
        (refused(|_| (), at(1410.0, 108, 0)), "1 to 107"),
        (refused(|_| (), at(1410.0, 6, 5)), "no computation 5"),
        (
            refused(|it| it.computations.clear(), fine),
            "no computation 0",
        ),
        (
            refused(|it| it.communication.collectives.clear(), fine),
            "no collectives",
        ),
        (
            refused(|it| it.communication.collectives[0].group = 16, fine),
            "16 GPUs",
        ),
        (
            refused(|it| it.communication.collectives[0].group = 0, fine),
            "0 GPUs",
        ),
        (
            refused(|it| it.communication.collectives[0].bytes = -1.0, fine),
            "-1 bytes",
        ),
        (
            refused(|it| it.computations[1].work.matrix = f64::NAN, fine),
            "linear_0",
        ),
        (
            refused(|it| it.computations[0].work.bytes = 1e300, fine),
            "longer than",
        ),
    ];
    for (message, reason) in cases {
        assert!(message.starts_with("forward/attention: "), "{message}");
        assert!(message.contains(reason), "{message} lacks {reason}");
    }
    let empty = Sequence {
        name: "nothing".to_owned(),
        steps: Vec::new(),
    };
    let error = simulated(1.0, 1.0, 0).sequence(&empty, Hertz(1_410e6));
    assert!(error.unwrap_err().to_string().contains("no steps"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any work, time and energy are positive, no computation is faster for its neighbour, and no kernel
    /// moves more bytes than the memory does.
    #[test]
    fn every_answer_is_physical(
        works in prop::collection::vec((0.0..1e12_f64, 0.0..1e11_f64, 0.0..1e9_f64), 1..6),
        bytes in 0.0..1e9_f64,
        group in 1..=8_u32,
        clock in 0..=80_u32,
        sms in 1..108_u32,
        launch in 0..6_usize,
    ) {
        let mut partition = paper::figure_3();
        let first = partition.computations[0].clone();
        partition.computations = works
            .iter()
            .map(|&(matrix, vector, bytes)| {
                let mut it = first.clone();
                it.work = Work { matrix, vector, bytes };
                it
            })
            .collect();
        partition.communication.collectives[0].bytes = bytes;
        partition.communication.collectives[0].group = group;
        let candidate = at(210.0 + 15.0 * f64::from(clock), sms, launch % works.len());
        let gpu = litd_overlap::gpu::A100;
        let execution = gpu.partition(&partition, candidate, candidate.clock);
        for phase in &execution.phases {
            prop_assert!(phase.length.0 >= 0.0 && phase.length.is_finite());
            prop_assert!(phase.activity.bytes <= gpu.bandwidth * (1.0 + 1e-9));
            prop_assert!(phase.activity.sms <= 108.0);
        }
        // All work is done, whatever it is beside.
        let done: f64 = execution.phases.iter().map(|it| it.activity.matrix * it.length.0 * 1e-3).sum();
        let asked: f64 = works.iter().map(|it| it.0).sum();
        prop_assert!((done - asked).abs() <= 1e-6 * asked.max(1.0));
        let mut alone = partition.clone();
        alone.communication.collectives[0].bytes = 0.0;
        let alone = gpu.partition(&alone, candidate, candidate.clock);
        prop_assert!(execution.time().0 >= alone.time().0 * (1.0 - 1e-9));
        let mut profiler = simulated(0.3, 0.0, 5);
        let measured = profiler.partition(&partition, candidate).unwrap();
        prop_assert!(measured.time.0 > 0.0 && measured.energy.0 > 0.0);
        prop_assert!(measured.energy.is_finite() && measured.clock <= candidate.clock * (1.0 + 1e-9));
    }
}
