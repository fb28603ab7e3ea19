//! A booted systemd in a container that is thrown away, and what a probe in it has seen.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::built::repository;

/// The exit status of `boot.sh` on a machine that can't boot a container.
const CANNOT_BOOT: i32 = 77;

/// What a booted systemd shows of litd.service.
pub struct Life {
    seen: BTreeMap<String, String>,
    /// The unit's, line by line.
    pub journal: Vec<String>,
}

impl Life {
    /// Boots with `files` (source, place) and runs a probe, which ends with `journal:` and the
    /// unit's journal; nothing, and says why, where that can't be done.
    pub fn with(probe: &str, files: &[(PathBuf, &str)]) -> Option<Self> {
        // One at a time: they share what a machine has once, such as control groups.
        static BOOTED: Mutex<()> = Mutex::new(());
        let _booted = BOOTED.lock().unwrap_or_else(PoisonError::into_inner);
        let here = repository().join("tests/whole");
        let functions = here.join("systemd/service.sh");
        let functions = [(functions, "/opt/litd-test/service.sh")];
        let installed = functions.iter().chain(files);
        let output = Command::new(here.join("systemd/boot.sh"))
            .arg(here.join(probe))
            .args(installed.map(|(from, to)| format!("{}:{to}", from.display())))
            .output()
            .expect("bash runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(CANNOT_BOOT) {
            eprintln!("SKIPPED: {errors}");
            return None;
        }
        let text = String::from_utf8_lossy(&output.stdout);
        // The test's report has it, should it fail.
        eprintln!("{text}{errors}");
        assert!(output.status.success(), "the probe did not end: {output:?}");
        let (seen, journal) = text
            .split_once("journal:\n")
            .expect("the probe got to its end");
        let pairs = seen.lines().filter_map(|line| line.split_once('='));
        Some(Self {
            seen: pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
            journal: journal.lines().map(str::to_owned).collect(),
        })
    }

    /// What the probe said under a name.
    pub fn of(&self, name: &str) -> &str {
        self.seen.get(name).map_or("(not seen)", String::as_str)
    }

    /// Whether the journal has lines with these texts, in this order.
    pub fn tells(&self, texts: &[&str]) -> bool {
        let mut lines = self.journal.iter();
        texts
            .iter()
            .all(|text| lines.any(|line| line.contains(text)))
    }
}
