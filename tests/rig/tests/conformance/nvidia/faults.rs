//! Drivers that refuse, lie, hang and vanish.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use litd_power::{Operation, PowerError, Reply, Search, Severity, Throttle, Worker, nvml};
use litd_rig::Fault;
use litd_units::Watts;

use super::{gpus, search};
use crate::common::{SOON, rig};

/// For ever, as far as a test is concerned.
const LONG: Duration = Duration::from_secs(600);

fn kind<T>(result: Result<T, PowerError>) -> Result<T, &'static str> {
    result.map_err(|error| error.kind())
}

#[test]
fn a_write_that_is_refused_is_an_error_and_reads_go_on() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    for (fault, error) in [
        (Fault::Refuse, "driver"),
        (Fault::NoPermission, "permission"),
        (Fault::Locked, "driver"),
    ] {
        rig.hardware().inject(0, fault);
        assert_eq!(kind(gpus[0].set_cap(Watts(600.0))), Err(error));
        assert_eq!(gpus[0].read().unwrap().cap, Watts(700.0));
        assert!(!rig.ledger().entries().last().unwrap().accepted);
    }
    rig.hardware().heal(0);
    gpus[0].set_cap(Watts(600.0)).unwrap();
    assert_eq!(gpus[0].cap().unwrap(), Watts(600.0));
}

#[test]
fn a_missing_right_is_named() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    rig.hardware().inject(0, Fault::NoPermission);
    let error = gpus[0].set_cap(Watts(600.0)).unwrap_err().to_string();
    assert_eq!(
        error,
        "0000:05:00.0: no permission for setting the cap: the NVIDIA driver wants root or \
         CAP_SYS_ADMIN for it"
    );
}

#[test]
fn a_write_that_changes_nothing_is_seen_by_reading_back() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    rig.hardware().inject(0, Fault::Lie);
    let reply = Operation::Set(Watts(600.0)).perform(gpus[0].as_mut());
    assert_eq!(reply, Reply::Set(Ok(Watts(700.0))));
}

#[test]
fn a_cap_that_is_answered_from_memory_shows_in_nothing_but_the_ledger() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    rig.hardware().inject(0, Fault::Cached);
    gpus[0].set_cap(Watts(600.0)).unwrap();
    assert_eq!(gpus[0].cap().unwrap(), Watts(600.0));
    assert_eq!(rig.ledger().held()[0], Watts(700.0));
}

#[test]
fn heat_and_the_power_brake_are_told_from_the_power_limit() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    for (fault, throttle) in [
        (Fault::Heat, Throttle::Heat),
        (Fault::PowerBrake, Throttle::PowerBrake),
    ] {
        rig.hardware().inject(0, fault);
        let reading = gpus[0].read().unwrap();
        assert_eq!(reading.throttle, Some(throttle));
        assert_eq!(reading.power_limited, Some(false));
    }
}

#[test]
fn a_lost_gpu_is_gone_for_everything_until_it_is_back() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    for fault in [Fault::Gone, Fault::InReset] {
        rig.hardware().inject(0, fault);
        assert_eq!(kind(gpus[0].read()), Err("gone"));
        assert_eq!(kind(gpus[0].range()), Err("gone"));
        assert_eq!(kind(gpus[0].holders()), Err("gone"));
        assert_eq!(kind(gpus[0].set_cap(Watts(600.0))), Err("gone"));
        assert_eq!(kind(gpus[0].unlock_clocks()), Err("gone"));
        assert_eq!(gpus[1].read().unwrap().cap, Watts(700.0));
        rig.hardware().heal(0);
        // The back end retries now and then, not at each call.
        let back = (0..8).any(|_| gpus[0].cap() == Ok(Watts(700.0)));
        assert!(back, "after {fault:?} it does not come back");
    }
}

#[test]
fn a_gpu_that_stays_lost_is_looked_for_now_and_then() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    rig.hardware().inject(0, Fault::Gone);
    let before = rig.hardware().nvidia().sessions();
    for _ in 0..100 {
        assert_eq!(kind(gpus[0].cap()), Err("gone"));
        gpus[1].cap().unwrap();
    }
    let sessions = rig.hardware().nvidia().sessions() - before;
    // After 1, 2, 4, 8, 16 failures, and then after 32, 48, 64, 80 and 96.
    assert_eq!(sessions, 10);
}

#[test]
fn a_driver_that_is_unloaded_and_loaded_again_is_noticed() {
    let mut rig = rig();
    let mut gpus = gpus(&rig);
    gpus[3].set_cap(Watts(600.0)).unwrap();
    rig.unload();
    let error = gpus[3].read().unwrap_err();
    assert_eq!(error.kind(), "gone");
    let error = gpus[3].read().unwrap_err().to_string();
    assert!(error.contains("driver not loaded"), "{error}");
    rig.load().unwrap();
    assert_eq!(gpus[3].cap().unwrap(), Watts(600.0));
    assert_eq!(gpus[4].cap().unwrap(), Watts(700.0));
}

#[test]
fn a_gpu_that_hangs_holds_nobody_else_up() {
    for fault in [Fault::Block(LONG), Fault::Slow(LONG)] {
        let rig = rig();
        let mut gpus = gpus(&rig);
        rig.hardware().inject(0, fault);
        let mut hung = gpus.remove(0);
        let (done, answer) = mpsc::channel();
        let caller = thread::spawn(move || done.send(hung.set_cap(Watts(600.0))).unwrap());
        for gpu in &mut gpus {
            gpu.set_cap(Watts(650.0)).unwrap();
            assert_eq!(gpu.read().unwrap().cap, Watts(650.0));
            gpu.release();
        }
        assert!(answer.try_recv().is_err(), "{fault:?} answers at once");
        rig.hardware().heal(0);
        answer.recv_timeout(SOON).unwrap().unwrap();
        caller.join().unwrap();
        assert_eq!(rig.ledger().held()[0], Watts(600.0));
    }
}

/// In a container that does not see the bus: the address of a GPU is had from the GPU alone.
#[test]
fn a_gpu_that_hangs_where_nobody_shows_its_address_is_said_to_be_missing() {
    let rig = rig();
    let library = rig.install_nvml().unwrap();
    rig.hardware().inject(2, Fault::Block(LONG));
    let found = nvml::discover_within(&search(&rig, &library), Duration::from_secs(2));
    assert_eq!(found.domains.len(), 7, "{found:?}");
    let errors = found.notices.iter();
    let errors: Vec<_> = errors
        .filter(|notice| notice.severity == Severity::Error)
        .collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].subject, "NVIDIA GPU 2");
    assert!(
        errors[0].text.contains("counts for nothing"),
        "{}",
        errors[0]
    );
    rig.hardware().heal(2);
}

#[test]
fn a_driver_that_does_not_answer_at_all_has_the_gpus_that_the_bus_shows() {
    let rig = rig();
    let library = rig.install_nvml().unwrap();
    let search = Search {
        sys: rig.install_nvidia_bus().unwrap(),
        ..search(&rig, &library)
    };
    rig.hardware().nvidia_mut().init_takes = LONG;
    let found = nvml::discover_within(&search, Duration::from_secs(2));
    let mut gpus = found.domains;
    assert_eq!(gpus.len(), 8, "{:?}", found.notices);
    rig.hardware().nvidia_mut().init_takes = Duration::ZERO;
    for gpu in &mut gpus {
        assert_eq!(gpu.cap().unwrap(), Watts(700.0));
        assert!(gpu.identify().unwrap().uuid.is_some());
    }
}

/// A driver with a GPU in trouble may take long to open its library: whoever lost a GPU does not have the others wait
/// for that.
#[test]
fn a_lost_gpu_holds_nobody_up_while_opening_the_library_takes_long() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    rig.hardware().inject(0, Fault::Gone);
    rig.hardware().nvidia_mut().init_takes = LONG;
    assert_eq!(kind(gpus[0].cap()), Err("gone"));
    for gpu in &mut gpus[1..] {
        assert_eq!(gpu.cap().unwrap(), Watts(700.0));
    }
    assert_eq!(rig.hardware().nvidia().sessions(), 1);
    rig.hardware().heal(0);
    rig.hardware().nvidia_mut().init_takes = Duration::ZERO;
    let back = (0..8).any(|_| gpus[0].cap() == Ok(Watts(700.0)));
    assert!(back, "it does not come back");
}

/// A call that asks for the session to be closed makes the others open it anew.
#[test]
fn a_call_waits_for_the_library_to_be_opened_and_not_for_ever() {
    let rig = rig();
    let mut gpus = gpus(&rig);
    rig.hardware().nvidia_mut().init_takes = LONG;
    gpus[0].release();
    let error = gpus[1].cap().unwrap_err();
    assert_eq!(error.kind(), "driver");
    assert!(error.to_string().contains("takes long to open"), "{error}");
    rig.hardware().nvidia_mut().init_takes = Duration::ZERO;
    assert_eq!(gpus[1].cap().unwrap(), Watts(700.0));
    // The opening that was waited for is the one that is used.
    assert_eq!(rig.hardware().nvidia().sessions(), 2);
}

#[test]
fn a_gpu_whose_cap_cannot_be_read_is_listed_with_the_reason() {
    let rig = rig();
    let library = rig.install_nvml().unwrap();
    let search = Search {
        sys: rig.install_nvidia_bus().unwrap(),
        ..search(&rig, &library)
    };
    rig.hardware().inject(2, Fault::InReset);
    let found = nvml::discover(&search);
    let mut gpus = found.domains;
    assert_eq!(gpus.len(), 8);
    let errors = found.notices.iter();
    let mut errors = errors.filter(|notice| notice.severity == Severity::Error);
    let error = errors.next().unwrap();
    assert_eq!(error.subject, "0000:25:00.0");
    assert!(error.text.contains("reset"), "{error}");
    assert_eq!(errors.next(), None);
    rig.hardware().heal(2);
    assert_eq!(gpus[2].cap().unwrap(), Watts(700.0));
}

/// The thread that the daemon gives a device is small, and a library is opened on it.
#[test]
fn a_devices_thread_has_room_for_opening_the_library() {
    let rig = rig();
    let library = rig.install_nvml().unwrap();
    super::domain::live(&rig, [std::process::id()], 1000);
    let mut gpus = nvml::discover(&search(&rig, &library)).domains;
    gpus.truncate(1);
    let (report, replies) = mpsc::channel();
    let worker = Worker::start(gpus.remove(0), "gpu", move |reply| {
        report.send(reply).unwrap();
    })
    .unwrap();
    let before = rig.hardware().nvidia().sessions();
    for operation in [
        Operation::Release,
        Operation::Read,
        Operation::Set(Watts(600.0)),
        Operation::Range,
        Operation::Identify,
        Operation::Holders,
        Operation::Clocks(None),
    ] {
        worker.submit(operation).unwrap();
        let reply = replies.recv_timeout(SOON).unwrap();
        match reply {
            Reply::Released(_) => assert_eq!(rig.hardware().nvidia().clients(), 0),
            Reply::Read(reading) => assert_eq!(reading.unwrap().cap, Watts(700.0)),
            Reply::Set(held) => assert_eq!(held, Ok(Watts(600.0))),
            Reply::Identity(told) => {
                let (identity, range) = told.unwrap();
                assert_eq!(identity.address, litd_rig::gpu_address(0));
                assert_eq!(range.highest, Watts(750.0));
            }
            Reply::Range(range) => assert_eq!(range.unwrap().highest, Watts(750.0)),
            Reply::Holders(told) => {
                let pids = told.unwrap().into_iter().map(|it| it.pid);
                assert!(pids.eq([std::process::id()]));
            }
            Reply::HighestClock(told) => drop(told.unwrap()),
            Reply::Clocks(freed) => assert_eq!(freed, Ok(())),
        }
    }
    assert_eq!(rig.hardware().nvidia().sessions(), before + 1);
}
