//! The whole daemon with `[hardware] amd = "rocm_smi"`.

use std::path::Path;
use std::time::{Duration, Instant};

use litd_api::Status;
use litd_rig::Daemon;
use litd_units::Watts;

use super::node::{ADDRESSES, LITD, on_a_node};
use super::processes;
use super::stand_in::Library;
use crate::control::ask;

fn start(directory: &Path) -> Daemon {
    start_with("librocm_smi64.so.1".as_ref(), directory)
}

fn start_with(library: &Path, directory: &Path) -> Daemon {
    let (library, path) = (library.display(), directory.display());
    let config = format!(
        "[hardware]\namd = \"rocm_smi\"\nnvidia = \"off\"\ncpus = false\n\
         rocm_smi_library = \"{library}\"\n\
         [state]\ndirectory = \"{path}/state\"\nlocks = \"{path}/devices\"\n[ingest]\nsocket = \"{path}/ingest\"\n\
         [control]\nsocket = \"{path}/control\"\nread_group = \"\"\nadmin_group = \"\"\n\
         [metrics]\nlisten = \"off\"\n"
    );
    Daemon::spawn(Path::new(LITD), directory, &config, None).unwrap()
}

fn status(directory: &Path) -> Status {
    let (code, body) = ask(&directory.join("control"), "GET", "/v1/status", "").unwrap();
    assert_eq!(code, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

fn set(directory: &Path, device: &str, watts: f64) -> (u16, String) {
    let command = litd_api::Command::SetCap {
        device: device.into(),
        watts: Watts(watts),
    };
    let body = serde_json::to_string(&command).unwrap();
    ask(&directory.join("control"), "POST", "/v1/command", &body).unwrap()
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_daemon_sets_caps_of_eight_gpus_and_reads_them_back() {
    on_a_node(
        "daemon::the_daemon_sets_caps_of_eight_gpus_and_reads_them_back",
        |node| {
            let directory = tempfile::tempdir().unwrap();
            let at = directory.path();
            let daemon = start(at);
            wait_for("the caps found", || {
                status(at)
                    .devices
                    .iter()
                    .all(|device| device.found.is_some())
            });
            for (gpu, address) in ADDRESSES.iter().enumerate() {
                let (code, body) = set(at, address, 600.0 + gpu as f64);
                assert_eq!(code, 200, "{body}");
            }
            wait_for("eight caps", || {
                let expected = |gpu: usize| format!("{}000000", 600 + gpu);
                (0..8).all(|gpu| node.cap(gpu) == expected(gpu))
            });
            wait_for("eight caps in the status", || {
                let devices = status(at).devices;
                let caps: Vec<_> = devices.iter().map(|device| device.cap).collect();
                (600..608)
                    .map(|watts| Some(Watts(f64::from(watts))))
                    .eq(caps)
            });
            let ended = daemon.terminate().unwrap();
            assert!(ended.success(), "{ended}");
        },
    );
}

#[test]
fn a_crashing_gpu_leaves_the_daemon_seven_others() {
    on_a_node(
        "daemon::a_crashing_gpu_leaves_the_daemon_seven_others",
        |node| {
            node.hide_sensors(3, true);
            let directory = tempfile::tempdir().unwrap();
            let at = directory.path();
            let daemon = start(at);
            // A daemon that has just started has yet to read the GPU a second time.
            wait_for("the cap found", || set(at, ADDRESSES[4], 650.0).0 == 200);
            wait_for("a cap", || node.cap(4) == "650000000");
            let log = daemon.stderr();
            assert!(
                log.contains(ADDRESSES[3]) && log.contains("SIGABRT"),
                "{log}"
            );
        },
    );
}

#[test]
fn the_processes_end_with_a_daemon_that_is_killed() {
    on_a_node(
        "daemon::the_processes_end_with_a_daemon_that_is_killed",
        |_| {
            let directory = tempfile::tempdir().unwrap();
            let daemon = start(directory.path());
            let processes = processes::of(daemon.pid());
            assert_eq!(processes.len(), ADDRESSES.len());
            daemon.kill();
            for pid in processes {
                processes::wait_for_end(pid);
            }
        },
    );
}

#[test]
fn a_process_that_hangs_in_the_library_ends_with_the_daemon_too() {
    let library = Library::build();
    let directory = tempfile::tempdir().unwrap();
    let daemon = start_with(&library.path(), directory.path());
    library.fail(0, "hang");
    // It is asked once a second, and would be killed by its deadline seconds later.
    wait_for("a process that hangs", || library.hung().is_some());
    daemon.kill();
    processes::wait_for_end(library.hung().unwrap());
}
