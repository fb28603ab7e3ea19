//! A training job on this node: its ranks, the samples they send, and its loop.

pub(crate) mod announced;
pub(crate) mod elsewhere;
pub(crate) mod hearing;
pub(crate) mod lifecycle;
pub(crate) mod moves;
pub(crate) mod names;
pub(crate) mod overhead;
pub(crate) mod roster;
pub(crate) mod settle;
pub(crate) mod shares;
pub(crate) mod steering;
pub(crate) mod ticks;

use litd_policies::{Policy, State};
use litd_proto::{Directive, Hello, Kernels};
use litd_traces::NameId;
use litd_units::Nanos;

use crate::config::Config;
use crate::hooks::cgroup::Home;
use crate::job::elsewhere::Elsewhere;
use crate::job::hearing::Hearing;
use crate::job::roster::Roster;
use crate::job::settle::Settling;
use crate::job::ticks::Ticks;
use crate::trial::{HeldOut, Lab};

mod all;
mod departures;
mod job_loop;
mod learning;
mod samples;
mod watch;

pub(crate) use all::Jobs;
pub(crate) use job_loop::{JobLoop, Start};
pub(crate) use samples::{LeftOut, Measured};
use samples::{Part, Samples};
use watch::Watch;

/// Whose a job is.
#[derive(Debug)]
pub(crate) struct Whose {
    /// The user whose processes its ranks are.
    pub uid: u32,
    /// The scheduler's job.
    pub home: Option<Home>,
}

/// What trials do with a job's devices.
#[derive(Debug, Default)]
pub(crate) struct OnTrial {
    /// Set while a trial decides what its devices hold; its loop rests meanwhile.
    pub lab: Option<Lab>,
    /// The job's hold-out.
    pub held_out: HeldOut,
}

/// A job.
#[derive(Debug)]
pub(crate) struct Job {
    /// The job's name: what its scheduler calls it, and then what its hooks say.
    pub name: String,
    /// Whose it is.
    pub whose: Whose,
    /// Whether this node waits for other nodes.
    pub elsewhere: Elsewhere,
    /// Its ranks on this node.
    pub ranks: Roster,
    /// What its ranks have measured.
    pub samples: Samples,
    /// The job's loop, once all ranks were here.
    pub control: JobLoop,
    /// Whether its last caps have taken effect.
    pub settling: Settling,
    /// Whether anything was heard of it of late.
    pub hearing: Hearing,
    /// What a trial, or its hold-out, does with its devices.
    pub trial: OnTrial,
    /// The directive last sent to its hooks.
    pub directive: Directive,
    /// Iteration times.
    pub ticks: Ticks,
    /// Whether its GPUs are as warm as when its loop judged them.
    pub watch: Watch,
}

impl Job {
    /// A job with its first rank, whose word counts for all. `gpus` is the number of the node's GPUs.
    pub fn new(hello: &Hello, uid: u32, home: Option<Home>, gpus: usize, now: Nanos) -> Self {
        Self {
            name: hello.job.clone(),
            whose: Whose { uid, home },
            elsewhere: Elsewhere::default(),
            ranks: Roster::new(hello),
            samples: Samples::new(gpus),
            control: JobLoop::default(),
            settling: Settling::default(),
            hearing: Hearing::Fresh(now),
            trial: OnTrial::default(),
            directive: Directive::default(),
            ticks: Ticks::default(),
            watch: Watch::default(),
        }
    }

    /// Whether the job also runs on other nodes. Then all ranks here may wait for a straggler elsewhere.
    pub fn leaves_the_node(&self) -> bool {
        self.ranks.leave_the_node()
    }

    /// The whole job's name, of which this one may be a group.
    pub fn whole(&self) -> &str {
        self.ranks.part_of().unwrap_or(&self.name)
    }

    /// The policy that is permitted for this job where this one is asked for.
    pub fn permitted(&self, policy: Policy) -> Policy {
        if self.ranks.is_alone() {
            return Policy::Observe;
        }
        match self.leaves_the_node() {
            true => self.elsewhere.permitted(policy),
            false => policy,
        }
    }

    /// Whether no GPU of the job may get more than its cap found, because more would not help.
    pub fn may_only_lose(&self) -> bool {
        self.leaves_the_node() && self.elsewhere.waits()
    }

    /// The job's GPUs, in the order of its ranks.
    pub fn gpus(&self) -> impl Iterator<Item = usize> + '_ {
        self.ranks.gpus()
    }

    /// The job's GPUs, then the CPU sockets that its loop moves: the order of its cap vectors.
    pub fn devices(&self) -> Vec<usize> {
        let cpus = self.control.cpus().iter().copied();
        self.gpus().chain(cpus).collect()
    }

    /// Whether its plan counts on a CPU socket's watts.
    pub fn counts_on(&self, socket: usize) -> bool {
        self.control.cpus().contains(&socket)
    }

    /// Whether the job's loop moves a device's cap, or keeps it while a GPU of the job is released.
    pub fn moves(&self, device: usize) -> bool {
        !self.hearing.is_stale() && self.asks_for(device)
    }

    /// Whether the job's loop has asked for a cap of a device; it is also kept while the job is stale.
    pub fn asks_for(&self, device: usize) -> bool {
        let own = || self.counts_on(device) || self.gpus().any(|gpu| gpu == device);
        self.control.ask().is_some() && own()
    }

    /// The state of its loop.
    pub fn state(&self) -> Option<State> {
        self.control.state()
    }

    /// Whether its loop may ask for caps now.
    pub fn is_steered(&self) -> bool {
        let is_suspended = self.control.suspended().is_some();
        self.control.ask().is_some() && !is_suspended && !self.hearing.is_stale()
    }

    /// Takes one rank's kernels of one iteration. `names` are the rank's names as the job knows them.
    pub fn add(
        &mut self,
        rank: u32,
        kernels: &Kernels,
        names: &[NameId],
        now: Nanos,
    ) -> Result<(), LeftOut> {
        let Some(position) = self.ranks.position(rank) else {
            return Err(LeftOut::UnknownName);
        };
        let leaves = self.leaves_the_node();
        let part = Part {
            position,
            of: self.ranks.len(),
            kernels,
            names,
            elsewhere: leaves.then_some(&self.elsewhere),
        };
        self.samples.add(&part, now)
    }

    /// Counts the job's iterations anew: a rank came back at an earlier one.
    pub fn count_anew(&mut self) {
        self.samples.count_anew();
        self.ticks.start_over();
    }

    /// Forgets what was measured under other conditions.
    pub fn start_over(&mut self) {
        self.samples.forget();
        self.trial.lab = None;
        self.watch.forget();
        self.ticks.forget_reference();
    }

    /// Every how many iterations one is profiled now; 0: none.
    pub fn period(&self, config: &Config) -> u64 {
        if self.settling.sleeps() || self.ranks.is_alone() {
            return 0;
        }
        let short = u64::from(config.law.calibration.sampling_period.max(1));
        let quiet = match self.state() {
            None => return 0,
            Some(State::WarmUp | State::Adjusting | State::Drift) => false,
            // A few samples are enough, until something changes.
            Some(State::Observe) => {
                self.samples.used() >= u64::from(config.law.calibration.warm_up)
            }
            Some(State::Converged | State::Rollback) => true,
        };
        let undecided = self.leaves_the_node() && self.elsewhere.is_undecided();
        let wanted = if quiet && !self.watch.looks_closer() && !undecided {
            config.sampling.converged_period
        } else {
            short
        };
        let most = config.sampling.max_overhead;
        self.ticks.overhead().spaced(wanted, most)
    }

    /// The share of its time that measuring takes now; `None` before that is known.
    pub fn sampling_overhead(&self) -> Option<f64> {
        let of_one = self.ticks.overhead().of_one()?;
        match self.directive.period {
            0 => Some(0.0),
            period => Some(of_one / (period as f64 + of_one)),
        }
    }

    /// The new directive for the hooks, if it has changed.
    pub fn new_directive(&mut self, config: &Config) -> Option<Directive> {
        let pause = self.control.suspended().is_some() || !self.ranks.is_whole();
        let period = self.period(config);
        if (period, pause) == (self.directive.period, self.directive.pause) {
            return None;
        }
        // A multiple of the period, so that all ranks profile the same iteration, whenever each reads this.
        let first = match period {
            0 => 0,
            period => {
                let settled = self.settling.first(config.settle.iterations);
                let next = self.ranks.iteration().saturating_add(1);
                let next = next.max(settled.unwrap_or(0));
                next.div_ceil(period).saturating_mul(period)
            }
        };
        self.directive = Directive {
            first,
            period,
            pause,
        };
        Some(self.directive)
    }
}
