//! What remains of a demo: the final table, or JSON.

use anstyle::{AnsiColor, Style};
use litd_policies::Policy;
use litd_sim::Scenario;
use litd_units::{Millis, Watts};
use serde::Serialize;

use super::Finished;
use super::run::Summary;
use crate::{Outcome, output};

const HEAD: Style = Style::new().bold();
const SIMULATED: Style = AnsiColor::Magenta.on_default().bold();
const DIM: Style = Style::new().dimmed();

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
        scenario.description.trim()
    ))
}

const HEADINGS: [[&str; 8]; 2] = [
    [
        "SIMULATED",
        "throughput",
        "",
        "GPU power",
        "",
        "largest lead, ms",
        "adjust-",
        "",
    ],
    [
        "policy",
        "after/before",
        "paper",
        "after/before",
        "paper",
        "before -> after",
        "ments",
        "samples",
    ],
];

const LEGEND: &str = "\
after/before: above 1 is more, below 1 is less. Lead: summed over the kernels of an iteration.
paper: measured on a real 8x MI300X node (Lit Silicon, Table III, whose power is before/after;
here it is turned over). Neither column predicts what a node of yours gains.";

pub fn print_table(finished: &[Finished]) -> Outcome {
    let mut lines: Vec<String> = HEADINGS
        .iter()
        .map(|&heading| format!("{HEAD}{}{HEAD:#}", columns(heading).trim_end()))
        .collect();
    lines.extend(finished.iter().map(|run| row(&run.summary)));
    lines.push(String::new());
    lines.extend(finished.iter().map(|run| verdict(&run.summary)));
    lines.push(format!("\n{DIM}{LEGEND}{DIM:#}\n"));
    output::text(&lines.join("\n"))
}

fn verdict(summary: &Summary) -> String {
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
    format!(
        "{HEAD}{:12}{HEAD:#} caps {} W; {unfinished}{}",
        summary.policy,
        caps.join(" "),
        summary.verdict
    )
}

fn columns<T: std::fmt::Display>(cells: [T; 8]) -> String {
    let [
        policy,
        throughput,
        paper_throughput,
        power,
        paper_power,
        lead,
        adjustments,
        samples,
    ] = cells;
    format!(
        "{policy:12} {throughput:>12} {paper_throughput:>6}  {power:>12} {paper_power:>6}  \
         {lead:>16}  {adjustments:>7} {samples:>8}"
    )
}

fn row(summary: &Summary) -> String {
    let largest = |leads: &[Millis]| leads.iter().copied().fold(Millis::ZERO, Millis::max).0;
    let measured = paper(summary.policy);
    let paper = |of: fn((f64, f64)) -> f64| {
        measured.map_or_else(|| "-".to_owned(), |pair| format!("{:.2}", of(pair)))
    };
    columns([
        summary.policy.to_string(),
        format!("{:.4}", summary.throughput_ratio),
        paper(|(throughput, _)| throughput),
        format!("{:.4}", summary.node_power_ratio),
        paper(|(_, power)| power),
        format!(
            "{:.0} -> {:.0}",
            largest(&summary.leads_before),
            largest(&summary.leads_after)
        ),
        summary.adjustments.to_string(),
        summary.samples.to_string(),
    ])
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
        let description = listed.description.replace('\n', "\n  ");
        format!(
            "{HEAD}{}{HEAD:#}: {}\n  {description}\n",
            listed.name, listed.title
        )
    };
    output::text(&listed.into_iter().map(entry).collect::<String>())
}
