//! How often a peer may send.

use litd_units::Nanos;

/// A token bucket that holds two seconds' worth unless said otherwise.
#[derive(Debug, Clone)]
pub struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled: Nanos,
}

impl Bucket {
    /// A full bucket of two seconds' worth.
    pub fn new(per_second: f64, now: Nanos) -> Self {
        Self::with_burst(per_second, per_second * 2.0, now)
    }

    /// A full bucket that holds so many tokens.
    pub fn with_burst(per_second: f64, burst: f64, now: Nanos) -> Self {
        Self {
            per_second,
            burst,
            tokens: burst,
            filled: now,
        }
    }

    /// The same at another rate, with what is in it now, or owed.
    pub fn becomes(&self, per_second: f64, burst: f64, now: Nanos) -> Self {
        Self {
            tokens: self.level(now).min(burst),
            filled: self.filled.max(now),
            per_second,
            burst,
        }
    }

    /// Takes one token, if there is one.
    pub fn take(&mut self, now: Nanos) -> bool {
        self.fill(now);
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }

    /// Takes so many tokens, whether there are as many or not: what is missing is made up for later.
    pub fn owe(&mut self, tokens: f64, now: Nanos) {
        self.fill(now);
        self.tokens -= tokens;
    }

    /// How many tokens there are.
    pub fn level(&self, now: Nanos) -> f64 {
        let mut filled = self.clone();
        filled.fill(now);
        filled.tokens
    }

    /// When there will be one; now, if there is.
    pub fn next(&mut self, now: Nanos) -> Nanos {
        self.fill(now);
        let lacks = (1.0 - self.tokens).max(0.0);
        // Rounded up, so that there is a token at that moment. `as` saturates.
        let wait = (lacks / self.per_second * 1e9).ceil() as i64;
        Nanos(self.filled.0.saturating_add(wait))
    }

    fn fill(&mut self, now: Nanos) {
        let passed = (now - self.filled).as_secs_f64().max(0.0);
        self.filled = self.filled.max(now);
        self.tokens = (self.tokens + passed * self.per_second).min(self.burst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_to_the_rate_and_a_burst_passes() {
        let mut bucket = Bucket::new(10.0, Nanos(0));
        let passed = (0..100).filter(|_| bucket.take(Nanos(0))).count();
        assert_eq!(passed, 20);
        let later = Nanos(1_000_000_000);
        let passed = (0..100).filter(|_| bucket.take(later)).count();
        assert_eq!(passed, 10);
        // At the time that it names there is a token.
        let next = bucket.next(later);
        assert!(next > later && next <= later + Nanos(100_000_001), "{next}");
        assert!(bucket.clone().take(next));
        // A clock that goes back gives nothing and takes nothing.
        assert!(!bucket.take(Nanos(0)));
    }
}
