//! Mutated frames and random bytes on the ingest socket of the real daemon: it does not end, it
//! does not grow, and whoever behaves is served.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use litd_proto::{Bye, Class, FromHook, Hello, Kernels, Notice, Tick, frame};
use litd_rig::gpu_address;
use litd_sim::rng::Rng;
use litd_units::Nanos;

use crate::stand::{GPUS, SOON, Stand, quick, wait_for};

/// What the daemon may have at most, in KiB of its proportional set size: a debug build's code,
/// eight sessions and their samples.
const MOST: u64 = 48 * 1024;

/// Frames in the usual run.
const FRAMES: usize = 4000;

/// So many frames are sent before the daemon is asked for its status, which it answers in its turn.
const PACE: usize = 8;

fn below(rng: &mut Rng, most: usize) -> usize {
    (rng.uniform() * most as f64) as usize
}

/// A well-formed hello of one of the GPUs' ranks.
fn hello(rng: &mut Rng) -> Hello {
    let gpu = below(rng, GPUS);
    let world_size = 1 + below(rng, 9) as u32;
    Hello {
        protocol: 1,
        job: format!("fuzz{}", below(rng, 4)),
        rank: (gpu as u32).min(world_size - 1),
        local_rank: (gpu as u32).min(world_size - 1),
        world_size,
        local_world_size: world_size,
        gpu: gpu_address(gpu),
        framework: "fuzz".to_owned(),
        versions: [("torch".to_owned(), "2.9".to_owned())].into(),
        group: String::new(),
    }
}

fn kernels(rng: &mut Rng) -> Kernels {
    let count = below(rng, 50);
    let mut column =
        |most: usize| -> Vec<u32> { (0..count).map(|_| below(rng, most) as u32).collect() };
    let (name, stream) = (column(4), column(3));
    let start = column(1 << 30).into_iter().map(|at| Nanos(i64::from(at)));
    let start: Vec<Nanos> = start.collect();
    let duration_of = column(1 << 20).into_iter().map(|of| Nanos(i64::from(of)));
    let duration_of = duration_of.collect();
    Kernels {
        iteration: below(rng, 100) as u64,
        duration: Nanos(below(rng, 1 << 30) as i64),
        new_names: ["gemm", "ncclAllGather", "memcpy", "x"]
            .map(str::to_owned)
            .to_vec(),
        name,
        stream,
        class: vec![Class::Unspecified; count],
        start,
        duration_of,
        shows_collectives: below(rng, 2) == 0,
    }
}

fn message(rng: &mut Rng) -> FromHook {
    match below(rng, 10) {
        0 => FromHook::Hello(hello(rng)),
        1..=4 => FromHook::Kernels(kernels(rng)),
        8 => FromHook::Notice(Notice {
            text: "fuzz".to_owned(),
            ..Notice::default()
        }),
        9 => FromHook::Bye(Bye {
            reason: "fuzz".to_owned(),
        }),
        _ => FromHook::Tick(Tick {
            iteration: rng.next_u64() >> below(rng, 64),
            duration: Nanos((rng.next_u64() >> 1) as i64 >> below(rng, 63)),
            profiled: below(rng, 2) == 0,
            overhead: Nanos((rng.next_u64() >> 1) as i64 >> below(rng, 63)),
        }),
    }
}

/// Damages what was well-formed; one in four stays as it was.
fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..below(rng, 4) {
        let at = below(rng, bytes.len() + 1);
        match below(rng, 5) {
            0 => bytes.insert(at, rng.next_u64() as u8),
            1 => bytes.truncate(at),
            2 => bytes.extend_from_within(at..),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << below(rng, 8);
                }
            }
        }
    }
}

/// What goes over the socket next, and how many frames that is.
fn chunk(rng: &mut Rng) -> Vec<u8> {
    let mut message = message(rng).encode();
    mutate(rng, &mut message);
    let mut bytes = Vec::new();
    match below(rng, 100) {
        // No frame at all.
        0 => bytes.extend((0..below(rng, 300)).map(|_| rng.next_u64() as u8)),
        // A frame that is announced and does not come.
        1 => bytes.extend((below(rng, 8 << 20) as u32).to_le_bytes()),
        _ => {
            // An empty one is none.
            if frame::write(&mut bytes, &message).is_err() {
                bytes = vec![0; 4];
            }
        }
    }
    bytes
}

/// One hook that means no good. It goes on connecting for as long as it has frames.
struct Fuzzer<'a> {
    stand: &'a Stand,
    rng: Rng,
    stream: Option<UnixStream>,
}

impl Fuzzer<'_> {
    fn connection(&mut self) -> &mut UnixStream {
        let Self { stand, rng, stream } = self;
        stream.get_or_insert_with(|| {
            let mut stream = UnixStream::connect(stand.rig.layout().ingest()).unwrap();
            stream.set_write_timeout(Some(SOON)).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_millis(1)))
                .unwrap();
            // Most get in, so that what follows is looked at.
            if below(rng, 8) > 0 {
                let mut bytes = Vec::new();
                frame::write(&mut bytes, &FromHook::Hello(hello(rng)).encode()).unwrap();
                let _ = stream.write_all(&bytes);
            }
            stream
        })
    }

    fn send(&mut self) {
        let bytes = chunk(&mut self.rng);
        let read = below(&mut self.rng, 16) == 0;
        let stream = self.connection();
        let mut gone = stream.write_all(&bytes).is_err();
        if read {
            // Some never read what they are told.
            gone |= matches!(stream.read(&mut [0; 512]), Ok(0));
        }
        if gone || below(&mut self.rng, 200) == 0 {
            self.stream = None;
        }
    }
}

/// Eight hooks that mean no good send so many frames in turns. Answers the most memory that was seen,
/// in KiB.
pub fn mutated_frames(stand: &Stand, frames: usize) -> u64 {
    let mut fuzzers: Vec<Fuzzer<'_>> = (0..8)
        .map(|index| Fuzzer {
            stand,
            rng: Rng::stream(1, &[index]),
            stream: None,
        })
        .collect();
    let mut most = 0;
    for sent in 0..frames {
        let count = fuzzers.len();
        fuzzers[sent % count].send();
        // A daemon that gets little of the processor would refuse connections after many more frames, none of
        // which it would have looked at.
        if sent % PACE == 0 {
            stand.status();
        }
        if sent % 1000 == 0 {
            most = most.max(stand.memory());
        }
    }
    drop(fuzzers);
    most.max(stand.memory())
}

#[test]
fn no_frame_ends_or_bloats_the_daemon() {
    let frames = std::env::var("LITD_FUZZ")
        .ok()
        .and_then(|text| text.parse().ok());
    let frames: usize = frames.unwrap_or(FRAMES);
    let limits = "limits.sessions = 32\nlimits.frames_per_second = 100000.0\n\
                  limits.connections_per_second = 100000.0\n\
                  jobs.reconnect_seconds = 2.0\n";
    let config = format!("{}{limits}log.level = \"error\"\n", quick("gpu-realloc"));
    let stand = Stand::real(&config);
    let first = stand.memory();
    let most = first.max(mutated_frames(&stand, frames));
    assert!(most < MOST, "{first} KiB at first, up to {most} KiB");
    let status = stand.status();
    let taken = status.totals.frames;
    assert!(
        taken as usize > frames / 4,
        "{taken} of {frames} frames were looked at"
    );
    assert!(stand.counted("malformed") as usize > frames / 50);
    // Ranks that lost their connections are waited for; then the GPUs are free again.
    let deadline = Instant::now() + SOON;
    let job = loop {
        let mut job = stand
            .rig
            .attach(litd_rig::JobSpec::new("train", 0..GPUS))
            .unwrap();
        match job.welcome(Duration::from_secs(1)) {
            Ok(()) => break job,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        drop(job);
        std::thread::sleep(Duration::from_millis(200));
    };
    let mut job = job;
    wait_for("steering", || {
        job.run_iteration();
        std::thread::sleep(Duration::from_millis(20));
        stand.job_status("train").adjustments > 0
    });
    stand.stop();
}
