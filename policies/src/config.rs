//! Every knob of the loop, with the paper's defaults (Table II) and ours.

use std::fmt;
use std::str::FromStr;

use litd_units::{Aggregation, Kelvins, Prices, Watts};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::model::Worth;

/// Whether Algorithm 2 scales its increments down as the leads shrink (Table II, "Scale").
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// By the largest lead ever seen: smaller and smaller steps (the paper's default).
    #[default]
    Global,
    /// Always up to the maximum adjustment: faster, and it never settles.
    Local,
}

/// How caps are computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Law {
    /// The paper's: small steps in the direction that leads show (Algorithms 2 and 3).
    Paper,
    /// From a model of each GPU's clock, learned from kernel durations (docs/laws.md). The
    /// paper's law stands in where durations are missing.
    #[default]
    Model,
}

impl Law {
    /// All laws, the paper's first.
    pub const ALL: [Self; 2] = [Self::Paper, Self::Model];

    /// The name as users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Model => "model",
        }
    }
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no law's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no law is called {0:?}: there are paper and model")]
pub struct UnknownLaw(String);

impl FromStr for Law {
    type Err = UnknownLaw;

    fn from_str(name: &str) -> Result<Self, UnknownLaw> {
        let known = Self::ALL.into_iter().find(|law| law.name() == name);
        known.ok_or_else(|| UnknownLaw(name.to_owned()))
    }
}

/// All knobs of the loop.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How caps are computed.
    pub law: Law,
    /// Table II, "Baseline calibration".
    pub calibration: Calibration,
    /// Table II, "Straggler detection".
    pub detection: Detection,
    /// Table II, "Straggler mitigation".
    pub mitigation: Mitigation,
    /// Parameters that the paper leaves open: when to stop, and when to give up.
    pub guard: Guard,
    /// The knobs of the model law.
    pub model: Model,
}

/// Table II, "Baseline calibration".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Calibration {
    /// Every how many iterations one is sampled.
    pub sampling_period: u32,
    /// Samples taken before the first adjustment.
    pub warm_up: u32,
}

impl Default for Calibration {
    fn default() -> Self {
        Self {
            sampling_period: 10,
            warm_up: 50,
        }
    }
}

/// Table II, "Straggler detection".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Detection {
    /// Samples averaged before each adjustment.
    pub window: u32,
    /// How per-kernel leads become one lead value.
    pub aggregation: Aggregation,
}

impl Default for Detection {
    fn default() -> Self {
        Self {
            window: 3,
            aggregation: Aggregation::Sum,
        }
    }
}

/// Table II, "Straggler mitigation".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mitigation {
    /// Algorithm 2's `max_inc`: the most that one adjustment asks for on one GPU.
    pub max_adjustment: Watts,
    /// Algorithm 2's global factor.
    pub scale: Scale,
    /// Table II's "Power caps": the cap of every GPU at the start of gpu-realloc and cpu-slosh.
    pub initial_cap: Watts,
    /// Table II's "Power budget": what cpu-slosh moves from the CPUs, per GPU.
    pub slosh_per_gpu: Watts,
    /// The most that one cap may rise in one adjustment, whatever the law asks for. Absent: as
    /// much as `max_adjustment`.
    pub max_rise: Option<Watts>,
}

impl Default for Mitigation {
    fn default() -> Self {
        Self {
            max_adjustment: Watts(15.0),
            scale: Scale::Global,
            initial_cap: Watts(700.0),
            slosh_per_gpu: Watts(20.0),
            max_rise: None,
        }
    }
}

impl Mitigation {
    /// The most that one cap may rise in one adjustment.
    #[must_use]
    pub fn rise(&self) -> Watts {
        self.max_rise.unwrap_or(self.max_adjustment)
    }
}

/// The knobs of the model law.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Model {
    /// The most that one cap changes in one adjustment, up or down.
    pub max_adjustment: Watts,
    /// By which part the iteration may become longer to save power, without prices.
    pub slowdown: f64,
    /// With prices what costs least is done, instead of what `slowdown` allows. They are the
    /// node's, not the law's: a file has them elsewhere.
    #[serde(skip)]
    pub prices: Option<Prices>,
    /// Clocks that differ from what is wanted by less than this part, beyond what noise
    /// explains, are left alone.
    pub dead_band: f64,
    /// Samples after an adjustment after which the next is made however noisy they are.
    pub max_samples: u32,
    /// The part by which an adjustment must promise a shorter iteration, ...
    pub min_speed: f64,
    /// ... or less power, to be made.
    pub min_power: f64,
}

impl Model {
    pub(crate) fn worth(&self) -> Worth {
        self.prices
            .map_or(Worth::Slowdown(self.slowdown), Worth::Prices)
    }
}

impl Default for Model {
    fn default() -> Self {
        Self {
            max_adjustment: Watts(60.0),
            slowdown: 5e-4,
            prices: None,
            dead_band: 1e-3,
            max_samples: 30,
            min_speed: 5e-4,
            min_power: 1.5e-3,
        }
    }
}

/// When to stop, when to start again, when to give up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Guard {
    /// Iteration time that grows by more than this share over `rollback_windows` brings the
    /// last caps back.
    pub rollback_slowdown: f64,
    /// Windows after an adjustment over which its effect is judged.
    pub rollback_windows: u32,
    /// gpu-red promises unchanged speed: once the iteration takes longer than in warm-up by more
    /// than this share (and more than noise), it goes one adjustment back and halves its stride.
    pub gpu_red_slowdown: f64,
    /// Windows after an adjustment in which gpu-red may take it back.
    pub step_back_windows: u32,
    /// No cap rises on a GPU this close to its slowdown temperature.
    pub thermal_margin: Kelvins,
    /// The node is level when the first and the last GPU are, per kernel, less than this share
    /// of the iteration apart: less is noise.
    pub level_share: f64,
    /// The node is level when they are apart by less than this many standard deviations of one
    /// sample's lead. Slack absorbs noise: a node levelled to the last kernel is slower than its
    /// straggler alone was.
    pub noise_margin: f64,
    /// The node is level when they are less than this share of what they were in warm-up apart.
    pub level_remainder: f64,
    /// Windows without a new smallest distance after which the leads have levelled off.
    pub patience: u32,
    /// A converged node has drifted when first and last are this many times as far apart as
    /// when it converged, over two windows.
    pub drift_factor: f64,
    /// A GPU that is late for another reason than its clock is worth a word only if it is late,
    /// at every kernel, by more than this share of the iteration.
    pub late_share: f64,
    /// A straggler whose kernels take less than this share longer than those of GPUs far ahead has no
    /// slow clock: something else makes it late.
    pub pace_tolerance: f64,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            rollback_slowdown: 0.01,
            rollback_windows: 3,
            gpu_red_slowdown: 8e-4,
            step_back_windows: 20,
            thermal_margin: Kelvins(5.0),
            level_share: 2e-5,
            noise_margin: 2.0,
            level_remainder: 0.05,
            patience: 6,
            drift_factor: 3.0,
            late_share: 2e-4,
            pace_tolerance: 0.001,
        }
    }
}
