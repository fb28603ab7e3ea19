//! Answers of a device: its operation under way, its next ones, and recent failures. A device does one operation
//! at a time, and may never answer.

use litd_power::{Operation, Reply};
use litd_units::Nanos;

use crate::devices::mending::Trust;

/// The operation that a device is doing.
#[derive(Debug, Clone, Copy, Default)]
enum Doing {
    /// The device is free.
    #[default]
    Nothing,
    /// The operation, when the device was asked for it, and for how long that is.
    Asked(Operation, Nanos, Delay),
}

/// For how long a device has been asked for something.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Delay {
    /// Not for too long, as far as the last round saw.
    Usual,
    /// For too long in the last round. After a pause of the whole daemon its answer may be waiting.
    Late,
    /// For too long in two rounds: that was reported.
    Overdue,
}

/// A device's answer to an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    /// The operation that was asked for.
    pub operation: Operation,
    /// When it was asked for.
    pub asked: Nanos,
    /// Whether it had been reported as not answering.
    pub was_overdue: bool,
}

/// Operations that a device is to do when it is free.
#[derive(Debug, Clone, Copy, Default)]
struct Wanted {
    read: bool,
    identity: bool,
    holders: bool,
    release: bool,
    /// Holders were asked for last: a reading that is wanted comes first now.
    reads_first: bool,
}

/// How a device answers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answering {
    doing: Doing,
    wanted: Wanted,
    /// Readings and writes that have failed in a row.
    failures: u32,
    /// Writes that have failed since the last successful one, however many readings succeeded in between.
    refusals: u32,
    /// When a failed write is tried again.
    retry_at: Option<Nanos>,
    /// How often the device was trusted again after failures.
    pub trust: Trust,
}

/// Whether a reply belongs to an operation. Any other reply is a mistake of the shell's.
fn answers(operation: Operation, reply: &Reply) -> bool {
    matches!(
        (operation, reply),
        (Operation::Read, Reply::Read(_))
            | (Operation::Set(_), Reply::Set(_))
            | (Operation::Identify, Reply::Identity(_))
            | (Operation::Holders, Reply::Holders(_))
            | (Operation::Clocks(_), Reply::Clocks(_))
            | (Operation::HighestClock, Reply::HighestClock(_))
            | (Operation::Release, Reply::Released(_))
    )
}

impl Answering {
    /// Whether the device is doing nothing.
    pub fn is_free(&self) -> bool {
        matches!(self.doing, Doing::Nothing)
    }

    /// The operation under way, and when it began.
    pub fn doing(&self) -> Option<(Operation, Nanos)> {
        match self.doing {
            Doing::Nothing => None,
            Doing::Asked(operation, since, _) => Some((operation, since)),
        }
    }

    /// The device begins an operation at `now`.
    pub fn begins(&mut self, operation: Operation, now: Nanos) {
        self.doing = Doing::Asked(operation, now, Delay::Usual);
    }

    /// A reply has come: the device is free again if the reply belongs to the operation under way.
    pub fn answered(&mut self, reply: &Reply) -> Option<Answer> {
        let Doing::Asked(operation, asked, delay) = self.doing else {
            return None;
        };
        if !answers(operation, reply) {
            return None;
        }
        self.doing = Doing::Nothing;
        Some(Answer {
            operation,
            asked,
            was_overdue: delay == Delay::Overdue,
        })
    }

    /// Once a second: whether the device has just become overdue, because its operation took longer than
    /// `patience` in the last round, too.
    pub fn becomes_overdue(&mut self, now: Nanos, patience: Nanos) -> bool {
        let Doing::Asked(operation, since, delay) = &mut self.doing else {
            return false;
        };
        // The users of a GPU are read from procfs, where any user can make the read take longer.
        let times = match operation {
            Operation::Holders => 3,
            _ => 1,
        };
        let is_late = now >= *since + Nanos(patience.0.saturating_mul(times));
        let before = *delay;
        *delay = match before {
            Delay::Overdue => Delay::Overdue,
            Delay::Late if is_late => Delay::Overdue,
            _ if is_late => Delay::Late,
            _ => Delay::Usual,
        };
        before != Delay::Overdue && *delay == Delay::Overdue
    }

    /// Whether the device was reported as not answering, and has not answered since.
    pub fn is_overdue(&self) -> bool {
        matches!(self.doing, Doing::Asked(_, _, Delay::Overdue))
    }

    /// If the device goes on not answering, that is reported anew.
    pub fn give_time(&mut self) {
        if let Doing::Asked(_, _, delay @ Delay::Overdue) = &mut self.doing {
            *delay = Delay::Late;
        }
    }

    /// How many readings and writes have failed in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// How many writes have failed since one was done.
    pub fn refusals(&self) -> u32 {
        self.refusals
    }

    /// A reading has failed.
    pub fn has_failed_to_read(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// A write has failed.
    pub fn has_refused(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.refusals = self.refusals.saturating_add(1);
    }

    /// A reading is believed.
    pub fn has_read(&mut self) {
        self.failures = 0;
    }

    /// A write was done.
    pub fn has_written(&mut self) {
        self.begins_anew();
        self.retry_at = None;
    }

    /// Failures so far no longer count.
    pub fn begins_anew(&mut self) {
        self.failures = 0;
        self.refusals = 0;
    }

    /// When a failed write is tried again.
    pub fn retry_at(&self) -> Option<Nanos> {
        self.retry_at
    }

    /// A failed write is tried again then.
    pub fn retries_at(&mut self, at: Nanos) {
        self.retry_at = Some(at);
    }

    /// A failed write is not waited for any longer.
    pub fn retries_now(&mut self, now: Nanos) {
        self.retry_at = self.retry_at.map(|at| at.min(now));
    }

    /// Whether it is time to try a failed write again; it is, once.
    pub fn is_to_retry(&mut self, now: Nanos) -> bool {
        self.retry_at.take_if(|at| *at <= now).is_some()
    }

    /// Ask the device for a reading.
    pub fn want_read(&mut self) {
        self.wanted.read = true;
    }

    /// Ask the device for its identity and the range of its cap.
    pub fn want_identity(&mut self) {
        self.wanted.identity = true;
    }

    /// Ask the device for the processes that use it.
    pub fn want_holders(&mut self) {
        self.wanted.holders = true;
    }

    /// Close the device if it is `open`, and drop every other request: asking would open it again.
    pub fn want_closed(&mut self, open: bool) {
        self.wanted = Wanted {
            release: self.wanted.release || open,
            ..Wanted::default()
        };
    }

    /// Whether any operation is waiting for the device to be free.
    pub fn wants_anything(&self) -> bool {
        let Wanted {
            read,
            identity,
            holders,
            release,
            reads_first: _,
        } = self.wanted;
        read || identity || holders || release
    }

    /// The next operation, if the device is free; it is removed from the waiting ones.
    pub fn take_wanted(&mut self) -> Option<Operation> {
        if !self.is_free() {
            return None;
        }
        let wanted = &mut self.wanted;
        if std::mem::take(&mut wanted.identity) {
            Some(Operation::Identify)
        } else if wanted.holders && !(wanted.reads_first && wanted.read) {
            (wanted.holders, wanted.reads_first) = (false, true);
            Some(Operation::Holders)
        } else if std::mem::take(&mut wanted.read) {
            wanted.reads_first = false;
            Some(Operation::Read)
        } else if std::mem::take(&mut wanted.release) {
            Some(Operation::Release)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use litd_power::{Handles, PowerError, Reading};
    use litd_units::{Hertz, Watts};

    use super::*;

    const PATIENCE: Nanos = Nanos(10);

    fn operations() -> Vec<Operation> {
        vec![
            Operation::Read,
            Operation::Set(Watts(500.0)),
            Operation::Identify,
            Operation::Holders,
            Operation::HighestClock,
            Operation::Clocks(None),
            Operation::Release,
        ]
    }

    /// The replies to these, in their order; then one to an operation that core never asks for.
    fn replies() -> Vec<Reply> {
        let gone = || PowerError::Gone {
            device: "gpu0".to_owned(),
            cause: "made up".to_owned(),
        };
        vec![
            Reply::Read(Ok(Reading::default())),
            Reply::Set(Ok(Watts(500.0))),
            Reply::Identity(Err(gone())),
            Reply::Holders(Ok(Vec::new())),
            Reply::HighestClock(Ok(Hertz(1e9))),
            Reply::Clocks(Ok(())),
            Reply::Released(Handles::Closed),
            Reply::Range(Err(gone())),
        ]
    }

    #[test]
    fn only_the_reply_to_what_was_asked_frees_a_device() {
        for (asked, operation) in operations().into_iter().enumerate() {
            for (told, reply) in replies().iter().enumerate() {
                let mut answering = Answering::default();
                assert!(answering.answered(reply).is_none());
                answering.begins(operation, Nanos(5));
                assert_eq!(answering.doing(), Some((operation, Nanos(5))));
                let answer = answering.answered(reply);
                assert_eq!(answer.is_some(), asked == told, "{operation:?} {reply:?}");
                assert_eq!(answering.is_free(), asked == told);
                if let Some(answer) = answer {
                    assert_eq!((answer.operation, answer.asked), (operation, Nanos(5)));
                    assert!(!answer.was_overdue);
                }
            }
        }
    }

    #[test]
    fn a_device_is_overdue_once_it_takes_too_long_in_two_rounds() {
        for operation in operations() {
            let patience = match operation {
                Operation::Holders => 3 * PATIENCE.0,
                _ => PATIENCE.0,
            };
            let mut answering = Answering::default();
            assert!(!answering.becomes_overdue(Nanos(99), PATIENCE));
            answering.begins(operation, Nanos(0));
            assert!(!answering.becomes_overdue(Nanos(patience - 1), PATIENCE));
            assert!(!answering.becomes_overdue(Nanos(patience), PATIENCE));
            assert!(!answering.is_overdue());
            assert!(answering.becomes_overdue(Nanos(patience), PATIENCE));
            assert!(answering.is_overdue());
            assert!(!answering.becomes_overdue(Nanos(999), PATIENCE));
            // It is reported anew once it was given time.
            answering.give_time();
            assert!(!answering.is_overdue());
            assert!(answering.becomes_overdue(Nanos(999), PATIENCE));
        }
    }

    #[test]
    fn an_answer_tells_whether_the_device_was_overdue() {
        let mut answering = Answering::default();
        answering.begins(Operation::Read, Nanos(0));
        answering.becomes_overdue(Nanos(10), PATIENCE);
        answering.becomes_overdue(Nanos(11), PATIENCE);
        let answer = answering.answered(&Reply::Read(Ok(Reading::default())));
        assert!(answer.unwrap().was_overdue && !answering.is_overdue());
    }

    /// What the device does next, each answered at once.
    fn next(answering: &mut Answering, count: usize) -> Vec<Operation> {
        let operations = (0..count).map_while(|_| answering.take_wanted());
        operations.collect()
    }

    #[test]
    fn a_busy_device_begins_nothing_and_a_free_one_what_matters_most() {
        let mut answering = Answering::default();
        assert!(!answering.wants_anything());
        answering.want_read();
        answering.want_holders();
        answering.want_identity();
        answering.begins(Operation::Read, Nanos(0));
        assert_eq!(answering.take_wanted(), None);
        answering.answered(&Reply::Read(Ok(Reading::default())));
        let expected = [Operation::Identify, Operation::Holders, Operation::Read];
        assert_eq!(next(&mut answering, 9), expected);
        assert!(!answering.wants_anything());
    }

    #[test]
    fn looks_at_holders_keep_no_reading_waiting() {
        let mut answering = Answering::default();
        let mut begun = Vec::new();
        for _ in 0..4 {
            answering.want_read();
            answering.want_holders();
            begun.extend(next(&mut answering, 1));
        }
        let (holders, read) = (Operation::Holders, Operation::Read);
        assert_eq!(begun, [holders, read, holders, read]);
    }

    #[test]
    fn what_is_to_be_closed_is_asked_nothing_more() {
        for open in [true, false] {
            let mut answering = Answering::default();
            answering.want_read();
            answering.want_identity();
            answering.want_closed(open);
            // It is closed once, also where it was wanted before.
            answering.want_closed(false);
            let begun = next(&mut answering, 9);
            assert_eq!(begun, [Operation::Release][..usize::from(open)]);
        }
    }

    #[test]
    fn a_reading_forgives_failures_and_only_a_write_forgives_refusals() {
        let counts = |it: &Answering| (it.failures(), it.refusals());
        let mut answering = Answering::default();
        answering.has_failed_to_read();
        answering.has_refused();
        assert_eq!(counts(&answering), (2, 1));
        answering.has_read();
        assert_eq!(counts(&answering), (0, 1));
        answering.has_refused();
        answering.retries_at(Nanos(9));
        answering.has_written();
        assert_eq!(counts(&answering), (0, 0));
        assert_eq!(answering.retry_at(), None);
    }

    #[test]
    fn a_failed_write_is_tried_again_once_when_its_time_has_come() {
        let mut answering = Answering::default();
        answering.retries_now(Nanos(5));
        assert!(!answering.is_to_retry(Nanos(5)));
        answering.retries_at(Nanos(9));
        assert!(!answering.is_to_retry(Nanos(8)));
        answering.retries_now(Nanos(8));
        assert_eq!(answering.retry_at(), Some(Nanos(8)));
        assert!(answering.is_to_retry(Nanos(8)) && !answering.is_to_retry(Nanos(99)));
    }
}
