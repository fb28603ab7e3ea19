//! Plans: what clocks do with the frontier's times, and which plan suits which straggler.

use litd_planner::{Job, Pipeline, Scale, Schedule};
use litd_profiles::{Pricing, Spec, Units, synthetic};
use litd_units::Millis;

fn spec() -> Spec {
    synthetic::profile(4, 5)
        .price(&Pricing::default())
        .unwrap()
        .0
}

fn job() -> Job {
    let graph = Schedule::OneForwardOneBackward.graph(4, 8).unwrap();
    let Pricing { unit, blocking, .. } = Pricing::default();
    let scale = Scale {
        unit,
        blocking,
        gpus: 4,
    };
    Pipeline::new(graph, &spec(), scale)
        .unwrap()
        .characterise(|_, _| {})
}

#[test]
fn clocks_are_the_slowest_that_are_no_slower_than_planned() {
    let (job, spec) = (job(), spec());
    let graph = job.problem().graph();
    for point in job.frontier().points().step_by(50) {
        let plan = job.plan(point.time, None);
        for (number, planned) in plan.operations.iter().enumerate() {
            let in_time = job.millis(planned.time) + Millis(1e-6);
            assert!(planned.realised <= in_time, "{planned:?}");
            let options = spec
                .entry(graph.kind(number))
                .unwrap()
                .options
                .clone()
                .unwrap();
            let slower = options
                .iter()
                .filter(|option| option.clock < planned.clock.unwrap());
            assert!(
                slower.into_iter().all(|option| option.measured > in_time),
                "{planned:?}"
            );
        }
        // A time that was rounded up can be kept, and is kept closely.
        let promised = job.millis(point.time);
        assert!(
            plan.realised <= promised && plan.realised > promised * 0.97,
            "{point:?}"
        );
    }
}

#[test]
fn a_plan_takes_as_long_as_the_straggler_up_to_the_longest_sensible_time() {
    let job = job();
    let (shortest, longest) = (job.frontier().shortest(), job.frontier().longest());
    assert_eq!(job.lookup(None).time, shortest);
    assert_eq!(job.lookup(Some(Millis(1.0))).time, shortest);
    let between = Units(u32::midpoint(shortest.0, longest.0));
    assert_eq!(job.lookup(Some(job.millis(between))).time, between);
    assert_eq!(
        job.lookup(Some(job.millis(between) + Millis(0.9))).time,
        between
    );
    assert_eq!(job.lookup(Some(Millis(1e12))).time, longest);
}

#[test]
fn every_plan_saves_energy_and_a_straggler_makes_it_save_more() {
    let job = job();
    let mut before = 0.0;
    let full_speed = job.full_speed(None).realised;
    for degree in [1.0, 1.05, 1.1, 1.2, 1.4] {
        let straggler = Some(full_speed * degree);
        let (plan, full) = (job.lookup(straggler), job.full_speed(straggler));
        let saved = full.energy.0 - plan.energy.0;
        assert!(saved > before, "{degree}: {saved} J, after {before} J");
        before = saved;
    }
}

#[test]
fn points_beyond_the_cheapest_pay_only_for_a_straggler() {
    let job = job();
    let cheapest = job.cheapest_alone();
    let ends = [job.frontier().shortest(), job.frontier().longest()];
    assert!(ends[0] < cheapest && cheapest < ends[1]);
    let energy = |time: Units| job.alone(job.frontier().at(time)).0;
    for point in job.frontier().points() {
        assert!(energy(point.time) >= energy(cheapest));
        let marked = job.plan(point.time, None).pays_only_for_straggler;
        assert_eq!(marked, point.time > cheapest);
    }
}

/// The clock without a plan is the fastest one, however coarse the units are in which the plan is made.
#[test]
fn the_full_clock_is_the_same_in_every_unit() {
    let full = |unit: f64| {
        let pricing = Pricing {
            unit: Millis(unit),
            ..Pricing::default()
        };
        let (spec, _) = synthetic::profile(4, 5).price(&pricing).unwrap();
        let graph = Schedule::OneForwardOneBackward.graph(4, 8).unwrap();
        let scale = Scale {
            unit: pricing.unit,
            blocking: pricing.blocking,
            gpus: 4,
        };
        let job = Pipeline::new(graph, &spec, scale).unwrap();
        job.characterise(|_, _| {}).full_speed(None)
    };
    let fine = full(0.1);
    for unit in [1.0, 7.0, 20.0] {
        let coarse = full(unit);
        assert!(
            (coarse.realised / fine.realised - 1.0).abs() < 1e-9,
            "{unit}"
        );
        assert!((coarse.energy / fine.energy - 1.0).abs() < 1e-9, "{unit}");
    }
    let clocks = fine.operations.iter().map(|planned| planned.clock);
    assert!(clocks.flatten().all(|clock| clock.0 == 1410e6));
}
