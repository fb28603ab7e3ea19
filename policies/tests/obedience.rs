//! Guards of both laws on a toy node: power that does not follow caps, watts that buy nothing, and
//! caps that could not be given back.
#![allow(clippy::unwrap_used, clippy::panic)]

use litd_policies::{Config, Cpu, Decision, Law, Limits, Plan, Policy, Sample, State, Why};
use litd_units::{Millis, Prices, Watts};

use toy::{Toy, config};

mod toy;

/// Runs so many windows of samples that are changed on their way; what was said besides waiting.
fn run(toy: &mut Toy, windows: u32, change: impl Fn(&mut Sample, &Toy)) -> Vec<Decision> {
    let mut said = Vec::new();
    for _ in 0..toy::WARM_UP + windows * 3 {
        let mut sample = toy.sample();
        change(&mut sample, toy);
        let decision = toy.controller.step(&sample);
        toy.write(&decision);
        if !matches!(decision.why, Why::Collecting { .. } | Why::Holding) {
            said.push(decision);
        }
    }
    said
}

/// Every GPU draws what the cap of the GPU `by` places before it allows.
fn draw(by: usize) -> impl Fn(&mut Sample, &Toy) {
    move |sample, toy| {
        for gpu in 0..4 {
            sample.gpus[gpu].power = Some(toy.held[(gpu + 4 - by) % 4] * 0.99);
        }
    }
}

#[test]
fn caps_that_act_on_another_gpu_are_taken_back() {
    for law in Law::ALL {
        for policy in [Policy::GpuRed, Policy::GpuRealloc] {
            let mut toy = Toy::with(policy, config(law));
            let start = toy.held.clone();
            let said = run(&mut toy, 12, draw(1));
            let back = said.iter().find(|d| d.state == State::Rollback);
            let back = back.unwrap_or_else(|| panic!("{law} {policy} steers on"));
            assert!(matches!(back.why, Why::Disobeyed { .. }), "{}", back.why);
            assert_eq!(toy.held, start);
        }
    }
}

#[test]
fn after_a_drift_too_it_is_the_caps_of_warm_up_that_come_back() {
    for law in Law::ALL {
        let mut toy = Toy::with(Policy::GpuRealloc, config(law));
        let start = toy.held.clone();
        run(&mut toy, 40, draw(0));
        let level = toy.held.clone();
        assert_ne!(level, start);
        // The straggler becomes the first, and from the next watts on caps act elsewhere.
        toy.speed[2] = 1.05;
        while toy.held == level {
            run(&mut toy, 1, draw(0));
        }
        let said = run(&mut toy, 12, draw(1));
        assert!(said.iter().any(|d| matches!(d.why, Why::Disobeyed { .. })));
        assert_eq!(toy.held, start, "{law}");
    }
}

#[test]
fn power_that_follows_caps_or_that_nothing_limits_raises_no_doubt() {
    for law in Law::ALL {
        let mut toy = Toy::with(Policy::GpuRealloc, config(law));
        let said = run(&mut toy, 30, draw(0));
        assert!(said.iter().all(|d| d.state != State::Rollback));
        assert!(toy.controller.adjustments() > 0);
        // Draws that vary by a few per cent say nothing about half a per cent.
        let mut toy = Toy::with(Policy::GpuRealloc, config(law));
        let said = run(&mut toy, 30, |sample, toy| {
            for gpu in 0..4 {
                let wave = [0.05, -0.04, 0.03, -0.05][(sample.iteration as usize + gpu) % 4];
                sample.gpus[gpu].power = Some(toy.held[gpu] * (0.95 + wave));
            }
        });
        assert!(said.iter().all(|d| d.state != State::Rollback));
    }
}

fn slosh(law: Law) -> Toy {
    slosh_with(config(law))
}

fn slosh_with(config: Config) -> Toy {
    let mut node = toy::node();
    let limits = Limits {
        floor: Watts(120.0),
        ceiling: Watts(400.0),
        resolution: Watts(1.0),
    };
    let draw = Watts(150.0);
    node.cpus = vec![Cpu { limits, draw }];
    let plan = Plan::new(Policy::CpuSlosh, &node, &config.mitigation).unwrap();
    Toy::of(plan, config)
}

#[test]
fn cpu_slosh_gives_watts_back_that_buy_no_speed() {
    for law in Law::ALL {
        let mut toy = slosh(law);
        let start = toy.held.clone();
        // Communication sets the pace: whatever the clocks do, an iteration takes as long.
        let said = run(&mut toy, 40, |sample, _| {
            sample.iteration_time = Millis(600.0)
        });
        let gave = said
            .iter()
            .any(|d| matches!(d.why, Why::CostsEnergy { .. }));
        assert!(gave, "{law}: {:?}", toy.held);
        assert_eq!(toy.held[4], start[4], "{law}: the CPU has its limit back");
        let gpus = |caps: &[Watts]| caps[..4].iter().copied().sum::<Watts>();
        assert!(gpus(&toy.held) <= gpus(&start));
        assert_ne!(toy.controller.state(), State::Rollback);
    }
}

#[test]
fn prices_take_the_place_of_that_guard_only_under_the_law_that_reads_them() {
    for (law, guards) in [(Law::Paper, true), (Law::Model, false)] {
        let mut config = config(law);
        config.model.prices = Some(Prices {
            energy_per_kwh: 0.14,
            gpu_hour: 2.5,
        });
        let mut toy = slosh_with(config);
        let said = run(&mut toy, 40, |sample, _| {
            sample.iteration_time = Millis(600.0)
        });
        let gave = said
            .iter()
            .any(|d| matches!(d.why, Why::CostsEnergy { .. }));
        assert_eq!(gave, guards, "{law}: {:?}", toy.held);
    }
}

#[test]
fn cpu_slosh_keeps_watts_that_buy_speed() {
    for law in Law::ALL {
        let mut toy = slosh(law);
        let said = run(&mut toy, 40, |_, _| {});
        let gave = said
            .iter()
            .any(|d| matches!(d.why, Why::CostsEnergy { .. }));
        assert!(!gave);
        assert!(toy.held[4] < Watts(400.0));
    }
}

#[test]
fn the_model_law_takes_nothing_that_heat_would_not_let_it_give_back() {
    let mut toy = Toy::with(Policy::GpuRed, config(Law::Model));
    // The fastest GPU can't say how warm it is: its cap could not rise again.
    run(&mut toy, 20, |sample, _| sample.gpus[3].temperature = None);
    assert_eq!(toy.held[3], Watts(750.0));
    assert!(toy.held[0] < Watts(745.0), "{:?}", toy.held);
}

/// A step of a node whose planned clocks are locked: they need 560 W, and a hot GPU more than it
/// may have.
fn step_under_locked_clocks(toy: &mut Toy, hot: Option<usize>) -> Decision {
    for (speed, cap) in toy.speed.iter_mut().zip(&toy.held) {
        let natural = (*cap / Watts(700.0)).sqrt();
        *speed = (*cap / Watts(560.0)).sqrt().min(1.0) / natural;
    }
    if let Some(hot) = hot {
        toy.speed[hot] = 0.96;
    }
    let mut sample = toy.sample();
    // A cap is not read as the same number twice.
    let jitter = Watts(0.1) * f64::from(u32::from(toy.iteration.is_multiple_of(2)));
    for (gpu, reading) in sample.gpus.iter_mut().enumerate() {
        reading.cap -= jitter;
        let bound = hot == Some(gpu) || reading.cap < Watts(560.0);
        reading.power = Some(if bound { reading.cap } else { Watts(560.0) });
        reading.power_share = Some(f64::from(u8::from(bound)));
    }
    let decision = toy.controller.step(&sample);
    toy.write(&decision);
    decision
}

#[test]
fn a_gpu_that_becomes_hotter_under_a_locked_clock_is_helped() {
    for law in Law::ALL {
        let mut toy = Toy::with(Policy::GpuRealloc, config(law));
        for _ in 0..30 {
            step_under_locked_clocks(&mut toy, None);
        }
        assert_eq!(toy.held, vec![Watts(700.0); 4]);
        for _ in 0..60 {
            let decision = step_under_locked_clocks(&mut toy, Some(2));
            assert_ne!(decision.state, State::Rollback, "{law}: {}", decision.why);
        }
        assert!(toy.held[2] > Watts(705.0), "{law}: {:?}", toy.held);
    }
}
