//! How each provider is asked.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

use super::{Reading, answer};
use crate::Factor;

/// Who tells the carbon intensity.
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
}

/// How a provider knows who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// It does not.
    None,
    /// A token in the header `auth-token`.
    Header,
    /// A user and a password, as `user:password`, for which it gives a token.
    Login,
}

/// A request: a path with its query. The answers of a provider's requests, in order, make a [`Reading`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// From `/` on.
    pub path: String,
    /// Whether the provider can do without: a forecast, which not every subscription has.
    pub is_optional: bool,
}

impl Provider {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::ElectricityMapsV3,
        Self::ElectricityMapsV4,
        Self::WattTime,
        Self::Uk,
        Self::CarbonAwareSdk,
    ];

    /// Where it listens; the Carbon Aware SDK has no public host.
    #[must_use]
    pub fn url(self) -> Option<&'static str> {
        match self {
            Self::ElectricityMapsV3 | Self::ElectricityMapsV4 => {
                Some("https://api.electricitymaps.com")
            }
            Self::WattTime => Some("https://api.watttime.org"),
            Self::Uk => Some("https://api.carbonintensity.org.uk"),
            Self::CarbonAwareSdk => None,
        }
    }

    /// How it knows who asks.
    #[must_use]
    pub fn auth(self) -> Auth {
        match self {
            Self::ElectricityMapsV3 | Self::ElectricityMapsV4 => Auth::Header,
            Self::WattTime => Auth::Login,
            Self::Uk | Self::CarbonAwareSdk => Auth::None,
        }
    }

    /// Whether it must be told a zone.
    #[must_use]
    pub fn needs_zone(self) -> bool {
        self != Self::Uk
    }

    /// Which factors it has; the first one if none is asked for.
    #[must_use]
    pub fn factors(self) -> &'static [Factor] {
        match self {
            Self::ElectricityMapsV3 | Self::ElectricityMapsV4 => {
                &[Factor::Lifecycle, Factor::Direct]
            }
            Self::WattTime => &[Factor::Marginal],
            Self::Uk => &[Factor::Direct],
            Self::CarbonAwareSdk => &[Factor::Marginal, Factor::Direct, Factor::Lifecycle],
        }
    }

    /// What to ask for a zone at a moment.
    #[must_use]
    pub fn requests(self, zone: &str, factor: Factor, now: Timestamp) -> Vec<Request> {
        let zone = encoded(zone);
        let needed = |path: String| Request {
            path,
            is_optional: false,
        };
        match self {
            Self::ElectricityMapsV3 | Self::ElectricityMapsV4 => {
                let version = if self == Self::ElectricityMapsV3 {
                    3
                } else {
                    4
                };
                let path = |what: &str| {
                    format!(
                        "/v{version}/carbon-intensity/{what}?zone={zone}&emissionFactorType={factor}"
                    )
                };
                let forecast = Request {
                    path: path("forecast"),
                    is_optional: true,
                };
                vec![needed(path("latest")), forecast]
            }
            Self::WattTime => vec![needed(format!(
                "/v3/forecast?region={zone}&signal_type=co2_moer&horizon_hours=72"
            ))],
            Self::Uk => {
                let now = now.strftime("%Y-%m-%dT%H:%MZ");
                vec![needed(format!("/intensity/{now}/fw48h"))]
            }
            Self::CarbonAwareSdk => {
                vec![needed(format!(
                    "/emissions/forecasts/current?location={zone}"
                ))]
            }
        }
    }

    /// What the answers say; one that is optional and failed is absent.
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
