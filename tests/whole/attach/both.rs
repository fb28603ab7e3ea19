//! A job whose processes can be measured in both ways that need no hook: they ask as PyTorch's client does, and write
//! rings as litd's plugin for NCCL and RCCL does. Each rank counts once, in the way that has come to it first, and the
//! other way says so. SIMULATED.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::thread;
use std::time::Duration;

use litd_api::{EventKind, SampledJob};

use super::rings::{Node, directory};
use super::{Namespace, ON, alone, job};
use crate::stand::{GPUS, quick};

/// Longer than litd takes to find rings, or processes that ask, several times over.
const WHILE: Duration = Duration::from_secs(6);

/// What both ways say of a job.
const BY_TRACES: &str = "its processes are measured by Kineto on demand already";
const BY_RINGS: &str = "its processes are measured by arrivals at collectives already";

/// A node on which litd may use both ways; nobody uses a GPU yet. `None`, and a sentence on why, where no namespace can
/// be made.
fn node(rings: tempfile::TempDir) -> Option<(Node, Namespace)> {
    let namespace = alone()?;
    let traces = "attach.kineto_samples = true\nattach.kineto_every_seconds = 30.0\n";
    let config = format!("{}{ON}{traces}", quick("gpu-realloc"));
    Some((Node::without_gpus(&config, rings)?, namespace))
}

impl Node {
    /// The job's processes ask for traces from now on, in this manner.
    fn ask(&mut self, manner: &str) {
        for writer in &mut self.writers {
            assert_eq!(writer.does(&format!("asks {manner}")), "done");
        }
    }

    /// What litd says of the job as one that it samples by traces, and by rings.
    fn said_of_both(&self) -> [String; 2] {
        let words = |jobs: Vec<SampledJob>| {
            let first = jobs.into_iter().next();
            first.map_or_else(String::new, |it| it.text)
        };
        let told = self.stand.traceable();
        [words(told.sampled), words(self.seen().sampled)]
    }

    /// The job has each rank once, and is measured in this way.
    fn counts_once(&self, way: &str) {
        let jobs = self.stand.status().jobs;
        let names: Vec<&str> = jobs.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names.len(), 1, "{names:?}");
        assert_eq!(jobs[0].ranks.len(), GPUS);
        let measured = jobs[0].measured.as_deref().unwrap_or_default();
        assert!(measured.starts_with(way), "{measured}");
    }

    /// A hook connects, and both ways leave the job to it.
    fn has_a_hook(&mut self) {
        let socket = self.stand.rig.layout().ingest();
        self.writers[3].does(&format!("hook {}", socket.display()));
        self.wait("the end of both ways", |node| job(&node.stand).is_none());
        self.wait("a word of both", |node| {
            let said = node.said_of_both();
            said.iter()
                .all(|it| it.contains("the hook, which shows more"))
        });
    }
}

#[test]
fn ranks_that_record_traces_are_not_measured_by_their_rings_too() {
    let rings = directory();
    let mode = |mode| Permissions::from_mode(mode);
    // As long as users could replace each other's rings litd reads none.
    fs::set_permissions(rings.path(), mode(0o777)).unwrap();
    let Some((mut node, _namespace)) = node(rings) else {
        return;
    };
    node.ask("");
    node.take_gpus();
    node.pass_until("traces", |node| {
        node.said_of_both()[0].contains("samples so far")
    });
    fs::set_permissions(node.directory.path(), mode(0o1777)).unwrap();
    node.pass_until("a word of the rings", |node| {
        node.said_of_both()[1].contains(BY_TRACES)
    });
    // Collectives are written, and none of them becomes a sample.
    let samples = |node: &Node| job(&node.stand).map(|it| (it.samples, it.ranks[0].iteration));
    let before = samples(&node);
    for _ in 0..12 {
        node.runs_once();
        thread::sleep(WHILE / 12);
    }
    assert_eq!(samples(&node), before);
    assert!(node.said_of_both()[1].contains(BY_TRACES));
    node.counts_once("Kineto on demand");
    assert_eq!(node.stand.moved(), 0);
    node.has_a_hook();
}

#[test]
fn ranks_that_are_measured_by_rings_are_not_asked_for_traces_too() {
    let Some((mut node, _namespace)) = node(directory()) else {
        return;
    };
    node.take_gpus();
    node.begins();
    node.ask("");
    node.pass_until("a word of the traces", |node| {
        node.said_of_both()[0].contains(BY_RINGS)
    });
    // Twice the time between two traces.
    node.stand.pass(60.0);
    thread::sleep(WHILE);
    assert_eq!(node.stand.traceable().datagrams.told, 0);
    node.counts_once("arrivals at collectives");
    // Neither of it is an error.
    assert_eq!(node.stand.events(EventKind::Fault), [""; 0]);
    node.has_a_hook();
}

/// Rather than being measured in no way at all.
#[test]
fn a_job_that_is_asked_for_no_more_traces_is_left_to_its_rings() {
    let rings = directory();
    let mode = |mode| Permissions::from_mode(mode);
    fs::set_permissions(rings.path(), mode(0o777)).unwrap();
    let Some((mut node, _namespace)) = node(rings) else {
        return;
    };
    node.ask("and spoils");
    node.take_gpus();
    node.pass_until("traces", |node| {
        node.said_of_both()[0].contains("samples so far")
    });
    fs::set_permissions(node.directory.path(), mode(0o1777)).unwrap();
    // Each failure doubles the time until the next trace.
    for _ in 0..40 {
        if node.said_of_both()[0].contains("sampled no more: 5 traces in a row") {
            break;
        }
        node.wait("the end of a trace", |node| {
            !node.said_of_both()[0].contains("is being recorded")
        });
        node.stand.pass(30.0);
        thread::sleep(Duration::from_millis(600));
    }
    node.begins();
    node.counts_once("arrivals at collectives");
    let [traces, _] = node.said_of_both();
    assert!(traces.contains("5 traces in a row have failed"), "{traces}");
}
