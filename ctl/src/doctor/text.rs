//! The report for people.

use std::fmt::{self, Write};

use litd_power::{DeviceKind, Severity};
use litd_units::Watts;

use super::Report;
use super::devices::Examined;
use crate::show::{HEAD, SIMULATED, WARNING, or_dash};

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
    writeln!(out, "{HEAD}Daemon{HEAD:#}: {}", report.daemon.text)?;
    devices(out, "GPUs", report, DeviceKind::Gpu)?;
    devices(out, "CPU sockets", report, DeviceKind::Cpu)?;
    notices(out, report)?;
    profilers(out, report)?;
    writeln!(out, "{HEAD}Verdict{HEAD:#}: {}", verdict(report))?;
    writeln!(out, "{HEAD}Next{HEAD:#}: {}", next(report))
}

/// What to do with the verdict.
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
            "mend what is marked above, if the node has GPUs, and run it again; `litlab demo` shows litd on stand-ins"
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
        writeln!(
            out,
            "  {:<13} {} (back end {}, {})",
            identity.address, identity.model, identity.backend, identity.driver
        )?;
        if let Some(facts) = facts(it) {
            writeln!(out, "{:16}{facts}", "")?;
        }
        for trouble in &it.trouble {
            writeln!(out, "{:16}{WARNING}{trouble}{WARNING:#}", "")?;
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

fn profilers(out: &mut String, report: &Report) -> fmt::Result {
    if report.profilers_off.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "{HEAD}Profilers that are off{HEAD:#}: hooks time modules instead; `litctl forget` has them tried again"
    )?;
    for off in &report.profilers_off {
        writeln!(out, "  {WARNING}{}{WARNING:#}", off.software)?;
        if !off.is_for_all() {
            writeln!(out, "{:16}in jobs of {} only", "", off.whose())?;
        }
        writeln!(out, "{:16}{}", "", off.reason)?;
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
            Severity::Info => anstyle::Style::new(),
            _ => WARNING,
        };
        writeln!(
            out,
            "  {style}{word}{style:#}: {}: {}",
            notice.subject, notice.text
        )?;
        if let Some(remedy) = &notice.remedy {
            writeln!(out, "{:11}{remedy}", "")?;
        }
    }
    Ok(())
}
