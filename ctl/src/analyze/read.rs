//! Reads many trace files at once, with a progress bar if that takes long.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use litd_traces::formats::Format;
use litd_traces::formats::nccl_summary::{self, Waits};
use litd_traces::{KernelClass, ReadError, Trace, formats};

use crate::output;

/// What takes less time than this needs no progress bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// A file to be read.
pub struct Source {
    pub(super) path: PathBuf,
    /// Nobody named it: it lies in a folder, maybe for another purpose.
    found: bool,
}

/// The files that the paths name: a folder stands for all of its files, in the order of their names;
/// what is no trace is skipped when it has been looked at.
pub fn files(paths: &[PathBuf]) -> Result<Vec<Source>, String> {
    let mut files = Vec::new();
    for path in paths {
        let found = path.is_dir();
        let paths = if found {
            files_in(path)?
        } else {
            vec![path.clone()]
        };
        files.extend(paths.into_iter().map(|path| Source { path, found }));
    }
    Ok(files)
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
    files.sort();
    Ok(files)
}

/// What the summary of collectives says that is the only file, or that a folder without traces
/// holds.
pub fn waits(files: &[Source]) -> Result<Option<Waits>, ReadError> {
    let is_trace = |file: &Source| {
        let head = File::open(&file.path).and_then(formats::head);
        head.is_ok_and(|head| Format::of(&head).is_some())
    };
    if files.len() > 1 && (files.iter().any(|file| !file.found) || files.iter().any(is_trace)) {
        return Ok(None);
    }
    for Source { path, .. } in files.iter().filter(|file| file.path.is_file()) {
        let name = path.display().to_string();
        // Whatever is wrong is told where the path is read as a trace.
        let Ok(file) = File::open(path) else { continue };
        if let Some(waits) = nccl_summary::read(file, &name)? {
            return Ok(Some(waits));
        }
    }
    Ok(None)
}

/// Reads all files, and notes which were skipped; `ranks` are theirs, or empty if they tell
/// themselves.
pub fn traces(
    files: &[Source],
    ranks: &[u32],
) -> Result<(Vec<Trace>, Vec<String>), Box<dyn std::error::Error>> {
    // Files of several GPUs have as many each.
    let each = ranks.len() / files.len().max(1);
    if ranks.len() != each * files.len() {
        let ranks = output::count(ranks.len(), "rank");
        let files = output::count(files.len(), "file");
        return Err(format!(
            "--ranks names {ranks} for {files}: name one for each file or, if files hold several GPUs, one for each GPU"
        )
        .into());
    }
    let progress = Progress::new(files);
    let next = AtomicUsize::new(0);
    let read = Mutex::new(Vec::new());
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = files.get(at) else { break };
            let given = ranks.get(at * each..(at + 1) * each).unwrap_or_default();
            let trace = one(&file.path, given, &progress);
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
    progress.bar.finish_and_clear();
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
                | ReadError::OtherDatabase { .. }),
            ) if files[at].found && ranks.is_empty() => {
                notes.push(format!("skipped {other}"));
            }
            // rocprofv3 writes the copies of a process to a file of their own.
            Ok(trace) if files[at].found && ranks.is_empty() && only_copies(&trace) => {
                let file = files[at].path.display();
                notes.push(format!("skipped {file}: holds copies only"));
            }
            trace => traces.push(trace?),
        }
    }
    if traces.is_empty() {
        return Err(format!(
            "no trace is left (subfolders are not read): {}",
            notes.join("; ")
        )
        .into());
    }
    Ok((traces, notes))
}

fn only_copies(trace: &Trace) -> bool {
    let mut kernels = trace
        .timelines
        .iter()
        .flat_map(|timeline| &timeline.kernels);
    kernels.all(|kernel| kernel.class == KernelClass::Copy)
}

fn one(path: &Path, ranks: &[u32], progress: &Progress) -> Result<Trace, ReadError> {
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => formats::read_ranks(Counted { file, progress }, Some(path), &name, ranks),
        Err(cause) => Err(ReadError::Io { file: name, cause }),
    }
}

struct Progress {
    bar: ProgressBar,
    since: Instant,
    shown: AtomicBool,
}

impl Progress {
    fn new(files: &[Source]) -> Self {
        let sizes = files
            .iter()
            .filter_map(|file| Some(fs::metadata(&file.path).ok()?.len()));
        let bar = ProgressBar::with_draw_target(Some(sizes.sum()), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("reading {wide_bar} {bytes}/{total_bytes}");
        Self {
            bar: style.map_or(bar.clone(), |style| bar.with_style(style)),
            since: Instant::now(),
            shown: AtomicBool::new(false),
        }
    }

    fn advance(&self, bytes: usize) {
        self.bar.inc(bytes as u64);
        if self.since.elapsed() > PATIENCE && !self.shown.swap(true, Ordering::Relaxed) {
            // Draws nothing unless stderr is a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

/// A file that tells how much of it was read.
struct Counted<'a> {
    file: File,
    progress: &'a Progress,
}

impl Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(into)?;
        self.progress.advance(count);
        Ok(count)
    }
}
