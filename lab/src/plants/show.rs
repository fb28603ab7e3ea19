//! `litlab plants show`: one draw in words and numbers.

use litd_cli::{Outcome, output};
use litd_plants::dimension::Dimension;
use litd_plants::{Draw, Optimum, Plant, Policy, Steady, corner};
use litd_units::Watts;
use serde::Serialize;

use super::short;

/// Show one node of the family: its dimensions, its steady state, and its optimum per policy
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, group = clap::ArgGroup::new("plant").required(true))]
pub struct Args {
    /// The draw of this seed
    #[arg(long, value_name = "SEED", group = "plant")]
    draw: Option<u64>,
    /// A plant with a name (litlab plants list)
    #[arg(long, value_name = "NAME", group = "plant")]
    corner: Option<String>,
    /// Show this sibling, by its number, in place of the node: a node of the same kind with the same
    /// job, and with other silicon, cooling and noise
    #[arg(long, value_name = "N")]
    sibling: Option<u64>,
}

const EXAMPLES: &str = "\
Examples:
  litlab plants show --draw 7
  litlab plants show --corner lit-silicon --json";

#[derive(Serialize)]
struct Shown {
    simulated: bool,
    draw: Draw,
    kind: &'static str,
    workload: &'static str,
    /// Caps that the owner has, against the TDP.
    start: f64,
    dimensions: Vec<Value>,
    steady: Steady,
    optima: Vec<Best>,
}

#[derive(Serialize)]
struct Value {
    name: &'static str,
    value: f64,
    unit: &'static str,
    place: f64,
    meaning: &'static str,
}

#[derive(Serialize)]
struct Best {
    throughput: f64,
    power: f64,
    #[serde(flatten)]
    optimum: Optimum,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let mut draw = match (&args.corner, args.draw) {
        (Some(name), _) => {
            let corner = corner::named(name);
            corner.ok_or_else(|| unknown(name))?.draw
        }
        (None, seed) => Draw::new(seed.ok_or("--draw is missing")?),
    };
    if let Some(number) = args.sibling {
        draw = draw.sibling(number);
    }
    let shown = look(draw);
    match json {
        true => output::json(&shown),
        false => output::text(&render(&shown)),
    }
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = corner::all().iter().map(|it| it.name).collect();
    format!("there is no corner {name}; there are {}", names.join(", "))
}

fn look(draw: Draw) -> Shown {
    let node = draw.plant(0);
    let start = node.start();
    let value = |&dimension: &Dimension| {
        let (spec, value) = (dimension.spec(), draw.value(dimension));
        Value {
            name: spec.name,
            value,
            unit: spec.unit,
            place: spec.place(value),
            meaning: spec.meaning,
        }
    };
    let best = |policy| {
        let optimum = node.optimum(policy, &start);
        Best {
            throughput: optimum.throughput(),
            power: optimum.power(),
            optimum,
        }
    };
    Shown {
        simulated: true,
        kind: draw.kind.spec().name,
        workload: draw.workload.name(),
        start: draw.start(),
        dimensions: Dimension::ALL.iter().map(value).collect(),
        steady: node.steady(&start),
        optima: Policy::ALL.into_iter().map(best).collect(),
        draw,
    }
}

fn watts(caps: &[Watts]) -> String {
    let each: Vec<String> = caps.iter().map(|it| format!("{:.0}", it.0)).collect();
    each.join(" ")
}

fn render(shown: &Shown) -> String {
    let mut lines = vec![format!(
        "SIMULATED {} with {}, caps at {:.0} % of the TDP (seed {}, sibling {})\n",
        shown.kind,
        shown.workload,
        shown.start * 100.0,
        shown.draw.seed,
        shown.draw.sibling,
    )];
    lines.push(format!(
        "{:<22} {:>9} {:<5} within its range",
        "dimension", "value", "unit"
    ));
    for it in &shown.dimensions {
        lines.push(format!(
            "{:<22} {:>9} {:<5} {}  {}",
            it.name,
            short(it.value),
            it.unit,
            bar(it.place),
            it.meaning
        ));
    }
    let steady = &shown.steady;
    let iteration = steady.iteration;
    lines.push(format!(
        "\nwithout noise, under these caps: {iteration:.1} an iteration, GPUs"
    ));
    lines.push("GPU   power, W  temp, C  clock, MHz  overlap, %  limited by its cap".to_owned());
    for gpu in 0..steady.power.len() {
        lines.push(format!(
            "{gpu:>3} {:>10.1} {:>8.1} {:>11.0} {:>11.1}  {}",
            steady.power[gpu].0,
            steady.temperature[gpu].0,
            steady.clock[gpu].0 / 1e6,
            steady.overlap[gpu] * 100.0,
            if steady.binds[gpu] { "yes" } else { "no" },
        ));
    }
    lines.push("\nthe best caps there are, without noise (ratios: after/before)".to_owned());
    for it in &shown.optima {
        lines.push(format!(
            "{:<12} throughput {:.4}, GPU power {:.4}, caps {} W",
            it.optimum.policy,
            it.throughput,
            it.power,
            watts(&it.optimum.caps)
        ));
    }
    lines.join("\n") + "\n"
}

/// Where a value lies in its range, as a picture.
fn bar(place: f64) -> String {
    if !(-0.001..=1.001).contains(&place) {
        return "outside ".to_owned();
    }
    let at = (place.clamp(0.0, 1.0) * 7.0).round() as usize;
    (0..8).map(|it| if it == at { '|' } else { '-' }).collect()
}
