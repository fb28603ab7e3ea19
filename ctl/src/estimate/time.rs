//! Moments as telemetry writes them.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Numbers above these are milliseconds, microseconds and nanoseconds: as seconds they would be later than the
/// year 5138.
const UNITS: [(f64, f64); 4] = [(1e11, 1e3), (1e14, 1.0), (1e17, 1e-3), (1e20, 1e-6)];

/// Milliseconds since the epoch: Unix seconds (or milliseconds, microseconds, nanoseconds, which are much
/// larger), RFC 3339, or what nvidia-smi writes. A date without a zone is taken for one of UTC: only
/// differences count.
pub fn moment(text: &str) -> Option<i64> {
    if let Ok(number) = text.parse::<f64>() {
        let unit = UNITS.iter().find(|it| number.abs() < it.0)?;
        return Some((number * unit.1).round() as i64);
    }
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Some(moment.as_millisecond());
    }
    let civil = match text.contains('/') {
        true => text.replace('/', "-").parse::<DateTime>(),
        false => text.parse::<DateTime>(),
    };
    let moment = civil.ok()?.to_zoned(TimeZone::UTC).ok()?;
    Some(moment.timestamp().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_writers_mean_the_same_moment() {
        for text in [
            "1715126400.25",
            "1715126400250",
            "1715126400250000",
            "1715126400250000000",
            "2024-05-08T00:00:00.25Z",
            "2024-05-08T02:00:00.25+02:00",
            "2024/05/08 00:00:00.250",
            "2024-05-08 00:00:00.25",
        ] {
            assert_eq!(moment(text), Some(1_715_126_400_250), "{text}");
        }
        for text in [
            "",
            "NaN",
            "inf",
            "yesterday",
            "2024-13-01T00:00:00Z",
            "1e30",
        ] {
            assert_eq!(moment(text), None, "{text}");
        }
    }
}
