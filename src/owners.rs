//! Whose subordinate ids are, as the system's files tell ([`litd_core::Owners`]). Nothing is asked that may have
//! to ask a directory service, which may take long.

use std::io;
use std::path::Path;

use litd_core::Owners;

use litd_files as files;

/// No such file is longer, in bytes.
const LONGEST: u64 = 16 << 20;

/// Reads `/etc/subuid`, or what takes its place, and `passwd` beside it. What is not there, or can't be read,
/// tells nothing.
#[must_use]
pub fn read(subuid: &Path) -> Owners {
    let text = |path: &Path| match files::read(path, LONGEST) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                log::warn!("{}: {error}", path.display());
            }
            String::new()
        }
    };
    Owners::of(&text(subuid), &text(&subuid.with_file_name("passwd")))
}
