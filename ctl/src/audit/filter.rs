//! The filter of writes.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Span, Zoned};

use super::writes::Write;

/// The filter of writes.
#[derive(clap::Args)]
pub struct Filter {
    /// Only of this device: its name (gpu3) or address
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Only for this job
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// Only by this actor: litd, or "uid 1000"
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
    /// Only since then: how long ago ("2h", "3 days") or a local time ("2026-11-22 07:00")
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    since: Option<f64>,
    /// Only writes whose result is not the requested cap
    #[arg(long)]
    failed: bool,
}

impl Filter {
    pub fn keeps(&self, write: &Write) -> bool {
        let intent = &write.intent;
        let device = |device: &String| {
            intent.name.eq_ignore_ascii_case(device) || intent.device.eq_ignore_ascii_case(device)
        };
        self.device.as_ref().is_none_or(device)
            && self
                .job
                .as_ref()
                .is_none_or(|job| intent.job.as_ref() == Some(job))
            && self
                .actor
                .as_ref()
                .is_none_or(|actor| intent.actor == *actor)
            && self.since.is_none_or(|since| write.unix_seconds >= since)
            && (!self.failed || write.is_failed())
    }

    /// Whether everything is wanted.
    pub fn is_all(&self) -> bool {
        self.device.is_none()
            && self.job.is_none()
            && self.actor.is_none()
            && self.since.is_none()
            && !self.failed
    }
}

/// Seconds since 1970.
fn moment(text: &str) -> Result<f64, String> {
    let ago = || {
        let span: Span = text.parse().ok()?;
        Zoned::now().checked_sub(span.abs()).ok()
    };
    let local = || {
        let time: DateTime = text.parse().ok()?;
        time.to_zoned(TimeZone::system()).ok()
    };
    let moment = ago().or_else(local).ok_or_else(|| {
        "must be how long ago (2h, \"3 days\") or a time (2026-11-22 07:00)".to_owned()
    })?;
    Ok(moment.timestamp().as_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_spans_or_times() {
        let now = Zoned::now().timestamp().as_second() as f64;
        for (text, ago) in [("2h", 7200.0), ("90 s", 90.0)] {
            let since = moment(text).unwrap();
            assert!((now - since - ago).abs() <= 5.0, "{text}: {since}");
        }
        assert!(moment("3 days").is_ok());
        assert!(moment("2026-11-22 07:00").unwrap() > 1.7e9);
        assert!(moment("2026-11-22").is_ok());
        moment("yesterday").unwrap_err();
    }
}
