//! The reports in tests/qualified are of this schema and name nobody, and the table in docs/qualified.md is theirs.
//!
//! `LITD_QUALIFIED=write` writes the table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

use litd_qualify::page::{MARK, table};
use litd_qualify::report::{Outcome, Report, SCHEMA, Written};
use litd_units::Watts;

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The reports, by file name.
fn reports() -> Vec<(String, Report)> {
    let mut reports = Vec::new();
    for entry in fs::read_dir(top().join("tests/qualified")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(name.ends_with(".json"), "{name}: only reports lie here");
        let harmless = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
        assert!(name.chars().all(harmless), "{name}");
        let text = fs::read_to_string(&path).unwrap();
        let report = serde_json::from_str(&text);
        reports.push((
            name.clone(),
            report.unwrap_or_else(|error| panic!("{name}: {error}")),
        ));
    }
    reports.sort_by(|(one, _), (other, _)| one.cmp(other));
    reports
}

#[test]
fn reports_are_whole_and_name_nobody() {
    let reports = reports();
    assert!(!reports.is_empty());
    for (name, report) in &reports {
        assert_eq!(report.schema, SCHEMA, "{name}");
        // A run that was refused or planned shows nothing; one that left caps changed is for an issue.
        let shows = [Outcome::Qualified, Outcome::Failed, Outcome::Stopped];
        assert!(
            shows.contains(&report.outcome),
            "{name}: {:?}",
            report.outcome
        );
        assert!(!report.devices.is_empty(), "{name}");
        assert_eq!(name.starts_with("stand-in-"), report.simulated, "{name}");
        let text = fs::read_to_string(top().join("tests/qualified").join(name)).unwrap();
        for word in ["serial\"", "uuid", "hostname"] {
            assert!(!text.contains(word), "{name} has {word}");
        }
        for write in &report.writes {
            let mut devices = report.devices.iter();
            let device = devices.find(|it| it.part.name == write.device);
            let found = device.and_then(|it| it.found).unwrap_or(Watts::ZERO);
            if let Written::Cap(cap) = write.set {
                assert!(cap <= found, "{name}: {write:?}, found {found}");
            }
        }
    }
}

#[test]
fn the_page_has_the_table_of_the_reports() {
    let path = top().join("docs/qualified.md");
    let page = fs::read_to_string(&path).unwrap();
    let (text, shown) = page.split_once(MARK).expect("the mark before the table");
    let table = table(&reports());
    if std::env::var("LITD_QUALIFIED").as_deref() == Ok("write") {
        fs::write(&path, format!("{text}{MARK}\n\n{table}")).unwrap();
        return;
    }
    assert_eq!(
        shown.trim(),
        table.trim(),
        "see the line above the table for how it is made"
    );
    let real = reports().iter().filter(|(_, it)| !it.simulated).count();
    let says = text.contains("no report of real hardware");
    assert_eq!(
        says,
        real == 0,
        "the page says whether there is a report of hardware"
    );
}
