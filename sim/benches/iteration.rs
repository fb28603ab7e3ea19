//! How long 1,000 iterations of the 32-layer, 8-GPU workload take on one core, and which part
//! of the 0.5 s that they may take. Run with `cargo bench -p litd-sim`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use litd_sim::rng::Rng;
use litd_sim::workload::fsdp;
use litd_sim::{Conditions, IterationModel, Plant, Scenario};

const ITERATIONS: u64 = 1000;
const LIMIT: Duration = Duration::from_millis(500);
const SPEEDS: [f64; 8] = [1.035, 1.025, 1.06, 1.04, 1.0, 1.03, 1.03, 1.015];

/// The median of five runs, printed.
fn report(name: &str, mut run: impl FnMut()) {
    let mut times: Vec<Duration> = (0..5)
        .map(|_| {
            let begin = Instant::now();
            run();
            begin.elapsed()
        })
        .collect();
    times.sort();
    let median = times[times.len() / 2];
    let ratio = median.as_secs_f64() / LIMIT.as_secs_f64();
    println!(
        "{ITERATIONS} iterations, {name:<24} {median:>9.1?}   {ratio:.2} of the limit ({LIMIT:?})"
    );
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let workload = fsdp(32);
    let mut model = IterationModel::new(&workload)?;
    let conditions = Conditions::new(&SPEEDS, 1.3);
    report("deterministic", || {
        for _ in 0..ITERATIONS {
            let _ = black_box(model.run(black_box(&conditions)));
        }
    });

    let mut noise = vec![vec![1.0; workload.kernels.len()]; SPEEDS.len()];
    report("with kernel noise", || {
        for iteration in 0..ITERATIONS {
            for (row, g) in noise.iter_mut().zip(0..) {
                let mut rng = Rng::stream(1, &[iteration, g]);
                row.fill_with(|| 1.0 + 0.003 * rng.normal());
            }
            let noise = Some(noise.as_slice());
            let _ = black_box(model.run(&Conditions {
                noise,
                ..conditions
            }));
        }
    });

    let mut plant = Plant::new(&Scenario::builtin("default")?, 1)?;
    report("the whole plant", || {
        for _ in 0..ITERATIONS {
            black_box(plant.run_iteration());
        }
    });
    Ok(())
}
