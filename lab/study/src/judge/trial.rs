//! What a trial would have concluded, and after how long: the daemon's own statistics on blocks
//! whose iterations are drawn again from those that the plant ran.

use litd_sim::rng::Rng;
use litd_trial::report::About;
use litd_trial::{Arm, Block, Design, Iterations, Prices, Report, Verdict, report};
use litd_units::{Nanos, Watts};

use crate::steered::Ran;

/// As `[trial]` and `[settle]` have it without a configuration.
const QUADS: u32 = 12;
const BLOCK: Nanos = Nanos(300_000_000_000);
const SETTLE: Nanos = Nanos(60_000_000_000);
const LEAST: u32 = 20;
/// So many iterations that followed each other are drawn together, so that their correlation stays.
const TOGETHER: usize = 20;

/// What came of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Concluded {
    /// What it shows.
    pub verdict: Verdict,
    /// When, from its begin.
    pub hours: f64,
}

/// Both arms' iterations.
pub struct Arms<'a> {
    /// With the caps found.
    pub found: &'a [Ran],
    /// With those that the law ended with.
    pub balanced: &'a [Ran],
}

/// Runs the trial. `moved`: whether the arms differ at all.
#[must_use]
pub fn conclude(
    arms: &Arms,
    moved: bool,
    gpus: usize,
    prices: Option<Prices>,
    seed: u64,
) -> Concluded {
    let design = Design {
        quads: QUADS,
        block: BLOCK,
        settle: SETTLE,
        iterations: LEAST,
        seed,
        same: false,
    };
    let about = About {
        job: "SIMULATED".to_owned(),
        policy: String::new(),
        simulated: true,
        gpus: u32::try_from(gpus).unwrap_or(u32::MAX),
        prices,
        started_unix: 0.0,
    };
    let mut it = Report::new(about, design);
    let hours = |blocks: u32| (BLOCK + SETTLE).as_secs_f64() * f64::from(blocks) / 3600.0;
    if !moved || arms.found.is_empty() || arms.balanced.is_empty() {
        return Concluded {
            verdict: Verdict::Zero,
            hours: 0.0,
        };
    }
    let mut blocks = Vec::new();
    for number in 0..design.blocks() {
        let arm = design.arm(number);
        let runs = match arm {
            Arm::Found => arms.found,
            Arm::Balanced => arms.balanced,
        };
        let mut rng = Rng::stream(seed, &[0x7a1a1, u64::from(number)]);
        blocks.extend(block(arm, runs, &mut rng));
        if number % 4 == 3 && report::harm(&blocks).is_some() {
            return Concluded {
                verdict: Verdict::Harm,
                hours: hours(number + 1),
            };
        }
    }
    it.complete(&blocks);
    Concluded {
        verdict: it.verdict,
        hours: hours(design.blocks()),
    }
}

/// One block of iterations drawn from these.
fn block(arm: Arm, runs: &[Ran], rng: &mut Rng) -> Option<Block> {
    let mut times = Iterations::default();
    let (mut length, mut gpus, mut node, mut count) = (0.0, 0.0, 0.0, 0);
    let enough = BLOCK.to_millis().0;
    while length < enough || count < u64::from(LEAST) {
        let begin = (rng.uniform() * runs.len() as f64) as usize;
        for step in 0..TOGETHER {
            let it = runs[(begin + step) % runs.len()];
            times.add(count, it.time.to_nanos(), false);
            count += 1;
            length += it.time.0;
            gpus += it.time.0 * it.gpus.0;
            node += it.time.0 * it.node.0;
        }
        if !(length > 0.0) {
            return None;
        }
    }
    Some(Block {
        arm,
        times: times.times()?,
        power: Some(Watts(gpus / length)),
        node_power: Some(Watts(node / length)),
    })
}

/// A verdict as users read it.
#[must_use]
pub fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Open => "open",
        Verdict::Pays => "pays",
        Verdict::DoesNotPay => "does-not-pay",
        Verdict::Harm => "harm",
        Verdict::Zero => "zero",
        Verdict::Undecided => "undecided",
        Verdict::Invalid => "invalid",
    }
}
