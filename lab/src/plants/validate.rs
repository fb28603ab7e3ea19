//! `litlab plants validate`: the family beside recorded data.

use std::path::PathBuf;

use litd_cli::{Outcome, output};
use litd_plants::data::Folder;
use litd_plants::paper::{self, Check};
use litd_plants::statistics::Band;
use litd_plants::validate::{self, Effort, Finding, NOT_IN_THE_DATA, Verdict};
use serde::Serialize;

use super::short;

/// Compare the family's statistics with recorded data, and one node with the paper's tables
///
/// The same code computes every statistic on recorded and on SIMULATED rows. A statistic is
/// `within` if the family's median lies in the data's 10 to 90 % band; otherwise a note gives the
/// reason, or it is `unexplained`. Without --data only the family's own values are shown.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The folder with the recorded data (longhorn_*.csv.gz, zeus_*.csv.gz and so on)
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// On how many draws each statistic is measured
    #[arg(long, value_name = "N", default_value_t = Effort::default().nodes,
          value_parser = clap::value_parser!(u64).range(4..=100_000))]
    draws: u64,
}

const EXAMPLES: &str = "\
Example:
  litlab plants validate --data FOLDER";

#[derive(Serialize)]
struct Report {
    simulated: bool,
    draws: u64,
    within: usize,
    explained: usize,
    unexplained: usize,
    without_data: usize,
    findings: Vec<Finding>,
    not_in_the_data: &'static [&'static str],
    paper: Check,
    paper_limits: &'static str,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let folder = match &args.data {
        Some(path) if !path.is_dir() => {
            let path = path.display();
            return Err(
                format!("{path}: is no folder; --data names the one with the files").into(),
            );
        }
        Some(path) => Folder::new(path),
        None => Folder::none(),
    };
    let default = Effort::default();
    let effort = Effort {
        nodes: args.draws,
        runs: (args.draws * default.runs / default.nodes).max(4),
        ..default
    };
    let findings = validate::validate(&folder, effort)?;
    let count = |verdict| findings.iter().filter(|it| it.verdict == verdict).count();
    let report = Report {
        simulated: true,
        draws: args.draws,
        within: count(Verdict::Within),
        explained: count(Verdict::Explained),
        unexplained: count(Verdict::Unexplained),
        without_data: count(Verdict::NoData),
        findings,
        not_in_the_data: &NOT_IN_THE_DATA,
        paper: paper::check(),
        paper_limits: paper::LIMITS,
    };
    match json {
        true => output::json(&report),
        false => output::text(&render(&report)),
    }
}

fn band(band: Option<Band>) -> String {
    band.map_or_else(
        || format!("{:>7} {:>7} {:>7}", "-", "-", "-"),
        |it| {
            format!(
                "{:>7} {:>7} {:>7}",
                short(it.p10),
                short(it.p50),
                short(it.p90)
            )
        },
    )
}

fn render(report: &Report) -> String {
    let mut lines = vec![format!(
        "SIMULATED: the family's statistics over {} draws beside recorded data\n",
        report.draws
    )];
    let (mut file, mut notes) = ("", Vec::new());
    for it in &report.findings {
        if it.file != file {
            file = it.file;
            lines.push(format!(
                "{file:<47} data p10     p50     p90  family p10  p50     p90 in band"
            ));
        }
        let verdict = match it.verdict {
            Verdict::Within => "within".to_owned(),
            Verdict::Unexplained => "UNEXPLAINED".to_owned(),
            Verdict::NoData => "no data".to_owned(),
            Verdict::Explained => {
                let note = it.note.unwrap_or_default();
                let known = notes.iter().position(|it| *it == note);
                let number = known.unwrap_or_else(|| {
                    notes.push(note);
                    notes.len() - 1
                });
                format!("note {}", number + 1)
            }
        };
        let name = match it.unit {
            "" => it.name.clone(),
            unit => format!("{}, {unit}", it.name),
        };
        let share = it
            .share
            .map_or("-".to_owned(), |it| format!("{:.0} %", it * 100.0));
        let family = match it.family {
            Some(one) if one.count == 1 => format!("{:>7} {:>7} {:>7}", "", short(one.p50), ""),
            family => band(family),
        };
        lines.push(format!(
            "  {name:<45} {} {family} {share:>6}  {verdict}",
            band(it.data)
        ));
    }
    lines.push(format!(
        "\n{} within, {} explained by a note, {} unexplained, {} without data",
        report.within, report.explained, report.unexplained, report.without_data
    ));
    for (number, note) in notes.iter().enumerate() {
        let text = format!("note {}: {note}", number + 1);
        lines.extend(output::wrap(&text, 80));
    }
    lines.push("\nnot in the data, so not validated:".to_owned());
    lines.extend(report.not_in_the_data.iter().map(|it| format!("- {it}")));
    lines.extend(table(&report.paper));
    lines.extend(output::wrap(report.paper_limits, 80));
    lines.join("\n") + "\n"
}

fn table(check: &Check) -> Vec<String> {
    let mut lines = vec![format!(
        "\nSIMULATED: the plant lit-silicon beside the paper: {} targets, {} free parameters",
        check.targets.len(),
        check.free
    )];
    for it in &check.targets {
        let (paper, tolerance) = it.paper;
        let met = if it.is_met() { "met" } else { "missed" };
        lines.push(format!(
            "  {:<46} paper {paper:>6.3} ± {tolerance:.3}  plant {:>7.4}  {met}",
            it.name, it.plant
        ));
    }
    lines
}
