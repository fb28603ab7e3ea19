//! What one user's jobs cost the GPUs of others: planned clocks nothing, whatever these make room for; caps that are
//! not litd's to lower nothing without a budget, and with one his own GPUs first.

use litd_api::{Command, DeviceState};
use litd_policies::Policy;
use litd_proto::{FromHook, SetClock};
use litd_units::{Hertz, Watts};
use proptest::prelude::*;

use crate::node::{Node, beside, config, hello, pid};

/// A node with some jobs, each of a user of its own.
#[derive(Debug, Clone)]
struct Rented {
    policy: Policy,
    budget: Option<f64>,
    floor: f64,
    /// The cap that each GPU was found with.
    found: Vec<f64>,
    /// The GPUs of each job.
    jobs: Vec<Vec<usize>>,
}

impl Rented {
    /// This node, with ranks on these GPUs that ask for clocks.
    fn node(&self, clocks: &[usize]) -> Node {
        let mut config = config();
        config.policy = self.policy;
        config.caps.budget = self.budget.map(Watts);
        config.caps.gpu_floor = Watts(self.floor);
        let found = self.found.iter().copied().map(Watts).collect();
        let mut node = Node::found(found, config);
        node.wait(3);
        for (number, gpus) in self.jobs.iter().enumerate() {
            let join = |node: &mut Node, (rank, &gpu): (usize, &usize)| {
                let uid = 1000 + number as u32;
                node.uids.insert(gpu, uid);
                let session = node.connect_as(pid(gpu), uid);
                let mut hello = hello(gpu, gpus.len() as u32);
                (hello.rank, hello.local_rank) = (rank as u32, rank as u32);
                hello.job = format!("job-{number}");
                node.say(session, &FromHook::Hello(hello));
                assert!(node.core.is_attached(session), "{:?}", node.events());
                (gpu, session)
            };
            let ranks = gpus.iter().enumerate();
            let ranks: Vec<_> = ranks.map(|rank| join(&mut node, rank)).collect();
            for (_, session) in ranks.iter().filter(|(gpu, _)| clocks.contains(gpu)) {
                let clock = Some(Hertz(1.2e9));
                node.say(*session, &FromHook::SetClock(SetClock { clock }));
            }
        }
        node.wait(5);
        let plan = |gpu: usize| node.status().devices[gpu].plan;
        let is_locked = |gpu: usize| plan(gpu).is_some_and(|it| it.locked.is_some());
        for gpu in 0..self.found.len() {
            assert_eq!(is_locked(gpu), clocks.contains(&gpu), "gpu{gpu}");
        }
        node
    }

    /// The caps some time after somebody has set some by hand, with clocks on these GPUs.
    fn beside_caps_by_hand(&self, by_hand: &[(usize, f64)], clocks: &[usize]) -> Vec<f64> {
        let mut node = self.node(clocks);
        for &(gpu, cap) in by_hand {
            node.by_others(gpu, Watts(cap));
            node.wait(7);
        }
        self.caps(&node)
    }

    fn caps(&self, node: &Node) -> Vec<f64> {
        (0..self.found.len()).map(|gpu| node.cap(gpu).0).collect()
    }
}

/// GPUs that are at their floors give nothing, and the others all give as much.
#[test]
fn clocks_cost_no_neighbour_what_gpus_at_their_floors_can_not_give() {
    let _beside = beside();
    let node = Rented {
        policy: Policy::GpuRed,
        budget: Some(1900.0),
        floor: 200.0,
        found: vec![700.0, 700.0, 210.0, 210.0, 700.0],
        jobs: vec![vec![0], vec![1]],
    };
    let alike = Rented {
        budget: Some(2500.0),
        found: vec![700.0; 5],
        ..node.clone()
    };
    for clocks in [[].as_slice(), &[0], &[1], &[0, 1]] {
        let pays = |node: &Rented| node.beside_caps_by_hand(&[(4, 690.0)], clocks);
        assert_eq!(pays(&node), [405.0, 405.0, 200.0, 200.0, 690.0]);
        assert_eq!(pays(&alike), [452.0, 452.0, 452.0, 452.0, 690.0]);
    }
}

/// Without a budget nobody has asked for room: no GPU is lowered because another has a foreign cap, whosever it is, and
/// whether its job is steered, has opted out, or there is none.
#[test]
fn nobody_pays_for_a_foreign_cap_without_a_budget() {
    let _beside = beside();
    let node = Rented {
        policy: Policy::GpuRealloc,
        budget: None,
        floor: 200.0,
        found: vec![500.0; 5],
        jobs: vec![vec![0], vec![1], vec![4]],
    };
    let pays = [500.0, 500.0, 500.0, 500.0, 690.0];
    for clocks in [[].as_slice(), &[0], &[1], &[0, 1]] {
        assert_eq!(node.beside_caps_by_hand(&[(4, 690.0)], clocks), pays);
    }
    let mut spared = node.node(&[]);
    let opted_out = Command::BeginJob {
        job: "slurm-7".to_owned(),
        gpus: vec!["2".to_owned()],
        opt_out: true,
    };
    spared.command(opted_out, &mut |reply| reply).unwrap();
    spared.by_others(4, Watts(690.0));
    spared.wait(20);
    assert_eq!(node.caps(&spared), pays);
    let told = spared.status();
    assert_eq!(told.devices[4].state, DeviceState::Foreign);
    // No budget is said to be exceeded.
    assert_eq!(
        (told.gpus.caps, told.gpus.budget),
        (Watts(2690.0), Watts(2690.0))
    );
    // As soon as somebody sets a budget, all do.
    let watts = Some(Watts(2500.0));
    let set = spared.command(Command::SetBudget { watts }, &mut |reply| reply);
    assert!(set.is_ok(), "{set:?}");
    spared.wait(5);
    assert_eq!(node.caps(&spared), [452.0, 452.0, 452.0, 452.0, 690.0]);
}

/// A GPU that its user hangs again and again keeps its default cap from the third reset on. Within a budget that costs
/// his other GPUs first, and everybody else's only what these can't give.
#[test]
fn whoever_hangs_his_gpu_pays_for_that_first() {
    let _beside = beside();
    for (floor, pays) in [
        (200.0, [300.0, 700.0, 500.0, 500.0]),
        (400.0, [400.0, 700.0, 450.0, 450.0]),
    ] {
        let rented = Rented {
            policy: Policy::Observe,
            budget: Some(2000.0),
            floor,
            found: vec![700.0; 4],
            jobs: vec![vec![0, 1], vec![2]],
        };
        let mut node = rented.node(&[]);
        for _ in 0..3 {
            node.by_others(1, Watts(700.0));
            node.wait(10);
        }
        assert_eq!(node.status().devices[1].state, DeviceState::Foreign);
        assert_eq!(rented.caps(&node), pays);
        let device = Some("gpu1".to_owned());
        let resumed = node.command(Command::Resume { device }, &mut |reply| reply);
        assert!(resumed.is_ok(), "{resumed:?}");
        node.wait(10);
        assert_eq!(rented.caps(&node), [500.0; 4]);
    }
}

/// Nor within a job: what one of its GPUs keeps for its clocks its other one gives, and no third.
#[test]
fn what_clocks_keep_on_one_gpu_the_others_of_its_job_give() {
    let _beside = beside();
    let node = Rented {
        policy: Policy::GpuRed,
        budget: Some(2000.0),
        floor: 200.0,
        found: vec![700.0; 4],
        jobs: vec![vec![0, 1], vec![2]],
    };
    let pays = |clocks: &[usize]| node.beside_caps_by_hand(&[(3, 650.0)], clocks);
    assert_eq!(pays(&[]), [450.0, 450.0, 450.0, 650.0]);
    assert_eq!(pays(&[0]), [500.0, 400.0, 450.0, 650.0]);
    assert_eq!(pays(&[1, 2]), [400.0, 500.0, 450.0, 650.0]);
}

/// A GPU takes what it is told to hold, and does not answer: until it does, it counts with what it held.
#[test]
fn clocks_cost_no_neighbour_what_a_gpu_without_an_answer_may_hold() {
    let _beside = beside();
    let rented = Rented {
        policy: Policy::GpuRed,
        budget: Some(2500.0),
        floor: 200.0,
        found: vec![700.0; 5],
        jobs: vec![vec![0], vec![1]],
    };
    let caps_of_each_second = |clocks: &[usize]| -> Vec<Vec<f64>> {
        let mut node = rented.node(clocks);
        node.slow = Some(4);
        let watts = Some(Watts(2100.0));
        let asked = node.command(Command::SetBudget { watts }, &mut |reply| reply);
        assert!(asked.is_ok(), "{asked:?}");
        let mut second = || {
            node.wait(1);
            rented.caps(&node)
        };
        (0..20).map(|_| second()).collect()
    };
    let without = caps_of_each_second(&[]);
    assert!(without.iter().any(|caps| caps[1] == 400.0), "{without:?}");
    assert_eq!(caps_of_each_second(&[0]), without);
}

/// Any node, caps that somebody sets on it by hand, one after the other, and the GPUs with planned clocks.
type Deal = (Rented, Vec<(usize, f64)>, Vec<usize>);

/// GPUs of jobs 0 and 1 may have clocks. On those no cap is set by hand: whether that is the cap to restore from then
/// on, or a foreign one, depends on what litd has made of the one before. GPUs of number 3 are nobody's.
fn deals() -> impl Strategy<Value = Deal> {
    let gpus = prop::collection::vec((200..=750_u32, 0..4_usize, any::<bool>()), 2..7);
    let policies = [Policy::Observe, Policy::GpuRed, Policy::GpuRealloc];
    let policy = prop::sample::select(policies.to_vec());
    let budget = prop::option::of(0.0..1.1);
    let by_hand = prop::collection::vec((any::<prop::sample::Index>(), 200..=750_u32), 1..4);
    let floor = 200..=400_u32;
    (gpus, policy, budget, by_hand, floor).prop_map(|(gpus, policy, budget, by_hand, floor)| {
        let floor = f64::from(floor);
        let found: Vec<f64> = gpus.iter().map(|&(cap, ..)| f64::from(cap)).collect();
        let (floors, whole) = (floor * found.len() as f64, found.iter().sum::<f64>());
        let of = |jobs: std::ops::Range<usize>| -> Vec<usize> {
            let numbers = gpus.iter().enumerate();
            let own = numbers.filter(|(_, (_, job, _))| jobs.contains(job));
            own.map(|(gpu, _)| gpu).collect()
        };
        let others = of(2..4);
        let by_hand = by_hand.iter().filter(|_| !others.is_empty());
        let by_hand = by_hand.map(|(gpu, cap)| (*gpu.get(&others), f64::from(*cap)));
        let rented = Rented {
            policy,
            budget: budget.map(|part: f64| floors + part * (whole - floors).max(0.0)),
            floor,
            found,
            jobs: (0..3).map(|job| of(job..job + 1)).collect(),
        };
        let clocks = of(0..2).into_iter().filter(|&gpu| gpus[gpu].2);
        (rented, by_hand.collect(), clocks.collect())
    })
}

proptest! {
    // Failures are printed with their inputs; no file is left in the tree.
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// All GPUs but those of a job with clocks hold what they hold without anybody's clocks, and the sum stays within
    /// the budget as it does without.
    #[test]
    fn clocks_cost_nobody_else_a_watt((rented, by_hand, clocks) in deals()) {
        let _beside = beside();
        let without = rented.beside_caps_by_hand(&by_hand, &[]);
        let with = rented.beside_caps_by_hand(&by_hand, &clocks);
        let is_alone = |gpu: usize| {
            let job = rented.jobs.iter().find(|job| job.contains(&gpu));
            job.is_none_or(|job| job.len() == 1)
        };
        for gpu in (0..with.len()).filter(|&gpu| rented.budget.is_none() && is_alone(gpu)) {
            let is_set = by_hand.iter().any(|&(set, _)| set == gpu);
            prop_assert!(is_set || with[gpu] >= rented.found[gpu], "gpu{gpu} pays: {with:?}");
        }
        let has_clocks = |gpu: &usize| {
            let job = rented.jobs.iter().find(|job| job.contains(gpu));
            job.is_some_and(|job| job.iter().any(|gpu| clocks.contains(gpu)))
        };
        for gpu in (0..with.len()).filter(|gpu| !has_clocks(gpu)) {
            prop_assert_eq!(with[gpu], without[gpu], "gpu{}: {:?} for {:?}", gpu, with, without);
        }
        let sum = |caps: &[f64]| caps.iter().sum::<f64>();
        let budget = rented.budget.unwrap_or(sum(&rented.found));
        prop_assert!(sum(&with) <= budget.max(sum(&without)) + 1e-3, "{with:?} for {without:?}");
    }
}
