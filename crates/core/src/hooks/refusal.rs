//! Why a hook is not let in, or no longer heard.

use litd_proto::{Refusal, RefusalCode};
use litd_units::Nanos;

/// A refused hook may try again after so long, where the reason may pass.
const RETRY: Nanos = Nanos(5_000_000_000);

/// A refusal in the making.
#[derive(Debug)]
pub(crate) struct No {
    code: RefusalCode,
    /// The label for the counter.
    pub label: &'static str,
    pub reason: String,
    may_pass: bool,
}

impl No {
    /// A refusal for a reason that does not pass.
    pub fn new(code: RefusalCode, label: &'static str, reason: impl Into<String>) -> Self {
        Self {
            code,
            label,
            reason: reason.into(),
            may_pass: false,
        }
    }

    /// The hook may try again later.
    pub fn for_now(self) -> Self {
        Self {
            may_pass: true,
            ..self
        }
    }

    /// The message to the hook.
    pub fn message(self) -> Refusal {
        Refusal {
            code: self.code,
            reason: self.reason,
            retry_after: self.may_pass.then_some(RETRY),
        }
    }
}
