//! What a study needs of a plant.

use litd_units::{Celsius, Hertz, Joules, Millis, Watts};
use serde::Serialize;

use crate::kind::Range;
use crate::optimum::{Optimum, Policy};
use crate::steady::Steady;
use crate::timeline::Timeline;
use crate::workload::Workload;

/// What limits a GPU, as a driver would say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limiter {
    /// Its cap.
    Power,
    /// Its temperature.
    Thermal,
    /// Current, or its voltage regulator.
    Current,
    /// Nothing: it runs at its highest clock.
    None,
}

/// One iteration, as it truly was.
#[derive(Debug, Clone, Default)]
pub struct Iteration {
    /// 1 for the first.
    pub number: u64,
    /// When it began, from the first one's begin.
    pub begin: Millis,
    /// How long it took.
    pub wall: Millis,
    /// Mean power of each GPU.
    pub power: Vec<Watts>,
    /// Energy of all GPUs.
    pub energy: Joules,
}

/// What a node's tools show of a GPU: late, averaged, rounded and with their sensor's gain.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Reading {
    /// The cap in force.
    pub cap: Watts,
    /// Power.
    pub power: Watts,
    /// Energy since the first iteration.
    pub energy: Joules,
    /// Temperature in whole degrees.
    pub temperature: Celsius,
    /// The temperature at which the firmware slows the GPU down.
    pub slowdown: Celsius,
    /// The clock at one moment of the iteration: of whichever kernel ran then.
    pub clock: Hertz,
    /// What limits it.
    pub limiter: Limiter,
}

/// The CPU sockets of a node together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cpus {
    /// The limit in force.
    pub limit: Watts,
    /// What they draw.
    pub draw: Watts,
    /// What must stay between draw and limit.
    pub margin: Watts,
}

/// A node that can be steered and judged. All of it is SIMULATED.
///
/// A law may see what an owner's tools and a hook see: [`Plant::readings`], [`Plant::starts`] and
/// the kernels' durations and overlap of [`Plant::timeline`], caps, range and CPUs. What an
/// [`Iteration`] says of power, [`Plant::steady`], [`Plant::node_power`] and [`Plant::optimum`] are
/// the judge's.
pub trait Plant {
    /// How many GPUs it has.
    fn gpu_count(&self) -> usize;
    /// What a driver accepts as a cap, the same for all GPUs.
    fn range(&self) -> Range;
    /// The caps that its owner has.
    fn start(&self) -> Vec<Watts>;
    /// What its GPUs execute.
    fn workload(&self) -> &Workload;
    /// Its CPUs.
    fn cpus(&self) -> Cpus;
    /// Sets the limit of all CPU sockets together. Below what they draw, hosts are late.
    fn set_cpu_limit(&mut self, limit: Watts);
    /// Runs one iteration under these caps, one for each GPU, which drivers clamp to the range and
    /// cut to units; a GPU without a cap here keeps the one it has.
    fn iterate(&mut self, caps: &[Watts]) -> &Iteration;
    /// The kernels and collectives of the last iteration.
    fn timeline(&self) -> &Timeline;
    /// What tools show now.
    fn readings(&self) -> Vec<Reading>;
    /// True power of the whole node in the last iteration, fans, CPUs and the rest included.
    fn node_power(&self) -> Watts;
    /// Where it would settle under these caps, without noise.
    fn steady(&self, caps: &[Watts]) -> Steady;
    /// Jumps there.
    fn settle(&mut self, caps: &[Watts]);
    /// The best caps of a policy against these starting caps, by the noise-free steady state.
    fn optimum(&self, policy: Policy, start: &[Watts]) -> Optimum;

    /// When each kernel of the last iteration started, `[gpu][kernel]`, from its begin.
    fn starts(&self) -> Vec<Vec<Millis>> {
        let starts = &self.timeline().start;
        let kernels = self.workload().kernels.len().max(1);
        let rows = starts.chunks(kernels);
        rows.map(|row| row.iter().map(|&it| Millis(it)).collect())
            .collect()
    }
}
