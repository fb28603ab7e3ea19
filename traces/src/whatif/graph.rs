//! What each kernel of a job waits for, as recorded: the one before on its stream, one of another stream, its launch,
//! and in collectives the other ranks. Times are kept as by how much each pushes, so that a job that is changed in
//! nothing takes as long as recorded, to the nanosecond.

use std::cmp::Reverse;

use litd_units::Nanos;

use crate::collectives::{Entry, Matched, in_one, keeps_all};
use crate::timeline::{Kernel, KernelClass, StreamId, Timeline};

/// The lack of a place.
pub(super) const NONE: u32 = u32::MAX;

/// Profilers round starts and lengths each by itself: what ends so much later than the next starts has ended before it.
const ROUNDED: Nanos = Nanos(1_000);

/// Nor are they exact to some microseconds. So much later may end what a kernel has waited for, if it has waited for so many
/// times as long: what ends by chance then is the less likely.
const APART: Nanos = Nanos(10_000);
const LONG: i64 = 4;

/// Two kernels of a transfer that end so near to each other end together: clocks of stages may be left so far apart.
const NEAR: Nanos = Nanos(100_000);

/// A kernel that starts no later than this after the one before on its stream waited for that alone.
const AT_ONCE: Nanos = Nanos(2_000);

/// What a kernel waits for besides the one before on its stream. Places are those of kernels on the same rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    /// A kernel of another stream: one that ended no earlier than all else that the kernel waited for or, of a collective that
    /// started at once after the one before, the one whose result it takes.
    pub(super) other: u32,
    /// The place among [`Rank::meets`] of what tells its collective.
    pub(super) meet: u32,
}

// A large trace has millions of these: what recorded times tell is no part of them.
const _: () = assert!(size_of::<Node>() <= 8);

/// How long before a kernel could start each thing that it waited for was done.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Slacks {
    /// The kernel before on its stream.
    pub(super) before: Option<f64>,
    /// The one of another stream.
    pub(super) other: Option<f64>,
    /// Its launch.
    pub(super) launch: Option<f64>,
}

/// A kernel of a collective.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meet {
    /// The number of the collective.
    pub(super) row: u32,
    /// How much later it could have started without the collective ending later, in nanoseconds.
    pub(super) slack: u32,
    /// Whether it goes on before the others of its collective have come.
    pub(super) goes_on: bool,
}

/// All collectives, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// How many kernels each has that end on no rank before all have come; none where some may.
    pub(super) members: Vec<u32>,
}

impl Rows {
    /// Whether no rank leaves a collective before all have come.
    pub(super) fn keeps(&self, row: u32) -> bool {
        self.members
            .get(row as usize)
            .is_some_and(|&count| count > 0)
    }
}

/// The newest kernels of each stream, while those of a rank are gone through in order.
pub(super) struct Newest(Vec<[u32; 2]>);

impl Newest {
    pub(super) fn of(timeline: &Timeline) -> Self {
        Self(vec![[NONE; 2]; timeline.streams.len()])
    }

    /// Hands out the kernel before on the stream of this one, which is the newest then.
    pub(super) fn take(&mut self, stream: StreamId, place: usize) -> u32 {
        let Some(newest) = self.0.get_mut(usize::from(stream.0)) else {
            return NONE;
        };
        let before = newest[0];
        *newest = [u32::try_from(place).unwrap_or(NONE), before];
        before
    }

    /// The newest two of all streams but this one.
    fn others(&self, stream: StreamId) -> impl Iterator<Item = [u32; 2]> {
        let own = usize::from(stream.0);
        let all = self.0.iter().enumerate();
        all.filter(move |(other, _)| *other != own)
            .map(|(_, newest)| *newest)
    }
}

/// A launch, in the order of a rank's host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Launch {
    pub(super) kernel: u32,
    /// The kernel whose end the host waited for, and how long before that ended it had launched the one before.
    pub(super) awaited: u32,
    pub(super) slack: u32,
}

/// One rank.
#[derive(Debug, Default)]
pub(super) struct Rank {
    pub(super) nodes: Vec<Node>,
    /// The least time from a launch to the start of its kernel.
    latency: Nanos,
    pub(super) meets: Vec<Meet>,
    pub(super) launches: Vec<Launch>,
    /// What its host did before each launch, as the time since the one before or since what it waited for.
    pub(super) host: Vec<Nanos>,
    /// How long before its first kernel its host did something for it.
    pub(super) before: Nanos,
}

fn short(time: Nanos) -> u32 {
    u32::try_from(time.0.max(0)).unwrap_or(NONE - 1)
}

impl Rank {
    pub(super) fn of(timeline: &Timeline) -> Self {
        let mut rank = Self {
            nodes: Vec::with_capacity(timeline.kernels.len()),
            latency: latency(timeline),
            ..Self::default()
        };
        let mut newest = Newest::of(timeline);
        for (at, kernel) in timeline.kernels.iter().enumerate() {
            let other = rank.awaited(timeline, &newest, (at, kernel));
            newest.take(kernel.stream, at);
            rank.nodes.push(Node { other, meet: NONE });
        }
        rank.add_launches(timeline);
        rank
    }

    /// When the kernel before on its stream, and the launch, let a kernel start.
    fn let_by(
        &self,
        timeline: &Timeline,
        (at, kernel): (usize, &Kernel),
        before: u32,
    ) -> [Option<Nanos>; 2] {
        let before = timeline.kernels.get(before as usize);
        let launch = timeline.launch(at).map(|launch| launch + self.latency);
        [before.map(|before| before.end), launch].map(|time| Some(time?.min(kernel.start)))
    }

    /// The kernel of another stream that a kernel waits for.
    fn awaited(&self, timeline: &Timeline, newest: &Newest, (at, kernel): (usize, &Kernel)) -> u32 {
        let own = newest.0.get(usize::from(kernel.stream.0));
        let before = own.map_or(NONE, |newest| newest[0]);
        let first = self.let_by(timeline, (at, kernel), before);
        let first = first.into_iter().flatten().max();
        // What starts as soon as its own stream or its launch lets it waits for no other: that one ends there is chance.
        if first.is_some_and(|first| kernel.start - first <= AT_ONCE) {
            return NONE;
        }
        // What has waited for long has waited for something: the end of that may be told late.
        let waited = first.map_or(Nanos(i64::MAX), |first| kernel.start - first);
        let apart = Nanos(waited.0 / LONG).clamp(ROUNDED, APART);
        let each = newest.others(kernel.stream).filter_map(|of_stream| {
            // What still runs there is not waited for; what ran before it may be.
            let ended = of_stream
                .into_iter()
                .filter_map(|place| Some((timeline.kernels.get(place as usize)?.end, place)));
            ended
                .into_iter()
                .find(|(end, _)| *end <= kernel.start + apart)
        });
        let later = each.filter(|(end, _)| first.is_none_or(|first| *end > first));
        let nearest = later.min_by_key(|&(end, place)| {
            let apart = (end - kernel.start).max(kernel.start - end);
            (apart, Reverse(place))
        });
        nearest.map_or(NONE, |(_, place)| place)
    }

    /// How long before a kernel could start each thing that it waited for was done, of the kernel before on its stream.
    pub(super) fn slacks(
        &self,
        timeline: &Timeline,
        (at, kernel): (usize, &Kernel),
        before: u32,
    ) -> Slacks {
        let other = self.nodes.get(at).map_or(NONE, |node| node.other);
        let other = timeline.kernels.get(other as usize);
        let other = other.map(|other| other.end.min(kernel.start));
        let [before, launch] = self.let_by(timeline, (at, kernel), before);
        let ready = before.max(launch).max(other);
        let slack = |time: Option<Nanos>| Some((ready? - time?).0 as f64);
        Slacks {
            before: slack(before),
            other: slack(other),
            launch: slack(launch),
        }
    }

    /// What is known of a kernel's collective.
    pub(super) fn meet(&self, kernel: usize) -> Option<Meet> {
        let node = self.nodes.get(kernel)?;
        self.meets.get(node.meet as usize).copied()
    }

    pub(super) fn add_meet(&mut self, kernel: usize, meet: Meet) {
        if let Some(node) = self.nodes.get_mut(kernel) {
            node.meet = u32::try_from(self.meets.len()).unwrap_or(NONE);
            self.meets.push(meet);
        }
    }

    /// Finds out before which launches the host waited for its GPU. A host that waits lets the queue run empty after
    /// it had been ahead of it; one that is late lets it run empty again and again.
    fn add_launches(&mut self, timeline: &Timeline) {
        /// A host that waits pauses so many times as long as it mostly does.
        const PAUSES: i64 = 3;
        let known = 0..timeline.kernels.len();
        let mut order = known.filter_map(|at| Some((timeline.launch(at)?, at)));
        let mut order = Vec::from_iter(&mut order);
        order.sort_unstable();
        let pauses = order.windows(2).map(|two| two[1].0 - two[0].0);
        let mut pauses = Vec::from_iter(pauses.filter(|&pause| pause > Nanos::ZERO));
        pauses.sort_unstable();
        let usual = pauses.get(pauses.len() / 2).copied().unwrap_or_default();
        let mut before = None::<Nanos>;
        let mut ended = (Nanos(i64::MIN), NONE);
        let mut computed = NONE;
        let first = order.first().map(|first| first.0);
        for (launch, at) in order {
            let place = u32::try_from(at).unwrap_or(NONE);
            let since = before.unwrap_or(launch);
            let (end, kernel) = ended;
            let paused = launch - since >= Nanos(usual.0.saturating_mul(PAUSES));
            let waited = before.is_some() && paused && end <= launch && end - since >= usual;
            let (awaited, from) = match waited {
                true => (kernel, end),
                false => (NONE, since),
            };
            self.launches.push(Launch {
                kernel: place,
                awaited,
                slack: short(from - since),
            });
            self.host.push(launch - from);
            before = Some(launch);
            if let Some(kernel) = timeline.kernels.get(at) {
                ended = ended.max((kernel.end, place));
                match kernel.class {
                    KernelClass::Communication => self.takes_result(timeline, at, computed),
                    KernelClass::Computation => computed = place,
                    _ => {}
                }
            }
        }
        // What the host did from the mark of the first iteration on is not seen between two launches.
        let most = self.host.iter().copied().max().unwrap_or_default();
        let early = first.and_then(|first| since_mark(timeline, first));
        if let (Some(early), Some(host)) = (early, self.host.first_mut()) {
            *host = early.min(most);
            self.before = *host;
        }
    }

    /// A collective takes the result of the computation that its host launched last before it, on whichever stream, though it may have
    /// started later because the collective before it had to end.
    fn takes_result(&mut self, timeline: &Timeline, at: usize, computed: u32) {
        let own = timeline.kernels.get(at);
        let result = timeline.kernels.get(computed as usize);
        let (Some(own), Some(result)) = (own, result) else {
            return;
        };
        let ended = result.stream != own.stream && result.end <= own.start + APART;
        if let Some(node) = self
            .nodes
            .get_mut(at)
            .filter(|node| ended && node.other == NONE)
        {
            node.other = computed;
        }
    }
}

/// How long before a moment the first iteration is marked to begin. A recording may begin in the midst of something else.
pub(super) fn since_mark(timeline: &Timeline, moment: Nanos) -> Option<Nanos> {
    let mark = timeline.iterations.first()?.start;
    Some((moment - mark).max(Nanos::ZERO))
}

/// The least time from a launch to the start of its kernel.
fn latency(timeline: &Timeline) -> Nanos {
    let kernels = timeline.kernels.iter().enumerate();
    let each = kernels.filter_map(|(at, kernel)| Some(kernel.start - timeline.launch(at)?));
    each.filter(|&late| late >= Nanos::ZERO)
        .min()
        .unwrap_or_default()
}

/// Tells the kernels of collectives which these are.
pub(super) fn meet(ranks: &mut [Rank], timelines: &[Timeline], matched: &Matched<'_>) -> Rows {
    let names = timelines.iter().map(|timeline| timeline.names.iter());
    let keeping = Vec::from_iter(names.map(|names| Vec::from_iter(names.map(keeps_all))));
    let keeps = |entry: &Entry| {
        let kernel = timelines.get(entry.rank)?.kernels.get(entry.kernel)?;
        keeping
            .get(entry.rank)?
            .get(kernel.name.0 as usize)
            .copied()
    };
    let mut rows = Rows::default();
    matched.each(|row| {
        let number = u32::try_from(rows.members.len()).unwrap_or(NONE);
        let sends = |entry: &Entry| sends(timelines, entry);
        let each = slacks(row, &sends);
        for (entry, (slack, goes_on)) in row.iter().zip(each) {
            if let Some(rank) = ranks.get_mut(entry.rank) {
                let meet = Meet {
                    row: number,
                    slack: short(slack),
                    goes_on,
                };
                rank.add_meet(entry.kernel, meet);
            }
        }
        let all = row.iter().all(|entry| keeps(entry) == Some(true));
        let members = u32::try_from(row.len()).unwrap_or(NONE);
        rows.members.push(if all { members } else { 0 });
    });
    rows
}

/// How much later each rank of a collective could have come, and whether it goes on before the others have; one at least has
/// come last.
fn slacks<'r>(
    row: &'r [Entry],
    sends: &'r dyn Fn(&Entry) -> Option<bool>,
) -> impl Iterator<Item = (Nanos, bool)> + 'r {
    let each = move || row.iter().zip(in_one(row));
    let ahead = move |(own, wait)| goes_on(row, (own, wait), sends(own));
    let shortest = takes_itself(row);
    // Two that end together have waited for each other: by how much longer one takes tells how long it waited, whatever their
    // clocks say.
    let near =
        matches!(row, [one, other] if (one.end - other.end).max(other.end - one.end) <= NEAR);
    let together = near && each().all(|one| ahead(one).is_none());
    each().map(move |(own, wait)| match (ahead((own, wait)), together) {
        (Some(ahead), _) => (ahead, true),
        (None, true) => (own.end - own.start - shortest, false),
        (None, false) => (wait, false),
    })
}

/// Whether a rank goes on before the others of its collective have come; how long before the first of them it ends then: what
/// it sends has come by then, and may come so much later. Clocks that differ make a sender that waits for its receiver end
/// before that starts, too, but it has waited for longer than that.
fn goes_on(row: &[Entry], (own, wait): (&Entry, Nanos), sends: Option<bool>) -> Option<Nanos> {
    let last = row.iter().map(|entry| entry.start).max()?;
    let is_sender = match row.len() {
        2 => sends != Some(false) && last - own.end > wait,
        _ => wait == Nanos::ZERO && own.end < last,
    };
    let others = row.iter().filter(|other| other.rank != own.rank);
    let first = others.map(|other| other.end).min()?;
    is_sender.then_some((first - own.end).max(Nanos::ZERO))
}

/// Whether a rank sends in a transfer that tells the other rank; else it receives.
pub(super) fn sends(timelines: &[Timeline], entry: &Entry) -> Option<bool> {
    let timeline = timelines.get(entry.rank)?;
    let told = timeline.collective_of(timeline.kernels.get(entry.kernel)?)?;
    told.peer?;
    Some(told.name.as_deref()? == "send")
}

/// How long a collective takes once all have come: as long as on the rank that comes last.
pub(super) fn takes_itself(row: &[Entry]) -> Nanos {
    let each = row.iter().map(|entry| entry.end - entry.start);
    each.min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of kernels from one time to another, in µs; the first sends, if there are two.
    fn told(kernels: &[(i64, i64)]) -> Vec<(i64, bool)> {
        let entry = |(rank, &(start, end)): (usize, &(i64, i64))| Entry {
            rank,
            kernel: 0,
            start: Nanos(1_000 * start),
            end: Nanos(1_000 * end),
        };
        let row = Vec::from_iter(kernels.iter().enumerate().map(entry));
        let sends = |entry: &Entry| (row.len() == 2).then_some(entry.rank == 0);
        let slacks = slacks(&row, &sends).map(|(slack, goes_on)| (slack.0 / 1_000, goes_on));
        slacks.collect()
    }

    #[test]
    fn a_rank_may_come_as_much_later_as_it_has_waited() {
        assert_eq!(
            told(&[(0, 1_060), (1_000, 1_060)]),
            [(1_000, false), (0, false)]
        );
        assert_eq!(
            told(&[(1_000, 1_060), (0, 1_060)]),
            [(0, false), (1_000, false)]
        );
        assert_eq!(
            told(&[(0, 130), (20, 131), (100, 130)]),
            [(100, false), (80, false), (0, false)]
        );
        // On clocks that are 80 µs apart, either way.
        for by in [80, -80] {
            let late = told(&[(0, 1_060), (1_000 + by, 1_060 + by)]);
            assert_eq!(late, [(1_000, false), (0, false)]);
            let early = told(&[(1_000, 1_060), (by, 1_060 + by)]);
            assert_eq!(early, [(0, false), (1_000, false)]);
        }
    }

    #[test]
    fn a_sender_that_does_not_wait_may_come_as_much_later_as_it_ended_earlier() {
        assert_eq!(
            told(&[(0, 60), (5_000, 5_030)]),
            [(4_970, true), (0, false)]
        );
        assert_eq!(told(&[(0, 20), (40, 100)]), [(80, true), (0, false)]);
        // Its receiver waits for it where that has come first.
        assert_eq!(
            told(&[(1_000, 1_060), (0, 1_060)]),
            [(0, false), (1_000, false)]
        );
    }
}
