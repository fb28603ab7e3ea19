//! Forecasts that somebody made to do harm: whatever they say, control meets each deadline that best static meets.

use crate::common::{Draws, cases, lean_to_fast};
use crate::zones::{control_meets, read};
use jiff::{SignedDuration, Timestamp};
use litd_carbon::{
    Factor, Forecasts, Issued, Job, Problem, Series, Start, Trace, moment, slack_deadline,
};
use litd_units::{Intensity, Seconds, Tokens};

/// A way in which a forecast is worse than the truth.
#[derive(Debug, Clone, Copy)]
enum Harm {
    Constant,
    Zero,
    Inverted,
    /// By a day.
    Shifted,
    Garbage,
    /// Ends after three hours.
    Short,
    /// Rises without end, so that now is always the cleanest hour; or falls, so that it is always the dirtiest.
    Rising,
    Falling,
}

const HARMS: [Harm; 8] = [
    Harm::Constant,
    Harm::Zero,
    Harm::Inverted,
    Harm::Shifted,
    Harm::Garbage,
    Harm::Short,
    Harm::Rising,
    Harm::Falling,
];

fn after(begin: Timestamp, seconds: i64) -> Timestamp {
    begin + SignedDuration::from_secs(seconds)
}

/// A forecast every six hours until the end of a signal.
fn harmful(harm: Harm, series: &Series, draws: &mut Draws) -> Forecasts {
    let (first, end) = (series.first(), series.end());
    let hours = (end.as_second() - first.as_second()) / 3600;
    let true_at = |hour: i64| {
        let values = series.windows(
            after(first, hour.rem_euclid(hours) * 3600),
            Seconds(3600.0),
            1,
        );
        values.map_or(Intensity(100.0), |it| it[0])
    };
    let length = match harm {
        Harm::Short => 3,
        _ => 96,
    };
    let issues = (0..hours).step_by(6).map(|issued| {
        let values = (issued..issued + length).map(|hour| {
            let lead = (hour - issued) as f64;
            let value = match harm {
                Harm::Constant => 100.0,
                Harm::Zero => 0.0,
                Harm::Inverted => 1e4 / true_at(hour).0.max(1.0),
                Harm::Shifted => true_at(hour + 24).0,
                Harm::Garbage => 10_f64.powf(draws.within(-3.0, 4.0)),
                Harm::Short => true_at(hour).0,
                Harm::Rising => 1.0 + 50.0 * lead,
                Harm::Falling => 5000.0 - 50.0 * lead,
            };
            (after(first, hour * 3600), Intensity(value))
        });
        let values: Vec<_> = values.collect();
        Issued::new(after(first, issued * 3600), &values).unwrap()
    });
    issues.collect()
}

/// A job of a few hours, with a deadline between as near as it can be and a quarter later; the first window may be
/// half an hour.
fn job(seed: u64, draws: &mut Draws) -> Job {
    let points = lean_to_fast(draws, 6);
    let window = [Seconds(3600.0), Seconds(1800.0)][draws.below(2)];
    let tokens = Tokens(draws.within(0.5e9, 3e9));
    let deadline = slack_deadline(&points, tokens, [0.0, 0.1, 0.25][seed as usize % 3]);
    let switch = Seconds([0.0, 60.0, 900.0, 2400.0][draws.below(4)]);
    Job::new(&points, window, tokens, deadline, switch, Start::Within(0)).unwrap()
}

/// Plays jobs that arrive between a moment and the end of a signal: how many deadlines best static meets.
fn play(name: &str, series: &Series, from: Timestamp, harm: Harm) -> u64 {
    let count = cases(4, 64);
    let mut draws = Draws::new(harm as u64 + 1);
    let forecasts = harmful(harm, series, &mut draws);
    let room = (series.end().as_second() - from.as_second()) / 3600 - 60;
    let mut met = 0;
    for seed in 0..count {
        let begin = after(from, (seed as i64 * 7919 % room) * 3600);
        let job = job(seed, &mut draws);
        let window = job.window();
        let intensities = series.windows(begin, window, job.windows()).unwrap();
        let problem = Problem::new(job, &intensities).unwrap();
        let what = format!("{name} {harm:?} {seed}");
        met += u64::from(control_meets(&what, &problem, series, &forecasts, begin));
    }
    met
}

/// Months and zones that nobody knew: two made-up ones with gaps of zero and peaks; and June of the paper's zones, by
/// both factors.
#[test]
fn no_forecast_makes_control_miss_a_deadline() {
    let mut draws = Draws::new(17);
    let begin = moment("2031-02-01T00:00:00Z").unwrap();
    let made_up: [Trace; 2] = [0, 1].map(|kind| {
        let mut text = "datetime_utc,ci_direct_g_per_kwh\n".to_owned();
        for half in 0..28 * 48 {
            let noise = draws.share();
            let value = match kind {
                0 if noise < 0.3 => 0.0,
                0 => 900.0 * noise,
                _ => 300.0 + 299.0 * (f64::from(half) / 7.0).sin(),
            };
            text += &format!("{},{value}\n", after(begin, i64::from(half) * 1800));
        }
        text.parse().unwrap()
    });
    for (kind, trace) in made_up.iter().enumerate() {
        let series = trace.series(Factor::Direct).unwrap();
        for harm in HARMS {
            let met = play(&format!("made-up {kind}"), series, begin, harm);
            assert!(met >= 2, "{met}");
        }
    }
    let june = moment("2024-06-01T00:00:00Z").unwrap();
    for name in ["US-CAL-CISO", "US-NW-PACW", "US-MIDA-PJM", "US-NW-BPAT"] {
        let Some(trace) = read::<Trace>(&format!("{name}_2024-05_06.csv")) else {
            continue;
        };
        for factor in [Factor::Direct, Factor::Lifecycle] {
            let series = trace.series(factor).unwrap();
            for harm in HARMS {
                let met = play(name, series, june, harm);
                assert!(met >= 2, "{met}");
            }
        }
    }
}
