//! The events that a job's hooks time: all kernels, the modules that run them, or arrivals at collectives.

use std::collections::HashMap;

use litd_proto::{Class, Kernels};
use litd_units::Nanos;

use crate::job::number;

/// The events that ranks time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Timing {
    /// All kernels, by a profiler.
    #[default]
    Kernels,
    /// Modules of a kernel each, by marks on the stream.
    Leaves,
    /// Modules of several kernels, such as an attention.
    Blocks,
    /// When the rank comes to each collective, as a plugin of NCCL's or marks around collectives would tell.
    Arrivals,
}

/// Work between two marks on a stream.
struct Piece {
    start: Nanos,
    end: Nanos,
    stream: u32,
    module: String,
}

impl Timing {
    /// Makes of all kernels of an iteration what is told of it.
    pub(crate) fn of(self, kernels: Kernels, names: &mut HashMap<String, u32>) -> Kernels {
        match self {
            Self::Kernels => kernels,
            Self::Leaves | Self::Blocks => told(self.pieces(&kernels, names), kernels, names),
            Self::Arrivals => told(arrivals(&kernels, names), kernels, names),
        }
    }

    /// A piece lasts from the end of what ran before it on the stream to its own end, whatever it waited for in
    /// between.
    fn pieces(self, kernels: &Kernels, names: &HashMap<String, u32>) -> Vec<Piece> {
        let texts: HashMap<u32, &str> = names.iter().map(|(name, &id)| (id, &**name)).collect();
        let computes = |&at: &usize| kernels.class[at] == Class::Computation;
        let mut order: Vec<usize> = (0..kernels.name.len()).filter(computes).collect();
        order.sort_by_key(|&at| kernels.start[at]);
        let mut pieces: Vec<Piece> = Vec::new();
        for at in order {
            let start = kernels.start[at];
            let end = start + kernels.duration_of[at];
            let name = texts.get(&kernels.name[at]).copied().unwrap_or_default();
            let module = match (self, name.rsplit_once('.')) {
                (Self::Blocks, Some((module, _))) => module,
                _ => name,
            };
            match pieces.last_mut() {
                Some(last) if self == Self::Blocks && last.module == module => last.end = end,
                last => {
                    let start = last.map_or(start, |last| last.end);
                    pieces.push(Piece {
                        start,
                        end,
                        stream: kernels.stream[at],
                        module: module.to_owned(),
                    });
                }
            }
        }
        pieces
    }
}

/// A piece lasts from one arrival at a collective to the next.
fn arrivals(kernels: &Kernels, names: &HashMap<String, u32>) -> Vec<Piece> {
    let texts: HashMap<u32, &str> = names.iter().map(|(name, &id)| (id, &**name)).collect();
    let is_collective = |&at: &usize| kernels.class[at] == Class::Communication;
    let mut order: Vec<usize> = (0..kernels.name.len()).filter(is_collective).collect();
    order.sort_by_key(|&at| kernels.start[at]);
    let begins = |at: usize| kernels.start[at];
    let pieces = order.iter().enumerate().map(|(place, &at)| Piece {
        start: begins(at),
        end: match order.get(place + 1) {
            Some(&next) => begins(next),
            None => begins(at) + kernels.duration_of[at],
        },
        stream: kernels.stream[at],
        module: format!(
            "from {}",
            texts.get(&kernels.name[at]).copied().unwrap_or_default()
        ),
    });
    pieces.collect()
}

fn told(pieces: Vec<Piece>, kernels: Kernels, names: &mut HashMap<String, u32>) -> Kernels {
    let mut told = Kernels {
        iteration: kernels.iteration,
        duration: kernels.duration,
        new_names: kernels.new_names,
        shows_collectives: false,
        ..Kernels::default()
    };
    for piece in pieces {
        let next = number(names.len());
        let id = *names.entry(piece.module).or_insert_with_key(|module| {
            told.new_names.push(module.clone());
            next
        });
        told.name.push(id);
        told.stream.push(piece.stream);
        told.class.push(Class::Computation);
        told.start.push(piece.start);
        told.duration_of.push(piece.end - piece.start);
    }
    told
}
