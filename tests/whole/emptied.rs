//! Somebody empties `/run/litd` while litd runs.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use litd_api::EventKind;

use crate::control::ask;
use crate::stand::{GPUS, Stand, quick, wait_for};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode()
}

#[test]
fn sockets_and_baseline_that_are_removed_are_made_again() {
    let place = tempfile::tempdir().unwrap();
    let baseline = place.path().join("run/baseline");
    fs::create_dir(baseline.parent().unwrap()).unwrap();
    let told = format!("state.baseline = \"{}\"\n", baseline.display());
    let mut stand = Stand::real(&(quick("observe") + &told));
    let (control, ingest) = (stand.rig.layout().control(), stand.rig.layout().ingest());
    let mut first = stand.job("first", 0..GPUS / 2);
    wait_for("a baseline", || baseline.exists());
    let before = fs::read_to_string(&baseline).unwrap();
    let modes = [&control, &ingest].map(|it| mode(it));
    fs::remove_file(&control).unwrap();
    fs::remove_file(&ingest).unwrap();
    fs::remove_dir_all(baseline.parent().unwrap()).unwrap();
    let reached = || ask(&control, "GET", "/v1/status", "").is_ok();
    wait_for("a control socket", reached);
    wait_for("an ingest socket", || ingest.exists());
    wait_for("the baseline again", || baseline.exists());
    assert_eq!([&control, &ingest].map(|it| mode(it)), modes);
    assert_eq!(fs::read_to_string(&baseline).unwrap(), before);
    // Who was connected is, and others can be.
    first.run_iteration();
    let _second = stand.job("second", GPUS / 2..GPUS);
    let jobs: Vec<String> = stand.status().jobs.into_iter().map(|it| it.name).collect();
    assert_eq!(jobs, ["first", "second"]);
    let told = stand.events(EventKind::Fault);
    let removed = told.iter().filter(|it| it.contains("is made again"));
    assert_eq!(removed.count(), 2, "{told:?}");
    stand.terminate();
    assert!(!control.exists() && !ingest.exists());
}

/// A socket that somebody else listens on at litd's path stays his, also when litd ends.
#[test]
fn a_socket_of_somebody_else_in_the_place_of_litds_is_left_alone() {
    let mut stand = Stand::real(&quick("observe"));
    let control = stand.rig.layout().control();
    fs::remove_file(&control).unwrap();
    let other = UnixListener::bind(&control).unwrap();
    let said = "nobody reaches litd there until";
    wait_for("a warning", || stand.said().contains(said));
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(stand.said().matches(said).count(), 1, "{}", stand.said());
    drop(other);
    wait_for("litd's own socket", || {
        ask(&control, "GET", "/v1/status", "").is_ok()
    });
    fs::remove_file(&control).unwrap();
    let _other = UnixListener::bind(&control).unwrap();
    stand.terminate();
    assert!(control.exists());
}
