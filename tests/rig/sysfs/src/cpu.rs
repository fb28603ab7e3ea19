//! CPU sockets in powercap (drivers/powercap/intel_rapl_common.c): on Intel with both limits, on
//! AMD energy alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use litd_power::Reading;
use litd_rig::{Fault, Hardware};
use litd_units::{Joules, Watts};
use nix::errno::Errno;

use crate::board::Device;
use crate::tree::{Attribute, Directory, errno, parse};

/// `max_energy_range_uj` as it is usual: 32 bits of 2^-14 J.
const ENERGY_RANGE: u64 = 262_143_328_850;

/// A register that the plant knows nothing of: what is written to it is kept, and does nothing.
#[derive(Debug, Clone)]
pub(crate) struct Register(Arc<AtomicU64>);

impl Register {
    /// A socket's short-term limit, in microwatts.
    pub fn short_term(highest: Watts) -> Self {
        Self(Arc::new(AtomicU64::new(microwatts(highest * 1.2))))
    }
}

/// Puts a socket there, with its short-term limit if its power can be limited at all. Its energy
/// counts on from `energy`.
pub(crate) fn add(
    sys: &mut Directory,
    hardware: &Hardware,
    socket: &Device,
    energy: Joules,
    short_term: Option<&Register>,
) {
    let zone = format!("intel-rapl:{}", socket.number);
    let path = format!("devices/virtual/powercap/intel-rapl/{zone}");
    sys.link(&format!("class/powercap/{zone}"), &format!("../../{path}"));
    sys.link(
        "class/powercap/intel-rapl",
        "../../devices/virtual/powercap/intel-rapl",
    );
    sys.texts("devices/virtual/powercap/intel-rapl", &[("enabled", "1")]);
    let range = ENERGY_RANGE.to_string();
    let name = format!("package-{}", socket.number);
    let enabled = if short_term.is_some() { "1" } else { "0" };
    sys.texts(
        &path,
        &[
            ("name", &name),
            ("max_energy_range_uj", &range),
            ("enabled", enabled),
        ],
    );
    let socket = *socket;
    let counter = Attribute::number(socket, move |hardware| {
        let joules = reading(hardware, socket)?.energy.unwrap_or(Joules::ZERO) + energy;
        // The counter's unit is 2^-14 J.
        let counts = (joules.0 * 16_384.0).floor();
        Ok((counts / 16_384.0 * 1e6) as u64 % (ENERGY_RANGE + 1))
    });
    sys.file(&format!("{path}/energy_uj"), counter.mode(0o400));
    // Memory has a zone of its own below its socket's, which is no socket.
    let memory = format!("{zone}:0");
    let below = format!("{path}/{memory}");
    sys.texts(
        &below,
        &[
            ("name", "dram"),
            ("max_energy_range_uj", &range),
            ("energy_uj", "0"),
        ],
    );
    sys.link(
        &format!("class/powercap/{memory}"),
        &format!("../../{below}"),
    );
    if let Some(register) = short_term {
        add_limits(sys, hardware, &path, socket, register);
    }
}

fn add_limits(
    sys: &mut Directory,
    hardware: &Hardware,
    path: &str,
    socket: Device,
    short_term: &Register,
) {
    let highest = hardware
        .listed(socket.index)
        .map_or(Watts::ZERO, |listed| listed.range.highest);
    let mode = socket.writable(hardware);
    let most = format!("{}", microwatts(highest));
    sys.texts(
        path,
        &[
            ("constraint_0_name", "long_term"),
            ("constraint_0_time_window_us", "999424"),
            ("constraint_0_max_power_uw", &most),
            ("constraint_1_name", "short_term"),
            ("constraint_1_time_window_us", "1952"),
            ("constraint_1_max_power_uw", "0"),
        ],
    );
    let long = Attribute::number(socket, move |hardware| {
        Ok(microwatts(reading(hardware, socket)?.cap))
    });
    let long = long.store(mode, move |hardware, data| {
        let asked = Watts(parse(data)? as f64 / 1e6);
        store(hardware, socket, asked, Errno::ENODATA)
    });
    sys.file(&format!("{path}/constraint_0_power_limit_uw"), long);
    let (shown, kept) = (short_term.clone(), short_term.clone());
    let short = Attribute::number(socket, move |hardware| {
        reading(hardware, socket)?;
        Ok(shown.0.load(Ordering::Relaxed))
    });
    let short = short.store(mode, move |hardware, data| {
        let asked = parse(data)?;
        match hardware.fault(socket.index) {
            Some(Fault::Locked) => return Err(Errno::ENODATA),
            Some(Fault::NoPermission) => return Err(Errno::EACCES),
            Some(Fault::Refuse) => return Err(Errno::EIO),
            Some(Fault::Lie) => {}
            _ => kept.0.store(asked, Ordering::Relaxed),
        }
        Ok(())
    });
    sys.file(&format!("{path}/constraint_1_power_limit_uw"), short);
}

/// Sets a socket's limit. Drivers pass on what they are told, and the firmware keeps it within
/// what the socket can do; a locked one is refused with `locked`.
pub(crate) fn store(
    hardware: &mut Hardware,
    socket: Device,
    asked: Watts,
    locked: Errno,
) -> Result<(), Errno> {
    let listed = hardware.listed(socket.index).ok_or(Errno::ENODEV)?;
    let clipped = asked.max(listed.range.lowest).min(listed.range.highest);
    let result = hardware.set_cap(socket.index, clipped);
    result.map_err(|refused| errno(&refused, locked, Errno::ETIMEDOUT))
}

/// A socket's reading by its driver.
pub(crate) fn reading(hardware: &Hardware, socket: Device) -> Result<Reading, Errno> {
    let reachable = hardware.reachable(socket.index);
    reachable.map_err(|refused| errno(&refused, Errno::EIO, Errno::ETIMEDOUT))?;
    hardware.reading(socket.index).ok_or(Errno::ENODEV)
}

/// Whole microwatts.
pub(crate) fn microwatts(power: Watts) -> u64 {
    (power.0 * 1e6).round() as u64
}
