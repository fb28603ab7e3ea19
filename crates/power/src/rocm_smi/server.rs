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

use litd_bindings::{Error, Gpu, Library, Meaning, Sensor};
use litd_units::Watts;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::getppid;

use super::make::Make;
use super::protocol::{Answer, Cause, Description, Numbered, Refusal, Request};
use crate::child::{self, Place};
use crate::domain::{CapRange, Reading};

/// Where the library has its mutexes, one per GPU, for all processes of the node: `rocm_smi_card0` and so on, from
/// 6.4 on `rocm_smi_renderD128`.
const MUTEXES: (&str, &str) = ("/dev/shm", "rocm_smi_");

/// How long a GPU's mutex is waited for: other programs hold it for a moment at a time.
const BUSY: Duration = Duration::from_millis(500);

/// The unit of caps: the driver drops fractions of it.
const RESOLUTION: Watts = Watts(1.0);

/// Answers requests on standard input, which is a socket, until it is closed or the parent ends.
/// `arguments` are the back end, its library and the parent's process id; for a process that sets a device's cap also
/// the directory for its notes ([`child`]), the device's address and the parent's token.
pub(super) fn serve(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let (Some(back_end), Some(library), Some(parent)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return ExitCode::FAILURE;
    };
    let Some(make) = back_end.to_str().and_then(Make::called) else {
        eprintln!("no library of AMD's is called {}", back_end.display());
        return ExitCode::FAILURE;
    };
    let parent = parent.to_str().and_then(|pid| pid.parse().ok());
    let place = place(parent, arguments);
    match attend(make, parent).and_then(|()| converse(make, Path::new(&library), place)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Makes this process end when its parent does, and only then.
fn attend(make: Make, parent: Option<i32>) -> io::Result<()> {
    // Needed also while it hangs in the library and does not see that its socket is closed.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if parent != Some(getppid().as_raw()) {
        return Err(io::Error::other("the parent is gone"));
    }
    // systemd and terminals send these signals to all of a service's processes. The parent needs this one to
    // restore the caps.
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block()?;
    // The library's crashes are expected, and core dumps would delay the restart.
    prctl::set_dumpable(false)?;
    prctl::set_name(match make {
        Make::RocmSmi => c"litd-rocm-smi",
        Make::AmdSmi => c"litd-amd-smi",
    })?;
    Ok(())
}

/// Where this process notes that it sets a cap, by the arguments after the parent's id.
fn place(parent: Option<i32>, mut arguments: impl Iterator<Item = OsString>) -> Option<Place> {
    Some(Place {
        parent: parent.and_then(|pid| u32::try_from(pid).ok())?,
        directory: arguments.next()?.into(),
        device: arguments.next()?.into_string().ok()?,
        token: arguments.next()?.into_string().ok()?,
    })
}

/// Notes that this process sets a cap until the result is dropped. Without a note the cap is set all the same, as caps
/// have to be given back also where nothing can be written.
fn noted(place: &Place) -> Option<child::Note> {
    let noted = child::note(place);
    let directory = place.directory.display();
    noted
        .inspect_err(|error| eprintln!("{directory}: {error}"))
        .ok()
}

fn converse(make: Make, library: &Path, place: Option<Place>) -> io::Result<()> {
    let socket = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut requests = BufReader::with_capacity(1024, socket.try_clone()?);
    let mut answers = Answers { socket };
    match make {
        Make::RocmSmi => remove_mutexes(),
        // By default it makes none, and those of others are not its affair.
        Make::AmdSmi => {}
    }
    let smi = match make.open(library) {
        Ok(smi) => smi,
        Err(error) => {
            let cause = match error {
                Error::Refused { .. } => Cause::Init,
                Error::Load { .. } | Error::Missing(_) | Error::Version { .. } => Cause::Load,
            };
            return answers.send(0, Answer::Refused(refusal(cause, &error)));
        }
    };
    let named = Vec::new();
    let mut gpus = Gpus {
        make,
        smi: smi.as_ref(),
        named,
        place,
    };
    answers.send(0, Answer::Ready)?;
    let mut line = Vec::new();
    while requests.read_until(b'\n', &mut line)? > 0 {
        let Numbered { number, body } = serde_json::from_slice(&line)?;
        let answer = answer(&mut gpus, &body, &Patience::new());
        answers.send(number, answer.unwrap_or_else(Answer::Refused))?;
        line.clear();
    }
    Ok(())
}

/// Has the library make its mutexes anew; processes with an open one keep that.
///
/// Before 6.3 nothing else helps. A process that holds a mutex keeps the library from setting itself up. A mutex
/// whose holder has died, for example by a crash in a call, is taken by the next process that sets the library up,
/// and never released (shared_mutex.cc, `EOWNERDEAD`). Caps are single writes to the driver, which has a lock of
/// its own.
fn remove_mutexes() {
    let (folder, prefix) = MUTEXES;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(prefix.as_bytes())
        {
            // Fails for another user's file, if this is not root's process: the library will report it.
            let _ = fs::remove_file(entry.path());
        }
    }
}

struct Answers {
    socket: File,
}

impl Answers {
    /// In one write, because a crash in between would leave half an answer.
    fn send(&mut self, number: u64, body: Answer) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Numbered { number, body })?;
        line.push(b'\n');
        self.socket.write_all(&line)
    }
}

/// The library's GPUs, by their addresses.
struct Gpus<'l> {
    make: Make,
    smi: &'l dyn Library,
    named: Vec<(String, Box<dyn Gpu + 'l>)>,
    place: Option<Place>,
}

impl<'l> Gpus<'l> {
    /// Asks for the address of those that have none here yet.
    ///
    /// # Errors
    /// The last GPU whose address can't be read: the library does not tell it while another process
    /// has the GPU's mutex, as the processes of litd's other GPUs do for a moment while they start.
    fn name(&mut self) -> Result<(), Error> {
        let mut unnamed = Ok(());
        for gpu in self.smi.gpus()? {
            match gpu.pci_address() {
                // Partitions of one GPU share its address, and its cap.
                Ok(address) if self.at(&address).is_none() => self.named.push((address, gpu)),
                Ok(_) => {}
                Err(error) => unnamed = Err(error),
            }
        }
        unnamed
    }

    fn addresses(&mut self, patience: &Patience) -> Vec<String> {
        if let Err(error) = patience.ask(|| self.name()) {
            eprintln!("a GPU without an address: {error}");
        }
        let addresses = self.named.iter().map(|(address, _)| address.clone());
        addresses.collect()
    }

    fn find(&mut self, device: &str, patience: &Patience) -> Result<&dyn Gpu, Refusal> {
        let unnamed = match self.at(device) {
            Some(_) => Ok(()),
            None => patience.ask(|| match self.name() {
                Err(_) if self.at(device).is_some() => Ok(()),
                other => other,
            }),
        };
        match (self.at(device), unnamed) {
            (Some(at), _) => Ok(self.named[at].1.as_ref()),
            (None, Err(error)) => Err(refused(error)),
            (None, Ok(())) => Err(Refusal {
                cause: Cause::Gone,
                text: format!("{} does not list it", self.make.name()),
            }),
        }
    }

    fn at(&self, device: &str) -> Option<usize> {
        self.named.iter().position(|(address, _)| address == device)
    }
}

/// Until when a request waits for mutexes.
struct Patience {
    until: Instant,
}

impl Patience {
    fn new() -> Self {
        let until = Instant::now() + BUSY;
        Self { until }
    }

    /// Asks until no other process has the mutex.
    fn ask<T>(&self, mut ask: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        loop {
            match ask() {
                Err(error) if is_busy(&error) && Instant::now() < self.until => {
                    thread::sleep(Duration::from_millis(2));
                }
                other => return other,
            }
        }
    }

    /// Asks for a value that not every GPU has.
    ///
    /// # Errors
    /// The library can't say whether this one does, because another process has its mutex.
    fn told<T>(&self, ask: impl FnMut() -> Result<T, Error>) -> Result<Option<T>, Error> {
        match self.ask(ask) {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_busy(&error) => Err(error),
            Err(_) => Ok(None),
        }
    }
}

fn is_busy(error: &Error) -> bool {
    error.meaning() == Some(Meaning::Busy)
}

fn answer(gpus: &mut Gpus, request: &Request, patience: &Patience) -> Result<Answer, Refusal> {
    let answer = match request {
        Request::List => return Ok(Answer::Devices(gpus.addresses(patience))),
        Request::Describe(device) => {
            describe(gpus.find(device, patience)?, patience).map(Answer::Description)
        }
        Request::Range(device) => range(gpus.find(device, patience)?, patience).map(Answer::Range),
        Request::Cap(device) => cap(gpus.find(device, patience)?, patience).map(Answer::Cap),
        Request::Read(device) => read(gpus.find(device, patience)?, patience).map(Answer::Reading),
        Request::Set(device, watts) => {
            let note = gpus.place.as_ref().map(noted);
            let gpu = gpus.find(device, patience)?;
            let set = patience.ask(|| gpu.set_cap(*watts));
            drop(note);
            set.and_then(|()| cap(gpu, patience)).map(Answer::Cap)
        }
    };
    answer.map_err(refused)
}

/// Why the library refuses a request.
fn refused(error: Error) -> Refusal {
    let cause = match error.meaning() {
        Some(Meaning::OutOfRange) => Cause::OutOfRange,
        Some(Meaning::Permission) => Cause::Permission,
        Some(Meaning::Busy) => Cause::Busy,
        Some(Meaning::NotSupported | Meaning::Other) | None => Cause::Other,
    };
    refusal(cause, &error)
}

fn refusal(cause: Cause, error: &Error) -> Refusal {
    Refusal {
        cause,
        text: error.to_string(),
    }
}

fn describe(gpu: &dyn Gpu, patience: &Patience) -> Result<Description, Error> {
    let named = |text: Option<String>| text.filter(|text| !text.is_empty());
    Ok(Description {
        unique_id: patience.told(|| gpu.unique_id())?.filter(|&id| id != 0),
        serial: named(patience.told(|| gpu.serial_number())?),
        model: named(patience.told(|| gpu.name())?),
        driver: named(patience.told(|| gpu.driver_version())?),
    })
}

fn range(gpu: &dyn Gpu, patience: &Patience) -> Result<CapRange, Error> {
    let range = patience.ask(|| gpu.range())?;
    Ok(CapRange {
        lowest: range.lowest,
        highest: range.highest,
        // Older drivers don't tell; the highest is what most GPUs start with.
        default: match patience.ask(|| gpu.default_cap()) {
            Err(error) if error.meaning() == Some(Meaning::NotSupported) => range.highest,
            other => other?,
        },
        resolution: RESOLUTION,
    })
}

fn cap(gpu: &dyn Gpu, patience: &Patience) -> Result<Watts, Error> {
    patience.ask(|| gpu.cap())
}

fn read(gpu: &dyn Gpu, patience: &Patience) -> Result<Reading, Error> {
    // MI300X has no sensor at its edge.
    let mut temperature = None;
    for sensor in [Sensor::Junction, Sensor::Edge] {
        if temperature.is_none() {
            let told = patience.told(|| gpu.temperature(sensor))?;
            temperature = told.map(|degrees| (sensor, degrees));
        }
    }
    let slowdown = match temperature {
        Some((sensor, _)) => patience.told(|| gpu.critical_temperature(sensor))?,
        None => None,
    };
    let energy = patience.told(|| gpu.energy())?;
    Ok(Reading {
        cap: cap(gpu, patience)?,
        power: patience.told(|| gpu.power())?,
        energy: energy.filter(|energy| energy.is_finite()),
        temperature: temperature.map(|(_, degrees)| degrees),
        slowdown,
        ..Reading::default()
    })
}
