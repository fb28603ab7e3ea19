//! New plans, restarts and knowledge from earlier, on the toy node.

use litd_policies::config::Mitigation;
use litd_policies::{CapVector, Config, Decision, Plan, PlanError, Policy, State, Why};
use litd_units::Watts;

use super::under_test;
use crate::toy::{Toy, WARM_UP, config, node};

fn within(policy: Policy, budget: f64) -> Plan {
    let knobs = Config::default().mitigation;
    Plan::within(policy, &node(), &knobs, Some(Watts(budget))).unwrap()
}

fn replan(toy: &mut Toy, plan: Plan) -> Decision {
    let decision = toy.controller.replan(plan);
    toy.write(&decision);
    decision
}

fn gpu_caps(caps: &CapVector) -> Vec<Watts> {
    caps.to_watts()[..4].to_vec()
}

#[test]
fn a_lower_budget_is_applied_at_once_and_the_node_measured_anew() {
    let mut toy = under_test(Policy::GpuRealloc);
    toy.until_converged();
    let (before, adjustments) = (toy.held.clone(), toy.controller.adjustments());
    let decision = replan(&mut toy, within(Policy::GpuRealloc, 2400.0));
    assert_eq!(decision.state, State::WarmUp);
    let words = decision.why.to_string();
    assert!(
        words.contains("gpu-realloc") && words.contains("2400 W"),
        "{words}"
    );
    assert!(toy.sum() <= Watts(2400.0) && toy.sum() > Watts(2395.0));
    // All caps come down by the same amount: learned differences stay.
    for (now, before) in toy.held.iter().zip(&before) {
        assert!((*before - *now) >= Watts(99.0), "{before} became {now}");
        assert!((*before - *now) <= Watts(101.0), "{before} became {now}");
    }
    assert_eq!(toy.controller.adjustments(), adjustments);
    // A node that is level enough for the first warm-up may still gain in a second.
    toy.warm_up();
    for _ in 0..20 {
        toy.window();
        assert!(toy.sum() <= Watts(2400.0));
    }
}

#[test]
fn a_larger_budget_is_used_step_by_step_on_a_level_node_too() {
    for policy in [Policy::GpuRealloc, Policy::GpuRed] {
        let mut toy = Toy::of(within(policy, 2000.0), config(crate::LAW));
        toy.speed = [1.0; 4];
        assert_eq!(toy.held, vec![Watts(500.0); 4]);
        assert_eq!(toy.warm_up().state, State::Converged);
        let first = replan(&mut toy, within(policy, 2600.0));
        assert_eq!(gpu_caps(&first.apply.unwrap()), vec![Watts(500.0); 4]);
        let mut held = toy.held.clone();
        loop {
            let decision = toy.step();
            let Why::Lifted { sum } = decision.why else {
                break;
            };
            assert_eq!((decision.state, sum), (State::WarmUp, toy.sum()));
            for (now, before) in toy.held.iter().zip(&held) {
                assert!(now > before && *now - *before <= Watts(15.0));
            }
            held = toy.held.clone();
        }
        assert_eq!(toy.held, vec![Watts(650.0); 4], "{policy}");
        // A sample of the warm-up has been taken, at the reference caps.
        for _ in 0..WARM_UP - 2 {
            assert_eq!(toy.step().state, State::WarmUp);
        }
        assert_eq!(toy.step().state, State::Converged);
    }
}

#[test]
fn a_hot_gpu_is_not_lifted_and_gives_its_share_to_the_others() {
    let mut toy = Toy::of(within(Policy::GpuRealloc, 2000.0), config(crate::LAW));
    toy.step();
    toy.temperature[1] = 97.0;
    replan(&mut toy, within(Policy::GpuRealloc, 2600.0));
    while let Why::Lifted { .. } = toy.step().why {}
    assert_eq!(toy.held, [700.0, 500.0, 700.0, 700.0].map(Watts));
    // A GPU that throttled a moment ago is hot, also across a new plan.
    toy.temperature[1] = 80.0;
    toy.throttled[1] = true;
    toy.step();
    toy.throttled[1] = false;
    replan(&mut toy, within(Policy::GpuRealloc, 2700.0));
    toy.step();
    assert_eq!(toy.held[1], Watts(500.0));
    assert!(toy.held[0] > Watts(700.0));
}

#[test]
fn gpu_red_keeps_what_leaders_gave_when_its_budget_changes() {
    let mut toy = under_test(Policy::GpuRed);
    toy.until_converged();
    let held = toy.held.clone();
    assert!(toy.sum() < Watts(2950.0));
    replan(&mut toy, within(Policy::GpuRed, 2980.0));
    assert!(!matches!(toy.step().why, Why::Lifted { .. }));
    assert_eq!(toy.held, held);
}

#[test]
fn observing_writes_nothing_and_steering_starts_from_what_is_held() {
    let mut toy = under_test(Policy::GpuRealloc);
    toy.until_converged();
    let decision = replan(&mut toy, within(Policy::Observe, 2800.0));
    assert_eq!((decision.state, decision.apply), (State::Observe, None));
    assert!(decision.why.to_string().contains("observe"));
    for _ in 0..9 {
        assert_eq!(toy.step().apply, None);
    }
    // The daemon gave the caps back; somebody had chosen those.
    toy.held = [740.0, 600.0, 610.0, 620.0].map(Watts).to_vec();
    toy.step();
    let caps = replan(&mut toy, within(Policy::GpuRealloc, 2800.0))
        .apply
        .unwrap();
    assert_eq!(gpu_caps(&caps), [740.0, 600.0, 610.0, 620.0].map(Watts));
}

#[test]
fn another_range_is_obeyed_at_once() {
    let mut toy = under_test(Policy::GpuRealloc);
    toy.until_converged();
    let mut node = node();
    node.gpus[0].ceiling = Watts(500.0);
    node.gpus[1].floor = Watts(705.0);
    let knobs = Config::default().mitigation;
    // The initial cap of 700 W is none of GPU 1's.
    let refused = Plan::within(Policy::GpuRealloc, &node, &knobs, None).unwrap_err();
    assert!(matches!(
        refused,
        PlanError::InitialBelowFloor { gpu: 1, .. }
    ));
    let knobs = Mitigation {
        initial_cap: Watts(705.0),
        ..knobs
    };
    let before = toy.held.clone();
    let plan = Plan::within(Policy::GpuRealloc, &node, &knobs, Some(Watts(2700.0))).unwrap();
    let budget = plan.gpu_budget();
    replan(&mut toy, plan);
    // 500 W and three times 705 W are all that the plan starts from.
    assert_eq!(budget, Watts(2615.0));
    assert!(toy.held[0] <= Watts(500.0) && toy.sum() <= budget);
    // Raised to its floor, which it was below; nothing else rises.
    assert!(before[1] < Watts(705.0));
    assert_eq!(toy.held[1], Watts(705.0));
    assert!(toy.held[2] <= before[2] && toy.held[3] <= before[3]);
}

#[test]
fn a_pause_and_a_drift_end_with_a_new_plan() {
    let mut toy = under_test(Policy::GpuRealloc);
    toy.warm_up();
    toy.slowdown = 1.05;
    while toy.window().state != State::Rollback {}
    toy.slowdown = 1.0;
    assert_eq!(
        replan(&mut toy, within(Policy::GpuRealloc, 2700.0)).state,
        State::WarmUp
    );
    assert_eq!(toy.warm_up().state, State::Adjusting);
}

#[test]
fn a_restart_measures_anew_from_the_caps_held() {
    let mut toy = under_test(Policy::GpuRealloc);
    toy.until_converged();
    let held = toy.held.clone();
    let adjustments = toy.controller.adjustments();
    toy.controller.restart();
    assert_eq!(toy.controller.state(), State::WarmUp);
    assert_eq!(toy.controller.caps().to_watts(), held);
    assert_eq!(toy.controller.adjustments(), adjustments);
    assert_eq!(toy.controller.baseline(), None);
    for _ in 1..WARM_UP {
        assert_eq!(toy.step().apply, None);
    }
    assert_eq!(toy.step().state, State::Adjusting);
    // Harm done since is rolled back to those caps, not to the plan's start.
    assert_ne!(toy.held, held);
    toy.slowdown = 1.05;
    while toy.window().state != State::Rollback {}
    assert_eq!(toy.held, held);
}

#[test]
fn an_observing_loop_restarts_observing() {
    let mut toy = under_test(Policy::Observe);
    toy.step();
    toy.controller.restart();
    assert_eq!(toy.controller.state(), State::Observe);
}

#[test]
fn a_plan_that_starts_from_the_caps_held_keeps_them_in_warm_up() {
    let learned = [705.0, 702.0, 725.0, 668.0].map(Watts);
    let plan = within(Policy::GpuRealloc, 2800.0).start_from(&learned);
    let mut toy = Toy::of(plan, config(crate::LAW));
    assert_eq!(toy.held, learned);
    toy.step();
    assert_eq!(toy.held, learned);
    // From any caps, a start is within the plan.
    let start = |caps: &[f64]| {
        let caps: Vec<Watts> = caps.iter().copied().map(Watts).collect();
        gpu_caps(within(Policy::GpuRealloc, 2600.0).start_from(&caps).start())
    };
    assert_eq!(start(&[750.0; 4]), [Watts(650.0); 4]);
    assert_eq!(start(&[100.0, 650.0, 650.0, 650.0])[0], Watts(300.0));
    assert_eq!(
        start(&[f64::NAN, 640.0]),
        [650.0, 640.0, 650.0, 650.0].map(Watts)
    );
}

#[test]
fn what_was_learned_is_where_the_first_adjustment_goes() {
    let mut toy = under_test(Policy::GpuRealloc);
    toy.until_converged();
    let learned = toy.held.clone();
    let mut toy = under_test(Policy::GpuRealloc);
    toy.controller.hint(learned.clone(), 1.0);
    let first = toy.warm_up();
    assert_eq!(first.state, State::Adjusting);
    assert_eq!(first.why, Why::Recalled { fraction: 1.0 });
    assert!(first.why.to_string().contains("learned caps"));
    assert_eq!(toy.held, learned);
    assert_eq!(toy.controller.adjustments(), 1);
    // The rise was more than an adjustment's, and the node is level at once.
    assert!(learned.iter().any(|&cap| cap > Watts(716.0)), "{learned:?}");
    assert_eq!(toy.window().state, State::Converged);
    // The hint is used once.
    toy.controller.restart();
    toy.speed[0] *= 0.95;
    let next = toy.warm_up();
    assert!(matches!(next.why, Why::Adjusted { .. }), "{}", next.why);
}

#[test]
fn part_of_the_way_is_part_of_the_way() {
    let mut toy = under_test(Policy::GpuRealloc);
    toy.controller
        .hint([690.0, 700.0, 740.0, 670.0].map(Watts).to_vec(), 0.5);
    let words = toy.warm_up().why.to_string();
    assert!(words.contains("50 % of the way"), "{words}");
    assert_eq!(toy.held, [695.0, 700.0, 720.0, 685.0].map(Watts));
}

#[test]
fn a_hint_obeys_the_envelope_and_the_heat_like_everything() {
    let mut toy = under_test(Policy::GpuRealloc);
    toy.temperature[0] = 97.0;
    toy.controller
        .hint([2000.0, 700.0, 2000.0, 0.0].map(Watts).to_vec(), 1.0);
    toy.warm_up();
    assert_eq!(toy.held[0], Watts(700.0));
    assert_eq!(toy.held[2..], [Watts(750.0), Watts(300.0)]);
    let mut toy = under_test(Policy::GpuRealloc);
    toy.controller.hint(vec![Watts(745.0); 4], 1.0);
    toy.warm_up();
    assert!(toy.sum() <= Watts(2800.0));
}

#[test]
fn a_hint_that_does_harm_is_rolled_back() {
    let mut toy = under_test(Policy::GpuRealloc);
    toy.controller
        .hint([740.0, 730.0, 630.0, 700.0].map(Watts).to_vec(), 1.0);
    assert!(matches!(toy.warm_up().why, Why::Recalled { .. }));
    let mut state = State::Adjusting;
    for _ in 0..3 {
        state = toy.window().state;
    }
    assert_eq!(state, State::Rollback);
    assert_eq!(toy.held, vec![Watts(700.0); 4]);
}

#[test]
fn hints_that_are_none_and_hints_that_nobody_needs_move_nothing() {
    let bad = [
        (vec![Watts(700.0); 3], 1.0),
        (vec![Watts(700.0); 5], 1.0),
        (
            vec![Watts(740.0), Watts(f64::NAN), Watts(700.0), Watts(600.0)],
            1.0,
        ),
        (vec![Watts(600.0); 4], f64::NAN),
        (vec![Watts(600.0); 4], 0.0),
        (vec![Watts(600.0); 4], 1.5),
        // Already there: the law goes on.
        (vec![Watts(700.0); 4], 1.0),
    ];
    for (caps, fraction) in bad {
        let mut toy = under_test(Policy::GpuRealloc);
        toy.controller.hint(caps.clone(), fraction);
        let first = toy.warm_up();
        assert!(
            matches!(first.why, Why::Adjusted { .. }),
            "{caps:?} {}",
            first.why
        );
    }
    let hint = [690.0, 700.0, 740.0, 670.0].map(Watts).to_vec();
    // A level node needs none; nor does one whose plan it was not for.
    let mut toy = under_test(Policy::GpuRealloc);
    toy.speed = [1.0; 4];
    toy.controller.hint(hint.clone(), 1.0);
    assert_eq!(toy.warm_up().apply, None);
    toy.speed = under_test(Policy::GpuRealloc).speed;
    toy.controller.restart();
    assert!(matches!(toy.warm_up().why, Why::Adjusted { .. }));
    toy.controller.hint(hint, 1.0);
    replan(&mut toy, within(Policy::GpuRealloc, 2700.0));
    assert!(matches!(toy.warm_up().why, Why::Adjusted { .. }));
}

#[test]
fn an_adjustment_says_in_how_many_kernels_and_by_which_clock() {
    let words = |share: &[f64], clocks: bool| {
        let mut toy = under_test(Policy::GpuRealloc);
        toy.last_in = share.to_vec();
        toy.clocks = clocks;
        toy.warm_up().why.to_string()
    };
    let shares = [0.03, 0.02, 0.94, 0.01];
    let both = words(&shares, true);
    // The clocks are as 1.03, 1.02, 1 and 1.04: the median is 1.025.
    let expected = ": last in 94 % of kernels, clock 2.4 % below the median; gpu3 ";
    assert!(
        both.starts_with("gpu2 +") && both.contains(expected),
        "{both}"
    );
    let neither = words(&[], false);
    let expected = ": last in 100 % of samples, kernels 4.0 % slower than the fastest GPU's; ";
    assert!(neither.contains(expected), "{neither}");
    // Shares that are none are as good as missing.
    for bad in [[f64::NAN; 4], [1.5; 4], [-0.1; 4]] {
        assert_eq!(words(&bad, false), neither);
    }
    assert_eq!(words(&shares[..2], false), neither);
}
