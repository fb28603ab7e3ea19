//! The search's parts against independent computations, and the search as a whole.

use std::collections::BTreeSet;
use std::convert::Infallible;

use litd_kareus::search::{
    Booster, Found, GROWTH, Pass, Point, Row, Settings, Staircase, Stop, frontier, next, search,
};
use litd_kareus::{Candidate, Measurement};
use litd_units::{Hertz, Joules, Millis, Watts};
use proptest::prelude::*;

/// Rows, targets, weights and XGBoost's predictions of one part of the data (tests/kareus/data/trees.py).
fn golden(split: f64) -> (Vec<Row>, Vec<f64>, Vec<f64>, Vec<f64>) {
    let (mut rows, mut targets, mut weights, mut wanted) = (vec![], vec![], vec![], vec![]);
    for line in include_str!("data/trees.csv").lines().skip(1) {
        let numbers: Vec<f64> = line.split(',').map(|it| it.parse().unwrap()).collect();
        if numbers[0] == split {
            rows.push([numbers[1], numbers[2], numbers[3]]);
            weights.push(numbers[4]);
            targets.push(numbers[5]);
            wanted.push(numbers[6]);
        }
    }
    assert_eq!(rows.len(), 200);
    (rows, targets, weights, wanted)
}

/// XGBoost reckons in 32 bits, and there a tie can break otherwise; so a few rows may differ by more.
#[test]
fn trees_predict_what_xgboost_predicts() {
    for split in [0.0, 1.0] {
        let (rows, targets, weights, wanted) = golden(split);
        let booster = Booster::fit(&rows, &targets, &weights, &GROWTH);
        let errors: Vec<f64> = rows
            .iter()
            .zip(&wanted)
            .map(|(row, wanted)| (booster.predict(row) - wanted).abs())
            .collect();
        let close = errors.iter().filter(|it| **it < 1e-5).count();
        let worst = errors.iter().copied().fold(0.0, f64::max);
        assert!(
            close >= 190 && worst < 5e-3,
            "{split}: {close} of 200 within 1e-5, worst {worst}"
        );
    }
}

#[test]
fn trees_of_nothing_and_of_one_value_are_flat() {
    assert_eq!(Booster::fit(&[], &[], &[], &GROWTH).predict(&[1.0; 3]), 0.0);
    let flat = Booster::fit(&[[1.0; 3], [2.0; 3]], &[4.0; 2], &[1.0; 2], &GROWTH);
    assert_eq!(flat.predict(&[9.0; 3]), 4.0);
}

/// The area that points dominate, cell by cell of the grid that their coordinates make.
fn area(points: &[Point], reference: Point) -> f64 {
    let edges = |at: usize| {
        let mut all: Vec<f64> = points.iter().map(|it| it[at]).collect();
        all.push(reference[at]);
        all.retain(|it| *it <= reference[at]);
        all.sort_by(f64::total_cmp);
        all
    };
    let (times, energies) = (edges(0), edges(1));
    let mut sum = 0.0;
    for t in times.windows(2) {
        for e in energies.windows(2) {
            if points.iter().any(|it| it[0] <= t[0] && it[1] <= e[0]) {
                sum += (t[1] - t[0]) * (e[1] - e[0]);
            }
        }
    }
    sum
}

proptest! {
    #[test]
    fn hypervolume_and_its_improvement_are_areas(
        points in prop::collection::vec([0_u8..12, 0_u8..12], 0..12),
        extra in [0_u8..14, 0_u8..14],
    ) {
        let points: Vec<Point> = points.iter().map(|it| it.map(f64::from)).collect();
        let reference = [11.0, 10.0];
        let staircase = Staircase::new(&points, reference);
        let before = area(&points, reference);
        prop_assert_eq!(staircase.hypervolume(), before);
        let extra = extra.map(f64::from);
        let mut more = points.clone();
        more.push(extra);
        prop_assert_eq!(staircase.improvement(extra), area(&more, reference) - before);
    }

    #[test]
    fn a_frontier_is_what_no_point_beats(points in prop::collection::vec([0_u8..9, 0_u8..9], 0..20)) {
        let points: Vec<Point> = points.iter().map(|it| it.map(f64::from)).collect();
        let beats = |a: Point, b: Point| a[0] <= b[0] && a[1] <= b[1] && a != b;
        let first = |at: usize| !points[..at].contains(&points[at]);
        let mut wanted: Vec<usize> = (0..points.len())
            .filter(|&at| first(at) && !points.iter().any(|&it| beats(it, points[at])))
            .collect();
        wanted.sort_by(|&a, &b| points[a][0].total_cmp(&points[b][0]));
        prop_assert_eq!(frontier(&points), wanted);
    }
}

fn candidates() -> Vec<Candidate> {
    let clocks = (0..18).map(|step| Hertz(900e6 + 30e6 * f64::from(step)));
    let pairs = clocks.flat_map(|clock| (1..=10).map(move |sms| (clock, 3 * sms)));
    let all =
        pairs.flat_map(|(clock, sms)| (0..4).map(move |launch| Candidate { clock, sms, launch }));
    all.collect()
}

/// A partition in three lines: communication by SMs, computation by clock and by the SMs that are left.
fn toy(it: Candidate) -> Measurement {
    let speed = it.clock.0 / 1410e6;
    let communication = 0.5 * (9.0 / f64::from(it.sms)).max(1.0);
    let computation = 1.0 / speed * 108.0 / (108.0 - 0.4 * f64::from(it.sms));
    let time = computation.max(communication + 0.25 / speed * it.launch as f64);
    let dynamic = 200.0 * speed.powi(2) + 3.0 * f64::from((it.sms + it.launch as u32) % 4);
    Measurement {
        time: Millis(time),
        energy: Joules(80.0 * 1e-3 * time + dynamic * 1e-3),
        clock: it.clock,
        temperature: None,
        noise: None,
    }
}

fn run(settings: &Settings, seed: u64) -> Found {
    let evaluate = |it: Candidate, _: Pass| Ok::<_, Infallible>(toy(it));
    search(&candidates(), Watts(80.0), settings, seed, evaluate).unwrap()
}

#[test]
fn a_search_keeps_its_budget_and_tries_nothing_twice() {
    let settings = Settings::for_computations(5);
    let found = run(&settings, 1);
    let tried: BTreeSet<String> = found
        .evaluated
        .iter()
        .map(|it| it.candidate.to_string())
        .collect();
    assert_eq!(tried.len(), found.evaluated.len());
    let initial = found
        .evaluated
        .iter()
        .filter(|it| it.pass == Pass::Initial)
        .count();
    let batches = found.improvements.len();
    assert_eq!(initial, 96);
    assert_eq!(found.evaluated.len(), 96 + 32 * batches);
    assert!(
        batches <= 4 && (batches == 4 || found.stop == Stop::Converged),
        "{found:?}"
    );
    for pass in Pass::OF_A_BATCH {
        assert!(found.evaluated.iter().any(|it| it.pass == pass), "{pass:?}");
    }
    assert_eq!(found, run(&settings, 1));
    assert_ne!(found, run(&settings, 2));
}

#[test]
fn a_search_finds_nearly_what_trying_everything_finds() {
    let all: Vec<Point> = candidates()
        .into_iter()
        .map(toy)
        .map(|it| [it.time.0, it.energy.0])
        .collect();
    let reference = [0, 1].map(|at| 1.1 * all.iter().map(|it| it[at]).fold(0.0, f64::max));
    let whole = Staircase::new(&all, reference).hypervolume();
    let mut parts = Vec::new();
    for seed in 0..20 {
        let found = run(&Settings::for_computations(5), seed);
        let points: Vec<Point> = found
            .evaluated
            .iter()
            .map(|it| [it.measured.time.0, it.measured.energy.0])
            .collect();
        let part = Staircase::new(&points, reference).hypervolume() / whole;
        parts.push(part);
    }
    parts.sort_by(f64::total_cmp);
    assert!(
        parts[0] >= 0.97 && parts[9] >= 0.99 && parts[19] <= 1.0,
        "{parts:?}"
    );
}

#[test]
fn a_pass_that_is_left_out_chooses_nothing() {
    for pass in Pass::OF_A_BATCH {
        let settings = Settings::for_computations(5).without(pass);
        let found = run(&settings, 3);
        assert!(found.evaluated.iter().all(|it| it.pass != pass));
        let first = found.evaluated.iter().filter(|it| it.batch == 1).count();
        // Without the last pass nobody fills the places of candidates that two passes chose.
        let most = if pass == Pass::Uncertainty {
            16..=32
        } else {
            32..=32
        };
        assert!(most.contains(&first), "{pass:?}: {first}");
    }
}

#[test]
fn a_small_space_is_exhausted_and_a_failure_ends_the_search() {
    let few = &candidates()[..40];
    let settings = Settings::for_computations(1);
    let found = search(few, Watts(80.0), &settings, 0, |it, _| {
        Ok::<_, Infallible>(toy(it))
    })
    .unwrap();
    assert_eq!((found.evaluated.len(), found.stop), (40, Stop::Exhausted));
    let mut left = 50;
    let failed = search(few, Watts(80.0), &settings, 0, |it, _| {
        left -= 1;
        if left == 12 { Err("hot") } else { Ok(toy(it)) }
    });
    assert_eq!((failed.err(), left), (Some("hot"), 12));
}

/// A caller that measures elsewhere asks, measures, and asks again: it is the same search.
#[test]
fn a_search_can_be_driven_from_outside() {
    let settings = Settings::for_computations(5);
    let whole = run(&settings, 4);
    let mut known: Vec<(Candidate, Measurement)> = Vec::new();
    let mut sizes = Vec::new();
    let found = loop {
        match next(&candidates(), Watts(80.0), &settings, 4, &known) {
            Ok(found) => break found,
            Err(asked) => {
                sizes.push(asked.len());
                // The first time somebody is interrupted in the middle of a batch.
                let count = if sizes.len() == 1 { 10 } else { asked.len() };
                known.extend(asked[..count].iter().map(|&(it, _)| (it, toy(it))));
            }
        }
    };
    assert_eq!(found, whole);
    assert_eq!(sizes[..3], [96, 86, 32]);
}
