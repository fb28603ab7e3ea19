//! A lock so that one litctl at a time runs a job.

use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::ErrorKind;
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket};
use nix::unistd::geteuid;

use crate::output;

/// Held as long as a job is run. A file in the folder tells all machines that share it. Somebody may remove the folder,
/// and the file that is made anew is another one, which nobody holds: so the folder's path is held, too, as a name that
/// the kernel keeps for this process.
pub struct Lock {
    _file: File,
    /// None where somebody else has taken the name, which anybody may.
    _name: Option<UnixListener>,
}

impl Lock {
    /// Locks a folder, whose path is absolute.
    ///
    /// # Errors
    /// Another litctl holds it, or it can't be locked.
    pub fn of(folder: &Path) -> Result<Self, String> {
        let path = folder.join("lock");
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let file = File::create(&path).map_err(|error| failed(&error))?;
        let held = |error: &dyn std::fmt::Display| {
            format!("{}: another litctl runs this job", failed(error))
        };
        file.try_lock().map_err(|error| held(&error))?;
        let name = name(folder);
        let address = SocketAddr::from_abstract_name(&name).map_err(|error| failed(&error))?;
        let name = match UnixListener::bind_addr(&address) {
            Ok(listener) => Some(listener),
            Err(error) if error.kind() == ErrorKind::AddrInUse && is_anothers(&name) => {
                output::note(&format!(
                    "another user's process holds the name that keeps a second litctl from {}: its file alone is locked",
                    folder.display()
                ));
                None
            }
            Err(error) => return Err(held(&error)),
        };
        Ok(Self {
            _file: file,
            _name: name,
        })
    }
}

/// The name that stands for a folder, whose path may be longer than a name.
fn name(folder: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    folder.hash(&mut hasher);
    format!("litctl-carbon-run-{:016x}", hasher.finish())
}

/// The user whose process holds a name, if it listens and answers at once, as litctl's does.
fn holder(name: &str) -> nix::Result<u32> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(
        socket.as_raw_fd(),
        &UnixAddr::new_abstract(name.as_bytes())?,
    )?;
    Ok(getsockopt(&socket, PeerCredentials)?.uid())
}

/// Whether a name that is taken is held by a user who may not run this job.
fn is_anothers(name: &str) -> bool {
    holder(name).map_or(true, |user| user != 0 && user != geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_locked_once_and_again_after_it_was_removed() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("state");
        std::fs::create_dir(&folder).unwrap();
        let lock = Lock::of(&folder).unwrap();
        assert!(Lock::of(&folder).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::create_dir(&folder).unwrap();
        let error = Lock::of(&folder).err().unwrap();
        assert!(error.contains("another litctl runs this job"), "{error}");
        drop(lock);
        Lock::of(&folder).unwrap();
    }

    /// Whoever takes the name and does not answer as litctl does is no litctl.
    #[test]
    fn a_name_that_somebody_else_holds_keeps_no_job_from_its_start() {
        let folder = tempfile::tempdir().unwrap();
        let flags = SockFlag::SOCK_CLOEXEC;
        let squatter = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        let name = name(folder.path());
        let address = UnixAddr::new_abstract(name.as_bytes()).unwrap();
        nix::sys::socket::bind(squatter.as_raw_fd(), &address).unwrap();
        let lock = Lock::of(folder.path()).unwrap();
        assert!(Lock::of(folder.path()).is_err(), "its file is locked");
        drop(lock);
    }
}
