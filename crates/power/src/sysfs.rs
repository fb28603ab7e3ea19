//! Files of sysfs and procfs: kept open, read in one piece with a bound on the length, and with errors that name
//! the file.
//!
//! An attribute of sysfs is one value that the driver prints anew at each read from its start, and takes in one
//! write. So a descriptor can be kept for as long as its device lives, and a read is one `pread`. Roots may be
//! anywhere, and may contain anything: a file that is not regular (a pipe would block its reader for ever) is
//! refused.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use litd_units::Watts;
use nix::errno::Errno;
use nix::libc::O_NONBLOCK;

use crate::error::PowerError;

/// A sysfs attribute is at most a page.
pub(crate) const PAGE: usize = 4096;

/// A number and its newline fit many times.
const NUMBER: usize = 64;

/// The remedy for a driver's file without permission.
pub(crate) const PERMISSION: &str =
    "run litd as root, and have its unit or container leave this file writable";

/// The action on a file that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Opening it, or looking for it.
    Open,
    /// Reading it.
    Read,
    /// Writing it.
    Write,
}

/// A file operation that failed.
#[derive(Debug)]
pub(crate) struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The action.
    pub step: Step,
    /// The system's error.
    pub error: io::Error,
}

impl FileError {
    /// The error number, if it is one of the system's.
    pub fn errno(&self) -> Option<Errno> {
        self.error.raw_os_error().map(Errno::from_raw)
    }

    /// As an error of a device, whose own folder is `home`; `permission` is the remedy for a missing permission.
    pub fn of(
        self,
        device: &str,
        action: &'static str,
        home: &Path,
        permission: &str,
    ) -> PowerError {
        let cause = self.to_string();
        let device = device.to_owned();
        match self.errno() {
            Some(Errno::EACCES | Errno::EPERM | Errno::EROFS) => PowerError::Permission {
                device,
                action,
                hint: format!("{cause}: {permission}"),
            },
            Some(Errno::ENODEV | Errno::ENXIO) => PowerError::Gone { device, cause },
            // Firmware that refuses a value gives this error as well; a file that can't even be read means that
            // the device is gone.
            Some(Errno::EIO) if self.step != Step::Write => PowerError::Gone { device, cause },
            Some(Errno::ENOENT) if !home.exists() => PowerError::Gone { device, cause },
            _ => PowerError::Driver {
                device,
                action,
                cause,
            },
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}

/// A file of a driver.
#[derive(Debug)]
pub(crate) struct Attribute {
    path: PathBuf,
    reader: Option<File>,
    writer: Option<File>,
}

impl Attribute {
    /// The file `path`, not opened yet.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            reader: None,
            writer: None,
        }
    }

    /// The file `path`, if there is one.
    pub fn existing(path: PathBuf) -> Option<Self> {
        path.exists().then(|| Self::new(path))
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The contents, if they are shorter than `buffer`.
    pub fn read<'b>(&mut self, buffer: &'b mut [u8]) -> Result<&'b [u8], FileError> {
        let kept = self.reader.is_some();
        let result = match self.read_once(buffer) {
            Err(error) if kept && is_stale(&error) => {
                self.reader = None;
                self.read_once(buffer)
            }
            other => other,
        };
        let length = result?;
        match buffer.get(..length) {
            Some(bytes) if length < buffer.len() => Ok(bytes),
            _ => Err(self.invalid(format!("has {length} bytes or more"))),
        }
    }

    fn read_once(&mut self, buffer: &mut [u8]) -> Result<usize, FileError> {
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => self.open(OpenOptions::new().read(true))?,
        };
        let result = retry(|| reader.read_at(buffer, 0));
        self.reader = Some(reader);
        result.map_err(|error| self.failed(Step::Read, error))
    }

    /// The number in the first line.
    pub fn number<T: FromStr>(&mut self) -> Result<T, FileError> {
        let mut buffer = [0; NUMBER];
        let text = self.read(&mut buffer)?;
        parse(text).ok_or_else(|| {
            let text = String::from_utf8_lossy(text);
            self.invalid(format!("says {:?}, which is no number here", text.trim()))
        })
    }

    /// The microwatts in the first line.
    pub fn watts(&mut self) -> Result<Watts, FileError> {
        Ok(from_micro(self.number()?))
    }

    /// Writes a number, in one piece.
    pub fn write(&mut self, value: u64) -> Result<(), FileError> {
        self.write_text(&value.to_string())
    }

    /// Writes a line, in one piece.
    pub fn write_text(&mut self, line: &str) -> Result<(), FileError> {
        let kept = self.writer.is_some();
        match self.write_once(line) {
            // The driver was loaded anew: the old descriptor has written nothing.
            Err(error) if kept && is_stale(&error) => {
                self.writer = None;
                self.write_once(line)
            }
            other => other,
        }
    }

    fn write_once(&mut self, line: &str) -> Result<(), FileError> {
        self.open_writer()?;
        let text = format!("{line}\n");
        let Some(writer) = &self.writer else {
            return Ok(());
        };
        match retry(|| writer.write_at(text.as_bytes(), 0)) {
            Ok(length) if length == text.len() => Ok(()),
            Ok(length) => Err(self.failed(
                Step::Write,
                io::Error::new(
                    io::ErrorKind::WriteZero,
                    format!("took {length} of {} bytes", text.len()),
                ),
            )),
            Err(error) => Err(self.failed(Step::Write, error)),
        }
    }

    /// Checks whether the file may be written, without writing.
    pub fn open_writer(&mut self) -> Result<(), FileError> {
        if self.writer.is_none() {
            self.writer = Some(self.open(OpenOptions::new().write(true))?);
        }
        Ok(())
    }

    /// Whether the driver offers the file for reading only, to anybody.
    pub fn is_read_only(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|data| data.permissions().mode() & 0o222 == 0)
    }

    fn open(&self, options: &mut OpenOptions) -> Result<File, FileError> {
        // Without this flag a pipe in the file's place would block.
        options.custom_flags(O_NONBLOCK);
        let failed = |error| self.failed(Step::Open, error);
        let file = options.open(&self.path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(self.invalid("is no regular file"));
        }
        Ok(file)
    }

    fn failed(&self, step: Step, error: io::Error) -> FileError {
        FileError {
            path: self.path.clone(),
            step,
            error,
        }
    }

    /// The error of unexpected contents.
    pub fn invalid(&self, text: impl Into<String>) -> FileError {
        let error = io::Error::new(io::ErrorKind::InvalidData, text.into());
        self.failed(Step::Read, error)
    }
}

/// Whether a descriptor outlived its device.
fn is_stale(error: &FileError) -> bool {
    matches!(
        error.errno(),
        Some(Errno::ENODEV | Errno::ENXIO | Errno::ESTALE)
    )
}

fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Watts of whole microwatts.
pub(crate) fn from_micro(microwatts: u64) -> Watts {
    Watts(microwatts as f64 / 1e6)
}

/// Whole microwatts of a cap that is a number and above 0.
pub(crate) fn to_micro(cap: Watts) -> Option<u64> {
    let microwatts = (cap.0 * 1e6).round();
    // The cast saturates; what a float holds exactly is enough for any device.
    (microwatts >= 1.0 && microwatts < 2f64.powi(53)).then_some(microwatts as u64)
}

/// The number in the first line of `text`. The kernel prints them plainly: an optional sign and
/// digits.
pub(crate) fn parse<T: FromStr>(text: &[u8]) -> Option<T> {
    let line = text.split(|&byte| byte == b'\n').next()?;
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

/// The number in a file that is read once.
pub(crate) fn number<T: FromStr>(path: PathBuf) -> Option<T> {
    Attribute::new(path).number().ok()
}

/// The first line of a file, without blanks around it; `None` if it is empty, unreadable, not UTF-8, or longer
/// than a page.
pub(crate) fn line(path: PathBuf) -> Option<String> {
    let mut buffer = [0; PAGE];
    let mut file = Attribute::new(path);
    let text = std::str::from_utf8(file.read(&mut buffer).ok()?).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// The first page of a file that may be longer; empty if it can't be read.
pub(crate) fn head(path: PathBuf) -> String {
    try_head(path).unwrap_or_default()
}

/// The same, or the error.
pub(crate) fn try_head(path: PathBuf) -> Result<String, FileError> {
    let mut buffer = vec![0; PAGE];
    let length = Attribute::new(path).read_once(&mut buffer)?;
    buffer.truncate(length);
    Ok(String::from_utf8_lossy(&buffer).into_owned())
}

/// A number in hexadecimal, with or without `0x`.
pub(crate) fn hexadecimal(path: PathBuf) -> Option<u64> {
    let line = line(path)?;
    let digits = line.strip_prefix("0x").unwrap_or(&line);
    u64::from_str_radix(digits, 16).ok()
}

/// The entries of a folder whose names are `prefix` and a number, by that number. An unreadable folder has none;
/// names that are not text are not the kernel's.
pub(crate) fn numbered(folder: &Path, prefix: &str) -> Vec<(u32, PathBuf)> {
    let mut found: Vec<(u32, PathBuf)> = each_numbered(folder, prefix).collect();
    found.sort();
    found
}

/// The same one by one, in no order: for a folder in which users decide how many there are, as procfs is.
pub(crate) fn each_numbered(folder: &Path, prefix: &str) -> impl Iterator<Item = (u32, PathBuf)> {
    let number = move |name: &OsStr| name.to_str()?.strip_prefix(prefix)?.parse().ok();
    entries(folder).filter_map(move |path| Some((number(path.file_name()?)?, path)))
}

/// The entries of a folder, in no order; none if it can't be read.
pub(crate) fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

/// The last part of a symbolic link's target, as text.
pub(crate) fn link_name(link: &Path) -> Option<String> {
    let target = fs::read_link(link).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn microwatts_survive_the_way_through_watts(microwatts in 1u64..10_000_000_000_000) {
            prop_assert_eq!(to_micro(from_micro(microwatts)), Some(microwatts));
        }

        #[test]
        fn numbers_are_read_as_the_kernel_prints_them(number: i64, rest in "(\n.*)?") {
            let text = format!("{number}{rest}");
            prop_assert_eq!(parse(text.as_bytes()), Some(number));
        }

        #[test]
        fn anything_can_be_parsed(bytes: Vec<u8>) {
            if let Some(number) = parse::<u64>(&bytes) {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let line = text.lines().next().unwrap().trim();
                prop_assert_eq!(line.trim_start_matches('+').parse(), Ok(number));
            }
        }
    }

    #[test]
    fn no_cap_is_no_number_of_microwatts() {
        for cap in [0.0, -1.0, 1e-7, f64::NAN, f64::INFINITY, 1e30] {
            assert_eq!(to_micro(Watts(cap)), None, "{cap}");
        }
    }

    #[test]
    fn what_the_system_says_is_an_error_that_a_person_can_act_on() {
        let folder = tempfile::tempdir().unwrap();
        let kind = |errno: Errno, home: &Path| {
            let error = FileError {
                path: home.join("power1_cap"),
                step: Step::Open,
                error: errno.into(),
            };
            let error = error.of("cpu0", "setting the cap", home, PERMISSION);
            let said = error.to_string();
            assert!(
                said.starts_with("cpu0: ") && said.contains("/power1_cap: "),
                "{said}"
            );
            assert_eq!(said.contains("as root"), error.kind() == "permission");
            error.kind()
        };
        for (errno, expected) in [
            (Errno::EACCES, "permission"),
            (Errno::EPERM, "permission"),
            (Errno::EROFS, "permission"),
            (Errno::ENODEV, "gone"),
            (Errno::ENXIO, "gone"),
            (Errno::EIO, "gone"),
            (Errno::ENOENT, "driver"),
            (Errno::EBUSY, "driver"),
            (Errno::ETIMEDOUT, "driver"),
        ] {
            assert_eq!(kind(errno, folder.path()), expected, "{errno}");
        }
        assert_eq!(kind(Errno::ENOENT, &folder.path().join("missing")), "gone");
    }

    #[test]
    fn a_pipe_in_a_files_place_blocks_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("power1_cap");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut pipe = Attribute::new(path);
        assert!(pipe.number::<u64>().is_err());
        assert!(pipe.write(1).is_err());
    }

    #[test]
    fn a_file_that_is_too_long_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("huge");
        fs::write(&path, vec![b'1'; 1 << 20]).unwrap();
        assert!(number::<u64>(path.clone()).is_none());
        assert!(line(path.clone()).is_none());
        let error = Attribute::new(path).number::<u64>().unwrap_err();
        assert!(
            error.to_string().ends_with("has 64 bytes or more"),
            "{error}"
        );
    }
}
