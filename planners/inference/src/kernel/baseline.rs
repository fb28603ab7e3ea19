//! Baselines of the paper: constant TDP (appendix A), a roofline at both peaks, and a line in the number of
//! operations per kernel family, as in Li et al. (appendix J).

use litd_units::Millis;
use serde::{Deserialize, Serialize};

use super::{Analytic, Estimate, Kernel, KernelModel, Setting};
use crate::gpu::Gpu;

/// The baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// The model of this crate.
    Analytic,
    /// The longer of computing at the peak and moving at the peak; power as the analytic model's.
    Roofline,
    /// Operations at half the peak plus a launch: a line per family, blind to shapes.
    Linear,
    /// The analytic latency at the power limit: time times TDP.
    Tdp,
}

/// A model to compare with.
pub struct Baseline {
    analytic: Analytic,
    backend: Backend,
}

impl Baseline {
    /// The baseline of this kind on a GPU.
    #[must_use]
    pub fn new(analytic: Analytic, backend: Backend) -> Self {
        Self { analytic, backend }
    }
}

impl KernelModel for Baseline {
    fn gpu(&self) -> &Gpu {
        self.analytic.gpu()
    }

    fn predict(&self, kernel: &Kernel, setting: &Setting) -> Estimate {
        let own = self.analytic.predict(kernel, setting);
        let work = self.analytic.work(kernel, setting);
        let [compute, memory] = work.peaks;
        let latency = match self.backend {
            Backend::Analytic | Backend::Tdp => own.latency,
            Backend::Roofline => {
                Millis((work.flops / compute).max(work.bytes / memory).max(1e-9) * 1e3)
            }
            Backend::Linear => {
                Millis(0.005 + (2.0 * work.flops / compute).max(work.bytes / memory) * 1e3)
            }
        };
        let limit = setting.power_limit.unwrap_or(self.gpu().power_limit);
        let power = match self.backend {
            Backend::Tdp => limit,
            Backend::Analytic | Backend::Roofline | Backend::Linear => own.power,
        };
        Estimate { latency, power }
    }
}
