//! The node over time: heat, clocks, the driver's manners, seeds.

use litd_sim::scenario::builtin_names;
use litd_sim::{Limiter, Plant, PlantError, Scenario};
use litd_traces::{Aggregation, KernelClass, aggregate, straggler_wave};
use litd_units::{Hertz, Kelvins, Millis, Watts};

fn plant(scenario: &str) -> Plant {
    Plant::new(&Scenario::builtin(scenario).unwrap(), 1).unwrap()
}

/// Runs for so many simulated seconds.
fn run_for(plant: &mut Plant, seconds: f64) {
    let end = plant.elapsed().as_secs_f64() + seconds;
    while plant.elapsed().as_secs_f64() < end {
        plant.run_iteration();
    }
}

fn lead_sums(plant: &Plant) -> Vec<f64> {
    let wave = straggler_wave(plant.starts());
    wave.iter()
        .map(|leads| aggregate(leads, Aggregation::Sum).unwrap().0)
        .collect()
}

/// The GPU with the smallest lead, and the ratio of the second smallest to the largest.
fn straggler(plant: &Plant) -> (usize, f64) {
    let leads = lead_sums(plant);
    let mut order: Vec<usize> = (0..leads.len()).collect();
    order.sort_by(|&a, &b| leads[a].total_cmp(&leads[b]));
    (order[0], leads[order[1]] / leads[order[leads.len() - 1]])
}

#[test]
fn heat_reaches_the_analytic_steady_state() {
    let scenario = Scenario::builtin("default").unwrap();
    let mut plant = Plant::new(&scenario, 1).unwrap();
    let cold = plant.gpu(0).unwrap().temperature;
    assert_eq!(cold, scenario.gpus[0].inlet);

    // After one time constant: 1 - 1/e of the way, whatever the iterations' lengths.
    run_for(&mut plant, 20.0);
    let spec = &scenario.gpus[0];
    let rise = Kelvins(spec.thermal_resistance * 700.0);
    let now = plant.elapsed().as_secs_f64();
    let expected = spec.inlet + rise * (1.0 - (-now / 20.0).exp());
    let warm = plant.gpu(0).unwrap().temperature;
    assert!(
        (warm - expected).abs() < Kelvins(1e-9),
        "{warm}, not {expected}"
    );

    run_for(&mut plant, 400.0);
    for (gpu, spec) in plant.gpus().zip(&scenario.gpus) {
        let expected = spec.inlet + Kelvins(spec.thermal_resistance * 700.0);
        assert!(
            (gpu.temperature - expected).abs() < Kelvins(1e-6),
            "{}",
            gpu.temperature
        );
        assert!(
            (75.0..=95.0).contains(&gpu.temperature.0),
            "{}",
            gpu.temperature
        );
    }
}

#[test]
fn settling_is_where_time_leads_to() {
    for name in builtin_names() {
        let mut settled = plant(name);
        settled.settle();
        let mut run = plant(name);
        run_for(&mut run, 600.0);
        settled.run_iteration();
        for (settled, run) in settled.gpus().zip(run.gpus()) {
            let apart = (settled.temperature - run.temperature).abs();
            assert!(apart < Kelvins(1e-3), "{name}: {settled:?} and {run:?}");
            assert!((settled.power - run.power).abs() < Watts(1e-3), "{name}");
            assert_eq!(settled.limiter, run.limiter, "{name}");
        }
    }
}

#[test]
fn clocks_at_the_reference_cap_are_the_calibrated_ones() {
    let scenario = Scenario::builtin("default").unwrap();
    let mut plant = Plant::new(&scenario, 1).unwrap();
    plant.settle();
    plant.run_iteration();
    for (gpu, spec) in plant.gpus().zip(&scenario.gpus) {
        let clock = gpu.clock / scenario.reference_clock;
        assert!((clock - (1.0 + spec.clock_offset)).abs() < 1e-9, "{clock}");
        assert_eq!((gpu.limiter, gpu.power), (Limiter::Power, Watts(700.0)));
    }
    // And so the steady iteration is the oracle's (node.json, first case).
    let steady = plant.steady_state();
    assert!((steady.iteration - Millis(605.478_461_538_462_7)).abs() < Millis(1e-6));
    assert!((steady.gpu_power - Watts(5600.0)).abs() < Watts(1e-9));
    assert!((steady.iteration_energy.0 - 5600.0 * 0.605_478_461_5).abs() < 1e-3);
}

#[test]
fn a_cold_gpu_is_faster_under_the_same_cap() {
    let mut plant = plant("default");
    plant.run_iteration();
    let cold = plant.gpu(0).unwrap().clock;
    plant.settle();
    assert!(plant.gpu(0).unwrap().clock < cold);
}

#[test]
fn a_high_cap_ends_at_the_highest_clock() {
    let mut scenario = Scenario::builtin("default").unwrap();
    scenario.gpus[2].max_clock = 1.07;
    let mut plant = Plant::new(&scenario, 1).unwrap();
    plant.set_gpu_cap(2, Watts(750.0)).unwrap();
    plant.settle();
    let settled = plant.gpu(2).unwrap();
    assert_eq!(settled.limiter, Limiter::None);
    assert!(!settled.throttle.power && !settled.throttle.thermal);
    assert!((settled.clock / scenario.reference_clock - 1.07).abs() < 1e-12);
    assert!(settled.power < Watts(750.0) && settled.power > Watts(700.0));
    run_for(&mut plant, 100.0);
    let later = plant.gpu(2).unwrap();
    assert!((later.temperature - settled.temperature).abs() < Kelvins(1e-9));
    assert!((later.power - settled.power).abs() < Watts(1e-9));
}

#[test]
fn a_locked_clock_is_held_while_the_cap_sustains_it() {
    let mut plant = plant("default");
    plant.settle();
    plant.run_iteration();
    let (free, length) = (plant.gpu(3).unwrap(), plant.last().length);
    assert_eq!(free.limiter, Limiter::Power);
    for gpu in 0..plant.gpu_count() {
        let lock = Hertz(free.clock.0 * 0.8);
        plant.lock_gpu_clock(gpu, Some(lock)).unwrap();
    }
    plant.settle();
    plant.run_iteration();
    let locked = plant.gpu(3).unwrap();
    assert_eq!(locked.clock.0, free.clock.0 * 0.8);
    assert_eq!(locked.limiter, Limiter::None);
    assert!(locked.power < free.power * 0.9, "{}", locked.power);
    assert!(plant.last().length > length * 1.05);

    // A clock that the cap does not sustain changes nothing.
    plant
        .lock_gpu_clock(3, Some(Hertz(free.clock.0 * 1.5)))
        .unwrap();
    plant.settle();
    plant.run_iteration();
    assert_eq!(plant.gpu(3).unwrap().limiter, Limiter::Power);
    plant.lock_gpu_clock(3, None).unwrap();
    plant.settle();
    plant.run_iteration();
    assert_eq!(plant.gpu(3).unwrap().clock, free.clock);
    for clock in [0.0, -1.0, f64::NAN] {
        assert!(plant.lock_gpu_clock(3, Some(Hertz(clock))).is_err());
    }
}

#[test]
fn the_driver_cuts_off_and_refuses() {
    let mut plant = plant("default");
    assert_eq!(plant.set_gpu_cap(3, Watts(612.9)).unwrap(), Watts(612.0));
    assert_eq!(plant.gpu_cap(3).unwrap(), Watts(612.0));
    assert_eq!(plant.set_gpu_cap(3, Watts(750.0)).unwrap(), Watts(750.0));
    for bad in [
        750.5,
        199.9,
        0.0,
        -5.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ] {
        let refused = plant.set_gpu_cap(3, Watts(bad));
        assert!(
            matches!(refused, Err(PlantError::Refused { index: 3, .. })),
            "{bad}"
        );
        assert_eq!(plant.gpu_cap(3).unwrap(), Watts(750.0));
    }
    let missing = plant.set_gpu_cap(8, Watts(700.0)).unwrap_err().to_string();
    assert_eq!(
        missing,
        "there is no GPU 8; the node has 8 (they count from 0)"
    );
    assert!(plant.gpu_cap(8).is_err() && plant.gpu(8).is_err());

    assert_eq!(plant.set_cpu_limit(1, Watts(320.0)).unwrap(), Watts(320.0));
    assert_eq!(plant.cpu_limit(1).unwrap(), Watts(320.0));
    for bad in [99.0, 401.0, f64::NAN] {
        assert!(plant.set_cpu_limit(1, Watts(bad)).is_err(), "{bad}");
    }
    assert!(plant.set_cpu_limit(2, Watts(320.0)).is_err() && plant.cpu_limit(2).is_err());
}

#[test]
fn fine_units_stay_whole() {
    let mut scenario = Scenario::builtin("default").unwrap();
    scenario.caps.resolution = Watts(0.1);
    let mut plant = Plant::new(&scenario, 1).unwrap();
    let read_back = plant.set_gpu_cap(0, Watts(650.3)).unwrap();
    assert!(
        (read_back - Watts(650.3)).abs() < Watts(1e-9),
        "{read_back}"
    );
}

#[test]
fn a_cpu_limit_matters_only_below_the_draw() {
    let mut free = plant("default");
    let mut limited = plant("default");
    limited.set_cpu_limit(1, Watts(160.0)).unwrap();
    assert_eq!(free.run_iteration().length, limited.run_iteration().length);
    assert_eq!(limited.cpu_power(), Watts(300.0));

    limited.set_cpu_limit(1, Watts(100.0)).unwrap();
    free.run_iteration();
    limited.run_iteration();
    assert_eq!(limited.cpu_power(), Watts(250.0));
    // Only the last four GPUs hang on CPU 1: their gaps are 10 us x (150 / 100 - 1).
    let gap = |plant: &Plant, gpu: usize| {
        let last = plant.last();
        last.start[gpu][2] - (last.start[gpu][1] + last.duration[gpu][1])
    };
    assert!((gap(&limited, 4) - Millis(0.005)).abs() < Millis(1e-9));
    assert!(gap(&limited, 3).abs() < Millis(1e-9));
    assert!(gap(&free, 4).abs() < Millis(1e-9));
    assert!(limited.last().length > free.last().length);
}

#[test]
fn the_same_seed_gives_the_same_numbers() {
    let scenario = Scenario::builtin("default").unwrap();
    let history = |seed| {
        let mut plant = Plant::new(&scenario, seed).unwrap();
        let lengths: Vec<_> = (0..20).map(|_| plant.run_iteration().length).collect();
        (lengths, plant.starts().to_vec())
    };
    assert_eq!(history(1), history(1));
    assert_ne!(history(1), history(2));
    let (lengths, _) = history(1);
    assert_ne!(lengths[18], lengths[19], "noise differs between iterations");
}

#[test]
fn the_shipped_scenarios_are_what_they_say() {
    let settled = |name: &str| {
        let mut plant = plant(name);
        plant.settle();
        plant.run_iteration();
        plant
    };
    assert_eq!(straggler(&settled("default")).0, 4);

    let plant = settled("no-headroom");
    assert!(plant.gpus().all(|gpu| gpu.cap == plant.cap_limits().tdp));

    // Noise alone: a fraction of the default node's leads.
    let most = |plant: &Plant| lead_sums(plant).into_iter().fold(0.0, f64::max);
    assert!(most(&settled("no-effect")) < 0.2 * most(&settled("default")));

    let plant = settled("late-host");
    let (late, gap) = straggler(&plant);
    assert!(
        late == 2 && gap > 0.5,
        "GPU {late}, the next leads by {gap} of the most"
    );
    let clocks: Vec<_> = plant.gpus().map(|gpu| gpu.clock).collect();
    assert!(clocks.iter().all(|&clock| clock == clocks[0]));

    let plant = settled("two-stragglers");
    let leads = lead_sums(&plant);
    let slowest = leads[1].max(leads[4]);
    assert!(
        [0, 2, 3, 5, 6, 7].iter().all(|&g| leads[g] > 2.0 * slowest),
        "{leads:?}"
    );
}

#[test]
fn heat_limits_the_thermal_straggler() {
    let mut plant = plant("thermal-straggler");
    let slowdown = plant.gpu(4).unwrap().slowdown;
    let mut throttled = 0;
    while plant.elapsed().as_secs_f64() < 300.0 {
        plant.run_iteration();
        let gpu = plant.gpu(4).unwrap();
        assert!(gpu.temperature <= slowdown, "{}", gpu.temperature);
        assert_eq!(gpu.throttle.thermal, gpu.limiter == Limiter::Thermal);
        throttled += u32::from(gpu.throttle.thermal);
    }
    assert!(
        throttled > 300,
        "{throttled} iterations of {}",
        plant.iterations()
    );
    let before = plant.gpu(4).unwrap();
    assert!(
        (before.temperature - slowdown).abs() < Kelvins(0.01),
        "{}",
        before.temperature
    );
    assert_eq!(straggler(&plant).0, 4);
    assert!(
        plant
            .gpus()
            .enumerate()
            .all(|(g, gpu)| gpu.throttle.thermal == (g == 4))
    );

    // More watts don't help it, and the driver's power reading shows that it takes none.
    plant.set_gpu_cap(4, Watts(750.0)).unwrap();
    run_for(&mut plant, 100.0);
    let after = plant.gpu(4).unwrap();
    assert!(((after.clock - before.clock) / before.clock).abs() < 1e-4);
    assert!((after.power - before.power).abs() < Watts(0.1));
}

#[test]
fn timelines_continue_from_iteration_to_iteration() {
    let mut plant = plant("default");
    assert!(plant.timelines().is_empty());
    plant.run_iteration();
    let first = plant.timelines();
    plant.run_iteration();
    let second = plant.timelines();
    assert_eq!(first.len(), 8);
    for (g, (first, second)) in first.iter().zip(&second).enumerate() {
        assert_eq!(first.rank as usize, g);
        assert_eq!(first.kernels.len(), 640 + 95);
        assert_eq!(first.iterations[0].end, second.iterations[0].start);
        assert_eq!(
            (first.iterations[0].number, second.iterations[0].number),
            (0, 1)
        );
        for timeline in [first, second] {
            let mark = timeline.iterations[0];
            assert!(timeline.kernels.is_sorted_by_key(|kernel| kernel.start));
            let inside = |k: &litd_traces::Kernel| k.start >= mark.start && k.end <= mark.end;
            assert!(timeline.kernels.iter().all(inside));
            for class in [KernelClass::Computation, KernelClass::Communication] {
                let of_class = timeline
                    .kernels
                    .iter()
                    .filter(|kernel| kernel.class == class);
                assert!(
                    of_class.is_sorted_by(|a, b| a.end <= b.start),
                    "one at a time"
                );
            }
        }
    }
    let kernel = second[7]
        .kernels
        .iter()
        .find(|k| k.class == KernelClass::Computation)
        .unwrap();
    let expected = second[7].iterations[0].start + plant.starts()[7][0].to_nanos();
    assert_eq!(kernel.start, expected);
}
