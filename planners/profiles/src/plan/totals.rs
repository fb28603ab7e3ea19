//! Totals and frontiers that contradict the plan's own numbers, whatever an engine does.

use litd_units::Joules;

use super::check::TOLERANCE;
use super::{Contract, Origin};

/// Contradictions in the plan's totals and its frontier, in sentences.
pub(super) fn contradictions(plan: &Contract) -> impl Iterator<Item = String> {
    let totals = [until(plan), energy(plan)].into_iter().flatten();
    let frontier = plan.frontier.iter().flat_map(|it| frontier(it, plan));
    times(plan).into_iter().chain(totals).chain(frontier)
}

/// A GPU does its instructions one after the other: the iteration takes as long as they do.
fn times(plan: &Contract) -> Option<String> {
    let whole = plan.totals.time?.0;
    let sums = plan.stages.iter().map(|stage| {
        let own = stage.instructions.iter().filter_map(|it| it.time);
        (own.map(|it| it.0).sum::<f64>(), stage.stage)
    });
    let (longest, stage) = sums.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (whole < longest * (1.0 - TOLERANCE)).then(|| {
        format!("totals: time_ms is {whole}, and the instructions of stage {stage} alone take {longest} ms")
    })
}

/// All pipelines are done no earlier than this one.
fn until(plan: &Contract) -> Option<String> {
    let (time, until) = (plan.totals.time?.0, plan.totals.until?.0);
    (until < time * (1.0 - TOLERANCE)).then(|| {
        format!("totals: until_ms is {until}, before the iteration's own end at {time} ms")
    })
}

/// The GPUs' total energy includes that of their instructions.
fn energy(plan: &Contract) -> Option<String> {
    let whole = plan.totals.energy?.0;
    let own = plan.instructions().filter_map(|(_, it)| it.energy);
    let sum = own.map(|it| it.0).sum::<f64>();
    (whole < sum * (1.0 - TOLERANCE))
        .then(|| format!("totals: energy_j is {whole}, and all instructions together use {sum} J"))
}

fn frontier(origin: &Origin, plan: &Contract) -> Vec<String> {
    let mut found = Vec::new();
    if origin.shortest > origin.longest {
        let (shortest, longest) = (origin.shortest.0, origin.longest.0);
        found.push(format!(
            "frontier: its shortest time, {shortest} ms, is longer than its longest, {longest} ms"
        ));
    }
    let pairs = || origin.points.iter().zip(origin.points.iter().skip(1));
    if let Some((one, next)) = pairs().find(|(one, next)| next.0 < one.0) {
        let (one, next) = (one.0.0, next.0.0);
        found.push(format!(
            "frontier: its points are not in order of time: {next} ms comes after {one} ms"
        ));
        return found;
    }
    // Up to the cheapest time more of it saves energy; beyond, waiting may use more than is saved. What does not
    // count waiting falls all along the frontier.
    let before = origin.points.iter().filter(|it| it.0 <= origin.cheapest);
    let rises = rise(before.map(|it| (it.0.0, it.1)));
    let waiting = plan
        .blocking
        .map(|it| it.0 * plan.stages.len() as f64 * 1e-3);
    let without = waiting.and_then(|watts| {
        let points = origin.points.iter();
        rise(points.map(|it| (it.0.0, it.1 - Joules(watts * it.0.0))))
    });
    if let Some((from, to)) = rises {
        found.push(format!(
            "frontier: its energy rises from {from} to {to} ms, before its cheapest time"
        ));
    } else if let Some((from, to)) = without {
        found.push(format!(
            "frontier: its energy without waiting rises from {from} to {to} ms: the longer time never pays"
        ));
    }
    found
}

/// Between which times energy rises by more than numbers are rounded.
fn rise(points: impl Iterator<Item = (f64, Joules)>) -> Option<(f64, f64)> {
    let mut least: Option<(f64, f64)> = None;
    for (time, energy) in points {
        match least {
            Some((from, low)) if energy.0 > low + TOLERANCE * low.abs() => {
                return Some((from, time));
            }
            Some((_, low)) if energy.0 >= low => {}
            _ => least = Some((time, energy.0)),
        }
    }
    None
}
