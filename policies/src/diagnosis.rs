//! Why the straggler is late, and whether watts would help it. Only power that can help is
//! moved: a GPU whose host is late, or that heat limits, gets none. What kernels show is judged by
//! [`litd_diagnosis`], as for traces; what sensors show is judged here.

use std::fmt;

use litd_diagnosis::{Cause, Limits, Marks, Verdict, median};
use litd_units::{Celsius, Hertz, Millis, Watts};

use crate::config::Guard;
use crate::sample::{GpuReading, Mean};

/// The cause that holds the node back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Diagnosis {
    /// No cause: no GPU waits for another by more than noise.
    Level {
        /// How far the first and the last GPU are apart, as a share of the iteration at every
        /// kernel.
        spread_share: f64,
    },
    /// A GPU computes more slowly than the others. Not "thermal", because no sensor said so.
    SlowClock {
        /// The GPU's number.
        gpu: usize,
        /// By how much its kernels take longer than the fastest GPU's, where that is known.
        behind: Option<f64>,
    },
    /// A GPU is late, its kernels are not slower, and its queue runs empty: its host is late.
    LateHost {
        /// The GPU's number.
        gpu: usize,
        /// The share of the iteration in which its queue was empty.
        idle: f64,
        /// The share of the iteration in which it was busy, where that is known.
        busy: Option<f64>,
    },
    /// The transfers of one GPU take longer.
    SlowLink {
        /// The GPU's number.
        gpu: usize,
        /// By which share they take longer than those of GPUs far ahead of it.
        behind: f64,
    },
    /// A GPU has more work than the others.
    MoreWork {
        /// The GPU's number.
        gpu: usize,
        /// By how much its kernels take longer than those of GPUs far ahead of it, all alike.
        behind: Option<f64>,
    },
    /// A GPU is late, and its kernels show no cause that power would change, or several.
    Unexplained {
        /// The GPU's number.
        gpu: usize,
        /// Whether several causes are seen, rather than none.
        several: bool,
    },
    /// The straggler throttles, or is so hot that its cap may not rise: its cooling needs a look, watts won't help.
    HeatLimited {
        /// The GPU's number.
        gpu: usize,
        /// The temperature, where known.
        temperature: Option<Celsius>,
        /// Whether it throttles already, rather than being close to it.
        throttled: bool,
    },
    /// The straggler does not use the power that it may: its clock is at its maximum, or
    /// something other than power limits it.
    NotPowerLimited {
        /// The GPU's number.
        gpu: usize,
        /// The power, where known.
        power: Option<Watts>,
    },
    /// The straggler's limiter is unknown: watts are not given on a guess.
    UnknownLimit {
        /// The GPU's number.
        gpu: usize,
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
            | Self::SlowLink { gpu, .. }
            | Self::MoreWork { gpu, .. }
            | Self::Unexplained { gpu, .. }
            | Self::HeatLimited { gpu, .. }
            | Self::NotPowerLimited { gpu, .. }
            | Self::UnknownLimit { gpu } => Some(gpu),
        }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &numbered)
    }
}

/// What a GPU is called where nothing but its number is known.
pub(crate) fn numbered(gpu: usize) -> String {
    format!("gpu{gpu}")
}

impl Diagnosis {
    /// The same in words, where `name` tells what each GPU is called.
    pub(crate) fn write(
        &self,
        f: &mut dyn fmt::Write,
        name: &dyn Fn(usize) -> String,
    ) -> fmt::Result {
        let straggler = self.straggler().map(name).unwrap_or_default();
        match *self {
            Self::Level { spread_share } => write!(
                f,
                "level: first and last GPU are {:.4} % of an iteration apart, none holds the others back",
                spread_share * 100.0
            ),
            Self::SlowClock { behind, .. } => {
                write!(f, "slow clock: the others wait for {straggler}")?;
                match behind {
                    Some(behind) => write!(
                        f,
                        ", whose kernels take {:.1} % longer than the fastest GPU's",
                        behind * 100.0
                    ),
                    None => Ok(()),
                }
            }
            Self::LateHost { idle, busy, .. } => {
                write!(
                    f,
                    "late host: the others wait for {straggler}, whose kernels are no slower than those of GPUs far ahead of it, and whose queue is empty for {:.1} % of the time; look at its host or its data, watts won't help",
                    idle * 100.0
                )?;
                match busy {
                    Some(busy) => write!(f, " (busy {:.0} % of the time)", busy * 100.0),
                    None => Ok(()),
                }
            }
            Self::SlowLink { behind, .. } => write!(
                f,
                "slow link: the others wait for {straggler}, whose transfers take {:.1} % longer than those of GPUs far ahead of it; look at its links, watts won't help",
                behind * 100.0
            ),
            Self::MoreWork { behind, .. } => {
                write!(f, "uneven work: the others wait for {straggler}")?;
                if let Some(behind) = behind {
                    write!(f, ", whose kernels all take {:.1} % longer", behind * 100.0)?;
                }
                f.write_str(
                    "; a slow clock would spare those that memory limits, so look at how data is divided, watts won't help",
                )
            }
            Self::Unexplained { several, .. } => {
                write!(f, "unknown: the others wait for {straggler}, ")?;
                f.write_str(match several {
                    true => "for several reasons at once, so it gets no watts",
                    false => "and neither its kernels nor its queue nor its transfers tell why: watts won't help",
                })
            }
            Self::HeatLimited {
                temperature,
                throttled,
                ..
            } => {
                let how = if throttled {
                    "which throttles"
                } else {
                    "which is about to throttle"
                };
                write!(f, "heat: the others wait for {straggler}, {how}")?;
                if let Some(temperature) = temperature {
                    write!(f, " at {temperature:.0}")?;
                }
                f.write_str("; look at its cooling, watts won't help")
            }
            Self::NotPowerLimited { power, .. } => {
                write!(
                    f,
                    "not power: the others wait for {straggler}, which draws less than its cap allows"
                )?;
                match power {
                    Some(power) => write!(f, " ({power:.0})"),
                    None => Ok(()),
                }
            }
            Self::UnknownLimit { .. } => write!(
                f,
                "unknown: the others wait for {straggler}, and it is not known whether power limits it, so it gets no \
                 watts"
            ),
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

/// Whether the cap of this GPU may rise: power has limited it for most of the window, and neither
/// heat nor anything else that throttles it does. Where nobody can tell what limits it, it may not:
/// watts are not given on a guess.
#[must_use]
pub fn may_rise(reading: &GpuReading, guard: &Guard) -> bool {
    reading.is_power_limited() == Some(true) && !too_hot_to_rise(reading, guard)
}

/// How close the first and the last GPU must be to count as level: closer than matters, or
/// closer than one sample can tell. Levelling further costs speed, because slack is what absorbs
/// noise.
#[must_use]
pub fn close(mean: &Mean, guard: &Guard) -> Millis {
    let noise = mean.noise * guard.noise_margin;
    mean.lead_of_share(guard.level_share).max(noise)
}

/// The cause that holds the node back, from the mean of some samples and the newest readings. GPUs that are no
/// further apart than `close` are level.
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
    let behind = match watts_may_help(mean, reading, guard) {
        Ok(behind) => behind,
        Err(Some(cause)) => return cause,
        Err(None) => return level,
    };
    match reading.is_power_limited() {
        Some(true) => Diagnosis::SlowClock { gpu, behind },
        Some(false) => Diagnosis::NotPowerLimited {
            gpu,
            power: reading.power,
        },
        None => Diagnosis::UnknownLimit { gpu },
    }
}

/// By how much the kernels of the GPU that is last take longer, where its clock is slow or that
/// can't be told; else the cause that they show, or none where nobody is held back.
fn watts_may_help(
    mean: &Mean,
    reading: &GpuReading,
    guard: &Guard,
) -> Result<Option<f64>, Option<Diagnosis>> {
    let limits = Limits {
        slower: guard.pace_tolerance,
        level: mean.lead_of_share(guard.late_share).0,
        ..Limits::OF_TRACES
    };
    let leads = Vec::from_iter(mean.leads.values().iter().map(|lead| lead.0));
    let clocks = Vec::from_iter(mean.clock.iter().map(|clock| Some((*clock)?.0)));
    let Verdict {
        cause,
        apart,
        idle,
        seen,
        ..
    } = litd_diagnosis::diagnose(&leads, &mean.marks, &clocks, &limits);
    let gpu = mean.leads.latest();
    let behind = apart.slower_compute;
    Err(match cause {
        Cause::SlowClock => return Ok(behind),
        // Without knowledge of its kernels or other marks there is no diagnosis.
        _ if behind.is_none() && seen.is_empty() => return Ok(None),
        Cause::Healthy => None,
        Cause::HostBound => Some(Diagnosis::LateHost {
            gpu,
            idle,
            busy: reading.busy,
        }),
        Cause::Communication => Some(Diagnosis::SlowLink {
            gpu,
            behind: apart.slower_link,
        }),
        Cause::DataDependent => Some(Diagnosis::MoreWork { gpu, behind }),
        Cause::SamplingArtefact | Cause::Unknown => Some(Diagnosis::Unexplained {
            gpu,
            several: !seen.is_empty(),
        }),
    })
}

/// By how much a GPU's kernels take longer than the fastest GPU's, where all are known.
#[must_use]
pub fn behind(gpu: usize, marks: &[Marks]) -> Option<f64> {
    let of = |marks: &Marks| Some(1.0 + marks.slower_compute?);
    let fastest = marks
        .iter()
        .try_fold(f64::INFINITY, |least, marks| Some(least.min(of(marks)?)))?;
    Some(of(marks.get(gpu)?)? / fastest - 1.0)
}

/// By which share a GPU's clock is below the median GPU's, where all clocks are known; negative
/// where it is above.
#[must_use]
pub fn clock_below(gpu: usize, clocks: &[Option<Hertz>]) -> Option<f64> {
    let known: Option<Vec<f64>> = clocks.iter().map(|clock| Some((*clock)?.0)).collect();
    let clock = clocks.get(gpu).copied()??;
    Some(1.0 - clock.0 / median(known?)?)
}
