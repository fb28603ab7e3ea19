//! Groups that are late as a whole: a stage of a pipeline that computes longer than the others, or whose kernels take longer
//! than those of the same names and grids elsewhere.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use serde::Serialize;

use super::{Saves, WhatIf};
use crate::groups::Groups;
use crate::limit::{Limit, limit_of};
use crate::timeline::{KernelClass, Timeline};

/// A stage that computes longer than the median one by less than this share is none to name.
const LONGER: f64 = 0.08;
/// Nor is one whose kernels are slower by less than this share.
const SLOWER: f64 = 0.02;
/// What costs less than this share of the time is not told.
const COSTS: f64 = 0.01;
/// Means of fewer kernels of a name tell nothing.
const FEW: u64 = 8;
/// Names that take this part of a rank's computation at least must be comparable.
const COMPARED: f64 = 0.3;
/// Grids that differ by less than this share are equal.
const EQUAL: f64 = 0.01;
/// A slow clock makes kernels that memory limits slower by less than this part of what it does to the others.
const FOLLOWS: f64 = 0.55;

/// A stage that the others wait for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stage {
    /// Its number, where it is known.
    pub stage: Option<u32>,
    /// Its ranks.
    pub ranks: Vec<u32>,
    /// Why it is late.
    pub why: Why,
    /// How many kernels its ranks compute in all, and the median stage's.
    pub kernels: [usize; 2],
    /// By how much longer it takes than the median stage, or each of its kernels than its like; a share.
    pub longer: f64,
    /// By how much less the job would take if it were as the others, as a share.
    pub saved: f64,
}

/// Why a stage is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It computes longer.
    Work,
    /// Its kernels take longer than kernels of the same names and grids elsewhere, those that memory limits less so.
    Clock,
    /// Its kernels take longer, whatever limits them.
    Kernels,
}

/// One stage on the way: its timelines and its number.
struct Of {
    places: Vec<usize>,
    stage: Option<u32>,
    /// What its ranks compute on average, in nanoseconds.
    computes: f64,
    /// In how many kernels.
    kernels: usize,
    /// How long its fastest rank takes for kernels that other stages run as well, against these: of those that follow the
    /// clock, of those that memory limits, and of all.
    paces: Option<[f64; 3]>,
}

/// What stages there are.
fn stages(timelines: &[Timeline], groups: &Groups) -> Vec<Of> {
    let mut stages = BTreeMap::<u32, Vec<usize>>::new();
    for group in &groups.all {
        let alone = |range: Range<usize>| range.zip(0..).map(|(at, stage)| (stage, at));
        match (group.pipeline, group.stage) {
            (true, _) => alone(group.range.clone())
                .for_each(|(stage, at)| stages.entry(stage).or_default().push(at)),
            (false, Some(stage)) => stages.entry(stage).or_default().extend(group.range.clone()),
            (false, None) => {}
        }
    }
    if stages.len() < 2 {
        return Vec::new();
    }
    let known = groups.all.iter().all(|group| !group.pipeline);
    let paces = paces(timelines);
    let of = |(stage, places): (u32, Vec<usize>)| {
        let each = places
            .iter()
            .filter_map(|&at| timelines.get(at))
            .map(computes);
        let computes = each.sum::<f64>() / places.len().max(1) as f64;
        let count = |timeline: &Timeline| {
            let kernels = timeline.kernels.iter();
            kernels
                .filter(|kernel| kernel.class == KernelClass::Computation)
                .count()
        };
        let counts = places.iter().filter_map(|&at| timelines.get(at)).map(count);
        let kernels = counts.sum::<usize>() / places.len().max(1);
        let own = places.iter().map(|&at| paces.get(at).copied().flatten());
        let least = |a: [f64; 3], b: [f64; 3]| if a[2] <= b[2] { a } else { b };
        let own = own.collect::<Option<Vec<_>>>();
        Of {
            stage: known.then_some(stage),
            computes,
            kernels,
            paces: own.and_then(|own| own.into_iter().reduce(least)),
            places,
        }
    };
    stages.into_iter().map(of).collect()
}

fn computes(timeline: &Timeline) -> f64 {
    let kernels = timeline.kernels.iter();
    let kernels = kernels.filter(|kernel| kernel.class == KernelClass::Computation);
    kernels.map(|kernel| kernel.duration().0 as f64).sum()
}

/// How long each rank takes for kernels that others run as well, in grids as large.
fn paces(timelines: &[Timeline]) -> Vec<Option<[f64; 3]>> {
    let sums = Vec::from_iter(timelines.iter().map(by_name));
    let mut likes = HashMap::<&str, Vec<(Option<f64>, f64)>>::new();
    for (timeline, sums) in timelines.iter().zip(&sums) {
        for (name, (time, count)) in sums {
            if *count >= FEW {
                let mean = time / *count as f64;
                let like = (timeline.blocks_of(name), mean);
                likes.entry(name).or_default().push(like);
            }
        }
    }
    let equal = |one: Option<f64>, other: Option<f64>| match (one, other) {
        (Some(one), Some(other)) => (one / other - 1.0).abs() < EQUAL,
        (one, other) => one.is_none() && other.is_none(),
    };
    let each = timelines.iter().zip(&sums).map(|(timeline, sums)| {
        // Of what is compared: the own time, and what others would take.
        let mut both = [[0.0; 2]; 3];
        for (name, (time, count)) in sums {
            let blocks = timeline.blocks_of(name);
            let likes = likes.get(name).map_or(&[][..], Vec::as_slice);
            let likes = likes.iter().filter(|like| equal(like.0, blocks));
            let mut likes = Vec::from_iter(likes.map(|like| like.1));
            if *count < FEW || 2 * likes.len() <= timelines.len() {
                continue;
            }
            likes.sort_by(f64::total_cmp);
            let middle = likes.get((likes.len() - 1) / 2).copied().unwrap_or(0.0);
            let of = match limit_of(name) {
                Some(Limit::Compute) => &[0, 2][..],
                Some(Limit::Memory) => &[1, 2],
                None => &[2],
            };
            for &of in of {
                if let Some([own, theirs]) = both.get_mut(of) {
                    *own += time;
                    *theirs += middle * *count as f64;
                }
            }
        }
        let compared = both[2][0] >= COMPARED * computes(timeline);
        let pace = |[own, theirs]: [f64; 2]| if theirs > 0.0 { own / theirs } else { 1.0 };
        compared.then(|| both.map(pace))
    });
    each.collect()
}

/// What a rank computes by name: how long, and in how many kernels.
fn by_name(timeline: &Timeline) -> HashMap<&str, (f64, u64)> {
    let mut sums = HashMap::<&str, (f64, u64)>::new();
    let kernels = timeline.kernels.iter();
    for kernel in kernels.filter(|kernel| kernel.class == KernelClass::Computation) {
        let sum = sums.entry(timeline.name_of(kernel)).or_default();
        sum.0 += kernel.duration().0 as f64;
        sum.1 += 1;
    }
    sums
}

/// The stage that costs most, if any costs much.
pub(super) fn find(job: &WhatIf<'_>, groups: &Groups) -> Option<Stage> {
    let stages = stages(job.timelines, groups);
    let whole = |place: usize| longest(&stages, place);
    let found = (0..stages.len()).filter_map(|place| Some((place, whole(place)?)));
    let found = found.filter_map(|(place, (why, longer))| {
        let of = stages.get(place)?;
        let saved = job.saved_by(&of.places, longer / (1.0 + longer));
        let median = median(&stages, place)?;
        let ranks = of.places.iter().filter_map(|&at| job.timelines.get(at));
        let mut ranks = Vec::from_iter(ranks.map(|timeline| timeline.rank));
        ranks.sort_unstable();
        (saved >= COSTS).then_some(Stage {
            stage: of.stage,
            ranks,
            why,
            kernels: [of.kernels, median.kernels],
            longer,
            saved,
        })
    });
    found.max_by(|a, b| a.saved.total_cmp(&b.saved))
}

/// The median one of the other stages by how long they compute, or the lower of the two in the middle.
fn median(stages: &[Of], place: usize) -> Option<&Of> {
    let others = stages.iter().enumerate().filter(|one| one.0 != place);
    let mut others = Vec::from_iter(others.map(|one| one.1));
    others.sort_by(|a, b| a.computes.total_cmp(&b.computes));
    let middle = others.len().saturating_sub(1) / 2;
    others.get(middle).copied()
}

/// Why a stage is longer than the others, and by how much.
fn longest(stages: &[Of], place: usize) -> Option<(Why, f64)> {
    let own = stages.get(place)?;
    let others = || {
        stages
            .iter()
            .enumerate()
            .filter(|one| one.0 != place)
            .map(|one| one.1)
    };
    let slower = |of: &Of| of.paces.map(|paces| paces[2] - 1.0);
    if let (Some(pace), Some(paces)) = (slower(own), own.paces)
        && pace >= SLOWER
        && others().filter_map(slower).all(|other| 2.0 * other < pace)
    {
        let [compute, memory, _] = paces.map(|pace| pace - 1.0);
        return match memory < FOLLOWS * compute {
            true => Some((Why::Clock, pace)),
            false => Some((Why::Kernels, pace)),
        };
    }
    let theirs = median(stages, place)?.computes;
    let longer = own.computes / theirs.max(1.0) - 1.0;
    (longer >= LONGER && theirs > 0.0).then_some((Why::Work, longer))
}

impl WhatIf<'_> {
    /// What the job would take less if the computation of ranks at these places took less by this share.
    fn saved_by(&self, places: &[usize], share: f64) -> f64 {
        let kernel = |rank: usize, kernel: usize| {
            let timeline = self.timelines.get(rank).filter(|_| places.contains(&rank));
            let kernel = timeline.and_then(|timeline| timeline.kernels.get(kernel));
            let kernel = kernel.filter(|kernel| kernel.class == KernelClass::Computation);
            kernel.map_or(0.0, |kernel| share * kernel.duration().0 as f64)
        };
        let saved = self.replayed(&Saves {
            kernel: &kernel,
            host: &|_, _| 0.0,
            row: &|_| 0.0,
        });
        saved.0 as f64 / self.wall.0.max(1) as f64
    }
}
