//! How long a schedule takes: 120 hours in a second or less, a month in ten seconds and 500 MiB or less.
//! The problems are synthetic; each limit is printed as a share of itself, the worst of all problems. "Hard" is
//! half-hours, a signal that hardly varies, and switches that take as long as a window; "level" is worse: hardly anything
//! matters but how windows add up, and no proof comes to an end.

#![allow(clippy::unwrap_used, reason = "in benches a panic is the report")]

#[path = "../tests/carbon/common/mod.rs"]
mod common;
#[path = "../../../tests/benches/common/measured.rs"]
mod measured;

use std::fs;
use std::time::Instant;

use common::{daily, hard, level, split};
use litd_carbon::Start;
use litd_carbon::solve::{Effort, solve};
use measured::{Nothing, Samples, amount};

fn main() -> Result<(), Nothing> {
    let many =
        |number: u64, hours, start| (0..number).map(move |seed| daily(seed, 10, hours, start));
    let anytime = Start::Within(usize::MAX);
    measure("120 h, fixed start", 1.0, many(24, 120, Start::Within(0)))?;
    measure("120 h, any start", 1.0, many(24, 120, anytime))?;
    measure("168 h, any start", 10.0, many(12, 168, anytime))?;
    measure("744 h, fixed start", 10.0, many(8, 744, Start::Within(0)))?;
    measure("744 h, any start", 10.0, many(8, 744, anytime))?;
    let hardest = |number: u64, hours, start| (0..number).map(move |seed| hard(seed, hours, start));
    measure("120 h, hard", 1.0, hardest(8, 120, Start::Within(0)))?;
    measure("168 h, hard", 10.0, hardest(8, 168, Start::Within(0)))?;
    let even = |number: u64, start| (0..number).map(move |seed| level(seed, 120, start));
    measure("120 h, level, fixed start", 1.0, even(4, Start::Within(0)))?;
    measure("120 h, level, any start", 1.0, even(4, anytime))?;
    measure("744 h, hard", 10.0, hardest(4, 744, Start::Within(0)))?;
    measure("744 h, hard, any start", 10.0, hardest(4, 744, anytime))?;
    let fine = |number: u64, start| many(number, 744, start).map(|it| split(&it, 12));
    measure(
        "744 h of 5 min, fixed start",
        10.0,
        fine(4, Start::Within(0)),
    )?;
    measure("744 h of 5 min, any start", 10.0, fine(4, anytime))?;
    let hardest = hardest(4, 744, anytime).map(|it| split(&it, 6));
    measure("744 h of 5 min, hard", 10.0, hardest)?;
    let peak = amount("the peak memory", peak())?;
    println!("peak memory {peak:.0} MiB: {:.2} of 500 MiB", peak / 500.0);
    Ok(())
}

fn measure(
    name: &str,
    limit: f64,
    problems: impl Iterator<Item = litd_carbon::Problem>,
) -> Result<(), Nothing> {
    let (mut times, mut gap, mut proven) = (Vec::new(), 0.0_f64, 0);
    for problem in problems {
        let began = Instant::now();
        let effort = Effort::for_hours(problem.job().deadline().hours());
        let solution = solve(&problem, effort).unwrap();
        times.push(began.elapsed().as_secs_f64());
        gap = gap.max(solution.gap());
        proven += u32::from(solution.optimal);
    }
    let times = Samples::new(name, 4, times)?;
    let (slowest, count) = (times.percentile(100), times.count());
    println!(
        "{name:<27} slowest {slowest:7.3} s: {:.3} of {limit} s; {proven} of {count} proven optimal, largest gap {:.5} %",
        slowest / limit,
        gap * 100.0
    );
    Ok(())
}

/// The most memory that the process had, in MiB.
fn peak() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kibibytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kibibytes / 1024.0
}
