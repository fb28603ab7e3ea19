//! `litlab carbon profiles`: power, throughput and energy by configuration (section 3, Figures 1 and 2).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use litd_carbon::{Configuration, Point, Profile};
use litd_cli::plan::parse;
use litd_cli::{Outcome, output};
use litd_units::Tokens;

use super::figures::{self, Panel};
use super::study::{Fallible, billions, write};
use super::synthetic::Setup;

/// Compare profiles: power, throughput, energy per iteration and per token, energy of each number of
/// tokens
///
/// Profiles are files of `litctl carbon profile`. Draws the paper's Figure 1 for each number of
/// GPUs. If the profiles have several numbers of GPUs, it also draws Figure 2: how the
/// configurations with the most tensor, pipeline and data parallelism change as GPUs are added.
/// Without a profile, the SIMULATED ones of the paper's two setups are shown.
#[derive(clap::Args)]
pub struct Args {
    /// Profiles, as litctl carbon schedule reads them [default: SIMULATED ones of the paper's scale]
    #[arg(value_name = "FILE")]
    profiles: Vec<PathBuf>,
    /// Tokens of an iteration: global batch size times sequence length, as in the paper's GPT-2
    #[arg(long, value_name = "N", default_value_t = 16_384)]
    tokens_per_iteration: u64,
    /// Billions of tokens whose energy is shown, separated by commas
    #[arg(long, value_name = "B,B,…", value_delimiter = ',', default_value = "1,2,3,4,5,6,7,8",
          value_parser = billions)]
    billions: Vec<f64>,
    /// The folder to write into; it is created if missing
    #[arg(long, value_name = "FOLDER", default_value = "carbon-profiles")]
    out: PathBuf,
}

/// A profile and what to call it.
struct Named {
    name: String,
    profile: Profile,
}

pub fn run(args: &Args) -> Outcome {
    let profiles = profiles(args)?;
    fs::create_dir_all(&args.out).map_err(|error| format!("{}: {error}", args.out.display()))?;
    let mut text = String::from("# Configurations: power, throughput, energy of GPUs alone\n");
    for named in &profiles {
        text += &table(named, args);
    }
    let mut by_gpus: BTreeMap<u32, Vec<&Named>> = BTreeMap::new();
    for named in &profiles {
        by_gpus.entry(named.profile.gpus()).or_default().push(named);
    }
    for (gpus, own) in &by_gpus {
        let title = format!("{gpus} GPUs, by TP,PP,DP");
        let names: Vec<&str> = own.iter().map(|it| it.name.as_str()).collect();
        let svg = figures::panels(&title, "TP,PP,DP", &names, &panels(&figure_1(own)))?;
        write(&args.out, &format!("figure1-{gpus}.svg"), &svg)?;
    }
    if by_gpus.len() > 1 {
        let title = "by the number of GPUs";
        let svg = figures::panels(title, "GPUs", &STRATEGIES, &panels(&figure_2(&by_gpus)))?;
        write(&args.out, "figure2.svg", &svg)?;
    }
    write(&args.out, "profiles.md", &text)?;
    output::text(&text)?;
    output::text(&format!(
        "\nTables and figures are in {}.\n",
        args.out.display()
    ))
}

/// A profile from a file. One that tells no name, as CSV can't, has the file's.
pub fn named(path: &Path) -> Fallible<Profile> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    Ok(parse::<Profile>(path)?.or_named(&stem))
}

fn profiles(args: &Args) -> Fallible<Vec<Named>> {
    if args.profiles.is_empty() {
        let built_in = [Setup::Gpt2, Setup::Llama].map(|setup| {
            let profile = setup.profile()?;
            let name = profile.title();
            Ok(Named { name, profile })
        });
        return built_in.into_iter().collect();
    }
    let read = args.profiles.iter().map(|path| {
        let profile = named(path)?;
        let name = profile.title();
        Ok(Named { name, profile })
    });
    read.collect()
}

/// Every number of one profile; the least of each column in bold.
fn table(named: &Named, args: &Args) -> String {
    let points = named.profile.points();
    let iteration = Tokens(args.tokens_per_iteration as f64);
    let row = |point: &Point| {
        let joules = |tokens: Tokens| (point.power * (tokens / point.rate)).0;
        let mut row = vec![
            point.power.0,
            point.rate.0,
            joules(iteration),
            joules(Tokens(1.0)) * 1e3,
        ];
        let budgets = args.billions.iter().map(|it| joules(Tokens(it * 1e9)));
        row.extend(budgets.map(|joules| joules / 3.6e6));
        row
    };
    let rows: Vec<Vec<f64>> = points.iter().map(row).collect();
    let mut text = format!(
        "\n## {}\n\nBold: the best of a column. An iteration has {} tokens.\n\n| TP,PP,DP | W | tokens/s | J per iteration | mJ per token |",
        named.name, args.tokens_per_iteration
    );
    for billions in &args.billions {
        let _ = write!(text, " kWh of {billions}B |");
    }
    text += &format!("\n|{}\n", "---|".repeat(5 + args.billions.len()));
    let best = |column: usize| {
        let values = rows.iter().map(|row| row[column]);
        match column {
            1 => values.fold(f64::NEG_INFINITY, f64::max),
            _ => values.fold(f64::INFINITY, f64::min),
        }
    };
    for (point, row) in points.iter().zip(&rows) {
        let _ = write!(text, "| {} |", degrees(point.configuration));
        for (column, value) in row.iter().enumerate() {
            let shown = match column {
                0 | 1 => format!("{value:.0}"),
                2 => format!("{value:.1}"),
                _ => format!("{value:.2}"),
            };
            let is_best = *value == best(column);
            let _ = match is_best {
                true => write!(text, " **{shown}** |"),
                false => write!(text, " {shown} |"),
            };
        }
        text.push('\n');
    }
    text
}

fn degrees(configuration: Configuration) -> String {
    let Configuration { tp, pp, dp } = configuration;
    format!("{tp},{pp},{dp}")
}

/// What is on one place of the x axis: its label, and a point for each name.
type Place = (String, Vec<Option<Point>>);

/// Each configuration in all profiles of as many GPUs.
fn figure_1(own: &[&Named]) -> Vec<Place> {
    let points = own.iter().flat_map(|it| it.profile.points());
    let mut all: Vec<Configuration> = points.map(|it| it.configuration).collect();
    all.sort_unstable_by_key(|it| (it.tp, it.pp));
    all.dedup();
    let of = |configuration: Configuration| {
        let each = own.iter().map(|it| {
            let mut points = it.profile.points().iter();
            points.find(|it| it.configuration == configuration).copied()
        });
        (degrees(configuration), each.collect())
    };
    all.into_iter().map(of).collect()
}

const STRATEGIES: [&str; 3] = ["most TP", "most PP", "most DP"];

/// The configurations with the highest degrees, by the number of GPUs; of several profiles the first.
fn figure_2(by_gpus: &BTreeMap<u32, Vec<&Named>>) -> Vec<Place> {
    let of = |(gpus, own): (&u32, &Vec<&Named>)| {
        let points = own.first().map_or(&[][..], |it| it.profile.points());
        let most = |degree: fn(Configuration) -> u32| {
            points
                .iter()
                .max_by_key(|it| degree(it.configuration))
                .copied()
        };
        let each = vec![most(|it| it.tp), most(|it| it.pp), most(|it| it.dp)];
        (gpus.to_string(), each)
    };
    by_gpus.iter().map(of).collect()
}

fn panels(places: &[Place]) -> [Panel; 3] {
    let panel = |quantity: &'static str, value: fn(Point) -> f64| Panel {
        quantity,
        places: places
            .iter()
            .map(|(label, points)| {
                let values = points.iter().map(|it| it.map(value)).collect();
                (label.clone(), values)
            })
            .collect(),
    };
    [
        panel("W", |it| it.power.0),
        panel("tokens/s", |it| it.rate.0),
        panel("mJ per token", |it| it.power.0 / it.rate.0 * 1e3),
    ]
}
