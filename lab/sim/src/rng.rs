//! Noise from a seed. Every use has its own stream, derived from what it is for, so that
//! numbers don't depend on the order of calls; and the arithmetic is integers and exact sums, so
//! that the same seed gives the same bits on every machine (a logarithm would not).

/// xoshiro256++ 1.0 of Blackman and Vigna, seeded by splitmix64.
#[derive(Debug, Clone)]
pub struct Rng {
    state: [u64; 4],
}

/// A step of splitmix64: advances `state` and returns a well mixed number.
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The stream of `seed` that `path` names, such as (iteration, GPU).
    #[must_use]
    pub fn stream(seed: u64, path: &[u64]) -> Self {
        let mut state = seed;
        for &part in path {
            // Mixed before each part, so that (1, 2) and (2, 1) differ.
            state = splitmix64(&mut state) ^ part;
        }
        Self {
            state: std::array::from_fn(|_| splitmix64(&mut state)),
        }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = &mut self.state;
        let out = s0.wrapping_add(*s3).rotate_left(23).wrapping_add(*s0);
        let shifted = *s1 << 17;
        *s2 ^= *s0;
        *s3 ^= *s1;
        *s1 ^= *s2;
        *s0 ^= *s3;
        *s2 ^= shifted;
        *s3 = s3.rotate_left(45);
        out
    }

    /// Uniform in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Normal with mean 0 and deviation 1, as the sum of twelve uniform numbers of 16 bits:
    /// within 6 deviations always, close to the bell for noise of a few per cent, and exact.
    pub fn normal(&mut self) -> f64 {
        let mut sum = 0_u64;
        for _ in 0..3 {
            let bits = self.next_u64();
            sum +=
                (bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48);
        }
        // The mean of the sum is 12 x 65535 / 2.
        (sum as f64 - 393_210.0) / 65_536.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix64_gives_the_published_numbers() {
        let mut state = 1_234_567;
        let numbers: Vec<u64> = (0..3).map(|_| splitmix64(&mut state)).collect();
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(numbers, published);
    }

    #[test]
    fn xoshiro_gives_the_published_numbers() {
        let mut rng = Rng {
            state: [1, 2, 3, 4],
        };
        let published = [
            41_943_041,
            58_720_359,
            3_588_806_011_781_223,
            3_591_011_842_654_386,
        ];
        assert_eq!(published.map(|_| rng.next_u64()), published);
    }

    #[test]
    fn streams_differ_by_every_part_of_their_path() {
        let first = |seed, path: &[u64]| Rng::stream(seed, path).next_u64();
        assert_eq!(first(1, &[2, 3]), first(1, &[2, 3]));
        let others = [
            first(2, &[2, 3]),
            first(1, &[3, 2]),
            first(1, &[2, 4]),
            first(1, &[2]),
        ];
        assert!(others.iter().all(|&other| other != first(1, &[2, 3])));
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let mut rng = Rng::stream(7, &[]);
        let n = 200_000;
        let draws: Vec<(f64, f64)> = (0..n).map(|_| (rng.uniform(), rng.normal())).collect();
        let mean =
            |of: &dyn Fn(&(f64, f64)) -> f64| draws.iter().map(of).sum::<f64>() / f64::from(n);
        assert!((mean(&|d| d.0) - 0.5).abs() < 0.005);
        assert!((mean(&|d| d.0 * d.0) - 1.0 / 3.0).abs() < 0.005);
        assert!(mean(&|d| d.1).abs() < 0.01);
        assert!((mean(&|d| d.1 * d.1) - 1.0).abs() < 0.02);
        assert!((mean(&|d| f64::from(d.1.abs() > 1.96)) - 0.05).abs() < 0.005);
    }
}
