//! `litctl carbon run`: a job that is killed, and one that does not do what it is asked to.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{folder, litctl};
use crate::LITCTL;

/// A job of 60,000 tokens that trains a thousand each 20 ms, writes a checkpoint each time, and tells when it
/// is not alone.
pub const JOB: &str = r#"
tokens=$(cat tokens 2>/dev/null || echo 0)
echo "$LITD_TP,$LITD_PP,$LITD_DP from $tokens" >> log
if grep -q '^State:.[RSD]' "/proc/$(cat pid 2>/dev/null)/status" 2>/dev/null; then echo "not alone" >> log; fi
echo $$ > pid.new && mv pid.new pid
while [ "$tokens" -lt 60000 ]; do
  sleep 0.02
  tokens=$((tokens + 1000))
  echo $tokens > tokens.new && mv tokens.new tokens
  if [ -e "$LITD_CARBON_CHECKPOINT" ]; then exit 0; fi
done
"#;

/// A run of 60,000 tokens within seven hours of the trace, half a second each.
pub fn command(folder: &Path, more: &[&str], job: &[&str]) -> Command {
    let mut command = Command::new(LITCTL);
    command.current_dir(folder).args([
        "carbon",
        "run",
        "--profile",
        "profile.csv",
        "--tokens",
        "60000",
        "--progress",
        "tokens",
        "--state",
        "state",
        "--trace",
        "trace.csv",
        "--forecast",
        "forecast.csv",
        "--from",
        "2030-01-01T00:00:00Z",
        "--speed",
        "7200",
    ]);
    let of = |option: &str| more.contains(&option);
    if !of("--deadline-hours") {
        command.args(["--deadline-hours", "7"]);
    }
    if !of("--failures") {
        command.args(["--failures", "100"]);
    }
    command.args(more).arg("--").args(job);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub fn run(folder: &Path, more: &[&str], job: &[&str]) -> Child {
    command(folder, more, job).spawn().unwrap()
}

fn start(folder: &Path) -> Child {
    run(folder, &[], &["sh", "job.sh"])
}

/// Runner and job are killed at any moment; what is started again goes on from the last checkpoint.
#[test]
fn a_job_outlives_its_runner_and_itself() {
    let folder = folder();
    let place = folder.path();
    fs::write(place.join("job.sh"), JOB).unwrap();
    for (number, milliseconds) in [300, 450, 700].into_iter().enumerate() {
        let mut runner = start(place);
        thread::sleep(Duration::from_millis(milliseconds));
        if number == 1 {
            let pid = fs::read_to_string(place.join("pid")).unwrap();
            let killed = Command::new("kill").args(["-9", pid.trim()]).status();
            assert!(killed.unwrap().success());
            thread::sleep(Duration::from_millis(1500));
        }
        runner.kill().unwrap();
        runner.wait().unwrap();
    }
    let done = start(place).wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{stderr}");
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(text.starts_with("60000 tokens trained at "), "{text}");
    assert_eq!(
        fs::read_to_string(place.join("tokens")).unwrap().trim(),
        "60000"
    );
    let log = fs::read_to_string(place.join("log")).unwrap();
    let starts: Vec<u32> = log
        .lines()
        .filter_map(|line| line.rsplit_once(' ')?.1.parse().ok())
        .collect();
    assert!(starts.len() >= 4, "{log}");
    assert!(!log.contains("not alone"), "{log}");
    assert!(
        starts.is_sorted(),
        "a start went back behind a checkpoint: {log}"
    );
    // It is done, and stays so.
    let again = start(place).wait_with_output().unwrap();
    assert!(again.status.success());
    let text = String::from_utf8(again.stdout).unwrap();
    assert!(text.contains("60000 tokens are trained already"), "{text}");
    assert_eq!(fs::read_to_string(place.join("log")).unwrap(), log);
}

/// Whoever stops litctl stops the job, which writes a checkpoint first.
#[test]
fn a_runner_that_is_told_to_stop_leaves_a_checkpoint_and_no_job() {
    let folder = folder();
    let place = folder.path();
    fs::write(place.join("job.sh"), JOB).unwrap();
    let runner = start(place);
    let until = Instant::now() + Duration::from_secs(30);
    while !place.join("tokens").exists() {
        assert!(Instant::now() < until, "the job trains nothing");
        thread::sleep(Duration::from_millis(20));
    }
    let told = Command::new("kill")
        .args(["-TERM", &runner.id().to_string()])
        .status();
    assert!(told.unwrap().success());
    let stopped = runner.wait_with_output().unwrap();
    let said = String::from_utf8(stopped.stderr).unwrap();
    assert_eq!(stopped.status.code(), Some(2), "{said}");
    assert!(
        said.contains("started again, litctl goes on from there"),
        "{said}"
    );
    let pid = fs::read_to_string(place.join("pid")).unwrap();
    let is_there = Path::new("/proc").join(pid.trim()).join("cwd").exists();
    assert!(!is_there, "the job outlived its runner: {said}");
    let done = start(place).wait_with_output().unwrap();
    assert!(done.status.success());
    assert_eq!(
        fs::read_to_string(place.join("tokens")).unwrap().trim(),
        "60000"
    );
}

#[test]
fn a_dry_run_starts_nothing() {
    let folder = folder();
    let args = [
        "run",
        "--profile",
        "profile.csv",
        "--tokens",
        "1.08e6",
        "--deadline-hours",
        "6",
        "--progress",
        "tokens",
        "--state",
        "state",
        "--trace",
        "trace.csv",
        "--from",
        "2030-01-01T02:00:00Z",
        "--dry-run",
        "--",
        "touch",
        "started-{tp}",
    ];
    let output = litctl(folder.path(), &args);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("command  touch started-"), "{text}");
    assert!(!folder.path().join("started-1").exists() && !folder.path().join("started-2").exists());
}
