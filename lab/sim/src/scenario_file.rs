//! The TOML shape of scenario files, and how it becomes a [`Scenario`].

use std::path::{Path, PathBuf};

use litd_units::{Celsius, Hertz, Millis, Watts};
use serde::Deserialize;

use crate::scenario::{CapLimits, CpuSpec, GpuSpec, Scenario, ScenarioError};
use crate::workload::{Transfers, Workload, fsdp_with};

/// The most GPUs and layers that a file may ask for: typing errors end here, not in the
/// machine's memory.
const MOST: usize = 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    policies: Vec<String>,
    workload: WorkloadSection,
    caps: CapSection,
    gpus: GpuSection,
    #[serde(default)]
    cpus: Vec<CpuSection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadSection {
    layers: Option<usize>,
    all_gather_ms: Option<Millis>,
    reduce_scatter_ms: Option<Millis>,
    file: Option<PathBuf>,
    contention: f64,
    #[serde(default)]
    kernel_noise: f64,
    #[serde(default)]
    iteration_noise: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CapSection {
    tdp_w: Watts,
    driver_min_w: Watts,
    floor_w: Watts,
    initial_cap_w: Watts,
    reference_cap_w: Watts,
    resolution_w: Watts,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuSection {
    count: usize,
    reference_clock_mhz: f64,
    clock_offset_percent: PerGpu,
    idle_w: PerGpu,
    alpha: PerGpu,
    max_clock: PerGpu,
    thermal_resistance_k_per_w: PerGpu,
    time_constant_s: PerGpu,
    inlet_c: PerGpu,
    leakage_per_k: PerGpu,
    slowdown_c: PerGpu,
    #[serde(default)]
    host_gap_us: PerGpu,
    #[serde(default)]
    slow_link_percent: PerGpu,
    #[serde(default)]
    extra_work_percent: PerGpu,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CpuSection {
    limit_w: Watts,
    draw_w: Watts,
    floor_w: Watts,
    host_launch_us: f64,
}

/// A number for all GPUs, or a list with one for each.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number for all GPUs, or a list with one number for each"
)]
enum PerGpu {
    All(f64),
    Each(Vec<f64>),
}

impl Default for PerGpu {
    fn default() -> Self {
        Self::All(0.0)
    }
}

/// Makes the errors that name the file.
struct Origin<'a>(&'a str);

impl Origin<'_> {
    fn error(&self, key: &str, problem: impl Into<String>) -> ScenarioError {
        ScenarioError::Value {
            origin: self.0.to_owned(),
            key: key.to_owned(),
            problem: problem.into(),
        }
    }

    fn per_gpu(&self, key: &str, value: &PerGpu, count: usize) -> Result<Vec<f64>, ScenarioError> {
        match value {
            PerGpu::All(number) => Ok(vec![*number; count]),
            PerGpu::Each(numbers) if numbers.len() == count => Ok(numbers.clone()),
            PerGpu::Each(numbers) => Err(self.error(
                key,
                format!(
                    "the list has {} numbers, but gpus.count is {count}; give one for each GPU, \
                     or one number for all",
                    numbers.len()
                ),
            )),
        }
    }
}

impl Scenario {
    /// Reads and checks a scenario's TOML. `origin` is for messages; a workload file is looked
    /// for relative to `folder`.
    ///
    /// # Errors
    /// The text isn't a scenario, or makes no sense.
    pub fn from_toml(text: &str, origin: &str, folder: &Path) -> Result<Self, ScenarioError> {
        let file: File = toml::from_str(text).map_err(|cause| ScenarioError::Syntax {
            origin: origin.to_owned(),
            cause: Box::new(cause),
        })?;
        let names = Origin(origin);
        let scenario = Self {
            title: file.title,
            description: file.description,
            policies: file.policies,
            workload: file.workload.load(&names, folder)?,
            contention: file.workload.contention,
            kernel_noise: file.workload.kernel_noise,
            iteration_noise: file.workload.iteration_noise,
            reference_clock: Hertz(file.gpus.reference_clock_mhz * 1e6),
            caps: CapLimits {
                tdp: file.caps.tdp_w,
                driver_min: file.caps.driver_min_w,
                floor: file.caps.floor_w,
                initial: file.caps.initial_cap_w,
                reference: file.caps.reference_cap_w,
                resolution: file.caps.resolution_w,
            },
            gpus: file.gpus.specs(&names)?,
            cpus: file.cpus.iter().map(CpuSection::spec).collect(),
        };
        scenario.check(origin)?;
        Ok(scenario)
    }
}

impl WorkloadSection {
    fn load(&self, names: &Origin, folder: &Path) -> Result<Workload, ScenarioError> {
        let usual = Transfers::default();
        let transfers = Transfers {
            all_gather: self.all_gather_ms.unwrap_or(usual.all_gather),
            reduce_scatter: self.reduce_scatter_ms.unwrap_or(usual.reduce_scatter),
        };
        let of_layers = self.all_gather_ms.or(self.reduce_scatter_ms).is_some();
        match (self.layers, &self.file) {
            (None, Some(_)) if of_layers => Err(names.error(
                "workload",
                "`all_gather_ms` and `reduce_scatter_ms` go with `layers`; a `file` has its own",
            )),
            (Some(layers), None) if (1..=MOST).contains(&layers) => {
                let workload = fsdp_with(layers, transfers);
                workload
                    .check()
                    .map_err(|flaw| names.error("workload", flaw.to_string()))?;
                Ok(workload)
            }
            (Some(layers), None) => Err(names.error(
                "workload.layers",
                format!("{layers} is out of range; it must be from 1 to {MOST}"),
            )),
            (None, Some(file)) => {
                Workload::load(&folder.join(file)).map_err(|cause| ScenarioError::Workload {
                    origin: names.0.to_owned(),
                    cause: Box::new(cause),
                })
            }
            _ => Err(names.error("workload", "give either `layers` or `file`")),
        }
    }
}

impl GpuSection {
    fn specs(&self, names: &Origin) -> Result<Vec<GpuSpec>, ScenarioError> {
        if self.count > MOST {
            let problem = format!(
                "{} is out of range; it must be from 1 to {MOST}",
                self.count
            );
            return Err(names.error("gpus.count", problem));
        }
        let list = |key: &str, value| names.per_gpu(&format!("gpus.{key}"), value, self.count);
        let offset = list("clock_offset_percent", &self.clock_offset_percent)?;
        let idle = list("idle_w", &self.idle_w)?;
        let alpha = list("alpha", &self.alpha)?;
        let max_clock = list("max_clock", &self.max_clock)?;
        let resistance = list(
            "thermal_resistance_k_per_w",
            &self.thermal_resistance_k_per_w,
        )?;
        let time_constant = list("time_constant_s", &self.time_constant_s)?;
        let inlet = list("inlet_c", &self.inlet_c)?;
        let leakage = list("leakage_per_k", &self.leakage_per_k)?;
        let slowdown = list("slowdown_c", &self.slowdown_c)?;
        let host_gap = list("host_gap_us", &self.host_gap_us)?;
        let slow_link = list("slow_link_percent", &self.slow_link_percent)?;
        let extra_work = list("extra_work_percent", &self.extra_work_percent)?;
        let specs = (0..self.count).map(|g| GpuSpec {
            clock_offset: offset[g] / 100.0,
            idle: Watts(idle[g]),
            alpha: alpha[g],
            max_clock: max_clock[g],
            thermal_resistance: resistance[g],
            time_constant: Millis(time_constant[g] * 1e3),
            inlet: Celsius(inlet[g]),
            leakage_per_kelvin: leakage[g],
            slowdown: Celsius(slowdown[g]),
            host_gap: Millis(host_gap[g] / 1e3),
            slow_link: slow_link[g] / 100.0,
            extra_work: extra_work[g] / 100.0,
        });
        Ok(specs.collect())
    }
}

impl CpuSection {
    fn spec(&self) -> CpuSpec {
        CpuSpec {
            limit: self.limit_w,
            draw: self.draw_w,
            floor: self.floor_w,
            launch: Millis(self.host_launch_us / 1e3),
        }
    }
}
