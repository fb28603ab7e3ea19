//! `litlab plants` as a whole process.

use std::fs;

use serde_json::Value;

use crate::{litlab, output};

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&litlab(args)).unwrap()
}

#[test]
fn a_draw_is_shown_with_its_dimensions_and_its_optimum() {
    let text = litlab(&["plants", "show", "--draw", "4"]);
    assert!(text.starts_with("SIMULATED"), "{text}");
    let shown = json(&["plants", "show", "--draw", "4", "--json"]);
    assert_eq!(shown["simulated"], true);
    let dimensions = shown["dimensions"].as_array().unwrap();
    for it in dimensions {
        let place = it["place"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&place), "{it}");
        assert!(text.contains(it["name"].as_str().unwrap()));
    }
    let optima = shown["optima"].as_array().unwrap();
    let policies: Vec<&str> = optima
        .iter()
        .map(|it| it["policy"].as_str().unwrap())
        .collect();
    assert_eq!(policies, ["gpu-red", "gpu-realloc", "cpu-slosh"]);
    for it in optima {
        let caps = it["caps"].as_array().unwrap().iter();
        let sum: f64 = caps.map(|it| it.as_f64().unwrap()).sum();
        assert!(sum <= it["budget"].as_f64().unwrap() + 1e-6, "{it}");
        assert!(it["throughput"].as_f64().unwrap() > 0.9998, "{it}");
    }
    let sibling = json(&["plants", "show", "--draw", "4", "--sibling", "1", "--json"]);
    assert_eq!(sibling["dimensions"], shown["dimensions"]);
    assert_ne!(sibling["steady"], shown["steady"]);
}

#[test]
fn the_list_has_a_source_for_every_range() {
    let text = litlab(&["plants", "list"]);
    assert!(text.starts_with("SIMULATED"), "{text}");
    let list = json(&["plants", "list", "--json"]);
    for it in list["dimensions"].as_array().unwrap() {
        assert!(it["low"].as_f64() < it["high"].as_f64(), "{it}");
        assert!(!it["source"].as_str().unwrap().is_empty(), "{it}");
    }
    for it in list["corners"].as_array().unwrap() {
        assert!(text.contains(it["name"].as_str().unwrap()), "{it}");
    }
}

#[test]
fn without_data_the_familys_own_values_are_shown_and_nothing_is_judged() {
    let report = json(&["plants", "validate", "--draws", "4", "--json"]);
    assert_eq!(report["within"], 0);
    assert_eq!(report["unexplained"], 0);
    assert!(report["without_data"].as_u64().unwrap() > 30, "{report}");
    assert!(report["not_in_the_data"].as_array().unwrap().len() > 5);
    let paper = &report["paper"];
    assert!(paper["free"].as_u64().unwrap() > 0 && paper["targets"].as_array().unwrap().len() > 9);
}

#[test]
fn what_can_not_be_is_said_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let text = "gpu,dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power\n\
                v100,d,n,1,adam,100,10.0,90.0\nv100,d,n,1,adam,125,NaN,110.0\n";
    fs::write(folder.path().join("zeus_power_limit.csv"), text).unwrap();
    let refused = |args: &[&str], says: &str| {
        let output = output(args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(output.stdout.is_empty() && error.contains(says), "{error}");
    };
    let validate = ["plants", "validate", "--draws", "4", "--data"];
    refused(
        &[&validate[..], &[&path]].concat(),
        "zeus_power_limit.csv, line 3: time_per_epoch is NaN",
    );
    let nowhere = format!("{path}/nowhere");
    refused(&[&validate[..], &[&nowhere]].concat(), "is no folder");
    refused(
        &["plants", "show", "--corner", "round"],
        "there is no corner round; there are lit-silicon",
    );
}
