//! State that survives a restart: the jobs, the results that clients sent, and the inputs of the plans.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::protocol::ProfilingResult;
use crate::registry::Registry;

/// The limit of the file of results, which is never read back: users who want more move it away.
const MAX_RESULTS: u64 = 4 << 30;

/// A journal that is shorter than this is not replaced by the jobs.
const SHORT_JOURNAL: u64 = 1 << 20;

/// A folder of its own, which no other server has at the same time.
#[derive(Debug)]
pub struct Store {
    jobs: PathBuf,
    journal: PathBuf,
    /// Open for appending, with the jobs' length when they were written last.
    appending: Mutex<(File, u64)>,
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
        let lock = lock(folder)?;
        let (jobs, journal) = (folder.join("jobs.json"), folder.join("journal.jsonl"));
        let (mut registry, length) = match fs::read(&jobs) {
            Ok(bytes) => {
                let registry = serde_json::from_slice(&bytes).map_err(|cause| {
                    named(&jobs)(&format_args!(
                        "not the jobs of this server ({cause}): move it away, and jobs register anew"
                    ))
                })?;
                (registry, bytes.len() as u64)
            }
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => (Registry::default(), 0),
            Err(cause) => return Err(named(&jobs)(&cause)),
        };
        whole_lines(&journal).map_err(|cause| named(&journal)(&cause))?;
        replay(&journal, &mut registry)?;
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(&journal);
        let file = file.map_err(|cause| named(&journal)(&cause))?;
        let store = Self {
            appending: Mutex::new((file, length)),
            jobs,
            journal,
            results: folder.join("results.jsonl"),
            basis: folder.join("plans.json"),
            _lock: lock,
        };
        whole_lines(&store.results).map_err(|cause| named(&store.results)(&cause))?;
        Ok((store, registry))
    }

    /// Adds changes to the journal: all of them or none.
    ///
    /// # Errors
    /// What the system says.
    pub fn append(&self, lines: &[u8]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut held = self
            .appending
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        append(&mut held.0, lines)
    }

    /// Whether the journal is longer than the jobs.
    pub fn is_journal_long(&self) -> bool {
        let held = self
            .appending
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let length = held.0.metadata().map_or(0, |it| it.len());
        length > SHORT_JOURNAL.max(held.1)
    }

    /// Replaces the jobs on disk, and empties the journal.
    ///
    /// # Errors
    /// What the system says; the text names the file.
    pub fn save(&self, jobs: &[u8]) -> io::Result<()> {
        let mut held = self
            .appending
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let named = |path: &Path, cause: io::Error| {
            io::Error::new(cause.kind(), format!("{}: {cause}", path.display()))
        };
        replace(&self.jobs, jobs).map_err(|cause| named(&self.jobs, cause))?;
        // Before this, the changes would be made again, which does no harm.
        held.0
            .set_len(0)
            .map_err(|cause| named(&self.journal, cause))?;
        held.1 = jobs.len() as u64;
        Ok(())
    }

    /// Inputs of plans that are new since the last start; empty if all are as they were.
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
        if file.metadata()?.len() > MAX_RESULTS {
            let text = "results.jsonl has reached its largest size: move it away";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        let mut line = serde_json::to_vec(&Line { job_id, result })?;
        line.push(b'\n');
        append(&mut file, &line)
    }
}

/// Adds lines to a file: all of them or none.
fn append(file: &mut File, lines: &[u8]) -> io::Result<()> {
    let length = file.metadata()?.len();
    let written = file.write_all(lines).and_then(|()| file.sync_data());
    if written.is_err() {
        // Half a line would spoil the next one.
        let _ = file.set_len(length);
    }
    written
}

/// Makes a journal's changes.
fn replay(journal: &Path, registry: &mut Registry) -> Result<(), String> {
    let text = match fs::read_to_string(journal) {
        Ok(text) => text,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(cause) => return Err(named(journal)(&cause)),
    };
    for (number, line) in text.lines().enumerate() {
        let change = serde_json::from_str(line).map_err(|cause| {
            named(journal)(&format_args!(
                "line {}: not a change of this server's jobs ({cause}): move the file away; jobs that only this file \
                 has register anew",
                number + 1
            ))
        })?;
        registry.apply(change);
    }
    Ok(())
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
