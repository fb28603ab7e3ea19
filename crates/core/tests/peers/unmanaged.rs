//! A GPU on the bus that did not answer when litd looked for devices.

use std::collections::BTreeSet;

use litd_api::{Command, Lease, Mode};
use litd_core::Event;
use litd_units::Watts;

use crate::node::{Node, SECOND, address, beside, config};

/// Three GPUs; a fourth has the address between the first and the second.
fn node() -> Node {
    let mut config = config();
    config.caps.budget = Some(Watts(2890.0));
    let mut node = Node::new(3, config);
    let missing = address(0).replace(":00.0", ":08.0");
    node.sound(Event::Unmanaged(BTreeSet::from([missing])));
    node
}

/// A node whose GPUs are all on the bus and none of which answered when litd looked for devices.
#[test]
fn no_budget_is_promised_where_no_gpu_answers() {
    let _beside = beside();
    let mut config = config();
    config.caps.budget = Some(Watts(4800.0));
    let mut node = Node::new(0, config);
    node.sound(Event::Unmanaged((0..8).map(address).collect()));
    let lease = Lease {
        controller: "rack".to_owned(),
        seconds: 60.0,
        mode: None,
        budget: Some(Watts(4000.0)),
    };
    let asked = [
        Command::SetBudget {
            watts: Some(Watts(4000.0)),
        },
        Command::Lease(lease),
    ];
    for command in asked {
        let refused = node.command(command, &mut |reply| reply).unwrap_err();
        assert!(refused.error.contains("reads none"), "{}", refused.error);
    }
    // The one in the file is not kept, and that is told.
    (0..15).for_each(|_| node.pass(1_000_000_000));
    let told = node.events();
    assert!(told.iter().any(|it| it.contains("is not kept")), "{told:?}");
}

#[test]
fn a_schedulers_numbers_count_it() {
    let _beside = beside();
    let mut node = node();
    let mut begin = |gpu: &str| {
        let command = Command::BeginJob {
            job: format!("slurm-{gpu}"),
            gpus: vec![gpu.to_owned()],
            opt_out: true,
        };
        let done = node.command(command, &mut |reply| reply).unwrap();
        let out = node.status().devices.into_iter().filter(|it| it.opted_out);
        let out = out.map(|it| it.address).collect::<BTreeSet<_>>();
        (done.message, out)
    };
    let (said, out) = begin("1");
    assert!(said.contains("this node has no GPU 1"), "{said}");
    assert!(out.is_empty(), "{out:?}");
    assert_eq!(begin("2").1, BTreeSet::from([address(1)]));
    assert_eq!(begin("0").1, BTreeSet::from([address(0), address(1)]));
}

/// How many GPUs a job is spared on that has opted out, so many seconds after another has begun on the same one and
/// processes of these jobs use it.
fn spared_beside_another(seconds: usize, users: &[u32]) -> usize {
    let mut node = Node::new(2, config());
    for (job, opt_out) in [("slurm-1", true), ("slurm-2", false)] {
        let command = Command::BeginJob {
            job: job.to_owned(),
            gpus: vec!["0".to_owned()],
            opt_out,
        };
        node.command(command, &mut |reply| reply).unwrap();
        node.pass(1_000_000_000);
    }
    node.users = users.to_vec();
    node.attach(0, 2);
    (0..seconds).for_each(|_| node.pass(1_000_000_000));
    let devices = node.status().devices.into_iter();
    devices.filter(|it| it.opted_out).count()
}

#[test]
fn jobs_that_share_a_gpu_keep_what_one_of_them_was_promised() {
    let _beside = beside();
    // Slurm's shards: both are there.
    assert_eq!(spared_beside_another(700, &[1, 2]), 1);
    // The end of the first was not heard, or nobody tells whose processes those are: its scheduler has given the GPU
    // to another job.
    for users in [&[2][..], &[]] {
        assert_eq!(spared_beside_another(1, users), 0);
        assert_eq!(spared_beside_another(700, users), 0);
    }
}

#[test]
fn a_cap_by_hand_that_leaves_it_no_room_is_refused_at_once() {
    let _beside = beside();
    let mut node = node();
    let command = Command::SetCap {
        device: address(0),
        watts: Watts(745.0),
    };
    // 2,890 W less the 750 W that it may hold, of which the others have 1,400 W.
    let refused = node.command(command, &mut |reply| reply).unwrap_err();
    assert!(refused.error.contains("of 2140 W"), "{}", refused.error);
}

fn begins(node: &mut Node, job: &str, opt_out: bool) {
    let (job, gpus) = (job.to_owned(), vec!["0".to_owned()]);
    let command = Command::BeginJob { job, gpus, opt_out };
    node.command(command, &mut |reply| reply).unwrap();
    node.pass(1_000_000_000);
}

fn spared(node: &Node) -> usize {
    let devices = node.status().devices.into_iter();
    devices.filter(|it| it.opted_out).count()
}

/// A job that opted out shares its GPU with others that come and go, and is between two of its steps when one comes.
#[test]
fn a_job_that_opted_out_is_missed_for_ten_minutes_in_a_row() {
    let _beside = beside();
    let mut node = Node::new(2, config());
    begins(&mut node, "slurm-1", true);
    begins(&mut node, "slurm-2", false);
    node.users = vec![2];
    node.wait(30);
    assert_eq!(spared(&node), 0);
    let (job, gpus) = ("slurm-2".to_owned(), vec!["0".to_owned()]);
    let end = Command::EndJob { job, gpus };
    node.command(end, &mut |reply| reply).unwrap();
    node.users = vec![1];
    node.wait(3600);
    assert_eq!(spared(&node), 1);
    begins(&mut node, "slurm-3", false);
    node.users = vec![1, 3];
    node.wait(20);
    node.users = vec![3];
    node.wait(300);
    assert_eq!(spared(&node), 1, "{:?}", node.events());
    node.wait(600);
    assert_eq!(spared(&node), 0);
}

/// A job that opted out was missed, and its scheduler begins it once more under the same name.
#[test]
fn a_job_that_opted_out_and_is_begun_anew_is_missed_from_then_on() {
    let _beside = beside();
    let mut node = Node::new(2, config());
    begins(&mut node, "slurm-1", true);
    begins(&mut node, "slurm-2", false);
    node.users = vec![2];
    node.wait(500);
    begins(&mut node, "slurm-1", true);
    assert_eq!(spared(&node), 1);
    begins(&mut node, "slurm-3", false);
    node.users = vec![1, 3];
    node.wait(20);
    node.users = vec![3];
    node.wait(500);
    assert_eq!(spared(&node), 1, "{:?}", node.events());
    node.wait(200);
    assert_eq!(spared(&node), 0);
}

/// The second of two jobs has begun later, also where the wall clock was set back meanwhile.
#[test]
fn a_job_that_opted_out_has_ended_whatever_the_wall_clock_says() {
    let _beside = beside();
    for step in [1.0, -3600.0] {
        let mut node = Node::new(2, config());
        node.core.wall_clock(node.now, 1e9);
        begins(&mut node, "slurm-1", true);
        node.core.wall_clock(node.now, 1e9 + step);
        begins(&mut node, "slurm-2", false);
        node.users = vec![1, 2];
        node.wait(20);
        assert_eq!(spared(&node), 1, "{step} s: {:?}", node.events());
        node.users = vec![2];
        node.wait(700);
        assert_eq!(spared(&node), 0, "{step} s: {:?}", node.events());
    }
}

/// Where a budget is refused only because litd has just started and has not read a GPU, that is said.
#[test]
fn a_budget_is_refused_until_gpus_are_read_and_the_remedy_is_said() {
    let _beside = beside();
    let mut config = config();
    config.mode = Mode::Observe;
    let mut node = Node::with_silent(2, 0, config.clone(), 1);
    let budget = |watts| Command::SetBudget {
        watts: Some(Watts(watts)),
    };
    let refused = node.command(budget(900.0), &mut |reply| reply).unwrap_err();
    assert!(
        refused.error.contains("ask again in a second"),
        "{refused:?}"
    );
    // A budget that no GPU keeps is refused in other words once all were read.
    let mut node = Node::new(2, config);
    node.pass(SECOND);
    let refused = node.command(budget(100.0), &mut |reply| reply).unwrap_err();
    assert!(!refused.error.contains("ask again"), "{refused:?}");
    node.command(budget(900.0), &mut |reply| reply).unwrap();
}
