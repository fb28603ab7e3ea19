//! A thread for each domain, because drivers block.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use litd_units::Watts;
use thiserror::Error;

use crate::domain::PowerDomain;
use crate::error::PowerError;
use crate::operation::{Operation, Reply};

/// Opening NVML alone takes 100 KiB, and other libraries' needs are unknown. The usual 2 MiB would show in the
/// daemon's address space: a node has up to 18 of these threads.
pub(crate) const STACK: usize = 1024 * 1024;

/// The domain's thread has ended, which it does only if its driver panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the device's thread has ended; restart litd to use the device again")]
pub struct Stopped;

/// A domain on a thread of its own. Operations are done one at a time, in order.
///
/// Dropping it waits for nothing: an operation that is under way ends when the driver lets it and is still
/// reported; operations behind it are not begun.
#[derive(Debug)]
pub struct Worker {
    operations: Sender<Operation>,
    dropped: Arc<AtomicBool>,
}

impl Worker {
    /// Moves `domain` to a new thread called `name` (systems cut names off after 15 bytes).
    /// `report` is called there, once per operation.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(
        domain: Box<dyn PowerDomain>,
        name: &str,
        report: impl Fn(Reply) + Send + 'static,
    ) -> io::Result<Self> {
        let (operations, queue) = mpsc::channel();
        let dropped = Arc::new(AtomicBool::new(false));
        let stop = dropped.clone();
        thread::Builder::new()
            .name(name.replace('\0', ""))
            .stack_size(STACK)
            .spawn(move || work(domain, &queue, &stop, &report))?;
        Ok(Self {
            operations,
            dropped,
        })
    }

    /// Queues an operation of the domain. Returns at once.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn submit(&self, operation: Operation) -> Result<(), Stopped> {
        self.operations.send(operation).map_err(|_| Stopped)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A channel delivers its contents even after the sender is gone, but a daemon that has released the device
        // must not set a cap.
        self.dropped.store(true, Ordering::Release);
    }
}

fn work(
    mut domain: Box<dyn PowerDomain>,
    queue: &Receiver<Operation>,
    stop: &AtomicBool,
    report: &impl Fn(Reply),
) {
    let mut seen = None;
    while let Ok(operation) = queue.recv() {
        if stop.load(Ordering::Acquire) {
            return;
        }
        report(perform(operation, domain.as_mut(), &mut seen));
    }
}

/// Performs the operation, but writes no cap over one that was not there when the device was last `seen`: a
/// foreign cap was set on purpose. Between this check and the write lie microseconds; between two readings of the
/// daemon a second.
fn perform(operation: Operation, domain: &mut dyn PowerDomain, seen: &mut Option<Watts>) -> Reply {
    if let (Operation::Set(_), Some(known)) = (operation, *seen) {
        match domain.cap() {
            Ok(cap) if !cap.is_same_cap(known) => {
                *seen = Some(cap);
                let device = domain.identity().address.clone();
                return Reply::Set(Err(PowerError::Changed { device, known, cap }));
            }
            Ok(_) => {}
            Err(error) => return Reply::Set(Err(error)),
        }
    }
    let reply = operation.perform(domain);
    match &reply {
        Reply::Read(Ok(reading)) => *seen = Some(reading.cap),
        Reply::Set(outcome) => *seen = outcome.as_ref().ok().copied(),
        _ => {}
    }
    reply
}
