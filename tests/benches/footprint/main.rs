//! What litd takes of the node that it serves, beside the limits: a real daemon under the
//! system's clock, on a stand-in node in this process. `cargo bench --bench footprint`, for
//! something over a minute; with `-- idle`, `-- samples` or `-- ticks` that part alone. Whatever
//! else runs on the machine shows in the times.

#[path = "../common/measured.rs"]
mod measured;
mod process;
#[path = "../common/report.rs"]
mod report;
mod training;

use std::error::Error;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use litd_rig::{Daemon, Rig};
use litd_sim::Scenario;

use measured::{Parts, Samples, amount, nothing};
use process::{Process, ask_status};
use report::load;
use training::{KERNELS, RANKS, Training};

const MIB: f64 = (1 << 20) as f64;
/// For the daemon and its children together, without a job and with one.
const IDLE_PSS: f64 = 8.0 * MIB;
const JOB_PSS: f64 = 12.0 * MIB;
/// Of one core, with sensors read every second.
const IDLE_CPU: f64 = 0.002;
/// From the last rank's last byte to the first cap written, at p99.
const REACTION: Duration = Duration::from_millis(5);
const TICKS_PER_SECOND: u32 = 10_000;

const SETTLED: Duration = Duration::from_secs(10);
const WATCHED: Duration = Duration::from_secs(30);
const TICKING: Duration = Duration::from_secs(10);
/// Samples that lead to a write.
const REACTIONS: usize = 300;
/// More than so many that lead to none: something else is measured than litd at work.
const WITHOUT: usize = 30;

/// Every sample leads to an adjustment, whatever came before: nothing is level, nothing settles. That
/// takes the paper's law with steps that never shrink. The model law has converged after a few.
const CONFIG: &str = r#"
mode = "on"
policy = "gpu-realloc"
[caps]
budget = 4800.0
[sampling]
converged_period = 1
[law]
law = "paper"
[law.calibration]
warm_up = 1
sampling_period = 1
[law.detection]
window = 1
[law.mitigation]
scale = "local"
initial_cap = 600.0
[law.guard]
patience = 10000
level_share = 0.0
level_remainder = 0.0
noise_margin = 0.0
"#;

fn print(what: &str, found: f64, limit: f64, unit: &str) {
    println!(
        "{what}: {found:.3} {unit} ({:.2} of the limit of {limit} {unit})",
        found / limit
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let parts = Parts::asked(&["idle", "samples", "ticks"])?;
    println!("load of the machine at start: {}", load());
    let rig = Rig::new(&Scenario::builtin("default")?, 1)?;
    rig.hardware().settle();
    rig.hardware().run_iteration();
    let daemon = rig.spawn(Path::new(env!("CARGO_BIN_EXE_litd")), &rig.config(CONFIG))?;
    let process = Process(daemon.pid());
    if parts.has("idle") {
        idle(&process)?;
    }
    let mut training = Training::attach(&rig)?;
    if parts.has("samples") {
        react(&rig, &process, &mut training, Arrival::Apart)?;
        react(&rig, &process, &mut training, Arrival::Together)?;
    }
    if parts.has("ticks") {
        tick(&rig, &process, &mut training)?;
    }
    check(&rig, daemon)?;
    println!(
        "peer, other machine: zeusd 7 to 9 MiB resident; one set-limit request p50 53 us, p99 156 us"
    );
    println!("load of the machine at the end: {}", load());
    Ok(())
}

fn idle(process: &Process) -> Result<(), Box<dyn Error>> {
    sleep(SETTLED);
    let memory = process.memory()?;
    print(
        "idle, 8 GPUs and 2 CPU sockets: PSS",
        amount("the idle daemon's memory", memory.pss)? / MIB,
        IDLE_PSS / MIB,
        "MiB",
    );
    println!(
        "  of that private {:.3} MiB; resident {:.3} MiB",
        memory.private / MIB,
        memory.resident / MIB
    );
    let before = process.cpu()?;
    sleep(WATCHED);
    let share = (process.cpu()? - before).as_secs_f64() / WATCHED.as_secs_f64();
    let share = amount("the idle daemon's processor time", share)?;
    print(
        "idle, sensors at 1 Hz: CPU",
        100.0 * share,
        100.0 * IDLE_CPU,
        "% of a core",
    );
    Ok(())
}

/// How the ranks' frames come.
#[derive(Clone, Copy)]
enum Arrival {
    /// The last one after the others have been taken in.
    Apart,
    /// All at once.
    Together,
}

fn react(
    rig: &Rig,
    process: &Process,
    training: &mut Training,
    arrival: Arrival,
) -> Result<(), Box<dyn Error>> {
    let (pause, how) = match arrival {
        Arrival::Apart => (Duration::from_millis(20), "when the others' are in"),
        Arrival::Together => (Duration::ZERO, "when all come at once"),
    };
    let (mut times, mut most, mut without) = (Vec::new(), 0.0_f64, 0);
    while times.len() < REACTIONS && without <= WITHOUT {
        match training.sample(rig, pause)? {
            Some(time) => times.push(1e3 * time.as_secs_f64()),
            None => without += 1,
        }
        most = most.max(process.memory()?.pss);
    }
    let what = "the way from a sample to a cap";
    if times.len() < REACTIONS {
        // What the loop says of itself tells why.
        let jobs = ask_status(rig)?.jobs;
        let why = jobs.first().map_or("there is no job", |job| &job.why);
        let found = format!("{} of {REACTIONS} samples led to one; {why}", times.len());
        return Err(nothing(what, found).into());
    }
    let times = Samples::new(what, REACTIONS, times)?;
    println!(
        "{RANKS} ranks of {KERNELS} kernels, {} samples with a write, {without} without; the last frame {how}:",
        times.count()
    );
    let limit = 1e3 * REACTION.as_secs_f64();
    for percent in [50, 90, 99] {
        let what = format!("  last frame to first cap written, p{percent}");
        print(&what, times.percentile(percent), limit, "ms");
    }
    print(
        "  PSS at most between samples",
        most / MIB,
        JOB_PSS / MIB,
        "MiB",
    );
    print(
        "  PSS at most ever (as high as the resident peak says)",
        process.peak(most)? / MIB,
        JOB_PSS / MIB,
        "MiB",
    );
    Ok(())
}

fn tick(rig: &Rig, process: &Process, training: &mut Training) -> Result<(), Box<dyn Error>> {
    let (before, cpu) = (ask_status(rig)?, process.cpu()?);
    let (sent, took) = training.tick(TICKS_PER_SECOND, TICKING)?;
    sleep(Duration::from_millis(200));
    let (after, cpu) = (ask_status(rig)?, process.cpu()? - cpu);
    let taken = after.totals.ticks - before.totals.ticks;
    if taken == 0 || cpu.is_zero() {
        return Err(nothing("what ticks take", format!("{taken} of {sent} arrived")).into());
    }
    let refused =
        |status: &litd_api::Status| status.totals.refused.iter().map(|it| it.count).sum::<u64>();
    println!(
        "ticks: {sent} sent at {:.0} a second, {taken} taken, {} dropped, {} refusals; CPU {:.2} % of a core",
        f64::from(sent) / took.as_secs_f64(),
        u64::from(sent).saturating_sub(taken),
        refused(&after) - refused(&before),
        100.0 * cpu.as_secs_f64() / took.as_secs_f64()
    );
    Ok(())
}

/// What was measured must have been litd at work.
fn check(rig: &Rig, daemon: Daemon) -> Result<(), Box<dyn Error>> {
    daemon.terminate()?;
    let violations = rig.ledger().check();
    if !violations.is_empty() || !rig.ledger().restored() {
        return Err(nothing("litd at work", format!("rules were broken: {violations:?}")).into());
    }
    println!(
        "ledger: {} writes, no rule broken, caps restored at the end",
        rig.ledger().len()
    );
    Ok(())
}
