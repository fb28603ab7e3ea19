//! Jobs of which the truth is known, because it was made: that the first screen tells it.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::run::litctl;
use super::{analyze, report};

fn said(report: &Value, key: &str) -> String {
    report["verdict"][key].as_str().unwrap().to_owned()
}

fn in_a_line(paths: &[&Path]) -> String {
    let text = String::from_utf8(analyze(&[], paths).stdout).unwrap();
    Vec::from_iter(text.split_whitespace()).join(" ")
}

#[test]
fn a_pipeline_whose_stages_wait_for_half_of_the_time_is_not_headed_healthy() {
    let folder = TempDir::new().unwrap();
    let traces = folder.path().to_str().unwrap();
    let speeds = ["1"; 16].join(",");
    let job = ["simulate", "--parallel", "pp8dp2", "--write-kineto", traces];
    litctl(&[&job[..], &["--speeds", &speeds]].concat());
    let report = report(&[], &[folder.path()]);
    let ranks = report["ranks"].as_array().unwrap().iter();
    let waits = ranks.map(|rank| rank["stage_wait_fraction"].as_f64().unwrap());
    let most = waits.fold(0.0, f64::max);
    assert!(most > 0.3, "{most}");
    let text = said(&report, "text");
    let told = format!(
        "Stages wait for each other, for up to {:.1} % of the time recorded; within its stage no rank holds the others back.",
        100.0 * most
    );
    assert!(text.starts_with(&told), "{text}");
    assert!(!text.contains("Healthy"), "{text}");
    // Of one stage it says what it did.
    assert!(in_a_line(&[folder.path()]).contains("Healthy: no rank holds the others back"));
}
