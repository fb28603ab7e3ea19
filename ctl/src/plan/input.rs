//! Where graphs and costs come from: the arguments that the commands share.

use std::error::Error;
use std::fmt::Display;
use std::fs::File;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use litd_planner::{
    Graph, Job, Pipeline, Point, Priced, Pricing, Problem, Profile, Rounding, Scale, Schedule,
    Shape, Spec, synthetic,
};
use litd_units::{Millis, Watts};

/// So many stages are measured in seconds; a typing error should not take hours.
const MAX_SYNTHETIC: u32 = 4096;

#[derive(clap::Args)]
pub struct Input {
    /// The graph: CSV with rows node,ID,INSTRUCTION,STAGE,MICROBATCH and edge,FROM,TO
    #[arg(long, value_name = "DAG.csv", conflicts_with_all = ["schedule", "microbatches", "chunks"])]
    dag: Option<PathBuf>,
    /// Costs: JSON, for each "STAGE,INSTRUCTION" a, b, c, tmin, tmax and options
    #[arg(long, value_name = "SPEC.json")]
    spec: Option<PathBuf>,
    /// Measurements: CSV with stage,instruction,frequency,time,energy (MHz, s, J)
    #[arg(long, value_name = "PROFILE.csv", conflicts_with = "spec")]
    profile: Option<PathBuf>,
    /// SIMULATED measurements instead, made up from this seed
    #[arg(long, value_name = "SEED", conflicts_with_all = ["spec", "profile"])]
    synthetic: Option<u64>,
    /// The graph of a pipeline schedule
    #[arg(long, requires = "microbatches", value_parser = schedules())]
    schedule: Option<String>,
    /// Microbatches of an iteration
    #[arg(long, value_name = "M")]
    microbatches: Option<u32>,
    /// GPUs in a row; the stages of the profile, unless these are interleaved
    #[arg(long, value_name = "N")]
    stages: Option<u32>,
    /// Chunks of layers on each GPU, for --schedule interleaved; 2 if not said
    #[arg(long, value_name = "V", requires = "schedule")]
    chunks: Option<u32>,
    /// The unit of time, in ms; with --spec, the one that its times were made with
    #[arg(long, value_name = "MS", default_value_t = 1.0, value_parser = super::positive)]
    unit: f64,
    /// What a GPU draws while it waits for another, in watts; with --spec, what its costs were made
    /// with
    #[arg(long, value_name = "W", default_value_t = 75.0)]
    blocking: f64,
    /// How measured times become whole units; "down" is what the public solver does
    #[arg(long, value_enum, default_value_t, conflicts_with = "spec")]
    rounding: Round,
    /// The curve through the measurements; "best" is lines where the exponential fits badly
    #[arg(long, value_enum, default_value_t, conflicts_with = "spec")]
    curve: Curve,
}

fn schedules() -> PossibleValuesParser {
    let value = |(name, help): (&'static str, &'static str)| PossibleValue::new(name).help(help);
    PossibleValuesParser::new(Schedule::NAMES.map(value))
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Round {
    /// What is planned can be kept
    #[default]
    Up,
    Down,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Curve {
    #[default]
    Best,
    Exponential,
    Lines,
}

/// A job, and what should be told about its making.
pub struct Loaded {
    pub job: Job,
    /// How each kind of operation was priced, if measurements were given.
    pub priced: Vec<Priced>,
    pub simulated: bool,
}

type Fallible<T> = Result<T, Box<dyn Error>>;

impl Input {
    /// Reads everything and finds the frontier, with a progress bar where that takes long.
    pub fn load(&self, quiet: bool) -> Fallible<Loaded> {
        let mut priced = Vec::new();
        let spec = match &self.spec {
            Some(path) => parse::<Spec>(path)?,
            None => {
                let outcome = self.measurements()?.price(&self.pricing());
                let (spec, report) = outcome.map_err(|error| match &self.profile {
                    Some(path) => format!("{}: {error}", path.display()),
                    None => error.to_string(),
                })?;
                priced = report;
                spec
            }
        };
        let (graph, gpus) = self.graph(&priced)?;
        let scale = Scale {
            unit: Millis(self.unit),
            blocking: Watts(self.blocking),
            gpus,
        };
        self.check_blocking()?;
        let mut bar = None;
        let progress = |problem: &Problem, point: Point| {
            let (bar, shortest) = bar.get_or_insert_with(|| bar_over(problem, point, quiet));
            let full = bar.length().unwrap_or(0) + *shortest;
            if point.time.0.is_multiple_of(16) {
                bar.set_position(full.saturating_sub(point.time.0.into()));
            }
        };
        let pipeline = Pipeline::new(graph, &spec, scale);
        let job = pipeline.map(|pipeline| pipeline.characterise(progress));
        if let Some((bar, _)) = bar {
            bar.finish_and_clear();
        }
        let source = self.spec.as_deref().or(self.profile.as_deref());
        let source = source.map_or("the profile".into(), |path| path.display().to_string());
        Ok(Loaded {
            job: job.map_err(|error| format!("{source}: {error}"))?,
            priced,
            simulated: self.synthetic.is_some(),
        })
    }

    fn check_blocking(&self) -> Result<(), String> {
        if self.blocking.is_finite() && self.blocking >= 0.0 {
            return Ok(());
        }
        Err(format!(
            "--blocking {}: must be a number of watts, 0 or more",
            self.blocking
        ))
    }

    fn pricing(&self) -> Pricing {
        Pricing {
            unit: Millis(self.unit),
            blocking: Watts(self.blocking),
            rounding: match self.rounding {
                Round::Up => Rounding::Up,
                Round::Down => Rounding::Down,
            },
            shape: match self.curve {
                Curve::Best => Shape::Best,
                Curve::Exponential => Shape::Exponential,
                Curve::Lines => Shape::Lines,
            },
            ..Pricing::default()
        }
    }

    fn measurements(&self) -> Fallible<Profile> {
        match (&self.profile, self.synthetic) {
            (Some(path), _) => parse(path),
            (None, Some(seed)) => {
                let chunks = self.named()?.map_or(1, Schedule::chunks);
                let stages = self.stages.and_then(|stages| stages.checked_mul(chunks));
                let stages = stages.filter(|stages| (1..=MAX_SYNTHETIC).contains(stages));
                let wanted = format!(
                    "--synthetic wants --stages (times --chunks where they are interleaved), \
                     1 to {MAX_SYNTHETIC}"
                );
                Ok(synthetic::profile(stages.ok_or(wanted)?, seed))
            }
            (None, None) => Err("costs are missing: give --spec or --profile".into()),
        }
    }

    /// The graph, and how many GPUs stand in a row.
    fn graph(&self, priced: &[Priced]) -> Fallible<(Graph, u32)> {
        if let Some(path) = &self.dag {
            let graph: Graph = parse(path)?;
            let gpus = self.stages.unwrap_or(graph.stages());
            return Ok((graph, gpus));
        }
        let (Some(schedule), Some(microbatches)) = (self.named()?, self.microbatches) else {
            return Err(
                "the graph is missing: give --dag, or --schedule and --microbatches".into(),
            );
        };
        let in_profile = priced.iter().map(|priced| priced.kind.stage + 1).max();
        let gpus = match (self.stages, in_profile) {
            (Some(gpus), _) => gpus,
            (None, Some(stages)) => schedule.gpus(stages)?,
            (None, None) => {
                return Err("--stages is missing: the costs don't tell how many there are".into());
            }
        };
        Ok((schedule.graph(gpus, microbatches)?, gpus))
    }

    fn named(&self) -> Fallible<Option<Schedule>> {
        let named = |name: &String| Schedule::named(name, self.chunks);
        Ok(self.schedule.as_ref().map(named).transpose()?)
    }
}

/// A file's content; errors name the file.
fn parse<T: std::str::FromStr<Err: Display>>(path: &Path) -> Fallible<T> {
    let named = |error: &dyn Display| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| named(&error))?;
    Ok(litd_planner::read(file).map_err(|error| named(&error))?)
}

/// The bar, and the time at which it is full.
fn bar_over(problem: &Problem, first: Point, quiet: bool) -> (ProgressBar, u64) {
    let shortest = problem.shortest();
    let bar = ProgressBar::new((first.time.0 - shortest.0).into());
    if quiet {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar.set_style(
        ProgressStyle::with_template("{msg:12} {bar:40} {pos}/{len} points {eta}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.set_message("frontier");
    (bar, shortest.0.into())
}
