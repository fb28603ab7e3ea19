//! Real users on the node: processes with users and groups of their own, which connect to the
//! daemon's sockets, say what they are told to, and tell what they hear. Only root can make them; a
//! second process of the test program plays each.

use std::collections::HashMap;
use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use litd_proto::frame::{self, MAX_FRAME, Reader};
use litd_proto::{FromHook, Hello, Limits, RefusalCode, ToHook};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Group, geteuid};

use crate::control;

/// Users that no system has.
pub const ALICE: u32 = 61_001;
pub const BOB: u32 = 61_002;

/// So long a user waits for the daemon.
const PATIENCE: Duration = Duration::from_secs(10);

/// Set where the program plays a user. [`CONNECTED`]: standard error is its connection.
const ROLE: &str = "LITD_TEST_USER";
const CONNECTED: &str = "connected";

/// Whether users can be made here.
pub fn is_root() -> bool {
    if !geteuid().is_root() {
        eprintln!("SKIPPED: only root can be another user");
    }
    geteuid().is_root()
}

/// The id of a group that most systems have; which ones does not matter. `None`, and said, where this one has
/// none of the name.
pub fn group(name: &str) -> Option<u32> {
    let group = Group::from_name(name).ok().flatten();
    if group.is_none() {
        eprintln!("SKIPPED: there is no group {name}");
    }
    group.map(|group| group.gid.as_raw())
}

/// Lets all users get at what is in a directory.
pub fn open(directory: &Path) {
    fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
}

/// The next answer of a process that plays somebody; what the test program prints besides is passed over.
pub fn answer(answers: &mut impl BufRead) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        assert_ne!(answers.read_line(&mut line).unwrap(), 0, "it has ended");
        if let Some((_, answer)) = line.split_once("answer ") {
            return answer.trim().to_owned();
        }
    }
}

/// A process of a user. It ends when this is dropped.
pub struct User {
    child: Child,
    pid: u32,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl User {
    /// With this user, and a group of the same number.
    pub fn new(uid: u32) -> Self {
        Self::in_group(uid, uid)
    }

    pub fn in_group(uid: u32, gid: u32) -> Self {
        let mut child = play("waits")
            .gid(gid)
            .uid(uid)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            pid: child.id(),
            commands: child.stdin.take(),
            answers: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// With this process id, which has to be free. `None`: others were faster each time.
    pub fn with_pid(uid: u32, pid: u32) -> Option<Self> {
        const LAST: &str = "/proc/sys/kernel/ns_last_pid";
        let before = fs::read_to_string(LAST).ok()?;
        let mut found = None;
        for _ in 0..500 {
            fs::write(LAST, (pid - 1).to_string()).ok()?;
            let user = Self::new(uid);
            if user.pid == pid {
                found = Some(user);
                break;
            }
        }
        // Other tests' processes get ids that nobody has had of late again.
        fs::write(LAST, before.trim()).ok()?;
        found
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    fn tell(&mut self, words: &[&str]) {
        let commands = self.commands.as_mut().unwrap();
        writeln!(commands, "{}", words.join("\t")).unwrap();
    }

    fn answer(&mut self) -> String {
        answer(&mut self.answers)
    }

    fn does(&mut self, words: &[&str]) -> String {
        self.tell(words);
        self.answer()
    }

    /// Connects to the ingest socket, and says nothing.
    pub fn connect(&mut self, ingest: &Path) {
        assert_eq!(self.does(&["connect", ingest.to_str().unwrap()]), "done");
    }

    pub fn say(&mut self, message: &FromHook) {
        assert_eq!(self.does(&["say", &hex(&message.encode())]), "done");
    }

    /// Says these things in turn, so often.
    pub fn say_in_turn(&mut self, messages: &[FromHook], times: usize) {
        for message in messages {
            assert_eq!(self.does(&["learn", &hex(&message.encode())]), "done");
        }
        assert_eq!(self.does(&["turns", &times.to_string()]), "done");
    }

    /// Reads and forgets all that has come: whoever reads nothing for seconds is disconnected.
    pub fn discard(&mut self) {
        assert_eq!(self.does(&["discard"]), "done");
    }

    /// What the daemon answers to a hello: `Ok` if it lets the process in.
    pub fn hear(&mut self) -> Result<(), String> {
        match self.does(&["hear"]).as_str() {
            "welcome" => Ok(()),
            other => Err(other.to_owned()),
        }
    }

    /// Connects and says hello.
    pub fn greet(&mut self, ingest: &Path, hello: Hello) -> Result<(), String> {
        self.connect(ingest);
        self.say(&FromHook::Hello(hello));
        self.hear()
    }

    /// Asks on the control socket; the answer's status code, or why there is none.
    pub fn ask(&mut self, control: &Path, method: &str, path: &str, body: &str) -> String {
        self.does(&["ask", control.to_str().unwrap(), method, path, body])
    }

    /// Listens at `path`, connects to the ingest socket for whoever connects there, and passes all bytes on: what
    /// this process's connections say is said by the test.
    pub fn relay(&mut self, ingest: &Path, path: &Path) {
        let (ingest, path) = (ingest.to_str().unwrap(), path.to_str().unwrap());
        assert_eq!(self.does(&["relay", ingest, path]), "done");
    }

    /// Makes a file and keeps it open.
    pub fn keep_open(&mut self, path: &Path) {
        assert_eq!(self.does(&["open", path.to_str().unwrap()]), "done");
    }

    /// Connects so often, says these bytes each time, and keeps all connections without reading. How many
    /// it could make before its descriptors were used up.
    pub fn hoard(&mut self, socket: &Path, times: usize, bytes: &[u8]) -> usize {
        let (times, bytes) = (times.to_string(), hex(bytes));
        let words = ["hoard", socket.to_str().unwrap(), &times, &bytes];
        self.does(&words).parse().unwrap()
    }

    /// Hands its connection to a process of its own, which answers from now on, and ends. Its id is
    /// free once this returns.
    pub fn hand_on(&mut self) {
        assert_eq!(self.does(&["hand on"]), "done");
        self.child.wait().unwrap();
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // At the end of its commands it ends, whichever process has them.
        drop(self.commands.take());
        let _ = io::copy(&mut self.answers, &mut io::sink());
        let _ = self.child.wait();
    }
}

/// What a refused hello is answered with.
pub fn refused(code: RefusalCode) -> Result<(), String> {
    Err(format!("{code:?}"))
}

fn play(role: &str) -> Command {
    // The path to the program may not be open to others; this one is.
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["--exact", "users::playing_a_user", "--nocapture"])
        .env(ROLE, role)
        .current_dir("/");
    command
}

/// Not a test by itself: what [`User`] runs in a process of that user.
#[test]
fn playing_a_user() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let mut player = Player::default();
    if role == CONNECTED {
        let connection = io::stderr().as_fd().try_clone_to_owned().unwrap();
        player.stream = Some(UnixStream::from(connection));
        println!("answer done");
    }
    // By single bytes: what another process is to read of the commands is left to it.
    let mut line = Vec::new();
    let mut byte = [0];
    while io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map(File::from)
        .unwrap()
        .read(&mut byte)
        .unwrap()
        > 0
    {
        if byte != *b"\n" {
            line.push(byte[0]);
            continue;
        }
        let text = String::from_utf8(std::mem::take(&mut line)).unwrap();
        let words: Vec<&str> = text.split('\t').collect();
        if let Some(answer) = player.does(&words) {
            println!("answer {answer}");
        }
    }
    std::process::exit(0);
}

/// Passes on the bytes of a connection, both ways.
fn relay(asked: UnixStream, ingest: &Path) {
    let Ok(passed) = UnixStream::connect(ingest) else {
        return;
    };
    let ways = [
        (asked.try_clone(), passed.try_clone()),
        (Ok(passed), Ok(asked)),
    ];
    for (from, to) in ways {
        let (mut from, mut to) = (from.unwrap(), to.unwrap());
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}

#[derive(Default)]
struct Player {
    stream: Option<UnixStream>,
    reader: Option<Reader>,
    learned: Vec<Vec<u8>>,
    kept: HashMap<PathBuf, File>,
    hoard: Vec<UnixStream>,
}

impl Player {
    fn does(&mut self, words: &[&str]) -> Option<String> {
        let done = || Some("done".to_owned());
        match words {
            ["connect", path] => {
                self.stream = Some(UnixStream::connect(path).unwrap());
                self.reader = None;
                done()
            }
            ["say", hex] => {
                let _ = self
                    .stream
                    .as_ref()
                    .unwrap()
                    .write_all(&framed(&unhex(hex)));
                done()
            }
            ["learn", hex] => {
                self.learned.push(framed(&unhex(hex)));
                done()
            }
            ["turns", times] => {
                let learned = std::mem::take(&mut self.learned);
                for _ in 0..times.parse::<usize>().unwrap() {
                    for frame in &learned {
                        let _ = self.stream.as_ref().unwrap().write_all(frame);
                    }
                }
                done()
            }
            ["relay", ingest, path] => {
                let listener = UnixListener::bind(path).unwrap();
                let ingest = PathBuf::from(ingest);
                thread::spawn(move || {
                    listener
                        .incoming()
                        .flatten()
                        .for_each(|it| relay(it, &ingest))
                });
                done()
            }
            ["hear"] => Some(self.hear()),
            ["discard"] => {
                let mut stream = self.stream.as_ref().unwrap();
                stream.set_nonblocking(true).unwrap();
                while matches!(stream.read(&mut [0; 4096]), Ok(length) if length > 0) {}
                stream.set_nonblocking(false).unwrap();
                done()
            }
            ["ask", socket, method, path, body] => {
                Some(match control::ask(Path::new(socket), method, path, body) {
                    Ok((code, _)) => code.to_string(),
                    Err(error) => format!("{:?}", error.kind()),
                })
            }
            ["open", path] => {
                let path = PathBuf::from(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                let file = File::create(&path).unwrap();
                self.kept.insert(path, file);
                done()
            }
            ["hoard", socket, times, hex] => {
                let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
                setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
                let before = self.hoard.len();
                let times: usize = times.parse().unwrap();
                while self.hoard.len() < before + times {
                    match UnixStream::connect(socket) {
                        Ok(mut stream) => {
                            let _ = stream.write_all(&unhex(hex));
                            self.hoard.push(stream);
                        }
                        Err(error) if error.raw_os_error() == Some(Errno::EMFILE as i32) => break,
                        // The socket's queue is full for a moment.
                        Err(_) => thread::sleep(Duration::from_millis(1)),
                    }
                }
                Some((self.hoard.len() - before).to_string())
            }
            ["hand on"] => {
                let connection = OwnedFd::from(self.stream.take().unwrap());
                // Its first word is that it is there.
                play(CONNECTED)
                    .stderr(Stdio::from(connection))
                    .spawn()
                    .unwrap();
                std::process::exit(0);
            }
            other => panic!("{other:?}"),
        }
    }

    /// What the daemon says of a hello.
    fn hear(&mut self) -> String {
        let mut stream = self.stream.as_ref().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let reader = self.reader.get_or_insert_with(|| Reader::new(MAX_FRAME));
        let mut chunk = [0; 4096];
        loop {
            let length = match stream.read(&mut chunk) {
                Ok(0) => return "closed".to_owned(),
                Ok(length) => length,
                Err(error) => return format!("{:?}", error.kind()),
            };
            let mut input = &chunk[..length];
            while let Some(message) = reader.take(&mut input).unwrap() {
                match ToHook::decode(message, &Limits::default()).unwrap() {
                    ToHook::Welcome(_) => return "welcome".to_owned(),
                    ToHook::Refusal(refusal) => return format!("{:?}", refusal.code),
                    _ => {}
                }
            }
        }
    }
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write(&mut bytes, message).unwrap();
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}
