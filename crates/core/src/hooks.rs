//! Hooks connect, introduce themselves, send frames, and go. No frame is believed before it has been checked, and
//! no hook can use more than its share of litd's time and memory.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use litd_api::EventKind;
use litd_proto::{
    FromHook, Hello, Kernels, Notice, NoticeKind, Refusal, RefusalCode, Tick, ToHook, Welcome,
};
use litd_units::Nanos;

use crate::cgroup::{Home, job_name, of_user};
use crate::core::{Core, seconds};
use crate::event::{Doubt, Effect, Peer, SessionId};
use crate::identity::{divided, shared};
use crate::job::{Job, LeftOut, Rank};
use crate::owners::Owners;
use crate::rate::Bucket;
use crate::record::Note;
use crate::room::{Room, Table};
use crate::session::{Crowd, Session, Stage};
use crate::standing::Standing;
use crate::store::Store;

/// A hook that has not introduced itself after so long is disconnected.
const INTRODUCTION: Nanos = Nanos(10_000_000_000);

/// A hook says hello as soon as it has connected; litd may take so long to hear it.
const BREATH: Nanos = Nanos(200_000_000);

/// How many hooks of a crowd may connect at once.
const ARRIVALS_AT_ONCE: f64 = 64.0;

/// Crowds whose arrivals are counted.
const KNOWN_CROWDS: usize = 1024;

/// How many notices of one connection are logged.
const NOTICES: u32 = 8;

/// A refused hook may try again after so long, where the reason may pass.
const RETRY: Nanos = Nanos(5_000_000_000);

/// How many frames above the rate are dropped before the connection is closed.
const PATIENCE: u32 = 10_000;

/// How many dropped frames are forgiven for each frame within the rate: a hook is closed only if it sends more
/// than ten times its rate.
const FORGIVEN: u32 = 9;

/// A refusal in the making.
pub(crate) struct No {
    code: RefusalCode,
    /// The label for the counter.
    label: &'static str,
    reason: String,
    may_pass: bool,
}

impl No {
    pub fn new(code: RefusalCode, label: &'static str, reason: impl Into<String>) -> Self {
        Self {
            code,
            label,
            reason: reason.into(),
            may_pass: false,
        }
    }

    pub fn for_now(self) -> Self {
        Self {
            may_pass: true,
            ..self
        }
    }
}

/// Forgets half of the buckets, those from which least was taken: peers that come too often stay known.
fn forget_fullest<K: Ord>(arrivals: &mut BTreeMap<K, Bucket>, now: Nanos) {
    let mut all: Vec<_> = std::mem::take(arrivals).into_iter().collect();
    all.sort_by(|(_, one), (_, other)| one.level(now).total_cmp(&other.level(now)));
    all.truncate(KNOWN_CROWDS / 2);
    arrivals.extend(all);
}

/// Why a released GPU admits no hook: asking for its holders would open it.
fn let_go_of(name: &str) -> No {
    let reason = format!("litd has released {name} until `litctl resume {name}`");
    No::new(RefusalCode::Busy, "let_go", reason).for_now()
}

/// The same for the job that a rank's group is, where the job's ranks do unequal work: each group has its own loop
/// and its own share of the budget, as jobs have.
fn group_of(whole: &Hello) -> Option<Hello> {
    let group = &whole.group;
    (!group.is_empty()).then(|| Hello {
        job: format!("{}/{group}", whole.job),
        ..whole.clone()
    })
}

impl<S: Store> Core<S> {
    /// From now on subordinate ids count as their owners; connected hooks stay in their crowds.
    pub fn set_owners(&mut self, owners: Owners) {
        self.owners = owners;
    }

    /// The crowd in which a process of this user, in this job of a scheduler's, is counted.
    #[must_use]
    pub fn crowd(&self, uid: u32, home: Option<&Home>) -> Crowd {
        Crowd::of(self.owners.owner(uid), home)
    }

    pub(crate) fn connected(&mut self, id: SessionId, peer: Peer, home: Option<Home>) {
        let limits = &self.config.limits;
        let crowd = self.crowd(peer.uid, home.as_ref());
        let session = Session::new(peer, home, crowd, limits.frames_per_second, self.now);
        let no = self.unwelcome(&session);
        self.sessions.insert(id, session);
        if let Some(no) = no {
            self.refuse(id, no);
        }
    }

    /// Why a new connection is closed at once. A crowd that connects too often takes nobody's place.
    fn unwelcome(&mut self, newcomer: &Session) -> Option<No> {
        let crowd = newcomer.crowd();
        if self.stopping.is_some() {
            return Some(No::new(RefusalCode::Busy, "busy", "litd is stopping").for_now());
        }
        if newcomer.peer.pid == 0 {
            let reason = "its process has no id here: it can hold no GPU";
            return Some(No::new(RefusalCode::NotHolder, "not_holder", reason));
        }
        if !self.may_arrive(crowd) {
            let reason = "this user's hooks connect too often";
            return Some(No::new(RefusalCode::Busy, "too_often", reason).for_now());
        }
        let crowded = self.strangers_of(crowd) >= self.config.limits.sessions_per_user;
        let full = self.sessions.len() >= self.config.limits.sessions;
        let has_room = !crowded && !full || self.make_room(crowd, crowded);
        let reason = "too many hooks are connected";
        (!has_room).then(|| No::new(RefusalCode::Busy, "busy", reason).for_now())
    }

    /// How many hooks of a crowd are not ranks. Ranks don't count, so that connections without a GPU can't keep
    /// out those that hold one.
    fn strangers_of(&self, crowd: &Crowd) -> usize {
        let sessions = self.sessions.values().filter(|it| it.is_stranger());
        sessions.filter(|it| it.crowd() == crowd).count()
    }

    /// Makes room for one more hook of this crowd, if possible: a hook that is not a rank gives up its place.
    /// Hooks that have been silent for a while go first, then those of the largest crowd, and of those the oldest.
    /// A hook whose process uses the GPU that it names, by the driver's last answer, stays. So nobody keeps others
    /// out by holding connections or naming GPUs that he does not use, under however many users. If the newcomer's
    /// own crowd is full, one of its silent hooks goes.
    fn make_room(&mut self, crowd: &Crowd, crowded: bool) -> bool {
        let is_silent = |session: &Session| matches!(session.stage, Stage::New);
        let is_idle = |session: &Session| is_silent(session) && self.now >= session.since + BREATH;
        let may_go = |session: &Session| match crowded {
            true => is_silent(session) && session.crowd() == crowd,
            false => match session.stage {
                Stage::New => true,
                Stage::Checking { device, .. } => !self.is_known_holder(session.peer, device),
                Stage::Attached { .. } | Stage::Refused => false,
            },
        };
        let waiting = || self.sessions.iter().filter(|(_, it)| may_go(it));
        let mut crowds = BTreeMap::from([(crowd, 1)]);
        for (_, stranger) in waiting() {
            *crowds.entry(stranger.crowd()).or_insert(0) += 1;
        }
        let goes = waiting().max_by_key(|&(id, it)| {
            (
                is_idle(it),
                crowds.get(it.crowd()),
                is_silent(it),
                Reverse((it.since, *id)),
            )
        });
        let Some(goes) = goes.map(|(id, _)| *id) else {
            return false;
        };
        let reason = "too many hooks are connected: a later one has taken this one's place";
        self.refuse(goes, No::new(RefusalCode::Busy, "busy", reason).for_now());
        true
    }

    /// The process that made a connection has ended, or can't be told from a later one with the same id: another
    /// process may hold the connection now.
    pub(crate) fn doubted(&mut self, id: SessionId, doubt: Doubt) {
        let known = self.sessions.get(&id);
        if known.is_none_or(|session| matches!(session.stage, Stage::Refused)) {
            return;
        }
        let no = match doubt {
            Doubt::Ended => {
                self.process_ended(id);
                let reason = "the process that connected has ended: whoever has its connection \
                              now is to make one of its own";
                No::new(RefusalCode::NotHolder, "process_ended", reason)
            }
            Doubt::Unsure => {
                let reason = "this kernel can't tell yet whether the process that connected is \
                              still the one with its id: connect again";
                No::new(RefusalCode::Busy, "process_unsure", reason)
            }
        };
        self.refuse(id, no.for_now());
    }

    /// A rank's process has ended: its requests end with it, and a successor counts as another process, whatever
    /// its id.
    fn process_ended(&mut self, id: SessionId) {
        let stage = self.sessions.get(&id).map(|session| &session.stage);
        if let Some(Stage::Attached { job, rank }) = stage
            && let Some(job) = self.jobs.get_mut(job)
            && let Some(rank) = job.ranks.get_mut(rank)
        {
            // No process has the id 0.
            rank.peer.pid = 0;
        }
    }

    /// Whether a crowd has not connected too often of late: each hook makes litd ask a driver, and may begin and
    /// end a job.
    fn may_arrive(&mut self, crowd: &Crowd) -> bool {
        let now = self.now;
        if self.arrivals.len() >= KNOWN_CROWDS && !self.arrivals.contains_key(crowd) {
            forget_fullest(&mut self.arrivals, now);
        }
        let rate = self.config.limits.connections_per_second;
        let new = || Bucket::with_burst(rate, ARRIVALS_AT_ONCE.max(2.0 * rate), now);
        self.arrivals
            .entry(crowd.clone())
            .or_insert_with(new)
            .take(now)
    }

    /// Whether a process may connect at all, because it has not connected far too often of late. Checked before
    /// anything else, so that endless connecting costs next to nothing.
    pub fn may_knock(&mut self, now: Nanos, peer: Peer) -> bool {
        let key = (peer.pid, peer.uid);
        if self.knocks.len() >= KNOWN_CROWDS && !self.knocks.contains_key(&key) {
            forget_fullest(&mut self.knocks, now);
        }
        let rate = self.config.limits.connections_per_second;
        let burst = 2.0 * ARRIVALS_AT_ONCE.max(2.0 * rate);
        let new = || Bucket::with_burst(rate, burst, now);
        let may = self.knocks.entry(key).or_insert_with(new).take(now);
        if !may {
            self.out.refuse("too_often");
        }
        may
    }

    /// Whether a hook has been let in as a rank of a job.
    #[must_use]
    pub fn is_attached(&self, id: SessionId) -> bool {
        let session = self.sessions.get(&id);
        session.is_some_and(|session| matches!(session.stage, Stage::Attached { .. }))
    }

    pub(crate) fn frame(&mut self, id: SessionId, bytes: &[u8]) {
        let now = self.now;
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        if matches!(session.stage, Stage::Refused) {
            return;
        }
        self.totals.frames += 1;
        if !session.bucket.take(now) {
            session.too_fast += 1;
            self.out.refuse("too_fast");
            if session.too_fast > PATIENCE {
                let reason = "far more frames a second than allowed";
                self.refuse(id, No::new(RefusalCode::Limits, "flood", reason));
            }
            return;
        }
        session.too_fast = session.too_fast.saturating_sub(FORGIVEN);
        let limits = &self.config.limits;
        let limits = litd_proto::Limits {
            kernels: limits.kernels,
            names: limits.names,
            name_bytes: limits.name_bytes,
            ..litd_proto::Limits::default()
        };
        match FromHook::decode(bytes, &limits) {
            Ok(message) => self.message(id, message),
            Err(error) => {
                self.refuse(id, No::new(error.code(), "malformed", error.to_string()));
            }
        }
    }

    /// A frame of an impossible length: longer than its room, or empty.
    pub(crate) fn no_frame(&mut self, id: SessionId, why: &str) {
        self.totals.frames += 1;
        let refused = |session: &Session| matches!(session.stage, Stage::Refused);
        if !self.sessions.get(&id).is_none_or(refused) {
            self.refuse(id, No::new(RefusalCode::Limits, "frame", why));
        }
    }

    fn message(&mut self, id: SessionId, message: FromHook) {
        let Some(session) = self.sessions.get(&id) else {
            return;
        };
        match (&session.stage, message) {
            // Newer hooks may send messages that this daemon does not know.
            (_, FromHook::Unknown) => {}
            (Stage::New, FromHook::Hello(hello)) => self.hello(id, hello),
            (Stage::Attached { job, rank }, message) => {
                let (job, rank) = (job.clone(), *rank);
                self.heard(&job);
                match message {
                    FromHook::Kernels(kernels) => self.kernels(id, &job, rank, &kernels),
                    FromHook::Tick(tick) => self.tick(&job, rank, tick),
                    FromHook::Bye(_) => self.left(id, &job, rank),
                    FromHook::Notice(notice) => self.noticed(id, &job, rank, &notice),
                    FromHook::SetClock(wish) => self.ask_clock(&job, rank, wish.clock),
                    FromHook::Hello(_) | FromHook::Unknown => {
                        let reason = "a second hello on one connection";
                        self.refuse(id, No::new(RefusalCode::Malformed, "malformed", reason));
                    }
                }
            }
            (Stage::New, _) => {
                let reason = "the first message must be a hello";
                self.refuse(id, No::new(RefusalCode::Malformed, "malformed", reason));
            }
            // A frame before the welcome is refused at once.
            (Stage::Checking { .. } | Stage::Refused, _) => self.out.refuse("too_early"),
        }
    }

    /// A hook introduces itself: the driver is asked whether its process holds that GPU.
    fn hello(&mut self, id: SessionId, mut hello: Hello) {
        let Some(session) = self.sessions.get(&id) else {
            return;
        };
        // The control group determines the job; the hook's own name for it is only a label.
        hello.job = job_name(session.home.as_ref(), session.peer.uid, &hello.job);
        if let Some(over) = session.home.as_ref().and_then(|home| self.has_ended(home)) {
            let reason = format!("its scheduler says that {over} is over");
            let no = No::new(RefusalCode::Busy, "job_ended", reason);
            return self.refuse(id, no.for_now());
        }
        let device = match self.check_hello(&hello) {
            Ok(device) => device,
            Err(no) => return self.refuse(id, no),
        };
        self.devices.want_holders(device);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.stage = Stage::Checking {
                hello: Arc::new(hello),
                device,
                since: self.now,
            };
        }
    }

    fn check_hello(&self, hello: &Hello) -> Result<usize, No> {
        if self.authority.is_off() {
            // Asking whether the process holds its GPU would open a released device.
            return Err(No::new(RefusalCode::Busy, "off", "litd is off").for_now());
        }
        if litd_proto::negotiate(hello.protocol).is_none() {
            let reason = format!(
                "no common protocol: the hook speaks {}, this daemon up to {}",
                hello.protocol,
                litd_proto::PROTOCOL
            );
            return Err(No::new(RefusalCode::Protocol, "protocol", reason));
        }
        let unknown = || {
            let reason = format!("this node has no GPU {}", hello.gpu);
            No::new(RefusalCode::GpuUnknown, "gpu_unknown", reason)
        };
        let device = self.devices.called(&hello.gpu).ok_or_else(unknown)?;
        let unit = self.devices.get(device).filter(|unit| unit.is_gpu());
        let unit = unit.ok_or_else(unknown)?;
        if unit.standing.let_go().is_some() {
            return Err(let_go_of(&unit.name));
        }
        if let Some(how) = divided(unit) {
            let reason = format!("{}: {how}, so its cap is not one job's", unit.name);
            return Err(No::new(RefusalCode::GpuShared, "gpu_shared", reason));
        }
        let gpus = self.devices.gpus().count();
        if hello.local_world_size as usize > gpus {
            let reason = format!(
                "{} ranks on this node, which has {gpus} GPUs: one rank per GPU",
                hello.local_world_size
            );
            return Err(No::new(RefusalCode::GpuShared, "gpu_shared", reason));
        }
        Ok(device)
    }

    pub(crate) fn attach(
        &mut self,
        id: SessionId,
        peer: Peer,
        hello: &Hello,
        device: usize,
    ) -> Result<(), No> {
        let now = self.now;
        let home = self.sessions.get(&id).and_then(|it| it.home.clone());
        let own = self.own_name(peer.uid, home.as_ref(), &hello.job);
        let own = own.map(|job| Hello {
            job,
            ..hello.clone()
        });
        let whole = own.as_ref().unwrap_or(hello);
        let group = group_of(whole);
        let hello = group.as_ref().unwrap_or(whole);
        self.check_place(peer, hello, device)?;
        let gpus = self.devices.gpus().count();
        let job = self
            .jobs
            .entry(hello.job.clone())
            .or_insert_with(|| Job::new(hello, peer.uid, home, gpus, now));
        let rank = job.ranks.entry(hello.rank).or_insert_with(|| Rank {
            device,
            session: None,
            peer,
            left: None,
            iteration: 0,
        });
        job.part_of = group.is_some().then(|| whole.job.clone());
        let replaced = rank.session.replace(id);
        let restarted = rank.peer.pid != peer.pid;
        (rank.peer, rank.left) = (peer, None);
        if restarted {
            // A new process may have gone back to a checkpoint.
            rank.iteration = 0;
            job.count_anew();
        }
        job.samples.drop_pending();
        job.elsewhere.arrived(hello);
        job.heard = now;
        let name = job.name.clone();
        let protocol = litd_proto::negotiate(hello.protocol).unwrap_or(litd_proto::PROTOCOL);
        let mut welcome = Welcome {
            protocol,
            daemon: env!("CARGO_PKG_VERSION").to_owned(),
            directive: job.directive,
            ..Welcome::default()
        };
        self.tell_of_profiler(id, whole, &mut welcome);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.stage = Stage::Attached {
                job: name.clone(),
                rank: hello.rank,
            };
            session.protocol = protocol;
            session.name_room = Room::new(Table::Names.of_a_gpu(gpus));
        }
        if let Some(old) = replaced {
            self.sessions.remove(&old);
            self.out.push(Effect::Close { session: old });
        }
        if let Some(unit) = self.devices.get_mut(device) {
            unit.job = Some(name.clone());
            let text = format!("rank {} attached on {}", hello.rank, unit.name);
            let note = Note::info(EventKind::Job, text)
                .job(&name)
                .device(unit.address());
            self.note(note);
        }
        self.fit_names(&name);
        self.send(id, &ToHook::Welcome(welcome));
        if restarted {
            self.trial_restarted(&name);
        }
        if group.is_some() {
            self.count_groups(&whole.job);
        }
        self.gathered(&name);
        Ok(())
    }

    /// Once all ranks of a job on this node have come, each of its groups is complete, and its loop may begin.
    fn count_groups(&mut self, whole: &str) {
        let is_part = |job: &Job| job.part_of.as_deref() == Some(whole);
        let parts = self.jobs.values().filter(|job| is_part(job));
        let (mut come, mut here) = (0, 0);
        for part in parts {
            come += part.ranks.len();
            here = here.max(part.here as usize);
        }
        if come < here {
            return;
        }
        let mut gathered = Vec::new();
        for part in self.jobs.values_mut().filter(|job| is_part(job)) {
            part.expected = part.ranks.len() as u32;
            gathered.push(part.name.clone());
        }
        for name in gathered {
            self.gathered(&name);
        }
    }

    /// The name of this user's job where another user's job has its name, or had it when this job came. A job
    /// keeps its name until it ends, and taking a name first keeps nobody else out.
    fn own_name(&self, uid: u32, home: Option<&Home>, name: &str) -> Option<String> {
        let own = of_user(uid, name);
        let has_own = |job: &Job| job.uid == uid && job.home.as_ref() == home;
        let called = |name: &str| self.jobs.values().find(|job| job.whole() == name);
        let is_own = match called(name) {
            Some(job) => job.uid != uid,
            None => called(&own).is_some_and(has_own),
        };
        is_own.then_some(own)
    }

    /// Whether this rank of this job may attach: one user per job, one job per GPU, one rank per GPU.
    fn check_place(&self, peer: Peer, hello: &Hello, device: usize) -> Result<(), No> {
        let taken = |reason: String| No::new(RefusalCode::GpuTaken, "gpu_taken", reason).for_now();
        let unit = self.devices.get(device);
        let owner = unit.and_then(|unit| unit.job.as_deref());
        if let Some(owner) = owner.filter(|&owner| owner != hello.job) {
            // A user is not shown the name of another user's job.
            let theirs = self.jobs.get(owner).is_some_and(|job| job.uid != peer.uid);
            let owner = if theirs { "another user" } else { owner };
            return Err(taken(format!(
                "GPU {} is used by {owner} already",
                hello.gpu
            )));
        }
        let Some(job) = self.jobs.get(&hello.job) else {
            return Ok(());
        };
        if job.uid != peer.uid {
            let reason = "a job of this name runs under another user";
            let no = No::new(RefusalCode::OtherUser, "other_user", reason);
            return Err(no.for_now());
        }
        if job.here != hello.local_world_size {
            let reason = format!(
                "the job's other ranks say that {} of them run here, this one says {}",
                job.here, hello.local_world_size
            );
            return Err(No::new(RefusalCode::Malformed, "malformed", reason));
        }
        let elsewhere =
            |(&rank, known): (&u32, &Rank)| (rank == hello.rank) != (known.device == device);
        if job.ranks.iter().any(elsewhere) {
            return Err(taken(format!(
                "rank {} or GPU {} is another's in this job: one rank per GPU",
                hello.rank, hello.gpu
            )));
        }
        if job.ranks.len() >= job.expected as usize && !job.ranks.contains_key(&hello.rank) {
            return Err(taken(format!(
                "all {} ranks of this job are here",
                job.expected
            )));
        }
        Ok(())
    }

    fn kernels(&mut self, id: SessionId, name: &str, rank: u32, kernels: &Kernels) {
        if let Err(reason) = self.learn_names(id, name, &kernels.new_names) {
            return self.refuse(id, No::new(RefusalCode::Limits, "names", reason));
        }
        let (Some(session), Some(job)) = (self.sessions.get(&id), self.jobs.get_mut(name)) else {
            return;
        };
        if let Some(known) = job.ranks.get_mut(&rank) {
            known.iteration = known.iteration.max(kernels.iteration);
        }
        if !job.is_whole() {
            return self.out.refuse("not_whole");
        }
        match job.add(rank, kernels, &session.names, self.now) {
            Ok(()) => {}
            Err(LeftOut::Old) => self.out.refuse("old_iteration"),
            Err(LeftOut::UnknownName) => {
                let reason = "a kernel's name is not in the dictionary";
                return self.refuse(id, No::new(RefusalCode::Malformed, "malformed", reason));
            }
            Err(LeftOut::NoRoom { most }) => {
                let why = format!(
                    "samples left out: what ranks have sent of iterations that are not whole takes \
                     more than {most} bytes, the room of this job's GPUs"
                );
                return self.left_out(name, "sample_room", why);
            }
            Err(LeftOut::Unaligned(why)) => {
                self.out.refuse("unaligned");
                job.why = format!("sample left out: {why}");
            }
        }
        if job.samples.measured().is_some() {
            for device in job.gpus() {
                if !self.devices.is_released(device) {
                    self.devices.want_read(device);
                }
            }
        }
    }

    fn tick(&mut self, name: &str, rank: u32, tick: Tick) {
        self.totals.ticks += 1;
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        if let Some(known) = job.ranks.get_mut(&rank) {
            known.iteration = known.iteration.max(tick.iteration);
        }
        job.ticks.add(&tick);
        self.trial_tick(name, tick);
    }

    /// A hook sends a notice for the log. Each connection may send a few.
    fn noticed(&mut self, id: SessionId, name: &str, rank: u32, notice: &Notice) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        if session.notices >= NOTICES {
            return self.out.refuse("notices");
        }
        session.notices += 1;
        let text = format!("rank {rank} says: {}", notice.text);
        let whole = self.jobs.get(name).map(|job| job.whole().to_owned());
        let note = match notice.kind {
            NoticeKind::ProfilingSafe => Note::info(EventKind::Job, text),
            NoticeKind::ProfilingOff | NoticeKind::Unspecified => {
                Note::warning(EventKind::Job, text)
            }
        };
        self.note(note.job(name));
        self.profiler_told(id, whole.as_deref().unwrap_or(name), notice);
    }

    /// Part of a sample is left out: counted each time, logged at a limited rate.
    fn left_out(&mut self, name: &str, label: &'static str, why: String) {
        let note = || Note::warning(EventKind::Job, why.clone()).job(name);
        self.out.refuse_noted(label, note);
        if let Some(job) = self.jobs.get_mut(name) {
            job.why = why;
        }
    }

    /// A frame of a job has come.
    fn heard(&mut self, name: &str) {
        let now = self.now;
        if let Some(job) = self.jobs.get_mut(name) {
            job.heard = now;
            if job.stale {
                self.fresh_again(name);
            }
        }
    }

    /// A rank says goodbye.
    fn left(&mut self, id: SessionId, name: &str, rank: u32) {
        self.sessions.remove(&id);
        self.out.push(Effect::Close { session: id });
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        if let Some(rank) = job.ranks.remove(&rank)
            && let Some(unit) = self.devices.get_mut(rank.device)
        {
            unit.job = None;
        }
        if job.ranks.is_empty() {
            self.end_job(name, "its ranks have said goodbye");
        } else {
            self.broken_up(name);
        }
    }

    pub(crate) fn disconnected(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(&id) else {
            return;
        };
        let Stage::Attached { job: name, rank } = session.stage else {
            return;
        };
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&name) else {
            return;
        };
        let known = job.ranks.get_mut(&rank);
        let Some(known) = known.filter(|known| known.session == Some(id)) else {
            return;
        };
        (known.session, known.left) = (None, Some(now));
        let text = format!("rank {rank} lost its connection");
        self.note(Note::info(EventKind::Job, text).job(&name));
        self.tell_hooks(&name);
    }

    /// Disconnects sessions that never introduced themselves.
    pub(crate) fn check_sessions(&mut self) {
        let now = self.now;
        let overdue = self.sessions.iter().filter_map(|(&id, session)| {
            let waits = match session.stage {
                Stage::New => Some((session.since, "no hello within 10 s")),
                Stage::Checking { since, .. } => Some((
                    since,
                    "the driver has not told within 10 s which processes hold it",
                )),
                Stage::Attached { .. } | Stage::Refused => None,
            };
            let (since, reason) = waits?;
            (now >= since + INTRODUCTION).then_some((id, reason))
        });
        for (id, reason) in overdue.collect::<Vec<_>>() {
            self.refuse(id, No::new(RefusalCode::Busy, "too_slow", reason).for_now());
        }
    }

    /// Disconnects hooks whose GPU was released before its driver has confirmed that they hold it.
    pub(crate) fn turn_away(&mut self, device: usize) {
        let Some(name) = self.devices.get(device).map(|unit| unit.name.clone()) else {
            return;
        };
        for id in self.asking(device) {
            self.refuse(id, let_go_of(&name));
        }
    }

    /// The sessions that wait for a device's driver to say whether their processes hold it.
    pub(crate) fn asking(&self, device: usize) -> Vec<SessionId> {
        let sessions = self.sessions.iter().filter_map(|(&id, session)| {
            let of = matches!(session.stage, Stage::Checking { device: of, .. } if of == device);
            of.then_some(id)
        });
        sessions.collect()
    }

    /// Finds stale jobs, and jobs whose ranks did not come back.
    pub(crate) fn check_jobs(&mut self) {
        let patience = seconds(self.config.jobs.reconnect_seconds);
        let silence = seconds(self.config.jobs.stale_seconds);
        let names: Vec<String> = self.jobs.keys().cloned().collect();
        for name in names {
            let Some(job) = self.jobs.get(&name) else {
                continue;
            };
            let gone = |rank: &Rank| rank.left.is_some_and(|left| self.now >= left + patience);
            if job.ranks.values().any(gone) {
                self.lose_ranks(&name, patience);
            } else if !job.stale && self.now >= job.heard + silence {
                self.grown_stale(&name);
            }
            self.drop_unread(&name);
            self.watch_for_drift(&name);
        }
    }

    /// A sample whose GPUs can't be read is dropped, so that later ones can come in.
    fn drop_unread(&mut self, name: &str) {
        let patience = seconds(self.config.caps.answer_seconds);
        let now = self.now;
        if let Some(job) = self.jobs.get_mut(name) {
            let waits_since = job.samples.measured().map(|measured| measured.at);
            if waits_since.is_some_and(|since| now >= since + patience) {
                job.samples.drop_measured();
            }
        }
    }

    /// Ranks that did not come back in time are removed.
    fn lose_ranks(&mut self, name: &str, patience: Nanos) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        let mut freed = Vec::new();
        job.ranks.retain(|_, rank| {
            let gone = rank.left.is_some_and(|left| now >= left + patience);
            if gone {
                freed.push(rank.device);
            }
            !gone
        });
        for device in freed {
            if let Some(unit) = self.devices.get_mut(device) {
                unit.job = None;
            }
        }
        if job.ranks.is_empty() {
            self.end_job(name, "its ranks are gone");
        } else {
            self.broken_up(name);
        }
    }

    pub(crate) fn end_job(&mut self, name: &str, why: &str) {
        let Some(job) = self.jobs.remove(name) else {
            return;
        };
        if !self.jobs.values().any(|other| other.whole() == job.whole()) {
            self.learned.profilers.ended(job.whole());
        }
        for device in job.gpus() {
            if let Some(unit) = self.devices.get_mut(device) {
                unit.job = None;
            }
        }
        for id in job.sessions() {
            self.sessions.remove(&id);
            self.out.push(Effect::Close { session: id });
        }
        self.note(Note::info(EventKind::Job, format!("ended: {why}")).job(name));
    }

    /// Tells a job's hooks what to profile, if that has changed.
    pub(crate) fn tell_hooks(&mut self, name: &str) {
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        let Some(directive) = job.new_directive(&self.config) else {
            return;
        };
        let sessions: Vec<SessionId> = job.sessions().collect();
        for id in sessions {
            self.send(id, &ToHook::Directive(directive));
        }
    }

    pub(crate) fn send(&mut self, session: SessionId, message: &ToHook) {
        let bytes = message.encode();
        self.out.push(Effect::Send { session, bytes });
    }

    /// Tells a hook why it is disconnected, counts and logs it, and closes its connection.
    pub(crate) fn refuse(&mut self, id: SessionId, no: No) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return self.out.refuse(no.label);
        };
        let stage = std::mem::replace(&mut session.stage, Stage::Refused);
        let Peer { pid, uid } = session.peer;
        self.out.refuse_noted(no.label, || {
            let text = format!("hook of process {pid}, user {uid}, refused: {}", no.reason);
            Note::warning(EventKind::Job, text)
        });
        let message = ToHook::Refusal(Refusal {
            code: no.code,
            reason: no.reason,
            retry_after: no.may_pass.then_some(RETRY),
        });
        self.send(id, &message);
        self.out.push(Effect::Close { session: id });
        if let Stage::Attached { job: name, rank } = stage
            && let Some(job) = self.jobs.get_mut(&name)
            && let Some(rank) = job.ranks.get_mut(&rank)
        {
            (rank.session, rank.left) = (None, Some(self.now));
            self.tell_hooks(&name);
        }
    }

    /// Why a job can't be steered: one of its GPUs may not be moved, or steering did harm.
    pub(crate) fn obstacle(&self, job: &Job) -> Option<String> {
        let harm = self.trials.harm_to(&self.tenant_of(job));
        harm.or_else(|| self.not_ours(job))
    }

    fn not_ours(&self, job: &Job) -> Option<String> {
        let mut units = job.gpus().filter_map(|device| self.devices.get(device));
        let unit =
            units.find(|unit| !unit.is_ours() || unit.opted_out || shared(unit).is_some())?;
        let why = match unit.standing {
            Standing::Ours if unit.opted_out => "its job opted out of being steered",
            Standing::Ours if unit.is_ours() => shared(unit).unwrap_or_default(),
            Standing::Ours if unit.device.range.unjudged().is_some() => {
                "its driver does not say what its cap may be"
            }
            Standing::Ours => "its cap has not been read yet",
            Standing::Foreign(_) => "somebody else changed its cap",
            Standing::Released(it) if it.by_mode => "litd is off",
            Standing::Released(_) => "it was released",
            Standing::Faulty(_) => "it does not do what it is told",
        };
        Some(format!("{}: {why}", unit.name))
    }
}
