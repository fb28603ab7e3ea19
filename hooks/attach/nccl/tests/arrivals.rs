//! From NCCL's calls to leads: ranks whose GPUs' clocks are apart, and one of which is late.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]
#![allow(unsafe_code, reason = "the functions are those that C calls")]

use std::ffi::{CStr, c_int, c_void};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::ptr;

use litd_attach::ring::{Communicators, Reader, Record, Timed};
use litd_nccl::abi::{Coll, Descriptor, KernelCh, StateArgs, ncclProfiler_v7};
use litd_traces::arrivals::{Arrival, arrivals};
use litd_units::Nanos;

const RANKS: usize = 4;
const COLLECTIVES: usize = 300;
const CHANNELS: u8 = 3;

/// When each rank comes to the collective with this number, by one clock, in microseconds: rank 2 is late by 800 to
/// 1,200, the others within 60.
fn comes(rank: usize, number: usize) -> u64 {
    let late = if rank == 2 {
        800 + 100 * (number as u64 % 5)
    } else {
        20 * rank as u64
    };
    5_000 * number as u64 + late
}

/// When it ends on all: a transfer after the last has come. Transfers differ in length.
fn ends(number: usize) -> u64 {
    comes(2, number) + 300 + 50 * (number as u64 % 7)
}

fn start(context: *mut c_void, event: &Descriptor) -> *mut c_void {
    let mut handle = ptr::null_mut();
    // SAFETY: the handle may be written, and the description is a whole one.
    unsafe { (ncclProfiler_v7.start_event)(context, &raw mut handle, event) };
    handle
}

/// Plays a job whose GPUs' clocks count so many ticks in a microsecond and are apart.
fn play(hash: u64, ticks: u64) {
    const FUNCTIONS: [&CStr; 3] = [c"AllReduce", c"AllGather", c"Broadcast"];
    for rank in 0..RANKS {
        let (mut context, mut mask) = (ptr::null_mut(), 0);
        // SAFETY: both may be written, and nothing is logged.
        unsafe {
            let (ranks, rank) = (RANKS as c_int, rank as c_int);
            (ncclProfiler_v7.init)(
                &raw mut context,
                hash,
                &raw mut mask,
                ptr::null(),
                1,
                ranks,
                rank,
                None,
            );
        }
        assert_eq!(mask, 1 << 1 | 1 << 6);
        let ahead = 7_000_000 + 3_333 * rank as u64;
        for number in 0..COLLECTIVES {
            let function = FUNCTIONS[number % 3];
            let coll = Coll::new(number as u64 / 3, function, 1000, c"ncclFloat32", CHANNELS);
            let parent = start(context, &Descriptor::collective(rank as c_int, coll));
            for channel in 0..CHANNELS {
                // Channels begin one after the other, and end so.
                let timer = |time: u64| (time + ahead) * ticks;
                let kernel = KernelCh {
                    channel,
                    timer: timer(comes(rank, number)) + u64::from(channel),
                };
                let handle = start(context, &Descriptor::kernel(parent, kernel));
                let args = StateArgs {
                    timer: timer(ends(number)) - u64::from(channel),
                };
                // SAFETY: the handle is NCCL's to choose, and the state's arguments are there.
                unsafe { (ncclProfiler_v7.record_event_state)(handle, 22, &raw const args) };
            }
        }
        // SAFETY: the context is what `init` said.
        unsafe { (ncclProfiler_v7.finalize)(context) };
    }
}

/// The same record, handed over when the played job would have: the test itself takes no second.
fn as_played(record: Record) -> Record {
    let kind = ["AllReduce", "AllGather", "Broadcast"]
        .iter()
        .position(|it| *it == record.function.name());
    let number = 3 * record.sequence + kind.unwrap() as u64;
    Record {
        enqueued: 5_000_000 * number,
        ..record
    }
}

#[test]
fn leads_and_waits_are_those_of_one_clock() {
    let directory = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
    // SAFETY: this program has one test, and no other thread that reads the environment.
    unsafe { std::env::set_var("LITD_NCCL_DIRECTORY", directory.path()) };
    play(0xb200, 1_000);
    play(0x300, 100);
    let ring = fs::read_dir(directory.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let ring = File::open(ring.path()).unwrap();
    let batch = Reader::default()
        .read(|at, bytes| ring.read_exact_at(bytes, at))
        .unwrap();
    assert_eq!(batch.records.len(), 2 * RANKS * COLLECTIVES);
    assert_eq!(
        (batch.dropped, batch.pid),
        (0, u64::from(std::process::id()))
    );

    let mut communicators = Communicators::default();
    communicators.add(batch.records.into_iter().map(as_played));
    let hashes = Vec::from_iter(communicators.shared().map(|it| it.0));
    assert_eq!(hashes, [0x300, 0xb200]);

    for hash in hashes {
        let told = communicators
            .within(hash, 0, u64::MAX)
            .into_values()
            .map(|of_rank| {
                let arrival = |it: Timed| Arrival {
                    function: it.function,
                    sequence: it.sequence,
                    bytes: it.bytes,
                    start: it.start,
                    end: it.end,
                };
                of_rank.into_iter().map(arrival).collect()
            });
        let told = Vec::<Vec<Arrival>>::from_iter(told);
        assert!(told.iter().all(|it| it.len() == COLLECTIVES));
        let found = arrivals(&told).unwrap();
        assert_eq!(found.collectives(), COLLECTIVES);
        // The median rank's clock stands for all.
        let ahead = [-4_999_500, -1_666_500, 1_666_500, 4_999_500].map(Nanos);
        assert_eq!(found.skew().ahead_ns, ahead);
        assert_eq!(found.last_in(), [0, 0, COLLECTIVES, 0]);
        for (rank, (leads, wait)) in found.leads().iter().zip(found.waits()).enumerate() {
            let lead = |number| (comes(2, number) - comes(rank, number)) * 1_000;
            let wanted: u64 = (0..COLLECTIVES).map(lead).sum();
            // NCCL's own granularity is coarser than the error of a clock that was set right.
            assert!(
                (leads.sum_ns.0 - wanted as i64).abs() < 50_000,
                "{rank}: {leads:?} {wanted}"
            );
            assert_eq!(wait, leads.sum_ns, "each waits until the last has come");
        }
        let pieces = found.pieces(0);
        assert_eq!(pieces.len(), COLLECTIVES);
        let joined = pieces
            .windows(2)
            .all(|it| it[0].start + it[0].duration == it[1].start);
        assert!(joined);
        assert_eq!(pieces[4].name, "from AllGather");
    }
}
