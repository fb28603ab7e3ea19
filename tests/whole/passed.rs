//! Descriptors that a client passes along with what it says. The last one to close a file may wait for its
//! owner's peer for as long as the owner likes; litd is never the one who waits.

use std::fs;
use std::io::{ErrorKind, IoSlice, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc::linger;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg, setsockopt, sockopt};

use crate::preload::litd_with;
use crate::stand::{Stand, quick};

/// A socket whose last close takes so long, in seconds.
const LINGER: i32 = 6;

/// A kernel that can't refuse descriptors (Linux before 6.16).
const OLD_KERNEL: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
int setsockopt(int fd, int level, int name, const void *value, socklen_t length) {
    if (level == SOL_SOCKET && name == 83) { errno = ENOPROTOOPT; return -1; }
    return (int)syscall(SYS_setsockopt, fd, level, name, value, length);
}
"#;

/// A connection whose peer does not read, full, and what keeps it open at the other end.
fn lingering() -> (TcpStream, (TcpListener, TcpStream)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    setsockopt(&listener, sockopt::RcvBuf, &2048).unwrap();
    let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    loop {
        match ours.write(&[b'x'; 65_536]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    let long = linger {
        l_onoff: 1,
        l_linger: LINGER,
    };
    setsockopt(&ours, sockopt::Linger, &long).unwrap();
    (ours, (listener, theirs))
}

/// How somebody passes a descriptor.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// With the first byte.
    AtOnce,
    /// Out of band, before everything else.
    OutOfBand,
    /// Behind a frame, or a request, for which litd closes the connection without reading on.
    Behind,
}

/// Connects and passes one; nobody but the connection has it then.
fn pass(socket: &Path, way: Way) -> nix::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket).unwrap();
    let (file, other_end) = lingering();
    // It stays open for as long as the test.
    std::mem::forget(other_end);
    let (before, flags): (&[u8], _) = match way {
        Way::AtOnce => (b"", MsgFlags::empty()),
        Way::OutOfBand => (b"", MsgFlags::MSG_OOB),
        Way::Behind => (b"\0\0\0\0\r\n\r\n", MsgFlags::empty()),
    };
    stream.write_all(before).unwrap();
    let files = [file.as_raw_fd()];
    let passed = [ControlMessage::ScmRights(&files)];
    let socket = stream.as_raw_fd();
    let sent = sendmsg::<()>(socket, &[IoSlice::new(b"G")], &passed, flags, None);
    if let Err(error) = sent {
        // It is this process's to close, and need not wait.
        let at_once = linger {
            l_onoff: 1,
            l_linger: 0,
        };
        setsockopt(&file, sockopt::Linger, &at_once).unwrap();
        return Err(error);
    }
    // It may be closed already.
    let _ = stream.write_all(b"ET / HTTP/1.1\r\n\r\n");
    Ok(stream)
}

/// Passes descriptors in all ways to both sockets, and has everybody answered meanwhile.
fn assert_nobody_waits(stand: Stand, is_refused: bool) {
    let layout = stand.rig.layout();
    let mut kept = Vec::new();
    for socket in [layout.ingest(), layout.control()] {
        for way in [Way::AtOnce, Way::OutOfBand, Way::Behind] {
            match pass(&socket, way) {
                Ok(stream) => kept.push(stream),
                // litd may have closed the connection before.
                Err(Errno::EPERM | Errno::EPIPE) if is_refused => {}
                Err(Errno::EPIPE) if matches!(way, Way::Behind) => {}
                Err(error) => panic!("{way:?} to {}: {error}", socket.display()),
            }
        }
    }
    assert!(!is_refused || kept.is_empty(), "a descriptor was taken");
    let began = Instant::now();
    let mut longest = Duration::ZERO;
    while began.elapsed() < Duration::from_secs(3) {
        let asked = Instant::now();
        stand.status();
        longest = longest.max(asked.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(
        longest < Duration::from_secs(2),
        "not answered for {longest:?}"
    );
    drop(stand.job("train", [0]));
    drop(kept);
    stand.stop();
}

#[test]
fn a_descriptor_whose_last_close_takes_long_stops_nobody() {
    let stand = Stand::real(&quick("gpu-realloc"));
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|it| it.parse::<u32>().ok());
    let version = (numbers.next(), numbers.next());
    assert_nobody_waits(stand, version >= (Some(6), Some(16)));
}

#[test]
fn nor_does_it_where_the_kernel_can_not_refuse_descriptors() {
    let mut stand = Stand::bare(&quick("gpu-realloc"), false);
    let directory = stand.rig.layout().directory.clone();
    let Some(program) = litd_with(&directory, OLD_KERNEL, "LITD_TEST_UNUSED", &directory) else {
        return;
    };
    stand.start_as(&program);
    stand.wait_for_found();
    assert_nobody_waits(stand, false);
}
