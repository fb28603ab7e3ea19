//! The process that has the library in it. It may crash, hang or answer nonsense at any time:
//! litd, its parent, notices and starts another.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{fs, thread};

use litd_bindings::rocm_smi::{Error, Gpu, RocmSmi, Sensor, Status};
use litd_units::Watts;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::getppid;

use super::protocol::{Answer, Cause, Description, Numbered, Refusal, Request};
use crate::domain::{CapRange, Reading};

/// Where ROCm's own packages have the library, unknown to the dynamic linker.
const ROCM: &str = "/opt/rocm/lib/librocm_smi64.so";

/// Where the library has its mutexes, one per GPU, for all processes of the node.
const MUTEXES: (&str, &str) = ("/dev/shm", "rocm_smi_card");

/// How long a GPU's mutex is waited for: other programs hold it for a moment at a time.
const BUSY: Duration = Duration::from_millis(500);

/// The unit of caps: the driver drops what is below.
const RESOLUTION: Watts = Watts(1.0);

/// Answers requests on standard input, which is a socket, until it is closed or the parent ends.
/// `arguments` are the library and the parent's process id.
pub(super) fn serve(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let (Some(library), Some(parent)) = (arguments.next(), arguments.next()) else {
        return ExitCode::FAILURE;
    };
    let parent = parent.to_str().and_then(|pid| pid.parse().ok());
    match attend(parent).and_then(|()| converse(Path::new(&library))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Makes this process one that ends when its parent does, and only then.
fn attend(parent: Option<i32>) -> io::Result<()> {
    // Also while it hangs in the library and does not see that its socket is closed.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if parent != Some(getppid().as_raw()) {
        return Err(io::Error::other("the parent is gone"));
    }
    // systemd and terminals send these to all of a service's processes. The parent needs this
    // one to give the caps back.
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block()?;
    // The library's crashes are expected: nobody wants to wait for their core dumps.
    prctl::set_dumpable(false)?;
    prctl::set_name(c"litd-rocm-smi")?;
    Ok(())
}

fn converse(library: &Path) -> io::Result<()> {
    let socket = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut requests = BufReader::with_capacity(1024, socket.try_clone()?);
    let mut answers = Answers { socket };
    remove_mutexes();
    let smi = match open(library) {
        Ok(smi) => smi,
        Err(error) => {
            let cause = match error {
                Error::Refused { .. } => Cause::Init,
                Error::Load { .. } | Error::Missing(_) => Cause::Load,
            };
            return answers.send(0, Answer::Refused(refusal(cause, &error)));
        }
    };
    let gpus = match list(&smi) {
        Ok(gpus) => gpus,
        Err(error) => return answers.send(0, Answer::Refused(refusal(Cause::Init, &error))),
    };
    answers.send(0, Answer::Ready)?;
    let mut line = Vec::new();
    while requests.read_until(b'\n', &mut line)? > 0 {
        let Numbered { number, body } = serde_json::from_slice(&line)?;
        answers.send(number, patiently(|| answer(&smi, &gpus, &body)))?;
        line.clear();
    }
    Ok(())
}

/// Has the library make its mutexes anew; who has one open keeps that.
///
/// Before 6.3 nothing else helps. Whoever holds one keeps the library from setting itself up. One
/// whose holder has died, as a process that crashed in a call has, is taken by the next process
/// that sets the library up, and never given back (shared_mutex.cc, `EOWNERDEAD`). Caps are single
/// writes to the driver, which has a lock of its own.
fn remove_mutexes() {
    let (folder, prefix) = MUTEXES;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(prefix.as_bytes())
        {
            // Another user's, if this is not root's process: the library will tell.
            let _ = fs::remove_file(entry.path());
        }
    }
}

struct Answers {
    socket: File,
}

impl Answers {
    /// In one write, because what is cut off by a crash would have to be told apart.
    fn send(&mut self, number: u64, body: Answer) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Numbered { number, body })?;
        line.push(b'\n');
        self.socket.write_all(&line)
    }
}

fn open(library: &Path) -> Result<RocmSmi, Error> {
    let is_name = library.components().count() == 1 && !library.is_absolute();
    match RocmSmi::open(library) {
        Err(Error::Load { library, cause }) if is_name => match RocmSmi::open(Path::new(ROCM)) {
            Err(Error::Load { .. }) => Err(Error::Load { library, cause }),
            other => other,
        },
        other => other,
    }
}

/// All GPUs by their addresses; one whose address can't be read is none.
fn list(smi: &RocmSmi) -> Result<Vec<(String, Gpu<'_>)>, Error> {
    let mut gpus: Vec<(String, Gpu)> = Vec::new();
    for gpu in smi.gpus()? {
        match gpu.pci_address() {
            // Partitions of one GPU share its address, and its cap.
            Ok(address) if gpus.iter().all(|(other, _)| *other != address) => {
                gpus.push((address, gpu));
            }
            Ok(_) => {}
            Err(error) => eprintln!("a GPU without an address: {error}"),
        }
    }
    Ok(gpus)
}

fn patiently(mut ask: impl FnMut() -> Answer) -> Answer {
    let until = Instant::now() + BUSY;
    loop {
        let answer = ask();
        let is_busy = matches!(&answer, Answer::Refused(refusal) if refusal.cause == Cause::Busy);
        if !is_busy || Instant::now() > until {
            return answer;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn answer(smi: &RocmSmi, gpus: &[(String, Gpu)], request: &Request) -> Answer {
    let done = match request {
        Request::List => {
            let addresses = gpus.iter().map(|(address, _)| address.clone());
            return Answer::Devices(addresses.collect());
        }
        Request::Describe(device) => {
            find(gpus, device).map(|gpu| Answer::Description(describe(smi, gpu)))
        }
        Request::Range(device) => {
            find(gpus, device).and_then(|gpu| done(range(gpu).map(Answer::Range)))
        }
        Request::Cap(device) => find(gpus, device).and_then(|gpu| done(gpu.cap().map(Answer::Cap))),
        Request::Read(device) => {
            find(gpus, device).and_then(|gpu| done(read(gpu).map(Answer::Reading)))
        }
        Request::Set(device, watts) => find(gpus, device).and_then(|gpu| {
            let set = gpu.set_cap(*watts).and_then(|()| gpu.cap());
            done(set.map(Answer::Cap))
        }),
    };
    done.unwrap_or_else(Answer::Refused)
}

fn find<'g>(gpus: &'g [(String, Gpu<'g>)], device: &str) -> Result<&'g Gpu<'g>, Refusal> {
    let gpu = gpus.iter().find(|(address, _)| address == device);
    gpu.map(|(_, gpu)| gpu).ok_or_else(|| Refusal {
        cause: Cause::Gone,
        text: "ROCm SMI does not list it".into(),
    })
}

fn done(result: Result<Answer, Error>) -> Result<Answer, Refusal> {
    result.map_err(|error| {
        let cause = match error.status() {
            Some(Status::INVALID_ARGUMENTS | Status::OUT_OF_BOUNDS) => Cause::OutOfRange,
            Some(Status::PERMISSION) => Cause::Permission,
            Some(Status::BUSY) => Cause::Busy,
            _ => Cause::Other,
        };
        refusal(cause, &error)
    })
}

fn refusal(cause: Cause, error: &Error) -> Refusal {
    Refusal {
        cause,
        text: error.to_string(),
    }
}

fn describe(smi: &RocmSmi, gpu: &Gpu) -> Description {
    let named = |text: Result<String, Error>| text.ok().filter(|text| !text.is_empty());
    Description {
        unique_id: gpu.unique_id().ok().filter(|&id| id != 0),
        serial: named(gpu.serial_number()),
        model: named(gpu.name()),
        driver: named(smi.driver_version()),
    }
}

fn range(gpu: &Gpu) -> Result<CapRange, Error> {
    let range = gpu.range()?;
    Ok(CapRange {
        lowest: range.lowest,
        highest: range.highest,
        // Older drivers don't tell; the highest is what most GPUs start with.
        default: match gpu.default_cap() {
            Err(error) if error.status() == Some(Status::NOT_SUPPORTED) => range.highest,
            other => other?,
        },
        resolution: RESOLUTION,
    })
}

fn read(gpu: &Gpu) -> Result<Reading, Error> {
    // MI300X has no sensor at its edge.
    let sensors = [Sensor::Junction, Sensor::Edge];
    let temperature = sensors
        .into_iter()
        .find_map(|sensor| Some((sensor, gpu.temperature(sensor).ok()?)));
    Ok(Reading {
        cap: gpu.cap()?,
        power: gpu.power().ok(),
        energy: gpu.energy().ok().filter(|energy| energy.is_finite()),
        temperature: temperature.map(|(_, temperature)| temperature),
        slowdown: temperature.and_then(|(sensor, _)| gpu.critical_temperature(sensor).ok()),
        ..Reading::default()
    })
}
