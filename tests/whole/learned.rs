//! Learned caps: whose they are, and what becomes of those that did harm.

use std::fs;
use std::path::PathBuf;

use litd_api::{EventKind, JobState};
use serde_json::Value;
use tempfile::TempDir;

use crate::stand::{Stand, quick};

/// The words of an event that says that a job starts from learned caps.
const RECALLED: &str = "starting from the learned caps";

/// A node where this process, and so every rank, is in the control group that a test says.
struct Pods {
    stand: Stand,
    proc: TempDir,
}

impl Pods {
    fn new() -> Self {
        let proc = tempfile::tempdir().unwrap();
        let rig_config = quick("gpu-realloc");
        let mut stand = Stand::bare(&rig_config, true);
        let config = format!(
            "{rig_config}[hardware]\nsimulated = \"{}\"\nproc = \"{}\"\n",
            stand.rig.layout().hardware().display(),
            proc.path().display()
        );
        stand.configure(&config);
        stand.start();
        Self { stand, proc }
    }

    /// From now on this process is in a pod, or in none.
    fn enter(&self, pod: Option<u32>) {
        let own = self.proc.path().join(std::process::id().to_string());
        fs::create_dir_all(&own).unwrap();
        let group = match pod {
            Some(pod) => format!("0::/kubepods/pod{pod:08x}-aaaa-4bbb-8ccc-0123456789ab\n"),
            None => "0::/user.slice\n".to_owned(),
        };
        fs::write(own.join("cgroup"), group).unwrap();
    }

    fn learned(&self) -> PathBuf {
        self.stand.rig.layout().state().join("learned")
    }

    /// A job runs until it is in one of these states. Returns that, and whether it started from learned caps.
    fn run(&mut self, until: &[JobState]) -> (JobState, bool) {
        let recalls = |stand: &Stand| {
            let events = stand.events(EventKind::Adjustment);
            events.iter().filter(|it| it.contains(RECALLED)).count()
        };
        let before = recalls(&self.stand);
        let mut job = self.stand.train();
        self.stand.play_until(&mut job, "the job's state", |stand| {
            until.contains(&stand.status().jobs[0].state)
        });
        let state = self.stand.status().jobs[0].state;
        job.end();
        self.stand.pass(1.0);
        assert!(self.stand.is_back(), "{:?}", self.stand.held());
        self.stand.rig.hardware().settle();
        (state, recalls(&self.stand) > before)
    }

    fn converges(&mut self) -> bool {
        self.run(&[JobState::Converged]).1
    }
}

#[test]
fn one_pod_teaches_no_other_pod_nor_the_user_of_its_number() {
    let mut pods = Pods::new();
    // Its own next run is helped, in a pod and without one.
    let runs = [(1, false), (1, true), (2, false), (0, false), (0, true)];
    for (pod, recalls) in runs {
        pods.enter((pod > 0).then_some(pod));
        assert_eq!(pods.converges(), recalls, "pod {pod}");
        // Drivers here name no pod of a process: litd finds out in its tenth second, and then steers no more.
        assert_eq!(pods.stand.terminate(), Some(0));
        pods.stand.start();
    }
    pods.stand.stop();
}

/// The distribution that a job has learned, the wrong way round: the slowest GPU gets least.
fn spoil(file: &PathBuf) {
    let mut read: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let known = read["distributions"][0].as_object_mut().unwrap();
    let shares = known["shares"].as_array_mut().unwrap();
    let even = 1.0 / shares.len() as f64;
    for share in shares.iter_mut() {
        *share = Value::from(even + 3.0 * (even - share.as_f64().unwrap()));
    }
    fs::write(file, serde_json::to_vec(&read).unwrap()).unwrap();
}

#[test]
fn learned_caps_that_led_to_a_rollback_are_not_used_again_for_seven_days() {
    let mut pods = Pods::new();
    pods.enter(None);
    assert!(!pods.converges());
    assert_eq!(pods.stand.terminate(), Some(0));
    spoil(&pods.learned());
    pods.stand.start();
    let (state, recalled) = pods.run(&[JobState::Rollback]);
    assert_eq!((state, recalled), (JobState::Rollback, true));
    assert!(pods.stand.has_event(EventKind::State, "forgotten"));
    // Not in the next run, nor in one after that has converged, nor by another litd.
    assert!(!pods.converges());
    assert!(!pods.converges());
    assert_eq!(pods.stand.terminate(), Some(0));
    pods.stand.start();
    assert!(!pods.converges());
    pods.stand.stop();
}
