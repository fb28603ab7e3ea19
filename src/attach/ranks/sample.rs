//! What was measured of the ranks of a job without a hook, and its way into the core.

use litd_core::{DeviceId, Event};
use litd_proto::{FromHook, Kernels, Tick};
use litd_units::Nanos;

use super::stage::{Rank, Told, renamed};
use crate::hub::Hub;

/// The last whole iteration of all ranks.
#[derive(Debug)]
pub(crate) struct Sample {
    /// When it began, by a clock that is the same for all samples of a job.
    pub began: Nanos,
    pub ranks: Vec<Measured>,
}

/// The same of one rank.
#[derive(Debug)]
pub(crate) struct Measured {
    /// How long each whole iteration took.
    pub durations: Vec<Nanos>,
    /// The kernels, or the arrivals, with numbers in this message's own list of names.
    pub kernels: Kernels,
}

impl Sample {
    /// How long the last iteration took.
    pub fn took(&self) -> Nanos {
        let last = self.ranks.iter().filter_map(|it| it.durations.last());
        last.copied().max().unwrap_or_default()
    }

    /// How many whole iterations there are.
    pub fn iterations(&self) -> usize {
        let each = self.ranks.iter().map(|it| it.durations.len());
        each.min().unwrap_or(0)
    }

    /// Hands it to the core, as hooks do: the iterations' times, of which `last` is the last one's number, and that
    /// one's kernels if they count. `profiled`: whether iterations may take longer by being measured.
    pub fn hand_over(
        self,
        hub: &mut Hub,
        ranks: &mut [Rank],
        last: u64,
        profiled: bool,
        counts: bool,
    ) {
        for (rank, measured) in ranks.iter_mut().zip(self.ranks) {
            let count = u64::try_from(measured.durations.len()).unwrap_or(0);
            for (duration, before) in measured.durations.into_iter().zip((0..count).rev()) {
                let tick = Tick {
                    iteration: last.saturating_sub(before),
                    duration,
                    profiled,
                    overhead: Nanos::ZERO,
                };
                hub.guest_says(rank.session, &FromHook::Tick(tick));
            }
            if counts {
                let kernels = Kernels {
                    iteration: last,
                    ..renamed(measured.kernels, &mut rank.names)
                };
                hub.guest_says(rank.session, &FromHook::Kernels(kernels));
            }
        }
    }
}

/// Whether a sample that was begun then counts: the loop wants it, and has moved none of the ranks' caps since.
pub(crate) fn is_wanted_still(hub: &Hub, ranks: &[Rank], told: &Told, since: Nanos) -> bool {
    let devices: Vec<DeviceId> = ranks.iter().map(|it| it.member.device).collect();
    told.is_sample_wanted() && !hub.has_told(&devices, since)
}

/// Has the log say once that a job gave no sample in this way; why, in words. It is the event of the job's owner.
pub(crate) fn tell_of_none(hub: &mut Hub, ranks: &[Rank], way: &str, why: &str) {
    let Some(first) = ranks.first() else {
        return;
    };
    let job = hub.attached_as(first.session);
    let job = job.map_or_else(String::new, |(job, _)| format!("job {job}: "));
    let text = format!("{job}no sample by {way}: {why}");
    hub.handle(Event::Theirs {
        uid: first.member.process.uid,
        home: first.home.as_ref(),
        what: &text,
    });
}
