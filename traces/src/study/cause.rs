//! Why a GPU is late, from traces alone: a slow clock, a late host, a slow link, or more work. Each
//! leaves its own marks; where none or several are seen, the answer is "unknown".

use serde::Serialize;

use litd_units::Nanos;

use super::matrix::{Matrix, median};
use super::overlap::OverlapKind;
use super::skew::Skew;
use crate::analysis::communication;
use crate::timeline::{KernelClass, Timeline};

/// Kernels that take longer by less than this are not slower.
const SLOWER: f64 = 0.006;
/// Above this share of an iteration an idle GPU waits for its host.
const IDLE: f64 = 0.005;
/// A link slower by less than this is not slow.
const LINK: f64 = 0.03;
/// Leads below this share of an iteration hold nobody back.
const LEVEL: f64 = 0.004;
/// Fewer kernels than this have no pace.
const FEWEST: usize = 8;
/// A pace must differ by so many times its own uncertainty.
const SURE: f64 = 4.0;

/// What holds a node back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Nothing does.
    Healthy,
    /// A GPU's clock is slow. Traces can't tell whether heat makes it so.
    SlowClock,
    /// A GPU is as fast as the others, but its queue runs empty: its host is late.
    HostBound,
    /// A GPU's link is slow.
    Communication,
    /// A GPU has more work than the others.
    DataDependent,
    /// Traces don't tell, or tell several things at once.
    Unknown,
}

/// The diagnosis, with what it rests on.
#[derive(Debug, Clone, Serialize)]
pub struct Diagnosis {
    /// What holds the node back.
    pub cause: Cause,
    /// The rank that the others wait for; null where nobody waits, or for nobody in particular.
    pub rank: Option<u32>,
    /// Whether more power for that rank can help.
    pub power_helps: bool,
    /// The reasons, in words and numbers.
    pub evidence: Vec<String>,
    /// What was measured of each rank.
    pub ranks: Vec<Marks>,
}

/// What a rank's kernels show.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Marks {
    /// The rank.
    pub rank: u32,
    /// How much longer than the median rank's its kernels that follow the clock take.
    pub slower_compute: Option<f64>,
    /// The same of kernels that memory limits, which follow the clock little.
    pub slower_memory: Option<f64>,
    /// The uncertainty of these.
    pub uncertainty: Option<f64>,
    /// The share of the iteration in which its queue was empty, beyond the median rank's.
    pub idle: f64,
    /// How much longer its transfers take than the median rank's.
    pub slower_link: f64,
    /// By how much it leads the rank that is last, as a share of an iteration, on average.
    pub lead: f64,
}

/// What limits a kernel, as far as its name tells.
#[derive(Clone, Copy, PartialEq)]
enum Limit {
    Compute,
    Memory,
}

const MEMORY: [&str; 22] = [
    "norm",
    "rope",
    "rotary",
    "silu",
    "swiglu",
    "gelu",
    "relu",
    "elementwise",
    "softmax",
    "dropout",
    "embedding",
    "copy",
    "cat",
    "reduce",
    "foreach",
    "multi_tensor",
    "adam",
    "add",
    "cast",
    "transpose",
    "fill",
    "mul_",
];
const COMPUTE: [&str; 16] = [
    "gemm",
    "cijk_",
    "proj",
    "attention",
    "attn_fa",
    "flash",
    "fmha",
    "conv",
    "cutlass",
    "matmul",
    "xmma",
    "nvjet",
    "mfma",
    "wgrad",
    "dgrad",
    "_mm",
];

fn limit_of(name: &str) -> Option<Limit> {
    let name = name.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    // A norm within attention is a norm.
    match () {
        () if has(&["norm", "silu_mul", "rope"]) => Some(Limit::Memory),
        () if has(&COMPUTE) => Some(Limit::Compute),
        () if has(&MEMORY) => Some(Limit::Memory),
        () => None,
    }
}

pub(super) fn diagnose(
    timelines: &[Timeline],
    matrix: &Matrix,
    kinds: &[OverlapKind],
    skew: &Skew,
) -> Diagnosis {
    let marks = marks(timelines, matrix, kinds, skew);
    let last = marks.iter().min_by(|a, b| a.lead.total_cmp(&b.lead));
    let Some(last) = last.cloned() else {
        return verdict(Cause::Unknown, None, Vec::new(), marks);
    };
    let (evidence, causes) = weigh(&last);
    let spread = marks.iter().map(|mark| mark.lead).fold(0.0, f64::max);
    let rank = Some(last.rank);
    match causes[..] {
        [] if spread < LEVEL.max(expected_spread(matrix)) => {
            let level = format!(
                "the ranks are {:.2} % of an iteration apart on average, no more than noise makes them",
                spread * 100.0
            );
            verdict(Cause::Healthy, None, vec![level], marks)
        }
        [] => {
            let mut evidence = evidence;
            evidence.insert(
                0,
                format!(
                    "the others wait for rank {} by up to {:.2} % of an iteration, and nothing in its kernels, its queue or its transfers explains that",
                    last.rank,
                    spread * 100.0
                ),
            );
            verdict(Cause::Unknown, rank, evidence, marks)
        }
        [cause] => verdict(cause, rank, evidence, marks),
        _ => {
            let mut evidence = evidence;
            evidence.insert(0, "several causes at once: none is named".into());
            verdict(Cause::Unknown, rank, evidence, marks)
        }
    }
}

fn verdict(cause: Cause, rank: Option<u32>, evidence: Vec<String>, ranks: Vec<Marks>) -> Diagnosis {
    Diagnosis {
        cause,
        rank,
        power_helps: cause == Cause::SlowClock,
        evidence,
        ranks,
    }
}

/// What the marks of the last rank say, in words, and the causes that they speak for.
fn weigh(last: &Marks) -> (Vec<String>, Vec<Cause>) {
    let rank = last.rank;
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let (mut evidence, mut causes) = (Vec::new(), Vec::new());
    let least = SLOWER.max(SURE * last.uncertainty.unwrap_or(0.0));
    match (last.slower_compute, last.slower_memory) {
        (Some(compute), Some(memory)) if compute.max(memory) > least => {
            let follows = memory < 0.55 * compute;
            evidence.push(format!(
                "rank {rank}'s computation of constant overlap takes {} longer than the median rank's where the clock limits it and {} where memory does: {}",
                percent(compute),
                percent(memory),
                match follows {
                    true => "its clock is slow (these traces hold no temperature that would say why)",
                    false => "a slow clock would spare the latter, so it has more work",
                }
            ));
            causes.push(match follows {
                true => Cause::SlowClock,
                false => Cause::DataDependent,
            });
        }
        (Some(compute), None) if compute > least => {
            evidence.push(format!(
                "rank {rank}'s computation of constant overlap takes {} longer than the median rank's: its clock is slow, or it has more work; too few kernels are limited by memory to tell which",
                percent(compute),
            ));
            // The daemon would try power, which helps in both cases.
            causes.push(Cause::SlowClock);
        }
        (Some(compute), _) => evidence.push(format!(
            "rank {rank}'s computation of constant overlap takes {} longer than the median rank's: no slower than can be told",
            percent(compute)
        )),
        (None, _) => evidence.push(format!(
            "too few kernels of rank {rank} have the same overlap on all ranks to tell its pace"
        )),
    }
    if last.idle > IDLE {
        evidence.push(format!(
            "rank {rank}'s queue is empty for {} of the time beyond the median rank's: its host is late",
            percent(last.idle)
        ));
        causes.push(Cause::HostBound);
    }
    if last.slower_link > LINK {
        evidence.push(format!(
            "rank {rank}'s transfers end {} of their length later than the median rank's: its link is slow",
            percent(last.slower_link)
        ));
        causes.push(Cause::Communication);
    }
    (evidence, causes)
}

fn marks(
    timelines: &[Timeline],
    matrix: &Matrix,
    kinds: &[OverlapKind],
    skew: &Skew,
) -> Vec<Marks> {
    let length = length(matrix);
    let limits = matrix.columns.iter().map(|column| limit_of(&column.name));
    let limits = Vec::from_iter(limits);
    let known = limits.iter().any(Option::is_some);
    let idles = idles(timelines, matrix);
    let share = |part: f64| if length > 0.0 { part / length } else { 0.0 };
    let kernels = matrix.columns.len().max(1) as f64;
    let mark = |(gpu, timeline): (usize, &Timeline)| {
        let of = |limit: Option<Limit>| {
            let chosen = (0..matrix.columns.len())
                .filter(|&k| kinds[k] != OverlapKind::Varying && limits[k] == limit);
            relative(matrix, gpu, chosen)
        };
        let compute = of(known.then_some(Limit::Compute));
        let memory = of(Some(Limit::Memory));
        let leads: f64 = matrix.lead[gpu].iter().map(|lead| lead.0 as f64).sum();
        Marks {
            rank: timeline.rank,
            slower_compute: compute.map(|(slower, _)| slower),
            slower_memory: memory.map(|(slower, _)| slower),
            uncertainty: compute.map(|(_, uncertainty)| uncertainty),
            idle: share(idles[gpu]),
            slower_link: skew.link_slowness.get(gpu).copied().unwrap_or(0.0),
            lead: share(leads / kernels) * matrix.iterations().len() as f64,
        }
    };
    let mut marks = Vec::from_iter(timelines.iter().enumerate().map(mark));
    let middle = median(marks.iter().map(|mark| mark.slower_link).collect()).unwrap_or(0.0);
    for mark in &mut marks {
        mark.slower_link -= middle;
    }
    marks
}

/// Computation and communication of all iterations, in nanoseconds.
fn length(matrix: &Matrix) -> f64 {
    let iterations = matrix.iterations();
    let of = |kernels: &Vec<usize>| {
        let rows = || matrix.start.iter().zip(&matrix.duration);
        let starts = rows().flat_map(|(start, _)| kernels.iter().map(|&k| start[k].0));
        let ends = rows().flat_map(|(start, time)| kernels.iter().map(|&k| (start[k] + time[k]).0));
        (ends.max().unwrap_or(0) - starts.min().unwrap_or(0)) as f64
    };
    iterations.values().map(of).sum()
}

/// How much longer than the median GPU's some kernels of a GPU take: the median, and how far it
/// may be off.
fn relative(
    matrix: &Matrix,
    gpu: usize,
    kernels: impl Iterator<Item = usize>,
) -> Option<(f64, f64)> {
    let one = |k: usize| {
        let column = matrix.duration.iter().map(|row| row[k].0 as f64);
        let middle = median(column.collect()).filter(|&middle| middle > 0.0)?;
        Some(matrix.duration[gpu][k].0 as f64 / middle - 1.0)
    };
    let all = Vec::from_iter(kernels.filter_map(one));
    if all.len() < FEWEST {
        return None;
    }
    let count = all.len() as f64;
    let middle = median(all.clone())?;
    let off = median(all.iter().map(|one| (one - middle).abs()).collect())?;
    // 1.4826 makes a standard deviation of it, 1.2533 that of a median of so many.
    Some((middle, 1.4826 * 1.2533 * off / count.sqrt()))
}

/// How far kernel noise alone drives ranks apart, as a share of an iteration.
fn expected_spread(matrix: &Matrix) -> f64 {
    let length = length(matrix);
    let noise = (0..matrix.gpus()).filter_map(|gpu| {
        let (_, uncertainty) = relative(matrix, gpu, 0..matrix.columns.len())?;
        Some(uncertainty * (matrix.columns.len() as f64).sqrt())
    });
    let noise = median(noise.collect()).unwrap_or(0.0);
    let squares: f64 = matrix
        .duration
        .first()
        .into_iter()
        .flatten()
        .map(|time| (time.0 as f64).powi(2))
        .sum();
    match length > 0.0 {
        true => 2.5 * noise * squares.sqrt() / length,
        false => 0.0,
    }
}

/// For how long the queue of each GPU was empty beyond the median GPU's, in nanoseconds: by many
/// short gaps between kernels, or by a few long ones in which it does not communicate either.
fn idles(timelines: &[Timeline], matrix: &Matrix) -> Vec<f64> {
    let gaps = Vec::from_iter(timelines.iter().map(gaps));
    let alone = Vec::from_iter(gaps.iter().map(|(_, alone)| alone.0 as f64));
    let middle = median(alone.clone()).unwrap_or(0.0);
    let before = |gpu: usize, k: usize| {
        let start = matrix.start[gpu].get(k)?;
        let of = &gaps[gpu].0;
        let at = of.binary_search_by_key(start, |(start, _)| *start).ok()?;
        Some(of[at].1.0 as f64)
    };
    let excess = |gpu: usize| {
        let one = |k: usize| {
            let all = (0..timelines.len()).filter_map(|gpu| before(gpu, k));
            Some(before(gpu, k)? - median(all.collect())?)
        };
        let kernels = matrix.columns.len();
        median((0..kernels).filter_map(one).collect()).unwrap_or(0.0) * kernels as f64
    };
    (0..timelines.len())
        .map(|gpu| excess(gpu).max(alone[gpu] - middle))
        .collect()
}

/// The gap before each computation kernel (by its start), and the time of all gaps in which the
/// GPU did not communicate.
fn gaps(timeline: &Timeline) -> (Vec<(Nanos, Nanos)>, Nanos) {
    let communication = communication(timeline);
    let mut gaps = Vec::new();
    let mut alone = Nanos::ZERO;
    let mut end = None::<Nanos>;
    for kernel in &timeline.kernels {
        if kernel.class == KernelClass::Communication {
            continue;
        }
        let since = end.unwrap_or(kernel.start);
        let gap = (kernel.start - since).max(Nanos::ZERO);
        gaps.push((kernel.start, gap));
        if gap > Nanos::ZERO {
            alone += gap - communication.cover(since, kernel.start);
        }
        end = Some(since.max(kernel.end));
    }
    (gaps, alone)
}
