//! Forecasts corrected by their past: better where they were bad, the same where they were right, and blind to what
//! is to come.

use crate::common::{Draws, daily, intensities};
use jiff::{SignedDuration, Timestamp};
use litd_carbon::policy::mpc;
use litd_carbon::{Forecasts, Issued, Known, Plan, Problem, Series, Skill, Start, Trace, moment};
use litd_units::{Intensity, Seconds};

const HOUR: Seconds = Seconds(3600.0);
/// Observations before the job begins, in hours.
const BEFORE: usize = 10 * 24;

fn hour(at: usize) -> Timestamp {
    moment("2030-01-01T00:00:00Z").unwrap() + SignedDuration::from_hours(at as i64)
}

fn signal(values: &[Intensity]) -> Series {
    signal_of(values, 3600)
}

/// The values of hours, each repeated for steps of so many seconds.
fn signal_of(values: &[Intensity], step: usize) -> Series {
    let mut text = "datetime_utc,ci_direct_g_per_kwh\n".to_owned();
    for second in (0..values.len() * 3600).step_by(step) {
        let begin = hour(0) + SignedDuration::from_secs(second as i64);
        text += &format!("{begin},{}\n", values[second / 3600].0);
    }
    let trace: Trace = text.parse().unwrap();
    trace.series(litd_carbon::Factor::Direct).unwrap().clone()
}

/// A forecast for three days, every six hours.
fn forecasts(values: &[Intensity], said: impl Fn(usize, usize) -> Intensity) -> Forecasts {
    let issues = (0..values.len()).step_by(6).map(|at| {
        let steps = (at..at + 72).map(|it| (hour(it), said(at, it.min(values.len() - 1))));
        Issued::new(hour(at), &steps.collect::<Vec<_>>()).unwrap()
    });
    issues.collect()
}

fn known(skill: &Skill, signal: &Series, forecasts: Option<&Forecasts>, now: usize) -> Vec<Known> {
    let issue = skill.issue(signal, forecasts, hour(now)).unwrap();
    issue.outlook(hour(now), HOUR, 24)
}

fn learned(signal: &Series, forecasts: Option<&Forecasts>, from: usize, until: usize) -> Skill {
    Skill::learn(signal, forecasts, hour(from), hour(until))
}

/// A made-up month with a daily course and noise.
fn month(seed: u64) -> Vec<Intensity> {
    intensities(&mut Draws::new(seed), 30 * 24)
}

/// How far off the next day is, as the root of the mean square.
fn error(outlook: &[Known], truth: &[Intensity], now: usize) -> f64 {
    let squares = (1..24).map(|at| (outlook[at].intensity.0 - truth[now + at].0).powi(2));
    (squares.sum::<f64>() / 23.0).sqrt()
}

#[test]
fn a_forecast_that_is_right_stays_as_it_is() {
    let truth = month(1);
    let (series, right) = (signal(&truth), forecasts(&truth, |_, it| truth[it]));
    for now in [0, 5, 30, 300] {
        let skill = learned(&series, Some(&right), now, now);
        for (at, known) in known(&skill, &series, Some(&right), now).iter().enumerate() {
            let off = (known.intensity.0 - truth[now + at].0).abs();
            assert!(off < 1e-6 * truth[now + at].0, "{now}+{at}: {off}");
        }
    }
}

/// A signal of every ten seconds is learned from as one of quarters of an hour is: each pair of a step and a distance
/// would be thousands of millions.
#[test]
fn a_signal_of_seconds_is_learned_from_by_quarters_of_an_hour() {
    let truth = month(3);
    let wrong = forecasts(&truth, |_, it| truth[it] * 0.5 + Intensity(200.0));
    let corrected = |step| {
        let series = signal_of(&truth, step);
        let skill = learned(&series, Some(&wrong), BEFORE, BEFORE);
        known(&skill, &series, Some(&wrong), BEFORE)
    };
    let (quarters, seconds) = (corrected(900), corrected(10));
    assert_eq!(seconds, quarters);
    let issued = truth[BEFORE + 1] * 0.5 + Intensity(200.0);
    assert_ne!(seconds[1].intensity, issued, "nothing was learned");
}

/// Without a past a forecast is taken as issued; what was wrong in the same way for days is put right.
#[test]
fn what_is_wrong_in_the_same_way_is_put_right() {
    let truth = month(2);
    let wrong = forecasts(&truth, |_, it| truth[it] * 0.5 + Intensity(200.0));
    let series = signal(&truth);
    let first = known(
        &learned(&series, Some(&wrong), 0, 0),
        &series,
        Some(&wrong),
        0,
    );
    assert!((first[1].intensity.0 - (truth[1].0 * 0.5 + 200.0)).abs() < 1e-6);
    let (mut own, mut issued) = (0.0, 0.0);
    for now in (BEFORE..BEFORE + 240).step_by(5) {
        let outlook = known(
            &learned(&series, Some(&wrong), now, now),
            &series,
            Some(&wrong),
            now,
        );
        own += error(&outlook, &truth, now);
        issued += error(
            &known(&Skill::default(), &series, Some(&wrong), now),
            &truth,
            now,
        );
    }
    assert!(own < issued / 2.0, "{own} and {issued}");
}

/// A forecast of noise is not believed: what is left is the usual day.
#[test]
fn a_forecast_of_noise_is_worth_no_more_than_none() {
    let truth = month(3);
    let noise = intensities(&mut Draws::new(99), truth.len());
    let wild = forecasts(&truth, |issue, it| {
        noise[(it * 7 + issue * 13) % noise.len()] * 1.5
    });
    let series = signal(&truth);
    let (mut own, mut none, mut issued) = (0.0, 0.0, 0.0);
    for now in (2 * BEFORE..2 * BEFORE + 120).step_by(5) {
        let of = |forecasts| {
            let skill = learned(&series, forecasts, now, now);
            error(&known(&skill, &series, forecasts, now), &truth, now)
        };
        own += of(Some(&wild));
        none += of(None);
        issued += error(
            &known(&Skill::default(), &series, Some(&wild), now),
            &truth,
            now,
        );
    }
    assert!(
        own < issued * 0.7 && own < none * 1.25,
        "{own}, {none} without, {issued} as issued"
    );
}

fn control(problem: &Problem, series: &Series, forecasts: &Forecasts) -> Plan {
    let end = BEFORE + problem.intensities().len();
    let skill = learned(series, Some(forecasts), BEFORE, end);
    let look = |now, count| {
        let outlook = skill.outlook(series, forecasts, now, HOUR, count)?;
        assert!(outlook.iter().all(|known| known.issued <= now), "{now}");
        Some(outlook)
    };
    mpc(problem.job(), hour(BEFORE), look).unwrap()
}

/// Forecasts and observations later than a decision change neither the correction learned by then nor the
/// decision.
#[test]
fn nothing_from_later_is_learned() {
    for seed in 0..8 {
        let mut draws = Draws::new(seed + 40);
        let problem = daily(seed, 6, 36, Start::Within(0));
        let mut truth = intensities(&mut draws, BEFORE);
        truth.extend(problem.intensities());
        let errors: Vec<f64> = truth.iter().map(|_| draws.within(0.3, 1.7)).collect();
        let of = |truth: &[Intensity]| {
            let said = |issue: usize, it: usize| truth[it] * errors[(it + issue) % errors.len()];
            (signal(truth), forecasts(truth, said))
        };
        let (series, issued) = of(&truth);
        let plan = control(&problem, &series, &issued);
        plan.check(&problem).unwrap();
        for now in [0, 5, 6, 17] {
            let cut = BEFORE + now + 1;
            let mut changed = truth.clone();
            let other = intensities(&mut draws, truth.len() - cut);
            changed[cut..].copy_from_slice(&other);
            let (later, reissued) = of(&changed);
            let mixed = (0..truth.len()).step_by(6).map(|at| {
                let from = if at < cut { &issued } else { &reissued };
                from.newest(hour(at)).unwrap().clone()
            });
            let mixed: Forecasts = mixed.collect();
            let skill = |series: &Series, forecasts: &Forecasts| {
                let skill = learned(series, Some(forecasts), BEFORE, truth.len() + BEFORE);
                known(&skill, series, Some(forecasts), BEFORE + now)
            };
            assert_eq!(
                skill(&later, &mixed),
                skill(&series, &issued),
                "seed {seed}, hour {now}"
            );
            let again = control(&problem, &later, &mixed);
            assert_eq!(
                again.choices[..=now],
                plan.choices[..=now],
                "seed {seed}, hour {now}"
            );
        }
    }
}

/// A window that is longer than a step of the signal has one observed step, and no more.
#[test]
fn of_a_long_window_only_the_step_that_has_begun_is_observed() {
    let truth = month(5);
    let zero = forecasts(&truth, |_, _| Intensity(0.0));
    let series = signal(&truth);
    let issue = Skill::default()
        .issue(&series, Some(&zero), hour(3))
        .unwrap();
    let first = issue.outlook(hour(3), HOUR * 4.0, 1)[0];
    assert!(
        (first.intensity.0 - truth[3].0 / 4.0).abs() < 1e-9,
        "{first:?}"
    );
}
