//! The daemon's clock, with a thread that plays the daemon.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::common::rig;
use litd_rig::ClockError;
use litd_units::Nanos;

/// Connects after a while, answers each line as told, then closes. Yields the lines.
fn daemon(
    socket: &Path,
    delay: Duration,
    answers: &'static [&'static str],
) -> JoinHandle<Vec<String>> {
    let socket = socket.to_owned();
    thread::spawn(move || {
        thread::sleep(delay);
        let mut stream = BufReader::new(UnixStream::connect(socket).unwrap());
        let mut lines = Vec::new();
        for answer in answers {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            lines.push(line);
            writeln!(stream.get_mut(), "{answer}").unwrap();
        }
        lines
    })
}

#[test]
fn time_and_frames_are_told_and_idleness_is_waited_for() {
    let mut rig = rig();
    let late = Duration::from_millis(30);
    let daemon = daemon(
        rig.layout().clock().as_path(),
        late,
        &["idle 5", "idle 5", "idle 12"],
    );
    rig.advance(Nanos(5)).unwrap();
    rig.frames().add();
    rig.frames().add();
    rig.advance(Nanos(0)).unwrap();
    rig.advance(Nanos(7)).unwrap();
    assert_eq!(rig.now(), Nanos(12));
    let lines = daemon.join().unwrap();
    assert_eq!(lines, ["advance 5 0\n", "advance 5 2\n", "advance 12 2\n"]);
}

#[test]
fn a_daemon_that_ends_is_told_and_the_next_one_takes_over() {
    let mut rig = rig();
    let socket = rig.layout().clock();
    let first = daemon(&socket, Duration::ZERO, &["idle 1"]);
    rig.advance(Nanos(1)).unwrap();
    first.join().unwrap();
    let error = rig.advance(Nanos(1)).unwrap_err();
    assert!(matches!(error, ClockError::Closed { now: Nanos(2), .. }));
    let second = daemon(&socket, Duration::ZERO, &["idle 3"]);
    rig.advance(Nanos(1)).unwrap();
    assert_eq!(second.join().unwrap(), ["advance 3 0\n"]);
}

#[test]
fn the_newest_daemon_is_the_one_that_is_told() {
    let mut rig = rig();
    let socket = rig.layout().clock();
    let old = UnixStream::connect(&socket).unwrap();
    let mut new = UnixStream::connect(&socket).unwrap();
    // The process may answer before it is asked: the clock accepts that.
    writeln!(new, "idle 1").unwrap();
    rig.advance(Nanos(1)).unwrap();
    drop(old);
}

#[test]
fn another_answer_is_an_error() {
    let mut rig = rig();
    let daemon = daemon(rig.layout().clock().as_path(), Duration::ZERO, &["busy"]);
    let error = rig.advance(Nanos(1)).unwrap_err();
    assert!(matches!(&error, ClockError::Answer { answer, .. } if answer == "busy\n"));
    daemon.join().unwrap();
}
