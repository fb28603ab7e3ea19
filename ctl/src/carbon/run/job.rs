//! The user's training job as a process.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use litd::process::Stat;
use litd_carbon::Configuration;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::state::Process;

/// How the job is asked to write a checkpoint and to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// A file appears, whose name the job has in `LITD_CARBON_CHECKPOINT`: `litd.checkpoint_due()` looks.
    File,
    /// A signal to the process that was started.
    Signal(Signal),
}

impl FromStr for Ask {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} must be file, or signal:NAME such as signal:USR1");
        if text == "file" {
            return Ok(Self::File);
        }
        let name = text.strip_prefix("signal:").ok_or_else(wrong)?;
        let name = format!("SIG{}", name.trim_start_matches("SIG"));
        match name.parse().map_err(|_| wrong())? {
            Signal::SIGKILL | Signal::SIGSTOP => Err(format!(
                "{text:?} can't be a request: no job can catch SIGKILL or SIGSTOP"
            )),
            signal => Ok(Self::Signal(signal)),
        }
    }
}

/// A command whose words may have {tp}, {pp} and {dp}.
pub fn command(words: &[String], configuration: Configuration) -> Vec<String> {
    let Configuration { tp, pp, dp } = configuration;
    let degrees = [("{tp}", tp), ("{pp}", pp), ("{dp}", dp)];
    let filled = |word: &String| {
        degrees.iter().fold(word.clone(), |word, (place, degree)| {
            word.replace(place, &degree.to_string())
        })
    };
    words.iter().map(filled).collect()
}

/// The job's environment variables.
pub fn environment(command: &mut Command, configuration: Configuration, due: &Path) {
    command
        .env("LITD_TP", configuration.tp.to_string())
        .env("LITD_PP", configuration.pp.to_string())
        .env("LITD_DP", configuration.dp.to_string())
        .env(VARIABLE, due);
}

/// Where the request for a checkpoint appears.
pub fn request(folder: &Path) -> PathBuf {
    folder.join("checkpoint-due")
}

/// The name of the request's variable in the job's environment, by which its processes are known.
const VARIABLE: &str = "LITD_CARBON_CHECKPOINT";

/// How long a killed process may take to end: writing to a disk that hangs takes its time.
const DYING: Duration = Duration::from_secs(30);

/// Processes that litctl had before it started a job: none of the job's. A shell may have started them, and become litctl.
static STRANGERS: OnceLock<BTreeSet<i32>> = OnceLock::new();

/// From now on litctl is the parent of the job's processes whose parents have ended, so that they are known whatever they
/// made of their session, group and environment. Where the kernel refuses that, they are known by the last alone.
pub fn adopt_orphans() {
    STRANGERS.get_or_init(|| {
        let own = std::process::id().cast_signed();
        descendants(&parents(), own)
    });
    // Older than any kernel that this runs on.
    let _: nix::Result<()> = nix::sys::prctl::set_child_subreaper(true);
}

/// Asks how orphans ended that have: each would keep its number otherwise, over all restarts. Not for a time in which a
/// job runs that was started here, which is asked by its handle.
fn reap_orphans() {
    let own = std::process::id().cast_signed();
    let ended = processes().filter(|(_, stat)| stat.has_ended && stat.parent == own);
    for (pid, _) in ended {
        // A process of another parent can't be waited for.
        let _: nix::Result<WaitStatus> = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
    }
}

fn processes() -> impl Iterator<Item = (i32, Stat)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|it| it.file_name().to_string_lossy().parse().ok());
    numbers.filter_map(|pid: i32| Some((pid, Stat::of(pid)?)))
}

/// The processes that are there and have not ended, each with its parent.
fn parents() -> BTreeMap<i32, i32> {
    let alive = processes().filter(|(_, stat)| !stat.has_ended);
    alive.map(|(pid, stat)| (pid, stat.parent)).collect()
}

/// All descendants of a process.
fn descendants(parents: &BTreeMap<i32, i32>, of: i32) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut last = BTreeSet::from([of]);
    while !last.is_empty() {
        let next = parents.iter().filter(|(_, parent)| last.contains(parent));
        last = next.map(|(pid, _)| *pid).collect();
        last.retain(|pid| found.insert(*pid));
    }
    found
}

/// The job's processes, whoever started them: ranks that outlived their launcher, or a job whose runner was killed
/// before it could note its number. Their environment has the name of this folder's request, or they descend from this
/// process: a program that writes its title over its environment is known by that.
pub fn remains(folder: &Path) -> Vec<i32> {
    let mark = format!("{VARIABLE}={}", request(folder).display()).into_bytes();
    // litctl itself may have been started from within a job.
    let own = ancestors();
    let parents = parents();
    let mut ours = descendants(&parents, std::process::id().cast_signed());
    if let Some(strangers) = STRANGERS.get() {
        ours.retain(|pid| !strangers.contains(pid));
    }
    let is_ours = |pid: &i32| {
        // Processes of other users can't be read, and are not ours. A process that has ended has no
        // environment.
        let environment = || fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let is_marked = || environment().split(|byte| *byte == 0).any(|it| it == mark);
        !own.contains(pid) && (ours.contains(pid) || is_marked())
    };
    parents.into_keys().filter(is_ours).collect()
}

/// The present process, its parent, and so on.
fn ancestors() -> Vec<i32> {
    let mut own = Vec::new();
    let mut next = i32::try_from(std::process::id()).ok();
    while let Some(pid) = next.filter(|pid| *pid > 0 && !own.contains(pid)) {
        own.push(pid);
        next = Stat::of(pid).map(|it| it.parent);
    }
    own
}

/// Signals each of the job's processes.
pub fn tell_remains(folder: &Path, signal: Signal) -> Result<(), String> {
    let mut all = remains(folder).into_iter();
    all.try_for_each(|pid| tell(pid, signal))
}

/// Tells what is left of the job to end, and kills it if it has not ended in time: litctl can't go on, and nobody would
/// look after it.
pub fn abandon(folder: &Path, patience: Duration) -> Result<(), String> {
    tell_remains(folder, Signal::SIGTERM)?;
    let until = Instant::now() + patience;
    while !remains(folder).is_empty() && Instant::now() < until {
        thread::sleep(Duration::from_millis(50));
    }
    end_remains(folder)
}

/// Kills what is left of the job, and waits until it is gone: two jobs must not write the same checkpoints.
pub fn end_remains(folder: &Path) -> Result<(), String> {
    let until = Instant::now() + DYING;
    loop {
        let left = remains(folder);
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(format!(
                "the job's processes {left:?} are still there {} s after SIGKILL, and nothing is started beside them",
                DYING.as_secs()
            ));
        }
        for pid in left {
            tell(pid, Signal::SIGKILL)?;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Starts the job in a process group of its own.
pub fn start(
    words: &[String],
    configuration: Configuration,
    folder: &Path,
) -> Result<(Child, Process), String> {
    end_remains(folder)?;
    reap_orphans();
    let due = request(folder);
    match fs::remove_file(&due) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", due.display()));
        }
        _ => (),
    }
    let words = command(words, configuration);
    let (program, args) = words.split_first().ok_or("the command is missing")?;
    let mut command = Command::new(program);
    command.args(args).process_group(0);
    environment(&mut command, configuration, &due);
    let started = command.spawn();
    let child = started.map_err(|error| format!("{program}: {error}"))?;
    let pid = i32::try_from(child.id()).map_err(|error| error.to_string())?;
    let process = Process::of(pid).unwrap_or(Process { pid, ticks: 0 });
    Ok((child, process))
}

/// Asks for a checkpoint.
pub fn ask(process: Process, how: &Ask, folder: &Path) -> Result<(), String> {
    match how {
        Ask::File => write_request(folder),
        Ask::Signal(signal) => tell(process.pid, *signal),
    }
}

/// Asks what is left of a job whose process is not known: of its processes those that none of the others started.
/// Helpers, such as loaders of data, know nothing of the signal and would die of it.
pub fn ask_remains(how: &Ask, folder: &Path) -> Result<(), String> {
    let signal = match how {
        Ask::File => return write_request(folder),
        Ask::Signal(signal) => *signal,
    };
    let left = remains(folder);
    let parent = |pid: i32| Stat::of(pid).map(|it| it.parent);
    let is_first = |pid: &&i32| parent(**pid).is_none_or(|parent| !left.contains(&parent));
    let mut first = left.iter().filter(is_first);
    first.try_for_each(|pid| tell(*pid, signal))
}

fn write_request(folder: &Path) -> Result<(), String> {
    let due = request(folder);
    fs::write(&due, "").map_err(|error| format!("{}: {error}", due.display()))
}

/// Signals the whole process group.
pub fn tell_all(process: Process, signal: Signal) -> Result<(), String> {
    tell(-process.pid, signal)
}

fn tell(pid: i32, signal: Signal) -> Result<(), String> {
    match kill(Pid::from_raw(pid), signal) {
        // The process has ended in the meantime.
        Ok(()) | Err(nix::Error::ESRCH) => Ok(()),
        Err(error) => Err(format!("{signal} to {pid}: {error}")),
    }
}

/// How a process ended, in words.
pub fn ended(status: std::process::ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => "ended".to_owned(),
        (Some(code), _) => format!("failed with {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_are_filled_in() {
        let words = ["train", "--tp={tp}", "{pp}x{dp}"].map(str::to_owned);
        let configuration = Configuration {
            tp: 2,
            pp: 1,
            dp: 4,
        };
        assert_eq!(command(&words, configuration), ["train", "--tp=2", "1x4"]);
        assert_eq!("signal:USR1".parse(), Ok(Ask::Signal(Signal::SIGUSR1)));
        assert_eq!("file".parse(), Ok(Ask::File));
        assert!("signal:NONE".parse::<Ask>().is_err());
        let error = "signal:SIGKILL".parse::<Ask>().unwrap_err();
        assert!(error.contains("no job can catch"), "{error}");
        assert!("usr1".parse::<Ask>().is_err());
    }
}
