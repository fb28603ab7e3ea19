//! `litctl doctor --record`: the node as a file.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use litd::config::Hardware;
use litd_recording::Roots;
use serde::Serialize;

use crate::Outcome;

/// A driver that has not answered for so long is waited for no longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Records this node, and says so on standard error, where it is in nobody's way.
pub fn write(path: &Path, hardware: &Hardware, report: &impl Serialize) -> Outcome {
    let named = |error: &dyn std::fmt::Display| format!("--record {}: {error}", path.display());
    let mut options = OpenOptions::new();
    // Of a file that is there already nothing is lost, and no link is followed.
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(path).map_err(|error| named(&error))?;
    let roots = Roots {
        sys: &hardware.sys,
        proc: &hardware.proc,
        dev: &hardware.dev,
    };
    let report = serde_json::to_value(report)?;
    let recording = litd_recording::take(roots, PATIENCE, &litd::hash_of_serial, report);
    let text = recording.to_json()?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all());
    written.map_err(|error| named(&error))?;
    eprintln!(
        "{}: {} files, links and nodes recorded, with hashes for serial numbers",
        path.display(),
        recording.files.len()
    );
    Ok(())
}
