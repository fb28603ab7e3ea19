//! `litctl predict run`: one configuration, by operator.

use litd_inference::interpret::Degrees;
use litd_inference::kernel::Setting;
use litd_inference::predict::{Configuration, Metrics, Phase};
use litd_units::Watts;
use serde::Serialize;

use super::deploy;
use crate::{Outcome, output};

/// The shape to predict.
#[derive(clap::Args)]
pub struct Shape {
    #[command(flatten)]
    deploy: deploy::Deploy,
    #[command(flatten)]
    load: Load,
    /// Requests in a batch [default: 1]
    #[arg(long, value_name = "N")]
    batch: Option<u32>,
    /// Input tokens of each request
    #[arg(long, value_name = "TOKENS", default_value_t = 512)]
    input: u32,
    /// Output tokens of each request
    #[arg(long, value_name = "TOKENS", default_value_t = 128)]
    output: u32,
    /// GPUs that share each tensor [default: 1]
    #[arg(long, value_name = "N")]
    tp: Option<u32>,
    /// GPUs that share the experts [default: as --tp for models with experts, else 1]
    #[arg(long, value_name = "N")]
    ep: Option<u32>,
    /// GPUs that share the context
    #[arg(long, value_name = "N", default_value_t = 1)]
    cp: u32,
    /// The number of stages in which a matrix product and its all-reduce overlap; 1: they run one
    /// after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    overlap_stages: u32,
    /// SMs (multiprocessors) for the all-reduce while it overlaps a matrix product (--overlap-stages)
    #[arg(long, value_name = "SMS", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    overlap_sms: u32,
}

/// Under which conditions, for `run` and `sweep` alike.
#[derive(clap::Args)]
pub struct Load {
    /// Tokens that each decode step proposes and checks beyond the next one (speculative decoding)
    /// [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=64))]
    pub speculate: Option<u32>,
    /// The chance that a proposed token is kept
    #[arg(long, default_value_t = 0.7, value_name = "SHARE")]
    pub accepted: f64,
}

const EXAMPLES: &str = "\
Examples:
  litctl predict run --model llama-3-70b --gpu a100 --tp 8 --batch 16 \\
      --input 512 --output 1024
  litctl predict run --model qwen3-30b-a3b --gpu h200 --tp 2 --ep 2 \\
      --power-limit 500
  litctl predict run --model config.json --spec layer.txt --gpu mi300x";

/// The output.
#[derive(Serialize)]
struct Report {
    model: String,
    gpu: String,
    gpus: u32,
    rests_on: String,
    metrics: Metrics,
    memory_gb: f64,
    usable_gb: f64,
    fits: bool,
    prefill: Vec<Part>,
    decode: Vec<Part>,
}

/// An operator's part of a phase, of the whole batch and all GPUs.
#[derive(Serialize)]
struct Part {
    operator: String,
    compute_ms: f64,
    communication_ms: f64,
    compute_j: f64,
    communication_j: f64,
}

/// Power limit and clock, for `run`.
#[derive(clap::Args)]
pub struct Limits {
    /// Power limit of each GPU, in watts [default: the data sheet's]
    #[arg(long, value_name = "W")]
    power_limit: Option<f64>,
    /// Clock as a share of the boost clock, 0.15 to 1 [default: as high as power allows]
    #[arg(long, value_name = "SHARE")]
    clock: Option<f64>,
}

/// Checks a power limit.
pub fn limit(watts: f64) -> Result<Watts, String> {
    match watts.is_finite() && watts > 0.0 {
        true => Ok(Watts(watts)),
        false => Err(format!("a power limit of {watts} W: it must be above zero")),
    }
}

/// Checks a clock.
pub fn clock(share: f64) -> Result<f64, String> {
    match (0.15..=1.0).contains(&share) {
        true => Ok(share),
        false => Err(format!(
            "a clock of {share}: it is a share of the boost clock, 0.15 to 1"
        )),
    }
}

/// Predict energy and latency of one configuration, operator by operator
///
/// Prints TTFT and ETFT, the time and energy to the first output token (prefill), and TPOT and EPOT,
/// the time and energy of decode per output token. Energies are of all GPUs together and per
/// request. A configuration that does not fit into memory is reported.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Whole {
    #[command(flatten)]
    args: Shape,
    #[command(flatten)]
    limits: Limits,
}

pub fn run(whole: &Whole, json: bool) -> Outcome {
    let args = &whole.args;
    let deployed = args.deploy.read()?;
    let program = deployed.program(deploy::overlap(args.overlap_stages, args.overlap_sms))?;
    let deployment = deployed.with(&program, deployed.kernels.as_ref());
    let engine = &deployed.engine;
    let tp = args.tp.or(engine.tp).unwrap_or(1);
    let ep = args.ep.unwrap_or(match deployed.model.experts {
        Some(_) => tp,
        None => 1,
    });
    let configuration = Configuration {
        batch: args.batch.or(engine.batch).unwrap_or(1),
        input: args.input,
        output: args.output,
        degrees: Degrees {
            tp,
            ep,
            cp: args.cp,
        },
        speculated: args.load.speculate.or(engine.speculated).unwrap_or(0),
        accepted: args.load.accepted,
        setting: Setting {
            power_limit: whole.limits.power_limit.map(limit).transpose()?,
            clock: whole.limits.clock.map(clock).transpose()?,
            sms: None,
        },
    };
    let (prefill, decode) = (
        deployment.prefill(&configuration)?,
        deployment.decode(&configuration)?,
    );
    let footprint = deployment.footprint(&configuration);
    let labels: Vec<&str> = program
        .operators
        .iter()
        .map(|it| it.label.as_str())
        .collect();
    let report = Report {
        model: deployed.model.name.clone(),
        gpu: deployed.kernels.gpu().name.clone(),
        gpus: configuration.degrees.gpus(),
        rests_on: deployed.rests_on.clone(),
        metrics: Metrics::of(&configuration, &prefill, &decode),
        memory_gb: footprint.total() * 1e-9,
        usable_gb: footprint.usable * 1e-9,
        fits: footprint.fits(),
        prefill: parts(&labels, &prefill),
        decode: parts(&labels, &decode),
    };
    match json {
        true => output::json(&report),
        false => output::text(&text(&report)),
    }
}

fn parts(labels: &[&str], phase: &Phase) -> Vec<Part> {
    let labels = labels
        .iter()
        .copied()
        .chain(["Norms, RoPE, activation, ends"]);
    let part = |(label, share): (&str, &litd_inference::predict::Share)| Part {
        operator: label.to_owned(),
        compute_ms: share.compute,
        communication_ms: share.communication,
        compute_j: share.compute_energy,
        communication_j: share.communication_energy,
    };
    labels.zip(&phase.shares).map(part).collect()
}

fn text(report: &Report) -> String {
    let Metrics {
        ttft_ms,
        etft_j,
        tpot_ms,
        epot_j,
        request_j,
        tokens_per_s,
        prefill_w,
        decode_w,
    } = report.metrics;
    let mut text = format!(
        "{} on {} x {} ({})\n\n  TTFT {ttft_ms:10.2} ms   ETFT {etft_j:10.3} J per request   {prefill_w:4.0} W per GPU\n  \
         TPOT {tpot_ms:10.2} ms   EPOT {epot_j:10.4} J per request   {decode_w:4.0} W per GPU\n  \
         {tokens_per_s:.0} tokens/s while decoding, {request_j:.1} J per request in all\n  \
         memory {:.1} of {:.1} GB per GPU{}\n",
        report.model,
        report.gpus,
        report.gpu,
        report.rests_on,
        report.memory_gb,
        report.usable_gb,
        if report.fits { "" } else { ": it DOES NOT FIT" },
    );
    for (name, parts) in [("prefill", &report.prefill), ("decode", &report.decode)] {
        text += &format!("\n  {name:30}  compute ms     comm. ms    compute J      comm. J\n");
        for it in parts {
            text += &format!(
                "  {:30} {:11.3}  {:11.3}  {:11.3}  {:11.3}\n",
                it.operator, it.compute_ms, it.communication_ms, it.compute_j, it.communication_j
            );
        }
    }
    text
}
