//! `litctl caps` against the real daemon on a simulated node.

use std::process::{Command, Output};

use litd_rig::{Daemon, Fault, Rig};
use litd_sim::Scenario;
use litd_units::Watts;
use serde_json::Value;

use crate::LITCTL;

struct Node {
    // Dropped first: it is ended through what lies in the rig's directory.
    _daemon: Daemon,
    rig: Rig,
}

fn node() -> Node {
    let rig = Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
    let litd = litd_rig::program("litd").unwrap();
    let daemon = rig.spawn(&litd, &rig.config("")).unwrap();
    Node {
        _daemon: daemon,
        rig,
    }
}

impl Node {
    fn litctl(&self, arguments: &[&str]) -> Output {
        Command::new(LITCTL)
            .args(arguments)
            .env("LITD_CONTROL", self.rig.layout().control())
            .output()
            .unwrap()
    }

    fn text(&self, arguments: &[&str]) -> String {
        let output = self.litctl(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn every_device_is_listed_with_what_it_may_hold_and_holds() {
    let node = node();
    let table = node.text(&["caps"]);
    assert!(table.starts_with("SIMULATED"), "{table}");
    assert_eq!(table.lines().count(), 2 + 10, "{table}");
    let gpu3 = table.lines().find(|line| line.starts_with("gpu3")).unwrap();
    for part in ["0000:35:00.0", "700 W", "300 W", "750 W", "litd"] {
        assert!(gpu3.contains(part), "{gpu3}");
    }
    let listed: Value = serde_json::from_str(&node.text(&["caps", "--json"])).unwrap();
    assert_eq!(listed["devices"].as_array().unwrap().len(), 10);
    assert_eq!(listed["simulated"], true);
}

#[test]
fn a_cap_set_by_hand_is_read_back_before_litctl_says_so() {
    let node = node();
    let said = node.text(&["caps", "set", "gpu3", "650"]);
    assert_eq!(said, "gpu3 holds 650 W\n");
    assert_eq!(node.rig.ledger().held()[3], Watts(650.0));
    let said = node.text(&["caps", "set", "0000:35:00.0", "650.9W"]);
    assert!(said.contains("holds 650 W"), "{said}");
}

#[test]
fn what_is_refused_or_fails_has_an_exit_status_and_a_reason() {
    let node = node();
    let stderr = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let refused = node.litctl(&["caps", "set", "gpu3", "820"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = stderr(&refused);
    assert!(
        said.contains("820 W is outside this device's 300 W to 750 W"),
        "{said}"
    );
    node.rig.hardware().inject(3, Fault::Refuse);
    let failed = node.litctl(&["caps", "set", "gpu3", "640"]);
    assert_eq!(failed.status.code(), Some(2));
    assert!(
        stderr(&failed).contains("the firmware refuses"),
        "{}",
        stderr(&failed)
    );
    assert_eq!(node.rig.ledger().held()[3], Watts(700.0));
    let none = node.litctl(&["caps", "set", "gpu3", "-5"]);
    assert_eq!(none.status.code(), Some(2));
}
