//! Skew between ranks that do different work, such as the stages of a pipeline on several machines. Collectives that
//! all of them run are few or none, so transfers tell: nothing has come before it was sent, so a rank that has
//! received before its sender is done has a clock that is behind. Clocks are set right by no more than that says:
//! a transfer may also come late.

use std::collections::BTreeMap;
use std::ops::Range;

use litd_diagnosis::median;
use litd_units::Nanos;

use super::parts::{Ahead, Part, from};
use super::{
    CLEAR, FEWEST, FEWEST_OF_FEW, Skew, ends_together, have_one_clock, middle_and_deviation, range,
};
use crate::collectives::{Entry, matched};
use crate::groups::{COALESCED, Groups};
use crate::timeline::Timeline;

/// Clocks this near are left as they are, in nanoseconds: the ends of what ranks do together are a few microseconds apart.
const NEAR: f64 = 10_000.0;

/// Ranks whose clock was ahead of the middle one's, and was set right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetRight {
    /// Where their timelines stand.
    pub range: Range<usize>,
    /// By how much it was ahead.
    pub ahead: Nanos,
}

/// What is known of the clocks of a job's groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clocks {
    /// Those that were set right.
    pub right: Vec<SetRight>,
    /// Whether some may be further apart all the same: nothing that was handed over tells, or what goes one way alone.
    pub unknown: bool,
}

/// Sets the clocks of a job's groups right against each other, where what they hand to each other says clearly that
/// these are apart. Ranks of one group keep theirs, unless they are the stages of one pipeline.
pub fn set_right(timelines: &mut [Timeline], groups: &Groups) -> Clocks {
    let ranges = groups.all.iter().flat_map(|group| match group.pipeline {
        true => Vec::from_iter(group.range.clone().map(|at| at..at + 1)),
        false => vec![group.range.clone()],
    });
    let ranges = Vec::from_iter(ranges);
    if ranges.len() < 2 || have_one_clock(timelines) {
        return Clocks::default();
    }
    let bounds = bounds(timelines, groups, &ranges);
    // What goes both ways is all that is needed, if it leads to all.
    let both_ways = bounds.iter().filter(|pair| pair.goes_both_ways());
    let both_ways = Vec::from_iter(both_ways.filter_map(Bounds::part));
    let unknown = from(0, ranges.len(), &both_ways).is_none();
    let parts = match unknown {
        true => bounds.iter().filter_map(Bounds::part).collect(),
        false => both_ways,
    };
    // Where no way leads to some, all are left as they are.
    let ahead = from_the_middle(ranges.len(), &parts).unwrap_or_default();
    let wrong = ranges.into_iter().zip(ahead);
    let wrong = wrong.filter(|(_, ahead)| ahead.by.abs() > NEAR);
    let wrong = wrong.map(|(range, ahead)| SetRight {
        range,
        ahead: Nanos(ahead.by as i64),
    });
    let right = Vec::from_iter(wrong);
    for SetRight { range, ahead } in &right {
        let own = timelines.get_mut(range.clone()).unwrap_or_default();
        own.iter_mut()
            .for_each(|timeline| timeline.shift(Nanos::ZERO - *ahead));
    }
    Clocks { right, unknown }
}

/// How far each clock is ahead of the middle one, which stays, so that as few as possible change; none where no way leads
/// to some.
fn from_the_middle(count: usize, parts: &[Part]) -> Option<Vec<Ahead>> {
    let by_the_first = from(0, count, parts)?;
    let mut order = Vec::from_iter(0..count);
    order.sort_by(|&a, &b| by_the_first[a].by.total_cmp(&by_the_first[b].by));
    from(*order.get(count.saturating_sub(1) / 2)?, count, parts)
}

/// What two sets of ranks say of how far the clock of the second is ahead, in nanoseconds.
struct Bounds {
    sets: [usize; 2],
    /// At least so far: what the second handed to the first.
    least: Vec<f64>,
    /// At most so far: what the first handed to the second.
    most: Vec<f64>,
}

impl Bounds {
    fn goes_both_ways(&self) -> bool {
        bound(&self.least).is_some() && bound(&self.most).is_some()
    }

    /// How far the clock of the second is ahead: no further than both allow, where that is clear. It may be off by what
    /// transfers disagree or, where they allow that clocks agree, by all that they allow. None where too few tell.
    fn part(&self) -> Option<Part> {
        let (least, most) = (bound(&self.least), bound(&self.most));
        least.or(most)?;
        let clear = |(by, off): &(f64, f64)| by.abs() > NEAR && by.abs() > CLEAR * off;
        let ahead = least.filter(|least| least.0 > 0.0 && clear(least));
        let behind = most.filter(|most| most.0 < 0.0 && clear(most));
        let far = |bound: Option<(f64, f64)>| bound.map_or(0.0, |(by, off)| by.abs() + off);
        let (by, off) = match (ahead, behind) {
            (Some(told), None) | (None, Some(told)) => told,
            // They contradict each other, or allow that clocks agree.
            _ => (0.0, far(least).max(far(most))),
        };
        Some(Part {
            members: self.sets.to_vec(),
            skew: Skew {
                ahead_ns: vec![Nanos::ZERO, Nanos(by as i64)],
                uncertainty_ns: vec![Nanos(off as i64); 2],
                ..Skew::default()
            },
        })
    }
}

/// What transfers say, and how far they disagree about it: of few by all that they differ; none of one alone.
fn bound(told: &[f64]) -> Option<(f64, f64)> {
    if told.len() < FEWEST_OF_FEW {
        return None;
    }
    let (by, off) = middle_and_deviation(told);
    let few = told.len() < FEWEST;
    Some((by, if few { range(told) } else { off }))
}

/// What each two sets of ranks say that hand something to each other.
fn bounds(timelines: &[Timeline], groups: &Groups, ranges: &[Range<usize>]) -> Vec<Bounds> {
    let mut bounds = BTreeMap::<[usize; 2], Bounds>::new();
    let sets = ranges.iter().enumerate();
    let sets = sets.flat_map(|(set, range)| range.clone().map(move |_| set));
    let sets = Vec::from_iter(sets);
    let set_of = |entry: &Entry| sets.get(entry.rank).copied();
    matched(timelines, groups).each(|row| {
        // Most are of one set.
        if row.windows(2).all(|two| set_of(&two[0]) == set_of(&two[1])) {
            return;
        }
        let mut ends = BTreeMap::<usize, Vec<&Entry>>::new();
        for entry in row {
            if let Some(set) = set_of(entry) {
                ends.entry(set).or_default().push(entry);
            }
        }
        let Some((&first, own)) = ends.first_key_value() else {
            return;
        };
        for (&second, others) in ends.iter().skip(1) {
            let told = told(timelines, own[0]).zip(told(timelines, others[0]));
            let Some((one, other)) = told else { return };
            let since = row[0].end;
            let by = end(others, since) - end(own, since);
            let sets = [first, second];
            let bounds = bounds.entry(sets).or_insert_with(|| Bounds {
                sets,
                least: Vec::new(),
                most: Vec::new(),
            });
            if one != Role::Sends {
                bounds.least.push(by);
            }
            if other != Role::Sends {
                bounds.most.push(by);
            }
        }
    });
    bounds.into_values().collect()
}

/// When the ranks of a set end one collective: that long after another time.
fn end(entries: &[&Entry], since: Nanos) -> f64 {
    let ends = entries.iter().map(|entry| (entry.end - since).0 as f64);
    median(ends.collect()).unwrap_or(0.0)
}

/// What a rank does in a collective.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It may be done before another has come.
    Sends,
    /// It is done when all that it waits for has come.
    Receives,
}

/// What the rank of an entry does; none in a collective that ranks leave each at its own time.
fn told(timelines: &[Timeline], entry: &Entry) -> Option<Role> {
    let timeline = timelines.get(entry.rank)?;
    let collective = timeline.collective_of(timeline.kernels.get(entry.kernel)?)?;
    match collective.name.as_deref()? {
        "send" => Some(Role::Sends),
        "recv" | COALESCED => Some(Role::Receives),
        name => ends_together(name).map(|_| Role::Receives),
    }
}
