//! The undo journal on a disk that can be full, be cut at any byte and be left at any moment,
//! next to a model of the hardware that says what had to be undone.

use std::collections::BTreeMap;
use std::io;

use litd_core::journal::{Found, Journal, JournalError, Late, Lock, Recovered, Undo, read};
use litd_core::{Appended, MemoryStore, Store};
use litd_units::{Nanos, Watts};
use proptest::prelude::*;

const BOOT: &str = "5b6d1c1e-boot";
pub const NAMES: [&str; 4] = ["0000:05:00.0", "0000:26:00.0", "0000:46:00.0", "cpu0"];

/// How the disk behaves.
#[derive(Debug, Clone, Copy, Default)]
pub enum Health {
    #[default]
    Good,
    /// Full: so many bytes of an append get through, and nothing is replaced.
    Full(usize),
    /// Appends work; nothing is replaced.
    NoReplace,
    /// Does everything and says that it failed.
    Pessimist,
    /// Replaces, and says that it did not. Appends work.
    Liar,
}

/// Events, in order: the disk and the hardware as a crash would leave them.
#[derive(Debug, Clone)]
pub enum Step {
    Append(Vec<u8>),
    Replace(Vec<u8>),
    /// A device's cap changed; `home` is what litd has to put back, `None` if it was not litd.
    Hardware {
        device: usize,
        cap: Watts,
        home: Option<Watts>,
    },
}

#[derive(Debug, Default)]
pub struct Disk {
    pub journal: Vec<u8>,
    pub health: Health,
    pub steps: Vec<Step>,
}

impl Disk {
    fn holding(journal: &[u8]) -> Self {
        Self {
            journal: journal.to_vec(),
            ..Self::default()
        }
    }
}

fn full<T>() -> io::Result<T> {
    Err(io::ErrorKind::StorageFull.into())
}

impl Store for Disk {
    fn load_journal(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.journal.clone())
    }

    fn append_journal(&mut self, bytes: &[u8]) -> io::Result<()> {
        let through = match self.health {
            Health::Full(through) => through.min(bytes.len()),
            _ => bytes.len(),
        };
        self.journal.extend_from_slice(&bytes[..through]);
        self.steps.push(Step::Append(bytes[..through].to_vec()));
        match self.health {
            Health::Good | Health::NoReplace | Health::Liar => Ok(()),
            Health::Full(_) | Health::Pessimist => full(),
        }
    }

    fn replace_journal(&mut self, bytes: &[u8]) -> io::Result<()> {
        if matches!(self.health, Health::Full(_) | Health::NoReplace) {
            return full();
        }
        self.journal = bytes.to_vec();
        self.steps.push(Step::Replace(bytes.to_vec()));
        match self.health {
            Health::Pessimist | Health::Liar => full(),
            _ => Ok(()),
        }
    }

    fn load_learned(&mut self) -> io::Result<Vec<u8>> {
        full()
    }

    fn replace_learned(&mut self, _: &[u8]) -> io::Result<()> {
        full()
    }

    fn load_audit_tail(&mut self) -> io::Result<Vec<u8>> {
        full()
    }

    fn append_audit(&mut self, _: &[u8]) -> io::Result<Appended> {
        full()
    }

    fn load_condition(&mut self) -> io::Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn replace_condition(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// A device and who set it last.
#[derive(Debug, Clone, Copy)]
struct Held {
    cap: Watts,
    home: Option<Watts>,
}

fn start_caps() -> [Watts; 4] {
    // The second is one of the values that litd writes.
    [Watts(700.0), Watts(310.0), Watts(701.5), Watts(500.000001)]
}

/// Undoes what a disk says and compares with what the model knows.
fn assert_restored(disk: &[u8], hardware: &[Held; 4], when: &str) {
    let recovered = read(disk).unwrap();
    let entries = recovered.map_or_else(Vec::new, |it| it.entries);
    for (device, held) in hardware.iter().enumerate() {
        let entry = entries.iter().find(|it| it.address == NAMES[device]);
        let after = match entry.map(|it| it.undo(held.cap)) {
            Some(Undo::Write(found)) => found,
            Some(Undo::Nothing | Undo::Foreign) | None => held.cap,
        };
        let want = held.home.unwrap_or(held.cap);
        assert!(
            (after - want).abs() < Watts(0.5e-6),
            "{when}: {} held {held:?} and ends at {after}, journal:\n{}",
            NAMES[device],
            String::from_utf8_lossy(disk)
        );
    }
}

/// Crashes before, after and at every byte of every step.
fn crash_everywhere(steps: &[Step], garbage: &[u8]) {
    let mut hardware = start_caps().map(|cap| Held { cap, home: None });
    let mut disk = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Append(bytes) => {
                for byte in bytes {
                    disk.push(*byte);
                    assert_restored(&disk, &hardware, &format!("within step {number}"));
                }
            }
            Step::Replace(bytes) => disk.clone_from(bytes),
            Step::Hardware { device, cap, home } => {
                hardware[*device] = Held {
                    cap: *cap,
                    home: *home,
                };
            }
        }
        assert_restored(&disk, &hardware, &format!("after step {number}"));
        let with_garbage = [&disk, garbage].concat();
        assert_restored(&with_garbage, &hardware, &format!("garbage at {number}"));
    }
}

#[derive(Debug, Clone)]
enum Op {
    /// Begin with the devices of this mask.
    Begin(u8),
    /// Intend, write and read back (device, watts, whether the device obeys).
    Adjust(Vec<(usize, u32, bool)>),
    GiveBack(usize),
    /// A foreign change.
    Foreign(usize, u32),
    /// litd looks, and lets go of what is somebody else's.
    Look(usize),
    Disk(Health),
    /// The last append is cut, litd dies, and comes back; it undoes the devices of the mask
    /// before it goes on.
    Crash(usize, u8),
}

fn any_op() -> impl Strategy<Value = Op> {
    let writes = prop::collection::vec((0..4_usize, 0..8_u32, prop::bool::weighted(0.9)), 1..5);
    let health = prop_oneof![
        3 => Just(Health::Good),
        2 => (0..400_usize).prop_map(Health::Full),
        1 => Just(Health::NoReplace),
        1 => Just(Health::Pessimist),
        1 => Just(Health::Liar),
    ];
    prop_oneof![
        4 => (1..16_u8).prop_map(Op::Begin),
        8 => writes.prop_map(Op::Adjust),
        3 => (0..4_usize).prop_map(Op::GiveBack),
        2 => (0..4_usize, 0..4_u32).prop_map(|(device, cap)| Op::Foreign(device, cap)),
        2 => (0..4_usize).prop_map(Op::Look),
        2 => health.prop_map(Op::Disk),
        2 => (0..200_usize, 0..16_u8).prop_map(|(cut, mask)| Op::Crash(cut, mask)),
    ]
}

/// The daemon as far as the journal is concerned, and the hardware.
struct Daemon {
    disk: Disk,
    journal: Journal,
    caps: [Watts; 4],
    /// The caps to restore, by the test's own book-keeping.
    home: BTreeMap<usize, Watts>,
    limit: usize,
    boots: u32,
}

impl Daemon {
    fn new(limit: usize) -> Self {
        let mut disk = Disk::default();
        let (journal, recovered) = Journal::open(&mut disk, BOOT).unwrap();
        assert_eq!(recovered, None);
        Self {
            disk,
            journal: journal.rewritten_beyond(limit),
            caps: start_caps(),
            home: BTreeMap::new(),
            limit,
            boots: 0,
        }
    }

    fn set(&mut self, device: usize, cap: Watts, home: Option<Watts>) {
        self.caps[device] = cap;
        self.disk.steps.push(Step::Hardware { device, cap, home });
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Begin(mask) => self.begin(*mask),
            Op::Adjust(writes) => self.adjust(writes),
            Op::GiveBack(device) => self.give_back(*device),
            Op::Foreign(device, cap) => {
                // litd never writes such a cap.
                self.set(*device, Watts(401.0 + 2.0 * f64::from(*cap)), None);
            }
            Op::Look(device) => {
                let entry = self
                    .journal
                    .entries()
                    .iter()
                    .find(|it| it.address == NAMES[*device]);
                if entry.is_some_and(|it| it.undo(self.caps[*device]) == Undo::Foreign) {
                    self.release(*device);
                }
            }
            Op::Disk(health) => self.disk.health = *health,
            Op::Crash(cut, mask) => self.crash(*cut, *mask),
        }
    }

    fn begin(&mut self, mask: u8) {
        let chosen: Vec<usize> = (0..4).filter(|device| mask & (1 << device) != 0).collect();
        let found: Vec<Found> = chosen
            .iter()
            .map(|&device| Found {
                address: NAMES[device].to_owned(),
                serial: Some(format!("S{device}")),
                cap: self.caps[device],
            })
            .collect();
        if self.journal.begin_all(&mut self.disk, &found).is_ok() {
            for device in chosen {
                self.home.entry(device).or_insert(self.caps[device]);
            }
        }
    }

    fn adjust(&mut self, writes: &[(usize, u32, bool)]) {
        let cap = |step: u32| Watts(300.0 + 2.0 * f64::from(step));
        // A single operation per device at a time.
        let wanted: BTreeMap<usize, (Watts, bool)> = writes
            .iter()
            .filter(|(device, ..)| self.home.contains_key(device))
            .map(|&(device, step, obeys)| (device, (cap(step), obeys)))
            .collect();
        let intents: Vec<(&str, Watts)> = wanted
            .iter()
            .map(|(&device, &(cap, _))| (NAMES[device], cap))
            .collect();
        if self.journal.intend(&mut self.disk, &intents).is_err() {
            return;
        }
        for (device, (cap, obeys)) in wanted {
            if obeys {
                self.set(device, cap, Some(self.home[&device]));
            }
            self.journal.confirmed(NAMES[device], self.caps[device]);
        }
    }

    fn give_back(&mut self, device: usize) {
        if let Some(&home) = self.home.get(&device) {
            self.set(device, home, Some(home));
            self.release(device);
        }
    }

    fn release(&mut self, device: usize) {
        if self.journal.released(&mut self.disk, NAMES[device]).is_ok() {
            self.home.remove(&device);
        }
    }

    fn crash(&mut self, cut: usize, mask: u8) {
        if let Some(Step::Append(bytes)) = self.disk.steps.last_mut() {
            let lost = cut.min(bytes.len());
            bytes.truncate(bytes.len() - lost);
            let left = self.disk.journal.len() - lost;
            self.disk.journal.truncate(left);
        }
        self.boots += 1;
        let boot = format!("{BOOT}-{}", self.boots);
        let (journal, recovered) = Journal::open(&mut self.disk, &boot).unwrap();
        self.journal = journal.rewritten_beyond(self.limit);
        let entries = recovered.map_or_else(Vec::new, |it| it.entries);
        assert_eq!(entries, self.journal.entries());
        self.home
            .retain(|device, _| entries.iter().any(|it| it.address == NAMES[*device]));
        for (device, name) in NAMES.iter().enumerate() {
            let Some(entry) = entries.iter().find(|it| it.address == *name) else {
                continue;
            };
            // A begin that failed may be on disk: nothing was written then.
            self.home.entry(device).or_insert(entry.found);
            if mask & (1 << device) != 0 {
                if let Undo::Write(found) = entry.undo(self.caps[device]) {
                    self.set(device, found, Some(self.home[&device]));
                }
                self.release(device);
            }
        }
    }
}

/// A case dies at every byte of a history, which takes its time: this many are enough.
const MOST_CASES: u32 = 20_000;

fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig {
        failure_persistence: None,
        cases: usual.cases.min(MOST_CASES),
        ..usual
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn wherever_litd_dies_every_cap_of_its_goes_back_and_no_other(
        ops in prop::collection::vec(any_op(), 1..20),
        // Short files are rewritten often.
        limit in prop::sample::select(vec![0_usize, 400, 1500, 65536]),
        garbage in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let mut daemon = Daemon::new(limit);
        daemon.run(&Op::Begin(15));
        for op in &ops {
            daemon.run(op);
        }
        crash_everywhere(&daemon.disk.steps, &garbage);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let recovered = read(&bytes).unwrap();
        let entries = recovered.map_or_else(Vec::new, |it| it.entries);
        prop_assert_eq!(entries, vec![]);
    }
}

pub fn open(store: &mut impl Store) -> (Journal, Option<Recovered>) {
    Journal::open(store, BOOT).unwrap()
}

/// Three devices, the first two of them written.
fn used() -> (Disk, Journal) {
    let mut disk = Disk::default();
    let (mut journal, _) = open(&mut disk);
    let found = |device: usize| Found {
        address: NAMES[device].to_owned(),
        serial: Some(format!("S{device}")),
        cap: Watts(700.0 + device as f64),
    };
    journal
        .begin_all(&mut disk, &[found(0), found(1), found(2)])
        .unwrap();
    journal
        .intend(
            &mut disk,
            &[(NAMES[0], Watts(650.5)), (NAMES[1], Watts(710.0))],
        )
        .unwrap();
    (disk, journal)
}

#[test]
fn a_person_can_read_it() {
    let (disk, _) = used();
    let text = String::from_utf8(disk.journal).unwrap();
    let lines: Vec<&str> = text
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap().0)
        .collect();
    assert_eq!(
        [lines[0], lines[1], lines[4]],
        [
            r#"{"litd-journal":{"version":1,"boot":"5b6d1c1e-boot"}}"#,
            r#"{"device":{"address":"0000:05:00.0","serial":"S0","boot":"5b6d1c1e-boot","found_microwatts":700000000,"ours_microwatts":[]}}"#,
            r#"{"intent":{"address":"0000:05:00.0","microwatts":650500000}}"#,
        ]
    );
}

#[test]
fn one_write_begins_all_devices_and_an_intent_is_one_append() {
    let (disk, _) = used();
    assert!(matches!(
        disk.steps[..],
        [Step::Replace(_), Step::Append(_)]
    ));
}

#[test]
fn a_cap_is_undone_if_it_is_litds_and_only_then() {
    let (mut disk, _) = used();
    let (_, recovered) = open(&mut disk);
    let recovered = recovered.unwrap();
    assert_eq!(
        (recovered.boot_id.as_str(), recovered.damaged),
        (BOOT, None)
    );
    let first = &recovered.entries[0];
    assert_eq!(first.undo(Watts(700.000_000_4)), Undo::Nothing);
    assert_eq!(first.undo(Watts(650.499_999_6)), Undo::Write(Watts(700.0)));
    assert_eq!(first.undo(Watts(650.499_998)), Undo::Foreign);
    assert_eq!(first.undo(Watts(f64::NAN)), Undo::Foreign);
    assert_eq!(recovered.entries[2].undo(Watts(650.5)), Undo::Foreign);
}

#[test]
fn what_is_confirmed_takes_the_place_of_what_was_written_before() {
    let (mut disk, mut journal) = used();
    journal
        .intend(&mut disk, &[(NAMES[0], Watts(640.0))])
        .unwrap();
    assert_eq!(journal.entries()[0].ours, [Watts(650.5), Watts(640.0)]);

    assert!(
        !journal.confirmed(NAMES[0], Watts(600.0)),
        "somebody else's"
    );
    assert_eq!(journal.entries()[0].ours, [Watts(650.5), Watts(640.0)]);
    assert!(
        journal.confirmed(NAMES[0], Watts(650.5)),
        "it has ignored the write"
    );
    assert_eq!(journal.entries()[0].ours, [Watts(650.5), Watts(640.0)]);
    assert!(journal.confirmed(NAMES[0], Watts(640.0)));
    assert_eq!(journal.entries()[0].ours, [Watts(640.0)]);
    assert!(journal.confirmed(NAMES[2], Watts(702.0)), "as found");
    assert!(!journal.confirmed("0000:ff:00.0", Watts(640.0)));
}

/// As in the litd that runs: what it set hours ago, and somebody else has set since, is somebody else's.
#[test]
fn after_a_crash_only_the_last_confirmed_caps_and_those_after_them_are_litds() {
    let (mut disk, mut journal) = used();
    for cap in [640.0, 630.0, 620.0, 610.0].map(Watts) {
        journal.intend(&mut disk, &[(NAMES[0], cap)]).unwrap();
        assert!(journal.confirmed(NAMES[0], cap));
    }
    let ours = |disk: &Disk| {
        let recovered = read(&disk.journal).unwrap().unwrap();
        assert_eq!(recovered.damaged, None);
        assert_eq!(recovered.entries[0].address, NAMES[0]);
        recovered.entries[0].clone()
    };
    // The file does not know that the last one was done.
    assert_eq!(ours(&disk).ours, [Watts(620.0), Watts(610.0)]);
    assert_eq!(ours(&disk).undo(Watts(640.0)), Undo::Foreign);
    // One that failed may still be done late, whatever is confirmed after it.
    journal
        .intend(&mut disk, &[(NAMES[0], Watts(605.0))])
        .unwrap();
    let late = Late {
        address: NAMES[0].to_owned(),
        cap: Watts(605.0),
        until: Nanos(30_000_000_000),
    };
    journal.expect(&mut disk, late, Nanos(0)).unwrap();
    for cap in [590.0, 580.0].map(Watts) {
        journal.intend(&mut disk, &[(NAMES[0], cap)]).unwrap();
        assert!(journal.confirmed(NAMES[0], cap));
    }
    assert_eq!(ours(&disk).ours, [Watts(605.0), Watts(590.0), Watts(580.0)]);
    assert_eq!(read(&disk.journal).unwrap().unwrap().late.len(), 1);
}

#[test]
fn caps_found_first_are_kept_over_any_number_of_crashes() {
    let (mut disk, _) = used();
    for boot in ["second", "third"] {
        let (mut journal, _) = Journal::open(&mut disk, boot).unwrap();
        journal
            .begin(&mut disk, NAMES[0], Some("S0"), Watts(650.5))
            .unwrap();
        journal
            .intend(&mut disk, &[(NAMES[0], Watts(600.0))])
            .unwrap();
    }
    let recovered = read(&disk.journal).unwrap().unwrap();
    let first = &recovered.entries[0];
    assert_eq!(
        (first.found, first.boot_id.as_str()),
        (Watts(700.0), "third")
    );
    assert_eq!(first.undo(Watts(600.0)), Undo::Write(Watts(700.0)));
    assert_eq!(recovered.boot_id, "third");
    assert_eq!(recovered.entries[1].boot_id, BOOT, "not touched since");
}

#[test]
fn an_intent_after_a_restart_says_which_boot_it_is_of() {
    let (mut disk, _) = used();
    let (mut journal, _) = Journal::open(&mut disk, "second").unwrap();
    journal
        .intend(&mut disk, &[(NAMES[1], Watts(600.0))])
        .unwrap();
    let recovered = read(&disk.journal).unwrap().unwrap();
    let boots: Vec<&str> = recovered
        .entries
        .iter()
        .map(|it| it.boot_id.as_str())
        .collect();
    assert_eq!(boots, [BOOT, "second", BOOT]);
}

#[test]
fn another_part_at_the_same_address_has_a_cap_of_its_own() {
    let (mut disk, mut journal) = used();
    journal
        .begin(&mut disk, NAMES[0], Some("new"), Watts(500.0))
        .unwrap();
    let recovered = read(&disk.journal).unwrap().unwrap();
    assert_eq!(recovered.entries[0].found, Watts(500.0));
    assert_eq!(recovered.entries[0].undo(Watts(650.5)), Undo::Foreign);
}

#[test]
fn when_all_are_given_back_the_journal_is_empty() {
    let (mut disk, mut journal) = used();
    for name in &NAMES[..3] {
        assert!(!disk.journal.is_empty());
        journal.released(&mut disk, name).unwrap();
    }
    assert!(disk.journal.is_empty());
    assert_eq!(read(&disk.journal).unwrap(), None);
    assert!(journal.entries().is_empty());
    journal.released(&mut disk, NAMES[0]).unwrap();
}

#[test]
fn the_last_device_leaves_also_where_nothing_can_be_replaced() {
    let mut disk = Disk::default();
    let (mut journal, _) = open(&mut disk);
    journal
        .begin(&mut disk, NAMES[0], None, Watts(700.0))
        .unwrap();
    disk.health = Health::NoReplace;
    journal.released(&mut disk, NAMES[0]).unwrap();
    assert_eq!(read(&disk.journal).unwrap(), None);
}

#[test]
fn a_device_that_was_not_begun_and_a_cap_that_is_none_are_refused() {
    let (mut disk, mut journal) = used();
    let before = disk.journal.clone();
    let error = journal.intend(
        &mut disk,
        &[(NAMES[0], Watts(600.0)), (NAMES[3], Watts(9.0))],
    );
    assert!(matches!(error, Err(JournalError::Unknown { address }) if address == NAMES[3]));
    for no_cap in [f64::NAN, f64::INFINITY, -1.0] {
        let error = journal.intend(&mut disk, &[(NAMES[0], Watts(no_cap))]);
        assert!(matches!(error, Err(JournalError::Cap { .. })));
        let error = journal.begin(&mut disk, NAMES[3], None, Watts(no_cap));
        assert!(matches!(error, Err(JournalError::Cap { .. })));
    }
    assert_eq!(disk.journal, before);
}

#[test]
fn a_full_disk_refuses_intents_and_loses_nothing() {
    let (mut disk, mut journal) = used();
    let entries = journal.entries().to_vec();
    for through in [0, 1, 30, 68, 69, 70] {
        disk.health = Health::Full(through);
        let error = journal
            .intend(&mut disk, &[(NAMES[0], Watts(600.0))])
            .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("make room on its file system, or make it writable"),
            "{error}"
        );
        assert_eq!(journal.entries(), entries);
        assert!(
            journal
                .begin(&mut disk, NAMES[3], None, Watts(500.0))
                .is_err()
        );
        assert_eq!(journal.entries(), entries);
        let recovered = read(&disk.journal).unwrap().unwrap();
        let found: Vec<Watts> = recovered.entries.iter().map(|it| it.found).collect();
        assert_eq!(found, [Watts(700.0), Watts(701.0), Watts(702.0)]);
    }
}

#[test]
fn a_record_is_not_glued_to_half_a_record() {
    let (mut disk, mut journal) = used();
    for through in 0..80 {
        disk.health = Health::Full(through);
        assert!(
            journal
                .intend(&mut disk, &[(NAMES[0], Watts(600.0))])
                .is_err()
        );
        // Room for appends only.
        disk.health = Health::NoReplace;
        let cap = Watts(610.0 + through as f64);
        journal.intend(&mut disk, &[(NAMES[0], cap)]).unwrap();
        let recovered = read(&disk.journal).unwrap().unwrap();
        let undo = recovered.entries[0].undo(cap);
        assert_eq!(
            undo,
            Undo::Write(Watts(700.0)),
            "{through} bytes got through"
        );
    }
}

#[test]
fn a_release_that_may_or_may_not_be_on_disk_is_settled_before_the_next_write() {
    let (mut disk, mut journal) = used();
    disk.health = Health::Pessimist;
    assert!(journal.released(&mut disk, NAMES[0]).is_err());
    assert_eq!(journal.entries().len(), 3, "still in it");
    disk.health = Health::NoReplace;
    assert!(
        journal
            .intend(&mut disk, &[(NAMES[0], Watts(600.0))])
            .is_err()
    );
    journal.released(&mut disk, NAMES[2]).unwrap();
    let error = journal.intend(&mut disk, &[(NAMES[0], Watts(600.0))]);
    assert!(error.is_err(), "another append settles nothing");
    disk.health = Health::Good;
    journal
        .intend(&mut disk, &[(NAMES[0], Watts(600.0))])
        .unwrap();
    let recovered = read(&disk.journal).unwrap().unwrap();
    let first = recovered
        .entries
        .iter()
        .find(|it| it.address == NAMES[0])
        .unwrap();
    assert_eq!(first.undo(Watts(600.0)), Undo::Write(Watts(700.0)));
}

#[test]
fn after_damage_the_next_write_leaves_a_sound_file() {
    let (mut disk, _) = used();
    disk.journal.extend_from_slice(b"{\"intent\":{\"addr\0\0");
    let (mut journal, recovered) = open(&mut disk);
    let damaged = recovered.unwrap().damaged.unwrap();
    assert_eq!(
        damaged,
        "the last 18 bytes are no whole record and were left out"
    );
    journal
        .intend(&mut disk, &[(NAMES[2], Watts(600.0))])
        .unwrap();
    let recovered = read(&disk.journal).unwrap().unwrap();
    assert_eq!(recovered.damaged, None);
    assert_eq!(
        recovered.entries[0].undo(Watts(650.5)),
        Undo::Write(Watts(700.0))
    );
    assert_eq!(
        recovered.entries[2].undo(Watts(600.0)),
        Undo::Write(Watts(702.0))
    );
}

/// A full disk takes a part of a record, whose cap is not written then.
#[test]
fn a_record_that_is_only_begun_at_the_end_is_no_damage() {
    let (disk, _) = used();
    let last = lines_of(&disk.journal).pop().unwrap();
    for length in last.start..last.end - 1 {
        let cut = &disk.journal[..length];
        let (there, whole) = (
            read(cut).unwrap(),
            read(&disk.journal[..last.start]).unwrap(),
        );
        assert_eq!(there, whole, "{} bytes", length - last.start);
        assert_eq!(there.unwrap().damaged, None);
    }
}

/// Where each line begins and ends, its line break included.
fn lines_of(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut start = 0;
    let mut lines = Vec::new();
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        lines.push(start..start + line.len());
        start += line.len();
    }
    lines
}

#[test]
fn every_damaged_byte_is_reported_and_costs_its_own_line_only() {
    let (disk, _) = used();
    let lines = lines_of(&disk.journal);
    for at in 0..disk.journal.len() {
        for flip in [0x01, 0x20, 0x80] {
            let mut bytes = disk.journal.clone();
            bytes[at] ^= flip;
            let recovered = read(&bytes).unwrap().unwrap();
            // The last line break may become garbage after a whole record.
            assert!(recovered.damaged.is_some(), "byte {at} ^ {flip:#x}");
            for device in 0..3 {
                let line = &lines[device + 1];
                // A lost line break costs the next line as well.
                if (line.start.saturating_sub(1)..line.end).contains(&at) {
                    continue;
                }
                let entry = recovered
                    .entries
                    .iter()
                    .find(|it| it.address == NAMES[device]);
                assert_eq!(
                    entry.unwrap().found,
                    Watts(700.0 + device as f64),
                    "byte {at}"
                );
            }
        }
    }
}

#[test]
fn a_lost_found_cap_is_named() {
    let (disk, _) = used();
    let second = lines_of(&disk.journal)[1].clone();
    let mut bytes = disk.journal;
    bytes[second.start + 40] ^= 1;
    let recovered = read(&bytes).unwrap().unwrap();
    assert_eq!(
        recovered.damaged.unwrap(),
        "line 2 is unreadable and was left out; the cap found of 0000:05:00.0 is lost: if its present cap is wrong, \
         set it (`litctl caps set`)"
    );
}

#[test]
fn clocks_locked_after_a_replacement_that_was_made_and_not_admitted_are_known() {
    let mut disk = Disk::default();
    let (mut journal, _) = open(&mut disk);
    journal.lock_clocks(&mut disk, "0000:05:00.0").unwrap();
    // The file is empty afterwards, and litd has been told that it is not.
    disk.health = Health::Liar;
    journal.freed_clocks(&mut disk, "0000:05:00.0").unwrap();
    disk.health = Health::Good;
    journal.lock_clocks(&mut disk, "0000:15:00.0").unwrap();
    let (journal, _) = open(&mut disk);
    let clocks: Vec<&str> = journal.clocks().iter().map(|it| &*it.address).collect();
    assert_eq!(clocks, ["0000:15:00.0"]);
}

#[test]
fn what_was_said_of_a_lock_is_outdated_by_the_next_one() {
    let gpu = "0000:05:00.0";
    let mut disk = Disk::default();
    let (mut journal, _) = open(&mut disk);
    let said = |disk: &mut Disk| {
        let (journal, _) = open(disk);
        let locks: Vec<Lock> = journal.clocks().iter().map(|it| it.lock).collect();
        locks
    };
    // A device that the journal does not name has nothing to undo.
    journal
        .lock_became(&mut disk, gpu, Lock::Late(Nanos(3)))
        .unwrap();
    assert_eq!(said(&mut disk), []);
    journal.lock_clocks(&mut disk, gpu).unwrap();
    assert_eq!(said(&mut disk), [Lock::Asked]);
    for lock in [Lock::Done, Lock::Late(Nanos(5))] {
        journal.lock_became(&mut disk, gpu, lock).unwrap();
        assert_eq!(said(&mut disk), [lock]);
        journal.lock_clocks(&mut disk, gpu).unwrap();
        assert_eq!(said(&mut disk), [Lock::Asked]);
    }
    // Nor is anything written for one more.
    let written = disk.journal.len();
    journal.lock_clocks(&mut disk, gpu).unwrap();
    assert_eq!(disk.journal.len(), written);
    journal.lock_became(&mut disk, gpu, Lock::Done).unwrap();
    journal.freed_clocks(&mut disk, gpu).unwrap();
    assert_eq!(said(&mut disk), []);
}

#[test]
fn a_journal_of_a_later_version_is_refused_and_left_alone() {
    // The checksum is zlib's, so that other programs can make one.
    let line = br#"{"litd-journal":{"version":2,"boot":"b","more":[1]}} 46dbbf0f"#;
    let later = [&line[..], b"\n\x00\x01not lines\n"].concat();
    let mut disk = Disk::holding(&later);
    let error = Journal::open(&mut disk, BOOT).unwrap_err();
    assert!(matches!(error, JournalError::Version { found: 2 }));
    assert_eq!(
        error.to_string(),
        "the undo journal is of version 2, and this litd knows version 1 only: run `litd \
         restore` of the litd that wrote it, or remove the journal if all caps are right"
    );
    assert_eq!(disk.journal, later);
    assert!(disk.steps.is_empty());
}

#[test]
fn an_unreadable_disk_is_no_empty_journal() {
    struct Unreadable(MemoryStore);
    impl Store for Unreadable {
        fn load_journal(&mut self) -> io::Result<Vec<u8>> {
            Err(io::ErrorKind::PermissionDenied.into())
        }
        fn append_journal(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.0.append_journal(bytes)
        }
        fn replace_journal(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.0.replace_journal(bytes)
        }
        fn load_learned(&mut self) -> io::Result<Vec<u8>> {
            self.0.load_learned()
        }
        fn replace_learned(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.0.replace_learned(bytes)
        }
        fn load_audit_tail(&mut self) -> io::Result<Vec<u8>> {
            self.0.load_audit_tail()
        }
        fn append_audit(&mut self, bytes: &[u8]) -> io::Result<Appended> {
            self.0.append_audit(bytes)
        }

        fn load_condition(&mut self) -> io::Result<Vec<u8>> {
            Ok(Vec::new())
        }

        fn replace_condition(&mut self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
    }
    let opened = Journal::open(&mut Unreadable(MemoryStore::default()), BOOT);
    assert!(matches!(opened, Err(JournalError::Disk { .. })));
}
