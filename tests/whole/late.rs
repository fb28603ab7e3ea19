//! A driver calls a write failed, and the device does it seconds later: when the litd that asked for it is gone.

use std::fs;

use litd_api::Command;
use litd_rig::Fault;
use litd_units::Watts;

use crate::stand::{Stand, quick, quick_with_switch, wait_for};

/// The GPU that takes its time.
const LATE: usize = 2;
const ADDRESS: &str = "0000:25:00.0";

/// How often the budget is lowered before litd is killed.
const ROUNDS: u32 = 12;

fn lower(stand: &Stand, watts: f64) {
    let watts = Some(Watts(watts));
    stand.command(&Command::SetBudget { watts });
}

/// The next litd starts, and the budget from before the crash, which it keeps, is lifted.
fn start_without_a_budget(stand: &mut Stand) {
    stand.start();
    // It is kept by then: otherwise the caps found would be there before and after.
    let watts = Watts(5000.0 - 20.0 * f64::from(ROUNDS - 1));
    wait_for("the budget of before", || {
        stand.sum() - stand.held()[LATE] <= watts
    });
    stand.command(&Command::SetBudget { watts: None });
}

/// A node whose litd was killed after a write had failed that its GPU will do all the same.
fn killed_with_a_write_to_come() -> Stand {
    let mut stand = Stand::real(&quick("observe"));
    stand.rig.ledger().permit_found();
    stand.wait_for_found();
    stand.rig.hardware().inject(LATE, Fault::Postpone);
    let refused = |stand: &Stand| {
        let entries = stand.rig.ledger().entries();
        entries
            .iter()
            .any(|it| it.device == LATE && it.asked != it.after)
    };
    lower(&stand, 5200.0);
    wait_for("a write that fails", || refused(&stand));
    wait_for("the others' caps", || stand.sum() <= Watts(5300.0));
    // Nothing else is asked of it from then on.
    stand.rig.hardware().inject(LATE, Fault::InReset);
    // What litd does for the others meanwhile is more than fits a few pages of its log.
    for round in 0..ROUNDS {
        let watts = 5000.0 - 20.0 * f64::from(round);
        lower(&stand, watts);
        wait_for("a lower budget", || {
            stand.sum() - stand.held()[LATE] <= Watts(watts)
        });
    }
    stand.kill();
    stand.rig.hardware().heal(LATE);
    stand
}

/// The write is done, and what the GPU holds is what litd had asked for.
fn land(stand: &Stand) {
    let before = stand.held()[LATE];
    stand.rig.hardware().land(LATE).unwrap();
    assert!(stand.held()[LATE] < before, "{:?}", stand.held());
}

#[test]
fn what_lands_after_litd_restore_goes_back_with_the_next_one() {
    let stand = killed_with_a_write_to_come();
    let (code, said) = stand.restore();
    assert_eq!(code, Some(3), "{said}");
    assert!(stand.is_back(), "{:?}", stand.held());
    assert!(stand.journaled().contains(&ADDRESS.to_owned()), "{said}");
    stand.assert_clean_but_for_late(&said);
    land(&stand);
    let (code, said) = stand.restore();
    assert_eq!(code, Some(3), "{said}");
    stand.assert_clean_but_for_late(&said);
}

#[test]
fn what_lands_goes_back_too_where_the_log_was_moved() {
    let mut stand = killed_with_a_write_to_come();
    fs::remove_dir_all(stand.rig.layout().state().join("audit")).unwrap();
    let (code, said) = stand.restore();
    assert_eq!(code, Some(3), "{said}");
    assert!(stand.journaled().contains(&ADDRESS.to_owned()), "{said}");
    start_without_a_budget(&mut stand);
    stand.wait_for_found();
    // Only then is what the write asks for less than what the GPU holds.
    wait_for("the caps of before the crash's budget", || stand.is_back());
    land(&stand);
    wait_for("the cap found", || stand.is_back());
    assert_eq!(stand.not_ours(), [], "{}", stand.said());
    let code = stand.terminate();
    assert_eq!(code, Some(0), "{}", stand.said());
    stand.assert_clean_but_for_late(&stand.said());
}

#[test]
fn what_lands_on_the_next_litd_goes_back() {
    let mut stand = killed_with_a_write_to_come();
    let (code, said) = stand.restore();
    assert_eq!(code, Some(3), "{said}");
    start_without_a_budget(&mut stand);
    stand.wait_for_found();
    // Only then is what the write asks for less than what the GPU holds.
    wait_for("the caps of before the crash's budget", || stand.is_back());
    land(&stand);
    wait_for("the cap found", || stand.is_back());
    assert_eq!(stand.not_ours(), [], "{}", stand.said());
    let code = stand.terminate();
    assert_eq!(code, Some(0), "{}", stand.said());
    stand.assert_clean_but_for_late(&stand.said());
}

#[test]
fn what_lands_while_litd_is_off_goes_back() {
    let folder = tempfile::tempdir().unwrap();
    let switch = folder.path().join("off");
    let mut stand = Stand::clocked(&quick_with_switch("observe", &switch));
    stand.pass(3.0);
    stand.rig.hardware().inject(LATE, Fault::Postpone);
    lower(&stand, 5200.0);
    stand.pass(1.0);
    stand.rig.hardware().inject(LATE, Fault::InReset);
    fs::write(&switch, "").unwrap();
    stand.pass(0.5);
    stand.rig.hardware().heal(LATE);
    stand.pass(5.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    land(&stand);
    stand.pass(40.0);
    assert!(stand.is_back(), "{:?}: {}", stand.held(), stand.said());
    stand.stop();
}

/// What GPUs may hold in the nodes below, whatever lands.
const MOST: Watts = Watts(4000.0);

/// A node that keeps a budget of [`MOST`], with a raise to come that was asked for under a higher one.
fn with_a_raise_to_come(config: &str) -> Stand {
    let mut stand = Stand::clocked(config);
    stand.pass(3.0);
    assert!(stand.sum() <= MOST, "{:?}", stand.held());
    stand.rig.hardware().inject(LATE, Fault::Postpone);
    let lease = r#"{"controller": "fleet", "seconds": 600, "budget": 5400}"#;
    assert_eq!(stand.ask("PUT", "/v1/lease", lease).0, 200);
    stand.pass(0.2);
    stand.rig.hardware().heal(LATE);
    stand
}

fn raise_lands(stand: &Stand) {
    let before = stand.held()[LATE];
    stand.rig.hardware().land(LATE).unwrap();
    assert!(stand.held()[LATE] > before, "{:?}", stand.held());
    assert!(stand.sum() <= MOST, "{:?}: {}", stand.held(), stand.said());
}

#[test]
fn a_raise_that_lands_under_a_lower_budget_has_its_room() {
    let mut stand = with_a_raise_to_come(&(quick("observe") + SAFE));
    assert_eq!(stand.ask("DELETE", "/v1/lease", "").0, 200);
    stand.pass(3.0);
    raise_lands(&stand);
    stand.pass(40.0);
    assert!(
        stand.sum() <= MOST && stand.sum() > MOST - Watts(100.0),
        "{:?}",
        stand.held()
    );
    stand.stop();
}

const HOLD: &str = "caps.on_exit = \"hold\"\ncaps.safe_budget = 4000\n";
const SAFE: &str = "caps.safe_budget = 4000\n";

#[test]
fn a_raise_that_lands_after_a_stop_is_within_the_safe_budget() {
    let mut stand = with_a_raise_to_come(&(quick("observe") + HOLD));
    assert_eq!(stand.terminate(), Some(0), "{}", stand.said());
    raise_lands(&stand);
}

#[test]
fn a_raise_that_lands_while_litd_is_off_is_within_the_safe_budget() {
    let folder = tempfile::tempdir().unwrap();
    let switch = folder.path().join("off");
    let config = quick_with_switch("observe", &switch) + HOLD;
    let mut stand = with_a_raise_to_come(&config);
    fs::write(&switch, "").unwrap();
    stand.pass(5.0);
    raise_lands(&stand);
    let high = stand.held()[LATE];
    stand.pass(40.0);
    assert!(
        stand.held()[LATE] < high,
        "{:?}: {}",
        stand.held(),
        stand.said()
    );
    assert!(stand.sum() <= MOST, "{:?}", stand.held());
}
