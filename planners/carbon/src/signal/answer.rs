//! Reads providers' answers.

use jiff::Timestamp;
use litd_units::Intensity;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Reading;
use crate::Factor;
use crate::time::moment;

/// A pound in grams, and a megawatt-hour in kilowatt-hours.
const POUNDS_PER_MWH: f64 = 453.592_37 / 1000.0;
/// No grid emits more for a kilowatt-hour: burning lignite for nothing else emits a tenth of it.
const MOST_GRAMS: f64 = 10_000.0;

/// The steps of an answer: where each begins, and its value where it has one.
type Steps = Vec<(Timestamp, Option<Intensity>)>;

pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body)
        .map_err(|error| format!("the answer is not as documented: {error}"))
}

/// A number that can be an intensity; nothing where the provider has none.
fn possible(value: Option<f64>) -> Result<Option<Intensity>, String> {
    match value {
        Some(value) if (0.0..=MOST_GRAMS).contains(&value) => Ok(Some(Intensity(value))),
        Some(value) => Err(format!("an intensity of {value} g/kWh is not possible")),
        None => Ok(None),
    }
}

pub(super) fn same_zone(asked: &str, answered: Option<&str>) -> Result<(), String> {
    match answered {
        Some(answered) if answered != asked => Err(format!(
            "the answer is of zone {answered:?}, and {asked:?} was asked for"
        )),
        _ => Ok(()),
    }
}

/// Takes steps in order of time only; those without a value are left out.
fn in_order(steps: &Steps) -> Result<Vec<(Timestamp, Intensity)>, String> {
    for pair in steps.windows(2) {
        let (before, after) = (pair[0].0, pair[1].0);
        if after <= before {
            return Err(format!(
                "the answer's times jump back: {after} comes after {before}"
            ));
        }
    }
    let known = steps
        .iter()
        .filter_map(|(begin, value)| Some((*begin, (*value)?)));
    Ok(known.collect())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Latest {
    zone: Option<String>,
    carbon_intensity: Option<f64>,
    datetime: String,
    #[serde(default)]
    updated_at: Option<String>,
    #[serde(default)]
    emission_factor_type: Option<String>,
    #[serde(default)]
    is_estimated: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Forecast {
    zone: Option<String>,
    #[serde(default)]
    forecast: Vec<Expected>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expected {
    carbon_intensity: Option<f64>,
    datetime: String,
}

pub fn electricity_maps(
    zone: &str,
    factor: Factor,
    latest: &[u8],
    forecast: Option<&[u8]>,
) -> Result<Reading, String> {
    let latest: Latest = parse(latest)?;
    same_zone(zone, latest.zone.as_deref())?;
    let answered = latest.emission_factor_type.as_deref();
    if answered.is_some_and(|answered| answered != factor.to_string()) {
        let answered = answered.unwrap_or_default();
        return Err(format!(
            "the answer has the {answered} factor, and {factor} was asked for"
        ));
    }
    let begin = moment(&latest.datetime)?;
    let issued = latest.updated_at.as_deref().map(moment).transpose()?;
    let mut expected = Vec::new();
    if let Some(forecast) = forecast {
        let forecast: Forecast = parse(forecast)?;
        same_zone(zone, forecast.zone.as_deref())?;
        let steps = forecast.forecast.iter().map(|step| {
            let value = possible(step.carbon_intensity)?;
            Ok((moment(&step.datetime)?, value))
        });
        expected = in_order(&steps.collect::<Result<Steps, String>>()?)?;
    }
    let value = possible(latest.carbon_intensity)?;
    Ok(Reading {
        factor,
        issued: issued.unwrap_or(begin),
        now: (begin, value.ok_or("the answer has no value")?),
        is_estimated: latest.is_estimated,
        expected,
    })
}

#[derive(Deserialize)]
struct WattTime {
    data: Vec<Moer>,
    #[serde(default)]
    meta: Meta,
}

#[derive(Deserialize)]
struct Moer {
    point_time: String,
    value: Option<f64>,
}

#[derive(Default, Deserialize)]
struct Meta {
    region: Option<String>,
    signal_type: Option<String>,
    generated_at: Option<String>,
    units: Option<String>,
}

pub fn watttime(region: &str, now: Timestamp, body: &[u8]) -> Result<Reading, String> {
    let answer: WattTime = parse(body)?;
    let meta = answer.meta;
    same_zone(region, meta.region.as_deref())?;
    let known = [
        (meta.units, "lbs_co2_per_mwh"),
        (meta.signal_type, "co2_moer"),
    ];
    for (said, known) in known {
        if let Some(said) = said.filter(|it| it != known) {
            return Err(format!(
                "the answer's values are {said:?}, and {known:?} is known"
            ));
        }
    }
    let steps = answer.data.iter().map(|step| {
        // The bound is of grams.
        let value = possible(step.value.map(|value| value * POUNDS_PER_MWH))?;
        Ok((moment(&step.point_time)?, value))
    });
    let issued = meta.generated_at.as_deref().map(moment).transpose()?;
    let steps = steps.collect::<Result<_, String>>()?;
    reading(Factor::Marginal, issued, now, &steps)
}

#[derive(Deserialize)]
struct Uk {
    data: Vec<HalfHour>,
}

#[derive(Deserialize)]
struct HalfHour {
    from: String,
    intensity: UkIntensity,
}

#[derive(Deserialize)]
struct UkIntensity {
    forecast: Option<f64>,
    actual: Option<f64>,
}

pub fn uk(now: Timestamp, body: &[u8]) -> Result<Reading, String> {
    let answer: Uk = parse(body)?;
    let steps = answer.data.iter().map(|step| {
        let value = step.intensity.actual.or(step.intensity.forecast);
        Ok((moment(&step.from)?, possible(value)?))
    });
    let steps = steps.collect::<Result<_, String>>()?;
    reading(Factor::Direct, Some(now), now, &steps)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sdk {
    generated_at: Option<String>,
    location: Option<String>,
    #[serde(default)]
    forecast_data: Vec<SdkStep>,
}

#[derive(Deserialize)]
struct SdkStep {
    #[serde(default)]
    location: Option<String>,
    timestamp: String,
    value: Option<f64>,
}

pub fn carbon_aware_sdk(
    location: &str,
    factor: Factor,
    now: Timestamp,
    body: &[u8],
) -> Result<Reading, String> {
    let mut answer: Vec<Sdk> = parse(body)?;
    let first = match answer.is_empty() {
        true => return Err("the answer has no forecast".to_owned()),
        false => answer.swap_remove(0),
    };
    same_zone(location, first.location.as_deref())?;
    // The answer's steps have the region of the SDK's own provider, which need not be the location asked for;
    // within one answer it must be one.
    let places = || {
        first
            .forecast_data
            .iter()
            .filter_map(|it| it.location.as_deref())
    };
    if let Some(place) = places().next()
        && let Some(other) = places().find(|it| *it != place)
    {
        return Err(format!(
            "the answer for {location:?} has values of {place:?} and of {other:?}"
        ));
    }
    let steps = first.forecast_data.iter().map(|step| {
        let value = possible(step.value)?;
        Ok((moment(&step.timestamp)?, value))
    });
    let issued = first.generated_at.as_deref().map(moment).transpose()?;
    let steps = steps.collect::<Result<_, String>>()?;
    reading(factor, issued, now, &steps)
}

/// A reading of steps one of which holds now.
pub(super) fn reading(
    factor: Factor,
    issued: Option<Timestamp>,
    now: Timestamp,
    steps: &Steps,
) -> Result<Reading, String> {
    let steps = in_order(steps)?;
    let begun = steps.iter().rposition(|(begin, _)| *begin <= now);
    // A forecast may begin with the next step.
    let at = begun.unwrap_or(0);
    let Some(&current) = steps.get(at) else {
        return Err("the answer has no value".to_owned());
    };
    Ok(Reading {
        factor,
        issued: issued.unwrap_or(now),
        now: current,
        is_estimated: true,
        expected: steps[at..].to_vec(),
    })
}
