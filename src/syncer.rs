//! Waits for the disk, but not for ever. Written data survives the end of a process; synced data survives a power
//! failure of the node, too. Where the disk is slow, because of other programs' writes, caps still have to be kept
//! within their budgets: the daemon goes on, and the sync continues in the background.

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

/// How long to wait for a sync.
pub const PATIENCE: Duration = Duration::from_secs(1);

type Job = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// The outcome of a sync.
#[derive(Debug)]
pub enum Synced {
    /// The data is on disk.
    Done,
    /// The disk has said that it failed.
    Failed(io::Error),
    /// The disk has not answered in time, or not to the sync before.
    Late,
}

/// A thread that syncs one thing after the other.
#[derive(Debug)]
pub struct Syncer {
    patience: Duration,
    thread: Option<Thread>,
    /// Whether the thread has not answered to the last file.
    waits: bool,
}

#[derive(Debug)]
struct Thread {
    jobs: SyncSender<Job>,
    answers: Receiver<io::Result<()>>,
}

impl Syncer {
    /// A syncer that waits so long. Its thread begins with the first file.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        Self {
            patience,
            thread: None,
            waits: false,
        }
    }

    /// A syncer whose thread ends after so many files.
    #[cfg(test)]
    pub fn that_ends_after(files: usize) -> Self {
        let mut syncer = Self::new(PATIENCE);
        let (jobs, todo) = sync_channel::<Job>(1);
        let (done, answers) = sync_channel(1);
        thread::spawn(move || todo.iter().take(files).try_for_each(|job| done.send(job())));
        syncer.thread = Some(Thread { jobs, answers });
        syncer
    }

    /// Has a file's content on the disk, if that does not take too long.
    ///
    /// # Errors
    /// The system gives no thread, or no second descriptor of the file.
    pub fn sync(&mut self, file: &File) -> io::Result<Synced> {
        let file = file.try_clone()?;
        self.run(Box::new(move || file.sync_all()))
    }

    fn run(&mut self, job: Job) -> io::Result<Synced> {
        let thread = match &self.thread {
            Some(thread) => thread,
            None => self.thread.insert(Thread::start()?),
        };
        // The answer to an earlier sync that was late.
        if self.waits && thread.answers.try_recv().is_ok() {
            self.waits = false;
        }
        if self.waits {
            return Ok(Synced::Late);
        }
        match thread.jobs.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Ok(Synced::Late),
            Err(TrySendError::Disconnected(_)) => return Err(gone()),
        }
        match thread.answers.recv_timeout(self.patience) {
            Ok(Ok(())) => Ok(Synced::Done),
            Ok(Err(error)) => Ok(Synced::Failed(error)),
            Err(RecvTimeoutError::Timeout) => {
                self.waits = true;
                Ok(Synced::Late)
            }
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread that syncs files has ended")
}

impl Thread {
    fn start() -> io::Result<Self> {
        let (jobs, todo) = sync_channel::<Job>(1);
        let (done, answers) = sync_channel(1);
        thread::Builder::new().name("sync".into()).spawn(move || {
            for job in todo {
                // The answer is not waited for once the daemon ends.
                if done.send(job()).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { jobs, answers })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_slow_disk_is_waited_for_once_and_used_again_when_it_answers() {
        let mut syncer = Syncer::new(Duration::from_millis(50));
        let (open, closed) = channel::<()>();
        let stuck = move || closed.recv().map_err(io::Error::other);
        assert!(matches!(syncer.run(Box::new(stuck)).unwrap(), Synced::Late));
        // No other sync begins meanwhile.
        let never = || panic!("was begun");
        assert!(matches!(syncer.run(Box::new(never)).unwrap(), Synced::Late));
        open.send(()).unwrap();
        let mut fast = || syncer.run(Box::new(|| Ok(()))).unwrap();
        let again = std::iter::repeat_with(&mut fast).find(|it| !matches!(it, Synced::Late));
        assert!(matches!(again, Some(Synced::Done)));
        let fails = || Err(io::Error::other("no disk"));
        let failed = syncer.run(Box::new(fails)).unwrap();
        assert!(matches!(failed, Synced::Failed(why) if why.to_string() == "no disk"));
    }
}
