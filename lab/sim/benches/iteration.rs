//! How long 1,000 iterations of the 32-layer, 8-GPU workload take on one core, and which part
//! of the 0.5 s that they may take. Run with `cargo bench -p litd-sim`.

#[path = "../../../tests/benches/common/measured.rs"]
mod measured;

use std::hint::black_box;
use std::time::{Duration, Instant};

use litd_sim::rng::Rng;
use litd_sim::workload::fsdp;
use litd_sim::{Conditions, IterationModel, Plant, Scenario};
use litd_units::Millis;
use measured::{Samples, amount};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const ITERATIONS: u64 = 1000;
const RUNS: usize = 5;
const LIMIT: Duration = Duration::from_millis(500);
const SPEEDS: [f64; 8] = [1.035, 1.025, 1.06, 1.04, 1.0, 1.03, 1.03, 1.015];

/// The median of five runs, printed.
fn report(name: &str, mut run: impl FnMut() -> Outcome<()>) -> Outcome<()> {
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let begin = Instant::now();
        run()?;
        times.push(begin.elapsed().as_secs_f64());
    }
    let median = Samples::new(name, RUNS, times)?.percentile(50);
    let ratio = median / LIMIT.as_secs_f64();
    let median = Duration::from_secs_f64(median);
    println!(
        "{ITERATIONS} iterations, {name:<24} {median:>9.1?}   {ratio:.2} of the limit ({LIMIT:?})"
    );
    Ok(())
}

/// An iteration in which nothing ran is none.
fn ran(length: Millis) -> Outcome<()> {
    amount("an iteration", length.0)?;
    Ok(())
}

fn main() -> Outcome<()> {
    let workload = fsdp(32);
    let mut model = IterationModel::new(&workload)?;
    let conditions = Conditions::new(&SPEEDS, 1.3);
    report("deterministic", || {
        for _ in 0..ITERATIONS {
            ran(black_box(model.run(black_box(&conditions)))?.length)?;
        }
        Ok(())
    })?;

    let mut noise = vec![vec![1.0; workload.kernels.len()]; SPEEDS.len()];
    report("with kernel noise", || {
        for iteration in 0..ITERATIONS {
            for (row, g) in noise.iter_mut().zip(0..) {
                let mut rng = Rng::stream(1, &[iteration, g]);
                row.fill_with(|| 1.0 + 0.003 * rng.normal());
            }
            let noise = Some(noise.as_slice());
            let conditions = Conditions {
                noise,
                ..conditions
            };
            ran(black_box(model.run(&conditions))?.length)?;
        }
        Ok(())
    })?;

    let mut plant = Plant::new(&Scenario::builtin("default")?, 1)?;
    report("the whole plant", || {
        for _ in 0..ITERATIONS {
            ran(black_box(plant.run_iteration()).length)?;
        }
        Ok(())
    })
}
