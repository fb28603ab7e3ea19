//! Every flood that these tests know, on a daemon that has no more memory than its unit gives it:
//! in a control group of that size, where one can be made, and by what the kernel says it takes in
//! any case. None of it ends the daemon, and a job that comes afterwards is served.

use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use litd_proto::client::Client;
use litd_proto::{Class, FromHook, Hello, Kernels, Notice, RefusalCode, ToHook};
use litd_rig::JobSpec;
use litd_units::Nanos;

use crate::fuzz;
use crate::stand::{GPUS, LITD, SOON, Stand, hello, quick, wait_for};
use crate::users::{ALICE, BOB, User, group, is_root, open};

/// The unit's memory, in bytes.
fn unit_memory() -> u64 {
    let unit = include_str!("../../systemd/litd.service");
    let line = unit.lines().find_map(|it| it.strip_prefix("MemoryMax="));
    let mebibytes: u64 = line.unwrap().strip_suffix('M').unwrap().parse().unwrap();
    mebibytes << 20
}

/// A control group whose processes have so much memory and no swap.
struct Cage(PathBuf);

impl Cage {
    /// Of version 2 or 1, whichever has the memory. Only root can make one.
    fn new(bytes: u64) -> io::Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let root = Path::new("/sys/fs/cgroup");
        let second = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        let (parent, limits) = match second.split_whitespace().any(|it| it == "memory") {
            true => (root.to_owned(), ["memory.max", "memory.swap.max"]),
            false => (
                root.join("memory"),
                ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"],
            ),
        };
        let cage = Self(parent.join(format!("litd-floods-{}-{number}", std::process::id())));
        fs::create_dir(&cage.0)?;
        fs::write(cage.0.join(limits[0]), bytes.to_string())?;
        let swap = match limits[1] {
            "memory.swap.max" => 0,
            _ => bytes,
        };
        // There need not be any.
        let _ = fs::write(cage.0.join(limits[1]), swap.to_string());
        Ok(cage)
    }

    /// Bytes that its processes take, with what the kernel keeps on their behalf.
    fn used(&self) -> u64 {
        let read = |file: &str| fs::read_to_string(self.0.join(file));
        let text = read("memory.current").or_else(|_| read("memory.usage_in_bytes"));
        text.unwrap().trim().parse().unwrap()
    }

    /// A program that joins the group and becomes the daemon.
    fn program(&self, directory: &Path) -> io::Result<PathBuf> {
        let path = directory.join("caged-litd");
        let group = self.0.join("cgroup.procs");
        let script = format!(
            "#!/bin/sh\necho $$ > '{}' || exit 99\nexec '{LITD}' \"$@\"\n",
            group.display()
        );
        fs::write(&path, script)?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        Ok(path)
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        // Its processes are gone by now, or the test has failed anyway.
        let _ = fs::remove_dir(&self.0);
    }
}

/// A number of the daemon's status, in bytes.
fn memory_of(stand: &Stand, key: &str) -> u64 {
    let path = format!("/proc/{}/status", stand.daemon().pid());
    let text = fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let number = line.unwrap().trim_start_matches(':').trim();
    number.trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn large_hello(job: &str, gpu: usize, rank: usize, ranks: u32) -> Hello {
    Hello {
        rank: rank as u32,
        local_rank: rank as u32,
        world_size: ranks,
        local_world_size: ranks,
        framework: "flood".to_owned(),
        versions: (0..31).map(|k| (format!("{k}"), "v".repeat(200))).collect(),
        ..hello(job, gpu)
    }
}

/// A rank that has been let in. The daemon may not have seen yet that those before it are gone.
fn attach(stand: &Stand, hello: Hello) -> Client {
    let deadline = Instant::now() + SOON;
    loop {
        let mut client = Client::connect(&stand.rig.layout().ingest()).unwrap();
        client.send(&FromHook::Hello(hello.clone())).unwrap();
        match client.receive(SOON).unwrap() {
            Some(ToHook::Welcome(_)) => return client,
            Some(ToHook::Refusal(refusal))
                if refusal.code == RefusalCode::Busy && Instant::now() < deadline => {}
            other => panic!("{other:?}\nlitd said:\n{}", stand.said()),
        }
    }
}

/// All ranks of one job on all GPUs.
fn attach_all(stand: &Stand, job: &str) -> Vec<Client> {
    let rank = |gpu| attach(stand, large_hello(job, gpu, gpu, GPUS as u32));
    (0..GPUS).map(rank).collect()
}

/// An iteration all of whose kernels are collectives apart from each other: what is kept of those
/// takes most.
fn kernels(iteration: u64, count: usize, new_names: Vec<String>) -> FromHook {
    FromHook::Kernels(Kernels {
        iteration,
        duration: Nanos(1_000_000_000),
        new_names,
        name: vec![0; count],
        stream: (0..count).map(|k| k as u32 % 1000).collect(),
        class: (0..count)
            .map(|k| match k % 2 {
                0 => Class::Computation,
                _ => Class::CommunicationOutside,
            })
            .collect(),
        start: (0..count).map(|k| Nanos(10_000 * k as i64)).collect(),
        duration_of: vec![Nanos(9_000); count],
        shows_collectives: true,
    })
}

fn long_names(round: usize, rank: usize) -> Vec<String> {
    let name = |k: usize| format!("{:016384}", (round * 100 + rank) * 100 + k);
    (0..63).map(name).collect()
}

/// Waits until the daemon has taken in what was sent.
fn taken_in(stand: &Stand) {
    assert_eq!(stand.ask("GET", "/v1/status", "").0, 200);
}

/// Ranks that connect anew with other names each time.
fn names_over_and_over(stand: &Stand) {
    for round in 0..20 {
        for (rank, mut client) in attach_all(stand, "names").into_iter().enumerate() {
            let message = kernels(1, 1, long_names(round, rank));
            client.send(&message).unwrap();
        }
        taken_in(stand);
    }
}

/// Iterations of which one rank's part never comes.
fn samples_never_whole(stand: &Stand) {
    let mut ranks = attach_all(stand, "samples");
    for iteration in 1..12 {
        for rank in &mut ranks[1..] {
            let names = vec!["gemm".to_owned()];
            rank.send(&kernels(iteration, 100_000, names)).unwrap();
        }
        taken_in(stand);
    }
}

/// Frames that are announced and come in part, on connections that are replaced at once.
fn frames_in_part(stand: &Stand) {
    let mut part = ((4_u32 << 20) - 1).to_le_bytes().to_vec();
    part.resize(4 << 20, 0x1a);
    let mut kept = Vec::new();
    for _ in 0..4 {
        for (gpu, mut rank) in attach_all(stand, "parts").into_iter().enumerate() {
            // It may be cut off before all is out.
            let _ = rank.send_bytes(&part[..part.len() - 100 - gpu]);
            kept.push(rank);
        }
    }
    taken_in(stand);
}

/// As many connections as there may be, with a hello each that is nearly whole.
fn strangers(stand: &Stand) {
    let mut part = (16_u32 * 1024 - 1).to_le_bytes().to_vec();
    part.resize(16 * 1024, 0x0a);
    let mut kept = Vec::new();
    for _ in 0..300 {
        let mut stream = UnixStream::connect(stand.rig.layout().ingest()).unwrap();
        let _ = stream.write_all(&part);
        kept.push(stream);
    }
    taken_in(stand);
}

/// A job on each GPU, with long texts wherever there is room for one.
fn long_texts(stand: &Stand) {
    for round in 0..12 {
        let mut ranks = Vec::new();
        for gpu in 0..GPUS {
            let job = format!("{round:0900}-{gpu}");
            ranks.push(attach(stand, large_hello(&job, gpu, 0, 1)));
        }
        for rank in &mut ranks {
            rank.send(&kernels(1, 1, long_names(round, 0))).unwrap();
            for _ in 0..10 {
                let notice = FromHook::Notice(Notice {
                    text: "\"".repeat(1000),
                    ..Notice::default()
                });
                let _ = rank.send(&notice);
            }
            let reason = "x".repeat(1000);
            let _ = rank.send(&FromHook::Bye(litd_proto::Bye { reason }));
        }
        let device = "d".repeat(60_000);
        let body = format!("{{\"command\":\"resume\",\"device\":\"{device}\"}}");
        assert_ne!(stand.ask("POST", "/v1/command", &body).0, 200);
    }
    for number in 0..500 {
        let body = format!("{{\"command\":\"end_job\",\"job\":\"slurm-{number:0100}\"}}");
        assert_eq!(stand.ask("POST", "/v1/command", &body).0, 200);
    }
}

/// Clients that ask for much and read nothing.
fn slow_readers(stand: &Stand) {
    let metrics = stand.said();
    let metrics = metrics.lines().find_map(|line| {
        let (_, address) = line.split_once("metrics on http://")?;
        address.split('/').next().map(str::to_owned)
    });
    let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: litd\r\n\r\n");
    let (mut readers, mut scrapers) = (Vec::new(), Vec::new());
    for _ in 0..60 {
        let mut stream = UnixStream::connect(stand.rig.layout().control()).unwrap();
        stream
            .write_all(request("/v1/events?after=0").as_bytes())
            .unwrap();
        readers.push(stream);
        if let Some(address) = &metrics {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(request("/metrics").as_bytes()).unwrap();
            scrapers.push(stream);
        }
    }
    assert!(!scrapers.is_empty(), "{}", stand.said());
    // Those beyond the places wait for their turn: each of the others has some seconds.
    std::thread::sleep(Duration::from_secs(6));
    let mut answered = 0;
    for stream in &mut readers {
        stream
            .set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let mut head = [0; 64];
        answered += u32::from(matches!(stream.read(&mut head), Ok(1..)));
    }
    assert!(answered > 0);
}

type Flood = (&'static str, fn(&Stand));

const FLOODS: [Flood; 8] = [
    ("names over and over", names_over_and_over),
    ("samples that never become whole", samples_never_whole),
    ("frames in part", frames_in_part),
    ("strangers", strangers),
    ("long texts", long_texts),
    ("slow readers", slow_readers),
    ("more ticks than allowed", |stand| {
        let mut job = stand.rig.attach(JobSpec::new("ticks", [7])).unwrap();
        job.welcome(SOON).unwrap();
        job.flood(0, 100_000);
    }),
    ("mutated frames", |stand| {
        fuzz::mutated_frames(stand, 2000);
    }),
];

#[test]
fn no_flood_takes_more_memory_than_the_unit_gives() {
    let config = format!(
        "{}limits.connections_per_second = 100000.0\njobs.reconnect_seconds = 0.5\n\
         log.level = \"info\"\n",
        quick("gpu-realloc")
    );
    let mut stand = Stand::bare(&config, false);
    let most = unit_memory();
    let cage = Cage::new(most);
    let program = match &cage {
        Ok(cage) => cage.program(&stand.rig.layout().directory).unwrap(),
        Err(why) => {
            println!("SKIPPED: the control group: {why}");
            PathBuf::from(LITD)
        }
    };
    let daemon = stand.rig.spawn(&program, stand.config()).unwrap();
    stand.daemon = Some(daemon);
    for (what, flood) in FLOODS {
        flood(&stand);
        let ended = stand.daemon.as_mut().unwrap().ended();
        assert!(ended.is_none(), "{what}: {ended:?}\n{}", stand.said());
        let [now, peak] = ["RssAnon", "VmHWM"].map(|key| memory_of(&stand, key) >> 20);
        println!("{what}: {now} MiB now, {peak} MiB at most so far");
        // A part of the peak is the program itself, which the group could do without.
        assert!(peak << 20 < most, "{what}: {peak} MiB");
        // The ranks that went without a word are given up, and the GPUs are free again.
        wait_for("no job", || stand.status().jobs.is_empty());
    }
    let mut job = stand.train();
    wait_for("steering", || {
        job.run_iteration();
        std::thread::sleep(Duration::from_millis(20));
        stand.job_status("train").adjustments > 0
    });
    for label in ["sample_room", "too_fast", "answers"] {
        assert!(stand.counted(label) > 0, "{label}");
    }
    job.end();
    stand.stop();
    drop(cage);
}

/// So many connections of one user; each leaves a KiB at least.
const UNREAD: usize = 9_000;

#[test]
fn what_nobody_reads_is_bounded_also_after_litd_has_closed_the_connection() {
    if !is_root() {
        return;
    }
    let cage = match Cage::new(unit_memory()) {
        Ok(cage) => cage,
        Err(why) => {
            println!("SKIPPED: the control group: {why}");
            return;
        }
    };
    let read = "control.read_group = \"adm\"\n";
    let mut stand = Stand::bare(&format!("{}{read}", quick("gpu-realloc")), false);
    let Some(adm) = group("adm") else {
        return;
    };
    let program = cage.program(&stand.rig.layout().directory).unwrap();
    stand.start_as(&program);
    stand.wait_for_found();
    open(&stand.rig.layout().directory);
    let before = cage.used();
    let mut alice = User::in_group(ALICE, adm);
    let status = b"GET /v1/status HTTP/1.1\r\nHost: litd\r\n\r\n";
    let made = alice.hoard(&stand.rig.layout().ingest(), UNREAD, b"");
    let made = made + alice.hoard(&stand.rig.layout().control(), UNREAD, status);
    let more = cage.used().saturating_sub(before) >> 10;
    println!("{made} connections: {more} KiB more");
    assert!(
        made > UNREAD && more < 8 << 10,
        "{made} connections: {more} KiB more"
    );
    assert!(stand.counted("answers") > 0);
    // She is served again once she has closed them; others are at any time.
    let control = stand.rig.layout().control();
    let mut bob = User::in_group(BOB, adm);
    assert_eq!(bob.ask(&control, "GET", "/v1/status", ""), "200");
    drop(alice);
    let mut alice = User::in_group(ALICE, adm);
    assert_eq!(alice.ask(&control, "GET", "/v1/status", ""), "200");
    stand.stop();
}
