//! The two ways to a socket's firmware. Both use microwatts here.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc::O_NONBLOCK;

use super::ioctl::{self, Message};
use crate::sysfs::{self, Attribute, FileError, Step};

/// Messages to a socket.
pub(super) trait Port: Send {
    /// The limit that is set.
    fn limit(&mut self) -> Result<u64, FileError>;
    /// The highest limit.
    fn highest(&mut self) -> Result<u64, FileError>;
    /// Power drawn.
    fn power(&mut self) -> Result<u64, FileError>;
    /// Sets the limit, which the firmware may clamp.
    fn set(&mut self, microwatts: u64) -> Result<(), FileError>;
    /// Whether the limit may be set, as far as can be told without doing it.
    fn check(&mut self) -> Result<(), FileError>;
    /// Closes open files.
    fn close(&mut self);
    /// A path that exists for as long as the socket does.
    fn home(&self) -> &Path;
}

/// A socket's folder of sensors (Linux, `drivers/platform/x86/amd/hsmp/hwmon.c`).
#[derive(Debug)]
pub(super) struct Hwmon {
    files: Files,
    home: Option<Home>,
}

/// Where a socket's folder is found again: its number may go to another driver's folder once this driver is loaded
/// anew.
#[derive(Debug)]
struct Home {
    /// The device, which outlives its folders.
    device: PathBuf,
    /// The folder's position among the device's folders, and their number.
    place: usize,
    count: usize,
}

#[derive(Debug)]
struct Files {
    folder: PathBuf,
    limit: Attribute,
    highest: Attribute,
    power: Attribute,
}

impl Files {
    fn new(folder: PathBuf) -> Self {
        let file = |name: &str| Attribute::new(folder.join(name));
        Self {
            limit: file("power1_cap"),
            highest: file("power1_cap_max"),
            power: file("power1_input"),
            folder,
        }
    }
}

/// The driver's name for its folders.
const NAME: &str = "amd_hsmp_hwmon";

/// The folders of sensors below `parent` that are HSMP's, by their numbers.
pub(super) fn folders(parent: &Path) -> impl Iterator<Item = (u32, PathBuf)> {
    let all = sysfs::numbered(parent, "hwmon").into_iter();
    all.filter(|(_, path)| is_ours(path))
}

fn is_ours(folder: &Path) -> bool {
    sysfs::line(folder.join("name")).as_deref() == Some(NAME)
}

impl Home {
    fn of(folder: &Path) -> Option<Self> {
        let device = folder.join("device").canonicalize().ok()?;
        let all = Self::folders(&device);
        let folder = folder.canonicalize().ok()?;
        let is_it = |it: &PathBuf| it.canonicalize().is_ok_and(|it| it == folder);
        Some(Self {
            place: all.iter().position(is_it)?,
            count: all.len(),
            device,
        })
    }

    fn folders(device: &Path) -> Vec<PathBuf> {
        let parent = device.join("hwmon");
        folders(&parent).map(|(_, folder)| folder).collect()
    }

    /// The socket's present folder; `None` while its driver is not loaded, or comes up.
    fn folder(&self) -> Option<PathBuf> {
        let mut all = Self::folders(&self.device);
        (all.len() == self.count).then(|| all.swap_remove(self.place))
    }
}

impl Hwmon {
    pub fn new(folder: PathBuf) -> Self {
        let home = Home::of(&folder);
        let now = home.as_ref().and_then(Home::folder);
        Self {
            home,
            files: Files::new(now.unwrap_or(folder)),
        }
    }

    /// Uses the files of the socket's present folder.
    fn with<T>(
        &mut self,
        act: impl Fn(&mut Files) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        let now = match &self.home {
            Some(home) => home.folder(),
            None => Some(self.files.folder.clone()).filter(|it| is_ours(it)),
        };
        match now {
            Some(folder) if folder == self.files.folder => {}
            Some(folder) => self.files = Files::new(folder),
            None => {
                return Err(FileError {
                    path: self.files.folder.clone(),
                    step: Step::Open,
                    error: Errno::ENOENT.into(),
                });
            }
        }
        act(&mut self.files)
    }
}

impl Port for Hwmon {
    fn limit(&mut self) -> Result<u64, FileError> {
        self.with(|files| files.limit.number())
    }

    fn highest(&mut self) -> Result<u64, FileError> {
        self.with(|files| files.highest.number())
    }

    fn power(&mut self) -> Result<u64, FileError> {
        self.with(|files| files.power.number())
    }

    fn set(&mut self, microwatts: u64) -> Result<(), FileError> {
        self.with(|files| files.limit.write(microwatts))
    }

    fn check(&mut self) -> Result<(), FileError> {
        self.with(|files| files.limit.open_writer())
    }

    fn close(&mut self) {
        self.files = Files::new(std::mem::take(&mut self.files.folder));
    }

    fn home(&self) -> &Path {
        &self.files.folder
    }
}

/// Messages that litd sends: number, words sent, words answered. The kernel refuses other counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    Test = 0x01,
    Protocol = 0x03,
    Power = 0x04,
    SetLimit = 0x05,
    Limit = 0x06,
    HighestLimit = 0x07,
}

/// A socket behind `/dev/hsmp`, which speaks milliwatts.
#[derive(Debug)]
pub(super) struct Device {
    path: PathBuf,
    socket: u16,
    file: Option<File>,
    /// Whether `file` is for questions only.
    read_only: bool,
}

/// A number that does not occur by chance.
const ECHO: u32 = 0x4c49_5444;

impl Device {
    pub fn new(path: PathBuf, socket: u16) -> Self {
        Self {
            path,
            socket,
            file: None,
            read_only: false,
        }
    }

    /// Whether the firmware answers.
    pub fn test(&mut self) -> Result<(), FileError> {
        match self.ask(Ask::Test, Some(ECHO))? {
            answer if answer == ECHO + 1 => Ok(()),
            answer => {
                let text = format!("socket {} answers a test with {answer:#x}", self.socket);
                let error = io::Error::new(io::ErrorKind::InvalidData, text);
                Err(self.failed(Step::Read, error))
            }
        }
    }

    /// The protocol's version.
    pub fn protocol(&mut self) -> Result<u32, FileError> {
        self.ask(Ask::Protocol, None)
    }

    fn ask(&mut self, ask: Ask, told: Option<u32>) -> Result<u32, FileError> {
        let kept = self.file.is_some();
        match self.ask_once(ask, told) {
            // The driver was loaded anew: the old descriptor is dead.
            Err(error) if kept && error.errno() == Some(Errno::ENODEV) => {
                self.file = None;
                self.ask_once(ask, told)
            }
            other => other,
        }
    }

    fn ask_once(&mut self, ask: Ask, told: Option<u32>) -> Result<u32, FileError> {
        let sets = ask == Ask::SetLimit;
        let mut message = Message {
            id: ask as u32,
            arguments: told.is_some().into(),
            answers: (!sets).into(),
            socket: self.socket,
            ..Message::default()
        };
        message.args[0] = told.unwrap_or(0);
        let file = self.open(sets)?;
        let result = ioctl::send(file.as_fd(), &mut message);
        self.file = Some(file);
        let step = if sets { Step::Write } else { Step::Read };
        result.map_err(|error| self.failed(step, error))?;
        Ok(message.args[0])
    }

    /// The open file, taken out. A file for questions only is opened anew for commands.
    fn open(&mut self, to_set: bool) -> Result<File, FileError> {
        if let Some(file) = self.file.take().filter(|_| !(to_set && self.read_only)) {
            return Ok(file);
        }
        let open = |write: bool| {
            let mut options = OpenOptions::new();
            options.read(true).write(write).custom_flags(O_NONBLOCK);
            options.open(&self.path)
        };
        let (result, read_only) = match open(true) {
            Err(error) if !to_set && is_forbidden(&error) => (open(false), true),
            other => (other, false),
        };
        self.read_only = read_only;
        result.map_err(|error| self.failed(Step::Open, error))
    }

    fn failed(&self, step: Step, error: io::Error) -> FileError {
        FileError {
            path: self.path.clone(),
            step,
            error,
        }
    }
}

fn is_forbidden(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw),
        Some(Errno::EACCES | Errno::EPERM | Errno::EROFS)
    )
}

impl Port for Device {
    fn limit(&mut self) -> Result<u64, FileError> {
        self.ask(Ask::Limit, None).map(from_milli)
    }

    fn highest(&mut self) -> Result<u64, FileError> {
        self.ask(Ask::HighestLimit, None).map(from_milli)
    }

    fn power(&mut self) -> Result<u64, FileError> {
        self.ask(Ask::Power, None).map(from_milli)
    }

    fn set(&mut self, microwatts: u64) -> Result<(), FileError> {
        let milliwatts = u32::try_from(microwatts / 1000).unwrap_or(u32::MAX);
        self.ask(Ask::SetLimit, Some(milliwatts)).map(drop)
    }

    fn check(&mut self) -> Result<(), FileError> {
        self.file = Some(self.open(true)?);
        Ok(())
    }

    fn close(&mut self) {
        self.file = None;
    }

    fn home(&self) -> &Path {
        &self.path
    }
}

fn from_milli(milliwatts: u32) -> u64 {
    u64::from(milliwatts) * 1000
}
