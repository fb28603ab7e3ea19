//! The ranks beside each other, each with those that do equal work, in the HTML report.

use std::fmt::Write as _;

use litd_traces::{LeadValues, RankReport, Report};
use litd_units::Nanos;

use super::svg::escaped;
use crate::analyze::words;
use crate::show::{or_dash, percent, time};

/// The section: groups where there are several, and a row for each rank.
pub fn section(out: &mut String, report: &Report) {
    let several = report.groups.len() > 1;
    out.push_str("<section><h2>Ranks</h2>");
    if several {
        out.push_str("<p>Ranks are compared within groups of equal work:</p><ul>");
        for (number, group) in report.groups.iter().enumerate() {
            let _ = write!(out, "<li>{}</li>", escaped(&words::group(number, group)));
        }
        out.push_str("</ul>");
    }
    let of_group = if several { "<th>group</th>" } else { "" };
    let with_leads = report.matched_kernels.is_some();
    let of_leads = match with_leads {
        true => {
            "<th>lead, sum</th><th>lead, greatest</th><th>lead, last</th><th>last in, kernels</th><th>pace</th>"
        }
        false => "",
    };
    let _ = write!(
        out,
        "<table><tr><th>rank</th>{of_group}<th>kernels</th><th>compute</th><th>comm.</th><th>busy, % of the time of all ranks</th><th>overlap ratio</th>{of_leads}</tr>"
    );
    for rank in &report.ranks {
        let _ = write!(out, "<tr><td>{}</td>", name(report, rank));
        if several {
            let _ = write!(out, "<td>{}</td>", rank.group);
        }
        let _ = write!(
            out,
            "<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
            rank.kernels,
            rank.computation,
            rank.communication,
            percent(Some(rank.busy_fraction)),
            or_dash(rank.overlap_ratio, |ratio| format!("{ratio:.3}")),
        );
        if with_leads {
            leads(out, rank);
        }
        out.push_str("</tr>");
    }
    out.push_str("</table>");
    if with_leads {
        out.push_str("<p>Leads: by how much a rank starts kernels before the last rank of its group. Pace: how long its kernels take against the median rank's; above 1 is slower.</p>");
    }
    out.push_str("</section>\n");
}

/// The rank, in bold if the others of its group wait for it.
fn name(report: &Report, rank: &RankReport) -> String {
    let group = report.groups.get(rank.group);
    match group.is_some_and(|group| group.straggler_rank == Some(rank.rank)) {
        true => format!("<strong>{}, straggler</strong>", rank.rank),
        false => rank.rank.to_string(),
    }
}

/// The columns about leads; a rank that is alone in its group has none.
fn leads(out: &mut String, rank: &RankReport) {
    let lead = |of: fn(&LeadValues) -> Nanos| or_dash(rank.lead.as_ref(), |lead| time(of(lead)));
    let cells = [
        lead(|lead| lead.sum_ns),
        lead(|lead| lead.max_ns),
        lead(|lead| lead.last_ns),
        or_dash(rank.last_in, |last| last.to_string()),
        or_dash(rank.pace, |pace| format!("{pace:.3}")),
    ];
    for cell in cells {
        let _ = write!(out, "<td>{cell}</td>");
    }
}
