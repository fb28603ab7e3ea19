//! `litctl trace`: files that processes write are moved, or left where they are with the reason.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use litd::process::Stat;
use litd_api::{
    RingsSeen, SampledJob, TraceStage, TraceWish, Traceable, TraceableProcess, WishedTrace,
    WishedTraces,
};
use nix::sys::stat::Mode;
use nix::unistd::{geteuid, mkfifo};
use serde_json::Value;

use crate::standin::{Asked, Daemon, ok, problem};

fn own() -> u32 {
    std::process::id()
}

/// Where this process is said to write.
fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("litd-test-{name}_{}.json", own()))
}

/// A daemon that has this process write there.
fn daemon(name: &'static str, began: u64) -> Daemon {
    Daemon::new(move |asked: &Asked| match asked.line.as_str() {
        "POST /v1/trace" => ok(&WishedTraces {
            traces: vec![WishedTrace {
                pid: own(),
                uid: geteuid().as_raw(),
                began,
                file: file(name).display().to_string(),
            }],
            refused: Vec::new(),
        }),
        "GET /v1/trace" => ok(&Traceable {
            on: true,
            troubles: vec!["process 7 (dynolog) has the name @dynolog".to_owned()],
            processes: vec![TraceableProcess {
                pid: own(),
                uid: 1000,
                job: Some("slurm-1234".to_owned()),
                stage: TraceStage::Told,
            }],
            ..Traceable::default()
        }),
        line => problem("404 Not Found", line),
    })
}

fn began() -> u64 {
    Stat::of(own()).unwrap().began
}

#[test]
fn a_trace_is_moved_once_it_is_written() {
    let daemon = daemon("moved", began());
    let folder = tempfile::tempdir().unwrap();
    let writes = thread::spawn(|| {
        thread::sleep(Duration::from_millis(700));
        let part = file("moved").with_extension("tmp");
        fs::write(&part, "{\"traceEvents\": []}").unwrap();
        fs::rename(part, file("moved")).unwrap();
    });
    let into = folder.path().display().to_string();
    let pid = own().to_string();
    let said = daemon.text(&[
        "trace",
        &pid,
        "--into",
        &into,
        "--iterations",
        "4",
        "--json",
    ]);
    writes.join().unwrap();
    let said: Value = serde_json::from_str(&said).unwrap();
    let moved = folder.path().join(format!("trace_{}.json", own()));
    assert_eq!(said["traces"][0]["file"], moved.display().to_string());
    assert_eq!(fs::read_to_string(moved).unwrap(), "{\"traceEvents\": []}");
    assert!(!file("moved").exists());
    let asked = daemon.asked();
    let wish: TraceWish = serde_json::from_str(&asked[0].body).unwrap();
    assert_eq!((wish.pids, wish.iterations), (vec![own()], 4));
}

#[test]
fn what_stands_in_a_traces_place_is_left_there() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().display().to_string();
    fs::write(folder.path().join("secret"), "theirs").unwrap();
    let pid = own().to_string();
    symlink(folder.path().join("secret"), file("link")).unwrap();
    mkfifo(&file("pipe"), Mode::S_IRWXU).unwrap();
    for (name, why) in [("link", "a link stands there"), ("pipe", "is a named pipe")] {
        let (said, status) = daemon(name, began()).refusal(&["trace", &pid, "--into", &into]);
        assert!(said.contains(why) && status == 2, "{status}: {said}");
        assert!(file(name).symlink_metadata().is_ok());
        fs::remove_file(file(name)).unwrap();
    }
    assert!(folder.path().join("secret").exists());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    // A later process with the id is not the one that was asked.
    fs::write(file("later"), "{}").unwrap();
    let (said, _) = daemon("later", began() + 1).refusal(&["trace", &pid, "--into", &into]);
    assert!(said.contains("has ended"), "{said}");
    assert!(file("later").exists());
    fs::remove_file(file("later")).unwrap();
}

#[test]
fn the_processes_that_can_be_traced_are_listed() {
    let text = daemon("list", 0).text(&["trace"]);
    assert!(text.contains("has the name @dynolog"), "{text}");
    let line = format!(
        "process {}, user 1000, slurm-1234; was told to record a trace",
        own()
    );
    assert!(text.contains(&line), "{text}");
    // Rings are listed whether or not litd answers PyTorch's client.
    let rings = Daemon::new(|_| {
        ok(&Traceable {
            rings: Some(RingsSeen {
                directory: "/run/litd-nccl".to_owned(),
                rings: 8,
                unclaimed: 1,
                refused: vec!["nccl-7-1.ring of user 1000 is a named pipe".to_owned()],
                sampled: vec![SampledJob {
                    job: Some("train".to_owned()),
                    uid: 1000,
                    every_seconds: 2.0,
                    text: "41 samples so far".to_owned(),
                    ..SampledJob::default()
                }],
                ..RingsSeen::default()
            }),
            ..Traceable::default()
        })
    });
    let text = rings.text(&["trace"]);
    for line in [
        "8 rings of processes that use GPUs in /run/litd-nccl",
        "job train of user 1000, by its rings every 2 s: 41 samples so far",
        "1 ring that no process with a GPU writes",
        "not read: nccl-7-1.ring of user 1000 is a named pipe",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // dynolog lists no processes, so none is missing.
    let through = Daemon::new(|_| {
        ok(&Traceable {
            on: true,
            dynolog: Some("127.0.0.1:1778".to_owned()),
            ..Traceable::default()
        })
    });
    let text = through.text(&["trace"]);
    let line = "dynolog at 127.0.0.1:1778 answers PyTorch's clients here";
    assert!(
        text.contains(line) && !text.contains("no process asks"),
        "{text}"
    );
    let off = Daemon::new(|_| ok(&Traceable::default()));
    let (said, _) = off.refusal(&["trace"]);
    assert!(said.contains("attach.kineto = true"), "{said}");
}
