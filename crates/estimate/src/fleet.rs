//! The samples of all GPUs.

use std::collections::HashMap;
use std::fmt;

use crate::gpu::{Gpu, MOST_GPUS, Order};
use crate::sample::Sample;

/// Statistics of a fleet's samples.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    nodes: HashMap<Box<str>, HashMap<Box<str>, Gpu>>,
    gpus: usize,
    seen: Seen,
}

/// Counts of samples that came in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Samples that counted.
    pub samples: u64,
    /// Samples that say the same of the same moment as the one before of that GPU. They did not count.
    pub repeated: u64,
    /// Samples that are earlier than the one before of that GPU. They counted.
    pub earlier: u64,
}

/// A fleet that has more GPUs than there can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "there are more than {MOST_GPUS} GPUs: the column that names GPUs or nodes seems to count rows or moments"
        )
    }
}

impl std::error::Error for Refused {}

impl Fleet {
    /// Adds a reading of a node's GPU.
    ///
    /// # Errors
    /// It would be one GPU more than [`MOST_GPUS`].
    pub fn add(&mut self, node: &str, gpu: &str, sample: &Sample) -> Result<(), Refused> {
        let full = self.gpus >= MOST_GPUS;
        let known = self.nodes.get_mut(node).and_then(|it| it.get_mut(gpu));
        let order = match known {
            Some(known) => known.add(sample),
            None if full => return Err(Refused),
            None => {
                self.gpus += 1;
                let gpus = self.nodes.entry(node.into()).or_default();
                gpus.entry(gpu.into()).or_default().add(sample)
            }
        };
        match order {
            Order::Repeated => self.seen.repeated += 1,
            Order::Earlier => {
                self.seen.samples += 1;
                self.seen.earlier += 1;
            }
            Order::Next => self.seen.samples += 1,
        }
        Ok(())
    }

    /// The counts so far.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.seen
    }

    /// The nodes and their GPUs, both by name.
    pub(crate) fn nodes(&self) -> Vec<(&str, Vec<(&str, &Gpu)>)> {
        let all = self.nodes.iter();
        sorted(all.map(|(name, gpus)| (&**name, sorted(gpus.iter().map(|it| (&**it.0, it.1))))))
    }
}

/// By name.
fn sorted<'a, T>(named: impl Iterator<Item = (&'a str, T)>) -> Vec<(&'a str, T)> {
    let mut all = Vec::from_iter(named);
    all.sort_by(|a, b| natural(a.0, b.0));
    all
}

/// The order of names in which 10 comes after 9.
fn natural(a: &str, b: &str) -> std::cmp::Ordering {
    let number = |text: &str| text.parse::<u64>().ok();
    number(a).cmp(&number(b)).then_with(|| a.cmp(b))
}
