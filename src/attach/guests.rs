//! Ranks without a hook: sessions of the core's whose frames litd makes itself, from traces on demand, or from what a
//! plugin has noted of their collectives. The core treats
//! them as hooks, so the same checks hold: the process has to use its GPU, and one rank of a GPU counts.

use std::collections::{BTreeMap, BTreeSet};

use litd_core::{Doubt, SessionId};
use litd_proto::{Limits, ToHook};

use crate::process::Process;

/// What waits for a guest; the core sends a few messages in a minute.
const MOST_WAITING: usize = 64;

/// A job of guests: the way in which it is measured, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestJob {
    /// The way.
    pub way: &'static str,
    /// The number.
    pub number: u64,
}

/// A rank without a hook.
#[derive(Debug)]
struct Guest {
    pid: u32,
    process: Process,
    job: GuestJob,
    waiting: Vec<ToHook>,
    is_closed: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Guests {
    guests: BTreeMap<SessionId, Guest>,
    /// The processes of hooks that are connected, which are nobody's guests.
    hooks: BTreeMap<SessionId, u32>,
    /// Guests' processes that another way has found, too.
    found: BTreeSet<u32>,
}

/// A process that is to be a guest.
#[derive(Debug)]
pub struct Newcomer {
    /// The process's id.
    pub pid: u32,
    /// The process.
    pub process: Process,
    /// The job that the process is a rank of.
    pub job: GuestJob,
}

impl Guests {
    /// Adds a guest.
    pub fn add(&mut self, id: SessionId, newcomer: Newcomer) {
        let Newcomer { pid, process, job } = newcomer;
        let guest = Guest {
            pid,
            process,
            job,
            waiting: Vec::new(),
            is_closed: false,
        };
        self.guests.insert(id, guest);
    }

    /// Removes a guest. Returns whether it was one.
    pub fn remove(&mut self, id: SessionId) -> bool {
        let guest = self.guests.remove(&id);
        guest.is_some_and(|it| {
            self.found.remove(&it.pid);
            true
        })
    }

    /// Takes a message for a guest. What it does not fetch is dropped, the oldest first: later messages say it all.
    pub fn send(&mut self, id: SessionId, bytes: &[u8]) {
        if let (Some(guest), Ok(message)) = (
            self.guests.get_mut(&id),
            ToHook::decode(bytes, &Limits::default()),
        ) {
            guest.waiting.push(message);
            let extra = guest.waiting.len().saturating_sub(MOST_WAITING);
            guest.waiting.drain(..extra);
        }
    }

    /// The core has ended a session.
    pub fn close(&mut self, id: SessionId) {
        if let Some(guest) = self.guests.get_mut(&id) {
            guest.is_closed = true;
        }
    }

    /// What waits for a guest; `None` once the core has ended it, or if it is no guest.
    pub fn fetch(&mut self, id: SessionId) -> Option<Vec<ToHook>> {
        let guest = self.guests.get_mut(&id)?;
        let waiting = std::mem::take(&mut guest.waiting);
        // The reason of a refusal comes before the end.
        (!guest.is_closed || !waiting.is_empty()).then_some(waiting)
    }

    /// Guests whose processes have ended.
    pub fn doubts(&self) -> Vec<(SessionId, Doubt)> {
        let each = self.guests.iter();
        each.filter_map(|(&id, guest)| Some((id, guest.process.doubt()?)))
            .collect()
    }

    /// A process has connected as a hook. Returns the guests of its job, which are to go: the hook shows more.
    pub fn meet_hook(&mut self, id: SessionId, pid: u32) -> Vec<SessionId> {
        self.hooks.insert(id, pid);
        let job = self.guests.values().find(|it| it.pid == pid);
        let job = job.map(|it| it.job);
        let of_it = self.guests.iter().filter(|(_, it)| Some(it.job) == job);
        of_it.map(|(&id, _)| id).collect()
    }

    /// A hook's connection has ended.
    pub fn part_from_hook(&mut self, id: SessionId) {
        self.hooks.remove(&id);
    }

    /// Another way has found a process. Returns the way in which the process is measured already, if it is a guest.
    pub fn find(&mut self, pid: u32) -> Option<&'static str> {
        let way = self.guests.values().find(|it| it.pid == pid)?.job.way;
        self.found.insert(pid);
        Some(way)
    }

    /// Whether another way has found a guest's process since it came, and would measure it.
    #[must_use]
    pub fn is_found(&self, pid: u32) -> bool {
        self.found.contains(&pid)
    }

    /// Whether a process is connected as a hook.
    #[must_use]
    pub fn has_hook(&self, pid: u32) -> bool {
        self.hooks.values().any(|&it| it == pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_ends_its_own_job_and_no_other_with_the_same_number() {
        let mut guests = Guests::default();
        let mut add = |id, pid, way, number| {
            let process = Process::since("/proc".as_ref(), pid, 1);
            let job = GuestJob { way, number };
            guests.add(SessionId(id), Newcomer { pid, process, job });
        };
        add(1, 71, "traces", 1);
        add(2, 72, "traces", 1);
        add(3, 73, "rings", 1);
        add(4, 74, "traces", 2);
        assert_eq!((guests.find(73), guests.find(75)), (Some("rings"), None));
        assert!(guests.is_found(73) && !guests.is_found(75));
        assert!(guests.remove(SessionId(3)) && !guests.is_found(73));
        let gone = guests.meet_hook(SessionId(9), 72);
        assert_eq!(gone, [SessionId(1), SessionId(2)]);
        assert_eq!(guests.meet_hook(SessionId(10), 75), []);
        assert!(guests.has_hook(75) && !guests.has_hook(71));
    }
}
