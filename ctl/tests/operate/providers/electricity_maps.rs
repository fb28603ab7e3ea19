//! Electricity Maps, v3 and v4.
//!
//! Written from its API reference (static.electricitymap.org/api/docs, portal.electricitymaps.com/developer-hub),
//! from two recorded v3 histories, and from what a public project measured of v4 on 2026-08-22: v3 names the list
//! of a history `history`, v4 `data`; both name a forecast's `forecast`, whose rows have two fields; horizonHours is
//! 6, 24, 48 or 72, and 24 without it; a forecast of 72 hours has 73 rows; without a zone that it knows, the answer
//! is of the zone where the caller is, unless the caller forbids that; prices are of day-ahead auctions, and
//! `forecast` of prices wants start and end while `combined` gives 25 rows from the current hour on.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Provider, Reply, Request, Twist, day, floor, number, points};

pub const TOKEN: &str = "em-token";
pub const ZONE: &str = "US-CAL-CISO";

/// How much lower the direct factor is than the lifecycle one, here.
pub const DIRECT: f64 = 40.0;

/// A provider whose answers are of the time that it is now.
pub fn provider(version: &'static str) -> Provider {
    Provider::new(move |request, twist| answer(version, request, twist))
}

pub fn answer(version: &str, request: &Request, twist: Twist) -> Reply {
    let Some(path) = request.path.strip_prefix(&format!("/{version}/")) else {
        return Reply::text(404, "Cannot GET that");
    };
    match request.header("auth-token") {
        Some(TOKEN) => {}
        _ => return Reply::json(401, &json!({"error": "Invalid auth-token"})),
    }
    let zone = match request.parameter("zone") {
        Some(ZONE) => ZONE,
        Some("US-NW-PACW") => return Reply::text(403, "Access denied"),
        Some(_) => return Reply::json(404, &json!({"error": "Zone does not exist"})),
        // The caller's own zone, by the address that the request came from.
        None => "DK-DK2",
    };
    let zone = if twist == Twist::WrongZone {
        "DK-DK2"
    } else {
        zone
    };
    let factor = request
        .parameter("emissionFactorType")
        .unwrap_or("lifecycle");
    if !["lifecycle", "direct"].contains(&factor) {
        return Reply::json(400, &json!({"error": "Invalid emissionFactorType"}));
    }
    match path {
        "carbon-intensity/latest" => latest(zone, factor, twist),
        "carbon-intensity/history" => history(version, zone, factor, twist),
        "carbon-intensity/past-range" => past_range(request, zone, factor, twist),
        "carbon-intensity/forecast" => forecast(request, zone, factor, twist),
        "price-day-ahead/latest" => prices(zone, twist, 1, true),
        "price-day-ahead/combined" => prices(zone, twist, 25, false),
        "price-day-ahead/forecast" if request.parameter("start").is_none() => Reply::json(
            400,
            &json!({"error": "Missing or invalid date parameter \"start\""}),
        ),
        _ => Reply::text(404, "Cannot GET that"),
    }
}

fn hour() -> Timestamp {
    floor(Timestamp::now(), 3_600)
}

fn intensity(value: Option<f64>, factor: &str) -> Option<f64> {
    value.map(|value| {
        if factor == "direct" {
            value - DIRECT
        } else {
            value
        }
    })
}

fn row(zone: &str, factor: &str, time: Timestamp, value: Option<f64>, twist: Twist) -> Value {
    json!({
        "zone": zone,
        "carbonIntensity": number(intensity(value, factor), twist),
        "datetime": format!("{time:.3}"),
        "updatedAt": format!("{:.3}", Timestamp::now()),
        "createdAt": format!("{:.3}", Timestamp::from_second(time.as_second() - 258_000).unwrap()),
        "emissionFactorType": factor,
        "isEstimated": true,
        "estimationMethod": "TIME_SLICER_AVERAGE",
        "temporalGranularity": "hourly",
    })
}

fn latest(zone: &str, factor: &str, twist: Twist) -> Reply {
    match points(hour(), 3_600, 1, twist).first() {
        Some(&(time, value)) => Reply::json(200, &row(zone, factor, time, value, twist)),
        None => Reply::json(
            404,
            &json!({"error": format!("No recent data for zone \"{zone}\"")}),
        ),
    }
}

/// The last 24 hours, the current one among them.
fn history(version: &str, zone: &str, factor: &str, twist: Twist) -> Reply {
    let start = Timestamp::from_second(hour().as_second() - 23 * 3_600).unwrap();
    let rows = points(start, 3_600, 24, twist);
    let rows: Vec<Value> = rows
        .iter()
        .map(|&(time, value)| row(zone, factor, time, value, twist))
        .collect();
    let list = if version == "v3" { "history" } else { "data" };
    Reply::json(200, &json!({"zone": zone, list: rows}))
}

/// Hours of a range, the end not among them, of at most ten days.
fn past_range(request: &Request, zone: &str, factor: &str, twist: Twist) -> Reply {
    let time = |name: &str| request.parameter(name)?.parse::<Timestamp>().ok();
    let (Some(start), Some(end)) = (time("start"), time("end")) else {
        return Reply::json(
            400,
            &json!({"error": "Missing or invalid date parameter \"start\""}),
        );
    };
    let hours = (end.as_second() - start.as_second()) / 3_600;
    if !(0..=240).contains(&hours) {
        return Reply::json(
            400,
            &json!({"error": "Time range exceeds the limit of 10 days"}),
        );
    }
    let rows = points(
        floor(start, 3_600),
        3_600,
        usize::try_from(hours).unwrap(),
        twist,
    );
    let rows: Vec<Value> = rows
        .iter()
        .map(|&(time, value)| row(zone, factor, time, value, twist))
        .collect();
    Reply::json(200, &json!({"zone": zone, "data": rows}))
}

fn forecast(request: &Request, zone: &str, factor: &str, twist: Twist) -> Reply {
    let hours = match request.parameter("horizonHours").unwrap_or("24") {
        "6" => 6,
        "24" => 24,
        "48" => 48,
        "72" => 72,
        _ => {
            return Reply::json(
                400,
                &json!({"error": "horizonHours must be one of 6, 24, 48, 72"}),
            );
        }
    };
    let rows = points(hour(), 3_600, hours + 1, twist);
    let rows = rows.iter().map(|&(time, value)| {
        let value = number(intensity(value, factor), twist);
        json!({"carbonIntensity": value, "datetime": format!("{time:.3}")})
    });
    let updated = floor(Timestamp::now(), 60);
    Reply::json(
        200,
        &json!({
            "zone": zone,
            "forecast": rows.collect::<Vec<Value>>(),
            "updatedAt": format!("{updated:.3}"),
            "temporalGranularity": "hourly",
        }),
    )
}

/// The price of a megawatt-hour at a time, here: 5 to 28 EUR, and below nothing at noon.
pub fn price(time: Timestamp) -> f64 {
    let hour = time.as_second().rem_euclid(86_400) / 3_600;
    if hour == 12 {
        -3.5
    } else {
        day(time) / 10.0 - 5.0
    }
}

fn prices(zone: &str, twist: Twist, count: usize, bare: bool) -> Reply {
    let unit = if twist == Twist::WrongUnit {
        "bananas"
    } else {
        "EUR/MWh"
    };
    let rows = points(hour(), 3_600, count, twist);
    let rows = rows.iter().map(|&(time, value)| {
        let value = value.map(|value| {
            if value == day(time) {
                price(time)
            } else {
                value
            }
        });
        json!({
            "zone": zone,
            "datetime": format!("{time:.3}"),
            "createdAt": format!("{:.3}", hour()),
            "updatedAt": format!("{:.3}", hour()),
            "value": number(value, twist),
            "unit": unit,
            "source": "nordpool.com",
            "temporalGranularity": "hourly",
        })
    });
    let mut rows: Vec<Value> = rows.collect();
    if bare {
        return Reply::json(200, &rows.pop().unwrap_or(Value::Null));
    }
    Reply::json(
        200,
        &json!({"zone": zone, "data": rows, "temporalGranularity": "hourly"}),
    )
}
