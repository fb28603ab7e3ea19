//! The plugin as a program loads it that calls it as NCCL does (`tests/nccl/driver.c`): what is read from its ring is
//! what was played, with each copy of versions 4 to 7.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod c;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use litd_attach::ring::{Batch, Reader, Record, SLOTS, Unreadable};
use tempfile::TempDir;

/// How cargo calls the plugin.
const BUILT: &str = "liblitd_nccl.so";

/// Cargo puts the plugin beside this program, or into the folder above.
fn plugin() -> PathBuf {
    let program = env::current_exe().unwrap();
    let mut places = program.ancestors().skip(1).take(2).map(|it| it.join(BUILT));
    places.find(|it| it.exists()).unwrap()
}

/// A directory of rings.
fn directory() -> TempDir {
    tempfile::Builder::new().tempdir_in("/dev/shm").unwrap()
}

/// Who plays, and what.
struct Play<'a> {
    driver: &'a Path,
    seed: u32,
    ranks: usize,
    collectives: usize,
    mode: &'static str,
}

impl Play<'_> {
    fn begin(&self, rings: Option<&Path>) -> Child {
        let mut driver = Command::new(self.driver);
        driver.arg(plugin()).arg(self.seed.to_string());
        driver.args([self.ranks, self.collectives].map(|it| it.to_string()));
        driver.arg(self.mode).env_remove("LITD_NCCL_DIRECTORY");
        driver.stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(rings) = rings {
            driver.env("LITD_NCCL_DIRECTORY", rings);
        }
        driver.spawn().unwrap()
    }

    /// What was played, and what was said.
    fn end(&self, driver: Child) -> (Vec<String>, String) {
        let output = driver.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{:?}: {said}", output.status);
        let played = String::from_utf8(output.stdout).unwrap();
        let played = Vec::from_iter(played.lines().map(str::to_owned));
        (played, said)
    }

    fn all(&self, rings: Option<&Path>) -> (Vec<String>, String) {
        self.end(self.begin(rings))
    }
}

fn rings(directory: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(directory)
        .unwrap()
        .map(|it| it.unwrap().path());
    files
        .filter(|it| it.extension() == Some(OsStr::new("ring")))
        .collect()
}

fn ring(directory: &Path) -> File {
    let rings = rings(directory);
    assert_eq!(rings.len(), 1, "{rings:?}");
    File::open(&rings[0]).unwrap()
}

fn read(reader: &mut Reader, file: &File) -> Result<Batch, Unreadable> {
    reader.read(|at, bytes| file.read_exact_at(bytes, at))
}

/// A record in the driver's words.
fn told(record: &Record) -> String {
    format!(
        "{:x} {} {} {} {} {} {} {} {} {} {}",
        record.communicator,
        record.rank,
        record.ranks,
        record.sequence,
        record.function.name(),
        record.bytes,
        record.channels,
        record.started,
        record.stopped,
        record.start.unwrap_or(0),
        record.stop.unwrap_or(0),
    )
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[test]
fn what_arrives_is_what_was_played() {
    let programs = tempfile::tempdir().unwrap();
    for copy in c::COPIES {
        let driver = c::compiled("driver", copy, programs.path());
        for (seed, mode) in [(1, "whole"), (2, "lossy"), (3, "lossy")] {
            let directory = directory();
            let play = Play {
                driver: &driver,
                seed,
                ranks: 4,
                collectives: 3000,
                mode,
            };
            let (played, said) = play.all(Some(directory.path()));
            assert_eq!((played.len(), &*said), (12_000, ""), "{copy:?}");
            let batch = read(&mut Reader::default(), &ring(directory.path())).unwrap();
            assert_eq!((batch.lost, batch.dropped), (0, 0), "{copy:?}");
            let records = &batch.records;
            let arrived = Vec::from_iter(records.iter().map(told));
            assert!(sorted(played) == sorted(arrived), "{copy:?} {mode} differs");
            assert!(
                records
                    .iter()
                    .all(|it| it.interface == copy.0 && it.nodes == 1)
            );
            let whole = records.iter().filter(|it| it.is_whole()).count();
            match mode {
                "whole" => assert_eq!(whole, records.len()),
                _ => assert!((6000..12_000).contains(&whole), "{whole}"),
            }
            // Each rank's collectives are enqueued one after the other.
            let mut last = BTreeMap::new();
            for record in records
                .iter()
                .filter(|it| it.function.name() == "AllReduce")
            {
                let of = last.entry(record.rank).or_insert_with(BTreeMap::new);
                of.insert(record.sequence, record.enqueued);
            }
            assert!(last.values().all(|of| of.values().is_sorted()));
        }
    }
}

#[test]
fn a_reader_that_looks_now_and_then_misses_nothing_that_the_ring_still_has() {
    let programs = tempfile::tempdir().unwrap();
    let driver = c::compiled("driver", (7, 0), programs.path());
    let directory = directory();
    let play = Play {
        driver: &driver,
        seed: 4,
        ranks: 4,
        collectives: 20_000,
        mode: "whole",
    };
    let running = play.begin(Some(directory.path()));
    let mut reader = Reader::default();
    let mut batches = Vec::new();
    while rings(directory.path()).is_empty() {
        std::thread::yield_now();
    }
    let file = ring(directory.path());
    // The driver's text fills its pipe only at the end: it has written all records by then.
    let mut arrived = 0;
    while arrived < 80_000 {
        let batch = read(&mut reader, &file).unwrap();
        arrived += batch.records.len() as u64 + batch.lost;
        batches.push(batch);
    }
    let (played, _) = play.end(running);
    assert!(batches.iter().filter(|it| !it.records.is_empty()).count() > 2);
    let lost: u64 = batches.iter().map(|it| it.lost).sum();
    let records = batches.iter().flat_map(|it| &it.records);
    let arrived = sorted(records.map(told).collect());
    assert_eq!(arrived.len() as u64 + lost, 80_000);
    let played = sorted(played);
    assert!(arrived.iter().all(|it| played.binary_search(it).is_ok()));
    assert!(arrived.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn the_newest_records_take_the_place_of_the_oldest() {
    let programs = tempfile::tempdir().unwrap();
    let driver = c::compiled("driver", (5, 0), programs.path());
    let directory = directory();
    let play = Play {
        driver: &driver,
        seed: 5,
        ranks: 2,
        collectives: 20_000,
        mode: "whole",
    };
    let (played, _) = play.all(Some(directory.path()));
    let file = ring(directory.path());
    let mut reader = Reader::default();
    let batch = read(&mut reader, &file).unwrap();
    assert_eq!(
        (batch.records.len(), batch.lost),
        (SLOTS, 40_000 - SLOTS as u64)
    );
    let played = sorted(played);
    assert!(
        batch
            .records
            .iter()
            .all(|it| played.binary_search(&told(it)).is_ok())
    );
    // Nothing comes twice.
    assert_eq!(read(&mut reader, &file).unwrap().records, []);
}

#[test]
fn without_a_place_for_a_ring_the_plugin_does_nothing_and_says_why() {
    let programs = tempfile::tempdir().unwrap();
    let driver = c::compiled("driver", (6, 0), programs.path());
    let play = Play {
        driver: &driver,
        seed: 6,
        ranks: 2,
        collectives: 10,
        mode: "lossy",
    };
    let full = directory();
    for (rings, why) in [
        (None, "LITD_NCCL_DIRECTORY is not set"),
        (
            Some(full.path().join("nowhere")),
            "no file can be made in LITD_NCCL_DIRECTORY",
        ),
        (
            Some(PathBuf::from("/proc/self")),
            "no file can be made in LITD_NCCL_DIRECTORY",
        ),
        (
            Some(PathBuf::from(env!("CARGO_TARGET_TMPDIR"))),
            "LITD_NCCL_DIRECTORY is no tmpfs",
        ),
    ] {
        let (played, said) = play.all(rings.as_deref());
        assert_eq!(played, [""; 0], "{rings:?}");
        // Once for the process, not for each communicator.
        assert_eq!(said, format!("litd's plugin does nothing: {why}\n"));
        let left = rings
            .into_iter()
            .filter(|it| it.starts_with(env!("CARGO_TARGET_TMPDIR")));
        for directory in left {
            let names = fs::read_dir(directory)
                .unwrap()
                .map(|it| it.unwrap().file_name());
            let mut rings = names.filter(|it| it.as_encoded_bytes().starts_with(b"nccl-"));
            assert_eq!(rings.next(), None, "what could not be used is removed");
        }
    }
}

#[test]
fn rings_of_processes_that_have_ended_are_removed_by_the_next_one() {
    let programs = tempfile::tempdir().unwrap();
    let driver = c::compiled("driver", (4, 0), programs.path());
    let directory = directory();
    fs::write(directory.path().join("mine.ring"), "another's").unwrap();
    let play = Play {
        driver: &driver,
        seed: 7,
        ranks: 1,
        collectives: 10,
        mode: "whole",
    };
    play.all(Some(directory.path()));
    let first = rings(directory.path());
    play.all(Some(directory.path()));
    let second = rings(directory.path());
    assert_eq!((first.len(), second.len()), (2, 2));
    assert_ne!(sorted_paths(first), sorted_paths(second));
}

fn sorted_paths(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort();
    paths
}
