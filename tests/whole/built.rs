//! This repository's files and programs, for tests that carry them somewhere.

use std::path::{Path, PathBuf};

/// The top of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The directory of the daemon under test, in which these programs of other packages are, too.
pub fn built(programs: &[&str]) -> PathBuf {
    for name in programs {
        litd_rig::program(name).expect("the program is built");
    }
    let litd = Path::new(env!("CARGO_BIN_EXE_litd"));
    litd.parent()
        .expect("programs lie in a directory")
        .to_owned()
}
