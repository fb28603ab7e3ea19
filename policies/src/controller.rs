//! The loop's state machine: a sample goes in, a decision comes out. The daemon, the simulator
//! and the tests all drive this one.
//!
//! ```text
//! observe                        (measures for ever, writes nothing)
//! warm-up ──> adjusting ──> converged ──> drift ──> adjusting
//!    │            │             │           └─────> converged
//!    │            └─> rollback <┘
//!    └──────────────> converged (nothing to do)
//! ```
//!
//! From everywhere, a new plan or a restart leads back to warm-up.

mod anew;
mod by_model;
mod guards;

use std::collections::VecDeque;

use litd_units::{Millis, Watts};

use self::anew::Hint;
use crate::config::Config;
use crate::decision::{Decision, State, Why, adjusted};
use crate::diagnosis::{Diagnosis, close, diagnose, may_rise, too_hot_to_rise};
use crate::envelope::CapVector;
use crate::law::{adj_power_node, inc_power_gpu};
use crate::model::ModelLaw;
use crate::plan::{Plan, Policy};
use crate::sample::{GpuReading, Mean, Sample, SampleError, Samples};

/// A finished window.
#[derive(Debug, Clone)]
struct Window {
    iteration_time: Millis,
    /// The caps that were held during it.
    caps: CapVector,
    /// Whether caps were changed at its end.
    adjusted: bool,
}

/// The limiter of a GPU at the time of a sample.
#[derive(Debug, Clone, Copy)]
struct Limit {
    throttled: bool,
    /// As [`GpuReading::power_share`].
    power: Option<f64>,
}

/// The state of the node when it converged.
#[derive(Debug, Clone, Copy)]
struct Level {
    /// How far first and last were apart, or would have to be to count.
    spread: Millis,
    /// Whether it converged because nothing could be done, rather than because it was level.
    blocked: bool,
}

/// The loop.
#[derive(Debug, Clone)]
pub struct Controller {
    plan: Plan,
    config: Config,
    state: State,
    /// The samples of the warm-up, or of the window, in progress.
    window: Samples,
    /// The windows that a rollback may have to look back on; the oldest first.
    history: VecDeque<Window>,
    /// The last caps asked for; none before the first adjustment.
    caps: Option<CapVector>,
    /// The reference of comparisons: the warm-up, or the drift that brought the loop back.
    baseline: Option<Mean>,
    /// The caps that were held then.
    home: CapVector,
    /// The caps of warm-up itself, whatever drifts came later.
    origin: CapVector,
    /// The limiters of each GPU in the last samples.
    limits: VecDeque<Vec<Limit>>,
    /// Algorithm 2's `global_max`.
    global_max: Millis,
    /// The smallest distance between first and last so far, and the windows since.
    best: (Millis, u32),
    level: Option<Level>,
    adjustments: u32,
    /// All samples since caps last changed.
    since: Samples,
    /// The caps before each of the last adjustments; the newest last.
    trail: Vec<CapVector>,
    /// The share of the maximum adjustment that is used; it halves when a step went too far.
    stride: f64,
    /// The GPUs' caps as the last sample showed them; none since caps were asked for.
    read: Option<Vec<Watts>>,
    /// The start of the first adjustment, if learned before.
    hint: Option<Hint>,
    /// Whether the caps have yet to rise into a new plan.
    lifting: bool,
    /// The model law's state; `None` while the paper's law is used.
    model: Option<ModelLaw>,
    /// How often the model law has gone back for a larger margin since warm-up.
    retreats: u32,
    /// Windows in a row in which power did not follow caps.
    disobeyed: u32,
    /// Whether cpu-slosh leaves the CPUs their watts, because they bought too little.
    frugal: bool,
    /// Whether the last window of a loop that only watches showed a level node.
    seen_level: bool,
}

/// How many adjustments can be taken back one by one.
const TRAIL: usize = 64;

/// Strides below this are not worth a window.
const SHORTEST_STRIDE: f64 = 0.2;

impl Controller {
    /// A loop in warm-up, or in [`State::Observe`] if that is the plan's policy. The plan's
    /// start caps are held by then.
    #[must_use]
    pub fn new(plan: Plan, config: Config) -> Self {
        let gpus = plan.tdp().len();
        let state = match plan.policy() {
            Policy::Observe => State::Observe,
            _ => State::WarmUp,
        };
        Self {
            state,
            config,
            window: Samples::new(gpus),
            history: VecDeque::new(),
            caps: None,
            baseline: None,
            home: plan.start().clone(),
            origin: plan.start().clone(),
            limits: VecDeque::new(),
            global_max: Millis::ZERO,
            best: (Millis(f64::INFINITY), 0),
            level: None,
            adjustments: 0,
            since: Samples::new(gpus),
            trail: Vec::new(),
            stride: 1.0,
            read: None,
            hint: None,
            lifting: false,
            model: None,
            retreats: 0,
            disobeyed: 0,
            frugal: false,
            seen_level: false,
            plan,
        }
    }

    /// Where the loop is.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// How often it changed caps; a rollback is not counted.
    #[must_use]
    pub fn adjustments(&self) -> u32 {
        self.adjustments
    }

    /// The reference of comparisons: the mean over warm-up, or over the window in which a drift was found.
    #[must_use]
    pub fn baseline(&self) -> Option<&Mean> {
        self.baseline.as_ref()
    }

    /// The plan that it follows.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The caps asked for last; before any, those that the plan starts from. GPUs first, then
    /// CPU sockets.
    #[must_use]
    pub fn caps(&self) -> &CapVector {
        self.caps.as_ref().unwrap_or(self.plan.start())
    }

    /// Takes one sample and decides.
    pub fn step(&mut self, sample: &Sample) -> Decision {
        if let Some(error) = self.misread(sample) {
            return self.hold(Why::BadSample(error));
        }
        if let Err(error) = self.window.add(sample) {
            return self.hold(Why::BadSample(error));
        }
        self.read = Some(sample.gpus.iter().map(|gpu| gpu.cap).collect());
        if self.since.count() <= self.judged_for() {
            // The same sample passed the same check just now.
            let _ = self.since.add(sample);
        }
        let gpus = self.with_recent_limits(&sample.gpus);
        if let Some(lifted) = self.lift(&gpus) {
            return lifted;
        }
        let have = self.window.count();
        let need = match self.state {
            State::WarmUp => self.config.calibration.warm_up,
            _ => self.config.detection.window,
        };
        if have < need {
            return self.hold(Why::Collecting { have, need });
        }
        let finished = std::mem::replace(&mut self.window, Samples::new(self.plan.tdp().len()));
        let Some(mean) = finished.mean() else {
            return self.hold(Why::Collecting { have, need });
        };
        let close = self.close(&mean);
        let diagnosis = diagnose(&mean, &gpus, &self.config.guard, close);
        match self.state {
            State::Observe => {
                self.seen_level = matches!(diagnosis, Diagnosis::Level { .. });
                self.hold(Why::Seen(diagnosis))
            }
            State::WarmUp => self.end_warm_up(mean, diagnosis, &gpus),
            State::Rollback => self.hold(Why::Paused),
            State::Adjusting | State::Converged | State::Drift => {
                self.end_window(&mean, diagnosis, &gpus)
            }
        }
    }

    /// A cap that no device of this plan may hold was misread, or somebody else set it: nothing
    /// can be concluded from such a sample.
    fn misread(&self, sample: &Sample) -> Option<SampleError> {
        let envelope = self.plan.envelope();
        let caps = sample.gpus.iter().map(|gpu| gpu.cap).enumerate();
        let mut wrong = caps.filter(|&(gpu, cap)| !envelope.allows(gpu, cap));
        wrong.next().map(|(gpu, cap)| SampleError::Cap { gpu, cap })
    }

    /// The readings, with what limited each GPU over the last samples: one that throttled in any
    /// of them counts as throttling, because that comes and goes within seconds; power has its
    /// mean share over those that know.
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
    fn judged_for(&self) -> u32 {
        let window = self.config.detection.window.max(1);
        window.saturating_mul(self.config.guard.step_back_windows)
    }

    /// Whether the node is level: no GPU waits for another by more than matters, so that none is a straggler.
    #[must_use]
    pub fn is_level(&self) -> bool {
        match self.state {
            State::Observe => self.seen_level,
            State::Converged => self.level.is_some_and(|it| !it.blocked),
            State::WarmUp | State::Adjusting | State::Drift | State::Rollback => false,
        }
    }

    /// How close first and last must be: what warm-up showed to be noise or to matter little.
    fn close(&self, mean: &Mean) -> Millis {
        let guard = &self.config.guard;
        match &self.baseline {
            None => close(mean, guard),
            Some(baseline) => {
                close(baseline, guard).max(baseline.leads.spread() * guard.level_remainder)
            }
        }
    }

    fn hold(&self, why: Why) -> Decision {
        Decision {
            state: self.state,
            apply: None,
            why,
        }
    }

    fn end_warm_up(&mut self, mean: Mean, diagnosis: Diagnosis, gpus: &[GpuReading]) -> Decision {
        self.record(&mean);
        self.global_max = mean.leads.largest();
        self.best = (mean.leads.spread(), 0);
        self.baseline = Some(mean.clone());
        let hint = self.hint.take();
        let modelled = self.begin_model(&mean, gpus);
        if self.power_helps(&diagnosis)
            && let Some(recalled) = self.recall(hint, gpus)
        {
            return recalled;
        }
        if modelled {
            return self.first_by_model(&mean, diagnosis, gpus);
        }
        if self.power_helps(&diagnosis) {
            return self.adjust(&mean, gpus);
        }
        let blocked = !matches!(diagnosis, Diagnosis::Level { .. });
        self.converge(&mean, blocked, Why::Seen(diagnosis))
    }

    fn end_window(&mut self, mean: &Mean, diagnosis: Diagnosis, gpus: &[GpuReading]) -> Decision {
        self.record(mean);
        if self.state != State::Rollback
            && let Some(back) = self.disobeyed(mean, gpus)
        {
            return back;
        }
        if let Some(rollback) = self.judge_last_adjustments(gpus) {
            return rollback;
        }
        if let Some(back) = self.give_back(mean, gpus) {
            return back;
        }
        if self.model.is_some() {
            return self.window_by_model(mean, diagnosis, gpus);
        }
        if let Some(back) = self.step_back(mean, gpus) {
            return back;
        }
        match self.state {
            State::Adjusting => self.level_further(mean, diagnosis, gpus),
            _ => self.watch(mean, diagnosis, gpus),
        }
    }

    /// gpu-red moves no watts to the straggler: that its own cap does not bind it, or may not
    /// rise, is no reason to let the others burn more than they need. A straggler that throttles
    /// is one: its speed follows its cooling, and the others would have to follow that.
    fn power_helps(&self, diagnosis: &Diagnosis) -> bool {
        let enough_to_wait = matches!(
            diagnosis,
            Diagnosis::NotPowerLimited { .. }
                | Diagnosis::UnknownLimit { .. }
                | Diagnosis::HeatLimited {
                    throttled: false,
                    ..
                }
        );
        diagnosis.power_helps() || (self.plan.policy() == Policy::GpuRed && enough_to_wait)
    }

    /// Adjusting: stop, or adjust once more.
    fn level_further(
        &mut self,
        mean: &Mean,
        diagnosis: Diagnosis,
        gpus: &[GpuReading],
    ) -> Decision {
        let spread = mean.leads.spread();
        let before = self
            .baseline
            .as_ref()
            .map_or(spread, |baseline| baseline.leads.spread());
        let remainder = spread / before;
        if spread < self.close(mean) {
            return self.converge(mean, false, Why::Levelled { remainder });
        }
        // A pace says little about a nearly level node, so only what sensors say stops the way.
        let sensed = matches!(
            diagnosis,
            Diagnosis::HeatLimited { .. }
                | Diagnosis::NotPowerLimited { .. }
                | Diagnosis::UnknownLimit { .. }
        );
        if sensed && !self.power_helps(&diagnosis) {
            return self.converge(mean, true, Why::Seen(diagnosis));
        }
        if spread < self.best.0 {
            self.best = (spread, 0);
        } else {
            self.best.1 += 1;
        }
        if self.best.1 >= self.config.guard.patience {
            return self.converge(mean, false, Why::LevelledOff { remainder });
        }
        self.adjust(mean, gpus)
    }

    /// Takes gpu-red's last adjustment back if it has begun to cost speed, and goes on with half
    /// the stride. The longer caps are held the more samples judge them, for a while: what comes
    /// long after is not the law's doing.
    fn step_back(&mut self, mean: &Mean, gpus: &[GpuReading]) -> Option<Decision> {
        let guard = &self.config.guard;
        let judged = self.since.count();
        if self.plan.policy() != Policy::GpuRed || judged > self.judged_for() {
            return None;
        }
        let slowdown = self.slowdown(judged, 2.0)?;
        if slowdown <= guard.gpu_red_slowdown {
            return None;
        }
        let before = self.baseline.as_ref()?;
        // At the caps before the last adjustment the GPUs are further apart than now: that is not drift.
        let spread = before.leads.spread().max(self.close(mean));
        let last = self.trail.pop()?;
        let caps = self.take_back(&last, gpus);
        self.hold_now(&caps);
        self.stride /= 2.0;
        let why = Why::CostsSpeed { slowdown };
        let decision = if self.state == State::Adjusting && self.stride >= SHORTEST_STRIDE {
            self.hold(why)
        } else {
            let decision = self.converge(mean, false, why);
            self.level = Some(Level {
                spread,
                blocked: false,
            });
            decision
        };
        Some(Decision {
            apply: Some(caps),
            ..decision
        })
    }

    /// Remembers what is about to be written.
    fn hold_now(&mut self, caps: &CapVector) {
        self.caps = Some(caps.clone());
        self.read = None;
        self.since = Samples::new(self.plan.tdp().len());
    }

    /// Converged or drifting: go on holding, or start over. It takes two windows in a row.
    fn watch(&mut self, mean: &Mean, diagnosis: Diagnosis, gpus: &[GpuReading]) -> Decision {
        let level = self.level.unwrap_or(Level {
            spread: mean.leads.spread(),
            blocked: false,
        });
        let growth = mean.leads.spread() / level.spread;
        let grown = level.blocked || growth > self.config.guard.drift_factor;
        let drifted = grown && self.power_helps(&diagnosis);
        match (drifted, self.state) {
            (false, _) => {
                self.state = State::Converged;
                let why = if level.blocked {
                    Why::Seen(diagnosis)
                } else {
                    Why::Holding
                };
                self.hold(why)
            }
            (true, State::Drift) => {
                self.start_over(mean);
                self.adjust(mean, gpus)
            }
            (true, _) => {
                self.state = State::Drift;
                self.hold(Why::Drifted { growth })
            }
        }
    }

    /// After a drift the node is another one: it is compared with itself as it is now, at the
    /// caps it has now. What warm-up learned of its noise stays.
    fn start_over(&mut self, mean: &Mean) {
        let mut baseline = mean.clone();
        if let Some(known) = &self.baseline {
            baseline.noise = known.noise;
            baseline.time_noise = known.time_noise;
        }
        self.baseline = Some(baseline);
        self.home = self.caps().clone();
        self.best = (mean.leads.spread(), 0);
        self.stride = 1.0;
        self.trail.clear();
        self.history.clear();
        self.record(mean);
    }

    /// An adjustment of the law, inside the envelope.
    fn adjust(&mut self, mean: &Mean, gpus: &[GpuReading]) -> Decision {
        let mitigation = &self.config.mitigation;
        let gpu_caps: Vec<Watts> = gpus.iter().map(|gpu| gpu.cap).collect();
        let (increase, global_max) = inc_power_gpu(
            &mean.leads,
            mitigation.max_adjustment * self.stride,
            mitigation.scale,
            self.global_max,
        );
        self.global_max = global_max;
        let wanted = adj_power_node(&increase, &gpu_caps, self.plan.tdp(), self.gpu_budget());
        let wanted: Vec<Watts> = wanted.into_iter().chain(self.cpu_targets()).collect();
        let caps = self.project(&wanted, gpus, mitigation.rise());
        self.state = State::Adjusting;
        let moves = (0..gpu_caps.len()).any(|gpu| caps.watts(gpu) != Some(gpu_caps[gpu]));
        if !moves {
            return self.converge(mean, false, Why::NothingMoves);
        }
        let why = adjusted(mean, &gpu_caps, &caps);
        self.adjust_to(caps, why)
    }

    /// Counts an adjustment and remembers what it takes to judge it and to take it back.
    fn adjust_to(&mut self, caps: CapVector, why: Why) -> Decision {
        self.state = State::Adjusting;
        if let Some(window) = self.history.back_mut() {
            window.adjusted = true;
        }
        self.adjustments += 1;
        if self.trail.len() == TRAIL {
            self.trail.remove(0);
        }
        self.trail.push(self.caps().clone());
        self.hold_now(&caps);
        Decision {
            state: self.state,
            apply: Some(caps),
            why,
        }
    }

    /// The wanted caps of all devices, as far as the envelope, the largest raise of a GPU's cap and each GPU's
    /// limiter allow.
    fn project(&self, wanted: &[Watts], gpus: &[GpuReading], most: Watts) -> CapVector {
        let rise = |gpu: &GpuReading| match may_rise(gpu, &self.config.guard) {
            true => most,
            false => Watts::ZERO,
        };
        self.project_rising(wanted, gpus, rise)
    }

    /// Caps that were held before, at once and however far; but no hot GPU's cap rises, not even
    /// back. Whether power limits a GPU does not matter here: it had those watts.
    fn take_back(&self, caps: &CapVector, gpus: &[GpuReading]) -> CapVector {
        let rise = |gpu: &GpuReading| match too_hot_to_rise(gpu, &self.config.guard) {
            true => Watts::ZERO,
            false => Watts(f64::INFINITY),
        };
        self.project_rising(&caps.to_watts(), gpus, rise)
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

    fn converge(&mut self, mean: &Mean, blocked: bool, why: Why) -> Decision {
        self.state = State::Converged;
        self.level = Some(Level {
            spread: mean.leads.spread().max(self.close(mean)),
            blocked,
        });
        self.hold(why)
    }

    fn record(&mut self, mean: &Mean) {
        let caps = self.caps().clone();
        self.history.push_back(Window {
            iteration_time: mean.iteration_time,
            caps,
            adjusted: false,
        });
        let keep = self.config.guard.rollback_windows as usize + 1;
        while self.history.len() > keep {
            self.history.pop_front();
        }
    }

    /// Rolls back when the iteration has become slower over the windows since an adjustment,
    /// against the window before it, or against the baseline (many small losses add up).
    fn judge_last_adjustments(&mut self, gpus: &[GpuReading]) -> Option<Decision> {
        let windows = self.config.guard.rollback_windows as usize;
        let adjusted = self
            .history
            .iter()
            .rev()
            .skip(1)
            .any(|window| window.adjusted);
        if self.history.len() <= windows || !adjusted {
            return None;
        }
        let oldest = self.history.front()?;
        let after = self
            .history
            .iter()
            .skip(1)
            .map(|window| window.iteration_time)
            .sum::<Millis>()
            / windows as f64;
        let worse = |before: Millis| after > before * (1.0 + self.config.guard.rollback_slowdown);
        let warm_up = self.baseline.as_ref().map(|mean| mean.iteration_time);
        let (before, caps) = if oldest.adjusted && worse(oldest.iteration_time) {
            (oldest.iteration_time, oldest.caps.clone())
        } else {
            let warm_up = warm_up.filter(|&before| worse(before))?;
            (warm_up, self.home.clone())
        };
        let why = Why::RolledBack { before, after };
        Some(self.back_to(&caps, gpus, why))
    }
}
