//! When to ask a provider again, what to keep of its answers, and when a value is stale.

use jiff::{SignedDuration, Timestamp};
use litd_units::Intensity;

use super::Reading;

/// Why there is no new reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The provider can't be reached or did not answer in time.
    Away(String),
    /// The provider refuses: 403, 429 and the like.
    Refused(String),
    /// The provider does not accept the credentials: 401.
    Unknown(String),
    /// The provider asks for a pause of so long: Retry-After.
    Limited(String, SignedDuration),
    /// The answer can't be used.
    Wrong(String),
}

impl Trouble {
    /// In words.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Away(text)
            | Self::Refused(text)
            | Self::Unknown(text)
            | Self::Limited(text, _)
            | Self::Wrong(text) => text,
        }
    }
}

/// Whether a value can be relied on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// The value is of the present step.
    Fresh,
    /// The last good value, older than the present step; and why there is none newer.
    Stale(String),
}

/// The last good value.
#[derive(Debug, Clone, PartialEq)]
pub struct Current {
    /// From when it holds.
    pub begin: Timestamp,
    /// The value.
    pub intensity: Intensity,
    /// Whether it can be relied on.
    pub health: Health,
}

/// Keeps the last good reading of one signal.
#[derive(Debug, Clone)]
pub struct Feed {
    good: Option<Reading>,
    trouble: Option<Trouble>,
    next: Timestamp,
    /// For how long the provider is left alone until then.
    pause: SignedDuration,
    failures: u32,
    /// A value is stale so long after its step began.
    stale_after: SignedDuration,
}

/// An answer is good for so long.
const CACHED: SignedDuration = SignedDuration::from_secs(60);
/// After a failure the provider is left alone for so long, each time twice as long, up to the longest.
const FIRST: SignedDuration = SignedDuration::from_secs(30);
const LONGEST: SignedDuration = SignedDuration::from_hours(1);
/// A provider that asks to be left alone for longer is asked after this all the same.
const LIMITED: SignedDuration = SignedDuration::from_hours(24);
/// A forecast older than this is not used.
const FORECAST: SignedDuration = SignedDuration::from_hours(24);
/// A provider's clock may be so much ahead of ours.
const AHEAD: SignedDuration = SignedDuration::from_mins(65);

impl Feed {
    /// A feed without a reading, which is asked for at once.
    #[must_use]
    pub fn new(stale_after: SignedDuration) -> Self {
        Self {
            good: None,
            trouble: None,
            next: Timestamp::MIN,
            pause: SignedDuration::ZERO,
            failures: 0,
            stale_after,
        }
    }

    /// Takes what was the last good reading before a restart.
    pub fn remember(&mut self, reading: Reading) {
        self.good = Some(reading);
    }

    /// When the provider is to be asked next.
    #[must_use]
    pub fn next(&self) -> Timestamp {
        self.next
    }

    /// Whether the provider has been asked, whatever it answered.
    #[must_use]
    pub fn has_been_asked(&self) -> bool {
        self.next > Timestamp::MIN
    }

    /// Whether the provider is to be asked: after the pause, or where the clock was set back meanwhile.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        now >= self.next || self.next.duration_since(now) > self.pause
    }

    /// Takes an answer, or why there is none. A reading that would go back in time, or that is of the future,
    /// is a trouble.
    pub fn take(&mut self, now: Timestamp, answer: Result<Reading, Trouble>) {
        let answer = answer.and_then(|reading| self.looked_at(now, reading));
        match answer {
            Ok(reading) => {
                self.good = Some(reading);
                self.trouble = None;
                self.failures = 0;
                self.leave(now, CACHED);
            }
            Err(trouble) => {
                let doubled = 2_i32.saturating_pow(self.failures.min(16));
                let mut pause = FIRST.saturating_mul(doubled).min(LONGEST);
                if let Trouble::Limited(_, asked) = trouble {
                    pause = pause.max(asked.min(LIMITED));
                }
                self.failures = self.failures.saturating_add(1);
                self.trouble = Some(trouble);
                self.leave(now, pause);
            }
        }
    }

    fn leave(&mut self, now: Timestamp, pause: SignedDuration) {
        self.next = later(now, pause);
        self.pause = pause;
    }

    fn looked_at(&self, now: Timestamp, reading: Reading) -> Result<Reading, Trouble> {
        let (begin, _) = reading.now;
        if begin > later(now, AHEAD) {
            return Err(Trouble::Wrong(format!(
                "the value is of {begin}, which is in the future"
            )));
        }
        let before = self.good.as_ref().map(|good| good.now.0);
        // Of a clock that was ahead and has been set back: what it had is of no moment that was.
        let before = before.filter(|before| *before <= later(now, AHEAD));
        match before {
            Some(before) if begin < before => Err(Trouble::Wrong(format!(
                "the value is of {begin}, before the last one, which is of {before}"
            ))),
            _ => Ok(reading),
        }
    }

    /// The last good reading.
    #[must_use]
    pub fn reading(&self) -> Option<&Reading> {
        self.good.as_ref()
    }

    /// The last good value, marked where it is stale; `None` before the first one: never a made-up number.
    #[must_use]
    pub fn current(&self, now: Timestamp) -> Option<Current> {
        let good = self.good.as_ref()?;
        let (begin, intensity) = good.now;
        let is_old = now > later(begin, self.stale_after)
            || begin > later(now, AHEAD)
            || now > later(good.issued, self.stale_after.max(FORECAST));
        let why = || {
            let trouble = self.trouble.as_ref().map(Trouble::text);
            trouble
                .unwrap_or("the provider has nothing newer")
                .to_owned()
        };
        Some(Current {
            begin,
            intensity,
            health: match is_old {
                true => Health::Stale(why()),
                false => Health::Fresh,
            },
        })
    }

    /// Why there is no newer reading.
    #[must_use]
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }
}

fn later(moment: Timestamp, span: SignedDuration) -> Timestamp {
    moment.saturating_add(span).unwrap_or(Timestamp::MAX)
}
