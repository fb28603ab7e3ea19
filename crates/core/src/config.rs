//! The loop's part of the configuration. The shell's file has sockets and paths besides.

use std::path::PathBuf;

use litd_api::Mode;
use litd_policies::Policy;
use litd_units::{Kelvins, Watts};
use serde::{Deserialize, Serialize};

/// The loop's part of the configuration file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Whether caps may be written at all.
    pub mode: Mode,
    /// On which nodes caps are moved.
    pub rollout: Rollout,
    /// The policy against stragglers.
    pub policy: Policy,
    /// Limits that are narrower than the drivers'.
    pub caps: Caps,
    /// Bounds on the clocks that jobs may ask for, and how often.
    pub clocks: Clocks,
    /// When released devices are taken back.
    pub release: Release,
    /// The power that the node as a whole may draw.
    pub node: Node,
    /// When jobs count as gone.
    pub jobs: Jobs,
    /// How often iterations are profiled.
    pub sampling: Sampling,
    /// How long a cap's effect is awaited.
    pub settle: Settle,
    /// When a GPU that needs more than the others is listed for repair.
    pub ailing: Ailing,
    /// Limits on what hooks may send.
    pub limits: Limits,
    /// How trials and the permanent hold-out are laid out.
    pub trial: Trial,
    /// Prices of power and time.
    pub prices: Prices,
    /// The parameters of the law (Table II of the Lit Silicon paper) and of its guards.
    pub law: litd_policies::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::Observe,
            rollout: Rollout::default(),
            policy: Policy::GpuRed,
            caps: Caps::default(),
            clocks: Clocks::default(),
            release: Release::default(),
            node: Node::default(),
            jobs: Jobs::default(),
            sampling: Sampling::default(),
            settle: Settle::default(),
            ailing: Ailing::default(),
            limits: Limits::default(),
            trial: Trial::default(),
            prices: Prices::default(),
            law: litd_policies::Config::default(),
        }
    }
}

impl Config {
    /// The law's parameters, with the other settings that a law has to know.
    pub(crate) fn knobs(&self) -> litd_policies::Config {
        let mut knobs = self.law.clone();
        knobs.model.prices = self.prices.known();
        knobs
    }
}

/// On which nodes caps are moved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rollout {
    /// So many nodes of a hundred are on in the mode `canary`.
    pub percent: f64,
    /// The node's name, whose hash decides whether it is one of them. Empty: the host's.
    pub node: String,
    /// While any of these files is there, litd is off.
    pub kill_switches: Vec<PathBuf>,
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            percent: 0.0,
            node: String::new(),
            kill_switches: ["/etc/litd/off", "/run/litd/off"]
                .map(PathBuf::from)
                .to_vec(),
        }
    }
}

/// The caps that litd leaves behind when it stops or is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnExit {
    /// The caps found.
    Restore,
    /// The caps found, as far as `safe_budget` allows. The undo journal keeps the caps found, so that a later
    /// `litd restore` with `on_exit = "restore"` restores them.
    Hold,
}

/// Bounds on caps where an administrator is stricter than the drivers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Caps {
    /// The most that all GPU caps may add up to, in watts. Absent: the sum of the caps found.
    pub budget: Option<Watts>,
    /// The most that all GPU caps may add up to, in watts, while no fleet controller has a lease.
    pub safe_budget: Option<Watts>,
    /// The caps that litd leaves behind when it stops or is off.
    pub on_exit: OnExit,
    /// No GPU's cap goes below this. Some drivers (MI300X) name 0 as the lowest.
    pub gpu_floor: Watts,
    /// No GPU's cap goes above this. Absent: the cap that the driver starts with (its TDP), or
    /// the one found, if that is higher.
    pub gpu_ceiling: Option<Watts>,
    /// No CPU socket's limit goes below this.
    pub cpu_floor: Watts,
    /// By how many watts a second caps rise at most, all of them together and whatever others fall, unless litd leaves
    /// them or an administrator sets one. Absent: as fast as the drivers take them.
    pub max_rise_w_per_s: Option<f64>,
    /// Measured power must be below the cap, plus this share of it, within `follow_seconds`
    /// after a cap was lowered.
    pub follow_margin: f64,
    /// How long measured power may take to follow.
    pub follow_seconds: f64,
    /// A device that has not answered for so long counts as faulty.
    pub answer_seconds: f64,
}

impl Caps {
    /// The bound on the sum of all GPU caps after litd has left, if there is one.
    pub(crate) fn budget_on_exit(&self) -> Option<Watts> {
        self.safe_budget.filter(|_| self.on_exit == OnExit::Hold)
    }
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            budget: None,
            safe_budget: None,
            on_exit: OnExit::Restore,
            gpu_floor: Watts(200.0),
            gpu_ceiling: None,
            cpu_floor: Watts(100.0),
            max_rise_w_per_s: None,
            follow_margin: 0.1,
            follow_seconds: 10.0,
            answer_seconds: 5.0,
        }
    }
}

/// Bounds on the clocks that a job's ranks (a plan) may ask for, and how often.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Clocks {
    /// No GPU's clock is locked below this share of the highest that it can be locked to.
    pub floor_share: f64,
    /// How often a second one GPU's clock is locked at most; of faster wishes only the latest counts.
    pub per_second: f64,
    /// How often a minute it is locked at most, in the long run.
    pub per_minute: f64,
}

impl Default for Clocks {
    fn default() -> Self {
        Self {
            floor_share: 0.3,
            per_second: 100.0,
            per_minute: 3000.0,
        }
    }
}

/// When a released device is taken back without a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Release {
    /// Take the device back when it has returned (seen without opening it) or its driver was loaded anew.
    pub resume_on_return: bool,
    /// Take it back after so many seconds; 0: never.
    pub resume_after_seconds: f64,
}

impl Default for Release {
    fn default() -> Self {
        Self {
            resume_on_return: true,
            resume_after_seconds: 0.0,
        }
    }
}

/// The power that the node as a whole may draw, where its BMC reports power.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Node {
    /// The node's power budget, in watts: that of its feed or its rack. GPU caps never add up to more than the
    /// budget less the CPU sockets' limits and the reserve. Absent: only a limit of the BMC's applies.
    pub budget: Option<Watts>,
    /// Power of all other parts: fans, memory, network. If more is measured, the measured value counts. Absent:
    /// only measured power counts, and nothing before it is measured.
    pub reserve: Option<Watts>,
}

/// The caps of a job that sends nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnStale {
    /// The caps stay for as long as the job is connected.
    Keep,
    /// The caps found are restored.
    Restore,
}

/// When jobs count as gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Jobs {
    /// A job none of whose ranks sent anything for so long is stale.
    pub stale_seconds: f64,
    /// The caps of a stale job.
    pub on_stale: OnStale,
    /// How long a rank whose connection broke may take to come back before it counts as gone.
    pub reconnect_seconds: f64,
    /// A job on several nodes: this one waits for the others if in this share of an iteration, or
    /// more, all its GPUs do nothing but collectives with them.
    pub waits_share: f64,
}

impl Default for Jobs {
    fn default() -> Self {
        Self {
            stale_seconds: 120.0,
            on_stale: OnStale::Restore,
            reconnect_seconds: 15.0,
            waits_share: 0.02,
        }
    }
}

/// Whether hooks may use profilers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UseOfProfilers {
    /// Where nothing speaks against it.
    Auto,
    /// Nowhere: they time modules.
    Off,
}

/// How often iterations are profiled. While adjusting, `law.calibration.sampling_period` rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sampling {
    /// Whether hooks may use profilers.
    pub profiler: UseOfProfilers,
    /// Every how many iterations one is profiled once the job has converged; 0: none.
    pub converged_period: u64,
    /// The share of a job's time that measuring iterations may take. Where it would take more, measured iterations
    /// are further apart, once three were measured.
    pub max_overhead: f64,
    /// Warm-up is measured anew while any GPU's temperature has moved by more than this since it began: a GPU that
    /// is still warming up gets slower by itself, and caps would be blamed for it.
    pub steady_temperature: Kelvins,
    /// Mean iteration time that differs from that at convergence by more than this share brings
    /// the short period back.
    pub recheck_iteration_share: f64,
    /// A GPU's temperature that differs from that at convergence by more than this brings it back, too.
    pub recheck_temperature: Kelvins,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            profiler: UseOfProfilers::Auto,
            converged_period: 1000,
            max_overhead: 0.01,
            steady_temperature: Kelvins(4.0),
            recheck_iteration_share: 0.02,
            recheck_temperature: Kelvins(8.0),
        }
    }
}

/// How GPUs are cooled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cooling {
    /// By air: 60 s until a cap's effect on temperature is over.
    Air,
    /// By liquid: 20 s.
    Liquid,
}

/// How long to wait for a cap's effect before samples count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settle {
    /// How the GPUs are cooled.
    pub cooling: Cooling,
    /// For so many seconds after a write no sample counts. Absent: the cooling's default.
    pub seconds: Option<f64>,
    /// For so many iterations after a write no sample counts.
    pub iterations: u64,
    /// Whether the seconds are fitted to what temperature and power show: to three time constants
    /// of the slowest GPU, between a quarter and twice of what is configured.
    pub fit: bool,
}

impl Default for Settle {
    fn default() -> Self {
        Self {
            cooling: Cooling::Air,
            seconds: None,
            iterations: 5,
            fit: true,
        }
    }
}

/// When a GPU that needs more than the others is listed for repair.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ailing {
    /// A cap above the median of its job's GPUs by more than this share ...
    pub above: f64,
    /// ... for so many hours of being steered.
    pub hours: f64,
}

impl Default for Ailing {
    fn default() -> Self {
        Self {
            above: 0.05,
            hours: 24.0,
        }
    }
}

/// Bounds on what hooks may send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connected hooks.
    pub sessions: usize,
    /// Connected hooks of one user, in one pod or scheduler's job, that are not (yet) a rank of a job. Beyond them
    /// a newcomer takes the place of a hook that has said nothing.
    pub sessions_per_user: usize,
    /// Connections a second of one user, in one pod or scheduler's job, in the long run; 64 may come at once. Each
    /// connection makes litd ask a driver, and may begin and end a job.
    pub connections_per_second: f64,
    /// Kernels in one sample of one rank.
    pub kernels: usize,
    /// Distinct kernel names of one rank.
    pub names: usize,
    /// Bytes of all kernel names of one rank.
    pub name_bytes: usize,
    /// Frames a second of one rank. Frames above it are dropped; a hook far above it is disconnected.
    pub frames_per_second: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 256,
            sessions_per_user: 32,
            connections_per_second: 4.0,
            kernels: 100_000,
            names: 4096,
            name_bytes: 1 << 20,
            frames_per_second: 2000.0,
        }
    }
}

/// How trials and the permanent hold-out are laid out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Trial {
    /// Quads of four blocks in a trial.
    pub quads: u32,
    /// How long a block is measured, at least.
    pub block_seconds: f64,
    /// Iterations that a block needs, at least.
    pub block_iterations: u32,
    /// The share of the time for which a job that is steered holds the caps found; 0: never.
    pub hold_out: f64,
}

impl Default for Trial {
    fn default() -> Self {
        Self {
            quads: 12,
            block_seconds: 300.0,
            block_iterations: 20,
            hold_out: 0.05,
        }
    }
}

/// Prices of power and time, in any one currency. Set both or neither.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prices {
    /// A kilowatt-hour.
    pub energy_per_kwh: Option<f64>,
    /// An hour of one GPU.
    pub gpu_hour: Option<f64>,
}

impl Prices {
    /// Both prices, if both are set.
    #[must_use]
    pub fn known(&self) -> Option<litd_units::Prices> {
        Some(litd_units::Prices {
            energy_per_kwh: self.energy_per_kwh?,
            gpu_hour: self.gpu_hour?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_law_knows_the_prices() {
        let mut config = Config::default();
        assert_eq!(config.knobs().model.prices, None);
        config.prices.energy_per_kwh = Some(0.14);
        assert_eq!(config.knobs().model.prices, None);
        config.prices.gpu_hour = Some(2.5);
        let prices = litd_units::Prices {
            energy_per_kwh: 0.14,
            gpu_hour: 2.5,
        };
        assert_eq!(config.knobs().model.prices, Some(prices));
    }
}
