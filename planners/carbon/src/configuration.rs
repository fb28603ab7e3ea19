//! How a training job is divided among its GPUs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Degrees of tensor, pipeline and data parallelism (section 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Configuration {
    /// Tensor parallelism: GPUs that share each layer.
    pub tp: u32,
    /// Pipeline parallelism: stages.
    pub pp: u32,
    /// Data parallelism: replicas.
    pub dp: u32,
}

impl Configuration {
    /// The number of GPUs, W = TP x PP x DP (section 3.1); `None` where that is 0 or too large to count.
    #[must_use]
    pub fn world_size(self) -> Option<u32> {
        let product = self.tp.checked_mul(self.pp)?.checked_mul(self.dp)?;
        (product > 0).then_some(product)
    }

    /// All configurations of so many GPUs: 6 for 4 GPUs, 10 for 8.
    #[must_use]
    pub fn all(gpus: u32) -> Vec<Self> {
        let divisors = |of: u32| (1..=of).filter(move |it| of.is_multiple_of(*it));
        divisors(gpus)
            .flat_map(|tp| {
                let rest = gpus / tp;
                divisors(rest).map(move |pp| Self {
                    tp,
                    pp,
                    dp: rest / pp,
                })
            })
            .collect()
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TP={} PP={} DP={}", self.tp, self.pp, self.dp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_counts_of_configurations_come_out() {
        assert_eq!(Configuration::all(4).len(), 6);
        assert_eq!(Configuration::all(8).len(), 10);
        let all = Configuration::all(24);
        assert!(all.iter().all(|it| it.world_size() == Some(24)));
        let huge = Configuration {
            tp: u32::MAX,
            pp: 2,
            dp: 1,
        };
        assert_eq!(huge.world_size(), None);
    }
}
