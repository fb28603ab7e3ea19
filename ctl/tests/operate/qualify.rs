//! `litctl qualify` is `litd qualify`.

use std::fs;
use std::process::{Command, Output};

use litd_rig::Rig;
use litd_sim::Scenario;
use serde_json::Value;

use crate::LITCTL;

fn litctl(arguments: &[&str]) -> Output {
    Command::new(LITCTL).args(arguments).output().unwrap()
}

#[test]
fn options_output_and_exit_status_are_litds() {
    // It lies beside litctl.
    litd_rig::program("litd").unwrap();
    let help = litctl(&["qualify", "--help"]);
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(
        text.contains("--dry-run") && text.contains("Exit status"),
        "{text}"
    );

    let rig = Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
    let config = rig.layout().config();
    fs::write(&config, rig.config("")).unwrap();
    let config = config.to_str().unwrap();
    // The rig's GPUs are used by this process.
    let used = litctl(&["--json", "qualify", "--dry-run", "--config", config]);
    assert_eq!(used.status.code(), Some(3), "{used:?}");
    let report: Value = serde_json::from_slice(&used.stdout).unwrap();
    assert_eq!(report["outcome"], "refused");
    let pid = std::process::id().to_string();
    let free = [
        "qualify",
        "--dry-run",
        "--load-pid",
        &pid,
        "--config",
        config,
        "--json",
    ];
    let free = litctl(&free);
    assert_eq!(free.status.code(), Some(0), "{free:?}");
    assert!(rig.ledger().is_empty());
}
