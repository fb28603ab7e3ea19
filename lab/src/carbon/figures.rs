//! Pictures as SVG: profiles (Figures 1 and 2), the signals (Figure 3), savings by tokens (Figure 4), one episode
//! (Figure 5).

use std::ops::Range;

use litd_carbon::{Interval, Profile};
use litd_cli::colours::COLOURS;
use plotters::prelude::*;

use super::episode::{Done, Episode};
use crate::study::figures::{Area, Drawn, FONT, around, picture};

const HEADER: i32 = 52;
const WIDTH: u32 = 760;
const HEIGHT: u32 = 380;
/// Of the signal and of one policy in an episode.
const SIGNAL: u32 = 170;
const ROW: u32 = 48;
/// Left of a chart, for its numbers and what they are of; below it; and one panel of several.
const LEFT: u32 = 66;
const AXIS: u32 = 36;
const PANEL: u32 = 230;
const GRID: RGBColor = RGBColor(225, 225, 225);

fn whole(value: &f64) -> String {
    format!("{value:.0}")
}

/// A line by hours.
pub struct Line {
    pub name: String,
    /// Each hour that has a value, and that.
    pub points: Vec<(f64, f64)>,
}

impl Line {
    /// The name, with the coefficient of variation.
    fn title(&self) -> String {
        let count = self.points.len().max(1) as f64;
        let mean = self.points.iter().map(|it| it.1).sum::<f64>() / count;
        let squares = self.points.iter().map(|it| (it.1 - mean).powi(2));
        let deviation = (squares.sum::<f64>() / count).sqrt();
        format!("{} (CV {:.2})", self.name, deviation / mean)
    }
}

/// Savings by tokens.
pub struct Savings {
    pub name: String,
    /// Billions of tokens, and what is saved in per cent.
    pub bars: Vec<(f64, Interval)>,
}

fn header<'a>(area: &Area, title: &str, names: impl Iterator<Item = &'a str>) -> Drawn<()> {
    let style = (FONT, 15).into_text_style(area);
    area.draw_text(title, &style, (10, 6))?;
    let mut x = 10;
    for (at, name) in names.enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        area.draw(&Rectangle::new([(x, 34), (x + 16, 42)], colour.filled()))?;
        let style = (FONT, 12).into_text_style(area);
        area.draw_text(name, &style, (x + 22, 31))?;
        x += 40 + 7 * name.chars().count() as i32;
    }
    Ok(())
}

/// The values and zero.
fn from_zero(values: impl Iterator<Item = f64>) -> Range<f64> {
    around(values.chain([0.0]))
}

/// Carbon intensity over hours.
pub fn signals(title: &str, lines: &[Line]) -> Drawn<String> {
    picture((WIDTH, HEIGHT), |area| {
        let (top, body) = area.split_vertically(HEADER);
        let names: Vec<String> = lines.iter().map(Line::title).collect();
        header(&top, title, names.iter().map(String::as_str))?;
        let points = || lines.iter().flat_map(|it| &it.points);
        let hours = points().map(|it| it.0 + 1.0).fold(1.0, f64::max);
        let up = from_zero(points().map(|it| it.1));
        let mut chart = ChartBuilder::on(&body)
            .margin(8)
            .margin_right(20)
            .x_label_area_size(36)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(0.0..hours, up)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .x_labels(hours as usize / 24 + 1)
            .x_label_formatter(&whole)
            .y_label_formatter(&whole)
            .x_desc("hour")
            .y_desc("g CO2e per kWh")
            .label_style((FONT, 12))
            .draw()?;
        for (at, line) in lines.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let points = line.points.iter().copied();
            chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        }
        Ok(())
    })
}

/// Bars with their intervals, by tokens and zone.
pub fn savings(title: &str, groups: &[Savings]) -> Drawn<String> {
    picture((WIDTH, HEIGHT), |area| {
        let (top, body) = area.split_vertically(HEADER);
        header(&top, title, groups.iter().map(|it| it.name.as_str()))?;
        let bars = || groups.iter().flat_map(|it| &it.bars);
        let up = from_zero(bars().flat_map(|(_, it)| [it.low, it.high]));
        let mut tokens: Vec<f64> = bars().map(|(tokens, _)| *tokens).collect();
        tokens.sort_by(f64::total_cmp);
        tokens.dedup();
        let labels = tokens.clone();
        let mut chart = ChartBuilder::on(&body)
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(0.0..tokens.len().max(1) as f64, up)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .x_labels(2 * tokens.len() + 1)
            .x_label_formatter(&|x| {
                let is_middle = (x.fract() - 0.5).abs() < 0.01;
                let label = labels.get(*x as usize).filter(|_| is_middle);
                label.map_or_else(String::new, |billions| format!("{billions}B"))
            })
            .x_desc("tokens")
            .y_desc("% saved against best static")
            .label_style((FONT, 12))
            .draw()?;
        let zero = [(0.0, 0.0), (tokens.len().max(1) as f64, 0.0)];
        chart.draw_series([PathElement::new(zero, BLACK.stroke_width(1))])?;
        let width = 0.8 / groups.len().max(1) as f64;
        for (at, group) in groups.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            for (billions, interval) in &group.bars {
                let place = tokens.iter().position(|it| it == billions).unwrap_or(0);
                let from = place as f64 + 0.1 + width * at as f64;
                let bar = [(from, 0.0), (from + width * 0.9, interval.mean)];
                chart.draw_series([Rectangle::new(bar, colour.filled())])?;
                let middle = from + width * 0.45;
                let whisker = [(middle, interval.low), (middle, interval.high)];
                chart.draw_series([PathElement::new(whisker, BLACK.stroke_width(1))])?;
            }
        }
        Ok(())
    })
}

/// The intensity of an episode, and below it which configuration each policy ran.
pub fn episode(
    title: &str,
    intensities: &[f64],
    episode: &Episode,
    profile: &Profile,
) -> Drawn<String> {
    let used = used(episode);
    let name = |configuration: usize| profile.points()[configuration].configuration.to_string();
    let names: Vec<String> = used.iter().map(|&it| name(it)).collect();
    let rows = episode.done.len() as u32;
    let height = HEADER as u32 + SIGNAL + ROW * rows + AXIS;
    let hours = intensities.len() as f64;
    picture((WIDTH, height), |area| {
        let (top, body) = area.split_vertically(HEADER);
        header(&top, title, names.iter().map(String::as_str))?;
        let (first, mut rest) = body.split_vertically(SIGNAL);
        hourly(&first, intensities)?;
        for (number, done) in episode.done.iter().enumerate() {
            let is_last = number + 1 == episode.done.len();
            let (row, below) = rest.split_vertically(ROW + if is_last { AXIS } else { 0 });
            rest = below;
            policy(&row, hours, done, &used, is_last)?;
        }
        Ok(())
    })
}

/// The signal of an episode, hour by hour.
fn hourly(area: &Area, intensities: &[f64]) -> Drawn<()> {
    let hours = intensities.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .margin_left(8)
        .margin_right(20)
        .y_label_area_size(LEFT - 8)
        .build_cartesian_2d(0.0..hours, from_zero(intensities.iter().copied()))?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .y_labels(5)
        .y_label_formatter(&whole)
        .y_desc("g/kWh")
        .label_style((FONT, 12))
        .draw()?;
    let steps = intensities.iter().enumerate();
    let steps =
        steps.flat_map(|(hour, value)| [(hour as f64, *value), (hour as f64 + 1.0, *value)]);
    chart.draw_series(LineSeries::new(steps, BLACK.stroke_width(1)))?;
    Ok(())
}

/// What one policy ran; the axis of hours below the last one.
fn policy(area: &Area, hours: f64, done: &Done, used: &[usize], is_last: bool) -> Drawn<()> {
    let caption = format!(
        "{}: {:.2} kg ({})",
        done.policy,
        done.planned.carbon.0 / 1e3,
        done.policy.knows()
    );
    let style = (FONT, 12).into_text_style(area);
    area.draw_text(&caption, &style, (LEFT as i32, 4))?;
    let mut chart = ChartBuilder::on(area)
        .margin_top(20)
        .margin_right(20)
        .x_label_area_size(if is_last { AXIS } else { 0 })
        .y_label_area_size(LEFT)
        .build_cartesian_2d(0.0..hours, 0.0..1.0)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_mesh().disable_y_axis().label_style((FONT, 11));
    if is_last {
        let days = (hours / 24.0).max(1.0);
        let apart = [1.0, 2.0, 3.0, 6.0, 12.0, 24.0]
            .into_iter()
            .find(|it| hours / it <= 14.0);
        let count = apart.map_or(days, |it| hours / it);
        mesh.x_labels(count as usize + 1).x_label_formatter(&whole);
        mesh.x_desc("hour; the right edge is the deadline").draw()?;
    } else {
        mesh.disable_x_axis().draw()?;
    }
    for run in done.plan.runs() {
        let place = used.iter().position(|it| *it == run.configuration);
        let colour = COLOURS[place.unwrap_or(0) % COLOURS.len()];
        let (from, to) = (run.windows.start as f64, run.windows.end as f64);
        chart.draw_series([Rectangle::new([(from, 0.0), (to, 1.0)], colour.filled())])?;
    }
    Ok(())
}

/// One quantity, with bars side by side for each place.
pub struct Panel {
    pub quantity: &'static str,
    /// The place's label, and a value for each name.
    pub places: Vec<(String, Vec<Option<f64>>)>,
}

/// Several quantities one below the other, with bars by place and name (Figures 1 and 2).
pub fn panels(title: &str, across: &str, names: &[&str], panels: &[Panel]) -> Drawn<String> {
    let places = panels.first().map_or(0, |it| it.places.len()) as u32;
    let width = WIDTH.max(LEFT + 40 + places * (16 * names.len() as u32).max(52));
    let height = HEADER as u32 + PANEL * panels.len() as u32;
    picture((width, height), |area| {
        let (top, mut rest) = area.split_vertically(HEADER);
        header(&top, title, names.iter().copied())?;
        for panel in panels {
            let (own, below) = rest.split_vertically(PANEL);
            rest = below;
            bars(&own, across, names.len(), panel)?;
        }
        Ok(())
    })
}

fn bars(area: &Area, across: &str, names: usize, panel: &Panel) -> Drawn<()> {
    let places = &panel.places;
    let values = places
        .iter()
        .flat_map(|(_, values)| values.iter().flatten());
    let up = 0.0..from_zero(values.copied()).end;
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .x_label_area_size(AXIS)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(0.0..places.len().max(1) as f64, up)?;
    let middle = |x: &f64| {
        let place = places.get(*x as usize);
        let place = place.filter(|_| (x.fract() - 0.5).abs() < 0.01);
        place.map_or_else(String::new, |(label, _)| label.clone())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .x_labels(2 * places.len() + 1)
        .x_label_formatter(&middle)
        .y_labels(5)
        .y_label_formatter(&whole)
        .x_desc(across)
        .y_desc(panel.quantity)
        .label_style((FONT, 12))
        .draw()?;
    let width = 0.8 / names.max(1) as f64;
    for (place, (_, values)) in places.iter().enumerate() {
        for (at, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let from = place as f64 + 0.1 + width * at as f64;
            let bar = [(from, 0.0), (from + width * 0.9, *value)];
            let colour = COLOURS[at % COLOURS.len()];
            chart.draw_series([Rectangle::new(bar, colour.filled())])?;
        }
    }
    Ok(())
}

/// The configurations that any policy ran, in order.
fn used(episode: &Episode) -> Vec<usize> {
    let all = episode.done.iter().flat_map(|done| &done.plan.choices);
    let mut used: Vec<usize> = all.copied().collect();
    used.sort_unstable();
    used.dedup();
    used
}
