//! The state of the daemon at one moment: what `litctl status` prints and what metrics count.

use litd_units::{Celsius, Hertz, Joules, Millis, Watts};
use serde::{Deserialize, Serialize};

/// The answer to `GET /v1/status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The running program.
    pub build: BuildInfo,
    /// Seconds since the daemon started.
    pub uptime_seconds: f64,
    /// The node's name, as its exporters know it.
    #[serde(default)]
    pub hostname: String,
    /// Whether the hardware is a simulation: no number below is of a real node then.
    pub simulated: bool,
    /// The node.
    pub node: NodeStatus,
    /// All GPUs of the node together.
    pub gpus: GpusStatus,
    /// All devices: GPUs first, then CPU sockets.
    pub devices: Vec<DeviceStatus>,
    /// All jobs, by name.
    pub jobs: Vec<JobStatus>,
    /// Jobs that schedulers have said to begin, and not to end.
    #[serde(default)]
    pub announced: Vec<AnnouncedJob>,
    /// Counters since the daemon started.
    pub totals: Totals,
}

/// The version of a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BuildInfo {
    /// The version.
    pub version: String,
    /// A hash of the configuration in force, defaults included: 16 hexadecimal digits.
    #[serde(default)]
    pub configuration: String,
}

/// The daemon's mode on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Has closed all devices: caps are restored, or where `caps.on_exit` leaves them.
    Off,
    /// Measures, diagnoses, predicts; writes only to keep a budget that is set.
    Observe,
    /// Moves caps on some nodes of a fleet and observes on the others: as a configuration says it.
    /// What a node does is one of the others.
    Canary,
    /// Moves caps.
    #[serde(rename = "on")]
    Steer,
}

impl Mode {
    /// The name that the JSON has.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Observe => "observe",
            Self::Canary => "canary",
            Self::Steer => "on",
        }
    }
}

/// A fleet controller's lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeaseStatus {
    /// The controller that holds it.
    pub controller: String,
    /// The mode, if it has one.
    pub mode: Option<Mode>,
    /// The budget of all GPU caps, in watts, if it has one.
    pub budget: Option<Watts>,
    /// How long it lasts if it is not renewed.
    pub remaining_seconds: f64,
}

impl LeaseStatus {
    /// The lease in words, for one line.
    #[must_use]
    pub fn in_words(&self) -> String {
        let mode = self
            .mode
            .map_or_else(String::new, |it| format!(", mode {}", it.name()));
        let budget = self
            .budget
            .map_or_else(String::new, |it| format!(", budget {it:.0}"));
        let (controller, left) = (&self.controller, self.remaining_seconds);
        format!("leased to {controller} for another {left:.0} s{mode}{budget}")
    }
}

/// The node as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The mode in force.
    pub mode: Mode,
    /// Why that is not just what the configuration says: a kill switch, a lease, a canary.
    #[serde(default)]
    pub mode_reason: Option<String>,
    /// The lease of a fleet controller, while there is one.
    #[serde(default)]
    pub lease: Option<LeaseStatus>,
    /// The policy's name.
    pub policy: String,
    /// To whose jobs steering has done harm: those users' jobs are not steered until `litctl resume`.
    #[serde(default)]
    pub harm: Option<String>,
    /// Whether foreign changes were found, so that the node is only observed until it is resumed.
    #[serde(default)]
    pub yielded: bool,
    /// Unmanaged GPUs, by PCI address: they are on the bus, but their driver came up after litd had looked for
    /// devices. Within a budget each counts with the highest cap of the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmanaged: Vec<String>,
    /// Power of the node as a whole, where its BMC tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<NodePower>,
    /// A line for people.
    pub summary: String,
}

/// All GPUs of the node together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpusStatus {
    /// The most that all GPU caps may add up to. Without a budget: the sum of the caps found, and what GPUs that are not
    /// litd's to move hold beyond theirs.
    pub budget: Watts,
    /// The watts by which CPU sockets' limits have been lowered: GPU caps may add up to this much more
    /// (cpu-slosh).
    #[serde(default)]
    pub lent: Watts,
    /// The present sum of all GPU caps.
    pub caps: Watts,
    /// Power of all GPUs; absent if any can't tell.
    pub power: Option<Watts>,
}

impl GpusStatus {
    /// The most that all GPU caps may add up to now, in words: the budget, and the watts that CPU sockets lend.
    #[must_use]
    pub fn allowance(&self) -> String {
        match self.lent > Watts::ZERO {
            true => format!("{:.0} and {:.0} from the CPUs", self.budget, self.lent),
            false => format!("{:.0}", self.budget),
        }
    }
}

/// The node's power as its BMC tells. What it has not told of late is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodePower {
    /// The source: `redfish`, `ipmi` or `acpi`.
    pub source: Option<String>,
    /// The node's power.
    pub power: Option<Watts>,
    /// The BMC's limit on it.
    pub bmc_limit: Option<Watts>,
    /// Inlet temperature.
    pub inlet: Option<Celsius>,
    /// Power supplies that are there.
    pub supplies: Option<u32>,
    /// Of those, the ones that are not well.
    pub failed: Option<u32>,
    /// Why the node is short of power, if it is: litd raises no cap of a job that it steers.
    pub alarm: Option<String>,
    /// Power that litd subtracts from the node's budget for parts other than GPUs and CPUs: the 99.9th percentile of
    /// the readings, or `node.reserve` if that is more; before it is measured, a lower bound, or absent.
    pub reserve: Option<Watts>,
    /// Whether that power is neither measured nor configured yet.
    #[serde(default)]
    pub reserve_unknown: bool,
    /// The node's budget: the lower one of `node.budget` and the BMC's limit.
    pub budget: Option<Watts>,
    /// The GPUs' part of it; where their floors add up to more, that sum.
    pub left_to_gpus: Option<Watts>,
    /// Peaks while no job was steered.
    pub unsteered: NodePeaks,
    /// Peaks while one was.
    pub steered: NodePeaks,
}

/// How the node's power swings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct NodePeaks {
    /// Readings so far.
    pub readings: u64,
    /// The 99.9th percentile of the readings (of less than a thousand, the largest).
    pub peak: Option<Watts>,
    /// The same of the change from one reading to the next, in watts per second.
    pub ramp_watts_per_second: Option<f64>,
}

/// The role of a device in its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceRole {
    /// No job uses it.
    Idle,
    /// The one that is waited for.
    Straggler,
    /// The one furthest ahead.
    Leader,
    /// Any other of a job.
    Member,
    /// A CPU socket.
    Host,
}

impl DeviceRole {
    /// The name that the JSON has.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Straggler => "straggler",
            Self::Leader => "leader",
            Self::Member => "member",
            Self::Host => "host",
        }
    }
}

/// Whether a device's cap is litd's to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceState {
    /// litd may move its cap.
    #[serde(rename = "litd")]
    Ours,
    /// A foreign cap is in force: the device is left alone until an administrator resumes it.
    Foreign,
    /// An administrator has released the device: it is left alone until `litctl resume`.
    Released,
    /// litd is off, and has closed all devices.
    Closed,
    /// The device refuses, lies or does not answer: it is left alone until resumed, and counted with the most that
    /// it may hold.
    Faulty,
}

impl DeviceState {
    /// The name that the JSON has.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ours => "litd",
            Self::Foreign => "foreign",
            Self::Released => "released",
            Self::Closed => "closed",
            Self::Faulty => "faulty",
        }
    }
}

/// The limiter of a GPU's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limiter {
    /// The cap: more power would make the GPU faster.
    Power,
    /// A limit in force that is lower than its cap (firmware, BMC).
    #[serde(rename = "lower_limit")]
    Enforced,
    /// The chip is too hot.
    Heat,
    /// The memory is too hot.
    Memory,
    /// The voltage regulators are at their limit.
    Regulator,
    /// The system pulled the power brake.
    PowerBrake,
    /// Hardware slows it down and does not say why.
    Hardware,
    /// No limiter: the GPU idles, waits, or runs at its highest clock.
    None,
    /// Unknown.
    #[default]
    Unknown,
}

impl Limiter {
    /// The name that the JSON has.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Power => "power",
            Self::Enforced => "lower_limit",
            Self::Heat => "heat",
            Self::Memory => "memory",
            Self::Regulator => "regulator",
            Self::PowerBrake => "power_brake",
            Self::Hardware => "hardware",
            Self::None => "none",
            Self::Unknown => "unknown",
        }
    }
}

/// A device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// `gpu3`, `cpu0`: short name in texts.
    pub name: String,
    /// PCI address, or `cpu0`.
    pub address: String,
    /// The vendor's unique name, where there is one (`GPU-…`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Serial number of the part, where the driver tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Device name.
    pub model: String,
    /// Back end that serves it.
    pub backend: String,
    /// Whether its cap is litd's to move.
    pub state: DeviceState,
    /// Whether its job opted out: it is not steered, and its clocks are not locked.
    #[serde(default)]
    pub opted_out: bool,
    /// The role in its job.
    pub role: DeviceRole,
    /// The job that uses it.
    pub job: Option<String>,
    /// The cap found, which litd restores at its stop, unless `caps.on_exit` is `hold`.
    pub found: Option<Watts>,
    /// The cap it holds, as read last.
    pub cap: Option<Watts>,
    /// The limit in force, where the driver tells.
    pub in_force: Option<Watts>,
    /// The lowest cap litd would set.
    pub floor: Watts,
    /// The highest.
    pub ceiling: Watts,
    /// Power drawn.
    pub power: Option<Watts>,
    /// Energy counter.
    pub energy: Option<Joules>,
    /// Temperature.
    pub temperature: Option<Celsius>,
    /// Clock.
    pub clock: Option<Hertz>,
    /// Whether power limits its clock.
    pub power_limited: Option<bool>,
    /// Why it holds its cap, or is left alone: what the audit log says of a write to it.
    #[serde(default)]
    pub why: String,
    /// The limiter at the moment.
    #[serde(default)]
    pub limiter: Limiter,
    /// Whether heat or hardware throttles it.
    pub throttled: bool,
    /// Since when it has been one to look at, because it needs more than the others; seconds since
    /// 1970.
    #[serde(default)]
    pub ailing_since: Option<f64>,
    /// For so many seconds of being steered it has needed more than the others.
    #[serde(default)]
    pub needs_more_seconds: f64,
    /// The lead value of the last sample, summed over the kernels of an iteration.
    pub lead: Option<Millis>,
    /// By how much it started a kernel before the last GPU did, on average over those kernels.
    #[serde(default)]
    pub lead_per_kernel: Option<Millis>,
    /// The busy fraction of the last sample.
    pub busy: Option<f64>,
    /// The plan that its rank follows, where it follows one (Perseus).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanStatus>,
}

/// A plan's clocks on one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PlanStatus {
    /// The present locked clock.
    pub locked: Option<Hertz>,
    /// The cap that the clocks of the last minute need, as measured: below that it is not lowered.
    /// Absent while it is not known; then it is not lowered at all.
    pub needs: Option<Watts>,
    /// By which factor it is slower than its plan although litd can do no more; 1: it keeps up.
    /// What a planner is to be told (`set_straggler`).
    pub degree: f64,
}

/// Where a job's loop is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// Not all ranks of this node are here; or they are, and the law can't even watch the job with its present
    /// settings: then the job's `why` begins with "can't be watched".
    Gathering,
    /// Measured only.
    Observe,
    /// Measured before the first adjustment.
    WarmUp,
    /// An adjustment per window.
    Adjusting,
    /// Caps are held.
    Converged,
    /// May no longer be level.
    Drift,
    /// An adjustment did harm: caps are back, the law pauses.
    Rollback,
    /// No frame has come for too long.
    Stale,
    /// litd does not steer the job: steering it has done harm, or a GPU of its is not litd's to steer (its cap is
    /// foreign, unread or of an unknown range, or it has failed, was released, is shared, or the job has opted out).
    /// The job's `why` says which.
    Suspended,
}

impl JobState {
    /// The name that the JSON has.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gathering => "gathering",
            Self::Observe => "observe",
            Self::WarmUp => "warm-up",
            Self::Adjusting => "adjusting",
            Self::Converged => "converged",
            Self::Drift => "drift",
            Self::Rollback => "rollback",
            Self::Stale => "stale",
            Self::Suspended => "suspended",
        }
    }
}

/// A rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankStatus {
    /// The number in the job.
    pub rank: u32,
    /// The device's address.
    pub device: String,
    /// Whether it is connected.
    pub connected: bool,
    /// The last iteration it told of.
    pub iteration: u64,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobStatus {
    /// The job's name.
    pub name: String,
    /// The user that runs it.
    pub uid: u32,
    /// Where its loop is.
    pub state: JobState,
    /// Why, in words.
    pub why: String,
    /// How it is measured, in words, where that is not by its hooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<String>,
    /// How its trial or its hold-out holds its caps now, in words; absent: neither does.
    #[serde(default)]
    pub trial: Option<String>,
    /// The job's ranks on this node.
    pub ranks: Vec<RankStatus>,
    /// The job's share of the node's budget.
    pub budget: Watts,
    /// Mean iteration time of late.
    pub iteration_time: Option<Millis>,
    /// Iterations per second of late.
    pub throughput: Option<f64>,
    /// How often caps were moved for it.
    pub adjustments: u32,
    /// Samples that counted.
    pub samples: u64,
    /// Samples that did not.
    pub bad_samples: u64,
    /// Every how many iterations one is profiled; 0: none.
    pub sampling_period: u64,
    /// The share of the job's time that profiling takes; absent before enough iterations were profiled.
    #[serde(default)]
    pub sampling_overhead: Option<f64>,
    /// Histogram of iteration times: (upper bound in seconds, iterations up to it), cumulative;
    /// the last bound is absent, for infinity.
    pub iteration_histogram: Vec<(Option<f64>, u64)>,
    /// Sum of all iteration times.
    pub iteration_seconds_sum: f64,
}

/// A job of which a scheduler has said that it begins (`litctl job begin`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AnnouncedJob {
    /// The scheduler's name for it: `slurm-1234`.
    pub id: String,
    /// When, in seconds since 1970.
    pub since: f64,
    /// Whether its GPUs are not steered, nor their clocks locked.
    pub opt_out: bool,
    /// The addresses of its GPUs, as far as the scheduler told.
    pub gpus: Vec<String>,
}

/// A counter with up to two labels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// The kind of error or the reason of refusal, out of a fixed set.
    pub kind: String,
    /// The back end, or empty.
    pub backend: String,
    /// How often.
    pub count: u64,
}

/// Counters since the daemon started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Cap writes that were confirmed.
    pub writes: u64,
    /// Adjustments over all jobs, also those that ended.
    pub adjustments: u64,
    /// Frames received.
    pub frames: u64,
    /// Iteration ticks received.
    pub ticks: u64,
    /// Errors by kind and back end.
    pub errors: Vec<Counter>,
    /// Refused peers and frames, by reason.
    pub refused: Vec<Counter>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names as they go over the socket.
    fn json(value: impl Serialize) -> Option<String> {
        Some(serde_json::to_value(value).ok()?.as_str()?.to_owned())
    }

    #[test]
    fn names_are_those_of_the_json() {
        for mode in [Mode::Off, Mode::Observe, Mode::Canary, Mode::Steer] {
            assert_eq!(json(mode).as_deref(), Some(mode.name()));
        }
        use DeviceRole::{Host, Idle, Leader, Member, Straggler};
        for role in [Idle, Straggler, Leader, Member, Host] {
            assert_eq!(json(role).as_deref(), Some(role.name()));
        }
        use DeviceState::{Closed, Faulty, Foreign, Ours, Released};
        for state in [Ours, Foreign, Released, Closed, Faulty] {
            assert_eq!(json(state).as_deref(), Some(state.name()));
        }
        for state in [
            JobState::Gathering,
            JobState::Observe,
            JobState::WarmUp,
            JobState::Adjusting,
            JobState::Converged,
            JobState::Drift,
            JobState::Rollback,
            JobState::Stale,
            JobState::Suspended,
        ] {
            assert_eq!(json(state).as_deref(), Some(state.name()));
        }
        use Limiter::{Enforced, Hardware, Heat, Memory, Power, PowerBrake, Regulator, Unknown};
        for limiter in [
            Power,
            Enforced,
            Heat,
            Memory,
            Regulator,
            PowerBrake,
            Hardware,
            Limiter::None,
            Unknown,
        ] {
            assert_eq!(json(limiter).as_deref(), Some(limiter.name()));
        }
        use crate::EventKind::{
            Adjustment, Command, Daemon, Fault, Foreign as Theirs, Job, State, Trial,
        };
        for kind in [
            Daemon, Job, State, Adjustment, Theirs, Command, Fault, Trial,
        ] {
            assert_eq!(json(kind).as_deref(), Some(kind.name()));
        }
    }
}
