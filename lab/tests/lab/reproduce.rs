//! `litlab reproduce`: a paper's numbers beside ours.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::LITLAB;

fn items(args: &[&str]) -> Vec<Value> {
    let mut command = Command::new(LITLAB);
    let output = command
        .args(["--json", "reproduce", "energylens"])
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn ours(items: &[Value], item: &str, what: &str) -> f64 {
    let has =
        |it: &&Value| it["item"] == item && it["what"].as_str().is_some_and(|it| it.contains(what));
    items.iter().find(has).unwrap()["ours"].as_f64().unwrap()
}

/// The paper's key insights come out, and what can't be compared says why.
#[test]
fn the_papers_insights_come_out() {
    let items = items(&[]);
    for it in &items {
        let (ours, note) = (&it["ours"], it["note"].as_str().unwrap());
        assert_eq!(ours.is_null(), note.starts_with("can't compare: "), "{it}");
    }
    // Insight 1: lower TP and smaller batches prefill with less energy, and still sooner.
    assert!(ours(&items, "figure-7a", "B4 TP2 saves") > 10.0);
    assert!(ours(&items, "figure-5a", "all-reduce's share") > 10.0);
    // Insight 2: larger batches cut the energy per token by an order of magnitude.
    assert!(ours(&items, "figure-7b", "batch 16 saves") > 90.0);
    // Fusing saves energy, and more in decode.
    let (prefill, decode) = (
        ours(&items, "figure-16a", "fusing"),
        ours(&items, "figure-16b", "fusing"),
    );
    assert!(prefill > 0.0 && decode > prefill, "{prefill} {decode}");
}

/// Section 5.2: the predicted front recovers more of the SIMULATED one than the most overlap does.
#[test]
fn the_predicted_front_recovers_more_than_maximum_overlap() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/energylens");
    if !folder.exists() {
        eprintln!("SKIPPED: {} is not there", folder.display());
        return;
    }
    let items = items(&[
        "--tables",
        folder.to_str().unwrap(),
        "--what",
        "section-5.2",
    ]);
    let (front, most) = (
        ours(&items, "section-5.2", "front"),
        ours(&items, "section-5.2", "maximum overlap"),
    );
    assert!(front >= 69.0 && most < front, "{front} {most}");
    assert!(
        items
            .iter()
            .all(|it| it["note"].as_str().unwrap().starts_with("SIMULATED"))
    );
}

#[test]
fn text_says_that_it_is_simulated() {
    let output = Command::new(LITLAB)
        .args(["reproduce", "energylens", "--what", "figure-9"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("SIMULATED: "), "{text}");
    assert!(text.contains("theirs 60.00"), "{text}");
    let none = Command::new(LITLAB)
        .args(["reproduce", "energylens", "--what", "figure-99"])
        .output()
        .unwrap();
    assert_eq!(none.status.code(), Some(2));
}
