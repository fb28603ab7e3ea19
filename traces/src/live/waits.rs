//! How long all GPUs of a node wait at once in collectives that leave it.
//!
//! A GPU waits while it does nothing but collectives. Where all of a node's GPUs wait in collectives
//! with other nodes, nothing on this node is what the job waits for (or its network is). Which
//! collectives leave the node is not always known, so there are two answers: the time for which
//! that is certain, and the time for which it is possible.

use litd_units::Nanos;

/// What a kernel is, as far as waiting for other nodes goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// No collective: while it runs its GPU does not wait.
    Work,
    /// A collective all of whose ranks are on this node.
    Inside,
    /// A collective some of whose ranks are on other nodes.
    Outside,
    /// A collective of which that is not known.
    Unknown,
}

/// Spans of time that don't touch each other, in order.
type Spans = Vec<(Nanos, Nanos)>;

/// The waiting of one iteration, of the ranks that have been added.
#[derive(Debug, Clone, Default)]
pub struct Waits {
    /// Certainly all of them; `None` before the first.
    certain: Option<Spans>,
    /// Possibly all of them; `None` before the first whose collectives are seen.
    possible: Option<Spans>,
}

impl Waits {
    /// Adds a rank whose kernels show all its collectives: start, duration and reach of each, in
    /// any order.
    pub fn add(&mut self, kernels: impl Iterator<Item = (Nanos, Nanos, Reach)>) {
        let (mut work, mut outside, mut unknown) = (Spans::new(), Spans::new(), Spans::new());
        for (start, duration, reach) in kernels {
            let span = (start, start + duration.max(Nanos::ZERO));
            match reach {
                Reach::Work => work.push(span),
                Reach::Outside => outside.push(span),
                Reach::Unknown => unknown.push(span),
                Reach::Inside => {}
            }
        }
        let work = union(work);
        unknown.extend_from_slice(&outside);
        restrict(&mut self.certain, without(&union(outside), &work));
        restrict(&mut self.possible, without(&union(unknown), &work));
    }

    /// Adds a rank of whose collectives nothing is known.
    pub fn add_blind(&mut self) {
        self.certain = Some(Spans::new());
    }

    /// The memory that it takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let spans = self.certain.iter().chain(&self.possible);
        spans
            .map(|spans| spans.capacity() * size_of::<(Nanos, Nanos)>())
            .sum()
    }

    /// How long all ranks added certainly wait at once for other nodes.
    #[must_use]
    pub fn certain(&self) -> Nanos {
        self.certain.as_deref().map_or(Nanos::ZERO, total)
    }

    /// How long they do so at most; `None`: any time.
    #[must_use]
    pub fn possible(&self) -> Option<Nanos> {
        self.possible.as_deref().map(total)
    }
}

fn total(spans: &[(Nanos, Nanos)]) -> Nanos {
    spans.iter().map(|&(start, end)| end - start).sum()
}

/// Leaves what is in `spans`, too.
fn restrict(known: &mut Option<Spans>, spans: Spans) {
    let mut left = match known.take() {
        Some(known) => both(&known, &spans),
        None => spans,
    };
    left.shrink_to_fit();
    *known = Some(left);
}

fn union(mut spans: Spans) -> Spans {
    if !spans.is_sorted() {
        spans.sort_unstable();
    }
    let mut joined = Spans::new();
    for (start, end) in spans {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

/// What is in both.
fn both(these: &[(Nanos, Nanos)], those: &[(Nanos, Nanos)]) -> Spans {
    let (mut these, mut those) = (these.iter().peekable(), those.iter().peekable());
    let mut found = Spans::new();
    while let (Some(&&one), Some(&&other)) = (these.peek(), those.peek()) {
        let (start, end) = (one.0.max(other.0), one.1.min(other.1));
        if start < end {
            found.push((start, end));
        }
        // The one that ends first meets no other.
        match one.1 < other.1 {
            true => these.next(),
            false => those.next(),
        };
    }
    found
}

/// What is in these and not in those.
fn without(these: &[(Nanos, Nanos)], those: &[(Nanos, Nanos)]) -> Spans {
    let mut found = Spans::new();
    let mut next = 0;
    for &(mut start, end) in these {
        while those.get(next).is_some_and(|span| span.1 <= start) {
            next += 1;
        }
        // One that goes on beyond the end is met again.
        for &(from, to) in those.iter().skip(next).take_while(|span| span.0 < end) {
            if start < from {
                found.push((start, from));
            }
            start = start.max(to);
        }
        if start < end {
            found.push((start, end));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rank() -> impl Strategy<Value = Vec<(i64, i64, Reach)>> {
        let reach = prop::sample::select(vec![
            Reach::Work,
            Reach::Inside,
            Reach::Outside,
            Reach::Unknown,
        ]);
        prop::collection::vec((0_i64..60, 0_i64..12, reach), 0..12)
    }

    fn waits(ranks: &[Vec<(i64, i64, Reach)>]) -> Waits {
        let mut waits = Waits::default();
        for rank in ranks {
            let kernels = rank.iter();
            waits.add(kernels.map(|&(start, length, reach)| (Nanos(start), Nanos(length), reach)));
        }
        waits
    }

    proptest! {
        #[test]
        fn it_is_what_counting_each_nanosecond_says(ranks in prop::collection::vec(rank(), 1..5)) {
            let runs = |rank: &[(i64, i64, Reach)], at: i64, wanted: &[Reach]| {
                rank.iter().any(|&(start, length, reach)| {
                    wanted.contains(&reach) && (start..start + length).contains(&at)
                })
            };
            let waiting = |wanted: &[Reach]| {
                let all = |at: &i64| ranks.iter().all(|rank| {
                    runs(rank, *at, wanted) && !runs(rank, *at, &[Reach::Work])
                });
                Nanos((0..80).filter(all).count() as i64)
            };
            let found = waits(&ranks);
            prop_assert_eq!(found.certain(), waiting(&[Reach::Outside]));
            prop_assert_eq!(found.possible(), Some(waiting(&[Reach::Outside, Reach::Unknown])));
        }
    }

    #[test]
    fn a_rank_that_shows_nothing_leaves_what_the_others_allow() {
        let rank = vec![(0, 100, Reach::Work), (100, 20, Reach::Outside)];
        let mut waits = waits(&[rank]);
        assert_eq!(
            (waits.certain(), waits.possible()),
            (Nanos(20), Some(Nanos(20)))
        );
        waits.add_blind();
        assert_eq!(
            (waits.certain(), waits.possible()),
            (Nanos(0), Some(Nanos(20)))
        );
    }

    #[test]
    fn where_all_ranks_show_nothing_anything_is_possible() {
        let mut waits = Waits::default();
        waits.add_blind();
        assert_eq!((waits.certain(), waits.possible()), (Nanos(0), None));
    }
}
