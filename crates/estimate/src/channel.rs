//! Statistics of one GPU's speed.

use crate::bins::TimeBins;
use crate::sketch::Sketch;

/// A mean.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    pub fn add(&mut self, value: f64) {
        self.sum += value;
        self.count = self.count.saturating_add(1);
    }

    pub fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }
}

/// Times per unit of work, or clocks, of one GPU, and how hot it was and what it drew then.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Channel {
    pub values: Sketch,
    /// Natural logarithms of times per unit of work.
    pub log_pace: TimeBins,
    pub temperature: Mean,
    pub power: Mean,
}
