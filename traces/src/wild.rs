//! Kernels whose times are far outside of the recording. A profiler that lost a time writes such ones, and
//! one of them would be nearly all of its rank's window.

use crate::gather::shortened;
use crate::timeline::{Kernel, Timeline};

/// What is further away than so many times the length of the rest is not of the same recording.
const FAR: i128 = 10;
/// What is nearer than this may be a pause. One rank alone may pause for longer: nobody tells otherwise.
const LEAST: i128 = 1_000_000_000;
const LEAST_OF_ONE: i128 = 10_000_000_000;
/// No job waits for longer.
const LONGEST: i128 = 3_600_000_000_000;
/// Of fewer kernels nobody can tell which of them are the recording.
const FEWEST: usize = 20;
/// One kernel in so many may be wild, and no more than so many at either end.
const ONE_IN: usize = 100;
const MOST: usize = 8;
/// Of one rank one kernel in so many: else it was recorded at another time.
const ONE_OF_A_RANK: usize = 10;

/// Where the recording of all ranks begins and ends, without what is far outside of it.
struct Recording {
    start: i128,
    end: i128,
}

/// Takes kernels out of the timelines whose start or end is far outside of what all ranks recorded, and says of
/// each rank what was left out.
pub(crate) fn leave_out(timelines: &mut [Timeline]) -> Vec<String> {
    let Some(recording) = Recording::of(timelines) else {
        return Vec::new();
    };
    let notes = timelines.iter_mut();
    notes
        .filter_map(|timeline| recording.clean(timeline))
        .collect()
}

impl Recording {
    /// None where no time is far away from the others.
    fn of(timelines: &[Timeline]) -> Option<Self> {
        let count = timelines.iter().map(|one| one.kernels.len()).sum::<usize>();
        if count < FEWEST {
            return None;
        }
        let most = (count / ONE_IN).clamp(1, MOST);
        // The earlier a start, and the later an end, the further outside it is.
        let starts = Furthest::of(timelines, most, |kernel| -i128::from(kernel.start.0));
        let ends = Furthest::of(timelines, most, |kernel| i128::from(kernel.end.0));
        let length = ends.inside()?.saturating_add(starts.inside()?);
        let least = if timelines.len() < 2 {
            LEAST_OF_ONE
        } else {
            LEAST
        };
        let far = least.max(FAR * length.max(0));
        let (first, last) = (starts.bound(far), ends.bound(far));
        (first.is_some() || last.is_some()).then_some(Self {
            start: first.map_or(i128::MIN, |first| -first),
            end: last.unwrap_or(i128::MAX),
        })
    }

    /// Whether a kernel is of another time. A collective may have waited for long.
    fn lacks(&self, kernel: &Kernel) -> bool {
        let (start, end) = (i128::from(kernel.start.0), i128::from(kernel.end.0));
        let latest = self.end.saturating_add(LONGEST);
        let waited = kernel.class.communicates() && start <= self.end && end <= latest;
        start < self.start || end > self.end && !waited
    }

    /// Takes such kernels out of a timeline. What was left out, in words.
    fn clean(&self, timeline: &mut Timeline) -> Option<String> {
        let wild = || timeline.kernels.iter().filter(|kernel| self.lacks(kernel));
        let count = wild().count();
        if count * ONE_OF_A_RANK > timeline.kernels.len() {
            return None;
        }
        let first = wild().next()?;
        let name = shortened(timeline.name_of(first));
        let what = self.how_far(first);
        timeline.keep(|kernel| !self.lacks(kernel));
        let (count, first) = match count {
            1 => ("1 kernel is".to_owned(), ""),
            count => (format!("{count} kernels are"), "the first of them, "),
        };
        Some(format!(
            "{}: {count} left out of rank {}, because of a time far outside of the recording: {first}{name}, {what}",
            timeline.source, timeline.rank
        ))
    }

    /// How far outside a kernel is, in words.
    fn how_far(&self, kernel: &Kernel) -> String {
        let (start, end) = (i128::from(kernel.start.0), i128::from(kernel.end.0));
        let seconds = |time: i128| time as f64 / 1e9;
        match start < self.start {
            true => format!(
                "which starts {:.3} s before the rest",
                seconds(self.start - start)
            ),
            false => format!("which ends {:.3} s after the rest", seconds(end - self.end)),
        }
    }
}

/// The times that are furthest outside, each with the place of its timeline, the furthest first, and one more.
struct Furthest(Vec<(i128, usize)>);

impl Furthest {
    fn of(timelines: &[Timeline], most: usize, outside: impl Fn(&Kernel) -> i128) -> Self {
        let mut kept = Vec::<(i128, usize)>::with_capacity(most + 2);
        for (at, timeline) in timelines.iter().enumerate() {
            for value in timeline.kernels.iter().map(&outside) {
                if kept.len() > most && kept.last().is_some_and(|last| value <= last.0) {
                    continue;
                }
                let place = kept.partition_point(|other| other.0 >= value);
                kept.insert(place, (value, at));
                kept.truncate(most + 1);
            }
        }
        Self(kept)
    }

    /// The one that is no longer outside for sure.
    fn inside(&self) -> Option<i128> {
        self.0.last().map(|last| last.0)
    }

    /// The last time that is not so far away from the next one. What several ranks tell of is real, such as a
    /// collective that one of them comes to late, but for what no job does.
    fn bound(&self, far: i128) -> Option<i128> {
        let gap = self
            .0
            .windows(2)
            .rposition(|pair| pair[0].0 - pair[1].0 > far)?;
        let (outside, inside) = self.0.split_at_checked(gap + 1)?;
        let (nearest, bound) = (outside.last()?, inside.first()?.0);
        let one_rank = outside.iter().all(|other| other.1 == nearest.1);
        (one_rank || nearest.0 - bound > LONGEST).then_some(bound)
    }
}
