//! XLA's profile of devices, `*.xplane.pb`: XSpace > XPlane (a GPU) > XLine (a stream) > XEvent (a
//! kernel), with names by number. Field numbers: `xplane.proto` of OpenXLA's tsl.

use std::collections::HashMap;
use std::io::Read;

use super::proto::{Malformed, Next, Stream, StreamError, fields};
use super::{Head, Input, is_json};
use crate::error::ReadError;
use crate::gather::{Fault, Found, Gathered, KernelText, shortened};
use crate::kineto;
use crate::timeline::KernelClass;

/// How a plane's name begins if it is a GPU's.
const GPU: &str = "/device:GPU:";
/// How that of any device's does.
const DEVICE: &str = "/device:";
/// How XLA's profiler is told to record kernels.
const ADVICE: &str =
    "with XLA's profiler in the process that uses the GPUs (jax.profiler.start_trace)";
/// The most names that are kept of one plane.
const NAME_LIMIT: usize = 1 << 20;

/// Whether the bytes begin an XSpace: its first message is a plane, whose name is a path.
pub(super) fn wrote(head: &Head<'_>) -> bool {
    let mut rest = head.bytes;
    // The first plane may be longer than the head: only its own fields are looked at.
    if rest.first() != Some(&0x0A) {
        return false;
    }
    rest = rest.get(1..).unwrap_or_default();
    let length = rest.iter().position(|byte| byte & 0x80 == 0).unwrap_or(9) + 1;
    let plane = rest.get(length..).unwrap_or_default();
    let name = fields(plane).map_while(Result::ok).take(3);
    let mut name = name.filter(|(number, _)| *number == 2);
    name.any(|(_, value)| value.bytes().starts_with(b"/"))
}

/// A kernel whose name and line are still numbers.
struct Event {
    name: i64,
    line: usize,
    /// Both in picoseconds from the line's begin.
    offset: i64,
    length: i64,
}

#[derive(Default)]
struct Line {
    name: String,
    begin: i64,
}

#[derive(Default)]
struct Plane {
    name: String,
    lines: Vec<Line>,
    events: Vec<Event>,
    names: HashMap<i64, String>,
}

/// Whether a JSON file that begins like this is what XLA writes for viewers of traces
/// (`*.trace.json.gz`) beside an xplane.pb.
pub(super) fn is_for_viewers(head: &Head<'_>) -> bool {
    is_json(head) && head.has(b"\"highres-ticks\"")
}

/// Reads such a file as Kineto's, which it is not unless it says what is a kernel.
pub(super) fn read_for_viewers(input: Input<'_>) -> Result<Found, ReadError> {
    let file = input.file;
    let found = kineto::read_source(input.source, file)?;
    match found.gathered.is_empty() {
        true => Err(ReadError::NotKineto {
            file: file.into(),
            what: "it is made for viewers of traces, with no word of what is a kernel; give the .xplane.pb beside it".into(),
        }),
        false => Ok(found),
    }
}

pub(super) fn read(input: Input<'_>) -> Result<Found, ReadError> {
    let mut stream = Stream::new(input.source);
    let mut space = Space::default();
    let walked = space.walk(&mut stream);
    walked.map_err(|error| error.explain(input.file, "xplane.pb", stream.offset()))?;
    let others = space.others.join(", ");
    let other = format!("planes of {others}, which are no GPUs");
    Ok(Found {
        other: (!others.is_empty()).then_some(other),
        ..Found::new(space.gathered, space.events, ADVICE)
    })
}

/// What was read so far.
#[derive(Default)]
struct Space {
    gathered: Gathered,
    events: u64,
    /// The first devices that are no GPUs.
    others: Vec<String>,
}

/// What is wrong with a file of messages.
pub(super) enum Trouble {
    Stream(StreamError),
    Content(Fault),
}

impl From<StreamError> for Trouble {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}

impl From<Malformed> for Trouble {
    fn from(_: Malformed) -> Self {
        Self::Stream(StreamError::Malformed)
    }
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Content(fault)
    }
}

impl Trouble {
    pub(super) fn explain(self, file: &str, format: &'static str, offset: u64) -> ReadError {
        let damaged = |what| ReadError::Damaged {
            file: file.into(),
            format,
            offset,
            what,
        };
        match self {
            Self::Content(fault) => ReadError::of(fault, file),
            Self::Stream(StreamError::Source(cause)) => ReadError::Io {
                file: file.into(),
                cause,
            },
            Self::Stream(StreamError::Cut) => damaged("it ends in the middle of a message"),
            Self::Stream(StreamError::Malformed) => damaged("a message is malformed"),
            Self::Stream(StreamError::TooLong) => {
                damaged("a message is longer than any profiler writes")
            }
        }
    }
}

impl Space {
    fn walk<R: Read>(&mut self, stream: &mut Stream<R>) -> Result<(), Trouble> {
        while let Some((number, next)) = stream.next(u64::MAX)? {
            match next {
                Next::Bytes(length) if number == 1 => {
                    let until = stream.offset() + length;
                    let plane = plane(stream, until)?;
                    self.events += plane.events.len() as u64;
                    if plane.is_other() && self.others.len() < 4 {
                        self.others.push(shortened(&plane.name));
                    }
                    plane.gather(&mut self.gathered)?;
                }
                Next::Bytes(length) => stream.skip(length)?,
                Next::Number(_) => {}
            }
        }
        Ok(())
    }
}

/// Reads a plane. One of the host is passed over as soon as its name is known.
fn plane<R: Read>(stream: &mut Stream<R>, until: u64) -> Result<Plane, Trouble> {
    let mut plane = Plane::default();
    while let Some((number, next)) = stream.next(until)? {
        match (number, next) {
            (2, Next::Bytes(length)) => {
                plane.name = String::from_utf8_lossy(stream.take(length)?).into_owned();
                if !plane.name.starts_with(GPU) {
                    stream.skip(until - stream.offset())?;
                    return Ok(Plane {
                        name: plane.name,
                        ..Plane::default()
                    });
                }
            }
            (3, Next::Bytes(length)) => {
                let until = stream.offset() + length;
                line(stream, until, &mut plane)?;
            }
            (4, Next::Bytes(length)) => plane.name_of_event(stream.take(length)?)?,
            (_, Next::Bytes(length)) => stream.skip(length)?,
            (_, Next::Number(_)) => {}
        }
    }
    Ok(plane)
}

fn line<R: Read>(stream: &mut Stream<R>, until: u64, plane: &mut Plane) -> Result<(), Trouble> {
    let mut line = Line::default();
    let at = plane.lines.len();
    while let Some((number, next)) = stream.next(until)? {
        match (number, next) {
            (2, Next::Bytes(length)) => {
                line.name = String::from_utf8_lossy(stream.take(length)?).into_owned();
            }
            (3, Next::Number(begin)) => line.begin = begin as i64,
            (4, Next::Bytes(length)) => {
                let mut event = Event {
                    name: 0,
                    line: at,
                    offset: 0,
                    length: 0,
                };
                for field in fields(stream.take(length)?) {
                    match field? {
                        (1, value) => event.name = value.number() as i64,
                        (2, value) => event.offset = value.number() as i64,
                        (3, value) => event.length = value.number() as i64,
                        _ => {}
                    }
                }
                plane.events.push(event);
            }
            (_, Next::Bytes(length)) => stream.skip(length)?,
            (_, Next::Number(_)) => {}
        }
    }
    plane.lines.push(line);
    Ok(())
}

/// Whether a line's name, `Stream #8(MemcpyOther)`, says that only copies and fills ran on it.
fn has_only_copies(line: &str) -> bool {
    let kinds = line.split_once('(').map_or("", |(_, kinds)| kinds);
    let mut kinds = kinds.trim_end_matches(')').split(',').map(str::trim);
    kinds.all(is_copy)
}

fn is_copy(name: &str) -> bool {
    name.starts_with("Memcpy") || name.starts_with("Memset")
}

impl Plane {
    /// Whether it is that of a device which is no GPU, such as a TPU.
    fn is_other(&self) -> bool {
        self.name.starts_with(DEVICE) && !self.name.starts_with(GPU)
    }

    /// An entry of the map from numbers to descriptions of events.
    fn name_of_event(&mut self, entry: &[u8]) -> Result<(), Malformed> {
        let (mut key, mut name, mut shown) = (0, None, None);
        for field in fields(entry) {
            match field? {
                (1, value) => key = value.number() as i64,
                (2, value) => {
                    for field in fields(value.bytes()) {
                        match field? {
                            (2, value) => name = Some(value.text()),
                            (4, value) => shown = Some(value.text()),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        let name = name.filter(|name| !name.is_empty()).or(shown);
        if let (Some(name), true) = (name, self.names.len() < NAME_LIMIT) {
            self.names.insert(key, name.into_owned());
        }
        Ok(())
    }

    fn gather(self, gathered: &mut Gathered) -> Result<(), Fault> {
        let device = self.name.strip_prefix(GPU).unwrap_or_default();
        for (number, event) in (1..).zip(&self.events) {
            let Some(line) = self.lines.get(event.line) else {
                continue;
            };
            // Other lines repeat the kernels of all streams as steps, modules and operations.
            let Some(stream) = line.name.strip_prefix("Stream #") else {
                continue;
            };
            let end = stream.find(|c: char| !c.is_ascii_digit());
            let stream = stream.get(..end.unwrap_or(stream.len()));
            let at = |picos: i64| {
                line.begin
                    .saturating_add((picos.saturating_add(500)) / 1000)
            };
            let name = self.names.get(&event.name).map_or("", |name| name);
            let is_copy = has_only_copies(&line.name) || is_copy(name);
            gathered.kernel(
                number,
                &KernelText {
                    name,
                    class: is_copy.then_some(KernelClass::Copy),
                    stream: stream.unwrap_or_default(),
                    device,
                    start: at(event.offset),
                    end: at(event.offset.saturating_add(event.length)),
                },
            )?;
        }
        Ok(())
    }
}
