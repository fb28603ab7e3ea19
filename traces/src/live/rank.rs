//! What is kept of one rank.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use litd_units::Nanos;

use super::{Live, LiveError, LiveKernel};
use crate::align::{Item, Selection};
use crate::idle::idle;
use crate::limit::Limit;
use crate::skew::{Lists, Sync, ends_together};
use crate::spans::Spans;
use crate::spans::ratio;
use crate::timeline::{KernelClass, NameId, NameTable};

/// So many streams are looked through before a hash is made.
const FEW_STREAMS: usize = 4;

/// Of a stream with fewer kernels nobody can tell whether they are pieces of it.
const FEW_KERNELS: usize = 8;

/// Kernels follow one another so soon only where one mark is the end of one and the start of the next.
const JOINED: Nanos = Nanos(100);

/// What is cut into pieces begins where the last one ended, all but so many of ten.
const TENTHS: usize = 9;

/// So many collectives of a rank are kept.
const MOST_COLLECTIVES: usize = 1 << 12;

/// What ran on one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stream {
    number: u32,
    /// How many selected kernels.
    kernels: u32,
}

/// The selected kernels of a rank without their times: stream by stream, on each in time order.
/// Most ranks of a job have the same and share it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    /// Those with most kernels first, then those with low numbers.
    streams: Vec<Stream>,
    /// Per kernel its name.
    names: Vec<u32>,
    /// Per kernel whether it computes.
    computation: Vec<bool>,
    /// Per kernel what limits it.
    pub(super) limits: Vec<Option<Limit>>,
}

impl Shape {
    /// Where the kernels of each stream are.
    fn parts(&self) -> impl Iterator<Item = Range<usize>> {
        let mut from = 0;
        self.streams.iter().map(move |stream| {
            let part = from..from + stream.kernels as usize;
            from = part.end;
            part
        })
    }

    /// The names of the computation kernels of each stream.
    pub(super) fn computation(&self) -> impl Iterator<Item = impl Iterator<Item = u32>> {
        self.parts().map(|part| {
            let kernels = self.names[part.clone()].iter().zip(&self.computation[part]);
            kernels.filter_map(|(&name, &computes)| computes.then_some(name))
        })
    }

    /// Whether all names are of a table with so many.
    pub(super) fn known(&self, names: usize) -> bool {
        self.names.iter().all(|&name| (name as usize) < names)
    }

    /// The memory it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.streams.capacity() * size_of::<Stream>()
            + self.names.capacity() * size_of::<u32>()
            + self.computation.capacity() * size_of::<bool>()
            + self.limits.capacity() * size_of::<Option<Limit>>()
    }
}

/// One rank.
#[derive(Debug, Default)]
pub(super) struct Rank {
    pub(super) shape: Arc<Shape>,
    /// Per stream of the shape its place in the order in which streams were reported. (Where
    /// streams have the same number of kernels, this order breaks the tie.)
    reported: Vec<u32>,
    /// Per selected kernel when it started ...
    pub(super) starts: Vec<Nanos>,
    /// ... and how long it took.
    pub(super) durations: Vec<Nanos>,
    /// When communication kernels ran.
    communication: Spans,
    /// The collectives: name, start and end, in time order; none where they are too many.
    collectives: Vec<(u32, Sync)>,
    /// How long any kernel ran.
    busy: Nanos,
    /// How long it had nothing to do.
    pub(super) idle: Nanos,
    /// First start and last end of all kernels.
    span: Option<(Nanos, Nanos)>,
}

impl Rank {
    /// Keeps what is needed of the kernels of the rank at this position.
    pub(super) fn read(
        position: usize,
        kernels: impl IntoIterator<Item = LiveKernel>,
        selection: Selection,
    ) -> Result<Self, LiveError> {
        let most = Live::MOST_KERNELS;
        let mut kernels = Vec::from_iter(kernels.into_iter().take(most + 1));
        if kernels.len() > most {
            return Err(LiveError::TooManyKernels {
                rank: position,
                most,
            });
        }
        let most = Live::MOST_STREAMS;
        let streams = number_streams(&mut kernels, selection, most);
        let streams = streams.ok_or(LiveError::TooManyStreams {
            rank: position,
            most,
        })?;
        for kernel in &mut kernels {
            // A sum that saturates makes the kernel shorter.
            kernel.duration = kernel.start + kernel.duration.max(Nanos::ZERO) - kernel.start;
        }
        let key = |kernel: &LiveKernel| (kernel.start, end(kernel));
        if !kernels.is_sorted_by_key(key) {
            kernels.sort_by_key(key);
        }
        let communication = kernels.iter().filter(|kernel| kernel.class.communicates());
        let sync = |kernel: &LiveKernel| {
            let (start, end) = (kernel.start, end(kernel));
            (kernel.name.0, Sync { start, end })
        };
        let mut collectives = Vec::from_iter(communication.clone().map(sync));
        if collectives.len() > MOST_COLLECTIVES {
            collectives = Vec::new();
        }
        collectives.shrink_to_fit();
        let spans = |kernel: &LiveKernel| (kernel.start, end(kernel));
        let first = kernels.first().map(|kernel| kernel.start);
        let mut rank = Self {
            communication: Spans::union(communication.map(spans)).shrink(),
            collectives,
            idle: idle(
                kernels
                    .iter()
                    .map(|kernel| (kernel.class, kernel.start, end(kernel))),
            ),
            busy: Spans::covered(kernels.iter().map(spans)),
            span: first.zip(kernels.iter().map(end).max()),
            ..Self::default()
        };
        rank.group(&kernels, streams, selection);
        Ok(rank)
    }

    /// Sets shape and columns from kernels in time order whose streams are positions in `streams`.
    fn group(&mut self, kernels: &[LiveKernel], streams: Vec<Stream>, selection: Selection) {
        let mut next = vec![0; streams.len()];
        let used = (0..).zip(streams).filter(|(_, stream)| stream.kernels > 0);
        let mut order: Vec<(u32, Stream)> = used.collect();
        order.sort_unstable_by_key(|(_, stream)| (Reverse(stream.kernels), stream.number));
        let mut total = 0;
        for &(reported, stream) in &order {
            next[reported as usize] = total;
            total += stream.kernels as usize;
        }
        let mut shape = Shape {
            streams: order.iter().map(|&(_, stream)| stream).collect(),
            names: vec![0; total],
            computation: vec![false; total],
            limits: vec![None; total],
        };
        self.reported = order.into_iter().map(|(reported, _)| reported).collect();
        self.starts = vec![Nanos::ZERO; total];
        self.durations = vec![Nanos::ZERO; total];
        for kernel in kernels
            .iter()
            .filter(|kernel| selection.takes(kernel.class))
        {
            let next = &mut next[kernel.stream as usize];
            shape.names[*next] = kernel.name.0;
            shape.limits[*next] = kernel.limit;
            shape.computation[*next] = kernel.class == KernelClass::Computation;
            self.starts[*next] = kernel.start;
            self.durations[*next] = kernel.duration;
            *next += 1;
        }
        self.shape = Arc::new(shape);
    }

    /// Whether its kernels are pieces of the time that a stream took, waiting and all, as a hook times them that
    /// marks where modules begin and end; `None`: it has too few kernels to tell.
    pub(super) fn is_cut(&self) -> Option<bool> {
        let (mut joined, mut pairs) = (0, 0);
        for part in self.shape.parts().filter(|part| part.len() >= FEW_KERNELS) {
            let starts = &self.starts[part.clone()];
            let ends = starts.iter().zip(&self.durations[part]);
            let ends = ends.map(|(&start, &duration)| start + duration);
            let gaps = starts
                .iter()
                .skip(1)
                .zip(ends)
                .map(|(&next, end)| next - end);
            pairs += starts.len() - 1;
            joined += gaps
                .filter(|&gap| gap >= Nanos::ZERO && gap <= JOINED)
                .count();
        }
        (pairs > 0).then(|| joined * 10 >= pairs * TENTHS)
    }

    /// Whether anything on it communicated.
    pub(super) fn communicates(&self) -> bool {
        self.communication.iter().next().is_some()
    }

    /// Per selected kernel the part of it that communication on the same GPU covers; `None` for
    /// those that do not compute or take no time.
    pub(super) fn overlaps(&self) -> impl Iterator<Item = Option<f64>> {
        self.shape.parts().flat_map(|part| {
            let mut walk = self.communication.walk();
            let times = self.starts[part.clone()]
                .iter()
                .zip(&self.durations[part.clone()]);
            let kernels = times.zip(&self.shape.computation[part]);
            kernels.map(move |((&start, &duration), &computes)| {
                let covered = computes.then(|| walk.cover(start, start + duration))?;
                ratio(covered, duration)
            })
        })
    }

    /// The positions of all selected kernels, stream by stream as [`align`](crate::align())
    /// takes the streams of its reference.
    pub(super) fn by_work(&self) -> impl Iterator<Item = usize> {
        let streams = self.shape.streams.iter().zip(&self.reported);
        let streams = streams.map(|(stream, &reported)| (Reverse(stream.kernels), reported));
        let mut parts = Vec::from_iter(streams.zip(self.shape.parts()));
        parts.sort_by_key(|(key, _)| *key);
        parts.into_iter().flat_map(|(_, part)| part)
    }

    /// The labels of its streams in the order in which they were reported.
    pub(super) fn labels(&self) -> Vec<Box<str>> {
        let streams = self.reported.iter().max().map_or(0, |&last| last + 1);
        let mut labels = vec![Box::default(); streams as usize];
        for (stream, &reported) in self.shape.streams.iter().zip(&self.reported) {
            labels[reported as usize] = stream.number.to_string().into();
        }
        labels
    }

    /// The kernels to align, without those whose name is none of so many; streams are positions
    /// in [`Self::labels`].
    pub(super) fn items(&self, names: usize) -> Vec<Item> {
        let mut items = Vec::with_capacity(self.starts.len());
        for (part, &stream) in self.shape.parts().zip(&self.reported) {
            let kernels = (part.start as u32..).zip(&self.shape.names[part]);
            let known = kernels.filter(|&(_, &name)| (name as usize) < names);
            items.extend(known.map(|(kernel, &name)| Item {
                name,
                stream: u16::try_from(stream).unwrap_or(u16::MAX),
                kernel,
                iteration: None,
            }));
        }
        items
    }

    /// Leaves the times of the kernels at these positions, in this order.
    pub(super) fn keep(&mut self, positions: &[u32]) {
        for column in [&mut self.starts, &mut self.durations] {
            let kept = positions
                .iter()
                .filter_map(|&position| column.get(position as usize));
            *column = kept.copied().collect();
        }
    }

    /// The collectives that end on all ranks at once.
    pub(super) fn synchronising(&self, names: &NameTable) -> Lists {
        let mut kinds = HashMap::new();
        let mut lists = Lists::new();
        for &(name, sync) in &self.collectives {
            let kind = || ends_together(names.get(NameId(name)));
            if let Some(kind) = *kinds.entry(name).or_insert_with(kind) {
                lists.entry((kind, None)).or_default().push(sync);
            }
        }
        lists
    }

    /// The memory it takes, without the shape.
    pub(super) fn bytes(&self) -> usize {
        let times = self.starts.capacity() + self.durations.capacity();
        times * size_of::<Nanos>()
            + self.reported.capacity() * size_of::<u32>()
            + self.collectives.capacity() * size_of::<(u32, Sync)>()
            + self.communication.bytes()
    }
}

/// Per rank the time in which any of its kernels ran / first start to last end over all ranks.
pub(super) fn busy(ranks: &[Rank]) -> Vec<f64> {
    let wall = wall(ranks);
    let busy = |rank: &Rank| ratio(rank.busy, wall).unwrap_or(0.0);
    ranks.iter().map(busy).collect()
}

/// First start to last end over all ranks.
pub(super) fn wall(ranks: &[Rank]) -> Nanos {
    let spans = || ranks.iter().filter_map(|rank| rank.span);
    let start = spans().map(|span| span.0).min().unwrap_or_default();
    let end = spans().map(|span| span.1).max().unwrap_or_default();
    end - start
}

fn end(kernel: &LiveKernel) -> Nanos {
    kernel.start + kernel.duration
}

/// The streams of all kernels in the order in which they were reported; the kernels' stream numbers
/// become positions in them. `None` for more than `most`.
fn number_streams(
    kernels: &mut [LiveKernel],
    selection: Selection,
    most: usize,
) -> Option<Vec<Stream>> {
    let mut positions = HashMap::new();
    let mut streams: Vec<Stream> = Vec::new();
    for kernel in kernels {
        let number = kernel.stream;
        // Most kernels are on the first few streams, and those are found fast.
        let few = &streams[..streams.len().min(FEW_STREAMS)];
        let near = few.iter().position(|stream| stream.number == number);
        let position = near.unwrap_or_else(|| {
            *positions.entry(number).or_insert_with(|| {
                streams.push(Stream { number, kernels: 0 });
                streams.len() - 1
            })
        });
        let stream = streams.get_mut(position).filter(|_| position < most)?;
        stream.kernels += u32::from(selection.takes(kernel.class));
        kernel.stream = position as u32;
    }
    Some(streams)
}
