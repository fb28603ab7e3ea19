//! The note of a daemon that leaves caps within its safe budget when it ends (`caps.on_exit = "hold"`): the file `held`
//! in the state directory, for as long as that is its configuration and until it has stopped in order. So if litd
//! crashes and its configuration has meanwhile lost `caps.on_exit`, no cap is raised: nobody has asked for that yet. A
//! reload of a configuration without that key, or `on_exit = "restore"`, ends the note.

use std::path::{Path, PathBuf};

use crate::boot_note::BootNote;
use crate::config::Shell;
use crate::locks;

const NOTE: BootNote = BootNote("held");

/// The note of a running daemon.
#[derive(Debug)]
pub(crate) struct Note {
    directory: PathBuf,
    /// Whether caps are held, by the file; `None`: it may say anything.
    is_held: Option<bool>,
}

impl Note {
    /// The note in a state directory, which stays as it is until it is known whether caps are held.
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            is_held: None,
        }
    }

    /// Caps will be held at the end, or not.
    pub(crate) fn follow(&mut self, held: bool) {
        if self.is_held.replace(held) == Some(held) {
            return;
        }
        match held {
            true => NOTE.leave(
                &self.directory,
                "if litd dies and its configuration loses caps.on_exit, caps may rise",
            ),
            false => end(&self.directory),
        }
    }
}

/// Ends the note in a state directory: caps are restored, or a daemon has stopped in order.
pub(crate) fn end(directory: &Path) {
    NOTE.end(directory);
}

/// The state directories with such a note, of this boot, where a daemon of this configuration may have left one: its
/// own, and those to which devices' links point.
pub(crate) fn noted(shell: &Shell) -> Vec<PathBuf> {
    let others = locks::remembered(&shell.locks()).unwrap_or_default();
    let mut all = vec![shell.state.directory.clone()];
    all.extend(others.into_iter().map(|it| it.state));
    all.dedup();
    all.retain(|it| NOTE.is_in(it));
    all
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_note_is_of_this_boot_and_follows_the_configuration() {
        let root = tempfile::tempdir().unwrap();
        let mut shell = Shell::default();
        shell.state.directory = root.path().join("state");
        shell.state.locks = Some(root.path().join("devices"));
        let directory = shell.state.directory.clone();
        let mut note = Note::new(&directory);
        note.follow(false);
        assert_eq!(noted(&shell), Vec::<PathBuf>::new());
        note.follow(true);
        assert_eq!(noted(&shell), std::slice::from_ref(&directory));
        // Another daemon knows nothing yet.
        let mut next = Note::new(&directory);
        assert_eq!(noted(&shell), std::slice::from_ref(&directory));
        next.follow(false);
        assert_eq!(noted(&shell), Vec::<PathBuf>::new());
        fs::write(directory.join(NOTE.0), "another boot\n").unwrap();
        assert_eq!(noted(&shell), Vec::<PathBuf>::new());
    }
}
