//! Permitted values.

use std::path::Path;

use litd_core::config::OnExit;
use litd_units::Watts;
use toml::{Table, Value};

use super::Config;

/// A value that is impossible.
pub(super) struct Violation {
    /// The keys it is about; the first of them that the file has is where to look.
    pub(super) keys: Vec<&'static str>,
    /// The mistake, beginning with the key.
    pub(super) reason: String,
}

/// More than the caps of any node add up to: 16 GPUs of 1.4 kW are 22 kW.
const MOST_WATTS: f64 = 100_000.0;

/// The lower bound of a number.
#[derive(Clone, Copy)]
enum Above {
    /// At least this.
    From(f64),
    /// More than this.
    Over(f64),
}
use Above::{From, Over};

/// Key, least, most, unit.
type Limit = (&'static str, Above, f64, &'static str);

/// The limits of every number in the file.
const LIMITS: &[Limit] = &[
    ("caps.budget", Over(0.0), MOST_WATTS, "watts"),
    ("caps.safe_budget", Over(0.0), MOST_WATTS, "watts"),
    ("rollout.percent", From(0.0), 100.0, "of 100 nodes"),
    ("caps.gpu_floor", Over(0.0), MOST_WATTS, "watts"),
    ("caps.gpu_ceiling", Over(0.0), MOST_WATTS, "watts"),
    ("caps.cpu_floor", Over(0.0), MOST_WATTS, "watts"),
    (
        "caps.max_rise_w_per_s",
        From(1.0),
        MOST_WATTS,
        "watts a second",
    ),
    ("node.budget", Over(0.0), MOST_WATTS, "watts"),
    ("node.reserve", From(0.0), MOST_WATTS, "watts"),
    ("caps.follow_margin", From(0.0), 1.0, "of the cap"),
    ("caps.follow_seconds", From(0.1), 600.0, "seconds"),
    ("caps.answer_seconds", From(0.1), 600.0, "seconds"),
    ("clocks.floor_share", From(0.0), 1.0, "of the highest clock"),
    ("clocks.per_second", From(1.0), 1e4, "a second"),
    ("clocks.per_minute", From(1.0), 1e6, "a minute"),
    (
        "release.resume_after_seconds",
        From(0.0),
        604_800.0,
        "seconds",
    ),
    ("jobs.stale_seconds", From(1.0), 86_400.0, "seconds"),
    ("jobs.reconnect_seconds", From(0.0), 3600.0, "seconds"),
    ("jobs.waits_share", Over(0.0), 1.0, "of the iteration"),
    ("sampling.converged_period", From(0.0), 1e9, "iterations"),
    ("sampling.max_overhead", Over(0.0), 1.0, "of the time"),
    (
        "sampling.recheck_iteration_share",
        Over(0.0),
        1.0,
        "of the iteration",
    ),
    ("sampling.recheck_temperature", Over(0.0), 100.0, "kelvins"),
    ("settle.seconds", From(0.0), 3600.0, "seconds"),
    ("settle.iterations", From(0.0), 1e6, "iterations"),
    ("ailing.above", Over(0.0), 1.0, "of the median"),
    ("ailing.hours", Over(0.0), 8760.0, "hours"),
    ("limits.sessions", From(1.0), 512.0, "hooks"),
    ("limits.sessions_per_user", From(1.0), 512.0, "hooks"),
    ("limits.kernels", From(1.0), 131_072.0, "kernels"),
    ("limits.names", From(1.0), 65_536.0, "names"),
    ("limits.name_bytes", From(1.0), 8_388_608.0, "bytes"),
    ("limits.frames_per_second", Over(0.0), 1e6, "a second"),
    (
        "law.calibration.sampling_period",
        From(1.0),
        1e6,
        "iterations",
    ),
    ("law.calibration.warm_up", From(1.0), 1e6, "samples"),
    ("law.detection.window", From(1.0), 10_000.0, "samples"),
    (
        "law.mitigation.max_adjustment",
        Over(0.0),
        MOST_WATTS,
        "watts",
    ),
    ("law.mitigation.initial_cap", Over(0.0), MOST_WATTS, "watts"),
    (
        "law.mitigation.slosh_per_gpu",
        From(0.0),
        MOST_WATTS,
        "watts",
    ),
    ("law.mitigation.max_rise", Over(0.0), MOST_WATTS, "watts"),
    (
        "law.guard.rollback_slowdown",
        Over(0.0),
        1.0,
        "of the iteration",
    ),
    ("law.guard.rollback_windows", From(1.0), 10_000.0, "windows"),
    (
        "law.guard.gpu_red_slowdown",
        Over(0.0),
        1.0,
        "of the iteration",
    ),
    (
        "law.guard.step_back_windows",
        From(0.0),
        10_000.0,
        "windows",
    ),
    (
        "limits.connections_per_second",
        Over(0.0),
        1e6,
        "connections a second",
    ),
    ("sampling.steady_temperature", Over(0.0), 100.0, "kelvins"),
    ("law.guard.thermal_margin", From(0.0), 100.0, "kelvins"),
    ("law.guard.level_share", From(0.0), 1.0, "of the iteration"),
    (
        "law.guard.noise_margin",
        From(0.0),
        100.0,
        "standard deviations",
    ),
    (
        "law.guard.level_remainder",
        From(0.0),
        1.0,
        "of the warm-up's",
    ),
    ("law.guard.patience", From(1.0), 10_000.0, "windows"),
    ("law.guard.drift_factor", Over(1.0), 1000.0, "times"),
    ("law.guard.late_share", From(0.0), 1.0, "of the iteration"),
    (
        "law.guard.pace_tolerance",
        From(0.0),
        1.0,
        "of a kernel's time",
    ),
    ("law.model.max_adjustment", Over(0.0), MOST_WATTS, "watts"),
    ("law.model.slowdown", From(0.0), 1.0, "of the iteration"),
    ("law.model.dead_band", Over(0.0), 1.0, "of a kernel's time"),
    ("law.model.max_samples", From(1.0), 10_000.0, "samples"),
    ("law.model.min_speed", From(0.0), 1.0, "of the iteration"),
    ("law.model.min_power", From(0.0), 1.0, "of the power"),
    ("trial.quads", From(2.0), 2000.0, "quads"),
    ("trial.block_seconds", From(1.0), 86_400.0, "seconds"),
    ("trial.block_iterations", From(1.0), 4096.0, "iterations"),
    ("trial.hold_out", From(0.0), 0.5, "of the time"),
    ("prices.energy_per_kwh", From(0.0), 1e6, "a kilowatt-hour"),
    ("prices.gpu_hour", From(0.0), 1e6, "an hour of a GPU"),
    ("attach.kineto_every_seconds", From(20.0), 3600.0, "seconds"),
    ("ingest.frame_bytes", From(1024.0), 33_554_432.0, "bytes"),
    ("audit.file_bytes", From(4096.0), 1_073_741_824.0, "bytes"),
    ("audit.files", From(1.0), 1000.0, "files"),
];

/// A unix socket's address has 108 bytes, of which the last is 0.
const LONGEST_SOCKET: usize = 107;

/// Clients make their sockets in the same directory, with names of so many bytes.
const LONGEST_KINETO: usize = LONGEST_SOCKET - "/dynoconfigclient".len() - 36;

/// A trace's name comes after it, and a client is told no longer one.
const LONGEST_TRACES: usize = 2048;

/// All mistakes in a configuration whose types are right.
pub(super) fn violations(config: &Config) -> Vec<Violation> {
    let mut found: Vec<Violation> = numbers(config).collect();
    found.extend(floor_above_ceiling(config));
    found.extend(budget_below_floor(config));
    found.extend(node_budget_below_floor(config));
    found.extend(short_blocks(config));
    found.extend(half_a_price(config));
    found.extend(hold_without_budget(config));
    found.extend(samples_without_kineto(config));
    found.extend(dynolog_elsewhere(config));
    found.extend(samples_too_seldom(config));
    found.extend(paths(config));
    found
}

/// Shorter blocks are for tests: slow effects of a change of caps would be missed.
const SHORTEST_BLOCK: f64 = 300.0;

fn short_blocks(config: &Config) -> Option<Violation> {
    let real = config.shell.hardware.simulated.is_none();
    let block = config.core.trial.block_seconds;
    (real && block < SHORTEST_BLOCK).then(|| Violation {
        keys: vec!["trial.block_seconds"],
        reason: format!(
            "trial.block_seconds is {block}; it must be at least {SHORTEST_BLOCK} on hardware that \
             is not simulated"
        ),
    })
}

fn half_a_price(config: &Config) -> Option<Violation> {
    let prices = &config.core.prices;
    let half = prices.energy_per_kwh.is_some() != prices.gpu_hour.is_some();
    half.then(|| Violation {
        keys: vec!["prices.energy_per_kwh", "prices.gpu_hour"],
        reason: "prices.energy_per_kwh and prices.gpu_hour go together: net value needs both"
            .to_owned(),
    })
}

fn hold_without_budget(config: &Config) -> Option<Violation> {
    let caps = &config.core.caps;
    let nothing = caps.on_exit == OnExit::Hold && caps.safe_budget.is_none();
    nothing.then(|| Violation {
        keys: vec!["caps.on_exit"],
        reason: "caps.on_exit = \"hold\" needs caps.safe_budget: caps are left within it"
            .to_owned(),
    })
}

fn samples_without_kineto(config: &Config) -> Option<Violation> {
    let attach = &config.shell.attach;
    (attach.kineto_samples && !attach.kineto).then(|| Violation {
        keys: vec!["attach.kineto_samples"],
        reason: "attach.kineto_samples = true needs attach.kineto = true: litd asks processes through that socket"
            .to_owned(),
    })
}

fn dynolog_elsewhere(config: &Config) -> Option<Violation> {
    let address = config.shell.attach.dynolog?;
    // Traces are files of this node's processes.
    (!address.ip().is_loopback()).then(|| Violation {
        keys: vec!["attach.dynolog"],
        reason: format!(
            "attach.dynolog is {address}; it must be dynolog's port on this node, such as \"127.0.0.1:1778\""
        ),
    })
}

/// A job that is heard of less often than this is stale between two traces.
fn samples_too_seldom(config: &Config) -> Option<Violation> {
    let (attach, stale) = (&config.shell.attach, config.core.jobs.stale_seconds);
    let every = attach.kineto_every_seconds;
    (attach.kineto_samples && 2.0 * every > stale).then(|| Violation {
        keys: vec!["attach.kineto_every_seconds", "jobs.stale_seconds"],
        reason: format!(
            "attach.kineto_every_seconds is {every}; it must be at most half of jobs.stale_seconds, {stale}: otherwise \
             jobs are stale between two traces"
        ),
    })
}

/// The numbers of a configuration that are out of their limits.
pub(super) fn numbers(config: &Config) -> impl Iterator<Item = Violation> {
    let tables = tables(config);
    LIMITS.iter().filter_map(move |&(key, least, most, unit)| {
        let value = tables.iter().find_map(|table| number(table, key))?;
        let (possible, least) = match least {
            From(least) => (least <= value, format!("at least {least}")),
            Over(least) => (least < value, format!("above {least}")),
        };
        (!(possible && value <= most)).then(|| Violation {
            keys: vec![key],
            reason: format!("{key} is {value}; it must be {least} and at most {most} {unit}"),
        })
    })
}

/// The configuration as the file would have it, for walking by key. A value that TOML can't hold
/// can't have come from a file either.
fn tables(config: &Config) -> Vec<Table> {
    [
        Table::try_from(&config.core),
        Table::try_from(&config.shell),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn number(table: &Table, key: &str) -> Option<f64> {
    let (path, last) = key.rsplit_once('.').unwrap_or(("", key));
    let mut parents = path.split('.').filter(|part| !part.is_empty());
    let table = parents.try_fold(table, |table, part| table.get(part)?.as_table())?;
    match table.get(last)? {
        Value::Integer(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        _ => None,
    }
}

fn floor_above_ceiling(config: &Config) -> Option<Violation> {
    let caps = &config.core.caps;
    let ceiling = caps.gpu_ceiling.filter(|&most| caps.gpu_floor > most)?;
    Some(Violation {
        keys: vec!["caps.gpu_ceiling", "caps.gpu_floor"],
        reason: format!(
            "caps.gpu_ceiling is {ceiling}, below caps.gpu_floor, {}",
            caps.gpu_floor
        ),
    })
}

/// Checks that need no GPUs of the node; [`Config::fits`] knows how many there are.
fn budget_below_floor(config: &Config) -> impl Iterator<Item = Violation> {
    let caps = &config.core.caps;
    let floor = caps.gpu_floor;
    let budgets = [
        ("caps.budget", caps.budget),
        ("caps.safe_budget", caps.safe_budget),
    ];
    budgets.into_iter().filter_map(move |(key, budget)| {
        let budget = budget.filter(|&budget| budget < floor)?;
        Some(Violation {
            keys: vec![key, "caps.gpu_floor"],
            reason: format!(
                "{key} is {budget} for all GPUs together, below caps.gpu_floor, {floor} for each"
            ),
        })
    })
}

/// A budget of the whole node that leaves less than one GPU needs, whatever GPUs are there.
fn node_budget_below_floor(config: &Config) -> Option<Violation> {
    let node = &config.core.node;
    let (budget, floor) = (node.budget?, config.core.caps.gpu_floor);
    let reserve = node.reserve.unwrap_or(Watts::ZERO);
    let least = floor + reserve;
    let leaves = match reserve > Watts::ZERO {
        true => format!(
            "which leaves {} to all GPUs together once node.reserve, {reserve}, is taken off",
            (budget - reserve).max(Watts::ZERO)
        ),
        false => "for all GPUs and the rest of the node together".to_owned(),
    };
    (budget < least).then(|| Violation {
        keys: vec!["node.budget", "node.reserve", "caps.gpu_floor"],
        reason: format!(
            "node.budget is {budget}, {leaves}, and caps.gpu_floor is {floor} for each: set node.budget to {least} or more for one GPU, and {floor} more for each other one"
        ),
    })
}

fn paths(config: &Config) -> impl Iterator<Item = Violation> {
    let shell = &config.shell;
    let socket = |key, path| (key, path, LONGEST_SOCKET);
    let mut paths = vec![
        socket("ingest.socket", &shell.ingest.socket),
        socket("control.socket", &shell.control.socket),
        ("state.directory", &shell.state.directory, usize::MAX),
        (
            "ingest.subordinate_ids",
            &shell.ingest.subordinate_ids,
            usize::MAX,
        ),
    ];
    let hardware = &shell.hardware;
    for (key, path) in [
        ("hardware.sys", &hardware.sys),
        ("hardware.dev", &hardware.dev),
        ("hardware.proc", &hardware.proc),
        ("hardware.node_power", &hardware.node_power),
    ] {
        paths.push((key, path, usize::MAX));
    }
    let libraries = [
        ("hardware.nvml_library", &hardware.nvml_library),
        ("hardware.rocm_smi_library", &hardware.rocm_smi_library),
        ("hardware.amd_smi_library", &hardware.amd_smi_library),
    ];
    let nameless = libraries
        .into_iter()
        .filter(|(_, library)| library.as_os_str().is_empty())
        .map(|(key, _)| Violation {
            keys: vec![key],
            reason: format!("{key} is empty; it must be a library's name or path"),
        });
    if let Some(path) = &shell.state.baseline {
        paths.push(("state.baseline", path, usize::MAX));
    }
    if let Some(path) = &shell.state.locks {
        paths.push(("state.locks", path, usize::MAX));
    }
    if let Some(path) = &shell.audit.directory {
        paths.push(("audit.directory", path, usize::MAX));
    }
    paths.push(("attach.traces", &shell.attach.traces, LONGEST_TRACES));
    if let Some(path) = &shell.attach.kineto_directory {
        paths.push(("attach.kineto_directory", path, LONGEST_KINETO));
    }
    if let Some(path) = &shell.attach.nccl_directory {
        paths.push(("attach.nccl_directory", path, usize::MAX));
    }
    if let Some(path) = &hardware.simulated {
        paths.push(socket("hardware.simulated", path));
    }
    let same = (shell.ingest.socket == shell.control.socket).then(|| Violation {
        keys: vec!["control.socket", "ingest.socket"],
        reason: "control.socket and ingest.socket are the same path".to_owned(),
    });
    let bad = paths.into_iter().filter_map(|(key, path, longest)| {
        let reason = unusable(path, longest)?;
        Some(Violation {
            keys: vec![key],
            reason: format!("{key} is \"{}\"; {reason}", path.display()),
        })
    });
    bad.chain(same)
        .chain(nameless)
        .collect::<Vec<_>>()
        .into_iter()
}

fn unusable(path: &Path, longest: usize) -> Option<String> {
    if !path.is_absolute() {
        return Some("it must be an absolute path".to_owned());
    }
    let length = path.as_os_str().len();
    (length > longest).then(|| format!("such a path has at most {longest} bytes, not {length}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DEFAULT_FILE;
    use crate::config::tests::{activated, leaves};

    #[test]
    fn every_number_of_the_file_has_limits() {
        let table: Table = toml::from_str(&activated(DEFAULT_FILE)).unwrap();
        let numbers: Vec<String> = leaves(&table)
            .into_iter()
            .filter(|(_, value)| value.is_integer() || value.is_float())
            .map(|(key, _)| key)
            .collect();
        for key in &numbers {
            assert!(
                LIMITS.iter().any(|(limited, ..)| limited == key),
                "{key} has no limits"
            );
        }
        assert_eq!(
            numbers.len(),
            LIMITS.len(),
            "a limit is on a key that is not there"
        );
    }
}
