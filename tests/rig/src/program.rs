//! The workspace's programs, for tests of other packages: cargo hands a test those of its own package only.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// The program `name` of this workspace, built as the test that asks was. Cargo is asked to build it only where
/// what lies there is older than a source of it: `cargo test` has built all programs by then, and cargo would
/// build a part of the workspace with other features of its libraries, which takes minutes.
///
/// # Errors
/// In words: cargo can't be run, or the program can't be built.
pub fn program(name: &str) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    // target/debug/deps/test, or target/debug/program
    let directory = own.ancestors().skip(1).find(|it| !it.ends_with("deps"));
    let directory = directory.ok_or("this program lies in no target directory")?;
    let program = directory.join(name);
    if !is_fresh(&program) {
        build(name, directory)?;
    }
    Ok(program)
}

/// Whether a program is younger than all of its sources, which cargo lists beside it (`NAME.d`).
fn is_fresh(program: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|it| it.modified()).ok();
    let (Some(built), Ok(list)) = (
        time(program),
        fs::read_to_string(program.with_extension("d")),
    ) else {
        return false;
    };
    let Some((_, sources)) = list.split_once(": ") else {
        return false;
    };
    // A blank in a name stands behind a backslash.
    let sources = sources.trim_end().replace("\\ ", "\u{0}");
    let older = |source: &str| {
        let source = source.replace('\u{0}', " ");
        time(Path::new(&source)).is_some_and(|changed: SystemTime| changed <= built)
    };
    sources.split(' ').all(older)
}

fn build(name: &str, directory: &Path) -> Result<(), String> {
    let profile = match directory.ends_with("release") {
        true => "release",
        false => "dev",
    };
    let target = directory.parent().unwrap_or(directory);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = Command::new(cargo)
        .current_dir(workspace)
        .args(["build", "--quiet", "--locked", "--profile", profile])
        .arg(format!("--bin={name}"))
        .arg("--target-dir")
        .arg(target)
        .status();
    match built {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo can't build {name}: {status}")),
        Err(error) => Err(format!("cargo can't be run to build {name}: {error}")),
    }
}
