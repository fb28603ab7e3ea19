//! `plan kareus`: from a job's description and results to its time-energy frontier, beside the baselines.

mod judged;
mod picture;
mod search;
mod text;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use litd_kareus::search::Pass;
use litd_kareus::{
    A100, Gpu, Iteration, Job, Method, Planned, Profiler as _, Reductions, Results, Searched,
    Workload, reductions,
};
use litd_planner::Schedule;
use litd_units::{Joules, Millis};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use search::searched;

use super::{Fallible, positive};
use crate::{Outcome, output};

/// Where results come from: records, or a simulator.
pub trait Source: clap::Args {
    /// The examples in the command's help.
    const EXAMPLES: &'static str;

    /// Every result that there is, for judging searches by it, and whether a simulator made them.
    ///
    /// # Errors
    /// They can't be read or made, in words.
    fn everything(&self, job: &Job, gpu: &Gpu) -> Fallible<(Results, bool)>;

    /// All results that a plan needs.
    ///
    /// # Errors
    /// They can't be read or made, in words.
    fn explore(&self, job: &Job, gpu: &Gpu, library_sms: u32, quiet: bool) -> Fallible<Explored>;
}

/// The results of a [`Source`].
pub struct Explored {
    /// Results that Kareus may choose from.
    pub results: Results,
    /// Results that the baselines may choose from.
    pub baselines: Results,
    /// How partitions were searched, if they were.
    pub searches: Vec<Searched>,
    /// Whether a simulator made the numbers.
    pub simulated: bool,
}

/// Plan the clock of each microbatch, and how its computations and communications overlap
///
/// Kareus: the two halves of a microbatch take turns, so that the communication of one runs beside
/// computations of the other. For each point of the iteration's time-energy frontier, three things
/// are chosen together: the number of SMs of a communication, the computation with which it starts,
/// and the GPU's clock. The paper's baselines are printed beside the frontier, as special cases of the
/// same model. Energies are of all GPUs of one pipeline, except in plans that --plan writes and in the
/// table of microbatches: there they are of one GPU of each stage.
#[derive(clap::Args)]
#[command(after_help = S::EXAMPLES)]
pub struct Args<S: Source> {
    /// The job: JSON with "model", whose keys are those of Hugging Face's config.json, and
    /// "training" (keys: docs/kareus.md)
    #[arg(long, value_name = "JOB.json")]
    job: PathBuf,
    /// The GPU: JSON with sms; clocks (lowest and highest), stride (from a clock to the next) and
    /// least_clock (the lowest that is searched), in Hz; most_sms (for a communication); matrix_rate
    /// (FLOP/s) and link_rate (bytes/s to another GPU) of its data sheet. (Results have clocks in MHz)
    /// [default: the paper's A100]
    #[arg(long, value_name = "GPU.json")]
    gpu: Option<PathBuf>,
    /// SMs of communications in the baseline nanobatching, where the communication library chooses
    /// them
    #[arg(long, value_name = "SMS", default_value_t = 24)]
    library_sms: u32,
    /// Times are rounded to multiples of this, in ms
    #[arg(long, value_name = "MS", default_value_t = 1.0, value_parser = positive)]
    unit: f64,
    /// Show the plan with the least energy among those that take at most this time, in s
    /// [default: the fastest plan is shown]
    #[arg(long, value_name = "S", value_parser = positive, conflicts_with = "within_energy")]
    within_time: Option<f64>,
    /// Show the fastest plan among those that use at most this energy, in J, on all GPUs of one pipeline
    #[arg(long, value_name = "J", value_parser = positive)]
    within_energy: Option<f64>,
    /// Write every point of every frontier: method,time_s,energy_J
    #[arg(long, value_name = "OUT.csv")]
    csv: Option<PathBuf>,
    /// Write pictures: the iteration's frontiers, and for each searched partition the candidates that
    /// each pass of the search found
    #[arg(long, value_name = "FOLDER")]
    pictures: Option<PathBuf>,
    /// Write the plan for an engine to follow: JSON with clocks and partitions. If FILE ends in .py: the artifact's
    /// partitions if its name begins with scheds (scheds_pipeline_1.py), else the artifact's clocks
    /// (freqs_pipeline_1.py). May be given more than once
    #[arg(long, value_name = "FILE")]
    plan: Vec<PathBuf>,
    /// Make no plan: run the search with this many seeds, and report how much of the frontier of
    /// all results it finds, and how much less without each pass
    #[arg(long, value_name = "SEEDS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    compare_searches: Option<u32>,
    #[command(flatten)]
    source: S,
}

/// A method's frontier, or why it has none.
struct Frontier {
    name: &'static str,
    iteration: Result<Iteration, String>,
    /// Times and energies of all GPUs, from the longest time to the shortest.
    points: Vec<(Millis, Joules)>,
    reductions: Option<Reductions>,
}

/// The printed output.
struct Planning {
    job: Job,
    /// GPUs that share a stage's work.
    gpus_per_stage: f64,
    explored: Explored,
    /// Baselines, and Kareus last.
    frontiers: Vec<Frontier>,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    simulated: bool,
    gpus: f64,
    searches: Vec<Tried<'a>>,
    methods: Vec<MethodReport>,
    plan: PlanReport<'a>,
}

/// How a partition was searched.
#[derive(Serialize)]
struct Tried<'a> {
    partition: &'a str,
    candidates: usize,
    tried: usize,
    batches: usize,
    frontier: usize,
    /// Of the frontier, by pass: initial, total, dynamic, static, uncertainty.
    by_pass: [usize; 5],
}

#[derive(Serialize)]
struct MethodReport {
    method: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
    #[serde(rename = "fastest_s_J")]
    fastest: Option<[f64; 2]>,
    #[serde(rename = "cheapest_s_J")]
    cheapest: Option<[f64; 2]>,
    reductions: Option<Reductions>,
    #[serde(rename = "points_s_J")]
    points: Vec<[f64; 2]>,
}

#[derive(Serialize)]
struct PlanReport<'a> {
    time_s: f64,
    #[serde(rename = "energy_J")]
    energy: f64,
    /// For each stage and instruction how many microbatches have which choice.
    microbatches: Vec<text::Use<'a>>,
}

/// Runs `plan kareus`.
///
/// # Errors
/// What was given is wrong, a result is missing, or a file can't be written; in words.
pub fn run<S: Source>(args: &Args<S>, json: bool) -> Outcome {
    let workload: Workload = read(&args.job)?;
    let gpu = gpu(args.gpu.as_deref())?;
    if let Some(seeds) = args.compare_searches {
        let job = Job::new(&workload)?;
        let (results, simulated) = args.source.everything(&job, &gpu)?;
        let power = results.static_power();
        let judgement = judged::judged(&job, &results, power, seeds, simulated)?;
        return match json {
            true => output::json(&judgement),
            false => output::text(&judged::render(&judgement)),
        };
    }
    let planning = plan(args, &workload, &gpu, json)?;
    let Some(Frontier {
        iteration: Ok(kareus),
        ..
    }) = planning.frontiers.last()
    else {
        return Err("Kareus has no frontier".into());
    };
    let planned = chosen(args, kareus, planning.gpus_per_stage)?;
    if let Some(path) = &args.csv {
        let named = |error| format!("{}: {error}", path.display());
        fs::write(path, csv(&planning)).map_err(named)?;
    }
    if let Some(folder) = &args.pictures {
        pictures(folder, &planning)?;
    }
    let mut contract = kareus.contract(&planning.job, &planned);
    contract.simulated = planning.explored.simulated;
    for path in &args.plan {
        super::contract::write(path, &contract)?;
    }
    match json {
        true => output::json(&report(&planning, kareus, &planned)),
        false => output::text(&text::render(&planning, kareus, &planned)),
    }
}

/// The job that a file describes.
///
/// # Errors
/// It can't be read or describes none; in words, with the file's name.
pub fn job(path: &Path) -> Fallible<Job> {
    Ok(Job::new(&read(path)?)?)
}

/// The GPU that a file describes; an A100 without one.
///
/// # Errors
/// As [`job`].
pub fn gpu(path: Option<&Path>) -> Fallible<Gpu> {
    let Some(path) = path else {
        return Ok(A100);
    };
    let gpu: Gpu = read(path)?;
    let named = |error| format!("{}: {error}", path.display());
    Ok(gpu.check().map(|()| gpu).map_err(named)?)
}

/// A JSON file's content.
fn read<T: DeserializeOwned>(path: &Path) -> Fallible<T> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = fs::read_to_string(path).map_err(|error| named(&error))?;
    Ok(serde_json::from_str(&text).map_err(|error| named(&error))?)
}

fn plan<S: Source>(
    args: &Args<S>,
    workload: &Workload,
    gpu: &Gpu,
    quiet: bool,
) -> Fallible<Planning> {
    let job = Job::new(workload)?;
    let explored = args.source.explore(&job, gpu, args.library_sms, quiet)?;
    let training = workload.training();
    let gpus_per_stage = f64::from(training.tensor_parallel) * f64::from(training.context_parallel);
    let methods = [
        ("Megatron-LM", Method::MEGATRON, &explored.baselines),
        (
            "Megatron-LM + Perseus",
            Method::MEGATRON_PERSEUS,
            &explored.baselines,
        ),
        (
            "Nanobatching + Perseus",
            Method::nanobatching_perseus(args.library_sms),
            &explored.baselines,
        ),
        ("Kareus", Method::KAREUS, &explored.results),
    ];
    let mut frontiers: Vec<Frontier> = methods
        .into_iter()
        .map(|(name, method, results)| {
            let schedule = Schedule::OneForwardOneBackward;
            let found = Iteration::new(&job, results, method, schedule, Millis(args.unit));
            let all = found.iter().flat_map(Iteration::points);
            Frontier {
                name,
                points: all
                    .map(|(time, energy)| (time, energy * gpus_per_stage))
                    .collect(),
                iteration: found.map_err(|error| error.to_string()),
                reductions: None,
            }
        })
        .collect();
    if let Some(Err(why)) = frontiers.last().map(|it| &it.iteration) {
        return Err(why.clone().into());
    }
    let [plain, perseus] = [0, 1].map(|it| frontiers[it].points.clone());
    for it in &mut frontiers {
        it.reductions = reductions(&it.points, &plain, &perseus);
    }
    Ok(Planning {
        job,
        gpus_per_stage,
        explored,
        frontiers,
    })
}

/// The plan that is asked for.
fn chosen<S: Source>(args: &Args<S>, kareus: &Iteration, gpus: f64) -> Fallible<Planned> {
    let (fastest, cheapest) = (kareus.fastest(), kareus.cheapest());
    let found = match (args.within_time, args.within_energy) {
        (Some(seconds), _) => kareus.within_time(Millis(seconds * 1e3)),
        (None, Some(joules)) => kareus.within_energy(Joules(joules / gpus)),
        (None, None) => return Ok(fastest),
    };
    Ok(found.ok_or_else(|| {
        format!(
            "no plan is within that: the fastest takes {:.3} s, and the least energy is {:.1}",
            fastest.time.0 * 1e-3,
            cheapest.energy * gpus
        )
    })?)
}

fn csv(planning: &Planning) -> String {
    let mut text = String::new();
    if planning.explored.simulated {
        text += "# SIMULATED\n";
    }
    text += "method,time_s,energy_J\n";
    for it in &planning.frontiers {
        for (time, energy) in &it.points {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{},{},{}", it.name, time.0 * 1e-3, energy.0);
        }
    }
    text
}

fn pictures(folder: &Path, planning: &Planning) -> Fallible<()> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(|error| named(&error))?;
    let write = |name: &str, picture: String| {
        fs::write(folder.join(name), picture).map_err(|error| named(&error))
    };
    write("iteration.svg", picture::iteration(planning)?)?;
    for search in &planning.explored.searches {
        let name = search.partition.replace('/', "-");
        let picture = picture::partition(search, planning.explored.simulated)?;
        write(&format!("{name}.svg"), picture)?;
    }
    Ok(())
}

fn tried(search: &Searched) -> Tried<'_> {
    let frontier = search.found.frontier();
    let passes = [Pass::Initial].into_iter().chain(Pass::OF_A_BATCH);
    let mut by_pass = [0; 5];
    for (count, pass) in by_pass.iter_mut().zip(passes) {
        *count = frontier.iter().filter(|it| it.pass == pass).count();
    }
    Tried {
        partition: &search.partition,
        candidates: search.candidates,
        tried: search.found.evaluated.len(),
        batches: search.found.improvements.len(),
        frontier: frontier.len(),
        by_pass,
    }
}

fn report<'a>(planning: &'a Planning, kareus: &'a Iteration, planned: &Planned) -> Report<'a> {
    let pair = |(time, energy): &(Millis, Joules)| [time.0 * 1e-3, energy.0];
    let methods = planning.frontiers.iter().map(|it| {
        let by = |at: usize| {
            it.points
                .iter()
                .map(pair)
                .min_by(|a, b| a[at].total_cmp(&b[at]))
        };
        MethodReport {
            method: it.name,
            missing: it.iteration.as_ref().err().cloned(),
            fastest: by(0),
            cheapest: by(1),
            reductions: it.reductions,
            points: it.points.iter().map(pair).collect(),
        }
    });
    Report {
        schema: 1,
        simulated: planning.explored.simulated,
        gpus: planning.gpus_per_stage * f64::from(planning.job.stages),
        searches: planning.explored.searches.iter().map(tried).collect(),
        methods: methods.collect(),
        plan: PlanReport {
            time_s: planned.time.0 * 1e-3,
            energy: planned.energy.0 * planning.gpus_per_stage,
            microbatches: text::uses(&planning.job, kareus, planned),
        },
    }
}
