//! What the simulator writes as profiler files, the analysis reads back: the same leads and
//! overlap ratios come out of `litlab simulate` and, by way of files, of `litctl analyze`.
use crate::run::{litctl, litlab};
use serde_json::Value;

const WORKLOAD: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/data/oracle/llama31-8b-fsdp.json"
);

#[test]
fn simulated_files_give_the_simulated_leads() {
    if !litd_rig::is_built("litlab") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let ranks = folder.path().to_str().unwrap();
    let speeds = "1.035,1.025,1.06,1.04,1.0,1.03,1.03,1.015";
    let simulated: Value = serde_json::from_str(&litlab(&[
        "simulate",
        "--json",
        "--workload",
        WORKLOAD,
        "--speeds",
        speeds,
        "--contention",
        "1.3",
        "--write-kineto",
        ranks,
    ]))
    .unwrap();
    let report: Value = serde_json::from_str(&litctl(&["analyze", "--json", ranks])).unwrap();
    assert_eq!(report["simulated"], true);
    assert_eq!(report["matched_kernels"], 640);
    assert_eq!(report["matched_fraction"], 1.0);
    assert_eq!(report["straggler_rank"], 4);
    for gpu in 0..8 {
        let rank = &report["ranks"][gpu];
        // Files have whole nanoseconds, so each of 640 leads may be off by one.
        for (file, sim) in [("sum_ns", "lead_sum_ms"), ("max_ns", "lead_max_ms")] {
            let from_files = rank["lead"][file].as_f64().unwrap() / 1e6;
            let direct = simulated[sim][gpu].as_f64().unwrap();
            assert!(
                (from_files - direct).abs() <= 640.0 * 1e-6,
                "GPU {gpu}: {from_files} and {direct}"
            );
        }
        let overlap = rank["overlap_ratio"].as_f64().unwrap();
        let direct = simulated["overlap_ratio"][gpu].as_f64().unwrap();
        assert!(
            (overlap - direct).abs() < 1e-5,
            "GPU {gpu}: {overlap} and {direct}"
        );
    }
    let text = litctl(&["analyze", ranks]);
    assert!(text.starts_with("SIMULATED"), "{text}");
    assert!(text.contains("Rank 4 is the straggler"), "{text}");
}
