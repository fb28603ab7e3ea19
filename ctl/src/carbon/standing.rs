//! How a job stands: what is to be trained by when, and which configuration is to run now.

use std::error::Error;

use jiff::Timestamp;
use litd_carbon::policy::{self, MpcError};
use litd_carbon::{Job, Known, Point, Start};
use litd_units::{Seconds, Tokens, TokensPerSecond};

/// How fast a configuration is believed to train.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Belief {
    /// The configuration, with the rate that is likely.
    pub point: Point,
    /// A rate that can be counted on.
    pub sure: TokensPerSecond,
    /// A rate that is possible: more than the likely one as long as the configuration has not run.
    pub hoped: TokensPerSecond,
    /// Whether it is known how long it takes to load.
    pub has_loaded: bool,
}

impl Belief {
    /// A stated value is relied upon.
    pub fn told(point: Point) -> Self {
        Self {
            point,
            sure: point.rate,
            hoped: point.rate,
            has_loaded: true,
        }
    }

    /// Whether the configuration may be faster than is likely.
    fn has_hope(&self) -> bool {
        self.hoped > self.point.rate
    }
}

/// The configuration to run, by its number in the profile, and the job's state.
pub struct Standing {
    pub beliefs: Vec<Belief>,
    pub window: Seconds,
    pub switch: Seconds,
    /// Tokens left after the last checkpoint.
    pub tokens: Tokens,
    /// Tokens that are probably trained already, and kept if the configuration stays.
    pub unsaved: Tokens,
    pub running: Option<usize>,
    pub deadline: Timestamp,
    /// The time to launch the job where none runs.
    pub launch: Seconds,
    /// How much longer a switch may take that goes wrong: one that the deadline does not need must leave room for it.
    pub risk: Seconds,
    /// How much longer than a switch a configuration may take to load that was never loaded.
    pub loading: Seconds,
}

/// The configuration to run now, by its number, and why.
pub type Choice = (usize, Reason);

/// Why a configuration is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The optimum, which leaves enough time whatever comes.
    Optimum,
    /// The optimum is another one, and a switch to it could make the job late.
    NoRoom,
    /// The optimum leaves too little time, or plans have none for what is left.
    InTime,
    /// No configuration is surely in time; this one is likely to be.
    First,
    /// No configuration is likely to be in time; this one may be.
    Hope,
    /// No configuration can be in time.
    TooLate,
}

impl Reason {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Optimum => "the first window of the plan that emits least in time",
            Self::NoRoom => {
                "what runs now is in time, and a switch that goes wrong would leave too little of it"
            }
            Self::InTime => {
                "no plan of whole windows meets the deadline with a margin; of the configurations that meet it, this one \
                 needs the least energy"
            }
            Self::First => {
                "the measured rates are too uncertain for the time left: this is the fastest configuration"
            }
            Self::Hope => {
                "no measured configuration is likely to meet the deadline; this one, measured too briefly to tell, may"
            }
            Self::TooLate => {
                "the deadline can't be met any more: this configuration is the first to be done"
            }
        }
    }
}

/// The share of a window by which a decision may come too late without costing plans a whole one.
const LATE_BY: f64 = 0.01;

impl Standing {
    /// The windows that a plan from now on may use, to be asked what is known of them.
    ///
    /// # Errors
    /// One of the numbers can't be.
    pub fn job(&self, now: Timestamp) -> Result<Job, Box<dyn Error>> {
        let start = self.running.map_or(Start::Within(0), Start::Running);
        // The policy that chooses configurations a moment after a window has begun has not lost it:
        // what is lost is looked at by itself.
        let late = self.window * LATE_BY;
        let left = Seconds(self.left(now).0.max(1.0)) + late;
        let points: Vec<Point> = self.beliefs.iter().map(|it| it.point).collect();
        let job = Job::new(&points, self.window, self.tokens, left, self.switch, start);
        Ok(job?)
    }

    pub fn left(&self, now: Timestamp) -> Seconds {
        Seconds(self.deadline.duration_since(now).as_secs_f64())
    }

    fn all(&self) -> std::ops::Range<usize> {
        0..self.beliefs.len()
    }

    /// How long it takes until a configuration trains.
    fn until_it_trains(&self, configuration: usize) -> Seconds {
        match self.running {
            Some(running) if running == configuration => Seconds::ZERO,
            Some(_) => self.switch,
            None => self.launch,
        }
    }

    /// How long a configuration needs from now on, if it trains so fast.
    fn needs_at(&self, configuration: usize, rate: TokensPerSecond) -> Seconds {
        let runs_on = self.running == Some(configuration);
        let kept = if runs_on { self.unsaved } else { Tokens::ZERO };
        self.until_it_trains(configuration) + (self.tokens - kept) / rate
    }

    /// How long a configuration is likely to need.
    pub fn needs(&self, configuration: usize) -> Seconds {
        self.needs_at(configuration, self.beliefs[configuration].point.rate)
    }

    /// How long it needs at most.
    fn surely_needs(&self, configuration: usize) -> Seconds {
        self.needs_at(configuration, self.beliefs[configuration].sure)
    }

    /// How long it needs at best.
    fn may_need(&self, configuration: usize) -> Seconds {
        self.needs_at(configuration, self.beliefs[configuration].hoped)
    }

    /// Extra time for a switch to a configuration: it may go wrong, and a first load may take
    /// longer than others did.
    fn room(&self, configuration: usize) -> Seconds {
        match self.running {
            Some(running) if running == configuration => Seconds::ZERO,
            None => Seconds::ZERO,
            Some(_) if self.beliefs[configuration].has_loaded => self.risk,
            Some(_) => self.risk + self.loading,
        }
    }

    /// Whether a configuration is surely in time that runs on, or one that follows after this window: there must be
    /// room for one more switch that goes wrong.
    fn is_in_time(&self, configuration: usize, left: Seconds) -> bool {
        self.surely_needs(configuration) <= left
            || self.surely_needs_with_a_switch(configuration) <= left
    }

    /// The one that is surely the fastest.
    fn fastest(&self) -> usize {
        let sure = |it: &usize| self.beliefs[*it].sure.0;
        let fastest = self.all().max_by(|a, b| sure(a).total_cmp(&sure(b)));
        fastest.unwrap_or(0)
    }

    /// How long it needs at most if the fastest one follows after this window, with a switch that goes wrong.
    fn surely_needs_with_a_switch(&self, configuration: usize) -> Seconds {
        let training = (self.window - self.until_it_trains(configuration))
            .0
            .max(0.0);
        let rest = self.tokens - self.beliefs[configuration].sure * Seconds(training);
        self.window + self.switch + self.risk + rest / self.beliefs[self.fastest()].sure
    }

    /// How long the job is likely to need where a configuration runs now: a plan whose first window is of a slow one
    /// goes on with a faster one.
    pub fn ends_after(&self, configuration: usize, left: Seconds) -> Seconds {
        let (alone, followed) = (
            self.needs(configuration),
            self.surely_needs_with_a_switch(configuration),
        );
        if alone > left && followed < alone {
            followed
        } else {
            alone
        }
    }

    /// Decides.
    ///
    /// # Errors
    /// What is known can't be, or was issued later than now.
    pub fn choose(
        &self,
        job: &Job,
        now: Timestamp,
        known: &[Known],
    ) -> Result<Choice, Box<dyn Error>> {
        match policy::decide(job, now, known) {
            Ok(number) => Ok(self.with_room(number, self.left(now))),
            Err(MpcError::Infeasible(_)) => Ok(self.without_plan(self.left(now))),
            Err(error) => Err(error.into()),
        }
    }

    /// The optimum, where it leaves enough time: plans do not count that a job must be launched, that a switch goes
    /// wrong, nor that a rate is another one than is believed.
    fn with_room(&self, optimum: usize, left: Seconds) -> Choice {
        // The fastest one may have to follow, which is then loaded, too.
        let fastest = self.fastest();
        let follows = fastest != optimum && !self.beliefs[fastest].has_loaded;
        let back = if follows { self.loading } else { Seconds::ZERO };
        let training = self.tokens / self.beliefs[fastest].sure;
        let at_worst = self.switch + self.room(optimum) + back + training;
        match self.running {
            Some(running)
                if running != optimum && self.surely_needs(running) <= left && at_worst > left =>
            {
                (running, Reason::NoRoom)
            }
            _ if self.is_in_time(optimum, left) => (optimum, Reason::Optimum),
            _ => self.without_plan(left),
        }
    }

    /// Without a plan that leaves enough time: whoever is in time all the same; whoever may be; or the first to be done.
    fn without_plan(&self, left: Seconds) -> Choice {
        let least = |among: &mut dyn Iterator<Item = usize>, cost: &dyn Fn(usize) -> f64| {
            among.min_by(|a, b| cost(*a).total_cmp(&cost(*b)))
        };
        let energy = |it: usize| self.beliefs[it].point.power.0 * self.needs(it).0;
        let is_sure = |it: &usize| self.surely_needs(*it) + self.room(*it) <= left;
        if let Some(number) = least(&mut self.all().filter(is_sure), &energy) {
            return (number, Reason::InTime);
        }
        let first = least(&mut self.all(), &|it| self.needs(it).0).unwrap_or(0);
        if self.needs(first) <= left {
            return (first, Reason::First);
        }
        let may_be = |it: &usize| self.beliefs[*it].has_hope() && self.may_need(*it) <= left;
        // A running configuration that may be in time is kept until it has been measured: leaving
        // it would cost a switch.
        let running = self.running.filter(may_be);
        let hoped = |it: usize| -self.beliefs[it].hoped.0;
        match running.or_else(|| least(&mut self.all().filter(may_be), &hoped)) {
            Some(number) => (number, Reason::Hope),
            None => (first, Reason::TooLate),
        }
    }
}
