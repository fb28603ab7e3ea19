//! The ranks beside each other, each with those that do equal work, in the HTML report.

use std::fmt::Write as _;

use litd_traces::{LeadValues, RankReport, Report};
use litd_units::Nanos;

use crate::analyze::words;
use crate::show::{or_dash, percent, time};
use crate::svg::escaped;

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
            "<th>pace</th><th>lead, sum</th><th>lead, most</th><th>lead, last</th><th>last in, kernels</th>"
        }
        false => "",
    };
    let _ = write!(
        out,
        "<table><tr><th>rank</th>{of_group}{of_leads}<th>busy, %</th><th>overlap ratio</th><th>kernels</th><th>compute</th><th>comm.</th></tr>"
    );
    for rank in &report.ranks {
        let _ = write!(out, "<tr><td>{}</td>", name(report, rank));
        if several {
            let _ = write!(out, "<td>{}</td>", rank.group);
        }
        if with_leads {
            leads(out, rank);
        }
        let _ = write!(
            out,
            "<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            percent(Some(rank.busy_fraction)),
            or_dash(rank.overlap_ratio, |ratio| format!("{ratio:.3}")),
            rank.kernels,
            rank.computation,
            rank.communication,
        );
    }
    out.push_str("</table>");
    out.push_str("<p>");
    if with_leads {
        out.push_str("Pace: its time for the kernels whose overlap is the same on every rank, divided by the time that the median rank of its group takes for them; above 1 is slower. Lead: by how much it starts kernels before the last rank of its group. ");
    }
    out.push_str("Busy: of the time from the first start to the last end on any rank. Overlap: the part of its computation that communication runs beside, up to 1.</p></section>\n");
}

/// The rank, in bold if the others of its group wait for it, alone or as for others.
fn name(report: &Report, rank: &RankReport) -> String {
    let group = report.groups.get(rank.group);
    let stragglers = group.map_or(&[][..], |group| group.stragglers());
    match stragglers.contains(&rank.rank) {
        true => format!("<strong>{}, straggler</strong>", rank.rank),
        false => rank.rank.to_string(),
    }
}

/// The columns of leads and pace; a rank that is alone in its group has none.
fn leads(out: &mut String, rank: &RankReport) {
    let lead = |of: fn(&LeadValues) -> Nanos| or_dash(rank.lead.as_ref(), |lead| time(of(lead)));
    let cells = [
        or_dash(rank.pace, |pace| format!("{pace:.3}")),
        lead(|lead| lead.sum_ns),
        lead(|lead| lead.max_ns),
        lead(|lead| lead.last_ns),
        or_dash(rank.last_in, |last| last.to_string()),
    ];
    for cell in cells {
        let _ = write!(out, "<td>{cell}</td>");
    }
}
