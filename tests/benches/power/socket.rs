//! One GPU's cap set through litd's control socket, and through zeusd's, on the same stand-in
//! `libnvidia-ml`, in turns. litd checks who asks, the range and the budget, looks at the cap, sets it and
//! reads it back; zeusd sets it. Every
//! request is a connection of its own, as command-line tools make it.
//!
//! zeusd is looked for as `$LITD_ZEUSD`, then as target/tools/bin/zeusd
//! (`cargo install --locked --root target/tools zeusd`).

use std::env;
use std::error::Error;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use litd_rig::Rig;
use litd_sim::Scenario;
use litd_units::Watts;

use crate::measured::{Nothing, Samples};

const SETS: usize = 3_000;
/// Before anything is timed.
const WARM_UP: usize = 200;

/// The caps that are set in turn.
const CAPS: [u32; 2] = [600, 650];

pub fn run() -> Result<(), Box<dyn Error>> {
    let rig = Rig::new(&Scenario::builtin("default")?, 1)?;
    let library = rig.install_nvml()?;
    let config = rig.config(&format!(
        "[hardware]\namd = \"off\"\ncpus = false\nnvml_library = \"{}\"\n",
        library.display()
    ));
    let daemon = rig.spawn(Path::new(env!("CARGO_BIN_EXE_litd")), &config)?;
    let litd = rig.layout().control();
    let directory = tempfile::tempdir()?;
    let zeusd = match zeusd() {
        Some(program) => Some(Zeusd::start(&program, &library, directory.path())?),
        None => {
            println!("SKIPPED: zeusd: cargo install --locked --root target/tools zeusd");
            None
        }
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for number in 0..WARM_UP + SETS {
        let watts = CAPS[number % CAPS.len()];
        let mine = timed(|| ask_litd(&litd, watts))?;
        let held = rig.ledger().held()[0];
        if held != Watts(f64::from(watts)) {
            return Err(format!("litd: {held} is held, not {watts} W").into());
        }
        // Another GPU: neither is to wait for what the other has done.
        let peers = match &zeusd {
            Some(zeusd) => Some(timed(|| zeusd.set(watts))?),
            None => None,
        };
        if number >= WARM_UP {
            ours.push(mine);
            theirs.extend(peers);
        }
    }
    drop(daemon);
    let ours = show("a set through litd's control socket", ours)?;
    if !theirs.is_empty() {
        let theirs = show("a set through zeusd's socket", theirs)?;
        println!(
            "  litd takes {:.2} of zeusd's time at p50, {:.2} at p99 (limit 1)",
            ours.0 / theirs.0,
            ours.1 / theirs.1
        );
    }
    Ok(())
}

/// Microseconds.
fn timed(act: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let begin = Instant::now();
    act()?;
    Ok(begin.elapsed().as_secs_f64() * 1e6)
}

fn ask_litd(socket: &Path, watts: u32) -> Result<(), Box<dyn Error>> {
    let body = format!("{{\"command\":\"set_cap\",\"device\":\"gpu0\",\"watts\":{watts}}}");
    post(socket, "/v1/command", &body)
}

/// One request on a connection of its own; an answer other than 200 is an error.
fn post(socket: &Path, path: &str, body: &str) -> Result<(), Box<dyn Error>> {
    let mut stream = UnixStream::connect(socket)?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.starts_with("HTTP/1.1 200") {
        true => Ok(()),
        false => Err(format!("{path}: {answer}").into()),
    }
}

/// The peer's program, if it is here.
fn zeusd() -> Option<PathBuf> {
    let named = env::var_os("LITD_ZEUSD").map(PathBuf::from);
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/bin/zeusd");
    named.or(Some(installed)).filter(|path| path.exists())
}

/// The peer, as its unit would start it.
struct Zeusd {
    process: Child,
    socket: PathBuf,
}

impl Zeusd {
    fn start(program: &Path, library: &Path, directory: &Path) -> Result<Self, Box<dyn Error>> {
        let socket = directory.join("zeusd.sock");
        let libraries = library.parent().ok_or("the library has no folder")?;
        let process = Command::new(program)
            .arg("serve")
            .arg("--socket-path")
            .arg(&socket)
            .args(["--enable", "gpu-control"])
            .env("LD_LIBRARY_PATH", libraries)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let zeusd = Self { process, socket };
        let begun = Instant::now();
        while UnixStream::connect(&zeusd.socket).is_err() {
            if begun.elapsed() > Duration::from_secs(10) {
                return Err("zeusd does not listen (it must be started as root)".into());
            }
            sleep(Duration::from_millis(10));
        }
        Ok(zeusd)
    }

    fn set(&self, watts: u32) -> Result<(), Box<dyn Error>> {
        let query = format!("gpu_ids=1&power_limit_mw={}&block=true", watts * 1000);
        post(&self.socket, &format!("/gpu/set_power_limit?{query}"), "")
    }
}

impl Drop for Zeusd {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Prints p50 and p99, and answers with them.
fn show(what: &str, times: Vec<f64>) -> Result<(f64, f64), Nothing> {
    let times = Samples::new(what, SETS, times)?;
    let (p50, p99) = (times.percentile(50), times.percentile(99));
    println!(
        "{what}, {} times: p50 {p50:.0} us, p99 {p99:.0} us",
        times.count()
    );
    Ok((p50, p99))
}
