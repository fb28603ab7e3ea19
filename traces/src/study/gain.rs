//! What a group gains if its slow GPUs become as fast as its median one, and what the job does.

use litd_units::Nanos;
use serde::Serialize;

use super::Study;
use crate::groups::Groups;
use crate::timeline::Timeline;
use crate::whatif::{Mended, Part, WhatIf};

/// An estimate: kernels as long as the median GPU's, and each kernel as much earlier as what it waits for allows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gain {
    /// Of the group's own time, a share: its ranks by themselves, as if they waited for no other group.
    pub group: f64,
    /// In nanoseconds of an iteration.
    pub group_ns: Nanos,
    /// Of the job's time, a share: what is left of it where groups wait for each other.
    pub iteration: f64,
    /// In nanoseconds of an iteration.
    pub iteration_ns: Nanos,
    /// Of the group's own time, if those ranks alone become as fast that the others are said to wait for.
    pub named: f64,
    /// In nanoseconds of an iteration.
    pub named_ns: Nanos,
    /// Of the job's time, likewise.
    pub named_iteration: f64,
    /// In nanoseconds of an iteration.
    pub named_iteration_ns: Nanos,
}

/// What one of a job's groups gains; `study` is of its ranks, and `job` of all.
#[must_use]
pub fn gain(
    (timelines, job): (&[Timeline], &WhatIf<'_>),
    groups: &Groups,
    group: usize,
    study: &Study<'_>,
) -> Option<Gain> {
    let group = groups.all.get(group)?;
    let own = timelines.get(group.range.clone())?;
    let named = study.diagnosis.stragglers.iter();
    let few = Vec::from_iter(named.map(|&rank| (rank, Part::Clock)));
    let ranks = own.iter().map(|timeline| (timeline.rank, Part::Clock));
    let mut all = Vec::from_iter(ranks);
    all.extend(few.iter().copied());
    let inside = |few: &[(u32, Part)]| {
        let mut few = few.iter();
        few.all(|(rank, _)| own.iter().any(|timeline| timeline.rank == *rank))
    };
    let iterations = study.waves.len().max(1) as f64;
    let gained = |job: &WhatIf<'_>, ranks: &[(u32, Part)]| {
        let saved = job.saved(Mended { ranks, links: &[] });
        let share = saved.0 as f64 / job.wall().0.max(1) as f64;
        (share, Nanos((saved.0 as f64 / iterations) as i64))
    };
    let itself = (groups.all.len() > 1).then(|| WhatIf::of(own, &groups.alone(group, own)));
    let itself = itself.as_ref().unwrap_or(job);
    let (group, group_ns) = gained(itself, &all);
    let (named, named_ns) = gained(itself, &few);
    let (mut iteration, mut iteration_ns) = gained(job, &all);
    // A job gains no more than the group that is sped up, where no other rank is.
    if iteration_ns > group_ns && inside(&few) {
        iteration *= group_ns.0 as f64 / iteration_ns.0 as f64;
        iteration_ns = group_ns;
    }
    let (named_iteration, named_iteration_ns) = gained(job, &few);
    Some(Gain {
        group,
        group_ns,
        iteration,
        iteration_ns,
        named,
        named_ns,
        named_iteration,
        named_iteration_ns,
    })
}
