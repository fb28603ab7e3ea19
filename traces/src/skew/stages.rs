//! Skew between ranks that do different work, such as the stages of a pipeline on several machines. Collectives that
//! all of them run are few or none, so transfers tell: nothing has come before it was sent, so a rank that has
//! received before its sender is done has a clock that is behind. Clocks are set right by no more than that says:
//! a transfer may also come late.

use std::collections::BTreeMap;
use std::ops::Range;

use litd_diagnosis::median;
use litd_units::Nanos;

use super::parts::{Part, from};
use super::{CLEAR, FEWEST, Skew, have_one_clock, kind_of, middle_and_deviation, shift};
use crate::collectives::{Entry, matched};
use crate::groups::{COALESCED, Groups};
use crate::timeline::Timeline;

/// Clocks this near are left as they are, in nanoseconds. A choice: a hundred transfers are off by a hundredth of a second at
/// most then, and clocks of one machine are nearer.
const NEAR: f64 = 100_000.0;

/// Ranks whose clock was ahead of the middle one's, and was set right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetRight {
    /// Where their timelines stand.
    pub range: Range<usize>,
    /// By how much it was ahead.
    pub ahead: Nanos,
}

/// Sets the clocks of a job's groups right against each other, where what they hand to each other says clearly that
/// these are apart. Ranks of one group keep theirs, unless they are the stages of one pipeline.
pub fn set_right(timelines: &mut [Timeline], groups: &Groups) -> Vec<SetRight> {
    let ranges = groups.all.iter().flat_map(|group| match group.pipeline {
        true => Vec::from_iter(group.range.clone().map(|at| at..at + 1)),
        false => vec![group.range.clone()],
    });
    let ranges = Vec::from_iter(ranges);
    if ranges.len() < 2 || have_one_clock(timelines) {
        return Vec::new();
    }
    let parts = parts(timelines, groups, &ranges);
    let Some(by_the_first) = from(0, ranges.len(), &parts) else {
        return Vec::new();
    };
    // The middle clock stays, so that as few as possible change.
    let mut order = Vec::from_iter(0..ranges.len());
    order.sort_by(|&a, &b| by_the_first[a].by.total_cmp(&by_the_first[b].by));
    let Some(ahead) = from(order[(order.len() - 1) / 2], ranges.len(), &parts) else {
        return Vec::new();
    };
    let wrong = ranges.into_iter().zip(ahead).filter(|(_, ahead)| {
        let far = ahead.by.abs();
        far > NEAR && far > CLEAR * ahead.off
    });
    let wrong = wrong.map(|(range, ahead)| SetRight {
        range,
        ahead: Nanos(ahead.by as i64),
    });
    let wrong = Vec::from_iter(wrong);
    for SetRight { range, ahead } in &wrong {
        let own = timelines.get_mut(range.clone()).unwrap_or_default();
        own.iter_mut().for_each(|timeline| shift(timeline, *ahead));
    }
    wrong
}

/// What two sets of ranks say of how far the clock of the second is ahead, in nanoseconds.
#[derive(Default)]
struct Bounds {
    /// At least so far: what the second handed to the first.
    least: Vec<f64>,
    /// At most so far: what the first handed to the second.
    most: Vec<f64>,
}

impl Bounds {
    /// The least that both allow, and how much transfers disagree about it; none where too few tell.
    fn ahead(self) -> Option<(f64, f64)> {
        let told = |bounds: Vec<f64>| {
            let enough = bounds.len() >= FEWEST;
            enough.then(|| middle_and_deviation(&bounds))
        };
        let (least, most) = (told(self.least), told(self.most));
        least.or(most)?;
        let least = least.filter(|(by, _)| *by > 0.0);
        let most = most.filter(|(by, _)| *by < 0.0);
        let told = least.or(most).filter(|_| least.is_none() || most.is_none());
        Some(told.unwrap_or_default())
    }
}

/// What each two sets of ranks say that hand something to each other.
fn parts(timelines: &[Timeline], groups: &Groups, ranges: &[Range<usize>]) -> Vec<Part> {
    let mut bounds = BTreeMap::<(usize, usize), Bounds>::new();
    let set_of = |entry: &Entry| ranges.iter().position(|range| range.contains(&entry.rank));
    matched(timelines, groups).each(|row| {
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
            let bounds = bounds.entry((first, second)).or_default();
            if one != Role::Sends {
                bounds.least.push(by);
            }
            if other != Role::Sends {
                bounds.most.push(by);
            }
        }
    });
    let part = |((first, second), bounds): ((usize, usize), Bounds)| {
        let (by, off) = bounds.ahead()?;
        Some(Part {
            members: vec![first, second],
            skew: Skew {
                ahead_ns: vec![Nanos::ZERO, Nanos(by as i64)],
                uncertainty_ns: vec![Nanos(off as i64); 2],
                ..Skew::default()
            },
        })
    };
    bounds.into_iter().filter_map(part).collect()
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
        name => kind_of(name).map(|_| Role::Receives),
    }
}
