//! What one file holds, gathered before it is known which ranks its kernels belong to; the same
//! for every format.

mod copies;
mod kept;
mod operators;
#[cfg(feature = "formats")]
mod pieces;
mod ranks;

use std::collections::HashMap;
use std::num::NonZeroU64;

use litd_units::Nanos;

use self::kept::{DEVICE_LIMIT, Kept, Label};
pub(crate) use self::kept::{few, within};
use self::operators::Operators;
pub(crate) use self::operators::{Span, Thread};
#[cfg(feature = "formats")]
pub(crate) use self::pieces::Pieces;
use crate::class::class_of;
use crate::error::ReadError;
use crate::text::printable;
use crate::timeline::{
    Collective, CollectiveId, Kernel, KernelClass, NameId, NonMax, StreamId, Timeline,
};

/// What one file holds.
#[derive(Debug, Clone)]
pub struct Trace {
    /// A timeline per rank, in the order of the ranks.
    pub timelines: Vec<Timeline>,
    /// Whether the ranks are the file's own (or were given); if not, there is one timeline and
    /// its rank 0 is a guess.
    pub rank_known: bool,
    /// What the user should know, such as what was left out and why.
    pub notes: Vec<String>,
}

/// What the user wants of a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Choice<'a> {
    /// The ranks of its GPUs, in the order of the numbers of their devices; of none the file tells.
    pub ranks: &'a [u32],
    /// The labels of the devices that are wanted; of none all are.
    pub devices: &'a [String],
}

/// What a reader has found.
pub(crate) struct Found {
    pub(crate) gathered: Gathered,
    /// How many records were read, kernels or not.
    pub(crate) events: u64,
    pub(crate) notes: Vec<String>,
    /// What the file holds that is not read, in words.
    pub(crate) other: Option<String>,
    /// How the profiler that wrote it is told to record kernels.
    pub(crate) advice: &'static str,
}

impl Found {
    pub(crate) fn new(gathered: Gathered, events: u64, advice: &'static str) -> Self {
        Self {
            gathered,
            events,
            notes: Vec::new(),
            other: None,
            advice,
        }
    }

    /// The timelines, if there are kernels.
    pub(crate) fn trace(self, file: &str, choice: Choice<'_>) -> Result<Trace, ReadError> {
        if self.gathered.is_empty() {
            let file = file.to_owned();
            return Err(match self.other {
                Some(what) => ReadError::OtherActivity { file, what },
                None => ReadError::NoKernels {
                    file,
                    events: self.events,
                    advice: self.advice,
                },
            });
        }
        let trace = self.gathered.into_trace(file, choice);
        let mut trace = trace.map_err(|fault| ReadError::of(fault, file))?;
        trace.notes.extend(self.notes);
        Ok(trace)
    }
}

/// The number that a launch and its kernel share, plus one: millions of kernels have one, and so
/// the lack of it takes no room.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Correlation(NonZeroU64);

impl Correlation {
    pub(crate) fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number.wrapping_add(1)).map(Self)
    }

    fn number(self) -> u64 {
        self.0.get() - 1
    }
}

/// Where a kernel ran, in the file's terms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot {
    /// The rank that its event names.
    pub(crate) rank: Option<NonMax>,
    pub(crate) device: Label,
    pub(crate) stream: Label,
}

/// A kernel as its event has it; times lack the file's base.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawKernel {
    pub(crate) name: NameId,
    pub(crate) class: KernelClass,
    pub(crate) spot: Spot,
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Its place among the collectives.
    pub(crate) collective: Option<NonMax>,
    pub(crate) correlation: Option<Correlation>,
}

/// The kernels of one device of one rank. Until it is known which rank's they are, names, streams
/// and collectives are the file's, and times lack its base; then they become those of a timeline
/// where they are, so that memory holds millions of kernels once.
#[derive(Debug)]
pub(crate) struct Group {
    rank: Option<NonMax>,
    device: Label,
    kernels: Vec<Kernel>,
    /// Of each kernel; none at all where no kernel has one.
    correlations: Vec<Option<Correlation>>,
}

/// One of the two times that are furthest apart, with the event and the kernel that it is of.
#[derive(Debug, Clone, Copy)]
struct Extreme {
    time: i64,
    event: u64,
    name: NameId,
}

/// A mark of an iteration; times lack the file's base.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) number: u32,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) rank: Option<u32>,
    /// The device, for a mark that the profiler carried over to it.
    pub(crate) device: Option<NameId>,
    /// The stream there, for a mark that spans what ran on that stream alone.
    pub(crate) stream: Option<Label>,
}

/// When the call began that launched a kernel with this correlation, and when it returned; the times lack the file's base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Launch {
    pub(crate) rank: Option<u32>,
    pub(crate) correlation: u64,
    pub(crate) at: i64,
    /// As `at` where the format does not tell.
    pub(crate) until: i64,
}

impl Launch {
    /// When what it launched was there for the GPU to start. That is before the call returns, and so no later than its
    /// start. A call that returns after a copy has ended has waited for it: nobody knows when the copy was there, and the
    /// begin of the call counts.
    fn there(&self, kernel: &Kernel) -> i64 {
        match kernel.class == KernelClass::Copy && self.until >= kernel.end.0 {
            true => self.at,
            false => self.until.min(kernel.start.0).max(self.at),
        }
    }
}

/// All that one file tells.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) kept: Kept,
    groups: Vec<Group>,
    /// The place of each of them, and that of the last kernel.
    group_ids: HashMap<(Option<NonMax>, Label), usize>,
    group: usize,
    /// The first start and the last end.
    extremes: Option<[Extreme; 2]>,
    pub(crate) collectives: Vec<Collective>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) launches: Vec<Launch>,
    pub(crate) operators: Operators,
    /// Of each name how many blocks of threads its launches have, and how many launches tell.
    pub(crate) blocks: Vec<(u64, u64)>,
    /// The rank of `distributedInfo`.
    pub(crate) rank: Option<u32>,
    /// The rank that the host's record of a collective names.
    pub(crate) comms_rank: Option<u32>,
    pub(crate) world_size: Option<u32>,
    /// Whether a simulator wrote the file.
    pub(crate) simulated: bool,
    /// Whether it was put together from recordings of several machines, whose clocks may differ.
    pub(crate) several_machines: bool,
    /// What to add to all times.
    pub(crate) base: Nanos,
    /// The class of each name.
    classes: Vec<KernelClass>,
}

/// What is wrong with a file, without its name.
#[derive(Debug)]
pub(crate) enum Fault {
    /// A kernel makes no sense.
    Kernel {
        event: u64,
        name: String,
        what: String,
    },
    /// Something else does not.
    Value { event: u64, what: String },
    /// The user gave more ranks than there are GPUs, or fewer.
    Ranks {
        gpus: usize,
        devices: String,
        given: usize,
    },
    /// None of the devices that the user wants is there.
    Devices { wanted: String, there: String },
    /// There are copies, and no kernels.
    OnlyCopies { copies: usize },
}

/// A kernel's description in a file, for [`Gathered::kernel`].
#[cfg(feature = "formats")]
pub(crate) struct KernelText<'a> {
    pub(crate) name: &'a str,
    /// The class, where the file tells; else the name does.
    pub(crate) class: Option<KernelClass>,
    pub(crate) stream: &'a str,
    pub(crate) device: &'a str,
    pub(crate) start: i64,
    pub(crate) end: i64,
}

impl Gathered {
    /// Takes how many blocks of threads a kernel has.
    pub(crate) fn has_blocks(&mut self, name: NameId, blocks: u64) {
        let at = name.0 as usize;
        if self.blocks.len() <= at {
            self.blocks.resize(at + 1, (0, 0));
        }
        if let Some((sum, count)) = self.blocks.get_mut(at) {
            *sum = sum.saturating_add(blocks);
            *count += 1;
        }
    }

    /// Takes one kernel of a format that tells no more than this; `event` counts.
    #[cfg(feature = "formats")]
    pub(crate) fn kernel(&mut self, event: u64, kernel: &KernelText<'_>) -> Result<(), Fault> {
        self.launched(event, None, None, kernel).map(|_| ())
    }

    /// The same of a kernel that may name its rank, and may have a number in common with its launch; where
    /// several processes write one file, launches and kernels need numbers of their own each. What is kept
    /// of its name, and of where it ran.
    #[cfg(feature = "formats")]
    pub(crate) fn launched(
        &mut self,
        event: u64,
        rank: Option<u32>,
        correlation: Option<u64>,
        kernel: &KernelText<'_>,
    ) -> Result<(NameId, Spot), Fault> {
        let fault = |what: String| Fault::Kernel {
            event,
            name: shortened(kernel.name),
            what,
        };
        if kernel.end < kernel.start {
            return Err(fault(
                "a kernel ends before it starts: times run backwards".into(),
            ));
        }
        let name = self.kept.name(kernel.name).map_err(fault)?;
        let class = kernel.class.unwrap_or_else(|| self.class(name));
        let spot = Spot {
            rank: rank.and_then(NonMax::new),
            device: self.kept.device(kernel.device).map_err(fault)?,
            stream: self.kept.stream(kernel.stream).map_err(fault)?,
        };
        let raw = RawKernel {
            name,
            class,
            spot,
            start: kernel.start,
            end: kernel.end,
            collective: None,
            correlation: correlation.and_then(Correlation::new),
        };
        self.push(event, &raw).map(|()| (name, spot))
    }

    /// Takes the call that launched the kernels with this number, of this rank where they name theirs.
    #[cfg(feature = "formats")]
    pub(crate) fn launch(&mut self, rank: Option<u32>, correlation: u64, at: i64) {
        self.launch_until(rank, correlation, (at, None));
    }

    /// The same of a call that tells when it returned.
    #[cfg(feature = "formats")]
    pub(crate) fn launch_until(
        &mut self,
        rank: Option<u32>,
        correlation: u64,
        (at, until): (i64, Option<i64>),
    ) {
        self.launches.push(Launch {
            rank,
            correlation,
            at,
            until: until.map_or(at, |until| until.max(at)),
        });
    }

    /// The numbers that the kernels so far have in common with their launches, in order: most calls of a
    /// host launch nothing.
    #[cfg(feature = "formats")]
    pub(crate) fn correlated(&self) -> Vec<u64> {
        let all = self.groups.iter().flat_map(|group| &group.correlations);
        let mut all = Vec::from_iter(all.flatten().map(|correlation| correlation.number()));
        all.sort_unstable();
        all
    }

    /// Takes a kernel whose texts are kept.
    pub(crate) fn push(&mut self, event: u64, raw: &RawKernel) -> Result<(), Fault> {
        let RawKernel {
            name, start, end, ..
        } = *raw;
        let of = |time| Extreme { time, event, name };
        let [first, last] = self.extremes.get_or_insert([of(start), of(end)]);
        if start < first.time {
            *first = of(start);
        }
        if end > last.time {
            *last = of(end);
        }
        let at = self.group_of(event, raw.spot)?;
        let Some(group) = self.groups.get_mut(at) else {
            return Ok(());
        };
        if raw.correlation.is_some() || !group.correlations.is_empty() {
            group.correlations.resize(group.kernels.len(), None);
            group.correlations.push(raw.correlation);
        }
        group.kernels.push(Kernel {
            name,
            stream: StreamId(raw.spot.stream.number()),
            class: raw.class,
            start: Nanos(start),
            end: Nanos(end),
            collective: raw.collective.map(CollectiveId),
            iteration: None,
        });
        Ok(())
    }

    /// The place of a kernel's group, mostly that of the kernel before.
    fn group_of(&mut self, event: u64, spot: Spot) -> Result<usize, Fault> {
        let key = (spot.rank, spot.device);
        let last = self.groups.get(self.group);
        if last.is_none_or(|group| (group.rank, group.device) != key) {
            let next = self.groups.len();
            self.group = *self.group_ids.entry(key).or_insert(next);
            if self.group == next {
                few(next + 1, DEVICE_LIMIT, "ranks and devices")
                    .map_err(|what| Fault::Value { event, what })?;
                self.groups.push(Group {
                    rank: spot.rank,
                    device: spot.device,
                    kernels: Vec::new(),
                    correlations: Vec::new(),
                });
            }
        }
        Ok(self.group)
    }

    /// Whether there is no kernel.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The class that a name tells, which is looked up once.
    pub(crate) fn class(&mut self, name: NameId) -> KernelClass {
        while self.classes.len() < self.kept.names.len() {
            let next = NameId(u32::try_from(self.classes.len()).unwrap_or(u32::MAX));
            self.classes.push(class_of(self.kept.names.get(next)));
        }
        let known = self.classes.get(name.0 as usize).copied();
        known.unwrap_or(KernelClass::Computation)
    }

    /// The timelines; `file` is how the user named the file, `choice` what he wants of it.
    pub(crate) fn into_trace(self, file: &str, choice: Choice<'_>) -> Result<Trace, Fault> {
        ranks::timelines(self, file, choice)
    }
}

/// A text short enough for a message, and fit for one.
pub(crate) fn shortened(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", printable(text.get(..end).unwrap_or_default())),
        None => printable(text),
    }
}

/// Whether a call of this name may put work on a stream; most calls do not.
pub(crate) fn launches(call: impl AsRef<[u8]>) -> bool {
    [&b"aunch"[..], b"emcpy", b"emset"]
        .iter()
        .any(|word| memchr::memmem::find(call.as_ref(), word).is_some())
}
