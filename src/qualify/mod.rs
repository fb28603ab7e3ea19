//! `litd qualify`: whether the devices of an idle, drained node do what litd needs of them, within minutes. It has
//! the daemon's locks and writes the daemon's undo journal, so that a kill at any moment is undone by `litd restore`,
//! by the unit's ExecStopPost= and by the next start. [`litd_qualify`] decides what is written and what answers mean.

mod node;
mod runner;

use std::io::Write as _;
use std::rc::Rc;
use std::time::Duration;

use litd_api::Mode;
use litd_core::config::OnExit;
use litd_core::{Range, Records};
use litd_power::DeviceKind;
use litd_qualify::report::{
    Check, Device, Measured, Outcome, Part, Report, SCHEMA, Topic, Verdict,
};
use litd_qualify::{Facts, Pace, target, text};
use litd_units::{Nanos, Seconds, Watts};

use crate::clock::Clock;
use crate::config::Config;
use crate::daemon::{
    DaemonError, Options, discover, look, on_one_thread, private_files, raise_limits,
    store_by_links,
};
use crate::kill_switch;
use crate::lock_holders::Held;
use crate::locks::{DeviceLocks, Remembered};
use crate::logging;
use crate::restore::{self, Leftover};
use crate::signals::Signals;
use crate::state::{self, Lock, StateError};
pub use node::hash as hash_of_serial;
use runner::Runner;

/// The pause between two readings.
const POLL: Nanos = Nanos(10_000_000);

/// How long a lower cap is held at least.
const HOLD: Nanos = Nanos(1_000_000_000);

/// The share of the highest clock that is locked, unless the administrator's floor is higher.
const CLOCK_SHARE: f64 = 0.5;

/// Test within minutes, on an idle, drained node, whether its devices do what litd needs
///
/// Stop litd first. For each device in turn litd reads the sensors, lowers the cap by a few watts, reads it
/// back, and sets the cap found again. No cap is set above the one found or below the floor. Every write is
/// in the daemon's undo journal before it is made. Everything is undone at the end, on Ctrl-C, on a signal,
/// at the time limit, and as soon as a process other than that of --load-pid begins to use a GPU. If this
/// program is killed, `litd restore` or the next start of litd undoes everything. A device that can't be tested
/// safely is not written to, and the report says why.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXIT, override_usage = "litd qualify [OPTIONS]\n       litctl qualify [OPTIONS]")]
pub struct Args {
    /// Only read, and print what would be written
    #[arg(long)]
    dry_run: bool,
    /// Print the report as one JSON document; it holds no serial number and no host's name
    #[arg(long)]
    json: bool,
    /// How long each device's sensors are watched before its cap is moved, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    watch: f64,
    /// Stop after this many seconds, and undo everything
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0, value_parser = seconds)]
    time_limit: f64,
    /// Lock and unlock each GPU's clocks, too. On NVIDIA's GPUs a lock that another program has set before is lost,
    /// because NVML does not report locked clocks
    #[arg(long)]
    clocks: bool,
    /// The id of a process that you have started as a load: it may use a GPU during the test
    #[arg(long, value_name = "PID")]
    load_pid: Vec<u32>,
}

const EXIT: &str = "\
Exit status:
  0  every device that was written to did what litd needs; with --dry-run:
     the test could be run
  1  the test could not be run
  2  the command line or the configuration is wrong
  3  refused, and nothing was written: litd runs, a kill switch or
     mode = \"off\" is set, a process uses a GPU, a dead litd has left caps
     changed, or its undo journal was damaged
  4  a device failed, which the report names; caps are as they were found
  5  stopped before its end; caps are as they were found
  6  a cap may not be as it was found: the report says which, and
     `litd restore` tries again";

fn seconds(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    match (0.05..=86_400.0).contains(&number) {
        true => Ok(number),
        false => Err("0.05 to 86400 seconds are possible".to_owned()),
    }
}

/// Runs it, prints the report, and returns the exit status.
///
/// # Errors
/// It could not run.
pub fn run(options: &Options, args: &Args) -> Result<u8, DaemonError> {
    let config = Config::load(options.config.as_deref())?;
    logging::start(config.shell.log.level);
    private_files();
    raise_limits();
    let begun = Clock::Kernel.now();
    let mut report = node::begin(&config);
    match args.dry_run {
        true => on_one_thread(plan(&config, args, &mut report))?,
        false => qualify(&config, args, &mut report)?,
    }
    report.seconds = Seconds((Clock::Kernel.now() - begun).as_secs_f64());
    logging::flush();
    let shown = match args.json {
        true => serde_json::to_string_pretty(&report).map_err(std::io::Error::from)? + "\n",
        false => text::render(&report),
    };
    // A closed pipe changes nothing about the devices.
    let _ = std::io::stdout().write_all(shown.as_bytes());
    Ok(report.outcome.exit_status())
}

/// Reads all devices, and says what would be written. Locks nothing: litd may run meanwhile.
async fn plan(config: &Config, args: &Args, report: &mut Report) -> Result<(), DaemonError> {
    let found = look(config).await?;
    report.reasons.extend(forbidden(config));
    let holder = Held::now(&config.shell.hardware.proc).of_state(&config.shell.state.directory);
    if let Some(holder) = holder {
        report
            .reasons
            .push(format!("{} is litd: {STOP}", holder.process()));
    }
    let remembered = crate::locks::remembered(&config.shell.locks()).unwrap_or_default();
    report.reasons.extend(left(config, &remembered));
    let names = node::names(&found.inventory);
    let all_facts: Vec<Facts> = found.inventory.iter().map(|it| facts(config, it)).collect();
    let mut runner = Runner::reading(found, config, args.load_pid.clone());
    for (index, (facts, name)) in all_facts.iter().zip(names).enumerate() {
        let mut device = described(config, name, facts);
        let (verdict, text) = match (target(facts), runner.use_of(index).await) {
            (_, Some(used)) => {
                report.reasons.push(used.clone());
                (Verdict::NotTried, format!("would not be written: {used}"))
            }
            (Err(why), None) => (Verdict::NotTried, format!("would not be written: {why}")),
            (Ok(cap), None) => {
                let found = facts.reading.map_or(Watts::ZERO, |it| it.cap);
                let text = format!("would be set to {cap}, and to {found} again");
                (Verdict::NotTried, text)
            }
        };
        let topic = Topic::Lower;
        device.checks.push(Check {
            topic,
            verdict,
            text,
        });
        report.devices.push(device);
    }
    report.outcome = match report.reasons.is_empty() {
        true => Outcome::Planned,
        false => Outcome::Refused,
    };
    Ok(())
}

/// The remedy where litd runs.
const STOP: &str = "stop it (`systemctl stop litd`), qualify, and start it again";

fn qualify(config: &Config, args: &Args, report: &mut Report) -> Result<(), DaemonError> {
    report.outcome = Outcome::Refused;
    if let Some(why) = forbidden(config) {
        report.reasons.push(why);
        return Ok(());
    }
    let _lock = match Lock::take(&config.shell.state.directory) {
        Ok(lock) => lock,
        Err(held @ (StateError::Held { .. } | StateError::Restoring { .. })) => {
            report.reasons.push(format!("{held}: {STOP}"));
            return Ok(());
        }
        Err(other) => return Err(other.into()),
    };
    on_one_thread(async { with_devices(config, args, report).await })
}

async fn with_devices(
    config: &Config,
    args: &Args,
    report: &mut Report,
) -> Result<(), DaemonError> {
    let signals = Signals::catch()?;
    let found = discover(config).await?;
    let own = &config.shell.state.directory;
    let locks = match DeviceLocks::take(&config.shell.locks(), own, found.addresses()) {
        Ok(locks) => Rc::new(locks),
        Err(taken) => {
            report.reasons.push(taken.to_string());
            return Ok(());
        }
    };
    if let Err(error) = locks.keep() {
        report.reasons.push(error.to_string());
        return Ok(());
    }
    report.reasons.extend(left(config, &locks.remembered()));
    if found.inventory.is_empty() {
        let text = "no device whose power can be capped: `litctl doctor` tells what is missing";
        report.reasons.push(text.to_owned());
    }
    if !report.reasons.is_empty() {
        return Ok(());
    }
    let store = store_by_links(own, &config.shell).of(locks.clone());
    let (now, wall) = (Clock::Kernel.now(), Clock::Kernel.unix_seconds());
    let records = Records::open(store, &state::boot_id()?, now, wall);
    let records = records.map_err(|cause| DaemonError::Journal {
        directory: own.clone(),
        cause,
    })?;
    let inventory = found.inventory.clone();
    let mut runner = Runner::writing(found, config, args, records, signals);
    report.reasons.extend(runner.uses().await);
    if !report.reasons.is_empty() {
        return Ok(());
    }
    for (index, (device, name)) in inventory.iter().zip(node::names(&inventory)).enumerate() {
        let facts = facts(config, device);
        let mut described = described(config, name, &facts);
        runner.examine(index, facts, &mut described).await;
        report.devices.push(described);
    }
    let (writes, stopped, owes) = runner.end();
    // The undo takes the locks of the devices itself; the state directory stays locked.
    drop(locks);
    report.writes = writes;
    conclude(config, report, stopped, owes).await;
    Ok(())
}

/// Undoes what is left by the daemon's own undo, and says how the run ended.
async fn conclude(config: &Config, report: &mut Report, stopped: Option<String>, owes: bool) {
    let mut owed = Vec::new();
    if owes {
        match restore::undo(config).await {
            Ok(left) => owed.extend(left.iter().map(Leftover::to_string)),
            Err(error) => owed.push(error.to_string()),
        }
    }
    let failed = report.devices.iter().any(Device::failed);
    let qualified = report.devices.iter().any(Device::is_qualified);
    report.outcome = match &stopped {
        _ if !owed.is_empty() => Outcome::Owed,
        _ if failed => Outcome::Failed,
        Some(_) => Outcome::Stopped,
        None if !qualified => Outcome::Failed,
        None => Outcome::Qualified,
    };
    report.reasons.extend(stopped.clone());
    report.reasons.extend(owed);
    if !failed && !qualified && stopped.is_none() {
        let text = "no device was written to: nothing is shown about its caps";
        report.reasons.push(text.to_owned());
    }
    if let Ok(Some(recovered)) = restore::owed(config, &config.shell.state.directory) {
        let named = recovered.entries.iter().map(|it| it.address.as_str());
        let named: Vec<&str> = named.collect();
        report.reasons.push(format!(
            "the undo journal still names {}: a write that failed may be done late; run `litd restore` half a minute \
             from now",
            named.join(", ")
        ));
    }
}

/// Why the administrator does not want caps to be moved here.
fn forbidden(config: &Config) -> Option<String> {
    if config.core.mode == Mode::Off {
        let text = "mode = \"off\" in the configuration: litd moves no cap here; set another mode to qualify";
        return Some(text.to_owned());
    }
    let thrown = kill_switch::thrown(&config.core.rollout.kill_switches)?;
    Some(format!("{thrown}: a kill switch; remove it to qualify"))
}

/// A line for each state directory in which a dead daemon has left devices changed: such a cap must not be taken for
/// the one found.
fn left(config: &Config, remembered: &[Remembered]) -> Vec<String> {
    let own = &config.shell.state.directory;
    let mut states = vec![own];
    let mut left = Vec::new();
    for it in remembered {
        match it.lost(&config.shell.locks()) {
            Some(lost) => left.push(lost.to_string()),
            None if !states.contains(&&it.state) => states.push(&it.state),
            None => {}
        }
    }
    for state in states {
        // A cap that it had lowered would be taken for the one found, and set again at the end.
        if let Some(copy) = state::copy_of_damaged(state) {
            left.push(state::was_damaged(&copy));
        }
        match restore::owed(config, state) {
            Ok(None) => {}
            Ok(Some(_)) => left.push(format!(
                "{} names devices that a dead litd has left changed: {}",
                state::journal(state).display(),
                match config.core.caps.on_exit {
                    OnExit::Restore => "run `litd restore` first",
                    OnExit::Hold =>
                        "with caps.on_exit = \"hold\" they stay so; set that to \"restore\" and run `litd restore` first",
                }
            )),
            Err(unreadable) => left.push(unreadable.to_string()),
        }
    }
    left
}

fn facts(config: &Config, device: &litd_core::Device) -> Facts {
    let caps = &config.core.caps;
    Facts {
        identity: device.identity.clone(),
        range: match device.range {
            Range::Told(range) => Some(range),
            Range::Asked(_) | Range::Untold { .. } => None,
        },
        reading: device.reading,
        floor: match device.identity.kind {
            DeviceKind::Gpu => caps.gpu_floor,
            DeviceKind::Cpu => caps.cpu_floor,
        },
    }
}

/// A device as the report begins to name it.
fn described(config: &Config, name: String, facts: &Facts) -> Device {
    let mut part = Part::new(name, &facts.identity);
    part.firmware = node::firmware(config, &part.address);
    part.serial_hash = facts.identity.serial.as_deref().and_then(node::hash);
    Device {
        part,
        range: facts.range,
        found: facts.reading.map(|it| it.cap),
        target: target(facts).ok(),
        checks: Vec::new(),
        measured: Measured::default(),
    }
}

/// How long things take by the configuration and the command line.
fn pace(config: &Config, args: &Args) -> Pace {
    let follow = nanos(config.core.caps.follow_seconds);
    let share = config.core.clocks.floor_share.max(CLOCK_SHARE);
    Pace {
        watch: nanos(args.watch),
        hold: HOLD.min(nanos(args.watch)),
        follow,
        poll: POLL,
        clock_share: args.clocks.then_some(share),
    }
}

fn nanos(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as i64)
}

/// The same as tokio's clock has it; a negative time is none.
fn duration(time: Nanos) -> Duration {
    Duration::from_nanos(u64::try_from(time.0).unwrap_or(0))
}

/// A report that says nothing yet.
fn empty(config: &Config) -> Report {
    Report {
        schema: SCHEMA,
        litd: env!("CARGO_PKG_VERSION").to_owned(),
        simulated: config.shell.hardware.simulated.is_some(),
        outcome: Outcome::Refused,
        reasons: Vec::new(),
        unix_seconds: Clock::Kernel.unix_seconds(),
        seconds: Seconds::ZERO,
        kernel: String::new(),
        board: None,
        devices: Vec::new(),
        writes: Vec::new(),
    }
}
