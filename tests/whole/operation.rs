//! What administrators and systemd do: reload, stop, start twice, budgets, modes.

use std::path::Path;
use std::time::{Duration, Instant};

use litd_api::{Command, JobState, Mode};
use litd_rig::{Daemon, Fault, Job};
use litd_units::Watts;

use crate::stand::{DEVICES, LITD, SOON, Stand, quick, wait_for};

fn steering(config: &str) -> (Stand, Job) {
    let mut stand = Stand::clocked(config);
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    (stand, job)
}

/// A node under the kernel's clock whose devices take their time, caught while caps are on the
/// move: some of an adjustment's writes are done and some are not.
fn in_the_middle_of_an_adjustment() -> (Stand, Job) {
    let stand = Stand::real(&quick("gpu-realloc"));
    let mut job = stand.train();
    let ledger = stand.rig.ledger().clone();
    for device in 0..DEVICES {
        let slow = Duration::from_millis(20 + 15 * device as u64);
        stand.rig.hardware().inject(device, Fault::Slow(slow));
    }
    let deadline = Instant::now() + SOON;
    while ledger.len() < 3 {
        assert!(Instant::now() < deadline, "no adjustment");
        job.run_iteration();
        let next = Instant::now() + Duration::from_millis(400);
        while ledger.len() < 3 && Instant::now() < next {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    (stand, job)
}

#[test]
fn a_lower_budget_takes_effect_without_a_sample() {
    let (mut stand, _job) = steering(&quick("gpu-realloc"));
    // No time passes and nobody reports anything.
    for budget in [Watts(5200.0), Watts(4000.0), Watts(2400.0)] {
        stand.rig.ledger().lower_budget(budget, Duration::ZERO);
        stand.command(&Command::SetBudget {
            watts: Some(budget),
        });
        stand.finish();
        assert!(stand.sum() <= budget, "{}", stand.sum());
    }
    let (code, error) = stand.try_command(&Command::SetBudget {
        watts: Some(Watts(2399.0)),
    });
    assert_eq!(code, 409, "{error}");
    stand.pass(1.0);
    stand.stop();
}

#[test]
fn a_lower_budget_takes_effect_within_a_second_of_real_time() {
    let stand = Stand::real(&quick("gpu-red"));
    let ledger = stand.rig.ledger().clone();
    for device in 0..DEVICES {
        let slow = Duration::from_millis(60);
        stand.rig.hardware().inject(device, Fault::Slow(slow));
    }
    // Nobody trains, and the GPUs hold what they came with.
    ledger.lower_budget(Watts(4800.0), Duration::from_secs(1));
    let watts = Some(Watts(4800.0));
    stand.command(&Command::SetBudget { watts });
    wait_for("the second's end", || ledger.budget() == Watts(4800.0));
    stand.assert_rules();
    assert!(stand.sum() <= Watts(4800.0));
    stand.stop();
}

#[test]
fn a_budget_in_the_file_is_kept_from_the_start_and_by_a_reload() {
    let mut stand = Stand::bare(
        &format!("{}caps.budget = 5200.0\n", quick("gpu-realloc")),
        true,
    );
    stand
        .rig
        .ledger()
        .lower_budget(Watts(5200.0), Duration::from_secs(1));
    stand.start();
    stand.finish();
    assert!(stand.sum() <= Watts(5200.0), "{}", stand.sum());
    let mut job = stand.train();
    stand.play(&mut job, 20);
    stand
        .rig
        .ledger()
        .lower_budget(Watts(4800.0), Duration::from_secs(1));
    stand.reload(&format!("{}caps.budget = 4800.0\n", quick("gpu-realloc")));
    wait_for("reload", || stand.status().gpus.budget == Watts(4800.0));
    stand.finish();
    assert!(stand.sum() <= Watts(4800.0), "{}", stand.sum());
    stand.play(&mut job, 20);
    stand.stop();
}

#[test]
fn a_good_file_is_taken_in_the_middle_of_an_adjustment() {
    let (mut stand, mut job) = in_the_middle_of_an_adjustment();
    stand
        .rig
        .ledger()
        .lower_budget(Watts(5200.0), Duration::from_secs(1));
    stand.reload(&format!("{}caps.budget = 5200.0\n", quick("gpu-red")));
    wait_for("reload", || stand.status().node.policy == "gpu-red");
    wait_for("the second's end", || {
        stand.rig.ledger().budget() == Watts(5200.0)
    });
    stand.assert_rules();
    job.run_iteration();
    stand.stop();
}

#[test]
fn a_bad_file_in_the_middle_of_an_adjustment_changes_nothing() {
    let (mut stand, mut job) = in_the_middle_of_an_adjustment();
    stand.reload(&format!("{}caps.budget = -1.0\n", quick("gpu-red")));
    wait_for("refusal", || {
        stand.said().contains("the configuration stays as it was")
    });
    let status = stand.status();
    assert_eq!(
        (status.node.policy.as_str(), status.gpus.budget),
        ("gpu-realloc", Watts(5600.0))
    );
    let adjustments = status.totals.adjustments;
    wait_for("adjustment", || {
        job.run_iteration();
        std::thread::sleep(Duration::from_millis(300));
        stand.status().totals.adjustments > adjustments
    });
    stand.stop();
}

#[test]
fn a_stop_in_the_middle_of_an_adjustment_brings_all_caps_back() {
    let (stand, _job) = in_the_middle_of_an_adjustment();
    stand.stop();
}

#[test]
fn a_stop_waits_for_a_slow_device_and_not_for_one_that_hangs() {
    let (mut stand, _job) = in_the_middle_of_an_adjustment();
    let held = stand.held();
    let moved = held
        .iter()
        .zip(stand.rig.ledger().found())
        .position(|(a, b)| *a != b);
    let hung = moved.unwrap();
    stand
        .rig
        .hardware()
        .inject(hung, Fault::Slow(Duration::from_secs(60)));
    assert_eq!(stand.terminate(), Some(1), "{}", stand.said());
    let said = stand.said();
    assert!(
        said.contains("the caps of 0000:") && said.contains("could not be restored"),
        "{said}"
    );
    assert_eq!(stand.journaled().len(), 1);
    stand.assert_rules();
    // It answers again, and systemd starts the daemon again.
    stand.rig.hardware().heal(hung);
    wait_for("mending", || stand.rig.hardware().fault(hung).is_none());
    stand.start();
    wait_for("restore", || stand.journaled().is_empty());
    stand.stop();
}

#[test]
fn switched_to_observe_it_gives_everything_back() {
    let (mut stand, mut job) = steering(&quick("gpu-realloc"));
    stand.reload(&quick("gpu-realloc").replace("\"on\"", "\"observe\""));
    wait_for("reload", || stand.status().node.mode == Mode::Observe);
    stand.finish();
    stand.pass(1.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    assert_eq!(stand.journaled(), [""; 0]);
    let writes = stand.rig.ledger().len();
    stand.play(&mut job, 20);
    assert_eq!(stand.rig.ledger().len(), writes);
    assert_eq!(stand.job_status("train").state, JobState::Observe);
    // And back.
    stand.reload(&quick("gpu-realloc"));
    wait_for("reload", || stand.status().node.mode == Mode::Steer);
    stand.play_into_steering(&mut job);
    stand.stop();
}

#[test]
fn caps_that_were_restored_by_hand_stay_until_they_are_resumed() {
    let (mut stand, mut job) = steering(&quick("gpu-realloc"));
    stand.command(&Command::Release { device: None });
    stand.pass(1.5);
    assert!(stand.is_back(), "{:?}", stand.held());
    assert!((0..DEVICES).all(|device| stand.rig.hardware().releases(device) > 0));
    let writes = stand.rig.ledger().len();
    stand.play(&mut job, 20);
    assert_eq!(stand.rig.ledger().len(), writes);
    stand.resume();
    stand.play_into_steering(&mut job);
    stand.stop();
}

#[test]
fn of_two_daemons_started_at_once_one_runs() {
    for _ in 0..5 {
        let stand = Stand::bare(&quick("gpu-realloc"), false);
        let directory = &stand.rig.layout().directory;
        let launch = || Daemon::launch(Path::new(LITD), directory, stand.config(), None).unwrap();
        let mut daemons = [launch(), launch()];
        wait_for("end of one", || {
            daemons.iter_mut().any(|daemon| daemon.ended().is_some())
        });
        let [mut first, mut second] = daemons;
        if first.ended().is_some() {
            std::mem::swap(&mut first, &mut second);
        }
        assert_eq!(second.ended().unwrap().code(), Some(1));
        let held_by = [first.pid().to_string(), "?".to_owned()];
        let said = stand.said();
        assert!(
            held_by
                .iter()
                .any(|by| said.contains(&format!("litd runs already, as process {by}"))),
            "{said}"
        );
        first.become_ready().unwrap();
        // Its sockets are its own still.
        assert_eq!(stand.status().devices.len(), DEVICES);
        stand.train().end();
        assert_eq!(first.terminate().unwrap().code(), Some(0));
        stand.assert_clean();
    }
}

#[test]
fn whoever_has_the_port_of_the_metrics_keeps_litd_from_nothing_else() {
    let theirs = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = theirs.local_addr().unwrap();
    let config = format!("{}metrics.listen = \"{address}\"\n", quick("gpu-realloc"));
    let mut stand = Stand::clocked(&config);
    let said = format!("[metrics] listen = \"{address}\"");
    assert!(stand.said().contains(&said), "{}", stand.said());
    stand.play_into_steering(&mut stand.train());
    stand.stop();
}

/// Whether a process keeps SIGHUP waiting, by its `status` in procfs.
fn holds_hangups(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let held = status
        .lines()
        .find_map(|line| line.strip_prefix("SigBlk:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    held.is_some_and(|mask| mask & 1 == 1)
}

#[test]
fn a_reload_in_the_first_moments_of_a_start_does_not_end_it() {
    let stand = Stand::bare(&quick("gpu-red"), false);
    let directory = stand.rig.layout().directory.clone();
    let config = stand.config().to_owned();
    let mut daemon = Daemon::launch(Path::new(LITD), &directory, &config, None).unwrap();
    // Devices are looked for after that: it is not ready by then.
    wait_for("signals are held", || holds_hangups(daemon.pid()));
    daemon.reload(&config).unwrap();
    daemon.become_ready().unwrap();
    wait_for("the reload", || daemon.stderr().contains("read anew"));
    assert!(daemon.terminate().unwrap().success());
}
