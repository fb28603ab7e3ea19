//! A node and its workload, as a scenario file describes them. `scenarios/default.toml` documents
//! every key.

use std::path::{Path, PathBuf};

use litd_units::{Celsius, Hertz, Kelvins, Millis, Watts};
use thiserror::Error;

use crate::workload::{Workload, WorkloadError};

/// The policies that a scenario may be about, in the paper's order (Table I).
pub const POLICIES: [&str; 3] = ["gpu-red", "gpu-realloc", "cpu-slosh"];

/// The lowest relative clock: what a GPU must be able to keep under its lowest cap, and at its
/// slowdown temperature. Scenarios in which it could not are refused.
pub const MIN_CLOCK: f64 = 0.1;

/// The shipped scenarios by name.
const BUILTIN: [(&str, &str); 11] = [
    ("default", include_str!("../scenarios/default.toml")),
    ("no-headroom", include_str!("../scenarios/no-headroom.toml")),
    ("no-effect", include_str!("../scenarios/no-effect.toml")),
    (
        "thermal-straggler",
        include_str!("../scenarios/thermal-straggler.toml"),
    ),
    ("late-host", include_str!("../scenarios/late-host.toml")),
    ("slow-link", include_str!("../scenarios/slow-link.toml")),
    ("uneven-data", include_str!("../scenarios/uneven-data.toml")),
    (
        "two-stragglers",
        include_str!("../scenarios/two-stragglers.toml"),
    ),
    (
        "mi300x-node1",
        include_str!("../scenarios/mi300x-node1.toml"),
    ),
    (
        "mi300x-node0",
        include_str!("../scenarios/mi300x-node0.toml"),
    ),
    ("a100", include_str!("../scenarios/a100.toml")),
];

/// Names of the shipped scenarios, for [`Scenario::builtin`].
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    BUILTIN.iter().map(|&(name, _)| name)
}

/// A node and what runs on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// A line for headings.
    pub title: String,
    /// The scenario's special feature and the right diagnosis.
    pub description: String,
    /// The [`POLICIES`] that it is about; empty: all of them.
    pub policies: Vec<String>,
    /// The work of every GPU in an iteration.
    pub workload: Workload,
    /// How many times slower computation runs while a collective is resident (rule 3).
    pub contention: f64,
    /// Deviation of one kernel's work on one GPU in one iteration, as a part of the work.
    pub kernel_noise: f64,
    /// Deviation of all work on one GPU in one iteration, as a part of the work.
    pub iteration_noise: f64,
    /// The clock at which relative speed is 1.
    pub reference_clock: Hertz,
    /// Limits that all GPUs share.
    pub caps: CapLimits,
    /// The GPUs.
    pub gpus: Vec<GpuSpec>,
    /// The CPUs. Each hosts an equal share of the GPUs, in order.
    pub cpus: Vec<CpuSpec>,
}

/// The range of caps that the driver accepts, and the caps at the start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CapLimits {
    /// The highest cap that the driver accepts.
    pub tdp: Watts,
    /// The lowest cap that the driver accepts.
    pub driver_min: Watts,
    /// The lowest cap that litd should use; not lower than `driver_min`.
    pub floor: Watts,
    /// The cap found at start.
    pub initial: Watts,
    /// The cap at which clock offsets are given.
    pub reference: Watts,
    /// The driver's unit: caps are cut off to whole multiples of it.
    pub resolution: Watts,
}

/// A GPU. Its power is `idle * (1 + leakage * (T - T_ref)) + gain * clock^alpha` (docs/daemon.md, with
/// leakage added), where `T_ref` is the steady temperature at the reference cap and the gain is such that the
/// clock is `1 + clock_offset` there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpuSpec {
    /// Relative clock at the reference cap in thermal steady state, minus 1.
    pub clock_offset: f64,
    /// Power without a clock, at `T_ref`.
    pub idle: Watts,
    /// How steeply power grows with the clock.
    pub alpha: f64,
    /// The highest relative clock.
    pub max_clock: f64,
    /// Temperature above the inlet per watt in steady state (kelvins per watt).
    pub thermal_resistance: f64,
    /// How long a temperature takes to come within 1/e of its steady state; the heat capacity is
    /// this over the resistance.
    pub time_constant: Millis,
    /// Temperature of the air or water that cools it.
    pub inlet: Celsius,
    /// By which part the idle power grows per kelvin.
    pub leakage_per_kelvin: f64,
    /// Where the firmware lowers the clock so that it gets no hotter.
    pub slowdown: Celsius,
    /// How late the host is with every kernel.
    pub host_gap: Millis,
    /// By which share its transfers take longer than the workload's.
    pub slow_link: f64,
    /// By which share its kernels have more work than the workload's.
    pub extra_work: f64,
}

impl GpuSpec {
    /// Temperature in steady state at this power.
    #[must_use]
    pub fn steady_temperature(&self, power: Watts) -> Celsius {
        self.inlet + Kelvins(self.thermal_resistance * power.0)
    }

    /// Idle power at this temperature; `reference` is the cap that [`Self::idle`] goes with.
    #[must_use]
    pub fn idle_at(&self, temperature: Celsius, reference: Watts) -> Watts {
        let warmer = temperature - self.steady_temperature(reference);
        self.idle * (1.0 + self.leakage_per_kelvin * warmer.0)
    }

    /// Power above idle at the clock 1: what makes the clock `1 + clock_offset` at `reference`.
    #[must_use]
    pub fn gain(&self, reference: Watts) -> Watts {
        (reference - self.idle) / (1.0 + self.clock_offset).powf(self.alpha)
    }
}

/// A CPU socket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuSpec {
    /// The socket's power limit: its start, and the highest that it accepts.
    pub limit: Watts,
    /// The socket's power without a limit.
    pub draw: Watts,
    /// The lowest limit that it accepts.
    pub floor: Watts,
    /// The time of a kernel launch on this host; if the limit is below the draw, every kernel on its GPUs
    /// comes late by this times (draw / limit - 1).
    pub launch: Millis,
}

/// Why a scenario is refused.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// The file could not be read.
    #[error("{}: {cause}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The text is not TOML of a scenario's shape.
    #[error("{origin}: {cause}")]
    Syntax {
        /// Where the text came from.
        origin: String,
        /// The parser's error, with line and key.
        cause: Box<toml::de::Error>,
    },
    /// A value that makes no sense.
    #[error("{origin}: {key}: {problem}")]
    Value {
        /// Where the scenario came from.
        origin: String,
        /// The key, such as `gpus.alpha[3]`.
        key: String,
        /// The mistake, and the remedy.
        problem: String,
    },
    /// The workload is refused.
    #[error("{origin}: workload: {cause}")]
    Workload {
        /// Where the scenario came from.
        origin: String,
        /// The mistake in the workload.
        cause: Box<WorkloadError>,
    },
    /// There is no shipped scenario of that name.
    #[error("there is no scenario {name:?}; there are {}", builtin_names().collect::<Vec<_>>().join(", "))]
    NoSuchScenario {
        /// The name asked for.
        name: String,
    },
}

impl Scenario {
    /// A shipped scenario.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn builtin(name: &str) -> Result<Self, ScenarioError> {
        let Some((_, text)) = BUILTIN.iter().find(|(known, _)| *known == name) else {
            return Err(ScenarioError::NoSuchScenario {
                name: name.to_owned(),
            });
        };
        Self::from_toml(text, &format!("{name}.toml"), Path::new(""))
    }

    /// Reads and checks a scenario file.
    ///
    /// # Errors
    /// The file can't be read, isn't a scenario, or makes no sense.
    pub fn load(file: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(file).map_err(|cause| ScenarioError::Read {
            file: file.to_path_buf(),
            cause,
        })?;
        let folder = file.parent().unwrap_or(Path::new(""));
        Self::from_toml(&text, &file.display().to_string(), folder)
    }

    /// Whether all numbers make sense, together too; `origin` is for messages.
    ///
    /// # Errors
    /// The first value that doesn't.
    pub fn check(&self, origin: &str) -> Result<(), ScenarioError> {
        let problem = self.check_node().and_then(|()| {
            self.gpus
                .iter()
                .enumerate()
                .try_for_each(|(g, gpu)| self.check_gpu(g, gpu))?;
            self.cpus
                .iter()
                .enumerate()
                .try_for_each(|(c, cpu)| check_cpu(c, cpu))
        });
        problem.map_err(|(key, problem)| ScenarioError::Value {
            origin: origin.to_owned(),
            key,
            problem,
        })?;
        self.workload
            .check()
            .map_err(|flaw| ScenarioError::Workload {
                origin: origin.to_owned(),
                cause: Box::new(WorkloadError::Flawed {
                    origin: "the workload".to_owned(),
                    flaw: Box::new(flaw),
                }),
            })
    }

    fn check_node(&self) -> Result<(), Problem> {
        for policy in &self.policies {
            if !POLICIES.contains(&policy.as_str()) {
                let known = POLICIES.join(", ");
                let problem = format!("there is no policy {policy:?}; there are {known}");
                return Err(("policies".to_owned(), problem));
            }
        }
        let contention = self.contention;
        range(
            "workload.contention",
            contention,
            1.0..=100.0,
            "from 1 to 100",
        )?;
        range(
            "workload.kernel_noise",
            self.kernel_noise,
            0.0..=0.15,
            "from 0 to 0.15",
        )?;
        range(
            "workload.iteration_noise",
            self.iteration_noise,
            0.0..=0.15,
            "from 0 to 0.15",
        )?;
        range(
            "gpus.reference_clock_mhz",
            self.reference_clock.0 / 1e6,
            1.0..=1e5,
            "above 1",
        )?;
        let caps = &self.caps;
        range("caps.tdp_w", caps.tdp.0, 1.0..=1e5, "from 1 to 100000")?;
        let unit = "above 0 and at most 100";
        range("caps.resolution_w", caps.resolution.0, 1e-6..=100.0, unit)?;
        let tdp = caps.tdp.0;
        range(
            "caps.driver_min_w",
            caps.driver_min.0,
            1.0..=tdp,
            "from 1 to tdp_w",
        )?;
        let above_min = caps.driver_min.0..=tdp;
        let limits = "from driver_min_w to tdp_w";
        range("caps.floor_w", caps.floor.0, above_min.clone(), limits)?;
        range(
            "caps.initial_cap_w",
            caps.initial.0,
            above_min.clone(),
            limits,
        )?;
        range("caps.reference_cap_w", caps.reference.0, above_min, limits)?;
        if self.gpus.is_empty() {
            return Err((
                "gpus.count".to_owned(),
                "there must be at least one GPU".to_owned(),
            ));
        }
        Ok(())
    }

    fn check_gpu(&self, g: usize, gpu: &GpuSpec) -> Result<(), Problem> {
        let caps = &self.caps;
        let key = |name: &str| format!("gpus.{name}[{g}]");
        let offset = gpu.clock_offset * 100.0;
        range(
            &key("clock_offset_percent"),
            offset,
            -50.0..=100.0,
            "from -50 to 100",
        )?;
        let idle = (
            0.0..=caps.reference.0 - 1.0,
            "from 0 to reference_cap_w - 1",
        );
        range(&key("idle_w"), gpu.idle.0, idle.0, idle.1)?;
        range(&key("alpha"), gpu.alpha, 1.0..=5.0, "from 1 to 5")?;
        let fastest = "from 1 + the clock offset to 10";
        range(
            &key("max_clock"),
            gpu.max_clock,
            1.0 + gpu.clock_offset..=10.0,
            fastest,
        )?;
        let resistance = gpu.thermal_resistance;
        range(
            &key("thermal_resistance_k_per_w"),
            resistance,
            0.0..=10.0,
            "from 0 to 10",
        )?;
        let seconds = gpu.time_constant.0 / 1e3;
        range(
            &key("time_constant_s"),
            seconds,
            1e-3..=1e5,
            "from 0.001 to 100000",
        )?;
        range(
            &key("inlet_c"),
            gpu.inlet.0,
            -50.0..=150.0,
            "from -50 to 150",
        )?;
        range(
            &key("leakage_per_k"),
            gpu.leakage_per_kelvin,
            0.0..=0.1,
            "from 0 to 0.1",
        )?;
        range(
            &key("slowdown_c"),
            gpu.slowdown.0,
            gpu.inlet.0..=300.0,
            "from inlet_c to 300",
        )?;
        range(
            &key("host_gap_us"),
            gpu.host_gap.0 * 1e3,
            0.0..=1e6,
            "from 0 to 1000000",
        )?;
        for (name, share) in [
            ("slow_link_percent", gpu.slow_link),
            ("extra_work_percent", gpu.extra_work),
        ] {
            range(&key(name), share * 100.0, 0.0..=1e3, "from 0 to 1000")?;
        }

        // Hotter silicon leaks more and is hotter for it; this must not run away.
        if gpu.idle.0 * gpu.leakage_per_kelvin * resistance >= 0.9 {
            let problem = "the GPU would heat itself without end; lower it, idle_w or \
                           thermal_resistance_k_per_w"
                .to_owned();
            return Err((key("leakage_per_k"), problem));
        }
        if gpu.idle_at(gpu.inlet, caps.reference) < Watts::ZERO {
            let problem = "the idle power would be negative at inlet temperature; lower it";
            return Err((key("leakage_per_k"), problem.to_owned()));
        }
        let hottest = gpu.idle_at(gpu.slowdown, caps.reference).max(gpu.idle);
        let least = hottest + gpu.gain(caps.reference) * MIN_CLOCK.powf(gpu.alpha);
        if least > caps.driver_min {
            let problem = format!(
                "GPU {g} draws {least:.1} at its lowest clock when hot and can't keep that cap; \
                 raise driver_min_w or lower idle_w"
            );
            return Err(("caps.driver_min_w".to_owned(), problem));
        }
        if gpu.steady_temperature(least) > gpu.slowdown {
            let problem = "the GPU would be hotter than that at its lowest clock".to_owned();
            return Err((key("slowdown_c"), problem));
        }
        Ok(())
    }
}

/// A key and what is wrong with its value.
type Problem = (String, String);

fn range(
    key: &str,
    value: f64,
    allowed: std::ops::RangeInclusive<f64>,
    text: &str,
) -> Result<(), Problem> {
    if allowed.contains(&value) {
        return Ok(());
    }
    Err((
        key.to_owned(),
        format!("{value} is out of range; it must be {text}"),
    ))
}

fn check_cpu(c: usize, cpu: &CpuSpec) -> Result<(), Problem> {
    let key = |name: &str| format!("cpus[{c}].{name}");
    range(&key("limit_w"), cpu.limit.0, 1.0..=1e5, "from 1 to 100000")?;
    range(&key("draw_w"), cpu.draw.0, 0.0..=1e5, "from 0 to 100000")?;
    range(
        &key("floor_w"),
        cpu.floor.0,
        1.0..=cpu.limit.0,
        "from 1 to limit_w",
    )?;
    range(
        &key("host_launch_us"),
        cpu.launch.0 * 1e3,
        0.0..=1e6,
        "from 0 to 1000000",
    )
}
