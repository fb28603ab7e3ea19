//! The profiler as an instrument: its counter, its heat, its noise.

use litd_kareus::Profiler;
use litd_overlap::gpu::A100;
use litd_overlap::{Method, Simulated, paper};
use litd_units::{Hertz, Millis};

use crate::{at, simulated};

/// The relative deviation of energy from its own mean, over seeds.
fn spread(window: f64) -> f64 {
    let partition = paper::figure_3();
    let energies: Vec<f64> = (0..40)
        .map(|seed| {
            let mut profiler = simulated(window, 5.0, seed);
            profiler
                .partition(&partition, at(1410.0, 6, 3))
                .unwrap()
                .energy
                .0
        })
        .collect();
    let mean = energies.iter().sum::<f64>() / 40.0;
    let square: f64 = energies.iter().map(|it| (it - mean).powi(2)).sum();
    (square / 39.0).sqrt() / mean
}

/// Figure 12a: a counter that is renewed every 100 ms makes short windows inexact.
#[test]
fn longer_windows_are_more_exact() {
    let spreads = [0.05, 0.2, 1.0, 5.0].map(spread);
    assert!(spreads[0] > 0.3, "{spreads:?}");
    assert!(
        spreads.windows(2).all(|it| it[0] > 1.5 * it[1]),
        "{spreads:?}"
    );
    assert!(spreads[3] < 0.012, "{spreads:?}");
}

/// Figure 12b: without cooldown windows begin warmer each time, and energy is biased upwards.
#[test]
fn heat_raises_energy_and_a_cooldown_brings_it_back() {
    let partition = paper::figure_3();
    let candidate = at(1110.0, 6, 3);
    let tenth = |cooldown| {
        let mut profiler = simulated(5.0, cooldown, 3);
        let measured = (0..10).map(|_| profiler.partition(&partition, candidate).unwrap());
        measured.last().unwrap()
    };
    let truth = simulated(5.0, 5.0, 3)
        .truth(&partition, candidate)
        .unwrap()
        .energy;
    let (hot, cooled, cold) = (tenth(0.0), tenth(5.0), tenth(60.0));
    let temperature = |it: litd_kareus::Measurement| it.temperature.unwrap().0;
    assert!(temperature(hot) > 40.0, "{hot:?}");
    assert!(temperature(cooled) < 32.0, "section 5.3: {cooled:?}");
    assert!(temperature(cold) < A100.ready_temperature().0 + 0.1);
    // The same seed: the same noise, and what is left is heat.
    let [hotter, cooler] = [hot, cooled].map(|it| it.energy / cold.energy - 1.0);
    assert!(hotter > 0.005, "{hotter} {cooler}");
    assert!((0.0..0.5 * hotter).contains(&cooler), "{hotter} {cooler}");
    assert!((cold.energy / truth - 1.0).abs() < 0.05);
}

#[test]
fn static_power_grows_with_temperature() {
    let ready = A100.ready_temperature();
    assert!((A100.static_power(ready).0 - 60.0).abs() < 1e-9);
    let warm = A100.static_power(litd_units::Celsius(ready.0 + 20.0));
    assert!((65.0..80.0).contains(&warm.0));
}

/// A repeated request is measured again; a seed gives the same noise, and another seed other noise.
#[test]
fn noise_repeats_by_seed() {
    let partition = paper::figure_3();
    let candidate = at(1290.0, 9, 2);
    let twice = |seed| {
        let mut profiler = simulated(5.0, 5.0, seed);
        [(); 2].map(|()| profiler.partition(&partition, candidate).unwrap())
    };
    let [first, second] = twice(7);
    assert_eq!(twice(7), [first, second]);
    assert_ne!(first.energy, second.energy);
    assert_ne!(first.time, second.time);
    assert_ne!(first.energy, twice(8)[0].energy);
    assert!((first.time / second.time - 1.0).abs() < 0.02);
}

/// A judge's truth is what a long and cool measurement comes to, but for the heat of measuring.
#[test]
fn measurements_lie_about_the_truth() {
    let partition = paper::figure_3();
    for candidate in [at(1410.0, 20, 0), at(1110.0, 4, 2), at(900.0, 2, 4)] {
        let mut profiler = simulated(5.0, 5.0, 11);
        let truth = profiler.truth(&partition, candidate).unwrap();
        let measured = profiler.partition(&partition, candidate).unwrap();
        assert!((measured.time / truth.time - 1.0).abs() < 0.01);
        let off = measured.energy / truth.energy - 1.0;
        assert!((-0.03..0.06).contains(&off), "{off} at {candidate}");
        assert!((measured.clock - truth.clock).0.abs() < 5e6);
        let dynamic = measured.dynamic(profiler.static_power());
        assert!(dynamic.0 > 0.0 && dynamic < measured.energy);
    }
}

#[test]
fn repeated_windows_say_how_noisy_they_were() {
    let method = Method {
        repeats: 10,
        ..Method::default()
    };
    let mut profiler = Simulated::new(A100, method, 1);
    let sequence = paper::LLAMA_3B.sequence(16_384.0, false);
    let measured = profiler.sequence(&sequence, Hertz(1_410e6)).unwrap();
    let noise = measured.noise.unwrap();
    assert!((0.0001..0.02).contains(&noise), "{noise}");
    let once = simulated(5.0, 5.0, 1).sequence(&sequence, Hertz(1_410e6));
    assert_eq!(once.unwrap().noise, None);
    let truth = profiler.truth_of_sequence(&sequence, Hertz(1_410e6));
    assert!((measured.time / truth.unwrap().time - 1.0).abs() < 0.005);
}

/// A window is never shorter than one execution.
#[test]
fn an_execution_longer_than_the_window_is_measured_once() {
    let mut partition = paper::figure_3();
    for computation in &mut partition.computations {
        computation.work = computation.work * 1_000.0;
    }
    let mut profiler = simulated(0.1, 1.0, 2);
    let candidate = at(1_410.0, 6, 0);
    let truth = profiler.truth(&partition, candidate).unwrap();
    assert!(truth.time > Millis(1_000.0));
    let measured = profiler.partition(&partition, candidate).unwrap();
    assert!((measured.time / truth.time - 1.0).abs() < 0.1);
}
