//! `litctl plan partition`: layers to stages.

use litd_planner::partition;
use litd_units::Millis;

use crate::{Outcome, output};

/// Divide layers among stages so that the stages' times differ as little as possible
///
/// Prints where stages begin and end, and the imbalance ratio (Perseus, Table 7): the time of
/// the longest stage divided by that of the shortest.
#[derive(clap::Args)]
pub struct Args {
    /// The forward time of each layer in ms, in order
    #[arg(long, value_name = "MS,MS,…", value_delimiter = ',', required = true, value_parser = crate::spaced::<f64>)]
    layers: Vec<f64>,
    /// The number of stages
    #[arg(long, value_name = "N")]
    stages: usize,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let layers: Vec<Millis> = args.layers.iter().copied().map(Millis).collect();
    let partition = partition(&layers, args.stages)?;
    if json {
        return output::json(&partition);
    }
    output::text(&format!(
        "{:?}\nimbalance {:.4}\n",
        partition.bounds, partition.imbalance
    ))
}
