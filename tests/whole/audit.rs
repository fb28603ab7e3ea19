//! The audit log of a daemon, read as a person would who has nothing else.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use litd_api::audit::{Ending, Entry, Intent, Line, Outcome, Record};
use litd_api::{Command, EventKind};
use litd_units::Watts;

use crate::stand::{LITD, Stand, quick, quick_with_switch};

fn directory(stand: &Stand) -> PathBuf {
    stand.rig.layout().state().join("audit")
}

/// All records, oldest first.
fn records(stand: &Stand) -> Vec<Record> {
    let path = |name: String| directory(stand).join(name);
    let older = (1..20).rev().map(|age| path(format!("audit.jsonl.{age}")));
    let files = older.chain([path("audit.jsonl".to_owned())]);
    let mut records = Vec::new();
    for text in files.filter_map(|path| fs::read_to_string(path).ok()) {
        for line in text.lines() {
            match Record::decode(line.as_bytes()) {
                None => {}
                Some(Line::Intact(record)) => records.push(record),
                Some(other) => panic!("{other:?}: {line}"),
            }
        }
    }
    records
}

fn intents(records: &[Record]) -> Vec<(u64, &Intent)> {
    records
        .iter()
        .filter_map(|record| match &record.entry {
            Entry::Intent(intent) => Some((record.seq, intent)),
            _ => None,
        })
        .collect()
}

fn outcome(records: &[Record], of: u64) -> Option<&Outcome> {
    records.iter().find_map(|record| match &record.entry {
        Entry::Outcome(outcome) if outcome.intent == of => Some(outcome),
        _ => None,
    })
}

#[test]
fn every_write_has_who_why_what_and_what_became_of_it() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    stand.play(&mut job, 5);
    drop(job);
    stand.pass(20.0);
    assert!(stand.is_back());
    let all = records(&stand);
    let numbers: Vec<u64> = all.iter().map(|record| record.seq).collect();
    let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert_eq!(numbers, expected);
    // What the hardware was told is what the log says, in the same order for each device.
    let ledger = stand.rig.ledger().entries();
    let intents = intents(&all);
    assert_eq!(intents.len(), ledger.len());
    let addresses: Vec<String> = stand
        .status()
        .devices
        .iter()
        .map(|device| device.address.clone())
        .collect();
    for (device, address) in addresses.iter().enumerate() {
        let told = ledger.iter().filter(|entry| entry.device == device);
        let told: Vec<Watts> = told.map(|entry| entry.asked).collect();
        let of = intents.iter().filter(|(_, it)| it.device == *address);
        let logged: Vec<Watts> = of.map(|(_, it)| it.new_watts).collect();
        assert_eq!(logged, told, "{address}");
    }
    for (seq, intent) in &intents {
        assert_eq!(intent.actor, "litd");
        assert!(!intent.reason.is_empty());
        assert!(intent.old_watts.is_some());
        let outcome = outcome(&all, *seq).unwrap();
        assert_eq!(outcome.result, Ending::Confirmed);
        assert_eq!(outcome.read_back_watts, Some(intent.new_watts));
    }
    let (_, steered) = intents.iter().find(|(_, it)| it.job.is_some()).unwrap();
    assert_eq!(steered.job.as_deref(), Some("train"));
    assert!(steered.sample.unwrap() >= 3, "{steered:?}");
    let (_, last) = intents.last().unwrap();
    assert!(
        last.reason.starts_with("the cap found is restored"),
        "{last:?}"
    );
    stand.stop();
}

#[test]
fn a_cap_that_goes_back_tells_a_drained_device_from_a_litd_that_is_off() {
    let switch = tempfile::tempdir().unwrap();
    let file = switch.path().join("off");
    let mut stand = Stand::clocked(&quick_with_switch("gpu-realloc", &file));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    stand.command(&Command::Release {
        device: Some("gpu2".to_owned()),
    });
    fs::write(&file, "").unwrap();
    stand.pass(3.0);
    let (all, drained) = (records(&stand), stand.device(2).address);
    let back = intents(&all).into_iter().map(|(_, intent)| intent);
    let back = back.filter(|intent| intent.reason.starts_with("the cap found is restored"));
    let (of_drained, others): (Vec<_>, Vec<_>) = back.partition(|it| it.device == drained);
    assert!(!of_drained.is_empty() && !others.is_empty());
    let why = "an administrator has released the device";
    assert!(of_drained.iter().all(|it| it.reason.ends_with(why)));
    assert!(others.iter().all(|it| it.reason.ends_with("litd is off")));
    fs::remove_file(&file).unwrap();
    stand.stop();
}

#[test]
fn a_cap_set_by_hand_has_its_users_number() {
    let mut stand = Stand::clocked("");
    stand.rig.ledger().permit_found();
    stand.command(&Command::SetCap {
        device: "gpu3".to_owned(),
        watts: Watts(600.0),
    });
    let all = records(&stand);
    let intents = intents(&all);
    let [(_, intent)] = intents[..] else {
        panic!("{intents:?}")
    };
    let uid = nix::unistd::getuid();
    assert_eq!(intent.actor, format!("uid {uid}"));
    assert_eq!(intent.reason, "set by hand");
    assert_eq!(intent.old_watts, Some(Watts(700.0)));
    assert_eq!(intent.new_watts, Watts(600.0));
    assert_eq!(stand.terminate(), Some(0));
}

#[test]
fn no_cap_moves_that_is_not_on_record_but_all_go_back() {
    let mut stand = Stand::bare(&quick("gpu-realloc"), true);
    // Where the log's directory is to be there is a file.
    let obstacle = directory(&stand);
    fs::create_dir_all(stand.rig.layout().state()).unwrap();
    fs::write(&obstacle, "").unwrap();
    stand.start();
    let mut job = stand.train();
    stand.play(&mut job, 40);
    assert!(stand.rig.ledger().is_empty(), "{:?}", stand.held());
    assert!(stand.counted("audit") > 0);
    let why = "litd changes no cap except to restore one, until this is mended: the audit log can't be written";
    assert!(stand.has_event(EventKind::Fault, why));
    assert!(stand.status().node.summary.contains("audit.jsonl"));
    // A cap by hand neither, and at once.
    let (code, why) = stand.try_command(&Command::SetCap {
        device: "cpu0".to_owned(),
        watts: Watts(200.0),
    });
    assert_eq!(code, 409, "{why}");
    // Once there is room it goes on by itself.
    fs::remove_file(&obstacle).unwrap();
    stand.play_into_steering(&mut job);
    assert!(stand.has_event(EventKind::Fault, "the audit log can be written again"));
    let lost = |record: &Record| matches!(record.entry, Entry::Lost { .. });
    assert!(records(&stand).iter().any(lost));
    // A dead daemon's caps go back, log or not.
    stand.daemon.take().unwrap().kill();
    assert!(!stand.is_back());
    fs::rename(&obstacle, stand.rig.layout().state().join("before")).unwrap();
    fs::write(&obstacle, "").unwrap();
    stand.start();
    stand.pass(4.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    // Of what only the journal names nobody knows whether it was done.
    stand.pass(30.0);
    stand.stop();
}

#[test]
fn a_log_that_others_move_or_remove_is_begun_anew_and_that_is_told() {
    let mut stand = Stand::clocked(&quick("observe"));
    let log = directory(&stand).join("audit.jsonl");
    let mut budget = |watts: f64| {
        let watts = Some(Watts(watts));
        stand.command(&Command::SetBudget { watts });
        stand.pass(3.0);
        stand
            .events(EventKind::Fault)
            .iter()
            .filter(|it| it.contains("has begun a new one"))
            .count()
    };
    assert_eq!(budget(4500.0), 0);
    fs::rename(&log, log.with_extension("theirs")).unwrap();
    assert_eq!(budget(4400.0), 1);
    assert!(fs::read_to_string(&log).unwrap().contains("4400"));
    fs::remove_file(&log).unwrap();
    assert_eq!(budget(4300.0), 2);
    assert!(fs::read_to_string(&log).unwrap().contains("4300"));
    // Half of it is written in place.
    fs::write(&log, "{\"seq\":1,").unwrap();
    assert_eq!(budget(4200.0), 2);
    let lines = fs::read_to_string(&log).unwrap();
    let whole = lines
        .lines()
        .skip(1)
        // An empty one was to see whether the disk takes what follows.
        .filter(|line| !line.is_empty())
        .all(|line| Record::decode(line.as_bytes()).is_some());
    assert!(whole && lines.contains("4200"), "{lines}");
    stand.stop();
}

#[test]
fn the_log_is_bounded_and_its_numbers_go_on_over_restarts() {
    let config = quick("gpu-realloc") + "audit.file_bytes = 4096\naudit.files = 3\n";
    let mut stand = Stand::clocked(&config);
    for _ in 0..2 {
        let mut job = stand.train();
        stand.play_into_steering(&mut job);
        stand.play(&mut job, 10);
        assert_eq!(stand.terminate(), Some(0));
        let all = records(&stand);
        let numbers: Vec<u64> = all.iter().map(|record| record.seq).collect();
        assert!(numbers.is_sorted_by(|one, next| one + 1 == *next));
        // The oldest are gone, the last is there.
        assert!(numbers[0] > 1);
        let files: Vec<u64> = fs::read_dir(directory(&stand))
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .collect();
        assert!(files.len() == 3 && files.iter().sum::<u64>() < 3 * 8192);
        stand.start();
    }
    stand.stop();
}

#[test]
fn what_was_found_is_published_for_programs_that_need_no_litd() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("baseline");
    let state = format!("state.baseline = \"{}\"\n", path.display());
    let mut stand = Stand::clocked(&(quick("gpu-realloc") + &state));
    let published = || fs::read_to_string(&path).unwrap();
    let first = published();
    assert!(first.starts_with("litd-baseline 1\nboot "), "{first}");
    assert!(first.contains(&format!("\npid {} ", stand.daemon().pid())));
    let devices = stand.status().devices;
    for device in &devices {
        let (address, found) = (&device.address, device.found.unwrap().0 * 1e6);
        assert!(
            first.contains(&format!(" {address} {found:.0}\n")),
            "{first}"
        );
    }
    // It is what goes back, not what litd sets; the next daemon says the same.
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    assert_eq!(published(), first);
    stand.daemon.take().unwrap().kill();
    stand.start();
    let caps = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with("device"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(caps(&published()), caps(&first));
    stand.pass(4.0);
    // A budget in which all caps found have room lowers none: a device that holds less is stranded.
    let gpus = devices.iter().filter(|it| it.name.starts_with("gpu"));
    let found: f64 = gpus.filter_map(|it| Some(it.found?.0)).sum();
    for (budget, binds) in [(found + 100.0, false), (found - 100.0, true)] {
        let watts = Some(Watts(budget));
        stand.command(&Command::SetBudget { watts });
        stand.pass(2.0);
        assert_eq!(published().contains("\nbudget\n"), binds, "{budget}");
    }
    stand.stop();
}

/// A cap that returns as slowly as the administrator wants is stranded as little.
#[test]
fn caps_that_rise_slowly_are_published_as_lower_on_purpose() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("baseline");
    let more = format!(
        "caps.max_rise_w_per_s = 40\nstate.baseline = \"{}\"\n",
        path.display()
    );
    let mut stand = Stand::clocked(&(quick("observe") + &more));
    let is_lower = || fs::read_to_string(&path).unwrap().contains("\nbudget\n");
    stand.pass(4.0);
    let found = stand.sum();
    assert!(!is_lower());
    let set = |stand: &Stand, watts| stand.command(&Command::SetBudget { watts });
    set(&stand, Some(found - Watts(800.0)));
    stand.pass(4.0);
    set(&stand, None);
    stand.pass(10.0);
    assert!(stand.sum() < found && is_lower(), "{:?}", stand.held());
    stand.pass(30.0);
    assert!(stand.sum() == found && !is_lower(), "{:?}", stand.held());
    stand.stop();
}

/// As systemd names them for a drop-in with one more `RuntimeDirectory=`, which the hooks' socket for containers
/// wants.
#[test]
fn of_several_directories_of_the_unit_litd_takes_its_own() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    let program = place.path().join("program");
    let script = format!(
        "#!/bin/sh\nRUNTIME_DIRECTORY={0}/run/litd-ingest:{0}/run/litd LOGS_DIRECTORY={0}/log/litd:{0}/log/more \\\n\
         exec '{LITD}' \"$@\"\n",
        place.path().display()
    );
    fs::write(&program, "").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(&program, script).unwrap();
    let mut stand = Stand::bare(&(quick("observe") + "caps.budget = 4400\n"), true);
    stand.start_as(&program);
    stand.pass(3.0);
    for there in ["run/litd/baseline", "log/litd/audit.jsonl"] {
        assert!(Path::new(&at(there)).exists(), "{there}: {}", stand.said());
    }
    let names = |directory: &str| -> Vec<String> {
        let entries = fs::read_dir(at(directory)).unwrap();
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
        entries.map(|it| name(it).into_string().unwrap()).collect()
    };
    assert_eq!(names("run"), ["litd"]);
    assert_eq!(names("log"), ["litd"]);
    // By its state directory's lock litd-check knows this process from a later one of its number.
    let lock = fs::read_to_string(stand.rig.layout().state().join("lock")).unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", stand.daemon().pid())).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let started = rest.split_whitespace().nth(19).unwrap();
    assert_eq!(lock, format!("{} {started}\n", stand.daemon().pid()));
    stand.stop();
}
