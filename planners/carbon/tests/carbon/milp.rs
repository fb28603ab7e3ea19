//! The optimum against a solver of mixed-integer programmes, which knows the problem as equations 1 to 4.

use crate::common::daily;
use litd_carbon::solve::{Effort, solve};
use litd_carbon::{Job, Problem, Start};
use litd_units::Seconds;
use microlp::{ComparisonOp, OptimizationDirection};

/// The least carbon of a job that begins at once: x[t][c] is 1 where c runs in window t, y[t] where t has
/// another configuration than the window before.
fn milp(problem: &Problem) -> f64 {
    let job = problem.job();
    let mut programme = microlp::Problem::new(OptimizationDirection::Minimize);
    let grams = |window: usize, own: usize| {
        let energy = job.points()[own].power * job.window();
        (energy * problem.intensities()[window]).0
    };
    let windows = problem.intensities().len();
    let all = 0..job.points().len();
    let x: Vec<Vec<_>> = (0..windows)
        .map(|window| {
            let each = all.clone().map(|own| grams(window, own));
            each.map(|grams| programme.add_binary_var(grams)).collect()
        })
        .collect();
    let y: Vec<_> = (0..windows)
        .map(|_| programme.add_binary_var(0.0))
        .collect();
    // Tokens in shares of the budget, equation 2; time in windows, equation 3.
    let share = |own: usize| job.points()[own].rate * job.window() / job.tokens();
    let tokens = x
        .iter()
        .flat_map(|of| all.clone().map(|own| (of[own], share(own))));
    programme.add_constraint(tokens, ComparisonOp::Ge, 1.0);
    let active = x.iter().flatten().map(|&it| (it, 1.0));
    let switches = y.iter().map(|&it| (it, job.switch() / job.window()));
    let time = active.chain(switches);
    programme.add_constraint(time, ComparisonOp::Le, job.deadline() / job.window());
    for window in 0..windows {
        let each = x[window].iter().map(|&it| (it, 1.0));
        programme.add_constraint(each, ComparisonOp::Le, 1.0);
        if window == 0 {
            continue;
        }
        // No pause.
        let now = x[window].iter().map(|&it| (it, -1.0));
        let before = x[window - 1].iter().map(|&it| (it, 1.0));
        programme.add_constraint(before.chain(now), ComparisonOp::Ge, 0.0);
        for own in all.clone() {
            let change = [
                (x[window][own], -1.0),
                (x[window - 1][own], 1.0),
                (y[window], 1.0),
            ];
            programme.add_constraint(change, ComparisonOp::Ge, 0.0);
        }
    }
    let solution = programme.solve().unwrap().into_solution().unwrap();
    solution.objective()
}

#[test]
fn fifty_problems_have_the_optimum_of_a_mixed_integer_solver() {
    for seed in 0..50_u64 {
        let hours = 10 + (seed % 5) as usize;
        let problem = daily(seed, 3 + (seed % 3) as usize, hours, Start::Within(0));
        // Switches that matter.
        let job = problem.job();
        let switch = Seconds([0.0, 300.0, 900.0, 1700.0][seed as usize % 4]);
        let job = Job::new(
            job.points(),
            job.window(),
            job.tokens(),
            job.deadline(),
            switch,
            job.start(),
        );
        let problem = Problem::new(job.unwrap(), problem.intensities()).unwrap();
        let found = solve(&problem, Effort::EXACT).unwrap();
        let expected = milp(&problem);
        let off = (found.carbon.0 - expected).abs() / expected;
        assert!(found.optimal, "seed {seed}");
        assert!(off < 1e-6, "seed {seed}: {expected}, {}", found.carbon);
    }
}
