//! What is remembered of an undo journal's place: another journal there is told, and the right one is never
//! taken for another one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use litd_units::Watts;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::restore::{crashed, damage};
use crate::stand::{GPUS, LITD, SOON, Stand, quick};

const LAST: usize = GPUS - 1;

/// A node whose daemon was killed while caps of its first GPUs were moved, and the last one's address,
/// which the journal does not name.
fn crashed_on_some() -> (Stand, String) {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut job = stand.job("train", 0..GPUS / 2);
    stand.play_into_steering(&mut job);
    stand.kill();
    let last = address(&stand, LAST, None);
    assert!(!stand.journaled().contains(&last));
    (stand, last)
}

/// A device's address before another one took its place, if any did.
fn address(stand: &Stand, device: usize, other: Option<&str>) -> String {
    let mut hardware = stand.rig.hardware();
    let address = &mut hardware.identity_mut(device).unwrap().address;
    match other {
        Some(other) => std::mem::replace(address, other.to_owned()),
        None => address.clone(),
    }
}

#[test]
fn a_gpu_that_was_away_while_the_others_were_given_back_keeps_from_nothing() {
    for by_restore in [true, false] {
        let (mut stand, last) = crashed_on_some();
        address(&stand, LAST, Some("1111:00:00.0"));
        if by_restore {
            let (code, said) = stand.restore();
            assert_eq!(code, Some(0), "{said}");
        } else {
            stand.start();
            stand.pass(5.0);
            assert_eq!(stand.terminate(), Some(0), "{}", stand.said());
        }
        assert!(stand.is_back(), "{:?}", stand.held());
        address(&stand, LAST, Some(&last));
        let (code, said) = stand.restore();
        assert_eq!(code, Some(0), "{said}");
        stand.start();
        stand.play_into_steering(&mut stand.train());
        stand.stop();
    }
}

#[test]
fn a_litd_whose_devices_nobody_has_left_changed_starts_again_after_a_crash() {
    let (mut stand, _) = crashed_on_some();
    for device in 0..GPUS / 2 {
        address(&stand, device, Some(&format!("1111:0{device}:00.0")));
    }
    let config = stand.config().replace("/state\"", "/other-state\"");
    for _ in 0..2 {
        stand.daemon = Some(stand.rig.spawn_clocked(Path::new(LITD), &config).unwrap());
        stand.pass(3.0);
        stand.kill();
    }
}

/// What is remembered of the journals' places: links and what stands beside them.
fn remembered(stand: &Stand) -> Vec<PathBuf> {
    let all = fs::read_dir(stand.rig.layout().locks()).unwrap();
    let all = all.map(|it| it.unwrap().path());
    all.filter(|it| it.to_str().unwrap().contains(".journal"))
        .collect()
}

#[test]
fn what_died_before_it_forgot_the_journal_that_it_emptied_keeps_from_nothing() {
    let mut stand = crashed();
    let copy = stand.rig.layout().directory.join("copy");
    fs::create_dir(&copy).unwrap();
    let before = remembered(&stand);
    for it in &before {
        let copied = std::process::Command::new("cp")
            .args(["-P".as_ref(), it.as_os_str(), copy.as_os_str()])
            .status();
        assert!(copied.unwrap().success());
    }
    let (code, said) = stand.restore();
    assert_eq!(code, Some(0), "{said}");
    assert!(remembered(&stand).is_empty());
    for it in &before {
        fs::rename(copy.join(it.file_name().unwrap()), it).unwrap();
    }
    let (code, said) = stand.restore();
    assert_eq!(code, Some(0), "{said}");
    stand.start();
    stand.play_into_steering(&mut stand.train());
    stand.stop();
}

#[test]
fn an_older_journal_in_the_place_of_the_one_that_was_there_is_told_and_not_obeyed() {
    let mut stand = crashed();
    let journal = stand.rig.layout().state().join("journal");
    let older = fs::read(&journal).unwrap();
    let (code, said) = stand.restore();
    assert_eq!(code, Some(0), "{said}");
    stand.start();
    stand.pass(3.0);
    let watts = Some(Watts(3333.0));
    stand.command(&litd_api::Command::SetBudget { watts });
    stand.pass(5.0);
    stand.kill();
    let (right, held) = (fs::read(&journal).unwrap(), stand.held());
    fs::write(&journal, older).unwrap();
    let (code, said) = stand.restore();
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("is not the one that has this device's cap found"),
        "{said}"
    );
    let config = stand.config().to_owned();
    let started = stand.rig.spawn_clocked(Path::new(LITD), &config);
    assert!(started.is_err());
    assert_eq!(stand.held(), held);
    fs::write(&journal, right).unwrap();
    stand.restore_after_kill();
    assert!(stand.is_back(), "{:?}", stand.held());
}

/// The state directory's file system is away for a while, and comes back.
#[test]
fn a_journal_that_was_written_anew_in_its_absence_is_the_one_that_counts() {
    let mut stand = Stand::clocked(&quick("observe"));
    stand.pass(3.0);
    let budget = |watts: f64| litd_api::Command::SetBudget {
        watts: Some(Watts(watts)),
    };
    stand.command(&budget(5000.0));
    stand.pass(2.0);
    let journal = stand.rig.layout().state().join("journal");
    let away = journal.with_extension("away");
    fs::rename(&journal, &away).unwrap();
    stand.pass(2.0);
    stand.command(&budget(4000.0));
    stand.pass(2.0);
    stand.kill();
    let (right, held) = (fs::read(&journal).unwrap(), stand.held());
    fs::rename(&away, &journal).unwrap();
    let (code, said) = stand.restore();
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("is not the one that has this device's cap found"),
        "{said}"
    );
    assert_eq!(stand.held(), held);
    fs::write(&journal, right).unwrap();
    stand.restore_after_kill();
    assert!(stand.is_back(), "{:?}", stand.held());
}

/// Whoever takes a journal over writes it anew, without the lines that can't be read.
#[test]
fn a_damaged_journal_that_another_litd_takes_over_is_copied_before_it_is_written_anew() {
    let mut stand = crashed();
    let state = stand.rig.layout().state();
    let damaged = damage(&state.join("journal"));
    let config = stand.config().replace("/state\"", "/other-state\"");
    stand.daemon = Some(stand.rig.spawn_clocked(Path::new(LITD), &config).unwrap());
    stand.pass(3.0);
    let copy = state.join("journal.damaged");
    assert_eq!(fs::read(&copy).ok(), Some(damaged), "{}", stand.said());
    let told = format!(
        "{}: the undo journal was damaged",
        state.join("journal").display()
    );
    assert!(stand.said().contains(&told), "{}", stand.said());
    stand.kill();
}

/// The copy can't be made: the journal itself stays as it is.
#[test]
fn a_damaged_journal_that_can_not_be_copied_is_not_written_anew() {
    let mut stand = crashed();
    let state = stand.rig.layout().state();
    let damaged = damage(&state.join("journal"));
    fs::create_dir(state.join("journal.damaged.new")).unwrap();
    let config = stand.config().replace("/state\"", "/other-state\"");
    stand.daemon = Some(stand.rig.spawn_clocked(Path::new(LITD), &config).unwrap());
    stand.pass(3.0);
    assert_eq!(fs::read(state.join("journal")).unwrap(), damaged);
    stand.kill();
}

/// A node whose daemon was killed, and what tells of its journal is gone: `state.directory` was changed and `/run/litd`
/// was emptied. The command that looks in the unit's state directory as well.
fn forgotten(stand: &Stand) -> Command {
    let layout = stand.rig.layout();
    let config = stand.config().replace("/state\"", "/other-state\"");
    assert_ne!(config, stand.config());
    fs::write(layout.config(), config).unwrap();
    fs::remove_dir_all(layout.locks()).unwrap();
    let mut command = Command::new(LITD);
    command
        .arg("--config")
        .arg(layout.config())
        .env("STATE_DIRECTORY", layout.state())
        .stderr(Stdio::piped());
    command
}

#[test]
fn a_journal_in_the_units_directory_is_found_without_a_link() {
    let stand = crashed();
    let output = forgotten(&stand).arg("restore").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(stand.is_back(), "{:?}: {said}", stand.held());
    assert!(stand.journaled().is_empty(), "{said}");
}

#[test]
fn a_start_takes_over_a_journal_in_the_units_directory_without_a_link() {
    let stand = crashed();
    let mut daemon = forgotten(&stand).stdout(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + SOON;
    while !stand.is_back() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    // It is ended whatever it has done.
    kill(Pid::from_raw(daemon.id() as i32), Signal::SIGTERM).unwrap();
    assert!(daemon.wait().unwrap().success());
    assert!(stand.is_back(), "{:?}", stand.held());
    assert!(stand.journaled().is_empty());
}

#[test]
fn a_journal_in_the_units_directory_that_cannot_be_read_is_told() {
    let stand = crashed();
    let journal = stand.rig.layout().state().join("journal");
    fs::remove_file(&journal).unwrap();
    fs::create_dir(&journal).unwrap();
    for start in [false, true] {
        let mut command = forgotten(&stand);
        fs::create_dir_all(stand.rig.layout().locks()).unwrap();
        if !start {
            command.arg("restore");
        }
        // A start that is not refused would last.
        let mut bounded = Command::new("timeout");
        bounded.arg("20").arg(LITD).args(command.get_args());
        bounded.env("STATE_DIRECTORY", stand.rig.layout().state());
        let output = bounded.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&journal.display().to_string()), "{said}");
        assert!(!stand.is_back());
    }
}
