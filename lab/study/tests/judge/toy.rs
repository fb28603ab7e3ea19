//! A plant made by hand, of which everything is known in closed form: GPU `i` takes
//! `need[i] / sqrt(cap[i])` for an iteration and draws its cap; all wait for the slowest.

use litd_policies::{GpuReading, Limits, Node};
use litd_sim::rng::Rng;
use litd_study::StudyError;
use litd_study::optimum::Outcome;
use litd_study::steered::{Kernels, Ran, Span, Steered};
use litd_units::{Celsius, Hertz, Millis, Watts};

/// Kernels of an iteration.
const KERNELS: usize = 8;

#[derive(Debug, Clone)]
pub struct Toy {
    pub need: Vec<f64>,
    pub caps: Vec<Watts>,
    /// Standard deviation of a GPU's time.
    pub noise: f64,
    iterations: u64,
    times: Vec<f64>,
}

impl Toy {
    pub fn new(need: &[f64], cap: f64, noise: f64) -> Self {
        Self {
            need: need.to_vec(),
            caps: vec![Watts(cap); need.len()],
            noise,
            iterations: 0,
            times: vec![0.0; need.len()],
        }
    }

    /// How long each GPU takes without noise, ms.
    fn each(&self, caps: &[Watts]) -> Vec<f64> {
        let pairs = self.need.iter().zip(caps);
        pairs.map(|(need, cap)| need / cap.0.sqrt()).collect()
    }

    fn squares(&self) -> f64 {
        self.need.iter().map(|it| it * it).sum()
    }

    /// The shortest iteration with caps that add up to this.
    pub fn fastest(&self, budget: f64) -> f64 {
        (self.squares() / budget).sqrt()
    }

    /// The least power with iterations of this length.
    pub fn least_power(&self, time: f64) -> f64 {
        self.squares() / (time * time)
    }
}

impl Steered for Toy {
    fn gpu_count(&self) -> usize {
        self.need.len()
    }

    fn node(&self) -> Node {
        let gpu = Limits {
            floor: Watts(200.0),
            ceiling: Watts(1000.0),
            resolution: Watts(1.0),
        };
        Node {
            gpus: vec![gpu; self.need.len()],
            cpus: Vec::new(),
        }
    }

    fn range(&self) -> (Watts, Watts) {
        (Watts(200.0), Watts(1000.0))
    }

    fn kernels(&self) -> Kernels {
        let name = |it| (format!("gemm.{it}"), None);
        Kernels {
            computation: (0..KERNELS).map(name).collect(),
            collectives: vec!["reduce".to_owned()],
        }
    }

    fn iterations(&self) -> u64 {
        self.iterations
    }

    fn iterate(&mut self) -> Ran {
        self.iterations += 1;
        let mut rng = Rng::stream(7, &[self.iterations]);
        let each = self.each(&self.caps).into_iter();
        self.times = each
            .map(|time| time * (1.0 + self.noise * rng.normal()))
            .collect();
        let watts: Watts = self.caps.iter().copied().sum();
        Ran {
            time: self.last(),
            gpus: watts,
            node: watts + Watts(500.0),
        }
    }

    fn spans(&self, rank: usize) -> (Vec<Span>, Vec<Span>) {
        let each = self.times[rank] / KERNELS as f64;
        let span = |it: usize| (Millis(each * it as f64), Millis(each));
        let end = Millis(self.times[rank]);
        (
            (0..KERNELS).map(span).collect(),
            vec![(end, self.last() - end)],
        )
    }

    fn last(&self) -> Millis {
        Millis(self.times.iter().copied().fold(0.0, f64::max))
    }

    fn readings(&mut self) -> Vec<GpuReading> {
        let reading = |&cap: &Watts| GpuReading {
            cap,
            temperature: Some(Celsius(60.0)),
            slowdown: Some(Celsius(100.0)),
            power_share: Some(1.0),
            power: Some(cap),
            clock: Some(Hertz(1.5e9)),
            ..GpuReading::default()
        };
        self.caps.iter().map(reading).collect()
    }

    fn cap(&self, device: usize) -> Result<Watts, StudyError> {
        Ok(self.caps[device])
    }

    fn set(&mut self, device: usize, cap: Watts) -> Result<(), StudyError> {
        self.caps[device] = cap;
        Ok(())
    }

    fn settle(&mut self) {}

    fn steady(&self, caps: &[Watts]) -> Result<Outcome, StudyError> {
        let slowest = self.each(caps).into_iter().fold(0.0, f64::max);
        Ok(Outcome {
            time: Millis(slowest),
            power: caps.iter().copied().sum(),
        })
    }
}
