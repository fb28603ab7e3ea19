//! How long the report takes once the last rank of a job is in, and what the sample takes in
//! memory, beside their limits: `cargo bench -p litd-traces --bench live`.

#[path = "../../tests/benches/common/measured.rs"]
mod measured;

use std::time::{Duration, Instant};

use litd_traces::{
    AlignError, AlignOptions, KernelClass, Live, LiveKernel, LiveReport, NameId, NameTable,
};
use litd_units::Nanos;
use measured::{Nothing, Samples, amount, nothing};

const RANKS: usize = 8;
const KERNELS: u32 = 10_000;
/// From the last rank's kernels to the report, for ranks that run the very same.
const LIMIT: Duration = Duration::from_millis(2);
/// For whatever peers make up.
const HOSTILE: Duration = Duration::from_millis(100);
/// Bytes per kernel that a sample may take.
const BYTES: f64 = 24.0;
/// So often each is measured.
const TIMES: usize = 51;

/// A small generator of numbers that look random (xorshift), so that runs are alike.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % u64::from(limit)) as u32
    }
}

fn names(count: u32) -> NameTable {
    let mut names = NameTable::default();
    // As long as real ones.
    let tail = "<float, at::native::(anonymous namespace)::Functor>".repeat(2);
    for name in 0..count {
        names.intern(&format!("void at::native::kernel_{name}{tail}(int)"));
    }
    names
}

/// A rank that runs kernels of these names in turns on these streams.
fn rank(names: impl Iterator<Item = u32>, streams: u32, random: &mut Random) -> Vec<LiveKernel> {
    let late = random.below(5_000);
    let kernel = |(k, name): (u32, u32)| LiveKernel {
        name: NameId(name),
        stream: k % streams,
        class: KernelClass::Computation,
        limit: None,
        start: Nanos(i64::from(1_000 * k + late + random.below(50))),
        duration: Nanos(i64::from(900 + random.below(300))),
    };
    (0..).zip(names).map(kernel).collect()
}

/// A layer's 40 kernels over and over, one in `dropped` left out, with one in ten a collective on
/// a stream of its own.
fn training(dropped: u32, random: &mut Random) -> Vec<LiveKernel> {
    let mut kernels = rank((0..KERNELS).map(|k| k % 40), 1, random);
    kernels.retain(|_| dropped == 0 || random.below(dropped) > 0);
    for kernel in kernels.iter_mut().filter(|kernel| kernel.name.0 % 10 == 9) {
        (kernel.stream, kernel.class) = (20, KernelClass::Communication);
    }
    kernels
}

type Outcome = Result<LiveReport, AlignError>;

fn measure(
    what: &str,
    ranks: &[Vec<LiveKernel>],
    names: &NameTable,
    limit: Duration,
    check: fn(&Outcome) -> bool,
) -> Result<(), Nothing> {
    let (mut times, mut bytes) = (Vec::new(), 0);
    for _ in 0..TIMES {
        let mut live = Live::new(ranks.len(), AlignOptions::default());
        let mut start = Instant::now();
        for (at, kernels) in ranks.iter().enumerate() {
            start = Instant::now();
            assert!(live.add(at, kernels.iter().copied()).is_ok());
        }
        bytes = live.bytes();
        let outcome = live.finish(names);
        times.push(start.elapsed().as_secs_f64());
        if !check(&outcome) {
            return Err(nothing(what, format!("{outcome:?}")));
        }
    }
    let times = Samples::new(what, TIMES, times)?;
    let [typical, worst] = [50, 100].map(|percent| times.percentile(percent));
    let kernels: usize = ranks.iter().map(Vec::len).sum();
    let per_kernel = amount("the memory of a sample", bytes as f64 / kernels as f64)?;
    println!(
        "{what}: {:.2} ms, at worst {:.2} ms ({:.2} and {:.2} of the limit of {} ms), {per_kernel:.1} bytes per kernel ({:.2} of {BYTES})",
        1e3 * typical,
        1e3 * worst,
        typical / limit.as_secs_f64(),
        worst / limit.as_secs_f64(),
        limit.as_millis(),
        per_kernel / BYTES,
    );
    Ok(())
}

fn main() -> Result<(), Nothing> {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let table = names(200);
    let mut node = |one: &mut dyn FnMut(u32, &mut Random) -> Vec<LiveKernel>| {
        Vec::from_iter((0..RANKS as u32).map(|rank| one(rank, &mut random)))
    };
    let enough = |outcome: &Outcome| outcome.as_ref().is_ok_and(|r| r.matched_fraction > 0.9);
    let alike = node(&mut |_, random| rank((0..KERNELS).map(|k| k % 40), 1, random));
    measure(
        "8 x 10,000 kernels, all computation",
        &alike,
        &table,
        LIMIT,
        enough,
    )?;
    let alike = node(&mut |_, random| training(0, random));
    measure(
        "8 x 10,000 kernels, some communication",
        &alike,
        &table,
        LIMIT,
        enough,
    )?;
    let nearly = node(&mut |_, random| training(500, random));
    measure(
        "8 x 10,000 nearly equal kernels",
        &nearly,
        &table,
        LIMIT,
        enough,
    )?;

    let most = Live::MOST_KERNELS as u32;
    let strange = node(&mut |at, random| rank((0..most / 2).map(|k| at * most / 2 + k), 1, random));
    let table = names(most / 2 * RANKS as u32);
    measure(
        "8 ranks, no name in common",
        &strange,
        &table,
        HOSTILE,
        Outcome::is_err,
    )?;
    drop(strange);
    let table = names(most);
    let random_names = node(&mut |_, random| {
        let names = Vec::from_iter((0..most).map(|_| random.below(200)));
        rank(names.into_iter(), 1, random)
    });
    measure(
        "8 ranks, shuffled",
        &random_names,
        &table,
        HOSTILE,
        Outcome::is_err,
    )?;
    let many = node(&mut |at, random| rank((0..most).map(|k| k + at), 1 << 10, random));
    measure("8 ranks, 1,024 streams", &many, &table, HOSTILE, |_| true)?;
    let foreign = node(&mut |at, random| {
        let mut kernels = rank(0..most, 64, random);
        kernels
            .iter_mut()
            .for_each(|kernel| kernel.stream += 64 * at);
        kernels
    });
    measure(
        "8 ranks, 64 streams, other numbers",
        &foreign,
        &table,
        HOSTILE,
        |_| true,
    )?;
    let spread = node(&mut |at, random| rank((0..most).filter(|k| k % 300 != at), 1, random));
    measure(
        "8 ranks, small differences",
        &spread,
        &table,
        HOSTILE,
        |_| true,
    )
}
