//! Profiles and schedules against the reference data.

use std::collections::BTreeSet;

use crate::common::{SIZES, read, reference};
use litd_planner::{Graph, Schedule};
use litd_profiles::{Pricing, Profile, Rounding, Shape, Spec};

/// Edges between operations, by what these are.
fn edges(graph: &Graph) -> BTreeSet<[(String, u32); 2]> {
    let name = |event: u32| {
        let operation = (event as usize - 2) / 2;
        let microbatch = graph.operations()[operation].microbatch;
        (graph.kind(operation).to_string(), microbatch)
    };
    let arcs = graph.arcs()[graph.operations().len()..].iter();
    arcs.filter(|arc| arc.from > 1 && arc.to > 1)
        .map(|arc| [name(arc.from), name(arc.to)])
        .collect()
}

#[test]
fn the_reference_graphs_are_1f1b() {
    let Some(folder) = reference() else { return };
    for (stages, microbatches) in SIZES {
        let file = folder.join(format!("dags/dag_n{stages}_m{microbatches}.csv"));
        let wanted: Graph = read(&file).parse().unwrap();
        let graph = Schedule::OneForwardOneBackward
            .graph(stages, microbatches)
            .unwrap();
        assert!(edges(&graph) == edges(&wanted), "{stages} x {microbatches}");
    }
}

#[test]
fn the_reference_costs_come_out_of_the_reference_profiles() {
    let Some(folder) = reference() else { return };
    let pricing = Pricing {
        rounding: Rounding::Down,
        shape: Shape::Exponential,
        ..Pricing::default()
    };
    for stages in [2, 4, 8] {
        let profile = read(&folder.join(format!("profiles/profile_n{stages}.csv")));
        let (spec, report) = profile.parse::<Profile>().unwrap().price(&pricing).unwrap();
        let wanted = read(&folder.join(format!("dags/spec_n{stages}_m8_tau1ms.json")));
        let wanted: Spec = wanted.parse().unwrap();
        for priced in report {
            let kind = &priced.kind;
            let (ours, theirs) = (spec.entry(kind).unwrap(), wanted.entry(kind).unwrap());
            assert_eq!((ours.tmin, ours.tmax), (theirs.tmin, theirs.tmax), "{kind}");
            let clocks = |entry: &litd_profiles::Entry| {
                let options = entry.options.clone().unwrap();
                options
                    .iter()
                    .map(|option| option.clock.0.round())
                    .collect::<Vec<_>>()
            };
            assert_eq!(clocks(ours), clocks(theirs), "{kind}");
            for (ours, theirs) in [(ours.a, theirs.a), (ours.b, theirs.b), (ours.c, theirs.c)] {
                let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
                assert!(
                    (ours / theirs - 1.0).abs() < 1e-4,
                    "{kind}: {ours}, not {theirs}"
                );
            }
            assert!(priced.quality.unwrap().explained > 0.99, "{priced:?}");
        }
    }
}
