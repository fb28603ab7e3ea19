//! The cells of the matrix that only whole daemons or kills can meet, and the tests that do. The table
//! of all cells is the histories' (`crates/core/tests/matrix/mod.rs`).

use std::fs;
use std::path::Path;

use cells::{Cell, Manner, Phase, Subject, Where, place};

#[allow(dead_code, reason = "histories count cells by their index")]
#[path = "../../crates/core/tests/matrix/mod.rs"]
mod cells;

use Manner::{Anothers, Changed, Error, Gone, Nonsense};
use Phase::{Discovery, Recovery, Restore};
use Subject::{Configuration, Lock};

/// A test, by its file beside this one and its name, and the cells that it meets.
type Covers = (
    &'static str,
    &'static str,
    &'static [(Subject, Manner, Phase)],
);

const COVERED: &[Covers] = &[
    (
        "operation.rs",
        "of_two_daemons_started_at_once_one_runs",
        &[(Lock, Gone, Discovery), (Lock, Anothers, Discovery)],
    ),
    (
        "lock.rs",
        "a_lock_file_full_of_nonsense_is_a_lock_file",
        &[
            (Lock, Nonsense, Discovery),
            (Lock, Nonsense, Recovery),
            (Lock, Nonsense, Restore),
        ],
    ),
    (
        "lock.rs",
        "a_lock_file_that_is_gone_is_made_anew",
        &[(Lock, Gone, Recovery), (Lock, Gone, Restore)],
    ),
    (
        "lock.rs",
        "restore_beside_a_daemon_is_refused",
        &[(Lock, Anothers, Restore)],
    ),
    (
        "directories.rs",
        "of_two_daemons_with_different_state_directories_the_second_is_refused",
        &[(Lock, Changed, Discovery)],
    ),
    (
        "directories.rs",
        "a_daemon_with_another_state_directory_starts_from_the_caps_found_first",
        &[(Lock, Changed, Recovery)],
    ),
    (
        "directories.rs",
        "restore_finds_the_journal_of_a_daemon_with_another_state_directory",
        &[(Lock, Changed, Restore)],
    ),
    (
        "restore.rs",
        "locks_that_can_not_be_taken_keep_from_steering_and_from_nothing_else",
        &[(Lock, Error, Discovery)],
    ),
    (
        "restore.rs",
        "a_daemon_on_a_read_only_state_directory_gives_back_and_observes",
        &[(Lock, Error, Recovery)],
    ),
    (
        "restore.rs",
        "restore_needs_a_journal_that_can_be_read_and_no_more",
        &[(Lock, Error, Restore)],
    ),
    (
        "kill.rs",
        "killed_at_any_moment_it_leaves_no_cap_wrong",
        &[(Lock, Anothers, Recovery)],
    ),
    (
        "lock.rs",
        "a_daemon_without_a_configuration_it_can_use_does_not_start",
        &[
            (Configuration, Error, Discovery),
            (Configuration, Nonsense, Discovery),
            (Configuration, Gone, Discovery),
            (Configuration, Error, Recovery),
            (Configuration, Nonsense, Recovery),
            (Configuration, Gone, Recovery),
        ],
    ),
    (
        "lock.rs",
        "restore_does_without_a_configuration_that_makes_sense",
        &[(Configuration, Nonsense, Restore)],
    ),
    (
        "lock.rs",
        "restore_says_that_there_is_no_configuration",
        &[
            (Configuration, Error, Restore),
            (Configuration, Gone, Restore),
        ],
    ),
    (
        "unjudged.rs",
        "litd_restore_writes_nothing_but_what_was_found",
        &[(Configuration, Anothers, Restore)],
    ),
    (
        "floors.rs",
        "a_file_whose_budget_is_below_all_floors_is_refused_as_by_hand",
        &[(Configuration, Anothers, Discovery)],
    ),
    (
        "lock.rs",
        "after_a_crash_another_nodes_configuration_does_not_keep_caps_from_going_back",
        &[(Configuration, Anothers, Recovery)],
    ),
];

/// Whether a file has a test of this name.
fn has_test(text: &str, name: &str) -> bool {
    let head = format!("fn {name}()");
    let Some((before, _)) = text.split_once(&head) else {
        return false;
    };
    before.trim_end().ends_with("#[test]")
}

#[test]
fn every_cell_that_histories_can_not_meet_is_met_by_a_test() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/whole");
    let missing = COVERED.iter().filter(|(file, name, _)| {
        let text = fs::read_to_string(tests.join(file)).unwrap_or_default();
        !has_test(&text, name)
    });
    let missing: Vec<&str> = missing.map(|(_, name, _)| *name).collect();
    assert_eq!(
        missing, [""; 0],
        "tests that the table names and that are not there"
    );

    let named = |(file, _, cells): &'static Covers| {
        let cells = cells.iter().map(|&(subject, manner, phase)| Cell {
            subject,
            manner,
            phase,
        });
        cells.map(|cell| (cell, file.starts_with("kill")))
    };
    let named: Vec<(Cell, bool)> = COVERED.iter().flat_map(named).collect();
    let by = |cell: Cell, kills: bool| named.contains(&(cell, kills));
    for cell in Cell::all() {
        match place(cell) {
            Where::Whole => assert!(by(cell, false), "{cell} is met by no test"),
            Where::Kills => assert!(by(cell, true), "{cell} is met by no kill"),
            Where::Histories | Where::Chance(_) => {}
            Where::Impossible(why) => {
                let met = by(cell, false) || by(cell, true);
                assert!(!met, "{cell} is met, and said to be impossible: {why}");
            }
        }
    }
}
