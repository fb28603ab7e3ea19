//! Frontiers of random graphs against a solver that is not ours, and properties of all.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{problem, read};
use crate::scipy;
use litd_planner::{Frontier, Problem, certificate};
use litd_profiles::Units;
use proptest::prelude::*;
use serde_json::Value;

/// Compares frontiers with the optima of linear programs at many deadlines.
fn compare(cases: &str) -> usize {
    let cases: Vec<Value> = serde_json::from_str(cases).unwrap();
    for (number, case) in cases.iter().enumerate() {
        let problem = problem(case["dag"].as_str().unwrap(), &case["spec"].to_string()).unwrap();
        let frontier = Frontier::characterise(&problem);
        for optimum in case["optima"].as_array().unwrap() {
            let [deadline, wanted] = [0, 1].map(|index| optimum[index].as_f64().unwrap());
            let [below, above] = [deadline.floor(), deadline.ceil()];
            let costs = [below, above].map(|time| frontier.at(Units(time as u32)).cost.0);
            let cost = f64::midpoint(costs[0], costs[1]);
            let difference = (cost / wanted - 1.0).abs();
            assert!(
                difference < 1e-7,
                "case {number} at {deadline}: {cost}, not {wanted}"
            );
        }
        let ends = [frontier.shortest(), frontier.longest()].map(|end| f64::from(end.0));
        let optima = case["optima"].as_array().unwrap();
        let wanted = [&optima[0], &optima[optima.len() - 1]].map(|end| end[0].as_f64().unwrap());
        assert_eq!(ends, wanted, "case {number}");
    }
    cases.len()
}

fn beside(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// The output of tests/highs.py 1 12.
#[test]
fn the_optima_that_highs_found_come_out() {
    assert_eq!(compare(&read(&beside("testdata/highs.json"))), 12);
}

#[test]
fn highs_finds_the_same_optima_of_new_graphs() {
    let Some(python) = scipy::python("optima of new graphs") else {
        return;
    };
    let count = std::env::var("LITD_LP_GRAPHS").unwrap_or_else(|_| "60".into());
    let script = beside("tests/highs.py");
    let output = Command::new(python)
        .arg(script)
        .args(["2", &count])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let compared = compare(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(compared, count.parse::<usize>().unwrap());
}

/// A graph of so many operations of three kinds, with these edges from earlier to later ones.
fn graph(count: usize, edges: &[(usize, usize)]) -> String {
    let mut text = String::from("kind,a,b,c,d\n");
    for operation in 0..count {
        text += &format!(
            "node,{},{},0,0\n",
            operation + 2,
            ["f", "g", "h"][operation % 3]
        );
    }
    for (from, to) in edges {
        let (from, to) = (from % count, to % count);
        if from != to {
            text += &format!("edge,{},{}\n", from.min(to) + 2, from.max(to) + 2);
        }
    }
    text
}

fn spec(kinds: &[(f64, f64, u32, u32)]) -> String {
    let entries: Vec<String> = kinds
        .iter()
        .zip(["f", "g", "h"])
        .map(|(&(a, b, shortest, more), name)| {
            let longest = shortest + more;
            format!(r#""0,{name}": {{"a": {a}, "b": {b}, "c": 1, "tmin": {shortest}, "tmax": {longest}}}"#)
        })
        .collect();
    format!("{{{}}}", entries.join(","))
}

fn problems() -> impl Strategy<Value = Problem> {
    let edges = prop::collection::vec((0_usize..40, 0_usize..40), 0..120);
    let kind = (1e-3..1e6_f64, -2.0..-1e-4_f64, 0_u32..20, 0_u32..30);
    let kinds = prop::collection::vec(kind, 3);
    (1_usize..40, edges, kinds)
        .prop_map(|(count, edges, kinds)| problem(&graph(count, &edges), &spec(&kinds)).unwrap())
}

/// The public solver stops in the middle of a frontier where costs are large.
#[test]
fn costs_may_be_nanojoules_or_gigajoules() {
    let edges = [(0, 1), (1, 2), (0, 3), (3, 4), (4, 2), (2, 5)];
    let scaled = |scale: f64| {
        let kinds = [(120.0, 30, 18), (340.0, 59, 40), (80.0, 12, 9)];
        let kinds = kinds.map(|(a, shortest, more)| (a * scale, -0.1, shortest, more));
        let problem = problem(&graph(6, &edges), &spec(&kinds)).unwrap();
        let points: Vec<_> = Frontier::characterise(&problem).points().collect();
        points
    };
    let plain = scaled(1.0);
    assert!(plain.len() > 50);
    for scale in [1e-9, 1e5, 1e12] {
        let points = scaled(scale);
        assert_eq!(points.len(), plain.len());
        for (point, plain) in points.iter().zip(&plain) {
            // Six operations have a joule each that is not scaled.
            let wanted = (plain.cost.0 - 6.0) * scale + 6.0;
            assert!(
                (point.cost.0 / wanted - 1.0).abs() < 1e-9,
                "{point:?}, not {wanted}"
            );
        }
    }
}

proptest! {
    #[test]
    fn every_point_is_proved_optimal(problem in problems()) {
        let mut points = Vec::new();
        let mut faults = Vec::new();
        let mut plans = Vec::new();
        let frontier = Frontier::observed(&problem, |state| {
            let certificate = state.certificate();
            faults.extend(certificate::check(&problem, &certificate).err());
            points.push(state.point);
            plans.push(certificate.durations);
        });
        prop_assert_eq!(faults, []);
        prop_assert_eq!(frontier.points().collect::<Vec<_>>(), points.clone());
        // The plans that are kept are those that were proved.
        for (point, plan) in points.iter().zip(plans) {
            prop_assert_eq!(frontier.durations(&problem, point.time), plan);
        }
    }

    #[test]
    fn less_time_costs_more_and_more(problem in problems()) {
        let points: Vec<_> = Frontier::characterise(&problem).points().collect();
        for pair in points.windows(2) {
            prop_assert_eq!(pair[0].time.0, pair[1].time.0 + 1);
            prop_assert!(pair[1].cost >= pair[0].cost);
        }
        for three in points.windows(3) {
            let [first, then] = [1, 2].map(|at: usize| three[at].cost - three[at - 1].cost);
            prop_assert!(then.0 >= first.0 - 1e-9 * three[2].cost.0);
        }
    }
}
