//! What a daemon that is gone has left: it goes back wherever its journal can still be read.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use litd_api::EventKind;
use litd_rig::Fault;

use crate::directories::elsewhere_file;
use crate::stand::{GPUS, LITD, SOON, Stand, quick};
use crate::users::{BOB, is_root};

/// Makes the state directory, `$state`, read-only.
pub const READ_ONLY: &str =
    "mount --bind \"$state\" \"$state\" && mount -o remount,ro,bind \"$state\"";

/// Ways in which a state directory that can be read can't be written, as shell commands in which
/// `$state` is the directory.
const READABLE: [(&str, &str); 4] = [
    ("a file system that has become read-only", READ_ONLY),
    (
        "the same, and the lock's file is gone",
        "rm \"$state/lock\"; mount --bind \"$state\" \"$state\" && mount -o remount,ro,bind \"$state\"",
    ),
    (
        // Not even the last page of the journal has room.
        "a file system that is full, without the lock's file",
        "f=$(mktemp) && cp \"$state/journal\" $f && mount -t tmpfs -o size=64k,nr_inodes=3 tmpfs \"$state\" && \
         cp $f \"$state/journal\" && rm $f && \
         head -c $((4096 - $(stat -c %s \"$state/journal\") % 4096)) /dev/zero | tr '\\0' '\\n' >> \"$state/journal\"; \
         dd if=/dev/zero of=\"$state/full\" bs=4k 2>/dev/null; test -s \"$state/journal\"",
    ),
    (
        "an audit log on the same read-only file system",
        "mkdir -p \"$state/audit\" && mount --bind \"$state\" \"$state\" && \
         mount -o remount,ro,bind \"$state\"",
    ),
];

/// Whether file systems can be mounted here for one process.
pub fn can_mount() -> bool {
    let script = "mount -t tmpfs tmpfs /mnt";
    let tried = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .output();
    let can = tried.is_ok_and(|output| output.status.success());
    if !can {
        eprintln!("SKIPPED: nothing can be mounted here (unshare --mount)");
    }
    can
}

/// A program that runs litd where a command has changed what `$state` is, for it alone.
pub fn within(stand: &Stand, change: &str) -> PathBuf {
    let directory = &stand.rig.layout().directory;
    let (path, inner) = (directory.join("within"), directory.join("inner"));
    let state = stand.rig.layout().state();
    let script = format!(
        "#!/bin/sh\nstate={}\n{change} || exit 99\nexec '{LITD}' \"$@\"\n",
        state.display()
    );
    fs::write(&inner, script).unwrap();
    let outer = format!(
        "#!/bin/sh\nexec unshare --mount sh {} \"$@\"\n",
        inner.display()
    );
    fs::write(&path, outer).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    path
}

pub fn run(program: &Path, arguments: &[&str], config: &Path) -> (Option<i32>, String) {
    let mut child = Command::new(program)
        .args(arguments)
        .arg("--config")
        .arg(config)
        .env_remove("LOGS_DIRECTORY")
        .env_remove("RUNTIME_DIRECTORY")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A daemon that should not run is not waited for.
    let deadline = Instant::now() + 2 * SOON;
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

pub fn restore(program: &Path, config: &Path) -> (Option<i32>, String) {
    run(program, &["restore"], config)
}

/// A node whose daemon was killed while caps were moved.
pub fn crashed() -> Stand {
    crashed_under("gpu-realloc")
}

fn crashed_under(policy: &str) -> Stand {
    let mut stand = Stand::clocked(&quick(policy));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    stand.daemon.take().unwrap().kill();
    assert!(!stand.is_back());
    stand
}

#[test]
fn restore_needs_a_journal_that_can_be_read_and_no_more() {
    if !can_mount() {
        return;
    }
    for (what, change) in READABLE {
        let stand = crashed();
        let config = stand.rig.layout().config();
        let program = within(&stand, change);
        let journal = stand.rig.layout().state().join("journal");
        let before = fs::read(&journal).unwrap();
        let (code, said) = restore(&program, &config);
        assert!(stand.is_back(), "{what}: {:?}: {said}", stand.held());
        assert_eq!(code, Some(1), "{what}: {said}");
        let expected = format!("could not be removed from {}", journal.display());
        assert!(
            said.contains("caps are restored, but the entries of 0000:")
                && said.contains(&expected),
            "{what}: {said}"
        );
        assert!(
            said.contains("make room on its file system"),
            "{what}: {said}"
        );
        // Once more: all caps are as found, so nothing is written.
        let writes = stand.rig.ledger().len();
        let (code, said) = restore(&program, &config);
        assert_eq!(
            (code, stand.rig.ledger().len()),
            (Some(1), writes),
            "{said}"
        );
        assert_eq!(fs::read(&journal).unwrap(), before, "{what}");
        // Writable again.
        let (code, said) = restore(Path::new(LITD), &config);
        assert_eq!(
            (code, stand.rig.ledger().len()),
            (Some(0), writes),
            "{said}"
        );
        stand.assert_clean();
    }
}

#[test]
fn a_daemon_on_a_read_only_state_directory_gives_back_and_observes() {
    if !can_mount() {
        return;
    }
    for (what, change) in READABLE {
        let mut stand = crashed();
        let (program, config) = (within(&stand, change), stand.config().to_owned());
        stand.daemon = Some(stand.rig.spawn_clocked(&program, &config).unwrap());
        stand.pass(4.0);
        assert!(stand.is_back(), "{what}: {:?}", stand.held());
        let writes = stand.rig.ledger().len();
        let mut job = stand.train();
        stand.play(&mut job, 40);
        assert_eq!(
            stand.rig.ledger().len(),
            writes,
            "{what}: {:?}",
            stand.held()
        );
        assert!(stand.has_event(
            EventKind::Fault,
            "litd changes no cap except to restore one"
        ));
        assert!(stand.job_status("train").samples > 0, "{what}");
        assert_eq!(stand.terminate(), Some(1), "{what}: {}", stand.said());
        assert!(
            stand
                .said()
                .contains("caps are restored, but the entries of")
        );
        stand.assert_rules();
        // Writable again, it goes on.
        stand.start();
        stand.play_into_steering(&mut stand.train());
        stand.stop();
    }
}

#[test]
fn root_without_a_right_to_write_gives_back_too() {
    let setpriv = |program: &Path| {
        let mut command = Command::new("setpriv");
        command
            .args(["--inh-caps=-all", "--bounding-set=-all"])
            .arg(program);
        command
    };
    if !setpriv(Path::new("true"))
        .status()
        .is_ok_and(|it| it.success())
    {
        eprintln!("SKIPPED: setpriv can't take a process's rights away here");
        return;
    }
    let stand = crashed();
    let state = stand.rig.layout().state();
    let modes = |mode| {
        for path in [state.join("journal"), state.join("lock"), state.clone()] {
            let mode = if path.is_dir() { mode | 0o100 } else { mode };
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    modes(0o400);
    let restore = setpriv(Path::new(LITD))
        .args(["restore", "--config"])
        .arg(stand.rig.layout().config())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&restore.stderr);
    modes(0o600);
    assert!(stand.is_back(), "{said}");
    assert_eq!(restore.status.code(), Some(1), "{said}");
    assert!(said.contains("the entries of 0000:"), "{said}");
}

#[test]
fn a_state_directory_that_can_not_be_made_holds_up_steering_alone() {
    if !can_mount() {
        return;
    }
    let mut stand = Stand::bare(&quick("gpu-realloc"), true);
    let config = stand.config().replace("/state\"", "/state/none\"");
    let program = within(&stand, READABLE[0].1);
    stand.daemon = Some(stand.rig.spawn_clocked(&program, &config).unwrap());
    let mut job = stand.train();
    stand.play(&mut job, 40);
    assert!(stand.rig.ledger().is_empty(), "{:?}", stand.held());
    assert!(stand.job_status("train").samples > 0);
    assert_eq!(stand.terminate(), Some(0), "{}", stand.said());
    let (code, said) = restore(&program, &stand.rig.layout().config());
    assert_eq!(code, Some(0), "{said}");
    // Nothing was made for that, nor is it without a read-only parent.
    let (code, said) = restore(Path::new(LITD), &stand.rig.layout().config());
    assert_eq!(code, Some(0), "{said}");
    assert!(!stand.rig.layout().state().join("none").exists());
}

#[test]
fn a_state_directory_that_is_none_is_refused() {
    let stand = Stand::bare(&quick("gpu-realloc"), false);
    let file = stand.rig.layout().directory.join("file");
    fs::write(&file, "").unwrap();
    let config = stand.config().replace("/state\"", "/file\"");
    fs::write(stand.rig.layout().config(), config).unwrap();
    for arguments in [vec![], vec!["restore"]] {
        let (code, said) = run(Path::new(LITD), &arguments, &stand.rig.layout().config());
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("/file"), "{said}");
    }
}

#[test]
fn locks_that_can_not_be_taken_keep_from_steering_and_from_nothing_else() {
    let mut stand = crashed();
    let locks = stand.rig.layout().locks();
    fs::remove_dir_all(&locks).unwrap();
    fs::write(&locks, "in the way").unwrap();
    stand.start();
    stand.pass(4.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    let writes = stand.rig.ledger().len();
    let mut job = stand.train();
    stand.play(&mut job, 40);
    assert_eq!(stand.rig.ledger().len(), writes, "{:?}", stand.held());
    assert!(stand.has_event(EventKind::Fault, "the devices can't be locked"));
    stand.terminate();
    fs::remove_file(&locks).unwrap();
    stand.start();
    stand.play_into_steering(&mut stand.train());
    stand.stop();
}

#[test]
fn a_journal_that_another_user_could_have_written_is_not_believed() {
    if !is_root() {
        return;
    }
    let stand = crashed();
    let (state, held) = (stand.rig.layout().state(), stand.held());
    let configs = [stand.rig.layout().config(), elsewhere_file(&stand)];
    for theirs in [state.clone(), state.join("journal")] {
        chown(&theirs, Some(BOB), None).unwrap();
        for config in &configs {
            for arguments in [vec!["restore"], vec![]] {
                let (code, said) = run(Path::new(LITD), &arguments, config);
                assert_eq!(code, Some(1), "{said}");
                let why = format!("{}: belongs to user {BOB}", theirs.display());
                assert!(said.contains(&why), "{said}");
                assert_eq!(stand.held(), held);
            }
        }
        chown(&theirs, Some(0), None).unwrap();
    }
    let (code, said) = restore(Path::new(LITD), &configs[0]);
    assert_eq!(code, Some(0), "{said}");
    stand.assert_clean();
}

/// By a mistake of whoever sets the node up. Nothing is overwritten by way of what he has put there, and no cap
/// is changed that could not be undone.
#[test]
fn in_a_state_directory_of_another_users_nothing_is_written_and_no_cap_changed() {
    if !is_root() {
        return;
    }
    let mut stand = Stand::bare(&(quick("observe") + "caps.budget = 4400\n"), true);
    let (state, directory) = (
        stand.rig.layout().state(),
        &stand.rig.layout().directory.clone(),
    );
    let (victim, made) = (directory.join("victim"), directory.join("made"));
    fs::write(&victim, "root's").unwrap();
    fs::create_dir_all(&state).unwrap();
    let planted = [("journal.new", &victim), ("lock", &made)];
    for (name, victim) in planted {
        symlink(victim, state.join(name)).unwrap();
    }
    chown(&state, Some(BOB), None).unwrap();
    stand.start();
    stand.pass(5.0);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "root's");
    assert!(!made.exists());
    assert!(stand.is_back(), "{:?}", stand.held());
    let why = format!("{}: belongs to user {BOB}", state.display());
    assert!(
        stand.has_event(
            EventKind::Fault,
            "litd changes no cap except to restore one"
        ) && stand.has_event(EventKind::Fault, &why),
        "{}",
        stand.said()
    );
    stand.kill();
    // Once it is root's, his links alone overwrite nothing either.
    chown(&state, Some(0), None).unwrap();
    let (code, said) = run(Path::new(LITD), &[], &stand.rig.layout().config());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("/lock: is a link; it must be"), "{said}");
    fs::remove_file(state.join("lock")).unwrap();
    stand.start();
    stand.pass(5.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    assert!(stand.has_event(EventKind::Fault, "is a link"));
    fs::remove_file(state.join("journal.new")).unwrap();
    stand.pass(5.0);
    assert!(!stand.is_back(), "{:?}", stand.held());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "root's");
    // And where he can write, by its mode, he can no more.
    let mode = fs::Permissions::from_mode(0o777);
    fs::set_permissions(&state, mode).unwrap();
    stand.kill();
    stand.start();
    stand.pass(5.0);
    assert_eq!(
        state.metadata().unwrap().permissions().mode() & 0o7777,
        0o755
    );
    stand.stop();
}

/// Has a journal say that the node has booted since.
fn of_an_earlier_boot(journal: &Path) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let text = fs::read_to_string(journal).unwrap();
    let earlier = text.lines().map(|line| {
        let (json, _) = line.rsplit_once(' ').unwrap();
        let json = json.replace(boot.trim(), "11111111-1111-1111-1111-111111111111");
        format!("{json} {:08x}\n", litd_api::crc32(json.as_bytes()))
    });
    fs::write(journal, earlier.collect::<String>()).unwrap();
}

#[test]
fn what_still_holds_a_cap_of_litds_after_a_boot_gets_back_what_was_found() {
    for restored in [true, false] {
        let mut stand = crashed_under("cpu-slosh");
        // A boot id does not tell whether devices were reset: kexec leaves them as they are.
        let (found, held) = (stand.rig.ledger().found(), stand.held());
        assert_ne!(held[..GPUS], found[..GPUS]);
        assert_ne!(held[GPUS..], found[GPUS..]);
        of_an_earlier_boot(&stand.rig.layout().state().join("journal"));
        if restored {
            let (code, said) = stand.restore();
            assert_eq!(code, Some(0), "{said}");
        } else {
            stand.start();
            stand.pass(6.0);
        }
        assert_eq!(stand.held(), found, "{}", stand.said());
        assert_eq!(stand.journaled(), [""; 0]);
    }
}

/// Changes a byte of a device's line. Returns the file's contents.
pub fn damage(journal: &Path) -> Vec<u8> {
    let mut bytes = fs::read(journal).unwrap();
    let at = bytes.windows(8).position(|it| it == b"\"device\"").unwrap();
    bytes[at + 1] = b'D';
    fs::write(journal, &bytes).unwrap();
    bytes
}

/// A device's line is damaged: the restore that finds that fails, and no later one does that finds all else in order.
/// Each of them tells of it until somebody has looked at the caps.
#[test]
fn a_damaged_journal_fails_one_restore_and_is_told_of_until_its_copy_is_removed() {
    let stand = crashed();
    let journal = stand.rig.layout().state().join("journal");
    damage(&journal);
    for expected in [1, 0, 0] {
        let (code, said) = stand.restore();
        assert_eq!(code, Some(expected), "{said}");
        assert!(said.contains("journal.damaged"), "{said}");
        assert!(said.contains("compare all caps"), "{said}");
        assert!(!said.contains("nothing to restore"), "{said}");
    }
    fs::remove_file(journal.with_extension("damaged")).unwrap();
    let (code, said) = stand.restore();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("nothing to restore"), "{said}");
}

/// The file ends within a device's line, which the one rename that put it there can't have left so.
#[test]
fn a_journal_that_was_cut_is_no_success() {
    let stand = crashed();
    let journal = stand.rig.layout().state().join("journal");
    let bytes = fs::read(&journal).unwrap();
    let at = bytes.windows(8).position(|it| it == b"\"device\"").unwrap();
    fs::write(&journal, &bytes[..at + 60]).unwrap();
    let (code, said) = stand.restore();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the file was cut"), "{said}");
    assert!(said.contains("compare all caps"), "{said}");
    let copy = fs::read(journal.with_extension("damaged")).unwrap();
    assert_eq!(copy, bytes[..at + 60]);
}

/// As systemd does: `litd restore` after each end of the daemon.
#[test]
fn a_stop_with_all_caps_back_succeeds_beside_the_copy_of_a_damaged_journal() {
    let mut stand = crashed();
    let state = stand.rig.layout().state();
    damage(&state.join("journal"));
    stand.start();
    stand.pass(3.0);
    let copy = state.join("journal.damaged");
    assert!(stand.has_event(EventKind::Fault, copy.to_str().unwrap()));
    assert_eq!(stand.terminate(), Some(0), "{}", stand.said());
    let (code, said) = stand.restore();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(copy.to_str().unwrap()), "{said}");
    // A cap that is not back fails a stop all the same.
    let stand = crashed();
    let state = stand.rig.layout().state();
    fs::write(state.join("journal.damaged"), "damaged").unwrap();
    stand.rig.hardware().inject(0, Fault::Refuse);
    let (code, said) = stand.restore();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("could not be restored"), "{said}");
}
