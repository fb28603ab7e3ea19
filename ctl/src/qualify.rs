//! `litctl qualify`: litd's own command, for people who look for it here.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;

/// Test on an idle, drained node whether its devices do what litd needs (runs `litd qualify`)
///
/// Runs `litd qualify` with the same options, as root: the program that writes caps is litd, which has the
/// back ends, the locks and the undo journal. `litctl qualify --help` prints its options and exit statuses.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Options of `litd qualify`, such as --dry-run
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "OPTIONS"
    )]
    options: Vec<OsString>,
}

/// Where packages and an installation from source put litd, seen from litctl's directory.
const PLACES: [&str; 2] = ["litd", "../sbin/litd"];

pub fn run(args: &Args, json: bool) -> Outcome {
    let own = std::env::current_exe()?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    let mut places = PLACES.map(|it| beside.join(it)).into_iter();
    let litd = places.find(|it| it.is_file());
    let litd = litd.unwrap_or_else(|| PathBuf::from("litd"));
    let mut command = Command::new(&litd);
    command.arg("qualify").args(&args.options);
    if json {
        command.arg("--json");
    }
    // The process becomes litd, so that signals and exit statuses are its own.
    let error = command.exec();
    Err(format!("{}: can't be run: {error}", litd.display()).into())
}
