//! Intel CPU sockets below made-up roots of plain files. Behaviour of kernels (a locked BIOS, a lost right) is
//! tested elsewhere.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::tree::{Tree, addresses, notice, only, with_tools};
use litd_power::powercap::discover;
use litd_power::{CapRange, DeviceKind, Operation, PowerError, Reply, Search, Severity, Source};
use litd_units::{Joules, Watts};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use proptest::prelude::*;

const INTEL: &str = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel name\t: Xeon 8480C\n";

const LONG: &str = "constraint_0_power_limit_uw";
const SHORT: &str = "constraint_1_power_limit_uw";

/// 15 bits of eighths of a watt.
const REGISTER: Watts = Watts(4095.875);

fn zone(n: &str) -> String {
    format!("sys/class/powercap/intel-rapl:{n}")
}

/// A socket of 350 W and, for moments, 420 W.
fn socket(tree: &Tree, n: u32) {
    let files = [
        ("name", format!("package-{n}")),
        ("enabled", "1".into()),
        ("energy_uj", "1000000000".into()),
        ("max_energy_range_uj", "262143328850".into()),
        ("constraint_0_name", "long_term".into()),
        (LONG, "350000000".into()),
        ("constraint_0_max_power_uw", "350000000".into()),
        ("constraint_1_name", "short_term".into()),
        (SHORT, "420000000".into()),
        ("constraint_1_max_power_uw", "700000000".into()),
    ];
    for (name, text) in files {
        tree.put(
            format!("{}/{name}", zone(&n.to_string())),
            format!("{text}\n"),
        );
    }
}

fn one() -> Tree {
    let tree = Tree::new();
    tree.put("proc/cpuinfo", INTEL);
    socket(&tree, 0);
    tree
}

fn limits(tree: &Tree) -> (String, String) {
    let zone = zone("0");
    (
        tree.get(format!("{zone}/{LONG}")),
        tree.get(format!("{zone}/{SHORT}")),
    )
}

fn both(long: &str, short: &str) -> (String, String) {
    (long.to_owned(), short.to_owned())
}

#[test]
fn sockets_are_found_and_nothing_below_or_beside_them() {
    let tree = one();
    socket(&tree, 1);
    tree.put(format!("{}/name", zone("0:0")), "dram\n");
    tree.put(format!("{}/{LONG}", zone("0:0")), "41250000\n");
    tree.put(format!("{}/name", zone("2")), "psys\n");
    tree.put(format!("{}/{LONG}", zone("2")), "900000000\n");
    let found = discover(&tree.search());
    assert_eq!(addresses(&found), ["cpu0", "cpu1"]);
    assert_eq!(found.notices, []);
    let identity = found.domains[1].identity();
    assert_eq!(identity.kind, DeviceKind::Cpu);
    assert_eq!(identity.model, "Xeon 8480C");
    assert_eq!(identity.backend, "powercap");
}

#[test]
fn the_cap_is_the_long_term_limit() {
    let tree = one();
    let mut cpu = only(discover(&tree.search()));
    let reading = cpu.read().unwrap();
    assert_eq!(reading.cap, Watts(350.0));
    assert_eq!((reading.enforced, reading.power), (None, None));
    let range = CapRange {
        lowest: Watts(0.0),
        highest: REGISTER,
        default: Watts(350.0),
        resolution: Watts(1.0),
    };
    assert_eq!(cpu.range().unwrap(), range);
    assert!(cpu.holders().unwrap().is_empty());
}

#[test]
fn limits_may_come_in_another_order() {
    let tree = one();
    let zone = zone("0");
    tree.put(format!("{zone}/constraint_0_name"), "short_term\n");
    tree.put(format!("{zone}/constraint_1_name"), "long_term\n");
    let mut cpu = only(discover(&tree.search()));
    assert_eq!(cpu.cap().unwrap(), Watts(420.0));
}

#[test]
fn both_limits_move_in_proportion_and_go_back_to_what_was_found() {
    let tree = one();
    let mut cpu = only(discover(&tree.search()));
    for (cap, expected) in [
        (175.0, both("175000000", "210000000")),
        (200.0, both("200000000", "240000000")),
        (100.5, both("100500000", "120600000")),
        (350.0, both("350000000", "420000000")),
    ] {
        let reply = Operation::Set(Watts(cap)).perform(cpu.as_mut());
        assert_eq!(reply, Reply::Set(Ok(Watts(cap))));
        assert_eq!(limits(&tree), expected);
    }
}

/// A litd that dies after it has set these caps.
fn dies(tree: &Tree, caps: &[f64]) {
    let mut cpu = only(discover(&with_memory(tree)));
    for &cap in caps {
        cpu.set_cap(Watts(cap)).unwrap();
    }
    hold_eighths(tree);
}

/// The short-term limit becomes the register's value.
fn hold_eighths(tree: &Tree) {
    let file = format!("{}/{SHORT}", zone("0"));
    let short: u64 = tree.get(&file).parse().unwrap();
    tree.put(&file, format!("{}\n", short / 125_000 * 125_000));
}

/// Where a litd after a crash finds its predecessor's record.
fn with_memory(tree: &Tree) -> Search {
    Search {
        kept: Some(tree.path("run")),
        ..tree.search()
    }
}

#[test]
fn the_short_term_limit_that_was_found_goes_back_after_crashes() {
    for (long, short, most, lower) in [
        ("350000000", "420000000", "700000000", 260.0),
        ("350000000", "420000000", "700000000", 173.0),
        ("350000000", "350000000", "700000000", 260.0),
        ("350000000", "300000000", "700000000", 260.0),
        ("350000000", "900000000", "700000000", 200.0),
        ("350000000", "4095875000", "0", 260.0),
        ("120000000", "4095875000", "0", 260.0),
    ] {
        let tree = one();
        tree.put("run/others", "");
        let file = |name: &str| format!("{}/{name}", zone("0"));
        tree.put(file(LONG), format!("{long}\n"));
        tree.put(file(SHORT), format!("{short}\n"));
        tree.put(file("constraint_1_max_power_uw"), format!("{most}\n"));
        dies(&tree, &[300.0, lower]);
        // A second litd after it, too.
        dies(&tree, &[250.0]);
        dies(&tree, &[long.parse::<f64>().unwrap() / 1e6]);
        assert_eq!(limits(&tree), both(long, short));
        // No file is left that would be taken for limits found another time.
        assert!(!tree.path("run/cpu0.short-term").exists());
    }
}

#[test]
fn what_a_crash_has_left_is_not_taken_for_what_was_found_once_somebody_else_was_there() {
    let tree = one();
    tree.put("run/others", "");
    dies(&tree, &[175.0]);
    tree.put(format!("{}/{LONG}", zone("0")), "300000000\n");
    tree.put(format!("{}/{SHORT}", zone("0")), "300000000\n");
    let mut cpu = only(discover(&with_memory(&tree)));
    cpu.set_cap(Watts(150.0)).unwrap();
    assert_eq!(limits(&tree), both("150000000", "150000000"));
    cpu.set_cap(Watts(350.0)).unwrap();
    assert_eq!(limits(&tree), both("350000000", "350000000"));
}

/// The undo journal knows caps only: whoever sets one while litd has lowered both limits leaves no undo for the other.
#[test]
fn the_short_term_limit_is_back_after_somebody_else_has_set_the_cap() {
    for (theirs, after) in [
        ("350000000", "420000000"),
        ("330000000", "420000000"),
        ("500000000", "500000000"),
    ] {
        for crashes in [false, true] {
            let tree = one();
            tree.put("run/others", "");
            let mut cpu = only(discover(&with_memory(&tree)));
            cpu.set_cap(Watts(300.0)).unwrap();
            if crashes {
                cpu = only(discover(&with_memory(&tree)));
            }
            tree.put(format!("{}/{LONG}", zone("0")), format!("{theirs}\n"));
            let cap: f64 = theirs.parse().unwrap();
            assert_eq!(cpu.read().unwrap().cap, Watts(cap / 1e6));
            assert_eq!(limits(&tree), both(theirs, after));
            assert!(!tree.path("run/cpu0.short-term").exists());
            // From then on what is there was found.
            cpu.set_cap(Watts(cap / 2e6)).unwrap();
            cpu.set_cap(Watts(cap / 1e6)).unwrap();
            assert_eq!(limits(&tree), both(theirs, after));
        }
    }
}

/// Killed after the first of its two writes: the cap is as found, so no undo looks at the socket.
#[test]
fn half_a_write_is_undone_by_whoever_reads_next() {
    for (caps, long, short, after) in [
        // 350 W was about to become 173 W.
        (&[173.0][..], "350000000", "207600000", "420000000"),
        // 200 W was: the cap is litd's, and goes back with its limit.
        (&[200.0, 173.0], "200000000", "207600000", "240000000"),
    ] {
        let tree = one();
        tree.put("run/others", "");
        dies(&tree, caps);
        tree.put(format!("{}/{LONG}", zone("0")), format!("{long}\n"));
        tree.put(format!("{}/{SHORT}", zone("0")), format!("{short}\n"));
        let mut cpu = only(discover(&with_memory(&tree)));
        cpu.read().unwrap();
        assert_eq!(limits(&tree), both(long, after));
        cpu.set_cap(Watts(350.0)).unwrap();
        assert_eq!(limits(&tree), both("350000000", "420000000"));
    }
}

/// Who only looks at a node writes nothing to it.
#[test]
fn a_reader_mends_no_short_term_limit() {
    let tree = one();
    tree.put("run/others", "");
    dies(&tree, &[300.0]);
    tree.put(format!("{}/{LONG}", zone("0")), "350000000\n");
    let before = limits(&tree);
    let mut cpu = only(discover(&tree.search()));
    cpu.read().unwrap();
    assert_eq!(limits(&tree), before);
}

/// A limit that could not be restored is not changed; one that is restored needs no record.
#[test]
fn no_limit_is_changed_that_could_not_go_back_after_a_crash() {
    let tree = one();
    tree.put("run/cpu0.short-term.new/in the way", "");
    let mut cpu = only(discover(&with_memory(&tree)));
    let error = cpu.set_cap(Watts(175.0)).unwrap_err().to_string();
    assert!(error.contains("cpu0.short-term"), "{error}");
    assert_eq!(limits(&tree), both("350000000", "420000000"));
    cpu.set_cap(Watts(350.0)).unwrap();
    // Without the directory litd may still undo.
    tree.remove("run");
    cpu.set_cap(Watts(175.0)).unwrap();
    assert_eq!(limits(&tree), both("175000000", "210000000"));
}

/// A litd that is killed in between leaves no change that its journal takes for restored.
#[test]
fn the_cap_goes_back_last() {
    let tree = one();
    let mut cpu = only(discover(&tree.search()));
    cpu.set_cap(Watts(175.0)).unwrap();
    let _sealed = seal(&tree, SHORT);
    let long = File::open(tree.path(zone("0")).join(LONG)).unwrap();
    long.set_modified(UNIX_EPOCH).unwrap();
    cpu.release();
    let error = cpu.set_cap(Watts(350.0)).unwrap_err();
    assert!(error.to_string().contains(SHORT), "{error}");
    assert_eq!(long.metadata().unwrap().modified().unwrap(), UNIX_EPOCH);
}

#[test]
fn a_proportion_that_somebody_else_sets_is_the_new_one() {
    let tree = one();
    let mut cpu = only(discover(&tree.search()));
    cpu.set_cap(Watts(175.0)).unwrap();
    tree.put(format!("{}/{LONG}", zone("0")), "300000000\n");
    tree.put(format!("{}/{SHORT}", zone("0")), "300000000\n");
    cpu.set_cap(Watts(150.0)).unwrap();
    assert_eq!(limits(&tree), both("150000000", "150000000"));
}

/// Replaces one of the limits' files by one that can be read and opened, but not written.
fn seal(tree: &Tree, name: &str) -> File {
    let path = format!("{}/{name}", zone("0"));
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let mut file = File::from(memfd_create("sealed", flags).unwrap());
    file.write_all(tree.get(&path).as_bytes()).unwrap();
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE)).unwrap();
    tree.remove(&path);
    tree.link(path, format!("/proc/self/fd/{}", file.as_raw_fd()));
    file
}

/// If litd is killed between its two writes, the first one has been made.
#[test]
fn the_short_term_limit_is_lowered_first_and_raised_last() {
    for (first, second, cap) in [(SHORT, LONG, 175.0), (LONG, SHORT, 400.0)] {
        let tree = one();
        let _sealed = seal(&tree, first);
        let other = File::open(tree.path(zone("0")).join(second)).unwrap();
        other.set_modified(UNIX_EPOCH).unwrap();
        let mut cpu = only(discover(&tree.search()));
        let error = cpu.set_cap(Watts(cap)).unwrap_err();
        assert!(error.to_string().contains(first), "{error}");
        // Not even written and put back.
        let modified = other.metadata().unwrap().modified().unwrap();
        assert_eq!(modified, UNIX_EPOCH, "{second}");
    }
}

#[test]
fn a_change_of_which_half_is_refused_is_none() {
    for (second, cap) in [(LONG, 175.0), (SHORT, 400.0)] {
        let tree = one();
        let _sealed = seal(&tree, second);
        let mut cpu = only(discover(&tree.search()));
        let error = cpu.set_cap(Watts(cap)).unwrap_err();
        assert!(error.to_string().contains(second), "{error}");
        assert_eq!(limits(&tree), both("350000000", "420000000"));
    }
}

#[test]
fn a_socket_with_one_limit_is_capped_by_it() {
    let tree = one();
    tree.remove(format!("{}/constraint_1_name", zone("0")));
    let mut cpu = only(discover(&tree.search()));
    cpu.set_cap(Watts(175.0)).unwrap();
    assert_eq!(limits(&tree), both("175000000", "420000000"));
}

#[test]
fn what_the_hardware_would_cut_off_is_refused() {
    let tree = one();
    let mut cpu = only(discover(&tree.search()));
    for asked in [0.0, -1.0, 4095.876, 5000.0, f64::NAN, f64::INFINITY] {
        let error = cpu.set_cap(Watts(asked)).unwrap_err();
        assert!(
            matches!(error, PowerError::OutOfRange { highest, .. } if highest == REGISTER),
            "{error}"
        );
    }
    assert_eq!(limits(&tree), both("350000000", "420000000"));
}

/// A daemon after a crash finds its predecessor's cap, and must restore the cap that the predecessor had found.
#[test]
fn what_was_found_can_go_back_after_a_crash_whatever_the_vendor_names() {
    for named in [Some("0\n"), Some("300000000\n"), None] {
        let tree = one();
        let file = format!("{}/constraint_0_max_power_uw", zone("0"));
        match named {
            Some(text) => tree.put(file, text),
            None => tree.remove(file),
        }
        only(discover(&tree.search()))
            .set_cap(Watts(175.0))
            .unwrap();
        let mut cpu = only(discover(&tree.search()));
        let range = cpu.range().unwrap();
        assert_eq!((range.highest, range.default), (REGISTER, Watts(175.0)));
        cpu.set_cap(Watts(350.0)).unwrap();
        assert_eq!(cpu.cap().unwrap(), Watts(350.0));
    }
}

#[test]
fn a_limit_above_the_vendors_is_possible_and_one_that_is_none_is_noticed() {
    let tree = one();
    tree.put(format!("{}/{LONG}", zone("0")), "400000000\n");
    let found = discover(&tree.search());
    assert_eq!(found.notices, []);
    assert_eq!(only(found).range().unwrap().default, Watts(400.0));
    tree.put(format!("{}/{LONG}", zone("0")), "4095875000\n");
    let found = discover(&tree.search());
    assert!(
        notice(&found, Severity::Warning)
            .text
            .contains("4095.875 W")
    );
}

#[test]
fn limits_that_are_switched_off_are_not_set() {
    let tree = one();
    tree.put(format!("{}/enabled", zone("0")), "0\n");
    let found = discover(&tree.search());
    assert!(
        notice(&found, Severity::Error)
            .text
            .contains("switched off")
    );
    let error = only(found).set_cap(Watts(200.0)).unwrap_err();
    assert!(error.to_string().contains("write 1 to"), "{error}");
    assert_eq!(limits(&tree), both("350000000", "420000000"));
}

#[test]
fn energy_only_grows_and_power_is_its_rate() {
    let tree = one();
    let file = format!("{}/energy_uj", zone("0"));
    let mut cpu = only(discover(&tree.search()));
    let begin = Instant::now();
    let energy = cpu.read().unwrap().energy.unwrap();
    thread::sleep(Duration::from_millis(60));
    // 5 J, over the counter's end.
    tree.put(format!("{}/max_energy_range_uj", zone("0")), "1003000000\n");
    tree.put(&file, "2000000\n");
    let reading = cpu.read().unwrap();
    let (least, most) = (5.0 / begin.elapsed().as_secs_f64(), 5.0 / 0.06);
    assert_eq!(reading.energy, Some(energy + Joules(5.0)));
    let power = reading.power.unwrap().0;
    assert!((least..=most).contains(&power), "{power}");
    tree.remove(&file);
    cpu.release();
    let reading = cpu.read().unwrap();
    assert_eq!((reading.energy, reading.power), (None, None));
}

#[test]
fn power_from_before_a_cap_was_set_is_told_no_more() {
    let tree = one();
    let file = format!("{}/energy_uj", zone("0"));
    let mut cpu = only(discover(&tree.search()));
    cpu.read().unwrap();
    thread::sleep(Duration::from_millis(60));
    tree.put(&file, "1018000000\n");
    assert!(cpu.read().unwrap().power.is_some());
    let begin = Instant::now();
    cpu.set_cap(Watts(175.0)).unwrap();
    let power = cpu.read().unwrap().power;
    // No energy was used since, however long that took.
    assert_eq!(power, None);
    thread::sleep(Duration::from_millis(60));
    tree.put(&file, "1023000000\n");
    let power = cpu.read().unwrap().power.unwrap().0;
    let (least, most) = (5.0 / begin.elapsed().as_secs_f64(), 5.0 / 0.06);
    assert!((least..=most).contains(&power), "{power}");
}

#[test]
fn a_second_limit_in_memory_is_enforced_and_not_a_socket() {
    let tree = one();
    let other = "sys/class/powercap/intel-rapl-mmio:0";
    tree.put(format!("{other}/name"), "package-0\n");
    tree.put(format!("{other}/constraint_0_name"), "long_term\n");
    tree.put(format!("{other}/{LONG}"), "250000000\n");
    let found = discover(&tree.search());
    assert!(
        notice(&found, Severity::Info)
            .text
            .contains("lower limit applies")
    );
    assert_eq!(only(found).read().unwrap().enforced, Some(Watts(250.0)));
    // Where there is no other zone, this is the socket's.
    tree.remove(zone("0"));
    assert_eq!(only(discover(&tree.search())).cap().unwrap(), Watts(250.0));
}

const MEMORY: &str = "sys/class/powercap/intel-rapl-mmio:0";

/// The other zone of the socket, with these limits.
fn in_memory(tree: &Tree, long: u32, has_short: bool) {
    tree.put(format!("{MEMORY}/name"), "package-0\n");
    tree.put(format!("{MEMORY}/constraint_0_name"), "long_term\n");
    tree.put(format!("{MEMORY}/{LONG}"), format!("{long}000000\n"));
    if has_short {
        tree.put(format!("{MEMORY}/constraint_1_name"), "short_term\n");
        tree.put(
            format!("{MEMORY}/{SHORT}"),
            format!("{}000000\n", long * 6 / 5),
        );
    }
}

/// What one litd has lowered in one zone the next one gives back there, whichever zones have come since: each has
/// limits of its own, and the lower one rules.
#[test]
fn a_limit_goes_back_in_the_zone_in_which_it_was_changed() {
    for has_short in [false, true] {
        let tree = one();
        tree.put("run/others", "");
        tree.remove(zone("0"));
        in_memory(&tree, 350, has_short);
        let mut cpu = only(discover(&with_memory(&tree)));
        cpu.set_cap(Watts(300.0)).unwrap();
        // It dies, and the module of the other zone is loaded.
        socket(&tree, 0);
        let found = discover(&with_memory(&tree));
        let said = notice(&found, Severity::Info);
        assert!(said.subject.ends_with("intel-rapl:0"), "{said}");
        let mut cpu = only(found);
        assert_eq!(cpu.read().unwrap().cap, Watts(300.0));
        cpu.set_cap(Watts(350.0)).unwrap();
        assert_eq!(tree.get(format!("{MEMORY}/{LONG}")), "350000000");
        if has_short {
            assert_eq!(tree.get(format!("{MEMORY}/{SHORT}")), "420000000");
        }
        assert_eq!(limits(&tree), both("350000000", "420000000"));
        // From then on it is the usual one.
        in_memory(&tree, 250, has_short);
        assert_eq!(
            only(discover(&with_memory(&tree))).cap().unwrap(),
            Watts(350.0)
        );
    }
}

#[test]
fn a_socket_whose_changed_zone_is_not_there_is_not_taken_for_its_other_one() {
    let tree = one();
    tree.put("run/others", "");
    dies(&tree, &[300.0]);
    in_memory(&tree, 350, true);
    let away = tree.path("away");
    std::fs::rename(tree.path(zone("0")), &away).unwrap();
    let found = discover(&with_memory(&tree));
    assert_eq!(addresses(&found), [""; 0]);
    assert_eq!(notice(&found, Severity::Error).subject, "cpu0");
    std::fs::rename(away, tree.path(zone("0"))).unwrap();
    assert_eq!(
        only(discover(&with_memory(&tree))).cap().unwrap(),
        Watts(300.0)
    );
}

/// A place among those that are there is no address: the undo journal names sockets by theirs, and a zone that is
/// missing at the next start must not have another one's cap written to it.
#[test]
fn dies_with_limits_of_their_own_are_sockets_and_keep_their_addresses() {
    let tree = one();
    tree.remove(zone("0"));
    let names = [
        "package-0-die-0",
        "package-1-die-0",
        "package-10-die-0",
        "package-0-die-1",
    ];
    for (n, name) in (0..).zip(names) {
        socket(&tree, n);
        tree.put(format!("{}/name", zone(&n.to_string())), name);
    }
    assert_eq!(
        addresses(&discover(&tree.search())),
        ["cpu0-die0", "cpu0-die1", "cpu1-die0", "cpu10-die0"]
    );
    tree.remove(zone("0"));
    assert_eq!(
        addresses(&discover(&tree.search())),
        ["cpu0-die1", "cpu1-die0", "cpu10-die0"]
    );
}

#[test]
fn a_zone_without_limits_only_counts() {
    let tree = one();
    for name in ["constraint_0_name", LONG] {
        tree.remove(format!("{}/{name}", zone("0")));
    }
    tree.put(
        "proc/cpuinfo",
        "vendor_id : AuthenticAMD\nmodel name : AMD EPYC 9654\n",
    );
    let found = discover(&tree.search());
    assert_eq!(addresses(&found), [""; 0]);
    assert!(
        notice(&found, Severity::Info)
            .text
            .contains("only counts energy")
    );
}

#[test]
fn an_intel_node_without_limits_is_told_what_to_load() {
    let tree = Tree::new();
    tree.put("proc/cpuinfo", INTEL);
    let found = discover(&tree.search());
    let notice = notice(&found, Severity::Warning);
    assert!(
        notice.to_string().contains("modprobe intel_rapl_msr"),
        "{notice}"
    );
    tree.remove("proc/cpuinfo");
    assert_eq!(discover(&tree.search()).notices, []);
}

#[test]
fn a_limit_that_can_not_be_read_is_a_socket_all_the_same() {
    let tree = one();
    tree.put(format!("{}/{LONG}", zone("0")), "\n");
    let found = discover(&tree.search());
    notice(&found, Severity::Error);
    let mut cpu = only(found);
    assert!(cpu.read().unwrap_err().to_string().contains(LONG));
    tree.put(format!("{}/{LONG}", zone("0")), "350000000\n");
    assert_eq!(cpu.read().unwrap().cap, Watts(350.0));
    assert_eq!(cpu.range().unwrap().default, Watts(350.0));
}

#[test]
fn a_zone_that_vanishes_is_gone() {
    let tree = one();
    let mut cpu = only(discover(&tree.search()));
    tree.remove(zone("0"));
    for error in [
        cpu.read().unwrap_err(),
        cpu.set_cap(Watts(9.0)).unwrap_err(),
    ] {
        assert!(matches!(error, PowerError::Gone { .. }), "{error}");
    }
}

#[test]
fn another_tool_that_sets_limits_is_noticed() {
    let tree = one();
    tree.put("proc/77/comm", "thermald\n");
    let found = with_tools(discover, &tree);
    assert_eq!(notice(&found, Severity::Warning).subject, "thermald");
}

/// Whoever waits no longer for what comes after it has the part that was found.
#[test]
fn sockets_of_powercap_are_told_before_the_next_back_end_is_asked() {
    let tree = one();
    tree.sockets(1);
    let mut parts = Vec::new();
    let patience = Duration::from_secs(4);
    litd_power::discover_in_parts(&tree.search(), Source::Cpus, patience, |part| {
        // HSMP is there only once powercap has told what it has found.
        let hwmon = "sys/class/hwmon/hwmon0";
        tree.put(format!("{hwmon}/name"), "amd_hsmp_hwmon\n");
        tree.put(format!("{hwmon}/power1_cap"), "360000000\n");
        parts.push(addresses(&part));
    });
    assert_eq!(parts, [["cpu0"], ["cpu0"]]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// In any order of any settings, the short-term limit is never the lower one.
    #[test]
    fn the_short_term_limit_is_never_the_lower_one(
        caps in prop::collection::vec(1u32..=350, 1..6),
        short in 350u32..800,
    ) {
        let tree = one();
        tree.put(format!("{}/{SHORT}", zone("0")), format!("{short}000000\n"));
        let found = limits(&tree);
        let mut cpu = only(discover(&tree.search()));
        for cap in caps {
            cpu.set_cap(Watts(cap.into())).unwrap();
            let (long, short) = limits(&tree);
            prop_assert_eq!(long.parse::<u64>(), Ok(u64::from(cap) * 1_000_000));
            prop_assert!(short.parse::<u64>().unwrap() >= long.parse().unwrap());
        }
        cpu.set_cap(Watts(350.0)).unwrap();
        prop_assert_eq!(limits(&tree), found);
    }

    /// Caps that an administrator sets by hand, through litds of which any may die after any of them: the short-term
    /// limit is in the proportion that was found, nothing changes it later, and the first cap brings both limits back
    /// exactly.
    #[test]
    fn overrides_keep_the_proportion_found_and_the_first_cap_brings_both_limits_back(
        steps in prop::collection::vec((1u32..=600, any::<bool>()), 1..8),
        short in 350u32..800,
    ) {
        let tree = one();
        tree.put("run/others", "");
        tree.put(format!("{}/{SHORT}", zone("0")), format!("{short}000000\n"));
        let found = limits(&tree);
        let mut cpu = only(discover(&with_memory(&tree)));
        let mut most = short.max(700);
        for (cap, dies) in steps {
            cpu.set_cap(Watts(cap.into())).unwrap();
            hold_eighths(&tree);
            let set = limits(&tree);
            most = most.max(cap);
            let kept = (f64::from(short) * f64::from(cap) / 350.0).min(most.into()).max(cap.into());
            let now = set.1.parse::<f64>().unwrap() / 1e6;
            prop_assert!((now - kept).abs() <= 0.125, "{now} W beside {cap} W, not {kept} W");
            if dies {
                cpu = only(discover(&with_memory(&tree)));
            }
            cpu.read().unwrap();
            prop_assert_eq!(limits(&tree), set);
        }
        cpu.set_cap(Watts(350.0)).unwrap();
        prop_assert_eq!(limits(&tree), found);
        prop_assert!(!tree.path("run/cpu0.short-term").exists());
    }

    #[test]
    fn any_bytes_in_any_file_are_a_reading_or_an_error(
        file in prop::sample::select(vec![
            LONG, SHORT, "name", "energy_uj", "max_energy_range_uj", "enabled",
            "constraint_0_name", "constraint_0_max_power_uw", "constraint_1_max_power_uw",
        ]),
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..80),
            "[0-9]{0,25}\n?".prop_map(String::into_bytes),
        ],
    ) {
        let tree = one();
        tree.put(format!("{}/{file}", zone("0")), &bytes);
        for mut cpu in discover(&tree.search()).domains {
            match cpu.read() {
                Ok(reading) => prop_assert!(reading.cap.is_finite()),
                Err(error) => prop_assert!(error.to_string().starts_with("cpu")),
            }
            let _ = (cpu.range(), cpu.set_cap(Watts(120.0)));
        }
    }
}

/// The driver is loaded anew, and the zones have swapped numbers.
#[test]
fn a_zone_is_known_by_what_it_is_called() {
    let tree = one();
    socket(&tree, 1);
    let mut cpus = discover(&tree.search()).domains;
    assert_eq!(cpus[0].cap().unwrap(), Watts(350.0));
    for (n, name) in [("0", "package-1"), ("1", "package-0")] {
        tree.put(format!("{}/name", zone(n)), format!("{name}\n"));
    }
    cpus[0].set_cap(Watts(200.0)).unwrap();
    assert_eq!(tree.get(format!("{}/{LONG}", zone("1"))), "200000000");
    assert_eq!(limits(&tree).0, "350000000");
}
