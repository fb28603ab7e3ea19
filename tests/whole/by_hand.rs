//! Caps that an administrator sets by hand.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use litd_api::{Command, EventKind};
use litd_rig::Fault;
use litd_units::Watts;

use crate::stand::{GPUS, Stand, quick, seconds, wait_for};

fn refused(stand: &Stand, command: &Command) -> String {
    let (code, why) = stand.try_command(command);
    assert_eq!(code, 409, "{why}");
    why
}

fn set(device: &str, watts: f64) -> Command {
    Command::SetCap {
        device: device.to_owned(),
        watts: Watts(watts),
    }
}

#[test]
fn a_cap_set_by_hand_stays_when_litd_ends() {
    let mut stand = Stand::clocked("");
    stand.rig.ledger().permit_found();
    stand.command(&set("gpu3", 650.4));
    assert_eq!(stand.held()[3], Watts(650.0));
    assert_eq!(stand.device(3).found, Some(Watts(650.0)));
    assert_eq!(stand.terminate(), Some(0));
    assert_eq!(stand.held()[3], Watts(650.0));
    // Nor does the next one take it for a dead daemon's.
    stand.start();
    stand.pass(3.0);
    assert_eq!(stand.held()[3], Watts(650.0));
}

#[test]
fn a_cap_out_of_range_or_above_the_budget_is_refused_with_the_reason() {
    let mut stand = Stand::clocked("caps.budget = 5600\n");
    for (watts, why) in [
        (800.0, "800 W is outside this device's 300 W to 750 W"),
        (250.0, "outside"),
        (710.0, "above the budget"),
    ] {
        let refused = refused(&stand, &set("gpu0", watts));
        assert!(refused.contains(why), "{refused}");
    }
    assert!(refused(&stand, &set("gpu9", 600.0)).contains("no device"));
    stand.finish();
    assert!(stand.is_back());
    assert_eq!(stand.held()[0], Watts(700.0));
    stand.stop();
}

#[test]
fn while_litd_moves_a_cap_nobody_sets_it_through_litd() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    let refused = refused(&stand, &set("gpu0", 600.0));
    assert!(refused.contains("litctl policy observe"), "{refused}");
    stand.play(&mut job, 3);
    stand.stop();
}

#[test]
fn one_that_the_driver_refuses_changes_nothing() {
    let mut stand = Stand::clocked("");
    stand.rig.hardware().inject(2, Fault::Refuse);
    let why = refused(&stand, &set("gpu2", 600.0));
    assert!(why.contains("the firmware refuses"), "{why}");
    stand.pass(3.0);
    stand.rig.hardware().heal(2);
    stand.pass(6.0);
    assert_eq!(stand.held()[2], Watts(700.0));
    assert_eq!(stand.device(2).found, Some(Watts(700.0)));
    // What its driver called failed may still be done for half a minute, and a stop waits for that.
    stand.pass(31.0);
    stand.stop();
}

#[test]
fn a_socket_that_goes_on_drawing_blocks_nobody_else() {
    let mut stand = Stand::clocked("");
    stand.rig.ledger().permit_found();
    stand.rig.hardware().inject(GPUS, Fault::Overdraw);
    stand.command(&set("cpu0", 200.0));
    stand.pass(12.0);
    stand.command(&set("gpu0", 500.0));
    stand.command(&set("gpu0", 700.0));
    assert_eq!(stand.held()[0], Watts(700.0));
    assert_eq!(stand.terminate(), Some(0));
}

#[test]
fn one_that_takes_too_long_is_given_up_and_undone() {
    let stand = Stand::real("");
    let found = stand.held()[5];
    let slow = Fault::Slow(Duration::from_secs(3));
    stand.rig.hardware().inject(5, slow);
    let why = refused(&stand, &set("gpu5", 600.0));
    assert!(why.contains("within 1.5 s"), "{why}");
    stand.rig.hardware().heal(5);
    wait_for("the old cap", || {
        stand.held()[5] == found && stand.journaled().is_empty()
    });
    stand.stop();
}

#[test]
fn one_whose_asker_has_gone_away_is_not_set_later() {
    let stand = Stand::real("caps.answer_seconds = 600.0\n");
    stand.rig.ledger().permit_found();
    let found = stand.held()[3];
    // Whatever the driver is doing when the command comes, it does until it is healed.
    let block = Fault::Block(Duration::from_secs(120));
    stand.rig.hardware().inject(3, block);
    std::thread::sleep(Duration::from_millis(2500));
    let body = serde_json::to_string(&set("gpu3", 600.0)).unwrap();
    let length = body.len();
    let request = format!(
        "POST /v1/command HTTP/1.1\r\nHost: litd\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let mut asker = UnixStream::connect(stand.rig.layout().control()).unwrap();
    asker.write_all(request.as_bytes()).unwrap();
    let said = |part: &'static str| wait_for(part, || stand.has_event(EventKind::Command, part));
    said("asks: ");
    drop(asker);
    said("its client has gone");
    stand.rig.hardware().heal(3);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(stand.held()[3], found, "{}", stand.said());
    assert_eq!(stand.device(3).found, Some(found));
    assert!(!stand.has_event(EventKind::Command, "holds 600 W"));
    stand.command(&set("gpu3", 650.0));
    stand.command(&set("gpu3", found.0));
    stand.stop();
}

#[test]
fn one_that_failed_long_ago_holds_up_no_stop() {
    const REFUSED: usize = 2;
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    stand.rig.hardware().inject(REFUSED, Fault::Refuse);
    refused(&stand, &set("gpu2", 600.0));
    stand.rig.hardware().heal(REFUSED);
    stand.pass(6.0);
    let mut job = stand.train();
    stand.play_until(&mut job, "its cap to move", |stand| {
        stand.held()[REFUSED] != Watts(700.0)
    });
    // Somebody else sets it, which stays.
    let theirs = Watts(640.0);
    stand.rig.hardware().foreign_set(REFUSED, theirs).unwrap();
    stand.pass(3.0);
    let asked = stand.rig.now();
    assert_eq!(stand.terminate(), Some(0), "{}", stand.said());
    assert!(stand.rig.now() - asked < seconds(3.0), "{}", stand.said());
    assert_eq!(stand.held()[REFUSED], theirs);
}

#[test]
fn no_cap_is_set_by_hand_before_two_readings_have_agreed() {
    let mut stand = Stand::bare("", true);
    stand.rig.ledger().permit_found();
    stand.rig.hardware().inject(3, Fault::Fickle(Watts(1.0)));
    stand.start();
    stand.pass(2.0);
    let why = refused(&stand, &set("gpu3", 650.0));
    assert!(why.contains("gpu3 has not been read twice yet"), "{why}");
    stand.rig.hardware().heal(3);
    stand.pass(3.0);
    stand.command(&set("gpu3", 650.0));
    assert_eq!(stand.held()[3], Watts(650.0));
    assert_eq!(stand.terminate(), Some(0), "{}", stand.said());
}
