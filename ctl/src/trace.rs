//! `litctl trace`: traces of processes whose scripts know nothing of litd, taken by hand.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use litd::attach::Environment;
use litd::process::{self, Stat};
use litd_api::{RingsSeen, SampledJob, TraceStage, TraceWish, Traceable, WishedTrace};
use litd_files::{Beneath, NotTaken};
use litd_units::count;
use serde::Serialize;

use crate::control::Socket;
use crate::{Outcome, output};

/// Record kernel traces of running processes, without changes to their scripts
///
/// Without PID or --job this lists the processes that can be traced, and the jobs without a hook that
/// litd samples by itself: by such traces, or by the rings of its plugin for NCCL and RCCL. Only Kineto
/// on demand, PyTorch's own on-demand client, records a trace; a ring is none.
///
/// Needs: PyTorch 2.7 or later, KINETO_USE_DAEMON=1 in the process's environment at its start, and
/// attach.kineto = true in litd.toml. Where dynolog runs, attach.dynolog is its port, and processes are
/// named by PID, because dynolog lists none. Root may do all of this; litd's admin group may request
/// traces, but not move the files.
///
/// Takes 5 to 12 s, and more for long traces: a process gets the request within 5 s, records, and writes.
///
/// Costs: while a process records, PyTorch also follows its operators, with --host or without, which
/// slows the process down; by how much, no real GPU has shown. The trace is in the process's memory until
/// it is written.
///
/// Writes: the process writes litd-UUID_PID.json as its own user into /tmp as the process has it (or
/// attach.traces of litd.toml). litctl moves that file into --into as trace_PID.json, or
/// trace_rankN_PID.json if a launcher has set the rank, and removes the first. `litctl analyze` reads
/// the files.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Process ids
    #[arg(value_name = "PID")]
    pids: Vec<u32>,
    /// All processes of this job of the scheduler: slurm-1234 or pod-UID, for example
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// How many iterations are recorded if the processes call step() of an optimizer of PyTorch's; all
    /// processes begin with the same iteration
    #[arg(long, value_name = "N", default_value_t = 3)]
    iterations: u32,
    /// How many milliseconds are recorded if a process has no such optimizer, as in inference
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    milliseconds: u32,
    /// Also write operators and launches of kernels into the files: these are longer, and show late
    /// hosts
    #[arg(long)]
    host: bool,
    /// The folder that the traces are moved to
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    into: PathBuf,
    #[command(flatten)]
    socket: Socket,
}

const EXAMPLES: &str = "\
Examples:
  litctl trace                                  the processes that can be traced
  litctl trace --job slurm-1234 && litctl analyze trace_*.json
  litctl trace 4711 4712 --iterations 5 --into traces";

/// How long a process may take to fetch the wish, to record and to write, besides the time it records.
const PATIENCE: Duration = Duration::from_secs(90);

/// How often to look for the files.
const LOOK: Duration = Duration::from_millis(250);

/// The longest trace that is moved, in bytes.
const LONGEST: u64 = 8 << 30;

/// A trace that was moved.
#[derive(Serialize)]
struct Taken {
    pid: u32,
    file: PathBuf,
    bytes: u64,
}

/// The outcome.
#[derive(Default, Serialize)]
struct Report {
    traces: Vec<Taken>,
    failed: Vec<String>,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let client = args.socket.client()?;
    if args.pids.is_empty() && args.job.is_none() {
        return list(&client.traceable()?, json);
    }
    let folder = std::fs::metadata(&args.into);
    if !folder.is_ok_and(|it| it.is_dir()) {
        return Err(format!("{}: there is no such folder", args.into.display()).into());
    }
    let wished = client.trace(&TraceWish {
        pids: args.pids.clone(),
        job: args.job.clone(),
        iterations: args.iterations,
        milliseconds: args.milliseconds,
        host: args.host,
    })?;
    let asked = count(wished.traces.len(), "process");
    output::note(&format!(
        "{asked} will record a trace; it takes 5 to 12 s and longer for long ones"
    ));
    let mut report = Report {
        failed: wished.refused,
        ..Report::default()
    };
    let deadline = Instant::now() + PATIENCE + Duration::from_millis(args.milliseconds.into());
    for trace in &wished.traces {
        match take(trace, &args.into, deadline) {
            Ok(taken) => report.traces.push(taken),
            Err(why) => report.failed.push(format!("process {}: {why}", trace.pid)),
        }
    }
    tell(&report, json)
}

fn list(traceable: &Traceable, json: bool) -> Outcome {
    if json {
        return output::json(traceable);
    }
    let mut text = traceable.rings.as_ref().map_or_else(String::new, rings);
    if !traceable.on && !text.is_empty() {
        return output::text(&text);
    }
    if !traceable.on {
        return Err(Traceable::OFF.into());
    }
    for trouble in &traceable.troubles {
        text += &format!("{trouble}\n");
    }
    if let Some(dynolog) = &traceable.dynolog {
        text += &format!(
            "dynolog at {dynolog} answers PyTorch's clients here, and litd asks it for traces; it lists no processes: name \
             them, `litctl trace PID`\n"
        );
    }
    for process in &traceable.processes {
        let job = process.job.as_deref().unwrap_or("no job");
        let stage = match process.stage {
            TraceStage::Idle => "",
            TraceStage::Wanted => "; will learn of a trace",
            TraceStage::Told => "; was told to record a trace",
        };
        text += &format!(
            "process {}, user {}, {job}{stage}\n",
            process.pid, process.uid
        );
    }
    for sampled in &traceable.sampled {
        text += &sampled_job(sampled, "by a trace");
    }
    let impostors = traceable.datagrams.impostors;
    if impostors > 0 {
        let many = many(impostors, "request");
        text += &format!("{many} named another process's id than the sender's, and got no trace\n");
    }
    let unsure = traceable.datagrams.unsure;
    if unsure > 0 {
        let many = many(unsure, "request");
        text += &format!(
            "{many} came from processes that had only just started; if this number grows, one user's processes flood the \
             socket, and others may not be listed\n"
        );
    }
    if traceable.processes.is_empty() && traceable.dynolog.is_none() {
        text += "no process asks for traces: start them with KINETO_USE_DAEMON=1 in their environment (PyTorch 2.7 or \
                 later)\n";
    }
    output::text(&text)
}

/// What is seen of rings of the plugin for NCCL.
fn rings(seen: &RingsSeen) -> String {
    let (rings, directory) = (many(seen.rings, "ring"), &seen.directory);
    let mut text = match &seen.trouble {
        Some(trouble) => format!("no rings of the plugin for NCCL are read: {trouble}\n"),
        None => format!("{rings} of processes that use GPUs in {directory}\n"),
    };
    for sampled in &seen.sampled {
        text += &sampled_job(sampled, "by its rings");
    }
    if seen.unclaimed > 0 {
        text += &format!(
            "{} that no process with a GPU writes (any more)\n",
            many(seen.unclaimed, "ring")
        );
    }
    for refused in &seen.refused {
        text += &format!("not read: {refused}\n");
    }
    text
}

fn many(number: u64, what: &str) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), what)
}

/// A job that litd samples in this way.
fn sampled_job(sampled: &SampledJob, way: &str) -> String {
    let name = sampled.job.as_deref().or(sampled.home.as_deref());
    let name = name.unwrap_or("no name");
    let (uid, text) = (sampled.uid, &sampled.text);
    let every = match sampled.every_seconds {
        every if every > 0.0 => format!(" every {every:.0} s"),
        _ => String::new(),
    };
    format!("job {name} of user {uid}, {way}{every}: {text}\n")
}

fn tell(report: &Report, json: bool) -> Outcome {
    if json {
        output::json(report)?;
    } else {
        let line = |it: &Taken| {
            format!(
                "{}: process {}, {} bytes\n",
                it.file.display(),
                it.pid,
                it.bytes
            )
        };
        output::text(&report.traces.iter().map(line).collect::<String>())?;
    }
    match report.failed.is_empty() {
        true => Ok(()),
        false => Err(report.failed.join("\n").into()),
    }
}

/// Moves a trace to a folder, once it has been written.
fn take(trace: &WishedTrace, into: &Path, deadline: Instant) -> Result<Taken, String> {
    let root = root_of(trace)?;
    let written = Path::new(&trace.file);
    let file = loop {
        match Beneath::open(&root, written, trace.uid, LONGEST) {
            Ok(file) => break file,
            Err(NotTaken::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(why) => return Err(format!("{}: {why}", trace.file)),
        }
        if Stat::of(trace.pid).is_none_or(|it| it.began != trace.began) {
            return Err("has ended before it wrote a trace".to_owned());
        }
        if Instant::now() > deadline {
            let seconds = PATIENCE.as_secs();
            return Err(format!(
                "has not written {} within {seconds} s: its standard error may say why, and `litctl trace` whether it \
                 was told; its KINETO_ONDEMAND_TRACE_DIR must be attach.traces of litd.toml",
                trace.file
            ));
        }
        thread::sleep(LOOK);
    };
    let to = into.join(match rank_of(trace.pid) {
        Some(rank) => format!("trace_rank{rank}_{}.json", trace.pid),
        None => format!("trace_{}.json", trace.pid),
    });
    let copied = copy(&file, &to);
    if copied.is_err() {
        // A part of a trace is none.
        let _ = std::fs::remove_file(&to);
    }
    let bytes = copied.map_err(|why| format!("{}: {why}", to.display()))?;
    if let Err(why) = file.remove() {
        output::note(&format!(
            "{}: stays in process {}'s files: {why}",
            trace.file, trace.pid
        ));
    }
    let pid = trace.pid;
    Ok(Taken {
        pid,
        file: to,
        bytes,
    })
}

/// The rank that its launcher has given a process: `litctl analyze` reads ranks from files' names.
fn rank_of(pid: u32) -> Option<u32> {
    Environment::of(Path::new("/proc"), pid)?.rank()
}

fn copy(file: &Beneath, to: &Path) -> Result<u64, NotTaken> {
    let mut options = OpenOptions::new();
    let mut copy = litd_files::make_anew(to, &mut options).map_err(NotTaken::Io)?;
    let bytes = io::copy(&mut file.bytes(), &mut copy).map_err(NotTaken::Io)?;
    file.is_unchanged().map(|()| bytes)
}

/// The process's root, if the process is the one that was asked.
fn root_of(trace: &WishedTrace) -> Result<File, String> {
    let path = format!("/proc/{}/root", trace.pid);
    match process::root(Path::new("/proc"), trace.pid, trace.began) {
        Ok(Some(root)) => Ok(root),
        Ok(None) => Err("has ended".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(format!(
            "{path}: only root or the process's user can reach its files; the trace will be {path}{}",
            trace.file
        )),
        Err(error) => Err(format!("{path}: {error}")),
    }
}
