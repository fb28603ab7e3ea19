//! Jobs without a hook that are sampled by the rings of litd's plugin for NCCL and RCCL: processes of real users that
//! write rings by the plugin's own writer, on a simulated node whose collectives are in them. SIMULATED.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, BufReader, Write as _};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use litd_api::{EventKind, JobState, RingsSeen};
use litd_attach::ring::{AT_BEGUN, AT_MAGIC, AT_PID, BYTES, Function, Record};
use litd_nccl::ring::Ring;
use litd_traces::{KernelClass, Timeline};
use litd_units::Nanos;
use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::{dup, mkfifo};

use super::client::{self, Client};
use super::{BUDGET, Cost, job, steering};
use crate::stand::{GPUS, SOON, Stand, quick, seconds};
use crate::users::{ALICE, BOB, answer, is_root};

/// Set in a process that writes a ring: the directory.
const WRITES: &str = "LITD_TEST_RING_IN";

/// A process of a user's that writes a ring.
pub struct Writer {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    ring: PathBuf,
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

impl Writer {
    /// The rank with this number, of so many.
    fn new(uid: u32, directory: &Path, rank: usize, of: usize) -> Self {
        let mut child = Command::new("/proc/self/exe")
            .args(["--exact", "attach::rings::writing_a_ring", "--nocapture"])
            .env(WRITES, directory)
            .env("RANK", rank.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .env("WORLD_SIZE", of.to_string())
            .env("LOCAL_WORLD_SIZE", of.to_string())
            .env("MASTER_PORT", "29500")
            .current_dir("/")
            .uid(uid)
            .gid(uid)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut writer = Self {
            commands: child.stdin.take().unwrap(),
            answers: BufReader::new(child.stdout.take().unwrap()),
            child,
            ring: PathBuf::new(),
        };
        writer.ring = writer.does("ring").into();
        writer
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it do something, and returns its answer.
    pub fn does(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").unwrap();
        answer(&mut self.answers)
    }

    fn write(&mut self, record: &Record) {
        let words: Vec<String> = record.words(0).iter().map(u64::to_string).collect();
        writeln!(self.commands, "write {}", words.join(" ")).unwrap();
    }

    /// Changes a word of its ring behind its back.
    fn lies(&self, word: usize, value: u64) {
        let file = OpenOptions::new().write(true).open(&self.ring).unwrap();
        file.write_all_at(&value.to_ne_bytes(), 8 * word as u64)
            .unwrap();
    }
}

/// The ring that a process has open.
fn own_ring() -> (PathBuf, PathBuf) {
    let open = fs::read_dir("/proc/self/fd")
        .unwrap()
        .map(|it| it.unwrap().path());
    let open = open.filter_map(|it| Some((fs::read_link(&it).ok()?, it)));
    let mut rings = open.filter(|(file, _)| file.extension().is_some_and(|it| it == "ring"));
    rings.next().unwrap()
}

/// A copy of the ring's descriptor, as a process has that was forked from this one.
#[allow(
    unsafe_code,
    reason = "the plugin gives its descriptor to nobody, and a fork has it all the same"
)]
fn copied() -> OwnedFd {
    // SAFETY: the ring stays open until this process ends.
    dup(unsafe { BorrowedFd::borrow_raw(number_of(&own_ring().1)) }).unwrap()
}

/// A descriptor's number.
fn number_of(descriptor: &Path) -> i32 {
    let number = descriptor.file_name().unwrap().to_str().unwrap();
    number.parse().unwrap()
}

/// Takes a lease on the process's own ring, or gives it up: whoever opens the ring waits for that, or is told.
#[allow(unsafe_code, reason = "nix has no leases")]
fn lease(kind: i32) {
    // Of fcntl(2): the signal that is sent when somebody opens the file. This one ends no process.
    const F_SETSIG: i32 = 10;
    let ring = number_of(&own_ring().1);
    let harmless = libc::SIGURG;
    // SAFETY: both have integers alone as arguments, and say what is wrong by their results.
    let (signal, lease) = unsafe {
        (
            libc::fcntl(ring, F_SETSIG, harmless),
            libc::fcntl(ring, libc::F_SETLEASE, kind),
        )
    };
    assert_eq!((signal, lease), (0, 0), "{}", io::Error::last_os_error());
}

/// Not a test by itself: what a [`Writer`] runs.
#[test]
fn writing_a_ring() {
    let Some(directory) = std::env::var_os(WRITES) else {
        return;
    };
    let ring = Ring::within(&directory).unwrap();
    let mut hook = None;
    let mut locked = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (command, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match command {
            "write" => {
                let words: Vec<u64> = rest.split(' ').map(|it| it.parse().unwrap()).collect();
                ring.write(&Record::of_words(&words.try_into().unwrap(), 0).unwrap());
                continue;
            }
            "leases" => lease(libc::F_WRLCK),
            "yields" => lease(libc::F_UNLCK),
            "locks" => {
                let mut how = OpenOptions::new();
                let how = how.read(true).custom_flags(libc::O_NONBLOCK);
                let file = how.open(rest).unwrap();
                file.lock().unwrap();
                locked.push(file);
            }
            "hook" => hook = Some(UnixStream::connect(rest).unwrap()),
            // From now on it asks for traces, too.
            "asks" => {
                let spoils = rest == "and spoils";
                thread::spawn(move || client::trains(&Client::new(0), spoils));
            }
            // What it starts has the ring open, and so locked, as well.
            "starts" => {
                let mut sleep = Command::new("sleep");
                sleep.arg("600").stdin(copied()).stdout(Stdio::null());
                println!("answer {}", sleep.spawn().unwrap().id());
                continue;
            }
            "ring" => {
                println!("answer {}", own_ring().0.display());
                continue;
            }
            _ => {}
        }
        println!("answer done");
    }
    drop((hook, locked));
    std::process::exit(0);
}

/// A directory for rings.
pub fn directory() -> tempfile::TempDir {
    let directory = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).unwrap();
    directory
}

/// What litd needs to read them.
fn reads(directory: &tempfile::TempDir) -> String {
    format!(
        "attach.nccl_directory = \"{}\"\n",
        directory.path().display()
    )
}

/// A node, and the processes of a job on it.
pub struct Node {
    pub stand: Stand,
    pub writers: Vec<Writer>,
    pub directory: tempfile::TempDir,
    /// How many collectives of each function each rank has run.
    ran: Vec<BTreeMap<Function, u64>>,
    /// When litd last looked at the rings.
    looked: Nanos,
}

impl Node {
    /// `None`, and a sentence on why, where no user can be made.
    fn new(policy: &str) -> Option<Self> {
        let node = Self::without_gpus(&steering(policy), directory())?;
        node.take_gpus();
        Some(node)
    }

    /// The same, where processes that litd does not know use the GPUs.
    pub fn without_gpus(config: &str, directory: tempfile::TempDir) -> Option<Self> {
        if !is_root() {
            return None;
        }
        let stand = Stand::clocked(&format!("{config}{}", reads(&directory)));
        let writer = |rank| Writer::new(ALICE, directory.path(), rank, GPUS);
        Some(Self {
            writers: (0..GPUS).map(writer).collect(),
            stand,
            directory,
            ran: vec![BTreeMap::new(); GPUS],
            looked: Nanos::ZERO,
        })
    }

    /// Each of the job's processes uses a GPU.
    pub fn take_gpus(&self) {
        for (number, writer) in self.writers.iter().enumerate() {
            let holders = vec![writer.pid()];
            self.stand.rig.hardware().set_holders(number, holders);
        }
    }

    pub fn seen(&self) -> RingsSeen {
        self.stand.traceable().rings.unwrap()
    }

    /// Samples so far; `None` while the job is not sampled.
    fn samples(&self) -> Option<u64> {
        let told = self.seen().sampled.into_iter().next()?.text;
        let (number, _) = told.split_once(" samples so far")?;
        number.parse().ok()
    }

    /// Lets time pass on the node until something is so.
    pub fn pass_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + 2 * SOON;
        while !done(self) {
            assert!(
                Instant::now() < deadline,
                "{what}: {:#?}\n{:?}\n{}",
                self.seen(),
                self.stand.events(EventKind::Job),
                self.stand.said()
            );
            self.stand.pass(0.5);
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits, in real time, until something is so.
    pub fn wait(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + SOON;
        while !done(self) {
            assert!(
                Instant::now() < deadline,
                "{what}: {:#?}\n{}",
                self.seen(),
                self.stand.said()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// What the plugin notes of one iteration of a rank, by its GPU's clock.
    fn notes(&mut self, rank: usize, timeline: &Timeline) {
        let mut kernels: Vec<_> = timeline.kernels.iter().collect();
        kernels.retain(|it| it.class == KernelClass::Communication);
        kernels.sort_by_key(|it| it.start);
        for kernel in kernels {
            let name = timeline.names.get(kernel.name);
            let functions = ["AllReduce", "AllGather", "ReduceScatter"];
            let function = functions.iter().find(|it| name.contains(**it)).unwrap();
            let function = Function::named(function.as_bytes());
            let sequence = self.ran[rank].entry(function).or_insert(0);
            // GPUs' clocks began whenever.
            let clock = 5_000_000_000 * rank as u64;
            let ticks = |at: Nanos| Some(u64::try_from(at.0).unwrap() + clock);
            let record = Record {
                communicator: 0xfeed,
                rank: rank as u32,
                ranks: GPUS as u32,
                nodes: 1,
                function,
                sequence: *sequence,
                bytes: name.bytes().map(u64::from).sum(),
                enqueued: u64::try_from(kernel.start.0).unwrap() - 1_000_000,
                start: ticks(kernel.start),
                stop: ticks(kernel.end),
                channels: 16,
                started: 16,
                stopped: 16,
                interface: 5,
            };
            *sequence += 1;
            self.writers[rank].write(&record);
        }
    }

    /// Iterations run until litd has looked at the rings once more. Between an iteration and its time the node's power
    /// would be nonsense, so litd looks when none is under way.
    fn runs(&mut self) {
        let told = |node: &Self| job(&node.stand).map(|it| it.ranks[0].iteration);
        let before = told(self);
        let lasts = seconds(self.seen().sampled[0].every_seconds);
        while self.stand.rig.now() < self.looked + lasts {
            self.runs_once();
        }
        self.wait("a look", |node| told(node) != before);
        self.looked = self.stand.rig.now();
        self.stand.finish();
    }

    pub fn runs_once(&mut self) {
        self.stand.rig.hardware().run_iteration();
        let timelines = self.stand.rig.hardware().plant().timelines();
        for (rank, timeline) in timelines.iter().enumerate() {
            self.notes(rank, timeline);
        }
        for writer in &mut self.writers {
            assert_eq!(writer.does("done"), "done");
        }
        self.stand.iteration_passes();
    }

    /// The job trains until it is sampled, and what was there before has been passed over.
    pub fn begins(&mut self) {
        let deadline = Instant::now() + 2 * SOON;
        while self.samples().is_none() {
            assert!(
                Instant::now() < deadline,
                "{:#?}\n{}",
                self.seen(),
                self.stand.said()
            );
            self.runs_once();
            thread::sleep(Duration::from_millis(100));
        }
        thread::sleep(Duration::from_millis(600));
        self.looked = self.stand.rig.now();
    }

    /// The job trains until it has converged. Returns what the node cost before, and how many looks that took.
    fn converges(&mut self) -> (Cost, u32) {
        self.runs();
        let (before, mut looks) = (Cost::of(&self.stand), 1);
        let (told, took) = (
            job(&self.stand).unwrap().iteration_time.unwrap(),
            before.time,
        );
        assert!((told.0 / took.0 - 1.0).abs() < 0.05, "{told} of {took}");
        while job(&self.stand).unwrap().state != JobState::Converged {
            assert!(looks < 60, "{:#?}\n{:#?}", self.seen(), job(&self.stand));
            self.runs();
            looks += 1;
        }
        (before, looks)
    }

    /// How often the log has a warning with these words.
    fn warned(&self, part: &str) -> usize {
        let all = self.stand.events(EventKind::Fault);
        all.iter().filter(|it| it.contains(part)).count()
    }
}

/// SIMULATED: a job whose script knows nothing of litd is balanced.
#[test]
fn a_job_without_a_hook_is_balanced_by_its_arrivals() {
    let Some(mut node) = Node::new("gpu-realloc") else {
        return;
    };
    node.begins();
    let (before, looks) = node.converges();
    println!("SIMULATED: {looks} looks");
    assert!(node.stand.moved() >= 3, "{:?}", node.stand.held());
    Cost::of(&node.stand).is_as_low_as_by_hooks(before, "gpu-realloc");
    let converged = job(&node.stand).unwrap();
    let measured = converged.measured.unwrap();
    assert!(
        measured.starts_with("arrivals at collectives, by litd's plugin"),
        "{measured}"
    );
    assert!(
        converged.why.contains("the law knows leads, but no pace"),
        "{}",
        converged.why
    );
    assert_eq!(converged.ranks.len(), GPUS);
    node.stand.assert_rules();
    assert_eq!(node.warned("ring"), 0, "{}", node.stand.said());
    // Its end gives all caps back.
    node.stand.rig.ledger().permit_found();
    node.writers.clear();
    node.pass_until("its end", |node| job(&node.stand).is_none());
    node.stand.pass(2.0);
    assert!(node.stand.is_back(), "{:?}", node.stand.held());
    // Their rings stay until the user's next process; nobody writes them any more.
    node.wait("no ring", |node| {
        (node.seen().rings, node.seen().unclaimed) == (0, GPUS as u64)
    });
}

/// SIMULATED: the other aim.
#[test]
fn a_job_without_a_hook_saves_power_by_its_arrivals() {
    let Some(mut node) = Node::new("gpu-red") else {
        return;
    };
    node.stand.rig.ledger().set_budget(BUDGET);
    node.begins();
    let (before, looks) = node.converges();
    println!("SIMULATED: {looks} looks");
    Cost::of(&node.stand).is_as_low_as_by_hooks(before, "gpu-red");
    node.stand.assert_rules();
}

/// Two ways at once for one rank count once, and the hook's is the better one.
#[test]
fn a_hook_takes_the_place_of_a_ring() {
    let Some(mut node) = Node::new("observe") else {
        return;
    };
    node.begins();
    assert_eq!(job(&node.stand).unwrap().ranks.len(), GPUS);
    let socket = node.stand.rig.layout().ingest();
    node.writers[0].does(&format!("hook {}", socket.display()));
    node.wait("the rings' end", |node| job(&node.stand).is_none());
    node.wait("a word on it", |node| {
        let sampled = node.seen().sampled.into_iter().next();
        sampled.is_some_and(|it| it.text.contains("the hook, which shows more"))
    });
}

/// Whoever uses no GPU has nobody measured, whatever he writes.
#[test]
fn rings_of_users_without_gpus_are_not_read() {
    let Some(mut node) = Node::without_gpus(&quick("gpu-realloc"), directory()) else {
        return;
    };
    // The GPUs are Bob's, who writes none.
    let bob = Writer::new(
        BOB,
        tempfile::tempdir_in("/dev/shm").map(opened).unwrap().path(),
        0,
        1,
    );
    for gpu in 0..GPUS {
        node.stand.rig.hardware().set_holders(gpu, vec![bob.pid()]);
    }
    node.pass_until("the rings", |node| node.seen().unclaimed == GPUS as u64);
    for _ in 0..10 {
        node.runs_once();
        node.stand.pass(5.0);
        thread::sleep(Duration::from_millis(700));
    }
    let seen = node.seen();
    assert_eq!((seen.rings, seen.unclaimed), (0, GPUS as u64), "{seen:#?}");
    assert!(
        seen.sampled.is_empty() && seen.refused.is_empty(),
        "{seen:#?}"
    );
    assert!(node.stand.status().jobs.is_empty());
    assert_eq!(node.stand.moved(), 0);
}

fn opened(directory: tempfile::TempDir) -> tempfile::TempDir {
    fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).unwrap();
    directory
}

/// Files that a process which uses a GPU has locked are one error each, and nothing else: nothing is waited for, or
/// changed. What nobody has locked is not looked at.
#[test]
fn what_is_no_ring_is_one_error_each() {
    let Some(mut node) = Node::new("observe") else {
        return;
    };
    let folder = node.directory.path().to_owned();
    let place = |name: &str| folder.join(format!("nccl-{name}.ring"));
    let target = folder.join("target");
    fs::write(&target, vec![7; BYTES]).unwrap();
    symlink(&target, place("link")).unwrap();
    mkfifo(&place("pipe"), Mode::S_IRWXU).unwrap();
    fs::create_dir(place("folder")).unwrap();
    let sized = |name: &str, bytes: u64| {
        fs::File::create(place(name))
            .unwrap()
            .set_len(bytes)
            .unwrap()
    };
    sized("long", 10 << 30);
    sized("short", 4096);
    sized("twice", BYTES as u64);
    sized("odd\u{1b}[31m", 1);
    sized("theirs", BYTES as u64);
    for name in ["pipe", "folder", "long", "short", "twice", "odd\u{1b}[31m"] {
        chown(place(name), Some(ALICE), Some(ALICE)).unwrap();
    }
    let told = [
        ("nccl-pipe.ring", "is a named pipe"),
        ("nccl-folder.ring", "is a directory"),
        ("nccl-long.ring", "has 10737418240 bytes"),
        ("nccl-short.ring", "has 4096 bytes"),
        ("nccl-twice.ring", "has a second name"),
        ("nccl-odd\\u{1b}[31m.ring", "has 1 bytes"),
        ("nccl-theirs.ring", "belongs to user 0"),
    ];
    for name in [
        "link",
        "pipe",
        "folder",
        "long",
        "short",
        "twice",
        "odd\u{1b}[31m",
        "theirs",
    ] {
        node.writers[0].does(&format!("locks {}", place(name).display()));
    }
    fs::hard_link(place("twice"), place("again")).unwrap();
    // Nobody has these locked.
    sized("nobody", BYTES as u64);
    sized("nobody-either", 1);
    node.begins();
    for (name, _) in told {
        node.pass_until(name, |node| node.warned(name) > 0);
    }
    // Many searches later.
    node.stand.pass(60.0);
    thread::sleep(Duration::from_secs(5));
    for (name, why) in told {
        let said = node.stand.events(EventKind::Fault);
        let said: Vec<_> = said.iter().filter(|it| it.contains(name)).collect();
        assert!(said.len() == 1 && said[0].contains(why), "{name}: {said:?}");
    }
    for name in ["nccl-link.ring", "nccl-nobody", "target"] {
        assert_eq!(node.warned(name), 0, "{name}");
    }
    let seen = node.seen();
    assert_eq!((seen.rings, seen.unclaimed), (GPUS as u64, 3), "{seen:#?}");
    assert!(place("link").symlink_metadata().is_ok() && place("pipe").exists());
    assert!(
        job(&node.stand).is_some(),
        "the job is none the worse for it"
    );
}

/// Another user, who has no GPU, makes more files than are looked at.
#[test]
fn no_number_of_others_files_keeps_a_job_from_being_sampled() {
    let Some(mut node) = Node::without_gpus(&quick("observe"), directory()) else {
        return;
    };
    // A tmpfs lists the newest first.
    for at in 0..10_001 {
        let path = node.directory.path().join(format!("x{at}"));
        fs::write(&path, "").unwrap();
        chown(&path, Some(BOB), None).unwrap();
    }
    thread::sleep(Duration::from_secs(3));
    node.take_gpus();
    node.begins();
}

/// Opening a ring would wait until its process gives a lease up, 45 s at most: litd doesn't, and reads it later.
#[test]
fn a_ring_with_a_lease_is_waited_for_by_nobody() {
    let Some(mut node) = Node::without_gpus(&quick("observe"), directory()) else {
        return;
    };
    let folder = fs::File::open(node.directory.path()).unwrap();
    let ring = Path::new("/").join(node.writers[0].ring.file_name().unwrap());
    let opens = || litd_files::Beneath::open(&folder, &ring, ALICE, BYTES as u64);
    drop(opens().unwrap());
    node.writers[0].does("leases");
    let began = Instant::now();
    node.take_gpus();
    node.pass_until("the others' rings", |node| {
        node.seen().rings == GPUS as u64 - 1
    });
    assert!(matches!(opens(), Err(litd_files::NotTaken::Leased)));
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "it was waited for"
    );
    assert_eq!(
        node.warned("holds a lease on it"),
        1,
        "{}",
        node.stand.said()
    );
    let refused = node.seen().refused;
    assert!(
        refused.len() == 1 && refused[0].contains("lease"),
        "{refused:?}"
    );
    node.writers[0].does("yields");
    node.begins();
    assert!(node.seen().refused.is_empty());
}

/// A ring that lies, or is cut while it is read, is one error, and its job is measured no more.
#[test]
fn a_ring_that_lies_or_is_cut_is_one_error() {
    type Lie = fn(&Writer);
    let lies: [(Lie, &str); 5] = [
        (
            |it| it.lies(AT_MAGIC, 1),
            "its file is no ring of this version",
        ),
        (|it| it.lies(AT_PID, 1), "says that process 1 writes it"),
        (|it| it.lies(AT_BEGUN, 0), "went back from"),
        (|it| it.lies(AT_BEGUN, u64::MAX), ""),
        (
            |it| {
                let file = OpenOptions::new().write(true).open(&it.ring).unwrap();
                file.set_len(100).unwrap();
            },
            "its file can't be read",
        ),
    ];
    for (lie, why) in lies {
        let Some(mut node) = Node::new("gpu-realloc") else {
            return;
        };
        node.begins();
        node.runs();
        lie(&node.writers[5]);
        node.stand.pass(5.0);
        if why.is_empty() {
            // Records that never come are lost; those that come are told by their numbers.
            node.wait("a word", |node| {
                node.seen()
                    .sampled
                    .iter()
                    .any(|it| it.text.contains("none:"))
            });
            assert_eq!(node.stand.moved(), 0);
            continue;
        }
        node.pass_until("an error", |node| node.warned(why) == 1);
        node.pass_until("the job's end", |node| job(&node.stand).is_none());
        node.stand.pass(5.0);
        thread::sleep(Duration::from_secs(3));
        assert_eq!(node.warned("ring"), 1, "{why}: {}", node.stand.said());
        let seen = node.seen();
        assert_eq!(
            (seen.rings, seen.refused.len()),
            (GPUS as u64 - 1, 1),
            "{seen:#?}"
        );
        assert_eq!(node.stand.moved(), 0);
    }
}

/// A process that was forked from the writer has its lock as well, and which of them writes is unknown.
#[test]
fn a_ring_that_two_processes_with_gpus_have_is_not_read() {
    let Some(mut node) = Node::new("observe") else {
        return;
    };
    node.begins();
    let forked: u32 = node.writers[2].does("starts").parse().unwrap();
    // It is no matter as long as it uses no GPU.
    node.stand.pass(12.0);
    thread::sleep(Duration::from_secs(3));
    assert!(job(&node.stand).is_some());
    let writer = node.writers[2].pid();
    node.stand
        .rig
        .hardware()
        .set_holders(2, vec![writer, forked]);
    node.pass_until("an error", |node| {
        node.warned("is locked by several processes") == 1
    });
    node.pass_until("the job's end", |node| job(&node.stand).is_none());
    node.wait("a word", |node| node.seen().rings == GPUS as u64 - 1);
    let forked = nix::unistd::Pid::from_raw(forked.try_into().unwrap());
    nix::sys::signal::kill(forked, nix::sys::signal::Signal::SIGKILL).unwrap();
}

/// A directory in which users could put files in each other's place, or where reading waits for a disk, is not used.
#[test]
fn a_directory_that_is_unfit_is_said_and_not_searched() {
    if !is_root() {
        return;
    }
    let on_disk = tempfile::Builder::new()
        .tempdir_in("/var/tmp")
        .map(opened)
        .unwrap();
    let free = directory();
    fs::set_permissions(free.path(), Permissions::from_mode(0o777)).unwrap();
    for (directory, why) in [(&on_disk, "is not in shared memory"), (&free, "chmod 1777")] {
        let stand = Stand::clocked(&format!("{}{}", quick("observe"), reads(directory)));
        let deadline = Instant::now() + SOON;
        while !stand.has_event(EventKind::Fault, why) {
            assert!(Instant::now() < deadline, "{why}: {}", stand.said());
            thread::sleep(Duration::from_millis(50));
        }
        thread::sleep(Duration::from_secs(5));
        let said = stand.events(EventKind::Fault);
        assert_eq!(
            said.iter().filter(|it| it.contains(why)).count(),
            1,
            "{said:?}"
        );
    }
}
