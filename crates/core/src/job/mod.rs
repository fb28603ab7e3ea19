//! A training job on this node: its ranks, the samples they send, and its loop.

pub(crate) mod elsewhere;
pub(crate) mod lifecycle;
pub(crate) mod names;
pub(crate) mod overhead;
pub(crate) mod settle;
pub(crate) mod shares;
pub(crate) mod steering;
pub(crate) mod ticks;

use std::collections::BTreeMap;

use litd_policies::{Policy, State};
use litd_proto::{Directive, Hello, Kernels};
use litd_traces::NameId;
use litd_units::Nanos;

use crate::config::Config;
use crate::event::{Peer, SessionId};
use crate::hooks::cgroup::Home;
use crate::job::elsewhere::Elsewhere;
use crate::job::settle::Settling;
use crate::job::ticks::Ticks;
use crate::trial::{HeldOut, Lab};

mod departures;
mod job_loop;
mod samples;
mod watch;

pub(crate) use job_loop::{JobLoop, Start};
pub(crate) use samples::{LeftOut, Measured};
use samples::{Part, Samples};
use watch::Watch;

/// A rank of a job.
#[derive(Debug, Clone)]
pub(crate) struct Rank {
    /// The rank's GPU, by position in the inventory.
    pub device: usize,
    /// The session of the rank's hook, while it is connected.
    pub session: Option<SessionId>,
    /// The process.
    pub peer: Peer,
    /// Since when the hook is not connected; `None` while it is.
    pub left: Option<Nanos>,
    /// The last iteration that the rank has reported.
    pub iteration: u64,
}

/// A job.
#[derive(Debug)]
pub(crate) struct Job {
    /// The job's name: what its scheduler calls it, and then what its hooks say.
    pub name: String,
    /// The user whose processes its ranks are.
    pub uid: u32,
    /// The scheduler's job.
    pub home: Option<Home>,
    /// The job that it is a group of, if that job's ranks do unequal work.
    pub part_of: Option<String>,
    /// Ranks of the whole job on this node, as its hooks say.
    pub here: u32,
    /// Its own ranks on this node: all of them, or those of its group once all ranks of the job have come.
    pub expected: u32,
    /// Ranks on all nodes, as the first hook said.
    pub world_size: u32,
    /// Whether this node waits for other nodes.
    pub elsewhere: Elsewhere,
    /// Ranks on this node that have been here.
    pub ranks: BTreeMap<u32, Rank>,
    /// What its ranks have measured.
    pub samples: Samples,
    /// The job's loop, once all ranks were here.
    pub control: JobLoop,
    /// The loop's last message.
    pub why: String,
    /// Whether its last caps have taken effect.
    pub settling: Settling,
    /// Whether no frame has come for too long.
    pub stale: bool,
    /// When the last frame of any rank came.
    pub heard: Nanos,
    /// Set while a trial decides what its devices hold; its loop rests meanwhile.
    pub lab: Option<Lab>,
    /// The job's hold-out.
    pub held_out: HeldOut,
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
            uid,
            home,
            part_of: None,
            here: hello.local_world_size,
            expected: hello.local_world_size,
            world_size: hello.world_size,
            elsewhere: Elsewhere::default(),
            ranks: BTreeMap::new(),
            samples: Samples::new(gpus),
            control: JobLoop::default(),
            why: String::new(),
            settling: Settling::default(),
            stale: false,
            heard: now,
            lab: None,
            held_out: HeldOut::default(),
            directive: Directive::default(),
            ticks: Ticks::default(),
            watch: Watch::default(),
        }
    }

    /// Whether the job also runs on other nodes. Then all ranks here may wait for a straggler elsewhere.
    pub fn leaves_the_node(&self) -> bool {
        self.world_size > self.here
    }

    /// The whole job's name, of which this one may be a group.
    pub fn whole(&self) -> &str {
        self.part_of.as_deref().unwrap_or(&self.name)
    }

    /// Whether no GPU of this node does the same work as its only one.
    pub fn is_alone(&self) -> bool {
        self.part_of.is_some() && self.expected == 1
    }

    /// The policy that is permitted for this job where this one is asked for.
    pub fn permitted(&self, policy: Policy) -> Policy {
        if self.is_alone() {
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

    /// Whether all of its ranks on this node are connected.
    pub fn is_whole(&self) -> bool {
        let connected = self.ranks.values().filter(|rank| rank.session.is_some());
        self.expected as usize == connected.count()
    }

    /// The job's GPUs, in the order of its ranks.
    pub fn gpus(&self) -> impl Iterator<Item = usize> + '_ {
        self.ranks.values().map(|rank| rank.device)
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
        !self.stale && self.asks_for(device)
    }

    /// Whether the job's loop has asked for a cap of a device; it is also kept while the job is stale.
    pub fn asks_for(&self, device: usize) -> bool {
        let own = || self.counts_on(device) || self.gpus().any(|gpu| gpu == device);
        self.control.ask().is_some() && own()
    }

    /// The sessions of its ranks.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.ranks.values().filter_map(|rank| rank.session)
    }

    /// The latest iteration that any rank has reported.
    pub fn iteration(&self) -> u64 {
        let iterations = self.ranks.values().map(|rank| rank.iteration);
        iterations.max().unwrap_or(0)
    }

    /// The state of its loop.
    pub fn state(&self) -> Option<State> {
        self.control.state()
    }

    /// Whether its loop may ask for caps now.
    pub fn is_steered(&self) -> bool {
        let is_suspended = self.control.suspended().is_some();
        self.control.ask().is_some() && !is_suspended && !self.stale
    }

    /// Takes one rank's kernels of one iteration. `names` are the rank's names as the job knows them.
    pub fn add(
        &mut self,
        rank: u32,
        kernels: &Kernels,
        names: &[NameId],
        now: Nanos,
    ) -> Result<(), LeftOut> {
        let Some(position) = self.ranks.keys().position(|&known| known == rank) else {
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
        self.lab = None;
        self.watch.forget();
        self.ticks.forget_reference();
    }

    /// Every how many iterations one is profiled now; 0: none.
    pub fn period(&self, config: &Config) -> u64 {
        if self.settling.sleeps() || self.is_alone() {
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
        let pause = self.control.suspended().is_some() || !self.is_whole();
        let period = self.period(config);
        if (period, pause) == (self.directive.period, self.directive.pause) {
            return None;
        }
        // A multiple of the period, so that all ranks profile the same iteration, whenever each reads this.
        let first = match period {
            0 => 0,
            period => {
                let settled = self.settling.first(config.settle.iterations);
                let next = self.iteration().saturating_add(1);
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
