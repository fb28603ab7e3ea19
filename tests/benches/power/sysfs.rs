//! The driver's files, kept open: a set with read-back, and the bare system calls beside it. The
//! files are a FUSE file system of this process, so each call is a message to another thread and
//! its answer; on a real node the kernel answers itself.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

use litd_power::{Operation, PowerDomain, Reply, Source, discover};
use litd_rig::Rig;
use litd_rig_sysfs::{Board, Mount};
use litd_sim::Scenario;
use litd_units::Watts;

use crate::measured::{Nothing, Samples};

/// For one set with read-back, at p99.
const LIMIT: f64 = 100.0;
const SETS: usize = 20_000;
/// Before anything is timed.
const WARM_UP: usize = 500;

/// The caps that are set in turn.
const CAPS: [f64; 2] = [600.0, 650.0];

pub fn run() -> Result<(), Box<dyn Error>> {
    let rig = Rig::new(&Scenario::builtin("default")?, 1)?;
    let mount = Mount::start(rig.shared_hardware(), Board::default())?;
    let mut found = discover(&mount.search(), Source::Amd);
    let gpu = found.domains.first_mut().ok_or("no GPU was found")?;
    let address = gpu.identity().address.clone();
    let hwmon = mount
        .sys()
        .join("bus/pci/devices")
        .join(address)
        .join("hwmon/hwmon1");
    let cap = File::options()
        .read(true)
        .write(true)
        .open(hwmon.join("power1_cap"))?;
    // In turns, so that both see the same machine.
    let (mut domain, mut bare) = (Vec::new(), Vec::new());
    for number in 0..WARM_UP + SETS {
        let watts = CAPS[number % CAPS.len()];
        let times = [
            timed(|| set(gpu.as_mut(), watts))?,
            timed(|| write(&cap, watts))?,
        ];
        if number >= WARM_UP {
            domain.push(times[0]);
            bare.push(times[1]);
        }
    }
    let p99 = show("sysfs over FUSE, bare pwrite and pread", bare)?;
    let with = show("sysfs over FUSE, set with read-back", domain)?;
    println!(
        "  {:.2} of the limit of {LIMIT} us at p99; {:.2} of the bare calls",
        with / LIMIT,
        with / p99
    );
    println!("  ledger: {} writes", rig.ledger().len());
    Ok(())
}

/// Microseconds.
fn timed(act: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let begin = Instant::now();
    act()?;
    Ok(begin.elapsed().as_secs_f64() * 1e6)
}

fn set(domain: &mut dyn PowerDomain, watts: f64) -> Result<(), Box<dyn Error>> {
    match Operation::Set(Watts(watts)).perform(domain) {
        Reply::Set(Ok(cap)) if cap == Watts(watts) => Ok(()),
        other => Err(format!("{watts} W: {other:?}").into()),
    }
}

fn write(file: &File, watts: f64) -> Result<(), Box<dyn Error>> {
    let text = format!("{}\n", watts as u64 * 1_000_000);
    file.write_all_at(text.as_bytes(), 0)?;
    let mut buffer = [0; 64];
    let length = file.read_at(&mut buffer, 0)?;
    match buffer[..length] == *text.as_bytes() {
        true => Ok(()),
        false => Err(format!("{watts} W: another cap was read back").into()),
    }
}

/// Prints p50 and p99; the latter.
fn show(what: &str, times: Vec<f64>) -> Result<f64, Nothing> {
    let times = Samples::new(what, SETS, times)?;
    let p99 = times.percentile(99);
    println!(
        "{what}, {} times: p50 {:.1} us, p99 {p99:.1} us",
        times.count(),
        times.percentile(50)
    );
    Ok(p99)
}
