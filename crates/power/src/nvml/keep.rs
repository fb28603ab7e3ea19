//! Keeping GPUs open, in a process of its own, while this one's session is renewed.
//!
//! A GPU without persistence mode forgets its cap once the last program closes it, and opening it again may take
//! seconds. A process has one NVML session, so that letting go of one GPU closes all of them. Until they are open
//! again another process has those.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nvml_wrapper::Nvml;

use super::session::aside;

/// The first argument of a program that is to keep GPUs open.
pub const COMMAND: &str = "nvml-keep";

/// GPUs that are open already are opened by another process in far less. Nobody waits for longer.
const LONGEST: Duration = Duration::from_secs(3);

/// What a program does that is called with [`COMMAND`]; `arguments` are those after it: the library, and the GPUs'
/// addresses as NVML writes them. It writes a byte once they are open, and ends with its standard input.
pub fn keep(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let Some(library) = arguments.next() else {
        return ExitCode::from(2);
    };
    let Ok(nvml) = Nvml::builder().lib_path(&library).init() else {
        return ExitCode::FAILURE;
    };
    for bus_id in arguments.filter_map(|it| it.into_string().ok()) {
        // A handle alone may be had of a GPU that was not opened.
        let device = nvml.device_by_pci_bus_id(bus_id);
        let _ = device.and_then(|device| device.power_management_limit());
    }
    let told = io::stdout()
        .write_all(b"\n")
        .and_then(|()| io::stdout().flush());
    if told.is_ok() {
        let _ = io::stdin().read_to_end(&mut Vec::new());
    }
    ExitCode::SUCCESS
}

/// Such a process. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Keeper {
    child: Option<Child>,
    /// The GPUs that the new session has not opened yet.
    waits_for: BTreeSet<String>,
}

impl Keeper {
    /// Opens these GPUs in another process. `None` where that can't be had in time: they are closed for a moment
    /// then, as before.
    pub fn of(program: &Path, library: &Path, bus_ids: &BTreeSet<String>) -> Option<Self> {
        let mut child = Command::new(program)
            .arg0("litd")
            .arg(COMMAND)
            .arg(library)
            .args(bus_ids)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let output = child.stdout.take();
        let keeper = Self {
            child: Some(child),
            waits_for: bus_ids.clone(),
        };
        let (done, ready) = mpsc::channel();
        let wait = move || {
            let read = output.map(|mut output| output.read_exact(&mut [0]));
            let _ = done.send(matches!(read, Some(Ok(()))));
        };
        aside(wait).ok()?;
        ready
            .recv_timeout(LONGEST)
            .unwrap_or_default()
            .then_some(keeper)
    }

    /// The new session has opened a GPU. Returns whether it has opened all.
    pub fn has_opened(&mut self, bus_id: &str) -> bool {
        self.waits_for.remove(bus_id);
        self.waits_for.is_empty()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        drop(child.stdin.take());
        let _ = child.kill();
        // One that hangs in the kernel ends when that lets it.
        let _ = aside(move || drop(child.wait()));
    }
}
