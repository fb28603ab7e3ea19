//! This repository's files and programs, for tests that carry them somewhere.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The top of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The directory of the daemon under test, with these programs of other packages built as it is.
/// Where `LITD_BUILT` is set, all of the workspace was built just now (the gate does that): what
/// lies there is taken as it is. Building a part of it anew takes minutes, because cargo gives
/// libraries other features then.
pub fn built(programs: &[&str]) -> PathBuf {
    let litd = Path::new(env!("CARGO_BIN_EXE_litd"));
    let directory = litd.parent().expect("programs lie in a directory");
    let profile = match directory.ends_with("release") {
        true => "release",
        false => "dev",
    };
    let there = |program: &str| directory.join(program).exists();
    if std::env::var_os("LITD_BUILT").is_some() && programs.iter().all(|it| there(it)) {
        return directory.to_owned();
    }
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
