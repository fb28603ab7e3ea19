//! A training job on this node: its ranks, the samples they send, and its loop.

use std::collections::BTreeMap;

use litd_policies::{CapVector, Controller, GpuReading, Plan, PlanError, Policy, Sample, State};
use litd_proto::{Directive, Hello, Kernels};
use litd_traces::live::{Live, LiveKernel, LiveReport, Shows, Waits};
use litd_traces::{Aggregation, AlignOptions, KernelClass, NameId};
use litd_units::{Celsius, Kelvins, Nanos};

use crate::cgroup::Home;
use crate::config::Config;
use crate::elsewhere::{Elsewhere, Shares};
use crate::event::{Peer, SessionId};
use crate::names::{Kind, Names};
use crate::room::Table;
use crate::settle::Moved;
use crate::ticks::Ticks;
use crate::trial::{HeldOut, Lab};

/// How many iterations may be incomplete (not sent by all ranks) at a time.
const PENDING: usize = 2;

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

/// An iteration that not all ranks have sent yet.
#[derive(Debug)]
struct Pending {
    live: Live,
    /// Waits for other nodes, of a job that runs on several.
    waits: Waits,
    duration: Nanos,
}

impl Pending {
    /// The memory that the iteration takes.
    fn bytes(&self) -> usize {
        self.live.bytes() + self.waits.bytes()
    }
}

/// An iteration that all ranks have sent; it waits for the devices to be read.
#[derive(Debug)]
pub(crate) struct Measured {
    /// The iteration's number.
    pub iteration: u64,
    /// Leads, busy times and so on of all ranks.
    pub report: LiveReport,
    /// Wall time: that of the slowest rank.
    pub duration: Nanos,
    /// When the last rank's part arrived; readings must be younger.
    pub at: Nanos,
    /// The shares of it in which this node waits for other nodes, if the job has any.
    pub elsewhere: Option<Shares>,
}

/// The last sample's values for each rank's GPU.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown {
    /// Lead values.
    pub leads: Vec<Nanos>,
    /// The number of kernels over which each lead value is summed.
    pub summands: u32,
    /// Busy fractions.
    pub busy: Vec<f64>,
    /// The kinds of evidence that the sample has.
    pub shows: Shows,
}

/// Why a rank's part of a sample was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeftOut {
    /// The iteration is older than one that is complete.
    Old,
    /// A name id that is not in the dictionary.
    UnknownName,
    /// The parts don't fit together; in words.
    Unaligned(String),
    /// Incomplete iterations take more bytes than the ranks' room for them.
    NoRoom {
        /// The room, in bytes.
        most: usize,
    },
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
    /// Kernel names of all its ranks.
    pub names: Names,
    /// The bytes that each rank adds to the room for incomplete iterations.
    rank_room: usize,
    pending: BTreeMap<u64, Pending>,
    /// A complete sample that waits for readings.
    pub measured: Option<Measured>,
    last_sampled: Option<u64>,
    /// The job's loop, once all ranks were here.
    pub controller: Option<Controller>,
    /// Why the job has no plan although a policy was asked for.
    pub no_plan: Option<PlanError>,
    /// The loop's last message.
    pub why: String,
    /// When its caps moved last.
    pub moved: Option<Moved>,
    /// Whether its hooks are told to profile nothing while its caps take effect.
    pub sleeps: bool,
    /// Why the job is not steered: one of its devices may not be moved.
    pub suspended: Option<String>,
    /// Whether no frame has come for too long.
    pub stale: bool,
    /// When the last frame of any rank came.
    pub heard: Nanos,
    /// The caps that its loop asks for.
    pub ask: Option<CapVector>,
    /// CPU sockets whose limits its loop moves.
    pub cpus: Vec<usize>,
    /// Set while a trial decides what its devices hold; its loop rests meanwhile.
    pub lab: Option<Lab>,
    /// The job's hold-out.
    pub held_out: HeldOut,
    /// The directive last sent to its hooks.
    pub directive: Directive,
    /// Iteration times.
    pub ticks: Ticks,
    /// How many samples are still taken at the short period although the job has converged.
    pub alert: u32,
    /// Temperatures at convergence, per rank.
    pub reference_heat: Vec<Option<Celsius>>,
    /// Temperatures when warm-up began, per rank.
    pub warm_up_heat: Option<Vec<Option<Celsius>>>,
    /// How often its loop changed caps, over all its plans.
    pub adjustments: u32,
    /// The last sample's values.
    pub shown: Shown,
    /// Samples that counted, and those that did not.
    pub samples: (u64, u64),
    /// The hash of the job's computation, once a sample has shown it.
    pub workload: Option<u64>,
    /// Whether the learned distribution was looked for.
    pub recalled: bool,
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
            names: Names::new(),
            rank_room: Table::Samples.of_a_gpu(gpus),
            pending: BTreeMap::new(),
            measured: None,
            last_sampled: None,
            controller: None,
            no_plan: None,
            why: String::new(),
            moved: None,
            sleeps: false,
            suspended: None,
            stale: false,
            heard: now,
            ask: None,
            cpus: Vec::new(),
            lab: None,
            held_out: HeldOut::default(),
            directive: Directive::default(),
            ticks: Ticks::default(),
            alert: 0,
            reference_heat: Vec::new(),
            warm_up_heat: None,
            adjustments: 0,
            shown: Shown::default(),
            samples: (0, 0),
            workload: None,
            recalled: false,
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
        self.gpus().chain(self.cpus.iter().copied()).collect()
    }

    /// Whether its plan counts on a CPU socket's watts.
    pub fn counts_on(&self, socket: usize) -> bool {
        self.cpus.contains(&socket)
    }

    /// Whether the job's loop moves a device's cap, or keeps it while a GPU of the job is released.
    pub fn moves(&self, device: usize) -> bool {
        !self.stale && self.asks_for(device)
    }

    /// Whether the job's loop has asked for a cap of a device; it is also kept while the job is stale.
    pub fn asks_for(&self, device: usize) -> bool {
        let own = || self.counts_on(device) || self.gpus().any(|gpu| gpu == device);
        self.ask.is_some() && own()
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
        self.controller.as_ref().map(Controller::state)
    }

    /// Whether its loop may ask for caps now.
    pub fn is_steered(&self) -> bool {
        self.ask.is_some() && self.suspended.is_none() && !self.stale
    }

    /// Starts the loop, or restarts it, with a plan.
    pub fn begin(&mut self, plan: Plan, config: &Config) {
        self.controller = Some(Controller::new(plan, config.knobs()));
        self.start_over();
    }

    /// Forgets what was measured under other conditions.
    pub fn start_over(&mut self) {
        self.pending.clear();
        self.measured = None;
        self.lab = None;
        self.alert = 0;
        self.reference_heat.clear();
        self.ticks.forget_reference();
        self.warm_up_heat = None;
        self.recalled = false;
    }

    /// Whether warm-up has to begin again, because the GPUs have warmed up during it.
    pub fn is_warming(&mut self, now: &[Option<Celsius>], most: Kelvins) -> bool {
        if self.state() != Some(State::WarmUp) {
            return false;
        }
        let Some(then) = &self.warm_up_heat else {
            self.warm_up_heat = Some(now.to_vec());
            return false;
        };
        let moved = |(now, then): (&Option<Celsius>, &Option<Celsius>)| match (now, then) {
            (Some(now), Some(then)) => (*now - *then).abs() > most,
            _ => false,
        };
        now.iter().zip(then).any(moved)
    }

    /// Drops incomplete iterations: the ranks have changed.
    pub fn drop_pending(&mut self) {
        self.samples.1 += self.pending.len() as u64;
        self.pending.clear();
        self.drop_measured();
    }

    /// Drops the sample that waits for readings.
    pub fn drop_measured(&mut self) {
        self.samples.1 += u64::from(self.measured.take().is_some());
    }

    /// Counts the job's iterations anew: a rank came back at an earlier one.
    pub fn count_anew(&mut self) {
        self.drop_pending();
        self.last_sampled = None;
        self.ticks.start_over();
    }

    /// Takes one rank's kernels of one iteration. `names` are the rank's names as the job knows
    /// them.
    pub fn add(
        &mut self,
        rank: u32,
        kernels: &Kernels,
        names: &[NameId],
        now: Nanos,
    ) -> Result<(), LeftOut> {
        let iteration = kernels.iteration;
        if self.last_sampled.is_some_and(|last| iteration <= last) || self.measured.is_some() {
            return Err(LeftOut::Old);
        }
        let Some(position) = self.ranks.keys().position(|&known| known == rank) else {
            return Err(LeftOut::UnknownName);
        };
        if kernels.name.iter().any(|&id| id as usize >= names.len()) {
            return Err(LeftOut::UnknownName);
        }
        let (ranks, options) = (self.ranks.len(), AlignOptions::default());
        let leaves = self.leaves_the_node();
        let pending = self.pending.entry(iteration).or_insert_with(|| Pending {
            live: Live::new(ranks, options),
            waits: Waits::default(),
            duration: Nanos::ZERO,
        });
        pending.duration = pending.duration.max(kernels.duration);
        if !kernels.shows_collectives {
            pending.live.tells_pieces();
        }
        let known = &self.names;
        let kernel = |at: usize| LiveKernel {
            name: names[kernels.name[at] as usize],
            stream: kernels.stream[at],
            class: class(kernels, at, names, known),
            limit: kind(kernels, at, names, known).and_then(|kind| kind.1),
            start: kernels.start[at],
            duration: kernels.duration_of[at],
        };
        let added = pending
            .live
            .add(position, (0..kernels.name.len()).map(kernel));
        if let Err(error) = added {
            self.pending.remove(&iteration);
            self.samples.1 += 1;
            return Err(LeftOut::Unaligned(error.to_string()));
        }
        if leaves {
            let class = |at| class(kernels, at, names, known);
            self.elsewhere.add(&mut pending.waits, kernels, class);
        }
        if pending.live.missing() == 0 {
            return self.finish(iteration, now);
        }
        if self.pending.len() > PENDING {
            self.drop_oldest();
        }
        self.fit_pending()
    }

    /// Drops the oldest incomplete iterations until the others fit their room.
    fn fit_pending(&mut self) -> Result<(), LeftOut> {
        let most = self.rank_room.saturating_mul(self.ranks.len());
        let mut fits = Ok(());
        while self.pending.values().map(Pending::bytes).sum::<usize>() > most {
            self.drop_oldest();
            fits = Err(LeftOut::NoRoom { most });
        }
        fits
    }

    /// The oldest iteration will hardly become complete any more.
    fn drop_oldest(&mut self) {
        self.samples.1 += u64::from(self.pending.pop_first().is_some());
    }

    /// All ranks have sent this iteration: earlier ones will not become complete any more.
    fn finish(&mut self, iteration: u64, at: Nanos) -> Result<(), LeftOut> {
        let Some(pending) = self.pending.remove(&iteration) else {
            return Ok(());
        };
        let later = self.pending.split_off(&iteration);
        self.samples.1 += self.pending.len() as u64;
        self.pending = later;
        self.last_sampled = Some(iteration);
        let elsewhere = self
            .leaves_the_node()
            .then(|| Shares::of(&pending.waits, pending.duration));
        match pending.live.finish(self.names.table()) {
            Ok(report) => {
                self.workload = Some(report.workload);
                self.measured = Some(Measured {
                    iteration,
                    report,
                    duration: pending.duration,
                    at,
                    elsewhere,
                });
                Ok(())
            }
            Err(error) => {
                self.samples.1 += 1;
                Err(LeftOut::Unaligned(error.to_string()))
            }
        }
    }

    /// The loop's input: the measured iteration and the GPUs' readings.
    pub fn sample(
        &mut self,
        measured: &Measured,
        mut gpus: Vec<GpuReading>,
        aggregation: Aggregation,
    ) -> Sample {
        let report = &measured.report;
        for (at, gpu) in gpus.iter_mut().enumerate() {
            gpu.pace = report.pace.get(at).copied().flatten();
            gpu.slowness = report.slowness.get(at).copied().flatten();
            gpu.marks = report.marks.get(at).copied().unwrap_or_default();
            gpu.busy = report.busy.get(at).copied();
        }
        let leads: Vec<Nanos> = report
            .leads
            .iter()
            .map(|lead| lead.get(aggregation))
            .collect();
        let matched = report.matched.max(1) as f64;
        let sample = Sample {
            iteration: measured.iteration,
            leads: leads.iter().map(|lead| Some(lead.to_millis())).collect(),
            summands: match aggregation {
                Aggregation::Sum => u32::try_from(report.matched).unwrap_or(u32::MAX),
                Aggregation::Max | Aggregation::Last => 1,
            },
            last_in: report
                .last_in
                .iter()
                .map(|&times| times as f64 / matched)
                .collect(),
            iteration_time: measured.duration.to_millis(),
            gpus,
        };
        self.shown = Shown {
            leads,
            summands: sample.summands.max(1),
            busy: report.busy.clone(),
            shows: report.shows,
        };
        sample
    }

    /// Every how many iterations one is profiled now; 0: none.
    pub fn period(&self, config: &Config) -> u64 {
        if self.sleeps || self.is_alone() {
            return 0;
        }
        let short = u64::from(config.law.calibration.sampling_period.max(1));
        let quiet = match self.state() {
            None => return 0,
            Some(State::WarmUp | State::Adjusting | State::Drift) => false,
            // A few samples are enough, until something changes.
            Some(State::Observe) => self.samples.0 >= u64::from(config.law.calibration.warm_up),
            Some(State::Converged | State::Rollback) => true,
        };
        let undecided = self.leaves_the_node() && self.elsewhere.is_undecided();
        let wanted = if quiet && self.alert == 0 && !undecided {
            config.sampling.converged_period
        } else {
            short
        };
        let most = config.sampling.most_overhead;
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
        let pause = self.suspended.is_some() || !self.is_whole();
        let period = self.period(config);
        if (period, pause) == (self.directive.period, self.directive.pause) {
            return None;
        }
        // A multiple of the period, so that all ranks profile the same iteration, whenever each reads this.
        let first = match period {
            0 => 0,
            period => {
                let settled = self
                    .moved
                    .map(|moved| moved.first(config.settle.iterations));
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

/// The kind of a kernel, by its name.
fn kind(kernels: &Kernels, at: usize, names: &[NameId], known: &Names) -> Option<Kind> {
    let name = names.get(*kernels.name.get(at)? as usize)?;
    known.kind(*name)
}

/// The class of a kernel: as the hook says, or else by its name.
fn class(kernels: &Kernels, at: usize, names: &[NameId], known: &Names) -> KernelClass {
    use litd_proto::Class;
    match kernels.class[at] {
        Class::Computation => KernelClass::Computation,
        Class::Communication | Class::CommunicationInside | Class::CommunicationOutside => {
            KernelClass::Communication
        }
        Class::Copy => KernelClass::Copy,
        Class::Unspecified => {
            kind(kernels, at, names, known).map_or(KernelClass::Computation, |kind| kind.0)
        }
    }
}
