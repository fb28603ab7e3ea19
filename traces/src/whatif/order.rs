//! In which order a job is replayed: as recorded, but what a rank does after a collective comes after all of its ranks
//! have come to it, whatever their clocks say.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use litd_units::Nanos;

use super::graph::{Rank, Rows};
use crate::timeline::Timeline;

/// On which rank something happens next, and whether a kernel starts there; else the host launches one. Each rank's launches
/// and kernels come in their own order. There are millions of these: what ranks beyond the 32,767th do stays as recorded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event(u16);

impl Event {
    fn of(rank: usize, starts: bool) -> Self {
        Self(u16::try_from(rank << 1).unwrap_or(u16::MAX) | u16::from(starts))
    }

    pub(super) fn rank(self) -> usize {
        usize::from(self.0 >> 1)
    }

    pub(super) fn starts(self) -> bool {
        self.0 & 1 == 1
    }
}

/// What happens next on a rank: when, whether a kernel starts, and the rank's place. Launches come first, then who has the
/// lower place.
type Next = (Nanos, bool, usize);

/// How far a rank has come.
struct Course<'a> {
    timeline: &'a Timeline,
    rank: &'a Rank,
    launch: usize,
    kernel: usize,
    /// Its kernels of collectives that end on no rank before all have come, in the order of their ends; and how many of these
    /// keep it no longer.
    ends: Vec<u32>,
    passed: usize,
}

impl<'a> Course<'a> {
    fn of(timeline: &'a Timeline, rank: &'a Rank, rows: &Rows) -> Self {
        let end = |&place: &u32| timeline.kernels.get(place as usize).map(|one| one.end);
        let keeps = |&place: &u32| {
            let meet = rank.meet(place as usize);
            meet.is_some_and(|meet| !meet.goes_on && rows.keeps(meet.row))
        };
        let mut ends = Vec::from_iter((0..).take(rank.nodes.len()).filter(keeps));
        ends.sort_by_key(end);
        Self {
            timeline,
            rank,
            launch: 0,
            kernel: 0,
            ends,
            passed: 0,
        }
    }

    /// When something happens next, and whether a kernel starts then.
    fn next(&self) -> Option<(Nanos, bool)> {
        let launch = self.rank.launches.get(self.launch).map(|launch| {
            let time = self.timeline.launch(launch.kernel as usize);
            (time.unwrap_or_default(), false)
        });
        let start = self.timeline.kernels.get(self.kernel);
        let start = start.map(|kernel| (kernel.start, true));
        [launch, start].into_iter().flatten().min()
    }

    /// The collective that ended before what happens next, or that this waits for, and to which not all ranks have come.
    fn kept(&mut self, (time, starts): (Nanos, bool), missing: &[u32]) -> Option<u32> {
        let own = self.rank.nodes.get(self.kernel).filter(|_| starts);
        let other = own.and_then(|own| self.timeline.kernels.get(own.other as usize));
        let until = other.map_or(time, |other| other.end.max(time));
        while let Some(&place) = self.ends.get(self.passed) {
            let own = self.timeline.kernels.get(place as usize)?;
            // A rank that has not come itself waits for nobody there.
            if own.end > until || place as usize >= self.kernel {
                return None;
            }
            let row = self.rank.meet(place as usize).map(|meet| meet.row);
            if row.is_some_and(|row| missing.get(row as usize).is_some_and(|&count| count > 0)) {
                return row;
            }
            self.passed += 1;
        }
        None
    }
}

/// All that happens, in order. Where ranks keep each other, which no clocks explain, the first goes on.
pub(super) fn order(ranks: &[Rank], timelines: &[Timeline], rows: &Rows) -> Vec<Event> {
    let both = timelines.iter().zip(ranks);
    let courses = both.map(|(timeline, rank)| Course::of(timeline, rank, rows));
    let mut courses = Vec::from_iter(courses);
    let mut missing = rows.members.clone();
    let mut kept = BTreeSet::<Next>::new();
    let mut by_row = HashMap::<u32, Vec<Next>>::new();
    let next = |at: usize, course: &Course<'_>| {
        let (time, starts) = course.next()?;
        Some((time, starts, at))
    };
    let first = courses.iter().enumerate();
    let first = first.filter_map(|(at, course)| next(at, course).map(Reverse));
    let mut heap = BinaryHeap::from_iter(first);
    let count = ranks.iter();
    let count = count.map(|rank| rank.launches.len() + rank.nodes.len());
    let mut events = Vec::with_capacity(count.sum());
    loop {
        let (own, is_kept) = match heap.pop() {
            Some(Reverse(own)) => (own, false),
            None => match kept.pop_first() {
                Some(own) => (own, true),
                None => return events,
            },
        };
        let (time, starts, at) = own;
        let Some(course) = courses.get_mut(at) else {
            continue;
        };
        if is_kept {
            course.passed += 1;
        } else if let Some(row) = course.kept((time, starts), &missing) {
            kept.insert(own);
            by_row.entry(row).or_default().push(own);
            continue;
        }
        events.push(Event::of(at, starts));
        if starts {
            let meet = course.rank.meet(course.kernel);
            course.kernel += 1;
            let count = meet.and_then(|meet| Some((meet.row, missing.get_mut(meet.row as usize)?)));
            if let Some((row, count)) = count {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    let free = by_row.remove(&row).into_iter().flatten();
                    heap.extend(free.filter(|own| kept.remove(own)).map(Reverse));
                }
            }
        } else {
            course.launch += 1;
        }
        heap.extend(next(at, course).map(Reverse));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Kernel, KernelClass};
    use crate::whatif::graph::Meet;

    /// The ranks in the order in which their kernels start: these are of collectives, each with its number, start and end.
    fn replayed(ranks: &[&[(u32, i64, i64)]]) -> Vec<usize> {
        let mut rows = Rows::default();
        let (mut timelines, mut known) = (Vec::new(), Vec::new());
        for kernels in ranks {
            let mut timeline = Timeline::default();
            let (name, stream) = (timeline.names.intern("all_reduce"), timeline.stream("7"));
            timeline.kernels = Vec::from_iter(kernels.iter().map(|&(_, start, end)| Kernel {
                name,
                stream,
                class: KernelClass::Communication,
                start: Nanos(start),
                end: Nanos(end),
                collective: None,
                iteration: None,
            }));
            let mut rank = Rank::of(&timeline);
            for (at, &(row, ..)) in kernels.iter().enumerate() {
                rank.add_meet(
                    at,
                    Meet {
                        row,
                        slack: 0,
                        goes_on: false,
                    },
                );
                let next = rows.members.len().max(row as usize + 1);
                rows.members.resize(next, 0);
                if let Some(count) = rows.members.get_mut(row as usize) {
                    *count += 1;
                }
            }
            timelines.push(timeline);
            known.push(rank);
        }
        let events = order(&known, &timelines, &rows);
        Vec::from_iter(events.into_iter().map(Event::rank))
    }

    #[test]
    fn what_comes_after_a_collective_waits_for_all_of_its_ranks() {
        // By their clocks the second rank comes when the first has left already, and goes on.
        assert_eq!(
            replayed(&[&[(0, 0, 9), (1, 10, 19)], &[(0, 5, 9), (1, 15, 19)]]),
            [0, 1, 0, 1]
        );
        let apart = replayed(&[&[(0, 0, 9), (1, 10, 19)], &[(0, 105, 109), (1, 115, 119)]]);
        assert_eq!(apart, [0, 1, 0, 1]);
    }

    #[test]
    fn ranks_that_keep_each_other_go_on_as_recorded() {
        let crossed = replayed(&[&[(0, 0, 9), (1, 20, 29)], &[(1, 1, 8), (0, 21, 28)]]);
        assert_eq!(crossed, [0, 1, 0, 1]);
        // A collective that one rank has twice never finds the other.
        let twice = replayed(&[&[(0, 0, 9), (0, 10, 19), (1, 20, 29)], &[(1, 15, 29)]]);
        assert_eq!(twice.len(), 4);
    }
}
