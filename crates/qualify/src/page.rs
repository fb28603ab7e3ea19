//! docs/qualified.md: a table of reports, one line for each model behind each back end and driver.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::report::{Device, Report, Topic, Verdict};

/// The line before the table in docs/qualified.md; what follows is made.
pub const MARK: &str = "<!-- The table is made from tests/qualified/*.json: LITD_QUALIFIED=write cargo test -p litd-qualify --test page -->";

/// The table.
#[must_use]
pub fn table(reports: &[(String, Report)]) -> String {
    let mut out = String::from(
        "| Model | Back end | Driver | Kernel | Devices | Lower cap | Power follows | Energy | Clocks | Report |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (file, report) in reports {
        let mut kinds: BTreeMap<[&str; 3], Vec<&Device>> = BTreeMap::new();
        for device in &report.devices {
            let part = &device.part;
            let kind = [part.model.as_str(), &part.backend, &part.driver];
            kinds.entry(kind).or_default().push(device);
        }
        let simulated = if report.simulated { "SIMULATED " } else { "" };
        for ([model, backend, driver], devices) in kinds {
            let cells = [Topic::Lower, Topic::Power, Topic::Energy, Topic::Clocks];
            let cells = cells.map(|topic| cell(&devices, topic));
            let kernel = &report.kernel;
            let _ = writeln!(
                out,
                "| {simulated}{} | {} | {} | {} | {} | {} | [{file}](../tests/qualified/{file}) |",
                safe(model),
                safe(backend),
                safe(driver),
                safe(kernel),
                devices.len(),
                cells.join(" | ")
            );
        }
    }
    out
}

/// Text without the signs that end a cell or begin markup.
fn safe(text: &str) -> String {
    let harmless = |it: &char| it.is_ascii_alphanumeric() || " .,:;+-_/()@".contains(*it);
    text.chars().filter(harmless).collect()
}

/// The worst that any device shows; a check that is not there was not made.
fn cell(devices: &[&Device], topic: Topic) -> String {
    let order = [
        Verdict::Failed,
        Verdict::NotTried,
        Verdict::NotShown,
        Verdict::Shown,
    ];
    let verdicts: Vec<Verdict> = devices
        .iter()
        .map(|device| {
            let check = device.checks.iter().find(|it| it.topic == topic);
            check.map_or(Verdict::NotTried, |it| it.verdict)
        })
        .collect();
    let worst = order.into_iter().find(|it| verdicts.contains(it));
    worst.map_or("", Verdict::words).to_owned()
}
