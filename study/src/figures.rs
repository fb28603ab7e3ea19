//! Pictures of a study, as SVG.

use std::fmt::Write;

/// A line of a picture: its name and its points.
pub type Line = (String, Vec<(f64, f64)>);

const SIZE: (f64, f64) = (640.0, 360.0);
/// Left, top, right, bottom.
const MARGINS: (f64, f64, f64, f64) = (70.0, 40.0, 150.0, 50.0);
/// The Okabe-Ito palette, which colour-blind readers can tell apart.
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
];

/// Where a value is on the page.
#[derive(Clone, Copy)]
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite()) {
            (low, high) = (low.min(value), high.max(value));
        }
        if !(low <= high) {
            (low, high) = (0.0, 1.0);
        }
        let pad = ((high - low) * 0.05).max(1e-6);
        Self {
            low: low - pad,
            high: high + pad,
            from,
            to,
        }
    }

    fn at(self, value: f64) -> f64 {
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    fn ticks(self) -> impl Iterator<Item = f64> {
        (0..=4).map(move |tick| self.low + (self.high - self.low) * f64::from(tick) / 4.0)
    }
}

/// Lines over a common axis. Steps stay at a value until the next; so do caps.
#[must_use]
pub fn steps(title: &str, x: &str, y: &str, lines: &[Line]) -> String {
    let (left, top, right, bottom) = MARGINS;
    let points = || lines.iter().flat_map(|line| &line.1);
    let across = Axis::over(points().map(|p| p.0), left, SIZE.0 - right);
    let up = Axis::over(points().map(|p| p.1), SIZE.1 - bottom, top);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" \
         font-size=\"12\"><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\
         <text x=\"{left}\" y=\"20\" font-size=\"14\">SIMULATED: {title}</text>",
        SIZE.0, SIZE.1
    );
    let (low, high) = (SIZE.1 - bottom, SIZE.0 - right);
    for tick in up.ticks() {
        let at = up.at(tick);
        let _ = write!(
            svg,
            "<path d=\"M{left} {at:.1}H{high}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{tick:.3}</text>",
            left - 6.0,
            at + 4.0
        );
    }
    for tick in across.ticks() {
        let at = across.at(tick);
        let _ = write!(
            svg,
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{tick:.0}</text>",
            low + 16.0
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{x}</text>\
         <text transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">{y}</text>",
        (left + high) / 2.0,
        low + 36.0,
        (top + low) / 2.0
    );
    for (number, (name, points)) in lines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let mut path = String::new();
        for (at, point) in points.iter().enumerate() {
            let (x, y) = (across.at(point.0), up.at(point.1));
            let _ = match at {
                0 => write!(path, "M{x:.1} {y:.1}"),
                _ => write!(path, "H{x:.1}V{y:.1}"),
            };
        }
        let row = top + 18.0 * number as f64;
        let _ = write!(
            svg,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <path d=\"M{} {row}h16\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <text x=\"{}\" y=\"{}\">{name}</text>",
            high + 10.0,
            high + 30.0,
            row + 4.0
        );
    }
    svg += "</svg>\n";
    svg
}
