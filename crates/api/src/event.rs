//! Events and their reasons.

use serde::{Deserialize, Serialize};

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The daemon started, stopped, or read its configuration anew.
    Daemon,
    /// A job or one of its ranks came, went or was refused.
    Job,
    /// The loop changed its state, or said why it does nothing.
    State,
    /// Caps change.
    Adjustment,
    /// Caps go back to what was found.
    Restore,
    /// A foreign change of a cap, or a reset of a device.
    Foreign,
    /// An administrator asked for something.
    Command,
    /// A failure of a device, the journal or a peer.
    Fault,
    /// A trial begins or ends, or the permanent hold-out shows something.
    Trial,
}

impl EventKind {
    /// The name that the JSON has.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Daemon => "daemon",
            Self::Job => "job",
            Self::State => "state",
            Self::Adjustment => "adjustment",
            Self::Restore => "restore",
            Self::Foreign => "foreign",
            Self::Command => "command",
            Self::Fault => "fault",
            Self::Trial => "trial",
        }
    }
}

/// An event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Counts from 1 since the daemon's start.
    pub seq: u64,
    /// Wall-clock time, seconds since 1970.
    pub unix_seconds: f64,
    /// The kind.
    pub kind: EventKind,
    /// Whether a person should look at it.
    pub warning: bool,
    /// The job it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The device it is about, by address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The event and its reason, in words.
    pub text: String,
}

/// The answer to `GET /v1/events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Events {
    /// Events after the asked-for number that are still kept, oldest first.
    pub events: Vec<Event>,
    /// The number of the newest event; ask for what comes after it next time.
    pub last: u64,
    /// How many were asked for and are no longer kept.
    pub lost: u64,
}
