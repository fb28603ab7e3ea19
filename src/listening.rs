//! A unix socket that clients reach by its path, for as long as litd lives. If somebody empties `/run/litd`, the
//! path is gone and no client could connect: the socket is made again there then. Open connections stay open.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockopt, listen, socket,
};
use thiserror::Error;
use tokio::net::UnixListener;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::config::Permissions;
use crate::lock;
use crate::passed::{self, Closers, Connection};
use crate::server::{self, own_by};
use litd_files as files;

/// How many connections may wait to be accepted, unless the kernel's bound is smaller (`net.core.somaxconn`).
pub const BACKLOG: i32 = 4096;

/// How often to check whether the closing threads have caught up.
const LOOK: Duration = Duration::from_millis(10);

/// Why a socket can't be listened on.
#[derive(Debug, Error)]
pub enum BindError {
    /// Another process answers there.
    #[error("{}: another process listens here", .0.display())]
    Taken(PathBuf),
    /// The file there is no socket, and is not removed.
    #[error("{}: is not a socket; remove it, or configure another path", .0.display())]
    NoSocket(PathBuf),
    /// The system refuses.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The socket's path.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
}

/// A socket that is listened on.
#[derive(Debug)]
pub struct Listening {
    place: Place,
    closers: Closers,
    open: RefCell<Open>,
    standing: RefCell<Standing>,
    /// Wakes tasks that wait for a connection at a socket that was replaced.
    renewed: Notify,
}

/// Where a socket is, and who may connect.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    group: String,
    permissions: Permissions,
}

/// A socket, and its file.
#[derive(Debug)]
struct Open {
    listener: Rc<UnixListener>,
    /// Whether the kernel refuses descriptors that peers pass to it.
    refuses_passed: bool,
    /// Opened as a path only. While it is open its inode number is not reused.
    file: File,
}

/// Whether clients reach the socket, as far as was reported.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    Reached,
    /// The socket was removed, and this error keeps it from being made again.
    Removed {
        why: String,
    },
}

impl Listening {
    /// Listens on a unix socket with the given permissions; a socket that a predecessor left is
    /// replaced. A group that does not exist is warned of, and the socket is the daemon's own then:
    /// better nobody than the wrong ones. `closers` close connections in which descriptors may wait.
    ///
    /// # Errors
    /// Something else is at that place, or the system refuses.
    pub fn on(
        path: &Path,
        group: &str,
        permissions: Permissions,
        closers: &Closers,
    ) -> Result<Self, BindError> {
        let place = Place {
            path: path.to_owned(),
            group: group.to_owned(),
            permissions,
        };
        Ok(Self {
            open: RefCell::new(place.open()?),
            place,
            closers: closers.clone(),
            standing: RefCell::new(Standing::Reached),
            renewed: Notify::new(),
        })
    }

    /// The next connection, however long it takes.
    pub async fn accept(&self) -> Connection {
        loop {
            while self.closers.are_late() {
                sleep(LOOK).await;
            }
            let listener = self.listener();
            tokio::select! {
                // At a socket that was replaced no connection is accepted any more, so that a check of the new one
                // sees all waiting connections.
                biased;
                () = self.renewed.notified() => {}
                stream = server::accept(|| listener.accept()) => {
                    // The connection was made to this socket, which stays the same until the next await.
                    let refuses = self.open.borrow().refuses_passed;
                    let closers = (!refuses).then(|| self.closers.clone());
                    return Connection::new(stream, closers);
                }
            }
        }
    }

    /// The socket that is listened on at this moment.
    #[must_use]
    pub fn listener(&self) -> Rc<UnixListener> {
        self.open.borrow().listener.clone()
    }

    /// Checks that clients reach the socket by its path, and makes it again there if they don't. Returns each new
    /// message once.
    pub fn keep(&self) -> Option<String> {
        if self.is_reached() {
            self.standing.replace(Standing::Reached);
            return None;
        }
        let path = self.place.path.display();
        let made = self.place.make_directory();
        match made.and_then(|()| self.place.open()) {
            Ok(open) => {
                self.open.replace(open);
                self.renewed.notify_one();
                self.standing.replace(Standing::Reached);
                Some(format!(
                    "{path}: somebody has removed this socket: it is made again"
                ))
            }
            Err(error) => {
                let why = error.to_string();
                let now = Standing::Removed { why: why.clone() };
                let before = self.standing.replace(now);
                let removed = Standing::Removed { why };
                (before != removed).then(|| {
                    format!(
                        "{path}: somebody has removed this socket, and nobody reaches litd there until it \
                         can be made again: {error}"
                    )
                })
            }
        }
    }

    /// Removes the socket's file, unless another process has replaced it.
    pub fn remove(&self) {
        if self.is_reached() {
            // The file may be gone any moment: systemd removes the runtime directory.
            let _ = fs::remove_file(&self.place.path);
        }
    }

    /// Whether the socket is the one at its path.
    fn is_reached(&self) -> bool {
        let ours = self.open.borrow().file.metadata();
        let there = fs::symlink_metadata(&self.place.path);
        matches!((ours, there), (Ok(ours), Ok(there))
            if (ours.dev(), ours.ino()) == (there.dev(), there.ino()))
    }
}

impl Place {
    fn open(&self) -> Result<Open, BindError> {
        self.clear()?;
        self.bind().map_err(|cause| self.failed(cause))
    }

    fn failed(&self, cause: io::Error) -> BindError {
        let path = self.path.clone();
        BindError::Io { path, cause }
    }

    fn make_directory(&self) -> Result<(), BindError> {
        let directory = self.path.parent().unwrap_or(Path::new(""));
        files::make_open(directory).map_err(|cause| self.failed(cause))
    }

    /// Removes a socket file that no process listens on any more.
    fn clear(&self) -> Result<(), BindError> {
        let Ok(there) = fs::symlink_metadata(&self.path) else {
            return Ok(());
        };
        if !there.file_type().is_socket() {
            return Err(BindError::NoSocket(self.path.clone()));
        }
        match knock(&self.path) {
            // A full queue, or another type of socket, means that a process has it.
            Ok(()) | Err(Errno::EAGAIN | Errno::EPROTOTYPE) => {
                Err(BindError::Taken(self.path.clone()))
            }
            Err(Errno::ENOENT) => Ok(()),
            Err(Errno::ECONNREFUSED) => {
                fs::remove_file(&self.path).map_err(|cause| self.failed(cause))
            }
            Err(error) => Err(self.failed(error.into())),
        }
    }

    fn bind(&self) -> io::Result<Open> {
        // The process's umask keeps others out until the permissions are set.
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        let refuses_passed = passed::refuse(&socket);
        bind(socket.as_raw_fd(), &UnixAddr::new(&self.path)?)?;
        let backlog = Backlog::new(BACKLOG).unwrap_or(Backlog::MAXCONN);
        listen(&socket, backlog)?;
        let listener = UnixListener::from_std(socket.into())?;
        let mut as_place = OpenOptions::new();
        as_place
            .read(true)
            .custom_flags((OFlag::O_PATH | OFlag::O_NOFOLLOW).bits());
        let file = as_place.open(&self.path)?;
        // By its path, another file might be changed the next moment.
        let itself = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let Permissions(mode) = self.permissions;
        let mode = match own_by(&itself, &self.group) {
            Ok(()) => mode,
            Err(why) => {
                log::warn!(
                    "{}: only the daemon's user may connect: group {}: {why}",
                    self.path.display(),
                    self.group
                );
                mode & 0o600
            }
        };
        fs::set_permissions(&itself, fs::Permissions::from_mode(mode))?;
        Ok(Open {
            listener: Rc::new(listener),
            refuses_passed,
            file,
        })
    }
}

/// Connects to a socket and disconnects. Never waits, even if the listener accepts nobody. A listener that is
/// being killed and can't end counts as none.
fn knock(path: &Path) -> Result<(), Errno> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let visitor = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(visitor.as_raw_fd(), &UnixAddr::new(path)?)?;
    let listener = getsockopt(&visitor, PeerCredentials)?;
    let is_dying = u32::try_from(listener.pid()).is_ok_and(lock::is_dying);
    match is_dying {
        true => Err(Errno::ECONNREFUSED),
        false => Ok(()),
    }
}

/// Removes sockets' files when it is dropped.
#[derive(Debug)]
pub struct Cleanup(pub Vec<Rc<Listening>>);

impl Drop for Cleanup {
    fn drop(&mut self) {
        for listening in &self.0 {
            listening.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net;
    use std::time::Instant;

    use tokio::task::LocalSet;

    use super::*;

    fn in_time(work: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let work = async { tokio::time::timeout(Duration::from_secs(10), work).await };
        LocalSet::new().block_on(&runtime, work).unwrap();
    }

    fn on(path: &Path) -> Listening {
        Listening::on(path, "", Permissions(0o660), &Closers::default()).unwrap()
    }

    #[test]
    fn whoever_waits_for_connections_has_those_to_the_new_socket() {
        in_time(async {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("run/litd/socket");
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let listening = Rc::new(on(&path));
            assert_eq!(listening.keep(), None);
            let other_end = Rc::downgrade(&listening.listener());
            let waiting = listening.clone();
            let waiting = tokio::task::spawn_local(async move { waiting.accept().await });
            tokio::task::yield_now().await;
            fs::remove_dir_all(place.path().join("run")).unwrap();
            assert!(listening.keep().unwrap().contains("is made again"));
            assert_eq!(listening.keep(), None);
            let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
            assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o660, 0o755));
            let _client = net::UnixStream::connect(&path).unwrap();
            waiting.await.unwrap();
            assert!(other_end.upgrade().is_none(), "two sockets are open");
            listening.remove();
            assert!(!path.exists());
        });
    }

    #[test]
    fn what_keeps_it_from_being_made_again_is_told_once() {
        in_time(async {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("socket");
            let listening = on(&path);
            fs::remove_file(&path).unwrap();
            fs::write(&path, "theirs").unwrap();
            let told = listening.keep().unwrap();
            assert!(told.contains("is not a socket"), "{told}");
            assert_eq!(listening.keep(), None);
            listening.remove();
            assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
            fs::remove_file(&path).unwrap();
            assert!(listening.keep().is_some());
            // A link is not followed.
            fs::rename(&path, place.path().join("elsewhere")).unwrap();
            std::os::unix::fs::symlink("elsewhere", &path).unwrap();
            assert!(listening.keep().unwrap().contains("is not a socket"));
        });
    }

    #[test]
    fn one_whose_queue_is_full_is_somebodys_and_is_not_waited_for() {
        in_time(async {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("socket");
            let listening = on(&path);
            fs::remove_file(&path).unwrap();
            let theirs = net::UnixListener::bind(&path).unwrap();
            listen(&theirs, Backlog::new(1).unwrap()).unwrap();
            while knock(&path) != Err(Errno::EAGAIN) {}
            let began = Instant::now();
            let told = listening.keep().unwrap();
            assert!(told.contains("another process listens here"), "{told}");
            assert!(began.elapsed() < Duration::from_secs(1));
            drop(theirs);
            assert!(listening.keep().is_some());
        });
    }
}
