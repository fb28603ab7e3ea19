//! The model law on a toy node: four GPUs whose speed is the square root of their cap.
#![allow(clippy::unwrap_used, clippy::panic)]

use litd_policies::{Law, Policy, State, Why};
use litd_units::Watts;

use toy::{Toy, config};

mod both;
mod toy;

/// The tests of both laws run under this one here.
const LAW: Law = Law::Model;

fn toy(policy: Policy) -> Toy {
    Toy::under(LAW, policy)
}

/// By how much the fastest GPU is faster than the slowest.
fn spread(toy: &Toy) -> f64 {
    let speeds = toy.speeds();
    let fastest = speeds.iter().copied().fold(0.0, f64::max);
    fastest / speeds.iter().copied().fold(f64::INFINITY, f64::min) - 1.0
}

/// Runs on for so many windows; how often caps changed.
fn changes(toy: &mut Toy, windows: u32) -> u32 {
    (0..windows)
        .map(|_| u32::from(toy.window().apply.is_some()))
        .sum()
}

#[test]
fn gpu_realloc_is_level_after_two_adjustments() {
    let mut toy = toy(Policy::GpuRealloc);
    let first = toy.warm_up();
    assert_eq!(first.state, State::Adjusting, "{}", first.why);
    changes(&mut toy, 30);
    assert_eq!(toy.controller.state(), State::Converged);
    assert!(toy.controller.adjustments() <= 3);
    assert!(spread(&toy) < 0.002, "{}", spread(&toy));
    assert!(toy.sum() <= Watts(2800.0));
}

#[test]
fn gpu_red_never_slows_the_straggler_and_a_wrong_slope_costs_nothing() {
    let mut toy = toy(Policy::GpuRed);
    let before = toy.sample().iteration_time;
    toy.warm_up();
    for _ in 0..30 {
        assert!(toy.sample().iteration_time <= before * 1.001);
        toy.window();
    }
    assert_eq!(toy.held[2], Watts(750.0));
    assert!(toy.sum() < Watts(0.965 * 3000.0), "{}", toy.sum());
    assert!(toy.controller.adjustments() <= 4);
}

#[test]
fn a_level_node_is_left_alone() {
    for policy in [Policy::GpuRed, Policy::GpuRealloc] {
        let mut toy = toy(policy);
        toy.speed = [1.0; 4];
        assert_eq!(toy.warm_up().apply, None);
        assert_eq!(changes(&mut toy, 100), 0);
    }
}

#[test]
fn a_gpu_that_becomes_hotter_is_levelled_again_in_two_adjustments() {
    let mut toy = toy(Policy::GpuRealloc);
    toy.warm_up();
    changes(&mut toy, 30);
    let adjustments = toy.controller.adjustments();
    toy.speed[0] -= 0.02;
    changes(&mut toy, 30);
    assert!(toy.controller.adjustments() - adjustments <= 3);
    assert!(toy.controller.adjustments() > adjustments);
    assert!(spread(&toy) < 0.003, "{}", spread(&toy));
}

#[test]
fn caps_that_kernels_do_not_follow_are_taken_back() {
    let mut toy = toy(Policy::GpuRealloc);
    let start = toy.held.clone();
    let first = toy.warm_up();
    assert!(first.apply.is_some());
    // Clocks that don't depend on the caps.
    let speed = toy.speed;
    for _ in 0..30 {
        for ((now, before), held) in toy.speed.iter_mut().zip(speed).zip(&toy.held) {
            *now = before / (held.0 / 700.0).sqrt();
        }
        let decision = toy.window();
        if decision.state == State::Rollback {
            assert!(
                matches!(decision.why, Why::Contradicted { .. }),
                "{}",
                decision.why
            );
            assert_eq!(toy.held, start);
            return;
        }
    }
    panic!("still steering");
}

#[test]
fn a_late_host_gets_no_power() {
    let mut toy = toy(Policy::GpuRealloc);
    toy.speed = [1.0; 4];
    toy.host_lead = [400.0, 400.0, 400.0, 0.0];
    let end = toy.warm_up();
    assert_eq!(end.apply, None, "{}", end.why);
    assert_eq!(changes(&mut toy, 20), 0);
}

#[test]
fn a_throttling_straggler_gets_no_power() {
    for policy in [Policy::GpuRed, Policy::GpuRealloc] {
        let mut toy = toy(policy);
        toy.throttled[2] = true;
        assert_eq!(toy.warm_up().apply, None);
        assert_eq!(changes(&mut toy, 20), 0);
    }
}

#[test]
fn no_cap_changes_by_more_than_a_step() {
    let mut config = config(LAW);
    config.model.max_adjustment = Watts(12.0);
    let mut toy = Toy::with(Policy::GpuRealloc, config);
    toy.warm_up();
    for _ in 0..40 {
        let before = toy.held.clone();
        toy.window();
        for (now, then) in toy.held.iter().zip(&before) {
            assert!((*now - *then).abs() <= Watts(13.0), "{now} after {then}");
        }
    }
    assert!(spread(&toy) < 0.003, "{}", spread(&toy));
}

/// Warm-up in which the first GPU draws less than its cap allows, and its power is read like this at
/// the end.
fn unbound(policy: Policy, power: f64, known: bool) -> Toy {
    let mut toy = toy(policy);
    for _ in 0..toy::WARM_UP {
        let mut sample = toy.sample();
        sample.gpus[0].power_share = Some(0.2);
        sample.gpus[0].power = Some(Watts(power));
        if !known {
            sample.gpus[0].temperature = None;
        }
        let decision = toy.controller.step(&sample);
        toy.write(&decision);
    }
    toy
}

#[test]
fn a_power_read_too_low_takes_no_gpu_more_than_a_step() {
    for policy in [Policy::GpuRed, Policy::GpuRealloc] {
        let start = toy(policy).held;
        for power in [1.0, 180.0, 520.0] {
            let held = unbound(policy, power, true).held;
            assert_ne!(held[1], start[1], "{policy} at {power} W: {held:?}");
            let kept = held[0] >= start[0] - Watts(60.0) && held[0] < start[0];
            assert!(kept, "{policy} at {power} W: {held:?}");
        }
    }
}

#[test]
fn a_gpu_that_does_not_use_its_cap_keeps_it_while_its_heat_is_unknown() {
    let held = unbound(Policy::GpuRed, 520.0, false).held;
    assert_eq!(held[0], Watts(750.0));
    assert!(held[1] < Watts(750.0), "{held:?}");
}

#[test]
fn without_durations_the_papers_law_goes_on() {
    let mut toy = toy(Policy::GpuRealloc);
    let mut first = None;
    for _ in 0..toy::WARM_UP {
        let mut sample = toy.sample();
        sample.gpus.iter_mut().for_each(|gpu| gpu.pace = None);
        let decision = toy.controller.step(&sample);
        toy.write(&decision);
        first = decision.apply.or(first);
    }
    let caps = first.expect("leads alone move caps").to_watts();
    // Algorithm 2's largest increase, and no more.
    assert!(
        caps[2] > Watts(700.0) && caps[2] <= Watts(715.0),
        "{caps:?}"
    );
}

#[test]
fn a_straggler_that_gets_hot_on_the_way_gets_nothing_more() {
    let mut toy = toy(Policy::GpuRealloc);
    toy.warm_up();
    let held = toy.held.clone();
    toy.temperature[2] = 96.0;
    assert_eq!(changes(&mut toy, 12), 0);
    assert_eq!(toy.controller.state(), State::Converged);
    assert_eq!(toy.held, held);
}

#[test]
fn a_driver_that_holds_something_else_is_not_asked_for_the_same_for_ever() {
    let mut toy = toy(Policy::GpuRealloc);
    let mut writes = 0;
    for _ in 0..2000 {
        let decision = toy.step();
        writes += u32::from(decision.apply.is_some());
        // No cap above 710 W is ever taken, and nobody is told.
        toy.held[2] = toy.held[2].min(Watts(710.0));
    }
    assert!(writes <= 6, "{writes} writes in 2,000 samples");
}
