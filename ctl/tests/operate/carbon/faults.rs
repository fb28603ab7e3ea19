//! `litctl carbon run` where jobs, disks and people do what they should not: the job is neither lost nor run twice.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::folder;
use super::run::{JOB, run};

/// What a run says that must succeed.
fn said(done: Output) -> String {
    let stderr = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success(), "{stderr}");
    stderr
}

fn wait_for(path: &Path) {
    let until = Instant::now() + Duration::from_secs(30);
    while !path.exists() {
        assert!(Instant::now() < until, "{} does not appear", path.display());
        thread::sleep(Duration::from_millis(5));
    }
}

fn starts(place: &Path) -> Vec<String> {
    let log = fs::read_to_string(place.join("log")).unwrap();
    log.lines().map(str::to_owned).collect()
}

/// A runner that can't read the progress leaves the job alone and looks again.
#[test]
fn a_progress_file_that_is_written_in_two_steps_does_not_end_the_runner() {
    let folder = folder();
    let place = folder.path();
    let torn = "echo $tokens > tokens.new && mv tokens.new tokens";
    assert!(JOB.contains(torn));
    let job = JOB.replace(torn, ": > tokens; sleep 0.15; echo $tokens > tokens");
    let job = job.replace("$((tokens + 1000))", "$((tokens + 20000))");
    fs::write(place.join("job.sh"), job).unwrap();
    said(
        run(place, &[], &["sh", "job.sh"])
            .wait_with_output()
            .unwrap(),
    );
    assert_eq!(starts(place).len(), 1, "it was never restarted");
}

/// What a crash leaves of the progress is no reason not to go on; before the first start it is.
#[test]
fn a_progress_file_that_was_left_empty_is_believed_less_than_the_last_one() {
    let folder = folder();
    let place = folder.path();
    // The job's checkpoint is another file.
    let job = JOB.replace("cat tokens ", "cat checkpoint ");
    let job = job.replace(
        "echo $tokens > tokens.new",
        "echo $tokens > checkpoint && cp checkpoint tokens.new",
    );
    fs::write(place.join("job.sh"), job).unwrap();
    fs::write(place.join("tokens"), "").unwrap();
    let refused = run(place, &[], &["sh", "job.sh"])
        .wait_with_output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(stderr.contains("must be a number of tokens"), "{stderr}");
    assert!(!place.join("log").exists());
    fs::remove_file(place.join("tokens")).unwrap();
    let mut runner = run(place, &[], &["sh", "job.sh"]);
    wait_for(&place.join("tokens"));
    runner.kill().unwrap();
    runner.wait().unwrap();
    let pid = fs::read_to_string(place.join("pid")).unwrap();
    Command::new("kill")
        .args(["-9", pid.trim()])
        .status()
        .unwrap();
    fs::write(place.join("tokens"), "").unwrap();
    let stderr = said(
        run(place, &[], &["sh", "job.sh"])
            .wait_with_output()
            .unwrap(),
    );
    assert!(stderr.contains("must be a number of tokens"), "{stderr}");
}

/// A full disk stops neither job nor runner, and what could not be written is written once there is room.
#[test]
fn a_full_disk_ends_nothing() {
    let folder = folder();
    let place = folder.path();
    fs::write(
        place.join("job.sh"),
        JOB.replace("sleep 0.02", "sleep 0.06"),
    )
    .unwrap();
    fs::create_dir(place.join("state")).unwrap();
    // Whatever is written there finds no room.
    let full = place.join("state/carbon-run.new");
    symlink("/dev/full", &full).unwrap();
    let runner = run(place, &[], &["sh", "job.sh"]);
    wait_for(&place.join("tokens"));
    thread::sleep(Duration::from_millis(1500));
    assert!(!place.join("state/carbon-run.json").exists());
    fs::remove_file(&full).unwrap();
    let stderr = said(runner.wait_with_output().unwrap());
    assert_eq!(stderr.matches("No space left").count(), 1, "{stderr}");
    let state = fs::read_to_string(place.join("state/carbon-run.json")).unwrap();
    assert!(state.contains("\"is_finished\": true"), "{state}");
    assert_eq!(starts(place).len(), 1);
}

/// The state names a process of before a reboot: whoever has its number now is none of ours.
#[test]
fn a_process_that_got_the_number_of_an_earlier_job_lives_on() {
    let folder = folder();
    let place = folder.path();
    fs::write(place.join("job.sh"), JOB).unwrap();
    let mut innocent = Command::new("sleep");
    let mut innocent = innocent.arg("100").process_group(0).spawn().unwrap();
    let state = json!({
        "version": 1, "begun": "2030-01-01T00:00:00Z", "deadline": "2030-01-01T07:00:00Z", "tokens": 60000.0,
        "now": "2030-01-01T00:10:00Z", "switches": 0, "running": null,
        "process": {"pid": innocent.id(), "ticks": 1}, "is_finished": false
    });
    fs::create_dir(place.join("state")).unwrap();
    fs::write(place.join("state/carbon-run.json"), state.to_string()).unwrap();
    said(
        run(place, &[], &["sh", "job.sh"])
            .wait_with_output()
            .unwrap(),
    );
    let lives = innocent.try_wait().unwrap().is_none();
    innocent.kill().unwrap();
    innocent.wait().unwrap();
    assert!(lives, "another's process was killed");
}

/// (Numbers of processes that can't be a job's are refused as well. That is tried without a process, in the unit
/// tests of the state: whoever signals them signals everybody.)
#[test]
fn a_state_that_can_not_be_is_refused_with_what_to_do() {
    let folder = folder();
    let place = folder.path();
    fs::write(place.join("job.sh"), JOB).unwrap();
    fs::create_dir(place.join("state")).unwrap();
    let good = r#"{"version": 1, "begun": "2030-01-01T00:00:00Z", "deadline": "2030-01-01T07:00:00Z", "tokens": 60000,
        "now": "2030-01-01T00:10:00Z", "switches": 0, "running": null, "process": null,
        "is_finished": false}"#;
    let bad = [
        good.replace("07:00", "00:00"),
        good.replace("\"version\": 1", "\"version\": 9"),
        good[..good.len() / 2].to_owned(),
        "\0\0\0\0".to_owned(),
        String::new(),
    ];
    for text in bad {
        fs::write(place.join("state/carbon-run.json"), &text).unwrap();
        let refused = run(place, &[], &["sh", "job.sh"])
            .wait_with_output()
            .unwrap();
        let stderr = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{text}: {stderr}");
        assert!(stderr.contains("carbon-run.json"), "{text}: {stderr}");
        assert!(!place.join("log").exists(), "{text}");
    }
}

/// litctl that was started from within a job, or with its environment, does not take itself for what is left of it.
#[test]
fn a_runner_does_not_end_itself() {
    let folder = folder();
    let place = folder.path();
    fs::write(place.join("job.sh"), JOB).unwrap();
    let request = place.canonicalize().unwrap().join("state/checkpoint-due");
    let mut command = super::run::command(place, &[], &["sh", "job.sh"]);
    command.env("LITD_CARBON_CHECKPOINT", request);
    said(command.output().unwrap());
}

/// Two runners of one job: the second one says so, and starts nothing.
#[test]
fn the_second_runner_of_a_job_is_refused() {
    let folder = folder();
    let place = folder.path();
    fs::write(place.join("job.sh"), JOB).unwrap();
    let first = run(place, &[], &["sh", "job.sh"]);
    wait_for(&place.join("tokens"));
    let second = run(place, &[], &["sh", "job.sh"])
        .wait_with_output()
        .unwrap();
    assert_eq!(second.status.code(), Some(2));
    let stderr = String::from_utf8(second.stderr).unwrap();
    assert!(stderr.contains("another litctl runs this job"), "{stderr}");
    said(first.wait_with_output().unwrap());
    let log = starts(place);
    assert!(!log.contains(&"not alone".to_owned()), "{log:?}");
}

/// Ranks that don't hear SIGTERM outlive a launcher that ends at once: they are gone before the next start.
#[test]
fn ranks_that_outlive_their_launcher_are_gone_before_the_next_start() {
    let folder = folder();
    let place = folder.path();
    // Each launcher leaves a rank in a session of its own, and fails.
    let job = "if grep -q '^State:.[RSD]' \"/proc/$(cat rank 2>/dev/null)/status\" 2>/dev/null; then\n\
          echo 'not alone' >> log\n\
        fi\n\
        echo start >> log\n\
        setsid sh -c 'echo $$ > rank; trap \"\" TERM HUP; while :; do sleep 0.01; done' > /dev/null 2>&1 &\n\
        while ! [ -s rank ]; do sleep 0.01; done\n\
        n=$(cat tokens 2>/dev/null || echo 0)\n\
        echo $((n + 20000)) > tokens.new && mv tokens.new tokens\n\
        if [ $n -ge 40000 ]; then exit 0; fi\n\
        exit 1\n";
    fs::write(place.join("job.sh"), job).unwrap();
    said(
        run(place, &[], &["sh", "job.sh"])
            .wait_with_output()
            .unwrap(),
    );
    assert_eq!(starts(place), ["start", "start", "start"]);
    let rank = fs::read_to_string(place.join("rank")).unwrap();
    let is_there = Path::new("/proc").join(rank.trim()).join("cwd").exists();
    assert!(!is_there, "a rank outlived the run");
}

/// Whoever stops litctl stops ranks, too, that hear neither SIGTERM nor their launcher.
#[test]
fn ranks_are_gone_when_the_runner_was_told_to_stop() {
    let folder = folder();
    let place = folder.path();
    let job = "setsid sh -c 'echo $$ > rank; trap \"\" TERM HUP; while :; do sleep 0.01; done' > /dev/null 2>&1 &\n\
        while ! [ -s rank ]; do sleep 0.01; done\n\
        echo 1000 > tokens\n\
        while ! [ -e \"$LITD_CARBON_CHECKPOINT\" ]; do sleep 0.01; done\n";
    fs::write(place.join("job.sh"), job).unwrap();
    let runner = run(place, &[], &["sh", "job.sh"]);
    wait_for(&place.join("tokens"));
    let pid = runner.id().to_string();
    Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    let stopped = runner.wait_with_output().unwrap();
    assert_eq!(stopped.status.code(), Some(2));
    let rank = fs::read_to_string(place.join("rank")).unwrap();
    let is_there = Path::new("/proc").join(rank.trim()).join("cwd").exists();
    // It must not outlive the test either.
    Command::new("kill")
        .args(["-9", rank.trim()])
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(!is_there, "a rank outlived the run");
}

/// A job that ends well before it has its tokens, again and again: litctl says so and gives up.
#[test]
fn a_job_that_ends_early_without_a_checkpoint_is_given_up() {
    let folder = folder();
    let place = folder.path();
    let more = ["--failures", "2"];
    let done = run(place, &more, &["sh", "-c", "echo start >> log"]);
    let done = done.wait_with_output().unwrap();
    let stderr = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("failed 2 times without a new checkpoint"),
        "{stderr}"
    );
    assert_eq!(starts(place), ["start", "start"]);
}

/// A deadline that is given anew is taken, and said.
#[test]
fn another_deadline_is_taken_at_a_restart() {
    let folder = folder();
    let place = folder.path();
    fs::write(place.join("job.sh"), JOB).unwrap();
    let mut runner = run(place, &[], &["sh", "job.sh"]);
    wait_for(&place.join("tokens"));
    runner.kill().unwrap();
    runner.wait().unwrap();
    let more = ["--deadline-hours", "7.5"];
    let stderr = said(
        run(place, &more, &["sh", "job.sh"])
            .wait_with_output()
            .unwrap(),
    );
    assert!(
        stderr.contains("the deadline was 2030-01-01T07:0"),
        "{stderr}"
    );
    let state = fs::read_to_string(place.join("state/carbon-run.json")).unwrap();
    assert!(
        state.contains("\"deadline\": \"2030-01-01T07:30:"),
        "{state}"
    );
}

/// What a scheduler does that preempts: SIGTERM, and SIGKILL to all after a while, whatever they are at.
fn preempt(runner: &mut Child, place: &Path) {
    let pid = runner.id().to_string();
    Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    thread::sleep(Duration::from_millis(300));
    runner.kill().unwrap();
    runner.wait().unwrap();
    let job = fs::read_to_string(place.join("pid")).unwrap_or_default();
    let mut kill = Command::new("kill");
    kill.args(["-9", job.trim()]).stderr(Stdio::null());
    kill.status().unwrap();
}

/// A job that does not write the checkpoint in the time that a preemption leaves loses what is after the last one.
#[test]
fn a_preempted_job_goes_on_from_its_last_checkpoint() {
    let folder = folder();
    let place = folder.path();
    // Each fifth step is a checkpoint; a request is not heard.
    let job = JOB.replace(
        "echo $tokens > tokens.new && mv tokens.new tokens",
        "if [ $((tokens % 5000)) -eq 0 ]; then echo $tokens > tokens.new && mv tokens.new tokens; fi",
    );
    let job = job.replace("if [ -e \"$LITD_CARBON_CHECKPOINT\" ]; then exit 0; fi", "");
    fs::write(place.join("job.sh"), job).unwrap();
    let mut before = 0;
    for _ in 0..2 {
        let mut runner = run(place, &[], &["sh", "job.sh"]);
        wait_for(&place.join("tokens"));
        preempt(&mut runner, place);
        let tokens = fs::read_to_string(place.join("tokens")).unwrap();
        let tokens: u32 = tokens.trim().parse().unwrap();
        assert!(tokens >= before);
        before = tokens;
    }
    said(
        run(place, &[], &["sh", "job.sh"])
            .wait_with_output()
            .unwrap(),
    );
    let log = starts(place);
    assert!(!log.contains(&"not alone".to_owned()), "{log:?}");
}
