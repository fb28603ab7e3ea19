//! When a job without a hook is asked for its next trace, how much it is to record, and what a trace's iterations tell
//! of the job. Without I/O and without a clock.

use std::fmt;

use litd_units::Nanos;

use crate::trace::Window;

/// So many iterations are recorded: the first and the last are cut, and to see that kernels come again takes two.
const ITERATIONS: u32 = 4;

/// How long processes that step no optimizers record before it is known how long their iterations take, and the bounds
/// afterwards, in milliseconds.
const UNKNOWN: u32 = 1000;
const SHORTEST: u32 = 200;
const LONGEST: u32 = 10_000;

/// Ranks learn of a wish within 5 s of each other, and are to begin with the same iteration: the next whose number is a
/// multiple of so many seconds' iterations.
const APART: f64 = 10.0;
const MOST_APART: u32 = 1_000_000;

/// The least multiple, in iterations, unless these take longer than so many seconds.
const LEAST_APART: u32 = 5 * ITERATIONS;
const LEAST_APART_SECONDS: f64 = 40.0;

/// A job whose iterations take longer would keep others from recording for minutes: jobs record one at a time.
const LONGEST_ITERATION: Nanos = Nanos(20_000_000_000);

/// After so many failures in a row a job is asked no more, and after each one it is asked after twice the time.
const PATIENCE: u32 = 5;

/// A trace that could not be wished for is wished for again after this.
const AGAIN: Nanos = Nanos(10_000_000_000);

/// The first traces tell how long an iteration takes; if it then takes so much longer in so many traces in a row, the
/// job is asked no more: recording may have slowed it down for good.
const FIRST: usize = 3;
const SLOWER: f64 = 1.1;
const IN_A_ROW: u32 = 3;

/// After so many traces in a row without harm others of the user's jobs may be asked, and later litd remembers it.
const PASSED: [u32; 2] = [5, 20];

/// How far the traces of a job have come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Course {
    /// The next trace is due then.
    Rests {
        /// When.
        until: Nanos,
    },
    /// A trace is wished for.
    Records {
        /// Since when.
        since: Nanos,
    },
    /// The job is asked no more.
    Over(WhyOver),
}

/// Why a job is asked no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyOver {
    /// Its traces failed, one after the other.
    Fails,
    /// Its iterations take longer than in its first traces, by so many percent.
    Slower(u32),
    /// Iterations take so long that other jobs could not record meanwhile.
    Long,
}

impl fmt::Display for WhyOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fails => write!(f, "{PATIENCE} traces in a row have failed"),
            Self::Slower(percent) => write!(
                f,
                "iterations take {percent} % longer than in the first traces, perhaps because of recording"
            ),
            Self::Long => write!(
                f,
                "its iterations take more than {} s, and other jobs could not record meanwhile",
                LONGEST_ITERATION.as_secs_f64()
            ),
        }
    }
}

/// Numbers for iterations that carry none.
#[derive(Debug, Clone, Default)]
pub struct Numbers {
    /// The number of the last iteration that was told of, and when it began.
    last: Option<(u64, Nanos)>,
}

impl Numbers {
    /// The number of an iteration that began then and took so long, the last of so many: as many after the last one
    /// told of as fit between them, and more than were told of.
    pub fn next(&mut self, began: Nanos, took: Nanos, iterations: usize) -> u64 {
        let told = u64::try_from(iterations).unwrap_or(u64::MAX);
        let number = match self.last {
            None => told,
            Some((last, then)) => {
                let between = (began - then).as_secs_f64() / took.as_secs_f64().max(1e-6);
                // A cast of what is below zero, or no number, is 0.
                last.saturating_add((between.round() as u64).max(told))
            }
        };
        self.last = Some((number, began));
        number
    }
}

/// What a trace tells of its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// The number of the trace's last whole iteration. Traces tell no numbers: this one goes on from the last trace's
    /// by the time between them.
    pub last: u64,
    /// So many traces in a row did no harm that this is to be told.
    pub passed: Option<u32>,
    /// The job is asked no more.
    pub over: Option<WhyOver>,
}

/// The traces of one job.
#[derive(Debug, Clone)]
pub struct Rounds {
    every: Nanos,
    course: Course,
    failed: u32,
    /// How long an iteration took at last.
    iteration: Option<Nanos>,
    milliseconds: u32,
    numbers: Numbers,
    /// How long iterations took in the first traces.
    first: Vec<Nanos>,
    slower: u32,
    good: u32,
}

impl Rounds {
    /// The first trace is due now.
    #[must_use]
    pub fn new(every: Nanos, now: Nanos) -> Self {
        Self {
            every,
            course: Course::Rests { until: now },
            failed: 0,
            iteration: None,
            milliseconds: UNKNOWN,
            numbers: Numbers::default(),
            first: Vec::new(),
            slower: 0,
            good: 0,
        }
    }

    /// How far they have come.
    #[must_use]
    pub fn course(&self) -> &Course {
        &self.course
    }

    /// Since when a trace is due; `None`: none is.
    #[must_use]
    pub fn due(&self, now: Nanos) -> Option<Nanos> {
        match self.course {
            Course::Rests { until } if now >= until => Some(until),
            Course::Rests { .. } | Course::Records { .. } | Course::Over(_) => None,
        }
    }

    /// How much the next trace is to hold; of processes that step no optimizers it begins then.
    #[must_use]
    pub fn window(&self, start: u64) -> Window {
        let iteration = self.iteration.unwrap_or_default().as_secs_f64().max(1e-6);
        let apart = match self.iteration {
            Some(_) => (APART / iteration).ceil() as u32,
            None => 0,
        };
        let least = LEAST_APART
            .min((LEAST_APART_SECONDS / iteration) as u32)
            .max(1);
        Window {
            iterations: ITERATIONS,
            roundup: apart.clamp(least, MOST_APART),
            milliseconds: self.milliseconds,
            start: Some(start),
        }
    }

    /// How long it may take until the iteration comes with which all ranks begin.
    #[must_use]
    pub fn waits(&self) -> Nanos {
        let window = self.window(0);
        let iteration = self.iteration.unwrap_or_default();
        let iterations = i64::from(window.roundup + window.iterations);
        let steps = iteration.0.saturating_mul(iterations);
        Nanos(steps.max(i64::from(window.milliseconds) * 1_000_000))
    }

    /// `Rests` -> `Records`.
    pub fn begin(&mut self, now: Nanos) {
        if let Course::Rests { .. } = self.course {
            self.course = Course::Records { since: now };
        }
    }

    /// `Rests` or `Records` -> `Rests`: nothing could be wished for at this moment.
    pub fn put_off(&mut self, now: Nanos) {
        if !matches!(self.course, Course::Over(_)) {
            self.course = Course::Rests { until: now + AGAIN };
        }
    }

    /// `Records` -> `Rests` or `Over`: there is no sample. `too_short`: because too little was recorded. Returns why the
    /// job is asked no more, if that is so now.
    pub fn fail(&mut self, now: Nanos, too_short: bool) -> Option<WhyOver> {
        if too_short {
            self.milliseconds = self.milliseconds.saturating_mul(2).min(LONGEST);
        }
        self.failed += 1;
        self.good = 0;
        if self.failed >= PATIENCE {
            self.course = Course::Over(WhyOver::Fails);
            return Some(WhyOver::Fails);
        }
        let times = 1_i64 << self.failed.min(8);
        let until = now + Nanos(self.every.0.saturating_mul(times));
        self.course = Course::Rests { until };
        None
    }

    /// `Records` -> `Rests` or `Over`: a trace has whole iterations, the last of which began then, by the wall clock, and
    /// took so long. `iterations` is how many there are.
    pub fn hear(&mut self, now: Nanos, began: Nanos, took: Nanos, iterations: usize) -> Heard {
        self.failed = 0;
        self.iteration = Some(took.max(Nanos(1)));
        let of_five = took.0.saturating_mul(5) / 1_000_000;
        let milliseconds = u32::try_from(of_five).unwrap_or(LONGEST);
        self.milliseconds = milliseconds.clamp(SHORTEST, LONGEST);
        let last = self.numbers.next(began, took, iterations);
        let over = self.judge(took);
        self.course = match over {
            Some(why) => Course::Over(why),
            None => Course::Rests {
                until: now + self.every,
            },
        };
        self.good += 1;
        let passed = over.is_none() && PASSED.contains(&self.good);
        Heard {
            last,
            passed: passed.then_some(self.good),
            over,
        }
    }

    fn judge(&mut self, took: Nanos) -> Option<WhyOver> {
        if took > LONGEST_ITERATION {
            return Some(WhyOver::Long);
        }
        if self.first.len() < FIRST {
            self.first.push(took);
            return None;
        }
        let usual = self.first.iter().min()?.as_secs_f64();
        let longer = took.as_secs_f64() / usual.max(1e-9);
        self.slower = match longer > SLOWER {
            true => self.slower + 1,
            false => 0,
        };
        let percent = ((longer - 1.0) * 100.0).round() as u32;
        (self.slower >= IN_A_ROW).then_some(WhyOver::Slower(percent))
    }
}
