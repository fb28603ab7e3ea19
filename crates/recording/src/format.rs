//! The format of a recording.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the format.
pub const SCHEMA: u32 = 1;

/// No recording is longer, in bytes: one of eight GPUs and 256 processors has about 200 KB.
pub const LONGEST: u64 = 32 << 20;

/// The trees that a recording may have.
const ROOTS: [&str; 3] = ["sys", "proc", "dev"];

/// A node as it was when it was recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// The version of this format: [`SCHEMA`].
    pub schema: u32,
    /// The version of litd that has recorded the node.
    pub litd: String,
    /// Whether root has recorded it: some files can be read by root alone.
    pub root: bool,
    /// The report that `litctl doctor --json` printed, with hashes for serial numbers.
    pub report: Value,
    /// The files, by their paths, such as `sys/class/drm/card1`.
    pub files: BTreeMap<String, Entry>,
}

/// The thing at a path. A directory that has anything in it needs no entry of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// An empty directory.
    Directory,
    /// A symbolic link, and its target.
    Link(String),
    /// A device node, which nobody has opened.
    Node,
    /// A file.
    File {
        /// The file's permissions, in octal digits: `644`.
        mode: Mode,
        /// The result of reading it.
        #[serde(flatten)]
        content: Content,
    },
}

/// The result of reading a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// A text.
    Text(String),
    /// Bytes that are no text, in hexadecimal digits.
    Hex(String),
    /// The system's error number. `ETIMEDOUT`: no answer within the time.
    Errno(i32),
    /// No result, since only writing the file is permitted.
    Unreadable,
}

/// Permissions, written in octal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mode(pub u16);

impl From<Mode> for String {
    fn from(mode: Mode) -> Self {
        format!("{:03o}", mode.0)
    }
}

impl TryFrom<String> for Mode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mode = u16::from_str_radix(&text, 8)
            .ok()
            .filter(|mode| *mode <= 0o777);
        mode.map(Self)
            .ok_or_else(|| format!("{text:?} can't be permissions: they are three octal digits"))
    }
}

impl Content {
    /// The content of these bytes.
    #[must_use]
    pub fn of(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Self::Text(text),
            Ok(text) => Self::Hex(hex(text.as_bytes())),
            Err(error) => Self::Hex(hex(error.as_bytes())),
        }
    }

    /// The bytes that a reader gets, or its error number; `None` where the digits are none.
    #[must_use]
    pub fn bytes(&self) -> Option<Result<Vec<u8>, i32>> {
        match self {
            Self::Text(text) => Some(Ok(text.clone().into_bytes())),
            Self::Hex(digits) => Some(Ok(unhex(digits)?)),
            Self::Errno(number) => Some(Err(*number)),
            Self::Unreadable => Some(Ok(Vec::new())),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| match pair {
        [_, _] => u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok(),
        _ => None,
    };
    pairs.map(byte).collect()
}

/// Why a text is no recording.
#[derive(Debug)]
pub enum Unfit {
    /// The text is no JSON of this form.
    Form(serde_json::Error),
    /// The recording is of another version.
    Version(u32),
    /// An entry can't be in a recording.
    Entry {
        /// The entry's path.
        path: String,
        /// The reason.
        why: &'static str,
    },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(error) => write!(f, "is no recording of `litctl doctor --record`: {error}"),
            Self::Version(found) => write!(
                f,
                "is a recording of version {found}, and this program reads version {SCHEMA}: use a program of the \
                 release that recorded it"
            ),
            Self::Entry { path, why } => write!(f, "its entry {path:?} {why}"),
        }
    }
}

impl std::error::Error for Unfit {}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    /// The text is no recording, or a path or a link in it leads out of its tree.
    pub fn parse(text: &[u8]) -> Result<Self, Unfit> {
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let Version { schema } = serde_json::from_slice(text).map_err(Unfit::Form)?;
        if schema != SCHEMA {
            return Err(Unfit::Version(schema));
        }
        let recording: Self = serde_json::from_slice(text).map_err(Unfit::Form)?;
        for (path, entry) in &recording.files {
            let unfit = |why| Unfit::Entry {
                path: path.clone(),
                why,
            };
            check(path, entry).map_err(unfit)?;
            if above(path).any(|it| recording.files.contains_key(it)) {
                return Err(unfit("is below another entry, which is no directory"));
            }
        }
        Ok(recording)
    }

    /// The recording as its file has it.
    ///
    /// # Errors
    /// None is known: all of it can be written.
    pub fn to_json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

/// The paths that a path lies below.
fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(end, _)| &path[..end])
}

/// Refuses what could lead a reader of the stand-in out of it.
fn check(path: &str, entry: &Entry) -> Result<(), &'static str> {
    let mut names = path.split('/');
    if !names.next().is_some_and(|root| ROOTS.contains(&root)) {
        return Err("is in none of sys, proc and dev");
    }
    let mut depth = 0;
    for name in names {
        if matches!(name, "" | "." | "..") || name.contains('\0') {
            return Err("is no path");
        }
        depth += 1;
    }
    if depth == 0 {
        return Err("is a whole tree");
    }
    match entry {
        Entry::Link(target) => inside(depth - 1, target),
        Entry::File { content, .. } if content.bytes().is_none() => {
            Err("has bytes that are no pairs of hexadecimal digits")
        }
        Entry::Directory | Entry::Node | Entry::File { .. } => Ok(()),
    }
}

/// Whether the target of a link that is so many directories below its tree's root stays within the tree.
fn inside(mut depth: usize, target: &str) -> Result<(), &'static str> {
    const LEAVES: &str = "is a link that leads out of its tree";
    if target.is_empty() || target.starts_with('/') || target.contains('\0') {
        return Err(LEAVES);
    }
    for name in target.split('/') {
        depth = match name {
            "" | "." => depth,
            ".." => depth.checked_sub(1).ok_or(LEAVES)?,
            _ => depth + 1,
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(path: &str, entry: &str) -> Result<Recording, Unfit> {
        let text = format!(
            r#"{{"schema":1,"litd":"0.1.0","root":true,"report":null,"files":{{"{path}":{entry}}}}}"#
        );
        Recording::parse(text.as_bytes())
    }

    #[test]
    fn what_was_written_is_read_again() {
        let file = |mode, content| Entry::File {
            mode: Mode(mode),
            content,
        };
        let recording = Recording {
            schema: SCHEMA,
            litd: "0.1.0".into(),
            root: true,
            report: serde_json::json!({"schema": 1}),
            files: BTreeMap::from([
                ("dev/hsmp".into(), Entry::Node),
                (
                    "proc/driver/nvidia/gpus/0000:01:00.0".into(),
                    Entry::Directory,
                ),
                ("sys/a/cap".into(), file(0o644, Content::of(b"7\n".into()))),
                (
                    "sys/a/table".into(),
                    file(0o444, Content::of(vec![0, 255, 16])),
                ),
                ("sys/a/gone".into(), file(0o444, Content::Errno(19))),
                ("sys/a/reset".into(), file(0o200, Content::Unreadable)),
                ("sys/b".into(), Entry::Link("a/cap".into())),
            ]),
        };
        let text = recording.to_json().unwrap();
        assert_eq!(Recording::parse(text.as_bytes()).unwrap(), recording);
        assert!(text.contains(r#""hex": "00ff10""#), "{text}");
        assert!(text.contains(r#""mode": "644""#), "{text}");
    }

    #[test]
    fn no_path_and_no_link_leads_out_of_the_tree() {
        let refused = |path, entry, why: &str| {
            let said = with(path, entry).unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        };
        refused("etc/passwd", r#""directory""#, "none of sys, proc and dev");
        refused("sys", r#""directory""#, "whole tree");
        refused("sys/../etc", r#""directory""#, "no path");
        refused("sys//a", r#""directory""#, "no path");
        refused("sys/a/b", r#"{"link":"../../etc"}"#, "leads out");
        refused("sys/a/b", r#"{"link":"/etc"}"#, "leads out");
        refused("sys/a/b", r#"{"link":"c/../../../x"}"#, "leads out");
        with("sys/a/b", r#"{"link":"../c"}"#).unwrap();
        refused(
            "sys/a",
            r#"{"file":{"mode":"644","hex":"0"}}"#,
            "hexadecimal",
        );
        refused("sys/a", r#"{"file":{"mode":"1777","text":""}}"#, "octal");
    }

    #[test]
    fn other_versions_and_other_files_are_refused_by_name() {
        let said = Recording::parse(br#"{"schema":2,"more":1}"#).unwrap_err();
        assert!(said.to_string().contains("of version 2"), "{said}");
        let said = Recording::parse(b"[]").unwrap_err();
        assert!(said.to_string().contains("no recording"), "{said}");
        let text = r#"{"schema":1,"litd":"","root":true,"report":null,
            "files":{"sys/a":{"link":"b"},"sys/a/c":"directory"}}"#;
        let said = Recording::parse(text.as_bytes()).unwrap_err();
        assert!(said.to_string().contains("below another entry"), "{said}");
    }
}
