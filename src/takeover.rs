//! Taking over undo journals at the start: those of dead daemons with other state directories that had this
//! daemon's devices. Their entries go into its own journal. So it knows the caps found, as after a crash of its
//! own, and keeps its budgets from its first write on.

use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use litd_core::journal::{Journal, JournalError, Recovered};
use litd_core::{HadLast, Store as _, adopt_conditions};

use crate::config::Config;
use crate::daemon::{DaemonError, store_by_links, store_in};
use crate::locks::{self, DeviceLocks, Outdated, is_same};
use crate::restore::{Leftover, Leftovers, outdated, owed};
use crate::state::{self, FileStore, Lock};

/// A journal whose daemon is gone.
struct Orphan {
    state: PathBuf,
    recovered: Recovered,
    /// The entries of this daemon's devices for which no journal is newer.
    newest: Recovered,
    /// Whether its file stays as it is: it is damaged and could not be copied, so it is the only record of what can't
    /// be read in it.
    stays: bool,
    /// No other daemon uses it meanwhile.
    _lock: Lock,
}

/// Takes over the entries of these devices from daemons with other state directories. Returns which of the
/// journals, the own one among them, were damaged: they are written anew, and show no damage then.
///
/// # Errors
/// A device may hold a wrong cap that the daemon would take for the one found. Nothing was changed.
pub(crate) fn take_over(
    config: &Config,
    locks: &DeviceLocks,
) -> Result<Vec<Leftover>, DaemonError> {
    let directory = &config.shell.state.directory;
    let boot_id = state::boot_id()?;
    link_usual(config, locks)?;
    let (mut left, mut orphans) = (Vec::new(), Vec::new());
    for it in locks.remembered() {
        if let Some(lost) = it.lost(&config.shell.locks()) {
            left.push(lost);
            continue;
        }
        if is_same(&it.state, directory) {
            continue;
        }
        let _lock = Lock::take_existing(&it.state)?;
        match owed(config, &it.state) {
            Ok(None) => {}
            Ok(Some(recovered)) => {
                let mut orphan = Orphan::new(it.state, recovered, _lock, locks, &boot_id);
                // Crossing out what is taken over writes the file anew, without the lines that can't be read.
                orphan.stays = !state::keep_damaged(&orphan.state);
                orphans.push(orphan);
            }
            Err(unreadable) => left.push(unreadable),
        }
    }
    Leftovers(left).or_nothing()?;
    let outdated = outdated(config, directory);
    // What is undone keeps nobody from starting: links to this journal, which are about to be made, change nothing
    // about that, and it leaves the journal with the next write.
    if orphans.is_empty() && outdated.superseded.is_empty() {
        return Ok(Vec::new());
    }
    let refused = |cause| DaemonError::Takeover {
        directory: directory.clone(),
        cause,
    };
    // If this fails, the journal can't be written, and says why.
    let _ = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory);
    // Until this is written, others must find the old journals.
    let mut own = store_by_links(directory, &config.shell);
    let (mut journal, found_here) = Journal::open(&mut own, &boot_id).map_err(refused)?;
    let found_here = found_here.iter();
    let mut damaged: Vec<_> = found_here.filter_map(|it| damage(directory, it)).collect();
    damaged.extend(
        orphans
            .iter()
            .filter_map(|it| damage(&it.state, &it.recovered)),
    );
    for it in &damaged {
        log::warn!("{it}");
    }
    journal.drop_superseded(&mut own).map_err(refused)?;
    tell_removed(directory, &outdated);
    for orphan in &orphans {
        orphan.report(locks);
        journal.adopt(&mut own, &orphan.newest).map_err(refused)?;
    }
    // If not, the other journals name none of these devices.
    let names_any = !journal.entries().is_empty() || !journal.clocks().is_empty();
    if names_any && let Err(error) = locks.remember(directory, own.journal_id()) {
        // A later litd finds the other journals, which still have all their entries.
        log::warn!(
            "{error}: the entries that this litd has taken over stay in the other undo journals"
        );
        return Ok(damaged);
    }
    if !orphans.is_empty() {
        // Nothing else may tell of them once the journals name nothing.
        let places = orphans.iter().map(|it| it.state.as_path());
        adopt_all(config, locks, &places.collect::<Vec<_>>(), &boot_id);
    }
    for orphan in orphans.iter().filter(|it| !it.stays) {
        // By the links the entries that were taken over are out of date there by now.
        if let Err(cause) = drop_outdated(config, &orphan.state) {
            let journal = state::journal(&orphan.state);
            let journal = journal.display();
            log::warn!("{journal} still names devices that this litd has taken over: {cause}");
        }
    }
    Ok(damaged)
}

/// Takes over the condition of this node from the litd that had these devices before, in this boot and with another
/// state directory. It may have ended in order, so that no journal tells of it, and what administrators have set until
/// the node boots holds all the same.
pub(crate) fn take_over_condition(config: &Config, locks: &DeviceLocks) -> Result<(), DaemonError> {
    adopt_all(config, locks, &[], &state::boot_id()?);
    Ok(())
}

/// Takes over the conditions in these state directories, whose locks the caller has, and in those of the litds that had
/// the devices last.
fn adopt_all(config: &Config, locks: &DeviceLocks, held: &[&Path], boot_id: &str) {
    let mut more = locks.had_them_last(&config.shell.state.directory);
    more.retain(|it| !held.iter().any(|place| is_same(place, it)));
    // Who runs there has other devices, and needs its condition.
    let free = more.iter().map(|it| (it, Lock::take_existing(it)));
    let free: Vec<_> = free.filter(|(_, lock)| lock.is_ok()).collect();
    let free_too = free.iter().map(|(it, _)| it.as_path());
    let places: Vec<&Path> = held.iter().copied().chain(free_too).collect();
    adopt(config, locks, &places, boot_id);
}

/// Takes over the conditions in these state directories, whose locks the caller has, and notes that this litd has the
/// devices by now. If one of them can't be read, or the own one not be written, the next start tries again.
fn adopt(config: &Config, locks: &DeviceLocks, places: &[&Path], boot_id: &str) {
    let directory = &config.shell.state.directory;
    let mut own = store_in(directory, &config.shell);
    let stores = places.iter().map(|it| store_in(it, &config.shell));
    let mut stores: Vec<FileStore> = stores.collect();
    let mut are_read = true;
    let others = stores.iter_mut().zip(places).map(|(store, place)| {
        store.load_condition().unwrap_or_else(|error| {
            warn_of_condition(place, &error);
            are_read = false;
            Vec::new()
        })
    });
    let others: Vec<Vec<u8>> = others.collect();
    let had_last = |address: &str| match locks.had_last(address) {
        Some(last) if is_same(&last, directory) => HadLast::Own,
        Some(last) => match places.iter().position(|it| is_same(it, &last)) {
            Some(number) => HadLast::Other(number),
            None => HadLast::Unknown,
        },
        None => HadLast::Unknown,
    };
    let devices: Vec<&str> = locks.addresses().collect();
    match adopt_conditions(&mut own, &others, boot_id, &devices, had_last) {
        Ok(_) if !are_read => {}
        Ok(adopted) => {
            // Until this is noted, theirs are the latest.
            note_as_last(locks, directory);
            for number in adopted {
                // Where that fails, links tell the next start that this litd had the devices last.
                let store = stores.get_mut(number);
                let _ = store.map(|it| it.replace_condition(&[]));
            }
        }
        Err(error) => places.iter().for_each(|it| warn_of_condition(it, &error)),
    }
}

/// Notes that the litd with this state directory has the devices by now. `litd restore` has them, too, once it has taken
/// entries over.
fn note_as_last(locks: &DeviceLocks, directory: &Path) {
    if let Err(error) = locks.has_them_now(directory) {
        log::warn!("{error}: a litd with another state directory will not know what is set here");
    }
}

fn warn_of_condition(state: &Path, error: &io::Error) {
    log::warn!(
        "{}: {error}: which devices that litd had left alone (foreign, released) is not known, and litd may \
         steer them",
        state.display()
    );
}

/// Why [`take_over`] would refuse a start that finds these devices as well, by the names of their locks' files.
pub(crate) fn would_refuse(config: &Config, is_new: impl Fn(&str) -> bool) -> Option<String> {
    let (own, directory) = (&config.shell.state.directory, config.shell.locks());
    let links = match locks::remembered(&directory) {
        Ok(links) => links,
        Err(error) => return Some(error.to_string()),
    };
    let mut left: Vec<Leftover> = owed(config, own).err().into_iter().collect();
    for it in links.into_iter().filter(|it| is_new(&it.address)) {
        if it.is_locked(&directory) {
            return Some(format!("another litd has {}", it.address));
        }
        left.extend(it.lost(&directory));
        if is_same(&it.state, own) {
            continue;
        }
        if let Err(error) = Lock::take_existing(&it.state) {
            return Some(error.to_string());
        }
        left.extend(owed(config, &it.state).err());
    }
    let usual = unlinked_usual(config);
    left.extend(usual.and_then(|usual| owed(config, &usual).err()));
    (!left.is_empty()).then(|| Leftovers(left).to_string())
}

/// The usual state directory, if the journal of a dead litd may be in it although no link says so: `state.directory` was
/// changed, and `/run/litd` was emptied since.
pub(crate) fn unlinked_usual(config: &Config) -> Option<PathBuf> {
    let usual = config.shell.usual_state().filter(|it| it.is_dir())?;
    // A daemon that runs there knows its own journal.
    Lock::take_existing(&usual).is_ok().then_some(usual)
}

/// Links the devices that a journal in the usual state directory names, and neither a link nor the own journal, to it.
///
/// # Errors
/// That journal can't be read, or a link can't be made.
fn link_usual(config: &Config, locks: &DeviceLocks) -> Result<(), DaemonError> {
    let Some(usual) = unlinked_usual(config) else {
        return Ok(());
    };
    let recovered = match owed(config, &usual) {
        Ok(Some(recovered)) => recovered,
        Ok(None) => return Ok(()),
        Err(unreadable) => return Err(DaemonError::Left(Leftovers(vec![unreadable]))),
    };
    let own = owed(config, &config.shell.state.directory).ok().flatten();
    let own = own.map_or_else(BTreeSet::new, |it| it.addresses());
    let theirs = recovered.addresses();
    let theirs = theirs.difference(&own);
    let id = state::journal_id(&usual);
    let linked = locks.point(theirs.map(String::as_str), &usual, id.as_deref());
    Ok(linked?)
}

/// The unreadable part of the journal in a state directory.
fn damage(directory: &Path, recovered: &Recovered) -> Option<Leftover> {
    let damage = recovered.damaged.clone()?;
    let journal = state::journal(directory);
    Some(Leftover::Damaged { journal, damage })
}

/// Removes from the journal in a state directory what is out of date in it, as far as nobody uses that directory.
/// Returns what is still there, and why.
pub(crate) fn remove_outdated(config: &Config, place: &Path) -> Vec<Leftover> {
    let _lock = match is_same(place, &config.shell.state.directory) {
        true => None,
        false => match Lock::take_existing(place) {
            Ok(lock) => Some(lock),
            Err(_) => return Vec::new(),
        },
    };
    let outdated = outdated(config, place);
    // It would lose what can't be read in it.
    if outdated.is_empty() || !state::keep_damaged(place) {
        return Vec::new();
    }
    match drop_outdated(config, place) {
        Ok(()) => {
            tell_removed(place, &outdated);
            Vec::new()
        }
        Err(cause) => still_named(place, outdated, cause),
    }
}

/// What is out of date in the journal in a state directory, and could not be removed.
fn still_named(place: &Path, outdated: Outdated, cause: JournalError) -> Vec<Leftover> {
    let journal = state::journal(place);
    let uncrossed = (!outdated.undone.is_empty()).then(|| Leftover::Uncrossed {
        journal: journal.clone(),
        addresses: outdated.undone.into_iter().collect(),
        cause: cause.to_string(),
    });
    let superseded = (!outdated.superseded.is_empty()).then_some(Leftover::Outdated {
        journal,
        addresses: outdated.superseded.into_iter().collect(),
        cause,
    });
    uncrossed.into_iter().chain(superseded).collect()
}

/// The same where the caller has that directory's lock.
fn drop_outdated(config: &Config, place: &Path) -> Result<(), JournalError> {
    let boot_id = state::boot_id().map_err(io::Error::other)?;
    let mut store = store_by_links(place, &config.shell);
    let (mut journal, _) = Journal::open(&mut store, &boot_id)?;
    journal.drop_superseded(&mut store)
}

fn tell_removed(place: &Path, outdated: &Outdated) {
    let list = |devices: &BTreeSet<String>| devices.iter().cloned().collect::<Vec<_>>().join(", ");
    let journal = state::journal(place);
    let journal = journal.display();
    if !outdated.superseded.is_empty() {
        log::warn!(
            "{journal}: the entries of {} were out of date, because a litd with another state directory had these \
             devices since: they are removed",
            list(&outdated.superseded)
        );
    }
    if !outdated.undone.is_empty() {
        log::warn!(
            "{journal}: the entries of {} were undone before, and could not be removed then: they are removed",
            list(&outdated.undone)
        );
    }
}

impl Orphan {
    fn new(
        state: PathBuf,
        recovered: Recovered,
        _lock: Lock,
        locks: &DeviceLocks,
        boot_id: &str,
    ) -> Self {
        // The entry of a device whose link points elsewhere was taken over before, and not removed. Neither locked
        // clocks nor late writes outlive a boot.
        let is_newest = |address: &str| locks.points_to(address, &state);
        let same_boot = recovered.boot_id == boot_id;
        let mut newest = recovered.clone();
        newest.entries.retain(|it| is_newest(&it.address));
        newest
            .clocks
            .retain(|it| same_boot && is_newest(&it.address));
        newest.late.retain(|it| same_boot && is_newest(&it.address));
        Self {
            newest,
            state,
            recovered,
            stays: false,
            _lock,
        }
    }

    fn report(&self, locks: &DeviceLocks) {
        let place = self.state.display();
        log::warn!(
            "{place}: a litd with that state directory is gone and has left caps changed: this litd \
             takes them over, and restores the caps that it found"
        );
        let absent = self.recovered.entries.iter().map(|it| &it.address);
        let absent: Vec<String> = absent.filter(|it| !locks.locks(it)).cloned().collect();
        if !absent.is_empty() {
            let (journal, addresses) = (state::journal(&self.state), absent);
            log::warn!("{}", Leftover::Gone { journal, addresses });
        }
    }
}
