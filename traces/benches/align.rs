//! How long the alignment takes where it matters, beside its limits:
//! `cargo bench -p litd-traces --bench align`.

#[path = "../../tests/benches/common/measured.rs"]
mod measured;

use std::time::{Duration, Instant};

use litd_traces::{AlignError, AlignOptions, Kernel, KernelClass, Timeline, align};
use litd_units::Nanos;
use measured::{Nothing, Samples, amount, nothing};
use nix::sys::resource::{UsageWho, getrusage};

/// A small generator of numbers that look random (xorshift), so that runs are alike.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

fn timeline(rank: u32, names: impl IntoIterator<Item = String>) -> Timeline {
    let mut timeline = Timeline::new(rank, format!("rank {rank}"));
    let stream = timeline.stream("7");
    for (start, name) in (0..).map(|k| Nanos(1_000 * k)).zip(names) {
        let name = timeline.names.intern(&name);
        timeline.kernels.push(Kernel {
            name,
            stream,
            class: KernelClass::Computation,
            start,
            end: start + Nanos(900),
            collective: None,
            iteration: None,
        });
    }
    timeline
}

/// One layer's 40 kernels over and over, one in 500 left out here and there.
fn nearly_equal(rank: u32, random: &mut Random) -> Timeline {
    let kept = (0..10_000).filter(|_| random.below(500) != 0);
    timeline(rank, kept.map(|k| format!("kernel {}", k % 40)))
}

fn shuffled(rank: u32, random: &mut Random) -> Timeline {
    let mut names = Vec::from_iter((0..100_000).map(|k| k % 200));
    for k in (1..names.len()).rev() {
        names.swap(k, random.below(k + 1));
    }
    timeline(rank, names.into_iter().map(|k| format!("kernel {k}")))
}

/// The most memory this process ever held, in MiB.
fn peak_mib() -> f64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| usage.max_rss() as f64 / 1024.0)
}

fn measure(
    what: &str,
    timelines: &[Timeline],
    limit: Duration,
    check: fn(&Outcome) -> bool,
) -> Result<(), Nothing> {
    let mut times = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        let outcome = align(timelines, &AlignOptions::default());
        times.push(start.elapsed().as_secs_f64());
        if !check(&outcome) {
            return Err(nothing(what, format!("{:?}", outcome.map(|_| "leads"))));
        }
    }
    // The peak of the whole process, traces included: an upper bound of what the alignment took.
    let time = Samples::new(what, 5, times)?.percentile(50);
    let memory = amount("the memory of the alignment", peak_mib())?;
    println!(
        "{what}: {:.1} ms ({:.2} of the limit of {} ms), {memory:.1} MiB with the traces ({:.2} of 64 MiB)",
        1e3 * time,
        time / limit.as_secs_f64(),
        limit.as_millis(),
        memory / 64.0,
    );
    Ok(())
}

type Outcome = Result<litd_traces::Alignment, AlignError>;

fn main() -> Result<(), Nothing> {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let node = Vec::from_iter((0..8).map(|rank| nearly_equal(rank, &mut random)));
    let enough = |outcome: &Outcome| outcome.as_ref().is_ok_and(|a| a.matched_fraction() > 0.9);
    measure(
        "8 x 10,000 nearly equal kernels",
        &node,
        Duration::from_millis(10),
        enough,
    )?;

    let limit = Duration::from_millis(200);
    let names = |word: &'static str| (0..100_000).map(move |k| format!("{word} {k}"));
    let disjoint = [timeline(0, names("one")), timeline(1, names("another"))];
    measure(
        "2 x 100,000 kernels, no name in common, refused",
        &disjoint,
        limit,
        Outcome::is_err,
    )?;
    drop(disjoint);
    let shuffled = [shuffled(0, &mut random), shuffled(1, &mut random)];
    measure(
        "2 x 100,000 kernels, shuffled, refused",
        &shuffled,
        limit,
        Outcome::is_err,
    )
}
