//! What one file holds, gathered before it is known which ranks its kernels belong to; the same
//! for every format.

mod kept;
mod pieces;
mod ranks;

use std::num::{NonZeroU32, NonZeroU64};

use litd_units::Nanos;

#[cfg(feature = "formats")]
pub(crate) use self::kept::few;
pub(crate) use self::kept::within;
use self::kept::{Kept, Label};
pub(crate) use self::pieces::Pieces;
use crate::class::class_of;
use crate::text::printable;
use crate::timeline::{Collective, KernelClass, NameId, Timeline};

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

/// A number below the greatest, plus one, for the same reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Small(NonZeroU32);

impl Small {
    pub(crate) fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number.wrapping_add(1)).map(Self)
    }

    pub(crate) fn number(self) -> u32 {
        self.0.get() - 1
    }
}

/// A kernel as its event has it; times lack the file's base.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawKernel {
    pub(crate) name: NameId,
    pub(crate) class: KernelClass,
    pub(crate) stream: Label,
    pub(crate) device: Label,
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Its place among the collectives.
    pub(crate) collective: Option<Small>,
    pub(crate) correlation: Option<Correlation>,
    pub(crate) rank: Option<Small>,
    /// The number of its event, for messages; the greatest stands for all beyond.
    pub(crate) event: u32,
}

// Millions of these decide how much memory a large file takes.
const _: () = assert!(size_of::<RawKernel>() <= 48);

/// A mark of an iteration; times lack the file's base.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) number: u32,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) rank: Option<u32>,
    /// The device, for a mark that the profiler carried over to it.
    pub(crate) device: Option<NameId>,
}

/// When a kernel with this correlation was launched; the time lacks the file's base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Launch {
    pub(crate) rank: Option<u32>,
    pub(crate) correlation: u64,
    pub(crate) at: i64,
}

/// All that one file tells.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) kept: Kept,
    pub(crate) kernels: Pieces<RawKernel>,
    pub(crate) collectives: Vec<Collective>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) launches: Vec<Launch>,
    /// The rank of `distributedInfo`.
    pub(crate) rank: Option<u32>,
    /// The rank that the host's record of a collective names.
    pub(crate) comms_rank: Option<u32>,
    pub(crate) world_size: Option<u32>,
    /// Whether a simulator wrote the file.
    pub(crate) simulated: bool,
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
    /// Takes one kernel of a format that tells no more than this; `event` counts.
    #[cfg(feature = "formats")]
    pub(crate) fn kernel(&mut self, event: u64, kernel: &KernelText<'_>) -> Result<(), Fault> {
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
        let stream = self.kept.stream(kernel.stream).map_err(fault)?;
        let device = self.kept.device(kernel.device).map_err(fault)?;
        self.kernels.push(RawKernel {
            name,
            class,
            stream,
            device,
            start: kernel.start,
            end: kernel.end,
            collective: None,
            correlation: None,
            rank: None,
            event: u32::try_from(event).unwrap_or(u32::MAX),
        });
        Ok(())
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

    /// The timelines; `file` is how the user named the file, `given` the rank that he gave it.
    pub(crate) fn into_trace(self, file: &str, given: Option<u32>) -> Result<Trace, Fault> {
        ranks::timelines(self, file, given)
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
