//! Hardware, drivers over it, and the back end over those.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use litd_power::{
    AmdBackEnd, Inventory, Operation, PowerDomain, PowerError, Reading, Reply, Search,
};
use litd_power::{discover_within, simulated};
use litd_rig::{Entry, Fault, Hardware, Rig};
use litd_rig_sysfs::{Board, Mount, obstacle, with_sys_covered};
use litd_sim::Scenario;
use litd_units::Watts;

use crate::table::Row;

/// So long a driver may take to answer on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// The drivers under a back end.
#[derive(Debug, Clone, Copy)]
pub enum Drivers {
    /// The rig's socket.
    Node,
    /// The stand-in library, which talks to that.
    Nvml,
    /// Files below a made-up `/sys` and `/dev`.
    Files(Board),
    /// Files that cover `/sys`, for the real library.
    Library(Library, Board),
}

/// A real library of AMD's.
#[derive(Debug, Clone, Copy)]
pub enum Library {
    /// ROCm SMI as this system has it.
    RocmSmi,
    /// ROCm SMI of another suite of Debian's, with that one's C library: both below `target/tools`, in this folder.
    RocmSmiOf(&'static str),
    /// AMD SMI of such a suite.
    AmdSmiOf(&'static str),
}

/// A node of eight GPUs and two sockets with the drivers of one row.
pub struct Stand {
    pub rig: Rig,
    search: Search,
    device: usize,
    row: Row,
    mount: Option<Mount>,
}

impl Stand {
    /// `None` if these drivers can't be had here.
    pub fn start(row: &Row) -> Option<Self> {
        let rig = Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
        // Warm, and with readings of a whole iteration.
        rig.hardware().settle();
        rig.hardware().run_iteration();
        let mut mount = None;
        let nowhere = rig.layout().directory.join("nowhere");
        let search = match row.drivers {
            Drivers::Node => Search {
                sys: nowhere,
                ..Search::default()
            },
            Drivers::Nvml => Search {
                sys: rig.install_nvidia_bus().unwrap(),
                own_program: OWN_PROGRAM.into(),
                nvml_library: rig.install_nvml().unwrap(),
                ..Search::default()
            },
            Drivers::Files(board) => mounted(&rig, board, &mut mount)?.search(),
            Drivers::Library(library, board) => {
                let search = library.search(&rig)?;
                mounted(&rig, board, &mut mount)?;
                search
            }
        };
        Some(Self {
            rig,
            search,
            device: row.device,
            row: row.clone(),
            mount,
        })
    }

    /// Does one duty, where the drivers' files are where the row wants them. A pointer to a function, so that what
    /// makes a thread for it is compiled once and not for each of two hundred tests.
    ///
    /// Five processes that want one mutex of ROCm SMI's wait for it for too long where other tests have its library
    /// work, too: no such test runs beside that one.
    pub fn run(self, name: &str, duty: fn(&Self, &Row)) {
        static LIBRARIES: RwLock<()> = RwLock::new(());
        match (self.row.drivers, &self.mount) {
            (Drivers::Library(..), Some(mount)) => {
                let is_alone = name == "concurrent_readers";
                let _alone =
                    is_alone.then(|| LIBRARIES.write().unwrap_or_else(PoisonError::into_inner));
                let _beside =
                    (!is_alone).then(|| LIBRARIES.read().unwrap_or_else(PoisonError::into_inner));
                with_sys_covered(&mount.sys(), || duty(&self, &self.row)).unwrap();
            }
            _ => duty(&self, &self.row),
        }
    }

    /// All devices that the row's back end finds, each as its driver tells: a busy machine's drivers are waited
    /// for.
    pub fn inventory(&self) -> Inventory {
        match self.row.source {
            Some(source) => discover_within(&self.search, source, PATIENCE),
            None => Inventory {
                domains: simulated::discover(&self.rig.layout().hardware()).unwrap(),
                notices: Vec::new(),
            },
        }
    }

    /// The same, where nothing is waited for any longer; none of litd's stand-in, whose list is one answer.
    pub fn inventory_within(&self, patience: Duration) -> Option<Inventory> {
        let source = self.row.source?;
        Some(discover_within(&self.search, source, patience))
    }

    /// The device that is tried, found anew.
    pub fn domain(&self) -> Box<dyn PowerDomain> {
        let found = self.inventory();
        let (address, text) = (self.row.address(), format!("{found:?}"));
        let mut domains = found.domains.into_iter();
        domains
            .find(|domain| domain.identity().address == address)
            .unwrap_or_else(|| panic!("no {address} in {text}"))
    }

    /// Another device of the same back end.
    pub fn another(&self) -> Box<dyn PowerDomain> {
        let address = self.row.address();
        let mut domains = self.inventory().domains.into_iter();
        domains
            .find(|domain| domain.identity().address != address)
            .unwrap()
    }

    pub fn hardware(&self) -> MutexGuard<'_, Hardware> {
        self.rig.hardware()
    }

    pub fn inject(&self, fault: Fault) {
        self.hardware().inject(self.device, fault);
    }

    pub fn heal(&self) {
        self.hardware().heal(self.device);
    }

    /// The cap of the plant.
    pub fn held(&self) -> Watts {
        self.rig.ledger().held()[self.device]
    }

    /// The plant's measurements.
    pub fn truth(&self) -> Reading {
        self.hardware().reading(self.device).unwrap()
    }

    /// The clock that the plant's GPU is locked to, in MHz.
    pub fn locked(&self) -> Option<u32> {
        let hardware = self.hardware();
        let gpu = hardware.nvidia().gpus.get(self.device)?;
        gpu.clocks.map(|(_, highest)| highest)
    }

    /// A file of the device's driver, for a back end of such files.
    pub fn file_of_device(&self, name: &str) -> Option<PathBuf> {
        let sys = self.mount.as_ref()?.sys();
        Some(
            sys.join("bus/pci/devices")
                .join(self.row.address())
                .join(name),
        )
    }

    /// A cap well within the device's range: so much of the highest.
    pub fn cap(&self, part: f64) -> Watts {
        let range = self.hardware().listed(self.device).unwrap().range;
        Watts((range.highest.0 * part).floor())
    }

    pub fn entries(&self) -> Vec<Entry> {
        self.rig.ledger().entries()
    }
}

/// The program with the process that has a vendor's library in it.
const OWN_PROGRAM: &str = env!("CARGO_BIN_EXE_litd-rig-node");

/// The library of ROCm SMI.
const ROCM_SMI: &str = "librocm_smi64.so.1";

/// The library of AMD SMI.
const AMD_SMI: &str = "libamd_smi.so.27";

impl Library {
    /// Where litd is to look, unless the library is not here.
    fn search(self, rig: &Rig) -> Option<Search> {
        let (name, suite) = match self {
            Self::RocmSmi => (ROCM_SMI, None),
            Self::RocmSmiOf(suite) => (ROCM_SMI, Some(suite)),
            Self::AmdSmiOf(suite) => (AMD_SMI, Some(suite)),
        };
        let (library, own_program) = match suite {
            None if is_installed(name) => (name.into(), OWN_PROGRAM.into()),
            None => {
                eprintln!("SKIPPED: there is no {name}");
                return None;
            }
            Some(suite) => unpacked(rig, name, suite)?,
        };
        let usual = Search {
            own_program,
            ..Search::default()
        };
        Some(match self {
            Self::RocmSmi | Self::RocmSmiOf(_) => Search {
                amd: AmdBackEnd::RocmSmi,
                rocm_smi_library: library,
                ..usual
            },
            Self::AmdSmiOf(_) => Search {
                amd: AmdBackEnd::AmdSmi,
                amd_smi_library: library,
                ..usual
            },
        })
    }
}

/// A library that the gate has unpacked, and the program that can load it.
fn unpacked(rig: &Rig, name: &str, suite: &str) -> Option<(PathBuf, PathBuf)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tools = here.join("../../target/tools").join(suite);
    let library = tools.join("usr/lib/x86_64-linux-gnu").join(name);
    if !library.exists() {
        eprintln!("SKIPPED: no {name} below {}", tools.display());
        return None;
    }
    let beside = |name: &str, target: &Path| {
        let link = rig.layout().directory.join(name);
        symlink(target, &link).unwrap();
        link
    };
    beside("root", &tools);
    beside("program", OWN_PROGRAM.as_ref());
    let script = here.join("tests/conformance/with-its-libc");
    Some((library, beside("with-its-libc", &script)))
}

fn mounted<'a>(rig: &Rig, board: Board, mount: &'a mut Option<Mount>) -> Option<&'a Mount> {
    if let Some(why) = obstacle() {
        eprintln!("SKIPPED: {why}");
        return None;
    }
    let mounted = Mount::start(rig.shared_hardware(), board).unwrap();
    Some(mount.insert(mounted))
}

/// Whether the dynamic linker would find a library.
fn is_installed(library: &str) -> bool {
    let listed = Command::new("ldconfig").arg("-p").output();
    listed.is_ok_and(|listed| String::from_utf8_lossy(&listed.stdout).contains(library))
}

/// Sets and reads back, as litd's device threads do.
pub fn set(domain: &mut dyn PowerDomain, cap: Watts) -> Result<Watts, PowerError> {
    match Operation::Set(cap).perform(domain) {
        Reply::Set(result) => result,
        other => panic!("{other:?}"),
    }
}
