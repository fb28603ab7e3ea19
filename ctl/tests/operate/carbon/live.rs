//! The live clients against providers' stubs, which were written from documentation by somebody who had not read them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tempfile::TempDir;

use super::{advise, follow, read, refused, wait_until};
use crate::providers::{
    Fault, Provider, Reply, Twist, carbon_aware, day, electricity_maps, energy_charts, floor,
    octopus, uk, watttime,
};
use crate::standin::{Daemon, command, ok};

/// A provider, and its answer without faults.
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

/// The options of litctl that name the provider.
fn source(case: &Case) -> String {
    let mut options = format!("--provider {} --url {}", case.name, case.provider.address);
    if !case.zone.is_empty() {
        options += &format!(" --zone {}", case.zone);
    }
    if !case.token.is_empty() {
        options += " --token-file token";
    }
    options
}

/// litctl, about to be asked what a provider's answers advise.
fn asked(folder: &Path, case: &Case, more: &str) -> Command {
    fs::write(folder.join("token"), format!("{}\n", case.token)).unwrap();
    let deadline = (Timestamp::now() + SignedDuration::from_hours(6)).to_string();
    let signal = format!("{} {more}", source(case));
    advise(folder, "1.08e6", &deadline, &signal)
}

/// The advice from a provider's answers.
fn advice(folder: &Path, case: &Case, more: &str) -> Value {
    let output = asked(folder, case, more).output().unwrap();
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
        let said = advice(folder.path(), &case, "");
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
        let said = advice(folder.path(), &case, "--factor direct");
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

/// A mistake in an answer is reported, and gives no value; usable parts are used.
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
            let said = advice(folder.path(), &case, "");
            let what = format!("{} {twist:?}: {said}", case.name);
            let is_price =
                case.name.ends_with("price") || ["energy-charts", "octopus"].contains(&case.name);
            let refused = match twist {
                // An answer without a zone, or without a unit, can't be checked for it.
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
                // The answer's only point is the gap.
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

/// After any failure the last good value stays and is marked once it is old, and the reason is reported.
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
        let kept = "--history kept";
        let good = value(&advice(folder.path(), &case, kept)).unwrap();
        for (fault, why) in &faults {
            case.provider.breaks(fault.clone());
            let without = advice(folder.path(), &case, "");
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
            let old = advice(folder.path(), &case, &format!("{kept} --stale-hours 1e-6"));
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
    let is_given_up = |fault| {
        let folder = folder();
        let case = cases().swap_remove(3);
        case.provider.breaks(fault);
        let said = advice(folder.path(), &case, "");
        assert!(value(&said).is_none() && said["stale"] == true, "{said}");
        let reason = said["reason"].as_str().unwrap();
        assert!(reason.contains("no answer within 10 s"), "{reason}");
    };
    let drips = Fault::Drip(Duration::from_millis(50));
    std::thread::scope(|scope| {
        scope.spawn(|| is_given_up(Fault::Slow(Duration::from_secs(30))));
        scope.spawn(|| is_given_up(drips));
    });
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
        let said = advice(folder.path(), &case, "");
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
    advice(folder.path(), &case, "");
    let pages: Vec<_> = case
        .provider
        .asked()
        .iter()
        .map(|it| it.parameter("page").map(str::to_owned))
        .collect();
    assert_eq!(pages, [None, Some("2".to_owned()), Some("3".to_owned())]);
}

/// A provider is not asked again while it wants to be left alone, however often the budget is renewed.
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
        fs::write(folder.path().join("token"), case.token).unwrap();
        let more = format!("{} --fallback 4500", source(&case));
        let litctl = command(&daemon.socket(), &[]);
        let _following = follow(litctl, folder.path(), [4000, 6000], &more);
        let requests = || daemon.asked().len();
        wait_until(|| format!("{} requests", requests()), || requests() >= 10);
        let metrics = read(&folder.path().join("carbon.prom"));
        assert!(metrics.contains("litd_carbon_signal_lost 1"), "{metrics}");
        assert!(!metrics.contains("litd_carbon_intensity"), "{metrics}");
        assert_eq!(case.provider.asked().len(), 1);
    }
}

/// A provider that limits forecasts is not asked for another one at once, and the missing forecast is
/// reported.
#[test]
fn a_forecast_that_can_not_be_got_is_said() {
    let folder = folder();
    let mut case = cases().swap_remove(1);
    case.provider = Provider::new(|request, twist| match request.path.ends_with("/forecast") {
        true => Reply::text(429, "Too Many Requests"),
        false => electricity_maps::answer("v4", request, twist),
    });
    let said = advice(folder.path(), &case, "");
    assert_eq!(said["stale"], false, "{said}");
    let reason = said["reason"].as_str().unwrap();
    assert!(
        reason.contains("there is no forecast") && reason.contains("429"),
        "{reason}"
    );
    let asked = case.provider.asked();
    let forecasts = asked.iter().filter(|it| it.path.ends_with("/forecast"));
    assert_eq!(forecasts.count(), 1, "{asked:?}");
}

/// The lease of the fallback is granted while a provider is waited for.
#[test]
fn a_slow_provider_keeps_no_lease_waiting() {
    let folder = folder();
    let done = litd_api::Done {
        message: "the lease has a budget".to_owned(),
    };
    let daemon = Daemon::new(move |_| ok(&done));
    let case = cases().swap_remove(3);
    case.provider.breaks(Fault::Slow(Duration::from_secs(30)));
    let began = Instant::now();
    let more = format!("{} --fallback 4500", source(&case));
    let _following = follow(
        command(&daemon.socket(), &[]),
        folder.path(),
        [4000, 6000],
        &more,
    );
    let requests = || daemon.asked().len();
    wait_until(|| format!("{} requests", requests()), || requests() >= 5);
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
}

/// The files kept have the form of a trace and its forecasts, without secrets.
#[test]
fn what_is_kept_is_a_trace_and_its_forecasts() {
    let folder = folder();
    let case = cases().swap_remove(0);
    advice(folder.path(), &case, "--history kept");
    let read = |name: &str| read(&folder.path().join("kept").join(name));
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
    let mut other = asked(folder.path(), &case, "--history kept --factor direct");
    let said = refused(&other.output().unwrap());
    assert!(said.contains("another folder"), "{said}");
    // Nor is it another zone's.
    let mut case = case;
    case.zone = "DE";
    let mut other = asked(folder.path(), &case, "--history kept");
    let said = refused(&other.output().unwrap());
    assert!(
        said.contains("US-CAL-CISO") && said.contains("another --history"),
        "{said}"
    );
}

/// A kept file that can't be read is not written over.
#[test]
fn what_is_kept_and_can_not_be_read_is_refused() {
    let folder = folder();
    let case = cases().swap_remove(0);
    let path = folder.path().join("kept/signal.csv");
    fs::create_dir(folder.path().join("kept")).unwrap();
    // A link to itself.
    symlink(&path, &path).unwrap();
    let mut asked = asked(folder.path(), &case, "--history kept");
    let said = refused(&asked.output().unwrap());
    assert!(
        said.contains("signal.csv: ") && said.contains("--history"),
        "{said}"
    );
    assert!(path.is_symlink());
}

/// A crash may leave anything of what is kept: that is said and set aside, and the provider is asked all the same.
#[test]
fn what_is_kept_and_damaged_is_set_aside() {
    let folder = folder();
    let case = cases().swap_remove(0);
    let kept = folder.path().join("kept");
    for (damaged, text) in [
        ("signal", "\0\0\0\0"),
        ("forecasts", "issued_utc,lead_h\n1"),
    ] {
        advice(folder.path(), &case, "--history kept");
        fs::write(kept.join(damaged).with_extension("csv"), text).unwrap();
        let output = asked(folder.path(), &case, "--history kept").output();
        let output = output.unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(10), "{stderr}");
        assert!(stderr.contains(&format!("{damaged}.csv: ")), "{stderr}");
        let aside = kept.join(damaged).with_extension("damaged");
        assert_eq!(read(&aside), text);
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(said["stale"], false, "{said}");
        // The file begins anew.
        assert_eq!(read(&kept.join("signal.csv")).lines().count(), 2);
    }
}
