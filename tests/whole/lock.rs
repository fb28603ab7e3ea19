//! What a start and `litd restore` need: the lock that keeps a second daemon away, and a configuration.
//! Neither keeps caps from going back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use litd_rig::{Daemon, Fault};
use litd_units::Watts;

use crate::stand::{GPUS, LITD, Stand, quick, wait_for};

/// A daemon has died with caps moved.
fn crashed() -> Stand {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    stand.kill();
    stand.rig.ledger().permit_found();
    stand
}

/// All lock files below a directory, wherever litd keeps them: they are held by nobody now.
fn lock_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(directory) else {
        return found;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(lock_files(&path)),
            Ok(kind) if kind.is_file() && name.contains("lock") => found.push(path),
            _ => {}
        }
    }
    found
}

/// The lock files of a stand, of which there is one at least.
fn locks(stand: &Stand) -> Vec<PathBuf> {
    let locks = lock_files(&stand.rig.layout().directory);
    assert!(!locks.is_empty(), "litd left no lock file behind");
    locks
}

/// Runs `litd restore` and a daemon after it, both of which find what `spoil` leaves of the locks.
fn both_work(spoil: impl Fn(&Stand)) {
    let mut stand = crashed();
    spoil(&stand);
    let (code, said) = stand.restore();
    assert_eq!(code, Some(0), "{said}");
    stand.assert_clean();
    spoil(&stand);
    stand.start();
    stand.stop();

    let mut stand = crashed();
    spoil(&stand);
    stand.start();
    stand.pass(3.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    stand.stop();
}

#[test]
fn a_lock_file_full_of_nonsense_is_a_lock_file() {
    both_work(|stand| {
        for lock in locks(stand) {
            fs::write(lock, b"\xff\x00 99999999999999999999 no process\n").unwrap();
        }
    });
}

#[test]
fn a_lock_file_that_is_gone_is_made_anew() {
    both_work(|stand| {
        for lock in locks(stand) {
            fs::remove_file(lock).unwrap();
        }
    });
}

#[test]
fn restore_beside_a_daemon_is_refused() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    let from = stand.rig.ledger().len();
    let (code, said) = stand.restore();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("litd runs already"), "{said}");
    assert_eq!(stand.rig.ledger().len(), from);
    stand.play(&mut job, 5);
    stand.stop();
}

/// A configuration file that litd can't use.
fn spoil_file(stand: &Stand, how: usize) -> PathBuf {
    let file = stand.rig.layout().config();
    let _ = fs::remove_file(&file);
    match how {
        // It can't be read: it is a directory.
        0 => fs::create_dir(&file).unwrap(),
        1 => fs::write(&file, "caps.budget = \"plenty\"\n").unwrap(),
        _ => {}
    }
    file
}

fn run(arguments: &[&str], file: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(LITD);
    let output = command.args(arguments).arg("--config").arg(file).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn a_daemon_without_a_configuration_it_can_use_does_not_start() {
    for (how, word) in ["litd.toml", "plenty", "litd.toml"].into_iter().enumerate() {
        // Nothing to be undone, and a predecessor's caps.
        for stand in [Stand::bare(&quick("gpu-realloc"), true), crashed()] {
            let from = stand.rig.ledger().len();
            let journal = stand.journaled();
            let file = spoil_file(&stand, how);
            let (code, said) = run(&[], &file);
            assert_eq!(code, Some(2), "{said}");
            assert!(said.contains(word), "{said}");
            // It touches nothing, and forgets nothing.
            assert_eq!(stand.rig.ledger().len(), from, "{said}");
            assert_eq!(stand.journaled(), journal, "{said}");
        }
    }
}

#[test]
fn restore_does_without_a_configuration_that_makes_sense() {
    let stand = crashed();
    let file = stand.rig.layout().config();
    let text = stand.config().to_owned() + "\n[caps]\nno_such_key = 7\n";
    fs::write(&file, text).unwrap();
    let (code, said) = run(&["restore"], &file);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("no_such_key"), "{said}");
    stand.assert_clean();
}

#[test]
fn restore_holds_what_a_file_that_makes_no_sense_says_is_held() {
    const HOLD: &str = "caps.on_exit = \"hold\"\ncaps.safe_budget = 4000\n";
    let with = |more: &str| {
        let mut stand = crashed();
        stand.configure(&(quick("gpu-realloc") + more));
        let (file, text) = (stand.rig.layout().config(), stand.config().to_owned());
        fs::write(&file, "no_such_key = 7\n".to_owned() + &text).unwrap();
        stand.rig.ledger().permit_found();
        (stand, file)
    };
    let (stand, file) = with(HOLD);
    let before = stand.journaled();
    let (code, said) = run(&["restore"], &file);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("no_such_key"), "{said}");
    assert!(stand.sum() <= Watts(4000.0), "{:?}", stand.held());
    // What was found is not forgotten.
    assert!(
        before.iter().all(|it| stand.journaled().contains(it)),
        "{said}"
    );

    // Nobody knows within what: nothing is raised.
    let (stand, file) = with(&HOLD.replace("4000", "\"4 kW\""));
    let (writes, before) = (stand.rig.ledger().len(), stand.journaled());
    let (code, said) = run(&["restore"], &file);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no cap is moved"), "{said}");
    assert_eq!(
        (stand.rig.ledger().len(), stand.journaled()),
        (writes, before)
    );
}

#[test]
fn restore_says_that_there_is_no_configuration() {
    for how in [0, 2] {
        let stand = crashed();
        let journal = stand.journaled();
        let file = spoil_file(&stand, how);
        let (code, said) = run(&["restore"], &file);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(&file.display().to_string()), "{said}");
        assert_eq!(stand.journaled(), journal);
    }
}

#[test]
fn after_a_crash_another_nodes_configuration_does_not_keep_caps_from_going_back() {
    // Its budget is below the floors of all GPUs here: litd may refuse to start with it, but then
    // `litd restore`, which systemd runs next, gives everything back.
    let mut stand = crashed();
    stand.configure(&(quick("gpu-realloc") + "caps.budget = 300.0\n"));
    let directory = stand.rig.layout().directory.clone();
    let mut daemon = Daemon::launch(Path::new(LITD), &directory, stand.config(), None).unwrap();
    if daemon.become_ready().is_ok() {
        daemon.terminate().unwrap();
    } else {
        daemon.kill();
        let (code, said) = stand.restore();
        assert_eq!(code, Some(0), "{said}");
    }
    let (held, found) = (stand.held(), stand.rig.ledger().found());
    assert_eq!(held, found, "{}", stand.said());
    assert_eq!(stand.journaled(), [""; 0]);
}

/// Somebody cleans up in `/run`, or remounts it.
#[test]
fn locks_that_are_removed_are_taken_again_with_what_they_remember() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    let locks = stand.rig.layout().locks();
    fs::remove_dir_all(&locks).unwrap();
    stand.pass(2.0);
    assert!(
        stand.said().contains("somebody has removed locks"),
        "{}",
        stand.said()
    );
    // Another daemon gets none of the devices.
    let other = stand.rig.layout().directory.join("other.toml");
    let names = ["state", "ingest.sock", "control.sock"];
    let config = names
        .iter()
        .fold(stand.config().to_owned(), |config, name| {
            config.replace(&format!("/{name}\""), &format!("/other-{name}\""))
        });
    fs::write(&other, config).unwrap();
    let started = Command::new(LITD)
        .arg("--config")
        .arg(&other)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&started.stderr);
    assert_eq!(started.status.code(), Some(1), "{said}");
    assert!(said.contains("litd runs already on this device"), "{said}");
    // After a crash it finds what is to go back.
    stand.kill();
    let restored = Command::new(LITD)
        .arg("restore")
        .arg("--config")
        .arg(&other)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&restored.stderr);
    assert_eq!(restored.status.code(), Some(0), "{said}");
    assert!(stand.is_back(), "{:?}: {said}", stand.held());
}

/// As after a crash: the unit's ExecStopPost= runs `litd restore`, and somebody starts litd meanwhile.
#[test]
fn a_start_waits_for_a_restore_that_runs() {
    let stand = crashed();
    for device in 0..GPUS {
        let slow = Duration::from_millis(400);
        stand.rig.hardware().inject(device, Fault::Slow(slow));
    }
    let layout = stand.rig.layout();
    fs::write(layout.config(), stand.config()).unwrap();
    let mut restore = Command::new(LITD)
        .arg("restore")
        .arg("--config")
        .arg(layout.config())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lock = layout.state().join("lock");
    let pid = restore.id().to_string();
    wait_for("the restore has begun", || {
        fs::read_to_string(&lock).is_ok_and(|it| it.split(' ').next() == Some(&pid))
    });
    let daemon = Daemon::spawn(Path::new(LITD), &layout.directory, stand.config(), None);
    let daemon = daemon.unwrap_or_else(|error| panic!("{error}"));
    assert!(restore.wait().unwrap().success());
    assert!(daemon.terminate().unwrap().success());
    stand.assert_clean();
}
