//! `litctl stacks`: which profilers hooks may use on this node, by software, and how other nodes hear of it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use litd_api::{Command, STACKS_VERSION, Stacks, StacksFile};

use crate::control::{self, Socket};
use crate::{Outcome, output};

/// Show, export or import the results of profilers on stacks (versions of torch, CUDA or ROCm)
///
/// Hooks measure with torch's profiler unless something forbids it. On each stack one job of each user, the canary,
/// tries it first. After 20 samples that lack no kernels the stack is good for that user; after harm its profiler is
/// off. Imported results hold for all users of this node: a good stack needs no canary here, and a profiler that is off
/// for everybody on the other node is off for everybody here. Root and litd's admin group may import. `litctl forget`
/// deletes all results of litd; hooks keep their own until the node boots.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    socket: Socket,
}

#[derive(clap::Subcommand)]
enum What {
    /// Write the results as JSON
    Export {
        /// The file [default: standard output]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Read another node's results, and use them for all users
    Import {
        /// A file that `litctl stacks export` wrote
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

pub fn run(args: &Args, json: bool) -> Outcome {
    match &args.what {
        None => show(&args.socket.client()?.stacks()?, json),
        Some(What::Export { file }) => {
            let file_of = |stacks| StacksFile {
                version: STACKS_VERSION,
                stacks,
            };
            let stacks = file_of(args.socket.client()?.stacks()?);
            match file {
                None => output::json(&stacks),
                Some(path) => {
                    let text = serde_json::to_string_pretty(&stacks)? + "\n";
                    std::fs::write(path, text)
                        .map_err(|error| format!("{}: {error}", path.display()).into())
                }
            }
        }
        Some(What::Import { file }) => {
            let stacks = read(file)?;
            control::change(&args.socket, json, &Command::ImportStacks { stacks })
        }
    }
}

fn read(path: &Path) -> Result<Stacks, String> {
    let why = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let bytes = litd_files::read(path, litd_files::LONGEST_CONFIG).map_err(|e| why(&e))?;
    let file: StacksFile = serde_json::from_slice(&bytes)
        .map_err(|error| why(&format!("not what `litctl stacks export` writes: {error}")))?;
    if file.version != STACKS_VERSION {
        return Err(why(&format!(
            "it is of version {}, and this litctl knows version {STACKS_VERSION} only",
            file.version
        )));
    }
    Ok(file.stacks)
}

fn show(stacks: &Stacks, json: bool) -> Outcome {
    if json {
        return output::json(stacks);
    }
    output::text(&in_words(stacks))
}

fn in_words(stacks: &Stacks) -> String {
    let mut text = String::new();
    for it in &stacks.good {
        let whose = match (it.for_all, it.users) {
            (true, _) => "for all users".to_owned(),
            (false, 1) => "for 1 user".to_owned(),
            (false, users) => format!("for {users} users"),
        };
        let _ = writeln!(text, "good  {} ({whose})", it.software);
    }
    for it in &stacks.off {
        let whose = match it.for_all {
            true => "for all users",
            false => "for the users whose jobs it slowed down",
        };
        let teller = match &it.told_by {
            Some(teller) => format!("{teller} says: "),
            None => String::new(),
        };
        let _ = writeln!(
            text,
            "off   {} ({whose}): {teller}{}",
            it.software, it.reason
        );
    }
    match text.is_empty() {
        true => "no profiler has results here yet\n".to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use litd_api::{GoodStack, OffStack};

    use super::*;

    #[test]
    fn results_are_told_a_line_each() {
        assert_eq!(
            in_words(&Stacks::default()),
            "no profiler has results here yet\n"
        );
        let software = "torch 2.11.0, cuda 13.0, cupti 13.0.85".to_owned();
        let good = |users, for_all| GoodStack {
            software: software.clone(),
            users,
            for_all,
        };
        let off = OffStack {
            software: software.clone(),
            reason: "12 % slower".to_owned(),
            told_by: Some("user 1001".to_owned()),
            for_all: false,
        };
        let stacks = Stacks {
            good: vec![good(1, false), good(3, false), good(0, true)],
            off: vec![off],
        };
        assert_eq!(
            in_words(&stacks),
            "good  torch 2.11.0, cuda 13.0, cupti 13.0.85 (for 1 user)\n\
             good  torch 2.11.0, cuda 13.0, cupti 13.0.85 (for 3 users)\n\
             good  torch 2.11.0, cuda 13.0, cupti 13.0.85 (for all users)\n\
             off   torch 2.11.0, cuda 13.0, cupti 13.0.85 (for the users whose jobs it slowed down): \
             user 1001 says: 12 % slower\n"
        );
    }
}
