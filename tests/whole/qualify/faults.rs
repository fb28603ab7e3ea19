//! Each fault of one device: found and named, while the others are qualified and nothing is left changed.

use std::time::{Duration, Instant};

use litd_qualify::report::{Outcome, Report, Topic, Verdict};
use litd_rig::Fault;
use litd_units::Watts;

use super::{SHORT, assert_as_found, end, node, qualify, start};
use crate::stand::{GPUS, SOON, Stand};

/// The device with the fault.
const ILL: usize = 3;

fn check(report: &Report, device: usize, verdict: Verdict) -> (Topic, &str) {
    let checks = report.devices[device].checks.iter();
    let mut checks = checks.filter(|it| it.verdict == verdict);
    let check = checks.next();
    let check = check.unwrap_or_else(|| panic!("{:#?}", report.devices[device]));
    (check.topic, &check.text)
}

fn assert_others_are_qualified(report: &Report) {
    let devices = report.devices.iter().enumerate();
    let mut others = devices.filter(|(index, _)| *index != ILL);
    assert!(others.all(|(_, it)| it.is_qualified()), "{report:#?}");
}

/// The run with this fault: the check that failed is about this, and says so.
fn assert_found(fault: Fault, topic: Topic, part: &str) -> (Stand, Report) {
    let stand = node();
    stand.rig.hardware().inject(ILL, fault);
    let report = qualify(&stand, &SHORT);
    assert_eq!(report.outcome, Outcome::Failed, "{fault:?}: {report:#?}");
    let (failed, text) = check(&report, ILL, Verdict::Failed);
    assert_eq!(failed, topic, "{fault:?}: {text}");
    assert!(text.contains(part), "{fault:?}: {text}");
    assert_others_are_qualified(&report);
    stand.assert_rules();
    assert_eq!(stand.held(), stand.rig.ledger().found(), "{fault:?}");
    (stand, report)
}

#[test]
fn a_driver_that_refuses_is_named_with_its_error() {
    let (stand, report) = assert_found(Fault::NoPermission, Topic::Lower, "permission");
    assert_as_found(&stand, &report);
}

/// Such a write may be done late: until it can't the journal has the device, as after a write of the daemon's.
#[test]
fn a_write_that_failed_may_come_late_and_is_waited_for() {
    for (fault, part) in [
        (Fault::Refuse, "failed"),
        (Fault::Locked, "locked"),
        (Fault::Lie, "but its cap still read"),
    ] {
        let (stand, report) = assert_found(fault, Topic::Lower, part);
        assert_eq!(stand.journaled().len(), 1, "{report:#?}");
        let reasons = report.reasons.join("\n");
        assert!(reasons.contains("half a minute"), "{reasons}");
    }
    let (stand, _) = assert_found(Fault::Postpone, Topic::Lower, "failed");
    stand.rig.hardware().land(ILL).unwrap();
    assert!(!stand.is_back());
    let (code, said) = stand.restore();
    // What was late once may be late again.
    assert_eq!(code, Some(3), "{said}");
    assert_eq!(stand.held(), stand.rig.ledger().found());
}

#[test]
fn a_device_that_can_not_be_read_is_not_written() {
    for (fault, topic, part) in [
        (
            Fault::Fickle(Watts(5.0)),
            Topic::Reading,
            "while litd wrote nothing",
        ),
        (Fault::Gone, Topic::Lower, "gone"),
        (Fault::InReset, Topic::Lower, "reset"),
        (Fault::NoRange, Topic::Lower, "does not report the range"),
    ] {
        let (stand, report) = assert_found(fault, topic, part);
        assert!(
            report.writes.iter().all(|it| it.device != "gpu3"),
            "{report:#?}"
        );
        assert_as_found(&stand, &report);
    }
}

/// Under load: the stand-in's GPUs draw their caps.
#[test]
fn a_cap_that_does_not_bind_is_found_under_load() {
    for fault in [Fault::Overdraw, Fault::Cached] {
        let stand = node();
        stand.rig.hardware().run_iteration();
        stand.rig.hardware().inject(ILL, fault);
        let report = qualify(&stand, &SHORT);
        stand.rig.hardware().heal(ILL);
        let power = |device: usize| {
            let mut checks = report.devices[device].checks.iter();
            checks.find(|it| it.topic == Topic::Power).unwrap()
        };
        let loaded = power(ILL).verdict;
        assert_ne!(loaded, Verdict::Shown, "{fault:?} {report:#?}");
        if fault == Fault::Overdraw {
            assert!(power(ILL).text.contains("does not bind"), "{report:#?}");
        }
        assert_as_found(&stand, &report);
    }
}

#[test]
fn a_driver_that_hangs_costs_its_device_only() {
    let stand = node();
    let child = start(&stand, &SHORT);
    let hardware = stand.rig.shared_hardware();
    // Hangs at the write of its lower cap, which takes effect.
    wait(|| stand.rig.ledger().len() >= 2 * ILL);
    let block = Fault::Block(Duration::from_secs(6));
    hardware.lock().unwrap().inject(ILL, block);
    let (_, report, said) = end(child);
    assert!(report.devices[ILL].failed(), "{report:#?}\n{said}");
    let (_, text) = check(&report, ILL, Verdict::Failed);
    assert!(text.contains("has not answered"), "{text}");
    assert_others_are_qualified(&report);
    hardware.lock().unwrap().heal(ILL);
    // Where it could not be read within a stop's time the journal has it.
    let (code, said) = stand.restore();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(stand.held(), stand.rig.ledger().found(), "{report:#?}");
}

#[test]
fn a_slow_driver_is_measured() {
    let stand = node();
    let slow = Duration::from_millis(80);
    stand.rig.hardware().inject(ILL, Fault::Slow(slow));
    let report = qualify(&stand, &SHORT);
    assert_eq!(report.outcome, Outcome::Qualified, "{report:#?}");
    let time = report.devices[ILL].measured.lower_time.unwrap();
    assert!(time.0 >= 0.08, "{time}");
    assert_as_found(&stand, &report);
}

fn wait(done: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Runs until the device has its lower cap, and does something then.
fn at_lower_cap(arguments: &[&str], act: impl FnOnce(&Stand)) -> (Stand, Report) {
    let stand = node();
    let child = start(&stand, arguments);
    wait(|| stand.held()[ILL] < stand.rig.ledger().found()[ILL]);
    // Right after the write a cap nearby counts as the driver's rounding.
    std::thread::sleep(Duration::from_millis(20));
    act(&stand);
    let (_, report, _) = end(child);
    stand.assert_rules();
    (stand, report)
}

#[test]
fn a_reset_and_a_foreign_writer_are_told_and_left_alone() {
    // The default of the stand-in's GPUs is above the cap found: a reset leaves it.
    let (stand, report) = at_lower_cap(&["--watch", "0.5"], |stand| {
        stand.rig.hardware().reset(ILL).unwrap();
    });
    assert_eq!(report.outcome, Outcome::Failed, "{report:#?}");
    let (topic, text) = check(&report, ILL, Verdict::Failed);
    assert!(topic == Topic::Lower && text.contains("reset"), "{text}");
    assert!(stand.is_back());
    assert_eq!(stand.journaled(), [""; 0]);

    let theirs = Watts(500.0);
    let (stand, report) = at_lower_cap(&["--watch", "0.5"], |stand| {
        stand.rig.hardware().foreign_set(ILL, theirs).unwrap();
    });
    assert_eq!(report.outcome, Outcome::Failed, "{report:#?}");
    let (_, text) = check(&report, ILL, Verdict::Failed);
    assert!(text.contains("another program"), "{text}");
    assert_eq!(stand.held()[ILL], theirs);
    assert_eq!(stand.journaled(), [""; 0]);
}

#[test]
fn a_driver_that_rounds_is_found_and_the_cap_found_set_again() {
    let (stand, report) = assert_found(Fault::Meddle(Watts(690.0)), Topic::Lower, "rounds");
    assert_as_found(&stand, &report);
}

#[test]
fn a_job_that_begins_in_the_middle_stops_the_run() {
    let (stand, report) = at_lower_cap(&["--watch", "0.5"], |stand| {
        let pid = std::process::id();
        for gpu in 0..GPUS {
            stand.rig.hardware().set_holders(gpu, vec![pid]);
        }
    });
    assert_eq!(report.outcome, Outcome::Stopped, "{report:#?}");
    assert!(report.reasons[0].contains("begun to use"), "{report:#?}");
    assert_eq!(report.devices.len(), 10);
    let written = |it: &litd_qualify::report::Write| it.device == "gpu4";
    assert!(!report.writes.iter().any(written), "{report:#?}");
    assert_as_found(&stand, &report);
}
