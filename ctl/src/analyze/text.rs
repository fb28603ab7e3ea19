//! The report for people.

use std::fmt::{self, Write};

use anstyle::{AnsiColor, Style};
use litd_traces::align::in_words;
use litd_traces::formats::nccl_summary::Waits;
use litd_traces::study::{Study, named};
use litd_traces::{Cause, GroupReport, LeadValues, RankReport, Report};
use litd_units::{Aggregation, Nanos};

use super::answer::Screen;
use super::summary::Summary;
use super::{certainty, words};
use crate::output;
use crate::show::{HEAD, SIMULATED, bar, or_dash, percent, time};

/// The longest bar of the picture of leads, in characters.
const BAR: f64 = 40.0;
/// The heads of the table in two lines, and those of its columns about leads.
const HEADS: [(&str, &str); 2] = [
    (
        "                              busy overlap",
        "            lead         last in",
    ),
    (
        "rank kernels compute   comm      %   ratio",
        "     sum     max    last kernels  pace",
    ),
];
/// Footnotes of the columns: percentages have one base.
const BUSY: &str = "busy: % of the time from the first start to the last end on any rank";
const OVERLAP: &str =
    "overlap: the part of its computation that communication runs beside, up to 1";
const PACE: &str = "pace: its time for the kernels whose overlap is the same on every rank, divided\nby the median rank's time for them; above 1 is slower";
const LEAD: &str = "lead: by how much it starts matching kernels before the last rank does (sum: of\nall kernels, max: the most, last: of the last kernel)\nlast in: how many kernels it starts last of all ranks";
const MARK: &str = "a rank with >: the others of its group wait for it";
const LATE: Style = AnsiColor::Yellow.on_default().bold();
const LEADS: Style = AnsiColor::Cyan.on_default();

/// The whole report; colours are removed on the way to what is no terminal.
///
/// `study` is what a diagnosis found.
pub fn render(
    report: &Report,
    screen: &Screen,
    aggregation: Aggregation,
    study: Option<&Study<'_>>,
) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_report(&mut out, report, screen, aggregation, study);
    out
}

/// How many words a page or a terminal begins with before the answers.
pub fn taken(report: &Report) -> usize {
    match report.simulated {
        true => simulated().split_whitespace().count(),
        false => 0,
    }
}

fn simulated() -> String {
    format!("{SIMULATED}SIMULATED{SIMULATED:#}: a simulator wrote these traces")
}

/// Notes for the user.
pub fn notes(report: &Report) -> String {
    let notes = report.notes.iter();
    notes.map(|note| format!("note: {note}\n")).collect()
}

fn write_report(
    out: &mut String,
    report: &Report,
    screen: &Screen,
    aggregation: Aggregation,
    study: Option<&Study<'_>>,
) -> fmt::Result {
    let cause = study.map(|study| study.diagnosis.cause);
    if report.simulated {
        writeln!(out, "{}", simulated())?;
    }
    answers(out, screen)?;
    let leads = report.matched_kernels.zip(report.matched_fraction);
    if let Some((matched, fraction)) = leads {
        let ranks = report.ranks.len();
        let matched = output::count(matched, "kernel");
        let line = format!(
            "{ranks} ranks, {matched} matched{}",
            share_of_ranks(report, fraction)
        );
        for line in output::wrap(&line, output::WIDTH) {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
    }
    groups(out, report)?;
    table(out, report, cause)?;
    if leads.is_some() {
        bars(out, report, aggregation)?;
        writeln!(out)?;
        straggler(out, report, aggregation, study)?;
        left_out(out, report)?;
    } else {
        let why = match (report.ranks.len(), report.world_size) {
            (0 | 1, Some(1)) => "No leads: the job has one rank.",
            (0 | 1, _) => "No leads: they need at least two ranks.",
            _ => "No leads: no two ranks here can be compared.",
        };
        writeln!(out, "\n{why}")?;
    }
    Ok(())
}

/// The share of the ranks' kernels that matches: of the rank with fewest and of the one with most.
/// For several groups the least share.
fn share_of_ranks(report: &Report, fraction: f64) -> String {
    if report.groups.len() > 1 {
        return match fraction < 1.0 {
            true => format!(
                "; in each group at least {} of the kernels of the rank that runs the fewest",
                words::percents(fraction)
            ),
            false => " in their groups (100.0 %)".into(),
        };
    }
    let matched = report.matched_kernels;
    match certainty::shares(matched, report.ranks.iter()) {
        Some([least, most]) if words::percents(least.0) != words::percents(most.0) => format!(
            " ({} of all of rank {}, {} of rank {})",
            words::percents(least.0),
            least.1,
            words::percents(most.0),
            most.1
        ),
        _ => format!(" ({})", words::percents(fraction)),
    }
}

/// The first screen's answers, each with what it answers.
fn answers(out: &mut String, screen: &Screen) -> fmt::Result {
    const LABEL: usize = 10;
    for (label, answer) in &screen.lines {
        for (at, line) in output::wrap(answer, output::WIDTH - LABEL)
            .iter()
            .enumerate()
        {
            match at {
                0 => writeln!(out, "{HEAD}{label:<LABEL$}{HEAD:#}{line}")?,
                _ => writeln!(out, "{:LABEL$}{line}", "")?,
            }
        }
    }
    writeln!(out)
}

/// The groups of ranks, where not all are compared.
fn groups(out: &mut String, report: &Report) -> fmt::Result {
    if report.groups.len() < 2 {
        return Ok(());
    }
    writeln!(out, "{HEAD}groups of equal work{HEAD:#}")?;
    for (number, group) in report.groups.iter().enumerate() {
        for line in output::wrap(&words::group(number, group), output::WIDTH) {
            writeln!(out, "{line}")?;
        }
    }
    writeln!(out)
}

fn table(out: &mut String, report: &Report, cause: Option<Cause>) -> fmt::Result {
    let with_leads = report.matched_kernels.is_some();
    for (heads, of_leads) in HEADS {
        let of_leads = if with_leads { of_leads } else { "" };
        writeln!(out, "{HEAD}{heads}{of_leads}{HEAD:#}")?;
    }
    for rank in &report.ranks {
        let late = told(report).contains(&rank.rank) && !is_chance(cause);
        let (mark, style) = match late {
            true => ('>', LATE),
            false => (' ', Style::new()),
        };
        let RankReport {
            rank: number,
            kernels,
            computation,
            communication,
            ..
        } = rank;
        write!(
            out,
            "{style}{mark}{number:>3} {kernels:>7} {computation:>7} {communication:>6} {:>6} {:>7}",
            percent(Some(rank.busy_fraction)),
            or_dash(rank.overlap_ratio, |ratio| format!("{ratio:.3}")),
        )?;
        if let Some(LeadValues {
            sum_ns,
            max_ns,
            last_ns,
        }) = rank.lead
        {
            let last_in = or_dash(rank.last_in, |last| last.to_string());
            let pace = or_dash(rank.pace, |pace| format!("{pace:.3}"));
            let (sum, max, last) = (time(sum_ns), time(max_ns), time(last_ns));
            write!(out, " {sum:>7} {max:>7} {last:>7} {last_in:>7} {pace:>5}")?;
        }
        writeln!(out, "{style:#}")?;
    }
    writeln!(out, "{BUSY}\n{OVERLAP}")?;
    if with_leads {
        writeln!(out, "{PACE}\n{LEAD}")?;
        if !told(report).is_empty() && !is_chance(cause) {
            writeln!(out, "{MARK}")?;
        }
    }
    Ok(())
}

/// The ranks that the others wait for, of the group that the report tells of.
fn told(report: &Report) -> &[u32] {
    report.told().map_or(&[], GroupReport::stragglers)
}

/// Whether a diagnosis found that whoever is last is so by chance.
fn is_chance(cause: Option<Cause>) -> bool {
    matches!(cause, Some(Cause::Healthy | Cause::SamplingArtefact))
}

/// A picture of what names the straggler of the group that the report tells of: the shortest bar is the
/// rank that the others wait for.
fn bars(out: &mut String, report: &Report, aggregation: Aggregation) -> fmt::Result {
    let lead = |rank: &RankReport| rank.lead.map_or(Nanos::ZERO, |lead| lead.get(aggregation));
    let wait = |rank: &RankReport| rank.names_straggler.unwrap_or_default();
    let by_waits = by_waits(report);
    let value = |rank: &RankReport| if by_waits { wait(rank) } else { lead(rank) };
    let group = report.told().map_or(&[][..], |group| &group.ranks);
    let ranks = || {
        let ranks = report.ranks.iter();
        ranks.filter(|rank| group.contains(&rank.rank))
    };
    let most = ranks().map(value).max().unwrap_or_default();
    let of_leads = format!("lead ({})", word(aggregation));
    let head = match by_waits {
        true => of_waits(report),
        false => of_leads,
    };
    writeln!(out)?;
    for line in output::wrap(&head, output::WIDTH) {
        writeln!(out, "{HEAD}{line}{HEAD:#}")?;
    }
    for rank in ranks() {
        let length = BAR * value(rank).0 as f64 / most.0.max(1) as f64;
        let (number, bar, value) = (rank.rank, bar(length), time(value(rank)));
        writeln!(out, "{number:>4}  {LEADS}{bar}{LEADS:#} {value}")?;
    }
    Ok(())
}

/// The heading of the waits that name the straggler.
fn of_waits(report: &Report) -> String {
    let waits = report.told().and_then(|group| group.waits.as_ref());
    match waits.is_some_and(|waits| waits.mean.is_none()) {
        true => "waits in collectives with nothing to compute, also for other groups".into(),
        false => "waits in collectives".into(),
    }
}

/// Whether waits name the straggler.
fn by_waits(report: &Report) -> bool {
    report.told().is_some_and(|group| group.waits.is_some())
}

fn straggler(
    out: &mut String,
    report: &Report,
    aggregation: Aggregation,
    study: Option<&Study<'_>>,
) -> fmt::Result {
    let what = match by_waits(report) {
        true => "wait in collectives".into(),
        false => format!("{} lead", word(aggregation)),
    };
    let value = |rank: &RankReport| match by_waits(report) {
        true => rank.names_straggler,
        false => rank.lead.map(|lead| lead.get(aggregation)),
    };
    let nobody = match study.map(|study| &study.diagnosis) {
        Some(diagnosis) if certainty::alike(diagnosis) => Some(format!(
            "the ranks differ in their {what} by little more than chance"
        )),
        Some(diagnosis) if diagnosis.cause == Cause::Healthy => Some(format!(
            "the ranks differ in their {what} by no more than chance"
        )),
        Some(diagnosis) if diagnosis.cause == Cause::SamplingArtefact => Some(format!(
            "the ranks differ in their {what}, but that means nothing in these recordings"
        )),
        _ if report.told().is_some_and(|group| !group.exchanges) => {
            Some("the ranks exchange nothing that would make one wait for another".into())
        }
        _ => None,
    };
    if let Some(why) = nobody {
        for line in output::wrap(&format!("No straggler: {why}."), output::WIDTH) {
            writeln!(out, "{line}")?;
        }
        return Ok(());
    }
    let late = told(report);
    let first = report.ranks.iter().find(|rank| late.contains(&rank.rank));
    let first = first.and_then(|rank| Some(time(value(rank)?)));
    match (late, first) {
        ([rank], Some(value)) => writeln!(
            out,
            "{LATE}Rank {rank} is the straggler{LATE:#}: its {what} is the smallest ({value})."
        ),
        ([_, ..], _) => writeln!(
            out,
            "{LATE}The stragglers are {}{LATE:#}: their {what} is the smallest, and can't be told apart.",
            named(late)
        ),
        _ => writeln!(out, "No straggler: several ranks have the smallest {what}."),
    }
}

/// The report on a summary of collectives.
pub fn waits(waits: &Waits, verdict: &Summary) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let screen = verdict.screen(0);
    let _ = answers(&mut out, &screen);
    out += &format!("{HEAD}rank  collectives  time in them  waits in each{HEAD:#}\n");
    for rank in &waits.ranks {
        let _ = writeln!(
            out,
            "{:>4} {:>12} {:>10.3} s {:>11.3} ms",
            rank.rank,
            rank.count,
            rank.time_ms / 1000.0,
            rank.wait_ms
        );
    }
    let _ = match waits.straggler_rank {
        Some(rank) => writeln!(
            out,
            "{LATE}Rank {rank} is the straggler{LATE:#}: it waits least in collectives, the others wait for it."
        ),
        None => writeln!(out, "No straggler: several ranks wait least."),
    };
    out + &words::why(&words::reasons(None, verdict, screen))
}

fn left_out(out: &mut String, report: &Report) -> fmt::Result {
    for rank in &report.ranks {
        if let Some(left_out) = rank.left_out.as_deref().filter(|names| !names.is_empty()) {
            let text = format!("left out of rank {}: {}", rank.rank, in_words(left_out));
            for line in output::wrap(&text, output::WIDTH) {
                writeln!(out, "{line}")?;
            }
        }
    }
    Ok(())
}

fn word(aggregation: Aggregation) -> &'static str {
    match aggregation {
        Aggregation::Sum => "summed",
        Aggregation::Max => "largest",
        Aggregation::Last => "last",
    }
}
