//! Recorded results for `litctl plan kareus`.

use std::fs;
use std::path::{Path, PathBuf};

use litd_cli::plan::Fallible;
use litd_cli::plan::kareus::{Explored, Source, searched};
use litd_kareus::{Gpu, Job, Partition, Records, Results};
use litd_units::Watts;

/// Where they are.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("recorded").required(true).multiple(true))]
pub struct Recorded {
    /// Results: CSV with name,frequency,sms,launch,time,energy (MHz, s, J), or JSON lines with these keys
    #[arg(long, value_name = "RESULTS.csv", group = "recorded")]
    results: Option<PathBuf>,
    /// Results of one partition as Kareus's artifact logs them: forward/attention=eval_results.jsonl; may be
    /// given more than once
    #[arg(long, value_name = "PARTITION=LOG.jsonl", group = "recorded", value_parser = log)]
    log: Vec<(String, PathBuf)>,
    /// Static power: the power of a GPU that is ready and has no work, in watts (the paper's A100:
    /// 85)
    #[arg(long, value_name = "W")]
    static_power: f64,
    /// Use only the results that a search with this seed would have measured, and show what each
    /// pass found
    #[arg(long, value_name = "SEED")]
    search: Option<u64>,
}

fn log(text: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = text
        .split_once('=')
        .ok_or("must be a partition's name, =, and a file, like forward/mlp=eval_results.jsonl")?;
    Ok((name.to_owned(), PathBuf::from(path)))
}

impl Source for Recorded {
    const EXAMPLES: &'static str = "\
Example:
  litctl plan kareus --job JOB.json --results RESULTS.csv \\
      --static-power 85 --pictures pictures";

    fn everything(&self, job: &Job, _: &Gpu) -> Fallible<(Results, bool)> {
        let mut simulated = false;
        let named = self
            .log
            .iter()
            .map(|(name, path)| (Some(name.as_str()), path));
        let files = self.results.iter().map(|path| (None, path)).chain(named);
        if !(self.static_power.is_finite() && self.static_power >= 0.0) {
            let power = self.static_power;
            return Err(format!("--static-power {power}: must be watts, 0 or more").into());
        }
        let mut all = Results::new(Watts(self.static_power));
        for (name, path) in files {
            simulated |= add(&mut all, job, path, name)?;
        }
        Ok((all, simulated))
    }

    fn explore(&self, job: &Job, gpu: &Gpu, _: u32, quiet: bool) -> Fallible<Explored> {
        let (all, simulated) = self.everything(job, gpu)?;
        let Some(seed) = self.search else {
            return Ok(Explored {
                results: all.clone(),
                baselines: all,
                searches: Vec::new(),
                simulated,
            });
        };
        let mut results = all.without_partitions();
        let mut profiler = all.clone();
        let recorded = |it: &Partition| {
            let all = all.of_partition(&it.name).iter();
            all.map(|(candidate, _)| *candidate).collect()
        };
        let searches = searched(job, &mut profiler, recorded, seed, &mut results, quiet)?;
        Ok(Explored {
            results,
            baselines: all,
            searches,
            simulated,
        })
    }
}

/// No file of results is longer.
const LONGEST: u64 = 256 << 20;

/// Adds a file's results, and tells whether a simulator made them. Lines without a name are of `name`.
pub(super) fn add(
    results: &mut Results,
    job: &Job,
    path: &Path,
    name: Option<&str>,
) -> Fallible<bool> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let length = fs::metadata(path).map_err(|error| named(&error))?.len();
    if length > LONGEST {
        return Err(named(&format!("more than {} MiB", LONGEST >> 20)).into());
    }
    let text = fs::read_to_string(path).map_err(|error| named(&error))?;
    let records = Records::read(&text, name).map_err(|error| named(&error))?;
    records
        .add_to(results, job)
        .map_err(|error| named(&error))?;
    Ok(records.simulated())
}
