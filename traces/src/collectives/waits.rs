//! How long each rank waits in matched collectives.

use std::collections::HashMap;
use std::ops::Range;

use litd_units::Nanos;

use super::turns::{Lag, Turns};
use super::{Entry, Matched, step, table};
use crate::arrivals;
use crate::groups::{COALESCED, Group, Groups};
use crate::spans::Spans;
use crate::timeline::{Kernel, KernelClass, NameId, Timeline};

/// What one rank waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    /// In collectives of its own group.
    pub(crate) own: Nanos,
    /// The time in which it waits in any of those with ranks of other groups: other stages, mostly.
    pub(crate) stages: Nanos,
    /// In any of them, while it computes nothing.
    pub(crate) exposed: Nanos,
    /// In how many of all it takes part.
    pub(crate) collectives: usize,
    /// In how many of them another rank of its group does.
    pub(crate) shared: usize,
    /// In how many of its own group it takes part.
    own_collectives: usize,
    /// What it waits in those of its own group that find their ranks in step, and how many those are.
    in_step: (Nanos, usize),
}

/// What all ranks wait.
pub(crate) struct AllWaits {
    /// Each rank.
    pub(crate) ranks: Vec<Waits>,
    /// Of each group what its ranks wait in the collective of its own in which they wait most, by their
    /// places in the group.
    greatest: Vec<Vec<Nanos>>,
    /// Of each group a name of transfers that count as collectives of all its ranks and are none.
    transfers: Vec<Option<String>>,
    /// Of each group how its ranks come to its collectives, by their places in it.
    lags: Vec<Vec<Lag>>,
}

/// How long the ranks of a group wait, in the order of its timelines.
#[derive(Debug, Clone, Default)]
pub struct GroupWaits {
    /// What names the straggler: the rank that waits least, in collectives of the group. Where some
    /// take part in collectives with other groups, only what nothing hides, there too: a rank that
    /// another stage made late has waited there.
    pub names: Vec<Nanos>,
    /// In collectives of the group.
    pub own: Vec<Nanos>,
    /// In any collectives, with nothing to compute.
    pub exposed: Vec<Nanos>,
    /// On average in a collective of the group; none where a rank may come late to those because
    /// another group kept it waiting.
    pub mean: Option<Vec<Nanos>>,
    /// `names` without the one collective in which most is waited. None where ranks take part in
    /// collectives with other groups, which spread what they wait over many.
    pub without_one: Option<Vec<Nanos>>,
    /// `names` without the collectives that don't find their ranks in step, because recordings begin at
    /// different moments. None where there are no others, or no such, or as above.
    pub in_step: Option<Vec<Nanos>>,
    /// A name of transfers that count as collectives of all ranks and are none: most end on some ranks before they
    /// start on others. Nothing tells which ranks take part.
    pub transfers: Option<String>,
    /// How each rank comes to the collectives of the group that find their ranks in step; empty where none says that.
    pub lags: Vec<Lag>,
}

impl GroupWaits {
    /// Of the timelines in this range, which are one of the groups; none if no two of the ranks share a
    /// collective.
    pub(crate) fn of(all: &AllWaits, group: usize, range: Range<usize>) -> Option<Self> {
        let waits = all.ranks.get(range).unwrap_or_default();
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
        let names = match crosses {
            true => each(|waits| waits.exposed),
            false => each(|waits| waits.own),
        };
        let greatest = all.greatest.get(group).map_or(&[][..], Vec::as_slice);
        let rest = names.iter().zip(greatest).map(|(wait, one)| *wait - *one);
        let without_one = Vec::from_iter(rest);
        let some = waits.iter().any(|waits| waits.in_step.1 > 0);
        let fewer = waits
            .iter()
            .any(|waits| waits.in_step.1 < waits.own_collectives);
        let in_step = (some && fewer && !crosses).then(|| each(|waits| waits.in_step.0));
        Some(Self {
            without_one: (!crosses).then_some(without_one),
            in_step,
            transfers: all.transfers.get(group).cloned().flatten(),
            lags: all.lags.get(group).cloned().unwrap_or_default(),
            names,
            own: each(|waits| waits.own),
            exposed: each(|waits| waits.exposed),
            mean: (!crosses).then(mean),
        })
    }
}

/// How long the rank of each entry waits in a collective.
pub(crate) fn in_one(row: &[Entry]) -> impl Iterator<Item = Nanos> {
    arrivals::in_one(row, |entry| (entry.start, entry.end))
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
pub(crate) fn waits(timelines: &[Timeline], groups: &Groups, matched: &Matched<'_>) -> AllWaits {
    let mut all = vec![Waits::default(); timelines.len()];
    let mut spans = vec![Waited::default(); timelines.len()];
    let group_of = Vec::from_iter((0..timelines.len()).map(|at| groups.of(at)));
    let mut greatest = Vec::from_iter(groups.all.iter().map(Greatest::of));
    let mut transfers = Transfers::of(groups.all.len());
    let mut turns = Vec::from_iter(groups.all.iter().map(Turns::of));
    let mut in_step = step::in_step(matched).into_iter();
    // Of each group how many ranks take part; `Groups::of` is 0 where there are none.
    let mut counts = vec![0_usize; groups.all.len().max(1)];
    matched.each(|row| {
        let in_step = in_step.next().unwrap_or(true);
        let group = |entry: &Entry| group_of.get(entry.rank).copied();
        let first = row.first().and_then(group);
        let inside = row.iter().all(|entry| group(entry) == first);
        let places = || row.iter().filter_map(group);
        places().for_each(|group| counts[group] += 1);
        for (entry, wait) in row.iter().zip(in_one(row)) {
            let (Some(waits), Some(spans)) = (all.get_mut(entry.rank), spans.get_mut(entry.rank))
            else {
                continue;
            };
            let shared = usize::from(group(entry).is_some_and(|group| counts[group] > 1));
            waits.add(wait, shared, inside, in_step);
            if wait > Nanos::ZERO {
                let span = (entry.start, entry.start + wait);
                match inside {
                    true => spans.own.push(span),
                    false => spans.stages.push(span),
                }
            }
        }
        places().for_each(|group| counts[group] = 0);
        let own = first.filter(|_| inside);
        if let Some(greatest) = own.and_then(|group| greatest.get_mut(group)) {
            greatest.take(row);
        }
        if let Some(own) = own {
            transfers.take(timelines, row, own);
        }
        if let Some(turns) = own.and_then(|own| turns.get_mut(own)).filter(|_| in_step) {
            turns.take(timelines, row);
        }
    });
    for ((waits, spans), timeline) in all.iter_mut().zip(spans).zip(timelines) {
        waits.add_spans(spans, timeline);
    }
    AllWaits {
        ranks: all,
        greatest: greatest
            .into_iter()
            .map(|greatest| greatest.waits)
            .collect(),
        transfers: transfers.names(),
        lags: turns.into_iter().map(Turns::lags).collect(),
    }
}

/// Kernels that don't tell between which ranks they are, and that count as collectives of more than two ranks: transfers by
/// their names, and collectives that no rank leaves before all have come, of which some may be of some ranks only. NCCL does
/// all-to-alls with transfers as well; but none of these ends before all ranks have come.
struct Transfers {
    /// The place of a name among these, of the rank at a place; none of other names.
    known: HashMap<(usize, NameId), Option<usize>>,
    names: Vec<OfName>,
    groups: usize,
}

/// Kernels of one name in one group.
struct OfName {
    group: usize,
    name: String,
    all: usize,
    /// How many end on some rank before they start on another.
    apart: usize,
}

impl Transfers {
    fn of(groups: usize) -> Self {
        Self {
            known: HashMap::new(),
            names: Vec::new(),
            groups,
        }
    }

    fn take(&mut self, timelines: &[Timeline], row: &[Entry], group: usize) {
        let first = row.first().filter(|_| row.len() > 2);
        let timeline = first.and_then(|first| timelines.get(first.rank));
        let (Some(first), Some(timeline)) = (first, timeline) else {
            return;
        };
        let kernel = timeline.kernels.get(first.kernel);
        let untold = |kernel: &&Kernel| {
            let told = timeline.collective_of(kernel);
            told.is_none_or(|told| {
                told.process_group.is_none() || told.name.as_deref() == Some(COALESCED)
            })
        };
        let Some(kernel) = kernel.filter(untold) else {
            return;
        };
        let name = timeline.name_of(kernel);
        let names = &mut self.names;
        let known = self.known.entry((first.rank, kernel.name));
        let known = known.or_insert_with(|| {
            table::keeps_all(name).then(|| {
                names.push(OfName {
                    group,
                    name: name.into(),
                    all: 0,
                    apart: 0,
                });
                names.len() - 1
            })
        });
        let Some(own) = known.and_then(|at| names.get_mut(at)) else {
            return;
        };
        own.all += 1;
        let start = row.iter().map(|entry| entry.start).max();
        let end = row.iter().map(|entry| entry.end).min();
        if end < start {
            own.apart += 1;
        }
    }

    /// Of each group a name whose kernels are mostly no collectives of all its ranks.
    fn names(self) -> Vec<Option<String>> {
        let mut all = vec![None; self.groups];
        for own in self.names {
            let place = all.get_mut(own.group);
            if let Some(place) = place.filter(|place| place.is_none() && 2 * own.apart > own.all) {
                *place = Some(own.name);
            }
        }
        all
    }
}

impl Waits {
    /// Takes what is waited in one collective.
    fn add(&mut self, wait: Nanos, shared: usize, inside: bool, in_step: bool) {
        self.collectives += 1;
        self.shared += shared;
        if inside {
            self.own += wait;
            self.own_collectives += 1;
        }
        if inside && in_step {
            self.in_step.0 += wait;
            self.in_step.1 += 1;
        }
    }

    /// Takes when it was.
    fn add_spans(&mut self, spans: Waited, timeline: &Timeline) {
        let Waited { own, mut stages } = spans;
        stages.sort_unstable();
        // Of several stages waited for at once each would count the same time.
        self.stages = Spans::covered(stages.iter().copied());
        stages.extend(own);
        stages.sort_unstable();
        self.exposed = exposed(&stages, timeline);
    }
}

/// What the ranks of a group wait in the collective in which they wait most together.
struct Greatest {
    first: usize,
    total: Nanos,
    waits: Vec<Nanos>,
}

impl Greatest {
    fn of(group: &Group) -> Self {
        Self {
            first: group.range.start,
            total: Nanos::ZERO,
            waits: vec![Nanos::ZERO; group.range.len()],
        }
    }

    fn take(&mut self, row: &[Entry]) {
        let total = in_one(row).sum::<Nanos>();
        if total <= self.total {
            return;
        }
        self.total = total;
        self.waits.fill(Nanos::ZERO);
        for (entry, wait) in row.iter().zip(in_one(row)) {
            let place = entry.rank.checked_sub(self.first);
            if let Some(place) = place.and_then(|place| self.waits.get_mut(place)) {
                *place = wait;
            }
        }
    }
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
