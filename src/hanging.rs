//! Processes of earlier daemons that are being killed and can't end, because a call to a driver hangs. Such a call may
//! still be carried out, however late, so each is noted beside the locks of devices by whoever takes its locks over:
//! `PID.hanging`, with the time at which the process began.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::{baseline, lock};
use litd_files as files;

/// The end of a note's name.
const END: &str = ".hanging";

/// A process that hangs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hanging {
    /// Its id.
    pub pid: u32,
    note: PathBuf,
}

impl Hanging {
    /// Notes that this process hangs.
    ///
    /// # Errors
    /// The directory of locks can't be written.
    pub fn note(directory: &Path, pid: u32) -> io::Result<()> {
        let Some(born) = baseline::born(&pid.to_string()) else {
            return Ok(());
        };
        let path = directory.join(format!("{pid}{END}"));
        let mut file = files::make_anew(&path, OpenOptions::new().mode(0o600))?;
        writeln!(file, "{born}")
    }

    /// The processes noted here that still hang. The notes of all others are removed.
    pub fn noted(directory: &Path) -> Vec<Self> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let notes = entries.filter_map(|entry| {
            let name = entry.file_name();
            let pid = name.to_str()?.strip_suffix(END)?.parse().ok()?;
            let note = entry.path();
            Some(Self { pid, note })
        });
        notes.filter(Self::still).collect()
    }

    /// Whether it still hangs. If not, its note is removed.
    pub fn still(&self) -> bool {
        let noted = files::text(&self.note, 64).ok();
        let born = baseline::born(&self.pid.to_string());
        let is_it = born.is_some() && born.as_deref() == noted.as_deref().map(str::trim_end);
        let hangs = is_it && lock::is_dying(self.pid) && !has_ended(self.pid);
        if !hangs {
            let _ = fs::remove_file(&self.note);
        }
        hangs
    }
}

/// Whether all of its threads have ended, and nobody has asked for its status yet: then no call is under way.
fn has_ended(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let mut states = threads.into_iter().flatten().flatten().map(|thread| {
        let status = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = status
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        state.is_none_or(|state| matches!(state, 'Z' | 'X'))
    });
    states.all(|ended| ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_of_a_process_that_does_not_hang_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let own = std::process::id();
        Hanging::note(directory.path(), own).unwrap();
        // An id that was reused since, and one that nobody has.
        fs::write(directory.path().join("1.hanging"), "77\n").unwrap();
        fs::write(directory.path().join("4194999.hanging"), "77\n").unwrap();
        assert_eq!(Hanging::noted(directory.path()), []);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    /// A corpse that nobody has buried has no call under way.
    #[test]
    fn a_process_that_has_ended_does_not_hang() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while !has_ended(child.id()) {
            std::thread::yield_now();
        }
        assert!(lock::is_dying(child.id()));
        Hanging::note(directory.path(), child.id()).unwrap();
        assert_eq!(Hanging::noted(directory.path()), []);
        child.wait().unwrap();
    }
}
