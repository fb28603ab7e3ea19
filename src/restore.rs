//! Restoring the caps that dead daemons have left changed, by their undo journals: the one in the configured state
//! directory, and those whose places are remembered with the devices' locks. Only the devices have to be writable
//! for that.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use litd_api::{DeviceState, DeviceStatus};
use litd_core::config::OnExit;
use litd_core::journal::{Entry, Journal, JournalError, Recovered, Undo};
use litd_core::{AboveSafe, Core, Device, Unclaimed};
use litd_power::DeviceKind;
use thiserror::Error;

use crate::clock::Clock;
use crate::config::Config;
use crate::daemon::{
    DaemonError, Life, Options, assemble, discover, on_one_thread, private_files, raise_limits,
    store_by_links,
};
use crate::devices::Found;
use crate::hanging::Hanging;
use crate::hold;
use crate::hub::Shared;
use crate::locks::{self, DeviceLocks, Outdated, is_same};
use crate::logging;
use crate::signals::Signals;
use crate::state::{self, FileStore, Lock};
use crate::takeover::{remove_outdated, take_over, unlinked_usual};

/// An undo that failed, or an entry that could not be removed.
#[derive(Debug, Error)]
pub enum Leftover {
    /// Devices that are here did not take their caps found.
    #[error(
        "the caps of {} could not be restored; {} keeps the caps found, and `litd restore` or the next \
         start tries again",
        addresses.join(", "), journal.display()
    )]
    Owed {
        /// The undo journal.
        journal: PathBuf,
        /// The devices.
        addresses: Vec<String>,
    },
    /// Devices are not here.
    #[error(
        "the caps of {} could not be restored, because these devices are not here; {} keeps the caps \
         found, and `litd restore` or the next start restores them when the devices are back",
        addresses.join(", "), journal.display()
    )]
    Gone {
        /// The undo journal.
        journal: PathBuf,
        /// The devices.
        addresses: Vec<String>,
    },
    /// The safe budget is exceeded.
    #[error(
        "{above}: {}; lower them yourself, or mend that and run `litd restore` again",
        cause.as_deref().unwrap_or("some hold what somebody else set, or do not take their caps")
    )]
    Above {
        /// By how much.
        above: AboveSafe,
        /// Why no cap could be written, if the journal is the cause.
        cause: Option<String>,
    },
    /// All caps are restored, and the journal does not say so; notes beside it do.
    #[error(
        "caps are restored, but the entries of {} could not be removed from {}: {cause}. They undo nothing until the \
         node boots. After that is mended, `litd restore` or the next start removes them and writes no cap",
        addresses.join(", "), journal.display()
    )]
    Uncrossed {
        /// The undo journal.
        journal: PathBuf,
        /// The devices.
        addresses: Vec<String>,
        /// Why it can't be written, and what to do.
        cause: String,
    },
    /// The same, and nothing else says so either.
    #[error(
        "caps are restored, but the entries of {} could not be removed from {}: {cause}. Nor could it be noted in {} \
         that they are done: until they are removed, `litd restore` and each start undo a cap that somebody sets there \
         if litd had set the same one. Mend that and run `litd restore` before you set caps",
        addresses.join(", "), journal.display(), locks.display()
    )]
    Unnoted {
        /// The undo journal.
        journal: PathBuf,
        /// The devices.
        addresses: Vec<String>,
        /// Why it can't be written, and what to do.
        cause: String,
        /// The directory of the devices' locks.
        locks: PathBuf,
    },
    /// Nothing is owed, and the journal says something else.
    #[error(
        "{}: the entries of {} are out of date, because a litd with another state directory has had these devices \
         since, and they could not be removed: {cause}. They undo nothing until the node boots. After that is mended, \
         `litd restore` or the next start removes them and writes no cap",
        journal.display(), addresses.join(", ")
    )]
    Outdated {
        /// The undo journal.
        journal: PathBuf,
        /// The devices.
        addresses: Vec<String>,
        /// Why it can't be written, and what to do.
        cause: JournalError,
    },
    /// Some caps may not be restored.
    #[error(
        "{}: the undo journal was damaged ({damage}), so litd may not know every cap found: compare all caps \
         with what they should be, correct wrong ones, and remove the copy journal.damaged beside it",
        journal.display()
    )]
    Damaged {
        /// The undo journal.
        journal: PathBuf,
        /// The unreadable part.
        damage: String,
    },
    /// A cap may be one of litd's.
    #[error("{}: {}", .0.address, .0.why())]
    Unclaimed(Unclaimed),
    /// The caps found are unknown.
    #[error(
        "{address}: the undo journal with this device's cap found was in {}, and is not there any more: bring \
         it back and run `litd restore` again; or set the device's cap yourself and remove {}",
        state.display(), link.display()
    )]
    Lost {
        /// The device.
        address: String,
        /// The state directory.
        state: PathBuf,
        /// The link to it.
        link: PathBuf,
    },
    /// The same: another journal is in its place.
    #[error(
        "{address}: the undo journal in {} is not the one that has this device's cap found (a file system is \
         not mounted there, or an older copy was restored). Mount or restore the right one and run `litd \
         restore` again; or set the device's cap yourself and remove {}",
        state.display(), link.display()
    )]
    Replaced {
        /// The device.
        address: String,
        /// The state directory.
        state: PathBuf,
        /// The link to it.
        link: PathBuf,
    },
    /// The state of a litd with another state directory could not be read.
    #[error(
        "{}: {cause}; the devices in its undo journal were not restored, and `litd restore` tries again",
        state.display()
    )]
    Elsewhere {
        /// The state directory.
        state: PathBuf,
        /// The cause.
        cause: Box<DaemonError>,
    },
    /// A process may still change a cap.
    #[error(
        "process {pid} of an earlier litd was killed but hangs in a driver, and its last write may still take effect: \
         {} keeps its entries. When the process has ended, `litd restore` or the next start checks the caps again",
        journal.display()
    )]
    Hanging {
        /// The undo journal.
        journal: PathBuf,
        /// The process.
        pid: u32,
    },
    /// A write that failed or got no answer may still change a cap, or lock clocks.
    #[error(
        "{}: entries stay, because writes to {} may still take effect (up to half a minute late): run `litd restore` \
         again half a minute from now; the next start of litd does the same",
        journal.display(), addresses.join(", ")
    )]
    MayLand {
        /// The undo journal.
        journal: PathBuf,
        /// The devices.
        addresses: Vec<String>,
    },
    /// A CPU socket's second limit is not restored.
    #[error(
        "the short-term limit of {} is not restored: its driver does not take it; `litd restore` or the next start \
         tries again",
        addresses.join(", ")
    )]
    ShortTerm {
        /// The CPU sockets.
        addresses: Vec<String>,
    },
    /// A journal that can't be used.
    #[error("{}: {cause}", journal.display())]
    Unreadable {
        /// The undo journal.
        journal: PathBuf,
        /// The cause.
        cause: JournalError,
    },
}

impl Leftover {
    /// The device whose undo journal is lost, if it is that.
    fn lost_device(&self) -> Option<&str> {
        match self {
            Self::Lost { address, .. } | Self::Replaced { address, .. } => Some(address),
            _ => None,
        }
    }
}

/// The same for all journals; one a line.
#[derive(Debug)]
pub struct Leftovers(pub Vec<Leftover>);

impl std::fmt::Display for Leftovers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, left) in self.0.iter().enumerate() {
            let separator = if index > 0 { "\n" } else { "" };
            write!(f, "{separator}{left}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Leftovers {}

impl Leftovers {
    /// Whether caps are restored, and only writes that may land late are left.
    pub(crate) fn may_only_land(&self) -> bool {
        let may_land = |it: &Leftover| matches!(it, Leftover::MayLand { .. });
        !self.0.is_empty() && self.0.iter().all(may_land)
    }

    /// # Errors
    /// There is something left.
    pub(crate) fn or_nothing(self) -> Result<(), DaemonError> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(DaemonError::Left(self)),
        }
    }
}

/// Why a file that is refused, and does not say what is to become of caps, is not taken for one that wants them
/// restored.
const HELD: &str = "the last litd left caps held within caps.safe_budget, and caps.on_exit can't be read from this file. \
                    No cap was moved. Correct the file (on_exit = \"hold\" keeps them, \"restore\" restores the caps \
                    found) and run `litd restore` again";

/// Restores the caps that a dead daemon has left changed; nothing to do is a success.
///
/// # Errors
/// A daemon runs (it is the one to ask), or caps may not be back.
pub fn restore(options: &Options) -> Result<(), DaemonError> {
    // Even with a bad file, caps have to be restored.
    let config = Config::load_after(options.config.as_deref()).or_else(|error| {
        // A file that is good, and silent, is not salvaged.
        if Config::load(options.config.as_deref()).is_ok() {
            return Err(error);
        }
        logging::start(crate::config::Level::default());
        log::error!("{error}");
        let config = Config::salvage(options.config.as_deref(), error.clone())?;
        match config.is_silent_on_a_hold(options.config.as_deref()) {
            true => Err(error.and(HELD)),
            false => Ok(config),
        }
    })?;
    logging::start(config.shell.log.level);
    private_files();
    raise_limits();
    let noted = match config.core.caps.on_exit {
        OnExit::Hold => Vec::new(),
        OnExit::Restore => hold::noted(&config.shell),
    };
    put_back(&config)?;
    // The hold is over, by the file's word.
    noted.iter().for_each(|it| hold::end(it));
    Ok(())
}

fn put_back(config: &Config) -> Result<(), DaemonError> {
    let own = &config.shell.state.directory;
    // Lowering a cap needs a record first, for which the directory has to be there.
    let _lock = match config.core.caps.on_exit {
        OnExit::Hold => Lock::take(own)?,
        OnExit::Restore => Lock::take_existing(own)?,
    };
    let mut plan = Plan::make(config);
    if config.core.caps.on_exit == OnExit::Hold {
        plan.lower_last(own);
    }
    // Devices are read when they are found, and reading a socket gives back a limit that an override has left half
    // changed: no journal names that.
    let locks = config.shell.locks();
    if plan.places.is_empty() && locks::limits_of_the_dead(&locks).is_empty() {
        if plan.left.is_empty() && !plan.was_damaged {
            log::info!("nothing to restore");
        }
        return Leftovers(plan.left).or_nothing();
    }
    let mut left = on_one_thread(async { plan.carry_out(config).await })?;
    left.extend(still_to_come(config, &locks));
    Leftovers(left).or_nothing()
}

/// The processes of earlier daemons that may still change caps in this journal.
fn still_to_come(config: &Config, locks: &Path) -> Vec<Leftover> {
    let own = &config.shell.state.directory;
    let journal = state::journal(own);
    let is_owed = matches!(owed(config, own), Ok(Some(_)));
    let hanging = Hanging::noted(locks).into_iter().filter(|_| is_owed);
    let left = |it: Hanging| Leftover::Hanging {
        journal: journal.clone(),
        pid: it.pid,
    };
    hanging.map(left).collect()
}

/// Undoes what is on record, whatever caps the configuration wants to be left behind. The caller has the lock of the
/// state directory, and no device's.
///
/// # Errors
/// As [`restore`].
pub(crate) async fn undo(config: &Config) -> Result<Vec<Leftover>, DaemonError> {
    let mut config = config.clone();
    config.core.caps.on_exit = OnExit::Restore;
    let plan = Plan::make(&config);
    let mut left = match plan.places.is_empty() {
        true => plan.left,
        false => plan.carry_out(&config).await?,
    };
    left.retain(|it| !matches!(it, Leftover::MayLand { .. }));
    Ok(left)
}

/// The work of `litd restore`.
struct Plan {
    /// State directories whose journals name devices, in order: the configured one is first.
    places: Vec<PathBuf>,
    /// Failures so far.
    left: Vec<Leftover>,
    /// Whether a journal was damaged before, which was told.
    was_damaged: bool,
}

impl Plan {
    fn make(config: &Config) -> Self {
        let (own, directory) = (&config.shell.state.directory, &config.shell.locks());
        let mut plan = Self {
            places: Vec::new(),
            left: Vec::new(),
            was_damaged: false,
        };
        let remembered = locks::remembered(directory).unwrap_or_else(|error| {
            log::warn!("{error}: whether a litd with another state directory was here is unknown");
            Vec::new()
        });
        // Several devices may point to one journal.
        let (mut others, mut lost) = (BTreeSet::new(), BTreeSet::new());
        for it in &remembered {
            match it.lost(directory) {
                None => drop(others.insert(&it.state)),
                Some(_) if it.is_locked(directory) => {}
                Some(left) => {
                    plan.left.push(left);
                    lost.insert(&it.state);
                }
            }
        }
        // Another journal's entries of these devices are not up to date.
        if !lost.iter().any(|state| is_same(state, own)) {
            plan.look_into(config, own);
        }
        let usual = unlinked_usual(config);
        others.extend(&usual);
        others.retain(|state| !is_same(state, own) && !lost.contains(state));
        for state in others {
            plan.look_into(config, state);
        }
        plan
    }

    /// Caps that no journal names may have to come down, too. After all journals: caps that were lowered before
    /// would look like foreign ones to them.
    fn lower_last(&mut self, own: &Path) {
        if !self.places.iter().any(|place| is_same(place, own)) {
            self.places.push(own.to_owned());
        }
    }

    fn look_into(&mut self, config: &Config, state: &Path) {
        let recorded = recorded(config, state);
        let is_told = matches!(&recorded, Ok((Some(owed), _)) if owed.damaged.is_some());
        // Whoever found the damage has told of it: a restore by its exit status, a start by an event. Nobody can tell
        // from then on whether anything is wrong, so a unit whose caps are all back is not failed at each stop.
        state::keep_damaged(state);
        if let Some(copy) = state::copy_of_damaged(state)
            && !is_told
        {
            log::warn!("{}", state::was_damaged(&copy));
            self.was_damaged = true;
        }
        match recorded {
            // What is out of date there undoes nothing, and is to be removed.
            Ok((None, outdated)) if outdated.is_empty() => {}
            Ok(_) => self.places.push(state.to_owned()),
            Err(left) => self.left.push(left),
        }
    }

    async fn carry_out(self, config: &Config) -> Result<Vec<Leftover>, DaemonError> {
        let Self {
            mut places,
            mut left,
            ..
        } = self;
        let (directory, own) = (config.shell.locks(), &config.shell.state.directory);
        let planned = places.clone();
        let mut found = Some(discover(config).await?);
        let unread: Vec<String> = found.iter().flat_map(unread_sockets).collect();
        let addresses = found.iter().flat_map(Found::addresses);
        let locks = Rc::new(DeviceLocks::take(&directory, own, addresses)?);
        let lost = left.iter().filter_map(Leftover::lost_device);
        locks.leave(lost.map(str::to_owned));
        // With one journal that names them all, the undo is done at once, within one budget.
        let taken_over = take_over(config, &locks).map(|damaged| left.extend(damaged));
        match &taken_over {
            Ok(()) => places = still_owed(config, places),
            // Undoing needs to read journals only: they are undone one after the other.
            Err(error) => {
                log::warn!("{error}");
                let remembered = locks::remembered(&directory).unwrap_or_default();
                let others = remembered.into_iter().filter(|it| !is_same(&it.state, own));
                locks.leave(others.map(|it| it.address));
                // A link to what is out of date here would make it count again.
                let superseded = outdated(config, own).superseded.into_iter();
                locks.leave(superseded.map(|it| locks::file_name(&it)));
            }
        }
        // Lowered caps have to be on record, whatever becomes of this process. Where a journal could not be taken
        // over the links still point to it.
        let lowers = config.core.caps.on_exit == OnExit::Hold && taken_over.is_ok();
        let others = locks::remembered(&directory).unwrap_or_default();
        for place in places {
            // Not a daemon with these devices, or they would not be free.
            let runs = |it: &&locks::Remembered| {
                it.state == place && !locks.has(&it.address) && it.is_locked(&directory)
            };
            let kept = others.iter().any(|it| runs(&it)) && !names_any(config, &place, &locks);
            if !is_same(&place, own) && kept {
                log::info!(
                    "{}: a litd with that state directory runs on other devices, and keeps their caps",
                    place.display()
                );
                continue;
            }
            let devices = match found.take() {
                Some(devices) => devices,
                None => discover(config).await?,
            };
            let mut store = store_by_links(&place, &config.shell);
            if lowers && is_same(&place, own) {
                store = store.of(locks.clone());
            }
            match give_back(config, &place, devices, store, &locks).await {
                Ok(more) => left.extend(more),
                Err(cause) if is_same(&place, own) => return Err(cause),
                // Even so, the other journals are undone.
                Err(cause) => left.push(Leftover::Elsewhere {
                    state: place,
                    cause: Box::new(cause),
                }),
            }
        }
        left.extend(short_term_of(unread, config, &directory));
        let places = planned.iter();
        left.extend(places.flat_map(|place| remove_outdated(config, place)));
        Ok(left)
    }
}

/// The CPU sockets that could not be read: reading one restores what is left of litd's short-term limit.
fn unread_sockets(found: &Found) -> Vec<String> {
    let is_unread = |it: &&Device| it.identity.kind == DeviceKind::Cpu && it.reading.is_none();
    let sockets = found.inventory.iter().filter(is_unread);
    sockets.map(|it| it.identity.address.clone()).collect()
}

/// Of these the ones whose short-term limit is still on record, and which no journal names.
fn short_term_of(mut unread: Vec<String>, config: &Config, directory: &Path) -> Option<Leftover> {
    let recorded = locks::limits_on_record(directory);
    let named = owed(config, &config.shell.state.directory)
        .ok()
        .flatten()
        .map_or_else(Vec::new, |it| it.entries);
    unread.retain(|it| recorded.contains(it) && named.iter().all(|entry| entry.address != *it));
    (!unread.is_empty()).then_some(Leftover::ShortTerm { addresses: unread })
}

impl locks::Remembered {
    /// The message if its journal is not there any more: a directory without one, or with another one, is for
    /// example a file system that is not mounted.
    pub(crate) fn lost(&self, directory: &Path) -> Option<Leftover> {
        let (address, state) = (self.address.clone(), self.state.clone());
        let link = self.link(directory);
        if !state::journal(&state).exists() {
            return Some(Leftover::Lost {
                address,
                state,
                link,
            });
        }
        // Reading errors are reported where the contents are needed.
        let bytes = state::load_journal(&state).ok()?;
        let is_it = |id| litd_core::journal::may_have_id(&bytes, id);
        let is_another = self.id.as_deref().is_some_and(|id| !is_it(id));
        is_another.then_some(Leftover::Replaced {
            address,
            state,
            link,
        })
    }
}

/// The places whose journals still name devices after the first of them has taken over as many as possible.
fn still_owed(config: &Config, places: Vec<PathBuf>) -> Vec<PathBuf> {
    let own = &config.shell.state.directory;
    let (ours, mut others): (Vec<_>, Vec<_>) =
        places.into_iter().partition(|place| is_same(place, own));
    others.retain(|place| !matches!(owed(config, place), Ok(None)));
    let first = match ours.is_empty() && matches!(owed(config, own), Ok(None)) {
        true => None,
        false => Some(own.to_owned()),
    };
    first.into_iter().chain(others).collect()
}

/// The undo that the journal in a state directory asks for, if any. What is out of date in it is left out.
pub(crate) fn owed(config: &Config, directory: &Path) -> Result<Option<Recovered>, Leftover> {
    recorded(config, directory).map(|(owed, _)| owed)
}

/// The devices about which the journal in a state directory is out of date: a litd with another state directory had
/// them since and took the entries over, or they are undone, and the entries could not be removed.
pub(crate) fn outdated(config: &Config, directory: &Path) -> Outdated {
    let recorded = recorded(config, directory);
    recorded.map_or_else(|_| Outdated::default(), |(_, outdated)| outdated)
}

/// The undo that the journal in a state directory asks for, and the devices about which it is out of date.
fn recorded(config: &Config, directory: &Path) -> Result<(Option<Recovered>, Outdated), Leftover> {
    let unreadable = |cause| Leftover::Unreadable {
        journal: state::journal(directory),
        cause,
    };
    let bytes = state::load_journal(directory).map_err(|cause| unreadable(cause.into()))?;
    let Some(recovered) = litd_core::journal::read(&bytes).map_err(unreadable)? else {
        return Ok((None, Outdated::default()));
    };
    let id = litd_core::journal::id(&bytes);
    let outdated = locks::outdated(&config.shell.locks(), &recovered, directory, id.as_deref());
    Ok((recovered.without(&outdated.all()), outdated))
}

/// Whether the journal in a state directory has the entry of any of these devices.
fn names_any(config: &Config, directory: &Path, locks: &DeviceLocks) -> bool {
    let Ok(Some(recovered)) = owed(config, directory) else {
        return false;
    };
    let addresses = recovered.addresses();
    let mut named = addresses.iter();
    named.any(|address| locks.points_to(address, directory))
}

/// Restores the devices in the journal of a state directory, as far as they are among these.
async fn give_back(
    config: &Config,
    place: &Path,
    found: Found,
    store: FileStore,
    locks: &DeviceLocks,
) -> Result<Vec<Leftover>, DaemonError> {
    let own = is_same(place, &config.shell.state.directory);
    let _lock = match own {
        true => None,
        false => {
            let lock = Lock::take_existing(place)?;
            log::warn!(
                "{}: a litd with that state directory is gone and has left caps changed: they are restored",
                place.display()
            );
            Some(lock)
        }
    };
    let damaged = owed(config, place).ok().flatten().and_then(|it| it.damaged);
    let (hub, answers) = assemble(Core::restoring, config, found, Clock::Kernel, store, None)?;
    hub.borrow_mut().silence();
    hub.borrow_mut()
        .wait_for(Hanging::noted(&config.shell.locks()));
    let mut life = Life::new(hub.clone(), answers, Signals::catch()?);
    hub.borrow_mut().begin();
    life.stop();
    match life.live(None, std::future::pending()).await {
        // The journal has the devices.
        Err(DaemonError::Unfinished) => {}
        other => drop(other?),
    }
    let mut store = store_by_links(place, &config.shell);
    let mut left = left_by(&hub, place, &mut store, config)?;
    // With caps.on_exit = "hold" nothing is left to do, and the journal keeps the caps found for the next litd.
    match recorded(config, place) {
        Ok((None, outdated)) if left.is_empty() && outdated.is_empty() => locks.forget(place),
        Ok((Some(_), _)) if own => {
            if let Err(error) = locks.remember(place, state::journal_id(place).as_deref()) {
                log::warn!(
                    "{error}: a litd with another state directory will not find what is left"
                );
            }
        }
        _ => {}
    }
    let journal = state::journal(place);
    let may_land: BTreeSet<String> = {
        let hub = hub.borrow();
        let caps = hub.may_land_on_exit().into_iter();
        caps.chain(hub.may_lock_on_exit()).collect()
    };
    if !may_land.is_empty() {
        left.push(Leftover::MayLand {
            journal: journal.clone(),
            addresses: may_land.into_iter().collect(),
        });
    }
    let unclaimed = hub.borrow().unclaimed().to_vec();
    left.extend(unclaimed.into_iter().map(Leftover::Unclaimed));
    left.extend(damaged.map(|damage| Leftover::Damaged { journal, damage }));
    Ok(left)
}

/// Checks on disk that no cap has to be restored any more, except foreign ones.
///
/// # Errors
/// The journal can't be read.
pub(crate) fn left_by(
    hub: &Shared,
    place: &Path,
    store: &mut FileStore,
    config: &Config,
) -> Result<Vec<Leftover>, DaemonError> {
    let (status, trouble) = (hub.borrow().status(), hub.borrow().journal_trouble());
    let journal = state::journal(place);
    let opened = Journal::open(store, &state::boot_id()?);
    let opened = match opened {
        Ok((opened, _)) => opened,
        Err(cause) => return Ok(vec![Leftover::Unreadable { journal, cause }]),
    };
    let held = hub.borrow().held_on_exit();
    if !held.is_empty() {
        log::info!(
            "caps stay within the safe budget, of {}; {} keeps the caps found",
            held.join(", "),
            journal.display()
        );
    }
    let late = hub.borrow().may_land_on_exit();
    if !late.is_empty() {
        log::info!(
            "the caps of {} are restored; {} keeps their entries, because a write that failed or got no answer may \
             still take effect (up to half a minute late): the next start, or `litd restore` half a minute from \
             now, checks them again",
            late.join(", "),
            journal.display()
        );
    }
    let late_locks = hub.borrow().may_lock_on_exit();
    if !late_locks.is_empty() {
        log::info!(
            "the clocks of {} are unlocked; {} keeps their entries, because a lock that failed or got no answer may \
             still take effect (up to half a minute late): the next start, or `litd restore` half a minute from \
             now, unlocks them once more",
            late_locks.join(", "),
            journal.display()
        );
    }
    let here = |address: &str| status.devices.iter().find(|it| it.address == address);
    // A late write has replaced a foreign cap.
    let is_ours = |device: &DeviceStatus, entry: &Entry| {
        let undo = device.cap.map(|cap| entry.undo(cap));
        matches!(undo, Some(Undo::Write(_)))
    };
    let (mut owed, mut gone) = (BTreeSet::new(), BTreeSet::new());
    let mut uncrossed = BTreeSet::new();
    for entry in opened.entries() {
        let address = entry.address.clone();
        match here(&address) {
            None => drop(gone.insert(address)),
            Some(device) if device.state == DeviceState::Foreign && !is_ours(device, entry) => {}
            Some(_) if held.contains(&address) => {}
            Some(_) if late.contains(&address) => {}
            Some(device) => {
                let held = device.found.zip(device.cap);
                let back = held.is_some_and(|(found, cap)| cap.is_same_cap(found));
                let list = if back { &mut uncrossed } else { &mut owed };
                list.insert(address);
            }
        }
    }
    let clocks = opened.clocks().iter().map(|it| &it.address);
    for address in clocks.filter(|it| !late_locks.contains(it)) {
        let list = match (here(address), &trouble) {
            (None, _) => &mut gone,
            (Some(_), Some(_)) => &mut uncrossed,
            (Some(_), None) => &mut owed,
        };
        list.insert(address.clone());
    }
    let list = |addresses: BTreeSet<String>| -> Option<Vec<String>> {
        (!addresses.is_empty()).then(|| addresses.into_iter().collect())
    };
    let mut left = Vec::new();
    if let Some(addresses) = list(owed) {
        let journal = journal.clone();
        left.push(Leftover::Owed { journal, addresses });
    }
    if let Some(addresses) = list(gone) {
        let journal = journal.clone();
        left.push(Leftover::Gone { journal, addresses });
    }
    let above = hub.borrow().above_on_exit();
    if let Some(above) = above.filter(|_| is_same(place, &config.shell.state.directory)) {
        let cause = trouble.clone();
        left.push(Leftover::Above { above, cause });
    }
    if let Some(addresses) = list(uncrossed) {
        let cause = trouble.unwrap_or_else(|| "there was no time to write it".to_owned());
        left.push(Leftover::Unnoted {
            journal,
            addresses,
            cause,
            locks: config.shell.locks(),
        });
    }
    Ok(left)
}

/// Checks at the end of a daemon that nothing is left.
///
/// # Errors
/// Something is.
pub(crate) fn nothing_left(hub: &Shared, config: &Config) -> Result<(), DaemonError> {
    let place = &config.shell.state.directory;
    let mut store = store_by_links(place, &config.shell);
    let mut left = left_by(hub, place, &mut store, config)?;
    left.extend(remove_outdated(config, place));
    Leftovers(left).or_nothing()
}
