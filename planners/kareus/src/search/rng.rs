//! Random numbers from a seed: integers only, so that a seed gives the same search on every machine.

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// The stream of a seed for one use of it, which a number names.
    pub(crate) fn stream(seed: u64, purpose: u64) -> Self {
        let mut first = Self(seed);
        Self(first.next() ^ Self(purpose).next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^ (it >> 31)
    }

    /// A number below `end`, which is not 0. Its bias is below end / 2^64.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// So many different numbers below `end`, or all of them, in random order.
    pub(crate) fn choose(&mut self, count: usize, end: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..end).collect();
        let count = count.min(end);
        for place in 0..count {
            let other = place + self.below(end - place);
            all.swap(place, other);
        }
        all.truncate(count);
        all
    }
}
