//! `litlab plants list`: what is assumed, and where it comes from.

use litd_cli::{Outcome, output};
use litd_plants::dimension::{Basis, Dimension, Spec};
use litd_plants::{Kind, WorkloadKind, corner};
use serde::Serialize;

use super::short;

/// List the family's dimensions with ranges and sources, its kinds of nodes, workloads and corners
#[derive(clap::Args)]
pub struct Args {}

#[derive(Serialize)]
struct Listing {
    simulated: bool,
    dimensions: Vec<Spec>,
    kinds: Vec<&'static str>,
    workloads: Vec<&'static str>,
    corners: Vec<Named>,
}

#[derive(Serialize)]
struct Named {
    name: &'static str,
    meaning: &'static str,
}

pub fn run(_: &Args, json: bool) -> Outcome {
    let listing = Listing {
        simulated: true,
        dimensions: Dimension::ALL.iter().map(|it| it.spec()).collect(),
        kinds: Kind::ALL.iter().map(|it| it.spec().name).collect(),
        workloads: WorkloadKind::TRAINING.iter().map(|it| it.name()).collect(),
        corners: corner::all()
            .into_iter()
            .map(|it| Named {
                name: it.name,
                meaning: it.meaning,
            })
            .collect(),
    };
    if json {
        return output::json(&listing);
    }
    let mut lines = vec![format!(
        "SIMULATED: the family's {} dimensions; a draw takes one value of each\n",
        listing.dimensions.len()
    )];
    for it in &listing.dimensions {
        let basis = match it.basis {
            Basis::Data => "data",
            Basis::Literature => "literature",
            Basis::Assumed => "assumed",
        };
        let range = format!("{} to {} {}", short(it.low), short(it.high), it.unit);
        lines.push(format!("{:<22} {:<20} {basis}", it.name, range.trim_end()));
        for text in [it.meaning, it.source] {
            lines.extend(
                output::wrap(text, 96)
                    .into_iter()
                    .map(|it| format!("    {it}")),
            );
        }
    }
    lines.push(format!("\nkinds of nodes   {}", listing.kinds.join(", ")));
    lines.push(format!("workloads        {}", listing.workloads.join(", ")));
    lines.push("\ncorners (litlab plants show --corner NAME)".to_owned());
    for it in &listing.corners {
        lines.push(format!("{:<18} {}", it.name, it.meaning));
    }
    output::text(&(lines.join("\n") + "\n"))
}
