//! What is no regular file, where the daemon reads or writes one: nothing waits for it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use litd_api::EventKind;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};

use crate::stand::{LITD, SOON, Stand, quick, wait_for};

/// Puts a named pipe, at whose other end nobody is, in place of a file.
fn pipe(path: &Path) {
    let _ = fs::remove_file(path);
    mkfifo(path, Mode::S_IRWXU).unwrap();
}

/// Runs litd, which must end by itself.
fn litd(arguments: &[&str]) -> Output {
    let mut child = Command::new(LITD)
        .args(arguments)
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + SOON;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("litd {arguments:?} waits");
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn a_pipe_as_configuration_is_refused_and_the_daemon_goes_on() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    let config = stand.rig.layout().config();
    pipe(&config);
    let pid = i32::try_from(stand.daemon().pid()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGHUP).unwrap();
    let refused = format!(
        "{}: can't be read: is a named pipe; it must be a regular file",
        config.display()
    );
    wait_for("refusal", || stand.has_event(EventKind::Daemon, &refused));
    // The files that it looks at by itself are no better.
    pipe(&stand.rig.layout().node_power());
    stand.play(&mut job, 3);
    stand.stop();
}

#[test]
fn a_pipe_in_place_of_any_file_ends_a_start_with_its_name() {
    let stand = Stand::bare(&quick("gpu-realloc"), false);
    let layout = stand.rig.layout();
    let config = layout.config();
    let text = config.display().to_string();
    for arguments in [
        vec!["--check-config", "--config", &text],
        vec!["--config", &text],
        vec!["restore", "--config", &text],
    ] {
        pipe(&config);
        let output = litd(&arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(
            said.contains(&format!("{text}: can't be read: is a named pipe")),
            "{said}"
        );
    }
    fs::remove_file(&config).unwrap();
    fs::write(&config, stand.config()).unwrap();
    fs::create_dir_all(layout.state()).unwrap();
    for name in ["journal", "lock"] {
        let file = layout.state().join(name);
        pipe(&file);
        let output = litd(&["--config", &text]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{name}");
        let expected = format!("{}: is a named pipe", file.display());
        assert!(said.contains(&expected), "{said}");
        fs::remove_file(&file).unwrap();
    }
}
