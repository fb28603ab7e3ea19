//! Values as telemetry writes them: numbers, often with a unit, or words for nothing.

use litd_estimate::Quantity;

/// The contents of a table's cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell<'a> {
    /// No value: "N/A", "[Not Supported]", empty.
    Absent,
    /// A number in the quantity's own unit.
    Value(f64),
    /// A number that had to be converted from this unit.
    Converted(f64, &'a str),
    /// A number whose unit is not known.
    Unit(&'a str),
    /// NaN or infinite.
    NotFinite,
    /// No number.
    Word(&'a str),
    /// A number that no GPU has.
    Unbelieved(f64),
}

/// Reads a cell; `unit` is what the table's head says, for numbers without one.
pub fn read<'a>(text: &'a str, quantity: Quantity, unit: &'a str) -> Cell<'a> {
    let text = text.trim();
    if is_absent(text) {
        return Cell::Absent;
    }
    let (number, own) = match text.parse::<f64>() {
        Ok(number) => (number, ""),
        Err(_) => {
            let end = text.find(|it: char| !(it.is_ascii_digit() || "+-.eE".contains(it)));
            // The E of an exponent may begin the unit as well: no unit here does.
            let (number, own) = text.split_at(end.unwrap_or(text.len()));
            match number.trim().parse::<f64>() {
                Ok(number) => (number, own.trim()),
                Err(_) => return Cell::Word(text),
            }
        }
    };
    if !number.is_finite() {
        return Cell::NotFinite;
    }
    let shown = if own.is_empty() { unit } else { own };
    let Some(scaled) = scale(quantity, shown).map(|scale| convert(number, scale)) else {
        return Cell::Unit(shown);
    };
    match quantity.believed(scaled) {
        None => Cell::Unbelieved(number),
        Some(value) if own.is_empty() || scale(quantity, unit) == scale(quantity, own) => {
            Cell::Value(value)
        }
        // A head without unit, cells with the usual one: as nvidia-smi writes them.
        Some(value) if unit.is_empty() && value == number => Cell::Value(value),
        Some(value) => Cell::Converted(value, own),
    }
}

/// Whether a cell says that nothing is known.
pub fn is_absent(text: &str) -> bool {
    if text.is_empty() || text == "-" {
        return true;
    }
    if !text.starts_with(['[', 'N', 'n', 'I', 'i', 'U', 'u']) {
        return false;
    }
    let inner = text.trim_start_matches('[').trim_end_matches(']');
    let words = [
        "n/a",
        "na",
        "none",
        "null",
        "not supported",
        "unknown error",
        "insufficient permissions",
    ];
    words.iter().any(|it| inner.eq_ignore_ascii_case(it))
}

/// Factor and offset from a unit to the quantity's own.
fn scale(quantity: Quantity, unit: &str) -> Option<(f64, f64)> {
    let table: &[(&str, f64, f64)] = match quantity {
        Quantity::Power | Quantity::Cap => &[
            ("W", 1.0, 0.0),
            ("mW", 1e-3, 0.0),
            ("kW", 1e3, 0.0),
            ("uW", 1e-6, 0.0),
            ("µW", 1e-6, 0.0),
        ],
        Quantity::Clock => &[
            ("MHz", 1.0, 0.0),
            ("GHz", 1e3, 0.0),
            ("kHz", 1e-3, 0.0),
            ("Hz", 1e-6, 0.0),
        ],
        Quantity::Temperature => {
            let fahrenheit = 5.0 / 9.0;
            &[
                ("C", 1.0, 0.0),
                ("°C", 1.0, 0.0),
                ("F", fahrenheit, -32.0 * fahrenheit),
                ("K", 1.0, -273.15),
            ]
        }
        Quantity::Pace => &[
            ("ms", 1.0, 0.0),
            ("s", 1e3, 0.0),
            ("us", 1e-3, 0.0),
            ("ns", 1e-6, 0.0),
        ],
    };
    if unit.is_empty() {
        return Some((1.0, 0.0));
    }
    let exact = table.iter().find(|it| it.0 == unit);
    // mW and MW differ by their capital only.
    let nearly = || {
        table
            .iter()
            .find(|it| it.0.len() != 2 && it.0.eq_ignore_ascii_case(unit))
    };
    exact.or_else(nearly).map(|it| (it.1, it.2))
}

fn convert(number: f64, (factor, offset): (f64, f64)) -> f64 {
    number * factor + offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_converted_and_strange_ones_refused() {
        for (text, quantity, unit, cell) in [
            ("297.18 W", Quantity::Power, "W", Cell::Value(297.18)),
            ("297.18", Quantity::Power, "W", Cell::Value(297.18)),
            (" 297.18 W", Quantity::Power, "", Cell::Value(297.18)),
            ("297180", Quantity::Power, "mW", Cell::Value(297.18)),
            (
                "297180 mW",
                Quantity::Power,
                "W",
                Cell::Converted(297.18, "mW"),
            ),
            (
                "1.395 GHz",
                Quantity::Clock,
                "MHz",
                Cell::Converted(1395.0, "GHz"),
            ),
            ("1395MHz", Quantity::Clock, "", Cell::Value(1395.0)),
            ("297180", Quantity::Power, "W", Cell::Unbelieved(297_180.0)),
            ("-3", Quantity::Power, "W", Cell::Unbelieved(-3.0)),
            ("0", Quantity::Power, "W", Cell::Unbelieved(0.0)),
            ("300 BTU", Quantity::Power, "W", Cell::Unit("BTU")),
            ("NaN", Quantity::Power, "W", Cell::NotFinite),
            ("-inf", Quantity::Clock, "MHz", Cell::NotFinite),
            ("[N/A]", Quantity::Power, "W", Cell::Absent),
            ("[Not Supported]", Quantity::Power, "W", Cell::Absent),
            ("", Quantity::Power, "W", Cell::Absent),
            ("hot", Quantity::Temperature, "", Cell::Word("hot")),
            ("1.2.3", Quantity::Temperature, "", Cell::Word("1.2.3")),
            ("2.3e3", Quantity::Pace, "", Cell::Value(2300.0)),
        ] {
            assert_eq!(read(text, quantity, unit), cell, "{text:?}");
        }
        assert!(
            matches!(read("98.6 F", Quantity::Temperature, ""), Cell::Converted(it, "F") if (it - 37.0).abs() < 1e-9)
        );
    }
}
