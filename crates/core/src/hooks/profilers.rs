//! Results of profilers on this node, by stack (in the code and in files: `software`).
//!
//! A profiler that has done harm to a user's job stays off in that user's jobs, with that stack, until an
//! administrator forgets it. Once jobs of two of the node's own users, or of its root, have reported harm, it stays
//! off in everybody's. A user's first use of a stack is left to one job. Once a process of a user's has had
//! `ENOUGH_SAMPLES` without a loss, the stack is good for that user. The results are on disk, with what else was
//! learned. Reports of one user change nothing for others, because anybody with a GPU can report anything; nor do
//! reports of a single pod, because a pod can have processes of any user id ([`Tenant`]). An administrator's word
//! counts for all: he brings results from other nodes (`litctl stacks import`).

use litd_api::{EventKind, GoodStack, OffStack, Problem, Stacks};
use litd_proto::{Hello, Notice, NoticeKind, Profiling, ToHook, Welcome};
use serde::{Deserialize, Serialize};

use crate::authority::admin::problem;
use crate::config::UseOfProfilers;
use crate::core::Core;
use crate::event::SessionId;
use crate::hooks::owners::Owners;
use crate::hooks::party::{self, Party, Told};
use crate::hooks::tenant::Tenant;
use crate::record::Note;
use crate::store::Store;

/// How many results are kept. Beyond that the user, or the pod, that has most loses its oldest.
const KEPT: usize = 64;

/// How many are kept that one user, or one pod, alone has told; its oldest are dropped, and nobody else's.
const KEPT_OF_A_PARTY: usize = 8;

/// Once jobs of so many users have reported harm, the profiler is off for everybody.
const ENOUGH: usize = 2;

/// After so many samples in a row without a loss a profiler is good, as hooks count them.
const ENOUGH_SAMPLES: u32 = 20;

/// How many of those who reported are named.
const NAMED: usize = 8;

/// The words that users are told in place of others'.
const HARM_TO_OWN: &str = "a job of this user has reported harm of this profiler on this node";
const HARM_TO_OTHERS: &str = "jobs of others have reported harm of this profiler on this node";
const HARM_ELSEWHERE: &str = "jobs on another node have reported harm of this profiler";

/// The longest name of a stack, and the longest reason, in letters.
const LONGEST: usize = 300;

/// A profiler that is not used on this node any more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfilerOff {
    /// The stack: versions of torch, of CUDA or ROCm, and of the profiler's library.
    pub software: String,
    /// The reason, in the words of whoever reported it last, or of root. Nobody else's hook is told them.
    pub reason: String,
    /// Whose words they are; `None` for an administrator's, and in a file of litd 0.1 or older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_by: Option<Tenant>,
    /// When that was, in seconds since 1970.
    pub unix_seconds: f64,
    /// The users whose jobs have reported harm, the latest last. In a file of litd 0.1 or older there are neither users
    /// nor pods; then it counts for all.
    #[serde(default)]
    pub uids: Vec<u32>,
    /// The users in pods, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<Tenant>,
}

impl ProfilerOff {
    /// Whether it is off for every user's jobs, not only for those of the users who told.
    #[must_use]
    pub fn is_for_all(&self) -> bool {
        // Higher numbers may all belong to one user.
        let somebody = self.uids.iter().filter(|&&uid| Owners::is_somebody(uid));
        self.is_by_nobody() || self.uids.contains(&0) || somebody.count() >= ENOUGH
    }

    /// Whose words the reason is, where they are no administrator's and not root's: anybody can have his hook say
    /// anything.
    fn in_words_of(&self) -> Option<String> {
        if self.is_by_nobody() || self.told_by == Some(Tenant::from(0)) || self.reason.is_empty() {
            return None;
        }
        let known = self.told_by.as_ref().map(ToString::to_string);
        Some(known.unwrap_or_else(|| self.whose()))
    }

    /// The reason, and whose words it is, as an administrator is told it.
    #[must_use]
    pub fn words(&self) -> (Option<String>, String) {
        let reason = match self.reason.is_empty() {
            true => HARM_TO_OTHERS.to_owned(),
            false => self.reason.clone(),
        };
        (self.in_words_of(), reason)
    }

    /// The reason, as a hook of this user's is told it, which logs it in his job's log: in his own words or in an
    /// administrator's, and else in litd's.
    fn reason_for(&self, whose: &Tenant) -> String {
        let is_shown = self.told_by.as_ref() == Some(whose) || self.in_words_of().is_none();
        match self.is_told_by(whose) {
            _ if is_shown && !self.reason.is_empty() => self.reason.clone(),
            true => HARM_TO_OWN.to_owned(),
            false => HARM_TO_OTHERS.to_owned(),
        }
    }

    /// Whether it is off by an administrator's word alone.
    fn is_by_nobody(&self) -> bool {
        self.uids.is_empty() && self.pods.is_empty()
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

    /// Adds a report, for as many users as [`KEPT`] and as many users in pods. Returns whether it is new.
    fn tell(&mut self, whose: &Tenant, reason: &str) -> bool {
        let is_new = match whose.user() {
            Some(uid) => add_among(&mut self.uids, uid),
            None => add_among(&mut self.pods, whose.clone()),
        };
        if is_new && self.told_by != Some(Tenant::from(0)) {
            self.reason = shortened(reason);
            self.told_by = Some(whose.clone());
        }
        is_new
    }
}

/// A profiler that has passed its first use, and then has lost nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfilerGood {
    /// The stack, as in [`ProfilerOff`].
    pub software: String,
    /// When that was told last, in seconds since 1970.
    pub unix_seconds: f64,
    /// The users and pods whose jobs have found it good, the latest last.
    #[serde(default)]
    pub tenants: Vec<Tenant>,
    /// An administrator says so: it is good for all.
    #[serde(default)]
    pub imported: bool,
}

impl ProfilerGood {
    fn is_for(&self, whose: &Tenant) -> bool {
        self.imported || self.tenants.contains(whose)
    }
}

impl Told for ProfilerOff {
    fn parties(&self) -> Vec<Party> {
        // Without users it is an administrator's word; root's counts as his.
        if self.uids.contains(&0) {
            return Vec::new();
        }
        let users = self.uids.iter().copied().map(Tenant::from);
        let all = users.chain(self.pods.iter().cloned());
        party::distinct(all.map(|it| it.party()))
    }

    fn forget(&mut self, party: &Party) -> bool {
        self.uids.retain(|&uid| Tenant::from(uid).party() != *party);
        self.pods.retain(|pod| pod.party() != *party);
        if self.told_by.as_ref().is_some_and(|it| it.party() == *party) {
            (self.told_by, self.reason) = (None, String::new());
        }
        self.is_by_nobody()
    }
}

impl Told for ProfilerGood {
    fn parties(&self) -> Vec<Party> {
        match self.imported {
            true => Vec::new(),
            false => party::distinct(self.tenants.iter().map(Tenant::party)),
        }
    }

    fn forget(&mut self, party: &Party) -> bool {
        self.tenants.retain(|it| it.party() != *party);
        !self.imported && self.tenants.is_empty()
    }
}

/// A user's id among those who have told something.
impl Told for u32 {
    fn parties(&self) -> Vec<Party> {
        // Root's word counts as an administrator's.
        match self {
            0 => Vec::new(),
            &uid => vec![Tenant::from(uid).party()],
        }
    }

    fn forget(&mut self, _party: &Party) -> bool {
        true
    }
}

/// Adds somebody to those who have told something. Returns whether he is new. Of more than [`KEPT`] the party that has
/// most loses its oldest, so a pod with many user ids pushes nobody else out, and whoever has just told is kept.
fn add_among<T: Told + PartialEq>(those: &mut Vec<T>, new: T) -> bool {
    let is_new = !those.contains(&new);
    if is_new {
        those.push(new);
        party::make_room(those, KEPT);
    }
    is_new
}

/// Those whom a file names, each once, and no more than are kept.
fn read<T: Told + PartialEq>(named: &mut Vec<T>) {
    for it in std::mem::take(named) {
        add_among(named, it);
    }
}

/// A party that makes stacks up loses its own oldest result, and nobody else's.
fn forget_oldest_of<T: Told>(entries: &mut Vec<T>, whose: &Tenant) {
    let alone = vec![whose.party()];
    let is_alone = |it: &T| it.parties() == alone;
    if entries.iter().filter(|it| is_alone(it)).count() >= KEPT_OF_A_PARTY
        && let Some(oldest) = entries.iter().position(is_alone)
    {
        entries.remove(oldest);
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

/// What is known of a user's first use of a stack, until the next start.
#[derive(Debug, Clone, PartialEq)]
struct FirstUse {
    whose: Tenant,
    software: String,
    known: Known,
}

impl FirstUse {
    fn is_of(&self, whose: &Tenant, software: &str) -> bool {
        self.whose == *whose && self.software == software
    }

    fn is_tried_by(&self, job: &str) -> bool {
        matches!(&self.known, Known::Tried { job: first } if first == job)
    }
}

impl Told for FirstUse {
    fn parties(&self) -> Vec<Party> {
        self.whose.parties()
    }

    fn forget(&mut self, party: &Party) -> bool {
        self.whose.forget(party)
    }
}

/// Results of all profilers. In each list an entry's place is its age: that of the latest who was added to it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profilers {
    /// Profilers that are off, the latest last.
    off: Vec<ProfilerOff>,
    /// Profilers that are good, the latest last.
    good: Vec<ProfilerGood>,
    /// First uses, the latest last.
    first_uses: Vec<FirstUse>,
}

/// The stack that a hook would profile with; `None` if it would not.
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

fn is_software(text: &str) -> bool {
    !text.is_empty() && text.chars().count() <= LONGEST && !text.contains(char::is_control)
}

fn shortened(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

impl Profilers {
    /// Profilers that are off and that are good, as read from disk.
    pub(crate) fn with(mut off: Vec<ProfilerOff>, mut good: Vec<ProfilerGood>) -> Self {
        for it in &mut off {
            read(&mut it.uids);
            read(&mut it.pods);
        }
        for it in &mut good {
            read(&mut it.tenants);
        }
        party::make_room(&mut off, KEPT);
        party::make_room(&mut good, KEPT);
        Self {
            off,
            good,
            first_uses: Vec::new(),
        }
    }

    /// Profilers that are good.
    #[must_use]
    pub fn good(&self) -> &[ProfilerGood] {
        &self.good
    }

    /// Profilers that are off.
    #[must_use]
    pub fn off(&self) -> &[ProfilerOff] {
        &self.off
    }

    /// Why this stack is off for this user, if it is.
    fn off_for(&self, whose: &Tenant, software: &str) -> Option<&ProfilerOff> {
        let off = |off: &&ProfilerOff| off.software == software && off.is_for(whose);
        self.off.iter().find(off)
    }

    /// The answer to a rank of this user's job.
    fn tell(&mut self, whose: &Tenant, software: &str, job: &str) -> (Profiling, String) {
        if let Some(off) = self.off_for(whose, software) {
            return (Profiling::Off, off.reason_for(whose));
        }
        let is_good = |good: &ProfilerGood| good.software == software && good.is_for(whose);
        if self.good.iter().any(is_good) {
            return (Profiling::Safe, String::new());
        }
        let mut first_uses = self.first_uses.iter();
        match first_uses.find(|it| it.is_of(whose, software)) {
            None => {
                self.is_tried(whose, software, job);
                (Profiling::Try, String::new())
            }
            Some(it) => match &it.known {
                Known::Safe => (Profiling::Safe, String::new()),
                Known::Tried { job: other } if other == job => (Profiling::Try, String::new()),
                Known::Tried { .. } => {
                    let reason = "another job of this user tries the profiler on this node first";
                    (Profiling::Wait, reason.to_owned())
                }
            },
        }
    }

    /// This job is the first of this user's to use the stack. A user, or a pod, that makes versions up loses its own
    /// results: its next job tries again.
    fn is_tried(&mut self, whose: &Tenant, software: &str, job: &str) {
        forget_oldest_of(&mut self.first_uses, whose);
        self.first_uses.push(FirstUse {
            whose: whose.clone(),
            software: software.to_owned(),
            known: Known::Tried {
                job: job.to_owned(),
            },
        });
        party::make_room(&mut self.first_uses, KEPT);
    }

    /// The profiler did harm to a job of this user. Returns for whom it is off now, if that is new.
    fn turn_off(
        &mut self,
        whose: &Tenant,
        software: &str,
        reason: &str,
        unix_seconds: f64,
    ) -> Option<&ProfilerOff> {
        self.first_uses.retain(|it| !it.is_of(whose, software));
        self.no_longer_good(whose, software);
        let known = self.off.iter().position(|off| off.software == software);
        let off = match known {
            Some(at) => {
                // Also where others have turned it off for everybody: their word may be dropped before his.
                let off = self.off.get_mut(at)?;
                if off.is_by_nobody() || !off.tell(whose, reason) {
                    return None;
                }
                self.off.remove(at)
            }
            None => {
                forget_oldest_of(&mut self.off, whose);
                let mut off = ProfilerOff {
                    software: software.to_owned(),
                    reason: String::new(),
                    told_by: None,
                    unix_seconds,
                    uids: Vec::new(),
                    pods: Vec::new(),
                };
                off.tell(whose, reason);
                off
            }
        };
        self.off.push(off);
        party::make_room(&mut self.off, KEPT);
        self.off.last()
    }

    fn no_longer_good(&mut self, whose: &Tenant, software: &str) {
        for good in &mut self.good {
            if good.software == software {
                good.tenants.retain(|it| it != whose);
            }
        }
        self.good
            .retain(|good| good.imported || !good.tenants.is_empty());
    }

    /// A process of this user has lost nothing for long enough. Returns whether that is new.
    fn is_good(&mut self, whose: &Tenant, software: &str, unix_seconds: f64) -> bool {
        if self.off_for(whose, software).is_some() {
            return false;
        }
        let known = self.good.iter().position(|it| it.software == software);
        let good = match known {
            Some(at) => {
                let Some(good) = self.good.get_mut(at) else {
                    return false;
                };
                good.unix_seconds = unix_seconds;
                if !add_among(&mut good.tenants, whose.clone()) {
                    return false;
                }
                self.good.remove(at)
            }
            None => {
                forget_oldest_of(&mut self.good, whose);
                ProfilerGood {
                    software: software.to_owned(),
                    unix_seconds,
                    tenants: vec![whose.clone()],
                    imported: false,
                }
            }
        };
        self.keep_good(good);
        true
    }

    fn keep_good(&mut self, good: ProfilerGood) {
        self.good.push(good);
        party::make_room(&mut self.good, KEPT);
    }

    /// Takes over what an administrator brings. What is off there for everybody is off here, too; what is good
    /// there is good here unless it is off here. Returns how many are good and off by that.
    fn import(&mut self, stacks: &Stacks, unix_seconds: f64) -> (usize, usize) {
        let mut off = 0;
        for it in stacks.off.iter().filter(|it| it.for_all) {
            self.good.retain(|good| good.software != it.software);
            self.off.retain(|known| known.software != it.software);
            let reason = match it.told_by {
                Some(_) => HARM_ELSEWHERE,
                None => it.reason.as_str(),
            };
            self.off.push(ProfilerOff {
                software: it.software.clone(),
                reason: shortened(reason),
                told_by: None,
                unix_seconds,
                uids: Vec::new(),
                pods: Vec::new(),
            });
            off += 1;
        }
        party::make_room(&mut self.off, KEPT);
        let mut good = 0;
        for it in &stacks.good {
            let known = |known: &ProfilerOff| known.software == it.software && known.is_for_all();
            if self.off.iter().any(known) {
                continue;
            }
            let same = self
                .good
                .iter()
                .position(|known| known.software == it.software);
            let tenants = same.map(|at| self.good.remove(at).tenants);
            self.keep_good(ProfilerGood {
                software: it.software.clone(),
                unix_seconds,
                tenants: tenants.unwrap_or_default(),
                imported: true,
            });
            good += 1;
        }
        (good, off)
    }

    /// The results, without users.
    fn stacks(&self) -> Stacks {
        let good = self.good.iter().map(|it| GoodStack {
            software: it.software.clone(),
            users: it.tenants.len(),
            for_all: it.imported,
        });
        let off = self.off.iter().map(|it| {
            let (told_by, reason) = it.words();
            OffStack {
                software: it.software.clone(),
                reason,
                told_by,
                for_all: it.is_for_all(),
            }
        });
        Stacks {
            good: good.collect(),
            off: off.collect(),
        }
    }

    /// The first job to use it ran as before. Other jobs can't say so.
    fn passed(&mut self, whose: &Tenant, software: &str, job: &str) {
        let mut first_uses = self.first_uses.iter_mut();
        if let Some(it) = first_uses.find(|it| it.is_of(whose, software))
            && it.is_tried_by(job)
        {
            it.known = Known::Safe;
        }
    }

    /// A job has ended: a profiler without a result is tried by the next job.
    pub(crate) fn ended(&mut self, job: &str) {
        self.first_uses.retain(|it| !it.is_tried_by(job));
    }
}

impl<S: Store> Core<S> {
    /// Adds the results of the hook's profiler to a welcome.
    pub(crate) fn tell_of_profiler(&mut self, id: SessionId, hello: &Hello, welcome: &mut Welcome) {
        let Some(software) = software(hello) else {
            return;
        };
        let Some(session) = self.hooks.get(id) else {
            return;
        };
        let whose = self.hooks.tenant(session.peer().uid, session.home());
        (welcome.profiling, welcome.profiling_reason) = self.word_on(&whose, &software, &hello.job);
        if let Some(session) = self.hooks.get_mut(id) {
            session.would_profile_with(software);
        }
    }

    /// Whether this user's job may use that profiler, and why not. A hook that is told to wait times modules, and
    /// keeps nothing of it: an administrator's "off" is no result.
    fn word_on(&mut self, whose: &Tenant, software: &str, job: &str) -> (Profiling, String) {
        match self.config.sampling.profiler {
            UseOfProfilers::Auto => {
                let profilers = &mut self.jobs.learned_mut().profilers;
                profilers.tell(whose, software, job)
            }
            UseOfProfilers::Off => {
                let why = "this node's litd.toml has sampling.profiler = \"off\"";
                (Profiling::Wait, why.to_owned())
            }
        }
    }

    /// The administrator has turned profilers on or off: hooks that would use one are told.
    pub(crate) fn tell_of_profilers_anew(&mut self) {
        let sessions = self.hooks.profiling().filter_map(|(id, session)| {
            let (job, _) = session.attached()?;
            let (software, protocol) = session.profiler()?;
            let whose = self.hooks.tenant(session.peer().uid, session.home());
            Some((id, whose, software.to_owned(), job.to_owned(), protocol))
        });
        for (id, whose, software, job, protocol) in sessions.collect::<Vec<_>>() {
            let Some((whole, directive)) = self
                .jobs
                .get(&job)
                .map(|job| (job.whole().to_owned(), job.directive))
            else {
                continue;
            };
            let (profiling, profiling_reason) = self.word_on(&whose, &software, &whole);
            let welcome = Welcome {
                protocol,
                daemon: env!("CARGO_PKG_VERSION").to_owned(),
                directive,
                profiling,
                profiling_reason,
            };
            self.hooks
                .send(id, &ToHook::Welcome(welcome), &mut self.out);
        }
    }

    /// The results of profilers on this node.
    #[must_use]
    pub fn stacks(&self) -> Stacks {
        self.jobs.learned().profilers.stacks()
    }

    /// Takes over results of another node.
    pub(crate) fn import_stacks(&mut self, stacks: &Stacks) -> Result<String, Problem> {
        let good = stacks.good.iter().map(|it| &it.software);
        let off = stacks.off.iter().map(|it| &it.software);
        if let Some(odd) = good.chain(off).find(|it| !is_software(it)) {
            return Err(problem(format!(
                "{odd:.40?} can't be the software of a stack: that has 1 to {LONGEST} characters, none of them a \
                 control character"
            )));
        }
        let seconds = self.out.unix_seconds();
        let (good, off) = self.jobs.learned_mut().profilers.import(stacks, seconds);
        self.jobs
            .save_learned(self.writer.store_mut(), &mut self.out);
        let left = stacks.good.len() + stacks.off.len() - good - off;
        let left = match left {
            0 => String::new(),
            left => {
                format!("; {left} left out, which are off here, or were off for single users only")
            }
        };
        Ok(format!(
            "profilers for all users: {good} good, {off} off{left}"
        ))
    }

    /// A hook reports its profiler's result.
    pub(crate) fn profiler_told(&mut self, id: SessionId, job: &str, notice: &Notice) {
        let Some(session) = self.hooks.get(id) else {
            return;
        };
        let Some((software, _)) = session.profiler() else {
            return;
        };
        let software = software.to_owned();
        let whose = self.hooks.tenant(session.peer().uid, session.home());
        let profilers = &mut self.jobs.learned_mut().profilers;
        match notice.kind {
            NoticeKind::Unspecified => {}
            NoticeKind::ProfilingSafe => {
                profilers.passed(&whose, &software, job);
                let seconds = self.out.unix_seconds();
                if notice.samples >= ENOUGH_SAMPLES && profilers.is_good(&whose, &software, seconds)
                {
                    self.jobs
                        .save_learned(self.writer.store_mut(), &mut self.out);
                }
            }
            NoticeKind::ProfilingOff => {
                let seconds = self.out.unix_seconds();
                let Some(off) = profilers.turn_off(&whose, &software, &notice.text, seconds) else {
                    return;
                };
                let whose = match off.is_for_all() {
                    true => "in everybody's jobs".to_owned(),
                    false => format!("in jobs of {whose}"),
                };
                let text = format!("the profiler is off {whose} with {software}");
                self.note(Note::warning(EventKind::Job, text).job(job));
                self.jobs
                    .save_learned(self.writer.store_mut(), &mut self.out);
            }
        }
    }
}

#[cfg(test)]
mod ages;

#[cfg(test)]
mod tests;
