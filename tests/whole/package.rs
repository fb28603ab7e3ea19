//! Packages: built, and taken through their lives in a booted system.

mod purge;
mod rpm;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::booted::Life;
use crate::built::{built, repository};
use crate::tools::have;

/// The programs of other packages of the workspace that are in a package.
const PROGRAMS: &[&str] = &["litctl", "litd-planner"];

/// Builds a package of a kind (the folder in deploy/) of the programs under test; where it is.
fn package(kind: &str, directory: &Path, programs: &Path, version: &str) -> PathBuf {
    let output = Command::new(repository().join("deploy").join(kind).join("build"))
        .arg("--programs")
        .arg(programs)
        .args(["--version", version, "--output"])
        .arg(directory)
        // Packing well takes longer than the test.
        .env("DPKG_DEB_COMPRESSOR_TYPE", "none")
        .env("PACKED", "1")
        .output()
        .expect("bash runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "", "a build that is well says nothing");
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

/// Whether packages can be built and installed here.
fn can_be_built() -> bool {
    have(&["dpkg-deb", "dpkg-shlibdeps", "strip", "python3"]) && litd_rig::is_built("litd-planner")
}

#[test]
fn the_same_programs_make_the_same_package() {
    if !can_be_built() {
        return;
    }
    let programs = built(PROGRAMS);
    let mut kinds = vec!["debian", "tarball"];
    if have(&["rpmbuild"]) {
        kinds.push("rpm");
    }
    for kind in kinds {
        let [first, second] = [(); 2].map(|()| {
            let directory = tempfile::tempdir().expect("a directory");
            let path = package(kind, directory.path(), &programs, "1.2.3");
            fs::read(path).expect("the package is there")
        });
        assert!(first == second, "two builds differ: {kind}");
    }
}

/// On a node without a network, as it lies in every package.
#[test]
fn pip_installs_the_hooks_wheel_without_a_network() {
    if !have(&["python3"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let made = Command::new(repository().join("deploy/wheel"))
        .arg(directory.path())
        .output()
        .expect("python3 runs");
    assert!(made.status.success(), "{made:?}");
    let wheel = String::from_utf8_lossy(&made.stdout).trim().to_owned();
    let python = |arguments: &[&str]| {
        let run = Command::new("python3")
            .args(arguments)
            .env("PYTHONPATH", directory.path().join("installed"))
            .output();
        run.expect("python3 runs")
    };
    if !python(&["-m", "pip", "--version"]).status.success() {
        eprintln!("SKIPPED: python3 has no pip");
        return;
    }
    let target = directory.path().join("installed");
    let target = target.to_str().expect("text");
    let installed = python(&[
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--target",
        target,
        &wheel,
    ]);
    assert!(installed.status.success(), "{installed:?}");
    let version = "import importlib.metadata as it, litd; print(litd.__file__, it.version('litd'), litd.__version__)";
    let output = python(&["-c", version]);
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!("{target}/litd/__init__.py {version} {version}");
    assert_eq!(said, expected, "{output:?}");
}

/// Every crate that the programs are linked with, with its licence, and nothing twice.
#[test]
fn the_bill_of_materials_names_what_the_programs_are_made_of() {
    if !have(&["python3"]) {
        return;
    }
    let output = Command::new(repository().join("deploy/sbom"))
        .output()
        .expect("python3 runs");
    assert!(output.status.success(), "{output:?}");
    let bill: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(bill["bomFormat"], "CycloneDX");
    let components = bill["components"].as_array().expect("a list");
    let mut names: Vec<&str> = components
        .iter()
        .filter_map(|it| it["bom-ref"].as_str())
        .collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
    for one in ["tokio@", "prost@", "litd-core@", "nvml-wrapper@"] {
        assert!(names.iter().any(|it| it.starts_with(one)), "{one}");
    }
    // What only tests and builds need is in no program.
    for other in ["proptest@", "bindgen@", "litd-sim@", "litd-rig@"] {
        assert!(!names.iter().any(|it| it.starts_with(other)), "{other}");
    }
    assert!(components.iter().all(|it| it["licenses"].is_array()));
}

#[test]
fn lintian_has_nothing_to_say() {
    if !can_be_built() || !have(&["lintian"]) {
        return;
    }
    let programs = built(PROGRAMS);
    let directory = tempfile::tempdir().expect("a directory");
    let package = package("debian", directory.path(), &programs, "0.1.0");
    let output = Command::new("lintian")
        .args(["--no-cfg", "--allow-root", "--fail-on", "warning"])
        // That one is the test's own.
        .args(["--suppress-tags", "uses-no-compression-for-data-tarball"])
        .args(["--suppress-tags", "uses-no-compression-for-control-tarball"])
        .arg(package)
        .output()
        .expect("lintian runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}

#[test]
fn a_machine_is_left_as_it_was_found() {
    if !can_be_built() {
        return;
    }
    let programs = built(&["litctl", "litd-planner", "litd-rig-node"]);
    let directory = tempfile::tempdir().expect("a directory");
    let old = package("debian", directory.path(), &programs, "0.0.1");
    let new = package("debian", directory.path(), &programs, "0.0.2");
    let rig = repository().join("tests/whole/systemd/rig.sh");
    let Some(life) = Life::with(
        "package/probe.sh",
        &[
            (old, "/opt/litd-test/old.deb"),
            (new, "/opt/litd-test/new.deb"),
            (rig, "/opt/litd-test/hardware.sh"),
            (
                programs.join("litd-rig-node"),
                "/opt/litd-test/litd-rig-node",
            ),
        ],
    ) else {
        return;
    };
    installs(&life);
    upgrades(&life);
    goes(&life);
    assert_eq!(life.of("violations"), "0");
}

fn installs(life: &Life) {
    assert_eq!(life.of("install"), "0");
    assert_eq!(life.of("fresh"), "active success", "without any device");
    assert_eq!(life.of("enabled"), "enabled");
    assert_eq!(life.of("shipped_configuration"), "0", "another default");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        life.of("version"),
        format!("litd {version}, litctl {version}")
    );
    assert_eq!(life.of("pages"), "4");
    assert_eq!(life.of("groups"), "litd litd-admin litd-ingest");
    assert_eq!(life.of("purge"), "0");
    assert_eq!(life.of("after_purge"), life.of("before"));

    assert_eq!(life.of("second_install"), "0");
    assert_eq!(life.of("started"), "active success");
    assert!(life.of("observing").contains("observe"));
    assert_eq!(life.of("observed_caps"), life.of("found"));
    assert_ne!(life.of("steered"), life.of("found"));
}

fn upgrades(life: &Life) {
    assert_eq!(life.of("upgrade"), "0");
    assert_eq!(life.of("upgraded_to"), "0.0.2");
    assert_eq!(life.of("new_process"), "0", "the old daemon still runs");
    // The old one gave back, and only then the new one took over.
    assert!(life.tells(&["cap is back at", "Stopped", "Started"]));
    let again = life.of("steered_again");
    let caps = again.strip_prefix("active 0 ").expect("it runs");
    assert_ne!(caps, life.of("found"));
    assert_eq!(life.of("kept_configuration"), "0");
}

fn goes(life: &Life) {
    // Without the package's own care the caps would have stayed.
    assert_ne!(life.of("crashed_caps"), life.of("found"));
    assert_eq!(life.of("remove"), "0");
    assert_eq!(life.of("removed_caps"), life.of("found"));
    assert_eq!(life.of("restored"), "true");
    let kept = life.of("after_remove");
    assert!(kept.contains("/etc/litd/litd.toml") || kept.contains("/etc/litd "));
    assert!(kept.contains("/var/lib/litd "), "{kept}");
    assert!(!kept.contains("/usr/"), "{kept}");
    assert_eq!(life.of("last_purge"), "0");
    assert_eq!(life.of("after_last_purge"), life.of("before"));
}
