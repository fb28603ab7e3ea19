//! `litctl carbon` as a whole process: plans as JSON, live signals from stubs of providers, a job that is
//! killed, a budget that follows. Every number here is made up.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use litd_api::Done;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::LITCTL;
use crate::lease::{Following, Node};
use crate::standin::{Daemon, ok};

const PROFILE: &str = "tp,pp,dp,power_w,tokens_per_s\n1,1,2,1000,100\n2,1,1,450,60\n1,2,1,900,55\n";

/// Eight hours: dirty in the middle.
const INTENSITIES: [u32; 8] = [100, 100, 400, 400, 400, 100, 50, 50];

/// A folder with a profile, a trace and a forecast that is right.
pub fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let hour = |at: usize| format!("2030-01-01T{at:02}:00:00Z");
    let mut trace =
        "datetime_utc,zone,ci_direct_g_per_kwh,ci_lifecycle_g_per_kwh,estimated\n".to_owned();
    let mut forecast = "issued_utc,lead_h,forecast_g_per_kwh\n".to_owned();
    for (at, value) in INTENSITIES.iter().enumerate() {
        trace += &format!("{},MADE-UP,{value},{},False\n", hour(at), value + 30);
        forecast += &format!("{},{at},{value}\n", hour(0));
    }
    fs::write(folder.path().join("profile.csv"), PROFILE).unwrap();
    fs::write(folder.path().join("trace.csv"), trace).unwrap();
    fs::write(folder.path().join("forecast.csv"), forecast).unwrap();
    folder
}

fn litctl(folder: &Path, args: &[&str]) -> std::process::Output {
    let mut command = Command::new(LITCTL);
    command.current_dir(folder).arg("carbon").args(args);
    command.output().unwrap()
}

fn schedule(folder: &Path, policy: &str, more: &[&str]) -> std::process::Output {
    let args = [
        "schedule",
        "--profile",
        "profile.csv",
        "--trace",
        "trace.csv",
        "--forecast",
        "forecast.csv",
        "--start",
        "2030-01-01T00:00:00Z",
        "--policy",
        policy,
        "--json",
    ];
    litctl(folder, &[&args, more].concat())
}

fn plan(folder: &Path, policy: &str, more: &[&str]) -> Value {
    let output = schedule(folder, policy, more);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{policy}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_plan_is_the_json_that_was_agreed() {
    let folder = folder();
    // 3 h of the fastest; 6 h, a switch of 15 min.
    let job = [
        "--tokens",
        "1.08e6",
        "--deadline-hours",
        "6",
        "--switch-seconds",
        "900",
    ];
    let found = plan(folder.path(), "fixed", &job);
    let (fast, lean) = (
        json!({"tp": 1, "pp": 1, "dp": 2}),
        json!({"tp": 2, "pp": 1, "dp": 1}),
    );
    // Fast while it is clean, then lean in the two dirtiest hours: 180 + 180 g, 560 with the clean ones against 600 g.
    let windows = [&fast, &fast, &lean, &lean].into_iter().zip(0..);
    let windows: Vec<_> = windows
        .map(|(it, hour)| json!({"hour": hour, "configuration": it}))
        .collect();
    assert_eq!(
        found,
        json!({
            "carbon_g": 560.0, "energy_kwh": 2.9, "completion_hours": 4.25, "switches": 1, "start_hours": 0,
            "windows": windows, "optimal": true, "bound_g": 560.0
        })
    );
    let job = ["--tokens", "1.08e6", "--deadline-hours", "8"];
    let found = plan(folder.path(), "shift", &job);
    assert_eq!(
        (found["start_hours"].as_u64(), found["carbon_g"].as_f64()),
        (Some(5), Some(200.0))
    );
    let waiting: Vec<_> = (0..5)
        .map(|at| found["windows"][at]["configuration"].is_null())
        .collect();
    assert_eq!(waiting, [true; 5]);
    let shape = found.as_object().unwrap().len();
    assert_eq!(shape, 8);
}

#[test]
fn every_policy_keeps_the_deadline_and_none_is_below_the_bound() {
    let folder = folder();
    let job = [
        "--tokens",
        "1.08e6",
        "--deadline-hours",
        "7",
        "--switch-seconds",
        "600",
    ];
    let optimum = plan(folder.path(), "shift", &job)["carbon_g"]
        .as_f64()
        .unwrap();
    for policy in ["static", "greedy", "fixed", "shift", "shift-static", "mpc"] {
        for more in [
            &[][..],
            &["--factor", "lifecycle"],
            &["--window-hours", "0.5"],
        ] {
            let found = plan(folder.path(), policy, &[&job, more].concat());
            let number = |name: &str| found[name].as_f64().unwrap();
            assert!(number("completion_hours") <= 7.0, "{policy}: {found}");
            assert!(number("bound_g") <= number("carbon_g"), "{policy}: {found}");
            if more.is_empty() {
                assert!(number("carbon_g") >= optimum - 1e-9, "{policy}: {found}");
            }
        }
    }
}

#[test]
fn what_has_no_plan_is_refused_with_a_reason() {
    let folder = folder();
    let refused = |policy: &str, more: &[&str]| {
        let output = schedule(folder.path(), policy, more);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    for policy in ["static", "greedy", "fixed", "shift", "shift-static", "mpc"] {
        let said = refused(policy, &["--tokens", "1.08e6", "--deadline-hours", "2.9"]);
        assert!(
            said.contains("infeasible") && said.contains("TP=1 PP=1 DP=2, needs 3.00 h"),
            "{said}"
        );
    }
    // Nothing beyond the trace is made up.
    let said = refused("shift", &["--tokens", "1.08e6", "--deadline-hours", "9"]);
    assert!(
        said.contains("no carbon intensity for 2030-01-01T08:00:00Z"),
        "{said}"
    );
    let said = refused("fixed", &["--tokens", "1", "--factor", "marginal"]);
    assert!(
        said.contains("trace.csv: there is no column \"ci_marginal_g_per_kwh\""),
        "{said}"
    );
    fs::write(
        folder.path().join("profile.csv"),
        format!("{PROFILE}1,1,4,5,5\n"),
    )
    .unwrap();
    let said = refused("fixed", &["--tokens", "1"]);
    assert!(
        said.contains("profile.csv: line 5: TP=1 PP=1 DP=4 needs 4 GPUs"),
        "{said}"
    );
}

/// Answers each request of a provider with these bytes, and hangs up.
fn provider(answers: Vec<Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(&answer);
        }
    });
    url
}

fn answer(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// What is advised with what a provider answers.
fn advice(folder: &Path, answers: Vec<Vec<u8>>) -> Value {
    fs::write(folder.join("token"), "secret\n").unwrap();
    let url = provider(answers);
    let deadline = (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(6)).to_string();
    let args = [
        "advise",
        "--profile",
        "profile.csv",
        "--tokens",
        "1.08e6",
        "--deadline",
        &deadline,
        "--provider",
        "electricity-maps-v3",
        "--zone",
        "DE",
        "--url",
        &url,
        "--token-file",
        "token",
        "--json",
    ];
    let output = litctl(folder, &args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(10), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_provider_in_trouble_gives_no_value_and_never_a_zero() {
    let folder = folder();
    let now = jiff::Timestamp::now().to_string();
    let latest = json!({"zone": "DE", "carbonIntensity": 250, "datetime": now, "updatedAt": now,
        "emissionFactorType": "lifecycle", "isEstimated": true})
    .to_string();
    let good = advice(
        folder.path(),
        vec![
            answer("200 OK", &latest),
            answer("403 Forbidden", "no forecast"),
        ],
    );
    assert_eq!(
        (
            good["intensity_g_per_kwh"].as_f64(),
            good["stale"].as_bool()
        ),
        (Some(250.0), Some(false))
    );
    let old = latest.replace(&now, "2020-01-01T00:00:00Z");
    let stale = advice(
        folder.path(),
        vec![answer("200 OK", &old), answer("404 Not Found", "")],
    );
    assert_eq!(
        (
            stale["intensity_g_per_kwh"].as_f64(),
            stale["stale"].as_bool()
        ),
        (Some(250.0), Some(true))
    );
    let mut cut = answer("200 OK", &latest);
    cut.truncate(cut.len() - 20);
    let bad = [
        (answer("429 Too Many Requests", "slow down"), "429"),
        (answer("403 Forbidden", "Access denied"), "Access denied"),
        (answer("500 Internal Server Error", ""), "500"),
        (cut, "http://127.0.0.1"),
        (Vec::new(), "http://127.0.0.1"),
        (answer("200 OK", ""), "not as documented"),
        (
            answer("200 OK", &latest.replace("DE", "FR")),
            "of zone \"FR\"",
        ),
        (answer("200 OK", &latest.replace("250", "null")), "no value"),
        (
            answer("200 OK", &latest.replace(&now, "2999-01-01T00:00:00Z")),
            "which is to come",
        ),
    ];
    for (bad, why) in bad {
        let said = advice(folder.path(), vec![bad]);
        assert!(said["intensity_g_per_kwh"].is_null(), "{said}");
        assert_eq!(said["stale"].as_bool(), Some(true));
        let reason = said["reason"].as_str().unwrap();
        assert!(
            reason.contains("no signal") && reason.contains(why),
            "{reason}"
        );
    }
}

/// A provider that takes the request and says nothing is waited for ten seconds.
#[test]
fn a_silent_provider_is_given_up() {
    let folder = folder();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let deadline = (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(6)).to_string();
    let args = [
        "advise",
        "--profile",
        "profile.csv",
        "--tokens",
        "1.08e6",
        "--deadline",
        &deadline,
        "--provider",
        "uk",
        "--url",
        &url,
        "--json",
    ];
    let output = litctl(folder.path(), &args);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let reason = said["reason"].as_str().unwrap();
    assert!(
        said["intensity_g_per_kwh"].is_null() && said["stale"] == true,
        "{said}"
    );
    assert!(reason.contains("no answer within 10 s"), "{reason}");
}

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

fn start(folder: &Path) -> Child {
    let mut command = Command::new(LITCTL);
    command
        .current_dir(folder)
        .args([
            "carbon",
            "run",
            "--profile",
            "profile.csv",
            "--tokens",
            "60000",
            "--deadline-hours",
            "7",
        ])
        .args([
            "--progress",
            "tokens",
            "--state",
            "state",
            "--trace",
            "trace.csv",
            "--forecast",
            "forecast.csv",
        ])
        .args([
            "--from",
            "2030-01-01T00:00:00Z",
            "--speed",
            "7200",
            "--failures",
            "100",
            "--",
            "sh",
            "job.sh",
        ]);
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
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

/// The budgets that were leased, without repeats.
fn budgets(daemon: &Daemon) -> Vec<f64> {
    let asked = daemon.asked();
    let leases = asked
        .iter()
        .filter_map(|it| serde_json::from_str::<Value>(&it.body).ok());
    let mut budgets: Vec<f64> = leases.filter_map(|it| it["budget"].as_f64()).collect();
    budgets.dedup();
    budgets
}

/// The signal rises and the budget falls; the signal ends and the fallback rules.
#[test]
fn a_budget_follows_the_signal_within_bounds() {
    let folder = folder();
    let done = Done {
        message: "the lease has a budget".to_owned(),
    };
    let daemon = Daemon::new(move |_| ok(&done));
    let mut command = Command::new(LITCTL);
    command
        .current_dir(folder.path())
        .env("LITD_CONTROL", daemon.socket())
        .args([
            "carbon",
            "follow",
            "--lowest",
            "4000",
            "--highest",
            "6000",
            "--clean",
            "100",
            "--dirty",
            "400",
        ])
        .args([
            "--fallback",
            "4500",
            "--every",
            "0.1",
            "--trace",
            "trace.csv",
            "--metrics",
            "carbon.prom",
        ])
        .args([
            "--from",
            "2030-01-01T01:00:00Z",
            "--speed",
            "10800",
            "--set-policy",
        ])
        .stderr(Stdio::null());
    let _following = Following(command.spawn().unwrap());
    let until = Instant::now() + Duration::from_secs(60);
    while !budgets(&daemon).contains(&4500.0) {
        assert!(Instant::now() < until, "{:?}", budgets(&daemon));
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(budgets(&daemon), [6000.0, 4000.0, 6000.0, 4500.0]);
    let policies: Vec<String> = daemon
        .asked()
        .iter()
        .filter_map(|it| {
            Some(
                serde_json::from_str::<Value>(&it.body).ok()?["policy"]
                    .as_str()?
                    .to_owned(),
            )
        })
        .collect();
    assert_eq!(policies, ["gpu-realloc", "gpu-red", "gpu-realloc"]);
    let metrics = || fs::read_to_string(folder.path().join("carbon.prom")).unwrap();
    while !metrics().contains("litd_carbon_signal_lost 1") {
        assert!(Instant::now() < until, "{}", metrics());
        thread::sleep(Duration::from_millis(20));
    }
    assert!(metrics().contains("litd_carbon_budget_watts 4500"));
}

/// The whole chain: the signal rises, litd's budget falls, caps follow within a second and no rule is broken; the
/// signal is lost, and the fallback rules.
#[test]
fn caps_follow_the_signal() {
    let mut node = Node::new();
    let folder = tempfile::tempdir().unwrap();
    let signal = folder.path().join("signal.csv");
    let says = |value: u32| {
        let mut text = "datetime_utc,ci_direct_g_per_kwh\n".to_owned();
        for hour in 0..240 {
            let (day, hour) = (1 + hour / 24, hour % 24);
            text += &format!("2030-01-{day:02}T{hour:02}:00:00Z,{value}\n");
        }
        let beside = folder.path().join("new");
        fs::write(&beside, text).unwrap();
        fs::rename(&beside, &signal).unwrap();
    };
    says(50);
    let metrics = folder.path().join("carbon.prom");
    let mut litctl = node.litctl();
    litctl
        .args([
            "carbon",
            "follow",
            "--lowest",
            "5000",
            "--highest",
            "5600",
            "--clean",
            "100",
            "--dirty",
            "400",
        ])
        .args([
            "--fallback",
            "4900",
            "--every",
            "0.2",
            "--from",
            "2030-01-01T00:00:00Z",
            "--speed",
            "1000",
        ])
        .args(["--stale-hours", "1.1", "--trace"])
        .arg(&signal)
        .arg("--metrics")
        .arg(&metrics)
        .stderr(Stdio::null());
    let following = Following(litctl.spawn().unwrap());
    for (value, budget) in [(50, 5600.0), (250, 5300.0), (900, 5000.0), (100, 5600.0)] {
        says(value);
        node.wait_for("the budget of the signal", |it| it["budget"] == budget);
        node.pass(1);
        assert!(node.sum() <= budget, "{} of {budget}", node.sum());
    }
    fs::remove_file(&signal).unwrap();
    node.wait_for("the fallback", |it| it["budget"] == 4900.0);
    node.pass(1);
    assert!(node.sum() <= 4900.0, "{}", node.sum());
    // The file is written once the lease has been answered.
    node.wait_for("the metrics to say so", |_| {
        let text = fs::read_to_string(&metrics).unwrap();
        text.contains("litd_carbon_signal_lost 1")
    });
    drop(following);
    node.stop();
}

/// A CPU job that logs as Megatron-LM does: 2 ms an iteration with TP=1, 4 ms with TP=2.
const LOGGING: &str = r#"
time=$((LITD_TP * 20))
sleep 0.2
while [ ! -e "$LITD_CARBON_CHECKPOINT" ]; do
  echo " iteration 1/ 10 | elapsed time per iteration (ms): $time.0 | learning rate: 0.1 |"
  sleep 0.05
done
"#;

#[test]
fn a_profile_is_measured_from_the_logs_of_a_job() {
    let folder = folder();
    fs::write(folder.path().join("job.sh"), LOGGING).unwrap();
    let args = [
        "profile",
        "--gpus",
        "2",
        "--only",
        "1,2,1",
        "--only",
        "2,1,1",
        "--tokens-per-iteration",
        "1000",
        "--seconds",
        "0.5",
        "--warm-up",
        "0.3",
        "--power",
        "300",
        "--out",
        "measured.csv",
        "--",
        "sh",
        "job.sh",
    ];
    let output = litctl(folder.path(), &args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("a switch takes 0."), "{text}");
    let csv = fs::read_to_string(folder.path().join("measured.csv")).unwrap();
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows[0], "tp,pp,dp,power_w,tokens_per_s,switch_s");
    assert!(rows[1].starts_with("1,2,1,300,50000,0."), "{csv}");
    assert!(rows[2].starts_with("2,1,1,300,25000,0."), "{csv}");
}
