//! `litctl carbon run` with a real training job on CPUs: gloo, four processes, divided anew between tensor and data
//! parallelism over an accelerated trace, runner and ranks killed at random moments. Each Python that has PyTorch is
//! tried: one from 2.5 on reshards with torch.distributed.checkpoint, an older one gathers whole tensors. What is not
//! here is skipped, and said so.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::LITCTL;

const HOOK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../hooks/pytorch");
/// The iterations of the whole job, of 64 tokens each.
const ITERATIONS: u32 = 1200;
const TOKENS: u32 = 64 * ITERATIONS;

/// The modules that a Python needs to reshard.
const DCP: &str = "import torch.distributed.checkpoint, torch.distributed.tensor";

fn can(python: &Path, script: &str) -> bool {
    let mut command = Command::new(python);
    let status = command.args(["-c", script]).stderr(Stdio::null()).status();
    status.is_ok_and(|it| it.success())
}

/// The Pythons that have PyTorch: the one that is named, that of the gate, the system's.
fn pythons() -> Vec<PathBuf> {
    let gate = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/torch/bin/python");
    let named = std::env::var_os("LITD_TORCH_PYTHON").map(PathBuf::from);
    let places = named
        .into_iter()
        .chain([gate, "/usr/bin/python3".into(), "python3".into()]);
    let mut found: Vec<(PathBuf, bool)> = Vec::new();
    for python in places.filter(|python| can(python, "import torch")) {
        let is_new = can(&python, DCP);
        // A Python with these modules and one without are enough.
        if !found.iter().any(|(_, other)| *other == is_new) {
            found.push((python, is_new));
        }
    }
    if !found.iter().any(|(_, is_new)| *is_new) {
        // Past the capture of a test's output, so that it is seen.
        let note = b"SKIPPED: resharding with torch.distributed.checkpoint: no Python here has PyTorch 2.5 or newer\n";
        std::io::stderr().write_all(note).unwrap();
    }
    found.into_iter().map(|(python, _)| python).collect()
}

/// Dirty in the second hour and in each third one after it: told in advance.
fn signal(folder: &Path) {
    let mut trace = "datetime_utc,ci_direct_g_per_kwh\n".to_owned();
    let mut forecast = "issued_utc,lead_h,forecast_g_per_kwh\n".to_owned();
    for hour in 0..96 {
        let value = if hour % 3 == 1 { 400 } else { 50 };
        trace += &format!(
            "2030-01-{:02}T{:02}:00:00Z,{value}\n",
            1 + hour / 24,
            hour % 24
        );
        forecast += &format!("2030-01-01T00:00:00Z,{hour},{value}\n");
    }
    fs::write(folder.join("trace.csv"), trace).unwrap();
    fs::write(folder.join("forecast.csv"), forecast).unwrap();
    let profile = "tp,pp,dp,power_w,tokens_per_s,switch_s\n1,1,4,1000,10,1200\n2,1,2,900,8,1200\n4,1,1,650,6,1200\n";
    fs::write(folder.join("profile.csv"), profile).unwrap();
}

fn train(folder: &Path, python: &Path) -> Child {
    let script = Path::new(HOOK).join("examples/carbon_reshard.py");
    let mut command = Command::new(LITCTL);
    command
        .current_dir(folder)
        .env("PYTHONPATH", HOOK)
        .env("OMP_NUM_THREADS", "1");
    command.args([
        "carbon",
        "run",
        "--profile",
        "profile.csv",
        "--tokens",
        &TOKENS.to_string(),
    ]);
    command.args([
        "--deadline-hours",
        "48",
        "--progress",
        "ckpt/tokens",
        "--state",
        "state",
    ]);
    command.args(["--trace", "trace.csv", "--forecast", "forecast.csv"]);
    // An hour is twenty seconds, in which the job starts and trains for a while.
    command.args([
        "--from",
        "2030-01-01T00:00:00Z",
        "--speed",
        "180",
        "--failures",
        "20",
        "--",
    ]);
    command
        .arg(python)
        .arg(&script)
        .args(["ckpt", &TOKENS.to_string()]);
    let log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .unwrap();
    command.stdout(log.try_clone().unwrap()).stderr(log);
    command.spawn().unwrap()
}

/// The losses of all iterations, as the last checkpoint has them.
fn losses(folder: &Path, python: &Path) -> Vec<f64> {
    let script = "import sys; sys.path.insert(0, sys.argv[1]); import carbon_reshard as it, torch, pathlib\n\
        last, saved = it.newest(pathlib.Path('ckpt')), {'losses': []}\n\
        if it.dcp: it.dcp.load(saved, checkpoint_id=last)\n\
        else: saved = torch.load(last / 'whole.pt')\n\
        print(*saved['losses'], sep='\\n')";
    let output = Command::new(python)
        .current_dir(folder)
        .env("PYTHONPATH", HOOK)
        .args(["-c", script])
        .arg(Path::new(HOOK).join("examples"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|it| it.parse().unwrap()).collect()
}

/// Tokens of the last checkpoint that the job told of.
fn told(folder: &Path) -> u32 {
    let text = fs::read_to_string(folder.join("ckpt/tokens")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// A process of the job that is no launcher: one of the ranks, which it forked.
fn a_rank(folder: &Path) -> Option<i32> {
    let mark = format!("LITD_CARBON_CHECKPOINT={}", folder.join("state").display());
    let ours = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let environment = fs::read(entry.path().join("environ")).ok()?;
            let is_ours = String::from_utf8_lossy(&environment).contains(&mark);
            is_ours.then(|| entry.file_name().to_string_lossy().parse().ok())?
        });
    let mut ours: Vec<i32> = ours.collect();
    ours.sort_unstable();
    ours.into_iter().skip(1).next_back()
}

/// The victim of a kill, and when.
#[derive(Clone, Copy, PartialEq)]
enum Kill {
    /// The runner, while the job still loads or has just begun.
    Loading,
    /// The runner, once the job has written another checkpoint.
    Runner,
    /// A rank, once the job has written another checkpoint, and the runner once it has started the job again.
    Rank,
}

fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap()
}

/// From which checkpoint the job was started each time, in tokens.
fn starts(folder: &Path) -> Vec<u32> {
    let log = log(folder);
    let starts = log.lines().filter_map(|line| {
        let (_, rest) = line.split_once(" from at-")?;
        rest.split(',').next()?.parse().ok()
    });
    starts.collect()
}

/// Waits for something that the job does while its runner lives. How long a start takes is a matter of the machine.
#[track_caller]
fn wait_for<T>(what: &str, folder: &Path, runner: &mut Child, found: impl Fn() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(300);
    loop {
        if let Some(found) = found() {
            return found;
        }
        let is_over = runner.try_wait().unwrap().is_some();
        assert!(
            !is_over && Instant::now() < until,
            "{what} is missing, the runner is over: {is_over}; {}",
            log(folder)
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// Kills runner or job, at a moment that nobody chose.
fn killed(folder: &Path, python: &Path, at: Duration, kill: Kill) {
    let before = told(folder);
    let mut runner = train(folder, python);
    if kill != Kill::Loading {
        let another = || (told(folder) > before).then_some(());
        wait_for("another checkpoint", folder, &mut runner, another);
    }
    thread::sleep(at);
    if kill == Kill::Rank {
        let before = starts(folder).len();
        // A rank may end for a switch between the two.
        let rank_killed = || {
            let rank = a_rank(folder)?.to_string();
            let status = Command::new("kill").args(["-9", &rank]).status();
            status.unwrap().success().then_some(())
        };
        wait_for("a rank", folder, &mut runner, rank_killed);
        let again = || (starts(folder).len() > before).then_some(());
        wait_for("another start", folder, &mut runner, again);
    }
    let is_over = runner.try_wait().unwrap();
    assert!(is_over.is_none(), "nothing was killed: {}", log(folder));
    runner.kill().unwrap();
    runner.wait().unwrap();
}

fn undivided(python: &Path) -> Vec<f64> {
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new(python)
        .current_dir(folder.path())
        .env("PYTHONPATH", HOOK)
        .envs([
            ("LITD_TP", "1"),
            ("LITD_PP", "1"),
            ("LITD_DP", "1"),
            ("OMP_NUM_THREADS", "1"),
        ])
        .arg(Path::new(HOOK).join("examples/carbon_reshard.py"))
        .args(["ckpt", &TOKENS.to_string()])
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success());
    losses(folder.path(), python)
}

#[test]
fn training_goes_on_over_reshards_and_kills() {
    // How far the job comes in an accelerated hour is a matter of the machine; minutes are for the long gate.
    if std::env::var_os("LITD_TORCH_PYTHON").is_none() {
        let note = b"SKIPPED: training over reshards and kills: set LITD_TORCH_PYTHON to a Python with PyTorch\n";
        std::io::stderr().write_all(note).unwrap();
        return;
    }
    for python in pythons() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        signal(&folder);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        for (number, kill) in (0..).zip([Kill::Loading, Kill::Runner, Kill::Rank]) {
            let milliseconds = u64::from(now.subsec_micros() % 600 * 5 + number * 500);
            let before = told(&folder);
            killed(&folder, &python, Duration::from_millis(milliseconds), kill);
            assert!(
                told(&folder) >= before,
                "a checkpoint was lost after {milliseconds} ms"
            );
        }
        let status = train(&folder, &python).wait().unwrap();
        let log = log(&folder);
        assert!(status.success(), "{log}");
        assert!(
            log.contains(&format!("{TOKENS} tokens trained at ")),
            "{log}"
        );
        assert!(!log.contains("after the deadline"), "{log}");
        // No step that was in a checkpoint is trained again: starts never go back.
        let starts = starts(&folder);
        assert!(starts.is_sorted() && starts.len() >= 2, "{log}");
        // How the job was divided, of all its starts: which divisions the plan takes depends on how far it has come.
        let divisions: BTreeSet<&str> = log
            .lines()
            .filter_map(|line| line.split_once(" from ").map(|(division, _)| division))
            .filter(|division| division.starts_with("TP="))
            .collect();
        assert!(divisions.len() >= 2, "{divisions:?}: {log}");
        // Each token was trained once, and where one division ended the next went on: a run that is never divided
        // anew has the same losses.
        let (divided, undivided) = (losses(&folder, &python), undivided(&python));
        assert_eq!(
            (divided.len(), undivided.len()),
            (ITERATIONS as usize, ITERATIONS as usize)
        );
        for (at, (own, other)) in divided.iter().zip(&undivided).enumerate() {
            let off = (own - other).abs();
            assert!(
                off <= 1e-3 * other + 1e-3,
                "iteration {at}: {own} and {other}"
            );
        }
        assert!(
            divided[0] > 4.0 * divided[ITERATIONS as usize - 1],
            "{divided:?}"
        );
    }
}
