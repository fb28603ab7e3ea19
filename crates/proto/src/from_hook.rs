//! Messages from hooks to litd.

use std::collections::BTreeMap;

use litd_units::{Hertz, Nanos};
use prost::Message as _;

use crate::columns::Columns;
use crate::error::WireError;
use crate::limits::{Limits, within};
use crate::text::{naming, printable};
use crate::walk::{self, Bound, Measure};
use crate::wire::{self, from_hook::Message, notice::Kind};

/// How many entries [`Hello::versions`] may have.
const VERSIONS: usize = 32;

/// No GPU is clocked higher.
const MEGAHERTZ: usize = 10_000;

/// From a hook to litd: one message per frame.
#[derive(Debug, Clone, PartialEq)]
pub enum FromHook {
    /// The hook's identity.
    Hello(Hello),
    /// A profiled iteration.
    Kernels(Kernels),
    /// Any iteration.
    Tick(Tick),
    /// The hook goes.
    Bye(Bye),
    /// A message for the node's operator.
    Notice(Notice),
    /// The clock that this rank's GPU is to have from now on.
    SetClock(SetClock),
    /// A message of a later protocol, to be ignored.
    Unknown,
}

/// The hook's identity: the first message of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The highest protocol the hook speaks; see [`negotiate`](crate::negotiate).
    pub protocol: u32,
    /// The job's name, the same in all its ranks on this node. Never empty, no control
    /// characters.
    pub job: String,
    /// The rank among all ranks of the job, below `world_size`.
    pub rank: u32,
    /// The rank among the job's ranks on this node, below `local_world_size`.
    pub local_rank: u32,
    /// Ranks of the job on all nodes, at least 1.
    pub world_size: u32,
    /// Ranks of the job on this node, 1 to `world_size`.
    pub local_world_size: u32,
    /// The GPU this rank computes on: PCI address (`0000:85:00.0`) or UUID (`GPU-...`). Never
    /// empty, no control characters; whether there is such a GPU is for the caller to see.
    pub gpu: String,
    /// The training framework, such as `pytorch`.
    pub framework: String,
    /// Versions by name, such as `torch`: `2.9.1`; at most 32.
    pub versions: BTreeMap<String, String>,
    /// Ranks of the job with the same text do equal work, such as `stage 1` in a pipeline. Empty: all ranks do.
    /// Control characters have been replaced.
    pub group: String,
}

/// The kind of work that a kernel does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Class {
    /// The name tells, or the hook is of a later protocol.
    #[default]
    Unspecified,
    /// Work of the model.
    Computation,
    /// A collective or another exchange between GPUs.
    Communication,
    /// A copy or fill of memory.
    Copy,
    /// A collective all of whose ranks are on this node.
    CommunicationInside,
    /// A collective some of whose ranks are on other nodes.
    CommunicationOutside,
}

/// A profiled iteration of a rank, its kernels in columns: kernel `k` is element `k` of `name`, `stream`, `class`,
/// `start` and `duration_of`, which are equally long.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kernels {
    /// The iteration's number, counted by the training loop.
    pub iteration: u64,
    /// Wall time of the iteration; not negative.
    pub duration: Nanos,
    /// Names to append to the connection's [`NameDictionary`](crate::NameDictionary) first.
    /// Control characters have been replaced.
    pub new_names: Vec<String>,
    /// Ids of names. Whether the dictionary has them is for the caller to see.
    pub name: Vec<u32>,
    /// Streams they ran on.
    pub stream: Vec<u32>,
    /// The kinds of their work.
    pub class: Vec<Class>,
    /// When they started, by a clock that all ranks of the node share; not negative.
    pub start: Vec<Nanos>,
    /// How long they ran; not negative, and `start + duration_of` fits in a [`Nanos`].
    pub duration_of: Vec<Nanos>,
    /// Whether every collective is a kernel of its own here, and no part of another.
    pub shows_collectives: bool,
}

/// An iteration of a rank, profiled or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tick {
    /// The iteration's number, counted by the training loop.
    pub iteration: u64,
    /// Wall time of the iteration; not negative.
    pub duration: Nanos,
    /// Whether the profiler ran: such an iteration is slower than others.
    pub profiled: bool,
    /// The time that measuring cost the training loop before the iteration began and after it ended; not part of
    /// `duration`.
    pub overhead: Nanos,
}

/// The hook goes, and does not come back by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bye {
    /// Why, in words. Control characters have been replaced.
    pub reason: String,
}

/// A message for the node's operator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notice {
    /// The subject.
    pub kind: NoticeKind,
    /// In words. Control characters have been replaced.
    pub text: String,
    /// With [`NoticeKind::ProfilingSafe`]: so many samples in a row the profiler has lost nothing.
    pub samples: u32,
}

/// The clock that this rank's GPU is to have from now on.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SetClock {
    /// The clock of the compute units; `None`: the driver chooses.
    pub clock: Option<Hertz>,
}

/// The subject of a [`Notice`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum NoticeKind {
    /// No other kind, or one of a later protocol.
    #[default]
    Unspecified,
    /// The profiler is not used on this node any more.
    ProfilingOff,
    /// The first job that used the profiler went on as before.
    ProfilingSafe,
}

impl FromHook {
    /// Reads one frame (without its length prefix) that a hook sent.
    ///
    /// # Errors
    /// [`WireError`]: the bytes are no such message, what they say can't be (columns of unequal
    /// length, times out of range, ranks that can't exist, no job), or there is more in them than
    /// `limits` allow. That is seen before memory is taken for it: what is taken is within a
    /// small multiple of the limits, whatever the frame.
    pub fn decode(frame: &[u8], limits: &Limits) -> Result<Self, WireError> {
        let Some((number, message)) = walk::member(frame, 6)? else {
            return Ok(Self::Unknown);
        };
        Ok(match number {
            1 => Self::Hello(Hello::decode(message, limits)?),
            2 => Self::Kernels(Kernels::decode(message, limits)?),
            3 => Self::Tick(Tick::decode(message)?),
            4 => Self::Bye(Bye::decode(message, limits)?),
            5 => Self::Notice(Notice::decode(message, limits)?),
            _ => Self::SetClock(SetClock::decode(message)?),
        })
    }

    /// The frame, without its length prefix. [`FromHook::Unknown`] is empty, and no frame. What
    /// [`FromHook::decode`] would refuse is encoded as far as it can be: a negative duration is 0.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let message = match self {
            Self::Hello(hello) => Some(Message::Hello(hello.to_wire())),
            Self::Kernels(kernels) => Some(Message::Kernels(kernels.to_wire())),
            Self::Tick(tick) => Some(Message::Tick(tick.to_wire())),
            Self::Bye(bye) => Some(Message::Bye(wire::Bye {
                reason: bye.reason.clone(),
            })),
            Self::Notice(notice) => Some(Message::Notice(notice.to_wire())),
            Self::SetClock(wish) => Some(Message::SetClock(wish.to_wire())),
            Self::Unknown => None,
        };
        wire::FromHook { message }.encode_to_vec()
    }
}

impl Hello {
    fn decode(message: &[u8], limits: &Limits) -> Result<Self, WireError> {
        let versions = |measure, what, limit| Bound {
            field: 9,
            what,
            measure,
            limit,
        };
        let bounds = [
            Bound::text(2, "bytes of job", limits),
            Bound::text(7, "bytes of gpu", limits),
            Bound::text(8, "bytes of framework", limits),
            Bound::text(10, "bytes of group", limits),
            versions(Measure::Occurrences, "versions", VERSIONS),
            versions(
                Measure::Bytes,
                "bytes of versions",
                limits.text_bytes.saturating_mul(VERSIONS),
            ),
        ];
        walk::check(message, &bounds)?;
        let hello = wire::Hello::decode(message)?;
        check_ranks(&hello)?;
        let versions = hello.versions.into_iter();
        Ok(Self {
            protocol: hello.protocol,
            job: naming("job", hello.job)?,
            rank: hello.rank,
            local_rank: hello.local_rank,
            world_size: hello.world_size,
            local_world_size: hello.local_world_size,
            gpu: naming("gpu", hello.gpu)?,
            framework: printable(hello.framework),
            versions: versions
                .map(|(name, version)| (printable(name), printable(version)))
                .collect(),
            group: printable(hello.group),
        })
    }

    fn to_wire(&self) -> wire::Hello {
        wire::Hello {
            protocol: self.protocol,
            job: self.job.clone(),
            rank: self.rank,
            local_rank: self.local_rank,
            world_size: self.world_size,
            local_world_size: self.local_world_size,
            gpu: self.gpu.clone(),
            framework: self.framework.clone(),
            versions: self.versions.clone(),
            group: self.group.clone(),
        }
    }
}

/// Counts of 0 are refused with the ranks: none is below 0.
fn check_ranks(hello: &wire::Hello) -> Result<(), WireError> {
    let below = |what, found, of, count| match found < count {
        true => Ok(()),
        false => Err(WireError::Rank {
            what,
            found,
            of,
            count,
        }),
    };
    let (local, world) = (hello.local_world_size, hello.world_size);
    below("rank", hello.rank, "world_size", world)?;
    below("local_rank", hello.local_rank, "local_world_size", local)?;
    match local > world {
        true => Err(WireError::WorldSize { local, world }),
        false => Ok(()),
    }
}

impl Kernels {
    fn decode(message: &[u8], limits: &Limits) -> Result<Self, WireError> {
        walk::check(message, &Self::bounds(limits))?;
        let (columns, wire) = Columns::split(message)?;
        let mut kernels = Self {
            iteration: wire.iteration,
            duration: nanos("duration_ns", wire.duration_ns)?,
            new_names: wire.new_names.into_iter().map(printable).collect(),
            shows_collectives: wire.shows_collectives,
            ..Self::default()
        };
        columns.read(&mut kernels)?;
        Ok(kernels)
    }

    fn bounds(limits: &Limits) -> [Bound; 7] {
        let bound = |field, what, measure, limit| Bound {
            field,
            what,
            measure,
            limit,
        };
        let column = |field| bound(field, "kernels", Measure::Elements, limits.kernels);
        [
            bound(3, "new names", Measure::Occurrences, limits.names),
            bound(3, "bytes of new names", Measure::Bytes, limits.name_bytes),
            column(4),
            column(5),
            column(6),
            column(7),
            column(8),
        ]
    }

    fn to_wire(&self) -> wire::Kernels {
        let mut before = 0;
        let mut delta = |start: &Nanos| {
            // Two times that may be sent are never further apart than i64 can say.
            let delta = start.0.wrapping_sub(before);
            before = start.0;
            delta
        };
        wire::Kernels {
            iteration: self.iteration,
            duration_ns: to_u64(self.duration),
            new_names: self.new_names.clone(),
            name: self.name.clone(),
            stream: self.stream.clone(),
            kernel_class: self.class.iter().map(|class| class.to_wire()).collect(),
            start_delta_ns: self.start.iter().map(&mut delta).collect(),
            kernel_duration_ns: self.duration_of.iter().map(|&time| to_u64(time)).collect(),
            shows_collectives: self.shows_collectives,
        }
    }
}

impl Tick {
    fn decode(message: &[u8]) -> Result<Self, WireError> {
        let tick = wire::Tick::decode(message)?;
        Ok(Self {
            iteration: tick.iteration,
            duration: nanos("duration_ns", tick.duration_ns)?,
            profiled: tick.profiled,
            overhead: nanos("overhead_ns", tick.overhead_ns)?,
        })
    }

    fn to_wire(self) -> wire::Tick {
        wire::Tick {
            iteration: self.iteration,
            duration_ns: to_u64(self.duration),
            profiled: self.profiled,
            overhead_ns: to_u64(self.overhead),
        }
    }
}

impl Bye {
    fn decode(message: &[u8], limits: &Limits) -> Result<Self, WireError> {
        walk::check(message, &[Bound::text(1, "bytes of reason", limits)])?;
        let reason = printable(wire::Bye::decode(message)?.reason);
        Ok(Self { reason })
    }
}

impl Notice {
    fn decode(message: &[u8], limits: &Limits) -> Result<Self, WireError> {
        walk::check(message, &[Bound::text(2, "bytes of text", limits)])?;
        let notice = wire::Notice::decode(message)?;
        let kind = match Kind::try_from(notice.kind) {
            Ok(Kind::ProfilingOff) => NoticeKind::ProfilingOff,
            Ok(Kind::ProfilingSafe) => NoticeKind::ProfilingSafe,
            Ok(Kind::Unspecified) | Err(_) => NoticeKind::Unspecified,
        };
        Ok(Self {
            kind,
            text: printable(notice.text),
            samples: notice.samples,
        })
    }

    fn to_wire(&self) -> wire::Notice {
        let kind = match self.kind {
            NoticeKind::Unspecified => Kind::Unspecified,
            NoticeKind::ProfilingOff => Kind::ProfilingOff,
            NoticeKind::ProfilingSafe => Kind::ProfilingSafe,
        };
        wire::Notice {
            kind: kind.into(),
            text: self.text.clone(),
            samples: self.samples,
        }
    }
}

impl SetClock {
    fn decode(message: &[u8]) -> Result<Self, WireError> {
        let megahertz = wire::SetClock::decode(message)?.megahertz;
        within("megahertz", megahertz as usize, MEGAHERTZ)?;
        let clock = (megahertz > 0).then(|| Hertz(f64::from(megahertz) * 1e6));
        Ok(Self { clock })
    }

    fn to_wire(self) -> wire::SetClock {
        // `as` saturates.
        let megahertz = self.clock.map_or(0, |clock| (clock.0 / 1e6).round() as u32);
        wire::SetClock { megahertz }
    }
}

impl Class {
    pub(crate) fn of_wire(number: i32) -> Self {
        match wire::Class::try_from(number) {
            Ok(wire::Class::Computation) => Self::Computation,
            Ok(wire::Class::Communication) => Self::Communication,
            Ok(wire::Class::Copy) => Self::Copy,
            Ok(wire::Class::CommunicationInside) => Self::CommunicationInside,
            Ok(wire::Class::CommunicationOutside) => Self::CommunicationOutside,
            Ok(wire::Class::Unspecified) | Err(_) => Self::Unspecified,
        }
    }

    fn to_wire(self) -> i32 {
        let class = match self {
            Self::Unspecified => wire::Class::Unspecified,
            Self::Computation => wire::Class::Computation,
            Self::Communication => wire::Class::Communication,
            Self::Copy => wire::Class::Copy,
            Self::CommunicationInside => wire::Class::CommunicationInside,
            Self::CommunicationOutside => wire::Class::CommunicationOutside,
        };
        class.into()
    }
}

fn nanos(what: &'static str, wire: u64) -> Result<Nanos, WireError> {
    i64::try_from(wire)
        .map(Nanos)
        .map_err(|_| WireError::Time { what })
}

fn to_u64(time: Nanos) -> u64 {
    u64::try_from(time.0).unwrap_or(0)
}
