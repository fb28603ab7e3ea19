//! Identity, units, range, sensors, processes, clocks.

use std::fs;
use std::thread;

use litd_power::{
    ClockRange, DeviceKind, PowerDomain, PowerError, Severity, Sharing, Throttle, nvml,
};
use litd_rig::{Author, Fault, Rig};
use litd_units::{Hertz, Watts};

use super::{discover, gpus, search, set};
use crate::common::rig;

#[test]
fn gpus_are_found_by_their_pci_addresses() {
    let rig = rig();
    let gpus = gpus(&rig);
    let addresses: Vec<_> = gpus.iter().map(|gpu| &gpu.identity().address).collect();
    assert_eq!(addresses.len(), 8);
    assert_eq!(addresses[..2], ["0000:05:00.0", "0000:15:00.0"]);
    let identity = gpus[3].identity();
    assert_eq!(identity.kind, DeviceKind::Gpu);
    assert_eq!(identity.uuid.as_deref(), Some("GPU-simulated-3"));
    assert_eq!(identity.serial.as_deref(), Some("SIM00003"));
    assert_eq!(identity.model, "simulated GPU");
    assert_eq!(identity.driver, "nvidia simulated 1");
    assert_eq!(identity.backend, "nvml");
    assert_eq!(identity.sharing, Sharing::Whole);
}

#[test]
fn a_board_without_serial_number_has_none() {
    let rig = rig();
    rig.hardware().identity_mut(0).unwrap().serial = None;
    rig.hardware().identity_mut(1).unwrap().serial = Some("0".to_owned());
    let gpus = gpus(&rig);
    assert_eq!(gpus[0].identity().serial, None);
    assert_eq!(gpus[1].identity().serial, None);
}

#[test]
fn the_range_is_what_the_driver_says_now() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    let range = gpus[0].range().unwrap();
    let all = [range.lowest, range.highest, range.default, range.resolution];
    assert_eq!(all, [300.0, 750.0, 750.0, 1.0].map(Watts));
    rig.hardware().range_mut(0).unwrap().highest = Watts(700.5);
    assert_eq!(gpus[0].range().unwrap().highest, Watts(700.5));
}

#[test]
fn a_cap_is_set_and_read_back_in_the_drivers_units() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    for (asked, held) in [
        (650.0, 650.0),
        (612.9, 612.0),
        (300.0, 300.0),
        (750.0, 750.0),
    ] {
        gpus[2].set_cap(Watts(asked)).unwrap();
        assert_eq!(gpus[2].cap().unwrap(), Watts(held));
        assert_eq!(rig.ledger().held()[2], Watts(held));
    }
    let entries = rig.ledger().entries();
    assert_eq!(entries.len(), 4);
    assert!(
        entries
            .iter()
            .all(|entry| entry.accepted && entry.author == Author::Litd)
    );
    // Milliwatts on the wire, and never more than was asked for.
    gpus[2].set_cap(Watts(649.999_999)).unwrap();
    assert_eq!(gpus[2].cap().unwrap(), Watts(649.0));
    gpus[2].set_cap(Watts(750.000_9)).unwrap();
    assert_eq!(gpus[2].cap().unwrap(), Watts(750.0));
    gpus[2].set_cap(Watts(750.001_9)).unwrap_err();
    assert_eq!(rig.ledger().entries()[6].asked, Watts(750.001));
}

#[test]
fn a_cap_out_of_range_is_refused_with_the_range_of_now() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    rig.hardware().range_mut(0).unwrap().highest = Watts(700.0);
    for asked in [701.0, 299.0, 0.0, -5.0, 1e12] {
        let error = gpus[0].set_cap(Watts(asked)).unwrap_err();
        let expected = PowerError::OutOfRange {
            device: "0000:05:00.0".to_owned(),
            asked: Watts(asked),
            lowest: Watts(300.0),
            highest: Watts(700.0),
        };
        assert_eq!(error, expected);
    }
    for nonsense in [f64::NAN, f64::INFINITY] {
        let error = gpus[0].set_cap(Watts(nonsense)).unwrap_err();
        assert_eq!(error.kind(), "driver");
    }
    assert_eq!(gpus[0].cap().unwrap(), Watts(700.0));
}

#[test]
fn readings_are_those_of_the_plant() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    rig.hardware().run_iteration();
    let reading = gpus[4].read().unwrap();
    let plant = rig.hardware().plant().gpu(4).unwrap();
    let energy = rig.hardware().reading(4).unwrap().energy.unwrap();
    let near = |a: f64, b: f64, unit: f64| assert!((a - b).abs() <= unit, "{a} is not {b}");
    assert_eq!(reading.cap, plant.cap);
    assert_eq!(reading.enforced, Some(plant.cap));
    near(reading.power.unwrap().0, plant.power.0, 1e-3);
    near(reading.energy.unwrap().0, energy.0, 1e-3);
    assert!(energy.0 > 1.0);
    near(reading.temperature.unwrap().0, plant.temperature.0, 0.5);
    near(reading.slowdown.unwrap().0, plant.slowdown.0, 0.5);
    near(reading.clock.unwrap().0, plant.clock.0, 0.5e6);
    assert_eq!(reading.power_limited, Some(true));
    assert_eq!(reading.throttle, None);
}

#[test]
fn the_limit_in_force_is_told_besides_the_one_that_is_set() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    rig.hardware().inject(1, Fault::Enforced(Watts(450.0)));
    let reading = gpus[1].read().unwrap();
    assert_eq!(reading.cap, Watts(700.0));
    assert_eq!(reading.enforced, Some(Watts(450.0)));
}

#[test]
fn the_power_of_the_moment_is_preferred_to_an_average() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    let now = gpus[0].read().unwrap().power.unwrap();
    set(&rig, 0, |gpu| gpu.average = Some(Watts(123.4)));
    assert_eq!(gpus[0].read().unwrap().power, Some(now));
    set(&rig, 0, |gpu| gpu.instant = false);
    assert_eq!(gpus[0].read().unwrap().power, Some(Watts(123.4)));
}

#[test]
fn clock_event_reasons_say_what_limits_a_gpu() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    for (reasons, limited, throttle) in [
        (0x0, false, None),
        (0x1, false, None),
        (0x2, false, None),
        (0x4, true, None),
        (0x8, false, Some(Throttle::Hardware)),
        (0x10, false, None),
        (0x20, false, Some(Throttle::Heat)),
        (0x24, true, Some(Throttle::Heat)),
        (0x40, false, Some(Throttle::Heat)),
        (0x48, false, Some(Throttle::Heat)),
        (0x88, false, Some(Throttle::PowerBrake)),
        (0xe8, false, Some(Throttle::Heat)),
        // A reason that is not known yet.
        (0x8000_0004, true, None),
    ] {
        set(&rig, 0, |gpu| gpu.reasons = Some(reasons));
        let reading = gpus[0].read().unwrap();
        let told = (reading.power_limited, reading.throttle);
        assert_eq!(told, (Some(limited), throttle), "{reasons:#x}");
    }
}

/// Processes of a user, as procfs has them.
pub fn live(rig: &Rig, pids: impl IntoIterator<Item = u32>, user: u32) {
    for pid in pids {
        let process = rig.layout().directory.join("empty").join(pid.to_string());
        fs::create_dir_all(&process).unwrap();
        let status = format!("Uid:\t{user}\t{user}\t{user}\t{user}\n");
        fs::write(process.join("status"), status).unwrap();
    }
}

fn holders(gpu: &mut dyn PowerDomain) -> Vec<(u32, u32)> {
    let holders = gpu.holders().unwrap().into_iter();
    holders.map(|holder| (holder.pid, holder.uid)).collect()
}

#[test]
fn holders_are_all_processes_with_a_context() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    rig.hardware().set_holders(1, (4700..4750).rev().collect());
    set(&rig, 1, |gpu| gpu.graphics = vec![4711, 17, 16]);
    live(&rig, 4700..4750, 1000);
    // 16 has ended, and NVML does not know yet.
    live(&rig, [17], 0);
    let all: Vec<_> = std::iter::once((17, 0))
        .chain((4700..4750).map(|pid| (pid, 1000)))
        .collect();
    assert_eq!(holders(gpus[1].as_mut()), all);
    rig.hardware().set_holders(1, Vec::new());
    set(&rig, 1, |gpu| gpu.graphics.clear());
    assert_eq!(holders(gpus[1].as_mut()), []);
}

#[test]
fn in_a_process_namespace_of_its_own_litd_believes_no_holder() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    live(&rig, [4711], 1000);
    rig.hardware().set_holders(1, vec![4711]);
    assert_eq!(holders(gpus[1].as_mut()), [(4711, 1000)]);
    let namespaces = rig.layout().directory.join("empty/self/ns");
    fs::create_dir_all(&namespaces).unwrap();
    std::os::unix::fs::symlink("pid:[4026532561]", namespaces.join("pid")).unwrap();
    let error = gpus[1].holders().unwrap_err().to_string();
    assert!(error.contains("hostPID"), "{error}");
}

#[test]
fn a_gpu_with_instances_is_shared_and_tells_their_processes() {
    let rig = rig();
    rig.hardware().identity_mut(2).unwrap().sharing = Sharing::Mig;
    rig.hardware().set_holders(2, vec![31, 30]);
    live(&rig, [30, 31], 1000);
    let mut gpus = gpus(&rig);
    assert_eq!(gpus[2].identity().sharing, Sharing::Mig);
    assert_eq!(holders(gpus[2].as_mut()), [(30, 1000), (31, 1000)]);
    assert_eq!(gpus.len(), 8);
}

#[test]
fn clients_of_mps_make_a_gpu_shared() {
    let rig = rig();
    rig.hardware().identity_mut(2).unwrap().sharing = Sharing::Mps;
    rig.hardware().set_holders(2, vec![31, 30]);
    live(&rig, [30, 31], 1000);
    let mut gpus = gpus(&rig);
    assert_eq!(gpus[2].identity().sharing, Sharing::Mps);
    assert_eq!(holders(gpus[2].as_mut()), [(30, 1000), (31, 1000)]);
}

#[test]
fn an_mps_server_without_clients_makes_a_gpu_shared() {
    let rig = rig();
    let library = rig.install_nvml().unwrap();
    let search = search(&rig, &library);
    let process = search.proc.join("4711");
    fs::create_dir_all(&process).unwrap();
    // As the kernel cuts nvidia-cuda-mps-server off.
    fs::write(process.join("comm"), "nvidia-cuda-mps\n").unwrap();
    rig.hardware().set_holders(0, vec![4711]);
    let found = nvml::discover(&search);
    let sharing = |gpu: usize| found.domains[gpu].identity().sharing;
    assert_eq!((sharing(0), sharing(1)), (Sharing::Mps, Sharing::Whole));
}

#[test]
fn clocks_are_locked_in_megahertz_and_unlocked() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    assert_eq!(gpus[3].highest_clock(), Ok(Hertz(1.98e9)));
    let range = |lowest, highest| ClockRange {
        lowest: Hertz(lowest),
        highest: Hertz(highest),
    };
    let locked = || rig.hardware().nvidia().gpus[5].clocks;
    gpus[5].lock_clocks(range(1_305e6, 1_410e6)).unwrap();
    assert_eq!(locked(), Some((1305, 1410)));
    let backwards = gpus[5].lock_clocks(range(1_410e6, 1_305e6));
    assert_eq!(backwards.unwrap_err().kind(), "driver");
    assert_eq!(locked(), Some((1305, 1410)));
    gpus[5].unlock_clocks().unwrap();
    assert_eq!(locked(), None);
    rig.hardware().inject(5, Fault::NoPermission);
    let denied = gpus[5].lock_clocks(range(1_305e6, 1_410e6));
    assert_eq!(denied.unwrap_err().kind(), "permission");
    assert_eq!(gpus[5].unlock_clocks().unwrap_err().kind(), "permission");
}

#[test]
fn persistence_mode_off_is_a_warning_with_its_remedy() {
    let rig = rig();
    set(&rig, 6, |gpu| gpu.persistence = false);
    let found = discover(&rig);
    assert_eq!(found.domains.len(), 8);
    let [notice] = &found.notices[..] else {
        panic!("{found:?}");
    };
    assert_eq!(notice.severity, Severity::Warning);
    assert_eq!(notice.subject, "0000:65:00.0");
    assert!(notice.remedy.as_ref().unwrap().contains("nvidia-smi -pm 1"));
}

#[test]
fn many_read_at_once() {
    let rig = rig();
    let gpus = gpus(&rig);
    thread::scope(|scope| {
        for mut gpu in gpus {
            scope.spawn(move || {
                for cap in 0..25 {
                    let cap = Watts(f64::from(600 + cap));
                    gpu.set_cap(cap).unwrap();
                    assert_eq!(gpu.read().unwrap().cap, cap);
                    assert_eq!(gpu.range().unwrap().lowest, Watts(300.0));
                }
            });
        }
    });
    assert_eq!(rig.ledger().len(), 200);
    assert_eq!(rig.ledger().held()[..8], [Watts(624.0); 8]);
    assert_eq!(rig.hardware().nvidia().clients(), 0);
}
