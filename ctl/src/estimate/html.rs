//! The estimate as one page: no script, nothing from a network.

use std::fmt::Write as _;

use litd_estimate::NodeEstimate;

use super::Report;
use super::text::first;
use crate::page;
use crate::svg::{Chart, colour, escaped};

/// So many bars a histogram has.
const BARS: usize = 30;
/// So many nodes the table has.
const ROWS: usize = 1_000;

/// The whole file.
pub fn page(report: &Report) -> String {
    let mut out = page::begin(
        "What could this fleet gain? (litctl estimate)",
        "What could this fleet gain at most?",
    );
    if report.simulated {
        out.push_str("<p><strong>SIMULATED</strong>: a simulator made these numbers up.</p>\n");
    }
    out.push_str("<dl>");
    for (label, answer) in first(report) {
        let _ = write!(out, "<dt>{label}</dt><dd>{}</dd>", escaped(&answer));
    }
    out.push_str("</dl>\n");
    pictures(&mut out, report);
    told(&mut out, report);
    table(&mut out, report);
    page::end(out)
}

type Value = fn(&NodeEstimate) -> Option<f64>;

fn pictures(out: &mut String, report: &Report) {
    let of = |value: Value| Vec::from_iter(report.nodes.iter().filter_map(value));
    let drawn: [(&str, &str, Value, usize); 4] = [
        (
            "Spread",
            "slowest against fastest GPU of a node, %",
            |it| it.spread_pct,
            0,
        ),
        (
            "Against the median",
            "slowest against median GPU of a node, %",
            |it| it.slowest_vs_median_pct,
            2,
        ),
        (
            "Time in which power limits",
            "share of a node's samples, %",
            |it| it.limiter_share.as_ref()?.get("power").map(|it| 100.0 * it),
            1,
        ),
        (
            "Worth",
            "at most, per node-hour",
            |it| it.value_per_node_hour,
            5,
        ),
    ];
    for (title, axis, value, at) in drawn {
        let values = of(value);
        if values.is_empty() {
            continue;
        }
        let chart = histogram(&values, axis, &colour(at));
        let _ = writeln!(
            out,
            "<section><h2>{title}</h2><figure>{chart}</figure></section>"
        );
    }
}

/// How many nodes have which value.
fn histogram(values: &[f64], axis: &str, colour: &str) -> String {
    let most = values.iter().copied().fold(0.0, f64::max);
    let width = if most > 0.0 { most / BARS as f64 } else { 1.0 };
    let mut counts = [0_u32; BARS];
    for value in values {
        // The cast saturates, and the largest belongs to the last bar.
        counts[((value / width) as usize).min(BARS - 1)] += 1;
    }
    let highest = counts.iter().copied().max().unwrap_or(0);
    let mut chart = Chart::new(
        (0.0, width * BARS as f64),
        (0.0, f64::from(highest) * 1.05),
        220.0,
    )
    .horizontal_axis(axis)
    .vertical_axis("nodes");
    for (at, count) in counts.iter().enumerate().filter(|it| *it.1 > 0) {
        let from = at as f64 * width;
        let title = format!("{count} from {from:.3} to {:.3}", from + width);
        let height = f64::from(*count);
        chart.area((from, from + 0.95 * width), (0.0, height), colour, &title);
    }
    chart.finish(&format!("Number of nodes by {axis}"))
}

fn told(out: &mut String, report: &Report) {
    if let Some(slow) = report.fleet.repair.as_ref().filter(|it| !it.is_empty()) {
        out.push_str("<h2>GPUs to repair</h2><ul>");
        for it in slow.iter().take(ROWS) {
            let (node, gpu) = (escaped(&it.node), escaped(&it.gpu));
            let _ = write!(
                out,
                "<li>{node} {gpu}: {:.1} % slower than its node's median</li>",
                it.slower_pct
            );
        }
        out.push_str("</ul>\n");
    }
    out.push_str("<h2>What the data can't tell</h2><ul>");
    for gap in &report.fleet.cannot_tell {
        let _ = write!(
            out,
            "<li>{}: {} ({} nodes)</li>",
            gap.what,
            escaped(&gap.why),
            gap.nodes
        );
    }
    out.push_str("</ul>\n");
    if !report.input.damage.is_empty() {
        out.push_str("<h2>What is wrong with the data</h2><ul>");
        for kind in &report.input.damage {
            let (what, first) = (escaped(&kind.what), escaped(&kind.first));
            let _ = write!(out, "<li>{} x {what} {first}</li>", kind.count);
        }
        out.push_str("</ul>\n");
    }
}

fn table(out: &mut String, report: &Report) {
    out.push_str(
        "<h2>Nodes</h2><table><tr><th>node</th><th>GPUs</th><th>samples</th><th>spread, %</th><th>slowest / median, %</th><th>persistence</th><th>gpu-red, %</th><th>gpu-realloc, %</th><th>cpu-slosh, %</th><th>per node-hour</th></tr>",
    );
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |it| format!("{it:.3}"));
    for node in report.nodes.iter().take(ROWS) {
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td>",
            escaped(&node.node),
            node.gpus,
            node.samples
        );
        for value in [
            node.spread_pct,
            node.slowest_vs_median_pct,
            node.persistence,
            node.bound.gpu_red_power_pct,
            node.bound.gpu_realloc_throughput_pct,
            node.bound.cpu_slosh_throughput_pct,
            node.value_per_node_hour,
        ] {
            let _ = write!(out, "<td>{}</td>", number(value));
        }
        out.push_str("</tr>");
    }
    out.push_str("</table>\n");
    if let Some(rest) = report.nodes.len().checked_sub(ROWS + 1) {
        let _ = writeln!(out, "<p>and {} more (--json has all)</p>", rest + 1);
    }
}
