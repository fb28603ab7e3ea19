//! State directories that differ from one litd to the next: what one has left is found with any other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use litd_api::{DeviceState, EventKind};
use litd_rig::Fault;
use litd_units::Watts;

use crate::restore::{READ_ONLY, can_mount, crashed, restore, run, within};
use crate::stand::{DEVICES, GPUS, LITD, Stand, quick, wait_for};

/// The configuration with another state directory and other sockets, so that nothing but the
/// devices is in the way; the other state directory is not made.
fn elsewhere(stand: &Stand) -> String {
    ["state", "ingest.sock", "control.sock"]
        .iter()
        .fold(stand.config().to_owned(), |config, name| {
            config.replace(&format!("/{name}\""), &format!("/other-{name}\""))
        })
}

pub fn elsewhere_file(stand: &Stand) -> PathBuf {
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
    assert!(said.contains("nothing to restore"), "{said}");
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

/// What is to be left alone goes with the journal: a device that was let go of, and somebody else's cap.
#[test]
fn a_daemon_with_another_state_directory_leaves_alone_what_is_to_be() {
    leaves_alone_what_is_to_be(Stand::kill);
}

/// A litd that has ended in order leaves no entry in its journal, and its condition counts all the same.
#[test]
fn so_does_one_after_an_orderly_stop() {
    leaves_alone_what_is_to_be(|stand| {
        stand.rig.ledger().permit_found();
        assert_eq!(stand.terminate(), Some(0), "{}", stand.said());
    });
}

fn leaves_alone_what_is_to_be(end: fn(&mut Stand)) {
    let mut stand = Stand::clocked(&(quick("gpu-realloc") + "caps.budget = 4000\n"));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    stand.rig.hardware().foreign_set(1, Watts(520.0)).unwrap();
    stand.pass(3.0);
    let device = Some("gpu2".to_owned());
    stand.command(&litd_api::Command::Release { device });
    stand.pass(3.0);
    let states = |stand: &Stand| [1, 2].map(|device| stand.device(device).state);
    let before = states(&stand);
    assert_eq!(before, [DeviceState::Foreign, DeviceState::Released]);
    let held = [1, 2].map(|device| stand.held()[device]);
    end(&mut stand);
    let config = stand.config().replace("/state\"", "/other-state\"");
    stand.daemon = Some(stand.rig.spawn_clocked(Path::new(LITD), &config).unwrap());
    stand.pass(10.0);
    assert_eq!(states(&stand), before);
    assert_eq!([1, 2].map(|device| stand.held()[device]), held);
    stand.kill();
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
            "cap found was in {}, and is not there any more",
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

#[test]
fn what_a_restore_that_was_killed_has_lowered_is_found_from_another_state_directory() {
    let mut stand = Stand::clocked(&quick("observe"));
    stand.pass(2.0);
    stand.kill();
    let hold = stand.rig.config(&(quick("observe") + HOLD));
    let path = stand.rig.layout().directory.join("hold.toml");
    fs::write(&path, hold).unwrap();
    // One driver takes so long that restore is not done yet.
    let slow = Fault::Block(Duration::from_secs(60));
    stand.rig.hardware().inject(0, slow);
    let mut restoring = Command::new(LITD)
        .args(["restore", "--config"])
        .arg(path)
        .spawn()
        .unwrap();
    wait_for("lower caps", || !stand.is_back());
    restoring.kill().unwrap();
    restoring.wait().unwrap();
    stand.rig.hardware().heal(0);
    stand.rig.ledger().permit_found();
    let (code, said) = restore_with(&stand, &state_in(&stand, "other"));
    // It was killed during a write, whose outcome the log of the other directory does not have, or between two.
    let may_land = code == Some(3) && said.contains("may still take effect");
    assert!(may_land || code == Some(0), "{code:?} {said}");
    assert!(stand.is_back(), "{:?}: {said}", stand.held());
}

#[test]
fn what_somebody_sets_after_a_journal_was_taken_over_is_not_undone_by_the_old_one() {
    const THEIRS: usize = 0;
    let mut stand = crashed();
    let journal = stand.rig.layout().state().join("journal");
    let before = fs::read(&journal).unwrap();
    // What somebody is to set is the very cap that the first one had set.
    let cap = stand.held()[THEIRS];
    assert_ne!(cap, stand.rig.ledger().found()[THEIRS]);
    let other = state_in(&stand, "other");
    start_with(&mut stand, &other);
    assert!(stand.is_back());
    // As if it had died right before it crossed that out.
    fs::write(&journal, before).unwrap();
    let mut job = stand.job("train", THEIRS + 1..GPUS);
    stand.play_into_steering(&mut job);
    stand.rig.hardware().foreign_set(THEIRS, cap).unwrap();
    stand.play(&mut job, 10);
    stand.kill();
    let said = stand.restore_after_kill();
    let (held, mut expected) = (stand.held(), stand.rig.ledger().found());
    expected[THEIRS] = cap;
    assert_eq!(held, expected, "{said}");
}

/// A second node in the first one's place: other devices, for which a daemon runs that has its locks
/// beside the first one's, and this state directory.
fn beside(first: &Stand, state: &Path) -> Stand {
    let mut second = Stand::bare(&quick("gpu-realloc"), true);
    for device in 0..DEVICES {
        let mut hardware = second.rig.hardware();
        let address = &mut hardware.identity_mut(device).unwrap().address;
        // Of another PCI domain.
        address.insert(0, '1');
    }
    let locks = first.rig.layout().locks();
    let own = format!("[state]\ndirectory = {:?}\n", second.rig.layout().state());
    let shared = format!("[state]\ndirectory = {state:?}\nlocks = {locks:?}\n");
    let config = second.config().replace(&own, &shared);
    start_with(&mut second, &config);
    let budget = litd_api::Command::SetBudget {
        watts: Some(Watts(4000.0)),
    };
    second.command(&budget);
    second.pass(3.0);
    assert!(!second.is_back());
    second
}

#[test]
fn a_litd_that_runs_on_other_devices_keeps_their_caps() {
    let stand = crashed();
    let theirs = stand.rig.layout().directory.join("theirs");
    let second = beside(&stand, &theirs);
    let (code, said) = stand.restore();
    assert_eq!(code, Some(0), "{said}");
    stand.assert_clean();
    let why = format!(
        "{}: a litd with that state directory runs on other devices, and keeps their caps",
        theirs.display()
    );
    assert!(said.contains(&why), "{said}");
    assert!(!second.is_back());
}

#[test]
fn what_the_journal_of_a_litd_on_other_devices_owes_is_said_until_it_can_be_given_back() {
    let stand = crashed();
    let (state, held) = (stand.rig.layout().state(), stand.held());
    let mut second = beside(&stand, &state);
    let other = state_in(&stand, "other");
    let (code, said) = restore_with(&stand, &other);
    assert_eq!(code, Some(1), "{said}");
    let pid = second.daemon().pid();
    let why =
        format!("litd runs already, as process {pid}; the devices in its undo journal were not");
    assert!(said.contains(&why), "{said}");
    assert_eq!(stand.held(), held);
    assert_eq!(second.terminate(), Some(1), "{}", second.said());
    let (code, said) = restore_with(&stand, &other);
    assert_eq!(code, Some(0), "{said}");
    stand.assert_clean();
}

#[test]
fn a_damaged_journal_of_another_state_directory_is_told_with_the_exit_status() {
    let stand = crashed();
    let journal = stand.rig.layout().state().join("journal");
    let text = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, text.replacen("\"found_", "\"fuond_", 1)).unwrap();
    let (code, said) = restore(Path::new(LITD), &elsewhere_file(&stand));
    assert_eq!(code, Some(1), "{said}");
    let damaged = format!("{}: the undo journal was damaged", journal.display());
    assert!(said.contains(&damaged), "{said}");
}

#[test]
fn an_empty_journal_in_the_place_of_the_one_that_was_there_is_none() {
    let stand = crashed();
    let state = stand.rig.layout().state();
    fs::rename(&state, state.with_extension("unmounted")).unwrap();
    fs::create_dir(&state).unwrap();
    fs::write(state.join("journal"), "").unwrap();
    for config in [stand.rig.layout().config(), elsewhere_file(&stand)] {
        for arguments in [vec!["restore"], vec![]] {
            let (code, said) = run(Path::new(LITD), &arguments, &config);
            assert_eq!(code, Some(1), "{said}");
            assert!(
                said.contains("is not the one that has this device's cap found"),
                "{said}"
            );
        }
    }
    fs::remove_dir_all(&state).unwrap();
    fs::rename(state.with_extension("unmounted"), &state).unwrap();
    let (code, said) = restore(Path::new(LITD), &stand.rig.layout().config());
    assert_eq!(code, Some(0), "{said}");
    stand.assert_clean();
}

/// A journal that could not be written when another litd took its entries over still names devices that were restored
/// since. A cap that an administrator sets afterwards is his, even if litd once wrote the same one.
#[test]
fn a_journal_that_could_not_be_written_undoes_nothing_that_was_restored_since() {
    for returns in [restores_with, starts_with] {
        let mut stand = crashed();
        let state = stand.rig.layout().state();
        let lowered = stand.held()[0];
        let journal = fs::read(state.join("journal")).unwrap();
        let (code, said) = restore(Path::new(LITD), &elsewhere_file(&stand));
        assert_eq!(code, Some(0), "{said}");
        assert!(stand.is_back(), "{:?}: {said}", stand.held());
        // As it is where nothing could be crossed out in it.
        fs::write(state.join("journal"), &journal).unwrap();
        stand.rig.hardware().foreign_set(0, lowered).unwrap();
        returns(&mut stand);
        assert_eq!(stand.held()[0], lowered);
        assert!(stand.journaled().is_empty(), "{:?}", stand.journaled());
    }
}

fn restores_with(stand: &mut Stand) {
    let (code, said) = restore(Path::new(LITD), &stand.rig.layout().config());
    assert_eq!(code, Some(0), "{said}");
}

fn starts_with(stand: &mut Stand) {
    stand.start();
    stand.pass(5.0);
    assert_eq!(stand.device(0).found, Some(stand.held()[0]));
    assert_eq!(stand.terminate(), Some(0), "{}", stand.said());
}

/// The same where that journal can still not be written: it undoes nothing, and each restore says so.
#[test]
fn a_journal_that_can_still_not_be_written_undoes_nothing_that_was_restored_since() {
    if !can_mount() {
        return;
    }
    let stand = crashed();
    let lowered = stand.held()[0];
    let config = stand.rig.layout().config();
    let program = within(&stand, READ_ONLY);
    let is_told = |(code, said): (Option<i32>, String)| {
        let names =
            |line: &str| line.contains("are out of date") && line.contains("/state/journal");
        assert!(said.lines().any(names), "{said}");
        assert_eq!(code, Some(1), "{said}");
    };
    let taken_over = restore(&program, &elsewhere_file(&stand));
    assert!(stand.is_back(), "{:?}", stand.held());
    stand.rig.hardware().foreign_set(0, lowered).unwrap();
    let again = restore(&program, &config);
    assert_eq!(stand.held()[0], lowered);
    is_told(taken_over);
    is_told(again);
    // It can be written again.
    let (code, said) = restore(Path::new(LITD), &config);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(stand.held()[0], lowered);
    assert!(stand.journaled().is_empty(), "{:?}", stand.journaled());
}

/// Of two journals that name a device only the later one undoes it, also where the other one is the configured one and
/// can't be written.
#[test]
fn a_journal_that_can_still_not_be_written_is_in_no_later_ones_way() {
    const BUDGET: &str = "caps.budget = 4000\n";
    const THEIRS: Watts = Watts(650.0);
    if !can_mount() {
        return;
    }
    let mut stand = Stand::clocked(&(quick("observe") + BUDGET));
    stand.pass(5.0);
    stand.kill();
    let lowered = stand.held();
    let program = within(&stand, READ_ONLY);
    restore(&program, &elsewhere_file(&stand));
    assert!(stand.is_back(), "{:?}", stand.held());
    for gpu in 0..GPUS {
        stand.rig.hardware().foreign_set(gpu, THEIRS).unwrap();
    }
    let other = state_in(&stand, "other-state");
    start_with(&mut stand, &other);
    stand.kill();
    assert_eq!(stand.held(), lowered);
    let own = stand.rig.layout().directory.join("own.toml");
    fs::write(&own, stand.config()).unwrap();
    for program in [program.as_path(), Path::new(LITD)] {
        let (_, said) = restore(program, &own);
        assert!(said.contains("/state/journal"), "{said}");
        assert_eq!(stand.held()[..GPUS], [THEIRS; GPUS], "{said}");
    }
}

/// A `litd restore` runs after each stop. The journal in the unit's state directory, which could not be written when
/// another litd took its entries over, undoes nothing then either, neither before nor after it can be written.
#[test]
fn the_units_journal_undoes_nothing_that_was_restored_since() {
    const OF_UNIT: &str = "export STATE_DIRECTORY=\"$state\"";
    if !can_mount() {
        return;
    }
    for mended in [false, true] {
        let stand = crashed();
        let lowered = stand.held()[0];
        let other = elsewhere_file(&stand);
        let program = within(&stand, &format!("{OF_UNIT}; {READ_ONLY}"));
        let (code, said) = restore(&program, &other);
        assert_eq!(code, Some(1), "{said}");
        assert!(stand.is_back(), "{:?}: {said}", stand.held());
        stand.rig.hardware().foreign_set(0, lowered).unwrap();
        let program = match mended {
            true => within(&stand, OF_UNIT),
            false => program,
        };
        let (code, said) = restore(&program, &other);
        assert_eq!(stand.held()[0], lowered, "{said}");
        assert_eq!(code, Some(i32::from(!mended)), "{said}");
        assert_eq!(stand.journaled().is_empty(), mended);
    }
}

/// What was kept in a state directory before a litd with another one had the devices is out of date: what an
/// administrator has ended under the other one stays ended.
#[test]
fn what_was_set_before_another_litd_had_the_devices_does_not_come_back() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    stand.pass(2.0);
    let device = || Some("gpu2".to_owned());
    let job = || "slurm-7".to_owned();
    let gpus = vec!["gpu3".to_owned()];
    let budget = |watts| litd_api::Command::SetBudget {
        watts: Some(Watts(watts)),
    };
    stand.command(&litd_api::Command::Release { device: device() });
    stand.command(&litd_api::Command::BeginJob {
        job: job(),
        gpus: gpus.clone(),
        opt_out: true,
    });
    stand.command(&budget(4000.0));
    stand.pass(2.0);
    stand.kill();
    let condition = stand.rig.layout().state().join("condition");
    let before = fs::read(&condition).unwrap();
    let other = state_in(&stand, "other");
    start_with(&mut stand, &other);
    assert_eq!(stand.device(2).state, DeviceState::Released);
    assert_eq!(stand.status().announced.len(), 1);
    stand.command(&litd_api::Command::Resume { device: device() });
    stand.command(&litd_api::Command::EndJob { job: job(), gpus });
    stand.command(&budget(3900.0));
    stand.pass(2.0);
    stand.rig.ledger().permit_found();
    assert_eq!(stand.terminate(), Some(0), "{}", stand.said());
    // As it is where the other litd could not write there.
    fs::write(&condition, before).unwrap();
    let own = stand.config().to_owned();
    start_with(&mut stand, &own);
    assert_eq!(stand.device(2).state, DeviceState::Ours);
    assert!(stand.status().announced.is_empty());
    let orders = stand.events(EventKind::Command);
    assert!(
        !orders.iter().any(|it| it.contains("in force again")),
        "{orders:?}"
    );
    stand.kill();
}

/// Where the journal and all links are lost, the caps that the litd before has published tell of each device that holds
/// something else now.
#[test]
fn without_journal_and_links_each_cap_that_is_not_the_one_found_before_is_told() {
    let place = tempfile::tempdir().unwrap();
    let baseline = place.path().join("baseline");
    let config = quick("observe") + &format!("state.baseline = \"{}\"\n", baseline.display());
    let mut stand = Stand::clocked(&(config.clone() + "caps.budget = 4000\n"));
    stand.pass(5.0);
    stand.kill();
    fs::remove_dir_all(stand.rig.layout().state()).unwrap();
    fs::remove_dir_all(stand.rig.layout().locks()).unwrap();
    stand.configure(&config);
    let found = stand.rig.ledger().found();
    let moved = stand
        .held()
        .into_iter()
        .zip(found)
        .filter(|(held, found)| held != found);
    let moved = moved.count();
    assert!(moved > 1);
    stand.start();
    stand.pass(5.0);
    let said = stand.said();
    let told = said.matches("where the litd before this one found").count();
    assert_eq!(told, moved, "{said}");
    stand.kill();
}
