//! The .rpm: what is in it and asks for, and its life in a booted system.

use std::process::Command;

use super::{PROGRAMS, can_be_built, package};
use crate::booted::Life;
use crate::built::{built, repository};
use crate::tools::have;

fn query(package: &std::path::Path, what: &[&str]) -> Vec<String> {
    let output = Command::new("rpm")
        .arg("--query")
        .args(what)
        .arg("--package")
        .arg(package)
        .output()
        .expect("rpm runs");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().map(str::to_owned).collect()
}

#[test]
fn it_has_the_files_and_asks_for_no_newer_c_library_than_rhel_9_has() {
    if !have(&["rpmbuild", "rpm"]) || !can_be_built() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let package = package("rpm", directory.path(), &built(PROGRAMS), "1.2.3");
    let files = query(&package, &["--list"]);
    for file in [
        "/usr/sbin/litd",
        "/usr/bin/litctl",
        "/usr/bin/litd-planner",
        "/usr/lib/systemd/system/litd.service",
        "/usr/share/man/man5/litd.toml.5.gz",
        "/usr/share/zsh/site-functions/_litctl",
        "/usr/share/licenses/litd/LICENSE",
        "/usr/share/doc/litd/docs/operations.md",
        "/etc/litd/litd.toml",
    ] {
        assert!(files.iter().any(|it| it == file), "{file}: {files:#?}");
    }
    // Folders of the system's stay when it goes.
    for folder in ["/usr", "/usr/bin", "/etc", "/usr/share/man/man8"] {
        assert!(!files.iter().any(|it| it == folder), "{folder}");
    }
    assert_eq!(query(&package, &["--configfiles"]), ["/etc/litd/litd.toml"]);
    let wants = query(&package, &["--requires"]);
    let newest = wants.iter().filter_map(|it| {
        let (_, version) = it.split_once("(GLIBC_2.")?;
        version.split([')', '.']).next()?.parse::<u32>().ok()
    });
    assert_eq!(newest.max(), Some(34), "{wants:#?}");
}

#[test]
fn a_machine_is_left_as_it_was_found() {
    if !have(&["rpmbuild", "rpm"]) || !can_be_built() {
        return;
    }
    let programs = built(&["litctl", "litd-planner", "litd-rig-node"]);
    let directory = tempfile::tempdir().expect("a directory");
    let [old, new] =
        ["0.0.1", "0.0.2"].map(|version| package("rpm", directory.path(), &programs, version));
    let Some(life) = Life::with(
        "package/rpm.sh",
        &[
            (old, "/opt/litd-test/old.rpm"),
            (new, "/opt/litd-test/new.rpm"),
            (
                repository().join("tests/whole/systemd/rig.sh"),
                "/opt/litd-test/hardware.sh",
            ),
            (
                programs.join("litd-rig-node"),
                "/opt/litd-test/litd-rig-node",
            ),
        ],
    ) else {
        return;
    };
    for step in ["install", "erase", "upgrade", "downgrade", "remove"] {
        assert_eq!(life.of(step), "0", "{step}");
    }
    assert_eq!(life.of("groups"), "litd litd-admin litd-ingest");
    assert_eq!(life.of("after_erase"), life.of("before"));
    let found = life.of("found");
    assert_ne!(life.of("steered"), found);
    assert_eq!(life.of("upgraded_to"), "0.0.2");
    assert_eq!(life.of("new_process"), "0", "the old daemon still runs");
    for moment in ["steered_again", "steered_after_downgrade"] {
        let caps = life.of(moment).strip_prefix("active ");
        assert_ne!(caps.expect("it runs"), found);
    }
    assert_eq!(life.of("kept_configuration"), "0");
    // Without the package's own care the caps would have stayed.
    assert_ne!(life.of("crashed_caps"), found);
    assert_eq!(life.of("removed_caps"), found);
    assert_eq!(life.of("restored"), "true");
    assert_eq!(life.of("violations"), "0");
}
