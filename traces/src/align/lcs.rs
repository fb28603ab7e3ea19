//! The longest common subsequence of two sequences: Myers' greedy algorithm ("An O(ND)
//! difference algorithm and its variations", 1986) in its linear-space form, with a bound on
//! its work.

/// How much work may still be done, in steps of the innermost loop.
#[derive(Debug)]
pub(super) struct Budget(pub(super) u64);

impl Budget {
    /// Takes `steps`, or `None` if they are not left.
    pub(super) fn spend(&mut self, steps: usize) -> Option<()> {
        self.0 = self.0.checked_sub(steps as u64)?;
        Some(())
    }

    /// Does work that takes from another budget too, and stops where either is spent.
    pub(super) fn within<T>(
        &mut self,
        other: &mut Self,
        work: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let both = self.0.min(other.0);
        let mut left = Self(both);
        let done = work(&mut left);
        for budget in [self, other] {
            budget.0 -= both - left.0;
        }
        done
    }
}

/// The pairs of positions of a longest common subsequence, in order; `None` if that takes more
/// than the budget.
pub(super) fn lcs(a: &[u32], b: &[u32], budget: &mut Budget) -> Option<Vec<(u32, u32)>> {
    let mut search = Search {
        forward: Vec::new(),
        backward: Vec::new(),
        pairs: Vec::with_capacity(a.len().min(b.len())),
        budget,
    };
    search.solve(a, b, 0, 0)?;
    Some(search.pairs)
}

struct Search<'a> {
    /// Per diagonal the furthest position in `a` that was reached, from the front ...
    forward: Vec<i32>,
    /// ... and from the back, counted from the back.
    backward: Vec<i32>,
    pairs: Vec<(u32, u32)>,
    budget: &'a mut Budget,
}

impl Search<'_> {
    /// Adds the pairs of `a` and `b`, which begin at these positions of the whole sequences.
    /// Each level halves the number of differences, so the recursion is shallow.
    fn solve(&mut self, a: &[u32], b: &[u32], at_a: u32, at_b: u32) -> Option<()> {
        let head = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        let (a_rest, b_rest) = (&a[head..], &b[head..]);
        let tail = a_rest.iter().rev().zip(b_rest.iter().rev());
        let tail = tail.take_while(|(a, b)| a == b).count();
        self.budget.spend(head + tail + 1)?;
        self.run(at_a, at_b, head);
        let a_mid = &a_rest[..a_rest.len() - tail];
        let b_mid = &b_rest[..b_rest.len() - tail];
        let (at_a, at_b) = (at_a + head as u32, at_b + head as u32);
        // With one side empty nothing is common; else there are at least two differences, and
        // the middle splits them.
        if !a_mid.is_empty() && !b_mid.is_empty() {
            let (x, y) = self.middle(a_mid, b_mid)?;
            self.solve(&a_mid[..x], &b_mid[..y], at_a, at_b)?;
            self.solve(&a_mid[x..], &b_mid[y..], at_a + x as u32, at_b + y as u32)?;
        }
        self.run(at_a + a_mid.len() as u32, at_b + b_mid.len() as u32, tail);
        Some(())
    }

    /// Adds `length` pairs.
    fn run(&mut self, at_a: u32, at_b: u32, length: usize) {
        let steps = 0..length as u32;
        self.pairs
            .extend(steps.map(|step| (at_a + step, at_b + step)));
    }

    /// A point in the middle of a shortest path of differences from the front of both to their
    /// ends, found by walking from both sides until the walks meet.
    fn middle(&mut self, a: &[u32], b: &[u32]) -> Option<(usize, usize)> {
        let (n, m) = (a.len() as i32, b.len() as i32);
        let delta = n - m;
        let odd = delta % 2 != 0;
        let most = (n + m + 1) / 2;
        // Diagonals -most-1 to most+1.
        let zero = most + 1;
        let slot = |diagonal: i32| (diagonal + zero) as usize;
        for walk in [&mut self.forward, &mut self.backward] {
            walk.resize(walk.len().max(2 * zero as usize + 1), 0);
            walk[slot(0)] = 0;
        }
        for d in 0..=most {
            // What an earlier search left on a diagonal goes when the walks come near it: most
            // searches end long before they have seen all.
            for walk in [&mut self.forward, &mut self.backward] {
                (walk[slot(-d - 1)], walk[slot(d + 1)]) = (0, 0);
            }
            let mut steps = 2;
            // Diagonals outside the rectangle of both sequences lead nowhere.
            let diagonals = (-d + 2 * (d - m).max(0))..=(d - 2 * (d - n).max(0));
            for k in diagonals.clone().step_by(2) {
                let from = furthest(&self.forward, slot(k), k == -d, k == d);
                let (mut x, mut y) = (from, from - k);
                while x < n && y < m && a[x as usize] == b[y as usize] {
                    (x, y) = (x + 1, y + 1);
                }
                steps += (x - from) as usize + 1;
                self.forward[slot(k)] = x;
                if odd && (delta - k).abs() < d && x + self.backward[slot(delta - k)] >= n {
                    return Some((x as usize, y as usize));
                }
            }
            for k in diagonals.step_by(2) {
                let from = furthest(&self.backward, slot(k), k == -d, k == d);
                let (mut x, mut y) = (from, from - k);
                while x < n && y < m && a[(n - 1 - x) as usize] == b[(m - 1 - y) as usize] {
                    (x, y) = (x + 1, y + 1);
                }
                steps += (x - from) as usize + 1;
                self.backward[slot(k)] = x;
                if !odd && (delta - k).abs() <= d && x + self.forward[slot(delta - k)] >= n {
                    return Some(((n - x) as usize, (m - y) as usize));
                }
            }
            self.budget.spend(steps)?;
        }
        // The walks always meet before this; splitting nothing off would never end.
        None
    }
}

/// How far a diagonal is reached with one more difference than its neighbours took.
fn furthest(walk: &[i32], slot: usize, lowest: bool, highest: bool) -> i32 {
    let (below, above) = (walk[slot - 1], walk[slot + 1]);
    if lowest || (!highest && below < above) {
        above
    } else {
        below + 1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The length by the textbook's table.
    fn length_by_table(a: &[u32], b: &[u32]) -> usize {
        let mut row = vec![0; b.len() + 1];
        for x in a {
            let mut diagonal = 0;
            for (j, y) in b.iter().enumerate() {
                let above = row[j + 1];
                row[j + 1] = if x == y {
                    diagonal + 1
                } else {
                    above.max(row[j])
                };
                diagonal = above;
            }
        }
        row[b.len()]
    }

    #[test]
    fn equal_sequences_take_linear_work() {
        let a = Vec::from_iter(0..100_000);
        let mut budget = Budget(200_000);
        assert_eq!(lcs(&a, &a, &mut budget).unwrap().len(), a.len());
    }

    #[test]
    fn work_is_bounded() {
        let a = Vec::from_iter(0..10_000);
        let b = Vec::from_iter((0..10_000).rev());
        assert!(lcs(&a, &b, &mut Budget(1_000_000)).is_none());
    }

    proptest! {
        #[test]
        fn as_long_as_the_table_says(
            a in prop::collection::vec(0_u32..5, 0..60), b in prop::collection::vec(0_u32..5, 0..60)
        ) {
            let pairs = lcs(&a, &b, &mut Budget(u64::MAX)).unwrap();
            prop_assert_eq!(pairs.len(), length_by_table(&a, &b));
            prop_assert!(pairs.iter().all(|&(i, j)| a[i as usize] == b[j as usize]));
            prop_assert!(pairs.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1));
        }
    }
}
