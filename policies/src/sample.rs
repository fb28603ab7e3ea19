//! The loop's observations: one sample per profiled iteration, averaged over windows.

use litd_diagnosis::{Marks, median};
use litd_units::{Celsius, Hertz, Millis, Watts};

use crate::law::{LeadError, Leads};

/// A GPU at the time of a sample. Values without a sensor are absent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GpuReading {
    /// The cap it holds.
    pub cap: Watts,
    /// The temperature.
    pub temperature: Option<Celsius>,
    /// The temperature at which it slows itself down.
    pub slowdown: Option<Celsius>,
    /// Whether it throttles for heat or for a hardware reason (power brake, voltage).
    pub throttled: bool,
    /// The share of the time since the sample before in which its power limit was what bounded
    /// its clock; absent where nobody can tell.
    pub power_share: Option<f64>,
    /// The power it draws.
    pub power: Option<Watts>,
    /// The clock.
    pub clock: Option<Hertz>,
    /// How long its computation kernels take against the median GPU's: above 1 is slower. Only
    /// kernels whose overlap with communication is the same on all GPUs count.
    pub pace: Option<f64>,
    /// How long the same kernels take together against the median GPU's: steadier than the pace,
    /// and in proportion to what a clock changes.
    pub slowness: Option<f64>,
    /// Marks of its kernels that may explain why it is late.
    pub marks: Marks,
    /// The share of the iteration in which it ran any kernel.
    pub busy: Option<f64>,
}

/// More power helps only a GPU that power has limited for more than this share of a window.
const MOSTLY: f64 = 0.5;

impl GpuReading {
    /// Whether power limited it for most of the time; `None` where nobody can tell.
    #[must_use]
    pub fn is_power_limited(&self) -> Option<bool> {
        self.power_share.map(|share| share > MOSTLY)
    }
}

/// A profiled iteration of one job on one node.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The iteration's number.
    pub iteration: u64,
    /// A lead value per GPU (Algorithm 1, aggregated as configured); absent for a rank that sent none.
    pub leads: Vec<Option<Millis>>,
    /// How many kernels the lead was summed over; 1 where it is a maximum or a last value.
    pub summands: u32,
    /// Wall time of the iteration.
    pub iteration_time: Millis,
    /// The GPUs, in the order of the leads.
    pub gpus: Vec<GpuReading>,
    /// The share of matched kernels that each GPU started last, in the order of the leads; empty
    /// where that is not known. Words depend on it, and the model law's margins.
    pub last_in: Vec<f64>,
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
    /// A GPU's cap was not read, or misread, or is somebody else's.
    #[error("GPU {gpu} reads a cap of {cap}, which is outside its range")]
    Cap {
        /// The GPU, counted from 0.
        gpu: usize,
        /// The cap that was read instead.
        cap: Watts,
    },
    /// The iteration took no time, or no finite one.
    #[error("an iteration time of {0} is not possible")]
    IterationTime(Millis),
}

impl SampleError {
    /// The same in words, where `name` tells what each GPU is called.
    pub(crate) fn told(&self, name: &dyn Fn(usize) -> String) -> String {
        let (Self::Lead(LeadError::Missing { gpu } | LeadError::NotALead { gpu, .. })
        | Self::Cap { gpu, .. }) = *self
        else {
            return self.to_string();
        };
        // Each of these begins with the GPU.
        let text = self.to_string();
        let told = text.strip_prefix(&format!("GPU {gpu}"));
        told.map_or_else(|| text.clone(), |rest| name(gpu) + rest)
    }
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
    /// Mean slowness per GPU, or pace where that is all that is known; absent where any sample
    /// lacks both.
    pub slowness: Vec<Option<f64>>,
    /// The standard deviation of one sample's slowness, as a part of it and over all GPUs,
    /// without what all have in common; absent from one sample and where any lacks one.
    pub slowness_noise: Option<f64>,
    /// How many samples it is the mean of.
    pub samples: u32,
    /// Mean marks per GPU; of those that any sample lacks, none.
    pub marks: Vec<Marks>,
    /// The share of samples in which each GPU had the smallest lead.
    pub last_in: Vec<f64>,
    /// Mean share of kernels that each GPU started last; absent where any sample lacks it.
    pub last_in_kernels: Vec<Option<f64>>,
    /// Mean clock per GPU; absent where any sample lacks it.
    pub clock: Vec<Option<Hertz>>,
    /// Mean power per GPU; absent where any sample lacks it.
    pub power: Vec<Option<Watts>>,
    /// The same of those GPUs that power limited all the time in every sample.
    pub drawn: Vec<Option<Watts>>,
    /// The standard deviation of one sample's power, as a part of it, of the GPU where it is
    /// largest; zero from one sample.
    pub drawn_noise: f64,
}

impl Mean {
    /// A lead that is this share of the iteration at every kernel.
    #[must_use]
    pub fn lead_of_share(&self, share: f64) -> Millis {
        self.iteration_time * (share * self.summands)
    }
}

/// From so many samples on, the middle one stands for them instead of their mean: one iteration
/// that a checkpoint or a lost clock stretched must not decide over a whole warm-up. A window of
/// the paper's size is averaged, as the paper does.
const ROBUST: usize = 5;

/// Power limits a GPU all the time if it does for more than this share of it.
const ALWAYS: f64 = 0.9;

/// The median absolute deviation of a normal distribution, times this, is its standard deviation.
const NORMAL: f64 = 1.4826;

/// Samples that passed the check.
#[derive(Debug, Clone)]
pub(crate) struct Samples {
    leads: Vec<Vec<f64>>,
    slowness: Vec<Vec<f64>>,
    marks: Vec<Vec<Marks>>,
    times: Vec<f64>,
    summands: f64,
    last_in: Vec<u32>,
    last_in_kernels: Vec<Vec<f64>>,
    clock: Vec<Vec<f64>>,
    power: Vec<Vec<f64>>,
    /// In how many samples power limited each GPU all the time.
    limited: Vec<u32>,
}

impl Samples {
    pub(crate) fn new(gpus: usize) -> Self {
        Self {
            leads: vec![Vec::new(); gpus],
            slowness: vec![Vec::new(); gpus],
            marks: vec![Vec::new(); gpus],
            times: Vec::new(),
            summands: 0.0,
            last_in: vec![0; gpus],
            last_in_kernels: vec![Vec::new(); gpus],
            clock: vec![Vec::new(); gpus],
            power: vec![Vec::new(); gpus],
            limited: vec![0; gpus],
        }
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.times.len()).unwrap_or(u32::MAX)
    }

    /// Adds a sample, or refuses it whole.
    pub(crate) fn add(&mut self, sample: &Sample) -> Result<(), SampleError> {
        let expected = self.leads.len();
        for found in [sample.leads.len(), sample.gpus.len()] {
            if found != expected {
                return Err(SampleError::Gpus { found, expected });
            }
        }
        let leads = Leads::new(sample.leads.iter().copied())?;
        let time = sample.iteration_time;
        if !(time.is_finite() && time > Millis::ZERO) {
            return Err(SampleError::IterationTime(time));
        }
        self.times.push(time.0);
        self.summands += f64::from(sample.summands.max(1));
        let smallest = leads.smallest();
        for (gpu, &lead) in leads.values().iter().enumerate() {
            self.leads[gpu].push(lead.0);
            self.last_in[gpu] += u32::from(lead == smallest);
            let pace = sample.gpus[gpu].pace.filter(|pace| pace.is_finite());
            let slowness = sample.gpus[gpu].slowness.or(pace);
            self.slowness[gpu].extend(slowness.filter(|s| s.is_finite() && *s > 0.0));
            self.marks[gpu].push(sample.gpus[gpu].marks);
            let share = sample.last_in.get(gpu).copied();
            self.last_in_kernels[gpu].extend(share.filter(|share| (0.0..=1.0).contains(share)));
            let clock = sample.gpus[gpu].clock.map(|clock| clock.0);
            self.clock[gpu].extend(clock.filter(|clock| clock.is_finite() && *clock > 0.0));
            let power = sample.gpus[gpu].power.map(|power| power.0);
            self.power[gpu].extend(power.filter(|power| power.is_finite() && *power > 0.0));
            let share = sample.gpus[gpu].power_share;
            self.limited[gpu] += u32::from(share.is_some_and(|share| share > ALWAYS));
        }
        Ok(())
    }

    /// The mean of the samples, once there is one.
    pub(crate) fn mean(&self) -> Option<Mean> {
        let samples = self.times.len();
        let leads: Vec<(f64, f64)> = self
            .leads
            .iter()
            .map(|leads| centre(leads))
            .collect::<Option<_>>()?;
        let (time, time_noise) = centre(&self.times)?;
        let known = |values: &Vec<f64>| Some(centre(values).filter(|_| values.len() == samples)?.0);
        let power: Vec<Option<Watts>> =
            self.power.iter().map(known).map(|p| p.map(Watts)).collect();
        let limited = |(gpu, power): (usize, &Option<Watts>)| {
            power.filter(|_| self.limited[gpu] == self.count())
        };
        let varies = |values: &Vec<f64>| centre(values).map_or(0.0, |(mean, noise)| noise / mean);
        Some(Mean {
            drawn: power.iter().enumerate().map(limited).collect(),
            drawn_noise: self.power.iter().map(varies).fold(0.0, f64::max),
            power,
            noise: Millis(leads.iter().map(|lead| lead.1).fold(0.0, f64::max)),
            leads: Leads::new(leads.iter().map(|lead| Some(Millis(lead.0)))).ok()?,
            iteration_time: Millis(time),
            time_noise: Millis(time_noise),
            summands: self.summands / samples as f64,
            slowness: self.slowness.iter().map(known).collect(),
            slowness_noise: self.slowness_noise(),
            samples: self.count(),
            marks: self.marks.iter().map(|marks| mean_marks(marks)).collect(),
            last_in: self
                .last_in
                .iter()
                .map(|&times| f64::from(times) / samples as f64)
                .collect(),
            last_in_kernels: self
                .last_in_kernels
                .iter()
                .map(|s| mean_of(s, samples))
                .collect(),
            clock: self
                .clock
                .iter()
                .map(|clock| known(clock).map(Hertz))
                .collect(),
        })
    }
}

impl Samples {
    /// See [`Mean::slowness_noise`].
    fn slowness_noise(&self) -> Option<f64> {
        let samples = self.times.len();
        let whole = self.slowness.iter().all(|row| row.len() == samples);
        if !whole || samples < 2 || self.slowness.len() < 2 {
            return None;
        }
        let logs = |row: &Vec<f64>| row.iter().map(|value| value.ln()).collect::<Vec<_>>();
        let mut rows: Vec<Vec<f64>> = self.slowness.iter().map(logs).collect();
        for row in &mut rows {
            let centre = centre(row)?.0;
            row.iter_mut().for_each(|value| *value -= centre);
        }
        let gpus = rows.len() as f64;
        let common = |at: usize| rows.iter().map(|row| row[at]).sum::<f64>() / gpus;
        let common: Vec<f64> = (0..samples).map(common).collect();
        let apart = rows.iter().flat_map(|row| {
            let values = row.iter().zip(&common);
            values.map(|(value, common)| (value - common).abs())
        });
        let lost = (1.0 - 1.0 / gpus) * (1.0 - 1.0 / samples as f64);
        Some(NORMAL * median(apart.collect())? / lost.sqrt())
    }
}

/// The centre of some values and their standard deviation: mean and deviation of few values,
/// median and scaled median absolute deviation of [`ROBUST`] and more.
fn centre(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len() as f64;
    if values.len() >= ROBUST {
        let middle = median(values.to_vec())?;
        let distances = values.iter().map(|value| (value - middle).abs()).collect();
        return Some((middle, NORMAL * median(distances)?));
    }
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, (squares / (n - 1.0).max(1.0)).sqrt()))
}

/// The mean of values of which there are as many as there should be.
fn mean_of(values: &[f64], samples: usize) -> Option<f64> {
    let whole = !values.is_empty() && values.len() == samples;
    whole.then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The marks of some samples as one. What is no number in any of them is none.
fn mean_marks(marks: &[Marks]) -> Marks {
    let known = |value: fn(&Marks) -> Option<f64>| {
        let values = marks.iter().map(|one| value(one).filter(|v| v.is_finite()));
        Some(centre(&values.collect::<Option<Vec<f64>>>()?)?.0)
    };
    // The error of a mean over so many.
    let fewer = (marks.len().max(1) as f64).sqrt();
    Marks {
        slower_compute: known(|one| one.slower_compute),
        slower_memory: known(|one| one.slower_memory),
        uncertainty: known(|one| one.uncertainty).map(|one| one / fewer),
        uncertainty_memory: known(|one| one.uncertainty_memory).map(|one| one / fewer),
        idle: known(|one| Some(one.idle)).unwrap_or(0.0),
        slower_link: known(|one| Some(one.slower_link)).unwrap_or(0.0),
    }
}
