//! Looking for a lost GPU, in a process of its own.
//!
//! A GPU that was lost stays lost to a session that saw it go, and NVML counts its openings: a process has one
//! session, and gets a new one only by closing that of all its GPUs. How long the driver then takes to open it
//! again is unknown, above all with a GPU in trouble. So another process opens NVML beside it and checks whether
//! the GPU is back; the session is renewed once it is, if opening took no longer than the other GPUs can be kept
//! waiting.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

/// The first argument of a program that is to look for a GPU.
pub const COMMAND: &str = "nvml-look";

/// A session is renewed only if opening one has taken less than this: the calls of the other GPUs wait as long.
const LONGEST: Duration = Duration::from_secs(2);

const POLL: Duration = Duration::from_millis(5);

/// The process's exit status.
const THERE: u8 = 0;
const NOT_THERE: u8 = 3;
const NO_DRIVER: u8 = 4;

/// The code of a program that is called with [`COMMAND`]; `arguments` are those after it: the library, and the
/// GPU's address as NVML writes it. Its exit status says whether the GPU is back.
pub fn look(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let (Some(library), Some(Ok(bus_id))) = (
        arguments.next(),
        arguments.next().map(OsString::into_string),
    ) else {
        return ExitCode::from(2);
    };
    ExitCode::from(match Nvml::builder().lib_path(&library).init() {
        Ok(nvml) => match is_there(&nvml, &bus_id) {
            Ok(()) => THERE,
            Err(_) => NOT_THERE,
        },
        Err(_) => NO_DRIVER,
    })
}

/// NVML gives a handle even of a lost GPU.
fn is_there(nvml: &Nvml, bus_id: &str) -> Result<(), NvmlError> {
    let device = nvml.device_by_pci_bus_id(bus_id)?;
    device.power_management_limit().map(drop)
}

/// Looks for one GPU, now and then.
#[derive(Debug)]
pub(super) struct Looker {
    program: PathBuf,
    library: PathBuf,
    /// A process that hangs in the kernel, where it can't be ended. No other is started until it is gone.
    stuck: Option<Child>,
}

impl Looker {
    pub fn new(program: PathBuf, library: PathBuf) -> Self {
        Self {
            program,
            library,
            stuck: None,
        }
    }

    /// Whether the session is worth renewing, and cheap to renew: the GPU is back, or the driver itself is gone,
    /// for all of them.
    pub fn is_worth_renewing(&mut self, bus_id: &str) -> bool {
        if let Some(mut child) = self.stuck.take()
            && let Ok(None) = child.try_wait()
        {
            self.stuck = Some(child);
            return false;
        }
        let child = Command::new(&self.program)
            .arg0("litd")
            .arg(COMMAND)
            .arg(&self.library)
            .arg(bus_id)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = child else {
            return false;
        };
        let deadline = Instant::now() + LONGEST;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => {
                    let code = status.code();
                    return [THERE, NO_DRIVER].iter().any(|&it| code == Some(it.into()));
                }
                Ok(None) if Instant::now() < deadline => thread::sleep(POLL),
                Ok(None) | Err(_) => break,
            }
        }
        let _ = child.kill();
        self.stuck = Some(child);
        false
    }
}
