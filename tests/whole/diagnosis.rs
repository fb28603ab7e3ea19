//! A straggler that power can't help gets none, and the status says why.

use litd_api::JobState;
use litd_rig::Rig;
use litd_sim::Scenario;

use crate::stand::{Stand, quick};

/// What a steering daemon says of the job on the node of a scenario; nothing may be written.
fn reason(scenario: &str) -> String {
    let rig = Rig::new(&Scenario::builtin(scenario).unwrap(), 1).unwrap();
    let mut stand = Stand::on(rig, &quick("gpu-realloc"), true);
    stand.start();
    let mut job = stand.train();
    let held = stand.held();
    stand.play(&mut job, 40);
    let status = stand.job_status("train");
    assert_eq!(stand.held(), held, "{scenario}: {}", status.why);
    assert_eq!(
        status.state,
        JobState::Converged,
        "{scenario}: {}",
        status.why
    );
    stand.stop();
    status.why
}

#[test]
fn a_late_host_a_slow_link_and_uneven_data_get_no_power() {
    for (scenario, words) in [
        (
            "late-host",
            ["late host", "wait for gpu2", "watts won't help"],
        ),
        (
            "slow-link",
            ["slow link", "wait for gpu2", "watts won't help"],
        ),
        (
            "uneven-data",
            ["uneven work", "wait for gpu2", "watts won't help"],
        ),
    ] {
        let why = reason(scenario);
        for words in words {
            assert!(why.contains(words), "{scenario}: {why}");
        }
    }
}
