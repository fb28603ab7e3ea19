//! `litctl analyze`, whole process: on a large real trace, beside its peers, and on 1 GB of a trace
//! of nothing but kernels, the most that memory has to hold:
//! `cargo bench -p litctl --bench analyze`.

#[path = "../../../tests/benches/common/measured.rs"]
mod measured;
#[path = "../../../traces/benches/formats/rocprof.rs"]
mod rocprof;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use measured::{Samples, amount, nothing};
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
/// The most that 1 GB of trace may take, in MiB.
const LIMIT: f64 = 256.0;
/// The kernels of each of two ranks whose iterations nothing marks, and the most seconds that these may take.
const UNMARKED: (u64, f64) = (154_000, 3.0);

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Time and memory of runs of litctl.
struct Taken {
    /// The median, in seconds.
    time: f64,
    /// Of a core, of each on average; what else runs on the machine adds little to that.
    core: f64,
    /// The most, in MiB.
    memory: f64,
}

/// Runs litctl so often; in a process of its own, which knows no other runs.
fn taken(times: usize, args: &[&str]) -> Outcome<Taken> {
    let run = || -> Outcome<f64> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_litctl"));
        let start = Instant::now();
        succeeded(command.args(args).stdout(Stdio::null()).status()?)?;
        Ok(start.elapsed().as_secs_f64())
    };
    let all = (0..times).map(|_| run()).collect::<Outcome<Vec<_>>>()?;
    let all = Samples::new("litctl analyze", times, all)?;
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = [usage.user_time(), usage.system_time()]
        .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 * 1e-6);
    Ok(Taken {
        time: all.percentile(50),
        core: amount(
            "its processor time",
            seconds.iter().sum::<f64>() / times as f64,
        )?,
        memory: amount("its memory", usage.max_rss() as f64 / 1024.0)?,
    })
}

fn succeeded(status: ExitStatus) -> Outcome<()> {
    match status.success() {
        true => Ok(()),
        false => Err(nothing("litctl analyze", status).into()),
    }
}

fn beside_peers() -> Outcome<()> {
    let Taken { time, core, memory } = taken(5, &["--json", "analyze", TRACE])?;
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

fn large(args: &[&str]) -> Outcome<()> {
    let Taken { core, memory, .. } = taken(1, args)?;
    println!(
        "  {core:.1} s of a core, {memory:.0} MiB, {:.2} of the limit of {LIMIT} MiB",
        memory / LIMIT
    );
    Ok(())
}

/// Kineto's JSON of a rank whose iterations nothing marks: layers of 40 kernels each, an all-reduce behind each, and now and
/// then a kernel that was not recorded.
fn write_unmarked(path: &Path, rank: u64) -> Outcome<()> {
    let mut file = BufWriter::new(File::create(path)?);
    write!(
        file,
        r#"{{"schemaVersion":1,"distributedInfo":{{"backend":"nccl","rank":{rank},"world_size":2}},"traceEvents":["#
    )?;
    let (mut random, mut comma) = (11 + rank, "");
    for kernel in 0..UNMARKED.0 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        if random % 500 == 0 {
            continue;
        }
        let (place, layer) = (kernel % 41, kernel / 41 % 32);
        // Every fifth layer has another attention, as of sliding windows.
        let name = match place {
            40 => "ncclDevKernel_AllReduce_Sum_bf16_RING_LL".to_string(),
            7..10 if layer % 5 == 0 => format!("void attention_window_{place}<bf16>(Params)"),
            _ => format!("void layer_kernel_{place}<128, 64>(float*, float*)"),
        };
        let (start, length) = (50 * kernel + rank, 40 + random % 5);
        write!(
            file,
            r#"{comma}{{"ph":"X","cat":"kernel","name":"{name}","pid":{rank},"tid":7,"ts":{start},"dur":{length},"args":{{"device":{rank},"stream":7}}}}"#
        )?;
        comma = ",";
    }
    write!(file, "]}}")?;
    Ok(file.flush()?)
}

fn unmarked(args: &[&str]) -> Outcome<()> {
    let Taken { time, memory, .. } = taken(3, args)?;
    let (kernels, limit) = UNMARKED;
    println!(
        "litctl analyze, {kernels} unmarked kernels on each of 2 ranks: {time:.2} s, {:.2} of the limit of {limit} s; {memory:.0} MiB",
        time / limit
    );
    Ok(())
}

fn main() -> Outcome<()> {
    let args = Vec::from_iter(std::env::args().skip(1).filter(|arg| arg != "--bench"));
    let args = Vec::from_iter(args.iter().map(String::as_str));
    match args[..] {
        ["peers"] => return beside_peers(),
        ["large", ref args @ ..] => return large(args),
        ["unmarked", ref args @ ..] => return unmarked(args),
        _ => {}
    }
    let me = |args: &[&str]| -> Outcome<()> {
        succeeded(Command::new(std::env::current_exe()?).args(args).status()?)
    };
    match Path::new(TRACE).is_file() {
        true => me(&["peers"])?,
        false => println!("SKIPPED: 61 MB of JSON in gzip: ../shared/traces is absent"),
    }
    let folder = tempfile::tempdir()?;
    let named = |name: &str| -> PathBuf { folder.path().join(name) };
    let ranks = ["rank0.json", "rank1.json"].map(named);
    for (rank, path) in (0..).zip(&ranks) {
        write_unmarked(path, rank)?;
    }
    let [first, second] = &ranks.map(|path| path.to_string_lossy().into_owned());
    me(&["unmarked", "analyze", first, second])?;
    let trace = named("large.pftrace");
    let mut file = BufWriter::new(File::create(&trace)?);
    let kernels = rocprof::write_trace(&mut file, 1_000_000_000)?;
    file.flush()?;
    drop(file);
    let trace = trace.to_string_lossy();
    println!("litctl analyze, 1 GB of Perfetto, {kernels} kernels of 8 GPUs");
    me(&["large", "analyze", &trace])?;
    println!("the same with --json --kernels all");
    me(&["large", "--json", "analyze", "--kernels", "all", &trace])?;
    println!("the same with --models --overlap, --html, --csv and --perfetto");
    let [html, csv, perfetto] = ["r.html", "r.csv", "r.pftrace"].map(named);
    let [html, csv, perfetto] = [&html, &csv, &perfetto].map(|path| path.to_string_lossy());
    me(&[
        "large",
        "analyze",
        "--models",
        "--overlap",
        "--html",
        &html,
        "--csv",
        &csv,
        "--perfetto",
        &perfetto,
        &trace,
    ])
}
