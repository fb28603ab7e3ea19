//! Connections that ask for nothing keep nobody from being answered, on the control socket and at the
//! metrics' port.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use crate::control::ask;
use crate::stand::{Stand, quick};

/// As long as Prometheus waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connects over and over, and asks for nothing.
fn idle(connect: impl Fn() -> Option<OwnedFd>, until: &AtomicBool) {
    let mut held = VecDeque::new();
    while !until.load(Ordering::Relaxed) {
        for _ in 0..20 {
            match connect() {
                Some(connection) => held.push_back(connection),
                // The queue is full.
                None => break,
            }
        }
        while held.len() > 400 {
            held.pop_front();
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn to_control(path: &Path) -> Option<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
    let address = UnixAddr::new(path).unwrap();
    connect(socket.as_raw_fd(), &address)
        .is_ok()
        .then_some(socket)
}

#[test]
fn idle_connections_keep_nobody_from_being_answered() {
    let stand = Stand::real(&quick("gpu-realloc"));
    let control = stand.rig.layout().control();
    let metrics: SocketAddr = {
        let said = stand.said();
        let address = said.split("metrics on http://").nth(1).unwrap();
        address.split('/').next().unwrap().parse().unwrap()
    };
    let until = AtomicBool::new(false);
    let to_metrics = || {
        let patience = Duration::from_millis(50);
        Some(TcpStream::connect_timeout(&metrics, patience).ok()?.into())
    };
    thread::scope(|scope| {
        scope.spawn(|| idle(|| to_control(&control), &until));
        scope.spawn(|| idle(to_metrics, &until));
        thread::sleep(Duration::from_secs(2));
        for _ in 0..5 {
            let asked = Instant::now();
            let (code, _) = ask(&control, "GET", "/v1/status", "").unwrap();
            assert_eq!(code, 200);
            let mut stream = TcpStream::connect(metrics).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let request = b"GET /metrics HTTP/1.1\r\nHost: litd\r\nConnection: close\r\n\r\n";
            stream.write_all(request).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.contains("litd_mode"), "{answer}");
            assert!(asked.elapsed() < PATIENCE);
        }
        until.store(true, Ordering::Relaxed);
    });
    stand.stop();
}
