//! What an event costs the thread that NCCL calls the plugin from: `cargo bench -p litd-nccl`. Threads play ranks of
//! one process, each with a collective on 16 channels after the other, through the functions that NCCL calls. Each call
//! is timed by itself, so a number includes reading the clock twice, which is measured and printed as well.
#![allow(clippy::unwrap_used, reason = "in benchmarks a panic is the report")]
#![allow(unsafe_code, reason = "the functions are those that C calls")]

#[path = "../../../../tests/benches/common/measured.rs"]
mod measured;

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::ptr;
use std::thread;
use std::time::Instant;

use litd_nccl::abi::{Coll, Descriptor, KernelCh, StateArgs, ncclProfiler_v7};
use measured::{Nothing, Samples};

/// The limit of a call, in nanoseconds, that 99 % of the calls are to keep.
const LIMIT: f64 = 1000.0;

/// Collectives of each thread.
const COLLECTIVES: u64 = 40_000;
const CHANNELS: u8 = 16;

/// The kinds of calls.
const CALLS: [&str; 5] = [
    "reading the clock twice",
    "a collective begins",
    "a kernel begins on a channel",
    "a kernel ends on a channel",
    "an event that is not followed",
];

/// Nanoseconds of each call, by kind.
type Times = [Vec<u32>; CALLS.len()];

fn timed(times: &mut Vec<u32>, call: impl FnOnce()) {
    let began = Instant::now();
    call();
    times.push(u32::try_from(began.elapsed().as_nanos()).unwrap_or(u32::MAX));
}

fn start(context: *mut c_void, event: &Descriptor) -> *mut c_void {
    let mut handle = ptr::null_mut();
    // SAFETY: the handle may be written, and the description is a whole one.
    unsafe { (ncclProfiler_v7.start_event)(context, &raw mut handle, event) };
    handle
}

/// A rank's calls.
fn play(rank: c_int) -> Times {
    let mut times = Times::default();
    let (mut context, mut mask) = (ptr::null_mut(), 0);
    // SAFETY: both may be written, and nothing is logged.
    unsafe {
        (ncclProfiler_v7.init)(
            &raw mut context,
            7,
            &raw mut mask,
            ptr::null(),
            1,
            8,
            rank,
            None,
        );
    }
    assert!(!context.is_null(), "the plugin does nothing");
    for number in 0..COLLECTIVES {
        let coll = Coll::new(number, c"AllReduce", 1 << 20, c"ncclBfloat16", CHANNELS);
        let event = Descriptor::collective(rank, coll);
        let mut parent = ptr::null_mut();
        timed(&mut times[0], || ());
        timed(&mut times[1], || parent = start(context, &event));
        assert!(!parent.is_null(), "the plugin follows no collective");
        for channel in 0..CHANNELS {
            let timer = number * 1000 + u64::from(channel);
            let event = Descriptor::kernel(parent, KernelCh { channel, timer });
            let mut handle = ptr::null_mut();
            timed(&mut times[2], || handle = start(context, &event));
            let args = StateArgs { timer: timer + 500 };
            timed(&mut times[3], || {
                // SAFETY: the handle is any, and the state's arguments are there.
                unsafe { (ncclProfiler_v7.record_event_state)(handle, 22, &raw const args) };
            });
        }
        let other = Descriptor {
            kind: 1 << 9,
            ..Descriptor::collective(rank, coll)
        };
        timed(&mut times[4], || {
            black_box(start(context, &other));
        });
    }
    // SAFETY: the context is what `init` said.
    unsafe { (ncclProfiler_v7.finalize)(context) };
    times
}

fn main() -> Result<(), Nothing> {
    let directory = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("LITD_NCCL_DIRECTORY", directory.path()) };
    for threads in [1, 2, 8] {
        let ranks: Vec<_> = (0..threads)
            .map(|rank| thread::spawn(move || play(rank)))
            .collect();
        let mut all = Times::default();
        for rank in ranks {
            for (all, own) in all.iter_mut().zip(rank.join().unwrap()) {
                all.extend(own);
            }
        }
        println!(
            "{threads} thread(s), ns a call: mean, half, 99 %, most; 99 % of the limit of {LIMIT}"
        );
        for (name, times) in CALLS.iter().zip(all) {
            let times: Vec<f64> = times.into_iter().map(f64::from).collect();
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            let samples = Samples::new(name, COLLECTIVES as usize, times)?;
            let [half, most_99, most] = [50, 99, 100].map(|it| samples.percentile(it));
            let ratio = most_99 / LIMIT;
            println!("  {name:<30} {mean:7.0} {half:7.0} {most_99:7.0} {most:9.0} {ratio:6.2}");
        }
    }
    Ok(())
}
