//! A job whose ranks do different things: stages of a pipeline under 1F1B, tensor, context and data
//! parallelism, experts with uneven loads. It yields timelines with process groups as PyTorch's
//! profiler tells them.
//!
//! Each rank has a program. A rank computes one kernel after the other; a collective starts when the
//! rank reaches it, ends on all ranks at once when it has transferred after the last has come, and
//! the rank waits for that. A send waits for its receiver beside the computation.

mod program;
mod run;

use litd_traces::Timeline;
use thiserror::Error;

use crate::rng::Rng;
use program::Op;

/// How a job divides its work. The rank of a GPU counts tensor parallelism fastest, then context,
/// data and last the pipeline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parallel {
    /// Ranks that share each tensor.
    pub tensor: usize,
    /// Ranks that share each sequence.
    pub context: usize,
    /// Replicas.
    pub data: usize,
    /// Stages.
    pub pipeline: usize,
    /// Neighbouring replicas that share experts; 1: there are none.
    pub expert: usize,
    /// Layers of a stage.
    pub layers: usize,
    /// Microbatches of an iteration.
    pub microbatches: usize,
    /// By which share (one standard deviation) the work of experts differs from rank to rank and
    /// from time to time.
    pub uneven: f64,
}

/// Why a job can't be simulated.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ParallelError {
    /// The text names no way to divide work.
    #[error(
        "{0:?} is no way to divide a job's work: write tp, cp, dp, pp or ep, each with a number of ranks, such as pp2tp4 or dp4ep2"
    )]
    Spec(String),
    /// Experts that replicas can't share evenly.
    #[error(
        "ep{expert} needs a number of replicas (dp) that {expert} divides, and there are {data}"
    )]
    Experts {
        /// Ranks that share experts.
        expert: usize,
        /// Replicas.
        data: usize,
    },
    /// Speeds for another number of GPUs.
    #[error("the job has {ranks} ranks, and {speeds} speeds are given")]
    Speeds {
        /// Ranks of the job.
        ranks: usize,
        /// Speeds given.
        speeds: usize,
    },
    /// More than anybody needs.
    #[error("the job has {0} ranks; no more than {MOST} are simulated")]
    TooLarge(usize),
}

/// The most ranks.
const MOST: usize = 256;

/// The variable parts of a run of a job.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The clock of each rank as a multiple of the reference clock.
    pub speeds: &'a [f64],
    /// By which share (one standard deviation) kernels differ.
    pub noise: f64,
    /// The seed of noise and uneven loads.
    pub seed: u64,
    /// How many iterations.
    pub iterations: u32,
}

impl Default for Parallel {
    fn default() -> Self {
        Self {
            tensor: 1,
            context: 1,
            data: 1,
            pipeline: 1,
            expert: 1,
            layers: 4,
            microbatches: 8,
            uneven: 0.0,
        }
    }
}

impl std::str::FromStr for Parallel {
    type Err = ParallelError;

    /// Reads `pp2tp4` and the like; experts get uneven loads.
    fn from_str(text: &str) -> Result<Self, ParallelError> {
        let wrong = || ParallelError::Spec(text.into());
        let mut job = Self::default();
        let mut rest = text;
        while !rest.is_empty() {
            let split = rest.split_at_checked(2).ok_or_else(wrong)?;
            let end = split.1.find(|c: char| !c.is_ascii_digit());
            let (digits, behind) = split.1.split_at(end.unwrap_or(split.1.len()));
            let count = digits.parse::<usize>().ok();
            let count = count.filter(|count| (1..=MOST).contains(count));
            let place = match split.0 {
                "tp" => &mut job.tensor,
                "cp" => &mut job.context,
                "dp" => &mut job.data,
                "pp" => &mut job.pipeline,
                "ep" => &mut job.expert,
                _ => return Err(wrong()),
            };
            *place = count.ok_or_else(wrong)?;
            rest = behind;
        }
        if text.is_empty() {
            return Err(wrong());
        }
        job.uneven = if job.expert > 1 { 0.05 } else { 0.0 };
        job.check().map(|()| job)
    }
}

/// A rank's place in its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    tensor: usize,
    context: usize,
    data: usize,
    stage: usize,
}

impl Parallel {
    /// How many ranks the job has.
    #[must_use]
    pub fn ranks(&self) -> usize {
        [self.context, self.data, self.pipeline]
            .into_iter()
            .fold(self.tensor, usize::saturating_mul)
    }

    fn check(&self) -> Result<(), ParallelError> {
        if self.expert == 0 || !self.data.is_multiple_of(self.expert) {
            return Err(ParallelError::Experts {
                expert: self.expert,
                data: self.data,
            });
        }
        match self.ranks() {
            ranks @ 1..=MOST => Ok(_ = ranks),
            ranks => Err(ParallelError::TooLarge(ranks)),
        }
    }

    fn place(&self, rank: usize) -> Place {
        let (tensor, rest) = (rank % self.tensor, rank / self.tensor);
        let (context, rest) = (rest % self.context, rest / self.context);
        Place {
            tensor,
            context,
            data: rest % self.data,
            stage: rest / self.data,
        }
    }

    /// The ranks whose places some condition picks, in order.
    fn picked(&self, same: impl Fn(&Place) -> bool) -> Vec<usize> {
        let ranks = 0..self.ranks();
        ranks.filter(|&rank| same(&self.place(rank))).collect()
    }

    /// Runs the job; a timeline per rank.
    ///
    /// # Errors
    /// The job can't be simulated, or the speeds are of another one.
    pub fn run(&self, run: &Run<'_>) -> Result<Vec<Timeline>, ParallelError> {
        self.check()?;
        if run.speeds.len() != self.ranks() {
            return Err(ParallelError::Speeds {
                ranks: self.ranks(),
                speeds: run.speeds.len(),
            });
        }
        let programs = (0..self.ranks()).map(|rank| program::of(self, rank));
        let programs = Vec::<Vec<Op>>::from_iter(programs);
        let mut factors = |rank: usize, number: u32| {
            let path = [u64::from(number), rank as u64];
            let mut rng = Rng::stream(run.seed, &path);
            let factor = |op: &Op| {
                let uneven = if op.is_expert() { self.uneven } else { 0.0 };
                let deviation = run.noise.hypot(uneven);
                (1.0 + deviation * rng.normal()).max(0.5)
            };
            programs[rank].iter().map(factor).collect::<Vec<f64>>()
        };
        Ok(run::timelines(&programs, run, &mut factors))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_names_how_work_is_divided() {
        let job = "pp2tp4".parse::<Parallel>().unwrap();
        assert_eq!((job.pipeline, job.tensor, job.ranks()), (2, 4, 8));
        let place = job.place(6);
        assert_eq!((place.stage, place.tensor), (1, 2));
        for wrong in [
            "", "tp", "tp0", "xp2", "tp4x", "4tp", "tp999", "ep2", "dp3ep2",
        ] {
            assert!(wrong.parse::<Parallel>().is_err(), "{wrong}");
        }
        assert!("dp16pp16tp2".parse::<Parallel>().is_err());
    }
}
