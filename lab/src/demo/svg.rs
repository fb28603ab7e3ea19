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
const PANEL: (u32, u32) = (380, 204);
const LONE: u32 = 560;
const FONT: &str = "sans-serif";
/// The lines that mark where caps were changed.
const ADJUSTMENT: RGBColor = RGBColor(150, 150, 150);

/// The height of a line of the title, and the width of a character, generously.
const TITLE: (i32, u32) = (24, 9);
/// The width and height of an entry of the legend.
const ENTRY: (u32, i32) = (64, 20);

/// A quantity over time, its unit, and its lines' values in one frame.
struct Quantity {
    title: &'static str,
    unit: &'static str,
    values: fn(&Frame) -> Vec<f64>,
}

const QUANTITIES: [Quantity; 5] = [
    Quantity {
        title: "lead, mean of all kernels",
        unit: "ms",
        values: |frame| frame.mean_leads.iter().map(|lead| lead.0).collect(),
    },
    Quantity {
        title: "cap",
        unit: "W",
        values: |frame| frame.caps.iter().map(|cap| cap.0).collect(),
    },
    Quantity {
        title: "clock",
        unit: "MHz",
        values: |frame| frame.clocks.iter().map(|clock| clock.0 / 1e6).collect(),
    },
    Quantity {
        title: "power of all GPUs",
        unit: "W",
        values: |frame| vec![frame.power.0],
    },
    Quantity {
        title: "throughput",
        unit: "iterations per second",
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
            let quantity = &QUANTITIES[row];
            if let Some(axes) = Axes::of(quantity, finished) {
                draw_panel(panel, quantity, &axes, run)?;
            }
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
        let title = format!(
            "SIMULATED: {} (grey lines: caps are changed)",
            scenario.title
        );
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

/// What the panels of one quantity have in common, so that policies can be compared by eye.
struct Axes {
    end: f64,
    low: f64,
    high: f64,
}

impl Axes {
    /// `None` where there is nothing to draw.
    fn of(quantity: &Quantity, finished: &[Finished]) -> Option<Self> {
        let frames = || finished.iter().flat_map(|run| &run.frames);
        let all = || frames().flat_map(quantity.values);
        let low = all().fold(f64::INFINITY, f64::min);
        let high = all().fold(f64::NEG_INFINITY, f64::max);
        // At least a percent is shown, so that noise looks as small as it is.
        let extra = ((high - low) * 0.06).max(high.abs() * 5e-3 + f64::MIN_POSITIVE);
        (low.is_finite() && high.is_finite()).then(|| Self {
            end: frames().fold(1.0, |end, frame| f64::from(frame.iteration).max(end)),
            low: low - extra,
            high: high + extra,
        })
    }
}

fn draw_panel(
    area: &DrawingArea<SVGBackend, Shift>,
    quantity: &Quantity,
    axes: &Axes,
    run: &Finished,
) -> Fallible {
    let points: Vec<(f64, Vec<f64>)> = run
        .frames
        .iter()
        .map(|frame| (f64::from(frame.iteration), (quantity.values)(frame)))
        .collect();
    let digits = if axes.high < 10.0 { 2 } else { 0 };
    let mut chart = ChartBuilder::on(area)
        .caption(
            format!("{}: {}", run.summary.policy, quantity.title),
            (FONT, 13),
        )
        .margin(6)
        .margin_right(18)
        .x_label_area_size(36)
        .y_label_area_size(58)
        .build_cartesian_2d(0.0..axes.end, axes.low..axes.high)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_labels(6)
        .y_labels(5)
        .x_desc("iteration")
        .y_desc(quantity.unit)
        .y_label_formatter(&|value| format!("{value:.digits$}"))
        .x_label_formatter(&|iteration| format!("{iteration:.0}"))
        .label_style((FONT, 11))
        .axis_desc_style((FONT, 11))
        .draw()?;
    // Where caps were changed.
    for pair in run.frames.windows(2) {
        let [before, after] = pair else { continue };
        if before.caps != after.caps {
            let at = f64::from(after.iteration);
            let ends = [(at, axes.low), (at, axes.high)];
            chart.draw_series(LineSeries::new(ends, ADJUSTMENT.stroke_width(1)))?;
        }
    }
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
