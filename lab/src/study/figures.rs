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

/// What one law did in all of its runs, which differ by the seed.
pub struct Line {
    pub law: Law,
    /// In order; values stay until the next step, as caps do.
    pub steps: Vec<Step>,
}

/// A quantity from an iteration on: the median of all runs, the least and the most.
#[derive(Clone, Copy)]
pub struct Step {
    pub at: f64,
    pub middle: f64,
    pub least: f64,
    pub most: f64,
}

impl Line {
    /// Of each run's iterations and values, which stay until the run's next; up to the iteration `last`.
    pub fn of(law: Law, runs: &[Vec<(f64, f64)>], last: f64) -> Self {
        let mut changes: Vec<f64> = runs.iter().flatten().map(|point| point.0).collect();
        changes.push(last);
        changes.sort_by(f64::total_cmp);
        changes.dedup();
        let value = |run: &Vec<(f64, f64)>, at: f64| {
            let before = run.iter().rev().find(|point| point.0 <= at);
            before.map(|point| point.1)
        };
        let step = |at: f64| {
            let mut values: Vec<f64> = runs.iter().filter_map(|run| value(run, at)).collect();
            values.sort_by(f64::total_cmp);
            Some(Step {
                at,
                middle: *values.get(values.len() / 2)?,
                least: *values.first()?,
                most: *values.last()?,
            })
        };
        let steps = changes.into_iter().filter_map(step).collect();
        Self { law, steps }
    }

    /// One of the values as a staircase.
    fn staircase(&self, value: impl Fn(&Step) -> f64) -> Vec<(f64, f64)> {
        let mut points: Vec<(f64, f64)> = Vec::with_capacity(2 * self.steps.len());
        for step in &self.steps {
            points.extend(points.last().map(|&(_, before)| (step.at, before)));
            points.push((step.at, value(step)));
        }
        points
    }
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

/// A quantity over iterations (the paper's Figures 9 to 11): each law's median over the seeds, in a band from the least
/// to the most; and where the best caps there are would be.
pub fn over_iterations(title: &str, quantity: &str, lines: &[Line], best: f64) -> Drawn<String> {
    picture(SIZE, |area| {
        let (top, body) = area.split_vertically(HEADER);
        header(&top, title, &laws())?;
        let steps = || lines.iter().flat_map(|line| &line.steps);
        let last = steps().map(|step| step.at).fold(1.0, f64::max);
        let values = steps().flat_map(|step| [step.least, step.most]);
        let mut chart = ChartBuilder::on(&body)
            .margin(8)
            .margin_right(20)
            .x_label_area_size(36)
            .y_label_area_size(58)
            .build_cartesian_2d(0.0..last, around(values.chain([best])))?;
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
            let mut band = line.staircase(|step| step.least);
            band.extend(line.staircase(|step| step.most).into_iter().rev());
            chart.draw_series([Polygon::new(band, colour(line.law).mix(0.2))])?;
        }
        for line in lines {
            let middle = line.staircase(|step| step.middle);
            chart.draw_series(LineSeries::new(middle, colour(line.law).stroke_width(2)))?;
        }
        let optimum = [(0.0, best), (last, best)];
        chart.draw_series(DashedLineSeries::new(optimum, 6, 4, BLACK.mix(0.6).into()))?;
        let label = ("optimum", (FONT, 12).into_font().color(&BLACK.mix(0.6)));
        chart.draw_series([Text::new(label.0, (last * 0.01, best), label.1)])?;
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
