//! Devices that can't tell what their caps may be, when litd starts or `litd restore` runs; reloads of
//! several keys at once; hands between a write and its reading back; budgets where litd only observes.

use std::thread;

use litd_api::{Command, DeviceState, EventKind};
use litd_power::CapRange;
use litd_rig::Fault;
use litd_units::Watts;

use crate::stand::{DEVICES, GPUS, Stand, quick, wait_for};

/// A device that gpu-realloc lowers.
const LOWERED: usize = 2;

/// A daemon has died with caps moved.
fn crashed() -> Stand {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    let (held, found) = (stand.held(), stand.rig.ledger().found());
    assert!(held[LOWERED] < found[LOWERED], "{held:?}");
    stand.kill();
    stand.rig.ledger().permit_found();
    stand
}

/// All but this device hold what was found, and this one is back, or can be brought back later.
fn assert_others_are_back(stand: &Stand, device: usize, code: Option<i32>, said: &str) {
    let (held, found) = (stand.held(), stand.rig.ledger().found());
    for other in (0..DEVICES).filter(|&other| other != device) {
        assert_eq!(held[other], found[other], "device {other}: {said}");
    }
    if held[device] != found[device] {
        assert_ne!(code, Some(0), "{said}");
        assert_eq!(stand.journaled().len(), 1, "{said}");
    }
}

/// How many ranges a driver should not tell.
const ODD_RANGES: usize = 4;

/// The ranges that a driver should not tell.
fn odd_ranges(range: CapRange) -> [CapRange; ODD_RANGES] {
    let (lowest, highest) = (range.lowest, range.highest);
    [
        CapRange {
            lowest: Watts::ZERO,
            highest: Watts::ZERO,
            ..range
        },
        CapRange {
            lowest: highest,
            highest: lowest,
            ..range
        },
        CapRange {
            highest: Watts(150.0),
            lowest: Watts(100.0),
            ..range
        },
        CapRange {
            highest: Watts(-1.0),
            ..range
        },
    ]
}

#[test]
fn a_gpu_that_can_not_tell_its_range_holds_up_nobody_elses_undo() {
    let stand = crashed();
    stand.rig.hardware().inject(LOWERED, Fault::NoRange);
    for _ in 0..2 {
        let (code, said) = stand.restore();
        assert_others_are_back(&stand, LOWERED, code, &said);
    }
    stand.rig.hardware().heal(LOWERED);
    let (code, said) = stand.restore();
    assert_eq!(code, Some(0), "{said}");
    stand.assert_clean();
}

#[test]
fn a_gpu_that_tells_an_odd_range_holds_up_nobody_elses_undo() {
    // A restore waits ten seconds for such a GPU: they wait beside each other, each on its own node.
    thread::scope(|scope| {
        for case in 0..ODD_RANGES {
            scope.spawn(move || {
                let stand = crashed();
                let range = *stand.rig.hardware().range_mut(LOWERED).unwrap();
                *stand.rig.hardware().range_mut(LOWERED).unwrap() = odd_ranges(range)[case];
                let (code, said) = stand.restore();
                assert_others_are_back(&stand, LOWERED, code, &said);
                *stand.rig.hardware().range_mut(LOWERED).unwrap() = range;
                // Where the first one's write has failed, it may still be done.
                let said = stand.restore_after_kill();
                stand.assert_clean_but_for_late(&said);
            });
        }
    });
}

#[test]
fn a_gpu_whose_highest_cap_has_shrunk_keeps_its_entry() {
    let stand = crashed();
    let range = *stand.rig.hardware().range_mut(LOWERED).unwrap();
    let less = stand.held()[LOWERED] + Watts(10.0);
    stand.rig.hardware().range_mut(LOWERED).unwrap().highest = less;
    let (code, said) = stand.restore();
    assert_ne!(code, Some(0), "{said}");
    assert_others_are_back(&stand, LOWERED, code, &said);
    *stand.rig.hardware().range_mut(LOWERED).unwrap() = range;
    let (code, said) = stand.restore();
    assert_eq!(code, Some(0), "{said}");
    stand.assert_clean();
}

#[test]
fn a_daemon_gives_back_a_gpu_that_can_not_tell_its_range_once_it_can() {
    for odd in [true, false] {
        let mut stand = crashed();
        let range = *stand.rig.hardware().range_mut(LOWERED).unwrap();
        match odd {
            true => *stand.rig.hardware().range_mut(LOWERED).unwrap() = odd_ranges(range)[0],
            false => stand.rig.hardware().inject(LOWERED, Fault::InReset),
        }
        stand.start();
        stand.pass(8.0);
        assert_others_are_back(&stand, LOWERED, None, &stand.said());
        stand.rig.hardware().heal(LOWERED);
        *stand.rig.hardware().range_mut(LOWERED).unwrap() = range;
        stand.pass(20.0);
        assert!(stand.is_back(), "{:?}\n{}", stand.held(), stand.said());
        stand.stop();
    }
}

#[test]
fn a_gpu_that_can_not_tell_its_range_counts_against_the_budget() {
    for fault in [Fault::NoRange, Fault::InReset] {
        let config = quick("gpu-realloc") + "caps.budget = 4800\n";
        let mut stand = Stand::bare(&config, true);
        stand.rig.hardware().inject(0, fault);
        stand.start();
        stand.pass(10.0);
        assert!(
            stand.sum() <= Watts(4800.0),
            "{:?}\n{}",
            stand.held(),
            stand.said()
        );
        stand.rig.hardware().heal(0);
        stand.pass(20.0);
        assert!(stand.sum() <= Watts(4800.0), "{:?}", stand.held());
        // One whose readings failed as well is left alone until it is resumed.
        if fault == Fault::NoRange {
            assert_eq!(stand.not_ours(), []);
        }
        stand.stop();
    }
}

#[test]
fn a_reload_that_changes_a_knob_with_the_budget_or_the_mode_enforces_both() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let law = "law.mitigation.max_adjustment = 20.0\n";
    stand.reload(&format!(
        "{}{law}caps.budget = 4000.0\n",
        quick("gpu-realloc")
    ));
    wait_for("reload", || stand.status().gpus.budget == Watts(4000.0));
    stand.finish();
    stand.pass(2.0);
    assert!(stand.sum() <= Watts(4000.0), "{:?}", stand.held());
    stand.reload(&quick("gpu-realloc").replace("\"on\"", "\"observe\""));
    wait_for("reload", || stand.status().gpus.budget == Watts(5600.0));
    stand.finish();
    stand.pass(3.0);
    assert!(stand.is_back(), "{:?}\n{}", stand.held(), stand.said());
    stand.stop();
}

#[test]
fn a_cap_that_somebody_sets_between_a_write_and_its_reading_back_stays() {
    const THEIRS: Watts = Watts(333.0);
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    stand.rig.hardware().inject(LOWERED, Fault::Meddle(THEIRS));
    stand.command(&Command::SetBudget {
        watts: Some(Watts(4800.0)),
    });
    stand.play_until(&mut job, "meddling", |stand| {
        stand.held()[LOWERED] == THEIRS
    });
    let from = stand.rig.ledger().len();
    stand.play(&mut job, 10);
    stand.pass(5.0);
    assert_eq!(stand.held()[LOWERED], THEIRS, "{}", stand.said());
    let later = stand.rig.ledger().entries().split_off(from);
    assert!(
        later.iter().all(|entry| entry.device != LOWERED),
        "{later:?}"
    );
    assert!(
        stand.has_event(EventKind::Foreign, "333"),
        "{}",
        stand.said()
    );
    assert_eq!(stand.device(LOWERED).state, DeviceState::Foreign);
    assert_eq!(stand.terminate(), Some(0), "{}", stand.said());
    assert_eq!(stand.held()[LOWERED], THEIRS);
}

#[test]
fn a_budget_that_is_accepted_is_enforced_where_litd_only_observes() {
    let config = quick("gpu-realloc").replace("\"on\"", "\"observe\"");
    let mut stand = Stand::clocked(&config);
    let budget = Command::SetBudget {
        watts: Some(Watts(4000.0)),
    };
    stand.command(&budget);
    stand.pass(3.0);
    assert!(stand.sum() <= Watts(4000.0), "{:?}", stand.held());
    stand.command(&Command::SetBudget { watts: None });
    stand.pass(3.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    stand.stop();

    let mut stand = Stand::clocked(&(config + "caps.budget = 4000.0\n"));
    stand.pass(3.0);
    assert!(stand.sum() <= Watts(4000.0), "{:?}", stand.held());
    stand.stop();
}

#[test]
fn litd_restore_writes_nothing_but_what_was_found() {
    let mut stand = crashed();
    // Meanwhile the file has a budget that is far below what was found.
    stand.configure(&(quick("gpu-realloc") + "caps.budget = 3000.0\n"));
    let from = stand.rig.ledger().len();
    let (code, said) = stand.restore();
    assert_eq!(code, Some(0), "{said}");
    let (found, later) = (
        stand.rig.ledger().found(),
        stand.rig.ledger().entries().split_off(from),
    );
    let undoes = |entry: &litd_rig::Entry| entry.asked == found[entry.device];
    assert!(later.iter().all(undoes), "{later:?}");
    assert!(later.len() <= GPUS, "{later:?}");
    stand.assert_clean();
}

#[test]
fn a_gpu_that_has_never_told_its_range_is_told_of_also_without_a_job() {
    let mut stand = Stand::bare("", true);
    stand.rig.hardware().inject(LOWERED, Fault::NoRange);
    stand.start();
    stand.pass(3.0);
    let events = stand.events(EventKind::Fault);
    let told = events
        .iter()
        .filter(|it| it.contains("reports no usable range of caps"));
    assert_eq!(told.count(), 1, "{events:?}");
    stand.rig.hardware().heal(LOWERED);
    stand.pass(3.0);
    stand.stop();
}

#[test]
fn a_ceiling_bounds_litd_and_not_what_an_unjudged_gpu_was_found_with() {
    const BUDGET: Watts = Watts(4050.0);
    let config = quick("gpu-realloc") + "caps.budget = 4050\ncaps.gpu_ceiling = 500\n";
    let mut stand = Stand::bare(&config, true);
    // It holds 700 W, and has never told what it may hold.
    stand.rig.hardware().inject(0, Fault::InReset);
    stand.start();
    stand.pass(10.0);
    assert!(stand.sum() <= BUDGET, "{:?}", stand.held());
}

#[test]
fn a_range_that_the_cap_belies_is_told_of() {
    let mut stand = Stand::clocked("");
    stand.pass(2.0);
    let range = *stand.rig.hardware().range_mut(LOWERED).unwrap();
    stand.rig.hardware().range_mut(LOWERED).unwrap().highest = Watts(500.0);
    // After a reset its driver is asked anew.
    stand.rig.hardware().reset(LOWERED).unwrap();
    stand.pass(3.0);
    let events = stand.events(EventKind::Fault);
    let why = "the range that it reports is empty or does not contain the device's cap";
    let told = events.iter().filter(|it| it.contains(why));
    assert_eq!(told.count(), 1, "{events:?}");
    *stand.rig.hardware().range_mut(LOWERED).unwrap() = range;
    stand.pass(3.0);
    assert_eq!(stand.terminate(), Some(0), "{}", stand.said());
}
