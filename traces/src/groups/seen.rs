//! Stages of a pipeline that no process group names, each of several ranks, from when kernels start and end.
//! docs/analyze-definitions.md has the definitions.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use litd_units::Nanos;

use super::replicas;
use crate::collectives::is_transfer;
use crate::timeline::{Collective, Timeline};

/// What the process groups that are found here are said to be for.
pub(super) const DESCRIPTION: &str = "pipeline, seen by which transfers end together";

/// Both ends of a transfer end within this time. A choice: on eight V100s with NVLink the ends of a collective are 3 µs
/// apart and 6 µs at most (PARAM's DLRM, Kineto), and slower links and profilers need room.
pub(super) const TOGETHER: Nanos = Nanos(50_000);
/// Transfers of one rank that end within this time count as one moment: kernels that wait for the same thing end so.
pub(super) const MOMENT: Nanos = Nanos(5_000);
/// No two kernels are known to end closer than this.
const FINEST: Nanos = Nanos(1_000);
/// Ends that agree better than one in so many would by chance are evidence.
const ONE_IN: i64 = 20;

/// When the collectives of one name start and end, by label of the stream.
type ByLabel = BTreeMap<String, Vec<(Nanos, Nanos)>>;

/// When some of them do.
type Times<'a> = Cow<'a, [(Nanos, Nanos)]>;

/// The kernels of one rank that are looked at.
struct Rank {
    /// Its collectives by name.
    collectives: BTreeMap<String, ByLabel>,
    transfers: Vec<Transfer>,
}

/// A kernel that ends together with one of another rank.
#[derive(Clone, Copy)]
pub(super) struct Transfer {
    pub(super) start: Nanos,
    pub(super) end: Nanos,
    pub(super) kernel: usize,
    /// What both have in common besides.
    pub(super) kind: u32,
    /// From the end before it to that after it on its rank.
    pub(super) room: Nanos,
}

impl Transfer {
    /// So many, in the order of their ends, in a recording of this length.
    fn all(
        times: impl Iterator<Item = (usize, Nanos, Nanos)>,
        recorded: (Nanos, Nanos),
    ) -> Vec<Self> {
        let all = times.map(|(kernel, start, end)| Self {
            start,
            end,
            kernel,
            kind: 0,
            room: Nanos::ZERO,
        });
        Self::with_room(all.collect(), recorded)
    }

    /// The same of which room is not known yet.
    pub(super) fn with_room(mut all: Vec<Self>, (first, last): (Nanos, Nanos)) -> Vec<Self> {
        all.sort_by_key(|transfer| transfer.end);
        let ends = Vec::from_iter(all.iter().map(|transfer| transfer.end));
        for transfer in &mut all {
            let end = transfer.end;
            let before = ends.partition_point(|&other| other < end - MOMENT);
            let before = before.checked_sub(1).and_then(|at| ends.get(at));
            let after = ends.get(ends.partition_point(|&other| other <= end + MOMENT));
            transfer.room = *after.unwrap_or(&last) - *before.unwrap_or(&first);
        }
        all
    }

    /// Whether chance alone would hardly have anything end so close to this one. Of moments that have nothing to do with
    /// it, and to which it is the nearest on its rank, one end is as close as `apart` as often as four times that is part
    /// of its room: half of the room is nearest to it, and closeness counts before and after it.
    fn tells(&self, apart: Nanos) -> bool {
        4 * ONE_IN * (apart + FINEST).0 <= self.room.0
    }
}

/// Two transfers of different ranks that may be one, by the ranks' places and their own.
pub(super) struct Pair {
    pub(super) apart: Nanos,
    pub(super) ends: [(usize, usize); 2],
    /// Whether chance would hardly have had either end so close to the other.
    tells: [bool; 2],
}

/// Gives transfers the process groups that nothing names, if ranks are several stages of a pipeline, each of two ranks
/// or more. Whether they are.
pub(super) fn name_stages(timelines: &mut [Timeline]) -> bool {
    let both = |rank: &Rank| !rank.transfers.is_empty() && !rank.collectives.is_empty();
    // The first rank without either ends it: most jobs have no transfers.
    let ranks = timelines.iter().map(|it| Some(Rank::of(it)).filter(both));
    let Some(ranks) = ranks.collect::<Option<Vec<_>>>() else {
        return false;
    };
    let sets = sets(&ranks);
    let size = sets.first().map_or(0, Vec::len);
    if sets.len() < 2 || size < 2 || sets.iter().any(|set| set.len() != size) {
        return false;
    }
    // Several replicas may have each a pipeline of their own: as many sets lie between two stages.
    let mut steps = (1..=sets.len() / 2).filter(|step| sets.len().is_multiple_of(*step));
    let transfers = Vec::from_iter(ranks.iter().map(|rank| &rank.transfers[..]));
    let pairs = steps.find_map(|step| {
        let links = links(&sets, step);
        let pairs = pairs(&transfers, &links);
        most_are_pairs(&transfers, &pairs).then_some((step, pairs))
    });
    if let Some((step, pairs)) = &pairs {
        tell(timelines, &chains(&sets, *step), pairs);
        for stage in sets.chunks(*step) {
            replicas::name(timelines, &stage.concat());
        }
    }
    pairs.is_some()
}

impl Rank {
    fn of(timeline: &Timeline) -> Self {
        let is_transfer = Vec::from_iter(timeline.names.iter().map(is_transfer));
        let mut transfers = Vec::new();
        let mut collectives = BTreeMap::<_, Vec<(Nanos, Nanos)>>::new();
        for (place, kernel) in timeline.kernels.iter().enumerate() {
            let (start, end) = (kernel.start, kernel.end);
            match is_transfer.get(kernel.name.0 as usize) {
                _ if !kernel.class.communicates() => {}
                Some(true) => transfers.push((place, start, end)),
                _ => {
                    let key = (kernel.name, kernel.stream);
                    collectives.entry(key).or_default().push((start, end));
                }
            }
        }
        let mut named = BTreeMap::<String, ByLabel>::new();
        for ((name, stream), times) in collectives {
            let label = timeline.streams.get(usize::from(stream.0));
            let label = label.map_or_else(String::new, ToString::to_string);
            let of_name = named.entry(timeline.names.get(name).into()).or_default();
            of_name.entry(label).or_default().extend(times);
        }
        Self {
            collectives: named,
            transfers: Transfer::all(transfers.into_iter(), recorded(timeline)),
        }
    }

    /// Whether two ranks take part in the same transfers: one has about as many as the other, and nearly all of these run
    /// at once. Then all ranks may exchange something with all others.
    fn transfers_with(&self, other: &Self) -> bool {
        let times = |transfer: &Transfer| (transfer.start, transfer.end);
        let own = Vec::from_iter(self.transfers.iter().map(times));
        let mut others = Vec::from_iter(other.transfers.iter().map(times));
        others.sort_unstable();
        let (few, most) = (own.len().min(others.len()), own.len().max(others.len()));
        10 * few >= 9 * most && 10 * at_once(&own, &others) >= 9 * few
    }

    /// Whether the collectives of two ranks are mostly not the same ones. Of each name those of the rank with fewer count: a
    /// recording that begins later or ends sooner than another lacks some. So they do of names that the other rank lacks.
    fn is_apart(&self, other: &Self) -> bool {
        /// Of fewer the next one is too far away, in another iteration, to tell how late a rank is.
        const FEW: usize = 8;
        let same = self.transfers_with(other);
        let own_alone = alone(&self.collectives, &other.collectives);
        let alone = own_alone.min(alone(&other.collectives, &self.collectives));
        let counts = alone >= FEW || !same;
        let (mut all, mut apart) = (alone, if counts { alone } else { 0 });
        let mut none_is_shared = true;
        let own = self.collectives.iter();
        let shared = own.filter_map(|(name, own)| Some((own, other.collectives.get(name)?)));
        for [times, others] in shared.flat_map(|(own, others)| by_label(own, others)) {
            none_is_shared = false;
            let (few, many) = match times.len() <= others.len() {
                true => (times, others),
                false => (others, times),
            };
            all += few.len();
            apart += match few.len() {
                FEW.. => apart_in_order(&few, &many),
                _ if same => 0,
                _ => few.len() - at_once(&few, &many),
            };
        }
        // One may be of another iteration than the other rank's.
        (all > 1 || none_is_shared) && 2 * apart > all
    }
}

/// How many collectives of one rank have names that another lacks.
fn alone(own: &BTreeMap<String, ByLabel>, others: &BTreeMap<String, ByLabel>) -> usize {
    let own = own.iter().filter(|(name, _)| !others.contains_key(*name));
    own.flat_map(|(_, times)| times.values())
        .map(Vec::len)
        .sum()
}

/// When the collectives of one name of two ranks start and end: by the labels of streams where both have the same ones,
/// else all together, because profilers number streams by the process.
fn by_label<'a>(one: &'a ByLabel, other: &'a ByLabel) -> Vec<[Times<'a>; 2]> {
    if one.keys().eq(other.keys()) {
        let both = one.values().zip(other.values());
        return both
            .map(|(one, other)| [one.into(), other.into()])
            .collect();
    }
    let together = |of: &ByLabel| {
        let mut times = of.values().flatten().copied().collect::<Vec<_>>();
        times.sort_unstable();
        times.into()
    };
    vec![[together(one), together(other)]]
}

/// From when to when a rank was recorded.
pub(super) fn recorded(timeline: &Timeline) -> (Nanos, Nanos) {
    let first = timeline.kernels.iter().map(|kernel| kernel.start).min();
    let last = timeline.kernels.iter().map(|kernel| kernel.end).max();
    (first.unwrap_or_default(), last.unwrap_or_default())
}

/// How many of the first run while one of the second does, or so shortly before or after that transfers would count as
/// one. The second are in the order of their starts.
fn at_once(first: &[(Nanos, Nanos)], second: &[(Nanos, Nanos)]) -> usize {
    let mut by_end = Vec::from(first);
    by_end.sort_unstable_by_key(|one| one.1);
    let mut second = second.iter().peekable();
    let mut latest = None;
    let runs = |&&(start, end): &&(Nanos, Nanos)| {
        while let Some(begun) = second.next_if(|one| one.0 <= end + TOGETHER) {
            latest = latest.max(Some(begun.1));
        }
        latest >= Some(start - TOGETHER)
    };
    by_end.iter().filter(runs).count()
}

/// How many of the collectives of a rank with fewer are not those of another, if one follows the other in the order of
/// their starts. Which is whose counterpart, the middle one tells by its time, as far as recordings may be cut.
fn apart_in_order(few: &[(Nanos, Nanos)], many: &[(Nanos, Nanos)]) -> usize {
    /// So many places a recording begins or ends apart from another. Stages of a pipeline are further apart.
    const CUT: usize = 2;
    let middle = few.len() / 2;
    let start = few.get(middle).map(|one| one.0);
    let nearest = many.partition_point(|one| Some(one.0) < start);
    // How many of the first of either have no counterpart.
    let most = many.len() - few.len() + CUT;
    let shifts = [1, 0, -1].map(|by: isize| {
        let nearest = nearest.saturating_add_signed(by);
        let skipped = nearest.saturating_sub(middle).min(most);
        (middle.saturating_sub(nearest).min(CUT), skipped)
    });
    let counts = shifts.map(|(of_few, of_many)| {
        let few = few.get(of_few..).unwrap_or_default();
        let many = many.get(of_many..).unwrap_or_default();
        behind(few, many) + behind(many, few)
    });
    counts.into_iter().min().unwrap_or_default()
}

/// How many of the collectives of one rank have ended so long before those of another start that the next one has
/// started: where ranks run the same ones, or are replicas, none is later than that.
fn behind(first: &[(Nanos, Nanos)], second: &[(Nanos, Nanos)]) -> usize {
    let pairs = first.windows(2).zip(second);
    let is_behind = |(own, (start, _)): &(&[(Nanos, Nanos)], &(Nanos, Nanos))| {
        own.first().is_some_and(|one| one.1 < *start)
            && own.last().is_some_and(|next| next.0 <= *start)
    };
    pairs.filter(is_behind).count()
}

/// Ranks whose collectives are not apart, by their places.
fn sets(ranks: &[Rank]) -> Vec<Vec<usize>> {
    let mut sets = Vec::<Vec<usize>>::new();
    for (place, rank) in ranks.iter().enumerate() {
        let joins = |set: &&mut Vec<usize>| {
            let first = set.first().and_then(|&first| ranks.get(first));
            first.is_some_and(|first| !rank.is_apart(first))
        };
        let too_many = 2 * sets.len() >= ranks.len();
        match sets.iter_mut().find(joins) {
            Some(set) => set.push(place),
            // No sets of two ranks or more, all of one size, are left: comparing on would take ranks times ranks.
            None if too_many => return Vec::new(),
            None => sets.push(vec![place]),
        }
    }
    sets
}

/// The ranks of each pipeline in the order of its stages.
fn chains(sets: &[Vec<usize>], step: usize) -> Vec<Vec<usize>> {
    let size = sets.first().map_or(0, Vec::len);
    let starts = (0..step).flat_map(|replica| (0..size).map(move |nth| (replica, nth)));
    let chain = |(replica, nth)| {
        let stages = sets.iter().skip(replica).step_by(step);
        Vec::from_iter(stages.filter_map(|set| set.get(nth).copied()))
    };
    starts.map(chain).collect()
}

/// Neighbours in these.
fn links(sets: &[Vec<usize>], step: usize) -> Vec<[usize; 2]> {
    let chains = chains(sets, step);
    let neighbours = chains.iter().flat_map(|chain| chain.windows(2));
    let both = neighbours.filter_map(|both| both.try_into().ok());
    both.collect()
}

/// Which transfers of neighbours are one: those that run at once and end together, the closest first.
pub(super) fn pairs(ranks: &[&[Transfer]], links: &[[usize; 2]]) -> Vec<Pair> {
    let mut possible = Vec::new();
    for &[one, two] in links {
        let (Some(own), Some(other)) = (ranks.get(one), ranks.get(two)) else {
            continue;
        };
        for transfer in *own {
            let near = near(other, transfer);
            possible.extend(near.map(|near| {
                let apart = Nanos((near.end.0 - transfer.end.0).abs());
                Pair {
                    apart,
                    ends: [(one, transfer.kernel), (two, near.kernel)],
                    tells: [near.tells(apart), transfer.tells(apart)],
                }
            }));
        }
    }
    possible.sort_by_key(|pair| (pair.apart, pair.ends));
    let mut used = HashSet::new();
    possible.retain(|pair| {
        let free = pair.ends.iter().all(|end| !used.contains(end));
        if free {
            used.extend(pair.ends);
        }
        free
    });
    possible
}

/// Those of another rank that may be one with this transfer: of each side the nearest few, because millions may end at
/// once in a table that something other than a profiler wrote.
fn near<'a>(others: &'a [Transfer], own: &Transfer) -> impl Iterator<Item = &'a Transfer> {
    const MOST: usize = 8;
    let own = *own;
    let place = others.partition_point(|other| other.end < own.end);
    let (sooner, later) = others.split_at(place);
    let sooner = sooner.iter().rev().take(MOST);
    let both = sooner.chain(later.iter().take(MOST));
    both.filter(move |other| {
        let together = other.end >= own.end - TOGETHER && other.end <= own.end + TOGETHER;
        together && other.kind == own.kind && other.start <= own.end && own.start <= other.end
    })
}

/// Whether most transfers of each rank are one with another's, as chance would hardly have it: else these are no stages
/// that hand work on, or clocks can't be compared, or transfers follow each other too closely to tell.
pub(super) fn most_are_pairs(ranks: &[&[Transfer]], pairs: &[Pair]) -> bool {
    let mut counts = vec![0; ranks.len()];
    for pair in pairs {
        for ((rank, _), tells) in pair.ends.into_iter().zip(pair.tells) {
            if let Some(count) = counts.get_mut(rank).filter(|_| tells) {
                *count += 1;
            }
        }
    }
    let mut each = ranks.iter().zip(counts);
    each.all(|(rank, count)| 2 * count > rank.len())
}

/// Writes into the timelines what a profiler that names process groups would have.
fn tell(timelines: &mut [Timeline], chains: &[Vec<usize>], pairs: &[Pair]) {
    let numbers = Vec::from_iter(timelines.iter().map(|timeline| timeline.rank));
    let number = |place: usize| numbers.get(place).copied().unwrap_or_default();
    let mut groups = HashMap::<usize, (Arc<str>, Arc<[u32]>)>::new();
    for chain in chains {
        let ranks = Vec::from_iter(chain.iter().map(|&place| number(place)));
        let name = Vec::from_iter(ranks.iter().map(u32::to_string)).join(", ");
        let group = (Arc::from(format!("ranks {name}")), Arc::from(ranks));
        groups.extend(chain.iter().map(|&place| (place, group.clone())));
    }
    let description = Arc::<str>::from(DESCRIPTION);
    for (sequence, pair) in (0..).zip(pairs) {
        let [one, two] = pair.ends;
        for ((place, kernel), (other, _)) in [(one, two), (two, one)] {
            let (Some(timeline), Some(group)) = (timelines.get_mut(place), groups.get(&place))
            else {
                continue;
            };
            timeline.tell_collective(kernel, |known| Collective {
                process_group: Some(group.0.clone()),
                description: Some(description.clone()),
                ranks: group.1.clone(),
                peer: Some(number(other)),
                sequence: Some(sequence),
                name: None,
                ..known
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(transfers: impl Iterator<Item = (i64, i64)>) -> Rank {
        let times = transfers.map(|(start, end)| (Nanos(start), Nanos(end)));
        let times = (0..).zip(times).map(|(at, (start, end))| (at, start, end));
        Rank {
            collectives: BTreeMap::new(),
            transfers: Transfer::all(times, (Nanos(0), Nanos(1_000_000_000))),
        }
    }

    fn are_one(ranks: &[Rank; 2]) -> bool {
        let ranks = ranks.each_ref().map(|rank| &rank.transfers[..]);
        most_are_pairs(&ranks, &pairs(&ranks, &[[0, 1]]))
    }

    /// A rank whose collectives have this name and label, one every millisecond from some time on.
    fn with_collectives(name: &str, label: &str, from: i64) -> Rank {
        let times = (0..20).map(|at| 1_000_000 * at + from);
        let times = times.map(|start| (Nanos(start), Nanos(start + 10_000)));
        let by_label = BTreeMap::from([(label.to_owned(), times.collect())]);
        Rank {
            collectives: BTreeMap::from([(name.to_owned(), by_label)]),
            ..rank(std::iter::empty())
        }
    }

    #[test]
    fn ranks_whose_collectives_have_other_names_or_labels_are_compared() {
        let one = with_collectives("ring", "20", 0);
        assert!(!one.is_apart(&with_collectives("ring", "20", 3_000)));
        // Streams of one stage are numbered as processes like.
        assert!(!one.is_apart(&with_collectives("ring", "24", 3_000)));
        assert!(one.is_apart(&with_collectives("ring", "24", 5_500_000)));
        assert!(one.is_apart(&with_collectives("tree", "20", 3_000)));
        // What one rank has besides tells nothing, what either has that the other lacks does.
        let mut more = with_collectives("ring", "20", 3_000);
        more.collectives
            .extend(with_collectives("tree", "20", 0).collectives);
        assert!(!one.is_apart(&more) && !more.is_apart(&one));
        let both = |own: &str| {
            let mut both = with_collectives(own, "20", 0);
            let few = (Nanos(19_500_000), Nanos(19_600_000));
            let few = BTreeMap::from([("20".to_owned(), vec![few])]);
            both.collectives.insert("gradients".to_owned(), few);
            both
        };
        assert!(both("ring").is_apart(&both("tree")));
    }

    #[test]
    fn ends_that_agree_by_chance_are_no_evidence() {
        // One every so many nanoseconds, half of that more or less, by a generator of its own.
        let series = |seed: u64, spacing: i64| {
            let mut state = seed;
            let mut at = 0;
            let length = (spacing / 4).min(60_000);
            let ends = (0..400).map(move |_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                at += spacing / 2 + (state >> 33) as i64 % spacing;
                (at - length, at)
            });
            Vec::from_iter(ends)
        };
        let later = |of: &[(i64, i64)], by: i64| {
            rank(of.iter().map(move |(start, end)| (start + by, end + by)))
        };
        for seed in 0..50 {
            for spacing in [10_000, 50_000, 100_000, 200_000] {
                let ranks = [series(seed, spacing), series(1_000 + seed, spacing)];
                let ranks = ranks.map(|of| rank(of.into_iter()));
                assert!(!are_one(&ranks), "{seed} {spacing}");
            }
            // The two ends of the same transfers.
            for (spacing, apart) in [(300_000, 1_000), (1_500_000, 8_000), (5_000_000, 40_000)] {
                let one = series(seed, spacing);
                let ranks = [later(&one, 0), later(&one, apart)];
                assert!(are_one(&ranks), "{seed} {spacing}");
            }
        }
    }

    #[test]
    fn few_of_the_transfers_that_end_at_once_may_be_one() {
        let same = rank((0..50_000).map(|_| (0, 10)));
        assert!(
            same.transfers
                .iter()
                .all(|own| near(&same.transfers, own).count() <= 16)
        );
        let ranks = [same, rank((0..50_000).map(|_| (0, 10)))];
        assert!(!are_one(&ranks));
        // Where they end one after the other, all are found.
        let ranks = [0, 3].map(|late| rank((0..1000).map(|at| (100 * at, 100 * at + 90 + late))));
        let ranks = ranks.each_ref().map(|rank| &rank.transfers[..]);
        assert_eq!(pairs(&ranks, &[[0, 1]]).len(), 1000);
    }

    #[test]
    fn ranks_that_are_all_apart_are_soon_given_up() {
        let apart = |at: usize| {
            let first = 1_000_000 * at as i64;
            let mut one = rank(std::iter::once((first, first + 10)));
            let times = (0..3).map(|nth| first + 10_000_000 * nth);
            let times = times.map(|start| (Nanos(start), Nanos(start + 10)));
            let by_label = BTreeMap::from([(String::new(), times.collect())]);
            one.collectives.insert("all".to_owned(), by_label);
            one
        };
        assert_eq!(
            sets(&Vec::from_iter((0..8).map(apart))),
            Vec::<Vec<usize>>::new()
        );
        let pairs = Vec::from_iter((0..8).map(|at| apart(at / 2)));
        assert_eq!(sets(&pairs), [[0, 1], [2, 3], [4, 5], [6, 7]]);
    }
}
