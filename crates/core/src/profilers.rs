//! Results of profilers on this node, by software.
//!
//! A profiler that has done harm to a user's job stays off in that user's jobs, with that software, until an
//! administrator forgets it. Once jobs of two of the node's own users, or of its root, have reported harm, it
//! stays off in everybody's. The results are on disk, with what else was learned. A user's first use of a software
//! is left to one job. Reports of one user change nothing for others, because anybody with a GPU can report
//! anything; nor do reports of one pod, which can have any users ([`Tenant`]).

use std::collections::{BTreeMap, BTreeSet};

use litd_api::EventKind;
use litd_proto::{Hello, Notice, NoticeKind, Profiling, Welcome};
use serde::{Deserialize, Serialize};

use crate::core::Core;
use crate::event::SessionId;
use crate::owners::Owners;
use crate::record::Note;
use crate::store::Store;
use crate::tenant::Tenant;

/// How many results are kept; the oldest are dropped.
const KEPT: usize = 64;

/// How many of one user's alone are kept; his oldest are dropped, and nobody else's.
const KEPT_OF_A_USER: usize = 8;

/// Once jobs of so many users have reported harm, the profiler is off for everybody.
const ENOUGH: usize = 2;

/// How many of those who reported are named.
const NAMED: usize = 8;

/// The longest name of a software, and the longest reason, in letters.
const LONGEST: usize = 300;

/// A profiler that is not used on this node any more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfilerOff {
    /// The software: versions of torch, of CUDA or ROCm, and of the profiler's library.
    pub software: String,
    /// The reason, in words, as a hook told it.
    pub reason: String,
    /// When that was, in seconds since 1970.
    pub unix_seconds: f64,
    /// The users whose jobs have reported harm. In a file of litd 0.1 or older there are neither users nor pods;
    /// then it counts for all.
    #[serde(default)]
    pub uids: BTreeSet<u32>,
    /// The users in pods.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub pods: BTreeSet<Tenant>,
}

impl ProfilerOff {
    /// Whether it is off for every user's jobs, not only for those of the users who told.
    #[must_use]
    pub fn is_for_all(&self) -> bool {
        // Higher numbers may all belong to one user.
        let somebody = self.uids.iter().filter(|&&uid| Owners::is_somebody(uid));
        let by_nobody = self.uids.is_empty() && self.pods.is_empty();
        by_nobody || self.uids.contains(&0) || somebody.count() >= ENOUGH
    }

    /// The users and pods that have reported, in words.
    #[must_use]
    pub fn whose(&self) -> String {
        let users = self.uids.iter().copied().map(Tenant::from);
        let all = users.chain(self.pods.iter().cloned());
        let all: Vec<String> = all.take(NAMED).map(|it| it.to_string()).collect();
        let more = (self.uids.len() + self.pods.len()).saturating_sub(NAMED);
        let more = match more {
            0 => String::new(),
            more => format!(" and {more} others"),
        };
        all.join(", ") + &more
    }

    fn is_told_by(&self, whose: &Tenant) -> bool {
        match whose.user() {
            Some(uid) => self.uids.contains(&uid),
            None => self.pods.contains(whose),
        }
    }

    fn is_for(&self, whose: &Tenant) -> bool {
        self.is_for_all() || self.is_told_by(whose)
    }

    fn is_told_by_only(&self, whose: &Tenant) -> bool {
        self.uids.len() + self.pods.len() == 1 && self.is_told_by(whose)
    }

    /// Adds a report. Returns whether it is new. Of pods [`KEPT`] are kept, and most of them have ended by then.
    fn tell(&mut self, whose: &Tenant) -> bool {
        match whose.user() {
            Some(uid) => {
                // Two of the node's own users are enough for all; containers may have any number of user ids.
                self.uids.len() < KEPT && self.uids.insert(uid)
            }
            None => {
                if self.pods.len() >= KEPT && !self.pods.contains(whose) {
                    self.pods.pop_first();
                }
                self.pods.insert(whose.clone())
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Known {
    /// The first job to use it, which tries it.
    Tried {
        job: String,
    },
    Safe,
}

/// Results of all profilers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profilers {
    /// Profilers that are off, the latest last.
    off: Vec<ProfilerOff>,
    /// Results by user and software, until the next start.
    known: BTreeMap<(Tenant, String), Known>,
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
    /// Profilers that are off, as read from disk.
    pub(crate) fn with(mut off: Vec<ProfilerOff>) -> Self {
        off.drain(..off.len().saturating_sub(KEPT));
        Self {
            off,
            known: BTreeMap::new(),
        }
    }

    /// Profilers that are off.
    #[must_use]
    pub fn off(&self) -> &[ProfilerOff] {
        &self.off
    }

    /// The answer to a rank of this user's job.
    fn tell(&mut self, whose: &Tenant, software: &str, job: &str) -> (Profiling, String) {
        let off = |off: &&ProfilerOff| off.software == software && off.is_for(whose);
        if let Some(off) = self.off.iter().find(off) {
            return (Profiling::Off, off.reason.clone());
        }
        let key = (whose.clone(), software.to_owned());
        if !self.known.contains_key(&key) {
            self.make_room(whose);
        }
        let first = || Known::Tried {
            job: job.to_owned(),
        };
        match self.known.entry(key).or_insert_with(first) {
            Known::Safe => (Profiling::Safe, String::new()),
            Known::Tried { job: other } if other == job => (Profiling::Try, String::new()),
            Known::Tried { .. } => {
                let reason = "another job of this user tries the profiler on this node first";
                (Profiling::Wait, reason.to_owned())
            }
        }
    }

    /// A user who makes versions up loses his own results: his next job tries again.
    fn make_room(&mut self, whose: &Tenant) {
        let own = |(other, _): &&(Tenant, String)| other == whose;
        if self.known.keys().filter(own).count() >= KEPT_OF_A_USER {
            self.known.retain(|(other, _), _| other != whose);
        }
        if self.known.len() >= KEPT {
            self.known.clear();
        }
    }

    /// The profiler did harm to a job of this user. Returns for whom it is off now, if that is new.
    fn turn_off(
        &mut self,
        whose: &Tenant,
        software: &str,
        reason: &str,
        unix_seconds: f64,
    ) -> Option<&ProfilerOff> {
        self.known.remove(&(whose.clone(), software.to_owned()));
        let known = self.off.iter().position(|off| off.software == software);
        let at = match known {
            Some(at) => {
                let off = self.off.get_mut(at)?;
                if off.is_for_all() || !off.tell(whose) {
                    return None;
                }
                at
            }
            None => {
                self.forget_oldest_of(whose);
                let mut off = ProfilerOff {
                    software: software.to_owned(),
                    reason: shortened(reason),
                    unix_seconds,
                    uids: BTreeSet::new(),
                    pods: BTreeSet::new(),
                };
                off.tell(whose);
                self.off.push(off);
                let extra = self.off.len().saturating_sub(KEPT);
                self.off.drain(..extra);
                self.off.len().checked_sub(1)?
            }
        };
        self.off.get(at)
    }

    fn forget_oldest_of(&mut self, whose: &Tenant) {
        let alone = |off: &ProfilerOff| off.is_told_by_only(whose);
        if self.off.iter().filter(|off| alone(off)).count() >= KEPT_OF_A_USER
            && let Some(oldest) = self.off.iter().position(alone)
        {
            self.off.remove(oldest);
        }
    }

    /// The first job to use it ran as before. Other jobs can't say so.
    fn passed(&mut self, whose: &Tenant, software: &str, job: &str) {
        if let Some(known) = self.known.get_mut(&(whose.clone(), software.to_owned()))
            && matches!(known, Known::Tried { job: first } if first == job)
        {
            *known = Known::Safe;
        }
    }

    /// A job has ended: a profiler without a result is tried by the next job.
    pub(crate) fn ended(&mut self, job: &str) {
        self.known
            .retain(|_, known| !matches!(known, Known::Tried { job: first } if first == job));
    }
}

impl<S: Store> Core<S> {
    /// Adds the results of the hook's profiler to a welcome.
    pub(crate) fn tell_of_profiler(&mut self, id: SessionId, hello: &Hello, welcome: &mut Welcome) {
        let Some(software) = software(hello) else {
            return;
        };
        let Some(session) = self.sessions.get(&id) else {
            return;
        };
        let whose = self.tenant(session.peer.uid, session.home.as_ref());
        let profilers = &mut self.learned.profilers;
        (welcome.profiling, welcome.profiling_reason) =
            profilers.tell(&whose, &software, &hello.job);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.profiler = Some(software);
        }
    }

    /// A hook reports its profiler's result.
    pub(crate) fn profiler_told(&mut self, id: SessionId, job: &str, notice: &Notice) {
        let Some(session) = self.sessions.get(&id) else {
            return;
        };
        let Some(software) = session.profiler.clone() else {
            return;
        };
        let whose = self.tenant(session.peer.uid, session.home.as_ref());
        let profilers = &mut self.learned.profilers;
        match notice.kind {
            NoticeKind::Unspecified => {}
            NoticeKind::ProfilingSafe => profilers.passed(&whose, &software, job),
            NoticeKind::ProfilingOff => {
                let seconds = self.out.unix_seconds();
                let Some(off) = profilers.turn_off(&whose, &software, &notice.text, seconds) else {
                    return;
                };
                let whose = match off.is_for_all() {
                    true => "in anybody's jobs".to_owned(),
                    false => format!("in jobs of {whose}"),
                };
                let text =
                    format!("the profiler is not used here any more {whose} with {software}");
                self.note(Note::warning(EventKind::Job, text).job(job));
                self.save_learned();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Home;

    const STACK: &str = "torch 2.9.1, cuda 12.8, cupti 12.8.90";
    const ALICE: u32 = 1000;
    const BOB: u32 = 1001;

    fn pod(number: u32) -> Tenant {
        let path = format!("/kubepods/pod{number:08x}-aaaa-4bbb-8ccc-0123456789ab");
        Tenant::of(0, Home::of(&format!("0::{path}\n")).as_ref())
    }

    #[test]
    fn one_job_of_a_user_tries_the_others_wait_and_then_all_may() {
        let mut profilers = Profilers::default();
        assert_eq!(profilers.tell(&ALICE.into(), STACK, "a").0, Profiling::Try);
        assert_eq!(profilers.tell(&ALICE.into(), STACK, "b").0, Profiling::Wait);
        assert_eq!(profilers.tell(&ALICE.into(), STACK, "a").0, Profiling::Try);
        assert_eq!(
            profilers.tell(&ALICE.into(), "another", "b").0,
            Profiling::Try
        );
        // Only the job that tries can say how it went.
        profilers.passed(&ALICE.into(), STACK, "b");
        profilers.passed(&BOB.into(), STACK, "a");
        assert_eq!(profilers.tell(&ALICE.into(), STACK, "b").0, Profiling::Wait);
        profilers.passed(&ALICE.into(), STACK, "a");
        assert_eq!(profilers.tell(&ALICE.into(), STACK, "b").0, Profiling::Safe);
    }

    #[test]
    fn a_job_that_ends_early_leaves_it_to_the_next() {
        let mut profilers = Profilers::default();
        profilers.tell(&ALICE.into(), STACK, "a");
        profilers.ended("a");
        assert_eq!(profilers.tell(&ALICE.into(), STACK, "b").0, Profiling::Try);
    }

    #[test]
    fn what_did_harm_is_off_and_stays_so_on_disk() {
        let mut profilers = Profilers::default();
        profilers.tell(&ALICE.into(), STACK, "a");
        assert!(
            profilers
                .turn_off(&ALICE.into(), STACK, "12 % slower", 1.5e9)
                .is_some()
        );
        assert!(
            profilers
                .turn_off(&ALICE.into(), STACK, "again", 1.6e9)
                .is_none()
        );
        profilers.passed(&ALICE.into(), STACK, "a");
        profilers.ended("a");
        let mut next = Profilers::with(profilers.off().to_vec());
        let told = (Profiling::Off, "12 % slower".to_owned());
        assert_eq!(next.tell(&ALICE.into(), STACK, "b"), told);
        assert_eq!(next.off().len(), 1);
    }

    #[test]
    fn one_user_turns_it_off_for_himself_two_or_root_for_all() {
        let mut profilers = Profilers::default();
        profilers.turn_off(&ALICE.into(), STACK, "made up", 0.0);
        assert_eq!(profilers.tell(&ALICE.into(), STACK, "a").0, Profiling::Off);
        assert_eq!(profilers.tell(&BOB.into(), STACK, "b").0, Profiling::Try);
        assert!(
            profilers
                .turn_off(&BOB.into(), STACK, "it hangs", 0.0)
                .is_some()
        );
        assert_eq!(profilers.tell(&1002.into(), STACK, "c").0, Profiling::Off);
        profilers.turn_off(&0.into(), "another", "root's", 0.0);
        assert_eq!(
            profilers.tell(&BOB.into(), "another", "b").0,
            Profiling::Off
        );
    }

    #[test]
    fn a_pod_turns_it_off_for_itself_whoever_it_says_it_is_and_however_many_pods_there_are() {
        let mut profilers = Profilers::default();
        for number in 0..100 {
            profilers.turn_off(&pod(number), STACK, "made up", 0.0);
        }
        assert_eq!(profilers.tell(&pod(99), STACK, "a").0, Profiling::Off);
        assert_eq!(profilers.tell(&pod(200), STACK, "b").0, Profiling::Try);
        assert_eq!(profilers.tell(&BOB.into(), STACK, "b").0, Profiling::Try);
        assert_eq!(profilers.tell(&0.into(), STACK, "b").0, Profiling::Try);
        // The file says the same.
        let bytes = serde_json::to_vec(profilers.off()).unwrap();
        let mut next = Profilers::with(serde_json::from_slice(&bytes).unwrap());
        assert_eq!(next.tell(&pod(99), STACK, "a").0, Profiling::Off);
        assert_eq!(next.tell(&BOB.into(), STACK, "b").0, Profiling::Try);
        let whose = next.off()[0].whose();
        assert!(whose.starts_with("user 0 in pod-00000024-"), "{whose}");
        assert!(whose.ends_with(" and 56 others"), "{whose}");
    }

    /// For user ids that the node's files do not name (`getsubids`).
    #[test]
    fn numbers_that_may_be_one_users_are_not_two_users() {
        let mut profilers = Profilers::default();
        for uid in 100_000..100_010_u32 {
            profilers.turn_off(&uid.into(), STACK, "made up", 0.0);
        }
        assert_eq!(
            profilers.tell(&100_001.into(), STACK, "a").0,
            Profiling::Off
        );
        assert_eq!(profilers.tell(&BOB.into(), STACK, "b").0, Profiling::Try);
    }

    #[test]
    fn what_an_older_litd_wrote_counts_for_all() {
        let text = format!(r#"{{"software":"{STACK}","reason":"hangs","unix_seconds":1.5}}"#);
        let off: ProfilerOff = serde_json::from_str(&text).unwrap();
        let mut profilers = Profilers::with(vec![off]);
        assert_eq!(profilers.tell(&BOB.into(), STACK, "b").0, Profiling::Off);
    }

    #[test]
    fn made_up_versions_take_no_more_than_their_room_and_nobody_elses() {
        let mut profilers = Profilers::default();
        profilers.turn_off(&BOB.into(), STACK, "it hangs", 0.0);
        for number in 0..1000 {
            let software = format!("torch {number}");
            profilers.tell(&ALICE.into(), &software, "a");
            profilers.turn_off(&ALICE.into(), &software, &"x".repeat(5000), 0.0);
            profilers.tell(&ALICE.into(), &format!("rocm {number}"), "a");
        }
        assert!(profilers.off.len() <= KEPT_OF_A_USER + 1 && profilers.known.len() <= KEPT);
        assert!(profilers.off.iter().all(|off| off.reason.len() <= LONGEST));
        assert_eq!(profilers.tell(&BOB.into(), STACK, "b").0, Profiling::Off);
        for uid in 1..1000 {
            profilers.tell(&uid.into(), "made up", "a");
            profilers.turn_off(&uid.into(), &format!("torch {uid}"), "", 0.0);
        }
        assert!(profilers.off.len() <= KEPT && profilers.known.len() <= KEPT);
    }
}
