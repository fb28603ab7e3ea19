//! A Python that has scipy, with HiGHS, a solver that nobody here wrote.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Python of the gate or of the system; prints that the test is skipped if neither has scipy.
pub fn python(what: &str) -> Option<PathBuf> {
    let gate = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/planner/bin/python");
    let has_scipy = |python: &PathBuf| {
        let mut command = Command::new(python);
        let output = command.args(["-c", "import scipy.optimize"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let found = [gate, "python3".into()].into_iter().find(has_scipy);
    if found.is_none() {
        // Past the capture of a test's output, so that it is seen.
        let note = format!("SKIPPED: {what}: no python3 has scipy; see docs/planner.md\n");
        std::io::stderr().write_all(note.as_bytes()).unwrap();
    }
    found
}
