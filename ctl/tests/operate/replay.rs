//! `litctl replay` where it can't be done; what it does is tried by litlab's tests, on a simulated node.

use std::process::Command;

use crate::LITCTL;

#[test]
fn what_can_not_be_played_is_said() {
    if !litd_rig::is_built("litlab") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let simulated = Command::new(litd_rig::program("litlab").unwrap())
        .args(["simulate", "--workload"])
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/data/oracle/tiny-fsdp.json"
        ))
        .args([
            "--contention",
            "1.15",
            "--speeds",
            "0.9,1.05,1.2,1.1",
            "--write-kineto",
        ])
        .arg(folder.path())
        .status();
    assert!(simulated.unwrap().success());
    let traces = folder.path().to_str().unwrap();
    let refused = |status: i32, arguments: &[&str]| {
        let output = Command::new(LITCTL)
            .args(["replay", traces])
            .args(arguments)
            .env_remove("LITD_SOCKET")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused(2, &[]).contains("--gpus"));
    assert!(refused(2, &["--gpus", "0000:05:00.0"]).contains("--gpus names 1 GPU for 4 ranks"));
    let nobody = folder.path().join("nobody.sock");
    let gpus = "0000:05:00.0,0000:15:00.0,0000:25:00.0,0000:35:00.0";
    let said = refused(1, &["--gpus", gpus, "--ingest", nobody.to_str().unwrap()]);
    assert!(said.contains("is litd running?"), "{said}");
}
