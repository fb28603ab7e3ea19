//! What each kernel of a job waits for, as recorded: the one before on its stream, one of another stream, its launch,
//! and in collectives the other ranks. Times are kept as by how much each pushes, so that a job that is changed in
//! nothing takes as long as recorded, to the nanosecond.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use litd_units::Nanos;

use crate::collectives::{Entry, Matched, in_one};
use crate::timeline::{Kernel, KernelClass, StreamId, Timeline};

/// The lack of a place.
pub(super) const NONE: u32 = u32::MAX;

/// Profilers round starts and lengths each by itself: what ends so much later than the next starts has ended before it.
const ROUNDED: Nanos = Nanos(1_000);

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
    /// How long the kernel waits in it; [`NONE`] where it goes on before the others have come.
    pub(super) wait: u32,
}

impl Meet {
    /// Whether it goes on before the others of its collective have come.
    pub(super) fn goes_on(self) -> bool {
        self.wait == NONE
    }

    /// How long it waits in it.
    pub(super) fn waits(self) -> f64 {
        match self.goes_on() {
            true => 0.0,
            false => f64::from(self.wait),
        }
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

/// On which rank something happens next, and whether a kernel starts there; else the host launches one. Each rank's launches
/// and kernels come in their own order. There are millions of these: what ranks beyond the 32,767th do stays as recorded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event(u16);

impl Event {
    fn of(rank: usize, starts: bool) -> Self {
        Self(u16::try_from(rank << 1).unwrap_or(u16::MAX) | u16::from(starts))
    }

    pub(super) fn rank(self) -> usize {
        usize::from(self.0 >> 1)
    }

    pub(super) fn starts(self) -> bool {
        self.0 & 1 == 1
    }
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
        let mut other = (first, NONE);
        for of_stream in newest.others(kernel.stream) {
            // What still runs there is not waited for; what ran before it may be.
            let ended = of_stream
                .into_iter()
                .filter_map(|place| Some((timeline.kernels.get(place as usize)?.end, place)))
                .find(|(end, _)| *end <= kernel.start + ROUNDED);
            if let Some((end, place)) = ended {
                other = other.max((Some(end.min(kernel.start)), place));
            }
        }
        other.1
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

    fn add_meet(&mut self, kernel: usize, meet: Meet) {
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
        let ended = result.stream != own.stream && result.end <= own.start + ROUNDED;
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

/// Tells the kernels of collectives which these are; hands out the time that each takes once all have come.
pub(super) fn meet(ranks: &mut [Rank], matched: &Matched<'_>) -> Vec<Nanos> {
    let mut takes = Vec::new();
    matched.each(|row| {
        let number = u32::try_from(takes.len()).unwrap_or(NONE);
        let last = row.iter().map(|entry| entry.start).max();
        for (entry, wait) in row.iter().zip(in_one(row)) {
            let goes_on = wait == Nanos::ZERO && Some(entry.end) < last;
            let wait = if goes_on { NONE } else { short(wait) };
            if let Some(rank) = ranks.get_mut(entry.rank) {
                rank.add_meet(entry.kernel, Meet { row: number, wait });
            }
        }
        takes.push(takes_itself(row));
    });
    takes
}

/// How long a collective takes once all have come: as long as on the rank that comes last.
pub(super) fn takes_itself(row: &[Entry]) -> Nanos {
    let each = row.iter().map(|entry| entry.end - entry.start);
    each.min().unwrap_or_default()
}

/// All that happens, in order.
pub(super) fn order(ranks: &[Rank], timelines: &[Timeline]) -> Vec<Event> {
    // When something happens next on a rank: launches first, then who has the lower place.
    let next = |at: usize, (launch, kernel): (usize, usize)| {
        let (timeline, rank) = (timelines.get(at)?, ranks.get(at)?);
        let launch = rank.launches.get(launch).map(|launch| {
            let time = timeline.launch(launch.kernel as usize);
            (time.unwrap_or_default(), false)
        });
        let start = timeline.kernels.get(kernel);
        let start = start.map(|kernel| (kernel.start, true));
        let (time, starts) = [launch, start].into_iter().flatten().min()?;
        Some(Reverse((time, starts, at)))
    };
    let mut places = vec![(0, 0); ranks.len()];
    let mut heap = BinaryHeap::new();
    heap.extend((0..ranks.len()).filter_map(|at| next(at, (0, 0))));
    let count = ranks.iter();
    let count = count.map(|rank| rank.launches.len() + rank.nodes.len());
    let mut events = Vec::with_capacity(count.sum());
    while let Some(mut first) = heap.peek_mut() {
        let Reverse((_, starts, at)) = *first;
        events.push(Event::of(at, starts));
        let following = places.get_mut(at).and_then(|place| {
            match starts {
                true => place.1 += 1,
                false => place.0 += 1,
            }
            next(at, *place)
        });
        match following {
            Some(following) => *first = following,
            None => {
                PeekMut::pop(first);
            }
        }
    }
    events
}
