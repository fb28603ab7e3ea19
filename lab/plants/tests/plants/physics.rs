//! What must hold of every plant, whatever is drawn.

use litd_plants::optimum::SLACK;
use litd_plants::{Dimension as D, Draw, Kind, Node, Plant, Policy, WorkloadKind, corner};
use litd_sim::rng::Rng;
use litd_units::Watts;
use proptest::prelude::*;

/// The same draw without what is random from iteration to iteration.
fn quiet(draw: Draw) -> Draw {
    [
        D::KernelNoise,
        D::HardwareNoise,
        D::JobNoise,
        D::SharedNoise,
        D::Tail,
        D::Pause,
        D::TwoModes,
        D::Drift,
        D::DeadBand,
    ]
    .into_iter()
    .fold(draw, |draw, it| draw.with(it, 0.0))
}

/// The same draw without what lets one GPU's power slow another or itself: heat that passes on,
/// and contention that grows with the clock.
fn uncoupled(draw: Draw) -> Draw {
    draw.with(D::Preheat, 0.0)
        .with(D::FanResponse, 0.0)
        .with(D::ContentionClock, 0.0)
}

fn close(a: f64, b: f64, relative: f64) -> bool {
    (a - b).abs() <= relative * b.abs()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Kernels run one after the other, collectives end once they are resident everywhere, and
    /// the sums are those of the parts.
    #[test]
    fn a_timeline_is_one(seed in 0_u64..1_000_000) {
        let mut node = Draw::new(seed).plant(0);
        let caps = node.start();
        node.iterate(&caps);
        let length = node.iterate(&caps).wall.0;
        let (workload, it) = (node.workload(), node.timeline());
        let (kernels, collectives) = (workload.kernels.len(), workload.collectives.len());
        for gpu in 0..node.gpu_count() {
            let own = gpu * kernels..(gpu + 1) * kernels;
            let mut busy = 0.0;
            for kernel in own.clone() {
                prop_assert!(it.end[kernel] >= it.start[kernel]);
                prop_assert!(kernel == own.start || it.start[kernel] >= it.end[kernel - 1]);
                prop_assert!(it.overlapped[kernel] <= it.end[kernel] - it.start[kernel] + 1e-9);
                busy += it.end[kernel] - it.start[kernel];
                if let Some(needs) = workload.kernels[kernel - own.start].needs {
                    prop_assert!(it.start[kernel] >= it.ended[needs]);
                }
            }
            prop_assert!(close(busy, it.uses[gpu].computing(), 1e-9));
            prop_assert!(it.uses[gpu].end <= length + 1e-9);
            for collective in 0..collectives {
                let resident = it.resident[gpu * collectives + collective];
                let trigger = workload.collectives[collective].trigger;
                prop_assert!(resident <= it.complete[collective]);
                prop_assert!(it.complete[collective] <= it.ended[collective]);
                prop_assert!(resident >= it.start[gpu * kernels + trigger] - 1e-9);
            }
        }
    }

    /// Energy is power times time, whether it is read from the meter or summed over iterations.
    #[test]
    fn energy_is_conserved(seed in 0_u64..1_000_000) {
        let mut node = Draw::new(seed).with(D::LimiterBias, 0.0).plant(0);
        let gain = Draw::new(seed).value(D::SensorGain);
        let caps = node.start();
        let (mut sum, mut parts) = (0.0, 0.0);
        for _ in 0..20 {
            let iteration = node.iterate(&caps);
            sum += iteration.energy.0;
            parts += iteration.power.iter().map(|it| it.0).sum::<f64>() * iteration.wall.0 * 1e-3;
        }
        let read: f64 = node.readings().iter().map(|it| it.energy.0 / gain).sum();
        prop_assert!(close(sum, parts, 1e-9));
        prop_assert!(close(read, sum, 1e-9), "{read} {sum}");
    }

    /// With heat and contention apart, no cap makes an iteration longer by being higher.
    #[test]
    fn more_cap_is_never_slower(seed in 0_u64..1_000_000, gpu in 0_usize..4, part in 0.5..0.95) {
        let node = uncoupled(Draw::new(seed)).plant(0);
        let highest = node.range().highest;
        let mut caps = vec![highest * 0.8; node.gpu_count()];
        caps[gpu] = highest * part;
        let low = node.steady(&caps).iteration.0;
        caps[gpu] = highest * (part + 0.05);
        let high = node.steady(&caps).iteration.0;
        prop_assert!(high <= low * (1.0 + 2e-6), "{low} {high}");
    }

    /// The limiter misses its cap by the shortfall that was drawn and no more: below by whatever
    /// waits and hungry kernels leave, above by nothing.
    #[test]
    fn mean_draw_stays_below_the_cap_by_the_shortfall(seed in 0_u64..1_000_000) {
        let draw = quiet(Draw::new(seed))
            .with(D::SensorGain, 1.0)
            .with(D::LimiterBias, 0.0)
            .with(D::FloorOvershoot, 0.0)
            .with(D::Overshoot, 0.0)
            .with(D::ShortfallSpread, 0.0);
        let shortfall = draw.value(D::Shortfall);
        let node = draw.plant(0);
        let cap = node.range().highest * 0.7;
        let steady = node.steady(&vec![cap; node.gpu_count()]);
        for (power, binds) in steady.power.iter().zip(&steady.binds) {
            let target = cap.0 * (1.0 - shortfall);
            prop_assert!(power.0 <= target * (1.0 + 1e-6), "{power} of {target}");
            // A limiter that sees a mean of all time holds that to its target.
            let long = node_window_is_long(&draw, steady.iteration.0);
            prop_assert!(!long || !binds || power.0 > target * 0.93, "{power} of {target}");
        }
    }

    /// Without noise a plant runs into the steady state that is said of it.
    #[test]
    fn iterations_settle_at_the_steady_state(seed in 0_u64..1_000_000) {
        let mut node = quiet(Draw::new(seed)).plant(0);
        let caps: Vec<Watts> = node.start().iter().map(|it| *it * 0.85).collect();
        let rounded: Vec<Watts> = caps.iter().map(|it| it.cut_to(Watts(1.0))).collect();
        let steady = node.steady(&rounded);
        let mut iterations = 0;
        while node.iterate(&caps).begin.0 < 600e3 && iterations < 6_000 {
            iterations += 1;
        }
        let last = node.iterate(&caps).clone();
        prop_assert!(close(last.wall.0, steady.iteration.0, 0.002),
            "{} {}", last.wall, steady.iteration);
        let power: f64 = last.power.iter().map(|it| it.0).sum();
        prop_assert!(close(power, steady.gpu_power().0, 0.004), "{power} {}", steady.gpu_power());
    }
}

/// Whether the limiter's window covers several iterations.
fn node_window_is_long(draw: &Draw, iteration: f64) -> bool {
    draw.value(D::Window) * 1e3 > 2.0 * iteration
}

/// Caps within a policy's bounds, near the optimum or anywhere.
fn random_caps(
    rng: &mut Rng,
    node: &Node,
    policy: Policy,
    best: &[Watts],
    number: usize,
) -> Vec<Watts> {
    let start = node.start();
    let range = node.range();
    let ceiling = |gpu: usize| match policy {
        Policy::GpuRed => start[gpu].0,
        _ => range.highest.0,
    };
    let scale = [0.3, 0.1, 0.03, 0.01][number % 4];
    let base = if number % 8 < 4 { best } else { &start };
    let fit = |caps: Vec<f64>| -> Vec<f64> {
        let caps = caps.into_iter().enumerate();
        caps.map(|(gpu, cap)| cap.clamp(range.lowest.0, ceiling(gpu)))
            .collect()
    };
    let mut caps = fit(base
        .iter()
        .map(|it| it.0 * (1.0 + scale * rng.normal()))
        .collect());
    if policy != Policy::GpuRed {
        let budget = node.optimum_budget(policy);
        for _ in 0..4 {
            let over = caps.iter().sum::<f64>() / budget;
            caps = fit(caps.iter().map(|cap| cap / over).collect());
        }
        let over = (caps.iter().sum::<f64>() / budget).max(1.0);
        caps = caps.iter().map(|cap| cap / over).collect();
    }
    caps.into_iter().map(Watts).collect()
}

/// What a policy may give out, from the trait alone.
trait Budget {
    fn optimum_budget(&self, policy: Policy) -> f64;
}

impl Budget for Node {
    fn optimum_budget(&self, policy: Policy) -> f64 {
        let caps: f64 = self.start().iter().map(|it| it.0).sum();
        let cpus = self.cpus();
        let spare = (cpus.limit - cpus.draw - cpus.margin).0.max(0.0);
        caps + if policy == Policy::CpuSlosh {
            spare
        } else {
            0.0
        }
    }
}

/// A thousand random vectors for each policy and node, half of them close to the optimum.
#[test]
fn no_random_caps_beat_the_optimum() {
    let nodes = [
        Draw::of(5, Kind::V100x4, WorkloadKind::GptData).with(D::Start, 0.7),
        Draw::of(7, Kind::A100x8, WorkloadKind::ConvolutionData).with(D::Start, 0.0),
        corner::named("half-bound").unwrap().draw,
    ];
    for draw in nodes {
        let node = draw.plant(0);
        let start = node.start();
        let before = node.steady(&start);
        for policy in Policy::ALL {
            let optimum = node.optimum(policy, &start);
            assert!(close(optimum.budget.0, node.optimum_budget(policy), 1e-9));
            let sum: Watts = optimum.caps.iter().copied().sum();
            assert!(sum.0 <= optimum.budget.0 * (1.0 + 1e-9), "{policy} {sum}");
            let mut rng = Rng::stream(3, &[draw.seed]);
            for number in 0..1_000 {
                let caps = random_caps(&mut rng, &node, policy, &optimum.caps, number);
                let it = node.steady(&caps);
                let beaten = match policy {
                    Policy::GpuRed => {
                        it.iteration.0 <= before.iteration.0 * (1.0 + SLACK)
                            && it.gpu_power().0 < optimum.best.gpu_power().0 * (1.0 - 2e-4)
                    }
                    _ => it.iteration.0 < optimum.best.iteration.0 * (1.0 - 2e-5),
                };
                assert!(!beaten, "{policy} on {:?} by {caps:?}: {it:?}", draw.kind);
            }
        }
    }
}

#[test]
fn a_seed_gives_the_same_plant_again_and_another_seed_another() {
    let run = |seed, sibling, noise| {
        let mut node = Draw::new(seed).sibling(sibling).plant(noise);
        let caps = node.start();
        (0..30)
            .map(|_| node.iterate(&caps).wall.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(run(11, 0, 0), run(11, 0, 0));
    assert_ne!(run(11, 0, 0), run(11, 0, 1));
    assert_ne!(run(11, 0, 0), run(11, 1, 0));
    assert_ne!(run(11, 0, 0), run(12, 0, 0));
}

#[test]
fn power_follows_a_cap_late() {
    let draw = corner::named("slow-limiter").unwrap().draw;
    let mut node = quiet(draw).plant(0);
    let high = vec![node.range().highest * 0.9; node.gpu_count()];
    let low = vec![node.range().highest * 0.7; node.gpu_count()];
    node.settle(&high);
    let before = node.iterate(&high).power[0].0;
    let first = node.iterate(&low).power[0].0;
    let mut begin = 0.0;
    while begin < 90e3 {
        begin = node.iterate(&low).begin.0;
    }
    let last = node.iterate(&low).power[0].0;
    let settled = node.steady(&low).power[0].0;
    assert!(
        last < before * 0.85 && close(last, settled, 0.01),
        "{before} {last} {settled}"
    );
    // One iteration of about a second is a fifth of the lag.
    assert!(
        first > last + 0.4 * (before - last),
        "{before} {first} {last}"
    );
}

#[test]
fn tools_round_and_lag_and_never_run_backwards() {
    let mut node = Draw::of(3, Kind::A100x8, WorkloadKind::LlamaFsdp8b).plant(0);
    let caps = node.start();
    let mut energy = 0.0;
    for _ in 0..50 {
        node.iterate(&caps);
        let reading = node.readings()[0];
        assert!(reading.energy.0 > energy);
        energy = reading.energy.0;
        assert_eq!(reading.temperature.0.fract(), 0.0);
        assert!(reading.power.0 > 0.1 * caps[0].0 && reading.power.0 < 1.6 * caps[0].0);
    }
    // Where all power has just changed, a reading of a second before doesn't know it yet.
    let slow = Draw::of(3, Kind::A100x8, WorkloadKind::LlamaFsdp8b)
        .with(D::Averaged, 1.0)
        .with(D::Iteration, 0.12);
    let mut node = quiet(slow).plant(0);
    for _ in 0..100 {
        node.iterate(&caps);
    }
    let before = node.readings()[0].power.0;
    let low = vec![node.range().highest * 0.5; 8];
    node.settle(&low);
    node.iterate(&low);
    let after = node.readings()[0].power.0;
    assert!(after > 0.85 * before, "{before} {after}");
}

#[test]
fn caps_outside_of_the_range_are_clamped_and_cut() {
    let mut node = Draw::of(1, Kind::H100x8, WorkloadKind::GptData).plant(0);
    let asked = [0.0, 1e6, 450.7, f64::NAN, 300.0, 300.0, 300.0, 300.0].map(Watts);
    node.iterate(&asked);
    let held: Vec<f64> = node.readings().iter().map(|it| it.cap.0).collect();
    assert_eq!(held[..3], [200.0, 700.0, 450.0]);
    assert!((200.0..=700.0).contains(&held[3]));
}

#[test]
fn every_corner_runs_and_is_what_it_is_called() {
    for it in corner::all() {
        let mut node = it.draw.plant(0);
        let start = node.start();
        let steady = node.steady(&start);
        assert!(node.iterate(&start).wall.0 > 0.0);
        let binding = steady.binds.iter().filter(|it| **it).count();
        match it.name {
            "caps-do-not-bind" => assert_eq!(binding, 0),
            "half-bound" => {
                let limiters: Vec<_> = node.gpus_at_their_current_limit(&start);
                assert!(
                    limiters.contains(&true) && limiters.contains(&false),
                    "{limiters:?}"
                );
            }
            "nothing-to-gain" => {
                let best = node.optimum(Policy::GpuRealloc, &start);
                assert!(best.throughput() < 1.001, "{}", best.throughput());
            }
            "one-outlier" => {
                let clocks: Vec<f64> = steady.clock.iter().map(|it| it.0).collect();
                let slowest = clocks.iter().copied().fold(f64::INFINITY, f64::min);
                let near = clocks.iter().filter(|it| **it < slowest * 1.01).count();
                assert_eq!(near, 1, "{clocks:?}");
            }
            "hot-aisle" => {
                let hottest = steady.temperature.iter().map(|it| it.0).fold(0.0, f64::max);
                assert!(hottest > 80.0, "{hottest}");
            }
            _ => {}
        }
    }
}

/// Which GPUs would not be faster with more cap.
trait AtCurrentLimit {
    fn gpus_at_their_current_limit(&self, caps: &[Watts]) -> Vec<bool>;
}

impl AtCurrentLimit for Node {
    fn gpus_at_their_current_limit(&self, caps: &[Watts]) -> Vec<bool> {
        let clock = |caps: &[Watts]| self.steady(caps).clock;
        let before = clock(caps);
        (0..self.gpu_count())
            .map(|gpu| {
                let mut more = caps.to_vec();
                more[gpu] = (more[gpu] * 1.04).min(self.range().highest);
                clock(&more)[gpu].0 < before[gpu].0 * 1.002
            })
            .collect()
    }
}
