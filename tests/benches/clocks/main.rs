//! How long a training script's `set_clock` takes to become a driver's call: a real hook in
//! Python, a real daemon under the system's clock, and a stand-in `libnvidia-ml.so.1` that notes
//! when `nvmlDeviceSetGpuLockedClocks` is entered. Between two calls the same script writes a byte
//! into a bare socket whose other end a thread of this process waits at: what one wake-up costs
//! here and now. `cargo bench --bench clocks` (also with `-- clocks`), for half a minute. Whatever
//! else runs on the machine shows.

#[path = "../common/measured.rs"]
mod measured;
#[path = "../common/report.rs"]
mod report;

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use litd_rig::{Rig, gpu_address};
use litd_sim::Scenario;
use nix::time::{ClockId, clock_gettime};

use measured::{Parts, Samples};
use report::load;

type Outcome<T> = Result<T, Box<dyn Error>>;

const CALLS: usize = 2000;
/// From the call of `set_clock` to the driver's.
const LIMITS: [(usize, f64); 2] = [(50, 100e-6), (99, 1e-3)];
/// A clock that is not set by then never will be.
const PATIENCE: Duration = Duration::from_secs(5);

const SCRIPT: &str = "
import socket, sys, time, litd
bare = socket.socket(socket.AF_UNIX)
bare.connect(sys.argv[3])
hook = litd.attach(job='bench', gpu=sys.argv[1], socket=sys.argv[2], steps_by_hand=True)
hook.set_clock(0)
while not hook.is_connected:
    time.sleep(0.01)
print('ready', flush=True)
for line in sys.stdin:
    clock = int(line)
    began = time.monotonic_ns()
    if clock:
        hook.set_clock(clock)
    else:
        bare.send(b'.')
    ended = time.monotonic_ns()
    print(began, ended, flush=True)
";

struct Hook {
    process: Child,
    says: BufReader<ChildStdout>,
    hears: ChildStdin,
    /// When bytes arrived at the bare socket.
    bytes: Receiver<f64>,
}

impl Hook {
    fn start(rig: &Rig) -> Outcome<Self> {
        let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("hooks/pytorch");
        let socket = rig.layout().directory.join("bare.sock");
        let bytes = arrivals(UnixListener::bind(&socket)?);
        let mut process = Command::new("python3")
            .args(["-c", SCRIPT, &gpu_address(0)])
            .args([rig.layout().ingest(), socket])
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
            bytes,
        };
        hook.line()?;
        Ok(hook)
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.says.read_line(&mut line)?;
        Ok(line)
    }

    /// When the script did what it was told to, from and until.
    fn tell(&mut self, clock: u32) -> Outcome<(f64, f64)> {
        writeln!(self.hears, "{clock}")?;
        let line = self.line()?;
        let times: Vec<f64> = line
            .split_whitespace()
            .map(|word| word.parse().map(|nanos: f64| nanos * 1e-9))
            .collect::<Result<_, _>>()?;
        match times[..] {
            [began, ended] => Ok((began, ended)),
            _ => Err(format!("the hook said {line:?}").into()),
        }
    }

    /// Seconds from the call until the driver's, and until the call returned.
    fn set(&mut self, rig: &Rig, clock: u32) -> Outcome<(f64, f64)> {
        let (began, ended) = self.tell(clock)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (clocks, at) = {
                let hardware = rig.hardware();
                let gpu = &hardware.nvidia().gpus[0];
                (gpu.clocks, gpu.locked_at)
            };
            if clocks == Some((clock, clock)) {
                return Ok((at as f64 * 1e-9 - began, ended - began));
            }
            if Instant::now() > deadline {
                return Err(format!("{clock} MHz are not set").into());
            }
            sleep(Duration::from_micros(500));
        }
    }

    /// Seconds from a write to the bare socket until its byte was read.
    fn write(&mut self) -> Outcome<f64> {
        let (began, _) = self.tell(0)?;
        Ok(self.bytes.recv_timeout(PATIENCE)? - began)
    }
}

/// When bytes arrive, by the kernel's monotonic clock, s.
fn arrivals(listener: UnixListener) -> Receiver<f64> {
    let (tell, told) = channel();
    thread::spawn(move || {
        let Ok((mut stream, _)) = listener.accept() else {
            return;
        };
        while stream.read_exact(&mut [0]).is_ok() {
            let Ok(now) = clock_gettime(ClockId::CLOCK_MONOTONIC) else {
                return;
            };
            let now = now.tv_sec() as f64 + 1e-9 * now.tv_nsec() as f64;
            if tell.send(now).is_err() {
                return;
            }
        }
    });
    told
}

impl Drop for Hook {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn main() -> Outcome<()> {
    Parts::asked(&["clocks"])?;
    println!("load of the machine at start: {}", load());
    let rig = Rig::new(&Scenario::builtin("default")?, 1)?;
    let library = rig.install_nvml()?;
    let config = format!(
        "mode = \"on\"\npolicy = \"observe\"\n[clocks]\nper_second = 10000\nper_minute = 1000000\n\
         [hardware]\namd = \"off\"\ncpus = false\n\
         nvml_library = \"{}\"\n",
        library.display()
    );
    let daemon = rig.spawn(Path::new(env!("CARGO_BIN_EXE_litd")), &rig.config(&config))?;
    let mut hook = Hook::start(&rig)?;
    let (mut driver, mut call, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..CALLS {
        // The first of a device waits for the disk: its name goes into the journal.
        let clock = 600 + (number % 2) as u32 * 15;
        let (reached, returned) = hook.set(&rig, clock)?;
        driver.push(reached);
        call.push(returned);
        let pause = Duration::from_micros(1500 + 19 * (number as u64 % 100));
        sleep(pause);
        bare.push(hook.write()?);
        sleep(pause);
    }
    let first = driver.first().copied().unwrap_or(f64::NAN);
    println!(
        "the first, which is written to the journal: {:.0} us",
        first * 1e6
    );
    let driver = Samples::new("the way to the driver's call", CALLS, driver)?;
    let call = Samples::new("the call of set_clock", CALLS, call)?;
    let bare = Samples::new("the way through a bare socket", CALLS, bare)?;
    for (percent, limit) in LIMITS {
        let [found, peer] = [&driver, &bare].map(|times| times.percentile(percent));
        println!(
            "set_clock to the driver's call, p{percent}: {:.0} us ({:.2} of the limit of {:.0} us); \
             a byte through a bare socket {:.0} us ({:.2} times)",
            found * 1e6,
            found / limit,
            limit * 1e6,
            peer * 1e6,
            found / peer
        );
    }
    let (usual, seldom) = (call.percentile(50), call.percentile(99));
    println!(
        "the call itself, p50 and p99: {:.0} and {:.0} us",
        usual * 1e6,
        seldom * 1e6
    );
    drop(hook);
    daemon.terminate()?;
    Ok(())
}
