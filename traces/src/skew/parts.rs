//! Skew where no collective is on all ranks, as in a job of tensor and data parallelism: each process group tells
//! how far the clocks of its own ranks are apart, and those that share a rank are put together.

use std::collections::{BTreeMap, BTreeSet};

use litd_diagnosis::median;
use litd_units::Nanos;

use super::{
    CLEAR, FEWEST, FEWEST_OF_FEW, Jump, Key, LEAST, Lists, Rows, Seen, Skew, of_rows, range, rows,
};
use crate::timeline::Timeline;

/// Ranks that share collectives, by their places in order, and what these say of their clocks.
pub(super) struct Part {
    pub(super) members: Vec<usize>,
    pub(super) skew: Skew,
}

/// What one rank's clock is ahead of another's, and by how much that may be off; in nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    pub(super) by: f64,
    pub(super) off: f64,
}

/// What all process groups together tell of the clocks; none where they leave some ranks apart from the others.
pub(super) fn skew(lists: &[Lists], timelines: &[Timeline]) -> Option<Skew> {
    let parts = parts(lists, timelines);
    let collectives = parts.iter().map(|part| part.skew.collectives).sum();
    if collectives < FEWEST {
        return None;
    }
    let by_the_first = from(0, lists.len(), &parts)?;
    let middle = middle(&by_the_first);
    // What is far from the median rank by way of many groups is known less well than what is near.
    let near = (0..lists.len()).min_by(|&a, &b| {
        let far = |rank: usize| (by_the_first[rank].by - middle).abs();
        far(a).total_cmp(&far(b))
    })?;
    let mut ahead = from(near, lists.len(), &parts)?;
    let middle = self::middle(&ahead);
    for one in &mut ahead {
        one.by -= middle;
    }
    disagree(&mut ahead, &parts);
    let transfers = parts.iter().map(|part| part.skew.transfer_ns.0 as f64);
    Some(Skew {
        estimated: true,
        collectives,
        ahead_ns: ahead.iter().map(|one| Nanos(one.by as i64)).collect(),
        uncertainty_ns: ahead.iter().map(|one| Nanos(one.off as i64)).collect(),
        removed: ahead
            .iter()
            .map(|one| one.by.abs() > LEAST && one.by.abs() > CLEAR * one.off)
            .collect(),
        // A group of few ranks does not tell whose link is slow.
        link_slowness: vec![0.0; lists.len()],
        transfer_ns: Nanos(median(transfers.collect()).unwrap_or(0.0) as i64),
        one_clock: false,
        jumps: told_once(&parts),
    })
}

fn middle(ahead: &[Ahead]) -> f64 {
    median(ahead.iter().map(|one| one.by).collect()).unwrap_or(0.0)
}

/// The process groups with collectives that tell anything. Those of the same ranks count as one.
fn parts(lists: &[Lists], timelines: &[Timeline]) -> Vec<Part> {
    let mut members = BTreeMap::<&Key, Vec<usize>>::new();
    for (rank, lists) in lists.iter().enumerate() {
        // Without a process group nothing tells which ranks a collective is of.
        for key in lists.keys().filter(|(_, group)| group.is_some()) {
            members.entry(key).or_default().push(rank);
        }
    }
    let mut keys = BTreeMap::<Vec<usize>, Vec<&Key>>::new();
    for (key, members) in members {
        keys.entry(members).or_default().push(key);
    }
    let part = |(members, keys): (Vec<usize>, Vec<&Key>)| {
        let own = |&rank: &usize| {
            let own = keys.iter().filter_map(|key| {
                let list = lists.get(rank)?.get(key)?;
                Some(((*key).clone(), list.clone()))
            });
            Lists::from_iter(own)
        };
        let rows = rows(&Vec::from_iter(members.iter().map(own)));
        let ranks = members.iter().filter_map(|&rank| timelines.get(rank));
        let ranks = Vec::from_iter(ranks);
        let skew = match rows.suffice() {
            true => of_rows(&rows, &ranks),
            false => of_few(&rows)?,
        };
        Some(Part { members, skew })
    };
    keys.into_iter().filter_map(part).collect()
}

/// What few collectives say, such as those of replicas that reduce their gradients once in an iteration. By how much
/// they disagree is all that is known of their error; of a slow link or a jump they tell nothing.
fn of_few(all: &Rows) -> Option<Skew> {
    if all.len() < FEWEST_OF_FEW || all.ranks < 2 {
        return None;
    }
    let seen = Seen::of(all);
    let late = Vec::from_iter((0..all.ranks).map(|rank| seen.late(all, rank)));
    let middles = late.iter().map(|late| median(late.clone()).unwrap_or(0.0));
    Some(Skew {
        collectives: all.len(),
        ahead_ns: middles.map(|middle| Nanos(middle as i64)).collect(),
        uncertainty_ns: late.iter().map(|late| Nanos(range(late) as i64)).collect(),
        transfer_ns: Nanos(median(seen.transfers).unwrap_or(0.0) as i64),
        ..Skew::default()
    })
}

/// How far each clock is ahead of one rank's, by the surest way from group to group; none where no way leads to
/// some rank.
pub(super) fn from(first: usize, ranks: usize, parts: &[Part]) -> Option<Vec<Ahead>> {
    let mut of_rank = vec![Vec::<(usize, usize)>::new(); ranks];
    for (at, part) in parts.iter().enumerate() {
        for (place, &rank) in part.members.iter().enumerate() {
            of_rank.get_mut(rank)?.push((at, place));
        }
    }
    let mut best = vec![None::<Ahead>; ranks];
    let mut known = vec![false; ranks];
    *best.get_mut(first)? = Some(Ahead { by: 0.0, off: 0.0 });
    for _ in 0..ranks {
        let open = (0..ranks).filter(|&rank| !known[rank]);
        let open = open.filter_map(|rank| Some((rank, best[rank]?)));
        let (rank, own) = open.min_by(|a, b| a.1.off.total_cmp(&b.1.off))?;
        known[rank] = true;
        for &(at, place) in &of_rank[rank] {
            let Part { members, skew } = &parts[at];
            let measured = |place: usize| {
                let by = skew.ahead_ns.get(place)?.0 as f64;
                Some((by, skew.uncertainty_ns.get(place)?.0 as f64))
            };
            let (by, off) = measured(place)?;
            for (place, &other) in members
                .iter()
                .enumerate()
                .filter(|(_, other)| !known[**other])
            {
                let (others, others_off) = measured(place)?;
                let way = Ahead {
                    by: own.by + others - by,
                    off: own.off + off.max(others_off),
                };
                let better = best[other].is_none_or(|best| way.off < best.off);
                if better {
                    best[other] = Some(way);
                }
            }
        }
    }
    best.into_iter().collect()
}

/// Where a group says something else than what was put together, its ranks' clocks are known less well.
fn disagree(ahead: &mut [Ahead], parts: &[Part]) {
    let mut off = vec![0.0_f64; ahead.len()];
    for Part { members, skew } in parts {
        let rest = members.iter().zip(&skew.ahead_ns);
        let rest = rest.map(|(&rank, measured)| ahead[rank].by - measured.0 as f64);
        let rest = Vec::from_iter(rest);
        let middle = median(rest.clone()).unwrap_or(0.0);
        for (&rank, rest) in members.iter().zip(rest) {
            off[rank] = off[rank].max((rest - middle).abs());
        }
    }
    for (one, off) in ahead.iter_mut().zip(off) {
        one.off = one.off.max(off);
    }
}

/// The jumps that groups tell, each rank's once: it may be in several groups. Where some know whose clock it is,
/// those of two ranks say nothing more.
fn told_once(parts: &[Part]) -> Vec<Jump> {
    let mut first = BTreeMap::<Option<u32>, &[Jump]>::new();
    for part in parts {
        let ranks = part.skew.jumps.iter().map(|jump| jump.rank);
        for rank in BTreeSet::from_iter(ranks) {
            first.entry(rank).or_insert(&part.skew.jumps);
        }
    }
    let known = first.keys().any(Option::is_some);
    let jumps = first.iter().flat_map(|(rank, jumps)| {
        let own = jumps.iter().filter(move |jump| jump.rank == *rank);
        own.copied()
    });
    let mut jumps = Vec::from_iter(jumps.filter(|jump| jump.rank.is_some() || !known));
    jumps.sort_by_key(|jump| jump.at_ns);
    jumps
}
