//! Ranks and their sessions: they connect, train, hang up and say goodbye.

use litd_core::event::Peer;
use litd_core::{Event, Home, SessionId};
use litd_proto::ToHook;

use crate::fault::Fault;
use crate::hardware::{MILLI, SECOND};
use crate::hooks::{Hooks, Wrong};
use crate::jobs::Put;
use crate::world::{Ev, World};

impl World {
    pub fn begin_job(&mut self, job: usize) {
        let start = self.rng.between(100, 3000) * MILLI;
        for rank in self.hooks.jobs[job].ranks.clone() {
            let mut at = start + self.rng.between(0, 300) * MILLI;
            if self.rng.chance(0.02) {
                at += self.rng.between(3, 9) * SECOND;
                self.seen.mark(Fault::LateJoin);
            }
            self.at(at, Ev::Connect(rank));
        }
        self.at(start + 500 * MILLI, Ev::Iteration(job));
    }

    pub fn connect(&mut self, rank: usize) {
        let it = &self.hooks.ranks[rank];
        let job = &self.hooks.jobs[it.job];
        if it.session.is_some() || it.left || job.ended || (self.calm && self.jobs_end) {
            return;
        }
        if self.core.is_none() {
            return self.after(SECOND, Ev::Connect(rank));
        }
        let peer = Peer {
            pid: it.pid,
            uid: job.uid,
        };
        let home = job.home.as_ref().and_then(Put::home);
        let session = self.hooks.session(Some(rank), None);
        self.hooks.ranks[rank].session = Some(session);
        let hello = litd_proto::FromHook::Hello(self.hooks.hello(rank, &self.hw)).encode();
        self.meet(session, peer, home, Some(hello));
    }

    /// A hook connects and says something.
    pub fn meet(&mut self, session: u64, peer: Peer, home: Option<Home>, says: Option<Vec<u8>>) {
        self.note(|| format!("session {session} of process {} connects", peer.pid));
        self.tell(Event::Connected {
            session: SessionId(session),
            peer,
            home,
        });
        if let Some(bytes) = says {
            self.after(MILLI, Ev::Say { session, bytes });
        }
    }

    pub fn hangup(&mut self, session: u64) {
        self.reconnect_later(session);
        self.tell(Event::Disconnected {
            session: SessionId(session),
        });
    }

    /// A rank whose session is over tries again.
    pub fn reconnect_later(&mut self, session: u64) {
        if let Some(rank) = self.hooks.cut(session) {
            let pause = self.rng.between(500, 5000) * MILLI;
            self.after(pause, Ev::Connect(rank));
        }
    }

    /// A hook hears from the daemon.
    pub fn received(&mut self, session: u64, bytes: &[u8]) {
        let Some(&it) = self.hooks.sessions.get(&session) else {
            return;
        };
        let message = ToHook::decode(bytes, &litd_proto::Limits::default());
        self.note(|| format!("    to session {session}: {message:?}"));
        let directive = match message {
            Ok(ToHook::Welcome(welcome)) => {
                self.welcomed(session, it.wrong);
                welcome.directive
            }
            Ok(ToHook::Directive(directive)) => directive,
            // The session is over from now on.
            Ok(ToHook::Refusal(_)) => {
                if let Some(rank) = it.rank {
                    self.hooks.ranks[rank].welcomed = false;
                }
                return;
            }
            Ok(ToHook::Unknown) => return,
            Err(error) => return self.broke("protocol", error.to_string()),
        };
        if let Some(rank) = it.rank {
            let rank = &mut self.hooks.ranks[rank];
            // A hook that says goodbye may still receive a frame.
            (rank.welcomed, rank.directive) = (!rank.left, directive);
        }
    }

    pub fn welcomed(&mut self, session: u64, wrong: Option<Wrong>) {
        let wrong = match wrong {
            None => false,
            Some(Wrong::Always) => true,
            Some(Wrong::WhileAttached { rank }) => self.hooks.ranks[rank].welcomed,
        };
        if wrong {
            self.broke("8 holders", format!("session {session} was welcomed"));
        }
        self.ledger.welcomed = true;
    }

    pub fn iteration(&mut self, job: usize) {
        if self.hooks.jobs[job].ended {
            return;
        }
        let duration = self.hooks.duration(job, &self.hw);
        self.after(duration, Ev::Iteration(job));
        if self.now < self.hooks.jobs[job].silent_until {
            return;
        }
        self.hooks.jobs[job].iteration += 1;
        for rank in self.hooks.jobs[job].ranks.clone() {
            let it = &self.hooks.ranks[rank];
            let Some(session) = it.session.filter(|_| it.welcomed && !it.left) else {
                continue;
            };
            let flaw = it.flaw;
            let mut frames = self.clock_frames(rank);
            frames.extend(self.hooks.frames(rank, duration, &self.hw, &mut self.rng));
            if let Some(flaw) = flaw.filter(|_| self.hooks.ranks[rank].flaw.is_none()) {
                self.seen.mark(flaw.fault());
            }
            let delay = self.rng.between(0, 10) * MILLI;
            for bytes in frames {
                self.after(delay, Ev::Say { session, bytes });
            }
        }
    }

    /// A rank says goodbye.
    pub fn leave(&mut self, rank: usize) {
        let it = &mut self.hooks.ranks[rank];
        if std::mem::replace(&mut it.left, true) {
            return;
        }
        it.welcomed = false;
        if let Some(session) = it.session.take() {
            let bytes = Hooks::bye();
            self.tell(Event::Frame {
                session: SessionId(session),
                bytes: &bytes,
            });
            let epoch = self.epoch;
            self.after(5 * MILLI, Ev::Hangup { session, epoch });
        }
    }
}
