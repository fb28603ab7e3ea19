//! Notes of a daemon in its state directory that count until the node boots: files with the id of the boot in which they
//! were written.

use std::fs;
use std::io;
use std::path::Path;

use crate::state;
use litd_files as files;

/// A note, by its file's name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BootNote(pub &'static str);

impl BootNote {
    /// Leaves the note in a state directory, or logs why it is not left and what follows from that, in words.
    pub(crate) fn leave(self, directory: &Path, consequence: &str) {
        if let Err(error) = self.write(directory) {
            log::warn!(
                "{}: {error}: {consequence}",
                directory.join(self.0).display()
            );
        }
    }

    fn write(self, directory: &Path) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        files::keep_others_out(directory)?;
        let boot = state::boot_id().map_err(io::Error::other)?;
        let new = directory.join(format!("{}.new", self.0));
        files::replace_private(
            &directory.join(self.0),
            &new,
            format!("{boot}\n").as_bytes(),
        )
    }

    /// Whether a state directory has the note, of this boot.
    pub(crate) fn is_in(self, directory: &Path) -> bool {
        let note = files::read_own(&directory.join(self.0), 64).unwrap_or_default();
        let boot = state::boot_id().unwrap_or_default();
        !boot.is_empty() && String::from_utf8_lossy(&note).trim_end() == boot
    }

    /// Removes the note from a state directory.
    pub(crate) fn end(self, directory: &Path) {
        let path = directory.join(self.0);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                log::warn!(
                    "{}: this note can't be removed: {error}; remove it yourself",
                    path.display()
                );
            }
            _ => {}
        }
    }
}
