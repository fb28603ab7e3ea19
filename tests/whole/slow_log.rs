//! Whoever takes the log hangs: journald on a disk that does not answer, say. Here it is a pipe that nobody
//! reads, and that is full.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use litd_api::EventKind;
use litd_units::Watts;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::stand::{LITD, Stand, quick, wait_for};

/// A pipe that has no room, and one of its ends, which reads nothing.
fn full_pipe(stand: &Stand) -> (PathBuf, File) {
    let path = stand.rig.layout().directory.join("log");
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    let mut end = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(&path)
        .unwrap();
    while end.write(b"x").is_ok() {}
    (path, end)
}

#[test]
fn a_budget_is_kept_and_caps_go_back_while_nobody_takes_the_log() {
    let mut stand = Stand::bare(&quick("observe"), false);
    let (pipe, _end) = full_pipe(&stand);
    let program = stand.rig.layout().directory.join("unheard-litd");
    let script = format!("#!/bin/sh\nexec '{LITD}' \"$@\" 2>'{}'\n", pipe.display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let began = Instant::now();
    stand.start_as(&program);
    stand.wait_for_found();
    stand.command(&litd_api::Command::SetBudget {
        watts: Some(Watts(4400.0)),
    });
    wait_for("the budget is kept", || stand.sum() <= Watts(4400.0));
    assert!(began.elapsed() < Duration::from_secs(20));
    // More lines than have room.
    wait_for("lines that are dropped", || {
        for _ in 0..100 {
            let watts = Some(Watts(4400.0));
            stand.command(&litd_api::Command::SetBudget { watts });
        }
        stand.has_event(EventKind::Fault, "litd drops lines until it does")
    });
    assert!(stand.sum() <= Watts(4400.0));
    stand.daemon.take().unwrap().kill();
    assert!(!stand.is_back());
    let mut restoring = Command::new(&program)
        .args(["restore", "--config"])
        .arg(stand.rig.layout().config())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the caps found", || stand.is_back());
    wait_for("its end", || restoring.try_wait().unwrap().is_some());
    stand.assert_clean();
}
