//! Where the time of each rank goes, for a terminal.

use std::fmt::{self, Write};

use litd_traces::{CollectiveRow, RankReport, Report};
use litd_units::Nanos;

use super::{parts, words};
use crate::output;
use crate::show::{HEAD, or_dash, percent, time};

/// How many kernels and collectives are shown.
const SHOWN: usize = 5;

/// The sentence where no trace has launches.
pub const UNKNOWN: &str = "launches are not recorded: why a GPU is idle while others are not is not known (all is \"other\")";
/// What the columns of waits are.
const WAITS: &str = "waits: \"group\" in collectives of the rank's own group; \"stages\" in collectives with other groups; \"exposed\": the part of both in which the GPU computes nothing";

/// The whole section.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = split(&mut out, report);
    if let Some(rank) = shown(report) {
        let _ = kernels(&mut out, rank);
        let _ = collectives(&mut out, rank);
    }
    out
}

/// The rank whose kernels are shown: the straggler, else the first.
pub fn shown(report: &Report) -> Option<&RankReport> {
    report.straggler().or(report.ranks.first())
}

/// Sentences on idle time, without full stops.
pub fn of_idleness(report: &Report) -> impl Iterator<Item = String> {
    let told = [unknown_launches(report), launched(report)];
    told.into_iter().flatten()
}

/// Where the traces don't tell when the host launched all kernels, in words without a full stop.
fn unknown_launches(report: &Report) -> Option<String> {
    let ranks = || report.ranks.iter();
    if ranks().all(|rank| rank.launches_known == 0.0) {
        return Some(UNKNOWN.into());
    }
    let least = ranks().min_by(|a, b| a.launches_known.total_cmp(&b.launches_known))?;
    let unknown = least.time_ns.idle_other - least.idle_launched_ns;
    (least.launches_known < parts::KNOWN).then(|| {
        format!(
            "launches are recorded in part only ({} of the kernels of rank {}): of what is \"other\" there, {} of the window may be late launches",
            words::percents(least.launches_known),
            least.rank,
            words::percents(unknown.0 as f64 / least.window_ns.0.max(1) as f64)
        )
    })
}

/// The base of the bandwidths of a rank's collectives, in words without a full stop.
pub fn bus(rank: &RankReport) -> &'static str {
    match rank.collectives.iter().any(|row| row.wait_ns.is_some()) {
        true => {
            "bus: what crosses each link, by the shortest kernel of each collective on any rank, as NCCL's tests count it; where none is matched, by this rank's own kernels, with their waiting"
        }
        false => {
            "bus: what would cross each link if this rank's kernels only transferred. One rank does not tell how long they wait, nor what was sent before it came: this is no bound in either direction"
        }
    }
}

fn split(out: &mut String, report: &Report) -> fmt::Result {
    writeln!(
        out,
        "\n{HEAD}where the time goes, % of each rank's window{HEAD:#}"
    )?;
    writeln!(
        out,
        "{HEAD}                          exposed         idle                waits{HEAD:#}"
    )?;
    writeln!(
        out,
        "{HEAD}rank    window compute  comm. copies  launch stream other  exposed group stages{HEAD:#}"
    )?;
    for rank in &report.ranks {
        let share = |part: Nanos| percent(Some(part.0 as f64 / rank.window_ns.0.max(1) as f64));
        let split = &rank.time_ns;
        // An unrecorded value is not 0.
        let told = |part: Nanos| match rank.launches_known > 0.0 {
            true => share(part),
            false => "-".into(),
        };
        writeln!(
            out,
            "{:>4} {:>9} {:>7} {:>6} {:>6} {:>7} {:>6} {:>5} {:>8} {:>5} {:>6}",
            rank.rank,
            time(rank.window_ns),
            share(split.computation),
            share(split.exposed_communication),
            share(split.exposed_copies),
            told(split.idle_launch),
            told(split.idle_stream),
            share(split.idle_other),
            percent(rank.exposed_wait_fraction),
            percent(rank.wait_fraction),
            percent(rank.stage_wait_fraction),
        )?;
    }
    let waits = report.ranks.iter().any(|rank| rank.wait_fraction.is_some());
    let told = waits.then(|| WAITS.to_owned());
    let told = told.into_iter().chain(of_idleness(report));
    for line in told.flat_map(|told| output::wrap(&told, output::WIDTH)) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// The part of the idle time that begins with kernels which had been launched in time, in words without a full stop.
fn launched(report: &Report) -> Option<String> {
    /// Less than this share of the window is not worth a word.
    const WORTH: f64 = 0.01;
    let share = |rank: &RankReport| rank.idle_launched_ns.0 as f64 / rank.window_ns.0.max(1) as f64;
    let most = report
        .ranks
        .iter()
        .max_by(|a, b| share(a).total_cmp(&share(b)))?;
    (share(most) >= WORTH).then(|| {
        format!(
            "of what is \"other\" on rank {}, {} of the window ends with kernels that had been launched in time",
            most.rank,
            words::percents(share(most))
        )
    })
}

fn kernels(out: &mut String, rank: &RankReport) -> fmt::Result {
    writeln!(
        out,
        "\n{HEAD}kernels of rank {} that take most time{HEAD:#}",
        rank.rank
    )?;
    writeln!(
        out,
        "{HEAD}    total   count      mean       min       max  class, kernel{HEAD:#}"
    )?;
    let names = rank.top_kernels.iter().map(|kernel| &*kernel.name);
    let names = words::distinct(&Vec::from_iter(names.take(SHOWN)), 22);
    for (kernel, name) in rank.top_kernels.iter().zip(names) {
        writeln!(
            out,
            "{:>9} {:>7} {:>9} {:>9} {:>9}  {:<7} {}",
            time(kernel.total_ns),
            kernel.count,
            time(kernel.mean_ns),
            time(kernel.min_ns),
            time(kernel.max_ns),
            short_class(kernel.class),
            name
        )?;
        if let Some(operator) = &kernel.operator {
            writeln!(out, "{:>57}of {}", "", words::shorter(operator, 18))?;
        }
    }
    Ok(())
}

/// A class as the heads of tables have it.
fn short_class(class: &str) -> &str {
    match class {
        "computation" => "compute",
        "communication" => "comm.",
        other => other,
    }
}

fn collectives(out: &mut String, rank: &RankReport) -> fmt::Result {
    if rank.collectives.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{HEAD}collectives of rank {} by size{HEAD:#}",
        rank.rank
    )?;
    writeln!(
        out,
        "{HEAD}kind              bytes ranks count      mean      wait      skew      bus{HEAD:#}"
    )?;
    for row in rank.collectives.iter().take(SHOWN) {
        let CollectiveRow {
            kind,
            bytes,
            ranks,
            count,
            ..
        } = row;
        writeln!(
            out,
            "{kind:<13} {:>9} {:>5} {count:>5} {:>9} {:>9} {:>9} {:>8}",
            or_dash(*bytes, size),
            or_dash(*ranks, |ranks| ranks.to_string()),
            time(row.mean_ns),
            or_dash(row.wait_ns, time),
            or_dash(row.skew_ns, time),
            or_dash(row.bus_bandwidth, bandwidth)
        )?;
    }
    if rank.collectives.len() > SHOWN {
        writeln!(
            out,
            "and {} more rows (--json)",
            rank.collectives.len() - SHOWN
        )?;
    }
    if rank
        .collectives
        .iter()
        .any(|row| row.bus_bandwidth.is_some())
    {
        for line in output::wrap(bus(rank), output::WIDTH) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// A number of bytes.
pub fn size(bytes: u64) -> String {
    let (scale, unit) = match bytes {
        ..1_000 => return format!("{bytes} B"),
        1_000..1_000_000 => (1e3, "kB"),
        1_000_000..1_000_000_000 => (1e6, "MB"),
        _ => (1e9, "GB"),
    };
    format!("{:.1} {unit}", bytes as f64 / scale)
}

/// Bytes per second.
pub fn bandwidth(bytes: f64) -> String {
    format!("{:.1} GB/s", bytes / 1e9)
}
