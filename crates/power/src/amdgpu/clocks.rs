//! Clocks that a GPU is told to keep to: its performance level, and the range of its compute units' clock.
//!
//! Linux, `smu_v13_0_6_set_performance_level` and `smu_v13_0_6_usr_edit_dpm_table`: at the level `manual`,
//! `pp_od_clk_voltage` takes `s 0 MHz` and `s 1 MHz` for the lowest and the highest clock, and `c`, which does it. The
//! lowest must be below the highest: a lock to one clock is a range of 1 MHz. The level `auto` gives the driver's own
//! range back. `perf_determinism` sets only the highest, and is not used.
//!
//! litd locks only GPUs whose level is `auto`, so there is no other state to go back to. A level that another program
//! has set stays as it is, also one that it has set since, and so does a range. `manual` is litd's with a range of
//! 1 MHz, which an earlier litd left, and with the driver's own range, which a litd leaves that is killed before it sets
//! another.

use std::path::Path;

use litd_units::Hertz;

use crate::domain::ClockRange;
use crate::sysfs::{self, Attribute, FileError};

/// MI300A, MI300X, MI308X and MI325X. Of other models neither the commands nor what `auto` restores are established.
const MODELS: [&str; 4] = ["0x74a0", "0x74a1", "0x74a2", "0x74a5"];

const AUTO: &str = "auto";
const MANUAL: &str = "manual";

/// The files of a GPU's clocks.
#[derive(Debug)]
pub(super) struct Clocks {
    level: Attribute,
    range: Attribute,
    states: Attribute,
    held: Held,
}

/// What this process has done to the clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    /// Nothing, as far as it knows.
    Free,
    /// A write failed on the way: any range may be its own.
    Unsure,
    /// This range, in MHz, was in force when it had set it. Another one is somebody else's.
    Range(u32, u32),
}

/// Why clocks can't be read, locked or freed.
#[derive(Debug)]
pub(super) enum ClockError {
    File(FileError),
    /// Another program has them.
    Foreign(String),
}

impl From<FileError> for ClockError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl Clocks {
    /// The files, if the model is known and its driver offers them.
    pub fn find(device: &Path) -> Option<Self> {
        let model = sysfs::line(device.join("device"))?;
        if !MODELS.contains(&model.as_str()) {
            return None;
        }
        let file = |name: &str| Attribute::existing(device.join(name));
        Some(Self {
            level: file("power_dpm_force_performance_level")?,
            range: file("pp_od_clk_voltage")?,
            states: file("pp_dpm_sclk")?,
            held: Held::Free,
        })
    }

    /// The highest clock of the driver's table.
    pub fn highest(&mut self) -> Result<Hertz, ClockError> {
        self.check_level()?;
        let text = text(&mut self.states)?;
        let highest = text.lines().filter_map(megahertz).max();
        let highest = highest.ok_or_else(|| self.states.invalid("names no clock"))?;
        Ok(Hertz(f64::from(highest) * 1e6))
    }

    /// Keeps the clock within a range.
    pub fn lock(&mut self, range: ClockRange) -> Result<(), ClockError> {
        let whole = |clock: Hertz| (clock.0 / 1e6).round() as u32;
        let highest = whole(range.highest);
        let lowest = whole(range.lowest).min(highest.saturating_sub(1));
        if self.check_level()? != MANUAL {
            self.level.write_text(MANUAL)?;
        }
        self.held = Held::Unsure;
        match self.set_range(lowest, highest) {
            Ok((from, to)) => {
                self.held = Held::Range(from, to);
                Ok(())
            }
            Err(error) => {
                if self.level.write_text(AUTO).is_ok() {
                    self.held = Held::Free;
                }
                Err(error.into())
            }
        }
    }

    /// Sets a range. The one in force then: its lowest clock may be the driver's choice.
    fn set_range(&mut self, lowest: u32, highest: u32) -> Result<(u32, u32), FileError> {
        self.range.write_text(&format!("s 1 {highest}"))?;
        self.range.write_text(&format!("s 0 {lowest}"))?;
        self.range.write_text("c")?;
        match self.read_range()? {
            (from, at) if at == highest => Ok((from, at)),
            (from, to) => Err(self.range.invalid(format!(
                "says {from} to {to} MHz after {lowest} to {highest}"
            ))),
        }
    }

    /// Lets the driver choose clocks again, unless another program has chosen them since.
    pub fn unlock(&mut self) -> Result<(), ClockError> {
        if text(&mut self.level)?.trim() == MANUAL && self.is_litds()? {
            self.level.write_text(AUTO)?;
        }
        self.held = Held::Free;
        Ok(())
    }

    /// Whether the range in force may be litd's doing.
    fn is_litds(&mut self) -> Result<bool, FileError> {
        let (lowest, highest) = self.read_range()?;
        if let Held::Range(from, to) = self.held {
            return Ok((lowest, highest) == (from, to));
        }
        let states = text(&mut self.states)?;
        let all = || states.lines().filter_map(megahertz);
        let own = all().min().zip(all().max());
        Ok(highest.saturating_sub(lowest) <= 1 || own == Some((lowest, highest)))
    }

    /// The level, if clocks are the driver's or litd's.
    fn check_level(&mut self) -> Result<String, ClockError> {
        let level = text(&mut self.level)?.trim().to_owned();
        let is_ours = level == AUTO
            || level == MANUAL
                && match (self.held, self.read_range()?) {
                    (Held::Unsure, _) => true,
                    (Held::Range(from, to), now) => now == (from, to),
                    (Held::Free, (lowest, highest)) => highest.saturating_sub(lowest) == 1,
                };
        match is_ours {
            true => Ok(level),
            false => {
                self.held = Held::Free;
                Err(ClockError::Foreign(format!(
                    "another program has set its performance level to {level:?}, which stays as it is; {AUTO} in {} \
                     lets litd lock clocks",
                    self.level.path().display()
                )))
            }
        }
    }

    /// The lowest and the highest clock in force, in MHz: the first two lines with a number.
    fn read_range(&mut self) -> Result<(u32, u32), FileError> {
        let text = text(&mut self.range)?;
        let mut clocks = text.lines().filter_map(megahertz);
        match (clocks.next(), clocks.next()) {
            (Some(lowest), Some(highest)) => Ok((lowest, highest)),
            _ => Err(self.range.invalid("names no range of clocks")),
        }
    }
}

fn text(file: &mut Attribute) -> Result<String, FileError> {
    let mut buffer = [0; sysfs::PAGE + 1];
    Ok(String::from_utf8_lossy(file.read(&mut buffer)?).into_owned())
}

/// The clock of a numbered line such as `1: 2100Mhz *`. A sleeping GPU has a line `S: 19Mhz *` besides, which is none of
/// its range.
fn megahertz(line: &str) -> Option<u32> {
    let (number, clock) = line.split_once(':')?;
    number.trim().parse::<u32>().ok()?;
    let end = clock.to_ascii_lowercase().find("mhz")?;
    clock.get(..end)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::megahertz;

    #[test]
    fn a_clock_is_read_from_each_kind_of_line() {
        assert_eq!(megahertz("0: 132Mhz"), Some(132));
        assert_eq!(megahertz("1: 2100Mhz *"), Some(2100));
        assert_eq!(megahertz("1:       2100Mhz"), Some(2100));
        assert_eq!(megahertz("OD_SCLK:"), None);
        assert_eq!(megahertz("SCLK: 500Mhz 2100Mhz"), None);
        assert_eq!(megahertz("S: 19Mhz *"), None);
        assert_eq!(megahertz("0: -5Mhz"), None);
        assert_eq!(megahertz(""), None);
    }
}
