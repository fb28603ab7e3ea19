//! GPUs that are on the bus and not litd's: their driver has come up after litd had looked for devices.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use litd_api::{EventKind, Events, Status};
use litd_rig::{Daemon, Layout, default_config};
use serde::de::DeserializeOwned;

use crate::control::ask;
use crate::stand::{LITD, wait_for};

const HIGHEST: u64 = 750_000_000;

/// An MI300X in plain files, as amdgpu shows it.
fn card(sys: &Path, number: usize) {
    let address = format!("0000:{:02x}:00.0", number + 1);
    let device = sys.join("devices").join(&address);
    let hwmon = device.join("hwmon/hwmon3");
    fs::create_dir_all(&hwmon).unwrap();
    let unique_id = format!("{:x}", 0x1000 + number);
    for (name, text) in [
        ("vendor", "0x1002"),
        ("device", "0x74a1"),
        ("class", "0x120000"),
        ("unique_id", &unique_id),
    ] {
        fs::write(device.join(name), format!("{text}\n")).unwrap();
    }
    fs::write(hwmon.join("name"), "amdgpu\n").unwrap();
    for (name, value) in [
        ("power1_cap", HIGHEST),
        ("power1_cap_min", 0),
        ("power1_cap_max", HIGHEST),
        ("power1_cap_default", HIGHEST),
        ("power1_input", 100_000_000),
    ] {
        fs::write(hwmon.join(name), format!("{value}\n")).unwrap();
    }
    let card = sys.join(format!("class/drm/card{number}"));
    fs::create_dir_all(&card).unwrap();
    symlink(&device, card.join("device")).unwrap();
    let bus = sys.join("bus/pci/devices");
    fs::create_dir_all(&bus).unwrap();
    symlink(&device, bus.join(&address)).unwrap();
}

fn watts(sys: &Path, number: usize) -> f64 {
    let cap = sys.join(format!(
        "class/drm/card{number}/device/hwmon/hwmon3/power1_cap"
    ));
    let text = fs::read_to_string(cap).unwrap();
    // A write to a plain file empties it first.
    text.trim().parse::<f64>().unwrap_or(HIGHEST as f64) / 1e6
}

fn sum(sys: &Path, cards: usize) -> f64 {
    (0..cards).map(|number| watts(sys, number)).sum()
}

fn get<T: DeserializeOwned>(layout: &Layout, path: &str) -> T {
    let (_, body) = ask(&layout.control(), "GET", path, "").unwrap();
    serde_json::from_str(&body).unwrap()
}

#[test]
fn a_gpu_that_comes_after_the_start_counts_within_the_budget_and_is_told() {
    let root = tempfile::tempdir().unwrap();
    let sys = root.path().join("sys");
    for number in 0..2 {
        card(&sys, number);
    }
    for name in ["dev", "proc"] {
        fs::create_dir_all(root.path().join(name)).unwrap();
    }
    let at = root.path().display();
    let extra = format!(
        "caps.budget = 1400.0\n[hardware]\nsys = \"{at}/sys\"\ndev = \"{at}/dev\"\nproc = \"{at}/proc\"\n\
         cpus = false\nnvml_library = \"{at}/no.so\"\n"
    );
    let config = default_config(root.path(), &extra);
    let daemon = Daemon::spawn(Path::new(LITD), root.path(), &config, None).unwrap();
    wait_for("the budget is kept", || sum(&sys, 2) <= 1400.0);
    card(&sys, 2);
    // What it may hold is taken from the others.
    wait_for("the others make room", || sum(&sys, 3) <= 1400.0);
    assert_eq!(watts(&sys, 2), 750.0);
    let layout = Layout::new(root.path());
    let status: Status = get(&layout, "/v1/status");
    assert_eq!(status.devices.len(), 2);
    let events: Events = get(&layout, "/v1/events");
    let told = events
        .events
        .iter()
        .find(|it| it.kind == EventKind::Fault && it.device.as_deref() == Some("0000:03:00.0"));
    let told = told.unwrap_or_else(|| panic!("{}", daemon.stderr()));
    assert!(told.text.contains("counts with 750 W"), "{}", told.text);
    // A start takes it in.
    daemon.terminate().unwrap();
    assert_eq!(sum(&sys, 3), 2250.0);
    let daemon = Daemon::spawn(Path::new(LITD), root.path(), &config, None).unwrap();
    wait_for("the budget is kept by three", || {
        sum(&sys, 3) <= 1400.0 && watts(&sys, 2) < 700.0
    });
    assert_eq!(get::<Status>(&layout, "/v1/status").devices.len(), 3);
    daemon.terminate().unwrap();
}
