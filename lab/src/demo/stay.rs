//! `litlab demo --stay`: a simulated node, a job and a daemon to play with, in real time.

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use litd_policies::{Config, Policy};
use litd_rig::{JobSpec, Layout, Rig, gpu_address};
use litd_sim::Scenario;
use tokio::signal::unix::{SignalKind, signal};

use super::daemon::{WELCOME, program, settings};
use litd_cli::{Outcome, output};

/// Samples of the warm-up: enough to see, and not long to wait for.
const WARM_UP: u32 = 10;

/// Every how many iterations one is profiled.
const PERIOD: u32 = 2;

/// By then the daemon has written the caps that its policy starts with.
const STARTS: Duration = Duration::from_millis(500);

/// The user's own processes can attach as ranks on so many GPUs, with `--accept-any`.
const FREE: usize = 2;

/// The GPUs on which the simulated job leaves room for the user's own, if `accept_any`: the last ones.
///
/// # Errors
/// The node has too few GPUs for both.
pub fn free(scenario: &Scenario, accept_any: bool) -> Result<Range<usize>, String> {
    let gpus = scenario.gpus.len();
    if !accept_any {
        return Ok(gpus..gpus);
    }
    // Leads need two GPUs.
    match gpus.checked_sub(FREE).filter(|&left| left >= 2) {
        Some(left) => Ok(left..gpus),
        None => Err(format!(
            "--accept-any: {gpus} GPUs are too few: it leaves {FREE} of them to you, and the simulated job needs two"
        )),
    }
}

/// How the user's own processes attach to these GPUs.
fn recipe(free: &Range<usize>, layout: &Layout) -> String {
    let addresses: Vec<String> = free.clone().map(gpu_address).collect();
    format!(
        "The simulated job leaves {FREE} GPUs free: a process of your user that attaches as a rank on one\n\
         of them is accepted as it is. Two processes with PyTorch on CPUs, from the folder of\n\
         the sources:\n\n    \
         export LITD_SOCKET={}\n    \
         PYTHONPATH=hooks/pytorch python3 hooks/pytorch/examples/on_cpus.py \\\n        \
         {}\n\n",
        layout.ingest().display(),
        addresses.join(" "),
    )
}

/// Where the daemon says that its metrics are.
fn metrics_of(said: &str) -> String {
    let mut words = said.split_ascii_whitespace();
    let address = words.find(|word| word.starts_with("http://"));
    address.unwrap_or("off").to_owned()
}

/// Runs until the user interrupts it; then the daemon is stopped, and gives the caps back. The `free` GPUs are for the
/// user's own processes.
pub fn run(
    policy: Policy,
    scenario: &Scenario,
    seed: u64,
    job: JobSpec,
    free: &Range<usize>,
) -> Outcome {
    let mut config = Config::default();
    config.calibration.warm_up = WARM_UP;
    config.calibration.sampling_period = PERIOD;
    let interrupted = interruption()?;
    let rig = Rig::new(scenario, seed)?;
    // The user may set any budget, of which the ledger would not know.
    let most = scenario.caps.tdp * scenario.gpus.len() as f64;
    rig.ledger().set_budget(most);
    for gpu in free.clone() {
        rig.hardware().accept_any(gpu);
    }
    let mut daemon = rig.spawn(
        &program()?,
        &rig.config(&settings(policy, scenario, &config)?),
    )?;
    let mut job = rig.attach(job)?;
    job.welcome(WELCOME)?;
    // A node that has been running: one that warms up is not level by itself either.
    thread::sleep(STARTS);
    rig.hardware().settle();
    let control = rig.layout().control();
    let metrics = metrics_of(&daemon.stderr());
    output::text(&format!(
        "SIMULATED: a node of {} GPUs, a training job on it, and litd with {policy}.\n\
         In another terminal:\n\n    \
         export LITD_CONTROL={}\n    \
         litctl status\n    \
         litctl top\n    \
         litctl events --follow\n\n\
         {}Its configuration is {}, its metrics are\n\
         {}. Ctrl-C ends all of it.\n",
        scenario.gpus.len(),
        control.display(),
        match free.is_empty() {
            true => String::new(),
            false => recipe(free, rig.layout()),
        },
        rig.layout().config().display(),
        metrics,
    ))?;
    while !interrupted.load(Ordering::Relaxed) {
        if let Some(status) = daemon.ended() {
            return Err(format!(
                "litd has ended with {status}; it said:\n{}",
                daemon.stderr()
            )
            .into());
        }
        job.run_iteration();
        let length = rig.hardware().plant().last().length;
        thread::sleep(Duration::from_secs_f64((length.0 / 1e3).clamp(0.0, 10.0)));
    }
    let status = daemon.terminate()?;
    let back = match rig.ledger().restored() {
        true => "all caps are as they were found",
        false => "some caps are not as they were found",
    };
    let broken = rig.ledger().check();
    output::text(&format!(
        "\nlitd ended with {status}: {back}; {} writes, {} of them against the rules\n",
        rig.ledger().len(),
        broken.len()
    ))
}

/// Waits for what ends a program in order: Ctrl-C, `kill`, a closed terminal.
async fn a_signal() -> std::io::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminated.recv() => {}
        _ = hung_up.recv() => {}
        _ = interrupted.recv() => {}
    }
    Ok(())
}

/// A flag that Ctrl-C sets.
fn interruption() -> Result<Arc<AtomicBool>, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let flag = Arc::new(AtomicBool::new(false));
    let set = flag.clone();
    thread::spawn(move || {
        // Where signals can't be had, the shell's own way of ending it remains.
        if runtime.block_on(a_signal()).is_ok() {
            set.store(true, Ordering::Relaxed);
        }
    });
    Ok(flag)
}
