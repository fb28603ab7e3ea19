//! What a job would take if something in it were otherwise: all of it once more, kernel by kernel, each as much earlier as
//! what it waits for allows. docs/analyze.md has what that assumes.

mod beside;
mod graph;
mod late;
mod links;
mod pauses;
mod peers;
mod stages;
mod stalls;

use litd_units::Nanos;
use serde::Serialize;

use self::beside::Beside;
use self::graph::{Event, NONE, Node, Rank};
pub use self::late::Course;
pub use self::links::{Link, Where};
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
    /// How long each collective takes once all have come.
    #[serde(skip)]
    takes: Vec<Nanos>,
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
    #[serde(skip)]
    wall: Nanos,
}

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
        let takes = graph::meet(&mut ranks, &matched);
        let order = graph::order(&ranks, timelines);
        let beside = Beside::of(timelines, groups);
        let peers = Peers::of(timelines, groups, &ranks, &beside);
        let starts = timelines.iter().zip(&ranks);
        let starts = starts
            .filter_map(|(timeline, rank)| Some(timeline.kernels.first()?.start - rank.before));
        let start = starts.min();
        let ends = timelines.iter().flat_map(|one| &one.kernels);
        let end = ends.map(|kernel| kernel.end).max();
        let job = Self {
            timelines,
            ranks,
            order,
            takes,
            beside,
            peers,
            links: Vec::new(),
            stage: None,
            stall: None,
            pauses: None,
            wall: end.unwrap_or_default() - start.unwrap_or_default(),
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

    /// By how much less the job would take, as a share of what it takes.
    #[must_use]
    pub fn share(&self, mended: Mended<'_>) -> f64 {
        self.saved(mended).0 as f64 / self.wall.0.max(1) as f64
    }

    /// By how much earlier the job would end; never less than zero.
    #[must_use]
    pub fn saved(&self, mended: Mended<'_>) -> Nanos {
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
        let end = |timeline: &Timeline| timeline.kernels.iter().map(|kernel| kernel.end).max();
        let last = self.timelines.iter().filter_map(end).max();
        Nanos((last.unwrap_or_default().0 as f64 - run.end(saves)).max(0.0) as i64)
    }
}

/// One replay. Shifts are by how much later than recorded something happens, in nanoseconds: below zero it is earlier.
struct Run<'j, 'a> {
    job: &'j WhatIf<'a>,
    /// Of each rank the shifts of its kernels' ends, those of collectives aside, and of their launches.
    ends: Vec<Vec<f64>>,
    launches: Vec<Vec<f64>>,
    /// Where each host is.
    hosts: Vec<f64>,
    /// When the last of each collective's ranks comes.
    rows: Vec<f64>,
    /// Of each rank how many of its collectives have ended.
    gained: Vec<usize>,
}

impl<'j, 'a> Run<'j, 'a> {
    fn of(job: &'j WhatIf<'a>) -> Self {
        let zeros = |rank: &Rank| vec![0.0; rank.nodes.len()];
        Self {
            job,
            ends: job.ranks.iter().map(zeros).collect(),
            launches: job.ranks.iter().map(zeros).collect(),
            hosts: vec![0.0; job.ranks.len()],
            rows: vec![f64::NEG_INFINITY; job.takes.len()],
            gained: vec![0; job.ranks.len()],
        }
    }

    fn take(&mut self, event: Event, saves: &Saves<'_>) {
        let rank = event.rank as usize;
        match event.starts {
            true => self.start(rank, event.place as usize, saves),
            false => self.launch(rank, event.place as usize, saves),
        }
    }

    fn node(&self, rank: usize, kernel: usize) -> Option<&'j Node> {
        self.job.ranks.get(rank)?.nodes.get(kernel)
    }

    /// By how much later a kernel ends.
    fn ended(&self, rank: usize, kernel: u32, saves: &Saves<'_>) -> Option<f64> {
        let node = self.node(rank, kernel as usize)?;
        let row = self.rows.get(node.row as usize).filter(|_| !node.goes_on);
        match row {
            Some(row) => Some(row - (saves.row)(node.row as usize)),
            None => self.ends.get(rank)?.get(kernel as usize).copied(),
        }
    }

    fn launch(&mut self, rank: usize, place: usize, saves: &Saves<'_>) {
        let launches = self.job.ranks.get(rank).map(|rank| &rank.launches);
        let Some(launch) = launches.and_then(|launches| launches.get(place)) else {
            return;
        };
        let awaited = self.ended(rank, launch.awaited, saves);
        let Some(host) = self.hosts.get_mut(rank) else {
            return;
        };
        if let Some(awaited) = awaited {
            *host = awaited.max(*host - f64::from(launch.slack));
        }
        *host -= (saves.host)(rank, launch.kernel as usize);
        let host = *host;
        let shift = self.launches.get_mut(rank);
        if let Some(shift) = shift.and_then(|all| all.get_mut(launch.kernel as usize)) {
            *shift = host;
        }
    }

    fn start(&mut self, rank: usize, kernel: usize, saves: &Saves<'_>) {
        let Some(node) = self.node(rank, kernel) else {
            return;
        };
        let gained = self.beside(rank, kernel, saves);
        let before = self.ended(rank, node.before, saves);
        let before = before.map(|shift| shift - f64::from(node.before_slack) - gained);
        let other = self.ended(rank, node.other, saves);
        let launched = self.launches.get(rank).and_then(|all| all.get(kernel));
        let launched = launched.filter(|_| node.launch_slack != NONE);
        let launched = launched.map(|shift| shift - f64::from(node.launch_slack));
        let all = [before, other, launched].into_iter().flatten();
        let mut shift = all.reduce(f64::max).unwrap_or(0.0);
        if node.launch_slack == NONE {
            shift -= (saves.host)(rank, kernel);
        }
        if let Some(row) = self.rows.get_mut(node.row as usize) {
            *row = row.max(shift - f64::from(node.wait));
        }
        let end = shift - (saves.kernel)(rank, kernel);
        if let Some(place) = self.ends.get_mut(rank).and_then(|all| all.get_mut(kernel)) {
            *place = end;
        }
    }

    /// What computation before a kernel gains as collectives that have ended took less time beside it.
    fn beside(&mut self, rank: usize, kernel: usize, saves: &Saves<'_>) -> f64 {
        let job = self.job;
        let timeline = job.timelines.get(rank);
        let kernels = timeline.map_or(&[][..], |timeline| &timeline.kernels);
        let computes = |kernel: &&Kernel| kernel.class == KernelClass::Computation;
        let Some(own) = kernels.get(kernel).filter(computes) else {
            return 0.0;
        };
        let mut next = self.gained.get(rank).copied().unwrap_or_default();
        let mut gained = 0.0;
        let ends = job.beside.ends.get(rank).map_or(&[][..], Vec::as_slice);
        if job.beside.loses <= 0.0 {
            return 0.0;
        }
        while let Some(&at) = ends.get(next) {
            let ended = kernels.get(at as usize);
            if ended.is_none_or(|ended| ended.end > own.start) {
                break;
            }
            next += 1;
            let started = self.ends.get(rank).and_then(|all| all.get(at as usize));
            if let (Some(started), Some(ended)) = (started, self.ended(rank, at, saves)) {
                let overlap = job.beside.overlap(rank, at as usize);
                gained += (started - ended) * overlap * job.beside.loses;
            }
        }
        if let Some(known) = self.gained.get_mut(rank) {
            *known = next;
        }
        gained
    }

    /// When the last kernel of all ends.
    fn end(&self, saves: &Saves<'_>) -> f64 {
        let ranks = self.job.timelines.iter().enumerate();
        let ends = ranks.flat_map(|(rank, timeline)| {
            let kernels = (0..).zip(&timeline.kernels);
            kernels.filter_map(move |(place, kernel)| {
                Some(kernel.end.0 as f64 + self.ended(rank, place, saves)?)
            })
        });
        ends.fold(f64::NEG_INFINITY, f64::max)
    }
}
