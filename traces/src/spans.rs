//! Unions of spans of time, and how much of a span they cover.

use litd_units::Nanos;

/// Disjoint spans in order, with the time covered before each.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    /// (start, end, time covered by the spans before).
    spans: Vec<(Nanos, Nanos, Nanos)>,
}

impl Spans {
    /// The union of spans that come in the order of their starts.
    pub(crate) fn union(sorted: impl Iterator<Item = (Nanos, Nanos)>) -> Self {
        let mut covered = Nanos::ZERO;
        let spans = joined(sorted).map(|(start, end)| {
            let before = covered;
            covered += end - start;
            (start, end, before)
        });
        Self {
            spans: spans.collect(),
        }
    }

    /// The spans, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Nanos, Nanos)> {
        self.spans.iter().map(|&(start, end, _)| (start, end))
    }

    /// The time that spans cover which come in the order of their starts.
    pub(crate) fn covered(sorted: impl Iterator<Item = (Nanos, Nanos)>) -> Nanos {
        joined(sorted).map(|(start, end)| end - start).sum()
    }

    /// The time covered from the beginning to `at`.
    pub(crate) fn until(&self, at: Nanos) -> Nanos {
        self.before(self.spans.partition_point(|span| span.0 <= at), at)
    }

    /// The time covered from the beginning to `at`, which the span `next` is the first to start
    /// after.
    fn before(&self, next: usize, at: Nanos) -> Nanos {
        let span = next.checked_sub(1).and_then(|last| self.spans.get(last));
        span.map_or(Nanos::ZERO, |&(start, end, before)| {
            before + (end.min(at) - start)
        })
    }

    /// How much of the span from `start` to `end` is covered.
    pub(crate) fn cover(&self, start: Nanos, end: Nanos) -> Nanos {
        self.until(end) - self.until(start)
    }

    /// For many covers, one after the other.
    pub(crate) fn walk(&self) -> Walk<'_> {
        Walk {
            spans: self,
            next: 0,
        }
    }

    /// The memory that the spans take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.spans.capacity() * size_of::<(Nanos, Nanos, Nanos)>()
    }

    /// Gives back memory that no span needs.
    pub(crate) fn shrink(mut self) -> Self {
        self.spans.shrink_to_fit();
        self
    }
}

/// Spans that come in the order of their starts, those joined that touch.
fn joined(
    mut sorted: impl Iterator<Item = (Nanos, Nanos)>,
) -> impl Iterator<Item = (Nanos, Nanos)> {
    let mut open = sorted.next();
    std::iter::from_fn(move || {
        let (start, mut end) = open?;
        open = loop {
            match sorted.next() {
                Some((next, until)) if next <= end => end = end.max(until),
                other => break other,
            }
        };
        Some((start, end))
    })
}

/// Looks things up in spans in the order of time.
pub(crate) struct Walk<'a> {
    spans: &'a Spans,
    /// The first span that starts after what was last asked for.
    next: usize,
}

impl Walk<'_> {
    /// As [`Spans::cover`], for a start that is not before the one asked for last.
    pub(crate) fn cover(&mut self, start: Nanos, end: Nanos) -> Nanos {
        self.next = self.after(start);
        self.spans.before(self.after(end), end) - self.spans.before(self.next, start)
    }

    /// The first span from `next` on that starts after `at`; near ones are found fast.
    fn after(&self, at: Nanos) -> usize {
        let rest = self.spans.spans.get(self.next..).unwrap_or_default();
        let mut reach = 1;
        while rest.get(reach - 1).is_some_and(|span| span.0 <= at) {
            reach *= 2;
        }
        let near = rest.get(reach / 2..reach.min(rest.len()));
        let inside = near.map_or(0, |near| near.partition_point(|span| span.0 <= at));
        self.next + (reach / 2).min(rest.len()) + inside
    }
}

/// `None` if there is nothing to divide by.
pub(crate) fn ratio(part: Nanos, whole: Nanos) -> Option<f64> {
    (whole > Nanos::ZERO).then(|| part.0 as f64 / whole.0 as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn covers_what_counting_each_nanosecond_says(
            mut spans in prop::collection::vec((0_i64..60, 0_i64..15), 0..12), from in 0_i64..70, length in 0_i64..30
        ) {
            spans.sort_unstable();
            let union = Spans::union(spans.iter().map(|&(s, l)| (Nanos(s), Nanos(s + l))));
            let covered = |t: &i64| spans.iter().any(|&(s, l)| (s..s + l).contains(t));
            let counted = (from..from + length).filter(covered).count() as i64;
            prop_assert_eq!(union.cover(Nanos(from), Nanos(from + length)), Nanos(counted));
            let all = Spans::covered(spans.iter().map(|&(s, l)| (Nanos(s), Nanos(s + l))));
            prop_assert_eq!(all, Nanos((0..100).filter(covered).count() as i64));
        }

        #[test]
        fn a_walk_covers_as_much(
            mut spans in prop::collection::vec((0_i64..60, 0_i64..5), 0..30),
            mut asked in prop::collection::vec((0_i64..70, 0_i64..70), 0..30)
        ) {
            spans.sort_unstable();
            asked.sort_unstable();
            let union = Spans::union(spans.iter().map(|&(s, l)| (Nanos(s), Nanos(s + l))));
            let mut walk = union.walk();
            for (from, length) in asked {
                let (from, to) = (Nanos(from), Nanos(from + length));
                prop_assert_eq!(walk.cover(from, to), union.cover(from, to));
            }
        }
    }
}
