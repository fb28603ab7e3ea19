//! The estimate for people, 80 columns wide.

use std::fmt::{self, Write as _};

use litd_estimate::{FleetEstimate, HIGHEST_CAP_UNKNOWN, NodeEstimate, PERSISTS, Range, Triple};

use super::damage::shown;
use super::{Report, STANDING};
use crate::output::{WIDTH, count, wrap};
use crate::show::{ABSENT, HEAD, SIMULATED, WARNING};

/// So many nodes are shown, those with the most to gain first.
const SHOWN: usize = 20;
/// And so many GPUs to repair, and kinds of what can't be told.
const LISTED: usize = 10;
/// So many characters of a node's name.
const NAME: usize = 13;
/// Where the answers begin.
const INDENT: usize = 10;

/// The whole page.
pub fn page(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_page(&mut out, report);
    out
}

/// A number with so many digits after the point, or a dash.
fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| ABSENT.to_owned(), |it| format!("{it:.digits$}"))
}

/// The first sentences, also the page's.
pub fn first(report: &Report) -> Vec<(&'static str, String)> {
    let fleet = &report.fleet;
    vec![
        ("verdict", verdict(fleet)),
        ("worth", worth(report)),
        ("limiter", limiter(fleet)),
        ("spread", spread(fleet)),
        ("repair", repair(fleet)),
        ("next", next(fleet).to_owned()),
    ]
}

fn write_page(out: &mut String, report: &Report) -> fmt::Result {
    if report.simulated {
        writeln!(
            out,
            "{SIMULATED}SIMULATED{SIMULATED:#}: a simulator made these numbers up"
        )?;
    }
    for (label, answer) in first(report) {
        answered(out, label, &answer)?;
    }
    table(out, report)?;
    let fleet = &report.fleet;
    if let Some(slow) = fleet.repair.as_ref().filter(|it| !it.is_empty()) {
        writeln!(out, "\n{HEAD}GPUs to repair{HEAD:#}")?;
        for it in slow.iter().take(LISTED) {
            let (node, gpu) = (shown(&it.node), shown(&it.gpu));
            writeln!(
                out,
                "  {node} {gpu}: {:.1} % slower than its node's median",
                it.slower_pct
            )?;
        }
        more(out, slow.len(), "GPU")?;
    }
    writeln!(out, "\n{HEAD}What the data can't tell{HEAD:#}")?;
    let own = fleet.cannot_tell.len().saturating_sub(STANDING.len());
    for gap in fleet.cannot_tell.iter().take(own.min(LISTED)) {
        listed(
            out,
            &format!(
                "{}: {} ({})",
                gap.what,
                gap.why,
                count(gap.nodes as u64, "node")
            ),
        )?;
    }
    more(out, own, "reason")?;
    for (_, limit) in STANDING {
        listed(out, limit)?;
    }
    if !report.input.damage.is_empty() {
        writeln!(out, "\n{WARNING}What is wrong with the data{WARNING:#}")?;
        for kind in report.input.damage.iter().take(LISTED) {
            let first = match kind.first.is_empty() {
                true => String::new(),
                false => format!(" (first {})", kind.first),
            };
            listed(out, &format!("{} x {}{first}", kind.count, kind.what))?;
        }
        more(out, report.input.damage.len(), "kind")?;
    }
    Ok(())
}

fn answered(out: &mut String, label: &str, answer: &str) -> fmt::Result {
    for (at, line) in wrap(answer, WIDTH - INDENT).iter().enumerate() {
        match at {
            0 => writeln!(out, "{HEAD}{label:<INDENT$}{HEAD:#}{line}")?,
            _ => writeln!(out, "{:INDENT$}{line}", "")?,
        }
    }
    Ok(())
}

fn listed(out: &mut String, text: &str) -> fmt::Result {
    for (at, line) in wrap(text, WIDTH - 2).iter().enumerate() {
        writeln!(out, "{}{line}", if at == 0 { "- " } else { "  " })?;
    }
    Ok(())
}

fn more(out: &mut String, all: usize, what: &str) -> fmt::Result {
    match all.saturating_sub(LISTED) {
        0 => Ok(()),
        rest => writeln!(
            out,
            "  and {} more (--json has all)",
            count(rest as u64, what)
        ),
    }
}

fn within(range: Option<Range>, digits: usize) -> String {
    range.map_or_else(String::new, |it| {
        format!(" ({:.digits$} to {:.digits$})", it.0, it.1)
    })
}

fn verdict(fleet: &FleetEstimate) -> String {
    let bound = &fleet.bound;
    let mut parts = Vec::new();
    let each = fleet.intervals;
    if let Some(red) = bound.gpu_red_power_pct {
        let watts = fleet.watts.gpu_red.map(|it| it / fleet.nodes.max(1) as f64);
        let watts = watts.map_or_else(String::new, |it| format!(", {it:.0} W a node"));
        let range = within(each.gpu_red_power_pct, 1);
        // The least slope makes the bound; what it is if power goes with the clock helps to place it.
        let plain = fleet.gpu_red_at_slopes.get("1");
        let plain = plain.map_or_else(String::new, |it| {
            format!(" ({it:.1} % if power goes with the clock)")
        });
        parts.push(format!(
            "{red:.1} %{range} of GPU power by gpu-red{watts}{plain}"
        ));
    }
    for (gain, range, policy) in [
        (
            bound.gpu_realloc_throughput_pct,
            each.gpu_realloc_throughput_pct,
            "gpu-realloc",
        ),
        (
            bound.cpu_slosh_throughput_pct,
            each.cpu_slosh_throughput_pct,
            "cpu-slosh",
        ),
    ] {
        if let Some(gain) = gain {
            parts.push(format!(
                "{gain:.1} %{} of throughput by {policy}",
                within(range, 1)
            ));
        }
    }
    let size = format!(
        "{} with {}",
        count(fleet.nodes as u64, "node"),
        count(fleet.gpus as u64, "GPU")
    );
    match parts.len() {
        0 => format!(
            "{size}: what moving power could gain can't be told from this data; see below why."
        ),
        _ => format!(
            "{size} could gain at most: {}. These are upper bounds, one policy at a time, and no predictions.{}",
            parts.join("; "),
            if_caps_can_rise(fleet)
        ),
    }
}

/// Whether no column tells the highest cap of a node that has bounds of throughput.
fn may_be_at_highest(fleet: &FleetEstimate) -> bool {
    let mut gaps = fleet.cannot_tell.iter();
    gaps.any(|it| it.why == HIGHEST_CAP_UNKNOWN)
}

fn if_caps_can_rise(fleet: &FleetEstimate) -> String {
    if !may_be_at_highest(fleet) {
        return String::new();
    }
    let left = match fleet.bound.gpu_red_power_pct {
        Some(red) => format!("gpu-red's {red:.1} % of power is all"),
        None => "nothing is".to_owned(),
    };
    format!(
        " Throughput counts only if caps can rise: no column has the highest cap (power.max_limit, --max-cap-w); if \
         caps are at the highest already, {left} that is left."
    )
}

fn worth(report: &Report) -> String {
    let fleet = &report.fleet;
    let Some(most) = fleet.value_per_node_hour else {
        return match report.assumptions.prices {
            None => "no prices were given (--price kwh=0.14,gpu_hour=2.50)".to_owned(),
            Some(_) => "nothing can be told: no bound is known".to_owned(),
        };
    };
    let values = fleet.values;
    let left = match may_be_at_highest(fleet) {
        true => format!(
            ", or {} (gpu-red's) if caps can't rise",
            number(values.gpu_red, 3)
        ),
        false => String::new(),
    };
    format!(
        "at most {most:.3}{} per node-hour{left} (gpu-red {}, gpu-realloc {}, cpu-slosh {}), before what it costs to \
         run litd and a trial",
        within(fleet.intervals.value_per_node_hour, 3),
        number(values.gpu_red, 3),
        number(values.gpu_realloc, 3),
        number(values.cpu_slosh, 3),
    )
}

fn limiter(fleet: &FleetEstimate) -> String {
    let Some(shares) = &fleet.limiter_share else {
        return "what limits the GPUs is not known: no column has it, nor power and cap together"
            .to_owned();
    };
    let shares = shares
        .iter()
        .map(|(name, share)| format!("{name} {:.1} %", 100.0 * share));
    format!("of the samples: {}", Vec::from_iter(shares).join(", "))
}

fn spread(fleet: &FleetEstimate) -> String {
    let triple = |it: &Triple| format!("{:.2} / {:.2} / {:.2} %", it.p10, it.median, it.p90);
    let (Some(whole), Some(half)) = (&fleet.spread_pct, &fleet.slowest_vs_median_pct) else {
        return "how far the GPUs of a node are apart can't be told; see below why".to_owned();
    };
    let mut text = format!(
        "the slowest GPU is slower than its node's fastest by {}, than its median by {} (a tenth, half and nine tenths \
         of the nodes are below)",
        triple(whole),
        triple(half)
    );
    if let Some(persistence) = fleet.persistence {
        let _ = match persistence >= PERSISTS {
            true => write!(
                text,
                "; it persists: halves of the time correlate {persistence:.3}"
            ),
            false => write!(
                text,
                "; it does not persist: halves of the time correlate {persistence:.3}, less than {PERSISTS}"
            ),
        };
    }
    if let (Some(share), Some(chance)) =
        (fleet.hottest_is_slowest, fleet.hottest_is_slowest_by_chance)
    {
        let _ = write!(
            text,
            "; the slowest is the hottest in {:.0} % of nodes ({:.0} % by chance)",
            100.0 * share,
            100.0 * chance
        );
    }
    text
}

fn repair(fleet: &FleetEstimate) -> String {
    match (&fleet.repair, fleet.repair_limit_pct) {
        (Some(slow), Some(limit)) => format!(
            "{} slower than the node's median by more than {limit:.1} % in both halves of the time",
            match slow.len() {
                0 => "no GPU is".to_owned(),
                1 => "1 GPU is".to_owned(),
                many => format!("{many} GPUs are"),
            }
        ),
        _ => "whether a GPU is slow all the time can't be told; see below why".to_owned(),
    }
}

fn next(fleet: &FleetEstimate) -> &'static str {
    let bound = &fleet.bound;
    let gains = [
        bound.gpu_red_power_pct,
        bound.gpu_realloc_throughput_pct,
        bound.cpu_slosh_throughput_pct,
    ];
    match gains.into_iter().flatten().reduce(f64::max) {
        None if fleet
            .limiter_share
            .as_ref()
            .is_some_and(|it| it.get("power") == Some(&0.0)) =>
        {
            "nothing, unless the GPUs do other work at other times: by what they draw, power limits none of them"
        }
        None => "collect what is missing (docs/estimate.md has two commands for it)",
        Some(most) if most < 0.5 => "nothing: there is too little to gain",
        Some(_) => {
            "take traces of one job on the nodes that are first below (litctl analyze); then let litd observe there, and \
             a trial decide (litctl trial)"
        }
    }
}

fn table(out: &mut String, report: &Report) -> fmt::Result {
    let mut nodes = Vec::from_iter(&report.nodes);
    let most = |it: &NodeEstimate| {
        let bound = it.bound;
        let gains = [
            bound.cpu_slosh_throughput_pct,
            bound.gpu_realloc_throughput_pct,
            bound.gpu_red_power_pct,
        ];
        it.value_per_node_hour
            .or_else(|| gains.into_iter().flatten().reduce(f64::max))
            .unwrap_or(-1.0)
    };
    nodes.sort_by(|a, b| most(b).total_cmp(&most(a)));
    let shortened = |it: &NodeEstimate| {
        let name = shown(&it.node);
        match name.chars().count() > NAME {
            true => format!("{}…", String::from_iter(name.chars().take(NAME - 1))),
            false => name,
        }
    };
    let first = nodes.iter().take(SHOWN);
    let width = first.map(|it| shortened(it).chars().count()).max();
    let width = width.unwrap_or(0).max(4);
    out.push('\n');
    for head in HEADS {
        write!(out, "{HEAD}")?;
        cells(out, width, head)?;
        writeln!(out, "{HEAD:#}")?;
    }
    for node in nodes.iter().take(SHOWN) {
        let power = node.limiter_share.as_ref();
        let power = power.and_then(|it| it.get("power").copied());
        let row = [
            shortened(node),
            node.gpus.to_string(),
            node.samples.to_string(),
            number(power.map(|it| 100.0 * it), 1),
            number(node.spread_pct, 2),
            number(node.slowest_vs_median_pct, 2),
            number(node.persistence, 2),
            number(node.bound.gpu_red_power_pct, 1),
            number(node.bound.gpu_realloc_throughput_pct, 1),
            number(node.bound.cpu_slosh_throughput_pct, 1),
            number(node.value_per_node_hour, 3),
        ];
        cells(out, width, row.each_ref().map(String::as_str))?;
        out.push('\n');
    }
    match nodes.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        rest => writeln!(
            out,
            "and {} more with less to gain (--json has all)",
            count(rest as u64, "node")
        ),
    }
}

/// The table's head, in two lines.
const HEADS: [[&str; 11]; 2] = [
    [
        "", "", "", "power", "spread", "to me-", "per-", "", "bound,", "%", "hour at",
    ],
    [
        "node", "GPUs", "samples", "binds", "%", "dian %", "sists", "red", "realloc", "slosh",
        "most",
    ],
];

/// A row of the table; eleven columns fit into 80 characters with names of [`NAME`].
fn cells(out: &mut String, width: usize, cells: [&str; 11]) -> fmt::Result {
    let [name, numbers @ ..] = cells;
    write!(out, "{name:<width$}")?;
    for (text, width) in numbers.iter().zip([5, 8, 6, 7, 7, 6, 6, 8, 6, 8]) {
        write!(out, "{text:>width$}")?;
    }
    Ok(())
}
