//! Benchmarks print what they have measured, or fail.
#![allow(clippy::unwrap_used)]

#[path = "benches/common/measured.rs"]
mod measured;

use std::fs;
use std::path::{Path, PathBuf};

use measured::{Samples, amount};

#[test]
fn what_was_not_measured_is_no_figure() {
    let of = |values: &[f64]| Samples::new("it", 3, values.to_vec()).map(|it| it.percentile(50));
    assert_eq!(of(&[3.0, 1.0, 2.0]).ok(), Some(2.0));
    for (values, why) in [
        (&[][..], "it was not measured: 0 samples, and it takes 3"),
        (
            &[1.0, 2.0],
            "it was not measured: 2 samples, and it takes 3",
        ),
        (
            &[1.0, f64::NAN, 2.0],
            "it was not measured: a sample is NaN",
        ),
        (&[1.0, -1.0, 2.0], "it was not measured: a sample is -1"),
        (&[0.0; 9], "it was not measured: it comes to 0"),
    ] {
        assert_eq!(format!("{:?}", of(values).unwrap_err()), why);
    }
    assert!(amount("it", f64::INFINITY).is_err() && amount("it", 1e-9).is_ok());
}

/// Every manifest of the workspace.
fn manifests() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let text: toml::Table = text.parse().unwrap();
    let members = text["workspace"]["members"].as_array().unwrap();
    let folders = members.iter().map(|it| root.join(it.as_str().unwrap()));
    folders.chain([root.to_owned()]).collect()
}

#[test]
fn every_benchmark_fails_if_it_measures_nothing() {
    let mut found = 0;
    for folder in manifests() {
        let manifest: toml::Table = fs::read_to_string(folder.join("Cargo.toml"))
            .unwrap()
            .parse()
            .unwrap();
        let none = Vec::new();
        let benches = manifest.get("bench").and_then(|it| it.as_array());
        for bench in benches.unwrap_or(&none) {
            let name = bench["name"].as_str().unwrap();
            let named = bench.get("path").map(|it| it.as_str().unwrap().to_owned());
            let usual = [
                format!("benches/{name}.rs"),
                format!("benches/{name}/main.rs"),
            ];
            let mut files = usual.into_iter().chain(named).map(|it| folder.join(it));
            let file = files.find(|it| it.is_file()).unwrap();
            let text = fs::read_to_string(&file).unwrap();
            assert!(text.contains("mod measured;"), "{}", file.display());
            found += 1;
        }
    }
    assert!(found >= 9, "{found} benchmarks");
}
