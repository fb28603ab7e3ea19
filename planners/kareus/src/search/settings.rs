//! The search's hyperparameters (appendix C).

use serde::{Deserialize, Serialize};

/// Why a candidate was evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pass {
    /// The candidate was drawn before there were results.
    Initial,
    /// The candidate promised the largest improvement in time and total energy.
    Total,
    /// The same with dynamic energy.
    Dynamic,
    /// The same with static energy.
    Static,
    /// The ensemble disagreed most about it.
    Uncertainty,
}

impl Pass {
    /// The passes of a batch, in their order.
    pub const OF_A_BATCH: [Self; 4] = [Self::Total, Self::Dynamic, Self::Static, Self::Uncertainty];

    /// The pass's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Total => "total",
            Self::Dynamic => "dynamic",
            Self::Static => "static",
            Self::Uncertainty => "uncertainty",
        }
    }
}

/// How much is tried, and when it is enough.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// How many candidates are drawn at the beginning (N_init).
    pub initial: usize,
    /// How many batches there are at most (B_max).
    pub batches: usize,
    /// How many candidates a batch has (k).
    pub batch: usize,
    /// The proportions of the passes, in the order of [`Pass::OF_A_BATCH`]; a pass with 0 is left out.
    pub shares: [f64; 4],
    /// How many resampled models there are (M).
    pub ensemble: usize,
    /// How large a resample is, as a part of the data.
    pub fraction: f64,
    /// The number of batches whose mean improvement counts (R).
    pub window: usize,
    /// Below this mean relative improvement of the hypervolume the search ends (epsilon).
    pub epsilon: f64,
}

impl Settings {
    /// The budget for a partition with so many computations: small ones have one, medium ones 2 or 3.
    #[must_use]
    pub fn for_computations(count: usize) -> Self {
        let (initial, batches, batch) = match count {
            0 | 1 => (36, 3, 16),
            2 | 3 => (48, 4, 16),
            _ => (96, 4, 32),
        };
        Self {
            initial,
            batches,
            batch,
            shares: [0.4, 0.2, 0.2, 0.2],
            ensemble: 5,
            fraction: 0.8,
            window: 2,
            epsilon: 1e-3,
        }
    }

    /// The same without one pass: its part of a batch goes to the others, in proportion.
    #[must_use]
    pub fn without(mut self, pass: Pass) -> Self {
        for (share, one) in self.shares.iter_mut().zip(Pass::OF_A_BATCH) {
            if one == pass {
                *share = 0.0;
            }
        }
        let sum: f64 = self.shares.iter().sum();
        if sum > 0.0 {
            self.shares = self.shares.map(|share| share / sum);
        }
        self
    }

    /// How many candidates of a batch the first three passes choose; the last one gets what is left.
    pub(crate) fn places(&self) -> [usize; 3] {
        let mut left = self.batch;
        let whole = self.shares[3] == 0.0;
        std::array::from_fn(|pass| {
            let wanted = (self.shares[pass] * self.batch as f64).round() as usize;
            // Without a last pass, the last of the others that there are gets what is left.
            let last = whole && self.shares[pass + 1..].iter().all(|it| *it == 0.0);
            let places = if last && self.shares[pass] > 0.0 {
                left
            } else {
                wanted.min(left)
            };
            left -= places;
            places
        })
    }
}
