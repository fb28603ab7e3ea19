//! The processes that have the library in them: how many, how large, and when they end.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::node::{ADDRESSES, on_a_node};
use super::{read, read_all};

/// Anonymous memory of one process, in KiB: its program and libraries are shared.
const MOST_MEMORY: u64 = 4 * 1024;

/// A line of a process's status.
fn status(pid: u32, key: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.map(|value| value.trim_start_matches(':').trim().to_owned())
}

/// The children of a process that have the library in them, or are about to.
pub fn of(parent: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse().ok()
    });
    let is_child = |pid: &u32| status(*pid, "PPid") == Some(parent.to_string());
    let mut pids: Vec<u32> = pids.filter(is_child).collect();
    pids.sort_unstable();
    pids
}

pub fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
}

/// Waits until a process, which need not be a child, is gone.
pub fn wait_for_end(pid: u32) {
    let begun = Instant::now();
    // What was adopted by a process that doesn't care stays as a zombie.
    while status(pid, "State").is_some_and(|state| !state.starts_with('Z')) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{pid} lives");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn each_gpu_has_one_process_once_it_is_used() {
    on_a_node(
        "processes::each_gpu_has_one_process_once_it_is_used",
        |node| {
            let own = std::process::id();
            let mut found = node.discover();
            assert!(of(own).is_empty(), "discovery leaves none");
            read(&mut found.domains[0]).unwrap();
            assert_eq!(of(own).len(), 1);
            for _ in 0..20 {
                read_all(&mut found);
            }
            let processes = of(own);
            assert_eq!(processes.len(), ADDRESSES.len());
            for pid in processes {
                assert_eq!(status(pid, "Name").unwrap(), "litd-rocm-smi");
                let memory = status(pid, "RssAnon").unwrap();
                let kib: u64 = memory.trim_end_matches(" kB").parse().unwrap();
                assert!(kib < MOST_MEMORY, "{memory}");
            }
            found.domains[0].release();
            assert_eq!(of(own).len(), ADDRESSES.len() - 1);
            drop(found);
            assert!(of(own).is_empty());
        },
    );
}

#[test]
fn a_killed_process_costs_one_error_and_is_started_again() {
    on_a_node(
        "processes::a_killed_process_costs_one_error_and_is_started_again",
        |node| {
            let own = std::process::id();
            let mut found = node.discover();
            read_all(&mut found);
            for pid in of(own) {
                signal(pid, Signal::SIGKILL);
            }
            for gpu in &mut found.domains {
                let error = read(gpu).unwrap_err().to_string();
                assert!(error.contains("SIGKILL"), "{error}");
            }
            read_all(&mut found);
            assert_eq!(of(own).len(), ADDRESSES.len());
        },
    );
}

#[test]
fn signals_for_the_whole_service_do_not_end_them() {
    on_a_node(
        "processes::signals_for_the_whole_service_do_not_end_them",
        |node| {
            let mut found = node.discover();
            read_all(&mut found);
            for pid in of(std::process::id()) {
                for each in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
                    signal(pid, each);
                }
            }
            read_all(&mut found);
        },
    );
}
