//! `litlab study`: both laws on simulated nodes, against the best caps there are.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use litd_policies::{Law, Policy};
use litd_study::harm::{RandomNode, Verdict};
use litd_study::judge::nodes::Named;
use litd_study::report::{self, Row};
use litd_study::run::{self, Case, Reference, Settings};
use litd_study::{StudyError, cases, day, next, parallel, rest};

use self::figures::Line;
use litd_cli::{Outcome, output};

mod family;
pub mod figures;
mod knobs;

/// Compare the two laws on simulated nodes
///
/// Runs the paper's law and the model law on the same simulated nodes, and measures how near each
/// comes to the best caps, how soon, and at which cost on the way. Writes tables (Markdown and CSV)
/// and figures into a folder. Everything in them is SIMULATED. docs/laws-results.md explains the
/// columns.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The folder to write into; it is created if missing
    #[arg(long, value_name = "FOLDER", default_value = "study")]
    out: PathBuf,
    /// Runs per node, policy and law, each with its own noise
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// What to study; may be given more than once [default: all]
    #[arg(long, value_name = "PART")]
    part: Vec<Part>,
    /// Only this node of the simulator, or this corner of the family (in tracking: this event); the
    /// draws of the part family are run all the same
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// How many random nodes for `harm`
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(1..))]
    nodes: u64,
    #[command(flatten, next_help_heading = "Options of --part family")]
    family: family::Options,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Plants by an author who had not read the laws, and the simulator's own nodes
    Family,
    /// The simulator's own nodes, at 1 % kernel noise and 0.5 % iteration noise
    Levelling,
    /// The same at 3 % kernel noise
    Loud,
    /// A node that changes after its caps have converged
    Tracking,
    /// Every knob of the Lit Silicon paper's Table II
    Knobs,
    /// A level, noisy node, whose caps should not move
    Rest,
    /// A budget that changes during the day
    Budget,
    /// What is left to gain with caps on a level node
    Next,
    /// Random and broken nodes, which should not become worse off
    Harm,
}

impl Part {
    const ALL: [Self; 9] = [
        Self::Family,
        Self::Levelling,
        Self::Loud,
        Self::Tracking,
        Self::Knobs,
        Self::Rest,
        Self::Budget,
        Self::Next,
        Self::Harm,
    ];

    /// The nodes or events that it compares the laws on.
    fn cases(self) -> Fallible<Vec<Case>> {
        Ok(match self {
            Self::Levelling => cases::levelling(cases::NOISE)?,
            Self::Loud => cases::levelling(cases::LOUD)?,
            Self::Tracking => cases::tracking(cases::NOISE)?,
            _ => Vec::new(),
        })
    }
}

/// A name that no part knows would leave empty tables.
fn check_node(args: &Args, parts: &[Part]) -> Outcome {
    let Some(wanted) = &args.node else {
        return Ok(());
    };
    let mut names = BTreeSet::new();
    for part in parts {
        names.extend(part.cases()?.into_iter().map(|case| case.name));
        if *part == Part::Family {
            names.extend(Named::with_a_name().iter().map(|it| it.name().to_owned()));
        }
    }
    if names.contains(wanted) {
        return Ok(());
    }
    let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    Err(match names.is_empty() {
        true => {
            "--node: only family, levelling, loud and tracking have nodes to choose from".into()
        }
        false => format!("--node: {wanted:?} is none of {}", names.join(", ")).into(),
    })
}

const EXAMPLES: &str = "\
Examples:
  litlab study                            everything, into ./study
  litlab study --part family --full       10,000 draws of the family of plants
  litlab study --part family --draw 17    one of them, and why it ends so
  litlab study --part levelling --node default --seeds 20
  litlab study --part harm --nodes 10000";

type Fallible<T> = Result<T, Box<dyn Error>>;

pub fn run(args: &Args, json: bool) -> Outcome {
    if json && args.part != [Part::Family] {
        let text = "only --part family has JSON: of the others read the CSV files";
        return Err(text.into());
    }
    if let (Some(_), [Part::Family]) = (args.family.draw(), args.part.as_slice()) {
        let (text, report) = family::study(args)?;
        return match json {
            true => output::json(&report),
            false => output::text(&text),
        };
    }
    let out = &args.out;
    fs::create_dir_all(out).map_err(|error| format!("{}: {error}", out.display()))?;
    let parts: &[Part] = if args.part.is_empty() {
        &Part::ALL
    } else {
        &args.part
    };
    check_node(args, parts)?;
    if json {
        return output::json(&family::study(args)?.1);
    }
    let mut text = String::from("# SIMULATED: the laws on simulated nodes\n");
    for part in parts {
        text += &match part {
            Part::Family => family::study(args)?.0,
            Part::Levelling => {
                let title = "1 % kernel noise, 0.5 % iteration noise";
                compare(args, "levelling", title, &part.cases()?)?
            }
            Part::Loud => {
                let title = "3 % kernel noise, 0.5 % iteration noise";
                compare(args, "loud", title, &part.cases()?)?
            }
            Part::Tracking => compare(
                args,
                "tracking",
                "a level node that changes",
                &part.cases()?,
            )?,
            Part::Knobs => knobs::study(args)?,
            Part::Rest => rest(args)?,
            Part::Budget => budget(args)?,
            Part::Next => format!("\n## What next\n\n{}", report::next(&next::sweep()?)),
            Part::Harm => harm(args)?,
        };
    }
    write(out, "study.md", &text)?;
    output::text(&text)?;
    output::text(&format!("\nTables and figures are in {}.\n", out.display()))?;
    Ok(())
}

fn write(folder: &Path, name: &str, text: &str) -> Outcome {
    let file = folder.join(name);
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()).into())
}

/// How much of something is done, on standard error.
pub fn bar(what: &'static str, length: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length as u64), ProgressDrawTarget::stderr());
    bar.set_style(
        ProgressStyle::with_template("{msg:12} {bar:40} {pos}/{len} {eta}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.set_message(what);
    bar
}

/// Does work on all cores behind a progress bar; the first error is everybody's.
fn all<T: Sync, R: Send>(
    what: &'static str,
    items: &[T],
    work: impl Fn(&T) -> Result<R, StudyError> + Sync,
) -> Fallible<Vec<R>> {
    let bar = bar(what, items.len());
    let results = parallel::map(items, work, |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    Ok(results.into_iter().collect::<Result<_, _>>()?)
}

/// Both laws on some cases.
fn compare(args: &Args, name: &'static str, title: &str, cases: &[Case]) -> Fallible<String> {
    let mut settings = Settings::default();
    // The node changes late, and has to be level again.
    if cases.iter().any(|case| case.disturbance.is_some()) {
        settings.samples = 300;
    }
    let wanted = |case: &&Case| args.node.as_ref().is_none_or(|node| case.name == *node);
    let cases: Vec<Case> = cases.iter().filter(wanted).cloned().collect();
    let cases = cases.as_slice();
    let references = all(name, cases, |case| run::reference(case, &settings))?;
    let pairs: Vec<(&Case, &Reference)> = cases.iter().zip(&references).collect();
    let rows = rows(args, name, &pairs, &Law::ALL, &settings)?;
    write(&args.out, &format!("{name}.csv"), &report::csv(&rows))?;
    draw(&args.out, name, &rows, &settings)?;
    Ok(format!(
        "\n## {title}\n\n{} runs of {} iterations each.\n\n{}",
        args.seeds,
        settings.samples * settings.config.calibration.sampling_period,
        report::markdown(&rows)
    ))
}

fn rows(
    args: &Args,
    name: &'static str,
    cases: &[(&Case, &Reference)],
    laws: &[Law],
    settings: &Settings,
) -> Fallible<Vec<Row>> {
    let mut jobs = Vec::new();
    for &(case, reference) in cases {
        for &law in laws {
            jobs.extend((0..args.seeds).map(|seed| (case, reference, law, seed)));
        }
    }
    let done = all(name, &jobs, |&(case, reference, law, seed)| {
        run::run(case, law, run::seed(seed), settings, reference)
    })?;
    let mut runs = done.into_iter();
    let seeds = usize::try_from(args.seeds)?;
    let mut rows = Vec::new();
    for &(case, reference) in cases {
        for &law in laws {
            rows.push(Row {
                name: case.name.clone(),
                policy: case.policy,
                gpus: case.scenario.gpus.len(),
                law,
                runs: runs.by_ref().take(seeds).collect(),
                reference: reference.clone(),
            });
        }
    }
    Ok(rows)
}

/// Throughput and power over iterations, both laws and the optimum in one picture (the paper's Figures 9 to 11).
fn draw(out: &Path, name: &str, rows: &[Row], settings: &Settings) -> Outcome {
    let period = f64::from(settings.config.calibration.sampling_period);
    let last = f64::from(settings.samples);
    for laws in rows.chunks(Law::ALL.len()) {
        let Some(first) = laws.first() else { continue };
        let line = |row: &Row, value: &dyn Fn(&run::Finished, usize) -> f64| {
            let points = |run: &run::Finished| {
                let at = |at: usize| (f64::from(run.path[at].0) * period, value(run, at));
                (0..run.path.len()).map(at).collect()
            };
            let runs: Vec<Vec<(f64, f64)>> = row.runs.iter().map(points).collect();
            Line::of(row.law, &runs, last * period)
        };
        let throughput = |run: &run::Finished, at: usize| run.path[0].2.time / run.path[at].2.time;
        let power = |run: &run::Finished, at: usize| run.path[at].2.power / run.path[0].2.power;
        let stem = format!("{name}-{}-{}", first.name.replace(' ', "-"), first.policy);
        let title = format!("{}, {}", first.name, first.policy);
        let (start, best) = (&first.runs[0].path[0].2, &first.reference.best.outcome);
        for (what, value, best) in [
            (
                "throughput",
                &throughput as &dyn Fn(&run::Finished, usize) -> f64,
                start.time / best.time,
            ),
            ("power", &power, best.power / start.power),
        ] {
            let lines: Vec<_> = laws.iter().map(|row| line(row, value)).collect();
            let quantity = format!("{what}, of the start");
            let svg = figures::over_iterations(&title, &quantity, &lines, best)?;
            write(out, &format!("{stem}-{what}.svg"), &svg)?;
        }
    }
    Ok(())
}

/// Every law, policy and seed.
fn each(args: &Args, policies: &[Policy]) -> Vec<(Law, Policy, u64)> {
    let mut jobs = Vec::new();
    for &policy in policies {
        for law in Law::ALL {
            jobs.extend((0..args.seeds).map(|seed| (law, policy, seed)));
        }
    }
    jobs
}

/// A level node.
fn rest(args: &Args) -> Fallible<String> {
    let jobs = each(args, &Policy::STEERING);
    let twice = rest::Node::ALL.map(|node| {
        all("rest", &jobs, |&(law, policy, seed)| {
            rest::count(node, policy, law, run::seed(seed))
        })
    });
    let rests = twice.into_iter().collect::<Fallible<Vec<_>>>()?.concat();
    Ok(format!(
        "\n## A level, noisy node\n\n{} iterations each.\n\n{}",
        rest::ITERATIONS,
        report::at_rest(&rests)
    ))
}

/// A budget that follows the day.
fn budget(args: &Args) -> Fallible<String> {
    let jobs = each(args, &[Policy::GpuRealloc]);
    let optima = day::optima()?;
    let days = all("budget", &jobs, |&(law, _, seed)| {
        day::run(law, run::seed(seed), &optima)
    })?;
    Ok(format!(
        "\n## A budget that follows the day\n\n{}",
        report::day(&days.concat())
    ))
}

/// Random nodes.
fn harm(args: &Args) -> Fallible<String> {
    let numbers: Vec<u64> = (0..args.nodes).collect();
    let mut text = String::from("\n## Random and broken nodes\n");
    for law in Law::ALL {
        let verdicts: Vec<Verdict> = all("harm", &numbers, |&number| {
            RandomNode::new(number)?.judge(law)
        })?;
        text += "\n";
        text += &report::harm(law, &verdicts);
    }
    Ok(text)
}
