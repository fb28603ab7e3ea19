//! The workspace's programs, for tests of other packages: cargo hands a test those of its own package only.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use toml::Table;

/// The program `name` of this workspace, built as the test that asks was. Cargo is asked to build it only where
/// what lies there is older than a source of it: `cargo test` has built all programs by then, and cargo would
/// build a part of the workspace with other features of its libraries, which takes minutes. Where `LITD_BUILT` is set,
/// as the gate does, an old program is an error instead.
///
/// # Errors
/// In words: cargo can't be run, or the program can't be built, or has to be and must not.
pub fn program(name: &str) -> Result<PathBuf, String> {
    let directory = directory()?;
    let program = directory.join(name);
    if !is_fresh(&program, name) {
        if std::env::var_os("LITD_BUILT").is_some() {
            return Err(format!("{name} is missing, or older than a source of it"));
        }
        build(name, &directory)?;
    }
    Ok(program)
}

/// Whether the program `name` is there, which a plain `cargo test` does not build: its package is no default member.
/// Where it is missing or old, a note says that the test is skipped, and why; the gate, which sets `LITD_BUILT`, has it.
#[must_use]
pub fn is_built(name: &str) -> bool {
    let is_built = std::env::var_os("LITD_BUILT").is_some()
        || directory().is_ok_and(|directory| is_fresh(&directory.join(name), name));
    if !is_built {
        // Past the capture of a test's output, so that it is seen.
        let note = format!(
            "SKIPPED: no {name} of these sources is built; cargo test --workspace builds it\n"
        );
        let _ = std::io::stderr().write_all(note.as_bytes());
    }
    is_built
}

/// Where this workspace's programs are built: beside the test that asks, which lies in target/debug/deps, or beside
/// the program that does.
fn directory() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let directory = own.ancestors().skip(1).find(|it| !it.ends_with("deps"));
    let directory = directory.ok_or("this program lies in no target directory")?;
    Ok(directory.to_owned())
}

/// The top of the workspace.
fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// When a file was last changed.
fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|it| it.modified()).ok()
}

/// Whether a program is younger than all that it is made of. Cargo's own list of a program's sources (`NAME.d`) does
/// not help: cargo writes it where the program itself was asked for, and `cargo test` asks for tests, which want it.
fn is_fresh(program: &Path, name: &str) -> bool {
    let sources = sources(name);
    changed(program).is_some_and(|built| sources.is_some_and(|newest| newest <= built))
}

/// When what the program `name` is made of was last changed: the sources of its package and of all packages of the
/// workspace that this one links, their manifests, and the list of other people's. None if a manifest can't be read.
fn sources(name: &str) -> Option<SystemTime> {
    let top = workspace();
    let root = manifest(&top)?;
    let members = root["workspace"]["members"].as_array()?.iter();
    let folders = members.filter_map(|it| Some(top.join(it.as_str()?)));
    let packages = Vec::from_iter(
        [top.clone()]
            .into_iter()
            .chain(folders)
            .filter_map(|folder| Some((manifest(&folder)?, folder))),
    );
    let owner = packages.iter().find(|it| makes(it, name))?;
    let (mut linked, mut next) = (BTreeSet::new(), vec![called(&owner.0)?]);
    while let Some(package) = next.pop() {
        // Whatever is not found is somebody else's: Cargo.lock has its version.
        let found = packages.iter().find(|it| called(&it.0) == Some(package));
        let Some((manifest, folder)) = found else {
            continue;
        };
        let known = manifest.get("dependencies").and_then(|it| it.as_table());
        if linked.insert(folder)
            && let Some(known) = known
        {
            next.extend(known.keys().map(String::as_str));
        }
    }
    let mut newest = changed(&top.join("Cargo.lock"))?;
    for folder in linked {
        newest = newest.max(changed(&folder.join("Cargo.toml"))?);
        // The last two are folders of files that programs include.
        for part in ["src", "scenarios", "systemd"] {
            newest = newest.max(newest_below(&folder.join(part)).unwrap_or(newest));
        }
    }
    Some(newest)
}

fn manifest(folder: &Path) -> Option<Table> {
    fs::read_to_string(folder.join("Cargo.toml"))
        .ok()?
        .parse()
        .ok()
}

/// Whether a package makes a program of this name: by its manifest, else by its name and main file.
fn makes((manifest, folder): &(Table, PathBuf), name: &str) -> bool {
    let listed = manifest.get("bin").and_then(|it| it.as_array());
    let listed = listed.is_some_and(|bins| bins.iter().any(|it| it["name"].as_str() == Some(name)));
    listed || called(manifest) == Some(name) && folder.join("src/main.rs").is_file()
}

/// The name of a package.
fn called(manifest: &Table) -> Option<&str> {
    manifest.get("package")?.get("name")?.as_str()
}

/// When a file below a folder was last changed.
fn newest_below(folder: &Path) -> Option<SystemTime> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let times = entries.map(|entry| match entry.path() {
        path if path.is_dir() => newest_below(&path),
        path => changed(&path),
    });
    times.flatten().max()
}

fn build(name: &str, directory: &Path) -> Result<(), String> {
    let profile = match directory.ends_with("release") {
        true => "release",
        false => "dev",
    };
    let target = directory.parent().unwrap_or(directory);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .current_dir(workspace())
        // Not all programs are of default members.
        .args([
            "build",
            "--workspace",
            "--quiet",
            "--locked",
            "--profile",
            profile,
        ])
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
