//! `litctl estimate`, whole process, on a fleet that is made up: 1,000 nodes of 8 GPUs for a day at 30 s, 23 million
//! rows, plain and packed, and part of ten times as many GPUs: `cargo bench -p litctl --bench estimate`. With the
//! word `ten` it reads ten such days as well, 230 million rows, which takes ten minutes and 23 GB of disk.

#[path = "../../../tests/benches/common/measured.rs"]
mod measured;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;
use measured::{amount, nothing};
use nix::sys::resource::{UsageWho, getrusage};

/// The limits for 23 million rows, in seconds and MiB.
const SECONDS: f64 = 60.0;
const MEBIBYTES: f64 = 512.0;
const ROWS: u64 = 1_000 * 8 * 2_880;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// So many nodes of 8 GPUs, so many samples of each, 30 s apart.
fn fleet(out: &mut impl Write, nodes: u64, steps: u64) -> std::io::Result<u64> {
    writeln!(
        out,
        "node,gpu,timestamp,power_w,clock_mhz,temp_c,cap_w,limiter"
    )?;
    let mut state = 1_u64;
    let mut line = String::new();
    for step in 0..steps {
        for at in 0..nodes * 8 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let noise = state >> 33;
            let (node, gpu) = (at / 8, at % 8);
            let clock = 1_750 - 5 * gpu - node % 40 + noise % 40;
            let limiter = if noise % 10 < 7 { "power" } else { "none" };
            line.clear();
            let _ = writeln!(
                line,
                "gpu-node-{node:05},{gpu},{},{}.{:02},{clock},{},700,{limiter}",
                1_715_126_400 + 30 * step,
                680 + noise % 20,
                noise % 100,
                60 + noise % 15,
            );
            out.write_all(line.as_bytes())?;
        }
    }
    out.flush()?;
    Ok(nodes * 8 * steps)
}

/// Runs litctl on a file and says what that took; in a process of its own, which knows no other runs.
fn measured(path: &Path, rows: u64) -> Outcome<()> {
    let start = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_litctl"));
    command
        .args([
            "--json",
            "estimate",
            "--price",
            "kwh=0.14,gpu_hour=2.5",
            "--csv",
        ])
        .arg(path);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(nothing("litctl estimate", output.status).into());
    }
    let seconds = amount("its time", start.elapsed().as_secs_f64())?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let samples = report["fleet"]["samples"].as_u64();
    if samples != Some(rows) || !report["fleet"]["spread_pct"]["median"].is_f64() {
        return Err(nothing(
            "litctl estimate",
            format!("{samples:?} of {rows} rows counted"),
        )
        .into());
    }
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let memory = amount("its memory", usage.max_rss() as f64 / 1024.0)?;
    let core = [usage.user_time(), usage.system_time()]
        .map(|it| it.tv_sec() as f64 + it.tv_usec() as f64 * 1e-6);
    let limit = SECONDS * rows as f64 / ROWS as f64;
    println!(
        "  {rows} rows: {seconds:.1} s ({:.1} s of a core), {:.2} of the limit of {limit:.0} s; {:.2} million rows a \
         second; {memory:.0} MiB, {:.2} of the limit of {MEBIBYTES} MiB",
        core.iter().sum::<f64>(),
        seconds / limit,
        rows as f64 / seconds / 1e6,
        memory / MEBIBYTES,
    );
    Ok(())
}

fn main() -> Outcome<()> {
    let args = Vec::from_iter(std::env::args().skip(1).filter(|it| it != "--bench"));
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["one", path, rows] => return measured(Path::new(path), rows.parse()?),
        [] | ["ten"] => {}
        _ => return Err(nothing("anything", "the one word that it knows is ten").into()),
    }
    let folder = tempfile::tempdir()?;
    let one = |path: &Path, rows: u64| -> Outcome<()> {
        let rows = rows.to_string();
        let mut me = Command::new(std::env::current_exe()?);
        let status = me.arg("one").arg(path).arg(&rows).status()?;
        match status.success() {
            true => Ok(()),
            false => Err(nothing("litctl estimate", status).into()),
        }
    };
    let path = folder.path().join("day.csv");
    let rows = fleet(&mut BufWriter::new(File::create(&path)?), 1_000, 2_880)?;
    println!(
        "litctl estimate, 1,000 nodes of 8 GPUs, a day at 30 s, {} MB of CSV",
        path.metadata()?.len() / 1_000_000
    );
    one(&path, rows)?;
    std::fs::remove_file(&path)?;
    let path = folder.path().join("nodes.csv.gz");
    let packed = GzEncoder::new(File::create(&path)?, Compression::fast());
    let rows = fleet(&mut BufWriter::new(packed), 10_000, 144)?;
    println!("10,000 nodes of 8 GPUs, 144 samples of each, in gzip");
    one(&path, rows)?;
    if args.iter().any(|it| it == "ten") {
        let path = folder.path().join("days.csv");
        let rows = fleet(&mut BufWriter::new(File::create(&path)?), 1_000, 28_800)?;
        println!("1,000 nodes of 8 GPUs, ten days at 30 s");
        one(&path, rows)?;
    }
    Ok(())
}
