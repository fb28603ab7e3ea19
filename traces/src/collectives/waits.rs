//! How long each rank waits in matched collectives.

use litd_units::Nanos;

use super::{Entry, Matched};
use crate::groups::Groups;
use crate::spans::Spans;
use crate::timeline::{KernelClass, Timeline};

/// What one rank waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    /// In collectives of its own group.
    pub(crate) own: Nanos,
    /// The time in which it waits in any of those with ranks of other groups: other stages, mostly.
    pub(crate) stages: Nanos,
    /// In any of them, while it computes nothing.
    pub(crate) exposed: Nanos,
    /// In how many of its own group it takes part.
    pub(crate) own_collectives: usize,
    /// In how many of all.
    pub(crate) collectives: usize,
    /// In how many of them another rank of its group does.
    pub(crate) shared: usize,
}

/// How long the ranks of a group wait, in the order of its timelines.
#[derive(Debug, Clone, Default)]
pub struct GroupWaits {
    /// What names the straggler: the rank that waits least, in collectives of the group. Where some
    /// take part in collectives with other groups, only what nothing hides, there too: a rank that
    /// another stage made late has waited there.
    pub names: Vec<Nanos>,
    /// In any collectives, with nothing to compute.
    pub exposed: Vec<Nanos>,
    /// On average in a collective of the group; none where a rank may come late to those because
    /// another group kept it waiting.
    pub mean: Option<Vec<Nanos>>,
}

impl GroupWaits {
    /// None if no two of the ranks share a collective.
    pub(crate) fn of(waits: &[Waits]) -> Option<Self> {
        if !waits.iter().any(|waits| waits.shared > 0) {
            return None;
        }
        let each = |value: fn(&Waits) -> Nanos| waits.iter().map(value).collect::<Vec<Nanos>>();
        let crosses = waits.iter().any(|waits| waits.stages > Nanos::ZERO);
        let exposed = waits.iter().any(|waits| waits.exposed > Nanos::ZERO);
        let crosses = crosses && exposed;
        let mean = || {
            each(|waits| {
                let count = i64::try_from(waits.own_collectives).unwrap_or(i64::MAX);
                Nanos(waits.own.0 / count.max(1))
            })
        };
        Some(Self {
            names: match crosses {
                true => each(|waits| waits.exposed),
                false => each(|waits| waits.own),
            },
            exposed: each(|waits| waits.exposed),
            mean: (!crosses).then(mean),
        })
    }
}

/// How long the rank of each entry waits in a collective: until the last has come, and no longer
/// than its kernel took more than the shortest. A sender that need not wait does not.
pub(crate) fn in_one(row: &[Entry]) -> impl Iterator<Item = Nanos> {
    let last = row.iter().map(|entry| entry.start).max();
    let shortest = row.iter().map(|entry| entry.end - entry.start).min();
    let (last, shortest) = (last.unwrap_or_default(), shortest.unwrap_or_default());
    row.iter().map(move |entry| {
        let longer = entry.end - entry.start - shortest;
        (last - entry.start).min(longer).max(Nanos::ZERO)
    })
}

/// When one rank waits.
#[derive(Debug, Clone, Default)]
struct Waited {
    /// In collectives of its own group.
    own: Vec<(Nanos, Nanos)>,
    /// In those with ranks of other groups.
    stages: Vec<(Nanos, Nanos)>,
}

/// What each rank waits.
pub(crate) fn waits(timelines: &[Timeline], groups: &Groups, matched: &Matched<'_>) -> Vec<Waits> {
    let mut all = vec![Waits::default(); timelines.len()];
    let mut spans = vec![Waited::default(); timelines.len()];
    let group_of = Vec::from_iter((0..timelines.len()).map(|at| groups.of(at)));
    matched.each(|row| {
        let group = |entry: &Entry| group_of.get(entry.rank).copied();
        let first = row.first().and_then(group);
        let inside = row.iter().all(|entry| group(entry) == first);
        for (entry, wait) in row.iter().zip(in_one(row)) {
            let Some(waits) = all.get_mut(entry.rank) else {
                continue;
            };
            if inside {
                waits.own += wait;
                waits.own_collectives += 1;
            }
            waits.collectives += 1;
            let others = row.iter().filter(|other| group(other) == group(entry));
            waits.shared += usize::from(others.count() > 1);
            if wait > Nanos::ZERO
                && let Some(spans) = spans.get_mut(entry.rank)
            {
                let of_one = match inside {
                    true => &mut spans.own,
                    false => &mut spans.stages,
                };
                of_one.push((entry.start, entry.start + wait));
            }
        }
    });
    for ((waits, spans), timeline) in all.iter_mut().zip(spans).zip(timelines) {
        let Waited { own, mut stages } = spans;
        stages.sort_unstable();
        // Of several stages waited for at once each would count the same time.
        waits.stages = Spans::covered(stages.iter().copied());
        stages.extend(own);
        stages.sort_unstable();
        waits.exposed = exposed(&stages, timeline);
    }
    all
}

/// The time in these spans, which come in order, in which a rank computes nothing.
fn exposed(spans: &[(Nanos, Nanos)], timeline: &Timeline) -> Nanos {
    if spans.is_empty() {
        return Nanos::ZERO;
    }
    let kernels = timeline.kernels.iter();
    let computes = kernels.filter(|kernel| kernel.class == KernelClass::Computation);
    let computes = Spans::union(computes.map(|kernel| (kernel.start, kernel.end)));
    let waits = Spans::union(spans.iter().copied());
    let hidden = waits.iter().map(|(start, end)| computes.cover(start, end));
    Spans::covered(spans.iter().copied()) - hidden.sum()
}
