//! Makes kernels of what began and ended on tracks.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU64;

use super::Trouble;
use super::annotation::Told;
use super::lane::{Begun, Edge, Lane};
use super::sequence::{Names, Sequence};
use super::texts::Texts;
use super::tracks::{Place, Tracks};
use crate::formats::proto::{Malformed, Value, fields};
use crate::gather::{Correlation, Fault, Gathered, KernelText, Pieces, RawKernel, Spot, few};
use crate::timeline::{KernelClass, NameId};

/// The most tracks that have kernels.
const LANES: usize = 1 << 18;

/// A kernel that began and ended in one event.
#[derive(Clone, Copy)]
struct Whole {
    name: NameId,
    place: u32,
    start: i64,
    end: i64,
}

/// Slices so far, and what is needed to make kernels of them.
#[derive(Default)]
pub(super) struct Slices {
    texts: Texts,
    tracks: Tracks,
    places: Vec<Place>,
    place_ids: HashMap<Place, u32>,
    /// Tracks that have had a kernel, and their numbers.
    lanes: Vec<Lane>,
    lane_ids: HashMap<(u64, u64), usize>,
    whole: Pieces<Whole>,
    calls: Pieces<Call>,
}

/// A call of the host, which may have put something on a GPU.
#[derive(Clone, Copy)]
struct Call {
    /// What it has in common with what it put there.
    flow: NonZeroU64,
    at: i64,
}

/// What a TrackEvent tells.
#[derive(Default)]
struct Event {
    kind: u64,
    track: Option<u64>,
    name: Option<NameId>,
    category: Option<Category>,
    time: Option<i64>,
    told: Told,
    flow: Option<NonZeroU64>,
    /// A Chrome event with its own length, in microseconds.
    length: Option<i64>,
}

/// What a category says of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Category {
    /// A kernel, whose class its name tells.
    Kernel,
    Copy,
    /// A call of the host.
    Call,
}

impl Category {
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        match name {
            b"kernel_dispatch" | b"rocm_kernel_dispatch" | b"rocm_hip_stream" | b"kernel" => {
                Some(Self::Kernel)
            }
            b"memory_copy" | b"rocm_memory_copy" | b"gpu_memcpy" | b"gpu_memset" => {
                Some(Self::Copy)
            }
            b"hip_api" | b"hsa_api" | b"rccl_api" | b"rocm_hip_api" | b"rocm_hsa_api"
            | b"rocm_rccl_api" => Some(Self::Call),
            _ => None,
        }
    }

    /// Whether it is of what runs on GPUs; of a copy with its class.
    fn on_gpu(self) -> Option<Option<KernelClass>> {
        match self {
            Self::Kernel => Some(None),
            Self::Copy => Some(Some(KernelClass::Copy)),
            Self::Call => None,
        }
    }
}

impl Slices {
    pub(super) fn texts(&mut self) -> &mut Texts {
        &mut self.texts
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty() && self.whole.is_empty()
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
        if let (1, Some(Category::Call), Some(flow)) = (event.kind, event.category, event.flow) {
            self.calls.push(Call { flow, at: time });
        }
        let place = event.category.and_then(Category::on_gpu);
        let place = place.map(|class| Place {
            track,
            class,
            device: event.told.device.or(event.told.receiver),
            sender: event.told.sender,
            stream: event.told.stream.or(event.told.queue),
        });
        if let Some(length) = event.length {
            if let Some(place) = place {
                let name = self.name(event.name)?;
                let end = time.saturating_add(length.saturating_mul(1000));
                self.whole(name, place, time, end);
            }
            return Ok(());
        }
        let lane = match (event.kind, place) {
            (1, Some(_)) => self.lane(track)?,
            (1 | 2, _) => match self.lane_ids.get(&track) {
                Some(&lane) => lane,
                None => return Ok(()),
            },
            _ => return Ok(()),
        };
        let edge = match (event.kind, place) {
            (1, Some(place)) => Edge::Kernel(Begun {
                name: self.name(event.name)?,
                place: self.place_on(lane, place),
                told: event.told.begin.zip(event.told.end),
                flow: event.flow,
            }),
            (1, None) => Edge::Other,
            _ => Edge::End,
        };
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.push(time, edge);
        }
        Ok(())
    }

    /// The number of a track's lane, which is made if it is new.
    fn lane(&mut self, track: (u64, u64)) -> Result<usize, Fault> {
        let next = self.lanes.len();
        let lane = *self.lane_ids.entry(track).or_insert(next);
        if lane == next {
            few(next + 1, LANES, "tracks with kernels")
                .map_err(|what| Fault::Value { event: 0, what })?;
            self.lanes.push(Lane::default());
        }
        Ok(lane)
    }

    /// The number of a place on a lane: mostly that of the kernel before.
    fn place_on(&mut self, lane: usize, place: Place) -> u32 {
        let last = self.lanes.get(lane).map_or(0, |lane| lane.place);
        if self.places.get(last as usize) == Some(&place) {
            return last;
        }
        let number = self.place(place);
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.place = number;
        }
        number
    }

    fn place(&mut self, place: Place) -> u32 {
        *self.place_ids.entry(place).or_insert_with(|| {
            self.places.push(place);
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        })
    }

    fn whole(&mut self, name: NameId, place: Place, start: i64, end: i64) {
        let place = self.place(place);
        self.whole.push(Whole {
            name,
            place,
            start,
            end,
        });
    }

    /// A name, or the one of what has none.
    fn name(&mut self, name: Option<NameId>) -> Result<NameId, Fault> {
        name.map_or_else(|| self.texts.intern(""), Ok)
    }

    /// What an event is, and, if it is a kernel, all about it: most events are calls of the host.
    fn parse(&mut self, message: &[u8], sequence: &mut Sequence) -> Result<Event, Trouble> {
        let mut event = Event::default();
        // Whether something that matters of a kernel came before it was known to be one.
        let mut early = false;
        for field in fields(message) {
            let (number, value) = field?;
            match number {
                9 => event.kind = value.number(),
                11 => event.track = Some(value.number()),
                22 => event.category = Category::of(value.bytes()).or(event.category),
                3 => {
                    let category = sequence.categories.get(value.number());
                    event.category = category.flatten().or(event.category);
                }
                // Flows, and those that end here; in the second numbers of old.
                47 | 48 | 36 | 42 => {
                    event.flow = event.flow.or(NonZeroU64::new(value.number()));
                }
                16 => event.time = Some((value.number() as i64).saturating_mul(1000)),
                1 => {
                    let delta = value.number() as i64;
                    let now = sequence.reference.unwrap_or(0).saturating_add(delta);
                    sequence.reference = Some(now);
                    event.time = Some(now.saturating_mul(1000));
                }
                6 => legacy(value.bytes(), &mut event)?,
                4 | 10 | 23 => match event.category {
                    None => early = true,
                    Some(Category::Call) => {}
                    Some(_) => self.detail(number, value, sequence, &mut event)?,
                },
                _ => {}
            }
        }
        let runs = event
            .category
            .is_some_and(|category| category.on_gpu().is_some());
        if early && runs {
            (event.name, event.told) = (None, Told::default());
            for field in fields(message) {
                let (number, value) = field?;
                self.detail(number, value, sequence, &mut event)?;
            }
        }
        Ok(event)
    }

    /// Takes what only matters of a kernel.
    fn detail(
        &mut self,
        number: u32,
        value: Value<'_>,
        sequence: &Sequence,
        event: &mut Event,
    ) -> Result<(), Trouble> {
        match number {
            23 => event.name = Some(self.texts.intern(&value.text())?),
            10 => event.name = sequence.names.get(value.number()),
            4 => event.told.take(value.bytes(), sequence, &mut self.texts)?,
            _ => {}
        }
        Ok(())
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
            let of = |names: &Names| names.get(value.number());
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
                17 => named = Some(self.texts.intern(&value.text())?),
                20 => named = of(&sequence.names),
                19 => kernel = of(&sequence.kernels),
                3 => queue = Some(self.texts.intern(&format!("queue {}", value.number()))?),
                4 => stage = Some(self.texts.intern(&format!("stage {}", value.number()))?),
                _ => {}
            }
        }
        // Perfetto's own reader leaves out what ran on a queue that nobody declared, too.
        if !any || astray {
            return Ok(());
        }
        let name = named.or(kernel).or(stage);
        let name = match name {
            Some(name) => name,
            None => self.texts.intern("unnamed stage")?,
        };
        let queue = match queue {
            Some(queue) => queue,
            None => self.texts.intern("0")?,
        };
        let place = Place {
            track: (2, 0),
            class: None,
            device: Some(self.texts.intern(&gpu.to_string())?),
            sender: None,
            stream: Some(queue),
        };
        self.whole(name, place, time, time.saturating_add(length.max(0)));
        Ok(())
    }
    /// Takes a TrackDescriptor.
    pub(super) fn describe(&mut self, message: &[u8]) -> Result<(), Trouble> {
        self.tracks.describe(message, &mut self.texts)
    }

    /// Whether a track says that a simulator made it up.
    pub(super) fn simulated(&self) -> bool {
        self.tracks.simulated(&self.texts)
    }

    /// Hands out all kernels and what launched them, and forgets them; the count of those that never ended.
    pub(super) fn gather(&mut self, gathered: &mut Gathered) -> Result<u64, Fault> {
        let calls = std::mem::take(&mut self.calls);
        let open = self.kernels(gathered, !calls.is_empty())?;
        let launched = gathered.correlated();
        for Call { flow, at } in calls {
            if launched.binary_search(&flow.get()).is_ok() {
                gathered.launch(None, flow.get(), at);
            }
        }
        Ok(open)
    }

    /// Hands out the kernels, with their flows if there are calls that have some.
    fn kernels(&mut self, gathered: &mut Gathered, with_flows: bool) -> Result<u64, Fault> {
        let whole = std::mem::take(&mut self.whole);
        let lanes = std::mem::take(&mut self.lanes);
        let gpus = self.places.iter().filter(|place| place.class.is_none());
        let gpus = gpus.map(|place| self.tracks.labels(place, &self.texts).device);
        let gpus = HashSet::from_iter(gpus);
        let mut taker = Taker {
            gpus,
            names: vec![None; self.texts.len()],
            places: vec![None; self.places.len()],
            slices: self,
            gathered,
            number: 0,
        };
        for kernel in whole {
            if kernel.start <= kernel.end {
                taker.take(kernel, None)?;
            }
        }
        let mut open = 0;
        for lane in lanes {
            open += lane.close(|begun, start, end| {
                let (start, end) = times(begun, start, end);
                let whole = Whole {
                    name: begun.name,
                    place: begun.place,
                    start,
                    end,
                };
                taker.take(whole, begun.flow.filter(|_| with_flows))
            })?;
        }
        Ok(open)
    }
}

/// Hands kernels over. What a name or a place is there is looked up once.
struct Taker<'a> {
    /// The devices that run kernels.
    gpus: HashSet<String>,
    slices: &'a Slices,
    gathered: &'a mut Gathered,
    names: Vec<Option<NameId>>,
    places: Vec<Option<Spot>>,
    number: u64,
}

impl Taker<'_> {
    fn take(&mut self, kernel: Whole, flow: Option<NonZeroU64>) -> Result<(), Fault> {
        self.number += 1;
        let flow = flow.map(NonZeroU64::get);
        let (name, place) = (kernel.name.0 as usize, kernel.place as usize);
        let Some(at) = self.slices.places.get(place) else {
            return Ok(());
        };
        let known = self.names.get(name).copied().flatten();
        let spot = self.places.get(place).copied().flatten();
        if let (Some(name), Some(spot)) = (known, spot) {
            let class = at.class.unwrap_or_else(|| self.gathered.class(name));
            let raw = RawKernel {
                name,
                class,
                spot,
                start: kernel.start,
                end: kernel.end,
                collective: None,
                correlation: flow.and_then(Correlation::new),
            };
            return self.gathered.push(self.number, &raw);
        }
        let mut labels = self.slices.tracks.labels(at, &self.slices.texts);
        // The GPU of a copy is the receiver, or the sender where the receiver is the host.
        if let Some(sender) = labels.sender.take()
            && at.class == Some(KernelClass::Copy)
            && !self.gpus.contains(&labels.device)
            && self.gpus.contains(&sender)
        {
            labels.device = sender;
        }
        let text = KernelText {
            name: self.slices.texts.get(kernel.name),
            class: at.class,
            stream: &labels.stream,
            device: &labels.device,
            start: kernel.start,
            end: kernel.end,
        };
        let gathered = &mut self.gathered;
        let (taken, spot) = gathered.launched(self.number, labels.rank, flow, &text)?;
        if let Some(known) = self.names.get_mut(name) {
            *known = Some(taken);
        }
        if let Some(known) = self.places.get_mut(place) {
            *known = Some(spot);
        }
        Ok(())
    }
}

/// rocprofv3 changes the times of kernels that overlap on one queue, and keeps the true ones in
/// annotations.
fn times(begun: &Begun, start: i64, end: i64) -> (i64, i64) {
    match begun.told {
        Some(told) if told.0 <= told.1 && told.0 <= end && start <= told.1 => told,
        _ => (start, end),
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
