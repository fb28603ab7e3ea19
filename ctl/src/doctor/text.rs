//! The report for people.

use std::fmt::{self, Write};

use anstyle::Style;
use litd_power::{DeviceKind, Severity};
use litd_units::Watts;

use super::Report;
use super::devices::Examined;
use super::ways::State;
use crate::output::{WIDTH, wrap};
use crate::show::{HEAD, SIMULATED, WARNING, or_dash};

/// Under which words of a line the next one begins.
const FACTS: usize = 16;
const NOTICE: usize = 11;
const WAY: usize = 4;

const PLAIN: Style = Style::new();

/// The whole page.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = page(&mut out, report);
    out
}

fn page(out: &mut String, report: &Report) -> fmt::Result {
    if report.simulated {
        writeln!(
            out,
            "{SIMULATED}SIMULATED{SIMULATED:#}: no device below is a real one"
        )?;
    }
    writeln!(out, "{HEAD}Node{HEAD:#}: Linux {}", report.kernel)?;
    if !report.root {
        writeln!(
            out,
            "  {WARNING}not root{WARNING:#}: some of what litd would see is missing below (try sudo)"
        )?;
    }
    item(out, "Daemon", &report.daemon.text)?;
    devices(out, "GPUs", report, DeviceKind::Gpu)?;
    devices(out, "CPU sockets", report, DeviceKind::Cpu)?;
    notices(out, report)?;
    ways(out, report)?;
    profilers(out, report)?;
    item(out, "Verdict", &verdict(report))?;
    item(out, "Next", next(report))
}

/// A headed text, whose further lines are indented.
fn item(out: &mut String, head: &str, text: &str) -> fmt::Result {
    let mut lines = wrap(&format!("{head}: {text}"), WIDTH - 2).into_iter();
    let first = lines.next().unwrap_or_default();
    let rest = first.strip_prefix(head).unwrap_or_default();
    writeln!(out, "{HEAD}{head}{HEAD:#}{rest}")?;
    lines.try_for_each(|line| writeln!(out, "  {line}"))
}

/// A text that begins behind a head, and goes on in lines that all begin in the same place.
fn hanging(out: &mut String, head: &str, indent: usize, text: &str) -> fmt::Result {
    let mut lines = wrap(text, WIDTH - indent).into_iter();
    writeln!(out, "{head}{}", lines.next().unwrap_or_default())?;
    lines.try_for_each(|line| writeln!(out, "{:indent$}{line}", ""))
}

/// Lines that all begin in the same place.
fn indented(out: &mut String, indent: usize, style: Style, text: &str) -> fmt::Result {
    let mut lines = wrap(text, WIDTH - indent).into_iter();
    lines.try_for_each(|line| writeln!(out, "{:indent$}{style}{line}{style:#}", ""))
}

/// The next step after the verdict.
fn next(report: &Report) -> &'static str {
    let caps_some = report
        .devices
        .iter()
        .any(|it| it.identity.kind == DeviceKind::Gpu && it.is_usable());
    match (caps_some, report.root) {
        (true, _) if report.daemon.running => "`litctl status` shows what litd does with them",
        (true, _) => {
            "`systemctl start litd` lets litd watch them; it writes no cap before its configuration says so"
        }
        (false, false) => "run it again as root (sudo): others don't see all of the node",
        (false, true) => {
            "if the node has GPUs, remove the causes above, and run `litctl doctor` again; `litlab demo` shows litd on stand-ins"
        }
    }
}

fn verdict(report: &Report) -> String {
    let gpus = report
        .devices
        .iter()
        .filter(|it| it.identity.kind == DeviceKind::Gpu);
    let (all, usable) = gpus.fold((0, 0), |(all, usable), it| {
        (all + 1, usable + usize::from(it.is_usable()))
    });
    match (all, usable) {
        (0, _)
            if report
                .notices
                .iter()
                .any(|it| it.severity == Severity::Error) =>
        {
            "litd can cap no GPU here; see above why".to_owned()
        }
        (0, _) => "litd can cap no GPU here: it found none".to_owned(),
        (_, 0) => format!("litd can cap none of the {all} GPUs here"),
        (1, 1) if report.exit_status == 0 => "litd can cap the GPU that is here".to_owned(),
        _ if report.exit_status == 0 => format!("litd can cap all {all} GPUs"),
        (all, usable) if all == usable => {
            let gpus = match all {
                1 => "the GPU that is here".to_owned(),
                _ => format!("all {all} GPUs"),
            };
            format!("litd can cap {gpus}; a device or an error above needs attention first")
        }
        _ => format!("litd can cap {usable} of {all} GPUs; see above for the rest"),
    }
}

fn devices(out: &mut String, title: &str, report: &Report, kind: DeviceKind) -> fmt::Result {
    let of_kind = |it: &&Examined| it.identity.kind == kind;
    let mut devices = report.devices.iter().filter(of_kind).peekable();
    if devices.peek().is_none() {
        return writeln!(out, "{HEAD}{title}{HEAD:#}: none");
    }
    writeln!(out, "{HEAD}{title}{HEAD:#}")?;
    for it in devices {
        let identity = &it.identity;
        let about = format!(
            "{} (back end {}, {})",
            identity.model, identity.backend, identity.driver
        );
        hanging(out, &format!("  {:<13} ", identity.address), FACTS, &about)?;
        if let Some(facts) = facts(it) {
            indented(out, FACTS, PLAIN, &facts)?;
        }
        for trouble in &it.trouble {
            indented(out, FACTS, WARNING, trouble)?;
        }
    }
    Ok(())
}

fn facts(it: &Examined) -> Option<String> {
    let range = it.range?;
    let watts = |power: Option<Watts>| or_dash(power, |power| format!("{power:.0}"));
    Some(format!(
        "cap {}, may be {:.0} to {:.0}, default {:.0}; draws {}",
        watts(it.reading.map(|reading| reading.cap)),
        range.lowest,
        range.highest,
        range.default,
        watts(it.reading.and_then(|reading| reading.power)),
    ))
}

fn ways(out: &mut String, report: &Report) -> fmt::Result {
    writeln!(
        out,
        "{HEAD}Ways to measure jobs{HEAD:#}, the best one first"
    )?;
    for way in &report.ways {
        let state = match way.state {
            State::Usable => "",
            State::Off => " (off)",
            State::Blocked => " (blocked)",
        };
        let text = format!("{}{state}: {}", way.name.words(), way.text);
        hanging(out, "  ", WAY, &text)?;
    }
    Ok(())
}

fn profilers(out: &mut String, report: &Report) -> fmt::Result {
    if report.profilers_off.is_empty() {
        return Ok(());
    }
    let instead = "hooks time modules instead. To try them again, boot the node and run \
                   `litctl forget` before jobs start";
    item(out, "Profilers that are off", instead)?;
    for off in &report.profilers_off {
        writeln!(out, "  {WARNING}{}{WARNING:#}", off.software)?;
        if !off.is_for_all() {
            let whose = format!("in jobs of {} only", off.whose());
            indented(out, FACTS, PLAIN, &whose)?;
        }
        let reason = match off.words() {
            (Some(teller), reason) => format!("{teller} says: {reason}"),
            (None, reason) => reason,
        };
        indented(out, FACTS, PLAIN, &reason)?;
    }
    Ok(())
}

fn notices(out: &mut String, report: &Report) -> fmt::Result {
    if report.notices.is_empty() {
        return Ok(());
    }
    writeln!(out, "{HEAD}Noticed{HEAD:#}")?;
    for notice in &report.notices {
        let word = match notice.severity {
            Severity::Info => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        let style = match notice.severity {
            Severity::Info => PLAIN,
            _ => WARNING,
        };
        let text = format!("{}: {}", notice.subject, notice.text);
        hanging(out, &format!("  {style}{word}{style:#}: "), NOTICE, &text)?;
        if let Some(remedy) = &notice.remedy {
            indented(out, NOTICE, PLAIN, remedy)?;
        }
    }
    Ok(())
}
