//! The audit log's files: the one that is written to, and the last few before it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use litd_api::audit::FILE;
use litd_core::Appended;

use crate::server::own_by;
use litd_files as files;

/// How much of the end of the log is read: it holds all records of the half minute in which a write may be done
/// late, some 1,600 writes.
const TAIL: u64 = 1024 * 1024;

/// The files, which together are never longer than `file_bytes * files`, but for one append each.
#[derive(Debug)]
pub struct AuditFiles {
    directory: PathBuf,
    /// The group that may read them besides the daemon's user; empty: nobody.
    group: String,
    /// A file that would become longer than this is followed by another.
    file_bytes: u64,
    /// How many files are kept.
    files: usize,
    /// The file that is written to, and its length.
    open: Option<(File, u64)>,
}

impl AuditFiles {
    /// The log in `directory`, which is made when there is something to write. At least one file
    /// is kept.
    #[must_use]
    pub fn new(directory: &Path, group: &str, file_bytes: u64, files: usize) -> Self {
        Self {
            directory: directory.to_owned(),
            group: group.to_owned(),
            file_bytes,
            files: files.max(1),
            open: None,
        }
    }

    fn path(&self, age: usize) -> PathBuf {
        match age {
            0 => self.directory.join(FILE),
            age => self.directory.join(format!("{FILE}.{age}")),
        }
    }

    /// The end of the log, over as many files as it takes.
    ///
    /// # Errors
    /// The disk.
    pub fn tail(&self) -> io::Result<Vec<u8>> {
        let mut tail = Vec::new();
        for age in 0..self.files {
            let wanted = TAIL.saturating_sub(tail.len() as u64);
            if wanted == 0 {
                break;
            }
            let mut file = match files::open_own(&self.path(age), OpenOptions::new().read(true)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(wanted)))?;
            let mut older = Vec::new();
            file.take(wanted).read_to_end(&mut older)?;
            older.append(&mut tail);
            tail = older;
        }
        Ok(tail)
    }

    /// Appends, in the next file if this one is full.
    ///
    /// # Errors
    /// The disk; any part of `bytes` may have been appended. The error names the file.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<Appended> {
        self.try_append(bytes).map_err(|error| {
            let file = self.path(0);
            io::Error::new(error.kind(), format!("{}: {error}", file.display()))
        })
    }

    fn try_append(&mut self, bytes: &[u8]) -> io::Result<Appended> {
        let (mut file, mut length, appended) = match self.open.take() {
            None => {
                let (file, length) = self.begin()?;
                (file, length, Appended::After)
            }
            Some((file, left)) => self.go_on(file, left)?,
        };
        let added = bytes.len() as u64;
        if length > 0 && length.saturating_add(added) > self.file_bytes {
            drop(file);
            self.rotate()?;
            (file, length) = self.begin()?;
        }
        // Written, not synced: this has to survive the process. If it fails, the file is looked at
        // anew next time.
        file.write_all(bytes)?;
        self.open = Some((file, length + added));
        Ok(appended)
    }

    /// The file to write to and its length, after a file of the length that litd left.
    fn go_on(&self, file: File, left: u64) -> io::Result<(File, u64, Appended)> {
        let still = files::still_at(&file, &self.path(0));
        let (mut file, length, appended) = match still {
            Some(there) => (file, there.len(), Appended::After),
            None => {
                let (file, length) = self.begin()?;
                (file, length, Appended::Anew)
            }
        };
        let as_left = length == left && appended == Appended::After;
        if length == 0 || as_left {
            return Ok((file, length, appended));
        }
        // Another program may have ended the file within a line.
        file.write_all(b"\n")?;
        Ok((file, length + 1, appended))
    }

    /// Opens the file to write to.
    fn begin(&self) -> io::Result<(File, u64)> {
        if !self.directory.is_dir() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&self.directory)?;
        }
        files::keep_others_out(&self.directory)?;
        let path = self.path(0);
        let mut options = OpenOptions::new();
        let file = files::open_own(&path, options.append(true).create(true).mode(0o600))?;
        let length = file.metadata()?.len();
        self.show(&path);
        Ok((file, length))
    }

    /// Lets the group read. Where there is no such group the log is the daemon's user's alone.
    fn show(&self, file: &Path) {
        if self.group.is_empty() {
            return;
        }
        for (path, mode) in [(self.directory.as_path(), 0o750), (file, 0o640)] {
            if own_by(path, &self.group).is_ok() {
                let _ = fs::set_permissions(path, fs::Permissions::from_mode(mode));
            }
        }
    }

    /// Renames every file to the next older one; the oldest is removed.
    fn rotate(&self) -> io::Result<()> {
        for age in (1..self.files).rev() {
            match fs::rename(self.path(age - 1), self.path(age)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        match self.files {
            1 => fs::remove_file(self.path(0)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(directory: &Path, file_bytes: u64, files: usize) -> AuditFiles {
        AuditFiles::new(directory, "", file_bytes, files)
    }

    fn texts(directory: &Path) -> Vec<(String, String)> {
        let entries = fs::read_dir(directory).unwrap();
        let mut texts: Vec<(String, String)> = entries
            .map(|entry| entry.unwrap())
            .map(|entry| {
                let text = fs::read_to_string(entry.path()).unwrap();
                (entry.file_name().into_string().unwrap(), text)
            })
            .collect();
        texts.sort();
        texts
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_goes_first() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("log");
        let mut log = files(&directory, 10, 3);
        assert_eq!(log.tail().unwrap(), b"");
        for text in ["one\n", "two\n", "three\n", "four\n", "five\n", "six\n"] {
            log.append(text.as_bytes()).unwrap();
        }
        let expected = [
            ("audit.jsonl", "six\n"),
            ("audit.jsonl.1", "four\nfive\n"),
            ("audit.jsonl.2", "three\n"),
        ];
        let found = texts(&directory);
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        assert_eq!(found, expected);
        // The next daemon continues the same file.
        let mut next = files(&directory, 10, 3);
        assert_eq!(next.tail().unwrap(), b"three\nfour\nfive\nsix\n");
        next.append(b"seven\n").unwrap();
        assert_eq!(texts(&directory)[0].1, "six\nseven\n");
    }

    #[test]
    fn one_file_is_begun_anew() {
        let place = tempfile::tempdir().unwrap();
        let mut log = files(place.path(), 8, 1);
        for text in ["one\n", "two\n", "three\n"] {
            log.append(text.as_bytes()).unwrap();
        }
        let expected = [("audit.jsonl".to_owned(), "three\n".to_owned())];
        assert_eq!(texts(place.path()), expected);
    }

    #[test]
    fn a_file_that_others_move_or_remove_is_begun_anew() {
        let place = tempfile::tempdir().unwrap();
        let mut log = files(place.path(), 100, 2);
        log.append(b"one\n").unwrap();
        fs::rename(place.path().join(FILE), place.path().join("theirs")).unwrap();
        assert_eq!(log.append(b"two\n").unwrap(), Appended::Anew);
        assert_eq!(log.append(b"three\n").unwrap(), Appended::After);
        let kept = |name: &str| fs::read_to_string(place.path().join(name)).unwrap();
        assert_eq!(
            (kept("theirs"), kept(FILE)),
            ("one\n".into(), "two\nthree\n".into())
        );
        fs::remove_file(place.path().join(FILE)).unwrap();
        assert_eq!(log.append(b"four\n").unwrap(), Appended::Anew);
        assert_eq!(kept(FILE), "four\n");
    }

    /// As logrotate's copytruncate does.
    #[test]
    fn a_file_that_others_shorten_has_its_whole_length_again() {
        let place = tempfile::tempdir().unwrap();
        let mut log = files(place.path(), 8, 2);
        log.append(b"one\ntwo\n").unwrap();
        fs::write(place.path().join(FILE), "").unwrap();
        log.append(b"three\n").unwrap();
        let expected = [("audit.jsonl".to_owned(), "three\n".to_owned())];
        assert_eq!(texts(place.path()), expected);
        fs::write(place.path().join(FILE), "ha").unwrap();
        log.append(b"4\n").unwrap();
        assert_eq!(texts(place.path())[0].1, "ha\n4\n");
    }

    #[test]
    fn an_empty_file_is_no_end() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("audit.jsonl"), "").unwrap();
        fs::write(place.path().join("audit.jsonl.1"), "before\n").unwrap();
        assert_eq!(files(place.path(), 8, 2).tail().unwrap(), b"before\n");
    }

    #[test]
    fn an_error_names_the_file_and_passes() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("log");
        fs::write(&directory, "in the way").unwrap();
        let mut log = files(&directory, 100, 2);
        let error = log.append(b"one\n").unwrap_err().to_string();
        assert!(error.contains("log/audit.jsonl: "), "{error}");
        fs::remove_file(&directory).unwrap();
        log.append(b"one\n").unwrap();
        let mode = directory.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }
}
