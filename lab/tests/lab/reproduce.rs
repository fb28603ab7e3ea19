//! `litlab reproduce`: a paper's numbers beside ours.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::LITLAB;

fn items(args: &[&str]) -> Vec<Value> {
    of_paper("energylens", args)
}

fn of_paper(paper: &str, args: &[&str]) -> Vec<Value> {
    let mut command = Command::new(LITLAB);
    let output = command
        .args(["--json", "reproduce", paper])
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

/// docs/reproduce/perseus.md and its pictures are what the command writes, to the byte; the rows of fits
/// need the artifact's facts.
#[test]
fn the_page_on_perseus_is_what_the_command_writes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let artifact = root.join("../shared/planner/kareus-artifact");
    let (made, page) = (tempfile::tempdir().unwrap(), root.join("docs/reproduce"));
    let has_artifact = artifact.is_dir();
    let facts = has_artifact.then_some(["--artifact".as_ref(), artifact.as_os_str()]);
    let output = Command::new(LITLAB)
        .args(["--json", "reproduce", "perseus", "--out"])
        .arg(made.path())
        .args(facts.into_iter().flatten())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let items: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    for it in &items {
        let (ours, note) = (&it["ours"], it["note"].as_str().unwrap());
        assert_eq!(ours.is_null(), note.starts_with("can't compare: "), "{it}");
        assert!(!note.is_empty(), "{it}");
    }
    // Every table and figure of the paper is there.
    let named: BTreeSet<&str> = items.iter().filter_map(|it| it["item"].as_str()).collect();
    let has = |name: &str| {
        named
            .iter()
            .any(|it| it.trim_end_matches(['a', 'b', 'c']) == name)
    };
    for number in 1..=13 {
        assert!(has(&format!("figure-{number}")), "figure {number}");
        assert!(
            number > 7 || has(&format!("table-{number}")),
            "table {number}"
        );
    }
    if !has_artifact {
        eprintln!(
            "SKIPPED: the rows of fits; {} is not there",
            artifact.display()
        );
    }
    same_files(made.path(), &page, "perseus", |line| {
        has_artifact || !line.starts_with("| fit-a100-sxm")
    });
}

/// The files of a paper, by name.
fn files(folder: &Path, paper: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
    names.filter(|it| it.starts_with(paper)).collect()
}

/// A paper's page and pictures in two folders, line by line where lines are compared.
fn same_files(made: &Path, page: &Path, paper: &str, is_compared: impl Fn(&str) -> bool) {
    assert_eq!(files(made, paper), files(page, paper));
    for file in files(page, paper) {
        let read = |folder: &Path| -> Vec<String> {
            let text = std::fs::read_to_string(folder.join(&file)).unwrap();
            let lines = text.lines().filter(|it| is_compared(it));
            lines.map(str::to_owned).collect()
        };
        let (made, page) = (read(made), read(page));
        let differs = made.iter().zip(&page).find(|(made, page)| made != page);
        assert_eq!(
            (differs, made.len()),
            (None, page.len()),
            "{file}: write it again, as its first lines say"
        );
    }
}

/// The rows of a page that begin with an item's name.
fn rows<'a>(page: &'a str, item: &str) -> Vec<Vec<&'a str>> {
    let start = format!("| {item}");
    let own = page.lines().filter(|it| it.starts_with(&start));
    own.map(|it| it.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

/// docs/reproduce/lit-silicon.md has the rows that the command prints. Those of section III, of Figure 11 and all
/// without a number are compared always, which takes seconds; with LITD_REPRODUCE=1 everything is, to the byte.
#[test]
fn the_page_on_lit_silicon_is_what_the_command_writes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reproduce");
    let page = std::fs::read_to_string(folder.join("lit-silicon.md")).unwrap();
    for what in [
        "figure-3",
        "figure-4",
        "figure-5",
        "figure-7",
        "figure-11",
        "table-1",
        "table-2",
    ] {
        let printed = of_paper("lit-silicon", &["--what", what]);
        let rows = rows(&page, what);
        assert!(!printed.is_empty());
        assert_eq!(printed.len(), rows.len(), "{what}");
        for (it, row) in printed.iter().zip(rows) {
            let number = |key: &str| {
                it[key]
                    .as_f64()
                    .map_or_else(|| "-".to_owned(), |it| format!("{it:.2}"))
            };
            let text = |key: &str| it[key].as_str().unwrap().to_owned();
            let wanted = [
                text("item"),
                text("what"),
                number("theirs"),
                number("ours"),
                number("difference"),
                text("unit"),
                text("note"),
            ];
            assert_eq!(row, wanted, "write it again, as its first lines say");
        }
    }
    if std::env::var_os("LITD_REPRODUCE").is_some() {
        let made = tempfile::tempdir().unwrap();
        let output = Command::new(LITLAB)
            .args(["--json", "reproduce", "lit-silicon", "--out"])
            .arg(made.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        same_files(made.path(), &folder, "lit-silicon", |_| true);
    }
}

/// Every table and figure of Lit Silicon has a row with a number or a reason, every picture is shown, and each
/// that the paper draws of measurements is drawn.
#[test]
fn nothing_of_lit_silicon_is_left_out() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reproduce");
    let page = std::fs::read_to_string(folder.join("lit-silicon.md")).unwrap();
    let named = (1..=15)
        .map(|number| format!("figure-{number}"))
        .chain((1..=3).map(|number| format!("table-{number}")))
        .chain(["section-8a".to_owned()]);
    for item in named {
        let own: Vec<Vec<&str>> = rows(&page, &item)
            .into_iter()
            .filter(|row| row[0].trim_end_matches(['a', 'b']) == item.trim_end_matches('a'))
            .collect();
        assert!(!own.is_empty(), "{item}");
        for row in own {
            let has_reason = row[6].starts_with("can't compare: ");
            assert_eq!(row[3] == "-", has_reason, "{row:?}");
            assert!(!row[6].is_empty(), "{row:?}");
        }
    }
    let pictures: BTreeSet<String> = files(&folder, "lit-silicon-")
        .into_iter()
        .filter(|it| it.ends_with(".svg"))
        .collect();
    let shown = page.lines().filter_map(|it| it.rsplit_once("]("));
    let shown: BTreeSet<String> = shown
        .map(|(_, file)| file.trim_end_matches(')').to_owned())
        .collect();
    assert_eq!(pictures, shown);
    for figure in [
        "3a", "3b", "5", "7", "9", "10", "11", "12", "13", "14", "15",
    ] {
        let start = format!("lit-silicon-figure-{figure}");
        assert!(shown.iter().any(|it| it.starts_with(&start)), "{figure}");
    }
}

/// Of Table 3 to 6 what the paper says beyond numbers; the one that ours contradict is named.
#[test]
fn trends_are_named_where_they_differ() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reproduce/perseus.md");
    let text = std::fs::read_to_string(page).unwrap();
    let (_, trends) = text.split_once("## Trends").unwrap();
    let (trends, _) = trends.split_once("## Numbers").unwrap();
    let differing: Vec<&str> = trends
        .lines()
        .filter(|it| it.contains("**differs**"))
        .collect();
    assert_eq!(differing.len(), 1, "{differing:?}");
    assert!(
        differing[0].contains("A100 saves more than A40"),
        "{differing:?}"
    );
    assert!(
        trends
            .lines()
            .filter(|it| it.contains("| the same |"))
            .count()
            >= 12
    );
}

#[test]
fn the_emulation_is_table_six() {
    let output = Command::new(LITLAB)
        .args(["--json", "plan", "emulate"])
        .output()
        .unwrap();
    let items: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let gpt = |microbatches: &str| {
        ours(
            &items,
            "table-6",
            &format!("GPT-3 175B, A100, {microbatches} micro"),
        )
    };
    let bloom = |microbatches: &str| {
        ours(
            &items,
            "table-6",
            &format!("Bloom 176B, A100, {microbatches} micro"),
        )
    };
    // Bloom's last stage is the shortest: only one in eight is slowed, and it saves less.
    for microbatches in ["12", "24", "48", "96"] {
        assert!(bloom(microbatches) < gpt(microbatches));
    }
    assert!(bloom("12") > bloom("96") && gpt("12") > gpt("96"));
    assert!(
        items
            .iter()
            .any(|it| it["item"] == "table-5" && it["difference"] == 0.0)
    );
}
