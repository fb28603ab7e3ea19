//! Frontiers as pictures: no script, nothing from a network.

use std::error::Error;
use std::ops::Range;

use litd_kareus::Searched;
use litd_kareus::search::Pass;
use plotters::prelude::*;

use super::Planning;
use crate::colours::COLOURS;

const SIZE: (u32, u32) = (860, 520);
const FONT: &str = "sans-serif";

/// Points of one colour.
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    line: bool,
    radius: i32,
}

/// The iteration frontiers of all methods (figure 11).
pub(super) fn iteration(planning: &Planning) -> Result<String, Box<dyn Error>> {
    let series = planning.frontiers.iter().filter(|it| !it.points.is_empty());
    let series = series.map(|it| Series {
        name: it.name.to_owned(),
        points: it
            .points
            .iter()
            .map(|(time, energy)| (time.0 * 1e-3, energy.0))
            .collect(),
        line: it.points.len() > 1,
        radius: 4,
    });
    let series: Vec<Series> = series.collect();
    let title = titled("Iteration", planning.explored.simulated);
    draw(&title, ["s", "J, all GPUs of a pipeline"], &series)
}

/// The candidates of a partition, by pass; larger where they are on the frontier (figure 7).
pub(super) fn partition(search: &Searched, simulated: bool) -> Result<String, Box<dyn Error>> {
    let frontier = search.found.frontier();
    let passes = [
        (Pass::Initial, "at first"),
        (Pass::Total, "total energy"),
        (Pass::Dynamic, "dynamic energy"),
        (Pass::Static, "static energy"),
        (Pass::Uncertainty, "uncertainty"),
    ];
    let mut series = Vec::new();
    for (pass, name) in passes {
        for (all, radius) in [(&search.found.evaluated, 2), (&frontier, 5)] {
            let own = all.iter().filter(|it| it.pass == pass);
            series.push(Series {
                name: if radius > 2 {
                    name.to_owned()
                } else {
                    String::new()
                },
                points: own
                    .map(|it| (it.measured.time.0, it.measured.energy.0))
                    .collect(),
                line: false,
                radius,
            });
        }
    }
    draw(
        &titled(&search.partition, simulated),
        ["ms", "J, one GPU"],
        &series,
    )
}

fn titled(what: &str, simulated: bool) -> String {
    let mark = if simulated { ", SIMULATED" } else { "" };
    format!("{what}: energy by time{mark}")
}

fn draw(title: &str, axes: [&str; 2], series: &[Series]) -> Result<String, Box<dyn Error>> {
    let points = || series.iter().flat_map(|it| &it.points);
    let across = range(points().map(|it| it.0));
    let up = range(points().map(|it| it.1));
    let mut picture = String::new();
    {
        let root = SVGBackend::with_string(&mut picture, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, (FONT, 18))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(64)
            .build_cartesian_2d(across, up)?;
        chart
            .configure_mesh()
            .x_desc(axes[0])
            .y_desc(axes[1])
            .label_style((FONT, 13))
            .draw()?;
        let mut names: Vec<&str> = Vec::new();
        for (place, it) in series.iter().enumerate() {
            // A series without a name has the colour of the next, which has one.
            let next = series[place..].iter().find(|it| !it.name.is_empty());
            let name = next.map_or("", |it| it.name.as_str());
            let at = names
                .iter()
                .position(|it| *it == name)
                .unwrap_or(names.len());
            if at == names.len() {
                names.push(name);
            }
            let colour = COLOURS[at % COLOURS.len()];
            let drawn = match it.line {
                true => {
                    chart.draw_series(LineSeries::new(it.points.clone(), colour.stroke_width(2)))?
                }
                false => chart.draw_series(
                    it.points
                        .iter()
                        .map(|&at| Circle::new(at, it.radius, colour.filled())),
                )?,
            };
            if !it.name.is_empty() {
                let legend = move |(x, y)| Circle::new((x + 8, y), 5, colour.filled());
                drawn.label(&it.name).legend(legend);
            }
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .label_font((FONT, 13))
            .position(SeriesLabelPosition::UpperRight)
            .draw()?;
        root.present()?;
    }
    Ok(picture)
}

/// All values with a little room around them.
fn range(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| {
        (low.min(it), high.max(it))
    });
    if !(low <= high) {
        return 0.0..1.0;
    }
    let room = (high - low).max(high.abs() * 1e-3).max(f64::MIN_POSITIVE) * 0.05;
    low - room..high + room
}
