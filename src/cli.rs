//! The daemon's command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use litd_power::{nvml, rocm_smi};

use crate::config::{Config, DEFAULT_FILE, DEFAULT_PATH};
use crate::daemon::{self, DaemonError, Options};
use crate::locks::Taken;
use crate::logging;
use crate::qualify;
use crate::signals;
use crate::state::StateError;

/// Balances the power caps of a GPU training node.
///
/// Without a command litd runs as a daemon until it is stopped, and then restores the caps found (or,
/// with caps.on_exit = "hold", lowers them as far as caps.safe_budget needs). systemd starts it;
/// `litctl` sends it commands.
#[derive(Debug, Parser)]
#[command(name = "litd", version, max_term_width = 100)]
#[command(
    after_help = "Exit status: 0 done, 1 failed, 2 the command line or the configuration is wrong, 3 (`litd restore`) \
                  a write may still take effect. `litd qualify` has other exit statuses: see its --help"
)]
struct Cli {
    /// The configuration file [default: /etc/litd/litd.toml if it exists]
    #[arg(long, global = true, value_name = "PATH")]
    config: Option<PathBuf>,
    /// Print the mistakes in the configuration, and end. If a budget is set, this reads the GPUs and
    /// compares the budget with the sum of their floors
    #[arg(long, conflicts_with = "rig_clock")]
    check_config: bool,
    /// Take the time from a test rig's socket
    #[arg(long, value_name = "PATH", hide = true)]
    rig_clock: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Restore the caps that a dead daemon has left changed (exit status 0 also if there are none)
    ///
    /// systemd runs this after each end of the daemon. It reads the undo journal, restores the caps found
    /// (or holds caps, as caps.on_exit says) and unlocks clocks. Foreign caps stay. While a daemon runs it
    /// changes nothing and ends with status 1: a running daemon restores caps on `litctl policy observe`,
    /// and when it stops. Status 1 also means that a cap could not be restored, or that the undo journal was
    /// found damaged, 2 that the configuration is wrong, and 3 that caps are restored and a write that failed or
    /// got no answer may still change one: run it again half a minute later. The message has the device or the
    /// file, and the reason.
    Restore,
    Qualify(qualify::Args),
    /// Print the default configuration file, which explains every key
    ///
    /// --config changes nothing here.
    DefaultConfig,
}

/// The exit status of a wrong command line.
const USAGE: u8 = 2;

/// The exit status of a restore after which a late write may still change a cap.
const MAY_LAND: u8 = 3;

/// The command line's definition, for manual pages and shell completions.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs litd as the command line `args` says, the first of which is the program's name.
#[must_use]
pub fn main(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    // Before anything else, because the default effect of each ends the process. All but the daemon let them through
    // again.
    signals::hold();
    let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
    match as_back_end(&args) {
        Some(status) => status,
        None => obey(args),
    }
}

/// Runs as the process of a back end, if the command line asks for one.
fn as_back_end(args: &[OsString]) -> Option<ExitCode> {
    let name = args.get(1)?;
    let rest = || {
        signals::let_through();
        args.iter().skip(2).cloned()
    };
    if name == rocm_smi::COMMAND {
        return Some(rocm_smi::serve(rest()));
    }
    if name == nvml::LOOK {
        return Some(nvml::look(rest()));
    }
    if name == nvml::KEEP {
        return Some(nvml::keep(rest()));
    }
    None
}

fn obey(args: Vec<OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    let is_daemon = cli.command.is_none() && !cli.check_config;
    if !is_daemon {
        signals::let_through();
    }
    daemon::outlive_long_files();
    let options = Options {
        config: cli.config,
        rig_clock: cli.rig_clock,
    };
    let _flushed = logging::Flushed;
    let outcome = match &cli.command {
        None if cli.check_config => check(&options),
        None => daemon::run(&options),
        Some(Command::Restore) => daemon::restore(&options),
        Some(Command::Qualify(args)) => match qualify::run(&options, args) {
            Ok(status) => return ExitCode::from(status),
            Err(error) => Err(error),
        },
        Some(Command::DefaultConfig) => {
            print(DEFAULT_FILE);
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error, matches!(cli.command, Some(Command::Restore))),
    }
}

fn check(options: &Options) -> Result<(), DaemonError> {
    let config = Config::load(options.config.as_deref())?;
    let compared = daemon::check_budgets(&config, options)?;
    let default = PathBuf::from(DEFAULT_PATH);
    let file = options.config.as_ref().unwrap_or(&default);
    match file.exists() {
        true => print(&format!("{}: good{compared}\n", file.display())),
        false => print(&format!("{}: not there, which is good\n", file.display())),
    }
    Ok(())
}

fn report(error: &DaemonError, restoring: bool) -> ExitCode {
    let line = format!("litd: {error}\n").replace('\n', "\nlitd: ");
    let mut line = line.strip_suffix("litd: ").unwrap_or(&line).to_owned();
    let runs = matches!(
        error,
        DaemonError::Taken(Taken {
            restores: false,
            ..
        }) | DaemonError::State(StateError::Held { .. })
    );
    if restoring && runs {
        line.push_str(
            "litd: a running daemon restores caps on `litctl policy observe`, which keeps the devices; on \
             `litctl release --all`, which also closes them until `litctl resume`; and when it stops\n",
        );
    }
    logging::last_words(&line);
    ExitCode::from(match error {
        DaemonError::Config(_) => USAGE,
        DaemonError::Left(left) if restoring && left.may_only_land() => MAY_LAND,
        _ => 1,
    })
}

/// Prints text; a closed pipe is no error.
fn print(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stdout().write_all(text.as_bytes());
}
