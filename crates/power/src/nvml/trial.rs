//! Loading the library in a process of its own first.
//!
//! A library whose constructor hangs would hold the dynamic linker's lock for ever, and with it every other
//! library and every thread that ends; a library that crashes would take the daemon down.

use std::env;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The variable whose libraries the dynamic linker loads before a program begins.
const PRELOAD: &str = "LD_PRELOAD";

/// The running program: its linker and its search path are those that count.
const PROGRAM: &str = "/proc/self/exe";

const POLL: Duration = Duration::from_millis(2);

/// Has this program print its version with the library loaded. A library that is not found is no error here, and
/// neither is a trial that can't be made: both show when it is opened.
pub(super) fn load(library: &Path, patience: Duration) -> Result<(), String> {
    // In the trial itself there is nothing left to try.
    if env::var_os(PRELOAD).is_some_and(|loaded| loaded == library.as_os_str()) {
        return Ok(());
    }
    let child = Command::new(PROGRAM)
        .arg("--version")
        .env(PRELOAD, library)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        return Ok(());
    };
    let deadline = Instant::now() + patience;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                return match status.signal() {
                    Some(signal) => Err(format!("crashes when it is loaded (signal {signal})")),
                    None => Ok(()),
                };
            }
            Ok(None) if Instant::now() < deadline => thread::sleep(POLL),
            Ok(None) | Err(_) => break,
        }
    }
    // A process that hangs in the kernel is not waited for.
    let _ = child.kill();
    let _ = thread::Builder::new().spawn(move || child.wait());
    Err(format!("does not load within {} s", patience.as_secs_f64()))
}
