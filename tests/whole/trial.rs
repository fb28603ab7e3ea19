//! Trials and the hold-out on a whole node: one that gains, one that nothing helps, one that
//! steering harms; and A/A. All of it is SIMULATED, and blocks are shorter than on a real node.

use litd_api::{Command, EventKind, JobState, Trials};
use litd_rig::{Job, Rig};
use litd_sim::Scenario;
use litd_trial::{Report, State, Verdict};
use litd_units::Nanos;

use crate::stand::{SOON, Stand, quick};

/// Blocks of a few seconds: possible on simulated hardware only.
const SHORT: &str = "[settle]\nseconds = 2.0\nfit = false\n[trial]\nblock_seconds = 8.0\nblock_iterations = 5\nhold_out = ";

fn configuration(policy: &str, hold_out: f64) -> String {
    format!("{}{SHORT}{hold_out}\n", quick(policy))
}

fn trials(stand: &Stand) -> Trials {
    let (code, body) = stand.ask("GET", "/v1/trial", "");
    assert_eq!(code, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

fn report(stand: &Stand) -> Report {
    trials(stand).report.unwrap()
}

fn start(quads: u32, same: bool) -> Command {
    Command::StartTrial {
        job: None,
        quads: Some(quads),
        same,
        seed: Some(11),
    }
}

/// Plays, with a truth of the job's own, until something is so.
fn play_until(
    stand: &mut Stand,
    job: &mut Job,
    truth: impl Fn(&Stand) -> Option<Nanos>,
    done: impl Fn(&Trials) -> bool,
) {
    for iteration in 0..6000 {
        let pretended = truth(stand);
        job.pretend(pretended);
        stand.play(job, 1);
        if iteration % 16 == 0 && done(&trials(stand)) {
            return;
        }
    }
    panic!(
        "not within 6000 iterations: {:#?}\n{}",
        trials(stand),
        stand.said()
    );
}

fn as_it_is(_: &Stand) -> Option<Nanos> {
    None
}

/// Whatever caps are moved, the job is half a percent slower for it.
fn harmed(stand: &Stand) -> Option<Nanos> {
    let length = if stand.is_back() {
        400_000_000
    } else {
        402_000_000
    };
    Some(Nanos(length))
}

fn is_over(trials: &Trials) -> bool {
    trials.report.as_ref().is_some_and(|it| it.state.is_over())
}

fn on(scenario: &str, config: &str) -> Stand {
    let rig = Rig::new(&Scenario::builtin(scenario).unwrap(), 1).unwrap();
    let mut stand = Stand::on(rig, config, true);
    stand.start();
    stand
}

#[test]
fn a_node_that_gains_is_told_so_and_goes_on_with_the_balanced_caps() {
    let mut stand = Stand::clocked(&configuration("gpu-realloc", 0.0));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    stand.command(&start(4, false));
    // Hooks come and go: the trial goes on.
    play_until(&mut stand, &mut job, as_it_is, |it| {
        it.report.as_ref().is_some_and(|it| it.blocks >= 2)
    });
    job.crash(3);
    stand.play(&mut job, 3);
    job.connect(3).unwrap();
    job.welcome(SOON).unwrap();
    play_until(&mut stand, &mut job, as_it_is, is_over);
    let it = report(&stand);
    assert_eq!(
        (it.state, it.verdict),
        (State::Complete, Verdict::Pays),
        "{it:#?}"
    );
    assert!(it.simulated && it.faster() && !it.slower());
    let gain = it.throughput.unwrap();
    assert!((0.01..0.04).contains(&gain.mean), "{gain:?}");
    assert_eq!((it.blocks, it.found.blocks, it.balanced.blocks), (16, 8, 8));
    assert!(it.power.is_some() && it.watts.is_some());
    stand.play(&mut job, 40);
    assert!(!stand.is_back(), "{:?}", stand.held());
    stand.stop();
}

#[test]
fn an_a_a_trial_moves_no_cap_and_shows_zero() {
    let config = configuration("gpu-realloc", 0.0).replace("\"on\"", "\"observe\"");
    let mut stand = Stand::clocked(&config);
    let mut job = stand.train();
    stand.play(&mut job, 10);
    let (_, why) = stand.try_command(&start(4, false));
    assert!(why.contains("--aa"), "{why}");
    stand.command(&start(4, true));
    play_until(&mut stand, &mut job, as_it_is, is_over);
    let it = report(&stand);
    assert_eq!(
        (it.state, it.verdict),
        (State::Complete, Verdict::Zero),
        "{it:#?}"
    );
    assert!(!it.faster() && !it.slower() && !it.saved());
    assert!(it.precision.iter().any(|it| it.blocks.is_some()));
    assert!(stand.rig.ledger().is_empty(), "{:?}", stand.held());
    stand.stop();
}

#[test]
fn where_there_is_nothing_to_do_a_trial_says_so_and_moves_nothing() {
    for (scenario, why) in [
        ("no-effect", "the balanced caps are those found"),
        ("no-headroom", "there is nothing to balance"),
    ] {
        let mut stand = on(scenario, &configuration("gpu-realloc", 0.05));
        let mut job = stand.train();
        stand.play(&mut job, 5);
        stand.command(&start(4, false));
        play_until(&mut stand, &mut job, as_it_is, is_over);
        let it = report(&stand);
        assert_eq!(
            (it.verdict, it.blocks),
            (Verdict::Zero, 0),
            "{scenario}: {it:#?}"
        );
        assert!(it.why.contains(why), "{scenario}: {}", it.why);
        assert!(stand.is_back(), "{scenario}: {:?}", stand.held());
        stand.stop();
    }
}

#[test]
fn a_trial_that_shows_harm_restores_the_caps_and_stops_steering() {
    let mut stand = Stand::clocked(&configuration("gpu-realloc", 0.0));
    let mut job = stand.train();
    job.pretend(harmed(&stand));
    stand.command(&start(12, false));
    play_until(&mut stand, &mut job, harmed, is_over);
    let it = report(&stand);
    assert_eq!(it.verdict, Verdict::Harm, "{it:#?}");
    assert!(it.blocks < it.design.blocks() && it.slower());
    // Its own power analysis said so.
    let predicted = it.stops.iter().find(|it| it.share == 0.005).unwrap();
    assert!(
        predicted.blocks.is_some_and(|blocks| it.blocks <= blocks),
        "{it:#?}"
    );
    stand.pass(2.0);
    stand.assert_clean();
    let status = stand.status();
    assert_eq!(status.jobs[0].state, JobState::Suspended);
    assert!(status.node.harm.is_some_and(|why| why.contains("slower")));
    assert!(stand.has_event(EventKind::Trial, "harm: "));
    // Not even the next daemon steers, until somebody resumes it.
    drop(job);
    stand.terminate();
    stand.start();
    let mut job = stand.train();
    stand.play(&mut job, 60);
    assert!(stand.is_back(), "{:?}", stand.held());
    stand.resume();
    assert_eq!(stand.status().node.harm, None);
    stand.play_into_steering(&mut job);
    stand.stop();
}

#[test]
fn the_hold_out_finds_harm_in_production() {
    let mut stand = Stand::clocked(&configuration("gpu-realloc", 0.4));
    let mut job = stand.train();
    play_until(&mut stand, &mut job, harmed, |it| it.harm.is_some());
    stand.pass(2.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    assert!(stand.has_event(EventKind::Trial, "the hold-out has shown"));
    stand.stop();
}

#[test]
fn an_aborted_trial_says_so() {
    let mut stand = Stand::clocked(&configuration("gpu-realloc", 0.0));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    stand.command(&start(4, false));
    play_until(&mut stand, &mut job, as_it_is, |it| {
        it.report.as_ref().is_some_and(|it| it.blocks >= 1)
    });
    stand.command(&Command::StopTrial);
    let it = report(&stand);
    assert_eq!((it.state, it.verdict), (State::Aborted, Verdict::Open));
    assert!(it.why.contains("administrator"));
    stand.play(&mut job, 40);
    assert!(!stand.is_back());
    stand.command(&start(4, false));
    play_until(&mut stand, &mut job, as_it_is, |it| {
        it.report.as_ref().is_some_and(|it| it.blocks >= 1)
    });
    // The daemon dies: what it had changed goes back, and its successor says what became of it.
    drop(stand.daemon.take());
    stand.start();
    let it = report(&stand);
    assert_eq!(it.state, State::Aborted, "{it:#?}");
    assert!(it.why.contains("litd ended"), "{}", it.why);
    stand.stop();
}
