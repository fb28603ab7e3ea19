//! How long a training script's `set_clock` takes to become a driver's call: a real hook in
//! Python, a real daemon under the system's clock, NVML's functions on a stand-in node in this
//! process. `cargo bench --bench clocks` (also with `-- clocks`), for half a minute. Whatever else runs on the machine
//! shows.

#[path = "../common/report.rs"]
mod report;

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use litd_rig::{Rig, gpu_address};
use litd_sim::Scenario;
use nix::time::{ClockId, clock_gettime};

use report::{load, percentile, wanted};

type Outcome<T> = Result<T, Box<dyn Error>>;

const CALLS: usize = 2000;
/// From the call of `set_clock` to the driver's.
const LIMITS: [(usize, f64); 2] = [(50, 100e-6), (99, 1e-3)];
/// A clock that is not set by then never will be.
const PATIENCE: Duration = Duration::from_secs(5);

const SCRIPT: &str = "
import sys, time, litd
hook = litd.attach(job='bench', gpu=sys.argv[1], socket=sys.argv[2], steps_by_hand=True)
hook.set_clock(0)
while not hook.is_connected:
    time.sleep(0.01)
print('ready', flush=True)
for line in sys.stdin:
    clock = int(line)
    began = time.monotonic_ns()
    hook.set_clock(clock)
    ended = time.monotonic_ns()
    print(began, ended, flush=True)
";

struct Hook {
    process: Child,
    says: BufReader<ChildStdout>,
    hears: ChildStdin,
}

impl Hook {
    fn start(rig: &Rig) -> Outcome<Self> {
        let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
        let mut process = Command::new("python3")
            .args(["-c", SCRIPT, &gpu_address(0)])
            .arg(rig.layout().ingest())
            .current_dir(python)
            .envs(["RANK", "LOCAL_RANK"].map(|name| (name, "0")))
            .envs(["WORLD_SIZE", "LOCAL_WORLD_SIZE"].map(|name| (name, "1")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        rig.hardware().set_holders(0, vec![process.id()]);
        let says = process.stdout.take().ok_or("no pipe")?;
        let hears = process.stdin.take().ok_or("no pipe")?;
        let mut hook = Self {
            process,
            says: BufReader::new(says),
            hears,
        };
        hook.line()?;
        Ok(hook)
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.says.read_line(&mut line)?;
        Ok(line)
    }

    /// Seconds from the call until the driver's, and until the call returned.
    fn set(&mut self, rig: &Rig, clock: u32, zero: (Instant, f64)) -> Outcome<(f64, f64)> {
        writeln!(self.hears, "{clock}")?;
        let line = self.line()?;
        let times: Vec<f64> = line
            .split_whitespace()
            .map(|word| word.parse().map(|nanos: f64| nanos * 1e-9))
            .collect::<Result<_, _>>()?;
        let [began, ended] = times[..] else {
            return Err(format!("the hook said {line:?}").into());
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (clocks, at) = {
                let hardware = rig.hardware();
                let gpu = &hardware.nvidia().gpus[0];
                (gpu.clocks, gpu.locked_at)
            };
            if clocks == Some((clock, clock)) {
                let at = at.ok_or("no time")?;
                let at = zero.1 + at.duration_since(zero.0).as_secs_f64();
                return Ok((at - began, ended - began));
            }
            if Instant::now() > deadline {
                return Err(format!("{clock} MHz are not set").into());
            }
            sleep(Duration::from_micros(500));
        }
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn main() -> Outcome<()> {
    if !wanted("clocks") {
        return Ok(());
    }
    println!("load of the machine at start: {}", load());
    let rig = Rig::new(&Scenario::builtin("default")?, 1)?;
    let library = rig.install_nvml()?;
    let config = format!(
        "mode = \"steer\"\npolicy = \"observe\"\n[hardware]\namd = \"off\"\ncpus = false\n\
         nvml_library = \"{}\"\n",
        library.display()
    );
    let daemon = rig.spawn(Path::new(env!("CARGO_BIN_EXE_litd")), &rig.config(&config))?;
    let mut hook = Hook::start(&rig)?;
    let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    let seconds = monotonic.tv_sec() as f64 + 1e-9 * monotonic.tv_nsec() as f64;
    let zero = (Instant::now(), seconds);
    let (mut driver, mut call) = (Vec::new(), Vec::new());
    for number in 0..CALLS {
        // The first of a device waits for the disk: its name goes into the journal.
        let clock = 600 + (number % 2) as u32 * 15;
        let (reached, returned) = hook.set(&rig, clock, zero)?;
        driver.push(reached);
        call.push(returned);
        sleep(Duration::from_micros(3000 + 37 * (number as u64 % 100)));
    }
    println!(
        "the first, which is written to the journal: {:.0} us",
        driver[0] * 1e6
    );
    driver.sort_by(f64::total_cmp);
    call.sort_by(f64::total_cmp);
    for (percent, limit) in LIMITS {
        let found = percentile(&driver, percent);
        println!(
            "set_clock to the driver's call, p{percent}: {:.0} us ({:.2} of the limit of {:.0} us)",
            found * 1e6,
            found / limit,
            limit * 1e6
        );
    }
    let (usual, seldom) = (percentile(&call, 50), percentile(&call, 99));
    println!(
        "the call itself, p50 and p99: {:.0} and {:.0} us",
        usual * 1e6,
        seldom * 1e6
    );
    drop(hook);
    daemon.terminate()?;
    Ok(())
}
