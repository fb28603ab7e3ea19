//! Daemons as processes. There is no litd here: this program plays one when it is started as
//! one, with `--config`; its configuration says what it does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use common::{SOON, rig};
use litd_rig::{Daemon, DaemonError, default_config};
use nix::sys::signal::{SigSet, Signal};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [flag, config, rest @ ..] = arguments.as_slice()
        && flag == "--config"
    {
        return play(Path::new(config), rest);
    }
    let tests: [(&str, fn()); 5] = [
        ("the_default_configuration_names_all_places", configured),
        ("a_ready_daemon_is_terminated_and_killed", lives_and_ends),
        ("a_daemon_that_ends_at_once_says_why", ends_at_once),
        ("a_clock_is_passed_on", passes_the_clock_on),
        ("two_daemons_at_once_are_told_apart", two_at_once),
    ];
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

/// How the made-up daemon ends when it is told to read its configuration anew.
const TOLD_TO_RELOAD: u8 = 7;

/// Ends the process at a SIGHUP, also where that is ignored, as it is below `nohup`: a blocked signal
/// is not.
fn end_at_hangup() {
    let hangup = SigSet::from_iter([Signal::SIGHUP]);
    hangup.thread_block().unwrap();
    thread::spawn(move || {
        hangup.wait().unwrap();
        std::process::exit(i32::from(TOLD_TO_RELOAD));
    });
}

/// The made-up daemon's part.
fn play(config: &Path, rest: &[String]) -> ExitCode {
    let text = fs::read_to_string(config).unwrap();
    eprintln!("playing litd: {}", rest.join(" "));
    if text.contains("play = \"fail\"") {
        eprintln!("no such policy");
        return ExitCode::from(3);
    }
    end_at_hangup();
    let notify = UnixDatagram::unbound().unwrap();
    let socket = env::var_os("NOTIFY_SOCKET").unwrap();
    let tell = |message: &str| notify.send_to(message.as_bytes(), &socket);
    if let [flag, clock] = rest {
        assert_eq!(flag, "--rig-clock");
        let mut clock = BufReader::new(UnixStream::connect(clock).unwrap());
        // Not ready before it knows the time.
        let mut line = String::new();
        clock.read_line(&mut line).unwrap();
        eprintln!("told: {line}");
        let now = line.split(' ').nth(1).unwrap();
        writeln!(clock.get_mut(), "idle {now}").unwrap();
    }
    if !text.contains("play = \"silent\"") {
        tell("READY=1\nSTATUS=observing").unwrap();
    }
    loop {
        // Would block for ever if nobody took them; ends with the test.
        if tell("WATCHDOG=1").is_err() {
            return ExitCode::SUCCESS;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn program() -> PathBuf {
    env::current_exe().unwrap()
}

fn configured() {
    let text = default_config(Path::new("/tmp/a \"b\""), "mode = \"active\"");
    let table: toml::Table = text.parse().unwrap();
    assert_eq!(table["mode"].as_str(), Some("active"));
    let path = |section: &str, key: &str| table[section][key].as_str().unwrap().to_owned();
    assert_eq!(path("hardware", "simulated"), "/tmp/a \"b\"/hardware.sock");
    assert_eq!(path("ingest", "socket"), "/tmp/a \"b\"/ingest.sock");
    assert_eq!(path("control", "socket"), "/tmp/a \"b\"/control.sock");
    assert_eq!(path("state", "directory"), "/tmp/a \"b\"/state");
    assert_eq!(path("metrics", "listen"), "127.0.0.1:0");

    let text = default_config(
        Path::new("/d"),
        "[ingest]\nframe_bytes = 9\nsocket = \"/s\"",
    );
    let table: toml::Table = text.parse().unwrap();
    let ingest = &table["ingest"];
    assert_eq!(ingest["frame_bytes"].as_integer(), Some(9));
    assert_eq!(ingest["socket"].as_str(), Some("/s"));
    let nonsense = default_config(Path::new("/d"), "mode = ");
    assert!(nonsense.starts_with("mode = \n") && nonsense.parse::<toml::Table>().is_err());
}

fn lives_and_ends() {
    let rig = rig();
    let config = rig.config("mode = \"active\"");
    let mut daemon = rig.spawn(&program(), &config).unwrap();
    assert!(daemon.is_ready());
    assert_eq!(daemon.ended(), None);
    assert_eq!(fs::read_to_string(rig.layout().config()).unwrap(), config);
    assert!(rig.layout().state().is_dir());
    assert_eq!(daemon.notifications()[..2], ["READY=1", "STATUS=observing"]);
    daemon.reload("# other").unwrap();
    assert_eq!(
        fs::read_to_string(rig.layout().config()).unwrap(),
        "# other"
    );
    let deadline = Instant::now() + SOON;
    while daemon.ended().is_none() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    let ended = daemon.ended().and_then(|status| status.code());
    assert_eq!(ended, Some(i32::from(TOLD_TO_RELOAD)));

    let daemon = rig.spawn(&program(), &config).unwrap();
    assert_eq!(daemon.terminate().unwrap().signal(), Some(15));
    let daemon = rig.spawn(&program(), &config).unwrap();
    let process = PathBuf::from(format!("/proc/{}", daemon.pid()));
    assert!(process.exists());
    daemon.kill();
    assert!(!process.exists());
}

fn ends_at_once() {
    let rig = rig();
    let error = rig
        .spawn(&program(), &rig.config("play = \"fail\""))
        .unwrap_err();
    let DaemonError::Ended { status, stderr } = error else {
        panic!("{error}");
    };
    assert_eq!(status.code(), Some(3));
    assert!(stderr.contains("no such policy"));
    let error = rig.spawn(Path::new("/nowhere/litd"), "").unwrap_err();
    assert!(error.to_string().contains("/nowhere/litd"));
}

fn passes_the_clock_on() {
    let mut rig = rig();
    let config = rig.config("");
    rig.frames().add();
    for _ in 0..2 {
        let daemon = rig.spawn_clocked(&program(), &config).unwrap();
        let said = format!("--rig-clock {}", rig.layout().clock().display());
        assert!(daemon.stderr().contains(&said));
        assert!(daemon.stderr().ends_with("told: advance 0 0\n\n"));
        daemon.kill();
    }
    let error = rig
        .spawn_clocked(&program(), "play = \"fail\"")
        .unwrap_err();
    assert!(matches!(error, DaemonError::Ended { .. }));
}

fn two_at_once() {
    let rig = rig();
    let directory = &rig.layout().directory;
    let first = Daemon::spawn(&program(), directory, &rig.config(""), None).unwrap();
    let silent = rig.config("play = \"silent\"");
    let second = Daemon::launch(&program(), directory, &silent, None).unwrap();
    let deadline = Instant::now() + SOON;
    while second.notifications().is_empty() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(second.notifications(), ["WATCHDOG=1"]);
    assert!(first.is_ready() && !second.is_ready());
}
