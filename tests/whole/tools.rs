//! Programs of this machine that tests need and may not find.

use std::process::Command;

/// Whether all of these programs are here; if one is not, says that the test is skipped.
pub fn have(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| {
        let run = Command::new(program).arg("--version").output();
        !run.is_ok_and(|output| output.status.success())
    });
    if let Some(program) = missing {
        eprintln!("SKIPPED: {program} is not installed");
    }
    missing.is_none()
}
