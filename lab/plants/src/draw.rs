//! A draw: a value for every dimension, from a seed; and the node that follows from it.

use litd_sim::rng::Rng;
use serde::Serialize;

use crate::dimension::Dimension;
use crate::gpu::Gpu;
use crate::kind::{Kind, Spec};
use crate::node::{Heat, Host, Node, Noise, Sensing};
use crate::workload::{CLASSES, Shape, Workload, WorkloadKind};

/// Streams of random numbers, by what they are for.
mod stream {
    pub const KIND: u64 = 1;
    pub const WORKLOAD: u64 = 2;
    pub const DIMENSION: u64 = 3;
    pub const SILICON: u64 = 4;
}

/// A name as a number (FNV-1a), so that a new dimension leaves the values of the others alone.
fn named(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// One point of the family: everything that a plant is made of.
#[derive(Debug, Clone, Serialize)]
pub struct Draw {
    /// The seed that it came from.
    pub seed: u64,
    /// Which GPUs of this kind: another number is another node with the same job and dimensions.
    pub sibling: u64,
    /// The kind of node.
    pub kind: Kind,
    /// Its workload.
    pub workload: WorkloadKind,
    values: Vec<f64>,
}

impl Draw {
    /// The draw of this seed: kind, workload and all dimensions at random.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let pick = |path, among: usize| {
            (Rng::stream(seed, &[path]).uniform() * among as f64) as usize % among
        };
        let kind = Kind::ALL[pick(stream::KIND, Kind::ALL.len())];
        let training = WorkloadKind::TRAINING;
        Self::of(seed, kind, training[pick(stream::WORKLOAD, training.len())])
    }

    /// The draw of this seed with a given kind and workload.
    #[must_use]
    pub fn of(seed: u64, kind: Kind, workload: WorkloadKind) -> Self {
        let place = |it: &Dimension| {
            Rng::stream(seed, &[stream::DIMENSION, named(it.spec().name)]).uniform()
        };
        Self {
            seed,
            sibling: 0,
            kind,
            workload,
            values: Dimension::ALL
                .iter()
                .map(|it| it.spec().at(place(it)))
                .collect(),
        }
    }

    /// The middle of every range.
    #[must_use]
    pub fn middle(kind: Kind, workload: WorkloadKind) -> Self {
        Self {
            values: Dimension::ALL.iter().map(|it| it.spec().at(0.5)).collect(),
            ..Self::of(0, kind, workload)
        }
    }

    /// The value of a dimension.
    #[must_use]
    pub fn value(&self, dimension: Dimension) -> f64 {
        self.values[dimension as usize]
    }

    /// The same with another value of a dimension, which may lie outside of its range.
    #[must_use]
    pub fn with(mut self, dimension: Dimension, value: f64) -> Self {
        self.values[dimension as usize] = value;
        self
    }

    /// The same job on another node of the same kind: other silicon, cooling and noise.
    #[must_use]
    pub fn sibling(mut self, number: u64) -> Self {
        self.sibling = number;
        self
    }

    /// The caps that the owner has, relative to the TDP.
    #[must_use]
    pub fn start(&self) -> f64 {
        let place = self.value(Dimension::Start);
        match place {
            _ if place < 0.4 => 1.0,
            _ if place < 0.65 => 0.93,
            _ if place < 0.9 => 0.8,
            _ => 0.7,
        }
    }

    /// The plant that follows, with noise of its own for each `noise`.
    #[must_use]
    pub fn plant(&self, noise: u64) -> Node {
        let spec = self.kind.spec();
        let workload = Workload::new(self.workload, &self.shape());
        let gpus = self.gpus(&spec, &workload);
        Node::new(self, spec, workload, gpus, noise)
    }

    fn shape(&self) -> Shape {
        let alone = !self.workload.is_synchronous();
        Shape {
            compute: match self.workload {
                // A hundred launches of 2.2 s at the highest clock; 2,000 kernels in 66 s.
                WorkloadKind::Sgemm => 217_000.0,
                WorkloadKind::Pagerank => 66_000.0,
                _ => self.value(Dimension::Iteration) * 1e3,
            },
            transfer_ratio: self.value(Dimension::TransferRatio),
            optimizer: self.value(Dimension::Optimizer),
            gap: if alone {
                0.0
            } else {
                self.value(Dimension::Gap)
            },
        }
    }

    fn gpus(&self, spec: &Spec, workload: &Workload) -> Vec<Gpu> {
        let mut rng = Rng::stream(self.seed, &[stream::SILICON, self.sibling]);
        let outlier = (rng.uniform() < self.value(Dimension::Outlier))
            .then(|| (rng.uniform() * spec.gpus as f64) as usize);
        let excess = 0.04 + 0.11 * rng.uniform();
        let slow_memory = (rng.uniform() * spec.gpus as f64) as usize;
        (0..spec.gpus)
            .map(|index| {
                let own = Own::new(&mut rng);
                let mut gpu = self.gpu(spec, workload, &own);
                if outlier == Some(index) {
                    gpu.core = gpu.core.map(|watts| watts * (1.0 + excess));
                }
                if slow_memory == index {
                    gpu.memory_time = 1.0 + self.value(Dimension::HbmSlow).max(0.0);
                }
                gpu
            })
            .collect()
    }

    fn gpu(&self, spec: &Spec, workload: &Workload, own: &Own) -> Gpu {
        use Dimension as D;
        let value = |dimension| self.value(dimension);
        let tdp = spec.range.highest.0;
        let idle = tdp * (spec.idle.0 + (spec.idle.1 - spec.idle.0) * value(D::Idle));
        let leakage = idle * value(D::Leakage);
        let hbm = tdp * value(D::HbmDraw);
        let alone = workload.kind == WorkloadKind::Sgemm;
        let training = |dimension, launches| if alone { launches } else { value(dimension) };
        let memory = [0.35, 0.3, 0.9, 1.0, 0.1].map(|part| hbm * part);
        let silicon = (value(D::Silicon) * own.silicon).exp();
        let gemm = (tdp * spec.gemm_draw - idle - memory[0]) * training(D::GemmActivity, 1.0);
        let vector = value(D::VectorActivity);
        let activity = [1.0, value(D::AttentionActivity), vector, vector * 0.7, 0.08];
        let core = activity.map(|part| gemm * part * silicon);
        let tracking = value(D::ClassTracking) * 0.4;
        let draw = |class: usize| core[class] + memory[class] + idle;
        let own_highest = 1.0 + value(D::ClockSpread) * own.clock;
        let current = value(D::CurrentLimit) + value(D::CurrentSpread) * own.current;
        let share = (self.value(D::TransferRatio) / 0.5).powf(value(D::ContentionSize));
        let contention =
            value(D::Contention) * share * (1.0 + value(D::ContentionSpread) * own.contention);
        let vectors = value(D::VectorContention);
        let hot = value(D::HotSlow);
        let heat = hot * own.silicon + (1.0 - hot * hot).sqrt() * own.cooling;
        Gpu {
            fixed: idle - leakage,
            leakage: leakage * (value(D::LeakageSpread) * own.leakage).exp(),
            leakage_growth: value(D::LeakageGrowth),
            core,
            memory,
            fabric: tdp * value(D::FabricDraw),
            spin: tdp * value(D::SpinDraw),
            lowest_voltage: value(D::LowestVoltage) * (1.0 + value(D::CurveSpread) * own.voltage),
            knee: value(D::Knee) * (1.0 + value(D::CurveSpread) * own.knee),
            bound: [
                training(D::GemmBound, 1.0),
                value(D::AttentionBound),
                value(D::VectorBound),
                value(D::VectorBound) * 0.5,
                0.3,
            ],
            memory_time: 1.0,
            ratio: std::array::from_fn(|class| (draw(0) / draw(class)).powf(tracking)),
            highest: std::array::from_fn(|class| {
                own_highest.min(current * (core[0] / core[class]).powf(0.4))
            }),
            lowest: spec.lowest_clock,
            slowdown: spec.slowdown,
            contention: [1.0, 0.8, vectors, vectors, 0.5].map(|part| (contention * part).max(0.0)),
            wait_contention: value(D::WaitContention),
            contention_clock: value(D::ContentionClock),
            gain: value(D::SensorGain) * (1.0 + value(D::LimiterBias) * own.gain),
            shortfall: match value(D::Overshoot) {
                over if over > 0.0 => -over,
                _ => value(D::Shortfall),
            } + value(D::ShortfallSpread) * own.shortfall,
            overshoot: (self.overshoot(), spec.range.lowest.0),
            window: value(D::Window) * 1e3,
            burst_weight: value(D::BurstWeight),
            resistance: value(D::Rise) / tdp * (value(D::CoolingSpread) * heat).exp(),
        }
    }

    /// MI300X's lowest cap here is litd's floor and not its limiter's, so nothing overshoots.
    fn overshoot(&self) -> f64 {
        match self.kind {
            Kind::Mi300xx8 => 0.0,
            _ => self.value(Dimension::FloorOvershoot),
        }
    }

    pub(crate) fn heat(&self) -> Heat {
        Heat {
            inlet: self.value(Dimension::Inlet),
            preheat: self.value(Dimension::Preheat) / self.kind.spec().range.highest.0,
            fan_response: self.value(Dimension::FanResponse),
            sink_time: self.value(Dimension::SinkTime) * 1e3,
            fast: self.value(Dimension::FastPole),
            drift: self.value(Dimension::Drift),
        }
    }

    pub(crate) fn noise(&self) -> Noise {
        use Dimension as D;
        // Launches without a job have no data and no host that matters.
        let job = |dimension| match self.workload.is_synchronous() {
            true => self.value(dimension),
            false => 0.0,
        };
        Noise {
            kernel: match self.workload.is_synchronous() {
                true => self.value(D::KernelNoise),
                false => self.value(D::HardwareNoise),
            },
            own: self.value(D::HardwareNoise).hypot(job(D::JobNoise)),
            memory: self.value(D::Memory),
            shared: job(D::SharedNoise),
            tail: self.value(D::Tail),
            pause: job(D::Pause),
            modes: job(D::TwoModes).max(0.0),
        }
    }

    pub(crate) fn host(&self) -> Host {
        let (sockets, limit) = self.kind.spec().cpus;
        let limit = limit * sockets as f64;
        Host {
            limit,
            draw: limit * self.value(Dimension::CpuDraw),
            margin: limit * self.value(Dimension::CpuMargin),
        }
    }

    pub(crate) fn sensing(&self) -> Sensing {
        Sensing {
            sensor: self.kind.spec().sensor,
            averaged: self.value(Dimension::Averaged) > 0.6,
        }
    }

    pub(crate) fn limiter(&self) -> (f64, f64) {
        (
            self.value(Dimension::Lag) * 1e3,
            self.value(Dimension::DeadBand),
        )
    }
}

/// A GPU's own deviations, each normal with deviation 1.
struct Own {
    silicon: f64,
    leakage: f64,
    voltage: f64,
    knee: f64,
    clock: f64,
    current: f64,
    contention: f64,
    gain: f64,
    shortfall: f64,
    cooling: f64,
}

impl Own {
    fn new(rng: &mut Rng) -> Self {
        let mut normal = || rng.normal();
        Self {
            silicon: normal(),
            leakage: normal(),
            voltage: normal(),
            knee: normal(),
            clock: -normal().abs(),
            current: normal(),
            contention: normal(),
            gain: normal(),
            shortfall: normal(),
            cooling: normal(),
        }
    }
}

/// The weights of classes in a workload's compute; they add up to 1.
pub(crate) fn weights(workload: &Workload) -> [f64; CLASSES] {
    let mut weights = [0.0; CLASSES];
    for kernel in &workload.kernels {
        weights[kernel.class as usize] += kernel.work;
    }
    let total: f64 = weights.iter().sum();
    weights.map(|it| it / total)
}
