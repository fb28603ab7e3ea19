//! `litctl doctor` on nodes that have nothing, and on a simulated one.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use litd::config::Config;
use litd::locks::{self, DeviceLocks};
use litd_rig::{Fault, Rig};
use litd_sim::Scenario;
use serde_json::Value;

use crate::LITCTL;

/// A configuration whose files are below `root`, where there are none.
fn nothing(root: &Path) -> std::path::PathBuf {
    for name in ["sys", "dev", "proc"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    let path = root.display();
    let text = format!(
        "[hardware]\nsys = \"{path}/sys\"\ndev = \"{path}/dev\"\nproc = \"{path}/proc\"\n\
         nvml_library = \"{path}/none.so\"\nrocm_smi_library = \"{path}/none.so\"\n"
    );
    let config = root.join("litd.toml");
    fs::write(&config, text).unwrap();
    config
}

fn doctor(config: &Path, arguments: &[&str]) -> Output {
    Command::new(LITCTL)
        .args(arguments)
        .arg("doctor")
        .arg("--config")
        .arg(config)
        .arg("--socket")
        .arg(config.with_file_name("nobody.sock"))
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The kernel's line of a user's process that listens at a port of this machine.
fn listening(port: u16, uid: u32) -> String {
    let host = format!("{:08X}", u32::from_ne_bytes([127, 0, 0, 1]));
    format!(
        "   0: {host}:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 {uid} 0\n"
    )
}

/// Any user may take the port while litd does not run, and answer for it.
#[test]
fn another_users_process_on_the_metrics_port_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let config = nothing(directory.path());
    let table = directory.path().join("proc/net/tcp");
    fs::create_dir_all(table.parent().unwrap()).unwrap();
    let listens = |uid: u32| {
        fs::write(&table, listening(9816, uid)).unwrap();
        text(&doctor(&config, &[]))
    };
    let said = listens(61_001);
    let whose = "a process of user 61001 listens at 127.0.0.1:9816";
    assert!(said.contains(whose), "{said}");
    assert!(!listens(0).contains("metrics"));
}

#[test]
fn a_node_without_devices_has_an_exit_status_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let output = doctor(&nothing(directory.path()), &[]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("GPUs: none"), "{said}");
    assert!(
        said.contains("litd can cap no GPU here: it found none"),
        "{said}"
    );
    assert!(said.contains("nobody.sock"), "{said}");
}

/// PyTorch's own on-demand client turns to a name that another daemon may have.
#[test]
fn the_ways_to_measure_jobs_are_told_with_what_is_in_their_way() {
    let directory = tempfile::tempdir().unwrap();
    let config = nothing(directory.path());
    let usual = fs::read_to_string(&config).unwrap();
    let ways = |more: &str| {
        fs::write(&config, format!("{usual}{more}")).unwrap();
        let report = doctor(&config, &["--json"]);
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        let ways = report["ways"].as_array().unwrap().clone();
        let states = ways.iter().map(|way| way["state"].as_str().unwrap());
        (
            states.map(str::to_owned).collect::<Vec<_>>(),
            text(&doctor(&config, &[])),
        )
    };
    let (states, said) = ways("");
    assert_eq!(states, ["usable", "usable", "off", "off"]);
    for part in [
        "litd.attach()",
        "Kineto on demand (off)",
        "arrivals at collectives (off)",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let on = "[attach]\nkineto = true\n[sampling]\nprofiler = \"off\"\n";
    let (states, said) = ways(on);
    assert_eq!(states, ["off", "usable", "usable", "off"]);
    assert!(said.contains("KINETO_USE_DAEMON=1"), "{said}");
    assert!(said.contains("steers by them only with"), "{said}");
    // Pods meet litd in a directory in which nobody may replace another's socket.
    let pods = tempfile::tempdir().unwrap();
    let place = format!(
        "kineto = true\nkineto_directory = \"{}\"",
        pods.path().display()
    );
    for (mode, is_said) in [(0o777, true), (0o1777, false)] {
        fs::set_permissions(pods.path(), fs::Permissions::from_mode(mode)).unwrap();
        let (_, said) = ways(&on.replace("kineto = true", &place));
        // Wherever its lines end.
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(said.contains("; no pods: "), is_said, "{said}");
    }
    let sampled = on.replace("kineto = true", "kineto = true\nkineto_samples = true");
    let (_, said) = ways(&sampled);
    assert!(said.contains("record their kernels every 60 s"), "{said}");
    assert!(said.contains("no real GPU has shown"), "{said}");
    let proc = directory.path().join("proc");
    fs::create_dir_all(proc.join("net")).unwrap();
    fs::create_dir_all(proc.join("77/fd")).unwrap();
    let line = "0000000000000000: 00000002 00000000 00000000 0002 01 70123 @dynolog@\n";
    fs::write(proc.join("net/unix"), line).unwrap();
    fs::write(proc.join("77/comm"), "dynolog\n").unwrap();
    std::os::unix::fs::symlink("socket:[70123]", proc.join("77/fd/3")).unwrap();
    let (states, said) = ways(on);
    assert_eq!(states, ["off", "usable", "blocked", "off"]);
    assert!(said.contains("process 77 (dynolog)"), "{said}");
    let through = on.replace(
        "kineto = true",
        "kineto = true\ndynolog = \"127.0.0.1:1778\"",
    );
    let (states, said) = ways(&through);
    assert_eq!(states, ["off", "usable", "blocked", "off"]);
    assert!(said.contains("nobody listens at 127.0.0.1:1778"), "{said}");
    fs::write(proc.join("net/tcp"), listening(1778, 61_001)).unwrap();
    let (states, said) = ways(&through);
    assert_eq!(states, ["off", "usable", "usable", "off"]);
    assert!(said.contains("user 61001"), "{said}");
    // Rings: a directory that is fit, and one that is not.
    let rings = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
    for (mode, state, part) in [
        (0o1777, "usable", "LITD_NCCL_DIRECTORY="),
        (0o777, "blocked", "chmod 1777"),
    ] {
        fs::set_permissions(rings.path(), fs::Permissions::from_mode(mode)).unwrap();
        let name = rings.path().display();
        let (states, said) = ways(&format!("[attach]\nnccl_directory = \"{name}\"\n"));
        assert_eq!(states[3], state);
        assert!(said.contains(part), "{said}");
        assert!(said.contains("no real GPU has shown"), "{said}");
    }
}

#[test]
fn a_bad_configuration_is_the_callers_mistake() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("litd.toml");
    fs::write(&config, "[hardware]\namd = \"magic\"\n").unwrap();
    let output = doctor(&config, &[]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("litd.toml:2: hardware.amd"), "{said}");
}

#[test]
fn a_node_where_all_is_well_and_one_where_a_gpu_is_gone() {
    let rig = Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("litd.toml");
    let socket = rig.layout().hardware();
    fs::write(
        &config,
        format!("[hardware]\nsimulated = \"{}\"\n", socket.display()),
    )
    .unwrap();
    let output = doctor(&config, &[]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("litd can cap all 8 GPUs"), "{said}");
    assert!(said.starts_with("SIMULATED"), "{said}");
    assert!(said.contains("cap 700 W, may be 300 W to 750 W"), "{said}");
    rig.hardware().inject(3, Fault::Gone);
    let output = doctor(&config, &["--json"]);
    assert_eq!(output.status.code(), Some(3));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["exit_status"], 3);
    let trouble = report["devices"][3]["trouble"][0].as_str().unwrap();
    assert!(trouble.contains("the device is gone"), "{trouble}");
    assert_eq!(report["devices"][2]["trouble"], serde_json::json!([]));
}

#[test]
fn profilers_that_are_off_are_shown_with_the_way_back() {
    let directory = tempfile::tempdir().unwrap();
    let config = nothing(directory.path());
    let state = directory.path().join("state");
    fs::create_dir(&state).unwrap();
    let more = format!("[state]\ndirectory = \"{}\"\n", state.display());
    let text_of_config = fs::read_to_string(&config).unwrap() + &more;
    fs::write(&config, text_of_config).unwrap();
    assert!(!text(&doctor(&config, &[])).contains("Profilers"));
    let off = r#"{"litd-learned":1,"distributions":[],"profilers_off":[{"software":
        "torch 2.9.1, cuda 12.8, cupti 12.8.90","reason":"12 % slower","unix_seconds":1.5e9}]}"#;
    fs::write(state.join("learned"), off).unwrap();
    let said = text(&doctor(&config, &[]));
    for part in [
        "torch 2.9.1, cuda 12.8, cupti 12.8.90",
        "12 % slower",
        "litctl forget",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let report: Value = serde_json::from_slice(&doctor(&config, &["--json"]).stdout).unwrap();
    assert_eq!(report["profilers_off"][0]["reason"], "12 % slower");
    // Damaged, it is shown as if there were none.
    fs::write(state.join("learned"), "{").unwrap();
    assert!(!text(&doctor(&config, &[])).contains("Profilers"));
}

#[test]
fn whoever_has_a_lock_is_named_with_the_file() {
    let rig = Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("litd.toml");
    let (socket, state) = (rig.layout().hardware(), directory.path().join("state"));
    fs::create_dir(&state).unwrap();
    let text_of_config = format!(
        "[hardware]\nsimulated = \"{}\"\n[state]\ndirectory = \"{}\"\n",
        socket.display(),
        state.display()
    );
    fs::write(&config, text_of_config).unwrap();
    let report = |status| -> Value {
        let output = doctor(&config, &["--json"]);
        assert_eq!(output.status.code(), Some(status), "{}", text(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let addresses: Vec<String> = report(0)["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["identity"]["address"].as_str().unwrap().to_owned())
        .collect();
    let me = format!("process {} (", std::process::id());
    let locks = Config::load(Some(&config)).unwrap().shell.locks();
    // A process that another test is just starting has this one's files open, and their locks, until it runs its program.
    let take = |state: &Path, addresses: &[String]| {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        loop {
            match DeviceLocks::take(&locks, state, addresses.iter().map(String::as_str)) {
                Ok(taken) => return taken,
                Err(taken) => assert!(std::time::Instant::now() < deadline, "{taken}"),
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    let trouble = |report: &Value, device: usize| {
        let trouble = report["devices"][device]["trouble"].clone();
        trouble[0].as_str().unwrap_or_default().to_owned()
    };

    // The daemon of this very configuration.
    let own = take(&state, &addresses);
    report(0);
    drop(own);

    // Another daemon, and a process that is none.
    let _other = take(Path::new("/var/lib/two"), &addresses[1..2]);
    let foreign = File::create(locks::file(&locks, &addresses[2])).unwrap();
    foreign.lock().unwrap();
    let said = report(3);
    for (device, word) in [
        (1, "a litd with the state directory /var/lib/two"),
        (2, "no litd"),
    ] {
        let trouble = trouble(&said, device);
        let file = locks::file(&locks, &addresses[device]);
        for part in [&me, &file.display().to_string(), word] {
            assert!(trouble.contains(part), "{trouble}");
        }
    }
    assert_eq!(trouble(&said, 0), "");

    // The state directory's.
    assert_eq!(said["daemon"]["pid"], Value::Null);
    let lock = File::create(state.join("lock")).unwrap();
    lock.lock().unwrap();
    let said = report(3);
    assert_eq!(said["daemon"]["pid"], std::process::id());
    let daemon = said["daemon"]["text"].as_str().unwrap();
    for part in [&me, &state.join("lock").display().to_string()] {
        assert!(daemon.contains(part), "{daemon}");
    }
}

/// litd was killed while it kept a budget: before it runs again, or `litd restore`, not all is well.
#[test]
fn what_a_dead_litd_has_left_changed_is_told() {
    let litd = litd_rig::program("litd").unwrap();
    let rig = Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
    let daemon = rig
        .spawn(&litd, &rig.config("caps.budget = 4800.0\n"))
        .unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while rig.ledger().held()[..8].iter().map(|it| it.0).sum::<f64>() > 4800.0 {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let config = rig.layout().config();
    let said = text(&doctor(&config, &[]));
    assert!(!said.contains("undo journal"), "{said}");
    daemon.kill();
    let output = doctor(&config, &[]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("a litd that is dead may have left caps"),
        "{said}"
    );
    assert!(said.contains("sudo litd restore"), "{said}");
}
