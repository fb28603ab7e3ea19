//! Readers on large files, a process each so that memory is each one's own:
//! `cargo bench -p litd-traces --bench formats`. Files of 1 GB are made here: a Perfetto file with
//! mostly calls of a host, and files of nothing but kernels, the most that memory has to hold: of
//! eight GPUs as rocprofv3 writes them, and of one in Kineto's JSON. The other JSON is a real one of
//! ../shared/traces, whose peers' times are beside it.

#[path = "../../../tests/benches/common/measured.rs"]
mod measured;
mod prost_types;
mod rocprof;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use litd_traces::{Kernel, KernelClass, Timeline, formats};
use litd_units::Nanos;
use measured::{amount, nothing};
use nix::sys::resource::{UsageWho, getrusage};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const JSON: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../shared/traces/tracelens/traces/mi300/google_owlv2-large-patch14-ensemble__1016001.json.gz"
);

/// The argument that has a file read with prost's types.
const PROST: &str = "prost";

/// A Perfetto trace of 100,000 kernels, without leads.
fn kernels() -> std::io::Result<Vec<u8>> {
    let mut timeline = Timeline::new(0, "bench");
    let stream = timeline.stream("7");
    let names = Vec::from_iter((0..200).map(|i| {
        timeline.names.intern(&format!(
            "void gemm_kernel_number_{i}<float, 128, 64>(float*, float*)"
        ))
    }));
    for (i, name) in (0..100_000).zip(names.iter().cycle()) {
        timeline.kernels.push(Kernel {
            name: *name,
            stream,
            class: KernelClass::Computation,
            start: Nanos(1_000_000_000 + 10_000 * i),
            end: Nanos(1_000_000_000 + 10_000 * i + 9_000),
            collective: None,
            iteration: None,
        });
    }
    let mut bytes = Vec::new();
    formats::write_perfetto(&[timeline], None, &[], &mut bytes)?;
    Ok(bytes)
}

/// About 1 GB, with 100,000 kernels: the rest are a host's calls, as in real traces.
fn write_perfetto(path: &Path) -> Outcome<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    file.write_all(&kernels()?)?;
    // A slice of a host's call: sequence 2, its own name and category, 100 bytes.
    let name = "hipLaunchKernel with some arguments that nobody wants to read";
    let mut event = vec![0x48, 1, 0x58, 99, 0xB2, 0x01, 7];
    event.extend(b"hip_api");
    event.extend([0xBA, 0x01, name.len() as u8]);
    event.extend(name.as_bytes());
    let mut packet = vec![
        0x40,
        0x80,
        0x94,
        0xEB,
        0xDC,
        0x03,
        0x50,
        2,
        0x5A,
        event.len() as u8,
    ];
    packet.extend(event);
    let mut framed = vec![0x0A, packet.len() as u8];
    framed.extend(packet);
    let block = framed.repeat(10_000);
    for _ in 0..1_000_000_000 / block.len() {
        file.write_all(&block)?;
    }
    Ok(file.flush()?)
}

/// 1 GB of kernels and nothing else.
fn write_kineto(path: &Path) -> Outcome<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    file.write_all(b"{\"schemaVersion\":1,\"distributedInfo\":{\"rank\":0},\"traceEvents\":[")?;
    let mut written = 0;
    for i in 0_u64.. {
        let event = format!(
            "{}\n{{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"void at::native::vectorized_elementwise_kernel_{}<4, float>(int, float*)\",\"pid\":0,\"tid\":7,\"ts\":{}.123,\"dur\":9.876,\"args\":{{\"External id\":{i},\"device\":0,\"stream\":7,\"correlation\":{i},\"grid\":[1,1,1],\"block\":[128,1,1]}}}}",
            if i > 0 { "," } else { "" },
            i % 200,
            1_700_000_000_000_000 + 10 * i,
        );
        written += event.len();
        file.write_all(event.as_bytes())?;
        if written > 1_000_000_000 {
            break;
        }
    }
    file.write_all(b"]}")?;
    Ok(file.flush()?)
}

/// Reads a file, by hand or with prost's types, and prints what that took of this process.
fn measure(path: &Path, with_prost: bool) -> Outcome<()> {
    let kernels: usize = match with_prost {
        true => prost_types::read(path)?,
        false => {
            let trace = formats::read_file(path, None)?;
            trace.timelines.iter().map(|t| t.kernels.len()).sum()
        }
    };
    if kernels == 0 {
        return Err(nothing("reading a trace", "no kernels were found in it").into());
    }
    let size = std::fs::metadata(path)?.len() as f64 / 1e6;
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    // Of the processor, so that what else runs on the machine counts little.
    let times = [usage.user_time(), usage.system_time()];
    let seconds = times.map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 * 1e-6);
    let time = amount("reading a trace", seconds.iter().sum())?;
    println!(
        "{:>9.1} MB  {kernels:>8} kernels  {time:>7.3} s of a core  {:>7.0} MB/s  {:>5} MiB at most",
        size,
        size / time,
        usage.max_rss() / 1024
    );
    Ok(())
}

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    if let Some(path) = args.next() {
        return measure(
            &PathBuf::from(path),
            args.next().is_some_and(|how| how == PROST),
        );
    }
    let folder = tempfile::tempdir()?;
    let perfetto = folder.path().join("large.pftrace");
    write_perfetto(&perfetto)?;
    let me = std::env::current_exe()?;
    let read = |path: &Path, with: &[&str]| -> Outcome<()> {
        let status = Command::new(&me).arg(path).args(with).status()?;
        match status.success() {
            true => Ok(()),
            false => Err(nothing("reading a trace", status).into()),
        }
    };
    println!(
        "Perfetto, mostly a host's calls (limits: 400 MB/s, 256 MiB); the same on prost's types"
    );
    read(&perfetto, &[])?;
    read(&perfetto, &[PROST])?;
    let mut file = std::io::BufWriter::new(std::fs::File::create(&perfetto)?);
    rocprof::write_trace(&mut file, 1_000_000_000)?;
    file.flush()?;
    println!(
        "Perfetto, kernels of 8 GPUs and nothing else (limits: 400 MB/s, 256 MiB); the same on prost's types"
    );
    read(&perfetto, &[])?;
    read(&perfetto, &[PROST])?;
    std::fs::remove_file(&perfetto)?;
    let kineto = folder.path().join("large.json");
    write_kineto(&kineto)?;
    println!("Kineto JSON of kernels only (limit: 256 MiB)");
    read(&kineto, &[])?;
    if !Path::new(JSON).is_file() {
        println!("SKIPPED: Kineto JSON, 61 MB in gzip: ../shared/traces is absent");
        return Ok(());
    }
    println!("Kineto JSON, 61 MB in gzip (peers: TraceLens 3.2 s, Holistic Trace Analysis 4.6 s)");
    read(Path::new(JSON), &[])
}
