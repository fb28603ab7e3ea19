//! Holders: processes that use a device, and their users.
//!
//! Drivers name processes by the host's process ids. What those ids mean here, and which user a process belongs
//! to, is read from procfs.

use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::sysfs::{self, FileError};

/// A process that has queues, memory or contexts on a device. A process that merely has the device's node open is
/// no holder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder {
    /// The process id.
    pub pid: u32,
    /// The effective user id, which is also what the kernel tells of the peer of a socket.
    pub uid: u32,
    /// The control groups, as `/proc/PID/cgroup` names them; empty where unknown.
    pub cgroup: String,
}

impl Holder {
    /// A process in no control group that is known.
    #[must_use]
    pub fn new(pid: u32, uid: u32) -> Self {
        let cgroup = String::new();
        Self { pid, uid, cgroup }
    }
}

/// How many bytes of the control groups of all holders together are kept. Further holders have no known control
/// group: a GPU that so many processes use belongs to several users.
const GROUPS: usize = 1 << 20;

/// The name of the initial PID namespace (`PROC_PID_INIT_INO` in `include/linux/proc_ns.h`).
const INITIAL_NAMESPACE: &str = "pid:[4026531836]";

/// The processes of a procfs.
#[derive(Debug, Clone)]
pub(crate) struct Processes {
    proc: PathBuf,
}

impl Processes {
    /// The processes below this procfs.
    pub fn new(proc: &Path) -> Self {
        Self {
            proc: proc.to_owned(),
        }
    }

    /// The processes with these ids of a driver's, in order and each once, with their users. Processes that have
    /// ended meanwhile are left out.
    ///
    /// # Errors
    /// litd is in a PID namespace of its own: the same number is another process there, and which
    /// of them it is nobody can tell. Or a user can't be told.
    pub fn of_host(&self, pids: impl IntoIterator<Item = u32>) -> io::Result<Vec<Holder>> {
        let namespace = self.proc.join("self/ns/pid").read_link();
        // A kernel without PID namespaces has no such file.
        if namespace.is_ok_and(|name| name.as_os_str() != INITIAL_NAMESPACE) {
            return Err(io::Error::other(
                "litd runs in a PID namespace of its own, where the process ids of drivers mean \
                 other processes: start it with the host's (hostPID: true, --pid=host)",
            ));
        }
        self.of(pids)
    }

    /// The same, where ids are known to be of this procfs.
    ///
    /// # Errors
    /// A user can't be told.
    pub fn of(&self, pids: impl IntoIterator<Item = u32>) -> io::Result<Vec<Holder>> {
        let mut holders = Vec::new();
        let mut left = GROUPS;
        for pid in pids {
            if let Some(uid) = self.user(pid)? {
                let path = self.proc.join(pid.to_string()).join("cgroup");
                let cgroup = Some(sysfs::head(path)).filter(|it| it.len() <= left);
                let cgroup = cgroup.unwrap_or_default();
                left -= cgroup.len();
                holders.push(Holder { pid, uid, cgroup });
            }
        }
        holders.sort_unstable();
        holders.dedup();
        Ok(holders)
    }

    /// The effective user of a process; `None` if it has ended.
    fn user(&self, pid: u32) -> io::Result<Option<u32>> {
        let path = self.proc.join(pid.to_string()).join("status");
        // The user is in the first lines.
        let status = match sysfs::try_head(path.clone()) {
            Ok(status) => status,
            Err(error) if has_ended(&error) => return Ok(None),
            Err(error) => return Err(io::Error::other(error.to_string())),
        };
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        let effective = users.and_then(|users| users.split_ascii_whitespace().nth(1));
        match effective.and_then(|user| user.parse().ok()) {
            Some(user) => Ok(Some(user)),
            None => {
                let text = format!("{}: does not name its user", path.display());
                Err(io::Error::other(text))
            }
        }
    }
}

/// Whether this is procfs's error for a process that has ended.
fn has_ended(error: &FileError) -> bool {
    matches!(error.errno(), Some(Errno::ENOENT | Errno::ESRCH))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree(pids: &[(u32, &str)]) -> (tempfile::TempDir, Processes) {
        let folder = tempfile::tempdir().unwrap();
        for (pid, status) in pids {
            let process = folder.path().join(pid.to_string());
            fs::create_dir(&process).unwrap();
            fs::write(process.join("status"), status).unwrap();
        }
        let processes = Processes::new(folder.path());
        (folder, processes)
    }

    #[test]
    fn a_holder_is_a_process_with_its_effective_user() {
        let status = "Name:\tpython3\nUid:\t1000\t1001\t1002\t1003\nGid:\t4\t4\t4\t4\n";
        let (_folder, processes) = tree(&[(7, status), (5, "Uid:\t0\t0\t0\t0\n")]);
        // 9 has ended, and 7 is named twice.
        let holders = processes.of_host([7, 9, 5, 7]).unwrap();
        assert_eq!(holders, [Holder::new(5, 0), Holder::new(7, 1001)]);
    }

    #[test]
    fn a_holder_has_its_control_groups() {
        let (folder, processes) = tree(&[(7, "Uid:\t0\t0\t0\t0\n")]);
        let cgroup = "0::/kubepods.slice/kubepods-pod1.slice\n";
        fs::write(folder.path().join("7/cgroup"), cgroup).unwrap();
        assert_eq!(processes.of_host([7]).unwrap()[0].cgroup, cgroup);
    }

    #[test]
    fn whose_user_can_not_be_told_is_an_error_that_names_the_file() {
        let (_folder, processes) = tree(&[(7, "Name:\tUid:\n")]);
        let error = processes.of_host([7]).unwrap_err().to_string();
        assert!(error.contains("7/status"), "{error}");
    }

    #[test]
    fn in_a_namespace_of_its_own_litd_believes_no_number_of_a_driver() {
        let (folder, processes) = tree(&[(7, "Uid:\t1\t1\t1\t1\n")]);
        let namespaces = folder.path().join("self/ns");
        fs::create_dir_all(&namespaces).unwrap();
        symlink("pid:[4026532561]", namespaces.join("pid")).unwrap();
        let error = processes.of_host([7]).unwrap_err().to_string();
        assert!(error.contains("hostPID"), "{error}");
        fs::remove_file(namespaces.join("pid")).unwrap();
        symlink(INITIAL_NAMESPACE, namespaces.join("pid")).unwrap();
        assert_eq!(processes.of_host([7]).unwrap().len(), 1);
    }
}
