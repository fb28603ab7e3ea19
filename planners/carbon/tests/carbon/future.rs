//! Model-predictive control knows what has been issued, greedy what has begun, and neither anything else.

use crate::common::{Draws, daily, intensities};
use jiff::{SignedDuration, Timestamp};
use litd_carbon::policy::{MpcError, decide, greedy, mpc};
use litd_carbon::{
    Configuration, Factor, Forecasts, Issued, Job, Known, Plan, Point, Problem, Start, Trace,
    moment,
};
use litd_units::{Intensity, Seconds, Tokens, TokensPerSecond, Watts};

const HOUR: Seconds = Seconds(3600.0);

fn start() -> Timestamp {
    moment("2030-01-01T00:00:00Z").unwrap()
}

fn hour(at: usize) -> Timestamp {
    start() + SignedDuration::from_hours(at as i64)
}

/// A forecast every six hours, wrong by chance.
fn forecasts(draws: &mut Draws, truth: &[Intensity]) -> Forecasts {
    let issues = (0..truth.len()).step_by(6).map(|at| {
        let until = truth.len().min(at + 30);
        let values = (at..until).map(|it| {
            let wrong = draws.within(0.3, 1.7);
            (hour(it), truth[it] * wrong)
        });
        Issued::new(hour(at), &values.collect::<Vec<_>>()).unwrap()
    });
    issues.collect()
}

fn control(problem: &Problem, truth: &[Intensity], forecasts: &Forecasts) -> Plan {
    let look = |now: Timestamp, count| {
        let at = (now.as_second() - start().as_second()) / 3600;
        forecasts.outlook(now, truth[at as usize], HOUR, count)
    };
    mpc(problem.job(), start(), look).unwrap()
}

/// A deadline that the only configuration meets with its last window is met, however many windows add up to it.
#[test]
fn a_deadline_that_is_just_met_is_met() {
    for (rate, tokens, windows) in [
        (1_234.567, 3_306_664_252.8, 744),
        (61_234.567_89, 10_581_333_331.4, 48),
    ] {
        let point = Point {
            rate: TokensPerSecond(rate),
            ..daily(0, 1, 24, Start::Within(0)).job().points()[0]
        };
        let deadline = HOUR * f64::from(windows);
        let no_switch = Seconds(0.0);
        let begin = Start::Within(0);
        let job = Job::new(&[point], HOUR, Tokens(tokens), deadline, no_switch, begin).unwrap();
        let look = |now: Timestamp, count: usize| {
            let at = |number| now + SignedDuration::from_hours(number as i64);
            let known = (0..count).map(|number| Known {
                issued: now,
                window: at(number),
                intensity: Intensity(300.0),
            });
            Some(known.collect())
        };
        let plan = mpc(&job, start(), look).unwrap();
        assert_eq!(plan.choices.len(), windows as usize);
        let truth = vec![Intensity(300.0); windows as usize];
        plan.check(&Problem::new(job, &truth).unwrap()).unwrap();
    }
}

/// Forecasts and observations later than a decision do not change it.
#[test]
fn values_from_later_than_now_reach_no_decision() {
    for seed in 0..12 {
        let mut draws = Draws::new(seed);
        let problem = daily(seed, 6, 36, Start::Within(0));
        let truth = problem.intensities().to_vec();
        let issued = forecasts(&mut draws, &truth);
        let plan = control(&problem, &truth, &issued);
        plan.check(&problem).unwrap();
        for now in [0, 5, 6, 17] {
            let other = intensities(&mut draws, truth.len());
            let mut changed = truth.clone();
            changed[now + 1..].copy_from_slice(&other[now + 1..]);
            let later = forecasts(&mut draws, &changed);
            let mixed = (0..truth.len()).step_by(6).map(|at| {
                let from = if at <= now { &issued } else { &later };
                from.newest(hour(at)).unwrap().clone()
            });
            let again = control(&problem, &changed, &mixed.collect());
            assert_eq!(
                again.choices[..=now],
                plan.choices[..=now],
                "seed {seed}, hour {now}"
            );
        }
    }
}

/// The windows of an hour of a signal of half-hours, and greedy's plan of a job that begins a quarter past.
fn greedily(problem: &Problem, values: &[Intensity]) -> Plan {
    let mut text = "datetime_utc,ci_direct_g_per_kwh\n".to_owned();
    for (at, value) in values.iter().enumerate() {
        let begin = start() + SignedDuration::from_mins(30 * at as i64);
        text += &format!("{begin},{}\n", value.0);
    }
    let trace: Trace = text.parse().unwrap();
    let (series, job) = (trace.series(Factor::Direct).unwrap(), problem.job());
    let arrival = start() + SignedDuration::from_mins(24 * 60 + 15);
    let windows = series.windows(arrival, HOUR, job.windows()).unwrap();
    let problem = Problem::new(job.clone(), &windows).unwrap();
    let begun = series.begun(arrival, HOUR, job.windows());
    greedy(&problem, &series.day_before(arrival, HOUR), &begun).unwrap()
}

/// The steps of a signal that begin later than a decision of greedy's do not change it, those within its own
/// window neither.
#[test]
fn steps_that_have_not_begun_reach_no_decision_of_greedys() {
    let mut differ = 0;
    for seed in 0..12 {
        let mut draws = Draws::new(seed);
        let problem = daily(seed, 6, 24, Start::Within(0));
        let truth = intensities(&mut draws, 2 * 24 + 2 * 24 + 2);
        let plan = greedily(&problem, &truth);
        for now in [0, 3, 11, 18] {
            let mut changed = truth.clone();
            let later = 2 * 24 + 2 * now + 1;
            let factor = draws.within(0.0, 8.0);
            changed[later..]
                .iter_mut()
                .for_each(|it| *it = *it * factor);
            let again = greedily(&problem, &changed);
            let until = |plan: &Plan| {
                plan.choices
                    .iter()
                    .copied()
                    .take(now + 1)
                    .collect::<Vec<_>>()
            };
            assert_eq!(until(&again), until(&plan), "seed {seed}, window {now}");
            differ += usize::from(again != plan);
        }
    }
    assert!(
        differ > 0,
        "what comes later changes no plan: nothing was tried"
    );
}

/// What is usual is what the days that are over had: in windows of a day as well, a dirty one is dirtier than usual.
#[test]
fn greedy_sees_a_dirty_day_in_windows_of_a_day() {
    let points = [(900.0, 30.0), (1500.0, 58.0)].map(|(power, rate)| Point {
        power: Watts(power),
        rate: TokensPerSecond(rate),
        configuration: Configuration {
            tp: 1,
            pp: 1,
            dp: rate as u32,
        },
    });
    let day = HOUR * 24.0;
    let tokens = points[1].rate * day * 3.0;
    let begin = Start::Within(0);
    let job = Job::new(&points, day, tokens, day * 6.0, HOUR, begin).unwrap();
    let first = |now| {
        let values = vec![Intensity(now); job.windows()];
        let problem = Problem::new(job.clone(), &values).unwrap();
        let plan = greedy(&problem, &[Intensity(100.0)], &values).unwrap();
        plan.choices[0]
    };
    assert_eq!([first(40.0), first(100.0), first(400.0)], [1, 1, 0]);
}

/// A caller that knows the future is told, and not obeyed.
#[test]
fn a_value_issued_later_than_now_is_refused() {
    let problem = daily(1, 4, 12, Start::Within(0));
    let known = |issued| {
        let values = problem.intensities().iter().enumerate();
        let values = values.map(|(at, &intensity)| Known {
            issued,
            window: hour(at),
            intensity,
        });
        values.collect::<Vec<_>>()
    };
    assert!(decide(problem.job(), start(), &known(start())).is_ok());
    let mut leaking = known(start());
    leaking[3].issued = start() + SignedDuration::from_secs(1);
    let error = decide(problem.job(), start(), &leaking).unwrap_err();
    assert!(matches!(error, MpcError::FromLater(_)), "{error}");
}

/// With a forecast that is right, the plan is as good as the optimum.
#[test]
fn a_perfect_forecast_gives_nearly_the_optimum() {
    for seed in 0..6 {
        let problem = daily(seed, 6, 24, Start::Within(0));
        let truth = problem.intensities();
        let values: Vec<_> = (0..truth.len()).map(|at| (hour(at), truth[at])).collect();
        let perfect = std::iter::once(Issued::new(start(), &values).unwrap()).collect();
        let plan = control(&problem, truth, &perfect);
        let optimum =
            litd_carbon::solve::solve(&problem, litd_carbon::solve::Effort::EXACT).unwrap();
        let over = plan.carbon(&problem) / optimum.carbon - 1.0;
        assert!(over < 2e-3, "seed {seed}: {over}");
    }
}
