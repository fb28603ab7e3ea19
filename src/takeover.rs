//! What a daemon does at its start about the undo journals of daemons with other state directories
//! that had its devices and are gone: it takes their entries into its own journal. So it knows which
//! caps were found, as after a crash of its own, and moves none before it keeps its budgets.

use std::path::PathBuf;

use litd_core::journal::{Entry, Journal, JournalError, Recovered};

use crate::config::Config;
use crate::daemon::{DaemonError, store_in};
use crate::locks::DeviceLocks;
use crate::restore::{Leftover, Leftovers, owed};
use crate::state::{self, Lock};

/// A journal whose daemon is gone.
struct Orphan {
    state: PathBuf,
    recovered: Recovered,
    /// No other daemon uses it meanwhile.
    _lock: Lock,
}

/// Takes over what daemons with other state directories have left of these devices.
///
/// # Errors
/// A device may hold a wrong cap that the daemon would take for the one found. Nothing was changed.
pub(crate) fn take_over(config: &Config, locks: &DeviceLocks) -> Result<(), DaemonError> {
    let directory = &config.shell.state.directory;
    let mut left = Vec::new();
    let mut orphans = Vec::new();
    for it in locks.elsewhere(directory) {
        if !it.state.is_dir() {
            left.push(it.lost(&config.shell.locks()));
            continue;
        }
        let _lock = Lock::take_existing(&it.state)?;
        match owed(&it.state) {
            Ok(None) => {}
            Ok(Some(recovered)) => orphans.push(Orphan {
                state: it.state,
                recovered,
                _lock,
            }),
            Err(unreadable) => left.push(unreadable),
        }
    }
    Leftovers(left).or_nothing()?;
    if orphans.is_empty() {
        return Ok(());
    }
    let refused = |cause| DaemonError::Takeover {
        directory: directory.clone(),
        cause,
    };
    let boot_id = state::boot_id()?;
    // Until that is written, whoever looks for the journals is to find the others'.
    let mut own = store_in(directory, &config.shell);
    let (mut journal, _) = Journal::open(&mut own, &boot_id).map_err(refused)?;
    for orphan in &orphans {
        orphan.report(locks);
        let (entries, clocks) = orphan.ours(locks, &boot_id);
        journal.adopt(&mut own, entries, clocks).map_err(refused)?;
    }
    for orphan in &orphans {
        let remembered = locks.remember(directory).map_err(JournalError::from);
        let done = remembered.and_then(|()| orphan.cross_out(config, locks, &boot_id));
        if let Err(cause) = done {
            let journal = state::journal(&orphan.state);
            let journal = journal.display();
            log::warn!("{journal} still names devices that this litd has taken over: {cause}");
        }
    }
    Ok(())
}

impl Orphan {
    fn report(&self, locks: &DeviceLocks) {
        let place = self.state.display();
        log::warn!(
            "{place}: a litd with that state directory is gone and has left caps changed: this litd \
             takes them over, and gives back what that one found"
        );
        if let Some(damage) = self.recovered.damaged.clone() {
            let journal = state::journal(&self.state);
            log::warn!("{}", Leftover::Damaged { journal, damage });
        }
        let absent = self.recovered.entries.iter().map(|it| &it.address);
        let absent: Vec<String> = absent.filter(|it| !locks.locks(it)).cloned().collect();
        if !absent.is_empty() {
            let (journal, addresses) = (state::journal(&self.state), absent);
            log::warn!("{}", Leftover::Gone { journal, addresses });
        }
    }

    /// What it says of the devices that are this daemon's now. Locked clocks don't outlive a boot.
    fn ours(
        &self,
        locks: &DeviceLocks,
        boot_id: &str,
    ) -> (impl Iterator<Item = &Entry>, impl Iterator<Item = &String>) {
        let same_boot = self.recovered.boot_id == boot_id;
        let entries = self.recovered.entries.iter();
        let clocks = self.recovered.clocks.iter();
        (
            entries.filter(|it| locks.locks(&it.address)),
            clocks.filter(move |it| same_boot && locks.locks(it)),
        )
    }

    /// Takes out of it what another journal has by now.
    fn cross_out(
        &self,
        config: &Config,
        locks: &DeviceLocks,
        boot_id: &str,
    ) -> Result<(), JournalError> {
        let mut store = store_in(&self.state, &config.shell);
        let (mut journal, _) = Journal::open(&mut store, boot_id)?;
        let (entries, clocks) = self.ours(locks, boot_id);
        for entry in entries {
            journal.released(&mut store, &entry.address)?;
        }
        for address in clocks {
            journal.freed_clocks(&mut store, address)?;
        }
        Ok(())
    }
}
