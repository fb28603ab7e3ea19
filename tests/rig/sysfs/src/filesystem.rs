//! The file system: inodes, descriptors, and who is asked.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    IoctlFlags, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use litd_rig::{Fault, Hardware, SharedHardware, delayed, lock};
use nix::errno::Errno;

use crate::board::Board;
use crate::cpu::Register;
use crate::hsmp;
use crate::levels::Level;
use crate::recorded::Recorded;
use crate::tree::{Attribute, Call, Directory, Leaf};

/// The kernel must not cache attributes: a driver may say something else each time.
const TTL: Duration = Duration::ZERO;

/// A directory that is no device's stays as long as the kernel likes. Looked up anew for each path that goes through
/// it, such directories would be nine questions in ten.
const LASTING: Duration = Duration::from_secs(60);

/// The size that stat reports for every attribute of sysfs.
const SIZE: u64 = 4096;

/// The mounted hardware.
#[derive(Debug)]
pub(crate) struct Shared {
    hardware: SharedHardware,
    contents: Contents,
    stopped: AtomicBool,
    state: Mutex<State>,
}

/// Where the files come from.
#[derive(Debug)]
enum Contents {
    /// From drivers over the rig's hardware.
    Made {
        board: Board,
        short_term: Vec<Register>,
        levels: Vec<Level>,
    },
    /// From a node's recording. The rig's hardware is not shown.
    Recorded(Recorded),
}

impl Contents {
    fn tree(&self, hardware: &Hardware) -> Directory {
        match self {
            Self::Made {
                board,
                short_term,
                levels,
            } => board.tree(hardware, short_term, levels),
            Self::Recorded(recorded) => recorded.tree(),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// The hardware's revision when the entries were made.
    revision: Option<u64>,
    entries: HashMap<u64, Entry>,
    /// A path has the same inode for ever.
    inodes: HashMap<String, u64>,
    handles: HashMap<u64, Handle>,
    opened: u64,
    /// Changes by chmod and chown.
    owners: HashMap<u64, Owner>,
}

#[derive(Debug)]
struct Entry {
    parent: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Directory {
        /// In order, with their inodes.
        names: Vec<(String, u64)>,
        /// Whether no file in it is a device's, with which it could go.
        lasts: bool,
    },
    Link(String),
    File(Attribute),
}

impl Kind {
    fn file_type(&self) -> FileType {
        match self {
            Self::Directory { .. } => FileType::Directory,
            Self::Link(_) => FileType::Symlink,
            Self::File(_) => FileType::RegularFile,
        }
    }
}

/// A file's owner and permissions, if changed.
#[derive(Debug, Clone, Copy, Default)]
struct Owner {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
}

/// An open file. It keeps the attribute that it was opened as: a driver that is loaded anew has
/// another.
#[derive(Debug, Clone)]
struct Handle {
    attribute: Attribute,
    writable: bool,
    /// The text read at offset 0; later reads of the same opening continue in it.
    page: Vec<u8>,
}

impl Shared {
    pub fn new(hardware: SharedHardware, board: Board) -> Self {
        let (short_term, levels) = {
            let hardware = lock(&hardware);
            let gpus = hardware.plant().gpu_count();
            let cpus = hardware.plant().gpu_count()..hardware.len();
            let listed = cpus.filter_map(|cpu| hardware.listed(cpu));
            let registers = listed.map(|listed| Register::short_term(listed.range.highest));
            let levels = std::iter::repeat_with(Level::default).take(gpus);
            (registers.collect(), levels.collect())
        };
        let contents = Contents::Made {
            board,
            short_term,
            levels,
        };
        Self::with_contents(hardware, contents)
    }

    /// The files of a recording. Nothing of `hardware` is shown.
    pub fn recorded(hardware: SharedHardware, recorded: Recorded) -> Self {
        Self::with_contents(hardware, Contents::Recorded(recorded))
    }

    fn with_contents(hardware: SharedHardware, contents: Contents) -> Self {
        Self {
            hardware,
            contents,
            stopped: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Answers whatever a fault holds back.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        lock(&self.hardware).ring();
    }

    /// Looks at the files that there are now.
    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        let hardware = lock(&self.hardware);
        let revision = Some(hardware.revision());
        let mut state = lock(&self.state);
        if state.revision != revision {
            let tree = self.contents.tree(&hardware);
            state.entries.clear();
            state.add(String::new(), INodeNo::ROOT.0, tree);
            state.revision = revision;
        }
        drop(hardware);
        look(&mut state)
    }

    /// Does something with the hardware and `reply` with what came of it: on a thread of its
    /// own where a fault of the device holds it up, so that all others are served.
    fn perform<T: Send + 'static>(
        self: &Arc<Self>,
        device: Option<usize>,
        act: impl FnOnce(&mut Hardware) -> T + Send + 'static,
        reply: impl FnOnce(T) + Send + 'static,
    ) {
        let shared = self.clone();
        let perform = move || {
            let stopped = || shared.stopped.load(Ordering::Acquire);
            reply(delayed(&shared.hardware, device, stopped, act));
        };
        let fault = device.and_then(|device| lock(&self.hardware).fault(device));
        match fault {
            // A request that gets no thread is answered by the reply's own end: EIO.
            Some(Fault::Slow(_) | Fault::Block(_)) => drop(
                thread::Builder::new()
                    .name("sysfs-slow".to_owned())
                    .spawn(perform),
            ),
            _ => perform(),
        }
    }

    fn handle(&self, handle: FileHandle) -> Option<Handle> {
        lock(&self.state).handles.get(&handle.0).cloned()
    }
}

impl State {
    fn add(&mut self, path: String, parent: u64, directory: Directory) -> u64 {
        let inode = self.inode(&path);
        let mut names = Vec::new();
        let mut lasts = true;
        for (name, below) in directory.directories {
            let below = self.add(format!("{path}/{name}"), inode, below);
            names.push((name, below));
        }
        for (name, leaf) in directory.leaves {
            let leaf_inode = self.inode(&format!("{path}/{name}"));
            let kind = match leaf {
                Leaf::Link(target) => Kind::Link(target),
                Leaf::File(attribute) => {
                    lasts &= attribute.device.is_none();
                    Kind::File(attribute)
                }
            };
            let parent = inode;
            self.entries.insert(leaf_inode, Entry { parent, kind });
            names.push((name, leaf_inode));
        }
        names.sort();
        let kind = Kind::Directory { names, lasts };
        self.entries.insert(inode, Entry { parent, kind });
        inode
    }

    fn inode(&mut self, path: &str) -> u64 {
        let next = self.inodes.len() as u64 + INodeNo::ROOT.0;
        *self.inodes.entry(path.to_owned()).or_insert(next)
    }

    /// What stat reports, and for how long the kernel may say so unasked.
    fn attr(&self, inode: u64) -> Option<(FileAttr, Duration)> {
        let entry = self.entries.get(&inode)?;
        let owner = self.owners.get(&inode).copied().unwrap_or_default();
        let ttl = match &entry.kind {
            Kind::Directory { lasts: true, .. } => LASTING,
            _ => TTL,
        };
        let (mode, size, nlink) = match &entry.kind {
            Kind::Directory { .. } => (0o755, 0, 2),
            Kind::Link(target) => (0o777, target.len() as u64, 1),
            Kind::File(attribute) => (attribute.mode, SIZE, 1),
        };
        let attr = FileAttr {
            ino: INodeNo(inode),
            size,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: entry.kind.file_type(),
            perm: owner.mode.map_or(mode, |mode| (mode & 0o7777) as u16),
            nlink,
            uid: owner.uid.unwrap_or_default(),
            gid: owner.gid.unwrap_or_default(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        Some((attr, ttl))
    }

    fn lookup(&self, parent: u64, name: &OsStr) -> Option<(FileAttr, Duration)> {
        let Kind::Directory { names, .. } = &self.entries.get(&parent)?.kind else {
            return None;
        };
        let name = name.to_str()?;
        let found = names.binary_search_by(|(other, _)| other.as_str().cmp(name));
        self.attr(names.get(found.ok()?)?.1)
    }

    fn open(&mut self, inode: u64, flags: OpenFlags) -> Result<u64, Errno> {
        let mode = self.attr(inode).ok_or(Errno::ENOENT)?.0.perm;
        let Some(Kind::File(attribute)) = self.entries.get(&inode).map(|entry| &entry.kind) else {
            return Err(Errno::EISDIR);
        };
        let access = flags.acc_mode();
        let read = access != OpenAccMode::O_WRONLY;
        let write = access != OpenAccMode::O_RDONLY;
        if !attribute.opens(mode, read, write) {
            return Err(Errno::EACCES);
        }
        let handle = Handle {
            attribute: attribute.clone(),
            writable: write,
            page: Vec::new(),
        };
        self.opened += 1;
        self.handles.insert(self.opened, handle);
        Ok(self.opened)
    }

    fn list(&self, inode: u64) -> Option<Vec<(u64, FileType, String)>> {
        let entry = self.entries.get(&inode)?;
        let Kind::Directory { names, .. } = &entry.kind else {
            return None;
        };
        let dots = [(inode, "."), (entry.parent, "..")]
            .map(|(inode, name)| (inode, FileType::Directory, name.to_owned()));
        let named = names.iter().filter_map(|(name, inode)| {
            let kind = self.entries.get(inode)?.kind.file_type();
            Some((*inode, kind, name.clone()))
        });
        Some(dots.into_iter().chain(named).collect())
    }
}

/// The file system that the kernel talks to.
#[derive(Debug)]
pub(crate) struct Sysfs(pub Arc<Shared>);

fn code(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno as i32)
}

impl Filesystem for Sysfs {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.0.with(|state| state.lookup(parent.0, name)) {
            Some((attr, ttl)) => reply.entry(&ttl, &attr, Generation(0)),
            None => reply.error(fuser::Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.with(|state| state.attr(inode.0)) {
            Some((attr, ttl)) => reply.attr(&ttl, &attr),
            None => reply.error(fuser::Errno::ENOENT),
        }
    }

    /// Owners and modes, as a udev rule sets them. Sizes are set by O_TRUNC and mean nothing.
    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let attr = self.0.with(|state| {
            let owner = state.owners.entry(inode.0).or_default();
            owner.mode = mode.or(owner.mode);
            owner.uid = uid.or(owner.uid);
            owner.gid = gid.or(owner.gid);
            state.attr(inode.0)
        });
        match attr {
            Some((attr, ttl)) => reply.attr(&ttl, &attr),
            None => reply.error(fuser::Errno::ENOENT),
        }
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        let target = self.0.with(|state| {
            let entry = state.entries.get(&inode.0)?;
            match &entry.kind {
                Kind::Link(target) => Some(target.clone()),
                Kind::Directory { .. } | Kind::File(_) => None,
            }
        });
        match target {
            Some(target) => reply.data(target.as_bytes()),
            None => reply.error(fuser::Errno::EINVAL),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(entries) = self.0.with(|state| state.list(inode.0)) else {
            return reply.error(fuser::Errno::ENOENT);
        };
        for (position, (inode, kind, name)) in entries.into_iter().enumerate() {
            let position = position as u64;
            if position >= offset && reply.add(INodeNo(inode), position + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.0.with(|state| state.open(inode.0, flags)) {
            // No flush: a process that ends must not wait for itself.
            Ok(handle) => reply.opened(
                FileHandle(handle),
                FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH,
            ),
            Err(error) => reply.error(code(error)),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.0.state).handles.remove(&handle.0);
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(Handle {
            attribute, page, ..
        }) = self.0.handle(handle)
        else {
            return reply.error(fuser::Errno::EBADF);
        };
        let slice = move |page: &[u8]| {
            let begin = usize::try_from(offset)
                .unwrap_or(usize::MAX)
                .min(page.len());
            let end = begin.saturating_add(size as usize).min(page.len());
            begin..end
        };
        if offset > 0 {
            return reply.data(&page[slice(&page)]);
        }
        let shared = self.0.clone();
        let device = attribute.device.map(|device| device.index);
        self.0.perform(
            device,
            move |hardware| attribute.read(hardware),
            move |result| match result {
                Ok(page) => {
                    if let Some(handle) = lock(&shared.state).handles.get_mut(&handle.0) {
                        handle.page.clone_from(&page);
                    }
                    reply.data(&page[slice(&page)]);
                }
                Err(error) => reply.error(code(error)),
            },
        );
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(Handle { attribute, .. }) = self.0.handle(handle) else {
            return reply.error(fuser::Errno::EBADF);
        };
        let device = attribute.device.map(|device| device.index);
        let data = data.to_owned();
        self.0.perform(
            device,
            move |hardware| attribute.write(hardware, &data).map(|()| data.len()),
            move |result| match result {
                Ok(length) => reply.written(u32::try_from(length).unwrap_or(u32::MAX)),
                Err(error) => reply.error(code(error)),
            },
        );
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: IoctlFlags,
        command: u32,
        data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        let Some(Handle {
            attribute,
            writable,
            ..
        }) = self.0.handle(handle)
        else {
            return reply.error(fuser::Errno::EBADF);
        };
        let gpus = lock(&self.0.hardware).plant().gpu_count();
        let device = hsmp::addressee(data).map(|socket| gpus + socket);
        let data = data.to_owned();
        let call = move |hardware: &mut Hardware| {
            let data = data.as_slice();
            attribute.call(
                hardware,
                &Call {
                    command,
                    data,
                    writable,
                },
            )
        };
        self.0.perform(device, call, move |result| match result {
            Ok(answer) => reply.ioctl(0, &answer),
            Err(error) => reply.error(code(error)),
        });
    }
}
