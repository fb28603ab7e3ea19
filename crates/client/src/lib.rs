//! How programs ask litd. litctl and litlab are made on it, and whoever leases a budget from a program can be.
//!
//! - [`Client`]: HTTP with JSON on the daemon's control socket, as `litd_api` has it, bounded in
//!   time and size; [`Follow`]: its events over its restarts;
//! - [`audit`]: the log of all writes, on disk, over its rotations;
//! - `lease` (a feature): the lease that a file grants a node.
//!
//! Text that comes from the daemon is made fit for a terminal here, because names come from jobs.

mod access;
mod answer;
pub mod audit;
mod error;
mod follow;
mod http;
#[cfg(feature = "lease")]
pub mod lease;

use std::path::Path;
use std::time::Duration;

use litd_api::{Command, Done, Events, Stacks, Status, TraceWish, Traceable, Trials, WishedTraces};

pub use error::ControlError;
pub use follow::{Follow, News};
use http::Exchange;
pub use http::{Request, converse};

/// Asks the daemon; every request is a connection of its own.
pub struct Client {
    exchange: Exchange,
}

impl Client {
    /// For the daemon that listens on `socket`. It is given five seconds for each answer.
    ///
    /// # Errors
    /// The system gives no means to wait for answers. Nothing is connected yet.
    pub fn new(socket: &Path) -> Result<Self, ControlError> {
        Ok(Self {
            exchange: Exchange::new(socket)?,
        })
    }

    /// A client that gives up after so long.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn within(socket: &Path, patience: Duration) -> Result<Self, ControlError> {
        Ok(Self {
            exchange: Exchange::within(socket, patience)?,
        })
    }

    /// How the node is.
    ///
    /// # Errors
    /// [`ControlError`]: nobody answers, or what answers is not litd.
    pub fn status(&self) -> Result<Status, ControlError> {
        self.ask(&Request::Get("/v1/status".into()))
    }

    /// The events after a number.
    ///
    /// # Errors
    /// As [`Self::status`].
    pub fn events(&self, after: u64) -> Result<Events, ControlError> {
        self.ask(&Request::Get(format!("/v1/events?after={after}")))
    }

    /// Trials and the hold-out.
    ///
    /// # Errors
    /// As [`Self::status`].
    pub fn trials(&self) -> Result<Trials, ControlError> {
        self.ask(&Request::Get("/v1/trial".into()))
    }

    /// The results of profilers on the node.
    ///
    /// # Errors
    /// As [`Self::status`].
    pub fn stacks(&self) -> Result<Stacks, ControlError> {
        self.ask(&Request::Get("/v1/stacks".into()))
    }

    /// Has the daemon do something.
    ///
    /// # Errors
    /// As [`Self::status`], or litd refuses ([`ControlError::Refused`]).
    pub fn command(&self, command: &Command) -> Result<Done, ControlError> {
        let body =
            serde_json::to_vec(command).map_err(|error| ControlError::Answer(error.to_string()))?;
        self.ask(&Request::Post("/v1/command".into(), body))
    }

    /// The processes that can record a trace on demand.
    ///
    /// # Errors
    /// As [`Self::status`].
    pub fn traceable(&self) -> Result<Traceable, ControlError> {
        self.ask(&Request::Get("/v1/trace".into()))
    }

    /// Has processes record traces.
    ///
    /// # Errors
    /// As [`Self::status`], or the daemon refuses.
    pub fn trace(&self, wish: &TraceWish) -> Result<WishedTraces, ControlError> {
        let body =
            serde_json::to_vec(wish).map_err(|error| ControlError::Answer(error.to_string()))?;
        self.ask(&Request::Post("/v1/trace".into(), body))
    }

    fn ask<T: serde::de::DeserializeOwned>(&self, request: &Request) -> Result<T, ControlError> {
        let (status, body) = self.exchange.exchange(request)?;
        answer::read(status, &body)
    }
}
