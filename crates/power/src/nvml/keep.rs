//! Keeping GPUs open, in a process of its own, while this one's session is renewed.
//!
//! A GPU without persistence mode loses its cap once the last program closes it, and opening it again may take
//! seconds. A process has one NVML session, so that releasing one GPU closes all of them. Until they are open
//! again another process keeps them open.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;

use super::session::aside;

/// The first argument of a program that is to keep GPUs open.
pub const COMMAND: &str = "nvml-keep";

/// Another process opens GPUs that are open already in far less. A GPU whose driver hangs is not waited for once
/// others are open.
const LONGEST: Duration = Duration::from_secs(3);

/// A library that takes so long to open is not waited for any longer.
const LAST: Duration = Duration::from_secs(15);

/// The code of a program that is called with [`COMMAND`]; `arguments` are those after it: the library, and the
/// GPUs' addresses as NVML writes them. It writes a line for each GPU once it has tried to open it (`+` or `-`,
/// and the address), and ends with its standard input.
pub fn keep(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let Some(library) = arguments.next() else {
        return ExitCode::from(2);
    };
    let Ok(nvml) = Nvml::builder().lib_path(&library).init() else {
        return ExitCode::FAILURE;
    };
    let bus_ids: Vec<String> = arguments.filter_map(|it| it.into_string().ok()).collect();
    thread::scope(|scope| {
        // A driver may hang for one GPU.
        for bus_id in &bus_ids {
            let open = || tell(bus_id, open(&nvml, bus_id));
            let _ = thread::Builder::new().spawn_scoped(scope, open);
        }
        let _ = io::stdin().read_to_end(&mut Vec::new());
        // The threads of GPUs that hang are not waited for.
        std::process::exit(0)
    })
}

fn open(nvml: &Nvml, bus_id: &str) -> bool {
    // NVML gives a handle even of a GPU that was not opened.
    let device = nvml.device_by_pci_bus_id(bus_id);
    device
        .and_then(|device| device.power_management_limit())
        .is_ok()
}

fn tell(bus_id: &str, is_open: bool) {
    let sign = if is_open { '+' } else { '-' };
    // Without a reader it ends soon.
    let _ = io::stdout().write_all(format!("{sign}{bus_id}\n").as_bytes());
}

/// A process with GPUs open. Dropping it ends the process.
#[derive(Debug)]
pub(super) struct Keeper {
    child: Option<Child>,
    /// The GPUs that the new session has not opened yet.
    waits_for: BTreeSet<String>,
}

impl Keeper {
    /// Opens these GPUs in another process. `None` where it has not tried each of them, or has opened none, in
    /// time: closing the session would close them.
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
        let mut untried = bus_ids.clone();
        let (told, since) = (lines(output?)?, Instant::now());
        let mut holds_any = false;
        while !untried.is_empty() {
            let patience = if holds_any { LONGEST } else { LAST };
            let Ok(line) = told.recv_timeout(patience.saturating_sub(since.elapsed())) else {
                break;
            };
            let (sign, bus_id) = line.split_at_checked(1)?;
            untried.remove(bus_id);
            holds_any |= sign == "+";
        }
        (untried.is_empty() || holds_any).then_some(keeper)
    }

    /// The new session has opened a GPU. Returns whether it has opened all.
    pub fn has_opened(&mut self, bus_id: &str) -> bool {
        self.waits_for.remove(bus_id);
        self.waits_for.is_empty()
    }

    /// Ends it, and waits so long for that: a client that releases a GPU is told that no process has it open.
    pub fn end(mut self, patience: Duration) {
        if let Some(ended) = self.kill() {
            let _ = ended.recv_timeout(patience);
        }
    }

    /// Kills it. A process that hangs in the kernel ends later, which is reported.
    fn kill(&mut self) -> Option<Receiver<()>> {
        let mut child = self.child.take()?;
        drop(child.stdin.take());
        let _ = child.kill();
        let (done, ended) = mpsc::channel();
        let wait = move || {
            let _ = child.wait();
            let _ = done.send(());
        };
        aside(wait).ok()?;
        Some(ended)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// The process's output, line by line, for as long as there is a reader.
fn lines(output: ChildStdout) -> Option<Receiver<String>> {
    let (told, lines) = mpsc::channel();
    let read = move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = told.send(line);
        }
    };
    aside(read).ok()?;
    Some(lines)
}
