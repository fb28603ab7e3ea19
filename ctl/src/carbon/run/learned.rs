//! The knowledge of a job: stated and learned. The runner decides by this, and so does its
//! simulation.

use jiff::Timestamp;
use litd_carbon::{Configuration, Point};
use litd_units::{Seconds, Tokens, TokensPerSecond};

use super::super::standing::{Belief, Standing};
use super::cost::{Costs, Found, Meter, rate};
use super::rates::{Pace, Rates};

/// The stated values.
#[derive(Debug, Clone)]
pub struct Told {
    pub points: Vec<Point>,
    /// Tokens to train in all.
    pub tokens: Tokens,
    pub window: Seconds,
    /// K, if it is known.
    pub switch: Option<Seconds>,
    /// For a checkpoint.
    pub grace: Seconds,
    /// How often the runner looks, by the clock of windows.
    pub tick: Seconds,
    /// The job is taken to train at this share of the fastest that it has trained at, or more.
    pub slowest: f64,
    /// A configuration that was never loaded may take so much longer to load than a switch.
    pub loading: Seconds,
}

/// The stated and the learned values.
pub struct Learned {
    told: Told,
    pub costs: Costs,
    pub rates: Rates,
    meter: Meter,
    /// The rate that the last decision counted on, of the configuration that it was for.
    counted_on: Option<(usize, TokensPerSecond)>,
    /// What was measured of what runs since its last rate over minutes.
    piece: (Tokens, Seconds),
    /// Whose the last of those was.
    paced: Option<Configuration>,
}

/// Training for so long is enough to believe a rate, or a quarter of a window where that is less: the first minutes are
/// slow.
const ENOUGH: Seconds = Seconds(600.0);
/// A rate is told to a fortieth where it was measured over so many looks.
const LOOKS: f64 = 40.0;
/// A rate that differs by this share from what was counted on is decided upon at once.
const SURPRISE: f64 = 0.05;

impl Learned {
    pub fn new(told: Told, costs: Costs, rates: Rates) -> Self {
        Self {
            told,
            costs,
            rates,
            meter: Meter::default(),
            counted_on: None,
            piece: (Tokens::ZERO, Seconds::ZERO),
            paced: None,
        }
    }

    fn enough(&self) -> Seconds {
        let least = ENOUGH.0.min(self.told.window.0 / 4.0);
        Seconds(least.max(self.told.tick.0 * LOOKS))
    }

    fn beliefs(&self) -> Vec<Belief> {
        self.rates
            .beliefs(&self.told.points, self.enough(), self.told.slowest)
    }

    /// So many tokens are seen at a moment: whether that tells something.
    pub fn sees(&mut self, at: Seconds, tokens: Tokens) -> bool {
        let enough = self.enough();
        let launch = self.switch();
        let slow = enough + if launch < enough { launch } else { enough };
        let found = self.meter.sees(at, tokens, slow);
        self.take(found)
    }

    fn take(&mut self, found: Found) -> bool {
        if let Some((number, cost)) = found.cost {
            self.costs.push(cost);
            let configuration = self.told.points[number].configuration;
            self.rates.switched(configuration, cost);
        }
        if let Some((number, tokens, time)) = found.trained {
            let configuration = self.told.points[number].configuration;
            self.rates.push(configuration, tokens, time, self.enough());
            self.takes_a_piece(configuration, tokens, time);
        }
        found != Found::default()
    }

    /// Puts measurements together until they are long enough.
    fn takes_a_piece(&mut self, configuration: Configuration, tokens: Tokens, time: Seconds) {
        self.piece = (self.piece.0 + tokens, self.piece.1 + time);
        let (tokens, time) = self.piece;
        if time < self.enough() {
            return;
        }
        let before = self.paced.replace(configuration);
        let pace = Pace {
            configuration,
            rate: rate(tokens, time),
            time,
            is_first: before.is_some_and(|it| it != configuration),
        };
        self.rates.paced(&self.told.points, pace);
        self.piece = (Tokens::ZERO, Seconds::ZERO);
    }

    /// The job was asked for a checkpoint.
    pub fn asked(&mut self) {
        if let Some(number) = self.meter.running() {
            let rate = self.beliefs()[number].point.rate;
            self.meter.asked(rate);
        }
    }

    /// A configuration was started.
    pub fn started(&mut self, at: Seconds, tokens: Tokens, number: usize) {
        let rate = self.beliefs()[number].point.rate;
        let long = self.told.window / 2.0;
        let found = self.meter.started(at, tokens, (number, rate), long);
        self.take(found);
        self.piece = (Tokens::ZERO, Seconds::ZERO);
    }

    /// Records the decision that a configuration runs, or runs on.
    pub fn decided(&mut self, number: usize) {
        self.counted_on = Some((number, self.beliefs()[number].point.rate));
    }

    /// Whether what runs trains at another rate than its decision counted on.
    pub fn is_surprised(&self) -> bool {
        let Some((number, rate)) = self.counted_on else {
            return false;
        };
        let configuration = self.told.points[number].configuration;
        let is_measured = self.rates.of(configuration, self.enough()).is_some();
        let differs = (self.beliefs()[number].point.rate / rate - 1.0).abs() > SURPRISE;
        self.meter.running() == Some(number) && is_measured && differs
    }

    /// For how long the job that runs has written no checkpoint, where that is longer than it is believed to train
    /// without one.
    pub fn hangs(&self, at: Seconds) -> Option<Seconds> {
        let silent = self.meter.silent(at, self.switch())?;
        (silent > self.meter.believed(self.told.window)).then_some(silent)
    }

    /// K: what was given, or what switches took where that is more; unknown, it is as long as a checkpoint may take.
    pub fn switch(&self) -> Seconds {
        let worst = self.costs.worst().into_iter();
        let worst = worst.chain(self.rates.worst_switch());
        let worst = worst.max_by(|a, b| a.0.total_cmp(&b.0));
        match (self.told.switch, worst) {
            (Some(given), Some(worst)) if worst > given => worst,
            (Some(given), _) => given,
            (None, Some(worst)) => worst,
            // A trace that is played shows what would be at the speed of the wall clock.
            (None, None) => self.told.grace,
        }
    }

    /// How the job stands at a moment, with the tokens of its last checkpoint.
    pub fn standing(
        &self,
        at: Seconds,
        trained: Tokens,
        running: Option<usize>,
        deadline: Timestamp,
    ) -> Standing {
        let switch = self.switch();
        let beliefs = self.beliefs();
        let unsaved = running.map_or(Tokens::ZERO, |number| {
            let rate = beliefs[number].point.rate;
            self.meter.unsaved(at, switch, rate)
        });
        let left = self.told.tokens - trained;
        Standing {
            beliefs,
            window: self.told.window,
            switch,
            tokens: if left > Tokens(1.0) {
                left
            } else {
                Tokens(1.0)
            },
            unsaved,
            running,
            deadline,
            launch: switch,
            risk: self.told.grace,
            loading: self.told.loading,
        }
    }
}
