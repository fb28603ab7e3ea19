//! The optimum against trying everything.

use crate::common::{cases, daily, hard, small};
use litd_carbon::solve::{Effort, solve};
use litd_carbon::{Job, JobError, Plan, Problem, Start, policy};
use litd_units::Seconds;

/// The least carbon of all plans, by trying each. Written from equations 1 to 4 alone.
struct Everything<'a> {
    problem: &'a Problem,
    least: Option<f64>,
}

impl Everything<'_> {
    fn of(problem: &Problem) -> Option<f64> {
        let mut everything = Everything {
            problem,
            least: None,
        };
        let job = problem.job();
        let (latest, running) = match job.start() {
            Start::Within(latest) => (latest, None),
            Start::Running(now) => (0, Some(now)),
        };
        for start in 0..=latest.min(problem.intensities().len()) {
            everything.extend(start, running, 0, 0.0, 0.0);
        }
        everything.least
    }

    fn extend(&mut self, window: usize, before: Option<usize>, m: usize, tokens: f64, carbon: f64) {
        let job = self.problem.job();
        let hours = job.window().0 / 3600.0;
        let completion = window as f64 * hours + m as f64 * job.switch().0 / 3600.0;
        if completion > job.deadline().0 / 3600.0 + 1e-9 {
            return;
        }
        if tokens >= job.tokens().0 * (1.0 - 1e-12) {
            let least = self.least.unwrap_or(f64::INFINITY);
            self.least = Some(least.min(carbon));
            return;
        }
        let Some(intensity) = self.problem.intensities().get(window) else {
            return;
        };
        for (choice, point) in job.points().iter().enumerate() {
            let is_switch = before.is_some_and(|it| it != choice);
            let trained = point.rate.0 * job.window().0;
            let emitted = point.power.0 / 1000.0 * hours * intensity.0;
            self.extend(
                window + 1,
                Some(choice),
                m + usize::from(is_switch),
                tokens + trained,
                carbon + emitted,
            );
        }
    }
}

#[track_caller]
fn agree(seed: u64, problem: &Problem) -> bool {
    let expected = Everything::of(problem);
    let found = solve(problem, Effort::EXACT);
    let (Some(expected), Ok(found)) = (expected, &found) else {
        assert!(
            expected.is_none() && found.is_err(),
            "seed {seed}: {expected:?}, {found:?}"
        );
        return false;
    };
    let off = (found.carbon.0 - expected).abs();
    assert!(off <= 1e-9 * expected, "seed {seed}: {expected}, {found:?}");
    assert!(found.optimal, "seed {seed}: {found:?}");
    assert_eq!(found.bound, found.carbon);
    found.plan.check(problem).unwrap();
    true
}

#[test]
fn a_thousand_small_problems_have_the_optimum_that_trying_everything_finds() {
    let count = cases(1200, 20_000);
    let feasible = (0..count).filter(|&seed| agree(seed, &small(seed))).count() as u64;
    assert!(feasible >= count / 2, "only {feasible} are feasible");
    assert!(
        feasible <= count * 23 / 24,
        "{feasible} are feasible: none tests that others are not"
    );
}

/// Best static is the least of the plans of one configuration, and never below the optimum.
#[test]
fn policies_keep_the_rules_and_none_beats_the_optimum() {
    for seed in 0..400 {
        let problem = small(seed);
        let optimum = solve(&problem, Effort::EXACT);
        if matches!(problem.job().start(), Start::Running(_)) {
            continue;
        }
        let greedy = policy::greedy(&problem, &[], problem.intensities());
        let Ok(optimum) = optimum else {
            assert!(policy::best_static(&problem).is_err(), "seed {seed}");
            assert!(greedy.is_err(), "seed {seed}");
            continue;
        };
        let fixed = policy::best_static(&problem).unwrap();
        fixed.plan.check(&problem).unwrap();
        assert_eq!(fixed.plan.switches(problem.job().start()), 0);
        assert!(fixed.carbon >= optimum.carbon * (1.0 - 1e-9), "seed {seed}");
        let greedy = greedy.unwrap();
        greedy
            .check(&problem)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(
            greedy.carbon(&problem) >= optimum.carbon * (1.0 - 1e-9),
            "seed {seed}"
        );
    }
}

/// More freedom never emits more; each answer keeps the rules.
#[test]
fn a_day_or_five_are_solved_and_proven() {
    for seed in 0..40 {
        let hours = [24, 48, 120][seed as usize % 3];
        let carbon = [
            Start::Within(0),
            Start::Within(12),
            Start::Within(usize::MAX),
        ]
        .map(|start| {
            let problem = daily(seed, 10, hours, start);
            let found = solve(&problem, Effort::EXACT).unwrap();
            assert!(found.optimal, "seed {seed}: {}", found.gap());
            found.plan.check(&problem).unwrap();
            found.carbon.0
        });
        assert!(
            carbon[0] >= carbon[1] * (1.0 - 1e-9),
            "seed {seed}: {carbon:?}"
        );
        assert!(
            carbon[1] >= carbon[2] * (1.0 - 1e-9),
            "seed {seed}: {carbon:?}"
        );
    }
}

/// Months of half-hours and of nearly equal energies, which can't always be proven: the bound is near all the same.
/// `LITD_HARD_MONTHS` says how many; each is printed with its bound.
#[test]
fn hard_months_are_proven_within_a_thousandth() {
    let count = std::env::var("LITD_HARD_MONTHS").ok();
    let count = count.map_or(1, |it| it.parse().unwrap());
    for seed in 100..100 + count {
        let problem = hard(seed, 744, Start::Within(0));
        let found = solve(&problem, Effort::for_hours(744.0)).unwrap();
        found.plan.check(&problem).unwrap();
        let (carbon, bound, gap) = (found.carbon.0, found.bound.0, found.gap());
        println!(
            "seed {seed}: {carbon:.0} g, none is below {bound:.0} g: {:.5} %",
            gap * 100.0
        );
        assert!(gap <= 1e-3, "seed {seed}: {gap}");
    }
}

/// A search without room does not claim the best plan, and still has a valid bound.
#[test]
fn a_bound_that_is_no_optimum_lies_below_it() {
    for seed in 0..40 {
        let problem = daily(seed, 10, 48, Start::Within(usize::MAX));
        let exact = solve(&problem, Effort::EXACT).unwrap();
        let quick = solve(&problem, Effort::QUICK).unwrap();
        assert!(quick.bound <= exact.carbon * (1.0 + 1e-9), "seed {seed}");
        assert!(quick.carbon >= exact.carbon * (1.0 - 1e-9), "seed {seed}");
        let over = quick.carbon / exact.carbon - 1.0;
        assert!(over < 1e-3, "seed {seed}: {over}");
    }
}

/// More windows than can be planned in a time that anyone waits are refused.
#[test]
fn a_plan_of_very_many_windows_is_refused() {
    let problem = daily(7, 10, 48, Start::Within(0));
    let job = problem.job();
    let with = |window| {
        let (points, deadline) = (job.points(), job.deadline());
        let window = Seconds(window);
        Job::new(
            points,
            window,
            job.tokens(),
            deadline,
            job.switch(),
            job.start(),
        )
    };
    assert!(with(60.0).is_ok());
    assert!(matches!(
        with(10.0),
        Err(JobError::Windows {
            needed: 17_280,
            most: 10_000
        })
    ));
}

/// A flat signal leaves no reason to change, but plenty of equal plans.
#[test]
fn a_flat_signal_is_solved_as_well() {
    for seed in 0..10 {
        let problem = daily(seed, 10, 96, Start::Within(usize::MAX));
        let flat = vec![litd_units::Intensity(300.0); problem.intensities().len()];
        let problem = Problem::new(problem.job().clone(), &flat).unwrap();
        let found = solve(&problem, Effort::EXACT).unwrap();
        assert!(found.optimal, "seed {seed}: {}", found.gap());
        let none = vec![litd_units::Intensity(0.0); flat.len()];
        let problem = Problem::new(problem.job().clone(), &none).unwrap();
        let found = solve(&problem, Effort::EXACT).unwrap();
        assert!(found.optimal && found.carbon.0 == 0.0);
    }
}

#[test]
fn a_first_start_is_no_switch_and_waiting_counts_against_the_deadline() {
    let problem = daily(3, 4, 24, Start::Within(4));
    let plan = Plan {
        start: 2,
        choices: vec![0, 0, 1, 0],
    };
    assert_eq!(plan.switches(Start::Within(4)), 2);
    assert_eq!(plan.switches(Start::Running(1)), 3);
    let k = problem.job().switch().0;
    let completion = plan.completion(&problem).0;
    assert!((completion - 6.0 * 3600.0 - 2.0 * k).abs() < 1e-9);
}
