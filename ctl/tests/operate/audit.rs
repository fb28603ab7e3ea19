//! litctl audit on logs that were written here.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use litd_api::audit::{Ending, Entry, Intent, Outcome, Record};
use litd_units::Watts;

use crate::LITCTL;

fn record(seq: u64, entry: Entry) -> Record {
    Record {
        seq,
        unix_seconds: 1_790_000_000.0 + seq as f64,
        boot_seconds: None,
        entry,
    }
}

fn write(seq: u64, gpu: u32, watts: f64, job: Option<&str>) -> [Record; 2] {
    let (device, name) = (format!("0000:0{gpu}:00.0"), format!("gpu{gpu}"));
    let intent = Intent {
        device: device.clone(),
        name: name.clone(),
        actor: job.map_or("uid 1000", |_| "litd").to_owned(),
        reason: "gpu3 waits".to_owned(),
        job: job.map(str::to_owned),
        sample: job.map(|_| 12),
        old_watts: Some(Watts(750.0)),
        new_watts: Watts(watts),
        found_watts: Some(Watts(700.0)),
    };
    let outcome = Outcome {
        intent: seq,
        device,
        name,
        result: Ending::Confirmed,
        read_back_watts: Some(Watts(watts)),
        error: None,
    };
    [
        record(seq, Entry::Intent(intent)),
        record(seq + 1, Entry::Outcome(outcome)),
    ]
}

fn log(path: &Path, records: &[Record]) {
    let mut bytes = Vec::new();
    for record in records {
        record.encode(&mut bytes).unwrap();
    }
    fs::write(path, bytes).unwrap();
}

fn audit(directory: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(LITCTL);
    command.arg("audit").arg("--directory").arg(directory);
    command.args(args).env("TZ", "UTC").output().unwrap()
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

/// Two files: the older has one write by litd, the younger one by hand and one that failed.
fn sample(directory: &Path) {
    log(
        &directory.join("audit.jsonl.1"),
        &write(1, 3, 741.0, Some("train")),
    );
    let mut younger = write(3, 5, 600.0, None).to_vec();
    let [intent, mut failed] = write(5, 3, 735.0, Some("train"));
    if let Entry::Outcome(outcome) = &mut failed.entry {
        outcome.result = Ending::Failed;
        outcome.read_back_watts = None;
        outcome.error = Some("the driver refuses".to_owned());
    }
    younger.extend([intent, failed]);
    let enforced = Entry::Enforced {
        intent: 3,
        device: "0000:05:00.0".to_owned(),
        name: "gpu5".to_owned(),
        enforced_watts: Watts(550.0),
    };
    younger.push(record(7, enforced));
    log(&directory.join("audit.jsonl"), &younger);
}

#[test]
fn each_write_is_one_line_with_all_that_is_known_of_it() {
    let place = tempfile::tempdir().unwrap();
    sample(place.path());
    let output = audit(place.path(), &[]);
    let (out, err) = texts(&output);
    assert!(output.status.success() && err.is_empty(), "{err}");
    let expected = "\
2026-09-21 14:13:21  gpu3  750 W -> 741 W    holds 741 W  litd for train (sample 12): gpu3 waits
2026-09-21 14:13:23  gpu5  750 W -> 600 W    holds 600 W, 550 W in force  uid 1000: gpu3 waits
2026-09-21 14:13:25  gpu3  750 W -> 735 W    FAILED: the driver refuses  litd for train (sample 12): gpu3 waits
";
    assert_eq!(out, expected);
}

#[test]
fn filters_keep_what_they_name() {
    let place = tempfile::tempdir().unwrap();
    sample(place.path());
    let lines = |args: &[&str]| texts(&audit(place.path(), args)).0.lines().count();
    for (args, count) in [
        (&["--device", "gpu3"][..], 2),
        (&["--device", "0000:05:00.0"], 1),
        (&["--job", "train"], 2),
        (&["--actor", "uid 1000"], 1),
        (&["--failed"], 1),
        (&["--device", "gpu3", "--failed"], 1),
        (&["-n", "2"], 2),
        (&["--since", "2026-09-21 14:13:23"], 2),
        (&["--since", "2099-01-01"], 0),
    ] {
        assert_eq!(lines(args), count, "{args:?}");
    }
    // Records of the writes that are meant, as they are in the log.
    let (out, _) = texts(&audit(place.path(), &["--json", "--device", "gpu5"]));
    let records: Vec<Record> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let numbers: Vec<u64> = records.iter().map(|record| record.seq).collect();
    assert_eq!(numbers, [3, 4, 7]);
}

#[test]
fn damage_is_told_and_the_rest_is_read() {
    let place = tempfile::tempdir().unwrap();
    sample(place.path());
    let path = place.path().join("audit.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    // A record is altered, another is gone, a third is half there.
    let altered = lines[0].replace("600", "700");
    let torn = &lines[4][..30];
    fs::write(&path, [&altered, lines[1], lines[3], torn, "\n"].join("\n")).unwrap();
    let (out, err) = texts(&audit(place.path(), &[]));
    assert_eq!(out.lines().count(), 2, "{out}");
    assert!(out.contains("750 W -> 700 W    holds 600 W, ") || out.contains("[ALTERED]"));
    for damage in [
        "a record was altered after it was written",
        "1 record missing",
        "a line is no record",
    ] {
        assert!(err.contains(damage), "{damage}: {err}");
    }
    let (out, _) = texts(&audit(place.path(), &["--json"]));
    assert!(out.contains("\"altered\":true"), "{out}");
}

#[test]
fn without_a_log_it_says_where_it_looked() {
    let place = tempfile::tempdir().unwrap();
    let output = audit(&place.path().join("nope"), &[]);
    let (_, err) = texts(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err.contains("nope: ") && err.contains("--directory"),
        "{err}"
    );
    // An empty one is no error.
    let output = audit(place.path(), &[]);
    assert!(output.status.success());
}
