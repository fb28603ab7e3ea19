//! Hosts that launch kernels too late: whose, in how long gaps that shows, and the limits of
//! recordings.

use litd_traces::whatif::{Paused, Pauses, Stall};
use litd_traces::{RankReport, Report};
use litd_units::Nanos;

use super::answer::Answer;
use super::certainty::Graded;
use super::cost::MUCH;
use super::{parts, words};
use crate::show::time;

/// Gaps of a millisecond and more that make up this share of what GPUs wait for launches are why.
const MOST: f64 = 0.5;

/// Ranks whose GPUs wait for their hosts' launches clearly longer than the others'.
pub struct Late {
    ranks: Vec<u32>,
    /// The greatest share of their time in which they do.
    most: f64,
    /// The others' share.
    others: f64,
}

impl Late {
    /// Of ranks that are not compared with each other, or whose groups are healthy: launches tell of each by itself.
    pub fn of(report: &Report) -> Option<Self> {
        let known = |rank: &RankReport| rank.launches_known >= parts::KNOWN;
        if report.ranks.len() < 2 || !report.ranks.iter().all(known) {
            return None;
        }
        let waits =
            |rank: &RankReport| rank.time_ns.idle_launch.0 as f64 / rank.window_ns.0.max(1) as f64;
        let shares = || report.ranks.iter().map(waits);
        let (least, most) = (shares().reduce(f64::min)?, shares().reduce(f64::max)?);
        let middle = (least + most) / 2.0;
        let is_late = |rank: &&RankReport| waits(rank) > middle;
        let ranks = report.ranks.iter().filter(is_late);
        let others = shares().filter(|share| *share <= middle).reduce(f64::max)?;
        (most - others >= MUCH).then(|| Self {
            ranks: ranks.map(|rank| rank.rank).collect(),
            most,
            others,
        })
    }

    fn hosts(&self) -> String {
        match self.ranks[..] {
            [_] => format!("the host of {}", words::ranks(&self.ranks)),
            _ => format!("the hosts of {}", words::ranks(&self.ranks)),
        }
    }

    /// The reports of these ranks.
    fn reports<'a>(&self, report: &'a Report) -> impl Iterator<Item = &'a RankReport> {
        let is_meant = |rank: &&RankReport| self.ranks.contains(&rank.rank);
        report.ranks.iter().filter(is_meant)
    }

    pub fn headline(&self) -> String {
        let (what, launch, wait) = match self.ranks[..] {
            [_] => ("Late host", "launches", "its GPU waits"),
            _ => ("Late hosts", "launch", "their GPUs wait"),
        };
        format!(
            "{what}: {} {launch} kernels too late; {wait} for launches for up to {} of the time recorded, the others' for {} at most.",
            self.hosts(),
            words::percents(self.most),
            words::percents(self.others)
        )
    }

    pub fn next(&self, report: &Report) -> String {
        format!(
            "look at {} first: {}.",
            self.hosts(),
            advice(&Vec::from_iter(self.reports(report)))
        )
    }

    /// The gain if they were in time: how much longer their GPUs wait than the others'.
    pub fn cost(&self, report: &Report) -> String {
        let more = self
            .reports(report)
            .map(|rank| with_first(rank, self.most - self.others));
        let more = more.reduce(f64::max).unwrap_or_default();
        format!(
            "with {} in time an iteration would take up to about {} less.",
            self.hosts(),
            words::percents(more)
        )
    }
}

/// Late hosts, where they come before all else.
pub enum LateHosts {
    /// Hosts of some ranks.
    OfSome(Late),
    /// Hosts of all ranks.
    OfAll(All),
}

impl LateHosts {
    pub fn of(report: &Report) -> Option<Self> {
        let some = Late::of(report).map(Self::OfSome);
        some.or_else(|| All::of(report).map(Self::OfAll))
    }

    pub fn headline(&self) -> String {
        match self {
            Self::OfSome(late) => late.headline(),
            Self::OfAll(all) => all.headline(),
        }
    }

    pub fn next(&self, report: &Report) -> Answer {
        Answer::of(match self {
            Self::OfSome(late) => late.next(report),
            Self::OfAll(_) => All::NEXT.to_owned(),
        })
    }

    pub fn cost(&self, report: &Report) -> String {
        match self {
            Self::OfSome(late) => late.cost(report),
            Self::OfAll(all) => all.cost(),
        }
    }
}

/// All hosts, where no GPU of a pipeline does more than wait for long: a schedule always leaves one of them work.
pub struct All {
    share: f64,
    /// How long a gap is on average.
    mean: Nanos,
}

impl All {
    const NEXT: &str = "look at what all hosts do in these gaps: input (data loader), a scheduler, logging, checkpoints.";

    fn of(report: &Report) -> Option<Self> {
        let share = parts::standing_still(report);
        let still = report.standstill.filter(|_| share >= MUCH)?;
        let count = i64::try_from(still.longs).unwrap_or(i64::MAX).max(1);
        Some(Self {
            share,
            mean: Nanos(still.long_ns.0 / count),
        })
    }

    fn headline(&self) -> String {
        format!(
            "Late hosts: no GPU does more than wait for {} of the time recorded ({} each time), so their hosts are late; power can't help.",
            words::percents(self.share),
            time(self.mean)
        )
    }

    fn cost(&self) -> String {
        format!(
            "with hosts in time an iteration would take up to {} less.",
            words::percents(self.share)
        )
    }
}

/// The share of its time in which every rank's GPU waits for its host's launches at least; none where it is little, or
/// where launches are not known.
pub fn launch_bound(report: &Report) -> Option<f64> {
    /// Less is what hosts that are in time take at the ends of iterations.
    const BOUND: f64 = 0.1;
    let share = |rank: &RankReport| {
        let window = rank.window_ns.0.max(1) as f64;
        (rank.launches_known >= parts::KNOWN).then(|| rank.time_ns.idle_launch.0 as f64 / window)
    };
    let shares = report.ranks.iter().map(share);
    let shares = shares.collect::<Option<Vec<_>>>()?;
    let least = shares.into_iter().reduce(f64::min)?;
    (report.ranks.len() > 1 && least >= BOUND).then_some(least)
}

/// The verdict that every host is too slow for its GPU.
pub fn bound(share: f64) -> String {
    format!(
        "Late hosts: no host launches kernels fast enough for its GPU, which waits for launches for {} of the time at least; power can't help.",
        words::percents(share)
    )
}

/// A share of a rank's time for which its host keeps it waiting, with what that is before the first kernel: the recording
/// of a GPU begins there, and that of its host with the iteration. No more than it is in an iteration on average counts,
/// because a GPU may have been busy with what was not recorded.
pub fn with_first(rank: &RankReport, share: f64) -> f64 {
    let window = rank.window_ns.0.max(1) as f64;
    let gaps = rank.iterations.saturating_sub(1).max(1) as f64;
    let before = rank.before_first.unwrap_or_default().0 as f64;
    let first = before.min(share * window / gaps);
    (share * window + first) / (window + first)
}

/// Whether ranks wait for launches in a few long gaps: then these, how many in an iteration and how long.
pub fn long(ranks: &[&RankReport]) -> Option<(usize, Nanos)> {
    let idle = ranks.iter().map(|rank| rank.time_ns.idle_launch);
    let idle = idle.sum::<Nanos>();
    let long = ranks.iter().map(|rank| rank.gaps.long).sum::<Nanos>();
    let count: usize = ranks.iter().map(|rank| rank.gaps.longs).sum();
    let mean = Nanos(long.0 / i64::try_from(count).unwrap_or(i64::MAX).max(1));
    (count > 0 && long.0 as f64 >= MOST * idle.0 as f64).then_some((count, mean))
}

/// Advice for the hosts of these ranks, by the length of the gaps.
pub fn advice(ranks: &[&RankReport]) -> String {
    match long(ranks) {
        Some((_, mean)) => format!(
            "GPUs wait in few long gaps ({} each), as for input (data loader), a server's scheduler, logging or checkpoints",
            time(mean)
        ),
        None => "fewer and larger launches (CUDA graphs), less work on the host between them, faster input".into(),
    }
}

/// The sentence that hosts of single ranks are late now and then.
pub fn pauses(pauses: &Pauses) -> String {
    /// So many are named.
    const NAMED: usize = 2;
    let one = |paused: &Paused| {
        let iterations = match paused.iterations.len() {
            0..=2 => words::iterations(&paused.iterations),
            more => format!("{more} iterations"),
        };
        format!("that of rank {} in {iterations}", paused.rank)
    };
    let named = pauses.ranks.iter().take(NAMED).map(one);
    let more = pauses.ranks.len().saturating_sub(NAMED);
    let more = match more {
        0 => String::new(),
        1 => ", and one more".into(),
        more => format!(", and {more} more"),
    };
    let longest = pauses.ranks.iter().map(|paused| paused.longest_ns).max();
    format!(
        "Late hosts, in turn: {}{more} pause for up to {}, and the others wait; power can't help.",
        Vec::from_iter(named).join(", "),
        time(longest.unwrap_or_default())
    )
}

pub fn sure_of_pauses(pauses: &Pauses) -> Graded {
    match pauses.launches {
        true => (
            "sure",
            "launches tell, and these hosts are in time in other iterations.".into(),
        ),
        false => (
            "likely",
            "gaps on the GPUs tell it; launches, which would tell why, are not recorded.".into(),
        ),
    }
}

/// The sentence that hosts of all ranks are late together in some iterations.
pub fn stall(stall: &Stall) -> String {
    format!(
        "Late hosts: in {} all hosts launch kernels too late, and their GPUs wait; power can't help.",
        words::iterations(&stall.iterations)
    )
}
