//! What each rank would take if it were as fast as the median rank of its group: its kernels by the sums of their names in
//! each iteration, which noise of single kernels is not in, and its host by what it does from one kernel to the next.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use litd_units::Nanos;

use super::beside::Beside;
use super::graph::{NONE, Newest, Rank, since_mark};
use crate::align::Alignment;
use crate::groups::Groups;
use crate::timeline::{Kernel, NonMax, Timeline};

/// Where launches of fewer kernels are known, hosts are seen by the gaps that they leave.
const KNOWN: f64 = 0.95;

/// Of each rank, in the order of the timelines.
#[derive(Debug, Default)]
pub(super) struct Peers {
    ranks: Vec<Of>,
    /// Of each iteration the place of the rank that launches first after the longest common pause of its group's hosts.
    first: Vec<usize>,
}

/// One rank.
#[derive(Debug, Clone, Default)]
struct Of {
    /// Of its kernels of one name in one iteration the part that would be saved, below zero where the median rank takes
    /// longer; and the same if its clock alone were as fast. Empty where the rank has no peers.
    parts: Sums<[f32; 2]>,
    /// The numbers of its names among those of its group.
    names: Vec<u32>,
    /// Of its names, by these numbers, when the stretches after the first begin.
    cuts: Vec<Vec<Nanos>>,
    /// What would be saved before each, in nanoseconds.
    host: Vec<f32>,
    /// What the median rank's host does before each, in nanoseconds. Empty where no iterations are marked, of which it tells
    /// those that stall.
    common: Vec<f32>,
    /// What it computes and copies in each iteration, and what the median rank does, in nanoseconds.
    iterations: Vec<(Option<u32>, [f64; 2])>,
    /// The part of what it computes and copies that is of names which take longer, where all of it does.
    spread: f64,
}

impl Peers {
    pub(super) fn of(
        timelines: &[Timeline],
        groups: &Groups,
        ranks: &[Rank],
        beside: &Beside,
    ) -> Self {
        let mut peers = Self {
            ranks: vec![Of::default(); timelines.len()],
            first: Vec::new(),
        };
        for group in &groups.all {
            if group.range.len() < 2 || group.pipeline {
                continue;
            }
            peers.add_kernels(timelines, group.range.clone(), beside);
            if let Some(alignment) = &group.alignment {
                peers.add_hosts((timelines, ranks), group.range.clone(), alignment);
            }
        }
        peers
    }

    /// What a kernel would take less, in nanoseconds.
    pub(super) fn kernel(
        &self,
        timelines: &[Timeline],
        (rank, kernel): (usize, usize),
        clock: bool,
    ) -> f64 {
        let kernels = timelines.get(rank).map(|timeline| &timeline.kernels);
        let kernel = kernels.and_then(|kernels| kernels.get(kernel));
        let kernel = kernel.filter(|kernel| !kernel.class.communicates());
        let part = self.ranks.get(rank).zip(kernel).and_then(|(of, kernel)| {
            let name = *of.names.get(kernel.name.0 as usize)?;
            of.parts.get(&(when(&of.cuts, kernel, name), name))
        });
        match (part, kernel) {
            (Some(part), Some(kernel)) => {
                f64::from(part[usize::from(clock)]) * kernel.duration().0 as f64
            }
            _ => 0.0,
        }
    }

    /// What the host of a rank would take less before a kernel, in nanoseconds.
    pub(super) fn host(&self, rank: usize, kernel: usize) -> f64 {
        let saved = self.ranks.get(rank).and_then(|of| of.host.get(kernel));
        saved.map_or(0.0, |saved| f64::from(*saved))
    }

    /// By how much longer than the median rank's the kernels of a rank take, by iteration.
    pub(super) fn iterations(&self, rank: usize) -> &[(Option<u32>, [f64; 2])] {
        self.ranks.get(rank).map_or(&[], |of| &of.iterations)
    }

    /// The part of its computation and copies that is of names that take longer than the median rank's by much of what all do
    /// on average: a clock slows all of them.
    pub(super) fn spread(&self, rank: usize) -> f64 {
        self.ranks.get(rank).map_or(0.0, |of| of.spread)
    }

    /// By how much longer than the median rank's its host takes in all, in nanoseconds.
    pub(super) fn late(&self, rank: usize) -> f64 {
        let host = self.ranks.get(rank).map(|of| of.host.iter());
        host.map_or(0.0, |host| host.map(|&saved| f64::from(saved)).sum())
    }

    /// What the hosts of all ranks alike do before a kernel of a rank, in nanoseconds.
    pub(super) fn common(&self, rank: usize, kernel: usize) -> f64 {
        let common = self.ranks.get(rank).and_then(|of| of.common.get(kernel));
        common.map_or(0.0, |common| f64::from(*common))
    }

    fn add_kernels(&mut self, timelines: &[Timeline], range: Range<usize>, beside: &Beside) {
        let own = timelines.get(range.clone()).unwrap_or_default();
        let names = Names::of(own);
        let mut cuts = stretches(own, &names);
        let mut sums = Sums::<Vec<f64>>::new();
        for (place, (timeline, cuts)) in own.iter().zip(&cuts).enumerate() {
            for (at, kernel) in timeline.kernels.iter().enumerate() {
                if kernel.class.communicates() {
                    continue;
                }
                let name = names.get(place, kernel.name.0);
                let key = (when(cuts, kernel, name), name);
                let sum = sums.entry(key).or_insert_with(|| vec![0.0; own.len()]);
                if let Some(sum) = sum.get_mut(place) {
                    *sum += beside.alone(range.start + place, at, kernel);
                }
            }
        }
        let middles = sums.iter().map(|(key, each)| (*key, middle(each)));
        let middles = Sums::<f64>::from_iter(middles);
        let moves = moves(&sums, &middles, own.len());
        for (place, rank) in range.clone().enumerate() {
            let mut whole = HashMap::<When, [f64; 2]>::new();
            for (key, each) in &sums {
                let [own, theirs] = whole.entry(key.0).or_default();
                *own += each.get(place).copied().unwrap_or(0.0);
                *theirs += middles.get(key).copied().unwrap_or(0.0);
            }
            let paces = paces(&sums, &middles, place, &moves);
            let saved = sums.keys().map(|&(when, name)| {
                let times = times(&sums, &middles, (when, name), place);
                let saved = |times: f64| (1.0 - 1.0 / times) as f32;
                let slower = whole.get(&when);
                let slower = slower.is_some_and(|[own, theirs]| own > theirs);
                // What no other rank runs is more work, and no slow clock.
                let all = if slower {
                    times.map_or(1.0, saved)
                } else {
                    0.0
                };
                let pace = paces.get(&when).filter(|pace| **pace > 1.0);
                let clock = pace.and_then(|pace| match moves.contains(&name) {
                    true => Some(*pace),
                    false => times,
                });
                ((when, name), [all, clock.map_or(0.0, saved)])
            });
            let parts = saved.collect();
            let spread = spread(&sums, &middles, place);
            let Some(of) = self.ranks.get_mut(rank) else {
                continue;
            };
            (of.parts, of.names) = (parts, names.of_rank(place).to_vec());
            of.cuts = cuts.get_mut(place).map(std::mem::take).unwrap_or_default();
            of.spread = spread;
            of.iterations = iterations(whole);
        }
    }

    fn add_hosts(
        &mut self,
        (timelines, ranks): (&[Timeline], &[Rank]),
        range: Range<usize>,
        alignment: &Alignment,
    ) {
        let both = range
            .clone()
            .filter_map(|at| Some((timelines.get(at)?, ranks.get(at)?)));
        let both = Vec::from_iter(both);
        let known = |(timeline, rank): &(&Timeline, &Rank)| {
            rank.launches.len() as f64 >= KNOWN * timeline.kernels.len() as f64
        };
        let all = both.iter().all(known);
        if !all && both.iter().any(known) {
            return;
        }
        let spent = both.iter().map(|(timeline, rank)| match all {
            true => Spent::by_launches(timeline, rank),
            false => Spent::by_gaps(timeline, rank),
        });
        let mut spent = Vec::from_iter(spent);
        let mut first = HashMap::<Option<NonMax>, (f64, usize)>::new();
        for row in alignment.matched() {
            let each = row.iter().zip(&mut spent);
            let each = Vec::from_iter(each.map(|(&kernel, spent)| spent.since(kernel)));
            let theirs = middle(&Vec::from_iter(each.iter().map(|own| own.1)));
            let launches = row.iter().zip(range.clone()).zip(&both);
            let launches = launches.filter_map(|((&kernel, at), (timeline, _))| {
                Some((timeline.launch(kernel as usize)?, at))
            });
            if let Some((_, at)) = launches.min().filter(|_| all) {
                let kernel = both.first().zip(row.first());
                let kernel = kernel.and_then(|(of, at)| of.0.kernels.get(*at as usize));
                let longest = first.entry(kernel.and_then(|kernel| kernel.iteration));
                let longest = longest.or_insert((theirs, at));
                if theirs > longest.0 {
                    *longest = (theirs, at);
                }
            }
            for ((between, own), spent) in each.into_iter().zip(&mut spent) {
                spent.divide(between, (own, theirs));
            }
        }
        for (spent, at) in spent.into_iter().zip(range) {
            if let Some(of) = self.ranks.get_mut(at) {
                (of.host, of.common) = spent.divided();
            }
        }
        self.first.extend(first.into_values().map(|first| first.1));
    }

    /// Of how many iterations a rank launches first after the longest common pause: its place, its number of them, and that
    /// of all. The rank that does so most often.
    pub(super) fn leader(&self) -> Option<(usize, usize, usize)> {
        let mut counts = HashMap::<usize, usize>::new();
        for &at in &self.first {
            *counts.entry(at).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|&(at, count)| (count, at));
        most.map(|(at, count)| (at, count, self.first.len()))
    }
}

/// What a host does before each kernel, in the order of its launches, or the gaps that it leaves; in nanoseconds.
struct Spent {
    /// By the kernels' places. Of those that have been divided, the part in which the host is later than the median rank's.
    each: Vec<f32>,
    /// The other part; empty where nothing asks for it.
    common: Vec<f32>,
    /// The kernels in the order of their launches, and where each is among these; empty where they are in the order of their
    /// places.
    order: Vec<u32>,
    places: Vec<u32>,
    /// How many have been looked at.
    until: usize,
}

impl Spent {
    fn of(timeline: &Timeline, each: Vec<f32>, order: Vec<u32>) -> Self {
        let marked = timeline
            .kernels
            .iter()
            .any(|kernel| kernel.iteration.is_some());
        let count = each.len();
        let mut places = vec![NONE; if order.is_empty() { 0 } else { count }];
        for (at, kernel) in (0..).zip(&order) {
            if let Some(place) = places.get_mut(*kernel as usize) {
                *place = at;
            }
        }
        Self {
            each,
            common: vec![0.0; if marked { count } else { 0 }],
            order,
            places,
            until: 0,
        }
    }

    fn by_launches(timeline: &Timeline, rank: &Rank) -> Self {
        let mut each = vec![0.0; timeline.kernels.len()];
        for (launch, host) in rank.launches.iter().zip(&rank.host) {
            if let Some(own) = each.get_mut(launch.kernel as usize) {
                *own = host.0 as f32;
            }
        }
        let order = rank.launches.iter().map(|launch| launch.kernel);
        Self::of(timeline, each, order.collect())
    }

    /// How long after all that it is seen to wait for each kernel starts.
    fn by_gaps(timeline: &Timeline, rank: &Rank) -> Self {
        let end = |place: u32| Some(timeline.kernels.get(place as usize)?.end);
        let mut newest = Newest::of(timeline);
        let kernels = timeline.kernels.iter().zip(&rank.nodes).enumerate();
        let gaps = kernels.map(|(at, (kernel, node))| {
            let before = newest.take(kernel.stream, at);
            let ready = end(before).max(end(node.other));
            let gap = ready.map_or(0, |ready| (kernel.start - ready).0);
            f32::max(gap as f32, 0.0)
        });
        let mut gaps = Vec::from_iter(gaps);
        let most = gaps.iter().copied().fold(0.0, f32::max);
        let first = timeline.kernels.first().map(|kernel| kernel.start);
        let early = first.and_then(|first| since_mark(timeline, first));
        if let (Some(early), Some(gap)) = (early, gaps.first_mut()) {
            *gap = f32::min(early.0 as f32, most);
        }
        Self::of(timeline, gaps, Vec::new())
    }

    /// The kernel that comes at this place.
    fn kernel(&self, place: usize) -> usize {
        match self.order.get(place) {
            Some(kernel) => *kernel as usize,
            None if self.order.is_empty() => place,
            None => usize::MAX,
        }
    }

    /// What came since the kernel before that was asked for: where, and how long in all.
    fn since(&mut self, kernel: u32) -> (Range<usize>, f64) {
        let place = match self.order.is_empty() {
            true => Some(kernel).filter(|&kernel| (kernel as usize) < self.each.len()),
            false => self.places.get(kernel as usize).copied(),
        };
        let place = place.filter(|&place| place != NONE);
        let next = place.map_or(self.until, |place| (place as usize + 1).max(self.until));
        let between = self.until..next;
        self.until = next;
        let each = between.clone().map(|place| {
            let own = self.each.get(self.kernel(place));
            own.map_or(0.0, |own| f64::from(*own))
        });
        let sum = each.sum();
        (between, sum)
    }

    /// Takes out of what the host did at these places, in all `own`, what the median rank's did as well.
    fn divide(&mut self, between: Range<usize>, (own, theirs): (f64, f64)) {
        let [late, also] = match own > 0.0 {
            true => [(own - theirs).max(0.0), own.min(theirs)].map(|part| part / own),
            false => [0.0; 2],
        };
        for place in between {
            let kernel = self.kernel(place);
            if let Some(own) = self.each.get_mut(kernel) {
                if let Some(common) = self.common.get_mut(kernel) {
                    *common = (f64::from(*own) * also) as f32;
                }
                *own = (f64::from(*own) * late) as f32;
            }
        }
    }

    /// Both parts by the kernels' places. What comes after the last that was asked for is nobody's.
    fn divided(mut self) -> (Vec<f32>, Vec<f32>) {
        let rest = if self.order.is_empty() {
            self.each.len()
        } else {
            self.order.len()
        };
        for place in self.until..rest {
            let kernel = self.kernel(place);
            if let Some(own) = self.each.get_mut(kernel) {
                *own = 0.0;
            }
        }
        (self.each, self.common)
    }
}

/// An iteration, and the stretch of a recording that marks none.
type When = (Option<NonMax>, usize);

/// Sums of names in iterations, or in stretches of a recording that marks none.
type Sums<T> = HashMap<(When, u32), T>;

/// When a kernel of a rank runs.
fn when(cuts: &[Vec<Nanos>], kernel: &Kernel, name: u32) -> When {
    let cuts = cuts.get(name as usize).map_or(&[][..], Vec::as_slice);
    let stretch = cuts.partition_point(|cut| *cut <= kernel.start);
    (kernel.iteration, stretch)
}

/// Of each rank the times that divide the kernels of a name, none of which is of an iteration, into equally many: a clock that
/// is slow for a part of the recording only would else be taken for one that is less slow in all of it, of which ranks wait for
/// less. Names of which ranks run different numbers are not divided: kernels of one stretch are to be the same on all ranks.
fn stretches(timelines: &[Timeline], names: &Names) -> Vec<Vec<Vec<Nanos>>> {
    /// So many stretches,
    const STRETCHES: usize = 8;
    /// and so many kernels in each at least, in which noise averages out.
    const FEW: usize = 4;
    let none = |timeline: &Timeline| {
        timeline
            .kernels
            .iter()
            .all(|kernel| kernel.iteration.is_none())
    };
    if !timelines.iter().all(none) {
        return vec![Vec::new(); timelines.len()];
    }
    let counts = timelines.iter().enumerate().map(|(place, timeline)| {
        let mut counts = vec![0_usize; names.count];
        for kernel in &timeline.kernels {
            if let Some(count) = counts.get_mut(names.get(place, kernel.name.0) as usize) {
                *count += 1;
            }
        }
        counts
    });
    let counts = Vec::from_iter(counts);
    let divided = (0..names.count).map(|name| {
        let mut each = counts.iter().filter_map(|counts| counts.get(name));
        let count = each.next().copied().unwrap_or(0);
        (count >= STRETCHES * FEW && each.all(|other| *other == count)).then_some(count)
    });
    let divided = Vec::from_iter(divided);
    let cuts = timelines.iter().enumerate().map(|(place, timeline)| {
        let mut cuts = vec![(0_usize, Vec::new()); names.count];
        for kernel in &timeline.kernels {
            let name = names.get(place, kernel.name.0) as usize;
            let count = divided.get(name).copied().flatten();
            if let (Some(count), Some((seen, cuts))) = (count, cuts.get_mut(name)) {
                if *seen * STRETCHES / count > cuts.len() {
                    cuts.push(kernel.start);
                }
                *seen += 1;
            }
        }
        cuts.into_iter().map(|(_, cuts)| cuts).collect()
    });
    cuts.collect()
}

/// What a rank and the median rank take in each iteration.
fn iterations(whole: HashMap<When, [f64; 2]>) -> Vec<(Option<u32>, [f64; 2])> {
    let mut sums = BTreeMap::<Option<u32>, [f64; 2]>::new();
    for ((iteration, _), [own, theirs]) in whole {
        let sum = sums.entry(iteration.map(NonMax::get)).or_default();
        *sum = [sum[0] + own, sum[1] + theirs];
    }
    sums.into_iter().collect()
}

/// How many times as long as the median rank's the kernels of a name take on a rank in an iteration; none where the median
/// rank has none of them.
fn times(
    sums: &Sums<Vec<f64>>,
    middles: &Sums<f64>,
    key: (When, u32),
    place: usize,
) -> Option<f64> {
    let own = *sums.get(&key)?.get(place)?;
    let theirs = *middles.get(&key)?;
    (own > 0.0 && theirs > 0.0).then(|| own / theirs)
}

/// How long a rank takes against the median rank in each iteration: the middle of its names, each weighed by its time. Those
/// whose work moves from rank to rank don't count, unless all do.
fn paces(
    sums: &Sums<Vec<f64>>,
    middles: &Sums<f64>,
    place: usize,
    moves: &HashSet<u32>,
) -> HashMap<When, f64> {
    let all = middles.keys().all(|key| moves.contains(&key.1));
    let mut each = HashMap::<When, Vec<(f64, f64)>>::new();
    for (&key, theirs) in middles {
        let counts = all || !moves.contains(&key.1);
        if let Some(times) = times(sums, middles, key, place).filter(|_| counts) {
            each.entry(key.0).or_default().push((times, *theirs));
        }
    }
    let paces = each.into_iter().map(|(iteration, mut names)| {
        names.sort_by(|a, b| a.0.total_cmp(&b.0));
        let whole: f64 = names.iter().map(|name| name.1).sum();
        let mut before = 0.0;
        let middle = names.iter().find(|name| {
            before += name.1;
            2.0 * before >= whole
        });
        (iteration, middle.map_or(1.0, |name| name.0))
    });
    paces.collect()
}

/// The names whose work moves from rank to rank: from iteration to iteration most ranks take longer for them, and less.
fn moves(sums: &Sums<Vec<f64>>, middles: &Sums<f64>, ranks: usize) -> HashSet<u32> {
    /// They do so by more than this share: a standard deviation.
    const MOVES: f64 = 0.02;
    /// Of fewer iterations nothing is said.
    const FEW: f64 = 3.0;
    let mut names = HashMap::<u32, Vec<f64>>::new();
    for place in 0..ranks {
        let mut each = HashMap::<u32, [f64; 3]>::new();
        for &key in middles.keys().filter(|(when, _)| when.0.is_some()) {
            if let Some(own) = times(sums, middles, key, place) {
                let [count, sum, squares] = each.entry(key.1).or_default();
                (*count, *sum, *squares) = (*count + 1.0, *sum + own, *squares + own * own);
            }
        }
        for (name, [count, sum, squares]) in each {
            if count >= FEW {
                let variance = (squares - sum * sum / count).max(0.0) / (count - 1.0);
                names.entry(name).or_default().push(variance.sqrt());
            }
        }
    }
    let moves = names.into_iter().filter(|(_, each)| middle(each) > MOVES);
    moves.map(|(name, _)| name).collect()
}

/// The part of a rank's time that is of names that take longer by much of what all do on average.
fn spread(sums: &Sums<Vec<f64>>, middles: &Sums<f64>, place: usize) -> f64 {
    /// Less than this part of the average is not much.
    const MUCH: f64 = 0.25;
    let mut names = HashMap::<u32, [f64; 2]>::new();
    for (key, each) in sums {
        let [own, theirs] = names.entry(key.1).or_default();
        *own += each.get(place).copied().unwrap_or(0.0);
        *theirs += middles.get(key).copied().unwrap_or(0.0);
    }
    let whole = |of: usize| names.values().map(|both| both[of]).sum::<f64>();
    let (own, theirs) = (whole(0), whole(1));
    let longer = own / theirs.max(1.0) - 1.0;
    let slow = names
        .values()
        .filter(|[own, theirs]| own / theirs.max(1.0) - 1.0 >= MUCH * longer);
    slow.map(|both| both[0]).sum::<f64>() / own.max(1.0)
}

/// The middle one of some values, or the lower of the two in the middle: a slow rank of two is no measure of the other.
fn middle(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let place = values.len().saturating_sub(1) / 2;
    values.get(place).copied().unwrap_or(0.0)
}

/// The names of several timelines, with numbers that all of them share.
struct Names {
    numbers: Vec<Vec<u32>>,
    count: usize,
}

impl Names {
    fn of(timelines: &[Timeline]) -> Self {
        let mut all = HashMap::<&str, u32>::new();
        let numbers = timelines.iter().map(|timeline| {
            let each = timeline.names.iter().map(|name| {
                let next = u32::try_from(all.len()).unwrap_or(u32::MAX);
                *all.entry(name).or_insert(next)
            });
            Vec::from_iter(each)
        });
        let numbers = numbers.collect();
        Self {
            numbers,
            count: all.len(),
        }
    }

    fn of_rank(&self, place: usize) -> &[u32] {
        self.numbers.get(place).map_or(&[], Vec::as_slice)
    }

    fn get(&self, place: usize, name: u32) -> u32 {
        let number = self.of_rank(place).get(name as usize);
        number.copied().unwrap_or(u32::MAX)
    }
}
