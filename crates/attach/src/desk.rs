//! The table of processes that ask for a trace's configuration, and of those that are to get one.
//!
//! The kernel says who has sent a datagram; the client itself says its process id in its own namespace, which has to
//! be the one that procfs knows of the sender. Whoever claims another id is answered that there is nothing to do, and
//! is not remembered. Every table has a bound, and whoever asks far more often takes nobody else's place.

use std::collections::BTreeMap;
use std::fmt;

use litd_units::Nanos;

use crate::message::{Message, Poll, Register, answer, registered};
use crate::trace::{BadTrace, Trace};

/// The most clients in all, and the most of one owner. A node has some dozens.
const MOST_CLIENTS: usize = 4096;
const MOST_OF_ONE: usize = 1024;

/// An owner with fewer clients finds a place also where that many have been given, until twice as many have: a few
/// owners together keep no other out.
const FEW: usize = 64;

/// The most traces that may be awaited at a time, over all clients: a node has 16 GPUs at most.
const MOST_AWAITED: usize = 64;

/// A client that has asked nothing for so long has gone: it asks every 5 s.
const SILENCE: Nanos = Nanos(31_000_000_000);

/// How often those that have gone are looked for while there is no place.
const SWEEP: Nanos = Nanos(1_000_000_000);

/// A wish that no client has fetched after so long is withdrawn: it would begin at some time that nobody waits for.
const PATIENCE: Nanos = Nanos(16_000_000_000);

/// A client that was told so long ago may be told of another trace. A client that still records takes no other one.
const LONGEST_TRACE: Nanos = Nanos(30_000_000_000);

/// The kind of configuration that asks for a trace.
const TRACES: i32 = 2;

/// The process that sent a datagram, as the kernel tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sender {
    /// The process's id in litd's namespace.
    pub pid: u32,
    /// The process's user.
    pub uid: u32,
}

/// The user or the pod with whose processes a process is counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A user's, with those of the ids that are subordinate to his.
    User(u32),
    /// A pod, with all its processes, which may be of any user id.
    Pod(String),
}

/// Facts about a sender that procfs knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    /// The process's id in its own namespace.
    pub own: i32,
    /// When the process began, in ticks since boot.
    pub began: u64,
    /// The user or the pod with whose processes it is counted.
    pub owner: Owner,
    /// The scheduler's job that it was in.
    pub job: Option<String>,
    /// The process that started it, and the other ranks of its job on this node.
    pub parent: i32,
}

impl Looked {
    /// Whether both are of one process, if they are of one id.
    fn is_same(&self, other: &Self) -> bool {
        (self.own, self.began) == (other.own, other.began)
    }
}

/// A wished-for trace; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// How far a client's trace has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// No trace is wished for.
    Idle,
    /// A trace is wished for, and the client learns of it when it asks next.
    Wanted {
        /// The wish.
        ticket: Ticket,
        /// The configuration.
        text: String,
        /// Since when.
        since: Nanos,
    },
    /// The client has been told.
    Told {
        /// The wish.
        ticket: Ticket,
        /// When.
        at: Nanos,
    },
}

/// A process that asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// The process and its user.
    pub sender: Sender,
    /// Facts that procfs knew when the process asked first.
    pub looked: Looked,
    /// `SLURM_JOB_ID` as the client says, or 0.
    pub job: i64,
    /// Whether the client takes configurations of traces.
    pub traces: bool,
    /// When it asked last.
    pub heard: Nanos,
    /// The GPU that it registered on, by its own count.
    pub gpu: Option<i32>,
    /// The stage of the process's trace.
    pub stage: Stage,
}

/// Datagrams, by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Polls and registrations of known clients.
    pub answered: u64,
    /// Clients that were told to record.
    pub told: u64,
    /// Datagrams that are no messages.
    pub malformed: u64,
    /// Messages in another process's name.
    pub impostors: u64,
    /// Messages of processes that can't be told from an earlier one with their id, because they have just begun, or
    /// of which procfs tells nothing.
    pub unsure: u64,
    /// Messages of clients for which there is no place.
    pub crowded: u64,
    /// Datagrams from sockets that are not named as clients name theirs; none is answered.
    pub foreign: u64,
    /// Messages that had waited until their clients listened no longer.
    pub late: u64,
}

/// The answer to a datagram, if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The answer, to be sent at once from the socket that the datagram came to.
    Answer(Vec<u8>),
    /// The same, and it tells the client to record a trace. [`Desk::end`] if it can't be sent.
    Told(Ticket, Vec<u8>),
    /// No answer.
    Nothing,
}

/// Why a client can't be told to record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoWish {
    /// No process with this id asks.
    Unknown,
    /// The process's PyTorch takes no configuration of traces.
    TakesNone,
    /// The process is to record a trace already, or was told of one a moment ago.
    Busy,
    /// As many traces as may be are awaited.
    Full,
    /// The trace itself is impossible.
    Bad(BadTrace),
}

impl fmt::Display for NoWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str(
                "no such process asks for traces: start it with KINETO_USE_DAEMON=1 in its environment (PyTorch 2.7 or \
                 later), and wait for some seconds",
            ),
            Self::TakesNone => f.write_str("its PyTorch does not accept requests for traces"),
            Self::Busy => f.write_str("it is to record a trace already, or has been told of one within 30 s: ask again later"),
            Self::Full => write!(f, "{MOST_AWAITED} traces are under way: ask again later"),
            Self::Bad(why) => why.fmt(f),
        }
    }
}

/// All clients.
#[derive(Debug, Clone, Default)]
pub struct Desk {
    clients: BTreeMap<u32, Client>,
    /// How many of them each owner has.
    of_owner: BTreeMap<Owner, usize>,
    /// When those that have gone were forgotten last.
    swept: Option<Nanos>,
    counts: Counts,
    last_ticket: u64,
}

impl Desk {
    /// Whether procfs has to be asked about a sender before its message is taken: it is new, has become another user,
    /// or is about to be told to record.
    #[must_use]
    pub fn wants_look(&self, sender: Sender) -> bool {
        let known = self.clients.get(&sender.pid);
        known.is_none_or(|it| it.sender != sender || matches!(it.stage, Stage::Wanted { .. }))
    }

    /// Takes a datagram. `looked` is what procfs tells of the sender where [`Desk::wants_look`] asked for it; `None`
    /// where procfs does not tell, or can't tell the sender from a later process with its id.
    pub fn take(
        &mut self,
        now: Nanos,
        sender: Sender,
        looked: Option<Looked>,
        datagram: &[u8],
    ) -> Outcome {
        match Message::read(datagram) {
            Ok(Message::Poll(poll)) => self.poll(now, sender, looked, &poll),
            Ok(Message::Register(register)) => self.register(now, sender, looked, register),
            Err(_) => {
                self.counts.malformed += 1;
                Outcome::Nothing
            }
        }
    }

    /// A datagram had waited for so long that its client no longer listens: an answer now would be taken for the
    /// one to its next question.
    pub fn too_late(&mut self) {
        self.counts.late += 1;
    }

    /// A datagram came from a socket that is no client's.
    pub fn foreign(&mut self) {
        self.counts.foreign += 1;
    }

    fn poll(&mut self, now: Nanos, sender: Sender, looked: Option<Looked>, poll: &Poll) -> Outcome {
        let nothing_to_do = || Outcome::Answer(answer(""));
        let Some(client) = self.client(now, sender, looked, poll.own) else {
            return nothing_to_do();
        };
        client.job = poll.job;
        client.traces = poll.kinds & TRACES != 0;
        let outcome = match client.hand_out(now) {
            Some((ticket, text)) => {
                self.counts.told += 1;
                Outcome::Told(ticket, answer(&text))
            }
            None => nothing_to_do(),
        };
        self.counts.answered += 1;
        outcome
    }

    fn register(
        &mut self,
        now: Nanos,
        sender: Sender,
        looked: Option<Looked>,
        register: Register,
    ) -> Outcome {
        let Register { gpu, own, job } = register;
        let Some(client) = self.client(now, sender, looked, own) else {
            return Outcome::Answer(registered(0));
        };
        (client.gpu, client.job) = (Some(gpu), job);
        self.counts.answered += 1;
        let with =
            |it: &&Client| it.sender.uid == sender.uid && it.job == job && it.gpu == Some(gpu);
        let count = self.clients.values().filter(with).count();
        Outcome::Answer(registered(i32::try_from(count).unwrap_or(i32::MAX)))
    }

    /// The client that a message is of; `None` if the message is in another's name, or there is no place.
    fn client(
        &mut self,
        now: Nanos,
        sender: Sender,
        looked: Option<Looked>,
        claimed: i32,
    ) -> Option<&mut Client> {
        let known = self
            .clients
            .get(&sender.pid)
            .map(|it| (it.sender, it.looked.clone()));
        let same = match (&known, looked) {
            // Not looked at because nothing depends on it.
            (Some((of, then)), None) if *of == sender && !self.wants_look(sender) => {
                Some(then.clone())
            }
            (_, looked) => looked,
        };
        let Some(looked) = same else {
            self.counts.unsure += 1;
            return None;
        };
        if looked.own != claimed {
            self.counts.impostors += 1;
            return None;
        }
        // The id has been given to a later process, which owes nothing of what was wished for.
        if known.is_some_and(|(of, then)| of != sender || !then.is_same(&looked)) {
            self.remove(sender.pid);
        }
        if !self.clients.contains_key(&sender.pid) && !self.has_place(now, &looked.owner) {
            self.counts.crowded += 1;
            return None;
        }
        let of_owner = &mut self.of_owner;
        let client = self.clients.entry(sender.pid).or_insert_with(|| {
            *of_owner.entry(looked.owner.clone()).or_insert(0) += 1;
            Client {
                sender,
                looked,
                job: 0,
                traces: false,
                heard: now,
                gpu: None,
                stage: Stage::Idle,
            }
        });
        client.heard = now;
        Some(client)
    }

    fn remove(&mut self, pid: u32) {
        let Some(client) = self.clients.remove(&pid) else {
            return;
        };
        let owner = client.looked.owner;
        if let Some(count) = self.of_owner.get_mut(&owner) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.of_owner.remove(&owner);
            }
        }
    }

    /// Whether a new client of an owner finds a place, perhaps after those that have gone are forgotten. So as not to
    /// go through all of them for everybody who finds none, that is done once a second at most.
    fn has_place(&mut self, now: Nanos, owner: &Owner) -> bool {
        if self.is_full(owner) && self.swept.is_none_or(|then| now >= then + SWEEP) {
            self.forget_gone(now);
        }
        !self.is_full(owner)
    }

    fn is_full(&self, owner: &Owner) -> bool {
        let own = self.of_owner.get(owner).copied().unwrap_or(0);
        let most = match own < FEW {
            true => 2 * MOST_CLIENTS,
            false => MOST_CLIENTS,
        };
        self.clients.len() >= most || own >= MOST_OF_ONE
    }

    /// Wishes for a trace of a client, which learns of it when it asks next, within 5 s.
    ///
    /// # Errors
    /// The client can't be told.
    pub fn want(&mut self, now: Nanos, pid: u32, trace: &Trace) -> Result<Ticket, NoWish> {
        self.forget_gone(now);
        let awaited = |it: &&Client| it.stage != Stage::Idle;
        let full = self.clients.values().filter(awaited).count() >= MOST_AWAITED;
        let client = self.clients.get_mut(&pid).ok_or(NoWish::Unknown)?;
        if !client.traces {
            return Err(NoWish::TakesNone);
        }
        if client.stage != Stage::Idle {
            return Err(NoWish::Busy);
        }
        if full {
            return Err(NoWish::Full);
        }
        let text = trace.text().map_err(NoWish::Bad)?;
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        client.stage = Stage::Wanted {
            ticket,
            text,
            since: now,
        };
        Ok(ticket)
    }

    /// A client's trace has been taken in, or is given up: another may be wished for.
    pub fn end(&mut self, pid: u32, ended: Ticket) {
        if let Some(client) = self.clients.get_mut(&pid)
            && client.ticket() == Some(ended)
        {
            client.stage = Stage::Idle;
        }
    }

    /// Forgets clients that ask no longer, wishes that were not fetched, and traces that were never ended.
    pub fn forget_gone(&mut self, now: Nanos) {
        self.swept = Some(now);
        let silent = |it: &&Client| now >= it.heard + SILENCE;
        let gone = self.clients.values().filter(silent);
        for pid in gone.map(|it| it.sender.pid).collect::<Vec<_>>() {
            self.remove(pid);
        }
        for client in self.clients.values_mut() {
            client.lose_patience(now);
        }
    }

    /// The client with this process id.
    #[must_use]
    pub fn get(&self, pid: u32) -> Option<&Client> {
        self.clients.get(&pid)
    }

    /// All clients, by process id.
    pub fn clients(&self) -> impl Iterator<Item = &Client> {
        self.clients.values()
    }

    /// The datagrams so far, by what became of them.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

impl Client {
    /// The trace that is wished for, or under way.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        match &self.stage {
            Stage::Idle => None,
            Stage::Wanted { ticket, .. } | Stage::Told { ticket, .. } => Some(*ticket),
        }
    }

    /// `Wanted` -> `Told`: the configuration, once. A client that takes none keeps waiting for its own sake only.
    fn hand_out(&mut self, now: Nanos) -> Option<(Ticket, String)> {
        self.lose_patience(now);
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Wanted { ticket, text, .. } if self.traces => {
                self.stage = Stage::Told { ticket, at: now };
                Some((ticket, text))
            }
            stage => {
                self.stage = stage;
                None
            }
        }
    }

    /// `Wanted` or `Told` -> `Idle`, once that has lasted for too long.
    fn lose_patience(&mut self, now: Nanos) {
        let over = match self.stage {
            Stage::Idle => false,
            Stage::Wanted { since, .. } => now >= since + PATIENCE,
            Stage::Told { at, .. } => now >= at + LONGEST_TRACE,
        };
        if over {
            self.stage = Stage::Idle;
        }
    }
}
