//! The live clients against providers' stubs, which were written from documentation by somebody who had not read them.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tempfile::TempDir;

use crate::LITCTL;
use crate::lease::Following;
use crate::providers::{
    Fault, Provider, Twist, carbon_aware, day, electricity_maps, energy_charts, floor, octopus, uk,
    watttime,
};
use crate::standin::{Daemon, ok};

/// Who is asked, and what it says when all is well.
struct Case {
    name: &'static str,
    zone: &'static str,
    token: &'static str,
    provider: Provider,
    value: fn(Timestamp) -> f64,
}

const POUNDS: f64 = 0.453_592_37;

fn hour(now: Timestamp) -> Timestamp {
    floor(now, 3_600)
}

fn cases() -> Vec<Case> {
    let case = |name, zone, token, provider, value| Case {
        name,
        zone,
        token,
        provider,
        value,
    };
    let (em, token) = (electricity_maps::ZONE, electricity_maps::TOKEN);
    vec![
        case(
            "electricity-maps-v3",
            em,
            token,
            electricity_maps::provider("v3"),
            |now| day(hour(now)),
        ),
        case(
            "electricity-maps-v4",
            em,
            token,
            electricity_maps::provider("v4"),
            |now| day(hour(now)),
        ),
        case(
            "watttime",
            watttime::REGION,
            "user:pass word",
            watttime::provider(9),
            |now| day(floor(now, 300)) * POUNDS,
        ),
        case("uk", "", "", uk::provider(), |now| day(floor(now, 1_800))),
        case(
            "carbon-aware-sdk",
            carbon_aware::LOCATION,
            "",
            carbon_aware::provider(5),
            |now| day(floor(now, 300)),
        ),
        case(
            "electricity-maps-price",
            em,
            token,
            electricity_maps::provider("v4"),
            |now| electricity_maps::price(hour(now)) / 1e3,
        ),
        case(
            "energy-charts",
            energy_charts::ZONE,
            "",
            energy_charts::provider(900),
            |now| day(floor(now, 900)) / 1e3,
        ),
        case(
            "octopus",
            octopus::TARIFF,
            "",
            octopus::provider(25),
            |now| day(floor(now, 1_800)) / 1e3,
        ),
    ]
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let profile = "tp,pp,dp,power_w,tokens_per_s\n1,1,2,1000,100\n2,1,1,450,60\n";
    fs::write(folder.path().join("profile.csv"), profile).unwrap();
    folder
}

/// litctl, about to be asked what a provider's answers advise.
fn asked(folder: &Path, case: &Case) -> Command {
    let deadline = (Timestamp::now() + SignedDuration::from_hours(6)).to_string();
    let mut command = Command::new(LITCTL);
    command.current_dir(folder).args([
        "carbon",
        "advise",
        "--profile",
        "profile.csv",
        "--tokens",
        "1.08e6",
        "--deadline",
        &deadline,
        "--provider",
        case.name,
        "--url",
        &case.provider.address,
    ]);
    if !case.zone.is_empty() {
        command.args(["--zone", case.zone]);
    }
    if !case.token.is_empty() {
        command.args(["--token-file", "token"]);
    }
    command
}

/// What is advised by a provider's answers.
fn advice(folder: &Path, case: &Case, more: &[&str]) -> Value {
    fs::write(folder.join("token"), format!("{}\n", case.token)).unwrap();
    let mut command = asked(folder, case);
    command.arg("--json");
    let output = command.args(more).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(10), "{}: {stderr}", case.name);
    assert!(!stderr.contains("panicked"), "{}: {stderr}", case.name);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The value, in grams or money, whichever it is.
fn value(said: &Value) -> Option<f64> {
    said["intensity_g_per_kwh"]
        .as_f64()
        .or(said["price_per_kwh"].as_f64())
}

#[test]
fn each_provider_is_understood() {
    let folder = folder();
    for case in cases() {
        // The step may end while it is asked.
        let before = (case.value)(Timestamp::now());
        let said = advice(folder.path(), &case, &[]);
        let after = (case.value)(Timestamp::now());
        let found = value(&said).unwrap_or_else(|| panic!("{}: {said}", case.name));
        let is_right = |expected: f64| (found - expected).abs() < 1e-6;
        assert!(
            is_right(before) || is_right(after),
            "{}: {found}, not {after}",
            case.name
        );
        assert_eq!(said["stale"], false, "{}: {said}", case.name);
        let is_price = said["factor"] == "price";
        assert_eq!(
            is_price,
            said["intensity_g_per_kwh"].is_null(),
            "{}: {said}",
            case.name
        );
    }
}

/// The factor that was asked for is the one that is got.
#[test]
fn electricity_maps_is_asked_for_a_factor_and_never_for_the_callers_own_zone() {
    let folder = folder();
    for case in cases().into_iter().take(2) {
        let before = (case.value)(Timestamp::now()) - electricity_maps::DIRECT;
        let said = advice(folder.path(), &case, &["--factor", "direct"]);
        let after = (case.value)(Timestamp::now()) - electricity_maps::DIRECT;
        assert!(
            value(&said) == Some(before) || value(&said) == Some(after),
            "{said}"
        );
        for request in case.provider.asked() {
            assert_eq!(request.parameter("zone"), Some(case.zone));
            let forbids = ["disableCallerLookup", "shouldUseFallbackCallerLookup"];
            let told: Vec<_> = forbids
                .iter()
                .filter_map(|it| request.parameter(it))
                .collect();
            assert_eq!(told.len(), 1, "{request:?}");
        }
    }
}

/// What is wrong in an answer is said, and no value made of it; what can be used is used.
#[test]
fn twisted_answers_give_no_wrong_value() {
    let folder = folder();
    for case in cases() {
        for twist in [
            Twist::WrongZone,
            Twist::NoPoints,
            Twist::SomeNull,
            Twist::AllNull,
            Twist::Gap,
            Twist::Twice,
            Twist::Backwards,
            Twist::Old,
            Twist::WrongUnit,
            Twist::Negative,
            Twist::Strings,
            Twist::Absurd,
        ] {
            case.provider.twists(twist);
            let said = advice(folder.path(), &case, &[]);
            let what = format!("{} {twist:?}: {said}", case.name);
            let is_price =
                case.name.ends_with("price") || ["energy-charts", "octopus"].contains(&case.name);
            let refused = match twist {
                // Who names no zone, or no unit, can't be caught at it.
                Twist::WrongZone => !["uk", "energy-charts", "octopus"].contains(&case.name),
                Twist::WrongUnit => {
                    ["watttime", "electricity-maps-price", "energy-charts"].contains(&case.name)
                }
                Twist::NoPoints
                | Twist::AllNull
                | Twist::Twice
                | Twist::Strings
                | Twist::Absurd => true,
                // Rates come newest first, and are sorted.
                Twist::Backwards => case.name != "octopus",
                Twist::Negative => !is_price,
                // Its only point is the gap.
                Twist::Gap => case.name.starts_with("electricity-maps-v"),
                Twist::None | Twist::SomeNull | Twist::Old => false,
            };
            match value(&said) {
                None => assert!(refused, "{what}"),
                Some(found) => {
                    assert!(!refused && found != 0.0 && found.abs() < 400.0, "{what}");
                    assert_eq!(
                        found < 0.0,
                        twist == Twist::Negative || found == -0.0035,
                        "{what}"
                    );
                }
            }
            let is_stale = refused || twist == Twist::Old;
            let may_be_stale = matches!(twist, Twist::Gap);
            assert!(said["stale"] == is_stale || may_be_stale, "{what}");
            let reason = said["reason"].as_str().unwrap();
            assert!(!refused || reason.contains("there is no signal"), "{what}");
        }
    }
}

/// Whatever breaks, the last good value stays and is marked once it is old, and the reason is said.
#[test]
fn whatever_breaks_the_last_good_value_stays_and_is_marked() {
    let faults = [
        (Fault::Limited(Some("120".to_owned())), "429"),
        (
            Fault::Limited(Some("Fri, 31 Dec 2100 23:59:59 GMT".to_owned())),
            "429",
        ),
        (Fault::Limited(None), "429"),
        (Fault::Forbidden, "403"),
        (Fault::Down, "503"),
        (Fault::Cut, "127.0.0.1"),
        (Fault::CutChunk, "127.0.0.1"),
        (Fault::Empty, "not as documented"),
        (Fault::Portal, "not as documented"),
        (Fault::Hangup, "127.0.0.1"),
        (Fault::Redirect, "302"),
    ];
    for case in cases() {
        let folder = folder();
        let kept = ["--history", "kept"];
        let good = value(&advice(folder.path(), &case, &kept)).unwrap();
        for (fault, why) in &faults {
            case.provider.breaks(fault.clone());
            let without = advice(folder.path(), &case, &[]);
            let what = format!("{} {fault:?}: {without}", case.name);
            assert_eq!(
                (value(&without), &without["stale"]),
                (None, &Value::from(true)),
                "{what}"
            );
            // A login has an answer of its own.
            let is_said = |said: &Value| {
                let reason = said["reason"].as_str().unwrap();
                reason.contains(why) || case.name == "watttime" && reason.contains("has no token")
            };
            assert!(is_said(&without), "{what}");
            let old = advice(
                folder.path(),
                &case,
                &["--history", "kept", "--stale-hours", "1e-6"],
            );
            assert_eq!(
                (value(&old), &old["stale"]),
                (Some(good), &Value::from(true)),
                "{old}"
            );
            assert!(is_said(&old), "{old}");
        }
    }
}

/// Neither one that is silent nor one that says a byte at a time is waited for longer than ten seconds.
#[test]
fn slow_providers_are_given_up() {
    let folder = folder();
    for fault in [
        Fault::Slow(Duration::from_secs(30)),
        Fault::Drip(Duration::from_millis(50)),
    ] {
        let case = cases().swap_remove(3);
        case.provider.breaks(fault);
        let said = advice(folder.path(), &case, &[]);
        assert!(value(&said).is_none() && said["stale"] == true, "{said}");
        let reason = said["reason"].as_str().unwrap();
        assert!(reason.contains("no answer within 10 s"), "{reason}");
    }
}

#[test]
fn a_zone_that_is_not_subscribed_or_not_known_is_said() {
    let folder = folder();
    for (name, zone, why) in [
        ("electricity-maps-v4", "US-NW-PACW", "403"),
        ("electricity-maps-v3", "ATLANTIS", "404"),
        ("watttime", "PJM_NJ", "403"),
        ("carbon-aware-sdk", "atlantis", "400"),
        ("carbon-aware-sdk", "nowhere", "501"),
        ("energy-charts", "XX", "404"),
        ("octopus", "E-1R-NONE-A", "404"),
    ] {
        let mut case = cases().into_iter().find(|case| case.name == name).unwrap();
        case.zone = zone;
        let said = advice(folder.path(), &case, &[]);
        assert!(
            value(&said).is_none() && said["reason"].as_str().unwrap().contains(why),
            "{name}: {said}"
        );
    }
}

/// All pages of a tariff are read, and no more.
#[test]
fn pages_are_followed() {
    let folder = folder();
    let case = cases().pop().unwrap();
    advice(folder.path(), &case, &[]);
    let pages: Vec<_> = case
        .provider
        .asked()
        .iter()
        .map(|it| it.parameter("page").map(str::to_owned))
        .collect();
    assert_eq!(pages, [None, Some("2".to_owned()), Some("3".to_owned())]);
}

fn follow(folder: &Path, daemon: &Daemon, case: &Case) -> Child {
    fs::write(folder.join("token"), case.token).unwrap();
    let mut command = Command::new(LITCTL);
    command
        .current_dir(folder)
        .env("LITD_CONTROL", daemon.socket());
    command.args([
        "carbon",
        "follow",
        "--lowest",
        "4000",
        "--highest",
        "6000",
        "--clean",
        "90",
        "--dirty",
        "400",
    ]);
    command.args([
        "--fallback",
        "4500",
        "--every",
        "0.1",
        "--metrics",
        "carbon.prom",
        "--provider",
        case.name,
    ]);
    command.args([
        "--zone",
        case.zone,
        "--url",
        &case.provider.address,
        "--token-file",
        "token",
    ]);
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Nobody is asked again while it wants to be left alone, however often the budget is renewed.
#[test]
fn a_provider_that_wants_to_be_left_alone_is() {
    for after in [
        Some("3600".to_owned()),
        Some("Fri, 31 Dec 2100 23:59:59 GMT".to_owned()),
        None,
    ] {
        let folder = folder();
        let done = litd_api::Done {
            message: "the lease has a budget".to_owned(),
        };
        let daemon = Daemon::new(move |_| ok(&done));
        let case = cases().swap_remove(1);
        case.provider.breaks(Fault::Limited(after));
        let _following = Following(follow(folder.path(), &daemon, &case));
        let until = Instant::now() + Duration::from_secs(60);
        while daemon.asked().len() < 10 {
            assert!(Instant::now() < until);
            thread::sleep(Duration::from_millis(20));
        }
        let metrics = fs::read_to_string(folder.path().join("carbon.prom")).unwrap();
        assert!(metrics.contains("litd_carbon_signal_lost 1"), "{metrics}");
        assert!(!metrics.contains("litd_carbon_intensity"), "{metrics}");
        assert_eq!(case.provider.asked().len(), 1);
    }
}

/// What is kept has the form of a trace and its forecasts, and no secret in it.
#[test]
fn what_is_kept_is_a_trace_and_its_forecasts() {
    let folder = folder();
    let case = cases().swap_remove(0);
    advice(folder.path(), &case, &["--history", "kept"]);
    let read = |name: &str| fs::read_to_string(folder.path().join("kept").join(name)).unwrap();
    let trace = read("signal.csv");
    assert!(
        trace.starts_with("datetime_utc,ci_lifecycle_g_per_kwh\n"),
        "{trace}"
    );
    assert_eq!(trace.lines().count(), 2, "{trace}");
    let forecasts = read("forecasts.csv");
    assert!(
        forecasts.starts_with("issued_utc,lead_h,forecast_g_per_kwh\n"),
        "{forecasts}"
    );
    assert!(forecasts.lines().count() >= 72, "{forecasts}");
    assert!(!(trace + &forecasts).contains(case.token));
    let other = advice_refused(folder.path(), &case);
    assert!(other.contains("another folder"), "{other}");
}

fn advice_refused(folder: &Path, case: &Case) -> String {
    let mut command = asked(folder, case);
    command.args(["--history", "kept", "--factor", "direct"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}
