//! The runner's decisions over SIMULATED time: jobs whose switches take longer than was said, that do not write
//! checkpoints when they are asked to, and that crash, with forecasts that are wrong. Whatever best static is in time
//! with, the run is.

mod phases;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use litd_carbon::policy::best_static;
use litd_carbon::{Configuration, Job, Known, Point, Problem, Start, slack_deadline};
use litd_units::{Intensity, Seconds, Tokens, TokensPerSecond, Watts};

use super::super::standing::Reason;
use super::cost::Costs;
use super::learned::{self, Learned};
use super::machine::{Action, Child, Machine, Patience, Seen};
use super::rates::{Rates, STEADY};
use phases::Phases;

/// What a first load may take more than was said, if nothing else is.
const LOADING: Seconds = Seconds(1800.0);
const HOUR: Seconds = Seconds(3600.0);
/// The runner looks this often here.
const TICK: f64 = 10.0;
/// For a checkpoint.
const GRACE: f64 = 600.0;

/// A job as it is, whatever was said of it.
struct Truth {
    points: Vec<Point>,
    /// From a request until the checkpoint is there, and from a start until it trains.
    writing: f64,
    starting: f64,
    /// How much longer each configuration takes than that.
    loading: Vec<f64>,
    /// Between two checkpoints that it writes by itself.
    every: f64,
    /// Whether it hears requests.
    listens: bool,
    /// The job crashes at these seconds.
    crashes: Vec<f64>,
    /// The variation of its rate, and for how many seconds after a start it is two thirds of that.
    noise: f64,
    warming: f64,
    /// What slows all configurations down alike.
    phases: Phases,
}

/// The stated values.
struct Told {
    points: Vec<Point>,
    tokens: Tokens,
    deadline: Seconds,
    switch: Option<Seconds>,
    window: Seconds,
    slowest: f64,
    loading: Seconds,
}

/// A process of the job.
struct Process {
    configuration: usize,
    trains_from: f64,
    tokens: f64,
    checkpoint: f64,
    asked: Option<f64>,
    is_told_to_end: bool,
}

/// Numbers that look random and are the same each time.
struct Draws(u64);

impl Draws {
    fn share(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn within(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.share()
    }
}

fn begun() -> Timestamp {
    litd_carbon::moment("2030-01-01T00:00:00Z").unwrap()
}

/// How a run went.
struct Played {
    /// After how many seconds it had its tokens.
    ended: f64,
    switches: usize,
    /// Power, time and intensity multiplied, while a process was there.
    carbon: f64,
    /// Whether it was ever said that the deadline can't be met.
    is_called_late: bool,
}

/// Plays a run of which nothing was measured before.
fn play(truth: &Truth, told: &Told, forecast: impl Fn(f64) -> f64) -> Played {
    play_knowing(truth, told, forecast, Rates::default())
}

fn play_knowing(truth: &Truth, told: &Told, forecast: impl Fn(f64) -> f64, rates: Rates) -> Played {
    let mut machine = Machine::new(Patience {
        checkpoint: Duration::from_secs_f64(GRACE),
        window: told.window.hours(),
        failures: 1000,
        hangs: None,
    });
    let said = learned::Told {
        points: told.points.clone(),
        tokens: told.tokens,
        window: told.window,
        switch: told.switch,
        grace: Seconds(GRACE),
        tick: Seconds(TICK),
        slowest: told.slowest,
        loading: told.loading,
    };
    let mut learned = Learned::new(said, Costs::default(), rates);
    let mut process: Option<Process> = None;
    let (mut saved, mut now, mut running, mut switches) = (0.0, 0.0, None, 0);
    let mut crashes = truth.crashes.iter().copied().peekable();
    let (mut carbon, mut is_called_late) = (0.0, false);
    loop {
        if let Some(own) = &mut process {
            let is_over = train(truth, own, now, &mut saved, told.tokens.0);
            let crashed = crashes.next_if(|at| *at <= now).is_some();
            if is_over || crashed {
                process = None;
            }
        }
        learned.sees(Seconds(now), Tokens(saved));
        let seen = Seen {
            hours: now / 3600.0,
            real: Duration::from_secs_f64(now),
            child: match process {
                Some(_) => Child::Alive,
                None => Child::Ended(true),
            },
            is_complete: saved >= told.tokens.0,
            tokens: saved,
            is_surprised: learned.is_surprised(),
        };
        let decide = || {
            let running = running.filter(|_| process.is_some());
            let deadline = begun() + SignedDuration::from_secs_f64(told.deadline.0);
            let standing = learned.standing(Seconds(now), Tokens(saved), running, deadline);
            let moment = begun() + SignedDuration::from_secs_f64(now);
            let job = standing.job(moment).unwrap();
            let known = (0..job.windows()).map(|at| Known {
                issued: moment,
                window: moment + SignedDuration::from_secs_f64(told.window.0 * at as f64),
                intensity: Intensity(forecast(now + told.window.0 * at as f64)),
            });
            let known: Vec<_> = known.collect();
            let (number, why) = standing.choose(&job, moment, &known).unwrap();
            is_called_late |= why == Reason::TooLate;
            learned.decided(number);
            Ok::<_, ()>(number)
        };
        match machine.step(&seen, decide).unwrap() {
            Some(Action::Start(configuration)) => {
                learned.started(Seconds(now), Tokens(saved), configuration);
                switches += usize::from(running.is_some_and(|it| it != configuration));
                running = Some(configuration);
                process = Some(Process {
                    configuration,
                    trains_from: now + truth.starting + truth.loading[configuration],
                    tokens: saved,
                    checkpoint: now + truth.starting + truth.loading[configuration] + truth.every,
                    asked: None,
                    is_told_to_end: false,
                });
            }
            Some(Action::AskCheckpoint) => {
                process.as_mut().unwrap().asked = Some(now);
                learned.asked();
            }
            Some(Action::Terminate | Action::Kill) => {
                process.as_mut().unwrap().is_told_to_end = true
            }
            Some(Action::Finish) => {
                return Played {
                    ended: now,
                    switches,
                    carbon,
                    is_called_late,
                };
            }
            Some(Action::GiveUp) => panic!("given up"),
            None => (),
        }
        if let Some(own) = &process {
            carbon += truth.points[own.configuration].power.0 * TICK * forecast(now);
        }
        now += TICK;
        assert!(now < 10.0 * told.deadline.0, "it never ends");
    }
}

/// A tick of the job; returns whether it has ended.
fn train(truth: &Truth, own: &mut Process, now: f64, saved: &mut f64, total: f64) -> bool {
    if own.is_told_to_end {
        return true;
    }
    if now > own.trains_from {
        let mut draws = Draws((now as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        draws.share();
        let varied = draws.within(1.0 - truth.noise, 1.0 + truth.noise);
        let is_warm = now > own.trains_from + truth.warming;
        let warmth = if is_warm { 1.0 } else { 2.0 / 3.0 };
        let share = varied * warmth * truth.phases.share(now, own.tokens / total);
        own.tokens += truth.points[own.configuration].rate.0 * share * TICK;
    }
    let heard = own.asked.filter(|_| truth.listens);
    let is_written = heard.is_some_and(|at| now >= at + truth.writing);
    if is_written || now >= own.checkpoint || own.tokens >= total {
        *saved = own.tokens.min(total);
        own.checkpoint = now + truth.every;
    }
    is_written || *saved >= total
}

fn truth(draws: &mut Draws) -> Truth {
    let points = (0..6_u32).map(|at| {
        let speed = f64::from(at + 1) / 6.0;
        Point {
            configuration: Configuration {
                tp: 1,
                pp: at + 1,
                dp: 1,
            },
            power: Watts(900.0 + 600.0 * speed * speed + draws.within(-60.0, 60.0)),
            rate: TokensPerSecond(30_000.0 + 28_000.0 * speed + draws.within(-2000.0, 2000.0)),
        }
    });
    Truth {
        points: points.collect(),
        writing: draws.within(10.0, 200.0),
        starting: draws.within(10.0, 200.0),
        loading: vec![0.0; 6],
        every: draws.within(300.0, 1800.0),
        listens: true,
        crashes: Vec::new(),
        noise: 0.0,
        warming: 0.0,
        phases: Phases::Steady,
    }
}

/// Forecasts that are wrong in every way: inverted, flat, of another day, garbage.
fn forecasts(kind: usize, noise: u64) -> impl Fn(f64) -> f64 {
    move |at: f64| {
        let day = (at / 86_400.0 * std::f64::consts::TAU).sin();
        let number = (at / 3600.0) as u64;
        match kind % 4 {
            0 => 300.0 * (1.0 + 0.9 * day),
            1 => 300.0 * (1.0 - 0.9 * day),
            2 => 300.0,
            _ => Draws((number + 1).wrapping_mul(noise | 1)).within(0.0, 1000.0),
        }
    }
}

/// How long best static needs in truth, as it starts once: `None` where it is late by the paper's count.
fn reference(truth: &Truth, told: &Told) -> Option<f64> {
    let start = Start::Within(0);
    let job = Job::new(
        &truth.points,
        told.window,
        told.tokens,
        told.deadline,
        Seconds::ZERO,
        start,
    );
    let job = job.unwrap();
    let level = vec![Intensity(300.0); job.windows()];
    let best = best_static(&Problem::new(job, &level).unwrap()).ok()?;
    let rate = truth.points[best.plan.choices[0]].rate;
    Some(truth.starting + (told.tokens / rate).0)
}

#[test]
fn the_deadline_is_met_whatever_switches_take_and_forecasts_say() {
    let (mut switched, mut played) = (0, 0);
    for seed in 1..=96_u64 {
        let mut draws = Draws(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut truth = truth(&mut draws);
        let hours = [5.0, 11.0, 23.0][seed as usize % 3];
        let tokens = Tokens(58_000.0 * 3600.0 * hours * draws.within(0.9, 1.1));
        let told = Told {
            points: truth.points.clone(),
            tokens,
            deadline: slack_deadline(&truth.points, tokens, [0.25, 0.1][seed as usize / 3 % 2]),
            // Unknown, right, or half of what it is.
            switch: [
                None,
                Some(Seconds(truth.writing + truth.starting)),
                Some(Seconds((truth.writing + truth.starting) / 2.0)),
            ][seed as usize / 6 % 3],
            window: [HOUR, Seconds(1800.0)][seed as usize / 18 % 2],
            slowest: STEADY,
            loading: LOADING,
        };
        // A job that hears no request loses the training after its last checkpoint: at most as much
        // as a request may take.
        truth.listens = seed % 5 != 0;
        if !truth.listens {
            truth.every = truth.every.min(GRACE);
        }
        let Some(static_needs) = reference(&truth, &told) else {
            continue;
        };
        if static_needs > told.deadline.0 {
            continue;
        }
        let Played {
            ended, switches, ..
        } = play(&truth, &told, forecasts(seed as usize, seed * 7919));
        played += 1;
        switched += usize::from(switches > 0);
        assert!(
            ended <= told.deadline.0,
            "seed {seed}: {ended:.0} s of {:.0} s, best static {static_needs:.0} s, {switches} switches, a switch takes \
             {:.0} and {:.0} s, told {:?}, listens {}, every {:.0} s",
            told.deadline.0,
            truth.writing,
            truth.starting,
            told.switch,
            truth.listens,
            truth.every
        );
    }
    assert!(
        played >= 80 && switched >= played / 4,
        "{switched} of {played} switch"
    );
}

/// A configuration that takes longer to load than was said, up to half an hour, costs no deadline that has room for one
/// such load; what it took is remembered.
#[test]
fn the_deadline_is_met_where_configurations_load_longer_than_was_said() {
    loads(LOADING);
}

/// Or up to what is said (`--longest-load`).
#[test]
fn the_deadline_is_met_where_configurations_load_for_hours() {
    loads(Seconds(4.0 * 3600.0));
}

fn loads(longest: Seconds) {
    let mut late = Vec::new();
    let mut switched = 0;
    for seed in 1..=60_u64 {
        let mut draws = Draws(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let mut truth = truth(&mut draws);
        let tokens = Tokens(58_000.0 * 3600.0 * [5.0, 11.0, 23.0][seed as usize % 3]);
        let (best, needs) = fastest(&truth, tokens);
        for load in &mut truth.loading {
            *load = draws.within(0.0, longest.0 - 100.0);
        }
        let needs = needs + truth.loading[best];
        // Three per cent, as for rates, one load and four minutes.
        let room = 0.03 * needs + longest.0 + 240.0 + [0.0, 1800.0, 5400.0][seed as usize / 3 % 3];
        let told = Told {
            points: truth.points.clone(),
            tokens,
            deadline: Seconds(needs + truth.writing + room),
            switch: Some(Seconds(truth.writing + truth.starting)),
            window: HOUR,
            slowest: STEADY,
            loading: longest,
        };
        let Played {
            ended, switches, ..
        } = play(&truth, &told, forecasts(seed as usize, seed * 7919));
        switched += usize::from(switches > 0);
        if ended > told.deadline.0 {
            late.push((seed, ended - told.deadline.0, switches));
        }
    }
    assert!(late.is_empty(), "seeds, seconds and switches: {late:?}");
    assert!(switched >= 10, "{switched} switch");
}

/// A crash costs what was after the last checkpoint and a start; a deadline with room for that is met.
#[test]
fn the_deadline_is_met_over_crashes() {
    for seed in 1..=24_u64 {
        let mut draws = Draws(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let mut truth = truth(&mut draws);
        truth.crashes = (0..3).map(|_| draws.within(0.0, 30_000.0)).collect();
        truth.crashes.sort_by(f64::total_cmp);
        let tokens = Tokens(58_000.0 * 3600.0 * 10.0);
        let lost = 3.0 * (truth.every + truth.starting + 2.0 * TICK + 64.0);
        let deadline = Seconds(slack_deadline(&truth.points, tokens, 0.1).0 + lost);
        let told = Told {
            points: truth.points.clone(),
            tokens,
            deadline,
            switch: Some(Seconds(truth.writing + truth.starting)),
            window: HOUR,
            slowest: STEADY,
            loading: LOADING,
        };
        let Played {
            ended, switches, ..
        } = play(&truth, &told, forecasts(seed as usize, seed * 104_729));
        assert!(
            ended <= deadline.0,
            "seed {seed}: {ended:.0} s of {:.0} s, {switches} switches",
            deadline.0
        );
    }
}

/// A job that writes checkpoints only where it is asked to tells nothing for hours, and nothing is wrong with it.
#[test]
fn a_job_without_checkpoints_of_its_own_is_not_called_late() {
    for seed in 1..=24_u64 {
        let mut draws = Draws(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let mut truth = truth(&mut draws);
        truth.every = f64::INFINITY;
        let tokens = Tokens(58_000.0 * 3600.0 * [5.0, 11.0, 23.0][seed as usize % 3]);
        let told = Told {
            points: truth.points.clone(),
            tokens,
            deadline: slack_deadline(&truth.points, tokens, [0.1, 0.25][seed as usize / 3 % 2]),
            switch: Some(Seconds(truth.writing + truth.starting)),
            window: HOUR,
            slowest: STEADY,
            loading: LOADING,
        };
        let played = play(&truth, &told, forecasts(seed as usize, seed * 7919));
        assert!(
            !played.is_called_late && played.ended <= told.deadline.0,
            "seed {seed}: {:.0} s of {:.0} s, called late: {}",
            played.ended,
            told.deadline.0,
            played.is_called_late
        );
    }
}

/// How long the fastest configuration needs in truth, which is one of them throughout: its number too.
fn fastest(truth: &Truth, tokens: Tokens) -> (usize, f64) {
    let needs = |it: &Point| truth.starting + truth.warming / 3.0 + (tokens / it.rate).0;
    let all = truth.points.iter().map(needs).enumerate();
    all.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap()
}

/// The slack that a run needs beyond the time of the truly fastest configuration: 3 % of that time,
/// because a rate measured over ten minutes is no closer, and for each configuration that the
/// profile takes for faster the time until that is known to be wrong: a switch, the first twenty
/// minutes at most, which tell nothing, and ten minutes or two checkpoints.
fn margin(truth: &Truth, told: &Told, best: usize) -> f64 {
    let rate = told.points[best].rate.0;
    let faster = told.points.iter().filter(|it| it.rate.0 > rate).count();
    let switch = truth.writing + truth.starting + truth.warming / 3.0;
    let measuring = 1200.0 + 600.0 + 2.0 * truth.every;
    0.03 * fastest(truth, told.tokens).1 + faster as f64 * (switch + measuring)
}

/// A job whose configurations train at 0.7 to 1.2 of what their profile says, alike or each on its own, in steps that
/// vary by a tenth, and slower in the first minutes.
fn otherwise(seed: u64) -> (Truth, Told) {
    let mut draws = Draws(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut truth = truth(&mut draws);
    let points = truth.points.clone();
    let common = draws.within(0.7, 1.2);
    for point in &mut truth.points {
        let own = draws.within(0.7, 1.2);
        point.rate = point.rate * if seed.is_multiple_of(3) { common } else { own };
    }
    truth.noise = 0.1;
    truth.warming = draws.within(0.0, 600.0);
    truth.listens = !seed.is_multiple_of(7);
    if !truth.listens {
        truth.every = truth.every.min(GRACE);
    }
    let hours = [5.0, 11.0, 23.0][seed as usize / 3 % 3];
    let tokens = Tokens(58_000.0 * 3600.0 * hours);
    let (best, needs) = fastest(&truth, tokens);
    let mut told = Told {
        points,
        tokens,
        deadline: Seconds::ZERO,
        switch: [None, Some(Seconds(truth.writing + truth.starting))][seed as usize % 2],
        window: [HOUR, Seconds(1800.0)][seed as usize / 2 % 2],
        slowest: STEADY,
        loading: LOADING,
    };
    let slack = [0.0, 0.1, 0.3][seed as usize / 4 % 3];
    told.deadline = Seconds(needs * (1.0 + slack) + margin(&truth, &told, best));
    (truth, told)
}

/// `LITD_RATES` says how many jobs are tried.
#[test]
fn the_deadline_is_met_where_rates_are_other_ones_than_the_profile_says() {
    let many = std::env::var("LITD_RATES").ok();
    let many = many.map_or(150, |it| it.parse().unwrap());
    let (mut switched, mut late) = (0, Vec::new());
    for seed in 1..=many {
        let (truth, told) = otherwise(seed);
        let Played {
            ended, switches, ..
        } = play(&truth, &told, forecasts(seed as usize, seed * 7919));
        switched += usize::from(switches > 0);
        if ended > told.deadline.0 {
            late.push((seed, ended - told.deadline.0));
        }
    }
    assert!(
        late.is_empty(),
        "{} of {many} are late: seeds and seconds {late:?}",
        late.len()
    );
    assert!(switched >= many as usize / 4, "{switched} of {many} switch");
}

/// What jobs save against the fastest configuration throughout, in per cent: those that know that their profile is right
/// and that they stay as fast as they are, and those that must learn the first and are told of the second.
fn saved(jobs: u64, kind: usize, slowest: f64) -> [f64; 2] {
    let enough = Seconds(1e6);
    let (mut learning, mut knowing, mut fast) = (0.0, 0.0, 0.0);
    for seed in 1..=jobs {
        let mut draws = Draws(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut truth = truth(&mut draws);
        truth.noise = 0.05;
        let hours = [11.0, 23.0, 47.0][seed as usize % 3];
        let tokens = Tokens(58_000.0 * 3600.0 * hours);
        let told = Told {
            points: truth.points.clone(),
            tokens,
            deadline: slack_deadline(&truth.points, tokens, 0.25),
            switch: Some(Seconds(truth.writing + truth.starting)),
            window: HOUR,
            slowest,
            loading: LOADING,
        };
        let mut known = Rates::default();
        for point in &truth.points {
            known.push(point.configuration, point.rate * HOUR, HOUR, enough);
        }
        learning += play(&truth, &told, forecasts(kind, seed)).carbon;
        let steady = Told {
            slowest: 1.0,
            ..told
        };
        knowing += play_knowing(&truth, &steady, forecasts(kind, seed), known).carbon;
        let best = fastest(&truth, tokens).0;
        truth.points = vec![truth.points[best]];
        let alone = Told {
            points: truth.points.clone(),
            ..steady
        };
        fast += play(&truth, &alone, forecasts(kind, seed)).carbon;
    }
    [knowing, learning].map(|it| 100.0 * (1.0 - it / fast))
}

/// A job whose profile is right loses little by being careful until that is known: what it saves is nearly what it would
/// save if all rates had been measured before.
#[test]
fn learning_costs_little_where_the_profile_is_right() {
    for kind in 0..2 {
        let saved = saved(24, kind, STEADY);
        println!("saved against the fastest throughout: {saved:.2?} %, knowing and learning");
        assert!(saved[1] > 5.0 && saved[1] > saved[0] - 1.0, "{saved:?}");
    }
}

/// Room that a slow phase could use up is not spent, so whoever expects a slower one saves less.
#[test]
fn being_told_of_phases_costs_savings() {
    for kind in 0..2 {
        let told = [STEADY, 0.8, 0.6].map(|slowest| saved(6, kind, slowest)[1]);
        println!("saved, told of 0.9, 0.8 and 0.6: {told:.2?} %");
        assert!(told[0] > told[1] && told[1] > told[2], "{told:?}");
        assert!(told[2] > -1.0, "waiting costs nothing: {told:?}");
    }
}
