//! The work of every GPU in a training iteration: the oracle's workload format, and the FSDP workload that
//! the oracle's cases use.

use std::path::{Path, PathBuf};

use litd_units::Millis;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest workload that is accepted, as the sum of all its times: thirty years. It keeps
/// every later sum of times finite.
const LONGEST: Millis = Millis(1e12);

/// A computation kernel. All GPUs run the same ones in the same order (rule 1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComputeKernel {
    /// Name, the same on every GPU.
    pub name: String,
    /// Time at the reference clock, with no collective resident (rule 2).
    #[serde(rename = "work_ms")]
    pub work: Millis,
    /// The part of the work, from 0 to 1, whose speed follows the clock (rule 2).
    pub clock_bound: f64,
    /// The collective that must have ended before the kernel starts (rule 5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<usize>,
}

/// A collective. All GPUs run the same ones in the same order (rule 1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectiveSpec {
    /// Name, the same on every GPU.
    pub name: String,
    /// Time from the moment it is resident on all GPUs to its end (rule 4).
    #[serde(rename = "transfer_ms")]
    pub transfer: Millis,
    /// The kernel whose start on a GPU makes the collective resident there, at the earliest;
    /// `None`: resident as soon as the collective before it has ended (rule 3).
    // Without this attribute serde would take a missing key for null.
    #[serde(deserialize_with = "Option::deserialize")]
    pub after_start_of: Option<usize>,
    /// In how many groups of neighbouring GPUs it runs, each for itself, as those of tensor
    /// parallelism do; 1: all GPUs wait for each other.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub groups: usize,
}

fn one() -> usize {
    1
}

fn is_one(groups: &usize) -> bool {
    *groups == 1
}

/// A training iteration as the oracle's JSON files have it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Computation kernels, in stream order.
    pub kernels: Vec<ComputeKernel>,
    /// Collectives, in stream order.
    pub collectives: Vec<CollectiveSpec>,
}

/// Why a workload is refused.
#[derive(Debug, Error)]
pub enum WorkloadError {
    /// The file could not be read.
    #[error("{}: {cause}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The text is not JSON of the workload's shape.
    #[error("{origin}: not a workload: {cause}")]
    Syntax {
        /// Where the text came from.
        origin: String,
        /// The parser's error, with line and column.
        cause: serde_json::Error,
    },
    /// The workload reads well and makes no sense.
    #[error("{origin}: {flaw}")]
    Flawed {
        /// Where the workload came from.
        origin: String,
        /// The mistake.
        flaw: Box<Flaw>,
    },
}

/// A mistake in a workload.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Flaw {
    /// The workload has no kernels.
    #[error("`kernels` is empty; at least one computation kernel is needed")]
    NoKernels,
    /// A time or a ratio out of its range.
    #[error("{item}: `{key}` is {value}; it must be {range}")]
    OutOfRange {
        /// The kernel or collective.
        item: String,
        /// The JSON key.
        key: &'static str,
        /// The value.
        value: f64,
        /// The range that it must be in.
        range: &'static str,
    },
    /// An index that points nowhere.
    #[error("{item}: `{key}` is {index}, but there are only {count} {of} (indices count from 0)")]
    NoSuchIndex {
        /// The kernel or collective.
        item: String,
        /// The JSON key.
        key: &'static str,
        /// The index.
        index: usize,
        /// How many there are.
        count: usize,
        /// Of what.
        of: &'static str,
    },
    /// A kernel and a collective that wait for each other.
    #[error(
        "deadlock: {kernel} needs {needed}, which comes no earlier than {blocking}, which waits \
         for kernel {trigger} to start; let `after_start_of` name an earlier kernel"
    )]
    Deadlock {
        /// The kernel that can never start.
        kernel: String,
        /// The collective that it needs.
        needed: String,
        /// The collective that can never become resident.
        blocking: String,
        /// The kernel that this one waits for.
        trigger: usize,
    },
    /// All times together are absurd.
    #[error("`work_ms` and `transfer_ms` add up to more than {LONGEST}")]
    TooLong,
}

impl Workload {
    /// Reads and checks a workload file.
    ///
    /// # Errors
    /// The file can't be read, isn't a workload, or makes no sense.
    pub fn load(file: &Path) -> Result<Self, WorkloadError> {
        let text = std::fs::read_to_string(file).map_err(|cause| WorkloadError::Read {
            file: file.to_path_buf(),
            cause,
        })?;
        Self::from_json(&text, &file.display().to_string())
    }

    /// Reads and checks a workload's JSON; `origin` is for messages.
    ///
    /// # Errors
    /// The text isn't a workload, or makes no sense.
    pub fn from_json(text: &str, origin: &str) -> Result<Self, WorkloadError> {
        let workload: Self = serde_json::from_str(text).map_err(|cause| WorkloadError::Syntax {
            origin: origin.to_owned(),
            cause,
        })?;
        workload.check().map_err(|flaw| WorkloadError::Flawed {
            origin: origin.to_owned(),
            flaw: Box::new(flaw),
        })?;
        Ok(workload)
    }

    /// Whether the workload can be executed: indices point somewhere, times are finite, nothing
    /// waits for itself.
    ///
    /// # Errors
    /// The first flaw found.
    pub fn check(&self) -> Result<(), Flaw> {
        if self.kernels.is_empty() {
            return Err(Flaw::NoKernels);
        }
        for (k, kernel) in self.kernels.iter().enumerate() {
            let item = || self.kernel_label(k);
            check_time(item, "work_ms", kernel.work)?;
            if !(0.0..=1.0).contains(&kernel.clock_bound) {
                return Err(Flaw::OutOfRange {
                    item: item(),
                    key: "clock_bound",
                    value: kernel.clock_bound,
                    range: "between 0 and 1",
                });
            }
            check_index(
                item,
                "needs",
                kernel.needs,
                self.collectives.len(),
                "collectives",
            )?;
        }
        for (j, collective) in self.collectives.iter().enumerate() {
            let item = || self.collective_label(j);
            check_time(item, "transfer_ms", collective.transfer)?;
            if collective.groups == 0 {
                return Err(Flaw::OutOfRange {
                    item: item(),
                    key: "groups",
                    value: 0.0,
                    range: "at least 1",
                });
            }
            let trigger = collective.after_start_of;
            check_index(
                item,
                "after_start_of",
                trigger,
                self.kernels.len(),
                "kernels",
            )?;
        }
        let work = self.kernels.iter().map(|kernel| kernel.work);
        let transfer = self
            .collectives
            .iter()
            .map(|collective| collective.transfer);
        if work.chain(transfer).sum::<Millis>() > LONGEST {
            return Err(Flaw::TooLong);
        }
        self.check_deadlock()
    }

    /// Collectives end in order, so a kernel that needs one needs all before it: each must be
    /// resident before that kernel starts.
    fn check_deadlock(&self) -> Result<(), Flaw> {
        // For every collective, the latest trigger up to it, and whose it is.
        let mut latest: Option<(usize, usize)> = None;
        let latest_up_to: Vec<_> = self
            .collectives
            .iter()
            .enumerate()
            .map(|(j, collective)| {
                if let Some(trigger) = collective.after_start_of
                    && latest.is_none_or(|(known, _)| trigger > known)
                {
                    latest = Some((trigger, j));
                }
                latest
            })
            .collect();
        for (k, kernel) in self.kernels.iter().enumerate() {
            let Some(needed) = kernel.needs else { continue };
            if let Some(&Some((trigger, blocking))) = latest_up_to.get(needed)
                && trigger >= k
            {
                return Err(Flaw::Deadlock {
                    kernel: self.kernel_label(k),
                    needed: self.collective_label(needed),
                    blocking: self.collective_label(blocking),
                    trigger,
                });
            }
        }
        Ok(())
    }

    fn kernel_label(&self, k: usize) -> String {
        let name = self.kernels.get(k).map_or("?", |kernel| &kernel.name);
        format!("kernel {k} ({name})")
    }

    fn collective_label(&self, j: usize) -> String {
        let name = self
            .collectives
            .get(j)
            .map_or("?", |collective| &collective.name);
        format!("collective {j} ({name})")
    }
}

fn check_time(item: impl Fn() -> String, key: &'static str, time: Millis) -> Result<(), Flaw> {
    if time.is_finite() && time >= Millis::ZERO {
        return Ok(());
    }
    Err(Flaw::OutOfRange {
        item: item(),
        key,
        value: time.0,
        range: "finite and not negative",
    })
}

fn check_index(
    item: impl Fn() -> String,
    key: &'static str,
    index: Option<usize>,
    count: usize,
    of: &'static str,
) -> Result<(), Flaw> {
    match index {
        Some(index) if index >= count => Err(Flaw::NoSuchIndex {
            item: item(),
            key,
            index,
            count,
            of,
        }),
        _ => Ok(()),
    }
}

/// Name, work in milliseconds and clock-bound part of a layer's kernels (make.py, `FORWARD`).
const FORWARD: [(&str, f64, f64); 10] = [
    ("attn_norm", 0.10, 0.1),
    ("qkv_proj", 0.90, 0.95),
    ("rope", 0.12, 0.1),
    ("attention", 0.70, 0.9),
    ("out_proj", 0.50, 0.95),
    ("mlp_norm", 0.10, 0.1),
    ("gate_proj", 1.10, 0.95),
    ("up_proj", 1.10, 0.95),
    ("silu_mul", 0.15, 0.1),
    ("down_proj", 1.10, 0.95),
];

/// The same for the backward pass (make.py, `BACKWARD`).
const BACKWARD: [(&str, f64, f64); 10] = [
    ("down_proj", 2.10, 0.95),
    ("silu_mul", 0.25, 0.1),
    ("up_proj", 2.10, 0.95),
    ("gate_proj", 2.10, 0.95),
    ("mlp_norm", 0.20, 0.1),
    ("out_proj", 1.00, 0.95),
    ("attention", 1.80, 0.9),
    ("rope", 0.20, 0.1),
    ("qkv_proj", 1.60, 0.95),
    ("attn_norm", 0.20, 0.1),
];

/// How long one layer's collectives transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfers {
    /// The all-gather of its parameters (make.py, `gather_ms`).
    pub all_gather: Millis,
    /// The reduce-scatter of its gradients (make.py, `scatter_ms`).
    pub reduce_scatter: Millis,
}

impl Default for Transfers {
    fn default() -> Self {
        Self {
            all_gather: Millis(1.5),
            reduce_scatter: Millis(3.1),
        }
    }
}

/// FSDP with one-layer prefetch, as make.py's `fsdp`: an all-gather before each layer in both
/// passes, a reduce-scatter after each layer of the backward pass. 32 layers are Llama 3.1 8B.
#[must_use]
pub fn fsdp(layers: usize) -> Workload {
    fsdp_with(layers, Transfers::default())
}

/// [`fsdp`] on another network.
#[must_use]
pub fn fsdp_with(layers: usize, transfers: Transfers) -> Workload {
    let (gather, scatter) = (transfers.all_gather, transfers.reduce_scatter);
    let mut workload = Workload {
        kernels: Vec::with_capacity(layers * (FORWARD.len() + BACKWARD.len())),
        collectives: Vec::with_capacity(3 * layers),
    };
    let mut gathered = (layers > 0).then(|| workload.collective("all_gather", 0, gather, None));
    for layer in 0..layers {
        let first = workload.layer('f', layer, &FORWARD, gathered);
        if layer + 1 < layers {
            gathered = Some(workload.collective("all_gather", layer + 1, gather, Some(first)));
        }
    }
    // The last layer's parameters are still there when the backward pass begins with it.
    gathered = None;
    for layer in (0..layers).rev() {
        let first = workload.layer('b', layer, &BACKWARD, gathered);
        if layer + 1 < layers {
            workload.collective("reduce_scatter", layer + 1, scatter, Some(first));
        }
        if layer > 0 {
            gathered = Some(workload.collective("all_gather", layer - 1, gather, Some(first)));
        }
    }
    if let Some(last) = workload.kernels.len().checked_sub(1) {
        workload.collective("reduce_scatter", 0, scatter, Some(last));
    }
    workload
}

impl Workload {
    /// Appends one layer's kernels, of which the first needs a collective; returns its index.
    fn layer(
        &mut self,
        phase: char,
        layer: usize,
        ops: &[(&str, f64, f64)],
        needs: Option<usize>,
    ) -> usize {
        let first = self.kernels.len();
        for (k, &(name, work, clock_bound)) in ops.iter().enumerate() {
            self.kernels.push(ComputeKernel {
                name: format!("{phase}.{layer}.{name}"),
                work: Millis(work),
                clock_bound,
                needs: needs.filter(|_| k == 0),
            });
        }
        first
    }

    /// Appends a collective; returns its index.
    fn collective(
        &mut self,
        kind: &str,
        layer: usize,
        transfer: Millis,
        after_start_of: Option<usize>,
    ) -> usize {
        self.collectives.push(CollectiveSpec {
            name: format!("{kind}.{layer}"),
            transfer,
            after_start_of,
            groups: 1,
        });
        self.collectives.len() - 1
    }
}
