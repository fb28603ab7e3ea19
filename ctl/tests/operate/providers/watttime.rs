//! WattTime, v3.
//!
//! Written from docs.watttime.org (its OpenAPI description and its samples) and from the guide from v2 to v3 that a
//! client's project keeps: GET /login with Basic gives a token for 30 minutes; /v3/forecast wants region and
//! signal_type; horizon_hours is 0 to 72, and 24 without it; points are five minutes apart, in pounds for each
//! megawatt-hour where the signal is co2_moer; a region without a subscription answers 403; more than 3,000 requests
//! in 5 minutes answer 429.

use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Provider, Reply, Request, Twist, floor, number, points};

/// `user:pass word` in Base64, for a password has more than letters.
pub const BASIC: &str = "Basic dXNlcjpwYXNzIHdvcmQ=";
pub const REGION: &str = "CAISO_NORTH";

/// A provider whose tokens serve for so many requests before they have expired.
pub fn provider(serves: usize) -> Provider {
    let (issued, used) = (AtomicUsize::new(0), AtomicUsize::new(0));
    Provider::new(move |request, twist| match request.path.as_str() {
        "/login" => {
            if request.header("authorization") != Some(BASIC) {
                return Reply::json(401, &json!({"detail": "Invalid username or password"}));
            }
            used.store(0, Ordering::SeqCst);
            let token = issued.fetch_add(1, Ordering::SeqCst) + 1;
            Reply::json(200, &json!({"token": format!("eyJ0.{token}.x")}))
        }
        "/v3/forecast" => {
            let token = format!("Bearer eyJ0.{}.x", issued.load(Ordering::SeqCst));
            let fresh = used.fetch_add(1, Ordering::SeqCst) < serves;
            if request.header("authorization") != Some(token.as_str()) || !fresh {
                return Reply::json(401, &json!({"detail": "Token has expired"}));
            }
            forecast(request, twist)
        }
        _ => Reply::json(404, &json!({"detail": "Not Found"})),
    })
}

fn forecast(request: &Request, twist: Twist) -> Reply {
    let (Some(region), Some(signal)) = (
        request.parameter("region"),
        request.parameter("signal_type"),
    ) else {
        return Reply::json(
            422,
            &json!({"detail": [{"msg": "Field required", "type": "missing"}]}),
        );
    };
    if region != REGION {
        return Reply::json(
            403,
            &json!({"detail": "You do not have access to this region"}),
        );
    }
    let horizon: usize = match request.parameter("horizon_hours").unwrap_or("24").parse() {
        Ok(hours) if hours <= 72 => hours,
        _ => {
            return Reply::json(
                422,
                &json!({"detail": [{"msg": "Input should be at most 72"}]}),
            );
        }
    };
    let units = match (signal, twist) {
        (_, Twist::WrongUnit) => "usd_per_mwh",
        ("co2_moer" | "co2_aoer", _) => "lbs_co2_per_mwh",
        _ => return Reply::json(422, &json!({"detail": [{"msg": "Unknown signal_type"}]})),
    };
    let start = floor(Timestamp::now(), 300);
    let rows = points(start, 300, (horizon * 12).max(1), twist);
    let generated = rows.first().map_or(start, |row| row.0);
    let rows = rows.iter().map(|&(time, value)| {
        json!({"point_time": time.to_string().replace('Z', "+00:00"), "value": number(value, twist)})
    });
    Reply::json(
        200,
        &json!({
            "data": rows.collect::<Vec<Value>>(),
            "meta": {
                "data_point_period_seconds": 300,
                "region": if twist == Twist::WrongZone { "PJM_NJ" } else { REGION },
                "warnings": [{"type": "EXAMPLE_WARNING", "message": "This is just an example"}],
                "signal_type": signal,
                "model": {"date": "2023-03-01"},
                "units": units,
                "generated_at_period_seconds": 300,
                "generated_at": generated.to_string().replace('Z', "+00:00"),
            },
        }),
    )
}
