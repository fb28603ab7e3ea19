//! A recorded node: its files read as they were recorded, until they are written.
//!
//! A file that was writable keeps what is written to it, as a driver's setting does. Two kinds of writes are refused as
//! the drivers refuse them: a cap outside of the range that the files beside it name (amdgpu: `EINVAL`), and what is no
//! number where a number stands. Sensors don't follow caps: the recorded power and clocks stay.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use litd_recording::{Content, Entry, Recording};
use litd_rig::lock;
use nix::errno::Errno;

use crate::tree::{Attribute, Directory, parse};

/// The ending of the file with a GPU's cap; the ends of its range are files with these endings in its place.
const CAP: &str = "_cap";
const LOWEST: &str = "_cap_min";
const HIGHEST: &str = "_cap_max";

/// amdgpu drops what is below a watt.
const WATT: u64 = 1_000_000;

/// A node's files, and what is written to them.
#[derive(Debug)]
pub(crate) struct Recorded {
    entries: BTreeMap<String, Entry>,
    /// The present contents of the files that may be written.
    held: BTreeMap<String, Arc<Mutex<Vec<u8>>>>,
}

impl Recorded {
    pub fn new(recording: &Recording) -> Self {
        let entries = recording.files.clone();
        let held = entries.iter().filter_map(|(path, entry)| match entry {
            Entry::File { mode, content } if mode.0 & 0o222 != 0 => {
                let bytes = content.bytes()?.unwrap_or_default();
                Some((path.clone(), Arc::new(Mutex::new(bytes))))
            }
            _ => None,
        });
        Self {
            held: held.collect(),
            entries,
        }
    }

    /// The node's trees.
    pub fn tree(&self) -> Directory {
        let mut root = Directory::default();
        for name in ["sys", "dev", "proc"] {
            root.directory(name);
        }
        for (path, entry) in &self.entries {
            match entry {
                Entry::Directory => drop(root.directory(path)),
                Entry::Link(target) => root.link(path, target),
                Entry::Node => root.file(path, Attribute::text("").mode(0o600)),
                Entry::File { mode, content } => root.file(path, self.file(path, mode.0, content)),
            }
        }
        root
    }

    fn file(&self, path: &str, mode: u16, content: &Content) -> Attribute {
        let errno = match content {
            Content::Errno(number) => Some(Errno::from_raw(*number)),
            _ => None,
        };
        let Some(held) = self.held.get(path).cloned() else {
            let bytes = content.bytes().and_then(Result::ok).unwrap_or_default();
            return Attribute::recorded(mode, move || errno.map_or(Ok(bytes.clone()), Err));
        };
        let shown = held.clone();
        let read = move || errno.map_or_else(|| Ok(lock(&shown).clone()), Err);
        let range = self.range(path);
        let was_number = parse(&lock(&held)).is_ok();
        Attribute::recorded(mode, read).store(mode, move |_, data| {
            let mut data = data.to_owned();
            if was_number {
                let mut number = parse(&data)?;
                if let Some((lowest, highest)) = range {
                    number -= number % WATT;
                    if number < lowest || number > highest {
                        return Err(Errno::EINVAL);
                    }
                }
                data = format!("{number}\n").into_bytes();
            }
            *lock(&held) = data;
            Ok(())
        })
    }

    /// The range of a GPU's cap, by the files beside it.
    fn range(&self, path: &str) -> Option<(u64, u64)> {
        let begin = path.strip_suffix(CAP)?;
        let number = |end: &str| match self.entries.get(&format!("{begin}{end}"))? {
            Entry::File { content, .. } => parse(&content.bytes()?.ok()?).ok(),
            _ => None,
        };
        Some((number(LOWEST)?, number(HIGHEST)?))
    }
}
