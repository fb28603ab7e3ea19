//! What every phase of the loop goes by: the plan and the knobs, the caps asked for and read, and the samples since
//! caps last changed.

use std::collections::VecDeque;

use litd_units::Watts;

use crate::config::Config;
use crate::diagnosis::{may_rise, too_hot_to_rise};
use crate::envelope::CapVector;
use crate::plan::{Plan, Policy};
use crate::sample::{GpuReading, Sample, SampleError, Samples};

/// The limiter of a GPU at the time of a sample.
#[derive(Debug, Clone, Copy)]
struct Limit {
    throttled: bool,
    /// As [`GpuReading::power_share`].
    power: Option<f64>,
}

/// What every phase goes by.
#[derive(Debug, Clone)]
pub(super) struct Basis {
    plan: Plan,
    config: Config,
    /// The last caps asked for; none before the first adjustment.
    caps: Option<CapVector>,
    /// The GPUs' caps as the last sample showed them; none since caps were asked for.
    read: Option<Vec<Watts>>,
    /// The limiters of each GPU in the last samples.
    limits: VecDeque<Vec<Limit>>,
    /// All samples since caps last changed.
    since: Samples,
    adjustments: u32,
}

impl Basis {
    /// Nothing was asked for or sampled yet.
    pub fn new(plan: Plan, config: Config) -> Self {
        Self {
            since: Samples::new(plan.tdp().len()),
            caps: None,
            read: None,
            limits: VecDeque::new(),
            adjustments: 0,
            plan,
            config,
        }
    }

    /// Starts anew under a plan with these caps asked for. What limits GPUs and the count of adjustments outlast a
    /// measurement.
    pub fn start_anew(&mut self, plan: Plan, caps: Option<CapVector>) {
        let (gpus, before) = (plan.tdp().len(), self.plan.tdp().len());
        if gpus != before {
            self.limits.clear();
        }
        self.since = Samples::new(gpus);
        (self.plan, self.caps, self.read) = (plan, caps, None);
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The caps asked for last; before any, those that the plan starts from.
    pub fn caps(&self) -> &CapVector {
        self.asked().unwrap_or(self.plan.start())
    }

    /// The caps asked for last, if any were.
    pub fn asked(&self) -> Option<&CapVector> {
        self.caps.as_ref()
    }

    /// All samples since caps last changed, as far as they may judge it.
    pub fn since(&self) -> &Samples {
        &self.since
    }

    pub fn adjustments(&self) -> u32 {
        self.adjustments
    }

    /// A cap that no device of this plan may hold was misread, or somebody else set it: nothing
    /// can be concluded from such a sample.
    pub fn misread(&self, sample: &Sample) -> Option<SampleError> {
        let envelope = self.plan.envelope();
        let caps = sample.gpus.iter().map(|gpu| gpu.cap).enumerate();
        let mut wrong = caps.filter(|&(gpu, cap)| !envelope.allows(gpu, cap));
        wrong.next().map(|(gpu, cap)| SampleError::Cap { gpu, cap })
    }

    /// A sample counts. Returns its readings, with what limited each GPU over the last samples.
    pub fn sampled(&mut self, sample: &Sample) -> Vec<GpuReading> {
        self.read = Some(sample.gpus.iter().map(|gpu| gpu.cap).collect());
        if self.since.count() <= self.judged_for() {
            // The same sample passed the same check just now.
            let _ = self.since.add(sample);
        }
        self.with_recent_limits(&sample.gpus)
    }

    /// A GPU that throttled in any of the last samples counts as throttling, because that comes and goes within
    /// seconds; power has its mean share over those that know.
    fn with_recent_limits(&mut self, gpus: &[GpuReading]) -> Vec<GpuReading> {
        let limit = |gpu: &GpuReading| Limit {
            throttled: gpu.throttled,
            power: gpu.power_share.filter(|share| share.is_finite()),
        };
        self.limits.push_back(gpus.iter().map(limit).collect());
        while self.limits.len() > self.config.detection.window.max(1) as usize {
            self.limits.pop_front();
        }
        let of = |gpu: usize| self.limits.iter().map(move |sample| &sample[gpu]);
        let power = |gpu: usize| {
            let known: Vec<f64> = of(gpu).filter_map(|limit| limit.power).collect();
            let sum: f64 = known.iter().sum();
            (!known.is_empty()).then(|| sum / known.len() as f64)
        };
        let reading = |(gpu, reading): (usize, &GpuReading)| GpuReading {
            throttled: of(gpu).any(|limit| limit.throttled),
            power_share: power(gpu),
            ..*reading
        };
        gpus.iter().enumerate().map(reading).collect()
    }

    /// For how many samples gpu-red may take an adjustment back.
    pub fn judged_for(&self) -> u32 {
        let window = self.config.detection.window.max(1);
        window.saturating_mul(self.config.guard.step_back_windows)
    }

    /// Remembers what is about to be written.
    pub fn hold_now(&mut self, caps: &CapVector) {
        self.caps = Some(caps.clone());
        self.read = None;
        self.since = Samples::new(self.plan.tdp().len());
    }

    /// The same for an adjustment, which is counted.
    pub fn adjust_to(&mut self, caps: &CapVector) {
        self.adjustments += 1;
        self.hold_now(caps);
    }

    /// The wanted caps of all devices, as far as the envelope, the largest raise of a GPU's cap and each GPU's
    /// limiter allow.
    pub fn project(&self, wanted: &[Watts], gpus: &[GpuReading], most: Watts) -> CapVector {
        let rise = |gpu: &GpuReading| match may_rise(gpu, &self.config.guard) {
            true => most,
            false => Watts::ZERO,
        };
        self.project_rising(wanted, gpus, rise)
    }

    /// Caps that were held before, at once and however far; but no hot GPU's cap rises, not even
    /// back. Whether power limits a GPU does not matter here: it had those watts.
    pub fn take_back(&self, caps: &CapVector, gpus: &[GpuReading]) -> CapVector {
        let rise = |gpu: &GpuReading| match too_hot_to_rise(gpu, &self.config.guard) {
            true => Watts::ZERO,
            false => Watts(f64::INFINITY),
        };
        self.project_rising(&caps.to_watts(), gpus, rise)
    }

    /// Holds these caps at once, as far as they can be taken back, and returns what is held then.
    pub fn go_back(&mut self, caps: &CapVector, gpus: &[GpuReading]) -> CapVector {
        let caps = self.take_back(caps, gpus);
        self.hold_now(&caps);
        caps
    }

    fn project_rising(
        &self,
        wanted: &[Watts],
        gpus: &[GpuReading],
        rise: impl Fn(&GpuReading) -> Watts,
    ) -> CapVector {
        let last = self.caps().to_watts();
        let cpus = last.get(gpus.len()..).unwrap_or_default();
        let read = gpus.iter().map(|gpu| gpu.cap);
        let held: Vec<Watts> = read.chain(cpus.iter().copied()).collect();
        // CPUs have no heat to watch here: the budget is what bounds them.
        let free = cpus.iter().map(|_| Watts(f64::INFINITY));
        let rises: Vec<Watts> = gpus.iter().map(rise).chain(free).collect();
        self.plan.envelope().project_rising(wanted, &held, &rises)
    }

    /// The caps of a plan's devices, as far as this loop knows.
    pub fn held(&self, plan: &Plan) -> Vec<Watts> {
        let asked = self.caps().to_watts();
        let (gpus, cpus) = asked.split_at(self.plan.tdp().len().min(asked.len()));
        let start = plan.start().to_watts();
        let read = self.read.as_deref().unwrap_or(gpus);
        let of = |gpu: usize| match (gpus.get(gpu), read.get(gpu)) {
            // The policy observe asks for no caps.
            (_, Some(&read)) if self.plan.policy() == Policy::Observe => read,
            // The reading may be older than the request; the lower one is no raise.
            (Some(&asked), Some(&read)) => asked.min(read),
            _ => Watts(f64::NAN),
        };
        let sockets = start.get(plan.tdp().len()..).unwrap_or_default();
        let limit = |(cpu, &found): (usize, &Watts)| cpus.get(cpu).copied().unwrap_or(found);
        (0..plan.tdp().len())
            .map(of)
            .chain(sockets.iter().enumerate().map(limit))
            .collect()
    }
}
