//! `litlab simulate`: one deterministic training iteration by the oracle's five rules.

use std::io;
use std::path::{Path, PathBuf};

use litd_sim::parallel::Run;
use litd_sim::{
    Conditions, IterationModel, IterationResult, Parallel, Pieces, Workload, kineto, pieces, record,
};
use litd_traces::{Aggregation, Timeline, aggregate, straggler_wave};
use litd_units::Millis;
use serde::Serialize;

use litd_cli::{Outcome, output};

/// Simulate one training iteration of a node whose GPUs run at given speeds
///
/// With --workload all GPUs execute the same computation kernels and collectives, without noise. A
/// collective transfers once it is resident on every GPU, and while it is resident, computation on
/// that GPU is slower by the contention factor. This alone makes fast GPUs lead, and the longer they
/// lead, the more of their computation is overlapped. With --parallel ranks divide the work, and
/// --seed adds noise. The same input, seed included, gives the same output.
///
/// `litctl analyze` reads the files that --write-kineto writes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE, group = clap::ArgGroup::new("job").required(true))]
pub struct Args {
    /// Workload: JSON with `kernels` (name; work_ms at the reference clock; clock_bound, the share
    /// of it that follows the clock; needs, the index of a collective that must end first) and
    /// `collectives` (name; transfer_ms; after_start_of, the index of the kernel that starts it).
    /// Needs --contention
    #[arg(long, value_name = "FILE", group = "job", requires = "contention")]
    workload: Option<PathBuf>,
    /// In place of --workload, a transformer whose ranks divide the work: pp2tp4 is two stages of
    /// four ranks each; tp (tensors), cp (sequences), dp (replicas), pp (stages, 1F1B) and ep
    /// (experts with uneven loads, among replicas), each with a number. Needs --write-kineto, and
    /// prints no table
    #[arg(
        long,
        value_name = "SPEC",
        group = "job",
        requires = "write_kineto",
        conflicts_with = "contention"
    )]
    parallel: Option<Parallel>,
    /// The seed of the noise of kernels (1 %) with --parallel [default: no noise]
    #[arg(long, value_name = "N", requires = "parallel")]
    seed: Option<u64>,
    /// Clock of each GPU relative to the reference clock, separated by commas: 1.05,1,1.02
    #[arg(
        long,
        value_name = "A,B,…",
        value_delimiter = ',',
        value_parser = litd_cli::spaced::<f64>,
        required = true,
        allow_hyphen_values = true
    )]
    speeds: Vec<f64>,
    /// How many times as long computation takes while a collective is resident; 1: no longer. For
    /// --workload
    #[arg(long, value_name = "TIMES", allow_hyphen_values = true)]
    contention: Option<f64>,
    /// Also write the iteration as profiler files, one per rank: FOLDER/rank0.json.gz and so on
    #[arg(long, value_name = "FOLDER")]
    write_kineto: Option<PathBuf>,
    /// What the files contain: all kernels, as a profiler records them; or pieces, as a hook times
    /// them without a profiler, whose times include waits
    #[arg(long = "as", value_enum, default_value_t, requires = "write_kineto")]
    told: Told,
}

/// What files hold.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum Told {
    /// All kernels
    #[default]
    Kernels,
    /// Pieces between the ends of kernels: modules of one kernel
    Leaf,
    /// Pieces of modules of several kernels, such as an attention
    Block,
    /// Pieces between the beginnings of collectives
    Arrivals,
}

impl Told {
    fn of(self, timelines: Vec<Timeline>) -> Vec<Timeline> {
        let how = match self {
            Self::Kernels => return timelines,
            Self::Leaf => Pieces::Leaf,
            Self::Block => Pieces::Block,
            Self::Arrivals => Pieces::Arrivals,
        };
        let told = timelines.iter().map(|timeline| pieces::of(timeline, how));
        told.collect()
    }
}

const EXAMPLE: &str = "\
Example: four GPUs, of which the first is the slowest
  litlab simulate --workload tests/data/oracle/tiny-fsdp.json \\
      --speeds 0.9,1.05,1.2,1.1 --contention 1.15 --write-kineto ranks
  litctl analyze ranks

Two stages of four ranks, of which the third is slow
  litlab simulate --parallel pp2tp4 --speeds 1,1,0.97,1,1,1,1,1 \\
      --write-kineto ranks";

pub fn run(args: &Args, json: bool) -> Outcome {
    if let Some(job) = &args.parallel {
        return parallel(job, args, json);
    }
    let file = args.workload.as_deref().ok_or("--workload is missing")?;
    let contention = args.contention.ok_or("--contention is missing")?;
    let workload = Workload::load(file)?;
    let mut model = IterationModel::new(&workload)?;
    let result = model.run(&Conditions::new(&args.speeds, contention))?;
    if let Some(folder) = &args.write_kineto {
        let timelines = record::timelines(&workload, result, record::EPOCH, 0);
        write_kineto(&args.told.of(timelines), folder)?;
    }
    let report = Report::new(result);
    if json {
        output::json(&report)
    } else {
        output::text(&render(&report, args, contention))
    }
}

/// What is printed of a job whose ranks do different things.
#[derive(Serialize)]
struct Written<'a> {
    simulated: bool,
    ranks: usize,
    folder: &'a Path,
}

/// Two iterations of a job whose ranks do different things.
fn parallel(job: &Parallel, args: &Args, json: bool) -> Outcome {
    let folder = args.write_kineto.as_deref();
    let folder = folder.ok_or("--parallel needs --write-kineto")?;
    let timelines = job.run(&Run {
        speeds: &args.speeds,
        noise: if args.seed.is_some() { 0.01 } else { 0.0 },
        seed: args.seed.unwrap_or_default(),
        iterations: 2,
    })?;
    let timelines = args.told.of(timelines);
    write_kineto(&timelines, folder)?;
    let written = Written {
        simulated: true,
        ranks: timelines.len(),
        folder,
    };
    match json {
        true => output::json(&written),
        false => output::text(&format!(
            "SIMULATED two iterations: profiler files of {} in {}\n",
            output::count(written.ranks, "rank"),
            folder.display()
        )),
    }
}

fn write_kineto(timelines: &[Timeline], folder: &Path) -> Outcome {
    let complain = |path: &Path, cause: io::Error| format!("{}: {cause}", path.display());
    std::fs::create_dir_all(folder).map_err(|cause| complain(folder, cause))?;
    let ranks = timelines.len();
    if let Some(file) = foreign(folder, ranks).map_err(|cause| complain(folder, cause))? {
        return Err(format!(
            "{}: is of a run with more than {}; remove it, or write to another folder",
            file.display(),
            output::count(ranks, "rank"),
        )
        .into());
    }
    for timeline in timelines {
        let file = folder.join(format!("rank{}.json.gz", timeline.rank));
        kineto::write_file(timeline, &file).map_err(|cause| complain(&file, cause))?;
    }
    Ok(())
}

/// The first file of a rank that this run has not: `litctl analyze` would take both runs for one.
fn foreign(folder: &Path, ranks: usize) -> io::Result<Option<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let rank = name
            .to_str()
            .and_then(|name| name.strip_prefix("rank")?.strip_suffix(".json.gz"))
            .and_then(|number| number.parse::<usize>().ok());
        if let Some(rank) = rank.filter(|rank| *rank >= ranks) {
            files.push((rank, entry.path()));
        }
    }
    Ok(files.into_iter().min().map(|(_, file)| file))
}

/// The JSON document; lists have one entry per GPU.
#[derive(Serialize)]
struct Report {
    simulated: bool,
    iteration_ms: Millis,
    lead_sum_ms: Vec<Millis>,
    lead_max_ms: Vec<Millis>,
    lead_last_ms: Vec<Millis>,
    overlap_ratio: Vec<f64>,
    collective_residency_ms: Vec<Millis>,
}

impl Report {
    fn new(result: &IterationResult) -> Self {
        let wave = straggler_wave(&result.start);
        let leads = |aggregation| {
            let of_gpu = |leads: &Vec<Millis>| aggregate(leads, aggregation).unwrap_or_default();
            wave.iter().map(of_gpu).collect()
        };
        let gpus = 0..result.start.len();
        Self {
            simulated: true,
            iteration_ms: result.length,
            lead_sum_ms: leads(Aggregation::Sum),
            lead_max_ms: leads(Aggregation::Max),
            lead_last_ms: leads(Aggregation::Last),
            overlap_ratio: gpus.clone().map(|gpu| result.overlap_ratio(gpu)).collect(),
            collective_residency_ms: gpus.map(|gpu| result.collective_residency(gpu)).collect(),
        }
    }
}

fn render(report: &Report, args: &Args, contention: f64) -> String {
    let bold = anstyle::Style::new().bold();
    let mut lines = vec![
        format!(
            "{bold}SIMULATED{bold:#} one iteration: {:.3}, contention {}\n",
            report.iteration_ms, contention
        ),
        "            lead over the GPU that starts last, ms   computation   collectives".into(),
        "GPU    speed         sum         max        last      overlapped  resident, ms".into(),
    ];
    for (gpu, speed) in args.speeds.iter().enumerate() {
        lines.push(format!(
            "{gpu:>3}  {speed:>7}  {:>10.3}  {:>10.3}  {:>10.3}  {:>12.1} %  {:>12.3}",
            report.lead_sum_ms[gpu].0,
            report.lead_max_ms[gpu].0,
            report.lead_last_ms[gpu].0,
            report.overlap_ratio[gpu] * 100.0,
            report.collective_residency_ms[gpu].0,
        ));
    }
    if let Some(folder) = &args.write_kineto {
        lines.push(format!(
            "\nProfiler files of {} (simulated too): {}",
            output::count(args.speeds.len(), "rank"),
            folder.display()
        ));
    }
    lines.join("\n") + "\n"
}
