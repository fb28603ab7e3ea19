//! Keeping GPUs open, in a process of its own, while this one's session is renewed.
//!
//! A GPU without persistence mode loses its cap once the last program closes it, and opening it again may take
//! seconds. A process has one NVML session, so that releasing one GPU closes all of them. Until they are open
//! again another process keeps them open.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use super::GPU_NOT_FOUND;
use super::session::aside;

/// The first argument of a program that is to keep GPUs open.
pub const COMMAND: &str = "nvml-keep";

/// Another process opens GPUs that are open already in far less. A GPU whose driver hangs is not waited for once
/// others are open.
const LONGEST: Duration = Duration::from_secs(3);

/// A library that takes so long to open is not waited for any longer.
const LAST: Duration = Duration::from_secs(15);

/// A GPU whose driver refuses to open it is tried so often, after a pause each time: most say no for a moment only.
const TRIES: u32 = 10;

const PAUSE: Duration = Duration::from_millis(100);

/// What became of a GPU that was to be kept open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The GPU is open.
    Open,
    /// The GPU is not open, and may forget its cap.
    Refused,
    /// The node has it no longer: there is no cap to forget.
    Gone,
}

impl Outcome {
    const ALL: [Self; 3] = [Self::Open, Self::Refused, Self::Gone];

    /// How it is told, before the GPU's address.
    fn sign(self) -> char {
        match self {
            Self::Open => '+',
            Self::Refused => '-',
            Self::Gone => '~',
        }
    }

    /// The outcome, and the GPU, that a line tells.
    fn told(line: &str) -> Option<(Self, &str)> {
        let told = |it: Self| Some((it, line.strip_prefix(it.sign())?));
        Self::ALL.into_iter().find_map(told)
    }
}

/// What a program does that is called with [`COMMAND`]; `arguments` are those after it: the library, and the GPUs'
/// addresses as NVML writes them. It writes a line for each once it has tried to open it (an outcome's sign, and
/// the address), and ends with its standard input.
pub fn keep(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let Some(library) = arguments.next() else {
        return ExitCode::from(2);
    };
    let Ok(nvml) = Nvml::builder().lib_path(&library).init() else {
        return ExitCode::FAILURE;
    };
    let bus_ids: Vec<String> = arguments.filter_map(|it| it.into_string().ok()).collect();
    thread::scope(|scope| {
        // A driver may hang for one GPU.
        for bus_id in &bus_ids {
            let keep = || tell(bus_id, persist(PAUSE, || open(&nvml, bus_id)));
            if thread::Builder::new().spawn_scoped(scope, keep).is_err() {
                tell(bus_id, Outcome::Refused);
            }
        }
        let _ = io::stdin().read_to_end(&mut Vec::new());
        // The threads of GPUs that hang are not waited for.
        std::process::exit(0)
    })
}

/// Tries again what is refused.
fn persist(pause: Duration, mut open: impl FnMut() -> Outcome) -> Outcome {
    for _ in 1..TRIES {
        match open() {
            Outcome::Refused => thread::sleep(pause),
            outcome => return outcome,
        }
    }
    open()
}

fn open(nvml: &Nvml, bus_id: &str) -> Outcome {
    // A handle alone may be had of a GPU that was not opened.
    let device = nvml.device_by_pci_bus_id(bus_id);
    match device.and_then(|device| device.power_management_limit()) {
        Ok(_) => Outcome::Open,
        Err(
            NvmlError::GpuLost | NvmlError::NotFound | NvmlError::UnexpectedVariant(GPU_NOT_FOUND),
        ) => Outcome::Gone,
        Err(_) => Outcome::Refused,
    }
}

fn tell(bus_id: &str, outcome: Outcome) {
    let sign = outcome.sign();
    // Where nobody reads it any more it ends soon.
    let _ = io::stdout().write_all(format!("{sign}{bus_id}\n").as_bytes());
}

/// A process with GPUs open. Dropping it ends the process.
#[derive(Debug)]
pub(super) struct Keeper {
    child: Option<Child>,
    /// The GPUs that the new session has not opened yet.
    waits_for: BTreeSet<String>,
}

impl Keeper {
    /// Opens these GPUs in another process. `None` where it can't open one, or has opened none in the time that there
    /// is: closing the session would close them, and their caps would rise.
    pub fn of(program: &Path, library: &Path, bus_ids: &BTreeSet<String>) -> Option<Self> {
        let mut child = Command::new(program)
            .arg0("litd")
            .arg(COMMAND)
            .arg(library)
            .args(bus_ids)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let output = child.stdout.take();
        let mut keeper = Self {
            child: Some(child),
            waits_for: BTreeSet::new(),
        };
        keeper.waits_for = kept(&lines(output?)?, bus_ids)?;
        Some(keeper)
    }

    /// The new session has opened a GPU. Returns whether it has opened all.
    pub fn has_opened(&mut self, bus_id: &str) -> bool {
        self.waits_for.remove(bus_id);
        self.waits_for.is_empty()
    }

    /// Ends it, and waits so long for that: a client that releases a GPU is told that no process has it open.
    pub fn end(mut self, patience: Duration) {
        if let Some(ended) = self.kill() {
            let _ = ended.recv_timeout(patience);
        }
    }

    /// Kills it. A process that hangs in the kernel ends later, which is reported.
    fn kill(&mut self) -> Option<Receiver<()>> {
        let mut child = self.child.take()?;
        drop(child.stdin.take());
        let _ = child.kill();
        let (done, ended) = mpsc::channel();
        let wait = move || {
            let _ = child.wait();
            let _ = done.send(());
        };
        aside(wait).ok()?;
        Some(ended)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// The GPUs among `bus_ids` that a keeper whose lines are `told` keeps, or `None` if it could not open one of them. A
/// GPU whose driver hangs counts as kept, because closing it takes as long; it is not waited for once another one is
/// open.
fn kept(told: &Receiver<String>, bus_ids: &BTreeSet<String>) -> Option<BTreeSet<String>> {
    let (mut kept, mut untried) = (bus_ids.clone(), bus_ids.clone());
    let (mut holds_any, since) = (false, Instant::now());
    while !untried.is_empty() {
        let patience = if holds_any { LONGEST } else { LAST };
        let line = match told.recv_timeout(patience.saturating_sub(since.elapsed())) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) if holds_any => break,
            Err(RecvTimeoutError::Timeout) => return None,
            // The keeper has ended, and holds no GPU.
            Err(RecvTimeoutError::Disconnected) => return None,
        };
        let (outcome, bus_id) = Outcome::told(&line)?;
        match outcome {
            Outcome::Open => holds_any = true,
            Outcome::Gone => drop(kept.remove(bus_id)),
            Outcome::Refused => return None,
        }
        untried.remove(bus_id);
    }
    Some(kept)
}

/// The lines that a keeper writes.
fn lines(output: ChildStdout) -> Option<Receiver<String>> {
    let (told, lines) = mpsc::channel();
    let read = move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = told.send(line);
        }
    };
    aside(read).ok()?;
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of GPUs `a` and `b` are kept by a process that tells these lines, and lives or does not.
    fn told(lines: &[&str], lives: bool) -> Option<String> {
        let (tell, told) = mpsc::channel();
        for line in lines {
            tell.send((*line).to_owned()).unwrap();
        }
        let tell = Some(tell).filter(|_| lives);
        let bus_ids = ["a", "b"].map(str::to_owned).into();
        let kept = kept(&told, &bus_ids);
        drop(tell);
        kept.map(|kept| kept.into_iter().collect())
    }

    #[test]
    fn a_gpu_that_could_not_be_opened_is_not_kept() {
        let both = Some("ab".to_owned());
        assert_eq!(told(&["+a", "+b"], true), both);
        assert_eq!(told(&["+a", "-b"], true), None);
        assert_eq!(told(&["-a", "+b"], true), None);
        assert_eq!(told(&["-a", "-b"], true), None);
        // One that the node has no longer forgets nothing, and one that hangs is not waited for.
        assert_eq!(told(&["+a", "~b"], true), Some("a".to_owned()));
        assert_eq!(told(&["~a", "~b"], true), Some(String::new()));
        assert_eq!(told(&["+a"], true), both);
        // What has ended holds nothing, and what says something else is no keeper.
        assert_eq!(told(&["+a"], false), None);
        assert_eq!(told(&["+a", "b"], true), None);
        assert_eq!(told(&["+a", ""], true), None);
    }

    #[test]
    fn a_driver_that_refuses_for_a_moment_is_asked_again() {
        let after = |refusals: u32| {
            let mut asked = 0;
            let outcome = persist(Duration::ZERO, || {
                asked += 1;
                match asked > refusals {
                    true => Outcome::Open,
                    false => Outcome::Refused,
                }
            });
            (outcome, asked)
        };
        assert_eq!(after(0), (Outcome::Open, 1));
        assert_eq!(after(TRIES - 1), (Outcome::Open, TRIES));
        assert_eq!(after(TRIES), (Outcome::Refused, TRIES));
    }
}
