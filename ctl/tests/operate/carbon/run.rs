//! `litctl carbon run`: a job that is killed, and one that does not do what it is asked to.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::{carbon, folder, is_there, printed, read, refused, signal, terminate, wait_for};

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

/// The options of a run of 60,000 tokens, at the trace's hours of half a second each, and more.
pub fn options(more: &str) -> String {
    let default = |option: &str, value: u32| match more.contains(option) {
        true => String::new(),
        false => format!(" {option} {value}"),
    };
    format!(
        "--profile profile.csv --tokens 60000 --progress tokens --state state --trace trace.csv \
         --forecast forecast.csv --from 2030-01-01T00:00:00Z --speed 7200{}{} {more}",
        // Ten seconds: jobs of these tests need one or two, and machines that are busy some more.
        default("--deadline-hours", 20),
        default("--failures", 100)
    )
}

/// A folder with a profile, a signal and a job.
pub struct Stand(TempDir);

impl Stand {
    pub fn new(job: &str) -> Self {
        let stand = Self(folder());
        fs::write(stand.path("job.sh"), job).unwrap();
        stand
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn read(&self, name: &str) -> String {
        read(&self.path(name))
    }

    /// A run of a job, about to be started.
    pub fn command(&self, more: &str, job: &[&str]) -> Command {
        let mut command = carbon(self.0.path(), &format!("run {}", options(more)));
        command.arg("--").args(job);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn start(&self, more: &str) -> Child {
        self.command(more, &["sh", "job.sh"]).spawn().unwrap()
    }

    /// Runs until litctl ends.
    pub fn run(&self, more: &str) -> Output {
        self.start(more).wait_with_output().unwrap()
    }

    /// A run whose job has written a checkpoint.
    pub fn trains(&self) -> Child {
        let runner = self.start("");
        wait_for(&self.path("tokens"));
        runner
    }

    /// Tokens of the last checkpoint.
    pub fn tokens(&self) -> u32 {
        self.read("tokens").trim().parse().unwrap()
    }

    /// The job's output at its starts.
    pub fn starts(&self) -> Vec<String> {
        self.read("log").lines().map(str::to_owned).collect()
    }

    pub fn was_never_run_twice(&self) {
        let starts = self.starts();
        assert!(!starts.contains(&"not alone".to_owned()), "{starts:?}");
    }
}

/// A job that has all its tokens needs no run, neither a dry one nor a real one.
#[test]
fn a_dry_run_of_a_job_that_is_done_says_so() {
    let stand = Stand::new(JOB);
    fs::write(stand.path("tokens"), "60000").unwrap();
    let text = printed(&stand.run("--dry-run"));
    assert!(text.contains("60000 tokens are trained already"), "{text}");
    assert!(!text.contains("command"), "{text}");
}

/// Runner and job are killed at any moment; what is started again goes on from the last checkpoint.
#[test]
fn a_job_outlives_its_runner_and_itself() {
    // Kills cost seconds, and on a busy machine more: half a minute, so that none of them makes the job late.
    let more = "--deadline-hours 60";
    // On a busy machine the job would end before the last runner comes: it holds until then.
    let holds = r#"  sleep 0.02
  if [ "$tokens" -ge 59000 ] && [ ! -e go ]; then
    if [ -e "$LITD_CARBON_CHECKPOINT" ]; then exit 0; fi
    continue
  fi
"#;
    let stand = Stand::new(&JOB.replace("  sleep 0.02\n", holds));
    for (number, milliseconds) in [300, 450, 700].into_iter().enumerate() {
        let mut runner = stand.start(more);
        thread::sleep(Duration::from_millis(milliseconds));
        if number == 1 {
            signal("KILL", &stand.read("pid"));
            thread::sleep(Duration::from_millis(1500));
        }
        runner.kill().unwrap();
        runner.wait().unwrap();
    }
    signal("KILL", &stand.read("pid"));
    fs::write(stand.path("go"), "").unwrap();
    let text = printed(&stand.run(more));
    assert!(text.starts_with("60000 tokens trained at "), "{text}");
    assert_eq!(stand.tokens(), 60_000);
    let log = stand.starts();
    let starts = log.iter();
    let starts = starts.filter_map(|line| line.rsplit_once(' ')?.1.parse().ok());
    let starts: Vec<u32> = starts.collect();
    assert!(starts.len() >= 4, "{log:?}");
    stand.was_never_run_twice();
    assert!(
        starts.is_sorted(),
        "a start went back behind a checkpoint: {log:?}"
    );
    // The job is done, and stays done.
    let text = printed(&stand.run(more));
    assert!(text.contains("60000 tokens are trained already"), "{text}");
    assert_eq!(stand.starts(), log);
}

/// Stopping litctl stops the job, which writes a checkpoint first.
#[test]
fn a_runner_that_is_told_to_stop_leaves_a_checkpoint_and_no_job() {
    let stand = Stand::new(JOB);
    let runner = stand.trains();
    terminate(&runner);
    let said = refused(&runner.wait_with_output().unwrap());
    assert!(
        said.contains("started again, litctl goes on from there"),
        "{said}"
    );
    assert!(
        !is_there(&stand.read("pid")),
        "the job outlived its runner: {said}"
    );
    printed(&stand.run(""));
    assert_eq!(stand.tokens(), 60_000);
}

#[test]
fn what_prints_text_alone_refuses_to_print_json() {
    let stand = Stand::new(JOB);
    let said = refused(&stand.run("--json"));
    assert!(said.contains("print text alone"), "{said}");
    assert!(!stand.path("log").exists());
}

#[test]
fn a_dry_run_starts_nothing() {
    let stand = Stand::new(JOB);
    let mut dry = stand.command("--dry-run", &["touch", "started-{tp}"]);
    let text = printed(&dry.output().unwrap());
    assert!(text.contains("command  touch started-"), "{text}");
    assert!(!stand.path("started-1").exists() && !stand.path("started-2").exists());
    assert!(!stand.path("state").exists());
}
