//! Jobs whose configurations all become slower and faster together: longer sequences, a slow data loader, throttling.

use super::*;

/// What slows a job down, by when.
#[derive(Debug, Clone, Copy)]
pub enum Phases {
    Steady,
    /// Slow for a part of each period: a data loader that stops for its caches, throttling by the hour.
    Periodic {
        period: f64,
        offset: f64,
        part: f64,
        low: f64,
    },
    /// Slow once so much of the tokens is trained: longer sequences.
    Longer {
        from: f64,
        low: f64,
    },
    /// Slow in hours that nobody knows: other jobs.
    Random {
        seed: u64,
        often: f64,
        low: f64,
    },
    /// Slow until somebody mends it.
    Mended {
        at: f64,
        low: f64,
    },
}

impl Phases {
    /// The share of its rate at which a job trains.
    pub fn share(self, now: f64, trained: f64) -> f64 {
        let (is_slow, low) = match self {
            Self::Steady => (false, 1.0),
            Self::Periodic {
                period,
                offset,
                part,
                low,
            } => (((now + offset) / period).fract() < part, low),
            Self::Longer { from, low } => (trained >= from, low),
            Self::Random { seed, often, low } => {
                let hour = (now / HOUR.0) as u64 + 1;
                let mut draws = Draws(hour.wrapping_mul(seed | 1));
                draws.share();
                draws.share();
                (draws.share() < often, low)
            }
            Self::Mended { at, low } => (now < at, low),
        };
        if is_slow { low } else { 1.0 }
    }

    fn low(self) -> f64 {
        match self {
            Self::Steady => 1.0,
            Self::Periodic { low, .. }
            | Self::Longer { low, .. }
            | Self::Random { low, .. }
            | Self::Mended { low, .. } => low,
        }
    }

    fn drawn(draws: &mut Draws, seed: u64) -> Self {
        let low = draws.within(0.5, 0.9);
        match seed % 5 {
            0 | 1 => {
                let period = HOUR.0 * draws.within(0.5, 6.0).round().max(0.5);
                Self::Periodic {
                    period,
                    offset: if seed.is_multiple_of(2) {
                        0.0
                    } else {
                        draws.within(0.0, period)
                    },
                    part: draws.within(0.3, 0.7),
                    low,
                }
            }
            2 => Self::Longer {
                from: draws.within(0.1, 0.8),
                low,
            },
            3 => Self::Random {
                seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
                often: draws.within(0.1, 0.6),
                low,
            },
            _ => Self::Mended {
                at: HOUR.0 * draws.within(1.0, 5.0),
                low,
            },
        }
    }
}

/// How long the configuration that is the fastest in truth needs throughout.
fn throughout(truth: &Truth, told: &Told) -> f64 {
    let (best, _) = fastest(truth, told.tokens);
    let mut own = Process {
        configuration: best,
        trains_from: truth.starting + truth.loading[best],
        tokens: 0.0,
        checkpoint: f64::INFINITY,
        asked: None,
        is_told_to_end: false,
    };
    let (mut now, mut saved) = (0.0, 0.0);
    while !train(truth, &mut own, now, &mut saved, told.tokens.0) {
        now += TICK;
    }
    now
}

/// A job that has phases and is said to: how long it needs in the configuration that is the fastest in truth, and what is
/// besides by the documentation until its deadline, but for a share of that time.
struct Phased {
    truth: Truth,
    told: Told,
    needs: f64,
    room: f64,
}

/// Its configurations are off the profile alike, or each on its own.
fn phased(seed: u64, alike: bool) -> Phased {
    let (mut truth, mut told) = otherwise(seed * 3 + u64::from(!alike));
    let mut draws = Draws(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    draws.share();
    let configurations = draws.within(2.0, 7.0) as usize;
    while told.points.len() > configurations {
        let at = draws.within(0.0, told.points.len() as f64) as usize;
        told.points.remove(at);
        truth.points.remove(at);
    }
    let hours = [8.0, 20.0, 47.0][draws.within(0.0, 3.0) as usize];
    told.tokens = Tokens(58_000.0 * 3600.0 * hours);
    truth.phases = Phases::drawn(&mut draws, seed);
    told.slowest = truth.phases.low().min(STEADY);
    let switch = truth.writing + truth.starting + truth.warming / 3.0;
    let measuring = switch + 1800.0 + 2.0 * truth.every;
    let others = told.points.len() - 1;
    Phased {
        needs: throughout(&truth, &told),
        room: 0.03 * throughout(&truth, &told) + others as f64 * measuring + switch,
        truth,
        told,
    }
}

/// Plays jobs that have that room, and a share of what they need: which are late, and by how many seconds.
fn late(jobs: u64, room: impl Fn(u64) -> Phased) -> Vec<(u64, f64)> {
    let (mut late, mut switched) = (Vec::new(), 0);
    for seed in 1..=jobs {
        let Phased {
            truth,
            mut told,
            needs,
            room,
        } = room(seed);
        let slack = [0.0, 0.1, 0.25][seed as usize / 5 % 3];
        told.deadline = Seconds(needs * (1.0 + slack) + room);
        let played = play(&truth, &told, forecasts(seed as usize, seed * 7919));
        switched += u64::from(played.switches > 0);
        if played.ended > told.deadline.0 {
            late.push((seed, played.ended - told.deadline.0));
        }
    }
    assert!(switched >= jobs / 2, "{switched} of {jobs} switch");
    late
}

/// `LITD_PHASES` says how many jobs are tried.
fn many(usually: u64) -> u64 {
    let many = std::env::var("LITD_PHASES").ok();
    many.map_or(usually, |it| it.parse().unwrap())
}

/// A job that is said to have phases meets each deadline with the documented room, whatever they are, and whether or not
/// its configurations are in the proportions of the profile.
///
/// A phase that begins with a switch can't be told from a slow configuration, so one may be held for the fastest that is as
/// much slower as a phase is: there is room for that.
#[test]
fn the_deadline_is_met_over_phases() {
    let late = late(many(30), |seed| {
        let job = phased(seed, seed.is_multiple_of(2));
        let slower = job.needs * 1.03 * (1.0 / job.told.slowest - 1.0);
        Phased {
            room: job.room + slower,
            ..job
        }
    });
    assert!(late.is_empty(), "seeds and seconds: {late:?}");
}

/// Where the proportions are right, that room is nearly never needed.
#[test]
fn few_jobs_are_late_over_phases_in_the_right_proportions() {
    let jobs = many(30);
    let late = late(jobs, |seed| phased(seed, true));
    println!("{} of {jobs} late: {late:.0?}", late.len());
    assert!(
        late.len() as u64 <= jobs / 200,
        "seeds and seconds: {late:?}"
    );
}

/// Who is not told of phases learns of them, and may have spent by then what they take: few are late.
#[test]
fn phases_that_nobody_told_of_are_learned() {
    let jobs = many(20);
    let late = late(jobs, |seed| {
        let mut job = phased(seed, true);
        job.told.slowest = STEADY;
        job
    });
    println!("{} of {jobs} late: {late:.0?}", late.len());
    assert!(
        late.len() as u64 <= jobs / 20,
        "seeds and seconds: {late:?}"
    );
}
