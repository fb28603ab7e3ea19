//! Puts the traces of one job's ranks together, and refuses those that are not of one job.

#[cfg(feature = "formats")]
mod environment;

use std::collections::{BTreeMap, BTreeSet};

#[cfg(feature = "formats")]
pub(crate) use environment::Ranks;

use litd_units::Nanos;

use crate::error::ReadError;
use crate::gather::Trace;
use crate::timeline::{NonMax, Timeline};
use crate::wild;

/// The timelines of all traces in the order of their ranks, and all notes.
///
/// # Errors
/// Refuses ranks that are unknown (of several files), that occur twice, or that do not belong
/// together.
pub fn join(traces: Vec<Trace>) -> Result<(Vec<Timeline>, Vec<String>), ReadError> {
    let several = traces.len() > 1;
    let mut timelines = Vec::new();
    let mut notes = Vec::new();
    for trace in traces {
        if let (true, false, Some(timeline)) = (several, trace.rank_known, trace.timelines.first())
        {
            return Err(ReadError::UnknownRank {
                file: timeline.source.clone(),
            });
        }
        timelines.extend(trace.timelines);
        notes.extend(trace.notes);
    }
    timelines.sort_by_key(|timeline| timeline.rank);
    notes.extend(wild::leave_out(&mut timelines));
    check(&timelines)?;
    Ok((timelines, notes))
}

/// Leaves out iterations that not all ranks have, where all of them mark some: kernels of these match nothing.
/// Says which those are.
pub fn common_iterations(timelines: &mut [Timeline]) -> Option<String> {
    let numbers = timelines
        .iter()
        .map(|timeline| BTreeSet::from_iter(timeline.iteration_numbers()));
    let numbers = Vec::from_iter(numbers);
    let common = numbers.iter().cloned().reduce(|all, one| &all & &one)?;
    let all = numbers.iter().flatten().copied();
    let rest = Vec::from_iter(BTreeSet::from_iter(all).difference(&common).copied());
    if common.is_empty() || rest.is_empty() {
        return None;
    }
    // Ranks that lack the same ones are named together.
    let mut lacking = BTreeMap::<Vec<u32>, Vec<u32>>::new();
    for (timeline, numbers) in timelines.iter().zip(&numbers) {
        let lacks = rest.iter().filter(|number| !numbers.contains(number));
        let lacks = Vec::from_iter(lacks.copied());
        lacking.entry(lacks).or_default().push(timeline.rank);
    }
    for timeline in &mut *timelines {
        let is_common = |number: u32| common.contains(&number);
        timeline.keep(|kernel| kernel.iteration.map(NonMax::get).is_none_or(is_common));
        timeline.iterations.retain(|it| is_common(it.number));
    }
    let lacking = lacking.iter().filter(|(numbers, _)| !numbers.is_empty());
    let each = lacking.map(|(numbers, ranks)| {
        let (rank, lack) = match ranks.len() {
            1 => ("rank", "lacks"),
            _ => ("ranks", "lack"),
        };
        format!("{rank} {} {lack} {}", listed(ranks), listed(numbers))
    });
    let (iteration, are, them) = match rest.len() {
        1 => ("iteration", "is", "it"),
        _ => ("iterations", "are", "them"),
    };
    Some(format!(
        "{iteration} {} {are} left out, because not all ranks have {them}: {}",
        listed(&rest),
        each.collect::<Vec<_>>().join("; ")
    ))
}

/// Numbers in words; of very many the first ones.
fn listed(numbers: &[u32]) -> String {
    const SHOWN: usize = 8;
    let text = |numbers: &[u32]| Vec::from_iter(numbers.iter().map(u32::to_string)).join(", ");
    match numbers {
        [rest @ .., last] if !rest.is_empty() && numbers.len() <= SHOWN => {
            format!("{} and {last}", text(rest))
        }
        _ if numbers.len() <= SHOWN => text(numbers),
        _ => format!(
            "{} and {} more",
            text(numbers.get(..SHOWN).unwrap_or(numbers)),
            numbers.len() - SHOWN
        ),
    }
}

fn check(timelines: &[Timeline]) -> Result<(), ReadError> {
    if timelines.is_empty() {
        return Err(ReadError::NoTraces);
    }
    for timeline in timelines {
        if let Some(world_size) = timeline.world_size.filter(|&size| timeline.rank >= size) {
            let (file, rank) = (timeline.source.clone(), timeline.rank);
            return Err(ReadError::RankOutsideWorld {
                file,
                rank,
                world_size,
            });
        }
    }
    for (one, other) in timelines.iter().zip(timelines.iter().skip(1)) {
        if one.rank == other.rank {
            return Err(ReadError::DuplicateRank {
                rank: one.rank,
                first: one.source.clone(),
                second: match one.source == other.source {
                    true => "the same file, given twice,".to_owned(),
                    false => other.source.clone(),
                },
                successive: last_and_first(&[one, other]).is_some(),
            });
        }
    }
    let told = || {
        timelines
            .iter()
            .filter(|timeline| timeline.world_size.is_some())
    };
    for (one, other) in told().zip(told().skip(1)) {
        if let (Some(a), Some(b), true) = (
            one.world_size,
            other.world_size,
            one.world_size != other.world_size,
        ) {
            let why = format!("one is of a job of world size {a}, the other of one of {b}");
            return Err(strangers(one, other, why));
        }
    }
    check_times(timelines)?;
    check_iterations(timelines)
}

/// All ranks of a job run at the same time.
fn check_times(timelines: &[Timeline]) -> Result<(), ReadError> {
    match last_and_first(&Vec::from_iter(timelines)) {
        Some((late, early, gap)) => {
            // Recordings are often shorter than a second, and so is what lies between two.
            let gap = match gap < Nanos(1_000_000_000) {
                true => format!("{:.3} ms", gap.to_millis().0),
                false => format!("{:.3} s", gap.as_secs_f64()),
            };
            let why =
                format!("the kernels of the second end {gap} before those of the first start");
            Err(strangers(late, early, why))
        }
        None => Ok(()),
    }
}

/// Of recordings that don't overlap the last to start and the first to end, and what lies between.
fn last_and_first<'a>(timelines: &[&'a Timeline]) -> Option<(&'a Timeline, &'a Timeline, Nanos)> {
    let start = |timeline: &&&Timeline| timeline.kernels.first().map(|kernel| kernel.start);
    let end = |timeline: &&&Timeline| timeline.kernels.iter().map(|kernel| kernel.end).max();
    let late = timelines.iter().max_by_key(start)?;
    let early = timelines.iter().min_by_key(end)?;
    let gap = start(&late)? - end(&early)?;
    (gap > Nanos::ZERO).then_some((*late, *early, gap))
}

/// Where both of two ranks mark iterations, some must be the same.
fn check_iterations(timelines: &[Timeline]) -> Result<(), ReadError> {
    let numbers = |timeline: &Timeline| BTreeSet::from_iter(timeline.iteration_numbers());
    let mut marked = timelines
        .iter()
        .map(|timeline| (timeline, numbers(timeline)));
    let mut marked = marked.by_ref().filter(|(_, numbers)| !numbers.is_empty());
    let Some((first, mut common)) = marked.next() else {
        return Ok(());
    };
    for (timeline, numbers) in marked {
        common.retain(|number| numbers.contains(number));
        if common.is_empty() {
            let why = "they have no iteration in common (ProfilerStep marks)".into();
            return Err(strangers(first, timeline, why));
        }
    }
    Ok(())
}

fn strangers(first: &Timeline, second: &Timeline, why: String) -> ReadError {
    // Ranks of one file are told apart by their numbers.
    let named = |timeline: &Timeline| match first.source == second.source {
        true => format!("rank {} of {}", timeline.rank, timeline.source),
        false => timeline.source.clone(),
    };
    ReadError::Strangers {
        first: named(first),
        second: named(second),
        why,
    }
}
