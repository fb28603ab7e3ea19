//! Costs that were measured: on the command line, a table of prices or the measurements themselves.

use std::path::PathBuf;

use litd_cli::plan::{Costs, Fallible, Graphing, Priced, parse};
use litd_profiles::{Profile, Spec};

/// Where they are.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("costs").required(true))]
pub struct Measured {
    /// Fitted costs: JSON with an object for each "STAGE,INSTRUCTION". Its keys a, b and c give the
    /// effective cost in J, a * exp(b * t) + c, for times t from tmin to tmax (two more keys) in units
    /// of --unit. Its key options is the list of measurements, each an array of four numbers: clock in
    /// MHz, time in units of --unit, effective cost in J, and time in s
    #[arg(long, value_name = "SPEC.json", group = "costs", conflicts_with_all = ["rounding", "curve"])]
    spec: Option<PathBuf>,
    /// Measurements: CSV with stage,instruction,frequency,time,energy (MHz, s, J)
    #[arg(long, value_name = "PROFILE.csv", group = "costs")]
    profile: Option<PathBuf>,
}

impl Costs for Measured {
    const SIMULATED: bool = false;
    const EXAMPLES: &'static str = "\
Examples:
  litctl plan frontier --dag DAG.csv --spec SPEC.json --csv OUT.csv
  litctl plan frontier --profile PROFILE.csv --schedule 1f1b \\
      --microbatches 32";
    const OPTIONS: [&'static str; 3] = [
        "The pipeline's number of stages, each on one GPU [default: as in the profile or the graph; needed with --spec \
         and --schedule]",
        "Times are rounded to multiples of this, in ms. With --spec: the length of one unit of its times",
        "The power of a GPU that waits for another, in watts. With --spec: the power that was used for its costs",
    ];

    fn costs(&self, graphing: &Graphing) -> Fallible<Priced> {
        match (&self.spec, &self.profile) {
            (Some(path), _) => Ok(Priced {
                spec: parse::<Spec>(path)?,
                kinds: Vec::new(),
            }),
            (None, Some(path)) => {
                let priced = parse::<Profile>(path)?.price(&graphing.pricing());
                let (spec, kinds) =
                    priced.map_err(|error| format!("{}: {error}", path.display()))?;
                Ok(Priced { spec, kinds })
            }
            (None, None) => Err("costs are missing: give --spec or --profile".into()),
        }
    }

    fn source(&self) -> String {
        let path = self.spec.as_deref().or(self.profile.as_deref());
        path.map_or("the profile".into(), |path| path.display().to_string())
    }
}
