//! How much a peer may send.

use crate::error::WireError;

/// How much of what one message may have. It is checked before memory is taken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Kernels in one message.
    pub kernels: usize,
    /// New kernel names in one message, and names in one [`NameDictionary`](crate::NameDictionary).
    pub names: usize,
    /// Bytes of all new kernel names in one message, and of all names in one dictionary.
    pub name_bytes: usize,
    /// Bytes of any other text (job, GPU, versions, reason).
    pub text_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            kernels: 100_000,
            names: 4096,
            name_bytes: 1 << 20,
            text_bytes: 1024,
        }
    }
}

/// [`WireError::Limit`] if `found` is above `limit`.
pub(crate) fn within(what: &'static str, found: usize, limit: usize) -> Result<(), WireError> {
    match found > limit {
        true => Err(WireError::Limit { what, found, limit }),
        false => Ok(()),
    }
}
