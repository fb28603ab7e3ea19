//! Costs of this job's switches, so that plans count with no less, and its training rates in
//! between.

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

/// The traces of a switch: the last sign before it, and how fast the job trained until it ended.
#[derive(Debug, Clone, Copy)]
struct Left {
    last: Sign,
    rate: TokensPerSecond,
}

/// A start of the job, and what was seen of it since.
#[derive(Debug, Clone, Copy)]
struct Run {
    configuration: usize,
    began: Sign,
    /// How fast it was believed to train.
    rate: TokensPerSecond,
    first: Option<Sign>,
    /// The switch that it ended, until its cost is known.
    switch: Option<Left>,
    /// Whether it was asked to end: what comes after is no training.
    is_asked: bool,
}

/// The costs of the last switches: from the last sign of training before a switch to the first one after it, less
/// what the tokens in between take. Work that was lost, because no checkpoint was written, is part of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs(Vec<Seconds>);

/// The finding from a sign.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Found {
    /// The cost of a switch, and its configuration.
    pub cost: Option<(usize, Seconds)>,
    /// The tokens that a configuration trained, and the time.
    pub trained: Option<(usize, Tokens, Seconds)>,
}

/// Measures both. Times are of the clock that windows are counted by.
#[derive(Debug, Clone, Default)]
pub struct Meter {
    last: Option<Sign>,
    run: Option<Run>,
    /// A switch under way.
    leaving: Option<Left>,
    /// The longest time between two signs that nobody asked for.
    longest: Seconds,
}

impl Costs {
    /// The largest of the last ones.
    pub fn worst(&self) -> Option<Seconds> {
        self.0.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0))
    }

    pub fn push(&mut self, cost: Seconds) {
        self.0.push(cost);
        let old = self.0.len().saturating_sub(KEPT);
        self.0.drain(..old);
    }

    /// Whether each can be what a switch took.
    pub fn are_possible(&self) -> bool {
        self.0.iter().copied().all(is_switch)
    }
}

/// Whether a switch can take so long.
pub fn is_switch(cost: Seconds) -> bool {
    (0.0..=LONGEST).contains(&cost.0)
}

impl Run {
    /// The cost of the switch that this run ended, if it trains so fast.
    fn cost(&self, rate: TokensPerSecond) -> Option<(usize, Seconds)> {
        let (left, first) = (self.switch?, self.first?);
        let before = (self.began.tokens - left.last.tokens) / left.rate;
        let after = (first.tokens - self.began.tokens) / rate;
        let cost = first.at - left.last.at - before - after;
        Some((self.configuration, Seconds(cost.0.clamp(0.0, LONGEST))))
    }
}

/// How fast so many tokens in so much time are.
pub fn rate(tokens: Tokens, time: Seconds) -> TokensPerSecond {
    TokensPerSecond(tokens.0 / time.0)
}

impl Meter {
    /// The configuration that was started last.
    pub fn running(&self) -> Option<usize> {
        self.run.map(|it| it.configuration)
    }

    /// A checkpoint was asked for, of a configuration that trains so fast.
    pub fn asked(&mut self, rate: TokensPerSecond) {
        if let Some(run) = &mut self.run {
            run.is_asked = true;
        }
        self.leaving = self.last.map(|last| Left { last, rate });
    }

    /// A configuration began to train from so many tokens, and is believed to be so fast. One that begins a second time
    /// after one request has crashed, and tells nothing of switches.
    ///
    /// A run before it that wrote one checkpoint only, after a time that is long, tells less of its rate than one that
    /// wrote several: its launch is part of the time.
    pub fn started(
        &mut self,
        at: Seconds,
        tokens: Tokens,
        (configuration, rate): (usize, TokensPerSecond),
        long: Seconds,
    ) -> Found {
        let before = self.run.replace(Run {
            configuration,
            began: Sign { at, tokens },
            rate,
            first: None,
            switch: self.leaving.take(),
            is_asked: false,
        });
        let Some((run, first)) = before.and_then(|run| Some((run, run.first?))) else {
            return Found::default();
        };
        let is_only = self.last.is_some_and(|last| last.tokens <= first.tokens);
        let (tokens, time) = (first.tokens - run.began.tokens, first.at - run.began.at);
        Found {
            cost: run.cost(run.rate),
            trained: (is_only && time >= long).then_some((run.configuration, tokens, time)),
        }
    }

    /// The tokens that the running job has probably trained since its last checkpoint, at this rate and launch time.
    /// More than twice the longest time between two checkpoints is not believed: a job that hangs trains nothing. A job
    /// that writes none by itself is believed to train all the time, for nothing tells otherwise.
    pub fn unsaved(&self, now: Seconds, launch: Seconds, rate: TokensPerSecond) -> Tokens {
        let since = self.silent(now, launch).unwrap_or(Seconds::ZERO);
        let believed = self.most().map_or(since, |most| since.min(most));
        rate * believed.max(Seconds::ZERO)
    }

    /// For how long the job that runs has shown no sign of training; none where none runs.
    pub fn silent(&self, now: Seconds, launch: Seconds) -> Option<Seconds> {
        let run = self.run?;
        let sign = self.last.map(|it| it.at).filter(|at| *at > run.began.at);
        Some(now - sign.unwrap_or(run.began.at + launch))
    }

    /// For how long a job is believed to train without a sign of it, where it gives signs by itself.
    fn most(&self) -> Option<Seconds> {
        (self.longest > Seconds::ZERO).then_some(self.longest * 2.0)
    }

    /// After how long without a sign it is asked whether the job trains.
    pub fn believed(&self, window: Seconds) -> Seconds {
        self.most().unwrap_or(window)
    }

    /// So many tokens are seen at a moment. What a switch took is known with the second checkpoint after it, which tells
    /// how fast the job trains.
    ///
    /// What is trained within `slow` after a start tells no rate: a launch and the first minutes are slower.
    pub fn sees(&mut self, at: Seconds, tokens: Tokens, slow: Seconds) -> Found {
        let sign = Sign { at, tokens };
        let last = self.last;
        if last.is_some_and(|it| tokens <= it.tokens) {
            return Found::default();
        }
        self.last = Some(sign);
        let mut found = Found::default();
        let Some(run) = self.run.as_mut().filter(|it| tokens > it.began.tokens) else {
            return found;
        };
        let since = match (run.first, last) {
            (Some(first), Some(last)) => {
                let (trained, time) = (tokens - last.tokens, at - last.at);
                if !run.is_asked && time > Seconds::ZERO {
                    let is_steady = last.at - run.began.at >= slow;
                    found.trained = is_steady.then_some((run.configuration, trained, time));
                    found.cost = run.cost(rate(tokens - first.tokens, at - first.at));
                    run.switch = found.cost.map_or(run.switch, |_| None);
                }
                time
            }
            _ => {
                run.first = Some(sign);
                at - run.began.at
            }
        };
        // What it was asked for tells nothing of how often it writes one by itself.
        if !run.is_asked && since > self.longest {
            self.longest = since;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: TokensPerSecond = TokensPerSecond(100.0);
    const LEAN: TokensPerSecond = TokensPerSecond(50.0);
    const HOUR: Seconds = Seconds(3600.0);

    /// Asked 10 s after a sign, a checkpoint with what was trained until then, and two signs of 200 tokens later; the
    /// configuration trains half as fast as it was believed to.
    fn switch(meter: &mut Meter, begin: f64, cost: f64, saved: f64) -> Option<f64> {
        let (at, tokens) = (Seconds(begin), Tokens(begin * 10.0));
        assert_eq!(meter.sees(at, tokens, Seconds::ZERO).cost, None);
        meter.asked(FAST);
        let began = tokens + Tokens(saved);
        meter.sees(at + Seconds(11.0), began, Seconds::ZERO);
        assert_eq!(meter.started(at, began, (1, FAST), HOUR), Found::default());
        let first = at + Seconds(saved / 100.0 + 4.0 + cost);
        assert_eq!(
            meter.sees(first, began + Tokens(200.0), Seconds::ZERO),
            Found::default()
        );
        let found = meter.sees(first + Seconds(4.0), began + Tokens(400.0), Seconds::ZERO);
        assert_eq!(found.trained, Some((1, Tokens(200.0), Seconds(4.0))));
        found.cost.map(|it| it.1.0)
    }

    #[test]
    fn what_is_not_saved_yet_is_what_was_trained_since_the_last_sign() {
        let mut meter = Meter::default();
        let launch = Seconds(30.0);
        let unsaved = |meter: &Meter, now: f64| meter.unsaved(Seconds(now), launch, FAST);
        assert_eq!(unsaved(&meter, 50.0), Tokens::ZERO);
        meter.started(Seconds(100.0), Tokens::ZERO, (0, FAST), HOUR);
        assert_eq!(unsaved(&meter, 120.0), Tokens::ZERO);
        assert_eq!(unsaved(&meter, 150.0), Tokens(2000.0));
        // As long as it has written no checkpoint by itself nothing tells that it hangs.
        assert_eq!(unsaved(&meter, 90_130.0), Tokens(9e6));
        meter.asked(FAST);
        meter.sees(Seconds(160.0), Tokens(3000.0), Seconds::ZERO);
        assert_eq!(unsaved(&meter, 90_160.0), Tokens(9e6));
        meter.started(Seconds(160.0), Tokens(3000.0), (0, FAST), HOUR);
        meter.sees(Seconds(200.0), Tokens(7000.0), Seconds::ZERO);
        assert_eq!(unsaved(&meter, 210.0), Tokens(1000.0));
        assert_eq!(unsaved(&meter, 90_000.0), Tokens(8000.0));
    }

    #[test]
    fn what_a_switch_took_is_what_was_not_trained_in() {
        let (mut meter, mut costs) = (Meter::default(), Costs::default());
        assert_eq!(costs.worst(), None);
        assert_eq!(switch(&mut meter, 1000.0, 70.0, 1000.0), Some(70.0));
        // No checkpoint was saved: the ten seconds of training are lost.
        assert_eq!(switch(&mut meter, 2000.0, 80.0, 0.0), Some(80.0));
        for cost in [80.0, 20.0, 20.0, 20.0] {
            costs.push(Seconds(cost));
        }
        assert_eq!(costs.worst(), Some(Seconds(20.0)), "three are kept");
        // A run that crashed in between is not counted.
        meter.asked(FAST);
        meter.started(Seconds(8000.0), Tokens(60_000.0), (1, LEAN), HOUR);
        meter.started(Seconds(8000.0), Tokens(60_000.0), (1, LEAN), HOUR);
        meter.sees(Seconds(9000.0), Tokens(61_000.0), Seconds::ZERO);
        assert_eq!(
            meter
                .sees(Seconds(9100.0), Tokens(62_000.0), Seconds::ZERO)
                .cost,
            None
        );
    }

    #[test]
    fn the_first_minutes_tell_no_rate() {
        let mut meter = Meter::default();
        let slow = Seconds(600.0);
        meter.started(Seconds::ZERO, Tokens::ZERO, (0, FAST), HOUR);
        for (at, tokens, trained) in [
            (300.0, 10_000.0, None),
            (599.0, 30_000.0, None),
            (700.0, 35_000.0, None),
            (800.0, 45_000.0, Some((0, Tokens(10_000.0), Seconds(100.0)))),
        ] {
            let found = meter.sees(Seconds(at), Tokens(tokens), slow);
            assert_eq!(found.trained, trained, "at {at} s");
        }
    }

    #[test]
    fn one_checkpoint_in_a_long_run_tells_its_rate() {
        let mut meter = Meter::default();
        meter.started(Seconds::ZERO, Tokens::ZERO, (0, FAST), HOUR);
        meter.asked(FAST);
        assert_eq!(
            meter.sees(HOUR, Tokens(3.5e5), Seconds::ZERO),
            Found::default()
        );
        let found = meter.started(HOUR, Tokens(3.5e5), (1, LEAN), HOUR / 2.0);
        assert_eq!(found.trained, Some((0, Tokens(3.5e5), HOUR)));
    }
}
