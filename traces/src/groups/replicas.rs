//! Replicas within a stage of a pipeline that no process group names: whose collectives end together.
//! docs/analyze-definitions.md has the definitions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use litd_units::Nanos;

use super::seen::{MOMENT, TOGETHER, Transfer, most_are_pairs, pairs, recorded};
use crate::collectives::is_transfer;
use crate::timeline::{Collective, Timeline};

/// What the process groups that are found here are said to be for.
const DESCRIPTION: &str = "seen by which collectives end together";

/// Gives the collectives of a stage, whose ranks are at these places, process groups where they are those of several
/// replicas: each of its own, and what is left of those that stand at the same place in each. Where the ranks are no
/// such replicas nothing is told.
pub(super) fn name(timelines: &mut [Timeline], stage: &[usize]) {
    let mut names = HashMap::new();
    let own = stage.iter().filter_map(|&place| timelines.get(place));
    let ranks = Vec::from_iter(own.map(|timeline| collectives(timeline, &mut names)));
    let sets = Widths::default().sets(&ranks);
    let Some(replicas) = sets.filter(|sets| sets.len() > 1) else {
        return;
    };
    let size = replicas.first().map_or(0, Vec::len);
    let across = (0..size).map(|nth| {
        let ranks = replicas
            .iter()
            .filter_map(|replica| replica.get(nth).copied());
        Vec::from_iter(ranks)
    });
    let across = Vec::from_iter(across);
    let all = Vec::from_iter(0..ranks.len());
    let whole = rows(&ranks, &all).into_iter();
    let whole = Vec::from_iter(whole.filter(|row| row.is_of_all(&replicas)));
    let sets = Vec::from_iter(std::iter::once(all).chain(replicas).chain(across));
    let parts = sets.iter().skip(1).map(|members| rows(&ranks, members));
    let of_sets = std::iter::once(whole).chain(parts).enumerate();
    let mut rows = Vec::from_iter(of_sets.flat_map(|(at, rows)| {
        let rows = rows.into_iter();
        rows.map(move |row| (row.spread.0 / MOMENT.0, at, row.kernels))
    }));
    // Where both may be, those whose ends agree best are one.
    rows.sort_unstable();
    let mut used = HashSet::new();
    let mut told = vec![Vec::new(); sets.len()];
    for (_, at, kernels) in rows {
        let (Some(members), Some(told)) = (sets.get(at), told.get_mut(at)) else {
            continue;
        };
        let each = || members.iter().copied().zip(kernels.iter().copied());
        if each().all(|kernel| !used.contains(&kernel)) {
            used.extend(each());
            told.push(kernels);
        }
    }
    for (members, rows) in sets.iter().zip(told) {
        let places = members
            .iter()
            .filter_map(|&member| stage.get(member).copied());
        tell(timelines, &Vec::from_iter(places), &rows);
    }
}

/// Kernels that may be one collective.
struct Row {
    /// Of each of its ranks.
    kernels: Vec<usize>,
    /// How long each of these takes.
    lengths: Vec<Nanos>,
    /// From the first end to the last.
    spread: Nanos,
}

impl Row {
    /// Of kernels of all ranks of a stage, whether they are one collective of all rather than one of each replica, that end
    /// together by chance: then no replica would have waited for another. Between which ranks of different replicas it is
    /// makes no difference where all end together.
    fn is_of_all(&self, replicas: &[Vec<usize>]) -> bool {
        let shortest = replicas.iter().map(|replica| {
            let lengths = replica
                .iter()
                .filter_map(|&member| self.lengths.get(member));
            lengths.min().copied().unwrap_or_default()
        });
        let least = shortest.clone().min().unwrap_or_default();
        shortest.max().unwrap_or_default() - least > TOGETHER
    }
}

/// The collectives of a rank that no process group names, those of one name as one kind.
fn collectives(timeline: &Timeline, names: &mut HashMap<String, u32>) -> Vec<Transfer> {
    let kinds = timeline.names.iter().map(|name| {
        let next = u32::try_from(names.len()).unwrap_or(u32::MAX);
        let kind = (!is_transfer(name)).then(|| names.entry(name.to_owned()));
        kind.map(|entry| *entry.or_insert(next))
    });
    let kinds = Vec::from_iter(kinds);
    let kernels = timeline.kernels.iter().enumerate();
    let kernels = kernels.filter(|(_, kernel)| kernel.class.communicates());
    let all = kernels.filter_map(|(place, kernel)| {
        Some(Transfer {
            start: kernel.start,
            end: kernel.end,
            kernel: place,
            kind: (*kinds.get(kernel.name.0 as usize)?)?,
            room: Nanos::ZERO,
        })
    });
    Transfer::with_room(all.collect(), recorded(timeline))
}

/// How many times [`TOGETHER`] is halved at most: replicas that begin at once stay close to each other for a while, and
/// further apart than the ends of one collective.
const HALVED: u32 = 3;

/// How many times [`TOGETHER`] may be halved so that most collectives of two ranks, by their places, still end within that
/// of each other; none where most don't end within it at all.
#[derive(Default)]
struct Widths(HashMap<(usize, usize), Option<u32>>);

impl Widths {
    /// Replicas of one size, within the widest that tells such; none where nothing does.
    fn sets(&mut self, ranks: &[Vec<Transfer>]) -> Option<Vec<Vec<usize>>> {
        (0..=HALVED).find_map(|halved| {
            let sets = self.replicas(ranks, halved)?;
            let size = sets.first().map_or(0, Vec::len);
            sets.iter().all(|one| one.len() == size).then_some(sets)
        })
    }

    /// Ranks most of whose collectives end within so much of each other, by their places; none if some of these are alone.
    fn replicas(&mut self, ranks: &[Vec<Transfer>], halved: u32) -> Option<Vec<Vec<usize>>> {
        let mut all = Vec::<Vec<usize>>::new();
        for place in 0..ranks.len() {
            let joins = |replica: &&mut Vec<usize>| {
                let first = replica.first().copied();
                first.is_some_and(|first| self.of(ranks, first, place) >= Some(halved))
            };
            let too_many = 2 * all.len() >= ranks.len();
            match all.iter_mut().find(joins) {
                Some(replica) => replica.push(place),
                // Of replicas of two ranks or more there are fewer: comparing on would take ranks times ranks.
                None if too_many => return None,
                None => all.push(vec![place]),
            }
        }
        all.iter().all(|replica| replica.len() > 1).then_some(all)
    }

    /// Of these two ranks, which are compared once.
    fn of(&mut self, ranks: &[Vec<Transfer>], one: usize, other: usize) -> Option<u32> {
        let width = || {
            let both = [ranks.get(one)?.as_slice(), ranks.get(other)?.as_slice()];
            let mut pairs = pairs(&both, &[[0, 1]]);
            let still = (0..=HALVED).take_while(|halved| {
                pairs.retain(|pair| pair.apart <= Nanos(TOGETHER.0 >> halved));
                most_are_pairs(&both, &pairs)
            });
            still.last()
        };
        *self.0.entry((one, other)).or_insert_with(width)
    }
}

/// Which kernels of all of these ranks may be one collective: those that end together with one of the first rank's.
fn rows(ranks: &[Vec<Transfer>], members: &[usize]) -> Vec<Row> {
    let mut members = members.iter().filter_map(|&member| ranks.get(member));
    let Some(first) = members.next() else {
        return Vec::new();
    };
    let others = members.map(|own| {
        let known = own.iter().map(|one| (one.kernel, *one));
        let known = HashMap::<usize, Transfer>::from_iter(known);
        let both = pairs(&[first, own], &[[0, 1]]).into_iter();
        let both = both.filter_map(|pair| {
            let [(_, one), (_, other)] = pair.ends;
            Some((one, *known.get(&other)?))
        });
        HashMap::<usize, Transfer>::from_iter(both)
    });
    let others = Vec::from_iter(others);
    let row = |one: &Transfer| {
        let others = others.iter().map(|own| own.get(&one.kernel).copied());
        let all = std::iter::once(Some(*one)).chain(others);
        let all = all.collect::<Option<Vec<Transfer>>>()?;
        let ends = || all.iter().map(|one| one.end);
        Some(Row {
            kernels: all.iter().map(|one| one.kernel).collect(),
            lengths: all.iter().map(|one| one.end - one.start).collect(),
            spread: ends().max()? - ends().min()?,
        })
    };
    first.iter().filter_map(row).collect()
}

/// Writes into the timelines what a profiler that names process groups would have.
fn tell(timelines: &mut [Timeline], places: &[usize], rows: &[Vec<usize>]) {
    let numbers = places.iter().filter_map(|&place| timelines.get(place));
    let numbers = Vec::from_iter(numbers.map(|timeline| timeline.rank));
    let name = Vec::from_iter(numbers.iter().map(u32::to_string)).join(", ");
    let (name, ranks) = (
        Arc::<str>::from(format!("ranks {name}")),
        Arc::from(numbers),
    );
    let description = Arc::<str>::from(DESCRIPTION);
    for (sequence, row) in (0..).zip(rows) {
        for (&place, &kernel) in places.iter().zip(row) {
            let told = |known: Collective| Collective {
                process_group: Some(name.clone()),
                description: Some(description.clone()),
                ranks: Arc::clone(&ranks),
                sequence: Some(sequence),
                name: None,
                ..known
            };
            if let Some(timeline) = timelines.get_mut(place) {
                timeline.tell_collective(kernel, told);
            }
        }
    }
}
