//! A made-up `/sys` and `/dev` as a program, for what can't have it in its own process. It prints
//! where they are, then takes commands, one a line, and answers each with a line:
//!
//! ```text
//! sys=/tmp/litd-sysfs-x/sys dev=/tmp/litd-sysfs-x/dev
//! > iterate 3             ok
//! > inject 0 slow 500     ok            (milliseconds; enforced: watts)
//! > heal 0                ok
//! > foreign 1 650         ok
//! > holders 0 4711        ok
//! > held                  700 650 700 700 700 700 700 700 400 400
//! > writes                1
//! > violations            0
//! ```
//!
//! It ends, and unmounts, when its input does.
//!
//!   litd-rig-sysfs [powercap | hsmp-hwmon | hsmp-device] [mi200 | mi300] [SCENARIO]
//!
//! or a node that `litctl doctor --record` has recorded, which takes no commands; the first line ends with its
//! `proc=...`:
//!
//!   litd-rig-sysfs --recording FILE

use std::error::Error;
use std::fmt::Display;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use litd_recording::{LONGEST, Recording};
use litd_rig::{Fault, Hardware, SharedHardware, lock};
use litd_rig_sysfs::{Board, Cpus, Metrics, Mount};
use litd_sim::Scenario;
use litd_units::Watts;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("litd-rig-sysfs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    if let [option, path] = arguments
        && option == "--recording"
    {
        return play(Path::new(path));
    }
    let mut board = Board::default();
    let mut scenario = "default";
    for argument in arguments {
        match argument.as_str() {
            "powercap" => board.cpus = Cpus::Powercap,
            "hsmp-hwmon" => board.cpus = Cpus::HsmpHwmon,
            "hsmp-device" => board.cpus = Cpus::HsmpDevice,
            "mi200" => board.metrics = Metrics::V1_3,
            "mi300" => board.metrics = Metrics::V1_6,
            name => scenario = name,
        }
    }
    let hardware = Hardware::new(&Scenario::builtin(scenario)?, 1)?.shared();
    let mount = Mount::start(hardware.clone(), board)?;
    let mut output = io::stdout();
    let (sys, dev) = (mount.sys(), mount.dev());
    writeln!(output, "sys={} dev={}", sys.display(), dev.display())?;
    output.flush()?;
    for line in io::stdin().lock().lines() {
        let answer = match obey(&hardware, &line?) {
            Ok(answer) => answer,
            Err(error) => format!("error: {error}"),
        };
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}

/// Shows a recorded node until the input ends.
fn play(path: &Path) -> Result<(), Box<dyn Error>> {
    let named = |error: &dyn Display| format!("{}: {error}", path.display());
    let text = litd_files::read(path, LONGEST).map_err(|error| named(&error))?;
    let recording = Recording::parse(&text).map_err(|error| named(&error))?;
    let mount = Mount::recorded(&recording)?;
    let mut output = io::stdout();
    let (sys, dev, proc) = (mount.sys(), mount.dev(), mount.proc());
    writeln!(
        output,
        "sys={} dev={} proc={}",
        sys.display(),
        dev.display(),
        proc.display()
    )?;
    output.flush()?;
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    Ok(())
}

fn obey(hardware: &SharedHardware, line: &str) -> Result<String, Box<dyn Error>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut hardware = lock(hardware);
    match words.as_slice() {
        ["iterate", times] => {
            for _ in 0..times.parse::<u32>()? {
                hardware.run_iteration();
            }
        }
        ["settle"] => hardware.settle(),
        ["inject", device, fault @ ..] => hardware.inject(device.parse()?, parse(fault)?),
        ["heal", device] => hardware.heal(device.parse()?),
        ["foreign", device, watts] => {
            hardware.foreign_set(device.parse()?, Watts(watts.parse()?))?;
        }
        ["holders", device, pids @ ..] => {
            let pids: Result<_, _> = pids.iter().map(|pid| pid.parse()).collect();
            hardware.set_holders(device.parse()?, pids?);
        }
        ["held"] => {
            let held = hardware.ledger().held();
            let held: Vec<String> = held.iter().map(|cap| cap.0.to_string()).collect();
            return Ok(held.join(" "));
        }
        ["writes"] => return Ok(hardware.ledger().len().to_string()),
        ["violations"] => return Ok(hardware.ledger().check().len().to_string()),
        _ => return Err(format!("{line:?} is no command").into()),
    }
    Ok("ok".to_owned())
}

fn parse(words: &[&str]) -> Result<Fault, Box<dyn Error>> {
    let time = |text: &str| text.parse().map(Duration::from_millis);
    Ok(match words {
        ["refuse"] => Fault::Refuse,
        ["lie"] => Fault::Lie,
        ["block", milliseconds] => Fault::Block(time(milliseconds)?),
        ["slow", milliseconds] => Fault::Slow(time(milliseconds)?),
        ["gone"] => Fault::Gone,
        ["overdraw"] => Fault::Overdraw,
        ["no-permission"] => Fault::NoPermission,
        ["in-reset"] => Fault::InReset,
        ["cached"] => Fault::Cached,
        ["locked"] => Fault::Locked,
        ["heat"] => Fault::Heat,
        ["power-brake"] => Fault::PowerBrake,
        ["enforced", watts] => Fault::Enforced(Watts(watts.parse()?)),
        _ => return Err(format!("{words:?} is no fault").into()),
    })
}
