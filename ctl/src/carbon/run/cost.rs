//! What this job's switches took, so that plans count with no less.

use litd_units::{Seconds, Tokens, TokensPerSecond};
use serde::{Deserialize, Serialize};

/// So many of the last switches count.
const KEPT: usize = 3;
/// No switch takes more seconds: that is three years.
const LONGEST: f64 = 1e8;

/// A sign that the job trains: a new number of tokens.
#[derive(Debug, Clone, Copy)]
struct Sign {
    at: Seconds,
    tokens: Tokens,
}

/// A switch under way.
#[derive(Debug, Clone, Copy)]
struct Open {
    /// The last sign before it, and how fast the job trained until it ended.
    before: Sign,
    rate: TokensPerSecond,
    /// The tokens that the next configuration began with, and how fast it trains.
    after: Option<(Tokens, TokensPerSecond)>,
}

/// The costs of the last switches: from the last sign of training before a switch to the first one after it, less
/// what the tokens in between take. Work that was lost, because no checkpoint was written, is part of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs(Vec<Seconds>);

/// Measures them. Times are of the clock that windows are counted by.
#[derive(Debug, Clone, Default)]
pub struct Meter {
    last: Option<Sign>,
    open: Option<Open>,
    /// When the job was started last, and how fast it trains.
    start: Option<(Seconds, TokensPerSecond)>,
}

impl Costs {
    /// The largest of the last ones.
    pub fn worst(&self) -> Option<Seconds> {
        self.0.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0))
    }

    fn push(&mut self, cost: Seconds) {
        self.0.push(cost);
        let old = self.0.len().saturating_sub(KEPT);
        self.0.drain(..old);
    }

    /// Whether each can be what a switch took.
    pub fn are_possible(&self) -> bool {
        self.0.iter().all(|it| (0.0..=LONGEST).contains(&it.0))
    }
}

impl Meter {
    /// A checkpoint was asked for, to switch from a configuration that trains so fast.
    pub fn asked(&mut self, rate: TokensPerSecond) {
        self.open = self.last.map(|before| Open {
            before,
            rate,
            after: None,
        });
    }

    /// A configuration began to train so fast from so many tokens. One that begins a second time after one request
    /// has crashed, and tells nothing of switches.
    pub fn started(&mut self, at: Seconds, tokens: Tokens, rate: TokensPerSecond) {
        self.start = Some((at, rate));
        self.open = self.open.filter(|it| it.after.is_none());
        if let Some(open) = &mut self.open {
            open.after = Some((tokens, rate));
        }
    }

    /// What the job that runs is likely to have trained since its last checkpoint, at the speed of its profile; a
    /// launch takes so long.
    pub fn unsaved(&self, now: Seconds, launch: Seconds) -> Tokens {
        let Some((start, rate)) = self.start else {
            return Tokens::ZERO;
        };
        let sign = self.last.map(|it| it.at).filter(|at| *at > start);
        let since = now - sign.unwrap_or(start + launch);
        rate * Seconds(since.0.max(0.0))
    }

    /// So many tokens are seen at a moment: whether that ended a switch, whose cost the costs have now.
    pub fn sees(&mut self, at: Seconds, tokens: Tokens, costs: &mut Costs) -> bool {
        if self.last.is_some_and(|it| tokens <= it.tokens) {
            return false;
        }
        self.last = Some(Sign { at, tokens });
        let Some((open, (began, rate))) = self.open.and_then(|it| Some((it, it.after?))) else {
            return false;
        };
        if tokens <= began {
            return false;
        }
        self.open = None;
        let trained = (began - open.before.tokens) / open.rate + (tokens - began) / rate;
        let cost = at - open.before.at - trained;
        costs.push(if cost > Seconds::ZERO {
            Seconds(cost.0.min(LONGEST))
        } else {
            Seconds::ZERO
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: TokensPerSecond = TokensPerSecond(100.0);
    const LEAN: TokensPerSecond = TokensPerSecond(50.0);

    /// Asked 10 s after a sign, a checkpoint with what was trained until then, the next sign 200 tokens later.
    fn switch(meter: &mut Meter, costs: &mut Costs, begin: f64, cost: f64, saved: f64) -> bool {
        let (at, tokens) = (Seconds(begin), Tokens(begin * 10.0));
        assert!(!meter.sees(at, tokens, costs));
        meter.asked(FAST);
        let began = tokens + Tokens(saved);
        assert!(!meter.sees(at + Seconds(11.0), began, costs));
        meter.started(at, began, LEAN);
        let training = Seconds(saved / 100.0 + 4.0);
        meter.sees(at + training + Seconds(cost), began + Tokens(200.0), costs)
    }

    #[test]
    fn what_is_not_saved_yet_is_what_was_trained_since_the_last_sign() {
        let (mut meter, mut costs) = (Meter::default(), Costs::default());
        let launch = Seconds(30.0);
        assert_eq!(meter.unsaved(Seconds(50.0), launch), Tokens::ZERO);
        meter.started(Seconds(100.0), Tokens::ZERO, FAST);
        assert_eq!(meter.unsaved(Seconds(120.0), launch), Tokens::ZERO);
        assert_eq!(meter.unsaved(Seconds(150.0), launch), Tokens(2000.0));
        meter.sees(Seconds(200.0), Tokens(7000.0), &mut costs);
        assert_eq!(meter.unsaved(Seconds(210.0), launch), Tokens(1000.0));
    }

    #[test]
    fn what_a_switch_took_is_what_was_not_trained_in() {
        let (mut meter, mut costs) = (Meter::default(), Costs::default());
        assert_eq!(costs.worst(), None);
        assert!(switch(&mut meter, &mut costs, 1000.0, 70.0, 1000.0));
        assert_eq!(costs.worst(), Some(Seconds(70.0)));
        // Nothing was saved: the ten seconds of training are lost.
        assert!(switch(&mut meter, &mut costs, 2000.0, 80.0, 0.0));
        assert_eq!(costs.worst(), Some(Seconds(80.0)));
        for begin in [3000.0, 4000.0, 5000.0] {
            assert!(switch(&mut meter, &mut costs, begin, 20.0, 500.0));
        }
        assert_eq!(costs.worst(), Some(Seconds(20.0)), "three are kept");
        // One that crashed in between is not counted.
        meter.asked(FAST);
        meter.started(Seconds(8000.0), Tokens(60_000.0), LEAN);
        meter.started(Seconds(8000.0), Tokens(60_000.0), LEAN);
        assert!(!meter.sees(Seconds(9000.0), Tokens(61_000.0), &mut costs));
        assert_eq!(costs.worst(), Some(Seconds(20.0)));
    }
}
