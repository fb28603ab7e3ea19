//! Ranges, floors, ceilings and budgets at the edges of what is accepted.

use litd_api::Command;
use litd_core::Config;
use litd_units::Watts;

use crate::gpu::{Gpu, found_at};
use crate::node::{EPSILON, Node, budget, observing};
use crate::rng::Rng;
use crate::seeds::{self, Outcome, ensure};

/// A GPU found somewhere in a range of its own.
fn draw_range(rng: &mut Rng, gpu: &mut Gpu) {
    let lowest = rng.pick(&[0.0, 75.5, 100.0, 250.0, 300.0]);
    let highest = rng.pick(&[350.0, 349.7, 400.0, 700.0, 750.0, 1000.0]);
    gpu.range.lowest = Watts(lowest);
    gpu.range.highest = Watts(highest);
    gpu.range.default = Watts(highest * rng.pick(&[1.0, 0.9, 0.8]));
    gpu.range.resolution = Watts(rng.pick(&[1.0, 0.001]));
    let cap = lowest + (highest - lowest) * rng.pick(&[0.0, 0.1, 0.5, 0.77, 1.0]);
    gpu.cap = Watts((cap * 1000.0).round() / 1000.0);
    if gpu.cap <= Watts::ZERO {
        gpu.cap = gpu.range.default;
    }
}

/// The least that a configuration lets litd set.
fn floor(config: &Config, gpu: &Gpu) -> f64 {
    let (lowest, highest) = (gpu.range.lowest, gpu.range.highest);
    let highest_found = gpu.range.default.max(gpu.cap);
    let ceiling = config.caps.gpu_ceiling.unwrap_or(highest_found);
    let ceiling = ceiling.max(lowest).min(highest);
    lowest.max(config.caps.gpu_floor).min(ceiling).0
}

/// Draws until litd would start.
fn draw(rng: &mut Rng) -> (Config, Vec<Gpu>) {
    loop {
        let mut config = observing();
        let floors = [
            1.0, 100.0, 200.0, 250.0, 300.0, 349.0, 350.0, 700.0, 0.4, 250.5,
        ];
        let ceilings = [
            None,
            None,
            Some(350.0),
            Some(349.7),
            Some(500.0),
            Some(700.0),
            Some(1000.0),
        ];
        config.caps.gpu_floor = Watts(rng.pick(&floors));
        config.caps.gpu_ceiling = rng.pick(&ceilings).map(Watts);
        let gpu_count = 1 + rng.below(8);
        let mut gpus = found_at(gpu_count, 700.0);
        gpus.iter_mut().for_each(|gpu| draw_range(rng, gpu));
        let floors: f64 = gpus.iter().map(|gpu| floor(&config, gpu)).sum();
        let found: f64 = gpus.iter().map(|gpu| gpu.cap.0).sum();
        let more = (found - floors).max(0.0) * rng.pick(&[0.0, 0.01, 0.3, 0.7, 1.0]);
        config.caps.budget = Some(Watts((floors + more).ceil()));
        let ceiling = config.caps.gpu_ceiling;
        let inventory: Vec<_> = gpus.iter().map(Gpu::discovered).collect();
        let accepted = ceiling.is_none_or(|it| it >= config.caps.gpu_floor)
            && litd_core::budget::impossible(&config, &inventory).is_empty();
        if accepted {
            return (config, gpus);
        }
    }
}

fn history(seed: u64) -> Outcome {
    let (config, gpus) = draw(&mut Rng::new(seed));
    let found: Vec<f64> = gpus.iter().map(|gpu| gpu.cap.0).collect();
    let lowered = |gpu: &Gpu| floor(&config, gpu).ceil().min(gpu.cap.0);
    let least: f64 = gpus.iter().map(lowered).sum();
    let budget = config.caps.budget.unwrap().0;
    let mut node = Node::with(gpus, config);
    node.pass(15.0);
    let (sum, held) = (node.sum(), node.caps());
    node.stop();
    let after = node.caps();
    let kept = ensure(sum <= budget.max(least) + EPSILON, || {
        format!("GPUs hold {sum} of {budget} W, and could hold {least} W: {held:?}")
    });
    let back = ensure(after == found, || {
        format!("GPUs hold {after:?} after the stop, found at {found:?}")
    });
    (std::mem::take(&mut node.log), kept.and(back))
}

#[test]
fn budgets_at_the_edges() {
    seeds::none_is_bad(history);
}

/// An administrator has lowered the budget because a feed failed, and litd crashes.
#[test]
fn a_budget_by_command_outlives_a_crash_and_no_stop() {
    let mut node = Node::new(4);
    node.pass(5.0);
    node.command(budget(1600.0)).unwrap();
    let policy = "observe".to_owned();
    node.command(Command::SetPolicy { policy }).unwrap();
    node.pass(5.0);
    node.holds_at_most(1600.0);
    for _ in 0..2 {
        node.kill();
        node.restore();
        node.start();
        node.pass(5.0);
        node.holds_at_most(1600.0);
        let status = node.status();
        assert_eq!(
            (status.gpus.budget, &*status.node.policy),
            (Watts(1600.0), "observe")
        );
    }
    assert!(node.stop());
    node.start();
    node.pass(5.0);
    node.all_hold(700.0);
    assert_eq!(node.status().gpus.budget, Watts(2800.0));
}

/// The file is the newer word where it allows less.
#[test]
fn a_lower_budget_in_the_file_takes_the_place_of_one_from_before_a_crash() {
    let mut node = Node::new(4);
    node.pass(5.0);
    node.command(budget(2000.0)).unwrap();
    node.pass(5.0);
    node.kill();
    node.config.caps.budget = Some(Watts(1600.0));
    node.start();
    node.pass(5.0);
    node.holds_at_most(1600.0);
}
