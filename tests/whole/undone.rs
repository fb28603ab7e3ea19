//! Caps that are restored where the journal can't say so: nothing is undone twice.

use std::fs;
use std::path::Path;

use litd_api::{Command, EventKind};
use litd_rig::Fault;
use litd_units::Watts;

use crate::restore::{READ_ONLY, can_mount, crashed, restore, within};
use crate::stand::{LITD, Stand, quick, wait_for};

/// Makes the directory of the devices' locks read-only, too.
const NOR_NOTES: &str = "locks=$(dirname \"$state\")/devices && mount --bind \"$locks\" \"$locks\" && \
                         mount -o remount,ro,bind \"$locks\"";

type Returns = fn(&mut Stand);

/// litd comes, on a journal that can be written.
const RETURNS: [(&str, Returns); 2] = [
    ("restore", |stand| {
        let (code, said) = stand.restore();
        assert_eq!(code, Some(0), "{said}");
    }),
    ("start", |stand| {
        stand.start();
        stand.pass(5.0);
        assert_eq!(stand.device(0).found, Some(stand.held()[0]));
        assert_eq!(stand.terminate(), Some(0), "{}", stand.said());
    }),
];

/// All caps are back, and no entry could be removed. A cap that an administrator sets then is his, even if litd had
/// set the same one: while nothing can be written, and once it can.
#[test]
fn what_a_restore_could_not_cross_out_is_not_undone_again() {
    if !can_mount() {
        return;
    }
    for (what, returns) in RETURNS {
        let mut stand = crashed();
        let lowered = stand.held()[0];
        let config = stand.rig.layout().config();
        let program = within(&stand, READ_ONLY);
        for expected in [stand.rig.ledger().found()[0], lowered] {
            let (code, said) = restore(&program, &config);
            assert_eq!(code, Some(1), "{what}: {said}");
            assert!(
                said.contains("They undo nothing until the node boots"),
                "{said}"
            );
            assert_eq!(stand.held()[0], expected, "{what}: {said}");
            stand.rig.hardware().foreign_set(0, lowered).unwrap();
        }
        assert!(!stand.journaled().is_empty());
        returns(&mut stand);
        assert_eq!(stand.held()[0], lowered, "{what}: {}", stand.said());
        assert_eq!(stand.journaled(), [""; 0], "{what}");
    }
}

/// The same of a litd that runs while nothing can be written, and is killed.
#[test]
fn what_a_litd_could_not_cross_out_is_not_undone_again() {
    if !can_mount() {
        return;
    }
    for (what, returns) in RETURNS {
        let mut stand = crashed();
        let lowered = stand.held()[0];
        let (program, config) = (within(&stand, READ_ONLY), stand.config().to_owned());
        stand.daemon = Some(stand.rig.spawn_clocked(&program, &config).unwrap());
        stand.pass(5.0);
        assert!(stand.is_back(), "{what}: {:?}", stand.held());
        stand.rig.hardware().foreign_set(0, lowered).unwrap();
        stand.pass(5.0);
        assert_eq!(stand.held()[0], lowered, "{what}: {}", stand.said());
        stand.kill();
        // It starts there again, and says at its end what it could not do.
        stand.daemon = Some(stand.rig.spawn_clocked(&program, &config).unwrap());
        stand.pass(5.0);
        assert_eq!(stand.terminate(), Some(1), "{what}: {}", stand.said());
        assert!(
            stand
                .said()
                .contains("They undo nothing until the node boots"),
            "{what}: {}",
            stand.said()
        );
        assert_eq!(stand.held()[0], lowered, "{what}: {}", stand.said());
        returns(&mut stand);
        assert_eq!(stand.held()[0], lowered, "{what}: {}", stand.said());
        assert_eq!(stand.journaled(), [""; 0], "{what}");
    }
}

/// What litd sets later under the same journal is undone as ever.
#[test]
fn what_is_lowered_after_an_undo_that_could_not_be_crossed_out_is_undone() {
    if !can_mount() {
        return;
    }
    for by_a_start in [false, true] {
        let mut stand = crashed();
        let program = within(&stand, READ_ONLY);
        let (code, said) = restore(&program, &stand.rig.layout().config());
        assert_eq!(code, Some(1), "{said}");
        stand.start();
        let mut job = stand.train();
        stand.play_into_steering(&mut job);
        drop(job);
        stand.kill();
        assert!(!stand.is_back());
        match by_a_start {
            true => {
                stand.start();
                stand.pass(6.0);
                assert!(stand.is_back(), "{:?}", stand.held());
                stand.stop();
            }
            false => {
                let said = stand.restore_after_kill();
                stand.assert_clean_but_for_late(&said);
            }
        }
    }
}

/// Where nothing says that it is undone, whoever runs `litd restore` is told what the next one will do.
#[test]
fn what_can_be_noted_nowhere_is_told() {
    if !can_mount() {
        return;
    }
    let stand = crashed();
    let config = stand.rig.layout().config();
    let program = within(&stand, &format!("{READ_ONLY} && {NOR_NOTES}"));
    let (code, said) = restore(&program, &config);
    assert!(stand.is_back(), "{:?}: {said}", stand.held());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("Nor could it be noted in"), "{said}");
    assert!(!said.contains("They undo nothing"), "{said}");
}

/// The state directory is gone and can't be made, and then `/run/litd/devices` is emptied: whoever comes after a crash
/// is told that a journal is missing.
#[test]
fn a_journal_that_can_not_be_written_is_missed_after_the_locks_directory_was_emptied() {
    let mut stand = Stand::clocked(&(quick("observe") + "caps.budget = 4000\n"));
    stand.pass(5.0);
    assert!(!stand.is_back());
    let (state, locks) = (stand.rig.layout().state(), stand.rig.layout().locks());
    fs::rename(&state, state.with_extension("away")).unwrap();
    std::os::unix::fs::symlink("/nonexistent/litd", &state).unwrap();
    stand.pass(3.0);
    assert!(stand.has_event(
        EventKind::Fault,
        "litd changes no cap except to restore one"
    ));
    fs::remove_dir_all(&locks).unwrap();
    stand.pass(3.0);
    stand.kill();
    fs::remove_file(&state).unwrap();
    let (code, said) = stand.restore();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("and is not there any more"), "{said}");
    // It is there again.
    fs::rename(state.with_extension("away"), &state).unwrap();
    let (code, said) = stand.restore();
    assert!(stand.is_back(), "{code:?} {said}");
}

/// A driver refuses the write of the cap found that `litd restore` asks for, and does it later, when the second one has
/// long succeeded: the entry stays, and `litd restore` says so.
#[test]
fn a_write_of_a_restore_that_may_still_be_done_keeps_its_entry() {
    const LATE: usize = 2;
    let mut stand = Stand::real(&quick("observe"));
    stand.rig.ledger().permit_found();
    stand.wait_for_found();
    let watts = Some(Watts(4000.0));
    stand.command(&Command::SetBudget { watts });
    wait_for("the budget", || stand.sum() <= Watts(4000.0));
    stand.kill();
    let before = stand.held()[LATE];
    stand.rig.hardware().inject(LATE, Fault::Postpone);
    let config = stand.rig.layout().config();
    let restoring = std::thread::spawn(move || restore(Path::new(LITD), &config));
    let refused = |stand: &Stand| {
        let entries = stand.rig.ledger().entries();
        let mut of_it = entries.iter().filter(|it| it.device == LATE);
        of_it.any(|it| it.asked != it.after)
    };
    wait_for("a write that fails", || refused(&stand));
    assert_eq!(stand.held()[LATE], before);
    stand.rig.hardware().heal(LATE);
    let (code, said) = restoring.join().unwrap();
    assert!(stand.is_back(), "{:?}: {said}", stand.held());
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("may still take effect"), "{said}");
    assert_eq!(stand.journaled().len(), 1, "{said}");
}
