//! Jobs and their hooks: they train, tell, and misbehave.

use std::collections::{BTreeMap, BTreeSet};

use litd_power::Holder;
use litd_proto::{Bye, Class, Directive, FromHook, Hello, Kernels, Tick};
use litd_units::Nanos;

use crate::hardware::{Hw, MILLI};
use crate::jobs::{Put, SAME, holder, home};
use crate::rng::Rng;

/// Kernels of one iteration, besides the collective at its end.
const KERNELS: usize = 6;

/// The defect of a hook that has to be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// Never to be welcomed.
    Always,
    /// Not to be welcomed as long as the job's rank is attached.
    WhileAttached { rank: usize },
}

/// A connection.
#[derive(Debug, Clone, Copy)]
pub struct Session {
    /// Of which rank; none: a stranger.
    pub rank: Option<usize>,
    pub wrong: Option<Wrong>,
}

/// A rank of a job.
#[derive(Debug, Clone)]
pub struct Rank {
    pub job: usize,
    pub rank: u32,
    pub device: usize,
    pub pid: u32,
    pub session: Option<u64>,
    pub welcomed: bool,
    pub directive: Directive,
    pub named: bool,
    /// Whether it has left for good.
    pub left: bool,
    /// Whether it sends no samples.
    pub mute: bool,
    /// Whether it follows a plan, and sets clocks.
    pub planned: bool,
    /// The defect of its next sample.
    pub flaw: Option<Flaw>,
}

/// The defect of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    OldIteration,
    UnknownName,
    Unaligned,
    Garbage,
    Truncated,
    SecondHello,
}

/// A job.
#[derive(Debug, Clone)]
pub struct Job {
    pub name: String,
    /// The scheduler's name for the job, and its control group.
    pub home: Option<Put>,
    pub uid: u32,
    pub ranks: Vec<usize>,
    pub iteration: u64,
    /// Until then it does nothing.
    pub silent_until: i64,
    pub ended: bool,
    /// Milliseconds of an iteration at full speed.
    pub length: f64,
    /// Whether any caps but those found make it slower.
    pub reversed: bool,
    /// The class of its collective, if it runs on other nodes, too.
    pub others: Option<Class>,
}

impl Job {
    /// A process of its own.
    pub fn holder(&self, pid: u32) -> Holder {
        holder(pid, self.uid, self.home.as_ref())
    }
}

/// All hooks.
#[derive(Debug, Default)]
pub struct Hooks {
    pub ranks: Vec<Rank>,
    pub jobs: Vec<Job>,
    pub sessions: BTreeMap<u64, Session>,
    /// Connections whose processes have ended; others have them, and their ids.
    pub handed_on: BTreeSet<u64>,
    last_session: u64,
    last_pid: u32,
}

impl Hooks {
    pub fn new(jobs: &[Vec<usize>], hw: &mut [Hw], planned: f64, rng: &mut Rng) -> Self {
        let mut hooks = Self {
            last_pid: 1000,
            ..Self::default()
        };
        for (job, gpus) in jobs.iter().enumerate() {
            let mut ranks = Vec::new();
            let mut pids = Vec::new();
            let planned = rng.chance(planned);
            for (rank, &device) in gpus.iter().enumerate() {
                let pid = hooks.pid();
                pids.push((device, pid));
                hw[device].loaded = true;
                hw[device].is_clockless = planned && rng.chance(0.1);
                ranks.push(hooks.ranks.len());
                hooks.ranks.push(Rank {
                    job,
                    rank: rank as u32,
                    device,
                    pid,
                    session: None,
                    welcomed: false,
                    directive: Directive::default(),
                    named: false,
                    left: false,
                    mute: false,
                    planned,
                    flaw: None,
                });
            }
            let home = home(job, rng);
            let uid = 500 + if home.is_some() { 0 } else { job as u32 };
            for (device, pid) in pids {
                hw[device].hold(holder(pid, uid, home.as_ref()));
            }
            hooks.jobs.push(Job {
                name: match &home {
                    Some(_) => SAME.to_owned(),
                    None => format!("job{job}"),
                },
                uid,
                home,
                ranks,
                iteration: rng.below(1000) as u64,
                silent_until: 0,
                ended: false,
                length: rng.pick(&[300.0, 500.0, 900.0]),
                reversed: rng.clone().chance(0.5),
                others: {
                    // The other draws stay what they were.
                    let mut own = rng.clone();
                    own.next();
                    own.pick(&[
                        None,
                        None,
                        None,
                        None,
                        Some(Class::CommunicationOutside),
                        Some(Class::CommunicationInside),
                        Some(Class::Communication),
                    ])
                },
            });
        }
        hooks
    }

    pub fn pid(&mut self) -> u32 {
        self.last_pid += 1;
        self.last_pid
    }

    pub fn session(&mut self, rank: Option<usize>, wrong: Option<Wrong>) -> u64 {
        self.last_session += 1;
        self.sessions
            .insert(self.last_session, Session { rank, wrong });
        self.last_session
    }

    /// A rank has lost its connection.
    pub fn cut(&mut self, session: u64) -> Option<usize> {
        let rank = self.sessions.remove(&session)?.rank?;
        let it = &mut self.ranks[rank];
        if it.session != Some(session) {
            return None;
        }
        (it.session, it.welcomed, it.named) = (None, false, false);
        it.directive = Directive::default();
        Some(rank)
    }

    pub fn hello(&self, rank: usize, hw: &[Hw]) -> Hello {
        let it = &self.ranks[rank];
        let job = &self.jobs[it.job];
        let local = job.ranks.len() as u32;
        let identity = &hw[it.device].identity;
        Hello {
            protocol: 1,
            job: job.name.clone(),
            rank: it.rank,
            local_rank: it.rank,
            world_size: local * if job.others.is_some() { 2 } else { 1 },
            local_world_size: local,
            gpu: identity
                .uuid
                .clone()
                .unwrap_or_else(|| identity.address.to_uppercase()),
            framework: "none".to_owned(),
            versions: BTreeMap::new(),
            group: String::new(),
        }
    }

    /// The duration of an iteration of a job now, in nanoseconds.
    pub fn duration(&self, job: usize, hw: &[Hw]) -> i64 {
        let job = &self.jobs[job];
        let alive = job.ranks.iter().filter(|&&rank| !self.ranks[rank].left);
        let slowest = alive.map(|&rank| hw[self.ranks[rank].device].speed());
        let slowest = slowest.fold(f64::INFINITY, f64::min).clamp(0.1, 10.0);
        let moved = |&rank: &usize| {
            let hw = &hw[self.ranks[rank].device];
            hw.natural.last() != Some(&hw.cap)
        };
        if job.reversed {
            // Independent of the clocks, and below a rollback's threshold.
            let moved = job.ranks.iter().any(moved);
            let longer = if moved { 1.006 } else { 1.0 };
            return (longer * job.length * MILLI as f64) as i64;
        }
        (job.length / slowest * MILLI as f64) as i64
    }

    /// The frames that a rank sends after an iteration.
    pub fn frames(&mut self, rank: usize, duration: i64, hw: &[Hw], rng: &mut Rng) -> Vec<Vec<u8>> {
        let hello = self.hello(rank, hw);
        let it = &mut self.ranks[rank];
        let job = &self.jobs[it.job];
        let mut frames = vec![
            FromHook::Tick(Tick {
                iteration: job.iteration,
                duration: Nanos(duration),
                profiled: false,
                overhead: Nanos::ZERO,
            })
            .encode(),
        ];
        let flaw = it.flaw;
        let sampled = it.directive.profiles(job.iteration) && !it.mute;
        if !sampled && !matches!(flaw, Some(Flaw::Garbage | Flaw::SecondHello)) {
            return frames;
        }
        it.flaw = None;
        let length = job.length * MILLI as f64 / KERNELS as f64;
        let mut kernels = sample(
            job.iteration,
            duration,
            length,
            &hw[it.device],
            !it.named,
            rng,
        );
        it.named = true;
        if let (Some(others), Some(last)) = (job.others, kernels.class.last_mut()) {
            *last = others;
            kernels.shows_collectives = true;
        }
        match flaw {
            Some(Flaw::OldIteration) => kernels.iteration = job.iteration.saturating_sub(5),
            Some(Flaw::UnknownName) => kernels.name[0] = 1000,
            Some(Flaw::Unaligned) => kernels.name.iter_mut().for_each(|name| *name = 6 - *name),
            _ => {}
        }
        let mut bytes = FromHook::Kernels(kernels).encode();
        match flaw {
            Some(Flaw::Garbage) => bytes = (0..40).map(|_| rng.next() as u8).collect(),
            Some(Flaw::Truncated) => bytes.truncate(rng.below(bytes.len())),
            Some(Flaw::SecondHello) => bytes = FromHook::Hello(hello).encode(),
            _ => {}
        }
        frames.push(bytes);
        frames
    }

    pub fn bye() -> Vec<u8> {
        FromHook::Bye(Bye {
            reason: "done".to_owned(),
        })
        .encode()
    }
}

fn sample(
    iteration: u64,
    duration: i64,
    length: f64,
    hw: &Hw,
    names: bool,
    rng: &mut Rng,
) -> Kernels {
    let mut kernels = Kernels {
        iteration,
        duration: Nanos(duration),
        ..Kernels::default()
    };
    if names {
        let computation = (0..KERNELS).map(|kernel| format!("gemm{kernel}"));
        kernels.new_names = computation.chain(["allreduce".to_owned()]).collect();
    }
    let one = length / hw.speed();
    let start = 1_000_000_000 * i64::try_from(iteration).unwrap_or(0);
    for kernel in 0..=KERNELS {
        let noise = 1.0 + 1e-5 * rng.unit();
        let at = start + (one * kernel as f64 * noise) as i64;
        let computes = kernel < KERNELS;
        let end = if computes {
            at + (one * 0.95) as i64
        } else {
            start + duration
        };
        kernels.name.push(kernel as u32);
        kernels.stream.push(u32::from(!computes));
        let class = if computes {
            Class::Computation
        } else {
            Class::Communication
        };
        kernels.class.push(class);
        kernels.start.push(Nanos(at));
        kernels.duration_of.push(Nanos((end - at).max(1)));
    }
    kernels
}
