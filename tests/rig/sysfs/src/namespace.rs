//! Covering `/sys` itself, for libraries that look nowhere else.

use std::io;
use std::path::Path;
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Calls `work` where `sys` covers `/sys` and `/dev/shm` is empty (ROCm SMI has its mutexes there,
/// which are anybody's), on a thread in a mount namespace of its own: for it,
/// for the threads that it starts and for the processes that it starts, and for nobody else. The
/// namespace is gone when they are.
///
/// # Errors
/// It takes root (CAP_SYS_ADMIN), or `sys` is no directory; `work` was not called.
pub fn with_sys_covered<T: Send>(sys: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let covered = || -> io::Result<T> {
            unshare(CloneFlags::CLONE_NEWNS)?;
            // Mounts made here must not be visible elsewhere.
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?;
            mount(
                Some(sys),
                "/sys",
                None::<&str>,
                MsFlags::MS_BIND,
                None::<&str>,
            )?;
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
            let shared = Path::new("/dev/shm");
            if shared.is_dir() {
                mount(
                    Some("tmpfs"),
                    shared,
                    Some("tmpfs"),
                    flags,
                    Some("mode=1777"),
                )?;
            }
            Ok(work())
        };
        match scope.spawn(covered).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
