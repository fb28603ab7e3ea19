//! When a job without a hook is asked for traces on demand, and what they tell of it.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

use litd_attach::{Course, Rounds, WhyOver};
use litd_units::Nanos;

/// After so many failures in a row a job is asked no more.
const PATIENCE: u32 = 5;

/// The longest recording, in milliseconds.
const LONGEST: u32 = 10_000;

const EVERY: Nanos = Nanos(60_000_000_000);

fn seconds(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as i64)
}

fn rounds() -> Rounds {
    Rounds::new(EVERY, Nanos(0))
}

#[test]
fn a_trace_is_due_at_once_and_then_after_each_period() {
    let mut rounds = rounds();
    assert!(rounds.due(Nanos(0)).is_some());
    rounds.begin(Nanos(0));
    assert!(rounds.due(seconds(1e6)).is_none());
    rounds.hear(seconds(10.0), seconds(100.0), seconds(0.1), 3);
    assert!(rounds.due(seconds(69.0)).is_none() && rounds.due(seconds(70.0)).is_some());
    assert_eq!(rounds.due(seconds(99.0)), Some(seconds(70.0)));
    rounds.put_off(seconds(70.0));
    assert!(rounds.due(seconds(79.0)).is_none() && rounds.due(seconds(80.0)).is_some());
}

#[test]
fn all_ranks_learn_of_a_wish_before_the_iteration_with_which_they_begin() {
    let mut rounds = rounds();
    let window = rounds.window(7);
    assert_eq!((window.iterations, window.roundup), (4, 20));
    assert_eq!((window.milliseconds, window.start), (1000, Some(7)));
    rounds.hear(Nanos(0), seconds(100.0), seconds(0.1), 3);
    assert_eq!(rounds.window(0).roundup, 100);
    assert_eq!(rounds.window(0).milliseconds, 500);
    assert_eq!(rounds.waits(), seconds(10.4));
    rounds.hear(Nanos(0), seconds(200.0), seconds(1.5), 3);
    assert_eq!(rounds.window(0).roundup, 20);
    assert_eq!(rounds.window(0).milliseconds, 7500);
    rounds.hear(Nanos(0), seconds(300.0), seconds(15.0), 3);
    assert_eq!(rounds.window(0).roundup, 2);
    assert_eq!(rounds.window(0).milliseconds, LONGEST);
}

/// Jobs record one at a time, and anybody's traces can tell of any iterations.
#[test]
fn no_job_keeps_others_from_recording_for_more_than_two_minutes() {
    for took in [1e-9, 1e-3, 0.5, 1.9, 2.1, 9.0, 19.9, 20.1, 41.0, 1e9] {
        let mut rounds = rounds();
        let heard = rounds.hear(Nanos(0), seconds(100.0), seconds(took), 3);
        let goes_on = *rounds.course() == Course::Rests { until: EVERY };
        assert_eq!(goes_on, took < 20.0, "{took}");
        assert_eq!(heard.over.is_some(), took > 20.0);
        assert!(rounds.waits() <= seconds(120.0) || !goes_on, "{took}");
    }
}

#[test]
fn a_job_whose_traces_fail_is_asked_less_and_less_and_then_no_more() {
    let mut rounds = rounds();
    let mut now = Nanos(0);
    for failed in 1..PATIENCE {
        assert!(rounds.due(now).is_some());
        rounds.begin(now);
        assert_eq!(rounds.fail(now, true), None);
        let later = now + Nanos(EVERY.0 << failed);
        assert!(rounds.due(later - Nanos(1)).is_none());
        now = later;
    }
    assert_eq!(rounds.window(0).milliseconds, LONGEST);
    assert_eq!(rounds.fail(now, false), Some(WhyOver::Fails));
    rounds.put_off(now);
    rounds.begin(now);
    assert!(rounds.due(Nanos(i64::MAX)).is_none());
}

#[test]
fn one_good_trace_forgives_failures() {
    let mut rounds = rounds();
    for round in 0..20 {
        for _ in 1..PATIENCE {
            assert_eq!(rounds.fail(Nanos(0), false), None);
        }
        rounds.hear(Nanos(0), seconds(f64::from(round)), seconds(0.1), 2);
    }
}

#[test]
fn iterations_are_numbered_by_the_time_between_traces_and_never_backwards() {
    let mut rounds = rounds();
    let mut hear = |began: f64, took: f64, count| {
        let heard = rounds.hear(Nanos(0), seconds(began), seconds(took), count);
        heard.last
    };
    assert_eq!(hear(1000.0, 0.1, 3), 3);
    assert_eq!(hear(1060.0, 0.1, 3), 603);
    // The clock was set back, or the trace was made up.
    assert_eq!(hear(10.0, 0.1, 3), 606);
    assert_eq!(hear(20.0, 0.0, 3), 606 + 10_000_000);
}

#[test]
fn a_job_that_gets_slower_is_asked_no_more() {
    let mut rounds = rounds();
    let mut hear = |took: f64| rounds.hear(Nanos(0), seconds(1.0), seconds(took), 3).over;
    for took in [0.1, 0.11, 0.1, 0.1, 0.12, 0.12, 0.1, 0.109, 0.13, 0.13] {
        assert_eq!(hear(took), None);
    }
    assert_eq!(hear(0.13), Some(WhyOver::Slower(30)));
    assert_eq!(*rounds.course(), Course::Over(WhyOver::Slower(30)));
}

#[test]
fn traces_without_harm_are_told_of() {
    let mut rounds = rounds();
    let passed = (0..30).map(|_| {
        let heard = rounds.hear(Nanos(0), seconds(1.0), seconds(0.1), 3);
        heard.passed
    });
    let passed: Vec<u32> = passed.flatten().collect();
    assert_eq!(passed, [5, 20]);
}
