//! What the rest of the node draws is what its BMC tells and the devices don't draw. Whoever has a GPU can have that
//! draw what he likes, when he likes: it is not to be taken for the rest of the node's, and so for everybody's watts.

use litd_power::DeviceKind;
use litd_units::Watts;

use crate::gpu::found_at;
use crate::node::{MS, Node, SECOND, observing};
use crate::rng::Rng;

const REST: f64 = 1200.0;

/// What a GPU draws in each second.
type Pulse = fn(i64) -> f64;

/// Eight GPUs that draw 600 W each, but for the first one, which draws what `pulse` says of each second. The BMC tells
/// an average of so many seconds, so many seconds late. Returns what litd takes the rest of the node to draw.
fn reserve(pulse: Pulse, averages: usize, late: usize) -> Option<f64> {
    let mut config = observing();
    config.node.budget = Some(Watts(7000.0));
    let mut node = Node::with(found_at(8, 700.0), config);
    for gpu in &mut node.gpus {
        gpu.power = Watts(600.0);
    }
    let mut drew = Vec::new();
    for second in 0..900 {
        node.gpus[0].power = Watts(pulse(second));
        let each = node.gpus.iter().map(|gpu| gpu.power);
        drew.push(REST + each.sum::<Watts>().0);
        for gpu in &mut node.gpus {
            gpu.energy += gpu.power.0;
        }
        node.pass(1.0);
        if second % 5 == 0 && drew.len() >= averages + late {
            let told = drew.iter().rev().skip(late).take(averages);
            let power = told.sum::<f64>() / averages as f64;
            node.told_by_bmc(power, None);
        }
    }
    assert_eq!(node.now / SECOND, 901);
    told(&node)
}

#[test]
fn nobody_has_his_own_power_taken_for_the_rest_of_the_nodes() {
    let pulses: [(&str, Pulse); 5] = [
        ("steady", |_| 600.0),
        ("a minute each", |second| {
            if second / 60 % 2 == 0 { 700.0 } else { 90.0 }
        }),
        ("half a minute each", |second| {
            if second / 30 % 2 == 0 { 700.0 } else { 90.0 }
        }),
        ("low when the BMC is read", |second| {
            if second % 5 == 0 { 90.0 } else { 700.0 }
        }),
        ("ends", |second| if second < 400 { 700.0 } else { 90.0 }),
    ];
    for (name, pulse) in pulses {
        for (averages, late) in [(1, 0), (1, 2), (30, 0), (60, 0), (30, 30)] {
            let reserve = reserve(pulse, averages, late).unwrap();
            let told = format!("{name}, of {averages} s, {late} s late: {reserve} W");
            assert!(reserve <= REST + 5.0, "{told}");
            // Where the load is the same for a minute, all of it is seen.
            let is_steady = ["steady", "ends"].contains(&name);
            assert!(!is_steady || reserve >= REST - 5.0, "{told}");
        }
    }
}

/// The reserve that a node's status tells.
fn told(node: &Node) -> Option<f64> {
    let measured = node.status().node.power;
    measured.and_then(|it| it.reserve).map(|it| it.0)
}

/// Some seconds pass, of which each GPU draws what it draws all the time; once in five the BMC tells that, and the rest.
fn pass(node: &mut Node, seconds: i64, mut each: impl FnMut(&mut Node, i64)) {
    for second in 0..seconds {
        each(node, second);
        for _ in 0..10 {
            for gpu in &mut node.gpus {
                gpu.energy += gpu.power.0 * 0.1;
            }
            node.step();
        }
        if second % 5 == 0 {
            let power: Watts = node.gpus.iter().map(|gpu| gpu.power).sum();
            node.told_by_bmc(power.0 + REST, None);
        }
    }
}

/// Whoever calls the driver, or has it read out much, makes all readings take longer now and then. The counters tell
/// more energy then, and no more power.
#[test]
fn readings_that_take_longer_now_and_then_do_not_shrink_the_reserve() {
    for late in [0, 50, 100, 200, 400, 900] {
        let mut config = observing();
        config.node.budget = Some(Watts(5600.0));
        let mut node = Node::with(found_at(8, 700.0), config);
        for gpu in &mut node.gpus {
            gpu.power = Watts(600.0);
        }
        pass(&mut node, 900, |node, second| {
            for gpu in &mut node.gpus {
                gpu.read_takes = if second % 50 == 7 { late * MS } else { 0 };
            }
        });
        let reserve = told(&node).unwrap();
        assert!((reserve - REST).abs() <= 5.0, "{late} ms: {reserve} W");
        assert!(
            node.sum() <= 5600.0 - REST + 5.0,
            "{late} ms: {}",
            node.sum()
        );
    }
}

/// A load that never stays the same for a minute hides what the rest of the node draws, but not that it draws
/// something, nor that the reserve is not known well. Once all GPUs draw what they may, the budget is kept.
#[test]
fn a_gpu_that_pulses_does_not_keep_the_nodes_budget_from_being_kept() {
    let mut config = observing();
    config.node.budget = Some(Watts(5600.0));
    let mut node = Node::with(found_at(8, 700.0), config);
    for gpu in &mut node.gpus {
        gpu.power = Watts(550.0);
    }
    pass(&mut node, 1800, |node, second| {
        node.gpus[0].power = Watts(if second % 55 == 3 { 700.0 } else { 80.0 });
    });
    let reserve = told(&node).unwrap();
    let least = REST - (700.0 - 80.0);
    assert!(
        reserve >= least - 5.0 && reserve <= REST + 5.0,
        "{reserve} W"
    );
    let told = |node: &Node| {
        node.log
            .iter()
            .any(|line| line.contains("Set node.reserve"))
    };
    assert!(told(&node), "{:?}", node.log);
    pass(&mut node, 600, |node, _| {
        for gpu in &mut node.gpus {
            gpu.power = gpu.cap;
        }
    });
    assert!(node.sum() + REST <= 5600.0 + 5.0, "{} W", node.sum());
}

/// What a CPU socket draws is not the rest's because its module is loaded anew.
#[test]
fn a_socket_that_is_silent_for_minutes_is_not_the_rest_of_the_node() {
    let mut config = observing();
    config.node.budget = Some(Watts(6500.0));
    let mut gpus = found_at(5, 700.0);
    gpus[4].identity.kind = DeviceKind::Cpu;
    gpus[4].identity.address = "cpu0".to_owned();
    gpus[4].cap = Watts(400.0);
    let mut node = Node::with(gpus, config);
    for gpu in &mut node.gpus {
        gpu.power = Watts(550.0);
    }
    node.gpus[4].power = Watts(350.0);
    for silent in [false, true, false] {
        node.gpus[4].fails_reads = silent;
        pass(&mut node, 600, |_, _| {});
        let reserve = told(&node).unwrap();
        assert!((reserve - REST).abs() <= 5.0, "{silent}: {reserve} W");
    }
}

/// Eight GPUs of one job draw their caps on an average of each second, as their counters tell, and at the moment of a
/// reading so much more or less than that.
fn moments(swing: f64) -> Node {
    let mut config = observing();
    config.node.budget = Some(Watts(5600.0));
    let mut node = Node::with(found_at(8, 700.0), config);
    let mut rng = Rng::new(7);
    for second in 0..1800 {
        let phase = 1.0 + swing * (2.0 * rng.unit() - 1.0);
        for gpu in &mut node.gpus {
            gpu.power = gpu.cap * phase;
            gpu.energy += gpu.cap.0;
        }
        let mean = node.sum();
        node.pass(1.0);
        if second % 5 == 0 {
            node.told_by_bmc(mean + REST, None);
        }
    }
    node
}

/// The power of a moment, which some drivers tell, is above the cap, and a BMC tells a mean.
#[test]
fn power_of_a_moment_does_not_shrink_the_reserve() {
    for swing in [0.0, 0.02, 0.05, 0.1, 0.2] {
        let drawn = moments(swing).sum() + REST;
        assert!(drawn <= 5605.0, "+-{swing}: {drawn} W of 5600 W");
        assert!(drawn >= 5500.0, "+-{swing}: {drawn} W of 5600 W");
    }
}

/// A GPU that is dead when litd starts may draw all that it could hold: what the BMC tells beyond that is the rest's.
#[test]
fn a_dead_gpu_does_not_keep_the_nodes_budget_from_being_kept() {
    let mut config = observing();
    config.node.budget = Some(Watts(5600.0));
    let mut gpus = found_at(8, 700.0);
    gpus[3].hangs = true;
    let mut node = Node::with(gpus, config);
    pass(&mut node, 900, |node, _| {
        for gpu in &mut node.gpus {
            gpu.power = gpu.cap.min(Watts(690.0));
        }
        node.gpus[3].power = Watts(0.0);
    });
    let seven = node.sum() - node.gpus[3].cap.0;
    assert!(seven + REST <= 5605.0, "{} W of 5600 W", seven + REST);
}

/// Eight GPUs that draw what they may under a node's budget of 5600 W.
fn at_their_caps() -> Node {
    let mut config = observing();
    config.node.budget = Some(Watts(5600.0));
    let mut gpus = found_at(8, 700.0);
    for gpu in &mut gpus {
        gpu.power = Watts(700.0);
    }
    Node::with(gpus, config)
}

/// Each GPU draws what its cap allows.
fn draws_its_cap(node: &mut Node, _: i64) {
    for gpu in &mut node.gpus {
        gpu.power = gpu.cap;
    }
}

/// The second of the BMC's readings shows what the rest of the node draws at least, and the budget is kept from then on.
#[test]
fn a_nodes_budget_is_kept_from_the_first_readings_on() {
    let mut node = at_their_caps();
    pass(&mut node, 12, draws_its_cap);
    let reserve = told(&node).unwrap_or_default();
    assert!((reserve - REST).abs() <= 5.0, "{reserve} W");
    assert!(node.sum() <= 5600.0 - REST + 5.0, "{} W", node.sum());
    pass(&mut node, 80, draws_its_cap);
    let reserve = told(&node).unwrap_or_default();
    assert!((reserve - REST).abs() <= 5.0, "{reserve} W");
}

/// GPUs that draw little may have drawn as much as their caps a moment before litd has started.
#[test]
fn the_first_readings_show_no_more_than_what_no_gpu_can_have_drawn() {
    let mut node = at_their_caps();
    pass(&mut node, 30, |node, _| {
        node.gpus.iter_mut().for_each(|gpu| gpu.power = Watts(90.0));
    });
    assert_eq!(told(&node).unwrap_or_default(), 0.0);
    // After a minute it is known what they draw.
    pass(&mut node, 60, |_, _| {});
    let reserve = told(&node).unwrap_or_default();
    assert!((reserve - REST).abs() <= 5.0, "{reserve} W");
}

/// What was measured is kept over a crash, and over a stop.
#[test]
fn a_measured_reserve_outlives_litd() {
    for stops in [false, true] {
        let mut node = at_their_caps();
        pass(&mut node, 450, draws_its_cap);
        match stops {
            true => assert!(node.stop()),
            false => node.kill(),
        }
        node.most = 0.0;
        node.start();
        node.pass(3.0);
        let reserve = told(&node).unwrap_or_default();
        assert!((reserve - REST).abs() <= 5.0, "{stops}: {reserve} W");
        assert!(
            node.sum() <= 5600.0 - REST + 5.0,
            "{stops}: {} W",
            node.sum()
        );
    }
}
