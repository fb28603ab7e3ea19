//! AMD GPUs through AMD's management libraries: ROCm SMI (`librocm_smi64`) and AMD SMI (`libamd_smi`), which succeeds
//! it.
//!
//! A library aborts on GPUs that it does not expect, and anybody on the node can block it: mutexes of ROCm SMI in
//! `/dev/shm` are open to all. So it is never loaded into litd's own process. Each GPU has a process of litd's
//! program with the library in it, started at its first use, asked over a socket with a deadline, and killed and
//! started again where it fails. A failure of one GPU's process costs that GPU one error.

mod make;
mod process;
mod protocol;
mod server;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use litd_units::Watts;
use nix::unistd::geteuid;

use self::make::Make;
use self::process::{Process, Recipe, Unanswered};
use self::protocol::{Answer, Cause, Description, Refusal, Request};
use crate::amdgpu::{self, address::Address, clients::Clients, holders::Nodes};
use crate::discovery::{Inventory, Notice, PATIENCE, Search, Severity};
use crate::domain::{CapRange, Handles, Identity, PowerDomain, Reading};
use crate::error::PowerError;
use crate::holder::Holder;
use crate::late::{self, Candidate, Look, Outcome};
use crate::node;

/// The first argument of a program that is to be the process with the library in it.
pub const COMMAND: &str = "rocm-smi-process";

/// The code of a program that is called with [`COMMAND`]; `arguments` are those after it. It answers on standard
/// input until that is closed.
pub fn serve(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    server::serve(arguments)
}

/// The remedy for a cap without permission.
const PERMISSION: &str = "the library sets caps for root only: run litd as root";

/// The remedy for a held mutex.
const MUTEX: &str = "`fuser /dev/shm/rocm_smi_*` tells who holds it; amd = \"amdgpu\" needs \
                     no mutex";

/// Finds all AMD GPUs that the library serves which `search.amd` names.
#[must_use]
pub fn discover(search: &Search) -> Inventory {
    discover_within(search, PATIENCE)
}

/// Like [`discover`], with another time after which the library, or a GPU's process, counts as hanging. Where the
/// library does not list the GPUs in time, those that the bus shows with their driver are used.
#[must_use]
pub fn discover_within(search: &Search, patience: Duration) -> Inventory {
    let deadline = Instant::now() + patience;
    let mut found = Inventory::default();
    let make = Make::of(search);
    let recipe = Recipe {
        program: search.own_program.clone(),
        make,
        library: make.library(search),
        start: process::start_within(patience),
        kept: search.kept.clone(),
    };
    let cards = amdgpu::cards(&search.sys, &mut found.notices);
    let asked = Recipe {
        kept: None,
        ..recipe.clone()
    };
    let names = match late::within(patience / 2, move || list(&asked)) {
        Some(Ok(names)) => names,
        Some(Err(unanswered)) => {
            found.notices.push(without_library(&recipe, unanswered));
            return found;
        }
        None => amdgpu::with_caps(&search.sys).collect(),
    };
    if names.is_empty() {
        let notice = Notice::new(
            Severity::Info,
            "AMD GPUs",
            format!("{} lists none", make.name()),
        );
        found
            .notices
            .push(notice.remedy("`modprobe amdgpu`, if the node has some"));
        return found;
    }
    let clients = Clients::new(&search.proc);
    let driver = node::driver(&search.sys, &search.proc, "amdgpu");
    let mut candidates = Vec::new();
    for name in names {
        let Ok(address) = name.parse::<Address>() else {
            let library = make.name();
            let text = format!(
                "{library} gives a GPU this address, which is not a PCI address: litd leaves that GPU alone"
            );
            found.notices.push(Notice::new(Severity::Error, name, text));
            continue;
        };
        let device = cards.get(&address).cloned();
        let device = device.unwrap_or_else(|| search.sys.join("bus/pci/devices").join(&name));
        let identity = Identity {
            backend: make.back_end().into(),
            ..amdgpu::unasked(&device, address, driver.clone())
        };
        let (search, recipe, clients) = (search.clone(), recipe.clone(), clients.clone());
        let ask = move || ask(&search, &recipe, &clients, address, &device);
        candidates.push(Candidate {
            identity,
            ask: Box::new(ask),
        });
    }
    let left = deadline.saturating_duration_since(Instant::now());
    late::look_at_all(candidates, left, &mut found);
    amdgpu::keep_one_of_each_socket(&mut found);
    if !geteuid().is_root() {
        let notice = Notice::new(Severity::Error, "AMD GPUs", "their caps may not be set");
        found.notices.push(notice.remedy(PERMISSION));
    }
    found.sort();
    found
}

/// Asks a GPU's driver, and the library in a process that ends with this one: it lives no longer than the thread
/// that has started it.
fn ask(
    search: &Search,
    recipe: &Recipe,
    clients: &Clients,
    address: Address,
    device: &Path,
) -> Look {
    let name = address.to_string();
    if amdgpu::is_second_die(device) {
        return Look {
            outcome: Outcome::NoCap,
            notices: vec![amdgpu::second_die(&name)],
        };
    }
    let mut notices = Vec::new();
    let mut process = Process::new(recipe.clone(), name.clone());
    let description = describe(&mut process, name.clone(), &mut notices);
    let driver = node::driver(&search.sys, &search.proc, "amdgpu");
    let make = recipe.make;
    let gpu = Gpu {
        identity: identity(make, device, address, description, driver),
        process: Process::new(recipe.clone(), name),
        address,
        device: device.to_owned(),
        sys: search.sys.clone(),
        clients: clients.clone(),
    };
    Look {
        outcome: Outcome::Domain(Box::new(gpu)),
        notices,
    }
}

fn list(recipe: &Recipe) -> Result<Vec<String>, Unanswered> {
    let mut process = Process::new(recipe.clone(), "AMD GPUs".into());
    process.ask(&Request::List, "listing them", |answer| match answer {
        Answer::Devices(addresses) => Some(addresses),
        _ => None,
    })
}

/// Why no GPU is found, and the remedy.
fn without_library(recipe: &Recipe, unanswered: Unanswered) -> Notice {
    let (make, library) = (recipe.make, recipe.library.display());
    let (text, remedy) = match unanswered {
        Unanswered::Refused(Refusal {
            cause: Cause::Load,
            text,
        }) => (
            text,
            format!(
                "install {} (Debian: {}), say where {library} is with {}_library, or use \
                 amd = \"amdgpu\", which needs no library",
                make.name(),
                make.package(),
                make.back_end()
            ),
        ),
        Unanswered::Refused(refusal) => (
            refusal.text,
            format!(
                "it needs a loaded driver (`modprobe amdgpu`) and no process that holds its mutexes: {MUTEX}"
            ),
        ),
        Unanswered::Error(error) => (
            error.to_string(),
            "use amd = \"amdgpu\", which needs no library".into(),
        ),
    };
    Notice::new(Severity::Error, format!("{library}"), text).remedy(remedy)
}

/// The library's description of a GPU; empty where it gives none.
fn describe(process: &mut Process, device: String, notices: &mut Vec<Notice>) -> Description {
    const ACTION: &str = "asking for its name";
    let request = Request::Describe(device.clone());
    let answer = process.ask(&request, ACTION, |answer| match answer {
        Answer::Description(description) => Some(description),
        _ => None,
    });
    let text = match answer {
        Ok(description) => return description,
        Err(Unanswered::Refused(refusal)) => refusal.text,
        Err(Unanswered::Error(error)) => error.to_string(),
    };
    let text = format!("its name can't be read: {text}");
    notices.push(Notice::new(Severity::Warning, device, text));
    Description::default()
}

/// The identity by the driver's files, and by the library where it has more.
fn identity(
    make: Make,
    device: &Path,
    address: Address,
    description: Description,
    known: String,
) -> Identity {
    let Description {
        unique_id,
        serial,
        model,
        driver,
    } = description;
    let driver = match driver {
        Some(version) => format!("amdgpu {version}"),
        None => known,
    };
    // AMD SMI asks libdrm for it, too, which wants the GPU's device node.
    let unique_id = unique_id.or_else(|| amdgpu::unique_id(device));
    let identity = amdgpu::identity(device, address, unique_id, driver);
    // Without a list of names the library gives the model's number.
    let named = model.filter(|model| !model.starts_with("0x"));
    Identity {
        serial: serial.or(identity.serial),
        model: named.unwrap_or(identity.model),
        backend: make.back_end().into(),
        ..identity
    }
}

/// A GPU and the process that has the library for it.
struct Gpu {
    identity: Identity,
    process: Process,
    address: Address,
    /// The folder in sysfs.
    device: PathBuf,
    sys: PathBuf,
    clients: Clients,
}

impl Gpu {
    fn name(&self) -> String {
        self.identity.address.clone()
    }

    fn ask<T>(
        &mut self,
        request: &Request,
        action: &'static str,
        take: impl FnOnce(Answer) -> Option<T>,
    ) -> Result<T, PowerError> {
        let answer = self.process.ask(request, action, take);
        answer.map_err(|unanswered| match unanswered {
            Unanswered::Error(error) => error,
            Unanswered::Refused(refusal) => self.refused(refusal, action),
        })
    }

    fn refused(&self, Refusal { cause, text }: Refusal, action: &'static str) -> PowerError {
        let device = self.name();
        match cause {
            Cause::Permission => PowerError::Permission {
                device,
                action,
                hint: format!("{text}: {PERMISSION}"),
            },
            Cause::Gone => PowerError::Gone {
                device,
                cause: text,
            },
            Cause::Busy | Cause::Init => PowerError::Driver {
                device,
                action,
                cause: format!("{text}: {MUTEX}"),
            },
            _ if !self.device.exists() => PowerError::Gone {
                device,
                cause: text,
            },
            _ => PowerError::Driver {
                device,
                action,
                cause: text,
            },
        }
    }

    fn driver(&self, action: &'static str, cause: String) -> PowerError {
        PowerError::Driver {
            device: self.name(),
            action,
            cause,
        }
    }

    /// Why a cap was not set as asked: `cause`, unless it is out of range.
    fn unset(&mut self, asked: Watts, action: &'static str, cause: String) -> PowerError {
        let lowest = |range: CapRange| range.lowest.max(range.resolution);
        match self.range() {
            Ok(range) if !(lowest(range)..=range.highest).contains(&asked) => {
                PowerError::OutOfRange {
                    device: self.name(),
                    asked,
                    lowest: lowest(range),
                    highest: range.highest,
                }
            }
            Ok(_) => self.driver(action, cause),
            Err(error) => error,
        }
    }
}

impl PowerDomain for Gpu {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn identify(&mut self) -> Result<Identity, PowerError> {
        let driver = self.identity.driver.clone();
        if self.identity.uuid.is_none() {
            // The library did not describe the GPU when it was found.
            let name = self.name();
            let description = describe(&mut self.process, name, &mut Vec::new());
            let make = self.process.make();
            self.identity = identity(make, &self.device, self.address, description, driver);
            return Ok(self.identity.clone());
        }
        // The driver tells the partitions; the library's names stay.
        self.identity.sharing = amdgpu::identity(&self.device, self.address, None, driver).sharing;
        Ok(self.identity.clone())
    }

    fn range(&mut self) -> Result<CapRange, PowerError> {
        let request = Request::Range(self.name());
        self.ask(
            &request,
            "reading the range of caps",
            |answer| match answer {
                Answer::Range(range) => Some(range),
                _ => None,
            },
        )?
        .checked(&self.identity.address)
    }

    fn cap(&mut self) -> Result<Watts, PowerError> {
        let request = Request::Cap(self.name());
        self.ask(&request, "reading the cap", |answer| match answer {
            Answer::Cap(cap) => Some(cap),
            _ => None,
        })
    }

    fn set_cap(&mut self, cap: Watts) -> Result<(), PowerError> {
        const ACTION: &str = "setting the cap";
        // As the driver rounds. The cast turns NaN and negative numbers into 0, which the library would take for
        // "the default".
        let watts = cap.0.floor() as u32;
        if watts == 0 {
            return Err(self.unset(cap, ACTION, format!("a cap of {cap} is not possible")));
        }
        let request = Request::Set(self.name(), watts);
        let answer = self.process.ask(&request, ACTION, |answer| match answer {
            Answer::Cap(read) => Some(read),
            _ => None,
        });
        match answer {
            Ok(read) if read.0.floor() == f64::from(watts) => Ok(()),
            Ok(read) => {
                let cause = format!("the library reports success, and the cap is {read}");
                Err(self.unset(cap, ACTION, cause))
            }
            Err(Unanswered::Refused(refusal)) if refusal.cause == Cause::OutOfRange => {
                Err(self.unset(cap, ACTION, refusal.text))
            }
            Err(Unanswered::Refused(refusal)) => Err(self.refused(refusal, ACTION)),
            Err(Unanswered::Error(error)) => Err(error),
        }
    }

    fn read(&mut self) -> Result<Reading, PowerError> {
        let request = Request::Read(self.name());
        self.ask(&request, "reading the sensors", |answer| match answer {
            Answer::Reading(reading) => Some(reading),
            _ => None,
        })
    }

    fn holders(&mut self) -> Result<Vec<Holder>, PowerError> {
        let nodes = Nodes::find(&self.sys, &self.device, &self.address);
        let holders = nodes.holders(&self.sys, &self.clients);
        holders.map_err(|error| self.driver("listing the processes", error.to_string()))
    }

    fn release(&mut self) -> Handles {
        self.process.close();
        Handles::Closed
    }
}
