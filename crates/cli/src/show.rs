//! Numbers, bars and colours as people read them; shared by all programs.

use anstyle::{AnsiColor, Style};
use litd_units::{Hertz, Nanos};

/// The head of a table, a name that a paragraph is about.
pub const HEAD: Style = Style::new().bold();
/// Style of simulated values.
pub const SIMULATED: Style = AnsiColor::Magenta.on_default().bold();
/// Style of values that a person should look at.
pub const WARNING: Style = AnsiColor::Yellow.on_default();
/// Style of secondary values.
pub const DIM: Style = Style::new().dimmed();

/// The mark of an absent value.
pub const ABSENT: &str = "-";

/// A value as it is to be shown, or a dash.
pub fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| ABSENT.into(), show)
}

/// A number of percent, or a dash.
#[must_use]
pub fn percent(fraction: Option<f64>) -> String {
    or_dash(fraction, |fraction| format!("{:.1}", 100.0 * fraction))
}

/// A time in the unit that suits it, with three digits or so.
#[must_use]
pub fn time(time: Nanos) -> String {
    let (scale, unit) = match time.0.unsigned_abs() {
        0 => return "0".into(),
        1..1_000 => return format!("{} ns", time.0),
        1_000..1_000_000 => (1e3, "µs"),
        1_000_000..10_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let value = time.0 as f64 / scale;
    let decimals = match value.abs() {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

/// A clock, in a column of eight characters.
#[must_use]
pub fn mhz(clock: Hertz) -> String {
    format!("{:4.0} MHz", clock.0 / 1e6)
}

/// A long span in its two largest units: "3 d 4 h".
#[must_use]
pub fn span(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// A bar of this many characters, to an eighth.
#[must_use]
pub fn bar(length: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (length.max(0.0) * 8.0).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_sensible_unit() {
        let shown =
            [0, 999, 1_500, 76_518_000, 1_447_000_000, 60_000_000_000].map(|n| time(Nanos(n)));
        assert_eq!(
            shown,
            ["0", "999 ns", "1.50 µs", "76.5 ms", "1447 ms", "60.0 s"]
        );
    }

    #[test]
    fn spans_have_two_units() {
        let shown = [0.0, 61.0, 7_384.0, 273_600.0, -5.0].map(span);
        assert_eq!(shown, ["0 s", "1 min 1 s", "2 h 3 min", "3 d 4 h", "0 s"]);
    }

    #[test]
    fn bars_have_eighths() {
        assert_eq!(bar(2.5), "██▌");
        assert_eq!(bar(0.0), "");
    }
}
