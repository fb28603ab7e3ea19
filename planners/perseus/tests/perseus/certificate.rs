//! The checker of certificates finds what is wrong with them.

use litd_planner::certificate::{Certificate, Fault, check};
use litd_planner::{Frontier, Graph, Problem, Schedule};
use litd_profiles::{Pricing, Units, synthetic};

fn problem() -> Problem {
    let (spec, _) = synthetic::profile(4, 3).price(&Pricing::default()).unwrap();
    let curves = spec.curves().unwrap();
    let graph = Schedule::OneForwardOneBackward.graph(4, 6).unwrap();
    Problem::new(graph, |kind| curves.get(kind).cloned()).unwrap()
}

fn certificates(problem: &Problem) -> Vec<Certificate> {
    let mut all = Vec::new();
    Frontier::observed(problem, |state| all.push(state.certificate()));
    all
}

/// An arc of the middle of the certificate that carries something, the nth of such.
fn busy_arc(certificate: &Certificate, nth: usize) -> usize {
    let busy = |&(_, flow): &(usize, &i64)| *flow > 0;
    let arcs: Vec<_> = certificate.flows.iter().enumerate().filter(busy).collect();
    arcs[nth % arcs.len()].0
}

/// The arcs of a path from beginning to end that all carry something.
fn busy_path(graph: &Graph, certificate: &Certificate) -> Vec<usize> {
    let mut path = Vec::new();
    let mut at = Graph::SOURCE;
    while at != Graph::SINK {
        let leads_on = |&arc: &usize| graph.arcs()[arc].from == at && certificate.flows[arc] > 0;
        let arc = (0..graph.arcs().len()).find(leads_on).unwrap();
        path.push(arc);
        at = graph.arcs()[arc].to;
    }
    path
}

/// Makes a certificate wrong in one of ten ways.
fn corrupt(problem: &Problem, certificate: &mut Certificate, way: usize, nth: usize) {
    let graph = problem.graph();
    let operations = graph.operations().len();
    match way {
        // A flow that is not conserved.
        0 => certificate.flows[nth % graph.arcs().len()] += 1,
        1 => {
            let arc = busy_arc(certificate, nth);
            certificate.flows[arc] = 0;
        }
        // Conserved, but out of bounds.
        2 => certificate.flows.iter_mut().for_each(|flow| *flow *= 2),
        3 => certificate.flows.iter_mut().for_each(|flow| *flow = 0),
        4 => {
            let most = certificate.flows.iter().max().copied().unwrap();
            for arc in busy_path(graph, certificate) {
                certificate.flows[arc] -= most;
            }
        }
        // Another time or cost than the plan has.
        5 => certificate.time.0 -= 1,
        6 => certificate.above_least -= 1,
        // A plan that can't be, or is too slow.
        7 => certificate.durations[nth % operations] = Units(1000),
        8 => {
            let operations = 0..operations;
            let busy: Vec<_> = operations.filter(|&op| certificate.flows[op] > 0).collect();
            certificate.durations[busy[nth % busy.len()]].0 += 1;
        }
        // An event where it can't be.
        _ => {
            let event = 2 + nth % (graph.events() - 2);
            certificate.moments[event] = -1;
        }
    }
}

#[test]
fn a_hundred_planted_corruptions_are_rejected() {
    let problem = problem();
    let all = certificates(&problem);
    for number in 0..100 {
        let sound = &all[1 + number * (all.len() - 2) / 100];
        assert_eq!(check(&problem, sound), Ok(()));
        let mut corrupted = sound.clone();
        corrupt(&problem, &mut corrupted, number % 10, number * 7919);
        assert_ne!(&corrupted, sound, "corruption {number}");
        assert!(
            check(&problem, &corrupted).is_err(),
            "corruption {number} passed"
        );
    }
}

/// A plan that keeps to its time, costs what it says and is not the best one: the fastest.
#[test]
fn a_plan_that_is_possible_but_not_the_best_is_rejected() {
    let problem = problem();
    for certificate in certificates(&problem) {
        let graph = problem.graph();
        let shortest = |op: usize| problem.curve(op).shortest();
        let mut other = certificate.clone();
        other.durations = (0..graph.operations().len()).map(shortest).collect();
        let costs = other.durations.iter().enumerate();
        other.above_least = costs
            .map(|(op, &time)| problem.above_least(op, time).unwrap())
            .sum();
        let fault = check(&problem, &other).unwrap_err();
        assert!(
            matches!(fault, Fault::Bounds { .. } | Fault::Gap { .. }),
            "{fault}"
        );
    }
}

#[test]
fn a_certificate_of_another_graph_is_rejected() {
    let problem = problem();
    let certificate = certificates(&problem).swap_remove(0);
    let graph = Schedule::GPipe.graph(4, 5).unwrap();
    let curve = problem.curve(0).clone();
    let other = Problem::new(graph, |_| Some(curve.clone())).unwrap();
    let fault = check(&other, &certificate).unwrap_err();
    assert!(fault.to_string().contains("another graph"), "{fault}");
}
