//! The runner's next action: a state machine without processes, files or clocks of its own.

use std::time::Duration;

/// How the job's process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Child {
    Alive,
    /// The process has ended; whether with success.
    Ended(bool),
}

/// The observations at one moment. Times count from any moment, on the clock for hours and on the
/// one for patience.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// The clock of windows.
    pub hours: f64,
    /// The clock of patience.
    pub real: Duration,
    pub child: Child,
    /// Whether the last checkpoint has all tokens.
    pub is_complete: bool,
    /// Tokens of the last checkpoint.
    pub tokens: f64,
    /// Whether the configuration trains at another rate than was counted on: that is no matter for the next window.
    pub is_surprised: bool,
}

/// The next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Start(usize),
    /// Ask the job to write a checkpoint and to end.
    AskCheckpoint,
    /// SIGTERM, then SIGKILL.
    Terminate,
    Kill,
    /// The job is done.
    Finish,
    /// The job fails again and again without a new checkpoint.
    GiveUp,
}

/// Where the job is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Phase {
    /// No process runs, and none starts before this moment of patience. Then the configuration
    /// decided before is started.
    Down {
        not_before: Duration,
        next: Option<usize>,
    },
    /// A configuration runs until the window ends.
    Up { configuration: usize, until: f64 },
    /// The job was asked to end with a checkpoint, so that another configuration can run.
    Asked {
        until: Duration,
        next: Option<usize>,
    },
    /// The last checkpoint has all tokens: the job ends by itself, or is ended after this moment of patience. It goes on
    /// until its window ends if the checkpoint turns out not to have them.
    Completing {
        configuration: usize,
        until: f64,
        at_last: Duration,
    },
    /// The job was told to end. That took so long that the next configuration must be decided
    /// again. `hangs`: it was ended because it hangs, which is a failure.
    Terminated { until: Duration, hangs: bool },
    /// The job has ended for good.
    Done,
}

/// How patient the runner is.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For a checkpoint.
    pub checkpoint: Duration,
    /// The length of a window in hours.
    pub window: f64,
    /// Failures one after the other without a new checkpoint.
    pub failures: u32,
    /// A job without a new checkpoint for so long hangs, if that is known.
    pub hangs: Option<Duration>,
}

/// After SIGTERM.
pub const TERMINATED: Duration = Duration::from_secs(10);
/// After a failure, each time twice as long.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct Machine {
    pub phase: Phase,
    patience: Patience,
    failures: u32,
    /// The most tokens that any checkpoint had when a job was started or had failed.
    most: f64,
    /// The tokens that were seen last to be new, or where it was started from, and when.
    last: (f64, Duration),
    /// Whether nothing is to be started any more.
    is_stopping: bool,
}

impl Machine {
    pub fn new(patience: Patience) -> Self {
        Self {
            phase: Phase::Down {
                not_before: Duration::ZERO,
                next: None,
            },
            patience,
            failures: 0,
            most: -1.0,
            last: (-1.0, Duration::ZERO),
            is_stopping: false,
        }
    }

    /// The runner was told to stop: what runs is asked for a checkpoint, and nothing is started any more.
    pub fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Whether it has stopped because it was told to.
    pub fn has_stopped(&self, seen: &Seen) -> bool {
        self.is_stopping && seen.child != Child::Alive && !seen.is_complete
    }

    /// A process of an earlier runner is still there: it is asked to end first.
    pub fn adopt(&mut self, seen: &Seen) -> Action {
        self.ask(seen, None)
    }

    fn ask(&mut self, seen: &Seen, next: Option<usize>) -> Action {
        self.phase = Phase::Asked {
            until: seen.real + self.patience.checkpoint,
            next,
        };
        Action::AskCheckpoint
    }

    /// The next action. `decide` is called where a configuration has to be chosen.
    pub fn step<E>(
        &mut self,
        seen: &Seen,
        decide: impl FnOnce() -> Result<usize, E>,
    ) -> Result<Option<Action>, E> {
        let has_ended = matches!(seen.child, Child::Ended(_));
        if seen.tokens > self.last.0 {
            self.last = (seen.tokens, seen.real);
        }
        Ok(match self.phase {
            Phase::Done => None,
            Phase::Up { .. } if self.is_stopping && !has_ended => Some(self.adopt(seen)),
            Phase::Down { .. } if seen.is_complete => Some(self.finish()),
            Phase::Down { .. } if self.is_stopping => None,
            Phase::Down { not_before, .. } if seen.real < not_before => None,
            Phase::Down { next, .. } => {
                let configuration = next.map_or_else(decide, Ok)?;
                self.most = self.most.max(seen.tokens);
                self.last = (seen.tokens, seen.real);
                self.phase = Phase::Up {
                    configuration,
                    until: self.end_of_window(seen),
                };
                Some(Action::Start(configuration))
            }
            Phase::Up { .. } if has_ended => self.ended(seen),
            // A rank that hangs at its exit would keep its GPUs.
            Phase::Up {
                configuration,
                until,
            } if seen.is_complete => {
                self.phase = Phase::Completing {
                    configuration,
                    until,
                    at_last: seen.real + self.patience.checkpoint,
                };
                None
            }
            Phase::Completing { .. } if has_ended => self.ended(seen),
            Phase::Completing { at_last, .. } if seen.is_complete => {
                (seen.real >= at_last).then(|| self.terminate(seen, false))
            }
            Phase::Completing {
                configuration,
                until,
                ..
            } => {
                self.phase = Phase::Up {
                    configuration,
                    until,
                };
                None
            }
            Phase::Up { .. } if self.hangs(seen) => Some(self.terminate(seen, true)),
            Phase::Up {
                configuration,
                until,
            } if seen.hours >= until || seen.is_surprised => {
                let next = decide()?;
                if next == configuration {
                    self.phase = Phase::Up {
                        configuration,
                        until: self.end_of_window(seen),
                    };
                    None
                } else {
                    Some(self.ask(seen, Some(next)))
                }
            }
            Phase::Up { .. } => None,
            Phase::Asked { next, .. } if has_ended => {
                self.down(seen, Duration::ZERO, next);
                None
            }
            Phase::Terminated { hangs: true, .. } if has_ended => self.ended(seen),
            Phase::Terminated { .. } if has_ended => {
                self.down(seen, Duration::ZERO, None);
                None
            }
            Phase::Asked { until, .. } if seen.real >= until => Some(self.terminate(seen, false)),
            Phase::Terminated { until, .. } if seen.real >= until => Some(Action::Kill),
            Phase::Asked { .. } | Phase::Terminated { .. } => None,
        })
    }

    /// Whether the job has brought nothing for so long that it hangs.
    fn hangs(&self, seen: &Seen) -> bool {
        let since = seen.real.saturating_sub(self.last.1);
        self.patience.hangs.is_some_and(|it| since >= it)
    }

    fn terminate(&mut self, seen: &Seen, hangs: bool) -> Action {
        self.phase = Phase::Terminated {
            until: seen.real + TERMINATED,
            hangs,
        };
        Action::Terminate
    }

    fn end_of_window(&self, seen: &Seen) -> f64 {
        ((seen.hours / self.patience.window + 1e-9).floor() + 1.0) * self.patience.window
    }

    /// The process has ended without being asked to.
    fn ended(&mut self, seen: &Seen) -> Option<Action> {
        if seen.is_complete {
            return Some(self.finish());
        }
        self.failures = match seen.tokens > self.most {
            true => 0,
            false => self.failures + 1,
        };
        self.most = self.most.max(seen.tokens);
        if self.failures >= self.patience.failures {
            self.phase = Phase::Done;
            return Some(Action::GiveUp);
        }
        self.down(
            seen,
            PAUSE * 2_u32.saturating_pow(self.failures.min(6)),
            None,
        );
        None
    }

    fn down(&mut self, seen: &Seen, pause: Duration, next: Option<usize>) {
        self.phase = Phase::Down {
            not_before: seen.real + pause,
            next,
        };
    }

    fn finish(&mut self) -> Action {
        self.phase = Phase::Done;
        Action::Finish
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine::new(Patience {
            checkpoint: Duration::from_secs(30),
            window: 1.0,
            failures: 3,
            hangs: None,
        })
    }

    fn seen(hours: f64, real: u64, child: Child) -> Seen {
        Seen {
            hours,
            real: Duration::from_secs(real),
            child,
            is_complete: false,
            tokens: 0.0,
            is_surprised: false,
        }
    }

    fn step(machine: &mut Machine, seen: &Seen, choice: usize) -> Option<Action> {
        machine.step(seen, || Ok::<_, ()>(choice)).unwrap()
    }

    #[test]
    fn another_configuration_starts_once_the_checkpoint_is_written() {
        let mut machine = machine();
        let none = Child::Ended(true);
        assert_eq!(
            step(&mut machine, &seen(0.2, 0, none), 1),
            Some(Action::Start(1))
        );
        assert_eq!(step(&mut machine, &seen(0.9, 1, Child::Alive), 2), None);
        assert_eq!(
            step(&mut machine, &seen(1.0, 2, Child::Alive), 1),
            None,
            "the same runs on"
        );
        assert_eq!(step(&mut machine, &seen(1.9, 3, Child::Alive), 2), None);
        assert_eq!(
            step(&mut machine, &seen(2.0, 4, Child::Alive), 2),
            Some(Action::AskCheckpoint)
        );
        assert_eq!(step(&mut machine, &seen(2.1, 5, Child::Alive), 2), None);
        assert_eq!(
            step(&mut machine, &seen(2.1, 6, Child::Ended(true)), 2),
            None
        );
        assert_eq!(
            step(&mut machine, &seen(2.1, 6, none), 2),
            Some(Action::Start(2))
        );
    }

    /// A new decision once no process runs would mean that the job ended for nothing.
    #[test]
    fn what_the_job_was_asked_to_end_for_is_started() {
        let mut machine = machine();
        let none = Child::Ended(true);
        step(&mut machine, &seen(0.0, 0, none), 1);
        let asked = step(&mut machine, &seen(1.0, 1, Child::Alive), 2);
        assert_eq!(asked, Some(Action::AskCheckpoint));
        assert_eq!(step(&mut machine, &seen(1.0, 2, none), 1), None);
        let started = step(&mut machine, &seen(1.0, 2, none), 1);
        assert_eq!(started, Some(Action::Start(2)));
    }

    #[test]
    fn a_job_that_does_not_end_is_ended() {
        let mut machine = machine();
        step(&mut machine, &seen(0.0, 0, Child::Ended(true)), 0);
        step(&mut machine, &seen(1.0, 1, Child::Alive), 1);
        assert_eq!(step(&mut machine, &seen(1.0, 30, Child::Alive), 1), None);
        assert_eq!(
            step(&mut machine, &seen(1.0, 31, Child::Alive), 1),
            Some(Action::Terminate)
        );
        assert_eq!(
            step(&mut machine, &seen(1.0, 41, Child::Alive), 1),
            Some(Action::Kill)
        );
        step(&mut machine, &seen(1.0, 42, Child::Ended(false)), 1);
        assert_eq!(
            step(&mut machine, &seen(1.0, 42, Child::Ended(false)), 1),
            Some(Action::Start(1))
        );
    }

    #[test]
    fn crashes_are_restarted_until_none_brings_anything() {
        let mut machine = machine();
        let mut now = 0;
        let mut tokens = 0.0;
        for crash in 0..10 {
            let mut down = seen(0.0, now, Child::Ended(false));
            down.tokens = tokens;
            assert_eq!(
                step(&mut machine, &down, 0),
                Some(Action::Start(0)),
                "crash {crash}"
            );
            // Each time with a new checkpoint.
            tokens += 1.0;
            down.tokens = tokens;
            assert_eq!(step(&mut machine, &down, 0), None);
            now += 100;
        }
        let mut crashed = seen(0.0, now, Child::Ended(false));
        crashed.tokens = tokens;
        let mut actions = Vec::new();
        for _ in 0..20 {
            crashed.real += Duration::from_secs(100);
            actions.extend(step(&mut machine, &crashed, 0));
        }
        let start = Action::Start(0);
        assert_eq!(actions, [start, start, start, Action::GiveUp]);
    }

    /// A job without a checkpoint for so long is ended and started again, as after a crash, until
    /// that brings none either.
    #[test]
    fn a_job_that_hangs_is_started_again() {
        let mut machine = machine();
        machine.patience.hangs = Some(Duration::from_secs(100));
        let mut now = 5;
        for failures in 1..=3 {
            let start = step(&mut machine, &seen(0.0, now, Child::Ended(false)), 0);
            assert_eq!(start, Some(Action::Start(0)));
            // The job gets its full time first, and again after each checkpoint.
            let mut trains = seen(0.0, now + 99, Child::Alive);
            trains.tokens = if failures == 1 { 1.0 } else { 0.0 };
            assert_eq!(step(&mut machine, &trains, 0), None);
            now += if failures == 1 { 198 } else { 99 };
            trains.real = Duration::from_secs(now);
            assert_eq!(step(&mut machine, &trains, 0), None);
            trains.real += Duration::from_secs(1);
            assert_eq!(step(&mut machine, &trains, 0), Some(Action::Terminate));
            trains.child = Child::Ended(false);
            trains.tokens = 0.0;
            let done = step(&mut machine, &trains, 0);
            assert_eq!(done, (failures == 3).then_some(Action::GiveUp));
            now += 101;
        }
    }

    #[test]
    fn a_runner_that_is_told_to_stop_waits_for_the_checkpoint() {
        let mut machine = machine();
        step(&mut machine, &seen(0.0, 0, Child::Ended(true)), 0);
        machine.stop();
        let alive = seen(0.1, 1, Child::Alive);
        assert_eq!(step(&mut machine, &alive, 0), Some(Action::AskCheckpoint));
        assert_eq!(step(&mut machine, &alive, 0), None, "it is asked once");
        assert!(!machine.has_stopped(&alive));
        assert_eq!(
            step(&mut machine, &seen(0.1, 2, Child::Ended(true)), 0),
            None
        );
        assert_eq!(
            step(&mut machine, &seen(0.1, 3, Child::Ended(true)), 0),
            None,
            "nothing starts"
        );
        assert!(machine.has_stopped(&seen(0.1, 2, Child::Ended(true))));
    }

    #[test]
    fn what_has_all_tokens_and_does_not_end_is_ended() {
        let mut machine = machine();
        step(&mut machine, &seen(0.0, 0, Child::Ended(true)), 0);
        let mut complete = seen(0.1, 1, Child::Alive);
        complete.is_complete = true;
        assert_eq!(step(&mut machine, &complete, 0), None, "it is not asked");
        complete.real = Duration::from_secs(31);
        assert_eq!(step(&mut machine, &complete, 0), Some(Action::Terminate));
        complete.real = Duration::from_secs(41);
        assert_eq!(step(&mut machine, &complete, 0), Some(Action::Kill));
        complete.child = Child::Ended(false);
        assert_eq!(step(&mut machine, &complete, 0), None);
        assert_eq!(step(&mut machine, &complete, 0), Some(Action::Finish));
    }

    /// A checkpoint that turns out not to have them is no reason to end a job that trains.
    #[test]
    fn what_had_all_tokens_for_a_while_goes_on() {
        let mut machine = machine();
        step(&mut machine, &seen(0.0, 0, Child::Ended(true)), 0);
        let mut complete = seen(0.1, 1, Child::Alive);
        complete.is_complete = true;
        assert_eq!(step(&mut machine, &complete, 0), None);
        for real in [20, 31, 60] {
            assert_eq!(step(&mut machine, &seen(0.2, real, Child::Alive), 0), None);
        }
        let decided = step(&mut machine, &seen(1.0, 61, Child::Alive), 1);
        assert_eq!(decided, Some(Action::AskCheckpoint));
    }

    /// Each failure ends where the one before the last did: that is no progress.
    #[test]
    fn a_job_that_goes_back_and_forth_is_given_up() {
        let mut machine = machine();
        let actions = (0..40).filter_map(|at| {
            let mut crashed = seen(0.0, 100 * at, Child::Ended(false));
            crashed.tokens = if at / 2 % 2 == 0 { 50.0 } else { 100.0 };
            step(&mut machine, &crashed, 0)
        });
        let actions = Vec::from_iter(actions);
        assert_eq!(actions.last(), Some(&Action::GiveUp), "{actions:?}");
        assert!(actions.len() < 10, "{actions:?}");
    }

    #[test]
    fn what_has_all_tokens_is_finished_and_not_started_again() {
        let mut machine = machine();
        let mut complete = seen(0.0, 0, Child::Ended(true));
        complete.is_complete = true;
        assert_eq!(step(&mut machine, &complete, 0), Some(Action::Finish));
        assert_eq!(step(&mut machine, &complete, 0), None);
    }
}
