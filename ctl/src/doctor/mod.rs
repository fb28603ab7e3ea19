//! `litctl doctor`: what this node has, what litd may do with it, and what is missing.

mod devices;
mod record;
mod text;
mod ways;

use std::error::Error;
use std::path::PathBuf;

use litd::config::Config;
use litd::lock_holders::{Held, Holder};
use litd::locks;
use litd::ports;
use litd_api::Status;
use litd_core::config::OnExit;
use litd_core::learned::Learned;
use litd_core::profilers::ProfilerOff;
use litd_files as files;
use litd_power::{DeviceKind, Notice, Severity};
use nix::unistd::Uid;
use serde::Serialize;

use crate::control::Socket;
use crate::{Outcome, output};
use devices::Examined;
use ways::Way;

/// List this node's devices, litd's rights over them, and what is missing
///
/// Reads the same files and libraries as the daemon, and changes nothing. Run it as root: for
/// other users part of the node is hidden.
#[derive(clap::Args)]
#[command(after_help = EXIT)]
pub struct Args {
    /// The daemon's configuration file, which names back ends and paths [default:
    /// /etc/litd/litd.toml if it exists]
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
    /// Write the report and the files that litd's back ends read here into one JSON file, for whoever helps you
    ///
    /// The file has the node's drivers, limits, sensors and clocks, and the kernel's version. It has hashes for serial
    /// numbers, and no host's name, user's name, process or command line. FILE must not exist yet.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    socket: Socket,
}

const EXIT: &str = "\
Exit status:
  0  litd can cap every device that is here
  1  litd can cap no GPU here
  2  the command line or the configuration is wrong
  3  litd can cap some or all GPUs, but a device or an error in the output
     needs attention first";

/// The findings.
#[derive(Debug, Serialize)]
struct Report {
    /// The schema's version.
    schema: u32,
    /// The exit status.
    exit_status: u8,
    /// Whether the devices are stand-ins.
    simulated: bool,
    /// Whether all can be seen.
    root: bool,
    kernel: String,
    daemon: Daemon,
    devices: Vec<Examined>,
    notices: Vec<Notice>,
    /// How jobs on this node can be measured, the best way first.
    ways: Vec<Way>,
    /// Profilers that hooks don't use on this node any more.
    profilers_off: Vec<ProfilerOff>,
}

/// Whether litd runs.
#[derive(Debug, Serialize)]
struct Daemon {
    running: bool,
    /// The daemon's version and mode, or why it can't be asked.
    text: String,
    /// The process that has the state directory's lock.
    pid: Option<u32>,
}

/// Not everything is well; the report has been printed.
#[derive(Debug)]
pub struct Findings(u8);

impl std::fmt::Display for Findings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            1 => "litd can cap no GPU here",
            _ => "litd can cap some or all GPUs, but a device or an error above needs attention first",
        })
    }
}

impl Error for Findings {}

/// The exit status of what was found.
pub fn exit_status(error: &(dyn Error + 'static)) -> u8 {
    error
        .downcast_ref::<Findings>()
        .map_or(1, |findings| findings.0)
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let config = Config::load(args.config.as_deref())?;
    let report = examine(&config, &args.socket)?;
    match json {
        true => output::json(&report)?,
        false => output::text(&text::render(&report))?,
    }
    if let Some(path) = &args.record {
        record::write(path, &config.shell.hardware, &report)?;
    }
    match report.exit_status {
        0 => Ok(()),
        status => Err(Box::new(Findings(status))),
    }
}

fn examine(config: &Config, socket: &Socket) -> Result<Report, Box<dyn Error>> {
    let (mut devices, mut notices) = devices::examine(&config.shell.hardware)?;
    notices.extend(metrics(config));
    let held = Held::now(&config.shell.hardware.proc);
    for device in &mut devices {
        device.trouble.extend(lock_trouble(config, &held, device));
    }
    let daemon = daemon(socket, held.of_state(&config.shell.state.directory));
    notices.extend(left_changed(config, &daemon));
    let profilers_off = profilers_off(config);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Ok(Report {
        schema: 1,
        exit_status: verdict(&devices, &notices),
        simulated: config.shell.hardware.simulated.is_some(),
        root: Uid::effective().is_root(),
        kernel: release.trim().to_owned(),
        daemon,
        devices,
        notices,
        ways: ways::of(config, &profilers_off),
        profilers_off,
    })
}

/// Whether another user's process answers whoever asks for litd's metrics.
fn metrics(config: &Config) -> Option<Notice> {
    let address = config.shell.metrics.listen.0?;
    let uid = ports::listener(&config.shell.hardware.proc, address)?;
    let is_litds = uid == 0 || uid == Uid::effective().as_raw();
    (!is_litds).then(|| {
        let text = format!(
            "a process of user {uid} listens at {address}: metrics read there are not litd's, and alerts on them \
             mean nothing"
        );
        Notice::new(Severity::Warning, "metrics".to_owned(), text).remedy(
            "end that process (`ss -ltnp` has its id): litd takes the address within 10 s. Users' processes can't \
             take a port below 1024 (`[metrics] listen`)",
        )
    })
}

/// Whether a litd that is dead has left caps or clocks changed, by its undo journal, which only root can read. With
/// caps.on_exit = "hold" it leaves caps changed on purpose.
fn left_changed(config: &Config, daemon: &Daemon) -> Option<Notice> {
    let state = &config.shell.state.directory;
    let bytes = litd::state::load_journal(state).ok()?;
    let journal = litd_core::journal::read(&bytes).ok().flatten()?;
    let locks = config.shell.locks();
    let id = litd_core::journal::id(&bytes);
    let outdated = litd::locks::outdated(&locks, &journal, state, id.as_deref());
    let journal = journal.without(&outdated.all())?;
    let changed = journal.addresses();
    let holds = config.core.caps.on_exit == OnExit::Hold;
    let is_owed = !holds && !daemon.running && daemon.pid.is_none() && !changed.is_empty();
    is_owed.then(|| {
        let changed: Vec<String> = changed.into_iter().collect();
        let text = format!(
            "a litd that is dead may have left caps or clocks changed, of {}: its undo journal, {}, names them",
            changed.join(", "),
            litd::state::journal(state).display()
        );
        Notice::new(Severity::Error, "undo journal".to_owned(), text)
            .remedy("`sudo litd restore`, or a start of litd, restores them")
    })
}

/// Profilers that have done harm on this node; only root can read them.
fn profilers_off(config: &Config) -> Vec<ProfilerOff> {
    let path = litd::state::learned(&config.shell.state.directory);
    let bytes = files::read(&path, files::LONGEST_STATE);
    let (learned, _) = Learned::load(&bytes.unwrap_or_default());
    learned.profilers_off().to_vec()
}

/// The exit status.
fn verdict(devices: &[Examined], notices: &[Notice]) -> u8 {
    let gpus = |it: &&Examined| it.identity.kind == DeviceKind::Gpu;
    let usable = devices.iter().filter(gpus).any(Examined::is_usable);
    let flawed = devices.iter().any(|it| !it.is_usable())
        || notices
            .iter()
            .any(|notice| notice.severity == Severity::Error);
    match (usable, flawed) {
        (false, _) => 1,
        (true, true) => 3,
        (true, false) => 0,
    }
}

/// Why the daemon of this configuration could not have a device: somebody else has its lock.
fn lock_trouble(config: &Config, held: &Held, device: &Examined) -> Option<String> {
    let holder = held.of_device(&config.shell.locks(), &device.identity.address)?;
    let own = &config.shell.state.directory;
    let (process, file) = (holder.process(), holder.file.display());
    match &holder.state {
        Some(state) if locks::is_same(state, own) => None,
        Some(state) => Some(format!(
            "{process} has its lock, {file}: a litd with the state directory {}; litd does not start \
             with this device until that one is stopped",
            state.display()
        )),
        None => Some(format!(
            "{process} has its lock, {file}, and is no litd that has written itself down there; litd \
             does not start with this device until that process has ended"
        )),
    }
}

/// The sentence that it runs, and on which devices.
fn runs(status: &Status) -> String {
    let (version, devices) = (&status.build.version, status.devices.len());
    match status.simulated {
        true => format!(
            "litd {version} runs on a simulated node, whose {devices} devices `litctl status` shows; what follows is \
             about this machine"
        ),
        false => {
            let mode = status.node.mode.name();
            format!("litd {version} runs, mode {mode}, with {devices} devices")
        }
    }
}

/// Whether the daemon answers, and who has the lock of its state directory.
fn daemon(socket: &Socket, holder: Option<Holder>) -> Daemon {
    let status = socket.client().and_then(|client| client.status());
    let pid = holder.as_ref().map(|holder| holder.pid);
    match status {
        Ok(status) => Daemon {
            running: true,
            text: runs(&status),
            pid,
        },
        Err(error) => {
            let held = holder.map_or_else(String::new, |holder| {
                format!(
                    "; {} has the lock of the state directory, {}: litd does not start until that \
                     process has ended",
                    holder.process(),
                    holder.file.display()
                )
            });
            Daemon {
                running: false,
                text: format!("{error}{held}"),
                pid,
            }
        }
    }
}
