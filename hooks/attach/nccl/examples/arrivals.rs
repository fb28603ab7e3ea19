//! Shows who waits for whom at the collectives of the jobs whose rings are in a directory:
//!
//!     cargo run --release -p litd-nccl --example arrivals -- DIRECTORY
//!
//! Every two seconds, for each communicator with several ranks here: each rank's mean lead, how long it waits in a
//! second, and to how many collectives it comes last. A lead is good to what collectives disagree about the clocks.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use litd_attach::ring::{BYTES, Communicators, Reader, Timed};
use litd_traces::arrivals::{Arrival, Arrivals, arrivals};
use nix::fcntl::OFlag;

const EVERY: Duration = Duration::from_secs(2);
/// Collectives that are looked at: of so much before the newest one, which some ranks have not ended yet.
const WINDOW: u64 = 1_000_000_000;
const UNFINISHED: u64 = 500_000_000;
/// What is kept: the unit of a clock takes a second to tell.
const KEPT: u64 = 8_000_000_000;

/// A ring that is read, and whose it is.
struct Ring {
    file: File,
    reader: Reader,
    uid: u32,
}

impl Ring {
    fn open(path: &Path) -> io::Result<Self> {
        let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() != BYTES as u64 {
            return Err(io::Error::other("it is no ring"));
        }
        Ok(Self {
            file,
            reader: Reader::default(),
            uid: metadata.uid(),
        })
    }
}

/// Opens rings that are new, and reads all; users' communicators are kept apart.
fn read(
    directory: &Path,
    rings: &mut BTreeMap<PathBuf, Ring>,
    users: &mut BTreeMap<u32, Communicators>,
    refused: &mut BTreeSet<PathBuf>,
) -> io::Result<()> {
    for path in fs::read_dir(directory)?.flatten().map(|it| it.path()) {
        let is_ring = path.extension() == Some(OsStr::new("ring"));
        if !is_ring || rings.contains_key(&path) || refused.contains(&path) {
            continue;
        }
        match Ring::open(&path) {
            Ok(ring) => drop(rings.insert(path, ring)),
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                refused.insert(path);
            }
        }
    }
    rings.retain(|path, ring| {
        let file = &ring.file;
        match ring.reader.read(|at, bytes| file.read_exact_at(bytes, at)) {
            Ok(batch) => {
                if batch.lost > 0 {
                    eprintln!(
                        "{}: {} collectives were overwritten",
                        path.display(),
                        batch.lost
                    );
                }
                users.entry(ring.uid).or_default().add(batch.records);
                path.exists()
            }
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                refused.insert(path.clone());
                false
            }
        }
    });
    Ok(())
}

fn show(communicator: u64, ranks: &[u32], found: &Arrivals) {
    let count = found.collectives();
    let apart = found
        .skew()
        .uncertainty_ns
        .iter()
        .max()
        .map_or(0.0, |it| it.0 as f64 / 1e3);
    println!(
        "communicator {communicator:016x}: {count} collectives, clocks known to {apart:.1} us"
    );
    let each = found
        .leads()
        .into_iter()
        .zip(found.waits())
        .zip(found.last_in());
    for (rank, ((leads, waits), last)) in ranks.iter().zip(each) {
        let lead = leads.sum_ns.0 as f64 / 1e3 / count.max(1) as f64;
        let waits = waits.0 as f64 / 1e6 / (WINDOW as f64 / 1e9);
        println!(
            "  rank {rank:<5} leads by {lead:9.1} us   waits {waits:8.2} ms/s   last in {last}"
        );
    }
}

/// Shows the newest second of each communicator.
fn look(communicators: &Communicators) {
    for (communicator, newest) in communicators.shared() {
        let until = newest.enqueued.saturating_sub(UNFINISHED);
        let from = until.saturating_sub(WINDOW);
        let arrival = |it: Timed| Arrival {
            function: it.function,
            sequence: it.sequence,
            bytes: it.bytes,
            start: it.start,
            end: it.end,
        };
        let within = communicators.within(communicator, from, until);
        let ranks = Vec::from_iter(within.keys().copied());
        let told = within
            .into_values()
            .map(|it| it.into_iter().map(arrival).collect());
        match arrivals(&Vec::from_iter(told)) {
            Ok(found) => show(communicator, &ranks, &found),
            Err(why) => println!("communicator {communicator:016x}: {why}"),
        }
    }
}

fn main() -> io::Result<()> {
    let Some(directory) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err(io::Error::other(
            "name the directory in LITD_NCCL_DIRECTORY",
        ));
    };
    let (mut rings, mut users) = (BTreeMap::new(), BTreeMap::new());
    let mut refused = BTreeSet::new();
    loop {
        read(&directory, &mut rings, &mut users, &mut refused)?;
        for communicators in users.values_mut() {
            look(communicators);
            let newest = communicators.newest().unwrap_or(0);
            communicators.forget_before(newest.saturating_sub(KEPT));
        }
        sleep(EVERY);
    }
}
