//! The paper's law on a toy node: four GPUs whose speed is the square root of their cap.
#![allow(clippy::unwrap_used, clippy::panic)]

use litd_policies::{Law, Policy, State, Why};
use litd_units::Watts;

use toy::Toy;

mod both;
mod toy;

/// The tests of both laws run under this one here.
const LAW: Law = Law::Paper;

fn toy(policy: Policy) -> Toy {
    Toy::under(LAW, policy)
}

#[test]
fn a_new_straggler_is_drift_and_one_odd_window_is_not() {
    let mut toy = toy(Policy::GpuRealloc);
    toy.until_converged();
    // Past the windows over which the last adjustment is judged.
    for _ in 0..4 {
        toy.window();
    }
    let speed = toy.speed;
    toy.speed[0] *= 0.95;
    assert_eq!(toy.window().state, State::Drift);
    toy.speed = speed;
    assert_eq!(toy.window().state, State::Converged);
    toy.speed[0] *= 0.95;
    assert_eq!(toy.window().state, State::Drift);
    let decision = toy.window();
    assert_eq!(decision.state, State::Adjusting);
    let held = decision.apply.unwrap();
    assert_eq!(held.to_watts(), toy.held);
}

#[test]
fn a_straggler_that_gets_hot_on_the_way_stops_the_way() {
    let mut toy = toy(Policy::GpuRealloc);
    toy.warm_up();
    let held = toy.held.clone();
    toy.temperature[2] = 96.0;
    let end = toy.window();
    assert_eq!((end.state, end.apply), (State::Converged, None));
    assert_eq!(toy.held, held);
}

#[test]
fn gpu_red_steps_back_when_it_costs_speed() {
    let mut toy = toy(Policy::GpuRed);
    toy.warm_up();
    let held = toy.held.clone();
    toy.window();
    assert_ne!(toy.held, held);
    toy.slowdown = 1.004;
    let back = toy.window();
    assert!(matches!(back.why, Why::CostsSpeed { .. }), "{}", back.why);
    assert_eq!(toy.held, held);
    // Smaller steps don't help either: it goes all the way back.
    for _ in 0..40 {
        toy.window();
    }
    assert_eq!(toy.controller.state(), State::Converged);
    assert_eq!(toy.held, vec![Watts(750.0); 4]);
    // And stays there.
    for _ in 0..10 {
        assert_eq!(toy.window().apply, None);
    }
}

#[test]
fn gpu_red_takes_a_hint_back_that_costs_speed() {
    let mut toy = toy(Policy::GpuRed);
    toy.controller
        .hint([700.0, 700.0, 748.0, 700.0].map(Watts).to_vec(), 1.0);
    assert!(matches!(toy.warm_up().why, Why::Recalled { .. }));
    let back = toy.window();
    assert!(matches!(back.why, Why::CostsSpeed { .. }), "{}", back.why);
    assert_eq!(toy.held, vec![Watts(750.0); 4]);
}
