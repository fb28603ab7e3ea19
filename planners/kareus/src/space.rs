//! The space of candidates (appendices B and C).

use litd_units::Hertz;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::candidate::Candidate;
use crate::partition::{CollectiveKind, Communication, Computation, Partition};

/// A GPU as far as the space of candidates depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// How many SMs it has.
    pub sms: u32,
    /// The lowest and the highest SM clock to which it can be locked.
    pub clocks: [Hertz; 2],
    /// From one clock to the next.
    pub stride: Hertz,
    /// The lowest clock worth a try: below it, energy rises again (footnote 11).
    pub least_clock: Hertz,
    /// The most SMs that make a communication faster.
    pub most_sms: u32,
    /// Products of matrices at the highest clock, in floating-point operations per second, from the data sheet.
    pub matrix_rate: f64,
    /// The data rate to another GPU of the same node, in bytes per second and direction, from the data sheet.
    pub link_rate: f64,
}

/// Why numbers describe no GPU.
#[derive(Debug, Clone, PartialEq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum GpuError {
    #[error(
        "a GPU has 1 to {MOST_SMS} SMs, and a communication at least 1 of them, not {most} of {sms}"
    )]
    Sms { sms: u32, most: u32 },
    #[error(
        "clocks from {lowest} to {highest} with a stride of {stride}, searched from {least}, are none: above 0, ascending, at most 4096"
    )]
    Clocks {
        lowest: Hertz,
        highest: Hertz,
        stride: Hertz,
        least: Hertz,
    },
    #[error("matrix_rate and link_rate are more than 0, and finite")]
    Rate,
}

/// No GPU has more, and all candidates still fit into memory.
const MOST_SMS: u32 = 1024;

/// The appendix's A100: 108 SMs, clocks from 210 to 1,410 MHz by 15, worth a try from 900 MHz and with up to
/// 30 SMs for a communication. Rates are from NVIDIA's data sheet (A100 40GB SXM: 312 TFLOP/s in bf16, NVLink
/// 600 GB/s in both directions together).
pub const A100: Gpu = Gpu {
    sms: 108,
    clocks: [Hertz(210e6), Hertz(1410e6)],
    stride: Hertz(15e6),
    least_clock: Hertz(900e6),
    most_sms: 30,
    matrix_rate: 312e12,
    link_rate: 300e9,
};

impl Gpu {
    /// A GPU of which only this is known: it is searched from the same part of its highest clock on, and with up
    /// to the same part of its SMs, as the appendix searches the A100.
    ///
    /// # Errors
    /// If numbers are 0 or less, or not in order.
    pub fn like_a100(
        sms: u32,
        clocks: [Hertz; 2],
        stride: Hertz,
        matrix_rate: f64,
        link_rate: f64,
    ) -> Result<Self, GpuError> {
        let steps = (A100.least_clock / A100.clocks[1] * clocks[1].0 - clocks[0].0) / stride.0;
        let most = f64::from(sms) * f64::from(A100.most_sms) / f64::from(A100.sms);
        let gpu = Self {
            sms,
            clocks,
            stride,
            least_clock: clocks[0] + stride * steps.ceil().max(0.0),
            most_sms: (most as u32).max(1),
            matrix_rate,
            link_rate,
        };
        gpu.check().map(|()| gpu)
    }

    /// Whether it can be searched.
    ///
    /// # Errors
    /// If numbers are 0 or less, or not in order.
    pub fn check(&self) -> Result<(), GpuError> {
        let (sms, most) = (self.sms, self.most_sms);
        if !((1..=MOST_SMS).contains(&sms) && (1..=sms).contains(&most)) {
            return Err(GpuError::Sms { sms, most });
        }
        let [lowest, highest] = self.clocks;
        let positive = |it: f64| it.is_finite() && it > 0.0;
        let ordered = lowest <= self.least_clock && self.least_clock <= highest;
        let steps = (highest - lowest) / self.stride;
        let few = steps <= 4096.0;
        if !(positive(lowest.0) && positive(highest.0) && positive(self.stride.0) && ordered && few)
        {
            return Err(GpuError::Clocks {
                lowest,
                highest,
                stride: self.stride,
                least: self.least_clock,
            });
        }
        match positive(self.matrix_rate) && positive(self.link_rate) {
            true => Ok(()),
            false => Err(GpuError::Rate),
        }
    }

    /// The clocks worth a try, every n-th of them, ascending; the highest is always among them.
    #[must_use]
    pub fn clocks(&self, nth: u32) -> Vec<Hertz> {
        let stride = self.stride * f64::from(nth.max(1));
        let steps = ((self.clocks[1] - self.least_clock) / stride + 1e-9) as u32;
        let mut clocks: Vec<Hertz> = (0..=steps)
            .map(|step| self.clocks[1] - stride * f64::from(step))
            .collect();
        clocks.reverse();
        clocks
    }

    /// How many candidates there are for so many overlap patterns, nothing left out (appendix B).
    #[must_use]
    pub fn global(&self, patterns: usize) -> usize {
        patterns * self.clocks(1).len() * self.most_sms as usize
    }
}

/// The candidates among which one partition is searched: every clock with every number of SMs and every launch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Space {
    clocks: Vec<Hertz>,
    sms: Vec<u32>,
    launches: Vec<usize>,
}

/// Data sheets say more than what a product of matrices reaches; less than half of it would be a poor kernel.
const POOR: f64 = 0.5;

impl Space {
    /// The space that appendix C searches: every second clock; 1, 2, ... SMs for groups of fewer than 4 GPUs (up
    /// to two thirds of what helps) and 3, 6, ... for larger ones; launches but for those that always leave
    /// communication exposed.
    #[must_use]
    pub fn searched(gpu: &Gpu, partition: &Partition) -> Self {
        let group = partition.communication.collectives.iter();
        let group = group.map(|it| it.group).max().unwrap_or(0);
        let sms = match group {
            0..=3 => (1..=(gpu.most_sms * 2 / 3).max(1)).collect(),
            _ if gpu.most_sms < 3 => vec![gpu.most_sms],
            _ => (3..=gpu.most_sms).step_by(3).collect(),
        };
        Self {
            clocks: gpu.clocks(2),
            sms,
            launches: launches(gpu, partition),
        }
    }

    /// The space that these candidates span. `None` where there is no candidate.
    #[must_use]
    pub fn spanned(candidates: &[Candidate]) -> Option<Self> {
        let mut clocks: Vec<Hertz> = candidates.iter().map(|it| it.clock).collect();
        let mut sms: Vec<u32> = candidates.iter().map(|it| it.sms).collect();
        let mut launches: Vec<usize> = candidates.iter().map(|it| it.launch).collect();
        clocks.sort_by(|a, b| a.0.total_cmp(&b.0));
        clocks.dedup();
        sms.sort_unstable();
        sms.dedup();
        launches.sort_unstable();
        launches.dedup();
        (!clocks.is_empty()).then_some(Self {
            clocks,
            sms,
            launches,
        })
    }

    /// Clocks, ascending.
    #[must_use]
    pub fn clocks(&self) -> &[Hertz] {
        &self.clocks
    }

    /// Numbers of SMs, ascending.
    #[must_use]
    pub fn sms(&self) -> &[u32] {
        &self.sms
    }

    /// Computations with which the communication may start, ascending.
    #[must_use]
    pub fn launches(&self) -> &[usize] {
        &self.launches
    }

    /// How many candidates there are.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.clocks.len() * self.sms.len() * self.launches.len()
    }

    /// The candidates: by clock, then by SMs, then by launch.
    pub fn candidates(&self) -> impl Iterator<Item = Candidate> + '_ {
        let by_clock = |&clock| self.sms.iter().map(move |&sms| (clock, sms));
        let pairs = self.clocks.iter().flat_map(by_clock);
        pairs.flat_map(|(clock, sms)| {
            let candidate = move |&launch| Candidate { clock, sms, launch };
            self.launches.iter().map(candidate)
        })
    }
}

/// The launches that may hide the communication. The first always stays; another is left out where the
/// computations from it on are over before the communication can be, even if they are slow (the lowest clock,
/// half of the matrix rate) and the links are all that takes time.
fn launches(gpu: &Gpu, partition: &Partition) -> Vec<usize> {
    let least = least_time(gpu, &partition.communication);
    let slow = gpu.matrix_rate * POOR * (gpu.least_clock / gpu.clocks[1]);
    let hides = |&first: &usize| {
        let rest = &partition.computations[first..];
        let hidden: f64 = rest.iter().map(|it| longest_time(gpu, slow, it)).sum();
        first == 0 || hidden >= least
    };
    (0..partition.computations.len()).filter(hides).collect()
}

/// The seconds that a computation takes at most: what the matrix units need, or the memory, which is taken to be
/// as slow as the links, because every GPU's memory is faster.
fn longest_time(gpu: &Gpu, matrix_rate: f64, computation: &Computation) -> f64 {
    let work = computation.work;
    (work.matrix / matrix_rate).max(work.bytes / gpu.link_rate)
}

/// The seconds that a communication takes at least.
fn least_time(gpu: &Gpu, communication: &Communication) -> f64 {
    let seconds = |it: &crate::partition::Collective| {
        let part = f64::from(it.group.saturating_sub(1)) / f64::from(it.group.max(1));
        let rounds = match it.kind {
            CollectiveKind::AllReduce => 2.0,
            CollectiveKind::AllGather | CollectiveKind::ReduceScatter => 1.0,
        };
        rounds * part * it.bytes / gpu.link_rate
    };
    communication.collectives.iter().map(seconds).sum()
}
