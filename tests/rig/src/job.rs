//! A training job: ranks that run on the simulated node and report to the daemon over its real
//! ingest socket, well behaved or not.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use litd_proto::client::{Client, ClientError};
use litd_proto::{
    Bye, Class, Directive, FromHook, Hello, Kernels, PROTOCOL, Refusal, SetClock, Tick, ToHook,
    frame,
};
use litd_replay::sample_of;
use litd_traces::Timeline;
use litd_units::{Hertz, Nanos};
use thiserror::Error;

use crate::clock::Frames;
use crate::hardware::SharedHardware;
use crate::lock;
use crate::timing::Timing;

/// A simulated job.
#[derive(Debug, Clone)]
pub struct JobSpec {
    /// The job's name.
    pub name: String,
    /// The GPU of each rank, counted from 0 on the node.
    pub gpus: Vec<usize>,
    /// Ranks on all nodes.
    pub world_size: u32,
    /// Other nodes of the job, of which its ranks tell.
    pub others: Option<OtherNodes>,
    /// The events that its ranks time.
    pub timing: Timing,
    /// So many groups of ranks say that they do unequal work: the stages of a pipeline.
    pub stages: usize,
}

/// Other nodes, which are not simulated: every iteration ends with a collective of all nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OtherNodes {
    /// How long that lasts here, as a share of what the iteration takes without it.
    pub share: f64,
    /// The details that the ranks tell of their collectives.
    pub told: Told,
}

/// The details that ranks tell of their collectives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// For each collective whether it leaves the node.
    Reach,
    /// When they run, and no more.
    Times,
    /// No details, because ranks time modules.
    Nothing,
}

impl JobSpec {
    /// A job with all its ranks on this node, one for each of `gpus`.
    #[must_use]
    pub fn new(name: &str, gpus: impl IntoIterator<Item = usize>) -> Self {
        let gpus: Vec<usize> = gpus.into_iter().collect();
        Self {
            name: name.to_owned(),
            world_size: number(gpus.len()),
            others: None,
            timing: Timing::Kernels,
            stages: 1,
            gpus,
        }
    }

    /// The same, timed in another way.
    #[must_use]
    pub fn timed(self, timing: Timing) -> Self {
        Self { timing, ..self }
    }

    /// The same, in so many stages of equally many consecutive ranks.
    #[must_use]
    pub fn staged(self, stages: usize) -> Self {
        Self { stages, ..self }
    }

    /// The same on two nodes of this size.
    #[must_use]
    pub fn with(self, others: OtherNodes) -> Self {
        Self {
            world_size: 2 * number(self.gpus.len()),
            others: Some(others),
            ..self
        }
    }
}

/// Why a job does not run.
#[derive(Debug, Error)]
pub enum JobError {
    /// There is no such rank, or its GPU is not on the node.
    #[error("job {job}: there is no rank {rank}, or no GPU for it")]
    NoSuchRank {
        /// The job.
        job: String,
        /// The rank.
        rank: usize,
    },
    /// A rank's connection.
    #[error("job {job}, rank {rank}: {cause}")]
    Connection {
        /// The job.
        job: String,
        /// The rank.
        rank: usize,
        /// The client's error.
        cause: ClientError,
    },
    /// A rank that was to be welcomed is not.
    #[error("job {job}, rank {rank}: not welcomed but {state:?}")]
    NotWelcome {
        /// The job.
        job: String,
        /// The rank.
        rank: usize,
        /// The state found instead.
        state: RankState,
    },
}

/// The state of a rank's connection, as the rank knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RankState {
    /// The rank has said hello and has no answer yet.
    Greeting,
    /// The rank was welcomed; the directive is the latest.
    Welcome(Directive),
    /// The daemon refused it.
    Refused(Refusal),
    /// The daemon closed the connection, or it broke: so in words.
    Lost(String),
    /// The rank has crashed or left.
    Away,
}

#[derive(Debug)]
struct Rank {
    gpu: usize,
    client: Option<Client>,
    state: RankState,
    /// Ids of the names that this connection has sent.
    names: HashMap<String, u32>,
}

/// A job whose ranks are all played by this thread.
#[derive(Debug)]
pub struct Job {
    spec: JobSpec,
    socket: PathBuf,
    hardware: SharedHardware,
    frames: Frames,
    ranks: Vec<Rank>,
    /// The iteration time that its hooks report, if not the true one.
    pretended: Option<Nanos>,
    /// The time that its hooks report for the profiler's start and stop.
    overhead: Nanos,
}

/// The iteration that the plant ran last, to report.
struct Last {
    iteration: u64,
    duration: Nanos,
    /// A timeline per GPU; empty if no iteration was profiled.
    timelines: Vec<Timeline>,
}

impl Job {
    /// Connects one session per rank to the daemon's ingest socket and says hello on each. The
    /// daemon's answers are read later: by [`Job::welcome`], or before each iteration.
    ///
    /// # Errors
    /// A rank can't connect.
    pub fn attach(
        socket: &Path,
        spec: JobSpec,
        hardware: SharedHardware,
        frames: Frames,
    ) -> Result<Self, JobError> {
        let rank = |&gpu: &usize| Rank {
            gpu,
            client: None,
            state: RankState::Away,
            names: HashMap::new(),
        };
        let mut job = Self {
            ranks: spec.gpus.iter().map(rank).collect(),
            socket: socket.to_owned(),
            spec,
            hardware,
            frames,
            pretended: None,
            overhead: Nanos::ZERO,
        };
        for rank in 0..job.ranks.len() {
            job.connect(rank)?;
        }
        Ok(job)
    }

    /// How many ranks it has.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.ranks.len()
    }

    /// A rank's connection state when answers were last read.
    #[must_use]
    pub fn state(&self, rank: usize) -> Option<&RankState> {
        self.ranks.get(rank).map(|rank| &rank.state)
    }

    /// The hello that a well-behaved rank says.
    ///
    /// # Errors
    /// There is no such rank, or its GPU is not on the node.
    pub fn hello(&self, rank: usize) -> Result<Hello, JobError> {
        let missing = || self.no_such(rank);
        let gpu = self.ranks.get(rank).ok_or_else(missing)?.gpu;
        let listed = lock(&self.hardware).listed(gpu).ok_or_else(missing)?;
        Ok(Hello {
            protocol: PROTOCOL,
            job: self.spec.name.clone(),
            rank: number(rank),
            local_rank: number(rank),
            world_size: self.spec.world_size,
            local_world_size: number(self.ranks.len()),
            gpu: listed.identity.address,
            framework: "simulated".to_owned(),
            versions: BTreeMap::new(),
            group: self.group(rank),
        })
    }

    fn group(&self, rank: usize) -> String {
        match self.spec.stages {
            0 | 1 => String::new(),
            stages => format!("stage {}", rank * stages / self.ranks.len().max(1)),
        }
    }

    /// Connects a rank (anew) and says hello.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn connect(&mut self, rank: usize) -> Result<(), JobError> {
        let hello = self.hello(rank)?;
        self.connect_as(rank, hello)
    }

    /// Connects a rank (anew) and says hello for somebody else: with another rank, another job,
    /// another GPU.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn connect_as(&mut self, rank: usize, hello: Hello) -> Result<(), JobError> {
        let client = Client::connect(&self.socket).map_err(|cause| JobError::Connection {
            job: self.spec.name.clone(),
            rank,
            cause,
        })?;
        let missing = self.no_such(rank);
        let state = self.ranks.get_mut(rank).ok_or(missing)?;
        // The old connection, if any, ends here; its names are forgotten with it.
        state.client = Some(client);
        state.names.clear();
        state.state = RankState::Greeting;
        self.send(rank, &FromHook::Hello(hello));
        Ok(())
    }

    /// From now on all its hooks say that an iteration takes so long, whatever it takes on the
    /// simulated node: a job with a truth of its own.
    pub fn pretend(&mut self, duration: Option<Nanos>) {
        self.pretended = duration;
    }

    /// From now on its hooks have a profiler that takes so long to start and to stop.
    pub fn profiler_takes(&mut self, overhead: Nanos) {
        self.overhead = overhead;
    }

    /// Reads what the daemon has sent to all ranks so far, without waiting for more.
    pub fn poll(&mut self) {
        for rank in &mut self.ranks {
            rank.poll();
        }
    }

    /// Waits until the daemon has answered every rank's hello.
    ///
    /// # Errors
    /// A rank is refused, or has no answer within `timeout`.
    pub fn welcome(&mut self, timeout: Duration) -> Result<(), JobError> {
        let deadline = Instant::now() + timeout;
        for (index, rank) in self.ranks.iter_mut().enumerate() {
            while rank.state == RankState::Greeting && Instant::now() < deadline {
                rank.receive(deadline.saturating_duration_since(Instant::now()));
            }
            if !matches!(rank.state, RankState::Welcome(_)) {
                return Err(JobError::NotWelcome {
                    job: self.spec.name.clone(),
                    rank: index,
                    state: rank.state.clone(),
                });
            }
        }
        Ok(())
    }

    /// Runs one iteration of the whole node and reports it as every rank's hook would. Answers
    /// how many ranks reported it.
    pub fn run_iteration(&mut self) -> usize {
        lock(&self.hardware).run_iteration();
        self.report()
    }

    /// Reports the node's last iteration: a tick from every welcomed rank, and its kernels from
    /// those whose directive asks for them. For the second job on a node whose iterations the
    /// first one runs. Answers how many ranks reported.
    pub fn report(&mut self) -> usize {
        self.poll();
        let last = self.last(|rank, iteration| rank.profiles(iteration));
        let mut reported = 0;
        for rank in 0..self.ranks.len() {
            if !matches!(self.ranks[rank].state, RankState::Welcome(_)) {
                continue;
            }
            let profiled = self.ranks[rank].profiles(last.iteration);
            let tick = FromHook::Tick(Tick {
                iteration: last.iteration,
                duration: last.duration,
                profiled,
                overhead: if profiled { self.overhead } else { Nanos::ZERO },
            });
            let mut done = self.send(rank, &tick);
            if profiled {
                done &= self.send_kernels(rank, &last, last.iteration);
            }
            reported += usize::from(done);
        }
        reported
    }

    /// Sends one rank's kernels of the node's last iteration under another number. Answers
    /// whether they were sent.
    pub fn report_as(&mut self, rank: usize, iteration: u64) -> bool {
        let last = self.last(|_, _| true);
        self.send_kernels(rank, &last, iteration)
    }

    /// Sends so many ticks of the node's last iteration at once. Answers how many were sent.
    pub fn flood(&mut self, rank: usize, ticks: usize) -> usize {
        let last = self.last(|_, _| false);
        let tick = FromHook::Tick(Tick {
            iteration: last.iteration,
            duration: last.duration,
            profiled: false,
            overhead: Nanos::ZERO,
        });
        (0..ticks).take_while(|_| self.send(rank, &tick)).count()
    }

    /// A rank asks for another clock of its GPU, in MHz; `None`: as the driver likes. Answers
    /// whether that was sent.
    pub fn set_clock(&mut self, rank: usize, megahertz: Option<u32>) -> bool {
        let clock = megahertz.map(|clock| Hertz(f64::from(clock) * 1e6));
        self.send(rank, &FromHook::SetClock(SetClock { clock }))
    }

    /// Sends one frame with anything in it. Answers whether it was sent.
    pub fn send_frame(&mut self, rank: usize, message: &[u8]) -> bool {
        let mut bytes = Vec::new();
        frame::write(&mut bytes, message).is_ok() && self.send_counted(rank, &bytes, true)
    }

    /// Sends bytes that need not be frames; they are not counted for the clock. Answers whether
    /// they were sent.
    pub fn send_raw(&mut self, rank: usize, bytes: &[u8]) -> bool {
        self.send_counted(rank, bytes, false)
    }

    /// The rank's process dies: its connection ends without a word.
    pub fn crash(&mut self, rank: usize) {
        if let Some(rank) = self.ranks.get_mut(rank) {
            rank.close(RankState::Away);
        }
    }

    /// The rank says bye, and goes.
    pub fn leave(&mut self, rank: usize) {
        let reason = "training is over".to_owned();
        self.send(rank, &FromHook::Bye(Bye { reason }));
        self.crash(rank);
    }

    /// All ranks say bye, and go.
    pub fn end(mut self) {
        for rank in 0..self.ranks.len() {
            self.leave(rank);
        }
    }

    fn no_such(&self, rank: usize) -> JobError {
        let job = self.spec.name.clone();
        JobError::NoSuchRank { job, rank }
    }

    /// The node's last iteration, with timelines if any rank is to be `profiled`.
    fn last(&self, profiled: impl Fn(&Rank, u64) -> bool) -> Last {
        let hardware = lock(&self.hardware);
        let plant = hardware.plant();
        let iteration = u64::from(plant.iterations());
        let wanted = self.ranks.iter().any(|rank| profiled(rank, iteration));
        let share = self.spec.others.map_or(0.0, |others| others.share);
        let length = plant.last().length.to_nanos();
        Last {
            iteration,
            duration: self
                .pretended
                .unwrap_or_else(|| length + Nanos((length.0 as f64 * share) as i64)),
            timelines: if wanted {
                plant.timelines()
            } else {
                Vec::new()
            },
        }
    }

    fn send_kernels(&mut self, index: usize, last: &Last, iteration: u64) -> bool {
        let Some(rank) = self.ranks.get_mut(index) else {
            return false;
        };
        let Some(timeline) = last.timelines.get(rank.gpu) else {
            return false;
        };
        let kernels = sample_of(timeline, &mut rank.names, iteration, last.duration);
        let mut kernels = self.spec.timing.of(kernels, &mut rank.names);
        if let Some(others) = self.spec.others {
            others.add(&mut kernels, &mut rank.names, last);
        }
        self.send(index, &FromHook::Kernels(kernels))
    }

    fn send(&mut self, rank: usize, message: &FromHook) -> bool {
        self.send_frame(rank, &message.encode())
    }

    fn send_counted(&mut self, rank: usize, bytes: &[u8], counted: bool) -> bool {
        let Some(rank) = self.ranks.get_mut(rank) else {
            return false;
        };
        let Some(client) = &mut rank.client else {
            return false;
        };
        match client.send_bytes(bytes) {
            Ok(()) => {
                if counted {
                    self.frames.add();
                }
                true
            }
            Err(error) => {
                // The daemon may have said why before it closed.
                rank.poll();
                if rank.client.is_some() {
                    rank.close(RankState::Lost(error.to_string()));
                }
                false
            }
        }
    }
}

impl Rank {
    fn profiles(&self, iteration: u64) -> bool {
        match &self.state {
            RankState::Welcome(directive) => directive.profiles(iteration),
            _ => false,
        }
    }

    /// Takes in everything that has arrived.
    fn poll(&mut self) {
        while self.receive(Duration::ZERO) {}
    }

    /// Takes in one message, if one comes in time; whether one did.
    fn receive(&mut self, timeout: Duration) -> bool {
        let Some(client) = &mut self.client else {
            return false;
        };
        match client.receive(timeout) {
            Ok(None) => return false,
            Ok(Some(ToHook::Welcome(welcome))) => {
                self.state = RankState::Welcome(welcome.directive);
            }
            Ok(Some(ToHook::Directive(directive))) => {
                if matches!(self.state, RankState::Welcome(_)) {
                    self.state = RankState::Welcome(directive);
                }
            }
            Ok(Some(ToHook::Refusal(refusal))) => self.close(RankState::Refused(refusal)),
            Ok(Some(ToHook::Unknown)) => {}
            Err(error) => self.close(RankState::Lost(error.to_string())),
        }
        true
    }

    fn close(&mut self, state: RankState) {
        self.client = None;
        self.state = state;
    }
}

impl OtherNodes {
    const NAME: &str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(all nodes)";

    /// Adds the collective of all nodes at the end, and what is told of the others.
    fn add(self, kernels: &mut Kernels, names: &mut HashMap<String, u32>, last: &Last) {
        for class in &mut kernels.class {
            *class = match (self.told, *class) {
                (Told::Reach, Class::Communication) => Class::CommunicationInside,
                (Told::Nothing, _) => Class::Computation,
                (_, class) => class,
            };
        }
        kernels.shows_collectives = self.told != Told::Nothing;
        let kernels_of = last.timelines.iter().flat_map(|timeline| &timeline.kernels);
        let end = kernels_of
            .map(|kernel| kernel.end)
            .max()
            .unwrap_or_default();
        let own = kernels.start.iter().zip(&kernels.duration_of);
        let own = own.map(|(&start, &duration)| start + duration).max();
        let start = own.unwrap_or(end);
        let lasts = last.duration - Nanos((last.duration.0 as f64 / (1.0 + self.share)) as i64);
        let known = number(names.len());
        let id = *names.entry(Self::NAME.to_owned()).or_insert_with(|| {
            kernels.new_names.push(Self::NAME.to_owned());
            known
        });
        kernels.name.push(id);
        kernels.stream.push(99);
        kernels.class.push(match self.told {
            Told::Reach => Class::CommunicationOutside,
            Told::Times => Class::Communication,
            Told::Nothing => Class::Computation,
        });
        kernels.start.push(start);
        kernels.duration_of.push(end + lasts - start);
    }
}

pub(crate) fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
