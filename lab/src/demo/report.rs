//! What remains of a demo: the final table, or JSON.

use anstyle::{AnsiColor, Style};
use litd_policies::Policy;
use litd_sim::Scenario;
use litd_units::{Millis, Watts};
use serde::Serialize;

use super::Finished;
use super::run::Summary;
use litd_cli::{Outcome, output};

const HEAD: Style = Style::new().bold();
const SIMULATED: Style = AnsiColor::Magenta.on_default().bold();
const DIM: Style = Style::new().dimmed();
const INDENT: &str = "  ";

/// The measured columns of the paper's Table III on a real MI300X node. Its power is before /
/// after; here it is turned over into after / before, as everything else in the table.
fn paper(policy: Policy) -> Option<(f64, f64)> {
    match policy {
        Policy::Observe => None,
        Policy::GpuRed => Some((1.00, 1.0 / 1.04)),
        Policy::GpuRealloc => Some((1.03, 1.00)),
        Policy::CpuSlosh => Some((1.04, 1.0 / 0.97)),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    simulated: bool,
    policies: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    policy: Policy,
    throughput_ratio: f64,
    node_power_ratio: f64,
    adjustments: u32,
    samples: u32,
    converged: bool,
    caps_w: &'a [Watts],
    lead_sum_ms: &'a [Millis],
    lead_sum_before_ms: &'a [Millis],
    verdict: &'a str,
}

pub fn print_json(finished: &[Finished]) -> Outcome {
    let policies = finished.iter().map(|run| {
        let summary = &run.summary;
        Entry {
            policy: summary.policy,
            throughput_ratio: summary.throughput_ratio,
            node_power_ratio: summary.node_power_ratio,
            adjustments: summary.adjustments,
            samples: summary.samples,
            converged: summary.converged,
            caps_w: &summary.caps,
            lead_sum_ms: &summary.leads_after,
            lead_sum_before_ms: &summary.leads_before,
            verdict: &summary.verdict,
        }
    });
    let document = Document {
        simulated: true,
        policies: policies.collect(),
    };
    output::json(&document)
}

pub fn print_heading(scenario: &Scenario, seed: u64) -> Outcome {
    output::text(&format!(
        "{SIMULATED}SIMULATED{SIMULATED:#}  {HEAD}{}{HEAD:#}  {DIM}(seed {seed}){DIM:#}\n{}\n\n",
        scenario.title,
        output::wrap(&scenario.description, output::WIDTH).join("\n")
    ))
}

/// The heads of the table; the first line spans pairs of columns.
const HEADINGS: [&str; 2] = [
    "SIMULATED      throughput     GPU power    mean lead, ms   adjust-",
    "policy        ratio paper   ratio paper   before -> after    ments  samples",
];

const LEGEND: &str = "\
ratio: after/before; above 1 is more, below 1 is less. Lead: how much earlier
than the last GPU the first one starts a kernel. paper: measured on a real
8x MI300X node (Lit Silicon, Table III, whose power is before/after; here it is
turned over). Neither column predicts what a node of yours gains.";

/// The paper's columns stand only beside the scenario that is like the paper's node.
pub fn print_table(finished: &[Finished], like_the_paper: bool) -> Outcome {
    let mut lines: Vec<String> = HEADINGS
        .iter()
        .map(|heading| format!("{HEAD}{heading}{HEAD:#}"))
        .collect();
    lines.extend(finished.iter().map(|run| row(&run.summary, like_the_paper)));
    lines.extend(finished.iter().flat_map(|run| verdict(&run.summary)));
    lines.push(format!("\n{DIM}{LEGEND}{DIM:#}\n"));
    output::text(&lines.join("\n"))
}

/// What the loop said last, and below it the caps it left.
fn verdict(summary: &Summary) -> Vec<String> {
    let caps: Vec<String> = summary
        .caps
        .iter()
        .map(|cap| format!("{:.0}", cap.0))
        .collect();
    let unfinished = if summary.converged {
        ""
    } else {
        "NOT CONVERGED: "
    };
    let paragraphs = [
        format!("{unfinished}{}", summary.verdict),
        format!("caps {} W", caps.join(" ")),
    ];
    let lines = paragraphs
        .iter()
        .flat_map(|text| output::wrap(text, output::WIDTH - INDENT.len()))
        .map(|line| format!("{INDENT}{line}"));
    let name = format!("\n{HEAD}{}{HEAD:#}", summary.policy);
    std::iter::once(name).chain(lines).collect()
}

fn row(summary: &Summary, like_the_paper: bool) -> String {
    let [lead_before, lead_after] = summary.largest_lead;
    let measured = paper(summary.policy).filter(|_| like_the_paper);
    let paper = |of: fn((f64, f64)) -> f64| {
        measured.map_or_else(|| "-".to_owned(), |pair| format!("{:.2}", of(pair)))
    };
    format!(
        "{:11}  {:6.4} {:>5}  {:6.4} {:>5}  {:>16}  {:>7}  {:>7}",
        summary.policy.name(),
        summary.throughput_ratio,
        paper(|(throughput, _)| throughput),
        summary.node_power_ratio,
        paper(|(_, power)| power),
        format!("{:.2} -> {:.2}", lead_before.0, lead_after.0),
        summary.adjustments,
        summary.samples,
    )
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    title: String,
    description: String,
}

pub fn list_scenarios(json: bool) -> Outcome {
    let listed = litd_sim::scenario::builtin_names().map(|name| {
        Scenario::builtin(name).map(|scenario| Listed {
            name,
            title: scenario.title,
            description: scenario.description.trim().to_owned(),
        })
    });
    let listed = listed.collect::<Result<Vec<_>, _>>()?;
    if json {
        return output::json(&listed);
    }
    let entry = |listed: Listed| {
        let lines = output::wrap(&listed.description, output::WIDTH - INDENT.len());
        let description: String = lines
            .iter()
            .map(|line| format!("{INDENT}{line}\n"))
            .collect();
        format!(
            "{HEAD}{}{HEAD:#}: {}\n{description}",
            listed.name, listed.title
        )
    };
    output::text(&listed.into_iter().map(entry).collect::<String>())
}
