//! Why the straggler is late, and whether watts would help it. Only power that can help is
//! moved: a GPU whose host is late, or that heat limits, gets none.

use std::fmt;

use litd_units::{Celsius, Watts};

use crate::config::Guard;
use crate::sample::{GpuReading, Mean};

/// What holds the node back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Diagnosis {
    /// Nothing does: no GPU waits for another by more than noise.
    Level {
        /// The largest lead per kernel, as a share of the iteration.
        lead_share: f64,
    },
    /// One GPU computes more slowly than the others. Not "thermal": no sensor said so.
    SlowClock {
        /// Which GPU.
        gpu: usize,
        /// By how much its kernels take longer than the fastest GPU's, where that is known.
        behind: Option<f64>,
    },
    /// One GPU is late and its kernels are not slower: its host or its data is late.
    LateHost {
        /// Which GPU.
        gpu: usize,
        /// The share of the iteration in which it was busy, where that is known.
        busy: Option<f64>,
    },
    /// The straggler is limited by heat: its cooling needs a look, watts won't help.
    HeatLimited {
        /// Which GPU.
        gpu: usize,
        /// Its temperature, where that is known.
        temperature: Option<Celsius>,
    },
    /// The straggler does not use the power that it may: its clock is at its maximum, or
    /// something other than power limits it.
    NotPowerLimited {
        /// Which GPU.
        gpu: usize,
        /// What it draws, where that is known.
        power: Option<Watts>,
    },
}

impl Diagnosis {
    /// Whether moving power can help.
    #[must_use]
    pub fn power_helps(&self) -> bool {
        matches!(self, Self::SlowClock { .. })
    }

    /// The straggler, if there is one.
    #[must_use]
    pub fn straggler(&self) -> Option<usize> {
        match *self {
            Self::Level { .. } => None,
            Self::SlowClock { gpu, .. }
            | Self::LateHost { gpu, .. }
            | Self::HeatLimited { gpu, .. }
            | Self::NotPowerLimited { gpu, .. } => Some(gpu),
        }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Level { lead_share } => write!(
                f,
                "level: the largest lead is {:.3} % of the iteration, no GPU holds the others back",
                lead_share * 100.0
            ),
            Self::SlowClock { gpu, behind } => {
                write!(f, "slow clock: the others wait for gpu{gpu}")?;
                match behind {
                    Some(behind) => write!(
                        f,
                        ", whose kernels take {:.1} % longer than the fastest GPU's",
                        behind * 100.0
                    ),
                    None => Ok(()),
                }
            }
            Self::LateHost { gpu, busy } => {
                write!(
                    f,
                    "late host: the others wait for gpu{gpu}, whose kernels are not slower than theirs; look at its host or its data, watts won't help"
                )?;
                match busy {
                    Some(busy) => write!(f, " (busy {:.0} % of the time)", busy * 100.0),
                    None => Ok(()),
                }
            }
            Self::HeatLimited { gpu, temperature } => {
                write!(f, "heat: the others wait for gpu{gpu}, which heat limits")?;
                if let Some(temperature) = temperature {
                    write!(f, " at {temperature:.0}")?;
                }
                f.write_str("; look at its cooling, watts won't help")
            }
            Self::NotPowerLimited { gpu, power } => {
                write!(
                    f,
                    "not power: the others wait for gpu{gpu}, which does not use the power it may"
                )?;
                match power {
                    Some(power) => write!(f, " (it draws {power:.0})"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// Whether the cap of this GPU must not rise: it throttles, or is within the margin of the
/// temperature at which it will. A GPU that has such a temperature and can't say how warm it
/// is counts as hot.
#[must_use]
pub fn too_hot_to_rise(reading: &GpuReading, guard: &Guard) -> bool {
    let near = match (reading.temperature, reading.slowdown) {
        (_, None) => false,
        (None, Some(_)) => true,
        // Written so that a NaN is near.
        (Some(now), Some(slowdown)) => !(slowdown - now > guard.thermal_margin),
    };
    reading.throttled || near
}

/// What holds the node back, from the mean of some samples and the newest readings.
#[must_use]
pub fn diagnose(mean: &Mean, gpus: &[GpuReading], guard: &Guard) -> Diagnosis {
    let level = Diagnosis::Level {
        lead_share: mean.lead_share,
    };
    if mean.lead_share < guard.level_share {
        return level;
    }
    // Means that tie to the last bit come from leads that are all equal.
    let Some(gpu) = mean.leads.straggler() else {
        return level;
    };
    let Some(reading) = gpus.get(gpu) else {
        return level;
    };
    if too_hot_to_rise(reading, guard) {
        return Diagnosis::HeatLimited {
            gpu,
            temperature: reading.temperature,
        };
    }
    let behind = match slower_than_fastest(mean, gpu, guard) {
        Pace::Unknown => None,
        Pace::NotSlowest => {
            return Diagnosis::LateHost {
                gpu,
                busy: reading.busy,
            };
        }
        Pace::Behind(behind) => Some(behind),
    };
    if reading.power_limited == Some(false) {
        return Diagnosis::NotPowerLimited {
            gpu,
            power: reading.power,
        };
    }
    Diagnosis::SlowClock { gpu, behind }
}

enum Pace {
    Unknown,
    NotSlowest,
    Behind(f64),
}

/// A slow clock explains a late GPU only if no other GPU is slower still, and if some GPU is
/// faster.
fn slower_than_fastest(mean: &Mean, gpu: usize, guard: &Guard) -> Pace {
    let Some(paces) = mean.pace.iter().copied().collect::<Option<Vec<f64>>>() else {
        return Pace::Unknown;
    };
    let fastest = paces.iter().copied().fold(f64::INFINITY, f64::min);
    let slowest = paces.iter().copied().fold(0.0, f64::max);
    let behind = paces[gpu] / fastest - 1.0;
    let explains =
        behind >= guard.pace_tolerance && slowest / paces[gpu] - 1.0 <= guard.pace_tolerance;
    if explains {
        Pace::Behind(behind)
    } else {
        Pace::NotSlowest
    }
}
