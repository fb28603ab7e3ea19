//! What each kernel of a job waits for, as recorded: the one before on its stream, one of another stream, its launch,
//! and in collectives the other ranks. Times are kept as by how much each pushes, so that a job that is changed in
//! nothing takes as long as recorded, to the nanosecond.

use litd_units::Nanos;

use crate::collectives::{Entry, Matched, in_one};
use crate::timeline::{Kernel, StreamId, Timeline};

/// The lack of a place.
pub(super) const NONE: u32 = u32::MAX;

/// Profilers round starts and lengths each by itself: what ends so much later than the next starts has ended before it.
const ROUNDED: Nanos = Nanos(1_000);

/// A kernel that starts no later than this after the one before on its stream waited for that alone.
const AT_ONCE: Nanos = Nanos(2_000);

/// What a kernel waits for. Places are those of kernels on the same rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    /// The kernel before on its stream, and how long before the kernel could start that ended.
    pub(super) before: u32,
    pub(super) before_slack: u32,
    /// A kernel of another stream, where nothing that the kernel waited for ended later.
    pub(super) other: u32,
    /// How long before the kernel could start its launch let it; [`NONE`] where that is not known.
    pub(super) launch_slack: u32,
    /// The collective that it is of, and how long it waits in it.
    pub(super) row: u32,
    pub(super) wait: u32,
    /// Whether it goes on before the others of its collective have come.
    pub(super) goes_on: bool,
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
    pub(super) launches: Vec<Launch>,
    /// What its host did before each launch, as the time since the one before or since what it waited for.
    pub(super) host: Vec<Nanos>,
    /// How long before its first kernel its host did something for it.
    pub(super) before: Nanos,
}

/// What happens next on a rank: a launch, or a kernel that starts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) rank: u32,
    /// The place of a launch or that of a kernel.
    pub(super) place: u32,
    pub(super) starts: bool,
}

fn short(time: Nanos) -> u32 {
    u32::try_from(time.0.max(0)).unwrap_or(NONE - 1)
}

impl Rank {
    pub(super) fn of(timeline: &Timeline) -> Self {
        let mut rank = Self {
            nodes: Vec::with_capacity(timeline.kernels.len()),
            ..Self::default()
        };
        let latency = latency(timeline);
        let mut last = vec![NONE; timeline.streams.len()];
        for (at, kernel) in timeline.kernels.iter().enumerate() {
            let node = node(timeline, &rank.nodes, &last, (at, kernel), latency);
            if let Some(last) = last.get_mut(usize::from(kernel.stream.0)) {
                *last = u32::try_from(at).unwrap_or(NONE);
            }
            rank.nodes.push(node);
        }
        rank.add_launches(timeline);
        rank
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

fn node(
    timeline: &Timeline,
    nodes: &[Node],
    last: &[u32],
    (at, kernel): (usize, &Kernel),
    latency: Nanos,
) -> Node {
    let end_of = |place: u32| Some(timeline.kernels.get(place as usize)?.end);
    let own = last.get(usize::from(kernel.stream.0)).copied();
    let before = own.unwrap_or(NONE);
    let ready = |time: Nanos| time.min(kernel.start);
    let stream = end_of(before).map(ready);
    let launch = timeline.launch(at).map(|launch| ready(launch + latency));
    let first = stream.max(launch);
    let mut other = (first, NONE);
    // What starts as soon as its own stream or its launch lets it waits for no other: that one ends there is chance.
    let at_once = first.is_some_and(|first| kernel.start - first <= AT_ONCE);
    let streams = last.iter().enumerate().filter(|_| !at_once);
    for (stream, &newest) in streams {
        if StreamId(u16::try_from(stream).unwrap_or(u16::MAX)) == kernel.stream {
            continue;
        }
        // What still runs there is not waited for; what ran before it may be.
        let mut place = newest;
        for _ in 0..2 {
            match end_of(place) {
                Some(end) if end <= kernel.start + ROUNDED => {
                    other = other.max((Some(ready(end)), place));
                    break;
                }
                Some(_) => place = nodes.get(place as usize).map_or(NONE, |node| node.before),
                None => break,
            }
        }
    }
    let (ready, other) = other;
    let slack = |one: Option<Nanos>| ready.zip(one).map(|(ready, one)| short(ready - one));
    Node {
        before,
        before_slack: slack(stream).unwrap_or(0),
        other,
        launch_slack: slack(launch).unwrap_or(NONE),
        row: NONE,
        wait: 0,
        goes_on: false,
    }
}

/// Tells the kernels of collectives which these are; hands out the time that each takes once all have come.
pub(super) fn meet(ranks: &mut [Rank], matched: &Matched<'_>) -> Vec<Nanos> {
    let mut takes = Vec::new();
    matched.each(|row| {
        let number = u32::try_from(takes.len()).unwrap_or(NONE);
        let last = row.iter().map(|entry| entry.start).max();
        for (entry, wait) in row.iter().zip(in_one(row)) {
            let rank = ranks.get_mut(entry.rank);
            if let Some(node) = rank.and_then(|rank| rank.nodes.get_mut(entry.kernel)) {
                node.row = number;
                node.wait = short(wait);
                node.goes_on = wait == Nanos::ZERO && Some(entry.end) < last;
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
    let mut events = Vec::new();
    for (number, (rank, timeline)) in (0..).zip(ranks.iter().zip(timelines)) {
        let launches = (0..).zip(&rank.launches).map(|(place, launch)| {
            let at = timeline.launch(launch.kernel as usize);
            (at.unwrap_or_default(), false, number, place)
        });
        let starts = (0..).zip(&timeline.kernels);
        let starts = starts.map(|(place, kernel)| (kernel.start, true, number, place));
        events.extend(launches.chain(starts));
    }
    events.sort_unstable();
    let each = events.into_iter();
    let each = each.map(|(_, starts, rank, place)| Event {
        rank,
        place,
        starts,
    });
    each.collect()
}
