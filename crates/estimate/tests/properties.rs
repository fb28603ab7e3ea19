//! The estimate against brute force, and what it must not depend on. Every number here is made up.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

use litd_api::Limiter;
use litd_estimate::{BUCKETS, Estimate, Fleet, HIGHEST_CAP_UNKNOWN, Sample, Sketch};
use litd_units::{Celsius, Hertz, Prices, Watts};
use proptest::prelude::*;

const PRICES: Prices = Prices {
    energy_per_kwh: 0.14,
    gpu_hour: 2.5,
};

/// A GPU at its cap of 300 W, `minute` minutes after the epoch.
fn paced(minute: i64, pace: f64, temperature: f64) -> Sample {
    Sample {
        time: Some(minute * 60_000),
        power: Some(Watts(297.0)),
        temperature: Some(Celsius(temperature)),
        cap: Some(Watts(300.0)),
        pace: Some(pace),
        ..Sample::default()
    }
}

fn close(found: Option<f64>, expected: f64) {
    let found = found.unwrap();
    assert!(
        (found - expected).abs() < 0.005,
        "{found} instead of {expected}"
    );
}

/// Four GPUs, the third 5 % slower than the fastest, for a day.
fn steady() -> Fleet {
    let mut fleet = Fleet::default();
    for minute in 0..1440 {
        for (gpu, pace) in ["a", "b", "c", "d"]
            .iter()
            .zip([100.0, 101.0, 105.0, 102.0])
        {
            // All GPUs wander together by half a per cent.
            let pace = pace * (1.0 + 0.005 * (minute as f64 / 100.0).sin());
            fleet
                .add("node", gpu, &paced(minute, pace, pace - 40.0))
                .unwrap();
        }
    }
    fleet
}

#[test]
fn a_node_is_what_was_put_into_it() {
    let estimate = Estimate::of(&steady(), Some(PRICES));
    let [node] = &estimate.nodes[..] else {
        panic!("{estimate:?}");
    };
    assert_eq!((node.gpus, node.samples), (4, 4 * 1440));
    assert_eq!(node.limiter_share.as_ref().unwrap()["power"], 1.0);
    close(node.spread_pct, 5.0);
    close(node.slowest_vs_median_pct, 100.0 * (105.0 / 101.5 - 1.0));
    close(node.persistence, 1.0);
    assert_eq!(node.hottest_is_slowest, Some(true));
    // By hand: 1 - (mean of (p/105)^5); the median is less than the power mean, 101.97.
    let red = [100.0, 101.0, 105.0, 102.0].map(|it: f64| (it / 105.0).powi(5));
    close(
        node.bound.gpu_red_power_pct,
        100.0 * (1.0 - red.iter().sum::<f64>() / 4.0),
    );
    close(
        node.bound.gpu_realloc_throughput_pct,
        100.0 * (105.0 / 101.5 - 1.0),
    );
    close(node.bound.cpu_slosh_throughput_pct, 5.0);
    close(node.value_per_node_hour, 0.05 * 4.0 * 2.5);
    let interval = node.intervals.spread_pct.unwrap();
    assert!(
        interval.0 > 4.9 && interval.1 < 5.1 && interval.0 <= interval.1,
        "{interval:?}"
    );
    // A deviation of 3.4 % where the others' are 0.5, 0.5 and 1.5 % is not odd.
    assert_eq!(node.repair.as_deref(), Some(&[][..]));
}

#[test]
fn a_slow_gpu_is_named_if_it_is_slow_all_the_time() {
    let mut fleet = Fleet::default();
    for minute in 0..600 {
        for node in ["n1", "n2", "n3"] {
            for gpu in 0..8 {
                let mut pace = 100.0 + 0.3 * f64::from(gpu);
                if node == "n2" && gpu == 5 {
                    pace *= 1.06;
                }
                // GPU 1 of n3 is slow for the second half only.
                if node == "n3" && gpu == 1 && minute >= 300 {
                    pace *= 1.1;
                }
                fleet
                    .add(node, &gpu.to_string(), &paced(minute, pace, 60.0))
                    .unwrap();
            }
        }
    }
    let estimate = Estimate::of(&fleet, None);
    let repair = estimate.nodes.iter().map(|it| it.repair.clone().unwrap());
    assert_eq!(
        Vec::from_iter(repair),
        [vec![], vec!["5".to_owned()], vec![]]
    );
    assert_eq!(estimate.fleet.repair.unwrap().len(), 1);
}

/// Eight GPUs for an hour, the last 6 % slower than the first.
fn eight() -> Fleet {
    let mut fleet = Fleet::default();
    for minute in 0..60 {
        for gpu in 0..8 {
            let pace = 100.0 + f64::from(gpu) + if gpu == 7 { 6.0 } else { 0.0 };
            let sample = paced(minute, pace, 60.0 + f64::from(gpu));
            fleet.add("n", &gpu.to_string(), &sample).unwrap();
        }
    }
    fleet
}

#[test]
fn a_gpu_with_one_sample_does_not_decide_its_node() {
    let before = Estimate::of(&eight(), None);
    let mut fleet = eight();
    fleet.add("n", "stray", &paced(3, 400.0, 60.0)).unwrap();
    let after = Estimate::of(&fleet, None);
    let (before, after) = (&before.nodes[0], &after.nodes[0]);
    assert_eq!(after.gpus, 9);
    assert!(
        after.why["gpus"].starts_with("1 of 9 GPUs has 1 sample: not compared"),
        "{:?}",
        after.why
    );
    assert_eq!(before.spread_pct, after.spread_pct);
    assert_eq!(before.bound, after.bound);
    assert!(after.persistence.is_some() && after.repair.is_some());
    assert_eq!(
        (before.persistence, &before.repair),
        (after.persistence, &after.repair)
    );
    // Where one is left, nothing is compared, and that is said.
    let mut fleet = Fleet::default();
    for minute in 0..60 {
        fleet.add("n", "a", &paced(minute, 100.0, 60.0)).unwrap();
    }
    fleet.add("n", "b", &paced(3, 110.0, 60.0)).unwrap();
    let node = &Estimate::of(&fleet, None).nodes[0];
    assert_eq!(node.spread_pct, None);
    assert!(
        node.why["spread_pct"].contains("1 of 2 GPUs has 1 sample"),
        "{:?}",
        node.why
    );
}

#[test]
fn a_gpu_that_came_late_leaves_the_others_judged() {
    let mut fleet = eight();
    for minute in 40..60 {
        fleet.add("n", "late", &paced(minute, 103.0, 60.0)).unwrap();
    }
    let node = &Estimate::of(&fleet, None).nodes[0];
    close(node.persistence, 1.0);
    assert!(node.repair.is_some());
    assert!(
        node.why["repair"].contains("8 of 9 GPUs were seen in both halves"),
        "{:?}",
        node.why
    );
}

#[test]
fn one_stray_reading_leaves_persistence() {
    let mut fleet = eight();
    fleet.add("n", "2", &paced(7, 1e9, 62.0)).unwrap();
    close(Estimate::of(&fleet, None).nodes[0].persistence, 1.0);
}

#[test]
fn a_highest_cap_that_nobody_tells_is_said_beside_the_bounds() {
    let unknown = Estimate::of(&eight(), None);
    assert!(unknown.nodes[0].bound.cpu_slosh_throughput_pct > Some(10.0));
    assert_eq!(unknown.nodes[0].why["bound"], HIGHEST_CAP_UNKNOWN);
    let said = |it: &Estimate| {
        it.fleet
            .cannot_tell
            .iter()
            .any(|it| it.why == HIGHEST_CAP_UNKNOWN)
    };
    assert!(said(&unknown));
    let mut told = Fleet::default();
    for gpu in 0..8 {
        let highest_cap = Some(Watts(400.0));
        let sample = paced(0, 100.0 + f64::from(gpu), 60.0);
        told.add(
            "n",
            &gpu.to_string(),
            &Sample {
                highest_cap,
                ..sample
            },
        )
        .unwrap();
    }
    assert!(!said(&Estimate::of(&told, None)));
}

#[test]
fn equally_hot_gpus_have_no_hottest() {
    let mut fleet = Fleet::default();
    for (gpu, pace) in ["a", "b", "c"].iter().zip([100.0, 101.0, 105.0]) {
        fleet.add("n", gpu, &paced(0, pace, 60.0)).unwrap();
    }
    let estimate = Estimate::of(&fleet, None);
    assert_eq!(estimate.nodes[0].hottest_is_slowest, None);
    assert_eq!(
        estimate.nodes[0].why["hottest_is_slowest"],
        "all GPUs are equally hot"
    );
    assert_eq!(estimate.fleet.hottest_is_slowest, None);
}

#[test]
fn intervals_take_four_nodes_and_end_at_all_power() {
    let of = |nodes: u32| {
        let mut fleet = Fleet::default();
        for node in 0..nodes {
            let slow = if node % 2 == 0 { 100.0 } else { 900.0 };
            for (gpu, pace) in ["a", "b"].iter().zip([100.0, slow]) {
                fleet
                    .add(&node.to_string(), gpu, &paced(0, pace, 60.0))
                    .unwrap();
            }
        }
        Estimate::of(&fleet, Some(PRICES)).fleet
    };
    let three = of(3);
    assert_eq!(three.intervals, litd_estimate::Intervals::default());
    let why = three
        .cannot_tell
        .iter()
        .find(|it| it.why.contains("4 nodes"));
    assert_eq!(why.map(|it| (it.what, it.nodes)), Some(("intervals", 3)));
    let four = of(4);
    assert!(four.intervals.cpu_slosh_throughput_pct.is_some());
    let red = four.intervals.gpu_red_power_pct.unwrap();
    assert!(red.1 <= 100.0, "{red:?}");
    assert!(
        four.cannot_tell
            .iter()
            .all(|it| !it.why.contains("4 nodes"))
    );
}

#[test]
fn what_cannot_be_told_is_said_and_never_zero() {
    // No cap and no limiter: clocks at the cap are not known.
    let mut fleet = Fleet::default();
    for gpu in ["0", "1"] {
        let sample = Sample {
            clock: Some(Hertz(1.4e9)),
            power: Some(Watts(280.0)),
            ..Sample::default()
        };
        fleet.add("n", gpu, &sample).unwrap();
    }
    let estimate = Estimate::of(&fleet, Some(PRICES));
    let node = &estimate.nodes[0];
    assert_eq!(
        (
            node.spread_pct,
            node.persistence,
            node.value_per_node_hour,
            node.repair.as_ref()
        ),
        (None, None, None, None)
    );
    assert_eq!(node.bound, litd_estimate::Bound::default());
    assert_eq!(node.limiter_share, None);
    assert!(node.why["spread_pct"].contains("--cap-w"), "{:?}", node.why);
    assert!(!estimate.fleet.cannot_tell.is_empty());
    // Where power is known to limit nothing, no watt moved to a GPU helps: that is zero, with its reason.
    let mut fleet = Fleet::default();
    for gpu in ["0", "1"] {
        let sample = Sample {
            clock: Some(Hertz(1.4e9)),
            limiter: Some(Limiter::None),
            ..Sample::default()
        };
        fleet.add("n", gpu, &sample).unwrap();
    }
    let node = &Estimate::of(&fleet, None).nodes[0];
    assert_eq!(node.bound.gpu_realloc_throughput_pct, Some(0.0));
    assert_eq!(
        (node.bound.gpu_red_power_pct, node.spread_pct),
        (None, None)
    );
    assert!(
        node.why["bound"].contains("power limits no GPU"),
        "{:?}",
        node.why
    );
}

#[test]
fn clocks_count_while_power_limits_only_and_bounds_for_that_share() {
    let mut fleet = Fleet::default();
    for minute in 0..100 {
        for (gpu, megahertz) in [("0", 1400.0), ("1", 1330.0), ("2", 1400.0)] {
            let limited = minute % 4 == 0;
            let sample = Sample {
                time: Some(minute * 60_000),
                clock: Some(Hertz(if limited { megahertz } else { 1980.0 } * 1e6)),
                power: Some(Watts(500.0)),
                limiter: Some(if limited {
                    Limiter::Power
                } else {
                    Limiter::None
                }),
                ..Sample::default()
            };
            fleet.add("n", gpu, &sample).unwrap();
        }
    }
    let node = &Estimate::of(&fleet, None).nodes[0];
    assert_eq!(node.limiter_share.as_ref().unwrap()["power"], 0.25);
    close(node.spread_pct, 100.0 * (1400.0 / 1330.0 - 1.0));
    close(
        node.bound.cpu_slosh_throughput_pct,
        25.0 * (1400.0 / 1330.0 - 1.0),
    );
    assert_eq!(node.basis, Some("clock at the cap"));
}

#[test]
fn caps_at_their_ceiling_give_nothing_to_the_straggler() {
    let mut fleet = Fleet::default();
    for (gpu, pace) in [("0", 1.0), ("1", 1.1)] {
        let sample = Sample {
            highest_cap: Some(Watts(300.0)),
            ..paced(0, pace, 50.0)
        };
        fleet.add("n", gpu, &sample).unwrap();
    }
    let node = &Estimate::of(&fleet, None).nodes[0];
    assert_eq!(node.bound.gpu_realloc_throughput_pct, Some(0.0));
    assert!(node.bound.gpu_red_power_pct.unwrap() > 5.0);
    assert!(node.why["bound"].contains("highest"), "{:?}", node.why);
}

/// A GPU that heat slows down gains nothing from watts; the others may still wait for it with less.
#[test]
fn a_straggler_that_power_does_not_limit_is_not_helped_by_it() {
    let mut fleet = Fleet::default();
    for (gpu, pace, limiter) in [
        ("0", 1.0, Limiter::Power),
        ("1", 1.0, Limiter::Power),
        ("2", 1.1, Limiter::Heat),
    ] {
        let sample = Sample {
            limiter: Some(limiter),
            ..paced(0, pace, 50.0)
        };
        fleet.add("n", gpu, &sample).unwrap();
    }
    let node = &Estimate::of(&fleet, None).nodes[0];
    assert_eq!(node.bound.gpu_realloc_throughput_pct, Some(0.0));
    assert_eq!(node.bound.cpu_slosh_throughput_pct, Some(0.0));
    assert!(node.bound.gpu_red_power_pct.unwrap() > 5.0);
    assert!(
        node.why["bound"].contains("would not help"),
        "{:?}",
        node.why
    );
}

/// Where only the draw tells, bursts between two samples may meet the cap: no zero, and no bound below the truth.
#[test]
fn what_is_drawn_bounds_the_limiter_from_above() {
    let drawn = |watts: [f64; 2]| {
        let mut fleet = Fleet::default();
        for minute in 0..100 {
            for (gpu, pace) in [("0", 1.0), ("1", 1.1)] {
                let sample = Sample {
                    power: Some(Watts(watts[usize::from(minute % 4 > 0)])),
                    ..paced(minute, pace, 50.0)
                };
                fleet.add("n", gpu, &sample).unwrap();
            }
        }
        Estimate::of(&fleet, None).nodes.remove(0)
    };
    // A quarter at the cap; the rest high enough for bursts, or idle.
    close(drawn([297.0, 200.0]).bound.cpu_slosh_throughput_pct, 10.0);
    close(drawn([297.0, 60.0]).bound.cpu_slosh_throughput_pct, 2.5);
    let below = drawn([200.0, 200.0]);
    assert_eq!(below.bound.cpu_slosh_throughput_pct, None);
    assert!(below.why["bound"].contains("bursts"), "{:?}", below.why);
    let idle = drawn([60.0, 60.0]);
    assert_eq!(idle.bound.cpu_slosh_throughput_pct, Some(0.0));
    assert!(
        idle.why["bound"].contains("would not help"),
        "{:?}",
        idle.why
    );
}

#[test]
fn mixed_units_are_no_spread() {
    let mut fleet = Fleet::default();
    for (gpu, pace) in [("0", 2.4), ("1", 2400.0)] {
        fleet.add("n", gpu, &paced(0, pace, 50.0)).unwrap();
    }
    let node = &Estimate::of(&fleet, None).nodes[0];
    assert_eq!(
        (node.spread_pct, node.bound.cpu_slosh_throughput_pct),
        (None, None)
    );
    assert!(node.why["spread_pct"].contains("units"), "{:?}", node.why);
}

#[test]
fn a_gpu_with_two_units_is_no_spread() {
    let mut fleet = Fleet::default();
    for minute in 0..100 {
        for (gpu, pace) in [("0", 2.4), ("1", 2.5)] {
            let unit = if minute % 2 == 0 { 1.0 } else { 1000.0 };
            let sample = paced(minute, pace * unit, 50.0);
            fleet.add("n", gpu, &sample).unwrap();
        }
    }
    let node = &Estimate::of(&fleet, None).nodes[0];
    assert_eq!(node.spread_pct, None);
    assert!(node.why["spread_pct"].contains("units"), "{:?}", node.why);
}

#[test]
fn a_sample_that_comes_twice_counts_once() {
    let mut fleet = steady();
    let before = Estimate::of(&fleet, None);
    let last = paced(1439, 100.0 * (1.0 + 0.005 * 14.39_f64.sin()), 1.0);
    fleet.add("node", "e", &last).unwrap();
    fleet.add("node", "e", &last).unwrap();
    assert_eq!(fleet.seen().repeated, 1);
    assert_eq!(fleet.seen().samples, before.fleet.samples + 1);
}

#[test]
fn a_column_that_counts_rows_is_refused() {
    let mut fleet = Fleet::default();
    let refused = (0..=litd_estimate::MOST_GPUS)
        .find_map(|row| fleet.add("n", &row.to_string(), &Sample::default()).err());
    assert!(refused.unwrap().to_string().contains("seems to count rows"));
}

/// Rows of a made-up node: minute, GPU, pace.
fn rows() -> impl Strategy<Value = Vec<(i64, usize, f64)>> {
    prop::collection::vec((0_i64..5_000, 0_usize..5, 50.0..150.0_f64), 1..400)
}

fn of(rows: &[(i64, usize, f64)]) -> Estimate {
    let mut fleet = Fleet::default();
    for (minute, gpu, pace) in rows {
        fleet
            .add(
                "n",
                &gpu.to_string(),
                &paced(*minute, *pace, 40.0 + *gpu as f64),
            )
            .unwrap();
    }
    Estimate::of(&fleet, Some(PRICES))
}

proptest! {
    /// The order of rows and their spread over files don't matter.
    #[test]
    fn order_does_not_matter(rows in rows(), seed in any::<u64>()) {
        let mut rows = rows;
        rows.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.total_cmp(&b.2)));
        rows.dedup_by_key(|it| (it.0, it.1));
        let mut shuffled = rows.clone();
        let mut state = seed | 1;
        for at in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            shuffled.swap(at, (state >> 33) as usize % (at + 1));
        }
        let (a, b) = (of(&rows), of(&shuffled));
        prop_assert_eq!(&a.nodes[0].spread_pct, &b.nodes[0].spread_pct);
        prop_assert_eq!(&a.nodes[0].limiter_share, &b.nodes[0].limiter_share);
        prop_assert_eq!(&a.nodes[0].persistence, &b.nodes[0].persistence);
        prop_assert_eq!(&a.nodes[0].repair, &b.nodes[0].repair);
        prop_assert_eq!(&a.nodes[0].bound, &b.nodes[0].bound);
    }

    /// Spreads are those of sorted lists, to the error that the sketch tells.
    #[test]
    fn spreads_are_those_of_sorted_lists(rows in rows()) {
        // A sample that comes twice counts once.
        let mut rows = rows;
        rows.sort_by_key(|it| (it.0, it.1));
        rows.dedup_by_key(|it| (it.0, it.1));
        let estimate = of(&rows);
        let paces = |gpu: usize| Vec::from_iter(rows.iter().filter(|it| it.1 == gpu).map(|it| it.2));
        let mut counts = Vec::from_iter((0..5).map(|gpu| paces(gpu).len()).filter(|&it| it > 0));
        counts.sort_unstable();
        let usual = (counts[(counts.len() - 1) / 2] + counts[counts.len() / 2]) as f64 / 2.0;
        let medians = (0..5).filter_map(|gpu| {
            let mut paces = paces(gpu);
            // Far fewer samples than its peers have: not compared.
            if (paces.len() as f64) < litd_estimate::LEAST_SAMPLES * usual {
                return None;
            }
            paces.sort_by(f64::total_cmp);
            let middle = paces.len().checked_sub(1)? / 2;
            Some(f64::midpoint(paces[middle], paces[paces.len() / 2]))
        });
        let mut medians = Vec::from_iter(medians);
        medians.sort_by(f64::total_cmp);
        prop_assume!(medians.len() >= 2);
        let (slowest, fastest) = (medians[medians.len() - 1], medians[0]);
        let middle = f64::midpoint(medians[(medians.len() - 1) / 2], medians[medians.len() / 2]);
        // 80 values between 50 and 150 are kept as they are: there is a bucket for each.
        let node = &estimate.nodes[0];
        prop_assert!((node.spread_pct.unwrap() - 100.0 * (slowest / fastest - 1.0)).abs() < 0.01);
        prop_assert!((node.slowest_vs_median_pct.unwrap() - 100.0 * (slowest / middle - 1.0)).abs() < 0.01);
        let bound = node.bound;
        prop_assert!(bound.gpu_realloc_throughput_pct <= bound.cpu_slosh_throughput_pct);
        prop_assert!(node.slowest_vs_median_pct <= node.spread_pct);
    }

    /// The sketch's quantiles are off by its error at most, whatever is put into it.
    #[test]
    fn quantiles_are_within_the_error(values in prop::collection::vec(1e-3..1e6_f64, 1..2_000)) {
        let mut sketch = Sketch::default();
        values.iter().for_each(|it| sketch.add(*it));
        let mut sorted = values;
        sorted.sort_by(f64::total_cmp);
        for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
            let place = share * (sorted.len() - 1) as f64;
            let (low, high) = (sorted[place as usize], sorted[(place as usize + 1).min(sorted.len() - 1)]);
            let exact = low + (high - low) * place.fract();
            let found = sketch.quantile(share).unwrap();
            prop_assert!((found / exact - 1.0).abs() <= sketch.error() * 1.01, "{found} {exact} {}", sketch.error());
        }
        prop_assert!(sketch.count() as usize == sorted.len() && BUCKETS == 128);
    }
}
