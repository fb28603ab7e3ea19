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
    let of_group = replay::gained(timelines, &matched, saves, |rank| range.contains(&rank));
    let of_all = replay::gained(timelines, &matched, saves, |_| true);
    // A job gains no more than the group that is sped up.
    let of_all = of_all.min(of_group);
    let share = |gained: f64, of: &[Timeline]| gained / wall_time(of).0.max(1) as f64;
    let iterations = study.waves.len().max(1) as f64;
    let each = |gained: f64| Nanos((gained / iterations) as i64);
    Some(Gain {
        group: share(of_group, own),
        group_ns: each(of_group),
        iteration: share(of_all, timelines),
        iteration_ns: each(of_all),
    })
}
