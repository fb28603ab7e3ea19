//! The whole daemon with `[hardware] amd = "rocm_smi"`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use litd_api::Status;
use litd_rig::{Daemon, Fault, Layout, Rig};
use litd_rig_sysfs::{Board, Cpus, MI300X, Mount, obstacle};
use litd_sim::Scenario;
use litd_units::Watts;

use super::node::{ADDRESSES, LITD, on_a_node};
use super::processes;
use super::stand_in::Library;
use crate::control::ask;
use crate::restore::restore;

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

/// A driver that holds the calls to one of its files for as long as it likes, also those of processes that are killed.
struct Driver {
    rig: Rig,
    mount: Mount,
}

impl Driver {
    fn start() -> Option<Self> {
        if let Some(why) = obstacle() {
            eprintln!("SKIPPED: {why}");
            return None;
        }
        let rig = Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
        let board = Board {
            model: MI300X,
            cpus: Cpus::None,
            ..Board::default()
        };
        let mount = Mount::start(rig.shared_hardware(), board).unwrap();
        Some(Self { rig, mount })
    }

    /// The file with the first GPU's cap.
    fn cap(&self) -> PathBuf {
        let address = self.rig.hardware().identity_mut(0).unwrap().address.clone();
        let sensors = self.mount.sys().join("bus/pci/devices").join(address);
        let sensors = fs::read_dir(sensors.join("hwmon")).unwrap().next().unwrap();
        sensors.unwrap().path().join("power1_cap")
    }

    fn hangs(&self) {
        let long = Fault::Block(Duration::from_secs(3600));
        self.rig.hardware().inject(0, long);
    }

    fn answers(&self) {
        self.rig.hardware().heal(0);
    }
}

/// Whether a process that sets a cap is noted.
fn is_noted(directory: &Path) -> bool {
    let names = fs::read_dir(directory.join("devices")).unwrap();
    let mut names = names.map(|it| it.unwrap().file_name().into_string().unwrap());
    names.any(|name| name.ends_with(".child"))
}

/// The kernel may carry such a write out over caps that were given back meanwhile.
#[test]
fn a_write_that_hangs_when_litd_is_killed_is_known_to_whoever_comes_next() {
    let Some(driver) = Driver::start() else {
        return;
    };
    let (library, directory) = (Library::build(), tempfile::tempdir().unwrap());
    let at = directory.path();
    let config = Layout::new(at).config();
    std::os::unix::fs::symlink(driver.cap(), library.path().with_file_name("driver")).unwrap();
    let daemon = start_with(&library.path(), at);
    wait_for("the cap found", || set(at, ADDRESSES[0], 650.0).0 == 200);
    wait_for("a cap", || status(at).devices[0].cap == Some(Watts(650.0)));
    assert!(!is_noted(at), "nothing is set now");
    driver.hangs();
    library.fail(0, "stuck");
    set(at, ADDRESSES[0], 600.0);
    wait_for("a process that hangs", || library.hung().is_some());
    let hung = library.hung().unwrap();
    daemon.kill();
    library.fail(0, "");
    let expected = format!("process {hung} of an earlier litd was killed but hangs in a driver");
    for _ in 0..2 {
        let (code, said) = restore(Path::new(LITD), &config);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(&expected), "{said}");
    }
    let daemon = start_with(&library.path(), at);
    assert!(daemon.stderr().contains(&expected), "{}", daemon.stderr());
    let (code, body) = set(at, ADDRESSES[0], 640.0);
    assert_eq!(code, 409, "{body}");
    assert!(body.contains("may still take effect"), "{body}");
    daemon.kill();
    driver.answers();
    processes::wait_for_end(hung);
    let (code, said) = restore(Path::new(LITD), &config);
    // The write that the killed daemon after it had asked for may have been another one.
    assert!(matches!(code, Some(0 | 3)), "{code:?}: {said}");
    assert!(!said.contains("of an earlier litd"), "{said}");
    assert!(!is_noted(at));
}

/// A call that only reads can change nothing, however late it is done.
#[test]
fn a_process_that_hangs_while_it_reads_keeps_nobody_waiting() {
    let Some(driver) = Driver::start() else {
        return;
    };
    let (library, directory) = (Library::build(), tempfile::tempdir().unwrap());
    let at = directory.path();
    std::os::unix::fs::symlink(driver.cap(), library.path().with_file_name("driver")).unwrap();
    let daemon = start_with(&library.path(), at);
    wait_for("the cap found", || set(at, ADDRESSES[0], 650.0).0 == 200);
    wait_for("a cap", || status(at).devices[0].cap == Some(Watts(650.0)));
    driver.hangs();
    library.fail(0, "stuck read");
    wait_for("a process that hangs", || library.hung().is_some());
    daemon.kill();
    library.fail(0, "");
    let (code, said) = restore(Path::new(LITD), &Layout::new(at).config());
    driver.answers();
    assert_eq!(code, Some(0), "{said}");
}
