//! A user who is many: `useradd` gives everybody 65,536 subordinate ids, and `newuidmap`, which needs no right,
//! lets his processes connect as each of them.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command as Program;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::stand::{Stand, hello, quick, wait_for};
use crate::users::{ALICE, BOB, User, group, is_root, open};

/// The calling thread's user from now on, and no other thread's.
fn become_user(uid: u32) {
    // SAFETY: the system call takes three numbers and touches no memory of this process.
    let outcome = unsafe { nix::libc::syscall(nix::libc::SYS_setresuid, -1_i32, uid, -1_i32) };
    assert_eq!(outcome, 0, "this thread can't be user {uid}");
}

/// As each of these users one connection that says `bytes`, and whose end is kept open and never read.
fn hoard_as(socket: &Path, uids: std::ops::Range<u32>, bytes: &[u8]) -> Vec<UnixStream> {
    let connect = |uid: u32| {
        become_user(uid);
        let stream = UnixStream::connect(socket);
        become_user(0);
        let mut stream = stream.ok()?;
        // litd may have closed it already.
        let _ = stream.write_all(bytes);
        Some(stream)
    };
    std::thread::scope(|scope| {
        let connections = scope.spawn(|| uids.filter_map(connect).collect());
        connections.join().unwrap()
    })
}

/// A frame that can't be: litd refuses it, in words if it says any.
const EMPTY: &[u8] = &[0; 4];

#[test]
fn a_user_of_many_ids_keeps_no_other_users_hooks_out() {
    if !is_root() {
        return;
    }
    let Some(adm) = group("adm") else { return };
    let read = "control.read_group = \"adm\"\n";
    let stand = Stand::real(&format!("{}{read}", quick("gpu-realloc")));
    open(&stand.rig.layout().directory);
    let (ingest, control) = (stand.rig.layout().ingest(), stand.rig.layout().control());
    let (mut alice, mut bob) = (User::new(ALICE), User::in_group(BOB, adm));
    stand.rig.hardware().set_holders(3, vec![alice.pid()]);
    let held = hoard_as(&ingest, 100_000..101_500, EMPTY);
    assert!(held.len() > 1000, "{}", held.len());
    wait_for("words that nobody reads", || stand.counted("answers") > 0);
    let status = bob.ask(&control, "GET", "/v1/status", "");
    assert_eq!(status, "200");
    let outcome = alice.greet(&ingest, hello("own", 3));
    assert_eq!(outcome, Ok(()), "{}", stand.said());
    drop(held);
    drop((alice, bob));
    stand.stop();
}

/// What a command's body promises and never brings, as often as there are places.
#[test]
fn a_member_of_many_ids_keeps_no_other_member_from_the_control_socket() {
    if !is_root() {
        return;
    }
    let read = "control.read_group = \"root\"\n";
    let stand = Stand::real(&format!("{}{read}", quick("gpu-realloc")));
    open(&stand.rig.layout().directory);
    let control = stand.rig.layout().control();
    let mut bob = User::in_group(BOB, 0);
    let until = AtomicBool::new(false);
    let answers: Vec<String> = std::thread::scope(|scope| {
        scope.spawn(|| {
            let endless = b"POST /v1/command HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{";
            let mut held = VecDeque::new();
            while !until.load(Ordering::Relaxed) {
                held.extend(hoard_as(&control, 100_000..100_003, endless));
                held.drain(..held.len().saturating_sub(120));
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        std::thread::sleep(Duration::from_secs(1));
        let answers = (0..20)
            .map(|_| bob.ask(&control, "GET", "/v1/status", ""))
            .collect();
        until.store(true, Ordering::Relaxed);
        answers
    });
    assert_eq!(answers, ["200"; 20]);
    drop(bob);
    stand.stop();
}

/// With the 1,024 descriptors of a container or a shell, of which whoever connects takes as many as he can.
#[test]
fn descriptors_that_users_take_keep_no_budget_from_being_kept() {
    if !is_root() {
        return;
    }
    let config = format!("{}caps.safe_budget = 3000.0\n", quick("gpu-realloc"));
    let mut stand = Stand::bare(&config, false);
    stand.start();
    open(&stand.rig.layout().directory);
    let lease = r#"{"controller":"fleet","seconds":7,"budget":100000}"#;
    stand.ask("PUT", "/v1/lease", lease);
    stand.wait_for_found();
    let back = || stand.sum().0 > 4000.0 && stand.journaled().is_empty();
    wait_for("the caps found", back);
    let pid = stand.daemon().pid().to_string();
    let limited = Program::new("prlimit")
        .args(["--pid", &pid, "--nofile=1024:"])
        .status();
    if !limited.is_ok_and(|status| status.success()) {
        println!("SKIPPED: prlimit (util-linux) is not here");
        return;
    }
    stand.ask("PUT", "/v1/lease", lease);
    let ingest = stand.rig.layout().ingest();
    let held = hoard_as(&ingest, 100_000..100_650, EMPTY);
    std::thread::sleep(Duration::from_millis(1500));
    let idle = hoard_as(&ingest, 200_000..200_300, &[]);
    // The lease ends, and what is safe without it is 3000 W.
    wait_for("the safe budget", || stand.sum().0 <= 3000.0);
    drop((held, idle));
    stand.terminate();
}
