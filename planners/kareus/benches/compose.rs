//! Composition and iteration frontier of the paper's emulation: Llama 3.3 70B on 10 stages of 8 GPUs, 16
//! microbatches, every candidate of every partition with a result. The limit is 10 s. The largest, 128
//! microbatches, is measured too.

#![allow(clippy::unwrap_used, reason = "in benches a panic is the report")]

#[path = "../tests/kareus/common/mod.rs"]
mod common;
#[path = "../../../tests/benches/common/measured.rs"]
mod measured;

use std::time::Instant;

use common::{Sketch, exhaustive, llama_70b, training};
use litd_kareus::{Iteration, Job, Method, Workload};
use litd_planner::Schedule;
use litd_units::Millis;
use measured::{Nothing, Samples, nothing};

const LIMIT: f64 = 10.0;

fn main() -> Result<(), Nothing> {
    for (microbatches, repeats) in [(16, 5), (128, 1)] {
        let mut training = training(8, 1, 10, true);
        training.microbatch = 4;
        training.microbatches = microbatches;
        let job = Job::new(&Workload::new(llama_70b(), training).unwrap()).unwrap();
        let results = exhaustive(&job, &mut Sketch { asked: 0 });
        let (mut times, mut points) = (Vec::new(), 0);
        for _ in 0..repeats {
            let began = Instant::now();
            let schedule = Schedule::OneForwardOneBackward;
            let iteration =
                Iteration::new(&job, &results, Method::KAREUS, schedule, Millis(1.0)).unwrap();
            times.push(began.elapsed().as_secs_f64());
            points = iteration.points().count();
        }
        if points < 100 {
            return Err(nothing("a frontier", format!("it has {points} points")));
        }
        let times = Samples::new("an iteration frontier", repeats, times)?;
        let slowest = times.percentile(100);
        println!(
            "10 stages, {microbatches:>3} microbatches, {points} points: slowest of {repeats} {slowest:.3} s: {:.4} of 10 s",
            slowest / LIMIT
        );
    }
    Ok(())
}
