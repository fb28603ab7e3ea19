//! What a daemon that is gone has left: it goes back wherever its journal can still be read.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use litd_api::EventKind;
use litd_rig::{Daemon, Fault};
use litd_units::Watts;

use crate::stand::{DEVICES, GPUS, LITD, SOON, Stand, quick, wait_for};

/// Ways in which a state directory that can be read can't be written, as shell commands in which
/// `$state` is the directory.
const READABLE: [(&str, &str); 4] = [
    (
        "a file system that has become read-only",
        "mount --bind \"$state\" \"$state\" && mount -o remount,ro,bind \"$state\"",
    ),
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
fn can_mount() -> bool {
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
fn within(stand: &Stand, change: &str) -> PathBuf {
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

fn run(program: &Path, arguments: &[&str], config: &Path) -> (Option<i32>, String) {
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

fn restore(program: &Path, config: &Path) -> (Option<i32>, String) {
    run(program, &["restore"], config)
}

/// A node whose daemon was killed while caps were moved.
fn crashed() -> Stand {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
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
        let expected = format!(
            "caps are as they were found, but {} still has an entry of 0000:",
            journal.display()
        );
        assert!(said.contains(&expected), "{what}: {said}");
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
        assert!(stand.has_event(EventKind::Fault, "no cap is changed, but to undo"));
        assert!(stand.job_status("train").samples > 0, "{what}");
        assert_eq!(stand.terminate(), Some(1), "{what}: {}", stand.said());
        assert!(stand.said().contains("caps are as they were found, but"));
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
    assert!(said.contains("still has an entry of 0000:"), "{said}");
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

/// The configuration with another state directory and other sockets, so that nothing but the
/// devices is in the way; the other state directory is not made.
fn elsewhere(stand: &Stand) -> String {
    ["state", "ingest.sock", "control.sock"]
        .iter()
        .fold(stand.config().to_owned(), |config, name| {
            config.replace(&format!("/{name}\""), &format!("/other-{name}\""))
        })
}

fn elsewhere_file(stand: &Stand) -> PathBuf {
    let path = stand.rig.layout().directory.join("other.toml");
    fs::write(&path, elsewhere(stand)).unwrap();
    path
}

#[test]
fn restore_finds_the_journal_of_a_daemon_with_another_state_directory() {
    let stand = crashed();
    let config = elsewhere_file(&stand);
    let (code, said) = restore(Path::new(LITD), &config);
    assert!(stand.is_back(), "{:?}: {said}", stand.held());
    assert_eq!(code, Some(0), "{said}");
    let old = stand.rig.layout().state();
    assert!(said.contains(&format!(
        "{}: a litd with that state directory",
        old.display()
    )));
    stand.assert_clean();
    let (code, said) = restore(Path::new(LITD), &config);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("nothing to give back"), "{said}");
}

#[test]
fn what_another_state_directory_holds_on_purpose_is_found_again() {
    let stand = crashed();
    let config = elsewhere_file(&stand);
    let back = fs::read_to_string(&config).unwrap();
    let hold = format!("caps.on_exit = \"hold\"\ncaps.safe_budget = 4000\n{back}");
    fs::write(&config, hold).unwrap();
    let (code, said) = restore(Path::new(LITD), &config);
    assert_eq!(code, Some(0), "{said}");
    assert!(!stand.is_back(), "{:?}: {said}", stand.held());
    // Its journal has what was found still, and whoever is to go there finds it.
    fs::write(&config, back).unwrap();
    let (code, said) = restore(Path::new(LITD), &config);
    assert_eq!(code, Some(0), "{said}");
    assert!(stand.is_back(), "{:?}: {said}", stand.held());
}

#[test]
fn a_daemon_with_another_state_directory_starts_from_the_caps_found_first() {
    let mut stand = crashed();
    let found = stand.rig.ledger().found();
    let config = stand.config().replace("/state\"", "/other-state\"");
    let program = Path::new(LITD);
    stand.daemon = Some(stand.rig.spawn_clocked(program, &config).unwrap());
    let told: Vec<_> = (0..DEVICES).map(|it| stand.device(it).found).collect();
    assert_eq!(told, found.iter().map(|&cap| Some(cap)).collect::<Vec<_>>());
    stand.pass(5.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    assert_eq!(stand.journaled(), [""; 0]);
    // Crashed in turn, it is found by a daemon with the first state directory.
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    stand.daemon.take().unwrap().kill();
    assert!(!stand.is_back());
    stand.start();
    stand.pass(5.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    stand.stop();
}

#[test]
fn a_daemon_with_another_state_directory_keeps_its_budget_from_the_first_write_on() {
    const BUDGET: &str = "caps.budget = 4000\n";
    let mut stand = Stand::clocked(&(quick("gpu-realloc") + BUDGET));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    stand.kill();
    let before = stand.sum();
    assert!(before <= Watts(4000.0));
    // Any cap above it from now on breaks a rule.
    stand.rig.ledger().set_budget(Watts(4000.0));
    let config = stand.config().replace("/state\"", "/other-state\"");
    let program = Path::new(LITD);
    stand.daemon = Some(stand.rig.spawn_clocked(program, &config).unwrap());
    stand.pass(5.0);
    assert!(stand.sum() <= Watts(4000.0), "{:?}", stand.held());
    stand.assert_rules();
    let found = stand.rig.ledger().found();
    for (device, &cap) in found.iter().enumerate().take(GPUS) {
        assert_eq!(stand.device(device).found, Some(cap));
    }
    // What the first one found is in the second one's journal, and no longer in the first one's.
    assert!(stand.journaled().is_empty());
    stand.kill();
    stand.rig.ledger().permit_found();
    let path = stand.rig.layout().directory.join("other.toml");
    fs::write(&path, config.replace(BUDGET, "")).unwrap();
    let (code, said) = restore(program, &path);
    assert_eq!(code, Some(0), "{said}");
    stand.assert_clean();
}

#[test]
fn what_can_not_be_taken_over_keeps_a_daemon_from_starting_and_restore_undoes_it() {
    let stand = crashed();
    let (config, held) = (elsewhere_file(&stand), stand.held());
    let other = stand.rig.layout().directory.join("other-state");
    // The new journal can't be made.
    fs::create_dir_all(other.join("journal.new")).unwrap();
    let (code, said) = run(Path::new(LITD), &[], &config);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("/other-state/journal"), "{said}");
    assert!(said.contains("litd restore"), "{said}");
    assert_eq!(stand.held(), held);
    assert_eq!(stand.journaled().len(), GPUS);
    let (code, said) = restore(Path::new(LITD), &config);
    assert_eq!(code, Some(0), "{said}");
    stand.assert_clean();
}

#[test]
fn a_journal_that_is_not_there_any_more_is_told_until_somebody_has_looked() {
    let stand = crashed();
    let (state, config) = (stand.rig.layout().state(), elsewhere_file(&stand));
    fs::rename(&state, state.with_extension("unmounted")).unwrap();
    let held = stand.held();
    for arguments in [vec!["restore"], vec![]] {
        let (code, said) = run(Path::new(LITD), &arguments, &config);
        assert_eq!(code, Some(1), "{said}");
        let expected = format!(
            "its undo journal was in {}, which is not there any more",
            state.display()
        );
        assert!(said.contains("0000:") && said.contains(&expected), "{said}");
        assert_eq!(stand.held(), held);
    }
    fs::rename(state.with_extension("unmounted"), &state).unwrap();
    let (code, said) = restore(Path::new(LITD), &config);
    assert_eq!(code, Some(0), "{said}");
    stand.assert_clean();
}

#[test]
fn of_two_daemons_with_different_state_directories_the_second_is_refused() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let config = elsewhere_file(&stand);
    let mut job = stand.train();
    let pid = stand.daemon().pid();
    for steering in [false, true] {
        if steering {
            stand.play_into_steering(&mut job);
        }
        let writes = stand.rig.ledger().len();
        let (code, said) = run(Path::new(LITD), &[], &config);
        assert_eq!(code, Some(1), "{said}");
        let expected = format!(
            "litd runs already on this device, as process {pid} with the state directory {}",
            stand.rig.layout().state().display()
        );
        assert!(said.contains("0000:") && said.contains(&expected), "{said}");
        if steering {
            let (code, said) = restore(Path::new(LITD), &config);
            assert_eq!(code, Some(1), "{said}");
            assert!(said.contains(&expected), "{said}");
        }
        assert_eq!(stand.rig.ledger().len(), writes);
    }
    stand.stop();
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

/// All floors together are eight times 300 W; the file alone does not say that there are eight.
const TOO_LITTLE: [(&str, &str); 3] = [
    ("caps.budget = 1500\n", "caps.budget"),
    ("caps.safe_budget = 1500\n", "caps.safe_budget"),
    ("node.budget = 1500\n", "node.budget"),
];

#[test]
fn a_file_whose_budget_is_below_all_floors_is_refused_as_by_hand() {
    let stand = Stand::bare("", false);
    let file = stand.rig.layout().config();
    for (line, key) in TOO_LITTLE {
        fs::write(&file, stand.rig.config(line)).unwrap();
        for arguments in [vec!["--check-config"], vec![]] {
            let (code, said) = run(Path::new(LITD), &arguments, &file);
            assert_eq!(code, Some(2), "{key}: {said}");
            let why = "a budget of 1500 W is none for these GPUs: their floors add up to 2400 W";
            assert!(said.contains(&format!(": {key}: {why}")), "{said}");
        }
    }
    // A budget above all ceilings bounds nothing, and one file may be for all nodes of a fleet.
    for line in ["caps.budget = 2400\n", "caps.budget = 50000\n", ""] {
        fs::write(&file, stand.rig.config(line)).unwrap();
        let (code, said) = run(Path::new(LITD), &["--check-config"], &file);
        assert_eq!(code, Some(0), "{line}: {said}");
    }
    // Without the hardware the file is all there is to look at, and that is said.
    let config = stand.rig.config("caps.budget = 1500\n");
    let config = config.replace("hardware.sock", "none.sock");
    fs::write(&file, config).unwrap();
    let output = Command::new(LITD)
        .args(["--check-config", "--config"])
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("good; budgets were not compared"), "{said}");
}

#[test]
fn a_reload_with_a_budget_below_all_floors_changes_nothing() {
    let mut stand = Stand::clocked(&(quick("gpu-realloc") + "caps.budget = 5200\n"));
    let hash = stand.status().build.configuration;
    for (line, key) in TOO_LITTLE {
        let count = stand.events(EventKind::Daemon).len();
        stand.reload(&(quick("gpu-realloc") + line));
        wait_for(key, || stand.events(EventKind::Daemon).len() > count);
        assert!(
            stand.has_event(
                EventKind::Daemon,
                &format!("the configuration stays as it was: {key}")
            ),
            "{:?}",
            stand.events(EventKind::Daemon)
        );
        assert_eq!(stand.status().node.budget.0, 5200.0);
        assert_eq!(stand.status().build.configuration, hash);
    }
    // Floors are not raised above a budget that was accepted.
    let budget = litd_api::Command::SetBudget {
        watts: Some(litd_units::Watts(2500.0)),
    };
    stand.command(&budget);
    let count = stand.events(EventKind::Daemon).len();
    stand.reload(&(quick("gpu-realloc") + "caps.gpu_floor = 350\n"));
    wait_for("refusal", || stand.events(EventKind::Daemon).len() > count);
    assert!(stand.has_event(EventKind::Daemon, "`litctl budget` has set it"));
    let mut job = stand.train();
    stand.play(&mut job, 20);
    assert!(stand.sum().0 <= 2500.0, "{:?}", &stand.held()[..GPUS]);
    stand.stop();
}

#[test]
fn a_daemon_that_is_refused_its_budget_leaves_nothing_behind() {
    let stand = Stand::bare("caps.budget = 1500\n", false);
    let daemon = Daemon::spawn(
        Path::new(LITD),
        &stand.rig.layout().directory,
        stand.config(),
        None,
    );
    assert!(daemon.is_err());
    assert!(stand.rig.ledger().is_empty());
    assert!(stand.said().contains("their floors add up to 2400 W"));
}

/// The configuration with its state in this directory of the stand's.
fn state_in(stand: &Stand, name: &str) -> String {
    stand.config().replace("/state\"", &format!("/{name}\""))
}

fn start_with(stand: &mut Stand, config: &str) {
    stand.daemon = Some(stand.rig.spawn_clocked(Path::new(LITD), config).unwrap());
    stand.pass(5.0);
}

fn restore_with(stand: &Stand, config: &str) -> (Option<i32>, String) {
    let path = stand.rig.layout().directory.join("with.toml");
    fs::write(&path, config).unwrap();
    restore(Path::new(LITD), &path)
}

#[test]
fn a_journal_that_was_taken_over_and_not_crossed_out_is_outdated() {
    let mut stand = crashed();
    let journal = stand.rig.layout().state().join("journal");
    let before = fs::read(&journal).unwrap();
    let other = state_in(&stand, "other");
    start_with(&mut stand, &other);
    // As if it had died right before it crossed that out.
    fs::write(&journal, before).unwrap();
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    stand.play(&mut job, 120);
    drop(job);
    stand.kill();
    assert!(!stand.is_back());
    stand.start();
    stand.pass(6.0);
    assert!(stand.is_back(), "{:?}\n{}", stand.held(), stand.said());
    stand.stop();
}

#[test]
fn an_empty_directory_in_the_journals_place_is_no_journal() {
    for name in ["state", "other"] {
        let stand = crashed();
        let state = stand.rig.layout().state();
        fs::rename(&state, state.with_extension("unmounted")).unwrap();
        fs::create_dir(&state).unwrap();
        let (config, held) = (state_in(&stand, name), stand.held());
        let path = stand.rig.layout().directory.join("with.toml");
        fs::write(&path, &config).unwrap();
        for arguments in [vec!["restore"], vec![]] {
            let (code, said) = run(Path::new(LITD), &arguments, &path);
            assert_eq!(code, Some(1), "{name}: {said}");
            assert!(said.contains("not there any more"), "{name}: {said}");
            assert_eq!(stand.held(), held);
        }
        // It is mounted again.
        fs::remove_dir_all(&state).unwrap();
        fs::rename(state.with_extension("unmounted"), &state).unwrap();
        let (code, said) = restore_with(&stand, &config);
        assert_eq!(code, Some(0), "{name}: {said}");
        stand.assert_clean();
    }
}

const HOLD: &str = "caps.on_exit = \"hold\"\ncaps.safe_budget = 4000\n";

#[test]
fn what_restore_holds_is_found_from_another_state_directory() {
    let mut stand = Stand::clocked(&quick("observe"));
    stand.pass(2.0);
    stand.kill();
    let hold = stand.rig.config(&(quick("observe") + HOLD));
    let (code, said) = restore_with(&stand, &hold);
    assert_eq!(code, Some(0), "{said}");
    assert!(stand.sum() <= Watts(4000.0));
    stand.rig.ledger().permit_found();
    let (code, said) = restore_with(&stand, &state_in(&stand, "other"));
    assert_eq!(code, Some(0), "{said}");
    assert!(stand.is_back(), "{:?}: {said}", stand.held());
}

#[test]
fn no_journal_takes_what_another_ones_undo_lowered_for_what_was_found() {
    const IN_RESET: usize = 5;
    let mut stand = Stand::bare(&(quick("gpu-realloc") + HOLD), true);
    let (own, other) = (stand.config().to_owned(), state_in(&stand, "other"));
    start_with(&mut stand, &other);
    stand.rig.hardware().inject(IN_RESET, Fault::InReset);
    stand.pass(3.0);
    stand.kill();
    let (code, said) = restore_with(&stand, &own);
    assert_eq!(code, Some(1), "{said}");
    stand.rig.hardware().heal(IN_RESET);
    stand.configure(&quick("observe"));
    stand.rig.ledger().permit_found();
    let (code, said) = restore_with(&stand, stand.config());
    assert_eq!(code, Some(0), "{said}");
    assert!(stand.is_back(), "{:?}: {said}", stand.held());
}
