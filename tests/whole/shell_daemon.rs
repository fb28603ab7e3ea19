//! The daemon as a process: what it answers on its sockets, to systemd and to signals, and what
//! peers can't do to it. What it decides is tested elsewhere.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::tools::have;
use litd_api::{Events, Problem, Status};
use litd_rig::{Daemon, Fault, Rig};
use litd_sim::Scenario;
use litd_units::Nanos;

const LITD: &str = env!("CARGO_BIN_EXE_litd");

/// Long enough for anything that does happen.
const SOON: Duration = Duration::from_secs(20);

fn rig() -> Rig {
    Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap()
}

fn start(rig: &Rig, extra: &str) -> Daemon {
    rig.spawn(Path::new(LITD), &rig.config(extra)).unwrap()
}

fn litd(arguments: &[&str]) -> Output {
    Command::new(LITD).args(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn exchange(mut stream: impl Read + Write, request: &str) -> io::Result<(u16, String)> {
    // Whoever refuses a long request does not read all of it.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((code.unwrap_or(0), answer))
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

fn ask(rig: &Rig, method: &str, path: &str, content: &str) -> (u16, String) {
    let stream = UnixStream::connect(rig.layout().control()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let length = content.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: litd\r\nContent-Length: {length}\r\n\r\n{content}"
    );
    let (code, answer) = exchange(stream, &request).unwrap();
    (code, body(&answer).to_owned())
}

fn status(rig: &Rig) -> Status {
    let (code, body) = ask(rig, "GET", "/v1/status", "");
    assert_eq!(code, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within {SOON:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn control_answers_in_json_and_refuses_in_words() {
    let rig = rig();
    let _daemon = start(&rig, "");
    let status = status(&rig);
    assert!(status.simulated);
    assert_eq!(status.devices.len(), 10);

    let (code, events) = ask(&rig, "GET", "/v1/events?after=0", "");
    let events: Events = serde_json::from_str(&events).unwrap();
    assert_eq!(code, 200);
    assert!(events.last >= 1);
    let next = format!("/v1/events?after={}", events.last);
    let (_, later) = ask(&rig, "GET", &next, "");
    let later: Events = serde_json::from_str(&later).unwrap();
    assert!(later.events.iter().all(|event| event.seq > events.last));

    let command = "{\"command\":\"set_budget\",\"watts\":5000.0}";
    assert_eq!(ask(&rig, "POST", "/v1/command", command).0, 200);
    assert_eq!(ask(&rig, "GET", "/v1/status", "").0, 200);

    let long = "x".repeat(65 * 1024);
    let refusals = [
        ("GET", "/", "", 404),
        ("GET", "/v1/command", "", 405),
        ("POST", "/v1/status", "", 405),
        ("GET", "/v1/events?after=x", "", 400),
        ("POST", "/v1/command", "{}", 400),
        ("POST", "/v1/command", "{\"command\":\"reboot\"}", 400),
        ("POST", "/v1/command", long.as_str(), 413),
        (
            "POST",
            "/v1/command",
            "{\"command\":\"set_policy\",\"policy\":\"nope\"}",
            409,
        ),
    ];
    for (method, path, content, expected) in refusals {
        let (code, answer) = ask(&rig, method, path, content);
        assert_eq!(code, expected, "{method} {path}: {answer}");
        let problem: Problem = serde_json::from_str(&answer).unwrap();
        assert!(!problem.error.is_empty());
    }
}

#[test]
fn the_control_socket_is_not_for_everybody() {
    let rig = rig();
    let _daemon = start(&rig, "");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    // 0660 where there is a group litd; the daemon's own where there is none.
    assert_eq!(mode(&rig.layout().control()) & 0o117, 0);
    assert_eq!(mode(&rig.layout().ingest()), 0o666);
}

#[test]
fn metrics_come_in_the_format_that_is_asked_for() {
    let rig = rig();
    let daemon = start(&rig, "");
    let said = daemon.stderr();
    let address = said.split("http://").nth(1).unwrap();
    let address = address.split('/').next().unwrap();
    let get = |path: &str, accept: &str| {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: litd\r\nAccept: {accept}\r\n\r\n");
        exchange(stream, &request).unwrap()
    };
    let (code, plain) = get("/metrics", "*/*");
    assert_eq!(code, 200);
    assert!(plain.contains("text/plain; version=0.0.4"), "{plain}");
    assert!(body(&plain).contains("litd_build_info"));
    let (_, open) = get("/metrics", "application/openmetrics-text;version=1.0.0");
    assert!(open.contains("application/openmetrics-text"), "{open}");
    assert!(body(&open).ends_with("# EOF\n"));
    assert_eq!(get("/", "*/*").0, 404);
}

#[test]
fn systemd_hears_how_it_goes_and_a_stop_leaves_nothing() {
    let rig = rig();
    let daemon = start(&rig, "");
    let heard = |start: &str| {
        let lines = daemon.notifications();
        lines.iter().any(|line| line.starts_with(start))
    };
    wait_for("status line", || heard("STATUS="));
    assert!(!heard("WATCHDOG=1"), "nobody asked for it");
    let (control, ingest) = (rig.layout().control(), rig.layout().ingest());
    assert!(control.exists() && ingest.exists());
    daemon.ask_to_stop();
    wait_for("stopping", || heard("STOPPING=1"));
    assert_eq!(daemon.terminate().unwrap().code(), Some(0));
    assert!(!control.exists() && !ingest.exists());
}

#[test]
fn a_second_daemon_is_refused_and_the_first_goes_on() {
    let rig = rig();
    let daemon = start(&rig, "");
    let config = rig.layout().config();
    let config = config.to_str().unwrap();
    let pid = daemon.pid();
    for command in [
        vec!["--config", config],
        vec!["restore", "--config", config],
    ] {
        let second = litd(&command);
        assert_eq!(second.status.code(), Some(1));
        let said = stderr(&second);
        assert!(
            said.contains(&format!("litd runs already, as process {pid}")),
            "{said}"
        );
        assert_eq!(
            said.contains("litctl policy observe"),
            command.contains(&"restore")
        );
    }
    status(&rig);
}

#[test]
fn a_dead_daemons_sockets_and_lock_are_no_obstacle() {
    let rig = rig();
    start(&rig, "").kill();
    assert!(rig.layout().control().exists());
    let _next = start(&rig, "");
    status(&rig);
}

#[test]
fn restore_after_a_daemon_has_nothing_to_do_twice() {
    let rig = rig();
    start(&rig, "mode = \"on\"").kill();
    let caps = |rig: &Rig| -> Vec<_> {
        let hardware = rig.hardware();
        (0..10)
            .map(|device| hardware.reading(device).unwrap().cap)
            .collect()
    };
    let before = caps(&rig);
    let config = rig.layout().config();
    for _ in 0..2 {
        let restored = litd(&["restore", "--config", config.to_str().unwrap()]);
        assert_eq!(restored.status.code(), Some(0), "{}", stderr(&restored));
    }
    assert_eq!(caps(&rig), before);
    // It works with a file that a daemon would refuse, too.
    let bad = rig.config("mode = \"drive\"");
    std::fs::write(&config, bad).unwrap();
    let restored = litd(&["restore", "--config", config.to_str().unwrap()]);
    assert_eq!(restored.status.code(), Some(0), "{}", stderr(&restored));
    assert!(stderr(&restored).contains("unknown variant `drive`"));
}

#[test]
fn a_reload_takes_a_good_file_and_refuses_a_bad_one() {
    let rig = rig();
    let daemon = start(&rig, "mode = \"on\"\npolicy = \"gpu-red\"");
    let bad = rig.config("mode = \"on\"\npolicy = \"gpu-blue\"");
    daemon.reload(&bad).unwrap();
    wait_for("refusal", || {
        daemon.stderr().contains(": policy: unknown variant")
    });
    assert_eq!(status(&rig).node.policy, "gpu-red");
    let good = rig
        .config("mode = \"on\"\npolicy = \"gpu-realloc\"")
        .replace("[state]", "[log]\nlevel = \"debug\"\n[state]")
        .replace("127.0.0.1:0", "off");
    daemon.reload(&good).unwrap();
    wait_for("new policy", || status(&rig).node.policy == "gpu-realloc");
    wait_for("warning", || {
        daemon
            .stderr()
            .contains("[metrics] takes effect at the next start")
    });
    assert!(!daemon.stderr().contains("[log] takes effect"));
    let ready = |line: &&String| *line == "READY=1";
    wait_for("end of both reloads", || {
        daemon.notifications().iter().filter(ready).count() == 3
    });
}

#[test]
fn a_bad_configuration_is_told_and_not_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("litd.toml");
    let file = path.to_str().unwrap();
    std::fs::write(&path, "[caps]\n\ngpu_floor = -1\n").unwrap();
    for command in [
        vec!["--config", file],
        vec!["--check-config", "--config", file],
    ] {
        let refused = litd(&command);
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains("litd.toml:3: caps.gpu_floor is -1"));
    }
    let state = directory.path().join("state");
    let sockets = directory.path().display();
    let good = format!(
        "[state]\ndirectory = \"{}\"\nlocks = \"{sockets}/devices\"\n[ingest]\nsocket = \"{sockets}/i\"\n[control]\nsocket = \"{sockets}/c\"\n[metrics]\nlisten = \"off\"\n",
        state.display()
    );
    std::fs::write(&path, good).unwrap();
    assert_eq!(
        litd(&["--check-config", "--config", file]).status.code(),
        Some(0)
    );
    // Nothing has run, so there is nothing to give back, hardware or not.
    assert_eq!(litd(&["restore", "--config", file]).status.code(), Some(0));
}

#[test]
fn the_default_configuration_is_printed() {
    let printed = litd(&["default-config"]);
    assert_eq!(printed.stdout, litd::config::DEFAULT_FILE.as_bytes());
    assert_eq!(litd(&["--version"]).status.code(), Some(0));
    assert_eq!(litd(&["--nope"]).status.code(), Some(2));
}

/// Whether the daemon has closed a connection, having said whatever it wanted to.
fn is_cut_off(stream: &mut UnixStream) -> bool {
    stream.set_read_timeout(Some(SOON)).unwrap();
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn strangers_can_be_strange() {
    let rig = rig();
    let _daemon = start(&rig, "limits.sessions = 4");
    let connect = || UnixStream::connect(rig.layout().ingest()).unwrap();
    // A frame that would be longer than any.
    let mut long = connect();
    long.write_all(&u32::MAX.to_le_bytes()).unwrap();
    assert!(is_cut_off(&mut long));
    // One that is none.
    let mut empty = connect();
    empty.write_all(&[0; 4]).unwrap();
    assert!(is_cut_off(&mut empty));
    // Many who say nothing, and many who ask half a question of the control socket.
    let silent: Vec<_> = (0..100).map(|_| connect()).collect();
    let half: Vec<_> = (0..8)
        .map(|_| {
            let mut stream = UnixStream::connect(rig.layout().control()).unwrap();
            stream.write_all(b"GET /v1/status HT").unwrap();
            stream
        })
        .collect();
    let refused = |status: &Status| -> u64 { status.totals.refused.iter().map(|r| r.count).sum() };
    assert!(refused(&status(&rig)) >= 2);
    drop((silent, half));
    // Whoever comes after them is served.
    wait_for("place", || {
        let mut late = connect();
        late.write_all(&[0; 4]).is_ok() && is_cut_off(&mut late)
    });
}

#[test]
fn a_flood_stays_in_the_senders_socket() {
    let rig = rig();
    let daemon = start(&rig, "");
    let mut flooder = UnixStream::connect(rig.layout().ingest()).unwrap();
    flooder.set_write_timeout(Some(SOON)).unwrap();
    let mut frames = Vec::new();
    for _ in 0..10_000 {
        frames.extend([1, 0, 0, 0, 0xff]);
    }
    // It is read on or cut off, and never kept.
    for _ in 0..200 {
        if flooder.write_all(&frames).is_err() {
            break;
        }
    }
    let memory = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let peak = memory
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 64 * 1024, "{peak} kB after 10 MB of frames");
    status(&rig);
}

#[test]
fn a_rigs_time_is_the_daemons() {
    let mut rig = rig();
    let program = Path::new(LITD);
    let config = rig.config("");
    let first = rig.spawn_clocked(program, &config).unwrap();
    rig.advance(Nanos(5_000_000_000)).unwrap();
    first.kill();
    // Its time begins with the rig's first line, not at 0.
    let _daemon = rig.spawn_clocked(program, &config).unwrap();
    assert_eq!(status(&rig).uptime_seconds, 0.0);
    rig.advance(Nanos(60_000_000_000)).unwrap();
    assert_eq!(status(&rig).uptime_seconds, 60.0);
}

#[test]
fn a_rig_that_hangs_up_takes_its_daemon_along() {
    let rig = rig();
    let path = rig.layout().hardware().with_file_name("own-clock.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let directory = path.parent().unwrap();
    let mut daemon =
        Daemon::launch(Path::new(LITD), directory, &rig.config(""), Some(&path)).unwrap();
    let (mut clock, _) = listener.accept().unwrap();
    clock.set_read_timeout(Some(SOON)).unwrap();
    clock.write_all(b"advance 7000000000 0\n").unwrap();
    let mut answer = [0; 16];
    clock.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"idle 7000000000\n");
    drop(clock);
    wait_for("end", || daemon.ended().is_some());
    assert_eq!(daemon.ended().unwrap().code(), Some(0));
}

#[test]
fn whoever_is_no_administrator_reads_only() {
    // curl is what the documentation tells people to use.
    if !have(&["curl"]) {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: only root can be another user");
        return;
    }
    let rig = rig();
    let _daemon = start(&rig, "");
    let open = std::fs::Permissions::from_mode(0o777);
    let control = rig.layout().control();
    std::fs::set_permissions(&control, open.clone()).unwrap();
    std::fs::set_permissions(control.parent().unwrap(), open).unwrap();
    let curl = |arguments: &[&str]| {
        let mut command = Command::new("curl");
        command.args(["--silent", "--unix-socket", control.to_str().unwrap()]);
        std::os::unix::process::CommandExt::uid(&mut command, 65_534);
        let output = command.args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    serde_json::from_str::<Status>(&curl(&["http://litd/v1/status"])).unwrap();
    let refused = curl(&["http://litd/v1/command", "-d", "{\"command\":\"forget\"}"]);
    let refused: Problem = serde_json::from_str(&refused).unwrap();
    assert!(
        refused
            .error
            .starts_with("user 65534 may not give commands"),
        "{}",
        refused.error
    );
}

#[test]
fn a_device_that_blocks_at_start_holds_nobody_up() {
    let rig = rig();
    rig.hardware()
        .inject(3, Fault::Block(Duration::from_secs(30)));
    let daemon = start(&rig, "caps.answer_seconds = 0.3");
    let expected: Vec<bool> = (0..10).map(|device| device != 3).collect();
    // The daemon answers before it has read the devices; device 3 blocks for longer than this waits.
    wait_for("the caps of all other devices", || {
        let devices = status(&rig).devices;
        let known = devices.iter().map(|device| device.cap.is_some());
        known.eq(expected.iter().copied())
    });
    assert!(
        daemon.stderr().contains("it has not answered for 0.3 s"),
        "{}",
        daemon.stderr()
    );
    assert_eq!(daemon.terminate().unwrap().code(), Some(0));
}
