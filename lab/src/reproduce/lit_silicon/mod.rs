//! Lit Silicon, item by item (Kurzynski, Aga and Wu): all SIMULATED, on a node fitted to the paper's node 1.

mod characterised;
mod items;
mod knobs;
mod page;
mod pictures;
mod trends;

use std::error::Error;
use std::path::PathBuf;

use litd_cli::Outcome;

use super::{Item, asked_for, print};
use knobs::Lab;

type Fallible<T> = Result<T, Box<dyn Error>>;

/// Lit Silicon: use cases, knobs and final caps, beside the paper's
///
/// Our numbers are SIMULATED, on a node that was fitted to Table III and to Figures 3 and 5 of the
/// paper. Each row is given for the paper's bare law and for litd as it is shipped. With --out a
/// page and its pictures are written.
#[derive(clap::Args)]
pub struct Args {
    /// Only items whose name contains ITEM, such as figure-12; the others are not simulated, which
    /// saves time
    #[arg(long, value_name = "ITEM")]
    what: Option<String>,
    /// Write the page lit-silicon.md and its pictures there
    #[arg(long, value_name = "FOLDER", conflicts_with = "what")]
    out: Option<PathBuf>,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let what = args.what.as_deref();
    let lab = Lab::new(what)?;
    let items = asked_for(items::all(&lab)?, what)?;
    if let Some(folder) = &args.out {
        page::write(folder, &lab, &items)?;
    }
    print(&items, json)
}
