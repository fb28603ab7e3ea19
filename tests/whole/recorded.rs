//! litd on a node that `litctl doctor --record` has recorded elsewhere.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use litd_recording::{Entry, Recording, Roots};
use litd_rig::{Daemon, Hardware, default_config};
use litd_rig_sysfs::{Board, Cpus, Mount, obstacle};
use litd_sim::Scenario;
use serde_json::Value;

use crate::stand::{LITD, wait_for};

/// The caps of a mounted node, by their files, in microwatts.
fn caps(mount: &Mount, recording: &Recording) -> BTreeMap<String, u64> {
    let files = recording.files.iter().filter(|(path, entry)| {
        let is_cap = path.ends_with("/power1_cap") || path.ends_with("_power_limit_uw");
        is_cap && matches!(entry, Entry::File { .. })
    });
    let root = mount.sys();
    let read = |path: &String| {
        let text = fs::read_to_string(root.join(path.strip_prefix("sys/").unwrap())).unwrap();
        (path.clone(), text.trim().parse().unwrap())
    };
    files.map(|(path, _)| read(path)).collect()
}

/// A budget is enforced there, and the caps that were recorded come back at the stop.
#[test]
fn a_budget_is_enforced_and_undone_on_a_recorded_node() {
    if let Some(why) = obstacle() {
        eprintln!("SKIPPED: {why}");
        return;
    }
    let hardware = Hardware::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
    let board = Board {
        cpus: Cpus::Powercap,
        ..Board::default()
    };
    let original = Mount::start(hardware.shared(), board).unwrap();
    let root = tempfile::tempdir().unwrap();
    let roots = Roots {
        sys: &original.sys(),
        dev: &original.dev(),
        proc: root.path(),
    };
    let recording = litd_recording::take(roots, Duration::from_secs(20), &|_| None, Value::Null);
    drop(original);

    let node = Mount::recorded(&recording).unwrap();
    let found = caps(&node, &recording);
    let extra = format!(
        "mode = \"observe\"\n[caps]\nbudget = 5000.0\n{}proc = \"{}\"\nnvml_library = \"/none.so\"\n",
        node.config(),
        node.proc().display(),
    );
    let config = default_config(root.path(), &extra);
    let daemon = Daemon::spawn(Path::new(LITD), root.path(), &config, None).unwrap();
    let sum = || -> u64 {
        let caps = caps(&node, &recording);
        let gpus = caps
            .iter()
            .filter(|(path, _)| path.ends_with("/power1_cap"));
        gpus.map(|(_, cap)| cap).sum()
    };
    wait_for("the budget", || sum() <= 5_000_000_000);
    assert!(daemon.terminate().unwrap().success());
    assert_eq!(caps(&node, &recording), found);
}
