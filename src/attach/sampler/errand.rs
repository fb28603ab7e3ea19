//! Errands of the sampler: reading environments of processes, and the files that processes write.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use litd_attach::Client;
use litd_files::{Beneath, NotTaken};
use litd_proto::{Class, Kernels};
use litd_traces::KernelClass;
use litd_traces::demand::{Cut, Demanded, Uncut, cut, read};
use litd_units::Nanos;

use crate::attach::errands::Out;
use crate::attach::launcher::{Place, places};
use crate::attach::ranks::{Measured, Sample};
use crate::attach::through::Through;
use crate::clock::since_1970;
use crate::process::root;

/// The longest trace that is read, in bytes: four iterations of some 20,000 kernels each.
const LONGEST: u64 = 64 << 20;

/// The most kernels of all ranks of a job together. They take some 80 bytes each while they are looked at, and litd's
/// unit has 128 MiB for everything.
const MOST_KERNELS: usize = 400_000;

/// How often to look for files.
const LOOK: Duration = Duration::from_millis(250);

/// A file that comes too late is removed if it comes within this.
const LATE: Duration = Duration::from_secs(30);

/// The node's clock may be set by so much while a trace is recorded.
const SLACK: Nanos = Nanos(2_000_000_000);

/// A trace that a process was asked for.
#[derive(Debug, Clone)]
pub(super) struct Wished {
    pub pid: u32,
    pub uid: u32,
    /// When the process began, in ticks since boot.
    pub began: u64,
    /// By the process's own mount namespace.
    pub file: PathBuf,
}

/// An errand.
#[derive(Debug)]
pub(super) enum Errand {
    /// The ranks that launchers have given these processes.
    Places(Vec<u32>),
    /// Which of these processes ask dynolog.
    Clients { through: Through, pids: Vec<u32> },
    /// The whole iterations in these files, in the order of the ranks.
    Traces {
        files: Vec<Wished>,
        /// What dynolog is to be asked before, for those that ask it.
        through: Vec<Request>,
        /// How long the files may take.
        patience: Duration,
    },
}

/// A trace that dynolog is to ask a process for.
#[derive(Debug)]
pub(super) struct Request {
    pub through: Through,
    pub client: Client,
    /// The trace's configuration.
    pub text: String,
}

impl Request {
    fn tell(&self) -> Result<(), String> {
        let told = self.through.tell(&self.client, &self.text);
        told.map_err(|why| format!("process {}: {why}", self.client.sender.pid))
    }
}

/// The outcome of an errand.
#[derive(Debug)]
pub(super) enum Outcome {
    Places(Vec<Option<Place>>),
    Clients(Vec<Client>),
    Traces(Result<Sample, Failure>),
}

/// Why there is none.
#[derive(Debug)]
pub(super) struct Failure {
    pub text: String,
    /// Because too little was recorded.
    pub too_short: bool,
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self {
            text,
            too_short: false,
        }
    }
}

/// The work of an errand.
pub(super) fn run(proc: PathBuf, errand: Errand) -> impl FnOnce(&Out<Outcome>) + Send {
    move |out| match errand {
        Errand::Places(pids) => out.send(Outcome::Places(places(&proc, &pids))),
        Errand::Clients { through, pids } => {
            let clients = pids.iter().filter_map(|&pid| through.client(pid).ok());
            out.send(Outcome::Clients(clients.collect()));
        }
        Errand::Traces {
            files,
            through,
            patience,
        } => {
            let mut traces = Traces::new(&proc, &files);
            let told = through.iter().try_for_each(Request::tell);
            let sample = told.map_err(Failure::from);
            out.send(Outcome::Traces(
                sample.and_then(|()| traces.sample(patience)),
            ));
            traces.remove_late();
        }
    }
}

/// A source that is read a quarter of the time: litd's unit may use half a core, and the loop needs its part.
struct Gently<R> {
    source: R,
    since: Instant,
}

impl<R> Gently<R> {
    fn new(source: R) -> Self {
        let since = Instant::now();
        Self { source, since }
    }
}

impl<R: Read> Read for Gently<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let rest = 3 * self.since.elapsed();
        thread::sleep(rest.min(LOOK));
        self.since = Instant::now();
        self.source.read(into)
    }
}

/// Files that processes are to write.
struct Traces<'a> {
    proc: &'a Path,
    files: &'a [Wished],
    /// Which of them were read, or given up.
    done: Vec<bool>,
    began: Nanos,
}

impl<'a> Traces<'a> {
    fn new(proc: &'a Path, files: &'a [Wished]) -> Self {
        Self {
            proc,
            files,
            done: vec![false; files.len()],
            began: since_1970(),
        }
    }

    fn sample(&mut self, patience: Duration) -> Result<Sample, Failure> {
        let deadline = Instant::now() + patience;
        let mut read: Vec<Option<Demanded>> = self.files.iter().map(|_| None).collect();
        loop {
            for (at, file) in self.files.iter().enumerate() {
                let Some(place @ None) = read.get_mut(at) else {
                    continue;
                };
                let found = self.read(file);
                // What was read is removed, be it a trace or not.
                if !matches!(found, Ok(None)) {
                    self.is_done(at);
                }
                *place = found?;
            }
            match read.iter().position(Option::is_none) {
                None => break,
                Some(at) if Instant::now() > deadline => {
                    let pid = self.files.get(at).map_or(0, |it| it.pid);
                    let seconds = patience.as_secs();
                    return Err(
                        format!("process {pid} has written no trace within {seconds} s").into(),
                    );
                }
                Some(_) => thread::sleep(LOOK),
            }
        }
        let traces: Vec<Demanded> = read.into_iter().flatten().collect();
        sample_of(&traces)
    }

    fn is_done(&mut self, at: usize) {
        if let Some(done) = self.done.get_mut(at) {
            *done = true;
        }
    }

    /// A file's content; `None`: it is not there yet.
    fn read(&self, wished: &Wished) -> Result<Option<Demanded>, Failure> {
        let pid = wished.pid;
        let Some(file) = self.open(wished)? else {
            return Ok(None);
        };
        let most = MOST_KERNELS / self.files.len().max(1);
        let trace = read(Gently::new(file.bytes()), most);
        let same = file.is_unchanged();
        // Whatever was in it, nobody needs it any more.
        let removed = file.remove();
        let trace =
            trace.map_err(|why| format!("process {pid} has written what is no trace: {why}"))?;
        let of_it = |why: NotTaken| format!("the trace of process {pid} {why}");
        same.map_err(of_it)?;
        removed.map_err(|why| format!("the trace of process {pid} can't be removed: it {why}"))?;
        self.check_clock(pid, &trace)?;
        Ok(Some(trace))
    }

    fn open(&self, wished: &Wished) -> Result<Option<Beneath>, Failure> {
        let pid = wished.pid;
        let ended = || Failure::from(format!("process {pid} has ended before it wrote a trace"));
        let root = root(self.proc, pid, wished.began);
        let root =
            root.map_err(|why| format!("the files of process {pid} can't be reached: {why}"))?;
        match Beneath::open(&root.ok_or_else(ended)?, &wished.file, wished.uid, LONGEST) {
            Ok(file) => Ok(Some(file)),
            Err(NotTaken::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(format!("the trace of process {pid} {why}").into()),
        }
    }

    /// Kernels that ran before the process was asked, or have not run yet, are by another clock, or made up.
    fn check_clock(&self, pid: u32, trace: &Demanded) -> Result<(), Failure> {
        let first = trace.kernels.first().map(|ran| ran.start);
        let last = trace.kernels.iter().map(|ran| ran.end).max();
        let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
        let now = since_1970();
        let off = match (first < self.began - SLACK, last > now + SLACK) {
            (true, _) => first - self.began,
            (_, true) => last - now,
            _ => return Ok(()),
        };
        let seconds = off.as_secs_f64();
        Err(format!(
            "the clock of process {pid} differs from this node's: by it kernels ran {:.1} s {}",
            seconds.abs(),
            if seconds < 0.0 {
                "before the trace was asked for"
            } else {
                "from now"
            }
        )
        .into())
    }

    /// Removes files that come too late, for some time: nobody reads them.
    fn remove_late(&mut self) {
        let deadline = Instant::now() + LATE;
        while Instant::now() < deadline && self.done.contains(&false) {
            for (at, wished) in self.files.iter().enumerate() {
                if self.done.get(at) != Some(&false) {
                    continue;
                }
                match self.open(wished) {
                    Ok(None) => {}
                    Ok(Some(file)) => {
                        // It stays with the process if it can't be removed.
                        let _ = file.remove();
                        self.is_done(at);
                    }
                    Err(_) => self.is_done(at),
                }
            }
            thread::sleep(LOOK);
        }
    }
}

fn sample_of(traces: &[Demanded]) -> Result<Sample, Failure> {
    let cuts = cut(traces).map_err(|why| Failure {
        text: why.to_string(),
        too_short: why == Uncut::NoPeriod,
    })?;
    let ranks = traces.iter().zip(&cuts.ranks);
    Ok(Sample {
        began: cuts.began,
        ranks: ranks.map(|(trace, cut)| measured(trace, cut)).collect(),
    })
}

fn measured(trace: &Demanded, cut: &Cut) -> Measured {
    let ran = trace.kernels.get(cut.kernels.clone()).unwrap_or_default();
    let mut kernels = Kernels {
        duration: cut.durations.last().copied().unwrap_or_default(),
        new_names: trace.names.iter().map(str::to_owned).collect(),
        shows_collectives: trace.shows_collectives(),
        ..Kernels::default()
    };
    for ran in ran {
        kernels.name.push(ran.name.0);
        kernels.stream.push(ran.stream);
        kernels.class.push(match ran.class {
            KernelClass::Computation => Class::Computation,
            KernelClass::Communication | KernelClass::Fused => Class::Communication,
            KernelClass::Copy => Class::Copy,
        });
        kernels.start.push(ran.start);
        kernels.duration_of.push(ran.end - ran.start);
    }
    Measured {
        durations: cut.durations.clone(),
        kernels,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::{Uid, mkfifo};

    use super::*;
    use crate::process::Stat;

    const SOON: Duration = Duration::from_millis(600);

    /// The files of two ranks, both of this process's.
    struct Files {
        folder: tempfile::TempDir,
        wished: Vec<Wished>,
    }

    impl Files {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let place = folder.path().canonicalize().unwrap();
            let wished = |name: &str| Wished {
                pid: std::process::id(),
                uid: Uid::effective().as_raw(),
                began: Stat::of("self").unwrap().began,
                file: place.join(name),
            };
            let wished = vec![wished("0.json"), wished("1.json")];
            Self { folder, wished }
        }

        /// As Kineto writes: all of a file at once.
        fn write(&self, rank: usize, text: &str) {
            let first = self.folder.path().join("first");
            fs::write(&first, text).unwrap();
            fs::rename(first, &self.wished[rank].file).unwrap();
        }

        fn sample(&self) -> Result<Sample, String> {
            let mut traces = Traces::new(Path::new("/proc"), &self.wished);
            traces.sample(SOON).map_err(|why| why.text)
        }

        fn left(&self) -> usize {
            fs::read_dir(self.folder.path()).unwrap().count()
        }
    }

    /// Three iterations of 1 ms that began now, and this much later.
    fn trace(later: i64) -> String {
        let base = since_1970() + Nanos(later);
        let kernel = |at: i64| {
            let (name, ts) = (at % 10, 100 * at);
            format!(
                r#"{{"ph":"X","cat":"kernel","name":"kernel {name}","pid":0,"tid":7,"ts":{ts},"dur":90,"args":{{}}}}"#
            )
        };
        let events: Vec<String> = (0..40).map(kernel).collect();
        let events = events.join(",");
        format!(
            "{{\"traceEvents\": [{events}], \"baseTimeNanoseconds\": {}}}",
            base.0
        )
    }

    #[test]
    fn files_become_a_sample_and_are_removed() {
        let files = Files::new();
        files.write(0, &trace(0));
        files.write(1, &trace(50_000));
        let sample = files.sample().unwrap();
        assert_eq!(sample.ranks.len(), 2);
        for rank in &sample.ranks {
            let kernels = &rank.kernels;
            assert_eq!(kernels.duration, Nanos(1_000_000));
            assert_eq!((kernels.name.len(), kernels.new_names.len()), (10, 10));
            assert!(!kernels.shows_collectives, "there are none");
        }
        assert_eq!(files.left(), 0);
    }

    #[test]
    fn a_file_that_does_not_come_is_one_error_and_removed_when_it_comes_late() {
        let files = Files::new();
        files.write(0, &trace(0));
        let mut traces = Traces::new(Path::new("/proc"), &files.wished);
        let why = traces.sample(SOON).unwrap_err();
        assert!(
            why.text.contains("has written no trace within"),
            "{}",
            why.text
        );
        assert!(!why.too_short);
        files.write(1, &trace(0));
        traces.remove_late();
        assert_eq!(files.left(), 0);
    }

    #[test]
    fn whatever_else_stands_there_is_one_error_and_not_removed() {
        for (what, told) in [
            ("link", "a link stands there"),
            ("pipe", "is a named pipe"),
            ("long", "has 10737418240 bytes"),
        ] {
            let files = Files::new();
            let place = &files.wished[1].file;
            let target = files.folder.path().join("target");
            files.write(0, &trace(0));
            match what {
                "link" => {
                    fs::write(&target, trace(0)).unwrap();
                    symlink(&target, place).unwrap();
                }
                "pipe" => mkfifo(place, Mode::S_IRWXU).unwrap(),
                _ => fs::File::create(place).unwrap().set_len(10 << 30).unwrap(),
            }
            let why = files.sample().unwrap_err();
            assert!(why.contains(told), "{what}: {why}");
            assert!(place.symlink_metadata().is_ok(), "{what}");
        }
    }

    #[test]
    fn garbage_and_clocks_that_differ_are_one_error() {
        let hour = 3_600_000_000_000;
        for (text, told) in [
            ("{\"traceEvents\": [".to_owned(), "ends in the middle"),
            ("no trace".to_owned(), "is no JSON"),
            (trace(hour), " s from now"),
            (trace(-hour), " s before the trace was asked for"),
        ] {
            let files = Files::new();
            files.write(0, &trace(0));
            files.write(1, &text);
            let why = files.sample().unwrap_err();
            assert!(why.contains(told), "{why}");
            assert_eq!(files.left(), 0, "{why}");
        }
    }

    #[test]
    fn after_an_error_the_other_files_are_removed_at_once() {
        let files = Files::new();
        files.write(0, "no trace");
        files.write(1, &trace(0));
        let mut traces = Traces::new(Path::new("/proc"), &files.wished);
        traces.sample(SOON).unwrap_err();
        assert_eq!(files.left(), 1);
        let began = Instant::now();
        traces.remove_late();
        assert!(began.elapsed() < LATE / 10);
        assert_eq!(files.left(), 0);
    }

    #[test]
    fn a_process_that_has_ended_is_one_error() {
        let mut files = Files::new();
        files.wished[1].began += 1;
        let began = Instant::now();
        let why = files.sample().unwrap_err();
        assert!(why.contains("has ended before it wrote a trace"), "{why}");
        assert!(began.elapsed() < SOON);
    }
}
