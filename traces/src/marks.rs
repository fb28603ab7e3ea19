//! What each rank's kernels show of why it may be late; see [`litd_diagnosis`].

use litd_diagnosis::Marks;
use litd_units::Nanos;

use crate::pace::Pace;
use crate::skew::Skew;
use crate::spans::ratio;

/// The marks of all ranks, from their paces, how long each idled ([`idle`](crate::idle::idle())),
/// and what their collectives say, over an iteration (or several) of this length.
pub(crate) fn marks(paces: &[Pace], idle: &[Nanos], skew: &Skew, length: Nanos) -> Vec<Marks> {
    let mark = |(rank, pace): (usize, &Pace)| Marks {
        slower_compute: pace.compute.map(|(pace, _)| pace - 1.0),
        slower_memory: pace.memory.map(|(pace, _)| pace - 1.0),
        uncertainty: pace.compute.map(|(_, error)| error),
        uncertainty_memory: pace.memory.map(|(_, error)| error),
        idle: idle
            .get(rank)
            .and_then(|&idle| ratio(idle, length))
            .unwrap_or(0.0),
        slower_link: skew.link_slowness.get(rank).copied().unwrap_or(0.0),
    };
    paces.iter().enumerate().map(mark).collect()
}
