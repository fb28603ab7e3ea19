//! What the rest of the node draws is what its BMC tells and the devices don't draw. Whoever has a GPU can have that
//! draw what he likes, when he likes: it is not to be taken for the rest of the node's, and so for everybody's watts.

use litd_core::{Event, NodeReading};
use litd_units::Watts;

use crate::gpu::found_at;
use crate::node::{Node, SECOND, observing};

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
            node.event(Event::NodePower(NodeReading {
                source: "redfish".to_owned(),
                power: Some(Watts(power)),
                ..NodeReading::default()
            }));
        }
    }
    assert_eq!(node.now / SECOND, 901);
    let measured = node.status().node.measured;
    measured.and_then(|it| it.reserve).map(|it| it.0)
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
