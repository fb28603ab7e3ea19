//! The commands that talk to the daemon, as whole processes against a stand-in for it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;

use litd_api::{Done, Events};
use serde_json::{Value, json};

use crate::samples;
use crate::standin::{Asked, Daemon, chunked, command, litctl, ok, problem, refusal};

use crate::LITCTL;

/// The events after the number in the request, of which only the last few are kept.
fn events(asked: &Asked, count: u64, kept: u64) -> Events {
    let after: u64 = asked
        .line
        .strip_prefix("GET /v1/events?after=")
        .unwrap()
        .parse()
        .unwrap();
    let oldest = count.saturating_sub(kept);
    let mut events = samples::events(count);
    events.retain(|event| event.seq > after.max(oldest));
    Events {
        events,
        last: count,
        lost: oldest.saturating_sub(after),
    }
}

/// A daemon without surprises.
fn usual(asked: &Asked) -> Vec<u8> {
    match asked.line.as_str() {
        "GET /v1/status" => ok(&samples::status()),
        "POST /v1/command" => ok(&Done {
            message: "done as asked".into(),
        }),
        _ => ok(&events(asked, 3, 100)),
    }
}

#[test]
fn status_shows_node_devices_and_jobs() {
    let text = Daemon::new(usual).text(&["status"]);
    let expected = "\
SIMULATED: no number below is of a real node
litd 0.1.0
  mode on, policy gpu-realloc, up 3 d 4 h
  caps 5600 W of a budget of 5600 W, power 5321 W
  1 job, adjusting

device     cap   power   temp     clock       lead busy %  role       state
gpu0     680 W   658 W  64 °C  1850 MHz    8.00 ms   98.0  leader     litd
";
    assert!(text.starts_with(expected), "{text}");
    for line in [
        "gpu4     740 W   715 W  81 °C  1850 MHz          0   98.0  straggler  litd",
        "gpu5     680 W   658 W  64 °C  1850 MHz    7.50 ms   98.0  member     foreign",
        "cpu1     350 W   210 W      -         -          -      -  host       litd",
        "gpu5: somebody else changed its cap, so litd leaves it alone; `litctl resume",
        "gpu5` takes it back",
        "gpu6: heat throttles it: it gets no more power",
        "gpu7: a plan has its clock locked to 1850 MHz, which needs a cap of 512 W; it",
        "can't hold that: 1.08 times as slow",
        "train",
        "  adjusting: gpu4 +12 W: last in 94 % of kernels",
        "  iteration 512 ms, 1.95 per second, 1 in 10 is profiled (0.40 % of the time)",
        "  30 samples, 2 bad; 4 adjustments; budget 5600 W",
        "  uid 1000, 7 of 8 ranks connected; gpu0 gpu1 gpu2 gpu3 gpu4 gpu5 gpu6 gpu7",
        "  3 driver (nvml)",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn status_as_json_is_what_litd_says_however_it_is_sent() {
    let expected = serde_json::to_value(samples::status()).unwrap();
    for daemon in [
        Daemon::new(usual),
        Daemon::new(|_| chunked(&samples::status())),
    ] {
        for args in [&["status", "--json"], &["--json", "status"]] {
            let said: Value = serde_json::from_str(&daemon.text(args)).unwrap();
            assert_eq!(said, expected);
        }
    }
}

#[test]
fn a_newer_daemon_is_understood_as_far_as_it_goes() {
    let newer = |change: fn(&mut Value)| {
        let mut document = serde_json::to_value(samples::status()).unwrap();
        document["build"]["version"] = json!("9.9.9");
        change(&mut document);
        Daemon::new(move |_| ok(&document))
    };
    let daemon = newer(|document| document["phase_of_the_moon"] = json!({ "full": 0.5 }));
    assert!(daemon.text(&["status"]).contains("litd 9.9.9"));
    let daemon = newer(|document| document["jobs"][0]["state"] = json!("levitating"));
    let (said, code) = daemon.refusal(&["status"]);
    assert_eq!(code, 1);
    for part in ["levitating", "(9.9.9)", "differ in version"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn changes_are_sent_as_commands_and_what_was_done_is_printed() {
    let daemon = Daemon::new(usual);
    let address = samples::address(3);
    let cases = [
        (
            &["budget", "5400"][..],
            json!({ "command": "set_budget", "watts": 5400.0 }),
        ),
        (
            &["budget", "default"],
            json!({ "command": "set_budget", "watts": null }),
        ),
        (
            &["policy", "gpu-red"],
            json!({ "command": "set_policy", "policy": "gpu-red" }),
        ),
        (
            &["restore"],
            json!({ "command": "release", "device": null }),
        ),
        (
            &["restore", "GPU3"],
            json!({ "command": "release", "device": address }),
        ),
        (&["resume"], json!({ "command": "resume", "device": null })),
        (
            &["resume", &address],
            json!({ "command": "resume", "device": address }),
        ),
        (&["forget"], json!({ "command": "forget" })),
    ];
    for (args, command) in cases {
        assert_eq!(daemon.text(args), "done as asked\n");
        let asked = daemon.asked().pop().unwrap();
        assert_eq!(asked.line, "POST /v1/command", "{args:?}");
        let sent: Value = serde_json::from_str(&asked.body).unwrap();
        assert_eq!(sent, command, "{args:?}");
    }
    let said: Value = serde_json::from_str(&daemon.text(&["forget", "--json"])).unwrap();
    assert_eq!(said, json!({ "message": "done as asked" }));
}

#[test]
fn results_of_profilers_go_from_one_node_to_another_by_a_file() {
    let stacks = json!({
        "good": [{ "software": "torch 2.11.0, cuda 13.0, cupti 13.0.85", "users": 2, "for_all": false }],
        "off": [],
    });
    let answer = stacks.clone();
    let daemon = Daemon::new(move |asked| match asked.line.as_str() {
        "GET /v1/stacks" => ok(&answer),
        _ => usual(asked),
    });
    assert_eq!(
        daemon.text(&["stacks"]),
        "good  torch 2.11.0, cuda 13.0, cupti 13.0.85 (for 2 users)\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stacks.json");
    let path = file.to_str().unwrap();
    daemon.text(&["stacks", "export", path]);
    assert_eq!(daemon.text(&["stacks", "import", path]), "done as asked\n");
    let asked = daemon.asked().pop().unwrap();
    let sent: Value = serde_json::from_str(&asked.body).unwrap();
    assert_eq!(
        sent,
        json!({ "command": "import_stacks", "stacks": stacks })
    );
    let later = std::fs::read_to_string(&file)
        .unwrap()
        .replace("\"litd-stacks\": 1", "\"litd-stacks\": 2");
    for (text, part) in [
        (
            later.as_str(),
            "version 2, and this litctl knows version 1 only",
        ),
        ("{}", "not what `litctl stacks export` writes"),
        ("torch", "not what `litctl stacks export` writes"),
    ] {
        std::fs::write(&file, text).unwrap();
        let (said, code) = daemon.refusal(&["stacks", "import", path]);
        assert_eq!(code, 2);
        assert!(said.contains(path) && said.contains(part), "{said}");
    }
}

#[test]
fn without_an_argument_nothing_is_changed() {
    let daemon = Daemon::new(usual);
    assert_eq!(
        daemon.text(&["budget"]),
        "budget 5600 W, caps add up to 5600 W\n  train: 5600 W\n"
    );
    assert_eq!(daemon.text(&["policy"]), "gpu-realloc (mode on)\n");
    let said: Value = serde_json::from_str(&daemon.text(&["budget", "--json"])).unwrap();
    assert_eq!(said, json!({ "budget": 5600.0, "caps": 5600.0 }));
    let asked = daemon.asked();
    assert!(asked.iter().all(|asked| asked.line == "GET /v1/status"));
}

#[test]
fn what_cannot_be_meant_is_not_sent() {
    let daemon = Daemon::new(usual);
    let (said, code) = daemon.refusal(&["restore", "gpu8"]);
    assert_eq!(code, 2);
    assert!(said.contains("gpu8: litd has no such device"), "{said}");
    assert!(said.contains("gpu7 (0000:0c:00.0), cpu0 (cpu0)"), "{said}");
    for budget in ["0", "many", "inf"] {
        let output = daemon.litctl(&["budget", budget]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("must be a number of watts"), "{said}");
    }
    let asked = daemon.asked();
    assert!(asked.iter().all(|asked| asked.line == "GET /v1/status"));
}

#[test]
fn a_refusal_is_told_with_who_may() {
    let daemon = Daemon::new(|_| problem("403 Forbidden", "uid 1000 may only read"));
    let (said, code) = daemon.refusal(&["budget", "5000"]);
    assert_eq!(code, 2);
    assert!(said.contains("uid 1000 may only read"), "{said}");
    assert!(
        said.contains("root") && said.contains("admin group"),
        "{said}"
    );
    let daemon = Daemon::new(|_| problem("409 Conflict", "5000 W is below all floors\u{1b}[2J"));
    let (said, code) = daemon.refusal(&["budget", "5000"]);
    assert_eq!(code, 2);
    assert_eq!(said, "litctl: 5000 W is below all floors\u{fffd}[2J\n");
}

#[test]
fn a_daemon_that_is_not_there_is_told_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("control.sock");
    let left = folder.path().join("left.sock");
    drop(UnixListener::bind(&left).unwrap());
    for socket in [&absent, &left] {
        for args in [&["status"][..], &["events", "--follow"], &["forget"]] {
            let (said, code) = refusal(&litctl(socket, args));
            assert_eq!(code, 1, "{said}");
            assert!(said.contains(socket.to_str().unwrap()), "{said}");
            assert!(said.contains("is litd running?"), "{said}");
            assert!(said.contains("systemctl status litd"), "{said}");
        }
    }
    // The option goes before the environment.
    let path = left.to_str().unwrap();
    let (said, _) = refusal(&litctl(&absent, &["status", "--socket", path]));
    assert!(said.contains(path), "{said}");
}

#[test]
fn without_permission_the_group_is_named() {
    if nix::unistd::geteuid().is_root() {
        // Root may go anywhere: what an ordinary user is told is seen as one.
        return permission_as_nobody();
    }
    let daemon = Daemon::new(usual);
    std::fs::set_permissions(daemon.socket(), PermissionsExt::from_mode(0o000)).unwrap();
    let (said, code) = daemon.refusal(&["status"]);
    assert_eq!(code, 1);
    assert!(said.contains("no permission"), "{said}");
}

fn permission_as_nobody() {
    use std::os::unix::process::CommandExt;
    let daemon = Daemon::new(usual);
    let open = PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(daemon.folder.path(), open).unwrap();
    std::fs::set_permissions(daemon.socket(), PermissionsExt::from_mode(0o660)).unwrap();
    // The program may lie where nobody may go. Another process copies it: were the copy open for writing here while
    // another test starts a program, that would have it open as well for a moment, and no busy file can be run.
    let program = daemon.folder.path().join("litctl");
    let copied = Command::new("cp").arg(LITCTL).arg(&program).status();
    assert!(copied.unwrap().success());
    let group = nix::unistd::Group::from_gid(1.into()).unwrap().unwrap();
    for hidden in [
        daemon.socket(),
        daemon.folder.path().join("hidden/control.sock"),
    ] {
        let place = match hidden.exists() {
            true => hidden.clone(),
            false => {
                let folder = hidden.parent().unwrap();
                std::fs::create_dir(folder).unwrap();
                std::fs::set_permissions(folder, PermissionsExt::from_mode(0o750)).unwrap();
                folder.to_owned()
            }
        };
        nix::unistd::chown(&place, None, Some(1.into())).unwrap();
        let output = Command::new(&program)
            .args(["status", "--socket"])
            .arg(&hidden)
            .uid(65_534)
            .gid(65_534)
            .output()
            .unwrap();
        let (said, code) = refusal(&output);
        assert_eq!(code, 1);
        let expected = format!("no permission: root and the group {} may", group.name);
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn a_daemon_that_says_nothing_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    let (said, code) = refusal(&litctl(&socket, &["status"]));
    assert_eq!(code, 1);
    assert!(said.contains("did not answer within 5 s"), "{said}");
}

#[test]
fn strange_answers_are_errors() {
    /// Of these answers: nothing at all, and one whose end is missing.
    const ENDED: [usize; 2] = [0, 4];
    let endless = |_: &Asked| {
        let mut answer = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
        answer.resize(20 << 20, b' ');
        answer
    };
    let html = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>".to_vec();
    let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 600\r\n\r\n{\"build\":".to_vec();
    let answers = [
        Daemon::new(|_| Vec::new()),
        Daemon::new(|_| b"\x00\xff\x1b[2J garbage\r\n\r\n".to_vec()),
        Daemon::new(|_| b"HTTP/1.1 999999 \r\n\r\n".to_vec()),
        Daemon::new(move |_| html.clone()),
        Daemon::new(move |_| cut.clone()),
        Daemon::new(|_| b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n".to_vec()),
        Daemon::new(|_| ok(&json!([1, 2]))),
        Daemon::new(endless),
    ];
    for (number, daemon) in answers.iter().enumerate() {
        for args in [&["status"][..], &["events"], &["policy", "observe"]] {
            let (said, code) = daemon.refusal(args);
            assert_eq!(code, 1, "{number}: {said}");
            let told = match ENDED.contains(&number) {
                true => "ended before it answered",
                false => "can't be read",
            };
            assert!(said.contains(told), "{number}: {said}");
            assert!(!said.contains('\u{1b}'), "{number}: {said:?}");
        }
    }
}

#[test]
fn names_of_jobs_do_not_reach_the_terminal_as_orders() {
    let hostile = "x\u{1b}[2J\u{9b}31m\r\nlitd 0.0.0\u{202e}";
    let daemon = Daemon::new(move |asked| {
        if asked.line.contains("events") {
            let mut events = events(asked, 2, 100);
            events.events[0].text = hostile.into();
            events.events[1].job = Some(hostile.into());
            return ok(&events);
        }
        let mut status = samples::status();
        status.jobs[0].name = hostile.into();
        status.jobs[0].why = hostile.into();
        status.node.summary = hostile.into();
        status.devices[0].name = hostile.into();
        status.devices[5].name = hostile.into();
        ok(&status)
    });
    for args in [
        &["status"][..],
        &["events"],
        &["budget"],
        &["status", "--json"],
        &["events", "--json"],
    ] {
        let text = daemon.text(args);
        assert!(text.contains('\u{fffd}'), "{args:?}: {text:?}");
        let forged = text.lines().any(|line| line.starts_with("litd 0.0.0"));
        let orders = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!forged && !text.contains(orders), "{args:?}: {text:?}");
    }
}

#[test]
fn events_are_lines_with_time_kind_and_reason() {
    let daemon = Daemon::new(usual);
    let text = daemon.text(&["events"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(
        lines[0],
        "2027-01-15 08:00:01  adjustment  train: event 1: gpu4 +12 W, last in 94 % of kernels"
    );
    assert_eq!(daemon.text(&["events", "--after", "2"]).lines().count(), 1);
    let said: Value = serde_json::from_str(&daemon.text(&["events", "--json"])).unwrap();
    assert_eq!(said["last"], 3);
    assert_eq!(said["events"].as_array().unwrap().len(), 3);
}

#[test]
fn lost_events_are_told() {
    let daemon = Daemon::new(|asked| match asked.line.contains("events") {
        true => ok(&events(asked, 30, 10)),
        false => usual(asked),
    });
    for (args, note) in [
        (&["events"][..], "20 older events are no longer kept"),
        (&["events", "--after", "5"], "15 events were lost"),
    ] {
        let output = daemon.litctl(args);
        assert!(output.status.success());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(note), "{said}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.lines().count(), 10);
    }
}

/// A daemon with more events each time, of which it keeps the last 8.
fn busy(counts: &'static [u64]) -> impl Fn(&Asked) -> Vec<u8> + Send + 'static {
    let calls = Mutex::new(counts.iter().copied());
    let last = *counts.last().unwrap();
    move |asked| match asked.line.contains("events") {
        true => {
            let count = calls.lock().unwrap().next().unwrap_or(last);
            ok(&events(asked, count, 8))
        }
        false => usual(asked),
    }
}

#[test]
fn following_gives_every_event_once_over_a_restart_of_the_daemon() {
    let daemon = Daemon::new(busy(&[2, 2, 4, 20]));
    let mut child = command(&daemon.socket(), &["events", "--follow", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut numbers = |count| -> Vec<u64> {
        let line = lines.by_ref().take(count);
        let events = line.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        events.map(|event| event["seq"].as_u64().unwrap()).collect()
    };
    assert_eq!(numbers(4), [1, 2, 3, 4]);
    // 5 to 12 were not kept.
    assert_eq!(numbers(8), [13, 14, 15, 16, 17, 18, 19, 20]);
    // The old one still listens where nobody finds it: for litctl it is gone.
    std::fs::remove_file(daemon.socket()).unwrap();
    let mut notes = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut note = |part: &str| {
        let line = notes.next().unwrap().unwrap();
        assert!(line.contains(part), "{line}");
    };
    note("8 events were lost");
    note("waiting for it");
    daemon.start(busy(&[3]));
    assert_eq!(numbers(3), [1, 2, 3]);
    note("litd answers again");
    note("started anew");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn following_ends_when_its_reader_leaves() {
    let daemon = Daemon::new(busy(&[1, 2, 3, 4, 5, 6]));
    let mut child = command(&daemon.socket(), &["events", "--follow"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert!(first.contains("event 1"), "{first}");
    assert!(child.wait().unwrap().success());
}

#[test]
fn top_needs_a_terminal() {
    let daemon = Daemon::new(usual);
    let (said, code) = daemon.refusal(&["top"]);
    assert_eq!(code, 2);
    assert!(said.contains("litctl status"), "{said}");
    assert!(daemon.asked().is_empty());
}

/// The output of top on a terminal until it is quit, and how top ends.
fn top_on_a_terminal(socket: &Path) -> (String, Output) {
    litd_rig::on_a_terminal(command(socket, &["top"]), b"q").unwrap()
}

#[test]
fn top_shows_the_node_and_q_quits() {
    let daemon = Daemon::new(usual);
    let (seen, output) = top_on_a_terminal(&daemon.socket());
    assert!(output.status.success(), "{output:?}");
    for part in ["SIMULATED", "> gpu4", "! gpu5", "cpu1", "train"] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
    // The screen is given back.
    assert!(seen.contains("\u{1b}[?1049l"), "{seen:?}");
}

#[test]
fn top_without_a_daemon_takes_no_screen() {
    let folder = tempfile::tempdir().unwrap();
    let (seen, output) = top_on_a_terminal(&folder.path().join("control.sock"));
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("is litd running?"), "{said}");
    assert!(!seen.contains("\u{1b}[?1049h"), "{seen:?}");
}
