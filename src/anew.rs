//! Starting anew in place: GPUs whose driver came up after litd had looked for devices become litd's.
//!
//! litd then executes its own program with its own arguments, as the same process. That is what happens after a crash,
//! which each part of litd is made for: the undo journal has every cap found, caps stay where they are, hooks connect
//! again, and what administrators have set by commands is kept. Taking devices into a loop that runs would be a second
//! way to the same end, through every table that counts devices. The process stays the same one, so systemd
//! (`Type=notify`), a container's runtime or a shell sees no end, and nothing but litd itself has to start it again.
//!
//! It happens only where it does no harm ([`crate::hub::Hub::may_start_anew`]), with the configuration in force, and
//! once this process has made the checks of a start (`Life::starts_anew`). If the new one can't begin all the same, it
//! tries again for [`PATIENCE`], and then ends as after a crash, so that a service manager starts it again. It can't go
//! round in circles: only devices that this process has seen come up count ([`crate::presence`]), and a process that
//! has started anew waits [`PAUSE`] before it does so again.

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use nix::sys::prctl;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::execve;

use crate::logging;
use crate::notify::Notifier;

/// Set for a process that has started itself anew.
const MARK: &str = "LITD_STARTED_ANEW";

/// Between two such starts, at least.
pub(crate) const PAUSE: Duration = Duration::from_secs(60);

/// Between two looks whether what kept litd from starting anew is over.
pub(crate) const PUT_OFF: Duration = Duration::from_secs(5);

/// How long a process that has started itself anew tries to begin. Caps stay as they are meanwhile.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How long the threads of devices have to close them: they are idle, so this takes a moment.
const ENDS: Duration = Duration::from_secs(2);

/// Between two looks whether they have.
const LOOK: Duration = Duration::from_millis(5);

/// The program, also where another one has taken its place on disk since.
const PROGRAM: &std::ffi::CStr = c"/proc/self/exe";

/// Between two tries to begin.
const AGAIN: Duration = Duration::from_secs(1);

/// Whether litd goes on in this process although its program could not be executed.
static GOES_ON: AtomicBool = AtomicBool::new(false);

/// Whether the present life of litd manages devices.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether this process has started itself anew.
pub(crate) fn was_started() -> bool {
    env::var_os(MARK).is_some() || GOES_ON.load(Ordering::Relaxed)
}

/// litd manages its devices.
pub(crate) fn has_begun() {
    HAS_BEGUN.store(true, Ordering::Relaxed);
}

/// Whether litd has started itself anew and does not manage its devices yet. Nobody has asked for this start, so it may
/// not end as one that an administrator sees fail.
pub(crate) fn is_beginning() -> bool {
    was_started() && !HAS_BEGUN.load(Ordering::Relaxed)
}

/// Waits before another try to begin.
pub(crate) fn wait() {
    is_alive();
    thread::sleep(AGAIN);
}

/// The first act of a process that has started itself anew.
pub(crate) fn goes_on() {
    if !was_started() {
        return;
    }
    // The kernel calls the process by the last part of the path that was executed.
    let _ = prctl::set_name(c"litd");
    // Processes of back ends that have ended with the program before have no other parent.
    while waitpid(None, Some(WaitPidFlag::WNOHANG)).is_ok_and(|it| it.pid().is_some()) {}
    is_alive();
}

/// Feeds systemd's watchdog, which runs on from before: devices are looked for before the loop turns again.
pub(crate) fn is_alive() {
    if was_started() {
        Notifier::from_environment().alive();
    }
}

/// litd goes on in this process, which could not execute its program.
pub(crate) fn goes_on_here() {
    GOES_ON.store(true, Ordering::Relaxed);
    HAS_BEGUN.store(false, Ordering::Relaxed);
}

/// Executes litd anew. All that it had open is closed by then or by that; its locks are free for a moment.
///
/// # Errors
/// The system does not execute it: this process goes on as it is.
pub(crate) fn start() -> io::Result<Infallible> {
    let until = Instant::now() + ENDS;
    while has_devices_threads() && Instant::now() < until {
        thread::sleep(LOOK);
    }
    logging::flush();
    Notifier::from_environment().alive();
    let arguments: Vec<CString> = env::args_os().map(of).collect::<io::Result<_>>()?;
    let others = env::vars_os().filter(|(name, _)| name != MARK);
    let mark = (OsString::from(MARK), OsString::from("1"));
    let assigned = |(name, value): (OsString, OsString)| {
        of([name.as_os_str(), value.as_os_str()].join(OsStr::new("=")))
    };
    let environment: Vec<CString> = others
        .chain([mark])
        .map(assigned)
        .collect::<io::Result<_>>()?;
    close_at_exec();
    Ok(execve(PROGRAM, &arguments, &environment)?)
}

fn of(text: OsString) -> io::Result<CString> {
    Ok(CString::new(text.into_vec())?)
}

/// Whether any thread is left but this one and the log's.
fn has_devices_threads() -> bool {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    let own = std::process::id().to_string();
    threads.flatten().any(|thread| {
        let name = fs::read(thread.path().join("comm")).unwrap_or_default();
        thread.file_name().as_bytes() != own.as_bytes() && name.trim_ascii_end() != b"log"
    })
}

/// Drivers' libraries may leave files of their devices open across an exec. Nobody would know them afterwards, and
/// such a device could not be reset.
#[allow(unsafe_code)]
fn close_at_exec() {
    // SAFETY: the call takes numbers only, and closes nothing before the exec.
    unsafe {
        nix::libc::syscall(
            nix::libc::SYS_close_range,
            3,
            nix::libc::c_uint::MAX,
            nix::libc::CLOSE_RANGE_CLOEXEC,
        );
    }
}
