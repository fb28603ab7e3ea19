//! `litctl doctor --record`, and `litctl doctor` on recorded nodes. Those of tests/data/nodes are our own files after
//! facts that others have reported in public; each has its sources in `report.about`.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use litd_recording::{Content, Entry, Recording};
use litd_rig::{Fault, Hardware};
use litd_rig_sysfs::{Board, Cpus, Mount, obstacle};
use litd_sim::Scenario;
use serde_json::Value;

use crate::LITCTL;

/// The command with a configuration whose devices are those of `mount`.
fn command(mount: &Mount, proc: &Path, directory: &Path, arguments: &[&str]) -> Command {
    let none = directory.join("none.so");
    let config = directory.join("litd.toml");
    let text = format!(
        "{}proc = \"{}\"\nnvml_library = \"{none}\"\nrocm_smi_library = \"{none}\"\n[state]\ndirectory = \"{}\"\n",
        mount.config(),
        proc.display(),
        directory.join("state").display(),
        none = none.display(),
    );
    fs::write(&config, text).unwrap();
    let mut command = Command::new(LITCTL);
    command
        .args(["doctor", "--config"])
        .arg(&config)
        .arg("--socket")
        .arg(directory.join("nobody.sock"))
        .args(arguments);
    command
}

fn doctor(mount: &Mount, proc: &Path, directory: &Path, arguments: &[&str]) -> Output {
    command(mount, proc, directory, arguments).output().unwrap()
}

fn report(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Whether nothing can be mounted here.
fn is_skipped() -> bool {
    let obstacle = obstacle();
    if let Some(why) = &obstacle {
        eprintln!("SKIPPED: {why}");
    }
    obstacle.is_some()
}

/// The report on a node of tests/data/nodes.
fn of_node(name: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/nodes");
    let text = fs::read(path.join(format!("{name}.json"))).unwrap();
    let recording = Recording::parse(&text).unwrap();
    assert!(recording.report["about"].is_string());
    let mount = Mount::recorded(&recording).unwrap();
    let directory = tempfile::tempdir().unwrap();
    report(&doctor(
        &mount,
        &mount.proc(),
        directory.path(),
        &["--json"],
    ))
}

/// The texts of a report's notices, one a line.
fn notices(report: &Value) -> String {
    let notices = report["notices"].as_array().unwrap().iter();
    let texts = notices.map(|it| format!("{} {}\n", it["subject"], it["text"]));
    texts.collect()
}

#[test]
fn a_played_recording_gives_the_report_of_the_node_itself() {
    if is_skipped() {
        return;
    }
    let scenario = Scenario::builtin("default").unwrap();
    let hardware = Hardware::new(&scenario, 1).unwrap().shared();
    let board = Board {
        cpus: Cpus::Powercap,
        ..Board::default()
    };
    let mount = Mount::start(hardware, board).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let proc = directory.path().join("proc");
    fs::create_dir_all(proc.join("sys/kernel")).unwrap();
    fs::write(proc.join("sys/kernel/osrelease"), "6.8.0-test\n").unwrap();
    let processors =
        "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\n\nprocessor\t: 1\n";
    fs::write(proc.join("cpuinfo"), processors).unwrap();
    let file = directory.path().join("node.json");
    let record = ["--json", "--record", file.to_str().unwrap()];
    let output = doctor(&mount, &proc, directory.path(), &record);
    let of_node = report(&output);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("hashes for serial numbers"), "{said}");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    // Serial numbers are nowhere in it, and neither is more than one processor.
    let text = fs::read_to_string(&file).unwrap();
    let device = &of_node["devices"][0]["identity"];
    for secret in [&device["serial"], &device["uuid"]] {
        let secret = secret.as_str().unwrap().trim_start_matches("GPU-");
        assert!(!text.contains(secret), "{secret}");
    }
    assert!(!text.contains("processor\\t: 1"));

    let recording = Recording::parse(text.as_bytes()).unwrap();
    let played = Mount::recorded(&recording).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let played = report(&doctor(
        &played,
        &played.proc(),
        elsewhere.path(),
        &["--json"],
    ));
    let devices = |report: &Value| report["devices"].as_array().unwrap().len();
    assert_eq!(devices(&played), devices(&of_node));
    for (number, device) in played["devices"].as_array().unwrap().iter().enumerate() {
        let before = &of_node["devices"][number];
        for part in ["range", "trouble"] {
            assert_eq!(device[part], before[part]);
        }
        for part in ["address", "model", "driver", "backend", "sharing"] {
            assert_eq!(device["identity"][part], before["identity"][part]);
        }
        assert_eq!(device["reading"]["cap"], before["reading"]["cap"]);
        // The report that lies beside the files speaks of the same parts.
        let recorded = &recording.report["devices"][number]["identity"];
        assert_eq!(device["identity"]["uuid"], recorded["uuid"]);
    }
    assert_eq!(played["exit_status"], of_node["exit_status"]);
}

#[test]
fn a_driver_that_hangs_holds_up_no_recording_and_a_file_that_is_there_stays() {
    if is_skipped() {
        return;
    }
    let scenario = Scenario::builtin("default").unwrap();
    let hardware = Hardware::new(&scenario, 1).unwrap().shared();
    let mount = Mount::start(hardware.clone(), Board::default()).unwrap();
    let hangs = Fault::Block(Duration::from_secs(60));
    litd_rig::lock(&hardware).inject(2, hangs);
    let directory = tempfile::tempdir().unwrap();
    let proc = directory.path().join("proc");
    fs::create_dir(&proc).unwrap();
    let file = directory.path().join("node.json");
    let record = ["--record", file.to_str().unwrap()];
    let mut recorder = command(&mount, &proc, directory.path(), &record);
    let mut recorder = recorder.stdout(Stdio::null()).spawn().unwrap();
    // The kernel lets no process end that waits for the driver.
    let deadline = Instant::now() + Duration::from_secs(50);
    let recording = loop {
        let text = fs::read(&file).unwrap_or_default();
        if let Ok(recording) = Recording::parse(&text) {
            break recording;
        }
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(50));
    };
    litd_rig::lock(&hardware).heal(2);
    recorder.wait().unwrap();
    let caps = recording
        .files
        .iter()
        .filter(|(path, _)| path.ends_with("/power1_cap") && path.contains("pci"));
    let (late, told): (Vec<_>, Vec<_>) = caps.partition(|(_, entry)| {
        matches!(
            entry,
            Entry::File {
                content: Content::Errno(110),
                ..
            }
        )
    });
    assert_eq!((late.len(), told.len()), (1, 7));

    let output = doctor(&mount, &proc, directory.path(), &record);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("node.json") && said.contains("exists"),
        "{said}"
    );
    let aim = directory.path().join("aim");
    let link = directory.path().join("link.json");
    symlink(&aim, &link).unwrap();
    doctor(
        &mount,
        &proc,
        directory.path(),
        &["--record", link.to_str().unwrap()],
    );
    assert!(!aim.exists());
}

/// A virtual machine's GPU is capped by its host.
#[test]
fn the_cap_of_a_guests_gpu_is_its_hosts() {
    if is_skipped() {
        return;
    }
    let report = of_node("mi300x-guest");
    assert_eq!(report["exit_status"], 1);
    let said = notices(&report);
    assert!(said.contains("offers it for reading only"), "{said}");
    assert!(said.contains("within a virtual machine"), "{said}");
    assert_eq!(report["devices"][0]["reading"]["cap"], 750.0);
}

/// A range of one value leaves nothing to move.
#[test]
fn gpus_whose_lowest_cap_is_their_highest_are_shown_so() {
    if is_skipped() {
        return;
    }
    let report = of_node("mi100-fixed");
    let devices = report["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 2);
    for device in devices {
        assert_eq!(device["range"]["lowest"], 290.0);
        assert_eq!(device["range"]["highest"], 290.0);
    }
}

/// Another vendor's driver has files of the same names.
#[test]
fn another_vendors_card_is_left_alone() {
    if is_skipped() {
        return;
    }
    let report = of_node("arc-b60");
    assert_eq!(report["devices"], serde_json::json!([]));
    assert_eq!(report["exit_status"], 1);
}

/// A zone's number is not its socket's.
#[test]
fn sockets_have_the_numbers_of_their_packages_and_the_platforms_zone_is_left_alone() {
    if is_skipped() {
        return;
    }
    let report = of_node("sapphire-rapids-psys");
    let devices = report["devices"].as_array().unwrap();
    let addresses = devices.iter().map(|it| it["identity"]["address"].clone());
    assert_eq!(addresses.collect::<Vec<_>>(), ["cpu0", "cpu1"]);
    for device in devices {
        assert_eq!(device["reading"]["cap"], 350.0);
        assert_eq!(device["trouble"], serde_json::json!([]));
    }
}
