//! Two iterations, one above the other: rows are stages, boxes are operations, colours are power.

use std::error::Error;
use std::path::Path;

use litd_planner::{Job, Plan};
use litd_units::Watts;
use plotters::coord::Shift;
use plotters::prelude::*;

const FONT: &str = "sans-serif";
const WIDTH: u32 = 1200;
/// The height of a stage's row, of what stands above the rows of an iteration, and of the legend.
const ROW: u32 = 26;
const HEAD: u32 = 30;
const LEGEND: u32 = 46;
/// The width left of the rows, and the margin on the right.
const LEFT: i32 = 44;
const RIGHT: i32 = 14;
/// A box narrower than this has no room for its name.
const NAMED: i32 = 18;
/// More boxes than this make a picture that no viewer opens.
const MAX_BOXES: usize = 200_000;

type Fallible = Result<(), Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws two iterations of a job, one above the other, into an SVG file.
///
/// # Errors
/// There are too many operations, or the file can't be written.
pub fn draw(file: &Path, job: &Job, plans: [&Plan; 2], simulated: bool) -> Fallible {
    let operations = job.problem().graph().operations().len();
    if operations > MAX_BOXES {
        return Err(format!("{operations} operations are too many for a picture").into());
    }
    // Written by hand at the end: the plotting library panics where a file can't be written.
    let mut picture = String::new();
    {
        let stages = job.problem().graph().stages();
        let height = HEAD + ROW * stages;
        let size = (WIDTH, 2 * height + LEGEND);
        let root = SVGBackend::with_string(&mut picture, size).into_drawing_area();
        root.fill(&WHITE)?;
        let end = plans
            .iter()
            .map(|plan| plan.until.0)
            .fold(f64::MIN_POSITIVE, f64::max);
        let scale = Powers::of(plans);
        let (above, rest) = root.split_vertically(height);
        let (below, legend) = rest.split_vertically(height);
        let mark = if simulated { "SIMULATED: " } else { "" };
        for (area, plan, name) in [
            (&above, plans[0], "full clock"),
            (&below, plans[1], "planned"),
        ] {
            let title = format!(
                "{mark}{name}: {:.1} ms, {:.1} J until {:.1} ms",
                plan.realised.0, plan.energy.0, plan.until.0
            );
            iteration(area, job, plan, &title, end, &scale)?;
        }
        scale.draw(&legend)?;
        root.present()?;
    }
    std::fs::write(file, picture)?;
    Ok(())
}

fn iteration(
    area: &Area,
    job: &Job,
    plan: &Plan,
    title: &str,
    end: f64,
    scale: &Powers,
) -> Fallible {
    let graph = job.problem().graph();
    let style = (FONT, 14).into_text_style(area);
    area.draw_text(title, &style, (LEFT, 8))?;
    let x = |time: f64| {
        let room = WIDTH as i32 - LEFT - RIGHT;
        LEFT + (time / end * f64::from(room)) as i32
    };
    let y = |stage: u32| (HEAD + ROW * stage) as i32;
    let small = (FONT, 11).into_text_style(area);
    for stage in 0..graph.stages() {
        area.draw_text(&format!("S{stage}"), &small, (12, y(stage) + 6))?;
        let row = [
            (x(0.0), y(stage)),
            (x(plan.until.0), y(stage) + ROW as i32 - 3),
        ];
        area.draw(&Rectangle::new(row, RGBColor(238, 238, 238).filled()))?;
    }
    for (number, [start, finish]) in plan.moments(graph).into_iter().enumerate() {
        let kind = graph.kind(number);
        let (left, right) = (x(start.0), x(finish.0));
        let corners = [
            (left, y(kind.stage)),
            (right, y(kind.stage) + ROW as i32 - 3),
        ];
        let planned = &plan.operations[number];
        let power = Watts(planned.energy.0 / (planned.realised.0 * 1e-3).max(f64::MIN_POSITIVE));
        area.draw(&Rectangle::new(corners, scale.colour(power).filled()))?;
        area.draw(&Rectangle::new(corners, WHITE.stroke_width(1)))?;
        if right - left >= NAMED {
            let first = kind
                .instruction
                .chars()
                .next()
                .unwrap_or('?')
                .to_ascii_uppercase();
            let name = format!("{first}{}", graph.operations()[number].microbatch + 1);
            area.draw_text(&name, &small, (left + 3, y(kind.stage) + 6))?;
        }
    }
    Ok(())
}

/// The least and the most power of an operation.
struct Powers {
    least: f64,
    most: f64,
}

impl Powers {
    fn of(plans: [&Plan; 2]) -> Self {
        let operations = plans.iter().flat_map(|plan| &plan.operations);
        let powers = operations.map(|planned| planned.energy.0 / (planned.realised.0 * 1e-3));
        let powers = powers.filter(|power| power.is_finite());
        let (least, most) = powers.fold((f64::INFINITY, 0.0_f64), |(least, most), power| {
            (least.min(power), most.max(power))
        });
        Self { least, most }
    }

    /// From a light yellow to a dark red, evenly in lightness.
    fn colour(&self, power: Watts) -> RGBColor {
        let way = (power.0 - self.least) / (self.most - self.least).max(f64::MIN_POSITIVE);
        let way = way.clamp(0.0, 1.0);
        let mix = |low: f64, high: f64| (low + way * (high - low)).round() as u8;
        RGBColor(mix(255.0, 200.0), mix(237.0, 62.0), mix(160.0, 38.0))
    }

    fn draw(&self, area: &Area) -> Fallible {
        let style = (FONT, 12).into_text_style(area);
        for step in 0..=100 {
            let power = self.least + f64::from(step) / 100.0 * (self.most - self.least);
            let left = LEFT + 3 * step;
            let corners = [(left, 12), (left + 3, 26)];
            area.draw(&Rectangle::new(corners, self.colour(Watts(power)).filled()))?;
        }
        area.draw_text(&format!("{:.0} W", self.least), &style, (LEFT, 29))?;
        area.draw_text(&format!("{:.0} W", self.most), &style, (LEFT + 270, 29))?;
        Ok(())
    }
}
