//! What survives a restart: the jobs, and the results that clients sent.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::protocol::ProfilingResult;
use crate::registry::Registry;

/// A folder of its own.
#[derive(Debug)]
pub struct Store {
    jobs: PathBuf,
    results: PathBuf,
}

#[derive(Serialize)]
struct Line<'a> {
    job_id: &'a str,
    #[serde(flatten)]
    result: &'a ProfilingResult,
}

impl Store {
    /// Opens or makes the folder, and reads what it holds.
    ///
    /// # Errors
    /// If it can't be made or read, or holds something else; the text names the file.
    pub fn open(folder: &Path) -> Result<(Self, Registry), String> {
        let named = |path: &Path, cause: String| format!("{}: {cause}", path.display());
        fs::create_dir_all(folder).map_err(|cause| named(folder, cause.to_string()))?;
        let store = Self {
            jobs: folder.join("jobs.json"),
            results: folder.join("results.jsonl"),
        };
        let registry = match fs::read(&store.jobs) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|cause| {
                named(&store.jobs, format!("not the jobs of this server: {cause}"))
            })?,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Registry::default(),
            Err(cause) => return Err(named(&store.jobs, cause.to_string())),
        };
        Ok((store, registry))
    }

    /// Replaces the jobs on disk: either the old ones are there or the new ones.
    ///
    /// # Errors
    /// What the system says.
    pub fn save(&self, registry: &Registry) -> io::Result<()> {
        let next = self.jobs.with_extension("json.next");
        let mut file = File::create(&next)?;
        file.write_all(&serde_json::to_vec(registry)?)?;
        file.sync_all()?;
        fs::rename(&next, &self.jobs)?;
        // The new name, too, must survive a power cut.
        let folder = self.jobs.parent().unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }

    /// Adds a result, a line of JSON.
    ///
    /// # Errors
    /// What the system says.
    pub fn add_result(&self, job_id: &str, result: &ProfilingResult) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.results)?;
        let mut line = serde_json::to_vec(&Line { job_id, result })?;
        line.push(b'\n');
        file.write_all(&line)?;
        file.sync_data()
    }
}
