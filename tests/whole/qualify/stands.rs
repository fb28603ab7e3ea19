//! Every back end over its own stand-in: what it is set to and reads is not litd's own simulation.
//!
//! `LITD_QUALIFIED=write` keeps the reports in tests/qualified/, from which docs/qualified.md is made.

use std::fs;
use std::path::Path;

use litd_qualify::report::{Outcome, Report};
use litd_rig::Rig;
use litd_rig_sysfs::{Board, Cpus, MI300X, Mount, obstacle};
use litd_sim::Scenario;

use super::{assert_as_found, qualify};
use crate::stand::{GPUS, Stand};

/// What is measured follows a cap after 250 ms, or later on a machine that has other things to do: all of it is honest
/// here, and waited for.
const PATIENT: &str = "caps.follow_seconds = 10\ncaps.answer_seconds = 10\n";

fn rig() -> Rig {
    let rig = Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
    for gpu in 0..GPUS {
        rig.hardware().set_holders(gpu, Vec::new());
    }
    rig
}

/// A run with this hardware alone, all of whose devices are served by these back ends.
fn assert_qualified(rig: Rig, hardware: &str, file: &str, back_ends: &[(&str, usize)]) {
    let stand = Stand::on(rig, &format!("{PATIENT}{hardware}"), false);
    fs::write(stand.rig.layout().config(), stand.config()).unwrap();
    let report = qualify(&stand, &["--watch", "0.2"]);
    assert_eq!(report.outcome, Outcome::Qualified, "{report:#?}");
    for &(back_end, devices) in back_ends {
        let of_it = report
            .devices
            .iter()
            .filter(|it| it.part.backend == back_end);
        assert_eq!(of_it.count(), devices, "{back_end}: {report:#?}");
    }
    assert!(
        report.devices.iter().all(|it| it.is_qualified()),
        "{report:#?}"
    );
    assert_as_found(&stand, &report);
    keep(report, file);
}

/// Keeps a report of a stand-in, which nobody is to take for one of hardware. Times and what is this machine's are
/// left out.
fn keep(mut report: Report, file: &str) {
    if std::env::var("LITD_QUALIFIED").as_deref() != Ok("write") {
        return;
    }
    report.simulated = true;
    let kernel = std::mem::replace(&mut report.kernel, "none".to_owned());
    report.board = None;
    for device in &mut report.devices {
        device.part.serial_hash = None;
        device.part.driver = device.part.driver.replace(&kernel, "none");
    }
    let text = serde_json::to_string_pretty(&report).unwrap() + "\n";
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/qualified");
    fs::write(folder.join(file), text).unwrap();
}

#[test]
fn nvml() {
    let rig = rig();
    let library = rig.install_nvml().unwrap();
    let hardware = format!(
        "[hardware]\namd = \"off\"\ncpus = false\nnvml_library = \"{}\"\n",
        library.display()
    );
    assert_qualified(rig, &hardware, "stand-in-nvml.json", &[("nvml", GPUS)]);
}

fn sysfs(cpus: Cpus, file: &str, back_ends: &[(&str, usize)]) {
    if let Some(why) = obstacle() {
        eprintln!("SKIPPED: {why}");
        return;
    }
    let rig = rig();
    let board = Board {
        model: MI300X,
        cpus,
        ..Board::default()
    };
    let mount = Mount::start(rig.shared_hardware(), board).unwrap();
    let hardware = format!("{}nvidia = \"off\"\n", mount.config());
    assert_qualified(rig, &hardware, file, back_ends);
}

#[test]
fn amdgpu_and_powercap() {
    let served = [("amdgpu", GPUS), ("powercap", 2)];
    sysfs(Cpus::Powercap, "stand-in-amdgpu-powercap.json", &served);
}

#[test]
fn amdgpu_and_hsmp() {
    let served = [("amdgpu", GPUS), ("hsmp", 2)];
    sysfs(Cpus::HsmpHwmon, "stand-in-amdgpu-hsmp-hwmon.json", &served);
}

#[test]
fn hsmp_by_its_device() {
    let served = [("hsmp", 2)];
    sysfs(
        Cpus::HsmpDevice,
        "stand-in-amdgpu-hsmp-device.json",
        &served,
    );
}
