//! A training iteration on one node, by five rules:
//!
//! 1. Every GPU runs the same computation kernels in order on one stream, and the same
//!    collectives in order on another.
//! 2. Kernel k needs `work * (clock_bound / speed + 1 - clock_bound)` on a GPU of that speed.
//! 3. A collective becomes resident on a GPU when the one before it has ended and its trigger
//!    kernel has started there. While one is resident, computation on that GPU is slower by the
//!    contention factor.
//! 4. A collective transfers from the moment it is resident on all GPUs (of its group, where it has
//!    several), and ends on all of them at once; on a GPU with a slow link
//!    ([`Conditions::slow_link`]) later by a share of the transfer.
//! 5. A kernel that needs a collective waits for its end.
//!
//! Between the ends of two collectives no GPU looks at another, so each advances on its own:
//! first to where the next collective becomes resident on it, then, when the slowest has
//! arrived and the end is known, to that end. The work is kernels x GPUs, with no event queue.

use litd_units::Millis;
use thiserror::Error;

use crate::workload::Workload;

/// The state of the node in an iteration. Slices have one entry per GPU.
#[derive(Debug, Clone, Copy)]
pub struct Conditions<'a> {
    /// Clock of each GPU as a multiple of the reference clock (rule 2).
    pub speeds: &'a [f64],
    /// How many times slower computation runs while a collective is resident (rule 3).
    pub contention: f64,
    /// `noise[g][k]` multiplies the work of kernel `k` on GPU `g`; `None`: no noise.
    pub noise: Option<&'a [Vec<f64>]>,
    /// How long the host of each GPU takes, after a kernel has ended, until the next one may
    /// start; it passes while a kernel waits for the collective that it needs. `None`: no time.
    pub host_gap: Option<&'a [Millis]>,
    /// By which share transfers take longer on each GPU, as its own link is slower (rule 4).
    /// `None`: none is.
    pub slow_link: Option<&'a [f64]>,
}

impl<'a> Conditions<'a> {
    /// Conditions without noise and with a host that is never late, as the oracle has them.
    #[must_use]
    pub fn new(speeds: &'a [f64], contention: f64) -> Self {
        Self {
            speeds,
            contention,
            noise: None,
            host_gap: None,
            slow_link: None,
        }
    }
}

/// The most executions in one iteration, over all GPUs: about 400 MiB of results.
const MOST: usize = 16 << 20;

/// Why an iteration can't be computed.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum IterationError {
    /// No GPU at all.
    #[error("there are no speeds; give one relative clock per GPU")]
    NoGpus,
    /// More than a machine's memory should be asked for.
    #[error(
        "{gpus} GPUs with {kernels} kernels and collectives each are more than the {MOST} that are simulated at once"
    )]
    TooLarge {
        /// GPUs asked for.
        gpus: usize,
        /// Kernels and collectives of the workload.
        kernels: usize,
    },
    /// A clock that is not a positive number.
    #[error("the speed of GPU {gpu} is {speed}; it must be finite and above 0 (1 = reference)")]
    Speed {
        /// The GPU.
        gpu: usize,
        /// The GPU's speed.
        speed: f64,
    },
    /// A contention that would make computation faster, or that is no number.
    #[error("contention is {0}; it must be finite and at least 1 (1 = no contention)")]
    Contention(f64),
    /// Noise or host gaps of another shape than GPUs x kernels, or out of range.
    #[error("{0} must hold a finite number of at least 0 for every GPU (and kernel)")]
    Shape(&'static str),
    /// The numbers are so large that time has no end.
    #[error("the iteration never ends: work divided by speed is too large")]
    Endless,
}

/// The result of an iteration. Outer index: GPU; inner: kernel or collective. Times count from the
/// iteration's begin.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IterationResult {
    /// When each computation kernel started.
    pub start: Vec<Vec<Millis>>,
    /// How long it ran.
    pub duration: Vec<Vec<Millis>>,
    /// How much of that a collective was resident on the same GPU.
    pub overlapped: Vec<Vec<Millis>>,
    /// When each collective became resident on each GPU.
    pub collective_start: Vec<Vec<Millis>>,
    /// When each collective ended on each GPU: at once, but for slow links.
    pub collective_end: Vec<Vec<Millis>>,
    /// From the begin to the end of the last kernel or collective.
    pub length: Millis,
}

impl IterationResult {
    /// The computation time of a GPU that a collective overlapped, over its computation time;
    /// 0 without computation.
    #[must_use]
    pub fn overlap_ratio(&self, gpu: usize) -> f64 {
        let total = |of: &[Vec<Millis>]| of.get(gpu).into_iter().flatten().copied().sum::<Millis>();
        let computation = total(&self.duration);
        if computation > Millis::ZERO {
            total(&self.overlapped) / computation
        } else {
            0.0
        }
    }

    /// How long collectives were resident on a GPU, waiting and transferring.
    #[must_use]
    pub fn collective_residency(&self, gpu: usize) -> Millis {
        let starts = self.collective_start.get(gpu).into_iter().flatten();
        let ends = self.collective_end.get(gpu).into_iter().flatten();
        starts.zip(ends).map(|(&start, &end)| end - start).sum()
    }

    fn shape(&mut self, gpus: usize, kernels: usize, collectives: usize) {
        let rows = |table: &mut Vec<Vec<Millis>>, columns| {
            table.resize_with(gpus, Vec::new);
            for row in table {
                row.resize(columns, Millis::ZERO);
            }
        };
        rows(&mut self.start, kernels);
        rows(&mut self.duration, kernels);
        rows(&mut self.overlapped, kernels);
        rows(&mut self.collective_start, collectives);
        rows(&mut self.collective_end, collectives);
    }
}

/// A kernel, prepared: time = clocked / speed + fixed.
#[derive(Debug, Clone, Copy)]
struct Step {
    clocked: f64,
    fixed: f64,
    /// How many collectives must have ended before it may start.
    needs: usize,
}

/// A collective, prepared.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    time: f64,
    /// How many kernels must have started on a GPU before it may be resident there.
    needs: usize,
    /// In how many groups it runs.
    groups: usize,
}

impl Transfer {
    /// The group of a GPU, one of so many.
    fn group(&self, gpu: usize, gpus: usize) -> usize {
        gpu * self.groups.min(gpus) / gpus
    }
}

/// A workload ready to be run again and again: buffers are kept from one iteration to the next.
#[derive(Debug, Clone)]
pub struct IterationModel {
    steps: Vec<Step>,
    transfers: Vec<Transfer>,
    gpus: Vec<Progress>,
    /// When the collective is resident on all GPUs of each group.
    resident: Vec<f64>,
    result: IterationResult,
}

impl IterationModel {
    /// Prepares a workload.
    ///
    /// # Errors
    /// The workload makes no sense; see [`Workload::check`].
    pub fn new(workload: &Workload) -> Result<Self, crate::workload::Flaw> {
        workload.check()?;
        let steps = workload.kernels.iter().map(|kernel| Step {
            clocked: kernel.work.0 * kernel.clock_bound,
            fixed: kernel.work.0 * (1.0 - kernel.clock_bound),
            needs: kernel.needs.map_or(0, |collective| collective + 1),
        });
        let transfers = workload.collectives.iter().map(|collective| Transfer {
            time: collective.transfer.0,
            needs: collective.after_start_of.map_or(0, |kernel| kernel + 1),
            groups: collective.groups,
        });
        Ok(Self {
            steps: steps.collect(),
            transfers: transfers.collect(),
            gpus: Vec::new(),
            resident: Vec::new(),
            result: IterationResult::default(),
        })
    }

    /// Runs one iteration.
    ///
    /// # Errors
    /// Conditions out of range or of the wrong shape.
    pub fn run(&mut self, conditions: &Conditions) -> Result<&IterationResult, IterationError> {
        self.check(conditions)?;
        let length = self.run_checked(conditions).length;
        // The length is a maximum, and a maximum forgets a NaN: the starts don't.
        let starts = self.result.start.iter().filter_map(|row| row.last());
        if length.is_finite() && starts.copied().all(Millis::is_finite) {
            Ok(&self.result)
        } else {
            Err(IterationError::Endless)
        }
    }

    /// The last iteration that was run; empty before the first.
    #[must_use]
    pub fn last(&self) -> &IterationResult {
        &self.result
    }

    fn check(&self, conditions: &Conditions) -> Result<(), IterationError> {
        let usable = |number: f64| number.is_finite() && number >= 0.0;
        let gpus = conditions.speeds.len();
        if gpus == 0 {
            return Err(IterationError::NoGpus);
        }
        let kernels = self.steps.len() + self.transfers.len();
        if gpus.saturating_mul(kernels) > MOST {
            return Err(IterationError::TooLarge { gpus, kernels });
        }
        for (gpu, &speed) in conditions.speeds.iter().enumerate() {
            if !(speed.is_finite() && speed > 0.0) {
                return Err(IterationError::Speed { gpu, speed });
            }
        }
        if !(conditions.contention.is_finite() && conditions.contention >= 1.0) {
            return Err(IterationError::Contention(conditions.contention));
        }
        if let Some(noise) = conditions.noise
            && (noise.len() != gpus
                || noise.iter().any(|row| {
                    row.len() != self.steps.len() || !row.iter().all(|&factor| usable(factor))
                }))
        {
            return Err(IterationError::Shape("noise"));
        }
        if let Some(gaps) = conditions.host_gap
            && (gaps.len() != gpus || !gaps.iter().all(|gap| usable(gap.0)))
        {
            return Err(IterationError::Shape("host_gap"));
        }
        if let Some(links) = conditions.slow_link
            && (links.len() != gpus || !links.iter().all(|&link| usable(link)))
        {
            return Err(IterationError::Shape("slow_link"));
        }
        Ok(())
    }

    /// Runs one iteration under conditions that are known to be in order.
    pub(crate) fn run_checked(&mut self, conditions: &Conditions) -> &IterationResult {
        let result = &mut self.result;
        result.shape(
            conditions.speeds.len(),
            self.steps.len(),
            self.transfers.len(),
        );
        self.gpus.clear();
        for (g, &speed) in conditions.speeds.iter().enumerate() {
            let host_gap = conditions.host_gap.map_or(0.0, |gaps| gaps[g].0);
            self.gpus.push(Progress::new(speed, host_gap));
        }
        let lane = |g: usize| Lane {
            steps: &self.steps,
            noise: conditions.noise.map(|noise| noise[g].as_slice()),
        };

        let mut end = 0.0_f64;
        let count = self.gpus.len();
        for (j, transfer) in self.transfers.iter().enumerate() {
            self.resident.clear();
            self.resident.resize(transfer.groups.min(count), 0.0);
            for (g, gpu) in self.gpus.iter_mut().enumerate() {
                // The GPU stands at the end of collective j - 1: this one is resident from here,
                // or from the start of the kernel that it waits for.
                let goal = Goal {
                    time: f64::INFINITY,
                    starts: transfer.needs,
                };
                gpu.advance(&lane(g), goal, None, j, &mut result.kernels_of(g));
                result.collective_start[g][j] = Millis(gpu.now);
                let all_resident = &mut self.resident[transfer.group(g, count)];
                *all_resident = all_resident.max(gpu.now);
            }
            for (g, gpu) in self.gpus.iter_mut().enumerate() {
                let slower = conditions.slow_link.map_or(0.0, |links| links[g]);
                let all_resident = self.resident[transfer.group(g, count)];
                let end_here = all_resident + transfer.time * (1.0 + slower);
                result.collective_end[g][j] = Millis(end_here);
                end = end.max(end_here);
                let goal = Goal {
                    time: end_here,
                    starts: usize::MAX,
                };
                let slow = Some(conditions.contention);
                gpu.advance(&lane(g), goal, slow, j, &mut result.kernels_of(g));
            }
        }
        let ended = self.transfers.len();
        for (g, gpu) in self.gpus.iter_mut().enumerate() {
            gpu.advance(
                &lane(g),
                Goal::FINISH,
                None,
                ended,
                &mut result.kernels_of(g),
            );
            end = end.max(gpu.now);
        }
        result.length = Millis(end);
        result
    }
}

/// The results of one GPU.
struct KernelTimes<'a> {
    start: &'a mut [Millis],
    duration: &'a mut [Millis],
    overlapped: &'a mut [Millis],
}

impl IterationResult {
    fn kernels_of(&mut self, gpu: usize) -> KernelTimes<'_> {
        KernelTimes {
            start: &mut self.start[gpu],
            duration: &mut self.duration[gpu],
            overlapped: &mut self.overlapped[gpu],
        }
    }
}

/// The work of one GPU.
struct Lane<'a> {
    steps: &'a [Step],
    noise: Option<&'a [f64]>,
}

/// Where an advance ends: at a time, or as soon as so many kernels have started.
#[derive(Clone, Copy)]
struct Goal {
    time: f64,
    starts: usize,
}

impl Goal {
    /// When everything is done.
    const FINISH: Self = Self {
        time: f64::INFINITY,
        starts: usize::MAX,
    };
}

/// How far one GPU is. Times in milliseconds since the iteration began.
#[derive(Debug, Clone)]
struct Progress {
    slowness: f64,
    host_gap: f64,
    now: f64,
    /// When the host has the next kernel ready.
    ready: f64,
    /// The next or the running kernel.
    kernel: usize,
    /// Work left of the running one, in time at the full rate.
    left: Option<f64>,
    /// How long a collective was resident while it ran.
    overlapped: f64,
}

impl Progress {
    fn new(speed: f64, host_gap: f64) -> Self {
        Self {
            slowness: 1.0 / speed,
            host_gap,
            now: 0.0,
            ready: host_gap,
            kernel: 0,
            left: None,
            overlapped: 0.0,
        }
    }

    /// Works to `goal`. `resident`: the contention, while a collective is resident. `ended`: how
    /// many collectives have ended. A kernel that needs more of them holds the stream up.
    fn advance(
        &mut self,
        lane: &Lane,
        goal: Goal,
        resident: Option<f64>,
        ended: usize,
        times: &mut KernelTimes,
    ) {
        let slow = resident.unwrap_or(1.0);
        let started = self.kernel + usize::from(self.left.is_some());
        if started >= goal.starts {
            return;
        }
        loop {
            if let Some(left) = self.left {
                let finish = self.now + left * slow;
                let stop = finish.min(goal.time);
                if resident.is_some() {
                    self.overlapped += stop - self.now;
                }
                if finish > goal.time {
                    self.left = Some(left - (stop - self.now) / slow);
                    self.now = stop;
                    return;
                }
                let k = self.kernel;
                times.duration[k] = Millis(finish - times.start[k].0);
                times.overlapped[k] = Millis(self.overlapped);
                self.now = finish;
                self.ready = finish + self.host_gap;
                self.left = None;
                self.kernel += 1;
            }
            let Some(step) = lane.steps.get(self.kernel) else {
                self.wait_for(goal.time);
                return;
            };
            let begin = self.now.max(self.ready);
            if step.needs > ended || begin > goal.time {
                self.wait_for(goal.time);
                return;
            }
            let noise = lane.noise.map_or(1.0, |noise| noise[self.kernel]);
            self.now = begin;
            times.start[self.kernel] = Millis(begin);
            self.left = Some((step.clocked * self.slowness + step.fixed) * noise);
            self.overlapped = 0.0;
            if self.kernel + 1 >= goal.starts {
                return;
            }
        }
    }

    /// Waits until `time`; a GPU that has finished stays where it is.
    fn wait_for(&mut self, time: f64) {
        if time.is_finite() {
            self.now = time;
        }
    }
}
