//! Performance levels and ranges of clocks of an MI300 (drivers/gpu/drm/amd/pm/swsmu/smu13/smu_v13_0_6_ppt.c).

use std::sync::{Arc, Mutex};

use litd_rig::{Hardware, lock};
use nix::errno::Errno;

use crate::board::Device;
use crate::tree::{Attribute, Directory, errno};

/// The driver's own range, in MHz.
const RANGE: (u32, u32) = (132, 2100);

/// A GPU's level, and the range that was written and not yet committed.
#[derive(Debug, Clone)]
pub(crate) struct Level(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    level: &'static str,
    custom: (u32, u32),
}

impl Default for Level {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State {
            level: "auto",
            custom: RANGE,
        })))
    }
}

/// Puts a GPU's files there, below its device's folder.
pub(crate) fn add(
    sys: &mut Directory,
    hardware: &Hardware,
    gpu: Device,
    device: &str,
    level: &Level,
) {
    let mode = gpu.writable(hardware);
    let (shown, kept) = (level.clone(), level.clone());
    let attribute = Attribute::show(gpu, move |_| Ok(format!("{}\n", lock(&shown.0).level)));
    let attribute = attribute.store(mode, move |hardware, data| {
        set_level(hardware, gpu, &kept, data)
    });
    sys.file(
        &format!("{device}/power_dpm_force_performance_level"),
        attribute,
    );
    let kept = level.clone();
    let attribute = Attribute::show(gpu, move |hardware| {
        let (lowest, highest) = now(hardware, gpu);
        Ok(format!(
            "OD_SCLK:\n0: {lowest}Mhz\n1: {highest}Mhz\nOD_MCLK:\n0: 900Mhz\n1: 1300Mhz\n"
        ))
    });
    let attribute = attribute.store(mode, move |hardware, data| edit(hardware, gpu, &kept, data));
    sys.file(&format!("{device}/pp_od_clk_voltage"), attribute);
}

/// The range in force.
fn now(hardware: &Hardware, gpu: Device) -> (u32, u32) {
    let state = hardware.nvidia().gpus.get(gpu.index);
    state.and_then(|it| it.clocks).unwrap_or(RANGE)
}

/// The plant's GPU keeps to a range, or to the driver's own.
fn keep(hardware: &mut Hardware, gpu: Device, range: Option<(u32, u32)>) -> Result<(), Errno> {
    let result = hardware.lock_clocks(gpu.index, range);
    result.map_err(|refused| errno(&refused, Errno::EINVAL, Errno::EPERM))
}

fn words(data: &[u8]) -> Result<Vec<&str>, Errno> {
    let text = std::str::from_utf8(data).map_err(|_| Errno::EINVAL)?;
    Ok(text.split_whitespace().collect())
}

fn set_level(
    hardware: &mut Hardware,
    gpu: Device,
    level: &Level,
    data: &[u8],
) -> Result<(), Errno> {
    let named = match words(data)?[..] {
        ["auto"] => "auto",
        ["manual"] => "manual",
        ["perf_determinism"] => "perf_determinism",
        _ => return Err(Errno::EINVAL),
    };
    if named == "auto" {
        keep(hardware, gpu, None)?;
    }
    lock(&level.0).level = named;
    Ok(())
}

/// `s 0 MHz`, `s 1 MHz`, `r` or `c`.
fn edit(hardware: &mut Hardware, gpu: Device, level: &Level, data: &[u8]) -> Result<(), Errno> {
    let mut state = lock(&level.0);
    if state.level != "manual" {
        return Err(Errno::EINVAL);
    }
    match words(data)?[..] {
        ["s", end, clock] => {
            let clock: u32 = clock.parse().map_err(|_| Errno::EINVAL)?;
            match end {
                "0" if clock >= RANGE.0 => state.custom.0 = clock,
                "1" if clock <= RANGE.1 => state.custom.1 = clock,
                _ => return Err(Errno::EINVAL),
            }
            Ok(())
        }
        ["r"] => keep(hardware, gpu, None),
        ["c"] if state.custom.0 < state.custom.1 => keep(hardware, gpu, Some(state.custom)),
        _ => Err(Errno::EINVAL),
    }
}
