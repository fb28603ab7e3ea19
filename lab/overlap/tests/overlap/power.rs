//! Appendix A: at the same mean frequency a constant one needs least energy.

use litd_overlap::Activity;
use litd_overlap::gpu::A100;
use litd_overlap::paper;
use litd_units::{Hertz, Watts};
use proptest::prelude::*;

use crate::at;

/// Compute-bound work at a clock: so much in each cycle, beside work that does not depend on cycles.
fn activity(clock: Hertz, sms: f64, matrix: f64, vector: f64, bytes: f64) -> Activity {
    let cycles = sms * clock.0;
    Activity {
        sms,
        matrix: matrix * cycles,
        vector: vector * cycles,
        bytes,
        sent: bytes / 4.0,
    }
}

proptest! {
    #[test]
    fn constant_frequency_needs_least_energy(
        clocks in prop::collection::vec((210.0..1410.0_f64, 0.01..1.0_f64), 2..12),
        sms in 1.0..108.0_f64,
        matrix in 0.0..1_300.0_f64,
        vector in 0.0..100.0_f64,
        bytes in 0.0..1.3e12_f64,
    ) {
        let power = |clock: Hertz| A100.dynamic_power(clock, &activity(clock, sms, matrix, vector, bytes));
        let whole: f64 = clocks.iter().map(|it| it.1).sum();
        let mean: f64 = clocks.iter().map(|it| it.0 * it.1).sum::<f64>() / whole;
        let fluctuating: Watts = clocks.iter().map(|it| power(Hertz(it.0 * 1e6)) * (it.1 / whole)).sum();
        let constant = power(Hertz(mean * 1e6));
        // The bound is strict where the voltage moves; below the knee power is linear in frequency.
        prop_assert!(constant.0 <= fluctuating.0 * (1.0 + 1e-12), "{constant} {fluctuating}");
        let above = |it: &(f64, f64)| it.0 > 900.0;
        let varies = clocks.iter().any(|it| (it.0 - mean).abs() > 50.0);
        if clocks.iter().all(above) && varies {
            prop_assert!(constant.0 < fluctuating.0);
        }
    }
}

/// Footnote 6: above the knee, roughly the cube; a matrix-bound kernel's clock to its power.
#[test]
fn dynamic_power_grows_roughly_with_the_cube() {
    let power = |megahertz: f64| {
        let clock = Hertz(megahertz * 1e6);
        A100.dynamic_power(clock, &activity(clock, 108.0, 1_000.0, 0.0, 0.0))
    };
    for megahertz in [930.0, 1_110.0, 1_290.0, 1_395.0] {
        let exponent = (power(megahertz * 1.01) / power(megahertz)).ln() / 1.01_f64.ln();
        assert!((2.3..3.0).contains(&exponent), "{exponent} at {megahertz}");
    }
}

/// Section 6.2.1: what the power limit throttles takes as long as it would at that mean clock, and more
/// energy.
#[test]
fn throttling_costs_energy_and_saves_no_time() {
    let gpu = litd_overlap::Gpu {
        limit: Watts(330.0),
        ..A100
    };
    let partition = paper::figure_3();
    let candidate = at(1410.0, 6, 3);
    let execute = |clock| gpu.partition(&partition, candidate, clock);
    let throttled = gpu.pace(candidate.clock, gpu.ready, &execute);
    assert!(throttled.clock < candidate.clock);
    assert!((throttled.dynamic.0 + gpu.ready.0 - 330.0).abs() < 0.1);
    let steady = A100.pace(throttled.clock, gpu.ready, &execute);
    assert_eq!(steady.clock, throttled.clock);
    let energy = |it: litd_overlap::execution::Pace| it.dynamic.0 * it.time.0;
    assert!((throttled.time.0 / steady.time.0 - 1.0).abs() < 0.003);
    assert!(energy(throttled) > 1.001 * energy(steady));
    // Where the limit doesn't bind it changes nothing.
    let free = A100.pace(Hertz(900e6), gpu.ready, &execute);
    assert_eq!(gpu.pace(Hertz(900e6), gpu.ready, &execute), free);
}
