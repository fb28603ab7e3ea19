use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use thiserror::Error;

use crate::{Cli, Outcome};

/// Write the manual pages and shell completions of litd, litctl and litd.toml
///
/// They are made from the command lines that the programs really have. Packages call this with
/// their own share directory, an installation from source with /usr/local/share.
#[derive(clap::Args)]
pub struct Args {
    /// Where man/, bash-completion/, zsh/ and fish/ are made
    directory: PathBuf,
}

#[derive(Debug, Error)]
#[error("{}: {cause}", path.display())]
struct WriteError {
    path: PathBuf,
    cause: io::Error,
}

/// A shell, and where Debian and its like look for a program's completions.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/vendor-completions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// Manual sections of what every user calls, of files, and of what administers a system.
const USERS: &str = "1";
const FILES: &str = "5";
const ADMINISTRATORS: &str = "8";

pub fn run(args: &Args) -> Outcome {
    for (command, section) in [(Cli::command(), USERS), (litd::command(), ADMINISTRATORS)] {
        completions(&command, &args.directory)?;
        let pages = args.directory.join(format!("man/man{section}"));
        fs::create_dir_all(&pages).map_err(at(&pages))?;
        let mut command = command.disable_help_subcommand(true);
        command.build();
        manual(&command, section, &pages)?;
    }
    let pages = args.directory.join(format!("man/man{FILES}"));
    fs::create_dir_all(&pages).map_err(at(&pages))?;
    let path = pages.join(format!("litd.toml.{FILES}"));
    fs::write(&path, configuration()).map_err(at(&path))?;
    Ok(())
}

/// The page of the configuration file: the file with all keys, as it stands.
fn configuration() -> String {
    let mut page = Roff::new();
    let source = concat!("litd ", env!("CARGO_PKG_VERSION"));
    page.control("TH", ["litd.toml", FILES, "", source, "litd"])
        .control("SH", ["NAME"])
        .text([roman("litd.toml - configuration of litd, the node-level power-cap balancer")])
        .control("SH", ["SYNOPSIS"])
        .text([roman("/etc/litd/litd.toml")])
        .control("SH", ["DESCRIPTION"])
        .text([roman(
            "This is the file as a package installs it: every key with its default, and what it does.",
        )]);
    as_it_stands(&mut page, litd::config::DEFAULT_FILE);
    page.control("SH", ["SEE ALSO"])
        .text([roman("litd(8), litctl(1)")]);
    page.render()
}

/// Text as it stands: otherwise lines would be filled, and examples run into each other.
fn as_it_stands(page: &mut Roff, text: &str) {
    page.control("nf", []);
    for line in text.lines() {
        page.text([roman(line)]);
    }
    page.control("fi", []);
}

fn completions(command: &clap::Command, share: &Path) -> Result<(), WriteError> {
    for (shell, place) in SHELLS {
        let directory = share.join(place);
        fs::create_dir_all(&directory).map_err(at(&directory))?;
        let name = command.get_name().to_owned();
        clap_complete::generate_to(shell, &mut command.clone(), name, &directory)
            .map_err(at(&directory))?;
    }
    Ok(())
}

/// A page of a command and one of each of its subcommands.
fn manual(command: &clap::Command, section: &str, pages: &Path) -> Result<(), WriteError> {
    let shown = |it: &&clap::Command| !it.is_hide_set();
    for subcommand in command.get_subcommands().filter(shown) {
        manual(subcommand, section, pages)?;
    }
    let mut page = Vec::new();
    render(command, section, &mut page).map_err(at(pages))?;
    let path = pages.join(format!("{}.{section}", page_name(command)));
    fs::write(&path, page).map_err(at(&path))
}

fn page_name(command: &clap::Command) -> &str {
    let displayed = command.get_display_name();
    displayed.unwrap_or_else(|| command.get_name())
}

fn render(command: &clap::Command, section: &str, page: &mut Vec<u8>) -> io::Result<()> {
    let man = Man::new(command.clone())
        .section(section)
        .source(concat!("litd ", env!("CARGO_PKG_VERSION")))
        .manual("litd");
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    if command.get_subcommands().any(|it| !it.is_hide_set()) {
        man.render_subcommands_section(page)?;
    }
    let Some(text) = command.get_after_help() else {
        return Ok(());
    };
    let mut notes = Roff::new();
    notes.control("SH", ["NOTES"]);
    as_it_stands(&mut notes, &text.to_string());
    notes.to_writer(page)
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> WriteError {
    let path = path.to_owned();
    |cause| WriteError { path, cause }
}
