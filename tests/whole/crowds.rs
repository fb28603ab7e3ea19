//! Connections that ask for nothing keep nobody from being answered, on the control socket and at the
//! metrics' port.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use litd_api::EventKind;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt,
};

use crate::control::ask;
use crate::stand::{Stand, quick, wait_for};

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

/// Lets the crowd go also when the test fails: the scope would wait for it for ever.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: litd\r\nConnection: close\r\n\r\n";

pub fn metrics_of(stand: &Stand) -> SocketAddr {
    let said = stand.said();
    let address = said.split("metrics on http://").nth(1).unwrap();
    address.split('/').next().unwrap().parse().unwrap()
}

pub fn scrape(metrics: SocketAddr) {
    let mut stream = TcpStream::connect(metrics).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(REQUEST).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("litd_mode"), "{answer}");
}

#[test]
fn answers_that_are_not_read_keep_nobody_from_the_metrics() {
    let stand = Stand::real(&quick("gpu-realloc"));
    let metrics = metrics_of(&stand);
    let ask_only = || {
        let mut stream = TcpStream::connect(metrics).unwrap();
        setsockopt(&stream, sockopt::RcvBuf, &1024).unwrap();
        // It may have had to leave already.
        let _ = stream.write_all(REQUEST);
        stream
    };
    let held: Vec<_> = (0..60).map(|_| ask_only()).collect();
    for _ in 0..3 {
        scrape(metrics);
    }
    drop(held);
    stand.stop();
}

/// Any user may have the port first, and tell there what he likes.
#[test]
fn that_somebody_else_has_the_metrics_port_is_told() {
    let theirs = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = theirs.local_addr().unwrap();
    let config = format!("{}metrics.listen = \"{address}\"\n", quick("gpu-realloc"));
    let stand = Stand::real(&config);
    wait_for("an error", || stand.counted("metrics") > 0);
    assert!(stand.has_event(EventKind::Fault, "another process listens at"));
    drop(theirs);
    wait_for("metrics", || {
        stand.has_event(EventKind::Daemon, "from now on")
    });
    scrape(address);
    stand.stop();
}

#[test]
fn idle_connections_keep_nobody_from_being_answered() {
    let stand = Stand::real(&quick("gpu-realloc"));
    let control = stand.rig.layout().control();
    let metrics = metrics_of(&stand);
    let until = AtomicBool::new(false);
    let to_metrics = || {
        let patience = Duration::from_millis(50);
        Some(TcpStream::connect_timeout(&metrics, patience).ok()?.into())
    };
    thread::scope(|scope| {
        let _ends = Ends(&until);
        scope.spawn(|| idle(|| to_control(&control), &until));
        scope.spawn(|| idle(to_metrics, &until));
        thread::sleep(Duration::from_secs(2));
        for _ in 0..5 {
            let asked = Instant::now();
            let (code, _) = ask(&control, "GET", "/v1/status", "").unwrap();
            assert_eq!(code, 200);
            scrape(metrics);
            assert!(asked.elapsed() < PATIENCE);
        }
    });
    stand.stop();
}
