//! What this node knows of profilers: by which software, and what came of it.
//!
//! A profiler that has done harm stays off for its software until an administrator forgets it, in
//! whatever job it did so: that is on disk, with what else was learned. The first use of a software
//! here is one job's.

use std::collections::BTreeMap;

use litd_api::EventKind;
use litd_proto::{Hello, Notice, NoticeKind, Profiling, Welcome};
use serde::{Deserialize, Serialize};

use crate::core::Core;
use crate::event::SessionId;
use crate::record::Note;
use crate::store::Store;

/// So many are kept; the oldest go. Whoever holds a GPU can add some.
const KEPT: usize = 64;

/// Letters of a software's name, and of a reason.
const LONGEST: usize = 300;

/// A profiler that is not used on this node any more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfilerOff {
    /// With what software: versions of torch, of CUDA or ROCm, and of the profiler's library.
    pub software: String,
    /// Why, in words, as a hook told it.
    pub reason: String,
    /// When, in seconds since 1970.
    pub unix_seconds: f64,
}

#[derive(Debug, Clone, PartialEq)]
enum Known {
    /// This job is the first to use it.
    Tried {
        job: String,
    },
    Safe,
}

/// All that is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profilers {
    /// The latest last.
    off: Vec<ProfilerOff>,
    /// Until the next start.
    known: BTreeMap<String, Known>,
}

/// The software that a hook would profile with; `None` if it would not.
fn software(hello: &Hello) -> Option<String> {
    let version = |name: &str| hello.versions.get(name).filter(|text| !text.is_empty());
    let library = version("profiler")?;
    let torch = version("torch").map_or("unknown", String::as_str);
    let runtime = match (version("cuda"), version("hip")) {
        (_, Some(hip)) => format!("rocm {hip}"),
        (Some(cuda), None) => format!("cuda {cuda}"),
        (None, None) => "unknown".to_owned(),
    };
    Some(shortened(&format!("torch {torch}, {runtime}, {library}")))
}

fn shortened(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

impl Profilers {
    /// As they are read from disk.
    pub(crate) fn with(mut off: Vec<ProfilerOff>) -> Self {
        off.drain(..off.len().saturating_sub(KEPT));
        Self {
            off,
            known: BTreeMap::new(),
        }
    }

    /// Those that are not used any more.
    #[must_use]
    pub fn off(&self) -> &[ProfilerOff] {
        &self.off
    }

    /// What a rank of this job is told.
    fn tell(&mut self, software: &str, job: &str) -> (Profiling, String) {
        if let Some(off) = self.off.iter().find(|off| off.software == software) {
            return (Profiling::Off, off.reason.clone());
        }
        if self.known.len() >= KEPT && !self.known.contains_key(software) {
            // Somebody makes versions up: what is lost is tried once more.
            self.known.clear();
        }
        let first = || Known::Tried {
            job: job.to_owned(),
        };
        match self.known.entry(software.to_owned()).or_insert_with(first) {
            Known::Safe => (Profiling::Safe, String::new()),
            Known::Tried { job: other } if other == job => (Profiling::Try, String::new()),
            Known::Tried { .. } => {
                let reason = "another job on this node tries the profiler first";
                (Profiling::Wait, reason.to_owned())
            }
        }
    }

    /// It did harm. Answers whether that is new.
    fn turn_off(&mut self, software: &str, reason: &str, unix_seconds: f64) -> bool {
        if self.off.iter().any(|off| off.software == software) {
            return false;
        }
        self.known.remove(software);
        self.off.push(ProfilerOff {
            software: software.to_owned(),
            reason: shortened(reason),
            unix_seconds,
        });
        let extra = self.off.len().saturating_sub(KEPT);
        self.off.drain(..extra);
        true
    }

    /// The job that tried it first went on as before. Others can't say so.
    fn passed(&mut self, software: &str, job: &str) {
        if let Some(known) = self.known.get_mut(software)
            && matches!(known, Known::Tried { job: first } if first == job)
        {
            *known = Known::Safe;
        }
    }

    /// A job has ended: what it has not told by now the next one tries.
    pub(crate) fn ended(&mut self, job: &str) {
        self.known
            .retain(|_, known| !matches!(known, Known::Tried { job: first } if first == job));
    }
}

impl<S: Store> Core<S> {
    /// Adds to a welcome what the node knows of the hook's profiler.
    pub(crate) fn tell_of_profiler(&mut self, id: SessionId, hello: &Hello, welcome: &mut Welcome) {
        let Some(software) = software(hello) else {
            return;
        };
        let (profiling, reason) = self.learned.profilers.tell(&software, &hello.job);
        (welcome.profiling, welcome.profiling_reason) = (profiling, reason);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.profiler = Some(software);
        }
    }

    /// A hook tells what came of its profiler.
    pub(crate) fn profiler_told(&mut self, id: SessionId, job: &str, notice: &Notice) {
        let session = self.sessions.get(&id);
        let Some(software) = session.and_then(|session| session.profiler.clone()) else {
            return;
        };
        match notice.kind {
            NoticeKind::Unspecified => {}
            NoticeKind::ProfilingSafe => self.learned.profilers.passed(&software, job),
            NoticeKind::ProfilingOff => {
                let seconds = self.record.unix_seconds(self.now);
                let profilers = &mut self.learned.profilers;
                if profilers.turn_off(&software, &notice.text, seconds) {
                    let text = format!("the profiler is not used here any more with {software}");
                    self.note(Note::warning(EventKind::Job, text).job(job));
                    self.save_learned();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: &str = "torch 2.9.1, cuda 12.8, cupti 12.8.90";

    #[test]
    fn one_job_tries_the_others_wait_and_then_all_may() {
        let mut profilers = Profilers::default();
        assert_eq!(profilers.tell(STACK, "a").0, Profiling::Try);
        assert_eq!(profilers.tell(STACK, "b").0, Profiling::Wait);
        assert_eq!(profilers.tell(STACK, "a").0, Profiling::Try);
        assert_eq!(profilers.tell("another", "b").0, Profiling::Try);
        // Only the job that tries can say how it went.
        profilers.passed(STACK, "b");
        assert_eq!(profilers.tell(STACK, "b").0, Profiling::Wait);
        profilers.passed(STACK, "a");
        assert_eq!(profilers.tell(STACK, "b").0, Profiling::Safe);
    }

    #[test]
    fn a_job_that_ends_early_leaves_it_to_the_next() {
        let mut profilers = Profilers::default();
        profilers.tell(STACK, "a");
        profilers.ended("a");
        assert_eq!(profilers.tell(STACK, "b").0, Profiling::Try);
    }

    #[test]
    fn what_did_harm_is_off_and_stays_so_on_disk() {
        let mut profilers = Profilers::default();
        profilers.tell(STACK, "a");
        assert!(profilers.turn_off(STACK, "12 % slower", 1.5e9));
        assert!(!profilers.turn_off(STACK, "again", 1.6e9));
        profilers.passed(STACK, "a");
        profilers.ended("a");
        let mut next = Profilers::with(profilers.off().to_vec());
        let told = (Profiling::Off, "12 % slower".to_owned());
        assert_eq!(next.tell(STACK, "b"), told);
        assert_eq!(next.off().len(), 1);
    }

    #[test]
    fn made_up_versions_take_no_more_than_their_room() {
        let mut profilers = Profilers::default();
        for number in 0..1000 {
            let software = format!("torch {number}");
            profilers.tell(&software, "a");
            profilers.turn_off(&software, &"x".repeat(5000), 0.0);
            profilers.tell(&format!("rocm {number}"), "a");
        }
        assert!(profilers.off.len() <= KEPT && profilers.known.len() <= KEPT);
        assert!(profilers.off.iter().all(|off| off.reason.len() <= LONGEST));
    }
}
