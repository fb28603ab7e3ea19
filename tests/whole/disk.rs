//! The disk under the journal is full.

use std::fs;
use std::path::Path;
use std::process::Command;

use litd_api::{EventKind, JobState};
use litd_units::Watts;

use crate::stand::{GPUS, LITD, Stand, quick};

#[test]
fn no_cap_is_written_that_the_journal_can_not_know_of() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    // Nothing can be put in place of the journal: what it is written to first can't be made.
    let obstacle = stand.rig.layout().state().join("journal.new");
    fs::create_dir(&obstacle).unwrap();
    let mut job = stand.train();
    stand.play(&mut job, 40);
    assert!(stand.rig.ledger().is_empty(), "{:?}", stand.held());
    assert!(stand.counted("journal") > 0);
    assert!(stand.has_event(
        EventKind::Fault,
        "litd changes no cap except to restore one"
    ));
    // Once there is room it goes on by itself.
    fs::remove_dir(&obstacle).unwrap();
    stand.play_into_steering(&mut job);
    assert!(stand.has_event(EventKind::Fault, "the undo journal can be written again"));
    stand.stop();
}

/// Limits how long files may be that the daemon writes; 0 is as good as a full disk.
fn limit_files(stand: &Stand, limit: &str) {
    let pid = stand.daemon().pid().to_string();
    let limit = format!("--fsize={limit}:unlimited");
    let status = Command::new("prlimit")
        .args(["--pid", &pid, &limit])
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn on_a_disk_that_fills_up_steering_ends_and_undoing_does_not() {
    if Command::new("prlimit").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no prlimit to fill a disk with");
        return;
    }
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);

    limit_files(&stand, "0");
    let from = stand.rig.ledger().len();
    stand.play(&mut job, 40);
    let found = stand.rig.ledger().found();
    let later = stand.rig.ledger().entries().split_off(from);
    let all_undo = later.iter().all(|entry| entry.asked == found[entry.device]);
    assert!(all_undo, "{later:?}");
    assert!(stand.counted("journal") > 0);
    assert_ne!(stand.held(), found);
    assert_eq!(stand.not_ours(), []);

    // Room again: it goes on. Then the disk is full at the end: caps go back, and the next start
    // or `litd restore` finds nothing wrong.
    limit_files(&stand, "unlimited");
    stand.play_until(&mut job, "steering", |stand| {
        stand.has_event(EventKind::Fault, "the undo journal can be written again")
    });
    assert_ne!(stand.job_status("train").state, JobState::Stale);
    limit_files(&stand, "0");
    stand.terminate();
    assert!(stand.is_back(), "{:?}", stand.held());
    stand.assert_rules();
    stand.start();
    stand.pass(3.0);
    stand.stop();
}

#[test]
fn half_a_line_at_the_journals_end_costs_nothing() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    stand.daemon.take().unwrap().kill();
    // It died while it wrote down what it was about to write.
    let path = stand.rig.layout().state().join("journal");
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes
        .split(|&byte| byte == b'\n')
        .rfind(|line| !line.is_empty());
    let half = last.unwrap()[..20].to_vec();
    bytes.extend(half);
    fs::write(&path, bytes).unwrap();
    stand.start();
    stand.pass(3.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    assert!(!stand.has_event(EventKind::Fault, "the undo journal was damaged"));
    stand.stop();
    assert!(!path.with_extension("damaged").exists());
}

#[test]
fn a_journal_that_is_removed_while_caps_are_moved_is_written_anew() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    stand.pass(3.0);
    let state = stand.rig.layout().state();
    // As it was before there was anything to undo.
    let copy = state.with_extension("copy");
    fs::create_dir(&copy).unwrap();
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    fs::remove_file(state.join("journal")).unwrap();
    stand.play(&mut job, 60);
    assert!(
        stand.has_event(EventKind::Fault, "litd has written a new one"),
        "{}",
        stand.said()
    );
    fs::rename(&state, state.with_extension("moved")).unwrap();
    fs::rename(&copy, &state).unwrap();
    stand.command(&litd_api::Command::SetBudget {
        watts: Some(Watts(4800.0)),
    });
    stand.play(&mut job, 60);
    stand.kill();
    assert!(!stand.is_back());
    let said = stand.restore_after_kill();
    assert!(stand.is_back(), "{said}: {:?}", stand.held());
}

/// What administrators have set outlives a crash, also where somebody has removed or changed the file that keeps it.
#[test]
fn a_condition_that_is_removed_is_there_again_within_seconds() {
    let mut stand = Stand::clocked(&quick("observe"));
    stand.pass(5.0);
    let watts = Some(Watts(4400.0));
    stand.command(&litd_api::Command::SetBudget { watts });
    let state = stand.rig.layout().state();
    let kept = fs::read(state.join("condition")).unwrap();
    type Change = fn(&Path);
    let changes: [(&str, Change); 3] = [
        ("removed", |condition| fs::remove_file(condition).unwrap()),
        ("emptied", |condition| fs::write(condition, "").unwrap()),
        ("its directory is away", |condition| {
            let state = condition.parent().unwrap();
            fs::rename(state, state.with_extension("away")).unwrap();
        }),
    ];
    for (count, (what, change)) in (1..).zip(changes) {
        change(&state.join("condition"));
        stand.pass(2.0);
        let length = fs::read(state.join("condition")).map_or(0, |it| it.len());
        assert!(length + 64 > kept.len(), "{what}: {}", stand.said());
        let told = stand.events(EventKind::Fault);
        let told = told.iter().filter(|it| it.contains("node's condition"));
        assert_eq!(told.count(), count, "{what}: {}", stand.said());
    }
    stand.kill();
    stand.start();
    stand.pass(5.0);
    assert!(stand.sum() <= Watts(4400.0), "{:?}", stand.held());
}

/// A node that has converged writes no cap for hours: who removes the journal then is found out all the same.
#[test]
fn a_journal_that_is_removed_while_caps_are_steady_is_there_again_within_seconds() {
    let mut stand = Stand::clocked(&(quick("observe") + "caps.budget = 4400\n"));
    stand.pass(5.0);
    let state = stand.rig.layout().state();
    let writes = stand.rig.ledger().len();
    assert_eq!(stand.journaled().len(), GPUS);
    type Change = fn(&Path);
    let changes: [(&str, Change); 5] = [
        ("removed", |journal| fs::remove_file(journal).unwrap()),
        ("emptied", |journal| fs::write(journal, "").unwrap()),
        ("replaced by one that names nothing", |journal| {
            let copy = journal.with_extension("copy");
            fs::write(&copy, "").unwrap();
            fs::rename(copy, journal).unwrap();
        }),
        ("its directory is another one", |journal| {
            let state = journal.parent().unwrap();
            fs::rename(state, state.with_extension("moved")).unwrap();
            fs::create_dir(state).unwrap();
        }),
        ("its directory is away", |journal| {
            let state = journal.parent().unwrap();
            fs::rename(state, state.with_extension("away")).unwrap();
        }),
    ];
    for (count, (what, change)) in (1..).zip(changes) {
        change(&state.join("journal"));
        stand.pass(2.0);
        assert_eq!(stand.journaled().len(), GPUS, "{what}: {}", stand.said());
        let told = stand.events(EventKind::Fault);
        let told = told
            .iter()
            .filter(|it| it.contains("litd has written a new one"));
        assert_eq!(told.count(), count, "{what}: {}", stand.said());
    }
    // Nothing can be put in its place: that is told once, and it is written once it can be.
    fs::remove_file(state.join("journal")).unwrap();
    fs::create_dir(state.join("journal.new")).unwrap();
    stand.pass(5.0);
    assert!(stand.has_event(
        EventKind::Fault,
        "litd changes no cap except to restore one"
    ));
    fs::remove_dir(state.join("journal.new")).unwrap();
    stand.pass(2.0);
    assert!(stand.has_event(EventKind::Fault, "the undo journal can be written again"));
    assert_eq!(stand.rig.ledger().len(), writes);
    stand.kill();
    assert!(!stand.is_back());
    let said = stand.restore_after_kill();
    stand.assert_clean_but_for_late(&said);
}

/// Files may not be long where a shell or a unit says so: caps go back all the same.
#[test]
fn where_no_file_may_be_written_to_restore_gives_back_and_says_what_it_could_not_cross_out() {
    let mut stand = Stand::clocked(&(quick("observe") + "caps.budget = 4400\n"));
    stand.pass(5.0);
    stand.kill();
    assert!(!stand.is_back());
    let config = stand.rig.layout().config();
    let restored = Command::new("sh")
        .args([
            "-c",
            "ulimit -f 0 && exec \"$0\" restore --config \"$1\"",
            LITD,
        ])
        .arg(config)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&restored.stderr);
    assert!(stand.is_back(), "{:?}: {said}", stand.held());
    assert_eq!(restored.status.code(), Some(1), "{said}");
    assert!(said.contains("could not be removed from"), "{said}");
    let (code, said) = stand.restore();
    assert_eq!(code, Some(0), "{said}");
    stand.assert_clean();
}
