//! The process that made a connection, and whether the process with its id is still the same.
//!
//! A socket tells its peer's process id (`SO_PEERCRED`), and an id alone proves little: a process may connect,
//! hand the connection to another one and end, and its id is reused. While a process lives no other has its id, so
//! facts that were learned by id count if the process is seen to live after that.
//!
//! Since Linux 6.5 the kernel gives a handle of the very process that connected (`SO_PEERPIDFD`). Before, start times
//! tell: the process with the id now is the one that connected, if it began before the connection was made. A
//! connection that waits was made after the last moment at which none waited; and, because connections are accepted in
//! their order and at most `WAIT` can wait, after the moment at which the one `WAIT` before it was accepted.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use litd_core::{Doubt, Home};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use nix::time::{ClockId, clock_gettime};

use crate::home;
use crate::listening::BACKLOG;

/// The unit of `/proc/PID/stat` (`USER_HZ`, the same on all machines that litd runs on).
const TICK: Duration = Duration::from_millis(10);

/// The most connections that wait to be accepted: the socket's backlog, and one or two more.
const WAIT: usize = BACKLOG as usize + 4;

/// More datagrams than the kernel's limit may wait where many processors send at once.
const MORE: usize = 1024;

/// The longest queue of datagrams of which is known when all that waited have been received.
const LONGEST_QUEUE: usize = 1 << 16;

/// The process that made a connection.
#[derive(Debug)]
pub struct Process(Known);

#[derive(Debug)]
enum Known {
    /// The kernel's handle of it.
    Handle(OwnedFd),
    /// The process's file in procfs, and when the process began, in ticks since boot.
    Began { stat: PathBuf, at: u64 },
    /// The process can't be told from others.
    Doubted(Doubt),
}

impl Process {
    /// The process with this id that began then, in ticks since boot.
    #[must_use]
    pub fn since(proc: &Path, pid: u32, at: u64) -> Self {
        let stat = proc.join(pid.to_string()).join("stat");
        Self(Known::Began { stat, at })
    }

    /// When the process began, in ticks since boot, where that is what tells it from others.
    #[must_use]
    pub fn began(&self) -> Option<u64> {
        match &self.0 {
            Known::Began { at, .. } => Some(*at),
            Known::Handle(_) | Known::Doubted(_) => None,
        }
    }

    /// Why the process that has its id now may be another one; `None`: it is the same.
    #[must_use]
    pub fn doubt(&self) -> Option<Doubt> {
        match &self.0 {
            Known::Handle(process) => {
                // The handle is readable once the process has ended.
                let mut wait = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
                match poll(&mut wait, PollTimeout::ZERO) {
                    Ok(0) => None,
                    Ok(_) => Some(Doubt::Ended),
                    Err(_) => Some(Doubt::Unsure),
                }
            }
            Known::Began { stat, at } => match began(stat) {
                Some(now) if now == *at => None,
                _ => Some(Doubt::Ended),
            },
            Known::Doubted(doubt) => Some(*doubt),
        }
    }
}

/// The kernel's abilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kernel {
    /// Handles of peers.
    Handles,
    /// Linux before 6.5.
    Old,
}

/// Finds the processes that make connections.
#[derive(Debug)]
pub struct Processes {
    proc: PathBuf,
    kernel: Cell<Kernel>,
    /// The last time, since boot, at which no connection waited to be accepted.
    none_waited: Cell<Option<Duration>>,
    /// When the last connections or datagrams were taken, since boot, the oldest first.
    taken: RefCell<VecDeque<Duration>>,
    /// The most of them that wait at the socket.
    waiting: usize,
    /// The daemon's own control group, which says nothing about its peers.
    own: Option<Home>,
}

impl Processes {
    /// For the procfs mounted there, of the namespace of peers' ids.
    #[must_use]
    pub fn new(proc: &Path) -> Self {
        Self {
            proc: proc.to_owned(),
            kernel: Cell::new(Kernel::Handles),
            none_waited: Cell::new(None),
            taken: RefCell::default(),
            waiting: WAIT,
            own: home::of(&proc.join("self")),
        }
    }

    /// The same, of processes that send datagrams.
    #[must_use]
    pub fn of_datagrams(proc: &Path) -> Self {
        Self {
            waiting: datagrams(proc),
            ..Self::new(proc)
        }
    }

    /// Checks whether connections wait to be accepted by this socket. Connections that are accepted later were
    /// made later.
    pub fn look(&self, listener: &impl AsFd) {
        let now = since_boot();
        let mut wait = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        if let (Ok(0), Some(now)) = (poll(&mut wait, PollTimeout::ZERO), now) {
            self.none_waited.set(Some(now));
        }
    }

    /// Nothing waits at this moment: what comes later was sent later.
    pub fn none_waits(&self) {
        if let Some(now) = since_boot() {
            self.none_waited.set(Some(now));
        }
    }

    /// A connection is about to be accepted. Connections are accepted in the order in which they are made: all
    /// that waited at one of these moments have been accepted once `WAIT` more were, and later ones were made
    /// later. So a peer that keeps the queue from ever being empty keeps nobody out.
    pub fn accepts(&self) {
        if self.kernel.get() == Kernel::Handles {
            return;
        }
        self.received();
    }

    /// The same of a datagram, or a connection that was accepted: both are received in the order in which they are
    /// sent, so whoever keeps the queue from ever being empty keeps nobody out.
    pub fn received(&self) {
        if self.waiting == usize::MAX {
            return;
        }
        let mut taken = self.taken.borrow_mut();
        taken.extend(since_boot());
        if taken.len() > self.waiting
            && let Some(then) = taken.pop_front()
        {
            self.none_waited.set(self.none_waited.get().max(Some(then)));
        }
    }

    /// Whether [`Processes::look`] is needed: only on kernels without handles.
    #[must_use]
    pub fn wants_looks(&self) -> bool {
        self.kernel.get() == Kernel::Old
    }

    /// The process that made a connection, whose id its socket tells.
    #[must_use]
    pub fn of(&self, connection: &impl AsFd, pid: u32) -> Process {
        if self.kernel.get() == Kernel::Handles {
            match getsockopt(connection, sockopt::PeerPidfd) {
                Ok(process) => return Process(Known::Handle(process)),
                // A process that ended before this has no handle.
                Err(Errno::ESRCH | Errno::EINVAL) => {
                    return Process(Known::Doubted(Doubt::Ended));
                }
                Err(Errno::ENOPROTOOPT) => self.kernel.set(Kernel::Old),
                Err(error) => {
                    log::warn!("the kernel gives no handle of process {pid}: {error}");
                    return Process(Known::Doubted(Doubt::Unsure));
                }
            }
        }
        self.sender(pid)
    }

    /// The process that has sent what came since the last [`Processes::none_waits`], whose id the kernel told with it:
    /// it is the one with that id now, if that one had begun before. Datagrams tell no handle before Linux 6.5,
    /// either.
    #[must_use]
    pub fn sender(&self, pid: u32) -> Process {
        let stat = self.proc.join(pid.to_string()).join("stat");
        let Some(at) = began(&stat) else {
            return Process(Known::Doubted(Doubt::Ended));
        };
        let before = |then: Duration| u128::from(at) < then.as_nanos() / TICK.as_nanos();
        match self.none_waited.get().is_some_and(before) {
            true => Process(Known::Began { stat, at }),
            false => Process(Known::Doubted(Doubt::Unsure)),
        }
    }

    /// The id that a process has in its own namespace, by its status in procfs.
    #[must_use]
    pub fn own_id(&self, pid: u32) -> Option<i32> {
        let ids = self.status(pid, "NSpid:")?;
        ids.split_ascii_whitespace().last()?.parse().ok()
    }

    /// The user whose files a process makes (its effective one).
    #[must_use]
    pub fn user(&self, pid: u32) -> Option<u32> {
        let ids = self.status(pid, "Uid:")?;
        ids.split_ascii_whitespace().nth(1)?.parse().ok()
    }

    /// A line of a process's status in procfs.
    fn status(&self, pid: u32, name: &str) -> Option<String> {
        let status = fs::read(self.proc.join(pid.to_string()).join("status")).ok()?;
        // The process's own name is in the file, too, without line breaks in it.
        let mut lines = status.split(|&byte| byte == b'\n');
        let line = lines.find_map(|line| line.strip_prefix(name.as_bytes()))?;
        String::from_utf8(line.to_vec()).ok()
    }

    /// The job that a scheduler has put the process with that id into, if it is the one that began then; `None`: it is
    /// not there any more.
    #[must_use]
    pub fn home_since(&self, pid: u32, at: u64) -> Option<Option<Home>> {
        let home = self.home_of(pid);
        let process = Process::since(&self.proc, pid, at);
        process.doubt().is_none().then_some(home)
    }

    /// The process that has started a process.
    #[must_use]
    pub fn parent(&self, pid: u32) -> Option<i32> {
        Stat::read(&self.proc.join(pid.to_string()).join("stat")).map(|it| it.parent)
    }

    /// The job that a scheduler has put a process into; `None` where the process may be another one.
    #[must_use]
    pub fn home(&self, process: &Process, pid: u32) -> Option<Home> {
        let home = self.home_of(pid);
        home.filter(|_| process.doubt().is_none())
    }

    /// The job of whatever process has this id now; the daemon's own control group is none. Check the process after
    /// that: one that lives then lived while this was read.
    fn home_of(&self, pid: u32) -> Option<Home> {
        let home = home::of(&self.proc.join(pid.to_string()));
        home.filter(|home| self.own.as_ref() != Some(home))
    }
}

fn since_boot() -> Option<Duration> {
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .ok()
        .map(Duration::from)
}

/// The facts about a process in `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Whether it is a zombie.
    pub has_ended: bool,
    /// The parent's id.
    pub parent: i32,
    /// When it began, in ticks since boot: a later process with the same id began at another time.
    pub began: u64,
}

impl Stat {
    /// Reads the file; `None` where there is no such process.
    #[must_use]
    pub fn read(stat: &Path) -> Option<Self> {
        let text = fs::read(stat).ok()?;
        // The name, in parentheses, may have any characters in it; then come its state (field 3), its parent, and
        // field 22.
        let named = text.iter().rposition(|&byte| byte == b')')?;
        let rest = std::str::from_utf8(text.get(named + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?;
        Some(Self {
            has_ended: matches!(state, "Z" | "X" | "x"),
            parent: fields.next()?.parse().ok()?,
            began: fields.nth(17)?.parse().ok()?,
        })
    }

    /// For the process with this id, or "self".
    #[must_use]
    pub fn of(pid: impl fmt::Display) -> Option<Self> {
        Self::read(Path::new(&format!("/proc/{pid}/stat")))
    }
}

/// A process's root directory, if the process with that id is the one that began then; `None`: it is not.
///
/// # Errors
/// The root can't be opened.
pub fn root(proc: &Path, pid: u32, at: u64) -> io::Result<Option<File>> {
    let root = File::open(proc.join(pid.to_string()).join("root"));
    // Checked after opening: while the process lives no other has its id.
    match Process::since(proc, pid, at).doubt() {
        None => root.map(Some),
        Some(_) => Ok(None),
    }
}

/// When the process of a `/proc/PID/stat` began, in ticks since boot; none if it has ended.
fn began(stat: &Path) -> Option<u64> {
    let stat = Stat::read(stat).filter(|it| !it.has_ended);
    stat.map(|it| it.began)
}

/// The most datagrams that wait at a socket, by the kernel's limit. Where that can't be read or is very large, only an
/// empty queue tells that nothing waits.
fn datagrams(proc: &Path) -> usize {
    let limit = fs::read_to_string(proc.join("sys/net/unix/max_dgram_qlen"));
    let limit = limit.ok().and_then(|text| text.trim().parse().ok());
    let limit = limit.filter(|&limit: &usize| limit <= LONGEST_QUEUE);
    limit.map_or(usize::MAX, |limit| limit + MORE)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A listener, and a process of its own for each test to let connect.
    struct Stand {
        _folder: tempfile::TempDir,
        listener: UnixListener,
        path: PathBuf,
    }

    const SOCKET: &str = "LITD_TEST_PROCESS_SOCKET";
    const ERRAND: &str = "LITD_TEST_PROCESS_ERRAND";

    impl Stand {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("socket");
            Self {
                listener: UnixListener::bind(&path).unwrap(),
                path,
                _folder: folder,
            }
        }

        fn child(&self, errand: &str) -> Child {
            Command::new("/proc/self/exe")
                .args(["--exact", "process::tests::errand_of_a_process"])
                .env(SOCKET, &self.path)
                .env(ERRAND, errand)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        }
    }

    /// Not a test by itself, but the code of the other process.
    #[test]
    fn errand_of_a_process() {
        let (Ok(path), Ok(errand)) = (std::env::var(SOCKET), std::env::var(ERRAND)) else {
            return;
        };
        let stream = UnixStream::connect(path).unwrap();
        if errand == "hands on" {
            // A process of its own keeps the connection and is not waited for.
            let kept = OwnedFd::from(stream);
            Command::new("sleep")
                .arg("30")
                .stdin(Stdio::from(kept))
                .spawn()
                .unwrap();
            std::process::exit(0);
        }
        (&stream).write_all(b"here").unwrap();
        std::io::stdin().read_exact(&mut [0]).unwrap_or_default();
    }

    fn processes(kernel: Kernel) -> Processes {
        let processes = Processes::new(Path::new("/proc"));
        processes.kernel.set(kernel);
        processes
    }

    #[test]
    fn a_process_is_known_for_as_long_as_it_lives() {
        for kernel in [Kernel::Handles, Kernel::Old] {
            let stand = Stand::new();
            let mut child = stand.child("waits");
            let processes = processes(kernel);
            let (mut stream, _) = stand.listener.accept().unwrap();
            stream.read_exact(&mut [0; 4]).unwrap();
            // The process has begun before this, and connects a second time after it.
            std::thread::sleep(2 * TICK);
            processes.look(&stand.listener);
            let process = processes.of(&stream, child.id());
            assert_eq!(process.doubt(), None, "{kernel:?}");
            drop(child.stdin.take());
            child.wait().unwrap();
            assert_eq!(process.doubt(), Some(Doubt::Ended), "{kernel:?}");
        }
    }

    #[test]
    fn whoever_hands_its_connection_on_and_ends_is_nobody() {
        for kernel in [Kernel::Handles, Kernel::Old] {
            let stand = Stand::new();
            let mut child = stand.child("hands on");
            let (stream, _) = stand.listener.accept().unwrap();
            child.wait().unwrap();
            let processes = processes(kernel);
            processes.look(&stand.listener);
            // The connection is open, and the id is free.
            let process = processes.of(&stream, child.id());
            assert_eq!(process.doubt(), Some(Doubt::Ended), "{kernel:?}");
            assert_eq!(processes.home(&process, std::process::id()), None);
        }
    }

    /// Where only start times tell: a process that began after the connection was made may have any id.
    #[test]
    fn an_old_kernel_does_not_tell_a_process_that_began_while_connections_waited() {
        let stand = Stand::new();
        let processes = processes(Kernel::Old);
        processes.look(&stand.listener);
        std::thread::sleep(2 * TICK);
        let mut child = stand.child("waits");
        let (mut stream, _) = stand.listener.accept().unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
        let first = processes.of(&stream, child.id());
        assert_eq!(first.doubt(), Some(Doubt::Unsure));
        // A waiting connection keeps it so; once none waits, the next one is known.
        std::thread::sleep(2 * TICK);
        let waiting = UnixStream::connect(&stand.path).unwrap();
        processes.look(&stand.listener);
        assert_eq!(
            processes.of(&stream, child.id()).doubt(),
            Some(Doubt::Unsure)
        );
        drop(waiting);
        stand.listener.accept().unwrap();
        processes.look(&stand.listener);
        assert_eq!(processes.of(&stream, child.id()).doubt(), None);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn an_old_kernel_tells_it_once_as_many_were_accepted_as_can_wait() {
        let stand = Stand::new();
        let processes = processes(Kernel::Old);
        let mut child = stand.child("waits");
        let (mut stream, _) = stand.listener.accept().unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
        std::thread::sleep(2 * TICK);
        let waiting = UnixStream::connect(&stand.path).unwrap();
        for _ in 0..WAIT {
            processes.look(&stand.listener);
            processes.accepts();
        }
        let first = processes.of(&stream, child.id());
        assert_eq!(first.doubt(), Some(Doubt::Unsure));
        processes.accepts();
        assert_eq!(processes.of(&stream, child.id()).doubt(), None);
        drop(waiting);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn a_flood_of_datagrams_keeps_no_later_sender_from_being_told() {
        let processes = Processes::of_datagrams(Path::new("/proc"));
        let mut child = Command::new("sleep").arg("30").spawn().unwrap();
        std::thread::sleep(2 * TICK);
        let most = datagrams(Path::new("/proc"));
        assert!((MORE..=LONGEST_QUEUE + MORE).contains(&most), "{most}");
        for _ in 0..most {
            processes.received();
        }
        let sender = processes.sender(child.id());
        assert_eq!(sender.doubt(), Some(Doubt::Unsure));
        processes.received();
        assert_eq!(processes.sender(child.id()).doubt(), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn where_the_kernel_does_not_tell_how_many_wait_only_an_empty_queue_counts() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(datagrams(folder.path()), usize::MAX);
        let limit = folder.path().join("sys/net/unix");
        fs::create_dir_all(&limit).unwrap();
        fs::write(limit.join("max_dgram_qlen"), "99999999\n").unwrap();
        assert_eq!(datagrams(folder.path()), usize::MAX);
        fs::write(limit.join("max_dgram_qlen"), "512\n").unwrap();
        assert_eq!(datagrams(folder.path()), 512 + MORE);
    }

    /// Another living process has the id.
    #[test]
    fn a_start_that_is_not_the_same_is_another_process() {
        let folder = tempfile::tempdir().unwrap();
        let stat = folder.path().join("stat");
        let told = |state: &str, start: u64| {
            let text = format!(
                "7 (a) b) (c) {state} 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 {start} 9 9"
            );
            fs::write(&stat, text).unwrap();
        };
        told("S", 4711);
        assert_eq!(began(&stat), Some(4711));
        let process = Process(Known::Began {
            stat: stat.clone(),
            at: 4711,
        });
        assert_eq!(process.doubt(), None);
        told("S", 4712);
        assert_eq!(process.doubt(), Some(Doubt::Ended));
        told("Z", 4711);
        assert_eq!(process.doubt(), Some(Doubt::Ended));
    }
}
