//! How long the undo journal's file gets: it is rewritten with what still matters.

use litd_core::journal::{Journal, Late, Undo, read};
use litd_units::{Nanos, Watts};

use crate::journal::{Disk, Health, NAMES, open};

/// A journal of all four devices, which were found at 700 W.
fn begun() -> (Disk, Journal) {
    let mut disk = Disk::default();
    let (mut journal, _) = open(&mut disk);
    for name in NAMES {
        journal.begin(&mut disk, name, None, Watts(700.0)).unwrap();
    }
    (disk, journal)
}

/// Adjusts all four devices so many times; the length of the file after each.
fn adjust_often(disk: &mut Disk, journal: &mut Journal, times: u32) -> Vec<usize> {
    let mut lengths = Vec::new();
    for round in 0..times {
        let cap = Watts(300.0 + f64::from(round % 4001) / 10.0);
        let writes = NAMES.map(|name| (name, cap));
        journal.intend(disk, &writes).unwrap();
        for name in NAMES {
            assert!(journal.confirmed(name, cap));
        }
        lengths.push(disk.journal.len());
        disk.steps.clear();
    }
    lengths
}

#[test]
fn a_file_that_grows_because_it_can_t_be_rewritten_is_told_of_now_and_then() {
    let (mut disk, mut journal) = begun();
    let told = |disk: &mut Disk, journal: &mut Journal| {
        let told = (0..1000).filter(|_| {
            adjust_often(disk, journal, 1);
            journal.takes_growth().is_some()
        });
        told.count()
    };
    assert_eq!(told(&mut disk, &mut journal), 0);
    disk.health = Health::NoReplace;
    let times = told(&mut disk, &mut journal);
    assert!((1..5).contains(&times), "{times}");
    disk.health = Health::Good;
    assert_eq!(told(&mut disk, &mut journal), 0);
}

#[test]
fn ten_thousand_adjustments_keep_the_file_short() {
    let (mut disk, mut journal) = begun();
    let lengths = adjust_often(&mut disk, &mut journal, 10_000);
    let longest = lengths.iter().copied().max().unwrap();
    assert!(longest < 66 * 1024, "{longest} bytes");
    let rewritten = lengths.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!((10..200).contains(&rewritten), "{rewritten} times");
    let recovered = read(&disk.journal).unwrap().unwrap();
    let last = Watts(300.0 + f64::from(9_999 % 4001_u32) / 10.0);
    for entry in recovered.entries {
        assert_eq!(entry.undo(last), Undo::Write(Watts(700.0)));
    }
}

#[test]
fn writes_that_failed_long_ago_are_forgotten() {
    let (mut disk, mut journal) = begun();
    for second in 0..10_000 {
        let cap = Watts(200.0 + 0.01 * f64::from(second));
        journal.intend(&mut disk, &[(NAMES[0], cap)]).unwrap();
        let now = Nanos(i64::from(second) * 1_000_000_000);
        let late = Late {
            address: NAMES[0].to_owned(),
            cap,
            until: now + Nanos(30_000_000_000),
        };
        journal.expect(&mut disk, late, now).unwrap();
        assert!(journal.confirmed(NAMES[0], cap));
        disk.steps.clear();
    }
    assert_eq!(journal.late().len(), 30);
    assert!(disk.journal.len() < 66 * 1024, "{}", disk.journal.len());
}

#[test]
fn a_file_that_cannot_be_rewritten_is_appended_to() {
    let (mut disk, mut journal) = begun();
    disk.health = Health::NoReplace;
    let lengths = adjust_often(&mut disk, &mut journal, 500);
    assert!(lengths[499] > 66 * 1024);
    disk.health = Health::Good;
    let lengths = adjust_often(&mut disk, &mut journal, 500);
    assert!(lengths[499] < 66 * 1024, "rewritten once it could be");
}
