//! The node over time: caps and limits go in as a driver takes them; clocks, temperatures and
//! iterations come out.

use litd_traces::Timeline;
use litd_units::{Hertz, Joules, Millis, Nanos, Watts};
use thiserror::Error;

use crate::device::{Cpu, CpuTelemetry, Gpu, GpuTelemetry};
use crate::iteration::{Conditions, IterationModel, IterationResult};
use crate::record;
use crate::rng::Rng;
use crate::scenario::{CapLimits, Scenario, ScenarioError};
use crate::workload::Workload;

/// Where the node would settle under its present caps, without noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SteadyState {
    /// Length of an iteration.
    pub iteration: Millis,
    /// Power of all GPUs together.
    pub gpu_power: Watts,
    /// Energy of all GPUs for an iteration.
    pub iteration_energy: Joules,
}

/// The driver's error for a request that it does not follow.
#[derive(Debug, Error)]
pub enum PlantError {
    /// The scenario is not one.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// There is no such device.
    #[error("there is no {kind} {index}; the node has {count} (they count from 0)")]
    NoSuchDevice {
        /// "GPU" or "CPU".
        kind: &'static str,
        /// The one asked for.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// No GPU runs at this clock.
    #[error("GPU {index} can't be locked to a clock of {clock}")]
    NoClock {
        /// The GPU.
        index: usize,
        /// The requested clock.
        clock: Hertz,
    },
    /// The device doesn't accept this limit.
    #[error("{kind} {index} refuses a limit of {asked}; it accepts {lowest} to {highest}")]
    Refused {
        /// "GPU" or "CPU".
        kind: &'static str,
        /// The device.
        index: usize,
        /// The requested cap.
        asked: Watts,
        /// The lowest limit that it accepts.
        lowest: Watts,
        /// The highest.
        highest: Watts,
    },
}

/// A simulated node.
#[derive(Debug, Clone)]
pub struct Plant {
    workload: Workload,
    contention: f64,
    kernel_noise: f64,
    iteration_noise: f64,
    reference_clock: Hertz,
    caps: CapLimits,
    gpus: Vec<Gpu>,
    cpus: Vec<Cpu>,
    seed: u64,
    model: IterationModel,
    /// Iterations run.
    iterations: u32,
    /// Simulated time of all of them.
    elapsed: Nanos,
    /// The state for the next iteration; kept so that iterations don't allocate.
    speeds: Vec<f64>,
    host_gap: Vec<Millis>,
    slow_link: Vec<f64>,
    noise: Vec<Vec<f64>>,
}

impl Plant {
    /// Switches a node on: GPUs at inlet temperature, caps and limits where the scenario has
    /// them. The same scenario and seed give the same numbers.
    ///
    /// # Errors
    /// The scenario makes no sense (its fields are public; a loaded one always does).
    pub fn new(scenario: &Scenario, seed: u64) -> Result<Self, PlantError> {
        scenario.check("scenario")?;
        let model = IterationModel::new(&scenario.workload).map_err(|flaw| {
            let origin = "scenario".to_owned();
            let problem = flaw.to_string();
            ScenarioError::Value {
                origin,
                key: "workload".to_owned(),
                problem,
            }
        })?;
        let gpu_count = scenario.gpus.len();
        let kernels = scenario.workload.kernels.len();
        let gpus = scenario
            .gpus
            .iter()
            .map(|&spec| Gpu::new(spec, &scenario.caps));
        let cpus = scenario.cpus.iter().map(|&spec| Cpu::new(spec));
        let mut plant = Self {
            workload: scenario.workload.clone(),
            contention: scenario.contention,
            kernel_noise: scenario.kernel_noise,
            iteration_noise: scenario.iteration_noise,
            reference_clock: scenario.reference_clock,
            caps: scenario.caps,
            gpus: gpus.collect(),
            cpus: cpus.collect(),
            seed,
            model,
            iterations: 0,
            elapsed: Nanos::ZERO,
            speeds: vec![1.0; gpu_count],
            host_gap: vec![Millis::ZERO; gpu_count],
            slow_link: scenario.gpus.iter().map(|spec| spec.slow_link).collect(),
            noise: vec![vec![1.0; kernels]; gpu_count],
        };
        for gpu in 0..gpu_count {
            plant.set_gpu_cap(gpu, scenario.caps.initial)?;
        }
        Ok(plant)
    }

    /// How many GPUs there are.
    #[must_use]
    pub fn gpu_count(&self) -> usize {
        self.gpus.len()
    }

    /// How many CPUs there are.
    #[must_use]
    pub fn cpu_count(&self) -> usize {
        self.cpus.len()
    }

    /// The range of caps that the driver accepts.
    #[must_use]
    pub fn cap_limits(&self) -> &CapLimits {
        &self.caps
    }

    /// The workload of the node.
    #[must_use]
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Asks the driver for a cap, which it cuts off to whole units, and reads it back.
    ///
    /// # Errors
    /// No such GPU, or a cap that is no number or out of the driver's range.
    pub fn set_gpu_cap(&mut self, gpu: usize, asked: Watts) -> Result<Watts, PlantError> {
        let CapLimits {
            driver_min,
            tdp,
            resolution,
            ..
        } = self.caps;
        let cap = asked.cut_to(resolution);
        let state = find_mut(&mut self.gpus, "GPU", gpu)?;
        if !(asked <= tdp && cap >= driver_min) {
            return Err(PlantError::Refused {
                kind: "GPU",
                index: gpu,
                asked,
                lowest: driver_min,
                highest: tdp,
            });
        }
        state.cap = cap;
        Ok(cap)
    }

    /// Has a GPU run at no more than a clock; `None`: at its own highest.
    ///
    /// # Errors
    /// No such GPU, or a clock that is none.
    pub fn lock_gpu_clock(&mut self, gpu: usize, clock: Option<Hertz>) -> Result<(), PlantError> {
        let reference = self.reference_clock;
        let state = find_mut(&mut self.gpus, "GPU", gpu)?;
        match clock {
            Some(clock) if !(clock.0 > 0.0 && clock.0.is_finite()) => {
                return Err(PlantError::NoClock { index: gpu, clock });
            }
            _ => state.locked = clock.map(|clock| clock.0 / reference.0),
        }
        Ok(())
    }

    /// The highest clock that a GPU may have.
    ///
    /// # Errors
    /// No such GPU.
    pub fn gpu_highest_clock(&self, gpu: usize) -> Result<Hertz, PlantError> {
        let state = find(&self.gpus, "GPU", gpu)?;
        Ok(Hertz(state.spec.max_clock * self.reference_clock.0))
    }

    /// The cap in force.
    ///
    /// # Errors
    /// No such GPU.
    pub fn gpu_cap(&self, gpu: usize) -> Result<Watts, PlantError> {
        find(&self.gpus, "GPU", gpu).map(|state| state.cap)
    }

    /// Sets a CPU's power limit and reads it back.
    ///
    /// # Errors
    /// No such CPU, or a limit that is no number, below its floor or above its own limit.
    pub fn set_cpu_limit(&mut self, cpu: usize, asked: Watts) -> Result<Watts, PlantError> {
        let state = find_mut(&mut self.cpus, "CPU", cpu)?;
        if !(asked >= state.spec.floor && asked <= state.spec.limit) {
            return Err(PlantError::Refused {
                kind: "CPU",
                index: cpu,
                asked,
                lowest: state.spec.floor,
                highest: state.spec.limit,
            });
        }
        state.limit = asked;
        Ok(asked)
    }

    /// From now on the work asks for so much of a CPU's power; its limit decides what it gets.
    ///
    /// # Errors
    /// No such CPU, or a power that is none.
    pub fn set_cpu_draw(&mut self, cpu: usize, draw: Watts) -> Result<(), PlantError> {
        let state = find_mut(&mut self.cpus, "CPU", cpu)?;
        if !(draw >= Watts::ZERO && draw.is_finite()) {
            return Err(PlantError::Refused {
                kind: "CPU",
                index: cpu,
                asked: draw,
                lowest: Watts::ZERO,
                highest: state.spec.limit,
            });
        }
        state.spec.draw = draw;
        Ok(())
    }

    /// The CPU limit in force.
    ///
    /// # Errors
    /// No such CPU.
    pub fn cpu_limit(&self, cpu: usize) -> Result<Watts, PlantError> {
        find(&self.cpus, "CPU", cpu).map(|state| state.limit)
    }

    /// Runs one iteration under the present caps and temperatures, and lets its time pass.
    pub fn run_iteration(&mut self) -> &IterationResult {
        for (gpu, speed) in self.gpus.iter_mut().zip(&mut self.speeds) {
            gpu.operate(&self.caps);
            *speed = gpu.clock;
        }
        self.set_host_gaps();
        self.draw_noise();
        let uneven = self.gpus.iter().any(|gpu| gpu.spec.extra_work > 0.0);
        let noisy = self.kernel_noise > 0.0 || self.iteration_noise > 0.0 || uneven;
        let conditions = Conditions {
            speeds: &self.speeds,
            contention: self.contention,
            noise: noisy.then_some(self.noise.as_slice()),
            host_gap: Some(&self.host_gap),
            slow_link: Some(&self.slow_link),
        };
        let result = self.model.run_checked(&conditions);
        for gpu in &mut self.gpus {
            gpu.pass(result.length);
        }
        self.elapsed += result.length.to_nanos();
        self.iterations = self.iterations.saturating_add(1);
        result
    }

    /// The node becomes another while it runs: its GPUs and its workload are those of a scenario
    /// with as many GPUs from now on. Caps, temperatures and noise go on.
    ///
    /// # Errors
    /// The scenario makes no sense, or has another number of GPUs.
    pub fn change(&mut self, scenario: &Scenario) -> Result<(), PlantError> {
        let fresh = Self::new(scenario, self.seed)?;
        let (count, index) = (self.gpus.len(), fresh.gpus.len());
        if index != count {
            let kind = "GPU";
            return Err(PlantError::NoSuchDevice { kind, index, count });
        }
        for (gpu, new) in self.gpus.iter_mut().zip(fresh.gpus) {
            gpu.become_like(new);
        }
        self.workload = fresh.workload;
        self.model = fresh.model;
        self.contention = fresh.contention;
        self.noise = fresh.noise;
        Ok(())
    }

    /// Jumps to the thermal steady state of the present caps; no simulated time passes.
    pub fn settle(&mut self) {
        for gpu in &mut self.gpus {
            gpu.settle(&self.caps);
        }
    }

    /// Where the node would settle under its present caps, without noise; nothing changes.
    #[must_use]
    pub fn steady_state(&self) -> SteadyState {
        let mut settled = self.clone();
        settled.kernel_noise = 0.0;
        settled.iteration_noise = 0.0;
        settled.settle();
        let iteration = settled.run_iteration().length;
        SteadyState {
            iteration,
            gpu_power: settled.gpu_power(),
            iteration_energy: settled.iteration_energy(),
        }
    }

    fn set_host_gaps(&mut self) {
        let (gpus, cpus) = (self.gpus.len(), self.cpus.len());
        for (g, gap) in self.host_gap.iter_mut().enumerate() {
            let starved = self
                .cpus
                .get(g * cpus / gpus)
                .map_or(Millis::ZERO, Cpu::gap);
            *gap = self.gpus[g].spec.host_gap + starved;
        }
    }

    fn draw_noise(&mut self) {
        let iteration = u64::from(self.iterations);
        for ((row, gpu), g) in self.noise.iter_mut().zip(&self.gpus).zip(0..) {
            let mut rng = Rng::stream(self.seed, &[iteration, g]);
            let common = 1.0 + self.iteration_noise * rng.normal();
            let common = common * (1.0 + gpu.spec.extra_work);
            for factor in row {
                *factor = common * (1.0 + self.kernel_noise * rng.normal());
            }
        }
    }

    /// The last iteration; empty before the first.
    #[must_use]
    pub fn last(&self) -> &IterationResult {
        self.model.last()
    }

    /// Start times of the last iteration's computation kernels, `[gpu][kernel]`, from its begin.
    #[must_use]
    pub fn starts(&self) -> &[Vec<Millis>] {
        &self.model.last().start
    }

    /// The last iteration as a profiler would have recorded it, one timeline per GPU: absolute
    /// times, which continue from iteration to iteration. Empty before the first.
    #[must_use]
    pub fn timelines(&self) -> Vec<Timeline> {
        let Some(number) = self.iterations.checked_sub(1) else {
            return Vec::new();
        };
        let last = self.model.last();
        let begin = record::EPOCH + self.elapsed - last.length.to_nanos();
        record::timelines(&self.workload, last, begin, number)
    }

    /// Iterations run so far.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Simulated time since the node was switched on.
    #[must_use]
    pub fn elapsed(&self) -> Nanos {
        self.elapsed
    }

    /// A GPU's values as the driver reports them.
    ///
    /// # Errors
    /// No such GPU.
    pub fn gpu(&self, gpu: usize) -> Result<GpuTelemetry, PlantError> {
        find(&self.gpus, "GPU", gpu).map(|gpu| gpu.telemetry(self.reference_clock))
    }

    /// The values of all GPUs, in order, as the driver reports them.
    pub fn gpus(&self) -> impl Iterator<Item = GpuTelemetry> {
        let reference = self.reference_clock;
        self.gpus.iter().map(move |gpu| gpu.telemetry(reference))
    }

    /// The values of all CPUs, in order, as the system reports them.
    pub fn cpus(&self) -> impl Iterator<Item = CpuTelemetry> {
        self.cpus.iter().map(Cpu::telemetry)
    }

    /// Power of all GPUs together in the last iteration.
    #[must_use]
    pub fn gpu_power(&self) -> Watts {
        self.gpus.iter().map(|gpu| gpu.power).sum()
    }

    /// Power of all CPUs together.
    #[must_use]
    pub fn cpu_power(&self) -> Watts {
        self.cpus.iter().map(Cpu::draw).sum()
    }

    /// Energy of all GPUs in the last iteration.
    #[must_use]
    pub fn iteration_energy(&self) -> Joules {
        Joules(self.gpu_power().0 * self.model.last().length.0 / 1e3)
    }
}

fn find<'a, T>(devices: &'a [T], kind: &'static str, index: usize) -> Result<&'a T, PlantError> {
    let count = devices.len();
    devices
        .get(index)
        .ok_or(PlantError::NoSuchDevice { kind, index, count })
}

fn find_mut<'a, T>(
    devices: &'a mut [T],
    kind: &'static str,
    index: usize,
) -> Result<&'a mut T, PlantError> {
    let count = devices.len();
    devices
        .get_mut(index)
        .ok_or(PlantError::NoSuchDevice { kind, index, count })
}
