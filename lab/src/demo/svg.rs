//! Leads, caps, clocks and throughput over time, one column per policy.

use std::error::Error;
use std::path::Path;

use litd_sim::Scenario;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::Finished;
use super::run::Frame;
use litd_cli::colours::COLOURS;
use litd_cli::output;

/// A panel, and the width of one that has no neighbour: a narrower picture crops its title.
const PANEL: (u32, u32) = (380, 190);
const LONE: u32 = 560;
const FONT: &str = "sans-serif";

/// The height of a line of the title, and the width of a character, generously.
const TITLE: (i32, u32) = (24, 9);
/// The width and height of an entry of the legend.
const ENTRY: (u32, i32) = (64, 20);

/// A quantity over time: its title, and its lines' values in one frame.
struct Quantity {
    title: &'static str,
    values: fn(&Frame) -> Vec<f64>,
}

const QUANTITIES: [Quantity; 4] = [
    Quantity {
        title: "lead, ms (sum over the iteration)",
        values: |frame| frame.leads.iter().map(|lead| lead.0).collect(),
    },
    Quantity {
        title: "cap, W",
        values: |frame| frame.caps.iter().map(|cap| cap.0).collect(),
    },
    Quantity {
        title: "clock, MHz",
        values: |frame| frame.clocks.iter().map(|clock| clock.0 / 1e6).collect(),
    },
    Quantity {
        title: "throughput, iterations per second",
        values: |frame| vec![1e3 / frame.iteration_time.0],
    },
];

type Fallible = Result<(), Box<dyn Error>>;

pub fn draw(file: &Path, scenario: &Scenario, finished: &[Finished]) -> Fallible {
    // Written by hand at the end: the plotting library panics where a file can't be written.
    let mut picture = String::new();
    {
        let columns = u32::try_from(finished.len().max(1))?;
        let rows = u32::try_from(QUANTITIES.len())?;
        let width = if columns == 1 {
            LONE
        } else {
            PANEL.0 * columns
        };
        let header = Header::new(scenario, width);
        let size = (width, header.height() + PANEL.1 * rows);
        let root = SVGBackend::with_string(&mut picture, size).into_drawing_area();
        root.fill(&WHITE)?;
        let (top, body) = root.split_vertically(header.height());
        header.draw(&top)?;
        let panels = body.split_evenly((QUANTITIES.len(), finished.len().max(1)));
        for (index, panel) in panels.iter().enumerate() {
            let row = index / finished.len().max(1);
            let Some(run) = finished.get(index % finished.len().max(1)) else {
                continue;
            };
            draw_panel(panel, &QUANTITIES[row], run)?;
        }
        root.present()?;
    }
    std::fs::write(file, picture)?;
    Ok(())
}

/// The title and the legend, in as many lines as they need.
struct Header {
    title: Vec<String>,
    gpus: usize,
    /// Entries of the legend in one row.
    per_row: usize,
}

impl Header {
    fn new(scenario: &Scenario, width: u32) -> Self {
        let title = format!("SIMULATED: {} (over iterations)", scenario.title);
        let fits = |each: u32| ((width.saturating_sub(20) / each) as usize).max(1);
        Self {
            title: output::wrap(&title, fits(TITLE.1)),
            gpus: scenario.gpus.len(),
            per_row: fits(ENTRY.0),
        }
    }

    fn title_height(&self) -> i32 {
        6 + TITLE.0 * self.title.len() as i32
    }

    fn height(&self) -> u32 {
        let rows = self.gpus.div_ceil(self.per_row) as i32;
        (self.title_height() + ENTRY.1 * rows + 6).unsigned_abs()
    }

    fn draw(&self, area: &DrawingArea<SVGBackend, Shift>) -> Fallible {
        for (line, title) in self.title.iter().enumerate() {
            let style = (FONT, 18).into_text_style(area);
            area.draw_text(title, &style, (10, 6 + TITLE.0 * line as i32))?;
        }
        for gpu in 0..self.gpus {
            let x = 10 + (gpu % self.per_row) as i32 * ENTRY.0 as i32;
            let y = self.title_height() + (gpu / self.per_row) as i32 * ENTRY.1;
            let colour = colour(gpu, self.gpus).filled();
            area.draw(&Rectangle::new([(x, y + 7), (x + 16, y + 10)], colour))?;
            let style = (FONT, 13).into_text_style(area);
            area.draw_text(&format!("gpu{gpu}"), &style, (x + 20, y + 1))?;
        }
        Ok(())
    }
}

/// The colour of one line of so many: where the palette ends, hues at equal distances.
fn colour(line: usize, lines: usize) -> RGBAColor {
    match COLOURS.get(line) {
        Some(colour) if lines <= COLOURS.len() => colour.to_rgba(),
        _ => {
            // Neighbours differ in lightness as well.
            let lightness = if line.is_multiple_of(2) { 0.35 } else { 0.6 };
            HSLColor(line as f64 / lines as f64, 0.8, lightness).to_rgba()
        }
    }
}

fn draw_panel(
    area: &DrawingArea<SVGBackend, Shift>,
    quantity: &Quantity,
    run: &Finished,
) -> Fallible {
    let points: Vec<(f64, Vec<f64>)> = run
        .frames
        .iter()
        .map(|frame| (f64::from(frame.iteration), (quantity.values)(frame)))
        .collect();
    let all = points.iter().flat_map(|(_, values)| values.iter().copied());
    let low = all.clone().fold(f64::INFINITY, f64::min);
    let high = all.fold(f64::NEG_INFINITY, f64::max);
    if !(low.is_finite() && high.is_finite()) {
        return Ok(());
    }
    // At least a percent is shown, so that noise looks as small as it is.
    let extra = ((high - low) * 0.06).max(high.abs() * 5e-3 + f64::MIN_POSITIVE);
    let digits = if high < 10.0 { 3 } else { 0 };
    let end = points.last().map_or(1.0, |(iteration, _)| *iteration);
    let mut chart = ChartBuilder::on(area)
        .caption(
            format!("{}: {}", run.summary.policy, quantity.title),
            (FONT, 13),
        )
        .margin(6)
        .margin_right(18)
        .x_label_area_size(22)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..end, (low - extra)..(high + extra))?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_labels(6)
        .y_labels(5)
        .y_label_formatter(&|value| format!("{value:.digits$}"))
        .x_label_formatter(&|iteration| format!("{iteration:.0}"))
        .label_style((FONT, 11))
        .draw()?;
    let lines = points.first().map_or(0, |(_, values)| values.len());
    for line in 0..lines {
        let colour = colour(line, lines);
        let line = points
            .iter()
            .filter_map(|(iteration, values)| Some((*iteration, *values.get(line)?)));
        chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
    }
    Ok(())
}
