//! When the rings of a job are looked at, and which of its iterations become samples. Rings are written all the time,
//! so looking costs the job nothing, and litd little. Without I/O and without a clock.

use litd_units::Nanos;

use crate::rounds::Numbers;

/// So many iterations are to be seen in one look: the first and the last are cut, and to see that collectives come
/// again takes two.
const ITERATIONS: i64 = 4;

/// How long a look lasts at least: the unit of a GPU's clock takes a second to tell, and two make sure of that.
const SHORTEST: Nanos = Nanos(2_000_000_000);
/// And at most: clocks drift apart meanwhile, and a ring holds some seconds of a busy job.
const LONGEST: Nanos = Nanos(40_000_000_000);

/// A failure is told of once in so long, however many there are.
const QUIET: Nanos = Nanos(600_000_000_000);

/// The looks at the rings of one job.
#[derive(Debug, Clone)]
pub struct Looks {
    /// When the look began that is under way: only collectives from then on are in it.
    since: Nanos,
    lasts: Nanos,
    numbers: Numbers,
    /// The iteration that was the last sample.
    sampled: Option<u64>,
    /// When a failure was told of.
    told: Option<Nanos>,
}

impl Looks {
    /// The first begins now.
    #[must_use]
    pub fn new(now: Nanos) -> Self {
        Self {
            since: now,
            lasts: SHORTEST,
            numbers: Numbers::default(),
            sampled: None,
            told: None,
        }
    }

    /// Since when collectives are in the look that is under way.
    #[must_use]
    pub fn since(&self) -> Nanos {
        self.since
    }

    /// How long the look lasts.
    #[must_use]
    pub fn lasts(&self) -> Nanos {
        self.lasts
    }

    /// Whether the look has lasted long enough.
    #[must_use]
    pub fn is_over(&self, now: Nanos) -> bool {
        now >= self.since + self.lasts
    }

    /// The next look begins.
    pub fn begin(&mut self, now: Nanos) {
        self.since = now;
    }

    /// The number of the last iteration of a look, which began then by one rank's clock and took so long; there were so
    /// many.
    pub fn hear(&mut self, began: Nanos, took: Nanos, iterations: usize) -> u64 {
        let lasts = took.0.max(0).saturating_mul(ITERATIONS);
        self.lasts = Nanos(lasts).clamp(SHORTEST, LONGEST);
        self.numbers.next(began, took, iterations)
    }

    /// Whether that iteration is to be a sample, where one of so many is, from the iteration `first` on. It counts as
    /// the last one then.
    pub fn samples(&mut self, iteration: u64, first: u64, period: u64) -> bool {
        let last = self.sampled.map_or(0, |last| last.saturating_add(period));
        let is_due = period > 0 && iteration >= last.max(first);
        if is_due {
            self.sampled = Some(iteration);
        }
        is_due
    }

    /// The look has shown no iterations: the next one lasts longer. Returns whether that is to be told.
    pub fn fails(&mut self, now: Nanos) -> bool {
        self.lasts = Nanos(self.lasts.0.saturating_mul(2)).min(LONGEST);
        let is_news = self.told.is_none_or(|then| now >= then + QUIET);
        if is_news {
            self.told = Some(now);
        }
        is_news
    }
}
