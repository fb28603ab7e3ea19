//! Why the straggler is late, and whether watts would help it. Only power that can help is
//! moved: a GPU whose host is late, or that heat limits, gets none.

use std::fmt;

use litd_units::{Celsius, Hertz, Millis, Watts};

use crate::config::Guard;
use crate::law::Leads;
use crate::sample::{GpuReading, Mean, median};

/// What holds the node back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Diagnosis {
    /// Nothing does: no GPU waits for another by more than noise.
    Level {
        /// How far the first and the last GPU are apart, as a share of the iteration at every
        /// kernel.
        spread_share: f64,
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
    /// The straggler throttles, or is so hot that its cap may not rise: its cooling needs a look, watts won't help.
    HeatLimited {
        /// Which GPU.
        gpu: usize,
        /// Its temperature, where that is known.
        temperature: Option<Celsius>,
        /// Whether it throttles already, rather than being close to it.
        throttled: bool,
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
            Self::Level { spread_share } => write!(
                f,
                "level: first and last GPU are {:.4} % of an iteration apart, none holds the others back",
                spread_share * 100.0
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
                    "late host: the others wait for gpu{gpu}, whose kernels are no slower than those of GPUs far ahead of it; look at its host or its data, watts won't help"
                )?;
                match busy {
                    Some(busy) => write!(f, " (busy {:.0} % of the time)", busy * 100.0),
                    None => Ok(()),
                }
            }
            Self::HeatLimited {
                gpu,
                temperature,
                throttled,
            } => {
                let how = if throttled {
                    "which throttles"
                } else {
                    "which is about to throttle"
                };
                write!(f, "heat: the others wait for gpu{gpu}, {how}")?;
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

/// How close the first and the last GPU must be to count as level: closer than matters, or
/// closer than one sample can tell. Levelling further costs speed, because slack is what absorbs
/// noise (oracle/README.md has figures).
#[must_use]
pub fn close(mean: &Mean, guard: &Guard) -> Millis {
    let noise = mean.noise * guard.noise_margin;
    mean.lead_of_share(guard.level_share).max(noise)
}

/// What holds the node back, from the mean of some samples and the newest readings. GPUs that
/// are no further apart than `close` are level.
#[must_use]
pub fn diagnose(mean: &Mean, gpus: &[GpuReading], guard: &Guard, close: Millis) -> Diagnosis {
    let spread = mean.leads.spread();
    let level = Diagnosis::Level {
        spread_share: spread / mean.lead_of_share(1.0),
    };
    if spread < close {
        return level;
    }
    let gpu = mean.leads.latest();
    let Some(reading) = gpus.get(gpu) else {
        return level;
    };
    if too_hot_to_rise(reading, guard) {
        return Diagnosis::HeatLimited {
            gpu,
            temperature: reading.temperature,
            throttled: reading.throttled,
        };
    }
    let behind = match clock_of(gpu, &mean.pace, &mean.leads, guard.pace_tolerance) {
        Clock::Unknown => None,
        Clock::Slow { behind } => Some(behind),
        Clock::NotSlow if spread < mean.lead_of_share(guard.late_share) => return level,
        Clock::NotSlow => {
            return Diagnosis::LateHost {
                gpu,
                busy: reading.busy,
            };
        }
    };
    if reading.power_limited == Some(false) {
        return Diagnosis::NotPowerLimited {
            gpu,
            power: reading.power,
        };
    }
    Diagnosis::SlowClock { gpu, behind }
}

/// What the durations of kernels say of a late GPU's clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Clock {
    /// Nothing: no durations of comparable kernels.
    Unknown,
    /// It is slow, and that is why the GPU is late.
    Slow {
        /// By how much its kernels take longer than the fastest GPU's.
        behind: f64,
    },
    /// It does not explain that the GPU is late: others are as slow and far ahead of it.
    NotSlow,
}

/// By how much a GPU's kernels take longer than the fastest GPU's; `pace` is
/// [`GpuReading::pace`] for each GPU.
#[must_use]
pub fn behind(gpu: usize, pace: &[Option<f64>]) -> Option<f64> {
    let fastest = pace
        .iter()
        .try_fold(f64::INFINITY, |least, &pace| Some(least.min(pace?)))?;
    Some(pace.get(gpu).copied()?? / fastest - 1.0)
}

/// By which share a GPU's clock is below the median GPU's, where all clocks are known; negative
/// where it is above.
#[must_use]
pub fn clock_below(gpu: usize, clocks: &[Option<Hertz>]) -> Option<f64> {
    let known: Option<Vec<f64>> = clocks.iter().map(|clock| Some((*clock)?.0)).collect();
    let clock = clocks.get(gpu).copied()??;
    Some(1.0 - clock.0 / median(known?)?)
}

/// Whether its clock explains that a GPU is late. It must be slower than the fastest by more
/// than the tolerance, and no GPU that is as slow may be ahead by more than half of the distance
/// between the first and the last.
#[must_use]
pub fn clock_of(gpu: usize, pace: &[Option<f64>], leads: &Leads, tolerance: f64) -> Clock {
    let Some(slowness) = behind(gpu, pace) else {
        return Clock::Unknown;
    };
    let far = leads.smallest() + leads.spread() / 2.0;
    let as_slow = |other: usize| behind(other, pace).is_some_and(|b| b + tolerance > slowness);
    let equal_but_ahead =
        (0..pace.len()).any(|other| leads.values().get(other) > Some(&far) && as_slow(other));
    if slowness > tolerance && !equal_but_ahead {
        Clock::Slow { behind: slowness }
    } else {
        Clock::NotSlow
    }
}
