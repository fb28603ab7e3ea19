//! What the runner must know after a crash of its own.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use litd_carbon::Configuration;
use serde::{Deserialize, Serialize};

use super::super::source::replace;

/// The process of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    /// When it was started, in the kernel's ticks: another process with its number has another.
    pub ticks: u64,
}

/// On disk, written anew in one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    pub version: u32,
    pub begun: Timestamp,
    pub deadline: Timestamp,
    pub tokens: f64,
    /// By the clock that windows are counted by: a trace that is played goes on from here.
    pub now: Timestamp,
    pub switches: u32,
    pub running: Option<Configuration>,
    pub process: Option<Process>,
    pub is_finished: bool,
}

const VERSION: u32 = 1;

impl State {
    pub fn new(begun: Timestamp, deadline: Timestamp, tokens: f64) -> Self {
        Self {
            version: VERSION,
            begun,
            deadline,
            tokens,
            now: begun,
            switches: 0,
            running: None,
            process: None,
            is_finished: false,
        }
    }

    pub fn path(folder: &Path) -> PathBuf {
        folder.join("carbon-run.json")
    }

    /// What an earlier runner left, if there was one.
    pub fn read(folder: &Path) -> Result<Option<Self>, String> {
        let path = Self::path(folder);
        if !path.exists() {
            return Ok(None);
        }
        let shown = path.display();
        let text = litd_files::text(&path, litd_files::LONGEST_STATE);
        let text = text.map_err(|error| format!("{shown}: {error}"))?;
        let state: Self = serde_json::from_str(&text).map_err(|error| {
            format!("{shown}: {error}; remove it to begin anew from the last checkpoint")
        })?;
        match state.version {
            VERSION => Ok(Some(state)),
            version => Err(format!(
                "{shown}: version {version} is not known; {VERSION} is"
            )),
        }
    }

    pub fn write(&self, folder: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        replace(&Self::path(folder), &(text + "\n"))
    }
}

impl Process {
    pub fn of(pid: i32) -> Option<Self> {
        let ticks = ticks(pid)?;
        Some(Self { pid, ticks })
    }

    /// Whether this very process is still there and has not ended.
    pub fn is_alive(self) -> bool {
        ticks(self.pid) == Some(self.ticks)
    }
}

/// When a process was started; `None` where there is none or it has ended.
fn ticks(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may have anything in it.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    // proc_pid_stat(5): starttime is the 22nd field, the state the third.
    fields.get(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_half_of_it_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(State::read(folder.path()), Ok(None));
        let now = litd_carbon::moment("2026-11-20T12:00:00Z").unwrap();
        let mut state = State::new(now, now, 1e9);
        state.process = Process::of(std::process::id() as i32);
        assert!(state.process.unwrap().is_alive());
        state.write(folder.path()).unwrap();
        assert_eq!(State::read(folder.path()), Ok(Some(state)));
        let path = State::path(folder.path());
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        assert!(
            State::read(folder.path())
                .unwrap_err()
                .contains("remove it")
        );
        let other = Process {
            pid: std::process::id() as i32,
            ticks: 1,
        };
        assert!(!other.is_alive(), "another process with the same number");
    }
}
