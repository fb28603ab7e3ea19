//! PyTorch's on-demand client and the daemon: the real one as a process, and clients that say what PyTorch's says,
//! written from its protocol. The name that clients know is one for a whole network namespace, so each test has a
//! namespace of its own; only root can make one.

mod both;
mod client;
mod dynolog;
mod rings;
mod sampled;
mod torch;

use std::cell::Cell;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::control;
use crate::stand::{Stand as Node, quick};
use client::{Client, named, poll};
use litd_api::{
    EventKind, Events, JobState, JobStatus, Problem, TraceStage, TraceWish, Traceable, WishedTraces,
};
use litd_rig::{Daemon, Rig};
use litd_sim::Scenario;
use litd_units::{Millis, Watts};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const LITD: &str = env!("CARGO_BIN_EXE_litd");

/// The name that launchers' variables make of a job without a hook.
const JOB: &str = "localhost:29500";

/// That job as `litctl status` shows it, if it is one.
fn job(stand: &Node) -> Option<JobStatus> {
    let jobs = stand.status().jobs;
    jobs.into_iter().find(|it| it.name == JOB)
}

/// What all GPUs may draw together where gpu-red steers: it begins with the highest cap of each.
const BUDGET: Watts = Watts(6000.0);

/// Steers early and often.
fn steering(policy: &str) -> String {
    let budget = match policy {
        "gpu-red" => format!("caps.budget = {:.1}\n", BUDGET.0),
        _ => String::new(),
    };
    format!("{}{budget}", quick(policy))
}

/// How long an iteration of a node takes, and what its GPUs draw.
#[derive(Debug, Clone, Copy)]
struct Cost {
    time: Millis,
    power: Watts,
}

impl Cost {
    fn of(node: &Node) -> Self {
        let (time, power) = (node.length(), node.rig.hardware().plant().gpu_power());
        Self { time, power }
    }

    /// By which parts time and power are less than before, and how that compares with a job that has hooks: throughput
    /// within half a point of theirs; under gpu-red two thirds of their saving, and iterations at most 0.15 % longer than
    /// with hooks.
    fn is_as_low_as_by_hooks(self, before: Self, policy: &str) {
        let less = |before: Self, after: Self| {
            let (time, power) = (after.time / before.time, after.power / before.power);
            (1.0 - time, 1.0 - power)
        };
        let mut node = Node::clocked(&steering(policy));
        let mut job = node.train();
        node.play(&mut job, 3);
        let began = Self::of(&node);
        node.play_until(&mut job, "convergence", |node| {
            node.job_status("train").state == JobState::Converged
        });
        let (here, hooks) = (less(before, self), less(began, Self::of(&node)));
        println!(
            "SIMULATED: an iteration takes {} instead of {}, {policy}: time and power are less by {here:.4?}, by hooks \
             {hooks:.4?}",
            self.time, before.time
        );
        match policy {
            "gpu-red" => assert!(
                hooks.1 > 0.03 && here.1 > hooks.1 * 2.0 / 3.0 && here.0 > hooks.0 - 0.0015,
                "{here:?} {hooks:?}"
            ),
            _ => assert!(
                hooks.0 > 0.015 && here.0 > hooks.0 - 0.005,
                "{here:?} {hooks:?}"
            ),
        }
    }
}

/// Long enough for anything that does happen.
const SOON: Duration = Duration::from_secs(20);

/// An answer has to come within this; a test's machine has other things to do, too.
const AT_ONCE: Duration = Duration::from_millis(80);

/// A daemon in a network namespace of this test's thread.
struct Stand {
    /// Ends before its hardware does.
    daemon: Daemon,
    rig: Rig,
    /// How many questions have come too late, as far as is known.
    late: Cell<u64>,
    _namespace: Option<Namespace>,
}

impl Stand {
    /// `None`, and a sentence on why, where no namespace can be made.
    fn new(config: &str) -> Option<Self> {
        let namespace = alone()?;
        let mut stand = Self::here(config);
        stand._namespace = Some(namespace);
        Some(stand)
    }

    /// The same in the namespace that the thread has.
    fn here(config: &str) -> Self {
        let rig = Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
        let daemon = rig.spawn(Path::new(LITD), &rig.config(config)).unwrap();
        Self {
            daemon,
            rig,
            late: Cell::new(0),
            _namespace: None,
        }
    }

    /// The answer to a question. On a machine that has other things to do a question may wait so long that litd gives
    /// none; it says so, and the question is put again.
    fn answer(&self, client: &Client, question: &[u8]) -> String {
        let mut deadline = Instant::now() + SOON;
        client.ask(question);
        loop {
            if let Some(answer) = client.answer(Duration::from_millis(200)) {
                return answer;
            }
            let late = self.traceable().datagrams.late;
            if late > self.late.replace(late) {
                deadline = Instant::now() + SOON;
                client.ask(question);
            }
            assert!(Instant::now() < deadline, "no answer");
        }
    }

    fn ask(&self, method: &str, body: &str) -> (u16, String) {
        control::ask(&self.rig.layout().control(), method, "/v1/trace", body).unwrap()
    }

    fn traceable(&self) -> Traceable {
        let (code, body) = self.ask("GET", "");
        assert_eq!(code, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Wishes for a trace of a process.
    fn wish(&self, pid: u32) -> Result<WishedTraces, String> {
        self.wish_all(&[pid])
    }

    fn wish_all(&self, pids: &[u32]) -> Result<WishedTraces, String> {
        let wish = TraceWish {
            pids: pids.to_vec(),
            iterations: 2,
            milliseconds: 500,
            ..TraceWish::default()
        };
        let (code, body) = self.ask("POST", &serde_json::to_string(&wish).unwrap());
        match code {
            200 => Ok(serde_json::from_str(&body).unwrap()),
            _ => Err(serde_json::from_str::<Problem>(&body).unwrap().error),
        }
    }

    fn events(&self, kind: EventKind) -> Vec<String> {
        let control = self.rig.layout().control();
        let (_, body) = control::ask(&control, "GET", "/v1/events?after=0", "").unwrap();
        let events: Events = serde_json::from_str(&body).unwrap();
        let of_kind = events.events.into_iter().filter(|event| event.kind == kind);
        of_kind.map(|event| event.text).collect()
    }
}

const ON: &str = "attach.kineto = true\n";

/// A network namespace of this thread's own; the thread is back in the one that it came from when this is dropped.
/// Tests may have a thread in common, and most need the loopback device.
struct Namespace {
    before: File,
}

impl Drop for Namespace {
    fn drop(&mut self) {
        setns(&self.before, CloneFlags::CLONE_NEWNET).unwrap();
    }
}

/// Gives this thread a network namespace of its own.
fn alone() -> Option<Namespace> {
    let before = File::open("/proc/thread-self/ns/net").unwrap();
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        eprintln!("SKIPPED: a network namespace takes root: {error}");
        return None;
    }
    Some(Namespace { before })
}

/// Turns the loopback device of a namespace on.
fn has_loopback() -> bool {
    let lo = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status();
    let is_up = lo.is_ok_and(|it| it.success());
    if !is_up {
        eprintln!("SKIPPED: processes can't reach each other: ip link set lo up");
    }
    is_up
}

fn own() -> u32 {
    std::process::id()
}

#[test]
fn every_question_is_answered_at_once_and_nothing_comes_unasked() {
    let Some(stand) = Stand::new(ON) else { return };
    let client = Client::new(1);
    // A machine that has other things to do may keep single questions waiting; a round in which it does not shows
    // what litd takes.
    let slowest = || {
        let times = (0..500).map(|_| {
            let asked = Instant::now();
            assert_eq!(stand.answer(&client, &poll(own())), "");
            asked.elapsed()
        });
        times.max().unwrap()
    };
    let quickest = (0..5).map(|_| slowest()).find(|&it| {
        println!("the slowest of 500 answers came after {it:?}");
        it < AT_ONCE
    });
    assert!(quickest.is_some(), "none of five rounds");
    assert_eq!(client.answer(Duration::from_millis(300)), None);
}

#[test]
fn a_process_is_told_once_and_others_never() {
    let Some(stand) = Stand::new(ON) else { return };
    assert!(stand.wish(own()).unwrap_err().contains("KINETO_USE_DAEMON"));
    let (client, second) = (Client::new(1), Client::new(2));
    assert_eq!(stand.answer(&client, &poll(own())), "");
    let known = stand.traceable();
    assert!(known.on && known.troubles.is_empty());
    assert_eq!(known.processes.len(), 1);
    assert_eq!((known.processes[0].pid, known.processes[0].uid), (own(), 0));

    let wished = stand.wish(own()).unwrap();
    let file = &wished.traces[0].file;
    assert!(file.starts_with("/tmp/litd-") && file.ends_with(&format!("_{}.json", own())));
    // Another process that says this one's id, and one that says its own: neither is told.
    let mut child = client::child("says", own());
    assert_eq!(client::said(&mut child), "");
    let mut child = client::child("says", 0);
    assert_eq!(client::said(&mut child), "");
    // Whoever says another's id from here is nobody either.
    assert_eq!(stand.answer(&second, &poll(own() + 1)), "");
    let told = stand.answer(&client, &poll(own()));
    let lines: Vec<&str> = told.lines().collect();
    let stem = file.strip_suffix(&format!("_{}.json", own())).unwrap();
    assert_eq!(lines[0], format!("ACTIVITIES_LOG_FILE={stem}.json"));
    assert!(lines.contains(&"ACTIVITIES_ITERATIONS=2"), "{told}");
    // The children's ids may be lower than this process's, and their processes come first then.
    let known = stand.traceable().processes.into_iter();
    let stages: Vec<TraceStage> = known
        .filter(|it| it.pid == own())
        .map(|it| it.stage)
        .collect();
    assert_eq!(stages, [TraceStage::Told]);
    assert!(stand.wish(own()).unwrap_err().contains("within 30 s"));
    for _ in 0..3 {
        assert_eq!(stand.answer(&client, &poll(own())), "");
    }
    let datagrams = stand.traceable().datagrams;
    assert_eq!((datagrams.told, datagrams.impostors), (1, 2));
    assert_eq!(datagrams.unsure, 0);
    let asked = stand.events(EventKind::Command);
    let wanted = format!("user 0 asks: traces of processes {}", own());
    assert!(asked.contains(&wanted), "{asked:?}");
}

#[test]
fn what_is_no_clients_message_gets_no_answer() {
    let Some(stand) = Stand::new(ON) else { return };
    let client = Client::new(1);
    let whole = poll(own());
    for length in [0, 1, 39, 40, 41, whole.len() - 1] {
        client.ask(&whole[..length]);
    }
    let mut long = whole.clone();
    long.resize(100_000, 7);
    client.ask(&long);
    assert_eq!(client.answer(Duration::from_millis(200)), None);
    // Sockets without a name, or with another's.
    Client::unnamed().ask(&whole);
    let foreign = Client::called(named("litd_test"));
    foreign.ask(&whole);
    assert_eq!(foreign.answer(Duration::from_millis(200)), None);
    assert_eq!(stand.answer(&client, &whole), "");
    let known = stand.traceable();
    assert_eq!(known.processes.len(), 1);
    let datagrams = known.datagrams;
    assert_eq!((datagrams.malformed, datagrams.foreign), (7, 2));
    assert_eq!(datagrams.answered, 1);
}

#[test]
fn a_question_that_waited_too_long_is_not_answered_later() {
    let Some(stand) = Stand::new(ON) else { return };
    let client = Client::new(1);
    let litd = Pid::from_raw(stand.daemon.pid().try_into().unwrap());
    assert_eq!(stand.answer(&client, &poll(own())), "");
    // On a busy machine the first question may have waited too long, and was asked again.
    let late = stand.traceable().datagrams.late;
    kill(litd, Signal::SIGSTOP).unwrap();
    // Its other threads stop a moment later.
    std::thread::sleep(Duration::from_millis(100));
    client.ask(&poll(own()));
    assert_eq!(client.answer(Duration::from_millis(300)), None);
    kill(litd, Signal::SIGCONT).unwrap();
    // The client has stopped listening, and would take it for the answer to its next question.
    assert_eq!(client.answer(Duration::from_millis(500)), None);
    assert_eq!(stand.traceable().datagrams.late, late + 1);
    stand.wish(own()).unwrap();
    let told = stand.answer(&client, &poll(own()));
    assert!(told.contains("ACTIVITIES_LOG_FILE"), "{told}");
}

#[test]
fn a_name_that_is_taken_is_said_and_left_alone() {
    let Some(_namespace) = alone() else { return };
    let dynolog = Client::called(named("dynolog"));
    let stand = Stand::here(ON);
    let said = stand.events(EventKind::Fault);
    let wanted = format!("process {} (", own());
    let told = said
        .iter()
        .any(|it| it.contains(&wanted) && it.contains("has the name @dynolog"));
    assert!(told, "{said:?}");
    assert_eq!(stand.traceable().troubles.len(), 1);
    let client = Client::new(1);
    client.ask(&poll(own()));
    assert_eq!(dynolog.received(SOON), Some(poll(own())));
    assert_eq!(client.answer(Duration::from_millis(200)), None);
}

#[test]
fn nothing_is_answered_unless_it_is_turned_on() {
    let Some(stand) = Stand::new("") else { return };
    assert!(!Client::new(1).can_ask());
    assert!(!stand.traceable().on);
    assert!(
        stand
            .wish(own())
            .unwrap_err()
            .contains("attach.kineto = true")
    );
}

#[test]
fn pods_ask_by_a_file_and_only_their_own_socket_is_answered() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("kineto");
    fs::create_dir(&folder).unwrap();
    let mode = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o777);
    let config = format!("{ON}attach.kineto_directory = \"{}\"\n", folder.display());
    let Some(_namespace) = alone() else { return };
    let stand = Stand::here(&config);
    let troubles = stand.traceable().troubles;
    assert!(troubles[0].contains("chmod 1777"), "{troubles:?}");
    drop(stand);
    mode(0o1777);
    let stand = Stand::here(&config);
    assert_eq!(stand.traceable().troubles, [""; 0]);
    let client = Client::in_folder(&folder, "dynoconfigclient1");
    assert_eq!(stand.answer(&client, &poll(own())), "");
    // Nobody has litd send to another socket by putting a link in his own one's place.
    let victim = Client::in_folder(&folder, "victim");
    fs::remove_file(folder.join("dynoconfigclient1")).unwrap();
    symlink("victim", folder.join("dynoconfigclient1")).unwrap();
    client.ask(&poll(own()));
    assert_eq!(victim.received(Duration::from_millis(300)), None);
    let outside = Client::in_folder(place.path(), "dynoconfigclient2");
    outside.ask_in(&folder, &poll(own()));
    assert_eq!(outside.answer(Duration::from_millis(300)), None);
    // A predecessor's socket is replaced.
    drop(stand);
    let stand = Stand::here(&config);
    assert_eq!(stand.traceable().troubles, [""; 0]);
}

/// The processor time of litd's threads that answer, in seconds.
fn answering(stand: &Stand) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", stand.daemon.pid())).unwrap();
    let mut ticks = 0;
    for task in tasks.map(|task| task.unwrap().path()) {
        if fs::read_to_string(task.join("comm")).unwrap().trim() == "kineto" {
            let stat = fs::read_to_string(task.join("stat")).unwrap();
            let fields = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace();
            ticks += fields
                .skip(11)
                .take(2)
                .map(|it| it.parse::<u64>().unwrap())
                .sum::<u64>();
        }
    }
    ticks as f64 / 100.0
}

#[test]
fn a_thousand_clients_cost_little() {
    let Some(stand) = Stand::new(ON) else { return };
    let clients: Vec<Client> = (0..1000).map(Client::new).collect();
    let (before, began) = (answering(&stand), Instant::now());
    const LASTS: Duration = Duration::from_secs(10);
    let mut asked = 0_u32;
    while began.elapsed() < LASTS {
        let client = &clients[asked as usize % clients.len()];
        assert_eq!(stand.answer(client, &poll(own())), "");
        asked += 1;
        // A thousand questions in 5 s.
        let next = Duration::from_millis(5) * asked;
        std::thread::sleep(next.saturating_sub(began.elapsed()));
    }
    let share = (answering(&stand) - before) / began.elapsed().as_secs_f64();
    println!(
        "{asked} questions in {LASTS:?} took {:.2} % of a core",
        share * 100.0
    );
    assert!(asked > 1000, "{asked}");
    assert!(share < 0.05, "{share}");
}

/// A flood takes no core, and whoever asks meanwhile is answered.
#[test]
fn a_flood_is_slowed_down() {
    let Some(stand) = Stand::new(ON) else { return };
    let mut flood = Command::new("/proc/self/exe")
        .args(["--exact", "attach::client::errand"])
        .env(client::ERRAND, "floods")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let client = Client::new(1);
    let (before, began) = (answering(&stand), Instant::now());
    let mut answered = 0;
    while began.elapsed() < Duration::from_secs(3) {
        client.ask(&poll(own()));
        answered += u32::from(client.answer(Duration::from_millis(500)).is_some());
    }
    let share = (answering(&stand) - before) / began.elapsed().as_secs_f64();
    flood.kill().unwrap();
    flood.wait().unwrap();
    println!(
        "in a flood: {answered} answers, {:.0} % of a core",
        share * 100.0
    );
    assert!(answered > 10, "{answered}");
    assert!(share < 0.5, "{share}");
}
