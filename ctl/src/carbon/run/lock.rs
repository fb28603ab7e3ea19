//! A lock so that one litctl at a time runs a job.

use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

/// Held as long as a job is run. A file in the folder tells all machines that share it. Somebody may remove the folder,
/// and the file that is made anew is another one, which nobody holds: so the folder's path is held, too, as a name that
/// the kernel keeps for this process.
pub struct Lock {
    _file: File,
    _name: UnixListener,
}

impl Lock {
    /// Locks a folder, whose path is absolute.
    ///
    /// # Errors
    /// Another litctl holds it, or it can't be locked.
    pub fn of(folder: &Path) -> Result<Self, String> {
        let path = folder.join("lock");
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let file = File::create(&path).map_err(|error| failed(&error))?;
        let held = |error: &dyn std::fmt::Display| {
            format!("{}: another litctl runs this job", failed(error))
        };
        file.try_lock().map_err(|error| held(&error))?;
        // A path may be longer than a name.
        let mut hasher = DefaultHasher::new();
        folder.hash(&mut hasher);
        let name = format!("litctl-carbon-run-{:016x}", hasher.finish());
        let name = SocketAddr::from_abstract_name(name).map_err(|error| failed(&error))?;
        let name = UnixListener::bind_addr(&name).map_err(|error| held(&error))?;
        Ok(Self {
            _file: file,
            _name: name,
        })
    }
}
