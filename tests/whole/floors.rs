//! Budgets that can't be kept, because all floors together are more: refused by hand, in a file, in a
//! reload of it.

use std::fs;
use std::path::Path;
use std::process::Command;

use litd_api::EventKind;
use litd_rig::Daemon;
use litd_units::Watts;

use crate::restore::run;
use crate::stand::{GPUS, LITD, Stand, quick, wait_for};

/// All floors together are eight times 300 W; the file alone does not say that there are eight.
const TOO_LITTLE: [(&str, &str); 3] = [
    ("caps.budget = 1500\n", "caps.budget"),
    ("caps.safe_budget = 1500\n", "caps.safe_budget"),
    ("node.budget = 1500\n", "node.budget"),
];

#[test]
fn a_file_whose_budget_is_below_all_floors_is_refused_as_by_hand() {
    let stand = Stand::bare("", false);
    let file = stand.rig.layout().config();
    for (line, key) in TOO_LITTLE {
        fs::write(&file, stand.rig.config(line)).unwrap();
        for arguments in [vec!["--check-config"], vec![]] {
            let (code, said) = run(Path::new(LITD), &arguments, &file);
            assert_eq!(code, Some(2), "{key}: {said}");
            let why = "a budget of 1500 W can't be kept: the GPUs' floors add up to 2400 W";
            assert!(said.contains(&format!(": {key}: {why}")), "{said}");
        }
    }
    // A budget above all ceilings bounds nothing, and one file may be for all nodes of a fleet.
    for line in ["caps.budget = 2400\n", "caps.budget = 50000\n", ""] {
        fs::write(&file, stand.rig.config(line)).unwrap();
        let (code, said) = run(Path::new(LITD), &["--check-config"], &file);
        assert_eq!(code, Some(0), "{line}: {said}");
    }
    // Without the hardware the file is all there is to look at, and that is said.
    let config = stand.rig.config("caps.budget = 1500\n");
    let config = config.replace("hardware.sock", "none.sock");
    fs::write(&file, config).unwrap();
    let output = Command::new(LITD)
        .args(["--check-config", "--config"])
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("good; budgets were not compared"), "{said}");
}

#[test]
fn a_reload_with_a_budget_below_all_floors_changes_nothing() {
    let mut stand = Stand::clocked(&(quick("gpu-realloc") + "caps.budget = 5200\n"));
    let hash = stand.status().build.configuration;
    for (line, key) in TOO_LITTLE {
        let count = stand.events(EventKind::Daemon).len();
        // Nor does what else is in the file: the refusal is logged.
        stand.reload(&(quick("gpu-realloc") + line + "log.level = \"error\"\n"));
        wait_for(key, || stand.events(EventKind::Daemon).len() > count);
        assert!(
            stand.has_event(
                EventKind::Daemon,
                &format!("the configuration stays as it was: {key}")
            ),
            "{:?}",
            stand.events(EventKind::Daemon)
        );
        let logged = format!("the configuration stays as it was: {key}");
        wait_for(&logged, || stand.said().contains(&logged));
        assert_eq!(stand.status().gpus.budget.0, 5200.0);
        assert_eq!(stand.status().build.configuration, hash);
    }
    // Floors are not raised above a budget that was accepted.
    let budget = litd_api::Command::SetBudget {
        watts: Some(Watts(2500.0)),
    };
    stand.command(&budget);
    let count = stand.events(EventKind::Daemon).len();
    stand.reload(&(quick("gpu-realloc") + "caps.gpu_floor = 350\n"));
    wait_for("refusal", || stand.events(EventKind::Daemon).len() > count);
    assert!(stand.has_event(EventKind::Daemon, "`litctl budget` has set this budget"));
    let mut job = stand.train();
    stand.play(&mut job, 20);
    assert!(stand.sum().0 <= 2500.0, "{:?}", &stand.held()[..GPUS]);
    stand.stop();
}

#[test]
fn a_daemon_that_is_refused_its_budget_leaves_nothing_behind() {
    let stand = Stand::bare("caps.budget = 1500\n", false);
    let daemon = Daemon::spawn(
        Path::new(LITD),
        &stand.rig.layout().directory,
        stand.config(),
        None,
    );
    assert!(daemon.is_err());
    assert!(stand.rig.ledger().is_empty());
    assert!(stand.said().contains("the GPUs' floors add up to 2400 W"));
}

/// A budget of the whole node, of which the GPUs get so much.
fn leaving(gpus: f64, stand: &Stand) -> String {
    let cpus: Watts = stand.rig.ledger().found()[GPUS..].iter().copied().sum();
    let budget = Watts(gpus + 800.0) + cpus;
    format!("node.budget = {}\nnode.reserve = 800\n", budget.0)
}

const LEFT: &str =
    "leaves 2399 W to the GPUs, whose floors add up to 2400 W, once node.reserve (800 W)";

#[test]
fn a_node_budget_that_leaves_the_gpus_less_than_their_floors_is_refused() {
    let stand = Stand::bare("", false);
    let file = stand.rig.layout().config();
    fs::write(&file, stand.rig.config(&leaving(2399.0, &stand))).unwrap();
    for arguments in [vec!["--check-config"], vec![]] {
        let (code, said) = run(Path::new(LITD), &arguments, &file);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(": node.budget: "), "{said}");
        assert!(said.contains(LEFT), "{said}");
    }
    fs::write(&file, stand.rig.config(&leaving(2400.0, &stand))).unwrap();
    let (code, said) = run(Path::new(LITD), &["--check-config"], &file);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_reload_with_a_node_budget_that_leaves_less_than_the_floors_changes_nothing() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    stand.pass(2.0);
    let (held, hash) = (stand.held(), stand.status().build.configuration);
    stand.reload(&(quick("gpu-realloc") + &leaving(2399.0, &stand)));
    wait_for("refusal", || stand.has_event(EventKind::Daemon, LEFT));
    assert_eq!(stand.status().build.configuration, hash);
    stand.pass(5.0);
    assert_eq!(stand.held(), held);
    stand.reload(&(quick("gpu-realloc") + &leaving(2400.0, &stand)));
    wait_for("reload", || stand.status().build.configuration != hash);
    stand.pass(5.0);
    assert_eq!(stand.sum(), Watts(2400.0), "{:?}", stand.held());
    stand.stop();
}

#[test]
fn a_lower_budget_in_the_file_takes_the_place_of_litctls_and_a_higher_one_does_not() {
    let mut stand = Stand::clocked("caps.budget = 5400\n");
    let budget = |stand: &Stand| stand.status().gpus.budget;
    let set = Some(Watts(5000.0));
    stand.command(&litd_api::Command::SetBudget { watts: set });
    stand.reload("caps.budget = 5300\n");
    stand.pass(2.0);
    assert_eq!(budget(&stand), Watts(5000.0));
    stand.reload("caps.budget = 4600\n");
    stand.pass(3.0);
    assert_eq!(budget(&stand), Watts(4600.0));
    assert!(stand.sum() <= Watts(4600.0), "{:?}", stand.held());
    assert!(stand.has_event(EventKind::Command, "takes the place of the 5000 W"));
    stand.stop();
}
