//! Gathers what one file's events tell, before it is known which ranks they belong to.

use litd_units::Nanos;

use super::event::{
    Args, Category, Event, Malformed, decoded, distributed_info, number_of, unquoted,
};
use super::kept::Kept;
use super::number;
use super::scan::{Part, ScanError};
use crate::class::class_of;
use crate::text::printable;
use crate::timeline::{Collective, CollectiveId, KernelClass, NameId};

/// A kernel as its event has it; times lack the file's base.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawKernel {
    pub(super) name: NameId,
    pub(super) class: KernelClass,
    pub(super) stream: NameId,
    pub(super) device: NameId,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) collective: Option<CollectiveId>,
    pub(super) correlation: Option<u64>,
    pub(super) rank: Option<u32>,
    /// The number of its event, for messages.
    pub(super) event: u64,
}

/// A mark of an iteration; times lack the file's base.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) number: u32,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) rank: Option<u32>,
    /// The device, for a mark that the profiler carried over to it.
    pub(super) device: Option<NameId>,
}

/// When a kernel with this correlation was launched; the time lacks the file's base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Launch {
    pub(super) rank: Option<u32>,
    pub(super) correlation: u64,
    pub(super) at: i64,
}

/// All that one file tells.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) kept: Kept,
    pub(super) kernels: Vec<RawKernel>,
    pub(super) collectives: Vec<Collective>,
    pub(super) marks: Vec<Mark>,
    pub(super) launches: Vec<Launch>,
    /// The rank of `distributedInfo`.
    pub(super) rank: Option<u32>,
    /// The rank that the host's record of a collective names.
    pub(super) comms_rank: Option<u32>,
    pub(super) world_size: Option<u32>,
    /// Whether a simulator wrote the file.
    pub(super) simulated: bool,
    /// What to add to all times.
    pub(super) base: Nanos,
    /// The class of each name.
    classes: Vec<KernelClass>,
}

/// What is wrong with a file, without its name.
#[derive(Debug)]
pub(super) enum Fault {
    Scan(ScanError),
    Kernel {
        event: u64,
        name: String,
        what: String,
    },
    Value {
        event: u64,
        what: String,
    },
}

impl From<ScanError> for Fault {
    fn from(error: ScanError) -> Self {
        Self::Scan(error)
    }
}

impl Collected {
    /// Takes one part of the document; `number` counts the events.
    pub(super) fn take(&mut self, number: u64, part: Part<'_>) -> Result<(), Fault> {
        let malformed = |Malformed| Fault::Value {
            event: number,
            what: "an event is not valid JSON".into(),
        };
        match part {
            Part::Event(text) => {
                let Some(event) = Event::parse(text).map_err(malformed)? else {
                    return Ok(());
                };
                let args = Args::parse(event.args).map_err(malformed)?;
                self.event(number, &event, args)
            }
            Part::DistributedInfo(text) => {
                (self.rank, self.world_size) = distributed_info(text).map_err(malformed)?;
                Ok(())
            }
            Part::BaseTime(text) => {
                let base = number::integer(unquoted(text)).ok_or_else(|| Fault::Value {
                    event: number,
                    what: "baseTimeNanoseconds is no number of nanoseconds".into(),
                })?;
                self.base = Nanos(base);
                Ok(())
            }
        }
    }

    fn event(&mut self, number: u64, event: &Event<'_>, args: Args<'_>) -> Result<(), Fault> {
        let rank = args.rank.and_then(number_of);
        match event.category {
            Category::Kernel | Category::Copy => self.kernel(number, event, args, rank),
            Category::Host if event.name == b"record_param_comms" => {
                let named = args.comms_rank.and_then(number_of);
                self.comms_rank = self.comms_rank.or(named);
                Ok(())
            }
            Category::Host => {
                self.mark(event, rank, None);
                Ok(())
            }
            Category::Device => {
                let label = device_label(event, &args);
                let device = self.kept.device(label).map_err(|what| Fault::Value {
                    event: number,
                    what,
                })?;
                self.mark(event, rank, Some(device));
                Ok(())
            }
            Category::Launch => {
                let correlation = args.correlation.and_then(number_of);
                let at = event.ts.and_then(number::micros_to_nanos);
                if let (Some(correlation), Some(at), true) = (correlation, at, launches(event.name))
                {
                    self.launches.push(Launch {
                        rank,
                        correlation,
                        at,
                    });
                }
                Ok(())
            }
        }
    }

    /// Keeps the mark if it is one. A mark with unreadable times is no reason to refuse kernels.
    fn mark(&mut self, event: &Event<'_>, rank: Option<u32>, device: Option<NameId>) {
        let number = event.name.strip_prefix(b"ProfilerStep#");
        let number = number.and_then(number_of);
        let start = event.ts.and_then(number::micros_to_nanos);
        let length = event.dur.and_then(number::micros_to_nanos);
        if let (Some(number), Some(start), Some(length)) = (number, start, length) {
            let end = start.saturating_add(length.max(0));
            self.marks.push(Mark {
                number,
                start,
                end,
                rank,
                device,
            });
        }
    }

    fn kernel(
        &mut self,
        number: u64,
        event: &Event<'_>,
        args: Args<'_>,
        rank: Option<u32>,
    ) -> Result<(), Fault> {
        let fault = |what: String| Fault::Kernel {
            event: number,
            name: shortened(&decoded(event.name)),
            what,
        };
        let time = |field: Option<&[u8]>, key: &str| {
            let text = field.ok_or_else(|| fault(format!("a kernel has no {key}")))?;
            number::micros_to_nanos(text).ok_or_else(|| {
                let text = shortened(&String::from_utf8_lossy(text));
                fault(format!("a kernel's {key} is not a time that fits: {text}"))
            })
        };
        let start = time(event.ts, "ts")?;
        let length = time(event.dur, "dur")?;
        if length < 0 {
            return Err(fault(
                "a kernel ends before it starts: times run backwards".into(),
            ));
        }
        let end = start
            .checked_add(length)
            .ok_or_else(|| fault("a kernel's end is not a time that fits".into()))?;
        let name = self.kept.name(event.name).map_err(fault)?;
        if self.classes.len() < self.kept.names.len() {
            self.classes.push(class_of(self.kept.names.get(name)));
        }
        let class = match event.category {
            Category::Copy => KernelClass::Copy,
            _ => self
                .classes
                .get(name.0 as usize)
                .copied()
                .unwrap_or(KernelClass::Computation),
        };
        let stream = args.stream.or(event.tid).unwrap_or_default();
        let stream = stream.strip_prefix(b"stream ").unwrap_or(stream);
        let stream = self.kept.stream(stream).map_err(fault)?;
        let device = self
            .kept
            .device(device_label(event, &args))
            .map_err(fault)?;
        let correlation = args.correlation.and_then(number_of);
        let collective = match &args.collective {
            Some(raw) => {
                let collective = self.kept.collective(raw).map_err(fault)?;
                self.collectives.push(collective);
                let last = u32::try_from(self.collectives.len() - 1);
                Some(CollectiveId(last.unwrap_or(u32::MAX)))
            }
            None => None,
        };
        self.kernels.push(RawKernel {
            name,
            class,
            stream,
            device,
            start,
            end,
            collective,
            correlation,
            rank,
            event: number,
        });
        Ok(())
    }
}

/// `args.device` tells the device, else the process.
fn device_label<'a>(event: &Event<'a>, args: &Args<'a>) -> &'a [u8] {
    args.device.or(event.pid).unwrap_or_default()
}

/// Whether a call of this name may put work on a stream; most calls do not.
fn launches(call: &[u8]) -> bool {
    [&b"aunch"[..], b"emcpy", b"emset"]
        .iter()
        .any(|word| memchr::memmem::find(call, word).is_some())
}

/// A text short enough for a message, and fit for one.
pub(super) fn shortened(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", printable(text.get(..end).unwrap_or_default())),
        None => printable(text),
    }
}
