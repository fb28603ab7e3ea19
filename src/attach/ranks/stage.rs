//! How far a job without a hook has come, from its processes to ranks that are sampled.

use std::collections::HashMap;
use std::mem;

use litd_core::{Home, SessionId};
use litd_proto::{Directive, Kernels, Profiling, ToHook};
use litd_units::Nanos;

use super::Member;
use crate::hub::Hub;

/// The core's answer to all hellos comes within this: drivers are asked meanwhile.
const INTRODUCTION: Nanos = Nanos(30_000_000_000);

/// After so long a job that could not be sampled is tried again, and one whose ranks may only be coming.
const AGAIN: Nanos = Nanos(120_000_000_000);
const SOON: Nanos = Nanos(15_000_000_000);

/// A rank that litd speaks for.
#[derive(Debug)]
pub(crate) struct Rank {
    pub member: Member,
    pub session: SessionId,
    /// The job that a scheduler has put it into.
    pub home: Option<Home>,
    /// Whether the core has let it in.
    is_in: bool,
    /// The numbers of kernels' names that the core knows.
    pub names: HashMap<String, u32>,
}

impl Rank {
    pub fn new(member: Member, session: SessionId, home: Option<Home>) -> Self {
        Self {
            member,
            session,
            home,
            is_in: false,
            names: HashMap::new(),
        }
    }
}

/// The core's words to the ranks of a job.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub directive: Directive,
    pub profiling: Profiling,
    pub profiling_reason: String,
}

impl Told {
    /// Takes what the core has told a rank. Returns why the rank is none any more, if so.
    fn hears(&mut self, hub: &mut Hub, rank: &mut Rank) -> Option<String> {
        let Some(told) = hub.guest_hears(rank.session) else {
            return Some(format!("the core has left process {}", rank.member.pid()));
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

    /// Whether a sample would count now: caps have settled, and the loop wants some.
    pub fn is_sample_wanted(&self) -> bool {
        self.directive.period > 0 && !self.directive.pause
    }
}

/// A job that is sampled in some way.
pub(crate) trait Sampled {
    /// The job's ranks.
    fn ranks(&self) -> &[Rank];
    /// The same to be changed, and what the core has told them.
    fn parts(&mut self) -> (&mut Vec<Rank>, &mut Told);
    /// How its sampling goes, in words.
    fn words(&self) -> String;
}

/// How far a job has come.
#[derive(Debug)]
pub(crate) enum Stage<S> {
    /// Processes come, and drivers tell which of them use GPUs.
    Gathers {
        /// The reason why the job is not sampled yet, in words.
        why: String,
    },
    /// The environments of the job's processes are read.
    Places { errand: u64, members: Vec<Member> },
    /// Each rank has said hello to the core.
    Joins { ranks: Vec<Rank>, since: Nanos },
    /// The job is sampled.
    Samples(Box<S>),
    /// The job is left alone for a while.
    Rests { until: Nanos, why: String },
}

impl<S> Default for Stage<S> {
    fn default() -> Self {
        Self::Gathers {
            why: "its processes come".to_owned(),
        }
    }
}

impl<S: Sampled> Stage<S> {
    /// Takes the members whose environments this errand has read, if it was this job's.
    pub fn take_members(&mut self, number: u64) -> Option<Vec<Member>> {
        match self {
            Self::Places { errand, members } if *errand == number => Some(mem::take(members)),
            _ => None,
        }
    }

    /// The sessions that litd speaks for.
    pub fn sessions(&self) -> Vec<SessionId> {
        let ranks = match self {
            Self::Joins { ranks, .. } => ranks,
            Self::Samples(sampling) => sampling.ranks(),
            Self::Gathers { .. } | Self::Places { .. } | Self::Rests { .. } => return Vec::new(),
        };
        ranks.iter().map(|rank| rank.session).collect()
    }

    /// The processes that it counts on.
    pub fn members(&self) -> Vec<&Member> {
        match self {
            Self::Places { members, .. } => members.iter().collect(),
            Self::Joins { ranks, .. } => ranks.iter().map(|it| &it.member).collect(),
            Self::Samples(sampling) => sampling.ranks().iter().map(|it| &it.member).collect(),
            Self::Gathers { .. } | Self::Rests { .. } => Vec::new(),
        }
    }

    /// Any stage -> `Gathers`. Ranks that were let in go.
    pub fn part(&mut self, hub: &mut Hub, why: &str) {
        self.leave(hub, why);
        *self = Self::Gathers {
            why: why.to_owned(),
        };
    }

    /// Any stage -> `Rests`, where the same would only happen again. Ranks that were let in go.
    pub fn rest(&mut self, hub: &mut Hub, now: Nanos, why: &str) {
        self.rest_for(hub, now, AGAIN, why);
    }

    /// The same for so long.
    pub fn rest_for(&mut self, hub: &mut Hub, now: Nanos, time: Nanos, why: &str) {
        self.leave(hub, why);
        *self = Self::Rests {
            until: now + time,
            why: why.to_owned(),
        };
    }

    fn leave(&self, hub: &mut Hub, why: &str) {
        for session in self.sessions() {
            hub.guest_leaves(session, why);
        }
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

    /// Takes the core's words to the ranks: `Joins` -> `Samples` once all are in, `Rests` if one is not let in.
    pub fn hear(&mut self, hub: &mut Hub, now: Nanos, begin: impl FnOnce(Vec<Rank>, Told) -> S) {
        match self {
            Self::Joins { ranks, since } => {
                let (mut told, mut no) = (Told::default(), None);
                for rank in ranks.iter_mut() {
                    no = no.or(told.hears(hub, rank));
                }
                if no.is_none() && now >= *since + INTRODUCTION {
                    no = Some("the core has not let all ranks in".to_owned());
                }
                match no {
                    Some(why) => self.rest(hub, now, &why),
                    None if ranks.iter().all(|it| it.is_in) => {
                        *self = Self::Samples(Box::new(begin(mem::take(ranks), told)));
                    }
                    None => {}
                }
            }
            Self::Samples(sampling) => {
                let (ranks, told) = sampling.parts();
                let gone = ranks.iter_mut().filter_map(|rank| told.hears(hub, rank));
                if let Some(why) = gone.last() {
                    self.part(hub, &why);
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

/// A message with the numbers of names that the core knows this rank by; only new names are told.
pub(super) fn renamed(mut kernels: Kernels, known: &mut HashMap<String, u32>) -> Kernels {
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
