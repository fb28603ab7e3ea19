//! Connections, and the frames of those that are ranks.

use litd_api::EventKind;
use litd_proto::{FromHook, Kernels, Notice, NoticeKind, RefusalCode, Tick};

use super::{Crowd, No, Pace, Session, Stage};
use crate::core::Core;
use crate::event::{Doubt, Peer, SessionId};
use crate::hooks::cgroup::Home;
use crate::hooks::owners::Owners;
use crate::job::LeftOut;
use crate::record::Note;
use crate::store::Store;
use litd_units::Nanos;

impl<S: Store> Core<S> {
    /// From now on subordinate ids count as their owners; connected hooks stay in their crowds.
    pub fn set_owners(&mut self, owners: Owners) {
        self.hooks.set_owners(owners);
    }

    /// The crowd in which a process of this user, in this job of a scheduler's, is counted.
    #[must_use]
    pub fn crowd(&self, uid: u32, home: Option<&Home>) -> Crowd {
        Crowd::of(self.hooks.owner(uid), home)
    }

    /// Whether a process may connect at all, because it has not connected far too often of late.
    pub fn may_knock(&mut self, now: Nanos, peer: Peer) -> bool {
        let may = self.hooks.may_knock(peer, &self.config.limits, now);
        if !may {
            self.out.refuse("too_often");
        }
        may
    }

    /// Whether a hook has been let in as a rank of a job.
    #[must_use]
    pub fn is_attached(&self, id: SessionId) -> bool {
        let session = self.hooks.get(id);
        session.is_some_and(|session| session.attached().is_some())
    }

    /// The job and the rank that a hook has been let in as.
    #[must_use]
    pub fn attached_as(&self, id: SessionId) -> Option<(&str, u32)> {
        self.hooks.get(id)?.attached()
    }

    pub(crate) fn connected(&mut self, id: SessionId, peer: Peer, home: Option<Home>) {
        let limits = &self.config.limits;
        let crowd = self.crowd(peer.uid, home.as_ref());
        let session = Session::new(peer, home, crowd, limits.frames_per_second, self.now());
        let place = match self.authority.is_stopping() {
            true => Err(No::new(RefusalCode::Busy, "busy", "litd is stopping").for_now()),
            false => self.hooks.place_for(&session, limits, self.now()),
        };
        self.hooks.add(id, session);
        match place {
            Ok(None) => {}
            Ok(Some(goes)) => {
                let reason = "too many hooks are connected: a later one has taken this one's place";
                self.refuse(goes, No::new(RefusalCode::Busy, "busy", reason).for_now());
            }
            Err(no) => self.refuse(id, no),
        }
    }

    /// The process that made a connection has ended, or can't be told from a later one with the same id: another
    /// process may hold the connection now.
    pub(crate) fn doubted(&mut self, id: SessionId, doubt: Doubt) {
        if self.hooks.get(id).is_none_or(Session::is_refused) {
            return;
        }
        let no = match doubt {
            Doubt::Ended => {
                self.process_ended(id);
                let reason = "the process that opened this connection has ended: another process has to open its own";
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
        if let Some((job, rank)) = self.hooks.get(id).and_then(Session::attached)
            && let Some(job) = self.jobs.get_mut(job)
        {
            job.ranks.process_ends(rank);
        }
    }

    pub(crate) fn frame(&mut self, id: SessionId, bytes: &[u8]) {
        let now = self.now();
        let Some(session) = self.hooks.framed(id) else {
            return;
        };
        match session.frame(now) {
            Pace::InTime => {}
            Pace::TooFast => return self.out.refuse("too_fast"),
            Pace::Flood => {
                self.out.refuse("too_fast");
                let reason = "far more frames a second than allowed";
                return self.refuse(id, No::new(RefusalCode::Limits, "flood", reason));
            }
        }
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
        if self.hooks.framed(id).is_some() {
            self.refuse(id, No::new(RefusalCode::Limits, "frame", why));
        }
    }

    fn message(&mut self, id: SessionId, message: FromHook) {
        let Some(session) = self.hooks.get(id) else {
            return;
        };
        match (session.stage(), message) {
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

    fn kernels(&mut self, id: SessionId, name: &str, rank: u32, kernels: &Kernels) {
        if let Err(reason) = self.learn_names(id, name, &kernels.new_names) {
            return self.refuse(id, No::new(RefusalCode::Limits, "names", reason));
        }
        let (Some(session), Some(job)) = (self.hooks.get(id), self.jobs.get_mut(name)) else {
            return;
        };
        job.ranks.tells(rank, kernels.iteration);
        if !job.ranks.is_whole() {
            return self.out.refuse("not_whole");
        }
        match job.add(rank, kernels, session.dictionary().names(), self.out.now()) {
            Ok(()) => {}
            Err(LeftOut::Old) => self.out.refuse("old_iteration"),
            Err(LeftOut::UnknownName) => {
                let reason = "a kernel's name is not in the dictionary";
                return self.refuse(id, No::new(RefusalCode::Malformed, "malformed", reason));
            }
            Err(LeftOut::NoRoom { most }) => {
                let why = format!(
                    "samples left out: iterations of which a rank's part is missing take more than the {most} bytes \
                     that this job may use; look for a rank that is far behind the others, or sends nothing"
                );
                return self.left_out(name, "sample_room", why);
            }
            Err(LeftOut::Unaligned(why)) => {
                self.out.refuse("unaligned");
                job.control.says(&format!("sample left out: {why}"));
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
        self.out.count_tick();
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        job.ranks.tells(rank, tick.iteration);
        job.ticks.add(&tick);
        self.trial_tick(name, tick);
    }

    /// A hook sends a notice for the log. Each connection may send a few.
    fn noticed(&mut self, id: SessionId, name: &str, rank: u32, notice: &Notice) {
        let Some(session) = self.hooks.get_mut(id) else {
            return;
        };
        if !session.may_notice() {
            return self.out.refuse("notices");
        }
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
        let note = || {
            let note = Note::warning(EventKind::Job, why.clone());
            self.jobs.blame(note.job(name), &self.hooks)
        };
        self.out.refuse_noted(label, note);
        if let Some(job) = self.jobs.get_mut(name) {
            job.control.says(&why);
        }
    }

    /// A frame of a job has come.
    fn heard(&mut self, name: &str) {
        let now = self.now();
        if let Some(job) = self.jobs.get_mut(name)
            && job.hearing.hears(now)
        {
            self.fresh_again(name);
        }
    }

    /// Disconnects hooks that never introduced themselves.
    pub(crate) fn check_sessions(&mut self) {
        for (id, reason) in self.hooks.overdue(self.now()) {
            self.refuse(id, No::new(RefusalCode::Busy, "too_slow", reason).for_now());
        }
    }
}
