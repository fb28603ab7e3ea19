//! The results of a trial.

use litd_units::{Nanos, Prices, Watts};
use serde::{Deserialize, Serialize};

use crate::block::{Block, RULE};
use crate::design::{Arm, Design};
use crate::estimate::Estimate;
use crate::power::{quads_for, quads_to_stop, upper_bound};
use crate::{CONFIDENCE, FREE, HARM, LOOK};

/// Precisions (shares of throughput) for which a report says how many more blocks they need.
const PRECISIONS: [f64; 3] = [0.002, 0.001, 0.0005];

/// Harms (shares of throughput) for which a report says after how many blocks they are stopped.
const LOSSES: [f64; 3] = [0.01, 0.005, 0.002];

/// Arms of which one has more iterations left out than chance explains can't be compared: so many
/// deviations apart.
const UNEQUAL: f64 = 4.0;

/// Where a trial is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The trial waits until the job's caps are balanced.
    Waiting,
    /// Blocks are being measured.
    Running,
    /// All blocks are measured.
    Complete,
    /// The trial ended early; `why` has the reason.
    Aborted,
}

impl State {
    /// Whether nothing more will come.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Complete | Self::Aborted)
    }

    /// The name that the JSON has.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Complete => "complete",
            Self::Aborted => "aborted",
        }
    }
}

/// The conclusion of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Not all blocks are measured: nothing yet.
    Open,
    /// Balancing is worth more than it costs.
    Pays,
    /// Steering costs more than it is worth.
    DoesNotPay,
    /// Steering makes the job slower by more than [`HARM`].
    Harm,
    /// No difference beyond what does not matter was found where there is none (A/A), or the
    /// balanced caps are those found.
    Zero,
    /// The interval allows for both.
    Undecided,
    /// The arms can't be compared, or an A/A trial differs from zero, as 1 of 20 does by chance.
    Invalid,
}

/// Blocks of one arm, together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Blocks.
    pub blocks: u32,
    /// Iterations that count.
    pub counted: u32,
    /// Iterations left out as too long.
    pub excluded: u32,
    /// Iterations left out as profiled.
    pub profiled: u32,
}

/// How many blocks something needs, from the first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Needs {
    /// The share of throughput.
    pub share: f64,
    /// Blocks in all; absent: more than can be planned.
    pub blocks: Option<u32>,
}

/// The results of a trial. Differences are B minus A, as shares of A unless said otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The job.
    pub job: String,
    /// The policy that balanced the caps.
    pub policy: String,
    /// Whether the hardware is a simulation.
    pub simulated: bool,
    /// How it was laid out.
    pub design: Design,
    /// Where it is.
    pub state: State,
    /// Why it is there, in words.
    pub why: String,
    /// The conclusion.
    pub verdict: Verdict,
    /// Blocks measured.
    pub blocks: u32,
    /// The present activity, in words; empty once it is over.
    #[serde(default)]
    pub now: String,
    /// Throughput.
    pub throughput: Option<Estimate>,
    /// Power of the job's GPUs.
    pub power: Option<Estimate>,
    /// The same in watts.
    pub watts: Option<Estimate>,
    /// GPU energy of an iteration.
    pub energy: Option<Estimate>,
    /// Power of the whole node in watts, where something measures it.
    pub node_watts: Option<Estimate>,
    /// Net value of one GPU-hour, in the prices' currency: throughput at the GPU-hour's price,
    /// less the energy's.
    pub net_value: Option<Estimate>,
    /// The prices.
    pub prices: Option<Prices>,
    /// Mean power of the job's GPUs with the caps found.
    pub power_found: Option<Watts>,
    /// GPUs of the job.
    pub gpus: u32,
    /// Blocks with the caps found.
    pub found: Counts,
    /// Blocks with the balanced caps.
    pub balanced: Counts,
    /// By which rule iterations were left out.
    pub rule: String,
    /// How often a trial is looked at, and what that costs.
    pub looks: String,
    /// Blocks that a precision of the throughput's difference needs.
    pub precision: Vec<Needs>,
    /// Blocks within which a loss of throughput is stopped.
    pub stops: Vec<Needs>,
    /// When it began: seconds since 1970.
    pub started_unix: f64,
}

/// The subject of a report, besides its blocks.
#[derive(Debug, Clone, PartialEq)]
pub struct About {
    /// The job.
    pub job: String,
    /// The policy.
    pub policy: String,
    /// Whether the hardware is a simulation.
    pub simulated: bool,
    /// GPUs of the job.
    pub gpus: u32,
    /// The prices, if any are configured.
    pub prices: Option<Prices>,
    /// When it began: seconds since 1970.
    pub started_unix: f64,
}

/// The mean of B's blocks minus the mean of A's, of each whole quad that has it.
fn differences(blocks: &[Block], of: impl Fn(&Block) -> Option<f64>) -> Vec<f64> {
    let quads = blocks.chunks_exact(4);
    let difference = |quad: &[Block]| {
        let side = |block: &Block| match block.arm {
            Arm::Found => -0.5,
            Arm::Balanced => 0.5,
        };
        quad.iter()
            .map(|block| Some(side(block) * of(block)?))
            .sum()
    };
    quads.filter_map(difference).collect()
}

fn counts(blocks: &[Block], arm: Arm) -> Counts {
    let of_arm = blocks.iter().filter(|block| block.arm == arm);
    of_arm.fold(Counts::default(), |sum, block| Counts {
        blocks: sum.blocks + 1,
        counted: sum.counted.saturating_add(block.times.counted),
        excluded: sum.excluded.saturating_add(block.times.excluded),
        profiled: sum.profiled.saturating_add(block.times.profiled),
    })
}

/// Whether one arm has more iterations left out than chance explains.
fn unequal(found: Counts, balanced: Counts) -> bool {
    let all = |counts: Counts| f64::from(counts.counted) + f64::from(counts.excluded);
    let (a, b) = (all(found), all(balanced));
    if a == 0.0 || b == 0.0 {
        return false;
    }
    let share = |counts: Counts| f64::from(counts.excluded) / all(counts);
    let mean = (f64::from(found.excluded) + f64::from(balanced.excluded)) / (a + b);
    // A single iteration more or less at each end of each block is no difference.
    let edge = f64::from(found.blocks.max(balanced.blocks)) / a.min(b);
    let deviation = (mean * (1.0 - mean) * (1.0 / a + 1.0 / b)).sqrt();
    (share(found) - share(balanced)).abs() > UNEQUAL * deviation + edge
}

/// Whether the whole quads so far show harm, at the confidence that looking on the way needs.
#[must_use]
pub fn harm(blocks: &[Block]) -> Option<Estimate> {
    let logs = differences(blocks, Block::log_throughput);
    let it = Estimate::of(&logs, LOOK)?.exponential();
    (it.high < -HARM).then_some(it)
}

impl Report {
    /// A report on a trial that has no block yet.
    #[must_use]
    pub fn new(about: About, design: Design) -> Self {
        Self {
            job: about.job,
            policy: about.policy,
            simulated: about.simulated,
            design,
            state: State::Waiting,
            why: String::new(),
            verdict: Verdict::Open,
            blocks: 0,
            now: String::new(),
            throughput: None,
            power: None,
            watts: None,
            energy: None,
            node_watts: None,
            net_value: None,
            prices: about.prices,
            power_found: None,
            gpus: about.gpus,
            found: Counts::default(),
            balanced: Counts::default(),
            rule: RULE.to_owned(),
            looks: format!(
                "after every quad, for harm only, at {:.1} % confidence (Haybittle-Peto); the \
                 intervals of a complete trial are at {:.0} %",
                LOOK * 100.0,
                CONFIDENCE * 100.0
            ),
            precision: Vec::new(),
            stops: Vec::new(),
            started_unix: about.started_unix,
        }
    }

    /// Works out what the blocks come to so far.
    pub fn update(&mut self, blocks: &[Block]) {
        self.blocks = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
        (self.found, self.balanced) = (counts(blocks, Arm::Found), counts(blocks, Arm::Balanced));
        let power = |block: &Block| block.power.map(|power| power.0);
        let log_power = |block: &Block| power(block).map(f64::ln);
        let estimate =
            |of: &dyn Fn(&Block) -> Option<f64>| Estimate::of(&differences(blocks, of), CONFIDENCE);
        self.throughput = estimate(&Block::log_throughput).map(Estimate::exponential);
        self.power = estimate(&log_power).map(Estimate::exponential);
        self.watts = estimate(&power);
        let log_energy = |block: &Block| Some(log_power(block)? - block.log_throughput()?);
        self.energy = estimate(&log_energy).map(Estimate::exponential);
        self.node_watts = estimate(&|block: &Block| block.node_power.map(|power| power.0));
        let found = blocks.iter().filter(|block| block.arm == Arm::Found);
        let powers: Option<Vec<f64>> = found.map(power).collect();
        self.power_found = powers
            .filter(|powers| !powers.is_empty())
            .map(|powers| Watts(powers.iter().sum::<f64>() / powers.len() as f64));
        self.net_value = self.net_value(blocks);
        self.plan();
        self.judge();
    }

    /// Net value per quad: paired like everything else. Where the node's power is measured it is
    /// what is paid for, otherwise the GPUs' is.
    fn net_value(&self, blocks: &[Block]) -> Option<Estimate> {
        let prices = self.prices?;
        let gpus = f64::from(self.gpus.max(1));
        let value = |quad: &[Block]| {
            let faster = differences(quad, Block::log_throughput).pop()?.exp_m1();
            let node = differences(quad, |block| Some(block.node_power?.0)).pop();
            let watts = node.or_else(|| differences(quad, |it| Some(it.power?.0)).pop())?;
            let energy = watts / 1e3 / gpus * prices.energy_per_kwh;
            Some(prices.gpu_hour * faster - energy)
        };
        let values: Option<Vec<f64>> = blocks.chunks_exact(4).map(value).collect();
        Estimate::of(&values?, CONFIDENCE)
    }

    /// How many blocks precisions and stops need, as far as the quads so far tell.
    fn plan(&mut self) {
        let Some(it) = self.throughput else {
            return;
        };
        let deviation = upper_bound(it.deviation, it.count);
        let needs = |quads: Option<u32>, share| Needs {
            share,
            blocks: quads.map(|quads| quads.saturating_mul(4)),
        };
        let precision = |share| needs(quads_for(deviation, share, CONFIDENCE), share);
        self.precision = PRECISIONS.map(precision).to_vec();
        self.stops = LOSSES
            .map(|share| needs(quads_to_stop(deviation, share), share))
            .to_vec();
    }

    fn judge(&mut self) {
        self.verdict = match (self.state, self.throughput) {
            _ if self.verdict == Verdict::Harm => Verdict::Harm,
            (State::Complete, Some(it)) => self.final_verdict(&it),
            _ => Verdict::Open,
        };
    }

    fn final_verdict(&self, throughput: &Estimate) -> Verdict {
        if unequal(self.found, self.balanced) {
            return Verdict::Invalid;
        }
        if self.design.same {
            let nothing = throughput.low >= -FREE && throughput.high <= FREE;
            return match nothing || throughput.holds_zero() {
                true => Verdict::Zero,
                false => Verdict::Invalid,
            };
        }
        if throughput.high < -HARM {
            return Verdict::Harm;
        }
        if let Some(value) = &self.net_value {
            return match value {
                value if value.low > 0.0 => Verdict::Pays,
                value if value.high < 0.0 => Verdict::DoesNotPay,
                _ => Verdict::Undecided,
            };
        }
        let saves = self.power.is_some_and(|power| power.high < 0.0);
        if throughput.low >= -FREE && (saves || throughput.low > 0.0) {
            return Verdict::Pays;
        }
        match throughput.high < -FREE {
            true => Verdict::DoesNotPay,
            false => Verdict::Undecided,
        }
    }

    /// All blocks are measured.
    pub fn complete(&mut self, blocks: &[Block]) {
        self.state = State::Complete;
        self.now.clear();
        "all blocks are measured".clone_into(&mut self.why);
        self.update(blocks);
    }

    /// Ends the trial before all blocks are measured.
    pub fn abort(&mut self, why: &str) {
        self.state = State::Aborted;
        self.now.clear();
        why.clone_into(&mut self.why);
        self.verdict = Verdict::Open;
    }

    /// Ends the trial because steering does harm.
    pub fn stop_for_harm(&mut self, why: &str) {
        self.abort(why);
        self.verdict = Verdict::Harm;
    }

    /// There is nothing to compare: the balanced caps are those found.
    pub fn nothing_to_do(&mut self, why: &str) {
        self.state = State::Complete;
        self.now.clear();
        why.clone_into(&mut self.why);
        self.verdict = Verdict::Zero;
    }

    /// The time left, if nothing delays it.
    #[must_use]
    pub fn left(&self) -> Nanos {
        let one = self.design.block.0.saturating_add(self.design.settle.0);
        let blocks = self.design.blocks().saturating_sub(self.blocks);
        Nanos(one.saturating_mul(i64::from(blocks)))
    }

    /// Whether it may be said that power was saved: a complete trial's interval is below zero.
    #[must_use]
    pub fn saved(&self) -> bool {
        self.speaks() && self.power.is_some_and(|power| power.high < 0.0)
    }

    /// Whether it may be said that the job was faster.
    #[must_use]
    pub fn faster(&self) -> bool {
        self.speaks() && self.throughput.is_some_and(|it| it.low > 0.0)
    }

    /// Whether it may be said that the job was slower.
    #[must_use]
    pub fn slower(&self) -> bool {
        let shown = self.throughput.is_some_and(|it| it.high < 0.0);
        (self.speaks() && shown) || self.verdict == Verdict::Harm
    }

    fn speaks(&self) -> bool {
        let valid = !matches!(
            self.verdict,
            Verdict::Open | Verdict::Invalid | Verdict::Zero
        );
        self.state == State::Complete && valid && !self.design.same
    }
}
