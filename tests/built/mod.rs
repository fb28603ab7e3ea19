//! This repository's files and programs, for tests that carry them somewhere.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The top of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The directory of the daemon under test, with these programs of other packages built as it is.
pub fn built(programs: &[&str]) -> PathBuf {
    let litd = Path::new(env!("CARGO_BIN_EXE_litd"));
    let directory = litd.parent().expect("programs lie in a directory");
    let profile = match directory.ends_with("release") {
        true => "release",
        false => "dev",
    };
    // Another package's programs are not built for a test, unless all are.
    let built = Command::new(env!("CARGO"))
        .current_dir(repository())
        .args(["build", "--quiet", "--locked", "--profile", profile])
        .args(programs.iter().map(|program| format!("--bin={program}")))
        .arg("--target-dir")
        .arg(directory.parent().expect("it is below target"))
        .status()
        .expect("cargo runs");
    assert!(built.success(), "{programs:?} are not built: {built}");
    directory.to_owned()
}
