//! The paper's zones and month, with real forecasts. The data lies beside the project and is no part of it:
//! without it these tests say that they are skipped.

use std::fmt::Debug;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::str::FromStr;

use crate::common::{Draws, lean_to_fast};
use jiff::{SignedDuration, Timestamp};
use litd_carbon::policy::{best_static, mpc};
use litd_carbon::{
    Factor, Forecasts, Job, Problem, Series, Skill, Start, Trace, moment, slack_deadline,
};
use litd_units::{Seconds, Tokens};

const HOUR: Seconds = Seconds(3600.0);
const ZONES: [&str; 3] = ["US-CAL-CISO", "US-NW-PACW", "US-MIDA-PJM"];

/// A file of a zone, or that it is skipped.
pub fn read<T: FromStr<Err: Debug>>(file: &str) -> Option<T> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/carbon");
    let Ok(text) = fs::read_to_string(folder.join(file)) else {
        // Past the capture of a test's output, so that it is seen.
        let note = format!("SKIPPED: ../shared/carbon has no {file}\n");
        std::io::stderr().write_all(note.as_bytes()).unwrap();
        return None;
    };
    Some(text.parse().unwrap())
}

/// A zone's observed and forecast values.
fn zone(name: &str) -> Option<(Trace, Forecasts)> {
    let trace = read(&format!("{name}_2024-05_06.csv"))?;
    Some((trace, read(&format!("{name}_2024-05_06_forecast96h.csv"))?))
}

/// Whether best static meets a deadline. Control must then meet it, with forecasts as issued and corrected.
pub fn control_meets(
    what: &str,
    problem: &Problem,
    series: &Series,
    forecasts: &Forecasts,
    begin: Timestamp,
) -> bool {
    let Ok(reference) = best_static(problem) else {
        return false;
    };
    reference.plan.check(problem).unwrap();
    let (window, deadline) = (problem.job().window(), problem.job().deadline());
    let until = begin + SignedDuration::from_secs(deadline.0 as i64);
    let learned = Skill::learn(series, Some(forecasts), begin, until);
    for skill in [Skill::default(), learned] {
        let look = |now, count| skill.outlook(series, forecasts, now, window, count);
        let plan = mpc(problem.job(), begin, look);
        let plan = plan.unwrap_or_else(|error| panic!("{what}: {error}"));
        let kept = plan.check(problem);
        kept.unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    true
}

/// However wrong forecasts are (those of PACW are off by half on the first day), the deadline is met.
#[test]
fn control_meets_every_deadline_that_best_static_meets() {
    for name in ZONES {
        let Some((trace, forecasts)) = zone(name) else {
            continue;
        };
        let series = trace.series(Factor::Direct).unwrap();
        let first = moment("2024-05-01T00:00:00Z").unwrap();
        let mut met = 0;
        for offset in 0..64_u64 {
            let mut draws = Draws::new(offset + 1);
            let points = lean_to_fast(&mut draws, 8);
            let begin = first + SignedDuration::from_hours(offset as i64 * 11);
            let tokens = Tokens(1e9 * (1 + offset % 4) as f64);
            // Every third deadline is as near as the fastest configuration lets it be.
            let slack = [0.25, 0.1, 0.0][offset as usize % 3];
            let deadline = slack_deadline(&points, tokens, slack);
            let switch = Seconds([0.0, 90.0, 900.0][draws.below(3)]);
            let start = Start::Within(0);
            let job = Job::new(&points, HOUR, tokens, deadline, switch, start).unwrap();
            let intensities = series.windows(begin, HOUR, job.windows()).unwrap();
            let problem = Problem::new(job, &intensities).unwrap();
            let what = format!("{name} {offset}");
            met += u32::from(control_meets(&what, &problem, series, &forecasts, begin));
        }
        assert!(met >= 64, "{name}: best static meets {met} deadlines");
    }
}
