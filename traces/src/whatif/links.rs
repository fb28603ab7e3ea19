//! Collectives and transfers that take longer than others that carry the same: those of some ranks against those of other
//! ranks, and those of some iterations against those of the others. What they take counts from when the last of their ranks
//! has come, so that nobody's lateness is in it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use litd_units::Nanos;
use serde::Serialize;

use super::graph::{sends, takes_itself};
use super::{Saves, WhatIf};
use crate::collectives::{Entry, Kinds, Matched};
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
    /// What these send, and not what they receive.
    From(Vec<u32>),
    /// What these receive, and not what they send.
    To(Vec<u32>),
    /// What the ranks of one group exchange with each other, or a pair.
    Among(Vec<u32>),
    /// What the first of two sends to the second, and not what comes back.
    OneWay([u32; 2]),
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
            Where::Ranks(ranks) | Where::From(ranks) | Where::To(ranks) | Where::Among(ranks) => {
                ranks
            }
            Where::OneWay(ranks) => ranks,
            Where::Iterations(_) => &[],
        }
    }
}

/// Collectives of one kind and size among so many ranks: peers, whoever the ranks are.
type Kind = (&'static str, Option<u64>, usize);

/// Ranks that exchange something, by their places in order. Of a transfer that tells who sends, the sender comes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Unit {
    ranks: Vec<usize>,
    one_way: bool,
}

impl Unit {
    fn is_pair(&self) -> bool {
        self.ranks.len() == 2
    }

    /// The same two ranks, the other way.
    fn back(&self) -> Self {
        let ranks = self.ranks.iter().rev().copied().collect();
        Self { ranks, ..*self }
    }
}

/// What a rank may have that is slow: all of its links, or one side of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Any,
    From,
    To,
}

impl Side {
    /// Whether a rank's side is of what these exchange. What goes both ways is of both sides.
    fn is_of(self, rank: usize, unit: &Unit) -> bool {
        match (self, unit.one_way) {
            (Self::From, true) => unit.ranks.first() == Some(&rank),
            (Self::To, true) => unit.ranks.last() == Some(&rank),
            _ => unit.ranks.contains(&rank),
        }
    }
}

/// Those of one kind, by their ranks and their iteration: the number of each collective and what it takes.
type Cells = BTreeMap<Unit, BTreeMap<Option<NonMax>, Vec<(u32, f64)>>>;

/// What is slow in one kind of collectives.
struct Slow {
    kind: Kind,
    /// Of each set of ranks that is slow what its collectives take, what its peers take, and each with its saving.
    units: BTreeMap<Unit, Part>,
    /// Sets of ranks that are not.
    others: Vec<Unit>,
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
    let mut names = Kinds::default();
    matched.each(|row| {
        let mut of = |entry: &Entry| {
            let timeline = job.timelines.get(entry.rank)?;
            let kernel = timeline.kernels.get(entry.kernel)?;
            let (kind, bytes) = names.carries(timeline, kernel);
            Some((kind, bytes, kernel.iteration))
        };
        let told = row.iter().filter_map(&mut of);
        let most = told.max_by_key(|told| told.1);
        if let Some((kind, bytes, iteration)) = most {
            let unit = unit(job, row);
            // What one sends and another receives is one transfer.
            let kind = if unit.one_way { "send" } else { kind };
            let cells = kinds.entry((kind, bytes, unit.ranks.len())).or_default();
            let cell = cells.entry(unit).or_default().entry(iteration);
            cell.or_default().push((number, takes_itself(row).0 as f64));
        }
        number += 1;
    });
    kinds.into_iter().collect()
}

/// Which ranks a collective is of.
fn unit(job: &WhatIf<'_>, row: &[Entry]) -> Unit {
    let mut ranks = Vec::from_iter(row.iter().map(|entry| entry.rank));
    ranks.sort_unstable();
    let one_way = match row {
        [one, other] => [one, other].map(|entry| sends(job.timelines, entry)),
        _ => [None, None],
    };
    match one_way {
        [Some(true), Some(false)] => ranks = Vec::from_iter(row.iter().map(|entry| entry.rank)),
        [Some(false), Some(true)] => {
            ranks = Vec::from_iter(row.iter().rev().map(|entry| entry.rank));
        }
        _ => {}
    }
    let one_way = one_way[0].is_some() && one_way[1].is_some() && one_way[0] != one_way[1];
    Unit { ranks, one_way }
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
    fn add_iterations(&mut self, cells: &Cells, usual: &[(&Unit, f64)]) {
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
    let number = |at: usize| job.timelines.get(at).map(|timeline| timeline.rank);
    let numbers = |ranks: &mut dyn Iterator<Item = usize>| {
        let mut numbers = Vec::from_iter(ranks.filter_map(number));
        numbers.sort_unstable();
        numbers
    };
    let mut places = Vec::new();
    let units = BTreeSet::from_iter(slow.iter().flat_map(|slow| slow.units.keys()));
    let parts = |wanted: &dyn Fn(&Unit) -> bool| {
        let all = slow.iter().flat_map(|slow| {
            let units = slow.units.iter();
            units.map(move |(unit, part)| (&slow.kind, unit, part))
        });
        let all = all.filter(|(_, unit, _)| wanted(unit));
        Vec::from_iter(all.map(|(kind, _, part)| (kind, part)))
    };
    // Ranks are cleared by what is of the same kind as what is slow.
    let of_kind = slow.iter().filter(|slow| !slow.units.is_empty());
    let clear = Vec::from_iter(of_kind.flat_map(|slow| &slow.others));
    let mut left = Vec::from_iter(units.iter().copied().filter(|unit| unit.is_pair()));
    for (side, common) in common(&mut left, &clear) {
        let of = |unit: &Unit| unit.is_pair() && common.iter().any(|&at| side.is_of(at, unit));
        let ranks = numbers(&mut common.iter().copied());
        let place = match side {
            Side::Any => Where::Ranks(ranks),
            Side::From => Where::From(ranks),
            Side::To => Where::To(ranks),
        };
        places.push((place, parts(&of)));
    }
    for unit in &units {
        let back = left.iter().position(|other| **other == unit.back());
        let place = match (unit.is_pair(), left.contains(unit)) {
            (true, false) => continue,
            // Both ways are told once.
            (true, true) if unit.one_way && back.is_some() && unit.back() < **unit => continue,
            (true, true) if unit.one_way && back.is_none() => {
                let mut ranks = unit.ranks.iter().filter_map(|&at| number(at));
                let Some(from) = ranks.next() else { continue };
                Where::OneWay([from, ranks.next().unwrap_or(from)])
            }
            _ => Where::Among(numbers(&mut unit.ranks.iter().copied())),
        };
        let both = unit.one_way && back.is_some();
        let of = |other: &Unit| other == *unit || both && *other == unit.back();
        places.push((place, parts(&of)));
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

/// Ranks all of whose links are slow, or all to one side of them, as few as explain these pairs; which then are left out of
/// them.
fn common(left: &mut Vec<&Unit>, clear: &[&Unit]) -> Vec<(Side, Vec<usize>)> {
    let mut common = BTreeMap::<Side, Vec<usize>>::new();
    loop {
        let mut counts = BTreeMap::<(Side, usize), usize>::new();
        for (side, unit) in [Side::Any, Side::From, Side::To]
            .into_iter()
            .flat_map(|side| left.iter().map(move |unit| (side, unit)))
        {
            let own = unit.ranks.iter().filter(|&&rank| side.is_of(rank, unit));
            let own = own.filter(|&&rank| !clear.iter().any(|other| side.is_of(rank, other)));
            // What goes both ways is no side's.
            for &rank in own.filter(|_| side == Side::Any || unit.one_way) {
                *counts.entry((side, rank)).or_default() += 1;
            }
        }
        // Where one side has all of them, it is that side's.
        let most = counts
            .into_iter()
            .max_by_key(|&((side, rank), count)| (count, side, std::cmp::Reverse(rank)));
        let Some(((side, rank), _)) = most.filter(|&(_, count)| count > 1) else {
            return common.into_iter().collect();
        };
        common.entry(side).or_default().push(rank);
        left.retain(|unit| !side.is_of(rank, unit));
    }
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
        kind: (*kind).into(),
        bytes: *bytes,
        takes_ns: Nanos(median(part.takes.iter().copied()) as i64),
        peers_ns: Nanos(median(part.peers.iter().copied()) as i64),
        saved_ns: saved,
        saved: share,
        rows,
    })
}
