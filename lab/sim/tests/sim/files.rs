//! Workload and scenario files: all that are shipped load; bad ones are refused with the file,
//! the key and the cause.

use std::path::Path;

use litd_sim::scenario::builtin_names;
use litd_sim::{Scenario, Workload};

const DEFAULT: &str = include_str!("../../scenarios/default.toml");

#[test]
fn all_shipped_scenarios_load_by_name_and_from_their_files() {
    assert_eq!(builtin_names().count(), 11);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    for name in builtin_names() {
        let scenario = Scenario::builtin(name).unwrap();
        assert_eq!(
            scenario,
            Scenario::load(&folder.join(format!("{name}.toml"))).unwrap()
        );
        assert_eq!((scenario.gpus.len(), scenario.cpus.len()), (8, 2));
        assert!(!scenario.title.is_empty() && !scenario.description.is_empty());
    }
    let unknown = Scenario::builtin("defualt").unwrap_err().to_string();
    assert!(
        unknown.contains("\"defualt\"") && unknown.contains("late-host"),
        "{unknown}"
    );
}

/// The error of loading the default scenario after some of its text is replaced.
fn refusal(old: &str, new: &str) -> String {
    assert!(DEFAULT.contains(old), "{old}");
    let text = DEFAULT.replacen(old, new, 1);
    let error = Scenario::from_toml(&text, "mine.toml", Path::new("/nowhere"));
    let message = error.expect_err("must be refused").to_string();
    assert!(message.starts_with("mine.toml: "), "{message}");
    message
}

#[test]
fn bad_scenarios_are_refused_by_key() {
    for (old, new, expected) in [
        ("alpha = 1.9", "alhpa = 1.9", "alhpa"),
        ("tdp_w = 750", "tdp_w = 750\ntdp = 1", "unknown field `tdp`"),
        ("tdp_w = 750", "tdp_w = nan", "caps.tdp_w"),
        ("tdp_w = 750", "", "missing field `tdp_w`"),
        (
            "initial_cap_w = 700",
            "initial_cap_w = 751",
            "caps.initial_cap_w",
        ),
        ("floor_w = 300", "floor_w = 199", "caps.floor_w"),
        (
            "driver_min_w = 200",
            "driver_min_w = 100",
            "caps.driver_min_w",
        ),
        ("resolution_w = 1", "resolution_w = 0", "caps.resolution_w"),
        (
            "alpha = 1.9",
            "alpha = \"x\"",
            "expected a number for all GPUs",
        ),
        (
            "alpha = 1.9",
            "alpha = [1.9, 2]",
            "gpus.alpha: the list has 2 numbers",
        ),
        ("alpha = 1.9", "alpha = inf", "gpus.alpha[0]"),
        ("max_clock = 1.25", "max_clock = 1.05", "gpus.max_clock[2]"),
        (
            "leakage_per_k = 0.004",
            "leakage_per_k = 0.02",
            "caps.driver_min_w",
        ),
        (
            "[0.061, 0.064, 0.056, 0.060, 0.075, 0.063, 0.063, 0.068]",
            "5",
            "gpus.leakage_per_k[0]",
        ),
        ("slowdown_c = 105", "slowdown_c = 45", "gpus.slowdown_c[0]"),
        ("count = 8", "count = 0", "gpus.clock_offset_percent"),
        ("count = 8", "count = 99999999", "gpus.count"),
        (
            "kernel_noise = 0.003",
            "kernel_noise = 0.3",
            "workload.kernel_noise",
        ),
        (
            "contention = 1.3",
            "contention = 0.9",
            "workload.contention",
        ),
        (
            "leakage_per_k = 0.004",
            "leakage_per_k = 0.09",
            "gpus.leakage_per_k[0]",
        ),
        ("layers = 32", "layers = 0", "workload.layers"),
        ("layers = 32", "", "either `layers` or `file`"),
        ("layers = 32", "file = \"none.json\"", "none.json"),
        ("limit_w = 400", "limit_w = 90", "cpus[0].floor_w"),
        (
            "# policies = [\"gpu-red\"]",
            "policies = [\"gpu-green\"]",
            "gpu-green",
        ),
    ] {
        let message = refusal(old, new);
        assert!(message.contains(expected), "{new:?}: {message}");
    }
}

#[test]
fn a_scenario_takes_a_workload_file_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let workload = litd_sim::workload::fsdp(2);
    let json = serde_json::to_string(&workload).unwrap();
    std::fs::write(folder.path().join("two.json"), json).unwrap();
    let file = folder.path().join("mine.toml");
    std::fs::write(&file, DEFAULT.replace("layers = 32", "file = \"two.json\"")).unwrap();
    assert_eq!(Scenario::load(&file).unwrap().workload, workload);
    assert!(Scenario::load(&folder.path().join("none.toml")).is_err());
}

#[test]
fn bad_workloads_are_refused_with_the_cause() {
    let kernel = |rest: &str| format!(r#"{{"name":"k","work_ms":1,"clock_bound":0.5{rest}}}"#);
    let collective =
        |after: &str| format!(r#"{{"name":"c","transfer_ms":1,"after_start_of":{after}}}"#);
    let file = |kernels: &[String], collectives: &[String]| {
        let (kernels, collectives) = (kernels.join(","), collectives.join(","));
        format!(r#"{{"kernels":[{kernels}],"collectives":[{collectives}]}}"#)
    };
    let needs = |j: usize| kernel(&format!(r#","needs":{j}"#));
    let good = file(&[kernel(""), needs(0)], &[collective("0")]);
    assert!(Workload::from_json(&good, "w").is_ok());

    for (text, expected) in [
        (String::new(), "EOF"),
        ("[]".to_owned(), "not a workload"),
        (good.replace("}]}", ""), "EOF"),
        (good.replace("work_ms", "work"), "unknown field `work`"),
        (
            good.replace(r#","after_start_of":0"#, ""),
            "missing field `after_start_of`",
        ),
        (
            good.replacen("\"work_ms\":1", "\"work_ms\":-1", 1),
            "kernel 0 (k): `work_ms` is -1",
        ),
        (good.replace("0.5", "1.5"), "`clock_bound` is 1.5"),
        (
            good.replace("\"transfer_ms\":1", "\"transfer_ms\":-2"),
            "collective 0 (c)",
        ),
        (
            good.replace("\"work_ms\":1", "\"work_ms\":1e300"),
            "add up to more than",
        ),
        (file(&[], &[]), "`kernels` is empty"),
        (
            file(&[needs(1)], &[collective("null")]),
            "`needs` is 1, but there are only 1",
        ),
        (
            file(&[kernel("")], &[collective("7")]),
            "`after_start_of` is 7",
        ),
        (
            file(&[needs(0)], &[collective("0")]),
            "deadlock: kernel 0 (k) needs collective 0 (c)",
        ),
        // The collective is free, but the one before it, which must end first, is not.
        (
            file(
                &[kernel(""), needs(1), kernel("")],
                &[collective("2"), collective("null")],
            ),
            "deadlock: kernel 1 (k) needs collective 1 (c), which comes no earlier than \
             collective 0 (c), which waits for kernel 2",
        ),
    ] {
        let error = Workload::from_json(&text, "w.json")
            .expect_err(&text)
            .to_string();
        assert!(
            error.starts_with("w.json: ") && error.contains(expected),
            "{text}: {error}"
        );
    }
    let missing = Workload::load(Path::new("none.json"))
        .unwrap_err()
        .to_string();
    assert!(missing.starts_with("none.json: "), "{missing}");
}
