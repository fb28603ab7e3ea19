//! The limits found on a socket, in a file: the undo journal has the long-term limit, which is the cap, and a litd
//! after a crash restores the short-term one from here.
//!
//! `ADDRESS.short-term` has one line of six numbers, in microwatts, long before short (`-` where a socket has
//! one limit only): the limits found, those that are about to be written, and those before that; and what kind of
//! zone they are written to, of which a socket may have two. It is there from before the first write until both
//! limits are back.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use super::KEPT;
use super::socket::{Limits, RESOLUTION};

/// Six numbers of up to 20 digits and a word are shorter.
const LONGEST: u64 = 256;

const NUMBERS: usize = 6;

/// In place of a limit that a socket does not have.
const NONE: &str = "-";

/// Whether two limits, in microwatts, are the same to whoever counts in driver units.
pub(super) fn near(one: u64, other: u64) -> bool {
    one.abs_diff(other) < RESOLUTION
}

/// Limits found, and limits that may be there by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub found: Limits,
    /// The limits that are about to be written.
    pub wanted: Limits,
    /// The limits before that.
    pub before: Limits,
}

/// What is left of litd's short-term limit beside a cap that is not litd's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeftOver {
    /// Nothing that has to be changed now: the limit goes back with the cap, or is somebody else's.
    Nothing,
    /// The limit is litd's, and is to be this one.
    Goal(u64),
    /// Both limits are somebody else's, for good.
    Theirs,
}

impl Record {
    /// Whether the limits found are about to be written.
    pub fn goes_back(&self) -> bool {
        self.wanted == self.found
    }

    /// Whether a litd that was killed at any point may have left these limits; all others are foreign.
    pub fn may_have_left(&self, now: Limits) -> bool {
        let all = [self.found, self.wanted, self.before];
        let long = all.iter().any(|it| near(it.long, now.long));
        let short = match now.short {
            Some(now) => {
                let mut shorts = all.iter().filter_map(|it| it.short);
                shorts.any(|it| near(it, now))
            }
            None => self.found.short.is_none(),
        };
        long && short
    }

    /// What is left of litd's short-term limit where the cap is not what litd wanted: somebody else has set the cap
    /// since, or litd was killed between its two writes.
    pub fn left_over(&self, now: Limits) -> LeftOver {
        let (Some(short), Some(found)) = (now.short, self.found.short) else {
            return LeftOver::Nothing;
        };
        if let Some(wanted) = self.wanted.short.filter(|_| self.is_half_raised(now)) {
            return LeftOver::Goal(wanted);
        }
        if near(self.wanted.long, now.long) || near(found, short) {
            return LeftOver::Nothing;
        }
        let mut ours = [self.wanted, self.before]
            .into_iter()
            .filter_map(|it| it.short);
        if !ours.any(|it| near(it, short)) {
            return LeftOver::Nothing;
        }
        let known = [self.found, self.before];
        let whole = known.iter().find(|it| near(it.long, now.long));
        let goal = match whole {
            Some(whole) => whole.short,
            // Somebody has set both limits to one value, which happens to be litd's.
            None if near(now.long, short) => return LeftOver::Theirs,
            // Beside somebody else's cap it is never the lower one.
            None => Some(found.max(now.long)),
        };
        let goal = goal.filter(|&goal| !near(goal, short));
        goal.map_or(LeftOver::Nothing, LeftOver::Goal)
    }

    /// Whether litd was killed between the two writes that raise both limits: the cap is the wanted one, and the
    /// short-term limit is still the lower one from before. That of an override would stay so, because no undo follows.
    fn is_half_raised(&self, now: Limits) -> bool {
        let is_before = |it: Limits| {
            it.short
                .zip(now.short)
                .is_some_and(|(one, other)| near(one, other))
        };
        let rises = self.wanted.long > self.before.long && self.wanted.short > self.before.short;
        rises
            && near(self.wanted.long, now.long)
            && is_before(self.before)
            && !is_before(self.wanted)
    }

    /// Whether the cap is litd's own, of a whole write or from before half a one: then it goes back later, with its
    /// limit.
    pub fn goes_back_later(&self, now: Limits) -> bool {
        let is_before = self.before != self.found && near(self.before.long, now.long);
        is_before || near(self.wanted.long, now.long)
    }

    fn line(&self) -> String {
        let mut words = Vec::new();
        for limits in [self.found, self.wanted, self.before] {
            words.push(limits.long.to_string());
            words.push(
                limits
                    .short
                    .map_or_else(|| NONE.to_owned(), |it| it.to_string()),
            );
        }
        words.join(" ")
    }

    /// The limits that count as litd's after its write, if those read back are not the wanted ones. The firmware has
    /// changed them then, so both count as litd's. One exception: a long-term limit that is neither the wanted one nor
    /// the one before, nor the `highest`. Somebody has set that one meanwhile, so the wanted one counts in its place.
    pub fn ours(&self, after: Limits, highest: u64) -> Limits {
        let known = [self.wanted.long, self.before.long, highest];
        let long = match known.iter().any(|&it| near(it, after.long)) {
            true => after.long,
            false => self.wanted.long,
        };
        Limits { long, ..after }
    }

    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().take(NUMBERS).collect();
        let limits = |long: &str, short: &str| {
            Some(Limits {
                long: long.parse().ok()?,
                short: match short {
                    NONE => None,
                    short => Some(short.parse().ok()?),
                },
            })
        };
        match words[..] {
            [a, b, c, d, e, f] => Some(Self {
                found: limits(a, b)?,
                wanted: limits(c, d)?,
                before: limits(e, f)?,
            }),
            _ => None,
        }
    }
}

/// The file of one socket.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    /// The kind of its zone, as powercap calls it.
    kind: String,
}

impl Kept {
    /// `kind`: that of the zone that is written to.
    pub fn new(directory: &Path, address: &str, kind: &str) -> Self {
        Self {
            path: path(directory, address),
            kind: kind.to_owned(),
        }
    }

    /// The record, if it is complete.
    pub fn read(&self) -> Option<Record> {
        Record::parse(&text(&self.path)?)
    }

    /// The kind of the zone that litd has changed of this socket and has not given back; one that was kept by an
    /// older litd has none.
    pub fn written(directory: &Path, address: &str) -> Option<String> {
        let text = text(&path(directory, address))?;
        Record::parse(&text)?;
        text.split_whitespace().nth(NUMBERS).map(str::to_owned)
    }

    /// There is the old one or the new one, at any moment. Without
    /// the directory the daemon changes caps only to undo, and that has to go on.
    ///
    /// # Errors
    /// The disk's; it names the file.
    pub fn write(&self, record: &Record) -> io::Result<()> {
        let line = format!("{} {}\n", record.line(), self.kind);
        match self.try_write(&line) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let text = format!("{}: {error}", self.path.display());
                Err(io::Error::new(error.kind(), text))
            }
            _ => Ok(()),
        }
    }

    fn try_write(&self, line: &str) -> io::Result<()> {
        let new = self.path.with_extension("short-term.new");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        // Not synced: a node that loses its power starts with its own limits.
        open(&new, &mut options)?.write_all(line.as_bytes())?;
        fs::rename(&new, &self.path)
    }

    /// A file that stays names the present limits.
    pub fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn path(directory: &Path, address: &str) -> PathBuf {
    directory.join(format!("{address}{KEPT}"))
}

fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = open(path, OpenOptions::new().read(true)).ok()?;
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = options.custom_flags(flags.bits()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("is not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limits(long: u64, short: u64) -> Limits {
        Limits {
            long,
            short: Some(short),
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(numbers: [u64; 6], has_one: bool) {
            let [a, b, c, d, e, f] = numbers;
            let limits = |long, short| Limits { long, short: Some(short).filter(|_| !has_one) };
            let (found, wanted, before) = (limits(a, b), limits(c, d), limits(e, f));
            let record = Record { found, wanted, before };
            let place = tempfile::tempdir().unwrap();
            let kept = Kept::new(place.path(), "cpu0", "intel-rapl");
            prop_assert_eq!(kept.read(), None);
            kept.write(&record).unwrap();
            prop_assert_eq!(kept.read(), Some(record));
            let written = Kept::written(place.path(), "cpu0");
            prop_assert_eq!(written.as_deref(), Some("intel-rapl"));
            kept.remove();
            prop_assert_eq!(kept.read(), None);
        }

        #[test]
        fn any_bytes_are_a_record_or_none(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let place = tempfile::tempdir().unwrap();
            let kept = Kept::new(place.path(), "cpu0", "intel-rapl");
            fs::write(&kept.path, bytes).unwrap();
            let _ = (kept.read(), Kept::written(place.path(), "cpu0"));
        }
    }

    #[test]
    fn a_short_term_limit_of_litds_does_not_outlive_its_cap() {
        let record = Record {
            found: limits(350_000_000, 420_000_000),
            wanted: limits(173_000_000, 207_600_000),
            before: limits(200_000_000, 240_000_000),
        };
        for (long, short, goal) in [
            // litd's cap is there: both go back together.
            (173_000_000, 207_600_000, LeftOver::Nothing),
            (173_000_000, 240_000_000, LeftOver::Nothing),
            // Somebody else has set the cap: to what was found, below it, above all.
            (350_000_000, 207_600_000, LeftOver::Goal(420_000_000)),
            (330_000_000, 240_000_000, LeftOver::Goal(420_000_000)),
            (500_000_000, 207_600_000, LeftOver::Goal(500_000_000)),
            // And the short-term limit too.
            (330_000_000, 400_000_000, LeftOver::Nothing),
            // Both to one value, which is litd's by chance.
            (240_000_000, 240_000_000, LeftOver::Theirs),
            // Half a write.
            (200_000_000, 207_600_000, LeftOver::Goal(240_000_000)),
            // The one that was found.
            (500_000_000, 420_000_000, LeftOver::Nothing),
        ] {
            assert_eq!(
                record.left_over(limits(long, short)),
                goal,
                "{long} {short}"
            );
        }
    }

    #[test]
    fn a_limit_that_somebody_sets_between_write_and_read_back_leaves_no_short_term_limit_of_litds()
    {
        let record = Record {
            found: limits(350_000_000, 420_000_000),
            wanted: limits(200_000_000, 240_000_000),
            before: limits(350_000_000, 420_000_000),
        };
        let told = |after: Limits| {
            let wanted = record.ours(after, 400_000_000);
            Record { wanted, ..record }.left_over(after)
        };
        assert_eq!(
            told(limits(330_000_000, 240_000_000)),
            LeftOver::Goal(420_000_000)
        );
        // The firmware has rounded the short-term limit, or the cap to its highest.
        assert_eq!(told(limits(200_000_000, 236_000_000)), LeftOver::Nothing);
        assert_eq!(told(limits(400_000_000, 480_000_000)), LeftOver::Nothing);
    }

    #[test]
    fn half_of_an_override_that_raises_both_limits_is_finished() {
        let found = limits(350_000_000, 420_000_000);
        for before in [found, limits(200_000_000, 240_000_000)] {
            let wanted = limits(500_000_000, 600_000_000);
            let record = Record {
                found,
                wanted,
                before,
            };
            let half = Limits {
                long: wanted.long,
                ..before
            };
            assert_eq!(record.left_over(half), LeftOver::Goal(600_000_000));
            // What was found is still to be known, if a cap of litd's goes back.
            assert!(record.goes_back_later(half));
            assert_eq!(record.left_over(wanted), LeftOver::Nothing);
            assert_eq!(record.left_over(before), LeftOver::Nothing);
        }
    }

    #[test]
    fn half_a_write_is_litds_and_another_limit_is_not() {
        let record = Record {
            found: limits(350_000_000, 420_000_000),
            wanted: limits(173_000_000, 207_600_000),
            before: limits(200_000_000, 240_000_000),
        };
        for (long, short) in [
            (350_000_000, 420_000_000),
            (200_000_000, 207_600_000),
            (173_000_000, 207_500_000),
            (173_000_000, 420_000_000),
        ] {
            assert!(record.may_have_left(limits(long, short)));
        }
        for (long, short) in [(350_000_000, 400_000_000), (180_000_000, 207_600_000)] {
            assert!(!record.may_have_left(limits(long, short)));
        }
    }
}
