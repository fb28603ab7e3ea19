//! Pictures of a study, as SVG: both laws over iterations, and both laws under each knob.

use std::error::Error;
use std::ops::Range;

use litd_policies::Law;
use plotters::coord::Shift;
use plotters::prelude::*;

use litd_cli::colours::COLOURS;

pub const FONT: &str = "sans-serif";
const SIZE: (u32, u32) = (640, 380);
const HEADER: i32 = 52;
/// A panel of bars is so wide, beside the names of what they are bars of; two bars are so high.
const PANEL: u32 = 260;
const NAMES: u32 = 170;
const ROW: u32 = 34;
/// Above the bars a heading, below them an axis.
const HEADING: u32 = 22;
const AXIS: u32 = 30;

/// Where a picture is drawn.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// A picture, or why there is none.
pub type Drawn<T> = Result<T, Box<dyn Error>>;

/// What one law did.
pub struct Line {
    pub law: Law,
    /// Iterations and values; a value stays until the next, as caps do.
    pub points: Vec<(f64, f64)>,
}

/// What both laws did in one case, in the order in which they are named.
pub struct Pair {
    pub name: String,
    /// For each quantity, each law's.
    pub values: Vec<[f64; 2]>,
}

fn colour(law: Law) -> RGBColor {
    match law {
        Law::Paper => COLOURS[4],
        Law::Model => COLOURS[0],
    }
}

/// A white picture of a size, as SVG.
pub fn picture(size: (u32, u32), draw: impl FnOnce(&Area) -> Drawn<()>) -> Drawn<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE)?;
        draw(&area)?;
        area.present()?;
    }
    Ok(svg)
}

/// Names of what is compared by default.
fn laws() -> [String; 2] {
    Law::ALL.map(|law| format!("{law} law"))
}

/// The title, and which colour is whose.
fn header(area: &Area, title: &str, names: &[String; 2]) -> Drawn<()> {
    let style = (FONT, 16).into_text_style(area);
    area.draw_text(&format!("SIMULATED: {title}"), &style, (10, 6))?;
    for (at, (law, name)) in Law::ALL.into_iter().zip(names).enumerate() {
        let x = 10 + 110 * at as i32;
        let key = Rectangle::new([(x, 34), (x + 16, 42)], colour(law).filled());
        area.draw(&key)?;
        let style = (FONT, 12).into_text_style(area);
        area.draw_text(name, &style, (x + 22, 31))?;
    }
    Ok(())
}

/// The values and a twentieth more on both sides.
pub fn around(values: impl Iterator<Item = f64>) -> Range<f64> {
    let finite = values.filter(|value| value.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if low > high {
        return 0.0..1.0;
    }
    let more = ((high - low) * 0.05).max(1e-3);
    low - more..high + more
}

/// A quantity over iterations (the paper's Figures 9 to 11).
pub fn over_iterations(title: &str, quantity: &str, lines: &[Line]) -> Drawn<String> {
    picture(SIZE, |area| {
        let (top, body) = area.split_vertically(HEADER);
        header(&top, title, &laws())?;
        let points = || lines.iter().flat_map(|line| &line.points);
        let across = 0.0..points().map(|point| point.0).fold(1.0, f64::max);
        let mut chart = ChartBuilder::on(&body)
            .margin(8)
            .margin_right(20)
            .x_label_area_size(36)
            .y_label_area_size(58)
            .build_cartesian_2d(across, around(points().map(|point| point.1)))?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(225, 225, 225))
            .x_desc("iteration")
            .y_desc(quantity)
            .x_label_formatter(&|iteration| format!("{iteration:.0}"))
            .y_label_formatter(&|value| format!("{value:.3}"))
            .label_style((FONT, 12))
            .draw()?;
        for line in lines {
            let mut steps = Vec::with_capacity(2 * line.points.len());
            for &(at, value) in &line.points {
                steps.extend(steps.last().map(|&(_, before)| (at, before)));
                steps.push((at, value));
            }
            chart.draw_series(LineSeries::new(steps, colour(line.law).stroke_width(2)))?;
        }
        Ok(())
    })
}

/// Bars of several quantities, side by side, for each case (the paper's Figures 13 to 15).
pub fn bars(title: &str, quantities: &[&str], cases: &[Pair]) -> Drawn<String> {
    bars_named(title, &laws(), quantities, cases)
}

/// The same of two others than the laws.
pub fn bars_named(
    title: &str,
    compared: &[String; 2],
    quantities: &[&str],
    cases: &[Pair],
) -> Drawn<String> {
    let width = NAMES + PANEL * u32::try_from(quantities.len())?;
    let height = u32::try_from(cases.len())? * ROW + HEADING + AXIS;
    picture((width, HEADER.unsigned_abs() + height), |area| {
        let (top, body) = area.split_vertically(HEADER);
        header(&top, title, compared)?;
        let (names, mut rest) = body.split_horizontally(NAMES);
        let style = (FONT, 12).into_text_style(&names);
        for (row, case) in cases.iter().enumerate() {
            let y = (HEADING + row as u32 * ROW + ROW / 2 - 6) as i32;
            names.draw_text(&case.name, &style, (10, y))?;
        }
        for (at, quantity) in quantities.iter().enumerate() {
            let (panel, more) = rest.split_horizontally(PANEL);
            bars_of(&panel, quantity, cases, at)?;
            rest = more;
        }
        Ok(())
    })
}

fn bars_of(area: &Area, quantity: &str, cases: &[Pair], at: usize) -> Drawn<()> {
    let values = |case: &Pair| case.values.get(at).copied().unwrap_or([0.0; 2]);
    let range = around(cases.iter().flat_map(values).chain([0.0]));
    let rows = cases.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(quantity, (FONT, 13))
        .margin_right(16)
        .x_label_area_size(AXIS)
        .build_cartesian_2d(range, rows..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_labels(5)
        .label_style((FONT, 11))
        .draw()?;
    for (row, case) in cases.iter().enumerate() {
        for (number, (law, value)) in Law::ALL.into_iter().zip(values(case)).enumerate() {
            let from = row as f64 + 0.15 + 0.35 * number as f64;
            let bar = [(0.0, from), (value, from + 0.33)];
            chart.draw_series([Rectangle::new(bar, colour(law).filled())])?;
        }
    }
    Ok(())
}
