//! Recording a node.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::Uid;
use serde_json::Value;

use crate::format::{Content, Entry, Mode, Recording, SCHEMA};
use crate::node;

/// A file of sysfs has a page at most; the entry of one processor fits into that, too.
const LONGEST: u64 = 64 << 10;

/// Where a node's trees are.
#[derive(Debug, Clone, Copy)]
pub struct Roots<'a> {
    /// Where sysfs is mounted.
    pub sys: &'a Path,
    /// Where procfs is mounted.
    pub proc: &'a Path,
    /// Where device nodes are.
    pub dev: &'a Path,
}

/// A hash of a serial number: 16 hexadecimal digits, or none.
type Hash<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Records a node, beside the report that `litctl doctor` has made of it. A driver that has not answered after
/// `patience` is waited for no longer: its files have the error `ETIMEDOUT`. Of serial numbers, in files and in the
/// report, `hash` is recorded, and zeros where that gives none.
#[must_use]
pub fn take(roots: Roots<'_>, patience: Duration, hash: Hash<'_>, mut report: Value) -> Recording {
    in_report(&mut report, hash);
    Recording {
        schema: SCHEMA,
        litd: env!("CARGO_PKG_VERSION").to_owned(),
        root: Uid::effective().is_root(),
        report,
        files: files(roots, patience, hash),
    }
}

fn files(roots: Roots<'_>, patience: Duration, hash: Hash<'_>) -> BTreeMap<String, Entry> {
    let node::Found { entries, files } = node::look(roots.sys, roots.proc, roots.dev);
    let mut recorded = entries;
    let deadline = Instant::now() + patience;
    let (answer, answers) = mpsc::channel();
    let mut asked = BTreeMap::new();
    for files in files.into_values() {
        for (key, path) in &files {
            asked.insert(key.clone(), path.clone());
        }
        let answer = answer.clone();
        // Files whose thread can't start count as unanswered.
        let _ = thread::Builder::new().spawn(move || {
            for (key, path) in files {
                let read = read(&path);
                if answer.send((key, read)).is_err() {
                    break;
                }
            }
        });
    }
    drop(answer);
    while let Ok((key, entry)) =
        answers.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        asked.remove(&key);
        let entry = without_serials(&key, entry, hash);
        recorded.insert(key, entry);
    }
    for (key, path) in asked {
        let content = Content::Errno(Errno::ETIMEDOUT as i32);
        recorded.insert(key, file(&path, content));
    }
    recorded
}

/// A file's content and permissions.
fn read(path: &Path) -> Entry {
    let mode = mode(path);
    let content = match litd_files::head(path, LONGEST) {
        Ok(bytes) => Content::of(bytes),
        Err(_) if mode.0 & 0o444 == 0 => Content::Unreadable,
        Err(error) => Content::Errno(error.raw_os_error().unwrap_or(Errno::EIO as i32)),
    };
    Entry::File { mode, content }
}

fn file(path: &Path, content: Content) -> Entry {
    let mode = mode(path);
    Entry::File { mode, content }
}

fn mode(path: &Path) -> Mode {
    let mode = path.metadata().map(|it| it.permissions().mode() & 0o777);
    Mode(mode.map_or(0o444, |mode| mode as u16))
}

/// A file without what would name a part, or a person: hashes for serial numbers, and of the processors the first, as
/// all are alike.
fn without_serials(key: &str, entry: Entry, hash: Hash<'_>) -> Entry {
    let Entry::File {
        mode,
        content: Content::Text(text),
    } = entry
    else {
        return entry;
    };
    let name = key.rsplit('/').next().unwrap_or(key);
    let text = match name {
        "unique_id" | "serial_number" => format!("{}\n", hidden(text.trim(), hash)),
        "properties" => topology(&text, hash),
        "cpuinfo" => first_processor(&text),
        _ => text,
    };
    let content = Content::Text(text);
    Entry::File { mode, content }
}

/// The text that is written for a serial number: its hash. Zeros mean that there is none.
fn hidden(serial: &str, hash: Hash<'_>) -> String {
    let is_none = serial.bytes().all(|digit| digit == b'0');
    let hash = (!is_none).then(|| hash(serial)).flatten();
    hash.unwrap_or_else(|| "0".repeat(16))
}

/// The compute driver's properties of a GPU, where `unique_id` is the number that the GPU's own file has in hexadecimal
/// digits.
fn topology(text: &str, hash: Hash<'_>) -> String {
    let line = |line: &str| match line.strip_prefix("unique_id ") {
        Some(number) => {
            let number: u64 = number.trim().parse().unwrap_or_default();
            let hidden = hidden(&format!("{number:016x}"), hash);
            let hidden = u64::from_str_radix(&hidden, 16).unwrap_or_default();
            format!("unique_id {hidden}\n")
        }
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// The entry of the first processor.
fn first_processor(text: &str) -> String {
    let first = text.split("\n\n").next().unwrap_or_default();
    format!("{first}\n")
}

/// Replaces the serial numbers in a report of `litctl doctor` by their hashes.
fn in_report(report: &mut Value, hash: Hash<'_>) {
    match report {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), &value) {
                    ("uuid", Value::String(uuid)) => {
                        let number = uuid.strip_prefix("GPU-").unwrap_or(uuid);
                        *value = Value::String(format!("GPU-{}", hidden(number, hash)));
                    }
                    ("serial", Value::String(serial)) => {
                        *value = Value::String(hidden(serial, hash));
                    }
                    _ => in_report(value, hash),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| in_report(value, hash)),
        _ => {}
    }
}
