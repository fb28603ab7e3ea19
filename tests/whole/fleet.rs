//! The example of a fleet controller in `fleet/dps`, with a made-up `dpsctl`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command};

use litd_api::Mode;
use litd_units::Watts;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::stand::{GPUS, Stand, quick, quick_with_switch, wait_for};

/// Where `dpsctl` looks for what it says.
struct Dps(TempDir);

/// The program, which ends with the test, at once.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Dps {
    fn new() -> Self {
        let dps = Self(tempfile::tempdir().unwrap());
        let dpsctl = dps.0.path().join("dpsctl");
        let folder = dps.0.path().display();
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in\n\
             '--port 1 resource-group list --active') exec cat {folder}/groups ;;\n\
             '--port 1 policy list') exec cat {folder}/policies ;;\n*) exit 64 ;;\nesac\n"
        );
        fs::write(&dpsctl, script).unwrap();
        fs::set_permissions(&dpsctl, fs::Permissions::from_mode(0o755)).unwrap();
        dps.policies(
            &json!([{"ElementType": "Node", "PowerLimit": {"Watts": 10_200}},
            {"ElementType": "GPU", "PowerLimit": {"Watts": 5400}}]),
        );
        dps.group("node001", json!({}));
        dps
    }

    /// The limits of the policy Node-High.
    fn policies(&self, limits: &Value) {
        let low = json!([{"ElementType": "GPU", "PowerLimit": {"Watts": 100}}]);
        let policies = json!([{"Name": "Node-Low", "Limits": low},
            {"Name": "Node-High", "Limits": limits}]);
        self.put("policies", &policies.to_string());
    }

    /// The only active group: which node is in it, and what else is said of it.
    fn group(&self, node: &str, more: Value) {
        let mut group = json!({"group_name": "train", "external_id": 7,
            "activation_status": "active", "policy_name": "Node-High",
            "resource_names": ["node000", node], "resource_policies": [], "properties": {},
            "prs_enabled": false, "dpm_enable": true});
        for (key, value) in more.as_object().unwrap() {
            group[key] = value.clone();
        }
        self.put("groups", &json!({"resource_groups": [group]}).to_string());
    }

    fn put(&self, name: &str, text: &str) {
        // In one step: it may be being read.
        let new = self.0.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.0.path().join(name)).unwrap();
    }

    /// The program, for litd on `stand`.
    fn renews(&self, stand: &Stand) -> Program {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("fleet/dps/litd-dps-lease");
        let dpsctl = format!("{} --port 1", self.0.path().join("dpsctl").display());
        let stderr = fs::File::create(self.0.path().join("said")).unwrap();
        let mut command = Command::new("python3");
        command
            .arg(program)
            .args(["--node", "node001", "--seconds", "30", "--every", "0.2"])
            .args(["--dpsctl", &dpsctl, "--socket"])
            .arg(stand.rig.layout().control())
            .stderr(stderr);
        Program(command.spawn().unwrap())
    }

    /// Waits until the program says something.
    fn wait_until_it_says(&self, part: &str) {
        let said = || fs::read_to_string(self.0.path().join("said")).unwrap();
        wait_for(part, || {
            said().lines().last().is_some_and(|it| it.contains(part))
        });
    }
}

fn leased(stand: &Stand) -> Option<Watts> {
    stand.status().node.lease.and_then(|it| it.budget)
}

fn wait_for_budget(stand: &Stand, watts: f64) {
    let budget = Some(Watts(watts));
    wait_for("the lease", || leased(stand) == budget);
}

/// More than a lease's time passes, and nobody has renewed it.
fn assert_safe(stand: &mut Stand) {
    stand.pass(33.0);
    assert_eq!(stand.status().node.lease, None);
    assert!(stand.sum() <= Watts(4800.0), "{}", stand.sum());
}

fn safe() -> Stand {
    Stand::clocked(&(quick("gpu-realloc") + "caps.safe_budget = 4800\n"))
}

#[test]
fn what_dps_grants_is_leased_until_it_or_the_program_is_gone() {
    let mut stand = safe();
    let dps = Dps::new();
    let program = dps.renews(&stand);
    wait_for_budget(&stand, 5400.0);
    stand.pass(3.0);
    assert!(stand.sum() > Watts(5300.0), "{}", stand.sum());
    // A percentage is of the most that the GPUs may have.
    dps.policies(&json!([{"ElementType": "GPU", "PowerLimit": {"Percentage": 87.5}}]));
    let most: f64 = (0..GPUS).map(|gpu| stand.device(gpu).ceiling.0).sum();
    let granted = most * 0.875;
    wait_for_budget(&stand, granted);
    stand.pass(3.0);
    assert!(stand.sum() <= Watts(granted), "{}", stand.sum());
    // DPS no longer answers.
    dps.put("groups", "Error: connection refused");
    dps.wait_until_it_says("not renewed");
    assert_safe(&mut stand);
    dps.group("node001", json!({}));
    wait_for_budget(&stand, granted);
    // Killed.
    drop(program);
    assert_safe(&mut stand);
    stand.stop();
}

#[test]
fn what_dps_does_not_grant_is_not_leased() {
    let stand = safe();
    let dps = Dps::new();
    dps.group("node002", json!({}));
    let _program = dps.renews(&stand);
    dps.wait_until_it_says("node001 is in 0 active resource groups");
    for (more, said) in [
        (json!({"policy_name": ""}), "has no policy"),
        (json!({"activation_status": "activating"}), "in 0 active"),
        (json!({"policy_name": "Node-Med"}), "no policy Node-Med"),
        (
            json!({"policy_name": "Node-Low"}),
            "litd says: the budget stays as it was: a budget of",
        ),
        (
            json!({"resource_policies": [{"resource_name": "node001"}]}),
            "of its own",
        ),
        (json!({"resource_names": 1}), "not understood"),
    ] {
        dps.group("node001", more);
        dps.wait_until_it_says(said);
    }
    assert_eq!(stand.status().node.lease, None);
    stand.stop();
}

/// Whatever DPS says, the program goes on to ask, and says what is wrong.
#[test]
fn an_answer_without_end_or_without_bottom_is_refused_by_name() {
    let stand = safe();
    let dps = Dps::new();
    let program = dps.renews(&stand);
    wait_for_budget(&stand, 5400.0);
    let nested = "[".repeat(200_000) + &"]".repeat(200_000);
    let policies = json!([{"ElementType": "GPU", "PowerLimit": {"Watts": 5300}}]);
    for (answer, said) in [
        (
            nested,
            "resource-group list --active: an answer that is nested too deeply",
        ),
        (
            format!("[{}1]", "0, ".repeat(6_000_000)),
            "resource-group list --active: an answer of more than 16 MiB",
        ),
    ] {
        dps.put("groups", &answer);
        dps.wait_until_it_says(said);
    }
    dps.policies(&policies);
    dps.group("node001", json!({}));
    wait_for_budget(&stand, 5300.0);
    drop(program);
    stand.stop();
}

#[test]
fn a_kill_switch_is_stronger_than_a_fleet_controller() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("off");
    let config = quick_with_switch("gpu-realloc", &file);
    let mut stand = Stand::clocked(&config);
    let mut job = stand.train();
    let dps = Dps::new();
    let _program = dps.renews(&stand);
    wait_for_budget(&stand, 5400.0);
    stand.play_into_steering(&mut job);
    fs::write(&file, "").unwrap();
    stand.pass(5.0);
    assert_eq!(stand.status().node.mode, Mode::Off);
    assert!(stand.is_back(), "{:?}", stand.held());
    // However often it is renewed.
    dps.policies(&json!([{"ElementType": "GPU", "PowerLimit": {"Watts": 5300}}]));
    let leased = || stand.status().node.lease.and_then(|it| it.budget);
    wait_for("the lease", || leased() == Some(Watts(5300.0)));
    stand.pass(3.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    stand.stop();
}
