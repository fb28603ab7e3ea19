//! What the state directory holds after writes, failures, and what others do to its files.

use std::os::unix::fs::PermissionsExt;

use litd_core::journal::{Found, Journal, read};
use litd_units::Watts;

use super::*;

fn store_in(directory: &Path) -> FileStore {
    let audit = AuditFiles::new(&directory.join("audit"), "", 1000, 2);
    FileStore::new(directory, audit)
}

/// The journal of a litd that is about to write two CPU sockets.
fn journal_of_two(directory: &Path) -> (FileStore, Journal) {
    let mut store = store_in(directory);
    let (mut journal, _) = Journal::open(&mut store, "boot").unwrap();
    let found = ["cpu0", "cpu1"].map(|address| Found {
        address: address.to_owned(),
        serial: None,
        cap: Watts(400.0),
    });
    journal.begin_all(&mut store, &found).unwrap();
    (store, journal)
}

/// The journal's file after its heading.
fn named_in(store: &mut FileStore) -> Vec<u8> {
    let bytes = store.load_journal().unwrap();
    let heading = bytes.iter().position(|&byte| byte == b'\n').unwrap();
    let id = litd_core::journal::id(&bytes[..heading]);
    assert_eq!(id.as_deref(), store.journal_id());
    bytes[heading + 1..].to_vec()
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_second_daemon_is_told_who_holds_the_lock() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("a/b");
    let first = Lock::take(&state).unwrap();
    let refused = Lock::take(&state).unwrap_err().to_string();
    let pid = std::process::id();
    assert!(
        refused.ends_with(&format!("litd runs already, as process {pid}")),
        "{refused}"
    );
    // A dead daemon's note does not name the present holder.
    fs::write(state.join(LOCK), format!("{pid} 1\n")).unwrap();
    let refused = Lock::take(&state).unwrap_err().to_string();
    assert!(refused.ends_with("as process ?"), "{refused}");
    drop(first);
    Lock::take(&state).unwrap();
}

#[test]
fn a_longer_pid_of_a_predecessor_leaves_no_digits() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join(LOCK), "123456789012\n").unwrap();
    let _lock = Lock::take(directory.path()).unwrap();
    let written = fs::read_to_string(directory.path().join(LOCK)).unwrap();
    let started = born("self").unwrap();
    assert_eq!(written, format!("{} {started}\n", std::process::id()));
}

#[test]
fn nothing_is_there_at_first_and_what_is_written_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = store_in(directory.path());
    assert_eq!(store.load_journal().unwrap(), b"");
    assert_eq!(store.load_learned().unwrap(), b"");
    store.append_journal(b"one").unwrap();
    store.append_journal(b"two").unwrap();
    store.replace_learned(b"caps").unwrap();
    assert_eq!(named_in(&mut store), b"onetwo");
    // Appends after a replacement go to the new file.
    store.replace_journal(b"new").unwrap();
    store.append_journal(b"er").unwrap();
    let mut next = store_in(directory.path());
    assert_eq!(named_in(&mut next), b"newer");
    next.append_journal(b"!").unwrap();
    assert_eq!(named_in(&mut next), b"newer!");
    assert_eq!(next.load_learned().unwrap(), b"caps");
    assert_eq!(names(directory.path()), [JOURNAL, LEARNED]);
}

#[test]
fn a_half_written_replacement_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = store_in(directory.path());
    store.replace_journal(b"old").unwrap();
    // A crash before the rename leaves this; longer than the next contents.
    fs::write(directory.path().join("journal.new"), b"half of something").unwrap();
    assert_eq!(named_in(&mut store), b"old");
    store.replace_journal(b"new").unwrap();
    assert_eq!(named_in(&mut store), b"new");
    assert_eq!(names(directory.path()), [JOURNAL]);
}

#[test]
fn a_failed_replacement_leaves_the_old_journal_and_its_end_open() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = store_in(directory.path());
    store.append_journal(b"old").unwrap();
    fs::create_dir(directory.path().join("journal.new")).unwrap();
    store.replace_journal(b"new").unwrap_err();
    store.append_journal(b"er").unwrap();
    assert_eq!(named_in(&mut store), b"older");
}

#[test]
fn a_journal_that_could_not_be_rewritten_ends_before_nobody_can_read_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = store_in(directory.path());
    store.replace_journal(b"begun").unwrap();
    let much = vec![b'x'; 1 << 20];
    let appended = (0..20).take_while(|_| store.append_journal(&much).is_ok());
    assert_eq!(appended.count(), 7);
    let why = store.append_journal(&much).unwrap_err().to_string();
    assert!(why.contains("df -i"), "{why}");
    // The file is read, and shorter records are still appended.
    store.append_journal(b"end").unwrap();
    assert!(named_in(&mut store).ends_with(b"xend"));
    store.replace_journal(b"anew").unwrap();
    store.append_journal(&much).unwrap();
}

#[test]
fn nothing_is_appended_to_what_is_in_the_journals_place() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 4] = [
        ("removed", |journal| fs::remove_file(journal).unwrap()),
        ("replaced", |journal| {
            fs::copy(journal, journal.with_extension("copy")).unwrap();
            fs::rename(journal.with_extension("copy"), journal).unwrap();
        }),
        ("emptied", |journal| fs::write(journal, "").unwrap()),
        ("its directory is another one", |journal| {
            let state = journal.parent().unwrap();
            fs::rename(state, state.with_extension("old")).unwrap();
            fs::create_dir(state).unwrap();
        }),
    ];
    for (what, change) in changes {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        fs::create_dir(&state).unwrap();
        let mut first = store_in(&state);
        first.replace_journal(b"a").unwrap();
        // Also right after a start.
        let mut next = store_in(&state);
        next.load_journal().unwrap();
        change(&journal(&state));
        let there = fs::read(journal(&state)).ok();
        for mut store in [first, next] {
            for _ in 0..2 {
                let refused = store.append_journal(b"b").unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::NotFound, "{what}");
                assert_eq!(fs::read(journal(&state)).ok(), there, "{what}");
            }
        }
        let mut store = store_in(&state);
        store.replace_journal(b"ab").unwrap();
        store.append_journal(b"c").unwrap();
        assert_eq!(named_in(&mut store), b"abc", "{what}");
    }
}

#[test]
fn a_device_that_is_released_after_the_journal_was_removed_leaves_the_others_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, mut journal) = journal_of_two(directory.path());
    fs::remove_file(directory.path().join(JOURNAL)).unwrap();
    let write = [("cpu0", Watts(300.0))];
    journal.intend(&mut store, &write).unwrap_err();
    journal.released(&mut store, "cpu0").unwrap();
    let left = read(&load_journal(directory.path()).unwrap()).unwrap();
    let left = left.map_or_else(Vec::new, |it| it.entries);
    assert_eq!(left, journal.entries());
    assert_eq!(left.len(), 1);
}

#[test]
fn what_another_litd_has_had_since_is_left_out_of_the_journal_and_removed_once_it_can_be_written() {
    use litd_core::journal::Lock;
    let root = tempfile::tempdir().unwrap();
    let (state, other) = (root.path().join("state"), root.path().join("other"));
    fs::create_dir(&state).unwrap();
    let links = root.path().join("devices");
    let (mut store, mut journal) = journal_of_two(&state);
    for gpu in ["a", "b"] {
        journal.lock_clocks(&mut store, gpu).unwrap();
        journal.lock_became(&mut store, gpu, Lock::Done).unwrap();
    }
    // A litd with another state directory has had two of these since, whose links are gone again.
    let locks = DeviceLocks::take(&links, &other, ["cpu1", "b"].into_iter()).unwrap();
    locks.has_them_now(&other).unwrap();
    let names = |journal: &Journal| -> Vec<String> {
        let entries = journal.entries().iter().map(|it| it.address.clone());
        let clocks = journal.clocks().iter().map(|it| it.address.clone());
        entries.chain(clocks).collect()
    };
    let open = || {
        let mut store = store_in(&state).by_links(links.clone());
        let (journal, recovered) = Journal::open(&mut store, "boot").unwrap();
        let recovered = recovered.unwrap().addresses().into_iter();
        assert_eq!(recovered.collect::<Vec<_>>(), ["a", "cpu0"]);
        assert_eq!(names(&journal), ["cpu0", "a"]);
        (store, journal)
    };
    let in_file = || {
        let read = read(&load_journal(&state).unwrap()).unwrap().unwrap();
        read.addresses().into_iter().collect::<Vec<_>>()
    };
    // It can be appended to, and not be replaced.
    let obstacle = state.join("journal.new");
    fs::create_dir(&obstacle).unwrap();
    let before = fs::read(state.join(JOURNAL)).unwrap();
    let (mut store, mut journal) = open();
    journal.drop_superseded(&mut store).unwrap();
    assert_eq!(in_file(), ["a", "cpu0"]);
    // As it was before, and the next write comes first.
    fs::write(state.join(JOURNAL), before).unwrap();
    let (mut store, mut journal) = open();
    journal
        .intend(&mut store, &[("cpu0", Watts(300.0))])
        .unwrap_err();
    assert_eq!(in_file(), ["a", "b", "cpu0", "cpu1"]);
    fs::remove_dir(&obstacle).unwrap();
    journal
        .intend(&mut store, &[("cpu0", Watts(300.0))])
        .unwrap();
    assert_eq!(in_file(), ["a", "cpu0"]);
    drop(locks);
}

/// The devices that the journal in a state directory makes a litd undo.
fn owed_in(state: &Path, links: &Path) -> Vec<String> {
    let mut store = store_in(state).by_links(links.to_owned());
    let (_, recovered) = Journal::open(&mut store, "boot").unwrap();
    let addresses = recovered.map(|it| it.addresses());
    addresses.into_iter().flatten().collect()
}

/// A journal can't be replaced, cpu0 is undone, and then the journal names it again. Whoever dies between, the undo of
/// before does not count any more, and that of later does.
#[test]
fn of_what_is_undone_either_a_note_counts_or_what_the_journal_says_of_it_later() {
    for has_locks in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let (state, links) = (root.path().join("state"), root.path().join("devices"));
        fs::create_dir(&state).unwrap();
        drop(journal_of_two(&state));
        let locks = DeviceLocks::take(&links, &state, ["cpu0", "cpu1"].into_iter()).unwrap();
        let locks = Rc::new(locks);
        locks
            .remember(&state, journal_id(&state).as_deref())
            .unwrap();
        let store = || match has_locks {
            true => store_in(&state).of(locks.clone()),
            false => store_in(&state).by_links(links.clone()),
        };
        let obstacle = state.join("journal.new");
        fs::create_dir(&obstacle).unwrap();
        let before = journal_id(&state).unwrap();
        let mut first = store();
        Journal::open(&mut first, "boot").unwrap();
        assert_eq!(owed_in(&state, &links), ["cpu0", "cpu1"]);
        first.outdate("cpu0").unwrap();
        assert!(first.is_outdated("cpu0") && !first.is_outdated("cpu1"));
        assert_eq!(owed_in(&state, &links), ["cpu1"]);
        let named = || read(&load_journal(&state).unwrap()).unwrap().unwrap();
        assert_eq!(named().addresses().len(), 2);
        let found = [Found {
            address: "cpu0".to_owned(),
            serial: None,
            cap: Watts(390.0),
        }];
        let mut next = store();
        let (mut journal, _) = Journal::open(&mut next, "boot").unwrap();
        for _ in 0..2 {
            // It dies before it has replaced the journal: links may have lost their ids by then.
            journal.begin_all(&mut next, &found).unwrap_err();
            assert_eq!(owed_in(&state, &links), ["cpu1"]);
        }
        fs::remove_dir(&obstacle).unwrap();
        journal.begin_all(&mut next, &found).unwrap();
        assert_eq!(owed_in(&state, &links), ["cpu0", "cpu1"]);
        assert_ne!(journal_id(&state).unwrap(), before);
        assert!(undone::noted(&links, &before).is_empty());
        // As if it had died before it could remove the note.
        undone::note(&links, "cpu0", &before).unwrap();
        assert_eq!(owed_in(&state, &links), ["cpu0", "cpu1"]);
        assert_eq!(named().entries[1].found, Watts(390.0));
        // No link says that another journal ought to be there.
        let ids = locks::remembered(&links).unwrap().into_iter();
        let ids: Vec<_> = ids.filter_map(|it| it.id).collect();
        assert!(
            ids.iter().all(|id| *id == journal_id(&state).unwrap()),
            "{ids:?}"
        );
    }
}

/// What was undone leaves the journal by a record at its end, and the note stays: the next records of the same device
/// are in a journal with another id all the same.
#[test]
fn a_note_of_what_has_left_the_journal_is_not_about_what_comes_into_it() {
    use litd_core::journal::Lock;
    for is_opened_anew in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let (state, links) = (root.path().join("state"), root.path().join("devices"));
        fs::create_dir(&state).unwrap();
        drop(journal_of_two(&state));
        let open = || {
            let mut store = store_in(&state).by_links(links.clone());
            let (journal, _) = Journal::open(&mut store, "boot").unwrap();
            (store, journal)
        };
        open().0.outdate("cpu0").unwrap();
        let obstacle = state.join("journal.new");
        fs::create_dir(&obstacle).unwrap();
        let (mut store, mut journal) = open();
        journal.drop_superseded(&mut store).unwrap();
        fs::remove_dir(&obstacle).unwrap();
        if is_opened_anew {
            (store, journal) = open();
        }
        journal.lock_clocks(&mut store, "cpu0").unwrap();
        journal.lock_became(&mut store, "cpu0", Lock::Done).unwrap();
        assert_eq!(owed_in(&state, &links), ["cpu0", "cpu1"]);
    }
}

#[test]
fn a_journal_has_another_id_after_it_has_named_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    fs::create_dir(&state).unwrap();
    let locks = directory.path().join("devices");
    let held = DeviceLocks::take(&locks, &state, ["cpu0"].into_iter()).unwrap();
    let held = Rc::new(held);
    let remembered = || held.remembered().pop().map(|it| it.id.unwrap());
    let is_there = |id: &str| {
        let bytes = load_journal(&state).unwrap();
        litd_core::journal::may_have_id(&bytes, id)
    };
    let mut store = store_in(&state).of(held.clone());
    store.replace_journal(b"a").unwrap();
    let first = remembered().unwrap();
    store.replace_journal(b"b").unwrap();
    store.append_journal(b"c").unwrap();
    assert_eq!(remembered().unwrap(), first);
    store.replace_journal(b"").unwrap();
    assert_eq!(remembered(), None);
    // As if it had died before the link was removed: this is still the journal that is remembered.
    held.remember(&state, store.journal_id()).unwrap();
    assert!(is_there(&first));
    let mut store = store_in(&state).of(held.clone());
    assert_eq!(named_in(&mut store), b"");
    store.append_journal(b"d").unwrap();
    let second = remembered().unwrap();
    assert_ne!(second, first);
    assert!(is_there(&second) && !is_there(&first));
}

#[test]
fn what_is_appended_after_a_replacement_that_could_not_be_synced_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = store_in(directory.path());
    store.append_journal(b"old").unwrap();
    // The new file is synced and renamed, and its directory is not synced.
    store.syncer = Syncer::that_ends_after(1);
    let replaced = store.replace_journal(b"new");
    assert!(replaced.unwrap_err().to_string().contains("has ended"));
    store.append_journal(b"er").unwrap();
    let bytes = std::fs::read(directory.path().join(JOURNAL)).unwrap();
    assert!(bytes.ends_with(b"\nnewer"), "{bytes:?}");
}

#[test]
fn a_journal_that_is_damaged_once_more_is_added_to_the_copy_that_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path();
    assert!(keep_damaged(state));
    for damaged in ["one\n\n", "one\n\n", "two\n\n"] {
        fs::write(journal(state), damaged).unwrap();
        assert!(keep_damaged(state));
    }
    let copy = copy_of_damaged(state).unwrap();
    assert_eq!(fs::read_to_string(&copy).unwrap(), "one\n\ntwo\n\n");
    fs::create_dir(state.join("journal.damaged.new")).unwrap();
    assert!(keep_damaged(state), "there is nothing new to copy");
    fs::write(journal(state), "three\n\n").unwrap();
    assert!(!keep_damaged(state));
}

#[test]
fn others_can_read_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let _lock = Lock::take(&state).unwrap();
    let mut store = store_in(&state);
    store.append_journal(b"x").unwrap();
    store.replace_learned(b"x").unwrap();
    for path in [
        state.clone(),
        state.join(JOURNAL),
        state.join(LEARNED),
        state.join(LOCK),
    ] {
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
    }
}

#[test]
fn the_kernel_tells_its_boot_id() {
    assert_eq!(boot_id().unwrap().len(), 36);
}
