//! Proofs that a point of the frontier is optimal, and their checker.
//!
//! The checker knows the graph and the costs, nothing of how a point was found. It rests on weak
//! duality: for any flow f of F quanta per unit from the iteration's beginning to its end, no
//! plan within time T costs less than the sum over operations of `min over t of cost(t) + f t`,
//! less F T. A plan that costs exactly that is optimal.

use thiserror::Error;

use crate::graph::Graph;
use crate::problem::Problem;
use litd_profiles::Units;

/// A point of the frontier with its proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The iteration's time.
    pub time: Units,
    /// The plan's cost in quanta, above the cost of everything at its longest.
    pub above_least: i64,
    /// The plan: how long each operation takes.
    pub durations: Vec<Units>,
    /// When each event happens, in units from the beginning.
    pub moments: Vec<i64>,
    /// The flow through each arc, in quanta per unit of time.
    pub flows: Vec<i64>,
}

/// Why a certificate proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Fault {
    #[error("it is for another graph: {what} {found}, not {wanted}")]
    Length {
        what: &'static str,
        found: usize,
        wanted: usize,
    },
    #[error("the iteration does not begin at 0 and end at {0}")]
    Ends(Units),
    #[error("operation {operation} can't take {time} units")]
    Duration { operation: usize, time: Units },
    #[error("arc {0} is shorter than what happens on it")]
    TooShort(usize),
    #[error("arc {arc} carries {flow}, which is outside its bounds")]
    Bounds { arc: usize, flow: i64 },
    #[error("the flow is not conserved at event {0}")]
    Conservation(usize),
    #[error("the plan costs {found} quanta, not {claimed}")]
    Cost { found: i128, claimed: i128 },
    #[error("the plan costs {primal} quanta, and only {dual} are proved necessary")]
    Gap { primal: i128, dual: i128 },
}

/// Checks that the plan keeps to its time, costs what it claims, and that no plan within that
/// time costs less.
///
/// # Errors
/// The first fault found.
pub fn check(problem: &Problem, certificate: &Certificate) -> Result<(), Fault> {
    check_lengths(problem.graph(), certificate)?;
    let primal = check_plan(problem, certificate)?;
    check_bounds(problem, certificate)?;
    let value = check_conservation(problem.graph(), certificate)?;
    let operations = 0..problem.graph().operations().len();
    let least = operations.map(|op| least_with_flow(problem, op, certificate.flows[op]));
    let dual = least.sum::<i128>() - value * i128::from(certificate.time.0);
    if primal != dual {
        return Err(Fault::Gap { primal, dual });
    }
    Ok(())
}

fn check_lengths(graph: &Graph, certificate: &Certificate) -> Result<(), Fault> {
    let Certificate {
        durations,
        moments,
        flows,
        ..
    } = certificate;
    for (what, found, wanted) in [
        ("durations", durations.len(), graph.operations().len()),
        ("moments", moments.len(), graph.events()),
        ("flows", flows.len(), graph.arcs().len()),
    ] {
        if found != wanted {
            return Err(Fault::Length {
                what,
                found,
                wanted,
            });
        }
    }
    Ok(())
}

/// The plan's cost, if it is possible within its time.
fn check_plan(problem: &Problem, certificate: &Certificate) -> Result<i128, Fault> {
    let Certificate {
        time,
        durations,
        moments,
        ..
    } = certificate;
    let ends = [Graph::SOURCE, Graph::SINK].map(|event| moments[event as usize]);
    if ends != [0, i64::from(time.0)] {
        return Err(Fault::Ends(*time));
    }
    for (number, arc) in problem.graph().arcs().iter().enumerate() {
        let apart = i128::from(moments[arc.to as usize]) - i128::from(moments[arc.from as usize]);
        let needed = durations.get(number).map_or(0, |duration| duration.0);
        if apart < i128::from(needed) {
            return Err(Fault::TooShort(number));
        }
    }
    let mut cost = 0;
    for (operation, &time) in durations.iter().enumerate() {
        let above_least = problem.above_least(operation, time);
        cost += i128::from(above_least.ok_or(Fault::Duration { operation, time })?);
    }
    let claimed = i128::from(certificate.above_least);
    if cost != claimed {
        return Err(Fault::Cost {
            found: cost,
            claimed,
        });
    }
    Ok(cost)
}

/// Between what a unit more would save and what a unit less would cost; slack carries nothing.
fn check_bounds(problem: &Problem, certificate: &Certificate) -> Result<(), Fault> {
    let Certificate {
        durations,
        moments,
        flows,
        ..
    } = certificate;
    for (number, arc) in problem.graph().arcs().iter().enumerate() {
        let flow = flows[number];
        let apart = moments[arc.to as usize] - moments[arc.from as usize];
        let needed = durations
            .get(number)
            .map_or(0, |duration| i64::from(duration.0));
        let (least, most) = match durations.get(number) {
            _ if apart > needed => (0, Some(0)),
            None => (0, None),
            Some(duration) => {
                let steps = problem.steps(number);
                let beyond = (duration.0 - problem.curve(number).shortest().0) as usize;
                let most = beyond.checked_sub(1).map(|index| steps[index]);
                (steps.get(beyond).copied().unwrap_or(0), most)
            }
        };
        if flow < least || most.is_some_and(|most| flow > most) {
            return Err(Fault::Bounds { arc: number, flow });
        }
    }
    Ok(())
}

/// How much flows from beginning to end.
fn check_conservation(graph: &Graph, certificate: &Certificate) -> Result<i128, Fault> {
    let mut stays = vec![0_i128; graph.events()];
    for (arc, &flow) in graph.arcs().iter().zip(&certificate.flows) {
        stays[arc.from as usize] -= i128::from(flow);
        stays[arc.to as usize] += i128::from(flow);
    }
    let value = stays[Graph::SINK as usize];
    stays[Graph::SINK as usize] = 0;
    stays[Graph::SOURCE as usize] += value;
    match stays.iter().position(|&stays| stays != 0) {
        Some(event) => Err(Fault::Conservation(event)),
        None => Ok(value),
    }
}

/// The least of `cost(t) + flow * t` over the times that an operation can take. The costs are
/// convex, so it is where a unit more saves no more than it is charged.
fn least_with_flow(problem: &Problem, operation: usize, flow: i64) -> i128 {
    let units = problem
        .steps(operation)
        .partition_point(|&step| step > flow);
    let time = Units(problem.curve(operation).shortest().0 + units as u32);
    let cost = problem.above_least(operation, time).unwrap_or(0);
    i128::from(cost) + i128::from(flow) * i128::from(time.0)
}
