//! A client that says what PyTorch's says, and other processes that say it.

use std::io::Read as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What another process is to do, and the process id that it says.
pub const ERRAND: &str = "LITD_TEST_KINETO_ERRAND";
const SAYS: &str = "LITD_TEST_KINETO_SAYS";

/// The folder in which its hook's socket is named.
const HOOK: &str = "LITD_TEST_KINETO_HOOK";

/// The head of a datagram.
const HEAD: usize = 40;

/// A socket as the client makes it.
pub struct Client {
    socket: UnixDatagram,
    daemon: SocketAddr,
}

/// An abstract name, with the NUL at its end that clients and daemon have.
pub fn named(name: &str) -> SocketAddr {
    SocketAddr::from_abstract_name(format!("{name}\0")).unwrap()
}

impl Client {
    pub fn new(number: u32) -> Self {
        Self::called(named(&format!(
            "dynoconfigclient{}-{number}",
            std::process::id()
        )))
    }

    pub fn called(name: SocketAddr) -> Self {
        Self {
            socket: UnixDatagram::bind_addr(&name).unwrap(),
            daemon: named("dynolog"),
        }
    }

    pub fn unnamed() -> Self {
        Self {
            socket: UnixDatagram::unbound().unwrap(),
            daemon: named("dynolog"),
        }
    }

    pub fn in_folder(folder: &Path, name: &str) -> Self {
        Self {
            socket: UnixDatagram::bind(folder.join(name)).unwrap(),
            daemon: SocketAddr::from_pathname(folder.join("dynolog")).unwrap(),
        }
    }

    pub fn ask(&self, datagram: &[u8]) {
        self.socket.send_to_addr(datagram, &self.daemon).unwrap();
    }

    pub fn ask_in(&self, folder: &Path, datagram: &[u8]) {
        self.socket
            .send_to(datagram, folder.join("dynolog"))
            .unwrap();
    }

    pub fn can_ask(&self) -> bool {
        self.socket.send_to_addr(&poll(1), &self.daemon).is_ok()
    }

    /// The next datagram that comes within this time.
    pub fn received(&self, within: Duration) -> Option<Vec<u8>> {
        self.socket.set_read_timeout(Some(within)).unwrap();
        let mut bytes = vec![0; 8192];
        let length = self.socket.recv(&mut bytes).ok()?;
        bytes.truncate(length);
        Some(bytes)
    }

    /// The text of the next answer. PyTorch's client ends its process if the answer is from another socket than the
    /// daemon's.
    pub fn answer(&self, within: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(within)).unwrap();
        let mut bytes = vec![0; 8192];
        let (length, from) = self.socket.recv_from(&mut bytes).ok()?;
        bytes.truncate(length);
        assert_eq!(from.as_abstract_name(), self.daemon.as_abstract_name());
        assert_eq!(from.as_pathname(), self.daemon.as_pathname());
        let (head, body) = bytes.split_at(HEAD);
        assert_eq!(head[..8], (body.len() as u64).to_ne_bytes());
        assert_eq!(&head[8..12], b"req\0");
        Some(String::from_utf8(body.to_vec()).unwrap())
    }
}

/// A question whether to record a trace, in the name of this process, with two ancestors.
pub fn poll(own: u32) -> Vec<u8> {
    let mut bytes = 28_u64.to_ne_bytes().to_vec();
    bytes.extend(b"req");
    bytes.resize(HEAD, 0);
    bytes.extend(2_i32.to_ne_bytes());
    bytes.extend(3_i32.to_ne_bytes());
    bytes.extend(0_i64.to_ne_bytes());
    for pid in [own, 2, 1] {
        bytes.extend(pid.to_ne_bytes());
    }
    bytes
}

/// Another process that asks in the name of a process; 0: in its own.
pub fn child(errand: &str, says: u32) -> Child {
    Command::new("/proc/self/exe")
        .args(["--exact", "attach::client::errand", "--nocapture"])
        .env(ERRAND, errand)
        .env(SAYS, says.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A process that asks again and again, as a rank of a job does, and tells of each configuration that it gets.
/// With `spoils` it writes what is no trace.
pub fn trains(client: &Client, spoils: bool) -> ! {
    let hook = std::env::var_os(HOOK)
        .map(|folder| Path::new(&folder).join(std::process::id().to_string()));
    let mut hooked = None;
    loop {
        if let Some(socket) = hook
            .as_ref()
            .and_then(|it| std::fs::read_to_string(it).ok())
            && hooked.is_none()
        {
            hooked = Some(UnixStream::connect(socket).unwrap());
        }
        client.ask(&poll(std::process::id()));
        // A question that waited for too long has no answer.
        let told = client.answer(Duration::from_millis(200));
        if let Some(told) = told.filter(|it| !it.is_empty()) {
            if spoils {
                spoil(&told);
            }
            println!("<{}>", told.replace('\n', ";"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Writes the file that a configuration names, and no trace into it.
fn spoil(told: &str) {
    let file = told
        .lines()
        .find_map(|it| it.strip_prefix("ACTIVITIES_LOG_FILE="));
    let stem = file.unwrap().strip_suffix(".json").unwrap();
    let place = format!("{stem}_{}.json", std::process::id());
    std::fs::write(place, "spoiled").unwrap();
}

/// Such a process, with a launcher's variables, or one that has the variables alone (`waits`). The first connects as a
/// hook once a file in this folder that is named like its id says to which socket.
pub fn rank(errand: &str, rank: usize, of: usize, hooks: &Path) -> Child {
    Command::new("/proc/self/exe")
        .args(["--exact", "attach::client::errand", "--nocapture"])
        .env(ERRAND, errand)
        .env(SAYS, "0")
        .env("KINETO_USE_DAEMON", "1")
        .env(HOOK, hooks)
        .env("RANK", rank.to_string())
        .env("LOCAL_RANK", rank.to_string())
        .env("WORLD_SIZE", of.to_string())
        .env("LOCAL_WORLD_SIZE", of.to_string())
        .env("MASTER_PORT", "29500")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The answer that it got.
pub fn said(child: &mut Child) -> String {
    let mut text = String::new();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_to_string(&mut text).unwrap();
    child.wait().unwrap();
    let (_, rest) = text.split_once('<').unwrap_or_else(|| panic!("{text}"));
    rest.split_once('>').unwrap().0.to_owned()
}

/// Not a test by itself, but the code of the other process.
#[test]
fn errand() {
    let Ok(errand) = std::env::var(ERRAND) else {
        return;
    };
    if errand == "floods" {
        let client = Client::new(0);
        loop {
            // A full queue is the daemon's answer to a flood.
            let _ = client.socket.send_to_addr(&poll(1), &client.daemon);
            while client.received(Duration::from_nanos(1)).is_some() {}
        }
    }
    if errand == "waits" {
        std::thread::sleep(Duration::from_secs(600));
        return;
    }
    // A process that has just begun can't be told from an earlier one with its id.
    std::thread::sleep(Duration::from_millis(500));
    let says: u32 = std::env::var(SAYS).unwrap().parse().unwrap();
    let client = Client::new(0);
    if errand == "trains" {
        trains(&client, false);
    }
    let says = if says == 0 { std::process::id() } else { says };
    client.ask(&poll(says));
    println!("<{}>", client.answer(Duration::from_secs(5)).unwrap());
}
