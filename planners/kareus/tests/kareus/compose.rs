//! Composition against enumeration, and whole jobs.

use std::fs;
use std::path::Path;

use crate::common::{STATIC, Sketch, exhaustive, job, llama_3b, training};
use litd_kareus::search::{Point, frontier};
use litd_kareus::{
    A100, BACKWARD, Candidate, Choice, Clocks, ComposeError, Execution, FORWARD, Iteration,
    IterationError, Job, Measurement, Method, Microbatch, Overlapped, Partition, Results, Space,
    Workload, explore, microbatch, profile_sequences,
};
use litd_planner::Schedule;
use litd_units::{Hertz, Joules, Millis, Watts};

/// Whole numbers from a seed, so that sums are exact whatever their order.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// 1 kW of static power makes a joule of each millisecond.
    fn measured(&mut self, clock: Hertz) -> Measurement {
        let time = 1 + self.below(9);
        Measurement {
            time: Millis(time as f64),
            energy: Joules((time + self.below(12)) as f64),
            clock,
            temperature: None,
            noise: None,
        }
    }
}

const KILOWATT: Watts = Watts(1000.0);

/// A microbatch of up to four partitions and two other parts, with a few results at a few clocks.
fn instance(seed: u64) -> (Job, Results) {
    let mut draw = Draw(seed);
    let mut template = job(4, 2, false);
    let partitions = 1 + draw.below(4) as usize;
    let others = draw.below(3) as usize;
    template.partitions.truncate(partitions);
    let mut results = Results::new(KILOWATT);
    let clocks: Vec<Hertz> = (0..1 + draw.below(3))
        .map(|it| Hertz(1e9 + 3e7 * it as f64))
        .collect();
    for partition in &template.partitions {
        for &clock in &clocks {
            for number in 0..1 + draw.below(4) {
                let candidate = Candidate {
                    clock,
                    sms: 3 + 3 * number as u32,
                    launch: draw.below(2) as usize,
                };
                results.add_partition(&partition.name, candidate, draw.measured(clock));
            }
        }
    }
    for (place, sequence) in template.sequences.iter().enumerate() {
        for &clock in &clocks {
            // The sequential block is sometimes worth having.
            let mut measured = draw.measured(clock);
            let factor = if place < 2 { 2.0 } else { 1.0 };
            measured.time = measured.time * factor;
            measured.energy = measured.energy * factor;
            results.add_sequence(&sequence.name, clock, measured);
        }
    }
    let mut count = || 1 + draw.below(3) as u32;
    template.microbatches = vec![Microbatch {
        stage: 0,
        instruction: FORWARD,
        overlapped: (0..partitions).map(|it| (it, count())).collect(),
        sequential: vec![(0, 1), (1, 1)],
        others: (2..2 + others).map(|it| (it, count())).collect(),
    }];
    (template, results)
}

/// Algorithm 2 as it stands in the paper: every clock, the product of everything, sums.
fn enumerated(job: &Job, results: &Results) -> Vec<Point> {
    let of = &job.microbatches[0];
    let mut all = Vec::new();
    let block = &results.of_sequence(&job.sequences[0].name);
    for &(clock, _) in block.iter() {
        let sequence = |&(place, count): &(usize, u32)| {
            let name = &job.sequences[place].name;
            let (_, it) = results
                .of_sequence(name)
                .iter()
                .find(|it| it.0 == clock)
                .unwrap();
            [it.time.0 * f64::from(count), it.energy.0 * f64::from(count)]
        };
        let add = |a: Point, b: Point| [a[0] + b[0], a[1] + b[1]];
        let base = of.others.iter().map(sequence).fold([0.0; 2], add);
        all.push(of.sequential.iter().map(sequence).fold(base, add));
        let mut products = vec![base];
        for &(place, count) in &of.overlapped {
            let options: Vec<Point> = results
                .of_partition(&job.partitions[place].name)
                .iter()
                .filter(|(candidate, _)| candidate.clock == clock)
                .map(|(_, it)| [it.time.0 * f64::from(count), it.energy.0 * f64::from(count)])
                .collect();
            products = products
                .iter()
                .flat_map(|&sum| options.iter().map(move |&it| add(sum, it)))
                .collect();
        }
        all.extend(products);
    }
    all
}

#[test]
fn composition_equals_the_full_product_on_1000_instances() {
    let (mut overlapped, mut several) = (0, 0);
    for seed in 0..1000 {
        let (job, results) = instance(seed);
        let choices = microbatch(&job, &job.microbatches[0], &results, Method::KAREUS).unwrap();
        let all = enumerated(&job, &results);
        let dynamic: Vec<Point> = all
            .iter()
            .map(|&[time, energy]| [time, energy - time])
            .collect();
        let ours: Vec<Point> = choices.iter().map(|it| [it.time.0, it.dynamic.0]).collect();
        let theirs: Vec<Point> = frontier(&dynamic).iter().map(|&it| dynamic[it]).collect();
        assert_eq!(ours, theirs, "time and dynamic energy, seed {seed}");
        let total: Vec<Point> = choices.iter().map(|it| [it.time.0, it.energy.0]).collect();
        let ours: Vec<Point> = frontier(&total).iter().map(|&it| total[it]).collect();
        let theirs: Vec<Point> = frontier(&all).iter().map(|&it| all[it]).collect();
        assert_eq!(ours, theirs, "time and total energy, seed {seed}");
        for choice in &choices {
            assert_eq!(choice.time.0, sum_of(&job, &results, choice), "seed {seed}");
        }
        let overlaps = |it: &&Choice| it.execution != Execution::Sequential;
        overlapped += choices.iter().filter(overlaps).count();
        several += usize::from(choices.len() > 2);
    }
    assert!(overlapped > 500 && several > 300, "{overlapped} {several}");
}

/// The time of what a choice names, added up once more.
fn sum_of(job: &Job, results: &Results, choice: &Choice) -> f64 {
    let of = &job.microbatches[0];
    let sequence = |&(place, count): &(usize, u32)| {
        let all = results.of_sequence(&job.sequences[place].name);
        let (_, it) = all.iter().find(|it| it.0 == choice.clock).unwrap();
        it.time.0 * f64::from(count)
    };
    let others: f64 = of.others.iter().map(sequence).sum();
    match &choice.execution {
        Execution::Sequential => others + of.sequential.iter().map(sequence).sum::<f64>(),
        Execution::Overlapped(candidates) => {
            assert!(candidates.iter().all(|it| it.clock == choice.clock));
            let parts = of
                .overlapped
                .iter()
                .zip(candidates)
                .map(|(&(place, count), candidate)| {
                    // Random instances have the same candidate more than once: any of them may be meant.
                    let all = results.of_partition(&job.partitions[place].name);
                    let times = all
                        .iter()
                        .filter(|it| it.0 == *candidate)
                        .map(|it| it.1.time.0);
                    times.map(|it| it * f64::from(count)).next().unwrap()
                });
            others + parts.sum::<f64>()
        }
    }
}

fn planned(method: Method, results: &Results, job: &Job) -> Iteration {
    Iteration::new(
        job,
        results,
        method,
        Schedule::OneForwardOneBackward,
        Millis(1.0),
    )
    .unwrap()
}

/// The paper's baselines are special cases, so none of them beats the whole.
#[test]
fn special_cases_are_within_the_whole() {
    let job = job(8, 1, true);
    let results = exhaustive(&job, &mut Sketch { asked: 0 });
    let kareus = planned(Method::KAREUS, &results, &job);
    let perseus = planned(Method::MEGATRON_PERSEUS, &results, &job);
    let nano = planned(Method::nanobatching_perseus(24), &results, &job);
    let highest = Method {
        clocks: Clocks::Highest,
        ..Method::KAREUS
    };
    let highest = planned(highest, &results, &job);
    let megatron = planned(Method::MEGATRON, &results, &job);
    assert_eq!(megatron.points().count(), 1);
    for other in [&perseus, &nano, &highest, &megatron] {
        for (time, energy) in other.points() {
            let ours = kareus.within_time(time);
            let ours = ours.unwrap_or_else(|| panic!("Kareus has nothing within {time}"));
            let relaxed = kareus.points().filter(|it| it.0 <= time).map(|it| it.1.0);
            let least = relaxed.fold(f64::INFINITY, f64::min);
            assert!(least <= energy.0 * (1.0 + 1e-9), "{time}: {least} {energy}");
            assert!(ours.time <= time);
        }
    }
    // In the sketch overlap pays: faster than the sequential model.
    assert!(kareus.fastest().time < perseus.fastest().time);
    let plan = kareus.fastest();
    let overlapped = plan.operations.iter().filter(|&&(at, choice)| {
        kareus.microbatches()[at].1[choice].execution != Execution::Sequential
    });
    assert!(overlapped.count() > 0);
}

#[test]
fn a_plan_keeps_its_time_and_its_energy_adds_up() {
    let job = job(8, 1, true);
    let results = exhaustive(&job, &mut Sketch { asked: 0 });
    let iteration = planned(Method::KAREUS, &results, &job);
    let fastest = iteration.fastest();
    let cheapest = iteration.cheapest();
    assert!(fastest.time < cheapest.time && cheapest.energy < fastest.energy);
    for plan in [&fastest, &cheapest] {
        let choice = |&(at, choice): &(usize, usize)| &iteration.microbatches()[at].1[choice];
        let dynamic: f64 = plan
            .operations
            .iter()
            .map(choice)
            .map(|it| it.dynamic.0)
            .sum();
        let waiting = STATIC.0 * plan.time.0 * 1e-3 * f64::from(job.stages);
        assert!(
            (plan.energy.0 / (dynamic + waiting) - 1.0).abs() < 1e-9,
            "{plan:?}"
        );
        // 8 microbatches forward and backward, on each of 2 stages.
        assert_eq!(plan.operations.len(), 8 * 2 * 2);
    }
    let middle = Millis(0.5 * (fastest.time.0 + cheapest.time.0));
    let within = iteration.within_time(middle).unwrap();
    assert!(within.time <= middle && within.energy < fastest.energy);
    assert!(iteration.within_time(Millis(1.0)).is_none());
    let budget = iteration.within_energy(within.energy).unwrap();
    assert!(budget.energy <= within.energy && budget.time <= within.time);
    let tight = Joules(1.01 * cheapest.energy.0);
    let plan = iteration.within_energy(tight).unwrap();
    assert!(plan.energy <= tight && plan.time < cheapest.time);
    assert!(iteration.within_energy(Joules(1.0)).is_none());
}

/// Between measured points the frontier is a line, so a plan has time left over; it is given back.
#[test]
fn no_operation_of_a_plan_could_be_slower() {
    let job = job(8, 1, true);
    let iteration = planned(
        Method::KAREUS,
        &exhaustive(&job, &mut Sketch { asked: 0 }),
        &job,
    );
    let graph = iteration.pipeline().problem().graph();
    let frontier = iteration.pipeline().frontier();
    let mut cheaper = 0;
    for step in 0..8 {
        let time = litd_profiles::Units(
            frontier.shortest().0 + step * (frontier.longest().0 - frontier.shortest().0) / 8,
        );
        let (plan, without) = (iteration.plan(time), iteration.pipeline().plan(time, None));
        assert!(
            plan.time <= without.realised + Millis(1e-6)
                && plan.energy.0 <= without.energy.0 + 1e-6
        );
        cheaper += usize::from(plan.energy.0 < 0.9999 * without.energy.0);
        let choices = |it: usize| &iteration.microbatches()[plan.operations[it].0].1;
        let nanos = |it: usize, more: usize| {
            let choice = (plan.operations[it].1 + more).min(choices(it).len() - 1);
            choices(it)[choice].time.to_nanos().0.unsigned_abs()
        };
        let end = graph.earliest(|it| nanos(it, 0))[1];
        for slower in 0..plan.operations.len() {
            let last = plan.operations[slower].1 + 1 == choices(slower).len();
            let longer = graph.earliest(|it| nanos(it, usize::from(it == slower)))[1];
            assert!(
                last || longer > end,
                "operation {slower} at {time}: {longer} {end}"
            );
        }
    }
    assert!(cheaper > 0);
}

/// On a small pipeline, no way to choose measured microbatches beats the frontier, which is a relaxation.
#[test]
fn no_choice_of_microbatches_beats_the_frontier() {
    let mut training = training(8, 1, 2, false);
    training.microbatches = 2;
    let job = Job::new(&Workload::new(llama_3b(), training).unwrap()).unwrap();
    let results = exhaustive(&job, &mut Sketch { asked: 0 });
    let iteration = planned(Method::KAREUS, &results, &job);
    let graph = iteration.pipeline().problem().graph().clone();
    let points: Vec<(Millis, Joules)> = iteration.points().collect();
    let mut draw = Draw(7);
    for _ in 0..2000 {
        let chosen: Vec<&Choice> = (0..graph.operations().len())
            .map(|operation| {
                let kind = graph.kind(operation);
                let own = |it: &&(Microbatch, Vec<Choice>)| {
                    it.0.stage == kind.stage && it.0.instruction == kind.instruction
                };
                let choices = &iteration.microbatches().iter().find(own).unwrap().1;
                &choices[draw.below(choices.len() as u64) as usize]
            })
            .collect();
        let times = graph.earliest(|it| chosen[it].time.0.ceil() as u64);
        let time = times[1] as f64;
        let units: f64 = chosen
            .iter()
            .map(|it| it.energy.0 - STATIC.0 * it.time.0.ceil() * 1e-3)
            .sum();
        let energy = units + 2.0 * STATIC.0 * time * 1e-3;
        let in_time = points.iter().filter(|it| it.0.0 <= time + 1e-6);
        let least = in_time.map(|it| it.1.0 + 2.0 * STATIC.0 * (time - it.0.0) * 1e-3);
        let least = least.fold(f64::INFINITY, f64::min);
        assert!(least <= energy * (1.0 + 1e-9), "{time}: {least} {energy}");
    }
}

#[test]
fn what_is_missing_is_named() {
    let job = job(8, 1, true);
    let complete = exhaustive(&job, &mut Sketch { asked: 0 });
    let overlapped = Method {
        sequential: false,
        ..Method::KAREUS
    };
    let without = |partition: &str, sequence: &str, shift: f64| {
        let mut results = Results::new(STATIC);
        for it in job.partitions.iter().filter(|it| it.name != partition) {
            for &(candidate, measured) in complete.of_partition(&it.name) {
                results.add_partition(&it.name, candidate, measured);
            }
        }
        for it in job.sequences.iter().filter(|it| it.name != sequence) {
            for &(clock, measured) in complete.of_sequence(&it.name) {
                results.add_sequence(&it.name, Hertz(clock.0 + shift), measured);
            }
        }
        results
    };
    let new = |results: &Results, method| {
        Iteration::new(
            &job,
            results,
            method,
            Schedule::OneForwardOneBackward,
            Millis(1.0),
        )
    };
    let error = |results: &Results, method| new(results, method).unwrap_err().to_string();
    let message = error(&without("backward/mlp", "", 0.0), overlapped);
    assert_eq!(
        message,
        "backward of stage 0: there is no result for backward/mlp, of which it consists"
    );
    let message = error(&without("", "forward/output", 0.0), Method::KAREUS);
    assert!(
        message.starts_with("forward of stage 1: there is no result for forward/output"),
        "{message}"
    );
    let message = error(&without("", "", 1e6), overlapped);
    assert!(
        message.contains("forward/mlp has 900 to 1410 MHz, forward/embedding has 901 to 1411 MHz"),
        "{message}"
    );
    // A partition without results is no candidate as long as the sequential model has some.
    let partial = without("backward/mlp", "", 0.0);
    let iteration = new(&partial, Method::KAREUS).unwrap();
    let backward = iteration
        .microbatches()
        .iter()
        .find(|it| it.0.instruction == BACKWARD)
        .unwrap();
    assert!(
        backward
            .1
            .iter()
            .all(|it| it.execution == Execution::Sequential)
    );
    let none = Method {
        sequential: false,
        overlapped: Overlapped::None,
        clocks: Clocks::All,
    };
    let message = error(&complete, none);
    assert!(
        message.contains("any execution that the method allows"),
        "{message}"
    );
    let mut dear = Results::new(Watts(1e6));
    for it in &job.sequences {
        for &(clock, measured) in complete.of_sequence(&it.name) {
            dear.add_sequence(&it.name, clock, measured);
        }
    }
    let failed = new(&dear, Method::KAREUS).unwrap_err();
    assert!(
        matches!(
            failed,
            IterationError::Compose(ComposeError::Negative { .. })
        ),
        "{failed}"
    );
}

/// The artifact's files say total = cost + stages x time x P2P power; so do ours.
#[test]
fn the_artifacts_points_are_what_their_format_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/planner/kareus-artifact/frontier_points.csv");
    let Ok(text) = fs::read_to_string(&path) else {
        eprintln!("skipped: {} is absent", path.display());
        return;
    };
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| header.iter().position(|it| *it == name).unwrap();
    let columns = [
        "total_cost_effective_J",
        "num_stages",
        "iteration_time_s",
        "p2p_w",
        "total_cost_with_p2p_J",
    ]
    .map(column);
    let mut rows = 0;
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let [cost, stages, time, power, total] =
            columns.map(|it| fields[it].parse::<f64>().unwrap());
        assert!(
            (cost + stages * time * power - total).abs() < 1e-9 * total,
            "{line}"
        );
        rows += 1;
    }
    assert_eq!(rows, 245);
    let job = job(8, 1, true);
    let iteration = planned(
        Method::KAREUS,
        &exhaustive(&job, &mut Sketch { asked: 0 }),
        &job,
    );
    for (point, (time, energy)) in iteration
        .pipeline()
        .frontier()
        .points()
        .zip(iteration.points())
    {
        let total = point.cost.0 + 2.0 * time.0 * 1e-3 * STATIC.0;
        assert!((total - energy.0).abs() < 1e-9 * total);
    }
}

/// A search finds nearly the frontier that profiling everything gives, with a part of the measurements.
#[test]
fn a_searched_job_plans_nearly_as_a_profiled_one() {
    let job = job(8, 1, true);
    let whole = planned(
        Method::KAREUS,
        &exhaustive(&job, &mut Sketch { asked: 0 }),
        &job,
    );
    let mut sketch = Sketch { asked: 0 };
    let mut results = Results::new(STATIC);
    let space = |it: &Partition| Space::searched(&A100, it).candidates().collect();
    let mut told = 0;
    let searches = explore(&job, &mut sketch, space, 1, &mut results, |_, most| {
        told += 1;
        assert_eq!(most, 224);
    });
    let searches = searches.unwrap();
    assert_eq!((told, searches.len()), (sketch.asked, 4));
    assert!(sketch.asked <= 4 * 224);
    profile_sequences(&job, &mut sketch, &A100.clocks(2), &mut results).unwrap();
    let searched = planned(Method::KAREUS, &results, &job);
    let least = |it: &Iteration| it.points().map(|it| it.1.0).fold(f64::INFINITY, f64::min);
    let slower = searched.fastest().time / whole.fastest().time;
    let dearer = least(&searched) / least(&whole);
    assert!(
        (1.0..1.02).contains(&slower) && (1.0..1.02).contains(&dearer),
        "{slower} {dearer}"
    );
}
