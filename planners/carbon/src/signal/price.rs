//! Reads the answers of providers of prices. Prices are money for each kilowatt-hour, in the currency of the
//! market.

use jiff::Timestamp;
use litd_units::Intensity;
use serde::Deserialize;

use super::Reading;
use super::answer::{parse, reading, same_zone};
use crate::Factor;
use crate::time::{at, moment};

/// No market has more, above or below nothing, for a kilowatt-hour: the bounds of Europe's are at 15.
const MOST: f64 = 100.0;
/// Half an hour, in seconds: the rates of Octopus change then.
const HALF_HOUR: i64 = 1800;
/// A rate without an end is taken to hold for two days, in seconds.
const AHEAD: i64 = 48 * 3600;

fn possible(price: f64) -> Result<Intensity, String> {
    match price.abs() <= MOST {
        true => Ok(Intensity(price)),
        false => Err(format!("a price of {price} per kWh is not possible")),
    }
}

/// How many kilowatt-hours a price of this unit is for: "EUR/MWh", "EUR / MWh".
fn kilowatt_hours(unit: Option<&str>) -> Result<f64, String> {
    let unit = unit.ok_or("the answer does not name the unit of its prices")?;
    let (_, energy) = unit.split_once('/').unwrap_or((unit, ""));
    match energy.trim() {
        "MWh" => Ok(1000.0),
        "kWh" => Ok(1.0),
        _ => Err(format!(
            "prices are in {unit:?}, and those per MWh or kWh are known"
        )),
    }
}

#[derive(Deserialize)]
struct Combined {
    zone: Option<String>,
    unit: Option<String>,
    data: Vec<Hour>,
}

#[derive(Deserialize)]
struct Hour {
    datetime: String,
    value: Option<f64>,
    unit: Option<String>,
}

pub fn electricity_maps(zone: &str, now: Timestamp, body: &[u8]) -> Result<Reading, String> {
    let answer: Combined = parse(body)?;
    same_zone(zone, answer.zone.as_deref())?;
    let steps = answer.data.iter().map(|hour| {
        let value = match hour.value {
            Some(value) => {
                let unit = hour.unit.as_deref().or(answer.unit.as_deref());
                Some(possible(value / kilowatt_hours(unit)?)?)
            }
            None => None,
        };
        Ok((moment(&hour.datetime)?, value))
    });
    let steps = steps.collect::<Result<_, String>>()?;
    reading(Factor::Price, None, now, &steps)
}

#[derive(Deserialize)]
struct EnergyCharts {
    unix_seconds: Vec<i64>,
    price: Vec<Option<f64>>,
    unit: Option<String>,
}

pub fn energy_charts(now: Timestamp, body: &[u8]) -> Result<Reading, String> {
    let answer: EnergyCharts = parse(body)?;
    let (times, prices) = (answer.unix_seconds.len(), answer.price.len());
    if times != prices {
        return Err(format!("the answer has {times} times and {prices} prices"));
    }
    let each = kilowatt_hours(answer.unit.as_deref())?;
    let steps = answer.unix_seconds.iter().zip(&answer.price);
    let steps = steps.map(|(second, price)| {
        let price = price.map(|price| possible(price / each)).transpose()?;
        Ok((at(*second), price))
    });
    let steps = steps.collect::<Result<_, String>>()?;
    reading(Factor::Price, None, now, &steps)
}

#[derive(Deserialize)]
struct Rates {
    next: Option<String>,
    results: Vec<Rate>,
}

#[derive(Deserialize)]
struct Rate {
    /// Pence for each kilowatt-hour, without tax.
    value_exc_vat: Option<f64>,
    valid_from: String,
    valid_to: Option<String>,
    payment_method: Option<String>,
}

/// The path of the next page, wherever the answer says that its host is.
pub fn octopus_next(body: &[u8]) -> Option<String> {
    let rates: Rates = serde_json::from_slice(body).ok()?;
    let (_, rest) = rates.next.as_ref()?.split_once("://")?;
    let path = &rest[rest.find('/')?..];
    // The zone as part of a request line.
    path.bytes()
        .all(|byte| byte.is_ascii_graphic())
        .then(|| path.to_owned())
}

/// The half-hours in which a rate holds, from the one that has begun on: rates of a tariff by the time of day hold for
/// some hours each, and steps that are not alike can't be planned with. One that has ended is of no use but to show
/// that the provider has nothing newer.
fn half_hours(
    begin: Timestamp,
    end: Option<Timestamp>,
    now: Timestamp,
) -> impl Iterator<Item = Timestamp> {
    let current = now.as_second() - now.as_second().rem_euclid(HALF_HOUR);
    let last = current + AHEAD;
    let end = end.map_or(last, |end| end.as_second().min(last));
    let begin = begin.as_second();
    let from = match begin < current && end > current {
        true => current,
        false => begin,
    };
    let to = if from < current { from + 1 } else { end };
    (from..to).step_by(HALF_HOUR as usize).map(at)
}

pub fn octopus(now: Timestamp, pages: &[Option<&[u8]>]) -> Result<Reading, String> {
    let mut steps = Vec::new();
    for page in pages.iter().flatten() {
        let page: Rates = parse(page)?;
        for rate in page.results {
            // The same rate for those who pay in another way.
            if rate.payment_method.as_deref() == Some("NON_DIRECT_DEBIT") {
                continue;
            }
            let begin = moment(&rate.valid_from)?;
            let end = rate.valid_to.as_deref().map(moment).transpose()?;
            let price = rate
                .value_exc_vat
                .map(|pence| possible(pence / 100.0))
                .transpose()?;
            steps.extend(half_hours(begin, end, now).map(|begin| (begin, price)));
        }
    }
    // The newest comes first.
    steps.sort_by_key(|(begin, _)| *begin);
    reading(Factor::Price, None, now, &steps)
}
