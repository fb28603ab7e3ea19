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
        let mut spans: Vec<(Nanos, Nanos, Nanos)> = Vec::new();
        for (start, end) in sorted {
            match spans.last_mut() {
                Some((_, known, _)) if start <= *known => *known = end.max(*known),
                last => {
                    let before =
                        last.map_or(Nanos::ZERO, |(start, end, sum)| *sum + (*end - *start));
                    spans.push((start, end, before));
                }
            }
        }
        Self { spans }
    }

    /// The time covered from the beginning to `at`.
    pub(crate) fn until(&self, at: Nanos) -> Nanos {
        let next = self.spans.partition_point(|span| span.0 <= at);
        let span = next.checked_sub(1).and_then(|last| self.spans.get(last));
        span.map_or(Nanos::ZERO, |&(start, end, before)| {
            before + (end.min(at) - start)
        })
    }

    /// How much of the span from `start` to `end` is covered.
    pub(crate) fn cover(&self, start: Nanos, end: Nanos) -> Nanos {
        self.until(end) - self.until(start)
    }

    /// The time covered in all.
    pub(crate) fn total(&self) -> Nanos {
        self.until(Nanos(i64::MAX))
    }
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
            prop_assert_eq!(union.total(), Nanos((0..100).filter(covered).count() as i64));
        }
    }
}
