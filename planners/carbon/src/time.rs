//! Moments as files and people write them.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Reads a moment: RFC 3339 (`2024-05-01T06:00:00Z`, `2024-05-01T08:00+02:00`), or a date with a time of
/// day and no zone, which is UTC.
///
/// # Errors
/// The text is neither, in words; or it names a zone and no offset.
pub fn moment(text: &str) -> Result<Timestamp, String> {
    let text = text.trim();
    let exact = text.parse::<Timestamp>();
    if exact.is_err() && text.ends_with(']') {
        // A date with a time of day parses whatever zone stands behind it, which would be taken for UTC. An hour that
        // clocks show twice in autumn is no moment either.
        return Err(format!(
            "{text:?} names a zone without its offset from UTC: write it as 2024-05-01T08:00:00+02:00"
        ));
    }
    exact
        .or_else(|_| {
            let civil: DateTime = text.parse()?;
            Ok(civil.to_zoned(TimeZone::UTC)?.timestamp())
        })
        .map_err(|_: jiff::Error| {
            format!("{text:?} is no time: write it as 2024-05-01T06:00:00Z (UTC)")
        })
}

/// The moment so many seconds after 1970. Seconds come from moments that exist; one that does not is the
/// nearest that does.
pub(crate) fn at(second: i64) -> Timestamp {
    let least = Timestamp::MIN.as_second();
    let most = Timestamp::MAX.as_second();
    Timestamp::from_second(second.clamp(least, most)).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_without_a_zone_is_utc() {
        let expected = moment("2024-05-01T06:00:00Z").unwrap();
        for text in [
            "2024-05-01T06:00:00",
            "2024-05-01 06:00",
            "2024-05-01T08:00:00+02:00",
            "2024-05-01T06:00Z",
            "2024-05-01T08:00:00+02:00[Europe/Berlin]",
        ] {
            assert_eq!(moment(text).unwrap(), expected, "{text}");
        }
        for text in ["", "yesterday", "2024-05-32T00:00:00Z", "1714543200"] {
            assert!(moment(text).unwrap_err().contains("is no time"), "{text}");
        }
        let error = moment("2024-05-01T08:00:00[Europe/Berlin]").unwrap_err();
        assert!(error.contains("without its offset"), "{error}");
    }
}
