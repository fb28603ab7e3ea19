//! The tokens of the job's last checkpoint.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::super::input;

/// Why the progress is not known.
#[derive(Debug, Clone, PartialEq)]
pub enum Unknown {
    /// The file has no number: the job may be writing it, or a crash has left it so.
    NoNumber { path: PathBuf, text: String },
    /// The number is more than twice the tokens to train: for example two numbers in a row.
    TooMany {
        path: PathBuf,
        tokens: f64,
        wanted: f64,
    },
    /// The file is there and can't be read.
    Unreadable(String),
    /// The file is gone, though the job had told of a checkpoint.
    Gone { path: PathBuf, tokens: f64 },
}

impl Unknown {
    /// Whether the number that was told last may be believed at a start: a crash leaves half a file, but no file that
    /// is gone or can't be read. Nothing tells then whether the checkpoint beside it is there.
    pub fn may_be_a_crash(&self) -> bool {
        matches!(self, Self::NoNumber { .. })
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNumber { path, text } => {
                write!(f, "{}: {text:?} must be a number of tokens", path.display())
            }
            Self::TooMany {
                path,
                tokens,
                wanted,
            } => write!(
                f,
                "{}: {tokens} tokens are more than twice the {wanted} that are to be trained: it must be one number, \
                 written anew with each checkpoint",
                path.display()
            ),
            Self::Unreadable(error) => {
                write!(f, "{error}: --progress must be a file that litctl may read")
            }
            Self::Gone { path, tokens } => write!(
                f,
                "{}: it is gone, and the job's last checkpoint had {tokens} tokens: is its file system mounted? Write \
                 the number into it again; or, to train anew, give another --state",
                path.display()
            ),
        }
    }
}

/// Tokens of the last checkpoint, of so many `wanted`; 0 where the job has written none yet, which it has where some
/// were `told`.
///
/// # Errors
/// The number is not known.
pub fn read(path: &Path, told: Option<f64>, wanted: f64) -> Result<f64, Unknown> {
    let text = input::text_if_there(path, litd_files::LONGEST_STATE);
    let Some(text) = text.map_err(Unknown::Unreadable)? else {
        return match told.filter(|tokens| *tokens > 0.0) {
            Some(tokens) => Err(Unknown::Gone {
                path: path.to_owned(),
                tokens,
            }),
            None => Ok(0.0),
        };
    };
    let number = text.trim().parse().ok();
    let number = number.filter(|it: &f64| it.is_finite() && *it >= 0.0);
    let Some(tokens) = number else {
        return Err(Unknown::NoNumber {
            path: path.to_owned(),
            text: text.trim().to_owned(),
        });
    };
    match tokens <= 2.0 * wanted {
        true => Ok(tokens),
        false => Err(Unknown::TooMany {
            path: path.to_owned(),
            tokens,
            wanted,
        }),
    }
}

/// What is to be done where the job has written no progress by its end: without it, it trains all anew.
pub fn missing(path: &Path) -> Option<String> {
    (!path.exists()).then(|| {
        format!(
            "{} is not there: the job is to write the tokens of each checkpoint into it (--progress)",
            path.display()
        )
    })
}

/// A number that falls, or that says that all is trained, counts once it has stood for so long while the job runs: a
/// file that is written in two steps, or one wrong number, must neither end a job nor make it late.
const SETTLES: Duration = Duration::from_secs(1);

/// The tokens that count, of those that were read.
#[derive(Debug, Default)]
pub struct Settling {
    /// What may become true, and since when.
    new: Option<New>,
    /// Since when the last checkpoint has all tokens: by that the deadline is judged, and not by a job that takes its
    /// time to end.
    complete: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy)]
struct New {
    is_complete: bool,
    now: Timestamp,
    real: Duration,
}

/// A number that was read, and when: by the clock of the deadline, and by that of patience.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    pub tokens: f64,
    pub now: Timestamp,
    pub real: Duration,
    /// Whether no job runs that could write another number.
    pub is_last: bool,
}

impl Settling {
    /// The tokens that count after a reading, of `wanted` ones, where `known` ones counted before.
    pub fn take(&mut self, known: Option<f64>, reading: Reading, wanted: f64) -> f64 {
        let Reading {
            tokens, now, real, ..
        } = reading;
        let is_complete = tokens >= wanted;
        let is_usual =
            known.is_none_or(|known| tokens >= known) && (!is_complete || self.complete.is_some());
        if !is_usual {
            let new = self.new.filter(|new| new.is_complete == is_complete);
            let new = *self.new.insert(new.unwrap_or(New {
                is_complete,
                now,
                real,
            }));
            let has_stood = real.saturating_sub(new.real) >= SETTLES;
            if !has_stood && !reading.is_last {
                return known.unwrap_or(0.0);
            }
        }
        let since = self.new.take().map_or(now, |new| new.now);
        self.complete = is_complete.then(|| self.complete.unwrap_or(since));
        tokens
    }

    pub fn complete(&self) -> Option<Timestamp> {
        self.complete
    }

    /// The clock of the deadline was set.
    pub fn shift(&mut self, step: SignedDuration) {
        let shifted = |it: Timestamp| it.saturating_add(step).unwrap_or(it);
        self.complete = self.complete.map(shifted);
        if let Some(new) = &mut self.new {
            new.now = shifted(new.now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(tokens: f64, real: u64) -> Reading {
        Reading {
            tokens,
            now: Timestamp::from_second(1_900_000_000 + real as i64).unwrap(),
            real: Duration::from_millis(real),
            is_last: false,
        }
    }

    /// Which tokens count after each number, of 100 wanted, and since when all are there.
    fn taken(readings: &[(f64, u64)]) -> (Vec<f64>, Option<i64>) {
        let mut settling = Settling::default();
        let mut known = None;
        let each = readings.iter().map(|&(tokens, real)| {
            let taken = settling.take(known, reading(tokens, real), 100.0);
            known = Some(taken);
            taken
        });
        let each = each.collect();
        let since = settling.complete().map(Timestamp::as_second);
        (each, since.map(|it| it - 1_900_000_000))
    }

    #[test]
    fn one_wrong_number_neither_ends_a_job_nor_sets_it_back() {
        let told = [
            (10.0, 0),
            (150.0, 500),
            (20.0, 600),
            (2.0, 700),
            (25.0, 800),
        ];
        assert_eq!(taken(&told), (vec![10.0, 10.0, 20.0, 20.0, 25.0], None));
        // The number that was wrong before says nothing of the next.
        let again = [(10.0, 0), (150.0, 500), (20.0, 600), (100.0, 1600)];
        assert_eq!(taken(&again), (vec![10.0, 10.0, 20.0, 20.0], None));
    }

    #[test]
    fn a_number_that_stands_counts_since_it_was_read_first() {
        let done = [(90.0, 0), (100.0, 500), (100.0, 1400), (101.0, 1500)];
        assert_eq!(taken(&done), (vec![90.0, 90.0, 90.0, 101.0], Some(500)));
        let back = [
            (90.0, 0),
            (50.0, 100),
            (60.0, 1000),
            (60.0, 1100),
            (70.0, 1200),
        ];
        assert_eq!(taken(&back), (vec![90.0, 90.0, 90.0, 60.0, 70.0], None));
        let taken_back = [(100.0, 0), (100.0, 1000), (40.0, 2000), (40.0, 3000)];
        assert_eq!(taken(&taken_back), (vec![0.0, 100.0, 100.0, 40.0], None));
    }

    #[test]
    fn what_a_job_that_has_ended_left_counts_at_once() {
        let mut settling = Settling::default();
        let last = Reading {
            is_last: true,
            ..reading(100.0, 3)
        };
        assert_eq!(settling.take(Some(90.0), last, 100.0), 100.0);
        assert_eq!(settling.complete(), Some(last.now));
    }
}
