//! Unit rates of a tariff, by Octopus Energy.
//!
//! Written from developer.octopus.energy/rest: no token for rates; half-hourly rates in pence for each kilowatt-hour,
//! newest first, without and with tax; a page has 100 rates unless page_size says otherwise, and `next` is the
//! address of the next page or null; valid_to is null for a rate without an end; an unknown tariff answers 404.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Provider, Reply, Request, Twist, floor, number, points};

pub const PRODUCT: &str = "AGILE-24-10-01";
pub const TARIFF: &str = "E-1R-AGILE-24-10-01-C";

/// A provider whose pages have so many rates at most, whatever is asked for.
pub fn provider(page: usize) -> Provider {
    Provider::new(move |request, twist| {
        let path =
            format!("/v1/products/{PRODUCT}/electricity-tariffs/{TARIFF}/standard-unit-rates/");
        match request.path == path {
            true => rates(request, page, twist),
            false => Reply::json(404, &json!({"detail": "Not found."})),
        }
    })
}

fn rates(request: &Request, page: usize, twist: Twist) -> Reply {
    let start = match request
        .parameter("period_from")
        .map(str::parse::<Timestamp>)
    {
        Some(Ok(from)) => floor(from, 1_800),
        Some(Err(_)) => {
            return Reply::json(400, &json!({"period_from": ["Enter a valid date/time."]}));
        }
        None => floor(Timestamp::now(), 86_400),
    };
    let mut rows = points(start, 1_800, 70, twist);
    rows.reverse();
    let asked = request
        .parameter("page")
        .and_then(|page| page.parse().ok())
        .unwrap_or(1_usize)
        .max(1);
    let chosen = rows.iter().skip((asked - 1) * page).take(page);
    let results: Vec<Value> = chosen
        .map(|&(time, value)| {
            let end = Timestamp::from_second(time.as_second() + 1_800).unwrap();
            json!({
                "value_exc_vat": number(value.map(|value| value / 10.0), twist),
                "value_inc_vat": number(value.map(|value| value / 10.0 * 1.05), twist),
                "valid_from": time.to_string(),
                "valid_to": end.to_string(),
                "payment_method": null,
            })
        })
        .collect();
    let host = request.header("host").unwrap_or("api.octopus.energy");
    let from = start.to_string().replace(':', "%3A");
    let next = format!(
        "http://{host}{}?page={}&period_from={from}",
        request.path,
        asked + 1
    );
    Reply::json(
        200,
        &json!({
            "count": rows.len(),
            "next": (asked * page < rows.len()).then_some(next),
            "previous": null,
            "results": results,
        }),
    )
}
