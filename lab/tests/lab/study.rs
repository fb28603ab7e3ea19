//! `litlab study` as a whole process: tables, CSV and pictures of both laws.

use std::fs;

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
