//! The sockets that PyTorch's on-demand client knows: the abstract name `dynolog`, and that file in a directory for
//! jobs whose `KINETO_IPC_SOCKET_DIR` names it. Each has a thread that does nothing but answer.
//!
//! A client waits for its answer for 90 ms, and ends its process (`std::terminate`) if a datagram comes from a socket
//! that is not named as the daemon's is, or, with `KINETO_IPC_SOCKET_DIR`, from a socket outside that directory. So
//! answers go out from the bound socket only, to sockets that are named as clients name theirs in the same mode
//! (abstract, or a file), and nothing is sent unasked.

use std::fs::{self, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use litd_attach::{LONGEST, Looked, Outcome, Sender};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc::sa_family_t;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrLike as _, UnixAddr,
    UnixCredentials, bind, connect, recvmsg, sendto, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

use super::ranks::owner_of;
use super::{Desks, fit, names, now};
use crate::passed;
use crate::process::Processes;
use litd_core::Owners;
use litd_files as files;

/// How often litd takes its name back from processes that bind to it in the moment in which a restart frees it.
const SNATCHED: u32 = 1000;

/// The daemon's name, as clients have it.
pub(super) const NAME: &str = "dynolog";

/// How clients begin their sockets' names.
const CLIENT: &str = "dynoconfigclient";

/// How long a client of an older release listens for an answer. An answer that comes later is taken for the one to
/// its next question, 5 s later, and so are all that follow.
const LISTENS: Duration = Duration::from_millis(50);

/// How often to check that nothing waits, while nothing comes.
const LOOK: u16 = 200;

/// Of each slice of time a thread works so long at most, and rests for what is left of it: nobody keeps a core busy
/// with datagrams, and the answer to whoever waits meanwhile still comes within a slice.
const SLICE: Duration = Duration::from_millis(10);
const BUSY: Duration = Duration::from_millis(2);

/// A socket that was bound and is not served yet.
#[derive(Debug)]
pub(super) struct Socket {
    socket: OwnedFd,
    place: Place,
    /// Knows that nothing waited when it was bound.
    processes: Processes,
    /// The owners of subordinate ids.
    owners: Owners,
}

/// Where clients find it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// The abstract name, for as long as the socket is open.
    Abstract,
    /// A file in this directory.
    In(PathBuf),
}

/// A datagram, and who has sent it.
struct Received {
    length: usize,
    sender: Sender,
    from: Option<UnixAddr>,
    waited: Duration,
}

/// How busy a thread has been in this slice of time.
struct Pace {
    since: Instant,
    busy: Duration,
}

impl Pace {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            busy: Duration::ZERO,
        }
    }

    /// Counts what was begun then and has ended now, and rests where that was too much. What the kernel does for a
    /// datagram besides takes about as long.
    fn worked(&mut self, began: Instant) {
        let now = Instant::now();
        if now - self.since >= SLICE {
            (self.since, self.busy) = (began, Duration::ZERO);
        }
        self.busy += 2 * (now - began);
        if self.busy > BUSY {
            thread::sleep(SLICE.saturating_sub(now - self.since));
            *self = Self::new();
        }
    }
}

/// A client's socket.
enum Client {
    Abstract(UnixAddr),
    /// Opened as a path only: by its name another file might be met the next moment.
    File(OwnedFd),
}

impl Socket {
    /// Takes the abstract name.
    pub(super) fn by_name(proc: &Path, owners: &Owners) -> Result<Self, String> {
        let failed = |error: Errno| format!("the name @{NAME} can't be taken: {error}");
        let socket = made().map_err(failed)?;
        // Clients name sockets with a NUL at the end.
        let address = UnixAddr::new_abstract(format!("{NAME}\0").as_bytes()).map_err(failed)?;
        match bind(socket.as_raw_fd(), &address) {
            Ok(()) => Ok(Self::bound(socket, Place::Abstract, proc, owners)),
            Err(Errno::EADDRINUSE) => {
                let owner = names::owner(proc, NAME);
                let owner = owner.unwrap_or_else(|| "another process".to_owned());
                Err(format!(
                    "{owner} has the name @{NAME}: stop it and restart litd, or set attach.kineto = false and use \
                     its own client"
                ))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Takes the file's name in a directory.
    pub(super) fn within(directory: &Path, proc: &Path, owners: &Owners) -> Result<Self, String> {
        let path = directory.join(NAME);
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        fit(directory)?;
        let was_litds = clear(&path)?;
        let socket = made().map_err(|error| failed(error.into()))?;
        let address = UnixAddr::new(&path).map_err(|error| failed(error.into()))?;
        let mut tries = if was_litds { SNATCHED } else { 0 };
        while let Err(error) = bind(socket.as_raw_fd(), &address) {
            // The name was litd's a moment ago: whoever has taken it since has waited for that.
            let is_snatched = tries > 0 && error == Errno::EADDRINUSE && is_of_others(&path);
            if !is_snatched {
                return Err(failed(error.into()));
            }
            tries -= 1;
            fs::remove_file(&path).map_err(failed)?;
        }
        // In such a directory nobody else can put another file in its place.
        let open = fs::Permissions::from_mode(0o666);
        fs::set_permissions(&path, open).map_err(failed)?;
        Ok(Self::bound(
            socket,
            Place::In(directory.to_owned()),
            proc,
            owners,
        ))
    }

    fn bound(socket: OwnedFd, place: Place, proc: &Path, owners: &Owners) -> Self {
        let processes = Processes::of_datagrams(proc);
        processes.none_waits();
        Self {
            socket,
            place,
            processes,
            owners: owners.clone(),
        }
    }

    /// Starts its thread.
    pub(super) fn serve(self, desks: Desks) -> io::Result<()> {
        let thread = thread::Builder::new().name("kineto".into());
        let answer = move || self.answer(&desks);
        thread.stack_size(128 * 1024).spawn(answer).map(drop)
    }

    /// Answers for ever.
    fn answer(&self, desks: &Desks) {
        let mut pace = Pace::new();
        loop {
            match self.receive() {
                Ok((received, bytes)) => {
                    let began = Instant::now();
                    self.processes.received();
                    self.take(&received, &bytes, desks);
                    pace.worked(began);
                }
                Err(Errno::EAGAIN) => {
                    self.processes.none_waits();
                    let mut wait = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
                    // A signal only makes it look once more.
                    let _ = poll(&mut wait, PollTimeout::from(LOOK));
                }
                Err(_) => thread::sleep(SLICE),
            }
        }
    }

    /// The next datagram that waits.
    fn receive(&self) -> nix::Result<(Received, [u8; LONGEST + 1])> {
        let mut bytes = [0; LONGEST + 1];
        let mut control = nix::cmsg_space!(UnixCredentials, TimeVal);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let fd = self.socket.as_raw_fd();
        let message = recvmsg::<UnixAddr>(fd, &mut parts, Some(&mut control), flags)?;
        // A sender without a name has an address without any bytes, which nix takes for a mistake of its caller's.
        let is_named = |it: &UnixAddr| it.len() as usize > size_of::<sa_family_t>();
        let (length, mut from) = (message.bytes, message.address.filter(is_named));
        // What came with it did not fit: descriptors, which no client sends.
        let told = message.cmsgs();
        if told.is_err() {
            from = None;
        }
        let (mut sender, mut waited) = (Sender { pid: 0, uid: 0 }, Duration::ZERO);
        for told in told.into_iter().flatten() {
            match told {
                ControlMessageOwned::ScmCredentials(it) => {
                    sender.pid = u32::try_from(it.pid()).unwrap_or(0);
                    sender.uid = it.uid();
                }
                ControlMessageOwned::ScmTimestamp(at) => waited = since(at),
                _ => {}
            }
        }
        let received = Received {
            length,
            sender,
            from,
            waited,
        };
        Ok((received, bytes))
    }

    fn take(&self, received: &Received, bytes: &[u8], desks: &Desks) {
        let sender = received.sender;
        if received.waited > LISTENS {
            return desks.desk().too_late();
        }
        let from = received.from.as_ref();
        let Some(client) = from.and_then(|from| self.place.client(from, sender.uid)) else {
            return desks.desk().foreign();
        };
        // The desk is not kept meanwhile.
        let look = desks.desk().wants_look(sender);
        let looked = look.then(|| self.looked(sender)).flatten();
        let datagram = bytes.get(..received.length).unwrap_or(bytes);
        let outcome = desks.desk().take(now(), sender, looked, datagram);
        match outcome {
            Outcome::Nothing => {}
            Outcome::Answer(answer) => {
                // A client that reads nothing misses nothing.
                let _ = self.send(&client, &answer);
            }
            Outcome::Told(ticket, answer) => {
                if self.send(&client, &answer).is_err() {
                    desks.desk().end(sender.pid, ticket);
                }
            }
        }
    }

    /// Facts that procfs tells of a sender, if the process with its id is the one that sent.
    fn looked(&self, sender: Sender) -> Option<Looked> {
        let (pid, processes) = (sender.pid, &self.processes);
        let process = processes.sender(pid);
        let own = processes.own_id(pid)?;
        // A process that lives now lived while procfs was read: the job is told only then.
        let home = processes.home(&process, pid);
        let parent = processes.parent(pid)?;
        process.doubt().is_none().then_some(())?;
        Some(Looked {
            own,
            began: process.began()?,
            owner: owner_of(&self.owners, sender.uid, home.as_ref()),
            job: home.map(|home| home.as_str().to_owned()),
            parent,
        })
    }

    /// Sends from the bound socket, and never waits.
    fn send(&self, client: &Client, answer: &[u8]) -> nix::Result<usize> {
        let address = match client {
            Client::Abstract(address) => *address,
            Client::File(file) => UnixAddr::new(&*format!("/proc/self/fd/{}", file.as_raw_fd()))?,
        };
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        sendto(self.socket.as_raw_fd(), answer, &address, flags)
    }
}

impl Place {
    /// The client's socket, if it is one: named as clients name theirs, in this socket's own mode. In a directory it
    /// must be a socket of the sender's user.
    fn client(&self, from: &UnixAddr, uid: u32) -> Option<Client> {
        match self {
            Self::Abstract => {
                let name = from.as_abstract()?;
                name.starts_with(CLIENT.as_bytes())
                    .then_some(Client::Abstract(*from))
            }
            Self::In(directory) => {
                let path = from.path()?;
                // A client compares the daemon's path with its own variable, letter by letter.
                let name = path.strip_prefix(directory).ok()?.to_str()?;
                let is_its = path.as_os_str().len() == directory.as_os_str().len() + 1 + name.len();
                if !name.starts_with(CLIENT) || name.contains('/') || !is_its {
                    return None;
                }
                let mut as_place = OpenOptions::new();
                let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW;
                let file = as_place.read(true).custom_flags(flags.bits());
                let file = file.open(directory.join(name)).ok()?;
                let there = file.metadata().ok()?;
                let is_its = there.file_type().is_socket() && there.uid() == uid;
                is_its.then(|| Client::File(file.into()))
            }
        }
    }
}

/// A socket that tells who sends, and when.
fn made() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Datagram, flags, None)?;
    // Before Linux 6.16 a descriptor that comes along is closed as its datagram is read. Whoever passes one that
    // lingers then delays this thread, and nothing else of litd's.
    passed::refuse(&socket);
    setsockopt(&socket, sockopt::PassCred, &true)?;
    setsockopt(&socket, sockopt::ReceiveTimestamp, &true)?;
    Ok(socket)
}

/// How long ago a moment of the wall clock was. A clock that was set back meanwhile makes nothing late.
fn since(at: TimeVal) -> Duration {
    let seconds = u64::try_from(at.tv_sec()).unwrap_or(0);
    let micros = u64::try_from(at.tv_usec()).unwrap_or(0);
    let at = UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_micros(micros);
    SystemTime::now().duration_since(at).unwrap_or_default()
}

/// Whether a socket of another user's is there.
fn is_of_others(path: &Path) -> bool {
    let there = fs::symlink_metadata(path);
    there.is_ok_and(|it| it.file_type().is_socket() && files::is_others(it.uid()))
}

/// Removes a socket that a predecessor has left, and says whether there was one. Whatever another process has is left
/// alone.
fn clear(path: &Path) -> Result<bool, String> {
    let Ok(there) = fs::symlink_metadata(path) else {
        return Ok(false);
    };
    let name = path.display();
    let is_taken = !there.file_type().is_socket() || files::is_others(there.uid());
    let visitor = socket(
        AddressFamily::Unix,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    );
    let knock = visitor.and_then(|it| connect(it.as_raw_fd(), &UnixAddr::new(path)?));
    match knock {
        Err(Errno::ECONNREFUSED) if !is_taken => {
            let removed = fs::remove_file(path).map(|()| true);
            removed.map_err(|error| format!("{name}: {error}"))
        }
        _ => Err(format!(
            "{name}: another process or user has it: stop that process, remove the file, and restart litd"
        )),
    }
}
