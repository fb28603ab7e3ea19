//! Errands: reading that may take long, or for ever, as of files and environments of processes. Each errand has a
//! thread of its own, and the loop waits for none.

use std::collections::BTreeSet;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The most errands at a time, with those that hang: a file system of a job's own may keep a thread for ever. Of each
/// owner there is one, so that nobody takes all places.
const MOST: usize = 4;

/// Starts errands, each in something of an owner's.
#[derive(Debug)]
pub(super) struct Errands<W, T> {
    /// How the threads are called.
    name: &'static str,
    out: Sender<(u64, T)>,
    /// The owners whose errands are under way.
    running: Arc<Mutex<BTreeSet<W>>>,
}

/// Where the outcome of an errand goes.
#[derive(Debug)]
pub(super) struct Out<T> {
    number: u64,
    out: Sender<(u64, T)>,
}

impl<T> Out<T> {
    /// Tells it.
    pub fn send(&self, outcome: T) {
        // Once litd ends nobody listens any more.
        let _ = self.out.send((self.number, outcome));
    }
}

impl<W: Ord + Clone + Send + 'static, T: Send + 'static> Errands<W, T> {
    /// Outcomes go there.
    pub fn new(name: &'static str, out: Sender<(u64, T)>) -> Self {
        Self {
            name,
            out,
            running: Arc::default(),
        }
    }

    /// Starts an errand in something of this owner's, whose outcome comes with this number; false where another of the
    /// same owner, or too many, are under way or hang.
    pub fn start(
        &self,
        number: u64,
        whose: W,
        errand: impl FnOnce(&Out<T>) + Send + 'static,
    ) -> bool {
        let mut running = owners(&self.running);
        if running.len() >= MOST || !running.insert(whose.clone()) {
            return false;
        }
        drop(running);
        let done = whose.clone();
        let out = Out {
            number,
            out: self.out.clone(),
        };
        let running = self.running.clone();
        let work = move || {
            errand(&out);
            owners(&running).remove(&done);
        };
        let thread = thread::Builder::new().name(self.name.into());
        let started = thread.stack_size(512 * 1024).spawn(work).is_ok();
        if !started {
            owners(&self.running).remove(&whose);
        }
        started
    }
}

/// The owners, for a moment.
fn owners<W>(running: &Mutex<BTreeSet<W>>) -> MutexGuard<'_, BTreeSet<W>> {
    // No thread panics while it holds this lock.
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_errand_that_hangs_keeps_nobody_else_from_his() {
        let (out, outcomes) = channel();
        let errands = Errands::new("test", out);
        let forever = |_: &Out<u8>| thread::sleep(Duration::from_secs(3600));
        let short = |out: &Out<u8>| out.send(7);
        assert!(errands.start(1, 1000, forever));
        assert!(!errands.start(2, 1000, short), "one of each owner");
        assert!(errands.start(3, 1001, short));
        assert_eq!(outcomes.recv().unwrap(), (3, 7));
        // The short errand's thread has to end, too.
        while !errands.start(4, 1001, forever) {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(errands.start(5, 1002, forever) && errands.start(6, 1003, forever));
        assert!(!errands.start(7, 1004, short), "four of all");
    }
}
