//! Owners of subordinate ids, by the system's files ([`litd_core::Owners`]). No directory service is asked,
//! because that may take long.

use std::io;
use std::path::Path;

use litd_core::Owners;

use litd_files as files;

/// The longest such file, in bytes.
const LONGEST: u64 = 16 << 20;

/// Reads `/etc/subuid`, or the configured file, and `passwd` beside it. A file that is missing or unreadable
/// counts as empty.
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
