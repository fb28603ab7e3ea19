//! The web API of the Carbon Aware SDK, on somebody's own host.
//!
//! Written from the SDK's documentation of its web API: the answer is a list with one forecast for each location
//! asked for; `location` is the name that was asked for and each point's is the grid's own; `duration` is in minutes;
//! times are .NET's, with an offset and up to seven digits; a location that it does not know answers 400 with a
//! problem document; a data source without forecasts answers 501.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Provider, Reply, Request, Twist, floor, number, points};

pub const LOCATION: &str = "northeurope";

/// A provider whose source has points every so many minutes.
pub fn provider(minutes: i64) -> Provider {
    Provider::new(move |request, twist| match request.path.as_str() {
        "/emissions/forecasts/current" => forecast(request, minutes, twist),
        _ => Reply::text(404, ""),
    })
}

fn problem(status: u16, title: &str) -> Reply {
    let problem = json!({
        "type": "https://tools.ietf.org/html/rfc9110#section-15.5.1",
        "title": title,
        "status": status,
        "traceId": "00-0f2cc4fe43f0a5d1ff2d9e2cb0a4b0f7-5b1f4f5a1c2b3d4e-00",
    });
    Reply {
        kind: "application/problem+json; charset=utf-8",
        ..Reply::json(status, &problem)
    }
}

fn forecast(request: &Request, minutes: i64, twist: Twist) -> Reply {
    let asked: Vec<&str> = request
        .query
        .iter()
        .filter(|(key, _)| key == "location")
        .map(|(_, value)| value.as_str())
        .collect();
    match asked[..] {
        [] => return problem(400, "One or more validation errors occurred."),
        [LOCATION] => {}
        ["nowhere"] => return problem(501, "NotImplementedException"),
        _ => return problem(400, "ArgumentException"),
    }
    let net = |time: Timestamp| time.to_string().replace('Z', "+00:00");
    let step = minutes * 60;
    let start = floor(Timestamp::now(), step);
    let count = usize::try_from(24 * 3_600 / step).unwrap();
    let rows = points(start, step, count, twist);
    let rows: Vec<Value> = rows
        .iter()
        .map(|&(time, value)| {
            json!({"location": "IE", "timestamp": net(time), "duration": minutes, "value": number(value, twist)})
        })
        .collect();
    let whole = json!([{
        "generatedAt": format!("{}.5092741+00:00", &start.to_string()[..19]),
        "requestedAt": net(Timestamp::now()),
        "location": if twist == Twist::WrongZone { "westeurope" } else { LOCATION },
        "dataStartAt": net(start),
        "dataEndAt": net(Timestamp::from_second(start.as_second() + 86_400).unwrap()),
        "windowSize": minutes,
        "optimalDataPoints": rows.first().map(|row| vec![row.clone()]),
        "forecastData": rows,
    }]);
    Reply::json(200, &whole)
}
