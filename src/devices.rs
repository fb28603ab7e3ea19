//! The devices' threads: what was found at start, and one operation at a time from then on.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use litd_core::{Device, DeviceId, Operation, Range, Reply};
use litd_power::{
    DeviceKind, Handles, Inventory, Notice, PowerDomain, PowerError, Search, Severity, Source,
    Worker,
};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use crate::config::Shell;
use crate::numbers::Numbers;
use crate::presence::Up;

/// Why there are no devices.
#[derive(Debug, Error)]
pub enum DiscoveryError {
    /// The stand-in hardware returned an error.
    #[error("no hardware: {0}")]
    Simulated(#[from] PowerError),
    /// The stand-in hardware does not answer.
    #[error("no hardware: {} has not answered for {} s", .socket.display(), .patience.as_secs_f64())]
    Silent {
        /// The stand-in's socket.
        socket: PathBuf,
        /// How long it was waited for.
        patience: Duration,
    },
    /// The system gives no thread.
    #[error("no thread for a device: {0}")]
    Thread(#[from] io::Error),
}

/// The part of the discovery time that single devices have.
const PART: f64 = 0.8;

/// A device's answer.
pub type Report = (DeviceId, Reply);

/// The threads of all devices.
#[derive(Debug)]
pub struct Devices {
    workers: Vec<Worker>,
    /// Questions of discovery that were not answered in time, by device: their late answers are ignored.
    unanswered: Vec<u32>,
    /// Operations that were begun and not answered.
    under_way: usize,
    reports: mpsc::UnboundedSender<Report>,
}

/// Devices as they were found.
#[derive(Debug)]
pub struct Found {
    /// The devices.
    pub inventory: Vec<Device>,
    /// The devices' threads.
    pub devices: Devices,
    /// The numbers of these devices, and of those that were here since the node booted.
    pub numbers: Numbers,
    /// All GPUs that were examined, by address, whether litd can use them or not.
    pub known: Vec<String>,
    /// What was up before devices were looked for.
    pub up: Up,
    /// The devices' answers, never more than operations under way.
    pub answers: mpsc::UnboundedReceiver<Report>,
}

/// Finds all devices and asks each for its range and first reading, all at the same time. A
/// device that does not answer within `patience` is one without a reading; the daemon starts
/// without it, and also with no device at all.
///
/// # Errors
/// There is stand-in hardware that does not list its devices, or the system gives no thread.
pub async fn discover(shell: &Shell, patience: Duration) -> Result<Found, DiscoveryError> {
    find(shell, Some(shell.locks()), patience).await
}

/// The same for whoever only looks, perhaps beside a daemon: with the records that a litd keeps for undoing, reading a
/// CPU socket would restore a short-term limit that one has left.
///
/// # Errors
/// As [`discover`].
pub async fn look(shell: &Shell, patience: Duration) -> Result<Found, DiscoveryError> {
    find(shell, None, patience).await
}

async fn find(
    shell: &Shell,
    kept: Option<PathBuf>,
    patience: Duration,
) -> Result<Found, DiscoveryError> {
    let (mut known, mut up) = (Vec::new(), Up::default());
    let domains = match &shell.hardware.simulated {
        Some(socket) => stand_in(socket, patience).await?,
        None => {
            let where_to = Search {
                kept,
                ..shell.hardware.search()
            };
            let on_the_bus = litd_power::gpus_on_the_bus(&where_to);
            up = Up::look(&where_to, &on_the_bus);
            let found = search(&where_to, patience).await?;
            tell(&found);
            if !has_gpu(&found) && !on_the_bus.is_empty() {
                log::error!(
                    "none of the GPUs on the bus can be used: {}: litd keeps no budget with them, and looks whether \
                     that changes; `litctl doctor` tells what is missing",
                    Vec::from_iter(on_the_bus.iter().map(String::as_str)).join(", ")
                );
            }
            // For a device that litd can't use, its driver, or the lack of one, is reported.
            let told = found.notices.iter().map(|it| &it.subject);
            known.extend(told.filter(|it| on_the_bus.contains(*it)).cloned());
            found.domains
        }
    };
    let (reports, mut answers) = mpsc::unbounded_channel();
    let mut devices = Devices {
        workers: Vec::with_capacity(domains.len()),
        unanswered: Vec::with_capacity(domains.len()),
        under_way: 0,
        reports: reports.clone(),
    };
    let mut inventory = Vec::with_capacity(domains.len());
    let mut numbers = Numbers::read(&shell.locks());
    known.extend(domains.iter().map(|it| it.identity().address.clone()));
    for (index, domain) in domains.into_iter().enumerate() {
        inventory.push(Device {
            number: numbers.of(domain.identity()),
            identity: domain.identity().clone(),
            range: Range::NEVER_TOLD,
            reading: None,
        });
        devices.add(DeviceId(index), domain, reports.clone())?;
    }
    devices
        .first_answers(&mut inventory, &mut answers, patience)
        .await;
    Ok(Found {
        inventory,
        devices,
        known,
        up,
        numbers,
        answers,
    })
}

impl Found {
    /// The devices' addresses.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        let devices = self.inventory.iter();
        devices.map(|device| device.identity.address.as_str())
    }
}

/// Stand-in hardware's devices.
async fn stand_in(
    socket: &Path,
    patience: Duration,
) -> Result<Vec<Box<dyn PowerDomain>>, DiscoveryError> {
    let path = socket.to_owned();
    let listed = aside(move || litd_power::simulated::discover(&path))?;
    match timeout(patience, listed).await {
        Ok(Ok(domains)) => Ok(domains?),
        // The thread has panicked: it will not answer either.
        Ok(Err(_)) | Err(_) => Err(DiscoveryError::Silent {
            socket: socket.to_owned(),
            patience,
        }),
    }
}

/// Real devices. Each is looked at on a thread of its own, and is found all the same if it does not answer in
/// time; only a source that does not even list its devices goes without them.
///
/// # Errors
/// The system gives no thread.
pub async fn search(search: &Search, patience: Duration) -> io::Result<Inventory> {
    let mut found = Inventory::default();
    let deadline = Instant::now() + patience;
    // Devices that do not answer in time have to be reported in time.
    let each = patience.mul_f64(PART);
    let mut searches = Vec::with_capacity(Source::ALL.len());
    for source in Source::ALL {
        let search = search.clone();
        let (tell, parts) = mpsc::unbounded_channel();
        let done = aside(move || {
            litd_power::discover_in_parts(&search, source, each, |part| {
                // If the part comes too late, nobody waits for it any more.
                let _ = tell.send(part);
            });
        })?;
        searches.push((source, done, parts));
    }
    for (source, done, mut parts) in searches {
        if !matches!(timeout_at(deadline, done).await, Ok(Ok(()))) {
            found.notices.push(
                Notice::new(
                    Severity::Error,
                    source.to_string(),
                    format!("their driver has not answered for {patience:?}"),
                )
                .remedy("litd leaves alone the devices that it has not reported; restart litd once it answers"),
            );
        }
        // Devices that were found in time are there, even if later ones are not.
        while let Ok(part) = parts.try_recv() {
            found.extend(part);
        }
    }
    found.sort();
    found.notices.extend(other_tools(search, &found).await);
    Ok(found)
}

/// What is to be said of other programs. Devices are found by then: nothing that others have running costs one.
async fn other_tools(search: &Search, found: &Inventory) -> Vec<Notice> {
    let identities = found.domains.iter().map(|it| it.identity());
    let back_ends: Vec<String> = identities.map(|it| it.backend.clone()).collect();
    let proc = search.proc.clone();
    let look = move || litd_power::other_tools(&proc, back_ends.iter().map(String::as_str));
    let Ok(told) = aside(look) else {
        return Vec::new();
    };
    // The look itself is bounded. Only a procfs that somebody has made up can hang.
    let told = timeout(Duration::from_secs(1), told).await;
    told.ok().and_then(Result::ok).unwrap_or_default()
}

fn has_gpu(found: &Inventory) -> bool {
    let mut devices = found.domains.iter().map(|it| it.identity());
    devices.any(|it| it.kind == DeviceKind::Gpu)
}

/// Asks on a thread of its own, because a driver may block.
fn aside<T: Send + 'static>(
    ask: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (done, answer) = oneshot::channel();
    std::thread::Builder::new()
        .name("discover".into())
        .spawn(move || done.send(ask()))?;
    Ok(answer)
}

fn tell(found: &Inventory) {
    if !nix::unistd::Uid::effective().is_root() {
        log::warn!("not root: drivers will refuse new caps, and not all of the node can be seen");
    }
    for notice in &found.notices {
        match notice.severity {
            Severity::Info => log::info!("{notice}"),
            Severity::Warning => log::warn!("{notice}"),
            Severity::Error => log::error!("{notice}"),
        }
    }
    if found.domains.is_empty() {
        log::warn!(
            "no device whose power can be capped: litd runs and has nothing to do; \
             `litctl doctor` tells what is missing"
        );
    }
}

impl Devices {
    fn add(
        &mut self,
        device: DeviceId,
        domain: Box<dyn PowerDomain>,
        reports: mpsc::UnboundedSender<Report>,
    ) -> io::Result<()> {
        let name = domain.identity().address.clone();
        let worker = Worker::start(domain, &name, move |reply| {
            // Once the loop has ended the answer is not needed.
            let _ = reports.send((device, reply));
        })?;
        self.workers.push(worker);
        self.unanswered.push(0);
        Ok(())
    }

    /// Asks every device for its range and a reading, and waits for what comes in time.
    async fn first_answers(
        &mut self,
        inventory: &mut [Device],
        answers: &mut mpsc::UnboundedReceiver<Report>,
        patience: Duration,
    ) {
        let deadline = Instant::now() + patience;
        for (worker, unanswered) in self.workers.iter().zip(&mut self.unanswered) {
            // A device that was not examined in time may identify itself by now.
            for question in [Operation::Identify, Operation::Read] {
                *unanswered += u32::from(worker.submit(question).is_ok());
            }
        }
        while self.unanswered.iter().any(|&count| count > 0) {
            let Ok(Some((DeviceId(index), reply))) = timeout_at(deadline, answers.recv()).await
            else {
                break;
            };
            self.unanswered[index] -= 1;
            match reply {
                Reply::Identity(Ok((identity, range))) => {
                    let device = &mut inventory[index];
                    device.range = range.into();
                    if identity.address == device.identity.address {
                        device.identity = identity;
                    }
                }
                Reply::Read(Ok(reading)) => inventory[index].reading = Some(reading),
                Reply::Identity(Err(error)) | Reply::Read(Err(error)) => {
                    log::error!(
                        "{error}: litd does not steer this device until its driver answers"
                    );
                }
                Reply::Set(_)
                | Reply::Range(_)
                | Reply::Holders(_)
                | Reply::HighestClock(_)
                | Reply::Clocks(_)
                | Reply::Released(_) => {}
            }
        }
        for (device, &unanswered) in inventory.iter().zip(&self.unanswered) {
            if unanswered > 0 {
                let address = &device.identity.address;
                let seconds = patience.as_secs_f64();
                log::error!(
                    "{address}: not steered until its driver answers: it has not answered for {seconds} s"
                );
            }
        }
    }

    /// Has a device do an operation; its answer comes as a [`Report`].
    pub fn submit(&mut self, device: DeviceId, operation: Operation) {
        let Some(worker) = self.workers.get(device.0) else {
            log::error!(
                "an operation was meant for device {}, which does not exist: this is a fault in litd",
                device.0
            );
            return;
        };
        self.under_way += 1;
        if let Err(stopped) = worker.submit(operation) {
            let _ = self
                .reports
                .send((device, refused(device, operation, &stopped.to_string())));
        }
    }

    /// Records an answer. Returns whether the loop gets it: not if it is a late one to a question of discovery.
    pub fn answered(&mut self, device: DeviceId) -> bool {
        match self.unanswered.get_mut(device.0) {
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            _ => {
                self.under_way = self.under_way.saturating_sub(1);
                true
            }
        }
    }

    /// Whether no driver is asked for anything, and none owes an answer of discovery.
    #[must_use]
    pub fn waits_for_nothing(&self) -> bool {
        self.is_idle() && self.unanswered.iter().all(|&count| count == 0)
    }

    /// Whether no operation is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.under_way == 0
    }
}

/// The answer of a device whose thread is gone.
fn refused(device: DeviceId, operation: Operation, cause: &str) -> Reply {
    let error = PowerError::Gone {
        device: format!("device {}", device.0),
        cause: cause.to_owned(),
    };
    match operation {
        Operation::Read => Reply::Read(Err(error)),
        Operation::Set(_) => Reply::Set(Err(error)),
        Operation::Range => Reply::Range(Err(error)),
        Operation::Identify => Reply::Identity(Err(error)),
        Operation::Holders => Reply::Holders(Err(error)),
        Operation::HighestClock => Reply::HighestClock(Err(error)),
        Operation::Clocks(_) => Reply::Clocks(Err(error)),
        Operation::Release => Reply::Released(Handles::Closed),
    }
}
