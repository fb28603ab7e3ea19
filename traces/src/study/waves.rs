//! Lead curves (the paper's Figure 7): how the leads of an iteration grow, where they level off,
//! and who is last.

use litd_diagnosis::median;
use litd_units::Nanos;
use serde::Serialize;

use super::matrix::Matrix;
use crate::analysis::least;

/// The most points of a curve that are reported.
const POINTS: usize = 240;
/// Leads within this share of the plateau have reached it.
const REACHED: f64 = 0.9;
/// A stretch in which a rank is last is at least this share of an iteration's kernels.
const STRETCH: usize = 20;

/// The leads of one iteration.
#[derive(Debug, Clone, Serialize)]
pub struct Wave {
    /// The iteration; null where traces mark none.
    pub iteration: Option<u32>,
    /// The rank with the least lead over all of its kernels; null on ties.
    pub straggler_rank: Option<u32>,
    /// Matched kernels.
    pub kernels: usize,
    /// From the first start to the last end of matched kernels, in nanoseconds.
    pub length_ns: Nanos,
    /// The place among the matched kernels of each point of the curves.
    pub at: Vec<usize>,
    /// For each GPU by how much it led at these places, in nanoseconds.
    pub lead_ns: Vec<Vec<Nanos>>,
    /// Where each GPU's lead levels off.
    pub plateau: Vec<Plateau>,
    /// Who starts last, from stretch to stretch.
    pub last: Vec<Stretch>,
}

/// Where a lead levels off.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Plateau {
    /// The lead there: the median over the second half of the iteration, in nanoseconds.
    pub lead_ns: Nanos,
    /// The share of the iteration's kernels after which it is first reached.
    pub from: f64,
    /// Whether it is level: over the last quarter the lead grows by less than a tenth.
    pub level: bool,
}

/// Kernels of which one rank starts most last.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stretch {
    /// The position of the GPU.
    #[serde(skip)]
    pub gpu: usize,
    /// Its rank.
    pub rank: u32,
    /// The first kernel.
    pub first: usize,
    /// The one behind the last.
    pub end: usize,
    /// The name of the first.
    pub from_kernel: String,
    /// By how much the rank that is last but one leads it on average, in nanoseconds.
    pub behind_ns: Nanos,
}

pub(super) fn waves(matrix: &Matrix<'_>, ranks: &[u32]) -> Vec<Wave> {
    let iterations = matrix.iterations();
    let wave = |(iteration, kernels): (Option<u32>, Vec<u32>)| {
        let leads = |gpu: usize| kernels.iter().map(move |&k| matrix.lead(gpu, k as usize));
        let step = kernels.len().div_ceil(POINTS).max(1);
        let at = Vec::from_iter((0..kernels.len()).step_by(step));
        Wave {
            iteration,
            straggler_rank: last_of(matrix, &kernels, ranks),
            kernels: kernels.len(),
            length_ns: matrix.length(&kernels),
            lead_ns: matrix.column(|gpu| leads(gpu).step_by(step).collect()),
            plateau: matrix.column(|gpu| plateau(&Vec::from_iter(leads(gpu)))),
            last: stretches(matrix, &kernels, ranks),
            at,
        }
    };
    iterations.into_iter().map(wave).collect()
}

/// The rank with the least lead over these kernels.
fn last_of(matrix: &Matrix<'_>, kernels: &[u32], ranks: &[u32]) -> Option<u32> {
    let sum = |gpu| kernels.iter().map(|&k| matrix.lead(gpu, k as usize)).sum();
    let sums: Vec<Nanos> = matrix.column(sum);
    ranks.get(least(&sums)?).copied()
}

fn plateau(leads: &[Nanos]) -> Plateau {
    let middle = |part: &[Nanos]| {
        let values = part.iter().map(|lead| lead.0 as f64).collect();
        median(values).unwrap_or(0.0)
    };
    let count = leads.len();
    let level = middle(&leads[count / 2..]);
    let reached = leads
        .iter()
        .position(|lead| lead.0 as f64 >= REACHED * level);
    let (before, behind) = (count * 3 / 4, count - count / 8);
    let growth = middle(&leads[behind.min(count)..]) - middle(&leads[before..behind.max(before)]);
    Plateau {
        lead_ns: Nanos(level as i64),
        from: reached.unwrap_or(0) as f64 / count.max(1) as f64,
        level: growth.abs() <= 0.1 * level.abs(),
    }
}

/// Who is last, in pieces of the iteration; neighbours with the same answer are one.
fn stretches(matrix: &Matrix<'_>, kernels: &[u32], ranks: &[u32]) -> Vec<Stretch> {
    let piece = kernels.len().div_ceil(STRETCH).max(1);
    let mut stretches = Vec::<Stretch>::new();
    for (number, part) in kernels.chunks(piece).enumerate() {
        let sum = |gpu| part.iter().map(|&k| matrix.lead(gpu, k as usize)).sum();
        let mut sums = Vec::<(usize, Nanos)>::from_iter(matrix.column(sum).into_iter().enumerate());
        sums.sort_by_key(|&(gpu, sum)| (sum, gpu));
        let Some(&(gpu, least)) = sums.first() else {
            continue;
        };
        let next = sums.get(1).map_or(least, |&(_, sum)| sum);
        let first = number * piece;
        let end = first + part.len();
        let behind = (next - least).0;
        match stretches.last_mut() {
            Some(last) if last.gpu == gpu => {
                last.end = end;
                last.behind_ns += Nanos(behind);
            }
            _ => stretches.push(Stretch {
                gpu,
                rank: ranks.get(gpu).copied().unwrap_or_default(),
                first,
                end,
                from_kernel: matrix.name(part[0] as usize).into(),
                behind_ns: Nanos(behind),
            }),
        }
    }
    for stretch in &mut stretches {
        stretch.behind_ns.0 /= i64::try_from(stretch.end - stretch.first)
            .unwrap_or(1)
            .max(1);
    }
    stretches
}
