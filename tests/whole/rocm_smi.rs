//! AMD GPUs through the real ROCm SMI library, on a made-up node; and through a stand-in library
//! and program with faults that the real ones can't be made to show. The process with the library
//! in it is always litd's own.

mod daemon;
mod faults;
mod node;
mod processes;
mod stand_in;

use std::path::Path;
use std::time::{Duration, Instant};

use litd_power::{Inventory, PowerDomain, PowerError, Reading, Severity, rocm_smi};
use litd_units::{Celsius, Watts};

use node::{ADDRESSES, ENERGY, LITD, on_a_node};
use stand_in::Holder;

/// What one call may take, and as much again for a machine that has other things to do.
const DEADLINE: Duration = Duration::from_secs(9);

/// The GPU that has the fault.
const FAULTY: usize = 3;

type Gpu = Box<dyn PowerDomain>;

/// The outcome of reading a GPU, which took no longer than it may.
fn read(gpu: &mut Gpu) -> Result<Reading, PowerError> {
    let begun = Instant::now();
    let outcome = gpu.read();
    assert!(begun.elapsed() < DEADLINE, "{:?}", begun.elapsed());
    outcome
}

/// Reads all GPUs and answers with the faulty one's error: the others have none.
fn only_error(found: &mut Inventory) -> PowerError {
    let mut error = None;
    for (index, gpu) in found.domains.iter_mut().enumerate() {
        match read(gpu) {
            Ok(_) => {}
            Err(one) if index == FAULTY => error = Some(one),
            Err(other) => panic!("{other}"),
        }
    }
    error.expect("the faulty GPU answered")
}

fn read_all(found: &mut Inventory) {
    for gpu in &mut found.domains {
        read(gpu).unwrap();
    }
}

#[test]
fn eight_gpus_are_found_and_described() {
    on_a_node("eight_gpus_are_found_and_described", |node| {
        let mut found = node.discover();
        for (index, gpu) in found.domains.iter_mut().enumerate() {
            let identity = gpu.identity();
            assert_eq!(identity.address, ADDRESSES[index]);
            let uuid = format!("GPU-abcd00000000000{index}");
            assert_eq!(identity.uuid.as_deref(), Some(&*uuid));
            let serial = format!("MADEUP{index}");
            assert_eq!(identity.serial.as_deref(), Some(&*serial));
            assert_eq!(identity.model, "AMD GPU 1002:74a1");
            assert!(identity.driver.starts_with("amdgpu "), "{identity:?}");
            assert_eq!(identity.backend, "rocm_smi");
            let range = gpu.range().unwrap();
            let watts = [range.lowest, range.highest, range.default, range.resolution];
            assert_eq!(watts.map(|watts| watts.0), [0.0, 750.0, 750.0, 1.0]);
            let reading = gpu.read().unwrap();
            let energy = reading.energy.unwrap();
            let expected = ENERGY as f64 * 15.3e-6;
            assert!((energy.0 - expected).abs() < 1.0, "{energy}");
            assert_eq!(
                reading,
                Reading {
                    cap: Watts(750.0),
                    power: Some(Watts(140.0 + index as f64)),
                    energy: Some(energy),
                    temperature: Some(Celsius(50.0 + index as f64)),
                    slowdown: Some(Celsius(100.0)),
                    ..Reading::default()
                }
            );
        }
    });
}

#[test]
fn a_cap_is_set_on_one_gpu_and_read_back() {
    on_a_node("a_cap_is_set_on_one_gpu_and_read_back", |node| {
        let mut found = node.discover();
        // Whole watts, as the driver would make of it.
        found.domains[FAULTY].set_cap(Watts(612.9)).unwrap();
        let caps: Vec<String> = (0..8).map(|gpu| node.cap(gpu)).collect();
        for (gpu, cap) in caps.iter().enumerate() {
            let expected = if gpu == FAULTY {
                "612000000"
            } else {
                "750000000"
            };
            assert_eq!(cap, expected, "GPU {gpu}");
        }
        assert_eq!(found.domains[FAULTY].cap().unwrap(), Watts(612.0));
    });
}

#[test]
fn a_cap_out_of_range_is_refused_and_the_range_told() {
    on_a_node("a_cap_out_of_range_is_refused_and_the_range_told", |node| {
        let mut found = node.discover();
        for asked in [751.0, 0.0, 0.9, -5.0, f64::NAN, f64::INFINITY, 1e12] {
            let error = found.domains[0].set_cap(Watts(asked)).unwrap_err();
            match error {
                PowerError::OutOfRange {
                    lowest, highest, ..
                } => {
                    assert_eq!((lowest, highest), (Watts(1.0), Watts(750.0)));
                }
                other => panic!("{asked}: {other}"),
            }
        }
        assert_eq!(node.cap(0), "750000000");
        // It costs the process nothing.
        found.domains[0].set_cap(Watts(700.0)).unwrap();
    });
}

#[test]
fn a_rejected_write_that_the_library_calls_a_success_is_an_error() {
    on_a_node(
        "a_rejected_write_that_the_library_calls_a_success_is_an_error",
        |node| {
            let mut found = node.discover();
            node.refuse_writes(FAULTY);
            let error = found.domains[FAULTY].set_cap(Watts(600.0)).unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains("reports success, and the cap is 0 W"),
                "{text}"
            );
            assert!(text.contains(ADDRESSES[FAULTY]), "{text}");
            found.domains[FAULTY + 1].set_cap(Watts(600.0)).unwrap();
        },
    );
}

#[test]
fn a_held_mutex_costs_one_gpu_one_error() {
    on_a_node("a_held_mutex_costs_one_gpu_one_error", |node| {
        let mut found = node.discover();
        read_all(&mut found);
        // Each process has mutexes of its own; those that others can see are of the last one.
        found.domains[FAULTY].release();
        read(&mut found.domains[FAULTY]).unwrap();
        let _holders: Vec<Holder> = (0..8).map(Holder::of).collect();
        let error = only_error(&mut found).to_string();
        assert!(error.contains("mutex"), "{error}");
        assert!(error.contains("fuser /dev/shm/rocm_smi_"), "{error}");
        // They still hold them, and would for ever.
        read_all(&mut found);
        found.domains[FAULTY].set_cap(Watts(600.0)).unwrap();
        assert_eq!(node.cap(FAULTY), "600000000");
    });
}

#[test]
fn mutexes_that_are_held_keep_no_gpu_from_being_found() {
    on_a_node(
        "mutexes_that_are_held_keep_no_gpu_from_being_found",
        |node| {
            read_all(&mut node.discover());
            let _holders: Vec<Holder> = (0..8).map(Holder::of).collect();
            read_all(&mut node.discover());
        },
    );
}

#[test]
fn an_abort_of_the_library_costs_one_gpu_one_error() {
    on_a_node("an_abort_of_the_library_costs_one_gpu_one_error", |node| {
        node.hide_sensors(FAULTY, true);
        let mut found = node.discover();
        let error = only_error(&mut found).to_string();
        assert!(error.contains("SIGABRT"), "{error}");
        assert!(
            error.contains("monitor"),
            "the library's own words: {error}"
        );
        node.hide_sensors(FAULTY, false);
        read_all(&mut found);
    });
}

#[test]
fn without_the_library_a_notice_says_what_to_do() {
    let search = node::search(Path::new("libnone_of_this_name.so.1"), Path::new(LITD));
    let found = rocm_smi::discover(&search);
    assert!(found.domains.is_empty());
    let [notice] = &*found.notices else {
        panic!("{:?}", found.notices);
    };
    assert_eq!(notice.severity, Severity::Error);
    let text = notice.to_string();
    assert!(text.contains("libnone_of_this_name.so.1"), "{text}");
    assert!(text.contains("librocm-smi64-1"), "{text}");
    assert!(text.contains("amdgpu"), "{text}");
}

#[test]
fn without_a_driver_a_notice_says_what_to_do() {
    on_a_node("without_a_driver_a_notice_says_what_to_do", |node| {
        std::fs::remove_dir_all("/sys/class/drm").unwrap();
        let found = rocm_smi::discover(&node.search());
        assert!(found.domains.is_empty());
        let texts: Vec<String> = found.notices.iter().map(ToString::to_string).collect();
        let [text] = &*texts else { panic!("{texts:?}") };
        assert!(text.contains("modprobe amdgpu"), "{text}");
    });
}
