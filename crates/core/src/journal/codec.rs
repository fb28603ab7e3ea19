//! The journal's file: one record per line, as JSON that a person can read, a space, and the
//! CRC-32 of the JSON in eight hexadecimal digits. The first record of a file names the format
//! and its version; every later version keeps that record's shape.

use std::collections::BTreeSet;
use std::io;

use litd_api::crc32;
use litd_units::{Nanos, Watts};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::{Entry, JournalError, Late, Lock, Locked, Recovered};

/// The version written, and the only one read.
pub(super) const VERSION: u64 = 1;

/// A cap as a whole number of microwatts, the finest unit of any driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64")]
pub(super) struct Cap(u64);

impl Cap {
    const WATT: f64 = 1e6;
    /// A gigawatt: far above any device, and far below the point where `f64` skips whole microwatts.
    const MOST: Watts = Watts(1e9);

    /// The nearest whole number of microwatts; `None` for a value that can't be a cap.
    pub(super) fn new(cap: Watts) -> Option<Self> {
        (cap >= Watts::ZERO && cap <= Self::MOST).then(|| Self((cap.0 * Self::WATT).round() as u64))
    }

    pub(super) fn watts(self) -> Watts {
        Watts(self.0 as f64 / Self::WATT)
    }
}

impl TryFrom<u64> for Cap {
    type Error = String;

    fn try_from(microwatts: u64) -> Result<Self, String> {
        let cap = Self(microwatts);
        if cap.watts() <= Self::MOST {
            Ok(cap)
        } else {
            Err(format!("a cap of {microwatts} µW is not possible"))
        }
    }
}

/// A line of the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Record {
    /// The records after this were written by a daemon in this boot.
    #[serde(rename = "litd-journal")]
    Start {
        version: u64,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        boot: String,
        /// See [`headed`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// In a heading: so many bytes of the file were written together with it, and follow it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes: Option<usize>,
    },
    /// A device that may be written, in place of all that the file has said of it before.
    Device {
        address: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        serial: Option<String>,
        boot: String,
        found_microwatts: Cap,
        ours_microwatts: Vec<Cap>,
    },
    /// A device is about to be written.
    Intent { address: String, microwatts: Cap },
    /// A device's cap was restored, or left to the program that changed it.
    Released { address: String },
    /// A device's clocks are about to be locked, which may be done at any time until a later record tells the
    /// outcome.
    Clocks { address: String },
    /// The lock of a device's clocks was done.
    Locked { address: String },
    /// A lock of a device's clocks has failed, and may be done late, until then.
    LateLock {
        address: String,
        until_nanoseconds: i64,
    },
    /// The driver chooses the clocks again.
    Freed { address: String },
    /// A write of this cap has failed, and may be done late, until then.
    Late {
        address: String,
        microwatts: Cap,
        until_nanoseconds: i64,
    },
}

impl Record {
    pub(super) fn start(boot: &str) -> Self {
        Self::Start {
            version: VERSION,
            boot: boot.to_owned(),
            id: None,
            bytes: None,
        }
    }

    pub(super) fn locked(locked: &Locked) -> Self {
        let address = locked.address.clone();
        match locked.lock {
            Lock::Asked => Self::Clocks { address },
            Lock::Done => Self::Locked { address },
            Lock::Late(until) => Self::LateLock {
                address,
                until_nanoseconds: until.0,
            },
        }
    }

    pub(super) fn late(late: &Late) -> Result<Self, JournalError> {
        Ok(Self::Late {
            address: late.address.clone(),
            microwatts: checked(&late.address, late.cap)?,
            until_nanoseconds: late.until.0,
        })
    }

    /// A device with its late writes among its caps.
    pub(super) fn device_with(entry: &Entry, late: &[Late]) -> Result<Self, JournalError> {
        let late = late.iter().filter(|it| it.address == entry.address);
        let mut entry = entry.clone();
        let mut ours: Vec<Watts> = late.map(|it| it.cap).collect();
        ours.retain(|cap| !entry.ours.iter().any(|it| it.is_same_cap(*cap)));
        entry.ours.splice(..0, ours);
        Self::device(&entry)
    }

    fn device(entry: &Entry) -> Result<Self, JournalError> {
        let cap = |watts: Watts| checked(&entry.address, watts);
        Ok(Self::Device {
            address: entry.address.clone(),
            serial: entry.serial.clone(),
            boot: entry.boot_id.clone(),
            found_microwatts: cap(entry.found)?,
            ours_microwatts: entry
                .ours
                .iter()
                .copied()
                .map(cap)
                .collect::<Result<_, _>>()?,
        })
    }
}

/// A cap that can be recorded.
pub(super) fn checked(address: &str, cap: Watts) -> Result<Cap, JournalError> {
    Cap::new(cap).ok_or_else(|| JournalError::Cap {
        address: address.to_owned(),
        cap,
    })
}

/// A whole file; no bytes if there is nothing to undo.
pub(super) fn whole(
    boot: &str,
    entries: &[Entry],
    clocks: &[Locked],
    late: &[Late],
) -> Result<Vec<u8>, JournalError> {
    let mut bytes = Vec::new();
    if !entries.is_empty() || !clocks.is_empty() {
        encode(&mut bytes, &Record::start(boot))?;
    }
    for entry in entries {
        encode(&mut bytes, &Record::device(entry)?)?;
    }
    for locked in clocks {
        encode(&mut bytes, &Record::locked(locked))?;
    }
    // Late writes to a device that has left the journal matter again once it is in the journal again.
    for late in late.iter().filter(|it| it.is_named(entries)) {
        encode(&mut bytes, &Record::late(late)?)?;
    }
    Ok(bytes)
}

/// Adds one line.
pub(super) fn encode(bytes: &mut Vec<u8>, record: &Record) -> Result<(), JournalError> {
    let json = serde_json::to_vec(record).map_err(|error| JournalError::Disk {
        source: io::Error::from(error),
    })?;
    bytes.extend_from_slice(&json);
    bytes.extend_from_slice(&seal(&json));
    bytes.push(b'\n');
    Ok(())
}

fn decode(line: &[u8]) -> Option<Record> {
    let (json, found) = line.split_at_checked(line.len().checked_sub(SEAL)?)?;
    if found != seal(json) {
        return None;
    }
    serde_json::from_slice(json).ok()
}

/// Whether this is the beginning of a line, as a full disk or a crash leaves it at the end of a file.
fn is_begun(line: &[u8]) -> bool {
    let mut json = serde_json::Deserializer::from_slice(line).into_iter::<IgnoredAny>();
    match json.next() {
        Some(Ok(_)) => {
            let (json, rest) = line.split_at(json.byte_offset());
            rest.len() < SEAL && seal(json).starts_with(rest)
        }
        Some(Err(error)) => line.starts_with(b"{") && error.is_eof(),
        None => false,
    }
}

/// Length of a [`seal`].
const SEAL: usize = 9;

/// The end of a line: a space and the checksum.
fn seal(json: &[u8]) -> Vec<u8> {
    format!(" {:08x}", crc32(json)).into_bytes()
}

/// A journal's file for a store that has to tell it from others and puts it in place as a whole: a first line, a
/// heading, and these contents. A file that is shorter later was cut, which [`read`] reports. A file without a heading
/// is read all the same.
///
/// # Errors
/// None that is known: JSON has room for every string.
pub fn headed(id: &str, contents: &[u8]) -> Result<Vec<u8>, JournalError> {
    let mut bytes = Vec::new();
    let record = Record::Start {
        version: VERSION,
        boot: String::new(),
        id: Some(id.to_owned()),
        bytes: Some(contents.len()),
    };
    encode(&mut bytes, &record)?;
    bytes.extend_from_slice(contents);
    Ok(bytes)
}

/// The id in a file's heading ([`headed`]), if it has one that can be read.
#[must_use]
pub fn id(bytes: &[u8]) -> Option<String> {
    match decode(first_line(bytes)) {
        Some(Record::Start { id, .. }) => id,
        _ => None,
    }
}

/// Whether a file may be the one with this id in its heading: also where the first line is damaged, which
/// [`read`] reports.
#[must_use]
pub fn may_have_id(bytes: &[u8], wanted: &str) -> bool {
    let line = first_line(bytes);
    match decode(line) {
        Some(Record::Start { id, .. }) => id.as_deref() == Some(wanted),
        Some(_) => false,
        None => !line.is_empty(),
    }
}

fn first_line(bytes: &[u8]) -> &[u8] {
    bytes
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default()
}

/// The undo that a journal asks for; `None` if it is empty or all its devices were restored.
///
/// What can't be read is left out and reported in [`Recovered::damaged`]. A record that is only begun at the end is
/// left out and no damage: a full disk leaves it so, and a cap is written only after its record has been appended.
/// That holds only for what was appended: a first line, and all that its heading counts, was put in place as a whole.
///
/// # Errors
/// [`JournalError::Version`]: another version of litd wrote it, and it was not looked into.
pub fn read(bytes: &[u8]) -> Result<Option<Recovered>, JournalError> {
    let mut replay = Replay::default();
    let mut lines = bytes.split(|&byte| byte == b'\n').enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        match decode(line) {
            Some(record) => {
                if index == 0 {
                    replay.cut = missing(&record, line.len(), bytes.len());
                }
                replay.apply(record)?;
            }
            None if line.is_empty() => {}
            None if lines.peek().is_none() && index > 0 && is_begun(line) => {}
            None if lines.peek().is_none() => replay.cut_off = line.len(),
            None => replay.unreadable(index + 1),
        }
    }
    Ok(replay.finish())
}

/// The bytes that a file lacks of what was put in place with its heading; `line` and `file`: how long the heading, its
/// first line, and the file are.
fn missing(heading: &Record, line: usize, file: usize) -> usize {
    let Record::Start {
        bytes: Some(own), ..
    } = heading
    else {
        return 0;
    };
    (line + 1).saturating_add(*own).saturating_sub(file)
}

/// The state of a journal while it is read.
#[derive(Default)]
struct Replay {
    boot: String,
    entries: Vec<Entry>,
    clocks: Vec<Locked>,
    late: Vec<Late>,
    /// Number of the first unreadable line, and how many there are.
    first_unreadable: Option<usize>,
    count_unreadable: usize,
    /// Bytes after the last whole line.
    cut_off: usize,
    /// Bytes that were written with the heading and are missing at the end.
    cut: usize,
    /// Devices that may have been written, but whose cap found is not known.
    homeless: BTreeSet<String>,
}

impl Replay {
    fn apply(&mut self, record: Record) -> Result<(), JournalError> {
        match record {
            Record::Start { version, boot, .. } => {
                if version != VERSION {
                    return Err(JournalError::Version { found: version });
                }
                if boot != self.boot {
                    // Neither locks nor late writes outlive a boot.
                    self.clocks.clear();
                    self.late.clear();
                }
                self.boot = boot;
            }
            Record::Device {
                address,
                serial,
                boot,
                found_microwatts,
                ours_microwatts,
            } => {
                let new = Entry {
                    address,
                    serial,
                    boot_id: boot,
                    found: found_microwatts.watts(),
                    ours: ours_microwatts.into_iter().map(Cap::watts).collect(),
                };
                let mut known = self.entries.iter_mut();
                match known.find(|entry| entry.address == new.address) {
                    Some(known) => *known = new,
                    None => self.entries.push(new),
                }
            }
            Record::Intent {
                address,
                microwatts,
            } => match self
                .entries
                .iter_mut()
                .find(|entry| entry.address == address)
            {
                Some(entry) => entry.intend(microwatts.watts(), &self.boot),
                None => {
                    self.homeless.insert(address);
                }
            },
            Record::Clocks { address } => self.lock(address, Lock::Asked),
            Record::Locked { address } => self.lock(address, Lock::Done),
            Record::LateLock {
                address,
                until_nanoseconds,
            } => self.lock(address, Lock::Late(Nanos(until_nanoseconds))),
            Record::Freed { address } => self.clocks.retain(|it| it.address != address),
            Record::Late {
                address,
                microwatts,
                until_nanoseconds,
            } => Late {
                address,
                cap: microwatts.watts(),
                until: Nanos(until_nanoseconds),
            }
            .keep_in(&mut self.late),
            Record::Released { address } => {
                self.entries.retain(|entry| entry.address != address);
                self.homeless.remove(&address);
            }
        }
        Ok(())
    }

    fn lock(&mut self, address: String, lock: Lock) {
        Locked { address, lock }.keep_in(&mut self.clocks);
    }

    fn unreadable(&mut self, line: usize) {
        self.first_unreadable.get_or_insert(line);
        self.count_unreadable += 1;
    }

    fn finish(mut self) -> Option<Recovered> {
        let entries = &self.entries;
        self.late.retain(|it| it.is_named(entries));
        let damaged = self.damage();
        let any = damaged.is_some() || !self.entries.is_empty() || !self.clocks.is_empty();
        any.then_some(Recovered {
            entries: self.entries,
            clocks: self.clocks,
            late: self.late,
            boot_id: self.boot,
            damaged,
        })
    }

    /// The damage of the file, in words.
    fn damage(&self) -> Option<String> {
        let mut words = Vec::new();
        match (self.first_unreadable, self.count_unreadable) {
            (None, _) => {}
            (Some(line), 1) => words.push(format!("line {line} is unreadable and was left out")),
            (Some(line), count) => words.push(format!(
                "{count} lines are unreadable, the first is line {line}, and were left out"
            )),
        }
        if self.cut_off > 0 {
            words.push(format!(
                "the last {} bytes are no whole record and were left out",
                self.cut_off
            ));
        }
        if self.cut > 0 {
            words.push(format!(
                "the file was cut: {} bytes of what litd had written are missing at its end",
                self.cut
            ));
        }
        for address in &self.homeless {
            words.push(format!(
                "the cap found of {address} is lost: if its present cap is wrong, set it (`litctl caps set`)"
            ));
        }
        (!words.is_empty()).then(|| words.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_id_of_its_heading() {
        let mut file = headed("one", b"").unwrap();
        assert_eq!(read(&file).unwrap(), None);
        let clocks = [Lock::Asked, Lock::Done, Lock::Late(Nanos(5))].map(|lock| Locked {
            address: format!("0000:85:00.0/{lock:?}"),
            lock,
        });
        file.extend(whole("boot", &[], &clocks, &[]).unwrap());
        assert_eq!(id(&file).as_deref(), Some("one"));
        assert!(may_have_id(&file, "one") && !may_have_id(&file, "two"));
        let there = read(&file).unwrap().unwrap();
        assert_eq!((&*there.boot_id, &there.clocks[..]), ("boot", &clocks[..]));
        assert_eq!(there.damaged, None);
        // A journal of a litd that gave it no id; an empty one; a damaged one.
        let old = whole("boot", &[], &clocks, &[]).unwrap();
        assert!(id(&old).is_none() && !may_have_id(&old, "one"));
        assert!(!may_have_id(b"", "one"));
        file[3] ^= 1;
        assert!(id(&file).is_none() && may_have_id(&file, "one"));
    }

    #[test]
    fn a_file_that_was_cut_is_damaged_wherever_it_was_cut() {
        let entry = |address: &str| Entry {
            address: address.to_owned(),
            serial: None,
            boot_id: "boot".to_owned(),
            found: Watts(700.0),
            ours: vec![Watts(600.0)],
        };
        let entries = ["0000:05:00.0", "0000:26:00.0"].map(entry);
        let contents = whole("boot", &entries, &[], &[]).unwrap();
        let mut file = headed("one", &contents).unwrap();
        for length in 1..file.len() {
            let there = read(&file[..length]).unwrap();
            assert!(there.is_some_and(|it| it.damaged.is_some()), "{length}");
        }
        // What is appended may be begun: its cap was not written.
        let all = file.len();
        let intent = Record::Intent {
            address: entries[0].address.clone(),
            microwatts: Cap(500_000_000),
        };
        encode(&mut file, &intent).unwrap();
        for length in all..=file.len() {
            let there = read(&file[..length]).unwrap().unwrap();
            assert_eq!((there.damaged, there.entries.len()), (None, 2), "{length}");
        }
    }

    #[test]
    fn every_microwatt_of_a_megawatt_device_survives_the_file() {
        for microwatts in [0, 1, 649_999_999, 650_000_001, 999_999_999_999] {
            let cap = Cap::try_from(microwatts).unwrap();
            assert_eq!(Cap::new(cap.watts()), Some(cap));
        }
        for no_cap in [f64::NAN, f64::INFINITY, -1.0, 1e10] {
            assert_eq!(Cap::new(Watts(no_cap)), None);
        }
        assert!(Cap::try_from(u64::MAX).is_err());
    }
}
