//! The Carbon Intensity API for Great Britain.
//!
//! Written from carbon-intensity.github.io/api-definitions and from an answer that a public project keeps: no token;
//! times are YYYY-MM-DDThh:mmZ; `fw48h` begins with the half hour that ends at the time asked for (an answer to
//! 21:00 begins at 20:30); `actual` is null for what lies ahead and may lag behind; a time that is none answers 400.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Provider, Reply, Twist, floor, number, points};

pub fn provider() -> Provider {
    Provider::new(|request, twist| {
        let parts: Vec<&str> = request.path.trim_matches('/').split('/').collect();
        match parts[..] {
            ["intensity"] => rows(Timestamp::now(), 1, twist),
            ["intensity", from, "fw24h"] => within(from, 48, twist),
            ["intensity", from, "fw48h"] => within(from, 96, twist),
            _ => refused(),
        }
    })
}

fn refused() -> Reply {
    let message =
        "Please enter a valid date in ISO8601 format i.e. /intensity/2017-08-25T15:30Z/fw24h";
    Reply::json(
        400,
        &json!({"error": {"code": "400 Bad Request", "message": message}}),
    )
}

fn within(from: &str, count: usize, twist: Twist) -> Reply {
    // Seconds may be left out, which is no RFC 3339.
    let whole = match from.len() {
        17 => from.replace('Z', ":00Z"),
        _ => from.to_owned(),
    };
    match whole.parse() {
        Ok(from) => rows(from, count, twist),
        Err(_) => refused(),
    }
}

fn rows(from: Timestamp, count: usize, twist: Twist) -> Reply {
    let start = floor(Timestamp::from_second(from.as_second() - 1).unwrap(), 1_800);
    let now = Timestamp::now();
    let brief = |second: i64| {
        let time = Timestamp::from_second(second).unwrap().to_string();
        format!("{}Z", &time[..16])
    };
    let rows = points(start, 1_800, count, twist);
    let rows = rows.iter().map(|&(time, value)| {
        let ended = time.as_second() + 1_800 <= now.as_second();
        // The measured value, if there is one, is 3 g above the forecast.
        let actual = value.filter(|_| ended).map(|value| value + 3.0);
        json!({
            "from": brief(time.as_second()),
            "to": brief(time.as_second() + 1_800),
            "intensity": {
                "forecast": number(value, twist),
                "actual": number(actual, twist),
                "index": "moderate",
            },
        })
    });
    Reply::json(200, &json!({"data": rows.collect::<Vec<Value>>()}))
}
