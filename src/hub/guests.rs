//! Ranks without a hook, whose frames litd makes itself ([`crate::attach`]).

use std::rc::Rc;

use litd_api::RingsSeen;
use litd_core::{DeviceId, Event, Home, Peer, SessionId};
use litd_proto::{Bye, FromHook, ToHook};
use litd_units::Nanos;

use super::Hub;
use crate::attach::{Newcomer, Shown};

/// Why guests leave once a process of theirs has a hook.
const HOOK: &str = "a hook has connected, which shows more than what is known without one";

impl Hub {
    /// From now on there may be ranks without a hook.
    pub fn expect_guests(&mut self) {
        // There are several ways to measure ranks without a hook.
        self.guests.get_or_insert_default();
    }

    /// A way has found a process without a hook. Returns the way in which it is measured already, if it is a rank.
    pub fn find_guest(&mut self, pid: u32) -> Option<&'static str> {
        self.guests.as_mut()?.find(pid)
    }

    /// Whether another way would measure a process that is a rank without a hook.
    #[must_use]
    pub fn is_guest_found(&self, pid: u32) -> bool {
        self.guests.as_ref().is_some_and(|it| it.is_found(pid))
    }

    /// From now on answers show this state of rings.
    pub fn show_rings(&mut self, shown: Rc<Shown>) {
        self.rings = Some(shown);
    }

    /// The state of all rings; `None` where litd reads none.
    #[must_use]
    pub fn rings_seen(&self) -> Option<RingsSeen> {
        self.rings.as_ref().map(|it| it.seen())
    }

    /// Whether a process is connected as a hook.
    #[must_use]
    pub fn has_hook(&self, pid: u32) -> bool {
        self.guests.as_ref().is_some_and(|it| it.has_hook(pid))
    }

    /// A process is to be a rank although it has no hook.
    pub fn guest_joins(&mut self, newcomer: Newcomer, uid: u32, home: Option<Home>) -> SessionId {
        let session = self.next_session();
        let peer = Peer {
            pid: newcomer.pid,
            uid,
        };
        if let Some(guests) = &mut self.guests {
            guests.add(session, newcomer);
        }
        self.handle(Event::Connected {
            session,
            peer,
            home,
        });
        session
    }

    /// A frame in the name of such a rank.
    pub fn guest_says(&mut self, session: SessionId, message: &FromHook) {
        let bytes = message.encode();
        self.handle(Event::Frame {
            session,
            bytes: &bytes,
        });
    }

    /// What the core has told such a rank; `None` once the core has ended it.
    pub fn guest_hears(&mut self, session: SessionId) -> Option<Vec<ToHook>> {
        self.guests.as_mut()?.fetch(session)
    }

    /// A rank without a hook leaves; `why` is in words.
    pub fn guest_leaves(&mut self, session: SessionId, why: &str) {
        let reason = why.to_owned();
        if self.core.is_attached(session) {
            self.guest_says(session, &FromHook::Bye(Bye { reason }));
        }
        let was = self.guests.as_mut().is_some_and(|it| it.remove(session));
        if was {
            self.handle(Event::Disconnected { session });
        }
    }

    /// A process connects as a hook: two ways at once for one rank count once, and the hook's is the better one. Its
    /// whole job is no guest's any more.
    pub(super) fn meet_hook(&mut self, hook: SessionId, pid: u32) {
        let Some(guests) = &mut self.guests else {
            return;
        };
        for session in guests.meet_hook(hook, pid) {
            self.guest_leaves(session, HOOK);
        }
    }

    /// The job and the rank that a session is.
    #[must_use]
    pub fn attached_as(&self, session: SessionId) -> Option<(&str, u32)> {
        self.core.attached_as(session)
    }

    /// The GPUs that a process held when their drivers told last, with their addresses.
    #[must_use]
    pub fn held_by(&self, peer: Peer) -> Vec<(DeviceId, String)> {
        self.core.held_by(peer)
    }

    /// The processes that held GPUs when their drivers told last; one that holds several comes several times.
    pub fn known_holders(&self) -> impl Iterator<Item = Peer> {
        self.core.known_holders()
    }

    /// Has all drivers asked who holds their GPUs.
    pub fn look_for_holders(&mut self) {
        self.core.look_for_holders();
        self.handle(Event::Time);
    }

    /// Whether any of these devices was told to hold another cap since then.
    #[must_use]
    pub fn has_told(&self, devices: &[DeviceId], since: Nanos) -> bool {
        let told = |device| self.told.get(device).is_some_and(|&at| at >= since);
        devices.iter().any(told)
    }
}
