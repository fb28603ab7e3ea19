//! The part of a node's budget, or its BMC's limit, for the GPUs.

use litd_api::{Command, DeviceState};
use litd_core::Event;
use litd_power::DeviceKind;
use litd_units::Watts;

use crate::gpu::{Writes, found_at};
use crate::node::{Node, budget, observing, release};

fn under_a_nodes_budget(watts: f64, gpus: usize, cap: f64) -> Node {
    let mut config = observing();
    config.node.budget = Some(Watts(watts));
    config.node.reserve = Some(Watts(500.0));
    let mut node = Node::with(found_at(gpus, cap), config);
    node.pass(10.0);
    node
}

/// The GPUs' part is a little more than the caps found; a GPU comes up late.
#[test]
fn unmanaged_under_a_nodes_budget() {
    let mut node = under_a_nodes_budget(5000.0, 7, 600.0);
    node.event(Event::Unmanaged(["0000:f1:00.0".to_owned()].into()));
    node.pass(30.0);
    let told = node.status().gpus;
    let sum = node.sum() + 700.0;
    assert!(sum <= 4500.0 || told.caps > told.budget, "{sum} of 4500 W");
}

/// The same with a GPU that is released and reset.
#[test]
fn released_and_reset_under_a_nodes_budget() {
    let mut node = under_a_nodes_budget(4600.0, 8, 500.0);
    node.command(release(3)).unwrap();
    node.command(release(4)).unwrap();
    node.pass(10.0);
    node.is_reset(3);
    node.is_reset(4);
    node.pass(60.0);
    let told = node.status().gpus;
    assert!(
        node.sum() <= 4100.0 || told.caps > told.budget,
        "{} of 4100 W",
        node.sum()
    );
}

fn bmc(node: &mut Node, power: f64, cap: Option<f64>, seconds: usize) {
    for _ in 0..seconds / 5 {
        node.told_by_bmc(power, cap);
        node.pass(5.0);
    }
}

/// The BMC tells a limit; one GPU is released, so that nobody knows what the others than the GPUs draw.
#[test]
fn bmc_limit_beside_a_released_gpu() {
    let mut node = Node::new(8);
    node.pass(5.0);
    node.command(release(3)).unwrap();
    node.pass(5.0);
    for gpu in &mut node.gpus {
        gpu.power = Watts(500.0);
    }
    bmc(&mut node, 4900.0, Some(5000.0), 1800);
    assert!(
        node.sum() <= 5000.0
            || node
                .log
                .iter()
                .any(|it| it.contains("limit") || it.contains("not kept"))
    );
}

/// GPUs' power goes up and down with the readings.
#[test]
fn bursts() {
    let mut config = observing();
    config.node.budget = Some(Watts(5600.0));
    let mut node = Node::with(found_at(8, 700.0), config);
    node.pass(5.0);
    for at in 0..720 {
        let each = if at % 2 == 0 { 650.0 } else { 400.0 };
        for gpu in &mut node.gpus {
            gpu.power = Watts(each);
        }
        node.pass(2.0);
        node.told_by_bmc(each * 8.0 + 1500.0, None);
        node.pass(3.0);
    }
    let told = node.status().gpus;
    assert!(node.sum() <= 4100.0, "{} {:?}", node.sum(), told.budget);
}

/// A CPU socket's limit is to be raised by hand, and that fails.
#[test]
fn cpu_by_hand_fails_pins() {
    let mut gpus = found_at(5, 700.0);
    gpus[4].identity.kind = DeviceKind::Cpu;
    gpus[4].identity.address = "cpu0".to_owned();
    gpus[4].cap = Watts(300.0);
    let mut config = observing();
    config.node.budget = Some(Watts(2500.0));
    config.node.reserve = Some(Watts(500.0));
    let mut node = Node::with(gpus, config);
    node.pass(10.0);
    let before = node.caps();
    node.gpus[4].writes = Writes::Fail;
    let cap = Command::SetCap {
        device: "cpu0".to_owned(),
        watts: Watts(450.0),
    };
    node.command(cap).unwrap();
    node.pass(1.5);
    node.give_up_by_hand("cpu0");
    node.pass(5.0);
    node.gpus[4].writes = Writes::Taken;
    node.pass(600.0);
    let after = node.caps();
    assert_eq!(before, after);
}

/// The BMC tells a limit of 5000 W so many times, and what the node draws then; its GPUs draw so much each.
fn told_a_limit(readings: usize, gpus: f64, power: fn(usize) -> f64) {
    let mut config = observing();
    config.node.reserve = Some(Watts(1400.0));
    let mut node = Node::with(found_at(8, 700.0), config);
    node.pass(5.0);
    for gpu in &mut node.gpus {
        gpu.power = Watts(gpus);
    }
    for at in 0..readings {
        node.told_by_bmc(power(at), Some(5000.0));
        node.pass(5.0);
    }
    assert!(node.sum() <= 3600.0, "{}", node.sum());
}

/// The BMC's limit is far exceeded, but for one reading of each twelve (a job that checkpoints).
#[test]
fn limit_with_dips() {
    told_a_limit(720, 600.0, |at| if at % 12 == 11 { 5500.0 } else { 6500.0 });
}

/// The BMC's limit is exceeded by a little less, and a little more, than a fifth in turn.
#[test]
fn limit_in_turn() {
    told_a_limit(360, 500.0, |at| if at % 2 == 0 { 5900.0 } else { 6100.0 });
}

/// The same with reads that fail.
#[test]
fn reads_fail_under_a_nodes_budget() {
    let mut config = observing();
    config.node.budget = Some(Watts(4600.0));
    config.node.reserve = Some(Watts(500.0));
    let mut node = Node::with(found_at(8, 500.0), config);
    node.pass(10.0);
    node.gpus[3].fails_reads = true;
    node.gpus[3].hides_range = true;
    node.pass(5.0);
    node.is_reset(3);
    node.pass(60.0);
    let told = node.status().gpus;
    assert!(
        node.sum() <= 4100.0 || told.caps > told.budget,
        "{} {:?} {:?}",
        node.sum(),
        told.caps,
        told.budget
    );
}

/// gpu4 is released: by its default the others go below what was found. What they and 690 W of gpu3 come to is within
/// 4100 W, once gpu4 is litd's again.
fn room_is_made_for_gpu3(mut node: Node) {
    node.pass(30.0);
    let device = Some("gpu4".to_owned());
    node.command(Command::Resume { device }).unwrap();
    node.pass(60.0);
    let others = node.sum() - node.gpus[3].cap.0;
    assert!(others + 690.0 <= 4100.0, "{:?}", node.caps());
    let told = node.status().gpus;
    assert!(told.caps.0 >= others + 690.0 && told.caps <= told.budget);
    assert!(told.budget.0 <= 4100.0);
    node.gpus[3].power = Watts(90.0);
    let device = Some("gpu3".to_owned());
    node.command(Command::Resume { device }).unwrap();
    node.pass(60.0);
    node.holds_at_most(4100.0);
}

/// A foreign program sets gpu3 to 690 W.
#[test]
fn foreign_under_a_nodes_budget() {
    let mut node = under_a_nodes_budget(4600.0, 8, 500.0);
    node.command(release(4)).unwrap();
    node.pass(10.0);
    node.by_others(3, 690.0);
    room_is_made_for_gpu3(node);
}

/// The cap of gpu3 is lowered, and it draws 690 W all the same.
#[test]
fn not_in_force_under_a_nodes_budget() {
    let mut node = under_a_nodes_budget(4600.0, 8, 500.0);
    node.gpus[3].power = Watts(690.0);
    node.command(release(4)).unwrap();
    room_is_made_for_gpu3(node);
}

/// The node is short of power while a higher budget is asked for: no cap rises, and all do once it no longer is, although
/// nothing else happens.
#[test]
fn what_waits_for_power_rises_once_there_is_some() {
    let mut node = Node::under(4000.0, found_at(8, 700.0));
    node.is_short_of_power();
    node.command(budget(5000.0)).unwrap();
    node.pass(50.0);
    node.all_hold(500.0);
    node.pass(20.0);
    node.all_hold(625.0);
}

/// Somebody else sets gpu3, and then a higher budget is asked for: no cap rises before gpu3 is resumed, unless the
/// foreign cap is the driver's default, 700 W. The cap that was found on gpu3 before says nothing of that.
#[test]
fn no_cap_rises_beside_a_foreign_cap_unless_that_is_the_default() {
    for (found, theirs, rises) in [
        (700.0, 550.0, false),
        (650.0, 550.0, false),
        (650.0, 700.0, true),
        (700.0, 700.0, true),
    ] {
        let mut node = Node::under(4000.0, found_at(8, found));
        // The default may be a reset; the third time within ten minutes it is somebody's.
        for _ in 0..4 {
            if node.status().devices[3].state == DeviceState::Ours {
                node.by_others(3, theirs);
                node.pass(20.0);
            }
        }
        assert_eq!(node.status().devices[3].state, DeviceState::Foreign);
        assert!(!node.status().node.yielded);
        node.command(budget(4600.0)).unwrap();
        node.pass(60.0);
        let why = format!("found {found}, theirs {theirs}: {:?}", node.gpus[0].cap);
        assert_eq!(node.gpus[0].cap > Watts(505.0), rises, "{why}");
        let device = Some("gpu3".to_owned());
        node.command(Command::Resume { device }).unwrap();
        node.pass(60.0);
        assert!(node.gpus[0].cap > Watts(505.0), "{why}");
        node.holds_at_most(4600.0);
    }
}
