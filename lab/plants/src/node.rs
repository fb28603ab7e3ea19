//! A node over time: caps go in, iterations come out, and what its tools would show.

use std::collections::VecDeque;

use litd_sim::rng::Rng;
use litd_units::{Celsius, Hertz, Joules, Millis, Watts};

use crate::draw::{Draw, weights};
use crate::gpu::{Gpu, Operation};
use crate::kind::{Range, Sensor, Spec};
use crate::optimum::{self, Optimum, Policy};
use crate::plant::{Cpus, Iteration, Limiter, Plant, Reading};
use crate::steady::{self, Steady};
use crate::timeline::{KernelNoise, Pace, Timeline, Use};
use crate::workload::{CLASSES, Class, Workload};

/// How a node's heat moves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heat {
    /// Temperature of what comes in, C.
    pub inlet: f64,
    /// By how much a watt upstream warms the GPU behind, K/W.
    pub preheat: f64,
    /// Exponent of the resistance in fan speed.
    pub fan_response: f64,
    /// Time constant of the sink, ms.
    pub sink_time: f64,
    /// Part of the rise that comes at once.
    pub fast: f64,
    /// Random walk of the inlet, K in an hour.
    pub drift: f64,
}

/// Time constants of die and fans, ms: A100 falls 8 of 12 C in 250 ms; fans' is assumed.
const DIE_TIME: f64 = 220.0;
const FAN_TIME: f64 = 5_000.0;

/// Fans run at least at this speed and at full speed from 5 K below slowdown; in between speed
/// follows the hottest GPU from 60 C on. Assumed.
const FANS: (f64, f64) = (0.4, 60.0);

impl Heat {
    /// The speed that fans aim at.
    pub fn fan(&self, hottest: f64, slowdown: f64) -> f64 {
        let place = (hottest - FANS.1) / (slowdown - 5.0 - FANS.1);
        (FANS.0 + (1.0 - FANS.0) * place).clamp(FANS.0, 1.0)
    }

    /// Factor on all resistances to heat at this fan speed.
    pub fn resistance(&self, fan: f64) -> f64 {
        fan.powf(-self.fan_response)
    }

    /// The temperatures that these powers lead to. The second half of the GPUs stands behind the
    /// first.
    pub fn temperature(&self, gpus: &[Gpu], power: &[f64], gpu: usize, factor: f64) -> f64 {
        let half = gpus.len() / 2;
        let upstream = if gpu >= half { power[gpu - half] } else { 0.0 };
        let own = gpus[gpu].resistance * power[gpu];
        self.inlet + (own + self.preheat * upstream) * factor
    }
}

/// What is random in an iteration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noise {
    pub kernel: f64,
    pub own: f64,
    pub memory: f64,
    pub shared: f64,
    pub tail: f64,
    pub pause: f64,
    pub modes: f64,
}

/// The CPUs, W.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Host {
    pub limit: f64,
    pub draw: f64,
    pub margin: f64,
}

/// How power is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sensing {
    pub sensor: Sensor,
    pub averaged: bool,
}

/// What changes of a GPU.
#[derive(Debug, Clone)]
struct State {
    cap: f64,
    common: f64,
    mean: f64,
    used: Use,
    at: Operation,
    sink: f64,
    die: f64,
    power: f64,
    energy: f64,
    own: f64,
    mode: bool,
    course: VecDeque<(f64, f64)>,
}

/// A simulated node of the family.
#[derive(Clone)]
pub struct Node {
    pub(crate) spec: Spec,
    pub(crate) workload: Workload,
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) heat: Heat,
    pub(crate) host: Host,
    pub(crate) transfer_clock: f64,
    pub(crate) weights: [f64; CLASSES],
    noise: Noise,
    sensing: Sensing,
    lag: f64,
    dead_band: f64,
    start: f64,
    states: Vec<State>,
    fan: f64,
    inlet_drift: f64,
    shared: f64,
    rng: Rng,
    kernel_rngs: Vec<Rng>,
    timeline: Timeline,
    iteration: Iteration,
    elapsed: f64,
}

/// Streams of noise.
const NOISE: u64 = 5;

impl Node {
    pub(crate) fn new(
        draw: &Draw,
        spec: Spec,
        workload: Workload,
        gpus: Vec<Gpu>,
        noise: u64,
    ) -> Self {
        let stream = |part| Rng::stream(draw.seed, &[NOISE, draw.sibling, noise, part]);
        let (lag, dead_band) = draw.limiter();
        let heat = draw.heat();
        let start = draw.start();
        let cap = (spec.range.highest * start).cut_to(spec.range.unit).0;
        let state = State {
            cap,
            common: 1.0,
            mean: cap,
            used: Use::default(),
            at: Operation::default(),
            sink: heat.inlet,
            die: heat.inlet,
            power: 0.0,
            energy: 0.0,
            own: 0.0,
            mode: false,
            course: VecDeque::new(),
        };
        let mut node = Self {
            spec,
            weights: weights(&workload),
            workload,
            states: vec![state; gpus.len()],
            kernel_rngs: (0..gpus.len()).map(|gpu| stream(1 + gpu as u64)).collect(),
            gpus,
            host: draw.host(),
            transfer_clock: draw.value(crate::Dimension::TransferClock),
            noise: draw.noise(),
            sensing: draw.sensing(),
            lag,
            dead_band,
            start: cap,
            fan: heat.fan(heat.inlet, spec.slowdown),
            heat,
            inlet_drift: 0.0,
            shared: 0.0,
            rng: stream(0),
            timeline: Timeline::default(),
            iteration: Iteration::default(),
            elapsed: 0.0,
        };
        let start = node.start();
        node.settle(&start);
        node
    }

    /// Power of the GPUs when nothing runs and clocks are up, and their temperatures.
    #[must_use]
    pub fn at_rest(&self) -> Vec<(Watts, Celsius)> {
        let mut powers = vec![0.0; self.gpus.len()];
        let mut temperatures = vec![self.heat.inlet; self.gpus.len()];
        for _ in 0..50 {
            let hottest = temperatures.iter().copied().fold(0.0, f64::max);
            let factor = self
                .heat
                .resistance(self.heat.fan(hottest, self.spec.slowdown));
            for (gpu, it) in self.gpus.iter().enumerate() {
                powers[gpu] = it.idle(temperatures[gpu], 1.0);
            }
            for (gpu, temperature) in temperatures.iter_mut().enumerate() {
                *temperature = self.heat.temperature(&self.gpus, &powers, gpu, factor);
            }
        }
        let pairs = powers.iter().zip(&temperatures);
        pairs.map(|(&p, &t)| (Watts(p), Celsius(t))).collect()
    }

    /// Lets time pass with the job stopped between two launches: only what drifts moves.
    pub fn rest(&mut self, time: Millis) {
        self.drift(time.0);
        self.elapsed += time.0;
    }

    /// Energy of a GPU up to a moment of the last iteration, J.
    pub(crate) fn gpu_energy_at(&self, gpu: usize, moment: f64) -> f64 {
        Self::energy_at(&self.states[gpu], moment)
    }

    /// What a node draws besides its GPUs, W.
    pub(crate) fn overhead(&self) -> f64 {
        let fans = self.spec.fans * self.fan.powi(3);
        fans + self.host.draw.min(self.host.limit) + self.spec.rest
    }

    /// The random walk of the inlet's temperature; what goes far comes back within some hours.
    fn drift(&mut self, time: f64) {
        self.inlet_drift += self.heat.drift * (time / 3.6e6).sqrt() * self.rng.normal();
        self.inlet_drift *= 1.0 - (time / 3.6e7).min(1.0);
    }

    /// The factor on transfers' times at these operations: the slowest GPU's clock sets it.
    pub(crate) fn transfer_factor(&self, at: impl Iterator<Item = Operation>) -> f64 {
        let gemm = Class::Gemm as usize;
        let slowest = at.map(|it| it.clock[gemm]).fold(1.0, f64::min);
        self.transfer_clock / slowest + 1.0 - self.transfer_clock
    }

    /// What a cap becomes when a driver takes it.
    pub(crate) fn accepted(&self, cap: Watts) -> f64 {
        let Range {
            lowest,
            highest,
            unit,
        } = self.spec.range;
        cap.max(lowest).min(highest).cut_to(unit).0
    }

    /// Lets the limiters react for as long as the last iteration took, and returns the common
    /// clock of each GPU, averaged over that.
    fn limit(&mut self) -> Vec<f64> {
        let length = self.iteration.wall.0.max(1.0);
        let steps = (length / (self.lag / 3.0)).ceil().clamp(1.0, 8.0);
        let span = length / steps;
        let follow = 1.0 - (-span / self.lag).exp();
        let gpus = self.gpus.iter().zip(&mut self.states);
        gpus.map(|(gpu, state)| {
            let remember = 1.0 - (-span / gpu.window).exp();
            let target = gpu.target(state.cap);
            let mut slowness = 0.0;
            for _ in 0..steps as usize {
                let at = gpu.operate(state.common, state.die);
                let mut used = state.used;
                for class in 0..CLASSES {
                    used.busy[class] *= at.time[class] / state.at.time[class];
                }
                let longer = used.computing() - state.used.computing();
                let length = (length + longer).max(used.computing());
                let idle = gpu.idle(state.die, at.voltage);
                let power = gpu.regulated(&at, &used, length, idle);
                state.mean += (power - state.mean) * remember;
                let error = (target / state.mean).ln();
                if error.abs() > self.dead_band {
                    let beyond = error - self.dead_band * error.signum();
                    state.common *= (0.4 * beyond * follow).exp();
                }
                state.common = state.common.clamp(gpu.lowest, 1.0);
                slowness += 1.0 / state.common;
            }
            steps / slowness
        })
        .collect()
    }

    /// Draws the noise of an iteration into paces.
    fn disturb(&mut self, paces: &mut [Pace]) {
        let length = self.iteration.wall.0;
        self.drift(length);
        let rng = &mut self.rng;
        let noise = self.noise;
        let fresh = (1.0 - noise.memory * noise.memory).sqrt();
        self.shared = noise.memory.max(0.0) * self.shared + fresh * noise.shared * rng.normal();
        let paused = (rng.uniform() < noise.pause)
            .then(|| (rng.uniform() * paces.len() as f64) as usize % paces.len());
        // Where the CPUs' limit is below what they need, every GPU's host is late.
        let starved = (self.host.draw / self.host.limit - 1.0).max(0.0) * 0.3 * length;
        for (gpu, (pace, state)) in paces.iter_mut().zip(&mut self.states).enumerate() {
            let rare = if rng.uniform() < 0.03 {
                1.0 + 4.0 * noise.tail
            } else {
                1.0
            };
            state.own = noise.memory * state.own + fresh * noise.own * rare * rng.normal();
            if noise.modes > 0.0 && rng.uniform() < 0.01 {
                state.mode = !state.mode;
            }
            let mode = if state.mode { noise.modes } else { 0.0 };
            pace.factor = (1.0 + self.shared + state.own).max(0.5) * (1.0 + mode);
            pace.delay = starved;
            if paused == Some(gpu) {
                pace.delay += length * (0.1 + 0.4 * rng.uniform());
            }
        }
    }

    /// Temperatures after an iteration at its powers.
    fn warm(&mut self, length: f64) {
        let powers: Vec<f64> = self.states.iter().map(|it| it.power).collect();
        let factor = self.heat.resistance(self.fan);
        let kept = (
            (-length / self.heat.sink_time).exp(),
            (-length / DIE_TIME).exp(),
        );
        let fast = self.heat.fast;
        for gpu in 0..self.gpus.len() {
            let rise = self.heat.temperature(&self.gpus, &powers, gpu, factor);
            let base = self.heat.inlet + self.inlet_drift;
            let rise = rise - self.heat.inlet;
            let state = &mut self.states[gpu];
            let sink = base + rise * (1.0 - fast);
            state.sink = sink + (state.sink - sink) * kept.0;
            let die = state.sink + rise * fast;
            state.die = die + (state.die - die) * kept.1;
        }
        let hottest = self.states.iter().map(|it| it.die).fold(0.0, f64::max);
        let wanted = self.heat.fan(hottest, self.spec.slowdown);
        self.fan = wanted + (self.fan - wanted) * (-length / FAN_TIME).exp();
    }

    /// Books what the iteration on the timeline took.
    fn account(&mut self) {
        let length = self.timeline.length;
        let begin = self.elapsed;
        self.iteration.power.clear();
        for (gpu, state) in self.states.iter_mut().enumerate() {
            let it = &self.gpus[gpu];
            state.used = self.timeline.uses[gpu];
            let compute: f64 = (0..CLASSES)
                .map(|class| state.used.busy[class] * state.at.dynamic[class])
                .sum();
            let idle = it.idle(state.die, state.at.voltage);
            let mean = it.mean_dynamic(&state.at, &state.used, length);
            state.power = idle + mean;
            // Links and waiting are spread evenly over the iteration's course.
            let even = idle + mean - compute / length;
            let before = state.energy;
            for &(time, energy) in &self.timeline.course[gpu] {
                let so_far = before + energy + even * time * 1e-3;
                state.course.push_back((begin + time, so_far));
            }
            state.energy = before + state.power * length * 1e-3;
            let keep = begin - 2_500.0;
            while state.course.len() > 2 && state.course[1].0 < keep {
                state.course.pop_front();
            }
            self.iteration.power.push(Watts(state.power));
        }
        self.elapsed += length;
        self.iteration.wall = Millis(length);
        self.iteration.begin = Millis(begin);
        let watts: Watts = self.iteration.power.iter().copied().sum();
        self.iteration.energy = Joules(watts.0 * length * 1e-3);
    }

    /// The energy that a GPU had drawn at a moment, J: linear between the course's points.
    fn energy_at(state: &State, moment: f64) -> f64 {
        let after = state.course.partition_point(|it| it.0 < moment);
        match (
            after.checked_sub(1).and_then(|it| state.course.get(it)),
            state.course.get(after),
        ) {
            (Some(a), Some(b)) if b.0 > a.0 => a.1 + (b.1 - a.1) * (moment - a.0) / (b.0 - a.0),
            (Some(a), _) => a.1,
            (None, Some(b)) => b.1 + (moment - b.0) * 1e-3 * state.power,
            (None, None) => 0.0,
        }
    }

    /// Power as the tool shows it now.
    fn reported(&self, gpu: usize) -> f64 {
        let state = &self.states[gpu];
        let Sensor::Window {
            window,
            period,
            late,
        } = self.sensing.sensor;
        let window = if self.sensing.averaged {
            1_000.0
        } else {
            window
        };
        let published = (self.elapsed / period).floor() * period - late;
        let joules = Self::energy_at(state, published) - Self::energy_at(state, published - window);
        joules / window * 1e3 * self.gpus[gpu].gain
    }

    /// What limits a GPU now.
    fn limiter(&self, gpu: usize) -> Limiter {
        let (it, state) = (&self.gpus[gpu], &self.states[gpu]);
        if state.die > it.slowdown - 5.0 {
            Limiter::Thermal
        } else if state.common < 0.9995 {
            Limiter::Power
        } else if it.highest[0] < 0.99 {
            Limiter::Current
        } else {
            Limiter::None
        }
    }

    fn clock_of(&self, gpu: usize, share: f64) -> f64 {
        let state = &self.states[gpu];
        let mut rest = share * state.used.computing();
        for class in 0..CLASSES {
            rest -= state.used.busy[class];
            if rest <= 0.0 {
                return state.at.clock[class];
            }
        }
        state.at.clock[0]
    }
}

impl Plant for Node {
    fn gpu_count(&self) -> usize {
        self.gpus.len()
    }

    fn range(&self) -> Range {
        self.spec.range
    }

    fn start(&self) -> Vec<Watts> {
        vec![Watts(self.start); self.gpus.len()]
    }

    fn workload(&self) -> &Workload {
        &self.workload
    }

    fn cpus(&self) -> Cpus {
        Cpus {
            limit: Watts(self.host.limit),
            draw: Watts(self.host.draw.min(self.host.limit)),
            margin: Watts(self.host.margin),
        }
    }

    fn set_cpu_limit(&mut self, limit: Watts) {
        self.host.limit = limit.0.max(0.1 * self.host.draw);
    }

    fn iterate(&mut self, caps: &[Watts]) -> &Iteration {
        for gpu in 0..self.gpus.len() {
            let held = Watts(self.states[gpu].cap);
            self.states[gpu].cap = self.accepted(caps.get(gpu).copied().unwrap_or(held));
        }
        let common = self.limit();
        let mut paces: Vec<Pace> = Vec::with_capacity(common.len());
        for (gpu, &common) in common.iter().enumerate() {
            let state = &mut self.states[gpu];
            state.at = self.gpus[gpu].operate(common, state.die);
            paces.push(self.gpus[gpu].pace(&state.at));
        }
        self.disturb(&mut paces);
        let transfer = self.transfer_factor(self.states.iter().map(|it| it.at));
        let mut noise = KernelNoise {
            rngs: &mut self.kernel_rngs,
            deviation: self.noise.kernel,
            tail: self.noise.tail,
        };
        self.timeline
            .run(&self.workload, &paces, transfer, Some(&mut noise));
        self.account();
        self.warm(self.timeline.length);
        self.iteration.number += 1;
        &self.iteration
    }

    fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    fn readings(&self) -> Vec<Reading> {
        let moment = (self.elapsed * 0.618_034).fract();
        (0..self.gpus.len())
            .map(|gpu| {
                let state = &self.states[gpu];
                let place = (moment + 0.37 * gpu as f64).fract();
                Reading {
                    cap: Watts(state.cap),
                    power: Watts((self.reported(gpu) * 1e3).round() / 1e3),
                    energy: Joules(state.energy * self.gpus[gpu].gain),
                    temperature: Celsius(state.die.round()),
                    slowdown: Celsius(self.gpus[gpu].slowdown),
                    clock: Hertz((self.clock_of(gpu, place) * self.spec.clock).round() * 1e6),
                    limiter: self.limiter(gpu),
                }
            })
            .collect()
    }

    fn node_power(&self) -> Watts {
        let gpus: f64 = self.states.iter().map(|it| it.power).sum();
        Watts(gpus + self.overhead())
    }

    fn steady(&self, caps: &[Watts]) -> Steady {
        steady::under(self, caps).published(self)
    }

    fn settle(&mut self, caps: &[Watts]) {
        let settled = steady::under(self, caps);
        for (gpu, state) in self.states.iter_mut().enumerate() {
            state.common = settled.common[gpu];
            state.mean = settled.regulated[gpu];
            state.used = settled.uses[gpu];
            state.at = settled.at[gpu];
            state.power = settled.power[gpu];
            state.die = settled.temperature[gpu] + self.inlet_drift;
            let rise = settled.temperature[gpu] - self.heat.inlet;
            state.sink = state.die - rise * self.heat.fast;
            state.cap = self.spec.range.highest.0;
        }
        for (gpu, &cap) in caps.iter().enumerate().take(self.gpus.len()) {
            self.states[gpu].cap = self.accepted(cap);
        }
        let hottest = self.states.iter().map(|it| it.die).fold(0.0, f64::max);
        self.fan = self.heat.fan(hottest, self.spec.slowdown);
        self.iteration.wall = Millis(settled.length);
    }

    fn optimum(&self, policy: Policy, start: &[Watts]) -> Optimum {
        optimum::find(self, policy, start)
    }
}
