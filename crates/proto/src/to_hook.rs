//! Messages from litd to hooks.

use litd_units::Nanos;
use prost::Message as _;

use crate::error::WireError;
use crate::limits::Limits;
use crate::text::printable;
use crate::walk::{self, Bound};
use crate::wire::{self, refusal::Code, to_hook::Message};

/// Nanoseconds in the unit of `retry_after_ms`.
const MILLISECOND: i64 = 1_000_000;

/// From litd to a hook: one message per frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToHook {
    /// litd listens.
    Welcome(Welcome),
    /// The iterations to profile from now on.
    Directive(Directive),
    /// litd does not listen, and closes.
    Refusal(Refusal),
    /// A message of a later protocol, to be ignored.
    Unknown,
}

/// litd listens: its answer to [`Hello`](crate::Hello).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Welcome {
    /// The protocol that both speak: the lower of the two.
    pub protocol: u32,
    /// litd's version, such as `0.1.0`.
    pub daemon: String,
    /// The iterations to profile.
    pub directive: Directive,
    /// Whether this hook may use the profiler, if it would.
    pub profiling: Profiling,
    /// Why not, in words. Control characters have been replaced.
    pub profiling_reason: String,
}

/// The node's results of a profiler with the versions that a hook told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Profiling {
    /// litd does not say: what the hook knows by itself holds.
    #[default]
    Unspecified,
    /// The first job to use it here, which has to report the result.
    Try,
    /// Another job is the first, and has not told yet.
    Wait,
    /// A job tried it, and ran as before.
    Safe,
    /// The profiler has done harm here.
    Off,
}

/// The iterations to profile; replaces every earlier directive. The default: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Directive {
    /// The first iteration to profile.
    pub first: u64,
    /// The distance between profiled iterations; 0: profile none.
    pub period: u64,
    /// Profile none until a directive without it arrives. Ticks go on.
    pub pause: bool,
}

impl Directive {
    /// Whether a hook profiles this iteration.
    #[must_use]
    pub fn profiles(&self, iteration: u64) -> bool {
        let since = iteration.checked_sub(self.first);
        let due = since.and_then(|since| since.checked_rem(self.period)) == Some(0);
        due && !self.pause
    }
}

/// litd does not listen to this hook, and closes the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The kind of refusal.
    pub code: RefusalCode,
    /// The reason and a remedy, in words.
    pub reason: String,
    /// When to try again, from now, in whole milliseconds (rounded up); `None`: don't.
    pub retry_after: Option<Nanos>,
}

/// Why litd does not listen to a hook.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum RefusalCode {
    /// No other kind, or one of a later protocol.
    #[default]
    Unspecified,
    /// There is no protocol that both speak.
    Protocol,
    /// A frame or message is not what `ingest.proto` says.
    Malformed,
    /// More kernels, names, bytes, frames or connections than the configuration allows.
    Limits,
    /// The process does not hold the GPU that it named.
    NotHolder,
    /// The job's other ranks belong to another user.
    OtherUser,
    /// There is no such GPU on this node.
    GpuUnknown,
    /// Another job's rank has the GPU, or another rank of this job.
    GpuTaken,
    /// The GPU is partitioned (MIG) or shared by processes (MPS).
    GpuShared,
    /// Not now.
    Busy,
}

impl ToHook {
    /// Reads one frame (without its length prefix) that litd sent.
    ///
    /// # Errors
    /// [`WireError`]: the bytes are no such message, or a text is longer than `limits` allow.
    pub fn decode(frame: &[u8], limits: &Limits) -> Result<Self, WireError> {
        let Some((number, message)) = walk::member(frame, 3)? else {
            return Ok(Self::Unknown);
        };
        Ok(match number {
            1 => Self::Welcome(Welcome::decode(message, limits)?),
            2 => Self::Directive(Directive::of_wire(wire::Directive::decode(message)?)),
            _ => Self::Refusal(Refusal::decode(message, limits)?),
        })
    }

    /// The frame, without its length prefix. [`ToHook::Unknown`] is empty, and no frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let message = match self {
            Self::Welcome(welcome) => Some(Message::Welcome(wire::Welcome {
                protocol: welcome.protocol,
                daemon: welcome.daemon.clone(),
                directive: Some(welcome.directive.to_wire()),
                profiling: welcome.profiling.to_wire(),
                profiling_reason: welcome.profiling_reason.clone(),
            })),
            Self::Directive(directive) => Some(Message::Directive(directive.to_wire())),
            Self::Refusal(refusal) => Some(Message::Refusal(refusal.to_wire())),
            Self::Unknown => None,
        };
        wire::ToHook { message }.encode_to_vec()
    }
}

impl Welcome {
    fn decode(message: &[u8], limits: &Limits) -> Result<Self, WireError> {
        let bounds = [
            Bound::text(2, "bytes of daemon", limits),
            Bound::text(5, "bytes of profiling_reason", limits),
        ];
        walk::check(message, &bounds)?;
        let welcome = wire::Welcome::decode(message)?;
        Ok(Self {
            protocol: welcome.protocol,
            daemon: printable(welcome.daemon),
            directive: welcome
                .directive
                .map(Directive::of_wire)
                .unwrap_or_default(),
            profiling: Profiling::of_wire(welcome.profiling),
            profiling_reason: printable(welcome.profiling_reason),
        })
    }
}

impl Profiling {
    fn of_wire(number: i32) -> Self {
        match wire::Profiling::try_from(number) {
            Ok(wire::Profiling::Try) => Self::Try,
            Ok(wire::Profiling::Wait) => Self::Wait,
            Ok(wire::Profiling::Safe) => Self::Safe,
            Ok(wire::Profiling::Off) => Self::Off,
            Ok(wire::Profiling::Unspecified) | Err(_) => Self::Unspecified,
        }
    }

    fn to_wire(self) -> i32 {
        let profiling = match self {
            Self::Unspecified => wire::Profiling::Unspecified,
            Self::Try => wire::Profiling::Try,
            Self::Wait => wire::Profiling::Wait,
            Self::Safe => wire::Profiling::Safe,
            Self::Off => wire::Profiling::Off,
        };
        profiling.into()
    }
}

impl Directive {
    fn of_wire(wire: wire::Directive) -> Self {
        let wire::Directive {
            first,
            period,
            pause,
        } = wire;
        Self {
            first,
            period,
            pause,
        }
    }

    fn to_wire(self) -> wire::Directive {
        let Self {
            first,
            period,
            pause,
        } = self;
        wire::Directive {
            first,
            period,
            pause,
        }
    }
}

impl Refusal {
    fn decode(message: &[u8], limits: &Limits) -> Result<Self, WireError> {
        walk::check(message, &[Bound::text(2, "bytes of reason", limits)])?;
        let refusal = wire::Refusal::decode(message)?;
        let after = Nanos(i64::from(refusal.retry_after_ms) * MILLISECOND);
        Ok(Self {
            code: RefusalCode::of_wire(refusal.code),
            reason: printable(refusal.reason),
            retry_after: Some(after).filter(|&after| after > Nanos::ZERO),
        })
    }

    fn to_wire(&self) -> wire::Refusal {
        let after = self.retry_after.map_or(0, milliseconds);
        wire::Refusal {
            code: self.code.to_wire(),
            reason: self.reason.clone(),
            retry_after_ms: after,
        }
    }
}

/// Whole milliseconds, rounded up; at least 1, because 0 says not to come back.
fn milliseconds(time: Nanos) -> u32 {
    let rounded = time.0.saturating_add(MILLISECOND - 1) / MILLISECOND;
    u32::try_from(rounded.max(1)).unwrap_or(u32::MAX)
}

/// The codes here and on the wire, side by side.
const CODES: [(RefusalCode, Code); 10] = [
    (RefusalCode::Unspecified, Code::Unspecified),
    (RefusalCode::Protocol, Code::Protocol),
    (RefusalCode::Malformed, Code::Malformed),
    (RefusalCode::Limits, Code::Limits),
    (RefusalCode::NotHolder, Code::NotHolder),
    (RefusalCode::OtherUser, Code::OtherUser),
    (RefusalCode::GpuUnknown, Code::GpuUnknown),
    (RefusalCode::GpuTaken, Code::GpuTaken),
    (RefusalCode::GpuShared, Code::GpuShared),
    (RefusalCode::Busy, Code::Busy),
];

impl RefusalCode {
    /// All codes.
    pub const ALL: [Self; CODES.len()] = {
        let mut all = [Self::Unspecified; CODES.len()];
        let mut k = 0;
        while k < CODES.len() {
            all[k] = CODES[k].0;
            k += 1;
        }
        all
    };

    fn of_wire(number: i32) -> Self {
        let known = CODES.iter().find(|(_, code)| i32::from(*code) == number);
        known.map_or(Self::Unspecified, |(code, _)| *code)
    }

    fn to_wire(self) -> i32 {
        let found = CODES.iter().find(|(code, _)| *code == self);
        found.map_or(Code::Unspecified, |(_, code)| *code).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directive_selects_iterations() {
        let directive = Directive {
            first: 10,
            period: 5,
            pause: false,
        };
        let selected =
            |directive: Directive| Vec::from_iter((0..26).filter(|&i| directive.profiles(i)));
        assert_eq!(selected(directive), [10, 15, 20, 25]);
        let none: [u64; 0] = [];
        assert_eq!(
            selected(Directive {
                pause: true,
                ..directive
            }),
            none
        );
        assert_eq!(
            selected(Directive {
                period: 0,
                ..directive
            }),
            none
        );
        assert_eq!(selected(Directive::default()), none);
    }

    #[test]
    fn a_wait_is_rounded_up() {
        assert_eq!(milliseconds(Nanos(1)), 1);
        assert_eq!(milliseconds(Nanos(0)), 1);
        assert_eq!(milliseconds(Nanos(1_000_000)), 1);
        assert_eq!(milliseconds(Nanos(1_000_001)), 2);
        assert_eq!(milliseconds(Nanos(i64::MAX)), u32::MAX);
    }
}
