//! Makes kernels of what began and ended on tracks.

use std::collections::HashMap;

use super::Trouble;
use super::sequence::Sequence;
use crate::formats::proto::{Malformed, fields};
use crate::gather::{Fault, KernelText, shortened};
use crate::timeline::{KernelClass, NameId, NameTable};

/// The longest chain of parents that is followed.
const DEPTH: usize = 16;
/// The most text that is kept of one file, in names.
const NAMES: usize = 1 << 21;

/// A track, or a process or thread that is one.
#[derive(Default, Clone)]
struct Track {
    parent: Option<u64>,
    name: Option<NameId>,
}

/// A kernel, or a slice that is none, which has begun.
#[derive(Clone, Copy)]
struct Slice {
    name: NameId,
    track: (u64, u64),
    class: Option<KernelClass>,
    /// The GPU, the queue and the stream, where annotations tell.
    device: Option<NameId>,
    stream: Option<NameId>,
    start: i64,
    end: i64,
    /// The times that annotations tell.
    told: (Option<i64>, Option<i64>),
}

/// A begin or an end, in the order of the file.
#[derive(Clone, Copy)]
struct Edge {
    track: u32,
    time: i64,
    /// The slice that begins, or none where one ends.
    slice: Option<u32>,
    order: u32,
}

/// Slices so far, and what is needed to make kernels of them.
#[derive(Default)]
pub(super) struct Slices {
    names: NameTable,
    tracks: HashMap<u64, Track>,
    /// Tracks that have had a kernel, by their number in edges.
    busy: HashMap<(u64, u64), u32>,
    edges: Vec<Edge>,
    slices: Vec<Slice>,
    /// Kernels that began and ended in one event.
    whole: Vec<Slice>,
}

/// What a TrackEvent tells.
#[derive(Default)]
struct Event {
    kind: u64,
    track: Option<u64>,
    name: Option<NameId>,
    class: Option<Option<KernelClass>>,
    time: Option<i64>,
    device: Option<NameId>,
    stream: Option<NameId>,
    queue: Option<NameId>,
    told: (Option<i64>, Option<i64>),
    /// A Chrome event with its own length, in microseconds.
    length: Option<i64>,
}

/// What a category says of a slice: that it is a kernel (whose class its name tells) or a copy.
fn class_of_category(category: &[u8]) -> Option<Option<KernelClass>> {
    match category {
        b"kernel_dispatch" | b"rocm_kernel_dispatch" | b"rocm_hip_stream" | b"kernel" => Some(None),
        b"memory_copy" | b"rocm_memory_copy" | b"gpu_memcpy" | b"gpu_memset" => {
            Some(Some(KernelClass::Copy))
        }
        _ => None,
    }
}

impl Slices {
    pub(super) fn names(&mut self) -> &mut NameTable {
        &mut self.names
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slices.is_empty() && self.whole.is_empty()
    }

    /// Whether a track says that a simulator made it up.
    pub(super) fn simulated(&self) -> bool {
        let name = |track: &Track| track.name.map_or("", |name| self.names.get(name));
        self.tracks
            .values()
            .any(|track| name(track).ends_with("(simulated)"))
    }

    /// Takes a TrackDescriptor.
    pub(super) fn describe(&mut self, message: &[u8]) -> Result<(), Malformed> {
        let (mut uuid, mut track) = (0, Track::default());
        let mut inner = None;
        for field in fields(message) {
            match field? {
                (1, value) => uuid = value.number(),
                (5, value) => track.parent = Some(value.number()),
                (2 | 10, value) => track.name = Some(self.names.intern(&value.text())),
                // A process's name (6) or a thread's (5).
                (3, value) => inner = Some((6, value.bytes())),
                (4, value) => inner = inner.or(Some((5, value.bytes()))),
                _ => {}
            }
        }
        if let (Some((wanted, message)), None) = (inner, track.name) {
            for field in fields(message) {
                match field? {
                    (number, value) if number == wanted => {
                        track.name = Some(self.names.intern(&value.text()));
                    }
                    _ => {}
                }
            }
        }
        if self.tracks.len() < NAMES {
            let known = self.tracks.entry(uuid).or_default();
            known.parent = track.parent.or(known.parent);
            known.name = track.name.or(known.name);
        }
        Ok(())
    }

    /// Takes a TrackEvent; `time` is its packet's.
    pub(super) fn event(
        &mut self,
        message: &[u8],
        time: Option<i64>,
        number: u64,
        sequence: &mut Sequence,
    ) -> Result<(), Trouble> {
        let event = self.parse(message, sequence)?;
        let Some(time) = event.time.or(time) else {
            return Ok(());
        };
        // Without a track an event belongs to its sequence's thread.
        let track = match event.track.or(sequence.track) {
            Some(track) => (0, track),
            None => (1, number),
        };
        let is_kernel = event.class.is_some();
        let slice = |names: &mut NameTable| Slice {
            name: event.name.unwrap_or_else(|| names.intern("")),
            track,
            class: event.class.flatten(),
            device: event.device,
            stream: event.stream.or(event.queue),
            start: time,
            end: time,
            told: event.told,
        };
        if let Some(length) = event.length {
            if is_kernel {
                let mut whole = slice(&mut self.names);
                whole.end = time.saturating_add(length.saturating_mul(1000));
                self.whole.push(whole);
            }
            return Ok(());
        }
        let order = u32::try_from(self.edges.len()).unwrap_or(u32::MAX);
        let next = u32::try_from(self.busy.len()).unwrap_or(u32::MAX);
        let number = match (event.kind, is_kernel) {
            (1, true) => *self.busy.entry(track).or_insert(next),
            (1 | 2, _) => match self.busy.get(&track) {
                Some(&number) => number,
                None => return Ok(()),
            },
            _ => return Ok(()),
        };
        let begun = (event.kind == 1).then(|| {
            let mut slice = slice(&mut self.names);
            // One that is no kernel only keeps its end from ending another.
            if !is_kernel {
                slice.end = i64::MIN;
            }
            self.slices.push(slice);
            u32::try_from(self.slices.len() - 1).unwrap_or(u32::MAX)
        });
        self.edges.push(Edge {
            track: number,
            time,
            slice: begun,
            order,
        });
        Ok(())
    }

    /// What an event is, and, if it is a kernel, all about it: most events are calls of the host.
    fn parse(&mut self, message: &[u8], sequence: &mut Sequence) -> Result<Event, Trouble> {
        let mut event = Event::default();
        for field in fields(message) {
            let (number, value) = field?;
            match number {
                9 => event.kind = value.number(),
                11 => event.track = Some(value.number()),
                22 => event.class = class_of_category(value.bytes()).or(event.class),
                3 => {
                    let id = sequence.categories.get(&value.number());
                    let category = id.map_or("", |&id| self.names.get(id));
                    event.class = class_of_category(category.as_bytes()).or(event.class);
                }
                16 => event.time = Some((value.number() as i64).saturating_mul(1000)),
                1 => {
                    let delta = value.number() as i64;
                    let now = sequence.reference.unwrap_or(0).saturating_add(delta);
                    sequence.reference = Some(now);
                    event.time = Some(now.saturating_mul(1000));
                }
                6 => legacy(value.bytes(), &mut event)?,
                _ => {}
            }
        }
        if event.class.is_none() {
            return Ok(event);
        }
        for field in fields(message) {
            match field? {
                (23, value) => event.name = Some(self.text(&value.text())?),
                (10, value) => event.name = sequence.names.get(&value.number()).copied(),
                (4, value) => self.annotation(value.bytes(), sequence, &mut event)?,
                _ => {}
            }
        }
        Ok(event)
    }

    /// Takes a DebugAnnotation, if it is of those that matter.
    fn annotation(
        &mut self,
        message: &[u8],
        sequence: &Sequence,
        event: &mut Event,
    ) -> Result<(), Trouble> {
        let (mut name, mut number, mut text) = (None, None, None);
        for field in fields(message) {
            match field? {
                (1, value) => {
                    let id = sequence.annotations.get(&value.number());
                    name = id.map(|&id| std::borrow::Cow::Borrowed(self.names.get(id)));
                }
                (10, value) => name = Some(value.text()),
                (3 | 4, value) => number = Some(value.number() as i64),
                (6, value) => text = Some(value.text()),
                (17, value) => {
                    let id = sequence.strings.get(&value.number());
                    text = id.map(|&id| self.names.get(id).into());
                }
                _ => {}
            }
        }
        let number = number.or_else(|| text.as_ref()?.parse().ok());
        let slot = match name.as_deref() {
            Some("begin_ns") => {
                event.told.0 = number;
                return Ok(());
            }
            Some("end_ns") => {
                event.told.1 = number;
                return Ok(());
            }
            Some("agent" | "device") => &mut event.device,
            Some("stream_ID" | "stream") => &mut event.stream,
            Some("queue") => &mut event.queue,
            _ => return Ok(()),
        };
        let text = match (text, number) {
            (Some(text), _) => text.into_owned(),
            (None, Some(number)) => number.to_string(),
            (None, None) => return Ok(()),
        };
        *slot = Some(self.names.intern(&text));
        Ok(())
    }

    /// A text of an event, which is kept.
    fn text(&mut self, text: &str) -> Result<NameId, Trouble> {
        let id = self.names.intern(text);
        match self.names.len() > NAMES {
            true => Err(Trouble::Content(Fault::Value {
                event: self.slices.len() as u64,
                what: format!("the trace has more than {NAMES} names, the most that are kept"),
            })),
            false => Ok(id),
        }
    }

    /// Takes a GpuRenderStageEvent.
    pub(super) fn stage(
        &mut self,
        message: &[u8],
        time: i64,
        sequence: &Sequence,
    ) -> Result<(), Trouble> {
        let (mut named, mut kernel, mut stage, mut queue) = (None, None, None, None);
        let (mut gpu, mut length, mut any) = (0, 0, false);
        let mut astray = false;
        for field in fields(message) {
            let (number, value) = field?;
            let of = |names: &HashMap<u64, NameId>| names.get(&value.number()).copied();
            match number {
                // Only the old list of queues and stages, in a packet of its own, has no event.
                7 => {}
                1 => any = true,
                2 => (length, any) = (value.number() as i64, true),
                11 => gpu = value.number() as i32,
                13 => {
                    queue = of(&sequence.specifications);
                    astray = queue.is_none() && value.number() > 0;
                }
                14 => stage = of(&sequence.specifications),
                17 => named = Some(self.text(&value.text())?),
                20 => named = of(&sequence.names),
                19 => kernel = of(&sequence.kernels),
                3 => queue = Some(self.text(&format!("queue {}", value.number()))?),
                4 => stage = Some(self.text(&format!("stage {}", value.number()))?),
                _ => {}
            }
        }
        // Perfetto's own reader leaves out what ran on a queue that nobody declared, too.
        if !any || astray {
            return Ok(());
        }
        let name = named.or(kernel).or(stage);
        let slice = Slice {
            name: name.unwrap_or_else(|| self.names.intern("unnamed stage")),
            track: (2, 0),
            class: None,
            device: Some(self.names.intern(&gpu.to_string())),
            stream: queue.or_else(|| Some(self.names.intern("0"))),
            start: time,
            end: time.saturating_add(length.max(0)),
            told: (None, None),
        };
        self.whole.push(slice);
        Ok(())
    }

    /// Hands out all kernels, with their number and rank; the count of those that never ended.
    pub(super) fn gather(
        &mut self,
        mut take: impl FnMut(u64, Option<u32>, &KernelText<'_>) -> Result<(), Fault>,
    ) -> Result<u64, Fault> {
        let open = self.close();
        let mut number = 0;
        let mut labels = HashMap::new();
        for slice in self.whole.iter().chain(&self.slices) {
            if slice.end < slice.start {
                continue;
            }
            number += 1;
            let key = (slice.track, slice.device, slice.stream);
            let (rank, device, stream) = labels.entry(key).or_insert_with(|| self.labels(slice));
            let (start, end) = slice.times();
            let kernel = KernelText {
                name: self.names.get(slice.name),
                class: slice.class,
                stream,
                device,
                start,
                end,
            };
            take(number, *rank, &kernel)?;
        }
        Ok(open)
    }

    /// Gives each slice its end; the count of those without one.
    fn close(&mut self) -> u64 {
        self.edges
            .sort_by_key(|edge| (edge.track, edge.time, edge.order));
        let mut open = Vec::new();
        let mut track = 0;
        let mut unended = 0;
        let mut forget = |slices: &mut Vec<Slice>, open: &mut Vec<u32>| {
            for slice in open.drain(..) {
                let Some(slice) = slices.get_mut(slice as usize) else {
                    continue;
                };
                unended += u64::from(slice.end != i64::MIN);
                slice.end = i64::MIN;
            }
        };
        for edge in &self.edges {
            if edge.track != track {
                forget(&mut self.slices, &mut open);
                track = edge.track;
            }
            match edge.slice {
                Some(slice) => open.push(slice),
                None => {
                    let ended = open.pop().and_then(|at| self.slices.get_mut(at as usize));
                    if let Some(slice) = ended.filter(|slice| slice.end != i64::MIN) {
                        slice.end = edge.time;
                    }
                }
            }
        }
        forget(&mut self.slices, &mut open);
        unended
    }

    /// The rank, the GPU and the stream of a slice.
    fn labels(&self, slice: &Slice) -> (Option<u32>, String, String) {
        let mut names = Vec::new();
        let mut at = (slice.track.0 == 0).then_some(slice.track.1);
        while let (Some(track), true) =
            (at.and_then(|at| self.tracks.get(&at)), names.len() < DEPTH)
        {
            names.push(track.name.map_or("", |name| self.names.get(name)));
            at = track.parent.filter(|_| track.parent != at);
        }
        let name = names.first().copied().unwrap_or_default();
        let rank = names.iter().find_map(|name| {
            let number = name.strip_prefix("rank ")?;
            number.split(' ').next()?.parse().ok()
        });
        let text = |id: Option<NameId>| id.map(|id| self.names.get(id));
        let device = text(slice.device).map(|label| digits(label).unwrap_or(label));
        let of_track = || match name.contains("Agent") || name.contains("GPU") {
            true => bracketed(name).next(),
            false => None,
        };
        let device = device.or_else(of_track).unwrap_or_default();
        // `STREAM [3]`; `COMPUTE Agent [4] QUEUE [1] GPU`; `HIP Activity Stream 3`.
        let of_track = || bracketed(name).last().or_else(|| digits(name));
        let stream = text(slice.stream).or_else(of_track).unwrap_or(name);
        (rank, device.to_owned(), shortened(stream))
    }
}

/// Takes a LegacyEvent, Chrome's: a phase, and the length of one that begins and ends at once.
fn legacy(message: &[u8], event: &mut Event) -> Result<(), Malformed> {
    let (mut phase, mut length) = (0, None);
    for field in fields(message) {
        match field? {
            (2, value) => phase = value.number(),
            (3, value) => length = Some(value.number() as i64),
            _ => {}
        }
    }
    match u8::try_from(phase) {
        Ok(b'X') => event.length = length,
        Ok(b'B') => event.kind = 1,
        Ok(b'E') => event.kind = 2,
        _ => {}
    }
    Ok(())
}

impl Slice {
    /// rocprofv3 changes the times of kernels that overlap on one queue, and keeps the true ones
    /// in annotations.
    fn times(&self) -> (i64, i64) {
        match self.told {
            (Some(start), Some(end)) if start <= end && start <= self.end && self.start <= end => {
                (start, end)
            }
            _ => (self.start, self.end),
        }
    }
}

/// What stands in square brackets.
fn bracketed(text: &str) -> impl Iterator<Item = &str> {
    text.split('[')
        .skip(1)
        .filter_map(|part| part.split(']').next())
}

/// The last number in a text.
fn digits(text: &str) -> Option<&str> {
    let end = text.rfind(|c: char| c.is_ascii_digit())? + 1;
    let head = text.get(..end)?;
    let start = head.rfind(|c: char| !c.is_ascii_digit());
    head.get(start.map_or(0, |at| at + 1)..)
}
