//! Neighbours on one node. Other users' processes, which do whatever their rights allow, change nothing for a job
//! that is steered: its caps, its samples, its trial, its events and the profilers it may use are the same as
//! without them.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::path::PathBuf;

use litd_api::{Command, Event, Events, JobStatus, Trials};
use litd_proto::{Bye, FromHook, Hello, Notice, NoticeKind, Profiling, SetClock, Tick};
use litd_rig::{Frames, Job, JobSpec, Rig, gpu_address};
use litd_sim::Scenario;
use litd_units::{Hertz, Nanos, Watts};
use tempfile::TempDir;

use crate::crowds::{metrics_of, scrape};
use crate::profilers::{CUPTI, rank};
use crate::stand::{GPUS, SOON, Stand, hello, wait_for};
use crate::users::{ALICE, BOB, User, group, is_root, open};

/// GPUs of the steered job; the others are its neighbours'.
const OURS: usize = 4;

/// The GPU of a job that starts at the end and only asks whether it may use its profiler.
const GPU_OF_THE_PROFILED: usize = 7;

/// How long each run lasts, in simulated seconds.
const LASTS: f64 = 600.0;

/// Iteration at which the trial starts, and at which a rank of ours connects anew.
const TRIAL_AT: u64 = 60;
const RECONNECTS_AT: u64 = 500;

const CONFIG: &str = "mode = \"on\"\npolicy = \"gpu-realloc\"\nlaw.calibration.sampling_period = 4\n\
     law.calibration.warm_up = 3\nlaw.detection.window = 1\ncaps.gpu_floor = 400.0\n\
     [settle]\nseconds = 2.0\nfit = false\n\
     [trial]\nblock_seconds = 8.0\nblock_iterations = 5\nhold_out = 0.0\n";

/// What the steered job's owner would notice.
#[derive(Debug, PartialEq)]
struct Seen {
    /// The caps written to each of its GPUs, in order.
    caps: [Vec<Watts>; OURS],
    state: String,
    samples: u64,
    /// Its report but for what comes from the wall clock.
    trial: String,
    /// Events of the job and of its GPUs; in which order ranks attach is chance.
    events: Vec<String>,
    /// Whether a job with the most usual software may profile.
    profiling: Profiling,
}

/// What a neighbour does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Attack {
    /// Has a job on two GPUs whose iterations are said to be 0.8 % slower whenever caps were moved.
    ForgedTicks,
    /// Says of many stacks of software that their profiler did harm, or none.
    Profilers,
    /// Connects and leaves in every iteration.
    Flapping,
    /// Has a job of the same name, first.
    Name,
    /// Asks for clocks that are too low, and tells of forged errors.
    Words,
    /// Nine users without a GPU hold connections to the hooks' socket.
    Strangers,
    /// A member of the group that may read holds 40 connections to the control socket, and asks for what it may not.
    Reader,
    /// 60 connections to the metrics' port that ask for nothing.
    Metrics,
}

const ALL: [Attack; 8] = [
    Attack::ForgedTicks,
    Attack::Profilers,
    Attack::Flapping,
    Attack::Name,
    Attack::Words,
    Attack::Strangers,
    Attack::Reader,
    Attack::Metrics,
];

/// What a neighbour does in each iteration.
type Acts = Box<dyn FnMut(&mut Stand, u64)>;

/// A user's process that speaks to the hooks' socket; its frames count for the rig's clock.
struct Speaker {
    user: User,
    frames: Frames,
    ingest: PathBuf,
    gpu: usize,
}

impl Speaker {
    /// The process uses this GPU from now on.
    fn new(stand: &Stand, uid: u32, gpu: usize) -> Self {
        let user = User::new(uid);
        stand.rig.hardware().set_holders(gpu, vec![user.pid()]);
        Self {
            user,
            frames: stand.rig.frames(),
            ingest: stand.rig.layout().ingest(),
            gpu,
        }
    }

    fn greet(&mut self, job: &str, versions: BTreeMap<String, String>) -> bool {
        let hello = Hello {
            framework: "pytorch".to_owned(),
            versions,
            ..hello(job, self.gpu)
        };
        let answer = self.user.greet(&self.ingest, hello);
        // Whoever has left too much unread is sent away before he has said anything. If his hello had arrived by then,
        // and nobody has read it, the kernel tells him of a reset.
        let is_unheard = |why: &String| ["closed", "ConnectionReset"].contains(&why.as_str());
        if !answer.as_ref().is_err_and(is_unheard) {
            self.frames.add();
        }
        answer.is_ok()
    }

    fn say(&mut self, message: &FromHook) {
        self.frames.add();
        self.user.say(message);
        // On a busy machine the run takes longer than a hook may leave everything unread.
        self.user.discard();
    }

    fn leave(&mut self) {
        let reason = String::new();
        self.say(&FromHook::Bye(Bye { reason }));
    }
}

fn notice(kind: NoticeKind, text: &str, samples: u32) -> FromHook {
    let text = text.to_owned();
    FromHook::Notice(Notice {
        kind,
        text,
        samples,
    })
}

fn versions(torch: &str) -> BTreeMap<String, String> {
    let named = CUPTI.map(|(name, version)| (name.to_owned(), version.to_owned()));
    let mut versions = BTreeMap::from(named);
    versions.insert("torch".to_owned(), torch.to_owned());
    versions
}

impl Attack {
    fn begin(self, stand: &mut Stand, room: &TempDir) -> Acts {
        match self {
            Self::ForgedTicks => forged_ticks(stand, room),
            Self::Profilers => profilers(stand),
            Self::Flapping => flapping(stand),
            Self::Name => name(stand),
            Self::Words => words(stand),
            Self::Strangers => strangers(stand),
            Self::Reader => reader(stand),
            Self::Metrics => idle_metrics(stand),
        }
    }

    /// The first GPU that the neighbour's processes use: attacks on one GPU exclude each other.
    fn gpu(self) -> Option<usize> {
        match self {
            Self::ForgedTicks => Some(4),
            Self::Profilers | Self::Flapping | Self::Name | Self::Words => Some(6),
            Self::Strangers | Self::Reader | Self::Metrics => None,
        }
    }
}

fn forged_ticks(stand: &Stand, room: &TempDir) -> Acts {
    let mut bob = User::new(BOB);
    let way = room.path().join("relay");
    bob.relay(&stand.rig.layout().ingest(), &way);
    for gpu in [4, 5] {
        stand.rig.hardware().set_holders(gpu, vec![bob.pid()]);
    }
    let spec = JobSpec::new("forged", [4, 5]);
    let mut job = stand.rig.attach_through(&way, spec).unwrap();
    job.welcome(SOON).unwrap();
    let found = stand.rig.ledger().found();
    Box::new(move |stand, _| {
        let _ = &bob;
        let held = stand.held();
        let moved = held[4..6] != found[4..6];
        assert!(held.iter().all(|cap| cap.0 >= 400.0), "{held:?}");
        let length = stand.rig.hardware().plant().last().length.to_nanos();
        job.pretend(moved.then(|| Nanos(length.0 + length.0 / 125)));
        job.report();
    })
}

fn profilers(stand: &Stand) -> Acts {
    let mut alice = Speaker::new(stand, ALICE, 6);
    Box::new(move |_, iteration| {
        if iteration % 8 != 0 {
            return;
        }
        // Also of the software that others use.
        let torch = match iteration / 8 % 3 {
            0 => CUPTI[0].1.to_owned(),
            _ => format!("2.9.{iteration}"),
        };
        let (kind, text) = match iteration / 8 % 2 {
            0 => (NoticeKind::ProfilingOff, "it hung"),
            _ => (NoticeKind::ProfilingSafe, "nothing lost in 20"),
        };
        if alice.greet("washes", versions(&torch)) {
            alice.say(&notice(kind, text, 20));
            alice.leave();
        }
    })
}

fn flapping(stand: &Stand) -> Acts {
    let mut alice = Speaker::new(stand, ALICE, 6);
    Box::new(move |_, _| {
        if alice.greet("flaps", BTreeMap::new()) {
            alice.leave();
        }
    })
}

fn name(stand: &Stand) -> Acts {
    let mut alice = Speaker::new(stand, ALICE, 6);
    assert!(alice.greet("train", BTreeMap::new()));
    Box::new(move |_, iteration| {
        let duration = Nanos(1);
        alice.say(&FromHook::Tick(Tick {
            iteration,
            duration,
            profiled: false,
            overhead: Nanos::ZERO,
        }));
    })
}

fn words(stand: &Stand) -> Acts {
    let mut alice = Speaker::new(stand, ALICE, 6);
    assert!(alice.greet("talks", BTreeMap::new()));
    Box::new(move |_, iteration| {
        let clock = [1e6, 1.4e9, 2.1e9][iteration as usize % 3];
        alice.say(&FromHook::SetClock(SetClock {
            clock: Some(Hertz(clock)),
        }));
        let text = format!("late since {iteration}\nerror: gpu0 of train has failed");
        alice.say(&notice(NoticeKind::ProfilingOff, &text, 0));
    })
}

fn strangers(stand: &Stand) -> Acts {
    let ingest = stand.rig.layout().ingest();
    let mut crowd: Vec<User> = (0..9).map(|user| User::new(61_010 + user)).collect();
    for user in &mut crowd {
        user.hoard(&ingest, 20, b"");
    }
    Box::new(move |_, iteration| {
        let user = &mut crowd[iteration as usize % 9];
        if iteration % 40 == 0 {
            user.hoard(&ingest, 2, b"\x05");
        }
    })
}

fn reader(stand: &Stand) -> Acts {
    let control = stand.rig.layout().control();
    let readers = group("daemon").unwrap_or_default();
    let mut member = User::in_group(BOB, readers);
    member.hoard(&control, 40, b"");
    let mut busy = User::in_group(BOB, readers);
    Box::new(move |_, iteration| {
        let _ = &member;
        if iteration % 20 == 0 {
            busy.ask(&control, "POST", "/v1/command", "{\"command\":\"resume\"}");
        }
    })
}

fn idle_metrics(stand: &Stand) -> Acts {
    let metrics = metrics_of(stand);
    let held: Vec<_> = (0..60).map(|_| TcpStream::connect(metrics)).collect();
    Box::new(move |_, iteration| {
        assert_eq!(held.len(), 60);
        if iteration % 200 == 0 {
            scrape(metrics);
        }
    })
}

/// A node on which our job's GPUs have twice the work of the others, so that no cap of a neighbour's is ever waited
/// for: in the simulator all GPUs share their collectives.
fn stand() -> Stand {
    let mut scenario = Scenario::builtin("default").unwrap();
    for gpu in &mut scenario.gpus[..OURS] {
        gpu.extra_work = 1.0;
    }
    let groups = "control.read_group = \"daemon\"\n";
    let rig = Rig::new(&scenario, 1).unwrap();
    let mut stand = Stand::on(rig, &format!("{groups}{CONFIG}"), true);
    for gpu in OURS..GPUS {
        stand.rig.hardware().set_holders(gpu, Vec::new());
    }
    stand.start();
    open(&stand.rig.layout().directory);
    stand
}

fn our_status(stand: &Stand) -> JobStatus {
    let jobs = stand.status().jobs.into_iter();
    jobs.filter(|job| job.uid == 0)
        .find(|job| job.ranks.len() == OURS)
        .unwrap()
}

/// Texts of all events about the job or its GPUs that are still kept.
fn our_events(stand: &Stand, name: &str) -> Vec<String> {
    let (_, body) = stand.ask("GET", "/v1/events?after=0", "");
    let events: Events = serde_json::from_str(&body).unwrap();
    let ours: Vec<String> = (0..OURS).map(gpu_address).collect();
    let is_ours = |event: &Event| match (&event.job, &event.device) {
        (Some(job), _) => job == name,
        (None, Some(device)) => ours.contains(device),
        _ => false,
    };
    let ours = events.events.into_iter().filter(is_ours);
    let mut texts: Vec<String> = ours
        .map(|event| {
            format!(
                "{}: {}",
                event.kind.name(),
                event.text.replace(name, "train")
            )
        })
        .collect();
    texts.sort();
    texts
}

/// Ten minutes of our job beside these neighbours.
fn beside(attacks: &[Attack]) -> Seen {
    let mut stand = stand();
    let room = tempfile::tempdir().unwrap();
    std::fs::set_permissions(
        room.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    let mut acts: Vec<Acts> = attacks
        .iter()
        .map(|attack| attack.begin(&mut stand, &room))
        .collect();
    let mut job: Job = stand.job("train", 0..OURS);
    let name = our_status(&stand).name;
    let mut iteration = 0;
    while stand.rig.now().0 as f64 / 1e9 < LASTS {
        job.run_iteration();
        for act in &mut acts {
            act(&mut stand, iteration);
        }
        stand.iteration_passes();
        if iteration == TRIAL_AT {
            stand.command(&Command::StartTrial {
                job: Some(name.clone()),
                quads: Some(4),
                same: false,
                seed: Some(11),
            });
        }
        if iteration == RECONNECTS_AT {
            job.crash(2);
            // Whoever comes back sooner than he is missed is not reported as lost.
            wait_for("the loss of a rank", || {
                let ranks = our_status(&stand).ranks;
                ranks.iter().any(|it| it.rank == 2 && !it.connected)
            });
            job.connect(2).unwrap();
            job.welcome(SOON).unwrap();
        }
        iteration += 1;
    }
    let seen = seen(&stand, &name);
    drop(acts);
    wait_for("the neighbours' end", || our_status(&stand).name == name);
    job.end();
    stand.stop();
    seen
}

fn seen(stand: &Stand, name: &str) -> Seen {
    let status = our_status(stand);
    let (_, body) = stand.ask("GET", "/v1/trial", "");
    let trials: Trials = serde_json::from_str(&body).unwrap();
    let report = trials.report.unwrap();
    let trial = format!(
        "{:?} {:?} {} blocks, {:?}",
        report.state, report.verdict, report.blocks, report.throughput
    );
    stand
        .rig
        .hardware()
        .set_holders(GPU_OF_THE_PROFILED, vec![std::process::id()]);
    let (_, welcome) = rank(stand, "profiled", GPU_OF_THE_PROFILED, &CUPTI);
    let entries = stand.rig.ledger().entries();
    let written = |gpu: usize| {
        let its = entries.iter().filter(|it| it.device == gpu);
        its.map(|it| it.after).collect()
    };
    Seen {
        caps: std::array::from_fn(written),
        state: format!("{:?}", status.state),
        samples: status.samples,
        trial,
        events: our_events(stand, name),
        profiling: welcome.profiling,
    }
}

/// What there is to protect: without it every comparison would pass.
fn assert_is_steered(seen: &Seen) {
    assert!(seen.caps.iter().all(|caps| caps.len() > 3), "{seen:#?}");
    assert!(seen.samples > 5, "{seen:#?}");
    assert!(seen.trial.starts_with("Complete"), "{seen:#?}");
    assert!(seen.events.len() > 3, "{seen:#?}");
}

#[test]
fn neighbours_change_nothing_for_a_steered_job() {
    if !is_root() || group("daemon").is_none() {
        return;
    }
    let alone = beside(&[]);
    assert_is_steered(&alone);
    for attack in ALL {
        let began = std::time::Instant::now();
        assert_eq!(beside(&[attack]), alone, "{attack:?}");
        eprintln!("{attack:?}: {:?}", began.elapsed());
    }
    for attacks in mixtures(4) {
        assert_eq!(beside(&attacks), alone, "{attacks:?}");
    }
}

/// Random sets of attacks, of which no two use the same GPU.
fn mixtures(count: u64) -> Vec<Vec<Attack>> {
    let mut state = 0x9e37_79b9_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mixture = |_| {
        let mut attacks: Vec<Attack> = Vec::new();
        for attack in ALL {
            let free = attack
                .gpu()
                .is_none_or(|gpu| attacks.iter().all(|it| it.gpu() != Some(gpu)));
            if free && next() % 3 > 0 {
                attacks.push(attack);
            }
        }
        attacks
    };
    (0..count).map(mixture).collect()
}
