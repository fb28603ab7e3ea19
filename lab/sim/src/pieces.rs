//! What a hook would have timed of an iteration that a profiler would have recorded: pieces of streams instead of
//! kernels, with all that they waited for inside.

use std::collections::HashMap;

use litd_traces::{Kernel, KernelClass, StreamId, Timeline};
use litd_units::Nanos;

/// What pieces are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pieces {
    /// Modules of one kernel each: a mark on the stream after each kernel.
    Leaf,
    /// Modules of several kernels, such as an attention: a mark where the next module begins.
    Block,
    /// A mark where a collective begins on this rank, and none elsewhere.
    Arrivals,
}

/// A piece: from one mark of a stream to the next.
struct Piece {
    name: String,
    first: Kernel,
    start: Nanos,
    end: Nanos,
}

/// The pieces that this rank's hook would tell. They are computation, each from the end of the one before it on its
/// stream.
#[must_use]
pub fn of(timeline: &Timeline, how: Pieces) -> Timeline {
    let mut told = timeline.clone();
    told.kernels.clear();
    told.collectives.clear();
    told.launches.clear();
    let mut streams: HashMap<StreamId, Vec<Piece>> = HashMap::new();
    for kernel in &timeline.kernels {
        let wanted = match how {
            Pieces::Leaf | Pieces::Block => KernelClass::Computation,
            Pieces::Arrivals => KernelClass::Communication,
        };
        if kernel.class == wanted {
            let name = timeline.names.get(kernel.name);
            add(streams.entry(kernel.stream).or_default(), kernel, name, how);
        }
    }
    for piece in streams.into_values().flatten() {
        let name = told.names.intern(&piece.name);
        told.kernels.push(Kernel {
            name,
            class: KernelClass::Computation,
            start: piece.start,
            end: piece.end.max(piece.start),
            collective: None,
            ..piece.first
        });
    }
    told.sort();
    told
}

fn add(pieces: &mut Vec<Piece>, kernel: &Kernel, name: &str, how: Pieces) {
    let module = match how {
        Pieces::Leaf => name.to_owned(),
        Pieces::Block => name
            .rsplit_once('.')
            .map_or(name, |(module, _)| module)
            .to_owned(),
        Pieces::Arrivals => arrival(name),
    };
    let last = pieces.last_mut();
    match (how, last) {
        (Pieces::Block, Some(last)) if last.name == module => last.end = kernel.end,
        (Pieces::Arrivals, last) => {
            // What is between two arrivals is one piece, whoever was waited for in it.
            if let Some(last) = last {
                last.end = kernel.start;
            }
            pieces.push(Piece {
                name: module,
                first: *kernel,
                start: kernel.start,
                end: kernel.end,
            });
        }
        (Pieces::Leaf | Pieces::Block, last) => {
            let start = last.map_or(kernel.start, |last| last.end.min(kernel.end));
            pieces.push(Piece {
                name: module,
                first: *kernel,
                start,
                end: kernel.end,
            });
        }
    }
}

/// A name for what begins at a collective, which readers don't take for the collective itself.
fn arrival(collective: &str) -> String {
    let (kernel, inside) = collective.split_once('(').unwrap_or((collective, ""));
    let kernel = kernel.strip_prefix("ncclDevKernel_").unwrap_or(kernel);
    match inside.trim_end_matches(')') {
        inside if inside.is_empty() || inside.starts_with("nccl") => format!("from {kernel}"),
        inside => format!("from {inside}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Conditions, IterationModel, Workload, record};
    use std::path::Path;

    fn ranks() -> Vec<Timeline> {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/oracle/tiny-fsdp.json");
        let workload = Workload::load(&file).unwrap();
        let mut model = IterationModel::new(&workload).unwrap();
        let conditions = Conditions::new(&[0.9, 1.05, 1.2, 1.1], 1.15);
        let result = model.run(&conditions).unwrap();
        record::timelines(&workload, result, record::EPOCH, 0)
    }

    fn count(timeline: &Timeline, class: KernelClass) -> usize {
        timeline
            .kernels
            .iter()
            .filter(|it| it.class == class)
            .count()
    }

    #[test]
    fn pieces_tile_their_stream_and_show_no_collective() {
        for timeline in ranks() {
            for how in [Pieces::Leaf, Pieces::Block, Pieces::Arrivals] {
                let told = of(&timeline, how);
                assert!(told.kernels.len() > 1, "{how:?}");
                assert_eq!(count(&told, KernelClass::Communication), 0, "{how:?}");
                assert!(told.collectives.is_empty());
                for pair in told.kernels.windows(2) {
                    assert_eq!(pair[0].end, pair[1].start, "{how:?}");
                }
            }
        }
    }

    #[test]
    fn waits_are_inside_and_what_begins_a_piece_is_when_it_was() {
        let timeline = ranks().remove(2);
        let computes = count(&timeline, KernelClass::Computation);
        let leaves = of(&timeline, Pieces::Leaf);
        assert_eq!(leaves.kernels.len(), computes);
        // A piece ends with its kernel, and begins with the end of the one before.
        let kernels = timeline.kernels.iter();
        let ends = kernels
            .filter(|it| it.class == KernelClass::Computation)
            .map(|it| it.end);
        assert!(leaves.kernels.iter().map(|it| it.end).eq(ends));
        assert!(of(&timeline, Pieces::Block).kernels.len() <= computes);
        let arrivals = of(&timeline, Pieces::Arrivals);
        let kernels = timeline.kernels.iter();
        let starts = kernels
            .filter(|it| it.class == KernelClass::Communication)
            .map(|it| it.start);
        assert!(arrivals.kernels.iter().map(|it| it.start).eq(starts));
    }

    #[test]
    fn arrivals_are_not_called_as_collectives_are() {
        assert_eq!(
            arrival("ncclDevKernel_AllGather(all_gather.3)"),
            "from all_gather.3"
        );
        assert_eq!(
            arrival("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
            "from SendRecv"
        );
    }
}
