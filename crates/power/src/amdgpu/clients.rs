//! DRM's clients, for all GPUs at once. A client is described in `/proc/<pid>/fdinfo/<fd>` of its descriptor
//! (`Documentation/gpu/drm-usage-stats.rst`), so every descriptor of every process has to be examined. Any user
//! can have many of them: one look serves all GPUs, has a bound, and no user has more than a part of it. Processes
//! that compute are also in kfd's account, even if they are left out here.
//!
//! No name proves anything: any file may be called `dri/renderD128`. A descriptor's device number tells what it
//! is, and a descriptor that was opened with `O_PATH` needed no right to the device and is no client of its
//! driver.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use nix::libc::O_PATH;
use nix::sys::stat::{major, minor};

use super::address::Address;
use crate::sysfs;

/// A client with so much memory on a GPU uses it. Page tables of a client that only has its node open take some
/// tens of KiB.
const USED: u64 = 1 << 20;

/// The most descriptors of one look: half a second of work. A node with eight ranks and their data loaders has
/// some ten thousand.
const ALL: usize = 300_000;

/// The most of one user.
const SHARE: usize = 100_000;

/// The most of one process.
const DESCRIPTORS: usize = 4096;

/// The cost of reading a descriptor's description, in names of descriptors.
const TOLD: usize = 8;

/// A character device's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number {
    pub major: u64,
    pub minor: u64,
}

/// A process's descriptor through which it uses a GPU.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Client {
    pub pid: u32,
    /// When its process began, in the kernel's ticks: another process may have the id by now.
    began: Option<u64>,
    /// The device's node.
    pub number: Number,
    /// The GPU, if its driver tells.
    address: Option<String>,
}

impl Client {
    /// Whether its process still runs.
    pub fn is_alive(&self, proc: &Path) -> bool {
        began(&proc.join(self.pid.to_string())) == self.began
    }

    /// Whether it is a client of the GPU at `address`. Partitions have no place on the bus of their own.
    pub fn is_of(&self, address: &Address) -> bool {
        let here = |at: &String| at.parse() == Ok(*address);
        self.address.as_ref().is_none_or(here)
    }
}

/// How long a caller waits for a look of his own: the thread that asks also sets caps. A usual look takes some
/// tens of milliseconds.
const PATIENCE: Duration = Duration::from_millis(200);

/// After a look there is a pause of so many times its length: users can make a look expensive, and litd's share of
/// the processors is for caps.
const REST: u32 = 4;

/// Looks at all processes of a procfs, one look at a time, on a thread with no other work.
#[derive(Debug, Clone)]
pub(crate) struct Clients {
    proc: PathBuf,
    looks: Arc<Looks>,
}

#[derive(Debug, Default)]
struct Looks {
    state: Mutex<State>,
    /// A look is done.
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Look>,
    next: Next,
}

#[derive(Debug, Clone)]
struct Look {
    began: Instant,
    clients: Arc<[Client]>,
}

/// When the next look begins.
#[derive(Debug, Default)]
enum Next {
    /// At the next question.
    #[default]
    Asked,
    /// Not before this time.
    From(Instant),
    /// After the present one.
    AfterThis,
}

impl Clients {
    /// For the processes below this procfs.
    pub fn new(proc: &Path) -> Self {
        Self {
            proc: proc.to_owned(),
            looks: Arc::default(),
        }
    }

    /// The procfs.
    pub fn proc(&self) -> &Path {
        &self.proc
    }

    /// All clients, by a look that began no earlier than this call; callers during a look share the next one.
    /// Where there is none within [`PATIENCE`], the clients of the last look: newer clients are seen at a later
    /// call, and [`Client::is_alive`] tells which have ended.
    ///
    /// # Errors
    /// No look has been done yet.
    pub(super) fn now(&self) -> io::Result<Arc<[Client]>> {
        let asked = Instant::now();
        let deadline = asked + PATIENCE;
        let mut state = self.looks.lock();
        loop {
            if let Some(look) = state.last.as_ref().filter(|look| look.began >= asked) {
                return Ok(look.clients.clone());
            }
            let now = Instant::now();
            if now >= deadline {
                let last = state.last.as_ref().map(|look| look.clients.clone());
                return last.ok_or_else(|| io::Error::other(TOO_MANY));
            }
            let wake = match state.next {
                Next::From(then) if then > now => then.min(deadline),
                Next::AfterThis => deadline,
                Next::Asked | Next::From(_) => {
                    state.next = Next::AfterThis;
                    drop(state);
                    self.begin()?;
                    state = self.looks.lock();
                    continue;
                }
            };
            let wait = self.looks.done.wait_timeout(state, wake - now);
            state = wait.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
    }

    /// Begins a look.
    fn begin(&self) -> io::Result<()> {
        let (proc, looks) = (self.proc.clone(), self.looks.clone());
        let work = move || looks.finish(Instant::now(), look(&proc, ALL, SHARE));
        let thread = thread::Builder::new().name("litd-clients".to_owned());
        if let Err(error) = thread.spawn(work) {
            self.looks.lock().next = Next::Asked;
            return Err(error);
        }
        Ok(())
    }
}

/// The error where users have made the first look too long to wait for.
const TOO_MANY: &str =
    "processes have so many descriptors open that those of GPUs were not found yet; litd looks on";

impl Looks {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, began: Instant, clients: Vec<Client>) {
        let mut state = self.lock();
        let clients = clients.into();
        state.last = Some(Look { began, clients });
        state.next = Next::From(Instant::now() + REST * began.elapsed());
        self.done.notify_all();
    }
}

/// A look. Users take turns, a process each, so that one user's many descriptors don't hide others'.
fn look(proc: &Path, mut all: usize, share: usize) -> Vec<Client> {
    // Few processes first: those of services and of a user's ranks.
    let users = processes(proc, all, share).into_values();
    let mut turns: Vec<_> = users.map(|own| (share, own)).collect();
    turns.sort_by_key(|(_, own)| own.len());
    let mut turns = VecDeque::from(turns);
    let mut clients = Vec::new();
    while let Some((left, mut own)) = turns.pop_front() {
        let Some(pid) = own.pop_front() else {
            continue;
        };
        let most = left.min(all);
        let cost = look_at(pid, &proc.join(pid.to_string()), most, &mut clients);
        all = all.saturating_sub(cost);
        if all == 0 {
            break;
        }
        if cost < left {
            turns.push_back((left - cost, own));
        }
    }
    clients
}

/// The processes of each user, at most `share`, and about `all` in all: each costs a look at least one. Where users
/// have more, those who have most lose half of theirs until they fit.
fn processes(proc: &Path, all: usize, mut share: usize) -> BTreeMap<u32, VecDeque<u32>> {
    let mut users: BTreeMap<u32, VecDeque<u32>> = BTreeMap::new();
    let mut count = 0;
    for (pid, process) in sysfs::each_numbered(proc, "") {
        let Ok(there) = process.metadata() else {
            continue;
        };
        let own = users.entry(there.uid()).or_default();
        if own.len() >= share {
            continue;
        }
        own.push_back(pid);
        count += 1;
        while count > all && share > 1 {
            share /= 2;
            users.values_mut().for_each(|own| own.truncate(share));
            count = users.values().map(VecDeque::len).sum();
        }
        // Each user has one process left, and there are still more than `all`.
        if count > all {
            break;
        }
    }
    for own in users.values_mut() {
        own.shrink_to_fit();
        own.make_contiguous().sort_unstable();
    }
    users
}

/// Examines a process's descriptors, at the cost of no more than so many. Returns the cost.
fn look_at(pid: u32, process: &Path, most: usize, clients: &mut Vec<Client>) -> usize {
    let mut cost = 1;
    for link in sysfs::entries(&process.join("fd")).take(DESCRIPTORS) {
        if cost >= most {
            return most;
        }
        cost += 1;
        // The name tells which are worth examining; in a container the nodes have the same names.
        if link.read_link().is_ok_and(|path| is_node(&path)) {
            cost += TOLD;
            clients.extend(client(pid, process, &link));
        }
    }
    cost.min(most)
}

fn client(pid: u32, process: &Path, link: &Path) -> Option<Client> {
    // The driver's own description comes before the file's number: only DRM's files have one, and asking for the
    // number of a file in a user's own file system may take for ever.
    let told = sysfs::head(process.join("fdinfo").join(link.file_name()?));
    let told = Told::parse(&told);
    if !told.is_used() {
        return None;
    }
    let file = fs::metadata(link).ok()?;
    let same = told.inode.is_none_or(|inode| inode == file.ino());
    (file.file_type().is_char_device() && same).then(|| Client {
        pid,
        began: began(process),
        number: Number {
            major: major(file.rdev()),
            minor: minor(file.rdev()),
        },
        address: told.address.map(str::to_owned),
    })
}

/// When a process began, in clock ticks since the boot (`proc_pid_stat(5)`).
fn began(process: &Path) -> Option<u64> {
    let stat = sysfs::head(process.join("stat"));
    // A process may choose any name, also `) R 1`.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Whether a path ends like a GPU's node: `dri/card0`, `dri/renderD128`.
fn is_node(path: &Path) -> bool {
    let folder = path.parent().and_then(Path::file_name);
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    folder == Some(OsStr::new("dri")) && (name.starts_with("card") || name.starts_with("renderD"))
}

/// The kernel's description of a descriptor.
#[derive(Debug, Default, PartialEq)]
struct Told<'a> {
    /// Opened without any right to the device.
    is_path: bool,
    inode: Option<u64>,
    /// DRM's number of the client.
    id: Option<u64>,
    address: Option<&'a str>,
    /// Whether the client has had the GPU do work.
    has_worked: bool,
    /// Bytes on the GPU.
    memory: u64,
}

impl<'a> Told<'a> {
    fn parse(fdinfo: &'a str) -> Self {
        let mut client = Self::default();
        for (key, value) in fdinfo.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            let amount = || value.split(' ').next().unwrap_or_default().parse().ok();
            match key {
                "flags" => {
                    // Unreadable flags are not believed.
                    let flags = i32::from_str_radix(value, 8).ok();
                    client.is_path = flags.is_none_or(|flags| flags & O_PATH != 0);
                }
                "ino" => client.inode = amount(),
                "drm-client-id" => client.id = amount(),
                "drm-pdev" => client.address = Some(value),
                "drm-memory-vram" | "drm-total-vram" | "drm-resident-vram" => {
                    client.memory = client.memory.max(bytes(value).unwrap_or(0));
                }
                _ if key.starts_with("drm-engine-") && !key.starts_with("drm-engine-capacity-") => {
                    client.has_worked |= amount().is_some_and(|spent: u64| spent > 0);
                }
                _ => {}
            }
        }
        client
    }

    /// Whether its process uses the GPU: an open node alone does not count.
    fn is_used(&self) -> bool {
        let works = self.has_worked || self.memory >= USED;
        !self.is_path && self.id.is_some() && works
    }
}

/// A number and its unit.
fn bytes(value: &str) -> Option<u64> {
    let (number, unit) = value.split_once(' ').unwrap_or((value, ""));
    let unit: u64 = match unit.trim() {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use nix::unistd::Uid;

    use super::*;

    /// A process with so many descriptors, of which the last is a client.
    fn process(proc: &Path, pid: u32, user: u32, descriptors: usize) {
        let at = proc.join(pid.to_string());
        for folder in ["fd", "fdinfo"] {
            fs::create_dir_all(at.join(folder)).unwrap();
        }
        for descriptor in 0..descriptors {
            symlink("/dev/null", at.join(format!("fd/{descriptor}"))).unwrap();
        }
        let dri = proc.join("dri");
        fs::create_dir_all(&dri).unwrap();
        let node = dri.join("renderD128");
        if fs::symlink_metadata(&node).is_err() {
            symlink("/dev/null", &node).unwrap();
        }
        symlink(&node, at.join("fd/client")).unwrap();
        let told = "flags:\t02100002\ndrm-client-id:\t7\ndrm-engine-gfx:\t1 ns\n";
        fs::write(at.join("fdinfo/client"), told).unwrap();
        chown(&at, Some(user), None).unwrap();
    }

    fn pids(clients: &[Client]) -> Vec<u32> {
        let mut pids: Vec<u32> = clients.iter().map(|client| client.pid).collect();
        pids.sort_unstable();
        pids
    }

    #[test]
    fn one_user_with_very_many_descriptors_hides_nobody_elses_and_costs_no_more_than_a_share() {
        if !Uid::effective().is_root() {
            return eprintln!("SKIPPED: made-up processes of several users take root");
        }
        let proc = tempfile::tempdir().unwrap();
        let proc = proc.path();
        for pid in 1..=40 {
            process(proc, pid, 65_534, 200);
        }
        process(proc, 50, 1000, 20);
        process(proc, 51, 1001, 20);
        assert_eq!(look(proc, ALL, SHARE).len(), 42);
        // Ten of its processes fit into its share.
        let some = pids(&look(proc, ALL, 2100));
        assert!((10..14).contains(&some.len()), "{some:?}");
        assert!(some.ends_with(&[50, 51]), "{some:?}");
        // Where all is too much, users take turns.
        let few = pids(&look(proc, 700, 600));
        assert!(few.len() < 6 && few.ends_with(&[50, 51]), "{few:?}");
    }

    #[test]
    fn users_with_very_many_processes_hide_nobody_elses_and_take_no_more_than_their_room() {
        if !Uid::effective().is_root() {
            return eprintln!("SKIPPED: made-up processes of several users take root");
        }
        let proc = tempfile::tempdir().unwrap();
        let proc = proc.path();
        for pid in 1..=120 {
            let folder = proc.join(pid.to_string());
            fs::create_dir(&folder).unwrap();
            chown(&folder, Some(60_000 + pid / 100), None).unwrap();
        }
        process(proc, 500, 1000, 1);
        let kept = |all, share| {
            let users = processes(proc, all, share);
            assert_eq!(users[&1000], [500]);
            users.values().map(VecDeque::len).sum::<usize>()
        };
        // One user has 99, another 21, and the third one.
        assert_eq!(kept(ALL, SHARE), 99 + 21 + 1);
        assert_eq!(kept(100, 40), 40 + 21 + 1);
        assert!((20..=50).contains(&kept(50, 40)));
        assert_eq!(pids(&look(proc, 50, 40)), [500]);
    }

    #[test]
    fn whoever_has_a_process_number_next_is_not_the_client() {
        if !Uid::effective().is_root() {
            return eprintln!("SKIPPED: made-up processes of several users take root");
        }
        let proc = tempfile::tempdir().unwrap();
        let proc = proc.path();
        process(proc, 9, 1000, 1);
        let stat = |ticks: u64| {
            let zeros = "0 ".repeat(18);
            let text = format!("9 (a) b) R {zeros}{ticks} 0\n");
            fs::write(proc.join("9/stat"), text).unwrap();
        };
        stat(4711);
        let clients = look(proc, ALL, SHARE);
        assert!(clients[0].is_alive(proc));
        stat(4712);
        assert!(!clients[0].is_alive(proc));
    }

    #[test]
    fn a_look_is_shared_by_those_who_asked_before_it_began() {
        let proc = tempfile::tempdir().unwrap();
        let clients = Clients::new(proc.path());
        let first = clients.now().unwrap();
        assert!(!Arc::ptr_eq(&first, &clients.now().unwrap()));
        // Two callers wait for the look under way.
        clients.looks.lock().next = Next::AfterThis;
        let ask = || {
            let clients = clients.clone();
            std::thread::spawn(move || clients.now().unwrap())
        };
        let (one, other) = (ask(), ask());
        std::thread::sleep(Duration::from_millis(50));
        clients.looks.finish(Instant::now(), Vec::new());
        assert!(Arc::ptr_eq(&one.join().unwrap(), &other.join().unwrap()));
    }

    #[test]
    fn a_look_that_takes_long_is_not_waited_for_and_none_follows_it_at_once() {
        let proc = tempfile::tempdir().unwrap();
        let clients = Clients::new(proc.path());
        // The first look is under way.
        clients.looks.lock().next = Next::AfterThis;
        let error = clients.now().unwrap_err().to_string();
        assert!(error.contains("descriptors"), "{error}");
        let client = Client {
            pid: 7,
            began: None,
            number: Number {
                major: 226,
                minor: 128,
            },
            address: None,
        };
        let took = 10 * PATIENCE;
        clients.looks.finish(Instant::now() - took, vec![client]);
        // No client has come since, as the next look would show: it is not made yet.
        assert_eq!(clients.now().unwrap().len(), 1);
        assert!(matches!(clients.looks.lock().next, Next::From(_)));
    }
}
