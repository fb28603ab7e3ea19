//! The beginning of a history: a node, a configuration, jobs, and a schedule of faults.

use litd_api::Mode;
use litd_core::Config;
use litd_core::config::{OnExit, OnStale};
use litd_policies::{Law, Policy};
use litd_units::{Kelvins, Watts};

use crate::fault::Fault;
use crate::hardware::{Hw, MILLI, SECOND};
use crate::rng::Rng;

/// A history before it happens.
#[derive(Debug)]
pub struct Setup {
    pub devices: Vec<Hw>,
    pub config: Config,
    /// GPUs of each job.
    pub jobs: Vec<Vec<usize>>,
    pub faults: Vec<(i64, Fault)>,
    pub end: i64,
    /// Whether jobs end before the daemon is stopped.
    pub jobs_end: bool,
}

/// The constant for the matrix's stream of random numbers.
const MATRIX: u64 = 0x6d61_7472_6978;

/// The constant for the stream of caps left behind.
const EXIT: u64 = 0x6578_6974;

/// The constant for the stream of bounded rises.
const RAMP: u64 = 0x7261_6d70;

/// The constant for the trials' stream.
const TRIALS: u64 = 0x7472_6961_6c73;

pub fn policy(rng: &mut Rng) -> Policy {
    rng.pick(&[
        Policy::GpuRed,
        Policy::GpuRed,
        Policy::GpuRealloc,
        Policy::GpuRealloc,
        Policy::CpuSlosh,
        Policy::Observe,
    ])
}

/// A budget between all floors and all ceilings.
pub fn budget(rng: &mut Rng, devices: &[Hw], config: &Config) -> Watts {
    let gpus = || devices.iter().filter(|hw| hw.is_gpu());
    let floor = |hw: &Hw| hw.range.lowest.max(config.caps.gpu_floor).0;
    let floors: f64 = gpus().map(floor).sum();
    let tops: f64 = gpus().map(|hw| hw.range.default.0).sum();
    let share = 0.1 + 0.9 * rng.unit();
    Watts((floors + (tops - floors).max(0.0) * share).round())
}

/// The knobs of the law, such that a loop has something to do within a minute.
pub fn knobs(rng: &mut Rng, config: &mut Config) {
    let law = &mut config.law;
    law.law = rng.pick(&Law::ALL);
    law.calibration.sampling_period = rng.between(1, 3) as u32;
    law.calibration.warm_up = rng.between(1, 4) as u32;
    law.detection.window = rng.between(1, 3) as u32;
    law.mitigation.max_adjustment = Watts(rng.pick(&[15.0, 30.0, 60.0]));
    law.mitigation.initial_cap = Watts(rng.pick(&[450.0, 450.0, 600.0, 700.0]));
}

fn configuration(rng: &mut Rng, devices: &[Hw]) -> Config {
    let mut config = Config {
        mode: if rng.chance(0.9) {
            Mode::Steer
        } else {
            Mode::Observe
        },
        policy: policy(rng),
        ..Config::default()
    };
    config.caps.gpu_floor = Watts(rng.pick(&[150.0, 200.0, 250.0]));
    config.caps.gpu_ceiling = rng.chance(0.2).then_some(Watts(480.0));
    config.caps.follow_seconds = rng.pick(&[3.0, 5.0]);
    config.release.resume_after_seconds = rng.pick(&[0.0, 0.0, 6.0]);
    config.release.resume_on_return = rng.chance(0.8);
    config.settle.seconds = Some(rng.pick(&[0.0, 0.0, 1.0, 3.0]));
    config.settle.iterations = rng.pick(&[0, 1, 3]);
    config.jobs.stale_seconds = rng.pick(&[5.0, 20.0]);
    config.jobs.reconnect_seconds = rng.pick(&[2.0, 6.0]);
    config.jobs.on_stale = rng.pick(&[OnStale::Keep, OnStale::Restore]);
    config.sampling.converged_period = rng.pick(&[0, 3, 10]);
    config.sampling.recheck_temperature = Kelvins(4.0);
    config.limits.frames_per_second = 100.0;
    config.limits.names = 64;
    knobs(rng, &mut config);
    if rng.chance(0.2) {
        config.caps.safe_budget = Some(budget(rng, devices, &config));
    }
    if rng.chance(0.3) {
        let highest: Watts = devices.iter().map(|hw| hw.range.default).sum();
        config.node.budget = Some(highest * (0.7 + 0.5 * rng.unit()));
        config.node.reserve = rng.chance(0.7).then_some(Watts(rng.unit() * 500.0));
    }
    if rng.chance(0.4) {
        config.caps.budget = Some(budget(rng, devices, &config));
    }
    config
}

impl Setup {
    pub fn draw(rng: &mut Rng) -> Self {
        let gpus = rng.pick(&[1, 2, 2, 2, 3, 4, 4, 8]);
        let cpus = rng.pick(&[0, 0, 1, 2]);
        let unit = Watts(rng.pick(&[1.0, 1.0, 0.001]));
        let mut devices: Vec<Hw> = (0..gpus).map(|at| Hw::gpu(rng, at, unit)).collect();
        devices.extend((0..cpus).map(|at| Hw::cpu(rng, at)));
        let config = configuration(rng, &devices);
        let end = rng.between(20, 75) * SECOND;
        let mut setup = Self {
            config,
            jobs: Self::jobs(rng, gpus),
            faults: Self::faults(rng, end),
            end,
            jobs_end: rng.chance(0.5),
            devices,
        };
        setup.add_matrix(&mut Rng::new(rng.clone().next() ^ MATRIX));
        setup.add_trials(&mut Rng::new(rng.clone().next() ^ TRIALS));
        setup.add_hold(&mut Rng::new(rng.clone().next() ^ EXIT));
        setup.add_ramp(&mut Rng::new(rng.clone().next() ^ RAMP));
        setup
    }

    /// Trials and the hold-out, drawn from a stream of their own: what else happens is the same
    /// with them and without them.
    fn add_trials(&mut self, rng: &mut Rng) {
        let trial = &mut self.config.trial;
        trial.block_seconds = rng.pick(&[1.0, 2.0]);
        trial.block_iterations = 1;
        trial.hold_out = rng.pick(&[0.0, 0.3, 0.3]);
        if self.faults.is_empty() || !rng.chance(0.25) {
            return;
        }
        // Early, so that blocks are measured before the end.
        let mut at = rng.between(SECOND, 10 * SECOND);
        for _ in 0..rng.below(3) + 1 {
            self.faults.push((at, Fault::TrialBegun));
            at += rng.between(2 * SECOND, 40 * SECOND);
            if rng.chance(0.5) {
                self.faults.push((at, Fault::TrialStopped));
            }
        }
    }

    /// litd is to leave the safe budget behind, drawn from a stream of its own.
    fn add_hold(&mut self, rng: &mut Rng) {
        if !self.faults.is_empty() && rng.chance(0.25) {
            let drawn = budget(rng, &self.devices, &self.config);
            let caps = &mut self.config.caps;
            caps.safe_budget = caps.safe_budget.or(Some(drawn));
            caps.on_exit = OnExit::Hold;
        }
    }

    /// Caps may rise only so fast, drawn from a stream of its own.
    fn add_ramp(&mut self, rng: &mut Rng) {
        let slow = rng.chance(0.15).then(|| rng.pick(&[60.0, 200.0, 1000.0]));
        // Histories without faults show whether loops adjust in time: these rise as fast as they can.
        self.config.caps.max_rise_w_per_s = slow.filter(|_| !self.faults.is_empty());
    }

    /// Faults of the matrix, from a stream of their own.
    fn add_matrix(&mut self, rng: &mut Rng) {
        if self.faults.is_empty() {
            return;
        }
        if self.jobs.is_empty() || rng.chance(0.1) {
            // Before any job is there.
            let at = rng.between(50 * MILLI, 3 * SECOND);
            self.faults.push((at, Fault::ReloadAny));
            self.faults
                .push((at + rng.between(0, 20 * SECOND), Fault::ReloadAny));
        }
        for _ in 0..rng.below(4) {
            let at = rng.between(500 * MILLI, self.end);
            self.faults.push((at, Fault::Aimed));
        }
        for _ in 0..rng.below(4) {
            let at = rng.between(500 * MILLI, self.end);
            let fault = rng.pick(&[
                Fault::HandInside,
                Fault::HandInside,
                Fault::HandInside,
                Fault::ReloadAny,
                Fault::ReloadAny,
                Fault::ReloadAny,
                Fault::OddRange,
                Fault::Shrunk,
                Fault::Replaced,
                Fault::AnothersTold,
            ]);
            self.faults.push((at, fault));
        }
    }

    fn jobs(rng: &mut Rng, gpus: usize) -> Vec<Vec<usize>> {
        let all: Vec<usize> = (0..gpus).collect();
        match rng.below(12) {
            0 => Vec::new(),
            1..=3 if gpus >= 2 => {
                let (one, other) = all.split_at(gpus / 2);
                vec![one.to_vec(), other.to_vec()]
            }
            4 if gpus >= 3 => vec![all[1..].to_vec()],
            _ => vec![all],
        }
    }

    fn faults(rng: &mut Rng, end: i64) -> Vec<(i64, Fault)> {
        let count = match rng.below(10) {
            0 => 0,
            1 => 8,
            count => count / 2 + 1,
        };
        let usual = Fault::usual();
        let mut faults = Vec::new();
        for _ in 0..count {
            let at = rng.between(500 * MILLI, end);
            let fault = match rng.below(12) {
                // Faults that need a write at that moment, and are rare otherwise.
                0 => rng.pick(&[
                    Fault::RefusedWrite,
                    Fault::LandAfterAll,
                    Fault::LoweredStuck,
                    Fault::Lie,
                    Fault::Overshoot,
                ]),
                1 => rng.pick(&[
                    Fault::DiskFull,
                    Fault::DiskStuck,
                    Fault::AuditFull,
                    Fault::TornAppend,
                    Fault::ReadOnly,
                    Fault::ReadOnly,
                ]),
                _ => rng.pick(&usual),
            };
            faults.push((at, fault));
            // Trouble seldom comes alone.
            if rng.chance(0.3) {
                let soon = at + rng.between(0, 2 * SECOND);
                faults.push((soon, rng.pick(&usual)));
            }
        }
        faults
    }
}
