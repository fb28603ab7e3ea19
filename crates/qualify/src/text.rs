//! The report for people: short, a block for each device.

use std::fmt::Write as _;

use litd_units::{Hertz, Watts, count};

use crate::report::{Device, Outcome, Report, Topic, Write, Written};

/// The whole report.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    if report.simulated {
        out.push_str("SIMULATED devices: this says nothing about hardware.\n");
    }
    let board = report.board.as_deref().unwrap_or("board unknown");
    let _ = writeln!(
        out,
        "litd {} on {board}, kernel {}: {}, {:.0} s.",
        report.litd,
        report.kernel,
        summary(report),
        report.seconds.0
    );
    for reason in &report.reasons {
        let _ = writeln!(out, "  {reason}");
    }
    for device in &report.devices {
        out.push('\n');
        self::device(&mut out, device);
    }
    if !report.writes.is_empty() {
        let _ = writeln!(out, "\nEvery write ({}):", report.writes.len());
        for write in &report.writes {
            let _ = writeln!(out, "  {}", line(write));
        }
    }
    out
}

/// How a run ended, in a few words.
#[must_use]
pub fn summary(report: &Report) -> String {
    let devices = &report.devices;
    let failed: Vec<&str> = devices
        .iter()
        .filter(|it| it.failed())
        .map(|it| it.part.name.as_str())
        .collect();
    let good = devices.iter().filter(|it| it.is_qualified()).count();
    let of = count(devices.len(), "device");
    match report.outcome {
        Outcome::Planned => format!("dry run, nothing was written to {of}"),
        Outcome::Qualified => format!("{good} of {of} qualified, caps are as they were found"),
        Outcome::Refused => "refused, nothing was written".to_owned(),
        Outcome::Failed => format!("{} FAILED of {of}", failed.join(", ")),
        Outcome::Stopped => "stopped before its end, caps are as they were found".to_owned(),
        Outcome::Owed => "A CAP MAY NOT BE AS IT WAS FOUND".to_owned(),
    }
}

fn device(out: &mut String, device: &Device) {
    let part = &device.part;
    let _ = write!(
        out,
        "{}  {}  {}  ({}, {}",
        part.name, part.address, part.model, part.backend, part.driver
    );
    if let Some(firmware) = &part.firmware {
        let _ = write!(out, ", firmware {firmware}");
    }
    out.push_str(")\n");
    if let (Some(range), Some(found)) = (device.range, device.found) {
        let _ = writeln!(
            out,
            "  cap {found}, may be {} to {}, default {}, unit {}",
            range.lowest, range.highest, range.default, range.resolution
        );
    }
    let width = |topic: Topic| topic.words().len();
    let width = device.checks.iter().map(|it| width(it.topic)).max();
    for check in &device.checks {
        let (topic, verdict) = (check.topic.words(), check.verdict.words());
        let width = width.unwrap_or_default();
        let _ = writeln!(out, "  {verdict:9}  {topic:width$}  {}", check.text);
    }
}

fn line(write: &Write) -> String {
    let what = match write.set {
        Written::Cap(Watts(watts)) => format!("cap {watts} W"),
        Written::Clock(Hertz(hertz)) => format!("clock {:.0} MHz", hertz / 1e6),
        Written::FreeClocks => "clocks unlocked".to_owned(),
    };
    let took = match write.took {
        Some(took) => format!("{:.1} ms", took.0 * 1e3),
        None => "no answer".to_owned(),
    };
    let held = write.held.map(|held| format!(", holds {held}"));
    let error = write.error.as_ref().map(|error| format!(", {error}"));
    format!(
        "{:8.3} s  {}  {what}: {took}{}{}",
        write.at.0,
        write.device,
        held.unwrap_or_default(),
        error.unwrap_or_default()
    )
}
