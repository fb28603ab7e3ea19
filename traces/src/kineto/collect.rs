//! Gathers what the events of one Kineto file tell.

use litd_units::Nanos;

use super::event::{Args, Category, Event, RawCollective, distributed_info};
use super::flows::Flows;
use crate::gather::{
    self, Correlation, Gathered, Launch, Mark, RawKernel, Span, Spot, Thread, launches, shortened,
    within,
};
use crate::json::number;
use crate::json::scan::{Part, ScanError};
use crate::json::text::{Malformed, decoded, number_of, ranks_of, unquoted};
use crate::timeline::{Collective, KernelClass, NameId, NonMax};

/// The longest list of ranks, in bytes.
const RANKS_TEXT_LIMIT: usize = 256 << 10;

/// What is wrong with a file, without its name.
#[derive(Debug)]
pub(super) enum Fault {
    Scan(ScanError),
    Content(gather::Fault),
}

impl From<gather::Fault> for Fault {
    fn from(fault: gather::Fault) -> Self {
        Self::Content(fault)
    }
}

/// The kernels and marks of a Kineto file.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) gathered: Gathered,
    pub(super) others: Others,
    pub(super) flows: Flows,
    /// Whether anything of a host was recorded as Kineto does.
    pub(super) host: bool,
}

/// Events of devices whose kernels are not read.
#[derive(Debug, Default)]
pub(super) struct Others {
    count: u64,
    /// The category of the first.
    first: String,
}

impl Others {
    pub(super) fn any(&self) -> bool {
        self.count > 0
    }

    /// What there is, if there is anything.
    pub(super) fn in_words(self) -> Option<String> {
        let Self { count, first } = self;
        (count > 0).then(|| {
            format!("{count} events of another device, such as {first}, which are not read")
        })
    }
}

impl From<ScanError> for Fault {
    fn from(error: ScanError) -> Self {
        Self::Scan(error)
    }
}

impl Collected {
    /// Takes one part of the document; `number` counts the events.
    pub(super) fn take(&mut self, number: u64, part: Part<'_>) -> Result<(), Fault> {
        let malformed = |Malformed| gather::Fault::Value {
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
                (self.gathered.rank, self.gathered.world_size) =
                    distributed_info(text).map_err(malformed)?;
                Ok(())
            }
            Part::BaseTime(text) => {
                let base = number::integer(unquoted(text)).ok_or_else(|| gather::Fault::Value {
                    event: number,
                    what: "baseTimeNanoseconds is no number of nanoseconds".into(),
                })?;
                self.gathered.base = Nanos(base);
                Ok(())
            }
        }
    }

    fn event(&mut self, number: u64, event: &Event<'_>, args: Args<'_>) -> Result<(), Fault> {
        let rank = args.rank.and_then(number_of);
        self.host |= matches!(
            event.category,
            Category::Host | Category::Operator | Category::Launch
        );
        match event.category {
            Category::Kernel | Category::Copy => self.kernel(number, event, args, rank),
            Category::Host if event.name == b"record_param_comms" => {
                let named = args.comms_rank.and_then(number_of);
                self.gathered.comms_rank = self.gathered.comms_rank.or(named);
                Ok(())
            }
            Category::Host => {
                self.mark(event, rank, None, None);
                Ok(())
            }
            Category::Operator => {
                self.operator(event);
                Ok(())
            }
            Category::Call => {
                self.call(event);
                Ok(())
            }
            Category::Arrow { begins } => {
                let number = event.id.and_then(number_of::<u64>);
                let at = event.ts.and_then(number::micros_to_nanos);
                if let Some(((number, at), thread)) = number.zip(at).zip(self.thread(event)) {
                    self.flows.arrow(number, begins, (thread, at));
                }
                Ok(())
            }
            Category::Device => {
                let label = device_label(event, &args);
                let device = self.gathered.kept.device(&decoded(label)).map_err(|what| {
                    gather::Fault::Value {
                        event: number,
                        what,
                    }
                })?;
                self.mark(
                    event,
                    rank,
                    Some(device.id()),
                    Some(stream_label(event, &args)),
                );
                Ok(())
            }
            Category::Other(name) => {
                self.others.count += 1;
                if self.others.count == 1 {
                    self.others.first = shortened(&decoded(name));
                }
                Ok(())
            }
            Category::Launch => {
                let correlation = args.correlation.and_then(number_of);
                let at = event.ts.and_then(number::micros_to_nanos);
                if let (Some(correlation), Some(at), true) = (correlation, at, launches(event.name))
                {
                    let length = event.dur.and_then(number::micros_to_nanos);
                    self.gathered.launches.push(Launch {
                        rank,
                        correlation,
                        at,
                        until: at.saturating_add(length.unwrap_or(0).max(0)),
                    });
                    if let Some(thread) = self.thread(event) {
                        self.gathered.operators.launch(correlation, at, thread);
                    }
                }
                Ok(())
            }
        }
    }

    /// The thread of the host that an event is of, where it tells.
    fn thread(&mut self, event: &Event<'_>) -> Option<Thread> {
        let operators = &mut self.gathered.operators;
        operators.thread(event.pid.unwrap_or_default(), event.tid?)
    }

    /// Takes a call of the host of which arrows tell what it launched.
    fn call(&mut self, event: &Event<'_>) {
        let start = event.ts.and_then(number::micros_to_nanos);
        let length = event.dur.and_then(number::micros_to_nanos);
        let times = start.zip(length).filter(|_| launches(event.name));
        if let Some(((start, length), thread)) = times.zip(self.thread(event)) {
            let end = start.saturating_add(length.max(0));
            self.flows.call((thread, start), end);
        }
    }

    /// Takes the call of an operator.
    fn operator(&mut self, event: &Event<'_>) {
        let start = event.ts.and_then(number::micros_to_nanos);
        let length = event.dur.and_then(number::micros_to_nanos);
        let times = start.zip(length).zip(self.thread(event));
        let span = times.map(|((start, length), thread)| Span {
            thread,
            start,
            end: start.saturating_add(length.max(0)),
        });
        let Gathered {
            operators, kept, ..
        } = &mut self.gathered;
        operators.called(kept, &decoded(event.name), event.external_id, span);
    }

    /// Keeps the mark if it is one. A mark with unreadable times is no reason to refuse kernels.
    fn mark(
        &mut self,
        event: &Event<'_>,
        rank: Option<u32>,
        device: Option<NameId>,
        stream: Option<&[u8]>,
    ) {
        let number = event.name.strip_prefix(b"ProfilerStep#");
        let number = number.and_then(number_of);
        let start = event.ts.and_then(number::micros_to_nanos);
        let length = event.dur.and_then(number::micros_to_nanos);
        if let (Some(number), Some(start), Some(length)) = (number, start, length) {
            let end = start.saturating_add(length.max(0));
            let stream = stream.and_then(|label| self.gathered.kept.stream(&decoded(label)).ok());
            self.gathered.marks.push(Mark {
                number,
                start,
                end,
                rank,
                device,
                stream,
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
        let fault = |what: String| gather::Fault::Kernel {
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
            return Err(Fault::from(fault(
                "a kernel ends before it starts: times run backwards".into(),
            )));
        }
        let end = start
            .checked_add(length)
            .ok_or_else(|| fault("a kernel's end is not a time that fits".into()))?;
        let name = self
            .gathered
            .kept
            .name(&decoded(event.name))
            .map_err(fault)?;
        let class = match event.category {
            Category::Copy => KernelClass::Copy,
            _ => self.gathered.class(name),
        };
        let stream = stream_label(event, &args);
        let stream = self.gathered.kept.stream(&decoded(stream)).map_err(fault)?;
        let device = decoded(device_label(event, &args));
        let device = self.gathered.kept.device(&device).map_err(fault)?;
        let thread = match event.described {
            true => self.thread(event),
            false => None,
        };
        let correlation = match thread {
            Some(thread) => Some(self.flows.kernel((thread, start))),
            None => args.correlation.and_then(number_of),
        };
        let correlation = correlation.and_then(Correlation::new);
        if args.external_id.is_some() || correlation.is_some() {
            let operators = &mut self.gathered.operators;
            operators.launched(name, length, args.external_id, correlation);
        }
        if let Some(blocks) = args.blocks {
            self.gathered.has_blocks(name, blocks);
        }
        let collective = match &args.collective {
            Some(raw) => {
                let collective = self.collective(raw).map_err(fault)?;
                self.gathered.collectives.push(collective);
                let last = u32::try_from(self.gathered.collectives.len() - 1);
                last.ok().and_then(NonMax::new)
            }
            None => None,
        };
        let raw = RawKernel {
            name,
            class,
            spot: Spot {
                rank: rank.and_then(NonMax::new),
                device,
                stream,
            },
            start,
            end,
            collective,
            correlation,
        };
        Ok(self.gathered.push(number, &raw)?)
    }
}

impl Collected {
    /// The metadata of a collective; what it repeats of others is shared with them.
    fn collective(&mut self, raw: &RawCollective<'_>) -> Result<Collective, String> {
        within(
            raw.ranks.unwrap_or_default(),
            RANKS_TEXT_LIMIT,
            "the list of a process group's ranks",
        )?;
        let kept = &mut self.gathered.kept;
        let mut text = |raw: Option<&[u8]>, what| kept.text(raw.map(decoded).as_deref(), what);
        Ok(Collective {
            name: text(raw.name, "the name of a collective")?,
            dtype: text(raw.dtype, "the dtype of a collective")?,
            process_group: text(raw.process_group, "the name of a process group")?,
            description: text(raw.description, "the description of a process group")?,
            peer: raw.peer,
            in_elements: raw.in_elements,
            out_elements: raw.out_elements,
            group_size: raw.group_size,
            ranks: kept.list(raw.ranks.map(ranks_of).unwrap_or_default())?,
            sequence: raw.sequence,
        })
    }
}

/// `args.stream` tells the stream, else the thread.
fn stream_label<'a>(event: &Event<'a>, args: &Args<'a>) -> &'a [u8] {
    let label = args.stream.or(event.tid).unwrap_or_default();
    label.strip_prefix(b"stream ").unwrap_or(label)
}

/// `args.device` tells the device, else the process.
fn device_label<'a>(event: &Event<'a>, args: &Args<'a>) -> &'a [u8] {
    args.device.or(event.pid).unwrap_or_default()
}
