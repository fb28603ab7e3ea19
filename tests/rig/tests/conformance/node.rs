//! The stand-in hardware as litd sees it, over a real socket, with all its faults.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::{SOON, domains, rig, write};
use litd_power::{DeviceKind, Holder, Operation, PowerError, Reply, Throttle, simulated};
use litd_rig::{Author, Fault, gpu_address};
use litd_units::{Celsius, Hertz, Watts};

#[test]
fn devices_are_listed_and_say_that_they_are_simulated() {
    let rig = rig();
    let mut domains = domains(&rig);
    let kinds: Vec<_> = domains
        .iter()
        .map(|domain| domain.identity().kind)
        .collect();
    assert_eq!(kinds[..8], [DeviceKind::Gpu; 8]);
    assert_eq!(kinds[8..], [DeviceKind::Cpu; 2]);
    assert!(
        domains
            .iter()
            .all(|domain| domain.identity().backend == "simulated")
    );
    assert_eq!(domains[0].identity().address, "0000:05:00.0");
    assert_eq!(domains[9].identity().address, "cpu1");
    let mut addresses: Vec<_> = (0..40).map(gpu_address).collect();
    addresses.dedup();
    assert_eq!(addresses.len(), 40);

    let range = domains[3].range().unwrap();
    let of_gpu = [range.lowest, range.highest, range.default, range.resolution];
    assert_eq!(of_gpu, [300.0, 750.0, 750.0, 1.0].map(Watts));
    let range = domains[8].range().unwrap();
    let of_cpu = [range.lowest, range.highest, range.default];
    assert_eq!(of_cpu, [100.0, 400.0, 400.0].map(Watts));
}

#[test]
fn caps_are_set_in_whole_units_and_read_back() {
    let rig = rig();
    let mut domains = domains(&rig);
    write(&mut domains, &[(2, 650.9), (8, 250.7)]);
    assert_eq!(domains[2].cap().unwrap(), Watts(650.0));
    assert_eq!(domains[8].cap().unwrap(), Watts(250.0));
    let hardware = rig.hardware();
    assert_eq!(hardware.plant().gpu_cap(2).unwrap(), Watts(650.0));
    assert_eq!(hardware.plant().cpu_limit(0).unwrap(), Watts(250.0));
}

#[test]
fn a_cap_out_of_range_is_refused_with_the_range() {
    let rig = rig();
    let mut domains = domains(&rig);
    let error = domains[0].set_cap(Watts(751.0)).unwrap_err();
    let expected = PowerError::OutOfRange {
        device: "0000:05:00.0".to_owned(),
        asked: Watts(751.0),
        lowest: Watts(300.0),
        highest: Watts(750.0),
    };
    assert_eq!(error, expected);
    let error = domains[0].set_cap(Watts(f64::NAN)).unwrap_err();
    assert_eq!(error.kind(), "driver");
    assert_eq!(domains[0].cap().unwrap(), Watts(700.0));
}

#[test]
fn readings_are_those_of_the_plant() {
    let rig = rig();
    let mut domains = domains(&rig);
    let energy_before = domains[4].read().unwrap().energy.unwrap();
    rig.hardware().run_iteration();
    let reading = domains[4].read().unwrap();
    let gpu = rig.hardware().plant().gpu(4).unwrap();
    assert_eq!(reading.cap, gpu.cap);
    assert_eq!(reading.enforced, Some(gpu.cap));
    assert_eq!(reading.power, Some(gpu.power));
    assert_eq!(reading.temperature, Some(gpu.temperature));
    assert_eq!(reading.slowdown, Some(Celsius(105.0)));
    assert_eq!(reading.clock, Some(gpu.clock));
    assert_eq!(reading.power_limited, Some(true));
    assert_eq!(reading.throttle, None);
    let seconds = rig.hardware().plant().last().length.0 / 1e3;
    let energy = reading.energy.unwrap().0 - energy_before.0;
    assert!((energy - gpu.power.0 * seconds).abs() < 1e-6);

    // Power follows a lowered cap at once, unless something is wrong.
    write(&mut domains, &[(4, 500.0)]);
    assert_eq!(domains[4].read().unwrap().power, Some(Watts(500.0)));
    rig.hardware().inject(4, Fault::Overdraw);
    assert_eq!(domains[4].read().unwrap().power, Some(Watts(750.0)));
    let cpu = domains[8].read().unwrap();
    assert_eq!((cpu.cap, cpu.power), (Watts(400.0), Some(Watts(150.0))));
}

#[test]
fn holders_and_releases_are_told() {
    let rig = rig();
    let mut domains = domains(&rig);
    let own = |holders: Vec<Holder>| holders.iter().map(|it| it.pid).collect::<Vec<_>>();
    assert_eq!(own(domains[1].holders().unwrap()), [std::process::id()]);
    assert!(domains[8].holders().unwrap().is_empty());
    // With the users that they have on this node.
    let holder = |pid: u32| {
        let process = Path::new("/proc").join(pid.to_string());
        Holder {
            pid,
            uid: fs::metadata(&process).unwrap().uid(),
            cgroup: fs::read_to_string(process.join("cgroup")).unwrap(),
        }
    };
    let holders = vec![holder(1), holder(std::process::id())];
    rig.hardware()
        .set_holders(1, vec![std::process::id(), 1, u32::MAX]);
    assert_eq!(domains[1].holders().unwrap(), holders);
    assert_eq!(domains[1].highest_clock(), Ok(Hertz(2.1e9)));
    domains[1].release();
    assert_eq!(rig.hardware().releases(1), 1);
    assert_eq!(domains[1].cap().unwrap(), Watts(700.0));
}

#[test]
fn a_device_that_refuses_still_reads() {
    let rig = rig();
    let mut domains = domains(&rig);
    rig.hardware().inject(0, Fault::Refuse);
    let error = domains[0].set_cap(Watts(600.0)).unwrap_err();
    assert_eq!(error.kind(), "driver");
    assert_eq!(domains[0].cap().unwrap(), Watts(700.0));
    assert!(!rig.ledger().entries()[0].accepted);
    rig.hardware().heal(0);
    write(&mut domains, &[(0, 600.0)]);
    assert_eq!(domains[0].cap().unwrap(), Watts(600.0));
}

#[test]
fn a_lie_is_seen_by_reading_back() {
    let rig = rig();
    let mut domains = domains(&rig);
    rig.hardware().inject(0, Fault::Lie);
    let reply = Operation::Set(Watts(600.0)).perform(domains[0].as_mut());
    assert_eq!(reply, Reply::Set(Ok(Watts(700.0))));
    let entry = &rig.ledger().entries()[0];
    assert!(entry.accepted);
    assert_eq!((entry.before, entry.after), (Watts(700.0), Watts(700.0)));
}

#[test]
fn a_device_that_nobody_may_write_to_or_that_is_locked_still_reads() {
    let rig = rig();
    let mut domains = domains(&rig);
    for (fault, kind) in [
        (Fault::NoPermission, "permission"),
        (Fault::Locked, "driver"),
    ] {
        rig.hardware().inject(0, fault);
        let error = domains[0].set_cap(Watts(600.0)).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert_eq!(domains[0].cap().unwrap(), Watts(700.0));
    }
    let entries = rig.ledger().entries();
    assert_eq!(entries.len(), 2);
    assert!(entries.iter().all(|entry| !entry.accepted));
}

#[test]
fn a_device_in_reset_answers_nothing_until_that_is_over() {
    let rig = rig();
    let mut domains = domains(&rig);
    rig.hardware().inject(0, Fault::InReset);
    assert_eq!(domains[0].read().unwrap_err().kind(), "driver");
    let error = domains[0].set_cap(Watts(600.0)).unwrap_err();
    assert_eq!(error.kind(), "driver");
    rig.hardware().heal(0);
    write(&mut domains, &[(0, 600.0)]);
    assert_eq!(domains[0].cap().unwrap(), Watts(600.0));
}

#[test]
fn a_cached_cap_reads_as_written_and_power_tells_otherwise() {
    let rig = rig();
    let mut domains = domains(&rig);
    rig.hardware().run_iteration();
    rig.hardware().inject(0, Fault::Cached);
    write(&mut domains, &[(0, 500.0)]);
    let reading = domains[0].read().unwrap();
    assert_eq!(reading.cap, Watts(500.0));
    assert_eq!(reading.power, Some(Watts(700.0)));
    let entry = &rig.ledger().entries()[0];
    assert!(entry.accepted);
    assert_eq!(entry.after, Watts(700.0));
    rig.hardware().heal(0);
    assert_eq!(domains[0].cap().unwrap(), Watts(700.0));
}

#[test]
fn what_else_holds_a_device_back_is_told_and_lasts() {
    let rig = rig();
    let mut domains = domains(&rig);
    let faults = [
        (Fault::Heat, Throttle::Heat),
        (Fault::PowerBrake, Throttle::PowerBrake),
    ];
    for (fault, throttle) in faults {
        rig.hardware().inject(0, fault);
        rig.hardware().run_iteration();
        let reading = domains[0].read().unwrap();
        assert_eq!(reading.throttle, Some(throttle));
        assert_eq!(reading.power_limited, Some(false));
    }
    rig.hardware().inject(0, Fault::Enforced(Watts(450.0)));
    rig.hardware().run_iteration();
    let reading = domains[0].read().unwrap();
    assert_eq!(reading.cap, Watts(700.0));
    assert_eq!(reading.enforced, Some(Watts(450.0)));
    assert_eq!(reading.power, Some(Watts(450.0)));
    // An iteration of each.
    let residency = rig.hardware().residency(0);
    let all = residency.heat + residency.brake + residency.power;
    assert!(residency.heat.0 > 0.0 && residency.brake.0 > 0.0 && residency.power.0 > 0.0);
    assert!((all.0 - residency.total.0).abs() < 1e-6);
}

#[test]
fn a_device_that_is_gone_is_gone_for_everything_until_it_is_back() {
    let rig = rig();
    let mut domains = domains(&rig);
    rig.hardware().inject(0, Fault::Gone);
    let kind = |error: PowerError| error.kind();
    assert_eq!(domains[0].read().map_err(kind), Err("gone"));
    assert_eq!(domains[0].range().map_err(kind), Err("gone"));
    assert_eq!(domains[0].holders().map_err(kind), Err("gone"));
    assert_eq!(domains[0].set_cap(Watts(600.0)).map_err(kind), Err("gone"));
    assert_eq!(domains[1].cap().unwrap(), Watts(700.0));
    rig.hardware().heal(0);
    assert_eq!(domains[0].cap().unwrap(), Watts(700.0));
}

/// Sets device 0 to 600 W under a fault; what it holds while the answer is outstanding, and
/// after the device was mended.
fn held_while_waiting(fault: Fault, others: bool) -> (Watts, Watts) {
    let rig = rig();
    let mut domains = domains(&rig);
    rig.hardware().inject(0, fault);
    let (answer, answered) = mpsc::channel();
    let mut device = domains.remove(0);
    let writer = thread::spawn(move || {
        answer.send(device.set_cap(Watts(600.0))).unwrap();
    });
    // Other devices are answered meanwhile.
    if others {
        write(&mut domains, &[(0, 650.0)]);
    }
    // A write that takes effect at once has done so soon; one that is late has a while to be
    // wrong in.
    let deadline = std::time::Instant::now() + Duration::from_millis(300);
    while std::time::Instant::now() < deadline && rig.ledger().held()[0] == Watts(700.0) {
        thread::sleep(Duration::from_millis(5));
    }
    let waiting = rig.ledger().held()[0];
    assert!(answered.try_recv().is_err(), "{fault:?} answers at once");
    rig.hardware().heal(0);
    answered.recv_timeout(SOON).unwrap().unwrap();
    writer.join().unwrap();
    (waiting, rig.ledger().held()[0])
}

#[test]
fn a_blocked_device_has_done_it_and_does_not_say_so() {
    let fault = Fault::Block(Duration::from_secs(600));
    let held = held_while_waiting(fault, true);
    assert_eq!(held, (Watts(600.0), Watts(600.0)));
}

#[test]
fn a_slow_device_does_it_later() {
    let fault = Fault::Slow(Duration::from_secs(600));
    let held = held_while_waiting(fault, true);
    assert_eq!(held, (Watts(700.0), Watts(600.0)));
}

#[test]
fn faults_that_last_for_a_time_end_by_themselves() {
    let rig = rig();
    let mut domains = domains(&rig);
    for fault in [Fault::Block, Fault::Slow] {
        rig.hardware().inject(0, fault(Duration::from_millis(20)));
        let begin = std::time::Instant::now();
        assert_eq!(domains[0].cap().unwrap(), Watts(700.0));
        assert!(begin.elapsed() >= Duration::from_millis(20));
    }
}

#[test]
fn a_reset_and_a_foreign_write_are_not_litds() {
    let rig = rig();
    let mut domains = domains(&rig);
    rig.hardware().reset(0).unwrap();
    rig.hardware().foreign_set(1, Watts(555.0)).unwrap();
    assert!(rig.hardware().foreign_set(99, Watts(555.0)).is_err());
    assert_eq!(domains[0].cap().unwrap(), Watts(750.0));
    assert_eq!(domains[1].cap().unwrap(), Watts(555.0));
    let authors: Vec<_> = rig
        .ledger()
        .entries()
        .iter()
        .map(|entry| entry.author)
        .collect();
    assert_eq!(authors, [Author::Reset, Author::Foreign]);
    rig.hardware().range_mut(0).unwrap().highest = Watts(650.0);
    assert_eq!(domains[0].range().unwrap().highest, Watts(650.0));
    assert_eq!(
        domains[0].set_cap(Watts(700.0)).unwrap_err().kind(),
        "out_of_range"
    );
}

#[test]
fn a_driver_reload_breaks_connections_and_new_ones_are_made() {
    let mut rig = rig();
    let mut domains = domains(&rig);
    write(&mut domains, &[(0, 600.0)]);
    rig.unload();
    assert_eq!(domains[0].read().unwrap_err().kind(), "gone");
    rig.load().unwrap();
    assert_eq!(domains[0].cap().unwrap(), Watts(600.0));
    // A connection that broke unnoticed is no error either.
    rig.load().unwrap();
    assert_eq!(domains[0].cap().unwrap(), Watts(600.0));
    rig.unload();
    let missing = simulated::discover(&rig.layout().hardware());
    assert_eq!(missing.map(|_| ()).unwrap_err().kind(), "gone");
}

#[test]
fn a_node_that_never_answers_is_an_error_after_a_while() {
    let rig = rig();
    let socket = rig.layout().directory.join("dead.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    let dead = simulated::discover_within(&socket, Duration::from_millis(50));
    assert_eq!(dead.map(|_| ()).unwrap_err().kind(), "timeout");
}

#[test]
fn an_answer_that_comes_too_late_is_not_taken_for_the_next_one() {
    let rig = rig();
    let socket = rig.layout().hardware();
    let patience = Duration::from_millis(50);
    let mut domains = simulated::discover_within(&socket, patience).unwrap();
    rig.hardware()
        .inject(0, Fault::Slow(Duration::from_secs(600)));
    assert_eq!(domains[0].range().unwrap_err().kind(), "timeout");
    rig.hardware().heal(0);
    assert_eq!(domains[0].cap().unwrap(), Watts(700.0));
}

#[test]
fn what_is_no_request_is_answered_with_an_error() {
    let rig = rig();
    let mut stream = BufReader::new(UnixStream::connect(rig.layout().hardware()).unwrap());
    let mut ask = |line: &str| {
        writeln!(stream.get_mut(), "{line}").unwrap();
        let mut answer = String::new();
        stream.read_line(&mut answer).unwrap();
        answer
    };
    assert!(ask("nonsense").starts_with(r#"{"error":"driver","#));
    assert!(ask(r#"{"op":"explode"}"#).starts_with(r#"{"error":"driver","#));
    assert!(ask(r#"{"op":"read","device":"cpu7"}"#).starts_with(r#"{"error":"gone","#));
    // The documented shape, to the letter.
    assert_eq!(
        ask(r#"{"op":"set","device":"0000:05:00.0","watts":650}"#),
        "{\"done\":true}\n"
    );
    assert_eq!(
        ask(r#"{"op":"holders","device":"cpu0"}"#),
        "{\"pids\":[]}\n"
    );
}
