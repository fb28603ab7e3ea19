//! The family beside recorded data, and data that is damaged.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use litd_plants::data::{DataError, Folder};
use litd_plants::paper;
use litd_plants::validate::{Effort, Finding, Verdict, validate};

const LITTLE: Effort = Effort {
    nodes: 60,
    launches: 10,
    runs: 21,
};

fn family(findings: &[Finding], file: &str, name: &str) -> f64 {
    let mut own = findings
        .iter()
        .filter(|it| it.file == file && it.name == name);
    own.next().unwrap().family.unwrap().p50
}

/// The bands that are published of the whole sources, so that this holds without the data.
#[test]
fn the_family_lies_within_published_bands() {
    let findings = validate(&Folder::none(), LITTLE).unwrap();
    assert!(findings.iter().all(|it| it.verdict == Verdict::NoData));
    for (file, name, low, high) in [
        ("longhorn_sgemm", "slowest over median", 0.33, 2.52),
        ("longhorn_sgemm", "slowest over fastest", 0.96, 4.92),
        ("longhorn_sgemm", "range of temperatures", 7.0, 27.0),
        (
            "longhorn_sgemm",
            "exponent of pace in the clock",
            -1.03,
            -0.96,
        ),
        (
            "longhorn_sgemm",
            "correlation of pace between halves",
            0.99,
            1.0,
        ),
        (
            "zeus_power_limit",
            "exponent below 0.48 of the default",
            -2.55,
            -0.46,
        ),
        ("zeus_power_limit", "exponent from 0.75 on", -0.6, -0.2),
        (
            "zeus_power_limit",
            "draw over limit where it binds",
            0.94,
            1.0,
        ),
        ("mi300x_node8", "idle power of a card", 141.0, 153.0),
        ("mlperf_h100_node_power", "power of a node", 6.0, 7.2),
    ] {
        let value = family(&findings, file, name);
        assert!((low..=high).contains(&value), "{file}, {name}: {value}");
    }
}

#[test]
fn every_statistic_of_the_data_is_met_or_explained() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/plant");
    if !folder.is_dir() {
        println!("skipped: no recorded data in {}", folder.display());
        return;
    }
    let findings = validate(&Folder::new(&folder), Effort::default()).unwrap();
    for it in &findings {
        assert_ne!(it.verdict, Verdict::Unexplained, "{it:?}");
        assert_ne!(it.verdict, Verdict::NoData, "{it:?}");
    }
    let within = findings
        .iter()
        .filter(|it| it.verdict == Verdict::Within)
        .count();
    assert!(
        within * 4 >= findings.len() * 3,
        "{within} of {}",
        findings.len()
    );
}

/// The paper's table is a check that can fail: as many targets are met as docs/plants.md says.
#[test]
fn the_papers_node_meets_nine_of_twelve_targets() {
    let check = paper::check();
    let met = check.targets.iter().filter(|it| it.is_met()).count();
    assert_eq!((met, check.targets.len(), check.free), (9, 12, 14));
}

const HEADER: &str = "cabinet,node,ts,uuid,time_ms,sm_mhz,mem_mhz,temp_c,power_w\n";
const ROW: &str = "c1,1,10,a,2400.0,1380,877,60,297\n";

fn refused(name: &str, bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(name), bytes).unwrap();
    let error = Folder::new(folder.path()).launches().unwrap_err();
    error.to_string()
}

#[test]
fn a_number_that_can_not_be_is_refused_with_file_and_line() {
    for (field, says) in [
        ("NaN", "temp_c is NaN"),
        ("inf", "temp_c is inf"),
        ("-400", "temp_c is -400"),
        ("warm", "temp_c: invalid float"),
        ("", "temp_c: cannot parse float from empty string"),
    ] {
        let text = format!(
            "{HEADER}{ROW}{}",
            ROW.replace(",60,", &format!(",{field},"))
        );
        let error = refused("longhorn_sgemm.csv", text.as_bytes());
        assert!(
            error.contains("longhorn_sgemm.csv, line 3"),
            "{field}: {error}"
        );
        assert!(error.contains(says), "{field}: {error}");
    }
}

#[test]
fn a_file_that_is_cut_short_is_refused() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(HEADER.as_bytes()).unwrap();
    for row in 0..5_000 {
        packed
            .write_all(ROW.replace("10,a", &format!("{row},a")).as_bytes())
            .unwrap();
    }
    let bytes = packed.finish().unwrap();
    let error = refused("longhorn_sgemm.csv.gz", &bytes[..bytes.len() / 2]);
    assert!(error.contains("longhorn_sgemm.csv.gz, line "), "{error}");
    let lost = refused(
        "longhorn_sgemm.csv",
        format!("{HEADER}{ROW}c1,1,10").as_bytes(),
    );
    assert!(lost.contains("line 3"), "{lost}");
    let none = refused("longhorn_sgemm.csv", HEADER.as_bytes());
    assert!(none.contains("no row"), "{none}");
    let column = refused("longhorn_sgemm.csv", b"cabinet,node\nc1,1\n");
    assert!(
        column.contains("line 2") && column.contains("missing field"),
        "{column}"
    );
}

#[test]
fn what_is_not_there_is_no_data_and_what_is_no_file_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(Folder::new(folder.path()).launches().unwrap(), None);
    fs::create_dir(folder.path().join("longhorn_sgemm.csv.gz")).unwrap();
    let error = Folder::new(folder.path()).launches().unwrap_err();
    assert!(matches!(error, DataError::Open { .. }), "{error}");
    drop(File::create(folder.path().join("zeus_power_limit.csv")).unwrap());
    assert!(Folder::new(folder.path()).limited().is_err());
}
