//! The audit log: every write of a cap, on disk before it happens, and what became of it.
//!
//! An intent without an outcome is a write of which nobody knows whether it was made: litd died, or
//! the disk failed, in between.
//!
//! One JSON object per line, each with its number and a checksum of the line. A number that is
//! missing is a line that is missing, a checksum that is wrong a line that was altered. Both tell
//! damage and clumsy hands; against somebody who is root on the node only a copy elsewhere helps.
//!
//! ```text
//! {"seq":8,"unix_seconds":1.79e9,"boot_seconds":4711.5,"record":"intent",
//!  "device":"0000:85:00.0","name":"gpu3","actor":"litd","reason":"lowers leaders: ...","job":"train","sample":12,
//!  "old_watts":750.0,"new_watts":741.0,"crc":"5a0c11fe"}
//! {"seq":9,...,"record":"outcome","intent":8,"device":"0000:85:00.0","name":"gpu3",
//!  "result":"confirmed","read_back_watts":741.0,"crc":"..."}
//! {"seq":10,...,"record":"enforced","intent":8,...,"enforced_watts":741.0,"crc":"..."}
//! ```

use litd_units::Watts;
use serde::{Deserialize, Serialize};

use crate::crc32;

/// The file that is written to. Older ones are beside it: `audit.jsonl.1` is the youngest of them.
pub const FILE: &str = "audit.jsonl";

/// The version of the format, in [`Entry::Start`].
pub const VERSION: u32 = 1;

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Counts from 1, over restarts of the daemon.
    pub seq: u64,
    /// Wall-clock time, seconds since 1970.
    pub unix_seconds: f64,
    /// Seconds since the node booted, which no correction of the wall clock changes. Records of an older litd have
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_seconds: Option<f64>,
    /// The contents.
    #[serde(flatten)]
    pub entry: Entry,
}

/// The contents of a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Entry {
    /// A daemon is about to write its first cap.
    Start {
        /// The version of this format.
        version: u32,
        /// litd's version.
        litd: String,
    },
    /// A device is about to be set.
    Intent(Intent),
    /// The outcome of a write.
    Outcome(Outcome),
    /// The cap that the driver says is in force, at the first reading after the write.
    Enforced {
        /// The number of the intent.
        intent: u64,
        /// The device's address.
        device: String,
        /// The device's short name.
        name: String,
        /// The cap in force.
        enforced_watts: Watts,
    },
    /// So many records could not be written.
    Lost {
        /// How many.
        count: u64,
    },
}

/// A write that is about to happen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Intent {
    /// The device's address.
    pub device: String,
    /// The device's short name.
    pub name: String,
    /// The author: `litd`, or `uid 1000` for an override.
    pub actor: String,
    /// Why, in words.
    pub reason: String,
    /// The job for which it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// How many samples of the job had counted by then: the last of them is what it follows from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<u64>,
    /// The cap that the device was last known to hold; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_watts: Option<Watts>,
    /// The cap that is written.
    pub new_watts: Watts,
    /// The cap to restore in the end; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_watts: Option<Watts>,
}

/// How a write ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The number of the intent.
    pub intent: u64,
    /// The device's address.
    pub device: String,
    /// The device's short name.
    pub name: String,
    /// How it ended.
    pub result: Ending,
    /// The cap that was read after the write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_back_watts: Option<Watts>,
    /// The error, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The device holds what it was set to.
    Confirmed,
    /// The device accepted the write and holds another cap.
    Differs,
    /// The write failed, or the reading after it.
    Failed,
}

impl Ending {
    /// The name that the JSON has.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Differs => "differs",
            Self::Failed => "failed",
        }
    }
}

/// A line, parsed.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    /// A record, as it was written.
    Intact(Record),
    /// A record whose checksum is wrong or missing.
    Altered(Record),
    /// No record.
    Unreadable,
}

/// How a line begins to end.
const SEAL: &str = ",\"crc\":\"";

/// The length of `,"crc":"5a0c11fe"}`.
const SEALED: usize = SEAL.len() + 8 + 2;

impl Record {
    /// Adds it to `bytes` as one line.
    ///
    /// # Errors
    /// A number in it can't be written as JSON.
    pub fn encode(&self, bytes: &mut Vec<u8>) -> serde_json::Result<()> {
        let json = serde_json::to_string(self)?;
        let open = json.strip_suffix('}').unwrap_or(&json);
        let crc = crc32(json.as_bytes());
        bytes.extend_from_slice(format!("{open}{SEAL}{crc:08x}\"}}\n").as_bytes());
        Ok(())
    }

    /// Reads one line, without its newline. `None`: it is empty.
    #[must_use]
    pub fn decode(line: &[u8]) -> Option<Line> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return None;
        }
        let Ok(record) = serde_json::from_slice(line) else {
            return Some(Line::Unreadable);
        };
        Some(match is_sealed(line) {
            true => Line::Intact(record),
            false => Line::Altered(record),
        })
    }
}

fn is_sealed(line: &[u8]) -> bool {
    let Some((open, seal)) = line
        .len()
        .checked_sub(SEALED)
        .and_then(|at| line.split_at_checked(at))
    else {
        return false;
    };
    let json = [open, b"}"].concat();
    seal == format!("{SEAL}{:08x}\"}}", crc32(&json)).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let entries = [
            Entry::Start {
                version: VERSION,
                litd: "0.1.0".into(),
            },
            Entry::Intent(Intent {
                device: "0000:85:00.0".into(),
                name: "gpu3".into(),
                actor: "litd".into(),
                reason: "say \"no\"}\n".into(),
                job: Some("train".into()),
                sample: Some(12),
                old_watts: Some(Watts(750.0)),
                new_watts: Watts(741.0),
                found_watts: Some(Watts(700.0)),
            }),
            Entry::Outcome(Outcome {
                intent: 2,
                device: "0000:85:00.0".into(),
                name: "gpu3".into(),
                result: Ending::Confirmed,
                read_back_watts: Some(Watts(741.0)),
                error: None,
            }),
            Entry::Lost { count: 3 },
        ];
        let record = |(at, entry)| Record {
            seq: 1 + at as u64,
            unix_seconds: 1.79e9,
            boot_seconds: Some(4711.5),
            entry,
        };
        entries.into_iter().enumerate().map(record).collect()
    }

    #[test]
    fn a_line_is_json_and_comes_back_as_it_was() {
        for record in records() {
            let mut line = Vec::new();
            record.encode(&mut line).unwrap();
            assert_eq!(line.pop(), Some(b'\n'));
            let json: serde_json::Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(json["seq"], record.seq);
            assert_eq!(Record::decode(&line), Some(Line::Intact(record)));
        }
    }

    #[test]
    fn no_altered_byte_passes_for_what_was_written() {
        let mut line = Vec::new();
        records()[1].encode(&mut line).unwrap();
        line.pop();
        for at in 0..line.len() {
            let mut bad = line.clone();
            bad[at] ^= 1;
            let read = Record::decode(&bad);
            assert!(!matches!(read, Some(Line::Intact(_))), "{at}: {read:?}");
            let cut = Record::decode(&line[..at]);
            assert!(!matches!(cut, Some(Line::Intact(_))), "{at}: {cut:?}");
        }
        assert_eq!(Record::decode(b""), None);
        assert_eq!(Record::decode(b"\xff\x00"), Some(Line::Unreadable));
    }
}
