//! What a group gains if its slow GPUs become as fast as its median one, and what the job does.

use litd_units::Nanos;
use serde::Serialize;

use super::Study;
use crate::analysis::wall_time;
use crate::collectives::{matched, replay};
use crate::groups::Groups;
use crate::timeline::Timeline;

/// An estimate: kernels as long as the median GPU's, and each collective as much earlier as what was waited
/// in it allows.
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

/// What one of a job's groups gains; `study` is of its ranks.
#[must_use]
pub fn gain(
    timelines: &[Timeline],
    groups: &Groups,
    group: usize,
    study: &Study<'_>,
) -> Option<Gain> {
    let range = groups.all.get(group)?.range.clone();
    let own = timelines.get(range.clone())?;
    let matched = matched(timelines, groups);
    let saves = |rank: usize| {
        let place = rank.checked_sub(range.start);
        let saves = place.and_then(|place| study.models.saves.get(place));
        saves.copied().unwrap_or(0.0)
    };
    let is_named = |rank: usize| {
        let rank = timelines.get(rank).map(|timeline| timeline.rank);
        rank.is_some_and(|rank| study.diagnosis.stragglers.contains(&rank))
    };
    // Ranks that are slower than the median as well, and stay so, are not overtaken: what hides their waits keeps
    // those from telling how far ahead they are.
    let others = range.clone().filter(|&rank| !is_named(rank));
    let next = others.map(saves).fold(0.0, f64::max);
    let named_saves = |rank: usize| match is_named(rank) && next < 1.0 {
        true => (1.0 - (1.0 - saves(rank)) / (1.0 - next)).max(0.0),
        false => 0.0,
    };
    // A job gains no more than the group that is sped up.
    let gained = |saves: &dyn Fn(usize) -> f64| {
        let of_group = replay::gained(timelines, &matched, saves, |rank| range.contains(&rank));
        let of_all = replay::gained(timelines, &matched, saves, |_| true);
        (of_group, of_all.min(of_group))
    };
    let (of_group, of_all) = gained(&saves);
    let (of_named, of_all_by_named) = gained(&named_saves);
    let share = |gained: f64, of: &[Timeline]| gained / wall_time(of).0.max(1) as f64;
    let iterations = study.waves.len().max(1) as f64;
    let each = |gained: f64| Nanos((gained / iterations) as i64);
    Some(Gain {
        group: share(of_group, own),
        group_ns: each(of_group),
        iteration: share(of_all, timelines),
        iteration_ns: each(of_all),
        named: share(of_named, own),
        named_ns: each(of_named),
        named_iteration: share(of_all_by_named, timelines),
        named_iteration_ns: each(of_all_by_named),
    })
}
