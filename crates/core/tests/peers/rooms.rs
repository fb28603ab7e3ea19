//! More than there is room for: the daemon does not grow, and jobs of realistic size don't notice.

use std::fs;

use litd_core::{SessionId, Table};
use litd_proto::{Class, FromHook, Kernels};
use litd_units::Nanos;

use crate::node::{Node, alone, beside, config};

const MIB: usize = 1 << 20;

/// Memory of this process, in bytes.
fn memory() -> usize {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<usize>().unwrap() * 1024
}

fn kernels(iteration: u64, count: usize, new_names: Vec<String>) -> FromHook {
    FromHook::Kernels(Kernels {
        iteration,
        duration: Nanos(1_000_000_000),
        new_names,
        name: vec![0; count],
        stream: vec![7; count],
        class: vec![Class::Computation; count],
        start: (0..count).map(|k| Nanos(10_000 * k as i64)).collect(),
        duration_of: vec![Nanos(9_000); count],
        shows_collectives: true,
    })
}

/// As many long names as one message may have, unlike any before.
fn long_names(round: usize) -> Vec<String> {
    let name = |k: usize| format!("{:016384}", round * 1000 + k);
    (0..63).map(name).collect()
}

/// A rank connects over and over, each time with other names, while `beside` ranks stay.
fn reconnects(beside: usize) -> (Node, SessionId) {
    let ranks = beside + 1;
    let mut node = Node::new(8, config());
    for gpu in 1..ranks {
        let session = node.attach(gpu, ranks as u32);
        node.say(session, &kernels(1, 10, vec!["gemm".to_owned()]));
    }
    let before = memory();
    let mut session = node.attach(0, ranks as u32);
    for round in 0..130 {
        node.say(session, &kernels(1, 1, long_names(round)));
        assert!(!node.is_closed(session), "round {round}");
        session = node.attach(0, ranks as u32);
    }
    let more = memory().saturating_sub(before);
    // Twice: while names are numbered anew there are two tables.
    let most = 2 * Table::Names.of_a_gpu(8) * ranks + 8 * MIB;
    assert!(more < most, "{} KiB more", more / 1024);
    (node, session)
}

#[test]
fn names_of_ranks_that_connect_anew_do_not_add_up() {
    let _alone = alone();
    let (mut node, session) = reconnects(0);
    node.say(session, &kernels(2, 10, vec!["gemm".to_owned()]));
    assert_eq!(node.status().jobs[0].samples, 0);
    assert!(!node.is_closed(session));
}

#[test]
fn nor_where_other_ranks_stay_whose_names_are_still_theirs() {
    let _alone = alone();
    let (mut node, session) = reconnects(1);
    // The names that stayed have other numbers now. Samples show whether they are the right ones.
    let samples = node.status().jobs[0].samples;
    let other = SessionId(1);
    for iteration in 2..5 {
        let names = match iteration {
            2 => vec!["gemm".to_owned()],
            _ => Vec::new(),
        };
        node.say(session, &kernels(iteration, 40, names));
        node.say(other, &kernels(iteration, 40, Vec::new()));
        node.pass(1_000_000_000);
    }
    assert_eq!(node.counted("unaligned"), 0);
    assert_eq!(node.status().jobs[0].samples, samples + 3);
}

#[test]
fn one_rank_has_the_room_of_one_gpu_for_its_names() {
    let _beside = beside();
    let mut limits = config();
    limits.limits.name_bytes = 8 * MIB;
    let mut node = Node::new(8, limits);
    let session = node.attach(0, 1);
    node.say(session, &kernels(1, 1, long_names(0)));
    assert!(!node.is_closed(session));
    node.say(session, &kernels(2, 1, long_names(1)));
    assert!(node.is_closed(session));
    assert_eq!(node.counted("names"), 1);
    let events = node.core.events(0).events;
    let said = events
        .iter()
        .find(|it| it.text.contains("kernel names that take more"));
    assert!(said.is_some_and(|it| it.warning), "{events:#?}");
    // A rank of a real job names some hundreds, of some hundred bytes each.
    let session = node.attach(0, 1);
    let real = (0..1500).map(|k| format!("{k:0500}")).collect();
    node.say(session, &kernels(3, 1500, real));
    assert!(!node.is_closed(session));
}

#[test]
fn samples_that_never_become_whole_are_dropped_for_the_room_they_take() {
    let _alone = alone();
    let mut node = Node::new(8, config());
    let ranks: Vec<SessionId> = (0..8).map(|gpu| node.attach(gpu, 8)).collect();
    let before = memory();
    let names = || vec!["gemm".to_owned()];
    for iteration in 1..12 {
        // Of each iteration one rank's part is missing.
        for &rank in &ranks[1..] {
            node.say(rank, &kernels(iteration, 100_000, names()));
        }
        let more = memory().saturating_sub(before);
        // And what decoding the last frame took.
        assert!(
            more < Table::Samples.bytes() + 24 * MIB,
            "{} KiB",
            more / 1024
        );
    }
    assert!(node.counted("sample_room") > 0);
    let job = &node.status().jobs[0];
    assert!(job.why.contains("samples left out"), "{}", job.why);
    // A sample of that size, which is as large as any, does fit.
    for &rank in &ranks {
        node.say(rank, &kernels(20, 100_000, names()));
    }
    node.pass(1_000_000_000);
    assert_eq!(node.status().jobs[0].samples, 1);
}

#[test]
fn a_scheduler_that_ends_job_after_job_fills_nothing() {
    let _alone = alone();
    use litd_api::Command;
    let mut node = Node::new(1, config());
    let before = memory();
    for number in 0..40_000 {
        let end = Command::EndJob {
            job: format!("slurm-{number:0100}"),
            gpus: Vec::new(),
        };
        node.command(end, &mut |reply| reply).unwrap();
    }
    let more = memory().saturating_sub(before);
    assert!(more < 8 * MIB, "{} KiB", more / 1024);
    assert!(node.counted("ended_jobs") > 0);
}
