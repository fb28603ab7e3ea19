//! `litctl carbon schedule`: plans as JSON.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use super::{PROFILE, carbon, folder, printed, refused, said};

fn schedule(folder: &Path, policy: &str, more: &str) -> Output {
    let options = format!(
        "schedule --profile profile.csv --trace trace.csv --forecast forecast.csv --start 2030-01-01T00:00:00Z \
         --policy {policy} --json {more}"
    );
    carbon(folder, &options).output().unwrap()
}

fn plan(folder: &Path, policy: &str, more: &str) -> Value {
    serde_json::from_str(&printed(&schedule(folder, policy, more))).unwrap()
}

#[test]
fn a_plan_is_the_json_that_was_agreed() {
    let folder = folder();
    // 3 h of the fastest; 6 h, a switch of 15 min.
    let job = "--tokens 1.08e6 --deadline-hours 6 --switch-seconds 900";
    let found = plan(folder.path(), "fixed", job);
    let (fast, lean) = (
        json!({"tp": 1, "pp": 1, "dp": 2}),
        json!({"tp": 2, "pp": 1, "dp": 1}),
    );
    // Fast while it is clean, then lean in the two dirtiest hours: 180 + 180 g, 560 with the clean ones against 600 g.
    let windows = [&fast, &fast, &lean, &lean].into_iter().zip(0..);
    let windows: Vec<_> = windows
        .map(|(it, hour)| json!({"hour": hour, "configuration": it}))
        .collect();
    assert_eq!(
        found,
        json!({
            "carbon_g": 560.0, "energy_kwh": 2.9, "completion_hours": 4.25, "switches": 1, "start_hours": 0,
            "windows": windows, "optimal": true, "bound_g": 560.0
        })
    );
    let job = "--tokens 1.08e6 --deadline-hours 8";
    let found = plan(folder.path(), "shift", job);
    assert_eq!(
        (found["start_hours"].as_u64(), found["carbon_g"].as_f64()),
        (Some(5), Some(200.0))
    );
    let waiting: Vec<_> = (0..5)
        .map(|at| found["windows"][at]["configuration"].is_null())
        .collect();
    assert_eq!(waiting, [true; 5]);
    let shape = found.as_object().unwrap().len();
    assert_eq!(shape, 8);
}

#[test]
fn every_policy_keeps_the_deadline_and_none_is_below_the_bound() {
    let folder = folder();
    let job = "--tokens 1.08e6 --deadline-hours 7 --switch-seconds 600";
    let optimum = plan(folder.path(), "shift", job)["carbon_g"]
        .as_f64()
        .unwrap();
    for policy in ["static", "greedy", "fixed", "shift", "shift-static", "mpc"] {
        for more in ["", "--factor lifecycle", "--window-hours 0.5"] {
            let found = plan(folder.path(), policy, &format!("{job} {more}"));
            let number = |name: &str| found[name].as_f64().unwrap();
            assert!(number("completion_hours") <= 7.0, "{policy}: {found}");
            assert!(number("bound_g") <= number("carbon_g"), "{policy}: {found}");
            if more.is_empty() {
                assert!(number("carbon_g") >= optimum - 1e-9, "{policy}: {found}");
            }
        }
    }
}

/// A window that begins a quarter past the hour has half-hours of which greedy can't know yet.
#[test]
fn greedy_knows_nothing_of_a_window_but_how_it_begins() {
    let folder = folder();
    let first = |begun: u32, later: u32| {
        let mut trace = "datetime_utc,zone,ci_direct_g_per_kwh\n".to_owned();
        for half in 0..48 {
            let value = match half {
                12 => begun,
                13..16 => later,
                _ => 200,
            };
            let (hour, minute) = (half / 2, half % 2 * 30);
            trace += &format!("2030-01-01T{hour:02}:{minute:02}:00Z,MADE-UP,{value}\n");
        }
        fs::write(folder.path().join("trace.csv"), trace).unwrap();
        let options = "schedule --profile profile.csv --trace trace.csv --start 2030-01-01T06:15:00Z --policy greedy \
                       --json --tokens 1.08e6 --deadline-hours 9";
        let plan: Value =
            serde_json::from_str(&printed(&carbon(folder.path(), options).output().unwrap()))
                .unwrap();
        plan["windows"][0]["configuration"].clone()
    };
    let clean = first(20, 20);
    assert_eq!(first(20, 2000), clean);
    assert_ne!(first(2000, 2000), clean, "it knows how a window begins");
}

/// Where windows are long, the deadline that is not given has room for whole ones.
#[test]
fn without_a_deadline_the_fastest_configuration_fits() {
    let folder = folder();
    // 2.1 h of the fastest: two windows, and three hours by the rule.
    let found = plan(folder.path(), "fixed", "--tokens 7.56e5 --window-hours 2");
    assert_eq!(found["completion_hours"], 4);
}

/// Forecasts of another zone or factor are none of this trace; where the file does not tell, that is said.
#[test]
fn forecasts_of_another_zone_or_factor_are_refused() {
    let folder = folder();
    let job = "--tokens 1.08e6 --deadline-hours 6";
    let path = folder.path().join("forecast.csv");
    let text = fs::read_to_string(&path).unwrap();
    let unknown = schedule(folder.path(), "mpc", job);
    let said = said(&unknown);
    assert!(said.contains("do not say their zone and factor"), "{said}");
    assert!(!said.contains("h before"), "{said}");
    fs::write(
        &path,
        text.replace("2030-01-01T00:00:00Z,", "2029-12-28T00:00:00Z,"),
    )
    .unwrap();
    let said = super::said(&schedule(folder.path(), "mpc", job));
    assert!(said.contains("2029-12-28T00:00:00Z, 96 h before"), "{said}");
    let of = |zone: &str, factor: &str| {
        let mut lines = text.lines();
        let mut named = format!("{},zone,factor\n", lines.next().unwrap());
        for line in lines {
            named += &format!("{line},{zone},{factor}\n");
        }
        fs::write(&path, named).unwrap();
        schedule(folder.path(), "mpc", job)
    };
    let said = super::said(&of("MADE-UP", "direct"));
    assert!(!said.contains("do not say"), "{said}");
    for (zone, factor, why) in [
        (
            "OTHER",
            "direct",
            "are of the zone OTHER, and the trace is of MADE-UP",
        ),
        ("MADE-UP", "lifecycle", "are of the lifecycle factor"),
        ("MADE-UP", "nonsense", "the factor must be direct"),
    ] {
        let said = refused(&of(zone, factor));
        assert!(
            said.contains("forecast.csv: ") && said.contains(why),
            "{said}"
        );
    }
}

#[test]
fn what_has_no_plan_is_refused_with_a_reason() {
    let folder = folder();
    let refused = |policy: &str, more: &str| refused(&schedule(folder.path(), policy, more));
    for policy in ["static", "greedy", "fixed", "shift", "shift-static", "mpc"] {
        let said = refused(policy, "--tokens 1.08e6 --deadline-hours 2.9");
        assert!(
            said.contains("infeasible") && said.contains("TP=1 PP=1 DP=2, needs 3.00 h"),
            "{said}"
        );
    }
    // Hours beyond the trace are not made up.
    let said = refused("shift", "--tokens 1.08e6 --deadline-hours 9");
    assert!(
        said.contains("no carbon intensity for 2030-01-01T08:00:00Z"),
        "{said}"
    );
    // Windows of a second are too many; five minutes may be written with six digits, and seconds are whole.
    let second = "--tokens 1.08e6 --deadline-hours 7 --window-hours 0.0002777778";
    assert!(
        refused("fixed", second).contains("at most 10000 can be planned; choose longer windows")
    );
    let five_minutes = "--tokens 1.08e6 --deadline-hours 7 --window-hours 0.083333";
    assert_eq!(
        plan(folder.path(), "fixed", five_minutes)["windows"][12]["hour"],
        1
    );
    let third = refused("fixed", "--tokens 1 --window-hours 0.3333");
    assert!(third.contains("must come to whole seconds"), "{third}");
    let said = refused("fixed", "--tokens 1 --factor marginal");
    assert!(
        said.contains("trace.csv: there is no column \"ci_marginal_g_per_kwh\""),
        "{said}"
    );
    fs::write(
        folder.path().join("profile.csv"),
        format!("{PROFILE}1,1,4,5,5\n"),
    )
    .unwrap();
    let said = refused("fixed", "--tokens 1");
    assert!(
        said.contains("profile.csv: line 5: TP=1 PP=1 DP=4 needs 4 GPUs"),
        "{said}"
    );
}

/// A configuration that would take ages is in no plan, and keeps no other from being found.
#[test]
fn a_configuration_that_takes_ages_is_not_planned_with() {
    let folder = folder();
    let job = "--tokens 1.08e6 --deadline-hours 7 --switch-seconds 600";
    let policies = ["static", "greedy", "fixed", "shift", "shift-static", "mpc"];
    let plans = || policies.map(|policy| plan(folder.path(), policy, job));
    let without = plans();
    // Windows that no memory holds, and more than can be counted.
    for rate in ["1e-8", "1e-20"] {
        let profile = format!("{PROFILE}1,2,1,900,{rate}\n").replace("1,2,1,900,55\n", "");
        fs::write(folder.path().join("profile.csv"), profile).unwrap();
        assert_eq!(plans(), without, "{rate}");
    }
}

#[test]
fn a_start_in_a_zone_without_its_offset_is_refused() {
    let folder = folder();
    let options = "schedule --profile profile.csv --trace trace.csv --policy fixed --tokens 1 --deadline-hours 6 --start";
    let begins = |start: &str| carbon(folder.path(), &format!("{options} {start}")).output();
    let said = refused(&begins("2030-01-01T01:00:00[Europe/Berlin]").unwrap());
    assert!(said.contains("without its offset from UTC"), "{said}");
    printed(&begins("2030-01-01T01:00:00+01:00[Europe/Berlin]").unwrap());
}
