//! Pictures as SVG: the signals (Figure 3), savings by tokens (Figure 4), one episode (Figure 5).

use std::ops::Range;

use litd_carbon::{Interval, Profile};
use litd_cli::colours::COLOURS;
use plotters::prelude::*;

use super::episode::Episode;
use crate::study::figures::{Area, Drawn, FONT, around, picture};

const HEADER: i32 = 52;
const WIDTH: u32 = 760;
const HEIGHT: u32 = 380;
/// Of one policy in an episode.
const ROW: u32 = 90;

/// A line by hours.
pub struct Line {
    pub name: String,
    pub values: Vec<f64>,
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
        header(&top, title, lines.iter().map(|it| it.name.as_str()))?;
        let hours = lines.iter().map(|it| it.values.len()).max().unwrap_or(1);
        let up = from_zero(lines.iter().flat_map(|it| it.values.iter().copied()));
        let mut chart = ChartBuilder::on(&body)
            .margin(8)
            .margin_right(20)
            .x_label_area_size(36)
            .y_label_area_size(58)
            .build_cartesian_2d(0.0..hours as f64, up)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc("hour")
            .y_desc("g CO2e per kWh")
            .label_style((FONT, 12))
            .draw()?;
        for (at, line) in lines.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let points = line.values.iter().enumerate();
            let points = points.map(|(hour, value)| (hour as f64, *value));
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
            .y_label_area_size(58)
            .build_cartesian_2d(0.0..tokens.len().max(1) as f64, up)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
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
    let height = HEADER as u32 + 160 + ROW * episode.done.len() as u32;
    picture((WIDTH, height), |area| {
        let (top, body) = area.split_vertically(HEADER);
        header(&top, title, names.iter().map(String::as_str))?;
        let (first, mut rest) = body.split_vertically(160);
        let hours = intensities.len() as f64;
        let mut chart = ChartBuilder::on(&first)
            .margin_right(20)
            .y_label_area_size(58)
            .build_cartesian_2d(0.0..hours, from_zero(intensities.iter().copied()))?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .y_labels(4)
            .y_desc("g/kWh")
            .label_style((FONT, 12))
            .draw()?;
        let points = intensities.iter().enumerate();
        let points = points.map(|(hour, value)| (hour as f64 + 0.5, *value));
        chart.draw_series(LineSeries::new(points, BLACK.stroke_width(1)))?;
        for done in &episode.done {
            let (row, below) = rest.split_vertically(ROW);
            rest = below;
            let caption = format!(
                "{} ({}): {:.2} kg",
                done.policy,
                done.policy.knows(),
                done.planned.carbon.0 / 1e3
            );
            let mut chart = ChartBuilder::on(&row)
                .caption(caption, (FONT, 12))
                .margin_right(20)
                .x_label_area_size(18)
                .y_label_area_size(58)
                .build_cartesian_2d(0.0..hours, 0.0..1.0)?;
            chart
                .configure_mesh()
                .disable_mesh()
                .disable_y_axis()
                .label_style((FONT, 11))
                .draw()?;
            for run in done.plan.runs() {
                let place = used.iter().position(|it| *it == run.configuration);
                let colour = COLOURS[place.unwrap_or(0) % COLOURS.len()];
                let (from, to) = (run.windows.start as f64, run.windows.end as f64);
                let bar = Rectangle::new([(from, 0.0), (to, 1.0)], colour.filled());
                chart.draw_series([bar])?;
            }
        }
        Ok(())
    })
}

/// The configurations that any policy ran, in order.
fn used(episode: &Episode) -> Vec<usize> {
    let all = episode.done.iter().flat_map(|done| &done.plan.choices);
    let mut used: Vec<usize> = all.copied().collect();
    used.sort_unstable();
    used.dedup();
    used
}
