//! The shell's sections of the configuration file.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use litd_power::{AmdBackEnd, NvidiaBackEnd, Search};
use serde::{Deserialize, Serialize};

use crate::audit::AuditFiles;
use crate::baseline::BaselineFile;
use crate::locks::is_same;

/// The sections that only the daemon's process knows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shell {
    /// The sources of devices.
    pub hardware: Hardware,
    /// The socket for hooks.
    pub ingest: Ingest,
    /// Ways to measure jobs whose scripts know nothing of litd.
    pub attach: Attach,
    /// The socket for administrators.
    pub control: Control,
    /// The address for Prometheus.
    pub metrics: Metrics,
    /// Files that outlive the process.
    pub state: State,
    /// The log of all writes.
    pub audit: Audit,
    /// The log's level.
    pub log: Log,
}

impl Shell {
    /// The names of the sections; all other keys are the loop's.
    pub const SECTIONS: [&str; 8] = [
        "hardware", "ingest", "attach", "control", "metrics", "state", "audit", "log",
    ];

    /// The sections that differ from another's and are read at start only.
    #[must_use]
    pub fn differing(&self, other: &Self) -> Vec<&'static str> {
        let differs = [
            self.hardware != other.hardware,
            self.ingest != other.ingest,
            self.attach != other.attach,
            self.control != other.control,
            self.metrics != other.metrics,
            self.state != other.state,
            self.audit != other.audit,
            false,
        ];
        let sections = Self::SECTIONS.into_iter().zip(differs);
        sections
            .filter_map(|(section, differs)| differs.then_some(section))
            .collect()
    }
}

/// Sources of devices: the keys of [`Search`], or stand-in hardware.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hardware {
    /// The back end for AMD GPUs.
    pub amd: AmdBackEnd,
    /// The back end for NVIDIA GPUs.
    pub nvidia: NvidiaBackEnd,
    /// Whether CPU sockets are looked for.
    pub cpus: bool,
    /// Where sysfs is mounted.
    pub sys: PathBuf,
    /// Where device nodes are.
    pub dev: PathBuf,
    /// Where procfs is mounted.
    pub proc: PathBuf,
    /// NVML: a name or a path.
    pub nvml_library: PathBuf,
    /// ROCm SMI: a name or a path.
    pub rocm_smi_library: PathBuf,
    /// AMD SMI: a name or a path.
    pub amd_smi_library: PathBuf,
    /// The node's power: the file of `litd-node-power`, which may be absent.
    pub node_power: PathBuf,
    /// The socket of stand-in hardware, for tests, which then replaces all real hardware.
    pub simulated: Option<PathBuf>,
}

impl Default for Hardware {
    fn default() -> Self {
        let usual = Search::default();
        Self {
            amd: usual.amd,
            nvidia: usual.nvidia,
            cpus: usual.cpus,
            sys: usual.sys,
            dev: usual.dev,
            proc: usual.proc,
            nvml_library: usual.nvml_library,
            rocm_smi_library: usual.rocm_smi_library,
            amd_smi_library: usual.amd_smi_library,
            node_power: "/run/litd-node-power/reading.json".into(),
            simulated: None,
        }
    }
}

impl Hardware {
    /// Where the back ends look.
    #[must_use]
    pub fn search(&self) -> Search {
        Search {
            sys: self.sys.clone(),
            dev: self.dev.clone(),
            proc: self.proc.clone(),
            amd: self.amd,
            nvidia: self.nvidia,
            cpus: self.cpus,
            nvml_library: self.nvml_library.clone(),
            rocm_smi_library: self.rocm_smi_library.clone(),
            amd_smi_library: self.amd_smi_library.clone(),
            ..Search::default()
        }
    }
}

/// The socket for hooks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ingest {
    /// The socket.
    pub socket: PathBuf,
    /// The group that owns it; empty: the daemon's own.
    pub group: String,
    /// The socket's permissions.
    pub mode: Permissions,
    /// The longest frame; a hook that announces a longer one is disconnected.
    pub frame_bytes: usize,
    /// The file of subordinate ids (subuid(5)); `passwd` beside it names those users.
    pub subordinate_ids: PathBuf,
}

impl Default for Ingest {
    fn default() -> Self {
        Self {
            socket: "/run/litd/ingest.sock".into(),
            group: String::new(),
            // Any user with a job may connect; holding a GPU is what gives rights over its cap.
            mode: Permissions(0o666),
            frame_bytes: litd_proto::frame::MAX_FRAME,
            subordinate_ids: "/etc/subuid".into(),
        }
    }
}

/// Ways to measure jobs whose scripts know nothing of litd; all are off unless they are turned on here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Attach {
    /// Whether litd answers PyTorch's on-demand client (Kineto) in dynolog's place.
    pub kineto: bool,
    /// The directory of the same socket for jobs whose `KINETO_IPC_SOCKET_DIR` names it. Absent: there is only the
    /// abstract name, which ends at a network namespace.
    pub kineto_directory: Option<PathBuf>,
    /// Where dynolog listens, if that daemon answers PyTorch's clients on this node: litd then leaves the abstract name
    /// to it, and asks it for traces. Absent: litd answers them itself.
    pub dynolog: Option<SocketAddr>,
    /// Where processes write their traces, as each one's own mount namespace has it.
    pub traces: PathBuf,
    /// Whether litd itself has processes without a hook record traces on demand, and observes and steers their jobs by
    /// them.
    pub kineto_samples: bool,
    /// How often litd has a job record a trace, in seconds.
    pub kineto_every_seconds: f64,
    /// The directory, in shared memory, in which litd's plugin for NCCL and RCCL notes arrivals at collectives: litd
    /// reads them, and observes and steers jobs by them. Absent: litd reads none.
    pub nccl_directory: Option<PathBuf>,
}

impl Default for Attach {
    fn default() -> Self {
        Self {
            kineto: false,
            kineto_samples: false,
            kineto_every_seconds: 60.0,
            kineto_directory: None,
            dynolog: None,
            nccl_directory: None,
            // PyTorch's client writes nowhere else, unless KINETO_ONDEMAND_TRACE_DIR is set.
            traces: "/tmp".into(),
        }
    }
}

/// The socket for administrators.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Control {
    /// The socket.
    pub socket: PathBuf,
    /// Members of this group may read; empty: root only.
    pub read_group: String,
    /// Members of this group, too, may command; empty: root only.
    pub admin_group: String,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            socket: litd_api::DEFAULT_CONTROL_SOCKET.into(),
            read_group: "litd".into(),
            admin_group: "litd-admin".into(),
        }
    }
}

/// The address for Prometheus.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    /// The address.
    pub listen: Listen,
}

/// Files that outlive the process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct State {
    /// The directory of the journal and of the learned distributions.
    pub directory: PathBuf,
    /// The directory of the devices' locks, the same for all daemons of a node. Absent: `/run/litd/devices`; with
    /// stand-in hardware, beside its socket.
    pub locks: Option<PathBuf>,
    /// The caps found, for programs that check the node. Absent: `baseline` in the unit's runtime directory
    /// (`$RUNTIME_DIRECTORY`), or no file where there is no unit.
    pub baseline: Option<PathBuf>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            directory: "/var/lib/litd".into(),
            locks: None,
            baseline: None,
        }
    }
}

/// The log of all writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Audit {
    /// The log's directory. Absent: the unit's log directory (`$LOGS_DIRECTORY`), or `audit` in the state
    /// directory where there is no unit.
    pub directory: Option<PathBuf>,
    /// A file that would become longer than this is followed by another.
    pub file_bytes: u64,
    /// How many files are kept, the one that is written to included.
    pub files: usize,
}

impl Default for Audit {
    fn default() -> Self {
        Self {
            directory: None,
            file_bytes: 4 << 20,
            files: 8,
        }
    }
}

impl Shell {
    /// Where the caps found are published, if anywhere.
    #[must_use]
    pub fn baseline_file(&self) -> Option<BaselineFile> {
        Some(BaselineFile::new(&self.baseline_path()?))
    }

    /// The path of that file.
    #[must_use]
    pub fn baseline_path(&self) -> Option<PathBuf> {
        let of_unit = || Some(of_unit("RUNTIME_DIRECTORY")?.join("baseline"));
        self.state.baseline.clone().or_else(of_unit)
    }

    /// A directory that the package's unit has, where this process has the unit's state directory and may be an
    /// administrator's `litd restore`, to which systemd tells nothing.
    pub(crate) fn usual(&self, directory: &str) -> Option<PathBuf> {
        let directory = PathBuf::from(directory);
        let is_units = self.state.directory == State::default().directory;
        (is_units && directory.is_dir()).then_some(directory)
    }

    /// The state directory of a litd of this node with the usual configuration, if that is not this one: the unit's
    /// (`$STATE_DIRECTORY`), or the default one where these are the node's own devices. Such a litd may have left its
    /// undo journal there before `state.directory` was changed.
    #[must_use]
    pub fn usual_state(&self) -> Option<PathBuf> {
        let are_nodes = self.state.locks.is_none() && self.hardware.simulated.is_none();
        let default = || are_nodes.then(|| State::default().directory);
        let usual = of_unit("STATE_DIRECTORY").or_else(default)?;
        (!is_same(&usual, &self.state.directory)).then_some(usual)
    }

    /// Where the devices' locks are.
    #[must_use]
    pub fn locks(&self) -> PathBuf {
        let hardware = self.hardware.simulated.as_deref().and_then(Path::parent);
        let usual = || hardware.unwrap_or(Path::new("/run/litd")).join("devices");
        self.state.locks.clone().unwrap_or_else(usual)
    }

    /// The audit log's files. systemd names the unit's log directory in `$LOGS_DIRECTORY`.
    #[must_use]
    pub fn audit_files(&self) -> AuditFiles {
        let Audit {
            directory,
            file_bytes,
            files,
        } = &self.audit;
        let directory = directory.clone().or_else(|| of_unit("LOGS_DIRECTORY"));
        let directory = directory.or_else(|| self.usual("/var/log/litd"));
        let directory = directory.unwrap_or_else(|| self.state.directory.join("audit"));
        AuditFiles::new(&directory, &self.control.read_group, *file_bytes, *files)
    }
}

/// The directory that systemd has made for the unit, which this variable names. If a drop-in asks for further ones
/// they are all there, with colons between them (systemd.exec(5)): litd's is the one with its name.
fn of_unit(variable: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable)?;
    let all = named.as_bytes().split(|&byte| byte == b':');
    let mut all = all.map(|it| Path::new(OsStr::from_bytes(it)));
    let first = all.clone().next();
    let ours = all.find(|it| it.file_name() == Some(OsStr::new("litd")));
    ours.or(first).map(Path::to_owned)
}

/// The log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// The least important level that is logged.
    pub level: Level,
}

/// How important a line of the log is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Failures.
    Error,
    /// Events that a person should look at.
    Warn,
    /// Every decision.
    #[default]
    Info,
    /// Details for developers.
    Debug,
}

/// Permissions of a socket: an octal number in quotes, as for chmod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Permissions(pub u32);

impl TryFrom<String> for Permissions {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        u32::from_str_radix(&text, 8)
            .ok()
            .filter(|mode| mode & !0o666 == 0)
            .map(Self)
            .ok_or_else(|| {
                format!("\"{text}\" is not the mode of a socket: \"0660\" or \"0666\", for example")
            })
    }
}

impl From<Permissions> for String {
    fn from(Permissions(mode): Permissions) -> Self {
        format!("{mode:04o}")
    }
}

/// An address to listen on, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Listen(pub Option<SocketAddr>);

impl Listen {
    const OFF: &str = "off";
}

impl Default for Listen {
    fn default() -> Self {
        Self(Some(SocketAddr::from(([127, 0, 0, 1], 9816))))
    }
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == Self::OFF {
            return Ok(Self(None));
        }
        text.parse().map(|address| Self(Some(address))).map_err(|_| {
            format!("\"{text}\" is neither an address and port such as \"127.0.0.1:9816\" nor \"off\"")
        })
    }
}

impl From<Listen> for String {
    fn from(Listen(address): Listen) -> Self {
        address.map_or_else(|| Listen::OFF.to_owned(), |address| address.to_string())
    }
}
