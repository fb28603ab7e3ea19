//! Stand-ins for the daemon and for a planner's server, and litctl as a process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;

use litd_api::Problem;
use serde::Serialize;
use tempfile::TempDir;

/// A request to the stand-in: "GET /v1/status", and the body.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    pub line: String,
    pub body: String,
}

/// The requests, in order.
pub type Log = Arc<Mutex<Vec<Asked>>>;

/// A process's worth of daemon: answers each request with what a function makes of it.
pub struct Daemon {
    pub folder: TempDir,
    asked: Log,
}

impl Daemon {
    pub fn new(answer: impl Fn(&Asked) -> Vec<u8> + Send + 'static) -> Self {
        let daemon = Self {
            folder: tempfile::tempdir().unwrap(),
            asked: Arc::default(),
        };
        daemon.start(answer);
        daemon
    }

    pub fn start(&self, answer: impl Fn(&Asked) -> Vec<u8> + Send + 'static) {
        let listener = UnixListener::bind(self.socket()).unwrap();
        let log = Arc::clone(&self.asked);
        thread::spawn(move || {
            for stream in listener.incoming() {
                serve(&mut stream.unwrap(), &log, &answer);
            }
        });
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("control.sock")
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub fn litctl(&self, args: &[&str]) -> Output {
        litctl(&self.socket(), args)
    }

    /// The standard output of a command that must succeed.
    pub fn text(&self, args: &[&str]) -> String {
        let output = self.litctl(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The message of a command that must fail, and its exit status.
    pub fn refusal(&self, args: &[&str]) -> (String, i32) {
        refusal(&self.litctl(args))
    }
}

/// A planner's server that answers so, and its address.
pub fn planner(answer: impl Fn(&Asked) -> Vec<u8> + Send + 'static) -> (String, Log) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let log = Log::default();
    let kept = Arc::clone(&log);
    thread::spawn(move || {
        for stream in listener.incoming() {
            serve(&mut stream.unwrap(), &kept, &answer);
        }
    });
    (address, log)
}

fn serve(stream: &mut (impl Read + Write), log: &Log, answer: &impl Fn(&Asked) -> Vec<u8>) {
    let asked = request(stream);
    log.lock().unwrap().push(asked.clone());
    // A client that has left needs no answer.
    let _ = stream.write_all(&answer(&asked));
}

pub fn command(socket: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(crate::LITCTL);
    command
        .args(args)
        .env("LITD_CONTROL", socket)
        .env("TZ", "UTC");
    command
}

pub fn litctl(socket: &Path, args: &[&str]) -> Output {
    command(socket, args).output().unwrap()
}

pub fn refusal(output: &Output) -> (String, i32) {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(stderr.starts_with("litctl: "), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    assert!(output.stdout.is_empty(), "{output:?}");
    (stderr, output.status.code().unwrap())
}

fn request(stream: &mut impl Read) -> Asked {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    Asked {
        line: line.trim().trim_end_matches(" HTTP/1.1").to_owned(),
        body: String::from_utf8(body).unwrap(),
    }
}

pub fn sized(status: &str, document: &impl Serialize) -> Vec<u8> {
    let body = serde_json::to_string(document).unwrap();
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

pub fn ok(document: &impl Serialize) -> Vec<u8> {
    sized("200 OK", document)
}

pub fn chunked(document: &impl Serialize) -> Vec<u8> {
    let body = serde_json::to_vec(document).unwrap();
    let mut answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for chunk in body.chunks(100) {
        answer.extend(format!("{:x}\r\n", chunk.len()).bytes());
        answer.extend(chunk);
        answer.extend(b"\r\n");
    }
    answer.extend(b"0\r\n\r\n");
    answer
}

pub fn problem(status: &str, error: &str) -> Vec<u8> {
    let error = error.into();
    sized(status, &Problem { error })
}
