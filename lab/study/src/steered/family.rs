//! The plants of `lab/plants`: what a daemon's tools and a hook would see of them, and no more.

use std::str::FromStr;

use litd_plants::workload::Class;
use litd_plants::{Limiter, Plant, Reading};
use litd_policies::{Cpu, Drawn, GpuReading, Limits, Node};
use litd_sim::rng::Rng;
use litd_traces::{Limit, limit_of};
use litd_units::{Joules, Millis, Nanos, Watts};

use super::{Kernels, Ran, Span, Steered};
use crate::StudyError;
use crate::optimum::Outcome;

/// The daemon's own floors, where a driver's are lower (`caps.gpu_floor`, `caps.cpu_floor`).
const GPU_FLOOR: Watts = Watts(200.0);
const CPU_FLOOR: Watts = Watts(100.0);

/// What a driver tells of a GPU's power limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PowerBit {
    /// Whether it truly is what limits the GPU.
    #[default]
    Cause,
    /// As NVML does on an H100 (`lab/measured`): current limits count as power limits.
    Nvml,
    /// The same, doubted where the mean of power is far below the cap.
    Doubted,
}

/// Whoever doubts the bit believes it where the mean of power is within this share of the cap.
const NEAR_LIMIT: f64 = 0.15;

impl FromStr for PowerBit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cause" => Ok(Self::Cause),
            "nvml" => Ok(Self::Nvml),
            "doubted" => Ok(Self::Doubted),
            _ => Err("must be cause, nvml or doubted (docs/laws-results.md)".to_owned()),
        }
    }
}

impl PowerBit {
    /// Whether a reading says that power limits its GPU.
    pub fn is_set(self, reading: &Reading) -> bool {
        let by_power = reading.limiter == Limiter::Power;
        let near = reading.power.0 >= reading.cap.0 * (1.0 - NEAR_LIMIT);
        match self {
            Self::Cause => by_power,
            Self::Nvml => by_power || reading.limiter == Limiter::Current,
            Self::Doubted => Self::Nvml.is_set(reading) && near,
        }
    }
}

/// A plant with the caps that it is to hold, and what limited its GPUs since they were read last.
#[derive(Debug, Clone)]
pub struct Family<P> {
    plant: P,
    caps: Vec<Watts>,
    /// The CPUs' limit as it was found.
    found: Watts,
    iterations: u64,
    last: Millis,
    /// Power as a tool reads it is the mean of so much time, ending at random moments.
    window: Millis,
    moments: u64,
    /// True power of each GPU in the last iteration, and its counter's energy before and after.
    power: Vec<Watts>,
    counted: [Vec<Joules>; 2],
    /// What the daemon would keep of its readings, and what the counters told at the last of them.
    drawn: Vec<Drawn>,
    told: Vec<Joules>,
    /// The time since the node was set up, and of the last reading.
    now: Millis,
    asked: Millis,
    /// Iterations since the last reading, in how many of them power limited each GPU, and whether
    /// heat did in any.
    since: u32,
    by_power: Vec<u32>,
    bit: PowerBit,
    throttled: Vec<bool>,
}

/// Energy counters are brought up to date no more often than this.
const COUNTED: Millis = Millis(100.0);

/// The daemon reads its devices once in so much time.
const READ: Millis = Millis(1000.0);

impl<P: Plant + Clone> Family<P> {
    /// With the caps that its owner has. Tools read power as means of `window`, at
    /// moments that `seed` gives, and what limits a GPU by `bit`.
    pub fn new(plant: P, window: Millis, bit: PowerBit, seed: u64) -> Self {
        let gpus = plant.gpu_count();
        let mut begun = Drawn::default();
        begun.add(Nanos::ZERO, None, Some(Joules::ZERO));
        Self {
            window,
            bit,
            moments: seed,
            power: vec![Watts::ZERO; gpus],
            counted: [vec![Joules::ZERO; gpus], vec![Joules::ZERO; gpus]],
            drawn: vec![begun; gpus],
            told: vec![Joules::ZERO; gpus],
            now: Millis::ZERO,
            asked: Millis::ZERO,
            caps: plant.start(),
            found: plant.cpus().limit,
            plant,
            iterations: 0,
            last: Millis::ZERO,
            since: 0,
            by_power: vec![0; gpus],
            throttled: vec![false; gpus],
        }
    }

    /// One more reading of each GPU, as the daemon takes it: whenever its clock says so. A counter is brought up to
    /// date once in a sensor's window, and never goes down.
    fn look(&mut self) {
        let mut rng = Rng::stream(self.moments, &[0x5e45, self.iterations]);
        for gpu in 0..self.gpu_count() {
            let moment = rng.uniform();
            let late = self.window.0.max(COUNTED.0) * moment * 1e-3;
            let told = self.counted[1][gpu].0 - self.power[gpu].0 * late;
            self.told[gpu].0 = self.told[gpu].0.max(told);
            let (asked, shown) = (Nanos((self.now.0 * 1e6) as i64), self.shown(gpu, moment));
            self.drawn[gpu].add(asked, Some(shown), Some(self.told[gpu]));
        }
        self.asked = self.now;
    }

    /// Power as the sensor shows it at a moment of the last iteration. A daemon reads whenever its
    /// clock says so, and not at iterations' ends, where the plant's own readings are taken.
    fn shown(&self, gpu: usize, moment: f64) -> Watts {
        let length = self.last.0.max(1e-6);
        let window = self.window.0.min(length);
        let counted = (self.counted[1][gpu] - self.counted[0][gpu]).0 * 1e3 / length;
        let course = self.plant.timeline().course.get(gpu);
        let (Some(course), true) = (course, window < length) else {
            return Watts(counted);
        };
        // Joules above idle up to a moment: the course's points, straight lines between them.
        let until = |time: f64| {
            let after = course.partition_point(|it| it.0 < time).max(1);
            match (course.get(after - 1), course.get(after)) {
                (Some(a), Some(b)) if b.0 > a.0 => a.1 + (b.1 - a.1) * (time - a.0) / (b.0 - a.0),
                (Some(a), _) => a.1,
                _ => 0.0,
            }
        };
        let end = window + (length - window) * moment;
        let here = (until(end) - until(end - window)) * 1e3 / window;
        let even = self.power[gpu].0 - until(length) * 1e3 / length;
        // The sensor's gain, which its counter has too.
        Watts((here + even) * counted / self.power[gpu].0.max(1e-6))
    }
}

/// A kernel as real tools name its kind, so that what the daemon makes of names is used.
fn named(name: &str, class: Class) -> (String, Option<Limit>) {
    let kind = match class {
        Class::Gemm => "gemm",
        Class::Attention => "flash_fwd",
        Class::Vector => "elementwise",
        Class::Memory => "multi_tensor_apply",
        Class::Latency => "small",
    };
    (format!("{name}.{kind}"), limit_of(kind))
}

impl<P: Plant + Clone> Steered for Family<P> {
    fn gpu_count(&self) -> usize {
        self.plant.gpu_count()
    }

    fn node(&self) -> Node {
        let range = self.plant.range();
        let gpu = Limits {
            floor: range.lowest.max(GPU_FLOOR),
            ceiling: range.highest,
            resolution: range.unit,
        };
        let cpu = Cpu {
            limits: Limits {
                floor: CPU_FLOOR,
                ceiling: self.found,
                resolution: range.unit,
            },
            draw: self.plant.cpus().draw,
        };
        Node {
            gpus: vec![gpu; self.gpu_count()],
            cpus: vec![cpu],
        }
    }

    fn range(&self) -> (Watts, Watts) {
        let range = self.plant.range();
        (range.lowest, range.highest)
    }

    fn kernels(&self) -> Kernels {
        let workload = self.plant.workload();
        let kernels = workload.kernels.iter();
        let collectives = workload.collectives.iter();
        Kernels {
            computation: kernels.map(|it| named(&it.name, it.class)).collect(),
            collectives: collectives.map(|it| it.name.clone()).collect(),
        }
    }

    fn iterations(&self) -> u64 {
        self.iterations
    }

    fn iterate(&mut self) -> Ran {
        let it = self.plant.iterate(&self.caps);
        let (time, gpus) = (it.wall, it.power.iter().copied().sum());
        self.power.clone_from(&it.power);
        self.last = time;
        self.now += time;
        self.iterations += 1;
        self.since += 1;
        self.counted.swap(0, 1);
        for (gpu, reading) in self.plant.readings().into_iter().enumerate() {
            self.counted[1][gpu] = reading.energy;
            self.by_power[gpu] += u32::from(self.bit.is_set(&reading));
            self.throttled[gpu] |= reading.limiter == Limiter::Thermal;
        }
        if self.now - self.asked >= READ {
            self.look();
        }
        Ran {
            time,
            gpus,
            node: self.plant.node_power(),
        }
    }

    fn spans(&self, rank: usize) -> (Vec<Span>, Vec<Span>) {
        let workload = self.plant.workload();
        let timeline = self.plant.timeline();
        let row = |of: &[f64], width: usize| of[rank * width..(rank + 1) * width].to_vec();
        let span = |(start, end): (f64, f64)| (Millis(start), Millis(end - start));
        let kernels = workload.kernels.len();
        let starts = row(&timeline.start, kernels);
        let ends = row(&timeline.end, kernels);
        let resident = row(&timeline.resident, workload.collectives.len());
        let ended = timeline.ended.iter().copied();
        (
            starts.into_iter().zip(ends).map(span).collect(),
            resident.into_iter().zip(ended).map(span).collect(),
        )
    }

    fn last(&self) -> Millis {
        self.last
    }

    fn readings(&mut self) -> Vec<GpuReading> {
        let since = f64::from(self.since.max(1));
        if self.now > self.asked {
            self.look();
        }
        let readings = self.plant.readings().into_iter().enumerate();
        let told = readings.map(|(gpu, it)| GpuReading {
            cap: it.cap,
            temperature: Some(it.temperature),
            slowdown: Some(it.slowdown),
            throttled: self.throttled[gpu],
            power_share: Some(f64::from(self.by_power[gpu]) / since),
            power: self.drawn[gpu].mean(),
            clock: Some(it.clock),
            ..GpuReading::default()
        });
        let told = told.collect();
        self.since = 0;
        self.by_power.fill(0);
        self.throttled.fill(false);
        self.drawn = self.drawn.iter().map(Drawn::next).collect();
        told
    }

    fn cap(&self, device: usize) -> Result<Watts, StudyError> {
        match device.checked_sub(self.gpu_count()) {
            None => Ok(self.caps[device]),
            Some(0) => Ok(self.plant.cpus().limit),
            Some(_) => Err(StudyError::Write(format!("there is no device {device}"))),
        }
    }

    fn set(&mut self, device: usize, cap: Watts) -> Result<(), StudyError> {
        let range = self.plant.range();
        match device.checked_sub(self.gpu_count()) {
            None if cap >= range.lowest && cap <= range.highest => self.caps[device] = cap,
            Some(0) if cap > Watts::ZERO => self.plant.set_cpu_limit(cap),
            _ => {
                return Err(StudyError::Write(format!("device {device} refuses {cap}")));
            }
        }
        Ok(())
    }

    fn settle(&mut self) {
        self.plant.settle(&self.caps);
    }

    fn steady(&self, caps: &[Watts]) -> Result<Outcome, StudyError> {
        let steady = self.plant.steady(caps);
        Ok(Outcome {
            time: steady.iteration,
            power: steady.gpu_power(),
        })
    }
}
