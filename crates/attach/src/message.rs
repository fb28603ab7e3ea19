//! The datagrams: a head of 40 bytes (the body's length as a u64, then the kind as text in 32 bytes, filled up with
//! NUL), and the body. Numbers are in the machine's byte order, because client and daemon share a kernel.

use std::fmt;

/// The bytes of a datagram's head.
pub const HEAD: usize = 40;

/// The bytes of the kind's name in the head.
const KIND: usize = 32;

/// A poll's body up to its process ids.
const POLL: usize = 16;

/// The body of a registration.
const REGISTER: usize = 16;

/// The most process ids in a poll. Clients name themselves and ten ancestors at most.
const MOST_PIDS: usize = 32;

/// No client sends a longer datagram, in bytes. A longer one is cut by the kernel and then malformed.
pub const LONGEST: usize = HEAD + POLL + 4 * MOST_PIDS;

const ASKS: &[u8] = b"req";
const REGISTERS: &[u8] = b"ctxt";

/// A datagram of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// A client asks whether it is to record a trace. The client waits for an answer in any case.
    Poll(Poll),
    /// A client of an older release says on which GPU it is, and waits for a number.
    Register(Register),
}

/// A client's question whether it is to record a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Poll {
    /// The kinds of configurations that the client takes: 2 is for traces; 1 and 3 are in older releases.
    pub kinds: i32,
    /// `SLURM_JOB_ID` in the client's environment, or 0.
    pub job: i64,
    /// The client's process id in its own namespace, as it says.
    pub own: i32,
    /// Ids of its ancestors there, its parent first.
    pub ancestors: Vec<i32>,
}

/// A client's word on its GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register {
    /// The GPU's number for this process.
    pub gpu: i32,
    /// The client's process id in its own namespace, as it says.
    pub own: i32,
    /// `SLURM_JOB_ID` in the client's environment, or 0.
    pub job: i64,
}

/// Why a datagram is no client's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// The head is cut.
    Head,
    /// The head announces another length than the body has.
    Length,
    /// The kind is no known one.
    Kind,
    /// The body's own numbers contradict its length.
    Body,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Head => "its head is cut",
            Self::Length => "its head announces another length than it has",
            Self::Kind => "its kind is none that PyTorch's client sends",
            Self::Body => "its body is not as long as the numbers in it say",
        })
    }
}

impl Message {
    /// Reads a datagram, which may be anything.
    ///
    /// # Errors
    /// The datagram is not as a client writes it.
    pub fn read(datagram: &[u8]) -> Result<Self, Malformed> {
        let (head, body) = datagram.split_at_checked(HEAD).ok_or(Malformed::Head)?;
        let mut head = Fields(head);
        let length = head.u64().ok_or(Malformed::Head)?;
        let kind = head.0.split(|&byte| byte == 0).next().unwrap_or_default();
        if usize::try_from(length) != Ok(body.len()) {
            return Err(Malformed::Length);
        }
        match kind {
            ASKS => Poll::read(body).map(Self::Poll).ok_or(Malformed::Body),
            REGISTERS => Register::read(body)
                .map(Self::Register)
                .ok_or(Malformed::Body),
            _ => Err(Malformed::Kind),
        }
    }
}

impl Poll {
    fn read(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let kinds = fields.i32()?;
        let count = usize::try_from(fields.i32()?).ok()?;
        let job = fields.i64()?;
        // A poll without a process id is nobody's.
        if !(1..=MOST_PIDS).contains(&count) || fields.0.len() != 4 * count {
            return None;
        }
        let own = fields.i32()?;
        let ancestors = std::iter::from_fn(|| fields.i32()).collect();
        Some(Self {
            kinds,
            job,
            own,
            ancestors,
        })
    }
}

impl Register {
    fn read(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let (gpu, own, job) = (fields.i32()?, fields.i32()?, fields.i64()?);
        (body.len() == REGISTER).then_some(Self { gpu, own, job })
    }
}

/// The answer to a [`Poll`]: the configuration of a trace, or nothing to do (an empty text).
#[must_use]
pub fn answer(configuration: &str) -> Vec<u8> {
    datagram(ASKS, configuration.as_bytes())
}

/// The answer to a [`Register`]: how many clients of the job are on that GPU.
#[must_use]
pub fn registered(count: i32) -> Vec<u8> {
    datagram(REGISTERS, &count.to_ne_bytes())
}

fn datagram(kind: &[u8], body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + body.len());
    bytes.extend((body.len() as u64).to_ne_bytes());
    bytes.extend(kind);
    bytes.resize(HEAD.max(HEAD - KIND + kind.len()), 0);
    bytes.extend(body);
    bytes
}

/// Numbers, one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_ne_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.take().map(i32::from_ne_bytes)
    }
}
