//! Costs that were measured: on the command line, a table of prices or the measurements themselves.

use std::path::PathBuf;

use litd_cli::plan::{Costs, Fallible, Graphing, Priced, parse};
use litd_profiles::{Profile, Spec};

/// Where they are.
#[derive(clap::Args)]
pub struct Measured {
    /// Fitted costs: JSON, for each "STAGE,INSTRUCTION" a, b, c, tmin, tmax and options
    #[arg(long, value_name = "SPEC.json", conflicts_with_all = ["rounding", "curve"])]
    spec: Option<PathBuf>,
    /// Measurements: CSV with stage,instruction,frequency,time,energy (MHz, s, J)
    #[arg(long, value_name = "PROFILE.csv", conflicts_with = "spec")]
    profile: Option<PathBuf>,
}

impl Costs for Measured {
    const SIMULATED: bool = false;
    const EXAMPLES: &'static str = "\
Examples:
  litctl plan frontier --dag DAG.csv --spec SPEC.json --csv OUT.csv
  litctl plan frontier --profile PROFILE.csv --schedule 1f1b \\
      --microbatches 32";

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
