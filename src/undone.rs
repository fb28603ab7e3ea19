//! Notes beside the devices' locks: what a journal says of a device is undone, and could not be removed from the
//! journal. Without the note a cap that an administrator sets later, and that litd had set before, would be undone once
//! more. A note names a journal by its id, and a journal gets another id before it names a device again of which there
//! is a note ([`crate::state::FileStore`]): so at every moment either the note counts or what the journal says. A boot
//! removes all notes, as it removes the links.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use crate::locks::{file_name, is_private, make_private, open};
use crate::state::named;

/// The end of a note's name.
const UNDONE: &str = ".undone";

/// The part of a note's name after the device's.
fn end_of(id: &str) -> String {
    format!(".{}{UNDONE}", file_name(id))
}

/// Notes that what the journal with this id says of a device is undone.
///
/// # Errors
/// The directory of locks can't be written, or others can write to it.
pub(crate) fn note(directory: &Path, address: &str, id: &str) -> io::Result<()> {
    make_private(directory)?;
    let path = directory.join(file_name(address) + &end_of(id));
    // That it is there says all.
    open(&path).map(drop).map_err(|error| named(&path, &error))
}

/// The devices, by the names of their locks' files, of which the journal with this id says nothing that counts.
#[must_use]
pub(crate) fn noted(directory: &Path, id: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).ok();
    // What others may have put there keeps no cap from being undone.
    let entries = entries.filter(|_| is_private(directory));
    let names = entries.into_iter().flatten().flatten();
    let end = end_of(id);
    let device =
        |name: fs::DirEntry| Some(name.file_name().to_str()?.strip_suffix(&end)?.to_owned());
    names.filter_map(device).collect()
}

/// Removes the notes about the journal with this id, which says nothing more of these devices, or has another id now.
///
/// # Errors
/// One of them is still there.
pub(crate) fn forget(directory: &Path, id: &str) -> io::Result<()> {
    for name in noted(directory, id) {
        let path = directory.join(name + &end_of(id));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(named(&path, &error));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const GPU: &str = "0000:85:00.0";

    #[test]
    fn a_note_is_about_one_device_in_one_journal() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("devices");
        assert!(noted(&directory, "1").is_empty());
        note(&directory, GPU, "1").unwrap();
        note(&directory, "cpu0", "2").unwrap();
        for _ in 0..2 {
            note(&directory, "cpu0", "1").unwrap();
        }
        assert_eq!(
            noted(&directory, "1"),
            [GPU, "cpu0"].map(str::to_owned).into()
        );
        assert_eq!(noted(&directory, "2"), ["cpu0".to_owned()].into());
        forget(&directory, "1").unwrap();
        assert!(noted(&directory, "1").is_empty());
        assert_eq!(noted(&directory, "2").len(), 1);
    }

    #[test]
    fn a_note_that_others_could_have_made_counts_for_nothing() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("devices");
        note(&directory, GPU, "1").unwrap();
        let mode = fs::Permissions::from_mode(0o777);
        fs::set_permissions(&directory, mode).unwrap();
        assert!(noted(&directory, "1").is_empty());
        note(&directory, GPU, "1").unwrap_err();
    }
}
