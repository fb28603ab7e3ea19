//! What happens to a node that was level.

use litd_sim::{Plant, Scenario};
use litd_units::{Kelvins, Millis};

use crate::StudyError;

/// A change of the node while the loop runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Disturbance {
    /// The air becomes warmer by so much for all.
    Ambient(Kelvins),
    /// A fan fails: one GPU's cooling becomes worse by this factor.
    Fan {
        /// Which GPU.
        gpu: usize,
        /// Its thermal resistance, against before.
        resistance: f64,
    },
    /// A GPU is replaced by one whose clock differs by this part at the reference cap.
    Replaced {
        /// Which GPU.
        gpu: usize,
        /// Clock against before, minus 1.
        clock: f64,
    },
    /// The workload becomes another: more of its time is bound by memory.
    Phase {
        /// The clock-bound part of every kernel, against before.
        clock_bound: f64,
    },
    /// A job beside it takes time of one GPU's host.
    Neighbour {
        /// Which GPU.
        gpu: usize,
        /// How late its host is with every kernel.
        gap: Millis,
    },
}

impl Disturbance {
    /// The scenario as it is afterwards.
    pub fn change(&self, scenario: &mut Scenario) {
        match *self {
            Self::Ambient(warmer) => {
                for gpu in &mut scenario.gpus {
                    let margin = scenario.caps.reference;
                    gpu.inlet = gpu.inlet + warmer;
                    // The clocks at the reference cap are given in steady state: leakage at the
                    // higher temperature takes its part of the cap.
                    lose(gpu, warmer, margin);
                }
            }
            Self::Fan { gpu, resistance } => {
                let reference = scenario.caps.reference;
                if let Some(gpu) = scenario.gpus.get_mut(gpu) {
                    let before = gpu.steady_temperature(reference);
                    gpu.thermal_resistance *= resistance;
                    let warmer = gpu.steady_temperature(reference) - before;
                    lose(gpu, warmer, reference);
                }
            }
            Self::Replaced { gpu, clock } => {
                if let Some(gpu) = scenario.gpus.get_mut(gpu) {
                    gpu.clock_offset = (1.0 + gpu.clock_offset) * (1.0 + clock) - 1.0;
                }
            }
            Self::Phase { clock_bound } => {
                for kernel in &mut scenario.workload.kernels {
                    kernel.clock_bound *= clock_bound;
                }
            }
            Self::Neighbour { gpu, gap } => {
                if let Some(gpu) = scenario.gpus.get_mut(gpu) {
                    gpu.host_gap = gap;
                }
            }
        }
    }

    /// Changes a plant that was made of a scenario, as it runs.
    ///
    /// # Errors
    /// The changed scenario makes no sense.
    pub fn happen(&self, plant: &mut Plant, scenario: &Scenario) -> Result<(), StudyError> {
        let mut changed = scenario.clone();
        self.change(&mut changed);
        Ok(plant.change(&changed)?)
    }
}

/// A GPU that is warmer at the reference cap leaks more there, and has less left for its clock.
fn lose(gpu: &mut litd_sim::GpuSpec, warmer: Kelvins, reference: litd_units::Watts) {
    let leak = gpu.idle * (gpu.leakage_per_kelvin * warmer.0);
    let before = reference - gpu.idle;
    let left = (before - leak) / before;
    gpu.clock_offset = (1.0 + gpu.clock_offset) * left.powf(1.0 / gpu.alpha) - 1.0;
    gpu.idle += leak;
}
