//! The audit log's files, read from the oldest to the youngest, and on as they grow. No daemon need be alive.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use litd_api::audit::{FILE, Line, Record};
use litd_files as files;

/// No daemon keeps as many files.
const MOST: usize = 1000;

/// Nor a longer one, in bytes: `audit.file_bytes` is at most so much, but for the last record.
const LONGEST: u64 = 2 << 30;

/// The records that were read.
#[derive(Debug, Default)]
pub struct Read {
    /// The lines that are records.
    pub lines: Vec<Line>,
    /// Damage to the log, in words.
    pub damage: Vec<String>,
}

/// A place in the log.
#[derive(Debug)]
pub struct Log {
    directory: PathBuf,
    /// Older files, the oldest last.
    older: Vec<PathBuf>,
    /// The file that is written to, once it was there, and what was read of its last line.
    open: Option<(File, Vec<u8>)>,
    /// The number of the last record.
    last: Option<u64>,
}

impl Log {
    /// The log in a directory.
    ///
    /// # Errors
    /// The directory can't be read; the error names it.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let path = |age: usize| directory.join(format!("{FILE}.{age}"));
        let older: Vec<PathBuf> = (1..=MOST).map(path).take_while(|it| it.exists()).collect();
        let log = Self {
            directory: directory.to_owned(),
            older,
            open: None,
            last: None,
        };
        match std::fs::read_dir(directory) {
            Ok(_) => Ok(log),
            Err(error) => Err(named(directory, &error)),
        }
    }

    /// Reads all new records.
    ///
    /// # Errors
    /// A file of it can't be read; the error names it.
    pub fn read(&mut self) -> io::Result<Read> {
        let mut read = Read::default();
        for path in std::mem::take(&mut self.older).into_iter().rev() {
            match files::read(&path, LONGEST) {
                Ok(bytes) => self.lines(&path, &bytes, &mut read),
                // The file has just been removed as the oldest.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(named(&path, &error)),
            }
        }
        self.drain(&mut read)?;
        let path = self.directory.join(FILE);
        match files::open(&path, OpenOptions::new().read(true)) {
            Ok(file) if self.is_read(&file)? => {}
            Ok(file) => {
                // The old one has its last line now.
                self.drain(&mut read)?;
                self.open = Some((file, Vec::new()));
                self.drain(&mut read)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(named(&path, &error)),
        }
        Ok(read)
    }

    /// Whether this is the file that is open.
    fn is_read(&self, file: &File) -> io::Result<bool> {
        let Some((open, _)) = &self.open else {
            return Ok(false);
        };
        let (one, other) = (open.metadata()?, file.metadata()?);
        Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
    }

    /// Reads on in the file that is open, up to its last whole line.
    fn drain(&mut self, read: &mut Read) -> io::Result<()> {
        let Some((mut file, mut bytes)) = self.open.take() else {
            return Ok(());
        };
        file.read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n');
        let rest = bytes.split_off(whole.map_or(0, |at| at + 1));
        let path = self.directory.join(FILE);
        self.lines(&path, &bytes, read);
        self.open = Some((file, rest));
        Ok(())
    }

    fn lines(&mut self, path: &Path, bytes: &[u8], read: &mut Read) {
        let name = path.display();
        for line in bytes.split(|&byte| byte == b'\n') {
            let Some(line) = Record::decode(line) else {
                continue;
            };
            let place = match self.last {
                Some(last) => format!("{name}, after record {last}"),
                None => format!("{name}"),
            };
            match &line {
                Line::Intact(record) => self.count(record.seq, &place, read),
                Line::Altered(_) => {
                    let text = format!("{place}: a record was altered after it was written");
                    read.damage.push(text);
                }
                Line::Unreadable => {
                    read.damage
                        .push(format!("{place}: a line is no record, and is left out"));
                    continue;
                }
            }
            read.lines.push(line);
        }
    }

    /// Whether records are missing. Those of a write that failed half way are: litd says so itself,
    /// in the record that follows.
    fn count(&mut self, seq: u64, place: &str, read: &mut Read) {
        match self.last {
            Some(last) if seq > last.saturating_add(1) => {
                let missing = litd_units::count(seq - last - 1, "record");
                read.damage.push(format!("{place}: {missing} missing"));
            }
            Some(last) if seq <= last => {
                let text = format!("{place}: record {seq} follows");
                read.damage.push(text);
            }
            _ => {}
        }
        self.last = Some(seq);
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => {
            ": litd has written no cap here, or keeps its log elsewhere (--directory)"
        }
        io::ErrorKind::PermissionDenied => ": root and members of the group litd may read it",
        _ => "",
    };
    io::Error::new(error.kind(), format!("{}: {error}{hint}", path.display()))
}
