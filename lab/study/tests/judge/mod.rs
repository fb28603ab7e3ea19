//! The judge: what it says of a plant that is known in closed form, of laws that are bad or do
//! nothing, and that it says the same twice.

mod toy;

use litd_plants::{Dimension, Draw, Plant, corner};
use litd_policies::{Law, Policy, Sample};
use litd_sim::rng::Rng;
use litd_study::judge::best::{Bounds, Goal, best};
use litd_study::judge::nodes::{Field, Named};
use litd_study::judge::{Hand, Judged, Settings, course, explain, summary, trial};
use litd_study::observe::{self, Names};
use litd_study::steered::{Family, PowerBit, Ran, Steered};
use litd_study::{optimum::Outcome, parallel};
use litd_traces::Aggregation;
use litd_trial::Verdict;
use litd_units::{Millis, Watts};

use toy::Toy;

/// Times of an iteration a few tenths of a second long, one GPU slower than the others.
const NEED: [f64; 4] = [5_000.0, 5_100.0, 5_060.0, 5_400.0];
const CAP: f64 = 500.0;

fn short() -> Settings {
    Settings {
        iterations: 300,
        held: 200,
        ..Settings::default()
    }
}

#[test]
fn the_optimum_of_a_plant_in_closed_form_is_found() {
    let plant = Toy::new(&NEED, CAP, 0.0);
    let start = plant.gpu_caps();
    let bounds = Bounds {
        range: vec![(Watts(200.0), Watts(1000.0)); 4],
        budget: Watts(4.0 * CAP),
    };
    let fast = best(&plant, &start, &bounds, Goal::Fast).unwrap();
    let time = plant.fastest(4.0 * CAP);
    assert!((fast.outcome.time.0 / time - 1.0).abs() < 1e-4, "{fast:?}");
    let sum: Watts = fast.caps.iter().copied().sum();
    assert!(sum.0 <= 4.0 * CAP + 1e-6, "{fast:?}");
    let slower = 5e-4;
    let frugal = best(&plant, &start, &bounds, Goal::Frugal { slower }).unwrap();
    let allowed = plant.steady(&start).unwrap().time.0 * (1.0 + slower);
    let power = plant.least_power(allowed);
    assert!(frugal.outcome.time.0 <= allowed * (1.0 + 1e-9));
    assert!(
        (frugal.outcome.power.0 / power - 1.0).abs() < 3e-4,
        "{frugal:?} {power}"
    );
}

#[test]
fn who_does_nothing_leaves_all_that_there_is_to_be_had_and_does_no_harm() {
    let settings = short();
    let mut judged = Judged::new(Toy::new(&NEED, CAP, 0.005), &settings, 1);
    for policy in [Policy::GpuRed, Policy::GpuRealloc] {
        let prospect = judged.prospect(policy).unwrap();
        let row = judged.judge(Hand::Idle, &prospect).unwrap();
        assert!(row.gain > 0.01, "{row:?}");
        assert_eq!(row.regret, row.gain);
        assert_eq!(
            (row.longer.mean, row.slowest, row.energy_time),
            (0.0, 0.0, 0.0)
        );
        assert_eq!((row.value.low, row.value.high), (0.0, 0.0));
        assert_eq!((row.trial, row.adjustments), (Verdict::Zero, 0));
        assert!(!row.is_worse_off());
    }
}

#[test]
fn the_optimum_itself_has_the_gain_and_the_value_of_the_closed_form() {
    let settings = short();
    let plant = Toy::new(&NEED, CAP, 0.0);
    let mut judged = Judged::new(plant.clone(), &settings, 1);
    let prospect = judged.prospect(Policy::GpuRealloc).unwrap();
    let row = judged.judge(Hand::Best, &prospect).unwrap();
    let before = plant.steady(&plant.gpu_caps()).unwrap().time.0;
    let faster = before / plant.fastest(4.0 * CAP) - 1.0;
    assert!((row.gain - faster).abs() < 1e-4, "{row:?}");
    // Whole watts and no noise: the power is the same, so the value is all throughput's.
    let got = 1.0 / (1.0 + row.longer.mean) - 1.0;
    assert!((got - faster).abs() < 1e-3, "{got} {faster}");
    assert!((row.value.mean - got * 4.0 * 2.5).abs() < 1e-3, "{row:?}");
    assert!(row.regret.abs() < 1e-3 && !row.is_worse_off());
    assert_eq!(row.trial, Verdict::Pays);
}

/// Takes watts from the GPU that the others wait for, once.
fn robs_the_straggler(sample: &Sample, caps: &[Watts]) -> Option<Vec<Watts>> {
    let lead = |gpu: &usize| sample.leads[*gpu].map_or(0.0, |it| it.0);
    let straggler = (0..caps.len()).min_by(|a, b| lead(a).total_cmp(&lead(b)))?;
    let untouched = caps.iter().all(|&cap| cap == Watts(CAP));
    let mut caps = caps.to_vec();
    caps[straggler] = Watts(CAP * 0.95);
    untouched.then_some(caps)
}

#[test]
fn a_rule_that_robs_the_straggler_is_worse_off_by_what_that_costs() {
    let settings = short();
    let mut judged = Judged::new(Toy::new(&NEED, CAP, 0.002), &settings, 1);
    let prospect = judged.prospect(Policy::GpuRealloc).unwrap();
    let row = judged
        .judge(Hand::Planted(&robs_the_straggler), &prospect)
        .unwrap();
    assert!(row.is_worse_off() && row.slower(), "{row:?}");
    let expected = (1.0_f64 / 0.95).sqrt() - 1.0;
    assert!((row.longer.mean - expected).abs() < 1e-3, "{row:?}");
    assert!((row.slowest - expected).abs() < 2e-3, "{row:?}");
    assert!(row.regret > row.gain && row.value.high < 0.0, "{row:?}");
    assert_eq!((row.trial, row.adjustments), (Verdict::Harm, 1));
    assert!(row.hours < 4.8, "{}", row.hours);
    // Under gpu-red too, though the node draws less.
    let prospect = judged.prospect(Policy::GpuRed).unwrap();
    let row = judged
        .judge(Hand::Planted(&robs_the_straggler), &prospect)
        .unwrap();
    assert!(row.is_worse_off() && row.slower(), "{row:?}");
}

/// Random caps within the same bounds, around the start and around what was found.
fn random(rng: &mut Rng, around: &[Watts], width: f64, bounds: &Bounds) -> Vec<Watts> {
    let caps = around.iter().zip(&bounds.range);
    let caps = caps.map(|(cap, range)| {
        let moved = *cap * (1.0 + width * (2.0 * rng.uniform() - 1.0));
        moved.max(range.0).min(range.1)
    });
    let caps: Vec<Watts> = caps.collect();
    let sum: Watts = caps.iter().copied().sum();
    let fit = (bounds.budget / sum).min(1.0);
    caps.into_iter()
        .map(|cap| (cap * fit).max(bounds.range[0].0))
        .collect()
}

#[test]
fn no_caps_that_chance_finds_on_small_nodes_are_better() {
    let seeds: Vec<u64> = (0..400)
        .filter(|&seed| Draw::new(seed).plant(0).gpu_count() == 4)
        .collect();
    let check = |&seed: &u64| {
        let plant = Family::new(Draw::new(seed).plant(0), Millis(25.0), PowerBit::Cause, 1);
        let start = plant.gpu_caps();
        let node = plant.node();
        let range = |it: &litd_policies::Limits| (it.floor, it.ceiling);
        let bounds = Bounds {
            range: node.gpus.iter().map(range).collect(),
            budget: start.iter().copied().sum(),
        };
        let mut rng = Rng::stream(seed, &[1]);
        let before = plant.steady(&start).unwrap();
        let slowest = before.time * (1.0 + 5e-4);
        let fast = best(&plant, &start, &bounds, Goal::Fast).unwrap();
        let frugal = best(&plant, &start, &bounds, Goal::Frugal { slower: 5e-4 }).unwrap();
        assert!(frugal.outcome.time <= slowest * (1.0 + 1e-9));
        for tried in 0..120 {
            let width = [0.1, 0.03, 0.01][tried % 3];
            let from = [&start, &fast.caps, &frugal.caps][tried / 3 % 3];
            let caps = random(&mut rng, from, width, &bounds);
            let sum: Watts = caps.iter().copied().sum();
            let Outcome { time, power } = plant.steady(&caps).unwrap();
            if sum <= bounds.budget {
                assert!(
                    time >= fast.outcome.time * (1.0 - 5e-4),
                    "{seed} {caps:?} {fast:?}"
                );
            }
            if sum <= bounds.budget && time <= slowest {
                let least = frugal.outcome.power * (1.0 - 2e-3);
                assert!(power >= least, "{seed} {caps:?} {power} {frugal:?}");
            }
        }
    };
    let count = super::count("LITD_STUDY_NODES", 24).div_ceil(2) as usize;
    let seeds = &seeds[..count.min(seeds.len())];
    assert_eq!(parallel::map(seeds, check, |_| {}).len(), seeds.len());
}

#[test]
fn the_plants_author_finds_no_better_caps() {
    let seeds: Vec<u64> = (0..super::count("LITD_STUDY_NODES", 24) / 2).collect();
    let check = |&seed: &u64| {
        let node = Draw::new(seed).plant(0);
        let theirs = node.optimum(litd_plants::Policy::GpuRealloc, &node.start());
        let plant = Family::new(node.clone(), Millis(25.0), PowerBit::Cause, 1);
        let range = node.range();
        let bounds = Bounds {
            range: vec![(range.lowest, range.highest); node.gpu_count()],
            budget: theirs.budget,
        };
        let ours = best(&plant, &plant.gpu_caps(), &bounds, Goal::Fast).unwrap();
        let behind = ours.outcome.time / theirs.best.iteration - 1.0;
        assert!(behind < 1e-3, "{seed}: {behind} {ours:?} {theirs:?}");
    };
    parallel::map(&seeds, check, |_| {});
}

#[test]
fn a_draw_alone_is_what_it_is_among_many_whatever_the_threads() {
    let settings = Settings {
        iterations: 700,
        held: 100,
        ..Settings::default()
    };
    let field = Field {
        hands: vec![Hand::Law(Law::Paper), Hand::Law(Law::Model), Hand::Best],
        policies: Policy::STEERING.to_vec(),
    };
    let nodes: Vec<Named> = [3, 4, 11].map(Named::Draw).to_vec();
    let work = |node: &Named| node.judge(&field, &settings).unwrap();
    let among = parallel::map(&nodes, work, |_| {});
    for (node, among) in nodes.iter().zip(&among) {
        let alone = node.judge(&field, &settings).unwrap();
        assert_eq!(format!("{alone:?}"), format!("{among:?}"));
    }
    let moved = among
        .iter()
        .flat_map(|it| &it.rows)
        .filter(|it| it.adjustments > 0)
        .count();
    assert!(moved > 4, "nothing was judged");
    let told = summary::summaries(&among);
    assert_eq!(told.len(), 9);
    for it in &told {
        assert!(it.regret.median <= it.regret.p95 && it.regret.p95 <= it.regret.worst);
        assert_eq!((it.nodes, it.trials.values().sum::<usize>()), (3, 3));
    }
}

#[test]
fn what_a_bad_end_hinges_on_is_found() {
    // A rule that takes watts from all GPUs, but only where iterations are short.
    let all_down = |sample: &Sample, caps: &[Watts]| {
        let short = sample.iteration_time < Millis(800.0);
        let high = short && caps.iter().all(|cap| cap.0 > 600.0);
        high.then(|| caps.iter().map(|&cap| cap * 0.85).collect())
    };
    let settings = Settings {
        iterations: 30,
        held: 40,
        ..Settings::default()
    };
    let middle = corner::named("middle").unwrap().draw;
    let draw = middle.with(Dimension::Iteration, 0.5);
    let hand = Hand::Planted(&all_down);
    let (badness, causes) = explain::explain(&draw, Policy::GpuRealloc, hand, &settings).unwrap();
    assert!(badness > 1.0, "{badness}");
    let first = causes
        .first()
        .map(|it| (it.dimension, it.value, it.without));
    assert_eq!(first, Some((Dimension::Iteration, 0.5, 0.0)), "{causes:?}");
}

#[test]
fn the_loop_sees_of_a_plant_what_hooks_and_tools_tell_and_nothing_else() {
    let draw = corner::named("middle").unwrap().draw;
    let mut plant = Family::new(draw.plant(0), Millis(25.0), PowerBit::Cause, 1);
    let names = Names::of(&plant);
    let mut powers = vec![Vec::new(); 8];
    let (mut leads, mut slowness) = (vec![0.0; 8], vec![0.0; 8]);
    for _ in 0..60 {
        plant.iterate();
        let sample = observe::sample(&mut plant, &names, Aggregation::Sum)
            .unwrap()
            .sample;
        for (gpu, it) in sample.gpus.iter().enumerate() {
            powers[gpu].push(it.power.unwrap().0);
            slowness[gpu] += it.slowness.unwrap();
            leads[gpu] += sample.leads[gpu].unwrap().0;
            assert!(
                it.power_share == Some(1.0) && it.busy.unwrap() > 0.5,
                "{it:?}"
            );
        }
    }
    // Who is slowest is also who the others wait for.
    let by = |of: &[f64]| (0..8).max_by(|&a, &b| of[a].total_cmp(&of[b])).unwrap();
    let least: Vec<f64> = leads.iter().map(|it| -it).collect();
    assert_eq!(by(&slowness), by(&least), "{slowness:?} {leads:?}");
    // One reading is of one moment; many are about the mean that the sensor's gain leaves.
    let steady = draw.plant(0).steady(&plant.gpu_caps());
    for (gpu, powers) in powers.iter().enumerate() {
        let mean = powers.iter().sum::<f64>() / powers.len() as f64;
        let gain = mean / steady.power[gpu].0;
        assert!((0.9..1.1).contains(&gain), "{gpu}: {mean} {gain}");
        let most = powers.iter().copied().fold(0.0, f64::max);
        assert!(most > mean * 1.02, "{gpu}: {powers:?}");
    }
}

fn course_of(times: impl Iterator<Item = f64>) -> Vec<Ran> {
    let ran = |time| Ran {
        time: Millis(time),
        gpus: Watts(4_000.0),
        node: Watts(5_000.0),
    };
    times.map(ran).collect()
}

#[test]
fn the_slowest_window_is_the_slowest() {
    let without = course_of((0..1000).map(|_| 500.0));
    let with = course_of((0..1000).map(|at| {
        if (400..500).contains(&at) {
            505.0
        } else {
            495.0
        }
    }));
    assert!((course::slowest(&with, &without, 100) - 0.01).abs() < 1e-9);
    assert!((course::slowest(&with, &without, 200) - 0.0).abs() < 1e-9);
    assert!((course::longer(&with, &without) + 0.008).abs() < 1e-9);
}

#[test]
fn a_trial_concludes_what_is_so_and_stops_for_harm() {
    let mut rng = Rng::stream(1, &[1]);
    let noise: Vec<f64> = (0..800).map(|_| 1.0 + 0.004 * rng.normal()).collect();
    let times = |factor: f64| course_of(noise.iter().map(move |it| 500.0 * factor * it));
    let conclude = |factor| {
        let arms = trial::Arms {
            found: &times(1.0),
            balanced: &times(factor),
        };
        let it = trial::conclude(&arms, true, 8, Some(Settings::default().prices), 3);
        (it.verdict, it.hours)
    };
    assert_eq!(conclude(0.99), (Verdict::Pays, 4.8));
    let (verdict, hours) = conclude(1.01);
    assert_eq!(verdict, Verdict::Harm);
    assert!(hours < 2.0, "{hours}");
    assert_eq!(conclude(1.0).0, Verdict::Undecided);
}
