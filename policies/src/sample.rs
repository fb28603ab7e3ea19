//! What the loop observes: one sample per profiled iteration, averaged over windows.

use litd_units::{Celsius, Hertz, Millis, Watts};

use crate::law::{LeadError, Leads};

/// One GPU at the time of a sample. What a sensor did not give is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GpuReading {
    /// The cap it holds.
    pub cap: Watts,
    /// Its temperature.
    pub temperature: Option<Celsius>,
    /// The temperature at which it slows itself down.
    pub slowdown: Option<Celsius>,
    /// Whether it throttles for heat or for a hardware reason (power brake, voltage).
    pub throttled: bool,
    /// Whether its power limit is what bounds its clock.
    pub power_limited: Option<bool>,
    /// The power it draws.
    pub power: Option<Watts>,
    /// Its clock.
    pub clock: Option<Hertz>,
    /// How long its computation kernels take against the median GPU's: above 1 is slower. Only
    /// kernels whose overlap with communication is the same on all GPUs count.
    pub pace: Option<f64>,
    /// The share of the iteration in which it ran any kernel.
    pub busy: Option<f64>,
}

/// One profiled iteration of one job on one node.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The iteration's number.
    pub iteration: u64,
    /// One lead value per GPU (Algorithm 1, aggregated as configured); absent for a rank that
    /// sent none.
    pub leads: Vec<Option<Millis>>,
    /// How many kernels the lead was summed over; 1 where it is a maximum or a last value.
    pub summands: u32,
    /// Wall time of the iteration.
    pub iteration_time: Millis,
    /// The GPUs, in the order of the leads.
    pub gpus: Vec<GpuReading>,
}

/// Why a sample does not count.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// A lead value is missing or is none.
    #[error(transparent)]
    Lead(#[from] LeadError),
    /// Not as many GPUs as the plan has.
    #[error("the sample covers {found} GPUs, the node has {expected}")]
    Gpus {
        /// GPUs in the sample.
        found: usize,
        /// GPUs of the node.
        expected: usize,
    },
    /// A GPU's cap was not read.
    #[error("GPU {gpu} holds a cap of {cap}, which is none")]
    Cap {
        /// Which GPU, counted from 0.
        gpu: usize,
        /// What was read instead.
        cap: Watts,
    },
    /// The iteration took no time, or no finite one.
    #[error("an iteration time of {0} is none")]
    IterationTime(Millis),
}

/// The mean of several samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Mean {
    /// Mean lead per GPU.
    pub leads: Leads,
    /// Mean iteration time.
    pub iteration_time: Millis,
    /// The standard deviation of one sample's lead, of the GPU where it is largest; zero from
    /// one sample.
    pub noise: Millis,
    /// The standard deviation of one sample's iteration time; zero from one sample.
    pub time_noise: Millis,
    /// Kernels that a lead was summed over, as in [`Sample::summands`].
    pub summands: f64,
    /// Mean pace per GPU; absent where any sample lacks it.
    pub pace: Vec<Option<f64>>,
    /// The share of samples in which each GPU had the smallest lead.
    pub last_in: Vec<f64>,
}

impl Mean {
    /// A lead that is this share of the iteration at every kernel.
    #[must_use]
    pub fn lead_of_share(&self, share: f64) -> Millis {
        self.iteration_time * (share * self.summands)
    }
}

/// Running sums over samples that passed the check.
#[derive(Debug, Clone)]
pub(crate) struct Sums {
    gpus: usize,
    samples: u32,
    leads: Vec<Millis>,
    /// Sums of the squares of leads, in square milliseconds.
    squares: Vec<f64>,
    summands: f64,
    iteration_time: Millis,
    time_squares: f64,
    pace: Vec<Option<f64>>,
    last_in: Vec<u32>,
}

impl Sums {
    pub(crate) fn new(gpus: usize) -> Self {
        Self {
            gpus,
            samples: 0,
            leads: vec![Millis::ZERO; gpus],
            squares: vec![0.0; gpus],
            summands: 0.0,
            iteration_time: Millis::ZERO,
            time_squares: 0.0,
            pace: vec![Some(0.0); gpus],
            last_in: vec![0; gpus],
        }
    }

    pub(crate) fn samples(&self) -> u32 {
        self.samples
    }

    /// Adds a sample, or refuses it whole.
    pub(crate) fn add(&mut self, sample: &Sample) -> Result<(), SampleError> {
        for found in [sample.leads.len(), sample.gpus.len()] {
            if found != self.gpus {
                return Err(SampleError::Gpus {
                    found,
                    expected: self.gpus,
                });
            }
        }
        let leads = Leads::new(sample.leads.iter().copied())?;
        for (gpu, reading) in sample.gpus.iter().enumerate() {
            let cap = reading.cap;
            if !(cap.is_finite() && cap > Watts::ZERO) {
                return Err(SampleError::Cap { gpu, cap });
            }
        }
        let time = sample.iteration_time;
        if !(time.is_finite() && time > Millis::ZERO) {
            return Err(SampleError::IterationTime(time));
        }
        self.samples += 1;
        self.iteration_time += time;
        self.time_squares += time.0 * time.0;
        self.summands += f64::from(sample.summands.max(1));
        let smallest = leads.smallest();
        for (gpu, &lead) in leads.values().iter().enumerate() {
            self.leads[gpu] += lead;
            self.squares[gpu] += lead.0 * lead.0;
            self.last_in[gpu] += u32::from(lead == smallest);
            let pace = sample.gpus[gpu].pace.filter(|pace| pace.is_finite());
            self.pace[gpu] = self.pace[gpu].zip(pace).map(|(sum, pace)| sum + pace);
        }
        Ok(())
    }

    /// The mean, once there is a sample.
    pub(crate) fn mean(&self) -> Option<Mean> {
        let samples = f64::from(self.samples);
        let leads = Leads::new(self.leads.iter().map(|&sum| Some(sum / samples))).ok()?;
        let deviation = |mean: Millis, squares: f64| {
            let variance = (squares / samples - mean.0 * mean.0).max(0.0);
            Millis((variance * samples / (samples - 1.0).max(1.0)).sqrt())
        };
        let time = self.iteration_time / samples;
        let each = leads.values().iter().zip(&self.squares);
        Some(Mean {
            noise: each
                .map(|(&lead, &squares)| deviation(lead, squares))
                .fold(Millis::ZERO, Millis::max),
            time_noise: deviation(time, self.time_squares),
            summands: self.summands / samples,
            leads,
            iteration_time: time,
            pace: self
                .pace
                .iter()
                .map(|pace| pace.map(|sum| sum / samples))
                .collect(),
            last_in: self
                .last_in
                .iter()
                .map(|&times| f64::from(times) / samples)
                .collect(),
        })
    }
}
