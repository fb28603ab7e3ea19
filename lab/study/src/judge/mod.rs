//! The judge: what a law is worth on one node, against the best caps that the node has.
//!
//! A law is run by the daemon's own controller and ledger of writes ([`crate::closed_loop`]), under
//! the plan that the daemon would make for a job that has the node to itself. Beside it the same
//! node runs without a law, with the same noise in the same iteration. How the law's node goes on
//! under the caps that it ended with is compared with that node, and those caps with the optimum
//! by the noise-free steady state ([`best`]).

pub mod best;
pub mod course;
pub mod explain;
pub mod nodes;
pub mod summary;
pub mod trial;

use litd_policies::config::Mitigation;
use litd_policies::{Config, Decision, Law, Plan, PlanError, Policy, Sample};
use litd_trial::{Estimate, Prices, Verdict};
use litd_units::{Millis, Watts};

use crate::StudyError;
use crate::closed_loop::ClosedLoop;
use crate::harm::{COSTLIER, SLOWER};
use crate::optimum::Outcome;
use crate::run::{GPU_HOUR, KILOWATT_HOUR};
use crate::steered::{PowerBit, Ran, Steered};

use self::best::{Bounds, Goal};
use self::course::Course;

/// How nodes are judged.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The loop's knobs; its law is the run's.
    pub config: Config,
    /// Iterations of a run, warm-up included.
    pub iterations: usize,
    /// Iterations under the caps held at the end, at least.
    pub held: usize,
    /// What net values are computed with.
    pub prices: Prices,
    /// What drivers tell of GPUs' power limits, on nodes of the family.
    pub bit: PowerBit,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            config: Config::default(),
            iterations: 1_500,
            held: 400,
            prices: Prices {
                energy_per_kwh: KILOWATT_HOUR,
                gpu_hour: GPU_HOUR,
            },
            bit: PowerBit::default(),
        }
    }
}

/// A caps' effect is awaited for so long, and for so many iterations (`[settle]`).
const SETTLE: (Millis, u32) = (Millis(60_000.0), 5);

/// The loss on the way is that of so many iterations in a row.
pub const WINDOW: usize = 100;

/// Where a loss is within two standard errors of what counts as worse off, the held caps are run
/// for so many times as long.
const LONGER: usize = 4;

/// Moves caps by a rule of its own: a sample and the caps held go in, caps come out.
pub type Rule<'a> = &'a (dyn Fn(&Sample, &[Watts]) -> Option<Vec<Watts>> + Sync);

/// Who steers.
#[derive(Clone, Copy)]
pub enum Hand<'a> {
    /// A law of litd's, by the daemon's own code.
    Law(Law),
    /// Nobody.
    Idle,
    /// Somebody who knows the noise-free optimum and sets it at once.
    Best,
    /// A rule that a test has planted.
    Planted(Rule<'a>),
}

impl Hand<'_> {
    /// Its name in tables.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Law(law) => law.name(),
            Self::Idle => "idle",
            Self::Best => "optimum",
            Self::Planted(_) => "planted",
        }
    }
}

/// What became of one node under one hand and one policy. Parts, not per cent.
#[derive(Debug, Clone)]
pub struct Row {
    /// Who steered.
    pub hand: &'static str,
    /// To which end.
    pub policy: Policy,
    /// How many GPUs.
    pub gpus: usize,
    /// What the optimum is better by than the start: time (or gpu-red's power) of the start
    /// against the optimum's, less one.
    pub gain: f64,
    /// The same of the caps held at the end: what is left to be had. Below zero gpu-red draws
    /// less than the optimum, and pays with time.
    pub regret: f64,
    /// By which part an iteration is longer at the end than without the law.
    pub longer: Estimate,
    /// The same of the slowest [`WINDOW`] iterations on the way.
    pub slowest: f64,
    /// By which part the GPUs need more energy for an iteration at the end.
    pub energy: f64,
    /// The same of energy times time.
    pub energy_time: f64,
    /// The same over the whole run.
    pub energy_time_run: f64,
    /// What a node hour is worth more at the end, with its interval over batches of iterations.
    pub value: Estimate,
    /// Changes of caps.
    pub adjustments: u32,
    /// What a trial would have shown.
    pub trial: Verdict,
    /// And after how many hours.
    pub hours: f64,
    /// Caps at the start, at the end, and at the optimum.
    pub caps: [Vec<Watts>; 3],
    /// Why the policy can do nothing here, if so; otherwise what the loop said last.
    pub why: String,
    /// After how many iterations caps changed, and why.
    pub changes: Vec<(usize, String)>,
    /// Whether it only observed.
    pub observed: bool,
}

impl Row {
    /// Whether an iteration is longer than what is called worse off.
    #[must_use]
    pub fn slower(&self) -> bool {
        self.longer.mean > SLOWER
    }

    /// Whether energy times time is more than what is called worse off: at the end or over all.
    #[must_use]
    pub fn costlier(&self) -> bool {
        self.energy_time.max(self.energy_time_run) > COSTLIER
    }

    /// Whether it is worse off.
    #[must_use]
    pub fn is_worse_off(&self) -> bool {
        self.slower() || self.costlier()
    }

    /// How badly, in units of what is called worse off.
    #[must_use]
    pub fn badness(&self) -> f64 {
        let cost = self.energy_time.max(self.energy_time_run) / COSTLIER;
        (self.longer.mean / SLOWER).max(cost)
    }
}

/// One node, ready to be judged.
pub struct Judged<'a, S> {
    settings: &'a Settings,
    plant: S,
    without: Course<S>,
    start: Vec<Watts>,
    /// What GPUs and CPU sockets held when they were found.
    found: Vec<Option<Watts>>,
    seed: u64,
}

/// What a hand did.
struct Driven<S> {
    plant: S,
    ran: Vec<Ran>,
    changes: Vec<(usize, String)>,
    why: String,
}

impl<S: Steered> Driven<S> {
    /// What the plan's devices hold.
    fn holds(&self) -> Vec<Option<Watts>> {
        let node = self.plant.node();
        let devices = 0..node.gpus.len() + node.cpus.len();
        devices.map(|it| self.plant.cap(it).ok()).collect()
    }
}

impl<'a, S: Steered> Judged<'a, S> {
    /// A plant in thermal steady state under the caps that it came with. `seed` is the trial's.
    pub fn new(mut plant: S, settings: &'a Settings, seed: u64) -> Self {
        plant.settle();
        let node = plant.node();
        let devices = 0..node.gpus.len() + node.cpus.len();
        Self {
            settings,
            found: devices.map(|it| plant.cap(it).ok()).collect(),
            start: plant.gpu_caps(),
            without: Course::of(plant.clone(), &settings.config),
            plant,
            seed,
        }
    }

    /// The plan that the daemon makes for a job that has the node to itself, without a budget
    /// set: the caps found are the budget, and where the job begins. Where the policy has nothing
    /// to move, the node is watched only.
    fn plan(&self, policy: Policy) -> Result<(Plan, Option<String>), StudyError> {
        let node = self.plant.node();
        let found: Watts = self.start.iter().copied().sum();
        let knobs = &self.settings.config.mitigation;
        let knobs = Mitigation {
            initial_cap: knobs.initial_cap.max(found / self.start.len() as f64),
            ..knobs.clone()
        };
        match Plan::within(policy, &node, &knobs, Some(found)) {
            Ok(plan) => Ok((plan.start_from(&self.start), None)),
            Err(no @ (PlanError::NoHeadroom { .. } | PlanError::NoCpuHeadroom { .. })) => {
                let plan = Plan::new(Policy::Observe, &node, &knobs)?;
                Ok((plan.start_from(&self.start), Some(no.to_string())))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What the optimum may be made of: what the plan may.
    fn bounds(&self, plan: &Plan, nothing: bool) -> Bounds {
        let node = self.plant.node();
        let limits = node.gpus.iter().zip(&self.start);
        Bounds {
            // A cap found below the floor is no mistake of the law's.
            range: limits
                .map(|(gpu, &start)| (gpu.floor.min(start), gpu.ceiling.max(start)))
                .collect(),
            budget: match nothing {
                true => self.start.iter().copied().sum(),
                false => plan.gpu_budget(),
            },
        }
    }

    /// What a policy has to offer on this node, whoever steers.
    ///
    /// # Errors
    /// The node makes no sense.
    pub fn prospect(&self, policy: Policy) -> Result<Prospect, StudyError> {
        let (plan, nothing) = self.plan(policy)?;
        let goal = match policy {
            Policy::GpuRed => Goal::Frugal {
                slower: self.settings.config.model.slowdown,
            },
            _ => Goal::Fast,
        };
        let best = best::best(
            &self.plant,
            &self.start,
            &self.bounds(&plan, nothing.is_some()),
            goal,
        )?;
        Ok(Prospect {
            policy,
            goal,
            before: self.plant.steady(&self.start)?,
            best,
            plan,
            nothing,
        })
    }

    /// Lets a hand at the node.
    ///
    /// # Errors
    /// The node makes no sense.
    pub fn judge(&mut self, hand: Hand, prospect: &Prospect) -> Result<Row, StudyError> {
        let mut driven = self.drive(hand, prospect)?;
        let gpus = self.start.len();
        let end = driven.plant.gpu_caps();
        let moved = !driven.changes.is_empty();
        let differs = driven.holds() != self.found;
        let run = driven.ran.len();
        let (slowest, energy_time_run) = {
            let without = self.without.between(0, run)?;
            let slowest = course::slowest(&driven.ran, without, WINDOW);
            (slowest, course::energy_time(&driven.ran, without))
        };
        let held = self.hold(&mut driven.plant, run, moved)?;
        let without = self.without.between(run, run + held.len())?;
        let nothing = zero(without.len());
        let longer = course::batches(&held, without, course::longer).unwrap_or(nothing);
        let prices = self.settings.prices;
        let value = |with: &[Ran], without: &[Ran]| course::net_value(with, without, gpus, prices);
        let arms = trial::Arms {
            found: without,
            balanced: &held,
        };
        let concluded = trial::conclude(&arms, differs, gpus, Some(prices), self.seed);
        Ok(Row {
            hand: hand.name(),
            policy: prospect.policy,
            gpus,
            gain: prospect.regret(&prospect.before),
            regret: prospect.regret(&self.plant.steady(&end)?),
            longer,
            slowest,
            energy: course::energy(&held, without),
            energy_time: course::energy_time(&held, without),
            energy_time_run,
            value: course::batches(&held, without, value).unwrap_or(nothing),
            adjustments: u32::try_from(driven.changes.len()).unwrap_or(u32::MAX),
            trial: concluded.verdict,
            hours: concluded.hours,
            caps: [self.start.clone(), end, prospect.best.caps.clone()],
            observed: prospect.nothing.is_some(),
            why: driven.why,
            changes: driven.changes,
        })
    }

    /// How the node goes on under the caps that it holds.
    fn hold(&mut self, plant: &mut S, run: usize, moved: bool) -> Result<Vec<Ran>, StudyError> {
        let mut held: Vec<Ran> = Vec::new();
        for times in [1, LONGER] {
            let until = self.settings.held * times;
            let without = self.without.between(run, run + until)?;
            match moved {
                true => held.extend((held.len()..until).map(|_| plant.iterate())),
                // The same node under the same caps: the same iterations.
                false => return Ok(without.to_vec()),
            }
            let Some(it) = course::batches(&held, without, course::longer) else {
                break;
            };
            let error = it.deviation / f64::from(it.count).sqrt();
            if (it.mean - SLOWER).abs() > 2.0 * error {
                break;
            }
        }
        Ok(held)
    }

    fn drive(&mut self, hand: Hand, prospect: &Prospect) -> Result<Driven<S>, StudyError> {
        match hand {
            Hand::Idle => self.idle(prospect),
            Hand::Law(_) if prospect.nothing.is_some() => self.idle(prospect),
            Hand::Law(law) => self.steer(law, prospect),
            Hand::Best if prospect.best.caps == self.start => self.idle(prospect),
            Hand::Best => self.set_best(prospect),
            Hand::Planted(rule) => self.follow(rule),
        }
    }

    fn closed(&self, plan: Plan, law: Law) -> Result<ClosedLoop<S>, StudyError> {
        let mut config = self.settings.config.clone();
        config.law = law;
        ClosedLoop::on(self.plant.clone(), plan, None, config)
    }

    fn idle(&mut self, prospect: &Prospect) -> Result<Driven<S>, StudyError> {
        let run = self.settings.iterations;
        Ok(Driven {
            plant: self.plant.clone(),
            ran: self.without.between(0, run)?.to_vec(),
            changes: Vec::new(),
            why: prospect.nothing.clone().unwrap_or_default(),
        })
    }

    fn steer(&mut self, law: Law, prospect: &Prospect) -> Result<Driven<S>, StudyError> {
        let period = self.settings.config.calibration.sampling_period;
        let mut closed = self.closed(prospect.plan.clone(), law)?;
        let mut told = Told::default();
        let mut ran = self.until_moved(&mut closed, &mut told)?;
        while ran.len() < self.settings.iterations {
            if told.moved {
                ran.extend(closed.rest(SETTLE.0, SETTLE.1));
            }
            let step = closed.period(period)?;
            ran.extend(step.ran);
            told.hears(&step.decision, ran.len());
        }
        if told.moved {
            ran.extend(closed.rest(SETTLE.0, SETTLE.1));
        }
        Ok(Driven {
            plant: closed.plant,
            ran,
            changes: told.changes,
            why: told.why,
        })
    }

    /// Shows a loop the node that nobody steers, which is its own until it moves a cap; and gives it
    /// the node as it is then. Returns the iterations until then.
    fn until_moved(
        &mut self,
        closed: &mut ClosedLoop<S>,
        told: &mut Told,
    ) -> Result<Vec<Ran>, StudyError> {
        let period = self.settings.config.calibration.sampling_period.max(1) as usize;
        // A plan that begins elsewhere has a node of its own from the start.
        let same = closed.caps() == self.start;
        let mut periods = 0;
        while same && !told.moved && periods * period < self.settings.iterations {
            let Some(mut observed) = self.without.sample(periods + 1)? else {
                break;
            };
            periods += 1;
            let decision = closed.decide(&mut observed, |_| {});
            told.hears(&decision, periods * period);
            if let Some(caps) = &decision.apply {
                let mut plant = self.without.after(periods)?;
                // What the ledger has written so far: CPU sockets that begin lower.
                for device in self.start.len()..self.found.len() {
                    plant.set(device, closed.plant.cap(device)?)?;
                }
                closed.plant = plant;
                closed.write(caps)?;
            }
        }
        Ok(self.without.between(0, periods * period)?.to_vec())
    }

    /// Sets the optimum at the end of a run, with heat settled at once: it has no way there.
    fn set_best(&mut self, prospect: &Prospect) -> Result<Driven<S>, StudyError> {
        let run = self.settings.iterations;
        let period = self.settings.config.calibration.sampling_period.max(1) as usize;
        let run = run.next_multiple_of(period);
        let mut plant = self.without.after(run / period)?;
        let ran = self.without.between(0, run)?.to_vec();
        let unit = plant
            .node()
            .gpus
            .first()
            .map_or(Watts(1.0), |it| it.resolution);
        let caps = &whole(&prospect.best.caps, unit, prospect.goal);
        for (gpu, &cap) in caps.iter().enumerate() {
            plant.set(gpu, cap)?;
        }
        plant.settle();
        Ok(Driven {
            plant,
            ran,
            changes: vec![(run, "the optimum is set".to_owned())],
            why: String::new(),
        })
    }

    fn follow(&self, rule: Rule) -> Result<Driven<S>, StudyError> {
        let config = &self.settings.config;
        let (node, found) = (self.plant.node(), self.start.iter().copied().sum());
        let plan = Plan::within(Policy::Observe, &node, &config.mitigation, Some(found))?;
        let mut closed = self.closed(plan.start_from(&self.start), config.law)?;
        let (mut ran, mut changes) = (Vec::new(), Vec::new());
        while ran.len() < self.settings.iterations {
            let step = closed.period(config.calibration.sampling_period)?;
            ran.extend(step.ran);
            let Some(caps) = rule(&step.observed.sample, &closed.caps()) else {
                continue;
            };
            for (gpu, cap) in caps.into_iter().enumerate() {
                closed.plant.set(gpu, cap)?;
            }
            changes.push((ran.len(), "planted".to_owned()));
            ran.extend(closed.rest(SETTLE.0, SETTLE.1));
        }
        Ok(Driven {
            plant: closed.plant,
            ran,
            changes,
            why: String::new(),
        })
    }
}

/// What a loop has said so far.
#[derive(Debug, Default)]
struct Told {
    changes: Vec<(usize, String)>,
    why: String,
    /// Whether it moved caps the last time.
    moved: bool,
}

impl Told {
    fn hears(&mut self, decision: &Decision, iterations: usize) {
        if !matches!(decision.why, litd_policies::Why::Collecting { .. }) {
            self.why = decision.why.to_string();
        }
        self.moved = decision.apply.is_some();
        if self.moved {
            self.changes.push((iterations, self.why.clone()));
        }
    }
}

/// What a policy has to offer on a node.
#[derive(Debug, Clone)]
pub struct Prospect {
    /// The policy.
    pub policy: Policy,
    /// What is best for it.
    pub goal: Goal,
    /// Under the starting caps.
    pub before: Outcome,
    /// The best caps.
    pub best: crate::optimum::Best,
    plan: Plan,
    /// Why there is nothing to move, if so.
    pub nothing: Option<String>,
}

impl Prospect {
    /// By which part an outcome is worse than the optimum in what the policy is for.
    #[must_use]
    pub fn regret(&self, outcome: &Outcome) -> f64 {
        match self.goal {
            Goal::Fast => outcome.time / self.best.outcome.time - 1.0,
            Goal::Frugal { .. } => outcome.power / self.best.outcome.power - 1.0,
        }
    }
}

/// Caps in whole units of the driver. Speed: what is cut off goes to those that lose most of it, and
/// the sum does not grow. Power: none is lower, so that nobody is slower.
fn whole(caps: &[Watts], unit: Watts, goal: Goal) -> Vec<Watts> {
    let units: Vec<f64> = caps.iter().map(|cap| cap.0 / unit.0).collect();
    // What is whole but for arithmetic is whole.
    let cut = |it: f64| (it + 1e-6).floor();
    let mut cuts: Vec<f64> = match goal {
        Goal::Fast => units.iter().map(|&it| cut(it)).collect(),
        Goal::Frugal { .. } => units.iter().map(|&it| (it - 1e-6).ceil()).collect(),
    };
    if goal == Goal::Fast {
        let mut left = cut(units.iter().sum::<f64>() - cuts.iter().sum::<f64>());
        let mut order: Vec<usize> = (0..units.len()).collect();
        let lost = |gpu: &usize| units[*gpu] - cut(units[*gpu]);
        order.sort_by(|a, b| lost(b).total_cmp(&lost(a)));
        for gpu in order {
            if left >= 1.0 && lost(&gpu) > 0.0 {
                cuts[gpu] += 1.0;
                left -= 1.0;
            }
        }
    }
    cuts.into_iter().map(|it| Watts(it * unit.0)).collect()
}

/// The estimate of what is nothing for certain.
fn zero(count: usize) -> Estimate {
    Estimate {
        mean: 0.0,
        low: 0.0,
        high: 0.0,
        confidence: litd_trial::CONFIDENCE,
        deviation: 0.0,
        count: u32::try_from(count).unwrap_or(u32::MAX),
    }
}
