//! The figures, drawn.

use std::path::Path;

use litd_cli::colours::COLOURS;
use litd_cli::plan::draw_timeline;
use litd_planner::Plan;
use litd_profiles::synthetic::Gpu;
use litd_profiles::{Pricing, Shape};
use litd_units::{Millis, Watts};
use plotters::prelude::*;

use super::emulation::Emulated;
use super::workloads::{FOUR_STAGES, LARGE, SCALES, Workload};
use super::{Fallible, Item, Lab};
use crate::study::figures::{Area, Drawn, FONT, around, picture};

const SIZE: (u32, u32) = (560, 360);
const HEADER: i32 = 52;
/// So many points of a frontier are drawn, about.
const POINTS: usize = 60;

/// A name, and points that are joined or stand alone.
pub(in crate::reproduce) struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    pub is_line: bool,
}

/// Figures that have no numbers.
pub(super) fn items() -> Vec<Item> {
    let sketch = "it is a sketch without numbers";
    let mut items: Vec<Item> = [
        ("figure-2", "extrinsic energy bloat"),
        ("figure-3", "where a straggler's time can be"),
        ("figure-4", "architecture and workflow"),
        ("figure-5", "tracing the frontier"),
        ("figure-6", "a step of the algorithm"),
    ]
    .into_iter()
    .map(|(item, what)| Item::absent(item, what, "", None, sketch))
    .collect();
    for (item, what) in [
        ("figure-1", "GPT-3 1.3B's timeline"),
        ("figure-10", "the other models' timelines"),
    ] {
        let why = "a timeline in colours has no numbers; the page's pictures have ours of the same stages, drawn to \
                   scale";
        items.push(Item::absent(item, what, "", None, why));
    }
    items
}

/// Draws all figures. Their files, with what each shows.
pub(super) fn draw(folder: &Path, lab: &Lab) -> Fallible<Vec<(String, String)>> {
    let mut drawn = timelines(folder)?;
    let mut save = |name: String, caption: String, svg: String| -> Fallible<()> {
        let path = folder.join(&name);
        std::fs::write(&path, svg).map_err(|cause| format!("{}: {cause}", path.display()))?;
        drawn.push((name, caption));
        Ok(())
    };
    for (gpu, models) in ["A100", "A40"].into_iter().zip(&lab.large) {
        for (scales, model) in models.iter().zip(LARGE) {
            let title = format!("{}, {gpu}", model[0].name);
            let name = format!("perseus-figure-8-{}.svg", slug(&title));
            let svg = savings(&title, scales)?;
            save(name, format!("Figure 8: {title}"), svg)?;
        }
    }
    let nine = [("9a", lab.four.first()), ("9b", lab.eight.first())];
    let nine = nine
        .into_iter()
        .filter_map(|(figure, it)| Some((figure, it?.0, &it?.1)));
    let three_d = lab
        .three_d
        .iter()
        .map(|it| ("9c", "GPT-3 6.7B, three-dimensional", it));
    let twelve = lab.eight.iter().skip(1).map(|it| ("12", it.0, &it.1));
    let thirteen = lab.four.iter().skip(1).map(|it| ("13", it.0, &it.1));
    for (figure, name, emulated) in nine.chain(three_d).chain(twelve).chain(thirteen) {
        let file = format!("perseus-figure-{figure}-{}.svg", slug(name));
        let title = format!("Figure {figure}: {name}");
        save(file, title.clone(), frontiers(&title, emulated)?)?;
    }
    save(
        "perseus-figure-11.svg".into(),
        "Figure 11: choices and the exponential, A40".into(),
        relaxation()?,
    )?;
    Ok(drawn)
}

fn slug(name: &str) -> String {
    let letters = name.to_lowercase();
    let words = letters.split(|it: char| !it.is_ascii_alphanumeric());
    words
        .filter(|it| !it.is_empty())
        .collect::<Vec<_>>()
        .join("-")
}

/// Figures 1 and 10: six microbatches, at the full clock and as planned.
fn timelines(folder: &Path) -> Fallible<Vec<(String, String)>> {
    let mut drawn = Vec::new();
    for (at, (model, _)) in FOUR_STAGES.into_iter().enumerate() {
        let figure = if at == 0 { "1" } else { "10" };
        let emulated = Emulated::new(&Workload {
            model,
            gpu: Gpu::A100_PCIE,
            microbatches: 6,
        })?;
        let name = format!("perseus-figure-{figure}-{}.svg", slug(model.name));
        let plans = [emulated.full(), &emulated.perseus(1.0)];
        draw_timeline(&folder.join(&name), &emulated.job, plans, true)?;
        drawn.push((
            name,
            format!("Figure {figure}: {}, four stages on A100 PCIe", model.name),
        ));
    }
    Ok(drawn)
}

/// Figure 8: a line for each number of pipelines.
fn savings(title: &str, scales: &[Emulated]) -> Drawn<String> {
    let lines = scales
        .iter()
        .zip(SCALES)
        .map(|(emulated, (_, pipelines, _))| {
            let degrees = (0..=50).map(|it| 1.0 + f64::from(it) / 100.0);
            let points = degrees.map(|it| (it, emulated.saved(&emulated.perseus(it), it).percent));
            Series {
                name: format!("{pipelines} pipelines"),
                points: points.collect(),
                is_line: true,
            }
        });
    let lines: Vec<Series> = lines.collect();
    chart(
        title,
        "a straggler's time by that at full clock, T'/T",
        "energy saved, %",
        &lines,
    )
}

/// Figures 9, 12 and 13: the frontiers of Perseus and of Zeus's two.
fn frontiers(title: &str, emulated: &Emulated) -> Fallible<String> {
    let frontier = emulated.job.frontier();
    let every = frontier.len().div_ceil(POINTS).max(1);
    let points = frontier.points().step_by(every);
    let perseus = points.map(|point| emulated.job.plan(point.time, None));
    let fastest = emulated.perseus(1.0);
    let baselines = emulated.baselines()?;
    let point = |plan: &Plan| (plan.realised.0 * 1e-3, plan.energy.0 * 1e-3);
    let line: Vec<(f64, f64)> = perseus
        .map(|plan| point(&plan))
        .chain([point(&fastest)])
        .collect();
    let longest = line.first().map_or(f64::INFINITY, |it| it.0 * 1.02);
    let within = |plans: Vec<Plan>| -> Vec<(f64, f64)> {
        plans
            .iter()
            .map(point)
            .filter(|it| it.0 <= longest)
            .collect()
    };
    let series = [
        ("Perseus", line, true),
        ("ZeusGlobal", within(baselines.zeus_global()), false),
        ("ZeusPerStage", within(baselines.zeus_per_stage()), false),
        ("EnvPipe", vec![point(&baselines.envpipe(None))], false),
        ("full clock", vec![point(emulated.full())], false),
    ];
    let series = series.map(|(name, points, is_line)| Series {
        name: name.into(),
        points,
        is_line,
    });
    chart(
        title,
        "iteration time, s",
        "energy of a pipeline, kJ",
        &series,
    )
}

/// Figure 11: the measured choices and the exponential through them.
fn relaxation() -> Fallible<String> {
    let gpu = Gpu::A40;
    let profile = gpu.profile(&[1.0], [60.0, 180.0]);
    let pricing = Pricing {
        unit: Millis(0.5),
        blocking: Watts(gpu.blocking),
        shape: Shape::Exponential,
        ..Pricing::default()
    };
    let (spec, _) = profile.price(&pricing)?;
    let mut series = Vec::new();
    for (kind, curve) in spec.curves()? {
        let (first, last) = (curve.shortest().0, curve.longest().0);
        let milliseconds = |units: u32| f64::from(units) * pricing.unit.0;
        let times = (first..=last).step_by(((last - first) as usize / POINTS).max(1));
        series.push(Series {
            name: format!("{}, fitted", kind.instruction),
            points: times
                .map(|it| (milliseconds(it), curve.cost(litd_profiles::Units(it)).0))
                .collect(),
            is_line: true,
        });
        let own = profile.measurements().find(|(other, _)| **other == kind);
        let waiting = |time: Millis| gpu.blocking * time.0 * 1e-3;
        let points = own.into_iter().flat_map(|(_, all)| all);
        series.push(Series {
            name: format!("{}, measured", kind.instruction),
            points: points
                .map(|it| (it.time.0, it.energy.0 - waiting(it.time)))
                .collect(),
            is_line: false,
        });
    }
    chart(
        "Figure 11: choices on A40",
        "time, ms",
        "energy less waiting, J",
        &series,
    )
}

fn header(area: &Area, title: &str, series: &[Series]) -> Drawn<()> {
    let style = (FONT, 15).into_text_style(area);
    area.draw_text(&format!("SIMULATED: {title}"), &style, (10, 6))?;
    let mut x = 10;
    for (at, one) in series.iter().enumerate() {
        let key = Rectangle::new(
            [(x, 34), (x + 12, 42)],
            COLOURS[at % COLOURS.len()].filled(),
        );
        area.draw(&key)?;
        let style = (FONT, 12).into_text_style(area);
        area.draw_text(&one.name, &style, (x + 16, 31))?;
        x += 30 + 7 * one.name.chars().count() as i32;
    }
    Ok(())
}

/// Lines and dots over two axes, with what they are above.
pub(in crate::reproduce) fn chart(
    title: &str,
    across: &str,
    up: &str,
    series: &[Series],
) -> Drawn<String> {
    picture(SIZE, |area| {
        let (top, body) = area.split_vertically(HEADER);
        header(&top, title, series)?;
        let points = || series.iter().flat_map(|it| &it.points);
        let mut chart = ChartBuilder::on(&body)
            .margin(8)
            .margin_right(20)
            .x_label_area_size(36)
            .y_label_area_size(58)
            .build_cartesian_2d(
                around(points().map(|it| it.0)),
                around(points().map(|it| it.1)),
            )?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(225, 225, 225))
            .x_desc(across)
            .y_desc(up)
            .label_style((FONT, 12))
            .draw()?;
        for (at, one) in series.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let points = one.points.iter().copied();
            match one.is_line {
                true => drop(chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?),
                false => {
                    let dots = points.map(|it| Circle::new(it, 2, colour.filled()));
                    chart.draw_series(dots)?;
                }
            }
        }
        Ok(())
    })
}
