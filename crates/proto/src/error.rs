//! Why a message was not accepted.

use crate::RefusalCode;

/// Why a message was not accepted. Texts are of this crate only: nothing that a peer sent is
/// repeated, so they may go to a log as they are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes are no protobuf message at all.
    #[error("the message is malformed: {0}")]
    Malformed(&'static str),
    /// The bytes are a protobuf message, but of another type, or a text in it is no UTF-8.
    #[error("the message is malformed: {0}")]
    Decode(#[from] prost::DecodeError),
    /// More of something than [`Limits`](crate::Limits) allow.
    #[error("{what}: {found}, and the limit is {limit}")]
    Limit {
        /// Of what.
        what: &'static str,
        /// How many or how much there is.
        found: usize,
        /// How many or how much there may be.
        limit: usize,
    },
    /// The columns of [`Kernels`](crate::Kernels) differ in length.
    #[error("column {column} has {found} elements, column name has {kernels}")]
    Columns {
        /// The column, as `ingest.proto` calls it.
        column: &'static str,
        /// The column's length.
        found: usize,
        /// The length of the column `name`.
        kernels: usize,
    },
    /// A time is negative, or does not fit in 63 bits.
    #[error("{what} is negative or not below 2^63 ns")]
    Time {
        /// The field.
        what: &'static str,
    },
    /// A kernel's start is negative, or its end does not fit in 63 bits.
    #[error("kernel {kernel}: its start is negative or its end not below 2^63 ns")]
    KernelTime {
        /// The kernel's place in the columns.
        kernel: usize,
    },
    /// The ranks of a [`Hello`](crate::Hello) can't be.
    #[error("{what} {found} is not below {of} {count}")]
    Rank {
        /// The field: `rank`, `local_rank`.
        what: &'static str,
        /// The value.
        found: u32,
        /// The field that it must be below: `world_size`, `local_world_size`.
        of: &'static str,
        /// The value of that field.
        count: u32,
    },
    /// More ranks on this node than on all.
    #[error("local_world_size {local} is above world_size {world}")]
    WorldSize {
        /// Ranks on this node.
        local: u32,
        /// Ranks on all nodes.
        world: u32,
    },
    /// A text that must say something is empty.
    #[error("{0} is empty")]
    Empty(&'static str),
    /// A text that names something has control characters.
    #[error("{0} has control characters")]
    Control(&'static str),
}

impl WireError {
    /// The refusal that a hook which sent such a message gets.
    #[must_use]
    pub fn code(&self) -> RefusalCode {
        match self {
            Self::Limit { .. } => RefusalCode::Limits,
            _ => RefusalCode::Malformed,
        }
    }
}
