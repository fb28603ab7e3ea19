//! `litctl predict sweep`: all configurations of a grid, and the Pareto front.

use std::fs;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressDrawTarget};
use litd_inference::interpret::{Degrees, Program};
use litd_inference::kernel::Cached;
use litd_inference::spec::Overlap;
use litd_inference::sweep::{Explored, Grid, Phases, Sweep, doubling, explore, linear, pareto};
use serde::Serialize;

use super::deploy::{self, Deployed};
use super::picture::{self, Dot};
use super::run::{self, Load};
use crate::{Outcome, output};

/// Predict all configurations of a grid and find the Pareto front of energy against latency
///
/// Configurations that don't fit into memory, or whose degrees of parallelism do not divide the
/// model, are left out and counted.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    deploy: deploy::Deploy,
    #[command(flatten)]
    load: Load,
    /// A grid of the paper (appendix M): for prefill, batches doubled up to 64 and inputs up to
    /// 8192 in steps of 256; for decode, batches up to 16, an input of 512, and outputs up to 7680
    /// in steps of 256; for overlap, as in section 5.2. Lists given in other options replace the
    /// grid's
    #[arg(long, value_enum)]
    grid: Option<Shipped>,
    /// Batch sizes [default without --grid: 1]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    batch: Vec<u32>,
    /// Input lengths, in tokens [default without --grid: 512]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    input: Vec<u32>,
    /// Output lengths, in tokens [default without --grid: 128]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    output: Vec<u32>,
    /// Degrees of tensor parallelism [default without --grid: 1; with it 2,4,8]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    tp: Vec<u32>,
    /// Degrees of expert parallelism [default: as --tp for models with experts, else 1]
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    ep: Vec<u32>,
    /// Degrees of context parallelism
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_value = "1")]
    cp: Vec<u32>,
    /// Overlap of matrix products with their all-reduce, as stages:SMs, such as 4:16; "none" for none
    /// [default: none; with --grid overlap also 4:1, 4:4 and 4:16]
    #[arg(long, value_delimiter = ',', value_name = "STAGES:SMS,…", value_parser = overlap)]
    overlap: Vec<Way>,
    /// Power limits of each GPU, in watts [default: the data sheet's]
    #[arg(long, value_delimiter = ',', value_name = "W,…")]
    power_limit: Vec<f64>,
    /// Clocks as shares of the boost clock, 0.15 to 1 [default: as high as power allows]
    #[arg(long, value_delimiter = ',', value_name = "SHARE,…")]
    clock: Vec<f64>,
    /// The phase whose Pareto front is shown
    #[arg(long, value_enum, default_value_t = Phase::Both)]
    phase: Phase,
    /// Write all configurations as CSV
    #[arg(long, value_name = "FILE.csv")]
    csv: Option<PathBuf>,
    /// Write pictures of both phases as one page
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Shipped {
    /// Batch, input and TP for prefill
    Prefill,
    /// Batch, output and TP for decode
    Decode,
    /// Batch, TP and overlap, for an input of 4096 tokens
    Overlap,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Phase {
    Prefill,
    Decode,
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way(Option<Overlap>);

fn overlap(text: &str) -> Result<Way, String> {
    if text.trim() == "none" {
        return Ok(Way(None));
    }
    let parts = text.trim().split_once(':');
    let numbers = parts.and_then(|(stages, sms)| Some((stages.parse().ok()?, sms.parse().ok()?)));
    match numbers {
        Some((stages @ 2..=1024, sms @ 1..=1024)) => Ok(Way(deploy::overlap(stages, sms))),
        _ => Err("must be none or STAGES:SMS, such as 4:16".to_owned()),
    }
}

const EXAMPLES: &str = "\
Examples:
  litctl predict sweep --model llama-3-70b --gpu a100 --grid prefill \\
      --tp 2,4,8 --html prefill.html
  litctl predict sweep --model llama-3-70b --gpu a100 --batch 1,2,4,8,16 \\
      --input 512 --output 1024 --tp 2,4,8
  litctl predict sweep --model llama-3-70b --gpu h100 --batch 8 --tp 4 \\
      --power-limit 400,500,600,700";

/// No more configurations are held at once: two GiB or so.
const MOST: usize = 2_000_000;

/// A configuration as it is printed.
#[derive(Serialize, Clone)]
pub struct Line {
    batch: u32,
    input: u32,
    output: u32,
    tp: u32,
    ep: u32,
    cp: u32,
    overlap: String,
    power_limit_w: Option<f64>,
    clock: Option<f64>,
    gpus: u32,
    ttft_ms: f64,
    etft_j: f64,
    tpot_ms: f64,
    epot_j: f64,
    request_j: f64,
    tokens_per_s: f64,
    prefill_pareto: bool,
    decode_pareto: bool,
}

#[derive(Serialize)]
struct Report {
    model: String,
    gpu: String,
    rests_on: String,
    configurations: usize,
    too_large: usize,
    indivisible: usize,
    prefill_front: Vec<Line>,
    decode_front: Vec<Line>,
    disaggregated: Option<Advice>,
}

/// Prefill and decode on GPUs of their own (section 5.1).
#[derive(Serialize)]
struct Advice {
    prefill: Line,
    decode: Line,
    together: Line,
    saving_percent: f64,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let deployed = args.deploy.read()?;
    let grid = grid(args, &deployed)?;
    let ways = ways(args);
    if grid.len().saturating_mul(ways.len()) > MOST {
        let what =
            format!("the grid has more than {MOST} configurations: they would not fit into memory");
        return Err(what.into());
    }
    let mut programs = Vec::new();
    for way in &ways {
        programs.push(deployed.program(way.0)?);
    }
    let sweep = explored(args, &deployed, &grid, &programs)?;
    let lines = lines(&sweep, &ways, args.phase);
    let front = |wanted: fn(&Line) -> bool| -> Vec<Line> {
        lines.iter().filter(|it| wanted(it)).cloned().collect()
    };
    let mut report = Report {
        model: deployed.model.name.clone(),
        gpu: deployed.kernels.gpu().name.clone(),
        rests_on: deployed.rests_on.clone(),
        configurations: grid.len() * ways.len(),
        too_large: sweep.too_large,
        indivisible: sweep.indivisible,
        prefill_front: front(|it| it.prefill_pareto),
        decode_front: front(|it| it.decode_pareto),
        disaggregated: advice(&lines, args.phase),
    };
    report
        .prefill_front
        .sort_by(|a, b| a.ttft_ms.total_cmp(&b.ttft_ms));
    report
        .decode_front
        .sort_by(|a, b| a.tpot_ms.total_cmp(&b.tpot_ms));
    if let Some(path) = &args.csv {
        fs::write(path, csv(&lines)).map_err(|it| format!("{}: {it}", path.display()))?;
    }
    if let Some(path) = &args.html {
        let page = page(&report, &lines, args.phase)?;
        fs::write(path, page).map_err(|it| format!("{}: {it}", path.display()))?;
    }
    match json {
        true => output::json(&report),
        false => output::text(&text(&report, args.phase)),
    }
}

fn grid(args: &Args, deployed: &Deployed) -> Result<Grid, Box<dyn std::error::Error>> {
    let (batches, inputs, outputs, tps) = match args.grid {
        None => (vec![1], vec![512], vec![128], vec![1]),
        Some(Shipped::Prefill) => (doubling(64), linear(256, 8192, 256), vec![1], vec![2, 4, 8]),
        Some(Shipped::Decode) => (
            doubling(16),
            vec![512],
            linear(256, 7680, 256),
            vec![2, 4, 8],
        ),
        Some(Shipped::Overlap) => (doubling(64), vec![4096], vec![1], vec![2, 4, 8]),
    };
    let or = |given: &[u32], otherwise: Vec<u32>| match given.is_empty() {
        true => otherwise,
        false => given.to_vec(),
    };
    let tps = or(&args.tp, tps);
    let mut degrees = Vec::new();
    for &tp in &tps {
        for &cp in &args.cp {
            let own = if deployed.model.experts.is_some() {
                tp
            } else {
                1
            };
            for ep in or(&args.ep, vec![own]) {
                degrees.push(Degrees { tp, ep, cp });
            }
        }
    }
    let limits = args.power_limit.iter().map(|&it| run::limit(it).map(Some));
    let clocks = args.clock.iter().map(|&it| run::clock(it).map(Some));
    let or_none = |list: Vec<_>| if list.is_empty() { vec![None] } else { list };
    let limits = or_none(limits.collect::<Result<Vec<_>, _>>()?);
    let clocks: Vec<Option<f64>> = clocks.collect::<Result<Vec<_>, _>>()?;
    Ok(Grid {
        batches: or(&args.batch, batches),
        inputs: or(&args.input, inputs),
        outputs: or(&args.output, outputs),
        degrees,
        limits,
        clocks: if clocks.is_empty() {
            vec![None]
        } else {
            clocks
        },
        speculation: (args.load.speculate.unwrap_or(0), args.load.accepted),
    })
}

fn ways(args: &Args) -> Vec<Way> {
    match (args.overlap.is_empty(), args.grid) {
        (false, _) => args.overlap.clone(),
        (true, Some(Shipped::Overlap)) => {
            let stages = [1, 4, 16].map(|sms| Way(deploy::overlap(4, sms)));
            [&[Way(None)], &stages[..]].concat()
        }
        (true, _) => vec![Way(None)],
    }
}

fn explored(
    args: &Args,
    deployed: &Deployed,
    grid: &Grid,
    programs: &[Program],
) -> Result<Sweep, Box<dyn std::error::Error>> {
    let kernels = Cached::new(deployed.kernels.as_ref());
    let phases = match args.phase {
        Phase::Prefill => Phases::Prefill,
        Phase::Decode => Phases::Decode,
        Phase::Both => Phases::Both,
    };
    let bar = ProgressBar::new((grid.len() * programs.len()) as u64);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let mut sweep = Sweep::default();
    let mut passed = 0_u64;
    for (variant, program) in programs.iter().enumerate() {
        let deployment = deployed.with(program, &kernels);
        let each = || {
            passed += 1;
            if passed.is_multiple_of(4096) {
                bar.set_position(passed);
            }
        };
        explore(&deployment, grid, variant, phases, &mut sweep, each)?;
    }
    bar.finish_and_clear();
    Ok(sweep)
}

fn lines(sweep: &Sweep, ways: &[Way], phase: Phase) -> Vec<Line> {
    let line = |it: &Explored| {
        let configuration = &it.configuration;
        let Degrees { tp, ep, cp } = configuration.degrees;
        Line {
            batch: configuration.batch,
            input: configuration.input,
            output: configuration.output,
            tp,
            ep,
            cp,
            overlap: match ways[it.variant].0 {
                None => "none".to_owned(),
                Some(overlap) => format!("{}:{}", overlap.stages, overlap.sms),
            },
            power_limit_w: configuration.setting.power_limit.map(|it| it.0),
            clock: configuration.setting.clock,
            gpus: configuration.degrees.gpus(),
            ttft_ms: it.metrics.ttft_ms,
            etft_j: it.metrics.etft_j,
            tpot_ms: it.metrics.tpot_ms,
            epot_j: it.metrics.epot_j,
            request_j: it.metrics.request_j,
            tokens_per_s: it.metrics.tokens_per_s,
            prefill_pareto: false,
            decode_pareto: false,
        }
    };
    let mut lines: Vec<Line> = sweep.explored.iter().map(line).collect();
    // Only what serves the same requests is compared: one front for each input and output.
    let mut loads: Vec<(u32, u32)> = lines.iter().map(|it| (it.input, it.output)).collect();
    loads.sort_unstable();
    loads.dedup();
    for load in loads {
        let all = lines.iter().enumerate();
        let places = all
            .filter(|it| (it.1.input, it.1.output) == load)
            .map(|it| it.0);
        let places: Vec<usize> = places.collect();
        let points = |point: fn(&Line) -> (f64, f64)| -> Vec<(f64, f64)> {
            places.iter().map(|&it| point(&lines[it])).collect()
        };
        let prefill = pareto(&points(|it| (it.ttft_ms, it.etft_j)));
        let decode = pareto(&points(|it| (it.tpot_ms, it.epot_j)));
        if phase != Phase::Decode {
            prefill
                .iter()
                .for_each(|&it| lines[places[it]].prefill_pareto = true);
        }
        if phase != Phase::Prefill {
            decode
                .iter()
                .for_each(|&it| lines[places[it]].decode_pareto = true);
        }
    }
    lines
}

/// The least energy of a request in one configuration, against the least of prefill and of decode apart.
fn advice(lines: &[Line], phase: Phase) -> Option<Advice> {
    if phase != Phase::Both {
        return None;
    }
    let load = lines.last().map(|it| (it.input, it.output))?;
    let same = || lines.iter().filter(|it| (it.input, it.output) == load);
    let least = |energy: fn(&Line) -> f64| same().min_by(|a, b| energy(a).total_cmp(&energy(b)));
    let prefill = least(|it| it.etft_j)?.clone();
    let decode = least(|it| it.epot_j)?.clone();
    let together = least(|it| it.request_j)?.clone();
    let apart = prefill.etft_j + decode.epot_j * f64::from(decode.output);
    Some(Advice {
        saving_percent: 100.0 * (1.0 - apart / together.request_j),
        prefill,
        decode,
        together,
    })
}

fn csv(lines: &[Line]) -> String {
    let mut text = "batch,input,output,tp,ep,cp,overlap,power_limit_w,clock,gpus,ttft_ms,etft_j,tpot_ms,epot_j,request_j,\
                    tokens_per_s,prefill_pareto,decode_pareto\n"
        .to_owned();
    let or_empty = |value: Option<f64>| value.map_or_else(String::new, |it| it.to_string());
    for it in lines {
        text += &format!(
            "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
            it.batch,
            it.input,
            it.output,
            it.tp,
            it.ep,
            it.cp,
            it.overlap,
            or_empty(it.power_limit_w),
            or_empty(it.clock),
            it.gpus,
            it.ttft_ms,
            it.etft_j,
            it.tpot_ms,
            it.epot_j,
            it.request_j,
            it.tokens_per_s,
            it.prefill_pareto,
            it.decode_pareto
        );
    }
    text
}

impl Line {
    /// The configuration in a few words.
    fn named(&self) -> String {
        let mut name = format!("B{} TP{}", self.batch, self.tp);
        if self.ep > 1 {
            name += &format!(" EP{}", self.ep);
        }
        if self.cp > 1 {
            name += &format!(" CP{}", self.cp);
        }
        if self.overlap != "none" {
            name += &format!(" overlap {}", self.overlap);
        }
        if let Some(limit) = self.power_limit_w {
            name += &format!(" {limit} W");
        }
        if let Some(clock) = self.clock {
            name += &format!(" clock {clock}");
        }
        name
    }
}

fn text(report: &Report, phase: Phase) -> String {
    let mut text = format!(
        "{} on {} ({})\n{} configurations; left out: {} that memory does not hold, {} whose degrees do not divide\n",
        report.model,
        report.gpu,
        report.rests_on,
        report.configurations,
        report.too_large,
        report.indivisible
    );
    if phase != Phase::Decode {
        text += "\nPareto front of prefill\n  input   TTFT ms     ETFT J  configuration\n";
        for it in &report.prefill_front {
            text += &format!(
                "  {:5} {:9.2} {:10.3}  {}\n",
                it.input,
                it.ttft_ms,
                it.etft_j,
                it.named()
            );
        }
    }
    if phase != Phase::Prefill {
        text += "\nPareto front of decode\n  input output   TPOT ms      EPOT J  configuration\n";
        for it in &report.decode_front {
            text += &format!(
                "  {:5} {:6} {:9.3} {:11.4}  {}\n",
                it.input,
                it.output,
                it.tpot_ms,
                it.epot_j,
                it.named()
            );
        }
    }
    if let Some(it) = &report.disaggregated {
        text += &format!(
            "\nPrefill and decode apart: {} and {} take {:.1} % less energy than {} for both\n",
            it.prefill.named(),
            it.decode.named(),
            it.saving_percent,
            it.together.named()
        );
    }
    text
}

fn page(
    report: &Report,
    lines: &[Line],
    phase: Phase,
) -> Result<String, Box<dyn std::error::Error>> {
    let dots = |point: fn(&Line) -> (f64, f64), front: fn(&Line) -> bool| -> Vec<Dot> {
        let dot = |it: &Line| Dot {
            at: point(it),
            group: it.tp,
            front: front(it),
        };
        lines.iter().map(dot).collect()
    };
    let mut pictures = Vec::new();
    if phase != Phase::Decode {
        let dots = dots(|it| (it.ttft_ms, it.etft_j), |it| it.prefill_pareto);
        pictures.push((
            "Prefill",
            picture::scatter("TTFT, ms", "ETFT, J per request", &dots)?,
        ));
    }
    if phase != Phase::Prefill {
        let dots = dots(|it| (it.tpot_ms, it.epot_j), |it| it.decode_pareto);
        pictures.push((
            "Decode",
            picture::scatter("TPOT, ms", "EPOT, J per request", &dots)?,
        ));
    }
    let title = format!("{} on {} ({})", report.model, report.gpu, report.rests_on);
    Ok(picture::page(&title, &text(report, phase), &pictures))
}
