//! A simulated node as a program, whose training job is somebody else's processes: tests of hooks
//! in other languages. Eight GPUs behind `DIRECTORY/hardware.sock`, held by nobody, and
//! `DIRECTORY/train.sock`, to which each rank connects. A rank says lines, and each is answered:
//!
//! ```text
//! hold GPU PID      ok                                   the GPU, from 0, is that process's
//! step              {"length_ns":N,"kernels":[]}         an iteration: all ranks ask for it
//! step profiled     {"length_ns":N,"kernels":[[name, stream, start_ns, duration_ns], ...]}
//! ```
//!
//!   litd-rig-train DIRECTORY RANKS

use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use litd_rig::{Hardware, Node, SharedHardware};
use litd_sim::Scenario;
use serde_json::{Value, json};

/// Ranks that don't come to an iteration for so long don't come any more.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let parsed = match arguments.as_slice() {
        [directory, ranks] => ranks.parse().ok().map(|ranks| (directory, ranks)),
        _ => None,
    };
    let Some((directory, ranks)) = parsed else {
        eprintln!("usage: litd-rig-train DIRECTORY RANKS");
        return ExitCode::from(2);
    };
    match run(&PathBuf::from(directory), ranks) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("litd-rig-train: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(directory: &Path, ranks: usize) -> Result<(), Box<dyn Error>> {
    let mut hardware = Hardware::new(&Scenario::builtin("default")?, 1)?;
    for gpu in 0..hardware.plant().gpu_count() {
        hardware.set_holders(gpu, Vec::new());
    }
    // A node that warms up is a node that drifts.
    hardware.settle();
    let hardware = hardware.shared();
    let _node = Node::start(&directory.join("hardware.sock"), hardware.clone())?;
    let steps = Arc::new(Steps {
        hardware,
        ranks,
        asked: Mutex::default(),
        changed: Condvar::new(),
    });
    let listener = UnixListener::bind(directory.join("train.sock"))?;
    for stream in listener.incoming() {
        let (stream, steps) = (stream?, steps.clone());
        // A rank that leaves takes its iteration along.
        thread::spawn(move || steps.serve(stream));
    }
    Ok(())
}

/// The job's iterations: each begins when all ranks have asked for it.
struct Steps {
    hardware: SharedHardware,
    ranks: usize,
    asked: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Default)]
struct Asked {
    /// Iterations that have run.
    done: u64,
    /// Ranks that wait for the next one.
    waiting: usize,
}

impl Steps {
    fn serve(&self, stream: UnixStream) -> io::Result<()> {
        let mut answers = stream.try_clone()?;
        let mut gpu = 0;
        for line in BufReader::new(stream).lines() {
            let line = line?;
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let answer = match words.as_slice() {
                ["hold", index, pid] => {
                    gpu = number(index)? as usize;
                    lock(&self.hardware).set_holders(gpu, vec![number(pid)?]);
                    "ok".to_owned()
                }
                ["step", more @ ..] => self.step(gpu, !more.is_empty())?.to_string(),
                _ => return Err(io::ErrorKind::InvalidInput.into()),
            };
            answers.write_all(format!("{answer}\n").as_bytes())?;
        }
        Ok(())
    }

    /// Waits for the other ranks; answers with what this one's GPU did.
    fn step(&self, gpu: usize, profiled: bool) -> io::Result<Value> {
        let mut asked = lock(&self.asked);
        let before = asked.done;
        asked.waiting += 1;
        if asked.waiting == self.ranks {
            asked.waiting = 0;
            asked.done += 1;
            lock(&self.hardware).run_iteration();
            self.changed.notify_all();
        }
        let waits = |asked: &mut Asked| asked.done == before;
        let (asked, late) = self
            .changed
            .wait_timeout_while(asked, PATIENCE, waits)
            .unwrap_or_else(PoisonError::into_inner);
        if late.timed_out() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // No rank can ask for the next iteration before this one has: the plant stands still.
        let answer = self.told(gpu, profiled);
        drop(asked);
        Ok(answer)
    }

    fn told(&self, gpu: usize, profiled: bool) -> Value {
        let hardware = lock(&self.hardware);
        let plant = hardware.plant();
        let timelines = match profiled {
            true => plant.timelines(),
            false => Vec::new(),
        };
        let mut kernels = Vec::new();
        if let Some(timeline) = timelines.get(gpu) {
            kernels.extend(timeline.kernels.iter().map(|kernel| {
                let times = (kernel.start.0, kernel.duration().0);
                json!([timeline.name_of(kernel), kernel.stream.0, times.0, times.1])
            }));
        }
        json!({ "length_ns": plant.last().length.to_nanos().0, "kernels": kernels })
    }
}

fn number(text: &str) -> io::Result<u32> {
    let wrong = |_| io::Error::new(io::ErrorKind::InvalidInput, format!("{text}: no number"));
    text.parse().map_err(wrong)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
