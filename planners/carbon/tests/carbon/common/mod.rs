//! Instances that tests make up: everything here is synthetic.
#![allow(dead_code, reason = "the benchmark uses a part")]

use litd_carbon::{Configuration, Job, Point, Problem, Start};
use litd_units::{Intensity, Seconds, Tokens, TokensPerSecond, Watts};

/// Numbers that look random and are the same each time.
pub struct Draws(u64);

impl Draws {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.share() * limit as f64) as usize
    }

    /// From 0 up to, but not, 1.
    pub fn share(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn within(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.share()
    }
}

/// How many cases are tried: few, or in the long gate, which sets `PROPTEST_CASES`, so many of them as it says.
pub fn cases(few: u64, most: u64) -> u64 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    let asked = asked.and_then(|it| it.parse().ok());
    asked.map_or(few, |it: u64| it.clamp(few, most))
}

/// So many configurations of made-up power and throughput.
pub fn points(draws: &mut Draws, count: usize) -> Vec<Point> {
    let whole = draws.below(2) == 0;
    (0..count)
        .map(|at| {
            let (mut power, mut rate) = (draws.within(500.0, 3000.0), draws.within(100.0, 1000.0));
            if whole {
                (power, rate) = (
                    (power / 500.0).round() * 500.0,
                    (rate / 100.0).round() * 100.0,
                );
            }
            Point {
                configuration: Configuration {
                    tp: 1,
                    pp: at as u32 + 1,
                    dp: 1,
                },
                power: Watts(power),
                rate: TokensPerSecond(rate),
            }
        })
        .collect()
}

/// Intensities by the hour, with a daily course and noise; with ties at times.
pub fn intensities(draws: &mut Draws, count: usize) -> Vec<Intensity> {
    let (amplitude, noise) = (draws.share(), draws.share());
    let whole = draws.below(3) == 0;
    (0..count)
        .map(|hour| {
            let day = (hour as f64 / 24.0 * std::f64::consts::TAU).sin();
            let value = 200.0 * (1.0 + amplitude * day) + 200.0 * noise * draws.share();
            Intensity(if whole {
                (value / 100.0).round() * 100.0
            } else {
                value
            })
        })
        .collect()
}

/// A small problem of any kind; half of them just feasible or just not.
pub fn small(seed: u64) -> Problem {
    let mut draws = Draws::new(seed);
    let count = 1 + draws.below(4);
    let points = points(&mut draws, count);
    let window = Seconds([1800.0, 3600.0, 3600.0, 7200.0][draws.below(4)]);
    let windows = 1 + draws.below(7);
    let deadline = window * (windows as f64 + [0.0, 0.3, draws.share()][draws.below(3)]);
    let fastest = points.iter().map(|it| it.rate.0).fold(0.0, f64::max);
    let share = [draws.within(0.2, 1.05), 1.0, 0.5][draws.below(3)];
    let tokens = Tokens(fastest * window.0 * windows as f64 * share);
    let switch = window * [0.0, 0.1, 0.5, draws.share(), 1.5][draws.below(5)];
    let start = match draws.below(3) {
        0 => Start::Within(0),
        1 => Start::Within(draws.below(windows + 2)),
        _ => Start::Running(draws.below(count)),
    };
    let job = Job::new(&points, window, tokens, deadline, switch, start).unwrap();
    let intensities = intensities(&mut draws, job.windows());
    Problem::new(job, &intensities).unwrap()
}

/// Configurations at the paper's scale, lean ones to fast ones, with some that nobody would choose.
pub fn lean_to_fast(draws: &mut Draws, count: usize) -> Vec<Point> {
    let mut points = points(draws, count);
    for (at, point) in points.iter_mut().enumerate() {
        let speed = (at + 1) as f64 / count as f64;
        point.rate = TokensPerSecond(30_000.0 + 28_000.0 * speed + draws.within(-2000.0, 2000.0));
        point.power = Watts(900.0 + 600.0 * speed * speed + draws.within(-60.0, 60.0));
    }
    points
}

/// A job of some days at the paper's scale with the 25 % rule, from now.
pub fn daily(seed: u64, configurations: usize, hours: usize, start: Start) -> Problem {
    let mut draws = Draws::new(seed);
    let points = lean_to_fast(&mut draws, configurations);
    let fastest = points.iter().map(|it| it.rate.0).fold(0.0, f64::max);
    let tokens = Tokens(fastest * 3600.0 * hours as f64 / 1.25);
    let (window, deadline) = (Seconds(3600.0), Seconds::from_hours(hours as f64));
    let switch = Seconds([0.0, 60.0, 300.0, 900.0][draws.below(4)]);
    let job = Job::new(&points, window, tokens, deadline, switch, start).unwrap();
    let intensities = intensities(&mut draws, job.windows());
    Problem::new(job, &intensities).unwrap()
}

/// A job that is hard to schedule: half-hours, a signal that hardly varies, twelve configurations that need
/// nearly the same energy for a token, switches that take as long as a window.
pub fn hard(seed: u64, hours: usize, start: Start) -> Problem {
    let mut draws = Draws::new(seed);
    let mut points = points(&mut draws, 12);
    for (at, point) in points.iter_mut().enumerate() {
        point.rate = TokensPerSecond(32_000.0 + 2000.0 * (at + 1) as f64);
        point.power = Watts((point.rate.0 * 0.025 + draws.within(0.0, 40.0)).round());
    }
    let tokens = Tokens(56_000.0 * 3600.0 * hours as f64 / 1.25);
    let (window, deadline) = (Seconds(1800.0), Seconds::from_hours(hours as f64));
    let switch = Seconds([1200.0, 1800.0][draws.below(2)]);
    let job = Job::new(&points, window, tokens, deadline, switch, start).unwrap();
    let signal = (0..job.windows()).map(|at| {
        let day = (at as f64 / 48.0 * std::f64::consts::TAU).sin();
        Intensity(315.0 * (1.0 + 0.08 * day + draws.within(-0.05, 0.05)))
    });
    let signal: Vec<_> = signal.collect();
    Problem::new(job, &signal).unwrap()
}

/// A job for which hardly anything matters but how windows add up: ten configurations that need the same energy for a
/// token to a few parts in a thousand, and a signal that varies as little.
pub fn level(seed: u64, hours: usize, start: Start) -> Problem {
    let mut draws = Draws::new(seed);
    let mut points = points(&mut draws, 10);
    for (at, point) in points.iter_mut().enumerate() {
        let speed = 1.0 + 0.06 * at as f64;
        point.power = Watts(1000.0 * speed);
        point.rate = TokensPerSecond(30.0 * speed.powf(1.0 - draws.within(0.0, 0.003)));
    }
    let tokens = Tokens(30.0 * 1.54 * 3600.0 * hours as f64 * draws.within(0.8, 0.9));
    let (window, deadline) = (Seconds(3600.0), Seconds::from_hours(hours as f64));
    let switch = Seconds([600.0, 1800.0][draws.below(2)]);
    let job = Job::new(&points, window, tokens, deadline, switch, start).unwrap();
    let signal = (0..job.windows()).map(|_| Intensity(draws.within(200.0, 201.0)));
    let signal: Vec<_> = signal.collect();
    Problem::new(job, &signal).unwrap()
}

/// The same job and signal in windows of a part of the length. What could be planned before still can be.
pub fn split(problem: &Problem, parts: usize) -> Problem {
    let job = problem.job();
    let window = job.window() / parts as f64;
    let start = match job.start() {
        Start::Within(latest) => Start::Within(latest.saturating_mul(parts)),
        running => running,
    };
    let job = Job::new(
        job.points(),
        window,
        job.tokens(),
        job.deadline(),
        job.switch(),
        start,
    )
    .unwrap();
    let parts = |it: &Intensity| std::iter::repeat_n(*it, parts);
    let signal: Vec<_> = problem.intensities().iter().flat_map(parts).collect();
    Problem::new(job, &signal).unwrap()
}
