//! AMD EPYC sockets below made-up roots of plain files. Messages to `/dev/hsmp` need a file that
//! answers them and are tried elsewhere.

use crate::tree::{Tree, addresses, notice, only};
use litd_power::hsmp::discover;
use litd_power::{
    CapRange, DeviceKind, Operation, PowerError, Reading, Reply, Search, Severity, Source,
};
use litd_units::{Joules, Watts};
use proptest::prelude::*;

const EPYC: &str =
    "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel name\t: AMD EPYC 9654 96-Core Processor\n";

fn hwmon(n: u32) -> String {
    format!("sys/class/hwmon/hwmon{n}")
}

fn socket(tree: &Tree, n: u32, limit: &str) {
    let files = [
        ("name", "amd_hsmp_hwmon"),
        ("power1_input", "187345000"),
        ("power1_cap", limit),
        ("power1_cap_max", "400000000"),
    ];
    for (name, text) in files {
        tree.put(format!("{}/{name}", hwmon(n)), format!("{text}\n"));
    }
}

fn one() -> Tree {
    let tree = Tree::new();
    tree.put("proc/cpuinfo", EPYC);
    tree.sockets(1);
    socket(&tree, 3, "360000000");
    tree
}

#[test]
fn a_socket_is_read_in_its_units() {
    let tree = one();
    let mut cpu = only(discover(&tree.search()));
    let identity = cpu.identity();
    assert_eq!(identity.kind, DeviceKind::Cpu);
    assert_eq!(identity.address, "cpu0");
    assert_eq!(identity.model, "AMD EPYC 9654 96-Core Processor");
    assert_eq!(identity.backend, "hsmp");
    let reading = Reading {
        cap: Watts(360.0),
        power: Some(Watts(187.345)),
        ..Reading::default()
    };
    assert_eq!(cpu.read().unwrap(), reading);
    let range = CapRange {
        lowest: Watts(0.0),
        highest: Watts(400.0),
        default: Watts(360.0),
        resolution: Watts(1.0),
    };
    assert_eq!(cpu.range().unwrap(), range);
    assert!(cpu.holders().unwrap().is_empty());
}

/// The firmware tells the power of a moment only; Linux counts what AMD's sockets use, and limits nothing there.
#[test]
fn a_sockets_energy_is_counted_where_linux_counts_it() {
    let tree = one();
    tree.sockets(2);
    socket(&tree, 4, "310000000");
    let mut cpus = discover(&tree.search()).domains;
    assert_eq!(cpus[0].read().unwrap().energy, None);
    for (zone, package, counter) in [(0, 1, "7000000"), (1, 0, "5000000")] {
        let zone = format!("sys/class/powercap/intel-rapl:{zone}");
        tree.put(format!("{zone}/name"), format!("package-{package}\n"));
        tree.put(format!("{zone}/energy_uj"), format!("{counter}\n"));
        tree.put(format!("{zone}/max_energy_range_uj"), "65532610987\n");
    }
    let mut cpus = discover(&tree.search()).domains;
    let mut energy = |at: usize| cpus[at].read().unwrap().energy;
    assert_eq!(energy(0), Some(Joules(5.0)));
    assert_eq!(energy(1), Some(Joules(7.0)));
    tree.put("sys/class/powercap/intel-rapl:1/energy_uj", "5250000\n");
    assert_eq!(energy(0), Some(Joules(5.25)));
    // A counter that can't be read any more is none, and the power of a moment stays.
    tree.put("sys/class/powercap/intel-rapl:1/energy_uj", "-\n");
    let reading = cpus[0].read().unwrap();
    assert_eq!(
        (reading.energy, reading.power),
        (None, Some(Watts(187.345)))
    );
}

#[test]
fn sockets_are_numbered_as_their_driver_made_them() {
    let tree = one();
    tree.sockets(2);
    socket(&tree, 10, "310000000");
    tree.put(format!("{}/name", hwmon(2)), "k10temp\n");
    let caps = |tree: &Tree| {
        let found = discover(&tree.search());
        assert_eq!(addresses(&found), ["cpu0", "cpu1"]);
        let domains = found.domains.into_iter();
        domains
            .map(|mut cpu| cpu.cap().unwrap().0)
            .collect::<Vec<_>>()
    };
    assert_eq!(caps(&tree), [360.0, 310.0]);
    // Newer drivers have a device per socket, and sensors may have come up in another order.
    tree.link(format!("{}/device", hwmon(3)), "../../../AMDI0097:01");
    tree.link(format!("{}/device", hwmon(10)), "../../../AMDI0097:00");
    assert_eq!(caps(&tree), [310.0, 360.0]);
    // A socket whose driver did not come up leaves the others' numbers alone.
    tree.remove(hwmon(10));
    assert_eq!(addresses(&discover(&tree.search())), ["cpu1"]);
}

/// The undo journal names sockets by their addresses: another one's would be written to.
#[test]
fn a_socket_whose_neighbours_sensors_did_not_come_up_is_not_taken_for_that() {
    for device in ["amd_hsmp", "AMDI0097:00"] {
        let tree = Tree::new();
        tree.put("proc/cpuinfo", EPYC);
        tree.sockets(2);
        placed(&tree, device, 5, "amd_hsmp_hwmon", "360000000");
        placed(&tree, device, 6, "amd_hsmp_hwmon", "310000000");
        assert_eq!(addresses(&discover(&tree.search())), ["cpu0", "cpu1"]);
        tree.remove(format!("sys/devices/{device}/hwmon/hwmon5"));
        tree.remove(hwmon(5));
        let found = discover(&tree.search());
        match device {
            "amd_hsmp" => {
                assert_eq!(addresses(&found), [""; 0]);
                let said = notice(&found, Severity::Error);
                assert!(said.text.starts_with("only 1 of 2 CPU sockets"), "{said}");
            }
            _ => assert_eq!(addresses(&found), ["cpu0"]),
        }
        // Nor where the kernel does not tell how many sockets there are.
        tree.remove("sys/devices/system");
        let found = discover(&tree.search());
        assert_eq!(found.domains.len(), usize::from(device != "amd_hsmp"));
    }
}

#[test]
fn a_socket_has_the_number_that_its_firmware_gives_it() {
    let tree = Tree::new();
    tree.put("proc/cpuinfo", EPYC);
    for (device, n, uid) in [("AMDI0097:00", 4, "ID01"), ("AMDI0097:01", 5, "ID00")] {
        placed(&tree, device, n, "amd_hsmp_hwmon", &format!("{n}00000000"));
        tree.put(
            format!("sys/devices/{device}/firmware_node/uid"),
            format!("{uid}\n"),
        );
    }
    let mut found = discover(&tree.search());
    assert_eq!(addresses(&found), ["cpu0", "cpu1"]);
    assert_eq!(found.domains[0].cap().unwrap(), Watts(500.0));
}

#[test]
fn a_cap_is_written_in_whole_milliwatts() {
    let tree = one();
    let mut cpu = only(discover(&tree.search()));
    for (asked, written) in [
        (Watts(250.0), "250000000"),
        (Watts(99.999_9), "99999000"),
        (Watts(400.0), "400000000"),
    ] {
        let reply = Operation::Set(asked).perform(cpu.as_mut());
        let held = Watts((asked.0 * 1000.0).floor() / 1000.0);
        assert_eq!(reply, Reply::Set(Ok(held)));
        assert_eq!(tree.get(format!("{}/power1_cap", hwmon(3))), written);
    }
}

#[test]
fn what_the_firmware_would_clamp_is_refused() {
    let tree = one();
    let mut cpu = only(discover(&tree.search()));
    for asked in [0.0, 0.000_5, -1.0, 400.001, 1e9, f64::NAN, f64::INFINITY] {
        let error = cpu.set_cap(Watts(asked)).unwrap_err();
        assert!(
            matches!(error, PowerError::OutOfRange { highest, .. } if highest == Watts(400.0)),
            "{error}"
        );
    }
    assert_eq!(cpu.cap().unwrap(), Watts(360.0));
    tree.put(format!("{}/power1_cap_max", hwmon(3)), "0\n");
    assert_eq!(cpu.set_cap(Watts(100.0)).unwrap_err().kind(), "driver");
    assert_eq!(cpu.range().unwrap_err().kind(), "driver");
}

#[test]
fn a_limit_that_can_not_be_read_is_a_socket_all_the_same() {
    let tree = one();
    tree.put(format!("{}/power1_cap", hwmon(3)), "");
    let found = discover(&tree.search());
    notice(&found, Severity::Error);
    let mut cpu = only(found);
    assert!(cpu.read().unwrap_err().to_string().contains("power1_cap"));
    tree.put(format!("{}/power1_cap", hwmon(3)), "300000000\n");
    assert_eq!(cpu.cap().unwrap(), Watts(300.0));
    assert_eq!(cpu.range().unwrap().default, Watts(400.0));
}

#[test]
fn a_socket_that_vanishes_is_gone() {
    let tree = one();
    let mut cpu = only(discover(&tree.search()));
    cpu.read().unwrap();
    cpu.release();
    tree.remove(hwmon(3));
    for error in [
        cpu.read().unwrap_err(),
        cpu.set_cap(Watts(9.0)).unwrap_err(),
    ] {
        assert!(matches!(error, PowerError::Gone { .. }), "{error}");
    }
}

#[test]
fn an_epyc_without_its_driver_is_told_what_to_load() {
    let tree = Tree::new();
    tree.put("proc/cpuinfo", EPYC);
    let found = discover(&tree.search());
    let said = notice(&found, Severity::Warning).to_string();
    assert!(
        said.contains("modprobe amd_hsmp") && said.contains("BIOS"),
        "{said}"
    );
    assert!(said.contains("dev/hsmp"), "{said}");
    tree.put("proc/cpuinfo", EPYC.replace("25", "23"));
    let found = discover(&tree.search());
    assert!(
        notice(&found, Severity::Info)
            .text
            .contains("older than HSMP")
    );
}

#[test]
fn a_device_that_knows_no_messages_is_an_error() {
    let tree = Tree::new();
    tree.put("proc/cpuinfo", EPYC);
    tree.put("dev/hsmp", "");
    let found = discover(&tree.search());
    assert_eq!(addresses(&found), [""; 0]);
    assert!(
        notice(&found, Severity::Error)
            .text
            .contains("does not answer")
    );
}

#[test]
fn other_processors_are_worth_a_word_at_most() {
    let tree = Tree::new();
    let found = discover(&tree.search());
    assert!(
        notice(&found, Severity::Info)
            .text
            .contains("no power limits")
    );
    tree.put("proc/cpuinfo", "vendor_id : GenuineIntel\n");
    assert_eq!(discover(&tree.search()).notices, []);
}

#[test]
fn of_two_devices_with_one_address_the_first_is_used() {
    let tree = one();
    let zone = "sys/class/powercap/intel-rapl:0";
    for (name, text) in [
        ("name", "package-0"),
        ("constraint_0_name", "long_term"),
        ("constraint_0_power_limit_uw", "350000000"),
        ("energy_uj", "0"),
    ] {
        tree.put(format!("{zone}/{name}"), format!("{text}\n"));
    }
    let found = litd_power::discover(&tree.search(), Source::Cpus);
    assert_eq!(addresses(&found), ["cpu0"]);
    let notice = notice(&found, Severity::Error);
    assert_eq!(notice.subject, "cpu0");
    assert!(notice.text.contains("hsmp") && notice.text.contains("powercap"));
    assert_eq!(only(found).identity().backend, "powercap");
}

#[test]
fn an_absurd_range_is_the_drivers_error() {
    let tree = one();
    let file = format!("{}/power1_cap_max", hwmon(3));
    tree.put(file, "18446744073709551615\n");
    let error = only(discover(&tree.search())).range().unwrap_err();
    assert_eq!(error.kind(), "driver", "{error}");
}

/// As in a container without anything: all sources, none of them an error.
#[test]
fn a_machine_with_nothing_has_nothing_and_no_error() {
    let tree = Tree::new();
    for root in ["", "missing"] {
        let search = Search {
            sys: tree.path("sys").join(root),
            dev: tree.path("dev").join(root),
            proc: tree.path("proc").join(root),
            ..Search::default()
        };
        for source in [Source::Amd, Source::Cpus] {
            let found = litd_power::discover(&search, source);
            assert!(found.domains.is_empty(), "{found:?}");
            assert!(
                found.notices.iter().all(|n| n.severity < Severity::Error),
                "{found:?}"
            );
            // An empty folder is a node without devices; a missing one may be a mistake.
            let told = found
                .notices
                .iter()
                .any(|n| n.text.contains("is not there"));
            assert_eq!(
                told,
                root == "missing" && source == Source::Amd,
                "{found:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_bytes_in_any_file_are_a_reading_or_an_error(
        file in prop::sample::select(vec!["name", "power1_cap", "power1_cap_max", "power1_input"]),
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..80),
            "[0-9]{0,25}\n?".prop_map(String::into_bytes),
        ],
    ) {
        let tree = one();
        tree.put(format!("{}/{file}", hwmon(3)), &bytes);
        for mut cpu in discover(&tree.search()).domains {
            match cpu.read() {
                Ok(reading) => prop_assert!(reading.cap.is_finite()),
                Err(error) => prop_assert!(error.to_string().starts_with("cpu0")),
            }
            let _ = (cpu.range(), cpu.set_cap(Watts(120.0)));
        }
    }
}

/// A folder of sensors as the kernel has it: below its device, and a link to it among all of them.
fn placed(tree: &Tree, device: &str, n: u32, name: &str, limit: &str) {
    let folder = format!("sys/devices/{device}/hwmon/hwmon{n}");
    for (file, text) in [
        ("name", name),
        ("power1_input", "187345000"),
        ("power1_cap", limit),
        ("power1_cap_max", "900000000"),
    ] {
        tree.put(format!("{folder}/{file}"), format!("{text}\n"));
    }
    tree.link(format!("{folder}/device"), "../..");
    tree.link(hwmon(n), format!("../../devices/{device}/hwmon/hwmon{n}"));
}

/// Both drivers are loaded anew, and come up in another order: the number of the socket's folder is a GPU's now.
#[test]
fn another_drivers_folder_is_no_sockets() {
    let tree = Tree::new();
    tree.put("proc/cpuinfo", EPYC);
    placed(&tree, "gpu", 4, "amdgpu", "700000000");
    placed(&tree, "AMDI0097:00", 6, "amd_hsmp_hwmon", "360000000");
    let mut cpu = only(discover(&tree.search()));
    assert_eq!(cpu.cap().unwrap(), Watts(360.0));
    for n in [4, 6] {
        tree.remove(hwmon(n));
    }
    tree.remove("sys/devices/gpu/hwmon/hwmon4");
    tree.remove("sys/devices/AMDI0097:00/hwmon/hwmon6");
    placed(&tree, "AMDI0097:00", 4, "amd_hsmp_hwmon", "360000000");
    placed(&tree, "gpu", 6, "amdgpu", "700000000");
    assert_eq!(cpu.cap().unwrap(), Watts(360.0));
    cpu.set_cap(Watts(200.0)).unwrap();
    assert_eq!(tree.get(format!("{}/power1_cap", hwmon(4))), "200000000");
    assert_eq!(tree.get(format!("{}/power1_cap", hwmon(6))), "700000000");
}
