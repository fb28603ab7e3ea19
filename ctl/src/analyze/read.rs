//! Reads many trace files at once, with a progress bar if that takes long.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use litd_traces::formats::nccl_summary::{self, Waits};
use litd_traces::{
    Choice, Classes, Kernel, ReadError, Timeline, Trace, formats, natural, printable,
};

use crate::output;

/// What takes less time than this needs no progress bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// A file to be read.
pub struct Source {
    pub(super) path: PathBuf,
    /// Nobody named it: it lies in a folder, maybe for another purpose.
    found: bool,
}

/// The files that the paths name, each once: a folder stands for all of its files, in the order of
/// their names, whose numbers count as numbers; what is no trace is skipped when it has been looked
/// at.
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
    files.sort_by(|a, b| natural(&a.to_string_lossy(), &b.to_string_lossy()));
    Ok(files)
}

/// The user's own classes of kernels.
pub fn classes(path: &Path) -> Result<Classes, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    toml::from_str(&text).map_err(|error| {
        format!(
            "{}: {}\n  a row is [[kernel]] with name = \"part_of_the_name\" and class = \"computation\", \"communication\", \"fused\" or \"copy\"",
            path.display(),
            error.to_string().trim_end()
        )
    })
}

/// Which rank each file is that holds one, where the user gave them; of files that hold several the
/// reader tells.
pub fn ranks(timelines: &[Timeline]) -> Option<String> {
    let alone = |one: &&Timeline| {
        let same = timelines.iter().filter(|other| other.source == one.source);
        same.count() == 1
    };
    let each = timelines.iter().filter(alone).map(|timeline| {
        let file = Path::new(&timeline.source).file_name();
        let file = file.map_or(timeline.source.as_str().into(), |name| {
            name.to_string_lossy()
        });
        format!("{} is rank {}", printable(&file), timeline.rank)
    });
    let each = Vec::from_iter(each);
    (!each.is_empty()).then(|| format!("as given, {}", each.join(", ")))
}

/// Refuses one recording under several names, which ranks that the user named would make ranks of their own: what it
/// would be compared with is itself.
pub fn distinct(timelines: &[Timeline]) -> Result<(), String> {
    let same = |one: &Timeline, other: &Timeline| {
        let (kernels, others) = (&one.kernels, &other.kernels);
        let alike = |(a, b): (&Kernel, &Kernel)| {
            a.start == b.start && a.end == b.end && one.names.get(a.name) == other.names.get(b.name)
        };
        kernels.len() == others.len() && kernels.iter().zip(others).all(alike)
    };
    for (at, one) in timelines.iter().enumerate() {
        let mut others = timelines.iter().skip(at + 1);
        let twin = others.find(|other| other.source != one.source && same(one, other));
        if let Some(twin) = twin {
            return Err(format!(
                "{} and {} hold the same recording: the same kernels at the same times; leave one out",
                printable(&one.source),
                printable(&twin.source)
            ));
        }
    }
    Ok(())
}

/// What the summary of collectives says that is the only file, or that a folder without traces
/// holds.
pub fn waits(files: &[Source]) -> Result<Option<Waits>, ReadError> {
    let is_trace = |file: &Source| {
        let head = File::open(&file.path).and_then(formats::head);
        head.is_ok_and(|head| formats::format_of(&head).is_some())
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

/// Reads all files, and notes which were skipped; `choice` has the ranks of all, or none if they tell
/// themselves.
pub fn traces(
    files: &[Source],
    choice: Choice<'_>,
) -> Result<(Vec<Trace>, Vec<String>), Box<dyn std::error::Error>> {
    let ranks = choice.ranks;
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
            let given = Choice {
                ranks: given,
                ..choice
            };
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
        return Err(format!(
            "no file is a trace (subfolders are not read): {}",
            notes.join("; ")
        )
        .into());
    }
    Ok((traces, notes))
}

fn one(path: &Path, choice: Choice<'_>, progress: &Progress) -> Result<Trace, ReadError> {
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => formats::read_chosen(Counted { file, progress }, Some(path), &name, choice),
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
