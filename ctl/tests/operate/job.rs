//! `litctl job` and the Prolog and Epilog in `fleet/slurm`, against the real daemon on a simulated
//! node, and against what is no daemon at all.
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use litd_rig::{Daemon, Fault, Job, JobSpec, Rig};
use litd_sim::Scenario;
use litd_units::{Nanos, Watts};
use serde_json::Value;
use tempfile::TempDir;

use crate::LITCTL;

/// Long enough for anything that does happen.
const SOON: Duration = Duration::from_secs(20);

/// Adjusts early and often.
const CONFIG: &str = "mode = \"on\"\npolicy = \"gpu-realloc\"\n\
    law.calibration.sampling_period = 1\nlaw.calibration.warm_up = 3\nlaw.detection.window = 1\n";

/// A daemon on a node where processes are in the control groups that a test says.
struct Node {
    daemon: Option<Daemon>,
    rig: Rig,
    folder: TempDir,
    config: String,
}

impl Node {
    fn new(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let rig = Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
        rig.hardware().settle();
        let proc = folder.path().join("proc");
        let hardware = format!(
            "[hardware]\nsimulated = \"{}\"\nproc = \"{}\"\n",
            rig.layout().hardware().display(),
            proc.display()
        );
        let config = rig.config(&format!("{CONFIG}{more}{hardware}"));
        let mut node = Self {
            daemon: None,
            rig,
            folder,
            config,
        };
        node.start();
        node
    }

    fn start(&mut self) {
        let litd = litd_rig::program("litd").unwrap();
        self.daemon = Some(self.rig.spawn_clocked(&litd, &self.config).unwrap());
    }

    /// From now on this process, which all ranks are in, is in a job of Slurm's.
    fn enter(&self, job: u32) {
        let own = self
            .folder
            .path()
            .join(format!("proc/{}", std::process::id()));
        fs::create_dir_all(&own).unwrap();
        let path = format!("0::/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0\n");
        fs::write(own.join("cgroup"), path).unwrap();
    }

    fn attach(&self, name: &str, gpus: impl IntoIterator<Item = usize>) -> Job {
        let mut job = self.rig.attach(JobSpec::new(name, gpus)).unwrap();
        job.welcome(SOON).unwrap();
        job
    }

    fn play(&mut self, job: &mut Job, iterations: usize) {
        for _ in 0..iterations {
            job.run_iteration();
            let time = self.rig.hardware().plant().last().length.to_nanos();
            self.rig.advance(time).unwrap();
        }
    }

    fn play_until_steered(&mut self, job: &mut Job) {
        for _ in 0..400 {
            self.play(job, 1);
            if !self.is_back() {
                return;
            }
        }
        panic!("nothing was steered: {}", self.status());
    }

    fn held(&self) -> Vec<Watts> {
        self.rig.ledger().held()
    }

    fn is_back(&self) -> bool {
        self.rig.ledger().restored()
    }

    fn litctl(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(LITCTL);
        command
            .args(arguments)
            .env("LITD_CONTROL", self.rig.layout().control());
        command.output().unwrap()
    }

    /// The text of a command that must succeed.
    fn text(&self, arguments: &[&str]) -> String {
        let output = self.litctl(arguments);
        assert!(output.status.success(), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn status(&self) -> Value {
        let output = self.litctl(&["--json", "status"]);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn jobs(&self) -> Vec<String> {
        let status = self.status();
        let jobs = status["jobs"].as_array().unwrap().iter();
        jobs.map(|job| job["name"].as_str().unwrap().to_owned())
            .collect()
    }

    fn opted_out(&self, gpu: usize) -> bool {
        self.status()["devices"][gpu]["opted_out"]
            .as_bool()
            .unwrap()
    }

    /// Runs one of Slurm's scripts as slurmd does.
    fn script(&self, name: &str, job: u32, gpus: &str, comment: &str) -> Output {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fleet/slurm");
        let mut command = Command::new(deploy.join(name));
        command
            .env_clear()
            .env("LITCTL", LITCTL)
            .env("LITD_CONTROL", self.rig.layout().control())
            .env("SLURM_JOB_ID", job.to_string())
            .env("SLURM_JOB_GPUS", gpus);
        if !comment.is_empty() {
            command.env("SLURM_JOB_COMMENT", comment);
        }
        command.output().unwrap()
    }
}

#[test]
fn caps_are_back_before_the_epilog_ends() {
    let mut node = Node::new("");
    node.enter(41);
    let prolog = node.script("prolog", 41, "0,1,2,3,4,5,6,7", "");
    assert!(prolog.status.success(), "{prolog:?}");
    let mut job = node.attach("train", 0..8);
    assert_eq!(node.jobs(), ["slurm-41/train"]);
    node.play_until_steered(&mut job);
    // The job's ranks are still connected, and no time passes for the daemon meanwhile.
    let epilog = node.script("epilog", 41, "0,1,2,3,4,5,6,7", "");
    assert!(epilog.status.success(), "{epilog:?}");
    assert!(node.is_back(), "{:?}", node.held());
    assert_eq!(node.jobs(), [""; 0]);
    // Nor is it let in again while it dies.
    for rank in 0..8 {
        job.connect(rank).unwrap();
    }
    node.rig.advance(Nanos(2_000_000_000)).unwrap();
    assert_eq!(node.jobs(), [""; 0]);
    // Slurm has queued it again.
    node.text(&["job", "begin", "41"]);
    let mut job = node.attach("train", 0..8);
    node.play_until_steered(&mut job);
    let said = node.text(&["job", "end", "slurm-41"]);
    assert!(said.contains("slurm-41 has ended"), "{said}");
    assert!(
        said.contains("gpu7: caps are as found, clocks are unlocked"),
        "{said}"
    );
    assert!(node.is_back());
}

#[test]
fn twice_late_or_unknown_is_all_the_same() {
    let node = Node::new("");
    let said = node.text(&["job", "end", "slurm-7"]);
    assert!(said.contains("litd knew nothing of it"), "{said}");
    for _ in 0..2 {
        assert_eq!(node.text(&["job", "begin", "7"]), "slurm-7 has begun\n");
    }
    assert_eq!(node.status()["announced"].as_array().unwrap().len(), 1);
    for _ in 0..2 {
        let said = node.text(&["job", "end", "7", "--gpu", "0,gpu1"]);
        assert!(said.contains("gpu0, gpu1: caps are as found"), "{said}");
    }
    assert_eq!(node.status()["announced"], Value::Array(Vec::new()));
    let said = node.text(&["job", "begin", "7", "--gpu", "0,77"]);
    assert!(said.contains("this node has no GPU 77"), "{said}");
}

#[test]
fn two_jobs_of_one_name_are_two() {
    let mut node = Node::new("");
    node.enter(1);
    let mut one = node.attach("train", 0..4);
    node.enter(2);
    let mut other = node.attach("train", 4..8);
    assert_eq!(node.jobs(), ["slurm-1/train", "slurm-2/train"]);
    node.play(&mut one, 5);
    node.play(&mut other, 5);
    // The end of one is not the other's, whatever GPUs its scheduler says that it had.
    let all = "0,1,2,3,4,5,6,7";
    node.text(&["job", "end", "1", "--gpu", all]);
    assert_eq!(node.jobs(), ["slurm-2/train"]);
}

#[test]
fn what_a_job_says_of_itself_is_a_label() {
    let node = Node::new("");
    // In no scheduler's job, and with the name of one.
    let _job = node.attach("slurm-5/train", 0..2);
    let uid = nix::unistd::getuid();
    assert_eq!(node.jobs(), [format!("user-{uid}/slurm-5/train")]);
    node.text(&["job", "end", "5"]);
    assert_eq!(node.jobs().len(), 1);
}

#[test]
fn a_job_that_opted_out_is_not_steered_also_after_a_crash() {
    // Without a job the budget would lower all of them.
    let mut node = Node::new("caps.budget = 5000\n");
    let found = node.rig.ledger().found();
    node.rig.advance(Nanos(3_000_000_000)).unwrap();
    assert!(node.held()[0] < found[0], "{:?}", node.held());
    node.enter(9);
    let prolog = node.script("prolog", 9, "0-1", "nightly,litd=off");
    assert!(prolog.status.success(), "{prolog:?}");
    // Under a budget a GPU that opts out has its share of it, as an idle one: the others make no room for it.
    let level = node.held()[..8].to_vec();
    let spared = |node: &Node| node.held()[..8] == level[..];
    assert!(spared(&node), "{:?}", node.held());
    let mut job = node.attach("train", 0..2);
    node.play(&mut job, 30);
    assert!(spared(&node), "{:?}", node.held());
    assert!(node.opted_out(0));
    let status = node.text(&["status"]);
    let status = status.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        status.contains("opted out: gpu0, gpu1 (of slurm-9)"),
        "{status}"
    );
    // No command of a person's takes that away, but for the job's end.
    node.text(&["resume", "gpu0"]);
    assert!(node.opted_out(0) && spared(&node), "{:?}", node.held());
    node.daemon.take().unwrap().kill();
    node.start();
    node.rig.advance(Nanos(3_000_000_000)).unwrap();
    assert!(node.opted_out(1));
    assert!(spared(&node), "{:?}", node.held());
    node.text(&["budget", "3200"]);
    node.rig.advance(Nanos(3_000_000_000)).unwrap();
    let held = node.held();
    assert!(held[..8].iter().all(|&cap| cap == held[0]), "{held:?}");
    // Without one the caps found are restored.
    node.text(&["budget", "5600"]);
    node.rig.advance(Nanos(3_000_000_000)).unwrap();
    assert_eq!(node.held()[..8], found[..8]);
    let status = node.text(&["status"]);
    assert!(status.contains("its job opted out"), "{status}");
    node.text(&["budget", "5000"]);
    node.rig.advance(Nanos(3_000_000_000)).unwrap();
    assert!(spared(&node), "{:?}", node.held());
    // From its end on litd has them again. One that is not heard of ends once its GPUs are given to another job.
    let said = node.text(&["job", "begin", "10", "--gpu", "0-1"]);
    assert_eq!(said, "slurm-10 has begun\n");
    assert!(!node.opted_out(0) && !node.opted_out(1));
    node.enter(10);
    job.end();
    let mut next = node.attach("next", 0..2);
    node.play_until_steered(&mut next);
}

#[test]
fn what_a_scheduler_says_while_litd_is_away_is_heard_once_it_is_back() {
    let mut node = Node::new("caps.budget = 5000\n");
    let notes = node.rig.layout().control().with_file_name("announced");
    assert!(
        node.script("prolog", 77, "0-1", "litd=off")
            .status
            .success()
    );
    assert!(node.opted_out(0) && node.opted_out(1));
    node.daemon.take().unwrap().kill();
    let away = node.litctl(&["job", "end", "77", "--strict"]);
    let said = String::from_utf8_lossy(&away.stderr);
    assert!(!away.status.success(), "{said}");
    assert!(said.contains("waiting for it, 5 s at most"), "{said}");
    assert!(said.contains("told once it runs again"), "{said}");
    assert!(node.script("prolog", 78, "2", "litd=off").status.success());
    assert_eq!(fs::read_dir(&notes).unwrap().count(), 2);
    node.start();
    node.rig.advance(Nanos(3_000_000_000)).unwrap();
    let out = |node: &Node| {
        (0..8)
            .filter(|&gpu| node.opted_out(gpu))
            .collect::<Vec<_>>()
    };
    assert_eq!(out(&node), [2]);
    assert_eq!(fs::read_dir(&notes).unwrap().count(), 0);
    // A note that is left just while litd starts is heard, too.
    fs::write(
        notes.join("slurm-78"),
        note(r#"{"command": "end_job", "job": "slurm-78"}"#),
    )
    .unwrap();
    let deadline = Instant::now() + SOON;
    while !out(&node).is_empty() {
        assert!(Instant::now() < deadline);
        node.rig.advance(Nanos(500_000_000)).unwrap();
    }
}

/// A note of this boot with one command.
fn note(command: &str) -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    format!(r#"{{"boot": "{}", "said": [{command}]}}"#, boot.trim())
}

#[test]
fn a_litd_that_restarts_is_waited_for() {
    let mut node = Node::new("");
    assert!(node.script("prolog", 77, "0", "litd=off").status.success());
    assert!(node.opted_out(0));
    node.daemon.take().unwrap().kill();
    let control = node.rig.layout().control();
    let asks = thread::spawn(move || {
        let mut command = Command::new(LITCTL);
        command.args(["job", "end", "77", "--strict"]);
        command.env("LITD_CONTROL", control).output().unwrap()
    });
    thread::sleep(Duration::from_millis(500));
    node.start();
    node.rig.advance(Nanos(1_000_000_000)).unwrap();
    let output = asks.join().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("slurm-77 has ended"), "{output:?}");
    assert!(!node.opted_out(0));
}

#[test]
fn jobs_for_processors_alone_keep_no_later_job_from_opting_out() {
    let node = Node::new("");
    for job in 100..164 {
        let said = node.text(&["job", "begin", &job.to_string(), "--opt-out"]);
        assert!(said.contains("it names no GPU"), "{said}");
    }
    node.text(&["job", "begin", "9", "--opt-out", "--gpu", "3"]);
    assert!(node.opted_out(3));
}

#[test]
fn a_list_without_a_gpu_is_refused() {
    let node = Node::new("");
    for gpus in ["3-1", ",", "0,3-1"] {
        let output = node.litctl(&["job", "begin", "7", "--gpu", gpus, "--strict"]);
        assert_eq!(output.status.code(), Some(1), "{gpus}: {output:?}");
        assert_eq!(node.status()["announced"], Value::Array(Vec::new()));
    }
}

#[test]
fn a_cap_that_can_not_go_back_is_said() {
    let mut node = Node::new("");
    node.enter(3);
    let mut job = node.attach("train", 0..8);
    node.play_until_steered(&mut job);
    let moved = node.held();
    let found = node.rig.ledger().found();
    let stuck = (0..8).find(|&gpu| moved[gpu] != found[gpu]).unwrap();
    node.rig.hardware().inject(stuck, Fault::Refuse);
    let output = node.litctl(&["job", "end", "3"]);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("litctl: warning: slurm-3 has ended"),
        "{said}"
    );
    assert!(said.contains(&format!("gpu{stuck}: ")), "{said}");
}

/// Runs `litctl job` against whatever is at `socket`: it never fails, says why, and takes no more
/// than its 7 s, with some for a machine that does other things, too.
fn assert_harmless(socket: &Path, why: &str) {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(LITCTL);
        command.args(arguments).env("LITD_CONTROL", socket);
        command.output().unwrap()
    };
    let is_harmless = |what: &str| {
        let begun = Instant::now();
        let output = run(&["job", what, "1"]);
        let took = begun.elapsed();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.starts_with("litctl: warning: "), "{said}");
        assert!(said.contains(why), "{said}");
        assert!(took < Duration::from_secs(15), "{took:?}");
    };
    let fails = |what: &str| {
        let strict = run(&["job", what, "1", "--strict"]);
        assert_eq!(strict.status.code(), Some(1), "{strict:?}");
    };
    // Each waits for its 7 s: all of them at the same time.
    thread::scope(|scope| {
        for what in ["begin", "end"] {
            scope.spawn(move || is_harmless(what));
            scope.spawn(move || fails(what));
        }
    });
}

fn socket(folder: &TempDir) -> PathBuf {
    folder.path().join("control.sock")
}

#[test]
fn without_a_daemon_no_job_fails() {
    let folder = tempfile::tempdir().unwrap();
    assert_harmless(&socket(&folder), "is litd running?");
    // A daemon that died has left its socket.
    drop(UnixListener::bind(socket(&folder)).unwrap());
    assert_harmless(&socket(&folder), "is litd running?");
}

#[test]
fn a_deaf_daemon_is_not_waited_for_for_long() {
    let folder = tempfile::tempdir().unwrap();
    let _deaf = UnixListener::bind(socket(&folder)).unwrap();
    assert_harmless(&socket(&folder), "did not answer within 1.7 s");
}

/// A process that takes each call, reads it, and ends without an answer for so many calls; then it is litd.
fn ends_at_calls(socket: &Path, calls: usize) {
    let listener = UnixListener::bind(socket).unwrap();
    thread::spawn(move || {
        for (call, stream) in listener.incoming().flatten().enumerate() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 4096]);
            if call >= calls {
                let body = r#"{"message":"slurm-7 has begun"}"#;
                let length = body.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"
                );
            }
        }
    });
}

#[test]
fn a_litd_that_ends_before_it_has_answered_is_told_again_or_finds_a_note() {
    let begin = |socket: &Path| {
        let mut command = Command::new(LITCTL);
        command.args(["job", "begin", "7", "--opt-out", "--gpu", "0", "--strict"]);
        command.env("LITD_CONTROL", socket).output().unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    ends_at_calls(&socket(&folder), 2);
    let output = begin(&socket(&folder));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("slurm-7 has begun"),
        "{output:?}"
    );
    let notes = folder.path().join("announced");
    assert!(!notes.exists());

    let folder = tempfile::tempdir().unwrap();
    ends_at_calls(&socket(&folder), usize::MAX);
    let output = begin(&socket(&folder));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        said.contains("litd took the call and ended before it answered"),
        "{said}"
    );
    assert!(
        said.contains("litd is told once it runs again, by a note in"),
        "{said}"
    );
    assert!(folder.path().join("announced/slurm-7").exists());
}

#[test]
fn a_beginning_in_a_note_is_not_heard_after_its_jobs_end() {
    let node = Node::new("");
    let notes = node.rig.layout().control().with_file_name("announced");
    fs::create_dir(&notes).unwrap();
    fs::set_permissions(&notes, fs::Permissions::from_mode(0o700)).unwrap();
    // Another litctl is writing there all the while.
    let locked = fs::File::open(&notes).unwrap();
    locked.lock().unwrap();
    let command = r#"{"command": "begin_job", "job": "slurm-9", "gpus": ["0"], "opt_out": true}"#;
    fs::write(notes.join("slurm-9"), note(command)).unwrap();
    node.text(&["job", "end", "9", "--gpu", "0"]);
    drop(locked);
    let deadline = Instant::now() + SOON;
    while fs::read_dir(&notes).unwrap().count() > 0 {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(node.status()["announced"], Value::Array(Vec::new()));
    assert!(!node.opted_out(0));
}

#[test]
fn a_note_where_the_nodes_litd_may_not_look_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let lock = folder.path().join("devices/0000:05:00.0");
    fs::create_dir(folder.path().join("devices")).unwrap();
    let file = fs::File::create(lock).unwrap();
    file.lock().unwrap();
    let mut command = Command::new(LITCTL);
    command
        .args(["job", "end", "7"])
        .env("LITD_CONTROL", socket(&folder));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let pid = std::process::id();
    assert!(
        said.contains(&format!("process {pid} has devices of this node locked")),
        "{said}"
    );
    assert!(said.contains("kubectl exec"), "{said}");
}

#[test]
fn garbage_and_refusals_fail_no_job() {
    let answers = [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"half\"",
            "can't be read",
        ),
        ("\x00\x01\x02 nonsense\r\n\r\n", "can't be read"),
        (
            "HTTP/1.1 409 Conflict\r\nContent-Length: 28\r\n\r\n{\"error\":\"litd is stopping\"}",
            "litd is told once it runs again, by a note in",
        ),
        (
            "HTTP/1.1 403 Forbidden\r\nContent-Length: 14\r\n\r\n{\"error\":\"no\"}",
            "no",
        ),
    ];
    thread::scope(|scope| {
        for (answer, why) in answers {
            scope.spawn(move || {
                let folder = tempfile::tempdir().unwrap();
                let listener = UnixListener::bind(socket(&folder)).unwrap();
                thread::spawn(move || answer_each(&listener, answer));
                assert_harmless(&socket(&folder), why);
            });
        }
    });
}

/// A process that answers every call so.
fn answer_each(listener: &UnixListener, answer: &str) {
    for mut stream in listener.incoming().flatten() {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(answer.as_bytes());
    }
}

#[test]
fn nothing_on_the_command_line_fails_a_job() {
    for arguments in [
        &["job", "begin", "--no-such-flag"][..],
        &["job", "end"],
        &["job", "begin", "a b c"],
        &["job"],
        &["--json", "job", "nonsense"],
    ] {
        let output = Command::new(LITCTL)
            .args(arguments)
            .env("LITD_CONTROL", "/nowhere/control.sock")
            .env_remove("SLURM_JOB_ID")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
    let strict = Command::new(LITCTL)
        .args(["job", "begin", "--strict", "--no-such-flag"])
        .output()
        .unwrap();
    assert_eq!(strict.status.code(), Some(2));
}

#[test]
fn the_scripts_pass_shellcheck() {
    let missing = Command::new("shellcheck")
        .arg("--version")
        .output()
        .is_err();
    if missing {
        eprintln!("SKIPPED: shellcheck is not installed");
        return;
    }
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fleet/slurm");
    let scripts = ["prolog", "epilog", "health-check"].map(|name| deploy.join(name));
    let output = Command::new("shellcheck").args(scripts).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}
