//! `litctl lease follow` against the real daemon on a simulated node, with a file as Kubernetes
//! mounts a ConfigMap.
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use litd_rig::{Daemon, Rig};
use litd_sim::Scenario;
use litd_units::{Nanos, Watts};
use serde_json::Value;
use tempfile::TempDir;

use crate::LITCTL;

/// The power that the node may draw without a lease.
const SAFE: f64 = 4800.0;

const CONFIG: &str = "mode = \"on\"\npolicy = \"gpu-realloc\"\ncaps.safe_budget = 4800\n";

/// A daemon on a node, and a ConfigMap.
pub struct Node {
    daemon: Option<Daemon>,
    rig: Rig,
    folder: TempDir,
    versions: u32,
}

/// A program that ends with the test, at once.
pub struct Following(pub Child);

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Node {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let litd = litd_rig::program("litd").unwrap();
        let mut rig = Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
        let config = rig.config(CONFIG);
        let daemon = Some(rig.spawn_clocked(&litd, &config).unwrap());
        Self {
            daemon,
            rig,
            folder,
            versions: 0,
        }
    }

    /// Another version of the ConfigMap, as the kubelet puts it there: a folder, and a link that
    /// is moved in one step.
    fn write(&mut self, text: &str) {
        let mount = self.folder.path();
        self.versions += 1;
        let version = format!("..{}", self.versions);
        fs::create_dir(mount.join(&version)).unwrap();
        fs::write(mount.join(&version).join("lease.toml"), text).unwrap();
        symlink(&version, mount.join("..new")).unwrap();
        fs::rename(mount.join("..new"), mount.join("..data")).unwrap();
        if self.versions == 1 {
            symlink("..data/lease.toml", mount.join("lease.toml")).unwrap();
        }
    }

    pub fn litctl(&self) -> Command {
        let mut litctl = Command::new(LITCTL);
        litctl.env("LITD_CONTROL", self.rig.layout().control());
        litctl
    }

    fn follow(&self) -> Following {
        let mut litctl = self.litctl();
        litctl
            .args(["lease", "follow", "--node", "n17"])
            .args(["--seconds", "30", "--every", "1"])
            .arg(self.folder.path().join("lease.toml"))
            .stderr(Stdio::null());
        Following(litctl.spawn().unwrap())
    }

    /// The lease, as litctl shows it.
    pub fn lease(&self) -> Value {
        let output = self.litctl().args(["lease", "--json"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub fn wait_for(&self, what: &str, done: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !done(&self.lease()) {
            assert!(Instant::now() < deadline, "{what}: {}", self.lease());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn pass(&mut self, seconds: u32) {
        for _ in 0..2 * seconds {
            self.rig.advance(Nanos(500_000_000)).unwrap();
        }
    }

    /// The sum of all GPU caps.
    pub fn sum(&self) -> f64 {
        let held = self.rig.ledger().held();
        held[..8].iter().copied().sum::<Watts>().0
    }

    /// More than a lease's time passes, and nobody has renewed it.
    fn assert_safe(&mut self) {
        self.pass(33);
        assert_eq!(self.lease(), Value::Null);
        assert!(self.sum() <= SAFE, "{}", self.sum());
    }

    pub fn stop(mut self) {
        let daemon = self.daemon.take().unwrap();
        self.rig.ledger().permit_found();
        daemon.ask_to_stop();
        // Time passes for it until it is gone.
        while self.rig.advance(Nanos(200_000_000)).is_ok() {}
        assert_eq!(daemon.terminate().unwrap().code(), Some(0));
        assert_eq!(self.rig.ledger().check(), []);
        assert!(self.rig.ledger().restored());
    }
}

#[test]
fn a_config_map_rules_until_it_or_who_reads_it_is_gone() {
    let mut node = Node::new();
    node.write("mode = \"observe\"\nbudget = 5000\n[nodes.n17]\nmode = \"on\"\nbudget = 5400\n");
    let follower = node.follow();
    node.wait_for("the lease", |it| it["budget"] == 5400.0);
    assert_eq!(node.lease()["mode"], "on");
    node.pass(3);
    assert!((5300.0..=5400.0).contains(&node.sum()), "{}", node.sum());
    // Changed while it is followed.
    node.write("mode = \"on\"\nbudget = 5200\n");
    node.wait_for("another budget", |it| it["budget"] == 5200.0);
    node.pass(3);
    assert!((5100.0..=5200.0).contains(&node.sum()), "{}", node.sum());
    // A path that is no file any more grants nothing, and a new file there does.
    node.write("mode = \"on\"\nbudget = ");
    node.assert_safe();
    node.write("mode = \"on\"\nbudget = 5300\n");
    node.wait_for("a lease again", |it| it["budget"] == 5300.0);
    node.pass(3);
    assert!((5200.0..=5300.0).contains(&node.sum()), "{}", node.sum());
    // Killed.
    drop(follower);
    node.assert_safe();
    node.stop();
}

#[test]
fn a_file_whose_time_is_over_grants_nothing() {
    let mut node = Node::new();
    node.write("budget = 5400\nvalid_until = 2026-01-01T00:00:00Z\n");
    let output = |node: &Node| {
        let path = |it: &Path| it.join("lease.toml");
        let mut litctl = node.litctl();
        litctl.args(["lease", "follow", "--every", "1"]);
        litctl.arg(path(node.folder.path())).stderr(Stdio::piped());
        let mut child = Following(litctl.spawn().unwrap());
        let mut line = String::new();
        let stderr = child.0.stderr.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stderr), &mut line).unwrap();
        line
    };
    assert!(output(&node).contains("not renewed: "), "{}", output(&node));
    assert!(output(&node).contains("valid until 2026-01-01T00:00:00Z"));
    assert_eq!(node.lease(), Value::Null);
    // For as long as it is valid, and no longer.
    node.write("budget = 5400\nvalid_until = 2126-01-01T00:00:00Z\n");
    assert!(output(&node).contains("renewed, budget 5400 W"));
    node.stop();
}
