//! Jobs whose scripts know nothing of litd, in two ways. PyTorch's on-demand client (Kineto), which a process has once
//! `KINETO_USE_DAEMON` is in its environment, asks a daemon for configurations of traces: litd answers in dynolog's
//! place ([`litd_attach`]).
//!
//! - `socket`: the sockets and their threads, which do nothing but answer;
//! - `wishes`: traces on demand that an administrator requests (`litctl trace`);
//! - `names`: which process holds the name `dynolog`, if litd can't have it;
//! - `dynolog`, `through`: where dynolog answers the clients, requests to it for traces;
//! - `sampler`: jobs without a hook that are observed and steered by such traces;
//! - `rings`: those that are by arrivals at collectives, which litd's plugin for NCCL and RCCL notes;
//! - `ranks`, `errands`: what both do to make ranks of processes without a hook; `guests`: these ranks;
//! - `launcher`: the rank that a launcher has given a process; `looked`: what procfs tells of it.
//!
//! A request for a trace is put on a list (`Desk`), which the threads and the loop share.

mod dynolog;
mod errands;
mod guests;
mod launcher;
mod looked;
mod names;
mod ranks;
mod rings;
mod sampler;
mod socket;
mod through;
mod wishes;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use litd_attach::Desk;
use litd_units::Nanos;

use crate::clock::Clock;
use crate::config::{Config, Shell};
use crate::hub::Shared;
use crate::owners;
pub use guests::{Guests, Newcomer};
pub use launcher::Environment;
use litd_files as files;
use rings::Rings;
pub use rings::Shown;
use sampler::Sampler;
use socket::Socket;
use through::Through;
pub use wishes::Wishes;

/// The clients, as the threads and the loop share them.
#[derive(Debug, Clone, Default)]
pub struct Desks(Arc<Mutex<Desk>>);

impl Desks {
    /// The desk, for a moment.
    fn desk(&self) -> MutexGuard<'_, Desk> {
        // No thread panics while it holds this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The process that answers PyTorch's on-demand client now, in words; `None` where none does, or the kernel does not
/// tell.
#[must_use]
pub fn owner(proc: &Path) -> Option<String> {
    names::owner(proc, socket::NAME)
}

/// Why litd could read no rings in this directory, in words; `None` if it could.
#[must_use]
pub fn rings_trouble(directory: &Path) -> Option<String> {
    rings::trouble(directory)
}

/// Why litd could make no socket for pods in this directory, in words; `None` if it could.
#[must_use]
pub fn directory_trouble(directory: &Path) -> Option<String> {
    fit(directory).err()
}

/// The time at the desk. A rig's clock is not asked: clients wait in real time.
fn now() -> Nanos {
    Clock::Kernel.now()
}

/// Whether nobody else can put files in each other's place in a directory.
fn fit(directory: &Path) -> Result<(), String> {
    let name = directory.display();
    let there = fs::symlink_metadata(directory).map_err(|error| format!("{name}: {error}"))?;
    let mode = there.mode();
    let is_shared = mode & 0o022 != 0 && mode & 0o1000 == 0;
    if !there.is_dir() || files::is_others(there.uid()) || is_shared {
        return Err(format!(
            "{name}: must be a directory of root's in which nobody replaces another's files: chown root, chmod 1777"
        ));
    }
    Ok(())
}

/// The sockets before they are served.
#[derive(Debug, Default)]
pub struct Attach {
    desks: Option<Desks>,
    sockets: Vec<Socket>,
    through: Option<Through>,
    said: Vec<String>,
}

impl Attach {
    /// Takes the names that clients know, where the administrator has turned that on. A name that another process
    /// has is left alone: what could not be taken is said once, in words ([`Attach::said`]).
    #[must_use]
    pub fn open(shell: &Shell) -> Self {
        if !shell.attach.kineto {
            return Self::default();
        }
        let directory = shell.attach.kineto_directory.as_deref();
        let proc = &shell.hardware.proc;
        let owners = owners::read(&shell.ingest.subordinate_ids);
        let in_directory = directory.map(|directory| Socket::within(directory, proc, &owners));
        let through = shell.attach.dynolog;
        let through = through.map(|address| Through::new(address, proc, owners.clone()));
        // The name is dynolog's then, be dynolog there already or not.
        let by_name = through.is_none().then(|| Socket::by_name(proc, &owners));
        let (mut sockets, mut said) = (Vec::new(), Vec::new());
        for outcome in [by_name, in_directory] {
            match outcome {
                Some(Ok(socket)) => sockets.push(socket),
                Some(Err(why)) => said.push(format!("no process is asked for traces there: {why}")),
                None => {}
            }
        }
        Self {
            desks: Some(Desks::default()),
            sockets,
            through,
            said,
        }
    }

    /// Names that could not be taken, and why, in words.
    #[must_use]
    pub fn said(&self) -> &[String] {
        &self.said
    }

    /// Answers from now on, on a thread for each socket.
    pub fn serve(&mut self) {
        for socket in self.sockets.drain(..) {
            let desks = self.desks.clone().unwrap_or_default();
            if let Err(error) = socket.serve(desks) {
                log::error!("no thread can answer processes that ask for traces: {error}");
            }
        }
    }

    /// Where traces are wished for; `None` if that is off.
    #[must_use]
    pub fn wishes(&self, shell: &Shell) -> Option<Rc<Wishes>> {
        let desks = self.desks.clone()?;
        let folder = shell.attach.traces.clone();
        let (through, said) = (self.through.clone(), self.said.clone());
        Some(Rc::new(Wishes::new(desks, through, folder, said)))
    }

    /// Samples jobs without a hook for ever, where the administrator has turned that on.
    #[must_use]
    pub fn sampler(
        wishes: Option<Rc<Wishes>>,
        config: &Config,
        hub: &Shared,
    ) -> Option<impl Future<Output = ()> + use<>> {
        let attach = &config.shell.attach;
        let wishes = wishes.filter(|_| attach.kineto_samples)?;
        let nanos = |seconds: f64| Nanos((seconds * 1e9) as i64);
        let every = nanos(attach.kineto_every_seconds);
        let stale = nanos(config.core.jobs.stale_seconds);
        hub.borrow_mut().expect_guests();
        let sampler = Sampler::new(wishes, &config.shell.hardware.proc, every, stale);
        Some(sampler.serve(hub.clone()))
    }

    /// Samples jobs by the rings of the plugin for NCCL for ever, where the administrator has named their directory.
    #[must_use]
    pub fn rings(shell: &Shell, hub: &Shared) -> Option<impl Future<Output = ()> + use<>> {
        let directory = shell.attach.nccl_directory.as_deref()?;
        let owners = owners::read(&shell.ingest.subordinate_ids);
        let shown = Rc::new(Shown::default());
        hub.borrow_mut().expect_guests();
        hub.borrow_mut().show_rings(shown.clone());
        let rings = Rings::new(shown, directory, &shell.hardware.proc, owners);
        Some(rings.serve(hub.clone()))
    }
}
