//! Simulated nodes whose GPUs are equal but for faults.

use std::path::Path;

use litd_sim::rng::Rng;
use litd_sim::{Conditions, IterationModel, Workload, record};
use litd_traces::study::{ModelOptions, Study, remove_skew, study};
use litd_traces::{AlignOptions, CollectiveId, NonMax, Timeline};
use litd_units::Millis;

pub fn oracle(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data/oracle")
        .join(file)
}

pub fn workload(name: &str) -> Workload {
    Workload::load(&oracle(&format!("{name}.json"))).unwrap()
}

pub fn studied(timelines: &mut [Timeline]) -> Study<'_> {
    let skew = remove_skew(timelines);
    study(
        timelines,
        skew,
        &AlignOptions::default(),
        &ModelOptions::default(),
    )
    .unwrap()
}

/// A fault of one GPU; shares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fault {
    pub clock: f64,
    pub host: f64,
    pub data: f64,
    pub link: f64,
}

pub const NONE: Fault = Fault {
    clock: 0.0,
    host: 0.0,
    data: 0.0,
    link: 0.0,
};

pub fn clock(by: f64) -> Fault {
    Fault { clock: by, ..NONE }
}

pub fn host(by: f64) -> Fault {
    Fault { host: by, ..NONE }
}

pub fn data(by: f64) -> Fault {
    Fault { data: by, ..NONE }
}

pub fn link(by: f64) -> Fault {
    Fault { link: by, ..NONE }
}

/// A node whose GPUs are equal but for faults.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    pub workload: fn() -> Workload,
    pub gpus: usize,
    pub iterations: u32,
    pub noise: f64,
    pub contention: f64,
}

pub fn llama() -> Workload {
    workload("llama31-8b-fsdp")
}

/// The workload of a model of 32 layers on eight GPUs.
pub const LARGE: Node = Node {
    workload: llama,
    gpus: 8,
    iterations: 1,
    noise: 0.01,
    contention: 1.3,
};

impl Node {
    /// The timelines of some iterations, in which these GPUs have these faults.
    pub fn run(&self, faults: &[(usize, Fault)], seed: u64) -> Vec<Timeline> {
        let workload = (self.workload)();
        let kernels = workload.kernels.len();
        let mut model = IterationModel::new(&workload).unwrap();
        let level = model.run(&Conditions::new(&vec![1.0; self.gpus], self.contention));
        let length = level.unwrap().length;
        let mut speeds = vec![1.0; self.gpus];
        let mut gaps = vec![Millis(0.0); self.gpus];
        let mut links = vec![0.0; self.gpus];
        let mut work = vec![1.0; self.gpus];
        for &(at, fault) in faults {
            speeds[at] -= fault.clock;
            gaps[at] = length * (fault.host / kernels as f64);
            links[at] = fault.link;
            work[at] += fault.data;
        }
        let mut all = Vec::<Timeline>::new();
        let mut begin = record::EPOCH;
        for number in 0..self.iterations {
            let mut rng = Rng::stream(seed, &[u64::from(number)]);
            let mut factor = |work: f64| work * (1.0 + self.noise * rng.normal()).max(0.5);
            let noise = work
                .iter()
                .map(|&work| (0..kernels).map(|_| factor(work)).collect());
            let noise = Vec::<Vec<f64>>::from_iter(noise);
            let result = model.run(&Conditions {
                speeds: &speeds,
                contention: self.contention,
                noise: Some(&noise),
                host_gap: Some(&gaps),
                slow_link: Some(&links),
            });
            let result = result.unwrap();
            let timelines = record::timelines(&workload, result, begin, number);
            begin += result.length.to_nanos();
            if all.is_empty() {
                all = timelines;
                continue;
            }
            for (all, one) in all.iter_mut().zip(timelines) {
                for kernel in &one.kernels {
                    // Names are interned in the same order in each iteration.
                    let mut kernel = *kernel;
                    kernel.collective = kernel.collective.map(|id| {
                        let of_all = u32::try_from(all.collectives.len()).unwrap();
                        CollectiveId(NonMax::new(id.0.get() + of_all).unwrap())
                    });
                    all.kernels.push(kernel);
                }
                all.collectives.extend(one.collectives);
                all.iterations.extend(one.iterations);
            }
        }
        all
    }
}
