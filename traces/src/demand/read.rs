//! Reads one file.

use std::io::{self, Read};

use litd_units::Nanos;

use crate::class::class_of;
use crate::json::number;
use crate::json::scan::{EVENT_LIMIT, Part, ScanError, Scanner};
use crate::json::text::{Malformed, decoded, number_of, unquoted};
use crate::kineto::event::{Args, Category, Event, STEP, distributed_info};
use crate::text::printable;
use crate::timeline::{KernelClass, NameId, NameTable};

/// The most names of kernels, and the bytes of all of them.
const MOST_NAMES: usize = 4096;
const MOST_NAME_BYTES: usize = 1 << 20;

/// The most streams, and the most marks of optimizers' steps.
const MOST_STREAMS: usize = 1024;
const MOST_STEPS: usize = 10_000;

/// The longest name of a device or a stream, in bytes.
const LONGEST_LABEL: usize = 64;

/// Times lie between 0 and this, so that no difference of two is too large for a number: the year 2116.
const LATEST: i64 = i64::MAX / 2;

/// A kernel that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ran {
    /// Its name, in [`Demanded::names`].
    pub name: NameId,
    /// The stream, numbered in the order in which the file names streams, unless their labels are numbers.
    pub stream: u32,
    /// The kind of its work.
    pub class: KernelClass,
    /// When it started.
    pub start: Nanos,
    /// When it ended; never before that.
    pub end: Nanos,
}

/// The content of a trace on demand.
#[derive(Debug, Clone, Default)]
pub struct Demanded {
    /// The rank that the process has told PyTorch.
    pub rank: Option<u32>,
    /// How many ranks the job has, by the same.
    pub world_size: Option<u32>,
    /// The kernels' names.
    pub names: NameTable,
    /// The kernels, by their starts. Times are since 1970.
    pub kernels: Vec<Ran>,
    /// When optimizers' steps ended on the host, the earliest first.
    pub steps: Vec<Nanos>,
    /// Whether a simulator wrote the file.
    pub simulated: bool,
}

impl Demanded {
    /// Whether every collective is a kernel of its own here: the file has collectives, and none is part of another
    /// kernel. Only then is it known how long a rank waits for others.
    #[must_use]
    pub fn shows_collectives(&self) -> bool {
        let of = |class| self.kernels.iter().any(|kernel| kernel.class == class);
        of(KernelClass::Communication) && !of(KernelClass::Fused)
    }
}

/// Why a file is not taken.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// Reading failed.
    #[error("it can't be read: {0}")]
    Io(io::Error),
    /// The file is no JSON, or no JSON any more after so many bytes.
    #[error("it is no JSON at byte {0}")]
    NotJson(u64),
    /// The file ends before its document does: the process has ended while it wrote, or writes still.
    #[error("it ends in the middle of the document")]
    Cut,
    /// One value in it is too long.
    #[error("a value in it is longer than {EVENT_LIMIT} bytes")]
    TooLong,
    /// A kernel lacks a time, or has an impossible one.
    #[error("a kernel in it has no possible start and duration (event {0})")]
    Times(u64),
    /// There is more of something than fits.
    #[error("it has more than {most} {what}: record fewer iterations")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// The bound.
        most: usize,
    },
    /// A rank is a process with one GPU.
    #[error("it has kernels of two GPUs, {0} and {1}: a process with several GPUs is no rank")]
    Gpus(String, String),
    /// There are no kernels in it.
    #[error("it has no kernel of a GPU in it")]
    NoKernels,
}

impl From<ScanError> for Unread {
    fn from(error: ScanError) -> Self {
        match error {
            ScanError::Source(error) => Self::Io(error),
            ScanError::Cut => Self::Cut,
            ScanError::Unexpected(_) => Self::NotJson(0),
            ScanError::TooLong => Self::TooLong,
        }
    }
}

/// Reads a trace with so many kernels at most. Only Kineto's plain JSON is taken: that is what its on-demand client
/// writes. Each kernel takes 32 bytes, and some 50 more while [`cut`](super::cut) looks for iterations.
///
/// # Errors
/// See [`Unread`].
pub fn read(source: impl Read, kernels: usize) -> Result<Demanded, Unread> {
    let mut scanner = Scanner::new(source);
    let mut gathered = Gathered {
        most: kernels,
        ..Gathered::default()
    };
    let walked = scanner.walk(|event, part| gathered.take(event, part));
    if let Err(error) = walked {
        return Err(match error {
            Unread::NotJson(_) => Unread::NotJson(scanner.offset()),
            error => error,
        });
    }
    gathered.finish(scanner.progress.simulated)
}

/// A file as far as it was read; times lack the file's base.
#[derive(Debug, Default)]
struct Gathered {
    demanded: Demanded,
    most: usize,
    base: i64,
    name_bytes: usize,
    device: Option<String>,
    streams: Vec<String>,
}

impl Gathered {
    fn take(&mut self, number: u64, part: Part<'_>) -> Result<(), Unread> {
        let broken = |Malformed| Unread::NotJson(0);
        match part {
            Part::Event(text) => match Event::parse(text).map_err(broken)? {
                Some(event) => self.event(number, &event),
                None => Ok(()),
            },
            Part::DistributedInfo(text) => {
                let told = distributed_info(text).map_err(broken)?;
                (self.demanded.rank, self.demanded.world_size) = told;
                Ok(())
            }
            Part::BaseTime(text) => {
                self.base = number::integer(unquoted(text)).ok_or(Unread::Times(number))?;
                Ok(())
            }
        }
    }

    fn event(&mut self, number: u64, event: &Event<'_>) -> Result<(), Unread> {
        let class = match event.category {
            Category::Kernel => None,
            Category::Copy => Some(KernelClass::Copy),
            Category::Host if event.name.starts_with(STEP) => return self.step(event),
            _ => return Ok(()),
        };
        let (start, end) = times(event).ok_or(Unread::Times(number))?;
        let args = Args::parse(event.args).map_err(|Malformed| Unread::NotJson(0))?;
        self.device(args.device.or(event.pid).unwrap_or_default())?;
        let stream = self.stream(args.stream.or(event.tid).unwrap_or_default())?;
        let name = self.name(event.name)?;
        // PyTorch tells of its own collectives what they are, whatever their kernels are called.
        let class = match (class, &args.collective) {
            (Some(class), _) => class,
            (None, Some(_)) => KernelClass::Communication,
            (None, None) => class_of(self.demanded.names.get(name)),
        };
        let kernels = &mut self.demanded.kernels;
        within("kernels", kernels.len(), self.most)?;
        kernels.push(Ran {
            name,
            stream,
            class,
            start: Nanos(start),
            end: Nanos(end),
        });
        Ok(())
    }

    /// Takes the end of an optimizer's step. One with unreadable times is no reason to refuse kernels.
    fn step(&mut self, event: &Event<'_>) -> Result<(), Unread> {
        let steps = &mut self.demanded.steps;
        within("optimizers' steps", steps.len(), MOST_STEPS)?;
        steps.extend(times(event).map(|(_, end)| Nanos(end)));
        Ok(())
    }

    fn device(&mut self, label: &[u8]) -> Result<(), Unread> {
        let label = shown(label);
        match &self.device {
            Some(device) if *device != label => Err(Unread::Gpus(device.clone(), label)),
            Some(_) => Ok(()),
            None => {
                self.device = Some(label);
                Ok(())
            }
        }
    }

    fn stream(&mut self, label: &[u8]) -> Result<u32, Unread> {
        let label = shown(label.strip_prefix(b"stream ").unwrap_or(label));
        if let Some(number) = number_of(label.as_bytes()) {
            return Ok(number);
        }
        let known = self.streams.iter().position(|it| *it == label);
        let at = match known {
            Some(at) => at,
            None => {
                within("streams", self.streams.len(), MOST_STREAMS)?;
                self.streams.push(label);
                self.streams.len() - 1
            }
        };
        Ok(u32::try_from(at).unwrap_or(u32::MAX))
    }

    fn name(&mut self, raw: &[u8]) -> Result<NameId, Unread> {
        let name = printable(&decoded(raw));
        let names = &mut self.demanded.names;
        if let Some(known) = names.find(&name) {
            return Ok(known);
        }
        within("names of kernels", names.len(), MOST_NAMES)?;
        self.name_bytes += name.len();
        within(
            "bytes of kernels' names",
            self.name_bytes,
            MOST_NAME_BYTES + 1,
        )?;
        Ok(names.intern(&name))
    }

    /// Adds the base to all times, and puts kernels in order.
    fn finish(self, simulated: bool) -> Result<Demanded, Unread> {
        let (mut demanded, base) = (self.demanded, self.base);
        let shift = |time: Nanos| {
            let at = time.0.checked_add(base);
            at.filter(|at| (0..LATEST).contains(at)).map(Nanos)
        };
        if demanded.kernels.is_empty() {
            return Err(Unread::NoKernels);
        }
        for kernel in &mut demanded.kernels {
            let times = shift(kernel.start).zip(shift(kernel.end));
            (kernel.start, kernel.end) = times.ok_or(Unread::Times(0))?;
        }
        demanded.steps = demanded.steps.into_iter().filter_map(shift).collect();
        demanded.steps.sort_unstable();
        demanded
            .kernels
            .sort_by_key(|kernel| (kernel.start, kernel.end));
        demanded.simulated = simulated;
        Ok(demanded)
    }
}

/// Start and end of an event, which is not negatively long.
fn times(event: &Event<'_>) -> Option<(i64, i64)> {
    let start = number::micros_to_nanos(event.ts?)?;
    let length = number::micros_to_nanos(event.dur?)?;
    let end = start.checked_add(length)?;
    (length >= 0).then_some((start, end))
}

fn shown(label: &[u8]) -> String {
    let start = label.get(..label.len().min(LONGEST_LABEL));
    printable(&decoded(start.unwrap_or_default()))
}

fn within(what: &'static str, found: usize, most: usize) -> Result<(), Unread> {
    match found >= most {
        true => Err(Unread::TooMany { what, most }),
        false => Ok(()),
    }
}
