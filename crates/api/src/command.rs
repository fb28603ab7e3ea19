//! Commands to the daemon.

use litd_units::Watts;
use serde::{Deserialize, Serialize};

use crate::{Mode, Stacks};

/// The answer to every command while litd stops, in words: what is asked then is not done.
pub const STOPPING: &str = "litd is stopping";

/// A change that root or the admin group may ask for. It is logged with the caller's uid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// The most that all GPU caps of the node may add up to; absent: the configured budget.
    SetBudget {
        /// The budget.
        watts: Option<Watts>,
    },
    /// The policy by its name (`observe`, `gpu-red`, `gpu-realloc`, `cpu-slosh`), for all jobs.
    SetPolicy {
        /// The policy's name.
        policy: String,
    },
    /// Sets one device's cap by hand, within its range and the budget. It is the administrator's
    /// from then on: what the device came with, which goes back when steering ends. Refused while
    /// litd moves that cap. Answered once the cap has been read back.
    SetCap {
        /// The device's address or name.
        device: String,
        /// The cap.
        watts: Watts,
    },
    /// Restores caps and closes every handle: of one device, or of all. Answered within 5 s, once every
    /// handle is closed, or with why one is not. Nothing is steered there until `Resume`, or until
    /// the device is resumed as configured.
    Release {
        /// The device's address; absent: all.
        device: Option<String>,
    },
    /// Steers again what `Release`, a foreign change or a fault has stopped, from the caps as
    /// they are now.
    Resume {
        /// The device's address; absent: all.
        device: Option<String>,
    },
    /// Forgets learned distributions, and what is known of profilers.
    Forget,
    /// Takes over what another node knows of profilers, for all users.
    ImportStacks {
        /// The other node's results.
        stacks: Stacks,
    },
    /// Begins a trial: blocks with the caps found (A) and with the balanced ones (B) alternate on
    /// a job that is steered.
    StartTrial {
        /// The job; absent: the only one.
        #[serde(default)]
        job: Option<String>,
        /// Quads of four blocks; absent: as configured.
        #[serde(default)]
        quads: Option<u32>,
        /// Whether both arms hold the caps found (A/A): such a trial shows zero, or that the
        /// measurement is wrong.
        #[serde(default)]
        same: bool,
        /// The seed for the order of the blocks; absent: the time.
        #[serde(default)]
        seed: Option<u64>,
    },
    /// Ends the trial under way.
    StopTrial,
    /// A scheduler says that a job begins. May be said twice.
    BeginJob {
        /// The scheduler's name for it: `slurm-1234`, `pod-UID`.
        job: String,
        /// The job's GPUs by number, name, address or UUID, as far as known; GPUs that its ranks hold count as
        /// well.
        #[serde(default)]
        gpus: Vec<String>,
        /// Whether its GPUs are not to be steered until it ends, nor their clocks locked. What is
        /// not as it was found goes back first, as far as a budget has room for that, and that is answered.
        #[serde(default)]
        opt_out: bool,
    },
    /// A scheduler says that a job has ended, begun or not. Answered within 1.2 s, once its GPUs'
    /// caps are as they were found and their clocks are free, or with what is not.
    EndJob {
        /// The scheduler's name for it.
        job: String,
        /// The job's GPUs.
        #[serde(default)]
        gpus: Vec<String>,
    },
    /// Grants a fleet controller a lease, or renews it (`PUT /v1/lease`).
    Lease(Lease),
    /// Ends the lease (`DELETE /v1/lease`).
    EndLease,
}

/// Mode and budget that a fleet controller sets for a time. The same controller renews the lease by granting it
/// again. When it ends, the configuration rules again, and `caps.safe_budget` if there is one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// The controller's name: 1 to 64 bytes.
    pub controller: String,
    /// How long, in seconds: 1 to 86,400.
    pub seconds: f64,
    /// The mode, in place of the configured one; absent: the configured one. A configured `off` and a kill switch
    /// are stronger.
    #[serde(default)]
    pub mode: Option<Mode>,
    /// The most that all GPU caps may add up to, in watts, unless the administrator's own budget is less; absent:
    /// only the administrator's.
    #[serde(default)]
    pub budget: Option<Watts>,
}

/// The answer to a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// The actions taken, in words.
    pub message: String,
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// The error and a remedy, in words.
    pub error: String,
}
