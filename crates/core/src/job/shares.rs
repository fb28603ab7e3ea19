//! Jobs' shares of the node's budget.

use std::collections::BTreeMap;

use litd_policies::Limits;
use litd_units::Watts;

use crate::core::Core;
use crate::devices::Unit;
use crate::job::Job;
use crate::plan::project;
use crate::store::Store;

/// The watts that jobs have for their GPUs. Without a budget a job has the sum of its GPUs' caps found. With one it has
/// what its GPUs would hold if no job ran, and of what is left over then its GPUs' proportion: so a job that connects
/// takes watts from nobody.
pub(crate) struct Shares {
    /// The watts of each GPU while no job runs.
    parts: BTreeMap<usize, Watts>,
    /// The watts that nobody would have then.
    over: Watts,
}

impl Shares {
    /// The share of a job.
    pub fn of(&self, job: &Job) -> Watts {
        self.of_gpus(job.gpus())
    }

    fn of_gpus(&self, gpus: impl Iterator<Item = usize>) -> Watts {
        let own = gpus.filter_map(|device| self.parts.get(&device).copied());
        let own: Vec<Watts> = own.collect();
        let proportion = own.len() as f64 / self.parts.len().max(1) as f64;
        own.into_iter().sum::<Watts>() + self.over * proportion
    }
}

impl<S: Store> Core<S> {
    /// A job's share of the node's budget.
    pub(crate) fn share(&self, job: &Job) -> Watts {
        self.shares().of(job)
    }

    /// All jobs' shares of the node's budget.
    pub(crate) fn shares(&self) -> Shares {
        if self.set_budget().is_none() {
            let found = |(device, unit): (usize, &Unit)| Some((device, unit.base()?));
            return Shares {
                parts: self.devices.gpus().filter_map(found).collect(),
                over: Watts::ZERO,
            };
        }
        let budget = self.managed_budget();
        let parts = self.parts_of(budget);
        let over = budget - parts.values().copied().sum();
        Shares {
            parts,
            over: over.max(Watts::ZERO),
        }
    }

    /// The watts of a budget with which each GPU counts while no job runs: its cap found where there is room for
    /// all of them, but at least its floor, to which a loop raises it.
    fn parts_of(&self, budget: Watts) -> BTreeMap<usize, Watts> {
        let mut parts = BTreeMap::new();
        let (mut gpus, mut limits, mut found) = (Vec::new(), Vec::new(), Vec::new());
        for (device, unit) in self.devices.gpus() {
            let own = unit.limits(&self.config.caps);
            let part = match unit.base() {
                Some(base) if base > own.floor => {
                    let ceiling = own.ceiling.min(base);
                    gpus.push(device);
                    found.push(base);
                    limits.push(Limits { ceiling, ..own });
                    continue;
                }
                Some(_) => own.floor,
                // Nobody knows yet what it was found with.
                None => self.writer.account().most_of(device).max(own.floor),
            };
            parts.insert(device, part);
        }
        let left = budget - parts.values().copied().sum();
        if found.iter().copied().sum::<Watts>() > left
            && let Some(caps) = project(&limits, left, &found)
        {
            found = caps.to_watts();
        }
        parts.extend(gpus.into_iter().zip(found));
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_is_shared_in_proportion() {
        let shares = Shares {
            parts: BTreeMap::from([(0, Watts(700.0)), (1, Watts(300.0)), (4, Watts(300.0))]),
            over: Watts(150.0),
        };
        assert_eq!(shares.of_gpus([1].into_iter()), Watts(350.0));
        assert_eq!(shares.of_gpus([0, 4].into_iter()), Watts(1100.0));
        assert_eq!(shares.of_gpus([0, 1, 4].into_iter()), Watts(1450.0));
        // A device that is no GPU of the node's has nothing.
        assert_eq!(shares.of_gpus([7].into_iter()), Watts::ZERO);
    }
}
