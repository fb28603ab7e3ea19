//! The note of a daemon that has started itself anew and tolerated a budget below the floors of all GPUs together: the
//! file `below-floors` in the state directory, until a daemon has stopped in order, or the node boots. A start that
//! somebody has asked for refuses such a budget; one after a crash tolerates what was tolerated before it, because
//! without litd nothing would keep caps at their floors.

use std::path::Path;

use crate::boot_note::BootNote;

const NOTE: BootNote = BootNote("below-floors");

/// Notes that this daemon runs with such a budget.
pub(crate) fn note(directory: &Path) {
    NOTE.leave(
        directory,
        "if litd dies, it does not start with this budget",
    );
}

/// Whether a daemon with this state directory has tolerated such a budget since the node has booted, and has not
/// stopped in order.
pub(crate) fn is_noted(directory: &Path) -> bool {
    NOTE.is_in(directory)
}

/// A daemon has stopped in order.
pub(crate) fn end(directory: &Path) {
    NOTE.end(directory);
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        fs::write(state.join(NOTE.0), "another boot\n").unwrap();
        assert!(!is_noted(state));
    }
}
