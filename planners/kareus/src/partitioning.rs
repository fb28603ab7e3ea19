//! From a block's operations to its partitions (sections 4.2 and 4.5).

use std::collections::BTreeMap;

use thiserror::Error;

use crate::partition::{Collective, CollectiveKind, Communication, Computation, Partition, Work};

/// An operation of a block, as it would be executed without overlap.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// A computation.
    Computation {
        /// The computation: norm, linear, rope, attn, activation, ...
        name: String,
        /// To which part of a block it belongs; names of partitions are made of that.
        part: Part,
        /// The work on a GPU. Without products of matrices it is memory-bound.
        work: Work,
    },
    /// A collective.
    Collective(Collective),
}

/// The parts of a block that partitions are named after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The part of norms and additions, which belong to their neighbours.
    None,
    /// Queries, keys and values.
    Qkv,
    /// Attention itself.
    Attention,
    /// The projection of what attention gives.
    Output,
    /// The MLP.
    Mlp,
}

/// A partition and how often a microbatch executes it in each block, both nanobatches together.
#[derive(Debug, Clone, PartialEq)]
pub struct Repeated {
    /// The partition that is repeated.
    pub partition: Partition,
    /// How often, in each block.
    pub count: u32,
}

/// Why operations have no partitions.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum PartitioningError {
    #[error("{0}: there is no communication among the operations, so nothing can overlap")]
    NoCommunication(String),
    #[error("{0}: there is no computation among the operations, so nothing can overlap")]
    NoComputation(String),
}

/// Computations up to the next communication, and that one.
struct Segment {
    label: String,
    computations: Vec<Computation>,
    communication: Communication,
}

/// The partitions of a block that is repeated: its operations in order, the first after the last.
///
/// Consecutive collectives become one communication, and memory-bound computations in a row become one. The
/// nanobatches take turns: while one computes a segment, the communication before it is the other's; and then
/// its own communication runs beside the other's computation of that same segment. So each segment forms a
/// partition with the communication before and with the one after it, and where these are the same, one
/// partition twice.
///
/// # Errors
/// If there is no communication or no computation.
pub fn partitions(pass: &str, block: &[Operation]) -> Result<Vec<Repeated>, PartitioningError> {
    let segments = segments(pass, block)?;
    let mut all: Vec<Repeated> = Vec::new();
    for (place, segment) in segments.iter().enumerate() {
        let before = (place + segments.len() - 1) % segments.len();
        let before = &segments[before].communication;
        let twice = *before == segment.communication;
        for communication in [before, &segment.communication] {
            let name = match twice {
                true => format!("{pass}/{}", segment.label),
                false => format!("{pass}/{}_{}", segment.label, abbreviation(communication)),
            };
            let partition = Partition {
                name,
                computations: segment.computations.clone(),
                communication: communication.clone(),
            };
            match all.iter_mut().find(|it| it.partition == partition) {
                Some(same) => same.count += 1,
                None => all.push(Repeated {
                    partition,
                    count: 1,
                }),
            }
        }
    }
    Ok(all)
}

fn segments(pass: &str, block: &[Operation]) -> Result<Vec<Segment>, PartitioningError> {
    let is_collective = |it: &Operation| matches!(it, Operation::Collective(_));
    if block.iter().all(is_collective) {
        return Err(PartitioningError::NoComputation(pass.to_owned()));
    }
    // A segment begins where a computation follows upon a collective.
    let before = |at: usize| &block[(at + block.len() - 1) % block.len()];
    let begins = |at: &usize| !is_collective(&block[*at]) && is_collective(before(*at));
    let Some(first) = (0..block.len()).find(begins) else {
        return Err(PartitioningError::NoCommunication(pass.to_owned()));
    };
    let (mut all, mut parts) = (Vec::new(), Vec::new());
    let (mut computations, mut collectives) = (Vec::new(), Vec::new());
    for step in 0..block.len() {
        let at = (first + step) % block.len();
        if step > 0 && begins(&at) {
            all.push((
                std::mem::take(&mut computations),
                std::mem::take(&mut collectives),
            ));
        }
        match &block[at] {
            Operation::Computation { name, part, work } => {
                computations.push((name.as_str(), *part, *work));
            }
            Operation::Collective(one) => collectives.push(*one),
        }
    }
    all.push((computations, collectives));
    let mut segments = Vec::with_capacity(all.len());
    for (number, (computations, collectives)) in all.into_iter().enumerate() {
        parts.clear();
        parts.extend(computations.iter().map(|(_, part, _)| *part));
        segments.push(Segment {
            label: label(&mut parts, number),
            computations: group(&computations),
            communication: Communication { collectives },
        });
    }
    Ok(segments)
}

/// Memory-bound computations in a row as one, which is called as the one of them that computes most; and the
/// second linear of a segment is linear_1.
fn group(computations: &[(&str, Part, Work)]) -> Vec<Computation> {
    let memory_bound = |it: &(&str, Part, Work)| it.2.matrix == 0.0;
    let runs = computations.chunk_by(|a, b| memory_bound(a) && memory_bound(b));
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    let one = |run: &[(&'_ str, Part, Work)]| {
        let most = run
            .iter()
            .reduce(|a, b| if b.2.vector > a.2.vector { b } else { a });
        let name = most.map_or("", |it| it.0).to_owned();
        let work = run.iter().fold(Work::default(), |sum, it| sum + it.2);
        (name, work)
    };
    let grouped: Vec<(String, Work)> = runs.map(one).collect();
    grouped
        .iter()
        .map(|(name, work)| {
            let count = counts.entry(name).or_default();
            let number = *count;
            *count += 1;
            Computation {
                name: format!("{name}_{number}"),
                work: *work,
            }
        })
        .collect()
}

/// The name of a segment: after its parts, or by its number if it has none.
fn label(parts: &mut Vec<Part>, number: usize) -> String {
    parts.sort_unstable();
    parts.dedup();
    parts.retain(|part| *part != Part::None);
    match parts.as_slice() {
        [] => number.to_string(),
        [Part::Qkv, Part::Attention, Part::Output] => "attention".to_owned(),
        [Part::Qkv, Part::Attention, Part::Output, Part::Mlp] => "block".to_owned(),
        parts => parts.iter().map(|part| part.letters()).collect(),
    }
}

impl Part {
    fn letters(self) -> &'static str {
        match self {
            Part::None => "",
            Part::Qkv => "qkv",
            Part::Attention => "a",
            Part::Output => "o",
            Part::Mlp => "mlp",
        }
    }
}

/// The first collective's two letters: fused ones are of the same kind in every job that we know.
fn abbreviation(communication: &Communication) -> &'static str {
    match communication.collectives.first().map(|it| it.kind) {
        Some(CollectiveKind::AllReduce) => "ar",
        Some(CollectiveKind::AllGather) => "ag",
        Some(CollectiveKind::ReduceScatter) => "rs",
        None => "none",
    }
}
