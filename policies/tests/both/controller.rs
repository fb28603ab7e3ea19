//! The loop's state machine on a toy node: four GPUs whose speed is a power of their cap.
use litd_policies::diagnosis::too_hot_to_rise;
use litd_policies::{Config, Diagnosis, GpuReading, Policy, Sample, State, Why};
use litd_units::{Celsius, Millis, Watts};

use super::under_test;
use crate::toy::{Toy, config};

#[test]
fn observe_never_writes() {
    let mut toy = under_test(Policy::Observe);
    for _ in 0..201 {
        let decision = toy.step();
        assert_eq!((decision.state, decision.apply), (State::Observe, None));
    }
    let Why::Seen(diagnosis) = toy.window().why else {
        panic!("observing tells what it sees");
    };
    assert_eq!(diagnosis.straggler(), Some(2));
}

#[test]
fn warm_up_touches_nothing_and_the_first_adjustment_raises_the_straggler() {
    let mut toy = under_test(Policy::GpuRealloc);
    let first = toy.warm_up();
    assert_eq!(first.state, State::Adjusting);
    let caps = first.apply.unwrap().to_watts();
    assert!(caps[2] > Watts(700.0), "{caps:?}");
    assert!(caps[3] < Watts(700.0), "{caps:?}");
    assert!(caps.iter().copied().sum::<Watts>() <= Watts(2800.0));
    assert!(first.why.to_string().starts_with("gpu2 +"), "{}", first.why);
}

#[test]
fn gpu_realloc_levels_the_node_and_makes_it_faster() {
    let mut toy = under_test(Policy::GpuRealloc);
    let before = toy.sample().iteration_time;
    let end = toy.until_converged();
    assert_eq!(end.state, State::Converged, "{}", end.why);
    let after = toy.sample();
    assert!(
        after.iteration_time < before * 0.985,
        "{}",
        after.iteration_time
    );
    let largest = after
        .leads
        .iter()
        .flatten()
        .copied()
        .fold(Millis::ZERO, Millis::max);
    assert!(largest < Millis(40.0), "{largest} of 400");
}

#[test]
fn gpu_red_saves_power_at_the_same_speed() {
    let mut toy = under_test(Policy::GpuRed);
    let before = toy.sample().iteration_time;
    let end = toy.until_converged();
    assert_eq!(end.state, State::Converged, "{}", end.why);
    assert!(toy.sample().iteration_time <= before * 1.001);
    let power: Watts = toy.held.iter().copied().sum();
    assert!(power < Watts(0.97 * 3000.0), "{power}");
}

#[test]
fn a_level_node_is_left_alone_and_says_so() {
    let mut toy = under_test(Policy::GpuRealloc);
    toy.speed = [1.0; 4];
    let end = toy.warm_up();
    assert_eq!((end.state, end.apply), (State::Converged, None));
    assert!(
        matches!(end.why, Why::Seen(Diagnosis::Level { .. })),
        "{}",
        end.why
    );
}

#[test]
fn a_straggler_that_throttles_gets_nothing() {
    for policy in [Policy::GpuRed, Policy::GpuRealloc] {
        let mut toy = under_test(policy);
        toy.throttled[2] = true;
        let end = toy.warm_up();
        assert_eq!((end.state, end.apply), (State::Converged, None));
        assert!(
            matches!(end.why, Why::Seen(Diagnosis::HeatLimited { gpu: 2, .. })),
            "{}",
            end.why
        );
    }
}

#[test]
fn a_straggler_that_may_not_rise_can_still_be_waited_for_with_less_power() {
    let hot = |policy| {
        let mut toy = under_test(policy);
        toy.temperature[2] = 96.0;
        toy.warm_up().apply
    };
    assert_eq!(hot(Policy::GpuRealloc), None);
    let caps = hot(Policy::GpuRed).expect("gpu-red only lowers");
    assert_eq!(caps.watts(2), Some(Watts(750.0)));
}

#[test]
fn a_straggler_that_cools_down_is_helped_after_all() {
    let mut toy = under_test(Policy::GpuRealloc);
    toy.temperature[2] = 96.0;
    toy.warm_up();
    assert_eq!(toy.window().state, State::Converged);
    toy.temperature[2] = 80.0;
    assert_eq!(toy.window().state, State::Drift);
    let decision = toy.window();
    assert_eq!(decision.state, State::Adjusting);
    assert!(decision.apply.is_some());
}

#[test]
fn a_late_host_gets_no_power() {
    let mut toy = under_test(Policy::GpuRealloc);
    // GPU 3 has the fastest kernels and starts last all the same: its queue runs empty.
    toy.host_lead = [900.0, 900.0, 900.0, 0.0];
    toy.marks[3].idle = 0.03;
    let end = toy.warm_up();
    assert_eq!((end.state, end.apply), (State::Converged, None));
    assert!(
        matches!(end.why, Why::Seen(Diagnosis::LateHost { gpu: 3, .. })),
        "{}",
        end.why
    );
}

#[test]
fn a_slow_link_uneven_work_and_what_nothing_explains_get_no_power() {
    let seen = |change: &dyn Fn(&mut Toy)| {
        let mut toy = under_test(Policy::GpuRealloc);
        toy.host_lead = [900.0, 900.0, 900.0, 0.0];
        change(&mut toy);
        let end = toy.warm_up();
        assert_eq!((end.state, end.apply), (State::Converged, None));
        match end.why {
            Why::Seen(diagnosis) => diagnosis,
            why => panic!("{why}"),
        }
    };
    let link = seen(&|toy| toy.marks[3].slower_link = 0.1);
    assert!(matches!(link, Diagnosis::SlowLink { gpu: 3, .. }), "{link}");
    let work = seen(&|toy| {
        toy.speed[3] = 1.0;
        toy.marks[3].slower_memory = Some(0.03);
        toy.marks
            .iter_mut()
            .take(3)
            .for_each(|marks| marks.slower_memory = Some(0.0));
    });
    assert!(matches!(work, Diagnosis::MoreWork { gpu: 3, .. }), "{work}");
    let nothing = seen(&|_| {});
    let expected = Diagnosis::Unexplained {
        gpu: 3,
        several: false,
    };
    assert_eq!(nothing, expected);
    for diagnosis in [link, work, nothing] {
        assert!(
            diagnosis.to_string().contains("watts won't help"),
            "{diagnosis}"
        );
    }
}

#[test]
fn seven_of_eight_may_be_stragglers() {
    // A single GPU is fast, the others are equal: their clocks are lower, and alike to the last bit.
    let mut toy = under_test(Policy::GpuRealloc);
    toy.speed = [1.0, 1.0, 1.0, 1.05];
    let first = toy.warm_up();
    let caps = first.apply.expect("the others get power").to_watts();
    assert!(caps[3] < Watts(700.0), "{caps:?}");
    assert!(caps[..3].iter().all(|&cap| cap > Watts(700.0)), "{caps:?}");
}

#[test]
fn watts_go_only_to_a_gpu_that_power_limits() {
    let mut toy = under_test(Policy::GpuRealloc);
    toy.power_limited = false;
    let end = toy.warm_up();
    assert_eq!((end.state, end.apply), (State::Converged, None));
    assert!(
        matches!(
            end.why,
            Why::Seen(Diagnosis::NotPowerLimited { gpu: 2, .. })
        ),
        "{}",
        end.why
    );
    // gpu-red gives the straggler nothing, so it may go on.
    let mut toy = under_test(Policy::GpuRed);
    toy.power_limited = false;
    assert!(toy.warm_up().apply.is_some());
}

#[test]
fn harm_is_rolled_back_and_the_law_pauses() {
    let mut toy = under_test(Policy::GpuRealloc);
    toy.warm_up();
    let start = vec![Watts(700.0); 4];
    assert_ne!(toy.held, start);
    toy.slowdown = 1.05;
    let mut decisions = vec![toy.window(), toy.window()];
    assert!(decisions.iter().all(|d| d.state == State::Adjusting));
    decisions.push(toy.window());
    let rollback = decisions.pop().unwrap();
    assert_eq!(rollback.state, State::Rollback, "{}", rollback.why);
    assert_eq!(toy.held, start);
    assert!(rollback.why.to_string().contains("rolled back"));
    for _ in 0..100 {
        let decision = toy.step();
        assert_eq!((decision.state, decision.apply), (State::Rollback, None));
    }
    toy.controller.resume();
    toy.slowdown = 1.0;
    assert_eq!(toy.warm_up().state, State::Adjusting);
}

#[test]
fn not_even_a_rollback_raises_a_hot_gpu() {
    let mut toy = under_test(Policy::GpuRealloc);
    toy.warm_up();
    let lowered = toy.held.clone();
    toy.slowdown = 1.05;
    toy.window();
    toy.window();
    toy.temperature[3] = 97.0;
    let rollback = toy.window();
    assert_eq!(rollback.state, State::Rollback, "{}", rollback.why);
    assert!(toy.held[3] <= lowered[3], "{:?}", toy.held);
    assert_eq!(toy.held[..3], [Watts(700.0); 3]);
}

#[test]
fn many_small_losses_are_rolled_back_too() {
    let mut toy = under_test(Policy::GpuRealloc);
    toy.warm_up();
    let mut rolled_back = false;
    for _ in 0..40 {
        // Not a percent over any three windows.
        toy.slowdown *= 1.003;
        rolled_back |= toy.window().state == State::Rollback;
    }
    assert!(rolled_back);
    assert_eq!(toy.held, vec![Watts(700.0); 4]);
}

#[test]
fn a_job_that_slows_down_long_after_the_last_adjustment_is_not_the_laws_fault() {
    let mut toy = under_test(Policy::GpuRealloc);
    toy.until_converged();
    for _ in 0..10 {
        toy.window();
    }
    let held = toy.held.clone();
    toy.slowdown = 1.5;
    for _ in 0..10 {
        assert_eq!(toy.window().state, State::Converged);
    }
    assert_eq!(toy.held, held);
}

#[test]
fn samples_that_are_none_do_not_count() {
    let mut toy = under_test(Policy::GpuRealloc);
    let good = toy.sample();
    let mut bad: Vec<Sample> = vec![good.clone(); 9];
    bad[0].leads[1] = None;
    bad[1].leads[1] = Some(Millis(f64::NAN));
    bad[2].leads[1] = Some(Millis(-1.0));
    bad[3].leads.pop();
    bad[4].gpus.pop();
    bad[5].iteration_time = Millis(0.0);
    bad[6].iteration_time = Millis(f64::INFINITY);
    bad[7].gpus[2].cap = Watts(f64::NAN);
    bad[8].gpus[2].cap = Watts(0.0);
    for _ in 0..20 {
        for sample in &bad {
            let decision = toy.controller.step(sample);
            assert_eq!((decision.state, decision.apply), (State::WarmUp, None));
            assert!(
                matches!(decision.why, Why::BadSample(_)),
                "{}",
                decision.why
            );
        }
    }
    assert_eq!(toy.warm_up().state, State::Adjusting);
}

#[test]
fn misread_caps_move_nothing() {
    for wrong in [65535.0, 1000.0, 1.0, 4_294_967.295, f64::NAN, -700.0] {
        let mut toy = under_test(Policy::GpuRealloc);
        toy.warm_up();
        let held = toy.held.clone();
        for _ in 0..9 {
            let mut sample = toy.sample();
            sample.gpus[1].cap = Watts(wrong);
            let decision = toy.controller.step(&sample);
            assert_eq!(decision.apply, None, "{wrong}");
            assert!(
                matches!(decision.why, Why::BadSample(_)),
                "{}",
                decision.why
            );
        }
        assert_eq!(toy.held, held);
    }
}

#[test]
fn one_odd_sample_in_warm_up_decides_nothing() {
    let mut config = config(crate::LAW);
    config.calibration.warm_up = 20;
    for (lead, time) in [(1e5, 1.0), (1e200, 1.0), (1.0, 100.0)] {
        let mut toy = Toy::with(Policy::GpuRealloc, config.clone());
        let mut odd = toy.sample();
        odd.leads[0] = Some(Millis(lead));
        odd.iteration_time = odd.iteration_time * time;
        toy.controller.step(&odd);
        for _ in 0..18 {
            toy.step();
        }
        let first = toy.step();
        assert_eq!(first.state, State::Adjusting, "{}", first.why);
        let baseline = toy.controller.baseline().unwrap();
        assert!(baseline.iteration_time < Millis(700.0));
    }
}

#[test]
fn a_straggler_that_appears_late_is_helped_and_not_rolled_back() {
    let mut toy = under_test(Policy::GpuRealloc);
    toy.speed = [1.0; 4];
    assert_eq!(toy.warm_up().state, State::Converged);
    // 4 % slower than warm-up, which no cap can give back in full.
    toy.speed[2] = 0.96;
    let slow = toy.sample().iteration_time;
    for _ in 0..40 {
        let decision = toy.window();
        assert_ne!(decision.state, State::Rollback, "{}", decision.why);
    }
    assert_eq!(toy.controller.state(), State::Converged);
    assert!(toy.held[2] > Watts(710.0), "{:?}", toy.held);
    assert!(toy.sample().iteration_time < slow * 0.99);
}

#[test]
fn gpu_red_does_not_flap_when_the_job_itself_got_slower() {
    let mut toy = under_test(Policy::GpuRed);
    toy.speed = [1.0; 4];
    toy.warm_up();
    toy.speed = [1.03, 1.02, 1.0, 1.025];
    toy.slowdown = 1.005;
    let writes = (0..600).filter(|_| toy.step().apply.is_some()).count();
    assert!(writes < 40, "{writes} writes in 600 samples");
}

#[test]
fn throttling_counts_for_a_window() {
    let mut toy = under_test(Policy::GpuRealloc);
    toy.step();
    toy.step();
    toy.throttled[2] = true;
    toy.step();
    toy.throttled[2] = false;
    let end = toy.step();
    assert_eq!(
        (end.state, end.apply),
        (State::Converged, None),
        "{}",
        end.why
    );
}

#[test]
fn what_is_too_hot_to_rise() {
    let guard = Config::default().guard;
    let hot = |temperature: Option<f64>, slowdown: Option<f64>, throttled| {
        too_hot_to_rise(
            &GpuReading {
                temperature: temperature.map(Celsius),
                slowdown: slowdown.map(Celsius),
                throttled,
                ..GpuReading::default()
            },
            &guard,
        )
    };
    assert!(!hot(Some(94.9), Some(100.0), false));
    assert!(hot(Some(95.0), Some(100.0), false));
    assert!(hot(Some(f64::NAN), Some(100.0), false));
    assert!(hot(Some(50.0), Some(f64::NAN), false));
    // The GPU has a slowdown temperature, but no reading.
    assert!(hot(None, Some(100.0), false));
    // The GPU has no slowdown temperature.
    assert!(!hot(Some(99.0), None, false));
    assert!(!hot(None, None, false));
    assert!(hot(Some(50.0), Some(100.0), true));
}

#[test]
fn the_largest_rise_is_configurable() {
    let mut config = config(crate::LAW);
    config.mitigation.max_rise = Some(Watts(2.0));
    let mut toy = Toy::with(Policy::GpuRealloc, config);
    let first = toy.warm_up().apply.unwrap();
    assert_eq!(first.watts(2), Some(Watts(702.0)));
}

#[test]
fn the_defaults_are_those_of_table_ii() {
    let config = Config::default();
    assert_eq!(config.calibration.sampling_period, 10);
    assert_eq!(config.calibration.warm_up, 50);
    assert_eq!(config.detection.window, 3);
    assert_eq!(config.mitigation.max_adjustment, Watts(15.0));
    assert_eq!(config.mitigation.rise(), Watts(15.0));
    assert_eq!(config.mitigation.initial_cap, Watts(700.0));
    assert_eq!(config.mitigation.slosh_per_gpu, Watts(20.0));
}
