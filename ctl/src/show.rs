//! Numbers, bars and colours as people read them, and moments of the wall clock.

use jiff::Timestamp;
use jiff::tz::TimeZone;
pub use litd_cli::show::*;

/// A moment of the wall clock in local time, as journalctl shows it.
pub fn moment(unix_seconds: f64) -> String {
    local(unix_seconds, "%F %T")
}

/// The same without the day.
pub fn time_of_day(unix_seconds: f64) -> String {
    local(unix_seconds, "%T")
}

fn local(unix_seconds: f64, format: &str) -> String {
    // The cast saturates, and what is beyond the calendar stays a number.
    match Timestamp::from_second(unix_seconds as i64) {
        Ok(moment) => {
            let moment = moment.to_zoned(TimeZone::system());
            moment.strftime(format).to_string()
        }
        Err(_) => format!("{unix_seconds:e} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_moment_is_too_strange() {
        for seconds in [0.0, -1e9, 1e300, f64::NAN, f64::NEG_INFINITY] {
            assert!(!moment(seconds).is_empty());
        }
    }
}
