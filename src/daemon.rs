//! The daemon's life: configuration, lock, devices, sockets, the loop, and the end.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use litd_core::journal::JournalError;
use litd_core::{Core, Device, Event, Table};
use litd_power::{CapRange, DeviceKind};
use litd_units::{Nanos, Watts};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::signal::SigSet;
use nix::sys::stat::{Mode, umask};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep, sleep_until};

use crate::announcements::Notes;
use crate::answers::Answers;
use crate::attach::Attach;
use crate::baseline::BaselineFile;
use crate::clock::Clock;
use crate::config::{Config, ConfigError, Permissions, Shell};
use crate::devices::{self, DiscoveryError, Found, Report};
use crate::hanging::Hanging;
use crate::hold::{self, Note};
use crate::hub::{Hub, Shared};
use crate::listening::{BindError, Cleanup, Listening};
use crate::locks::{DeviceLocks, Taken};
use crate::node_power::NodePowerFile;
use crate::passed::Closers;
use crate::presence::Presence;
use crate::process::Processes;
use crate::restore::Leftovers;
use crate::rig::{Advance, Rig};
use crate::rights::Admins;
use crate::signals::{Asked, Signals};
use crate::state::{self, FileStore, Lock, StateError};
use crate::unread::Unread;
use crate::{anew, control, ingest, logging, metrics_server, owners, restore, takeover, tolerated};

pub use crate::restore::restore;

/// How long restoring all caps may take; systemd waits longer.
const LONGEST_STOP: Duration = Duration::from_secs(20);

/// How long to wait for devices to be found, and again for each to tell its range and a first reading, at most,
/// however patient litd is with them later: a device that hangs must not keep the others' caps from being restored
/// before systemd ends this process. Both together, and [`LONGEST_STOP`], are less than the unit's
/// `TimeoutStopSec=`, which `litd restore` has as well. A device that answers later is read later.
const LONGEST_DISCOVERY: Duration = Duration::from_secs(10);

/// How long a start waits for a `litd restore` that runs: one whose devices answer takes a second or two. Less than
/// the unit's `TimeoutStartSec=` with all else.
const LONGEST_RESTORE: Duration = Duration::from_secs(15);

/// Between two looks whether it has ended.
const RESTORES: Duration = Duration::from_millis(100);

/// How often to check that sockets are still there.
const LOOK: Duration = Duration::from_secs(1);

/// The most threads that look up users.
const BLOCKING_THREADS: usize = 2;

/// How many files may be open, as in the service's unit.
const DESCRIPTORS: u64 = 16_384;

/// Options of the command line.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The configuration file, if not the usual one.
    pub config: Option<PathBuf>,
    /// The socket of a test rig's clock.
    pub rig_clock: Option<PathBuf>,
}

/// Why the daemon could not start, or did not end well.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// The configuration was refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The state directory can't be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// There are no devices.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// The journal can't be used.
    #[error("{}: {cause}", directory.display())]
    Journal {
        /// The state directory.
        directory: PathBuf,
        /// The cause.
        cause: JournalError,
    },
    /// Another litd's journal can't be taken over into this one's.
    #[error(
        "{}: litd does not start, because it can't take over the undo journal of a dead litd: {cause}. Mend that, \
         or restore the caps with `litd restore`, which does not write to the journal",
        directory.display()
    )]
    Takeover {
        /// The state directory of this litd.
        directory: PathBuf,
        /// The cause.
        cause: JournalError,
    },
    /// A socket can't be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A test rig's clock.
    #[error("rig clock: {0}")]
    Rig(io::Error),
    /// The system.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Another daemon has one of the devices.
    #[error(transparent)]
    Taken(#[from] Taken),
    /// Devices did not take their caps found, or the undo journal does not say that they have.
    #[error(transparent)]
    Left(Leftovers),
    /// litd has started itself anew, and could not begin.
    #[error("litd has started itself anew, and can't begin: {0}")]
    Anew(String),
    /// The core did not come to an end in time.
    #[error(
        "not everything could be restored within {} s; `litd restore` or the next start tries again",
        LONGEST_STOP.as_secs()
    )]
    Unfinished,
}

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// It can't start, or caps may not be back.
pub fn run(options: &Options) -> Result<(), DaemonError> {
    anew::goes_on();
    let mut until = Instant::now() + anew::PATIENCE;
    loop {
        match one_life(options) {
            Ok(End::Over) => return Ok(()),
            Ok(End::Anew) => {
                let Err(error) = anew::start();
                log::warn!("litd can't execute itself: {error}: it goes on in this process");
                anew::goes_on_here();
                until = Instant::now() + anew::PATIENCE;
            }
            Err(error) if anew::is_beginning() => {
                let why = error.to_string();
                if Instant::now() >= until {
                    return Err(DaemonError::Anew(why));
                }
                log::error!("litd has started itself anew, and can't begin yet: {why}");
                anew::wait();
            }
            Err(error) => return Err(error),
        }
    }
}

/// From the configuration to the end.
fn one_life(options: &Options) -> Result<End, DaemonError> {
    let config = Config::load_after(options.config.as_deref())?;
    logging::start(config.shell.log.level);
    private_files();
    raise_limits();
    // Held until this life is over.
    let _lock = lock_after_a_restore(&config)?;
    let directory = config.shell.state.directory.clone();
    let end = on_one_thread(serve(config, options))?;
    if end == End::Over {
        hold::end(&directory);
        tolerated::end(&directory);
    }
    Ok(end)
}

/// Locks the state directory. A `litd restore` that has it, as after a crash a moment ago, is waited for.
fn lock_after_a_restore(config: &Config) -> Result<Lock, StateError> {
    let until = Instant::now() + LONGEST_RESTORE;
    loop {
        match Lock::take(&config.shell.state.directory) {
            Err(StateError::Restoring { .. }) if Instant::now() < until => {
                anew::is_alive();
                std::thread::sleep(RESTORES);
            }
            taken => return taken,
        }
    }
}

/// How a daemon's life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Caps are restored.
    Over,
    /// Nothing is restored: a life follows at once.
    Anew,
}

/// Raises the limits on open files and on file sizes as far as permitted. Containers and shells begin with 1,024
/// files, most of which hooks and clients take.
pub(crate) fn raise_limits() {
    let limits = [
        (
            "the limit on open files",
            Resource::RLIMIT_NOFILE,
            DESCRIPTORS,
        ),
        (
            "the limit on file sizes",
            Resource::RLIMIT_FSIZE,
            RLIM_INFINITY,
        ),
    ];
    for (what, resource, wanted) in limits {
        let outcome = getrlimit(resource).and_then(|(soft, hard)| {
            let wanted = wanted.min(hard);
            match soft < wanted {
                true => setrlimit(resource, wanted, hard),
                false => Ok(()),
            }
        });
        if let Err(error) = outcome {
            log::warn!("{what} can't be raised: {error}");
        }
    }
}

/// Turns the signal for a file beyond the size limit into an error of the write. By default it would end the
/// process before any cap is restored. Threads inherit the blocked signals of this one.
pub(crate) fn outlive_long_files() {
    let mut long_files = SigSet::empty();
    long_files.add(nix::sys::signal::Signal::SIGXFSZ);
    if let Err(error) = long_files.thread_block() {
        log::warn!("SIGXFSZ can't be blocked: {error}");
    }
}

/// The store of a state directory.
pub(crate) fn store_in(directory: &Path, shell: &Shell) -> FileStore {
    FileStore::new(directory, shell.audit_files())
}

/// The same, without what is out of date in its journal, by the links beside the devices' locks.
pub(crate) fn store_by_links(directory: &Path, shell: &Shell) -> FileStore {
    store_in(directory, shell).by_links(shell.locks())
}

/// Only the daemon's user may open its files; sockets get their permissions one by one.
pub(crate) fn private_files() {
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
}

pub(crate) fn on_one_thread<T>(
    work: impl Future<Output = Result<T, DaemonError>>,
) -> Result<T, DaemonError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_keep_alive(Duration::from_secs(1))
        .build()?;
    let outcome = LocalSet::new().block_on(&runtime, work);
    // A directory service that does not answer must not delay the end.
    runtime.shutdown_background();
    outcome
}

async fn serve(config: Config, options: &Options) -> Result<End, DaemonError> {
    let signals = Signals::held()?;
    let sockets = Sockets::open(&config.shell).await?;
    let (found, store) = claim(&config, options).await?;
    let (clock, rig) = clock(options.rig_clock.as_deref()).await?;
    let baseline = config.shell.baseline_file();
    let (hub, answers) = assemble(Core::new, &config, found, clock, store, baseline)?;
    let subordinate_ids = &config.shell.ingest.subordinate_ids;
    hub.borrow_mut().set_owners(owners::read(subordinate_ids));
    hub.borrow_mut()
        .wait_for(Hanging::noted(&config.shell.locks()));
    if let Some(copy) = state::copy_of_damaged(&config.shell.state.directory) {
        let told = state::was_damaged(&copy);
        hub.borrow_mut().handle(Event::Outside(&told));
    }
    hub.borrow_mut()
        .note_holds(Note::new(&config.shell.state.directory));
    if anew::was_started() {
        hub.borrow_mut().put_off_anew(anew::PAUSE);
        let why = "litd has started itself anew, because drivers of GPUs came up after it had looked for devices";
        hub.borrow_mut().handle(Event::Asked(why));
    }
    let mut life = Life::new(hub.clone(), answers, signals);
    hub.borrow_mut()
        .reads_notes(Notes::of(&config.shell.control.socket));
    let _cleanup = sockets.serve(&config, &hub);
    hub.borrow_mut().begin();
    anew::has_begun();
    // Before any client is answered: the end of a job must not come before its beginning.
    hub.borrow_mut().hear_late();
    spawn_local(keep_hearing(hub.clone()));
    let reload = Reload {
        path: options.config.clone(),
        shell: config.shell.clone(),
    };
    let followed_by = hub.clone();
    let end = by_itself(async move {
        match rig {
            Some((rig, first)) => {
                let followed = rig.follow(first, followed_by);
                life.live(Some(reload), followed).await
            }
            None => life.live(Some(reload), std::future::pending()).await,
        }
    })
    .await?;
    if end == End::Over {
        restore::nothing_left(&hub, &config)?;
    }
    Ok(end)
}

/// Runs this in a task. The future that the runtime was started with is polled at every event, and a frame from a
/// hook, which may ask for a clock, should not wait for that.
async fn by_itself(
    work: impl Future<Output = Result<End, DaemonError>> + 'static,
) -> Result<End, DaemonError> {
    match spawn_local(work).await {
        Ok(outcome) => outcome,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(cancelled) => Err(io::Error::other(cancelled).into()),
        },
    }
}

/// Compares a configuration's budgets with the floors of the GPUs present; devices are only read for that, and
/// only where a budget is set. Returns the comparison in words.
///
/// # Errors
/// A budget can't be kept.
pub fn check_budgets(config: &Config, options: &Options) -> Result<String, DaemonError> {
    if !config.has_budgets() {
        return Ok(String::new());
    }
    on_one_thread(async {
        let found = match look(config).await {
            Ok(found) => found,
            Err(error) => return Ok(format!("; budgets were not compared with floors: {error}")),
        };
        config.fits(&found.inventory, options.config.as_deref())?;
        let known = |it: &&Device| it.identity.kind == DeviceKind::Gpu && it.reading.is_some();
        Ok(match found.inventory.iter().filter(known).count() {
            0 => "; no GPU can be read here to compare its budgets with".to_owned(),
            1 => "; its budgets are above the floor of the GPU here".to_owned(),
            count => format!("; its budgets are above the floors of the {count} GPUs here"),
        })
    })
}

/// Finds the devices and locks them for this daemon, together with the entries of its journal and of the journals
/// of daemons that had them before.
async fn claim(config: &Config, options: &Options) -> Result<(Found, FileStore), DaemonError> {
    let until = Instant::now() + LONGEST_RESTORE;
    loop {
        match claim_now(config, options).await {
            // Readings from before its end are outdated: devices are looked for again.
            Err(DaemonError::Taken(taken)) if taken.restores && Instant::now() < until => {
                sleep(RESTORES).await;
            }
            claimed => return claimed,
        }
    }
}

async fn claim_now(config: &Config, options: &Options) -> Result<(Found, FileStore), DaemonError> {
    let found = discover(config).await?;
    anew::is_alive();
    let path = options.config.as_deref();
    if let Err(error) = config.fits(&found.inventory, path) {
        // Without litd no budget would be enforced at all.
        match config.fits(&as_their_peers(&found.inventory), path) {
            // The driver may tell another range in a second.
            Ok(()) => log::warn!(
                "{error}\nThe driver of one GPU reports a higher lowest cap than those of the others, and may be wrong \
                 (a GPU in recovery): with the others' lowest cap the floors are within the budget. litd starts, and \
                 holds caps at their floors while the budget is less"
            ),
            // litd has started itself anew. Nobody has asked for this start, so such a budget is tolerated.
            Err(error) if anew::was_started() => {
                tolerated::note(&config.shell.state.directory);
                log::error!(
                    "{error}\nlitd has started itself anew, because drivers of GPUs came up, and goes on: it holds \
                     caps at their floors while the budget is less"
                );
            }
            Err(error) if tolerated::is_noted(&config.shell.state.directory) => log::error!(
                "{error}\nlitd starts all the same, because it ran with such a budget before it died: it holds caps at \
                 their floors while the budget is less"
            ),
            Err(error) => return Err(error.into()),
        }
    }
    let (directory, state) = (config.shell.locks(), &config.shell.state.directory);
    let locks = Rc::new(DeviceLocks::take(&directory, state, found.addresses())?);
    if let Err(error) = found.numbers.keep(&directory) {
        log::warn!(
            "{}: the numbers of devices (as in gpu3) can't be saved: {error}: if a device is missing at the next \
             start, another one may get its number",
            directory.display()
        );
    }
    // The takeover writes the journal anew, so a damaged one is kept beside it first.
    state::keep_damaged(state);
    takeover::take_over(config, &locks)?;
    let usual = takeover::unlinked_usual(config);
    for left in usual
        .into_iter()
        .flat_map(|it| takeover::remove_outdated(config, &it))
    {
        log::warn!("{left}");
    }
    takeover::take_over_condition(config, &locks)?;
    Ok((found, store_in(state, &config.shell).of(locks)))
}

/// The same devices, where each GPU gets the least of the lowest caps of all GPUs: a GPU in recovery may tell a
/// wrong one.
fn as_their_peers(inventory: &[Device]) -> Vec<Device> {
    let is_gpu = |it: &&Device| it.identity.kind == DeviceKind::Gpu;
    let lowest = inventory
        .iter()
        .filter(is_gpu)
        .filter_map(|it| it.range.last());
    let lowest = lowest.map(|range| range.lowest).reduce(Watts::min);
    let mut devices = inventory.to_vec();
    for device in devices.iter_mut().filter(|it| is_gpu(&&**it)) {
        if let (Some(range), Some(lowest)) = (device.range.last(), lowest) {
            device.range = CapRange { lowest, ..range }.into();
        }
    }
    devices
}

pub(crate) async fn discover(config: &Config) -> Result<Found, DaemonError> {
    Ok(devices::discover(&config.shell, patience(config)).await?)
}

/// As [`discover`], and changes nothing.
pub(crate) async fn look(config: &Config) -> Result<Found, DaemonError> {
    Ok(devices::look(&config.shell, patience(config)).await?)
}

fn patience(config: &Config) -> Duration {
    let patience = Duration::from_secs_f64(config.core.caps.answer_seconds);
    patience.min(LONGEST_DISCOVERY)
}

/// The kernel's clock, or the rig's once its first line has come.
async fn clock(rig: Option<&Path>) -> Result<(Clock, Option<(Rig, Advance)>), DaemonError> {
    let Some(path) = rig else {
        return Ok((Clock::Kernel, None));
    };
    let mut rig = Rig::connect(path).await.map_err(DaemonError::Rig)?;
    let first = rig.next().await.map_err(DaemonError::Rig)?;
    let first = first.ok_or_else(|| DaemonError::Rig(io::ErrorKind::UnexpectedEof.into()))?;
    Ok((Clock::rig(first.now), Some((rig, first))))
}

/// A function that makes a core, to run or to restore.
pub(crate) type Begin = fn(
    litd_core::Config,
    Vec<Device>,
    FileStore,
    &str,
    Nanos,
    f64,
) -> Result<Core<FileStore>, JournalError>;

pub(crate) fn assemble(
    begin: Begin,
    config: &Config,
    found: Found,
    clock: Clock,
    store: FileStore,
    baseline: Option<BaselineFile>,
) -> Result<(Shared, UnboundedReceiver<Report>), DaemonError> {
    let directory = &config.shell.state.directory;
    let were_here: Vec<String> = found.numbers.gpus().cloned().collect();
    let mut core = begin(
        config.core.clone(),
        found.inventory,
        store,
        &state::boot_id()?,
        clock.now(),
        clock.unix_seconds(),
    )
    .map_err(|cause| DaemonError::Journal {
        directory: directory.clone(),
        cause,
    })?;
    core.gpus_were_here(were_here);
    let hardware = &config.shell.hardware;
    let search = hardware.simulated.is_none().then(|| hardware.search());
    let presence = Presence::new(search, found.known, found.up);
    let hash = config.hash();
    let node_power = NodePowerFile::new(&config.shell.hardware.node_power);
    let hub = Hub::new(
        core,
        clock,
        found.devices,
        presence,
        baseline,
        node_power,
        hash,
    );
    Ok((Rc::new(RefCell::new(hub)), found.answers))
}

/// All listening sockets.
struct Sockets {
    ingest: Rc<Listening>,
    control: Rc<Listening>,
    /// The address for Prometheus, and its socket unless another process has the port.
    metrics: Option<(SocketAddr, Option<TcpListener>)>,
    /// Processes whose scripts know nothing of litd.
    attach: Attach,
}

impl Sockets {
    async fn open(shell: &Shell) -> Result<Self, DaemonError> {
        let (ingest, control) = (&shell.ingest, &shell.control);
        let readers = match control.read_group.as_str() {
            "" => Permissions(0o600),
            _ => Permissions(0o660),
        };
        let metrics = match shell.metrics.listen.0 {
            Some(address) => Some((address, metrics_server::listen(address).await)),
            None => None,
        };
        let closers = Closers::default();
        let on = |path, group: &String, mode| Listening::on(path, group, mode, &closers);
        Ok(Self {
            ingest: on(&ingest.socket, &ingest.group, ingest.mode)?.into(),
            control: on(&control.socket, &control.read_group, readers)?.into(),
            metrics,
            attach: Attach::open(shell),
        })
    }

    /// Serves all of them; the sockets' files are removed when the result is dropped.
    fn serve(mut self, config: &Config, hub: &Shared) -> Cleanup {
        let shell = &config.shell;
        for told in self.attach.said() {
            hub.borrow_mut().handle(Event::Outside(told));
        }
        let wishes = self.attach.wishes(shell);
        hub.borrow_mut().set_wishes(wishes.clone());
        self.attach.serve();
        if let Some(sampler) = Attach::sampler(wishes, config, hub) {
            spawn_local(sampler);
        }
        if let Some(rings) = Attach::rings(shell, hub) {
            spawn_local(rings);
        }
        let by_path = vec![self.ingest.clone(), self.control.clone()];
        spawn_local(keep_reached(by_path.clone(), hub.clone()));
        let sessions = config.core.limits.sessions;
        let room = Table::Frames.of_a_gpu(hub.borrow().gpus());
        let longest = shell.ingest.frame_bytes.min(room);
        let processes = Processes::new(&shell.hardware.proc);
        let unread = Unread::default();
        let hooks = ingest::serve(
            self.ingest,
            processes,
            sessions,
            longest,
            unread.clone(),
            hub.clone(),
        );
        spawn_local(hooks);
        let admins = Admins::new(&shell.control.admin_group);
        let answers = Answers::new();
        let control = control::serve(self.control, admins, answers.clone(), unread, hub.clone());
        spawn_local(control);
        if let Some((address, listener)) = self.metrics {
            let hub = hub.clone();
            spawn_local(async move {
                let listener = match listener {
                    Some(listener) => listener,
                    None => metrics_server::listen_later(address, &hub).await,
                };
                metrics_server::serve(listener, answers, hub).await;
            });
        }
        Cleanup(by_path)
    }
}

/// Recreates sockets that are removed by others, for ever.
async fn keep_reached(sockets: Vec<Rc<Listening>>, hub: Shared) {
    loop {
        sleep(LOOK).await;
        for told in sockets.iter().filter_map(|socket| socket.keep()) {
            hub.borrow_mut().handle(Event::Outside(&told));
        }
    }
}

/// Hears what schedulers announced while litd was away once in a while, for ever: a note may be left just when litd
/// starts.
async fn keep_hearing(hub: Shared) {
    loop {
        sleep(LOOK).await;
        hub.borrow_mut().hear_late();
    }
}

/// The sources of a reload, and the values in force.
pub(crate) struct Reload {
    path: Option<PathBuf>,
    shell: Shell,
}

impl Reload {
    /// Reads the configuration anew. A bad file changes nothing.
    fn perform(&self, hub: &Shared) {
        let loaded = Config::load(self.path.as_deref()).map_err(|error| error.to_string());
        let config = match loaded.and_then(|config| hub.borrow().accepts(config)) {
            Ok(config) => config,
            Err(why) => return hub.borrow_mut().reloaded(Err(why)),
        };
        logging::set_level(config.shell.log.level);
        for section in config.shell.differing(&self.shell) {
            log::warn!("[{section}] takes effect at the next start");
        }
        let owners = owners::read(&self.shell.ingest.subordinate_ids);
        hub.borrow_mut().set_owners(owners);
        hub.borrow_mut().reloaded(Ok(config));
    }
}

/// The loop around the hub.
pub(crate) struct Life {
    hub: Shared,
    answers: UnboundedReceiver<Report>,
    signals: Signals,
    /// The time by which restoring has to be done, once the daemon stops.
    stop_by: Option<Instant>,
    /// Why litd does not start itself anew, as said last.
    put_off: Option<String>,
}

impl Life {
    pub(crate) fn new(hub: Shared, answers: UnboundedReceiver<Report>, signals: Signals) -> Self {
        Self {
            hub,
            answers,
            signals,
            stop_by: None,
            put_off: None,
        }
    }

    pub(crate) fn stop(&mut self) {
        if self.stop_by.is_none() {
            self.stop_by = Some(Instant::now() + LONGEST_STOP);
            self.hub.borrow_mut().stop();
        }
    }

    /// Whether litd starts anew at this moment: with the configuration in force only, and where no check of a start
    /// would end it. Whatever keeps it from that is said once.
    fn starts_anew(&mut self, reload: &Reload) -> bool {
        let Some(devices) = self.hub.borrow().may_start_anew() else {
            return false;
        };
        let Some(why) = self.why_no_start(reload) else {
            log::warn!(
                "the drivers of {devices} have come up after litd had looked for devices: litd starts itself anew to \
                 take these devices in. Caps stay as they are meanwhile"
            );
            return true;
        };
        self.hub.borrow_mut().put_off_anew(anew::PUT_OFF);
        let text = format!(
            "the drivers of {devices} have come up, and litd does not start itself anew to take these devices in, \
             {why}"
        );
        if self.put_off.as_ref() != Some(&text) {
            self.hub.borrow_mut().handle(Event::Outside(&text));
            self.put_off = Some(text);
        }
        false
    }

    /// Why a start at this moment would fail, or be one with another configuration.
    fn why_no_start(&self, reload: &Reload) -> Option<String> {
        let config = match Config::load_after(reload.path.as_deref()) {
            Ok(config) => config,
            Err(error) => {
                return Some(format!(
                    "because it could not start with its configuration: {error}. Correct the file"
                ));
            }
        };
        let hub = self.hub.borrow();
        if config.hash() != hub.configuration() {
            let why = "because its configuration file differs from the configuration in force and has not been \
                       reloaded: reload it (`systemctl reload litd`)";
            return Some(why.to_owned());
        }
        let sections: Vec<&str> = config.shell.differing(&reload.shell);
        if !sections.is_empty() {
            return Some(format!(
                "because its configuration has other values in [{}] than are in force: restart litd \
                 (`systemctl restart litd`)",
                sections.join("], [")
            ));
        }
        for socket in [&config.shell.ingest.socket, &config.shell.control.socket] {
            let folder = socket.parent().unwrap_or(Path::new("/"));
            if !folder.is_dir() {
                return Some(format!(
                    "because its socket's directory {} is gone: make it again",
                    folder.display()
                ));
            }
        }
        let refused = takeover::would_refuse(&config, |name| hub.is_coming(name));
        refused.map(|why| format!("because it could not start with them: {why}"))
    }

    /// Handles events until all caps are restored, or litd starts anew. `rig` ends when a test rig has hung up.
    pub(crate) async fn live(
        &mut self,
        reload: Option<Reload>,
        rig: impl Future<Output = io::Result<()>>,
    ) -> Result<End, DaemonError> {
        let mut rig = std::pin::pin!(rig);
        let mut rig_gone = None;
        let (progress, end) = (self.hub.borrow().progress(), self.hub.borrow().end());
        let runs = self.hub.borrow().clock().runs();
        while !self.hub.borrow().is_stopped() {
            if self.stop_by.is_none() && reload.as_ref().is_some_and(|it| self.starts_anew(it)) {
                return Ok(End::Anew);
            }
            let wait = self.hub.borrow().wait();
            let stop_by = self.stop_by;
            tokio::select! {
                Some((device, reply)) = self.answers.recv() => {
                    self.hub.borrow_mut().answered(device, reply);
                }
                () = sleep(wait), if runs => self.hub.borrow_mut().handle(Event::Time),
                () = end.notified() => {}
                // Deadlines may have moved.
                () = progress.notified(), if runs => {}
                asked = self.signals.next() => match (asked, &reload) {
                    (Asked::Stop, _) => self.stop(),
                    (Asked::Reload, Some(reload)) => reload.perform(&self.hub),
                    (Asked::Reload, None) => {}
                },
                outcome = &mut rig, if rig_gone.is_none() => {
                    rig_gone = Some(outcome);
                    self.stop();
                }
                () = until(stop_by), if stop_by.is_some() => return Err(DaemonError::Unfinished),
            }
        }
        match rig_gone {
            Some(Err(error)) => Err(DaemonError::Rig(error)),
            Some(Ok(())) | None => Ok(End::Over),
        }
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
