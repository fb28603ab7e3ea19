//! Providers' answers, good and bad, and what a feed keeps of them.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use litd_carbon::signal::{Feed, Health, Provider, Reading, Trouble};
use litd_carbon::{Factor, moment};
use litd_units::{Intensity, Seconds};

fn at(text: &str) -> Timestamp {
    moment(text).unwrap()
}

const LATEST: &[u8] = br#"{"zone":"DE","carbonIntensity":302,"datetime":"2026-11-20T12:00:00.000Z",
  "updatedAt":"2026-11-20T12:10:00.000Z","emissionFactorType":"lifecycle","isEstimated":true}"#;
const FORECAST: &[u8] = br#"{"zone":"DE","forecast":[
  {"carbonIntensity":302,"datetime":"2026-11-20T12:00:00.000Z"},
  {"carbonIntensity":250,"datetime":"2026-11-20T13:00:00.000Z"}],"updatedAt":"2026-11-20T12:05:00.000Z"}"#;

fn maps(
    zone: &str,
    factor: Factor,
    latest: &[u8],
    forecast: Option<&[u8]>,
) -> Result<Reading, String> {
    let now = at("2026-11-20T12:20:00Z");
    Provider::ElectricityMapsV3.read(zone, factor, now, &[Some(latest), forecast])
}

#[test]
fn electricity_maps_is_asked_and_read_in_both_versions() {
    for (provider, version, here) in [
        (
            Provider::ElectricityMapsV3,
            "v3",
            "shouldUseFallbackCallerLookup=false",
        ),
        (
            Provider::ElectricityMapsV4,
            "v4",
            "disableCallerLookup=true",
        ),
    ] {
        let asked = provider.requests("US-CAL-CISO", Factor::Direct, at("2026-11-20T12:20:00Z"));
        let expected = |what: &str| {
            format!(
                "/{version}/carbon-intensity/{what}?zone=US-CAL-CISO&emissionFactorType=direct&{here}"
            )
        };
        assert_eq!(asked[0].paths, [expected("latest")]);
        assert_eq!(
            asked[1].paths,
            [
                expected("forecast") + "&horizonHours=72",
                expected("forecast")
            ]
        );
        assert!(asked[1].is_optional && !asked[0].is_optional);
    }
    let reading = maps("DE", Factor::Lifecycle, LATEST, Some(FORECAST)).unwrap();
    assert_eq!(reading.now, (at("2026-11-20T12:00:00Z"), Intensity(302.0)));
    assert_eq!(reading.issued, at("2026-11-20T12:10:00Z"));
    assert_eq!(
        reading.expected[1],
        (at("2026-11-20T13:00:00Z"), Intensity(250.0))
    );
    assert!(reading.is_estimated);
    assert!(
        maps("DE", Factor::Lifecycle, LATEST, None)
            .unwrap()
            .expected
            .is_empty()
    );
}

/// An answer that can't be used is an error that says why, and never a zero.
#[test]
fn wrong_answers_are_no_values() {
    let error =
        |zone, factor, latest: &str| maps(zone, factor, latest.as_bytes(), None).unwrap_err();
    let text = std::str::from_utf8(LATEST).unwrap();
    assert!(error("FR", Factor::Lifecycle, text).contains("of zone \"DE\", and \"FR\" was asked"));
    assert!(error("DE", Factor::Direct, text).contains("lifecycle factor, and direct was asked"));
    assert!(error("DE", Factor::Lifecycle, &text.replace("302", "null")).contains("no value"));
    assert!(error("DE", Factor::Lifecycle, &text.replace("302", "-1")).contains("is not possible"));
    assert!(error("DE", Factor::Lifecycle, &text[..60]).contains("not as documented"));
    assert!(error("DE", Factor::Lifecycle, "").contains("not as documented"));
    assert!(error("DE", Factor::Lifecycle, "Access denied").contains("not as documented"));
    let now = at("2026-11-20T12:20:00Z");
    for provider in Provider::ALL {
        for body in ["", "{}", "[]", "null", "{\"data\":[]}", "[{}]"] {
            let read = provider.read("DE", provider.factors()[0], now, &[Some(body.as_bytes())]);
            assert!(read.is_err(), "{provider}: {body}: {read:?}");
        }
    }
}

#[test]
fn the_other_providers_are_read_in_grams() {
    let now = at("2026-11-20T12:20:00Z");
    let watttime = br#"{"data":[{"point_time":"2026-11-20T12:20:00+00:00","value":1000.0},
        {"point_time":"2026-11-20T12:25:00+00:00","value":500.0}],
        "meta":{"region":"CAISO_NORTH","signal_type":"co2_moer","units":"lbs_co2_per_mwh",
        "generated_at":"2026-11-20T12:15:00+00:00"}}"#;
    let read = |provider: Provider, zone, body: &[u8]| {
        provider.read(zone, provider.factors()[0], now, &[Some(body)])
    };
    let reading = read(Provider::WattTime, "CAISO_NORTH", watttime).unwrap();
    assert!((reading.now.1.0 - 453.592_37).abs() < 1e-9);
    assert_eq!(
        (reading.factor, reading.issued),
        (Factor::Marginal, at("2026-11-20T12:15:00Z"))
    );
    assert!(
        read(Provider::WattTime, "PJM", watttime)
            .unwrap_err()
            .contains("CAISO_NORTH")
    );
    let uk = br#"{"data":[
        {"from":"2026-11-20T12:00Z","to":"2026-11-20T12:30Z","intensity":{"forecast":100,"actual":110,"index":"low"}},
        {"from":"2026-11-20T12:30Z","to":"2026-11-20T13:00Z","intensity":{"forecast":90,"actual":null,"index":"low"}}]}"#;
    let reading = read(Provider::Uk, "", uk).unwrap();
    assert_eq!(reading.now, (at("2026-11-20T12:00:00Z"), Intensity(110.0)));
    assert_eq!(reading.expected[1].1, Intensity(90.0));
    let asked = Provider::Uk.requests("", Factor::Direct, now);
    assert_eq!(asked[0].paths, ["/intensity/2026-11-20T12:20Z/fw48h"]);
    let sdk =
        br#"[{"generatedAt":"2026-11-20T12:15:00+00:00","optimalDataPoints":[],"forecastData":[
        {"location":"DE","timestamp":"2026-11-20T12:20:00+00:00","duration":5,"value":380.5},
        {"location":"DE","timestamp":"2026-11-20T12:25:00+00:00","duration":5,"value":370.0}]}]"#;
    let reading = read(Provider::CarbonAwareSdk, "westeurope", sdk).unwrap();
    assert_eq!(reading.now, (at("2026-11-20T12:20:00Z"), Intensity(380.5)));
    let asked = Provider::CarbonAwareSdk.requests("west europe", Factor::Marginal, now);
    assert_eq!(
        asked[0].paths,
        ["/emissions/forecasts/current?location=west%20europe"]
    );
}

/// Real answers, each hour of which has the fields of a latest one.
#[test]
fn recorded_answers_of_electricity_maps_are_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/carbon");
    for number in [1, 2] {
        let name = format!("electricitymaps_v3_history_sample_{number}.json");
        let Ok(text) = fs::read_to_string(folder.join(&name)) else {
            // Past the capture of a test's output, so that it is seen.
            let note = format!("SKIPPED: ../shared/carbon/{name} is absent\n");
            std::io::stderr().write_all(note.as_bytes()).unwrap();
            continue;
        };
        let history: serde_json::Value = serde_json::from_str(&text).unwrap();
        let zone = history["zone"].as_str().unwrap();
        let hours = history["history"].as_array().unwrap();
        assert_eq!(hours.len(), 24);
        let mut feed = Feed::new(SignedDuration::from_hours(2));
        for hour in hours {
            let body = hour.to_string();
            let read = maps(zone, Factor::Lifecycle, body.as_bytes(), None).unwrap();
            assert_eq!(read.now.1.0, hour["carbonIntensity"].as_f64().unwrap());
            let now = read.now.0 + SignedDuration::from_mins(20);
            feed.take(now, Ok(read.clone()));
            let current = feed.current(now).unwrap();
            assert_eq!((current.begin, current.health), (read.now.0, Health::Fresh));
        }
    }
}

fn reading(begin: &str, value: f64) -> Reading {
    Reading {
        factor: Factor::Direct,
        issued: at(begin),
        now: (at(begin), Intensity(value)),
        is_estimated: false,
        expected: Vec::new(),
    }
}

#[test]
fn a_feed_keeps_the_last_good_value_and_says_when_it_is_stale() {
    let mut feed = Feed::new(SignedDuration::from_hours(2));
    let noon = at("2026-11-20T12:00:00Z");
    assert!(feed.is_due(noon) && feed.current(noon).is_none());
    feed.take(noon, Err(Trouble::Refused("429".to_owned())));
    assert!(feed.current(noon).is_none(), "nothing is made up");
    feed.take(noon, Ok(reading("2026-11-20T12:00:00Z", 300.0)));
    let current = feed.current(noon).unwrap();
    assert_eq!(
        (current.intensity, current.health),
        (Intensity(300.0), Health::Fresh)
    );
    assert!(!feed.is_due(noon + SignedDuration::from_secs(59)));
    assert!(feed.is_due(noon + SignedDuration::from_secs(60)));
    let later = noon + SignedDuration::from_hours(3);
    feed.take(
        later,
        Err(Trouble::Away("no answer within 10 s".to_owned())),
    );
    let current = feed.current(later).unwrap();
    assert_eq!(current.intensity, Intensity(300.0));
    assert_eq!(
        current.health,
        Health::Stale("no answer within 10 s".to_owned())
    );
}

#[test]
fn failures_are_asked_again_later_and_later() {
    let mut feed = Feed::new(SignedDuration::from_hours(2));
    let mut now = at("2026-11-20T12:00:00Z");
    let pauses: Vec<i64> = (0..9)
        .map(|_| {
            feed.take(now, Err(Trouble::Refused("403".to_owned())));
            let pause = feed.next().duration_since(now).as_secs();
            now = feed.next();
            pause
        })
        .collect();
    assert_eq!(pauses, [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]);
    feed.take(now, Ok(reading("2026-11-20T14:00:00Z", 1.0)));
    assert_eq!(feed.next().duration_since(now).as_secs(), 60);
}

/// A provider that asks for a pause gets it, within reason, and never a shorter one than others.
#[test]
fn retry_after_is_respected() {
    let now = at("2026-11-20T12:00:00Z");
    for (asked, pause) in [
        (0, 30),
        (20, 30),
        (120, 120),
        (7200, 7200),
        (1_000_000, 86_400),
    ] {
        let mut feed = Feed::new(SignedDuration::from_hours(2));
        let limited = Trouble::Limited("429".to_owned(), SignedDuration::from_secs(asked));
        feed.take(now, Err(limited));
        assert_eq!(feed.next().duration_since(now).as_secs(), pause, "{asked}");
        let back = now - SignedDuration::from_hours(48);
        assert!(
            feed.is_due(back),
            "a clock that was set back does not silence the signal"
        );
    }
}

#[test]
fn a_value_that_jumps_in_time_is_not_taken() {
    let mut feed = Feed::new(SignedDuration::from_hours(2));
    let now = at("2026-11-20T12:30:00Z");
    feed.take(now, Ok(reading("2026-11-20T12:00:00Z", 300.0)));
    for wrong in [
        "2026-11-20T10:00:00Z",
        "2026-11-20T15:00:00Z",
        "1970-01-01T00:00:00Z",
    ] {
        feed.take(now, Ok(reading(wrong, 5.0)));
        assert!(matches!(feed.trouble(), Some(Trouble::Wrong(_))), "{wrong}");
        assert_eq!(feed.current(now).unwrap().intensity, Intensity(300.0));
    }
}

/// A value that was taken while the clock was a day ahead is no reason to refuse those of now once it is set back, and
/// is not taken for one of now.
#[test]
fn a_value_of_a_clock_that_was_set_back_is_let_go_of() {
    let mut feed = Feed::new(SignedDuration::from_hours(2));
    let ahead = at("2026-11-21T12:30:00Z");
    feed.take(ahead, Ok(reading("2026-11-21T12:00:00Z", 300.0)));
    let now = at("2026-11-20T12:30:00Z");
    assert!(feed.is_due(now));
    let current = feed.current(now).unwrap();
    assert!(matches!(current.health, Health::Stale(_)), "{current:?}");
    feed.take(now, Ok(reading("2026-11-20T12:00:00Z", 200.0)));
    let current = feed.current(now).unwrap();
    assert_eq!(
        (current.intensity, current.health),
        (Intensity(200.0), Health::Fresh)
    );
}

/// A value of hours ago is no observation of now: what was expected of now is.
#[test]
fn a_value_that_is_old_is_not_what_is_observed_now() {
    let hour = |hour: u32| at(&format!("2026-11-20T{hour:02}:00:00Z"));
    let mut old = reading("2026-11-20T12:00:00Z", 500.0);
    old.expected = (12..24)
        .map(|it| (hour(it), Intensity(f64::from(it))))
        .collect();
    let first = |now| old.outlook(now, Seconds(3600.0), 3)[0];
    assert_eq!(first(hour(13)).intensity, Intensity(500.0));
    let late = first(hour(18));
    assert_eq!(late.intensity, Intensity(18.0));
    assert_eq!(late.issued, old.issued);
}

/// Rates by the time of day hold for some hours each, and not all for as many.
#[test]
fn a_tariff_of_uneven_rates_is_a_signal_of_half_hours() {
    let now = at("2026-11-20T12:10:00Z");
    let body = br#"{"next":null,"results":[
      {"value_exc_vat":10.0,"valid_from":"2026-11-20T19:00:00Z","valid_to":null,"payment_method":null},
      {"value_exc_vat":40.0,"valid_from":"2026-11-20T16:00:00Z","valid_to":"2026-11-20T19:00:00Z","payment_method":null},
      {"value_exc_vat":20.0,"valid_from":"2026-11-20T05:30:00Z","valid_to":"2026-11-20T16:00:00Z","payment_method":null}]}"#;
    let tariff = Provider::Octopus
        .read("E-1R-X-A", Factor::Price, now, &[Some(body)])
        .unwrap();
    let outlook = tariff.outlook(now, Seconds(3600.0), 10);
    let prices: Vec<_> = outlook.iter().map(|it| it.intensity.0).collect();
    assert_eq!(prices[..3], [0.2, 0.2, 0.2]);
    assert!((prices[4] - 0.4).abs() < 1e-12, "{prices:?}");
    assert!((prices[8] - 0.1).abs() < 1e-12, "{prices:?}");
}
