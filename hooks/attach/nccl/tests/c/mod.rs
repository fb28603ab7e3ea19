//! The C programs of the tests, which know NCCL's interface from its headers (`tests/nccl/interface.h`).

use std::path::{Path, PathBuf};
use std::process::Command;

/// The copies of the interface: version, copy.
pub const COPIES: [(u8, u8); 8] = [
    (4, 0),
    (5, 0),
    (6, 0),
    (6, 1),
    (6, 2),
    (7, 0),
    (7, 1),
    (7, 2),
];

/// Compiles a program for one copy of the interface.
pub fn compiled(program: &str, (version, copy): (u8, u8), into: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/nccl")
        .join(format!("{program}.c"));
    let built = into.join(format!("{program}-{version}-{copy}"));
    let compiler = Command::new("cc")
        .args([
            "-std=gnu11",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
        ])
        .arg(format!("-DVERSION={version}"))
        .arg(format!("-DCOPY={copy}"))
        .arg(source)
        .arg("-o")
        .arg(&built)
        .arg("-ldl")
        .output()
        .unwrap();
    assert!(
        compiler.status.success(),
        "{}",
        String::from_utf8_lossy(&compiler.stderr)
    );
    built
}
