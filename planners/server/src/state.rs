//! The jobs in memory and on disk: what is answered is on disk before. Changes are appended to a journal, many
//! with one write where many come at once; a journal that is longer than the jobs is replaced by them.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::journal::lines;
use crate::protocol::ProfilingResult;
use crate::registry::{Refusal, Registry};
use crate::store::Store;

/// The jobs, and the folder that keeps them.
#[derive(Debug)]
pub struct State {
    jobs: Mutex<Jobs>,
    /// Up to which change the disk has them. Held while they are written: who comes meanwhile waits,
    /// and finds his change written with the next one's.
    saved: Mutex<u64>,
    store: Store,
}

#[derive(Debug)]
struct Jobs {
    registry: Registry,
    /// Counts changes.
    changes: u64,
    /// Changes that are not on disk, as the journal's lines.
    unsaved: Vec<u8>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds the lock; and the state it left would still be consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// The jobs of a folder.
    pub fn new(store: Store, registry: Registry) -> Self {
        Self {
            jobs: Mutex::new(Jobs {
                registry,
                changes: 0,
                unsaved: Vec::new(),
            }),
            saved: Mutex::new(0),
            store,
        }
    }

    /// Looks at the jobs. What is changed there need not survive.
    pub fn look<T>(&self, look: impl FnOnce(&mut Registry) -> T) -> T {
        look(&mut held(&self.jobs).registry)
    }

    /// Changes the jobs, unless that is refused, and waits until the change is on disk.
    ///
    /// # Errors
    /// If the disk fails; the change is made all the same, and written with the next one.
    pub async fn change<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Registry) -> Result<T, Refusal>,
    ) -> Result<io::Result<T>, Refusal> {
        let (done, number) = {
            let mut jobs = held(&self.jobs);
            let done = change(&mut jobs.registry)?;
            let changes = jobs.registry.take_changes();
            match lines(&changes) {
                Ok(lines) => jobs.unsaved.extend(lines),
                Err(cause) => return Ok(Err(cause.into())),
            }
            jobs.changes += 1;
            (done, jobs.changes)
        };
        let state = self.clone();
        let saved = blocking(move || state.save(number)).await;
        Ok(saved.map(|()| done))
    }

    /// Waits until the disk has all changes made so far, such as the version that an answer is about to tell.
    ///
    /// # Errors
    /// If the disk fails.
    pub async fn on_disk(self: &Arc<Self>) -> io::Result<()> {
        let number = held(&self.jobs).changes;
        // Nearly always, without waiting for a thread.
        if self.saved.try_lock().is_ok_and(|saved| *saved >= number) {
            return Ok(());
        }
        let state = self.clone();
        blocking(move || state.save(number)).await
    }

    /// Adds a result to the file of results.
    ///
    /// # Errors
    /// If the disk fails.
    pub async fn add_result(
        self: &Arc<Self>,
        id: String,
        result: ProfilingResult,
    ) -> io::Result<()> {
        let state = self.clone();
        blocking(move || {
            let _alone = held(&state.saved);
            state.store.add_result(&id, &result)
        })
        .await
    }

    /// Writes the jobs, unless somebody has since that change.
    fn save(&self, number: u64) -> io::Result<()> {
        let mut saved = held(&self.saved);
        if *saved >= number {
            return Ok(());
        }
        let (journal, changes) = {
            let mut jobs = held(&self.jobs);
            (std::mem::take(&mut jobs.unsaved), jobs.changes)
        };
        if let Err(cause) = self.store.append(&journal) {
            // The change is saved with the next one, before later changes.
            let mut jobs = held(&self.jobs);
            let later = std::mem::replace(&mut jobs.unsaved, journal);
            jobs.unsaved.extend(later);
            return Err(cause);
        }
        *saved = changes;
        if self.store.is_journal_long() {
            let jobs = held(&self.jobs);
            let text = serde_json::to_vec(&jobs.registry)?;
            drop(jobs);
            // Changes in the jobs that the journal lacks are saved again with the next change, which does no harm.
            self.store.save(&text)?;
        }
        Ok(())
    }
}

/// Waits for the disk without keeping others from being served.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|cause| Err(io::Error::other(cause)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn await_it<T>(future: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn what_is_answered_is_on_disk_before() {
        let folder = tempfile::tempdir().unwrap();
        let (store, registry) = Store::open(folder.path()).unwrap();
        let state = Arc::new(State::new(store, registry));
        await_it(state.on_disk()).unwrap();
        // A disk that takes its time with a change.
        let disk = state.saved.lock().unwrap();
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| await_it(state.change(|_| Ok(()))));
            while held(&state.jobs).changes == 0 {
                std::thread::yield_now();
            }
            let waiting = scope.spawn(|| await_it(state.on_disk()));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!waiting.is_finished() && !changing.is_finished());
            drop(disk);
            waiting.join().unwrap().unwrap();
            assert_eq!(*held(&state.saved), 1);
            changing.join().unwrap().unwrap().unwrap();
        });
    }
}
