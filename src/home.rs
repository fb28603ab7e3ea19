//! In which job a scheduler has put the process at the other end of a socket: its control groups in
//! procfs.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use litd_core::Home;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};

/// `/proc/PID/cgroup` has a line per hierarchy, a dozen at most.
const LONGEST: u64 = 64 * 1024;

/// Finds the jobs that processes are in.
#[derive(Debug, Clone)]
pub struct Homes {
    proc: PathBuf,
    /// What the daemon itself is in tells nothing about its peers.
    own: Option<Home>,
}

impl Homes {
    /// In a procfs that is mounted there, and is of the namespace that peers' ids are told in.
    #[must_use]
    pub fn new(proc: &Path) -> Self {
        let own = groups(&proc.join("self/cgroup")).ok();
        Self {
            proc: proc.to_owned(),
            own: own.and_then(|text| Home::of(&text)),
        }
    }

    /// The job of the process with this id, which has made a connection. None is known of one that
    /// has ended: the id may be another's by now.
    #[must_use]
    pub fn of(&self, connection: &impl AsFd, pid: u32) -> Option<Home> {
        if pid == 0 {
            return None;
        }
        let path = self.proc.join(pid.to_string()).join("cgroup");
        let text = match groups(&path) {
            Ok(text) => text,
            Err(error) => {
                log::debug!("{}: {error}", path.display());
                return None;
            }
        };
        // After reading: what ends from now on was there until now.
        if has_ended(connection) {
            return None;
        }
        Home::of(&text).filter(|home| self.own.as_ref() != Some(home))
    }
}

fn groups(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(path)?.take(LONGEST).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Whether the process that made a connection has ended (`SO_PEERPIDFD`, Linux 6.5). Where the
/// kernel can't tell: no, and a rank is let in only as long as its process holds a GPU anyway.
fn has_ended(connection: &impl AsFd) -> bool {
    let process = match getsockopt(connection, sockopt::PeerPidfd) {
        Ok(process) => process,
        // One that has ended before anybody asked has none.
        Err(error) => return matches!(error, Errno::ESRCH | Errno::EINVAL),
    };
    // It can be read once the process has ended.
    let mut wait = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    matches!(poll(&mut wait, PollTimeout::ZERO), Ok(1..))
}
