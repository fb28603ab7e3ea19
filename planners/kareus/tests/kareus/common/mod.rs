//! Workloads of the paper (section 6.1).
#![allow(dead_code, reason = "each test uses some of them")]
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

use litd_kareus::{
    A100, Candidate, Communication, Job, Measurement, Model, Partition, Profiler, ProfilerError,
    Results, Sequence, Space, Step, Training, Work, Workload,
};
use litd_units::{Hertz, Joules, Millis, Watts};

/// Llama 3.2 3B.
pub fn llama_3b() -> Model {
    Model {
        hidden_size: 3072,
        num_hidden_layers: 28,
        num_attention_heads: 24,
        num_key_value_heads: Some(8),
        head_dim: Some(128),
        intermediate_size: 8192,
        vocab_size: 128_256,
    }
}

/// Llama 3.3 70B.
pub fn llama_70b() -> Model {
    Model {
        hidden_size: 8192,
        num_hidden_layers: 80,
        num_attention_heads: 64,
        num_key_value_heads: Some(8),
        head_dim: Some(128),
        intermediate_size: 28672,
        vocab_size: 128_256,
    }
}

/// A job with these degrees of tensor, context and pipeline parallelism.
pub fn training(tensor: u32, context: u32, pipeline: u32, recompute: bool) -> Training {
    Training {
        tensor_parallel: tensor,
        context_parallel: context,
        pipeline_parallel: pipeline,
        microbatch: 8,
        microbatches: 8,
        sequence: 4096,
        recompute,
        layers: None,
    }
}

pub fn job(tensor: u32, context: u32, recompute: bool) -> Job {
    let training = training(tensor, context, 2, recompute);
    Job::new(&Workload::new(llama_3b(), training).unwrap()).unwrap()
}

/// A GPU in a few lines, so that whole jobs can be planned: matrix units by clock and SMs, memory and links by
/// themselves. It shows no paper's numbers, and it is not what searches are judged on.
pub struct Sketch {
    /// How many measurements were asked for.
    pub asked: usize,
}

/// The power of the idle GPU.
pub const STATIC: Watts = Watts(80.0);

impl Sketch {
    fn computation(work: Work, clock: Hertz, sms: f64) -> f64 {
        let rate = 200e12 * (clock.0 / 1410e6) * (sms / 108.0);
        (work.matrix / rate).max(work.bytes / 1.2e12)
    }

    fn communication(communication: &Communication, sms: f64) -> f64 {
        let bytes: f64 = communication.collectives.iter().map(|it| it.bytes).sum();
        1.7 * bytes / (230e9 * (sms / 8.0).min(1.0))
    }

    fn answer(seconds: f64, work: Work, moved: f64, clock: Hertz) -> Measurement {
        let voltage = 0.6 + 0.4 * clock.0 / 1410e6;
        let dynamic =
            (work.matrix * 0.9e-12 + work.bytes * 40e-12) * voltage.powi(2) + moved * 60e-12;
        Measurement {
            time: Millis(seconds * 1e3),
            energy: Joules(dynamic + STATIC.0 * seconds),
            clock,
            temperature: None,
            noise: None,
        }
    }
}

impl Profiler for Sketch {
    fn static_power(&self) -> Watts {
        STATIC
    }

    fn partition(
        &mut self,
        it: &Partition,
        candidate: Candidate,
    ) -> Result<Measurement, ProfilerError> {
        self.asked += 1;
        let sms = f64::from(candidate.sms);
        let whole = Self::communication(&it.communication, sms);
        let (mut time, mut left) = (0.0, 0.0);
        for (place, one) in it.computations.iter().enumerate() {
            left = if place == candidate.launch {
                whole
            } else {
                left
            };
            let beside = Self::computation(one.work, candidate.clock, 108.0 - sms);
            let alone = Self::computation(one.work, candidate.clock, 108.0);
            let contended = if one.work.matrix == 0.0 { 1.5 } else { 1.0 };
            let step = if left >= beside * contended {
                beside * contended
            } else {
                let done = left / (beside * contended);
                left + (1.0 - done) * alone
            };
            time += step;
            left = (left - step).max(0.0);
        }
        let work = it
            .computations
            .iter()
            .fold(Work::default(), |sum, it| sum + it.work);
        let moved = it.communication.collectives.iter().map(|it| it.bytes).sum();
        Ok(Self::answer(time + left, work, moved, candidate.clock))
    }

    fn sequence(&mut self, it: &Sequence, clock: Hertz) -> Result<Measurement, ProfilerError> {
        self.asked += 1;
        let (mut time, mut all, mut moved) = (0.0, Work::default(), 0.0);
        for step in &it.steps {
            match step {
                Step::Computation(it) => {
                    time += Self::computation(it.work, clock, 108.0);
                    all = all + it.work;
                }
                Step::Communication(it) => {
                    time += Self::communication(it, 24.0);
                    moved += it.collectives.iter().map(|it| it.bytes).sum::<f64>();
                }
            }
        }
        Ok(Self::answer(time, all, moved, clock))
    }
}

/// Every candidate of every partition and every sequence, profiled.
pub fn exhaustive(job: &Job, profiler: &mut dyn Profiler) -> Results {
    let mut results = Results::new(profiler.static_power());
    for partition in &job.partitions {
        for candidate in Space::searched(&A100, partition).candidates() {
            let measured = profiler.partition(partition, candidate).unwrap();
            results.add_partition(&partition.name, candidate, measured);
        }
    }
    for sequence in &job.sequences {
        for clock in A100.clocks(2) {
            let measured = profiler.sequence(sequence, clock).unwrap();
            results.add_sequence(&sequence.name, clock, measured);
        }
    }
    results
}
