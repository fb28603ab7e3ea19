//! How many iterations of each workload a core runs in a second on nodes of eight GPUs, against the
//! 2,000 that a study over 10,000 draws needs; and how long an optimum takes. Run with
//! `cargo bench -p litd-plants`.

#[path = "../../../tests/benches/common/measured.rs"]
mod measured;

use std::hint::black_box;
use std::time::Instant;

use litd_plants::{Draw, Kind, Plant, Policy, WorkloadKind};
use measured::{Samples, amount};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const LIMIT: f64 = 2_000.0;
const ITERATIONS: u32 = 1_000;
const RUNS: usize = 5;
const DRAWS: u64 = 30;

fn main() -> Outcome<()> {
    for workload in WorkloadKind::TRAINING {
        let mut node = Draw::of(1, Kind::Mi300xx8, workload).plant(0);
        let caps = node.start();
        let mut rates = Vec::new();
        for _ in 0..RUNS {
            let begin = Instant::now();
            for _ in 0..ITERATIONS {
                amount("an iteration", black_box(node.iterate(&caps)).wall.0)?;
            }
            rates.push(f64::from(ITERATIONS) / begin.elapsed().as_secs_f64());
        }
        let rate = Samples::new(workload.name(), RUNS, rates)?.percentile(50);
        println!(
            "SIMULATED {:<18} {rate:>8.0} iterations/s   {:>4.1} of the limit ({LIMIT:.0}/s, more is better)",
            workload.name(),
            rate / LIMIT
        );
    }
    for policy in Policy::ALL {
        let mut times = Vec::new();
        for seed in 0..DRAWS {
            let node = Draw::new(seed).plant(0);
            let start = node.start();
            let begin = Instant::now();
            amount(
                "power",
                black_box(node.optimum(policy, &start)).best.gpu_power().0,
            )?;
            times.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        let times = Samples::new("an optimum", DRAWS as usize, times)?;
        println!(
            "SIMULATED optimum of {policy:<12} {:>6.0} ms in the middle, {:>6.0} ms at p90 of {DRAWS} draws",
            times.percentile(50),
            times.percentile(90)
        );
    }
    Ok(())
}
