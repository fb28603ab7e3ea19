//! Where the time of each rank goes, in the HTML report.

use std::fmt::Write as _;

use litd_traces::{RankReport, Report, Split};
use litd_units::Nanos;

use crate::analyze::{time, words};
use crate::show::{or_dash, percent, time as of_time};
use crate::svg::{Chart, escaped};

/// A kind of time: what it is called, its colour, and how much of it there is.
type Part = (&'static str, &'static str, fn(&Split) -> Nanos);

/// In the order in which they are drawn.
const PARTS: [Part; 6] = [
    ("computation", "#009e73", |split| split.computation),
    ("exposed communication", "#e69f00", |split| {
        split.exposed_communication
    }),
    ("exposed copies", "#0072b2", |split| split.exposed_copies),
    ("idle: launched late", "#d55e00", |split| split.idle_launch),
    ("idle: another stream", "#cc79a7", |split| split.idle_stream),
    ("idle: other", "#bbb", |split| split.idle_other),
];

/// The section.
pub fn section(out: &mut String, report: &Report) {
    out.push_str("<section><h2>Where the time goes</h2><p class=\"key\">");
    for (name, colour, _) in PARTS {
        let _ = write!(
            out,
            "<span><i style=\"background:{colour}\"></i>{name}</span>"
        );
    }
    let _ = write!(out, "</p><figure>{}</figure>", picture(report));
    out.push_str("<p>All numbers but the first are in % of each rank's window, the time from its first kernel's start to its last one's end. Waits are a part of the times to their left, and not to be added to them. The last two columns count waits in collectives of the rank's own group and of other groups, hidden by computation or not; the column before them counts the part of both in which the GPU computes nothing.</p><table><tr><th>rank</th><th>window</th><th>com&shy;putation</th><th>exposed comm.</th><th>exposed copies</th><th>idle: launched late</th><th>idle: another stream</th><th>idle: other</th><th>waits with nothing to compute (any)</th><th>waits in own group</th><th>waits for other groups</th></tr>");
    for rank in &report.ranks {
        let share = |part: Nanos| percent(Some(part.0 as f64 / rank.window_ns.0.max(1) as f64));
        let split = &rank.time_ns;
        // An unrecorded value is not 0.
        let told = |part: Nanos| match rank.launches_known > 0.0 {
            true => share(part),
            false => "-".into(),
        };
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            rank.rank,
            of_time(rank.window_ns),
            share(split.computation),
            share(split.exposed_communication),
            share(split.exposed_copies),
            told(split.idle_launch),
            told(split.idle_stream),
            share(split.idle_other),
            percent(rank.exposed_wait_fraction),
            percent(rank.wait_fraction),
            percent(rank.stage_wait_fraction),
        );
    }
    out.push_str("</table>");
    for told in time::of_idleness(report) {
        let _ = write!(out, "<p>{}.</p>", escaped(&told));
    }
    out.push_str("</section>\n");
    if let Some(rank) = time::shown(report) {
        kernels(out, rank);
        collectives(out, rank);
    }
}

/// A bar per rank, of the kinds of time.
fn picture(report: &Report) -> String {
    let ranks = report.ranks.len() as f64;
    let names = report.ranks.iter().enumerate();
    let names = names.map(|(at, rank)| (ranks - 0.5 - at as f64, format!("rank {}", rank.rank)));
    let mut chart = Chart::new((0.0, 100.0), (0.0, ranks), 60.0 + 26.0 * ranks)
        .horizontal_axis("% of the rank's window")
        .rows(names);
    for (at, rank) in report.ranks.iter().enumerate() {
        let base = ranks - 1.0 - at as f64;
        let mut from = 0.0;
        for (name, colour, part) in PARTS {
            let share = 100.0 * part(&rank.time_ns).0 as f64 / rank.window_ns.0.max(1) as f64;
            let title = format!("{name}: {share:.1} %");
            if share > 0.0 {
                chart.area(
                    (from, from + share),
                    (base + 0.15, base + 0.85),
                    colour,
                    &title,
                );
            }
            from += share;
        }
    }
    chart.finish("Where the time of each rank goes")
}

fn kernels(out: &mut String, rank: &RankReport) {
    let _ = write!(
        out,
        "<section><h2>Kernels of rank {} that take most time</h2><table><tr><th>kernel</th><th>class</th><th>operator</th><th>count</th><th>total</th><th>mean</th><th>min</th><th>max</th></tr>",
        rank.rank
    );
    for kernel in &rank.top_kernels {
        let _ = write!(
            out,
            "<tr><td title=\"{}\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(&kernel.name),
            escaped(&words::short(&kernel.name)),
            kernel.class,
            escaped(kernel.operator.as_deref().unwrap_or("-")),
            kernel.count,
            of_time(kernel.total_ns),
            of_time(kernel.mean_ns),
            of_time(kernel.min_ns),
            of_time(kernel.max_ns),
        );
    }
    out.push_str("</table></section>\n");
}

fn collectives(out: &mut String, rank: &RankReport) {
    if rank.collectives.is_empty() {
        return;
    }
    let _ = write!(
        out,
        "<section><h2>Collectives of rank {} by size</h2><table><tr><th>kind</th><th>bytes</th><th>ranks</th><th>count</th><th>mean</th><th>wait</th><th>skew</th><th>bus bandwidth</th></tr>",
        rank.rank
    );
    for row in &rank.collectives {
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            row.kind,
            or_dash(row.bytes, time::size),
            or_dash(row.ranks, |ranks| ranks.to_string()),
            row.count,
            of_time(row.mean_ns),
            or_dash(row.wait_ns, of_time),
            or_dash(row.skew_ns, of_time),
            or_dash(row.bus_bandwidth, time::bandwidth),
        );
    }
    let _ = writeln!(
        out,
        "</table><p>{}.</p></section>",
        escaped(time::bus(rank))
    );
}
