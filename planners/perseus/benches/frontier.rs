//! How much CPU time and memory whole frontiers take, beside the public solver on the same graphs
//! in the same run: `cargo bench -p litd-planner`.
//!
//! The profiles are SIMULATED (`synthetic::profile(stages, 1)`), a unit is 1 ms, the schedule is
//! 1F1B. lowtime is run where `target/tools/planner/bin/python` can import it:
//!
//! ```text
//! python3 -m venv target/tools/planner
//! target/tools/planner/bin/pip install lowtime==0.3.0 scipy
//! ```
//!
//! With two numbers after `--` only that size is measured, without lowtime.

#[path = "../../../tests/benches/common/measured.rs"]
mod measured;

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use litd_planner::{Frontier, Graph, Problem, Schedule};
use litd_profiles::{Pricing, Spec, synthetic};
use measured::{amount, nothing};
use nix::sys::resource::{UsageWho, getrusage};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Stages and microbatches; whether lowtime finishes in a time to wait for, a minute or so.
const SIZES: [(u32, u32, bool); 10] = [
    (2, 8, true),
    (2, 32, true),
    (4, 8, true),
    (4, 32, false),
    (8, 8, true),
    (8, 32, false),
    (8, 128, false),
    (16, 128, false),
    (32, 128, false),
    (32, 512, false),
];
/// Small graphs are measured again and again for this long, and the mean counts.
const LONG_ENOUGH: Duration = Duration::from_millis(200);

fn main() -> Outcome<()> {
    let numbers: Vec<u32> = std::env::args()
        .filter_map(|arg| arg.parse().ok())
        .collect();
    if let [stages, microbatches] = numbers[..] {
        println!("{}", measure(stages, microbatches)?);
        return Ok(());
    }
    println!("SIMULATED profiles; CPU seconds");
    println!("  graph  operations  points       ours     MiB    lowtime   times");
    let python = python();
    for (stages, microbatches, both) in SIZES {
        // A process for each: memory is what it held at most.
        let output = Command::new(std::env::current_exe()?)
            .args([stages.to_string(), microbatches.to_string()])
            .output()?;
        let text = String::from_utf8(output.stdout.clone())?;
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [points, seconds, mebibytes] = fields[..] else {
            let why = String::from_utf8_lossy(&output.stderr);
            return Err(nothing(&format!("{stages}x{microbatches}"), why.trim()).into());
        };
        let seconds: f64 = seconds.parse()?;
        let operations = 2 * stages * microbatches;
        let peer = match &python {
            Some(python) if both => {
                let peer = lowtime(python, stages, microbatches)?;
                format!("{peer:>9.2} {:>7.0}", peer / seconds)
            }
            _ => "        -       -".into(),
        };
        let graph = format!("{stages}x{microbatches}");
        println!("{graph:>7} {operations:>11} {points:>7} {seconds:>10.5} {mebibytes:>7} {peer}");
    }
    Ok(())
}

fn spec(stages: u32) -> Outcome<Spec> {
    let pricing = Pricing {
        shape: litd_profiles::Shape::Exponential,
        ..Pricing::default()
    };
    Ok(synthetic::profile(stages, 1).price(&pricing)?.0)
}

fn graph(stages: u32, microbatches: u32) -> Outcome<Graph> {
    Ok(Schedule::OneForwardOneBackward.graph(stages, microbatches)?)
}

/// Points, CPU seconds and MiB of this process.
fn measure(stages: u32, microbatches: u32) -> Outcome<String> {
    let curves = spec(stages)?.curves()?;
    let graph = graph(stages, microbatches)?;
    let problem = Problem::new(graph, |kind| curves.get(kind).cloned())?;
    let (start, before) = (Instant::now(), cpu()?);
    let mut times = 0;
    let points = loop {
        let frontier = Frontier::characterise(&problem);
        times += 1;
        if start.elapsed() >= LONG_ENOUGH {
            break frontier.len();
        }
    };
    if points < 2 {
        return Err(nothing("a frontier", format!("{points} points are none")).into());
    }
    let seconds = amount("a frontier", (cpu()? - before) / f64::from(times))?;
    let mebibytes = getrusage(UsageWho::RUSAGE_SELF)?.max_rss() as f64 / 1024.0;
    Ok(format!("{points} {seconds} {mebibytes:.1}"))
}

fn cpu() -> Outcome<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let time = usage.user_time();
    Ok(time.tv_sec() as f64 + 1e-6 * time.tv_usec() as f64)
}

fn python() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("../../target/tools/planner/bin/python");
    let output = Command::new(&python)
        .args(["-c", "import lowtime"])
        .output();
    let works = output.is_ok_and(|output| output.status.success());
    if !works {
        println!("SKIPPED: lowtime; target/tools/planner/bin/python can't import it");
    }
    works.then_some(python)
}

/// CPU seconds that lowtime takes.
fn lowtime(python: &Path, stages: u32, microbatches: u32) -> Outcome<f64> {
    let folder = tempfile::tempdir()?;
    let (dag, costs) = (
        folder.path().join("dag.csv"),
        folder.path().join("spec.json"),
    );
    fs::write(&dag, csv(&graph(stages, microbatches)?)?)?;
    fs::write(&costs, serde_json::to_string(&spec(stages)?)?)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/public_solver.py");
    let output = Command::new(python).args([script, dag, costs]).output()?;
    let text = String::from_utf8(output.stdout.clone())?;
    let seconds = text.split_whitespace().next();
    Ok(seconds.ok_or_else(|| format!("{output:?}"))?.parse()?)
}

fn csv(graph: &Graph) -> Outcome<String> {
    let mut text = String::from("kind,a,b,c,d\n");
    let count = graph.operations().len();
    for (number, operation) in graph.operations().iter().enumerate() {
        let (kind, microbatch) = (graph.kind(number), operation.microbatch);
        let (instruction, stage) = (&kind.instruction, kind.stage);
        writeln!(
            text,
            "node,{},{instruction},{stage},{microbatch}",
            number + 2
        )?;
    }
    let between = |arc: &&litd_planner::Arc| arc.from > Graph::SINK && arc.to > Graph::SINK;
    for arc in graph.arcs()[count..].iter().filter(between) {
        // Events 2 + 2n and 3 + 2n are operation n's.
        writeln!(text, "edge,{},{},,", arc.from / 2 + 1, arc.to / 2 + 1)?;
    }
    Ok(text)
}
