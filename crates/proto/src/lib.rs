//! The protocol between a hook inside a training process and litd, over a unix socket. `ingest.proto` is the
//! contract: fields, units, order, and the rule for other versions.
//!
//! - [`frame`]: bytes of a stream to complete messages and back, without I/O;
//! - [`FromHook`] and [`ToHook`]: the messages, checked: [`FromHook::decode`] returns columns of equal length,
//!   times that don't overflow and ranks that exist, and takes memory within [`Limits`], whatever a stranger sent;
//! - [`NameDictionary`]: the kernel names of one connection;
//! - [`wire`]: the bare messages as generated from `ingest.proto`, unchecked;
//! - [`client`]: a hook's end of the socket, for the rig and for tests.
//!
//! # Other versions
//!
//! Both sides go by the lower of their protocol numbers ([`negotiate`]). Unknown fields and unknown enum values
//! are ignored, a message of an unknown kind decodes to [`FromHook::Unknown`] or [`ToHook::Unknown`]. Fields are
//! never renumbered or given another meaning. So a hook one release older or newer works.

pub mod client;
mod columns;
mod error;
pub mod frame;
mod from_hook;
mod limits;
mod names;
mod text;
mod to_hook;
mod walk;
pub mod wire;

pub use error::WireError;
pub use from_hook::{Bye, Class, FromHook, Hello, Kernels, Notice, NoticeKind, SetClock, Tick};
pub use limits::Limits;
pub use names::NameDictionary;
pub use to_hook::{Directive, Profiling, Refusal, RefusalCode, ToHook, Welcome};

/// The protocol that this crate speaks, and the highest it understands.
pub const PROTOCOL: u32 = 1;

/// The protocol that both speak: the lower of `theirs` and [`PROTOCOL`]. `None` if there is none
/// ([`RefusalCode::Protocol`]).
#[must_use]
pub fn negotiate(theirs: u32) -> Option<u32> {
    Some(theirs.min(PROTOCOL)).filter(|&both| both > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_protocol_rules() {
        assert_eq!(negotiate(PROTOCOL), Some(PROTOCOL));
        assert_eq!(negotiate(PROTOCOL + 1), Some(PROTOCOL));
        assert_eq!(negotiate(0), None);
    }
}
