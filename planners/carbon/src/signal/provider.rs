//! How each provider is asked.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

use super::{Reading, answer, price};
use crate::Factor;

/// The provider of the carbon intensity, or of the price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// Electricity Maps, version 3 of its interface.
    ElectricityMapsV3,
    /// The same, version 4.
    ElectricityMapsV4,
    /// WattTime, version 3: marginal.
    WattTime,
    /// National Grid ESO's Carbon Intensity for Great Britain, half-hourly.
    Uk,
    /// An own host of the Green Software Foundation's Carbon Aware SDK.
    CarbonAwareSdk,
    /// Electricity Maps' day-ahead prices, version 4.
    ElectricityMapsPrice,
    /// Day-ahead prices of Europe's bidding zones, by Energy-Charts of Fraunhofer ISE.
    EnergyCharts,
    /// The rates of a tariff of Octopus Energy in Great Britain, half-hourly.
    Octopus,
}

const HOUR: i64 = 3600;

/// How a provider knows who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// The provider has no forecast.
    None,
    /// A token in the header `auth-token`.
    Header,
    /// A user and a password, as `user:password`, for which it gives a token.
    Login,
}

/// A request. The answers of a provider's requests, in order, make a [`Reading`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// From `/` on, with the query. Where the provider refuses one, the next one is asked for instead.
    pub paths: Vec<String>,
    /// Whether the provider can do without: a forecast, which not every subscription has.
    pub is_optional: bool,
}

impl Request {
    fn needed(path: String) -> Self {
        Self {
            paths: vec![path],
            is_optional: false,
        }
    }
}

impl Provider {
    /// The providers.
    pub const ALL: [Self; 8] = [
        Self::ElectricityMapsV3,
        Self::ElectricityMapsV4,
        Self::WattTime,
        Self::Uk,
        Self::CarbonAwareSdk,
        Self::ElectricityMapsPrice,
        Self::EnergyCharts,
        Self::Octopus,
    ];

    /// Where it listens; the Carbon Aware SDK has no public host.
    #[must_use]
    pub fn url(self) -> Option<&'static str> {
        match self {
            Self::ElectricityMapsV3 | Self::ElectricityMapsV4 | Self::ElectricityMapsPrice => {
                Some("https://api.electricitymaps.com")
            }
            Self::WattTime => Some("https://api.watttime.org"),
            Self::Uk => Some("https://api.carbonintensity.org.uk"),
            Self::CarbonAwareSdk => None,
            Self::EnergyCharts => Some("https://api.energy-charts.info"),
            Self::Octopus => Some("https://api.octopus.energy"),
        }
    }

    /// How it knows who asks.
    #[must_use]
    pub fn auth(self) -> Auth {
        match self {
            Self::ElectricityMapsV3 | Self::ElectricityMapsV4 | Self::ElectricityMapsPrice => {
                Auth::Header
            }
            Self::WattTime => Auth::Login,
            Self::Uk | Self::CarbonAwareSdk | Self::EnergyCharts | Self::Octopus => Auth::None,
        }
    }

    /// Whether it must be told a zone.
    #[must_use]
    pub fn needs_zone(self) -> bool {
        self != Self::Uk
    }

    /// The provider's factors; the first is the default.
    #[must_use]
    pub fn factors(self) -> &'static [Factor] {
        match self {
            Self::ElectricityMapsV3 | Self::ElectricityMapsV4 => {
                &[Factor::Lifecycle, Factor::Direct]
            }
            Self::WattTime => &[Factor::Marginal],
            Self::Uk => &[Factor::Direct],
            Self::CarbonAwareSdk => &[Factor::Marginal, Factor::Direct, Factor::Lifecycle],
            Self::ElectricityMapsPrice | Self::EnergyCharts | Self::Octopus => &[Factor::Price],
        }
    }

    /// The requests for a zone at a moment.
    #[must_use]
    pub fn requests(self, zone: &str, factor: Factor, now: Timestamp) -> Vec<Request> {
        let zone = encoded(zone);
        let path = match self {
            Self::ElectricityMapsV3 | Self::ElectricityMapsV4 => {
                return self.of_electricity_maps(&zone, factor);
            }
            Self::WattTime => {
                format!("/v3/forecast?region={zone}&signal_type=co2_moer&horizon_hours=72")
            }
            Self::Uk => format!("/intensity/{}/fw48h", now.strftime("%Y-%m-%dT%H:%MZ")),
            Self::CarbonAwareSdk => format!("/emissions/forecasts/current?location={zone}"),
            Self::ElectricityMapsPrice => {
                format!("/v4/price-day-ahead/combined?zone={zone}&disableCallerLookup=true")
            }
            Self::EnergyCharts => {
                let (from, to) = (now.as_second() - HOUR, now.as_second() + 48 * HOUR);
                format!("/price?bzn={zone}&start={from}&end={to}")
            }
            Self::Octopus => {
                // A tariff's name is its product's with the kind of meter before and the region behind it.
                let product = zone.splitn(3, '-').nth(2).unwrap_or(&zone);
                let product = product
                    .rsplit_once('-')
                    .map_or(product, |(product, _)| product);
                let from = now.strftime("%Y-%m-%dT%H:00Z");
                format!(
                    "/v1/products/{product}/electricity-tariffs/{zone}/standard-unit-rates/\
                     ?period_from={from}&page_size=1500"
                )
            }
        };
        vec![Request::needed(path)]
    }

    /// Where the zone is not known it would answer for the caller's own, unless told not to. Not every subscription
    /// has a forecast of three days.
    fn of_electricity_maps(self, zone: &str, factor: Factor) -> Vec<Request> {
        let (version, here) = match self {
            Self::ElectricityMapsV3 => (3, "shouldUseFallbackCallerLookup=false"),
            _ => (4, "disableCallerLookup=true"),
        };
        let path = |what: &str| {
            format!(
                "/v{version}/carbon-intensity/{what}?zone={zone}&emissionFactorType={factor}&{here}"
            )
        };
        let forecast = path("forecast");
        vec![
            Request::needed(path("latest")),
            Request {
                paths: vec![format!("{forecast}&horizonHours=72"), forecast],
                is_optional: true,
            },
        ]
    }

    /// The path of an answer's next page, if the answer is a page of several.
    #[must_use]
    pub fn next_page(self, body: &[u8]) -> Option<String> {
        match self {
            Self::Octopus => price::octopus_next(body),
            _ => None,
        }
    }

    /// Reads the answers; an optional answer that failed is absent.
    ///
    /// # Errors
    /// In words: an answer is none of this provider's, of another zone, or has no value.
    pub fn read(
        self,
        zone: &str,
        factor: Factor,
        now: Timestamp,
        answers: &[Option<&[u8]>],
    ) -> Result<Reading, String> {
        let first = answers.first().copied().flatten();
        let first = first.ok_or("there is no answer")?;
        match self {
            Self::ElectricityMapsV3 | Self::ElectricityMapsV4 => {
                let forecast = answers.get(1).copied().flatten();
                answer::electricity_maps(zone, factor, first, forecast)
            }
            Self::WattTime => answer::watttime(zone, now, first),
            Self::Uk => answer::uk(now, first),
            Self::CarbonAwareSdk => answer::carbon_aware_sdk(zone, factor, now, first),
            Self::ElectricityMapsPrice => price::electricity_maps(zone, now, first),
            Self::EnergyCharts => price::energy_charts(now, first),
            Self::Octopus => price::octopus(now, answers),
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ElectricityMapsV3 => "electricity-maps-v3",
            Self::ElectricityMapsV4 => "electricity-maps-v4",
            Self::WattTime => "watttime",
            Self::Uk => "uk",
            Self::CarbonAwareSdk => "carbon-aware-sdk",
            Self::ElectricityMapsPrice => "electricity-maps-price",
            Self::EnergyCharts => "energy-charts",
            Self::Octopus => "octopus",
        })
    }
}

impl FromStr for Provider {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let meant = Self::ALL.into_iter().find(|it| it.to_string() == text);
        meant.ok_or_else(|| {
            let all = Self::ALL.map(|it| it.to_string());
            format!("must be one of {}", all.join(", "))
        })
    }
}

/// A zone as part of a query.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            true => encoded.push(char::from(byte)),
            false => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}
