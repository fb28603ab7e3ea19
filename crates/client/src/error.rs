//! Errors between a program and litd.

use std::path::PathBuf;

/// Why the daemon did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No process listens there, or the user may not connect.
    #[error("{}: {why}", socket.display())]
    Unreachable {
        /// The control socket.
        socket: PathBuf,
        /// The problem and a remedy.
        why: String,
    },
    /// The connection was accepted, but no answer came.
    #[error(
        "{}: litd took the call and did not answer within {seconds} s (systemctl status litd)",
        socket.display()
    )]
    Silent {
        /// The control socket.
        socket: PathBuf,
        /// How long that is.
        seconds: f64,
    },
    /// The connection was accepted, and ended without an answer: litd may have done what it was asked for or not.
    #[error("{}: litd took the call and ended before it answered: {why}", socket.display())]
    Lost {
        /// The control socket.
        socket: PathBuf,
        /// What broke.
        why: String,
    },
    /// The answer does not follow litd's protocol.
    #[error("litd's answer can't be read: {0}")]
    Answer(String),
    /// litd says no.
    #[error("{0}")]
    Refused(String),
}

impl ControlError {
    /// Whether litd was asked wrongly, as opposed to not being there as it should.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// Whether a daemon that is just restarting looks like this.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Lost { .. }
        )
    }
}
