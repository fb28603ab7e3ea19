//! What is left over of the fits: the artifact's frontiers against the fitted A100, and Figure 11.

use std::collections::BTreeMap;
use std::path::Path;

use litd_profiles::synthetic::Gpu;
use litd_profiles::{Pricing, Units};
use litd_units::{Millis, Watts};

use super::emulation::Emulated;
use super::workloads::{Layers, Model, Workload};
use super::{Fallible, Item};

/// Model and configuration, and its points: seconds and joules with waiting.
type Frontiers = BTreeMap<String, Vec<[f64; 2]>>;

pub(super) fn items(artifact: Option<&Path>) -> Fallible<Vec<Item>> {
    let mut items = frontiers(artifact)?;
    items.extend(relaxation()?);
    Ok(items)
}

/// The frontiers that Kareus's artifact planned for Perseus.
fn read(folder: &Path) -> Fallible<Frontiers> {
    let path = folder.join("frontier_points.csv");
    let text =
        std::fs::read_to_string(&path).map_err(|cause| format!("{}: {cause}", path.display()))?;
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let column = |name: &str| {
        let place = header.iter().position(|it| *it == name);
        place.ok_or_else(|| format!("{}: no column {name}", path.display()))
    };
    let [method, model, config, set, time, energy] = [
        "method",
        "model",
        "config",
        "set",
        "iteration_time_s",
        "total_cost_with_p2p_J",
    ]
    .map(column);
    let (method, model, config, set) = (method?, model?, config?, set?);
    let (time, energy) = (time?, energy?);
    let mut frontiers = Frontiers::new();
    for (number, line) in lines.enumerate() {
        let fields: Vec<&str> = line.split(',').collect();
        let field = |at: usize| fields.get(at).copied().unwrap_or_default();
        if field(method) != "perseus" || field(set) != "frontier" {
            continue;
        }
        let parsed = |at: usize| {
            let value = field(at).parse::<f64>();
            value.map_err(|cause| format!("{}: line {}: {cause}", path.display(), number + 2))
        };
        let name = format!("{} {}", field(model), field(config));
        frontiers
            .entry(name)
            .or_default()
            .push([parsed(time)?, parsed(energy)?]);
    }
    for points in frontiers.values_mut() {
        points.sort_by(|a, b| a[0].total_cmp(&b[0]));
    }
    Ok(frontiers)
}

fn frontiers(artifact: Option<&Path>) -> Fallible<Vec<Item>> {
    let Some(folder) = artifact else {
        return Ok(vec![Item::absent(
            "fit-a100-sxm",
            "frontiers of Kareus's artifact",
            "",
            None,
            "its data are wanted: give --artifact FOLDER",
        )]);
    };
    // As planned there: two stages, which the artifact does not say to be unequal, and eight microbatches.
    let ours = Emulated::new(&Workload {
        model: Model {
            name: "two stages",
            bounds: &[0, 1, 2],
            layers: Layers::Equal { head: 1.0 },
            imbalance: 1.0,
        },
        gpu: Gpu::A100_SXM,
        microbatches: 8,
    })?;
    let frontier = ours.job.frontier();
    let shortest = ours.job.millis(frontier.shortest());
    let alone = |relative: f64| {
        let units = relative * f64::from(frontier.shortest().0);
        ours.job.alone(frontier.at(Units(units.round() as u32)))
    };
    let least = ours.job.millis(ours.job.cheapest_alone()) / shortest;
    let mut items = Vec::new();
    for (name, points) in read(folder)? {
        let Some(&[time, energy]) = points.first() else {
            continue;
        };
        let cheapest = points.iter().min_by(|a, b| a[1].total_cmp(&b[1]));
        let theirs = cheapest.map_or(1.0, |it| it[0] / time);
        // As far as the emulation goes: its profile ends where a clock costs more energy.
        let until = ours.job.millis(frontier.longest()) / shortest;
        let residuals: Vec<f64> = points
            .iter()
            .filter(|it| it[0] / time <= until)
            .map(|it| 100.0 * (alone(it[0] / time) / alone(1.0) - it[1] / energy))
            .collect();
        let worst =
            residuals.iter().copied().fold(
                0.0,
                |worst: f64, it| {
                    if it.abs() > worst.abs() { it } else { worst }
                },
            );
        let note = "as a multiple of the shortest time; the first number is the artifact's";
        items.push(Item::compared(
            "fit-a100-sxm",
            format!("{name}: the time of least energy"),
            "times",
            theirs,
            least,
            note,
        ));
        items.push(Item::ours(
            "fit-a100-sxm",
            format!("{name}: the largest residual of the energy, in percent of that at the shortest time"),
            "%",
            worst,
            format!("over {} points up to {until:.2} times the shortest", residuals.len()),
        ));
    }
    Ok(items)
}

/// Figure 11: how well an exponential fits.
fn relaxation() -> Fallible<Vec<Item>> {
    let mut items = Vec::new();
    for gpu in [Gpu::A100_SXM, Gpu::A100_PCIE, Gpu::A40] {
        let pricing = Pricing {
            unit: Millis(0.1),
            blocking: Watts(gpu.blocking),
            ..Pricing::default()
        };
        let (_, priced) = gpu.profile(&[1.0], [60.0, 180.0]).price(&pricing)?;
        let errors = priced
            .iter()
            .filter_map(|it| Some(it.quality?.largest_error));
        items.push(Item::ours(
            "figure-11",
            format!(
                "{}: the largest relative error of the exponential at a measured point",
                gpu.name
            ),
            "%",
            100.0 * errors.fold(0.0, f64::max),
            "the paper draws GPT-3 0.3B on A40 and calls the exponential a natural fit",
        ));
    }
    Ok(items)
}
