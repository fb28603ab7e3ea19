//! An undo waits for no other device: whatever a GPU that has failed holds, the others get the caps that were found.

use crate::gpu::{Writes, found_at};
use crate::node::{Node, release};

/// How a GPU fails.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fails {
    Reads,
    Writes,
    Both,
    Hangs,
}

const ALL: [Fails; 4] = [Fails::Reads, Fails::Writes, Fails::Both, Fails::Hangs];

/// How litd is told to restore all caps.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Off,
    Stop,
}

/// Three GPUs that were found with 600 W. Under a budget gpu0 was reset and takes no write: it holds its default of
/// 700 W, and the others make room for that.
fn beside_a_reset() -> Node {
    let mut node = Node::under(1500.0, found_at(3, 600.0));
    node.gpus[0].writes = Writes::Fail;
    node.is_reset(0);
    node.pass(1.5);
    assert_eq!(node.caps(), [700.0, 400.0, 400.0]);
    node.gpus[0].writes = Writes::Taken;
    node
}

/// gpu0 fails there, and a while later litd restores all caps.
fn restored(fails: Fails, after: f64, way: Way) -> Node {
    let mut node = beside_a_reset();
    let gpu = &mut node.gpus[0];
    gpu.hangs = fails == Fails::Hangs;
    gpu.fails_reads = matches!(fails, Fails::Reads | Fails::Both);
    if matches!(fails, Fails::Writes | Fails::Both) {
        gpu.writes = Writes::Fail;
    }
    node.pass(after);
    match way {
        Way::Off => {
            node.kill_switch(true);
            node.pass(5.0);
        }
        Way::Stop => {
            let before = node.now;
            node.stop();
            // A GPU whose driver does not answer is still waited for.
            let took = (node.now - before) / crate::node::SECOND;
            assert!(took <= 16, "{took} s");
        }
    }
    node
}

#[test]
fn whatever_has_failed_the_others_get_their_caps_back() {
    for way in [Way::Off, Way::Stop] {
        for fails in ALL {
            for after in [0.0, 0.5, 1.5, 2.5, 8.0, 30.0] {
                let node = restored(fails, after, way);
                let caps = node.caps();
                assert_eq!(
                    caps[1..],
                    [600.0, 600.0],
                    "{way:?} {after} s after gpu0 failed ({fails:?})"
                );
            }
        }
    }
}

/// The event names the GPU that stays above its cap found, and its status does not call that restored.
#[test]
fn what_stays_above_the_cap_found_is_told() {
    let node = restored(Fails::Both, 8.0, Way::Off);
    assert_eq!(node.caps(), [700.0, 600.0, 600.0]);
    let told = node.log.iter().any(|it| {
        it.contains("gpu0 may hold 700 W, and 600 W was found") && it.contains("all the same")
    });
    assert!(told, "no event");
    let status = node.status();
    let why = &status.devices[0].why;
    assert!(
        why.starts_with("the cap found is not restored yet"),
        "{why}"
    );
    assert!(
        status.devices[1].why.contains("nothing to restore"),
        "{why}"
    );
}

/// litd is off for long, and then stops: it does not wait for gpu0 once more.
#[test]
fn a_stop_after_off_restores_the_others_at_once() {
    let mut node = restored(Fails::Both, 8.0, Way::Off);
    node.pass(60.0);
    node.stop();
    assert_eq!(node.caps()[1..], [600.0, 600.0]);
}

/// A GPU that can be lowered is lowered before another one rises.
#[test]
fn a_gpu_that_obeys_is_lowered_first() {
    let mut node = restored_slowly(1.0);
    node.kill_switch(true);
    node.most = 0.0;
    node.pass(5.0);
    node.all_hold(600.0);
    assert!(node.most <= 1800.0, "{} W", node.most);
}

/// One that takes longer than 1.5 s for that is not waited for.
#[test]
fn a_gpu_that_is_lowered_slowly_is_waited_for_only_so_long() {
    let mut node = restored_slowly(4.0);
    node.kill_switch(true);
    node.pass(2.5);
    assert_eq!(node.caps(), [700.0, 600.0, 600.0]);
    node.pass(5.0);
    node.all_hold(600.0);
}

/// A write to gpu0 takes so long.
fn restored_slowly(seconds: f64) -> Node {
    let mut node = beside_a_reset();
    node.gpus[0].write_takes = (seconds * crate::node::SECOND as f64) as i64;
    node
}

/// A budget that was set is kept: a release waits for room.
#[test]
fn a_release_under_a_budget_still_waits_for_room() {
    let mut node = Node::under(1500.0, found_at(3, 600.0));
    node.gpus[0].fails_reads = true;
    node.gpus[0].writes = Writes::Fail;
    node.pass(10.0);
    node.most = 0.0;
    node.command(release(1)).unwrap();
    node.pass(20.0);
    assert!(node.most <= 1500.0, "{} W", node.most);
}

/// A GPU that holds its cap found, and whose reads fail, is not called one that is not restored.
#[test]
fn a_gpu_at_its_cap_found_has_nothing_to_be_restored() {
    let mut node = Node::under(1500.0, found_at(2, 600.0));
    node.gpus[0].fails_reads = true;
    node.pass(2.0);
    let why = node.status().devices[0].why.clone();
    assert!(!why.contains("not restored"), "{why}");
}

/// gpu0's driver does not tell its range once litd is gone, so nobody can judge what it may hold.
#[test]
fn a_restore_waits_for_no_gpu_that_cannot_be_judged() {
    let mut node = Node::under(1600.0, found_at(4, 700.0));
    node.pass(5.0);
    node.kill();
    node.gpus[0].hides_range = true;
    let before = node.now;
    node.restore();
    assert_eq!(node.caps(), [700.0; 4]);
    let took = (node.now - before) / crate::node::SECOND;
    assert!(took < 5, "{took} s");
}
