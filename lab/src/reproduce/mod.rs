//! `litlab reproduce`: a paper's tables and figures, its numbers beside ours.

mod energylens;
mod kareus;
mod lit_silicon;
mod overlap;
pub mod perseus;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use litd_cli::{Outcome, output};
use serde::Serialize;

use crate::carbon;

/// Repeat a paper's evaluation and print our numbers beside the paper's
///
/// Simulated numbers are marked SIMULATED; items that can't be compared are listed with the reason.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    paper: Paper,
}

#[derive(Subcommand)]
enum Paper {
    Energylens(EnergylensArgs),
    Carbon(carbon::ReproduceArgs),
    Perseus(perseus::Args),
    LitSilicon(lit_silicon::Args),
    Kareus(KareusArgs),
}

/// EnergyLens: energy and latency of language-model inference, beside the paper's
///
/// Our numbers are predictions from public specifications, and SIMULATED where measurements would
/// be needed. With --tables, items that need a calibrated model are computed, too.
#[derive(clap::Args)]
struct EnergylensArgs {
    /// Only items whose name contains ITEM, such as figure-7
    #[arg(long, value_name = "ITEM")]
    what: Option<String>,
    /// A folder with measured tables of kernels on an A100
    #[arg(long, value_name = "FOLDER")]
    tables: Option<PathBuf>,
}

/// Kareus: overlap and clocks of training iterations, beside the paper's
///
/// Our plans are made on a SIMULATED A100.
#[derive(clap::Args)]
struct KareusArgs {
    /// Only items whose name contains ITEM, such as table-8; the others are not planned, which
    /// saves time
    #[arg(long, value_name = "ITEM")]
    what: Option<String>,
}

/// A number of the paper, and ours.
#[derive(Debug, Clone, Serialize)]
pub struct Item {
    /// Where it stands, such as figure-7a.
    pub item: &'static str,
    /// What it tells.
    pub what: String,
    /// The unit of both numbers.
    pub unit: &'static str,
    /// The paper's number.
    pub theirs: Option<f64>,
    /// Ours.
    pub ours: Option<f64>,
    /// Ours less theirs.
    pub difference: Option<f64>,
    /// Why they can't be compared, or how ours came about.
    pub note: String,
}

impl Item {
    /// A number beside the paper's.
    fn compared(
        item: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        theirs: f64,
        ours: f64,
        note: impl Into<String>,
    ) -> Self {
        Self {
            item,
            what: what.into(),
            unit,
            theirs: Some(theirs),
            ours: Some(ours),
            difference: Some(ours - theirs),
            note: note.into(),
        }
    }

    /// A number of ours where the paper has a curve or a sentence.
    fn ours(
        item: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        ours: f64,
        note: impl Into<String>,
    ) -> Self {
        Self {
            item,
            what: what.into(),
            unit,
            theirs: None,
            ours: Some(ours),
            difference: None,
            note: note.into(),
        }
    }

    /// What can't be compared.
    fn absent(
        item: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        theirs: Option<f64>,
        why: impl Into<String>,
    ) -> Self {
        Self {
            item,
            what: what.into(),
            unit,
            theirs,
            ours: None,
            difference: None,
            note: format!("can't compare: {}", why.into()),
        }
    }
}

pub fn run(args: &Args, json: bool) -> Outcome {
    match &args.paper {
        Paper::Energylens(args) => energylens(args, json),
        Paper::Kareus(args) => {
            let what = args.what.as_deref();
            printed(kareus::items(what)?, what, json)
        }
        Paper::Carbon(args) => carbon::reproduce(args, json),
        Paper::Perseus(args) => perseus::run(args, json),
        Paper::LitSilicon(args) => lit_silicon::run(args, json),
    }
}

fn energylens(args: &EnergylensArgs, json: bool) -> Outcome {
    let items = energylens::items(args.tables.as_deref())?;
    printed(items, args.what.as_deref(), json)
}

fn printed(items: Vec<Item>, what: Option<&str>, json: bool) -> Outcome {
    print(&asked_for(items, what)?, json)
}

/// The items whose names contain this.
fn asked_for(
    mut items: Vec<Item>,
    what: Option<&str>,
) -> Result<Vec<Item>, Box<dyn std::error::Error>> {
    items.retain(|it| what.is_none_or(|what| it.item.contains(what)));
    match items.is_empty() {
        true => Err("the paper has no item of that name: without --what all are printed".into()),
        false => Ok(items),
    }
}

fn print(items: &[Item], json: bool) -> Outcome {
    match json {
        true => output::json(&items),
        false => output::text(&text(items)),
    }
}

/// A page on a paper: `head`, trends, numbers, and the pictures, which lie beside it, by file and caption.
fn write_page(
    path: &Path,
    head: &str,
    all: &[Trend],
    items: &[Item],
    pictures: &[(String, String)],
) -> Result<(), Box<dyn std::error::Error>> {
    let mut page = format!(
        "{head}{}\n## Numbers\n{}\n## Pictures\n",
        trends(all),
        numbers(items)
    );
    for (file, caption) in pictures {
        page += &format!("\n{caption}\n\n![{caption}]({file})\n");
    }
    std::fs::write(path, page).map_err(|cause| format!("{}: {cause}", path.display()).into())
}

fn text(items: &[Item]) -> String {
    let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |it| format!("{it:.2}"));
    let mut text =
        "SIMULATED: ours are predictions of models; nothing was measured for them\n".to_owned();
    for it in items {
        text += &format!(
            "\n{:12} {}\n{:12} theirs {}, ours {}, difference {} {}\n",
            it.item,
            it.what,
            "",
            shown(it.theirs),
            shown(it.ours),
            shown(it.difference),
            it.unit
        );
        for line in output::wrap(&it.note, output::WIDTH - 13) {
            text += &format!("{:12} {line}\n", "");
        }
    }
    text
}

/// What a paper says beyond numbers, whether ours says it, too, and our numbers.
struct Trend {
    table: &'static str,
    what: String,
    is_ours: bool,
    numbers: String,
}

/// Trends as a section of a page.
fn trends(all: &[Trend]) -> String {
    let mut section =
        "\n## Trends\n\n| table | the paper | ours | our numbers |\n|---|---|---|---|\n".to_owned();
    for it in all {
        let ours = if it.is_ours {
            "the same"
        } else {
            "**differs**"
        };
        section += &format!("| {} | {} | {ours} | {} |\n", it.table, it.what, it.numbers);
    }
    section
}

/// The items as a table of a page.
fn numbers(items: &[Item]) -> String {
    let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |it| format!("{it:.2}"));
    let mut table =
        "\n| item | what | the paper | ours | difference | unit | note |\n|---|---|---|---|---|---|---|\n"
            .to_owned();
    for it in items {
        table += &format!(
            "| {} | {} | {} | {} | {} | {} | {} |\n",
            it.item,
            it.what,
            shown(it.theirs),
            shown(it.ours),
            shown(it.difference),
            it.unit,
            it.note
        );
    }
    table
}
