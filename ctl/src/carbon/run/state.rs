//! The runner's state that has to survive a crash of its own.

use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use litd::process::Stat;
use litd_carbon::{Configuration, Profile};
use serde::{Deserialize, Serialize};

use super::super::clock::Mark;
use super::super::input;
use super::super::source::replace;
use super::cost::Costs;
use super::rates::Rates;

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
    /// Costs of the last switches.
    #[serde(default)]
    pub costs: Costs,
    /// How fast the configurations that have run train.
    #[serde(default)]
    pub rates: Rates,
    /// When it was written, where the wall clock is the clock.
    #[serde(default)]
    pub mark: Option<Mark>,
    /// Tokens of the last checkpoint, as the job told last: where its file is damaged, this is believed.
    #[serde(default)]
    pub trained: Option<f64>,
}

const VERSION: u32 = 1;

/// The remedy for a state that can't be read.
const AGAIN: &str = "remove it to go on from the last checkpoint: --deadline-hours then counts from that start, so give what \
    is left of it";

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
            costs: Costs::default(),
            rates: Rates::default(),
            mark: None,
            trained: None,
        }
    }

    /// The clock was set: what is so long after the first start stays so.
    pub fn shift(&mut self, by: SignedDuration) {
        let moved = |it: Timestamp| it.saturating_add(by).unwrap_or(it);
        (self.begun, self.deadline) = (moved(self.begun), moved(self.deadline));
    }

    pub fn path(folder: &Path) -> PathBuf {
        folder.join("carbon-run.json")
    }

    /// The state of an earlier runner, if there was one.
    pub fn read(folder: &Path) -> Result<Option<Self>, String> {
        let path = Self::path(folder);
        let shown = path.display();
        let text = input::text_if_there(&path, litd_files::LONGEST_STATE);
        let text = text.map_err(|error| {
            format!("{error}: make it readable for litctl, or give another --state for another job")
        })?;
        let Some(text) = text else {
            return Ok(None);
        };
        let state: Self =
            serde_json::from_str(&text).map_err(|error| format!("{shown}: {error}; {AGAIN}"))?;
        match state.check() {
            Ok(()) => Ok(Some(state)),
            Err(what) => Err(format!("{shown}: {what}; {AGAIN}")),
        }
    }

    /// Looks for what no runner writes. Signals go to the process that is named here: 1 would be everybody's.
    fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!(
                "version {} is not known, {VERSION} is",
                self.version
            ));
        }
        if let Some(Process { pid, .. }) = self.process
            && pid <= 1
        {
            return Err(format!("process {pid} can't be a job"));
        }
        if self.begun >= self.deadline {
            return Err(format!("the deadline of {} is not possible", self.deadline));
        }
        // A clock that is slewed may go back by moments.
        if self.begun.duration_since(self.now) > SignedDuration::from_mins(1) {
            return Err(format!(
                "the job can't have begun at {}, after {}",
                self.begun, self.now
            ));
        }
        let mut numbers = [Some(self.tokens), self.trained].into_iter().flatten();
        let is_possible = numbers.all(|it| it.is_finite() && it >= 0.0);
        match is_possible && self.costs.are_possible() && self.rates.are_possible() {
            true => Ok(()),
            false => Err("a number of tokens, a time or a rate is out of range".to_owned()),
        }
    }

    /// Looks whether the job ran on as many GPUs as the profile is of: its rates and its deadline are of those.
    pub fn fits(&self, folder: &Path, profile: &Profile) -> Result<(), String> {
        let before = self.running.and_then(Configuration::world_size);
        match before.filter(|it| *it != profile.gpus()) {
            None => Ok(()),
            Some(before) => Err(format!(
                "{} is of a job on {before} GPUs, and the profile is of {}: give a profile of {before} GPUs; or, to go on \
                 from the last checkpoint on the others, another --state and what is left of the deadline",
                Self::path(folder).display(),
                profile.gpus()
            )),
        }
    }

    /// Looks whether the job ran by the same clock: the moments of a trace that was played are none of the wall clock's.
    pub fn goes_by(&self, folder: &Path, is_wall: bool) -> Result<(), String> {
        let path = Self::path(folder);
        match (self.mark.is_some(), is_wall) {
            (true, false) => Err(format!(
                "{} is of a run by the wall clock: start it without --from, or give another --state",
                path.display()
            )),
            (false, true) if Mark::new(self.now).is_some() => Err(format!(
                "{} is of a run over a trace that was played: start it with --from again, or give another --state",
                path.display()
            )),
            _ => Ok(()),
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
    let stat = Stat::of(pid).filter(|it| !it.has_ended);
    stat.map(|it| it.began)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_written_is_read_and_half_of_it_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(State::read(folder.path()), Ok(None));
        let now = litd_carbon::moment("2026-11-20T12:00:00Z").unwrap();
        let deadline = now + SignedDuration::from_hours(1);
        let mut state = State::new(now, deadline, 1e9);
        state.process = Process::of(std::process::id() as i32);
        assert!(state.process.unwrap().is_alive());
        state.write(folder.path()).unwrap();
        assert_eq!(State::read(folder.path()), Ok(Some(state)));
        let path = State::path(folder.path());
        let text = fs::read_to_string(&path).unwrap();
        // A file that can't be read is no job that has not begun: this one is a link to itself.
        fs::remove_file(&path).unwrap();
        symlink(&path, &path).unwrap();
        let error = State::read(folder.path()).unwrap_err();
        assert!(
            error.contains("carbon-run.json") && error.contains("make it readable"),
            "{error}"
        );
        fs::remove_file(&path).unwrap();
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        assert!(
            State::read(folder.path())
                .unwrap_err()
                .contains("remove it")
        );
        // No such id may reach a kill().
        for pid in ["1", "0", "-1"] {
            let process = Process::of(std::process::id() as i32).unwrap();
            let wrong = text.replace(
                &format!("\"pid\": {}", process.pid),
                &format!("\"pid\": {pid}"),
            );
            assert_ne!(wrong, text);
            fs::write(&path, wrong).unwrap();
            let error = State::read(folder.path()).unwrap_err();
            assert!(error.contains("can't be a job"), "{error}");
        }
        let other = Process {
            pid: std::process::id() as i32,
            ticks: 1,
        };
        assert!(!other.is_alive(), "another process with the same number");
    }
}
