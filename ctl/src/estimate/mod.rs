//! `litctl estimate`: what a fleet could gain at most, from telemetry that its owner already has. No litd need
//! run anywhere.

mod cell;
mod columns;
mod damage;
mod exporters;
mod html;
mod limiter;
mod names;
mod prices;
mod prometheus;
mod table;
mod text;
mod time;

use std::fs;
use std::path::{Path, PathBuf};

use litd_estimate::{Estimate, Fleet, FleetEstimate, Gap, NEAR_CAP, NodeEstimate, Seen};
use litd_traces::printable;
use litd_units::{Prices, Watts};
use serde::Serialize;

use crate::{Outcome, output};
use columns::Wanted;
use damage::Kind;
use prices::Price;
use table::{Input, Rules};

/// Estimate what a fleet could gain at most, from telemetry that you already have
///
/// Reads tables of nvidia-smi, amd-smi or any monitoring, or a Prometheus with dcgm-exporter, AMD's
/// device-metrics-exporter or litd. Works without litd on the nodes, and changes nothing. Prints per
/// node and for the fleet what limits the GPUs, how far apart their speeds are while caps limit them, an
/// upper bound of each policy's gain, GPUs to repair, and the questions that the data leave open.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, group = clap::ArgGroup::new("telemetry").required(true).multiple(true))]
pub struct Args {
    /// Tables from nvidia-smi, amd-smi or others: CSV, plain or compressed with gzip
    #[arg(long, value_name = "FILE", num_args = 1.., group = "telemetry")]
    csv: Vec<PathBuf>,
    /// Names of the columns of node, gpu, time, power_w, clock_mhz, temp_c, cap_w, max_cap_w,
    /// limiter and pace (time per unit of work); COLUMN+COLUMN joins two columns into one value. Columns
    /// of nvidia-smi and amd-smi are recognised without this
    #[arg(
        long,
        value_name = "KEY=COLUMN,…",
        default_value = "",
        hide_default_value = true
    )]
    columns: Wanted,
    /// The node's name, for tables that have no column for it [default: the file's name; if several files have that
    /// name, with the names of their folders]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    #[command(flatten)]
    history: prometheus::Options,
    /// Every GPU's cap in watts, if no column has it
    #[arg(long, value_name = "W", value_parser = watts)]
    cap_w: Option<Watts>,
    /// The highest cap that a GPU's driver accepts, in watts: a GPU at that cap can't get more power
    #[arg(long, value_name = "W", value_parser = watts)]
    max_cap_w: Option<Watts>,
    /// Prices of a kilowatt-hour and of an hour of one GPU, in one currency
    #[arg(long, value_name = "kwh=…,gpu_hour=…")]
    price: Option<Price>,
    /// Take prices from [prices] of this litd.toml
    #[arg(long, value_name = "FILE", conflicts_with = "price")]
    config: Option<PathBuf>,
    /// Write a page with the fleet's distribution
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  COLUMNS_1=timestamp,uuid,power.draw,clocks.sm,temperature.gpu
  COLUMNS_2=enforced.power.limit,power.max_limit,clocks_event_reasons.active
  nvidia-smi --query-gpu=$COLUMNS_1,$COLUMNS_2 --format=csv -l 10 \\
      > $(hostname).csv
  litctl estimate --csv *.csv --price kwh=0.14,gpu_hour=2.50
  litctl estimate --prometheus http://prometheus:9090 --last 7d \\
      --html fleet.html
  litctl estimate --csv runs.csv.gz --cap-w 300 \\
      --columns node=host,gpu=uuid,time=ts,power_w=draw,pace=ms";

fn watts(text: &str) -> Result<Watts, String> {
    let value = text
        .parse::<f64>()
        .ok()
        .filter(|it| (1.0..=10_000.0).contains(it));
    value
        .map(Watts)
        .ok_or_else(|| "must be between 1 and 10000 W".to_owned())
}

/// Questions that no telemetry of this kind can answer.
const STANDING: [(&str, &str); 3] = [
    (
        "bound",
        "Whether the GPUs of a node wait for each other: only traces show that (litctl analyze). A bound is what could \
         be gained if they do.",
    ),
    (
        "spread_pct",
        "Whether they did equal work: the GPUs of a node are compared as if they had.",
    ),
    (
        "limiter_share",
        "Bursts between two samples: on B300 those of 5 to 50 ms pass a cap by 5 to 42 %.",
    ),
];

fn standing(nodes: usize) -> impl Iterator<Item = Gap> {
    STANDING.iter().map(move |(what, why)| Gap {
        what,
        why: (*why).to_owned(),
        nodes,
    })
}

/// The estimate and its input.
#[derive(Serialize)]
struct Report {
    schema: u32,
    simulated: bool,
    nodes: Vec<NodeEstimate>,
    fleet: FleetEstimate,
    input: Source,
    assumptions: Assumptions,
}

#[derive(Serialize)]
struct Source {
    rows: u64,
    samples: u64,
    repeated: u64,
    earlier: u64,
    damage: Vec<Kind>,
}

/// Assumptions of the bounds (docs/estimate.md).
#[derive(Serialize)]
struct Assumptions {
    prices: Option<Prices>,
    power_limits_from_share_of_cap: f64,
    slopes: [f64; 2],
    confidence: f64,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let prices = match (&args.price, &args.config) {
        (Some(price), _) => Some(price.0),
        (None, Some(path)) => Some(prices::configured(path)?),
        (None, None) => None,
    };
    if let Some(page) = &args.html {
        refuse_input(page, args.csv.iter().chain(&args.config))?;
    }
    let rules = Rules {
        wanted: args.columns.clone(),
        node: args.node.clone(),
        cap: args.cap_w,
        highest_cap: args.max_cap_w,
    };
    let (mut fleet, mut input) = (Fleet::default(), Input::default());
    for (path, name) in args.csv.iter().zip(names::of_files(&args.csv)) {
        table::file(path, &name, &rules, &mut fleet, &mut input)?;
    }
    let mut simulated = false;
    if let Some(address) = &args.history.prometheus {
        simulated = prometheus::history(&args.history, address, &rules, &mut fleet, &mut input)?;
    }
    let source = source(&fleet, &input);
    if source.samples == 0 {
        let said = source
            .damage
            .iter()
            .map(|it| format!("\n  {} x {} ({})", it.count, it.what, it.first));
        return Err(format!(
            "no sample of a GPU could be read{}",
            String::from_iter(said)
        )
        .into());
    }
    let Estimate { nodes, mut fleet } = Estimate::of(&fleet, prices);
    fleet.cannot_tell.extend(standing(fleet.nodes));
    let report = Report {
        schema: 1,
        simulated,
        nodes,
        fleet,
        input: source,
        assumptions: Assumptions {
            prices,
            power_limits_from_share_of_cap: 1.0 - NEAR_CAP,
            slopes: [litd_estimate::SMALLEST_SLOPE, litd_estimate::LARGEST_SLOPE],
            confidence: 0.95,
        },
    };
    if let Some(path) = &args.html {
        fs::write(path, html::page(&report)).map_err(|it| format!("{}: {it}", path.display()))?;
    }
    match json {
        true => output::json(&report),
        false => output::text(&text::page(&report)),
    }
}

/// The page must not take the place of what it is made from, by whichever path or link either is named.
fn refuse_input<'a>(page: &Path, inputs: impl Iterator<Item = &'a PathBuf>) -> Result<(), String> {
    let Ok(place) = fs::canonicalize(page) else {
        return Ok(());
    };
    let is_page = |it: &&PathBuf| fs::canonicalize(it).is_ok_and(|it| it == place);
    match { inputs }.find(is_page) {
        None => Ok(()),
        Some(_) => Err(format!(
            "--html {} would be written over what is read: name another file",
            printable(&page.display().to_string())
        )),
    }
}

fn source(fleet: &Fleet, input: &Input) -> Source {
    let Seen {
        samples,
        repeated,
        earlier,
    } = fleet.seen();
    let mut damage = input.damage.clone();
    let order = "rows are earlier than the one before of their GPU; they count (a file given twice counts twice)";
    damage.count(order, earlier, String::new);
    let twice =
        "rows say the same of the same moment as the one before of their GPU; they count once";
    damage.count(twice, repeated, String::new);
    Source {
        rows: input.rows,
        samples,
        repeated,
        earlier,
        damage: damage.kinds(),
    }
}
