//! The note of a daemon that has started itself anew and tolerated a budget below the floors of all GPUs together: the
//! file `below-floors` in the state directory, until a daemon has stopped in order, or the node boots. A start that
//! somebody has asked for refuses such a budget; one after a crash tolerates what was tolerated before it, because
//! without litd nothing would keep caps at their floors.

use std::fs;
use std::io;
use std::path::Path;

use crate::state;
use litd_files as files;

/// The file's name.
const FILE: &str = "below-floors";

/// Such a budget is tolerated.
pub(crate) fn note(directory: &Path) {
    if let Err(error) = write(directory) {
        log::warn!(
            "{}: {error}: if litd dies, it does not start with this budget",
            directory.join(FILE).display()
        );
    }
}

fn write(directory: &Path) -> io::Result<()> {
    let boot = state::boot_id().map_err(io::Error::other)?;
    let new = directory.join(format!("{FILE}.new"));
    files::replace_private(&directory.join(FILE), &new, format!("{boot}\n").as_bytes())
}

/// Whether a daemon with this state directory has tolerated such a budget since the node has booted, and has not
/// stopped in order.
pub(crate) fn is_noted(directory: &Path) -> bool {
    let note = files::read_own(&directory.join(FILE), 64).unwrap_or_default();
    let boot = state::boot_id().unwrap_or_default();
    !boot.is_empty() && String::from_utf8_lossy(&note).trim_end() == boot
}

/// A daemon has stopped in order.
pub(crate) fn end(directory: &Path) {
    let path = directory.join(FILE);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            log::warn!("{}: {error}: remove it", path.display());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_counts_in_its_boot_until_it_is_ended() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        assert!(!is_noted(state));
        note(state);
        assert!(is_noted(state));
        end(state);
        assert!(!is_noted(state));
        fs::write(state.join(FILE), "another boot\n").unwrap();
        assert!(!is_noted(state));
    }
}
