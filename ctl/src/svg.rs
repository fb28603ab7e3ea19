//! Charts as SVG text: axes with round numbers, lines, dots, bars.

use std::fmt::Write as _;

use litd_cli::colours::COLOURS;
use plotters::style::RGBColor;

/// The size of a chart, in SVG units; a browser scales it to the page.
const WIDTH: f64 = 480.0;
const LEFT: f64 = 56.0;
/// Half of the last number below lies here.
const RIGHT: f64 = 20.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 42.0;

/// The colour of a rank, as in all other pictures. Black is the text's colour, which a dark page can show.
pub fn colour(at: usize) -> String {
    match COLOURS[at % COLOURS.len()] {
        RGBColor(0, 0, 0) => "currentColor".to_owned(),
        RGBColor(red, green, blue) => format!("#{red:02x}{green:02x}{blue:02x}"),
    }
}

/// Text as HTML has it: a kernel's name can't become a tag or end an attribute.
pub fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
    out
}

/// A chart.
pub struct Chart {
    body: String,
    height: f64,
    x: (f64, f64),
    y: (f64, f64),
}

impl Chart {
    /// A chart of these ranges, `height` high, with numbers on the horizontal axis.
    pub fn new(x: (f64, f64), y: (f64, f64), height: f64) -> Self {
        let wide = |(from, to): (f64, f64)| match to > from {
            true => (from, to),
            false => (from, from + 1.0),
        };
        Self {
            body: String::new(),
            height,
            x: wide(x),
            y: wide(y),
        }
    }

    fn px(&self, x: f64) -> f64 {
        LEFT + (x - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }

    fn py(&self, y: f64) -> f64 {
        let inner = self.height - TOP - BOTTOM;
        TOP + inner - (y - self.y.0) / (self.y.1 - self.y.0) * inner
    }

    /// Numbers and a title below the chart.
    pub fn horizontal_axis(mut self, title: &str) -> Self {
        let bottom = self.height - BOTTOM;
        for tick in ticks(self.x) {
            let x = self.px(tick);
            let _ = write!(
                self.body,
                r#"<path class="grid" d="M{x:.1} {TOP}V{bottom}"/><text x="{x:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                bottom + 15.0,
                number(tick)
            );
        }
        let _ = write!(
            self.body,
            r#"<text class="title" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            (LEFT + WIDTH - RIGHT) / 2.0,
            self.height - 8.0,
            escaped(title)
        );
        self
    }

    /// Numbers and a title beside the chart.
    pub fn vertical_axis(mut self, title: &str) -> Self {
        for tick in ticks(self.y) {
            let y = self.py(tick);
            let _ = write!(
                self.body,
                r#"<path class="grid" d="M{LEFT} {y:.1}H{}"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                WIDTH - RIGHT,
                LEFT - 5.0,
                y + 4.0,
                number(tick)
            );
        }
        let middle = (self.height - BOTTOM + TOP) / 2.0;
        let _ = write!(
            self.body,
            r#"<text class="title" transform="rotate(-90 14 {middle:.1})" x="14" y="{middle:.1}" text-anchor="middle">{}</text>"#,
            escaped(title)
        );
        self
    }

    /// Names beside the chart, at heights.
    pub fn rows(mut self, names: impl Iterator<Item = (f64, String)>) -> Self {
        for (y, name) in names {
            let _ = write!(
                self.body,
                r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                LEFT - 5.0,
                self.py(y) + 4.0,
                escaped(&name)
            );
        }
        self
    }

    /// A line through points.
    pub fn line(&mut self, points: impl Iterator<Item = (f64, f64)>, colour: &str, class: &str) {
        let mut path = String::new();
        for (x, y) in points {
            let command = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", self.px(x), self.py(y));
        }
        let _ = write!(
            self.body,
            r#"<path class="{class}" stroke="{colour}" d="{path}"/>"#
        );
    }

    /// A dot.
    pub fn dot(&mut self, x: f64, y: f64, colour: &str) {
        let _ = write!(
            self.body,
            r#"<circle cx="{:.1}" cy="{:.1}" r="2.5" fill="{colour}"/>"#,
            self.px(x),
            self.py(y)
        );
    }

    /// A box from one corner to the other, with a text that shows when pointed at.
    pub fn area(&mut self, x: (f64, f64), y: (f64, f64), colour: &str, title: &str) {
        let (left, right) = (self.px(x.0), self.px(x.1));
        let (top, bottom) = (self.py(y.1), self.py(y.0));
        let _ = write!(
            self.body,
            r#"<rect x="{left:.1}" y="{top:.1}" width="{:.1}" height="{:.1}" fill="{colour}"><title>{}</title></rect>"#,
            (right - left).max(0.3),
            (bottom - top).max(0.3),
            escaped(title)
        );
    }

    /// The chart; `what` is said to who can't see it.
    pub fn finish(self, what: &str) -> String {
        format!(
            r#"<svg viewBox="0 0 {WIDTH} {}" role="img" aria-label="{}">{}</svg>"#,
            self.height,
            escaped(what),
            self.body
        )
    }
}

/// Five to ten round numbers within a range.
fn ticks(range: (f64, f64)) -> Vec<f64> {
    round_numbers(range, 6.0)
}

/// Round numbers within a range, at steps of 1, 2 or 5 times a power of ten: the range has so many of them or fewer.
pub fn round_numbers((from, to): (f64, f64), most: f64) -> Vec<f64> {
    let rough = (to - from) / most;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power);
    let step = step
        .into_iter()
        // The difference of two decimal numbers is rarely exact.
        .find(|step| *step >= rough * (1.0 - 1e-9))
        .unwrap_or(rough);
    if !(step.is_finite() && step > 0.0) {
        return Vec::new();
    }
    let first = (from / step).ceil();
    let numbers = (0..12).map(|i| (first + f64::from(i)) * step);
    numbers.filter(|tick| *tick <= to + step * 1e-9).collect()
}

fn number(value: f64) -> String {
    let plain = format!("{value:.3}");
    let plain = plain.trim_end_matches('0').trim_end_matches('.');
    match plain {
        "-0" | "" => "0".into(),
        plain => plain.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(
            ticks((0.0, 1.0)),
            [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
        );
        assert_eq!(ticks((0.0, 63.0)), [0.0, 20.0, 40.0, 60.0]);
        assert!(ticks((0.0, f64::NAN)).is_empty());
    }

    #[test]
    fn a_name_cannot_leave_its_place() {
        assert_eq!(escaped("<b a='\"'>&"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;");
    }
}
