//! Perfetto's protobuf: TrackEvent slices as rocprofv3 and rocprof-sys write them, and
//! GpuRenderStageEvents. Field numbers: Perfetto's `trace_packet.proto` and its neighbours.
//!
//! A packet means something only in its sequence: names, defaults and clocks that earlier packets
//! of the same sequence declared. `sequence.rs` keeps those, `clock.rs` the clocks, `slices.rs`
//! makes kernels of what began and ended, which `lane.rs` holds till then.

mod annotation;
mod clock;
mod lane;
mod sequence;
mod slices;
mod texts;
mod tracks;
mod write;

use std::collections::HashMap;
use std::io::Read;

use super::proto::{MESSAGE_LIMIT, Next, Stream, StreamError, Value, fields};
use super::tables::rocprofv3::ADVICE;
use super::xplane::Trouble;
use super::{Head, Input};
use crate::error::ReadError;
use crate::gather::{Fault, Found, Gathered};
use crate::source::Source;
use clock::Clocks;
use sequence::Sequence;
use slices::Slices;

pub use write::write_perfetto;

/// Fields of TracePacket that are known here; others are passed over.
mod packet {
    pub(super) const CLOCK_SNAPSHOT: u32 = 6;
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const INTERNED: u32 = 12;
    pub(super) const FLAGS: u32 = 13;
    pub(super) const CLEARED: u32 = 41;
    pub(super) const DROPPED: u32 = 42;
    pub(super) const THREAD: u32 = 44;
    pub(super) const COMPRESSED: u32 = 50;
    pub(super) const RENDER_STAGE: u32 = 53;
    pub(super) const CLOCK: u32 = 58;
    pub(super) const DEFAULTS: u32 = 59;
    pub(super) const TRACK: u32 = 60;
    pub(super) const ZSTD_COMPRESSED: u32 = 133;
    /// All of them, for telling this format from others.
    pub(super) const ALL: [u32; 15] = [
        CLOCK_SNAPSHOT,
        TIMESTAMP,
        SEQUENCE,
        TRACK_EVENT,
        INTERNED,
        FLAGS,
        CLEARED,
        DROPPED,
        THREAD,
        COMPRESSED,
        RENDER_STAGE,
        CLOCK,
        DEFAULTS,
        TRACK,
        ZSTD_COMPRESSED,
    ];
}

/// Whether the bytes begin a Trace: packets, one after the other, of which some have fields that
/// only packets have.
pub(super) fn wrote(head: &Head<'_>) -> bool {
    let head = head.bytes;
    if head.first() != Some(&0x0A) {
        return false;
    }
    let mut known = false;
    for field in fields(head) {
        // The last packet may be longer than the head.
        let Ok((number, Value::Bytes(bytes))) = field else {
            break;
        };
        if number != 1 {
            return false;
        }
        for field in fields(bytes) {
            let Ok((number, _)) = field else { return false };
            known |= packet::ALL.contains(&number);
        }
    }
    known
}

pub(super) fn read(input: Input<'_>) -> Result<Found, ReadError> {
    let file = input.file;
    let mut stream = Stream::new(input.source);
    let mut trace = Trace::default();
    let walked = trace.walk(&mut stream);
    let offset = stream.offset();
    match walked {
        Ok(()) => {}
        // A recording that was stopped hard ends anywhere.
        Err(Trouble::Stream(StreamError::Cut)) if !trace.slices.is_empty() => {
            trace.notes.push(format!(
                "{file}: is cut in the middle of a packet at byte {offset}; what stands before is used"
            ));
        }
        Err(trouble) => return Err(trouble.explain(file, "Perfetto trace", offset)),
    }
    trace
        .finish(file)
        .map_err(|fault| ReadError::of(fault, file))
}

/// All that was read so far.
#[derive(Default)]
struct Trace {
    sequences: Vec<Sequence>,
    by_id: HashMap<u64, usize>,
    /// The sequence of the last packet, and its place.
    last: (u64, usize),
    clocks: Clocks,
    slices: Slices,
    packets: u64,
    /// Packets that could not be understood because others were lost before.
    lost: u64,
    /// Packets whose clock is not known.
    timeless: u64,
    notes: Vec<String>,
}

/// A packet's fields, found before any is understood: their order is free.
#[derive(Default)]
struct Packet<'a> {
    sequence: u64,
    timestamp: Option<u64>,
    clock: Option<u64>,
    flags: u64,
    cleared: bool,
    dropped: bool,
    snapshot: Option<&'a [u8]>,
    defaults: Option<&'a [u8]>,
    interned: Vec<&'a [u8]>,
    event: Option<&'a [u8]>,
    stage: Option<&'a [u8]>,
    track: Option<&'a [u8]>,
    thread: Option<&'a [u8]>,
    packed: Option<(u32, &'a [u8])>,
}

impl<'a> Packet<'a> {
    fn of(bytes: &'a [u8]) -> Result<Self, Trouble> {
        let mut packet = Self::default();
        for field in fields(bytes) {
            let (number, value) = field?;
            match number {
                packet::TIMESTAMP => packet.timestamp = Some(value.number()),
                packet::SEQUENCE => packet.sequence = value.number(),
                packet::TRACK_EVENT => packet.event = Some(value.bytes()),
                packet::INTERNED => packet.interned.push(value.bytes()),
                packet::FLAGS => packet.flags = value.number(),
                packet::CLEARED => packet.cleared = value.number() != 0,
                packet::DROPPED => packet.dropped = value.number() != 0,
                packet::CLOCK => packet.clock = Some(value.number()),
                packet::DEFAULTS => packet.defaults = Some(value.bytes()),
                packet::TRACK => packet.track = Some(value.bytes()),
                packet::THREAD => packet.thread = Some(value.bytes()),
                packet::CLOCK_SNAPSHOT => packet.snapshot = Some(value.bytes()),
                packet::RENDER_STAGE => packet.stage = Some(value.bytes()),
                packet::COMPRESSED | packet::ZSTD_COMPRESSED => {
                    packet.packed = Some((number, value.bytes()));
                }
                _ => {}
            }
        }
        Ok(packet)
    }
}

impl Trace {
    fn walk<R: Read>(&mut self, stream: &mut Stream<R>) -> Result<(), Trouble> {
        while let Some((number, next)) = stream.next(u64::MAX)? {
            match next {
                Next::Bytes(length) if number == 1 => self.packet(stream.take(length)?, false)?,
                Next::Bytes(length) => stream.skip(length)?,
                Next::Number(_) => {}
            }
        }
        Ok(())
    }

    fn packet(&mut self, bytes: &[u8], unpacked: bool) -> Result<(), Trouble> {
        let packet = Packet::of(bytes)?;
        self.packets += 1;
        if let Some((number, packed)) = packet.packed {
            // Packets are not packed twice.
            return match unpacked {
                true => Err(Trouble::Stream(StreamError::Malformed)),
                false => self.unpack(number, packed),
            };
        }
        let at = self.sequence_of(packet.sequence);
        let sequence = &mut self.sequences[at];
        if packet.cleared || packet.flags & 1 != 0 {
            sequence.clear();
        } else if packet.dropped {
            sequence.lose();
        }
        if let Some(defaults) = packet.defaults {
            sequence.set_defaults(defaults)?;
        }
        for interned in &packet.interned {
            sequence.intern(interned, self.slices.texts())?;
        }
        if let Some(snapshot) = packet.snapshot {
            self.clocks.snapshot(packet.sequence, snapshot)?;
        }
        if let Some(track) = packet.track {
            self.slices.describe(track)?;
        }
        if let Some(thread) = packet.thread {
            sequence.set_thread(thread)?;
        }
        if packet.flags & 2 != 0 && sequence.is_lost() {
            self.lost += 1;
            return Ok(());
        }
        let clock = packet.clock.or(sequence.clock());
        let stamp = packet.timestamp;
        let time = stamp.map(|stamp| self.clocks.time(packet.sequence, clock, stamp));
        if let Some(event) = packet.event {
            let time = match time {
                Some(None) => {
                    self.timeless += 1;
                    return Ok(());
                }
                Some(time) => time,
                None => None,
            };
            self.slices.event(event, time, packet.sequence, sequence)?;
        }
        if let (Some(stage), Some(Some(time))) = (packet.stage, time) {
            self.slices.stage(stage, time, sequence)?;
        }
        Ok(())
    }

    /// The place of a sequence; most packets are of the one before's.
    fn sequence_of(&mut self, number: u64) -> usize {
        if self.last.0 != number || self.sequences.is_empty() {
            let at = *self.by_id.entry(number).or_insert_with(|| {
                self.sequences.push(Sequence::default());
                self.sequences.len() - 1
            });
            self.last = (number, at);
        }
        self.last.1
    }

    /// Reads packets that were compressed together.
    fn unpack(&mut self, number: u32, packed: &[u8]) -> Result<(), Trouble> {
        let mut bytes = Vec::new();
        let limit = MESSAGE_LIMIT + 1;
        let read = match number {
            packet::ZSTD_COMPRESSED => {
                Source::of(packed).and_then(|source| source.take(limit).read_to_end(&mut bytes))
            }
            _ => flate2::read::ZlibDecoder::new(packed)
                .take(limit)
                .read_to_end(&mut bytes),
        };
        read.map_err(|_| StreamError::Malformed)?;
        if bytes.len() as u64 == limit {
            return Err(StreamError::TooLong.into());
        }
        for field in fields(&bytes) {
            if let (1, Value::Bytes(bytes)) = field? {
                self.packet(bytes, true)?;
            }
        }
        Ok(())
    }

    fn finish(mut self, file: &str) -> Result<Found, Fault> {
        if self.lost > 0 {
            self.notes.push(format!(
                "{file}: {} packets can't be understood because others before them were lost",
                self.lost
            ));
        }
        if self.timeless > 0 {
            self.notes.push(format!(
                "{file}: {} events with a clock that the trace does not declare were left out",
                self.timeless
            ));
        }
        let mut gathered = Gathered::default();
        let open = self.slices.gather(&mut gathered)?;
        gathered.simulated = self.slices.simulated();
        if open > 0 {
            self.notes.push(format!(
                "{file}: {open} kernels that did not end within the recording were left out"
            ));
        }
        let other = format!(
            "{} packets, of which none is a kernel that is known here (slices of the categories kernel_dispatch or rocm_kernel_dispatch, GPU render stages); of a ROCm job record one {ADVICE}",
            self.packets
        );
        Ok(Found {
            notes: self.notes,
            other: Some(other),
            ..Found::new(gathered, self.packets, ADVICE)
        })
    }
}
