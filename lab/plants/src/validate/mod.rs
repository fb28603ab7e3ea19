//! The family's marginal statistics beside the data's, computed by the same code.
//!
//! Of every plant (node, job, sensor) a statistic is one number; its band in the data is over
//! nodes or jobs, and the family's over draws. What only many nodes show together is computed once
//! over all; its band in the data is over resampled nodes.

mod curves;
mod launches;
mod nodes;

use serde::Serialize;

use crate::data::{DataError, Folder, JobGpu, Poll};
use crate::kind::Sensor;
use crate::statistics::{Band, mean, median, resampled};
use crate::{Dimension, Draw, Kind, WorkloadKind};

/// How a statistic of the family stands to the data's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The family's median lies within the data's 10 to 90 % band.
    Within,
    /// It doesn't, and the note says why.
    Explained,
    /// It doesn't, and nobody knows why.
    Unexplained,
    /// The folder holds too little of this.
    NoData,
}

/// One statistic.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// The data's file.
    pub file: &'static str,
    /// What it is.
    pub name: String,
    /// Its unit; empty for ratios.
    pub unit: &'static str,
    /// The data's band.
    pub data: Option<Band>,
    /// The family's.
    pub family: Option<Band>,
    /// The part of the draws that lie within the data's band; none for a statistic of all.
    pub share: Option<f64>,
    /// How they stand to each other.
    pub verdict: Verdict,
    /// Why the family is elsewhere, or what the number is.
    pub note: Option<&'static str>,
}

/// How many draws each part is measured on.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Nodes of launches, and as many jobs at several limits.
    pub nodes: u64,
    /// Launches of each.
    pub launches: usize,
    /// Runs of whole nodes over time, four nodes each.
    pub runs: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Self {
            nodes: 160,
            launches: 12,
            runs: 30,
        }
    }
}

/// Seeds of draws for validation begin here, apart from those that a study counts from 0.
const SEEDS: u64 = 1 << 32;

/// All statistics for which this crate has a counterpart, against the files of a folder.
///
/// # Errors
/// A file is there and can't be read, or a line of it.
pub fn validate(folder: &Folder, effort: Effort) -> Result<Vec<Finding>, DataError> {
    let mut findings = Vec::new();
    sgemm(folder, effort, &mut findings)?;
    waiting(folder, effort, &mut findings)?;
    limits(folder, effort, &mut findings)?;
    idle(folder, effort, &mut findings)?;
    whole(folder, effort, &mut findings)?;
    sensors(folder, &mut findings)?;
    Ok(findings)
}

/// A statistic of which data and family are known.
fn finding(
    file: &'static str,
    (name, unit): (&str, &'static str),
    data: Option<Band>,
    family: Vec<f64>,
    one_number: bool,
) -> Finding {
    let share = data
        .filter(|_| !one_number && !family.is_empty())
        .map(|band| {
            let inside = family.iter().filter(|it| band.holds(**it)).count();
            inside as f64 / family.len() as f64
        });
    let family = Band::of(family);
    let note = notes(file, name);
    let verdict = match (data, family) {
        (Some(data), Some(family)) if data.holds(family.p50) => Verdict::Within,
        (Some(_), Some(_)) if note.is_some() => Verdict::Explained,
        (Some(_), Some(_)) => Verdict::Unexplained,
        _ => Verdict::NoData,
    };
    Finding {
        file,
        name: name.to_owned(),
        unit,
        data,
        family,
        share,
        verdict,
        note: note.filter(|_| verdict == Verdict::Explained),
    }
}

fn sgemm(folder: &Folder, effort: Effort, findings: &mut Vec<Finding>) -> Result<(), DataError> {
    let file = "longhorn_sgemm";
    let rows = folder.launches()?.unwrap_or_default();
    let controls = folder.controls()?.unwrap_or_default();
    let recorded = launches::recorded(&rows, &controls);
    let seeds = SEEDS..SEEDS + effort.nodes;
    let simulated: Vec<_> = seeds
        .map(|seed| launches::simulated(seed, effort.launches))
        .collect();
    for (name, unit, of) in launches::OF_NODES {
        let data = Band::of(recorded.iter().filter_map(of).collect());
        let family = simulated.iter().filter_map(of).collect();
        findings.push(finding(file, (name, unit), data, family, false));
    }
    let all: Vec<_> = simulated.iter().collect();
    for (name, unit, of) in launches::OF_ALL {
        let data = resampled(&recorded, of);
        let family = of(&all).into_iter().collect();
        findings.push(finding(file, (name, unit), data, family, true));
    }
    Ok(())
}

fn waiting(folder: &Folder, effort: Effort, findings: &mut Vec<Finding>) -> Result<(), DataError> {
    let jobs = [
        ("longhorn_resnet", "resnet", WorkloadKind::ConvolutionData),
        ("longhorn_bert", "bert", WorkloadKind::SmallData),
    ];
    for (file, name, workload) in jobs {
        let rows = folder.job(name)?.unwrap_or_default();
        let of = |of: fn(&JobGpu) -> f64| Band::of(rows.iter().map(of).collect());
        let draws = SEEDS..SEEDS + effort.nodes;
        let gpus: Vec<_> = draws.flat_map(|it| nodes::waiting(it, workload)).collect();
        let draw = of(|it| it.mean_pwr / launches::LIMIT);
        let clock = of(|it| it.median_sm_mhz / launches::CLOCK);
        let (draws, clocks) = gpus.into_iter().unzip();
        findings.push(finding(
            file,
            ("mean draw over the limit", ""),
            draw,
            draws,
            false,
        ));
        findings.push(finding(
            file,
            ("clock over the highest", ""),
            clock,
            clocks,
            false,
        ));
    }
    Ok(())
}

fn limits(folder: &Folder, effort: Effort, findings: &mut Vec<Finding>) -> Result<(), DataError> {
    let file = "zeus_power_limit";
    let limited = folder.limited()?.unwrap_or_default();
    let profiles = folder.profiles()?.unwrap_or_default();
    let recorded = curves::recorded(&limited, &profiles);
    let seeds = SEEDS..SEEDS + effort.nodes;
    let simulated: Vec<_> = seeds
        .map(|seed| curves::simulated(&Draw::new(seed)))
        .collect();
    for (name, unit, of) in curves::OF_CURVES {
        let data = Band::of(recorded.iter().filter_map(of).collect());
        let family = simulated.iter().filter_map(of).collect();
        findings.push(finding(file, (name, unit), data, family, false));
    }
    let all: Vec<_> = simulated.iter().collect();
    for (name, unit, of) in curves::OF_ALL {
        let data = resampled(&recorded, of);
        let family = of(&all).into_iter().collect();
        findings.push(finding(file, (name, unit), data, family, true));
    }
    Ok(())
}

fn idle(folder: &Folder, effort: Effort, findings: &mut Vec<Finding>) -> Result<(), DataError> {
    let file = "mi300x_node8";
    let cards = nodes::idle_cards(&folder.cards()?.unwrap_or_default());
    let seeds = SEEDS..SEEDS + effort.nodes;
    let plants: Vec<_> = seeds.map(nodes::idle_plant).collect();
    let data = Band::of(cards.iter().map(|it| it.1).collect());
    let family = plants.iter().flatten().map(|it| it.1).collect();
    findings.push(finding(
        file,
        ("idle power of a card", "W"),
        data,
        family,
        false,
    ));
    let slope = |cards: &[&(f64, f64)]| {
        let cards: Vec<_> = cards.iter().map(|it| **it).collect();
        nodes::idle_line(&cards).map(|it| it.slope)
    };
    let data = resampled(&cards, slope);
    let lines = plants.iter().filter_map(|it| nodes::idle_line(it));
    let family = lines.map(|it| it.slope).collect();
    let name = ("idle power per degree between cards", "W/C");
    findings.push(finding(file, name, data, family, false));
    Ok(())
}

fn whole(folder: &Folder, effort: Effort, findings: &mut Vec<Finding>) -> Result<(), DataError> {
    let file = "mlperf_h100_node_power";
    let recorded = nodes::recorded(&folder.node_power()?.unwrap_or_default());
    let seeds = SEEDS..SEEDS + effort.runs;
    let simulated: Vec<_> = seeds.flat_map(nodes::simulated).collect();
    for (name, unit, of) in nodes::OF_SERIES {
        let data = Band::of(recorded.iter().filter_map(of).collect());
        let family = simulated.iter().filter_map(of).collect();
        findings.push(finding(file, (name, unit), data, family, false));
    }
    let data = Band::of(nodes::between(&recorded));
    let family = nodes::between(&simulated);
    let name = ("variation between nodes of a run", "%");
    findings.push(finding(file, name, data, family, false));
    Ok(())
}

fn sensors(folder: &Folder, findings: &mut Vec<Finding>) -> Result<(), DataError> {
    let (pairs, updates) = folder.sensors();
    let mut gains = Vec::new();
    for set in pairs {
        let meter = folder.meter(&set)?.unwrap_or_default();
        let polls = folder
            .polls(&format!("{set}_reported"))?
            .unwrap_or_default();
        let (Some(first), Some(last)) = (meter.first(), meter.last()) else {
            continue;
        };
        let during = polls
            .iter()
            .filter(|it| (first.t_ms..=last.t_ms).contains(&it.t_ms));
        let read: Vec<f64> = during.map(|it| it.draw_w).collect();
        let true_: Vec<f64> = meter.iter().map(|it| it.watts).collect();
        gains.extend(mean(&read).zip(mean(&true_)).map(|it| it.0 / it.1));
    }
    let place = |part: f64| Dimension::SensorGain.spec().at(part);
    let family = (0..=20).map(|it| place(f64::from(it) / 20.0)).collect();
    let name = ("reading over an external meter", "");
    findings.push(finding("sensor", name, Band::of(gains), family, false));
    for update in updates {
        let polls = folder.polls(&update)?.unwrap_or_default();
        let kind = match update.as_str() {
            "update_v100" => Kind::V100x4,
            "update_a100" => Kind::A100x8,
            _ => continue,
        };
        let Sensor::Window { period, .. } = kind.spec().sensor;
        let name = format!("{update}: time between two values");
        // Polling takes 7 to 14 ms, so the recorded times are that coarse.
        let data = Band::of(periods(&polls));
        findings.push(finding("sensor", (&name, "ms"), data, vec![period], true));
    }
    Ok(())
}

/// The times between changes of what is reported, ms.
fn periods(polls: &[Poll]) -> Vec<f64> {
    let changes = polls.windows(2).filter(|it| it[0].draw_w != it[1].draw_w);
    let moments: Vec<f64> = changes.map(|it| it[1].t_ms).collect();
    let gaps: Vec<f64> = moments.windows(2).map(|it| it[1] - it[0]).collect();
    // A load that doesn't change reads the same twice: gaps of several periods are no period.
    let usual = median(gaps.clone()).unwrap_or(f64::NAN);
    gaps.into_iter().filter(|it| *it < 1.7 * usual).collect()
}

/// Why the family is not where the data is, by file and statistic. It is printed only where that
/// is so.
fn notes(file: &str, name: &str) -> Option<&'static str> {
    const IDLER: &str = "The recorded jobs leave their GPUs idle more than training that fills them. \
        The family has such jobs too, but has more in which caps bind: in the others no cap matters.";
    const PHASES: &str = "MLPerf's power moves with phases of many seconds (start-up, evaluation), which \
        no plant has; a plant's variation is that of its iterations, sampled every 2 s.";
    match (file, name) {
        ("longhorn_sgemm", "draw below the limit" | "spread of that between GPUs (sd)") => Some(
            "The family has the width of all limiters that were found in publications (0.4 to 5 %: Zeus, \
             B300, A40), and GPUs that a current limit holds below their cap; Longhorn's is one limiter at \
             one cap.",
        ),
        ("longhorn_sgemm", "slowest has the lowest clock") => Some(
            "A plant's noise from launch to launch is smaller than its GPUs' differences in clock, \
             which are read exactly; recorded clocks are medians of samples in steps of 7.5 MHz.",
        ),
        (
            "longhorn_sgemm",
            "pace that temperature explains within a node" | "pace per degree within a node",
        ) => Some(
            "Plants differ more in the spread of their silicon than Longhorn's nodes do, and the \
             widest weigh most in a regression over all.",
        ),
        ("longhorn_sgemm", "correlation of pace between halves") => Some(
            "Both are below 1 by one or two thousandths: that is noise relative to the spread of silicon. \
             Nodes with a wide spread, and quiet ones, are more frequent in the family.",
        ),
        ("longhorn_sgemm", "correlation of draw with pace") => Some(
            "By how much a plant's limiter misses the cap has nothing to do with its pace; in \
             Longhorn slower GPUs draw a little less.",
        ),
        ("longhorn_sgemm", "clock over the highest" | "temperature") => Some(
            "The draw of sgemm and the cooling of V100 nodes were set on half of the cabinets; the \
             family's inlet and cooling reach further, since its nodes stand elsewhere too.",
        ),
        (
            "longhorn_sgemm",
            "noise of launches (sd)" | "noise: correlation with the launch before",
        ) => Some("The range of hardware noise is wider than Longhorn's, for GPUs of other makes."),
        ("longhorn_resnet" | "longhorn_bert", _) => Some(IDLER),
        (
            "zeus_power_limit",
            "the default limit binds"
            | "0.5 of it binds"
            | "draw over limit at the default"
            | "time at 0.5 over time at the default"
            | "time at 0.8 over time at the default",
        ) => Some(IDLER),
        ("mi300x_node8", _) => Some(
            "One recorded node of eight cards; the family's nodes have other inlets and leakage.",
        ),
        (
            "mlperf_h100_node_power",
            "correlation with 2 s before" | "variation in time (sd over mean)",
        ) => Some(PHASES),
        ("mlperf_h100_node_power", "variation between nodes of a run") => Some(
            "A plant's GPUs are drawn one by one and differ more than those of nodes that a vendor \
             chose for a benchmark; and some recorded nodes of a run are copies of others.",
        ),
        _ => None,
    }
}

/// What the data has nothing about, so that nothing here is validated against it.
pub const NOT_IN_THE_DATA: [&str; 8] = [
    "GPUs of one training job on eight-GPU nodes with clocks, temperatures and kernel times together",
    "MI300X under load, its limiter, and any GPU's TDC, HBM or voltage-regulator limits",
    "the limiter's window, lag and dead band (bursts of B300 are in publications, and not in the data)",
    "contention between transfers and kernels, by class, clock or GPU",
    "power of links, and of a collective that waits",
    "clocks of kernel classes within an iteration on more than one GPU",
    "fans, inlet temperatures and the place of a GPU in its node",
    "power of CPUs in training, and what they lose below it",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_readings_are_no_longer_period() {
        let poll = |t_ms: f64, draw_w: f64| Poll { t_ms, draw_w };
        let polls: Vec<Poll> = (0..40)
            .map(|it| {
                poll(
                    f64::from(it) * 10.0,
                    f64::from(it / 2 * 2 / if it > 30 { 6 } else { 1 }),
                )
            })
            .collect();
        let band = Band::of(periods(&polls)).unwrap();
        assert!((band.p50 - 20.0).abs() < 1e-9, "{band:?}");
    }
}
