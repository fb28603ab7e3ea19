//! What a job would take if something in it were otherwise: all of it once more, kernel by kernel, each as much earlier as
//! what it waits for allows. docs/analyze-method.md has what that assumes.

mod beside;
mod graph;
mod late;
mod links;
mod order;
mod pauses;
mod peers;
mod stages;
mod stalls;

use std::sync::{Mutex, MutexGuard, PoisonError};

use litd_units::Nanos;
use serde::Serialize;

use self::beside::Beside;
use self::graph::{NONE, Newest, Rank};
pub use self::late::Course;
pub use self::links::{Link, Where};
use self::order::Event;
pub use self::pauses::{Paused, Pauses};
use self::peers::Peers;
pub use self::stages::{Stage, Why};
pub use self::stalls::Stall;
use crate::collectives::matched;
use crate::groups::Groups;
use crate::timeline::{Kernel, KernelClass, Timeline};

/// A job as it was recorded, which can be replayed with something in it otherwise.
#[derive(Debug, Serialize)]
pub struct WhatIf<'a> {
    #[serde(skip)]
    timelines: &'a [Timeline],
    #[serde(skip)]
    ranks: Vec<Rank>,
    #[serde(skip)]
    order: Vec<Event>,
    /// How many collectives there are.
    #[serde(skip)]
    rows: usize,
    /// What communication beside computation costs.
    #[serde(skip)]
    beside: Beside,
    /// What ranks of equal work take.
    #[serde(skip)]
    peers: Peers,
    /// Links that are slow.
    links: Vec<Link>,
    /// The stage that the others wait for.
    stage: Option<Stage>,
    /// Iterations in which all hosts are late.
    stall: Option<Stall>,
    /// Iterations in which the hosts of single ranks are late.
    pauses: Option<Pauses>,
    /// When it starts, and how long it takes.
    #[serde(skip)]
    start: Nanos,
    #[serde(skip)]
    wall: Nanos,
    /// What has been asked for: the same is asked for by several.
    #[serde(skip)]
    known: Mutex<Vec<Known>>,
}

/// What is mended, and by how much earlier the job ends then.
type Known = (Vec<(u32, Part)>, Vec<usize>, Nanos);

/// What is mended of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// What it computes and copies takes as long as on the median rank.
    Kernels,
    /// Its clock is as fast as the median rank's: where work moves from rank to rank and from iteration to iteration, that
    /// stays.
    Clock,
    /// Its host is as fast as the median rank's.
    Host,
    /// Both.
    All,
}

/// What is otherwise.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mended<'a> {
    /// Ranks, by their numbers, and what of them.
    pub ranks: &'a [(u32, Part)],
    /// Links, by their places among [`WhatIf::links`].
    pub links: &'a [usize],
}

/// By how much less each thing takes.
pub(super) struct Saves<'s> {
    /// A kernel, by the place of its rank and its own.
    pub(super) kernel: &'s dyn Fn(usize, usize) -> f64,
    /// What a host does before a kernel is launched, or a gap before it where no launches are known.
    pub(super) host: &'s dyn Fn(usize, usize) -> f64,
    /// A collective, by its number.
    pub(super) row: &'s dyn Fn(usize) -> f64,
}

impl<'a> WhatIf<'a> {
    /// Of the timelines of a job, in the order of its groups.
    #[must_use]
    pub fn of(timelines: &'a [Timeline], groups: &Groups) -> Self {
        let matched = matched(timelines, groups);
        let mut ranks = Vec::from_iter(timelines.iter().map(Rank::of));
        let rows = graph::meet(&mut ranks, timelines, &matched);
        let order = order::order(&ranks, timelines, &rows);
        let beside = Beside::of(timelines, groups);
        let peers = Peers::of(timelines, groups, &ranks, &beside);
        let starts = timelines.iter().zip(&ranks);
        let starts = starts
            .filter_map(|(timeline, rank)| Some(timeline.kernels.first()?.start - rank.before));
        let start = starts.min().unwrap_or_default();
        let ends = timelines.iter().flat_map(|one| &one.kernels);
        let end = ends.map(|kernel| kernel.end).max();
        let job = Self {
            timelines,
            ranks,
            order,
            rows: rows.members.len(),
            beside,
            peers,
            links: Vec::new(),
            stage: None,
            stall: None,
            pauses: None,
            start,
            wall: end.unwrap_or(start) - start,
            known: Mutex::default(),
        };
        let links = links::find(&job, &matched);
        let stage = stages::find(&job, groups);
        let stall = stalls::find(&job);
        let pauses = pauses::find(&job);
        Self {
            links,
            stage,
            stall,
            pauses,
            ..job
        }
    }

    /// Links that are clearly slower than others that carry the same; the most costly first.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The stage of a pipeline that the others wait for, if one is clearly longer.
    #[must_use]
    pub fn stage(&self) -> Option<&Stage> {
        self.stage.as_ref()
    }

    /// Iterations in which the hosts of all ranks are late together.
    #[must_use]
    pub fn stall(&self) -> Option<&Stall> {
        self.stall.as_ref()
    }

    /// Iterations in which the hosts of single ranks pause, where that costs much.
    #[must_use]
    pub fn pauses(&self) -> Option<&Pauses> {
        self.pauses.as_ref()
    }

    /// From the first start to the last end of the job.
    #[must_use]
    pub fn wall(&self) -> Nanos {
        self.wall
    }

    /// How many iterations are marked, or one where none is.
    #[must_use]
    pub fn iterations(&self) -> usize {
        let numbers = self
            .timelines
            .iter()
            .map(|one| one.iteration_numbers().len());
        numbers.max().unwrap_or_default().max(1)
    }

    /// By how much less the job would take, as a share of what it takes.
    #[must_use]
    pub fn share(&self, mended: Mended<'_>) -> f64 {
        self.saved(mended).0 as f64 / self.wall.0.max(1) as f64
    }

    /// By how much earlier the job would end; never less than zero.
    #[must_use]
    pub fn saved(&self, mended: Mended<'_>) -> Nanos {
        let Mended { ranks, links } = mended;
        if ranks.is_empty() && links.is_empty() {
            return Nanos::ZERO;
        }
        let same = |known: &&Known| known.0 == ranks && known.1 == links;
        let known = self.known().iter().find(same).map(|known| known.2);
        known.unwrap_or_else(|| {
            let saved = self.replay_of(mended);
            let known = (ranks.to_vec(), links.to_vec(), saved);
            self.known().push(known);
            saved
        })
    }

    /// A replay that panicked has added nothing.
    fn known(&self) -> MutexGuard<'_, Vec<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replay_of(&self, mended: Mended<'_>) -> Nanos {
        let part = |rank: usize| {
            let number = self.timelines.get(rank).map(|timeline| timeline.rank);
            let mut given = mended.ranks.iter();
            given
                .find(|(rank, _)| Some(*rank) == number)
                .map(|given| given.1)
        };
        let parts = Vec::from_iter((0..self.timelines.len()).map(part));
        let has = |rank: usize, wanted: Part| {
            let part = parts.get(rank).copied().flatten();
            part == Some(wanted) || part == Some(Part::All)
        };
        let links = mended.links.iter().filter_map(|&at| self.links.get(at));
        let mut rows = std::collections::HashMap::<u32, f64>::new();
        for &(row, saved) in links.flat_map(|link| &link.rows) {
            let most = rows.entry(row).or_default();
            *most = most.max(saved);
        }
        self.replayed(&Saves {
            kernel: &|rank, kernel| {
                let clock = parts.get(rank).copied().flatten() == Some(Part::Clock);
                match clock || has(rank, Part::Kernels) {
                    true => self.peers.kernel(self.timelines, (rank, kernel), clock),
                    false => 0.0,
                }
            },
            host: &|rank, kernel| match has(rank, Part::Host) {
                true => self.peers.host(rank, kernel),
                false => 0.0,
            },
            row: &|row| {
                let row = u32::try_from(row).unwrap_or(NONE);
                rows.get(&row).copied().unwrap_or(0.0)
            },
        })
    }

    /// By how much earlier the job ends if these are saved.
    pub(super) fn replayed(&self, saves: &Saves<'_>) -> Nanos {
        let mut run = Run::of(self);
        for event in &self.order {
            run.take(*event, saves);
        }
        Nanos((self.wall.0 as f64 - run.end(saves)).max(0.0) as i64)
    }
}

/// One replay. Shifts are by how much later than recorded something happens, in nanoseconds: below zero it is earlier.
struct Run<'j, 'a> {
    job: &'j WhatIf<'a>,
    ranks: Vec<OfRank>,
    /// When the last of each collective's ranks comes.
    rows: Vec<f64>,
}

/// One rank on the way.
struct OfRank {
    /// The shifts of its kernels' ends, those of collectives aside, and of their launches, where these are known. Of millions
    /// a few bits less do: what is rounded is a ten-millionth of a shift.
    ends: Vec<f32>,
    launches: Vec<f32>,
    /// Where its host is.
    host: f64,
    /// How many of its collectives have ended.
    gained: usize,
    /// How many kernels have been launched, and how many have started.
    launched: usize,
    started: usize,
    newest: Newest,
}

impl<'j, 'a> Run<'j, 'a> {
    fn of(job: &'j WhatIf<'a>) -> Self {
        let ranks = job.timelines.iter().zip(&job.ranks);
        let ranks = ranks.map(|(timeline, rank)| OfRank {
            ends: vec![0.0; rank.nodes.len()],
            launches: match rank.launches.is_empty() {
                true => Vec::new(),
                false => vec![0.0; rank.nodes.len()],
            },
            host: 0.0,
            gained: 0,
            launched: 0,
            started: 0,
            newest: Newest::of(timeline),
        });
        Self {
            job,
            ranks: ranks.collect(),
            rows: vec![f64::NEG_INFINITY; job.rows],
        }
    }

    fn take(&mut self, event: Event, saves: &Saves<'_>) {
        let rank = event.rank();
        let Some(of) = self.ranks.get_mut(rank) else {
            return;
        };
        let next = match event.starts() {
            true => &mut of.started,
            false => &mut of.launched,
        };
        let place = *next;
        *next += 1;
        match event.starts() {
            true => self.start(rank, place, saves),
            false => self.launch(rank, place, saves),
        }
    }

    /// By how much later a kernel ends.
    fn ended(&self, rank: usize, kernel: u32, saves: &Saves<'_>) -> Option<f64> {
        let of = self.job.ranks.get(rank)?;
        let meet = of.meet(kernel as usize).filter(|meet| !meet.goes_on);
        match meet {
            Some(meet) => {
                let row = meet.row as usize;
                Some(self.rows.get(row)? - (saves.row)(row))
            }
            None => {
                let end = self.ranks.get(rank)?.ends.get(kernel as usize);
                end.copied().map(f64::from)
            }
        }
    }

    fn launch(&mut self, rank: usize, place: usize, saves: &Saves<'_>) {
        let launches = self.job.ranks.get(rank).map(|rank| &rank.launches);
        let Some(launch) = launches.and_then(|launches| launches.get(place)) else {
            return;
        };
        let awaited = self.ended(rank, launch.awaited, saves);
        let Some(of) = self.ranks.get_mut(rank) else {
            return;
        };
        if let Some(awaited) = awaited {
            of.host = awaited.max(of.host - f64::from(launch.slack));
        }
        of.host -= (saves.host)(rank, launch.kernel as usize);
        if let Some(shift) = of.launches.get_mut(launch.kernel as usize) {
            *shift = of.host as f32;
        }
    }

    fn start(&mut self, rank: usize, kernel: usize, saves: &Saves<'_>) {
        let job = self.job;
        let own = job.ranks.get(rank);
        let own = own.and_then(|own| Some((own, own.nodes.get(kernel)?)));
        let Some(timeline) = job.timelines.get(rank) else {
            return;
        };
        let (Some((own, node)), Some(started)) = (own, timeline.kernels.get(kernel)) else {
            return;
        };
        let gained = self.beside(rank, started, saves);
        let Some(of) = self.ranks.get_mut(rank) else {
            return;
        };
        let before = of.newest.take(started.stream, kernel);
        let slacks = own.slacks(timeline, (kernel, started), before);
        let less = |shift: Option<f64>, slack: Option<f64>| Some(shift? - slack?);
        let launched = of.launches.get(kernel);
        let launched = less(launched.copied().map(f64::from), slacks.launch);
        let before = less(self.ended(rank, before, saves), slacks.before);
        let before = before.map(|shift| shift - gained);
        let other = less(self.ended(rank, node.other, saves), slacks.other);
        let all = [before, other, launched].into_iter().flatten();
        let mut shift = all.reduce(f64::max).unwrap_or(0.0);
        if slacks.launch.is_none() {
            shift -= (saves.host)(rank, kernel);
        }
        if let Some(meet) = own.meets.get(node.meet as usize)
            && let Some(row) = self.rows.get_mut(meet.row as usize)
        {
            *row = row.max(shift - f64::from(meet.slack));
        }
        let end = shift - (saves.kernel)(rank, kernel);
        let of = self.ranks.get_mut(rank);
        if let Some(place) = of.and_then(|of| of.ends.get_mut(kernel)) {
            *place = end as f32;
        }
    }

    /// What computation before a kernel gains as collectives that have ended took less time beside it.
    fn beside(&mut self, rank: usize, own: &Kernel, saves: &Saves<'_>) -> f64 {
        let job = self.job;
        if job.beside.loses <= 0.0 || own.class != KernelClass::Computation {
            return 0.0;
        }
        let timeline = job.timelines.get(rank);
        let kernels = timeline.map_or(&[][..], |timeline| &timeline.kernels);
        let of = self.ranks.get(rank);
        let mut next = of.map(|of| of.gained).unwrap_or_default();
        let mut gained = 0.0;
        let ends = job.beside.ends.get(rank).map_or(&[][..], Vec::as_slice);
        while let Some(&at) = ends.get(next) {
            let ended = kernels.get(at as usize);
            if ended.is_none_or(|ended| ended.end > own.start) {
                break;
            }
            next += 1;
            let started = self.ranks.get(rank);
            let started = started.and_then(|of| of.ends.get(at as usize));
            if let (Some(started), Some(ended)) = (started, self.ended(rank, at, saves)) {
                let overlap = job.beside.overlap(rank, at as usize);
                gained += (f64::from(*started) - ended) * overlap * job.beside.loses;
            }
        }
        if let Some(of) = self.ranks.get_mut(rank) {
            of.gained = next;
        }
        gained
    }

    /// How long after the start of the job the last kernel of all ends. Nanoseconds since 1970 are no exact floating-point
    /// numbers.
    fn end(&self, saves: &Saves<'_>) -> f64 {
        let ranks = self.job.timelines.iter().enumerate();
        let ends = ranks.flat_map(|(rank, timeline)| {
            let kernels = (0..).zip(&timeline.kernels);
            kernels.filter_map(move |(place, kernel)| {
                let end = kernel.end - self.job.start;
                Some(end.0 as f64 + self.ended(rank, place, saves)?)
            })
        });
        ends.fold(f64::NEG_INFINITY, f64::max)
    }
}
