//! Anybody whose job has a GPU can have it opt out, and nobody else pays for that: under a budget the other GPUs
//! hold what they would hold without the opt-out, whoever set the budget, and also where litd leaves it behind.

use litd_api::{Command, Mode};
use litd_core::config::OnExit;
use litd_policies::Policy;
use litd_units::Watts;

use crate::gpu::{Gpu, found_at};
use crate::node::{EPSILON, Node, budget, lease, observing};
use crate::rng::Rng;
use crate::seeds::{self, Outcome, ensure};

/// Drivers take whole watts, and which GPU gets the watt that is left over nobody promises.
const UNIT: f64 = 1.0;

fn opt_out(gpu: usize) -> Command {
    Command::BeginJob {
        job: format!("slurm-{gpu}"),
        gpus: vec![gpu.to_string()],
        opt_out: true,
    }
}

/// A node within a budget, on which the jobs of some GPUs opt out, or of none.
struct Way {
    config: litd_core::Config,
    gpus: Vec<Gpu>,
    then: Vec<Command>,
    restarts: Option<bool>,
    stops: bool,
}

impl Way {
    fn drawn(rng: &mut Rng) -> Self {
        let count = 2 + rng.below(6);
        let mut gpus = found_at(count, 700.0);
        if rng.chance(0.5) {
            for gpu in &mut gpus {
                gpu.cap = Watts(rng.pick(&[700.0, 650.0, 500.0, 320.0, 220.0]));
            }
        }
        let watts = |rng: &mut Rng| (count as f64 * (250.0 + rng.unit() * 400.0)).floor();
        let mut config = observing();
        (config.mode, config.policy) = match rng.below(3) {
            0 => (Mode::Observe, config.policy),
            1 => (Mode::Steer, Policy::Observe),
            _ => (Mode::Steer, Policy::GpuRealloc),
        };
        let mut then = Vec::new();
        match rng.below(4) {
            0 => config.caps.budget = Some(Watts(watts(rng))),
            1 => then.push(budget(watts(rng))),
            2 => then.push(lease(watts(rng), 3600.0)),
            _ => {}
        }
        config.caps.safe_budget = Some(Watts(watts(rng)));
        config.caps.on_exit = rng.pick(&[OnExit::Restore, OnExit::Hold, OnExit::Hold]);
        Self {
            config,
            gpus,
            then,
            restarts: rng.chance(0.3).then(|| rng.chance(0.5)),
            stops: rng.chance(0.4),
        }
    }

    /// The caps in the end, where these opt out.
    fn ends(&self, out: &[usize]) -> Node {
        let mut node = Node::with(self.gpus.clone(), self.config.clone());
        node.pass(3.0);
        for command in self.then.iter().cloned() {
            let _ = node.command(command);
        }
        for &gpu in out {
            node.command(opt_out(gpu)).unwrap();
        }
        node.pass(10.0);
        if let Some(crash) = self.restarts {
            match crash {
                true => node.kill(),
                false => _ = node.stop(),
            }
            node.start();
            node.pass(15.0);
        }
        if self.stops {
            let _ = node.stop();
        }
        node
    }
}

fn history(seed: u64) -> Outcome {
    let mut rng = Rng::new(seed);
    let way = Way::drawn(&mut rng);
    let out: Vec<usize> = (0..way.gpus.len()).filter(|_| rng.chance(0.4)).collect();
    let (without, with) = (way.ends(&[]).caps(), way.ends(&out));
    let caps = with.caps();
    let found: Vec<f64> = way.gpus.iter().map(|gpu| gpu.cap.0).collect();
    let mut outcome = Ok(());
    for gpu in 0..caps.len() {
        outcome = outcome.and_then(|()| match out.contains(&gpu) {
            false => ensure(caps[gpu] >= without[gpu] - UNIT - EPSILON, || {
                format!(
                    "{out:?} opt out, and gpu{gpu} is lowered for it: {caps:?}, and else {without:?}"
                )
            }),
            true => ensure(caps[gpu] <= found[gpu].max(without[gpu]) + EPSILON, || {
                format!("gpu{gpu} opts out and is raised above what was found: {caps:?} of {found:?}")
            }),
        });
    }
    let more = with.sum() - without.iter().sum::<f64>();
    let outcome = outcome.and_then(|()| {
        ensure(more <= EPSILON, || {
            format!("{out:?} opt out, and the node holds {more} W more: {caps:?}")
        })
    });
    (with.log.clone(), outcome)
}

#[test]
fn no_opt_out_lowers_another_gpu() {
    seeds::none_is_bad(history);
}

#[test]
fn a_gpu_that_opts_out_has_its_share_of_a_budget_and_without_one_what_was_found() {
    let mut node = Node::under(1200.0, found_at(4, 600.0));
    node.all_hold(300.0);
    node.command(opt_out(3)).unwrap();
    node.pass(10.0);
    node.all_hold(300.0);
    node.command(Command::SetBudget { watts: None }).unwrap();
    let mut config = node.config.clone();
    config.caps.budget = None;
    node.reload(config);
    node.pass(10.0);
    node.all_hold(600.0);
    let writes = node.writes_to(3);
    node.pass(60.0);
    assert_eq!(node.writes_to(3), writes);
}
