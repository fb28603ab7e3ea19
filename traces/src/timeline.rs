//! What one GPU did: its kernels in time order, whatever profiler recorded them.

use std::collections::HashMap;
use std::num::{NonZeroI64, NonZeroU32};
use std::sync::Arc;

use litd_units::Nanos;
use serde::Deserialize;

/// What a kernel does to the node: the Lit Silicon effect is the interplay of the first two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelClass {
    /// Work whose speed follows the clock of its GPU.
    Computation,
    /// A collective (or point-to-point) kernel: it waits for other GPUs.
    Communication,
    /// A collective and a computation in one kernel: it waits for other GPUs, and its length says
    /// nothing of its GPU's clock.
    Fused,
    /// A copy or a fill, whether a DMA engine or a kernel did it.
    Copy,
}

impl KernelClass {
    /// Whether such a kernel waits for other GPUs.
    #[must_use]
    pub fn communicates(self) -> bool {
        matches!(self, Self::Communication | Self::Fused)
    }
}

/// A kernel's name in its [`Timeline`]'s [`NameTable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

/// A stream (queue) in its [`Timeline::streams`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u16);

/// A number below the greatest of its type. It is kept plus one, so that the lack of one takes no
/// room: there are millions of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NonMax(NonZeroU32);

impl NonMax {
    /// The number, unless it is the greatest.
    #[must_use]
    pub fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number.wrapping_add(1)).map(Self)
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0.get() - 1
    }
}

/// A moment of which a list may have none. Its bits are kept inverted, so that the lack of one takes
/// no room: only the nanosecond before 1970 can't be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(NonZeroI64);

impl Moment {
    /// The moment, unless it is the one that can't be kept.
    #[must_use]
    pub fn new(at: Nanos) -> Option<Self> {
        NonZeroI64::new(!at.0).map(Self)
    }

    /// When it is.
    #[must_use]
    pub fn get(self) -> Nanos {
        Nanos(!self.0.get())
    }
}

/// A collective's metadata in its [`Timeline::collectives`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CollectiveId(pub NonMax);

/// One execution of one kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// Its name, in [`Timeline::names`].
    pub name: NameId,
    /// Where it ran, in [`Timeline::streams`].
    pub stream: StreamId,
    /// What kind of work it is.
    pub class: KernelClass,
    /// When it started.
    pub start: Nanos,
    /// When it ended; never before `start`.
    pub end: Nanos,
    /// What the profiler told of the collective, if it is one and the profiler told anything.
    pub collective: Option<CollectiveId>,
    /// The training iteration it belongs to, where the trace marks iterations.
    pub iteration: Option<NonMax>,
}

// A large trace has millions of these.
const _: () = assert!(size_of::<Kernel>() <= 32);

impl Kernel {
    /// End minus start.
    #[must_use]
    pub fn duration(&self) -> Nanos {
        self.end - self.start
    }
}

/// What the profiler told of one collective. Every part may be missing. Texts and ranks are
/// shared with other collectives that have the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Collective {
    /// Its kind as the framework names it, such as `allreduce` or `_allgather_base`.
    pub name: Option<Arc<str>>,
    /// Elements sent.
    pub in_elements: Option<u64>,
    /// Elements received.
    pub out_elements: Option<u64>,
    /// How many ranks take part.
    pub group_size: Option<u32>,
    /// Element type.
    pub dtype: Option<Arc<str>>,
    /// Name of the process group.
    pub process_group: Option<Arc<str>>,
    /// What the process group is for, in the framework's words, such as `mesh_tp`.
    pub description: Option<Arc<str>>,
    /// The ranks of the process group.
    pub ranks: Arc<[u32]>,
    /// The rank at the other end of a send or a receive.
    pub peer: Option<u32>,
    /// Sequence number within the process group.
    pub sequence: Option<u64>,
}

/// Kernel names, each kept once.
#[derive(Debug, Clone, Default)]
pub struct NameTable {
    names: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, NameId>,
}

impl NameTable {
    /// The id of `name`, which is added if it is new.
    pub fn intern(&mut self, name: &str) -> NameId {
        if let Some(id) = self.find(name) {
            return id;
        }
        let id = NameId(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        let name = Arc::<str>::from(name);
        self.names.push(name.clone());
        self.ids.insert(name, id);
        id
    }

    /// The id of `name`, if it is here.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<NameId> {
        self.ids.get(name).copied()
    }

    /// The id that this table gives to a name of another one, whose text is shared.
    pub(crate) fn adopt(&mut self, other: &Self, id: NameId) -> NameId {
        let Some(name) = other.names.get(id.0 as usize) else {
            return self.intern("");
        };
        let next = NameId(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        let known = *self.ids.entry(name.clone()).or_insert(next);
        if known == next {
            self.names.push(name.clone());
        }
        known
    }

    /// The name behind an id of this table, or the empty string for an id of another.
    #[must_use]
    pub fn get(&self, id: NameId) -> &str {
        self.names.get(id.0 as usize).map_or("", |name| name)
    }

    /// How many distinct names there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// All names, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(AsRef::as_ref)
    }
}

/// One training iteration as the trace marks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iteration {
    /// Its number, such as the 12 of `ProfilerStep#12`.
    pub number: u32,
    /// When the mark starts, on the clock that kernel times use.
    pub start: Nanos,
    /// When the mark ends.
    pub end: Nanos,
}

/// The kernels of one rank's GPU, sorted by start (then end).
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// Rank in its job.
    pub rank: u32,
    /// Where it was read from, for messages.
    pub source: String,
    /// Whether a simulator made it up.
    pub simulated: bool,
    /// Whether its times are of one clock with those of the other timelines of its source.
    pub shares_clock: bool,
    /// How many ranks the job has, where the trace tells.
    pub world_size: Option<u32>,
    /// Kernel names.
    pub names: NameTable,
    /// Stream labels, as the trace has them.
    pub streams: Vec<Box<str>>,
    /// Metadata of collectives.
    pub collectives: Vec<Collective>,
    /// The kernels, sorted by start.
    pub kernels: Vec<Kernel>,
    /// When the host began to launch each of them, where the trace tells; empty where it tells
    /// of none.
    pub launches: Vec<Option<Moment>>,
    /// The framework's operator that launched most kernels of a name, where the trace tells.
    pub operators: HashMap<NameId, Arc<str>>,
    /// Of each name, in the order of their ids, how many blocks of threads its launches have together in all that was
    /// recorded, and how many launches tell; names that are missing tell nothing.
    pub blocks: Vec<(u64, u64)>,
    /// The iterations marked in the trace, sorted by start.
    pub iterations: Vec<Iteration>,
}

impl Timeline {
    /// Makes all of its times later by so much, or earlier where that is negative.
    pub fn shift(&mut self, by: Nanos) {
        for kernel in &mut self.kernels {
            kernel.start += by;
            kernel.end += by;
        }
        for launch in self.launches.iter_mut().flatten() {
            *launch = Moment::new(launch.get() + by).unwrap_or(*launch);
        }
        for iteration in &mut self.iterations {
            iteration.start += by;
            iteration.end += by;
        }
    }

    /// An empty timeline.
    #[must_use]
    pub fn new(rank: u32, source: impl Into<String>) -> Self {
        Self {
            rank,
            source: source.into(),
            ..Self::default()
        }
    }

    /// The id of the stream with this label, which is added if it is new. A GPU has few
    /// streams, so a linear search is the fast one.
    pub fn stream(&mut self, label: &str) -> StreamId {
        let position = self.streams.iter().position(|known| **known == *label);
        let position = position.unwrap_or_else(|| {
            self.streams.push(label.into());
            self.streams.len() - 1
        });
        StreamId(u16::try_from(position).unwrap_or(u16::MAX))
    }

    /// Puts the kernels and iterations in time order, as every reader must before it hands the
    /// timeline out: trace files are not in time order.
    pub fn sort(&mut self) {
        let key = |kernel: &Kernel| (kernel.start, kernel.end);
        if self.kernels.is_sorted_by_key(key) {
            if !self.launches.is_empty() {
                self.launches.resize(self.kernels.len(), None);
            }
        } else if self.launches.is_empty() {
            self.kernels.sort_by_key(key);
        } else {
            self.launches.resize(self.kernels.len(), None);
            let launches = self.launches.drain(..);
            let mut both = Vec::from_iter(self.kernels.drain(..).zip(launches));
            both.sort_by_key(|(kernel, _)| key(kernel));
            (self.kernels, self.launches) = both.into_iter().unzip();
        }
        self.iterations.sort_by_key(|iteration| iteration.start);
    }

    /// When the host began to launch the kernel at this place, where the trace tells.
    #[must_use]
    pub fn launch(&self, at: usize) -> Option<Nanos> {
        Some(self.launches.get(at).copied()??.get())
    }

    /// What the profiler told of a kernel's collective.
    #[must_use]
    pub fn collective_of(&self, kernel: &Kernel) -> Option<&Collective> {
        self.collectives.get(kernel.collective?.0.get() as usize)
    }

    /// Makes what is told of the collective of the kernel at this place another thing.
    pub(crate) fn tell_collective(
        &mut self,
        place: usize,
        told: impl FnOnce(Collective) -> Collective,
    ) {
        let next = u32::try_from(self.collectives.len()).ok();
        let kernel = self.kernels.get(place).copied();
        let (Some(next), Some(kernel)) = (next.and_then(NonMax::new), kernel) else {
            return;
        };
        let told = told(self.collective_of(&kernel).cloned().unwrap_or_default());
        self.collectives.push(told);
        if let Some(kernel) = self.kernels.get_mut(place) {
            kernel.collective = Some(CollectiveId(next));
        }
    }

    /// How many blocks of threads a launch of this name has on average, where the trace tells.
    #[must_use]
    pub fn blocks_of(&self, name: &str) -> Option<f64> {
        let id = self.names.find(name)?;
        let &(blocks, launches) = self.blocks.get(id.0 as usize)?;
        (launches > 0).then(|| blocks as f64 / launches as f64)
    }

    /// A kernel's name.
    #[must_use]
    pub fn name_of(&self, kernel: &Kernel) -> &str {
        self.names.get(kernel.name)
    }
}
