//! What survives a restart: the jobs, the results that clients sent, and what the plans were made
//! from.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::protocol::ProfilingResult;
use crate::registry::Registry;

/// Nobody asks for more results than these bytes; who wants them moves them away.
const MAX_RESULTS: u64 = 4 << 30;

/// A folder of its own, which no other server has at the same time.
#[derive(Debug)]
pub struct Store {
    jobs: PathBuf,
    results: PathBuf,
    basis: PathBuf,
    /// The kernel gives the lock back however the process ends.
    _lock: File,
}

#[derive(Serialize)]
struct Line<'a> {
    job_id: &'a str,
    #[serde(flatten)]
    result: &'a ProfilingResult,
}

fn named(path: &Path) -> impl Fn(&dyn std::fmt::Display) -> String {
    move |cause| format!("{}: {cause}", path.display())
}

impl Store {
    /// Opens or makes the folder, and reads the jobs that it holds.
    ///
    /// # Errors
    /// If another server has it, it can't be made or read, or holds something else; the text names
    /// the file.
    pub fn open(folder: &Path) -> Result<(Self, Registry), String> {
        fs::create_dir_all(folder).map_err(|cause| named(folder)(&cause))?;
        let store = Self {
            jobs: folder.join("jobs.json"),
            results: folder.join("results.jsonl"),
            basis: folder.join("plans.json"),
            _lock: lock(folder)?,
        };
        whole_lines(&store.results).map_err(|cause| named(&store.results)(&cause))?;
        let registry = match fs::read(&store.jobs) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|cause| {
                named(&store.jobs)(&format_args!(
                    "not the jobs of this server ({cause}): move it away, and jobs register anew"
                ))
            })?,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Registry::default(),
            Err(cause) => return Err(named(&store.jobs)(&cause)),
        };
        Ok((store, registry))
    }

    /// Replaces the jobs on disk.
    ///
    /// # Errors
    /// What the system says.
    pub fn save(&self, jobs: &[u8]) -> io::Result<()> {
        replace(&self.jobs, jobs)
    }

    /// What plans are made from now and were not the last time; nothing if all is as it was.
    ///
    /// # Errors
    /// If it can't be read; the text names the file.
    pub fn new_in_basis(&self, basis: &Map<String, Value>) -> Result<Vec<String>, String> {
        let before = match fs::read(&self.basis) {
            Ok(bytes) => bytes,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(cause) => return Err(named(&self.basis)(&cause)),
        };
        // The text counts: numbers that are read may differ in their last bit.
        if serde_json::to_vec(basis).is_ok_and(|now| now == before) {
            return Ok(Vec::new());
        }
        let before: Map<String, Value> = serde_json::from_slice(&before).unwrap_or_default();
        let differs = basis.iter().filter(|(key, now)| {
            let before = before.get(*key);
            before.map(Value::to_string) != Some(now.to_string())
        });
        let mut names: Vec<String> = differs.map(|(key, _)| key.clone()).collect();
        if names.is_empty() {
            names.push("something".into());
        }
        Ok(names)
    }

    /// Notes what plans are made from.
    ///
    /// # Errors
    /// What the system says; the text names the file.
    pub fn save_basis(&self, basis: &Map<String, Value>) -> Result<(), String> {
        let text = serde_json::to_vec(basis).map_err(|cause| named(&self.basis)(&cause))?;
        replace(&self.basis, &text).map_err(|cause| named(&self.basis)(&cause))
    }

    /// Adds a result, a line of JSON: all of it or nothing.
    ///
    /// # Errors
    /// What the system says.
    pub fn add_result(&self, job_id: &str, result: &ProfilingResult) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.create(true).append(true).open(&self.results)?;
        let length = file.metadata()?.len();
        if length > MAX_RESULTS {
            let text = "there are enough results: move results.jsonl away";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        let mut line = serde_json::to_vec(&Line { job_id, result })?;
        line.push(b'\n');
        let written = file.write_all(&line).and_then(|()| file.sync_data());
        if written.is_err() {
            // Half a line would spoil the next one.
            let _ = file.set_len(length);
        }
        written
    }
}

/// Takes the folder for this process alone.
fn lock(folder: &Path) -> Result<File, String> {
    let path = folder.join("lock");
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|cause| named(&path)(&cause))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(named(folder)(
            &"another litd-planner keeps its jobs there: stop that one, or give this one a --state \
              of its own",
        )),
        Err(TryLockError::Error(cause)) => Err(named(&path)(&format_args!(
            "can't be locked ({cause}): choose a --state on a local disk"
        ))),
    }
}

/// Takes off a last line that a crash has cut off. Nobody was told that it was kept.
fn whole_lines(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let file = match options.read(true).write(true).open(path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let mut end = file.metadata()?.len();
    let mut byte = [0];
    // A byte at a time, but of half a line, and only after a crash.
    while end > 0 {
        file.read_exact_at(&mut byte, end - 1)?;
        if byte == *b"\n" {
            break;
        }
        end -= 1;
    }
    file.set_len(end)
}

/// Replaces a file: either the old text is there or the new one.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let next = path.with_extension("json.next");
    let mut file = File::create(&next)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&next, path)?;
    // The new name, too, must survive a power cut.
    let folder = path.parent().unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
