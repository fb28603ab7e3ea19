//! The optimum against two solvers of mixed-integer programmes, which know the problem as equations 1 to 4.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{cases, daily};
use crate::scipy;
use litd_carbon::solve::{Effort, solve};
use litd_carbon::{Job, Problem, Start};
use litd_units::Seconds;
use microlp::{ComparisonOp, OptimizationDirection};
use serde_json::{Value, json};

/// By window and configuration, what is emitted.
fn grams(problem: &Problem) -> Vec<Vec<f64>> {
    let job = problem.job();
    let windows = problem.intensities().iter().map(|intensity| {
        let each = job.points().iter();
        each.map(|it| (it.power * job.window() * *intensity).0)
            .collect()
    });
    windows.collect()
}

/// By configuration, what a window trains of all tokens.
fn shares(problem: &Problem) -> Vec<f64> {
    let job = problem.job();
    let each = job.points().iter();
    each.map(|it| it.rate * job.window() / job.tokens())
        .collect()
}

/// The least carbon of a job that begins at once: x[t][c] is 1 where c runs in window t, y[t] where t has
/// another configuration than the window before.
fn milp(problem: &Problem) -> f64 {
    let job = problem.job();
    let mut programme = microlp::Problem::new(OptimizationDirection::Minimize);
    let grams = grams(problem);
    let windows = problem.intensities().len();
    let all = 0..job.points().len();
    let x: Vec<Vec<_>> = (0..windows)
        .map(|window| {
            let each = grams[window].iter();
            each.map(|grams| programme.add_binary_var(*grams)).collect()
        })
        .collect();
    let y: Vec<_> = (0..windows)
        .map(|_| programme.add_binary_var(0.0))
        .collect();
    // Tokens in shares of the budget, equation 2; time in windows, equation 3.
    let shares = shares(problem);
    let tokens = x
        .iter()
        .flat_map(|of| all.clone().map(|own| (of[own], shares[own])));
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

/// The same problem, with switches that matter.
fn with_switch(problem: &Problem, switch: Seconds) -> Problem {
    let job = problem.job();
    let (points, window, start) = (job.points(), job.window(), job.start());
    let job = Job::new(points, window, job.tokens(), job.deadline(), switch, start);
    Problem::new(job.unwrap(), problem.intensities()).unwrap()
}

#[test]
fn fifty_problems_have_the_optimum_of_a_mixed_integer_solver() {
    for seed in 0..50_u64 {
        let hours = 10 + (seed % 5) as usize;
        let problem = daily(seed, 3 + (seed % 3) as usize, hours, Start::Within(0));
        let switch = Seconds([0.0, 300.0, 900.0, 1700.0][seed as usize % 4]);
        let problem = with_switch(&problem, switch);
        let found = solve(&problem, Effort::EXACT).unwrap();
        let expected = milp(&problem);
        let off = (found.carbon.0 - expected).abs() / expected;
        assert!(found.optimal, "seed {seed}");
        assert!(off < 1e-6, "seed {seed}: {expected}, {}", found.carbon);
    }
}

/// The best plans and the bounds that HiGHS finds for these problems.
fn highs(python: &Path, problems: &[Problem]) -> Vec<[f64; 2]> {
    let told = problems.iter().map(|problem| {
        let job = problem.job();
        json!({
            "grams": grams(problem),
            "shares": shares(problem),
            "switch": job.switch() / job.window(),
            "deadline": job.deadline() / job.window(),
            "may_wait": job.latest_start() > 0,
        })
    });
    let told = Value::from(told.collect::<Vec<_>>());
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("highs.json");
    std::fs::write(&file, told.to_string()).unwrap();
    let mut command = Command::new(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/highs.py"));
    command.stdin(std::fs::File::open(&file).unwrap());
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Ten configurations over a day or two, from now or from any hour on.
#[test]
fn days_have_the_optimum_that_highs_finds() {
    let Some(python) = scipy::python("schedules by HiGHS") else {
        return;
    };
    let problems = (0..cases(3, 50)).map(|seed| {
        let hours = [24, 24, 30, 48][seed as usize % 4];
        let start = [Start::Within(0), Start::Within(usize::MAX)][seed as usize % 2];
        let problem = daily(seed + 500, 10, hours, start);
        let switch = Seconds([0.0, 60.0, 600.0, 1800.0][seed as usize % 4]);
        with_switch(&problem, switch)
    });
    let problems: Vec<Problem> = problems.collect();
    let optima = highs(&python, &problems);
    assert_eq!(optima.len(), problems.len());
    for (seed, (problem, [least, bound])) in problems.iter().zip(optima).enumerate() {
        let found = solve(problem, Effort::EXACT).unwrap();
        assert!(found.optimal, "seed {seed}");
        // Where HiGHS had not enough time, its plan is no better and its bound no higher.
        let carbon = found.carbon.0;
        assert!(
            carbon <= least * (1.0 + 1e-6),
            "seed {seed}: {least}, {carbon}"
        );
        assert!(
            carbon >= bound * (1.0 - 1e-6),
            "seed {seed}: {bound}, {carbon}"
        );
    }
}
