//! Energy against latency as one page: no script, nothing from a network (Figures 7 and 8).

use std::error::Error;
use std::fmt::Write as _;
use std::ops::Range;

use plotters::coord::combinators::BindKeyPoints as _;
use plotters::prelude::*;

/// The colours of tensor parallelism 1, 2, 4, 8 and others: the Okabe-Ito palette.
use litd_cli::colours::COLOURS;

use crate::page;
use crate::svg::{escaped, round_numbers};

const SIZE: (u32, u32) = (860, 520);
const FONT: &str = "sans-serif";
/// No more dots are drawn: pages stay small enough for a phone. The front always is.
const MOST: usize = 4_000;

/// A configuration.
pub struct Dot {
    /// Latency and energy.
    pub at: (f64, f64),
    /// The value that colours distinguish: tensor parallelism.
    pub group: u32,
    /// Whether it is on the front.
    pub front: bool,
}

/// A picture with logarithmic axes.
pub fn scatter(x: &str, y: &str, dots: &[Dot]) -> Result<String, Box<dyn Error>> {
    let positive = |it: &&Dot| it.at.0 > 0.0 && it.at.1 > 0.0;
    let dots: Vec<&Dot> = dots.iter().filter(positive).collect();
    if dots.is_empty() {
        return Ok("<p>No configuration fits.</p>".to_owned());
    }
    let range = |value: fn(&Dot) -> f64| {
        let values = dots.iter().map(|it| value(it));
        let (low, high) = values.fold((f64::MAX, 0.0_f64), |(low, high), it| {
            (low.min(it), high.max(it))
        });
        (low * 0.9)..(high * 1.1)
    };
    let (across, up) = (range(|it| it.at.0), range(|it| it.at.1));
    let mut groups: Vec<u32> = dots.iter().map(|it| it.group).collect();
    groups.sort_unstable();
    groups.dedup();
    let colour = |group: u32| {
        let place = groups
            .iter()
            .position(|it| *it == group)
            .unwrap_or_default();
        COLOURS[place % COLOURS.len()]
    };
    let mut picture = String::new();
    {
        let root = SVGBackend::with_string(&mut picture, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(64)
            .build_cartesian_2d(
                across.clone().log_scale().with_key_points(ticks(&across)),
                up.clone().log_scale().with_key_points(ticks(&up)),
            )?;
        chart
            .configure_mesh()
            .x_desc(x)
            .y_desc(y)
            .label_style((FONT, 13))
            .x_label_formatter(&number)
            .y_label_formatter(&number)
            .light_line_style(TRANSPARENT)
            .draw()?;
        let step = dots.len().div_ceil(MOST).max(1);
        for &group in &groups {
            let colour = colour(group);
            let of_group = dots.iter().enumerate().filter(|it| it.1.group == group);
            let drawn = of_group.filter(|(at, dot)| dot.front || at % step == 0);
            let circles = drawn.map(|(_, dot)| match dot.front {
                true => Circle::new(dot.at, 5, colour.filled()),
                false => Circle::new(dot.at, 2, colour.mix(0.45).filled()),
            });
            chart
                .draw_series(circles)?
                .label(format!("TP{group}"))
                .legend(move |(x, y)| Circle::new((x + 8, y), 5, colour.filled()));
        }
        chart
            .configure_series_labels()
            .background_style(WHITE)
            .label_font((FONT, 13))
            .draw()?;
        root.present()?;
    }
    Ok(picture)
}

/// Numbers for a logarithmic axis that are round and not close to each other: of the steps within a decade the widest
/// that give three, else equal steps.
fn ticks(range: &Range<f64>) -> Vec<f64> {
    const STEPS: [&[f64]; 3] = [&[1.0], &[1.0, 3.0], &[1.0, 2.0, 5.0]];
    const ENOUGH: usize = 3;
    let decade = range.start.log10().floor() as i32..=range.end.log10().ceil() as i32;
    for steps in STEPS {
        let all = decade.clone().flat_map(|power| {
            let of_this = steps.iter();
            of_this.map(move |step| step * 10_f64.powi(power))
        });
        let within: Vec<f64> = all.filter(|it| range.contains(it)).collect();
        if within.len() >= ENOUGH {
            return within;
        }
    }
    round_numbers((range.start, range.end), 4.0)
}

/// A tick without needless digits.
fn number(value: &f64) -> String {
    let digits = (2 - value.log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// The page around pictures.
pub fn page(title: &str, text: &str, pictures: &[(&str, String)]) -> String {
    let mut out = page::begin(title, title);
    for (name, picture) in pictures {
        let _ = writeln!(
            out,
            "<section><h2>{name}</h2><p>Large dots are the Pareto front.</p><figure>{picture}</figure></section>"
        );
    }
    let lines: Vec<String> = text.lines().map(escaped).collect();
    let _ = writeln!(out, "<pre>{}</pre>", lines.join("\n"));
    page::end(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_axis_has_a_few_round_numbers() {
        for (range, expected) in [
            (0.9..1100.0, vec![1.0, 10.0, 100.0, 1000.0]),
            (60.0..2600.0, vec![100.0, 300.0, 1000.0]),
            (23.0..38.0, vec![25.0, 30.0, 35.0]),
            (2.2..44.0, vec![3.0, 10.0, 30.0]),
            (0.061..0.069, vec![0.062, 0.064, 0.066, 0.068]),
        ] {
            let got = ticks(&range);
            let close = got
                .iter()
                .zip(&expected)
                .all(|(a, b)| (a / b - 1.0).abs() < 1e-9);
            assert!(close && got.len() == expected.len(), "{range:?}: {got:?}");
        }
        assert_eq!(
            [0.062, 2.5, 100.0, 2000.0].map(|it| number(&it)),
            ["0.062", "2.5", "100", "2000"]
        );
    }
}
