//! `litctl carbon run` with a real training job on CPUs: gloo, two processes, divided anew between tensor and data
//! parallelism over an accelerated trace. Skipped, and said so, where no Python has PyTorch.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::LITCTL;

const HOOK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../hooks/pytorch");
/// What the job trains in all: 64 for each iteration.
const TOKENS: u32 = 64 * 725;

/// A Python that has PyTorch.
fn python() -> Option<&'static str> {
    let has_torch = |python: &&str| {
        let mut command = Command::new(python);
        let status = command
            .args(["-c", "import torch"])
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|it| it.success())
    };
    ["/usr/bin/python3", "python3"].into_iter().find(has_torch)
}

/// Clean but for the second hour: told in advance.
fn signal(folder: &Path) {
    let mut trace = "datetime_utc,ci_direct_g_per_kwh\n".to_owned();
    let mut forecast = "issued_utc,lead_h,forecast_g_per_kwh\n".to_owned();
    for hour in 0..96 {
        let value = if hour == 1 { 400 } else { 50 };
        trace += &format!(
            "2030-01-{:02}T{:02}:00:00Z,{value}\n",
            1 + hour / 24,
            hour % 24
        );
        forecast += &format!("2030-01-01T00:00:00Z,{hour},{value}\n");
    }
    fs::write(folder.join("trace.csv"), trace).unwrap();
    fs::write(folder.join("forecast.csv"), forecast).unwrap();
    let profile = "tp,pp,dp,power_w,tokens_per_s,switch_s\n1,1,2,1000,5,1800\n2,1,1,650,3,1800\n";
    fs::write(folder.join("profile.csv"), profile).unwrap();
}

fn train(folder: &Path, python: &str) -> Child {
    let script = Path::new(HOOK).join("examples/carbon_reshard.py");
    let mut command = Command::new(LITCTL);
    command
        .current_dir(folder)
        .env("PYTHONPATH", HOOK)
        .env("OMP_NUM_THREADS", "1")
        .args([
            "carbon",
            "run",
            "--profile",
            "profile.csv",
            "--tokens",
            &TOKENS.to_string(),
        ])
        .args([
            "--deadline-hours",
            "48",
            "--progress",
            "ckpt/tokens",
            "--state",
            "state",
        ])
        .args(["--trace", "trace.csv", "--forecast", "forecast.csv"])
        // An hour is twelve seconds, in which the job starts and trains for a while.
        .args([
            "--from",
            "2030-01-01T00:00:00Z",
            "--speed",
            "300",
            "--",
            python,
        ])
        .arg(&script)
        .args(["ckpt", &TOKENS.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// The losses of all iterations, as the last checkpoint has them.
fn losses(folder: &Path, python: &str) -> Vec<f64> {
    let script = "import torch; print(*torch.load('ckpt/checkpoint.pt')['losses'], sep='\\n')";
    let output = Command::new(python)
        .current_dir(folder)
        .args(["-c", script])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|it| it.parse().unwrap()).collect()
}

#[test]
fn training_goes_on_over_reshards_and_kills() {
    let Some(python) = python() else {
        // Past the capture of a test's output, so that it is seen.
        let note = b"SKIPPED: resharding a torch job: no Python here has PyTorch\n";
        std::io::stderr().write_all(note).unwrap();
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    signal(folder.path());
    // Killed in the middle of the first hours, with all that it runs left behind.
    let mut first = train(folder.path(), python);
    thread::sleep(Duration::from_secs(20));
    first.kill().unwrap();
    first.wait().unwrap();
    let done = train(folder.path(), python).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(
        text.contains(&format!("{TOKENS} tokens trained at ")),
        "{text}"
    );
    assert!(!text.contains("after the deadline"), "{text}");
    let state = fs::read_to_string(folder.path().join("state/carbon-run.json")).unwrap();
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    assert!(state["switches"].as_u64().unwrap() >= 1, "{state}");
    // Each token was trained once, and where one division ended the next went on: a run that is never divided
    // anew has the same losses.
    let divided = losses(folder.path(), python);
    assert_eq!(divided.len(), TOKENS as usize / 64);
    let whole = tempfile::tempdir().unwrap();
    let script = Path::new(HOOK).join("examples/carbon_reshard.py");
    let status = Command::new(python)
        .current_dir(whole.path())
        .env("PYTHONPATH", HOOK)
        .envs([
            ("LITD_TP", "1"),
            ("LITD_PP", "1"),
            ("LITD_DP", "1"),
            ("OMP_NUM_THREADS", "1"),
        ])
        .arg(&script)
        .args(["ckpt", &TOKENS.to_string()])
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success());
    let undivided = losses(whole.path(), python);
    for (at, (own, other)) in divided.iter().zip(&undivided).enumerate() {
        let off = (own - other).abs();
        assert!(
            off <= 1e-3 * other + 1e-3,
            "iteration {at}: {own} and {other}"
        );
    }
    assert!(divided[0] > 100.0 && divided[TOKENS as usize / 64 - 1] < 0.1);
}
