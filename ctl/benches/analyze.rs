//! `litctl analyze` on a large real trace, whole process, beside its peers:
//! `cargo bench -p litctl --bench analyze`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};

const TRACE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../shared/traces/tracelens/traces/mi300/google_owlv2-large-patch14-ensemble__1016001.json.gz"
);
/// Seconds and MiB of others on the same file: ../shared/facts/traces.md, measured on two cores.
const PEERS: [(&str, f64, f64); 2] = [
    ("AMD TraceLens", 3.2, 402.0),
    ("Holistic Trace Analysis", 4.6, 305.0),
];

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn run() -> Outcome<Duration> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_litctl"));
    command
        .args(["--json", "analyze", TRACE])
        .stdout(Stdio::null());
    let start = Instant::now();
    let status = command.status()?;
    assert!(status.success(), "{status}");
    Ok(start.elapsed())
}

fn main() -> Outcome<()> {
    if !Path::new(TRACE).is_file() {
        println!("skipped: ../shared/traces is absent");
        return Ok(());
    }
    let mut times = (0..5).map(|_| run()).collect::<Outcome<Vec<_>>>()?;
    times.sort();
    let time = times[times.len() / 2].as_secs_f64();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let memory = usage.max_rss() as f64 / 1024.0;
    // What else runs on the machine makes a run longer, but takes it little of a core.
    let seconds = [usage.user_time(), usage.system_time()]
        .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 * 1e-6);
    let core = seconds.iter().sum::<f64>() / times.len() as f64;
    println!(
        "litctl analyze, 61 MB of JSON in gzip: {time:.3} s, {core:.3} s of a core, {memory:.1} MiB"
    );
    for (peer, seconds, mebibytes) in PEERS {
        println!(
            "  {peer}: {seconds} s, {mebibytes} MiB: {:.1} times our time, {:.1} times what we take of a core, {:.1} times our memory",
            seconds / time,
            seconds / core,
            mebibytes / memory,
        );
    }
    Ok(())
}
