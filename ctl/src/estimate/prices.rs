//! Prices of power and time: from the command line, or from litd's configuration.

use std::path::Path;
use std::str::FromStr;

use litd_units::Prices;

/// `kwh=0.14,gpu_hour=2.5`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price(pub Prices);

impl FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} must be such as kwh=0.14,gpu_hour=2.50, both in one currency");
        let (mut kwh, mut gpu_hour) = (None, None);
        for pair in text.split(',') {
            let (key, value) = pair.trim().split_once('=').ok_or_else(wrong)?;
            let value = value
                .trim()
                .parse::<f64>()
                .ok()
                .filter(|it| (0.0..1e6).contains(it));
            let value = Some(value.ok_or_else(wrong)?);
            match key.trim() {
                "kwh" => kwh = value,
                "gpu_hour" => gpu_hour = value,
                _ => return Err(wrong()),
            }
        }
        match (kwh, gpu_hour) {
            (Some(energy_per_kwh), Some(gpu_hour)) => Ok(Self(Prices {
                energy_per_kwh,
                gpu_hour,
            })),
            _ => Err(wrong()),
        }
    }
}

/// `[prices]` of a litd.toml.
///
/// # Errors
/// The file can't be read, or has no such section with both prices.
pub fn configured(path: &Path) -> Result<Prices, String> {
    let name = path.display();
    let text = litd_files::text(path, litd_files::LONGEST_CONFIG);
    let text = text.map_err(|error| format!("{name}: {error}"))?;
    let table: toml::Table = text.parse().map_err(|error| format!("{name}: {error}"))?;
    let price = |key: &str| {
        let value = table.get("prices").and_then(|it| it.get(key));
        let value = value.and_then(|it| {
            it.as_float()
                .or_else(|| it.as_integer().map(|it| it as f64))
        });
        let value = value.filter(|it| (0.0..1e6).contains(it));
        value.ok_or_else(|| format!("{name}: prices.{key} is missing, or no price"))
    };
    Ok(Prices {
        energy_per_kwh: price("energy_per_kwh")?,
        gpu_hour: price("gpu_hour")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_prices_or_none() {
        let prices = Prices {
            energy_per_kwh: 0.14,
            gpu_hour: 2.5,
        };
        assert_eq!("kwh=0.14, gpu_hour=2.50".parse(), Ok(Price(prices)));
        for wrong in [
            "",
            "0.14",
            "kwh=0.14",
            "kwh=-1,gpu_hour=2",
            "kwh=NaN,gpu_hour=2",
            "kwh=1,gpu_hour=2,x=3",
        ] {
            assert!(wrong.parse::<Price>().is_err(), "{wrong}");
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("litd.toml");
        std::fs::write(&path, "[prices]\nenergy_per_kwh = 0.14\ngpu_hour = 2.5\n").unwrap();
        assert_eq!(configured(&path), Ok(prices));
        std::fs::write(&path, "[prices]\ngpu_hour = 2\n").unwrap();
        assert!(
            configured(&path)
                .unwrap_err()
                .contains("prices.energy_per_kwh is missing")
        );
    }
}
