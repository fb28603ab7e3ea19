//! How many configurations one core predicts in a second, each with its breakdown by operator, from an empty cache:
//! beside the limit of 100,000, and beside GenZ (`genz-llm` from PyPI) where python3 can import it.
//!
//! `cargo bench -p litd-inference --bench sweep`

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

#[path = "../../../tests/benches/common/measured.rs"]
mod measured;

use std::process::Command;

use nix::sys::resource::{UsageWho, getrusage};

use litd_inference::gpu::Gpu;
use litd_inference::interpret::{Degrees, Program};
use litd_inference::kernel::{Analytic, Cached};
use litd_inference::model::Model;
use litd_inference::predict::Deployment;
use litd_inference::spec::{Spec, listings};
use litd_inference::sweep::{Grid, Phases, Sweep, doubling, explore, linear};
use measured::{Nothing, amount};

/// Configurations per second on one core.
const LIMIT: f64 = 100_000.0;
/// GenZ's model of a decode step of Llama-3.1-70B on 8 GPUs, timed over a few batches.
const GENZ: &str = "
import time
from GenZ import decode_moddeling
begin = time.process_time()
for batch in range(1, 17):
    decode_moddeling(model='meta-llama/Llama-3.1-70B', batch_size=batch, input_tokens=512, output_tokens=1024,
                     system_name='A100_80GB_GPU', tensor_parallel=8, bits='bf16')
print(16 / (time.process_time() - begin))
";

fn main() -> Result<(), Nothing> {
    for (name, listing, degrees) in [
        (
            "llama-3-70b",
            listings::FUSED_DENSE,
            [2, 4, 8].map(|tp| Degrees { tp, ep: 1, cp: 1 }),
        ),
        (
            "qwen3-30b-a3b",
            listings::FUSED_MOE,
            [1, 2, 4].map(|tp| Degrees { tp, ep: tp, cp: 1 }),
        ),
    ] {
        for phases in [Phases::Prefill, Phases::Decode] {
            let (rate, count) = rate(name, listing, &degrees, phases);
            amount(name, count as f64)?;
            let rate = amount(name, rate)?;
            println!(
                "{name} {phases:?}: {count} configurations, {rate:.0} per second on one core, {:.2} of the limit of {LIMIT}",
                rate / LIMIT
            );
        }
    }
    match Command::new("python3").args(["-c", GENZ]).output() {
        Ok(output) if output.status.success() => {
            let rate = String::from_utf8_lossy(&output.stdout);
            println!(
                "GenZ, Llama-3.1-70B decode, one core: {} per second",
                rate.trim()
            );
        }
        _ => println!("GenZ: python3 can't import it (pip install genz-llm)"),
    }
    Ok(())
}

fn rate(name: &str, listing: &str, degrees: &[Degrees], phases: Phases) -> (f64, usize) {
    let model = Model::named(name).unwrap();
    let kernels = Analytic::uncalibrated(Gpu::named("h200").unwrap());
    let kernels = Cached::new(&kernels);
    let program = Program::new(&Spec::parse(listing).unwrap()).unwrap();
    let deployment = Deployment::of_the_paper(&model, &program, &kernels);
    let grid = Grid {
        batches: doubling(64),
        inputs: linear(64, 8192, 8),
        outputs: vec![128, 1024],
        degrees: degrees.to_vec(),
        limits: vec![None],
        clocks: vec![None],
        speculation: (0, 0.0),
    };
    let mut sweep = Sweep::default();
    let begin = cpu_seconds();
    explore(&deployment, &grid, 0, phases, &mut sweep, || ()).unwrap();
    let count = sweep.explored.len();
    (count as f64 / (cpu_seconds() - begin), count)
}

/// Processor time of this process, which has one thread: others on the machine do not count.
fn cpu_seconds() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    let (user, system) = (usage.user_time(), usage.system_time());
    let seconds = |seconds: i64, micros: i64| seconds as f64 + micros as f64 * 1e-6;
    seconds(user.tv_sec(), user.tv_usec()) + seconds(system.tv_sec(), system.tv_usec())
}
