//! `litlab decide`: the bare law on given samples, to check a decision by hand.

use std::path::PathBuf;

use litd_policies::{Leads, Scale, adj_power_node, inc_power_gpu};
use litd_traces::{aggregate, straggler_wave};
use litd_units::{Aggregation, Millis, Watts};
use serde::{Deserialize, Serialize};

use litd_cli::{Outcome, output};

/// Print the caps of the paper's Algorithms 1 to 3 for given samples, before safety limits
///
/// Reads a JSON array of cases and prints a JSON array of results. No limits apply here: a cap may
/// be below a device's floor, where the daemon would set the floor.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub struct Args {
    /// The cases, as a JSON array; - for standard input
    file: PathBuf,
}

const EXAMPLE: &str = r#"A case has the start of every kernel on every GPU, in any unit of time. In
watts it has max_inc (by how much the straggler's cap rises at most), caps
(before), tdp (the most for a GPU) and node_cap (the most for the sum). With
the scale global, increases shrink as the greatest lead falls below
global_max_before, the greatest so far; with local they do not:

  echo '[{"starts": [[0, 9], [2, 12]], "aggregation": "sum",
    "max_inc": 15, "scale": "global", "global_max_before": 0,
    "caps": [700, 700], "tdp": 750, "node_cap": 1400}]' | litlab decide -

The answer to each: lead (Algorithm 1), increase and global_max_after
(Algorithm 2), new_caps (Algorithm 3). Leads are in the unit of the starts."#;

#[derive(Deserialize)]
struct Case {
    /// Start of kernel k on GPU g, in any unit of time.
    starts: Vec<Vec<Millis>>,
    #[serde(default)]
    aggregation: Aggregation,
    max_inc: Watts,
    #[serde(default)]
    scale: Scale,
    #[serde(default)]
    global_max_before: Millis,
    caps: Vec<Watts>,
    tdp: Watts,
    node_cap: Watts,
}

#[derive(Serialize)]
struct Answer {
    lead: Vec<Millis>,
    increase: Vec<Watts>,
    global_max_after: Millis,
    new_caps: Vec<Watts>,
}

pub fn run(args: &Args, _json: bool) -> Outcome {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", args.file.display());
    let text = if args.file.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(&args.file)
    }
    .map_err(|error| named(&error))?;
    let cases: Vec<Case> = serde_json::from_str(&text).map_err(|error| {
        named(&format_args!(
            "not an array of cases: {error} (litlab decide --help shows one)"
        ))
    })?;
    let answers = cases
        .into_iter()
        .enumerate()
        .map(|(index, case)| decide(case).map_err(|error| format!("case {index}: {error}")))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| named(&error))?;
    output::json(&answers)
}

fn decide(case: Case) -> Result<Answer, String> {
    let gpus = case.starts.len();
    let kernels = case.starts.first().map_or(0, Vec::len);
    if kernels == 0 {
        return Err("starts holds no kernel".into());
    }
    if let Some(gpu) = case.starts.iter().position(|row| row.len() != kernels) {
        return Err(format!(
            "starts has {kernels} kernels for GPU 0 and {} for GPU {gpu}; match them first (litctl analyze does)",
            case.starts[gpu].len()
        ));
    }
    if case.caps.len() != gpus {
        return Err(format!(
            "starts covers {gpus} GPUs and caps {}",
            case.caps.len()
        ));
    }
    if !(case.global_max_before >= Millis::ZERO) {
        return Err("global_max_before is negative".into());
    }
    let wave = straggler_wave(&case.starts);
    let leads = Leads::new(wave.iter().map(|row| aggregate(row, case.aggregation)))
        .map_err(|error| error.to_string())?;
    let (increase, global_max_after) =
        inc_power_gpu(&leads, case.max_inc, case.scale, case.global_max_before);
    let tdp = vec![case.tdp; gpus];
    Ok(Answer {
        new_caps: adj_power_node(&increase, &case.caps, &tdp, case.node_cap),
        lead: leads.values().to_vec(),
        increase,
        global_max_after,
    })
}
