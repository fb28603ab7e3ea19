//! `litlab carbon study` as a whole process, on a made-up zone.

use std::fs;
use std::path::Path;

use crate::{litlab, output};

/// A month of a zone that is clean by day, with a forecast that is off by a tenth.
fn zone(folder: &Path) -> [String; 2] {
    let mut trace = "datetime_utc,zone,ci_direct_g_per_kwh,ci_marginal_g_per_kwh\n".to_owned();
    let mut forecast = "issued_utc,lead_h,forecast_g_per_kwh\n".to_owned();
    let intensity = |hour: u32| {
        if (8..18).contains(&(hour % 24)) {
            60
        } else {
            240
        }
    };
    for day in 1..=31_u32 {
        for hour in 0..24 {
            let value = intensity(hour);
            trace += &format!(
                "2030-05-{day:02}T{hour:02}:00:00Z,MADE-UP,{value},{}\n",
                value + 300
            );
        }
        for lead in 0..48 {
            let value = f64::from(intensity(lead)) * 1.1;
            forecast += &format!("2030-05-{day:02}T00:00:00Z,{lead},{value}\n");
        }
    }
    let files = [("trace.csv", trace), ("forecast.csv", forecast)];
    files.map(|(name, text)| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    })
}

#[test]
fn a_study_leaves_tables_numbers_and_pictures_that_say_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let [trace, forecast] = zone(folder.path());
    let out = folder.path().join("study");
    let shown = out.to_str().unwrap();
    let said = litlab(&[
        "carbon",
        "study",
        "--trace",
        &trace,
        "--forecast",
        &forecast,
        "--month",
        "2030-05",
        "--billions",
        "1,2",
        "--offsets",
        "6",
        "--out",
        shown,
    ]);
    assert!(said.starts_with("# SIMULATED"), "{said}");
    for policy in [
        "static",
        "greedy",
        "mpc-as-issued",
        "mpc",
        "fixed",
        "shift-static",
        "shift",
    ] {
        assert_eq!(
            said.matches(&format!("| {policy} |")).count(),
            2,
            "{policy}: {said}"
        );
    }
    // Nobody misses a deadline, and every table has what a tonne costs.
    let missed = said
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains(" | oracle"));
    assert_eq!(missed.count(), 0);
    let csv = fs::read_to_string(out.join("episodes.csv")).unwrap();
    assert!(csv.starts_with("# SIMULATED"), "{csv}");
    let rows: Vec<&str> = csv.lines().skip(2).collect();
    assert_eq!(rows.len(), 2 * 7 * 6);
    let column = |name: &str| {
        csv.lines()
            .nth(1)
            .unwrap()
            .split(',')
            .position(|it| it == name)
            .unwrap()
    };
    for row in &rows {
        let fields: Vec<&str> = row.split(',').collect();
        assert_eq!(fields[column("meets_deadline")], "true", "{row}");
        let number = |name: &str| fields[column(name)].parse::<f64>().unwrap();
        assert!(number("marginal_g") > number("carbon_as_run_g"), "{row}");
        assert!(number("money") > 0.0, "{row}");
    }
    for picture in ["figure3", "figure4-1", "figure5"] {
        let svg = fs::read_to_string(out.join(format!("{picture}.svg"))).unwrap();
        assert!(
            svg.contains("<rect") || svg.contains("<polyline"),
            "{picture}"
        );
        assert!(
            picture == "figure3" || svg.contains("SIMULATED"),
            "{picture}"
        );
    }
}

#[test]
fn what_can_not_be_studied_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [trace, _] = zone(folder.path());
    let refused = |args: &[&str]| {
        let output = output(&[&["carbon", "study", "--trace", &trace], args].concat());
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let out = folder.path().join("out");
    let out = out.to_str().unwrap();
    let said = refused(&["--month", "2030-13", "--out", out]);
    assert!(said.contains("\"2030-13\" is no month"), "{said}");
    let said = refused(&[
        "--month",
        "2030-06",
        "--billions",
        "1",
        "--offsets",
        "1",
        "--out",
        out,
    ]);
    assert!(
        said.contains("no carbon intensity for 2030-06-01T00:00:00Z"),
        "{said}"
    );
    let said = refused(&[
        "--month",
        "2030-05",
        "--billions",
        "900",
        "--offsets",
        "1",
        "--out",
        out,
    ]);
    assert!(
        said.contains("does not fit into a month of 744 h"),
        "{said}"
    );
}
