//! The scheduler's job of a process, by its control groups in procfs.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use litd_core::Home;

/// `/proc/PID/cgroup` has a line per hierarchy, a dozen at most.
const LONGEST: u64 = 64 * 1024;

/// The job of the process with this folder in procfs.
#[must_use]
pub fn of(process: &Path) -> Option<Home> {
    let path = process.join("cgroup");
    match groups(&path) {
        Ok(text) => Home::of(&text),
        Err(error) => {
            log::debug!("{}: {error}", path.display());
            None
        }
    }
}

fn groups(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(path)?.take(LONGEST).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
