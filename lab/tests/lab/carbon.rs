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
        "--arrivals",
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
    let rows = said.lines().filter(|line| line.starts_with("| "));
    let policies: Vec<&str> = rows
        .filter(|line| line.split(" | ").count() == 11)
        .collect();
    assert_eq!(policies.len(), 2 * (1 + 7), "{said}");
    for row in policies.iter().filter(|row| !row.starts_with("| policy ")) {
        let fields: Vec<&str> = row.split(" | ").collect();
        assert_eq!(fields[9], "0", "{row}");
    }
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

/// An hour that is missing, and forecasts that begin late, cost the arrivals that need them and no others.
/// A profile that tells no name, as CSV can't, has its file's in tables and pictures.
#[test]
fn a_study_of_a_measured_profile_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let [trace, _] = zone(folder.path());
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (profile, out) = (place("ours-8x.csv"), place("study"));
    let rows = "tp,pp,dp,power_w,tokens_per_s\n1,1,8,1500,58000\n1,8,1,1100,30000\n";
    fs::write(&profile, rows).unwrap();
    let said = litlab(&[
        "carbon",
        "study",
        "--trace",
        &trace,
        "--profile",
        &profile,
        "--month",
        "2030-05",
        "--billions",
        "1",
        "--arrivals",
        "2",
        "--out",
        &out,
    ]);
    assert!(said.contains("ours-8x"), "{said}");
}

#[test]
fn arrivals_for_which_something_is_missing_are_left_out_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let [trace, forecast] = zone(folder.path());
    let without = |path: &str, what: &str| {
        let text = fs::read_to_string(path).unwrap();
        let left: Vec<&str> = text.lines().filter(|it| !it.starts_with(what)).collect();
        assert!(left.len() < text.lines().count());
        fs::write(path, left.join("\n")).unwrap();
    };
    without(&trace, "2030-05-19T23:");
    without(&forecast, "2030-05-01T");
    let out = folder.path().join("study");
    let study = |billions: &str| {
        let args = "carbon study --month 2030-05 --arrivals 31";
        let mut args: Vec<&str> = args.split(' ').collect();
        args.extend(["--trace", &trace, "--forecast", &forecast]);
        args.extend(["--billions", billions, "--out", out.to_str().unwrap()]);
        output(&args)
    };
    let done = study("1");
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success(), "{said}");
    // A job has six hours, and one arrives each 23.8: two on the first day, and one on the 19th at 20 h.
    assert!(said.contains("3 of 31 arrivals are left out"), "{said}");
    let csv = fs::read_to_string(out.join("episodes.csv")).unwrap();
    assert_eq!(csv.lines().count(), 2 + 28 * 7);
    assert!(!csv.contains("2030-05-01T") && csv.contains("2030-05-02T"));
    // Twenty days reach over the gap from wherever they begin.
    let done = study("80");
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.contains("MADE-UP: no job of 479 h"), "{said}");
}

/// Power, throughput, energy of an iteration, of a token and of a number of tokens; the best of each is marked.
#[test]
fn profiles_are_compared_by_energy() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, rows: &str| {
        let path = folder.path().join(name);
        fs::write(&path, format!("tp,pp,dp,power_w,tokens_per_s\n{rows}")).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let two = file("gpt2-2gpus.csv", "2,1,1,400,1000\n1,1,2,600,2000\n");
    let other = file("llama-2gpus.csv", "2,1,1,500,900\n1,2,1,450,800\n");
    let four = file("gpt2-4gpus.csv", "4,1,1,700,1500\n1,1,4,1200,3900\n");
    let out = folder.path().join("out");
    let out_name = out.to_str().unwrap();
    let said = litlab(&[
        "carbon",
        "profiles",
        &two,
        &other,
        &four,
        "--tokens-per-iteration",
        "1000",
        "--billions",
        "1,3.6",
        "--out",
        out_name,
    ]);
    assert!(
        said.contains("| 2,1,1 | **400** | 1000 | 400.0 | 400.00 | 111.11 | 400.00 |"),
        "{said}"
    );
    assert!(
        said.contains(
            "| 1,1,2 | 600 | **2000** | **300.0** | **300.00** | **83.33** | **300.00** |"
        ),
        "{said}"
    );
    for (picture, words) in [
        ("figure1-2", ["gpt2-2gpus", "llama-2gpus", "1,2,1"]),
        ("figure1-4", ["gpt2-4gpus", "4,1,1", "mJ per token"]),
        ("figure2", ["most TP", "most DP", "tokens/s"]),
    ] {
        let svg = fs::read_to_string(out.join(format!("{picture}.svg"))).unwrap();
        for word in words {
            assert!(svg.contains(word), "{picture}: {word}");
        }
    }
    let built_in = litlab(&["carbon", "profiles", "--out", out_name]);
    assert_eq!(built_in.matches("SIMULATED\n").count(), 2, "{built_in}");
    assert!(built_in.contains(" kWh of 8B |"), "{built_in}");
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
        "--arrivals",
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
        "--arrivals",
        "1",
        "--out",
        out,
    ]);
    assert!(
        said.contains("does not fit into a month of 744 h"),
        "{said}"
    );
}

/// As `litctl carbon schedule` does: forecasts of another zone or factor are refused, and of those that do not say
/// whose they are it is said that they are taken for the trace's.
#[test]
fn a_study_does_not_take_forecasts_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let [trace, forecast] = zone(folder.path());
    let unnamed = fs::read_to_string(&forecast).unwrap();
    let out = folder.path().join("out");
    let studied = |zone: &str, factor: &str| {
        let named = unnamed
            .lines()
            .map(|line| match line.starts_with("issued") {
                true => format!("{line},zone,factor\n"),
                false => format!("{line},{zone},{factor}\n"),
            });
        let text = match zone {
            "" => unnamed.clone(),
            _ => named.collect(),
        };
        fs::write(&forecast, text).unwrap();
        let args = [
            "carbon",
            "study",
            "--trace",
            &trace,
            "--forecast",
            &forecast,
            "--month",
            "2030-05",
            "--billions",
            "1",
            "--arrivals",
            "1",
            "--out",
            out.to_str().unwrap(),
        ];
        let output = output(&args);
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.success(), said)
    };
    let (is_done, said) = studied("OTHER", "direct");
    assert!(
        !is_done && said.contains("the forecasts are of the zone OTHER"),
        "{said}"
    );
    let (is_done, said) = studied("MADE-UP", "lifecycle");
    assert!(
        !is_done && said.contains("the forecasts are of the lifecycle factor"),
        "{said}"
    );
    assert!(!out.exists(), "nothing was studied");
    let (is_done, said) = studied("MADE-UP", "direct");
    assert!(is_done && !said.contains("do not say"), "{said}");
    let (is_done, said) = studied("", "");
    assert!(
        is_done && said.contains("do not say their zone and factor"),
        "{said}"
    );
}
