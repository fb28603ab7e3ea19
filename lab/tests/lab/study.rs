//! `litlab study` as a whole process: tables, CSV and pictures of both laws.

use std::fs;

use serde_json::Value;

use crate::{litlab, output};

#[test]
fn every_part_leaves_a_table_numbers_and_pictures_that_say_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let out = out.to_str().unwrap();
    for part in [&["levelling", "--node", "a100"][..], &["knobs"]] {
        let said = litlab(&[&["study", "--seeds", "1", "--out", out, "--part"], part].concat());
        assert!(said.contains("SIMULATED"), "{said}");
        for law in ["paper", "model"] {
            assert!(said.contains(&format!("| {law} |")), "{said}");
        }
    }
    let mut pictures = Vec::new();
    for file in fs::read_dir(out).unwrap() {
        let file = file.unwrap().path();
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("SIMULATED"), "{}", file.display());
        if file.extension().is_some_and(|it| it == "svg") {
            assert!(text.contains("paper law") && text.contains("model law"));
            let shapes = text.matches("<polyline").count() + text.matches("<rect").count();
            assert!(shapes > 4, "{}: {shapes} shapes", file.display());
            pictures.push(file.file_stem().unwrap().to_str().unwrap().to_owned());
        }
    }
    for policy in ["gpu-red", "gpu-realloc", "cpu-slosh"] {
        for quantity in ["throughput", "power"] {
            assert!(pictures.contains(&format!("levelling-a100-{policy}-{quantity}")));
        }
        assert!(pictures.contains(&format!("knobs-{policy}")));
    }
}

#[test]
fn mistakes_are_answered_with_what_there_is() {
    let unknown = output(&["study", "--part", "levelling", "--node", "nowhere"]);
    assert!(!unknown.status.success());
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert!(
        said.contains("nowhere") && said.contains("default"),
        "{said}"
    );
    let none = output(&["study", "--seeds", "0"]);
    assert!(!none.status.success());
}

/// `litlab study --part family` with these besides, into a folder.
fn family(out: &str, args: &[&str]) -> Vec<String> {
    let common = ["study", "--part", "family", "--out", out];
    let all = common.iter().chain(args);
    all.map(|it| (*it).to_owned()).collect()
}

#[test]
fn the_family_has_tables_csv_and_json_and_a_draw_is_its_row() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let some = ["--policy", "gpu-realloc", "--law", "model"];
    let few = [&some[..], &["--draws", "2", "--node", "lit-silicon"]].concat();
    let args = family(out, &few);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let text = litlab(&args);
    assert!(
        text.contains("SIMULATED") && text.contains("### The paper's node and the simulator's")
    );
    for line in text.lines().filter(|it| it.starts_with("gpu-realloc")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let csv = fs::read_to_string(folder.path().join("family.csv")).unwrap();
    let columns = |line: &str| line.split(',').count();
    let head = csv.lines().next().unwrap();
    assert!(csv.lines().all(|line| line.starts_with("SIMULATED")));
    // One corner and two draws, under the law and the optimum; words come last.
    assert_eq!(csv.lines().count(), 1 + 3 * 2);
    assert!(csv.lines().all(|line| columns(line) >= columns(head)));

    let json: Value = serde_json::from_str(&litlab(&[&args[..], &["--json"]].concat())).unwrap();
    assert_eq!(json["simulated"], true);
    assert_eq!(
        (&json["draws"], &json["seed"]),
        (&Value::from(2), &Value::from(0))
    );
    let summaries = json["summaries"].as_array().unwrap();
    let laws: Vec<&str> = summaries
        .iter()
        .map(|it| it["law"].as_str().unwrap())
        .collect();
    assert_eq!(laws, ["model", "optimum"]);
    for it in summaries {
        for key in [
            "gain",
            "regret",
            "longer",
            "slowest",
            "energy",
            "energy_time",
            "adjustments",
        ] {
            let spread = &it[key];
            let of = |part: &str| spread[part].as_f64().unwrap();
            assert!(
                of("median") <= of("p95") && of("p95") <= of("worst"),
                "{key}: {spread}"
            );
        }
        let value = &it["value"];
        assert!(value["low"].as_f64() <= value["high"].as_f64(), "{value}");
        for key in [
            "nodes",
            "observed",
            "near",
            "slower",
            "costlier",
            "worse_off",
        ] {
            assert!(it[key].as_u64().unwrap() <= 2, "{key}");
        }
        let trials = it["trials"].as_object().unwrap().values();
        assert_eq!(trials.map(|it| it.as_u64().unwrap()).sum::<u64>(), 2);
    }
    assert_eq!(json["nodes"][0]["node"], "lit-silicon");

    let args = family(out, &[&some[..], &["--draw", "1", "--json"]].concat());
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let one: Value = serde_json::from_str(&litlab(&args)).unwrap();
    let row = &one["nodes"][0];
    let of_csv = csv
        .lines()
        .find(|line| line.starts_with("SIMULATED,1,") && line.contains("model"));
    let of_csv: Vec<&str> = of_csv.unwrap().split(',').collect();
    let at = |name: &str| of_csv[head.split(',').position(|it| it == name).unwrap()];
    for key in [
        "gain",
        "regret",
        "longer",
        "slowest",
        "energy_time",
        "value",
    ] {
        assert_eq!(
            format!("{:.7}", row[key].as_f64().unwrap()),
            at(key),
            "{key}"
        );
    }
    assert_eq!(row["adjustments"].to_string(), at("adjustments"));
    assert_eq!(row["trial"], at("trial"));
}

#[test]
fn what_the_family_is_not_asked_for_is_refused() {
    for (args, says) in [
        (
            &["--policy", "observe"][..],
            "is none of gpu-red, gpu-realloc, cpu-slosh",
        ),
        (&["--energy-per-kwh=-1"], "is no price"),
        (&["--draw", "1", "--draws", "2"], "cannot be used with"),
        (&["--node", "nowhere"], "lit-silicon"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let args = family(folder.path().to_str().unwrap(), args);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = output(&args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(says), "{error}");
    }
    let others = output(&["study", "--part", "rest", "--json"]);
    let error = String::from_utf8(others.stderr).unwrap();
    assert!(error.contains("only --part family has JSON"), "{error}");
}
