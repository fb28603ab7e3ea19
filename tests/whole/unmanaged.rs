//! GPUs that are on the bus and not litd's: their driver has come up after litd had looked for devices. litd starts
//! itself anew for them, in place.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use litd_api::{EventKind, Events, Status};
use litd_rig::{Daemon, Job, Layout, Rig, default_config, install_nvidia_bus};
use litd_sim::Scenario;
use litd_units::Watts;
use serde::de::DeserializeOwned;

use crate::control::ask;
use crate::stand::{GPUS, LITD, SOON, Stand, quick, wait_for};

const HIGHEST: u64 = 750_000_000;

/// Longer than litd takes to start anew for a GPU whose driver comes up.
const LONG_ENOUGH: Duration = Duration::from_secs(20);

/// An MI300X in plain files, as amdgpu shows it.
fn card(sys: &Path, number: usize) {
    let address = format!("0000:{:02x}:00.0", number + 1);
    let device = sys.join("devices").join(&address);
    let hwmon = device.join("hwmon/hwmon3");
    let driver = sys.join("bus/pci/drivers/amdgpu");
    for directory in [&hwmon, &driver] {
        fs::create_dir_all(directory).unwrap();
    }
    symlink(&driver, device.join("driver")).unwrap();
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

/// A node of plain files without a GPU.
struct Files {
    root: tempfile::TempDir,
    config: String,
}

impl Files {
    fn new(keys: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        for name in ["sys", "dev", "proc"] {
            fs::create_dir_all(root.path().join(name)).unwrap();
        }
        let at = root.path().display();
        let extra = format!(
            "{keys}\n[hardware]\nsys = \"{at}/sys\"\ndev = \"{at}/dev\"\nproc = \"{at}/proc\"\ncpus = false\n\
             nvml_library = \"{at}/no.so\"\n"
        );
        let config = default_config(root.path(), &extra);
        Self { root, config }
    }

    fn sys(&self) -> PathBuf {
        self.root.path().join("sys")
    }

    fn start(&self) -> Daemon {
        Daemon::spawn(Path::new(LITD), self.root.path(), &self.config, None).unwrap()
    }

    fn status(&self) -> Status {
        get(&Layout::new(self.root.path()), "/v1/status")
    }

    /// Waits until so many devices are litd's: its sockets are away for a moment when it starts anew.
    fn wait_for_devices(&self, count: usize) {
        let control = Layout::new(self.root.path()).control();
        wait_for("litd manages the GPUs", || {
            let answer = ask(&control, "GET", "/v1/status", "");
            let status = answer.and_then(|(_, body)| Ok(serde_json::from_str::<Status>(&body)?));
            status.is_ok_and(|it| it.devices.len() == count)
        });
    }
}

/// What litd logs before it starts anew, and how often it did.
fn starts(daemon: &Daemon) -> usize {
    daemon
        .stderr()
        .matches("starts itself anew to take")
        .count()
}

#[test]
fn a_gpu_that_comes_after_the_start_counts_within_the_budget_and_becomes_litds() {
    let files = Files::new("caps.budget = 1400.0");
    let sys = files.sys();
    for number in 0..2 {
        card(&sys, number);
    }
    let daemon = files.start();
    wait_for("the budget is kept", || sum(&sys, 2) <= 1400.0);
    card(&sys, 2);
    // What it may hold is taken from the others.
    wait_for("the others make room", || sum(&sys, 3) <= 1400.0);
    assert_eq!(watts(&sys, 2), 750.0);
    assert_eq!(files.status().devices.len(), 2);
    let events: Events = get(&Layout::new(files.root.path()), "/v1/events");
    let told = events
        .events
        .iter()
        .find(|it| it.kind == EventKind::Fault && it.device.as_deref() == Some("0000:03:00.0"));
    let told = told.unwrap_or_else(|| panic!("{}", daemon.stderr()));
    assert!(told.text.contains("counts with 750 W"), "{}", told.text);
    // litd takes it in by itself.
    files.wait_for_devices(3);
    wait_for("the budget is kept by three", || {
        sum(&sys, 3) <= 1400.0 && watts(&sys, 2) < 700.0 && watts(&sys, 0) > 400.0
    });
    for device in files.status().devices {
        assert_eq!(device.found.map(|it| it.0), Some(750.0), "{}", device.name);
    }
    assert_eq!(starts(&daemon), 1, "{}", daemon.stderr());
    assert!(daemon.terminate().unwrap().success());
    assert_eq!(sum(&sys, 3), 2250.0);
}

#[test]
fn a_driver_that_comes_up_after_litd_leaves_no_budget_unkept() {
    let files = Files::new("caps.budget = 1200.0");
    let sys = files.sys();
    let mut daemon = files.start();
    let ready = |daemon: &Daemon| {
        daemon
            .notifications()
            .iter()
            .filter(|it| *it == "READY=1")
            .count()
    };
    assert_eq!((files.status().devices.len(), ready(&daemon)), (0, 1));
    for number in 0..4 {
        card(&sys, number);
    }
    wait_for("the budget is kept", || sum(&sys, 4) <= 1200.0);
    // The same process, of which systemd knows that it works.
    assert_eq!(daemon.ended(), None);
    wait_for("systemd is told", || ready(&daemon) == 2);
    let name = fs::read_to_string(format!("/proc/{}/comm", daemon.pid())).unwrap();
    assert_eq!(name.trim(), "litd");
    files.wait_for_devices(4);
    assert_eq!(files.status().node.unmanaged, Vec::<String>::new());
    // A crash after that is undone as any other.
    daemon.kill();
    let daemon = files.start();
    wait_for("the budget is kept once more", || sum(&sys, 4) <= 1200.0);
    assert!(daemon.terminate().unwrap().success());
    assert_eq!(sum(&sys, 4), 3000.0);
}

/// An NVIDIA GPU whose driver has it, without the library to ask the driver through.
fn without_library(sys: &Path) {
    let address = "0000:45:00.0";
    let device = sys.join("bus/pci/devices").join(address);
    let driver = sys.join("bus/pci/drivers/nvidia");
    for directory in [&device, &driver] {
        fs::create_dir_all(directory).unwrap();
    }
    for (name, text) in [
        ("vendor", "0x10de"),
        ("device", "0x2330"),
        ("class", "0x030200"),
    ] {
        fs::write(device.join(name), format!("{text}\n")).unwrap();
    }
    symlink(&driver, device.join("driver")).unwrap();
}

#[test]
fn a_gpu_that_litd_could_not_use_at_its_start_is_no_reason_to_start_anew() {
    let files = Files::new("caps.budget = 1400.0");
    let sys = files.sys();
    card(&sys, 0);
    without_library(&sys);
    let daemon = files.start();
    wait_for("room is made for it", || watts(&sys, 0) <= 650.0);
    thread::sleep(LONG_ENOUGH);
    assert_eq!(starts(&daemon), 0, "{}", daemon.stderr());
    let node = files.status().node;
    assert_eq!(node.unmanaged, ["0000:45:00.0"]);
    let told = ", 1 GPU is unmanaged (not found at start: `litctl events`)";
    assert!(node.summary.contains(told), "{}", node.summary);
    assert!(daemon.terminate().unwrap().success());
}

#[test]
fn litd_starts_anew_once_it_is_no_longer_off_and_with_a_file_that_it_can_start_with() {
    let files = Files::new("caps.budget = 1400.0");
    let sys = files.sys();
    let switch = files.root.path().join("off");
    let config = format!(
        "rollout.kill_switches = [\"{}\"]\n{}",
        switch.display(),
        files.config
    );
    let files = Files { config, ..files };
    fs::write(&switch, "").unwrap();
    let daemon = files.start();
    card(&sys, 0);
    card(&sys, 1);
    thread::sleep(LONG_ENOUGH);
    assert_eq!(starts(&daemon), 0, "{}", daemon.stderr());
    let file = Layout::new(files.root.path()).config();
    fs::write(&file, "nonsense").unwrap();
    fs::remove_file(&switch).unwrap();
    wait_for("the file is refused", || {
        daemon
            .stderr()
            .contains("could not start with its configuration")
    });
    assert_eq!(starts(&daemon), 0, "{}", daemon.stderr());
    assert!(daemon.terminate().unwrap().success());
    assert_eq!(sum(&sys, 2), 1500.0);
}

/// In a container into which a GPU operator puts the driver's libraries later, or after an upgrade of them.
#[test]
fn gpus_whose_library_comes_after_litd_become_litds() {
    let rig = Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
    let (library, sys) = (
        rig.install_nvml().unwrap(),
        rig.install_nvidia_bus().unwrap(),
    );
    let config = format!(
        "{}caps.budget = 4800.0\n[hardware]\namd = \"off\"\ncpus = false\nsys = \"{}\"\nnvml_library = \"{}\"\n",
        quick("observe"),
        sys.display(),
        library.display()
    );
    let elsewhere = library.with_extension("elsewhere");
    fs::rename(&library, &elsewhere).unwrap();
    let mut stand = Stand::on(rig, &config, false);
    stand.start();
    wait_for("the GPUs are told of", || {
        stand.status().node.unmanaged.len() == GPUS
    });
    assert!(stand.sum() > Watts(4800.0));
    fs::rename(&elsewhere, &library).unwrap();
    wait_for("the budget is kept", || stand.sum() <= Watts(4800.0));
    assert_eq!(starts(stand.daemon()), 1, "{}", stand.said());
    stand.stop();
}

/// CPU sockets whose driver is loaded by hand while litd runs.
#[test]
fn cpu_sockets_whose_driver_comes_after_litd_become_litds() {
    let files = Files::new("");
    let config = files.config.replace("cpus = false", "cpus = true");
    let files = Files { config, ..files };
    let mut daemon = files.start();
    assert!(files.status().devices.is_empty());
    let zone = files.sys().join("class/powercap/intel-rapl:0");
    fs::create_dir_all(&zone).unwrap();
    for (name, value) in [
        ("name", "package-0"),
        ("constraint_0_name", "long_term"),
        ("constraint_0_power_limit_uw", "350000000"),
        ("constraint_0_max_power_uw", "350000000"),
        ("constraint_0_time_window_us", "999424"),
        ("energy_uj", "1000000"),
        ("max_energy_range_uj", "262143328850"),
        ("enabled", "1"),
    ] {
        fs::write(zone.join(name), format!("{value}\n")).unwrap();
    }
    files.wait_for_devices(1);
    assert_eq!(files.status().devices[0].name, "cpu0");
    assert_eq!((daemon.ended(), starts(&daemon)), (None, 1));
    assert!(daemon.terminate().unwrap().success());
}

/// A job that is steered connects again, and a GPU that litd can't use after its new start either stays unmanaged.
#[test]
fn a_job_goes_on_while_litd_starts_anew_and_that_happens_once() {
    const NINTH: &str = "0000:F5:00.0";
    let rig = Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
    let (library, sys) = (
        rig.install_nvml().unwrap(),
        rig.install_nvidia_bus().unwrap(),
    );
    let config = format!(
        "{}\n[hardware]\namd = \"off\"\ncpus = false\nsys = \"{}\"\nnvml_library = \"{}\"\n",
        quick("gpu-realloc"),
        sys.display(),
        library.display()
    );
    let mut stand = Stand::on(rig, &config, false);
    stand.start();
    let mut job = stand.train();
    let adjusts = |stand: &mut Stand, job: &mut Job, what: &str| {
        let before = stand.rig.ledger().len();
        let deadline = Instant::now() + SOON;
        while stand.rig.ledger().len() == before {
            assert!(Instant::now() < deadline, "{what}: {}", stand.said());
            stand.play(job, 1);
        }
    };
    adjusts(&mut stand, &mut job, "caps are adjusted");
    install_nvidia_bus(&stand.rig.layout().directory, [NINTH.to_owned()]).unwrap();
    let deadline = Instant::now() + SOON;
    while starts(stand.daemon()) == 0 {
        assert!(Instant::now() < deadline, "{}", stand.said());
        stand.play(&mut job, 1);
    }
    adjusts(&mut stand, &mut job, "caps are adjusted after it");
    let deadline = Instant::now() + LONG_ENOUGH;
    while Instant::now() < deadline {
        stand.play(&mut job, 1);
    }
    assert_eq!(starts(stand.daemon()), 1, "{}", stand.said());
    assert_eq!(stand.status().node.unmanaged, [NINTH]);
    stand.assert_rules();
    stand.stop();
}

#[test]
fn litd_does_not_start_anew_while_what_was_set_is_not_on_disk() {
    let files = Files::new("");
    let sys = files.sys();
    card(&sys, 0);
    let daemon = files.start();
    files.wait_for_devices(1);
    let layout = Layout::new(files.root.path());
    // Nothing can be put in place of the file: what it is written to first can't be made.
    let obstacle = layout.state().join("condition.new");
    wait_for("litd is not just writing it", || {
        fs::create_dir(&obstacle).is_ok()
    });
    let command = r#"{"command": "begin_job", "job": "slurm-7", "gpus": ["0"], "opt_out": true}"#;
    let (_, said) = ask(&layout.control(), "POST", "/v1/command", command).unwrap();
    assert!(said.contains("can't save that"), "{said}");
    let events = || get::<Events>(&layout, "/v1/events").events;
    let lost = "a restart of litd would lose opt-outs";
    assert!(
        events()
            .iter()
            .any(|it| it.warning && it.text.contains(lost)),
        "{}",
        daemon.stderr()
    );
    assert!(files.status().node.summary.contains(lost));
    card(&sys, 1);
    thread::sleep(LONG_ENOUGH);
    assert_eq!(starts(&daemon), 0, "{}", daemon.stderr());
    // Once there is room it starts anew, and the job is still opted out.
    fs::remove_dir(&obstacle).unwrap();
    files.wait_for_devices(2);
    assert!(files.status().devices[0].opted_out);
    assert!(!files.status().node.summary.contains(lost));
    assert!(daemon.terminate().unwrap().success());
}

/// What litd says when it does not start itself anew.
const PUT_OFF: &str = "litd does not start itself anew to take these devices in";

/// A node of two GPUs that keeps a budget, and a third whose driver comes up after `change`.
fn comes_after(change: impl FnOnce(&Files, &Path)) -> (Files, Daemon) {
    let files = Files::new("caps.budget = 1000.0");
    let sys = files.sys();
    card(&sys, 0);
    card(&sys, 1);
    let daemon = files.start();
    wait_for("the budget is kept", || sum(&sys, 2) <= 1000.0);
    change(&files, &Layout::new(files.root.path()).config());
    card(&sys, 2);
    wait_for("litd says why it does not", || {
        daemon.stderr().contains(PUT_OFF)
    });
    thread::sleep(LONG_ENOUGH);
    // What the third may hold is taken from the others, as far as their floors allow.
    assert_eq!(starts(&daemon), 0, "{}", daemon.stderr());
    assert_eq!(daemon.stderr().matches(PUT_OFF).count(), 1);
    assert!(sum(&sys, 2) <= 1000.0);
    (files, daemon)
}

/// A change of the file that nobody has reloaded is not taken up, and the start comes after the reload.
#[test]
fn a_file_that_nobody_has_reloaded_does_not_come_into_force_by_a_driver_that_comes_up() {
    let (files, daemon) = comes_after(|files, file| {
        let text = fs::read_to_string(file).unwrap();
        assert!(text.contains("budget = 1000.0"), "{text}");
        let text = text.replace("budget = 1000.0", "budget = 2000.0");
        fs::write(file, text).unwrap();
        assert!(files.status().node.unmanaged.is_empty());
    });
    assert!(daemon.stderr().contains("systemctl reload litd"));
    let text = fs::read_to_string(Layout::new(files.root.path()).config()).unwrap();
    daemon.reload(&text).unwrap();
    files.wait_for_devices(3);
    assert!(daemon.terminate().unwrap().success());
}

/// A reload has warned of a section that takes effect at the next start, with which litd could not start.
#[test]
fn a_section_that_takes_effect_at_the_next_start_does_not_end_litd_by_a_driver_that_comes_up() {
    let (files, daemon) = comes_after(|files, file| {
        let text = fs::read_to_string(file).unwrap();
        let socket = Layout::new(files.root.path()).ingest();
        let socket = socket.display().to_string();
        assert!(text.contains(&socket), "{text}");
        fs::write(file, text.replace(&socket, "/nonexistent/ingest.sock")).unwrap();
    });
    let text = fs::read_to_string(Layout::new(files.root.path()).config()).unwrap();
    daemon.reload(&text).unwrap();
    wait_for("the section is named", || {
        daemon.stderr().contains("other values in [ingest]")
    });
    assert_eq!(starts(&daemon), 0, "{}", daemon.stderr());
    assert!(daemon.terminate().unwrap().success());
    assert_eq!(sum(&files.sys(), 3), 2250.0);
}

/// The link of a GPU that was not there leads to a journal that is gone: a start with that GPU is refused.
#[test]
fn a_lost_journal_of_a_gpu_that_comes_up_does_not_end_litd() {
    let (files, daemon) = comes_after(|files, _| {
        let devices = Layout::new(files.root.path()).locks();
        symlink("/nonexistent/state", devices.join("0000:03:00.0.journal")).unwrap();
        fs::write(devices.join("0000:03:00.0.journal-id"), "x").unwrap();
    });
    assert!(daemon.stderr().contains("/nonexistent/state"));
    let devices = Layout::new(files.root.path()).locks();
    fs::remove_file(devices.join("0000:03:00.0.journal")).unwrap();
    fs::remove_file(devices.join("0000:03:00.0.journal-id")).unwrap();
    files.wait_for_devices(3);
    assert!(daemon.terminate().unwrap().success());
}

/// With the GPU that came up a budget is below the floors of all: litd goes on, and so does one after a crash of it. A
/// start that somebody asks for is refused as ever.
#[test]
fn a_budget_below_the_floors_of_gpus_that_came_up_is_tolerated_after_a_crash_too() {
    let files = Files::new("caps.budget = 500.0");
    let sys = files.sys();
    card(&sys, 0);
    card(&sys, 1);
    let mut daemon = files.start();
    wait_for("the budget is kept", || sum(&sys, 2) <= 500.0);
    card(&sys, 2);
    files.wait_for_devices(3);
    wait_for("caps are at their floors", || sum(&sys, 3) <= 675.0);
    for _ in 0..2 {
        daemon.kill();
        daemon = files.start();
        wait_for("caps are at their floors", || sum(&sys, 3) <= 675.0);
    }
    assert!(daemon.terminate().unwrap().success());
    assert!(!files.root.path().join("state/below-floors").exists());
    assert_eq!(sum(&sys, 3), 2250.0);
}
