//! Collectives and transfers that take longer than others that carry the same: those of some ranks against those of other
//! ranks, and those of some iterations against those of the others. What they take counts from when the last of their ranks
//! has come, so that nobody's lateness is in it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use litd_units::Nanos;
use serde::Serialize;

use super::graph::takes_itself;
use super::{Saves, WhatIf};
use crate::collectives::{Matched, carries};
use crate::timeline::NonMax;

/// What takes so many times as long as its peers is slow.
const SLOW: f64 = 1.5;
/// Links that cost less than this share of the time are not told.
const COSTS: f64 = 0.01;
/// One collective that takes long may be chance.
const FEW: usize = 2;

/// Where communication is slow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Link {
    /// Where.
    #[serde(rename = "where")]
    pub place: Where,
    /// What of it costs most: a collective or a transfer.
    pub kind: String,
    /// How many bytes that carries; null where traces don't tell.
    pub bytes: Option<u64>,
    /// How long it takes there once all of its ranks have come, in nanoseconds; the median.
    pub takes_ns: Nanos,
    /// How long its peers take.
    pub peers_ns: Nanos,
    /// By how much earlier the job would end if all that is slow there took as long as its peers, in nanoseconds.
    pub saved_ns: Nanos,
    /// As a share of what the job takes.
    pub saved: f64,
    /// The collectives that are slow, with what each would take less, in nanoseconds.
    #[serde(skip)]
    pub(super) rows: Vec<(u32, f64)>,
}

/// Which communication is slow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Where {
    /// What any rank exchanges with any of these.
    Ranks(Vec<u32>),
    /// What the ranks of one group exchange with each other, or a pair.
    Among(Vec<u32>),
    /// What all exchange in these iterations.
    Iterations(Vec<u32>),
}

impl Link {
    /// How many times as long as its peers what is slow there takes.
    #[must_use]
    pub fn times(&self) -> f64 {
        self.takes_ns.0 as f64 / self.peers_ns.0.max(1) as f64
    }

    /// How many collectives are slow there.
    #[must_use]
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// The ranks that it is of; none of iterations.
    #[must_use]
    pub fn ranks(&self) -> &[u32] {
        match &self.place {
            Where::Ranks(ranks) | Where::Among(ranks) => ranks,
            Where::Iterations(_) => &[],
        }
    }
}

/// Collectives of one kind and size among so many ranks: peers, whoever the ranks are.
type Kind = (String, Option<u64>, usize);

/// Those of one kind, by their ranks' places and their iteration: the number of each collective and what it takes.
type Cells = BTreeMap<Vec<usize>, BTreeMap<Option<NonMax>, Vec<(u32, f64)>>>;

/// What is slow in one kind of collectives.
struct Slow {
    kind: Kind,
    /// Of each set of ranks that is slow what its collectives take, what its peers take, and each with its saving.
    units: BTreeMap<Vec<usize>, Part>,
    /// Sets of ranks that are not.
    others: Vec<Vec<usize>>,
    iterations: BTreeMap<NonMax, Part>,
}

/// Collectives that are slow.
#[derive(Default, Clone)]
struct Part {
    takes: Vec<f64>,
    peers: Vec<f64>,
    rows: Vec<(u32, f64)>,
}

impl Part {
    fn add(&mut self, (row, takes): (u32, f64), peers: f64, times: f64) {
        self.takes.push(takes);
        self.peers.push(peers);
        self.rows.push((row, takes - takes / times));
    }

    fn saves(&self) -> f64 {
        self.rows.iter().map(|row| row.1).sum()
    }
}

/// All that is slow, the most costly first.
pub(super) fn find(job: &WhatIf<'_>, matched: &Matched<'_>) -> Vec<Link> {
    let slow = Vec::from_iter(kinds(job, matched).into_iter().map(Slow::of));
    let mut links = Vec::new();
    for (place, parts) in places(job, &slow) {
        links.extend(link(job, place, &parts));
    }
    links.sort_by_key(|link| std::cmp::Reverse(link.saved_ns));
    links
}

/// All collectives by kind. Each rank's own count of bytes is that of the rank that has most.
fn kinds(job: &WhatIf<'_>, matched: &Matched<'_>) -> BTreeMap<Kind, Cells> {
    let mut kinds = HashMap::<Kind, Cells>::new();
    let mut number = 0;
    matched.each(|row| {
        let of = |entry: &crate::collectives::Entry| {
            let timeline = job.timelines.get(entry.rank)?;
            let kernel = timeline.kernels.get(entry.kernel)?;
            let (kind, bytes) = carries(timeline, kernel);
            Some((kind, bytes, kernel.iteration))
        };
        let told = row.iter().filter_map(of);
        let most = told.max_by_key(|told| told.1);
        if let Some((kind, bytes, iteration)) = most {
            let mut ranks = Vec::from_iter(row.iter().map(|entry| entry.rank));
            ranks.sort_unstable();
            let cells = kinds.entry((kind, bytes, ranks.len())).or_default();
            let cell = cells.entry(ranks).or_default().entry(iteration);
            cell.or_default().push((number, takes_itself(row).0 as f64));
        }
        number += 1;
    });
    kinds.into_iter().collect()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    litd_diagnosis::median(values.collect()).unwrap_or(0.0)
}

fn takes(cell: &[(u32, f64)]) -> f64 {
    median(cell.iter().map(|row| row.1))
}

impl Slow {
    fn of((kind, cells): (Kind, Cells)) -> Self {
        let mut slow = Self {
            kind,
            units: BTreeMap::new(),
            others: Vec::new(),
            iterations: BTreeMap::new(),
        };
        let usual = cells.iter().map(|(unit, cells)| {
            let each = cells.values().map(|cell| takes(cell));
            (unit, median(each))
        });
        let mut usual = Vec::from_iter(usual.filter(|(_, takes)| *takes > 0.0));
        usual.sort_by(|a, b| a.1.total_cmp(&b.1));
        let fast = fast(&Vec::from_iter(usual.iter().map(|unit| unit.1)));
        let peers = median(usual.iter().take(fast).map(|unit| unit.1));
        for (place, (unit, takes)) in usual.iter().enumerate() {
            if place < fast {
                slow.others.push((*unit).clone());
                continue;
            }
            let part = slow.units.entry((*unit).clone()).or_default();
            for &row in cells
                .get(*unit)
                .into_iter()
                .flat_map(BTreeMap::values)
                .flatten()
            {
                part.add(row, peers, takes / peers);
            }
        }
        slow.add_iterations(&cells, &usual);
        slow
    }

    /// Iterations in which most sets of ranks take longer than they mostly do.
    fn add_iterations(&mut self, cells: &Cells, usual: &[(&Vec<usize>, f64)]) {
        let numbers = cells.values().flat_map(BTreeMap::keys).flatten();
        let numbers = BTreeSet::from_iter(numbers.copied());
        if numbers.len() <= FEW {
            return;
        }
        for number in numbers {
            let mut part = Part::default();
            let (mut all, mut count) = (0, 0);
            for (unit, usual) in usual {
                let cell = cells.get(*unit).and_then(|cells| cells.get(&Some(number)));
                let Some(cell) = cell else { continue };
                all += 1;
                let times = takes(cell) / usual;
                if times < SLOW {
                    continue;
                }
                count += 1;
                for &row in cell {
                    part.add(row, *usual, times);
                }
            }
            if 2 * count > all && part.rows.len() >= FEW {
                self.iterations.insert(number, part);
            }
        }
    }
}

/// How many of the sets of ranks are no slower than the fastest of them, by what each mostly takes, in order: up to where
/// the next takes clearly longer.
fn fast(usual: &[f64]) -> usize {
    let pairs = usual.windows(2).enumerate();
    let steps = pairs.map(|(at, pair)| (at + 1, pair[1] / pair[0]));
    let widest = steps.max_by(|a, b| a.1.total_cmp(&b.1));
    match widest {
        Some((at, times)) if times >= SLOW => at,
        _ => usual.len(),
    }
}

/// What is slow of all kinds, by where that is.
fn places<'s>(job: &WhatIf<'_>, slow: &'s [Slow]) -> Vec<(Where, Vec<(&'s Kind, &'s Part)>)> {
    let numbers = |ranks: &mut dyn Iterator<Item = usize>| {
        let timelines = ranks.filter_map(|at| job.timelines.get(at));
        let mut numbers = Vec::from_iter(timelines.map(|timeline| timeline.rank));
        numbers.sort_unstable();
        numbers
    };
    let mut places = Vec::new();
    let units = BTreeSet::from_iter(slow.iter().flat_map(|slow| slow.units.keys()));
    // Ranks are cleared by what is of the same kind as what is slow.
    let of_kind = slow.iter().filter(|slow| !slow.units.is_empty());
    let clear = of_kind.flat_map(|slow| &slow.others).flatten();
    let clear = BTreeSet::from_iter(clear.copied());
    let parts = |wanted: &dyn Fn(&Vec<usize>) -> bool| {
        let all = slow.iter().flat_map(|slow| {
            let units = slow.units.iter();
            units.map(move |(unit, part)| (&slow.kind, unit, part))
        });
        let all = all.filter(|(_, unit, _)| wanted(unit));
        Vec::from_iter(all.map(|(kind, _, part)| (kind, part)))
    };
    // Ranks all of whose links are slow, as few as explain them.
    let mut left = Vec::from_iter(units.iter().filter(|unit| unit.len() == 2).copied());
    let mut common = BTreeSet::new();
    loop {
        let mut counts = BTreeMap::<usize, usize>::new();
        for rank in left
            .iter()
            .copied()
            .flatten()
            .filter(|rank| !clear.contains(rank))
        {
            *counts.entry(*rank).or_default() += 1;
        }
        let most = counts
            .into_iter()
            .max_by_key(|&(rank, count)| (count, std::cmp::Reverse(rank)));
        let Some((rank, _)) = most.filter(|&(_, count)| count > 1) else {
            break;
        };
        common.insert(rank);
        left.retain(|unit| !unit.contains(&rank));
    }
    if !common.is_empty() {
        let of = |unit: &Vec<usize>| unit.len() == 2 && unit.iter().any(|at| common.contains(at));
        let ranks = numbers(&mut common.iter().copied());
        places.push((Where::Ranks(ranks), parts(&of)));
    }
    let rest = units
        .iter()
        .filter(|unit| unit.len() != 2 || left.contains(unit));
    for unit in rest {
        let ranks = numbers(&mut unit.iter().copied());
        places.push((Where::Among(ranks), parts(&|other| *other == **unit)));
    }
    let of_iterations = slow.iter().flat_map(|slow| {
        let parts = slow.iterations.values();
        parts.map(move |part| (&slow.kind, part))
    });
    let of_iterations = Vec::from_iter(of_iterations);
    if !of_iterations.is_empty() {
        let all = slow.iter().flat_map(|slow| slow.iterations.keys());
        let all = BTreeSet::from_iter(all.map(|number| number.get()));
        places.push((Where::Iterations(all.into_iter().collect()), of_iterations));
    }
    places
}

/// What is slow in one place, if it costs anything.
fn link(job: &WhatIf<'_>, place: Where, parts: &[(&Kind, &Part)]) -> Option<Link> {
    let rows = parts.iter().flat_map(|(_, part)| part.rows.iter().copied());
    let rows = Vec::from_iter(rows);
    let worst = parts
        .iter()
        .max_by(|a, b| a.1.saves().total_cmp(&b.1.saves()))?;
    let ((kind, bytes, _), part) = worst;
    let savings = HashMap::<usize, f64>::from_iter(rows.iter().map(|row| (row.0 as usize, row.1)));
    let saved = job.replayed(&Saves {
        kernel: &|_, _| 0.0,
        host: &|_, _| 0.0,
        row: &|row| savings.get(&row).copied().unwrap_or(0.0),
    });
    let share = saved.0 as f64 / job.wall.0.max(1) as f64;
    (share >= COSTS).then(|| Link {
        place,
        kind: kind.clone(),
        bytes: *bytes,
        takes_ns: Nanos(median(part.takes.iter().copied()) as i64),
        peers_ns: Nanos(median(part.peers.iter().copied()) as i64),
        saved_ns: saved,
        saved: share,
        rows,
    })
}
