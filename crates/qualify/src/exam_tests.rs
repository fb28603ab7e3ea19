//! Examinations of devices of every kind: honest ones, each fault by itself, and any answers whatever.

use litd_power::PowerError;
use proptest::prelude::*;

use super::*;
use crate::target::tests::facts;

const MS: i64 = 1_000_000;

fn pace() -> Pace {
    Pace {
        watch: Nanos(100 * MS),
        hold: Nanos(50 * MS),
        follow: Nanos(300 * MS),
        poll: Nanos(10 * MS),
        clock_share: None,
    }
}

fn failed(action: &'static str) -> PowerError {
    PowerError::Driver {
        device: "gpu".to_owned(),
        action,
        cause: "EIO".to_owned(),
    }
}

/// A run with a device: the writes, the ending, the checks.
struct Run {
    writes: Vec<Operation>,
    ending: Ending,
    exam: Exam,
}

impl Run {
    fn text(&self, topic: Topic) -> (Verdict, &str) {
        let mut checks = self.exam.checks.iter().filter(|it| it.topic == topic);
        let check = checks.next().unwrap();
        (check.verdict, &check.text)
    }
}

/// Runs an examination of a device that answers so, each time 1 ms after it was asked.
fn run(pace: Pace, mut device: impl FnMut(Nanos, Operation) -> Reply) -> Run {
    let mut now = Nanos::ZERO;
    let mut exam = Exam::begin(facts(700.0), pace, now);
    let mut writes = Vec::new();
    for _ in 0..10_000 {
        match exam.next(now) {
            Step::Rest(time) => now += time,
            Step::End(ending) => {
                return Run {
                    writes,
                    ending,
                    exam,
                };
            }
            Step::Do(operation) => {
                if matches!(operation, Operation::Set(_) | Operation::Clocks(_)) {
                    writes.push(operation);
                }
                let asked = now;
                now += Nanos(MS);
                let reply = device(now, operation);
                exam.answered(asked, now, &reply);
            }
        }
    }
    panic!("no end: {:?}", exam.phase);
}

fn reading(cap: Watts, power: f64) -> Reading {
    Reading {
        cap,
        power: Some(Watts(power)),
        ..Reading::default()
    }
}

#[test]
fn an_honest_idle_device_is_lowered_and_raised_once() {
    let mut cap = Watts(700.0);
    let run = run(pace(), |_, operation| match operation {
        Operation::Set(to) => {
            cap = to;
            Reply::Set(Ok(cap))
        }
        _ => Reply::Read(Ok(reading(cap, 90.0))),
    });
    assert_eq!(run.ending, Ending::Returned);
    let wanted = [Watts(695.0), Watts(700.0)].map(Operation::Set);
    assert_eq!(run.writes, wanted);
    assert_eq!(run.text(Topic::Lower).0, Verdict::Shown);
    assert_eq!(run.text(Topic::Back).0, Verdict::Shown);
    assert_eq!(run.text(Topic::Power).0, Verdict::NotShown);
    assert_eq!(run.exam.may_land(), []);
}

#[test]
fn under_load_power_follows_or_the_cap_does_not_bind() {
    for binds in [true, false] {
        let mut cap = Watts(700.0);
        let run = run(pace(), |_, operation| match operation {
            Operation::Set(to) => {
                cap = to;
                Reply::Set(Ok(cap))
            }
            _ => Reply::Read(Ok(reading(cap, if binds { cap.0 } else { 700.0 }))),
        });
        assert_eq!(run.ending, Ending::Returned);
        let (verdict, text) = run.text(Topic::Power);
        let wanted = if binds {
            Verdict::Shown
        } else {
            Verdict::Failed
        };
        assert_eq!(verdict, wanted, "{text}");
    }
}

#[test]
fn a_driver_that_lies_is_found_and_one_that_lags_is_waited_for() {
    let lies = run(pace(), |_, operation| match operation {
        Operation::Set(_) => Reply::Set(Ok(Watts(700.0))),
        _ => Reply::Read(Ok(reading(Watts(700.0), 90.0))),
    });
    assert_eq!(lies.ending, Ending::Returned);
    assert_eq!(lies.writes.len(), 1);
    assert!(lies.text(Topic::Lower).1.contains("still read 700 W"));
    assert_eq!(lies.exam.may_land(), [Watts(695.0)]);

    let (mut cap, mut coming) = (Watts(700.0), None);
    let lags = run(pace(), |now, operation| {
        if let Some((at, to)) = coming
            && now >= at
        {
            cap = to;
        }
        match operation {
            Operation::Set(to) => {
                coming = Some((now + Nanos(100 * MS), to));
                Reply::Set(Ok(cap))
            }
            _ => Reply::Read(Ok(reading(cap, 90.0))),
        }
    });
    assert_eq!(lags.ending, Ending::Returned);
    assert_eq!(lags.writes.len(), 2);
    let lag = lags.exam.measured.lag.unwrap();
    assert!((0.1..0.15).contains(&lag.0), "{lag}");
    assert_eq!(lags.exam.may_land(), []);
}

#[test]
fn a_driver_that_rounds_or_refuses_and_a_foreign_writer_are_told_apart() {
    let mut cap = Watts(700.0);
    let rounds = run(pace(), |_, operation| match operation {
        Operation::Set(to) => {
            cap = to.cut_to(Watts(20.0));
            Reply::Set(Ok(cap))
        }
        _ => Reply::Read(Ok(reading(cap, 90.0))),
    });
    assert_eq!(rounds.ending, Ending::Returned);
    assert!(
        rounds.text(Topic::Lower).1.contains("rounds"),
        "{:?}",
        rounds.exam.checks
    );

    let refuses = run(pace(), |_, operation| match operation {
        Operation::Set(_) => Reply::Set(Err(failed("setting the cap"))),
        _ => Reply::Read(Ok(reading(Watts(700.0), 90.0))),
    });
    assert_eq!(refuses.ending, Ending::Returned);
    assert_eq!(refuses.writes.len(), 1);
    assert_eq!(refuses.exam.may_land(), [Watts(695.0)]);

    // Also where the other program sets a cap that is nearly litd's.
    for theirs in [400.0, 691.0, 698.0] {
        let (mut cap, mut reads) = (Watts(700.0), 0);
        let meddles = run(pace(), |_, operation| match operation {
            Operation::Set(to) => {
                cap = to;
                Reply::Set(Ok(cap))
            }
            _ => {
                reads += u32::from(cap < Watts(700.0));
                if reads > 2 {
                    cap = Watts(theirs);
                }
                Reply::Read(Ok(reading(cap, 90.0)))
            }
        });
        assert_eq!(meddles.ending, Ending::Foreign(Watts(theirs)));
        assert_eq!(meddles.writes.len(), 1);
    }
}

#[test]
fn a_cap_that_can_not_be_set_again_is_owed() {
    let mut cap = Watts(700.0);
    let run = run(pace(), |_, operation| match operation {
        Operation::Set(to) if to < cap => {
            cap = to;
            Reply::Set(Ok(cap))
        }
        Operation::Set(_) => Reply::Set(Err(failed("setting the cap"))),
        _ => Reply::Read(Ok(reading(cap, 90.0))),
    });
    assert_eq!(run.ending, Ending::Owed);
    assert_eq!(run.writes.len(), 1 + TRIES as usize);
}

#[test]
fn clocks_are_locked_on_demand_only_and_freed() {
    let mut cap = Watts(700.0);
    let pace = Pace {
        clock_share: Some(0.5),
        ..pace()
    };
    let run = run(pace, |_, operation| match operation {
        Operation::Set(to) => {
            cap = to;
            Reply::Set(Ok(cap))
        }
        Operation::HighestClock => Reply::HighestClock(Ok(Hertz(1.98e9))),
        Operation::Clocks(_) => Reply::Clocks(Ok(())),
        _ => Reply::Read(Ok(reading(cap, 90.0))),
    });
    assert_eq!(run.ending, Ending::Returned);
    let clock = Hertz(990e6);
    let range = ClockRange {
        lowest: clock,
        highest: clock,
    };
    let wanted = [Operation::Clocks(Some(range)), Operation::Clocks(None)];
    assert_eq!(run.writes[2..], wanted);
}

#[test]
fn a_stop_undoes_what_was_written_and_writes_nothing_else() {
    for at in 0..60 {
        let mut now = Nanos::ZERO;
        let mut exam = Exam::begin(facts(700.0), pace(), now);
        let (mut cap, mut steps, mut lowers) = (Watts(700.0), 0, 0);
        let ending = loop {
            if steps == at {
                exam.stop(&Stop::Run("a job began".to_owned()));
                lowers = 0;
            }
            steps += 1;
            match exam.next(now) {
                Step::Rest(time) => now += time,
                Step::End(ending) => break ending,
                Step::Do(operation) => {
                    now += Nanos(MS);
                    let reply = match operation {
                        Operation::Set(to) => {
                            lowers += u32::from(to < Watts(700.0));
                            cap = to;
                            Reply::Set(Ok(cap))
                        }
                        _ => Reply::Read(Ok(reading(cap, 90.0))),
                    };
                    exam.answered(now, now, &reply);
                }
            }
        };
        assert!(steps <= at || lowers == 0, "{at}");
        assert!(matches!(ending, Ending::Returned | Ending::Untouched));
        assert_eq!(cap, Watts(700.0), "{at}");
    }
}

/// An answer of a device that may do anything.
#[derive(Debug, Clone, Copy)]
enum Odd {
    Honest,
    Lies,
    Cap(f64),
    Fails,
    Refuses,
    Changed(f64),
    Silent,
    Stop,
}

fn odd() -> impl Strategy<Value = Odd> {
    let caps = prop_oneof![
        Just(700.0),
        Just(695.0),
        Just(694.0),
        Just(400.0),
        Just(705.0),
        Just(f64::NAN)
    ];
    prop_oneof![
        12 => Just(Odd::Honest),
        1 => Just(Odd::Lies),
        2 => caps.clone().prop_map(Odd::Cap),
        1 => Just(Odd::Fails),
        1 => Just(Odd::Refuses),
        1 => caps.prop_map(Odd::Changed),
        1 => Just(Odd::Silent),
        1 => Just(Odd::Stop),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// For all answers of a device: only two caps are written, the examination ends, and an ending says no more than
    /// was read.
    #[test]
    fn whatever_a_device_answers_it_is_left_as_the_ending_says(
        answers in prop::collection::vec(odd(), 1..60), clocks: bool,
    ) {
        let mut now = Nanos::ZERO;
        let clock_share = clocks.then_some(0.5);
        let mut exam = Exam::begin(facts(700.0), Pace { clock_share, ..pace() }, now);
        let (mut cap, mut last_read, mut writes, mut locked) = (700.0, None, 0, false);
        let mut index = 0;
        let ending = loop {
            match exam.next(now) {
                Step::Rest(time) => now += time,
                Step::End(ending) => break ending,
                Step::Do(operation) => {
                    let odd = answers.get(index).copied().unwrap_or(Odd::Honest);
                    index += 1;
                    prop_assert!(index < 2000);
                    let asked = now;
                    now += Nanos(MS);
                    if let Operation::Set(to) = operation {
                        prop_assert!(to == Watts(695.0) || to == Watts(700.0));
                        writes += 1;
                        last_read = None;
                    }
                    if let Operation::Clocks(range) = operation {
                        locked |= range.is_some();
                    }
                    let error = match odd {
                        Odd::Fails => Some(failed("asking")),
                        Odd::Refuses => Some(PowerError::Permission {
                            device: "gpu".to_owned(), action: "asking", hint: "be root".to_owned(),
                        }),
                        _ => None,
                    };
                    if matches!(odd, Odd::Silent) {
                        exam.silent(Nanos(MS));
                        continue;
                    }
                    let read = |cap: f64| match &error {
                        Some(error) => Err(error.clone()),
                        None => Ok(Watts(cap)),
                    };
                    let reply = match operation {
                        Operation::Set(_) if matches!(odd, Odd::Changed(_)) => {
                            let Odd::Changed(held) = odd else { unreachable!() };
                            cap = held;
                            last_read = Some(held);
                            let (device, known) = ("gpu".to_owned(), Watts(700.0));
                            Reply::Set(Err(PowerError::Changed { device, known, cap: Watts(held) }))
                        }
                        Operation::Set(to) => {
                            match odd {
                                Odd::Cap(held) => cap = held,
                                Odd::Lies | Odd::Refuses => {}
                                _ => cap = to.0,
                            }
                            last_read = error.is_none().then_some(cap);
                            Reply::Set(read(cap))
                        }
                        Operation::HighestClock => Reply::HighestClock(match &error {
                            Some(error) => Err(error.clone()),
                            None => Ok(Hertz(2e9)),
                        }),
                        Operation::Clocks(range) => Reply::Clocks(match &error {
                            Some(error) => Err(error.clone()),
                            None => {
                                locked = range.is_some();
                                Ok(())
                            }
                        }),
                        _ => {
                            if let Odd::Cap(held) = odd { cap = held; }
                            if error.is_none() { last_read = Some(cap); }
                            Reply::Read(read(cap).map(|cap| reading(cap, 90.0)))
                        }
                    };
                    exam.answered(asked, now, &reply);
                    if matches!(odd, Odd::Stop) {
                        exam.stop(&Stop::Run("a signal".to_owned()));
                    }
                }
            }
        };
        match ending {
            Ending::Untouched => prop_assert_eq!(writes, 0),
            Ending::Returned => {
                prop_assert_eq!(last_read, Some(700.0));
                let refused = exam.checks.iter().any(|it| it.topic == Topic::Clocks && it.verdict == Verdict::Failed);
                prop_assert!(!locked || refused);
            }
            Ending::Foreign(held) => {
                prop_assert!(!held.is_same_cap(Watts(700.0)));
                prop_assert!(held.0.is_nan() || last_read == Some(held.0));
            }
            Ending::Owed => prop_assert!(writes > 0),
        }
    }
}
