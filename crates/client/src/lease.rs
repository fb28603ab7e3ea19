//! The lease that a file grants a node, read anew each time: a fleet controller writes the file, an agent
//! on each node renews the lease for as long as the file says so.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use litd_api::{Command, Done, Lease, Mode};
use litd_files as files;
use litd_units::Watts;
use serde::Deserialize;

use crate::{Client, ControlError};

/// A file that was not written to for so long is whole.
const SETTLED: Duration = Duration::from_secs(1);

/// How often to read a file that is being written.
const READ: u32 = 4;

/// A lease that has no whole second left is none.
const SHORTEST: f64 = 1.0;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    valid_until: Option<toml::value::Datetime>,
    mode: Option<Mode>,
    budget: Option<f64>,
    #[serde(default)]
    nodes: BTreeMap<String, Terms>,
}

/// The terms for all nodes, or for one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Terms {
    mode: Option<Mode>,
    budget: Option<f64>,
}

/// The lease that a file grants a node.
#[derive(Debug, PartialEq)]
pub struct Grant {
    terms: Terms,
    /// For how many seconds, at most.
    seconds: f64,
}

impl Grant {
    /// The lease that the file grants `node` now: for `seconds` at most, and no longer than the file is valid.
    ///
    /// # Errors
    /// In words, with the file's name: it can't be read, is no such file, grants this node nothing, or is no
    /// longer valid.
    pub fn read(file: &Path, node: &str, seconds: f64) -> Result<Self, String> {
        granted(file, node, Timestamp::now(), seconds)
    }

    /// The budget, where it grants one.
    #[must_use]
    pub fn budget(&self) -> Option<Watts> {
        self.terms.budget.map(Watts)
    }

    /// Leases it from the daemon, or renews the lease, in the name of `controller`.
    ///
    /// # Errors
    /// [`ControlError`]: nobody answers, or litd refuses.
    pub fn lease(&self, client: &Client, controller: &str) -> Result<Done, ControlError> {
        client.command(&Command::Lease(Lease {
            controller: controller.to_owned(),
            seconds: self.seconds,
            mode: self.terms.mode,
            budget: self.budget(),
        }))
    }
}

fn granted(file: &Path, node: &str, now: Timestamp, seconds: f64) -> Result<Grant, String> {
    let shown = file.display();
    let text = settled(file).map_err(|error| format!("{shown}: {error}"))?;
    grant(&text, node, now, seconds).map_err(|error| format!("{shown}: {error}"))
}

/// The file's text once nobody has written to it for a moment. Half of a file that is written in place is a good one,
/// and grants a node what is meant for others.
fn settled(file: &Path) -> io::Result<String> {
    let mut before = None;
    for _ in 0..READ {
        let text = files::text(file, files::LONGEST_CONFIG)?;
        let age = file.metadata()?.modified()?.elapsed();
        let is_old = age.is_ok_and(|age| age >= SETTLED);
        // The clock of whoever has written it may be another.
        if is_old || before.as_ref() == Some(&text) {
            return Ok(text);
        }
        before = Some(text);
        thread::sleep(SETTLED);
    }
    let text = "is being written to: write another file beside it, and rename that";
    Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
}

fn grant(text: &str, node: &str, now: Timestamp, seconds: f64) -> Result<Grant, String> {
    let document: Document = toml::from_str(text).map_err(|error| error.to_string())?;
    let own = document.nodes.get(node).copied().unwrap_or_default();
    let terms = Terms {
        mode: own.mode.or(document.mode),
        budget: own.budget.or(document.budget),
    };
    if terms == Terms::default() {
        // Half a file must not lift the safe budget.
        return Err(format!("neither mode nor budget for {node}"));
    }
    let Some(until) = document.valid_until else {
        return Ok(Grant { terms, seconds });
    };
    let until: Timestamp = until.to_string().parse().map_err(|_| {
        format!("valid_until = {until}: it has no time zone, as in 2026-12-01T00:00:00Z")
    })?;
    let left = (until - now).total(jiff::Unit::Second);
    let left = left.map_err(|error| error.to_string())?;
    if left < SHORTEST {
        return Err(format!("it was valid until {until}"));
    }
    Ok(Grant {
        terms,
        seconds: seconds.min(left),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-22T12:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_node_has_what_all_have_and_what_is_its_own() {
        let text = "mode = \"on\"\nbudget = 4800\n[nodes.n17]\nmode = \"off\"\n";
        let of = |node| grant(text, node, now(), 60.0).unwrap().terms;
        let budget = Some(4800.0);
        assert_eq!(
            (of("n1").mode, of("n1").budget),
            (Some(Mode::Steer), budget)
        );
        assert_eq!(
            (of("n17").mode, of("n17").budget),
            (Some(Mode::Off), budget)
        );
    }

    #[test]
    fn no_lease_lasts_longer_than_the_file_is_valid() {
        let until = |time: &str| {
            let text = format!("budget = 4800.5\nvalid_until = {time}\n");
            grant(&text, "n", now(), 60.0).map(|it| it.seconds)
        };
        assert_eq!(until("2026-11-22T13:00:00Z"), Ok(60.0));
        assert_eq!(until("2026-11-22T13:00:20+01:00"), Ok(20.0));
        assert!(
            until("2026-11-22T12:00:00Z")
                .unwrap_err()
                .contains("valid until")
        );
        assert!(
            until("2026-11-22T13:00:00")
                .unwrap_err()
                .contains("time zone")
        );
    }

    #[test]
    fn a_pipe_is_no_file_and_is_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("fleet.toml");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let error = granted(&pipe, "n", now(), 60.0).unwrap_err();
        let expected = format!(
            "{}: is a named pipe; it must be a regular file",
            pipe.display()
        );
        assert_eq!(error, expected);
    }

    #[test]
    fn half_a_file_grants_nothing() {
        let wrong = [
            "",
            "budget",
            "budget = 48\nbudgets = 1\n",
            "[nodes.n]\n",
            "[nodes.other]\nbudget = 4800\n",
            "budget = \"4800\"\n",
            "mode = \"of\"\n",
        ];
        for text in wrong {
            assert!(grant(text, "n", now(), 60.0).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_that_is_being_written_to_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fleet.toml");
        std::fs::write(&path, "budget = 1300\n").unwrap();
        let (file, whole) = (path.clone(), "budget = 1300\n[nodes.n1]\nbudget = 900\n");
        let writer = thread::spawn(move || {
            thread::sleep(SETTLED / 2);
            std::fs::write(file, whole).unwrap();
        });
        let granted = Grant::read(&path, "n1", 60.0).unwrap();
        writer.join().unwrap();
        assert_eq!(granted.budget(), Some(Watts(900.0)));
    }
}
