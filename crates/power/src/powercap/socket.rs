//! An Intel socket: its two limits and its counter of energy.

use std::path::{Path, PathBuf};

use litd_units::Watts;
use nix::errno::Errno;

use super::energy::{Counter, Meter};
use super::kept::{Kept, LeftOver, Record, near};
use crate::domain::{CapRange, Handles, Identity, PowerDomain, Reading};
use crate::error::PowerError;
use crate::holder::Holder;
use crate::sysfs::{self, Attribute, FileError, Step};

/// RAPL counts power in 1/2^n W, mostly eighths: it holds whole watts exactly, everywhere.
pub(super) const RESOLUTION: u64 = 1_000_000;

/// The most that the register of a limit can hold, in microwatts: 15 bits of eighths of a watt, which is the unit
/// of all server processors (Intel SDM, `MSR_PKG_POWER_LIMIT`). A higher value would be cut off, not refused.
const REGISTER: u64 = 0x7fff * 125_000;

const ACTION: &str = "setting the cap";

const LOCKED: &str = "locked by the BIOS: unlock the package power limits in its setup \
                      (\"Package Power Limit Lock\" or \"RAPL lock\")";

/// A limit of a zone.
#[derive(Debug)]
struct Constraint {
    limit: Attribute,
    /// The vendor's highest value.
    highest: Attribute,
}

impl Constraint {
    fn find(zone: &Path, name: &str) -> Option<Self> {
        let n = (0..4).find(|n| {
            let called = sysfs::line(zone.join(format!("constraint_{n}_name")));
            called.as_deref() == Some(name)
        })?;
        let file = |what: &str| zone.join(format!("constraint_{n}_{what}"));
        Some(Self {
            limit: Attribute::existing(file("power_limit_uw"))?,
            highest: Attribute::new(file("max_power_uw")),
        })
    }

    /// Some processors tell none, or 0.
    fn highest(&mut self) -> u64 {
        self.highest.number().unwrap_or(0)
    }
}

/// The files of a zone.
#[derive(Debug)]
pub(super) struct Files {
    long: Constraint,
    short: Option<Constraint>,
    enabled: Attribute,
    energy: Counter,
    /// The same limit in memory-mapped registers, where there are two: the lower one rules.
    other: Option<Attribute>,
}

impl Files {
    /// The files in `zone`, if it has a limit.
    pub fn find(zone: &Path, other: Option<&Path>) -> Option<Self> {
        let file = |name: &str| Attribute::new(zone.join(name));
        Some(Self {
            long: Constraint::find(zone, "long_term")?,
            short: Constraint::find(zone, "short_term"),
            enabled: file("enabled"),
            energy: Counter::of(zone),
            other: other.map(|zone| Attribute::new(zone.join("constraint_0_power_limit_uw"))),
        })
    }

    /// The limit that is the cap.
    pub fn cap(&mut self) -> &mut Attribute {
        &mut self.long.limit
    }

    /// The counter of energy.
    pub fn energy(&mut self) -> &mut Counter {
        &mut self.energy
    }

    /// Whether limits are switched on; true where there is no switch.
    pub fn is_enabled(&mut self) -> bool {
        !self.enabled.number::<u64>().is_ok_and(|on| on == 0)
    }

    /// The vendor's highest cap, in microwatts; 0 if it is not told.
    pub fn highest(&mut self) -> u64 {
        self.long.highest()
    }

    fn limits(&mut self) -> Result<Limits, FileError> {
        Ok(Limits {
            long: self.long.limit.number()?,
            short: match &mut self.short {
                Some(short) => Some(short.limit.number()?),
                None => None,
            },
        })
    }
}

/// Both limits, in microwatts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    pub long: u64,
    pub short: Option<u64>,
}

impl Limits {
    /// Both limits for a cap, in the proportion of these, and unchanged for the same cap. The short-term limit
    /// stays at or above the cap, and within its own `highest` (0 if that is not told) or where it was.
    fn with_cap(self, long: u64, highest: u64) -> Self {
        let short = self.short.map(|short| {
            if long == self.long {
                return short;
            }
            let scaled = u128::from(short) * u128::from(long) / u128::from(self.long.max(1));
            let most = match highest {
                0 => REGISTER,
                named => short.max(named),
            };
            u64::try_from(scaled).unwrap_or(most).min(most).max(long)
        });
        Self { long, short }
    }
}

/// A CPU socket with RAPL.
#[derive(Debug)]
pub(super) struct Socket {
    identity: Identity,
    zone: PathBuf,
    /// The zone's name: its number may go to another socket's once the driver is loaded anew.
    called: Option<String>,
    other: Option<PathBuf>,
    files: Option<Files>,
    meter: Meter,
    /// The cap at litd's start, in microwatts.
    default: u64,
    /// Both limits found: they define the proportion, and are restored.
    found: Option<Limits>,
    /// Both limits after the last write.
    written: Option<Limits>,
    /// The same on disk, for a litd after a crash.
    kept: Option<Kept>,
    /// The record in that file.
    last: Option<Record>,
}

impl Socket {
    /// `kept`: the directory for files that have to outlive the process.
    pub fn new(
        identity: Identity,
        zone: PathBuf,
        other: Option<PathBuf>,
        default: u64,
        kept: Option<&Path>,
    ) -> Self {
        let kind = super::kind(&zone);
        let kept = kept.map(|directory| Kept::new(directory, &identity.address, &kind));
        Self {
            identity,
            called: sysfs::line(zone.join("name")),
            zone,
            other,
            files: None,
            meter: Meter::default(),
            default,
            found: None,
            written: None,
            kept,
            last: None,
        }
    }

    /// Finds the zone that has this socket's name.
    fn find_zone(&mut self) -> Result<(), FileError> {
        if sysfs::line(self.zone.join("name")) == self.called {
            return Ok(());
        }
        self.files = None;
        let called = self.called.as_deref().and_then(super::package);
        let zones = super::zones_beside(&self.zone);
        let zone = called.and_then(|called| zones.get(&called));
        self.zone = zone.ok_or_else(|| self.gone())?.clone();
        Ok(())
    }

    fn gone(&self) -> FileError {
        FileError {
            path: self.zone.clone(),
            step: Step::Open,
            error: Errno::ENODEV.into(),
        }
    }

    fn files(&mut self) -> Result<&mut Files, FileError> {
        self.find_zone()?;
        let files = match self.files.take() {
            Some(files) => files,
            None => {
                self.last = self.kept.as_ref().and_then(Kept::read);
                Files::find(&self.zone, self.other.as_deref()).ok_or_else(|| self.gone())?
            }
        };
        Ok(self.files.insert(files))
    }

    fn failed(&mut self, error: FileError, action: &'static str) -> PowerError {
        let refused = error.step == Step::Write
            && matches!(
                error.errno(),
                // The kernel returns ENODATA for any error of the hardware.
                Some(Errno::ENODATA | Errno::EACCES | Errno::EPERM)
            );
        if refused {
            return self.driver(action, format!("{error}: {LOCKED}"));
        }
        let error = error.of(
            &self.identity.address,
            action,
            &self.zone,
            sysfs::PERMISSION,
        );
        if matches!(error, PowerError::Gone { .. }) {
            self.files = None;
        }
        error
    }

    fn driver(&self, action: &'static str, cause: String) -> PowerError {
        PowerError::Driver {
            device: self.identity.address.clone(),
            action,
            cause,
        }
    }

    /// The cap that litd takes for the usual one, in microwatts: the one at its start, else the vendor's.
    fn usual(&mut self) -> Result<u64, FileError> {
        let default = self.default;
        let files = self.files()?;
        // A limit that can't be read has no range.
        files.cap().number::<u64>()?;
        let named = files.highest();
        let known = [default, named].into_iter().find(|&limit| limit > 0);
        Ok(known.unwrap_or(REGISTER).min(REGISTER))
    }

    /// Counts the energy used until now. Returns whether it can be read.
    fn count(&mut self) -> bool {
        let files = self.files.as_mut();
        files.is_some_and(|files| files.energy.count(&mut self.meter))
    }

    /// The limits found, where these are the present ones.
    fn found(&self, now: Limits) -> Limits {
        if let Some(found) = self.found.filter(|_| self.written == Some(now)) {
            return found;
        }
        // An earlier litd may have died with both changed.
        let record = self.kept.as_ref().and_then(Kept::read);
        let record = record.filter(|it| it.may_have_left(now));
        record.map_or(now, |it| it.found)
    }

    /// Runs before both limits are written; a limit that could not be restored is not changed.
    fn keep(&mut self, record: &Record) -> Result<(), PowerError> {
        let Some(kept) = &self.kept else {
            return Ok(());
        };
        self.last = Some(*record);
        kept.write(record).map_err(|error| {
            let text =
                format!("the limits found can't be saved: {error}: make room on that file system");
            self.driver(ACTION, text)
        })
    }

    /// Writes both limits, the short-term one first if it goes down and last if it goes up: if litd is killed in
    /// between, the short-term limit is never more than the cap in proportion to it. Limits found are restored
    /// with the cap last: once that is back, both are.
    fn write(&mut self, record: &Record) -> Result<(), FileError> {
        let (wanted, now) = (record.wanted, record.before);
        let files = self.files()?;
        let long = (&mut files.long.limit, wanted.long, now.long);
        let (Some(file), Some(to), Some(from)) = (&mut files.short, wanted.short, now.short) else {
            return long.0.write(wanted.long);
        };
        let short = (&mut file.limit, to, from);
        let ((first, value, before), (second, last, _)) = match to < from || record.goes_back() {
            true => (short, long),
            false => (long, short),
        };
        first.write(value)?;
        let result = second.write(last);
        if result.is_err() {
            // Half of a change is no use; and the error is returned in any case.
            let _ = first.write(before);
        }
        result
    }

    /// Both limits were accepted, and these are there now.
    fn wrote(&mut self, record: Record, after: Limits) -> Result<(), PowerError> {
        let off = |one: Option<u64>, other: Option<u64>| {
            let both = one.zip(other);
            both.is_some_and(|(one, other)| !near(one, other))
        };
        let wanted = record.wanted;
        let other_short = off(after.short, wanted.short);
        if !record.goes_back() {
            if other_short || off(Some(after.long), Some(wanted.long)) {
                let highest = self.files().map(Files::highest).unwrap_or(0);
                let wanted = record.ours(after, highest);
                let _ = self.keep(&Record { wanted, ..record });
            }
            return Ok(());
        }
        if other_short {
            let micro = |short: Option<u64>| sysfs::from_micro(short.unwrap_or_default());
            let cause = format!(
                "{}: the short-term limit says {}, where {} was found",
                self.zone.display(),
                micro(after.short),
                micro(wanted.short)
            );
            return Err(self.driver(ACTION, cause));
        }
        self.keep_no_more();
        Ok(())
    }

    fn keep_no_more(&mut self) {
        self.last = None;
        if let Some(kept) = &self.kept {
            kept.remove();
        }
    }

    /// Gives back a short-term limit that is still litd's while the cap is somebody else's, or what was found: no
    /// undo would, because undo goes by the cap.
    fn mend_short_term(&mut self) -> Result<(), PowerError> {
        let Some(record) = self.last else {
            return Ok(());
        };
        let mend = |files: &mut Files| {
            let now = files.limits()?;
            match (record.left_over(now), &mut files.short) {
                (LeftOver::Nothing, _) | (_, None) => Ok(false),
                (LeftOver::Theirs, _) => Ok(true),
                (LeftOver::Goal(goal), Some(short)) => {
                    short.limit.write(goal)?;
                    Ok(!record.goes_back_later(now))
                }
            }
        };
        let is_over = self.files().and_then(mend);
        if is_over.map_err(|error| self.failed(error, "restoring the short-term limit"))? {
            (self.found, self.written) = (None, None);
            self.keep_no_more();
        }
        Ok(())
    }
}

impl PowerDomain for Socket {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Up to the register's maximum: limits above the vendor's are common, and caps found must be restorable,
    /// whatever is there now.
    fn range(&mut self) -> Result<CapRange, PowerError> {
        self.usual()
            .map(|usual| CapRange {
                lowest: Watts::ZERO,
                highest: sysfs::from_micro(REGISTER),
                default: sysfs::from_micro(usual),
                resolution: sysfs::from_micro(RESOLUTION),
            })
            .map_err(|error| self.failed(error, "reading the range of caps"))?
            .checked(&self.identity.address)
    }

    fn cap(&mut self) -> Result<Watts, PowerError> {
        self.files()
            .and_then(|files| files.cap().watts())
            .map_err(|error| self.failed(error, "reading the cap"))
    }

    fn set_cap(&mut self, cap: Watts) -> Result<(), PowerError> {
        let Some(long) = sysfs::to_micro(cap).filter(|&long| long <= REGISTER) else {
            return Err(PowerError::OutOfRange {
                device: self.identity.address.clone(),
                asked: cap,
                lowest: Watts::ZERO,
                highest: sysfs::from_micro(REGISTER),
            });
        };
        let read = |files: &mut Files| {
            let enabled = files.is_enabled();
            let highest = files.short.as_mut().map_or(0, Constraint::highest);
            Ok((enabled, highest, files.limits()?))
        };
        let (enabled, highest_short, now) = self
            .files()
            .and_then(read)
            .map_err(|error| self.failed(error, ACTION))?;
        if !enabled {
            let file = self.zone.join("enabled");
            let cause = format!("limits are switched off: write 1 to {}", file.display());
            return Err(self.driver(ACTION, cause));
        }
        let found = self.found(now);
        self.found = Some(found);
        let wanted = found.with_cap(long, highest_short);
        let record = Record {
            found,
            wanted,
            before: now,
        };
        // While restoring, the limits are known already.
        if !record.goes_back() {
            self.keep(&record)?;
        }
        let written = self.write(&record);
        // Power from before says nothing about this cap.
        self.meter.restart();
        self.count();
        let after = self.files().and_then(Files::limits);
        self.written = after.as_ref().ok().copied();
        written.map_err(|error| self.failed(error, ACTION))?;
        let after = after.map_err(|error| self.failed(error, ACTION))?;
        if after.long == now.long && !near(after.long, long) {
            // The driver has not taken the long-term limit, so the short-term limit goes back, too.
            let short = self.files.as_mut().and_then(|files| files.short.as_mut());
            if let Some((short, before)) = short.zip(now.short) {
                let _ = short.limit.write(before);
            }
            let file = self.zone.display();
            let held = sysfs::from_micro(after.long);
            return Err(self.driver(ACTION, format!("{file}: still says {held}: {LOCKED}")));
        }
        self.wrote(record, after)
    }

    fn read(&mut self) -> Result<Reading, PowerError> {
        let cap = self.cap()?;
        self.mend_short_term()?;
        let Some(files) = &mut self.files else {
            return Ok(Reading {
                cap,
                ..Reading::default()
            });
        };
        let other = files.other.as_mut().and_then(|file| file.watts().ok());
        let measured = self.count();
        Ok(Reading {
            cap,
            enforced: other
                .filter(|&other| other > Watts::ZERO)
                .map(|other| other.min(cap)),
            power: self.meter.power().filter(|_| measured),
            energy: self.meter.energy().filter(|_| measured),
            ..Reading::default()
        })
    }

    /// All processes use a CPU; none holds it.
    fn holders(&mut self) -> Result<Vec<Holder>, PowerError> {
        Ok(Vec::new())
    }

    fn release(&mut self) -> Handles {
        self.files = None;
        Handles::Closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_short_term_limit_is_in_proportion_and_never_below(
            long in 1..REGISTER,
            more in 0..REGISTER,
            cap in 1..REGISTER,
            highest: u64,
        ) {
            let short = Some(long + more);
            let found = Limits { long, short };
            let limits = found.with_cap(cap, highest);
            prop_assert_eq!(limits.long, cap);
            prop_assert!(limits.short >= Some(cap));
            prop_assert_eq!(found.with_cap(long, highest), found);
            if cap < long {
                prop_assert!(limits.short <= found.short);
            }
        }
    }

    #[test]
    fn a_short_term_limit_goes_up_to_its_own_highest_or_the_registers() {
        let lowered = Limits {
            long: 100_000_000,
            short: Some(120_000_000),
        };
        let raised = |cap, highest| lowered.with_cap(cap, highest).short;
        assert_eq!(raised(200_000_000, 0), Some(240_000_000));
        assert_eq!(raised(200_000_000, 220_000_000), Some(220_000_000));
        assert_eq!(raised(4_000_000_000, 0), Some(REGISTER));
    }

    #[test]
    fn a_socket_with_one_limit_has_one() {
        let found = Limits {
            long: 200,
            short: None,
        };
        assert_eq!(
            found.with_cap(100, 0),
            Limits {
                long: 100,
                short: None
            }
        );
    }
}
