//! Day-ahead prices of European bidding zones, by Energy-Charts (Fraunhofer ISE).
//!
//! Written from api.energy-charts.info and from what public clients read of it: no token; `bzn` is the bidding zone;
//! start and end are dates, times or seconds; the answer is of two lists of one length, unix_seconds and price, and
//! of a unit with spaces in it; prices go below zero, are null where there are none, and come every 15 minutes since
//! October 2025; a zone that it does not know answers 404 with a detail.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Provider, Reply, Twist, floor, number, points};

pub const ZONE: &str = "DE-LU";

/// A provider with prices from midnight on, for two days, every so many seconds.
pub fn provider(step: i64) -> Provider {
    Provider::new(move |request, twist| {
        if request.path != "/price" {
            return Reply::json(404, &json!({"detail": "Not Found"}));
        }
        match request.parameter("bzn").unwrap_or("DE-LU") {
            ZONE => {}
            _ => return Reply::json(404, &json!({"detail": "No content available"})),
        }
        let midnight = floor(Timestamp::now(), 86_400);
        let count = usize::try_from(172_800 / step).unwrap();
        let rows = points(midnight, step, count, twist);
        let seconds: Vec<i64> = rows.iter().map(|row| row.0.as_second()).collect();
        let prices: Vec<Value> = rows.iter().map(|row| number(row.1, twist)).collect();
        Reply::json(
            200,
            &json!({
                "license_info": "CC BY 4.0 (creativecommons.org/licenses/by/4.0) from Bundesnetzagentur | SMARD.de",
                "unix_seconds": seconds,
                "price": prices,
                "unit": if twist == Twist::WrongUnit { "EUR / therm" } else { "EUR / MWh" },
                "deprecated": false,
            }),
        )
    })
}
