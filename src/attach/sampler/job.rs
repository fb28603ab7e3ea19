//! A job whose processes have no hook, from its processes to samples.

use std::collections::HashMap;
use std::mem;

use litd_attach::{Course, Rounds, Ticket};
use litd_core::{DeviceId, Event, SessionId};
use litd_proto::{Directive, FromHook, Kernels, Notice, NoticeKind, Profiling, Tick, ToHook};
use litd_units::Nanos;

use super::errand::Sample;
use crate::hub::Hub;

/// The core's answer to all hellos comes within this: drivers are asked meanwhile.
const INTRODUCTION: Nanos = Nanos(30_000_000_000);

/// After so long a job that could not be sampled is tried again, and one whose ranks may only be coming.
const AGAIN: Nanos = Nanos(120_000_000_000);
const SOON: Nanos = Nanos(15_000_000_000);

/// A process that uses a GPU, and may be a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub pid: u32,
    pub uid: u32,
    /// When the process began, in ticks since boot.
    pub began: u64,
    /// The process's id in its own namespace.
    pub own: i32,
    /// The address of its GPU.
    pub gpu: String,
    pub device: DeviceId,
}

/// A rank that litd speaks for.
#[derive(Debug)]
pub(super) struct Rank {
    pub member: Member,
    pub session: SessionId,
    /// Whether the core has let it in.
    is_in: bool,
    /// The numbers of kernels' names that the core knows.
    names: HashMap<String, u32>,
}

impl Rank {
    pub fn new(member: Member, session: SessionId) -> Self {
        Self {
            member,
            session,
            is_in: false,
            names: HashMap::new(),
        }
    }
}

/// A trace of all ranks that is wished for.
#[derive(Debug)]
pub(super) struct Wish {
    /// The errand that waits for the files.
    pub errand: u64,
    pub tickets: Vec<(u32, Ticket)>,
    /// By the loop's clock.
    pub since: Nanos,
    /// Whether caps had settled then, and the loop wanted samples.
    pub counts: bool,
}

/// How far a job has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// Processes come, and drivers tell which of them use GPUs.
    Gathers {
        /// What is missing, in words.
        why: String,
    },
    /// Its processes' environments are read.
    Places { errand: u64, members: Vec<Member> },
    /// Each rank has said hello to the core.
    Joins { ranks: Vec<Rank>, since: Nanos },
    /// The job is sampled.
    Samples(Box<Sampling>),
    /// The job is left alone for a while.
    Rests { until: Nanos, why: String },
}

/// A job that is sampled.
#[derive(Debug)]
pub(super) struct Sampling {
    pub ranks: Vec<Rank>,
    pub rounds: Rounds,
    pub wish: Option<Wish>,
    directive: Directive,
    profiling: Profiling,
    profiling_reason: String,
    /// Samples that the core was given.
    samples: u64,
    /// Why the last trace gave none, in words.
    trouble: Option<String>,
}

impl Default for Stage {
    fn default() -> Self {
        Self::Gathers {
            why: "its processes come".to_owned(),
        }
    }
}

impl Stage {
    /// The sessions that litd speaks for.
    pub fn sessions(&self) -> Vec<SessionId> {
        let ranks = match self {
            Self::Joins { ranks, .. } => ranks,
            Self::Samples(sampling) => &sampling.ranks,
            Self::Gathers { .. } | Self::Places { .. } | Self::Rests { .. } => return Vec::new(),
        };
        ranks.iter().map(|rank| rank.session).collect()
    }

    /// The processes that it counts on.
    pub fn members(&self) -> Vec<&Member> {
        match self {
            Self::Places { members, .. } => members.iter().collect(),
            Self::Joins { ranks, .. } => ranks.iter().map(|it| &it.member).collect(),
            Self::Samples(sampling) => sampling.ranks.iter().map(|it| &it.member).collect(),
            Self::Gathers { .. } | Self::Rests { .. } => Vec::new(),
        }
    }

    /// Any stage -> `Gathers`, or `Rests` where the same would only happen again. Ranks that were let in go.
    pub fn part(&mut self, hub: &mut Hub, now: Nanos, why: &str, again: bool) {
        for session in self.sessions() {
            hub.guest_leaves(session, why);
        }
        *self = match again {
            true => Self::Gathers {
                why: why.to_owned(),
            },
            false => Self::Rests {
                until: now + AGAIN,
                why: why.to_owned(),
            },
        };
    }

    /// `Places` -> `Joins`, or `Rests` for a moment.
    pub fn join(&mut self, now: Nanos, joined: Result<Vec<Rank>, String>) {
        *self = match joined {
            Ok(ranks) => Self::Joins { ranks, since: now },
            Err(why) => Self::Rests {
                until: now + SOON,
                why,
            },
        };
    }

    /// What the core has told its ranks: `Joins` -> `Samples` once all are in, `Rests` if one is not let in.
    pub fn hear(&mut self, hub: &mut Hub, now: Nanos, every: Nanos) {
        match self {
            Self::Joins { ranks, since } => {
                let (mut told, mut no) = (Sampling::new(Rounds::new(every, now)), None);
                for rank in ranks.iter_mut() {
                    no = no.or(told.hears(hub, rank));
                }
                if no.is_none() && now >= *since + INTRODUCTION {
                    no = Some("the core has not let all ranks in".to_owned());
                }
                match no {
                    Some(why) => self.part(hub, now, &why, false),
                    None if ranks.iter().all(|it| it.is_in) => {
                        told.ranks = mem::take(ranks);
                        *self = Self::Samples(Box::new(told));
                    }
                    None => {}
                }
            }
            Self::Samples(sampling) => {
                let mut ranks = mem::take(&mut sampling.ranks);
                let gone = ranks
                    .iter_mut()
                    .filter_map(|rank| sampling.hears(hub, rank));
                let gone = gone.last();
                sampling.ranks = ranks;
                if let Some(why) = gone {
                    self.part(hub, now, &why, true);
                }
            }
            Self::Rests { until, .. } if now >= *until => *self = Self::default(),
            Self::Gathers { .. } | Self::Places { .. } | Self::Rests { .. } => {}
        }
    }

    /// The stage in words.
    pub fn words(&self) -> String {
        match self {
            Self::Gathers { why } => format!("not sampled yet: {why}"),
            Self::Places { .. } => "not sampled yet: its launcher's variables are read".to_owned(),
            Self::Joins { .. } => "not sampled yet: its GPUs' drivers are asked".to_owned(),
            Self::Rests { why, .. } => format!("not sampled: {why}"),
            Self::Samples(sampling) => sampling.words(),
        }
    }
}

impl Sampling {
    fn new(rounds: Rounds) -> Self {
        Self {
            ranks: Vec::new(),
            rounds,
            wish: None,
            directive: Directive::default(),
            profiling: Profiling::default(),
            profiling_reason: String::new(),
            samples: 0,
            trouble: None,
        }
    }

    /// Takes what the core has told a rank. Returns why the rank is none any more, if so.
    fn hears(&mut self, hub: &mut Hub, rank: &mut Rank) -> Option<String> {
        let Some(told) = hub.guest_hears(rank.session) else {
            return Some(format!("the core has left process {}", rank.member.pid));
        };
        for message in told {
            match message {
                ToHook::Welcome(welcome) => {
                    rank.is_in = true;
                    self.directive = welcome.directive;
                    self.profiling = welcome.profiling;
                    self.profiling_reason = welcome.profiling_reason;
                }
                ToHook::Directive(directive) => self.directive = directive,
                ToHook::Refusal(refusal) => return Some(refusal.reason),
                ToHook::Unknown => {}
            }
        }
        None
    }

    /// Whether traces are permitted, and the job is asked for them.
    pub fn is_asked(&self) -> bool {
        let may = !matches!(self.profiling, Profiling::Off | Profiling::Wait);
        may && !matches!(self.rounds.course(), Course::Over(_))
    }

    /// Since when a trace is due, if one is and is permitted.
    pub fn due(&self, now: Nanos) -> Option<Nanos> {
        let due = self.rounds.due(now);
        due.filter(|_| self.is_asked() && self.wish.is_none())
    }

    /// Whether a sample would count now: caps have settled, and the loop wants some.
    pub fn is_wanted(&self) -> bool {
        self.directive.period > 0 && !self.directive.pause
    }

    /// There is no sample; why, in words. It is in the log once, and no word of the job's: a job of which nothing is
    /// measured becomes stale.
    pub fn fails(&mut self, hub: &mut Hub, now: Nanos, why: &str, too_short: bool) {
        self.wish = None;
        let over = self.rounds.fail(now, too_short);
        let over = over.map_or_else(String::new, |it| format!("; {it}, and it is asked no more"));
        let rank = self.ranks.first();
        let job = rank.and_then(|rank| hub.attached_as(rank.session));
        let job = job.map_or_else(String::new, |(job, _)| format!("job {job}: "));
        let text = format!("{job}no sample by Kineto on demand: {why}{over}");
        hub.handle(Event::Outside(&text));
        self.trouble = Some(why.to_owned());
    }

    /// Hands a sample to the core, as hooks do: the iterations' times, and the kernels of the last one unless caps have
    /// moved since it was asked for.
    pub fn takes(&mut self, hub: &mut Hub, now: Nanos, sample: Sample) {
        let Some(wish) = self.wish.take() else {
            return;
        };
        let devices: Vec<DeviceId> = self.ranks.iter().map(|it| it.member.device).collect();
        let settled = wish.counts && self.is_wanted() && !hub.has_told(&devices, wish.since);
        let took = sample.ranks.iter().filter_map(|it| it.durations.last());
        let took = took.copied().max().unwrap_or_default();
        let iterations = sample
            .ranks
            .iter()
            .map(|it| it.durations.len())
            .min()
            .unwrap_or(0);
        let heard = self.rounds.hear(now, sample.began, took, iterations);
        self.trouble = None;
        for (rank, measured) in self.ranks.iter_mut().zip(sample.ranks) {
            let durations = measured.durations.iter().rev().zip(0..);
            let ticks = durations.map(|(&duration, before)| Tick {
                iteration: heard.last.saturating_sub(before),
                duration,
                profiled: true,
                overhead: Nanos::ZERO,
            });
            for tick in ticks.collect::<Vec<_>>().into_iter().rev() {
                hub.guest_says(rank.session, &FromHook::Tick(tick));
            }
            if settled {
                let kernels = renamed(measured.kernels, &mut rank.names);
                let iteration = heard.last;
                let kernels = Kernels {
                    iteration,
                    ..kernels
                };
                hub.guest_says(rank.session, &FromHook::Kernels(kernels));
            }
        }
        self.samples += u64::from(settled);
        if let Some(samples) = heard.passed {
            let text = format!(
                "{samples} traces on demand in a row, and iterations take as long as before"
            );
            self.notice(hub, NoticeKind::ProfilingSafe, text, samples);
        }
        if let Some(why) = heard.over {
            let text = format!("{why}: no more traces on demand");
            self.notice(hub, NoticeKind::ProfilingOff, text, 0);
        }
    }

    /// A notice in the first rank's name.
    fn notice(&self, hub: &mut Hub, kind: NoticeKind, text: String, samples: u32) {
        if let Some(rank) = self.ranks.first() {
            let notice = Notice {
                kind,
                text,
                samples,
            };
            hub.guest_says(rank.session, &FromHook::Notice(notice));
        }
    }

    fn words(&self) -> String {
        if let Profiling::Off | Profiling::Wait = self.profiling {
            return format!("not sampled: {}", self.profiling_reason);
        }
        let course = match self.rounds.course() {
            Course::Over(why) => return format!("sampled no more: {why}"),
            Course::Records { .. } => "; a trace is being recorded",
            Course::Rests { .. } => "",
        };
        let trouble = self.trouble.as_ref();
        let trouble = trouble.map_or_else(String::new, |why| {
            format!("; the last trace gave none: {why}")
        });
        format!("{} samples so far{course}{trouble}", self.samples)
    }
}

/// A message with the numbers of names that the core knows this rank by; only new names are told.
fn renamed(mut kernels: Kernels, known: &mut HashMap<String, u32>) -> Kernels {
    let mut new = Vec::new();
    let mut number = |name: String| {
        let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
        *known.entry(name).or_insert_with_key(|name| {
            new.push(name.clone());
            next
        })
    };
    let mut used = vec![false; kernels.new_names.len()];
    for &name in &kernels.name {
        if let Some(used) = used.get_mut(name as usize) {
            *used = true;
        }
    }
    // Names of other iterations' kernels are nobody's business.
    let names = mem::take(&mut kernels.new_names).into_iter().zip(used);
    let numbers: Vec<u32> = names
        .map(|(name, used)| if used { number(name) } else { u32::MAX })
        .collect();
    for name in &mut kernels.name {
        *name = numbers.get(*name as usize).copied().unwrap_or(u32::MAX);
    }
    kernels.new_names = new;
    kernels
}
