//! The ring through which the plugin for NCCL and RCCL (`hooks/attach/nccl`) tells of collectives: what is at which
//! place of its file, and how it is read. The plugin maps the file and writes; the reader reads the file and never maps
//! it, so that a process that shortens its file does no more to the reader than an error.
//!
//! A file is [`HEADER`] bytes and then [`SLOTS`] records of [`RECORD`] bytes, all of 64-bit words in the machine's own
//! order. The n-th record that is written, counted from 0, is in slot n % [`SLOTS`]: the newest take the place of the
//! oldest, so writers wait for nobody. Each record has its number and a [check](Record::words) over its words: one that
//! is being written, or was overwritten while it was read, does not pass for a record.

mod common;
mod communicators;
mod reader;
mod record;
mod tick;

pub use common::{NoCommon, common};
pub use communicators::{Communicators, Timed};
pub use reader::{Batch, Reader, Unreadable};
pub use record::{Function, Record};
pub use tick::Tick;

/// How the names of rings begin.
pub const BEGIN: &str = "nccl-";
/// How they end, behind a dot.
pub const END: &str = "ring";

/// Words of the header.
pub const HEADER_WORDS: usize = 16;
/// Words of a record.
pub const RECORD_WORDS: usize = 10;
/// Bytes of the header.
pub const HEADER: usize = HEADER_WORDS * 8;
/// Bytes of a record.
pub const RECORD: usize = RECORD_WORDS * 8;
/// Records that a ring holds: two seconds of a rank that runs 16,000 collectives in a second.
pub const SLOTS: usize = 1 << 15;
/// Bytes of the whole file.
pub const BYTES: usize = HEADER + SLOTS * RECORD;

/// The first word: `litdNCL` and the version of this layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"litdNCL\x01");

/// The word of the header that has [`MAGIC`].
pub const AT_MAGIC: usize = 0;
/// The word that has the writer's process id, in its own namespace. Nothing vouches for it.
pub const AT_PID: usize = 1;
/// The word that has the number of records begun.
pub const AT_BEGUN: usize = 8;
/// The word that has the number of collectives for which the writer had no room.
pub const AT_DROPPED: usize = 9;
