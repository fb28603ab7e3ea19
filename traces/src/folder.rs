//! The trace files that a user names, and those of a folder that he names, read side by side.
//!
//! Without the feature `formats` only Kineto's JSON is read, as everywhere in this crate.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use litd_units::count;

use crate::error::ReadError;
use crate::gather::{Choice, Trace};
use crate::natural::natural;

/// A file to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// Nobody named it: it lies in a folder, maybe for another purpose.
    pub found: bool,
}

/// Why files were not read.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// One of them.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// What was asked for, in words.
    #[error("{0}")]
    Asked(String),
}

/// The files that the paths name, each once: a folder stands for all of its files, in the order of
/// their names, whose numbers count as numbers; what is no trace is skipped when it has been looked
/// at.
///
/// # Errors
/// A folder can't be listed or holds no file, or a file is named twice; in words, with its name.
pub fn files(paths: &[PathBuf]) -> Result<Vec<Source>, String> {
    let mut files = Vec::<Source>::new();
    let mut known = HashSet::new();
    for path in paths {
        let found = path.is_dir();
        let paths = if found {
            files_in(path)?
        } else {
            vec![path.clone()]
        };
        for path in paths {
            let same = path.canonicalize().unwrap_or_else(|_| path.clone());
            if known.insert(same) {
                files.push(Source { path, found });
            } else if !found {
                return Err(format!(
                    "{}: is named twice; name each file once, and no folder that it lies in",
                    path.display()
                ));
            }
        }
    }
    let read_with = files.iter().filter_map(|file| copies_beside(&file.path));
    let read_with = HashSet::<PathBuf>::from_iter(read_with);
    files.retain(|file| !read_with.contains(&file.path));
    Ok(files)
}

/// Where rocprofv3 writes the copies that it has recorded with these kernels: they are read with them.
pub(crate) fn copies_beside(kernels: &Path) -> Option<PathBuf> {
    let name = kernels.file_name()?.to_str()?;
    let recording = name.strip_suffix("_kernel_trace.csv")?;
    Some(kernels.with_file_name(format!("{recording}_memory_copy_trace.csv")))
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let named = |error: io::Error| format!("{}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(named)? {
        let path = entry.map_err(named)?.path();
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        // What begins with a point is somebody else's: an editor's copy, a Mac's attributes.
        let is_hidden = name.is_none_or(|name| name.starts_with('.'));
        if !is_hidden && path.is_file() {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(format!(
            "{}: the folder holds no file (subfolders are not read)",
            folder.display()
        ));
    }
    files.sort_by(|a, b| natural(&a.to_string_lossy(), &b.to_string_lossy()));
    Ok(files)
}

/// Reads all files, and notes which were skipped; `choice` has the ranks of all, or none if they tell
/// themselves.
///
/// `advance` hears of every piece of a file that was read, and how many bytes it has.
///
/// # Errors
/// [`FolderError`]: a file that the user named is no trace, or ranks are named for other files than these.
pub fn traces(
    files: &[Source],
    choice: Choice<'_>,
    advance: &(dyn Fn(usize) + Sync),
) -> Result<(Vec<Trace>, Vec<String>), FolderError> {
    let ranks = choice.ranks;
    // Files of several GPUs have as many each.
    let each = ranks.len() / files.len().max(1);
    if ranks.len() != each * files.len() {
        return Err(FolderError::Asked(format!(
            "--ranks names {} for {}: name one for each file or, if files hold several GPUs, one for each GPU",
            count(ranks.len(), "rank"),
            count(files.len(), "file"),
        )));
    }
    let next = AtomicUsize::new(0);
    let read = Mutex::new(Vec::new());
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = files.get(at) else { break };
            let given = ranks.get(at * each..(at + 1) * each).unwrap_or_default();
            let given = Choice {
                ranks: given,
                ..choice
            };
            let trace = one(&file.path, given, advance);
            if let Ok(mut read) = read.lock() {
                read.push((at, trace));
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 1..cores.min(files.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut read = read
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    read.sort_by_key(|(at, _)| *at);
    let (mut traces, mut notes) = (Vec::new(), Vec::new());
    for (at, trace) in read {
        match trace {
            // Where ranks are named for all files, each of them was meant.
            Err(
                other @ (ReadError::Empty { .. }
                | ReadError::NotKineto { .. }
                | ReadError::UnknownFormat { .. }
                | ReadError::OtherDatabase { .. }
                | ReadError::Foreign { .. }
                | ReadError::OnlyCopies { .. }),
            ) if files[at].found && ranks.is_empty() => {
                notes.push(format!("skipped {other}"));
            }
            trace => traces.push(trace?),
        }
    }
    if traces.is_empty() {
        return Err(FolderError::Asked(format!(
            "no file is a trace (subfolders are not read): {}",
            notes.join("; ")
        )));
    }
    Ok((traces, notes))
}

fn one(path: &Path, choice: Choice<'_>, advance: &dyn Fn(usize)) -> Result<Trace, ReadError> {
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => read(Counted { file, advance }, path, &name, choice),
        Err(cause) => Err(ReadError::Io { file: name, cause }),
    }
}

#[cfg(feature = "formats")]
fn read(
    source: Counted<'_>,
    path: &Path,
    name: &str,
    choice: Choice<'_>,
) -> Result<Trace, ReadError> {
    crate::formats::read_chosen(source, Some(path), name, choice)
}

#[cfg(not(feature = "formats"))]
fn read(source: Counted<'_>, _: &Path, name: &str, choice: Choice<'_>) -> Result<Trace, ReadError> {
    crate::kineto::read_chosen(source, name, choice)
}

/// A file that tells how much of it was read.
struct Counted<'a> {
    file: File,
    advance: &'a dyn Fn(usize),
}

impl Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(into)?;
        (self.advance)(count);
        Ok(count)
    }
}
