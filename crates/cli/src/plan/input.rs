//! Where graphs and costs come from: the arguments that the commands share.

use std::error::Error;
use std::fmt::Display;
use std::fs::File;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use litd_planner::{Graph, Job, Pipeline, Point, Problem, Scale, Schedule};
use litd_profiles::{Kind, Priced as Costed, Pricing, Rounding, Shape, Spec};
use litd_units::{Millis, Watts};

/// Where costs come from: what was measured, or what is made up.
pub trait Costs: clap::Args {
    /// Whether they are made up.
    const SIMULATED: bool;
    /// The examples in the help of `frontier`.
    const EXAMPLES: &'static str;
    /// The help of --stages, --unit and --blocking.
    const OPTIONS: [&'static str; 3];

    /// The costs of each kind of operation, and how they were priced where they were measured.
    ///
    /// # Errors
    /// They can't be read or make no sense; in words, with the file's name.
    fn costs(&self, graphing: &Graphing) -> Fallible<Priced>;

    /// The costs' name in messages.
    fn source(&self) -> String;
}

/// Costs of each kind of operation.
pub struct Priced {
    /// The planner's input.
    pub spec: Spec,
    /// How each kind was priced, if measurements were given.
    pub kinds: Vec<Costed>,
}

/// Arguments of all commands on a frontier: a graph, and costs.
#[derive(clap::Args)]
#[command(
    mut_arg("stages", |it| it.help(C::OPTIONS[0]).required(C::SIMULATED)),
    mut_arg("unit", |it| it.help(C::OPTIONS[1])),
    mut_arg("blocking", |it| it.help(C::OPTIONS[2]))
)]
pub struct Input<C: Costs> {
    #[command(flatten)]
    graphing: Graphing,
    #[command(flatten)]
    costs: C,
}

/// The graph, and the units of its costs.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("graph").required(true))]
pub struct Graphing {
    /// The graph, as CSV with rows node,ID,INSTRUCTION,STAGE,MICROBATCH and edge,FROM,TO
    #[arg(long, value_name = "DAG.csv", group = "graph", conflicts_with_all = ["microbatches", "chunks"])]
    dag: Option<PathBuf>,
    /// The graph is that of this pipeline schedule; needs --microbatches
    #[arg(long, value_name = "NAME", group = "graph", requires = "microbatches", value_parser = schedules())]
    schedule: Option<String>,
    /// Microbatches of an iteration, for --schedule
    #[arg(long, value_name = "M", requires = "schedule")]
    microbatches: Option<u32>,
    #[arg(long, value_name = "N")]
    stages: Option<u32>,
    /// Chunks of layers on each GPU, for --schedule interleaved [default: 2]
    #[arg(long, value_name = "V", requires = "schedule")]
    chunks: Option<u32>,
    #[arg(long, value_name = "MS", default_value_t = 1.0, value_parser = super::positive)]
    unit: f64,
    #[arg(long, value_name = "W", default_value_t = 75.0)]
    blocking: f64,
    /// How measured times are rounded to whole units
    #[arg(long, value_enum, default_value_t)]
    rounding: Round,
    /// The curve through the measurements; "best": exponential, or lines if that fits badly
    #[arg(long, value_enum, default_value_t)]
    curve: Curve,
}

fn schedules() -> PossibleValuesParser {
    let value = |(name, help): (&'static str, &'static str)| PossibleValue::new(name).help(help);
    PossibleValuesParser::new(Schedule::NAMES.map(value))
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Round {
    /// A plan can always be kept
    #[default]
    Up,
    /// As the public solver (lowtime) does
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
    pub priced: Vec<Costed>,
    pub simulated: bool,
}

/// A result whose error is in words for a user.
pub type Fallible<T> = Result<T, Box<dyn Error>>;

impl<C: Costs> Input<C> {
    /// Reads everything and finds the frontier, with a progress bar where that takes long.
    pub(super) fn load(&self, quiet: bool) -> Fallible<Loaded> {
        let graphing = &self.graphing;
        let Priced { spec, kinds } = self.costs.costs(graphing)?;
        let (graph, gpus) = graphing.graph(&kinds, &spec)?;
        let scale = Scale {
            unit: Millis(graphing.unit),
            blocking: Watts(graphing.blocking),
            gpus,
        };
        graphing.check_blocking()?;
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
        Ok(Loaded {
            job: job.map_err(|error| format!("{}: {error}", self.costs.source()))?,
            priced: kinds,
            simulated: C::SIMULATED,
        })
    }
}

impl Graphing {
    fn check_blocking(&self) -> Result<(), String> {
        if self.blocking.is_finite() && self.blocking >= 0.0 {
            return Ok(());
        }
        Err(format!(
            "--blocking {}: must be a number of watts, 0 or more",
            self.blocking
        ))
    }

    /// How measurements become costs.
    #[must_use]
    pub fn pricing(&self) -> Pricing {
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

    /// How many stages of layers there are: GPUs in a row, times the chunks on each; `None` where nobody
    /// has said how many GPUs, or there are too many to count.
    ///
    /// # Errors
    /// There is no such schedule.
    pub fn stages(&self) -> Fallible<Option<u32>> {
        let chunks = self.named()?.map_or(1, Schedule::chunks);
        Ok(self.stages.and_then(|stages| stages.checked_mul(chunks)))
    }

    /// The graph, and how many GPUs stand in a row.
    fn graph(&self, priced: &[Costed], spec: &Spec) -> Fallible<(Graph, u32)> {
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
        let has = |kind: &Kind| spec.entry(kind).is_some();
        Ok((schedule.graph_with(gpus, microbatches, has)?, gpus))
    }

    fn named(&self) -> Fallible<Option<Schedule>> {
        let named = |name: &String| Schedule::named(name, self.chunks);
        Ok(self.schedule.as_ref().map(named).transpose()?)
    }
}

/// A file's content.
///
/// # Errors
/// It can't be read or is wrong; the error names the file.
pub fn parse<T: std::str::FromStr<Err: Display>>(path: &Path) -> Fallible<T> {
    let named = |error: &dyn Display| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| named(&error))?;
    Ok(litd_profiles::read(file).map_err(|error| named(&error))?)
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
