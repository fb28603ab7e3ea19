//! Loading the library in a process of its own first.
//!
//! A library whose constructor hangs would hold the dynamic linker's lock for ever, and with it every other
//! library and every thread that ends; a library that crashes would take the daemon down.

use std::env;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The variable whose libraries the dynamic linker loads before a program begins.
const PRELOAD: &str = "LD_PRELOAD";

/// The running program: its linker and its search path are those that count.
const PROGRAM: &str = "/proc/self/exe";

const POLL: Duration = Duration::from_millis(2);

/// Between two trials of a library that does not load passes so long.
const PAUSE: Duration = Duration::from_secs(10);

/// What a trial has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trial {
    /// The library can be loaded, or does not exist, which shows when it is opened.
    Passed,
    /// It was still loading when the time was over.
    Hangs,
    /// It has ended the process with this signal.
    Crashes(i32),
}

/// Has this program print its version with the library loaded. A library that is not found is no error here, and
/// neither is a trial that can't be made: both show when it is opened.
pub(super) fn load(library: &Path, patience: Duration) -> Trial {
    let Some(mut child) = begin(library) else {
        return Trial::Passed;
    };
    let shown = watch(&mut child, patience);
    if shown == Trial::Hangs {
        // A process that hangs in the kernel is not waited for.
        let _ = thread::Builder::new().spawn(move || child.wait());
    }
    shown
}

/// Starts a trial; `None` where there is nothing to try.
fn begin(library: &Path) -> Option<Child> {
    // In the trial itself there is nothing left to try.
    if env::var_os(PRELOAD).is_some_and(|loaded| loaded == library.as_os_str()) {
        return None;
    }
    let child = Command::new(PROGRAM)
        .arg("--version")
        .env(PRELOAD, library)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    child.ok()
}

/// Watches a trial for so long, and kills it then.
fn watch(child: &mut Child, patience: Duration) -> Trial {
    let deadline = Instant::now() + patience;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return ended(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(POLL),
            Ok(None) | Err(_) => break,
        }
    }
    let _ = child.kill();
    Trial::Hangs
}

fn ended(status: ExitStatus) -> Trial {
    status.signal().map_or(Trial::Passed, Trial::Crashes)
}

/// A library that did not load in time, and is tried until it does. Any number of threads may wait for that; one of
/// them tries.
pub(super) struct Slow {
    library: PathBuf,
    passed: Mutex<bool>,
}

impl Slow {
    pub fn new(library: &Path) -> Self {
        Self {
            library: library.to_owned(),
            passed: Mutex::new(false),
        }
    }

    /// Waits until the library can be loaded, however long that takes.
    pub fn wait(&self) {
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        while !*passed {
            *passed = self.passes();
            if !*passed {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Tries it for as long as that takes, so that never more than one process hangs.
    fn passes(&self) -> bool {
        let Some(mut child) = begin(&self.library) else {
            return true;
        };
        let shown = child.wait().map(ended);
        shown.is_ok_and(|shown| shown == Trial::Passed)
    }
}
