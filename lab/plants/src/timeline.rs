//! One iteration of a node whose clocks are given: kernels start and end, collectives become
//! resident, transfer and end, GPUs wait. Exact for the rules in [`crate::workload`]; the cost is
//! proportional to kernels times GPUs.

use litd_sim::rng::Rng;

use crate::workload::{CLASSES, Workload};

/// What a GPU is like during one iteration.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pace {
    /// Time per unit of work, per class; 1 at the highest clock.
    pub time: [f64; CLASSES],
    /// Factor on a kernel's time while a collective transfers beside it, at least 1.
    pub transfer_contention: [f64; CLASSES],
    /// The same while a collective is resident and waits for other GPUs.
    pub wait_contention: [f64; CLASSES],
    /// By how much its first kernel starts later than the iteration, ms.
    pub delay: f64,
    /// Factor on all its kernels.
    pub factor: f64,
    /// Power above idle per class, W; only for the course of energy.
    pub dynamic: [f64; CLASSES],
}

/// Noise of single kernels.
pub struct KernelNoise<'a> {
    /// The streams, one for each GPU.
    pub rngs: &'a mut [Rng],
    /// Standard deviation relative to a kernel's time.
    pub deviation: f64,
    /// How heavy the tails are: 0 normal; above, rare kernels are several times further off.
    pub tail: f64,
}

impl KernelNoise<'_> {
    fn factor(&mut self, gpu: usize) -> f64 {
        let rng = &mut self.rngs[gpu];
        let mut normal = rng.normal();
        if self.tail > 0.0 && rng.uniform() < 0.02 {
            // One in fifty deviates more, and only towards longer: kernels are delayed, never hurried.
            normal = normal.abs() * (1.0 + 8.0 * self.tail);
        }
        (1.0 + self.deviation * normal).max(0.2)
    }
}

/// What a GPU did in an iteration, in ms.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Use {
    /// Time in kernels of each class.
    pub busy: [f64; CLASSES],
    /// Time in kernels while a collective was resident.
    pub overlapped: f64,
    /// Time in which a collective transferred.
    pub transferring: f64,
    /// Time in which a collective was resident and waited for other GPUs.
    pub waiting: f64,
    /// When its last kernel ended.
    pub end: f64,
}

impl Use {
    /// Time in kernels.
    #[must_use]
    pub fn computing(&self) -> f64 {
        self.busy.iter().sum()
    }
}

/// Everything about one iteration. Times in ms from its begin; `[gpu * kernels + kernel]` and
/// `[gpu * collectives + collective]`.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// When each kernel started.
    pub start: Vec<f64>,
    /// When it ended.
    pub end: Vec<f64>,
    /// For how much of that a collective was resident.
    pub overlapped: Vec<f64>,
    /// When each collective became resident.
    pub resident: Vec<f64>,
    /// When it was resident on all GPUs.
    pub complete: Vec<f64>,
    /// When it ended.
    pub ended: Vec<f64>,
    /// What each GPU did.
    pub uses: Vec<Use>,
    /// Points of each GPU's course: time, joules above idle so far. One at each collective's
    /// trigger and one at the end.
    pub course: Vec<Vec<(f64, f64)>>,
    /// From begin to end.
    pub length: f64,
    /// Where each GPU stands: next kernel, first collective that has not ended there.
    cursor: Vec<(usize, usize, f64)>,
}

impl Timeline {
    fn reset(&mut self, workload: &Workload, paces: &[Pace]) {
        let (gpus, kernels) = (paces.len(), workload.kernels.len());
        let collectives = workload.collectives.len();
        for table in [&mut self.start, &mut self.end, &mut self.overlapped] {
            table.resize(gpus * kernels, 0.0);
        }
        self.resident.resize(gpus * collectives, 0.0);
        self.complete.clear();
        self.ended.clear();
        self.uses.clear();
        self.uses.resize(gpus, Use::default());
        self.course.resize_with(gpus, Vec::new);
        self.cursor.clear();
        for (gpu, pace) in paces.iter().enumerate() {
            self.course[gpu].clear();
            self.course[gpu].push((0.0, 0.0));
            self.cursor.push((0, 0, workload.gap + pace.delay));
        }
    }

    /// Runs one iteration. `transfer` is the factor on all transfers' times; without `noise`
    /// every kernel takes its time exactly.
    pub fn run(
        &mut self,
        workload: &Workload,
        paces: &[Pace],
        transfer: f64,
        mut noise: Option<&mut KernelNoise<'_>>,
    ) {
        self.reset(workload, paces);
        for (index, collective) in workload.collectives.iter().enumerate() {
            let before = self.ended.last().copied().unwrap_or(0.0);
            let mut complete = before;
            for (gpu, pace) in paces.iter().enumerate() {
                self.advance(
                    workload,
                    pace,
                    gpu,
                    collective.trigger,
                    noise.as_deref_mut(),
                );
                let ready = self.ready(workload, gpu, collective.trigger);
                let resident = ready.max(before);
                self.resident[gpu * workload.collectives.len() + index] = resident;
                complete = complete.max(resident);
            }
            self.complete.push(complete);
            self.ended.push(complete + collective.transfer * transfer);
            for gpu in 0..paces.len() {
                let resident = self.resident[gpu * workload.collectives.len() + index];
                self.uses[gpu].waiting += complete - resident;
                self.uses[gpu].transferring += collective.transfer * transfer;
            }
        }
        self.length = self.ended.last().copied().unwrap_or(0.0);
        for (gpu, pace) in paces.iter().enumerate() {
            self.advance(
                workload,
                pace,
                gpu,
                workload.kernels.len(),
                noise.as_deref_mut(),
            );
            self.uses[gpu].end = self.cursor[gpu].2;
            self.length = self.length.max(self.uses[gpu].end);
        }
        for course in &mut self.course {
            let energy = course.last().map_or(0.0, |it| it.1);
            course.push((self.length, energy));
        }
    }

    /// When a kernel that is next on this GPU can start.
    fn ready(&self, workload: &Workload, gpu: usize, kernel: usize) -> f64 {
        let free = self.cursor[gpu].2;
        let needs = workload.kernels.get(kernel).and_then(|it| it.needs);
        needs.map_or(free, |needs| free.max(self.ended[needs]))
    }

    /// Runs a GPU's kernels up to, and without, `until`.
    fn advance(
        &mut self,
        workload: &Workload,
        pace: &Pace,
        gpu: usize,
        until: usize,
        mut noise: Option<&mut KernelNoise<'_>>,
    ) {
        let base = gpu * workload.kernels.len();
        let row = gpu * workload.collectives.len();
        let (first, mut collective, mut now) = self.cursor[gpu];
        let mut energy = self.course[gpu].last().map_or(0.0, |it| it.1);
        for kernel in first..until {
            let spec = &workload.kernels[kernel];
            let class = spec.class as usize;
            if let Some(needs) = spec.needs {
                now = now.max(self.ended[needs]);
            }
            let start = now;
            let mut rest = spec.work * pace.time[class] * pace.factor;
            if let Some(noise) = noise.as_deref_mut() {
                rest *= noise.factor(gpu);
            }
            let mut overlapped = 0.0;
            loop {
                while collective < self.ended.len() && now >= self.ended[collective] {
                    collective += 1;
                }
                if collective == self.ended.len() || now + rest <= self.resident[row + collective] {
                    now += rest;
                    break;
                }
                let resident = self.resident[row + collective];
                if now < resident {
                    rest -= resident - now;
                    now = resident;
                }
                let (bound, factor) = if now < self.complete[collective] {
                    (self.complete[collective], pace.wait_contention[class])
                } else {
                    (self.ended[collective], pace.transfer_contention[class])
                };
                let wanted = rest * factor;
                if now + wanted <= bound {
                    overlapped += wanted;
                    now += wanted;
                    break;
                }
                overlapped += bound - now;
                rest -= (bound - now) / factor;
                now = bound;
            }
            self.start[base + kernel] = start;
            self.end[base + kernel] = now;
            self.overlapped[base + kernel] = overlapped;
            self.uses[gpu].busy[class] += now - start;
            self.uses[gpu].overlapped += overlapped;
            energy += (now - start) * 1e-3 * pace.dynamic[class];
        }
        if until > first {
            self.course[gpu].push((now, energy));
        }
        self.cursor[gpu] = (until, collective, now);
    }
}
