//! The five rules against a second implementation that steps the whole node from event to event
//! and does nothing cleverly.

use litd_sim::workload::{CollectiveSpec, ComputeKernel, Workload};
use litd_sim::{Conditions, IterationModel, IterationResult};
use litd_units::Millis;
use proptest::prelude::*;

/// A kernel whose rest is less than this is done: rests are differences of sums of times.
const NOTHING: f64 = 1e-10;

#[derive(Clone, Copy, PartialEq)]
enum Stream {
    Idle,
    Busy { left: f64 },
}

struct Node<'a> {
    workload: &'a Workload,
    now: f64,
    /// Kernels begun on each GPU, of which the last may be running.
    begun: Vec<usize>,
    stream: Vec<Stream>,
    /// When the last kernel ended, for the host gap.
    freed: Vec<f64>,
    resident: Vec<bool>,
    /// Collectives ended, on all GPUs.
    ended: usize,
    /// When the one at work ends, once it is resident everywhere.
    transfer_ends: Option<f64>,
    result: IterationResult,
}

fn step_through(
    workload: &Workload,
    speeds: &[f64],
    contention: f64,
    noise: &[Vec<f64>],
    gaps: &[Millis],
) -> IterationResult {
    let gpus = speeds.len();
    let zeros = |n: usize| vec![vec![Millis::ZERO; n]; gpus];
    let (n, m) = (workload.kernels.len(), workload.collectives.len());
    let mut node = Node {
        workload,
        now: 0.0,
        begun: vec![0; gpus],
        stream: vec![Stream::Idle; gpus],
        freed: vec![0.0; gpus],
        resident: vec![false; gpus],
        ended: 0,
        transfer_ends: None,
        result: IterationResult {
            start: zeros(n),
            duration: zeros(n),
            overlapped: zeros(n),
            collective_start: zeros(m),
            collective_end: zeros(m),
            length: Millis::ZERO,
        },
    };
    loop {
        while node.change_something(speeds, noise, gaps) {}
        let Some(step) = node.until_next_event(contention, gaps) else {
            break;
        };
        node.pass(step, contention);
    }
    assert!(
        node.ended == m && node.begun.iter().all(|&begun| begun == n),
        "stuck"
    );
    node.result.length = Millis(node.now);
    node.result
}

impl Node<'_> {
    /// Makes one change that is due now, if there is one.
    fn change_something(&mut self, speeds: &[f64], noise: &[Vec<f64>], gaps: &[Millis]) -> bool {
        if self.transfer_ends.is_some_and(|end| end <= self.now) {
            for row in &mut self.result.collective_end {
                row[self.ended] = Millis(self.now);
            }
            self.ended += 1;
            self.transfer_ends = None;
            self.resident.fill(false);
            return true;
        }
        for g in 0..speeds.len() {
            if let Stream::Busy { left } = self.stream[g]
                && left <= NOTHING
            {
                self.stream[g] = Stream::Idle;
                self.freed[g] = self.now;
                return true;
            }
            if let Some(collective) = self.workload.collectives.get(self.ended)
                && !self.resident[g]
                && collective.after_start_of.is_none_or(|k| self.begun[g] > k)
            {
                self.resident[g] = true;
                self.result.collective_start[g][self.ended] = Millis(self.now);
                if self.resident.iter().all(|&resident| resident) {
                    self.transfer_ends = Some(self.now + collective.transfer.0);
                }
                return true;
            }
            let k = self.begun[g];
            if self.stream[g] == Stream::Idle
                && let Some(kernel) = self.workload.kernels.get(k)
                && kernel.needs.is_none_or(|j| self.ended > j)
                && self.freed[g] + gaps[g].0 <= self.now + NOTHING
            {
                let scaled = kernel.clock_bound / speeds[g] + 1.0 - kernel.clock_bound;
                self.stream[g] = Stream::Busy {
                    left: kernel.work.0 * scaled * noise[g][k],
                };
                self.result.start[g][k] = Millis(self.now);
                self.begun[g] += 1;
                return true;
            }
        }
        false
    }

    fn slow(&self, g: usize, contention: f64) -> f64 {
        if self.resident[g] { contention } else { 1.0 }
    }

    fn until_next_event(&self, contention: f64, gaps: &[Millis]) -> Option<f64> {
        let kernels = (0..self.begun.len()).filter_map(|g| match self.stream[g] {
            Stream::Busy { left } => Some(left * self.slow(g, contention)),
            Stream::Idle => Some(self.freed[g] + gaps[g].0 - self.now)
                .filter(|&wait| self.begun[g] < self.workload.kernels.len() && wait > NOTHING),
        });
        let transfer = self.transfer_ends.map(|end| end - self.now);
        kernels.chain(transfer).min_by(f64::total_cmp)
    }

    fn pass(&mut self, step: f64, contention: f64) {
        self.now += step;
        for g in 0..self.begun.len() {
            let slow = self.slow(g, contention);
            if let Stream::Busy { left } = &mut self.stream[g] {
                let k = self.begun[g] - 1;
                self.result.duration[g][k] += Millis(step);
                if self.resident[g] {
                    self.result.overlapped[g][k] += Millis(step);
                }
                *left -= step / slow;
            }
        }
    }
}

/// Times that are often zero.
fn time() -> impl Strategy<Value = f64> {
    prop_oneof![1 => Just(0.0), 4 => 0.001..4.0]
}

#[derive(Debug, Clone)]
struct Case {
    workload: Workload,
    speeds: Vec<f64>,
    contention: f64,
    noise: Vec<Vec<f64>>,
    gaps: Vec<Millis>,
}

impl Case {
    fn conditions(&self) -> Conditions<'_> {
        Conditions {
            speeds: &self.speeds,
            contention: self.contention,
            noise: Some(&self.noise),
            host_gap: Some(&self.gaps),
            slow_link: None,
        }
    }
}

/// Cases whose workload may deadlock; the test drops those.
fn cases() -> impl Strategy<Value = Case> {
    (1..14_usize, 0..8_usize, 1..6_usize).prop_flat_map(|(n, m, gpus)| {
        let needs = if m == 0 {
            Just(None).boxed()
        } else {
            prop_oneof![3 => Just(None), 1 => (0..m).prop_map(Some)].boxed()
        };
        let kernel = (time(), 0.0..=1.0, needs);
        let collective = (
            time(),
            prop_oneof![1 => Just(None), 3 => (0..n).prop_map(Some)],
        );
        let gap = prop_oneof![Just(0.0), 0.0..0.5].prop_map(Millis);
        (
            prop::collection::vec(kernel, n),
            prop::collection::vec(collective, m),
            prop::collection::vec(0.3..2.0, gpus),
            prop_oneof![1 => Just(1.0), 3 => 1.0..2.5],
            prop::collection::vec(prop::collection::vec(0.8..1.2, n), gpus),
            prop::collection::vec(gap, gpus),
        )
            .prop_map(
                |(kernels, collectives, speeds, contention, noise, gaps)| Case {
                    workload: Workload {
                        kernels: kernels
                            .into_iter()
                            .map(|(work, clock_bound, needs)| ComputeKernel {
                                name: "k".to_owned(),
                                work: Millis(work),
                                clock_bound,
                                needs,
                            })
                            .collect(),
                        collectives: collectives
                            .into_iter()
                            .map(|(transfer, after_start_of)| CollectiveSpec {
                                name: "c".to_owned(),
                                transfer: Millis(transfer),
                                after_start_of,
                                groups: 1,
                            })
                            .collect(),
                    },
                    speeds,
                    contention,
                    noise,
                    gaps,
                },
            )
    })
}

fn assert_same(what: &str, fast: &[Vec<Millis>], slow: &[Vec<Millis>]) {
    assert_eq!(fast.len(), slow.len(), "{what}");
    for (g, (fast, slow)) in fast.iter().zip(slow).enumerate() {
        assert_eq!(fast.len(), slow.len(), "{what}");
        for (i, (&fast, &slow)) in fast.iter().zip(slow).enumerate() {
            assert!(
                (fast - slow).abs() < Millis(1e-7),
                "{what}[{g}][{i}]: {fast} and {slow}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        max_global_rejects: 10_000_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn advancing_gpu_by_gpu_is_stepping_the_node(case in cases()) {
        let Case { workload, speeds, contention, noise, gaps } = &case;
        prop_assume!(workload.check().is_ok());
        let slow = step_through(workload, speeds, *contention, noise, gaps);
        let mut model = IterationModel::new(workload).unwrap();
        let fast = model.run(&case.conditions()).unwrap();
        assert_same("start", &fast.start, &slow.start);
        assert_same("duration", &fast.duration, &slow.duration);
        assert_same("overlapped", &fast.overlapped, &slow.overlapped);
        assert_same("collective_start", &fast.collective_start, &slow.collective_start);
        assert_same("collective_end", &fast.collective_end, &slow.collective_end);
        prop_assert!((fast.length - slow.length).abs() < Millis(1e-7));
    }

    /// Two groups that wait only for their own are two nodes.
    #[test]
    fn groups_are_nodes_of_their_own(case in cases()) {
        let Case { workload, speeds, contention, noise, gaps } = &case;
        prop_assume!(workload.check().is_ok());
        let half = speeds.len().div_ceil(2);
        let mut grouped = workload.clone();
        for collective in &mut grouped.collectives {
            collective.groups = 2;
        }
        let mut model = IterationModel::new(&grouped).unwrap();
        let whole = model.run(&case.conditions()).unwrap();
        let mut length = Millis::ZERO;
        for part in [0..half, half..speeds.len()].into_iter().filter(|part| !part.is_empty()) {
            let alone = step_through(
                workload,
                &speeds[part.clone()],
                *contention,
                &noise[part.clone()],
                &gaps[part.clone()],
            );
            assert_same("start", &whole.start[part.clone()], &alone.start);
            assert_same("collective_start", &whole.collective_start[part.clone()], &alone.collective_start);
            assert_same("collective_end", &whole.collective_end[part], &alone.collective_end);
            length = length.max(alone.length);
        }
        prop_assert!((whole.length - length).abs() < Millis(1e-7));
    }

    /// A workload that the check lets through never blocks, and one that it calls a deadlock
    /// blocks: the stepping node gets stuck on it.
    #[test]
    fn deadlocks_are_those_on_which_the_node_gets_stuck(case in cases()) {
        let Case { workload, speeds, contention, noise, gaps } = case;
        let stepped = std::panic::catch_unwind(|| {
            step_through(&workload, &speeds, contention, &noise, &gaps);
        });
        prop_assert_eq!(workload.check().is_ok(), stepped.is_ok());
    }
}
