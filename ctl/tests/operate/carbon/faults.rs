//! `litctl carbon run` where jobs, disks and people do what they should not: the job is neither lost nor run twice.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::run::{JOB, Stand};
use super::{carbon, is_there, printed, refused, said, signal, terminate, wait_for};

/// How the job of these tests writes a checkpoint.
const WRITES: &str = "echo $tokens > tokens.new && mv tokens.new tokens";

/// The job, with something else in it.
fn job_that(what: &str, instead: &str) -> String {
    assert!(JOB.contains(what), "{what}");
    JOB.replace(what, instead)
}

/// A runner that can't read the progress leaves the job alone and looks again.
#[test]
fn a_progress_file_that_is_written_in_two_steps_does_not_end_the_runner() {
    let job = job_that(WRITES, ": > tokens; sleep 0.15; echo $tokens > tokens");
    let job = job.replace("$((tokens + 1000))", "$((tokens + 20000))");
    let stand = Stand::new(&job);
    said(&stand.run(""));
    assert_eq!(stand.starts().len(), 1, "it was never restarted");
}

/// An empty progress file, as a crash leaves it, does not stop the job; before the first start it does.
#[test]
fn a_progress_file_that_was_left_empty_is_believed_less_than_the_last_one() {
    // The job's checkpoint is another file.
    let job = job_that("cat tokens ", "cat checkpoint ");
    let job = job.replace(
        "echo $tokens > tokens.new",
        "echo $tokens > checkpoint && cp checkpoint tokens.new",
    );
    let stand = Stand::new(&job);
    fs::write(stand.path("tokens"), "").unwrap();
    let stderr = refused(&stand.run(""));
    assert!(stderr.contains("must be a number of tokens"), "{stderr}");
    assert!(!stand.path("log").exists());
    fs::remove_file(stand.path("tokens")).unwrap();
    let mut runner = stand.trains();
    runner.kill().unwrap();
    runner.wait().unwrap();
    signal("KILL", &stand.read("pid"));
    fs::write(stand.path("tokens"), "").unwrap();
    let stderr = said(&stand.run(""));
    assert!(stderr.contains("must be a number of tokens"), "{stderr}");
}

/// A progress file that can't be read, or that is gone, is no job without tokens: that would train everything anew.
#[test]
fn a_progress_file_that_can_not_be_read_is_refused_with_what_to_do() {
    let stand = Stand::new(JOB);
    // A link to itself.
    let path = stand.path("tokens");
    symlink(&path, &path).unwrap();
    let stderr = refused(&stand.run(""));
    assert!(
        stderr.contains("tokens: ") && stderr.contains("--progress must be"),
        "{stderr}"
    );
    assert!(!stand.path("log").exists(), "nothing was started");
    fs::remove_file(&path).unwrap();
    let runner = stand.trains();
    terminate(&runner);
    runner.wait_with_output().unwrap();
    let starts = stand.starts();
    fs::remove_file(&path).unwrap();
    let stderr = refused(&stand.run(""));
    assert!(stderr.contains("tokens: it is gone"), "{stderr}");
    assert_eq!(stand.starts(), starts, "nothing was started");
}

/// Two numbers in a row are none: a job that has failed is not done for that.
#[test]
fn more_than_twice_the_tokens_is_no_progress() {
    let stand = Stand::new(
        "echo -n 30000 >> tokens\nsleep 0.3\necho -n 40000 >> tokens\nsleep 3\nexit 1\n",
    );
    let stderr = refused(&stand.run("--failures 1"));
    assert!(stderr.contains("are more than twice the"), "{stderr}");
    assert!(stderr.contains("with each checkpoint"), "{stderr}");
    let state = stand.read("state/carbon-run.json");
    assert!(!state.contains("\"is_finished\": true"), "{state}");
}

/// One wrong number that is put right soon neither ends a job that trains nor makes a late one be in time.
#[test]
fn a_number_of_all_tokens_for_a_moment_ends_nothing() {
    let blip = "[ $tokens -eq 20000 ] && echo 60000 > tokens && sleep 0.4; ";
    let job = job_that(WRITES, &format!("{blip}{WRITES}"));
    let stand = Stand::new(&job);
    said(&stand.run("--grace 0.1"));
    assert_eq!(stand.starts().len(), 1, "it was never restarted");
    // The job takes 1.6 s at least. The deadline is after 1.5 s, and the wrong number before.
    let late = Stand::new(&job).run("--grace 0.1 --deadline-hours 3");
    assert_eq!(late.status.code(), Some(11), "{late:?}");
}

/// The moments of a trace are none of the wall clock's: a state of one would put a job of the other decades ahead.
#[test]
fn a_run_over_a_trace_does_not_go_on_by_the_wall_clock() {
    let stand = Stand::new("exit 1\n");
    refused(&stand.run("--failures 1"));
    let options = "run --profile profile.csv --tokens 60000 --progress tokens --state state --trace trace.csv";
    let mut by_the_wall = carbon(&stand.path(""), options);
    by_the_wall.args(["--deadline-hours", "20", "--", "sh", "job.sh"]);
    let stderr = refused(&by_the_wall.output().unwrap());
    assert!(stderr.contains("start it with --from again"), "{stderr}");
}

/// A job that is not told of a wrong --progress would train the same tokens again and again.
#[test]
fn a_progress_file_that_is_not_there_is_named_as_soon_as_a_job_has_ended() {
    let starts =
        "echo start >> starts; if [ $(wc -l < starts) -gt 2 ]; then echo 60000 > tokens; fi\n";
    let stderr = said(&Stand::new(starts).run(""));
    assert_eq!(stderr.matches("tokens is not there").count(), 1, "{stderr}");
    let stderr = said(&Stand::new(JOB).run(""));
    assert!(!stderr.contains("is not there"), "{stderr}");
}

/// A job that tells of no checkpoint at all may write them elsewhere.
#[test]
fn a_progress_file_that_is_never_there_is_named_when_the_job_is_given_up() {
    let stand = Stand::new("exit 1\n");
    let stderr = refused(&stand.run("--failures 1"));
    assert!(stderr.contains("tokens is not there"), "{stderr}");
    let stand = Stand::new("echo 1,000 > tokens\n");
    let stderr = refused(&stand.run("--failures 1"));
    let told = "\"1,000\" must be a number of tokens";
    assert!(stderr.contains(told), "{stderr}");
}

/// A state that can't be written stops neither job nor runner, and is written once it can be.
#[test]
fn a_state_that_can_not_be_written_ends_nothing() {
    let stand = Stand::new(&job_that("sleep 0.02", "sleep 0.06"));
    fs::create_dir(stand.path("state")).unwrap();
    // No file can be written there: what is in its place can't be taken away.
    let full = stand.path("state/carbon-run.new");
    fs::create_dir(&full).unwrap();
    let runner = stand.trains();
    thread::sleep(Duration::from_millis(1500));
    assert!(!stand.path("state/carbon-run.json").exists());
    fs::remove_dir(&full).unwrap();
    let stderr = said(&runner.wait_with_output().unwrap());
    assert_eq!(stderr.matches("Is a directory").count(), 1, "{stderr}");
    let state = stand.read("state/carbon-run.json");
    assert!(state.contains("\"is_finished\": true"), "{state}");
    assert_eq!(stand.starts().len(), 1);
}

/// A process that has the number which the state of before a reboot names, and is none of ours.
fn innocent(stand: &Stand) -> Child {
    let mut innocent = Command::new("sleep");
    let innocent = innocent.arg("100").process_group(0).spawn().unwrap();
    let state = json!({
        "version": 1, "begun": "2030-01-01T00:00:00Z", "deadline": "2030-01-01T07:00:00Z", "tokens": 60000.0,
        "now": "2030-01-01T00:10:00Z", "switches": 0, "running": null,
        "process": {"pid": innocent.id(), "ticks": 1}, "is_finished": false
    });
    fs::create_dir(stand.path("state")).unwrap();
    fs::write(stand.path("state/carbon-run.json"), state.to_string()).unwrap();
    innocent
}

fn ends(mut innocent: Child) {
    let lives = innocent.try_wait().unwrap().is_none();
    innocent.kill().unwrap();
    innocent.wait().unwrap();
    assert!(lives, "another's process was killed");
}

#[test]
fn a_process_that_got_the_number_of_an_earlier_job_lives_on() {
    let stand = Stand::new(JOB);
    let innocent = innocent(&stand);
    said(&stand.run(""));
    ends(innocent);
}

/// The launcher is gone and its number is another's, but one of its ranks is left: that one is asked, nobody else.
#[test]
fn a_request_by_signal_reaches_the_job_alone() {
    let stand = Stand::new(JOB);
    let innocent = innocent(&stand);
    let place = stand.path("").canonicalize().unwrap();
    let mut rank = Command::new("sleep");
    rank.env("LITD_CARBON_CHECKPOINT", place.join("state/checkpoint-due"));
    let mut rank = rank.arg("100").spawn().unwrap();
    let stderr = said(&stand.run("--checkpoint signal:USR1 --grace 5"));
    let asked = rank.wait().unwrap().signal();
    assert_eq!(asked, Some(10), "SIGUSR1: {stderr}");
    ends(innocent);
}

/// Removing the folder does not remove the lock: a second litctl does not end the job of the first, which
/// goes on.
#[test]
fn a_state_folder_that_was_removed_lets_no_second_runner_in() {
    let stand = Stand::new(&job_that("sleep 0.02", "sleep 0.06"));
    let runner = stand.trains();
    fs::remove_dir_all(stand.path("state")).unwrap();
    let stderr = refused(&stand.run(""));
    assert!(stderr.contains("another litctl runs this job"), "{stderr}");
    said(&runner.wait_with_output().unwrap());
    assert_eq!(stand.starts().len(), 1, "{:?}", stand.starts());
}

/// A job that hangs at its first start is named, ended and started again.
#[test]
fn a_job_that_hangs_is_named_and_started_again() {
    let hangs = "[ -e hung ] || { touch hung; sleep 1000; }";
    let stand = Stand::new(&job_that("while [", &format!("{hangs}\nwhile [")));
    // Two seconds, which are four hours of the trace.
    let stderr = said(&stand.run("--hang-hours 0.00056 --deadline-hours 9000 --switch-seconds 0"));
    assert!(
        stderr.contains("the job has written no checkpoint for"),
        "{stderr}"
    );
    assert_eq!(stand.starts().len(), 2, "{:?}", stand.starts());
}

/// Rates learned and deadlines promised on some GPUs do not hold for others.
#[test]
fn a_state_of_another_number_of_gpus_is_refused_with_what_to_do() {
    let stand = Stand::new(JOB);
    let runner = stand.trains();
    terminate(&runner);
    runner.wait_with_output().unwrap();
    let starts = stand.starts();
    let profile = "tp,pp,dp,power_w,tokens_per_s\n1,1,4,2000,200\n2,1,2,900,120\n";
    fs::write(stand.path("profile.csv"), profile).unwrap();
    let stderr = refused(&stand.run(""));
    assert!(
        stderr.contains("a job on 2 GPUs, and the profile is of 4")
            && stderr.contains("another --state"),
        "{stderr}"
    );
    assert_eq!(stand.starts(), starts, "nothing was started");
}

/// A trace that is played has its values; that nobody has looked for hours of its time is no loss.
#[test]
fn a_signal_that_is_played_fast_is_not_said_to_be_lost() {
    let stand = Stand::new(JOB);
    let mut trace = "datetime_utc,ci_direct_g_per_kwh\n".to_owned();
    let begin: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    for hour in 0..10_000 {
        let at = begin + SignedDuration::from_hours(hour);
        trace += &format!("{at},100\n");
    }
    fs::write(stand.path("trace.csv"), trace).unwrap();
    // The job takes more than a window's third, after which the first value is stale.
    let stderr = said(&stand.run("--window-hours 6 --deadline-hours 9000"));
    assert!(!stderr.contains("signal is lost"), "{stderr}");
}

/// (Numbers of processes that can't be a job's are refused as well. That is tried without a process, in the unit
/// tests of the state: whoever signals them signals everybody.)
#[test]
fn a_state_that_can_not_be_is_refused_with_what_to_do() {
    let stand = Stand::new(JOB);
    fs::create_dir(stand.path("state")).unwrap();
    let good = r#"{"version": 1, "begun": "2030-01-01T00:00:00Z", "deadline": "2030-01-01T07:00:00Z", "tokens": 60000,
        "now": "2030-01-01T00:10:00Z", "switches": 0, "running": null, "process": null,
        "is_finished": false}"#;
    let bad = [
        good.replace("07:00", "00:00"),
        good.replace("2030-01-01T00:10", "2029-12-31T23:10"),
        good.replace("\"switches\": 0", "\"switches\": 0, \"costs\": [1e308]"),
        good.replace("\"version\": 1", "\"version\": 9"),
        good[..good.len() / 2].to_owned(),
        "\0\0\0\0".to_owned(),
        String::new(),
    ];
    for text in bad {
        fs::write(stand.path("state/carbon-run.json"), &text).unwrap();
        let stderr = refused(&stand.run(""));
        assert!(stderr.contains("carbon-run.json"), "{text}: {stderr}");
        assert!(!stand.path("log").exists(), "{text}");
    }
}

/// litctl that was started from within a job, or with its environment, does not take itself for what is left of it.
#[test]
fn a_runner_does_not_end_itself() {
    let stand = Stand::new(JOB);
    let place = stand.path("").canonicalize().unwrap();
    let mut command = stand.command("", &["sh", "job.sh"]);
    command.env("LITD_CARBON_CHECKPOINT", place.join("state/checkpoint-due"));
    said(&command.output().unwrap());
}

/// Two runners of one job: the second one says so, and starts nothing.
#[test]
fn the_second_runner_of_a_job_is_refused() {
    let stand = Stand::new(JOB);
    let first = stand.trains();
    let stderr = refused(&stand.run(""));
    assert!(stderr.contains("another litctl runs this job"), "{stderr}");
    said(&first.wait_with_output().unwrap());
    stand.was_never_run_twice();
}

/// A rank in a session of its own that hears neither SIGTERM nor its launcher.
const RANK: &str = "setsid sh -c 'echo $$ > rank; trap \"\" TERM HUP; while :; do sleep 0.01; done' > /dev/null 2>&1 &\n\
    while ! [ -s rank ]; do sleep 0.01; done\n";

/// Whether the rank outlived the run; it must not outlive the test.
fn rank_is_left(stand: &Stand) -> bool {
    let rank = stand.read("rank");
    let is_left = is_there(&rank);
    signal("KILL", &rank);
    is_left
}

/// Ranks that don't hear SIGTERM outlive a launcher that ends at once: they are gone before the next start.
#[test]
fn ranks_that_outlive_their_launcher_are_gone_before_the_next_start() {
    // Each launcher leaves a rank, and fails.
    let job = format!(
        "if grep -q '^State:.[RSD]' \"/proc/$(cat rank 2>/dev/null)/status\" 2>/dev/null; then\n\
          echo 'not alone' >> log\n\
        fi\n\
        echo start >> log\n\
        {RANK}\
        n=$(cat tokens 2>/dev/null || echo 0)\n\
        echo $((n + 20000)) > tokens.new && mv tokens.new tokens\n\
        if [ $n -ge 40000 ]; then exit 0; fi\n\
        exit 1\n"
    );
    let stand = Stand::new(&job);
    said(&stand.run(""));
    assert_eq!(stand.starts(), ["start", "start", "start"]);
    assert!(!rank_is_left(&stand), "a rank outlived the run");
}

/// A rank in a session of its own whose environment tells nothing, as where a program writes its title over it, is known
/// by who started it.
#[test]
fn ranks_that_are_known_by_nothing_but_their_descent_are_gone_at_the_end() {
    let hidden = RANK.replace("setsid sh", "setsid env -i sh");
    assert_ne!(hidden, RANK);
    let stand = Stand::new(&format!("{hidden}\necho 60000 > tokens\n"));
    said(&stand.run(""));
    assert!(!rank_is_left(&stand), "a rank outlived the run");
}

/// Orphans that have ended keep no number from start to start.
#[test]
fn orphans_that_have_ended_are_gone_with_the_next_start() {
    let job = "echo $(grep -l '^State:.Z' $(grep -l \"^PPid:.$PPID$\" /proc/[0-9]*/status) | wc -l) >> log\n\
        (setsid sleep 0.01 &)\n\
        sleep 0.1\n\
        n=$(cat tokens 2>/dev/null || echo 0)\n\
        echo $((n + 20000)) > tokens.new && mv tokens.new tokens\n\
        exit 1\n";
    let stand = Stand::new(job);
    said(&stand.run(""));
    assert_eq!(stand.starts(), ["0", "0", "0"]);
}

/// Helpers of a job whose launcher is not known are not signalled: they would die of a request.
#[test]
fn a_request_by_signal_does_not_reach_helpers() {
    let stand = Stand::new(JOB);
    let place = stand.path("").canonicalize().unwrap();
    let mut job = Command::new("sh");
    job.current_dir(&place)
        .env("LITD_CARBON_CHECKPOINT", place.join("state/checkpoint-due"));
    // The launcher waits for its helper to have ended by itself.
    let lives = "sleep 100 & helper=$!\n\
        trap 'sleep 0.3; grep -q \"^State:.S\" /proc/$helper/status && echo lives > helper; kill $helper; exit 0' USR1\n\
        echo > there; wait";
    let mut job = job.args(["-c", lives]).spawn().unwrap();
    wait_for(&stand.path("there"));
    said(&stand.run("--checkpoint signal:USR1 --grace 5"));
    job.wait().unwrap();
    assert_eq!(stand.read("helper"), "lives\n", "the helper was signalled");
}

/// Stopping litctl stops ranks, too, that hear neither SIGTERM nor their launcher.
#[test]
fn ranks_are_gone_when_the_runner_was_told_to_stop() {
    let job = format!(
        "{RANK}\
        echo 1000 > tokens\n\
        while ! [ -e \"$LITD_CARBON_CHECKPOINT\" ]; do sleep 0.01; done\n"
    );
    let stand = Stand::new(&job);
    let runner = stand.trains();
    terminate(&runner);
    let stopped = runner.wait_with_output().unwrap();
    assert!(!rank_is_left(&stand), "a rank outlived the run");
    refused(&stopped);
}

/// A deadline that no clock reaches is refused in words.
#[test]
fn a_deadline_beyond_all_time_is_refused() {
    let stand = Stand::new(JOB);
    let stderr = refused(&stand.run("--deadline-hours 1e300"));
    assert!(stderr.contains("'--deadline-hours <D>'"), "{stderr}");
    assert!(stderr.contains("at most a century"), "{stderr}");
    assert!(!stand.path("state").exists());
}

/// A job that is late goes on to its end; that it will be is said as soon as it is known and once, and litctl's exit
/// status says that it was.
#[test]
fn a_deadline_that_is_missed_has_an_exit_status_of_its_own() {
    // At least two hours and a half, in three windows.
    let stand = Stand::new(JOB);
    let output = stand.run("--deadline-hours 1.1 --switch-seconds 0");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(11), "{stderr}");
    assert_eq!(stand.tokens(), 60_000);
    assert_eq!(stderr.matches("CAN'T BE MET").count(), 1, "{stderr}");
    assert!(
        stderr.contains("was missed: the job was done at"),
        "{stderr}"
    );
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains(", after the deadline (") && said.contains("1 switches"),
        "{said}"
    );
    // The switch to the configuration that is done first says why.
    assert!(
        stderr.contains("(the deadline can't be met any more"),
        "{stderr}"
    );
}

/// A job that has all its tokens in time is in time, also where it must be killed after the deadline: it ignores all
/// requests to end, which takes ten seconds, the deadline's nine gone.
#[test]
fn a_job_that_does_not_end_is_in_time_by_its_last_checkpoint() {
    let stand = Stand::new(&format!(
        "trap '' TERM\n{JOB}\nwhile :; do sleep 0.1; done\n"
    ));
    let output = stand.run("--grace 0.1 --deadline-hours 18 --switch-seconds 0 --slowest 1");
    let stderr = said(&output);
    assert!(stderr.contains("was killed by signal 9"), "{stderr}");
    assert!(
        !printed(&output).contains("after the deadline"),
        "{output:?}"
    );
}

/// A signal that is lost is said when it is, not with the next change of configuration.
#[test]
fn a_lost_signal_is_said() {
    let stand = Stand::new(JOB);
    let stderr = said(&stand.run("--stale-hours 0.2"));
    let lost = "the carbon signal is lost: its last value is of 2030-01-01T00:00:00Z";
    assert_eq!(stderr.matches(lost).count(), 1, "{stderr}");
    assert!(stderr.contains("the carbon signal is back"), "{stderr}");
}

/// A job that ends well before it has its tokens, again and again: litctl says so and gives up.
#[test]
fn a_job_that_ends_early_without_a_checkpoint_is_given_up() {
    let stand = Stand::new("echo start >> log");
    let stderr = refused(&stand.run("--failures 2"));
    assert!(
        stderr.contains("failed 2 times without a new checkpoint"),
        "{stderr}"
    );
    assert_eq!(stand.starts(), ["start", "start"]);
}

/// The deadline is so many hours after the first start, though somebody set the clock while litctl did not run.
#[test]
fn a_deadline_moves_with_a_clock_that_was_set_between_two_runs() {
    let stand = Stand::new(JOB);
    let run = || {
        let mut command = carbon(
            &stand.path(""),
            "run --profile profile.csv --tokens 60000 --progress tokens",
        );
        command.args("--deadline-hours 7 --state state --trace trace.csv -- sh job.sh".split(' '));
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut first = run();
    wait_for(&stand.path("tokens"));
    terminate(&first);
    first.wait().unwrap();
    // As if it had been written by a clock that has been set an hour ahead since.
    let path = stand.path("state/carbon-run.json");
    let mut state: Value = serde_json::from_str(&stand.read("state/carbon-run.json")).unwrap();
    let moved = |text: &Value| {
        let moment: Timestamp = text.as_str().unwrap().parse().unwrap();
        json!((moment - SignedDuration::from_hours(1)).to_string())
    };
    state["mark"]["wall"] = moved(&state["mark"]["wall"]);
    for name in ["now", "begun", "deadline"] {
        state[name] = moved(&state[name]);
    }
    fs::write(&path, state.to_string()).unwrap();
    let stderr = said(&run().wait_with_output().unwrap());
    assert!(stderr.contains("while litctl did not run"), "{stderr}");
    let after: Value = serde_json::from_str(&stand.read("state/carbon-run.json")).unwrap();
    let deadline = |state: &Value| state["deadline"].as_str().unwrap().parse::<Timestamp>();
    let shifted = deadline(&after)
        .unwrap()
        .duration_since(deadline(&state).unwrap());
    assert!((shifted.as_secs() - 3600).abs() < 10, "{shifted}");
}

/// A deadline that is given anew is taken, and said.
#[test]
fn another_deadline_is_taken_at_a_restart() {
    let stand = Stand::new(JOB);
    let mut runner = stand.trains();
    runner.kill().unwrap();
    runner.wait().unwrap();
    let stderr = said(&stand.run("--deadline-hours 20.5"));
    assert!(
        stderr.contains("the deadline was 2030-01-01T20:0"),
        "{stderr}"
    );
    let state = stand.read("state/carbon-run.json");
    assert!(
        state.contains("\"deadline\": \"2030-01-01T20:30:"),
        "{state}"
    );
}

/// Preempts as a scheduler does: SIGTERM, and SIGKILL to all after a while, whatever they are doing.
fn preempt(runner: &mut Child, stand: &Stand) {
    terminate(runner);
    thread::sleep(Duration::from_millis(300));
    runner.kill().unwrap();
    runner.wait().unwrap();
    signal("KILL", &stand.read("pid"));
}

/// A job that does not write the checkpoint in the time that a preemption leaves loses what is after the last one.
#[test]
fn a_preempted_job_goes_on_from_its_last_checkpoint() {
    // Each fifth step is a checkpoint; a request is not heard.
    let fifth = format!("if [ $((tokens % 5000)) -eq 0 ]; then {WRITES}; fi");
    let job = job_that(WRITES, &fifth);
    let job = job.replace("if [ -e \"$LITD_CARBON_CHECKPOINT\" ]; then exit 0; fi", "");
    let stand = Stand::new(&job);
    let mut before = 0;
    for _ in 0..2 {
        let mut runner = stand.trains();
        preempt(&mut runner, &stand);
        let tokens = stand.tokens();
        assert!(tokens >= before);
        before = tokens;
    }
    said(&stand.run(""));
    stand.was_never_run_twice();
}
