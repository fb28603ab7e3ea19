//! Hooks connect, introduce themselves, send frames, and go. No frame is believed before it has been checked, and
//! no hook can use more than its share of litd's time and memory.
//!
//! [`Hooks`] has the connections, and decides who gets a place; `attach` lets a hook in as a rank of a job, and
//! `frames` takes what it sends.

pub(crate) mod cgroup;
pub(crate) mod holders;
pub(crate) mod owners;
pub(crate) mod party;
pub mod profilers;
pub(crate) mod tenant;

mod attach;
mod crowd;
mod frames;
mod refusal;
mod session;
mod tell;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use litd_api::EventKind;
use litd_proto::{Hello, RefusalCode, ToHook};
use litd_traces::NameId;
use litd_units::Nanos;

pub use self::crowd::Crowd;
pub(crate) use self::refusal::No;
pub(crate) use self::session::{Pace, Session, Stage};
use crate::config::Limits;
use crate::event::{Effect, Peer, SessionId};
use crate::hooks::cgroup::Home;
use crate::hooks::owners::Owners;
use crate::hooks::tenant::Tenant;
use crate::outbox::Outbox;
use crate::rate::Bucket;
use crate::record::Note;

/// A hook that has not introduced itself after so long is disconnected.
const INTRODUCTION: Nanos = Nanos(10_000_000_000);

/// A hook says hello as soon as it has connected; litd may take so long to hear it.
const BREATH: Nanos = Nanos(200_000_000);

/// How many hooks of a crowd may connect at once.
const ARRIVALS_AT_ONCE: f64 = 64.0;

/// Crowds, and processes, whose visits are counted.
const KNOWN_CROWDS: usize = 1024;

/// How often each of many peers comes.
#[derive(Debug)]
struct Visits<K>(BTreeMap<K, Bucket>);

impl<K> Default for Visits<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Visits<K> {
    /// Whether a peer may come once more, where each may come so often.
    fn may_come(&mut self, peer: K, per_second: f64, at_once: f64, now: Nanos) -> bool {
        if self.0.len() >= KNOWN_CROWDS && !self.0.contains_key(&peer) {
            self.forget_fullest(now);
        }
        let new = || Bucket::with_burst(per_second, at_once, now);
        self.0.entry(peer).or_insert_with(new).take(now)
    }

    /// Forgets half of the buckets, those from which least was taken: peers that come too often stay known.
    fn forget_fullest(&mut self, now: Nanos) {
        let mut all: Vec<_> = std::mem::take(&mut self.0).into_iter().collect();
        all.sort_by(|(_, one), (_, other)| one.level(now).total_cmp(&other.level(now)));
        all.truncate(KNOWN_CROWDS / 2);
        self.0.extend(all);
    }
}

/// A hook that waits for its GPU's driver to say whether its process holds it.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    pub id: SessionId,
    pub peer: Peer,
    pub home: Option<Home>,
    pub hello: Arc<Hello>,
}

/// All connected hooks, and who may connect.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    sessions: BTreeMap<SessionId, Session>,
    /// How often the hooks of each crowd connect.
    arrivals: Visits<Crowd>,
    /// How often each process connects, by its id and its user.
    knocks: Visits<(u32, u32)>,
    /// The owners of subordinate ids.
    owners: Owners,
    /// The processes that used each GPU, as its driver told last.
    holders: BTreeMap<usize, Vec<Peer>>,
    /// Frames so far.
    frames: u64,
}

impl Hooks {
    /// From now on subordinate ids count as their owners; connected hooks stay in their crowds.
    pub fn set_owners(&mut self, owners: Owners) {
        self.owners = owners;
    }

    /// The user to whom an id is subordinate, or else the id itself.
    pub fn owner(&self, uid: u32) -> u32 {
        self.owners.owner(uid)
    }

    /// A connected hook.
    pub fn get(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// A connected hook, to change it.
    pub fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(&id)
    }

    /// Frames so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// A frame has come. Returns the hook that sent it, unless it was refused.
    pub fn framed(&mut self, id: SessionId) -> Option<&mut Session> {
        let session = self.sessions.get_mut(&id)?;
        (!session.is_refused())
            .then_some(session)
            .inspect(|_| self.frames += 1)
    }

    /// The driver has told which processes use a GPU.
    pub fn told_holders(&mut self, device: usize, holders: Vec<Peer>) {
        self.holders.insert(device, holders);
    }

    /// Whether a process used a GPU by its driver's last answer.
    pub fn is_known_holder(&self, peer: Peer, device: usize) -> bool {
        let told = self.holders.get(&device);
        told.is_some_and(|told| told.contains(&peer))
    }

    /// All processes that used GPUs by their drivers' last answers; one may come several times.
    pub fn known_holders(&self) -> impl Iterator<Item = Peer> {
        self.holders.values().flatten().copied()
    }

    /// A hook has connected.
    pub fn add(&mut self, id: SessionId, session: Session) {
        self.sessions.insert(id, session);
    }

    /// Whether there is a place for a hook that connects, and the hook that gives up its own for it. A crowd that
    /// connects too often takes nobody's place.
    pub fn place_for(
        &mut self,
        newcomer: &Session,
        limits: &Limits,
        now: Nanos,
    ) -> Result<Option<SessionId>, No> {
        if newcomer.peer().pid == 0 {
            let reason = "litd can't see this hook's process, because litd runs in a PID namespace without it: \
                          start litd in the host's (hostPID: true, --pid=host)";
            return Err(No::new(RefusalCode::NotHolder, "not_holder", reason));
        }
        let crowd = newcomer.crowd();
        // Each hook makes litd ask a driver, and may begin and end a job.
        let rate = limits.connections_per_second;
        let at_once = ARRIVALS_AT_ONCE.max(2.0 * rate);
        if !self.arrivals.may_come(crowd.clone(), rate, at_once, now) {
            let reason = "this user's hooks connect too often";
            return Err(No::new(RefusalCode::Busy, "too_often", reason).for_now());
        }
        let crowded = self.strangers_of(crowd) >= limits.sessions_per_user;
        if !crowded && self.sessions.len() < limits.sessions {
            return Ok(None);
        }
        let reason = "too many hooks are connected";
        let no = || No::new(RefusalCode::Busy, "busy", reason).for_now();
        self.gives_way(crowd, crowded, now).map(Some).ok_or_else(no)
    }

    /// How many hooks of a crowd are not ranks. Ranks don't count, so that connections without a GPU can't keep
    /// out those that hold one.
    fn strangers_of(&self, crowd: &Crowd) -> usize {
        let sessions = self.sessions.values().filter(|it| it.attached().is_none());
        sessions.filter(|it| it.crowd() == crowd).count()
    }

    /// The hook that gives up its place for one more of this crowd, if any: a hook that is not a rank. Hooks that
    /// have been silent for a while go first, then those of the largest crowd, and of those the oldest. A hook
    /// whose process uses the GPU that it names, by the driver's last answer, stays. So nobody keeps others out by
    /// holding connections or naming GPUs that he does not use, under however many users. If the newcomer's own
    /// crowd is full, one of its silent hooks goes.
    fn gives_way(&self, crowd: &Crowd, crowded: bool, now: Nanos) -> Option<SessionId> {
        let is_idle = |session: &Session| session.is_silent() && now >= session.since() + BREATH;
        let may_go = |session: &Session| match crowded {
            true => session.is_silent() && session.crowd() == crowd,
            false => match *session.stage() {
                Stage::New => true,
                Stage::Checking { device, .. } => !self.is_known_holder(session.peer(), device),
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
                it.is_silent(),
                Reverse((it.since(), *id)),
            )
        });
        goes.map(|(id, _)| *id)
    }

    /// Whether a process may connect at all, because it has not connected far too often of late. Checked before
    /// anything else, so that endless connecting costs next to nothing.
    pub fn may_knock(&mut self, peer: Peer, limits: &Limits, now: Nanos) -> bool {
        let rate = limits.connections_per_second;
        let at_once = 2.0 * ARRIVALS_AT_ONCE.max(2.0 * rate);
        self.knocks
            .may_come((peer.pid, peer.uid), rate, at_once, now)
    }

    /// The hooks that wait for a GPU's driver to say whether their processes hold it.
    pub fn waiting_for(&self, device: usize) -> Vec<SessionId> {
        let sessions = self.sessions.iter().filter_map(|(&id, session)| {
            let of = matches!(session.stage(), Stage::Checking { device: of, .. } if *of == device);
            of.then_some(id)
        });
        sessions.collect()
    }

    /// Those of them that had said hello when the driver was asked.
    pub fn answered(&self, device: usize, asked: Nanos) -> Vec<Waiting> {
        let sessions = self.sessions.iter().filter_map(|(&id, session)| {
            let Stage::Checking {
                hello,
                device: of,
                since,
            } = session.stage()
            else {
                return None;
            };
            (*of == device && *since <= asked).then(|| Waiting {
                id,
                peer: session.peer(),
                home: session.home().cloned(),
                hello: hello.clone(),
            })
        });
        sessions.collect()
    }

    /// Hooks that have not introduced themselves in time, or whose driver did not answer in time, and which of
    /// that.
    pub fn overdue(&self, now: Nanos) -> Vec<(SessionId, &'static str)> {
        let overdue = self.sessions.iter().filter_map(|(&id, session)| {
            let (since, reason) = match *session.stage() {
                Stage::New => (session.since(), "it has sent nothing within 10 s"),
                Stage::Checking { since, .. } => (
                    since,
                    "the driver has not reported within 10 s which processes use its GPU",
                ),
                Stage::Attached { .. } | Stage::Refused => return None,
            };
            (now >= since + INTRODUCTION).then_some((id, reason))
        });
        overdue.collect()
    }

    /// The hooks that are ranks, with their jobs and ranks.
    pub fn attached(&self) -> impl Iterator<Item = (SessionId, &str, u32)> {
        let sessions = self.sessions.iter();
        sessions.filter_map(|(&id, session)| {
            let (job, rank) = session.attached()?;
            Some((id, job, rank))
        })
    }

    /// The hooks that are ranks and would use a profiler.
    pub fn profiling(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        let sessions = self.sessions.iter().map(|(&id, session)| (id, session));
        sessions.filter(|(_, it)| it.attached().is_some() && it.profiler().is_some())
    }

    /// The kernel names that these hooks have told, for a table that numbers its names anew.
    pub fn dictionaries(
        &mut self,
        of: &BTreeSet<SessionId>,
    ) -> impl Iterator<Item = &mut Vec<NameId>> {
        let sessions = self.sessions.iter_mut();
        let sessions = sessions.filter(|(id, _)| of.contains(id));
        sessions.map(|(_, session)| session.dictionary_mut().names_mut())
    }

    /// Sends a message to a hook.
    pub fn send(&self, session: SessionId, message: &ToHook, out: &mut Outbox) {
        let bytes = message.encode();
        out.push(Effect::Send { session, bytes });
    }

    /// Closes a hook's connection without a word.
    pub fn close(&mut self, session: SessionId, out: &mut Outbox) {
        self.sessions.remove(&session);
        out.push(Effect::Close { session });
    }

    /// A hook's connection has ended. Returns what was known of it.
    pub fn disconnected(&mut self, session: SessionId) -> Option<Session> {
        self.sessions.remove(&session)
    }

    /// Tells a hook why it is disconnected, counts and logs it, and closes its connection. Returns the rank that it
    /// was.
    pub fn refuse(&mut self, id: SessionId, no: No, out: &mut Outbox) -> Option<(String, u32)> {
        let Some(session) = self.sessions.get_mut(&id) else {
            out.refuse(no.label);
            return None;
        };
        let stage = session.is_turned_away();
        let Peer { pid, uid } = session.peer();
        let owner = self.owners.owner(uid);
        let party = Tenant::of(owner, session.home()).party();
        out.refuse_noted(no.label, || {
            let text = format!("hook of process {pid}, user {uid}, refused: {}", no.reason);
            Note::warning(EventKind::Job, text).caused_by(Some(party))
        });
        self.send(id, &ToHook::Refusal(no.message()), out);
        out.push(Effect::Close { session: id });
        match stage {
            Stage::Attached { job, rank } => Some((job, rank)),
            Stage::New | Stage::Checking { .. } | Stage::Refused => None,
        }
    }
}

#[cfg(test)]
mod tests;
