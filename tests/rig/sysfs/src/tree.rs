//! Directories, links and attributes: what stands in the file system, before it has inodes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use litd_rig::{Hardware, Refused};
use nix::errno::Errno;

use crate::board::Device;

/// Makes the text of an attribute that is read.
type Show = dyn Fn(&Hardware) -> Result<Vec<u8>, Errno> + Send + Sync;
/// Takes the text that is written to an attribute.
type Store = dyn Fn(&mut Hardware, &[u8]) -> Result<(), Errno> + Send + Sync;
/// Answers an ioctl on an attribute.
type Control = dyn Fn(&mut Hardware, &Call<'_>) -> Result<Vec<u8>, Errno> + Send + Sync;

/// An ioctl.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// The command's number, with direction and size.
    pub command: u32,
    /// The data passed with the command.
    pub data: &'a [u8],
    /// Whether its descriptor may write.
    pub writable: bool,
}

/// A file, in the terms of the kernel's `DEVICE_ATTR`.
#[derive(Clone)]
pub(crate) struct Attribute {
    /// The file's permissions; its owner is root.
    pub mode: u16,
    /// The device to which the file belongs: the file is gone, blocks or is slow when the device is.
    pub device: Option<Device>,
    show: Option<Arc<Show>>,
    store: Option<Arc<Store>>,
    control: Option<Arc<Control>>,
}

impl fmt::Debug for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attribute")
            .field("mode", &self.mode)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

impl Attribute {
    /// An attribute with a constant text.
    pub fn text(text: impl Into<Vec<u8>>) -> Self {
        let text = text.into();
        Self {
            mode: 0o444,
            device: None,
            show: Some(Arc::new(move |_| Ok(text.clone()))),
            store: None,
            control: None,
        }
    }

    /// An attribute whose text a driver makes when it is read.
    pub fn show<F, T>(device: Device, show: F) -> Self
    where
        F: Fn(&Hardware) -> Result<T, Errno> + Send + Sync + 'static,
        T: Into<Vec<u8>>,
    {
        Self {
            mode: 0o444,
            device: Some(device),
            show: Some(Arc::new(move |hardware| show(hardware).map(Into::into))),
            store: None,
            control: None,
        }
    }

    /// A recorded attribute: no device of the rig's is behind it.
    pub fn recorded<F>(mode: u16, show: F) -> Self
    where
        F: Fn() -> Result<Vec<u8>, Errno> + Send + Sync + 'static,
    {
        Self {
            mode,
            device: None,
            show: Some(Arc::new(move |_| show())),
            store: None,
            control: None,
        }
    }

    /// The same, as a number on a line.
    pub fn number<F>(device: Device, show: F) -> Self
    where
        F: Fn(&Hardware) -> Result<u64, Errno> + Send + Sync + 'static,
    {
        Self::show(device, move |hardware| Ok(format!("{}\n", show(hardware)?)))
    }

    /// An attribute that answers ioctls only.
    pub fn control<F>(mode: u16, control: F) -> Self
    where
        F: Fn(&mut Hardware, &Call<'_>) -> Result<Vec<u8>, Errno> + Send + Sync + 'static,
    {
        Self {
            mode,
            device: None,
            show: None,
            store: None,
            control: Some(Arc::new(control)),
        }
    }

    /// The same with another mode.
    pub fn mode(mut self, mode: u16) -> Self {
        self.mode = mode;
        self
    }

    /// The same, writable with this mode.
    pub fn store<F>(mut self, mode: u16, store: F) -> Self
    where
        F: Fn(&mut Hardware, &[u8]) -> Result<(), Errno> + Send + Sync + 'static,
    {
        self.mode = mode;
        self.store = Some(Arc::new(store));
        self
    }

    /// Whether it can be opened so at all, by whomever. The kernel's sysfs asks this of root too.
    pub fn opens(&self, mode: u16, read: bool, write: bool) -> bool {
        let control = self.control.is_some();
        let reads = mode & 0o444 != 0 && (control || self.show.is_some());
        let writes = mode & 0o222 != 0 && (control || self.store.is_some());
        (reads || !read) && (writes || !write)
    }

    fn alive(&self, hardware: &Hardware) -> Result<(), Errno> {
        match self.device {
            Some(device) if device.is_gone(hardware) => Err(Errno::ENODEV),
            _ => Ok(()),
        }
    }

    /// Reads it.
    pub fn read(&self, hardware: &Hardware) -> Result<Vec<u8>, Errno> {
        self.alive(hardware)?;
        self.show.as_ref().ok_or(Errno::EIO)?(hardware)
    }

    /// Writes to it.
    pub fn write(&self, hardware: &mut Hardware, data: &[u8]) -> Result<(), Errno> {
        self.alive(hardware)?;
        self.store.as_ref().ok_or(Errno::EIO)?(hardware, data)
    }

    /// Calls it.
    pub fn call(&self, hardware: &mut Hardware, call: &Call<'_>) -> Result<Vec<u8>, Errno> {
        self.alive(hardware)?;
        self.control.as_ref().ok_or(Errno::ENOTTY)?(hardware, call)
    }
}

/// An entry of a directory that is no directory.
#[derive(Debug)]
pub(crate) enum Leaf {
    /// A symbolic link.
    Link(String),
    /// A file.
    File(Attribute),
}

/// Names, in order.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// The names of directories.
    pub directories: BTreeMap<String, Self>,
    /// The names of other entries.
    pub leaves: BTreeMap<String, Leaf>,
}

impl Directory {
    /// The directory at `path`, made if it is not there.
    pub fn directory(&mut self, path: &str) -> &mut Self {
        path.split('/').fold(self, |directory, name| {
            directory.directories.entry(name.to_owned()).or_default()
        })
    }

    /// Puts a file there.
    pub fn file(&mut self, path: &str, attribute: Attribute) {
        self.insert(path, Leaf::File(attribute));
    }

    /// Puts files there that say the same for ever.
    pub fn texts(&mut self, path: &str, files: &[(&str, &str)]) {
        for (name, text) in files {
            self.file(
                &format!("{path}/{name}"),
                Attribute::text(format!("{text}\n")),
            );
        }
    }

    /// Puts a symbolic link there.
    pub fn link(&mut self, path: &str, target: &str) {
        self.insert(path, Leaf::Link(target.to_owned()));
    }

    fn insert(&mut self, path: &str, leaf: Leaf) {
        let (directory, name) = match path.rsplit_once('/') {
            Some((directory, name)) => (self.directory(directory), name),
            None => (self, path),
        };
        directory.leaves.insert(name.to_owned(), leaf);
    }
}

/// The number that was written, as `kstrtoull` takes it: digits, and one newline at most.
pub(crate) fn parse(data: &[u8]) -> Result<u64, Errno> {
    let text = data.strip_suffix(b"\n").unwrap_or(data);
    let text = text.strip_prefix(b"+").unwrap_or(text);
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(Errno::EINVAL);
    }
    let text = std::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
    text.parse().map_err(|_| Errno::ERANGE)
}

/// The usual error number for a refusal: `locked` for a locked device, `reset` for one in reset.
pub(crate) fn errno(refused: &Refused, locked: Errno, reset: Errno) -> Errno {
    match refused {
        Refused::Unknown | Refused::Gone => Errno::ENODEV,
        Refused::Permission => Errno::EACCES,
        Refused::Reset => reset,
        Refused::Locked => locked,
        Refused::Firmware => Errno::EIO,
        Refused::Range { .. } | Refused::Plant(_) => Errno::EINVAL,
    }
}
