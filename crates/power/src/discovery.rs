//! Finding a node's devices: which driver serves which, and the obstacles.

use std::cmp::Ordering;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::{DeviceKind, PowerDomain};
use crate::{amdgpu, hsmp, nvml, powercap, processor, rocm_smi};

/// Where the back ends look. Every root can be put elsewhere, for containers and tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Search {
    /// Where sysfs is mounted.
    pub sys: PathBuf,
    /// Where device nodes are.
    pub dev: PathBuf,
    /// Where procfs is mounted, with the processes of the whole node.
    pub proc: PathBuf,
    /// The back end for AMD GPUs.
    pub amd: AmdBackEnd,
    /// The back end for NVIDIA GPUs.
    pub nvidia: NvidiaBackEnd,
    /// Whether CPU sockets are looked for.
    pub cpus: bool,
    /// NVML: a name that the dynamic linker finds, or a path.
    pub nvml_library: PathBuf,
    /// ROCm SMI: a name that the dynamic linker finds, or a path.
    pub rocm_smi_library: PathBuf,
    /// AMD SMI: a name that the dynamic linker finds, or a path.
    pub amd_smi_library: PathBuf,
    /// The program that calls [`rocm_smi::serve`] when its first argument is [`rocm_smi::COMMAND`], and
    /// [`nvml::look`] when it is [`nvml::LOOK`], [`nvml::keep`] when it is [`nvml::KEEP`].
    pub own_program: PathBuf,
    /// Where files are kept that have to outlive the process: a directory of the daemon's alone, emptied when the
    /// node boots. `None`: nothing is kept.
    pub kept: Option<PathBuf>,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            sys: "/sys".into(),
            dev: "/dev".into(),
            proc: "/proc".into(),
            amd: AmdBackEnd::default(),
            nvidia: NvidiaBackEnd::default(),
            cpus: true,
            nvml_library: "libnvidia-ml.so.1".into(),
            rocm_smi_library: "librocm_smi64.so.1".into(),
            amd_smi_library: "libamd_smi.so.27".into(),
            // The running program, also after its file was replaced by another version.
            own_program: "/proc/self/exe".into(),
            kept: None,
        }
    }
}

/// The back end for AMD GPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AmdBackEnd {
    /// The driver's own files: true error numbers, no mutex, nothing that can crash.
    #[default]
    Amdgpu,
    /// The library `librocm_smi64`, in a process of its own.
    RocmSmi,
    /// The library `libamd_smi`, which succeeds that one, in a process of its own.
    AmdSmi,
    /// No back end: AMD GPUs are left alone.
    Off,
}

/// The back end for NVIDIA GPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NvidiaBackEnd {
    /// The library `libnvidia-ml`.
    #[default]
    Nvml,
    /// No back end: NVIDIA GPUs are left alone.
    Off,
}

/// Devices of one vendor, found independently of all others': a driver that blocks keeps only its own devices from
/// being found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// AMD GPUs.
    Amd,
    /// NVIDIA GPUs.
    Nvidia,
    /// CPU sockets.
    Cpus,
}

impl Source {
    /// All sources, in the order in which their devices are numbered.
    pub const ALL: [Self; 3] = [Self::Amd, Self::Nvidia, Self::Cpus];
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Amd => "AMD GPUs",
            Self::Nvidia => "NVIDIA GPUs",
            Self::Cpus => "CPU sockets",
        })
    }
}

/// How much a notice matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know.
    Info,
    /// The device works, but not as well as it could.
    Warning,
    /// A device is there that litd can't use.
    Error,
}

/// An observation while devices were looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// How much it matters.
    pub severity: Severity,
    /// The device, file or library.
    pub subject: String,
    /// The observation.
    pub text: String,
    /// The remedy, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Notice {
    /// A notice without a remedy.
    pub fn new(severity: Severity, subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            severity,
            subject: subject.into(),
            text: text.into(),
            remedy: None,
        }
    }

    /// The same, with a remedy.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.text)?;
        match &self.remedy {
            Some(remedy) => write!(f, ": {remedy}"),
            None => Ok(()),
        }
    }
}

/// The result of a search.
#[derive(Default)]
pub struct Inventory {
    /// The devices.
    pub domains: Vec<Box<dyn PowerDomain>>,
    /// Observations.
    pub notices: Vec<Notice>,
}

impl fmt::Debug for Inventory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let identities = self.domains.iter().map(|domain| domain.identity());
        f.debug_struct("Inventory")
            .field("domains", &identities.collect::<Vec<_>>())
            .field("notices", &self.notices)
            .finish()
    }
}

impl Inventory {
    /// Adds the result of another search. Of two devices with one address the first stays: two writers of one cap
    /// would undo each other's work.
    pub fn extend(&mut self, other: Self) {
        self.notices.extend(other.notices);
        for domain in other.domains {
            let identity = domain.identity();
            let mut known = self.domains.iter().map(|domain| domain.identity());
            let Some(first) =
                known.find(|first| first.address.eq_ignore_ascii_case(&identity.address))
            else {
                self.domains.push(domain);
                continue;
            };
            let text = format!(
                "two back ends find this device, {} and {}: litd uses {}",
                first.backend, identity.backend, first.backend
            );
            let notice = Notice::new(Severity::Error, &identity.address, text);
            let remedy = "set one of the two to \"off\" in [hardware]";
            self.notices.push(notice.remedy(remedy));
        }
    }

    /// GPUs by PCI address, then CPU sockets by number: the same each time.
    pub fn sort(&mut self) {
        self.domains.sort_by(|a, b| order(a.as_ref(), b.as_ref()));
    }
}

fn order(a: &dyn PowerDomain, b: &dyn PowerDomain) -> Ordering {
    let key = |domain: &dyn PowerDomain| {
        let identity = domain.identity();
        (
            identity.kind == DeviceKind::Cpu,
            processor::number_in(&identity.address),
            identity.address.clone(),
        )
    };
    key(a).cmp(&key(b))
}

/// How long back ends wait for a driver's list of devices by default.
pub(crate) const PATIENCE: Duration = Duration::from_secs(4);

/// Finds the devices of one source, waiting for each only for the default time.
#[must_use]
pub fn discover(search: &Search, source: Source) -> Inventory {
    discover_within(search, source, PATIENCE)
}

/// Finds the devices of one source. Each is examined on a thread of its own. A device that does not answer within
/// `patience` is included if it is known without its driver; its first use then waits for the driver. Calls that
/// serve all of a driver's devices at once may still block.
#[must_use]
pub fn discover_within(search: &Search, source: Source, patience: Duration) -> Inventory {
    let mut found = Inventory::default();
    discover_in_parts(search, source, patience, |part| found.extend(part));
    found
}

/// The same, for whoever waits no longer than for some time: each part is handed over as soon as it is found, so that
/// what blocks after it costs none of its devices.
pub fn discover_in_parts(
    search: &Search,
    source: Source,
    patience: Duration,
    mut found: impl FnMut(Inventory),
) {
    match source {
        Source::Amd => match search.amd {
            AmdBackEnd::Amdgpu => found(amdgpu::discover_within(search, patience)),
            AmdBackEnd::RocmSmi | AmdBackEnd::AmdSmi => {
                found(rocm_smi::discover_within(search, patience))
            }
            AmdBackEnd::Off => {}
        },
        Source::Nvidia => match search.nvidia {
            NvidiaBackEnd::Nvml => found(nvml::discover_within(search, patience)),
            NvidiaBackEnd::Off => {}
        },
        Source::Cpus if search.cpus => {
            found(powercap::discover_within(search, patience / 2));
            found(hsmp::discover_within(search, patience / 2));
        }
        Source::Cpus => {}
    }
    if source == Source::ALL[0] {
        found(Inventory {
            notices: missing_roots(search).collect(),
            ..Inventory::default()
        });
    }
}

/// Notices about roots that do not exist, which look like a node without devices.
fn missing_roots(search: &Search) -> impl Iterator<Item = Notice> {
    let roots = [&search.sys, &search.dev, &search.proc].into_iter();
    let missing = roots.filter(|root| !root.exists());
    missing.map(|root| {
        Notice::new(
            Severity::Warning,
            root.display().to_string(),
            "is not there: devices are looked for below it",
        )
        .remedy("mount it there, or name the right place in [hardware]")
    })
}
